//! A pace on a path that a formula describes.

use std::collections::VecDeque;

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};

use super::*;

/// A link that connections of BBR share. Rates are segments a second, times seconds.
#[derive(Clone, Copy)]
struct Shared {
    link: f64,
    base: f64,
    /// After so many seconds
    change: f64,
    /// so much of the link is left, and by so much the path is longer.
    left: f64,
    longer: f64,
    /// Smoothed round-trip times are up to so much longer than they should.
    swing: f64,
    /// The deepest queue.
    room: f64,
    /// The share that is lost whatever they do, before and then, and how many in a row.
    random: [f64; 2],
    burst: f64,
    /// What all of them can send at most.
    most: f64,
    /// Whether they have less to send then, and so nothing now and then.
    idles: bool,
    /// Whether they rest every ten seconds, all at the same time or one by one.
    rests: Option<Together>,
    /// Whether somebody else keeps the link full, by AIMD.
    contended: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum Together {
    Yes,
    No,
}

/// 1 Gbit/s and 200 ms.
const ALONE: Shared = Shared {
    link: 1e9 / 8.0 / 1500.0,
    base: 0.2,
    change: 20.0,
    left: 1.0,
    longer: 0.0,
    swing: 0.0,
    room: 0.05,
    random: [0.0; 2],
    burst: 1.0,
    most: f64::INFINITY,
    idles: false,
    rests: None,
    contended: false,
};

/// A time of it.
#[derive(Clone, Copy)]
struct Moment {
    arrived: f64,
    queue: f64,
    dropped: f64,
    /// By chance.
    lost: f64,
    sent: f64,
    limited: bool,
}

const STEP: f64 = 0.01;
/// A rest lasts so long and a round trip,
const REST: f64 = 0.2;
/// and the first comes when the start-up is over.
const FIRST_REST: f64 = 10.0;

struct Chance {
    random: Pcg64Mcg,
    is_lost: bool,
}

impl Chance {
    fn even(&mut self) -> f64 {
        self.random.next_u64() as f64 / u64::MAX as f64
    }

    /// How many of so many segments are lost.
    fn lost(&mut self, segments: f64, share: f64, burst: f64) -> f64 {
        let mut lost = 0.0;
        for _ in 0..(segments + self.even()) as u64 {
            let chance =
                if self.is_lost { 1.0 - 1.0 / burst } else { share / burst / (1.0 - share) };
            self.is_lost = self.even() < chance;
            lost += f64::from(self.is_lost);
        }
        lost.min(segments)
    }
}

impl Shared {
    /// What happens in each step of 10 ms, with a pace or without.
    fn run(&self, connections: usize, paced: bool, seconds: usize) -> Vec<Moment> {
        let mut chance = Chance { random: Pcg64Mcg::seed_from_u64(1), is_lost: false };
        let (mut pace, mut cap) = (Pace::default(), f64::INFINITY);
        let mut under_way: VecDeque<(f64, Moment)> = VecDeque::new();
        let (mut queue, mut full, mut other) = (0.0_f64, false, 0.0);
        let (mut best, mut sums, mut rtt) = (VecDeque::new(), [0.0; 3], self.base);
        let mut all = Vec::new();
        for step in 0..seconds * 100 {
            let now = step as f64 * STEP;
            let is_late = usize::from(now >= self.change);
            let base = self.base + self.longer * is_late as f64;
            let link = self.link * [1.0, self.left][is_late];
            // What was sent a round trip ago shows now.
            while let Some((_, seen)) = under_way.pop_front_if(|(shows, _)| *shows <= now) {
                best.push_back(seen.arrived);
                full |= seen.dropped > 0.0;
                let outcomes = [seen.arrived, seen.dropped + seen.lost, seen.sent];
                sums.iter_mut().zip(outcomes).for_each(|(sum, new)| *sum += new * STEP);
                // Of those that rest hardly anything comes that could be smoothed.
                if seen.arrived > 0.0 {
                    rtt = base + seen.queue + self.swing * chance.even();
                }
            }
            while best.len() as f64 > self.base * 10.0 / STEP {
                best.pop_front();
            }
            let resting = self.resting(connections, now, base);
            let sending = (connections - resting) as f64;
            // They double until the path is full. Then each sends a little more than the best of its
            // shares, which together are more than there is.
            let best = best.iter().copied().fold(10.0 * connections as f64 / self.base, f64::max);
            let wanted = best * if full { 1.4 } else { 2.0 } * sending / connections as f64;
            let idle = self.idles && is_late > 0;
            let most = self.most.min(if idle { self.link * 0.9 } else { f64::INFINITY });
            let sent = wanted.min(cap * sending).min(most);
            let lost = chance.lost(sent * STEP, self.random[is_late], self.burst) / STEP;
            let offered = sent - lost + other;
            let fits = link + (self.room - queue) * link / STEP;
            let taken = offered.min(fits);
            queue = (queue + (taken / link - 1.0) * STEP).max(0.0);
            let ours = if offered > 0.0 { (sent - lost) / offered } else { 0.0 };
            let dropped = (offered - taken) * ours;
            // Whoever waits in the queue leaves it at the link's rate.
            let arrived = if queue > 0.0 { link * ours } else { taken * ours };
            if self.contended {
                let more = other + link * 0.05 * STEP;
                other = if offered > taken { other * 0.97 } else { more };
            }
            let limited = cap.is_finite();
            let moment = Moment { arrived, queue, dropped, lost, sent, limited };
            under_way.push_back((now + base, moment));
            all.push(moment);
            if paced && step % 10 == 9 {
                let sample = Sample {
                    now: Instant::ZERO + Duration::from_secs_f64(now),
                    connections,
                    resting,
                    least_rtt: Duration::from_secs_f64(rtt),
                    base_rtt: Duration::from_secs_f64(self.base),
                    arrived: sums[0] as u64,
                    lost: sums[1] as u64,
                    sent: sums[2] as u64,
                    law: Law::Bbr,
                    idle,
                    ..NOTHING
                };
                cap = pace
                    .limit(&sample)
                    .map_or(f64::INFINITY, |limit| limit.as_bits_per_sec() as f64 / 8.0 / 1448.0);
            }
        }
        all
    }

