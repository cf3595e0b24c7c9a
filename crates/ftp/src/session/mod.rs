//! The server's side of a control connection, sans IO.
//!
//! Bytes and answers go in by [`Session::receive`], [`Session::answer`] and the like; what is to be
//! done comes out of [`Session::poll`] until there is nothing more. One command is carried out at a
//! time; while a [`Task`] is under way, only what may come at any time is looked at, and the rest
//! waits in a bounded buffer.
//!
//! The login sequence (RFC 959, section 6), with the security exchange of RFC 4217 before it:
//!
//! ```text
//!             USER            PASS, accepted
//!   Nobody ----------> Named ----------------> In
//!     ^  ^               |                      |
//!     |  +---- PASS refused                     |
//!     +------------- AUTH TLS, REIN ------------+
//! ```
//!
//! And the work on one command:
//!
//! ```text
//!          a task             answered
//!   Idle ----------> Asked ------------> Idle
//!                      | opened            ^
//!                      v      150          | 226 or an error
//!                    Moving ---------------+
//!                      | ABOR     426, 226 |
//!                      +-------------------+
//! ```

mod answers;
mod data;
mod files;
mod login;
mod settings;
mod task;

use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::Duration;

use transfer::RelPath;
use units::Instant;

pub use task::{Answer, Data, Encoding, Failure, Form, Framing, Open, Task, User, Way};

use crate::address::Ends;
use crate::command::{Argument, Rule, Verb, When, is_unimplemented, parse};
use crate::entry::Facts;
use crate::hash::Algorithm;
use crate::line::{Line, Lines};
use crate::names;
use crate::reply::Reply;

/// Wrong passwords after which a session ends.
pub const LOGINS_MAX: u32 = 3;

/// How a server treats its sessions.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Whether TLS can be had.
    pub offers_tls: bool,
    /// Names and passwords are taken under TLS alone, and data needs PROT P.
    pub requires_tls: bool,
    /// The most connections of one transfer, at least 1: the answer to MULT.
    pub streams: usize,
    /// A session without a command for so long ends.
    pub idle: Duration,
    /// One where nobody has logged in yet, sooner, whatever comes.
    pub login: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            offers_tls: true,
            requires_tls: false,
            streams: 16,
            idle: Duration::from_secs(300),
            login: Duration::from_secs(60),
        }
    }
}

/// What is to be done next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send these bytes.
    Send(Vec<u8>),
    /// Begin TLS as its server, and say so by [`Session::secured`].
    StartTls,
    /// Do this, and answer.
    Do(Task),
    /// Give up the task under way; it is not answered any more.
    Abort,
    /// End the connection.
    Close,
}

/// Who is at the other end.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Stage {
    Nobody,
    Named(String),
    In(User),
}

/// What is under way.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Work {
    Idle,
    /// A task, and the verb that asked for it.
    Asked(Verb, Task),
    /// Data, and whether the client sends it.
    Moving {
        receives: bool,
    },
    /// The handshake.
    Securing,
    Closed,
}

/// Where data connections will come from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum DataWay {
    #[default]
    Unset,
    Active {
        ends: Ends,
        striped: bool,
    },
    Passive {
        connections: usize,
        striped: bool,
    },
}

/// What commands have set, as it is after REIN.
#[derive(Clone, Debug, Default)]
struct Chosen {
    here: RelPath,
    ascii: bool,
    block: bool,
    restart: u64,
    rename_from: Option<RelPath>,
    facts: Facts,
    algorithm: Algorithm,
    way: DataWay,
    /// EPSV ALL: no other command may set up data connections (RFC 2428, section 4).
    epsv_only: bool,
    has_buffer_size: bool,
    protected: bool,
}

/// A control connection.
#[derive(Debug)]
pub struct Session {
    settings: Settings,
    peer: IpAddr,
    lines: Lines,
    actions: VecDeque<Action>,
    stage: Stage,
    work: Work,
    chosen: Chosen,
    secure: bool,
    failed_logins: u32,
    /// When something came in last.
    last: Instant,
    /// Since when somebody could have logged in.
    stranger_since: Instant,
}

