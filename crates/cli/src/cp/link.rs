//! The ways to the far side, and the choice between them.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context;
use net::tcp::{self, StripedStream};
use net::udp::{UdpConnection, UdpEndpoint};
use net::{Credentials, NetError};

use super::change::{Beside, Doubt, PATIENCE};
use super::plan::Request;
use super::{Job, show};
use crate::args::Transport;
use crate::keys::{Introduction, Meeting};
use crate::paths::Paths;
use crate::race::race;
use crate::ssh::Session;

/// How long the host behind ssh may take to answer beside it: a firewall drops what it does not
/// know, and most do not know a port that was made a moment ago.
const BESIDE_SSH: Duration = Duration::from_secs(4);

/// Without a sign of life for so long, UDP counts as blocked where there is another way to go.
pub const SILENCE: Duration = Duration::from_secs(8);

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

    /// What may come to be better.
    pub fn beside<'a>(&self, peer: &'a Peer) -> Beside<'a> {
        match (self, peer) {
            (Self::Tcp { address, credentials, .. }, _) => {
                Beside::Tcp(*address, credentials.clone())
            }
            (Self::Ssh, Peer::Ssh(session)) => Beside::Ssh(session),
            _ => Beside::Nothing,
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
    let link = if job.options.transport == Transport::Ssh {
        Link::Ssh
    } else {
        match open_way(job, session, endpoint, doubt).await {
            Ok((_, link)) => link,
            Err(closed) if !doubt.of_ssh && may_ride_ssh(job) => {
                let why = closed.why;
                show::tell(
                    job,
                    &format!("nothing passes beside ssh ({why}), so ssh carries the data"),
                );
                Link::Ssh
            }
            Err(closed) => return Err(closed.into()),
        }
    };
    show::started(job, &session.login.0, &link, link.words());
    Ok(link)
}

/// Whether ssh itself can do what is asked for.
pub fn may_ride_ssh(job: &Job) -> bool {
    job.options.transport == Transport::Ssh || is_free(job)
}

/// Nothing passes beside ssh.
#[derive(Debug)]
pub struct Closed {
    why: String,
    /// What to do about it, where ssh may not carry the data.
    advice: String,
    /// There is a port, which may be heard of later.
    pub may_open: bool,
}

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "nothing passes beside ssh ({}){}", self.why, self.advice)
    }
}

impl std::error::Error for Closed {}

/// Connects to the first address of a session that lets it.
pub async fn open_way(
    job: &Job,
    session: &Session,
    endpoint: &mut Option<UdpEndpoint>,
    doubt: Doubt,
) -> Result<(SocketAddr, Link), Closed> {
    let credentials = Credentials::from(&session.key);
    let mut why = "no port is open there".to_owned();
    for address in session.addresses().await {
        let dialled = dial(job, address, &credentials, endpoint, doubt);
        match tokio::time::timeout(BESIDE_SSH, dialled).await {
            Ok(Ok(link)) => return Ok((address, link)),
            // Somebody else may have that address in this network.
            Ok(Err(error)) => why = error.to_string(),
            Err(_) => why = format!("no answer from {address}"),
        }
    }
    let advice = match job.options.sending.udp_alone().next() {
        Some(option) => {
            format!(
                ", and over ssh itself there is no {option}: open the way, or leave {option} out"
            )
        }
        None if !may_ride_ssh(job) => ": open the way, or leave --transport out".to_owned(),
        None => String::new(),
    };
    Err(Closed { why, advice, may_open: session.has_port() })
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

pub async fn by_udp(
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
    // Who can go another way need not wait long for this one, and who cannot begin again must.
    let idle_timeout = match job.may_go_on() {
        true if is_free(job) => SILENCE,
        true => sending.idle_timeout,
        false => PATIENCE,
    };
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

/// Whether the present way may be left for another.
pub fn may_leave(job: &Job) -> bool {
    is_free(job) && job.may_go_on()
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
