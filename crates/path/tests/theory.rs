//! Whole links against what theory says of them. Seeds are fixed; intervals are of 99.9%.

use std::time::Duration;

use path::{
    Change, DropCause, Exit, Fate, Impairments, Jitter, Limit, Link, LinkConfig, LossConfig,
    Packet, QueueConfig, RedConfig, Schedule,
};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use units::{Bytes, Instant, Rate};

const MS: Duration = Duration::from_millis(1);
const GBIT: Rate = Rate::from_bits_per_sec(1_000_000_000);

/// The 99.9% point of the normal distribution, two-sided.
const Z: f64 = 3.2905;

fn assert_binomial(count: u64, n: u64, p: f64) {
    let (count, n) = (count as f64, n as f64);
    let half = Z * (n * p * (1.0 - p)).sqrt();
    assert!((count - n * p).abs() <= half, "{count} of {n}, expected {} +- {half}", n * p);
}

fn link(config: &LinkConfig) -> Link<u64> {
    config.link(100 * MS, 7).expect("a valid link")
}

fn nanos(n: u64) -> Instant {
    Instant::from_nanos(n)
}

/// Sends `n` packets of `size`, one every `gap` nanoseconds, and returns what left.
fn drive(config: &LinkConfig, n: u64, gap: u64, size: u64) -> Vec<Exit<u64>> {
    let mut link = link(config);
    let mut exits = Vec::new();
    for i in 0..n {
        let now = nanos(i * gap);
        let _ = link.send(now, Bytes(size), i);
        exits.extend(core::iter::from_fn(|| link.poll(now)));
    }
    exits.extend(core::iter::from_fn(|| link.poll(Instant::FAR_FUTURE)));
    exits
}

fn fates(exits: &[Exit<u64>], fate: Fate) -> u64 {
    exits.iter().filter(|exit| exit.fate == fate).count() as u64
}

const LOST: Fate = Fate::Dropped(DropCause::Loss);
const DAMAGED: Fate = Fate::Dropped(DropCause::Damage);

/// 10^6 packets each: 1 - (1 - clr)^cells and 1 - (1 - ber)^bits, cells and bits counted by hand.
#[test]
fn cell_loss_and_bit_errors_follow_the_closed_form() {
    // A packet of 40 bytes and AAL5's 8 is one cell; of 41, two; paper 1's 9188 are 192.
    for (size, cells) in [(40, 1), (41, 2), (1500, 32), (9188, 192)] {
        let mut config = LinkConfig::new(GBIT, MS);
        config.atm = true;
        assert_eq!(config.line_size(Bytes(size)), Bytes(cells * 53));
        let n = 1_000_000;
        for clr in [2.4e-4, 3.8e-6] {
            config.impairments = Impairments { cell_loss: clr, ..Impairments::default() };
            let p = 1.0 - (1.0_f64 - clr).powf(cells as f64);
            assert!((config.packet_error_rate(Bytes(size)) / p - 1.0).abs() < 1e-6);
            assert_binomial(fates(&drive(&config, n, 90_000, size), LOST), n, p);
        }
        for ber in [4.8e-7, 1e-5] {
            config.impairments = Impairments { bit_error: ber, ..Impairments::default() };
            let p = 1.0 - (1.0_f64 - ber).powf(cells as f64 * 384.0);
            assert!((config.packet_error_rate(Bytes(size)) / p - 1.0).abs() < 1e-6);
            assert_binomial(fates(&drive(&config, n, 90_000, size), DAMAGED), n, p);
        }
    }
}

