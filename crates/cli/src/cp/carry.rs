//! Moving what the requests ask for.

use anyhow::Context;
use net::udp::UdpEndpoint;
use net::{NetError, tcp};
use rustix::process::Signal;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use transfer::{Kept, Summary, TransferError};
use units::Instant;

use super::change::{self, Doubt};
use super::link::{self, Link, Peer};
use super::paced::Paced;
use super::plan::{Far, Request};
use super::{Job, ls, show};
use crate::keys::{self, Introduction};
use crate::paths::Paths;
use crate::progress;
use crate::serve::end_of_input;
use crate::signals::{self, Signals};
use crate::ssh::Session;
use crate::summary::{Figures, Total};

/// How long the last packets of a connection may take to leave.
pub const FAREWELL: Duration = Duration::from_secs(2);

/// Connections in a row that may be lost without having brought the copy further.
const IN_VAIN_MAX: u32 = 3;

/// How a transfer came to its end.
pub enum End {
    Done(Box<Moved>),
    Stopped(Signal),
}

/// What a transfer did.
pub struct Moved {
    pub summary: Summary,
    pub figures: Figures,
    /// For how long it was not its time.
    pub paused: Duration,
}

/// Does the whole job.
pub fn carry(job: &Job) -> anyhow::Result<End> {
    let runtime = tokio::runtime::Runtime::new().context("cannot start threads")?;
    let ended = runtime.block_on(async {
        let mut signals = Signals::catch()?;
        let stop = async {
            tokio::select! {
                signal = signals.next() => signal,
                () = end_of_input(), if job.options.until_eof => Signal::HUP,
            }
        };
        tokio::pin!(stop);
        let mut done = Done::default();
        loop {
            tokio::select! {
                () = wait_for_its_time(job, &mut done) => {}
                signal = &mut stop => return Ok(End::Stopped(signal)),
            }
            if let Some(end) = sit(job, stop.as_mut(), &mut done).await? {
                return Ok(end);
            }
        }
    });
    // Until temporary files are removed, but not for a disk that never answers.
    runtime.shutdown_timeout(signals::GRACE);
    ended
}

/// Waits until it may move.
async fn wait_for_its_time(job: &Job, done: &mut Done) {
    let Some(schedule) = job.options.schedule.filter(|schedule| !schedule.is_open()) else {
        return;
    };
    show::tell(job, &format!("waiting for {schedule}"));
    job.has_started.store(false, Relaxed);
    let begin = net::clock::now();
    schedule.opened().await;
    let now = net::clock::now();
    done.paused += now.since(begin);
    done.counted_until = Some(now);
}

/// Waits until it may not move any more, and is not just saying goodbye.
async fn its_time_is_over(job: &Job) {
    let Some(schedule) = job.options.schedule else { return std::future::pending().await };
    schedule.closed().await;
    while job.is_parting() {
        tokio::time::sleep(FAREWELL).await;
    }
}

/// Does all that is left of the job; `None` when its time is over before.
async fn sit(
    job: &Job,
    stop: Pin<&mut impl Future<Output = Signal>>,
    done: &mut Done,
) -> anyhow::Result<Option<End>> {
    let (mut endpoint, mut peer) = (None, None);
    let end = tokio::select! {
        end = connect_and_move(job, done, &mut peer, &mut endpoint) => {
            end.map(|()| Some(End::Done(Box::new(done.take()))))
        }
        signal = stop => Ok(Some(End::Stopped(signal))),
        () = its_time_is_over(job) => Ok(None),
    };
    farewell(endpoint).await;
    done.sittings += 1;
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
}

/// Lets the other side learn of the end now, and not by a time-out.
pub async fn farewell(endpoint: Option<UdpEndpoint>) {
    if let Some(endpoint) = endpoint {
        let _ = tokio::time::timeout(FAREWELL, UdpEndpoint::idle(&endpoint)).await;
    }
}

async fn connect_and_move(
    job: &Job,
    done: &mut Done,
    peer: &mut Option<Peer>,
    endpoint: &mut Option<UdpEndpoint>,
) -> anyhow::Result<()> {
    let peer = peer.insert(match &job.far {
        Far::Server(server) => Peer::Server(Introduction {
            own: keys::load(&job.options.key)?,
            server: server.clone(),
            transport: job.options.transport,
            accept_new: job.options.accept_new,
            host: None,
        }),
        Far::Ssh(login) => Peer::Ssh(Box::new(match done.sittings {
            0 => Session::start(login, &job.options.ssh).await?,
            _ => change::login_again(job, login).await?,
        })),
    });
    move_to(job, done, peer, endpoint).await
}

