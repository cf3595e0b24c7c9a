//! What a stream, its connections (*lanes*) and its keeper hold together.
//!
//! One lock, held for a copy of some records at most and never over an await. Whoever finds nothing
//! to do leaves a waker: the stream's user one for each direction, and each lane one for sending.
//! Receiving never waits for anything but the network.

use std::collections::BTreeMap;
use std::io;
use std::net::{Shutdown, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use socket2::SockRef;
use stripe::count::System;
use stripe::{
    Ack, AckError, Assignment, Gather, GatherError, INITIAL_RECORDS, LaneId, MAX_QUEUED, Scatter,
};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use units::Instant;

use super::info::{Stats, Totals};
use super::options::MAX_STREAMS;
use super::state::{Lane, Next, State, wake};
use crate::clock;
use crate::error::NetError;

/// A lane tells how far its peer may go when that has grown by this part of the window.
const LIMIT_STEPS: u64 = 4;

pub(super) struct Shared {
    peer: SocketAddr,
    state: Mutex<State>,
    /// Why the stream failed; the first reason counts.
    failure: OnceLock<String>,
    /// Told when lanes come or go, and when the stream fails or is over.
    pub changed: Notify,
}

fn wait<T>(slot: &mut Option<Waker>, cx: &Context<'_>) -> Poll<T> {
    *slot = Some(cx.waker().clone());
    Poll::Pending
}

impl Shared {
    pub fn new(peer: SocketAddr, buffer: units::Bytes) -> Self {
        let state = State {
            scatter: Scatter::new(Assignment::Dynamic, buffer),
            gather: Gather::new(buffer),
            writer: None,
            reader: None,
            lanes: BTreeMap::new(),
            joined: 0,
            gone: Totals::default(),
            received: 0,
            most: 0,
            target: 0,
            system: None,
            their_system: None,
            heard: false,
            settled: false,
            begun: 0,
            stillborn: 0,
            wish: 0,
            their_wish: 0,
            echoed: [0; 2],
            their_echoed: [0; 2],
        };
        Self { peer, state: Mutex::new(state), failure: OnceLock::new(), changed: Notify::new() }
    }

    /// Locks, whether or not somebody panicked: every critical section leaves the state whole.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // The user's side.

    pub fn poll_write(&self, cx: &Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        let state = &mut *self.lock();
        self.check()?;
        if state.scatter.is_finished() {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let written = state.scatter.write(data);
        if written == 0 && !data.is_empty() {
            return wait(&mut state.writer, cx);
        }
        state.wake_idle(state.scatter.queued());
        Poll::Ready(Ok(written))
    }

    /// Ready at once, for whatever was written goes by itself as soon as a connection can take it.
    /// Waiting until it has gone would wait for the slowest connection while all others are idle.
    pub fn poll_flush(&self) -> Poll<io::Result<()>> {
        Poll::Ready(self.check())
    }

    /// Ready when the other side has all that was written, and the end of it.
    pub fn poll_shutdown(&self, cx: &Context<'_>) -> Poll<io::Result<()>> {
        let state = &mut *self.lock();
        if state.scatter.is_confirmed() {
            return Poll::Ready(Ok(()));
        }
        self.check()?;
        state.scatter.finish();
        state.wake_idle(MAX_QUEUED);
        wait(&mut state.writer, cx)
    }

    /// Gives what came in order even after a failure, and the failure only behind it.
    pub fn poll_read(&self, cx: &Context<'_>, to: &mut [u8]) -> Poll<io::Result<usize>> {
        let state = &mut *self.lock();
        let read = state.gather.read(to);
        if read > 0 {
            let (limit, step) = (state.gather.limit(), state.gather.window() / LIMIT_STEPS);
            for lane in state.lanes.values_mut().filter(|lane| limit - lane.told.limit >= step) {
                wake(&mut lane.idle);
            }
            return Poll::Ready(Ok(read));
        }
        if to.is_empty() || state.gather.is_ended() {
            return Poll::Ready(Ok(0));
        }
        self.check()?;
        wait(&mut state.reader, cx)
    }

    /// Whether both sides have everything.
    pub fn is_over(&self) -> bool {
        self.lock().is_over()
    }

    /// Whether nothing is left to do, well or ill. As long as the other side may not know that all is
    /// well, it is to be told.
    pub fn is_closed(&self) -> bool {
        let state = self.lock();
        state.lanes.is_empty() && self.is_done(&state)
    }

    /// Whether there is no connection at all.
    pub fn is_deserted(&self) -> bool {
        self.lock().lanes.is_empty()
    }

    /// Nobody need be told any more.
    pub fn settle(&self) {
        self.lock().settled = true;
        self.changed.notify_waiters();
    }

    /// Whether the other side knows, too, that both have everything.
    pub fn is_agreed(&self) -> bool {
        let state = self.lock();
        state.is_over() && (state.heard || state.settled || self.has_failed())
    }

    /// Bytes that the other side has.
    pub fn delivered(&self) -> units::Bytes {
        self.lock().scatter.delivered()
    }

    // The keeper's side.

    /// The connections, and what those did that are gone.
    pub fn sockets(&self) -> (Vec<Arc<TcpStream>>, Totals) {
        let state = self.lock();
        (state.lanes.values().map(|lane| lane.socket.clone()).collect(), state.gone.clone())
    }

    /// The stream's figures.
    pub fn stats(&self, elapsed: Duration) -> Stats {
        let (sockets, gone) = self.sockets();
        let state = self.lock();
        Stats {
            sent: state.scatter.delivered(),
            received: units::Bytes(state.received),
            elapsed,
            connections: state.most,
            connected: state.lanes.len(),
            target: state.target,
            system: state.system.or(state.their_system),
            ..Stats::collect(&sockets, gone)
        }
    }

    /// Notes what a controller learnt.
    pub fn learn(&self, system: Option<System>) {
        self.lock().system = system;
    }

    /// Notes how many lanes there should be.
    pub fn aim(&self, target: usize) {
        self.lock().target = target;
    }

    /// How many lanes can be given records.
    pub fn width(&self) -> usize {
        self.lock().lanes.values().filter(|lane| lane.stays()).count()
    }

    /// Lets idle lanes ask again when something is late, and says whether many are idle.
    pub fn tick(&self, now: Instant) -> bool {
        let state = &mut *self.lock();
        let idle = state.lanes.values().filter(|lane| lane.idle.is_some()).count();
        if state.scatter.is_late(now) {
            state.wake_idle(usize::MAX);
        }
        idle * 4 > state.lanes.len()
    }

    /// Lets the other side know how many connections this side would like.
    pub fn wish(&self, count: usize) {
        let state = &mut *self.lock();
        let count = count as u32;
        if state.wish != count {
            state.wish = count;
            if let Some(lane) = state.lanes.values_mut().find(|lane| lane.stays()) {
                wake(&mut lane.idle);
            }
        }
    }

    /// How many the other side would like, if it minds.
    pub fn their_wish(&self) -> Option<usize> {
        Some(self.lock().their_wish as usize).filter(|&wish| wish > 0)
    }

    /// Notes what echoes tell of the round-trip time, and the least of it, for the other side.
    pub fn note_echoes(&self, echoed: Option<(Duration, Duration)>) {
        let micros = |time: Duration| u32::try_from(time.as_micros()).unwrap_or(u32::MAX);
        self.lock().echoed = echoed.map_or([0; 2], |(rtt, least)| [rtt, least].map(micros));
    }

    /// What they tell the other side, if it asks for any.
    pub fn their_echoes(&self) -> Option<(Duration, Duration)> {
        let echoed = self.lock().their_echoed;
        let [rtt, least] = echoed.map(|micros| Duration::from_micros(micros.into()));
        (!least.is_zero()).then_some((rtt, least))
    }

    /// Lets so many lanes go once what they carry is confirmed: those with the highest names.
    pub fn drain(&self, surplus: usize) {
        let state = &mut *self.lock();
        let staying = state.lanes.iter_mut().rev().filter(|(_, lane)| lane.stays());
        for (&id, lane) in staying.take(surplus) {
            lane.leaving = true;
            state.scatter.drain(id);
            wake(&mut lane.idle);
        }
    }

    // The lanes' side.

    /// Takes in a lane; `None` when the stream takes no more. One that is over takes those by which
    /// the other side is to learn that.
    pub fn join(&self, socket: &Arc<TcpStream>) -> Option<LaneId> {
        let state = &mut *self.lock();
        if self.is_done(state) || state.lanes.len() >= MAX_STREAMS {
            return None;
        }
        let id = LaneId(state.joined);
        state.joined = state.joined.checked_add(1)?;
        state.scatter.join(id);
        let told = Ack { limit: INITIAL_RECORDS, ..Ack::default() };
        let socket = socket.clone();
        let [begun, leaving, left, peer_left] = [false; 4];
        let lane = Lane { socket, idle: None, begun, received: 0, told, leaving, left, peer_left };
        state.lanes.insert(id, lane);
        state.most = state.most.max(state.lanes.len());
        self.changed.notify_waiters();
        Some(id)
    }

    fn is_done(&self, state: &State) -> bool {
        self.failure.get().is_some() || (state.is_over() && state.settled)
    }

    /// Whether a lane has nothing to join any more.
    pub fn is_past(&self) -> bool {
        self.is_done(&self.lock())
    }

    /// Something came over a lane: the other side has taken it in.
    pub fn begin(&self, id: LaneId) {
        let state = &mut *self.lock();
        if let Some(lane) = state.lanes.get_mut(&id) {
            lane.begun = true;
            state.begun += 1;
        }
    }

    /// Over how many lanes something came since the last call, and how many ended before that.
    pub fn beginnings(&self) -> (u32, u32) {
        let state = &mut *self.lock();
        (std::mem::take(&mut state.begun), std::mem::take(&mut state.stillborn))
    }

    /// A lane is gone, in good order or not: others carry on, if there are any.
    pub fn leave(&self, id: LaneId, in_order: bool) {
        let state = &mut *self.lock();
        let Some(mut lane) = state.lanes.remove(&id) else { return };
        state.stillborn += u32::from(!lane.begun);
        // It closed only after it had read all that it was told before this side left.
        let told_all = lane.left && lane.peer_left && lane.told.through == state.gather.through();
        state.settled |= in_order && told_all && state.is_over();
        wake(&mut lane.idle);
        state.gone.add(&lane.socket);
        state.scatter.leave(id);
        state.wake_all();
        self.changed.notify_waiters();
    }

    /// What a lane is to send, now that it can.
    pub fn poll_next(&self, cx: &Context<'_>, id: LaneId) -> Poll<Next> {
        let state = &mut *self.lock();
        let failed = self.failure.get().is_some();
        match state.next(clock::now(), id, failed) {
            Some(next) => Poll::Ready(next),
            None => {
                let lane = state.lanes.get_mut(&id).expect("there, or the next would be Gone");
                wait(&mut lane.idle, cx)
            }
        }
    }

    /// Takes a data record that came over a lane.
    pub fn accept(&self, id: LaneId, number: u64, payload: Bytes) -> Result<(), GatherError> {
        let state = &mut *self.lock();
        let length = payload.len() as u64;
        if state.gather.accept(number, payload)? {
            state.received += length;
        }
        if let Some(lane) = state.lanes.get_mut(&id) {
            lane.received += 1;
        }
        if state.gather.has_data() || state.gather.is_ended() {
            wake(&mut state.reader);
        }
        self.after(state);
        Ok(())
    }

    /// A lane has nothing more to read for now: what it brought may be confirmed.
    pub fn acknowledge(&self, id: LaneId) {
        if let Some(lane) = self.lock().lanes.get_mut(&id) {
            wake(&mut lane.idle);
        }
    }

    /// Takes what the other side says over a lane of this direction.
    pub fn confirm(&self, id: LaneId, ack: &Ack) -> Result<(), AckError> {
        let state = &mut *self.lock();
        state.scatter.confirm(clock::now(), id, ack)?;
        (state.their_wish, state.their_echoed) = (ack.wish, ack.echoed);
        state.their_system = ack.system.or(state.their_system);
        if state.scatter.queued() <= MAX_QUEUED / 2 || state.scatter.is_confirmed() {
            wake(&mut state.writer);
        }
        state.wake_idle(state.scatter.queued());
        if let Some(lane) = state.lanes.get_mut(&id) {
            wake(&mut lane.idle);
        }
        self.after(state);
        Ok(())
    }

    /// When both sides have everything, all lanes take their leave.
    fn after(&self, state: &mut State) {
        if state.is_over() {
            state.wake_all();
            self.changed.notify_waiters();
        }
    }

    /// The other side leaves a lane; so does this one.
    pub fn peer_leaves(&self, id: LaneId) {
        let state = &mut *self.lock();
        state.heard |= state.is_over();
        state.scatter.drain(id);
        if let Some(lane) = state.lanes.get_mut(&id) {
            lane.peer_left = true;
            wake(&mut lane.idle);
        }
        self.changed.notify_waiters();
    }

    /// Whether a lane that came to its end did so because both sides had left it.
    pub fn parted(&self, id: LaneId) -> bool {
        self.lock().lanes.get(&id).is_none_or(|lane| lane.left && lane.peer_left)
    }

    // Failure.

    /// Ends the stream: its user is told why, and the other side that.
    pub fn fail(&self, reason: String) {
        if self.failure.set(reason).is_err() {
            return;
        }
        let mut state = self.lock();
        wake(&mut state.writer);
        wake(&mut state.reader);
        state.wake_all();
        self.changed.notify_waiters();
    }

    /// Closes the connections, whatever they carry.
    pub fn cut(&self) {
        for lane in self.lock().lanes.values() {
            // One that is already closed cannot be, and need not.
            let _ = SockRef::from(&*lane.socket).shutdown(Shutdown::Both);
        }
    }

    pub fn has_failed(&self) -> bool {
        self.failure.get().is_some()
    }

    fn check(&self) -> io::Result<()> {
        let Some(reason) = self.failure.get() else {
            return Ok(());
        };
        let (address, reason) = (self.peer, reason.clone());
        Err(NetError::Lost { address, reason }.into())
    }
}
