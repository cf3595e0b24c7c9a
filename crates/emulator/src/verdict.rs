//! Whether a run can be believed.

use core::fmt;
use core::time::Duration;

use path::{DropCause, LinkConfig, PathConfig};

use crate::report::{LabReport, LaneReport, Lateness};

/// Percentiles of fewer packets say little.
const MIN_JUDGED: u64 = 1000;

/// Of fewer packets the latest is judged, by so many times the limit of 99 in 100: by `Limits::of`
/// that is a tenth of the round-trip time, which any result shows, and at least 10 ms, which even
/// a busy machine takes only now and then to let a thread have its turn.
const FEW_ALLOWANCE: u32 = 10;

/// What to do where the emulator cannot take in what is sent.
const TOO_FAST: &str = "the senders are faster than this machine can emulate: let them send slower, in larger packets, \
                        or fewer of them";

/// How exact an emulation must have been for its results to count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most that 99 of 100 packets may be late, judged from 1000 packets on. Of fewer, none may be
    /// later than ten times as much; and as long may they wait to be taken in.
    pub late_p99: Duration,
    /// The longest the emulator's thread may not have run although it was to.
    pub stall: Duration,
    /// Packets that may be lost outside the model.
    pub outside: u64,
}

impl Limits {
    /// What a machine with other work can keep, and what changes no result that counts:
    ///
    /// - lateness of a hundredth of the round-trip time, for so much do hosts see it longer, and
    ///   of the least that the path's schedule sets; of short paths a millisecond, below which the
    ///   scheduler of a busy machine keeps no word;
    /// - stalls of 100 ms: half of the least time after which Linux's TCP sends again;
    /// - no packet lost outside the model: a single one halves a TCP connection's window.
    pub fn of(path: &PathConfig) -> Self {
        Self::of_rtt(least_delay(&path.forward) + least_delay(&path.back))
    }

    /// The same for the least round-trip time that a path ever has.
    pub(crate) fn of_rtt(rtt: Duration) -> Self {
        Self {
            late_p99: (rtt / 100).max(Duration::from_millis(1)),
            stall: Duration::from_millis(100),
            outside: 0,
        }
    }
}

