//! Paper 5's model of a transport: four processes and their queues at each end, over a network of
//! which nothing is known but how long a packet is under way.
//!
//! Every process is a machine of its own that takes the same time for each packet, so the ends work
//! as pipelines (paper 5, figure 3). A packet's time in the network is T = N [S + W]: a geometric
//! number of hops, each with a link's service, always the same, and an exponential wait. The receiver's state comes
//! back by one of two [`Method`]s, which is what the paper compares.
//!
//! ```
//! use core::time::Duration;
//! use sim::{Exchange, Method};
//!
//! let periodic = Exchange { duration: Duration::from_secs(2), ..Exchange::default() };
//! let acks = Exchange { method: Method::PositiveAck, ..periodic };
//! assert!(periodic.run(1).overhead() < acks.run(1).overhead());
//! ```
mod engine;
mod receiver;
mod transmitter;

use core::time::Duration;

use engine::Engine;

/// How the transmitter learns what has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Both ends send their complete state this often, and later under load.
    Periodic(Duration),
    /// Each packet is acknowledged by itself, and has a timer.
    PositiveAck,
}

/// A transfer that never ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Exchange {
    /// How state comes back.
    pub method: Method,
    /// Packets that may be under way or out of order.
    pub window: u64,
    /// What each process takes for a packet.
    pub processing: Duration,
    /// Mean time between two packets of the session above, exponential.
    pub interarrival: Duration,
    /// Mean time in the network, one way.
    pub delay: Duration,
    /// Mean number of hops, geometric from 1 on.
    pub hops: f64,
    /// The share of S in the mean of S + W.
    pub service: f64,
    /// Probability that a packet is lost, whatever it carries.
    pub error: f64,
    /// Probability that a control packet is lost beside.
    pub control_loss: f64,
    /// When a packet is sent again: a time, which with periodic state is told in reports.
    pub timeout: Duration,
    /// Whether that time counts from the sending, as it does with periodic state anyway, and not
    /// from when a packet is queued to be sent.
    pub timed_when_sent: bool,
    /// How long to run, of which the first tenth is not counted.
    pub duration: Duration,
}

impl Default for Exchange {
    /// The paper's set-up; what it leaves open stands with its rows.
    fn default() -> Self {
        Self {
            method: Method::Periodic(Duration::from_millis(5)),
            window: 1024,
            processing: Duration::from_micros(80),
            interarrival: Duration::from_micros(80),
            delay: Duration::from_millis(5),
            hops: 4.0,
            service: 0.9,
            error: 1e-3,
            control_loss: 0.0,
            timeout: Duration::from_millis(30),
            timed_when_sent: false,
            duration: Duration::from_secs(10),
        }
    }
}

impl Exchange {
    /// Runs it with this seed.
    pub fn run(&self, seed: u64) -> Exchanged {
        Engine::new(self, seed).run()
    }
}

/// What a run has shown, but for its first tenth.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Exchanged {
    /// Seconds that were counted.
    pub seconds: f64,
    /// Packets that the host above got, in order.
    pub delivered: u64,
    /// Data packets sent for the first time, and again.
    pub sent: u64,
    /// See `sent`.
    pub again: u64,
    /// Control packets sent, either way.
    pub control: u64,
}

impl Exchanged {
    /// Packets a second.
    pub fn throughput(&self) -> f64 {
        self.delivered as f64 / self.seconds
    }

    /// Data packets sent in vain, for each that was sent first: the paper's wasted traffic.
    pub fn overhead(&self) -> f64 {
        self.again as f64 / self.sent.max(1) as f64
    }

    fn since(&self, before: &Self) -> Self {
        Self {
            seconds: self.seconds - before.seconds,
            delivered: self.delivered - before.delivered,
            sent: self.sent - before.sent,
            again: self.again - before.again,
            control: self.control - before.control,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A network that loses and waits for nothing.
    fn calm(method: Method) -> Exchange {
        let duration = Duration::from_secs(2);
        Exchange { method, error: 0.0, delay: Duration::ZERO, duration, ..Exchange::default() }
    }

    const METHODS: [Method; 2] = [Method::PositiveAck, Method::Periodic(Duration::from_millis(5))];

    #[test]
    fn the_slower_of_source_and_processes_sets_the_rate() {
        for method in METHODS {
            for (processing, interarrival) in [(100, 50), (40, 80)] {
                let us = Duration::from_micros;
                let (processing, interarrival) = (us(processing), us(interarrival));
                let run = Exchange { processing, interarrival, ..calm(method) }.run(3);
                let expected = 1.0 / processing.max(interarrival).as_secs_f64();
                // The transmitter's state takes its share of the process that sends.
                let near = (0.97..1.02).contains(&(run.throughput() / expected));
                assert!(near, "{method:?}: {run:?} instead of {expected}");
                assert_eq!(run.again, 0, "{method:?}");
            }
        }
    }

    #[test]
    fn a_window_over_the_round_trip_time() {
        let (delay, timeout) = (Duration::from_millis(20), Duration::from_secs(9));
        let run = Exchange { window: 64, delay, hops: 1.0, timeout, ..calm(Method::PositiveAck) };
        // With equal delays it would be 64 packets each 40 ms; that the first of the window may be
        // the last to be acknowledged costs a part of that.
        let (found, most) = (run.run(1).throughput(), 64.0 / 0.04);
        assert!((most / 3.0..most).contains(&found), "{found}");
    }

    #[test]
    fn losses_are_repaired_and_the_seed_fixes_all() {
        for method in METHODS {
            let duration = Duration::from_secs(2);
            let run = Exchange { method, error: 0.01, duration, ..Exchange::default() };
            let shown = run.run(7);
            assert!(shown.again as f64 >= 0.009 * shown.sent as f64, "{shown:?}");
            assert!(shown.delivered > shown.sent * 9 / 10, "{shown:?}");
            assert_eq!(shown, run.run(7));
            assert_ne!(shown, run.run(8));
        }
    }
}