/// Moves all that is left of the job to a far side that is known.
pub async fn move_to(
    job: &Job,
    done: &mut Done,
    peer: &mut Peer,
    endpoint: &mut Option<UdpEndpoint>,
) -> anyhow::Result<()> {
    let mut doubt = Doubt::default();
    let mut link = match done.sittings {
        0 => link::connect(job, peer, endpoint, doubt).await?,
        // At the next opening of a schedule, nobody may be there to begin again.
        _ => change::again(job, peer, endpoint, doubt).await?,
    };
    let (mut furthest, mut in_vain) = (0, 0);
    loop {
        let beside = link.beside(peer);
        let lost = tokio::select! {
            moved = rest(job, done, &mut link, peer) => match moved {
                Ok(()) => return Ok(()),
                Err(error) => error,
            },
            better = change::better(job, beside, endpoint, &mut doubt) => {
                if let (Link::Ssh, Peer::Ssh(session)) = (&link, &*peer) {
                    // What it has there unfinished must not come to its end after the rest has.
                    session.channel().await.reset().await.context("ssh has ended")?;
                }
                show::tell(job, &format!("{} passes now: going on over it", better.words()));
                link = better;
                done.sittings += 1;
                continue;
            }
        };
        let moved = job.meter.sample().bytes;
        in_vain = if moved > furthest { 0 } else { in_vain + 1 };
        furthest = furthest.max(moved);
        let is_over = match peer {
            Peer::Ssh(session) => matches!(link, Link::Ssh) || session.ended().is_some(),
            Peer::Server(_) => false,
        };
        if !job.may_go_on() || !is_cut(&lost) || is_over || in_vain > IN_VAIN_MAX {
            return Err(lost);
        }
        let why = match lost.downcast_ref() {
            Some(error) => TransferError::why(error),
            None => crate::sentence(&lost),
        };
        show::tell(job, &format!("{why}; looking for a way to go on"));
        doubt.lost(&link);
        let silent_from = job.meter.sample().heard_at.max(done.counted_until);
        link = match change::again(job, peer, endpoint, doubt).await {
            Ok(link) => link,
            // Why it was lost says more than that nobody answers any more.
            Err(error) if change::is_silence(&error) || link::is_absence(&error) => {
                return Err(lost);
            }
            Err(error) => return Err(error.context(crate::sentence(&lost))),
        };
        done.sittings += 1;
        let now = net::clock::now();
        done.outages += silent_from.map(|at| now.since(at)).unwrap_or_default();
        done.counted_until = Some(now);
        show::tell(job, &format!("going on over {}", link.words()));
    }
}

/// What was done by now.
#[derive(Default)]
pub struct Done {
    total: Total,
    figures: Figures,
    /// How often it was begun again, over whatever way.
    sittings: usize,
    paused: Duration,
    outages: Duration,
    /// Until when either is counted already.
    counted_until: Option<Instant>,
}

impl Done {
    pub fn take(&mut self) -> Moved {
        let Self { total, figures, paused, outages, .. } = std::mem::take(self);
        Moved { summary: total.0, figures: Figures { outages, ..figures }, paused }
    }
}

/// All requests that are not done.
async fn rest(job: &Job, done: &mut Done, link: &mut Link, peer: &Peer) -> anyhow::Result<()> {
    while job.finished.load(Relaxed) < job.requests.len() {
        let index = job.finished.load(Relaxed);
        let before = job.meter.of(index).sample();
        let (mut summary, figures) = over(job, index, link, peer).await?;
        if done.sittings > 0 {
            // Most of what was there is this copy's own; a sync also finds what it would not have moved.
            summary.kept = match job.terms.compare {
                None => Kept::default(),
                Some(_) => summary.kept.without(before.files, before.bytes),
            };
        }
        done.total.add(summary);
        done.figures = figures;
        job.finished.fetch_add(1, Relaxed);
    }
    Ok(())
}

