//! What packets carry while links move them from queue to queue.

use slab::Slab;
use smallvec::SmallVec;
use units::{Bytes, Instant};

use crate::tcp::{Kind, SackBlocks, Segment};

/// What a packet carries, by its place among all of its kind: it stays there until it arrives.
#[derive(Clone, Copy)]
pub(super) enum Body {
    /// Of a TCP connection.
    Segment(u32),
    /// Of our transport.
    Datagram(u32),
}

/// A packet that an end sends.
pub(super) struct Sent {
    pub(super) body: Body,
    /// As an IP packet.
    pub(super) size: Bytes,
    /// Whether a queue may mark it. Here TCP does without.
    pub(super) ecn_capable: bool,
}

/// A segment with the number of its connection, for a flow has one after the other. Most say little, and many
/// are under way at a time.
#[derive(Clone)]
struct Kept {
    connection: u32,
    timestamps: bool,
    stamp: Instant,
    kind: Small,
}

#[derive(Clone)]
enum Small {
    Data { seq: u64, len: u64 },
    Ack { ack: u64, window: u64 },
    Other(Box<Kind>),
}

impl Kept {
    fn new(connection: u32, segment: &Segment) -> Self {
        let Segment { stamp, timestamps, .. } = *segment;
        let kind = match segment.kind {
            Kind::Data { seq, len } => Small::Data { seq, len },
            Kind::Ack { ack, window, ref sack } if sack.as_slice().is_empty() => {
                Small::Ack { ack, window }
            }
            ref kind => Small::Other(Box::new(*kind)),
        };
        Self { connection, timestamps, stamp, kind }
    }

    fn segment(self) -> (u32, Segment) {
        let Self { connection, timestamps, stamp, kind } = self;
        let kind = match kind {
            Small::Data { seq, len } => Kind::Data { seq, len },
            Small::Ack { ack, window } => Kind::Ack { ack, window, sack: SackBlocks::default() },
            Small::Other(kind) => *kind,
        };
        (connection, Segment { kind, stamp, timestamps })
    }
}

/// All bodies of a network.
#[derive(Default)]
pub(super) struct Bodies {
    segments: Slab<Kept>,
    datagrams: Slab<Trimmed>,
    /// Those that were sent and have not been put on a link.
    pub(super) sent: Vec<Sent>,
}

impl Bodies {
    /// Sends a segment of the connection of this number.
    pub(super) fn send_segment(&mut self, connection: u32, segment: &Segment) {
        let size = segment.size();
        let body = Body::Segment(self.segments.insert(Kept::new(connection, segment)) as u32);
        self.sent.push(Sent { body, size, ecn_capable: false });
    }

    /// Sends a datagram.
    pub(super) fn send_datagram(&mut self, datagram: Trimmed) {
        let Trimmed { ecn_capable, len, .. } = datagram;
        let body = Body::Datagram(self.datagrams.insert(datagram) as u32);
        self.sent.push(Sent { body, size: Bytes(len as u64 + HEADERS), ecn_capable });
    }

    /// Takes a segment, and the number of its connection; what is none is discarded.
    pub(super) fn take_segment(&mut self, body: Body) -> Option<(u32, Segment)> {
        let Body::Segment(place) = body else {
            self.discard(body);
            return None;
        };
        Some(self.segments.remove(place as usize).segment())
    }

    /// Takes a datagram; what is none is discarded.
    pub(super) fn take_datagram(&mut self, body: Body) -> Option<Trimmed> {
        let Body::Datagram(place) = body else {
            self.discard(body);
            return None;
        };
        Some(self.datagrams.remove(place as usize))
    }

    /// A queue has marked it.
    pub(super) fn mark(&mut self, body: Body) {
        if let Body::Datagram(place) = body {
            self.datagrams[place as usize].ce = true;
        }
    }

    /// The same once more.
    pub(super) fn copy(&mut self, body: Body) -> Body {
        match body {
            Body::Segment(place) => {
                let segment = self.segments[place as usize].clone();
                Body::Segment(self.segments.insert(segment) as u32)
            }
            Body::Datagram(place) => {
                let datagram = self.datagrams[place as usize].clone();
                Body::Datagram(self.datagrams.insert(datagram) as u32)
            }
        }
    }

