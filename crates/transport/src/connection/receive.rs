//! What a datagram does to a connection.

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;

use units::{Bytes, Instant, Rate};

use super::path::Ecn;
use super::unreachable::Hints;
use super::{CloseReason, Connection, Phase};
use crate::cc::AckSample;
use crate::feedback::{MAX_REPORT, Packet};
use crate::recovery::{Content, Sent, Settled, Untrue};
use crate::stats::Limit;
use crate::streams::StreamError;
use crate::trace::{Metrics, Step};
use crate::wire::{
    Challenge, Close, Data, HEADER_LEN, Header, Kind, Opening, Piece, Report, State, StreamSignal,
    WireError,
};

/// A datagram as it came from the network.
#[derive(Debug)]
pub struct Received<'a> {
    /// Where from.
    pub from: SocketAddr,
    /// Which of this host's addresses it came to, where that is known.
    pub to: Option<IpAddr>,
    /// When it arrived, which may be a little before it is handled.
    pub arrived: Instant,
    /// Whether the network marked it "congestion experienced".
    pub ce: bool,
    /// The datagram; decrypted in place.
    pub bytes: &'a mut [u8],
}

/// Why a datagram is refused: see [`crate::Refused`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refuse {
    Malformed,
    Replayed,
    Unauthentic,
    Untimely,
    Forged,
}

/// Why an authentic packet ends the connection.
#[derive(Debug, thiserror::Error)]
enum Violation {
    #[error("malformed packet")]
    Wire(#[from] WireError),
    #[error("stream rules")]
    Stream(#[from] StreamError),
    #[error("never sent")]
    NeverSent,
    #[error("kept back")]
    KeptBack,
    #[error("too long a report")]
    LongReport,
}

impl From<Untrue> for Violation {
    fn from(untrue: Untrue) -> Self {
        match untrue {
            Untrue::NeverSent => Self::NeverSent,
            Untrue::KeptBack => Self::KeptBack,
        }
    }
}

impl Violation {
    const fn name(&self) -> &'static str {
        match self {
            Self::Wire(_) => "malformed packet",
            Self::Stream(StreamError::CreditExceeded) => "credit exceeded",
            Self::Stream(StreamError::EndMoved) => "a stream's end was moved",
            Self::Stream(StreamError::TooManyHoles) => "the streams were sent in too many pieces",
            Self::Stream(StreamError::NoSuchStream) => "a stream was used that may not exist",
            Self::NeverSent => "a packet was acknowledged that was never sent",
            Self::KeptBack => "a packet is never acknowledged nor lost",
            Self::LongReport => "a report is longer than one may be",
        }
    }
}

/// Packets and bytes that a report settled, and when the oldest and the newest of them were sent.
#[derive(Default)]
struct Tally {
    packets: u64,
    bytes: u64,
    sent: Option<(Instant, Instant)>,
}

impl Tally {
    /// Packets that count for nothing are left out.
    fn add(&mut self, sent: &Sent, bytes: u64) {
        if bytes > 0 {
            self.packets += 1;
            self.bytes += bytes;
            let (oldest, newest) = self.sent.unwrap_or((sent.at, sent.at));
            self.sent = Some((oldest.min(sent.at), newest.max(sent.at)));
        }
    }
}

/// What held the end back that sent this state.
fn limit_told(state: &State) -> Limit {
    match (state.blocked.is_empty(), state.queued) {
        (false, _) => Limit::Credit,
        (true, 0) => Limit::Application,
        (true, _) => Limit::Congestion,
    }
}

impl Connection {
    /// Takes in one datagram that the endpoint found to be for this connection. What is not
    /// authentic is counted and ignored.
    pub fn handle(&mut self, now: Instant, received: Received<'_>) {
        if self.is_closed() {
            return;
        }
        if let Some(trace) = &mut self.trace {
            trace.set_time(now);
        }
        let taken = if Opening::is_opening(received.bytes) {
            self.handle_opening(now, (received.from, received.to), received.bytes)
        } else {
            self.handle_sealed(now, received)
        };
        let refused = &mut self.stats.refused;
        match taken {
            Ok(()) => {}
            Err(Refuse::Malformed) => refused.malformed += 1,
            Err(Refuse::Replayed) => refused.replayed += 1,
            Err(Refuse::Unauthentic) => refused.unauthentic += 1,
            Err(Refuse::Untimely) => refused.untimely += 1,
            Err(Refuse::Forged) => refused.forged += 1,
        }
    }

