//! One file's bytes go on as they come, to a pipe or a terminal.

use std::fs::File;
use std::io::{self, Write};

use tokio::sync::mpsc;

use crate::error::TransferError;
use crate::hash::Hasher;
use crate::onlooker::{Onlooker, look_on};
use crate::pipe::Emptier;
use crate::progress::Progress;
use crate::reading::takes;
use crate::summary::{Counts, Summary};
use crate::wire::{HOLE_MAX, Message, WireError};

/// So many bytes a pipe takes at once if it takes any, and most else does. A disk takes all.
const PIECE: usize = 4 << 10;

/// Zeros are written in pieces of this size.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// Takes one file from the pipe and writes it to `output`.
/// Bytes that have gone on cannot be taken back: whether they were right, the result tells.
pub(crate) fn run(
    pipe: Emptier,
    replies: mpsc::Sender<Message>,
    output: File,
    progress: Progress,
) -> Result<Summary, TransferError> {
    let mut pourer = Pourer {
        output,
        replies: replies.clone(),
        progress: progress.clone(),
        current: None,
        counts: Counts::default(),
        written: 0,
    };
    look_on(&mut pourer, pipe, &replies, &progress)
}

struct Pourer {
    output: File,
    /// Closed when nobody waits for the end any more.
    replies: mpsc::Sender<Message>,
    progress: Progress,
    /// The hash of the file that is coming, and how long it is to be.
    current: Option<(Hasher, Option<u64>)>,
    counts: Counts,
    written: u64,
}

impl Onlooker for Pourer {
    fn message(&mut self, message: Message) -> Result<(), TransferError> {
        match (message, &self.current) {
            (Message::File { size, .. }, None) if self.counts.files == 0 => {
                self.current = Some((Hasher::default(), size));
            }
            (Message::Hole { mut length }, Some(_)) if length <= HOLE_MAX => {
                while length > 0 {
                    if self.replies.is_closed() {
                        return Err(TransferError::Cut);
                    }
                    let now = length.min(ZEROS.len() as u64);
                    self.data(&ZEROS[..now as usize])?;
                    length -= now;
                }
            }
            (Message::End { hash }, Some((hasher, size))) => {
                if size.is_some_and(|size| size != hasher.length()) {
                    return Err(WireError::Unexpected.into());
                }
                if hasher.finalize() != hash {
                    return Err(TransferError::Near("it arrived damaged: copy it again".into()));
                }
                self.current = None;
                self.counts.files = 1;
                self.counts.bytes = self.written;
            }
            (Message::Abandon, Some(_)) => self.current = None,
            (Message::Directory { .. } | Message::Symlink { .. }, None) => {
                return Err(TransferError::Near(
                    "only a single file can go to standard output: name a directory to copy it to"
                        .into(),
                ));
            }
            _ => return Err(WireError::Unexpected.into()),
        }
        Ok(())
    }

    fn data(&mut self, data: &[u8]) -> Result<(), TransferError> {
        let (hasher, size) = self.current.as_mut().ok_or(WireError::Unexpected)?;
        hasher.update(data);
        if size.is_some_and(|size| hasher.length() > size) {
            return Err(WireError::Unexpected.into());
        }
        self.written += data.len() as u64;
        self.progress.set_bytes(self.written);
        let near = |error: io::Error| TransferError::Near(format!("standard output: {error}"));
        for piece in data.chunks(PIECE) {
            // Until somebody takes it, as long as that is wanted.
            while !takes(&self.output).map_err(|error| near(error.into()))? {
                if self.replies.is_closed() {
                    return Err(TransferError::Cut);
                }
            }
            self.output.write_all(piece).map_err(near)?;
        }
        Ok(())
    }
    fn is_within_a_file(&self) -> bool {
        self.current.is_some()
    }

    fn counts(&self) -> Counts {
        self.counts
    }
}
