//! The bytes of the file that is arriving, up to the last of them.

use std::io;

use super::Sink;
use crate::arriving::{Arriving, CHECKPOINT, Header, Incoming, Taken};
use crate::attributes::FILE_MODE;
use crate::commit::Pending;
use crate::error::TransferError;
use crate::pack::Unpacker;
use crate::wire::WireError;

impl Sink<'_> {
    pub(super) fn packed(&mut self, packed: &[u8]) -> Result<(), TransferError> {
        let mut unpacker = match self.unpacker.take() {
            Some(unpacker) => unpacker,
            None => Unpacker::new().map_err(|error| TransferError::Near(error.to_string()))?,
        };
        let taken = self.data(unpacker.unpack(packed).ok_or(WireError::Damaged)?);
        self.unpacker = Some(unpacker);
        taken
    }

    pub(super) fn data(&mut self, data: &[u8]) -> Result<(), TransferError> {
        self.arrived(data.len() as u64, |incoming| incoming.take(data))
    }

    pub(super) fn hole(&mut self, length: u64) -> Result<(), TransferError> {
        let replies = &self.report.replies;
        self.arrived(length, |incoming| incoming.take_hole(length, || !replies.is_closed()))?;
        self.is_wanted()
    }

    pub(super) fn copy(&mut self, offset: u64, length: u64) -> Result<(), TransferError> {
        let replies = &self.report.replies;
        let wanted = || !replies.is_closed();
        self.arrived(length, |incoming| incoming.take_copy(offset, length, wanted))?;
        self.is_wanted()
    }

    /// What costs the sender nothing, and this side much, is not gone on with when nobody waits for it.
    fn is_wanted(&self) -> Result<(), TransferError> {
        if self.report.replies.is_closed() { Err(TransferError::Cut) } else { Ok(()) }
    }

    /// The next bytes of the current file are taken in by it, if it is wanted.
    pub(super) fn arrived(
        &mut self,
        length: u64,
        take: impl FnOnce(&mut Incoming) -> Taken,
    ) -> Result<(), TransferError> {
        if let Some(Arriving::File(incoming)) = &self.arriving
            && incoming.is_spoilt()
        {
            self.abandon(Some(Arriving::Unwanted));
        }
        self.taken = self.taken.saturating_add(length);
        match &mut self.arriving {
            None => return Err(WireError::Unexpected.into()),
            Some(Arriving::Unwanted) => {}
            Some(Arriving::File(incoming)) => {
                let (new, written) = take(incoming)?;
                self.written = self.written.saturating_add(new);
                self.report.progress.set_current_bytes(incoming.length());
                if let Err(error) = written {
                    incoming.claim_no_more();
                    let judged = self.report.judge(&incoming.header.path, &error);
                    if judged.is_ok() {
                        self.abandon(Some(Arriving::Unwanted));
                    }
                    judged.map_err(TransferError::Near)?;
                } else if let Some(checkpoint) = incoming.checkpoint(CHECKPOINT) {
                    self.batch.checkpoint = Some(checkpoint);
                    self.commit()?;
                }
            }
        }
        self.report.progress.set_bytes(self.written);
        Ok(())
    }

    /// What has arrived of the file is of no use.
    pub(super) fn abandon(&mut self, instead: Option<Arriving>) {
        if let Some(Arriving::File(incoming)) = std::mem::replace(&mut self.arriving, instead) {
            self.discard(incoming);
        }
    }

    /// By the committer, which may be about to give it the name that is to go.
    pub(super) fn discard(&mut self, incoming: Box<Incoming>) {
        self.batch.discarded.push(incoming.discard());
    }

    /// The file's last byte is here: if all are as the sender read them, it may be installed.
    pub(super) fn end(&mut self, hash: &[u8; blake3::OUT_LEN]) -> Result<(), TransferError> {
        let mut incoming = match self.arriving.take() {
            Some(Arriving::File(incoming)) if incoming.is_whole() => incoming,
            Some(Arriving::Unwanted) => return Ok(()),
            _ => return Err(WireError::Unexpected.into()),
        };
        let is_as_read = incoming.is_as_read(hash);
        let path = &incoming.header.path;
        let ready = match is_as_read {
            Ok(true) => self.clear_for_file(path, incoming.temp.directory(), &incoming.name),
            Ok(false) => Err(io::Error::other("it arrived damaged: copy it again")),
            Err(error) => Err(error),
        };
        if let Err(error) = ready {
            let path = path.clone();
            self.discard(incoming);
            return self.report.judge(&path, &error).map_err(TransferError::Near);
        }
        let size = incoming.length();
        let Incoming { file, temp, name, header, spoilt, .. } = *incoming;
        let Header { path, tag, attributes, .. } = header;
        let is_set = self.report.attributes(&path, attributes.set_on(&file, FILE_MODE));
        let missing = (!is_set).then(|| attributes.trimmed());
        self.batch.bytes += size;
        let listed = self.sent(&path).map(|sent| (sent, *hash));
        let pending = Pending { temp, name, path, file, size, tag, spoilt, listed, missing };
        self.batch.pending.push(pending);
        if self.batch.is_full() { self.commit() } else { Ok(()) }
    }
}
