//! Flows of any kind over one path, in virtual time: what a scenario file asks for.
//!
//! A [`Study`] is a path, the hosts at its ends and flows between them; [`Study::run`] returns an
//! [`Outcome`]. A run has one thread and depends on the study alone; [`run_all`] runs many side by
//! side.
//!
//! ```
//! let study: sim::Study = r#"
//!     about = "Two TCP connections share 10 Mbit/s"
//!     rtt = "40ms"
//!     duration = "20s"
//!     both = { rate = "10mbit", queue = "50packets" }
//!     [[flow]]
//!     count = 2
//!     transport = "tcp"
//! "#.parse()?;
//! let outcome = study.run();
//! assert!(outcome.queue.utilisation > 0.9);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
mod agenda;
mod blocks;
mod file;
mod flow;
mod network;
mod outcome;
mod parallel;
mod parcel;
mod relay;
mod sites;
mod striped;
mod tcp;
mod topology;
mod transit;
mod udp;

use core::time::Duration;

use path::{HostGroup, PathConfig};
use units::Bytes;

pub use blocks::{Blocks, Carried};
pub use flow::{FlowConfig, Protocol};
use network::Network;
pub use outcome::{Documents, FlowReport, Outcome, QueueReport, Sample};
pub use parallel::run_all;
pub(crate) use parallel::side_by_side;
pub use relay::Relay;
pub use striped::Striping;
pub use topology::{FAR, NEAR, Wire};

/// How much time passes between two looks at queues, rates, round-trip times and connections, at least.
const BETWEEN_GLANCES: Duration = Duration::from_millis(10);
/// How many looks there are in the measured time, at most: a prime number, so that those of long runs do not keep step with
/// round trips of so many milliseconds.
const MOST_GLANCES: u32 = 9_973;

/// How much simulated time passes before it is told, at least.
const TOLD_EVERY: Duration = Duration::from_millis(100);

/// The MTU of devices when nobody says otherwise.
const ETHERNET: Bytes = Bytes(1500);

/// A path, who is at its ends, and what they send.
#[derive(Clone, Debug)]
pub struct Study {
    /// What it shows, in a line.
    pub about: String,
    /// The bottleneck, both ways; its seed is that of the run.
    pub path: PathConfig,
    /// The near side's hosts.
    pub near: Vec<HostGroup>,
    /// The far side's hosts.
    pub far: Vec<HostGroup>,
    /// Links between further routers.
    pub wires: Vec<Wire>,
    /// Who sends what to whom.
    pub flows: Vec<FlowConfig>,
    /// How long a run is.
    pub duration: Duration,
    /// What happens before is not counted.
    pub measure_from: Duration,
    /// How often to note how each flow stands, if at all.
    pub trace: Option<Duration>,
}

impl Study {
    /// A path between these hosts for so long, all of it measured, without flows.
    pub(crate) fn of(
        path: PathConfig,
        near: Vec<HostGroup>,
        far: Vec<HostGroup>,
        duration: Duration,
    ) -> Self {
        Self {
            about: String::new(),
            path,
            near,
            far,
            wires: Vec::new(),
            flows: Vec::new(),
            duration,
            measure_from: Duration::ZERO,
            trace: None,
        }
    }

    /// What the hosts' devices take: the path's MTU, or that of Ethernet when it has none.
    fn mtu(&self) -> Bytes {
        let links = [&self.path.forward, &self.path.back];
        links.into_iter().filter_map(|link| link.mtu).min().unwrap_or(ETHERNET)
    }

    /// How often it is looked at.
    fn between_glances(&self) -> Duration {
        let measured = self.duration.saturating_sub(self.measure_from);
        // Not a hair before the end too, where it is looked at in any case.
        BETWEEN_GLANCES.max(measured / MOST_GLANCES + Duration::from_nanos(1))
    }

    /// Runs it to its end.
    ///
    /// # Panics
    /// When the path, a link, a flow's host or its way is impossible: what was read from a file is
    /// not.
    pub fn run(&self) -> Outcome {
        self.run_in(Network::new(self), |_| {})
    }

    /// Runs it in its network; `passed` hears of simulated time as it passes.
    fn run_in(&self, mut network: Network, passed: impl Fn(Duration)) -> Outcome {
        let mut told = Duration::ZERO;
        let mut tally = outcome::Tally::new(self, &network);
        let mut begin = Some(self.measure_from.min(self.duration));
        let between = self.between_glances();
        let (mut glance, mut sample) = (between, self.trace);
        loop {
            let marks = [Some(glance), Some(self.duration), sample, begin];
            let look = marks.into_iter().flatten().min().unwrap_or(self.duration);
            network.run_until(look);
            if begin.take_if(|begin| *begin == look).is_some() {
                tally.begin(&network);
            }
            // What a trace asks for changes nothing of what is counted.
            if look == glance || look == self.duration {
                tally.glance(look, &network);
                glance += between;
            }
            if let Some((at, interval)) = sample.as_mut().zip(self.trace)
                && look == *at
            {
                tally.sample(look, &network);
                *at += interval;
            }
            let ends = look >= self.duration;
            if ends || look - told >= TOLD_EVERY {
                passed(look - told);
                told = look;
            }
            if ends {
                return tally.outcome(&network);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_runs_are_looked_at_less_often() {
        let seconds = Duration::from_secs;
        let between = |duration, measure_from| {
            let path = PathConfig::new(units::Rate::from_bits_per_sec(1_000_000), seconds(1));
            let study = Study::of(path, Vec::new(), Vec::new(), duration);
            Study { measure_from, ..study }.between_glances()
        };
        assert_eq!(between(seconds(99), Duration::ZERO), BETWEEN_GLANCES);
        assert_eq!(between(seconds(3600), seconds(3590)), BETWEEN_GLANCES);
        assert_eq!(between(Duration::ZERO, seconds(1)), BETWEEN_GLANCES);
        let looks = seconds(3600).as_nanos() / between(seconds(3600), Duration::ZERO).as_nanos();
        assert_eq!(looks, u128::from(MOST_GLANCES) - 1);
    }
}
