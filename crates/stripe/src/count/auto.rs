//! As many connections as help, without a parameter.
//!
//! The rate of payload is measured over windows of a few round trips. While nothing waits in the
//! path's queue and the rate no longer grows, each connection is held back by something of its own.
//!
//! When that is losses, what they will leave of each connection's window is known before it has come
//! to that ([`Law`](super::Law)): there are at once as many as carry the best rate seen with such
//! windows, paper 1's equation (2)' with W' from the losses. Slow start shows what that rate is. Only
//! losses count that were there without a queue, and with fewer connections.
//!
//! Otherwise there are up to twice as many from then on; unless the last step had brought next to
//! nothing, which is then taken back. When the queue grows, the path is full, and the count stays;
//! from time to time a few more are tried if the queue has gone, or a few less if it stands. Where it
//! doubles the round-trip time, half of them are let go at once, as in paper 3.
//! Connections that do not come are not waited for for ever, and those that cannot not at all.
//!
//! What BBR's connections lose asks for no others, and a path that a [`Pace`](super::Pace) keeps just full
//! counts as full.

use core::time::Duration;

use units::{Bytes, Instant, Rate};

use super::losses::Losses;
use super::{Controller, Law, MAX_CONNECTIONS, Sample};

/// The first count is one for each of these in the round-trip time, for a long path takes each
/// connection long to fill,
const FIRST_PER: Duration = Duration::from_millis(5);
/// within these bounds.
const FIRST: [usize; 2] = [1, 8];
/// A window lasts so many round trips,
const ROUND_TRIPS: f64 = 1.5;
/// but not less, nor more.
const WINDOW: [Duration; 2] = [Duration::from_millis(200), Duration::from_secs(3)];
/// A rate that grew so much within one window has not come to rest.
const GROWS: f64 = 1.15;
/// More connections are worth while when they bring so much,
const WORTH: f64 = 1.05;
/// far more of them when it is so much,
const LINEAR: f64 = 1.7;
/// and fewer do when they lose no more than this.
const EQUAL: f64 = 0.98;
/// Less than this of the best rate falls short of it,
const SHORT: f64 = 0.9;
/// which is forgotten by so much a window, for paths change.
const FADE: f64 = 0.99;
/// Half of the deepest queue of late is one whose end may have come, where segments are lost; but not
/// less nor more than these parts of the base round-trip time, nor less than this. Before it has been
/// filled once, its depth is not known, and bursts alone make queues: then it is the greater part.
const CROWDED: [f64; 2] = [1.0 / 64.0, 3.0 / 16.0];
const CROWDED_LEAST: Duration = Duration::from_millis(1);
/// A round-trip time of so many times the base is paper 3's beta: a queue that is about to overflow, or
/// does so all the time. Half of the connections will do,
const FLOODED: u32 = 2;
/// on paths that are so long: on others a single connection fills the queue.
const LONG: Duration = Duration::from_millis(100);
/// It takes so many windows until that shows.
const DRAINS: u32 = 2;
/// Windows to rest before something else is tried, doubled whenever that was in vain.
const REST: [u32; 2] = [4, 64];
/// Ticks for which another connection is waited for. Then there are no more to be had: the other
/// side, or something between, allows fewer.
const PATIENCE: u32 = 100;
/// So many more than the losses ask for, because windows swing about their mean.
const SPARE: f64 = 1.2;
/// What is worth a step at once,
const STEP: f64 = 1.1;
/// when the rate has begun to come down.
const FALLS: f64 = 0.97;

/// See the module.
#[derive(Debug)]
pub struct Auto {
    count: usize,
    window: Option<Window>,
    /// The rate of the window before.
    last: Option<f64>,
    /// The best of late.
    best: f64,
    /// The deepest queue of late, and whether the rate ever stood still before one.
    deepest: Duration,
    filled: bool,
    losses: Losses,
    state: State,
    rest: u32,
    /// The most connections that can be had.
    most: usize,
    /// How many there were while some were missing, how often another came, and the ticks since.
    arrived: usize,
    returned: usize,
    waited: u32,
}

