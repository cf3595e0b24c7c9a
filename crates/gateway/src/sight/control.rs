//! The local control socket: who connects reads the gateway's status as JSON. Its name is abstract
//! (`unix(7)`), so that every network namespace has its own and a gateway that dies leaves nothing.

use std::convert::Infallible;
use std::io::{self, Read};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::time::{sleep, timeout};

use super::{Book, Status};

/// How long either side waits for the other.
const PATIENCE: Duration = Duration::from_secs(5);
/// The longest status that is read.
const MAX_STATUS: u64 = 4 << 20;

/// Why there is no status.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// Nobody answers.
    #[error("no gateway of this user runs in this network namespace (`longhaul gateway run`)")]
    NotRunning,
    /// The socket.
    #[error("the gateway does not answer: {0}")]
    Silent(#[from] io::Error),
    /// What it says.
    #[error("the gateway is of another version: {0}")]
    Foreign(#[from] serde_json::Error),
}

/// Each user has one, in each network namespace.
fn name(user: u32) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("longhaul-gateway-{user}"))
}

fn own_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// The socket of a gateway that runs.
pub(crate) struct Control(tokio::net::UnixListener);

impl Control {
    /// # Errors
    /// `AddrInUse` when this user runs another gateway here.
    pub(crate) fn bind() -> io::Result<Self> {
        let listener = UnixListener::bind_addr(&name(own_user())?)?;
        listener.set_nonblocking(true)?;
        tokio::net::UnixListener::from_std(listener).map(Self)
    }
}

/// Answers this user and root, without end.
pub(crate) async fn serve(control: Control, book: Book) -> io::Result<Infallible> {
    loop {
        // Whether status can be asked for is no matter of the connections that are carried.
        let Ok((mut stream, _)) = control.0.accept().await else {
            sleep(crate::BREATH).await;
            continue;
        };
        let friend = stream.peer_cred().is_ok_and(|peer| [0, own_user()].contains(&peer.uid()));
        if friend {
            let text = serde_json::to_vec(&book.status()).map_err(io::Error::other)?;
            // One that does not read is its own matter.
            let _ = timeout(PATIENCE, stream.write_all(&text)).await;
        }
    }
}

/// The status of the gateway that this user, or root, runs in this network namespace.
///
/// # Errors
/// [`AskError`].
pub fn ask() -> Result<Status, AskError> {
    let own = UnixStream::connect_addr(&name(own_user())?);
    let mut stream = own.map_err(|error| match error.kind() {
        io::ErrorKind::ConnectionRefused => AskError::NotRunning,
        _ => AskError::Silent(error),
    })?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut text = Vec::new();
    (&mut stream).take(MAX_STATUS).read_to_end(&mut text)?;
    Ok(serde_json::from_slice(&text)?)
}