/// Without cells a bit error can hit the packet and its framing.
#[test]
fn bit_errors_hit_plain_packets_by_their_bits() {
    let mut config = LinkConfig::new(GBIT, MS);
    config.framing = Bytes(38);
    config.impairments.bit_error = 3e-7;
    let (n, p) = (1_000_000, 1.0 - (1.0_f64 - 3e-7).powi(8 * 1538));
    assert_binomial(fates(&drive(&config, n, 13_000, 1500), DAMAGED), n, p);
    // Silent ones arrive, and those in the framing harm nobody.
    config.impairments.silent = true;
    let exits = drive(&config, n, 13_000, 1500);
    assert_eq!(fates(&exits, Fate::Delivered), n);
    let bits: Vec<_> = exits.iter().filter_map(|exit| exit.damage).map(|hit| hit.bit).collect();
    assert_binomial(bits.len() as u64, n, 1.0 - (1.0_f64 - 3e-7).powi(8 * 1500));
    assert!(bits.iter().all(|&bit| bit < 12_000));
    let early = bits.iter().filter(|&&bit| bit < 6000).count() as u64;
    assert_binomial(early, bits.len() as u64, 0.5);
}

#[test]
fn corruption_duplication_and_reordering_have_their_probability() {
    let mut config = LinkConfig::new(GBIT, MS);
    config.impairments.corrupt = 0.01;
    config.impairments.silent = true;
    config.impairments.duplicate = 0.02;
    config.impairments.reorder = 0.03;
    config.impairments.reorder_by = 2 * MS;
    let n = 1_000_000;
    let exits = drive(&config, n, 12_000, 1500);
    assert_eq!(exits.len() as u64, n);
    assert_binomial(exits.iter().filter(|exit| exit.damage.is_some()).count() as u64, n, 0.01);
    assert_binomial(exits.iter().filter(|exit| exit.duplicated).count() as u64, n, 0.02);
    let prompt = |exit: &&Exit<u64>| exit.due == nanos(exit.item * 12_000 + 12_000) + MS;
    let held = |exit: &&Exit<u64>| exit.due == nanos(exit.item * 12_000 + 12_000) + 3 * MS;
    let late = exits.iter().filter(held).count() as u64;
    assert_binomial(late, n, 0.03);
    assert_eq!(late + exits.iter().filter(prompt).count() as u64, n);
    assert!(exits.is_sorted_by_key(|exit| exit.due));
}

/// Two packets with uniform jitter in [0, J] that follow each other in time d swap places with
/// probability (1 - d/J)^2 / 2.
#[test]
fn jitter_swaps_as_often_as_it_should() {
    let mut config = LinkConfig::new(GBIT, 10 * MS);
    config.impairments.jitter = Jitter::Uniform(MS);
    config.impairments.keep_order = false;
    let n = 400_000;
    let exits = drive(&config, n, 400_000, 1500);
    let mut due = vec![Instant::ZERO; n as usize];
    exits.iter().for_each(|exit| due[exit.item as usize] = exit.due);
    // Disjoint pairs are independent of each other.
    let swapped = due.chunks_exact(2).filter(|pair| pair[0] > pair[1]).count() as u64;
    assert_binomial(swapped, n / 2, 0.5 * 0.6 * 0.6);
    assert!(exits.is_sorted_by_key(|exit| exit.due));

    config.impairments.keep_order = true;
    let exits = drive(&config, n, 400_000, 1500);
    assert!(exits.is_sorted_by_key(|exit| (exit.due, exit.item)));
    assert!(exits.is_sorted_by_key(|exit| exit.item));
}

/// On a busy link that keeps the order a packet leaves at the latest time that it or one before it drew. With a time
/// d from packet to packet that is m (ln(m/d) + 0.5772) later in the mean under exponential jitter (the largest of
/// many is Gumbel's), and J - sqrt(pi J d / 2) under uniform; both where d is small beside the jitter.
#[test]
fn jitter_in_order_is_later_than_what_is_drawn() {
    let d = 0.012_f64;
    for (jitter, expected) in [
        (Jitter::Exponential(2 * MS), 2.0 * ((2.0 / d).ln() + 0.5772)),
        (Jitter::Uniform(5 * MS), 5.0 - (core::f64::consts::PI * 5.0 * d / 2.0).sqrt()),
    ] {
        let mut config = LinkConfig::new(GBIT, MS);
        config.impairments.jitter = jitter;
        let exits = drive(&config, 1_000_000, 12_000, 1500);
        let late = exits.iter().map(|exit| exit.due.since(nanos(exit.item * 12_000 + 12_000) + MS));
        let mean = late.map(|late| late.as_secs_f64() * 1e3).sum::<f64>() / exits.len() as f64;
        assert!((mean / expected - 1.0).abs() < 0.03, "{jitter}: {mean} {expected}");
    }
}

