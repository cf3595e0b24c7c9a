//! When something is due. The transport has few clocks: the pace, the period of exchange, the
//! tail probe, keep-alive and idle time-out; the time-outs of positive acknowledgements; and those of
//! the search for the datagram size, of challenges, and of hints that nobody is there.

use core::time::Duration;

use units::Instant;

use super::{CLOSES, CloseReason, Connection, Phase};
use crate::admission::HALF_OPEN_TIME;
use crate::config::FeedbackKind;
use crate::reordering::usual_margin;

/// What the other end's report may be put off by, beyond the round trip.
const REPORT_DELAY: Duration = Duration::from_millis(20);
/// The most doublings of the tail probe's wait, and its longest.
const MAX_BACKOFF: u32 = 6;
const MAX_PROBE_WAIT: Duration = Duration::from_secs(2);
/// After so many times the patience without an answer the other end may be elsewhere.
pub(super) const LOST: u32 = 3;
/// The least time that a close waits for its answer.
const MIN_CLOSE_WAIT: Duration = Duration::from_millis(25);
/// What arrives after a close is answered no sooner than after this share of a round trip, and this time.
const ECHO_SHARE: u32 = 4;
const MIN_ECHO_PAUSE: Duration = Duration::from_millis(5);

impl Connection {
    /// When to call [`Connection::handle_timeout`] and [`Connection::poll_transmit`] again, if
    /// nothing else happens before; `None` when the connection has ended.
    pub fn poll_timeout(&self) -> Option<Instant> {
        match &self.phase {
            Phase::Closed => None,
            Phase::Closing { next, until, .. } => Some(*next.min(until)),
            Phase::Opening(opening) => Some(opening.next_hello.min(opening.give_up)),
            Phase::Established => {
                let times = [
                    Some(self.idle_at()),
                    self.unreachable_at(),
                    self.probe_at(),
                    self.expiry_at(),
                    self.data_at(),
                    self.feedback.due().filter(|_| self.validated),
                    self.state_at(),
                    self.mtu_at(),
                    self.keep_alive_at(),
                    self.retell.due(),
                    self.candidate.as_ref().map(|candidate| candidate.next),
                ];
                times.into_iter().flatten().min()
            }
        }
    }

    /// Does what has become due.
    pub fn handle_timeout(&mut self, now: Instant) {
        if let Some(trace) = &mut self.trace {
            trace.set_time(now);
        }
        let close_wait = self.close_wait();
        match &mut self.phase {
            Phase::Closed => {}
            Phase::Closing { until, .. } if now >= *until => self.phase = Phase::Closed,
            Phase::Closing { next, .. } => {
                if now >= *next {
                    *next = now + close_wait;
                    self.close_due = true;
                }
            }
            Phase::Opening(opening) => {
                if now >= opening.give_up {
                    self.begin_closing(now, None, CloseReason::NoAnswer);
                }
            }
            Phase::Established => self.handle_established_timeout(now),
        }
    }

    fn handle_established_timeout(&mut self, now: Instant) {
        if now >= self.idle_at() {
            let silent = CloseReason::Silent(self.idle_timeout);
            return self.begin_closing(now, None, silent);
        }
        if self.unreachable_at().is_some_and(|at| now >= at) {
            return self.begin_closing(now, None, CloseReason::Vanished);
        }
        if self.expiry_at().is_some_and(|at| now >= at) {
            self.on_expiry(now, self.retransmit_after());
        }
        if self.probe_at().is_some_and(|at| now >= at) {
            self.backoff = (self.backoff + 1).min(MAX_BACKOFF);
            self.last_eliciting = now;
            self.stats.probes += 1;
            self.ping_due = true;
        }
        if self.keep_alive_at().is_some_and(|at| now >= at) {
            self.last_asked = now;
            self.ping_due = true;
        }
        if let Some(streams) = self.retell.take(now) {
            streams.into_iter().for_each(|id| self.streams.owe(id));
            self.feedback.ask();
        }
        if self.is_unanswered(now, LOST) {
            self.look_back(now);
        }
    }

    /// How long a close waits for its answer, for which the other end's process has to get its turn. A
    /// clock that jumped makes patience endless, but who is silent for the idle time-out is gone anyway.
    pub(super) fn close_wait(&self) -> Duration {
        self.rtt.patience().max(MIN_CLOSE_WAIT).min(self.idle_timeout / CLOSES)
    }

