//! The control socket: how `longhaul emulate set` reaches a lab that runs.
//!
//! A client writes one line of JSON and reads one. The socket lies in a folder that only its
//! owner may enter.

use std::fs::{self, DirBuilder, File};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, anyhow, bail, ensure};
use emulator::Lab;
use path::{Adjustment, Jitter, LinkConfig, LossConfig};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt};
use units::Rate;

use crate::args::SetPath;
use crate::scenario::read_trace;

/// Names the socket of the lab in which a command runs.
pub const VARIABLE: &str = "LONGHAUL_CONTROL";

const ENDING: &str = "lab";

/// The longest request or answer, in bytes.
const MAX_LINE: u64 = 1 << 20;

/// How long either side waits for the other.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Serialize, Deserialize)]
struct Request {
    /// Where files that the words name are looked for.
    folder: PathBuf,
    words: Vec<String>,
}

/// How the path stands now, or why it was not changed.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    Path { near_to_far: String, far_to_near: String },
    Error(String),
}

/// The socket of a lab, removed on drop.
pub struct Control {
    listener: UnixListener,
    pub path: PathBuf,
}

impl Control {
    /// Makes the socket of a lab of this name. To be called before the process may enter a user
    /// namespace, in which the user has another number.
    pub fn bind(name: &str) -> anyhow::Result<Self> {
        let sound = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        ensure!(
            !name.is_empty() && name.len() <= 40 && name.chars().all(sound),
            "a lab's name has up to 40 letters, digits, '-', '_' and '.', not '{name}'"
        );
        let folder = folder()?;
        make(&folder)?;
        // One at a time: between its making and its first listening a socket looks dead.
        let lock = File::open(&folder)?;
        lock.lock()?;
        sweep(&folder)?;
        let path = socket(&folder, name);
        ensure!(!path.exists(), "a lab called '{name}' runs already; choose another --name");
        let listener = UnixListener::bind(&path)
            .with_context(|| format!("cannot make the control socket {}", path.display()))?;
        listener.set_nonblocking(true)?;
        Ok(Self { listener, path })
    }

    /// Answers requests, without end. One that fails is its sender's matter.
    pub async fn serve(&self, lab: &Lab) -> anyhow::Result<()> {
        let listener = tokio::net::UnixListener::from_std(self.listener.try_clone()?)?;
        loop {
            let (stream, _) = listener.accept().await?;
            let _ = tokio::time::timeout(PATIENCE, answer(stream, lab)).await;
        }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        // When it is gone already, so much the better.
        let _ = fs::remove_file(&self.path);
    }
}

async fn answer(mut stream: tokio::net::UnixStream, lab: &Lab) -> io::Result<()> {
    let (reader, mut writer) = stream.split();
    let mut line = String::new();
    tokio::io::BufReader::new(reader.take(MAX_LINE)).read_line(&mut line).await?;
    let answer = match change(&line, lab) {
        Ok(()) => {
            let [near_to_far, far_to_near] = lab.links().each_ref().map(words);
            Answer::Path { near_to_far, far_to_near }
        }
        Err(error) => Answer::Error(format!("{error:#}")),
    };
    writer.write_all(format!("{}\n", serde_json::to_string(&answer)?).as_bytes()).await
}

fn change(line: &str, lab: &Lab) -> anyhow::Result<()> {
    let Request { folder, words } = serde_json::from_str(line)?;
    let words = words.iter().map(String::as_str);
    let change = Adjustment::read(words, |file| read_trace(&folder, file));
    Ok(lab.set(&change.map_err(|error| anyhow!(error))?)?)
}

