//! The server's way to striped streams: accepts connections, and gathers those of one group.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Weak;
use std::time::Duration;

use socket2::SockRef;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::{AbortHandle, JoinError, JoinSet};
use tokio::time::{Interval, MissedTickBehavior, interval, sleep};
use transport::crypto::{Credentials, PublicKey};

use super::hello::{Connection, Hello, respond};
use super::lane;
use super::options::Options;
use super::shared::Shared;
use super::stream::StripedStream;
use crate::error::NetError;

/// Connections in their handshake, at most. For a further one the oldest is dropped of the site that
/// has most, so that connections which say nothing keep nobody else out.
pub const MAX_HALF_OPEN: usize = 256;
/// Streams that connections may join, and those that ended not long ago. Connections of further ones
/// are dropped.
pub const MAX_GROUPS: usize = 4096;
/// Streams that wait until there is room for them. While so many do no connection is taken.
const MAX_WAITING: usize = 64;
/// For so long it is known that a stream has ended: a connection that its client began meanwhile
/// must not begin another.
const ENDED_TIME: Duration = Duration::from_secs(30);

const SWEEP_INTERVAL: Duration = Duration::from_secs(1);
const BACKLOG: u32 = 1024;
/// Before accepting again when the system was short of something.
const PAUSE: Duration = Duration::from_millis(100);

type Handshake = Option<(Hello, Connection, SocketAddr)>;

/// Accepts striped streams from clients whom its credentials let in.
pub struct Listener {
    socket: TcpListener,
    address: SocketAddr,
    credentials: Credentials,
    options: Options,
    handshakes: JoinSet<Handshake>,
    /// Theirs with their sites, the oldest first, and of some that have ended.
    oldest: VecDeque<(IpAddr, AbortHandle)>,
    /// By their clients too: nobody joins a stream that somebody else began.
    groups: HashMap<Name, Group>,
    /// Streams for which nobody had room yet.
    waiting: VecDeque<(StripedStream, SocketAddr)>,
    sweep: Interval,
}

/// A client, and the secret of one of its streams.
type Name = (Option<PublicKey>, [u8; 16]);

/// A stream that connections may join.
struct Group {
    shared: Weak<Shared>,
    /// How long it is gone.
    ended: Duration,
}

impl Listener {
    /// Listens at `address`; port 0 lets the system choose, `[::]` takes IPv4 as well. To be
    /// called within a runtime.
    ///
    /// # Errors
    /// [`NetError::Bind`] when the address cannot be listened on, [`NetError::Option`] when an
    /// option is not to be had.
    pub fn bind(
        address: SocketAddr,
        credentials: impl Into<Credentials>,
        options: Options,
    ) -> Result<Self, NetError> {
        let socket = bind(address).map_err(|source| NetError::Bind { address, source })?;
        options.apply(SockRef::from(&socket))?;
        let listen = || -> io::Result<_> {
            let socket = socket.listen(BACKLOG)?;
            let address = socket.local_addr()?;
            Ok((socket, address))
        };
        let (socket, address) = listen().map_err(|source| NetError::Bind { address, source })?;
        let mut sweep = interval(SWEEP_INTERVAL);
        sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Ok(Self {
            socket,
            address,
            credentials: credentials.into(),
            options,
            handshakes: JoinSet::new(),
            oldest: VecDeque::new(),
            groups: HashMap::new(),
            waiting: VecDeque::new(),
            sweep,
        })
    }

    /// The address that the socket is bound to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The next stream, and its client's address. Peers that fail are dropped in silence, or told
    /// why. May be dropped and called again without losing a connection; between calls no new ones
    /// are taken, neither streams nor connections of those there are.
    ///
    /// # Errors
    /// [`NetError::Bind`] when the listening socket fails for good.
    pub async fn accept(&mut self) -> Result<(StripedStream, SocketAddr), NetError> {
        self.accept_if(true).await
    }

    /// The same for who `takes` a stream, or has no room for another: then those that come wait, and connections
    /// of those that were taken join them all the same.
    ///
    /// # Errors
    /// As [`Self::accept`].
    pub async fn accept_if(
        &mut self,
        takes: bool,
    ) -> Result<(StripedStream, SocketAddr), NetError> {
        loop {
            if takes && let Some(stream) = self.waiting.pop_front() {
                return Ok(stream);
            }
            // Those dropped stay until they are seen to have ended.
            let has_room =
                self.handshakes.len() < 2 * MAX_HALF_OPEN && self.waiting.len() < MAX_WAITING;
            tokio::select! {
                accepted = self.socket.accept(), if has_room => match accepted {
                    Ok((socket, address)) => self.begin(socket, address),
                    Err(error) if is_passing(&error) => sleep(PAUSE).await,
                    Err(source) => {
                        let address = self.address;
                        return Err(NetError::Bind { address, source });
                    }
                },
                Some(done) = self.handshakes.join_next() => {
                    let stream = self.join(done);
                    self.waiting.extend(stream);
                }
                _ = self.sweep.tick() => {
                    self.age_groups();
                    // Their clients wait no longer.
                    self.waiting.retain(|(stream, _)| !stream.has_failed());
                }
            }
        }
    }

