//! What a connection sends.

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;

use units::{Bytes, Instant};

use super::{Connection, Phase, Seals};
use crate::crypto::{EpochSealer, TAG_LEN};
use crate::feedback::MAX_REPORT;
use crate::pacer::Pacer;
use crate::recovery::{Content, Sent, SentLog};
use crate::stats::Limit;
use crate::streams::Piece;
use crate::trace::Trace;
use crate::wire::{Data, HEADER_LEN, Header, Kind, Piece as WirePiece, State, StreamSignal};

/// The most bytes in a batch: a UDP datagram's limit, which GSO shares.
const MAX_BATCH: usize = 65_000;
/// The most datagrams in a batch: what every kernel with GSO takes.
const MAX_SEGMENTS: usize = 44;
/// The length of a reset's or stop's body.
const SIGNAL_LEN: usize = 24;
/// Who has less than this share of what the path holds in flight, copies included, leaves most of it unused:
/// at the very end of a transfer, or with little to send.
const SPARE_SHARE: u64 = 4;
/// Who was held back by credit minds for so many round trips how long holes wait.
const BLOCKED_ROUNDS: u32 = 16;
/// After so many times its patience without any answer the sender asks what has become of all that it sent.
const STUCK: u32 = 2;
/// The sender's state is told once in this share of a round trip, within bounds.
const STATE_SHARE: u32 = 4;
const STATE_INTERVAL: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(100));

/// Pieces that go out together once more, or several times.
#[derive(Debug)]
pub(super) struct Repeat {
    pieces: Vec<(u64, Piece)>,
    times: u8,
}

/// Datagrams to be sent: `segment` bytes each, of which the last may be shorter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Where to.
    pub to: SocketAddr,
    /// From which of this host's addresses; `None`: the host's choice.
    pub from: Option<IpAddr>,
    /// Size of each datagram.
    pub segment: usize,
    /// Whether to mark them for ECN, as ECT(0).
    pub ecn: bool,
}

