//! A pair of gateways that makes every TCP connection across a long path fast, with no host
//! touched (paper 2): each host talks TCP with the gateway on its side, and the gateways carry the
//! bytes as streams of a transport connection, the trunk.
//!
//! Every gateway is both near and far. `rules` are the kernel's by which packets come here, `reuse` is a
//! setting of its, `nfqueue` the queue where SYNs wait. The near gateway is `intercept` (`flows` is what it
//! knows of, `early` whom it answers at once) and `proxy`, for those who ask for it (`hello` is how they do,
//! `inherited` where they find it); the far one is `dial`. `request` is what the two say to each other,
//! `trunk` keeps what connects them, `splice` joins two byte streams, and `record` is what came of them.
//!
//! `config` is the file of settings, `rights` what a gateway may do on its host, `virtual_address` whether it
//! or another of its side is to serve; `sight` shows what it does, `doctor` what is wrong with its host, and
//! `install` makes it a service. `fuzzing` is what the fuzzer reaches.
#![forbid(unsafe_code)]

mod config;
mod dial;
mod doctor;
mod early;
mod flows;
#[doc(hidden)]
pub mod fuzzing;
mod hello;
mod inherited;
pub mod install;
mod intercept;
mod nfqueue;
mod proxy;
mod record;
mod request;
mod reuse;
mod rights;
mod rules;
mod sight;
mod splice;
mod trunk;
mod virtual_address;

use std::convert::Infallible;
use std::future::pending;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use net::{Credentials, NetError};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

pub use config::{
    Config, ConfigError, DEFAULT_PORT, Deliver, Forward, Intercept, Ports, Proxy, Web, Weight,
};
pub use doctor::{Check, Finding, examine};
pub use record::{Bypass, Outcome, Record};
pub use request::Refusal;
pub use rules::RulesError;
pub use sight::{
    AskError, Cause, Connection, Missed, Sample, Side, Status, Totals, TrunkState, TrunkStatus,
    Waits, ask as status,
};
pub use splice::Passed;
pub use trunk::TrunkEvent;

use inherited::Inherited;
use intercept::Interceptor;
use proxy::Broker;
use rules::Rules;
use sight::{Book, Control, Names};
use trunk::{Opened, Trunk};
use virtual_address::VirtualAddress;

/// Streams of the other gateway that wait to be served.
const BACKLOG: usize = 1024;
/// After a failed `accept`: while this process has no file left, the next fails at once.
const BREATH: Duration = Duration::from_millis(100);