/// A link offered `load` times what it carries must drop d = 1 - 1/load. Evenly spaced drops, with
/// gaps uniform on 1..=1/p_b - 1, are 2 p_b of the packets, so the queue settles at min +
/// (max - min) d / (2 max_p); within 3%, for it swings, and the curve counts whole packets.
#[test]
fn red_settles_where_its_curve_meets_the_load() {
    let red = RedConfig {
        min: Some(Limit::Packets(500)),
        max: Some(Limit::Packets(1000)),
        ..RedConfig::default()
    };
    for queue in [QueueConfig::Red(red), QueueConfig::RedI(red)] {
        for load in [1.02, 1.05, 1.1, 1.15] {
            let mut config = LinkConfig::new(GBIT, MS);
            config.queue = queue;
            let mut link = link(&config);
            let gap = 12_000.0 / load;
            let (mut sum, mut count) = (0.0, 0.0);
            let n = 1_000_000;
            for i in 0..n {
                let now = nanos((i as f64 * gap) as u64);
                let _ = link.send(now, Bytes(1500), i);
                while link.poll(now).is_some() {}
                if i > n / 2 {
                    sum += link.backlog().packets as f64;
                    count += 1.0;
                }
            }
            let drop = 1.0 - 1.0 / load;
            let expected = 500.0 + 500.0 * drop / (2.0 * 0.1);
            let mean: f64 = sum / count;
            assert!((mean / expected - 1.0).abs() < 0.03, "{queue}: {mean} {expected}");
            assert_eq!(link.counters().dropped(DropCause::Queue).packets, 0);
        }
    }
}

/// Sixteen seconds without a packet, and the next one, between two opportunities of the recording, finds that
/// the average queue has been forgotten: 16,000 steps of a tenth.
#[test]
fn red_forgets_while_a_recorded_link_is_idle() {
    let mut config = LinkConfig::new(GBIT, MS);
    let trace = Some("1".parse().expect("a trace"));
    Change { rate_trace: trace, ..Change::default() }.apply(&mut config);
    let queue = "red:min=2packets,max=3packets,max_p=100%,gentle=no,weight=0.1,limit=50packets";
    config.queue = queue.parse().expect("a queue");
    let mut link = link(&config);
    for i in 0..100 {
        let _ = link.send(Instant::ZERO, Bytes(1500), i);
    }
    assert!(link.counters().dropped(DropCause::Early).packets > 50);
    while link.poll(nanos(1_000_000_000)).is_some() {}
    let later = nanos(16_000_500_000);
    assert!(link.send(later, Bytes(1500), 100).is_ok());
    assert_eq!(link.next_exit(), Some(nanos(16_002_000_000)), "at the next opportunity");
}

#[test]
fn red_marks_instead_of_dropping() {
    let mut config = LinkConfig::new(GBIT, MS);
    config.queue = "red-i:min=50packets,max=5000packets,ecn=yes".parse().expect("a queue");
    let mut link = link(&config);
    for i in 0..2000 {
        let packet = Packet { ecn_capable: true, ..Packet::new(Bytes(1500)) };
        link.send_packet(Instant::ZERO, packet, i).expect("marks do not refuse");
    }
    let marked =
        core::iter::from_fn(|| link.poll(Instant::FAR_FUTURE)).filter(|e| e.marked).count();
    assert!(marked > 0);
    assert_eq!(link.counters().marked.packets, marked as u64);
    assert_eq!(link.counters().delivered.packets, 2000);
}

