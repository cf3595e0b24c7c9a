//! Controllers on paths that a formula describes.

mod pace;

use super::*;

pub(super) const NOTHING: Sample = Sample {
    now: Instant::ZERO,
    connections: 1,
    resting: 0,
    most: MAX_CONNECTIONS,
    delivered: Bytes(0),
    rtt: Duration::ZERO,
    least_rtt: Duration::ZERO,
    base_rtt: Duration::ZERO,
    window: Bytes(0),
    segment: Bytes(1448),
    sent: 0,
    resent: 0,
    arrived: 0,
    lost: 0,
    law: Law::Unknown,
    paced: false,
    idle: false,
};

/// Connections that each reach a rate of their own, over a link whose queue fills when they are too
/// many.
struct Path {
    one: f64,
    link: f64,
    base: Duration,
    window: Bytes,
    /// Whether the connections are BBR's, and a pace holds them back.
    paced: bool,
}

impl Path {
    /// Counts over so long a time, with at most 512.
    fn run(&self, policy: Policy, seconds: u64) -> Vec<usize> {
        self.run_allowed([512; 2], policy, seconds)
    }

    /// What is asked for when only so many connections are let through, and so many are known to be
    /// the most.
    fn run_allowed(&self, [allowed, most]: [usize; 2], policy: Policy, seconds: u64) -> Vec<usize> {
        let mut controller = policy.controller();
        let (mut now, mut bits) = (Instant::from_nanos(1), 0.0);
        let (mut count, mut counts) = (policy.first(), Vec::new());
        for _ in 0..seconds * 10 {
            let connections = count.min(allowed);
            let offered = self.one * connections as f64;
            bits += offered.min(self.link) * TICK.as_secs_f64();
            now += TICK;
            let queue = (offered / self.link - 1.0).clamp(0.0, 1.0);
            let sample = Sample {
                now,
                connections,
                most,
                delivered: Bytes((bits / 8.0) as u64),
                rtt: self.base.mul_f64(1.0 + queue),
                base_rtt: self.base,
                window: self.window,
                law: if self.paced { Law::Bbr } else { Law::Unknown },
                paced: self.paced,
                idle: false,
                ..NOTHING
            };
            let asked = controller.connections(&sample);
            counts.push(asked);
            count = asked.clamp(1, 512);
        }
        counts
    }
}

fn long(one: f64) -> Path {
    let (base, window) = (Duration::from_millis(200), Bytes::kib(24));
    Path { one, link: 1e9, base, window, paced: false }
}

#[test]
fn auto_finds_as_many_as_fill_the_link_and_stays_there() {
    for (one, enough) in [(6e6, 167), (30e6, 34), (2.5e6, 400)] {
        let counts = long(one).run(Policy::default(), 60);
        let first = counts.iter().position(|&count| count >= enough).expect("never enough");
        assert!(first < 100, "enough only after {first} ticks");
        let late = &counts[300..];
        assert!(late.iter().all(|&count| count > enough * 3 / 4), "{late:?}");
        assert!(late.iter().all(|&count| count < enough * 3), "{late:?}");
    }
}

#[test]
fn auto_is_not_misled_by_the_passing_rates_of_slow_start() {
    // Each connection reaches five times its own rate before its first loss, and loses it again.
    let mut controller = Policy::default().controller();
    let (mut now, mut bits, mut ages) = (Instant::from_nanos(1), 0.0, vec![0_u32]);
    let mut counts = Vec::new();
    for _ in 0..400 {
        let rate = |&age: &u32| match age {
            0..15 => 30e6 * f64::from(age) / 15.0,
            15..45 => 30e6 - 24e6 * f64::from(age - 15) / 30.0,
            _ => 6e6,
        };
        let offered: f64 = ages.iter().map(rate).sum();
        bits += offered.min(1e9) * TICK.as_secs_f64();
        now += TICK;
        let sample = Sample {
            now,
            connections: ages.len(),
            delivered: Bytes((bits / 8.0) as u64),
            rtt: Duration::from_millis(200 + if offered > 1e9 { 50 } else { 0 }),
            base_rtt: Duration::from_millis(200),
            ..NOTHING
        };
        let count = controller.connections(&sample).clamp(1, 512);
        ages.iter_mut().for_each(|age| *age += 1);
        ages.resize(count, 0);
        counts.push(count);
    }
    assert!(counts[150..].iter().all(|&count| count > 120), "{counts:?}");
}

