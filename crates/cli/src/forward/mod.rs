//! `longhaul forward`: any TCP application, carried to a server by UDP or striped TCP.

mod pump;
mod serve;
mod wire;

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use net::mux::{MAX_MUX_STREAMS, Mux};
use net::udp::{UdpConnection, UdpEndpoint};
use net::{NetError, tcp};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, Semaphore};

use crate::args::{Forward, Transport, usage};
use crate::cp::Paced;
use crate::keys::{self, Introduction};
use crate::pacing::{Pacer, Pacers};
use crate::paths::Paths;
use crate::race::race;
use crate::signals::{self, Signals};

pub use serve::{Outcome, Target, are_allowed, forward, place};
pub use wire::{FORWARD, MUX, OPENING_LEN, opening};

/// Connections of applications at a time, which either carrier takes; further ones wait to be accepted.
const MAX_CONNECTIONS: usize = MAX_MUX_STREAMS;
/// Before accepting again when the system was short of something.
const PAUSE: Duration = Duration::from_millis(100);
/// How long the last packets of a connection may take to leave.
const FAREWELL: Duration = Duration::from_secs(2);

/// What either carrier gives.
trait Carried: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Carried for T {}

/// A connection with the server, which carries all that applications open.
enum Carrier {
    Udp(UdpConnection, UdpEndpoint),
    Tcp(Mux),
}

/// The way to the server; connected anew when it was lost.
struct Trunk {
    introduction: Introduction,
    options: Forward,
    /// What all connections keep to together.
    pacers: Pacers,
    carrier: Mutex<Option<Arc<Carrier>>>,
}

/// `longhaul forward`.
pub fn run(options: Forward) -> anyhow::Result<ExitCode> {
    if let Err(why) = check(&options) {
        usage("forward", &why);
    }
    let own = keys::load(&options.key)?;
    let (server, transport) = (options.remote.server.clone(), options.transport);
    let accept_new = options.accept_new;
    let introduction = Introduction { own, server, transport, accept_new, host: None };
    let pacer = || vec![Pacer::new(options.sending.rate_limit)];
    let pacers = Pacers { writing: pacer(), reading: pacer() };
    let trunk = Arc::new(Trunk { introduction, options, pacers, carrier: Mutex::new(None) });
    let runtime = tokio::runtime::Runtime::new().context("cannot start threads")?;
    runtime.block_on(async {
        let mut signals = Signals::catch()?;
        let ended = tokio::select! {
            failed = listen(&trunk) => failed.map(|never| match never {}),
            signal = signals.next() => Ok(ExitCode::from(signals::code(signal))),
        };
        // While it is locked it is being made, and needs no farewell.
        let carrier = trunk.carrier.try_lock().ok().and_then(|mut carrier| carrier.take());
        if let Some(Carrier::Udp(connection, endpoint)) = carrier.and_then(Arc::into_inner) {
            drop(connection);
            let _ = tokio::time::timeout(FAREWELL, endpoint.idle()).await;
        }
        ended
    })
}

/// What goes with what.
fn check(options: &Forward) -> Result<(), String> {
    let Forward { transport, sending, .. } = options;
    match sending.udp_alone().next() {
        Some("--cc") if *transport == Transport::Tcp => {
            Err("--cc goes with --transport udp; TCP's is --tcp-cc".to_owned())
        }
        Some(option) if *transport == Transport::Tcp => {
            Err(format!("{option} goes with --transport udp"))
        }
        None if *transport == Transport::Tcp && sending.wants_udp() => {
            Err("--feedback goes with --transport udp".to_owned())
        }
        _ => Ok(()),
    }
}

