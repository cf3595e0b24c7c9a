//! The bounded queue between a disk's thread and the stream: blocks of bytes, used again and again.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bytes::BufMut;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::{TryRecvError, TrySendError};

use crate::wire::{CONTROL_HEAD, CONTROL_MAX};

/// A block is handed over when it holds so many bytes. Few hand-overs, and yet the block stays in
/// the processor's cache between the thread that fills it and the one that empties it.
pub(crate) const BLOCK: usize = 256 << 10;

/// Room in a block: one more message may begin just below [`BLOCK`].
pub(crate) const BLOCK_ROOM: usize = BLOCK + CONTROL_HEAD + CONTROL_MAX;

/// Blocks in a pipe. 4 MiB carry a disk's hiccup of 30 ms at 1 Gbit/s.
pub(crate) const BLOCKS: usize = 16;

/// So many blocks that are not taken say that the other end is the slower one.
const WAITING: usize = 2;

/// How a pipe was found at its hand-overs. It tells which side of it was the slower.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Occupancy {
    /// Blocks handed over.
    pub blocks: u64,
    /// How often the filling side found it full, and had to wait.
    pub full: u64,
    /// How often the emptying side found it empty, and had to wait.
    pub empty: u64,
}

#[derive(Default)]
struct Counters {
    blocks: AtomicU64,
    full: AtomicU64,
    empty: AtomicU64,
}

impl Counters {
    fn sample(&self) -> Occupancy {
        Occupancy {
            blocks: self.blocks.load(Relaxed),
            full: self.full.load(Relaxed),
            empty: self.empty.load(Relaxed),
        }
    }
}

/// The other end of the pipe is gone: the transfer has ended.
#[derive(Debug)]
pub(crate) struct Closed;

/// The filling end.
pub(crate) struct Filler {
    blocks: mpsc::Sender<Vec<u8>>,
    spare: mpsc::Receiver<Vec<u8>>,
    counters: Arc<Counters>,
}

/// The emptying end.
pub(crate) struct Emptier {
    blocks: mpsc::Receiver<Vec<u8>>,
    spare: mpsc::Sender<Vec<u8>>,
    counters: Arc<Counters>,
}

pub(crate) fn pipe() -> (Filler, Emptier) {
    let (fill, empty) = mpsc::channel(BLOCKS);
    let (recycle, spare) = mpsc::channel(BLOCKS);
    let counters = Arc::<Counters>::default();
    (
        Filler { blocks: fill, spare, counters: counters.clone() },
        Emptier { blocks: empty, spare: recycle, counters },
    )
}

impl Filler {
    /// An empty block with [`BLOCK_ROOM`].
    pub fn fresh(&mut self) -> Vec<u8> {
        self.spare.try_recv().unwrap_or_else(|_| Vec::with_capacity(BLOCK_ROOM))
    }

    /// Hands a block over from a thread that may wait.
    pub fn hand_over(&mut self, block: Vec<u8>) -> Result<(), Closed> {
        self.counters.blocks.fetch_add(1, Relaxed);
        match self.blocks.try_send(block) {
            Ok(()) => Ok(()),
            Err(TrySendError::Closed(_)) => Err(Closed),
            Err(TrySendError::Full(block)) => {
                self.counters.full.fetch_add(1, Relaxed);
                self.blocks.blocking_send(block).map_err(|_| Closed)
            }
        }
    }

    /// Whether blocks wait for the other end.
    pub fn is_waiting(&self) -> bool {
        self.blocks.capacity() + WAITING <= BLOCKS
    }

    /// Whether the other end is gone.
    pub fn is_closed(&self) -> bool {
        self.blocks.is_closed()
    }

    /// How the pipe was found so far.
    pub fn occupancy(&self) -> Occupancy {
        self.counters.sample()
    }

    /// Fills the pipe from a stream, to the stream's end or until the other end is gone. While the
    /// pipe is full, the block in hand goes on growing.
    pub async fn fill_from(mut self, stream: &mut (impl AsyncRead + Unpin)) -> io::Result<()> {
        let mut block = self.fresh();
        loop {
            let room = BLOCK - block.len();
            let is_full = self.blocks.capacity() == 0;
            let mut into = (&mut block).limit(room);
            let permit = tokio::select! {
                biased;
                read = stream.read_buf(&mut into), if room > 0 => match read? {
                    0 => break,
                    _ => continue,
                },
                permit = self.blocks.reserve(), if room < BLOCK => permit,
                () = self.blocks.closed() => return Ok(()),
            };
            let Ok(permit) = permit else { return Ok(()) };
            self.counters.blocks.fetch_add(1, Relaxed);
            if is_full {
                self.counters.full.fetch_add(1, Relaxed);
            }
            let next = self.spare.try_recv().unwrap_or_else(|_| Vec::with_capacity(BLOCK_ROOM));
            permit.send(std::mem::replace(&mut block, next));
        }
        if !block.is_empty() {
            // Whether it is still wanted, its receiver knows.
            let _ = self.blocks.send(block).await;
        }
        Ok(())
    }
}

impl Emptier {
    /// The next block, for a thread that may wait; `None` when the filling end is gone.
    pub fn next(&mut self) -> Option<Vec<u8>> {
        match self.blocks.try_recv() {
            Ok(block) => Some(block),
            Err(TryRecvError::Disconnected) => None,
            Err(TryRecvError::Empty) => {
                self.counters.empty.fetch_add(1, Relaxed);
                self.blocks.blocking_recv()
            }
        }
    }

    /// Gives a block back to the filling end.
    pub fn recycle(&self, mut block: Vec<u8>) {
        block.clear();
        // A spare block too many is simply freed.
        let _ = self.spare.try_send(block);
    }

    /// How the pipe was found so far.
    pub fn occupancy(&self) -> Occupancy {
        self.counters.sample()
    }

    /// Empties the pipe into a stream.
    pub async fn empty_into(mut self, stream: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
        loop {
            let block = match self.blocks.try_recv() {
                Ok(block) => block,
                Err(TryRecvError::Disconnected) => break,
                Err(TryRecvError::Empty) => {
                    self.counters.empty.fetch_add(1, Relaxed);
                    stream.flush().await?;
                    match self.blocks.recv().await {
                        Some(block) => block,
                        None => break,
                    }
                }
            };
            stream.write_all(&block).await?;
            self.recycle(block);
        }
        stream.flush().await
    }
}
