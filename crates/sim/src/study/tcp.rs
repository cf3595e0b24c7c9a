//! A flow over TCP: its source, and its connections one after the other.

use core::time::Duration;

use units::{Instant, Rate};

use super::flow::{End, Flow, Standing};
use super::outcome::Documents;
use super::transit::{Body, Outlet};
use crate::tcp::source::Reader;
use crate::tcp::{Config, Receiver, Sender, Source};

pub(super) struct TcpFlow {
    config: Config,
    source: Source,
    reader: Option<Reader>,
    sender: Sender,
    receiver: Receiver,
    /// The number of this connection.
    connection: u32,
    /// When it begins; `None` when it has, or none will.
    begin: Option<Instant>,
    /// When it was begun, of a document that is under way.
    asked: Option<Instant>,
    /// Bytes of the document.
    document: u64,
    /// Of earlier connections.
    past: Standing,
    documents: Documents,
    finished: Option<Instant>,
}

impl TcpFlow {
    pub(super) fn new(config: &Config, source: Source, start: Instant, seed: u64) -> Self {
        let reader = match source {
            Source::Http(law) => Some(Reader::new(law, seed)),
            Source::Greedy | Source::Fixed(_) | Source::Copy(_) => None,
        };
        Self {
            config: *config,
            source,
            reader,
            sender: Sender::new(config),
            receiver: Receiver::new(config),
            connection: 0,
            begin: Some(start),
            asked: None,
            document: 0,
            past: Standing::default(),
            documents: Documents::default(),
            finished: None,
        }
    }

    fn begin(&mut self, now: Instant) {
        self.begin = None;
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
        self.asked = Some(now);
        self.sender.open();
        self.sender.write(self.document);
        self.sender.close();
    }

    /// Notes that a document has arrived whole.
    fn look(&mut self, now: Instant) {
        if self.receiver.delivered() < self.document {
            return;
        }
        let Some(asked) = self.asked.take() else { return };
        self.documents.note(now.since(asked));
        match &mut self.reader {
            Some(reader) => self.begin = Some(reader.pause(now)),
            None => self.finished = Some(now),
        }
    }
}

impl Flow for TcpFlow {
    #[inline(always)]
    fn arrive(&mut self, now: Instant, end: End, body: Body, out: &mut Outlet<'_>) {
        let Some((connection, segment)) = out.take_segment(body) else { return };
        if connection != self.connection {
            return;
        }
        match end {
            End::Sender => self.sender.handle(now, &segment),
            End::Receiver => {
                if let Some(answer) = self.receiver.handle(now, &segment) {
                    out.send_segment(self.connection, answer);
                }
                self.look(now);
            }
        }
    }

    #[inline(always)]
    fn run(&mut self, now: Instant, end: End, out: &mut Outlet<'_>) {
        match end {
            End::Sender => {
                if self.begin.is_some_and(|begin| begin <= now) {
                    self.begin(now);
                }
                self.sender.handle_timeout(now);
                while let Some(segment) = self.sender.poll(now) {
                    out.send_segment(self.connection, segment);
                }
            }
            End::Receiver => {
                if let Some(answer) = self.receiver.handle_timeout(now) {
                    out.send_segment(self.connection, answer);
                }
            }
        }
    }

    fn next(&self, end: End) -> Option<Instant> {
        match end {
            End::Sender => self.sender.next_timeout().into_iter().chain(self.begin).min(),
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
                unfinished: (self.reader.is_some() && self.asked.is_some()).into(),
                ..self.documents
            },
            finished: self.finished,
        }
    }
}
