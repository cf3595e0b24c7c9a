//! One stream: both its halves, and what the table must know of it.

use std::collections::VecDeque;

use super::Limits;
use super::outlet::{Outlet, Places};
use super::recv::RecvHalf;
use super::send::SendHalf;
use super::turns::Priority;
use super::window::Window;
use crate::Event;

/// Bytes that a stream takes beyond what it has credit for.
const AHEAD: u64 = 64 << 10;

#[derive(Debug)]
pub(super) struct Stream {
    pub(super) send: SendHalf,
    pub(super) recv: RecvHalf,
    pub(super) places: Places,
    pub(super) priority: Priority,
    /// The application waits for room to write.
    pub(super) write_blocked: bool,
    /// Stands in the list of streams whose credit must be told.
    pub(super) owed: bool,
    /// The application has let go of it.
    pub(super) released: bool,
}

impl Stream {
    /// One on which nothing has been written or read; the other end gives it `credit`.
    pub(super) fn new(credit: u64, window: Window) -> Self {
        Self {
            send: SendHalf::new(credit),
            recv: RecvHalf::new(window),
            places: Places::default(),
            priority: Priority::default(),
            write_blocked: false,
            owed: false,
            released: false,
        }
    }

    /// How many bytes the stream may hold unsent: what it has credit for, and a little.
    pub(super) fn most_unsent(&self, limits: &Limits, outlet: &Outlet) -> u64 {
        // What others have queued may use the loan before.
        let loan = outlet.loan().saturating_sub(outlet.queued());
        let ahead = (self.send.reach(loan) - self.send.sent()).saturating_add(AHEAD);
        let most = if outlet.queued() < limits.queued { limits.unsent } else { AHEAD };
        ahead.min(most)
    }

    /// Tells a waiting writer that there is room for a good deal again.
    pub(super) fn unblock_writer(
        &mut self,
        id: u64,
        (limits, outlet): (&Limits, &Outlet),
        events: &mut VecDeque<Event>,
    ) {
        let room = self.send.unsent() <= self.most_unsent(limits, outlet) / 2;
        if self.write_blocked && room && self.send.held() < limits.held {
            self.write_blocked = false;
            events.push_back(Event::Writable(id));
        }
    }
}
