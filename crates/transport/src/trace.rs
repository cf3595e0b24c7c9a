//! What a connection does, step by step, for whoever wants to look: kept only where
//! [`crate::Config::trace`] asks for it.

use core::time::Duration;
use std::collections::VecDeque;

use units::{Bytes, Instant, Rate};

use crate::connection::CloseReason;
use crate::stats::Limit;
use crate::wire::{
    Close, Data, Header, Kind, Parameters, Piece, Report, State, StreamSignal, WireError,
};

/// Records that wait to be taken; what happens beyond is counted. At 1 Gbit/s half a second's.
const MAX_RECORDS: usize = 1 << 16;

/// Something that happened.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// When.
    pub at: Instant,
    /// What.
    pub what: Step,
}

/// What happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// The handshake is done; what this end said in it, and what the other.
    Agreed(Box<(Parameters, Parameters)>),
    /// A sealed packet went out.
    Sent(Packet),
    /// One arrived.
    Received(Packet),
    /// The packet of this number was given up for lost.
    Lost {
        /// Its number.
        number: u64,
        /// Whether for its age alone, and not because later ones had arrived.
        late: bool,
    },
    /// What is known of the path has changed.
    Metrics(Metrics),
    /// The controller went on to this state (see [`crate::cc::Controller::state`]).
    Congestion(&'static str),
    /// From now on this keeps the sender from sending faster.
    Limited(Limit),
    /// The end.
    Closed(CloseReason),
}

/// A packet and what it held.
#[derive(Clone, Debug, PartialEq)]
pub struct Packet {
    /// Its number.
    pub number: u64,
    /// Its kind.
    pub kind: Kind,
    /// Bytes of the datagram.
    pub size: usize,
    /// What it held.
    pub frames: Vec<Frame>,
}

/// What a packet holds.
#[derive(Clone, Debug, PartialEq)]
pub enum Frame {
    /// A piece of a stream.
    Stream {
        /// The stream.
        stream: u64,
        /// Where in it.
        offset: u64,
        /// How many bytes.
        len: usize,
        /// Whether up to its end.
        fin: bool,
    },
    /// The receiver's state.
    Report(Box<Report>),
    /// The sender's state.
    State(Box<State>),
    /// Asks for a report; of the given length.
    Ping(usize),
    /// A stream's reset.
    Reset(StreamSignal),
    /// A stream's stop.
    Stop(StreamSignal),
    /// The end.
    Close(Close),
    /// A challenge to an address.
    Challenge,
    /// The answer to one.
    Response,
}

/// Figures of the path as the sender sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Metrics {
    /// The latest sample of the round-trip time, if the report gave one.
    pub latest_rtt: Option<Duration>,
    /// Smoothed.
    pub rtt: Duration,
    /// The least of the last seconds.
    pub min_rtt: Duration,
    /// Mean deviation.
    pub variation: Duration,
    /// Bytes that may be in flight.
    pub window: Bytes,
    /// Bytes that are.
    pub in_flight: Bytes,
    /// The rate at which packets go out.
    pub pacing_rate: Rate,
}

/// The records that wait to be taken.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    records: VecDeque<Record>,
    dropped: u64,
    /// The time of what is being done.
    now: Instant,
    state: &'static str,
    limit: Limit,
}

impl Trace {
    /// Records stand in the order in which things were done. Who read the clock before another thread
    /// may come after it.
    pub(crate) fn set_time(&mut self, now: Instant) {
        self.now = self.now.max(now);
    }

    pub(crate) fn note(&mut self, what: Step) {
        if self.records.len() == MAX_RECORDS {
            self.dropped += 1;
        } else {
            self.records.push_back(Record { at: self.now, what });
        }
    }

    pub(crate) fn on_sent(&mut self, header: (u64, &Header), size: usize, body: &[u8]) {
        self.note(Step::Sent(packet(header, size, body)));
    }

    pub(crate) fn on_received(&mut self, header: (u64, &Header), size: usize, body: &[u8]) {
        self.note(Step::Received(packet(header, size, body)));
    }

    pub(crate) fn on_state(&mut self, state: &'static str) {
        if self.state != state {
            self.state = state;
            self.note(Step::Congestion(state));
        }
    }

    pub(crate) fn on_limit(&mut self, limit: Limit) {
        if self.limit != limit {
            self.limit = limit;
            self.note(Step::Limited(limit));
        }
    }

    /// Moves the records behind those in `out`; gives how many there was no room for meanwhile.
    pub(crate) fn take(&mut self, out: &mut Vec<Record>) -> u64 {
        out.extend(self.records.drain(..));
        core::mem::take(&mut self.dropped)
    }
}

fn packet((number, header): (u64, &Header), size: usize, body: &[u8]) -> Packet {
    // One that cannot be read ends the connection, and says so itself.
    let frames = frames(header, body).unwrap_or_default();
    Packet { number, kind: header.kind, size, frames }
}

fn frames(header: &Header, mut body: &[u8]) -> Result<Vec<Frame>, WireError> {
    let piece = |data: Data<'_>, fin| {
        let Data { stream, offset, payload } = data;
        Frame::Stream { stream, offset, len: payload.len(), fin }
    };
    Ok(vec![match header.kind {
        Kind::Data => piece(Data::decode(body)?, header.fin),
        Kind::Pieces => {
            let mut frames = Vec::new();
            while let Some(Piece { data, fin }) = Piece::decode(&mut body)? {
                frames.push(piece(data, fin));
            }
            return Ok(frames);
        }
        Kind::Report => Frame::Report(Box::new(Report::decode(body)?)),
        Kind::State => Frame::State(Box::new(State::decode(body)?)),
        Kind::Ping => Frame::Ping(body.len()),
        Kind::Reset => Frame::Reset(StreamSignal::decode(body)?),
        Kind::Stop => Frame::Stop(StreamSignal::decode(body)?),
        Kind::Close => {
            let (close, last) = Close::decode(body)?;
            let report = last.map(|report| Frame::Report(Box::new(report)));
            return Ok(report.into_iter().chain([Frame::Close(close)]).collect());
        }
        Kind::PathChallenge => Frame::Challenge,
        Kind::PathResponse => Frame::Response,
    }])
}
