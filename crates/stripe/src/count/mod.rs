//! How many connections: a [`Policy`] makes a [`Controller`], which is asked again and again while the
//! stream runs.

mod auto;
mod equation;
mod hold;
mod losses;
mod pace;
mod rtt_bounded;
#[cfg(test)]
mod tests;

use core::fmt::Debug;
use core::time::Duration;

use units::{Bytes, Instant, ParseUnitError, Rate};

pub use auto::{Auto, suitable};
pub use equation::{Equation, System};
pub use hold::Hold;
pub use losses::Law;
pub use pace::Pace;
pub use rtt_bounded::RttBounded;

/// Bytes of a policy on the wire.
pub const POLICY_LEN: usize = 19;

/// What a sender knows of its connections at one time.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// When.
    pub now: Instant,
    /// How many connections live.
    pub connections: usize,
    /// How many of these have next to nothing on their way just now, as BBR has now and then to see the
    /// round-trip time.
    pub resting: usize,
    /// How many can be had.
    pub most: usize,
    /// Payload that the other side has confirmed, since the beginning.
    pub delivered: Bytes,
    /// Smoothed round-trip time, its mean over the connections.
    pub rtt: Duration,
    /// The smoothed round-trip time of the connection where it is least.
    pub least_rtt: Duration,
    /// The least round-trip time that any of them saw.
    pub base_rtt: Duration,
    /// How much a connection may have on its way, in whole segments, its mean over the connections.
    pub window: Bytes,
    /// Payload of a full segment.
    pub segment: Bytes,
    /// Segments sent since the beginning.
    pub sent: u64,
    /// Of these, sent again.
    pub resent: u64,
    /// Segments that arrived since the beginning, whatever of what was sent before is missing.
    pub arrived: u64,
    /// Segments that were lost since the beginning, sent again or not yet.
    pub lost: u64,
    /// How the connections answer losses.
    pub law: Law,
    /// Whether a [`Pace`] is what holds them back: more would not help.
    pub paced: bool,
    /// Whether connections had nothing to send since the last sample: more would not help.
    pub idle: bool,
}

/// Says how many connections there should be.
pub trait Controller: Debug + Send {
    /// How many from now on, 1 at least. To be called every [`TICK`] or so while there are
    /// connections.
    fn connections(&mut self, sample: &Sample) -> usize;

    /// What it has learnt of the destination, worth storing for the next time.
    fn learnt(&self) -> Option<System> {
        None
    }
}

/// Connections of a stream, at most: beyond, a host's ports and memory are what is short.
pub const MAX_CONNECTIONS: usize = 512;

/// How often a controller is asked.
pub const TICK: Duration = Duration::from_millis(100);

/// So much of the base round-trip time in the path, or the second, is a queue.
const QUEUED: f64 = 1.0 / 16.0;
const QUEUED_LEAST: Duration = Duration::from_millis(4);

/// From what on more than this round-trip time is a queue.
fn queued(base: Duration) -> Duration {
    base.mul_f64(QUEUED).max(QUEUED_LEAST)
}

/// A rule for the number of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// So many.
    Fixed(u16),
    /// As many as a rate needs: [`Equation`].
    Equation {
        /// The rate of payload to be reached.
        target: Rate,
        /// How many to begin with; 0 for one, by which the others are found.
        first: u16,
        /// The system parameter k in thousandths, as it was learnt before; 0 for nothing.
        k: u16,
    },
    /// By the bounds of paper 3: [`RttBounded`].
    RttBounded {
        /// Below this round-trip time one is added; zero for a multiple of the base.
        alpha: Duration,
        /// Above this the count is halved; zero for a multiple of the base.
        beta: Duration,
    },
    /// As many as help: [`Auto`].
    Auto {
        /// How many to begin with; 0 for a number that suits the round-trip time.
        first: u16,
    },
}

impl Default for Policy {
    fn default() -> Self {
        Self::Auto { first: 0 }
    }
}

/// Always the same.
#[derive(Debug)]
struct Fixed(usize);

impl Controller for Fixed {
    fn connections(&mut self, _: &Sample) -> usize {
        self.0
    }
}