impl Connection {
    /// Fills `out`, which is cleared first, with the next batch of datagrams; `None` when there
    /// is nothing to send before [`Connection::poll_timeout`].
    pub fn poll_transmit(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<Transmit> {
        out.clear();
        if let Some(trace) = &mut self.trace {
            trace.set_time(now);
        }
        let (mut to, mut is_proved) = (self.address, self.validated);
        let segment = match &mut self.phase {
            Phase::Closed => return None,
            Phase::Opening(_) => self.hello(now, out)?,
            Phase::Closing { .. } => self.closing(now, out)?,
            Phase::Established => match self.path_packet(now, out) {
                Some(other) => {
                    (to, is_proved) = (other, false);
                    out.len()
                }
                None => self.established(now, out)?,
            },
        };
        self.count_sent(out.len().div_ceil(segment) as u64, out.len() as u64);
        // What finds out whether there is a way must not be lost for its mark.
        let ecn = is_proved && self.seals.is_some() && self.marks_for_ecn(now);
        Some(Transmit { to, from: self.source, segment, ecn })
    }

    fn hello(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<usize> {
        let Phase::Opening(opening) = &mut self.phase else {
            return None;
        };
        if now < opening.next_hello {
            return None;
        }
        opening.renew(now);
        opening.on_sent(now);
        out.extend_from_slice(&opening.hello);
        Some(out.len())
    }

    fn closing(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<usize> {
        if !core::mem::take(&mut self.close_due) {
            return None;
        }
        let Phase::Closing { close, .. } = &self.phase else {
            return None;
        };
        let close = close.clone();
        // The last word: whoever waits to hear that all has arrived must not hear less of it.
        let room = MAX_REPORT - close.body_len();
        let last = self.feedback.last(now, self.log.lower(), room);
        match last {
            // What it has no room for goes ahead of it.
            Some(report) if self.feedback.has_more() => {
                self.close_due = true;
                self.packet(out, Kind::Report, None, |out| report.encode(out));
                self.stats.state_bytes += Bytes(out.len() as u64);
            }
            last => self.packet(out, Kind::Close, None, |out| close.encode(last.as_ref(), out)),
        }
        Some(out.len())
    }

    fn established(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<usize> {
        if core::mem::take(&mut self.reply_due) {
            out.extend_from_slice(&self.reply);
            return Some(out.len());
        }
        if !self.validated {
            return None;
        }
        self.update_key(now);
        if self.feedback.due().is_some_and(|due| now >= due) {
            self.report(now, out);
        } else if self.state_at().is_some_and(|at| now >= at) {
            self.state(now, out);
        } else if core::mem::take(&mut self.ping_due) {
            self.lone(now, out, Content::Ping, 0);
        } else if let Some(size) = self.mtu_probe(now) {
            self.lone(now, out, Content::MtuProbe, size);
        } else if !self.signals.is_empty() && now >= self.pacer.next() {
            return Some(self.resets_and_stops(now, out));
        } else {
            return self.data(now, out);
        }
        Some(out.len())
    }

    /// Changes the key in time. A ping makes sure that the other end will tell of the new one; where
    /// nothing else asks for reports, and the ping is lost, another one does.
    fn update_key(&mut self, now: Instant) {
        let (next, packets) = (self.log.next(), self.config.key_packets);
        let Some(Seals { sealer, told, .. }) = &mut self.seals else { return };
        if !sealer.is_used_up(now, packets, next) {
            return;
        }
        if sealer.update(now, next, *told) {
            self.stats.key_updates += 1;
        } else if now < self.last_asked + self.rtt.patience() {
            return;
        }
        self.last_asked = now;
        self.ping_due = true;
    }

    fn mtu_probe(&mut self, now: Instant) -> Option<usize> {
        self.mtu_at()?;
        self.mtu.take(now, self.rtt.smoothed()?)
    }

    fn report(&mut self, now: Instant, out: &mut Vec<u8>) {
        let rtt = self.rtt.smoothed().unwrap_or(Duration::from_millis(500));
        if let Some(rate) = self.feedback.measure_capacity() {
            self.streams.on_path(rate.bytes_in(rtt).0);
        }
        let grant = self.streams.grant(now, rtt);
        let report = self.feedback.report(now, self.log.lower(), grant, MAX_REPORT);
        self.ask_for_credit();
        self.retell.on_report(now, &report.credits, self.rtt.patience());
        self.packet(out, Kind::Report, None, |out| report.encode(out));
        self.stats.state_bytes += Bytes(out.len() as u64);
    }

    fn state(&mut self, now: Instant, out: &mut Vec<u8>) {
        let (least, most) = STATE_INTERVAL;
        // Slowly while it is unknown: at the other pace states alone would fill a thin path.
        let interval = self.rtt.smoothed().map_or(most, |rtt| rtt / STATE_SHARE);
        self.next_state = now + interval.clamp(least, most);
        let rtt = self.rtt.smoothed().unwrap_or_default();
        let state = State {
            lower: self.log.lower(),
            upper: self.log.next(),
            queued: self.streams.queued(),
            rtt: u64::try_from(rtt.as_nanos()).unwrap_or(u64::MAX),
            pairs: self.cc.wants_pairs(),
            blocked: self.streams.blocked(),
        };
        self.said_queued = state.queued > 0;
        self.packet(out, Kind::State, None, |out| state.encode(out));
        self.stats.state_bytes += Bytes(out.len() as u64);
    }

    /// A batch of resets and stops, all of one length; gives that.
    fn resets_and_stops(&mut self, now: Instant, out: &mut Vec<u8>) -> usize {
        for signal in self.signals.drain(..self.signals.len().min(MAX_SEGMENTS)).collect::<Vec<_>>()
        {
            self.lone(now, out, signal, 0);
        }
        self.backoff = 0;
        self.pacer.on_sent(now, Bytes(out.len() as u64), self.rate());
        HEADER_LEN + SIGNAL_LEN + TAG_LEN
    }

    /// A packet of its own that asks for a report, `size` bytes long if that is more.
    fn lone(&mut self, now: Instant, out: &mut Vec<u8>, content: Content, size: usize) {
        let (kind, signal) = match content {
            Content::Reset { stream, code, end } => {
                (Kind::Reset, Some(StreamSignal { stream, code, end }))
            }
            Content::Stop { stream, code } => {
                (Kind::Stop, Some(StreamSignal { stream, code, end: 0 }))
            }
            Content::Ping | Content::MtuProbe | Content::Piece { .. } | Content::Pieces(_) => {
                (Kind::Ping, None)
            }
        };
        let body = signal.map_or(0, |_| SIGNAL_LEN);
        let padding = size.saturating_sub(HEADER_LEN + body + TAG_LEN);
        let len = HEADER_LEN + body + padding + TAG_LEN;
        let sent = Sent::new(now, len, content);
        self.packet(out, kind, Some(sent), |out| {
            if let Some(signal) = signal {
                signal.encode(out);
            }
            out.resize(out.len() + padding, 0);
        });
        self.on_asked(now);
    }

    /// Something went out that the other end answers.
    fn on_asked(&mut self, now: Instant) {
        self.last_eliciting = now;
        self.unanswered_since.get_or_insert(now);
    }

    pub(super) fn packet(
        &mut self,
        out: &mut Vec<u8>,
        kind: Kind,
        sent: Option<Sent>,
        fill: impl FnOnce(&mut Vec<u8>),
    ) {
        if let Some(seals) = &mut self.seals {
            let to = (&mut seals.sealer, self.remote, self.trace.as_deref_mut());
            seal(&mut self.log, to, out, (kind, false, sent), fill);
        }
    }

    /// A batch of data packets of equal size, as the window and the pace allow.
    fn data(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<usize> {
        let limit = self.what_limits(now);
        let waiting = self.rtt.smoothed().unwrap_or_default().saturating_sub(self.rtt.min());
        self.pacer.on_queue(waiting);
        // Time that passed unused though only the pace stood in the way is the processor's.
        let held_by = self.stats.limits.current();
        if limit.is_none() && held_by == Limit::Pacing && self.pacer.is_behind(now) {
            self.note_late(now);
        } else {
            self.note_limit(now, limit.unwrap_or(Limit::Pacing));
        }
        if let Some(limit) = limit {
            if matches!(limit, Limit::Application | Limit::Credit) {
                self.limited_at = Some(now);
            }
            if limit == Limit::Credit {
                self.blocked_at = Some(now);
            }
            return None;
        }
        match held_by {
            Limit::Application | Limit::Credit => self.pacer.skip_to(now),
            Limit::Congestion | Limit::SocketBuffer => self.pacer.on_opened(now),
            _ => {}
        }
        let segment = self.mtu.size();
        let rate = self.rate();
        let window = self.cc.window().0.saturating_sub(self.log.in_flight());
        let most = MAX_SEGMENTS.min(MAX_BATCH / segment).min((window as usize).div_ceil(segment));
        let batch = Pacer::batch(rate, segment, most.max(1)).max(self.cc.train().min(most.max(1)));
        let mut repeats = core::mem::take(&mut self.repeats);
        repeats.retain(|repeat| self.is_wanted(&repeat.pieces, segment));
        while out.len() < batch * segment {
            let packet_len = match repeats.pop_front() {
                Some(repeat) => self.repeated_packet(now, out, segment, repeat),
                None => self.data_packet(now, out, segment),
            };
            // A short packet can only stand last.
            if packet_len < segment {
                break;
            }
        }
        repeats.append(&mut self.repeats);
        self.repeats = repeats;
        if out.is_empty() {
            return None;
        }
        self.on_asked(now);
        self.backoff = 0;
        self.pacer.on_sent(now, Bytes(out.len() as u64), rate);
        self.cc.on_sent(now, Bytes(out.len() as u64), Bytes(self.log.in_flight()));
        self.ask_when_full(now);
        Some(segment.min(out.len()))
    }

    /// Whether a packet is to go out once more: it may have arrived meanwhile, or be too long by now.
    fn is_wanted(&self, pieces: &[(u64, Piece)], segment: usize) -> bool {
        let wanted = |&(stream, piece): &(u64, Piece)| self.streams.wants(stream, piece);
        packed_len(pieces) <= segment && pieces.iter().all(wanted)
    }

    /// Appends a packet with the pieces of a repeat; gives its length.
    fn repeated_packet(
        &mut self,
        now: Instant,
        out: &mut Vec<u8>,
        segment: usize,
        Repeat { pieces, times }: Repeat,
    ) -> usize {
        let start = out.len();
        self.pieces = pieces;
        self.seal_pieces(now, out, segment);
        self.repeat(times - 1);
        out.len() - start
    }

    /// What was packed last goes out so many times more. A batch later: the shortest queues hold a
    /// packet, not two, and what is lost together is sent together.
    fn repeat(&mut self, times: u8) {
        if times > 0 {
            self.repeats.push_back(Repeat { pieces: self.pieces.clone(), times });
        }
    }

    /// How many times more goes out what was packed last. Four times, what was lost thrice already, and twice, what was lost
    /// twice: the reader, and all that waits behind it in memory, has waited for long. Where much is lost the latter would be a
    /// fiftieth of all, and waits for a third repair, if the path is in use, its order known (else each repair takes longer), and
    /// memory holds what that keeps waiting. Once, what was lost near the very end, for nothing else moves in the round trip that
    /// losing it once more would cost; and on a path that loses and is hardly used, all: requests wait for their last packet.
    fn copies(&self, now: Instant) -> u8 {
        let least = self.pieces.iter().map(|(_, piece)| piece.losses).min();
        // Not of the window: that of a thin path is larger than the path.
        let held = self.rate().min(self.cc.known_rate()).bytes_in(self.rtt.min());
        let spare = self.log.in_flight() < held.0 / SPARE_SHARE;
        let can_wait = !spare && self.log.knows_order() && !self.was_blocked(now);
        match least.unwrap_or_default() {
            0 => u8::from(spare && self.cc.may_insure() && self.losses.are_many()),
            1 => u8::from(spare && !self.streams.has_pending()),
            2 if can_wait && self.losses.are_heavy() => 0,
            2 => 2,
            _ => 4,
        }
    }

    /// Whether credit held new data back in recent round trips: what waits behind holes may be why.
    fn was_blocked(&self, now: Instant) -> bool {
        self.blocked_at.is_some_and(|at| now < at + self.rtt.patience() * BLOCKED_ROUNDS)
    }

    /// Appends a packet of at most `segment` bytes with what is next, of as many streams as it
    /// holds; gives its length, 0 when there was nothing.
    fn data_packet(&mut self, now: Instant, out: &mut Vec<u8>, segment: usize) -> usize {
        let room = segment - HEADER_LEN - TAG_LEN;
        self.pieces.clear();
        // One that is alone needs no length.
        let alone = |stream, offset| room - Data::prefix_len(stream, offset);
        let Some(first) = self.streams.take(alone, &mut self.events) else {
            return 0;
        };
        let mut left = room.saturating_sub(piece_len(&first));
        self.pieces.push(first);
        while left > WirePiece::MAX_PREFIX_LEN {
            let beside = |stream, offset| left - WirePiece::prefix_len(stream, offset);
            let Some(next) = self.streams.take(beside, &mut self.events) else { break };
            left -= piece_len(&next);
            self.pieces.push(next);
        }
        let start = out.len();
        self.seal_pieces(now, out, segment);
        self.repeat(self.copies(now));
        out.len() - start
    }

    /// Appends a packet with `pieces`. One that holds several and is nearly full is padded, so
    /// that it can stand anywhere in a batch.
    fn seal_pieces(&mut self, now: Instant, out: &mut Vec<u8>, segment: usize) {
        let follows = !out.is_empty();
        let Some(seals) = &mut self.seals else { return };
        let to = (&mut seals.sealer, self.remote, self.trace.as_deref_mut());
        let (streams, size) = (&self.streams, packed_len(&self.pieces));
        if let [(stream, piece)] = self.pieces[..] {
            let sent = Sent::new(now, size, Content::Piece { stream, piece });
            seal(&mut self.log, to, out, (Kind::Data, follows, Some(sent)), |out| {
                Data::encode_prefix(out, stream, piece.offset);
                streams.copy_piece(stream, piece, out);
            });
            return;
        }
        let padding = Some(segment - size).filter(|&pad| pad <= WirePiece::MAX_PREFIX_LEN);
        let content = Content::Pieces(self.pieces.as_slice().into());
        let sent = Sent::new(now, size + padding.unwrap_or(0), content);
        let pieces = &self.pieces;
        seal(&mut self.log, to, out, (Kind::Pieces, follows, Some(sent)), |out| {
            for &(stream, piece) in pieces {
                let len = (piece.len, piece.fin);
                WirePiece::encode_prefix(out, stream, piece.offset, len);
                streams.copy_piece(stream, piece, out);
            }
            out.resize(out.len() + padding.unwrap_or(0), 0);
        });
    }

    /// A window that is full waits for a report. Small windows are filled by less than what pays
    /// for one, so it is asked for. So it is when nothing was settled for long: where large packets no
    /// longer pass, nobody hears that there were any.
    fn ask_when_full(&mut self, now: Instant) {
        if self.acknowledges() {
            return;
        }
        let patience = self.rtt.patience();
        let (due, wait) = if self.is_unanswered(now, STUCK) {
            (true, patience)
        } else {
            let half = self.rtt.smoothed().unwrap_or_default() / 2;
            (self.log.in_flight() >= self.cc.window().0, half)
        };
        if due && now >= self.last_asked + wait {
            self.last_asked = now;
            self.ping_due = true;
        }
    }

    /// The pace let more go than this end found the time for.
    fn note_late(&mut self, now: Instant) {
        self.stats.limits.note_late(now, self.pacer.next());
        if let Some(trace) = &mut self.trace {
            trace.on_limit(Limit::Cpu);
            trace.on_limit(Limit::Pacing);
        }
    }

    /// Whether there is data that may be sent now.
    pub(super) fn has_data(&self) -> bool {
        self.streams.has_pending() || !self.repeats.is_empty()
    }

    fn what_limits(&self, now: Instant) -> Option<Limit> {
        if !self.has_data() {
            let blocked = self.streams.is_blocked();
            Some(if blocked { Limit::Credit } else { Limit::Application })
        } else if self.log.in_flight() >= self.cc.window().0 || self.log.is_full() {
            Some(Limit::Congestion)
        } else if now < self.pacer.next() {
            Some(Limit::Pacing)
        } else {
            None
        }
    }
}

/// The length of a packet with these pieces, less what pads it.
fn packed_len(pieces: &[(u64, Piece)]) -> usize {
    let body = match pieces {
        [(stream, piece)] => Data::prefix_len(*stream, piece.offset) + piece.len,
        _ => pieces.iter().map(piece_len).sum(),
    };
    HEADER_LEN + body + TAG_LEN
}

/// The length of a piece that is not alone in its packet, with what stands before it.
fn piece_len((stream, piece): &(u64, Piece)) -> usize {
    WirePiece::prefix_len(*stream, piece.offset) + piece.len
}

/// Appends one sealed packet, whose body `fill` writes, under the next number.
fn seal(
    log: &mut SentLog,
    (sealer, connection, trace): (&mut EpochSealer, u32, Option<&mut Trace>),
    out: &mut Vec<u8>,
    (kind, follows, sent): (Kind, bool, Option<Sent>),
    fill: impl FnOnce(&mut Vec<u8>),
) {
    let fin = matches!(sent, Some(Sent { content: Content::Piece { piece, .. }, .. }) if piece.fin);
    let number = log.push(sent);
    let start = out.len();
    let epoch = sealer.epoch();
    let header = Header { kind, fin, follows, epoch, connection, number: number as u32 };
    header.encode(out);
    fill(out);
    if let Some(trace) = trace {
        let body = &out[start + HEADER_LEN..];
        trace.on_sent((number, &header), HEADER_LEN + body.len() + TAG_LEN, body);
    }
    let (associated, body) = out[start..].split_at_mut(HEADER_LEN);
    let tag = sealer.seal(number, associated, body);
    out.extend_from_slice(&tag);
}
