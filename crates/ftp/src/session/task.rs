//! What a session asks of the program around it, and what it is told.

use std::net::SocketAddr;

use transfer::RelPath;

use crate::entry::{Entry, Facts};
use crate::hash::Algorithm;

/// Something to be done; it is answered by one [`Answer`], or given up on [`super::Action::Abort`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Task {
    /// Check a password. Answered by [`Answer::User`].
    LogIn {
        /// The name, as it was sent.
        name: String,
        /// What was sent with it.
        password: Vec<u8>,
    },
    /// Listen for data connections. Answered by [`Answer::Listening`].
    Listen {
        /// How many there will be.
        connections: usize,
    },
    /// Tell about a path. Answered by [`Answer::Entry`].
    Inspect(RelPath),
    /// Make a directory.
    MakeDirectory(RelPath),
    /// Remove an empty one.
    RemoveDirectory(RelPath),
    /// Remove a file or a link.
    Remove(RelPath),
    /// Give something another name.
    Rename(RelPath, RelPath),
    /// Set the time of the last change, in seconds since 1970.
    SetModified(RelPath, i64),
    /// Set the permissions.
    SetMode(RelPath, u32),
    /// Compute a checksum of a file from one byte to before another (or its end). Answered by
    /// [`Answer::Hash`].
    Hash(RelPath, Algorithm, u64, Option<u64>),
    /// Open what [`Task::Move`] then moves. Answered by [`Answer::Opened`].
    Open(Open),
    /// Move what was opened. Answered by [`Answer::Moved`].
    Move(Data),
    /// List a path for the control connection. Answered by [`Answer::Lines`].
    Status(RelPath),
}

/// What a data connection is wanted for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Open {
    /// RETR, from this byte on.
    Read(RelPath, u64),
    /// STOR, from this byte on; what is before is kept.
    Write(RelPath, u64),
    /// STOU: a name like this one that nothing has.
    Unique(RelPath),
    /// APPE.
    Append(RelPath),
    /// A listing of a directory, or of the names that match.
    List {
        /// The directory or the pattern.
        path: RelPath,
        /// How it is written.
        form: Form,
        /// As the client wrote it.
        typed: Vec<u8>,
    },
}

/// How a listing is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Lines of `ls -l`.
    Long,
    /// Names alone, as the client can send them back.
    Names,
    /// MLSD.
    Facts(Facts),
}

impl Open {
    /// Whether the data comes from the client.
    pub const fn receives(&self) -> bool {
        matches!(self, Self::Write(..) | Self::Unique(_) | Self::Append(_))
    }
}

/// How the data of one transfer travels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Data {
    /// Who connects to whom.
    pub way: Way,
    /// Under TLS (PROT P).
    pub protected: bool,
    /// How bytes become what is sent.
    pub encoding: Encoding,
}

/// Who connects to whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    /// The server to the client's ports.
    Active(Vec<SocketAddr>),
    /// The client, so many times, to where the last [`Task::Listen`] listens.
    Passive(usize),
}

/// How bytes become what is sent: TYPE, MODE, and MPRT or MPSV.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Encoding {
    /// Lines end with CR LF on the way (TYPE A).
    pub ascii: bool,
    /// What marks the end.
    pub framing: Framing,
}

/// What marks the end of the data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Framing {
    /// That of the connection (MODE S).
    #[default]
    Stream,
    /// A header of its own (MODE B).
    Block,
    /// Each connection's closing record (paper 3, section 2.3).
    Striped,
}

/// What came of a [`Task`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It was done.
    Done,
    /// The password is right.
    User(User),
    /// Connections are waited for at these ports of this address.
    Listening(crate::address::Ends),
    /// What stands at the path.
    Entry(Entry),
    /// The checksum, and the byte before which it ends.
    Hash(String, u64),
    /// It can be moved: its size where that is known, and the name that STOU chose.
    Opened(Option<u64>, Option<RelPath>),
    /// All of it arrived, so many bytes.
    Moved(u64),
    /// Lines of text, in which names are bytes.
    Lines(Vec<Vec<u8>>),
    /// It was not done.
    Failed(Failure),
}

/// Somebody who has logged in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The name.
    pub name: String,
    /// Whether anything may be changed.
    pub may_write: bool,
}

/// Why a task failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// Name or password are wrong.
    #[error("Wrong name or password")]
    BadLogin,
    /// This user or address has too many sessions.
    #[error("Too many sessions: close one, then try again")]
    TooMany,
    /// Others from this address log in, one at a time.
    #[error("Too many log in from your address: try again later")]
    Crowded,
    /// No such name.
    #[error("No such file or directory")]
    NotFound,
    /// The system, or the root, does not allow it.
    #[error("Not allowed")]
    Denied,
    /// The name is taken.
    #[error("That name is taken")]
    Exists,
    /// A directory holds something.
    #[error("The directory is not empty")]
    NotEmpty,
    /// A file was wanted.
    #[error("That is no plain file")]
    NotFile,
    /// A directory was wanted.
    #[error("That is no directory")]
    NotDirectory,
    /// No such name can be.
    #[error("No such name is possible here")]
    BadName,
    /// The disk is full.
    #[error("No space is left there")]
    NoSpace,
    /// There are not so many bytes.
    #[error("The restart point lies beyond the end")]
    BadRestart,
    /// Another transfer goes on there, or has changed what this one was to go on from.
    #[error("Another transfer is or was under way there: try again when it has ended")]
    Busy,
    /// It lists directories alone.
    #[error("That is no directory: MLST tells of a file")]
    NotListable,
    /// A disk failed, or the like.
    #[error("The server's disk failed")]
    Disk,
    /// No port is free to listen at.
    #[error("No port is free for data connections")]
    NoPort,
    /// No data connection came about.
    #[error("The data connection cannot be made")]
    NoConnection,
    /// TLS failed on the data connection.
    #[error("TLS failed on the data connection")]
    NoTls,
    /// The data connection broke.
    #[error("The data connection broke before the end")]
    Cut,
    /// TLS ended without `close_notify` where nothing else marks the end.
    #[error(
        "TLS ended without close_notify, so the file may be cut: update the client, or ask the \
         operator for --ftp-lax-tls-end"
    )]
    Unclosed,
    /// Nothing moved for too long.
    #[error("The data connection stood still for too long")]
    Stalled,
    /// What came is not what MODE B or striped records are.
    #[error("The data cannot be understood: check MODE and the records")]
    BadData,
}

impl Failure {
    /// The reply code: 4yz when the same may work later, 5yz when not.
    pub const fn code(self) -> u16 {
        match self {
            Self::BadLogin => 530,
            Self::TooMany | Self::Crowded => 421,
            Self::NotFound | Self::Denied | Self::Exists | Self::NotEmpty => 550,
            Self::NotFile | Self::NotDirectory => 550,
            Self::BadName => 553,
            Self::NoSpace => 452,
            Self::BadRestart => 554,
            Self::Busy => 450,
            Self::NotListable => 501,
            Self::Disk => 451,
            Self::NoPort | Self::NoConnection => 425,
            Self::NoTls => 522,
            Self::Cut | Self::Unclosed | Self::Stalled | Self::BadData => 426,
        }
    }
}
