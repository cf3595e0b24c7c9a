//! Thousands of random runs of the transport, each fixed by its seed, with faults of every kind,
//! and what must hold in all of them.
//!
//! - Every byte of every stream arrives once, in order and unchanged; streams end as their writer
//!   or reader ended them, and no connection ends that nobody ended.
//! - Everything is done within [`SLOWEST`] times the ideal time ([`Plan::ideal`]), [`PATIENCE`] and
//!   the time in which nothing could move ([`Plan::standstill`]). So there is no deadlock.
//! - What was written and not read never exceeds the memory that both ends were given
//!   ([`Plan::memory`]).
//! - With periodic reports, state traffic (reports and states) is at most 1% of what was sent and received, and so much a
//!   second as the longest put-off of a report allows (`check_state`).
//! - Nothing is taken for lost that was neither lost nor held back, and of what was held back for
//!   less than the reorder margin that a connection begins with, an eighth, give or take chance (`check_losses`).
//! - What nobody damaged can be opened.
//! - When all streams have ended, nothing is kept for readers: credit for what nobody read came back.
//! - Marks of congestion are counted, and their sender learns of them (`check_marks`).
//! - Something struck, and at least [`LEAST`] bytes were read; where a side dies for ever, when it does not ([`show`]).
//! - Figures agree with each other, nothing is left behind when both sides have closed, and
//!   nothing panics.

mod part;
mod peer;
mod plan;
mod session;

use core::cell::Cell;
use core::time::Duration;
use std::panic::{AssertUnwindSafe, catch_unwind};

use transport::{CloseReason, FeedbackKind, Stats};
use units::Instant;

use crate::{Struck, World};
pub use part::Part;
use peer::Peer;
pub use plan::{End, Kill, LEAST, Plan, Reader, Stream};

/// Everything is done in this many times the ideal time,
pub const SLOWEST: u32 = 8;
/// and this: losses at the very beginning and end, each of which costs a time-out.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// After both sides have closed, everything has ended within this and the idle time-out.
const LINGER: Duration = Duration::from_secs(30);
/// Bytes of state that are sent whatever arrives.
const STATE_ALLOWANCE: u64 = 16 << 10;
/// The reorder margin begins with RTT/8 within 1 and 25 ms (docs/spec/transport.md, "Reorder margin").
const MARGIN: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(25));
/// So many standard deviations from what is expected may be chance; that of a count is its root.
const CHANCE: u64 = 3;
/// Marked packets that may come behind the last report.
const LAST_WORDS: u64 = 16;
/// Reports, put off by 100 ms at most, and states, each RTT/4 or 100 ms, as long as a datagram; on a short path
/// reports each 1.5 ms while somebody waits for credit, and states each 5 ms, of some 65 bytes.
const STATE_A_SECOND: u64 = 65 * (667 + 200);
const _: () = assert!(STATE_A_SECOND > 2 * 10 * 1472);

/// What a run that held came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Virtual time until everything was done.
    pub took: Duration,
    /// `took`, less the time in which nothing could move, as a multiple of the ideal in percent.
    pub percent_of_ideal: u64,
    /// Faults that struck.
    pub struck: Struck,
    /// Bytes that applications read.
    pub moved: u64,
}

/// Runs a plan that must show something; one in which a side dies for ever also with both alive, for nobody can say
/// how much moves before a death.
///
/// # Errors
/// What did not hold, or that nothing was shown: nothing struck, or too little was moved.
pub fn show(plan: &Plan) -> Result<Outcome, String> {
    let outcome = run(plan)?;
    let dies = plan.kill.is_some_and(|kill| kill.restart.is_none());
    let told = if dies {
        let alive = run(&Plan { kill: None, ..plan.clone() });
        alive.map_err(|wrong| format!("with both alive: {wrong}"))?
    } else {
        outcome
    };
    let struck = plan.kill.is_some() || told.struck.total() > 0;
    if struck && told.moved >= LEAST {
        Ok(outcome)
    } else {
        Err(format!("nothing was shown: {told:?}"))
    }
}

/// Runs a plan.
///
/// # Errors
/// What did not hold.
pub fn run(plan: &Plan) -> Result<Outcome, String> {
    catch_unwind(AssertUnwindSafe(|| run_unguarded(plan))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned()));
        Err(format!("panic: {}", text.unwrap_or_default()))
    })
}

