//! Both ends in rounds: what is sent in one is answered before the next.

use core::time::Duration;

use units::Instant;

use super::{Config, Flight, Kind, Receiver, Recovery, SackBlocks, Segment, Sender};

const MSS: u64 = 1000;
const ROUND: Duration = Duration::from_millis(100);

struct Rounds {
    sender: Sender,
    receiver: Receiver,
    now: Instant,
}

impl Rounds {
    fn new(recovery: Recovery) -> Self {
        Self::with(Config { initial_window: 20, ..Config::classic(recovery, MSS, 20 * MSS) })
    }

    fn with(config: Config) -> Self {
        let (mut sender, receiver) = (Sender::new(&config), Receiver::new(&config));
        sender.open();
        let mut rounds = Self { sender, receiver, now: Instant::from_nanos(1) };
        rounds.round(|_| false);
        rounds
    }

    /// Sends all that may be sent, loses some of it, and answers the rest a round-trip later. The
    /// first bytes of what was sent, in segments.
    fn round(&mut self, lost: impl Fn(u64) -> bool) -> Vec<u64> {
        let mut first = true;
        let poll = || {
            let was_full = self.sender.is_full();
            let segment = self.sender.poll(self.now);
            // Who goes on when it is full gets nothing, and changes nothing.
            assert!(!was_full || segment.is_none() && self.sender.is_full() || first);
            first = false;
            segment
        };
        let sent: Vec<Segment> = core::iter::from_fn(poll).collect();
        let place = |segment: &Segment| match segment.kind {
            Kind::Data { seq, .. } => Some(seq / MSS),
            _ => None,
        };
        let through = sent.iter().filter(|segment| !place(segment).is_some_and(&lost));
        let answers: Vec<_> =
            through.filter_map(|segment| self.receiver.handle(self.now, segment)).collect();
        self.now += ROUND;
        answers.iter().for_each(|answer| self.sender.handle(self.now, answer));
        sent.iter().filter_map(place).collect()
    }

    /// Loses four of a window's twenty segments; what is sent in the rounds that follow.
    fn after_loss(&mut self, rounds: usize) -> Vec<Vec<u64>> {
        self.sender.write(20 * MSS);
        let sent = self.round(|place| [3, 6, 9, 12].contains(&place));
        assert_eq!(sent, Vec::from_iter(0..20));
        self.sender.write(1000 * MSS);
        (0..rounds).map(|_| self.round(|_| false)).collect()
    }
}

/// Where another full segment would not fit, a smaller one may.
#[test]
fn a_window_is_full_when_nothing_more_fits() {
    for recovery in [Recovery::Reno, Recovery::Sack] {
        let mut rounds =
            Rounds::with(Config { initial_window: 2, ..Config::classic(recovery, MSS, 20 * MSS) });
        let Rounds { sender, now, .. } = &mut rounds;
        sender.write(MSS / 2);
        assert!(sender.poll(*now).is_some());
        sender.write(3 * MSS / 2);
        sender.close();
        let mut poll = || (sender.poll(*now).is_some(), sender.is_full());
        assert_eq!([(); 3].map(|()| poll()), [(true, false), (true, false), (false, false)]);
    }
}

#[test]
fn newreno_repairs_one_hole_a_round_trip() {
    let mut rounds = Rounds::new(Recovery::NewReno);
    let sent = rounds.after_loss(5);
    let again = |round: &Vec<u64>| Vec::from_iter(round.iter().copied().filter(|&at| at < 20));
    let again: Vec<_> = sent.iter().map(again).collect();
    assert_eq!(again, [vec![3], vec![6], vec![9], vec![12], vec![]]);
    assert_eq!((rounds.sender.stats().timeouts, rounds.sender.stats().recoveries), (0, 1));
}

#[test]
fn sack_repairs_all_holes_in_the_first() {
    let mut rounds = Rounds::new(Recovery::Sack);
    let sent = rounds.after_loss(2);
    assert!(sent[0].starts_with(&[3, 6, 9, 12]), "{sent:?}");
    assert!(sent[1].iter().all(|&at| at >= 20));
    // Half of the seventeen that were in flight when it was seen.
    assert_eq!(rounds.sender.threshold(), Some(17 * MSS / 2));
    // Three of which had arrived by then, and one was lost.
    let classic = Config::classic(Recovery::Sack, MSS, 20 * MSS);
    let mut rounds = Rounds::with(Config { initial_window: 20, flight: Flight::Pipe, ..classic });
    rounds.after_loss(1);
    assert_eq!(rounds.sender.threshold(), Some(13 * MSS / 2));
}