/// The shortest delay of a link, now and on its schedule.
pub(crate) fn least_delay(link: &LinkConfig) -> Duration {
    let steps = link.schedule.steps().iter().filter_map(|(_, change)| change.delay);
    steps.fold(link.delay, Duration::min)
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
    /// Of few packets, one left far too late.
    FewLate {
        /// Near to far, else far to near.
        forward: bool,
        /// How late it was.
        latest: Duration,
        /// It should not have been later.
        limit: Duration,
    },
    /// The emulator did not keep up with what the hosts sent.
    Behind {
        /// Near to far, else far to near.
        forward: bool,
        /// How long 99 of 100 packets may have waited to be taken in, and of few any.
        waited: Duration,
        /// They should not have waited longer.
        limit: Duration,
    },
    /// The emulator's thread panicked: nothing crossed the path from then on.
    Died,
    /// The kernel did not say how many packets the devices of the sending hosts lost.
    Uncounted {
        /// Near to far, else far to near.
        forward: bool,
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
            Self::FewLate { forward, latest, limit } => {
                format!("{}: a packet left {latest:.0?} late (limit {limit:.0?})", way(forward))
            }
            Self::Behind { forward, waited, limit } => format!(
                "{}: what was sent waited up to {waited:.0?} to be taken in (limit {limit:.0?})",
                way(forward)
            ),
            Self::Died => "the emulator's thread panicked, and nothing crossed any more".to_owned(),
            Self::Uncounted { forward } => format!(
                "{}: the kernel did not say how many packets the sending hosts' devices lost",
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
            Self::Died => "report what it wrote to standard error: it should never happen",
            Self::Uncounted { .. } => {
                "let the hosts keep their devices (named path) as they are, and run again"
            }
            Self::Late { .. } | Self::FewLate { .. } => {
                "give the machine less other work, run as root (for real-time priority), or lower \
                 the rate"
            }
            Self::Behind { .. } => {
                "the senders are faster than this machine can emulate, or it has other work: let them send \
                 slower, in larger packets, or give it less to do"
            }
            Self::Stalled { .. } => {
                "it was suspended, paused or overloaded: run again with less other work"
            }
            Self::Lost { place, .. } => match place {
                LossPlace::Ring => {
                    "the packets are small, or many hosts send at once: lower rate \
                                    x delay or the queue, or send larger packets"
                }
                LossPlace::Device => TOO_FAST,
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

impl LaneReport {
    /// What speaks against the lateness of its packets.
    fn late(&self, forward: bool, limit: Duration) -> Option<Fault> {
        let Lateness { packets, p99, max: latest, .. } = self.lateness;
        let few_limit = limit.saturating_mul(FEW_ALLOWANCE);
        if packets >= MIN_JUDGED {
            (p99 > limit).then_some(Fault::Late { forward, p99, limit })
        } else {
            (latest > few_limit).then_some(Fault::FewLate { forward, latest, limit: few_limit })
        }
    }

    /// What speaks against how they were taken in. A burst that is worked off soon is no fault: the first of it was in
    /// time, and what is behind waits in the path's queue all the same.
    fn behind(&self, forward: bool, limit: Duration) -> Option<Fault> {
        let limit = limit.saturating_mul(FEW_ALLOWANCE);
        let Lateness { packets, p99, max, .. } = self.intake;
        let waited = if packets >= MIN_JUDGED { p99 } else { max };
        (waited > limit).then_some(Fault::Behind { forward, waited, limit })
    }
}

impl LabReport {
    /// Judges the run.
    pub fn verdict(&self, limits: &Limits) -> Verdict {
        let mut faults = Vec::new();
        for (forward, lane) in [(true, &self.forward), (false, &self.back)] {
            faults.extend(lane.late(forward, limits.late_p99));
            faults.extend(lane.behind(forward, limits.late_p99));
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
            if lane.outside.uncounted {
                faults.push(Fault::Uncounted { forward });
            }
        }
        if self.died {
            faults.push(Fault::Died);
        } else if self.stall > limits.stall {
            faults.push(Fault::Stalled { longest: self.stall, limit: limits.stall });
        }
        Verdict { faults }
    }
}

#[cfg(test)]
mod tests {
    use path::{Change, Schedule};
    use units::Rate;

    use super::*;

    #[test]
    fn limits_follow_the_path() {
        let limits = |ms| {
            Limits::of(&PathConfig::new(Rate::from_bits_per_sec(1), Duration::from_millis(ms)))
        };
        assert_eq!(limits(200).late_p99, Duration::from_millis(2));
        assert_eq!(limits(20).late_p99, Duration::from_millis(1));
        let mut path = PathConfig::new(Rate::from_bits_per_sec(1), Duration::from_millis(600));
        let shorter = Change { delay: Some(Duration::from_millis(100)), ..Change::default() };
        path.back.schedule = Schedule::new(vec![(Duration::from_secs(1), shorter)], None);
        assert_eq!(Limits::of(&path).late_p99, Duration::from_millis(4), "the least there will be");
    }

    #[test]
    fn of_few_packets_the_latest_is_judged() {
        let ms = Duration::from_millis;
        let limits = Limits { late_p99: ms(2), stall: ms(100), outside: 0 };
        let mut report = LabReport::default();
        report.back.lateness =
            Lateness { packets: 1, p99: ms(20), max: ms(20), ..Lateness::default() };
        assert!(report.verdict(&limits).is_faithful());
        report.back.lateness.max = ms(21);
        let late = Fault::FewLate { forward: false, latest: ms(21), limit: ms(20) };
        assert_eq!(report.verdict(&limits).faults, [late]);
        report.back.lateness = Lateness { packets: MIN_JUDGED, max: ms(21), ..Lateness::default() };
        assert!(report.verdict(&limits).is_faithful(), "of many, one in a hundred may");
    }

    /// Ten times as long as it may be late.
    #[test]
    fn what_waits_to_be_taken_in_is_judged() {
        let ms = Duration::from_millis;
        let limits = Limits { late_p99: ms(2), stall: ms(100), outside: 0 };
        let mut report = LabReport::default();
        let judged = [(MIN_JUDGED, ms(20), ms(90)), (MIN_JUDGED - 1, ms(20), ms(20))];
        for (packets, p99, max) in judged {
            report.forward.intake = Lateness { packets, p99, max, ..Lateness::default() };
            assert!(report.verdict(&limits).is_faithful(), "{packets}");
        }
        report.forward.intake.max = ms(21);
        let limit = ms(20);
        let behind = Fault::Behind { forward: true, waited: ms(21), limit };
        assert_eq!(report.verdict(&limits).faults, [behind]);
        let (packets, p99) = (MIN_JUDGED, ms(30));
        report.forward.intake = Lateness { packets, p99, ..Lateness::default() };
        let text = report.verdict(&limits).to_string();
        assert!(text.contains("waited up to 30ms") && text.contains("larger packets"), "{text}");
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
        report.back.outside.uncounted = true;
        let text = report.verdict(&limits).to_string();
        let words = [
            "NOT faithful:\n",
            "9ms late",
            "stood still for 101ms",
            "device overflowed",
            "did not say",
        ];
        for word in words.into_iter().chain(["1 packets lost", "far -> near", "less other work"]) {
            assert!(text.contains(word), "{word}: {text}");
        }
    }
}
