//! Leaving one way to the far side for another in the middle of a copy: when it is lost, and when a better one
//! opens.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context;
use net::udp::{UdpConnection, UdpEndpoint};
use net::{Credentials, NetError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use transfer::Sample;

use super::link::{
    Closed, Link, Peer, SILENCE, by_udp, connect, may_leave, may_ride_ssh, open_way,
};
use super::{Job, show};
use crate::address::{Login, NotFound};
use crate::ssh::{self, Session};

/// Before UDP is tried again while TCP carries the data; twice as long each time.
const FIRST_LOOK: Duration = Duration::from_secs(10);
const LAST_LOOK: Duration = Duration::from_secs(120);
/// For so long nobody needs to answer in the middle of a copy.
pub const PATIENCE: Duration = Duration::from_secs(600);
const PAUSE: Duration = Duration::from_secs(1);
/// Between two logins, which a host may count, at most.
const LOGIN_PAUSE: Duration = Duration::from_secs(60);
/// Packets lost for nothing that are more than bad luck.
const STARVING: u64 = 8;
/// Bytes each way that show that data passes.
const PROOF: usize = 64 << 10;

/// Where a better way may open while a lesser one carries the data.
pub enum Beside<'a> {
    /// There is none better.
    Nothing,
    /// UDP, to where TCP leads.
    Tcp(SocketAddr, Credentials),
    /// Anything but ssh itself.
    Ssh(&'a Session),
}

/// What was seen of the ways in this copy: UDP's first packets may pass where its data does not.
#[derive(Clone, Copy)]
pub struct Doubt {
    /// It was lost last, so that TCP goes first.
    pub avoids_udp: bool,
    /// A way was lost: ssh, which is silent in an outage and no more, must show that it lives.
    pub of_ssh: bool,
    /// Before it is tried again.
    pause: Duration,
}

impl Default for Doubt {
    fn default() -> Self {
        Self { avoids_udp: false, of_ssh: false, pause: FIRST_LOOK }
    }
}

impl Doubt {
    /// A link was lost.
    pub fn lost(&mut self, link: &Link) {
        self.avoids_udp = matches!(link, Link::Udp(_));
        self.of_ssh = true;
    }

    /// Tried in vain, or for a trial that may be.
    fn put_off(&mut self) {
        self.pause = (self.pause * 2).min(LAST_LOOK);
    }
}

/// Waits until a better way opens than the present one; for ever, where none can be had.
pub async fn better(
    job: &Job,
    beside: Beside<'_>,
    endpoint: &mut Option<UdpEndpoint>,
    doubt: &mut Doubt,
) -> Link {
    if !may_leave(job) || matches!(beside, Beside::Nothing) {
        return std::future::pending().await;
    }
    loop {
        tokio::time::sleep(doubt.pause).await;
        // The next time after a longer pause, whether this one is in vain or lost again.
        doubt.put_off();
        let found = match &beside {
            Beside::Nothing => None,
            Beside::Tcp(address, credentials) => {
                let link = by_udp(job, *address, credentials, endpoint).await.ok();
                link.map(|link| (*address, link))
            }
            Beside::Ssh(session) => open_way(job, session, endpoint, *doubt).await.ok(),
        };
        let Some((address, link)) = found else { continue };
        if !carries_data(&link).await {
            doubt.lost(&link);
        } else if !job.is_parting() {
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
    while may_leave(job) {
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

/// Connects when nobody is there to begin again: silence is waited out.
pub async fn again(
    job: &Job,
    peer: &Peer,
    endpoint: &mut Option<UdpEndpoint>,
    doubt: Doubt,
) -> anyhow::Result<Link> {
    let begin = net::clock::now();
    let mut ssh = std::pin::pin!(ssh_lives(job, peer, doubt));
    loop {
        match connect(job, peer, endpoint, doubt).await {
            Err(error) if is_silence(&error) && net::clock::now().since(begin) < PATIENCE => {}
            linked => return linked,
        }
        tokio::select! {
            lives = &mut ssh => return lives,
            () = tokio::time::sleep(PAUSE) => {}
        }
    }
}

/// Waits until ssh has answered, and gives it if it may carry the data, or has ended. For ever, where it
/// needs not be asked.
async fn ssh_lives(job: &Job, peer: &Peer, doubt: Doubt) -> anyhow::Result<Link> {
    let (Peer::Ssh(session), true) = (peer, doubt.of_ssh) else {
        return std::future::pending().await;
    };
    loop {
        session.answers().await.context("ssh has ended")?;
        if may_ride_ssh(job) {
            show::started(job, &session.login.0, &Link::Ssh, Link::Ssh.words());
            return Ok(Link::Ssh);
        }
        tokio::time::sleep(FIRST_LOOK).await;
    }
}

/// Starts a far side when nobody is there to do it again: that no login succeeds is waited out.
pub async fn login_again(job: &Job, login: &Login) -> anyhow::Result<Session> {
    let begin = net::clock::now();
    let mut pause = PAUSE;
    loop {
        match Session::start_again(login, &job.options.ssh).await {
            Err(error) if is_silence(&error) && net::clock::now().since(begin) < PATIENCE => {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LOGIN_PAUSE);
            }
            started => return started,
        }
    }
}

/// Whether nothing was heard, be it of the host's name, so that waiting may help.
pub fn is_silence(error: &anyhow::Error) -> bool {
    error.downcast_ref().is_some_and(NetError::is_silence)
        || error.downcast_ref().is_some_and(|closed: &Closed| closed.may_open)
        || error.is::<NotFound>()
        || error.is::<ssh::NoLogin>()
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