#[test]
fn reno_is_left_by_the_first_partial_acknowledgement() {
    let mut rounds = Rounds::new(Recovery::Reno);
    let sent = rounds.after_loss(2);
    assert_eq!(sent[0][0], 3);
    // Its window halved, and nothing is known of the second hole until duplicates come again.
    assert!(!sent[1].contains(&6) || rounds.sender.stats().recoveries == 2);
}

#[test]
fn old_tcp_waits_for_its_time_out_and_sends_all_again() {
    for (recovery, waits) in [(Recovery::GoBackN, true), (Recovery::Tahoe, false)] {
        let mut rounds = Rounds::new(recovery);
        let sent = rounds.after_loss(1);
        assert_eq!(sent[0].first() != Some(&3), waits, "{recovery:?}");
        if waits {
            // The window's place that the first three left.
            assert_eq!(sent[0], [20, 21, 22]);
            let timeout = rounds.sender.next_timeout();
            assert_eq!(timeout.since(rounds.now), Duration::from_millis(900));
            rounds.now = timeout;
            rounds.sender.handle_timeout(timeout);
            // One, two, four: slow start over what had arrived as well.
            assert_eq!(rounds.round(|_| false), [3]);
            assert_eq!(rounds.round(|_| false), [4, 5]);
            assert_eq!(rounds.round(|_| false), [6, 7, 8, 9]);
        }
    }
}

#[test]
fn what_is_lost_twice_needs_no_time_out_with_rack() {
    for (recovery, third) in [(Recovery::Sack, &[][..]), (Recovery::Rack, &[3])] {
        let mut rounds = Rounds::new(recovery);
        rounds.sender.write(1000 * MSS);
        rounds.round(|place| place == 3);
        assert_eq!(rounds.round(|place| place == 3), [3, 20, 21, 22]);
        assert_eq!(rounds.round(|_| false), third, "{recovery:?}");
        assert_eq!(rounds.sender.stats().recoveries, 1);
    }
}

#[test]
fn the_time_out_doubles_and_a_measurement_ends_that() {
    let mut rounds = Rounds::new(Recovery::Sack);
    rounds.sender.write(MSS);
    rounds.round(|_| true);
    let mut waits = Vec::new();
    for _ in 0..3 {
        let timeout = rounds.sender.next_timeout();
        waits.push(timeout.since(rounds.now).as_millis());
        rounds.now = timeout;
        rounds.sender.handle_timeout(timeout);
        assert!(rounds.sender.poll(rounds.now).is_some());
    }
    // The first round was over by then.
    assert_eq!(waits, [900, 2000, 4000]);
    assert_eq!(rounds.sender.stats().timeouts, 3);
}

#[test]
fn a_fast_retransmission_has_a_whole_time_out() {
    for recovery in
        [Recovery::Tahoe, Recovery::Reno, Recovery::NewReno, Recovery::Sack, Recovery::Rack]
    {
        let mut rounds = Rounds::new(recovery);
        rounds.sender.write(1000 * MSS);
        // The first, so that no acknowledgement has set the timer anew.
        rounds.round(|place| place == 0);
        assert!(rounds.sender.poll(rounds.now).is_some(), "{recovery:?} sends it again");
        let timeout = rounds.sender.next_timeout();
        assert_eq!(timeout.since(rounds.now), Duration::from_secs(1), "{recovery:?}");
    }
}

/// Three of the last acknowledgement again: what is sent again though it had arrived is answered so.
fn duplicates(rounds: &mut Rounds) {
    let Rounds { sender, now, .. } = rounds;
    let kind =
        Kind::Ack { ack: sender.acknowledged(), window: 20 * MSS, sack: SackBlocks::default() };
    let again = Segment { kind, stamp: *now, timestamps: false };
    for _ in 0..3 {
        sender.handle(*now, &again);
    }
}

#[test]
fn an_acknowledgement_that_is_late_opens_no_window() {
    for recovery in [Recovery::Reno, Recovery::NewReno] {
        let mut rounds = Rounds::new(recovery);
        rounds.sender.write(1000 * MSS);
        rounds.round(|place| place == 3);
        while rounds.sender.poll(rounds.now).is_some() {}
        assert_eq!(rounds.sender.stats().recoveries, 1, "{recovery:?}");
        let kind = Kind::Ack { ack: 2 * MSS, window: 20 * MSS, sack: SackBlocks::default() };
        let late = Segment { kind, stamp: rounds.now, timestamps: false };
        for _ in 0..20 {
            rounds.sender.handle(rounds.now, &late);
        }
        assert_eq!(rounds.sender.poll(rounds.now), None, "{recovery:?}");
    }
}

