//! Judges the figures of a path: what a transfer would get, what limits it, and what to do.

use std::fmt;
use std::time::Duration;

use serde_json::{Value, json};
use units::{Bytes, Rate};

use super::measure::{Flow, RoundTrips};
use crate::summary::Figures;
use crate::verdict::{LOSSY, Verdict, of_flow};

/// The part of a full datagram that is the file's.
const PAYLOAD: f64 = 0.96;
/// Others feel a queue that is longer than this, and than the way itself.
const LONG_QUEUE: Duration = Duration::from_millis(50);
/// Less than what Ethernet carries through common tunnels.
const SMALL_MTU: u64 = 1400;
/// Differences between round trips that wires do not make.
const UNSTEADY: Duration = Duration::from_millis(5);
/// Bytes of a file in a TCP packet, for the formula.
const TCP_PAYLOAD: f64 = 1448.0;

/// All that was found out.
#[derive(Clone, Copy, Debug, Default)]
pub struct Findings {
    pub rtt: RoundTrips,
    pub there: Flow,
    pub back: Flow,
    /// The largest packets known to pass, IP header and all.
    pub mtu: u64,
}

impl Flow {
    /// What a transfer would get: as much as this one did.
    fn likely(&self) -> Rate {
        self.rate.scaled(PAYLOAD)
    }

    /// What limits a transfer that goes this way.
    fn limited_by(&self) -> Verdict {
        let figures = Figures {
            carrier: Some("udp"),
            rtt: Some(self.loaded),
            least_rtt: Some(self.idle),
            loss: Some(self.loss),
            capacity: self.capacity,
            held: self.held,
            variation: self.variation,
            fetched: self.fetched,
            ..Figures::default()
        };
        of_flow(&figures, self.rate)
    }

    fn object(&self) -> Value {
        let Verdict { what, words, evidence, .. } = self.limited_by();
        json!({
            "rate_bps": self.rate.as_bits_per_sec(),
            "capacity_bps": self.capacity.map(Rate::as_bits_per_sec),
            "loss": self.loss,
            "loaded_rtt_ms": self.loaded.as_secs_f64() * 1e3,
            "likely_bps": self.likely().as_bits_per_sec(),
            "limited_by": { "what": what, "words": words, "evidence": evidence },
        })
    }
}

impl fmt::Display for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} arrive, {:.2}% lost", self.rate, self.loss * 100.0)?;
        if let Some(capacity) = self.capacity {
            write!(f, ", capacity {capacity}")?;
        }
        write!(f, ", RTT {} meanwhile; limited by {}", ms(self.loaded), self.limited_by().words)
    }
}

impl Findings {
    /// What one TCP connection (Reno's law) makes of such losses: Mathis et al. 1997, equation 3.
    fn plain_tcp(&self, loss: f64) -> Rate {
        let round = self.rtt.median.as_secs_f64().max(1e-6);
        Rate::from_bits_per_sec((TCP_PAYLOAD * 8.0 / round * (1.5 / loss).sqrt()) as u64)
    }

    /// The one thing to do, or to know, that matters most: a word, and words.
    fn advice(&self) -> (&'static str, String) {
        let loss = self.there.loss.max(self.back.loss);
        let rate = self.there.rate.max(self.back.rate);
        let queue = self.there.loaded.max(self.back.loaded).saturating_sub(self.rtt.least);
        let limits = [self.there.limited_by(), self.back.limited_by()];
        let limited = |by: &[&str]| limits.iter().find(|limit| by.contains(&limit.what));
        if let Some(Verdict { what, words, advice, .. }) = limited(&["limiter"]) {
            (*what, format!("there is {words}: {advice}"))
        } else if loss >= LOSSY {
            let share = loss * 100.0;
            let tcp = self.plain_tcp(loss);
            let words = format!(
                "use `longhaul cp` over UDP: with {share:.2}% of the packets lost, one plain TCP \
                 connection would get {tcp}; a line that should lose none needs looking after"
            );
            ("loss", words)
        } else if let Some(Verdict { what, words, advice, .. }) = limited(&["competition"]) {
            (*what, format!("there is {words}: {advice}"))
        } else if queue > LONG_QUEUE.max(self.rtt.least) {
            let (queue, limit) = (ms(queue), rate.scaled(0.9));
            let words = format!(
                "packets wait {queue} while the path is full, and those of others too: give \
                 --rate-limit {}mbit to spare them",
                limit.as_bits_per_sec() / 1_000_000
            );
            ("queue", words)
        } else if let Some(limit) = limited(&["cpu", "far-cpu", "sender", "receiver"]) {
            ("host", format!("the path could do more; it is held back by {limit}"))
        } else if self.mtu < SMALL_MTU {
            let words = format!(
                "only packets of {} bytes pass: look for a tunnel, and raise the MTU of its link",
                self.mtu
            );
            ("mtu", words)
        } else if self.rtt.jitter > UNSTEADY.max(self.rtt.least / 4) {
            let words = format!(
                "round trips differ by {}: a wire in place of wireless, or a quieter hour",
                ms(self.rtt.jitter)
            );
            ("jitter", words)
        } else {
            let window = Bytes(rate.bytes_in(self.rtt.median).0);
            let words = format!(
                "nothing to mend: `longhaul cp` fills this path; one plain TCP connection needs \
                 windows of {window} on both sides to do so"
            );
            ("none", words)
        }
    }

