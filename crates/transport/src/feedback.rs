//! What arrived, and when the other end is told: the periodic exchange of the whole state
//! (paper 5), or the acknowledgement of each packet that it is compared with.

use core::time::Duration;
use std::collections::VecDeque;

use rangemap::RangeSet;
use units::{Instant, Rate};

use crate::config::FeedbackKind;
use crate::crypto::TAG_LEN;
use crate::mtu::BASE_SIZE;
use crate::pairs::Pairs;
use crate::streams::Grant;
use crate::trains::Trains;
use crate::wire::{HEADER_LEN, Header, MAX_CREDITS, Report, Run, State};

/// Bounds of the time between two reports; inside them it is 1/32 of the round-trip time.
const MIN_INTERVAL: Duration = Duration::from_millis(1);
const MAX_INTERVAL: Duration = Duration::from_millis(10);
/// The longest time a report is put off to keep reports below 1% of the bytes received: this share
/// of a round trip, within bounds.
const STRETCH_SHARE: u32 = 2;
const MAX_STRETCH: (Duration, Duration) = (Duration::from_millis(100), Duration::from_millis(500));
/// While somebody waits for the report it is put off by this share of a round trip at most, within
/// bounds: where little memory is left, a short path would otherwise carry a report for each few bytes.
const PROMPT_SHARE: u32 = 3;
const MAX_PROMPT: (Duration, Duration) = (Duration::from_micros(1500), Duration::from_millis(250));
/// A byte of report is paid for by so many bytes received.
const COST: i64 = 100;
/// Bytes of reports that may run ahead of the 1%.
const MAX_ALLOWANCE: i64 = (16 << 10) * COST;
/// Gaps in the numbers received that are remembered; packets that would make more are dropped.
const MAX_RANGES: usize = 1 << 16;
/// While the map does not fit in one report, so many tell of the newest numbers, which the sender knows least
/// of, before one goes on with the others, in their order.
const NEWEST_FIRST: u32 = 3;
/// They must cover this share of the numbers of the map at least, or what may be given up is too old for them.
const NEWEST_SHARE: u64 = 8;
/// Packets that wait to be acknowledged one by one. The oldest of more is not, as if its
/// acknowledgement were lost.
const MAX_UNACKNOWLEDGED: usize = 1 << 12;
/// For so many round trips after a move packets may come by the old path, and for so long at most: a mistaken
/// end, or a clock that jumped, tells of endless ones.
const OTHER_PATH: (u32, Duration) = (2, Duration::from_secs(4));
/// The longest body of a report: nobody would notice if the path no longer let longer ones through.
pub(crate) const MAX_REPORT: usize = BASE_SIZE as usize - HEADER_LEN - TAG_LEN;
/// UDP and IPv4 headers, which count as bytes on the wire.
const WIRE_OVERHEAD: i64 = 28;

/// The receiver's state.
#[derive(Debug)]
pub(crate) struct Feedback {
    /// Numbers received, at or above `floor`.
    received: RangeSet<u64>,
    /// Below it everything is settled at the sender.
    floor: u64,
    largest: u64,
    largest_arrival: Instant,
    packets: u64,
    bytes: u64,
    ecn_ce: u64,
    trains: Trains,
    pairs: Pairs,
    /// The sender wants the capacity that pairs tell, not trains.
    wants_pairs: bool,
    /// What arrives before that may come by another path, and says nothing of the capacity.
    capacity_since: Instant,
    /// What they told by the last report.
    capacity: Option<Rate>,
    /// Where the map goes on that did not fit in one report.
    resume: Option<u64>,
    /// Reports since, that told of the newest numbers instead. `None` while all parts go in their order.
    newest_told: Option<u32>,
    /// With positive acknowledgements: what waits for one.
    unacknowledged: Option<VecDeque<Arrival>>,
    /// Something that asks for a report arrived since the last one.
    pending: bool,
    /// Somebody waits for it.
    prompt: bool,
    interval: Duration,
    /// The interval was given, and is kept whatever it costs.
    is_fixed: bool,
    /// The round-trip time that either end told last.
    rtt: Duration,
    /// The time between two reports while somebody waits and bytes received do not pay for them.
    prompt_interval: Duration,
    /// The same while nobody waits.
    thrifty_interval: Duration,
    last_report: Instant,
    /// Bytes received that reports have not used up; negative while they are ahead.
    allowance: i64,
}

/// A packet to be acknowledged, and how much had arrived with it.
#[derive(Clone, Copy, Debug)]
struct Arrival {
    number: u64,
    at: Instant,
    bytes: u64,
}

