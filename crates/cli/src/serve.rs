//! `longhaul serve`: a directory for all who are let in.

mod handover;
mod memory;
mod turns;

use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, ensure};
use net::mux::Mux;
use net::udp::{UdpConnection, UdpEndpoint};
use net::{Credentials, NetError, PublicKey, tcp};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::task::JoinSet;
use transfer::{Direction, ServeOptions};
use units::Bytes;

use crate::args::Serve;
use crate::cp::Paced;
use crate::forward;
use crate::handover::{PUSH, TICKET};
use crate::keys::{self, Authorized, Grant, Own};
use crate::pacing::{Pacer, Pacers, RatesOfKeys};
use crate::paths::Paths;
use crate::qlog::Qlog;
use crate::signals::{self, Signals};
use crate::summary::{self, Figures};
use handover::{Ticket, Tickets};
use memory::Memory;
use turns::{Turns, Who};

/// How long clients may take to be told that the server ends.
const FAREWELL: Duration = Duration::from_secs(2);

/// Ports to try when any will do, but the same for UDP and TCP.
const PORT_TRIES: usize = 20;

/// What every request needs.
struct Service {
    root: PathBuf,
    options: Serve,
    /// Whom it lets in, unless all share one key.
    authorized: Option<Arc<Authorized>>,
    rates: RatesOfKeys,
    /// Who is let in besides, for one copy each.
    tickets: Tickets,
    /// What is known of the ways to clients.
    paths: Option<Arc<Paths>>,
    qlog: Qlog,
    /// Where it listens.
    address: SocketAddr,
    /// Requests under way.
    active: AtomicUsize,
    /// Whose turn it is with copies, with copies to other servers, and with probes.
    requests: Turns,
    pushes: Turns,
    probes: Turns,
    /// Memory that they share.
    memory: Memory,
}

/// A client, and what it may do.
struct Client {
    address: IpAddr,
    /// Whose rights it has, if it is known by a key.
    key: Option<PublicKey>,
    /// By which it has them, if it is another server.
    ticket: Option<Ticket>,
    grant: Grant,
    /// What its streams keep to.
    pacers: Pacers,
}

impl Client {
    /// Whose requests count with its own.
    fn who(&self) -> Who {
        self.key.map_or(Who::Host(ftp::server::network(self.address)), Who::Key)
    }

    /// With one more rate for what is sent to it.
    fn sent_by(mut self, pacer: &Pacer) -> Self {
        self.pacers.writing.push(pacer.clone());
        self
    }
}

impl Service {
    /// To be asked for every request: a key may have been taken from the list meanwhile.
    fn client(&self, address: SocketAddr, peer: Option<PublicKey>) -> Option<Client> {
        let address = address.ip().to_canonical();
        // Who is let in by a key needs no ticket, and is not to have another's.
        let is_known = |peer: &PublicKey| {
            self.authorized.as_ref().is_none_or(|authorized| authorized.grant(peer).is_some())
        };
        let ticket = peer.filter(|peer| !is_known(peer)).and_then(|peer| self.tickets.of(&peer));
        let peer = ticket.as_ref().map(|ticket| ticket.owner).or(peer);
        let grant = match &self.authorized {
            None => Some(Grant::default()),
            Some(authorized) => peer.and_then(|peer| authorized.grant(&peer)),
        };
        if grant.is_none() {
            say(&self.options, format_args!("{address} is not let in any more"));
        }
        let (grant, pacers) = (grant?, Pacers::default());
        let pacers = peer.map_or(pacers, |peer| self.rates.of(peer, grant.rate));
        Some(Client { address, key: peer, ticket, grant, pacers })
    }

    /// What a client sees as /.
    fn root_of(&self, client: &Client) -> PathBuf {
        let root = client.grant.root.as_ref();
        root.map_or_else(|| self.root.clone(), |root| self.root.join(root))
    }
}

/// A directory that is to be served, as the system names it.
pub fn directory(root: &Path) -> anyhow::Result<PathBuf> {
    let shown = root.display();
    ensure!(root.exists(), "cannot serve {shown}: it is not there; make it first (mkdir -p)");
    let found = root.canonicalize().with_context(|| format!("cannot serve {shown}"))?;
    ensure!(found.is_dir(), "cannot serve {shown}: it is no directory");
    Ok(found)
}

