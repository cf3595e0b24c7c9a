//! As many connections as help, without a parameter.
//!
//! The rate of payload is measured over windows of a few round trips. While it grows, TCP is still
//! finding its way, and nothing is changed. When it stands still although nothing waits in the
//! path's queue, each connection is held back by something of its own (losses, a window), so there
//! are up to twice as many from then on; unless the last step had brought next to nothing, which is
//! then taken back. The same when the rate falls short of what the path has carried before: slow
//! start shows what that is long before losses have brought each connection down to its own rate.
//! When the queue grows, the path is full, and the count stays; from time to time a few more are tried
//! if the queue has gone, or a few less if it stands. Connections that do not come are not waited for
//! for ever.

use core::time::Duration;

use units::{Bytes, Instant, Rate};

use super::{Controller, MAX_CONNECTIONS, Sample};

/// The first count is one for each of these in the round-trip time, for a long path takes each
/// connection long to fill,
const FIRST_PER: Duration = Duration::from_millis(10);
/// within these bounds.
const FIRST: [usize; 2] = [1, 32];
/// A window lasts so many round trips,
const ROUND_TRIPS: f64 = 1.5;
/// but not less, nor more.
const WINDOW: [Duration; 2] = [Duration::from_millis(200), Duration::from_secs(3)];
/// A rate that grew so much within one window has not come to rest.
const GROWS: f64 = 1.15;
/// More connections are worth while when they bring so much,
const WORTH: f64 = 1.05;
/// and fewer do when they lose no more than this.
const EQUAL: f64 = 0.98;
/// Less than this of the best rate falls short of it,
const SHORT: f64 = 0.9;
/// which is forgotten by so much a window, for paths change.
const FADE: f64 = 0.99;
/// So much of the base round-trip time in the queue, or the second, is a queue.
const QUEUED: f64 = 1.0 / 16.0;
const QUEUED_LEAST: Duration = Duration::from_millis(4);
/// Windows to rest before something else is tried, doubled whenever that was in vain.
const REST: [u32; 2] = [4, 64];
/// Ticks for which another connection is waited for. Then there are no more to be had: the other
/// side, or something between, allows fewer.
const PATIENCE: u32 = 100;

/// See the module.
#[derive(Debug)]
pub struct Auto {
    count: usize,
    window: Option<Window>,
    /// The rate of the window before.
    last: Option<f64>,
    /// The best of late.
    best: f64,
    state: State,
    rest: u32,
    /// The most connections there were since the count was raised, and the ticks since then.
    arrived: usize,
    waited: u32,
}

#[derive(Debug)]
struct Window {
    start: Instant,
    delivered: Bytes,
    /// The least mean round-trip time in it.
    rtt: Duration,
}

/// What the count is doing.
#[derive(Clone, Copy, Debug)]
enum State {
    /// Came from this count and rate, and waits for the effect.
    Tries { from: usize, rate: f64 },
    /// Stays for so many windows.
    Rests(u32),
}

impl Auto {
    /// Begins with so many connections; 0 for a number that suits the round-trip time.
    pub const fn new(first: usize) -> Self {
        let state = State::Tries { from: 0, rate: 0.0 };
        let (window, last, best) = (None, None, 0.0);
        Self { count: first, window, last, best, state, rest: REST[0], arrived: 0, waited: 0 }
    }

    /// The rate of a window that has just ended, in bits a second, and whether there was a queue.
    fn measure(&mut self, sample: &Sample) -> Option<(f64, bool)> {
        let Sample { now, delivered, rtt, base_rtt, .. } = *sample;
        let length = rtt.mul_f64(ROUND_TRIPS).clamp(WINDOW[0], WINDOW[1]);
        let window = self.window.get_or_insert(Window { start: now, delivered, rtt });
        window.rtt = window.rtt.min(rtt);
        if now.since(window.start) < length {
            return None;
        }
        let rate = Rate::of(delivered - window.delivered, now.since(window.start))?;
        let queued = window.rtt > base_rtt + base_rtt.mul_f64(QUEUED).max(QUEUED_LEAST);
        self.window = None;
        Some((rate.as_bits_per_sec() as f64, queued))
    }

    fn try_other(&mut self, count: usize, rate: f64) {
        self.state = State::Tries { from: self.count, rate };
        self.count = count;
        self.last = None;
        (self.arrived, self.waited) = (0, 0);
    }

    /// Waits for connections that are missing, and makes do with those there are when no more come.
    fn wait(&mut self, connections: usize) {
        self.waited += 1;
        if connections > self.arrived {
            (self.arrived, self.waited) = (connections, 0);
        }
        if self.waited >= PATIENCE {
            self.count = connections.max(1);
            self.rest = (self.rest * 2).min(REST[1]);
            self.state = State::Rests(self.rest);
        }
    }

    /// As many more as the rate falls short by, but no more than twice as many.
    fn grow(&mut self, rate: f64, factor: f64) {
        let factor = (self.best / rate).clamp(factor, 2.0);
        self.try_other(((self.count as f64 * factor).ceil() as usize).min(MAX_CONNECTIONS), rate);
    }

    /// Back to the count before: the other brought nothing.
    fn take_back(&mut self, count: usize, rate: f64) {
        self.count = count;
        self.best = rate;
        self.rest = (self.rest * 2).min(REST[1]);
        self.state = State::Rests(self.rest);
    }

    /// What the rate of the last window, which no longer grows, means for the count.
    fn decide(&mut self, rate: f64, queued: bool) {
        match self.state {
            State::Tries { from, rate: before } if from < self.count => {
                // What fell was not the rate of that count, but that of its beginning.
                let settled = rate * GROWS >= before;
                if queued {
                    self.state = State::Rests(REST[0]);
                } else if rate < before * WORTH && settled {
                    self.take_back(from, rate);
                } else {
                    self.grow(rate, 2.0);
                }
            }
            State::Tries { from, rate: before } if rate < before * EQUAL => {
                self.take_back(from, before);
            }
            State::Tries { .. } => self.state = State::Rests(REST[0]),
            State::Rests(_) if !queued && rate < self.best * SHORT => self.grow(rate, 1.25),
            State::Rests(left) if left > 0 => self.state = State::Rests(left - 1),
            State::Rests(_) if queued && self.count > 1 => {
                self.try_other((self.count * 3 / 4).max(1), rate);
            }
            State::Rests(_) if !queued => self.grow(rate, 1.5),
            State::Rests(_) => {}
        }
    }
}

impl Controller for Auto {
    fn connections(&mut self, sample: &Sample) -> usize {
        if self.count == 0 {
            let count = sample.base_rtt.as_nanos() / FIRST_PER.as_nanos();
            self.count = (count as usize).clamp(FIRST[0], FIRST[1]);
        }
        // Connections still on their way: nothing can be told of the count yet.
        let incomplete = sample.connections < self.count
            && matches!(self.state, State::Tries { from, .. } if from < self.count);
        if sample.idle || incomplete {
            self.window = None;
            // Of a stream with nothing to send no connections are opened.
            if !sample.idle {
                self.wait(sample.connections);
            }
        } else if let Some((rate, queued)) = self.measure(sample) {
            let grows = self.last.is_none_or(|last| rate > last * GROWS);
            self.last = Some(rate);
            self.best = rate.max(self.best * FADE);
            // Nothing at all is an outage, and no reason for anything.
            if !grows && rate > 0.0 {
                self.decide(rate, queued);
            }
        }
        self.count
    }
}
