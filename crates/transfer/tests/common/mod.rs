//! Random trees, what is in them, and streams with faults.
#![allow(dead_code, reason = "not every test uses everything")]

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, duplex};
use tokio::time::timeout;
use transfer::{Options, Outcome, Progress, ServeOptions, Summary, TransferError, get, put, serve};

/// Repeatable chance.
pub struct Dice(blake3::OutputReader);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof())
    }

    pub fn bytes(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.0.read_exact(&mut bytes).unwrap();
        bytes
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        u64::from_le_bytes(self.bytes(8).try_into().unwrap()) % limit
    }
}

const NAMES: [&[u8]; 8] =
    [b"plain", b"with space", b"\xff\xfe raw", b"new\nline", b"-rf", b"...", b"\xc3\xa9", b"*?$x"];

/// Fills a directory: files up to `largest` bytes, empty and deep directories, odd names and links.
pub fn plant(directory: &Path, dice: &mut Dice, depth: u64, largest: u64) {
    for number in 0..2 + dice.below(6) {
        let name = [NAMES[dice.below(8) as usize], number.to_string().as_bytes()].concat();
        let path = directory.join(OsStr::from_bytes(&name));
        match dice.below(10) {
            0..3 if depth > 0 => {
                fs::create_dir(&path).unwrap();
                plant(&path, dice, depth - 1, largest);
                set(&path, dice, 0o755);
            }
            3 => {
                fs::create_dir(&path).unwrap();
                set(&path, dice, 0o500);
            }
            4 => symlink("nowhere/at all", &path).unwrap(),
            5 => symlink("/etc/passwd", &path).unwrap(),
            _ => {
                let size = [0, 1, dice.below(5000), dice.below(largest)][dice.below(4) as usize];
                fs::write(&path, dice.bytes(size as usize)).unwrap();
                let mode = [0o644, 0o400, 0o755, 0o600][dice.below(4) as usize];
                set(&path, dice, mode);
            }
        }
    }
}

fn set(path: &Path, dice: &mut Dice, mode: u32) {
    let file = fs::File::open(path).unwrap();
    let age = Duration::new(dice.below(2_000_000_000), dice.below(1_000_000_000) as u32);
    file.set_modified(SystemTime::UNIX_EPOCH + age).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// A tree with a top directory of its own, `tree`.
pub fn tree(seed: u64, largest: u64) -> TempDir {
    let folder = TempDir::new().unwrap();
    let top = folder.path().join("tree");
    fs::create_dir(&top).unwrap();
    let mut dice = Dice::new(seed);
    plant(&top, &mut dice, 4, largest);
    fs::write(top.join("always"), dice.bytes(2000 + largest as usize)).unwrap();
    set(&top, &mut dice, 0o750);
    folder
}

/// What a path is: kind and permissions, time, contents.
#[derive(Debug, PartialEq, Eq)]
pub struct Entry {
    pub mode: u32,
    pub modified: (i64, i64),
    pub contents: Vec<u8>,
}

/// Everything below a path, by relative name.
pub fn look(top: &Path) -> BTreeMap<PathBuf, Entry> {
    let mut found = BTreeMap::new();
    let mut ahead = vec![PathBuf::new()];
    while let Some(below) = ahead.pop() {
        let path = if below.as_os_str().is_empty() { top.to_owned() } else { top.join(&below) };
        let meta = fs::symlink_metadata(&path).unwrap();
        let contents = if meta.is_dir() {
            ahead.extend(fs::read_dir(&path).unwrap().map(|e| below.join(e.unwrap().file_name())));
            Vec::new()
        } else if meta.is_symlink() {
            fs::read_link(&path).unwrap().as_os_str().as_bytes().to_vec()
        } else {
            fs::read(&path).unwrap()
        };
        let modified = (meta.mtime(), meta.mtime_nsec());
        found.insert(below, Entry { mode: meta.mode(), modified, contents });
    }
    found
}

/// Names of temporary files below a path.
pub fn leftovers(top: &Path) -> Vec<PathBuf> {
    let is_left = |path: &PathBuf| path.to_string_lossy().ends_with(".part");
    look(top).into_keys().filter(is_left).collect()
}

pub trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

pub type Both = (Result<Summary, TransferError>, Result<Outcome, TransferError>);

/// Puts sources below `root` at `remote`, both sides in this process.
pub async fn put_to<S: Stream>(
    near: S,
    far: S,
    sources: &[PathBuf],
    root: &Path,
    remote: &str,
) -> Both {
    let (options, allowed, progress): (Options, ServeOptions, Progress) = Default::default();
    let (near, far) = tokio::join!(
        put(near, sources, Path::new(remote), &options, &progress),
        serve(far, root, &allowed)
    );
    (near.map(shared), far)
}

/// What both sides of a transfer are to agree on: only the sender has something to hear.
pub fn shared(summary: Summary) -> Summary {
    Summary { confirmed: None, ..summary }
}

/// Gets `remote` from below `root`.
pub async fn get_from<S: Stream>(near: S, far: S, root: &Path, remote: &str, to: &Path) -> Both {
    let (options, allowed, progress): (Options, ServeOptions, Progress) = Default::default();
    let (near, far) = tokio::join!(
        get(near, Path::new(remote), to, &options, &progress),
        serve(far, root, &allowed)
    );
    let far = far.map(|outcome| Outcome { summary: shared(outcome.summary), ..outcome });
    (near, far)
}

/// What happens at a byte of a stream, counted in one direction.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    Flip(u64),
    Cut(u64),
}

