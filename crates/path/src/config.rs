//! What a path is like.

use core::time::Duration;

use units::{Bytes, Instant, Rate};

use crate::change::{Change, Schedule};
use crate::trace::RateTrace;
use crate::wire::Framing;
use crate::{Jitter, Link, LossConfig, QueueConfig, Unchanging};

/// The longest one-way delay: an hour, beyond Mars at its farthest.
pub const MAX_DELAY: Duration = Duration::from_secs(3600);

/// The least MTU: what every IPv4 router forwards whole (RFC 791, section 3.2).
pub const MIN_MTU: Bytes = Bytes(68);

/// Separates the random numbers of the two directions.
const BACK_SEED: u64 = 0x9e37_79b9_7f4a_7c15;

/// One direction of a path.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkConfig {
    /// What the transmitter puts on the line. With a `trace`, only what queue limits in time and
    /// products of bandwidth and delay are reckoned with.
    pub rate: Rate,
    /// When a recorded link can send, in place of `rate`.
    pub trace: Option<RateTrace>,
    /// Propagation, added to the time on the transmitter.
    pub delay: Duration,
    /// Loss on the line.
    pub loss: LossConfig,
    /// What waits for the transmitter.
    pub queue: QueueConfig,
    /// Bytes of framing that each packet costs on the line beside its own size; the queue does
    /// not count them. On an ATM line: what stands before the packet in its cells, 8 for LLC and
    /// SNAP (RFC 2684).
    pub framing: Bytes,
    /// An ATM line: a packet, its framing and AAL5's trailer fill 48-byte payloads of 53-byte
    /// cells.
    pub atm: bool,
    /// Larger packets are refused; none are without it.
    pub mtu: Option<Bytes>,
    /// Whether their sender is told so (ICMP); else they vanish, as in a black hole.
    pub icmp: bool,
    /// What the line does to packets beside losing them.
    pub impairments: Impairments,
    /// What changes, and when.
    pub schedule: Schedule,
}

/// What a line does to packets; every probability is of a packet on its own unless it says else.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Impairments {
    /// Probability that a cell is lost, and its packet with it. Without `atm` a packet is a cell.
    pub cell_loss: f64,
    /// Probability that a bit is damaged.
    pub bit_error: f64,
    /// Probability that a packet is damaged, in one bit.
    pub corrupt: f64,
    /// Whether damaged packets arrive, as if no checksum saw it. Else they are dropped where the
    /// damage is found ([`DropCause::Damage`](crate::DropCause::Damage)).
    pub silent: bool,
    /// Probability that a packet arrives twice.
    pub duplicate: f64,
    /// Probability that a packet is held back by `reorder_by`, so that later ones overtake it.
    pub reorder: f64,
    /// How long.
    pub reorder_by: Duration,
    /// Delay that varies.
    pub jitter: Jitter,
    /// Whether packets keep their order under jitter and when the delay falls: true for what one
    /// queue elsewhere does, false for what many ways do.
    pub keep_order: bool,
}

impl Default for Impairments {
    fn default() -> Self {
        Self {
            cell_loss: 0.0,
            bit_error: 0.0,
            corrupt: 0.0,
            silent: false,
            duplicate: 0.0,
            reorder: 0.0,
            reorder_by: Duration::ZERO,
            jitter: Jitter::None,
            keep_order: true,
        }
    }
}

impl Impairments {
    fn check(&self) -> Result<(), PathError> {
        let shares = [
            ("cell loss", self.cell_loss),
            ("bit error", self.bit_error),
            ("corruption", self.corrupt),
            ("duplication", self.duplicate),
            ("reordering", self.reorder),
        ];
        for (what, share) in shares {
            if !(0.0..=1.0).contains(&share) {
                return Err(PathError::Share(what, share));
            }
        }
        let times = [self.reorder_by, self.jitter.parameter()];
        let long = times.into_iter().find(|&time| time > MAX_DELAY);
        long.map_or(Ok(()), |time| Err(PathError::Delay(time)))
    }
}

