//! Recorded links, in mahimahi's format.

use core::fmt;
use core::str::FromStr;
use core::time::Duration;
use std::sync::Arc;

use units::{Bytes, Instant, Rate};

use crate::spelling::ParseConfigError;

/// What one line of a trace lets pass.
const OPPORTUNITY: u64 = 1500;

/// The most lines of a trace: ten minutes at 100 Mbit/s.
pub const MAX_TRACE: usize = 1 << 23;

/// When a recorded link could send: the format of mahimahi's `mm-link` (R. Netravali et al.,
/// "Mahimahi: accurate record-and-replay for HTTP", USENIX ATC 2015).
///
/// Each line is a millisecond since the start at which up to 1500 bytes leave, of one packet or
/// of several. What nobody uses is gone. The trace repeats with the period of its last line.
#[derive(Clone, PartialEq)]
pub struct RateTrace {
    /// Times with what passes then, rising.
    steps: Arc<[Step]>,
}

#[derive(Clone, Copy, PartialEq)]
struct Step {
    nanos: u64,
    bytes: u64,
}

impl RateTrace {
    /// How long it takes until it repeats.
    pub fn period(&self) -> Duration {
        Duration::from_nanos(self.last().nanos)
    }

    /// What passes on average.
    pub fn mean_rate(&self) -> Rate {
        Rate::of(self.total(), self.period()).unwrap_or(Rate::ZERO)
    }

    /// What passes in a period.
    fn total(&self) -> Bytes {
        self.steps.iter().map(|step| Bytes(step.bytes)).sum()
    }

    /// The most that passes within any time of this length, both of its ends included. Looks at every step.
    pub(crate) fn most_within(&self, time: Duration) -> Bytes {
        let period = self.last().nanos;
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let (rounds, rest) = (nanos / period, nanos % period);
        // Of a time shorter than a period, which begins with each step in turn.
        let mut later = self.again();
        let mut next = later.next();
        let (mut within, mut most) = (0, 0);
        for first in &*self.steps {
            while let Some(step) = next.filter(|step| step.nanos <= first.nanos + rest) {
                within += step.bytes;
                next = later.next();
            }
            most = most.max(within);
            within -= first.bytes;
        }
        Bytes(rounds.saturating_mul(self.total().0).saturating_add(most))
    }

    /// The steps of this round and of the next.
    fn again(&self) -> impl Iterator<Item = Step> {
        let period = self.last().nanos;
        let next = move |step: &Step| Step { nanos: step.nanos + period, ..*step };
        self.steps.iter().copied().chain(self.steps.iter().map(next))
    }

    fn last(&self) -> Step {
        self.steps.last().copied().unwrap_or(Step { nanos: 1, bytes: OPPORTUNITY })
    }
}

impl fmt::Debug for RateTrace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RateTrace({} in {:?})", self.mean_rate(), self.period())
    }
}

/// Reads a trace; empty lines and those that begin with `#` do not count.
impl FromStr for RateTrace {
    type Err = ParseConfigError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut steps: Vec<Step> = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let error = |reason: &str| {
                ParseConfigError::new(line, format_args!("line {}: {reason}", number + 1))
            };
            if number >= MAX_TRACE {
                return Err(error("a trace has at most 8,388,608 lines"));
            }
            let millis: u32 =
                line.parse().map_err(|_| error("a line of a trace is a number of milliseconds"))?;
            let nanos = u64::from(millis) * 1_000_000;
            match steps.last_mut() {
                Some(last) if last.nanos == nanos => last.bytes += OPPORTUNITY,
                Some(last) if last.nanos > nanos => return Err(error("time runs backwards")),
                _ => steps.push(Step { nanos, bytes: OPPORTUNITY }),
            }
        }
        if steps.last().is_none_or(|last| last.nanos == 0) {
            return Err(ParseConfigError::new(text, "a trace must last a millisecond or longer"));
        }
        Ok(Self { steps: steps.into() })
    }
}

/// A place in a trace that is played over and over.
pub(crate) struct Player {
    trace: RateTrace,
    /// When the trace began the first time.
    epoch: Instant,
    /// How often it has been played to the end.
    cycle: u64,
    index: usize,
    /// Bytes not used yet of this step.
    left: u64,
}

impl Player {
    pub(crate) fn new(trace: RateTrace, epoch: Instant) -> Self {
        let left = trace.steps[0].bytes;
        Self { trace, epoch, cycle: 0, index: 0, left }
    }

    /// When the present step passes.
    fn time(&self) -> Instant {
        let period = self.trace.last().nanos;
        let nanos =
            period.saturating_mul(self.cycle).saturating_add(self.trace.steps[self.index].nanos);
        self.epoch + Duration::from_nanos(nanos)
    }