/// Whether the connection went away, rather than anybody giving up.
fn is_cut(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(TransferError::Connection(_) | TransferError::Cut))
        || matches!(error.downcast_ref(), Some(NetError::Lost { .. }))
        || change::is_silence(error)
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
    let rate = job.options.sending.rate_limit;
    let (summary, figures) = match link {
        Link::Udp(connection) => {
            let paced = Paced::by(connection.open().await?, job.pacers.clone());
            let waits = paced.waits();
            let figures = || {
                let figures = Figures::of_udp(&connection.stats(), rate);
                waits.add_to(figures).known(sends).asking(rate)
            };
            let summary = tokio::select! {
                moved = request(job, index, paced, &figures) => moved?,
                () = change::starved(job, connection) => {
                    let reason = "UDP passes, but no data over it";
                    let error = std::io::Error::new(std::io::ErrorKind::TimedOut, reason);
                    return Err(TransferError::from(error).into());
                }
            };
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
            let watch = stream.watch();
            let mut paced = Paced::by(&mut stream, job.pacers.clone().writing_at(rate));
            let waits = paced.waits();
            let figures = || {
                let figures =
                    watch.stats().map_or_else(Figures::default, |it| Figures::of_tcp(&it));
                waits.add_to(figures).known(sends).asking(rate)
            };
            let summary = request(job, index, &mut paced, figures).await?;
            let stats = stream.stats();
            learn(job, address.ip(), &stats);
            let figures = waits.add_to(Figures::of_tcp(&stats)).known(sends).asking(rate);
            let _ = tokio::time::timeout(FAREWELL, stream.close()).await;
            (summary, figures)
        }
        Link::Ssh => {
            let Peer::Ssh(session) = peer else {
                unreachable!("ssh is the way of its own far side")
            };
            let mut channel = session.channel().await;
            channel.reset().await.context("ssh has ended")?;
            let mut paced = Paced::by(channel.stream(), job.pacers.clone().writing_at(rate));
            let waits = paced.waits();
            let figures = || {
                let figures = Figures { carrier: Some(name), ..Figures::default() };
                waits.add_to(figures).known(sends).asking(rate)
            };
            let summary = request(job, index, &mut paced, figures).await?;
            let figures = figures();
            paced.into_inner().finish().await.context("ssh has ended")?;
            (summary, figures)
        }
    };
    Ok((summary, Figures { carrier: Some(name), ..figures }))
}

/// Remembers what was found of a path over TCP.
fn learn(job: &Job, host: IpAddr, stats: &tcp::Stats) {
    match (Paths::unless(job.options.memory.no_remember), stats.system) {
        (Some(paths), _) if job.options.striping.learns() => {
            paths.learn_streams(host, stats.target as u16);
        }
        (Some(paths), Some(system)) => paths.learn_system(host, system),
        _ => {}
    }
}

/// Moves what one request asks for, and shows how far it is.
async fn request<S: AsyncRead + AsyncWrite + Unpin + Send>(
    job: &Job,
    index: usize,
    stream: S,
    figures: impl Fn() -> Figures,
) -> anyhow::Result<Summary> {
    let progress = job.meter.of(index);
    let options = transfer::Options {
        // Several things go into a directory.
        into_directory: job.requests.len() > 1,
        id: job.requests[index].id(&job.far, job.terms.compare.is_some()),
        terms: job.terms.clone(),
        manifest: job.manifest.clone(),
        below: job.requests[index].below(),
    };
    let mut listed = Vec::new();
    let moving = async {
        match &job.requests[index] {
            Request::Put { sources, destination } | Request::Push { sources, destination, .. } => {
                transfer::put(stream, sources, destination, &options, progress).await
            }
            Request::Get { source, destination } => {
                transfer::get(stream, source, destination, &options, progress).await
            }
            Request::FromInput { destination } => {
                let input = std::io::stdin().as_fd().try_clone_to_owned()?;
                transfer::put_stream(stream, input, destination, &options, progress).await
            }
            Request::ToOutput { source } => {
                let output = std::io::stdout().as_fd().try_clone_to_owned()?;
                transfer::get_stream(stream, source, output, &options, progress).await
            }
            Request::List { source } => {
                let found = transfer::list(stream, source, &options, progress).await;
                found.map(|(found, summary)| {
                    listed = found;
                    summary
                })
            }
        }
    };
    let shown = progress::show(job.options.output, &job.meter, figures, |event| job.emit(event));
    let summary = tokio::select! {
        moved = moving => moved?,
        never = shown => never,
    };
    ls::tell(job, &listed);
    Ok(summary)
}
