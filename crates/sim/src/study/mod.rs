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
//! let outcome = study.run(None);
//! assert!(outcome.queue.utilisation > 0.9);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
mod file;
mod flow;
mod network;
mod outcome;
mod parallel;
mod tcp;
mod udp;

use core::time::Duration;

use path::{HostGroup, PathConfig};

pub use flow::{FlowConfig, Protocol};
use network::Network;
pub use outcome::{Documents, FlowReport, Outcome, QueueReport, Sample};
pub use parallel::run_all;

/// How often a run looks at the queue.
const GLANCE: Duration = Duration::from_millis(10);

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
    /// Who sends what to whom.
    pub flows: Vec<FlowConfig>,
    /// How long a run is.
    pub duration: Duration,
    /// What happens before is not counted.
    pub measure_from: Duration,
}

impl Study {
    /// Runs it to its end. With an interval, how each flow stood is noted as often.
    ///
    /// # Panics
    /// When the path, a host's link or a flow's host is impossible: what was read from a file is
    /// not.
    pub fn run(&self, trace: Option<Duration>) -> Outcome {
        let mut network = Network::new(self);
        let mut tally = outcome::Tally::new(self, &network);
        let (mut glance, mut sample) = (Duration::ZERO, trace);
        loop {
            glance += GLANCE;
            let look = glance.min(self.duration).min(sample.unwrap_or(Duration::MAX));
            network.run_until(look);
            tally.glance(look, &network);
            if let Some((at, interval)) = sample.as_mut().zip(trace)
                && look == *at
            {
                tally.sample(look, &network);
                *at += interval;
            }
            if look < glance {
                glance -= GLANCE;
            }
            if look >= self.duration {
                return tally.outcome(&network);
            }
        }
    }
}
