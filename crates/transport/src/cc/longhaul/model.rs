//! What is known of the path and of our part in it.

use core::time::Duration;

use units::{Bytes, Instant};

use super::super::AckSample;
use super::arrivals::Arrivals;
use super::crowd::Crowd;
use super::own_loss::OwnLoss;
use super::path::Path;
use super::peace::Peace;

/// A round lasts at least so long, to hold enough reports.
const MIN_ROUND: Duration = Duration::from_millis(10);
/// The most that arrived is remembered for this long to twice as long.
const LINK_MEMORY: Duration = Duration::from_secs(15);
/// Where others fill the queue one of two flows is owed so much of the link.
const HALF: f64 = 0.5;
/// So much more than what one had before is chance.
const CHANCE: f64 = 1.1;
/// No more of the path's own loss than this is made up for among many: most of it is their overflow.
const MANY_OWN: f64 = 0.05;
/// Flows that may share a path before their queue looks like somebody else's.
pub(super) const FLOWS: f64 = 12.0;

/// Sums over a round trip.
#[derive(Debug, Default)]
pub(super) struct Round {
    pub(super) started: Instant,
    pub(super) ends: Instant,
    pub(super) acked: u64,
    pub(super) lost: u64,
    pub(super) marked: u64,
    pub(super) limited: bool,
    pub(super) least_queue: Option<Duration>,
    pub(super) most_queue: Duration,
}

impl Round {
    /// The share of what was settled that was lost.
    pub(super) fn loss(&self) -> f64 {
        self.lost as f64 / (self.acked + self.lost).max(1) as f64
    }

    /// What has arrived, in bits a second.
    pub(super) fn arrived(&self) -> f64 {
        self.acked as f64 * 8.0 / self.ends.since(self.started).max(MIN_ROUND).as_secs_f64()
    }
}

/// What arrives tells of our share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tells {
    /// It is ours.
    All,
    /// It may be less than ours, and what is more is only lent: others drain.
    Less,
    /// It was sent while some drained.
    Nothing,
}

/// Shared by all modes.
#[derive(Debug)]
pub(super) struct Model {
    pub(super) path: Path,
    /// Our part of the bottleneck's rate, in bits a second as received.
    pub(super) share: f64,
    pub(super) own_loss: OwnLoss,
    pub(super) peace: Peace,
    pub(super) crowd: Crowd,
    /// What trains told of the bottleneck's rate, in bits a second.
    pub(super) trains: Option<f64>,
    /// Size of a packet.
    pub(super) packet: Bytes,
    arrivals: Arrivals,
    /// The most that arrived in this and in the last [`LINK_MEMORY`].
    most: [f64; 2],
    most_ends: Instant,
    round: Round,
    /// Bytes settled as arrived and as lost since the beginning.
    settled: (u64, u64),
    /// Reports in a row that showed a queue.
    pub(super) queued: u32,
    /// The rate only grows: the start.
    pub(super) growing: bool,
    /// The last report is of a time in which there was too little to send.
    pub(super) limited: bool,
    pub(super) in_flight: Bytes,
}

impl Model {
    pub(super) fn new(path: Path) -> Self {
        Self {
            path,
            share: 0.0,
            own_loss: OwnLoss::default(),
            peace: Peace::default(),
            crowd: Crowd::default(),
            trains: None,
            packet: Bytes(1200),
            arrivals: Arrivals::default(),
            most: [0.0; 2],
            most_ends: Instant::ZERO,
            round: Round::default(),
            settled: (0, 0),
            queued: 0,
            growing: true,
            limited: false,
            in_flight: Bytes::ZERO,
        }
    }

    /// Takes in a report, whose arrivals tell so much; gives the round that it ended.
    pub(super) fn on_ack(&mut self, sample: &AckSample, tells: Tells) -> Option<Round> {
        if let Some(rtt) = sample.rtt {
            self.path.on_rtt(sample.now, rtt, sample.datagram, self.link());
            self.peace.on_base(self.path.base, self.path.target());
            self.own_loss.on_base(self.path.base, self.path.target() / 2);
            let queue = self.path.queue;
            let least = &mut self.round.least_queue;
            *least = Some(least.map_or(queue, |least| least.min(queue)));
            self.round.most_queue = self.round.most_queue.max(queue);
        }
        self.crowd.on_time(sample.now);
        self.packet = sample.datagram;
        self.round.acked += sample.acked.0;
        self.round.lost += sample.lost.0;
        self.settled.0 += sample.acked.0;
        self.settled.1 += sample.lost.0;
        self.round.marked += sample.marked;
        self.round.limited |= sample.limited;
        self.limited = sample.limited;
        self.trains = sample.capacity.map(|rate| rate.as_bits_per_sec() as f64).or(self.trains);
        let (received, at) = sample.received;
        if let Some(rate) = self.arrivals.rate(received.0, at, self.span()) {
            self.on_arrival_rate(sample.now, rate, sample.limited, tells);
        }
        if sample.now < self.round.ends {
            return None;
        }
        let ends = sample.now + self.round_time();
        let next = Round { started: sample.now, ends, ..Round::default() };
        let round = core::mem::replace(&mut self.round, next);
        self.path.on_marks(round.marked > 0);
        Some(round)
    }

