//! Copies from one server to another, which do not pass here: the one with the files makes them, by a ticket that
//! this side gets it from the other (`handover` says how).

use std::net::SocketAddr;
use std::process::ExitCode;

use anyhow::{Context, anyhow, bail, ensure};
use clap::ArgMatches;
use net::udp::{UdpConnection, UdpEndpoint};
use net::{PublicKey, tcp};
use rustix::process::Signal;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use transfer::wire::Terms;

use super::carry::{FAREWELL, farewell};
use super::follow::{Heard, failed, follow, stopped};
use super::show::Verdict;
use super::{PATIENCE, is_absence};
use crate::address::{Location, Remote, Server};
use crate::args::{Transport, Way, usage};
use crate::handover::{self, Ask, Held, Made, PUSH, TICKET, Wish};
use crate::hosts;
use crate::keys::{self, Introduction, Own};
use crate::race::race;
use crate::serve::end_of_input;
use crate::signals::Signals;

/// Options that go along; the others are about what this side sends, or name files here.
const OPTIONS: [&str; 14] = [
    "exclude",
    "include",
    "no_compress",
    "transport",
    "rate_limit",
    "owner",
    "accept_new",
    "json",
    "quiet",
    "delete",
    "dry_run",
    "checksum",
    "verify_only",
    "until_eof",
];

/// Whether an option goes along.
pub fn goes_between_servers(option: &str) -> bool {
    OPTIONS.contains(&option)
}

/// Two servers, and the paths there.
pub struct Both {
    from: Server,
    sources: Vec<String>,
    to: Server,
    destination: String,
}

/// What there is to copy, if both sides are servers.
pub fn both(sources: &[Location], destination: &Location) -> Result<Option<Both>, String> {
    let Location::Remote(to) = destination else { return Ok(None) };
    let remote = |location: &Location| match location {
        Location::Remote(remote) => Some(remote.clone()),
        _ => None,
    };
    let Some(all) = sources.iter().map(remote).collect::<Option<Vec<Remote>>>() else {
        return Ok(None);
    };
    let Some(Remote { server: from, .. }) = all.first().cloned() else { return Ok(None) };
    if let Some(other) = all.iter().find(|remote| remote.server != from) {
        return Err(format!("sources on {from} and on {}: copy from one at a time", other.server));
    }
    if from == to.server {
        return Err(format!("both sides are on {from}: copy there with its own cp"));
    }
    let text = |remote: &Remote| {
        let path = remote.path.to_str().map(str::to_owned);
        let shown = || format!("{}/{}", remote.server, remote.path.display());
        path.ok_or_else(|| format!("between two servers names are UTF-8, and {} is not", shown()))
    };
    let sources = all.iter().map(text).collect::<Result<_, _>>()?;
    Ok(Some(Both { from, sources, to: to.server.clone(), destination: text(to)? }))
}

/// Has the copy made, and shows how it goes.
pub fn run(
    way: &Way,
    given: &ArgMatches,
    both: Both,
    terms: Terms,
    verdict: Verdict,
) -> anyhow::Result<ExitCode> {
    check(way, given)?;
    let mut heard = Heard::default();
    let copied = have_made(way, both, terms, verdict, &mut heard);
    copied.inspect_err(|error| failed(way.output, error, &heard))
}

/// Refuses options that do not go along.
fn check(way: &Way, given: &ArgMatches) -> anyhow::Result<()> {
    let (name, given) = given.subcommand().context("no command is given")?;
    if let Some(option) =
        hosts::options_of(name, given, |_, option| !goes_between_servers(option.get_id().as_str()))
            .first()
    {
        let option = option.split('=').next().unwrap_or_default();
        usage(name, &format!("{option} does not go between two servers"));
    }
    if way.transport == Transport::Ssh {
        usage(name, "--transport ssh goes with [USER@]HOST:PATH");
    }
    Ok(())
}

fn have_made(
    way: &Way,
    both: Both,
    terms: Terms,
    verdict: Verdict,
    heard: &mut Heard,
) -> anyhow::Result<ExitCode> {
    let own = keys::load(&way.key)?;
    let runtime = tokio::runtime::Runtime::new().context("cannot start threads")?;
    runtime.block_on(async {
        let (mut signals, mut reached) = (Signals::catch()?, [None, None]);
        let ended = tokio::select! {
            copied = copy(way, own, both, terms, verdict, &mut reached, heard) => Ok(copied),
            signal = signals.next() => Err(signal),
            () = end_of_input(), if way.until_eof => Err(Signal::HUP),
        };
        let copied = ended.unwrap_or_else(|signal| Ok(stopped(way.output, signal, heard)));
        // However it ends, both are to learn of it now, and not by a time-out; unless the user is tired of that too.
        let [there, here] = reached.map(|reached| async {
            if let Some(reached) = reached {
                reached.end().await
            }
        });
        tokio::select! {
            _ = async { tokio::join!(here, there) } => (),
            _ = signals.next() => (),
        }
        copied
    })
}

