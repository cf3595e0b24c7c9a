//! From written to durable: files are synced, then named, then their directories are synced.
//!
//! One batch is committed while the sink fills the next. The files of a batch are synced by several
//! threads at once: a journalling file system answers all of them with one write to its journal, so
//! ten thousand small files do not take ten thousand waits for the disk.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use rustix::fs::{FileType, fdatasync, fsync};
use rustix::io::Errno;
use tokio::sync::mpsc;

use crate::attributes::Attributes;
use crate::destination::Destination;
use crate::error::{explain, is_fatal};
use crate::failed::Failed;
use crate::folding::name;
use crate::journal::{Journal, Record, Unsynced};
use crate::manifest::Manifest;
use crate::meta::{Meta, Tag};
use crate::notes::{Note, NoteKind, Notes};
use crate::progress::Progress;
use crate::relpath::RelPath;
use crate::summary::Counts;
use crate::temp::{Temp, link};
use crate::wire::Message;

/// Files, links and directories in a batch. Two batches are in hand at a time, and each entry keeps
/// at most two files open, so that the usual limit of 1024 is not met.
pub(crate) const BATCH_ENTRIES: usize = 128;

/// Bytes in a batch. A killed receiver has lost two of them, and with the machine's power a third: that
/// is not on the disk yet which the journal tells of the last.
pub(crate) const BATCH_BYTES: u64 = 16 << 20;

/// Permissions a directory takes over: set-group-ID only hands the group down.
pub(crate) const DIRECTORY_MODE: u32 = 0o3777;

/// So many files may meet an error of the disk itself; with one more, it is given up.
const DISK_ERRORS_MAX: u32 = 16;

/// Threads that sync the files of a batch.
const SYNCERS: usize = 8;

/// A file that is complete and verified, under a temporary name.
pub(crate) struct Pending {
    pub temp: Temp,
    pub name: OsString,
    pub path: RelPath,
    pub file: Arc<File>,
    pub size: u64,
    pub tag: Tag,
    /// Some of it was lost on its way to the disk, as a note says already.
    pub spoilt: Arc<AtomicBool>,
    /// What a manifest is told when it stands: its name and hash.
    pub listed: Option<(RelPath, [u8; blake3::OUT_LEN])>,
    /// What could not be set of it.
    pub missing: Option<Attributes>,
}

/// One more name of a file that was sent.
pub(crate) struct Linked {
    pub temp: Temp,
    pub name: OsString,
    pub path: RelPath,
    /// Where that file is.
    pub origin: RelPath,
    pub directory: Arc<OwnedFd>,
    pub to: OsString,
    /// What a manifest is told when it stands: its name, and that file's.
    pub listed: Option<(RelPath, RelPath)>,
}

/// A file that is arriving, when it has come so far.
pub(crate) struct Checkpoint {
    pub file: Arc<File>,
    pub directory: Arc<OwnedFd>,
    /// Its temporary name, which it is given after its first record: a name without a record would
    /// stay for ever.
    pub name: OsString,
    /// What it is to be.
    pub path: RelPath,
    pub record: Record,
    /// To be set when some of it is lost on its way to the disk.
    pub spoilt: Arc<AtomicBool>,
}

/// A directory into which nothing more will come.
pub(crate) struct Finished {
    pub directory: Arc<OwnedFd>,
    pub path: RelPath,
    pub attributes: Attributes,
}

/// What is committed together.
#[derive(Default)]
pub(crate) struct Batch {
    pub pending: Vec<Pending>,
    pub linked: Vec<Linked>,
    pub finished: Vec<Finished>,
    /// Directories that got a new directory or link.
    pub touched: Vec<Arc<OwnedFd>>,
    pub checkpoint: Option<Checkpoint>,
    /// Names of files that are of no use: an earlier batch may have given them.
    pub discarded: Vec<Temp>,
    /// Links that have their names already.
    pub symlinks: u64,
    pub bytes: u64,
    /// All that there is to come has come, so that a journal is of no use any more.
    pub is_last: bool,
}

impl Batch {
    pub fn is_full(&self) -> bool {
        let entries = self.pending.len() + self.finished.len() + self.touched.len();
        entries + self.linked.len() + self.discarded.len() >= BATCH_ENTRIES
            || self.bytes >= BATCH_BYTES
            || self.checkpoint.is_some()
    }
}

