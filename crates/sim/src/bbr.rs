//! A flow under BBR, version 1, as a rival: Cardwell et al., "BBR: congestion-based congestion
//! control", 2017, and draft-cardwell-iccrg-bbr-congestion-control-00, with the numbers of Linux.
//!
//! Only what matters to others on the path is modelled: an endless flow of full packets, each
//! answered at once, lost when three sent later have arrived. Nothing is sent again, for an endless
//! flow is not whole anyway.

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::VecDeque;

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};
use units::Instant;

use crate::{Arrived, Datagram, Node, World};

/// UDP payload of a packet that fills 1500 bytes, and of an answer.
const PACKET: usize = 1472;
const ANSWER: usize = 40;
/// Packets in flight at the start, and the fewest.
const INITIAL_WINDOW: f64 = 10.0;
const MIN_WINDOW: f64 = 4.0;
/// 2/ln 2: doubles the rate each round trip.
const HIGH_GAIN: f64 = 2.885;
/// Factors of the pace, each for a least round-trip time.
const CYCLE: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
const WINDOW_GAIN: f64 = 2.0;
/// The pace stays a little below what was measured.
const MARGIN: f64 = 0.99;
/// Rounds that the best rate is remembered for.
const RATE_ROUNDS: u64 = 10;
/// The pipe is full when the rate grew less than this for three rounds.
const GROWTH: f64 = 1.25;
/// How long the least round-trip time is believed, and how long it is then looked for.
const RTT_MEMORY: Duration = Duration::from_secs(10);
const RTT_PROBE: Duration = Duration::from_millis(200);
/// Packets sent later that must have arrived before one is lost.
const REORDER: u64 = 3;
/// Without an answer for so long all is lost.
const TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    Startup,
    Drain,
    ProbeBw { phase: usize, since: Instant },
    ProbeRtt { until: Option<Instant>, filled: bool },
}

/// A packet in flight.
struct Sent {
    number: u64,
    at: Instant,
    delivered: u64,
    delivered_at: Instant,
    first_at: Instant,
}

/// One end of a flow.
pub struct Bbr {
    address: SocketAddr,
    /// The far end does nothing but answer.
    peer: Option<SocketAddr>,
    /// Packets that arrived here.
    pub received: u64,
    /// Packets to be sent in all.
    packets: u64,
    start: Instant,
    mode: Mode,
    next_number: u64,
    next_send: Instant,
    flight: VecDeque<Sent>,
    window: f64,
    prior_window: f64,
    /// In the first round after a loss only as much is sent as arrives.
    conserves_until: Option<u64>,
    delivered: u64,
    delivered_at: Instant,
    first_at: Instant,
    round: u64,
    round_ends: u64,
    rates: VecDeque<(u64, f64)>,
    full: (f64, u32),
    least_rtt: (Duration, Instant),
    lost_in_phase: bool,
    random: Pcg64Mcg,
}

impl Bbr {
    /// Both ends of flow `number`, which begins `start` after the world.
    pub fn pair(number: usize, start: Duration, seed: u64) -> [Self; 2] {
        let begins = World::<Self>::START + start;
        let end = |side: u8| Self {
            address: ([10, side, number as u8, 1], 5201).into(),
            peer: None,
            received: 0,
            packets: u64::MAX,
            start: begins,
            mode: Mode::Startup,
            next_number: 0,
            next_send: begins,
            flight: VecDeque::new(),
            window: INITIAL_WINDOW,
            prior_window: INITIAL_WINDOW,
            conserves_until: None,
            delivered: 0,
            delivered_at: begins,
            first_at: begins,
            round: 0,
            round_ends: 0,
            rates: VecDeque::new(),
            full: (0.0, 0),
            least_rtt: (Duration::from_secs(1), begins),
            lost_in_phase: false,
            random: Pcg64Mcg::seed_from_u64(seed),
        };
        let (mut near, far) = (end(0), end(1));
        near.peer = Some(far.address);
        [near, far]
    }

    /// Sends no more than so many bytes.
    pub fn limited_to(self, bytes: u64) -> Self {
        Self { packets: bytes / PACKET as u64, ..self }
    }

