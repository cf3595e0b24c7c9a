//! What the commands of `longhaul ftp` do.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering::SeqCst};

use anyhow::{Context, bail, ensure};
use ftp::client::{Client, ClientError, Copied, Stop};
use ftp::data::Moved;
use ftp::entry::Kind;
use rustix::process::Signal;
use transfer::{Progress, RelPath};

use super::args;
use super::connect::{self, FtpUrl, ask_password};
use super::shell::Names;
use super::show::{Shown, stoppable, watch};
use crate::args::Output;

/// Every command and what it does.
pub const COMMANDS: &[(&str, &str)] = &[
    ("active", "let the server connect here for data"),
    ("ascii", "translate line ends"),
    ("binary", "leave bytes as they are"),
    ("bye", "end"),
    ("cd", "DIR: go to a directory there"),
    ("chmod", "MODE NAME: set permissions there"),
    ("close", "leave the server"),
    ("delete", "NAME: delete a file there"),
    ("dir", "[NAME]: list in full"),
    ("get", "NAME [LOCAL]: get a file, or a directory with all that is in it"),
    ("hash", "NAME: a checksum of a file there"),
    ("help", "this list"),
    ("lcd", "DIR: go to a directory here"),
    ("lpwd", "the current directory here"),
    ("ls", "[NAME]: list names"),
    ("mget", "PATTERN...: get what matches"),
    ("mkdir", "NAME: make a directory there"),
    ("modtime", "NAME: when a file there was changed"),
    ("mput", "FILE...: put several"),
    ("mult", "[N]: stripe over N connections (4) at most, or auto; 1 turns it off"),
    ("open", "HOST: go to another server"),
    ("passive", "connect to the server for data"),
    ("put", "LOCAL [NAME]: put a file, or a directory with all that is in it"),
    ("pwd", "the current directory there"),
    ("quit", "end"),
    ("quote", "COMMAND: send it as it is"),
    ("reget", "NAME [LOCAL]: get the rest of a file"),
    ("rename", "OLD NEW: rename there"),
    ("reput", "LOCAL [NAME]: put the rest of a file"),
    ("rmdir", "NAME: remove an empty directory there"),
    ("size", "NAME: the size of a file there"),
    ("status", "how things stand"),
    ("user", "NAME: log in as somebody else"),
];

/// Connections when `mult` does not say how many (paper 3, section 2.2).
const STREAMS_DEFAULT: u16 = 4;

/// What comes after a command.
pub enum Next {
    Go,
    End,
    /// A signal stopped it.
    Stopped(Signal),
}

/// The session as the user sees it.
pub struct Here {
    options: args::FtpClient,
    /// The kernel's congestion control for what goes there.
    tcp_cc: Option<String>,
    /// The server, and who the user is there.
    url: Option<FtpUrl>,
    password: Option<String>,
    client: Option<Client>,
    /// Where the user stands there, to go back to after the connection was lost.
    directory: Option<Vec<u8>>,
    names: Names,
    stop: Stop,
    /// Between two commands, and before the first.
    idle: Arc<AtomicBool>,
    /// The signal for which the command under way was told to stop.
    came: Arc<AtomicI32>,
}

impl Here {
    pub fn new(options: args::Ftp, names: Names) -> Self {
        Self {
            options: options.client,
            tcp_cc: options.tcp_cc,
            url: None,
            password: None,
            client: None,
            directory: None,
            names,
            stop: Stop::default(),
            idle: Arc::new(AtomicBool::new(true)),
            came: Arc::default(),
        }
    }

