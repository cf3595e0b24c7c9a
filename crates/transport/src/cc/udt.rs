//! UDT (draft-gg-udt-03, section 6): a rate that grows by decimal steps of what is left of the
//! capacity, and shrinks by an eighth at a loss; and UDT-G (paper 4), which believes at once that
//! the capacity fell.
//!
//! Where our reports stand for UDT's packets:
//! - **ACK**: a report; the first in each [`SYN`] is UDT's ACK, and takes the step.
//! - **Receive rate**: UDT's receiver filters the gaps between arrivals. Our reports say what had
//!   arrived by when: the same filter takes the mean gaps between one report and the next, each as often as
//!   packets came in it. Else who sends a window in one go would take the pause behind it for the path's.
//! - **Capacity**: told by the receiver as in UDT, the median of 16 pairs (`pairs`).
//! - **NAK**: UDT's receiver sends one for each gap in the numbers, at once. Ours is a gap that a
//!   report settles as lost, later by the reorder margin. Of the gaps in a report only the
//!   oldest's and the newest's times are known; the others count as evenly spread.
//! - **Numbers**: what is sent again has a new number, so that "sent after the last decrease" is
//!   told by time.
//!
//! Beside one TCP flow at 100 Mbit/s, 100 ms and a queue of 1000 packets the authors' ns-2 model takes 65 Mbit/s and
//! leaves TCP 32; ours takes 81 and leaves 13, of 100 s. That model differs from the draft and from UDT 4.11:
//! `docs/book/papers.md` tells in what, and what each of it does.
//!
//! Nothing is done at a time-out: UDT queues its whole window again then, a known defect. The
//! period is not rounded up to whole microseconds, another.

use core::time::Duration;
use std::collections::VecDeque;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use units::{Bytes, Instant, Rate};

use super::{AckSample, Controller};

/// The time between two steps, in UDT the period of ACKs.
const SYN: Duration = Duration::from_millis(10);
/// In flight at the start, and beyond what the receive rate fills; in packets.
const MARGIN: f64 = 16.0;
/// The largest window: slow start ends there at the latest.
const MAX_WINDOW: f64 = 25_600.0;
/// Mean gaps that the receive rate is made of, and the share of their packets that must agree.
const GAPS: usize = 16;
const AGREEING: f64 = 0.5;
/// Fewer do not agree: one that a late host made says nothing.
const FEWEST: usize = 4;
/// Gaps agree that lie within this factor of their median.
const SPREAD: f64 = 8.0;
/// One packet of so many goes out together with the next.
const PAIR_EVERY: u32 = 16;
/// A decrease makes the period longer by this factor, again at most [`MAX_DECREASES`] times
/// within one congestion.
const DECREASE: f64 = 1.125;
const MAX_DECREASES: u32 = 5;
/// The share of a new value in what is smoothed.
const SMOOTHING: f64 = 1.0 / 8.0;
/// UDP and IPv4 headers: UDT counts packets with them.
const HEADERS: u64 = 28;

/// See the module. Rates are in packets a second, the period in seconds.
#[derive(Debug)]
pub(super) struct Udt {
    /// The share of a capacity below the average in the average: UDT-G's alpha.
    alpha: f64,
    slow_start: bool,
    window: f64,
    period: f64,
    /// The period at the last decrease; the shortest before any.
    decreased_from: f64,
    next_step: Instant,
    /// A loss was told since the last step.
    loss: bool,
    congestion: Congestion,
    arrivals: Arrivals,
    /// Smoothed receive rate and capacity.
    receive_rate: f64,
    capacity: f64,
    datagram: Bytes,
    rtt: Duration,
    /// When the latest report came, and how long lately passes between two of them.
    reported: (Instant, Duration),
    /// Packets sent since the last pair.
    unpaired: u32,
    random: ChaCha8Rng,
}