    fn begin(&mut self, socket: TcpStream, address: SocketAddr) {
        let address = SocketAddr::new(address.ip().to_canonical(), address.port());
        let (credentials, options) = (self.credentials.clone(), self.options.clone());
        if self.oldest.len() == MAX_HALF_OPEN {
            self.oldest.retain(|(_, handshake)| !handshake.is_finished());
        }
        if self.oldest.len() == MAX_HALF_OPEN
            && let Some((_, handshake)) = self.oldest.remove(of_the_greatest(&self.oldest))
        {
            handshake.abort();
        }
        let handshake = self.handshakes.spawn(async move {
            options.apply(SockRef::from(&socket)).ok()?;
            let (hello, connection) = respond(socket, &credentials).await?;
            Some((hello, connection, address))
        });
        self.oldest.push_back((site(address.ip()), handshake));
    }

    /// Adds a connection to its stream, which is given if that is new.
    fn join(&mut self, done: Result<Handshake, JoinError>) -> Option<(StripedStream, SocketAddr)> {
        let done = match done {
            Err(error) if error.is_cancelled() => None,
            done => done.expect("a handshake does not panic"),
        };
        let (hello, connection, address) = done?;
        let name = (connection.keys.peer, hello.group);
        if let Some(group) = self.groups.get(&name) {
            match group.shared.upgrade() {
                Some(shared) => lane::run(&shared, connection),
                None => drop(tokio::spawn(lane::refuse(connection))),
            }
            return None;
        }
        if hello.joins || self.groups.len() == MAX_GROUPS {
            tokio::spawn(lane::refuse(connection));
            return None;
        }
        let (buffer, policy) = (self.options.buffer, hello.policy);
        let stream = StripedStream::new(connection, address, buffer, policy, None, None);
        let group = Group { shared: stream.downgrade(), ended: Duration::ZERO };
        self.groups.insert(name, group);
        Some((stream, address))
    }

    fn age_groups(&mut self) {
        self.groups.retain(|_, group| {
            if group.shared.strong_count() == 0 {
                group.ended += SWEEP_INTERVAL;
            }
            group.ended < ENDED_TIME
        });
    }
}

/// Whose connections count as one's: an IPv4 address, or an IPv6 /56, as providers give them out.
fn site(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(_) => ip,
        IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() >> 72 << 72).into(),
    }
}

/// The place of the first entry whose key occurs most often.
fn of_the_greatest<T>(entries: &VecDeque<(IpAddr, T)>) -> usize {
    let mut counts = HashMap::new();
    entries.iter().for_each(|(site, _)| *counts.entry(site).or_insert(0) += 1);
    let most = counts.values().max().copied().unwrap_or(0);
    entries.iter().position(|(site, _)| counts[site] == most).unwrap_or(0)
}

fn bind(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    if address.is_ipv6() && address.ip().is_unspecified() {
        SockRef::from(&socket).set_only_v6(false)?;
    }
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

/// Whether the next accept may succeed: the peer went away, or the system is short of memory or
/// descriptors for a moment.
fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(
            libc::ECONNABORTED
                | libc::EPROTO
                | libc::EPERM
                | libc::EINTR
                | libc::EMFILE
                | libc::ENFILE
                | libc::ENOBUFS
                | libc::ENOMEM
        )
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_made_by_who_has_most_of_it() {
        let sites = ["192.0.2.1", "2001:db8::1", "192.0.2.1", "2001:db8:0:1::9", "2001:db8:0:99::"];
        let sites = sites.map(|text| site(text.parse().unwrap()));
        let mut entries: VecDeque<_> = sites.map(|site| (site, ())).into();
        assert_eq!(sites[4], "2001:db8::".parse::<IpAddr>().unwrap());
        assert_eq!(of_the_greatest(&entries), 1);
        entries.extend([(sites[0], ()), (sites[0], ())]);
        assert_eq!(of_the_greatest(&entries), 0);
        entries.extend([("2001:db8:0:100::".parse().unwrap(), ()); 5]);
        assert_eq!(of_the_greatest(&entries), 7);
    }
}
