//! Which packets may wait, and for how long.

use core::fmt;
use core::str::FromStr;
use core::time::Duration;

use units::{Bytes, Rate};

use super::limit::{Exact, FULL_PACKET, Limit};
use crate::PathError;
use crate::spelling::{Pairs, ParseConfigError, read, share, split, time, word, yes};

/// The queue before a link and the discipline that manages it.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum QueueConfig {
    /// First in, first out; what does not fit is dropped on arrival.
    DropTail(Limit),
    /// Random early detection on the average queue (Floyd and Jacobson, 1993): "RED-a".
    Red(RedConfig),
    /// The same on the instantaneous queue (paper 4's RED-i).
    RedI(RedConfig),
    /// Controlled delay (RFC 8289): drops at the head when packets wait too long for too long.
    Codel(CodelConfig),
    /// `CoDel` in a queue for each flow, served in turn (RFC 8290).
    FqCodel(FqCodelConfig),
}

impl Default for QueueConfig {
    fn default() -> Self {
        Self::DropTail(Limit::Time(Duration::from_millis(50)))
    }
}

/// The parameters of RED. By default those of paper 4, and for what it does not tell those of
/// Floyd and Jacobson and of ns-2, on which it ran.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RedConfig {
    /// Nothing is dropped below this; half the bandwidth-delay product unless given.
    pub min: Option<Limit>,
    /// From here on more than `max_p` is dropped; the bandwidth-delay product unless given.
    pub max: Option<Limit>,
    /// The drop probability as the queue reaches `max`, before drops are spaced (0.1). Spacing
    /// about doubles it, with `wait` it takes a third.
    pub max_p: f64,
    /// Above `max` the probability rises to 1 at twice `max` (true), instead of at once.
    pub gentle: bool,
    /// What the queue holds at all; twice `max` unless given.
    pub limit: Option<Limit>,
    /// Of each new queue length in the average (0.002). `red-i` does not average.
    pub weight: f64,
    /// The size of packet by whose time on the line an idle link ages the average (1500).
    pub mean_packet: Bytes,
    /// Marks packets that can carry a mark instead of dropping them, below `max` (false).
    pub ecn: bool,
    /// Spaces drops from 1/p to 2/p packets apart, as ns-2 and ns-3 do unless told otherwise (their
    /// `wait_`), instead of from none to 1/p as the paper does (false).
    pub wait: bool,
}

impl Default for RedConfig {
    fn default() -> Self {
        Self {
            min: None,
            max: None,
            max_p: 0.1,
            gentle: true,
            limit: None,
            weight: 0.002,
            mean_packet: FULL_PACKET,
            ecn: false,
            wait: false,
        }
    }
}

/// RED's thresholds on a link of known rate and round-trip time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Thresholds {
    pub(crate) min: f64,
    pub(crate) max: f64,
    /// Whether they count packets, as they do when both were given so; bytes otherwise.
    pub(crate) in_packets: bool,
    pub(crate) limit: Limit,
}

impl RedConfig {
    pub(crate) fn thresholds(&self, rate: Rate, rtt: Duration) -> Thresholds {
        let bdp = rate.bytes_in(rtt);
        let min = self.min.unwrap_or(Limit::Bytes(Bytes(bdp.0 / 2)));
        let max = self.max.unwrap_or(Limit::Bytes(bdp));
        let (min, max, in_packets) = match (min, max) {
            (Limit::Packets(min), Limit::Packets(max)) => (min, max, true),
            _ => (min.bytes(rate).0, max.bytes(rate).0, false),
        };
        let twice = max.saturating_mul(2);
        let whole = if in_packets { Limit::Packets(twice) } else { Limit::Bytes(Bytes(twice)) };
        let limit = self.limit.unwrap_or(whole);
        Thresholds { min: min as f64, max: max as f64, in_packets, limit }
    }

    fn check(&self, rate: Rate, rtt: Duration) -> Result<(), PathError> {
        let Thresholds { min, max, .. } = self.thresholds(rate, rtt);
        if !(0.0 < min && min < max) {
            return Err(PathError::Thresholds(min as u64, max as u64));
        }
        for (what, value) in [("red's max_p", self.max_p), ("red's weight", self.weight)] {
            if !(value > 0.0 && value <= 1.0) {
                return Err(PathError::Share(what, value));
            }
        }
        Ok(())
    }
}

