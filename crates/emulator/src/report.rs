//! What an emulation did, and whether it can be believed.

use core::fmt;
use core::time::Duration;

use hdrhistogram::Histogram;
use path::{Counters, DropCause, Tally};

/// The largest lateness told apart.
const MAX_LATENESS: Duration = Duration::from_secs(60);

/// How late packets were: how long after their due time they left, or how long they waited to be taken in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lateness {
    /// Of how many packets.
    pub packets: u64,
    /// The median.
    pub p50: Duration,
    /// 99 of 100 packets were not later.
    pub p99: Duration,
    /// 999 of 1000.
    pub p999: Duration,
    /// The latest.
    pub max: Duration,
}

/// Packets lost that the model did not lose. A run with many of them shows the machine's limits
/// and not the path's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutsideModel {
    /// The ring of packets under way was full.
    pub ring_full: u64,
    /// A host sent faster than the emulator read: its device or socket overflowed. Counted in
    /// the pieces the kernel handles, each of up to 64 KiB.
    pub device_overflow: u64,
    /// The receiving host did not take them.
    pub refused: u64,
    /// The kernel did not say how many a device lost, so `device_overflow` is too small.
    pub uncounted: bool,
}

impl OutsideModel {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.ring_full + self.device_overflow + self.refused
    }
}

/// What happened in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneReport {
    /// What the model did.
    pub counters: Counters,
    /// How exactly it was carried out.
    pub lateness: Lateness,
    /// How long what the hosts sent, in the pieces the kernel handles, may have waited until the emulator
    /// took it in: since its device or socket was last seen empty.
    pub intake: Lateness,
    /// What went wrong beside it.
    pub outside: OutsideModel,
    /// Packets that the hosts' own links dropped, on their way to the path or from it.
    pub access_drops: u64,
}

impl LaneReport {
    /// Packets lost that the path did not lose, wherever.
    pub fn lost_outside(&self) -> u64 {
        self.outside.total() + self.counters.dropped(DropCause::Overflow).packets
    }
}

/// One direction at a moment, and since the moment before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneSample {
    /// As in the report: since the start.
    pub report: LaneReport,
    /// What waits in the queue.
    pub queue: Tally,
    /// The most packets, and the most bytes, that waited at once since the last sample.
    pub peak: Tally,
    /// How long the bytes of `queue` and of `peak` take at the link's rate.
    pub queue_time: [Duration; 2],
    /// Of the packets that left since the last sample.
    pub lateness: Lateness,
}

/// What a lab does at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LabSample {
    /// Since the start.
    pub elapsed: Duration,
    /// Near to far.
    pub forward: LaneSample,
    /// Far to near.
    pub back: LaneSample,
}

/// What a lab or a relay did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LabReport {
    /// Since the start.
    pub elapsed: Duration,
    /// Processor time of the emulating thread. Most of it is the receiving host's network
    /// stack, which runs when the thread hands over a packet.
    pub cpu: Duration,
    /// The longest that the emulating thread did not run although it was to, also at the end.
    pub stall: Duration,
    /// The emulating thread has ended by a fault of its own: nothing crosses any more.
    pub died: bool,
    /// Near to far.
    pub forward: LaneReport,
    /// Far to near.
    pub back: LaneReport,
}

impl fmt::Display for LaneReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { counters, lateness, .. } = self;
        write!(
            f,
            "{} packets, {} delivered",
            counters.offered.packets, counters.delivered.packets
        )?;
        let drops = DropCause::ALL.map(|cause| (counters.dropped(cause).packets, cause.name()));
        let effects = [
            (counters.marked.packets, "marked"),
            (counters.damaged.packets, "damaged"),
            (counters.duplicated.packets, "sent twice"),
        ];
        let happened = |&(packets, _): &(u64, &str)| packets > 0;
        for (packets, name) in drops.into_iter().filter(happened) {
            write!(f, ", {packets} dropped ({name})")?;
        }
        for (packets, name) in effects.into_iter().filter(happened) {
            write!(f, ", {packets} {name}")?;
        }
        if self.access_drops > 0 {
            write!(f, ", {} dropped by the hosts' own links", self.access_drops)?;
        }
        if lateness.packets > 0 {
            write!(f, "; {lateness}")?;
        }
        let stray = self.lost_outside();
        if stray > 0 {
            write!(f, "; {stray} lost outside the model")?;
        }
        Ok(())
    }
}

impl fmt::Display for LabReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "near -> far: {}", self.forward)?;
        writeln!(f, "far -> near: {}", self.back)?;
        let share = self.cpu.as_secs_f64() / self.elapsed.as_secs_f64().max(1e-9) * 100.0;
        write!(f, "emulated for {:.1?}, {share:.0}% of a core", self.elapsed)
    }
}

impl fmt::Display for Lateness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { p50, p99, p999, max, .. } = self;
        write!(
            f,
            "late by {p50:.0?} (median), {p99:.0?} (p99), {p999:.0?} (p99.9), {max:.0?} (most)"
        )
    }
}

/// Collects lateness, a packet at a time, in constant memory.
pub(crate) struct LatenessRecord {
    /// Up to the last sample.
    past: Histogram<u64>,
    /// Since then.
    recent: Histogram<u64>,
}

impl LatenessRecord {
    pub(crate) fn new() -> Self {
        let max = MAX_LATENESS.as_nanos() as u64;
        let empty = Histogram::new_with_bounds(1, max, 2).expect("constant bounds in range");
        Self { past: empty.clone(), recent: empty }
    }

    /// So many packets.
    pub(crate) fn add(&mut self, lateness: Duration, packets: u64) {
        let nanos = u64::try_from(lateness.as_nanos()).unwrap_or(u64::MAX);
        self.recent.saturating_record_n(nanos, packets);
    }

    /// Of all packets.
    pub(crate) fn summary(&self) -> Lateness {
        Lateness::of(&self.all())
    }

    /// Of the packets since this was last asked.
    pub(crate) fn take_recent(&mut self) -> Lateness {
        let lateness = Lateness::of(&self.recent);
        self.past = self.all();
        self.recent.reset();
        lateness
    }

    fn all(&self) -> Histogram<u64> {
        let mut all = self.past.clone();
        all.add(&self.recent).expect("of the same bounds");
        all
    }
}

impl Lateness {
    fn of(record: &Histogram<u64>) -> Self {
        let at = |quantile| Duration::from_nanos(record.value_at_quantile(quantile));
        Self { packets: record.len(), p50: at(0.5), p99: at(0.99), p999: at(0.999), max: at(1.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_what_was_added() {
        let mut record = LatenessRecord::new();
        for micros in 1..=1000 {
            record.add(Duration::from_micros(micros), 1);
        }
        let summary = record.summary();
        assert_eq!((record.take_recent(), record.take_recent().packets), (summary, 0));
        assert_eq!(record.summary(), summary, "samples take nothing away");
        let Lateness { p50, p99, p999, max, packets } = summary;
        assert_eq!(packets, 1000);
        for (found, expected) in [(p50, 500.0), (p99, 990.0), (p999, 999.0), (max, 1000.0)] {
            let micros = found.as_secs_f64() * 1e6;
            assert!((micros / expected - 1.0).abs() < 0.02, "{found:?} for {expected}");
        }
    }
}
