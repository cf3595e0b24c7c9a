//! Data connections of a client, and what goes over them.

use std::fs::File;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use net::tcp::Policy;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use transfer::RelPath;

use super::control::TLS_PATIENCE;
use super::store::{From, Store, failure, write_list};
use super::{Event, Shared, What};
use crate::address::{Ends, with_port};
use crate::data::{Channel, DataError, Moved, receive, send, tune};
use crate::landing::{Landing, Wanted};
use crate::names::show;
use crate::session::{Answer, Data, Failure, Form, Framing, Open, Way};

/// How long a data connection may take to come about.
const CONNECT_PATIENCE: Duration = Duration::from_secs(30);

/// After the end of a file that nothing marks but the end of its connection, the end of the control
/// connection is waited for so long: then the client died, and the file is not whole.
const SECOND_THOUGHT: Duration = Duration::from_millis(20);

/// Lines that STAT sends over the control connection.
const STATUS_LINES_MAX: usize = 1000;

/// Where data connections are awaited.
pub struct Ports {
    listener: TcpListener,
    address: SocketAddr,
}

impl Ports {
    /// Listens at a port of the range, or at any.
    pub fn listen(local: SocketAddr, range: Option<RangeInclusive<u16>>) -> Result<Self, Failure> {
        let listen = |port| {
            let address = with_port(local, port);
            let socket = if local.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
            socket.set_reuseaddr(true)?;
            socket.bind(address)?;
            let listener = socket.listen(64)?;
            Ok(Self { address: listener.local_addr()?, listener })
        };
        let Some(range) = range else {
            return listen(0).map_err(|_: io::Error| Failure::NoPort);
        };
        // Beginning anywhere, so that who watches cannot tell the next port.
        let ports = u32::from(range.end() - range.start()) + 1;
        let begin = getrandom::u32().map_err(|_| Failure::NoPort)? % ports;
        let ports = (0..ports).map(|at| range.start() + ((begin + at) % ports) as u16);
        ports.map(listen).find_map(Result::ok).ok_or(Failure::NoPort)
    }

    /// The same port for each of so many connections.
    pub fn ends(&self, connections: usize) -> Ends {
        Ends { address: self.address.ip(), ports: vec![self.address.port(); connections] }
    }

    /// Waits for connections from the client alone.
    async fn accept(self, peer: IpAddr, connections: usize) -> io::Result<Vec<TcpStream>> {
        let mut streams = Vec::new();
        while streams.len() < connections {
            let (stream, from) = self.listener.accept().await?;
            if from.ip().to_canonical() == peer {
                streams.push(stream);
            }
        }
        Ok(streams)
    }
}

/// What was opened to be moved.
pub enum Prepared {
    /// A file that goes.
    Reading { file: File, path: String },
    /// One that comes.
    Landing { landing: Box<Landing>, path: String },
    /// A listing.
    Text(Vec<u8>),
}

impl Prepared {
    /// Opens it. Blocks. Also gives its size where that is known, and the name that STOU chose.
    pub fn open(
        store: &Store,
        may_write: bool,
        open: &Open,
        wanted: Wanted<'_>,
    ) -> Result<(Self, Option<u64>, Option<RelPath>), Failure> {
        if open.receives() && !may_write {
            return Err(Failure::Denied);
        }
        let landing = |landing, path: &RelPath| Self::Landing {
            landing: Box::new(landing),
            path: show(path),
        };
        match open {
            Open::Read(path, offset) => {
                let (file, left) = store.read(path, *offset)?;
                Ok((Self::Reading { file, path: show(path) }, Some(left), None))
            }
            Open::Write(path, offset) => {
                let place = store.land(path, From::Byte(*offset), wanted)?;
                Ok((landing(place, path), None, None))
            }
            Open::Append(path) => {
                let place = store.land(path, From::End, wanted)?;
                Ok((landing(place, path), None, None))
            }
            Open::Unique(path) => {
                let (place, path) = store.land_unique(path)?;
                Ok((landing(place, &path), None, Some(path)))
            }
            Open::List { path, form, typed } => {
                let (entries, is_directory) = match form {
                    Form::Facts(_) => (store.list_directory(path)?, true),
                    Form::Long | Form::Names => store.list(path)?,
                };
                let above = above(typed, is_directory);
                let text = write_list(&entries, *form, &above, may_write, now());
                Ok((Self::Text(text), None, None))
            }
        }
    }
}

