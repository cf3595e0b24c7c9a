//! What is in flight, and what a report says of it: recovery by covered numbers.
//!
//! A packet is lost when a report covers its number, lacks it, and says that a packet sent later
//! by the [reorder margin](Reordering) has arrived. Nothing else declares a packet lost: no timer, no
//! go-back-N. Content that was lost goes out again under a new number. The other end is not told at once
//! to forget what was given up: if it arrives after all, it counts, and the margin grows.
//!
//! With positive acknowledgements each packet has a time-out instead ([`SentLog::expire`]), and one
//! given up too soon is acknowledged late.

use core::ops::Range;
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use units::Instant;

use crate::reordering::{Reordering, longest_margin};
use crate::streams::Piece;
use crate::unsettled::Unsettled;
use crate::wire::Report;

/// Packets that may stand between the oldest unsettled one and the newest: 1.5 GB at full size.
const MAX_ENTRIES: usize = 1 << 20;
/// What is no data and goes on beyond that: reports, states and pings. More, and the other end keeps a
/// packet from being settled.
const MAX_BEYOND: usize = 1 << 16;

/// Packets given up that may still be found to have arrived, of which the latest are known.
const MAX_GIVEN_UP: usize = 1 << 14;

/// What must be done again when a packet is lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// A piece of a stream.
    Piece { stream: u64, piece: Piece },
    /// Pieces of several streams.
    Pieces(Box<[(u64, Piece)]>),
    /// A stream's reset.
    Reset { stream: u64, code: u64, end: u64 },
    /// A stream's stop.
    Stop { stream: u64, code: u64 },
    /// A probe of the path's MTU.
    MtuProbe,
    /// Only asked for a report.
    Ping,
}

/// A packet in flight.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) at: Instant,
    /// Bytes of the datagram.
    pub(crate) size: u32,
    /// When the latest was sent that had arrived by the last report that lacked it.
    pub(crate) lacked_at: Option<Instant>,
    pub(crate) content: Content,
}

impl Sent {
    /// It goes out now.
    pub(crate) fn new(at: Instant, size: usize, content: Content) -> Self {
        Self { at, size: size as u32, lacked_at: None, content }
    }
}

/// What a report settled.
#[derive(Debug, Default)]
pub(crate) struct Settled {
    pub(crate) acked: Vec<Sent>,
    /// With their numbers.
    pub(crate) lost: Vec<(u64, Sent)>,
    /// Runs of numbers that what was lost consists of.
    pub(crate) gaps: u32,
    /// When the largest number received was sent, if the report was the first to settle it.
    pub(crate) largest_sent_at: Option<Instant>,
}

impl Settled {
    fn clear(&mut self) {
        self.acked.clear();
        self.lost.clear();
        self.gaps = 0;
        self.largest_sent_at = None;
    }
}

/// What a report cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Untrue {
    /// It names packets that were never sent.
    NeverSent,
    /// Again and again it leaves out a packet, neither received nor lost.
    KeptBack,
}

/// Packets sent and not settled, in the order of their numbers.
#[derive(Debug, Default)]
pub(crate) struct SentLog {
    /// The number of the front entry: everything below is settled.
    lower: u64,
    /// `None`: settled, or never to be (reports and states).
    entries: VecDeque<Option<Sent>>,
    /// The numbers of those that are.
    open: Unsettled,
    /// Given up, by their numbers: after a report, while the packet may still come by the longest
    /// margin; by a time-out, the latest.
    given_up: BTreeMap<u64, Sent>,
    reordering: Reordering,
    in_flight: u64,
    unsettled: usize,
    /// When the latest packet was sent that is known to have arrived.
    latest: Instant,
}

impl SentLog {
    /// The number that the next packet gets.
    pub(crate) fn next(&self) -> u64 {
        self.lower + self.entries.len() as u64
    }

    /// Every number below is settled, and nothing more is to be heard of it.
    pub(crate) fn lower(&self) -> u64 {
        self.watched().map_or(self.lower, |number| number.min(self.lower))
    }

    /// Whether a packet that was given up after a report may still come.
    pub(crate) fn is_watching(&self) -> bool {
        self.watched().is_some()
    }

    /// The first such packet. What a time-out gave up was lacked by no report.
    fn watched(&self) -> Option<u64> {
        self.given_up.first_key_value().filter(|(_, sent)| sent.lacked_at.is_some()).map(|it| *it.0)
    }

