//! What the classic window controllers share: slow start, one reduction for a round trip of
//! losses (RFC 6582; RFC 9002, section 7.3.2), a restart after persistent congestion (section
//! 7.6), and a pace derived from the window (section 7.7). How the window grows when slow start
//! is over, and how far it shrinks, is an [`Avoidance`]: `newreno` and `cubic`.
//!
//! Windows are counted in packets, as TCP's are, so that a larger datagram makes a larger window.

use core::time::Duration;

use units::{Bytes, Instant, Rate};

use super::hystart::{Growth, HyStart};
use super::{AckSample, Controller};

/// In flight at the start (RFC 6928).
const INITIAL_WINDOW: f64 = 10.0;
/// The least window (RFC 9002, section 7.2).
const MIN_WINDOW: f64 = 2.0;
/// The largest: 1.5 TB in flight at full size, far beyond what memory bounds.
const MAX_WINDOW: f64 = 1e9;
/// The round-trip time that the pace assumes before it is known (RFC 9002, section 6.2.2).
const INITIAL_RTT: Duration = Duration::from_millis(333);
/// The pace, in windows a round trip: a little more than one, so that the window rules. Slow
/// start doubles the window within the round.
const PACING_GAIN: f64 = 1.25;
const SLOW_START_GAIN: f64 = 2.0;
/// Losses over so many times the longest wait for an answer, with nothing arrived between,
/// are persistent congestion (RFC 9002, section 7.6.1).
const PERSISTENT: u32 = 3;

/// How a window grows when slow start is over, and shrinks. Windows are in packets.
pub(super) trait Avoidance: Send + core::fmt::Debug {
    /// The window after a round trip with losses, from the one before.
    fn reduced(&mut self, window: f64) -> f64;
    /// The window after `acked` packets more have arrived.
    fn grown(&mut self, now: Instant, window: f64, acked: f64, rtt: Duration) -> f64;
    /// The window was not filled until `now`: that time does not count.
    fn on_idle(&mut self, _now: Instant) {}
    /// All that was learnt of the path is void.
    fn forget(&mut self);
}

/// A controller made of slow start and an [`Avoidance`].
#[derive(Debug)]
pub(super) struct Window<A> {
    avoidance: A,
    window: f64,
    /// Slow start ends here (TCP's `ssthresh`); infinite before the first congestion.
    threshold: f64,
    hystart: HyStart,
    /// Losses of packets sent before belong to the last reduction.
    reduced_at: Option<Instant>,
    /// The last reduction goes on until packets arrive that were sent after it began: by then
    /// what arrives is answered with this share of new packets, so that the line does not fall
    /// silent while the flight shrinks (RFC 6937).
    shrinking: Option<f64>,
    rtt: Duration,
    packet: Bytes,
}

impl<A: Avoidance> Window<A> {
    pub(super) fn with(avoidance: A) -> Self {
        Self {
            avoidance,
            window: INITIAL_WINDOW,
            threshold: f64::INFINITY,
            hystart: HyStart::default(),
            reduced_at: None,
            shrinking: None,
            rtt: INITIAL_RTT,
            packet: Bytes(1200),
        }
    }

    fn is_slow_start(&self) -> bool {
        self.window < self.threshold
    }

    /// Reduces the window, unless what was sent at `last` left before the last reduction.
    fn reduce(&mut self, now: Instant, last: Instant) -> bool {
        if self.reduced_at.is_some_and(|at| last <= at) {
            return false;
        }
        self.threshold = self.avoidance.reduced(self.window).max(MIN_WINDOW);
        self.shrinking = Some(self.threshold / self.window);
        self.reduced_at = Some(now);
        true
    }

    fn on_lost(&mut self, sample: &AckSample, (first, last): (Instant, Instant)) {
        if !self.reduce(sample.now, last) {
            return;
        }
        let nothing_between = sample.acked_sent.is_none_or(|(oldest, _)| oldest > last);
        if nothing_between && last.since(first) > sample.patience * PERSISTENT {
            self.window = MIN_WINDOW;
            self.avoidance.forget();
        }
    }

