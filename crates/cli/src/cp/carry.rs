//! Moving what the requests ask for.

use anyhow::Context;
use net::udp::UdpEndpoint;
use rustix::process::Signal;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use transfer::Summary;

use super::Job;
use super::link::{self, Link, Peer};
use super::plan::{Far, Request};
use crate::keys::{self, Introduction};
use crate::paths::Paths;
use crate::progress;
use crate::signals::Signals;
use crate::ssh::Session;
use crate::summary::{Figures, Total};

/// How long the last packets of a connection may take to leave.
const FAREWELL: Duration = Duration::from_secs(2);

/// How a transfer came to its end.
pub enum End {
    Done(Box<(Summary, Figures)>),
    Stopped(Signal),
}

/// Does the whole job.
pub fn carry(job: &Job) -> anyhow::Result<End> {
    // Dropped at the end, the runtime waits until temporary files are removed.
    let runtime = tokio::runtime::Runtime::new().context("cannot start threads")?;
    runtime.block_on(async {
        let mut signals = Signals::catch()?;
        let (mut endpoint, mut peer) = (None, None);
        let end = tokio::select! {
            end = connect_and_move(job, &mut peer, &mut endpoint) => {
                end.map(|moved| End::Done(Box::new(moved)))
            }
            signal = signals.next() => Ok(End::Stopped(signal)),
        };
        if let Some(endpoint) = endpoint {
            // So that the other side learns of the end now, and not by a time-out.
            let _ = tokio::time::timeout(FAREWELL, UdpEndpoint::idle(&endpoint)).await;
        }
        match (peer, end) {
            (Some(Peer::Ssh(mut session)), Err(error)) => match session.ended() {
                Some(status) => Err(error.context(format!("ssh has ended with {status}"))),
                None => Err(error),
            },
            (Some(Peer::Ssh(session)), end) => {
                session.end().await;
                end
            }
            (_, end) => end,
        }
    })
}

async fn connect_and_move(
    job: &Job,
    peer: &mut Option<Peer>,
    endpoint: &mut Option<UdpEndpoint>,
) -> anyhow::Result<(Summary, Figures)> {
    let peer = peer.insert(match &job.far {
        Far::Server(server) => Peer::Server(Introduction {
            own: keys::load(&job.options.key)?,
            server: server.clone(),
            transport: job.options.transport,
            accept_new: job.options.accept_new,
        }),
        Far::Ssh(login) => Peer::Ssh(Box::new(Session::start(login, &job.options.ssh).await?)),
    });
    let mut link = link::connect(job, peer, endpoint).await?;
    let (mut total, mut figures) = (Total::default(), Figures::default());
    for index in 0..job.requests.len() {
        let (summary, last) = over(job, index, &mut link, peer).await?;
        total.add(summary);
        figures = last;
    }
    Ok((total.0, figures))
}

/// One request over the link.
async fn over(
    job: &Job,
    index: usize,
    link: &mut Link,
    peer: &Peer,
) -> anyhow::Result<(Summary, Figures)> {
    let sends = job.requests[index].sends();
    let name = link.name();
    let (summary, figures) = match link {
        Link::Udp(connection) => {
            let limit = job.options.sending.rate_limit;
            let figures = || Figures::of_udp(&connection.stats(), limit).known(sends);
            let summary = request(job, index, connection.open().await?, figures).await?;
            // Who sends learns, and remembers.
            let paths = Paths::unless(job.options.memory.no_remember || !sends);
            if let (Some(paths), Some(learnt)) = (paths, connection.remembered()) {
                paths.learn(connection.address().ip(), learnt);
            }
            (summary, figures())
        }
        Link::Tcp { address, credentials, first } => {
            let mut stream = match first.take() {
                Some(stream) => *stream,
                None => link::stripe(job, *address, credentials).await?,
            };
            let summary = request(job, index, &mut stream, Figures::default).await?;
            let stats = stream.stats();
            let paths = Paths::unless(job.options.memory.no_remember);
            if let (Some(paths), true) = (paths, job.options.striping.learns()) {
                paths.learn_streams(address.ip(), stats.target as u16);
            }
            let figures = Figures::of_tcp(&stats).known(sends);
            let _ = tokio::time::timeout(FAREWELL, stream.close()).await;
            (summary, figures)
        }
        Link::Ssh => {
            let Peer::Ssh(session) = peer else {
                unreachable!("ssh is the way of its own far side")
            };
            let mut channel = session.channel().await;
            let mut stream = channel.stream();
            let summary = request(job, index, &mut stream, Figures::default).await?;
            stream.finish().await.context("ssh has ended")?;
            (summary, Figures::default())
        }
    };
    Ok((summary, Figures { carrier: Some(name), ..figures }))
}

/// Moves what one request asks for, and shows how far it is.
async fn request<S: AsyncRead + AsyncWrite + Unpin + Send>(
    job: &Job,
    index: usize,
    stream: S,
    figures: impl Fn() -> Figures,
) -> anyhow::Result<Summary> {
    let progress = job.meter.of(index);
    // Several things go into a directory.
    let options = transfer::Options { into_directory: job.requests.len() > 1 };
    let moving = async {
        match &job.requests[index] {
            Request::Put { sources, destination } => {
                transfer::put(stream, sources, destination, &options, progress).await
            }
            Request::Get { source, destination } => {
                transfer::get(stream, source, destination, &options, progress).await
            }
        }
    };
    tokio::select! {
        moved = moving => Ok(moved?),
        never = progress::show(job.options.output, &job.meter, figures) => never,
    }
}