    pub(super) fn on_rtt_sample(&mut self, now: Instant, sample: Duration) {
        let first = self.rtt.smoothed().is_none();
        self.rtt.on_sample(now, sample);
        if let Some(rtt) = self.rtt.smoothed() {
            self.feedback.on_rtt(rtt);
        }
        if first {
            self.cc.on_start(now, sample);
        }
    }

    fn handle_sealed(&mut self, now: Instant, received: Received<'_>) -> Result<(), Refuse> {
        let header = Header::decode(received.bytes).map_err(|_| Refuse::Malformed)?;
        let (number, size) = (self.feedback.number(&header), received.bytes.len());
        if number > Header::MAX_NUMBER {
            return Err(Refuse::Malformed);
        }
        if !self.feedback.is_fresh(number) {
            return Err(Refuse::Replayed);
        }
        let seals = self.seals.as_mut().ok_or(Refuse::Untimely)?;
        let (associated, sealed) = received.bytes.split_at_mut(HEADER_LEN);
        let opened = seals.opener.open(now, header.epoch, number, associated, sealed);
        let body = opened.map_err(|_| Refuse::Unauthentic)?;
        if let Some(trace) = &mut self.trace {
            trace.on_received((number, &header), size, body);
        }
        self.stats.received.0 += 1;
        self.stats.received.1 += Bytes(size as u64);
        // What is not remembered may be a replay, which says nothing of who is there, and where.
        let is_remembered = self.feedback.has_room_for(number);
        if is_remembered {
            self.on_sign_of_life(now, number, (received.from, received.to, size));
        }
        if let Phase::Closing { .. } = self.phase {
            self.on_packet_while_closing(now, header.kind);
            return Ok(());
        }
        let packet = Packet {
            at: received.arrived.min(now),
            size,
            wants_report: header.kind.wants_report(),
            // What has not been reported yet may be what holds the other end's credit back. Full
            // packets pay for reports enough.
            prompt: header.kind == Kind::Ping
                || (size < self.mtu.size() && self.streams.is_blocked()),
            follows: header.follows,
            ce: received.ce,
        };
        if is_remembered {
            self.feedback.on_packet(number, &packet);
            self.stats.ce.0 += u64::from(received.ce);
        } else if !matches!(header.kind, Kind::Report | Kind::State | Kind::Close) {
            // As if lost. Only what makes room, and the end, is taken unremembered: once more does no
            // harm.
            return Err(Refuse::Untimely);
        }
        if packet.wants_report {
            self.retell.on_heard();
        }
        let times = (now, received.arrived.min(now));
        let mut done = self.on_body(times, received.from, &header, body);
        // Without reports too: what answers the other end's packets is noted as well.
        if self.log.is_kept_back() {
            done = done.and(Err(Violation::KeptBack));
        }
        if let Err(violation) = done {
            self.violation(now, violation.name());
        }
        Ok(())
    }

    /// A packet arrived from the other end that had not come before.
    fn on_sign_of_life(
        &mut self,
        now: Instant,
        number: u64,
        (from, to, size): (SocketAddr, Option<IpAddr>, usize),
    ) {
        self.hints = Hints::default();
        // From elsewhere it may be a copy: the address has to answer a challenge first.
        if !self.validated && from == self.address {
            self.on_validated(now);
        }
        // Who has not proved where it is gains no time.
        if self.validated {
            self.last_received = now;
        }
        if self.feedback.is_newest(number) {
            self.on_source(now, from, size);
            self.answer_from(to);
        }
    }

    /// Whoever sends still may not have heard of the end; each time that takes twice as long to believe.
    fn on_packet_while_closing(&mut self, now: Instant, kind: Kind) {
        let Phase::Closing { answers, echo: (at, pause), .. } = &mut self.phase else { return };
        // To who answers one, another says that the answer was lost.
        if kind == Kind::Close && !*answers {
            self.phase = Phase::Closed;
        } else if now >= *at {
            (*at, *pause) = (now + *pause, *pause * 2);
            self.close_due = true;
        }
    }

