//! The local control socket: who connects reads the gateway's status as JSON. Its name is abstract
//! (`unix(7)`), so that every network namespace has its own and a gateway that dies leaves nothing.
//! Any user may take such a name, so who asks looks who answers, and a gateway runs without it.

use std::convert::Infallible;
use std::future::pending;
use std::io::{self, Read};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use net::clock;
use socket2::{Domain, SockAddr, Socket, Type};
use tokio::io::AsyncWriteExt;
use tokio::time::{sleep, timeout};
use units::Instant;

use super::{Book, Names, Status};

/// How long either side waits for the other.
const PATIENCE: Duration = Duration::from_secs(5);
/// The longest status that is read.
const MAX_STATUS: u64 = 4 << 20;
/// Askers that wait for their turn.
const WAITING: i32 = 64;
const ROOT: u32 = 0;

/// Why there is no status.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// Nobody answers.
    #[error(
        "no gateway of this user or of root runs in this network namespace (`longhaul gateway run`)"
    )]
    NotRunning,
    /// One runs, and does not tell this user.
    #[error("root's gateway runs in this network namespace and tells only root: ask as root")]
    RootOnly,
    /// The one who answers may say what he likes.
    #[error(
        "user {0} has taken the name by which the gateway is asked (`ss -xlp`): end that program"
    )]
    Stranger(u32),
    /// The socket.
    #[error("the gateway does not answer: {0}")]
    Silent(#[from] io::Error),
    /// What it says.
    #[error("the gateway is of another version, start it again with this release: {0}")]
    Foreign(#[from] serde_json::Error),
}

/// Each user has one, in each network namespace.
fn name(user: u32) -> io::Result<SockAddr> {
    SockAddr::unix(format!("\0longhaul-gateway-{user}"))
}

fn own_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Whom this user tells and believes.
fn is_friend(user: u32) -> bool {
    [ROOT, own_user()].contains(&user)
}

fn socket() -> io::Result<Socket> {
    Socket::new(Domain::UNIX, Type::STREAM, None)
}

/// The socket of a gateway that runs.
pub(crate) struct Control(tokio::net::UnixListener);

impl Control {
    /// # Errors
    /// `AddrInUse` when this user runs another gateway here ([`is_running`]), or when somebody else
    /// has taken the name.
    pub(crate) fn bind() -> io::Result<Self> {
        let socket = socket()?;
        socket.bind(&name(own_user())?)?;
        socket.listen(WAITING)?;
        socket.set_nonblocking(true)?;
        tokio::net::UnixListener::from_std(UnixListener::from(socket)).map(Self)
    }
}

/// Answers this user and root, without end.
pub(crate) async fn serve(control: Option<Control>, book: Book, names: Names) -> Infallible {
    let Some(control) = control else { return pending().await };
    loop {
        // Whether status can be asked for is no matter of the connections that are carried.
        let Ok((mut stream, _)) = control.0.accept().await else {
            sleep(crate::BREATH).await;
            continue;
        };
        let friend = stream.peer_cred().is_ok_and(|peer| is_friend(peer.uid()));
        if !friend {
            continue;
        }
        let mut status = book.status().await;
        names.fill(&mut status).await;
        if let Ok(text) = serde_json::to_vec(&status) {
            // One that does not read is its own matter.
            let _ = timeout(PATIENCE, stream.write_all(&text)).await;
        }
    }
}

/// Whether this user runs a gateway in this network namespace that can be asked.
pub(crate) fn is_running() -> bool {
    connect(own_user()).is_ok()
}

/// The status of the gateway that this user, or else root, runs in this network namespace.
///
/// # Errors
/// [`AskError`].
pub fn ask() -> Result<Status, AskError> {
    match ask_of(own_user()) {
        Err(AskError::NotRunning) if own_user() != ROOT => ask_of(ROOT),
        answer => answer,
    }
}

fn ask_of(user: u32) -> Result<Status, AskError> {
    let until = clock::now() + PATIENCE;
    let mut text = Vec::new();
    Hurried { stream: connect(user)?, until }.take(MAX_STATUS).read_to_end(&mut text)?;
    match text.is_empty() {
        true => Err(AskError::RootOnly),
        false => Ok(serde_json::from_slice(&text)?),
    }
}

/// To the gateway of this user, if nobody pretends to be it.
fn connect(user: u32) -> Result<UnixStream, AskError> {
    let socket = socket()?;
    // Bounds the wait for a place among those who wait, too.
    socket.set_write_timeout(Some(PATIENCE))?;
    socket.connect(&name(user)?).map_err(|error| match error.kind() {
        io::ErrorKind::ConnectionRefused => AskError::NotRunning,
        io::ErrorKind::PermissionDenied => AskError::RootOnly,
        _ => AskError::Silent(error),
    })?;
    let peer = rustix::net::sockopt::socket_peercred(&socket).map_err(io::Error::from)?;
    match peer.uid.as_raw() {
        stranger if !is_friend(stranger) => Err(AskError::Stranger(stranger)),
        _ => Ok(socket.into()),
    }
}

/// All of it is to be read by then.
struct Hurried {
    stream: UnixStream,
    until: Instant,
}

impl Read for Hurried {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.until.since(clock::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))?;
        self.stream.read(buffer)
    }
}
