//! The ways to the far side, and the choice between them.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context;
use net::tcp::{self, StripedStream};
use net::udp::{UdpConnection, UdpEndpoint};
use net::{Credentials, NetError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use transfer::Sample;

use super::plan::Request;
use super::{Job, show};
use crate::address::NotFound;
use crate::args::Transport;
use crate::keys::{Introduction, Meeting};
use crate::paths::Paths;
use crate::race::race;
use crate::ssh::Session;

/// How long the host behind ssh may take to answer beside it: a firewall drops what it does not
/// know, and most do not know a port that was made a moment ago.
const BESIDE_SSH: Duration = Duration::from_secs(4);

/// Without a sign of life for so long, UDP counts as blocked.
const SILENCE: Duration = Duration::from_secs(8);

/// Before UDP is tried again while TCP carries the data; twice as long each time.
const FIRST_LOOK: Duration = Duration::from_secs(10);
const LAST_LOOK: Duration = Duration::from_secs(120);
/// For so long nobody needs to answer in the middle of a copy.
const PATIENCE: Duration = Duration::from_secs(600);
const PAUSE: Duration = Duration::from_secs(1);
/// Packets lost for nothing that are more than bad luck.
const STARVING: u64 = 8;
/// Bytes each way that show that data passes.
const PROOF: usize = 64 << 10;

/// Who is on the far side, and how both prove themselves.
pub enum Peer {
    Server(Introduction),
    Ssh(Box<Session>),
}

/// What carries the data.
pub enum Link {
    Udp(UdpConnection),
    /// Each request has a stripe of its own; the first was made already.
    Tcp {
        address: SocketAddr,
        credentials: Credentials,
        first: Option<Box<StripedStream>>,
    },
    /// The pipes of ssh itself.
    Ssh,
}

impl Link {
    /// A word for programs, which is also the one for `--transport`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Udp(_) => "udp",
            Self::Tcp { .. } => "tcp",
            Self::Ssh => "ssh",
        }
    }

    /// Where UDP may come to pass, while TCP does.
    pub fn beside(&self) -> Option<(SocketAddr, Credentials)> {
        match self {
            Self::Tcp { address, credentials, .. } => Some((*address, credentials.clone())),
            Self::Udp(_) | Self::Ssh => None,
        }
    }

    /// Words for people.
    pub fn words(&self) -> &'static str {
        match self {
            Self::Udp(_) => "UDP",
            Self::Tcp { .. } => "striped TCP",
            Self::Ssh => "ssh",
        }
    }
}

/// Connects by the way that was asked for, or by the best that there is. The endpoint is the
/// caller's to keep, for its connections' last packets.
pub async fn connect(
    job: &Job,
    peer: &Peer,
    endpoint: &mut Option<UdpEndpoint>,
    doubt: Doubt,
) -> anyhow::Result<Link> {
    match peer {
        Peer::Server(introduction) => to_server(job, introduction, endpoint, doubt).await,
        Peer::Ssh(session) => beside_ssh(job, session, endpoint, doubt).await,
    }
}

async fn to_server(
    job: &Job,
    introduction: &Introduction,
    endpoint: &mut Option<UdpEndpoint>,
    doubt: Doubt,
) -> anyhow::Result<Link> {
    let mut failure = None;
    // A name may have addresses at which nobody is.
    for address in introduction.server.resolve().await? {
        let linked = async {
            let meeting = introduction.meet(address).await?;
            let link = match dial(job, address, &meeting.credentials, endpoint, doubt).await {
                Ok(link) => link,
                Err(error) => return Err(introduction.explain(address, error).await),
            };
            met(job, introduction, &meeting)?;
            Ok(link)
        };
        match linked.await {
            Err(error) if is_absence(&error) => failure = Some(error),
            Ok(link) => {
                show::started(job, &address.to_string(), &link, link.words());
                return Ok(link);
            }
            failed => return failed,
        }
    }
    Err(failure.context("no address to connect to")?)
}