    /// Does not arrive.
    pub(super) fn discard(&mut self, body: Body) {
        match body {
            Body::Segment(place) => drop(self.segments.remove(place as usize)),
            Body::Datagram(place) => drop(self.datagrams.remove(place as usize)),
        }
    }
}

/// A datagram of which the zeros at the end are not kept: nothing else is written by the
/// applications here, and what need not be stored need not be fetched when it arrives.
#[derive(Clone)]
pub(super) struct Trimmed {
    /// A queue may mark it, or has.
    pub(super) ecn_capable: bool,
    pub(super) ce: bool,
    /// In place, so that those in a queue lie side by side.
    head: SmallVec<[u8; HEAD]>,
    len: usize,
}

/// What else a datagram of data has, at most.
const HEAD: usize = 128;
/// Zeros are left out by so many.
const ZEROS: [u8; 64] = [0; 64];

impl Trimmed {
    pub(super) fn new(bytes: &[u8], ecn_capable: bool) -> Self {
        let chunks = bytes.rchunks_exact(ZEROS.len());
        let left_out = chunks.take_while(|chunk| **chunk == ZEROS).count() * ZEROS.len();
        let head = SmallVec::from_slice(&bytes[..bytes.len() - left_out]);
        Self { ecn_capable, ce: false, head, len: bytes.len() }
    }

    /// Puts the datagram into a buffer.
    pub(super) fn restore(&self, buffer: &mut Vec<u8>) {
        buffer.clear();
        buffer.extend_from_slice(&self.head);
        buffer.resize(self.len, 0);
    }
}

/// UDP and IPv4 headers.
pub(super) const HEADERS: u64 = 28;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::{Config, Receiver};

    fn syn() -> Segment {
        Segment { kind: Kind::Syn, stamp: Instant::ZERO, timestamps: false }
    }

    #[test]
    fn segments_arrive_as_they_were_and_leave_nothing() {
        let data = Segment { kind: Kind::Data { seq: 9, len: 3 }, ..syn() };
        // Behind a hole, so that it is acknowledged selectively.
        let answer = Receiver::new(&Config::default()).handle(Instant::ZERO, &data);
        let selective = answer.expect("what is out of order is answered at once").kind;
        let Kind::Ack { ack, window, sack } = selective else { panic!("{selective:?}") };
        assert!(!sack.as_slice().is_empty());
        let plain = Kind::Ack { ack, window, sack: SackBlocks::default() };
        let kinds = [
            Kind::Syn,
            Kind::SynAck { window: 1 },
            Kind::Data { seq: 2, len: 3 },
            plain,
            selective,
        ];
        let mut bodies = Bodies::default();
        for (kind, number) in kinds.into_iter().zip(0..) {
            let stamp = Instant::from_nanos(u64::from(number));
            let segment = Segment { kind, stamp, timestamps: number % 2 == 0 };
            bodies.send_segment(number, &segment);
            let Sent { body, size, .. } = bodies.sent.pop().expect("it was sent");
            let copy = bodies.copy(body);
            assert_eq!(
                (size, bodies.take_segment(body)),
                (segment.size(), Some((number, segment)))
            );
            assert_eq!(bodies.take_segment(copy), Some((number, segment)));
            bodies.send_segment(number, &segment);
            let Sent { body, .. } = bodies.sent.pop().expect("it was sent");
            assert!(bodies.take_datagram(body).is_none());
        }
        assert!(bodies.segments.is_empty() && bodies.datagrams.is_empty());
    }

    #[test]
    fn datagrams_arrive_as_they_were() {
        let mut buffer = vec![7; 9];
        for length in [0, 1, 63, 64, 65, 200] {
            for last in 0..length {
                let mut bytes = vec![0; length];
                bytes[last] = 1;
                let trimmed = Trimmed::new(&bytes, false);
                assert!(trimmed.head.len() <= last + ZEROS.len());
                trimmed.restore(&mut buffer);
                assert_eq!(buffer, bytes);
            }
        }
        Trimmed::new(&[0; 100], false).restore(&mut buffer);
        assert_eq!(buffer, [0; 100]);
    }
}