fn run_unguarded(plan: &Plan) -> Result<Outcome, String> {
    let mut world = World::new_pair(plan);
    let most = Cell::new(0);
    let limit = plan.ideal() * SLOWEST + plan.standstill() + PATIENCE;
    let over = |world: &World<Peer>| {
        let [near, far] = &world.hosts[..] else { return true };
        most.set(near.between(far).max(most.get()));
        let survivors_know = |dead: &Peer, other: &Peer| dead.is_dead() && other.is_quiet();
        near.wrong().or(far.wrong()).is_some()
            || (near.is_done() && far.is_done())
            || survivors_know(near, far)
            || survivors_know(far, near)
    };
    let in_time = world.run_until(limit, over);
    check_right(&world)?;
    if !in_time {
        return Err(format!("not done after {limit:?}: {}", describe(&mut world)));
    }
    if plan.kill.is_none() && most.get() > plan.memory() {
        return Err(format!("{} bytes between the ends, {} allowed", most.get(), plan.memory()));
    }
    let took = world.elapsed();
    check_figures(plan, &mut world)?;
    let outcome = Outcome {
        took,
        percent_of_ideal: percent(took.saturating_sub(plan.standstill()), plan.ideal()),
        struck: world.struck(),
        moved: world.hosts.iter().map(|host| host.moved().0).sum(),
    };
    check_end(plan, &mut world)?;
    Ok(outcome)
}

fn percent(part: Duration, of: Duration) -> u64 {
    (part.as_nanos() * 100 / of.as_nanos().max(1)) as u64
}

impl World<Peer> {
    fn new_pair(plan: &Plan) -> Self {
        let start = Instant::from_nanos(1_000_000_000);
        let far = Peer::new(plan, 1, start + plan.faults.ahead);
        Self::of(&plan.path, plan.faults, vec![Peer::new(plan, 0, start), far])
    }
}

fn check_right(world: &World<Peer>) -> Result<(), String> {
    for (side, host) in world.hosts.iter().enumerate() {
        if let Some(wrong) = host.wrong() {
            return Err(format!("side {side}: {wrong}"));
        }
    }
    Ok(())
}

/// What each side's figures must agree on.
fn check_figures(plan: &Plan, world: &mut World<Peer>) -> Result<(), String> {
    let elapsed = world.elapsed().as_secs() + 1;
    let mut all = Vec::new();
    for (side, host) in world.hosts.iter_mut().enumerate() {
        let held = host.held_back();
        if held > 0 {
            return Err(format!("side {side} keeps {held} bytes of streams that have ended"));
        }
        let stats = host.stats();
        for stats in &stats {
            if plan.config.feedback == FeedbackKind::Periodic {
                check_state(stats, elapsed)?;
            }
            if stats.lost.0 > stats.sent.0 || stats.in_flight > stats.sent.1 {
                return Err(format!("more lost or in flight than sent: {stats:?}"));
            }
        }
        all.push(stats);
    }
    check_losses(plan, &all, &world.struck())?;
    check_seals(plan, &all, &world.struck())?;
    check_marks(plan, &all, &world.struck())?;
    // Nobody receives what was not sent; an end that died has taken its figures along.
    if plan.kill.is_none() {
        let sum = |side: usize, of: fn(&Stats) -> u64| all[side].iter().map(of).sum::<u64>();
        for side in [0, 1] {
            let (sent, received) = (sum(side, |s| s.sent.0), sum(1 - side, |s| s.received.0));
            if received > sent {
                return Err(format!("{received} packets received of {sent} sent"));
            }
        }
    }
    Ok(())
}

/// As many packets are taken for lost as were. Only where nothing but loss strikes: who dies,
/// stands still or moves loses more than the path.
fn check_losses(plan: &Plan, all: &[Vec<Stats>], struck: &Struck) -> Result<(), String> {
    let told = plan.config.feedback == FeedbackKind::Periodic;
    if plan.kill.is_some() || struck.events > 0 || !told {
        return Ok(());
    }
    let (least, most) = MARGIN;
    let margin = (plan.path.rtt() / 8).clamp(least, most);
    // A margin that has learned knows the last 512 to 1024 packets, of which some five were held back where one in 170
    // is: one in eight of those that follow is held back for longer. And who follows a queue that shrinks overtakes
    // by more than the other was held back. Of fewer than eight it may be one.
    let eighth = struck.held.div_ceil(8);
    let learned = eighth + CHANCE * eighth.isqrt();
    let overtaken =
        if plan.faults.jitter < margin { learned.min(struck.held) } else { struck.held };
    let taken: u64 = all.iter().flatten().map(|stats| stats.lost.0).sum();
    // Who copies packets, and is sooner, is sent what the other end should get until that is found.
    let lost = struck.lost + struck.corrupted + struck.dark + struck.narrow + struck.astray;
    if taken > lost + overtaken {
        return Err(format!("{taken} packets taken for lost, {lost} were: {struck:?}"));
    }
    Ok(())
}

