//! The credit that this end gives: how far, on all streams together, the other may send.

use core::time::Duration;
use std::collections::VecDeque;

use units::Instant;

use super::StreamError;
use super::recv::Progress;
use super::window::Arrivals;

/// Room for what is on the way or waits for a repair, in round trips of what arrives, beyond the
/// first credit.
const ROUNDS: u64 = 4;
/// Holes in all streams that are remembered: a second of 10 Gbit/s that lost each tenth packet, in each
/// of which three streams lost something.
const MAX_HOLES: i64 = 1 << 18;
/// The part of the memory that no window grows into.
const RESERVE: u64 = 8;

/// What the connection lets each of its streams have.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Room {
    /// Bytes that may still be sent beyond the credits of streams.
    pub(super) loan: u64,
    /// The most that arrived on all streams within a round trip.
    pub(super) round: u64,
    /// See [`Lender::most`].
    pub(super) most: u64,
}

/// The connection's credit. It follows what arrives, not what is read: what waits for its reader
/// is bounded by its own stream's credit, so that readers who stall take nothing from the others.
/// Only when all of them together fill the memory does reading decide.
#[derive(Debug)]
pub(super) struct Lender {
    /// The first credit. So much may be sent beyond the credits of streams, once.
    first: u64,
    memory: u64,
    sum: Progress,
    arrivals: Arrivals,
    /// What the path is said to carry in a round trip.
    path: u64,
    told: u64,
    /// Streams whose credit the other end should hear of.
    pub(super) owed: VecDeque<u64>,
}

impl Lender {
    pub(super) fn new(first: u64, memory: u64) -> Self {
        let first = first.min(memory);
        Self {
            first,
            memory,
            sum: Progress::default(),
            arrivals: Arrivals::default(),
            path: 0,
            told: first,
            owed: VecDeque::new(),
        }
    }

    /// What a stream may count on beyond its own credit.
    pub(super) fn room(&self) -> Room {
        let loan = self.first - self.sum.borrowed;
        Room { loan, round: self.arrivals.most(), most: self.most() }
    }

    /// The largest window that a stream may grow to: all that is left, when nothing waits for readers, and the smaller a
    /// part of that the less is left. So those that come after some that have grown and stalled can grow too, unless one of
    /// these was as large as the memory; and however many do, [`RESERVE`] is left for the first credits of all.
    pub(super) fn most(&self) -> u64 {
        let reserve = self.memory / RESERVE;
        let (all, left) = (self.memory - reserve, self.spare().saturating_sub(reserve));
        (u128::from(left) * u128::from(left) / u128::from(all.max(1))) as u64
    }

    /// What has arrived of all streams and waits for readers.
    pub(super) fn unread(&self) -> u64 {
        self.sum.arrived - self.sum.consumed
    }

    /// Memory that does not hold what waits for readers.
    fn spare(&self) -> u64 {
        self.memory.saturating_sub(self.unread())
    }

    /// A stream's counters moved.
    ///
    /// # Errors
    /// [`StreamError::CreditExceeded`], [`StreamError::TooManyHoles`].
    pub(super) fn on_progress(&mut self, progress: Progress) -> Result<(), StreamError> {
        self.sum.seen += progress.seen;
        self.sum.arrived += progress.arrived;
        self.sum.consumed += progress.consumed;
        self.sum.borrowed += progress.borrowed;
        self.sum.holes += progress.holes;
        match self.sum {
            Progress { seen, .. } if seen > self.told => Err(StreamError::CreditExceeded),
            Progress { holes, .. } if holes > MAX_HOLES => Err(StreamError::TooManyHoles),
            _ => Ok(()),
        }
    }

    /// What arrives in a round trip, or could.
    fn round(&self) -> u64 {
        self.arrivals.most().max(self.path)
    }

    /// The path is said to carry so much in a round trip. Nobody has to find that out by growing.
    pub(super) fn on_path(&mut self, round: u64) {
        self.path = self.path.max(round.min(self.memory));
    }

    /// The part of that for each of so many streams.
    pub(super) fn share(&self, streams: usize) -> u64 {
        self.path / streams.max(1) as u64
    }

    fn credit(&self) -> u64 {
        let follows_path = self.sum.arrived + self.first + ROUNDS * self.round();
        follows_path.min(self.sum.consumed + self.memory).max(self.told)
    }