    /// When a packet that waits since `from` can begin to leave; what passed before is lost.
    pub(crate) fn ready(&mut self, from: Instant) -> Instant {
        if self.left == 0 {
            self.step();
        }
        if self.time() < from {
            self.seek(from);
        }
        self.time()
    }

    /// Sends a packet of `size` from the present step on; returns when the last of it leaves.
    pub(crate) fn send(&mut self, size: Bytes) -> Instant {
        let mut rest = size.0;
        loop {
            let part = rest.min(self.left);
            self.left -= part;
            rest -= part;
            if rest == 0 {
                return self.time();
            }
            self.step();
        }
    }

    fn step(&mut self) {
        self.index += 1;
        if self.index == self.trace.steps.len() {
            self.index = 0;
            self.cycle = self.cycle.saturating_add(1);
        }
        self.left = self.trace.steps[self.index].bytes;
    }

    /// Goes on to the first step at or after `from`, which is after the present one.
    fn seek(&mut self, from: Instant) {
        let period = self.trace.last().nanos;
        let nanos = u64::try_from(from.since(self.epoch).as_nanos()).unwrap_or(u64::MAX);
        // The end of one round is in it and not in the next: (0, period].
        self.cycle = nanos.saturating_sub(1) / period;
        let offset = nanos - self.cycle * period;
        self.index = self.trace.steps.partition_point(|step| step.nanos < offset);
        self.left = self.trace.steps[self.index].bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn millis(n: u64) -> Instant {
        Instant::from_nanos(n * 1_000_000)
    }

    fn player(text: &str) -> Player {
        Player::new(text.parse().expect("a trace"), Instant::ZERO)
    }

    /// Worked by hand: opportunities at 1, 1, 4 and 6 ms, repeated every 6.
    #[test]
    fn opportunities_pass_as_in_mahimahi() {
        let mut player = player("# two at once\n1\n1\n\n4\n6\n");
        assert_eq!(player.trace.mean_rate(), Rate::from_bits_per_sec(8_000_000));
        let mut send = |from, size| {
            let start = player.ready(millis(from));
            (start, player.send(Bytes(size)))
        };
        assert_eq!(send(0, 1500), (millis(1), millis(1)));
        // The second opportunity of the same millisecond takes two small ones,
        assert_eq!(send(0, 700), (millis(1), millis(1)));
        assert_eq!(send(0, 700), (millis(1), millis(1)));
        // and the rest of it the beginning of a large one.
        assert_eq!(send(0, 1000), (millis(1), millis(4)));
        // Used up by 900 bytes at 4 ms; the 600 left are gone at 5.
        assert_eq!(send(5, 100), (millis(6), millis(6)));
        // Nothing happens until 1 h later, at a whole number of rounds.
        assert_eq!(send(3_600_000, 1500), (millis(3_600_000), millis(3_600_000)));
        assert_eq!(send(3_600_000, 3000), (millis(3_600_001), millis(3_600_001)));
    }

    #[test]
    fn bad_traces_are_refused_with_their_line() {
        for (bad, why) in
            [("1\n2\nx", "line 3"), ("5\n4", "line 2"), ("0", "millisecond"), ("", "millisecond")]
        {
            let error = bad.parse::<RateTrace>().unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_text_is_read_or_refused(text in "[0-9\n# x-]*") {
            let _ = text.parse::<RateTrace>();
        }

        /// As counted for each time that begins with a step.
        #[test]
        fn the_most_that_passes_is_found(
            mut times in prop::collection::vec(0u64..20, 0..20),
            window in 0u64..70,
        ) {
            times.push(20);
            times.sort_unstable();
            let text = times.iter().map(|t| format!("{t}\n")).collect::<String>();
            let trace: RateTrace = text.parse().expect("a trace");
            let all: Vec<u64> =
                (0..6).flat_map(|round| times.iter().map(move |t| t + 20 * round)).collect();
            let within = |&&first: &&u64| {
                all.iter().filter(|&&t| (first..=first + window).contains(&t)).count()
            };
            let firsts = all.iter().take(times.len());
            let most = firsts.map(|first| within(&first)).max().unwrap_or_default();
            let found = trace.most_within(Duration::from_millis(window));
            // Of several at one time the first begins it.
            prop_assert_eq!(found, Bytes(1500 * most as u64));
        }

        /// Jumping to a time and stepping to it give the same.
        #[test]
        fn seeking_is_stepping(
            mut times in prop::collection::vec(0u64..20, 1..20),
            from in 0u64..200,
        ) {
            times.push(20);
            times.sort_unstable();
            let text = times.iter().map(|t| format!("{t}\n")).collect::<String>();
            let (mut jump, mut walk) = (player(&text), player(&text));
            while walk.time() < millis(from) {
                walk.step();
            }
            prop_assert_eq!(jump.ready(millis(from)), walk.time());
            prop_assert_eq!(jump.left, walk.left);
        }
    }
}