/// The losses since the window's rate was first decreased for them.
#[derive(Debug, Default)]
struct Congestion {
    /// What was sent before was sent before the last decrease.
    decreased_at: Option<Instant>,
    naks: u32,
    average_naks: f64,
    decreases: u32,
    /// Every so many NAKs decrease again.
    every: u32,
}

/// When packets arrived, by the receiver's clock.
#[derive(Debug, Default)]
struct Arrivals {
    last: (Bytes, Instant),
    /// Bytes, and the seconds in which they came.
    gaps: VecDeque<(f64, f64)>,
}

impl Arrivals {
    fn on_report(&mut self, received: (Bytes, Instant)) {
        let (bytes, at) = self.last;
        if received.1 <= at || received.0 <= bytes {
            return;
        }
        if bytes > Bytes::ZERO {
            if self.gaps.len() == GAPS {
                self.gaps.pop_front();
            }
            let more = (received.0 - bytes).0 as f64;
            self.gaps.push_back((more, received.1.since(at).as_secs_f64()));
        }
        self.last = received;
    }

    /// Bytes a second, when enough gaps agree.
    fn rate(&self) -> Option<f64> {
        let gap = |&(bytes, seconds): &(f64, f64)| seconds / bytes;
        let bytes = |gaps: &[(f64, f64)]| gaps.iter().map(|one| one.0).sum::<f64>();
        let mut sorted: Vec<_> = self.gaps.iter().copied().collect();
        sorted.sort_unstable_by(|a, b| gap(a).total_cmp(&gap(b)));
        let (all, mut shorter) = (bytes(&sorted), 0.0);
        let median = sorted.iter().find(|one| {
            shorter += one.0;
            shorter > all / 2.0
        });
        let median = median.map(gap)?;
        sorted.retain(|one| (median / SPREAD..median * SPREAD).contains(&gap(one)));
        let agreeing = bytes(&sorted);
        let seconds: f64 = sorted.iter().map(|one| one.1).sum();
        let enough = self.gaps.len() > GAPS / 2 && sorted.len() >= FEWEST;
        (enough && agreeing > all * AGREEING).then(|| agreeing / seconds)
    }
}

impl Udt {
    /// UDT; UDT-G with an `alpha` above 1/8, where the paper uses 1.
    pub(super) fn new(alpha: f64, seed: u64) -> Self {
        Self {
            alpha,
            slow_start: true,
            window: MARGIN,
            period: 1e-6,
            decreased_from: 1e-6,
            next_step: Instant::ZERO,
            loss: false,
            congestion: Congestion { average_naks: 1.0, ..Congestion::default() },
            arrivals: Arrivals::default(),
            receive_rate: MARGIN,
            capacity: 1.0,
            datagram: Bytes(1200),
            rtt: Duration::from_millis(100),
            reported: (Instant::ZERO, SYN),
            unpaired: 0,
            random: ChaCha8Rng::seed_from_u64(seed),
        }
    }

    pub(super) const ALPHA: f64 = SMOOTHING;
    pub(super) const ALPHA_G: f64 = 1.0;

    fn smooth(average: &mut f64, new: f64, share: f64) {
        *average += (new - *average) * share;
    }

    fn on_syn(&mut self, sample: &AckSample) {
        let datagram = self.datagram.0 as f64;
        if let Some(rate) = self.arrivals.rate() {
            Self::smooth(&mut self.receive_rate, rate / datagram, SMOOTHING);
        }
        if let Some(rate) = sample.capacity {
            let new = rate.as_bits_per_sec() as f64 / 8.0 / datagram;
            let share = if new >= self.capacity { SMOOTHING } else { self.alpha };
            Self::smooth(&mut self.capacity, new, share);
        }
        if self.slow_start {
            return;
        }
        // Who is told less often must send on for longer.
        let period = self.reported.1.min(self.rtt).max(SYN);
        let horizon = (self.rtt + period).as_secs_f64();
        self.window = (self.receive_rate * horizon + MARGIN).min(MAX_WINDOW);
        if !core::mem::take(&mut self.loss) {
            self.increase();
        }
    }

