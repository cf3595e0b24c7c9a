//! The far side, started over the user's own ssh for one transfer.
//!
//! A [`greeting`] over the pipes of ssh comes first. In it the near side gives a KEY that is made for this
//! transfer. Whoever holds it is let in at the far side's PORT, UDP and TCP, of the host that ssh has
//! reached, whose own word for its ADDRESS is `-` where it knows none; port 0 says that no port can be
//! had there. After that the pipes are a [`Channel`]. The far side ends with its standard input, and so
//! with ssh and with this side.

mod bootstrap;
mod channel;
pub mod far;
mod greeting;
mod words;

use std::fmt;
use std::net::SocketAddr;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, anyhow};
use net::SharedKey;
use tokio::io::{AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::timeout;

use crate::address::Login;
use crate::args::Ssh;
use crate::keys::home;

pub use channel::Channel;
use greeting::{Heard, Place};
use words::Words;

/// Addresses of one host that are tried.
const ADDRESSES: usize = 4;
/// How long ssh may take to end once the far side was told to.
pub const GRACE: Duration = Duration::from_secs(5);
/// By these codes shells tell that a program is not there, or cannot be run.
const NOT_FOUND: i32 = 127;
const NOT_RUNNABLE: i32 = 126;
/// By this one ssh tells that it failed itself.
const NO_LOGIN: i32 = 255;
/// By this one the argument parser of a release without this command.
const USAGE: i32 = 2;

/// While the data goes beside ssh, nothing goes over it for hours: firewalls forget such a connection,
/// and a host that is gone is not noticed. It may be silent for as long as the data's own ways may: ten
/// minutes. What the user's own words say comes before.
const KEPT_ALIVE: [&str; 4] = ["-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=40"];

type Pipes = Channel<BufReader<ChildStdout>, ChildStdin>;

/// A far side that was started. Dropped before [`Session::end`], it is cut off.
pub struct Session {
    child: Child,
    channel: Mutex<Pipes>,
    pub login: Login,
    /// What both sides prove themselves with.
    pub key: SharedKey,
    place: Place,
    /// What ssh says, where somebody listens.
    words: Option<Words>,
}

/// How a start has ended that gave no session.
struct Ended {
    status: ExitStatus,
    /// By ssh's own words, where somebody listens.
    is_refused: bool,
}

impl Ended {
    fn why(&self, login: &Login, options: &Ssh) -> anyhow::Error {
        match self.is_refused && self.status.code() == Some(NO_LOGIN) {
            true => anyhow!("{} refuses the login: ssh's own words stand above", login.0),
            false => why_not(self.status, login, options),
        }
    }
}

impl Session {
    /// Starts the far side and waits until it is ready: the user may have a password to type. Where it
    /// is not there and the user wants that, it is put there first.
    pub async fn start(login: &Login, options: &Ssh) -> anyhow::Result<Self> {
        match Self::start_there(login, options, false).await? {
            Ok(session) => Ok(session),
            Err(ended) => match &options.bootstrap {
                Some(program) if is_missing(ended.status) => {
                    let options = bootstrap::bootstrap(program, login, options).await?;
                    let started = Self::start_there(login, &options, false).await?;
                    started.map_err(|ended| ended.why(login, &options))
                }
                _ => Err(ended.why(login, options)),
            },
        }
    }

    /// The same once more, when nobody may be there to read what ssh says: a [`NoLogin`] is one that may succeed
    /// later.
    pub async fn start_again(login: &Login, options: &Ssh) -> anyhow::Result<Self> {
        let started = Self::start_there(login, options, true).await?;
        started.map_err(|ended| ended.why(login, options))
    }

    /// Starts what is there, or gives how that has ended.
    async fn start_there(
        login: &Login,
        options: &Ssh,
        listens: bool,
    ) -> anyhow::Result<Result<Self, Ended>> {
        let key = SharedKey::from_bytes(home::random()?);
        let announced = format!("echo {}; ", greeting::REACHED);
        let words = Vec::from_iter(["far".to_owned()].into_iter().chain(options.far.clone()));
        let mut command = command(login, options, &script(options, &words, &announced));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        if listens {
            command.stderr(Stdio::piped());
        }
        let mut child = command.spawn().context("cannot start ssh")?;
        let words = child.stderr.take().map(Words::of);
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (mut stdin, stdout) = pipes.context("ssh has no pipes")?;
        let mut stdout = BufReader::new(stdout);
        let said = async {
            stdin.write_all(greeting::near(&key).as_bytes()).await?;
            stdin.flush().await
        };
        let heard = match said.await {
            Ok(()) => greeting::hear_far(&mut stdout).await,
            Err(_) => Heard::Nothing,
        };
        let line = match heard {
            Heard::Line(line) => line,
            Heard::Nothing => {
                drop((stdin, stdout));
                let status = child.wait().await.context("cannot wait for ssh")?;
                let is_refused = match words {
                    // A connection that ssh shares may keep its words open.
                    Some(words) => timeout(GRACE, words.are_refusal()).await.unwrap_or(false),
                    None => false,
                };
                return Ok(Err(Ended { status, is_refused }));
            }
            Heard::Silence => return Err(greeting::silent(&login.0)),
        };
        let place = greeting::place(&line, &login.0)?;
        let channel = Mutex::new(Channel::new(stdout, stdin));
        Ok(Ok(Self { child, channel, login: login.clone(), key, place, words }))
    }

    /// Whether there is a port beside ssh at all.
    pub fn has_port(&self) -> bool {
        self.place.port != 0
    }

    /// Where the far side may be reached beside ssh. Behind a jump host or a forwarded port there
    /// may be nobody, or somebody else.
    pub async fn addresses(&self) -> Vec<SocketAddr> {
        let port = self.place.port;
        let mut found = Vec::from_iter(self.place.address);
        if let Ok(named) = tokio::net::lookup_host((self.login.host(), port)).await {
            found.extend(named.map(|address| address.ip()));
        }
        let mut all: Vec<SocketAddr> = Vec::new();
        for ip in found {
            let address = SocketAddr::new(ip.to_canonical(), port);
            if port != 0 && all.len() < ADDRESSES && !all.contains(&address) {
                all.push(address);
            }
        }
        all
    }

    /// The pipes, for one stream after another.
    pub async fn channel(&self) -> MutexGuard<'_, Pipes> {
        self.channel.lock().await
    }

    /// Waits until the far side has answered over ssh itself, as it does not while no packet passes.
    pub async fn answers(&self) -> anyhow::Result<()> {
        let mut channel = self.channel().await;
        channel.reset().await?;
        let mut stream = channel.stream();
        transfer::probe(&mut stream, 0).await?;
        Ok(stream.finish().await?)
    }

    /// How ssh has ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Lets the far side end, and ssh with it.
    pub async fn end(self) {
        let Self { mut child, channel, words, .. } = self;
        drop(channel);
        let ending = async {
            let _ = child.wait().await;
            if let Some(words) = words {
                words.are_refusal().await;
            }
        };
        // What does not end by itself is killed when dropped.
        let _ = timeout(GRACE, ending).await;
    }
}