/// An unresponsive flow of 1.25 times the rate: the k-th drop comes interval x (1/sqrt(1) + .. +
/// 1/sqrt(k-1)) behind the first, to within one packet of the service (RFC 8289, section 3.2).
#[test]
fn codel_drops_by_its_law_on_a_link() {
    let mut config = LinkConfig::new(Rate::from_bits_per_sec(12_000_000), MS);
    config.queue = "codel:limit=100000packets".parse().expect("a queue");
    let exits = drive(&config, 6000, 800_000, 1500);
    let early = Fate::Dropped(DropCause::Early);
    let times: Vec<f64> = exits
        .iter()
        .filter(|exit| exit.fate == early && exit.due <= nanos(6000 * 800_000))
        .map(|exit| exit.due.as_nanos() as f64 / 1e6)
        .collect();
    // Packets wait 5 ms once 25 have waited (0.2 ms more each); that is at 26 ms of service, and
    // an interval later the first is dropped.
    assert!((times[0] - 126.0).abs() <= 2.0, "{}", times[0]);
    let mut expected = times[0];
    for (k, &time) in times.iter().enumerate() {
        assert!((time - expected).abs() <= 1.0 + 1e-6, "drop {k} at {time}, not {expected}");
        expected += 100.0 / ((k + 1) as f64).sqrt();
    }
    assert!(times.len() > 100);
}

#[test]
fn flows_share_a_link_under_fq_codel() {
    let mut config = LinkConfig::new(Rate::from_bits_per_sec(120_000_000), MS);
    config.queue = "fq-codel:ecn=no".parse().expect("a queue");
    let mut link = config.link(100 * MS, 7).expect("a valid link");
    let (mut delivered, mut wait) = ([0u64; 4], Duration::ZERO);
    for i in 0..200_000u64 {
        let now = nanos(i * 50_000);
        // Flow 1 sends what the link carries twice over, 2 as much; 3 a packet every 10 ms.
        for flow in [1, 2] {
            let _ = link.send_packet(now, Packet { flow, ..Packet::new(Bytes(1500)) }, (flow, i));
        }
        if i % 200 == 0 {
            let packet = Packet { flow: 3, ..Packet::new(Bytes(200)) };
            link.send_packet(now, packet, (3, i)).expect("a sparse flow has room");
        }
        while let Some(exit) = link.poll(now) {
            if exit.fate == Fate::Delivered {
                delivered[exit.item.0 as usize] += exit.size.0;
                // In the beginning all flows are new, and those that came first have a turn.
                if exit.item.0 == 3 && exit.item.1 > 0 {
                    wait = wait.max(exit.due.since(nanos(exit.item.1 * 50_000) + MS));
                }
            } else {
                assert_ne!(exit.item.0, 3, "who sends little loses nothing");
            }
        }
    }
    let share = delivered[1] as f64 / delivered[2] as f64;
    assert!((share - 1.0).abs() < 0.01, "{share}");
    // New flows go first: it waits for the packet on the transmitter (100 us) and takes 13.3 us.
    assert!(wait <= Duration::from_nanos(113_334), "{wait:?}");
}

fn at(ms: u64, change: Change) -> (Duration, Change) {
    (Duration::from_millis(ms), change)
}

/// Rate halved for a second in every two, lazily polled: what passes is 3/4 of the full rate to
/// within a packet a change.
#[test]
fn scheduled_rates_are_exact() {
    let rate = |bits| Change { rate: Some(Rate::from_bits_per_sec(bits)), ..Change::default() };
    let mut config = LinkConfig::new(GBIT, MS);
    let steps = vec![at(0, rate(1_000_000_000)), at(1000, rate(500_000_000))];
    config.schedule = Schedule::new(steps, Some(Duration::from_secs(2)));
    config.queue = QueueConfig::DropTail(Limit::Packets(100));
    let exits = drive(&config, 1_000_000, 10_000, 1500);
    let passed = fates(&exits[..], Fate::Delivered) as f64;
    let expected = 10.0 * 0.75e9 / 12_000.0;
    assert!((passed - expected).abs() < 10.0 + 101.0, "{passed} {expected}");
}