    /// Whether the last reduction is not over yet.
    fn is_shrinking(&mut self, sample: &AckSample) -> bool {
        let Some(share) = self.shrinking else { return false };
        let over = sample.acked_sent.is_some_and(|(_, latest)| Some(latest) > self.reduced_at);
        let packets = |bytes: Bytes| bytes.0 as f64 / self.packet.0 as f64;
        let gone = packets(sample.lost) + packets(sample.acked) * (1.0 - share);
        let left = if over { 0.0 } else { self.window - gone };
        // It may be smaller already, after persistent congestion.
        self.window = left.max(self.threshold.min(self.window));
        self.shrinking = self.shrinking.filter(|_| !over);
        !over
    }

    fn on_arrived(&mut self, sample: &AckSample, latest: Instant) {
        let before = sample.in_flight.0 + sample.acked.0 + sample.lost.0;
        // Half a window in use is enough, for the pace and batches leave some of it empty.
        if ((before * 2) as f64) < self.window * self.packet.0 as f64 {
            return self.avoidance.on_idle(sample.now);
        }
        let acked = sample.acked.0 as f64 / self.packet.0 as f64;
        if !self.is_slow_start() {
            let grown = self.avoidance.grown(sample.now, self.window, acked, self.rtt);
            self.window = grown.min(MAX_WINDOW);
            return;
        }
        let growth = if self.threshold.is_infinite() {
            self.hystart.on_report(sample.now, sample.rtt, latest)
        } else {
            Growth::Full
        };
        match growth {
            Growth::Full => self.window += acked,
            Growth::Slow => self.window += acked / HyStart::DIVISOR,
            Growth::Over => self.threshold = self.window,
        }
        self.window = self.window.min(self.threshold).min(MAX_WINDOW);
    }
}

impl<A: Avoidance> Controller for Window<A> {
    fn on_start(&mut self, _now: Instant, rtt: Duration) {
        self.rtt = rtt;
    }

    fn on_ack(&mut self, sample: &AckSample) {
        self.rtt = sample.smoothed_rtt;
        self.packet = sample.datagram;
        if let Some(lost) = sample.lost_sent {
            self.on_lost(sample, lost);
        }
        // A mark counts as a loss does (RFC 3168, section 5; RFC 9002, section 7.1).
        if let Some((_, latest)) = sample.acked_sent.filter(|_| sample.marked > 0) {
            self.reduce(sample.now, latest);
        }
        if self.is_shrinking(sample) {
            return;
        }
        if let Some((_, latest)) = sample.acked_sent {
            self.on_arrived(sample, latest);
        }
    }