async fn beside_ssh(
    job: &Job,
    session: &Session,
    endpoint: &mut Option<UdpEndpoint>,
    doubt: Doubt,
) -> anyhow::Result<Link> {
    let credentials = Credentials::from(&session.key);
    let mut link = Link::Ssh;
    let mut why = "no port is open there".to_owned();
    let wanted = job.options.transport != Transport::Ssh;
    for address in session.addresses().await.into_iter().filter(|_| wanted) {
        let dialled = dial(job, address, &credentials, endpoint, doubt);
        match tokio::time::timeout(BESIDE_SSH, dialled).await {
            Ok(Ok(dialled)) => {
                link = dialled;
                break;
            }
            // Somebody else may have that address in this network.
            Ok(Err(error)) => why = error.to_string(),
            Err(_) => why = format!("no answer from {address}"),
        }
    }
    if matches!(link, Link::Ssh) {
        if let Some(option) = job.options.sending.udp_alone().next() {
            anyhow::bail!(
                "nothing passes beside ssh ({why}), and over ssh itself there is no {option}: open \
                 the way, or leave {option} out"
            );
        }
        let others = [Transport::Auto, Transport::Ssh];
        anyhow::ensure!(
            others.contains(&job.options.transport),
            "nothing passes beside ssh: {why}; open the way, or leave --transport out"
        );
        if wanted {
            show::tell(job, &format!("nothing passes beside ssh ({why}), so ssh carries the data"));
        }
    }
    show::started(job, &session.login.0, &link, link.words());
    Ok(link)
}

async fn dial(
    job: &Job,
    address: SocketAddr,
    credentials: &Credentials,
    endpoint: &mut Option<UdpEndpoint>,
    doubt: Doubt,
) -> Result<Link, NetError> {
    let by_udp = by_udp(job, address, credentials, endpoint);
    let by_tcp = async {
        let first = Some(Box::new(stripe(job, address, credentials).await?));
        Ok(Link::Tcp { address, credentials: credentials.clone(), first })
    };
    match job.options.transport {
        Transport::Udp => by_udp.await,
        Transport::Tcp => by_tcp.await,
        Transport::Auto if !is_free(job) => by_udp.await,
        Transport::Auto if doubt.avoids_udp => race(by_tcp, by_udp).await,
        Transport::Auto | Transport::Ssh => race(by_udp, by_tcp).await,
    }
}

async fn by_udp(
    job: &Job,
    address: SocketAddr,
    credentials: &Credentials,
    endpoint: &mut Option<UdpEndpoint>,
) -> Result<Link, NetError> {
    // Who sends learns, and remembers.
    let sends = job.requests.iter().all(Request::sends);
    let paths = Paths::unless(job.options.memory.no_remember || !sends);
    let remembered = paths.and_then(|paths| paths.recall(address.ip()));
    let sending = job.options.sending.config();
    // Who can go another way need not wait long for this one.
    let idle_timeout = if is_free(job) { SILENCE } else { sending.idle_timeout };
    let config = transport::Config { remembered, trace: job.qlog.is_on(), idle_timeout, ..sending };
    let endpoint = endpoint.insert(UdpEndpoint::client(address, credentials, config)?);
    let connection = endpoint.connect(address).await?;
    job.qlog.watch(&connection, endpoint.address());
    if let (Some(path), true) = (remembered, job.options.output.verbose) {
        tell!("remembered path: {} at RTT {:.1?}", path.rate, path.rtt);
    }
    Ok(Link::Udp(connection))
}

/// Whether the way may be chosen, and chosen anew.
fn is_free(job: &Job) -> bool {
    // Some of what may be asked for of the sender, only UDP can do.
    job.options.transport == Transport::Auto && !job.options.sending.wants_udp()
}

/// What was seen of UDP in this copy: its first packets may pass where its data does not.
#[derive(Clone, Copy)]
pub struct Doubt {
    /// It was lost last, so that TCP goes first.
    avoids_udp: bool,
    /// Before it is tried again.
    pause: Duration,
}

impl Default for Doubt {
    fn default() -> Self {
        Self { avoids_udp: false, pause: FIRST_LOOK }
    }
}

impl Doubt {
    /// A link was lost.
    pub fn lost(&mut self, link: &Link) {
        self.avoids_udp = matches!(link, Link::Udp(_));
    }

    /// Tried in vain, or for a trial that may be.
    fn put_off(&mut self) {
        self.pause = (self.pause * 2).min(LAST_LOOK);
    }
}

/// Waits until UDP passes where it did not; for ever, where nothing better can be had.
pub async fn better(
    job: &Job,
    beside: Option<(SocketAddr, Credentials)>,
    endpoint: &mut Option<UdpEndpoint>,
    doubt: &mut Doubt,
) -> Link {
    let Some((address, credentials)) = beside.filter(|_| is_free(job) && job.may_go_on()) else {
        return std::future::pending().await;
    };
    loop {
        tokio::time::sleep(doubt.pause).await;
        // The next time after a longer pause, whether this one is in vain or lost again.
        doubt.put_off();
        if let Ok(link) = by_udp(job, address, &credentials, endpoint).await
            && carries_data(&link).await
            && !job.is_parting()
        {
            show::started(job, &address.to_string(), &link, link.words());
            return link;
        }
    }
}