#[test]
fn auto_stays_small_where_one_connection_is_enough() {
    let short = Path { link: 1e8, base: Duration::from_millis(20), ..long(1e8) };
    let counts = short.run(Policy::default(), 120);
    assert!(counts.iter().all(|&count| count <= 4), "{counts:?}");
    assert!(counts.iter().filter(|&&count| count <= 2).count() > 1000);
}

#[test]
fn auto_asks_for_no_more_while_a_pace_holds_the_connections_back() {
    let counts = Path { paced: true, ..long(6e6) }.run(Policy::default(), 60);
    assert!(counts.iter().all(|&count| count == 8), "{counts:?}");
    // Fewer than it would begin with anew stay as they are, too: it was found before that they do.
    let counts = Path { paced: true, ..long(6e6) }.run(Policy::Auto { first: 3 }, 60);
    assert!(counts.iter().all(|&count| count == 3), "{counts:?}");
}

#[test]
fn auto_keeps_to_the_most_there_may_be() {
    let counts = long(1e5).run(Policy::default(), 120);
    assert_eq!(counts.iter().max(), Some(&MAX_CONNECTIONS));
}

#[test]
fn auto_makes_do_with_the_connections_it_gets() {
    let counts = long(6e6).run_allowed([4, 512], Policy::default(), 120);
    assert!(counts[..100].iter().all(|&count| count > 4), "others may still come: {counts:?}");
    assert!(counts.contains(&4) && counts.iter().rposition(|&count| count > 4) > Some(200));
    // Even those are too many here: once it has settled, it can back off.
    let full = Path { link: 30e6, ..long(6e6) };
    let counts = full.run_allowed([8, 512], Policy::Auto { first: 32 }, 120);
    assert!(counts.iter().any(|&count| count < 8), "{counts:?}");
}

#[test]
fn auto_waits_for_connections_that_come_back_one_by_one() {
    let mut controller = Policy::Auto { first: 8 }.controller();
    let mut bits = 0.0;
    for tick in 0..500 {
        // After five seconds five are lost, and every six seconds one of them comes back.
        let connections = if tick < 50 { 8 } else { (3 + (tick - 50) / 60).min(8) };
        bits += 6e6 * connections as f64 * TICK.as_secs_f64();
        let rtt = Duration::from_millis(200);
        let count = controller.connections(&Sample {
            now: Instant::from_nanos(1) + TICK * tick as u32,
            connections,
            most: 8,
            delivered: Bytes((bits / 8.0) as u64),
            rtt,
            base_rtt: rtt,
            ..NOTHING
        });
        assert!(count >= 8, "{count} with {connections} at {tick}");
    }
}

#[test]
fn auto_does_not_wait_for_ever_for_one_that_comes_and_goes() {
    let mut controller = Policy::Auto { first: 8 }.controller();
    let last = (0..2000).map(|tick: u32| {
        let rtt = Duration::from_millis(200);
        controller.connections(&Sample {
            now: Instant::from_nanos(1) + TICK * tick,
            connections: if tick % 40 < 4 { 6 } else { 5 },
            most: 8,
            delivered: Bytes(u64::from(tick) * 375_000),
            rtt,
            base_rtt: rtt,
            ..NOTHING
        })
    });
    assert!(last.skip(1000).any(|count| count < 8));
}

#[test]
fn auto_does_not_wait_for_what_cannot_be_had() {
    // Four are too many as it is; it would like eight to begin with.
    let full = Path { link: 12e6, ..long(6e6) };
    let counts = full.run_allowed([4, 4], Policy::default(), 60);
    assert!(counts[..80].iter().any(|&count| count < 4), "{counts:?}");
    let poor = long(6e6).run_allowed([4, 4], Policy::default(), 60);
    assert!(poor[100..].iter().all(|&count| (3..=6).contains(&count)), "{poor:?}");
}