/// A link in the words of scenario files; what it does not do is left out.
fn words(link: &LinkConfig) -> String {
    let time = humantime::format_duration;
    let played = if link.trace.is_some() { " (mean of a trace)" } else { "" };
    let delay = time(link.delay).to_string().replace(' ', "");
    let mut text = format!("rate={}{played} delay={delay} queue={}", rate(link.rate), link.queue);
    let impairments = &link.impairments;
    let mut add = |there: bool, key: &str, value: String| {
        if there {
            text += &format!(" {key}={value}");
        }
    };
    let lossless = [LossConfig::None, LossConfig::Bernoulli(0.0)].contains(&link.loss);
    add(!lossless, "loss", link.loss.to_string());
    add(link.framing.0 > 0, "framing", format!("{}B", link.framing.0));
    add(link.atm, "atm", "true".into());
    add(link.mtu.is_some(), "mtu", link.mtu.unwrap_or_default().0.to_string());
    add(!link.icmp, "icmp", "false".into());
    for (key, share) in [
        ("cell-loss", impairments.cell_loss),
        ("bit-error", impairments.bit_error),
        ("corrupt", impairments.corrupt),
        ("duplicate", impairments.duplicate),
        ("reorder", impairments.reorder),
    ] {
        add(share > 0.0, key, share.to_string());
    }
    add(impairments.silent, "silent", "true".into());
    let held_back = !impairments.reorder_by.is_zero();
    add(held_back, "reorder-by", time(impairments.reorder_by).to_string().replace(' ', ""));
    add(!impairments.keep_order, "keep-order", "false".into());
    add(impairments.jitter != Jitter::None, "jitter", impairments.jitter.to_string());
    text
}

/// As it is read: `10mbit`, not rounded.
fn rate(rate: Rate) -> String {
    let bits = rate.as_bits_per_sec();
    let units = [(1_000_000_000, "gbit"), (1_000_000, "mbit"), (1000, "kbit")];
    let whole = units.into_iter().find(|(unit, _)| bits > 0 && bits.is_multiple_of(*unit));
    let (unit, name) = whole.unwrap_or((1, "bit"));
    format!("{}{name}", bits / unit)
}

/// Where the socket of a lab is.
fn socket(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.{ENDING}"))
}

/// All sockets in a folder, by name.
fn sockets(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder)?.collect::<io::Result<Vec<_>>>()?;
    let mut paths: Vec<_> = entries.into_iter().map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|ending| ending == ENDING));
    paths.sort();
    Ok(paths)
}

/// Removes the sockets of labs that were killed.
fn sweep(folder: &Path) -> io::Result<()> {
    let dead = |path: &PathBuf| {
        UnixStream::connect(path).is_err_and(|e| e.kind() == ErrorKind::ConnectionRefused)
    };
    sockets(folder)?.iter().filter(|path| dead(path)).try_for_each(fs::remove_file)
}

/// The user's folder for control sockets: that of the lab this runs in, if it does.
fn folder() -> io::Result<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(folder) = set(VARIABLE).as_deref().and_then(Path::parent) {
        return Ok(folder.to_owned());
    }
    Ok(match set("XDG_RUNTIME_DIR") {
        Some(folder) => folder.join("longhaul"),
        None => {
            let user = rustix::process::getuid().as_raw();
            let map = fs::read_to_string("/proc/self/uid_map")?;
            std::env::temp_dir().join(format!("longhaul-{}", outside(&map, user)))
        }
    })
}

/// The number that a user has outside of this user namespace (`user_namespaces(7)`), in which
/// everybody may be root.
fn outside(map: &str, user: u32) -> u32 {
    let mut rows = map.lines().filter_map(|line| {
        let mut numbers = line.split_whitespace().map(str::parse::<u32>);
        let mut next = || numbers.next()?.ok();
        let (inside, outside, count) = (next()?, next()?, next()?);
        let place = user.checked_sub(inside).filter(|place| *place < count)?;
        outside.checked_add(place)
    });
    rows.next_back().unwrap_or(user)
}

/// Makes the folder unless it is there. Nobody else may enter it.
fn make(folder: &Path) -> anyhow::Result<()> {
    let shown = folder.display();
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            Err(error).with_context(|| format!("cannot make the folder {shown}"))
        }
        _ => check(folder),
    }
}

/// Whether the folder is the user's alone.
fn check(folder: &Path) -> anyhow::Result<()> {
    let found = fs::symlink_metadata(folder)?;
    ensure!(
        found.is_dir()
            && found.uid() == rustix::process::getuid().as_raw()
            && found.mode() & 0o077 == 0,
        "{} should be a folder that is yours alone: remove it, or set XDG_RUNTIME_DIR",
        folder.display()
    );
    Ok(())
}