/// What matters of a packet that arrived.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packet {
    /// When it arrived.
    pub(crate) at: Instant,
    /// Bytes of the datagram.
    pub(crate) size: usize,
    pub(crate) wants_report: bool,
    /// The sender waits for the report.
    pub(crate) prompt: bool,
    /// Sent in one go with the number before.
    pub(crate) follows: bool,
    /// Marked "congestion experienced".
    pub(crate) ce: bool,
}

impl Feedback {
    pub(crate) fn new(kind: FeedbackKind, interval: Option<Duration>) -> Self {
        let acknowledges = kind == FeedbackKind::PositiveAck;
        Self {
            received: RangeSet::new(),
            floor: 0,
            largest: 0,
            largest_arrival: Instant::ZERO,
            packets: 0,
            bytes: 0,
            ecn_ce: 0,
            trains: Trains::default(),
            pairs: Pairs::default(),
            wants_pairs: false,
            capacity_since: Instant::ZERO,
            capacity: None,
            resume: None,
            newest_told: Some(0),
            unacknowledged: acknowledges.then(VecDeque::new),
            pending: false,
            prompt: false,
            interval: interval.unwrap_or(MIN_INTERVAL),
            is_fixed: interval.is_some(),
            rtt: Duration::ZERO,
            prompt_interval: MAX_PROMPT.0,
            thrifty_interval: MAX_STRETCH.0,
            last_report: Instant::ZERO,
            allowance: MAX_ALLOWANCE / 16,
        }
    }

    /// The number that a packet's header means.
    pub(crate) fn number(&self, header: &Header) -> u64 {
        header.number_near(self.largest)
    }

    /// Whether a packet with this number is new. A number below the floor is a replay or came too
    /// late to matter.
    pub(crate) fn is_fresh(&self, number: u64) -> bool {
        number >= self.floor && !self.received.contains(&number)
    }

    /// Whether there is room to remember the number.
    pub(crate) fn has_room_for(&self, number: u64) -> bool {
        let behind = number.checked_sub(1).is_some_and(|one| self.received.contains(&one));
        let continues = behind || self.received.contains(&number.saturating_add(1));
        continues || self.received.len() < MAX_RANGES
    }

    /// Whether the number is above all received so far.
    pub(crate) fn is_newest(&self, number: u64) -> bool {
        self.bytes == 0 || number > self.largest
    }

    /// A new authentic packet arrived.
    pub(crate) fn on_packet(&mut self, number: u64, packet: &Packet) {
        if self.is_newest(number) {
            self.largest = number;
            self.largest_arrival = packet.at;
        }
        self.received.insert(number..number + 1);
        self.packets += 1;
        self.bytes += packet.size as u64;
        self.ecn_ce += u64::from(packet.ce);
        if packet.wants_report {
            self.on_wanted(Arrival { number, at: packet.at, bytes: self.bytes });
        }
        self.prompt |= packet.prompt;
        if self.knows_path(packet.at) {
            self.trains.on_packet(packet.at, number, packet.follows, packet.size as u64);
            self.pairs.on_packet(packet.at, number, packet.follows, packet.size as u64);
        }
        self.allowance = (self.allowance + packet.size as i64 + WIRE_OVERHEAD).min(MAX_ALLOWANCE);
    }

    fn on_wanted(&mut self, arrival: Arrival) {
        let Some(waiting) = &mut self.unacknowledged else {
            self.pending = true;
            return;
        };
        if waiting.len() == MAX_UNACKNOWLEDGED {
            waiting.pop_front();
        }
        waiting.push_back(arrival);
    }

    /// Numbers below the largest that have not arrived.
    pub(crate) fn missing(&self) -> u64 {
        (self.largest + u64::from(self.packets > 0)).saturating_sub(self.packets)
    }

    /// The capacity that the last report told of.
    pub(crate) fn capacity(&self) -> Option<Rate> {
        self.capacity
    }

    /// What is settled at the sender needs no memory.
    pub(crate) fn on_lower(&mut self, lower: u64) {
        // A number that was never received cannot be settled by a mistaken sender for ever.
        let lower = lower.min(self.largest + 1);
        if lower > self.floor {
            self.received.remove(self.floor..lower);
            self.floor = lower;
        }
    }