    /// How long a round is that begins now.
    pub(super) fn round_time(&self) -> Duration {
        self.path.rtt().max(MIN_ROUND)
    }

    /// The time over which arrivals are counted: long enough to smooth over late wake-ups.
    fn span(&self) -> Duration {
        let shortest = if self.growing { 10 } else { 25 };
        (self.path.base / 4).clamp(Duration::from_millis(shortest), Duration::from_millis(50))
    }

    fn on_arrival_rate(&mut self, now: Instant, rate: f64, limited: bool, tells: Tells) {
        if now >= self.most_ends {
            self.most = [0.0, self.most[0]];
            self.most_ends = now + LINK_MEMORY;
        }
        let queued = self.path.queue > self.path.target();
        self.queued = if queued { self.queued + 1 } else { 0 };
        // Smoothed over about a span's reports, against bunched arrivals.
        let smoothed = self.share + (rate - self.share) / 8.0;
        self.share = match tells {
            Tells::All if self.growing || !queued => self.share.max(rate),
            Tells::All if !limited || rate > self.share => smoothed,
            Tells::Less if queued && !limited => self.share.min(smoothed),
            Tells::All | Tells::Less | Tells::Nothing => self.share,
        };
        self.most[0] = self.most[0].max(self.share);
    }

    /// What is past says nothing any more.
    pub(super) fn forget_arrivals(&mut self) {
        self.arrivals.clear();
    }

    /// The most that arrived lately.
    pub(super) fn most(&self) -> f64 {
        self.most[0].max(self.most[1])
    }

    /// The bottleneck's rate: the most that arrived lately, or what trains tell.
    pub(super) fn link(&self) -> f64 {
        self.most().max(self.trains.unwrap_or(0.0))
    }

    /// What one of two flows should have, in bits a second.
    pub(super) fn half(&self) -> f64 {
        self.link() * HALF
    }

    /// What we are owed where others fill the queue: half of the link, or what we had before they came: among many of our
    /// kind that is less, and if each insisted on half, all would lose most of what they send. Who had less than one of
    /// as many as our kind may be was not at peace.
    pub(super) fn owed(&self) -> f64 {
        let (half, least) = (self.half(), self.link() / FLOWS);
        self.peace.most().map_or(half, |had| (had * CHANCE).clamp(least, half))
    }

    /// More has been lost than has arrived.
    pub(super) const fn is_lost_on(&self) -> bool {
        self.settled.1 > self.settled.0
    }

    /// What must be sent so that `rate` arrives.
    pub(super) fn compensated(&self, rate: f64) -> f64 {
        let most = if self.crowd.is_known() { MANY_OWN } else { 1.0 };
        rate / (1.0 - self.own_loss.ratio().min(most))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HAD: f64 = 80e6;

    /// The share after so much arrived, behind a queue of so many milliseconds.
    fn share(tells: Tells, queue: u64, rate: f64, limited: bool) -> f64 {
        let mut model = Model::new(Path::new(Duration::from_millis(50), 1.0));
        (model.share, model.growing) = (HAD, false);
        model.path.queue = Duration::from_millis(queue);
        model.on_arrival_rate(Instant::ZERO, rate, limited, tells);
        model.share
    }

    #[test]
    fn what_arrives_is_ours_but_in_a_drain_it_is_lent() {
        let (more, less) = (160e6, 40e6);
        assert_eq!(share(Tells::All, 0, more, false), more);
        assert_eq!(share(Tells::All, 20, more, false), 90e6);
        assert_eq!(share(Tells::All, 20, less, false), 75e6);
        assert_eq!(share(Tells::Less, 20, less, false), 75e6);
        for (queue, rate, limited) in
            [(0, more, false), (20, more, false), (0, less, false), (20, less, true)]
        {
            assert_eq!(share(Tells::Less, queue, rate, limited), HAD, "{queue} ms, {rate}");
            assert_eq!(share(Tells::Nothing, queue, rate, limited), HAD, "{queue} ms, {rate}");
        }
        assert_eq!(share(Tells::Nothing, 20, less, false), HAD);
    }
}