#[test]
fn blackouts_lose_and_holds_delay() {
    let mut config = LinkConfig::new(GBIT, MS);
    config.queue = QueueConfig::DropTail(Limit::Packets(10_000));
    // Ends in the middle of a packet, which was begun in the dark.
    let dark = 50 * MS + Duration::from_micros(5);
    let blackout = Change { blackout: Some(dark), ..Change::default() };
    config.schedule = Schedule::new(vec![at(100, blackout)], None);
    for exit in drive(&config, 10_000, 20_000, 1500) {
        let dark = (100_000_000..150_005_000).contains(&(exit.item * 20_000));
        let dropped = exit.fate == Fate::Dropped(DropCause::Blackout);
        assert_eq!(dropped, dark, "{exit:?}");
    }
    let hold = Change { hold: Some(50 * MS), ..Change::default() };
    config.schedule = Schedule::new(vec![at(100, hold)], None);
    let exits = drive(&config, 10_000, 20_000, 1500);
    assert_eq!(fates(&exits, Fate::Delivered), 10_000);
    assert!(exits.is_sorted_by_key(|exit| exit.item));
    let before = nanos(100_000_000) + MS + Duration::from_micros(12);
    let quiet = exits.iter().filter(|exit| exit.due > before && exit.due < before + 50 * MS);
    assert_eq!(quiet.count(), 0);
}

#[test]
fn a_handover_to_a_shorter_way_reorders_unless_told_not_to() {
    let mut config = LinkConfig::new(GBIT, 30 * MS);
    let shorter = Change { delay: Some(10 * MS), ..Change::default() };
    config.schedule = Schedule::new(vec![at(100, shorter)], None);
    config.impairments.keep_order = false;
    let exits = drive(&config, 10_000, 20_000, 1500);
    assert!(exits.is_sorted_by_key(|exit| exit.due));
    for exit in &exits {
        let sent = exit.item * 20_000;
        let delay = if sent < 100_000_000 { 30 * MS } else { 10 * MS };
        assert_eq!(exit.due, nanos(sent + 12_000) + delay);
    }
    config.impairments.keep_order = true;
    assert!(drive(&config, 10_000, 20_000, 1500).is_sorted_by_key(|exit| exit.item));
}

/// A caller that sleeps until `next_exit` misses nothing, whatever overtakes what.
#[test]
fn next_exit_is_never_late() {
    let mut config = LinkConfig::new(Rate::from_bits_per_sec(10_000_000), 20 * MS);
    config.impairments.jitter = Jitter::Exponential(5 * MS);
    config.impairments.keep_order = false;
    let changes = vec![
        at(0, Change { delay: Some(20 * MS), ..Change::default() }),
        at(7, Change { delay: Some(MS), hold: Some(MS), ..Change::default() }),
    ];
    config.schedule = Schedule::new(changes, Some(11 * MS));
    let mut link = link(&config);
    let mut now = Instant::ZERO;
    let mut delivered = 0;
    for i in 0..2000u64 {
        // Twenty at once, so that some wait while others jitter.
        let arrival = nanos(i / 20 * 25_000_000);
        while let Some(next) = link.next_exit().filter(|&next| next <= arrival) {
            assert!(next >= now, "time does not run backwards");
            now = next;
            while let Some(exit) = link.poll(now) {
                assert!(exit.due == now, "late by {:?}", now.since(exit.due));
                delivered += 1;
            }
        }
        now = arrival;
        let _ = link.send(now, Bytes(1500), i);
    }
    assert!(delivered > 1500, "{delivered}");
}

