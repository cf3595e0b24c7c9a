//! What an emulation did, and whether it can be believed.

use core::fmt;
use core::time::Duration;

use hdrhistogram::Histogram;
use path::{Counters, DropCause};

/// The largest lateness told apart.
const MAX_LATENESS: Duration = Duration::from_secs(60);

/// How long after their due time packets left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lateness {
    /// The median.
    pub p50: Duration,
    /// 99 of 100 packets were not later.
    pub p99: Duration,
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
    /// What went wrong beside it.
    pub outside: OutsideModel,
}

/// What a lab or a relay did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LabReport {
    /// Since the start.
    pub elapsed: Duration,
    /// Processor time of the emulating thread. Most of it is the receiving host's network
    /// stack, which runs when the thread hands over a packet.
    pub cpu: Duration,
    /// Near to far.
    pub forward: LaneReport,
    /// Far to near.
    pub back: LaneReport,
}

impl fmt::Display for LaneReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { counters, lateness, outside } = self;
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
        write!(f, "; late by {:.0?} (median), {:.0?} (p99)", lateness.p50, lateness.p99)?;
        let stray = outside.total() + counters.dropped(DropCause::Overflow).packets;
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

/// Collects lateness, a packet at a time, in constant memory.
pub(crate) struct LatenessRecord(Histogram<u64>);

impl LatenessRecord {
    pub(crate) fn new() -> Self {
        let max = MAX_LATENESS.as_nanos() as u64;
        Self(Histogram::new_with_bounds(1, max, 2).expect("constant bounds in range"))
    }

    pub(crate) fn add(&mut self, lateness: Duration) {
        self.0.saturating_record(u64::try_from(lateness.as_nanos()).unwrap_or(u64::MAX));
    }

    pub(crate) fn summary(&self) -> Lateness {
        let at = |quantile| Duration::from_nanos(self.0.value_at_quantile(quantile));
        Lateness { p50: at(0.5), p99: at(0.99), max: at(1.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_what_was_added() {
        let mut record = LatenessRecord::new();
        for micros in 1..=1000 {
            record.add(Duration::from_micros(micros));
        }
        let Lateness { p50, p99, max } = record.summary();
        for (found, expected) in [(p50, 500.0), (p99, 990.0), (max, 1000.0)] {
            let micros = found.as_secs_f64() * 1e6;
            assert!((micros / expected - 1.0).abs() < 0.02, "{found:?} for {expected}");
        }
    }
}
