//! A session of `longhaul ftp`: the server that it is with, and what a line does.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering::SeqCst};

use anyhow::Context;
use ftp::client::{Client, ClientError, Stop};
use ftp::data::Moved;
use rustix::process::Signal;

use super::args;
use super::commands::{named, words};
use super::connect::{FtpUrl, How, connect, remember};
use super::password::ask;
use super::shell::Names;
use super::show::{guarded, stoppable};

/// What comes after a command.
pub enum Next {
    Go,
    End,
    /// A signal stopped it.
    Stopped(Signal),
}

/// The session as the user sees it.
pub struct Here {
    pub(super) options: args::FtpClient,
    /// The kernel's congestion control for what goes there.
    tcp_cc: Option<String>,
    /// Nothing is remembered of the ways to servers.
    forgets: bool,
    /// A connection with this server was under TLS.
    was_secure: bool,
    /// The server, and who the user is there.
    pub(super) url: Option<FtpUrl>,
    password: Option<String>,
    client: Option<Client>,
    /// Where the user stands there, to go back to after the connection was lost.
    directory: Option<Vec<u8>>,
    pub(super) names: Names,
    stop: Stop,
    /// Between two commands, and before the first.
    idle: Arc<AtomicBool>,
    /// The signal for which the command under way was told to stop.
    came: Arc<AtomicI32>,
}

const NO_SERVER: &str = "no server: `open HOST` first";

/// A server to go to, and what proves who the user is there.
struct Goal {
    url: FtpUrl,
    password: Option<String>,
}

impl Here {
    pub fn new(options: args::Ftp, names: Names) -> Self {
        Self {
            options: options.client,
            tcp_cc: options.tcp_cc,
            forgets: options.memory.no_remember,
            was_secure: false,
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
        let goal = match question(url).await? {
            Ok(goal) => goal,
            Err(signal) => return Ok(Next::Stopped(signal)),
        };
        let (stop, idle) = (self.stop.clone(), self.idle.clone());
        idle.store(false, SeqCst);
        let (entered, signal) = stoppable(&stop, self.enter(goal)).await;
        idle.store(true, SeqCst);
        match signal {
            Some(signal) => Ok(Next::Stopped(signal)),
            None => entered.map(|()| Next::Go),
        }
    }

    async fn enter(&mut self, Goal { url, password }: Goal) -> anyhow::Result<()> {
        self.close().await;
        self.password = password;
        let path = url.path.clone();
        self.url = Some(FtpUrl { path: Vec::new(), ..url });
        self.directory = None;
        self.was_secure = false;
        let client = self.client().await?;
        if !path.is_empty() {
            client.done_with("CWD", &path).await?;
        }
        let secure = guarded(client.guard());
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
    pub(super) async fn client(&mut self) -> anyhow::Result<&mut Client> {
        if self.client.is_none() {
            let url = self.url.as_ref().context(NO_SERVER)?;
            let how = How {
                tells: true,
                options: &self.options,
                tcp_cc: self.tcp_cc.as_deref(),
                forgets: self.forgets,
                was_secure: self.was_secure,
                stop: &self.stop,
            };
            let mut client = connect(url, self.password.as_deref(), how).await?;
            self.was_secure = client.is_secure();
            if let Some(directory) = &self.directory {
                client.done_with("CWD", directory).await?;
            }
            self.client = Some(client);
        }
        self.client.as_mut().context(NO_SERVER)
    }

    /// Notes where the user stands.
    pub(super) async fn remember(&mut self) -> anyhow::Result<()> {
        let here = self.client().await?.here().await?;
        self.directory = Some(here);
        Ok(())
    }

    /// Writes down what a transfer learnt of the way.
    pub(super) fn learn(&self, moved: &Moved) {
        if let Some(client) = &self.client {
            remember(client, moved, self.forgets);
        }
    }

    /// Carries out a line; Ctrl-C stops it. A lost connection is made again with the next one.
    pub async fn run(&mut self, line: &str) -> anyhow::Result<Next> {
        // A shell has its own way with blanks and quotation marks.
        let split = match line.trim_start().strip_prefix('!') {
            Some(command) => vec!["!".to_owned(), command.trim().to_owned()],
            None => words(line)?,
        };
        let Some((command, arguments)) = split.split_first() else { return Ok(Next::Go) };
        let command = named(command)?;
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        if matches!(command, "bye" | "quit") {
            return Ok(Next::End);
        }
        let (stop, idle) = (self.stop.clone(), self.idle.clone());
        idle.store(false, SeqCst);
        // What is asked is asked first: who thinks better of it stays where he is.
        let (done, signal) = match self.goal(command, &arguments).await {
            Ok(Ok(goal)) => stoppable(&stop, self.carry_out(goal, command, &arguments)).await,
            Ok(Err(signal)) => (Ok(()), Some(signal)),
            Err(error) => (Err(error), None),
        };
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

    /// Where a command leads, if it leads to another server or makes the user another one.
    async fn goal(
        &self,
        command: &str,
        arguments: &[&str],
    ) -> anyhow::Result<Result<Option<Goal>, Signal>> {
        let url = match (command, arguments) {
            ("open", [host]) => FtpUrl::read_host(host).map_err(anyhow::Error::msg)?,
            ("user", [name]) => {
                let url = self.url.clone().context(NO_SERVER)?;
                FtpUrl { user: Some((*name).to_owned()), ..url }
            }
            _ => return Ok(Ok(None)),
        };
        Ok(question(url).await?.map(Some))
    }

    async fn carry_out(
        &mut self,
        goal: Option<Goal>,
        command: &str,
        arguments: &[&str],
    ) -> anyhow::Result<()> {
        match (goal, command) {
            (Some(goal), _) => self.enter(goal).await,
            (_, "append" | "get" | "mget" | "mput" | "newer" | "put" | "reget" | "reput") => {
                self.transfer(command, arguments).await
            }
            _ => self.simple(command, arguments).await,
        }
    }
}

/// Asks for the password of whoever a URL names.
async fn question(url: FtpUrl) -> anyhow::Result<Result<Goal, Signal>> {
    let password = match &url.user {
        Some(user) => match ask(user).await? {
            Ok(password) => Some(password),
            Err(signal) => return Ok(Err(signal)),
        },
        None => None,
    };
    Ok(Ok(Goal { url, password }))
}