impl Policy {
    /// Reads `auto`, a number, `equation:RATE`, `rtt-bounded` or `rtt-bounded:ALPHA,BETA`, of which `time` reads the bounds.
    ///
    /// # Errors
    /// What to write instead.
    pub fn read(
        text: &str,
        time: impl Fn(&str) -> Result<Duration, String>,
    ) -> Result<Self, String> {
        let (name, rest) =
            text.split_once(':').map_or((text, None), |(name, rest)| (name, Some(rest)));
        match (name, rest) {
            ("auto", None) => Ok(Self::Auto { first: 0 }),
            ("equation", None) => {
                Err("write the rate behind it, as in equation:100mbit".to_owned())
            }
            ("equation", Some(rate)) => {
                let target: Rate = rate.parse().map_err(|e: ParseUnitError| e.to_string())?;
                let none = "that is no rate to reach; write one above 0, as in 100mbit";
                let some = target.as_bits_per_sec() > 0;
                some.then_some(Self::Equation { target, first: 0, k: 0 }).ok_or(none.to_owned())
            }
            ("rtt-bounded", None) => {
                Ok(Self::RttBounded { alpha: Duration::ZERO, beta: Duration::ZERO })
            }
            ("rtt-bounded", Some(bounds)) => {
                let (alpha, beta) = bounds.split_once(',').ok_or("write rtt-bounded:ALPHA,BETA")?;
                let (alpha, beta) = (time(alpha)?, time(beta)?);
                let bounded = (alpha <= beta).then_some(Self::RttBounded { alpha, beta });
                bounded.ok_or_else(|| "the first bound is the lower one".to_owned())
            }
            _ => {
                let count = text.parse().ok();
                let count =
                    count.filter(|count| (1..=MAX_CONNECTIONS).contains(&usize::from(*count)));
                count.map(Self::Fixed).ok_or_else(|| {
                    format!(
                        "write auto, equation, rtt-bounded or a number from 1 to {MAX_CONNECTIONS}"
                    )
                })
            }
        }
    }

    /// Begins anew.
    pub fn controller(self) -> Box<dyn Controller> {
        match self {
            Self::Fixed(count) => Box::new(Fixed(count.into())),
            Self::Equation { target, first, k } => Box::new(Equation::new(target, first, k)),
            Self::RttBounded { alpha, beta } => Box::new(RttBounded::new(alpha, beta)),
            Self::Auto { first } => Box::new(Auto::new(first.into())),
        }
    }

    /// How many connections to open before anything is known.
    pub const fn first(self) -> usize {
        match self {
            Self::Fixed(count) => count as usize,
            Self::Auto { first } | Self::Equation { first, .. } if first > 0 => first as usize,
            _ => 1,
        }
    }

    /// The wire form: the kind, then a count and two numbers, big endian.
    pub fn encode(self) -> [u8; POLICY_LEN] {
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let (kind, count, a, b) = match self {
            Self::Fixed(count) => (0, count, 0, 0),
            Self::Equation { target, first, k } => (1, first, target.as_bits_per_sec(), k.into()),
            Self::RttBounded { alpha, beta } => (2, 0, micros(alpha), micros(beta)),
            Self::Auto { first } => (3, first, 0, 0),
        };
        let mut bytes = [0; POLICY_LEN];
        bytes[0] = kind;
        bytes[1..3].copy_from_slice(&count.to_be_bytes());
        bytes[3..11].copy_from_slice(&a.to_be_bytes());
        bytes[11..].copy_from_slice(&b.to_be_bytes());
        bytes
    }

    /// Reads it; `None` when there is no such kind.
    pub fn decode(bytes: &[u8; POLICY_LEN]) -> Option<Self> {
        let [kind, c1, c2, a1, a2, a3, a4, a5, a6, a7, a8, b @ ..] = *bytes;
        let count = u16::from_be_bytes([c1, c2]);
        let a = u64::from_be_bytes([a1, a2, a3, a4, a5, a6, a7, a8]);
        match kind {
            0 => Some(Self::Fixed(count)),
            1 => Some(Self::Equation {
                target: Rate::from_bits_per_sec(a),
                first: count,
                k: u16::try_from(u64::from_be_bytes(b)).ok()?,
            }),
            2 => Some(Self::RttBounded {
                alpha: Duration::from_micros(a),
                beta: Duration::from_micros(u64::from_be_bytes(b)),
            }),
            3 => Some(Self::Auto { first: count }),
            _ => None,
        }
    }
}