    /// How much later than a missing packet another must have been sent to prove it lost.
    pub(crate) fn margin(&self, rtt: Duration) -> Duration {
        self.reordering.margin(rtt)
    }

    /// Whether it has been seen how far packets overtake each other.
    pub(crate) fn knows_order(&self) -> bool {
        self.reordering.is_known()
    }

    /// What is sent from now on takes another path, of which nothing is known.
    pub(crate) fn forget_order(&mut self, now: Instant) {
        self.reordering = Reordering::new(now);
    }

    /// Bytes of packets sent and not settled.
    pub(crate) fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// Whether no more may be sent until something is settled.
    pub(crate) fn is_full(&self) -> bool {
        self.entries.len() >= MAX_ENTRIES
    }

    /// Whether a packet waits to be settled for so long that the other end must keep back what has become of it.
    pub(crate) fn is_kept_back(&self) -> bool {
        self.entries.len() > MAX_ENTRIES + MAX_BEYOND
    }

    /// Whether nothing waits to be settled.
    pub(crate) fn is_empty(&self) -> bool {
        self.unsettled == 0
    }

    /// When the oldest packet that is not settled was sent.
    pub(crate) fn oldest(&self) -> Option<Instant> {
        self.entries.front()?.as_ref().map(|sent| sent.at)
    }

    /// Takes the next number for a packet; `None` for one that need not arrive.
    pub(crate) fn push(&mut self, sent: Option<Sent>) -> u64 {
        let number = self.next();
        if let Some(sent) = &sent {
            self.in_flight += u64::from(sent.size);
            self.unsettled += 1;
            self.open.insert(number);
        }
        self.entries.push_back(sent);
        self.trim();
        number
    }

    fn trim(&mut self) {
        while let Some(None) = self.entries.front() {
            self.entries.pop_front();
            self.lower += 1;
        }
        self.open.forget_below(self.lower);
    }

    /// What the report lacks and was sent by `before` is lost.
    fn settle_lost(&mut self, report: &Report, before: Instant, settled: &mut Settled) {
        let mut at = report.from;
        for run in &report.runs {
            let missing = at + run.received..at + run.received + run.missing;
            at = missing.end;
            for sent in self.given_up.range_mut(missing.clone()).map(|it| it.1) {
                sent.lacked_at = sent.lacked_at.map(|_| self.latest);
            }
            let known = settled.lost.len();
            let mut next = missing.start.max(self.lower);
            while let Some(number) = self.open.next(next..missing.end.min(report.largest)) {
                next = number + 1;
                let entry = &mut self.entries[(number - self.lower) as usize];
                let Some(sent) = entry else { continue };
                sent.lacked_at = Some(self.latest);
                if sent.at <= before {
                    self.give_up(number, settled);
                }
            }
            settled.gaps += u32::from(settled.lost.len() > known);
        }
    }

    /// The packet is lost, unless it is heard of after all.
    fn give_up(&mut self, number: u64, settled: &mut Settled) {
        let Some(sent) = self.settle(number) else { return };
        if self.given_up.len() == MAX_GIVEN_UP {
            self.given_up.pop_first();
        }
        self.given_up.insert(number, sent.clone());
        settled.lost.push((number, sent));
    }

    fn settle(&mut self, number: u64) -> Option<Sent> {
        let sent = self.entries.get_mut((number - self.lower) as usize)?.take()?;
        self.in_flight -= u64::from(sent.size);
        self.unsettled -= 1;
        self.open.remove(number);
        Some(sent)
    }

    /// The packet has not left this host; gives it, if it was not settled before.
    pub(crate) fn take_back(&mut self, number: u64) -> Option<Sent> {
        let sent = if number < self.lower { None } else { self.settle(number) };
        self.trim();
        sent
    }

    /// The first of these numbers that was given up too soon.
    fn take_late(&mut self, numbers: Range<u64>) -> Option<(u64, Sent)> {
        let number = *self.given_up.range(numbers).next()?.0;
        self.given_up.remove(&number).map(|sent| (number, sent))
    }

    fn on_arrived(&mut self, is_largest: bool, sent: Sent, settled: &mut Settled) {
        if is_largest {
            settled.largest_sent_at = Some(sent.at);
        }
        self.reordering.on_arrived(sent.at, sent.lacked_at);
        settled.acked.push(sent);
    }

    /// What was given up after a report, and sent so long before the latest that arrived, will not come.
    fn stop_watching(&mut self, longest: Duration) {
        while let Some(first) = self.given_up.first_entry() {
            let sent = first.get();
            if sent.lacked_at.is_none() || sent.at + longest > self.latest {
                break;
            }
            first.remove();
        }
    }