    /// Stops the command under way; false where there is none, and nobody looks at the wish.
    pub fn stopper(&self) -> impl Fn(Signal) -> bool + Send + 'static {
        let (stop, idle, came) = (self.stop.clone(), self.idle.clone(), self.came.clone());
        move |signal| {
            came.store(signal.as_raw(), SeqCst);
            stop.stop();
            !idle.load(SeqCst)
        }
    }

    /// Goes to the first server. Ctrl-C ends the question for the password, and all that follows.
    pub async fn begin(&mut self, url: FtpUrl) -> anyhow::Result<Next> {
        self.password = url.user.as_deref().map(ask_password).transpose()?;
        let (stop, idle) = (self.stop.clone(), self.idle.clone());
        idle.store(false, SeqCst);
        let (entered, signal) = stoppable(&stop, self.enter(url)).await;
        idle.store(true, SeqCst);
        match signal {
            Some(signal) => Ok(Next::Stopped(signal)),
            None => entered.map(|()| Next::Go),
        }
    }

    /// Goes to another server.
    async fn open(&mut self, url: FtpUrl) -> anyhow::Result<()> {
        self.close().await;
        self.password = url.user.as_deref().map(ask_password).transpose()?;
        self.enter(url).await
    }

    async fn enter(&mut self, url: FtpUrl) -> anyhow::Result<()> {
        let path = url.path.clone();
        self.url = Some(FtpUrl { path: Vec::new(), ..url });
        self.directory = None;
        let client = self.client().await?;
        if !path.is_empty() {
            client.done_with("CWD", &path).await?;
        }
        let secure = if client.is_secure() { "under TLS" } else { "in clear" };
        let streams = match client.streams() {
            1 => String::new(),
            streams => format!(", at most {streams} connections a file"),
        };
        tell!("connected {secure}{streams}");
        self.remember().await
    }

    /// Leaves the server.
    pub async fn close(&mut self) {
        if let Some(client) = self.client.take() {
            client.quit().await;
        }
    }

    /// The session, made anew where it was lost.
    async fn client(&mut self) -> anyhow::Result<&mut Client> {
        if self.client.is_none() {
            let url = self.url.as_ref().context("no server: `open HOST` first")?;
            let password = self.password.as_deref();
            let how = (&self.options, self.tcp_cc.as_deref());
            let mut client = connect::connect(url, password, how, &self.stop).await?;
            if let Some(directory) = &self.directory {
                client.done_with("CWD", directory).await?;
            }
            self.client = Some(client);
        }
        self.client.as_mut().context("no server: `open HOST` first")
    }

    /// Notes where the user stands.
    async fn remember(&mut self) -> anyhow::Result<()> {
        let here = self.client().await?.here().await?;
        self.directory = Some(here);
        Ok(())
    }

    /// Carries out a line; Ctrl-C stops it. A lost connection is made again with the next one.
    pub async fn run(&mut self, line: &str) -> anyhow::Result<Next> {
        let words = words(line)?;
        let Some((command, arguments)) = words.split_first() else { return Ok(Next::Go) };
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        if matches!(command.as_str(), "bye" | "quit" | "exit") {
            return Ok(Next::End);
        }
        let (stop, idle) = (self.stop.clone(), self.idle.clone());
        idle.store(false, SeqCst);
        let (done, signal) = stoppable(&stop, self.carry_out(command, &arguments)).await;
        idle.store(true, SeqCst);
        if let Err(error) = &done
            && error.downcast_ref::<ClientError>().is_some_and(|error| !error.is_refusal())
        {
            self.client = None;
        }
        // What ends at that very moment has not looked at the signal.
        let late = Signal::from_named_raw(self.came.swap(0, SeqCst));
        stop.reset();
        match (done, signal.or(late)) {
            (_, Some(signal)) => Ok(Next::Stopped(signal)),
            (done, None) => done.map(|()| Next::Go),
        }
    }

    async fn carry_out(&mut self, command: &str, arguments: &[&str]) -> anyhow::Result<()> {
        match (command, arguments) {
            ("help" | "?", _) => COMMANDS.iter().for_each(|(name, what)| say!("{name:<9} {what}")),
            ("open", [host]) => {
                self.open(FtpUrl::read_host(host).map_err(anyhow::Error::msg)?).await?;
            }
            ("close", _) => {
                self.close().await;
                self.url = None;
            }
            ("user", [name]) => self.user(name).await?,
            ("lcd", [path]) => {
                std::env::set_current_dir(path).with_context(|| format!("cannot go to {path}"))?;
            }
            ("lpwd", []) => say!("{}", std::env::current_dir()?.display()),
            ("ls" | "dir" | "nlist", _) => self.list(command, arguments).await?,
            ("get" | "reget" | "mget" | "put" | "reput" | "mput", [_, ..]) => {
                self.transfer(command, arguments).await?;
            }
            ("mult", _) => self.mult(arguments).await?,
            ("status", []) => self.status().await?,
            _ => self.simple(command, arguments).await?,
        }
        Ok(())
    }

    async fn user(&mut self, name: &str) -> anyhow::Result<()> {
        let password = ask_password(name)?;
        self.close().await;
        self.directory = None;
        self.password = Some(password);
        if let Some(url) = &mut self.url {
            url.user = Some(name.to_owned());
        }
        self.client().await.map(drop)
    }

    /// Commands that are one of FTP's own.
    async fn simple(&mut self, command: &str, arguments: &[&str]) -> anyhow::Result<()> {
        let client = self.client().await?;
        let done = match (command, arguments) {
            ("cd", [path]) => {
                client.done_with("CWD", path.as_bytes()).await?;
                self.names.set(Vec::new());
                return self.remember().await;
            }
            ("pwd", []) => {
                say!("{}", Shown(&client.here().await?));
                return Ok(());
            }
            ("binary" | "ascii", []) => {
                client.set_ascii(command == "ascii");
                return Ok(());
            }
            ("passive" | "active", []) => {
                client.set_active(command == "active");
                self.options.active = command == "active";
                return Ok(());
            }
            ("size", [path]) => {
                let size = client.size(path.as_bytes()).await?;
                say!("{}", size.context("the server does not tell")?);
                return Ok(());
            }
            ("modtime", [path]) => {
                let time = client.modified(path.as_bytes()).await?;
                say!("{}", ftp::time::stamp(time.context("the server does not tell")?));
                return Ok(());
            }
            ("hash", [path]) => client.hash(path.as_bytes()).await?,
            ("delete", [path]) => client.done_with("DELE", path.as_bytes()).await?,
            ("mkdir", [path]) => client.done_with("MKD", path.as_bytes()).await?,
            ("rmdir", [path]) => client.done_with("RMD", path.as_bytes()).await?,
            ("chmod", [mode, path]) => {
                client.done_with(&format!("SITE CHMOD {mode}"), path.as_bytes()).await?
            }
            ("rename", [from, to]) => {
                client.done_with("RNFR", from.as_bytes()).await?;
                client.done_with("RNTO", to.as_bytes()).await?
            }
            ("quote", [_, ..]) => client.ask(&arguments.join(" ")).await?,
            _ => bail!("no such command, or not with these arguments: `help` lists them"),
        };
        done.lines.iter().for_each(|line| say!("{}", Shown(line)));
        Ok(())
    }

    async fn list(&mut self, command: &str, arguments: &[&str]) -> anyhow::Result<()> {
        ensure!(arguments.len() <= 1, "one name, or none");
        let path = arguments.first().copied().unwrap_or_default();
        let verb = if command == "dir" { "LIST" } else { "NLST" };
        let names = self.names.clone();
        let text = self.client().await?.listing(verb, path.as_bytes()).await?;
        let lines = text.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii_end);
        let lines: Vec<_> = lines.filter(|line| !line.is_empty()).collect();
        lines.iter().for_each(|line| say!("{}", Shown(line)));
        if verb == "NLST" && path.is_empty() {
            names
                .set(lines.iter().map(|line| String::from_utf8_lossy(line).into_owned()).collect());
        }
        Ok(())
    }

    async fn mult(&mut self, arguments: &[&str]) -> anyhow::Result<()> {
        let wanted = match arguments {
            [] => STREAMS_DEFAULT,
            [number] => super::args::streams(number).map_err(anyhow::Error::msg)?,
            _ => bail!("mult wants one number of connections"),
        };
        self.options.streams = wanted;
        let client = self.client().await?;
        client.set_streams(wanted.into()).await?;
        match (wanted, client.streams_there()) {
            (0 | 2.., 1) => tell!("the server knows nothing of it: one connection a file"),
            _ => tell!("at most {} connections a file", client.streams()),
        }
        Ok(())
    }

    async fn status(&mut self) -> anyhow::Result<()> {
        let Some(url) = self.url.clone() else {
            say!("no server");
            return Ok(());
        };
        let client = self.client().await?;
        let user = url.user.as_deref().unwrap_or("anonymous");
        let secure = if client.is_secure() { "TLS" } else { "in clear" };
        let mode = if client.is_active() { "active" } else { "passive" };
        let kind = if client.is_ascii() { "ascii" } else { "binary" };
        say!("{user} at {}:{}, {secure}, {mode}, {kind}", url.host, url.port);
        say!(
            "at most {} connections a file (the server takes {})",
            client.streams(),
            client.streams_there()
        );
        if let Some(fingerprint) = client.fingerprint() {
            say!("certificate {fingerprint}");
        }
        Ok(())
    }

    /// What gets and puts, with its progress shown.
    async fn transfer(&mut self, command: &str, arguments: &[&str]) -> anyhow::Result<()> {
        let (progress, moved) = (Progress::new(), Moved::default());
        let mut copied = Copied::default();
        let moving = async {
            match (command, arguments) {
                ("mget", patterns) => {
                    self.get_matching(patterns, (&progress, &moved), &mut copied).await
                }
                ("mput", files) => {
                    for file in files {
                        let name = base_name(file)?;
                        let client = self.client().await?;
                        let path = Path::new(file);
                        client
                            .put_tree(path, name.as_bytes(), (&progress, &moved), &mut copied)
                            .await?;
                    }
                    Ok(())
                }
                ("get", [path]) => {
                    self.get(path, base_name(path)?, (&progress, &moved), &mut copied).await
                }
                ("get", [path, local]) => {
                    self.get(path, local, (&progress, &moved), &mut copied).await
                }
                ("put", [local]) => {
                    self.put(local, base_name(local)?, (&progress, &moved), &mut copied).await
                }
                ("put", [local, path]) => {
                    self.put(local, path, (&progress, &moved), &mut copied).await
                }
                ("reget", [path]) => self.reget(path, base_name(path)?, &moved).await,
                ("reget", [path, local]) => self.reget(path, local, &moved).await,
                ("reput", [local]) => self.reput(local, base_name(local)?, &moved).await,
                ("reput", [local, path]) => self.reput(local, path, &moved).await,
                _ => bail!("one name, and perhaps another"),
            }
        };
        let output = Output { json: false, quiet: false, verbose: false };
        watch(output, &progress, &moved, moving).await?;
        for note in copied.notes.iter() {
            tell!("{note}");
        }
        ensure!(copied.notes.failed() == 0, "{} failed", copied.notes.failed());
        tell!("{} moved", units::Bytes(moved.bytes()));
        Ok(())
    }

    async fn get(
        &mut self,
        path: &str,
        local: &str,
        shown: (&Progress, &Moved),
        copied: &mut Copied,
    ) -> anyhow::Result<()> {
        let (directory, name) = landing(Path::new(local))?;
        let name = RelPath::new(name.as_os_str().as_bytes().to_vec())?;
        Ok(self
            .client()
            .await?
            .get_tree(path.as_bytes(), directory.into(), Some(&name), shown, copied)
            .await?)
    }

    async fn put(
        &mut self,
        local: &str,
        path: &str,
        shown: (&Progress, &Moved),
        copied: &mut Copied,
    ) -> anyhow::Result<()> {
        Ok(self.client().await?.put_tree(Path::new(local), path.as_bytes(), shown, copied).await?)
    }

    async fn reget(&mut self, path: &str, local: &str, moved: &Moved) -> anyhow::Result<()> {
        let (directory, name) = landing(Path::new(local))?;
        let place = (directory.into(), name.as_os_str());
        Ok(self.client().await?.get(path.as_bytes(), place, true, moved).await?)
    }

    async fn reput(&mut self, local: &str, path: &str, moved: &Moved) -> anyhow::Result<()> {
        let file = File::open(local).with_context(|| format!("cannot read {local}"))?;
        let client = self.client().await?;
        let there = client.size(path.as_bytes()).await?.unwrap_or(0);
        let size = file.metadata()?.len();
        ensure!(there <= size, "the server's file is longer already: put it anew");
        Ok(client.put(file, path.as_bytes(), there, moved).await?)
    }

    /// Gets the files of the current directory whose names match.
    async fn get_matching(
        &mut self,
        patterns: &[&str],
        shown: (&Progress, &Moved),
        copied: &mut Copied,
    ) -> anyhow::Result<()> {
        let patterns = patterns.iter().map(|pattern| glob::Pattern::new(pattern));
        let patterns = patterns.collect::<Result<Vec<_>, _>>().context("that is no pattern")?;
        let client = self.client().await?;
        for entry in client.list(b"").await? {
            let name = String::from_utf8_lossy(&entry.name).into_owned();
            let wanted = patterns.iter().any(|pattern| pattern.matches(&name));
            if !wanted || !matches!(entry.kind, Kind::File | Kind::Link) {
                continue;
            }
            let Ok(path) = RelPath::new(entry.name.clone()) else { continue };
            if path.as_bytes().contains(&b'/') {
                continue;
            }
            let directory = File::open(".").context("cannot use the current directory")?;
            client.get_tree(&entry.name, directory.into(), Some(&path), shown, copied).await?;
        }
        Ok(())
    }
}