impl Session {
    /// Greets a client at this address. `secure` says that TLS stands already (port 990).
    pub fn new(settings: Settings, peer: IpAddr, secure: bool, now: Instant) -> Self {
        let mut session = Self {
            settings,
            peer: peer.to_canonical(),
            lines: Lines::default(),
            actions: VecDeque::new(),
            stage: Stage::Nobody,
            work: Work::Idle,
            chosen: Chosen { ascii: true, ..Chosen::default() },
            secure,
            failed_logins: 0,
            last: now,
            stranger_since: now,
        };
        session.reply(220, "Longhaul FTP ready");
        session
    }

    /// How many bytes [`Session::receive`] takes now; the connection should not be read for more.
    pub fn room(&self) -> usize {
        self.lines.room()
    }

    /// Takes what was received: at most as much as there is room for.
    pub fn receive(&mut self, bytes: &[u8], now: Instant) {
        self.lines.push(bytes);
        self.last = now;
    }

    /// TLS stands, begun by [`Action::StartTls`]; where it does not, the connection is lost.
    pub fn secured(&mut self, now: Instant) {
        self.secure = true;
        self.work = Work::Idle;
        self.last = now;
        self.stranger_since = now;
    }

    /// Takes the answer to the task under way; that to one which was aborted is passed over.
    pub fn answer(&mut self, answer: Answer, now: Instant) {
        self.last = now;
        if !matches!(self.stage, Stage::In(_)) {
            // The time that a password takes here is not the client's, of which it has LOGINS_MAX.
            self.stranger_since = now;
        }
        self.answered(answer);
    }

    /// When [`Session::expire`] should be called unless something happens before; it is asked for anew
    /// once [`Session::poll`] has nothing more.
    pub fn deadline(&self) -> Instant {
        match (&self.work, &self.stage) {
            // A task takes its time; the data connection has a time-out of its own.
            (Work::Asked(..) | Work::Moving { .. }, _) => Instant::FAR_FUTURE,
            (_, Stage::In(_)) => self.last + self.settings.idle,
            // Whatever it says meanwhile: who keeps its place need not be quiet.
            _ => self.stranger_since + self.settings.login,
        }
    }

    /// Ends a session that was idle for too long.
    pub fn expire(&mut self, now: Instant) {
        if now >= self.deadline() && self.work != Work::Closed {
            let text = match self.stage {
                Stage::In(_) => "Nothing was asked for too long: goodbye",
                _ => "Nobody has logged in for too long: goodbye",
            };
            self.end(421, text);
        }
    }

    /// Ends the session because the server ends.
    pub fn shut_down(&mut self) {
        if matches!(self.work, Work::Asked(..) | Work::Moving { .. }) {
            self.actions.push_back(Action::Abort);
        }
        if self.work != Work::Closed {
            self.end(421, "The server ends: goodbye");
        }
    }

    /// What is to be done next; `None` until something comes in.
    pub fn poll(&mut self) -> Option<Action> {
        while self.actions.is_empty() && !matches!(self.work, Work::Securing | Work::Closed) {
            if !self.next_command() {
                break;
            }
        }
        self.actions.pop_front()
    }

    /// Takes one command, if one is there that may come now.
    fn next_command(&mut self) -> bool {
        let Some(line) = self.lines.next_line(self.work != Work::Idle, may_come_anytime) else {
            return false;
        };
        match line {
            Line::TooLong => self.reply(500, "That line is too long"),
            Line::Text(line) => self.command(&line),
        }
        true
    }

