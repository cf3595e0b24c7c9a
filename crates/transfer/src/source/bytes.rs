//! The bytes of a file, of which the receiver may have the beginning, and how they go into blocks.

use std::ops::ControlFlow;
use std::os::fd::{AsFd, OwnedFd};

use rustix::buffer::spare_capacity;
use rustix::io::{Errno, pread, read};

use super::Sender;
use crate::hash::{Hasher, State};
use crate::meta::{Meta, Tag};
use crate::pipe::BLOCK;
use crate::reading::{Layout, Next};
use crate::wire::{DATA_HEAD, Message, data_head, packed_head};

/// The receiver is not to wait for more bytes of holes than it takes in about a second.
const HOLES_MAX: u64 = 1 << 30;

impl Sender<'_> {
    /// Sends what the receiver does not have; false when it turned out to have all. A file that ends
    /// early has changed.
    pub(super) fn send_bytes(
        &mut self,
        file: &OwnedFd,
        meta: &Meta,
        tag: &Tag,
        hasher: &mut Hasher,
    ) -> ControlFlow<(), Result<bool, Errno>> {
        let mut layout = Layout::of(meta);
        while hasher.length() < meta.size {
            self.sources.progress.set_current_bytes(hasher.length());
            self.tell_totals()?;
            if self.sources.is_held(tag) {
                return ControlFlow::Continue(Ok(false));
            }
            if let Some(state) = self.sources.had.part(tag, hasher.length(), meta.size) {
                self.go_on(state, hasher)?;
                continue;
            }
            match layout.next(file, hasher.length()) {
                Next::Hole(length) => self.hole(length, hasher)?,
                Next::Bytes(left) => match self.read(file, Some(hasher.length()), left, hasher) {
                    Ok(0) => break,
                    Ok(_) => {}
                    Err(error) => return ControlFlow::Continue(Err(error)),
                },
            }
            if self.block.len() >= BLOCK {
                self.hand_over()?;
            }
        }
        self.sources.progress.set_current_bytes(hasher.length());
        ControlFlow::Continue(Ok(true))
    }

    /// Sends zeros that are nowhere on the disk.
    pub(super) fn hole(&mut self, length: u64, hasher: &mut Hasher) -> ControlFlow<()> {
        hasher.update_zeros(length);
        self.message(&Message::Hole { length })?;
        self.holes += length;
        if self.holes >= HOLES_MAX {
            self.hand_over()?;
        }
        if self.pipe.is_closed() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// Packs the data frame at the block's end, if that pays: while the network is what is waited for.
    pub(super) fn pack(&mut self, head: usize) {
        let Some(packer) = self.packer.as_mut().filter(|_| self.pipe.is_waiting()) else { return };
        let start = head + DATA_HEAD;
        if let Some(packed) = packer.pack(&self.block[start..]) {
            self.block[head..start].copy_from_slice(&packed_head(packed.len()));
            self.block[start..start + packed.len()].copy_from_slice(packed);
            self.block.truncate(start + packed.len());
        }
    }

    /// Goes on where the receiver has got to.
    pub(super) fn go_on(&mut self, state: State, hasher: &mut Hasher) -> ControlFlow<()> {
        let offset = state.length();
        self.kept.begun += offset - hasher.length();
        *hasher = Hasher::from(state);
        self.message(&Message::From { offset })
    }

    /// Reads what fits into the block as one data frame, at most `left` bytes of it: of a file at an
    /// offset, of a stream what comes next.
    pub(super) fn read(
        &mut self,
        file: impl AsFd,
        offset: Option<u64>,
        left: u64,
        hasher: &mut Hasher,
    ) -> Result<u64, Errno> {
        let head = self.block.len();
        let start = head + DATA_HEAD;
        self.block.extend_from_slice(&[0; DATA_HEAD]);
        let read = loop {
            let into = spare_capacity(&mut self.block);
            let read = match offset {
                Some(offset) => pread(&file, into, offset),
                None => read(&file, into),
            };
            match read {
                Err(Errno::INTR) => {}
                done => break done,
            }
        };
        // A file that has grown gives more than was announced.
        let kept = read.map(|read| left.min(read as u64) as usize);
        let length = kept.unwrap_or(0);
        if length == 0 {
            self.block.truncate(head);
        } else {
            self.block.truncate(start + length);
            self.block[head..start].copy_from_slice(&data_head(length));
            hasher.update(&self.block[start..]);
            self.pack(head);
        }
        kept.map(|kept| kept as u64)
    }
}