    /// How many of them rest.
    fn resting(&self, connections: usize, now: f64, base: f64) -> usize {
        let Some(together) = self.rests else { return 0 };
        let apart = if together == Together::Yes { 0.0 } else { 10.0 / connections as f64 };
        let rests = |&one: &usize| {
            let since = now - FIRST_REST - one as f64 * apart;
            since >= 0.0 && since % 10.0 < REST + base
        };
        (0..connections).filter(rests).count()
    }

    /// The shares of the link that was used and of what was sent that was dropped, and the mean queue,
    /// from so many seconds on.
    fn told(&self, connections: usize, paced: bool, [from, to]: [usize; 2]) -> [f64; 3] {
        let moments = &self.run(connections, paced, to)[from * 100..];
        let sum = |of: fn(&Moment) -> f64| moments.iter().map(of).sum::<f64>();
        let count = moments.len() as f64;
        [
            sum(|moment| moment.arrived) / count / self.link,
            sum(|moment| moment.dropped) / sum(|moment| moment.sent),
            sum(|moment| moment.queue) / count,
        ]
    }
}

fn mbps(rate: f64) -> f64 {
    rate * 1e6 / 8.0 / 1500.0
}

#[test]
fn a_pace_keeps_the_rate_and_lets_the_queue_drain() {
    for (connections, random) in [(1, 0.0), (2, 0.001), (8, 0.001), (2, 0.05)] {
        let path = Shared { random: [random; 2], ..ALONE };
        let [_, dropped, queue] = path.told(connections, false, [5, 20]);
        assert!(dropped > 0.2 && queue > 0.045, "without: {dropped} {queue}");
        let [used, dropped, queue] = path.told(connections, true, [5, 20]);
        assert!(used > 0.95 && dropped < 0.005 && queue < 0.025, "{used} {dropped} {queue}");
    }
}

#[test]
fn a_pace_goes_by_losses_where_the_queue_is_too_short_to_show() {
    let path = Shared { room: 0.004, random: [0.002; 2], ..ALONE };
    let [used, dropped, _] = path.told(2, true, [5, 60]);
    assert!(used > 0.95 && dropped < 0.04, "{used} {dropped}");
}

#[test]
fn a_pace_does_not_take_bursts_of_losses_for_a_full_path() {
    for (link, base, burst) in
        [(80.0, 0.02, 4.0), (100.0, 0.2, 4.0), (100.0, 0.1, 10.0), (240.0, 0.1, 20.0)]
    {
        let path = Shared { link: mbps(link), base, random: [0.01; 2], burst, ..ALONE };
        let [used, ..] = path.told(2, true, [20, 120]);
        assert!(used > 0.96, "{link} {burst}: {used}");
        let path = Shared { most: path.link * 0.8, ..path };
        let [used, ..] = path.told(2, true, [20, 120]);
        assert!(used > 0.78, "{link} {burst}, not filled: {used}");
    }
}

#[test]
fn a_pace_learns_that_more_is_lost_than_before() {
    let path = Shared { link: mbps(100.0), base: 0.1, random: [0.0, 0.06], ..ALONE };
    let [used, dropped, _] = path.told(2, true, [50, 150]);
    assert!(used > 0.9 && dropped < 0.04, "{used} {dropped}");
}

#[test]
fn a_pace_learns_that_the_path_has_become_longer() {
    for (base, longer) in [(0.2, 0.02), (0.1, 0.01), (0.1, 0.03), (0.05, 0.006)] {
        let path = Shared { base, longer, ..ALONE };
        let [used, dropped, _] = path.told(2, true, [50, 150]);
        assert!(used > 0.98 && dropped < 0.01, "{base} {longer}: {used} {dropped}");
    }
}

#[test]
fn a_pace_learns_soon_that_a_queue_is_not_its_own() {
    // As when round-trip times are longer as soon as there is something to send.
    for (longer, swing) in [(0.006, 0.003), (0.008, 0.004), (0.008, 0.006)] {
        let path = Shared { link: mbps(80.0), base: 0.022, change: 0.3, longer, swing, ..ALONE };
        let path = Shared { random: [0.01; 2], burst: 4.0, ..path };
        let [used, ..] = path.told(1, true, [4, 30]);
        assert!(used > 0.94, "{longer} {swing}: {used}");
    }
}

#[test]
fn a_pace_learns_that_less_is_left_than_it_keeps() {
    let path = Shared { left: 0.25, ..ALONE };
    let [used, dropped, _] = path.told(2, true, [35, 60]);
    assert!(used > 0.96 * 0.25 && dropped < 0.03, "{used} {dropped}");
}

#[test]
fn a_pace_does_not_take_jitter_for_a_queue() {
    for (link, base, swing) in [(80.0, 0.02, 0.008), (100.0, 0.2, 0.04)] {
        let path = Shared { link: mbps(link), base, swing, ..ALONE };
        let [used, dropped, _] = path.told(1, true, [20, 120]);
        assert!(used > 0.93 && dropped < 0.02, "{base} {swing}: {used} {dropped}");
    }
}

#[test]
fn a_pace_outlasts_rests() {
    let t1 = Shared { link: mbps(1.5), base: 0.56, room: 1.0, ..ALONE };
    for path in [ALONE, t1] {
        let rests = Some(Together::Yes);
        let [used, dropped, _] = Shared { rests, ..path }.told(2, true, [20, 120]);
        let most = 1.0 - (REST + path.base) / 10.0;
        assert!(used > most - 0.005 && dropped < 0.005, "{used} of {most}, {dropped}");
        // The others send what those that rest do not.
        let rests = Some(Together::No);
        let [used, dropped, _] = Shared { rests, ..path }.told(8, true, [20, 120]);
        assert!(used > 0.985 && dropped < 0.01, "{used} {dropped}");
    }
}

#[test]
fn a_pace_lets_go_who_does_not_fill_the_path() {
    let moments = Shared { idles: true, ..ALONE }.run(2, true, 24);
    assert!(moments[500..2000].iter().all(|moment| moment.limited));
    assert!(moments[2300..].iter().all(|moment| !moment.limited));
}

#[test]
fn a_pace_neither_gives_way_to_others_nor_takes_all() {
    let path = Shared { contended: true, rests: Some(Together::Yes), ..ALONE };
    let [used, ..] = path.told(2, true, [20, 120]);
    assert!((0.6..0.85).contains(&used), "{used}");
}