/// `longhaul emulate set`.
pub fn set(options: &SetPath) -> anyhow::Result<ExitCode> {
    let named = options.words.first().filter(|word| !word.contains('='));
    let words = &options.words[usize::from(named.is_some())..];
    let request = Request { folder: std::env::current_dir()?, words: words.to_owned() };
    let labs = match named {
        Some(name) => {
            let path = socket(&folder()?, name);
            vec![(path.clone(), connect(&path).map_err(|error| no_lab(name, &error))?)]
        }
        None => running()?,
    };
    ensure!(
        words.is_empty() || labs.len() == 1,
        "{} labs run: name the one to change ({})",
        labs.len(),
        labs.iter().map(|(path, _)| name(path)).collect::<Vec<_>>().join(", ")
    );
    for (path, stream) in labs {
        match ask(stream, &request).with_context(|| format!("lab {} is silent", name(&path)))? {
            Answer::Path { near_to_far, far_to_near } => {
                say!("{}\n  near -> far: {near_to_far}\n  far -> near: {far_to_near}", name(&path));
            }
            Answer::Error(error) => bail!("{error}; nothing was changed"),
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn no_lab(name: &str, error: &io::Error) -> anyhow::Error {
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => {
            anyhow!("no lab called '{name}' runs; `longhaul emulate set` shows those that do")
        }
        _ => anyhow!("cannot reach lab '{name}': {error}"),
    }
}

/// The user's labs, or the one this runs in.
fn running() -> anyhow::Result<Vec<(PathBuf, UnixStream)>> {
    if let Some(path) = std::env::var_os(VARIABLE).map(PathBuf::from) {
        let stream = connect(&path).map_err(|error| no_lab(&name(&path), &error))?;
        return Ok(vec![(path, stream)]);
    }
    // Without a folder, or a readable one, there is no lab.
    let paths = sockets(&folder()?).unwrap_or_default();
    let labs = paths.into_iter().filter_map(|path| Some((connect(&path).ok()?, path)));
    let labs: Vec<_> = labs.map(|(stream, path)| (path, stream)).collect();
    ensure!(!labs.is_empty(), "no lab runs; `longhaul emulate` starts one");
    Ok(labs)
}

/// Reaches a lab, in a folder that is the user's alone.
fn connect(path: &Path) -> io::Result<UnixStream> {
    let stream = UnixStream::connect(path)?;
    check(path.parent().unwrap_or(Path::new("/"))).map_err(io::Error::other)?;
    Ok(stream)
}

fn name(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

fn ask(mut stream: UnixStream, request: &Request) -> anyhow::Result<Answer> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(format!("{}\n", serde_json::to_string(request)?).as_bytes())?;
    let mut line = String::new();
    BufReader::new(stream.take(MAX_LINE)).read_line(&mut line)?;
    Ok(serde_json::from_str(&line)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_shown_in_the_words_that_set_them() {
        let given = ["rate=1544kbit", "delay=1s 50ms", "loss=0.02", "queue=red-i:max_p=0.2"];
        let more = ["mtu=1400", "atm=true", "duplicate=0.1", "jitter=exponential:2ms"];
        let rest = ["icmp=false", "silent=true", "reorder-by=1s 5ms", "keep-order=false"];
        let read = |words: &[&str]| Adjustment::read(words.iter().copied(), |_| unreachable!());
        let mut link = LinkConfig::new(Rate::ZERO, Duration::ZERO);
        read(&[&given[..], &more[..], &rest[..]].concat()).unwrap().forward.apply(&mut link);
        let shown = words(&link);
        let mut again = LinkConfig::new(Rate::ZERO, Duration::ZERO);
        let parts: Vec<_> = shown.split(' ').collect();
        read(&parts).unwrap().forward.apply(&mut again);
        assert_eq!(again, link, "{shown}");
        assert_eq!(rate(Rate::from_bits_per_sec(9_600_001)), "9600001bit");
    }

    #[test]
    fn only_the_sockets_of_dead_labs_are_swept() {
        let folder = tempfile::tempdir().unwrap();
        let [dead, alive] = ["dead", "alive"].map(|name| socket(folder.path(), name));
        drop(UnixListener::bind(&dead).unwrap());
        let _listener = UnixListener::bind(&alive).unwrap();
        sweep(folder.path()).unwrap();
        assert_eq!(sockets(folder.path()).unwrap(), [alive]);
    }

    #[test]
    fn users_are_known_by_their_outer_number() {
        assert_eq!(outside("         0          0 4294967295\n", 1000), 1000);
        assert_eq!(outside("0 1000 1\n", 0), 1000);
        assert_eq!(outside("0 1000 1\n1 100000 65536\n", 7), 100_006);
        assert_eq!(outside("0 1000 1\n", 65534), 65534);
    }
}
