//! The near gateway: holds a client's SYN until the far gateway has connected the server, then
//! lets the kernel accept it and joins the two; or passes on why there is no connection.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use net::udp::UdpStream;
use net::{Class, Priority, clock};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::interval;
use units::Instant;

use crate::config::Intercept;
use crate::dial::prepare;
use crate::nfqueue::{Held, HeldId, Queue, Verdict};
use crate::record::{Outcome, Record};
use crate::request::{Refusal, Reply, Request, Target, receive, send};
use crate::rules::mark;
use crate::splice::splice;
use crate::trunk::{MAX_CONNECTIONS, Trunk};

/// Longer than any client repeats its SYN.
const PATIENCE: Duration = Duration::from_secs(130);
/// A client that was answered and does not come within this time is gone.
const ARRIVAL: Duration = Duration::from_secs(75);

/// A client and the server that it means.
pub(crate) type Flow = (SocketAddr, SocketAddr);

/// Where a connection stands on this side.
enum State {
    /// The far gateway was asked; the SYN waits.
    Asked(HeldId),
    /// The far side is connected; the client's own connection has yet to come.
    Granted { stream: Box<UdpStream>, until: Instant },
    /// Under way.
    Joined,
}

/// What a task of ours ended with.
enum Done {
    Answered(Flow, io::Result<Result<UdpStream, Refusal>>),
    Ended(Flow, Record),
}

pub(crate) struct Interceptor {
    queue: Queue,
    listeners: (TcpListener, TcpListener),
    flows: HashMap<Flow, State>,
    tasks: JoinSet<Done>,
    trunk: Trunk,
    settings: Arc<Intercept>,
}

impl Interceptor {
    /// # Errors
    /// What the system said.
    pub(crate) async fn open(settings: &Intercept, trunk: Trunk) -> io::Result<Self> {
        let listen = |v6| net::transparent::listen(v6, settings.port);
        Ok(Self {
            queue: Queue::open(settings.queue).await?,
            listeners: (listen(false)?, listen(true)?),
            flows: HashMap::new(),
            tasks: JoinSet::new(),
            trunk,
            settings: Arc::new(settings.clone()),
        })
    }

    /// Until the kernel fails.
    pub(crate) async fn run(mut self, report: impl Fn(Record)) -> io::Result<()> {
        let mut sweep = interval(ARRIVAL / 4);
        loop {
            tokio::select! {
                held = self.queue.next() => {
                    for packet in held? {
                        self.arrived(&packet, &report)?;
                    }
                }
                accepted = self.listeners.0.accept() => self.accepted(accepted),
                accepted = self.listeners.1.accept() => self.accepted(accepted),
                Some(done) = self.tasks.join_next() => match done.map_err(io::Error::other)? {
                    Done::Answered(flow, answer) => self.answered(flow, answer, &report)?,
                    Done::Ended(flow, record) => {
                        self.flows.remove(&flow);
                        report(record);
                    }
                },
                _ = sweep.tick() => {
                    let now = clock::now();
                    self.flows.retain(|_, state| {
                        !matches!(state, State::Granted { until, .. } if *until < now)
                    });
                }
            }
        }
    }

    /// A client's SYN.
    fn arrived(&mut self, packet: &Held, report: &impl Fn(Record)) -> io::Result<()> {
        let settle = |verdict| self.queue.settle(packet.id(), &verdict);
        let Some(flow) = flow(&packet.bytes) else {
            return settle(Verdict::Pass { mark: mark::PASSED });
        };
        match self.flows.get(&flow) {
            // Repeated while it waits: one is enough (RFC 9293, 3.8.1).
            Some(State::Asked(_)) => return settle(Verdict::Drop),
            Some(_) => return settle(Verdict::Pass { mark: mark::TAKEN }),
            None => {}
        }
        let connection = match self.trunk.usable() {
            Some(connection) if (self.flows.len() as u64) < MAX_CONNECTIONS => connection,
            _ => {
                report(Record::of(flow, Outcome::Bypassed));
                return settle(Verdict::Pass { mark: mark::PASSED });
            }
        };
        let priority = priority(flow, &self.settings);
        self.flows.insert(flow, State::Asked(packet.id()));
        self.tasks.spawn(async move {
            let ask = async {
                let mut stream = connection.open().await?;
                stream.set_priority(priority);
                let (client, server) = flow;
                let server = Target::Address(server);
                send(&mut stream, &Request { client, server, transparent: true }).await?;
                let reply: Reply = receive(&mut stream).await?;
                Ok(reply.map(|()| stream))
            };
            let answer = tokio::time::timeout(PATIENCE, ask).await;
            Done::Answered(flow, answer.unwrap_or_else(|_| Ok(Err(Refusal::Silence))))
        });
        Ok(())
    }