/// Carries every connection that comes, until something fails that concerns them all.
async fn listen(trunk: &Arc<Trunk>) -> anyhow::Result<std::convert::Infallible> {
    let options = &trunk.options;
    let listener = TcpListener::bind(options.local)
        .await
        .with_context(|| format!("cannot listen on {}", options.local))?;
    // At once, so that a server which lets nobody in is told now.
    *trunk.carrier.lock().await = Some(Arc::new(trunk.connect().await?));
    if !options.quiet {
        let (local, remote) = (listener.local_addr()?, &options.remote);
        say!("forwarding {local} to {} at {}", remote.target, remote.server);
    }
    let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let place = room.clone().acquire_owned().await.expect("it is never closed");
        match listener.accept().await {
            Ok((socket, _)) => {
                let trunk = trunk.clone();
                tokio::spawn(async move {
                    trunk.carry(socket).await;
                    drop(place);
                });
            }
            // The application went away, or the system is short of something for a moment.
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

impl Trunk {
    async fn carry(&self, socket: TcpStream) {
        let target = &self.options.remote.target;
        if pump::prepare(&socket).is_err() {
            // The application went away.
            return;
        }
        let asked = async {
            let mut stream = Paced::by(self.open().await?, self.pacers.clone());
            anyhow::Ok((wire::ask(&mut stream, target).await?, stream))
        };
        let refusal = match asked.await {
            Ok((Ok(()), stream)) => {
                // The application sees by itself when the other gave up.
                let _ = pump::pump(socket, stream).await;
                return;
            }
            Ok((Err(reason), _)) => reason,
            Err(error) => crate::sentence(&error),
        };
        tell!("longhaul: {target} is not connected: {refusal}");
    }

    /// A stream to the server, over a new connection if the last was lost.
    async fn open(&self) -> anyhow::Result<Box<dyn Carried>> {
        let carrier = self.carrier.lock().await.clone();
        // Waiting for room in one, with nothing locked.
        if let Some(carrier) = &carrier
            && let Ok(stream) = carrier.open().await
        {
            return Ok(stream);
        }
        Ok(self.replace(carrier).await?.open().await?)
    }

    /// Another connection for one that was lost, unless somebody has made one meanwhile.
    async fn replace(&self, lost: Option<Arc<Carrier>>) -> anyhow::Result<Arc<Carrier>> {
        let mut carrier = self.carrier.lock().await;
        if let Some(other) = &*carrier
            && lost.is_none_or(|lost| !Arc::ptr_eq(&lost, other))
        {
            return Ok(other.clone());
        }
        Ok(carrier.insert(Arc::new(self.connect().await?)).clone())
    }

    async fn connect(&self) -> anyhow::Result<Carrier> {
        let mut failure = None;
        // A name may have addresses at which nobody is.
        for address in self.introduction.server.resolve().await? {
            match self.connect_to(address).await {
                Err(error) if crate::cp::is_absence(&error) => failure = Some(error),
                connected => return connected,
            }
        }
        Err(failure.context("no address to connect to")?)
    }

    async fn connect_to(&self, address: SocketAddr) -> anyhow::Result<Carrier> {
        let meeting = self.introduction.meet(address).await?;
        let credentials = &meeting.credentials;
        let by_udp = async {
            let config = self.options.sending.config();
            let endpoint = UdpEndpoint::client(address, credentials, config)?;
            Ok(Carrier::Udp(endpoint.connect(address).await?, endpoint))
        };
        let by_tcp = async {
            let known = Paths::unless(false).map(|paths| paths.known(address.ip()));
            let (policy, options) = self.options.striping.settings(known.unwrap_or_default())?;
            let mut stream = tcp::connect(address, credentials, policy, &options).await?;
            // What fails here fails again when the first stream is opened.
            let _ = stream.write_all(&MUX).await;
            Ok(Carrier::Tcp(Mux::client(stream)))
        };
        let connected = match self.options.transport {
            Transport::Udp => by_udp.await,
            Transport::Tcp => by_tcp.await,
            // Some of what may be asked for, only UDP can do.
            Transport::Auto if self.options.sending.wants_udp() => by_udp.await,
            Transport::Auto | Transport::Ssh => race(by_udp, by_tcp).await,
        };
        match connected {
            Err(error) => Err(self.introduction.explain(address, error).await),
            Ok(carrier) => {
                if let Some(news) = self.introduction.succeeded(&meeting)? {
                    tell!("longhaul: {news}");
                }
                Ok(carrier)
            }
        }
    }
}

impl Carrier {
    async fn open(&self) -> Result<Box<dyn Carried>, NetError> {
        Ok(match self {
            Self::Udp(connection, _) => Box::new(connection.open().await?),
            Self::Tcp(mux) => Box::new(mux.open().await?),
        })
    }
}
