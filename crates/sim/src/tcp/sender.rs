//! The sending end.

mod sending;

use core::time::Duration;

use units::{Bytes, Instant};

use super::config::{Config, Flight, Recovery};
use super::congestion::{Acked, Control};
use super::rack::Rack;
use super::rto::Rto;
use super::scoreboard::Scoreboard;
use super::segment::{Kind, SackBlocks, Segment};
use super::stats::SenderStats;

/// Duplicate acknowledgements that mean a loss.
const DUPLICATES: u32 = 3;

/// What the sender is doing. The numbers are what had been sent when it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Has not been told to begin.
    Closed,
    /// A SYN is to be sent.
    Opening,
    /// It was.
    SynSent,
    /// Nothing is known to be lost.
    Open,
    /// A loss was seen by acknowledgements and is being repaired.
    Recovery(u64),
    /// Everything since is sent again, in slow start.
    GoingBack(u64),
}

/// Sends what was written, as fast as windows allow: hand it what arrives, then
/// [`poll`](Self::poll) until nothing comes, or it [is full](Self::is_full).
#[derive(Clone, Debug)]
pub struct Sender {
    config: Config,
    phase: Phase,
    /// The first byte that is not acknowledged, the next to send, and the first never sent.
    una: u64,
    next: u64,
    most: u64,
    /// The end of what the application has written.
    written: u64,
    /// Nothing more will be, so that the last segment bears the FIN.
    closed: bool,
    /// The most that the receiver has advertised, and where what it has allowed ends.
    window: u64,
    edge: u64,
    /// To where application and receiver let it send: the end of what was written, or of the window.
    limit: u64,
    control: Control,
    /// The congestion window, and not something else, ended the last burst.
    full: bool,
    /// Without selective acknowledgements: what left the network since the last new one.
    inflation: u64,
    duplicates: u32,
    /// The first segment that is not acknowledged is to be sent again, whatever the window.
    resend: bool,
    /// This recovery has seen a partial acknowledgement.
    partial: bool,
    /// What had been sent when the last loss was seen.
    recover: Option<u64>,
    /// What was not acknowledged at the last time-out.
    timed_out: Option<u64>,
    /// With selective acknowledgements.
    board: Option<Scoreboard>,
    rto: Rto,
    /// When the retransmission time-out strikes; the far future when nothing is waited for.
    timer: Instant,
    /// Without timestamps: the end of the segment that is timed, and when it was sent.
    timed: Option<(u64, Instant)>,
    stats: SenderStats,
}

impl Sender {
    /// A sender that has not begun.
    pub fn new(config: &Config) -> Self {
        let rack = (config.recovery == Recovery::Rack).then(Rack::default);
        Self {
            config: *config,
            phase: Phase::Closed,
            una: 0,
            next: 0,
            most: 0,
            written: 0,
            closed: false,
            window: 0,
            edge: 0,
            limit: 0,
            control: Control::new(config),
            full: false,
            inflation: 0,
            duplicates: 0,
            resend: false,
            partial: false,
            recover: None,
            timed_out: None,
            board: config.recovery.is_selective().then(|| Scoreboard::new(rack)),
            rto: Rto::new(config.min_rto),
            timer: Instant::FAR_FUTURE,
            timed: None,
            stats: SenderStats::default(),
        }
    }

    /// Begins to connect.
    pub fn open(&mut self) {
        self.phase = Phase::Opening;
    }

    /// The application has written so many bytes more.
    pub fn write(&mut self, amount: u64) {
        self.written = self.written.saturating_add(amount);
        self.set_limit();
    }

    /// The application writes nothing more.
    pub fn close(&mut self) {
        self.closed = true;
    }

    /// Whether the other end has answered.
    pub fn is_open(&self) -> bool {
        !matches!(self.phase, Phase::Closed | Phase::Opening | Phase::SynSent)
    }

    /// Whether all that was written has been acknowledged.
    pub fn is_done(&self) -> bool {
        self.una == self.written
    }

    /// Bytes that the receiver is known to have.
    pub fn acknowledged(&self) -> u64 {
        self.una
    }

    /// Bytes that were written and are not acknowledged: what the socket holds.
    pub fn held(&self) -> u64 {
        self.written - self.una
    }

    /// Bytes that were written and were never sent.
    pub fn unsent(&self) -> u64 {
        self.written - self.most
    }

    /// The smoothed round-trip time (RFC 6298).
    pub fn smoothed_rtt(&self) -> Option<Duration> {
        self.rto.smoothed()
    }

    /// What may be under way, in whole segments: the least of the congestion window, the receiver's and what the socket
    /// holds.
    pub fn usable_window(&self) -> Bytes {
        let usable = self.control.window().min(self.window).min(self.config.send_buffer.0);
        Bytes(usable - usable % self.config.mss.0)
    }

