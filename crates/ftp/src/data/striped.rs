//! One file over several connections (paper 3, section 2.3): each record goes to the first connection
//! that can take it, and the receiver puts them in order in bounded memory. All connections are there
//! from beginning to end; how many of them carry records, the sender decides while it sends (section
//! 3.3), and the receiver need not know.

use std::future::poll_fn;
use std::io;
use std::os::fd::AsFd;
use std::sync::{Mutex, PoisonError};
use std::task::{Poll, Waker};

use bytes::Bytes;
use net::tcp::{Choice, Policy, TICK};
use stripe::xftp::{
    CLOSING_LEN, NUMBER_LEN, RECORD_LEN, closing, number, read_closing, records, unwrap,
};
use stripe::{Gather, MAX_PAYLOAD};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::sync::watch;

use super::{Channel, DataError, Moved, PIECE, Sink};

/// Records that wait for one that is missing, at most: 64 MiB, a second of 500 Mbit/s.
const WINDOW_RECORDS: u64 = 8192;

/// As many as there are.
const ALL: usize = usize::MAX;

/// Cuts a source into records, for whichever connection asks.
struct Scatter<R> {
    source: BufReader<R>,
    records: u64,
    bytes: u64,
    ended: bool,
}

impl<R: AsyncRead + Send + Unpin> Scatter<R> {
    /// Puts the next record into `out` and says how much of it is data; `None` behind the last.
    async fn next(&mut self, out: &mut [u8; NUMBER_LEN + RECORD_LEN]) -> io::Result<Option<usize>> {
        let mut filled = 0;
        while filled < RECORD_LEN && !self.ended {
            let read = self.source.read(&mut out[NUMBER_LEN + filled..]).await?;
            self.ended = read == 0;
            filled += read;
        }
        if filled == 0 {
            return Ok(None);
        }
        out[NUMBER_LEN + filled..].fill(0);
        out[..NUMBER_LEN].copy_from_slice(&number(self.records));
        self.records += 1;
        self.bytes += filled as u64;
        Ok(Some(filled))
    }
}

/// Sends everything; see [`super::send`].
pub async fn send<R: AsyncRead + Send + Unpin>(
    source: R,
    channels: &mut [Channel],
    policy: Policy,
    moved: &Moved,
) -> Result<(), DataError> {
    let socket = |channel: &Channel| channel.tcp()?.as_fd().try_clone_to_owned().ok();
    let sockets: Option<Vec<_>> = channels.iter().map(socket).collect();
    // Where the kernel tells nothing of them, all are used.
    let Some(sockets) = sockets else {
        return spread(source, channels, &watch::Sender::new(ALL), moved, 0).await;
    };
    let mut choice = Choice::new(policy, sockets);
    let used = watch::Sender::new(choice.decide(net::clock::now()));
    let choosing = async {
        loop {
            tokio::time::sleep(TICK).await;
            let count = choice.decide(net::clock::now());
            change(&used, count);
        }
    };
    let done = tokio::select! {
        done = spread(source, channels, &used, moved, 0) => done,
        never = choosing => never,
    };
    moved.learn(choice.learnt());
    done
}

/// Takes a new count, unless the end has come.
pub(super) fn change(used: &watch::Sender<usize>, count: usize) {
    used.send_if_modified(|used| *used != ALL && std::mem::replace(used, count) != count);
}

/// Sends everything over the first of the channels, as many of them as `used` says from time to time,
/// and closes all. So many whole records count as sent before: none, but to show what is far ahead.
pub(super) async fn spread<R: AsyncRead + Send + Unpin>(
    source: R,
    channels: &mut [Channel],
    used: &watch::Sender<usize>,
    moved: &Moved,
    before: u64,
) -> Result<(), DataError> {
    let source = BufReader::with_capacity(PIECE, source);
    let bytes = before * RECORD_LEN as u64;
    let scatter = Scatter { source, records: before, bytes, ended: false };
    let scatter = tokio::sync::Mutex::new(scatter);
    let lanes = channels.iter_mut().enumerate();
    all(lanes.map(|(at, channel)| send_lane((at, channel), &scatter, used, moved))).await
}

