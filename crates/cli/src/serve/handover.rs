//! Copies from one server to another: [`push`] at the one that has the files, [`hold`] at the other.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, anyhow, bail, ensure};
use net::{Identity, PublicKey};
use serde_json::{Value, json};
use tokio::io::{AsyncBufRead, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::{mpsc, watch};
use transfer::printable;
use units::Rate;

use super::{Active, Client, FAREWELL, Service, say};
use crate::address::Server;
use crate::cp;
use crate::forward;
use crate::handover::{self, Held, Made, Wish};
use crate::keys::home;

/// Tickets at a time; each costs its client a stream.
const TICKETS_MAX: usize = 1024;
/// And of one client, so that others have some too.
const OWN_TICKETS_MAX: usize = 64;
/// Sources of one copy.
const SOURCES_MAX: usize = 1024;
/// Events that wait for a client; one who does not listen misses some.
const EVENTS: usize = 64;

/// Keys that are let in for one copy each, as long as the client who vouches for them is there.
#[derive(Clone, Default)]
pub struct Tickets(Arc<Mutex<HashMap<PublicKey, Ticket>>>);

/// What the holder of such a key may do.
#[derive(Clone)]
pub struct Ticket {
    /// By whose rights.
    pub owner: PublicKey,
    /// Nothing but to put there.
    pub destination: PathBuf,
    /// Ends with the ticket.
    held: watch::Receiver<()>,
}

impl Ticket {
    /// Waits until it does not hold any more.
    pub async fn ended(mut self) {
        while self.held.changed().await.is_ok() {}
    }
}

impl Tickets {
    fn lock(&self) -> MutexGuard<'_, HashMap<PublicKey, Ticket>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// That of the holder of a key.
    pub fn of(&self, key: &PublicKey) -> Option<Ticket> {
        self.lock().get(key).cloned()
    }

    fn give(&self, key: PublicKey, owner: PublicKey, destination: PathBuf) -> Result<Given, &str> {
        let mut all = self.lock();
        if all.len() >= TICKETS_MAX {
            return Err("too many copies come from other servers: try later");
        }
        if all.values().filter(|ticket| ticket.owner == owner).count() >= OWN_TICKETS_MAX {
            return Err("you have too many copies come from other servers: try later");
        }
        // Another's key stays what it is.
        if all.contains_key(&key) {
            return Err("this key has a ticket already");
        }
        let (holder, held) = watch::channel(());
        all.insert(key, Ticket { owner, destination, held });
        Ok(Given { tickets: self.clone(), key, _holder: holder })
    }
}

/// A ticket, for as long as this lives.
struct Given {
    tickets: Tickets,
    key: PublicKey,
    _holder: watch::Sender<()>,
}

impl Drop for Given {
    fn drop(&mut self) {
        self.tickets.lock().remove(&self.key);
    }
}

/// Lets another server in for the client, until the client goes.
pub async fn hold(service: &Service, client: &Client, stream: impl AsyncRead + AsyncWrite) {
    let (reading, mut writing) = tokio::io::split(stream);
    let mut reading = BufReader::new(reading);
    let address = client.address;
    let given = match wish(service, client, &mut reading).await {
        Ok(given) => given,
        Err(error) => return refuse(service, client, &mut writing, &error).await,
    };
    if handover::say(&mut writing, &Held { held: true }).await.is_ok() {
        say(&service.options, format_args!("{address} has another server put something here"));
        end(&mut reading).await;
    }
    drop(given);
    let _ = writing.shutdown().await;
}

async fn wish(
    service: &Service,
    client: &Client,
    reading: &mut (impl AsyncBufRead + Unpin),
) -> anyhow::Result<Given> {
    let Wish { key, destination } = handover::hear(reading).await?;
    ensure!(
        !service.options.read_only && !client.grant.read_only,
        "this server only gives files and takes none: choose another destination"
    );
    let key: PublicKey = key.parse()?;
    let authorized = service.authorized.as_ref().context(SHARED)?;
    ensure!(authorized.grant(&key).is_none(), "this key is let in already");
    let given = service.tickets.give(key, owner(client)?, destination.into());
    given.map_err(|reason| anyhow!("{reason}"))
}

const SHARED: &str = "between servers nobody knows who is who by a shared key: serve without --key";

fn owner(client: &Client) -> anyhow::Result<PublicKey> {
    ensure!(client.ticket.is_none(), "who has a ticket cannot give others");
    client.key.context(SHARED)
}

/// Copies to another server for the client, and tells how it goes.
pub async fn push(service: &Service, client: &Client, stream: impl AsyncRead + AsyncWrite + Send) {
    let _active = Active::new(&service.active);
    let (reading, mut writing) = tokio::io::split(stream);
    let mut reading = BufReader::new(reading);
    let _turn = match service.pushes.take(client.who()).await {
        Ok(turn) => turn,
        Err(reason) => return refuse(service, client, &mut writing, &anyhow!(reason)).await,
    };
    let push = match asked(service, client, &mut reading, &mut writing).await {
        Ok(push) => push,
        Err(error) => return refuse(service, client, &mut writing, &error).await,
    };
    let (address, to) = (client.address, push.server.to_string());
    let (events, mut coming) = mpsc::channel::<Value>(EVENTS);
    let telling = async move {
        while let Some(event) = coming.recv().await {
            handover::say(&mut writing, &event).await?;
        }
        writing.shutdown().await
    };
    let pushing = cp::push(push, events, end(&mut reading));
    tokio::pin!(pushing, telling);
    let (did, is_told) = tokio::select! {
        did = &mut pushing => (did, false),
        _ = &mut telling => ((&mut pushing).await, true),
    };
    if did.is_some() && !is_told {
        // A client that is gone is told nothing.
        let _ = telling.await;
    }
    let did = did.map_or_else(|| "given up by the client".to_owned(), |did| printable(&did));
    say(&service.options, format_args!("{address} push to {to}: {did}"));
}

/// What the client asks for, once the other server expects it.
async fn asked(
    service: &Service,
    client: &Client,
    reading: &mut (impl AsyncBufRead + Unpin),
    writing: &mut (impl AsyncWrite + Unpin),
) -> anyhow::Result<cp::Push> {
    let ask = handover::hear_ask(reading).await?;
    owner(client)?;
    ensure!(!ask.host.chars().any(char::is_control), "the name of the other server is none");
    let (server, options) = (Server { host: ask.host, port: ask.port }, &service.options);
    let mut lists = vec![&options.copy_to[..]];
    lists.extend(client.grant.forward.as_deref());
    if !forward::are_allowed(&lists, (&server.host, server.port)) {
        let target = target(&server);
        bail!(
            "this server does not copy to {server}: it would have to run with --copy-to {target}, and a \
             forward= of the key to name it too"
        );
    }
    ensure!((1..=SOURCES_MAX).contains(&ask.sources.len()), "at most {SOURCES_MAX} sources");
    let host = ask.key.parse()?;
    let identity = Identity::from_bytes(home::random()?);
    handover::say(writing, &Made { key: identity.public().to_string() }).await?;
    let Held { held } = handover::hear(reading).await?;
    ensure!(held, "the other server does not let this copy in");
    let rate = ask.terms.rate.filter(|&bits| bits > 0).map(Rate::from_bits_per_sec);
    let rate_limit = options.sending.rate_limit.into_iter().chain(rate).min();
    Ok(cp::Push {
        root: service.root_of(client),
        sources: ask.sources.into_iter().map(PathBuf::from).collect(),
        server,
        host,
        identity,
        destination: ask.destination.into(),
        terms: ask.terms,
        transport: ask.transport,
        compares: ask.compares,
        sending: crate::args::Sending { rate_limit, ..options.sending },
        tcp_cc: options.tcp_cc.clone(),
        no_remember: options.memory.no_remember,
        pacers: client.pacers.clone(),
    })
}

/// A server as `--copy-to` takes it.
fn target(server: &Server) -> String {
    match server.host.contains(':') {
        true => format!("[{}]:{}", server.host, server.port),
        false => format!("{}:{}", server.host, server.port),
    }
}

async fn refuse(
    service: &Service,
    client: &Client,
    writing: &mut (impl AsyncWrite + Unpin),
    error: &anyhow::Error,
) {
    // It may have words of the client.
    let reason = printable(&crate::sentence(error));
    say(&service.options, format_args!("{} refused: {reason}", client.address));
    let _ = handover::say(writing, &json!({ "error": reason })).await;
    let _ = tokio::time::timeout(FAREWELL, writing.shutdown()).await;
}

/// Waits until the client is gone.
async fn end(reading: &mut (impl AsyncRead + Unpin)) {
    let mut nothing = [0; 64];
    while reading.read(&mut nothing).await.is_ok_and(|read| read > 0) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_ticket_holds_as_long_as_it_is_held_and_cannot_be_taken_over() {
        let tickets = Tickets::default();
        let [key, me, other] = [1, 2, 3].map(|byte| PublicKey::from_bytes([byte; 32]));
        let given = tickets.give(key, me, "x".into()).ok().unwrap();
        let ticket = tickets.of(&key).unwrap();
        assert!(ticket.owner == me && ticket.destination.as_os_str() == "x");
        assert!(tickets.give(key, other, "y".into()).is_err());
        assert!(tickets.of(&me).is_none() && tickets.of(&key).unwrap().owner == me);
        let ended = tokio::spawn(ticket.ended());
        drop(given);
        ended.await.unwrap();
        assert!(tickets.of(&key).is_none());
        let numbered = |number: usize| {
            let mut bytes = [0; 32];
            bytes[..8].copy_from_slice(&number.to_le_bytes());
            PublicKey::from_bytes(bytes)
        };
        // No client takes all of them.
        let (mut all, mut owners) = (Vec::new(), 0);
        while all.len() < TICKETS_MAX {
            let owner = numbered(owners);
            for _ in 0..OWN_TICKETS_MAX {
                all.push(tickets.give(numbered(all.len()), owner, "x".into()).ok().unwrap());
            }
            if all.len() < TICKETS_MAX {
                assert!(tickets.give(key, owner, "x".into()).err().unwrap().starts_with("you"));
            }
            owners += 1;
        }
        assert!(owners > 1 && tickets.give(key, me, "x".into()).is_err());
    }
}