    fn is_done(&self) -> bool {
        self.next_number >= self.packets
    }

    /// Packets a second.
    fn rate(&self) -> f64 {
        let best = self.rates.iter().map(|&(_, rate)| rate).fold(0.0, f64::max);
        let first = INITIAL_WINDOW / self.least_rtt.0.min(Duration::from_millis(100)).as_secs_f64();
        if best > 0.0 { best } else { first }
    }

    fn bdp(&self, gain: f64) -> f64 {
        gain * self.rate() * self.least_rtt.0.as_secs_f64() + 3.0
    }

    fn gains(&self) -> (f64, f64) {
        match self.mode {
            Mode::Startup => (HIGH_GAIN, HIGH_GAIN),
            Mode::Drain => (1.0 / HIGH_GAIN, HIGH_GAIN),
            Mode::ProbeBw { phase, .. } => (CYCLE[phase], WINDOW_GAIN),
            Mode::ProbeRtt { .. } => (1.0, 1.0),
        }
    }

    fn on_answer(&mut self, now: Instant, number: u64) {
        let Ok(place) = self.flight.binary_search_by_key(&number, |sent| sent.number) else {
            return;
        };
        let Some(sent) = self.flight.remove(place) else { return };
        self.delivered += 1;
        self.delivered_at = now;
        self.first_at = sent.at;
        let before = self.flight.len();
        while self.flight.front().is_some_and(|front| front.number + REORDER < number) {
            self.flight.pop_front();
        }
        let lost = before - self.flight.len();
        let rtt = now.since(sent.at);
        let took = now.since(sent.delivered_at).max(sent.at.since(sent.first_at));
        let rate = (self.delivered - sent.delivered) as f64 / took.as_secs_f64().max(1e-6);
        let round_began = sent.delivered >= self.round_ends;
        if round_began {
            self.round_ends = self.delivered;
            self.round += 1;
        }
        self.rates.push_back((self.round, rate));
        let round = self.round;
        while self.rates.front().is_some_and(|&(at, _)| at + RATE_ROUNDS < round) {
            self.rates.pop_front();
        }
        // A rate below a later one says nothing any more.
        while self.rates.len() > 1 && self.rates[self.rates.len() - 2].1 <= rate {
            let place = self.rates.len() - 2;
            self.rates.remove(place);
        }
        self.on_loss(lost);
        self.next_mode(now, round_began);
        self.look_for_rtt(now, rtt);
        self.set_window();
    }

    fn on_loss(&mut self, lost: usize) {
        if self.conserves_until.is_some_and(|round| self.round >= round) {
            self.conserves_until = None;
            self.window = self.window.max(self.prior_window);
        }
        if lost == 0 {
            return;
        }
        self.lost_in_phase = true;
        if self.conserves_until.is_none() {
            self.prior_window = self.window;
            self.window = self.flight.len() as f64 + 1.0;
            self.conserves_until = Some(self.round + 1);
        }
    }

    fn next_mode(&mut self, now: Instant, round_began: bool) {
        let flight = self.flight.len() as f64;
        match self.mode {
            Mode::Startup if round_began => {
                let (best, still) = self.full;
                let grew = self.rate() >= best * GROWTH;
                self.full = if grew { (self.rate(), 0) } else { (best, still + 1) };
                if self.full.1 >= 3 {
                    self.mode = Mode::Drain;
                }
            }
            Mode::Drain if flight <= self.bdp(1.0) => self.probe_bw(now),
            Mode::ProbeBw { phase, since } => {
                let long = now.since(since) > self.least_rtt.0;
                let over = match CYCLE[phase] {
                    gain if gain > 1.0 => long && (self.lost_in_phase || flight >= self.bdp(gain)),
                    gain if gain < 1.0 => long || flight <= self.bdp(1.0),
                    _ => long,
                };
                if over {
                    self.lost_in_phase = false;
                    self.mode = Mode::ProbeBw { phase: (phase + 1) % CYCLE.len(), since: now };
                }
            }
            _ => {}
        }
    }