    /// The far gateway said what came of it.
    fn answered(
        &mut self,
        flow: Flow,
        answer: io::Result<Result<UdpStream, Refusal>>,
        report: &impl Fn(Record),
    ) -> io::Result<()> {
        let Some(State::Asked(held)) = self.flows.remove(&flow) else { return Ok(()) };
        let (verdict, outcome) = match answer {
            Ok(Ok(stream)) => {
                let until = clock::now() + ARRIVAL;
                self.flows.insert(flow, State::Granted { stream: Box::new(stream), until });
                return self.queue.settle(held, &Verdict::Pass { mark: mark::TAKEN });
            }
            Ok(Err(refusal)) => (verdict(refusal), Outcome::Refused(refusal)),
            // The trunk is gone: the kernel takes the SYN on as if we were not there.
            Err(_) => (Verdict::Pass { mark: mark::PASSED }, Outcome::Bypassed),
        };
        report(Record::of(flow, outcome));
        self.queue.settle(held, &verdict)
    }

    /// The kernel has accepted a client, whose connection is at the server's address here.
    fn accepted(&mut self, accepted: io::Result<(TcpStream, SocketAddr)>) {
        // One that is gone already, or too many open files: the client hears a reset, or repeats.
        let Ok((client, address)) = accepted else { return };
        let Ok(server) = client.local_addr() else { return };
        let flow = (address, server);
        if prepare(&client).is_err() {
            return;
        }
        match self.flows.insert(flow, State::Joined) {
            Some(State::Granted { stream, .. }) => {
                self.tasks.spawn(async move {
                    let passed = splice(client, *stream).await;
                    Done::Ended(flow, Record::of(flow, Outcome::Carried(passed)))
                });
            }
            _ => self.accepted_early(flow, client),
        }
    }

    /// A client that was answered before the server was asked, as the settings wish.
    fn accepted_early(&mut self, flow: Flow, client: TcpStream) {
        let (trunk, priority) = (self.trunk.clone(), priority(flow, &self.settings));
        self.tasks.spawn(async move {
            let ask = async {
                let connection = trunk.usable().ok_or(io::ErrorKind::NotConnected)?;
                let mut stream = connection.open().await?;
                stream.set_priority(priority);
                let request =
                    Request { client: flow.0, server: Target::Address(flow.1), transparent: true };
                send(&mut stream, &request).await?;
                let reply: Reply = receive(&mut stream).await?;
                io::Result::Ok(reply.map(|()| stream))
            };
            let outcome = match ask.await {
                Ok(Ok(stream)) => Outcome::Carried(splice(client, stream).await),
                Ok(Err(refusal)) => reset(client, Outcome::Refused(refusal)),
                Err(_) => reset(client, Outcome::Lost),
            };
            Done::Ended(flow, Record::of(flow, outcome))
        });
    }
}

fn reset(mut client: TcpStream, outcome: Outcome) -> Outcome {
    crate::splice::End::abort(&mut client);
    outcome
}

/// How a refusal reaches the client: as if it were alone with the server.
fn verdict(refusal: Refusal) -> Verdict {
    let mark = match refusal {
        Refusal::Refused => mark::REFUSED,
        Refusal::HostUnreachable | Refusal::NoSuchHost => mark::NO_HOST,
        Refusal::NetworkUnreachable => mark::NO_NETWORK,
        Refusal::Prohibited => mark::FORBIDDEN,
        // The next SYN asks again.
        Refusal::Silence | Refusal::Failed => return Verdict::Drop,
    };
    Verdict::Pass { mark }
}

/// Clients share the trunk evenly, however many connections each has (paper 2).
fn priority((client, server): Flow, settings: &Intercept) -> Priority {
    let interactive = settings.interactive.iter().any(|ports| ports.contain(server.port()));
    let class = if interactive { Class::Interactive } else { Class::Bulk };
    Priority { class, group: crate::host(client.ip()), ..Priority::default() }
}

fn flow(packet: &[u8]) -> Option<Flow> {
    // What the kernel copied is shorter than the packet says.
    let sliced = SlicedPacket::from_ip(packet).ok()?;
    let Some(TransportSlice::Tcp(tcp)) = sliced.transport else { return None };
    let (from, to) = match sliced.net? {
        NetSlice::Ipv4(ip) => {
            let header = ip.header();
            (header.source_addr().into(), header.destination_addr().into())
        }
        NetSlice::Ipv6(ip) => {
            let header = ip.header();
            (header.source_addr().into(), header.destination_addr().into())
        }
        NetSlice::Arp(_) => return None,
    };
    Some((SocketAddr::new(from, tcp.source_port()), SocketAddr::new(to, tcp.destination_port())))
}
