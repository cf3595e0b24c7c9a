//! What applications send.

use core::str::FromStr;
use core::time::Duration;

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::SeedableRng;
use units::{Bytes, Instant};

use crate::random::uniform;

/// What an application sends over its connection.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Source {
    /// As much as goes (FTP of an endless file).
    #[default]
    Greedy,
    /// So much, and then ends (FTP).
    Fixed(Bytes),
    /// So much as `longhaul cp` copies it, for our own transport: done when the client has ended.
    Copy(Bytes),
    /// Documents, each on a connection of its own, with pauses between them.
    Http(Http),
    /// Messages of one size on one connection, at a steady pace (telemetry, typing).
    Messages(Messages),
}

/// A message of `size` every so often, whether or not those before have arrived.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Messages {
    /// Of each.
    pub size: Bytes,
    /// From one to the next.
    pub every: Duration,
}

impl Default for Messages {
    fn default() -> Self {
        Self { size: Bytes(200), every: Duration::from_millis(20) }
    }
}

/// A reader of web pages (paper 4, section 4): documents have Pareto's sizes, and the pauses
/// between them are exponential.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Http {
    /// Mean size of a document.
    pub mean: Bytes,
    /// Pareto's shape; the mean exists above 1.
    pub shape: f64,
    /// Mean pause from the end of one to the request of the next.
    pub think: Duration,
}

impl Default for Http {
    fn default() -> Self {
        Self { mean: Bytes(10_000), shape: 1.3, think: Duration::from_millis(800) }
    }
}

/// The largest document: Pareto's law with a shape below 2 has no variance, and one document in
/// 10^12 would never end.
const LARGEST: f64 = 1e12;

/// Draws documents and pauses.
#[derive(Clone, Debug)]
pub(crate) struct Reader {
    law: Http,
    random: Pcg64Mcg,
}

impl Reader {
    pub(crate) fn new(law: Http, seed: u64) -> Self {
        Self { law, random: Pcg64Mcg::seed_from_u64(seed) }
    }

    /// Bytes of the next document.
    pub(crate) fn document(&mut self) -> u64 {
        let Http { mean, shape, .. } = self.law;
        let least = mean.0 as f64 * (shape - 1.0) / shape;
        (least / uniform(&mut self.random).powf(1.0 / shape)).clamp(1.0, LARGEST) as u64
    }

    /// When it is asked for.
    pub(crate) fn pause(&mut self, now: Instant) -> Instant {
        let mean = self.law.think.as_secs_f64();
        now + Duration::from_secs_f64(-uniform(&mut self.random).ln() * mean)
    }
}

/// The `key=value` of a list.
fn pairs(rest: &str) -> impl Iterator<Item = Result<(&str, &str), String>> {
    let words = rest.split(',').filter(|word| !word.is_empty());
    words.map(|word| word.split_once('=').ok_or_else(|| format!("'{word}': key=value")))
}

impl Messages {
    fn read(rest: &str) -> Result<Self, String> {
        let mut messages = Self::default();
        for pair in pairs(rest) {
            match pair? {
                ("size", value) => {
                    messages.size = value.parse().map_err(|e| format!("size: {e}"))?;
                }
                ("every", value) => messages.every = path::parse_time(value)?,
                (key, _) => return Err(format!("'{key}' is none of size, every")),
            }
        }
        let possible = messages.size > Bytes::ZERO && messages.every >= SHORTEST;
        let why = || "a message has a byte at least, and comes 1us after the last at least".into();
        possible.then_some(messages).ok_or_else(why)
    }
}

/// Between two messages.
const SHORTEST: Duration = Duration::from_micros(1);

/// Reads `greedy`, a size, `copy:` and a size, `http:mean=10kB,shape=1.3,think=800ms`, or
/// `messages:size=200,every=20ms`, of which each part may be left out.
impl FromStr for Source {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let (name, rest) = text.split_once(':').unwrap_or((text, ""));
        let size = |text: &str| text.parse::<Bytes>().ok().filter(|size| *size > Bytes::ZERO);
        match name {
            "greedy" if rest.is_empty() => return Ok(Self::Greedy),
            "copy" => {
                let why = || format!("'{text}': a copy has a size, as in copy:5MB");
                return size(rest).map(Self::Copy).ok_or_else(why);
            }
            "messages" => return Messages::read(rest).map(Self::Messages),
            "http" => {}
            _ => {
                let known = "greedy, a size such as 5MB, copy:5MB, http, messages";
                let why = || format!("'{text}' is none of {known}");
                return size(text).map(Self::Fixed).ok_or_else(why);
            }
        }
        let mut law = Http::default();
        for pair in pairs(rest) {
            match pair? {
                ("mean", value) => law.mean = value.parse().map_err(|e| format!("mean: {e}"))?,
                ("shape", value) => law.shape = value.parse().map_err(|e| format!("shape: {e}"))?,
                ("think", value) => law.think = path::parse_time(value)?,
                (key, _) => return Err(format!("'{key}' is none of mean, shape, think")),
            }
        }
        let possible = law.shape > 1.0 && law.shape.is_finite() && law.mean > Bytes::ZERO;
        possible.then_some(Self::Http(law)).ok_or_else(|| "a mean needs a shape above 1".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_and_pauses_have_the_laws_that_were_asked_for() {
        let mut reader = Reader::new(Http { shape: 2.5, ..Http::default() }, 3);
        let n = 200_000;
        let sizes: Vec<u64> = (0..n).map(|_| reader.document()).collect();
        let mean = sizes.iter().sum::<u64>() as f64 / n as f64;
        // Variance of Pareto with shape 2.5: 0.8 of the squared mean, so sigma of the mean 0.2%.
        assert!((mean / 10_000.0 - 1.0).abs() < 0.01, "{mean}");
        // P(X > 2 least) = 2^-2.5.
        let least = 10_000.0 * 1.5 / 2.5;
        let above = sizes.iter().filter(|&&size| size as f64 > 2.0 * least).count() as f64;
        assert!((above / n as f64 - 2f64.powf(-2.5)).abs() < 0.005);
        let pauses: f64 =
            (0..n).map(|_| reader.pause(Instant::ZERO).since(Instant::ZERO).as_secs_f64()).sum();
        assert!((pauses / n as f64 / 0.8 - 1.0).abs() < 0.01);
    }

    #[test]
    fn sources_are_read() {
        assert_eq!("greedy".parse(), Ok(Source::Greedy));
        assert_eq!("5MB".parse(), Ok(Source::Fixed(Bytes(5_000_000))));
        assert_eq!("copy:200MB".parse(), Ok(Source::Copy(Bytes(200_000_000))));
        assert_eq!("http".parse(), Ok(Source::Http(Http::default())));
        assert_eq!("messages".parse(), Ok(Source::Messages(Messages::default())));
        let messages = Messages { size: Bytes(1000), every: Duration::from_millis(3) };
        assert_eq!("messages:every=3ms,size=1kB".parse(), Ok(Source::Messages(messages)));
        let law = Http { mean: Bytes(2000), ..Http::default() };
        assert_eq!("http:mean=2kB".parse(), Ok(Source::Http(law)));
        let documents = ["http:shape=1", "http:mean", "http:size=3"];
        let sizes = ["", "0", "greedy:x", "copy", "copy:", "copy:0", "copy:http"];
        for wrong in documents.iter().chain(&sizes) {
            assert!(wrong.parse::<Source>().is_err(), "{wrong}");
        }
    }
}