    /// For programs.
    pub fn object(&self) -> Value {
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        let (what, words) = self.advice();
        json!({
            "event": "done",
            "rtt_ms": {
                "least": ms(self.rtt.least),
                "median": ms(self.rtt.median),
                "jitter": ms(self.rtt.jitter),
            },
            "there": self.there.object(),
            "back": self.back.object(),
            "mtu": self.mtu,
            "advice": { "what": what, "words": words },
        })
    }
}

/// For people.
impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RoundTrips { least, median, jitter } = self.rtt;
        let (least, median, jitter) = (ms(least), ms(median), ms(jitter));
        writeln!(f, "round trip  {least} at least, {median} median, jitter {jitter}")?;
        writeln!(f, "there       {}", self.there)?;
        writeln!(f, "back        {}", self.back)?;
        writeln!(f, "packets     of {} bytes pass whole", self.mtu)?;
        let (there, back) = (self.there.likely(), self.back.likely());
        writeln!(f, "A transfer would get about {there} there and {back} back.")?;
        write!(f, "Advice: {}.", self.advice().1)
    }
}

fn ms(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::Held;

    fn mbit(rate: u64) -> Rate {
        Rate::from_bits_per_sec(rate * 1_000_000)
    }

    /// 100 ms, 100 Mbit/s both ways, and nothing wrong with it.
    fn sound() -> Findings {
        let rtt = RoundTrips {
            least: Duration::from_millis(100),
            median: Duration::from_millis(101),
            jitter: Duration::from_millis(1),
        };
        let flow = Flow {
            rate: mbit(98),
            capacity: Some(mbit(100)),
            loaded: Duration::from_millis(105),
            idle: rtt.least,
            ..Flow::default()
        };
        Findings { rtt, there: flow, back: flow, mtu: 1500 }
    }

    #[test]
    fn the_advice_names_what_is_worst() {
        type Harm = fn(&mut Findings);
        let word = |harm: Harm| {
            let mut path = sound();
            harm(&mut path);
            path.advice().0
        };
        assert_eq!(word(|_| {}), "none");
        assert_eq!(word(|path| path.back.loss = 0.01), "loss");
        assert_eq!(word(|path| path.there.loaded = Duration::from_millis(300)), "queue");
        assert_eq!(word(|path| path.there.held = Some((Held::Cpu, 0.9))), "host");
        assert_eq!(word(|path| path.back.held = Some((Held::FarCpu, 0.9))), "host");
        let crowded: Harm = |path| {
            path.there.rate = mbit(40);
            path.there.loaded = Duration::from_millis(160);
        };
        assert_eq!(word(crowded), "competition");
        let limited: Harm = |path| {
            path.back = Flow { rate: mbit(40), loss: 0.02, variation: Some(0.01), ..path.back };
        };
        assert_eq!(word(limited), "limiter");
        assert_eq!(word(|path| path.mtu = 1280), "mtu");
        assert_eq!(word(|path| path.rtt.jitter = Duration::from_millis(30)), "jitter");
    }

    #[test]
    fn what_limits_is_told_from_rate_and_capacity() {
        let there = sound().there;
        assert_eq!(there.limited_by().words, "the path's capacity");
        let word = |flow: Flow| flow.limited_by().what;
        assert_eq!(word(Flow { rate: mbit(60), loss: 0.3, ..there }), "path");
        let slow = Flow { rate: mbit(20), ..there };
        assert_eq!(slow.limited_by().words, "the path");
        assert_eq!(word(Flow { fetched: true, ..slow }), "sender-or-path");
        assert_eq!(word(Flow { capacity: None, ..slow }), "path");
        assert_eq!(word(Flow { loss: 0.02, ..slow }), "loss");
        // A policer loses what is too much, and a shaper lets it wait; others who send are uneven.
        assert_eq!(word(Flow { loss: 0.02, variation: Some(0.01), ..slow }), "limiter");
        let waits = Flow { loaded: Duration::from_millis(160), ..slow };
        assert_eq!(word(Flow { variation: Some(0.01), ..waits }), "limiter");
        assert_eq!(word(Flow { variation: Some(0.2), ..waits }), "competition");
        assert_eq!(word(Flow { held: Some((Held::Window, 0.7)), ..waits }), "receiver");
    }

    #[test]
    fn plain_tcp_follows_the_formula() {
        let path = sound();
        // 1448 * 8 / 0.101 s * sqrt(1.5 / 0.015) = 1.147 Mbit/s.
        let rate = path.plain_tcp(0.015).as_bits_per_sec();
        assert!((1_140_000..1_150_000).contains(&rate), "{rate}");
    }

    #[test]
    fn people_and_programs_read_the_same() {
        let (text, object) = (sound().to_string(), sound().object());
        assert!(text.contains("98.00 Mbit/s arrive, 0.00% lost"), "{text}");
        assert_eq!(object["there"]["rate_bps"], 98_000_000);
        assert_eq!(object["rtt_ms"]["least"], 100.0);
        assert!(text.contains(object["advice"]["words"].as_str().unwrap()));
    }
}