/// After ten years of rounds everything that any of them stated holds, also what comes later in
/// a round than the present.
#[test]
fn a_long_silence_under_a_schedule_ends_at_once() {
    let mut config = LinkConfig::new(GBIT, MS);
    let half = Some(Rate::from_bits_per_sec(500_000_000));
    let steps = vec![
        at(0, Change { delay: Some(2 * MS), ..Change::default() }),
        at(1, Change { delay: Some(5 * MS), rate: half, ..Change::default() }),
    ];
    config.schedule = Schedule::new(steps, Some(3 * MS));
    for (into_round, delay) in [(500_000, 2 * MS), (1_500_000, 5 * MS)] {
        let mut link = link(&config);
        let later = nanos(3_000_000 * 100_000_000_000 + into_round);
        link.send(later, Bytes(1500), 0).expect("an idle link");
        let due = link.poll(Instant::FAR_FUTURE).map(|exit| exit.due);
        assert_eq!(due, Some(later + delay + Duration::from_micros(24)));
        assert!(link.poll(Instant::FAR_FUTURE).is_none());
    }
}

#[test]
fn a_recorded_link_passes_what_was_recorded() {
    let mut config = LinkConfig::new(GBIT, MS);
    let trace = "1\n1\n3\n7\n8\n8\n10\n";
    let change = Change { rate_trace: Some(trace.parse().expect("a trace")), ..Change::default() };
    change.apply(&mut config);
    assert_eq!(config.rate, Rate::from_bits_per_sec(7 * 12_000 * 100));
    config.queue = QueueConfig::DropTail(Limit::Packets(5));
    let exits = drive(&config, 100_000, 500_000, 1500);
    // Busy all the time: every opportunity carries a packet, and each leaves at one.
    let within = exits.iter().filter(|exit| exit.due <= nanos(50_000_000_000));
    assert!(within.clone().count().abs_diff(7 * 5000) <= 7);
    for exit in within {
        let ms = (exit.due.as_nanos() / 1_000_000 - 1) % 10;
        assert!(exit.due.as_nanos() % 1_000_000 == 0 && [0, 1, 3, 7, 8].contains(&ms), "{exit:?}");
    }
}

#[test]
fn what_is_too_big_is_refused_and_told() {
    let mut config = LinkConfig::new(GBIT, MS);
    config.mtu = Some(Bytes(1400));
    let mut told = link(&config);
    let refused = told.send(Instant::ZERO, Bytes(1401), 1).unwrap_err();
    assert_eq!((refused.cause, refused.tell_mtu), (DropCause::TooBig, Some(Bytes(1400))));
    assert!(told.send(Instant::ZERO, Bytes(1400), 2).is_ok());
    config.icmp = false;
    let refused = link(&config).send(Instant::ZERO, Bytes(1401), 1).unwrap_err();
    assert_eq!((refused.cause, refused.tell_mtu), (DropCause::TooBig, None));
}

#[test]
fn a_running_link_is_changed_from_now_on() {
    let mut link = link(&LinkConfig::new(GBIT, 10 * MS));
    link.send(Instant::ZERO, Bytes(1500), 1).expect("idle");
    let change = Change {
        rate: Some(Rate::from_bits_per_sec(1_000_000)),
        delay: Some(20 * MS),
        queue: Some("fq-codel".parse().expect("a queue")),
        ..Change::default()
    };
    link.send(Instant::ZERO, Bytes(1500), 2).expect("it waits");
    link.set(nanos(6000), &change).expect("possible");
    let mut due = || link.poll(Instant::FAR_FUTURE).map(|exit| exit.due);
    assert_eq!(due(), Some(nanos(12_000) + 10 * MS), "under way as it was to");
    assert_eq!(due(), Some(nanos(12_000) + 32 * MS), "12 ms at the new rate, 20 ms of delay");
    let bad = Change { rate: Some(Rate::ZERO), ..Change::default() };
    assert!(link.set(Instant::FAR_FUTURE, &bad).is_err());
    assert_eq!(link.config().rate, Rate::from_bits_per_sec(1_000_000));
}