/// The receiver's word to the sender, shared by its threads.
pub(crate) struct Report {
    pub replies: mpsc::Sender<Message>,
    pub progress: Progress,
    pub notes: Mutex<Notes>,
    /// Once the target is known, if there is to be one.
    pub journal: Mutex<Option<Journal>>,
    /// Files that stood there since an earlier sitting.
    pub stood: AtomicU64,
    /// What must be given no other names.
    pub failed: Mutex<Failed>,
    /// What has come of a file that is larger than the disk.
    pub unfit: Mutex<Option<Temp>>,
    /// Files that met an error of the disk itself.
    pub disk_errors: AtomicU32,
    /// Is told the hashes of all files.
    pub manifest: Option<Manifest>,
    /// Somebody was told that extended attributes are not kept.
    pub told_extended: AtomicBool,
}

impl Report {
    /// Of a transfer to there, of which nothing has come.
    pub fn new(
        destination: &Destination,
        replies: mpsc::Sender<Message>,
        progress: Progress,
    ) -> Self {
        Self {
            replies,
            progress,
            notes: Mutex::new(Notes::default()),
            journal: Mutex::new(None),
            stood: AtomicU64::new(0),
            failed: Mutex::new(Failed::new(&destination.budget)),
            unfit: Mutex::new(None),
            disk_errors: AtomicU32::new(0),
            manifest: destination.manifest.clone(),
            told_extended: AtomicBool::new(false),
        }
    }

    /// Notes a failure.
    pub fn note(&self, path: &RelPath, reason: &str) {
        self.tell(NoteKind::Failed, path, reason);
    }

    /// Keeps a note, and sends it when this side wrote it. A sender that is gone misses it.
    pub fn tell(&self, kind: NoteKind, path: &RelPath, reason: &str) {
        let note = Note::new(kind, path.as_bytes(), reason);
        self.keep(note.clone());
        let _ = self.replies.blocking_send(Message::Note(note));
    }

    /// Writes to the journal, if there is one; `syncs` when that is to outlast the machine. Whether
    /// it stands there. One that cannot be written is given up: it may only be missing something.
    fn journal(&self, records: &[Record], syncs: bool, is_last: bool) -> bool {
        let mut place = self.journal.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(journal) = &mut *place else { return false };
        // A transfer that ends without one needs none: its client hears of the end.
        if records.is_empty() || is_last && !journal.is_begun() {
            return false;
        }
        journal.append(records, syncs)
    }

    /// What the journal needs to outlast the machine, besides what it was told to sync.
    fn unsynced(&self) -> Option<Unsynced> {
        let mut place = self.journal.lock().unwrap_or_else(PoisonError::into_inner);
        place.as_mut()?.unsynced()
    }

    /// The journal could not be brought to the disk.
    fn give_up_journal(&self) {
        let mut place = self.journal.lock().unwrap_or_else(PoisonError::into_inner);
        place.iter_mut().for_each(Journal::give_up);
    }

    /// Gives up when the same transfer was begun again.
    pub fn overtaken(&self) -> Result<(), String> {
        let place = self.journal.lock().unwrap_or_else(PoisonError::into_inner);
        match place.as_ref().is_none_or(Journal::is_ours) {
            true => Ok(()),
            false => Err("the same copy was started again, and goes on there".into()),
        }
    }

    /// Whether nobody waits for what is done here: the other side is gone, or the same transfer was begun again.
    pub fn is_over(&self) -> bool {
        self.replies.is_closed() || self.overtaken().is_err()
    }

    /// Lets both sides know that there is work on the current file, of which so much is done; an error when it is
    /// for nothing.
    pub fn goes_on(&self, bytes: u64) -> io::Result<()> {
        self.overtaken().map_err(io::Error::other)?;
        self.progress.hear();
        self.progress.set_current_bytes(bytes);
        let (files, bytes) = self.progress.moved();
        let told = self.replies.blocking_send(Message::Progress { files, bytes });
        told.map_err(|_| io::Error::other("the connection ended"))
    }