/// What nobody damaged can be opened, also across a change of keys. Who is held back for longer
/// than a key lasts, or whose clock jumps over the time for which the last one is kept, may find
/// none.
fn check_seals(plan: &Plan, all: &[Vec<Stats>], struck: &Struck) -> Result<(), String> {
    let late = plan.faults.reorder > 0.0 && plan.faults.jitter > plan.path.rtt();
    if plan.kill.is_some() || struck.events > 0 || late {
        return Ok(());
    }
    let refused: u64 = all.iter().flatten().map(|stats| stats.refused.unauthentic).sum();
    let copies = if struck.corrupted > 0 { struck.duplicated } else { 0 };
    if refused > struck.corrupted + copies + struck.replayed {
        return Err(format!("{refused} packets could not be opened: {struck:?}"));
    }
    Ok(())
}

/// What queues mark, the receiver counts and the sender learns, but for what came with the last
/// words. What controllers make of it is for `tests/ecn.rs`.
fn check_marks(plan: &Plan, all: &[Vec<Stats>], struck: &Struck) -> Result<(), String> {
    if plan.kill.is_some() || plan.config.feedback != FeedbackKind::Periodic {
        return Ok(());
    }
    let sum = |side: usize, of: fn(&Stats) -> u64| all[side].iter().map(of).sum::<u64>();
    for side in [0, 1] {
        let (counted, told) = (sum(1 - side, |s| s.ce.0), sum(side, |s| s.ce.1));
        if told > counted || counted > struck.marked || told + LAST_WORDS < counted {
            return Err(format!(
                "{} packets were marked, {counted} counted at side {}, {told} told to the other",
                struck.marked,
                1 - side
            ));
        }
    }
    Ok(())
}

/// State traffic stays small beside what it tells of.
fn check_state(stats: &Stats, seconds: u64) -> Result<(), String> {
    let traffic = stats.received.1.0 + stats.sent.1.0;
    let most = traffic / 100 + STATE_ALLOWANCE + STATE_A_SECOND * seconds;
    if stats.state_bytes.0 > most {
        return Err(format!("{} of state in {seconds} s: {stats:?}", stats.state_bytes));
    }
    Ok(())
}

/// Closes, and looks for anything that was left behind.
fn check_end(plan: &Plan, world: &mut World<Peer>) -> Result<(), String> {
    for side in [0, 1] {
        let now = world.clock(side);
        // The near side ends the connection; a far side that was left by a dead one ends its own.
        if side == 0 || plan.kill.is_some() {
            world.hosts[side].close(now);
        }
    }
    let quiet = |world: &World<Peer>| world.hosts.iter().all(Peer::is_quiet);
    if !world.run_until(LINGER + plan.config.idle_timeout, quiet) {
        return Err(format!("something is left after the end: {}", describe(world)));
    }
    check_right(world)?;
    if plan.kill.is_some() {
        return Ok(());
    }
    for (side, host) in world.hosts.iter().enumerate() {
        for reason in host.endings() {
            // The last close, and all its repeats, may be lost.
            let fine = match reason {
                CloseReason::Local => side == 0,
                CloseReason::Remote(close) => side == 1 && close.code == 0,
                CloseReason::Silent(_) => side == 1,
                CloseReason::Gone => side == 1 || plan.outlasts_the_opening(),
                _ => false,
            };
            if !fine {
                return Err(format!("side {side} ended with '{reason}'"));
            }
        }
    }
    Ok(())
}

fn describe(world: &mut World<Peer>) -> String {
    let mut text = format!("{:?}", world.struck());
    for (side, host) in world.hosts.iter_mut().enumerate() {
        let endings: Vec<_> = host.endings().collect();
        text += &format!("\nside {side}: moved {:?}, ended {endings:?}", host.moved());
        for stats in host.stats() {
            text += &format!("\n  {stats:?}");
        }
    }
    text
}

/// The parts that a failing plan can do without, each of them left out in turn.
pub fn needless(plan: &Plan) -> Vec<Part> {
    let mut left_out = Vec::new();
    for part in Part::ALL {
        let fewer = [left_out.as_slice(), &[part]].concat();
        if run(&plan.clone().without(&fewer)).is_err() {
            left_out = fewer;
        }
    }
    left_out
}