#[derive(Debug)]
struct Window {
    start: Instant,
    delivered: Bytes,
    /// The least and the greatest mean round-trip time in it.
    rtt: [Duration; 2],
}

/// A window that has ended.
struct Seen {
    /// Bits a second.
    rate: f64,
    /// Whether there was a queue all the time, and whether that was far too long.
    queued: bool,
    flooded: bool,
    /// Whether the rate has not come to rest.
    grows: bool,
    /// How many connections the losses ask for; 0 for none in particular.
    needed: usize,
}

/// What the count is doing.
#[derive(Clone, Copy, Debug)]
enum State {
    /// Came from this count and rate, and waits for the effect.
    Tries { from: usize, rate: f64 },
    /// Stays for so many windows.
    Rests(u32),
}

/// How many to begin with over a path of this round-trip time.
pub fn suitable(rtt: Duration) -> usize {
    let count = rtt.as_nanos() / FIRST_PER.as_nanos();
    (count as usize).clamp(FIRST[0], FIRST[1])
}

impl Auto {
    /// Begins with so many connections; 0 for a number that suits the round-trip time.
    pub fn new(first: usize) -> Self {
        Self {
            count: first,
            window: None,
            last: None,
            best: 0.0,
            deepest: Duration::ZERO,
            filled: false,
            losses: Losses::default(),
            state: State::Tries { from: 0, rate: 0.0 },
            rest: REST[0],
            most: MAX_CONNECTIONS,
            arrived: 0,
            returned: 0,
            waited: 0,
        }
    }

    /// What a window has shown, when it has just ended.
    fn measure(&mut self, sample: &Sample) -> Option<Seen> {
        let Sample { now, delivered, rtt, base_rtt, .. } = *sample;
        let length = rtt.mul_f64(ROUND_TRIPS).clamp(WINDOW[0], WINDOW[1]);
        let fresh = Window { start: now, delivered, rtt: [rtt; 2] };
        let window = self.window.get_or_insert(fresh);
        window.rtt = [window.rtt[0].min(rtt), window.rtt[1].max(rtt)];
        if now.since(window.start) < length {
            return None;
        }
        let rate = Rate::of(delivered - window.delivered, now.since(window.start))?;
        let rate = rate.as_bits_per_sec() as f64;
        let flooded = window.rtt[0] > base_rtt * FLOODED && base_rtt >= LONG;
        let [least, most] = window.rtt.map(|rtt| rtt.saturating_sub(base_rtt));
        let queued = sample.paced || least > super::queued(base_rtt);
        self.window = None;
        let grows = self.last.replace(rate).is_none_or(|last| rate > last * GROWS);
        self.filled |= !grows;
        let crowded = most > self.crowded(base_rtt);
        self.deepest = most.max(self.deepest.mul_f64(FADE));
        self.best = rate.max(self.best * FADE);
        self.losses.note(sample.sent, sample.resent, crowded);
        Some(Seen { rate, queued, flooded, grows, needed: self.needed(sample).unwrap_or(0) })
    }

    /// The queue from which on losses may be of its making.
    fn crowded(&self, base_rtt: Duration) -> Duration {
        let [least, most] = CROWDED.map(|share| base_rtt.mul_f64(share).max(CROWDED_LEAST));
        if self.filled { (self.deepest / 2).clamp(least, most) } else { most }
    }

    /// As many as carry the best rate when losses have had their effect on each.
    fn needed(&self, sample: &Sample) -> Option<usize> {
        // BBR heeds none: as many as come up to speed soon.
        if sample.law == Law::Bbr {
            return Some(suitable(sample.base_rtt));
        }
        let window = self.losses.window(sample.law, sample.rtt)? * sample.segment.0 as f64 * 8.0;
        let needed = self.best * sample.rtt.as_secs_f64() / window * SPARE;
        Some((needed.ceil() as usize).clamp(1, MAX_CONNECTIONS))
    }

    fn try_other(&mut self, count: usize, rate: f64) {
        self.state = State::Tries { from: self.count, rate };
        self.count = count.min(self.most);
        self.last = None;
    }