/// `longhaul serve`.
pub fn run(options: Serve) -> anyhow::Result<ExitCode> {
    let (root, shown) = (directory(&options.root)?, options.root.display().to_string());
    let tickets = Tickets::default();
    let (credentials, authorized) = doors(&options, &tickets)?;
    let qlog = Qlog::to(options.logs.qlog.as_deref())?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .max_blocking_threads(turns::threads(options.max_connections))
        .build()
        .context("cannot start threads")?;
    let ended = runtime.block_on(async {
        let mut signals = Signals::catch()?;
        let congestion_control = options.tcp_cc.clone();
        let tcp = tcp::Options { congestion_control, ..tcp::Options::default() };
        let trace = options.logs.qlog.is_some();
        let udp = transport::Config {
            trace,
            max_streams: options.max_streams,
            admission: options.max_queued,
            // Clients say how long they wait.
            idle_timeout: crate::cp::PATIENCE,
            ..options.sending.config()
        };
        let udp = (udp, options.cores);
        let (endpoint, listener) = listen(options.listen, &credentials, udp, &tcp)?;
        let ftp = crate::ftp::listen(&options, &root).await?;
        let address = endpoint.address();
        say(&options, format_args!("listening on {address} (UDP and TCP), serving {shown}"));
        let ftp =
            ftp.map(|server| crate::ftp::Running::start(server, options.quiet)).transpose()?;
        let paths = Paths::unless(options.memory.no_remember).map(Arc::new);
        let service = Arc::new(Service {
            root,
            options,
            authorized,
            rates: RatesOfKeys::default(),
            tickets,
            paths,
            qlog,
            address,
            active: AtomicUsize::new(0),
            requests: Turns::default(),
            pushes: Turns::default(),
            probes: Turns::default(),
            memory: Memory::default(),
        });
        // Counted before the transfers are dropped, as they are when one of these is ready.
        let stop = async { (signals.next().await, service.active.load(Ordering::Relaxed)) };
        let (signal, cut) = tokio::select! {
            failed = serve(&service, &endpoint, listener) => return Ok(failed?),
            stopped = stop => stopped,
            () = end_of_input(), if service.options.until_eof => return Ok(ExitCode::SUCCESS),
        };
        let _ = tokio::time::timeout(FAREWELL, endpoint.idle()).await;
        let cut = cut
            + match ftp {
                Some(ftp) => ftp.stop().await,
                None => 0,
            };
        let refused = endpoint.refusals().to_string();
        if !refused.is_empty() {
            say(&service.options, format_args!("refused over UDP: {refused}"));
        }
        if cut == 0 {
            return Ok(ExitCode::SUCCESS);
        }
        tell!("longhaul: transfers that were under way and are cut off: {cut}");
        Ok(ExitCode::from(signals::code(signal)))
    });
    // Until temporary files are removed, but not for a disk that never answers.
    runtime.shutdown_timeout(signals::GRACE);
    ended
}

/// Who is let in, and how they prove it.
fn doors(
    options: &Serve,
    tickets: &Tickets,
) -> anyhow::Result<(Credentials, Option<Arc<Authorized>>)> {
    match keys::load(&options.key)? {
        Own::Shared(key) => Ok((key.into(), None)),
        Own::Identity(identity) => {
            let file = options.authorized_keys.as_deref();
            let authorized = Arc::new(Authorized::load(file, identity.public())?);
            let (asked, tickets) = (authorized.clone(), tickets.clone());
            let allowed =
                move |key: &PublicKey| asked.grant(key).is_some() || tickets.of(key).is_some();
            let allowed = Arc::new(allowed);
            Ok((Credentials::server(identity, allowed), Some(authorized)))
        }
    }
}

/// Waits until standard input ends, on a thread of its own: one of the runtime's would keep the
/// process from ending.
pub async fn end_of_input() {
    let (tell, told) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        let _ = tell.send(());
    });
    let _ = told.await;
}

/// A reader of our lines that has gone away does not end the server.
fn say(options: &Serve, line: std::fmt::Arguments<'_>) {
    if !options.quiet {
        let _ = writeln!(std::io::stdout(), "{line}");
    }
}