    /// Lets what is larger than the disk go once that has ended the transfer, or something else here; whoever has
    /// begun it again may go on with it.
    pub fn settle_unfit(&self, is_given_up: bool) {
        let part = self.unfit.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut part) = part {
            part.keep(!is_given_up || self.overtaken().is_err());
        }
    }

    /// The journal at the end; one of which nothing is left but its name is removed.
    pub fn begun_journal(&self) -> Option<Journal> {
        let journal = self.journal.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        if !journal.is_of_use() {
            journal.remove();
            return None;
        }
        Some(journal)
    }

    /// Whether something was left out by now.
    pub fn is_partial(&self) -> bool {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).failed() > 0
    }

    pub fn keep(&self, note: Note) {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).push(note);
    }

    /// Permissions or times that a file system does not keep are noted; the file counts all the same.
    /// That it does not keep extended attributes either, is told once. Whether nothing failed.
    pub fn attributes(&self, path: &RelPath, set: rustix::io::Result<bool>) -> bool {
        let is_set = set.is_ok();
        match set {
            Ok(false) if !self.told_extended.swap(true, Relaxed) => {
                let reason = "copied without its extended attributes, which that file system does \
                              not keep; others like it are not named";
                self.tell(NoteKind::Skipped, path, reason);
            }
            Ok(_) => {}
            Err(error) => {
                let reason =
                    format!("copied, but its permissions or time could not be set: {error}");
                self.note(path, &reason);
            }
        }
        is_set
    }

    /// What an error at one file means: a note, or the end of the transfer with this reason.
    pub fn judge(&self, path: &RelPath, error: &io::Error) -> Result<(), String> {
        let is_disk = Errno::from_io_error(error) == Some(Errno::IO);
        let is_broken = is_disk && self.disk_errors.fetch_add(1, Relaxed) >= DISK_ERRORS_MAX;
        if is_broken || is_fatal(error) {
            return Err(format!("{:?}: {}", path.as_path(), explain(error)));
        }
        self.note(path, &explain(error));
        self.fail(path);
        Ok(())
    }

    /// What was sent does not stand there.
    pub fn fail(&self, path: &RelPath) {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).add(path.as_bytes());
    }

    fn has_failed(&self, path: &RelPath) -> bool {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).holds(path.as_bytes())
    }
}

/// Commits batches until there are no more; on an error that would meet every file, drops the rest.
pub(crate) fn run(batches: Receiver<Batch>, report: &Report) -> Result<Counts, String> {
    let mut counts = Counts::default();
    for batch in batches {
        let committed = commit(batch, &mut counts, report);
        report.progress.set_files(report.stood.load(Relaxed) + counts.files);
        committed?;
    }
    Ok(counts)
}

fn commit(batch: Batch, counts: &mut Counts, report: &Report) -> Result<(), String> {
    report.overtaken()?;
    let mut touched = batch.touched;
    let mut records = Vec::new();
    let synced = sync_files(&batch.pending, &mut touched, report);
    // That may have taken long.
    report.overtaken()?;
    drop(batch.discarded);
    counts.symlinks += batch.symlinks;
    for (mut entry, synced) in batch.pending.into_iter().zip(synced) {
        if entry.spoilt.load(Relaxed) {
            continue;
        }
        // Who goes on there may have cut this one by now.
        report.overtaken()?;
        let appeared = synced.and_then(|()| entry.temp.appear(&entry.file)).map_err(Into::into);
        if let Err(error) = appeared.and_then(|()| name(&mut entry.temp, &entry.name)) {
            report.judge(&entry.path, &error)?;
            continue;
        }
        let Pending { path, size, tag, listed, missing, .. } = entry;
        counts.files += 1;
        counts.bytes += size;
        if let (Some(manifest), Some((sent, hash))) = (&report.manifest, listed) {
            manifest.add(&sent, hash);
        }
        records.extend(Meta::of(&entry.file).map(|Meta { modified, inode, .. }| match missing {
            None => Record::Installed { tag, path, size, modified, inode },
            Some(attributes) => Record::Bare { tag, path, size, modified, inode, attributes },
        }));
        let directory = entry.temp.directory();
        if !touched.last().is_some_and(|last| Arc::ptr_eq(last, directory)) {
            touched.push(directory.clone());
        }
    }
    for mut linked in batch.linked {
        match (linked.make(report), &linked.listed) {
            (Ok(()), listed) => {
                counts.files += 1;
                if let (Some(manifest), Some((sent, of))) = (&report.manifest, listed) {
                    manifest.add_name(sent, of);
                }
            }
            (Err(error), _) => report.judge(&linked.path, &error)?,
        }
        touched.push(linked.temp.directory().clone());
    }
    for Finished { directory, path, attributes } in batch.finished {
        report.attributes(&path, attributes.set_on(&directory, DIRECTORY_MODE));
        counts.directories += 1;
        touched.push(directory);
    }
    for synced in sync_directories(&touched) {
        match synced {
            // Some file systems cannot sync a directory, and need not.
            Err(Errno::INVAL | Errno::NOTSUP) => {}
            // Any of the names in it may not outlast the machine, and nobody knows which.
            Err(Errno::IO) => {
                let reason = explain(&Errno::IO.into());
                return Err(format!("a directory cannot be brought to the disk: {reason}"));
            }
            synced => synced.or_else(|error| report.judge(&RelPath::default(), &error.into()))?,
        }
    }
    match batch.checkpoint {
        Some(checkpoint) => claim(checkpoint, records, report),
        None => {
            report.journal(&records, false, batch.is_last);
            Ok(())
        }
    }
}