/// An ssh that runs a script there.
pub fn command(login: &Login, options: &Ssh, script: &str) -> Command {
    let rsh = options.rsh.clone().or_else(|| std::env::var("LONGHAUL_SSH").ok());
    let rsh = rsh.filter(|rsh| !rsh.is_empty()).unwrap_or_else(|| "ssh".to_owned());
    // The shell takes the user's words apart, as git does with GIT_SSH_COMMAND.
    let mut command = Command::new("sh");
    command.arg("-c").arg(format!("exec {rsh} \"$@\"")).arg(&rsh);
    if is_ssh(&rsh) {
        command.args(KEPT_ALIVE);
    }
    command.args([&login.0, script]).kill_on_drop(true);
    command
}

/// Whether the user's words start ssh itself, and not something that takes other options.
fn is_ssh(rsh: &str) -> bool {
    let program = rsh.split_whitespace().next().unwrap_or_default();
    program.rsplit('/').next() == Some("ssh")
}

/// What a shell of any kind is to run there: longhaul, with these words.
pub fn longhaul(options: &Ssh, words: &[String]) -> String {
    script(options, words, "")
}

/// The same behind another command.
fn script(options: &Ssh, words: &[String], first: &str) -> String {
    let words = Vec::from_iter(words.iter().map(|word| quoted(word))).join(" ");
    in_shell(&match &options.remote_path {
        Some(path) => {
            let path = shell_path(path);
            format!("{first}[ -e {path} ] || exit {NOT_FOUND}; exec {path} {words}")
        }
        None => format!(
            "{first}PATH=$PATH:$HOME/.local/bin:$HOME/.cargo/bin; \
             command -v longhaul >/dev/null || exit {NOT_FOUND}; exec longhaul {words}"
        ),
    })
}