    /// The sender's state; its round-trip time sets the pace.
    pub(crate) fn on_state(&mut self, state: &State) {
        self.on_lower(state.lower);
        self.wants_pairs = state.pairs;
        if state.rtt > 0 {
            self.on_rtt(Duration::from_nanos(state.rtt));
        }
    }

    pub(crate) fn on_rtt(&mut self, rtt: Duration) {
        if !self.is_fixed {
            self.interval = (rtt / 32).clamp(MIN_INTERVAL, MAX_INTERVAL);
        }
        self.rtt = rtt;
        self.prompt_interval = (rtt / PROMPT_SHARE).clamp(MAX_PROMPT.0, MAX_PROMPT.1);
        self.thrifty_interval = (rtt / STRETCH_SHARE).clamp(MAX_STRETCH.0, MAX_STRETCH.1);
    }

    /// The other end needs to hear of new credit, and may be waiting for it.
    pub(crate) fn ask(&mut self) {
        self.pending = true;
        self.prompt = true;
    }

    /// When the next report is due. An idle connection skips reports.
    pub(crate) fn due(&self) -> Option<Instant> {
        if self.unacknowledged.as_ref().is_some_and(|waiting| !waiting.is_empty()) {
            return Some(self.last_report);
        }
        let wait = match (self.allowance, self.prompt) {
            _ if self.is_fixed => self.interval,
            (0.., _) => self.interval,
            (_, true) => self.prompt_interval,
            (_, false) => self.thrifty_interval,
        };
        (self.pending && self.bytes > 0).then(|| self.last_report + wait)
    }

    /// What the next report says of numbers: the latest arrival that it tells of, where its map
    /// begins, and the map.
    fn told(&mut self, room: usize) -> (Arrival, u64, Vec<Run>) {
        let latest = Arrival { number: self.largest, at: self.largest_arrival, bytes: self.bytes };
        if let Some(waiting) = &mut self.unacknowledged {
            // Without one to acknowledge it only tells of credit.
            let Some(one) = waiting.pop_front() else {
                self.pending = false;
                return (latest, self.floor, Vec::new());
            };
            return (one, one.number, vec![Run { received: 1, missing: 0 }]);
        }
        let from = self.resume.unwrap_or(self.floor).max(self.floor);
        let (runs, end) = self.map(from, room);
        let is_whole = end > self.largest;
        self.pending = !is_whole;
        if let Some(times) = self.newest_told.filter(|&times| !is_whole && times < NEWEST_FIRST) {
            let newest = self.newest(room);
            if (self.largest - newest) >= (self.largest - self.floor) / NEWEST_SHARE {
                self.newest_told = Some(times + 1);
                self.resume = Some(from);
                return (latest, newest, self.map(newest, room).0);
            }
        }
        self.newest_told = self.newest_told.map(|_| 0);
        self.resume = (!is_whole).then_some(end);
        (latest, from, runs)
    }

    /// Where the longest map begins that fits in `room` bytes and reaches the largest number.
    fn newest(&self, room: usize) -> u64 {
        let (mut left, mut at) = (room, self.largest + 1);
        for range in self.received.iter().rev() {
            let run = Run { received: range.end - range.start, missing: at - range.end };
            if run.len() > left {
                break;
            }
            left -= run.len();
            at = range.start;
        }
        at
    }

    /// The whole state, in at most `room` bytes of body; or the acknowledgement of one packet.
    pub(crate) fn report(&mut self, now: Instant, lower: u64, grant: Grant, room: usize) -> Report {
        debug_assert!(grant.credits.len() <= MAX_CREDITS);
        let fixed = Report::FIXED_LEN + 16 * grant.credits.len();
        let (latest, from, runs) = self.told(room.saturating_sub(fixed));
        self.prompt = false;
        self.last_report = now;
        let map_len: usize = runs.iter().map(Run::len).sum();
        let size = (HEADER_LEN + fixed + map_len + TAG_LEN) as i64;
        // A debt stays small, so that a quiet time does not starve a busy one after it.
        let debt = COST * (size + WIRE_OVERHEAD);
        self.allowance = (self.allowance - debt).max(-MAX_ALLOWANCE / 16);
        Report {
            lower,
            largest: latest.number,
            largest_arrival: latest.at.as_nanos(),
            made_at: now.as_nanos(),
            bytes: latest.bytes,
            connection_credit: grant.connection,
            streams: grant.streams,
            capacity: self.capacity.map_or(0, Rate::as_bits_per_sec),
            ecn_ce: self.ecn_ce,
            from,
            credits: grant.credits,
            runs,
        }
    }