    /// What it did so far.
    pub fn stats(&self) -> SenderStats {
        let window = Bytes(self.control.window());
        SenderStats { window, in_flight: Bytes(self.in_flight()), ..self.stats }
    }

    /// The congestion window at which slow start ends, once it is known, in bytes.
    #[cfg(test)]
    pub(super) fn threshold(&self) -> Option<u64> {
        self.control.threshold()
    }

    /// A segment arrives.
    #[inline(always)]
    pub fn handle(&mut self, now: Instant, segment: &Segment) {
        match (&segment.kind, self.phase) {
            (&Kind::SynAck { window }, Phase::SynSent) => {
                (self.window, self.edge) = (window, window);
                self.phase = Phase::Open;
                self.timer = Instant::FAR_FUTURE;
                self.set_limit();
                self.establish(now.since(segment.stamp));
            }
            (
                &Kind::Ack { ack, window, ref sack },
                Phase::Open | Phase::Recovery(_) | Phase::GoingBack(_),
            ) => {
                let edge = self.edge.max(ack.saturating_add(window));
                let update = core::mem::replace(&mut self.edge, edge) < edge && ack == self.una;
                // What opens the window is no duplicate (RFC 5681, section 2).
                if !update || self.board.is_some() {
                    self.acknowledge(now, ack, sack, segment.stamp);
                }
                self.set_limit();
            }
            _ => {}
        }
    }

    /// The connection stands. What was sent again says nothing of the round-trip time, unless it bears its own
    /// (Karn), and of the first window that it may be too much for the path (RFC 5681, section 3.1).
    fn establish(&mut self, rtt: Duration) {
        let again = self.stats.timeouts > 0;
        if again {
            self.control.restart();
        }
        if again && !self.config.timestamps {
            self.rto.fall_back();
        } else {
            self.measure(rtt);
            self.control.on_handshake(rtt);
        }
    }