/// Why a gateway does not run.
#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    /// The kernel's rules.
    #[error(transparent)]
    Rules(#[from] RulesError),
    /// The trunk's address.
    #[error(transparent)]
    Trunk(#[from] NetError),
    /// Sockets at others' addresses, or the queue.
    #[error("cannot take connections ({0}): run the gateway as root, and only one on a host")]
    Intercept(io::Error),
    /// An address of the proxy's.
    #[error("cannot listen at {0} ({1}): choose another address in [proxy]")]
    Proxy(SocketAddr, io::Error),
    /// The web page's address.
    #[error("cannot serve the web page ({0}): choose another address for web.listen")]
    Web(io::Error),
    /// This user runs one here already.
    #[error("a gateway of this user runs here already: `longhaul gateway status` shows it")]
    Twice,
}

/// What happens in a gateway.
#[derive(Debug)]
pub enum Event {
    /// To the trunk.
    Trunk(TrunkEvent),
    /// To a connection of a host on this side.
    Near(Record),
    /// To one of a host on the other side.
    Far(Record),
    /// Another gateway has the virtual address: it serves, and this one stands by.
    StandsBy(IpAddr),
    /// Servers see this gateway's address, for it may not administer the network and was not told
    /// that they must see the clients'.
    Rootless,
    /// `longhaul gateway status` will not be answered.
    Hidden(io::Error),
    /// The kernel has no file left for another connection: those that come go direct until it has.
    Full(io::Error),
    /// So many SYNs came faster than they were looked at, and went direct.
    Overrun(u32),
}

/// The rules that a gateway would put in force, as nftables reads them.
pub fn ruleset(config: &Config) -> String {
    rules::ruleset(config.intercept.as_ref(), true)
}

/// Runs a gateway until `stop`, or until it fails. It takes its rules with it, and tells the other
/// one; dropped, it tells nobody.
///
/// # Errors
/// [`GatewayError`].
pub async fn run(
    config: &Config,
    credentials: Credentials,
    stop: impl Future<Output = ()>,
    events: impl Fn(Event) + Send + Sync + 'static,
) -> Result<(), GatewayError> {
    let trunk = Trunk::default();
    let book = Book::new(trunk.clone());
    let events = {
        let book = book.clone();
        Arc::new(move |event: Event| {
            book.note(&event);
            events(event);
        })
    };
    let control = match Control::bind() {
        Ok(control) => Some(control),
        Err(_) if sight::is_running() => return Err(GatewayError::Twice),
        Err(error) => {
            events(Event::Hidden(error));
            None
        }
    };
    let rootless = rights::rootless(config);
    if rootless.is_some() {
        events(Event::Rootless);
    }
    let config = rootless.as_ref().unwrap_or(config);
    let proxy = {
        let events = events.clone();
        let report = move |record| events(Event::Near(record));
        proxy(config, &trunk, &book, report)
    };
    let names = if config.names { Names::of_resolver() } else { Names::none() };
    let here = VirtualAddress(config.trunk.virtual_address);
    let served = async {
        loop {
            if let Some(address) = here.elsewhere() {
                events(Event::StandsBy(address));
                here.come().await;
            }
            tokio::select! {
                ended = serve(config, &credentials, &trunk, &book, &events) => return ended,
                () = here.gone() => {}
            }
            trunk.farewell().await;
        }
    };
    let ended = tokio::select! {
        // What keeps a gateway from serving is told even if it is to stop at once.
        biased;
        ended = served => ended,
        Err(error) = proxy => Err(error),
        Err(error) = web(config.web.as_ref(), &book, &names) => Err(GatewayError::Web(error)),
        never = sight::serve(control, book.clone(), names.clone()) => match never {},
        () = book.watch() => Ok(()),
        () = stop => Ok(()),
    };
    trunk.farewell().await;
    ended
}

/// Takes and carries connections, without end.
async fn serve(
    config: &Config,
    credentials: &Credentials,
    trunk: &Trunk,
    book: &Book,
    events: &Arc<impl Fn(Event) + Send + Sync + 'static>,
) -> Result<(), GatewayError> {
    let _rules =
        if config.is_transparent() { Some(Rules::apply(config.intercept.as_ref())?) } else { None };
    let (streams, opened) = mpsc::channel(BACKLOG);
    let kept = {
        let events = events.clone();
        trunk.keep(&config.trunk, credentials, streams, move |event| events(Event::Trunk(event)))
    };
    let near = {
        let events = events.clone();
        near(config, trunk, book, move |event| events(event))
    };
    tokio::select! {
        kept = kept => kept.map_err(GatewayError::Trunk),
        Err(error) = near => Err(GatewayError::Intercept(error)),
        () = far((config.deliver.clone(), config.keepalive()), opened, trunk, book, events.clone()) => Ok(()),
    }
}

async fn near(
    config: &Config,
    trunk: &Trunk,
    book: &Book,
    report: impl Fn(Event),
) -> io::Result<Infallible> {
    match &config.intercept {
        Some(settings) => {
            let (keepalive, trunk, book) = (config.keepalive(), trunk.clone(), book.clone());
            Interceptor::open(settings, keepalive, trunk, book).await?.run(report).await
        }
        None => pending().await,
    }
}

async fn proxy(
    config: &Config,
    trunk: &Trunk,
    book: &Book,
    report: impl Fn(Record) + Send + Sync + 'static,
) -> Result<Infallible, GatewayError> {
    match &config.proxy {
        Some(settings) => {
            let (trunk, book, intercept) = (trunk.clone(), book.clone(), config.intercept.clone());
            let keepalive = config.keepalive();
            proxy::run(settings, Broker { trunk, book, intercept, keepalive, report }).await
        }
        None => {
            // What an earlier gateway listened at, with other settings.
            Inherited::from_systemd().keep_only(|_| false);
            pending().await
        }
    }
}

async fn web(settings: Option<&Web>, book: &Book, names: &Names) -> io::Result<Infallible> {
    match settings {
        Some(settings) => sight::run_web(settings.listen, book.clone(), names.clone()).await,
        None => pending().await,
    }
}

/// Serves what the other gateway asks for.
async fn far(
    (deliver, keepalive): (Deliver, Duration),
    mut opened: mpsc::Receiver<Opened>,
    trunk: &Trunk,
    book: &Book,
    events: Arc<impl Fn(Event) + Send + Sync + 'static>,
) {
    let deliver = Arc::new(deliver);
    let mut tasks = JoinSet::new();
    loop {
        let Opened { link, stream } = tokio::select! {
            opened = opened.recv() => match opened {
                Some(opened) => opened,
                None => return,
            },
            Some(_) = tasks.join_next() => continue,
        };
        let (deliver, events) = (deliver.clone(), events.clone());
        let (trunk, book) = (trunk.clone(), book.clone());
        tasks.spawn(async move {
            // Who tries a trunk is no gateway: nothing can be opened towards it.
            let tried = || trunk.leave(link);
            // What ends before it was understood leaves nothing to tell of.
            let served = dial::serve((&deliver, keepalive), stream, &book, tried).await;
            let Ok((request, outcome)) = served else { return };
            let server = request.server.to_string();
            let outcome = outcome.map_or_else(Outcome::Refused, Outcome::Carried);
            events(Event::Far(Record { client: request.client, server, outcome }));
        });
    }
}

/// A number for each host, in one of the trunk's groups.
fn host(address: IpAddr) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(address)
}