#[test]
fn the_equation_of_paper_1_needs_no_count() {
    // Eq. 2: 155 Mbit/s x 200 ms with windows of 24 KiB rounded down to segments of 1460 bytes.
    let window = Bytes(24_576 / 1460 * 1460);
    let one = window.0 as f64 * 8.0 / 0.2;
    let path = Path { link: 155e6, window, ..long(one * 0.75) };
    let target = Rate::from_bits_per_sec(20_000_000);
    let counts = path.run(Policy::Equation { target, first: 0, k: 0 }, 30);
    // All of the target would need 22, and then 29: within a twentieth is enough.
    let known = counts.iter().find(|&&count| count > 1);
    assert_eq!(known, Some(&21), "k is 1 before anything is known");
    let needed = 28;
    assert!(counts[150..].iter().all(|count| (27..=needed).contains(count)), "{counts:?}");
    // What was learnt of the destination gives that number at once.
    let system = System { k: 750, window, rtt: path.base };
    assert_eq!(system.connections(target), needed);
    let first = system.connections(target) as u16;
    let counts = path.run(Policy::Equation { target, first, k: system.k }, 30);
    assert!(counts.iter().all(|&count| count == needed), "{counts:?}");
}

/// What is confirmed comes in whole records: of k, each measurement is too high or too low.
#[test]
fn the_equation_is_not_misled_by_whole_records() {
    let (window, rtt) = (Bytes(23_360), Duration::from_millis(200));
    let one = window.0 as f64 * 8.0 / rtt.as_secs_f64();
    for (target, k, needed) in [(5e6, 0.97, 6), (12e6, 0.97, 13), (12e6, 1.0, 13)] {
        let target = Rate::from_bits_per_sec(target as u64);
        let mut controller = Policy::Equation { target, first: 0, k: 0 }.controller();
        let (mut now, mut bytes, mut connections) = (Instant::from_nanos(1), 0.0, 1);
        for tick in 0..600 {
            now += TICK;
            bytes += one * k * connections as f64 / 8.0 * TICK.as_secs_f64();
            // All have a record confirmed at the same time.
            let record = (32 << 10) * needed;
            let delivered = Bytes(bytes as u64 / record * record);
            connections = controller.connections(&Sample {
                now,
                connections,
                delivered,
                rtt,
                base_rtt: rtt,
                window,
                ..NOTHING
            });
            let is_near = (connections as u64).abs_diff(needed) <= 1;
            assert!(tick < 100 || is_near, "{connections} at {tick}, {needed} needed");
        }
    }
}

/// Whose windows are twice what they send, as BBR's are, would otherwise be found to reach half of them, and
/// as many as there are to be needed.
#[test]
fn the_equation_does_not_take_what_is_held_back_for_what_is_missing() {
    let (target, rtt) = (Rate::from_bits_per_sec(10_000_000), Duration::from_millis(100));
    let mut controller = Policy::Equation { target, first: 8, k: 0 }.controller();
    let mut hold = Hold::new(target);
    let (mut now, mut bits, mut connections) = (Instant::from_nanos(1), 0.0, 8);
    for _ in 0..600 {
        let delivered = Bytes(bits as u64 / 8);
        let sample = Sample { now, connections, delivered, rtt, base_rtt: rtt, ..NOTHING };
        // Each could send 100 Mbit/s.
        let each = hold.limit(&sample).as_bits_per_sec().min(100_000_000) as f64;
        let window = Bytes((2.0 * each * rtt.as_secs_f64() / 8.0) as u64);
        bits += each * connections as f64 * TICK.as_secs_f64();
        connections = controller.connections(&Sample { window, ..sample });
        now += TICK;
    }
    assert_eq!(connections, 1, "one is enough");
    let k = controller.learnt().map(|system| system.k);
    assert!(k.is_some_and(|k| k > 900), "{k:?}");
}