    fn increase(&mut self) {
        let packet = (self.datagram.0 + HEADERS) as f64;
        let mut left = self.capacity - 1.0 / self.period;
        if self.period > self.decreased_from {
            left = left.min(self.capacity / 9.0);
        }
        let step = if left > 0.0 {
            10f64.powf((left * packet * 8.0).log10().ceil()) * 1.5e-6 / packet
        } else {
            0.0
        };
        // Packets more in the next SYN than in this one.
        let more = step.max(1.0 / packet);
        let syn = SYN.as_secs_f64();
        self.period = self.period * syn / (self.period * more + syn);
    }

    fn leave_slow_start(&mut self) {
        self.slow_start = false;
        self.period = 1.0 / self.receive_rate;
    }

    fn on_nak(&mut self, now: Instant, sent: Instant) {
        self.loss = true;
        if self.slow_start {
            return self.leave_slow_start();
        }
        let congestion = &mut self.congestion;
        congestion.naks += 1;
        if congestion.decreased_at.is_none_or(|at| sent > at) {
            let naks = f64::from(core::mem::take(&mut congestion.naks));
            Self::smooth(&mut congestion.average_naks, naks, SMOOTHING);
            let most = congestion.average_naks.ceil().max(1.0) as u64;
            congestion.every = 1 + (self.random.next_u64() % most) as u32;
            congestion.decreases = 0;
            self.decreased_from = self.period;
        } else if congestion.decreases < MAX_DECREASES
            && congestion.naks.is_multiple_of(congestion.every)
        {
            congestion.decreases += 1;
        } else {
            return;
        }
        self.congestion.decreased_at = Some(now);
        self.period *= DECREASE;
    }
}

impl Controller for Udt {
    fn on_start(&mut self, now: Instant, rtt: Duration) {
        self.rtt = rtt;
        self.next_step = now + SYN;
        self.reported.0 = now;
    }

    fn on_sent(&mut self, _now: Instant, amount: Bytes, _in_flight: Bytes) {
        let packets = amount.0.div_ceil(self.datagram.0) as u32;
        self.unpaired = if packets > 1 { 0 } else { self.unpaired + packets };
    }

    fn on_ack(&mut self, sample: &AckSample) {
        self.datagram = sample.datagram;
        self.rtt = sample.smoothed_rtt;
        let (before, period) = self.reported;
        self.reported = (sample.now, sample.now.since(before).max(period * 7 / 8));
        self.arrivals.on_report(sample.received);
        if self.slow_start {
            self.window += sample.acked.0 as f64 / self.datagram.0 as f64;
        }
        if sample.now >= self.next_step {
            self.next_step = (self.next_step + SYN).max(sample.now - SYN);
            self.on_syn(sample);
        }
        if let Some((oldest, newest)) = sample.lost_sent {
            let steps = sample.gaps.saturating_sub(1).max(1);
            for gap in 0..sample.gaps {
                self.on_nak(sample.now, oldest + newest.since(oldest) * gap / steps);
            }
        }
        if self.slow_start && self.window >= MAX_WINDOW {
            self.window = MAX_WINDOW;
            self.leave_slow_start();
        }
    }

    fn window(&self) -> Bytes {
        Bytes((self.window * self.datagram.0 as f64) as u64)
    }