/// Sends records over one connection for as long as there are any and it is one of those in use, and
/// its closing record.
async fn send_lane<R: AsyncRead + Send + Unpin>(
    (at, channel): (usize, &mut Channel),
    scatter: &tokio::sync::Mutex<Scatter<R>>,
    used: &watch::Sender<usize>,
    moved: &Moved,
) -> Result<(), DataError> {
    let mut record = Box::new([0; NUMBER_LEN + RECORD_LEN]);
    let mut in_use = used.subscribe();
    let mut is_first = true;
    loop {
        // Fails without a sender alone, and that is here.
        let _ = in_use.wait_for(|&used| at < used).await;
        let next = scatter.lock().await.next(&mut record).await.map_err(DataError::File)?;
        let Some(data) = next else { break };
        if std::mem::take(&mut is_first) {
            moved.add_connection();
        }
        channel.write_all(&record[..]).await?;
        // TLS may hold on to it, and the receiver waits for each, however long this one rests now.
        channel.flush().await?;
        moved.add(data);
    }
    // Those that are not in use have their closing records to send, too.
    used.send_replace(ALL);
    let bytes = scatter.lock().await.bytes;
    channel.write_all(&closing(bytes)).await?;
    Ok(channel.shutdown().await?)
}

/// Runs the futures of all connections side by side in this task, up to the first that fails.
async fn all<F: Future<Output = Result<(), DataError>>>(
    lanes: impl Iterator<Item = F>,
) -> Result<(), DataError> {
    let mut lanes: Vec<_> = lanes.map(|lane| Some(Box::pin(lane))).collect();
    poll_fn(|context| {
        for slot in &mut lanes {
            if let Some(lane) = slot
                && let Poll::Ready(done) = lane.as_mut().poll(context)
            {
                *slot = None;
                if done.is_err() {
                    return Poll::Ready(done);
                }
            }
        }
        match lanes.iter().all(Option::is_none) {
            true => Poll::Ready(Ok(())),
            false => Poll::Pending,
        }
    })
    .await
}

/// What the connections and the writer share.
struct Shared {
    /// Knows the records from this one on, which is its first.
    gather: Gather,
    first: u64,
    /// The next record to be written; numbers are unwrapped around it.
    base: u64,
    /// Records that came, and one more than the highest of them.
    came: u64,
    highest: u64,
    /// Bytes of the whole, once a connection has told.
    size: Option<u64>,
    /// Connections that have not told.
    open: usize,
    /// Connections held back, and the writer.
    waiting: Vec<Waker>,
}

impl Shared {
    fn wake(&mut self) {
        self.waiting.drain(..).for_each(Waker::wake);
    }

    fn wait<T>(&mut self, context: &std::task::Context<'_>) -> Poll<T> {
        self.waiting.push(context.waker().clone());
        Poll::Pending
    }

    /// Whether a record can be taken now.
    fn has_room(&self, number: u64) -> bool {
        number - self.first < self.gather.limit()
    }

    /// Takes a record, which must be the first of its number and before the end.
    fn accept(&mut self, number: u64, payload: Bytes) -> Result<(), DataError> {
        if self.size.is_some_and(|size| number >= records(size)) {
            return Err(DataError::Malformed);
        }
        (self.came, self.highest) = (self.came + 1, self.highest.max(number + 1));
        self.wake();
        match self.gather.accept(number - self.first, payload) {
            Ok(true) => Ok(()),
            Ok(false) | Err(_) => Err(DataError::Malformed),
        }
    }

    /// Takes a closing record. All must agree, and with the last of them nothing may be missing.
    fn close(&mut self, size: u64) -> Result<(), DataError> {
        self.open -= 1;
        self.wake();
        let contradiction = self.size.is_some_and(|other| other != size)
            || self.highest > records(size)
            || (self.open == 0 && self.came < records(size));
        self.size = Some(size);
        if contradiction { Err(DataError::Malformed) } else { Ok(()) }
    }

    fn is_ended(&self) -> bool {
        self.size.is_some_and(|size| self.base == records(size))
    }
}