    fn state(&self) -> &'static str {
        match self.shrinking {
            Some(_) => "recovery",
            None if self.is_slow_start() => "slow_start",
            None => "congestion_avoidance",
        }
    }

    fn window(&self) -> Bytes {
        Bytes((self.window * self.packet.0 as f64) as u64)
    }

    fn pacing_rate(&self) -> Rate {
        let gain = if self.is_slow_start() { SLOW_START_GAIN } else { PACING_GAIN };
        let bits = gain * self.window().0 as f64 * 8.0;
        Rate::from_bits_per_sec((bits / self.rtt.as_secs_f64().max(1e-6)) as u64)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::cc) const RTT: Duration = Duration::from_millis(100);
    const PACKET: Bytes = Bytes(1000);

    /// Gives a controller one report a round trip, a window sent in each; the sent times of what
    /// was lost are those of the round's beginning.
    pub(in crate::cc) struct Rounds<C> {
        pub(in crate::cc) cc: C,
        now: Instant,
    }

    impl<C: Controller> Rounds<C> {
        pub(in crate::cc) fn of(mut cc: C) -> Self {
            cc.on_start(Instant::ZERO, RTT);
            Self { cc, now: Instant::from_nanos(1) }
        }

        /// The window in packets, after a round in which so many of its packets were lost.
        pub(in crate::cc) fn round(&mut self, lost: u64) -> f64 {
            let window = self.cc.window();
            let lost_sent = (lost > 0).then_some((self.now, self.now));
            let sent = self.now + Duration::from_nanos(1);
            self.now += RTT;
            self.cc.on_ack(&AckSample {
                acked: window - Bytes(PACKET.0 * lost),
                lost: Bytes(PACKET.0 * lost),
                lost_sent,
                acked_sent: Some((sent, sent)),
                ..self.sample()
            });
            self.cc.window().0 as f64 / PACKET.0 as f64
        }

        fn sample(&self) -> AckSample {
            AckSample { now: self.now, smoothed_rtt: RTT, datagram: PACKET, ..AckSample::default() }
        }
    }

    /// Halves, and grows by one packet a report.
    #[derive(Debug)]
    struct Plain;

    impl Avoidance for Plain {
        fn reduced(&mut self, window: f64) -> f64 {
            window / 2.0
        }
        fn grown(&mut self, _: Instant, window: f64, _: f64, _: Duration) -> f64 {
            window + 1.0
        }
        fn forget(&mut self) {}
    }

    #[test]
    fn slow_start_doubles_and_a_loss_ends_it() {
        let mut rounds = Rounds::of(Window::with(Plain));
        // Datagrams were thought larger before the first report.
        assert_eq!([(); 4].map(|()| rounds.round(0)), [22.0, 44.0, 88.0, 176.0]);
        assert_eq!([1, 0, 0].map(|lost| rounds.round(lost)), [88.0, 89.0, 90.0]);
    }

    #[test]
    fn marks_reduce_the_window_as_a_loss_does_once_a_round_trip() {
        let mut rounds = Rounds::of(Window::with(Plain));
        let before = rounds.round(0);
        let sent = Some((rounds.now + RTT / 2, rounds.now + RTT / 2));
        rounds.now += RTT;
        let acked = rounds.cc.window();
        let marked = AckSample { marked: 3, acked, acked_sent: sent, ..rounds.sample() };
        rounds.cc.on_ack(&marked);
        rounds.cc.on_ack(&marked);
        assert_eq!(rounds.cc.window().0, (before / 2.0) as u64 * PACKET.0);
        assert_eq!(rounds.round(0), before / 2.0 + 1.0);
    }

    #[test]
    fn losses_of_one_round_trip_reduce_the_window_once() {
        let mut rounds = Rounds::of(Window::with(Plain));
        rounds.round(0);
        let sent = rounds.now - Duration::from_millis(1);
        let mut windows = Vec::new();
        for at in [sent, rounds.now, rounds.now + Duration::from_millis(1)] {
            // Of four packets three arrived, which half makes up for, and one is lost.
            let (lost_sent, acked_sent) = (Some((at, at)), Some((sent, sent)));
            let (lost, acked) = (PACKET, Bytes(3 * PACKET.0));
            let sample = AckSample { lost, lost_sent, acked, acked_sent, ..rounds.sample() };
            rounds.cc.on_ack(&sample);
            windows.push((rounds.cc.window().0, rounds.cc.threshold));
        }
        assert_eq!(windows, [(19_500, 11.0), (17_000, 11.0), (14_500, 8.5)]);
    }

    #[test]
    fn a_dead_path_starts_from_the_least_window() {
        let mut rounds = Rounds::of(Window::with(Plain));
        rounds.round(0);
        let patience = RTT * 2;
        let lost_sent = Some((rounds.now, rounds.now + patience * 4));
        let sample = AckSample { lost: PACKET, lost_sent, patience, ..rounds.sample() };
        rounds.cc.on_ack(&sample);
        assert_eq!(rounds.cc.window().0, 2 * PACKET.0);
        assert!(rounds.cc.is_slow_start());
    }

    #[test]
    fn a_window_that_is_not_used_does_not_grow() {
        let mut rounds = Rounds::of(Window::with(Plain));
        let before = rounds.round(0);
        let sample = AckSample {
            acked: PACKET,
            acked_sent: Some((rounds.now, rounds.now)),
            ..rounds.sample()
        };
        rounds.cc.on_ack(&sample);
        assert_eq!(rounds.cc.window().0, before as u64 * PACKET.0);
    }
}
