//! A receiving side that is no disk: one file's bytes go on as they come, to a pipe or a terminal.

use std::fs::File;
use std::io::{self, Write};

use tokio::sync::mpsc;

use crate::error::TransferError;
use crate::hash::Hasher;
use crate::notes::Notes;
use crate::pack::Unpacker;
use crate::pipe::{Emptier, Occupancy};
use crate::progress::Progress;
use crate::reading::takes;
use crate::summary::{Counts, Kept, Summary};
use crate::wire::{Decoder, HOLE_MAX, Item, Message, WireError};

/// So many bytes a pipe takes at once if it takes any, and most else does. A disk takes all.
const PIECE: usize = 4 << 10;

/// Zeros are written in pieces of this size.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// Takes one file from the pipe and writes it to `output`; the last reply is `Done`, or `Fatal`.
/// Bytes that have gone on cannot be taken back: whether they were right, the result tells.
pub(crate) fn run(
    mut pipe: Emptier,
    replies: mpsc::Sender<Message>,
    output: File,
    progress: Progress,
) -> Result<Summary, TransferError> {
    let mut pourer = Pourer {
        output,
        replies: replies.clone(),
        progress,
        current: None,
        counts: Counts::default(),
        notes: Notes::default(),
        written: 0,
    };
    // A sender that is gone is noticed where the stream is written.
    let _ = replies.blocking_send(Message::HadAll);
    let poured = pourer.take(&mut pipe);
    let (receiving, counts) = (pipe.occupancy(), pourer.counts);
    let last = match &poured {
        Ok(_) => Message::Done { counts, occupancy: receiving },
        Err(TransferError::Near(reason)) => Message::fatal(reason),
        Err(TransferError::Protocol(error)) => Message::fatal(&error.to_string()),
        Err(_) => return Err(poured.expect_err("matched")),
    };
    let _ = replies.blocking_send(last);
    let (sending, kept) = poured?;
    Ok(Summary { counts, kept, notes: pourer.notes, sending, receiving, confirmed: None })
}

struct Pourer {
    output: File,
    /// Closed when nobody waits for the end any more.
    replies: mpsc::Sender<Message>,
    progress: Progress,
    /// The hash of the file that is coming, and how long it is to be.
    current: Option<(Hasher, Option<u64>)>,
    counts: Counts,
    notes: Notes,
    written: u64,
}

impl Pourer {
    fn take(&mut self, pipe: &mut Emptier) -> Result<(Occupancy, Kept), TransferError> {
        let (mut decoder, unpacker) = (Decoder::default(), Unpacker::new());
        let mut unpacker = unpacker.map_err(|error| TransferError::Near(error.to_string()))?;
        while let Some(block) = pipe.next() {
            let mut input = &block[..];
            while let Some(item) = decoder.next(&mut input)? {
                match item {
                    Item::Data(data) => self.data(data)?,
                    Item::Packed(packed) => {
                        let plain = unpacker.unpack(&packed).ok_or(WireError::Damaged)?;
                        self.data(plain)?;
                    }
                    Item::Message(Message::Finish { occupancy, kept })
                        if self.current.is_none() =>
                    {
                        return Ok((occupancy, kept));
                    }
                    Item::Message(message) => self.message(message)?,
                }
            }
            pipe.recycle(block);
        }
        Err(TransferError::Cut)
    }

    fn message(&mut self, message: Message) -> Result<(), TransferError> {
        match (message, &self.current) {
            (Message::Totals { files, bytes, .. }, _) => self.progress.set_totals(files, bytes),
            (Message::Note(note), _) => self.notes.push(note),
            (Message::Fatal { reason }, _) => return Err(TransferError::Far(reason)),
            (Message::File { size, .. }, None) if self.counts.files == 0 => {
                self.current = Some((Hasher::default(), size));
            }
            (Message::Hole { mut length }, Some(_)) if length <= HOLE_MAX => {
                while length > 0 {
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
}