/// Receives everything; see [`super::receive`].
pub async fn receive(
    channels: Vec<Channel>,
    sink: &mut impl Sink,
    moved: &Moved,
) -> Result<(), DataError> {
    receive_from(0, channels, sink, moved).await
}

/// The same where so many whole records came before, as [`spread`] sends it.
pub(super) async fn receive_from(
    first: u64,
    channels: Vec<Channel>,
    sink: &mut impl Sink,
    moved: &Moved,
) -> Result<(), DataError> {
    // The window of `Gather` is counted in records of its own largest size.
    let window = units::Bytes(WINDOW_RECORDS * MAX_PAYLOAD as u64);
    let shared = Mutex::new(Shared {
        gather: Gather::new(window),
        first,
        base: first,
        came: first,
        highest: first,
        size: None,
        open: channels.len(),
        waiting: Vec::new(),
    });
    let lanes = all(channels.into_iter().map(|channel| read_lane(channel, &shared, moved)));
    let written = write_in_order(&shared, sink, moved);
    tokio::try_join!(lanes, written)?;
    Ok(())
}

fn lock(shared: &Mutex<Shared>) -> std::sync::MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads one connection up to its closing record. A record beyond the window holds it back, so that
/// TCP's own flow control does the same to the sender. That is no deadlock: numbers on a connection
/// increase, so what is missing in the window comes over one that is not held back.
async fn read_lane(
    mut channel: Channel,
    shared: &Mutex<Shared>,
    moved: &Moved,
) -> Result<(), DataError> {
    let first = lock(shared).first;
    let mut least = first;
    loop {
        let mut record = vec![0; NUMBER_LEN + RECORD_LEN];
        let filled = fill(&mut channel, &mut record).await?;
        if filled == CLOSING_LEN {
            let size = read_closing(&record[..filled]).ok_or(DataError::Malformed)?;
            lock(shared).close(size)?;
            // An orderly end, as TLS wants one.
            let _ = channel.shutdown().await;
            return Ok(());
        }
        if filled < record.len() {
            return Err(DataError::Cut);
        }
        let sent = *record.first_chunk().expect("a record begins with its number");
        let number = unwrap(sent, lock(shared).base).filter(|&number| number >= least);
        let number = number.ok_or(DataError::Malformed)?;
        if least == first {
            moved.add_connection();
        }
        least = number + 1;
        poll_fn(|context| {
            let mut shared = lock(shared);
            if shared.has_room(number) { Poll::Ready(()) } else { shared.wait(context) }
        })
        .await;
        lock(shared).accept(number, Bytes::from(record).slice(NUMBER_LEN..))?;
    }
}

/// Fills `out` as far as the connection has bytes.
async fn fill(channel: &mut Channel, out: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < out.len() {
        match channel.read(&mut out[filled..]).await? {
            0 => break,
            read => filled += read,
        }
    }
    Ok(filled)
}

/// Writes what comes next. The last record is held back until a connection has told the size, which
/// says how much of it is data.
async fn write_in_order(
    shared: &Mutex<Shared>,
    sink: &mut impl Sink,
    moved: &Moved,
) -> Result<(), DataError> {
    let mut piece = vec![0; PIECE];
    let (mut held, mut written) = (0, lock(shared).first * RECORD_LEN as u64);
    loop {
        let (filled, size, ended) = poll_fn(|context| {
            let mut shared = lock(shared);
            let filled = shared.gather.read(&mut piece[held..]);
            shared.base += (filled / RECORD_LEN) as u64;
            let ended = shared.is_ended();
            if filled == 0 && !ended {
                return shared.wait(context);
            }
            shared.wake();
            Poll::Ready((filled, shared.size, ended))
        })
        .await;
        let there = held + filled;
        let keep = if ended { 0 } else { RECORD_LEN };
        let data = match size {
            Some(size) if ended => there.min(usize::try_from(size - written).unwrap_or(there)),
            _ => there - keep,
        };
        written += data as u64;
        sink.write(&piece[..data]).await.map_err(DataError::File)?;
        moved.add(data);
        if ended {
            return Ok(());
        }
        piece.copy_within(data..there, 0);
        held = there - data;
    }
}