/// What stands before each name where this was listed: a directory, or what matches behind its last
/// slash.
fn above(typed: &[u8], is_directory: bool) -> Vec<u8> {
    let slash = typed.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
    match is_directory && slash < typed.len() {
        true => [typed, b"/"].concat(),
        false => typed[..slash].to_vec(),
    }
}

/// Lists a path for the control connection. Blocks.
pub fn status(store: &Store, path: &RelPath) -> Answer {
    match store.list(path) {
        Ok((mut entries, _)) => {
            entries.truncate(STATUS_LINES_MAX);
            let text = write_list(&entries, Form::Long, b"", false, now());
            let lines = text
                .split(|&byte| byte == b'\n')
                .map(|line| line.strip_suffix(b"\r").unwrap_or(line));
            Answer::Lines(lines.filter(|line| !line.is_empty()).map(<[u8]>::to_vec).collect())
        }
        Err(failure) => Answer::Failed(failure),
    }
}

fn now() -> i64 {
    net::clock::wall().as_secs().try_into().unwrap_or(i64::MAX)
}

/// Moves what was prepared, until it has arrived or is told to stop; tells the observer.
pub async fn run(
    shared: Arc<Shared>,
    ends: (SocketAddr, SocketAddr),
    event: Event,
    prepared: Option<Prepared>,
    ports: Option<Ports>,
    data: Data,
    stopped: oneshot::Receiver<()>,
) -> Answer {
    let Some(prepared) = prepared else { return Answer::Failed(Failure::NoConnection) };
    let start = net::clock::now();
    let moved = Moved::default();
    let connections = match &data.way {
        Way::Active(ends) => ends.len(),
        Way::Passive(connections) => *connections,
    };
    let told = match &prepared {
        Prepared::Reading { path, .. } => Some((false, path.clone())),
        Prepared::Landing { path, .. } => Some((true, path.clone())),
        Prepared::Text(_) => None,
    };
    let channels = connect(&shared, ends, ports, &data);
    let how = (&data, shared.config.policy, shared.config.lax_tls_end);
    let result = carry(prepared, channels, how, &moved, stopped).await;
    if let Some((received, path)) = told {
        let (bytes, took) = (moved.bytes(), net::clock::now().since(start));
        let (used, failure) = (moved.connections(), result.err());
        let what = What::Transfer { received, path, bytes, took, connections, used, failure };
        (shared.config.observer)(&Event { what, ..event });
    }
    match result {
        Ok(()) => Answer::Moved(moved.bytes()),
        Err(failure) => Answer::Failed(failure),
    }
}