/// After damage, so long a silence ends a stream.
const SILENCE: Duration = Duration::from_secs(5);

/// Two joined streams; what the first writes reaches the second with a fault.
pub fn faulty(fault: Fault) -> (DuplexStream, DuplexStream) {
    let (first, first_end) = duplex(10_000);
    let (second, second_end) = duplex(10_000);
    tokio::spawn(async move {
        let (mut first_read, mut first_write) = tokio::io::split(first_end);
        let (mut second_read, mut second_write) = tokio::io::split(second_end);
        // A cut takes both directions with it.
        tokio::try_join!(
            pump(&mut first_read, &mut second_write, Some(fault)),
            pump(&mut second_read, &mut first_write, None),
        )
    });
    (first, second)
}

async fn pump(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    fault: Option<Fault>,
) -> io::Result<()> {
    let mut passed = 0;
    let mut buffer = [0; 1500];
    let mut is_damaged = false;
    loop {
        let reading = from.read(&mut buffer);
        // Two ends that misunderstand each other may both wait; what carries them really ends at damage.
        let read = if is_damaged { timeout(SILENCE, reading).await?? } else { reading.await? };
        let read = read as u64;
        if read == 0 {
            return to.shutdown().await;
        }
        let inside = |place: u64| (passed..passed + read).contains(&place);
        match fault {
            Some(Fault::Flip(place)) if inside(place) => {
                buffer[(place - passed) as usize] ^= 0x10;
                is_damaged = true;
            }
            Some(Fault::Cut(place)) if inside(place) => {
                to.write_all(&buffer[..(place - passed) as usize]).await?;
                return Err(io::ErrorKind::ConnectionReset.into());
            }
            _ => {}
        }
        to.write_all(&buffer[..read as usize]).await?;
        passed += read;
    }
}

/// Says loudly that a test cannot run here.
pub fn skip(name: &str, reason: &str) {
    eprintln!("SKIPPED: {name}: {reason}");
    if let Some(log) = std::env::var_os("LONGHAUL_SKIP_LOG") {
        let mut log = fs::OpenOptions::new().append(true).open(log).unwrap();
        io::Write::write_all(&mut log, format!("{name}: {reason}\n").as_bytes()).unwrap();
    }
}

fn run(command: &mut Command) -> bool {
    command.output().is_ok_and(|done| done.status.success())
}

/// A file system that is there as long as this is.
pub struct Mounted(TempDir);