/// Whether data passes over UDP both ways, and not only the first packets of a connection.
async fn carries_data(link: &Link) -> bool {
    let Link::Udp(connection) = link else { return true };
    let proof = async {
        let mut stream = connection.open().await.ok()?;
        transfer::probe(&mut stream, PROOF as u64).await.ok()?;
        let (mut reading, mut writing) = tokio::io::split(stream);
        let (sent, mut came) = (vec![0; PROOF], vec![0; PROOF]);
        // Shutting down waits until all has arrived.
        let sending = async {
            writing.write_all(&sent).await?;
            writing.shutdown().await
        };
        tokio::try_join!(sending, reading.read_exact(&mut came)).ok()
    };
    matches!(tokio::time::timeout(SILENCE, proof).await, Ok(Some(_)))
}

/// Waits until it shows that UDP carries no data, though it is not silent: packets get lost, and
/// nothing arrives. For ever, where there is no other way to go.
pub async fn starved(job: &Job, connection: &UdpConnection) {
    let mut before = None;
    while is_free(job) {
        tokio::time::sleep(SILENCE).await;
        let now = Pulse::of(&job.meter.sample(), &connection.stats());
        if before.is_some_and(|before| now.is_starved_since(before)) {
            return;
        }
        before = Some(now);
    }
    std::future::pending().await
}

/// What a connection has brought the copy, and what it has cost. Its own packets count for nothing: they
/// pass where data does not.
#[derive(Clone, Copy)]
struct Pulse {
    /// Bytes that are at the destination.
    moved: u64,
    /// Pieces that came from the far side, which tells also what stands there.
    heard: u64,
    /// Packets that were lost, or asked for in vain.
    troubles: u64,
}

impl Pulse {
    fn of(sample: &Sample, stats: &transport::Stats) -> Self {
        let troubles = stats.lost.0 + stats.missing + stats.probes;
        Self { moved: sample.bytes, heard: sample.heard, troubles }
    }

    /// Whether nothing came of it but losses.
    fn is_starved_since(self, before: Self) -> bool {
        (self.moved, self.heard) == (before.moved, before.heard)
            && self.troubles >= before.troubles + STARVING
    }
}

/// Connects again after the connection was lost; silence is waited out.
pub async fn again(
    job: &Job,
    peer: &Peer,
    endpoint: &mut Option<UdpEndpoint>,
    doubt: Doubt,
) -> anyhow::Result<Link> {
    let begin = net::clock::now();
    loop {
        match connect(job, peer, endpoint, doubt).await {
            Err(error) if is_silence(&error) && net::clock::now().since(begin) < PATIENCE => {
                tokio::time::sleep(PAUSE).await;
            }
            linked => return linked,
        }
    }
}

/// Whether nothing was heard, be it of the host's name, so that waiting may help.
pub fn is_silence(error: &anyhow::Error) -> bool {
    error.downcast_ref().is_some_and(NetError::is_silence) || error.is::<NotFound>()
}

/// TCP connections that are one stream.
pub async fn stripe(
    job: &Job,
    address: SocketAddr,
    credentials: &Credentials,
) -> Result<StripedStream, NetError> {
    let paths = Paths::unless(job.options.memory.no_remember);
    let known = paths.map(|paths| paths.known(address.ip())).unwrap_or_default();
    let (policy, options) = job.options.striping.settings(known)?;
    tcp::connect(address, credentials, policy, &options).await
}

/// The server has proved to be who it should be.
fn met(job: &Job, introduction: &Introduction, meeting: &Meeting) -> anyhow::Result<()> {
    if let Some(news) = introduction.succeeded(meeting)? {
        show::tell(job, &news);
    }
    Ok(())
}

/// Whether nobody is there, so that another address may be tried.
pub fn is_absence(error: &anyhow::Error) -> bool {
    error.downcast_ref().is_some_and(NetError::is_absence)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_that_compares_is_not_starved_by_losses_alone() {
        let before = Pulse { moved: 5, heard: 7, troubles: 100 };
        let later =
            |moved, heard, troubles| Pulse { moved, heard, troubles }.is_starved_since(before);
        assert!(later(5, 7, 100 + STARVING));
        assert!(!later(5, 7, 99 + STARVING), "bad luck");
        assert!(!later(5, 8, 10_000), "it is told what stands there");
        assert!(!later(6, 7, 10_000), "it moves");
    }
}