/// Opens both ports. With port 0 any free one will do, but the same.
pub fn listen(
    address: SocketAddr,
    credentials: &Credentials,
    (udp, cores): (transport::Config, NonZeroUsize),
    tcp: &tcp::Options,
) -> Result<(UdpEndpoint, tcp::Listener), NetError> {
    let open = || {
        let endpoint = UdpEndpoint::listen_on_cores(address, credentials, udp, cores)?;
        let listener = tcp::Listener::bind(endpoint.address(), credentials, tcp.clone())?;
        Ok((endpoint, listener))
    };
    let tries = if address.port() == 0 { PORT_TRIES } else { 1 };
    let mut opened = open();
    for _ in 1..tries {
        if opened.is_ok() {
            break;
        }
        opened = open();
    }
    opened
}

/// Serves until a socket fails.
async fn serve(
    service: &Arc<Service>,
    endpoint: &UdpEndpoint,
    mut listener: tcp::Listener,
) -> Result<ExitCode, NetError> {
    let mut clients = JoinSet::new();
    loop {
        let has_room = clients.len() < usize::from(service.options.max_connections);
        tokio::select! {
            connection = endpoint.accept(), if has_room => {
                clients.spawn(serve_connection(service.clone(), connection?));
            }
            accepted = listener.accept_if(has_room) => {
                let (mut stream, address) = accepted?;
                let service = service.clone();
                clients.spawn(async move {
                    let Some(client) = service.client(address, stream.peer()) else { return };
                    let own = Pacer::new(service.options.sending.rate_limit);
                    let head = forward::opening(&mut stream).await;
                    if *head == forward::MUX {
                        return serve_mux(&service, address, stream, &own).await;
                    }
                    let client = client.sent_by(&own);
                    serve_stream(&service, &client, &head, &mut stream, |stream| {
                        Figures::of_tcp(&stream.stats())
                    })
                    .await;
                });
            }
            Some(_) = clients.join_next() => {}
        }
    }
}

/// Every stream of a connection is a request; the transport bounds how many there are. With the
/// first that comes under a key no longer let in, the connection ends.
async fn serve_connection(service: Arc<Service>, connection: UdpConnection) {
    let mut requests = JoinSet::new();
    service.qlog.watch(&connection, service.address);
    let host = connection.address().ip();
    if let Some(remembered) = service.paths.as_ref().and_then(|paths| paths.recall(host)) {
        connection.resume(remembered);
    }
    let mut granted = None;
    while let Ok(mut stream) = connection.accept().await {
        while requests.try_join_next().is_some() {}
        let service = service.clone();
        let Some(client) = service.client(connection.address(), connection.peer()) else { return };
        if let Some(rate) = client.grant.rate {
            connection.limit_rate(rate);
            // The connection keeps to the least that it was ever granted.
            granted = granted.into_iter().chain([rate]).min();
        }
        let limit = granted.into_iter().chain(service.options.sending.rate_limit).min();
        requests.spawn(async move {
            let head = forward::opening(&mut stream).await;
            if *head == forward::FORWARD {
                return serve_forward(&service, &client, stream).await;
            }
            serve_stream(&service, &client, &head, &mut stream, |stream| {
                Figures::of_udp(&stream.stats(), limit)
            })
            .await;
        });
    }
    // The connection is lost; its requests are about to notice, and say so.
    while requests.join_next().await.is_some() {}
    if let (Some(paths), Some(learnt)) = (service.paths.clone(), connection.remembered()) {
        let _ = tokio::task::spawn_blocking(move || paths.learn(host, learnt)).await;
    }
}