impl LinkConfig {
    /// A clean link behind the default queue (50 ms drop-tail).
    pub fn new(rate: Rate, delay: Duration) -> Self {
        Self {
            rate,
            trace: None,
            delay,
            loss: LossConfig::None,
            queue: QueueConfig::default(),
            framing: Bytes::ZERO,
            atm: false,
            mtu: None,
            icmp: true,
            impairments: Impairments::default(),
            schedule: Schedule::default(),
        }
    }

    /// The link, empty. `rtt` is that of the path it belongs to: RED's default thresholds come
    /// from it.
    ///
    /// # Errors
    /// A value of the configuration is outside its range.
    pub fn link<T>(&self, rtt: Duration, seed: u64) -> Result<Link<T>, PathError> {
        self.check(rtt)?;
        Ok(Link::new(self, rtt, seed))
    }

    /// The same link for a caller that never [sets](Link::set) it, which makes it faster. What it does at certain times
    /// counts from `origin`, before which nothing is sent.
    ///
    /// # Errors
    /// A value of the configuration is outside its range.
    pub fn unchanging<T>(
        &self,
        rtt: Duration,
        seed: u64,
        origin: Instant,
    ) -> Result<Unchanging<T>, PathError> {
        self.check(rtt)?;
        Ok(Unchanging::new(self, rtt, seed, origin))
    }

    pub(crate) fn check(&self, rtt: Duration) -> Result<(), PathError> {
        self.check_state(rtt)?;
        self.schedule.check()?;
        // What each of the changes leads to must be possible as well.
        let mut state = self.clone();
        for (_, change) in self.schedule.rounds() {
            state = state.after(change, self.delay, rtt)?;
        }
        Ok(())
    }

    /// The link after a change, if that is possible. `rtt` was the path's when the link was made
    /// with a delay of `first`.
    pub(crate) fn after(
        &self,
        change: &Change,
        first: Duration,
        rtt: Duration,
    ) -> Result<Self, PathError> {
        change.check()?;
        let mut state = self.clone();
        change.apply(&mut state);
        if change.needs_rtt() && state.delay != first {
            return Err(PathError::OldRtt);
        }
        state.check_state(rtt)?;
        Ok(state)
    }

    /// The first change whose RED would take its thresholds from a round-trip time of which `other`, the
    /// opposite direction, changes its part.
    pub(crate) fn asks_old_rtt(&self, other: &Self) -> Option<usize> {
        let moves = |change: &Change| change.delay.is_some_and(|delay| delay != other.delay);
        let moved = other.schedule.steps().iter().any(|(_, change)| moves(change));
        let asks = self.schedule.steps().iter().position(|(_, change)| change.needs_rtt());
        asks.filter(|_| moved)
    }

    /// Whether the link as it is now is possible, whatever its schedule holds.
    pub(crate) fn check_state(&self, rtt: Duration) -> Result<(), PathError> {
        if self.rate == Rate::ZERO {
            return Err(PathError::NoRate);
        }
        if self.delay > MAX_DELAY {
            return Err(PathError::Delay(self.delay));
        }
        if let Some(mtu) = self.mtu.filter(|&mtu| mtu < MIN_MTU) {
            return Err(PathError::Mtu(mtu));
        }
        self.loss.check()?;
        self.impairments.check()?;
        self.queue.check(self.rate, rtt)
    }

    /// The most bytes the link holds at once, in its queue and under way, whatever its schedule
    /// brings: what a caller that keeps the packets needs room for. Counted in packets of the
    /// `largest` size without framing; smaller packets are more.
    pub fn most_held(&self, rtt: Duration, largest: Bytes) -> Bytes {
        let mut state = self.clone();
        let (mut queue, mut rate, mut delay) = (Bytes::ZERO, Rate::ZERO, Duration::ZERO);
        let mut extend = |state: &Self| {
            queue = queue.max(state.queue.most(state.rate, rtt, largest));
            rate = rate.max(state.rate);
            delay = delay.max(state.most_delay());
        };
        extend(&state);
        for (_, change) in self.schedule.rounds() {
            change.apply(&mut state);
            extend(&state);
        }
        // A recording passes far more at times than on average.
        let stated =
            self.schedule.steps().iter().filter_map(|(_, change)| change.rate_trace.as_ref());
        let recorded = self.trace.iter().chain(stated).map(|trace| trace.most_within(delay)).max();
        let under_way = rate.bytes_in(delay).max(recorded.unwrap_or_default());
        let one = Framing::of(self).line_size(largest);
        queue + under_way + one
    }
}