/// Changing one parameter leaves the choices of the others alone.
#[test]
fn impairments_do_not_disturb_each_other() {
    let mut config = LinkConfig::new(GBIT, MS);
    config.loss = LossConfig::Bernoulli(0.01);
    config.impairments.duplicate = 0.01;
    let set = |config: &LinkConfig, choose: fn(&Exit<u64>) -> bool| {
        let exits = drive(config, 50_000, 12_000, 1500);
        let mut chosen: Vec<u64> = exits.iter().filter(|e| choose(e)).map(|e| e.item).collect();
        chosen.sort_unstable();
        chosen
    };
    let lost = |exit: &Exit<u64>| exit.fate == LOST;
    let before = set(&config, lost);
    config.impairments.duplicate = 0.5;
    config.impairments.bit_error = 1e-6;
    config.impairments.corrupt = 0.1;
    config.impairments.jitter = Jitter::Uniform(MS);
    config.impairments.reorder = 0.1;
    config.impairments.keep_order = false;
    assert_eq!(set(&config, lost), before);
    // And the other way: duplicates stay, but for those that are lost now.
    let twice = |exit: &Exit<u64>| exit.duplicated;
    config.loss = LossConfig::None;
    let all = set(&config, twice);
    config.loss = LossConfig::Bernoulli(0.3);
    let fewer = set(&config, twice);
    assert!(fewer.len() < all.len() && fewer.iter().all(|item| all.binary_search(item).is_ok()));
}

/// A link that changes round after round is looked at every millisecond of a pause, or not at all: the line does the
/// same to what is sent behind it, in the middle of a round.
#[test]
fn who_looks_changes_no_choice() {
    for loss in ["20%", "bursts:loss=20%,length=4", "trace:0010110"] {
        let parse = |text: &str| text.parse().ok();
        let first = Change { loss: parse(loss), duplicate: Some(0.1), ..Change::default() };
        let second = Change { loss: parse("40%"), reorder: Some(0.1), ..Change::default() };
        let third = Change { corrupt: Some(0.05), duplicate: Some(0.2), ..Change::default() };
        let mut config = LinkConfig::new(GBIT, MS);
        config.impairments.reorder_by = MS;
        config.impairments.bit_error = 1e-5;
        let steps = vec![at(0, second), at(3, third), at(5, first)];
        config.schedule = Schedule::new(steps, Some(10 * MS));
        let run = |looks: bool| {
            let mut link = link(&config);
            let mut exits = Vec::new();
            for (burst, begins) in [(0, 0), (1, 507_500_000), (2, 1_001_500_000)] {
                for i in 0..1000 {
                    let now = nanos(begins + i * 12_000);
                    link.send(now, Bytes(1500), burst * 1000 + i).expect("sent at the rate");
                }
                exits.extend(core::iter::from_fn(|| link.poll(nanos(begins + 20_000_000))));
                for look in (21..400).filter(|_| looks) {
                    link.advance(nanos(begins + look * 1_000_000));
                }
            }
            exits
        };
        assert_eq!(run(false), run(true), "{loss}");
    }
}

/// A thousand super-packets of 44 segments at once, or their segments as the host's own link would
/// space them: the line loses and damages the same ones.
#[test]
fn super_packets_meet_the_fates_of_plain_ones() {
    let mut config = LinkConfig::new(GBIT, MS);
    config.loss = "bursts:loss=2%,length=3".parse().expect("a loss");
    config.impairments.bit_error = 1e-6;
    config.impairments.duplicate = 0.01;
    config.queue = QueueConfig::DropTail(Limit::Packets(100));
    let run = |burst: u64| {
        let mut link = link(&config);
        let mut fates = Vec::new();
        for i in 0..44_000u64 {
            let now = nanos(i / burst * burst * 12_500);
            link.send(now, Bytes(1500), i).expect("the queue holds a super-packet");
            fates.extend(
                core::iter::from_fn(|| link.poll(now)).map(|e| (e.item, e.fate, e.duplicated)),
            );
        }
        fates.extend(
            core::iter::from_fn(|| link.poll(Instant::FAR_FUTURE))
                .map(|e| (e.item, e.fate, e.duplicated)),
        );
        fates
    };
    assert_eq!(run(1), run(44));
}

