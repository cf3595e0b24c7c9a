//! Makes what is announced: directories, links, and files for the bytes that follow.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::{AtFlags, Gid, Mode, Uid, chownat, mkdirat, openat, symlinkat, utimensat};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::Sink;
use crate::arriving::{Arriving, CHECKPOINT, Header, Incoming};
use crate::commit::Linked;
use crate::destination::Target;
use crate::error::TransferError;
use crate::folding;
use crate::hash::State;
use crate::journal::Part;
use crate::meta::{Meta, of_copies};
use crate::notes::NoteKind;
use crate::relpath::RelPath;
use crate::temp::{OWN, Temp, bears_own};
use crate::tree::{DIRECTORY, open_up};

impl Sink<'_> {
    pub(super) fn directory(&mut self, header: Header) -> io::Result<()> {
        let Some((parent, name)) = header.path.split() else {
            return self.destination_itself(header);
        };
        let parent = self.tree().directory(parent)?;
        let mut made = mkdirat(&parent, name, Mode::RWXU);
        if made == Err(Errno::EXIST) && self.clear_for_directory(&header.path, &parent, name)? {
            made = mkdirat(&parent, name, Mode::RWXU);
        }
        if matches!(made, Ok(()) | Err(Errno::EXIST))
            && !self.entered.enter(&parent, name, &header.path)
        {
            return Err(folding::alias());
        }
        match made {
            Ok(()) => self.batch.touched.push(parent),
            Err(Errno::EXIST) => {
                // While it is being filled, its owner must be able to write in it.
                let directory = openat(&parent, name, DIRECTORY, Mode::empty())?;
                self.sweep(&directory);
                open_up(&directory)?;
            }
            Err(error) => return Err(error.into()),
        }
        self.above.push(header);
        Ok(())
    }

    /// The destination itself, which was there: it stays as it is, but in a mirror, if it is this user's.
    fn destination_itself(&mut self, header: Header) -> io::Result<()> {
        let (user, top) = (geteuid(), self.tree().top().clone());
        if self.mirrors && (user.is_root() || Meta::of(&top)?.owner.0 == user.as_raw()) {
            open_up(&top)?;
            self.above.push(header);
        }
        Ok(())
    }

    pub(super) fn symlink(&mut self, header: Header, target: &[u8]) -> io::Result<()> {
        let (parent, name) = header.path.split().ok_or(Errno::INVAL)?;
        // No sender has one, for it follows a link that is its source; and who comes again would follow it, to wherever.
        if parent.is_empty() && self.target.as_ref().and_then(Target::given_name) == Some(name) {
            return Err(io::Error::other("a link cannot take the place of the destination itself"));
        }
        let parent = self.tree().directory(parent)?;
        let ((), mut temp) =
            self.names.create(&parent, name, |at, temporary| symlinkat(target, at, temporary))?;
        let times = header.attributes.modified.timestamps();
        let set = utimensat(&parent, temp.name(), &times, AtFlags::SYMLINK_NOFOLLOW);
        if let Some((user, group)) = header.attributes.owner {
            let (user, group) = (Some(Uid::from_raw(user)), Some(Gid::from_raw(group)));
            // Who may not give it away keeps it.
            let _ = chownat(&parent, temp.name(), user, group, AtFlags::SYMLINK_NOFOLLOW);
        }
        self.report.attributes(&header.path, set.map(|()| true));
        self.clear_for_file(&header.path, &parent, name)?;
        // At once, for a killed receiver would leave a temporary link behind for ever.
        folding::name(&mut temp, name)?;
        self.batch.symlinks += 1;
        if !self.batch.touched.last().is_some_and(|last| Arc::ptr_eq(last, &parent)) {
            self.batch.touched.push(parent);
        }
        Ok(())
    }

    pub(super) fn link(&mut self, header: Header, to: &RelPath) -> io::Result<()> {
        let listed = self.sent(&header.path).map(|sent| (sent, to.clone()));
        let target = self.target.as_mut().expect("opened for the first entry");
        let origin = target.locate(to).map_err(io::Error::other)?;
        if bears_own(&origin, header.kind) {
            return Err(io::Error::other(OWN));
        }
        let (directory, to) = origin.split().ok_or(Errno::INVAL)?;
        let directory = target.tree.directory(directory)?;
        let (parent, name) = header.path.split().ok_or(Errno::INVAL)?;
        let parent = target.tree.directory(parent)?;
        let temp = self.names.plan(&parent, name)?;
        self.clear_for_file(&header.path, &parent, name)?;
        let (name, to, path) = (name.to_owned(), to.to_owned(), header.path.clone());
        self.batch.linked.push(Linked { temp, name, path, origin, directory, to, listed });
        Ok(())
    }

    pub(super) fn file(&mut self, header: Header) -> io::Result<Arriving> {
        let (parent, name) = header.path.split().ok_or(Errno::INVAL)?;
        let parent = self.tree().directory(parent)?;
        let name = name.to_owned();
        self.report.progress.set_current(header.path.as_bytes(), header.size);
        if self.stood.was_other(&header.path, &header.tag) {
            self.tell_changed(&header);
        }
        let made = self.made(&header, &parent);
        if made.is_none()
            && let Some((part, file)) = self.begun(&header, &parent)
        {
            let opened = (file, Temp::found(parent, part.name));
            return Incoming::new(header, name, opened, part.state, true).map(Arriving::File);
        }
        let journal = self.destination.id.is_some() && header.size > Some(CHECKPOINT);
        let (file, temp) = self.names.create_file(&parent, &name)?;
        let opened = (File::from(file), temp);
        let incoming = Incoming::new(header, name, opened, State::default(), journal)?;
        Ok(Arriving::File(incoming.from_made(made)))
    }

    /// What an earlier sitting has made of this very file, with copies from the version there. It stays until this
    /// one has come further, or to its end.
    fn made(&self, header: &Header, parent: &OwnedFd) -> Option<(File, Part)> {
        let mut parts = self.parts.iter();
        let part = parts.find(|part| part.path == header.path)?;
        let is_useful =
            part.tag == of_copies(&header.tag) && header.size > Some(part.state.length());
        let file = is_useful.then(|| part.read(parent)).flatten()?;
        Some((file, part.clone()))
    }

    /// The sender goes on behind what is here. Nothing new comes by that, but what is made of an earlier part may
    /// fail, or be for nothing by now.
    pub(super) fn go_on(&mut self, offset: u64) -> Result<(), TransferError> {
        let report = self.report;
        let goes_on = |copied| report.goes_on(copied);
        self.arrived(0, |incoming| Ok((0, incoming.go_on(offset, goes_on)?)))
    }

    /// What an earlier sitting has begun of this very file.
    fn begun(&mut self, header: &Header, parent: &Arc<OwnedFd>) -> Option<(Part, File)> {
        let at = self.parts.iter().position(|part| part.path == header.path)?;
        let part = self.parts.remove(at);
        if let (true, Some(size)) = (part.tag == header.tag, header.size)
            && part.state.length() < size
        {
            let opened = part.go_on(parent, size);
            if opened.is_none() {
                part.remove(self.tree());
            }
            return opened.map(|file| (part, file));
        }
        self.tell_changed(header);
        part.remove(self.tree());
        None
    }

    fn tell_changed(&self, header: &Header) {
        let reason = "it has changed since this copy was interrupted: all of it is copied anew";
        self.report.tell(NoteKind::Changed, &header.path, reason);
    }
}