    /// The connection ends: what follows is the last word.
    pub(crate) fn end(&mut self) {
        self.unacknowledged = None;
        (self.resume, self.newest_told) = (None, None);
    }

    /// The report that goes with the end, if anything has arrived: the whole state once more, and
    /// no credit. While there [is more](Self::has_more) than it has room for, it is a part of that.
    pub(crate) fn last(&mut self, now: Instant, lower: u64, room: usize) -> Option<Report> {
        (self.bytes > 0).then(|| self.report(now, lower, Grant::default(), room))
    }

    /// Whether the map of the last report did not fit.
    pub(crate) fn has_more(&self) -> bool {
        self.resume.is_some()
    }

    /// The path is another one: what has arrived says nothing of its capacity, nor does what will until the
    /// sender knows, and what it sent before has come.
    pub(crate) fn forget_capacity(&mut self, now: Instant) {
        (self.trains, self.pairs, self.capacity) = (Trains::default(), Pairs::default(), None);
        let (round_trips, most) = OTHER_PATH;
        self.capacity_since = now + (self.rtt * round_trips).min(most);
    }

    /// Whether what is told now of the path's capacity is told of the path in use.
    pub(crate) fn knows_path(&self, now: Instant) -> bool {
        now >= self.capacity_since
    }

    /// The path's capacity by now: what the next report tells of it.
    pub(crate) fn measure_capacity(&mut self) -> Option<Rate> {
        self.capacity =
            if self.wants_pairs { self.pairs.capacity() } else { self.trains.capacity() };
        self.capacity
    }

