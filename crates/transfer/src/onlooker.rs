//! A receiving side that is no disk: whoever looks on is shown what comes, as it comes.

use tokio::sync::mpsc;

use crate::error::TransferError;
use crate::notes::Notes;
use crate::pack::Unpacker;
use crate::pipe::{Emptier, Occupancy};
use crate::progress::Progress;
use crate::summary::{Counts, Kept, Summary};
use crate::wire::{Decoder, Item, Message, WireError};

/// Is shown what a sender sends.
pub(crate) trait Onlooker {
    /// What is of one kind of onlooker alone: entries, and how their bytes begin and end.
    fn message(&mut self, message: Message) -> Result<(), TransferError>;

    /// Bytes of the file at hand.
    fn data(&mut self, data: &[u8]) -> Result<(), TransferError>;

    /// Whether a file has begun that has not ended.
    fn is_within_a_file(&self) -> bool;

    /// What was taken by now.
    fn counts(&self) -> Counts;
}

/// Shows everything from the pipe; the last reply is `Done`, or `Fatal`.
pub(crate) fn look_on(
    onlooker: &mut impl Onlooker,
    mut pipe: Emptier,
    replies: &mpsc::Sender<Message>,
    progress: &Progress,
) -> Result<Summary, TransferError> {
    let mut notes = Notes::default();
    // A sender that is gone is noticed where the stream is written.
    let _ = replies.blocking_send(Message::HadAll);
    let taken = take(onlooker, &mut pipe, &mut notes, progress);
    let (receiving, counts) = (pipe.occupancy(), onlooker.counts());
    let last = match &taken {
        Ok(_) => Message::Done { counts, occupancy: receiving },
        Err(TransferError::Near(reason)) => Message::fatal(reason),
        Err(TransferError::Protocol(error)) => Message::fatal(&error.to_string()),
        Err(_) => return Err(taken.expect_err("matched")),
    };
    let _ = replies.blocking_send(last);
    let (sending, kept) = taken?;
    Ok(Summary { counts, kept, notes, sending, receiving, confirmed: None })
}

fn take(
    onlooker: &mut impl Onlooker,
    pipe: &mut Emptier,
    notes: &mut Notes,
    progress: &Progress,
) -> Result<(Occupancy, Kept), TransferError> {
    let (mut decoder, unpacker) = (Decoder::default(), Unpacker::new());
    let mut unpacker = unpacker.map_err(|error| TransferError::Near(error.to_string()))?;
    while let Some(block) = pipe.next() {
        let mut input = &block[..];
        while let Some(item) = decoder.next(&mut input)? {
            match item {
                Item::Data(data) => onlooker.data(data)?,
                Item::Packed(packed) => {
                    let plain = unpacker.unpack(&packed).ok_or(WireError::Damaged)?;
                    onlooker.data(plain)?;
                }
                Item::Message(Message::Finish { occupancy, kept })
                    if !onlooker.is_within_a_file() =>
                {
                    return Ok((occupancy, kept));
                }
                Item::Message(Message::Totals { files, bytes, .. }) => {
                    progress.set_totals(files, bytes);
                }
                Item::Message(Message::Note(note)) => notes.push(note),
                Item::Message(Message::Fatal { reason }) => return Err(TransferError::Far(reason)),
                Item::Message(message) => onlooker.message(message)?,
            }
        }
        pipe.recycle(block);
    }
    Err(TransferError::Cut)
}