#[test]
fn newreno_does_not_take_answers_to_its_own_repairs_for_losses() {
    let mut rounds = Rounds::new(Recovery::NewReno);
    rounds.sender.write(20 * MSS);
    rounds.round(|place| place == 3);
    rounds.round(|_| false);
    assert_eq!(rounds.sender.acknowledged(), 20 * MSS);
    assert_eq!(rounds.sender.stats().recoveries, 1);
    // Just all that had been sent when the loss was seen has arrived; more is under way.
    rounds.sender.write(1000 * MSS);
    assert!(rounds.sender.poll(rounds.now).is_some());
    duplicates(&mut rounds);
    assert_eq!(rounds.sender.stats().recoveries, 1);
    // Beyond it they do tell of a loss.
    rounds.round(|_| false);
    let acked = Kind::Ack { ack: 21 * MSS, window: 20 * MSS, sack: SackBlocks::default() };
    let acked = Segment { kind: acked, stamp: rounds.now, timestamps: false };
    rounds.sender.handle(rounds.now, &acked);
    while rounds.sender.poll(rounds.now).is_some() {}
    duplicates(&mut rounds);
    assert_eq!(rounds.sender.stats().recoveries, 2);
}

#[test]
fn behind_a_time_out_slow_start_goes_by_segments() {
    let newreno = Recovery::NewReno;
    let config = Config { timestamps: false, recovery: newreno, ..Config::default() };
    let mut rounds = Rounds {
        sender: Sender::new(&config),
        receiver: Receiver::new(&Config { delayed_ack: None, ..config }),
        now: Instant::from_nanos(1),
    };
    rounds.sender.open();
    rounds.round(|_| false);
    rounds.sender.write(u64::MAX);
    for _ in 0..4 {
        rounds.round(|_| false);
    }
    // A whole window is lost but for its end, of which nothing is heard before the time-out.
    let sent: Vec<Segment> = core::iter::from_fn(|| rounds.sender.poll(rounds.now)).collect();
    let late: Vec<_> = sent[1..]
        .iter()
        .filter_map(|segment| rounds.receiver.handle(rounds.now, segment))
        .collect();
    rounds.now = rounds.sender.next_timeout();
    rounds.sender.handle_timeout(rounds.now);
    assert_eq!(late.len(), sent.len() - 1);
    assert_eq!(rounds.round(|_| false).len(), 1);
    let mss = config.mss.0;
    assert_eq!(rounds.sender.acknowledged() % mss, 0);
    assert_eq!(rounds.sender.stats().window.0, 2 * mss, "not by all that had arrived before");
}

/// Loses what is under way, and lets the time-out strike; what was waited for.
fn time_out(rounds: &mut Rounds) -> Duration {
    rounds.round(|_| true);
    let timeout = rounds.sender.next_timeout();
    let waited = timeout.since(rounds.now);
    rounds.now = timeout;
    rounds.sender.handle_timeout(timeout);
    waited
}

#[test]
fn a_time_out_for_other_data_lowers_the_threshold_once_more() {
    for recovery in [Recovery::NewReno, Recovery::Sack, Recovery::Rack] {
        let mut rounds = Rounds::new(recovery);
        rounds.sender.write(1000 * MSS);
        time_out(&mut rounds);
        assert_eq!(rounds.sender.threshold(), Some(10 * MSS));
        // The same is lost again.
        time_out(&mut rounds);
        assert_eq!(rounds.sender.threshold(), Some(10 * MSS));
        // Three rounds bring seven segments, and of the next eight none arrives.
        for _ in 0..3 {
            rounds.round(|_| false);
        }
        assert_eq!(rounds.sender.acknowledged(), 7 * MSS);
        time_out(&mut rounds);
        assert_eq!(rounds.sender.threshold(), Some(4 * MSS), "{recovery:?}");
    }
}

#[test]
fn a_syn_that_was_sent_again_says_nothing_of_the_path() {
    let config = Config::classic(Recovery::NewReno, MSS, 20 * MSS);
    for (timestamps, wait) in [(false, 3000), (true, 1000)] {
        let mut sender = Sender::new(&Config { timestamps, initial_window: 20, ..config });
        let mut receiver = Receiver::new(&config);
        let mut now = Instant::from_nanos(1);
        sender.open();
        sender.write(20 * MSS);
        assert!(sender.poll(now).is_some());
        now = sender.next_timeout();
        sender.handle_timeout(now);
        let again = sender.poll(now).expect("once more");
        let answer = receiver.handle(now, &again).expect("an answer");
        now += ROUND;
        sender.handle(now, &answer);
        assert_eq!(core::iter::from_fn(|| sender.poll(now)).count(), 1);
        let timeout = sender.next_timeout();
        assert_eq!(timeout.since(now).as_millis(), wait);
    }
}