    /// Whether the other end should hear of more credit now. Where little is left, little is news: the
    /// other end cannot use up more before it hears of it.
    pub(super) fn has_news(&self) -> bool {
        let step = (self.first / 2).min(self.spare() / 4);
        !self.owed.is_empty() || self.credit() - self.told > step
    }

    /// Whether so much waits for readers that nobody should open another stream: half of what no
    /// window grows into is left, for the first credits of streams that are there already.
    pub(super) fn is_crowded(&self) -> bool {
        self.spare() < self.memory / RESERVE / 2
    }

    /// The credit to tell the other end.
    pub(super) fn grant(&mut self, now: Instant, rtt: Duration) -> u64 {
        self.arrivals.look(now, self.sum.seen, rtt);
        self.told = self.credit();
        self.told
    }
}

#[cfg(test)]
mod tests {
    use super::super::recv::RecvHalf;
    use super::super::store::Pool;
    use super::super::window::Window;
    use super::*;

    const RTT: Duration = Duration::from_millis(100);

    fn arrive(lender: &mut Lender, amount: u64) {
        lender
            .on_progress(Progress { seen: amount, arrived: amount, ..Progress::default() })
            .unwrap();
    }

    #[test]
    fn what_nobody_reads_takes_credit_from_the_others_only_when_memory_is_full() {
        let mut lender = Lender::new(1000, 10_000);
        let mut now = Instant::from_nanos(1_000_000_000);
        for _ in 0..9 {
            arrive(&mut lender, 1000);
            now += RTT * 9;
            let credit = lender.grant(now, RTT);
            assert_eq!(credit, lender.sum.arrived + 1000);
        }
        assert!(!lender.is_crowded());
        arrive(&mut lender, 1000);
        assert!(lender.is_crowded());
        assert_eq!(lender.grant(now, RTT), 10_000);
        let more = Progress { seen: 1, arrived: 1, ..Progress::default() };
        assert_eq!(lender.on_progress(more), Err(StreamError::CreditExceeded));
    }

    #[test]
    fn streams_that_grow_and_stall_one_after_another_leave_a_reserve() {
        let mut lender = Lender::new(1000, 1 << 30);
        assert_eq!(lender.most(), (1 << 30) - (1 << 27), "one alone has all of it");
        for _ in 0..20 {
            lender.sum.arrived += lender.room().most.min(100 << 20);
        }
        assert!(lender.spare() > 1 << 27);
        assert!(lender.most() > 2 << 20, "and the next one can grow: {}", lender.most());
    }

    #[test]
    fn believes_at_once_what_the_path_is_said_to_carry() {
        let mut lender = Lender::new(1000, 10_000);
        lender.on_path(1000);
        assert_eq!((lender.share(4), lender.grant(Instant::ZERO, RTT)), (250, 5000));
        lender.on_path(u64::MAX);
        lender.on_path(1);
        assert_eq!(lender.grant(Instant::ZERO, RTT), 10_000, "no more than memory holds");
    }

    #[test]
    fn holes_are_counted_over_all_streams_as_long_as_they_are_there() {
        let mut pool = Pool::default();
        let mut lender = Lender::new(1 << 30, 1 << 30);
        let mut streams = [0, 1].map(|_| RecvHalf::new(Window::new(1 << 30)));
        let mut pierce = |stream: &mut RecvHalf, lender: &mut Lender, place: i64| {
            let data = (2 * place as u64 + 1, &[7][..], false);
            lender.on_progress(stream.on_data(data, lender.room(), &mut pool).unwrap())
        };
        for place in 0..MAX_HOLES {
            pierce(&mut streams[(place % 2) as usize], &mut lender, place).unwrap();
        }
        let one_more = pierce(&mut streams[0], &mut lender, MAX_HOLES);
        assert_eq!(one_more, Err(StreamError::TooManyHoles));
        lender.on_progress(streams[1].stop(&mut Pool::default())).unwrap();
        pierce(&mut streams[0], &mut lender, MAX_HOLES + 1).unwrap();
        assert_eq!(lender.sum.holes, MAX_HOLES / 2 + 2);
    }

    #[test]
    fn follows_what_the_path_carries() {
        let mut lender = Lender::new(1_000_000, 1 << 40);
        let mut now = Instant::from_nanos(1_000_000_000);
        for _ in 0..1000 {
            now += RTT / 20;
            arrive(&mut lender, 500_000);
            lender.grant(now, RTT);
        }
        let ahead = lender.grant(now, RTT) - lender.sum.arrived;
        assert!((40_000_000..43_500_000).contains(&ahead), "{ahead}");
    }
}