/// The parameters of `CoDel` (RFC 8289, section 4.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodelConfig {
    /// The wait that is no sign of a standing queue (5 ms).
    pub target: Duration,
    /// How long every packet must wait longer before one is dropped (100 ms).
    pub interval: Duration,
    /// What the queue holds at all (1000 packets).
    pub limit: Limit,
    /// Marks packets that can carry a mark instead of dropping them (false).
    pub ecn: bool,
}

impl Default for CodelConfig {
    fn default() -> Self {
        Self {
            target: Duration::from_millis(5),
            interval: Duration::from_millis(100),
            limit: Limit::Packets(1000),
            ecn: false,
        }
    }
}

/// The parameters of FQ-CoDel (RFC 8290, section 5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FqCodelConfig {
    /// Of each flow's queue. `limit` is for all together (10,240 packets); the flow that holds
    /// most loses first.
    pub codel: CodelConfig,
    /// Queues that flows are hashed to (1024).
    pub flows: u32,
    /// Bytes a flow may send in its turn (1514).
    pub quantum: Bytes,
}

/// The most queues of FQ-CoDel.
pub(crate) const MAX_FLOWS: u32 = 1 << 16;

impl Default for FqCodelConfig {
    fn default() -> Self {
        // RFC 8290 marks where it can (section 5.2.9).
        let codel =
            CodelConfig { limit: Limit::Packets(10_240), ecn: true, ..CodelConfig::default() };
        Self { codel, flows: 1024, quantum: Bytes(1514) }
    }
}

impl QueueConfig {
    /// The most bytes that wait on a link of `rate` and round-trip time `rtt`, packets being no
    /// larger than `largest`.
    pub fn most(&self, rate: Rate, rtt: Duration, largest: Bytes) -> Bytes {
        let limit = match self {
            Self::DropTail(limit) => *limit,
            Self::Red(red) | Self::RedI(red) => red.thresholds(rate, rtt).limit,
            Self::Codel(codel) => codel.limit,
            Self::FqCodel(fq) => fq.codel.limit,
        };
        limit.most(rate, largest)
    }

    /// Whether part of it comes from the round-trip time.
    pub(crate) fn needs_rtt(&self) -> bool {
        matches!(self, Self::Red(red) | Self::RedI(red) if red.min.is_none() || red.max.is_none())
    }

    pub(crate) fn check(&self, rate: Rate, rtt: Duration) -> Result<(), PathError> {
        match self {
            Self::DropTail(_) => Ok(()),
            Self::Red(red) | Self::RedI(red) => red.check(rate, rtt),
            Self::Codel(codel) => codel.check(),
            Self::FqCodel(fq) => {
                if fq.flows == 0 || fq.flows > MAX_FLOWS || fq.quantum == Bytes::ZERO {
                    return Err(PathError::Flows);
                }
                fq.codel.check()
            }
        }
    }
}

impl CodelConfig {
    fn check(&self) -> Result<(), PathError> {
        let whole = !self.interval.is_zero() && self.target <= self.interval;
        if whole { Ok(()) } else { Err(PathError::Codel) }
    }
}

/// Reads `50ms` or `droptail:limit=50ms`, `red`, `red-i:max_p=0.1,min=100packets,max=200packets`,
/// `codel:target=5ms,ecn=yes`, `fq-codel:flows=64`.
impl FromStr for QueueConfig {
    type Err = ParseConfigError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Ok(limit) = text.parse() {
            return Ok(Self::DropTail(limit));
        }
        let (name, pairs) = split(text)?;
        let mut queue = match name {
            "droptail" => Self::default(),
            "red" => Self::Red(RedConfig::default()),
            "red-i" => Self::RedI(RedConfig::default()),
            "codel" => Self::Codel(CodelConfig::default()),
            "fq-codel" => Self::FqCodel(FqCodelConfig::default()),
            _ => {
                let known = "is no queue; give a limit (50ms, 100packets, 6MiB) for drop-tail, or \
                             red, red-i, codel or fq-codel";
                return Err(ParseConfigError::new(text, known));
            }
        };
        for (key, value) in pairs {
            queue.set(key, value).map_err(|reason| ParseConfigError::new(text, reason))?;
        }
        Ok(queue)
    }
}