    /// What `arrived` some time ago is handled `now`.
    fn on_body(
        &mut self,
        (now, arrived): (Instant, Instant),
        from: SocketAddr,
        header: &Header,
        body: &[u8],
    ) -> Result<(), Violation> {
        if matches!(header.kind, Kind::Report | Kind::Close) && body.len() > MAX_REPORT {
            return Err(Violation::LongReport);
        }
        let events = &mut self.events;
        match header.kind {
            Kind::Data => {
                let data = Data::decode(body)?;
                let piece = (data.stream, data.offset, data.payload, header.fin);
                self.streams.on_data(piece, events)?;
            }
            Kind::Pieces => {
                let mut rest = body;
                while let Some(Piece { data, fin }) = Piece::decode(&mut rest)? {
                    let piece = (data.stream, data.offset, data.payload, fin);
                    self.streams.on_data(piece, events)?;
                }
            }
            Kind::Report => self.on_report((now, arrived), &Report::decode(body)?)?,
            Kind::State => {
                let state = State::decode(body)?;
                self.stats.remote_limits.note(now, limit_told(&state));
                self.retell.is_awaited = !state.blocked.is_empty();
                self.feedback.on_state(&state);
                self.streams.on_sender_state(state.queued, &state.blocked);
            }
            Kind::Ping => {}
            Kind::PathChallenge => self.on_challenge(now, from, Challenge::decode(body)?),
            Kind::PathResponse => self.on_path_response(now, from, Challenge::decode(body)?),
            Kind::Reset => {
                let signal = StreamSignal::decode(body)?;
                self.streams.on_reset((signal.stream, signal.code, signal.end), events)?;
            }
            Kind::Stop => {
                let StreamSignal { stream, code, .. } = StreamSignal::decode(body)?;
                if let Some(end) = self.streams.on_stop(stream, events)? {
                    self.signals.push_back(Content::Reset { stream, code, end });
                }
            }
            Kind::Close => {
                let (close, last) = Close::decode(body)?;
                if let Some(report) = last {
                    self.on_report((now, arrived), &report)?;
                }
                // The answer lets the other end go at once.
                let answer = Close { code: close.code, reason: String::new() };
                self.begin_closing(now, Some(answer), CloseReason::Remote(close));
            }
        }
        self.ask_for_credit();
        Ok(())
    }

    fn on_report(
        &mut self,
        (now, arrived): (Instant, Instant),
        report: &Report,
    ) -> Result<(), Violation> {
        if report.bytes > self.stats.sent.1.0 {
            return Err(Violation::NeverSent);
        }
        self.feedback.on_lower(report.lower);
        self.streams.on_connection_credit(report.connection_credit);
        self.streams.on_streams_credit(report.streams, &mut self.events);
        for credit in &report.credits {
            self.streams.on_stream_credit(*credit, &mut self.events);
        }
        let rtt = self.rtt.smoothed().unwrap_or(Duration::from_millis(100));
        let old_enough = now - self.config.retransmit_after.unwrap_or_default();
        let mut settled = core::mem::take(&mut self.settled);
        self.log.on_report(report, (rtt, old_enough), &mut settled)?;
        if !settled.acked.is_empty() || !settled.lost.is_empty() {
            self.unanswered_since = None;
        }
        if let Some(seals) = &mut self.seals {
            seals.told = seals.told.max(Some(report.largest));
        }
        let marked = self.on_marks(report.ecn_ce);
        let of_this_path = settled.largest_sent_at.filter(|&sent| sent >= self.path_since);
        // How long it waited here is no part of the path. Held for longer than it has been under way, the other
        // end's clock has jumped; here before it was sent, ours has.
        let sample_rtt = of_this_path.filter(|&sent| sent < arrived).and_then(|sent| {
            let held = report.made_at.saturating_sub(report.largest_arrival);
            arrived.since(sent).checked_sub(Duration::from_nanos(held))
        });
        if let Some(sample) = sample_rtt {
            self.on_rtt_sample(now, sample);
        }
        let capacity = Some(Rate::from_bits_per_sec(report.capacity));
        let is_told = |rate: &Rate| *rate > Rate::ZERO && self.feedback.knows_path(now);
        let capacity = capacity.filter(is_told);
        self.stats.capacity.0 = capacity.or(self.stats.capacity.0);
        self.reported = (Bytes(report.bytes), Instant::from_nanos(report.largest_arrival));
        let said = AckSample { capacity, rtt: sample_rtt, marked, ..AckSample::default() };
        self.on_settled(now, settled, Some(said));
        Ok(())
    }

    /// What was sent so long ago, and never acknowledged, is lost.
    pub(super) fn on_expiry(&mut self, now: Instant, after: Duration) {
        self.expiries += 1;
        let mut settled = core::mem::take(&mut self.settled);
        self.log.expire(now - after, &mut settled);
        self.on_settled(now, settled, None);
        // Somebody is to answer, if not the ping that was given up.
        self.ping_due |= self.log.is_empty() && !self.has_data();
    }

