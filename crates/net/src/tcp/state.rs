//! The state of a stream and its lanes, and what a lane is to do next. Who may look at it, and under
//! which lock, is `shared`'s matter.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::Waker;

use stripe::count::System;
use stripe::{Ack, Gather, LaneId, MAX_QUEUED, Record, Scatter};
use tokio::net::TcpStream;
use units::Instant;

use super::info::Totals;

/// A lane tells how far its peer may go when that has grown by this part of the window.
const LIMIT_STEPS: u64 = 4;

pub(super) struct State {
    pub(super) scatter: Scatter,
    pub(super) gather: Gather,
    /// The stream's user, waiting for room or for everything to be confirmed.
    pub(super) writer: Option<Waker>,
    /// The stream's user, waiting for data.
    pub(super) reader: Option<Waker>,
    pub(super) lanes: BTreeMap<LaneId, Lane>,
    /// Lanes that there ever were.
    pub(super) joined: u32,
    /// What those did that are gone.
    pub(super) gone: Totals,
    pub(super) received: u64,
    /// The most lanes there were at a time, and how many there should be.
    pub(super) most: usize,
    pub(super) target: usize,
    /// What the policy learnt, and the other side's.
    pub(super) system: Option<System>,
    pub(super) their_system: Option<System>,
    /// Whether the other side left a lane although this side has everything: then it has, too.
    pub(super) heard: bool,
    /// Whether the other side certainly has: it closed a lane over which it was told the last.
    pub(super) settled: bool,
    /// Lanes over which something came, and those that ended before, since that was asked.
    pub(super) begun: u32,
    pub(super) stillborn: u32,
    /// How many lanes this side would like, and the other; 0 for no wish.
    pub(super) wish: u32,
    pub(super) their_wish: u32,
    /// What echoes tell this side and the other of the round-trip time, as in an [`Ack`].
    pub(super) echoed: [u32; 2],
    pub(super) their_echoed: [u32; 2],
}

pub(super) struct Lane {
    pub(super) socket: Arc<TcpStream>,
    /// The task that sends, waiting for something to send.
    pub(super) idle: Option<Waker>,
    /// Whether anything came over it, and how many data records.
    pub(super) begun: bool,
    pub(super) received: u64,
    /// What the other side was last told over it.
    pub(super) told: Ack,
    /// Whether it is to be given up, whether this side said so, and whether the other did.
    pub(super) leaving: bool,
    pub(super) left: bool,
    pub(super) peer_left: bool,
}

/// What a lane is to do next.
pub(super) enum Next {
    Data(Record),
    Ack(Ack),
    /// Say that this side sends no more over it.
    Leave,
    /// Close it: both sides left.
    Close,
    /// Say that the stream failed, and close it.
    Reset,
    /// It is gone already.
    Gone,
}

pub(super) fn wake(waker: &mut Option<Waker>) {
    if let Some(waker) = waker.take() {
        waker.wake();
    }
}

impl State {
    pub(super) fn is_over(&self) -> bool {
        self.scatter.is_confirmed() && self.gather.is_complete()
    }

    /// Wakes lanes that can be given records.
    pub(super) fn wake_idle(&mut self, most: usize) {
        let idle = self.lanes.values_mut().filter(|lane| lane.idle.is_some() && lane.stays());
        idle.take(most).for_each(|lane| wake(&mut lane.idle));
    }

    pub(super) fn wake_all(&mut self) {
        self.lanes.values_mut().for_each(|lane| wake(&mut lane.idle));
    }

    pub(super) fn next(&mut self, now: Instant, id: LaneId, failed: bool) -> Option<Next> {
        let over = self.is_over();
        let Some(lane) = self.lanes.get_mut(&id) else { return Some(Next::Gone) };
        if failed {
            return Some(Next::Reset);
        }
        let (limit, step) = (self.gather.limit(), self.gather.window() / LIMIT_STEPS);
        // The last that each lane tells is everything: the others may be lost.
        let news = lane.received > lane.told.received
            || limit - lane.told.limit >= step
            || self.wish != lane.told.wish
            || self.system != lane.told.system
            || (over && lane.told.through < self.gather.through());
        if news && !(lane.left && lane.peer_left) {
            let (received, through) = (lane.received, self.gather.through());
            let (wish, echoed, system) = (self.wish, self.echoed, self.system);
            lane.told = Ack { received, through, limit, wish, echoed, system };
            return Some(Next::Ack(lane.told));
        }
        if over {
            self.scatter.drain(id);
        }
        if let Some(record) = self.scatter.take(now, id) {
            // Half a queue at a time, or user and lanes would wake each other at every record.
            if self.scatter.queued() <= MAX_QUEUED / 2 {
                wake(&mut self.writer);
            }
            return Some(Next::Data(record));
        }
        if (over || self.scatter.is_drained(id)) && !lane.left {
            lane.left = true;
            return Some(Next::Leave);
        }
        (lane.left && lane.peer_left).then_some(Next::Close)
    }
}

impl Lane {
    pub(super) fn stays(&self) -> bool {
        !self.leaving && !self.peer_left
    }
}
