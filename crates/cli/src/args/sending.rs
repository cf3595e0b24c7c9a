//! The flags of who sends.

use clap::Args;
use transport::FeedbackKind;
use transport::cc::{Algorithm, UnknownAlgorithm};
use units::Rate;

use super::some_rate;

/// How this side sends by UDP.
#[derive(Args, Clone, Copy)]
pub struct Sending {
    /// The congestion control of what this side sends (UDP), or what ssh starts to send to it: longhaul,
    /// background, cubic, newreno, udt, udt-g or fixed:RATE
    ///
    /// "longhaul" fills the path under random loss and keeps its queue short; "background" is the
    /// same, but yields to everything else on the path. "cubic" and
    /// "newreno" do what TCP does, "udt" and "udt-g" what UDT does. "fixed:RATE" sends at that
    /// rate whatever happens: only for a path that is all yours.
    #[arg(long, value_name = "NAME", value_parser = algorithm)]
    pub cc: Option<Algorithm>,
    /// Yield to everything else on the path: the same as --cc background
    #[arg(long, conflicts_with = "cc")]
    pub background: bool,
    /// How the receiver tells what has arrived (UDP; the same on both sides): periodic, or
    /// positive-ack
    ///
    /// "periodic" is a report of the whole state, many times in a round trip. "positive-ack" is an
    /// acknowledgement for each packet, as older protocols have it: slower, and for comparisons.
    #[arg(long, value_name = "KIND", default_value = "periodic")]
    pub feedback: FeedbackKind,
    /// Move data no faster than this, as in 100mbit
    ///
    /// Who sends keeps to it; a far side that sends a copy is asked to. `serve` keeps to its own in what it
    /// sends over each UDP connection and each striped stream; of the two the lower counts.
    #[arg(long, value_name = "RATE", value_parser = some_rate)]
    pub rate_limit: Option<Rate>,
}

fn algorithm(text: &str) -> Result<Algorithm, String> {
    match text.parse() {
        Ok(Algorithm::Fixed(Rate::ZERO)) => Err("fixed:RATE wants a rate above 0".to_owned()),
        read => read.map_err(|error: UnknownAlgorithm| error.to_string()),
    }
}

impl Sending {
    /// The same once more, as words for another command line.
    pub fn words(&self) -> Vec<String> {
        let cc = self.cc.map(|cc| format!("--cc={cc}"));
        let background = self.background.then(|| "--background".to_owned());
        let rate =
            self.rate_limit.map(|rate| format!("--rate-limit={}bit", rate.as_bits_per_sec()));
        [cc, background, rate].into_iter().flatten().collect()
    }

    /// What was asked for of the side that sends, and UDP alone can do.
    pub fn udp_alone(&self) -> impl Iterator<Item = &'static str> {
        [("--cc", self.cc.is_some()), ("--background", self.background)]
            .into_iter()
            .filter_map(|(option, given)| given.then_some(option))
    }

    /// Whether anything was asked for that UDP alone can do.
    pub fn wants_udp(&self) -> bool {
        self.udp_alone().next().is_some() || self.feedback != FeedbackKind::default()
    }

    /// The transport's settings.
    pub fn config(self) -> transport::Config {
        let background = self.background.then_some(Algorithm::Background);
        transport::Config {
            congestion: self.cc.or(background).unwrap_or_default(),
            rate_limit: self.rate_limit,
            feedback: self.feedback,
            ..transport::Config::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Cli, Command};

    #[test]
    fn the_far_side_is_told_what_was_typed() {
        let told = |options: &[&str]| {
            let words = [&["longhaul", "cp", "far:x", "."], options].concat();
            let Command::Cp(cp) = Cli::parse_from(words).command else { panic!("it is cp") };
            let words = ["longhaul", "far"].map(str::to_owned).into_iter();
            let words = words.chain(cp.way.sending.words());
            let Command::Far(far) = Cli::parse_from(words).command else { panic!("it is far") };
            (far.rate_limit, far.cc, far.background)
        };
        let rate: Option<Rate> = "1.5mbit".parse().ok();
        assert_eq!(told(&[]), (None, None, false));
        assert_eq!(told(&["--rate-limit", "1.5mbit", "--background"]), (rate, None, true));
        for none in ["0", "0mbit", "0.0000001mbit"] {
            let words = ["longhaul", "cp", "--rate-limit", none, "a", "far:"];
            assert!(Cli::try_parse_from(words).is_err(), "{none}");
            let cc = format!("fixed:{none}");
            assert!(Cli::try_parse_from(["longhaul", "cp", "--cc", &cc, "a", "far:"]).is_err());
        }
        for cc in ["udt-g", "background", "fixed:1234567bit"] {
            assert_eq!(told(&["--cc", cc]), (None, cc.parse().ok(), false));
        }
    }
}
