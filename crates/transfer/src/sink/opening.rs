//! The destination as it is found: what an earlier sitting has left there, and whether there is room for
//! what is to come.

use std::os::fd::OwnedFd;
use std::sync::PoisonError;
use std::sync::atomic::Ordering::Relaxed;

use rustix::fs::{Dir, DirEntry, fstatfs};
use rustix::process::geteuid;
use units::Bytes;

use super::Sink;
use crate::arriving::{Arriving, Incoming};
use crate::destination::Target;
use crate::error::{TransferError, explain};
use crate::journal::Journal;
use crate::meta::Meta;
use crate::notes::NoteKind;
use crate::relpath::{RelPath, names};
use crate::removal::is_dot;
use crate::temp::{Names, is_own, sweep};
use crate::wire::{HAS_TAGS, Message};

/// File systems on which bytes take the room that they have: ext2 to ext4, xfs, tmpfs, vfat, exfat. Others
/// may compress them, or know that they are there already.
const PLAIN: [u64; 5] = [0xef53, 0x5846_5342, 0x0102_1994, 0x4d44, 0x2011_bab0];

/// So much less than what is missing is none of it: one part of so many.
const TOLERANCE: u64 = 64;

impl Sink<'_> {
    /// Opens the destination for a first entry, and tells what an earlier sitting has left there.
    pub(super) fn open(&mut self, first: &RelPath) -> Result<(), String> {
        let mut target = self.destination.target(first)?;
        self.is_fresh = is_fresh(&target, first, self.destination.takes_one());
        if let Some(id) = self.destination.id {
            // A sender that is gone is noticed where the stream is written.
            let tell = |message| drop(self.report.replies.blocking_send(message));
            self.names = Names::of(id).map_err(|error| error.to_string())?;
            let leads_to = target.given_name().map(ToOwned::to_owned);
            let owns = self.destination.owns;
            let taken = Journal::take_over(id, leads_to, owns, &mut target.tree, &mut self.names);
            let (journal, found) = taken.map_err(|error| {
                let path = self.destination.path();
                format!("{path:?}: what an earlier copy has left stays: {}", explain(&error))
            })?;
            if found.is_refused {
                let name = RelPath::new(id.file_name().into_encoded_bytes()).unwrap_or_default();
                let reason = "what it tells of an earlier sitting does not count, for it is not this user's \
                              alone: all is copied anew";
                self.report.tell(NoteKind::Changed, &name, reason);
            }
            for part in &found.parts {
                tell(Message::HasPart { tag: part.tag, state: part.state.clone() });
            }
            for tags in found.installed.chunks(HAS_TAGS) {
                tell(Message::Has { tags: tags.to_vec() });
            }
            self.bare = found.bare;
            let begun: u64 = found.parts.iter().map(|part| part.state.length()).sum();
            self.written = found.bytes + begun;
            self.taken = self.written;
            let stood = found.installed.len() as u64;
            self.report.stood.store(stood, Relaxed);
            self.report.progress.set_files(stood);
            self.parts = found.parts;
            self.stood = found.stood;
            self.goes_on = found.was_there.then_some(id);
            self.sweep(target.tree.top());
            let mut place = self.report.journal.lock().unwrap_or_else(PoisonError::into_inner);
            *place = Some(journal);
            self.tell_had_all();
        }
        self.target = Some(target);
        Ok(())
    }

    /// Removes what an earlier sitting was about to name in a directory when it was killed.
    pub(super) fn sweep(&self, directory: &OwnedFd) {
        if let Some(id) = self.goes_on {
            sweep(directory, id, |name| self.parts.iter().any(|part| part.name == name));
        }
    }

    /// Once it is known how much comes, and where to: gives up when all of that can never find room.
    /// Where something may give way to it, nobody knows.
    pub(super) fn find_room(&mut self) -> Result<(), TransferError> {
        let Some(target) = &self.target else { return Ok(()) };
        let Some(least) = self.least.take().filter(|_| self.is_fresh) else { return Ok(()) };
        let Some((_, free)) = room(target.tree.top()) else { return Ok(()) };
        // What was not wanted comes no more either.
        let to_come = least.saturating_sub(self.taken);
        let missing = to_come.saturating_sub(free);
        if missing <= to_come / TOLERANCE {
            return Ok(());
        }
        // What has come of it meanwhile would only take room; of an earlier sitting it may be much.
        if let Some(Arriving::File(incoming)) = &self.arriving
            && !incoming.goes_on
        {
            self.abandon(None);
        }
        let [to_come, free, missing] = [to_come, free, missing].map(Bytes);
        Err(TransferError::Near(format!(
            "{:?}: No space left for all of it: {to_come} are still to come, {free} are free: free space \
             there, {missing} at the least, or choose another destination",
            self.destination.path()
        )))
    }

    /// Leaves a file that has not come to its end. One that would not fit even if nothing else were there, and that a
    /// journal tells of, is kept for a next time only if nothing here ends this one, or if an earlier one has brought
    /// much of it.
    pub(super) fn leave_begun(&mut self) {
        let Some(Arriving::File(mut incoming)) = self.arriving.take() else { return };
        self.batch.checkpoint = incoming.checkpoint(0);
        if incoming.is_claimed() && !incoming.goes_on && self.is_beyond_disk(&incoming) {
            let mut unfit = self.report.unfit.lock().unwrap_or_else(PoisonError::into_inner);
            *unfit = Some(incoming.discard());
        }
    }

    /// Of one with holes nobody knows.
    fn is_beyond_disk(&self, incoming: &Incoming) -> bool {
        let room = self.target.as_ref().and_then(|target| room(target.tree.top()));
        let is_larger = |((whole, _), size)| size > whole;
        !incoming.has_holes && room.zip(incoming.header.size).is_some_and(is_larger)
    }
}

/// Whether nothing that stands there can give way to what comes: not the one thing, or nothing at all.
fn is_fresh(target: &Target, first: &RelPath, is_one: bool) -> bool {
    let top = names(first.as_bytes()).next().unwrap_or_default();
    let place = target.locate(&RelPath::new(top.to_vec()).unwrap_or_default());
    match place.as_ref().ok().and_then(RelPath::split) {
        Some((_, name)) if is_one => Meta::at(target.tree.top(), name).is_err(),
        _ => {
            let entries = Dir::read_from(target.tree.top()).into_iter().flatten();
            !entries.flatten().any(|entry| is_others(&entry))
        }
    }
}

/// Whether an entry is neither a temporary file nor a journal, of whatever transfer.
fn is_others(entry: &DirEntry) -> bool {
    let name = entry.file_name().to_bytes();
    !is_dot(name) && !is_own(name, entry.file_type())
}

/// All bytes for which there is room, and those of them that are free, where bytes need as much as they are.
fn room(directory: &OwnedFd) -> Option<(u64, u64)> {
    let system = fstatfs(directory).ok()?;
    let free = if geteuid().is_root() { system.f_bfree } else { system.f_bavail };
    // A tmpfs without a limit says that it has no blocks.
    let is_plain = system.f_blocks > 0 && PLAIN.contains(&u64::try_from(system.f_type).ok()?);
    let block = system.f_bsize.try_into().unwrap_or(1);
    is_plain.then(|| (system.f_blocks.saturating_mul(block), free.saturating_mul(block)))
}
