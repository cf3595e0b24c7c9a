//! A connection as whoever logs it sees it.

use transport::trace::Record;
use transport::{CloseReason, Side};

use super::shared::Shared;

/// Hands out what a connection noted of its steps (see [`transport::Config::trace`]). It keeps
/// nobody's connection from ending, and sees the end.
pub struct Tracer {
    shared: Shared,
    number: u32,
    side: Side,
}

impl Tracer {
    pub(super) fn new(shared: Shared) -> Self {
        let (number, side) = {
            let inner = shared.lock();
            (inner.number, inner.connection.side())
        };
        Self { shared, number, side }
    }

    /// The connection's number at this end.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Which end this is.
    pub fn side(&self) -> Side {
        self.side
    }

    /// Moves the records made since the last time behind those in `records`; whether they are the
    /// last, and how many were left out because too many waited.
    pub fn take(&self, records: &mut Vec<Record>) -> (bool, u64) {
        let mut inner = self.shared.lock();
        let dropped = inner.connection.take_records(records);
        let failed = inner.closed == Some(CloseReason::Failed);
        (failed || inner.connection.is_closed(), dropped)
    }
}