impl Linked {
    fn make(&mut self, report: &Report) -> io::Result<()> {
        let file = Meta::at(&self.directory, &self.to)?;
        if file.kind != FileType::RegularFile || report.has_failed(&self.origin) {
            return Err(io::Error::other("the file whose other name it is did not arrive"));
        }
        let there = Meta::at(self.temp.directory(), &self.name);
        if there.is_ok_and(|there| there.shared() == file.shared() && file.shared().is_some()) {
            return Ok(());
        }
        self.temp.link_to(&self.directory, &self.to)?;
        name(&mut self.temp, &self.name)
    }
}

/// Claims what has arrived of a file, behind other records.
fn claim(checkpoint: Checkpoint, mut records: Vec<Record>, report: &Report) -> Result<(), String> {
    let Checkpoint { file, directory, name, path, record, spoilt } = checkpoint;
    if spoilt.load(Relaxed) {
        // A sync after the one that failed succeeds, and says nothing of what was lost.
        report.journal(&records, true, false);
        return Ok(());
    }
    if let Err(error) = fdatasync(&file) {
        // It is told once: the next sync would succeed without the pages that were lost.
        spoilt.store(true, Relaxed);
        report.journal(&records, true, false);
        return report.judge(&path, &error.into());
    }
    records.push(record);
    if report.journal(&records, true, false) {
        report.overtaken()?;
        // What fails here shows when the file is to have its final name, or is looked for.
        let _ = link(&file, &directory, &name).and_then(|()| fsync(&directory));
    }
    Ok(())
}

/// Syncs what is to be named, and with it what the last batch has added to the journal.
fn sync_files(
    pending: &[Pending],
    touched: &mut Vec<Arc<OwnedFd>>,
    report: &Report,
) -> Vec<Result<(), Errno>> {
    let journal = report.unsynced();
    let files = pending.iter().map(|entry| &entry.file);
    let files = files.chain(journal.as_ref().map(|journal| &journal.file));
    let mut synced = sync_in_parallel(&files.map(|file| file.as_fd()).collect::<Vec<_>>());
    if let Some(Unsynced { named_in, .. }) = journal {
        touched.extend(named_in);
        if synced.pop().is_some_and(|journal| journal.is_err()) {
            report.give_up_journal();
        }
    }
    synced
}

fn sync_directories(directories: &[Arc<OwnedFd>]) -> Vec<Result<(), Errno>> {
    sync_in_parallel(&directories.iter().map(|fd| fd.as_fd()).collect::<Vec<_>>())
}

/// Syncs every file; the results stand in the same order.
fn sync_in_parallel<F: AsFd + Sync>(files: &[F]) -> Vec<Result<(), Errno>> {
    let sync = |files: &[F]| -> Vec<_> { files.iter().map(fsync).collect() };
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