    fn probe_bw(&mut self, now: Instant) {
        // Any phase but the second.
        let phase = (self.random.next_u64() % 7 + 2) as usize % CYCLE.len();
        self.mode = Mode::ProbeBw { phase, since: now };
    }

    fn look_for_rtt(&mut self, now: Instant, rtt: Duration) {
        let (least, at) = self.least_rtt;
        let expired = now.since(at) > RTT_MEMORY;
        if rtt <= least || expired {
            self.least_rtt = (rtt, now);
        }
        match &mut self.mode {
            Mode::ProbeRtt { until: Some(until), filled } if now >= *until => {
                let filled = *filled;
                self.least_rtt.1 = now;
                self.window = self.window.max(self.prior_window);
                if filled { self.probe_bw(now) } else { self.mode = Mode::Startup }
            }
            Mode::ProbeRtt { until: until @ None, .. }
                if self.flight.len() as f64 <= MIN_WINDOW =>
            {
                *until = Some(now + RTT_PROBE);
            }
            Mode::ProbeRtt { .. } => {}
            _ if expired => {
                self.prior_window = self.window;
                self.mode = Mode::ProbeRtt { until: None, filled: self.full.1 >= 3 };
            }
            _ => {}
        }
    }

    fn set_window(&mut self) {
        if let Mode::ProbeRtt { .. } = self.mode {
            self.window = MIN_WINDOW;
            return;
        }
        let target = self.bdp(self.gains().1);
        if self.conserves_until.is_some() {
            self.window = self.window.max(self.flight.len() as f64 + 1.0);
        } else if self.full.1 >= 3 {
            self.window = (self.window + 1.0).min(target);
        } else if self.window < target || (self.delivered as f64) < INITIAL_WINDOW {
            self.window += 1.0;
        }
        self.window = self.window.max(MIN_WINDOW);
    }

    fn send(&mut self, now: Instant, to: SocketAddr, out: &mut Vec<Datagram>) {
        let has_more = |bbr: &Self| !bbr.is_done() && (bbr.flight.len() as f64) < bbr.window;
        while self.next_send <= now && has_more(self) {
            if self.flight.is_empty() {
                (self.first_at, self.delivered_at) = (now, now);
            }
            let (number, delivered) = (self.next_number, self.delivered);
            self.next_number += 1;
            let (delivered_at, first_at) = (self.delivered_at, self.first_at);
            self.flight.push_back(Sent { number, at: now, delivered, delivered_at, first_at });
            let mut bytes = vec![0; PACKET];
            bytes[..8].copy_from_slice(&number.to_be_bytes());
            out.push(Datagram { to, ecn_capable: false, bytes });
            let pace = self.gains().0 * self.rate() * MARGIN;
            self.next_send = self.next_send.max(now - Duration::from_millis(1))
                + Duration::from_secs_f64(1.0 / pace);
        }
    }
}

impl Node for Bbr {
    fn address(&self) -> SocketAddr {
        self.address
    }

    fn receive(&mut self, now: Instant, arrived: Arrived<'_>, out: &mut Vec<Datagram>) {
        let Arrived { from, bytes, .. } = arrived;
        let number = bytes.first_chunk().map(|bytes| u64::from_be_bytes(*bytes));
        let Some(number) = number else { return };
        if self.peer.is_some() {
            return self.on_answer(now, number);
        }
        self.received += 1;
        let bytes = bytes[..ANSWER].to_vec();
        out.push(Datagram { to: from, ecn_capable: false, bytes });
    }

    fn run(&mut self, now: Instant, out: &mut Vec<Datagram>) {
        let Some(to) = self.peer.filter(|_| now >= self.start) else { return };
        if self.flight.front().is_some_and(|sent| sent.at.max(self.delivered_at) + TIMEOUT <= now) {
            self.flight.clear();
            self.window = MIN_WINDOW;
        }
        self.send(now, to, out);
    }

    fn next(&self) -> Option<Instant> {
        self.peer?;
        let full = self.is_done() || self.flight.len() as f64 >= self.window;
        let oldest = self.flight.front().map(|sent| sent.at.max(self.delivered_at) + TIMEOUT);
        let sends = (!full).then_some(self.next_send);
        sends.into_iter().chain(oldest).min()
    }
}