/// Both directions of a path. `forward` goes from the near host to the far one, `back` returns.
#[derive(Clone, Debug, PartialEq)]
pub struct PathConfig {
    /// Near to far: the data direction in the project's measurements.
    pub forward: LinkConfig,
    /// Far to near.
    pub back: LinkConfig,
    /// Fixes every random choice of both directions.
    pub seed: u64,
}

impl PathConfig {
    /// A path of the same `rate` both ways, half of `rtt` each way, without loss, behind the
    /// default queue (50 ms drop-tail), with seed 1.
    pub fn new(rate: Rate, rtt: Duration) -> Self {
        let link = |delay| LinkConfig::new(rate, delay);
        Self { forward: link(rtt - rtt / 2), back: link(rtt / 2), seed: 1 }
    }

    /// Loses packets from near to far with `probability`, each on its own. The way back stays
    /// clean, as in the measurements this project compares itself with; see
    /// [`with_loss_back`](Self::with_loss_back).
    #[must_use]
    pub fn with_loss(mut self, probability: f64) -> Self {
        self.forward.loss = LossConfig::Bernoulli(probability);
        self
    }

    /// Loses packets from far to near with `probability`.
    #[must_use]
    pub fn with_loss_back(mut self, probability: f64) -> Self {
        self.back.loss = LossConfig::Bernoulli(probability);
        self
    }

    /// Sets the queue of both directions.
    #[must_use]
    pub fn with_queue(mut self, queue: QueueConfig) -> Self {
        self.forward.queue = queue;
        self.back.queue = queue;
        self
    }

    /// Sets the seed.
    #[must_use]
    pub fn with_seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Propagation delay there and back.
    pub fn rtt(&self) -> Duration {
        self.forward.delay + self.back.delay
    }

    /// The forward and the back link, both empty.
    ///
    /// # Errors
    /// A value of the configuration is outside its range.
    pub fn links<T>(&self) -> Result<(Link<T>, Link<T>), PathError> {
        self.both(LinkConfig::link)
    }

    /// The same, [not to be changed](LinkConfig::unchanging) from outside, which begin at `origin`.
    ///
    /// # Errors
    /// A value of the configuration is outside its range.
    pub fn unchanging_links<T>(
        &self,
        origin: Instant,
    ) -> Result<(Unchanging<T>, Unchanging<T>), PathError> {
        self.both(|link, rtt, seed| link.unchanging(rtt, seed, origin))
    }

    fn both<L>(
        &self,
        make: impl Fn(&LinkConfig, Duration, u64) -> Result<L, PathError>,
    ) -> Result<(L, L), PathError> {
        let rtt = self.rtt();
        let forward = make(&self.forward, rtt, self.seed)?;
        let back = make(&self.back, rtt, self.seed ^ BACK_SEED)?;
        let ways = [(&self.forward, &self.back), (&self.back, &self.forward)];
        if ways.into_iter().any(|(link, other)| link.asks_old_rtt(other).is_some()) {
            return Err(PathError::OldRtt);
        }
        Ok((forward, back))
    }
}