async fn copy(
    way: &Way,
    own: Own,
    both: Both,
    terms: Terms,
    verdict: Verdict,
    [there, here]: &mut [Option<Reached>; 2],
    heard: &mut Heard,
) -> anyhow::Result<ExitCode> {
    let Both { from, sources, to, destination } = both;
    let there = there.insert(reach(way, &own, &to).await?);
    let here = here.insert(reach(way, &own, &from).await?);
    ensure!(here.key != there.key, "{from} and {to} are one server: copy there with its own cp");
    let ask = Ask {
        sources,
        host: to.host.clone(),
        port: to.port,
        key: there.key.to_string(),
        destination: destination.clone(),
        terms,
        transport: match way.transport {
            Transport::Udp => "udp",
            Transport::Tcp => "tcp",
            Transport::Auto | Transport::Ssh => "auto",
        }
        .to_owned(),
        compares: verdict == Verdict::Compared,
    };
    ensure!(handover::fits(&ask)?, "too many names for one copy between servers: name fewer");
    let why = |server: &Server| format!("{server}: no copy from {from} to {to}");
    let Made { key } = here.ask(&PUSH, &ask).await.with_context(|| why(&from))?;
    let wish = Wish { key, destination };
    let held: Held = there.ask(&TICKET, &wish).await.with_context(|| why(&to))?;
    handover::say(&mut here.stream, &held).await?;
    follow(way.output, &mut here.stream, heard).await;
    match heard {
        Heard { done: Some(code), .. } => Ok(ExitCode::from(*code)),
        Heard { failed: Some((message, code)), .. } => {
            tell!("longhaul: {message}");
            Ok(ExitCode::from(*code))
        }
        _ => Err(anyhow!("the connection with {from} was lost; the same command goes on")),
    }
}

/// What either carrier gives.
trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

/// A stream to a server.
struct Reached {
    stream: BufReader<Box<dyn Stream>>,
    /// The server's.
    key: PublicKey,
    /// Lives as long as its stream.
    udp: Option<(UdpConnection, UdpEndpoint)>,
}

impl Reached {
    async fn ask<T: serde::de::DeserializeOwned>(
        &mut self,
        opening: &[u8],
        what: &impl serde::Serialize,
    ) -> anyhow::Result<T> {
        self.stream.write_all(opening).await?;
        handover::say(&mut self.stream, what).await?;
        handover::hear(&mut self.stream).await
    }

    async fn end(mut self) {
        let _ = tokio::time::timeout(FAREWELL, self.stream.shutdown()).await;
        drop(self.stream);
        farewell(self.udp.map(|(_, endpoint)| endpoint)).await;
    }
}

/// Connects to a server.
async fn reach(way: &Way, own: &Own, server: &Server) -> anyhow::Result<Reached> {
    let Own::Identity(identity) = own else { bail!("two servers go by identities") };
    let own = Own::Identity(identity.clone());
    let (transport, accept_new) = (way.transport, way.accept_new);
    let introduction =
        Introduction { own, server: server.clone(), transport, accept_new, host: None };
    let mut failure = None;
    // A name may have addresses at which nobody is.
    for address in server.resolve().await? {
        match reach_at(way, &introduction, address).await {
            Err(error) if is_absence(&error) => failure = Some(error),
            reached => return reached,
        }
    }
    Err(failure.context("no address to connect to")?)
}

async fn reach_at(
    way: &Way,
    introduction: &Introduction,
    address: SocketAddr,
) -> anyhow::Result<Reached> {
    let meeting = introduction.meet(address).await?;
    let credentials = &meeting.credentials;
    let by_udp = async {
        // The copy goes on whether it is heard of or not.
        let config = transport::Config { idle_timeout: PATIENCE, ..transport::Config::default() };
        let endpoint = UdpEndpoint::client(address, credentials, config)?;
        let connection = endpoint.connect(address).await?;
        let (peer, stream) = (connection.peer(), connection.open().await?);
        let stream: Box<dyn Stream> = Box::new(stream);
        Ok((stream, peer, Some((connection, endpoint))))
    };
    let by_tcp = async {
        let (policy, options) = (tcp::Policy::Fixed(1), tcp::Options::default());
        let stream = tcp::connect(address, credentials, policy, &options).await?;
        let (peer, stream): (_, Box<dyn Stream>) = (stream.peer(), Box::new(stream));
        Ok((stream, peer, None))
    };
    let reached = match way.transport {
        Transport::Udp => by_udp.await,
        Transport::Tcp => by_tcp.await,
        Transport::Auto | Transport::Ssh => race(by_udp, by_tcp).await,
    };
    let (stream, peer, udp) = match reached {
        Ok(reached) => reached,
        Err(error) => return Err(introduction.explain(address, error).await),
    };
    if let (Some(news), false) = (introduction.succeeded(&meeting)?, way.output.quiet) {
        tell!("longhaul: {news}");
    }
    let key = peer.context("the server has no key of its own")?;
    Ok(Reached { stream: BufReader::new(stream), key, udp })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_two_servers_are_told_to_copy_to_each_other() {
        let asked = |places: &[&str]| {
            let places = Vec::from_iter(places.iter().map(|place| place.parse().unwrap()));
            let (destination, sources) = places.split_last().unwrap();
            both(sources, destination)
        };
        let found = asked(&["lh://a/x", "lh://a/y", "lh://b:80/z/"]).unwrap().unwrap();
        assert_eq!((found.sources, &found.destination[..]), (vec!["x".into(), "y".into()], "z/"));
        assert_eq!((found.from.host, found.to.port), ("a".to_owned(), 80));
        for other in [&["x", "lh://a/y"][..], &["lh://a/x", "y"], &["lh://a/x", "y", "lh://b/"]] {
            assert!(asked(other).unwrap().is_none());
        }
        for (places, why) in [
            (&["lh://a/x", "lh://a/y"][..], "both sides are on lh://a"),
            (&["lh://a/x", "lh://b/x", "lh://c/"], "sources on lh://a and on lh://b"),
        ] {
            assert!(asked(places).err().unwrap().starts_with(why));
        }
    }
}
