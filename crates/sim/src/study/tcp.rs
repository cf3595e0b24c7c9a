//! A flow over TCP: its source, and its connections one after the other.

use core::time::Duration;

use units::{Instant, Rate};

use super::flow::{End, Flow, Standing};
use super::outcome::Documents;
use super::parcel::Parcel;
use super::transit::Outlet;
use crate::tcp::source::{Messages, Reader};
use crate::tcp::{Config, Receiver, Sender, Source};

pub(super) struct TcpFlow {
    config: Config,
    source: Source,
    reader: Option<Reader>,
    sender: Sender,
    receiver: Receiver,
    /// The number of this connection.
    connection: u32,
    /// When it begins, or the next message is written; the far future when it has begun, or none will.
    due: Instant,
    /// When it was begun, of a document that is under way.
    asked: Option<Instant>,
    /// Bytes of the document.
    document: u64,
    /// Of earlier connections.
    past: Standing,
    documents: Documents,
    /// The first message is written then; how many have been written.
    start: Instant,
    messages: u64,
    finished: Option<Instant>,
}

impl TcpFlow {
    pub(super) fn new(config: &Config, source: Source, start: Instant, seed: u64) -> Self {
        let reader = match source {
            Source::Http(law) => Some(Reader::new(law, seed)),
            Source::Greedy | Source::Fixed(_) | Source::Copy(_) | Source::Messages(_) => None,
        };
        Self {
            config: *config,
            source,
            reader,
            sender: Sender::new(config),
            receiver: Receiver::new(config),
            connection: 0,
            due: start,
            asked: None,
            document: 0,
            past: Standing::default(),
            documents: Documents::default(),
            start,
            messages: 0,
            finished: None,
        }
    }

    /// Does what is due of the application.
    fn act(&mut self, now: Instant) {
        let due = core::mem::replace(&mut self.due, Instant::FAR_FUTURE);
        match self.source {
            Source::Messages(Messages { size, every }) if self.connection > 0 => {
                self.sender.write(size.0);
                self.messages += 1;
                self.due = due + every;
            }
            _ => self.begin(now),
        }
    }

    fn begin(&mut self, now: Instant) {
        if self.connection > 0 {
            let Standing { delivered, sent, retransmitted, timeouts, .. } = self.standing();
            self.past =
                Standing { delivered, sent, retransmitted, timeouts, ..Standing::default() };
            self.sender = Sender::new(&self.config);
            self.receiver = Receiver::new(&self.config);
        }
        self.connection += 1;
        self.document = match (self.source, &mut self.reader) {
            (_, Some(reader)) => reader.document(),
            (Source::Fixed(size) | Source::Copy(size), None) => size.0,
            (_, None) => u64::MAX,
        };
        self.sender.open();
        if let Source::Messages(_) = self.source {
            self.due = self.start;
            return;
        }
        self.asked = Some(now);
        self.sender.write(self.document);
        self.sender.close();
    }

    /// Bytes in order with which the next document, or message, is whole.
    #[inline(always)]
    fn wanted(&self) -> u64 {
        match self.source {
            Source::Messages(Messages { size, .. }) => (self.documents.count + 1) * size.0,
            _ => self.document,
        }
    }

    /// Notes that what was [wanted](Self::wanted) has arrived.
    #[cold]
    fn note_arrival(&mut self, now: Instant) {
        if let Source::Messages(Messages { every, .. }) = self.source {
            while self.receiver.delivered() >= self.wanted() {
                let waited = every.as_nanos() as u64 * self.documents.count;
                self.documents.note(now.since(self.start + Duration::from_nanos(waited)));
            }
            return;
        }
        let Some(asked) = self.asked.take() else { return };
        self.documents.note(now.since(asked));
        match &mut self.reader {
            Some(reader) => self.due = reader.pause(now),
            None => self.finished = Some(now),
        }
    }
}

impl Flow for TcpFlow {
    #[inline(always)]
    fn arrive(&mut self, now: Instant, end: End, parcel: &Parcel, out: &mut Outlet<'_>) {
        let Some((connection, segment)) = out.take_segment(parcel) else { return };
        if connection != self.connection {
            return;
        }
        match end {
            End::Sender => self.sender.handle(now, segment),
            End::Receiver => {
                if let Some(answer) = self.receiver.handle(now, segment) {
                    out.send_segment(self.connection, answer);
                }
                if self.receiver.delivered() >= self.wanted() {
                    self.note_arrival(now);
                }
            }
        }
    }

    #[inline(always)]
    fn run(&mut self, now: Instant, end: End, out: &mut Outlet<'_>) {
        match end {
            End::Sender => {
                while self.due <= now {
                    self.act(now);
                }
                self.sender.handle_timeout(now);
                while let Some(segment) = self.sender.poll(now) {
                    out.send_segment(self.connection, segment);
                    if self.sender.is_full() {
                        break;
                    }
                }
            }
            End::Receiver => {
                if let Some(answer) = self.receiver.handle_timeout(now) {
                    out.send_segment(self.connection, answer);
                }
            }
        }
    }

    #[inline(always)]
    fn next(&self, end: End) -> Instant {
        match end {
            End::Sender => self.sender.next_timeout().min(self.due),
            End::Receiver => self.receiver.next_timeout(),
        }
    }

    fn is_told_by_packets(&self) -> bool {
        // The next document is asked for when the last one has arrived.
        self.reader.is_none()
    }

    fn standing(&self) -> Standing {
        let stats = self.sender.stats();
        let rtt = stats.rtt.filter(|rtt| *rtt > Duration::ZERO);
        let asked = u64::from(self.reader.is_some() && self.asked.is_some());
        Standing {
            delivered: self.past.delivered + self.receiver.delivered(),
            rtt,
            window: stats.window,
            rate: rtt.and_then(|rtt| Rate::of(stats.window, rtt)),
            connections: None,
            sent: self.past.sent + stats.sent,
            retransmitted: self.past.retransmitted + stats.retransmitted,
            timeouts: self.past.timeouts + stats.timeouts,
            documents: Documents {
                unfinished: asked + self.messages.saturating_sub(self.documents.count),
                ..self.documents
            },
            finished: self.finished,
        }
    }
}