/// Serves the forwarded connections that one striped stream carries, which keep to its rate together.
async fn serve_mux(
    service: &Arc<Service>,
    address: SocketAddr,
    stream: tcp::StripedStream,
    own: &Pacer,
) {
    let peer = stream.peer();
    let mux = Mux::server(stream);
    let mut forwards = JoinSet::new();
    while let Some(mut stream) = mux.accept().await {
        while forwards.try_join_next().is_some() {}
        let service = service.clone();
        let Some(client) = service.client(address, peer) else { return };
        let client = client.sent_by(own);
        forwards.spawn(async move {
            if *forward::opening(&mut stream).await == forward::FORWARD {
                serve_forward(&service, &client, stream).await;
            }
        });
    }
    // They notice, and say so; one that waits for its target alone does not, and is cut.
    let noticing = async { while forwards.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(FAREWELL, noticing).await;
}

/// Connects a client to a target, as far as both the server and its key allow that.
async fn serve_forward<S: AsyncRead + AsyncWrite + Unpin>(
    service: &Service,
    client: &Client,
    stream: S,
) {
    if client.ticket.is_some() {
        return;
    }
    let _active = Active::new(&service.active);
    let mut lists = vec![&service.options.forward[..]];
    lists.extend(client.grant.forward.as_deref());
    let paced = Paced::by(stream, client.pacers.clone());
    let (target, outcome) = forward::forward(paced, &lists).await;
    let client = client.address;
    match outcome {
        forward::Outcome::Done => {}
        forward::Outcome::Refused(reason) => {
            say(&service.options, format_args!("{client} not forwarded: {reason}"));
        }
        forward::Outcome::Cut(error) => {
            say(&service.options, format_args!("{client} to {target:?} was cut: {error}"));
        }
    }
}

/// Serves a stream that is no forwarded connection. It begins with `head`, which was read.
async fn serve_stream<S: AsyncRead + AsyncWrite + Unpin + Send>(
    service: &Service,
    client: &Client,
    head: &[u8],
    stream: &mut S,
    figures: impl Fn(&S) -> Figures,
) {
    if head == PUSH {
        return handover::push(service, client, stream).await;
    }
    if head == TICKET {
        return handover::hold(service, client, stream).await;
    }
    let request = serve_request(service, client, head, stream, figures);
    let Some(ticket) = client.ticket.clone() else { return request.await };
    let late = async {
        ticket.ended().await;
        // What is done may come to its end in order.
        tokio::time::sleep(FAREWELL).await;
    };
    tokio::select! {
        () = request => {}
        () = late => {
            let client = client.address;
            say(&service.options, format_args!("{client} was cut: who sent it has gone"));
        }
    }
}

/// Does what one client asks, and says how it ended. The stream begins with `head`, which was read.
async fn serve_request<S: AsyncRead + AsyncWrite + Unpin + Send>(
    service: &Service,
    client: &Client,
    head: &[u8],
    stream: &mut S,
    figures: impl Fn(&S) -> Figures,
) {
    let _active = Active::new(&service.active);
    let start = net::clock::now();
    let who = client.who();
    let turn = |direction| match direction {
        Direction::Put | Direction::Get => service.requests.take(who),
        Direction::Probe => service.probes.take(who),
    };
    let root = service.root_of(client);
    let only = client.ticket.as_ref().map(|ticket| ticket.destination.clone());
    let Client { address: client, grant, pacers, .. } = client;
    let read_only = service.options.read_only || grant.read_only;
    let owners = service.options.allow_owners;
    let budget = service.memory.of(who);
    let options = ServeOptions { read_only, only, owners, budget, ..ServeOptions::default() };
    let mut pacers = pacers.clone();
    pacers.writing.push(Pacer::asked(options.asked.clone()));
    let paced = Paced::by(&mut *stream, pacers);
    let waits = paced.waits();
    let done = {
        let (reading, writing) = tokio::io::split(paced);
        let whole = tokio::io::join(head.chain(reading), writing);
        transfer::serve_in_turn(whole, root.as_path(), &options, turn).await
    };
    let elapsed = net::clock::now().since(start);
    match done {
        Ok(outcome) => {
            let way = match outcome.direction {
                Direction::Put => "put",
                Direction::Get => "get",
                // Echoes are too many to be told of.
                Direction::Probe if outcome.summary.counts.bytes == 0 => return,
                Direction::Probe => {
                    let moved = Bytes(outcome.summary.counts.bytes);
                    let line = format_args!("{client} probed the path with {moved}");
                    return say(&service.options, line);
                }
            };
            let figures = waits.add_to(figures(stream));
            let figures = figures.known(outcome.direction == Direction::Get);
            let path = Path::new("/").join(&outcome.path);
            let did = match outcome.rehearsed {
                true => summary::rehearsal(&outcome.summary),
                false => summary::sentence(&outcome.summary, elapsed, &figures),
            };
            let failed = match outcome.summary.notes.failed() {
                0 => String::new(),
                failed => format!("; {failed} failed"),
            };
            say(&service.options, format_args!("{client} {way} {path:?}: {did}{failed}"));
        }
        Err(error) => say(&service.options, format_args!("{client} failed: {error}")),
    }
}

/// Counts a request for as long as it lives.
struct Active<'a>(&'a AtomicUsize);

impl<'a> Active<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Active<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
