//! The connections between the gateways of a pair, or of two pairs that stand in for each other: which there are,
//! and which is to be used.

mod keeper;

use std::cmp::Reverse;
use std::future::pending;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use net::NetError;
use net::udp::{UdpConnection, UdpEndpoint, UdpStream};
use tokio::sync::watch;
use tokio::time::timeout;

/// How long the last packets may take to leave.
const FAREWELL: Duration = Duration::from_secs(2);
/// Connections of hosts that are carried at a time, at either end.
pub(crate) const MAX_CONNECTIONS: u64 = 1 << 16;

/// What a trunk is doing, told as it happens.
#[derive(Debug)]
pub enum TrunkEvent {
    /// It carries connections from now on.
    Up(SocketAddr),
    /// Nothing was heard for a while; new connections go by another one, or direct.
    Silent(SocketAddr),
    /// The other gateway is heard again.
    Back(SocketAddr),
    /// It is gone, with the connections on it, or could not be made; told again when there was one in
    /// between, or the reason is another.
    Down(SocketAddr, NetError),
}

impl TrunkEvent {
    /// Whether new connections do not go by this trunk from now on.
    pub fn is_dead(&self) -> bool {
        matches!(self, Self::Silent(_) | Self::Down(..))
    }
}

/// One connection to another gateway.
#[derive(Clone)]
pub(crate) struct Link {
    id: u64,
    /// Its place in the order in which peers are preferred.
    rank: usize,
    heard: bool,
    pub(crate) connection: Arc<UdpConnection>,
}

impl Link {
    /// Names it among all that this gateway ever had.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }
}

/// A stream that another gateway opened.
pub(crate) struct Opened {
    /// Over which trunk.
    pub(crate) link: u64,
    pub(crate) stream: UdpStream,
}

/// Opens streams to the other gateway.
#[derive(Clone, Default)]
pub(crate) struct Trunk(Arc<Mutex<Links>>);

#[derive(Default)]
struct Links {
    all: Vec<Link>,
    made: u64,
    /// Whom this gateway calls, the preferred one first.
    peers: Vec<SocketAddr>,
    /// What packets leave by, which is to outlast the connections.
    endpoints: Vec<Arc<UdpEndpoint>>,
    /// Told whenever nothing is heard over one of them any more.
    silent: watch::Sender<()>,
}

impl Trunk {
    /// The best of the trunks over which the other gateway was heard lately: of the first peer,
    /// and the newest.
    pub(crate) fn usable(&self) -> Option<Link> {
        self.usable_beside(None)
    }

    /// The best of them without the one that failed.
    pub(crate) fn usable_beside(&self, failed: Option<u64>) -> Option<Link> {
        let links = self.links();
        let heard = links.all.iter().filter(|link| link.heard && Some(link.id) != failed);
        heard.min_by_key(|link| (link.rank, Reverse(link.id))).cloned()
    }

    /// Changes whenever the other gateway is not heard over one of the trunks any more.
    pub(crate) fn silent(&self) -> watch::Receiver<()> {
        self.links().silent.subscribe()
    }

    /// Waits until the other gateway is not heard over this one any more.
    pub(crate) async fn fallen_silent(&self, id: u64) {
        let mut silent = self.silent();
        while self.is_heard(id) && silent.changed().await.is_ok() {}
    }

    /// Waits until that is so while there is another over which it is heard.
    pub(crate) async fn gives_way(&self, id: u64) {
        let mut silent = self.silent();
        while self.is_heard(id) || self.usable_beside(Some(id)).is_none() {
            if silent.changed().await.is_err() {
                return pending().await;
            }
        }
    }

    /// Whether the other gateway was heard lately over this one.
    pub(crate) fn is_heard(&self, id: u64) -> bool {
        self.links().all.iter().any(|link| link.id == id && link.heard)
    }

    /// The one that is usable, or else the newest.
    pub(crate) fn best(&self) -> Option<(Link, bool)> {
        let usable = self.usable().map(|link| (link, true));
        usable.or_else(|| self.links().all.last().cloned().map(|link| (link, false)))
    }

    /// A gateway's place in the order in which those that are called are preferred.
    pub(crate) fn rank(&self, peer: SocketAddr) -> Option<usize> {
        self.links().peers.iter().position(|it| *it == peer)
    }

    /// All over which other gateways were heard lately.
    pub(crate) fn heard(&self) -> Vec<SocketAddr> {
        let links = self.links();
        links.all.iter().filter(|link| link.heard).map(|link| link.connection.address()).collect()
    }

    /// Calls that came and were not let in, for their key was another.
    pub(crate) fn turned_away(&self) -> u64 {
        let all = self.links().endpoints.clone();
        let refusals = all.iter().map(|endpoint| endpoint.refusals());
        refusals.map(|it| it.wrong_key + it.not_allowed + it.pattern).sum()
    }

    fn links(&self) -> MutexGuard<'_, Links> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self, rank: usize, connection: Arc<UdpConnection>) -> u64 {
        let mut links = self.links();
        links.made += 1;
        let id = links.made;
        links.all.push(Link { id, rank, heard: true, connection });
        id
    }

    fn hear(&self, id: u64, heard: bool) {
        let mut links = self.links();
        links.all.iter_mut().filter(|link| link.id == id).for_each(|link| link.heard = heard);
        if !heard {
            links.silent.send_replace(());
        }
    }

    /// From now on this one is none: it was lost, or the caller only wants to try it.
    pub(crate) fn leave(&self, id: u64) {
        let mut links = self.links();
        links.all.retain(|link| link.id != id);
        links.silent.send_replace(());
    }

    /// Once nobody else holds the connections: waits for the word of their end to leave, but not
    /// long, and not if nobody hears it.
    pub(crate) async fn farewell(&self) {
        let Links { all, endpoints, .. } = std::mem::take(&mut *self.links());
        let heard = all.iter().any(|link| link.heard);
        drop(all);
        let idle = async {
            for endpoint in endpoints {
                endpoint.idle().await;
            }
        };
        if heard {
            let _ = timeout(FAREWELL, idle).await;
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use net::SharedKey;

    use super::*;

    /// Both ends of a trunk, and what keeps it.
    pub(crate) async fn ends(
        config: net::Config,
    ) -> (UdpConnection, UdpConnection, [UdpEndpoint; 2]) {
        let key = SharedKey::from_bytes([7; 32]);
        let far = UdpEndpoint::listen("127.0.0.1:0".parse().unwrap(), &key, config).unwrap();
        let near = UdpEndpoint::client(far.address(), &key, config).unwrap();
        let (ours, theirs) = tokio::join!(near.connect(far.address()), far.accept());
        (ours.unwrap(), theirs.unwrap(), [near, far])
    }

    impl Trunk {
        /// One that has this connection alone.
        pub(crate) fn over(connection: UdpConnection) -> Self {
            let trunk = Self::default();
            trunk.enter(0, Arc::new(connection));
            trunk
        }

        /// One that calls these gateways.
        pub(crate) fn to(peers: Vec<SocketAddr>) -> Self {
            let trunk = Self::default();
            trunk.links().peers = peers;
            trunk
        }
    }
}