    /// What was sent by `before` and is not settled yet is lost; it is put into `settled`, which is
    /// cleared first.
    pub(crate) fn expire(&mut self, before: Instant, settled: &mut Settled) {
        settled.clear();
        let mut in_gap = false;
        for number in self.lower..self.next() {
            match &self.entries[(number - self.lower) as usize] {
                Some(sent) if sent.at > before => break,
                Some(_) => {
                    self.give_up(number, settled);
                    settled.gaps += u32::from(!in_gap);
                    in_gap = true;
                }
                None => in_gap = false,
            }
        }
        self.trim();
    }

    /// Takes in a report; what it settles is put into `settled`, which is cleared first. Nothing is
    /// lost that was sent after `before`.
    ///
    /// # Errors
    /// [`Untrue`] when the other end claims to have received what was not sent, or keeps back what has
    /// become of a packet.
    pub(crate) fn on_report(
        &mut self,
        report: &Report,
        (rtt, before): (Duration, Instant),
        settled: &mut Settled,
    ) -> Result<(), Untrue> {
        settled.clear();
        let (lower, next) = (self.lower, self.next());
        if report.largest >= next {
            return Err(Untrue::NeverSent);
        }
        let mut at = report.from;
        for run in &report.runs {
            let received = at..at + run.received;
            at = received.end + run.missing;
            if received.end > next {
                return Err(Untrue::NeverSent);
            }
            let mut next = received.start.max(lower);
            while let Some(number) = self.open.next(next..received.end) {
                next = number + 1;
                let Some(sent) = self.settle(number) else { continue };
                self.latest = self.latest.max(sent.at);
                self.on_arrived(number == report.largest, sent, settled);
            }
            while let Some((number, sent)) = self.take_late(received.clone()) {
                self.on_arrived(number == report.largest, sent, settled);
            }
        }
        self.reordering.on_report(rtt, self.latest);
        self.settle_lost(report, before.min(self.latest - self.margin(rtt)), settled);
        self.stop_watching(longest_margin(rtt));
        self.trim();
        if self.is_kept_back() { Err(Untrue::KeptBack) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Run;

    fn sent(ms: u64) -> Option<Sent> {
        let at = Instant::ZERO + Duration::from_millis(ms);
        Some(Sent::new(at, 100, Content::Ping))
    }

    fn report(from: u64, largest: u64, runs: &[(u64, u64)]) -> Report {
        Report {
            lower: 0,
            largest,
            largest_arrival: 0,
            made_at: 0,
            bytes: 0,
            connection_credit: 0,
            streams: 0,
            capacity: 0,
            ecn_ce: 0,
            from,
            credits: Vec::new(),
            runs: runs.iter().map(|&(received, missing)| Run { received, missing }).collect(),
        }
    }

    /// A round trip of 80 ms; nothing is too young to be lost.
    const LATE: (Duration, Instant) = (Duration::from_millis(80), Instant::FAR_FUTURE);

    #[test]
    fn lost_is_what_a_report_lacks_though_later_packets_arrived() {
        let mut log = SentLog::default();
        for ms in [0, 1, 15, 16, 20] {
            log.push(sent(ms));
        }
        let mut settled = Settled::default();
        // 0 and 2 missing, 4 is the largest: 2 was sent less than the margin of 10 ms earlier.
        log.on_report(&report(0, 4, &[(0, 1), (1, 1), (2, 0)]), LATE, &mut settled).unwrap();
        assert_eq!((settled.acked.len(), settled.lost.len()), (3, 1));
        assert_eq!(settled.largest_sent_at, Some(Instant::ZERO + Duration::from_millis(20)));
        assert_eq!((log.lower(), log.in_flight()), (2, 100));
        log.push(sent(30));
        log.on_report(&report(0, 5, &[(0, 1), (1, 1), (3, 0)]), LATE, &mut settled).unwrap();
        assert_eq!((settled.acked.len(), settled.lost.len()), (1, 1));
        assert!(log.is_empty());
        // 2 may still come, until the longest margin of 20 ms is over.
        assert_eq!((log.lower(), log.next()), (2, 6));
        log.push(sent(35));
        log.on_report(&report(0, 6, &[(0, 1), (1, 1), (4, 0)]), LATE, &mut settled).unwrap();
        assert_eq!((log.lower(), log.next()), (7, 7));
    }

    #[test]
    fn what_comes_after_all_counts_and_makes_the_margin_longer() {
        let mut log = SentLog::default();
        for ms in [0, 12, 16, 20] {
            log.push(sent(ms));
        }
        let mut settled = Settled::default();
        log.on_report(&report(0, 2, &[(0, 1), (2, 0)]), LATE, &mut settled).unwrap();
        assert_eq!((settled.acked.len(), settled.lost.len()), (2, 1));
        assert_eq!((log.lower(), log.margin(LATE.0)), (0, Duration::from_millis(10)));
        log.on_report(&report(0, 2, &[(3, 0)]), LATE, &mut settled).unwrap();
        assert_eq!((settled.acked.len(), settled.lost.len(), log.in_flight()), (1, 0, 100));
        assert_eq!((log.lower(), log.margin(LATE.0)), (3, Duration::from_millis(18)));
        // Twice is not heard of.
        log.on_report(&report(0, 2, &[(3, 0)]), LATE, &mut settled).unwrap();
        assert!(settled.acked.is_empty());
    }

    #[test]
    fn a_report_or_state_as_the_largest_number_hides_no_loss() {
        let mut log = SentLog::default();
        for ms in [0, 1, 30] {
            log.push(sent(ms));
        }
        log.push(None);
        let mut settled = Settled::default();
        log.on_report(&report(0, 3, &[(1, 1), (2, 0)]), LATE, &mut settled).unwrap();
        assert_eq!((settled.acked.len(), settled.lost.len()), (2, 1));
        assert_eq!(settled.largest_sent_at, None);
    }

    #[test]
    fn reports_and_states_need_no_settling() {
        let mut log = SentLog::default();
        log.push(None);
        assert_eq!(log.lower(), 1);
        log.push(sent(0));
        log.push(None);
        assert_eq!((log.lower(), log.next()), (1, 3));
        log.on_report(&report(1, 1, &[(1, 0)]), LATE, &mut Settled::default()).unwrap();
        assert_eq!(log.lower(), 3);
    }

    #[test]
    fn what_is_too_young_is_not_given_up_and_what_is_too_old_is() {
        let mut log = SentLog::default();
        for ms in [0, 1, 2, 30, 31] {
            log.push(sent(ms));
        }
        let (mut settled, at) =
            (Settled::default(), |ms| Instant::ZERO + Duration::from_millis(ms));
        let early = (LATE.0, at(0));
        log.on_report(&report(0, 4, &[(0, 1), (1, 2), (1, 0)]), early, &mut settled).unwrap();
        assert_eq!((settled.acked.len(), settled.lost.len()), (2, 1));
        assert_eq!(log.oldest(), Some(at(2)));
        log.expire(at(29), &mut settled);
        assert_eq!((settled.acked.len(), settled.lost.len(), settled.gaps), (0, 1, 1));
        assert_eq!(log.oldest(), Some(at(30)));
        log.on_report(&report(2, 2, &[(1, 0)]), LATE, &mut settled).unwrap();
        assert_eq!((settled.acked.len(), settled.largest_sent_at), (1, Some(at(2))));
        assert_eq!((log.lower(), log.in_flight()), (3, 100));
    }

    /// Nothing that is sent waits for data to be settled but data itself: memory is bounded all the same.
    #[test]
    fn who_keeps_a_packet_back_for_ever_is_refused() {
        let mut log = SentLog::default();
        log.push(sent(0));
        let mut settled = Settled::default();
        let told = |log: &mut SentLog, settled: &mut Settled| {
            log.on_report(&report(1, 1, &[]), LATE, settled)
        };
        (0..MAX_ENTRIES + MAX_BEYOND - 1).for_each(|_| _ = log.push(None));
        assert_eq!(told(&mut log, &mut settled), Ok(()));
        assert!(!log.is_kept_back());
        log.push(None);
        assert!(log.is_kept_back());
        assert_eq!(told(&mut log, &mut settled), Err(Untrue::KeptBack));
    }

    #[test]
    fn a_report_of_what_was_never_sent_is_refused() {
        let mut log = SentLog::default();
        log.push(sent(0));
        let mut settled = Settled::default();
        assert_eq!(log.on_report(&report(0, 1, &[]), LATE, &mut settled), Err(Untrue::NeverSent));
        let never = log.on_report(&report(0, 0, &[(2, 0)]), LATE, &mut settled);
        assert_eq!(never, Err(Untrue::NeverSent));
        assert_eq!(log.on_report(&report(0, 0, &[(0, 9)]), LATE, &mut settled), Ok(()));
    }
}