    fn state(&self) -> &'static str {
        if self.slow_start { "slow_start" } else { "congestion_avoidance" }
    }

    fn pacing_rate(&self) -> Rate {
        Rate::from_bits_per_sec((self.datagram.0 as f64 * 8.0 / self.period) as u64)
    }

    fn train(&self) -> usize {
        if self.unpaired + 2 >= PAIR_EVERY { 2 } else { 1 }
    }

    fn wants_pairs(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKET: Bytes = Bytes(1472);

    /// A flow past slow start at `rate` packets a second, on a path of `capacity`.
    fn flow(rate: f64, capacity: f64, alpha: f64) -> Udt {
        let mut udt = Udt::new(alpha, 1);
        (udt.datagram, udt.capacity, udt.slow_start) = (PACKET, capacity, false);
        (udt.period, udt.decreased_from) = (1.0 / rate, 1.0 / rate);
        udt
    }

    #[test]
    fn the_step_is_the_drafts() {
        // 100 to 1000 Mbit/s left of 1 Gbit/s: 10^9 x 1.5e-6 / 1500 = 1 packet a SYN.
        let left = [(75_000.0, 1.0), (7_500.0, 0.1), (750.0, 0.01), (-10.0, 1.0 / 1500.0)];
        for (left, more) in left {
            let mut udt = flow(8000.0, 8000.0 + left, Udt::ALPHA);
            udt.increase();
            let grown = (1.0 / udt.period - 8000.0) * SYN.as_secs_f64();
            assert!((grown / more - 1.0).abs() < 1e-6, "{left}: {grown}");
        }
    }

    #[test]
    fn below_the_last_decrease_a_ninth_of_the_capacity_bounds_the_step() {
        let mut udt = flow(8000.0, 83_000.0, Udt::ALPHA);
        udt.decreased_from = udt.period / 2.0;
        udt.increase();
        // A ninth is 110 Mbit/s; then 10^9 still rules. Of a tenth of it 10^8 does.
        assert!((1.0 / udt.period - 8100.0).abs() < 1e-3);
        udt.capacity = 16_600.0;
        udt.increase();
        assert!((1.0 / udt.period - 8110.0).abs() < 1e-3);
    }

    #[test]
    fn a_congestion_decreases_the_rate_six_times_at_most() {
        let mut udt = flow(8000.0, 8000.0, Udt::ALPHA);
        let (sent, now) = (Instant::from_nanos(1), Instant::from_nanos(100));
        for _ in 0..1000 {
            udt.on_nak(now, sent);
        }
        assert!((udt.period * 8000.0 / DECREASE.powi(6) - 1.0).abs() < 1e-9, "{}", udt.period);
        udt.on_nak(now, now + SYN);
        assert!((udt.period * 8000.0 / DECREASE.powi(7) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn udt_g_believes_at_once_that_the_capacity_fell() {
        let told = |alpha, packets: f64| {
            let mut udt = flow(8000.0, 8000.0, alpha);
            let capacity = Rate::from_bits_per_sec((packets * PACKET.0 as f64 * 8.0) as u64);
            udt.on_syn(&AckSample { capacity: Some(capacity), ..AckSample::default() });
            udt.capacity.round()
        };
        assert_eq!([4000.0, 16_000.0].map(|new| told(Udt::ALPHA, new)), [7500.0, 9000.0]);
        assert_eq!([4000.0, 16_000.0].map(|new| told(Udt::ALPHA_G, new)), [4000.0, 9000.0]);
    }

    #[test]
    fn the_receive_rate_leaves_out_pauses() {
        let (mut arrivals, mut at, mut bytes) = (Arrivals::default(), Instant::ZERO, 0);
        for report in 0..40 {
            at += Duration::from_millis(if report % 8 == 0 { 500 } else { 1 });
            bytes += 1000;
            arrivals.on_report((Bytes(bytes), at));
        }
        assert!((arrivals.rate().unwrap() / 1e6 - 1.0).abs() < 1e-9);
    }

    /// A window of 50 packets goes out in 5 ms of each 465: the pauses are the sender's.
    #[test]
    fn the_receive_rate_is_not_that_of_a_window() {
        let (mut arrivals, mut at, mut bytes) = (Arrivals::default(), Instant::ZERO, 0);
        for _ in 0..20 {
            for (packets, millis) in [(20, 2), (22, 2), (1, 60), (4, 70), (2, 331)] {
                at += Duration::from_millis(millis);
                bytes += packets * 1472;
                arrivals.on_report((Bytes(bytes), at));
            }
        }
        let rate = arrivals.rate().unwrap() / 1472.0;
        assert!((9_000.0..12_000.0).contains(&rate), "{rate} packets a second");
    }
}