impl QueueConfig {
    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        match self {
            Self::DropTail(limit) if key == "limit" => read(limit, value),
            Self::DropTail(_) => Err(format!("drop-tail has 'limit', not '{key}'")),
            Self::Red(red) | Self::RedI(red) => red.set(key, value),
            Self::Codel(codel) => codel.set(key, value),
            Self::FqCodel(fq) => match key {
                "flows" => read(&mut fq.flows, value),
                "quantum" => read(&mut fq.quantum, value),
                _ => fq.codel.set(key, value),
            },
        }
    }
}

impl RedConfig {
    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        match key {
            "min" | "max" | "limit" => {
                let limit = value.parse::<Limit>().map_err(|error| error.to_string())?;
                match key {
                    "min" => self.min = Some(limit),
                    "max" => self.max = Some(limit),
                    _ => self.limit = Some(limit),
                }
            }
            "max_p" => self.max_p = share(value)?,
            "weight" => self.weight = share(value)?,
            "gentle" => self.gentle = yes(value)?,
            "ecn" => self.ecn = yes(value)?,
            "wait" => self.wait = yes(value)?,
            "mean_packet" => read(&mut self.mean_packet, value)?,
            _ => {
                return Err(format!(
                    "red has min, max, max_p, gentle, limit, weight, mean_packet, ecn and wait, \
                     not '{key}'"
                ));
            }
        }
        Ok(())
    }
}

impl CodelConfig {
    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        match key {
            "target" => self.target = time(value)?,
            "interval" => self.interval = time(value)?,
            "limit" => read(&mut self.limit, value)?,
            "ecn" => self.ecn = yes(value)?,
            _ => {
                return Err(format!(
                    "codel has target, interval, limit and ecn (fq-codel also flows and quantum), \
                     not '{key}'"
                ));
            }
        }
        Ok(())
    }
}

/// Shows what [`FromStr`] reads, without what is as by default.
impl fmt::Display for QueueConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DropTail(limit) => Exact(*limit).fmt(f),
            Self::Red(red) => red.show(f, "red"),
            Self::RedI(red) => red.show(f, "red-i"),
            Self::Codel(codel) => codel.show(&mut Pairs::new(f, "codel")?, &CodelConfig::default()),
            Self::FqCodel(fq) => {
                let usual = FqCodelConfig::default();
                let mut pairs = Pairs::new(f, "fq-codel")?;
                pairs.pair(fq.flows != usual.flows, "flows", fq.flows)?;
                let quantum = format_args!("{}B", fq.quantum.0).to_string();
                pairs.pair(fq.quantum != usual.quantum, "quantum", quantum)?;
                fq.codel.show(&mut pairs, &usual.codel)
            }
        }
    }
}

impl RedConfig {
    fn show(&self, f: &mut fmt::Formatter<'_>, name: &str) -> fmt::Result {
        let usual = Self::default();
        let mut pairs = Pairs::new(f, name)?;
        for (key, limit) in [("min", self.min), ("max", self.max), ("limit", self.limit)] {
            if let Some(limit) = limit {
                pairs.pair(true, key, Exact(limit))?;
            }
        }
        pairs.pair(self.max_p != usual.max_p, "max_p", self.max_p)?;
        pairs.pair(self.weight != usual.weight, "weight", self.weight)?;
        pairs.pair(self.gentle != usual.gentle, "gentle", word(self.gentle))?;
        let bytes = Exact(Limit::Bytes(self.mean_packet));
        pairs.pair(self.mean_packet != usual.mean_packet, "mean_packet", bytes)?;
        pairs.pair(self.ecn != usual.ecn, "ecn", word(self.ecn))?;
        pairs.pair(self.wait != usual.wait, "wait", word(self.wait))?;
        Ok(())
    }
}