/// A script for a plain shell, whatever the user's own is.
fn in_shell(script: &str) -> String {
    format!("sh -c {}", quoted(script))
}

/// A path there as one word for a shell; `~/` is the user's home.
fn shell_path(path: &str) -> String {
    match path.strip_prefix("~/") {
        Some(below) => format!("\"$HOME\"/{}", quoted(below)),
        None => quoted(path),
    }
}

/// One word for a shell.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Whether longhaul is not there.
fn is_missing(status: ExitStatus) -> bool {
    status.code() == Some(NOT_FOUND)
}

/// Whether a copy that has said nothing was not even begun there.
pub fn is_no_copy(status: ExitStatus) -> bool {
    matches!(status.code(), Some(NOT_FOUND | NOT_RUNNABLE | NO_LOGIN))
}

/// ssh has failed itself.
#[derive(Debug)]
pub struct NoLogin(String);

impl fmt::Display for NoLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ssh did not get into {}: its own words stand above", self.0)
    }
}

impl std::error::Error for NoLogin {}

/// Why longhaul was not started there.
pub fn why_not(status: ExitStatus, login: &Login, options: &Ssh) -> anyhow::Error {
    let host = &login.0;
    let place = options.remote_path.as_deref();
    match status.code() {
        Some(NOT_FOUND) => match place {
            Some(path) => anyhow!("there is no {path} on {host}: see to --remote-path"),
            None => anyhow!(
                "there is no longhaul on {host}, neither in its PATH nor in ~/.local/bin or \
                 ~/.cargo/bin: say --bootstrap to put this one there, or name it with --remote-path"
            ),
        },
        Some(NOT_RUNNABLE) => anyhow!(
            "longhaul cannot be run on {host}: it must be executable, and built for that machine"
        ),
        Some(NO_LOGIN) => NoLogin(host.clone()).into(),
        Some(USAGE) => {
            anyhow!("the longhaul on {host} cannot be started over ssh: install this release there")
        }
        _ => anyhow!("the far side did not start on {host}: ssh ended with {status}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ssh_itself_is_given_options_of_ssh() {
        for (rsh, is_given) in [("ssh", true), ("/usr/bin/ssh -p 22", true), ("./rsh ssh", false)] {
            let options = Ssh { rsh: Some(rsh.to_owned()), ..Ssh::default() };
            let command = command(&Login("host".to_owned()), &options, "true");
            let given = command.as_std().get_args().any(|word| word == KEPT_ALIVE[1]);
            assert_eq!(given, is_given, "{rsh}");
        }
    }

    #[test]
    fn a_path_reaches_the_far_shell_as_it_is() {
        let path = Some("~/it's \"$here\"".to_owned());
        let options = Ssh { remote_path: path, ..Ssh::default() };
        let script = longhaul(&options, &["far".to_owned()]);
        let script = script.replace("exec ", "echo ").replace("-e", "-n");
        let mut sh = std::process::Command::new("sh");
        let said = sh.args(["-c", &script]).env("HOME", "/h").output().unwrap().stdout;
        assert_eq!(String::from_utf8(said).unwrap(), "/h/it's \"$here\" far\n");
    }
}
