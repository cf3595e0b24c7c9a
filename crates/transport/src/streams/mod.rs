//! Streams: ordered bytes in both directions, many to a connection.
//!
//! `send` keeps what was written until the other end has it, `recv` what arrived until it is
//! read; both in a `store`. `stream` joins them, `table` holds a connection's streams: `numbers` tells which may exist,
//! `outlet` which has what to send, `turns` whose turn it is. Credit is on two levels (paper 2):
//! `window` is a stream's, `lender` the connection's.

mod lender;
mod limits;
mod numbers;
mod outlet;
mod recv;
mod send;
mod store;
mod stream;
mod table;
mod turns;
mod window;

use crate::wire::StreamCredit;

pub(crate) use limits::Limits;
pub(crate) use numbers::EARLY_STREAMS;
pub(crate) use send::Piece;
pub(crate) use table::Streams;
pub use turns::{Class, Priority};

/// All credit that one report tells.
#[derive(Clone, Debug, Default)]
pub(crate) struct Grant {
    /// Bytes on all streams together, from the connection's beginning on.
    pub(crate) connection: u64,
    /// Streams that may be opened, from the beginning on.
    pub(crate) streams: u64,
    /// Of streams that have more than they were told before.
    pub(crate) credits: Vec<StreamCredit>,
}

/// Why no stream can be opened now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The other end takes no more at a time; [`crate::Event::Openable`] tells when to try again.
    #[error("the other side takes no more streams at a time; wait until one has ended")]
    Blocked,
    /// Too much waits to be sent already (paper 5: admitted or refused by what is queued).
    #[error(
        "{queued} bytes wait to be sent, more than the {limit} with which streams are admitted; try again later"
    )]
    Overloaded {
        /// Bytes that wait.
        queued: u64,
        /// See [`crate::Config::admission`].
        limit: u64,
    },
}

/// What a read gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadOutcome {
    /// So many bytes.
    Read(usize),
    /// Nothing now; [`crate::Event::Readable`] tells when to try again.
    Blocked,
    /// The stream has ended: every byte was read.
    End,
    /// The sender gave the stream up with this code.
    Reset(u64),
}

/// What a write gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteOutcome {
    /// So many bytes were taken.
    Written(usize),
    /// Nothing now; [`crate::Event::Writable`] tells when to try again.
    Blocked,
    /// The reader wants no more, or the stream was finished or reset.
    Stopped,
}

/// What became of all that was written to a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// Some of it, or the end, is not known to have arrived.
    Pending,
    /// All of it has arrived, and the end.
    Done,
    /// It was given up: reset here, or because the reader wants no more.
    GivenUp,
}

/// How the other end broke the rules of streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamError {
    /// It sent more than its credit.
    #[error("more was sent than there was credit for")]
    CreditExceeded,
    /// It named two different ends of one stream, or sent past the end.
    #[error("a stream's end was moved")]
    EndMoved,
    /// It sent pieces with more holes between them, in all streams, than are remembered.
    #[error("the streams were sent in too many pieces")]
    TooManyHoles,
    /// It opened more streams than it may, or used one that cannot exist.
    #[error("a stream was used that may not exist")]
    NoSuchStream,
}