impl CodelConfig {
    fn show(&self, pairs: &mut Pairs<'_, '_>, usual: &Self) -> fmt::Result {
        let time = |time| Exact(Limit::Time(time));
        pairs.pair(self.target != usual.target, "target", time(self.target))?;
        pairs.pair(self.interval != usual.interval, "interval", time(self.interval))?;
        pairs.pair(self.limit != usual.limit, "limit", Exact(self.limit))?;
        pairs.pair(self.ecn != usual.ecn, "ecn", word(self.ecn))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DS3: Rate = Rate::from_bits_per_sec(44_736_000);

    #[test]
    fn spellings_are_read() {
        let read = |text: &str| text.parse::<QueueConfig>();
        assert_eq!(read("100packets"), Ok(QueueConfig::DropTail(Limit::Packets(100))));
        assert_eq!(read("droptail:limit=6MiB"), read("6MiB"));
        assert_eq!(read("red"), Ok(QueueConfig::Red(RedConfig::default())));
        let Ok(QueueConfig::RedI(red)) = read("red-i:max_p=5%, min=100packets,max=200packets")
        else {
            panic!("red-i is known");
        };
        assert_eq!((red.max_p, red.min), (0.05, Some(Limit::Packets(100))));
        for (bad, why) in [
            ("rde", "red-i"),
            ("red:max_p=2", "probability"),
            ("codel:target", "key=value"),
            ("fq-codel:flow=3", "quantum"),
            ("droptail:size=1B", "limit"),
        ] {
            assert!(read(bad).unwrap_err().to_string().contains(why), "{bad}");
        }
    }

    #[test]
    fn thresholds_are_the_papers() {
        let rtt = Duration::from_millis(200);
        let thresholds = RedConfig::default().thresholds(DS3, rtt);
        let bdp = 44_736_000.0 * 0.2 / 8.0;
        assert_eq!((thresholds.min, thresholds.max), (bdp / 2.0, bdp));
        assert_eq!(RedConfig::default().max_p, 0.1);
        let nowhere = QueueConfig::Red(RedConfig::default()).check(DS3, Duration::ZERO);
        assert_eq!(nowhere, Err(PathError::Thresholds(0, 0)), "no product without delay");
    }

    fn limits() -> impl Strategy<Value = Limit> {
        prop_oneof![
            (0u64..1 << 50).prop_map(|n| Limit::Bytes(Bytes(n))),
            any::<u64>().prop_map(Limit::Packets),
            (0u64..1 << 60).prop_map(|n| Limit::Time(Duration::from_nanos(n))),
        ]
    }

    fn codels() -> impl Strategy<Value = CodelConfig> {
        (0u64..1 << 40, 0u64..1 << 40, limits(), any::<bool>()).prop_map(|(t, i, limit, ecn)| {
            let (target, interval) = (Duration::from_nanos(t), Duration::from_nanos(i));
            CodelConfig { target, interval, limit, ecn }
        })
    }

    fn reds() -> impl Strategy<Value = RedConfig> {
        let limit = || prop::option::of(limits());
        let flags = (any::<bool>(), any::<bool>(), any::<bool>());
        (limit(), limit(), limit(), 0.0..=1.0, 0.0..=1.0, flags, 0u64..1 << 40).prop_map(
            |(min, max, limit, max_p, weight, (gentle, ecn, wait), mean)| {
                let mean_packet = Bytes(mean);
                RedConfig { min, max, max_p, gentle, limit, weight, mean_packet, ecn, wait }
            },
        )
    }

    fn queues() -> impl Strategy<Value = QueueConfig> {
        prop_oneof![
            limits().prop_map(QueueConfig::DropTail),
            reds().prop_map(QueueConfig::Red),
            reds().prop_map(QueueConfig::RedI),
            codels().prop_map(QueueConfig::Codel),
            (codels(), any::<u32>(), 0u64..1 << 40).prop_map(|(codel, flows, quantum)| {
                QueueConfig::FqCodel(FqCodelConfig { codel, flows, quantum: Bytes(quantum) })
            }),
        ]
    }

    proptest! {
        #[test]
        fn what_is_shown_reads_as_the_same(queue in queues()) {
            prop_assert_eq!(queue.to_string().parse::<QueueConfig>(), Ok(queue));
        }

        #[test]
        fn arbitrary_text_is_read_or_refused(text in "(red|codel|fq-codel|droptail|)[:=,%.a-z0-9 é]*") {
            let _ = text.parse::<QueueConfig>();
        }
    }
}
