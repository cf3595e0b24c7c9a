//! From written to durable: files are synced, then named, then their directories are synced.
//!
//! One batch is committed while the sink fills the next. The files of a batch are synced by several
//! threads at once: a journalling file system answers all of them with one write to its journal, so
//! ten thousand small files do not take ten thousand waits for the disk.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use rustix::fs::{Mode, fchmod, fsync, futimens};
use rustix::io::Errno;
use tokio::sync::mpsc;

use crate::error::{explain, is_fatal};
use crate::meta::Modified;
use crate::notes::{Note, NoteKind, Notes};
use crate::progress::Progress;
use crate::relpath::RelPath;
use crate::summary::Counts;
use crate::temp::Temp;
use crate::wire::Message;

/// Files, links and directories in a batch. Two batches are in hand at a time, and each entry keeps
/// at most two files open, so that the usual limit of 1024 is not met.
pub(crate) const BATCH_ENTRIES: usize = 128;

/// Bytes in a batch: so much at most is written again after a cut.
pub(crate) const BATCH_BYTES: u64 = 64 << 20;

/// Threads that sync the files of a batch.
const SYNCERS: usize = 8;

/// Something complete and verified under a temporary name.
pub(crate) struct Pending {
    pub temp: Temp,
    pub name: OsString,
    pub path: RelPath,
    /// The file, to be synced; a link has none.
    pub file: Option<(File, u64)>,
}

/// A directory into which nothing more will come.
pub(crate) struct Finished {
    pub directory: Arc<OwnedFd>,
    pub path: RelPath,
    pub mode: u32,
    pub modified: Modified,
}

/// What is committed together.
#[derive(Default)]
pub(crate) struct Batch {
    pub pending: Vec<Pending>,
    pub finished: Vec<Finished>,
    /// Directories that got a new directory.
    pub touched: Vec<Arc<OwnedFd>>,
    pub bytes: u64,
}

impl Batch {
    pub fn is_full(&self) -> bool {
        self.pending.len() + self.finished.len() + self.touched.len() >= BATCH_ENTRIES
            || self.bytes >= BATCH_BYTES
    }
}

/// The receiver's word to the sender, shared by its threads.
pub(crate) struct Report {
    pub replies: mpsc::Sender<Message>,
    pub progress: Progress,
    pub notes: Mutex<Notes>,
}

impl Report {
    /// Keeps a note, and sends it when this side wrote it. A sender that is gone misses it.
    pub fn note(&self, path: &RelPath, reason: &str) {
        let note = Note::new(NoteKind::Failed, path.as_bytes(), reason);
        self.keep(note.clone());
        let _ = self.replies.blocking_send(Message::Note(note));
    }

    pub fn keep(&self, note: Note) {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).push(note);
    }

    /// Permissions or times that a file system does not keep are noted; the file counts all the same.
    pub fn attributes(&self, path: &RelPath, set: rustix::io::Result<()>) {
        if let Err(error) = set {
            let reason = format!("copied, but its permissions or time could not be set: {error}");
            self.note(path, &reason);
        }
    }

    /// What an error at one file means: a note, or the end of the transfer with this reason.
    pub fn judge(&self, path: &RelPath, error: &io::Error) -> Result<(), String> {
        if is_fatal(error) {
            return Err(format!("{:?}: {}", path.as_path(), explain(error)));
        }
        self.note(path, &explain(error));
        Ok(())
    }
}

/// Commits batches until there are no more; on an error that would meet every file, drops the rest.
pub(crate) fn run(batches: Receiver<Batch>, report: &Report) -> Result<Counts, String> {
    let mut counts = Counts::default();
    for batch in batches {
        commit(batch, &mut counts, report)?;
        report.progress.set_files(counts.files);
    }
    Ok(counts)
}

fn commit(batch: Batch, counts: &mut Counts, report: &Report) -> Result<(), String> {
    let mut touched = batch.touched;
    let synced = sync_files(&batch.pending);
    for (mut entry, synced) in batch.pending.into_iter().zip(synced) {
        let appeared = synced.and_then(|()| match &entry.file {
            Some((file, _)) => entry.temp.appear(file),
            None => Ok(()),
        });
        if let Err(error) = appeared.and_then(|()| entry.temp.rename(&entry.name)) {
            report.judge(&entry.path, &error.into())?;
            continue;
        }
        match entry.file {
            Some((_, size)) => {
                counts.files += 1;
                counts.bytes += size;
            }
            None => counts.symlinks += 1,
        }
        let directory = entry.temp.directory();
        if !touched.last().is_some_and(|last| Arc::ptr_eq(last, directory)) {
            touched.push(directory.clone());
        }
    }
    for Finished { directory, path, mode, modified } in batch.finished {
        let set = fchmod(&directory, Mode::from_raw_mode(mode))
            .and_then(|()| futimens(&directory, &modified.timestamps()));
        report.attributes(&path, set);
        counts.directories += 1;
        touched.push(directory);
    }
    for synced in sync_directories(&touched) {
        match synced {
            // Some file systems cannot sync a directory, and need not.
            Err(Errno::INVAL | Errno::NOTSUP) => {}
            synced => synced.or_else(|error| report.judge(&RelPath::default(), &error.into()))?,
        }
    }
    Ok(())
}

fn sync_files(pending: &[Pending]) -> Vec<Result<(), Errno>> {
    let files: Vec<_> =
        pending.iter().map(|entry| entry.file.as_ref().map(|(file, _)| file.as_fd())).collect();
    sync_in_parallel(&files)
}

fn sync_directories(directories: &[Arc<OwnedFd>]) -> Vec<Result<(), Errno>> {
    sync_in_parallel(&directories.iter().map(|fd| Some(fd.as_fd())).collect::<Vec<_>>())
}

/// Syncs every file there is; the results stand in the same order.
fn sync_in_parallel<F: AsFd + Sync>(files: &[Option<F>]) -> Vec<Result<(), Errno>> {
    let sync = |files: &[Option<F>]| -> Vec<_> {
        files.iter().map(|file| file.as_ref().map_or(Ok(()), fsync)).collect()
    };
    if files.len() <= 1 {
        return sync(files);
    }
    thread::scope(|scope| {
        let threads: Vec<_> = files
            .chunks(files.len().div_ceil(SYNCERS))
            .map(|share| scope.spawn(move || sync(share)))
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("does not panic")).collect()
    })
}