/// An M/D/1 queue: Poisson arrivals of equal packets wait rho / (2 (1 - rho)) transmissions on average
/// (Pollaczek and Khinchine). The mean of 40 batches, each far longer than the queue remembers, lies within
/// its 99.9% interval around that (Student's t of 39 degrees of freedom), which is narrow.
#[test]
fn packets_that_come_at_random_wait_as_m_d_1_has_it() {
    let (batches, each, service) = (40, 100_000, 10_000.0);
    for rho in [0.5, 0.8, 0.9] {
        let mut config = LinkConfig::new(GBIT, MS);
        config.queue = QueueConfig::DropTail(Limit::Packets(1_000_000));
        let mut link = link(&config);
        let mut random = Pcg64Mcg::seed_from_u64(5);
        let (mut at, mut waits) = (0.0, Vec::new());
        let mut note = |exit: Exit<u64>| {
            let sent = exit.due - MS;
            waits.push(sent.since(nanos(exit.item)).as_secs_f64() * 1e9 / service - 1.0);
        };
        for _ in 0..batches * each {
            at -= (1.0 - random.random::<f64>()).ln() * service / rho;
            let now = nanos(at as u64);
            link.send(now, Bytes(1250), at as u64).expect("an endless queue");
            core::iter::from_fn(|| link.poll(now)).for_each(&mut note);
        }
        core::iter::from_fn(|| link.poll(Instant::FAR_FUTURE)).for_each(&mut note);
        assert_eq!(waits.len(), batches * each);
        let means: Vec<f64> =
            waits.chunks(each).map(|batch| batch.iter().sum::<f64>() / each as f64).collect();
        let mean = means.iter().sum::<f64>() / batches as f64;
        let squares: f64 = means.iter().map(|each| (each - mean).powi(2)).sum();
        let half = 3.558 * (squares / (batches * (batches - 1)) as f64).sqrt();
        let expected = rho / (2.0 * (1.0 - rho));
        assert!((mean - expected).abs() <= half, "rho {rho}: {mean} +- {half}, not {expected}");
        assert!(half < 0.03 * expected, "rho {rho}: +- {half}");
    }
}

/// Three million packets with everything on: memory is what the first tenth needed.
#[test]
fn memory_does_not_grow() {
    for queue in ["1000packets", "red:min=100packets,max=300packets", "codel", "fq-codel"] {
        let mut config = LinkConfig::new(GBIT, 20 * MS);
        config.queue = queue.parse().expect("a queue");
        config.loss = "bursts:loss=1%,length=5".parse().expect("a loss");
        config.impairments.jitter = Jitter::Uniform(MS);
        config.impairments.keep_order = false;
        config.impairments.bit_error = 1e-8;
        config.impairments.duplicate = 0.01;
        let mut link = link(&config);
        let (mut warm, n) = (0, 3_000_000u64);
        for i in 0..n {
            let now = nanos(i * 11_000);
            let packet =
                Packet { flow: i % 13, ecn_capable: i % 2 == 0, ..Packet::new(Bytes(1500)) };
            let _ = link.send_packet(now, packet, i);
            while link.poll(now).is_some() {}
            if i == n / 10 {
                // A queue under another discipline may still fill to its limit of 10,240.
                warm = link.capacity().max(1 << 15);
            }
        }
        assert!(link.capacity() <= warm, "{queue}: {} {warm}", link.capacity());
    }
}