/// The directory here that a file lands in, and its name.
pub fn landing(path: &Path) -> anyhow::Result<(File, PathBuf)> {
    let name = path.file_name().context("name a file, not a directory")?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    let open =
        File::open(parent).with_context(|| format!("cannot write to {}", parent.display()))?;
    Ok((open, name.into()))
}

/// The last name of a path; what a server's path may not lead by.
fn base_name(path: &str) -> anyhow::Result<&str> {
    let name = Path::new(OsStr::from_bytes(path.as_bytes())).file_name().and_then(OsStr::to_str);
    name.context("that path has no name in it: say under which it shall be kept")
}

/// Splits a line at blanks; quotation marks keep blanks in a word.
fn words(line: &str) -> anyhow::Result<Vec<String>> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for c in line.chars() {
        match (quote, c) {
            (Some(mark), c) if c == mark => quote = None,
            (None, '"' | '\'') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    ensure!(quote.is_none(), "a quotation mark is missing");
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_split_into_words() {
        assert_eq!(words("get 'a b' \"c'd\"e ''").unwrap(), ["get", "a b", "c'de", ""]);
        assert!(words("  ").unwrap().is_empty() && words("get 'a").is_err());
    }

    #[test]
    fn commands_stand_in_order() {
        assert!(COMMANDS.is_sorted_by_key(|(name, _)| *name));
    }
}
