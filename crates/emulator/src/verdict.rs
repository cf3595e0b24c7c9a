//! Whether a run can be believed.

use core::fmt;
use core::time::Duration;

use path::{DropCause, PathConfig};

use crate::report::{LabReport, LaneReport};

/// Percentiles of fewer packets say little.
const MIN_JUDGED: u64 = 1000;

/// How exact an emulation must have been for its results to count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most that 99 of 100 packets may be late, judged from 1000 packets on.
    pub late_p99: Duration,
    /// The longest the emulator's thread may not have run although it was to.
    pub stall: Duration,
    /// Packets that may be lost outside the model.
    pub outside: u64,
}

impl Limits {
    /// What a machine with other work can keep, and what changes no result that counts:
    ///
    /// - lateness of a hundredth of the round-trip time, for so much do hosts see it longer; of
    ///   short paths a millisecond, below which the scheduler of a busy machine keeps no word;
    /// - stalls of 100 ms: half of the least time after which Linux's TCP sends again;
    /// - no packet lost outside the model: a single one halves a TCP connection's window.
    pub fn of(path: &PathConfig) -> Self {
        Self {
            late_p99: (path.rtt() / 100).max(Duration::from_millis(1)),
            stall: Duration::from_millis(100),
            outside: 0,
        }
    }
}

/// Something that made a run unfaithful. Its display says why, and what to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// Packets left too late.
    Late {
        /// Near to far, else far to near.
        forward: bool,
        /// 99 of 100 were not later.
        p99: Duration,
        /// They should not have been later.
        limit: Duration,
    },
    /// The emulator's thread did not run.
    Stalled {
        /// For so long at once.
        longest: Duration,
        /// The most it should have been.
        limit: Duration,
    },
    /// Packets were lost that the path did not lose.
    Lost {
        /// Near to far, else far to near.
        forward: bool,
        /// How many.
        packets: u64,
        /// Where.
        place: LossPlace,
    },
}

/// Where packets are lost outside the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LossPlace {
    /// The memory for packets under way was full.
    Ring,
    /// The sending host's device, or socket, overflowed.
    Device,
    /// The receiving host refused them.
    Host,
    /// The model held as many packets as it can.
    Model,
}

impl Fault {
    /// Why the run cannot be believed.
    pub fn why(&self) -> String {
        let way = |forward| if forward { "near -> far" } else { "far -> near" };
        match *self {
            Self::Late { forward, p99, limit } => format!(
                "{}: one packet in a hundred left more than {p99:.0?} late (limit {limit:.0?})",
                way(forward)
            ),
            Self::Stalled { longest, limit } => {
                format!("the machine stood still for {longest:.0?} (limit {limit:.0?})")
            }
            Self::Lost { forward, packets, place } => {
                let place = match place {
                    LossPlace::Ring => "the memory for packets under way was full",
                    LossPlace::Device => "the sending host's device overflowed",
                    LossPlace::Host => "the receiving host refused them",
                    LossPlace::Model => "the model held as many packets as it can",
                };
                let way = way(forward);
                format!("{way}: {packets} packets lost that the path did not lose: {place}")
            }
        }
    }

    /// What to do about it.
    pub fn what_to_do(&self) -> &'static str {
        match self {
            Self::Late { .. } => {
                "give the machine less other work, run as root (for real-time priority), or lower \
                 the rate"
            }
            Self::Stalled { .. } => {
                "it was suspended, paused or overloaded: run again with less other work"
            }
            Self::Lost { place, .. } => match place {
                LossPlace::Ring => {
                    "the packets are small, or many hosts send at once: lower rate \
                                    x delay or the queue, or send larger packets"
                }
                LossPlace::Device => {
                    "the senders are faster than this machine can emulate: let \
                                      them send slower, in larger packets, or fewer of them"
                }
                LossPlace::Host => "the host may be out of memory: see dmesg",
                LossPlace::Model => "lower rate x delay or the queue, or send larger packets",
            },
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.why(), self.what_to_do())
    }
}

/// Whether a run showed the path, or the limits of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Verdict {
    /// What speaks against it; none when it was faithful.
    pub faults: Vec<Fault>,
}

impl Verdict {
    /// Whether the results of the run count.
    pub fn is_faithful(&self) -> bool {
        self.faults.is_empty()
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.faults[..] {
            [] => f.write_str("verdict: faithful"),
            [only] => write!(f, "verdict: NOT faithful: {only}"),
            several => {
                f.write_str("verdict: NOT faithful:")?;
                several.iter().try_for_each(|fault| write!(f, "\n  - {fault}"))
            }
        }
    }
}

impl LabReport {
    /// Judges the run.
    pub fn verdict(&self, limits: &Limits) -> Verdict {
        let mut faults = Vec::new();
        for (forward, lane) in [(true, &self.forward), (false, &self.back)] {
            let LaneReport { lateness, .. } = lane;
            if lateness.packets >= MIN_JUDGED && lateness.p99 > limits.late_p99 {
                faults.push(Fault::Late { forward, p99: lateness.p99, limit: limits.late_p99 });
            }
            let places = [
                (LossPlace::Ring, lane.outside.ring_full),
                (LossPlace::Device, lane.outside.device_overflow),
                (LossPlace::Host, lane.outside.refused),
                (LossPlace::Model, lane.counters.dropped(DropCause::Overflow).packets),
            ];
            if lane.lost_outside() > limits.outside {
                let lost = places.into_iter().filter(|&(_, packets)| packets > 0);
                faults.extend(lost.map(|(place, packets)| Fault::Lost { forward, packets, place }));
            }
        }
        if self.stall > limits.stall {
            faults.push(Fault::Stalled { longest: self.stall, limit: limits.stall });
        }
        Verdict { faults }
    }
}

#[cfg(test)]
mod tests {
    use units::Rate;

    use super::*;

    #[test]
    fn limits_follow_the_path() {
        let limits = |ms| {
            Limits::of(&PathConfig::new(Rate::from_bits_per_sec(1), Duration::from_millis(ms)))
        };
        assert_eq!(limits(200).late_p99, Duration::from_millis(2));
        assert_eq!(limits(20).late_p99, Duration::from_millis(1));
    }

    #[test]
    fn what_is_over_a_limit_is_said() {
        let ms = Duration::from_millis;
        let limits = Limits { late_p99: ms(2), stall: ms(100), outside: 3 };
        let mut report = LabReport::default();
        assert!(report.verdict(&limits).is_faithful());
        report.stall = ms(100);
        report.back.outside.device_overflow = 3;
        report.forward.lateness.p99 = ms(9);
        report.forward.lateness.packets = MIN_JUDGED - 1;
        let good = report.verdict(&limits);
        assert_eq!(good.to_string(), "verdict: faithful");
        report.forward.lateness.packets += 1;
        let verdict = report.verdict(&limits);
        assert_eq!(verdict.faults, [Fault::Late { forward: true, p99: ms(9), limit: ms(2) }]);
        report.stall += ms(1);
        report.back.outside.refused = 1;
        let text = report.verdict(&limits).to_string();
        let words = ["NOT faithful:\n", "9ms late", "stood still for 101ms", "device overflowed"];
        for word in words.into_iter().chain(["1 packets lost", "far -> near", "less other work"]) {
            assert!(text.contains(word), "{word}: {text}");
        }
    }
}