    /// Packets have arrived or are lost; `said` is what the report said beside that, if it was one.
    fn on_settled(&mut self, now: Instant, settled: Settled, said: Option<AckSample>) {
        let late = said.is_none();
        self.notice_black_hole(&settled);
        let gaps = settled.gaps;
        let (mut acked, mut lost) = (Tally::default(), Tally::default());
        for sent in &settled.acked {
            acked.add(sent, self.bytes_here(sent.at, u64::from(sent.size)));
            self.on_packet_acked(sent);
        }
        for (number, sent) in &settled.lost {
            lost.add(sent, self.on_packet_lost(sent));
            if let Some(trace) = &mut self.trace {
                trace.note(Step::Lost { number: *number, late });
            }
        }
        if !settled.acked.is_empty() {
            self.expiries = 0;
            self.progress_at = now;
        }
        self.losses.on_settled(acked.packets, lost.packets);
        if acked.bytes > 0 {
            self.is_path_heard = true;
            self.ecn = if self.ecn == Ecn::Trying { Ecn::Works } else { self.ecn };
        }
        self.settled = settled;
        let sample = AckSample {
            now,
            acked: Bytes(acked.bytes),
            lost: Bytes(lost.bytes),
            acked_sent: acked.sent,
            lost_sent: lost.sent,
            gaps,
            received: self.reported,
            smoothed_rtt: self.rtt.smoothed().unwrap_or_default(),
            patience: self.rtt.patience(),
            in_flight: Bytes(self.log.in_flight()),
            datagram: Bytes(self.mtu.size() as u64),
            limited: self.limited_at.is_some_and(|at| now < at + self.rtt.patience()),
            ..said.unwrap_or_default()
        };
        // Until then reports tell of the path that was in use before.
        if self.rtt.smoothed().is_some() && self.is_path_heard {
            self.cc.on_ack(&sample);
        }
        self.trace_metrics(sample.rtt);
    }

    fn trace_metrics(&mut self, latest_rtt: Option<Duration>) {
        let pacing_rate = self.rate();
        let Some(trace) = &mut self.trace else { return };
        trace.on_state(self.cc.state());
        trace.note(Step::Metrics(Metrics {
            latest_rtt,
            rtt: self.rtt.smoothed().unwrap_or_default(),
            min_rtt: self.rtt.min(),
            variation: self.rtt.variation(),
            window: self.cc.window(),
            in_flight: Bytes(self.log.in_flight()),
            pacing_rate,
        }));
    }

    fn notice_black_hole(&mut self, settled: &Settled) {
        let since = self.path_since;
        let data = |sent: &&Sent| {
            let is_data = matches!(sent.content, Content::Piece { .. } | Content::Pieces(_));
            is_data && sent.at >= since
        };
        let acked = settled.acked.iter().filter(data).map(|sent| (sent.size, sent.at));
        let lost = settled.lost.iter().map(|(_, sent)| sent);
        let lost = lost.filter(data).map(|sent| (sent.size, sent.at));
        self.mtu.on_settled(acked, lost);
    }

    fn on_packet_acked(&mut self, sent: &Sent) {
        match sent.content {
            Content::Piece { stream, piece } => {
                self.streams.on_piece_acked(stream, piece, &mut self.events);
            }
            Content::Pieces(ref pieces) => {
                for &(stream, piece) in pieces {
                    self.streams.on_piece_acked(stream, piece, &mut self.events);
                }
            }
            Content::Reset { stream, .. } => self.streams.on_reset_acked(stream),
            Content::MtuProbe if sent.at >= self.path_since => self.mtu.on_acked(sent.size),
            Content::MtuProbe | Content::Stop { .. } | Content::Ping => {}
        }
    }

    /// Gives the bytes that count as lost by the path.
    fn on_packet_lost(&mut self, sent: &Sent) -> u64 {
        self.queue_again(sent);
        // A probe is lost for its size, not for the path's load.
        if sent.content == Content::MtuProbe {
            return 0;
        }
        self.stats.lost.0 += 1;
        self.stats.lost.1 += Bytes(u64::from(sent.size));
        match sent.content {
            Content::Ping => 0,
            _ => self.bytes_here(sent.at, u64::from(sent.size)),
        }
    }

    /// What was in the packet must be sent again.
    pub(super) fn queue_again(&mut self, sent: &Sent) {
        match sent.content {
            Content::Piece { stream, piece } => self.streams.on_piece_lost(stream, piece),
            Content::Pieces(ref pieces) => {
                for &(stream, piece) in pieces {
                    self.streams.on_piece_lost(stream, piece);
                }
            }
            Content::Reset { stream, .. } if !self.streams.has_reset(stream) => {}
            Content::Stop { stream, .. } if !self.streams.has_stopped(stream) => {}
            Content::Reset { .. } | Content::Stop { .. } => {
                self.signals.push_back(sent.content.clone())
            }
            Content::MtuProbe | Content::Ping => {}
        }
    }
}