    /// The map from `from` on, as much as `room` bytes hold, and where it ends.
    fn map(&self, from: u64, room: usize) -> (Vec<Run>, u64) {
        let mut runs = Vec::new();
        let (mut at, mut left) = (from, room);
        let all = from..u64::MAX;
        let mut ranges = self.received.overlapping(&all).peekable();
        // Numbers missing at the very beginning are a run of nothing received.
        while let Some(range) = ranges.peek() {
            let run = if range.start > at {
                Run { received: 0, missing: range.start - at }
            } else {
                let end = range.end;
                ranges.next();
                let missing = ranges.peek().map_or(0, |next| next.start - end);
                Run { received: end - at, missing }
            };
            let len = run.len();
            if len > left {
                break;
            }
            left -= len;
            at += run.received + run.missing;
            runs.push(run);
        }
        (runs, at)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::wire::StreamCredit;

    const ROOM: usize = 1400;

    fn packet(at: Instant, size: usize) -> Packet {
        Packet { at, size, wants_report: true, prompt: false, follows: false, ce: false }
    }

    fn receive(feedback: &mut Feedback, numbers: impl IntoIterator<Item = u64>) {
        for number in numbers {
            if feedback.is_fresh(number) {
                feedback.on_packet(number, &packet(Instant::from_nanos(1), 1000));
            }
        }
    }

    /// Which numbers a report says have arrived, and up to where it speaks.
    fn said(report: &Report) -> (Vec<u64>, u64) {
        let (mut numbers, mut at) = (Vec::new(), report.from);
        for run in &report.runs {
            numbers.extend(at..at + run.received);
            at += run.received + run.missing;
        }
        (numbers, at)
    }

    proptest! {
        #[test]
        fn reports_together_say_exactly_what_arrived(
            arrived in prop::collection::btree_set(0u64..3000, 1..800),
            lower in 0u64..500,
            room in 200usize..800,
        ) {
            let mut feedback = Feedback::new(FeedbackKind::Periodic, None);
            receive(&mut feedback, arrived.iter().copied());
            feedback.on_lower(lower);
            let largest = *arrived.iter().max().unwrap();
            let floor = lower.min(largest + 1);
            let expected: BTreeSet<u64> = arrived.into_iter().filter(|&n| n >= floor).collect();
            let all = floor..(largest + 1).max(floor);
            let (mut covered, mut told) = (RangeSet::new(), BTreeSet::new());
            let (mut reports, mut newest) = (0, 0);
            // Too little of a long map is not told first.
            let first = feedback.newest(room - Report::FIXED_LEN);
            let is_little = largest.saturating_sub(first) < largest.saturating_sub(floor) / NEWEST_SHARE;
            while reports == 0 || feedback.has_more() {
                let report = feedback.report(Instant::ZERO, 0, Grant::default(), room);
                let mut body = Vec::new();
                report.encode(&mut body);
                prop_assert!(body.len() <= room);
                let (numbers, end) = said(&report);
                prop_assert!(end <= all.end);
                prop_assert!(numbers.iter().copied().eq(expected.range(report.from..end).copied()));
                told.extend(numbers);
                if report.from < end {
                    covered.insert(report.from..end);
                }
                reports += 1;
                if end < all.end {
                    prop_assert!(is_little || newest == NEWEST_FIRST);
                    newest = 0;
                } else {
                    newest += 1;
                }
            }
            prop_assert!(covered.gaps(&all).next().is_none());
            prop_assert_eq!(told, expected);
        }

        #[test]
        fn the_last_word_is_told_from_the_beginning(
            arrived in prop::collection::btree_set(0u64..3000, 1..800),
            room in 200usize..800,
        ) {
            let mut feedback = Feedback::new(FeedbackKind::Periodic, None);
            receive(&mut feedback, arrived.iter().copied());
            feedback.report(Instant::ZERO, 0, Grant::default(), room);
            feedback.end();
            let (mut all, mut at) = (BTreeSet::new(), 0);
            while at == 0 || feedback.has_more() {
                let report = feedback.last(Instant::ZERO, 0, room).unwrap();
                prop_assert_eq!(report.from, at);
                let (numbers, end) = said(&report);
                prop_assert!(end > at);
                all.extend(numbers);
                at = end;
            }
            prop_assert_eq!(all, arrived);
        }
    }

    /// With as many stretches as there may be, a number has room that makes none.
    #[test]
    fn numbers_that_continue_a_stretch_always_have_room() {
        let mut feedback = Feedback::new(FeedbackKind::Periodic, None);
        receive(&mut feedback, (0..MAX_RANGES as u64).map(|stretch| 10 + stretch * 4));
        for (number, has_room) in [(9, true), (11, true), (12, false), (13, true), (8, false)] {
            assert_eq!(feedback.has_room_for(number), has_room, "{number}");
        }
    }

    #[test]
    fn repeats_and_settled_numbers_are_not_fresh() {
        let mut feedback = Feedback::new(FeedbackKind::Periodic, None);
        receive(&mut feedback, [0, 1, 5]);
        assert!(!feedback.is_fresh(1) && feedback.is_fresh(3));
        feedback.on_lower(4);
        assert!(!feedback.is_fresh(3));
        feedback.on_lower(1000);
        assert!(feedback.is_fresh(6), "a floor above what was seen is not believed");
    }

    #[test]
    fn no_round_trip_that_is_told_keeps_the_capacity_unknown_for_long() {
        let mut feedback = Feedback::new(FeedbackKind::Periodic, None);
        feedback.on_rtt(Duration::from_nanos(u64::MAX));
        let moved = Instant::from_nanos(1_000_000_000);
        feedback.forget_capacity(moved);
        let mut number = 0;
        let mut capacity_after = |wait| {
            for train in 0..4 {
                for place in 0..16 {
                    let at = moved + wait + Duration::from_micros(train * 10_000 + place * 120);
                    let follows = place > 0;
                    feedback.on_packet(number, &Packet { follows, ..packet(at, 1500) });
                    number += 1;
                }
            }
            feedback.measure_capacity()
        };
        assert_eq!(capacity_after(Duration::from_secs(1)), None);
        assert_eq!(
            capacity_after(Duration::from_secs(5)),
            Some(Rate::from_bits_per_sec(100_000_000))
        );
    }

    #[test]
    fn reports_stay_below_one_percent_of_what_arrives() {
        let mut feedback = Feedback::new(FeedbackKind::Periodic, None);
        feedback.on_rtt(Duration::from_millis(10));
        let (mut now, mut sent) = (Instant::from_nanos(1_000_000_000), 0);
        // A T1: 512 bytes every 2.7 ms for five minutes, so that the first allowance is small.
        let packets = 110_000;
        for number in 0..packets {
            now += Duration::from_micros(2_700);
            feedback.on_packet(number, &packet(now, 512));
            if feedback.due().is_some_and(|due| due <= now) {
                let credits = vec![StreamCredit { stream: 0, credit: 1 }];
                let grant = Grant { credits, ..Grant::default() };
                let report = feedback.report(now, 0, grant, ROOM);
                let mut body = Vec::new();
                report.encode(&mut body);
                sent += body.len() + HEADER_LEN + crate::crypto::TAG_LEN + WIRE_OVERHEAD as usize;
            }
        }
        let share = sent as f64 / (packets * (512 + 28)) as f64;
        assert!(share < 0.0101, "{share}");
    }
}