    fn command(&mut self, line: &[u8]) {
        let (rule, argument) = parse(line);
        let Some(rule) = rule else {
            return match is_unimplemented(line) {
                true => self.reply(502, "That is not done here; HELP lists what is"),
                false => self.reply(500, "No such command; HELP lists them"),
            };
        };
        match (rule.argument, argument.is_empty()) {
            (Argument::Required, true) => {
                return self.reply(501, format!("{} needs an argument", rule.name));
            }
            _ if self.refused(rule, argument) => return,
            _ => {}
        }
        let argument = if rule.argument == Argument::None { b"" } else { argument };
        // RNTO follows RNFR at once, and REST counts for the very next transfer.
        let renames = rule.verb == Verb::Rnto;
        if !renames && rule.when != When::Anytime {
            self.chosen.rename_from = None;
        }
        self.dispatch(rule, argument);
    }

    /// Whether this command may not come from whom it came.
    fn refused(&mut self, rule: &Rule, argument: &[u8]) -> bool {
        // STAT tells anybody how things stand, but what files there are only to users.
        let lists = rule.verb == Verb::Stat && !argument.is_empty();
        match (if lists { When::User } else { rule.when }, &self.stage) {
            (When::Anyone | When::Anytime, _) => return false,
            (When::User, Stage::In(_)) => return false,
            (When::Writer, Stage::In(user)) if user.may_write => return false,
            (When::Writer, Stage::In(_)) => self.reply(550, "You may read here, but not write"),
            (When::User | When::Writer, _) => self.reply(530, "Log in with USER and PASS first"),
        }
        true
    }

    /// Which part of the session carries a command out.
    fn dispatch(&mut self, rule: &Rule, argument: &[u8]) {
        use Verb::*;
        match rule.verb {
            User | Pass | Acct | Rein | Quit | Auth | Pbsz | Prot => {
                self.login_command(rule.verb, argument);
            }
            Feat | Opts | Clnt | Syst | Help | Noop | Allo | Type | Mode | Stru | Rest => {
                self.setting_command(rule.verb, argument);
            }
            Port | Pasv | Eprt | Epsv | Mult | Mprt | Mpsv | Retr | Stor | Stou | Appe | List
            | Nlst | Mlsd | Abor => self.data_command(rule.verb, argument),
            Pwd | Cwd | Cdup | Mkd | Rmd | Dele | Rnfr | Rnto | Size | Mdtm | Mfmt | Hash
            | Xcrc | Xmd5 | Xsha1 | Xsha256 | Xsha512 | Stat | Mlst | Site => {
                self.file_command(rule.verb, argument);
            }
        }
    }

    fn reply(&mut self, code: u16, text: impl Into<Vec<u8>>) {
        self.send(&Reply::new(code, text));
    }

    fn send(&mut self, reply: &Reply) {
        self.actions.push_back(Action::Send(reply.encode()));
    }

    fn ask(&mut self, verb: Verb, task: Task) {
        self.work = Work::Asked(verb, task.clone());
        self.actions.push_back(Action::Do(task));
    }

    fn end(&mut self, code: u16, text: &str) {
        self.reply(code, text);
        self.actions.push_back(Action::Close);
        self.work = Work::Closed;
    }

    /// The path that was typed, or a reply that says what is wrong with it.
    fn path(&mut self, typed: &[u8]) -> Option<RelPath> {
        match names::resolve(&self.chosen.here, typed) {
            Ok(path) if names::has_partial(&path) => {
                self.reply(553, "Such names are kept for what is not whole yet");
                None
            }
            Ok(path) => Some(path),
            Err(error) => {
                self.reply(553, error.to_string());
                None
            }
        }
    }
}

/// Whether a line may be looked at while another command is carried out. STAT of a path may not.
fn may_come_anytime(line: &[u8]) -> bool {
    match parse(line) {
        (Some(Rule { verb: Verb::Stat, .. }), argument) => argument.is_empty(),
        (Some(rule), _) => rule.when == When::Anytime,
        (None, _) => false,
    }
}

/// Text of an argument that is no path.
fn text(argument: &[u8]) -> String {
    String::from_utf8_lossy(argument).trim().to_owned()
}