    /// What arrives after a close was most likely sent before that could be heard.
    pub(super) fn echo_pause(&self) -> Duration {
        (self.rtt.smoothed().unwrap_or_default() / ECHO_SHARE).max(MIN_ECHO_PAUSE)
    }

    fn idle_at(&self) -> Instant {
        let patience = if self.validated { self.idle_timeout } else { HALF_OPEN_TIME };
        self.last_received + patience
    }

    fn keep_alive_at(&self) -> Option<Instant> {
        let idle = self.validated && !self.ping_due;
        let wait = self.config.keep_alive.min(self.idle_timeout / 3);
        idle.then(|| self.last_asked.max(self.last_received) + wait)
    }

    /// The tail probe: something is in flight, or may still come though it was given up, or is held back for
    /// want of credit, and nothing more was sent, nor waits for its pace. The first probe only makes the next report cover the tail;
    /// the following ones wait until that report, and the next, cannot come any more.
    fn probe_at(&self) -> Option<Instant> {
        let unsettled = (!self.log.is_empty() || self.log.is_watching()) && !self.acknowledges();
        let waits = unsettled || self.streams.is_blocked();
        if self.ping_due || !self.validated || !waits || self.data_at().is_some() {
            return None;
        }
        let patience = self.rtt.patience();
        let wait = match self.backoff.checked_sub(1) {
            None => {
                usual_margin(patience).max(self.log.margin(patience)) + Duration::from_millis(1)
            }
            Some(doublings) => self.probe_wait((patience + REPORT_DELAY) * (1 << doublings)),
        };
        Some(self.last_eliciting.max(self.progress_at) + wait)
    }

    /// No probe waits for longer: it costs next to nothing, and a queue that was long, or a clock that
    /// jumped, makes patience endless.
    pub(super) fn probe_wait(&self, wait: Duration) -> Duration {
        wait.min(MAX_PROBE_WAIT.max(self.rtt.min() * 2))
    }

    /// Whether something was sent so many times its patience ago, and nothing was answered since.
    pub(super) fn is_unanswered(&self, now: Instant, times: u32) -> bool {
        self.unanswered_since.is_some_and(|since| now > since + self.rtt.patience() * times)
    }

    /// Whether packets are acknowledged one by one, and have time-outs instead of probes.
    pub(super) fn acknowledges(&self) -> bool {
        self.config.feedback == FeedbackKind::PositiveAck
    }

    /// When the oldest packet is given up that was not acknowledged.
    fn expiry_at(&self) -> Option<Instant> {
        let oldest = self.log.oldest().filter(|_| self.validated && self.acknowledges())?;
        Some(oldest + self.retransmit_after())
    }

    /// Doubled with each time-out until something is acknowledged: the path may have become longer.
    /// However steady round trips were, the next packet may queue behind another one, which takes
    /// as long as the whole round trip where the path is narrow.
    fn retransmit_after(&self) -> Duration {
        let usual = || self.rtt.patience().max(self.rtt.smoothed().unwrap_or_default() * 2);
        let once = self.config.retransmit_after.unwrap_or_else(usual);
        (once * (1 << self.expiries.min(MAX_BACKOFF))).min(MAX_PROBE_WAIT.max(once))
    }

    /// When the pace lets the next batch go; `None` when there is nothing to send or no window, for
    /// which resets and stops do not wait.
    fn data_at(&self) -> Option<Instant> {
        let is_open = self.log.in_flight() < self.cc.window().0 && !self.log.is_full();
        let ready = !self.signals.is_empty() || (is_open && self.has_data());
        (self.validated && ready).then(|| self.pacer.next())
    }

    /// The sender's state goes out periodically while packets are in flight, and at once when nothing waits any more of
    /// what the last one told of: soon there may be nothing in flight either.
    pub(super) fn state_at(&self) -> Option<Instant> {
        let is_through = self.said_queued && self.streams.queued() == 0;
        let at = if is_through { self.last_eliciting } else { self.next_state };
        (self.validated && !self.log.is_empty()).then_some(at.min(self.next_state))
    }

    pub(super) fn mtu_at(&self) -> Option<Instant> {
        self.mtu.due().filter(|_| self.validated && self.rtt.smoothed().is_some())
    }
}