async fn carry(
    prepared: Prepared,
    channels: impl Future<Output = Result<Vec<Channel>, Failure>>,
    (data, policy, lax): (&Data, Policy, bool),
    moved: &Moved,
    stopped: oneshot::Receiver<()>,
) -> Result<(), Failure> {
    let mut stopped = std::pin::pin!(async {
        let _ = stopped.await;
        Err(Failure::Cut)
    });
    match prepared {
        Prepared::Reading { file, .. } => {
            let sending = async {
                let source = tokio::fs::File::from_std(file);
                let mut channels = channels.await?;
                send(source, &mut channels, data.encoding, policy, moved).await.map_err(why)
            };
            tokio::select! { done = sending => done, stopped = &mut stopped => stopped }
        }
        Prepared::Text(text) => {
            let sending = async {
                let mut channels = channels.await?;
                send(&text[..], &mut channels, data.encoding, policy, moved).await.map_err(why)
            };
            tokio::select! { done = sending => done, stopped = &mut stopped => stopped }
        }
        Prepared::Landing { mut landing, .. } => {
            let receiving = async {
                let channels = channels.await?;
                receive(channels, &mut *landing, data.encoding, moved).await.map_err(why)
            };
            let received =
                tokio::select! { done = receiving => done, stopped = &mut stopped => stopped };
            let unmarked = match received {
                Ok(()) => !data.protected && data.encoding.framing == Framing::Stream,
                Err(failure) => failure == Failure::Unclosed && lax,
            };
            let received = match received {
                // A client that was killed ends both connections, in any order.
                _ if unmarked => tokio::select! {
                    cut = &mut stopped => cut,
                    () = tokio::time::sleep(SECOND_THOUGHT) => Ok(()),
                },
                received => received,
            };
            match received {
                Ok(()) => landing.install(None).await.map_err(|error| failure(&error)),
                // What breaks the rules is not worth keeping.
                Err(Failure::BadData) => {
                    landing.discard().await;
                    received
                }
                Err(_) => {
                    landing.keep(None).await;
                    received
                }
            }
        }
    }
}

fn why(error: DataError) -> Failure {
    match error {
        DataError::File(error) => failure(&error),
        DataError::Connection(_) | DataError::Cut => Failure::Cut,
        DataError::Unclosed => Failure::Unclosed,
        DataError::Malformed => Failure::BadData,
        DataError::Stalled => Failure::Stalled,
    }
}

/// Makes the data connections, and TLS on them, between the same hosts as the control connection.
async fn connect(
    shared: &Shared,
    (local, peer): (SocketAddr, SocketAddr),
    ports: Option<Ports>,
    data: &Data,
) -> Result<Vec<Channel>, Failure> {
    let making = async {
        match (&data.way, ports) {
            (Way::Active(ends), _) => dial(local, peer, ends).await,
            (Way::Passive(connections), Some(ports)) => ports.accept(peer.ip(), *connections).await,
            (Way::Passive(_), None) => Err(io::ErrorKind::NotConnected.into()),
        }
    };
    let made = tokio::time::timeout(CONNECT_PATIENCE, making).await;
    let streams = made.map_err(|_| Failure::NoConnection)?.map_err(|_| Failure::NoConnection)?;
    let congestion_control = shared.config.congestion_control.as_deref();
    streams.iter().for_each(|stream| tune(stream, congestion_control));
    if !data.protected {
        return Ok(streams.into_iter().map(|stream| Box::new(stream) as Channel).collect());
    }
    let acceptor = shared.data_acceptor.clone().ok_or(Failure::NoTls)?;
    let mut handshakes = JoinSet::new();
    for stream in streams {
        let acceptor = acceptor.clone();
        handshakes.spawn(async move {
            tokio::time::timeout(TLS_PATIENCE, acceptor.accept(stream)).await.ok()?.ok()
        });
    }
    let mut channels: Vec<Channel> = Vec::new();
    while let Some(secured) = handshakes.join_next().await {
        channels.push(Box::new(secured.ok().flatten().ok_or(Failure::NoTls)?));
    }
    Ok(channels)
}

/// Connects to the client's ports, all at once.
async fn dial(
    local: SocketAddr,
    peer: SocketAddr,
    ends: &[SocketAddr],
) -> io::Result<Vec<TcpStream>> {
    let mut dials = JoinSet::new();
    for end in ends {
        // Its own address, as the session has seen to.
        let end = with_port(peer, end.port());
        dials.spawn(async move {
            let socket = if end.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
            socket.bind(with_port(local, 0))?;
            socket.connect(end).await
        });
    }
    let mut streams = Vec::new();
    while let Some(stream) = dials.join_next().await {
        streams.push(stream.map_err(io::Error::other)??);
    }
    Ok(streams)
}