    /// Does what is due.
    #[inline(always)]
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.timer <= now {
            self.time_out();
        }
    }

    #[cold]
    fn time_out(&mut self) {
        self.stats.timeouts += 1;
        self.rto.back_off();
        self.timer = Instant::FAR_FUTURE;
        self.timed = None;
        if self.phase == Phase::SynSent {
            self.phase = Phase::Opening;
            return;
        }
        // Of time-outs for the same data only the first says something of the window (RFC 5681, 3.1).
        if self.timed_out.replace(self.una) != Some(self.una) {
            self.control.on_loss(self.flight());
        }
        self.go_back();
    }

    /// When something is due; the far future when nothing is.
    #[inline(always)]
    pub fn next_timeout(&self) -> Instant {
        self.timer
    }

    fn in_flight(&self) -> u64 {
        self.board.as_ref().map_or(self.next - self.una, Scoreboard::in_flight)
    }

    /// What is halved at a loss, which leaves out what limited transmit and inflation let go beyond the
    /// window: a time-out within a recovery begins from the reduced window, as in ns-2.
    fn flight(&self) -> u64 {
        let flight = match self.config.flight {
            Flight::Unacknowledged => self.next - self.una,
            Flight::Pipe => self.in_flight(),
        };
        flight.min(self.control.window())
    }

    /// What [`Self::limit`] comes of has changed: an acknowledgement has come, or something was written.
    fn set_limit(&mut self) {
        let window = self.window.min(self.config.send_buffer.0);
        self.limit = self.una.saturating_add(window).min(self.edge).min(self.written);
    }

    fn measure(&mut self, rtt: Duration) {
        self.rto.sample(rtt);
        self.stats.rtt = Some(rtt);
    }

    #[inline(always)]
    fn acknowledge(&mut self, now: Instant, ack: u64, sack: &SackBlocks, stamp: Instant) {
        let acked = ack.saturating_sub(self.una);
        let (mut news, mut holes) = (None, false);
        if let Some(board) = &mut self.board {
            news = Some(board.on_ack(ack, stamp));
            holes = board.on_sack(sack.as_slice(), stamp);
        }
        if acked > 0 {
            self.advance(now, ack, news, stamp);
        } else if ack == self.una && self.most > ack {
            self.duplicates += 1;
        }
        match (self.phase, &self.board) {
            (Phase::Open, _) if holes => self.see_loss(),
            (Phase::Open, None) if self.duplicates >= DUPLICATES && self.is_news() => {
                self.see_loss();
            }
            // The first two let a segment each go (RFC 3042).
            (Phase::Open, None) if acked == 0 => self.limited_transmit(),
            // An older one says nothing of what has left the network.
            (Phase::Recovery(_), None) if ack == self.una && acked == 0 => {
                self.inflation += self.config.mss.0
            }
            _ => {}
        }
    }

    /// Whether duplicates tell of another loss. Behind a recovery they may be answers to what was sent
    /// again needlessly, and each recovery from those sends more of it (RFC 6582, section 3.2, step 2).
    fn is_news(&self) -> bool {
        self.config.recovery != Recovery::NewReno || self.recover.is_none_or(|end| self.una > end)
    }

    #[cold]
    fn limited_transmit(&mut self) {
        if !matches!(self.config.recovery, Recovery::GoBackN | Recovery::Tahoe) {
            self.inflation = u64::from(self.duplicates.min(DUPLICATES - 1)) * self.config.mss.0;
        }
    }

    /// New data was acknowledged; with selective acknowledgements so many bytes of it are news.
    #[inline(always)]
    fn advance(&mut self, now: Instant, ack: u64, news: Option<u64>, stamp: Instant) {
        let acked = ack - core::mem::replace(&mut self.una, ack);
        self.next = self.next.max(ack);
        self.duplicates = 0;
        let timed = self.timed.take_if(|(end, _)| *end <= ack).map(|(_, sent)| sent);
        let measured = if self.config.timestamps { Some(stamp) } else { timed };
        let rtt = measured.map(|sent| now.since(sent));
        if let Some(rtt) = rtt {
            self.measure(rtt);
        }
        let partial = match self.phase {
            Phase::Recovery(end) if ack < end && self.config.recovery != Recovery::Reno => {
                self.repair_next(acked)
            }
            Phase::Recovery(_) => {
                self.phase = Phase::Open;
                self.inflation = 0;
                if self.config.recovery == Recovery::NewReno {
                    self.control.settle(self.next - self.una);
                }
                false
            }
            // What was sent again needlessly is answered by duplicates up to the end, which say
            // nothing of a loss (RFC 6582, section 3.2, step 4). Selective acknowledgements do.
            Phase::GoingBack(end) => {
                if ack > end || ack == end && self.board.is_some() {
                    self.phase = Phase::Open;
                }
                // The rest of it may have arrived before.
                let segment = if self.control.in_slow_start() { self.config.mss.0 } else { acked };
                self.grow(now, news.unwrap_or(acked.min(segment)), rtt);
                false
            }
            _ => {
                self.inflation = 0;
                self.grow(now, acked, rtt);
                false
            }
        };
        if self.una == self.most {
            self.timer = Instant::FAR_FUTURE;
        } else if !partial || self.timer == Instant::FAR_FUTURE {
            self.timer = self.rto.strikes_at(now);
        }
    }

    /// A partial acknowledgement: the next hole is sent. Whether the timer goes on as it was: the
    /// first one restarts it (RFC 6582, section 3.2, step 3).
    #[cold]
    fn repair_next(&mut self, acked: u64) -> bool {
        if self.board.is_some() {
            return false;
        }
        let mss = self.config.mss.0;
        self.resend = true;
        self.inflation = self.inflation.saturating_sub(acked) + if acked >= mss { mss } else { 0 };
        core::mem::replace(&mut self.partial, true)
    }

    #[inline(always)]
    fn grow(&mut self, now: Instant, bytes: u64, rtt: Option<Duration>) {
        if self.control.in_slow_start() {
            self.control.watch(now, &Acked { una: self.una, next: self.next, rtt });
        }
        self.control.on_ack(now, bytes, &self.rto, self.full);
    }

    /// Acknowledgements have shown a loss.
    #[cold]
    fn see_loss(&mut self) {
        if self.config.recovery == Recovery::GoBackN {
            return;
        }
        self.stats.recoveries += 1;
        self.control.on_loss(self.flight());
        // What is sent again has a whole time-out to arrive, as in BSD, Linux and ns-2: the last
        // acknowledgement came most of one ago.
        self.timer = Instant::FAR_FUTURE;
        if self.config.recovery == Recovery::Tahoe {
            return self.go_back();
        }
        self.phase = Phase::Recovery(self.most);
        self.recover = Some(self.most);
        self.resend = true;
        self.inflation = if self.board.is_none() { 3 * self.config.mss.0 } else { 0 };
        self.partial = false;
    }

    /// Sends again from the first that is not acknowledged, beginning with one segment.
    fn go_back(&mut self) {
        self.control.restart();
        self.phase = Phase::GoingBack(self.most);
        (self.inflation, self.duplicates, self.resend) = (0, 0, false);
        match &mut self.board {
            Some(board) => board.lose_all(),
            None => self.next = self.una,
        }
    }
}