/// Why a path cannot be built.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum PathError {
    /// A link of rate zero.
    #[error("a link needs a rate above zero")]
    NoRate,
    /// A probability outside 0 to 1.
    #[error("a loss of {0} is no probability; give a value from 0 to 1")]
    Loss(f64),
    /// More than [`MAX_DELAY`].
    #[error("a one-way delay of {0:?} is above the {MAX_DELAY:?} this model holds")]
    Delay(Duration),
    /// Another probability outside 0 to 1.
    #[error("{0}: {1} is no probability; give a value from 0 to 1")]
    Share(&'static str, f64),
    /// RED's lower and upper threshold.
    #[error(
        "RED needs a lower threshold above zero and an upper one above that, not {0} and {1}; give \
         min and max, or a longer delay when they are to come from it"
    )]
    Thresholds(u64, u64),
    /// RED's thresholds would come from a round-trip time that is no longer the path's.
    #[error(
        "RED on a path whose delay has changed needs min and max, for they would come from the \
         round-trip time at the start"
    )]
    OldRtt,
    /// `CoDel`'s times.
    #[error("CoDel needs an interval above zero and a target within it")]
    Codel,
    /// FQ-CoDel's queues.
    #[error("FQ-CoDel needs 1 to 65536 flows and a quantum above zero")]
    Flows,
    /// Below [`MIN_MTU`].
    #[error("an MTU of {0} is below the 68 bytes that every router forwards")]
    Mtu(Bytes),
    /// A schedule that cannot be followed.
    #[error("{0}")]
    Schedule(&'static str),
    /// A change that names files which were not read.
    #[error("a trace is named by its file; read it through the scenario, or give it as text")]
    Unread,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_what_makes_no_path() {
        let path = PathConfig::new(Rate::from_bits_per_sec(1), Duration::from_millis(1));
        assert!(path.links::<()>().is_ok());
        let error = |p: PathConfig| p.links::<()>().err();
        assert_eq!(error(path.clone().with_loss(1.5)), Some(PathError::Loss(1.5)));
        assert!(matches!(error(path.clone().with_loss_back(f64::NAN)), Some(PathError::Loss(_))));
        assert_eq!(error(PathConfig::new(Rate::ZERO, Duration::ZERO)), Some(PathError::NoRate));
        let far = PathConfig::new(Rate::from_bits_per_sec(1), 3 * MAX_DELAY);
        assert!(matches!(error(far), Some(PathError::Delay(_))));
    }

    /// RED is asked for first, and in the second round has the delay that comes last in the first.
    #[test]
    fn the_second_round_of_a_schedule_must_be_possible_too() {
        let ms = Duration::from_millis;
        let mut link = LinkConfig::new(Rate::from_bits_per_sec(10_000_000), ms(20));
        let red = Change { queue: "red".parse().ok(), ..Change::default() };
        let longer = Change { delay: Some(ms(30)), ..Change::default() };
        let steps = vec![(ms(1), red), (ms(2), longer)];
        link.schedule = Schedule::new(steps.clone(), None);
        assert!(link.link::<()>(ms(40), 1).is_ok());
        link.schedule = Schedule::new(steps, Some(ms(3)));
        assert_eq!(link.link::<()>(ms(40), 1).err(), Some(PathError::OldRtt));
    }

    /// A queue of 100 ms is set at the rate that the round before has left.
    #[test]
    fn the_second_round_of_a_schedule_holds_more() {
        let ms = Duration::from_millis;
        let mut link = LinkConfig::new(Rate::from_bits_per_sec(8_000_000), ms(1));
        let step = |at, queue: &str, bits| {
            let rate = Some(Rate::from_bits_per_sec(bits));
            [
                (ms(at), Change { queue: queue.parse().ok(), ..Change::default() }),
                (ms(at + 1), Change { rate, ..Change::default() }),
            ]
        };
        let steps = [step(1, "100ms", 8_000_000), step(3, "1ms", 80_000_000)].concat();
        link.schedule = Schedule::new(steps, Some(ms(9)));
        assert!(link.most_held(ms(2), Bytes(1500)) >= Bytes(1_000_000));
    }

    /// A thousand packets at once, every ten seconds: far above the mean rate for as long as they are under way.
    #[test]
    fn a_recording_holds_what_it_passes_at_once() {
        let mut link = LinkConfig::new(Rate::ZERO, Duration::from_millis(100));
        let trace = "10000\n".repeat(1000).parse().ok();
        let queue = "1000packets".parse().ok();
        Change { rate_trace: trace, queue, ..Change::default() }.apply(&mut link);
        let mut held = link.link(Duration::from_millis(200), 1).expect("a link");
        // As many again as it passes at once.
        for at in [1, 10] {
            let now = Instant::ZERO + Duration::from_secs(at);
            while held.send(now, Bytes(1500), ()).is_ok() {}
        }
        assert_eq!(held.held(), 2000);
        let most = link.most_held(Duration::from_millis(200), Bytes(1500));
        assert!(most >= Bytes(2000 * 1500), "{most}");
    }

    #[test]
    fn an_odd_round_trip_is_kept_whole() {
        let rtt = Duration::from_nanos(7);
        assert_eq!(PathConfig::new(Rate::from_bits_per_sec(1), rtt).rtt(), rtt);
    }
}