    /// Waits for connections that are missing, and makes do with those there are when no more come.
    fn wait(&mut self, connections: usize) {
        if connections >= self.count {
            (self.arrived, self.returned, self.waited) = (0, 0, 0);
        } else {
            // Of those that come and go again and again no more than would do.
            if connections > self.arrived && self.returned < self.count {
                (self.waited, self.returned) = (0, self.returned + 1);
            }
            self.arrived = connections;
        }
        self.waited += 1;
        if self.waited > PATIENCE {
            (self.count, self.most) = (connections.max(1), connections.max(1));
            (self.arrived, self.returned, self.waited) = (0, 0, 0);
            self.rest_longer();
        }
    }

    fn rest_longer(&mut self) {
        self.rest = (self.rest * 2).min(REST[1]);
        self.state = State::Rests(self.rest);
    }

    /// As many more as this, or as the rate falls short by up to twice as many.
    fn grow(&mut self, rate: f64, factor: f64) {
        let factor = (self.best / rate).clamp(factor, factor.max(2.0));
        self.try_other(((self.count as f64 * factor) as usize).max(self.count + 1), rate);
    }

    /// Back to the count before: the other brought nothing.
    fn take_back(&mut self, count: usize, rate: f64) {
        self.count = count;
        self.best = rate;
        self.rest_longer();
    }

    /// What a window means for the count.
    fn decide(&mut self, seen: &Seen) {
        let Seen { rate, queued, grows, .. } = *seen;
        let needed = seen.needed.min(self.most);
        // A rate that stays the best is one that losses do not bring down: they may be of its making.
        let falls = rate < self.best * FALLS;
        if falls && !queued && needed as f64 > self.count as f64 * STEP {
            self.count = needed;
            self.state = State::Rests(REST[0]);
            return;
        }
        let drains = matches!(self.state, State::Rests(left) if left + DRAINS > self.rest);
        if seen.flooded && !drains && self.count > needed.max(1) {
            self.count = (self.count / 2).max(needed).max(1);
            return self.rest_longer();
        }
        match self.state {
            _ if grows => {}
            State::Tries { from, rate: before } if from < self.count => {
                // What fell was not the rate of that count, but that of its beginning.
                let settled = rate * GROWS >= before;
                if queued {
                    self.state = State::Rests(REST[0]);
                } else if rate < before * WORTH && settled {
                    self.take_back(from, rate);
                } else {
                    // Each new one brings as much as each of the others did: there is far to go.
                    self.grow(rate, if rate > before * LINEAR { 4.0 } else { 2.0 });
                }
            }
            State::Tries { from, rate: before } if rate < before * EQUAL => {
                self.take_back(from, before);
            }
            State::Tries { .. } => self.state = State::Rests(REST[0]),
            State::Rests(_) if !queued && needed == 0 && rate < self.best * SHORT => {
                self.grow(rate, 1.25);
            }
            State::Rests(left) if left > 0 => self.state = State::Rests(left - 1),
            State::Rests(_) if !queued => {
                self.most = MAX_CONNECTIONS;
                self.grow(rate, 1.5);
            }
            State::Rests(_) if self.count > needed.max(1) => {
                self.try_other((self.count * 3 / 4).max(needed).max(1), rate);
            }
            State::Rests(_) => {}
        }
    }
}

impl Controller for Auto {
    fn connections(&mut self, sample: &Sample) -> usize {
        if self.count == 0 {
            self.count = suitable(sample.base_rtt);
        }
        self.most = self.most.min(sample.most);
        self.count = self.count.min(self.most);
        // Of a stream with nothing to send no connections are opened.
        if sample.idle {
            self.window = None;
            return self.count;
        }
        self.wait(sample.connections);
        // Connections still on their way: nothing can be told of the count yet.
        let incomplete = sample.connections < self.count
            && matches!(self.state, State::Tries { from, .. } if from < self.count);
        if incomplete {
            self.window = None;
        } else if let Some(seen) = self.measure(sample)
            && seen.rate > 0.0
        {
            // Nothing at all is an outage, and no reason for anything.
            self.decide(&seen);
        }
        self.count
    }
}