impl Mounted {
    /// Of an image of so many bytes, which the commands make and mount.
    pub fn new(bytes: u64, make: &mut Command, mount: &mut Command) -> Option<Self> {
        Self::within(&std::env::temp_dir(), bytes, make, mount)
    }

    /// The same, whose image is below this folder.
    pub fn within(
        folder: &Path,
        bytes: u64,
        make: &mut Command,
        mount: &mut Command,
    ) -> Option<Self> {
        let folder = TempDir::new_in(folder).unwrap();
        let (image, disk) = (folder.path().join("image"), folder.path().join("disk"));
        fs::File::create(&image).unwrap().set_len(bytes).unwrap();
        fs::create_dir(&disk).unwrap();
        let is_made = run(make.arg(&image)) && run(mount.arg(&image).arg(&disk));
        is_made.then_some(Self(folder))
    }

    /// What is mounted.
    pub fn disk(&self) -> PathBuf {
        self.0.path().join("disk")
    }

    /// Beside it: what it is made of.
    pub fn image(&self) -> PathBuf {
        self.0.path().join("image")
    }

    /// A small one in memory.
    pub fn memory(bytes: u64) -> Option<Self> {
        let folder = TempDir::new().unwrap();
        fs::create_dir(folder.path().join("disk")).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={bytes}"), "none"]);
        run(mount.arg(folder.path().join("disk"))).then_some(Self(folder))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // At once, though a thread of the transfer may still have something of it open.
        run(Command::new("umount").arg("--lazy").arg(self.disk()));
    }
}

/// A file system that does not tell capitals from small letters.
pub struct Folding(Mounted);

impl Folding {
    /// One that lists names as they were given.
    pub fn exact() -> Option<Self> {
        let mut make = Command::new("mkfs.ext4");
        make.args(["-q", "-O", "casefold"]);
        let mounted =
            Mounted::new(20 << 20, &mut make, Command::new("mount").args(["-o", "loop"]))?;
        let root = mounted.disk().join("root");
        fs::create_dir(&root).unwrap();
        run(Command::new("chattr").arg("+F").arg(root)).then_some(Self(mounted))
    }

    /// Any; it may list capitals as small letters.
    pub fn new() -> Option<Self> {
        Self::exact().or_else(|| {
            let mut make = Command::new("mkfs.ntfs");
            let mut mount = Command::new("lowntfs-3g");
            mount.args(["-o", "ignore_case"]);
            let mounted = Mounted::new(20 << 20, make.args(["-F", "-q", "-Q"]), &mut mount)?;
            fs::create_dir(mounted.disk().join("root")).unwrap();
            Some(Self(mounted))
        })
    }

    pub fn root(&self) -> PathBuf {
        self.0.disk().join("root")
    }
}

/// A file system whose disk takes nothing in its second half: what is written there meets an error.
pub struct HalfDisk {
    folder: TempDir,
    _disk: OwnedFd,
}

impl HalfDisk {
    pub fn new(bytes: u64) -> Option<Self> {
        let folder = TempDir::new().unwrap();
        let disk = memfd_create("disk", MemfdFlags::ALLOW_SEALING).ok()?;
        ftruncate(&disk, bytes).ok()?;
        let image = format!("/proc/{}/fd/{}", std::process::id(), disk.as_raw_fd());
        let mut make = Command::new("mkfs.ext4");
        // Small files take no blocks, so that it does not matter where those are.
        make.args(["-q", "-F", "-O", "^has_journal,inline_data", "-E", "lazy_itable_init=0"]);
        let mut mount = Command::new("mount");
        mount.args(["-o", "loop"]).arg(&image).arg(folder.path());
        if !(run(make.arg(&image)) && run(&mut mount)) {
            return None;
        }
        ftruncate(&disk, bytes / 2).unwrap();
        fcntl_add_seals(&disk, SealFlags::GROW).unwrap();
        Some(Self { folder, _disk: disk })
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }
}

impl Drop for HalfDisk {
    fn drop(&mut self) {
        run(Command::new("umount").arg("--lazy").arg(self.folder.path()));
    }
}