/// Who fetches would go by windows that carry nothing, and who sends by those that have not opened.
#[test]
fn the_equation_waits_for_windows_that_matter() {
    let target = Rate::from_bits_per_sec(12_000_000);
    let mut controller = Policy::Equation { target, first: 3, k: 0 }.controller();
    let rtt = Duration::from_millis(200);
    let mut at = |tick: u64, idle: bool, connections: usize, window: u64| {
        let now = Instant::ZERO + TICK * (tick as u32 + 1);
        let delivered = Bytes(tick * 10_000);
        let window = Bytes(window);
        controller.connections(&Sample {
            now,
            delivered,
            connections,
            rtt,
            window,
            idle,
            ..NOTHING
        })
    };
    assert!((0..50).all(|tick| at(tick, true, 1, 14_600) == 3), "it does not send");
    assert!((50..54).all(|tick| at(tick, false, 3, 14_600) == 3), "they have not opened");
    assert_eq!(at(54, false, 3, 23_360), 13);
    assert!((55..59).all(|tick| at(tick, false, 13, 15_000) == 13), "those that are new have not");
    assert_eq!(at(59, false, 13, 23_360), 13);
}

#[test]
fn paper_3s_bounds_halve_above_beta_and_add_below_alpha() {
    let t1 = Path {
        one: 24_576.0 * 8.0 / 0.56,
        link: 1.536e6,
        base: Duration::from_millis(560),
        window: Bytes::kib(24),
        paced: false,
    };
    let policy = Policy::RttBounded { alpha: Duration::ZERO, beta: Duration::ZERO };
    let counts = t1.run(policy, 60);
    assert!(counts[200..].iter().all(|&count| (5..=8).contains(&count)), "{counts:?}");
    let mut crowded = policy.controller();
    let sample = Sample {
        now: Instant::from_nanos(1),
        connections: 32,
        delivered: Bytes(0),
        rtt: Duration::from_millis(1500),
        base_rtt: Duration::from_millis(560),
        ..NOTHING
    };
    assert_eq!(crowded.connections(&sample), 16);
    assert_eq!(crowded.connections(&sample), 16, "one step at a time");
}

#[test]
fn policies_are_read() {
    let times = |text: &str| match text {
        "700ms" => Ok(Duration::from_millis(700)),
        "1.1s" => Ok(Duration::from_millis(1100)),
        _ => Err("no time".to_owned()),
    };
    let read = |text| Policy::read(text, times);
    let target = Rate::from_bits_per_sec(5_000_000);
    assert_eq!(read("equation:5mbit"), Ok(Policy::Equation { target, first: 0, k: 0 }));
    assert_eq!(read("auto"), Ok(Policy::default()));
    assert_eq!((read("1"), read("512")), (Ok(Policy::Fixed(1)), Ok(Policy::Fixed(512))));
    let bounds = |alpha, beta| {
        let [alpha, beta] = [alpha, beta].map(Duration::from_millis);
        Ok(Policy::RttBounded { alpha, beta })
    };
    assert_eq!(read("rtt-bounded"), bounds(0, 0));
    assert_eq!(read("rtt-bounded:700ms,1.1s"), bounds(700, 1100));
    for bad in [
        "equation",
        "equation:fast",
        "equation:0bit",
        "0",
        "513",
        "many",
        "auto:3",
        "auto:",
        "equation:",
        "rtt-bounded:",
        "rtt-bounded:1.1s,700ms",
        "rtt-bounded:700ms",
    ] {
        assert!(read(bad).is_err(), "{bad}");
    }
}

#[test]
fn policies_survive_the_wire() {
    let time = Duration::from_millis(700);
    for policy in [
        Policy::Fixed(300),
        Policy::Equation { target: Rate::from_bits_per_sec(1 << 40), first: 7, k: 750 },
        Policy::RttBounded { alpha: time, beta: time * 2 },
        Policy::Auto { first: 9 },
    ] {
        assert_eq!(Policy::decode(&policy.encode()), Some(policy));
    }
    assert_eq!(Policy::decode(&[9; POLICY_LEN]), None);
}
