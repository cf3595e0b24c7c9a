//! The control socket: how `longhaul emulate set` reaches a lab that runs.
//!
//! A client writes one line of JSON and reads one. The socket lies in a folder that only its
//! owner may enter.

use std::fs::{self, DirBuilder};
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

use super::read_trace;
use crate::args::SetPath;

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
        let path = socket(name)?;
        match UnixStream::connect(&path) {
            Ok(_) => bail!("a lab called '{name}' runs already; choose another --name"),
            // Of a lab that was killed.
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => fs::remove_file(&path)?,
            Err(_) => {}
        }
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
    for (key, share) in [
        ("cell-loss", impairments.cell_loss),
        ("bit-error", impairments.bit_error),
        ("corrupt", impairments.corrupt),
        ("duplicate", impairments.duplicate),
        ("reorder", impairments.reorder),
    ] {
        add(share > 0.0, key, share.to_string());
    }
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
fn socket(name: &str) -> anyhow::Result<PathBuf> {
    Ok(folder()?.join(format!("{name}.{ENDING}")))
}

/// The user's folder for control sockets, which nobody else may enter.
fn folder() -> anyhow::Result<PathBuf> {
    let user = rustix::process::getuid().as_raw();
    let folder = match std::env::var_os("XDG_RUNTIME_DIR").filter(|folder| !folder.is_empty()) {
        Some(folder) => Path::new(&folder).join("longhaul"),
        None => std::env::temp_dir().join(format!("longhaul-{user}")),
    };
    let shown = folder.display();
    match DirBuilder::new().mode(0o700).create(&folder) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            return Err(error).with_context(|| format!("cannot make the folder {shown}"));
        }
        _ => {}
    }
    let found = fs::symlink_metadata(&folder)?;
    ensure!(
        found.is_dir() && found.uid() == user && found.mode() & 0o077 == 0,
        "{shown} should be a folder that is yours alone: remove it, or set XDG_RUNTIME_DIR"
    );
    Ok(folder)
}

/// `longhaul emulate set`.
pub fn set(options: &SetPath) -> anyhow::Result<ExitCode> {
    let named = options.words.first().filter(|word| !word.contains('='));
    let words = &options.words[usize::from(named.is_some())..];
    let request = Request { folder: std::env::current_dir()?, words: words.to_owned() };
    let labs = match named {
        Some(name) => {
            let path = socket(name)?;
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
    let entries = fs::read_dir(folder()?)?.collect::<io::Result<Vec<_>>>()?;
    let mut paths: Vec<_> = entries.into_iter().map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|ending| ending == ENDING));
    paths.sort();
    let labs = paths.into_iter().filter_map(|path| Some((connect(&path).ok()?, path)));
    let labs: Vec<_> = labs.map(|(stream, path)| (path, stream)).collect();
    ensure!(!labs.is_empty(), "no lab runs; `longhaul emulate` starts one");
    Ok(labs)
}

fn connect(path: &Path) -> io::Result<UnixStream> {
    let stream = UnixStream::connect(path);
    if matches!(&stream, Err(error) if error.kind() == ErrorKind::ConnectionRefused) {
        // Of a lab that was killed; whether it can be removed matters to nobody.
        let _ = fs::remove_file(path);
    }
    stream
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
        let read = |words: &[&str]| Adjustment::read(words.iter().copied(), |_| unreachable!());
        let mut link = LinkConfig::new(Rate::ZERO, Duration::ZERO);
        read(&[&given[..], &more[..]].concat()).unwrap().forward.apply(&mut link);
        let shown = words(&link);
        let mut again = LinkConfig::new(Rate::ZERO, Duration::ZERO);
        let parts: Vec<_> = shown.split(' ').collect();
        read(&parts).unwrap().forward.apply(&mut again);
        assert_eq!(again, link, "{shown}");
        assert_eq!(rate(Rate::from_bits_per_sec(9_600_001)), "9600001bit");
    }
}
