//! The near gateway: holds a client's SYN until the far gateway has connected the server, then
//! lets the kernel accept it and joins the two; or passes on why there is no connection.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use net::clock;
use net::udp::UdpStream;
use rustix::io::Errno;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{MissedTickBehavior, interval};
use units::Instant;

use crate::Event;
use crate::config::{Intercept, share};
use crate::dial::prepare;
use crate::early::{self, Served};
use crate::flows::{self, Flow, Flows, Tally};
use crate::nfqueue::{Held, HeldId, Queue, Verdict};
use crate::record::{Bypass, Outcome, Record};
use crate::request::{NO_ROOM, Refusal, Request, Target, ask_while_there_is_room};
use crate::rules::mark;
use crate::sight::{Book, Counters, Entry, Side};
use crate::splice::{End, splice};
use crate::trunk::{Link, MAX_CONNECTIONS, Trunk};

/// Longer than any client repeats its SYN.
const PATIENCE: Duration = Duration::from_secs(130);
/// A client that was answered and does not come within this time is gone.
const ARRIVAL: Duration = Duration::from_secs(75);
/// How long the SYN of a new connection waits for the end of the client's last one from the same port.
const CHANGEOVER: Duration = Duration::from_secs(1);
/// SYNs of one client that wait at a time: one that asks for many must not keep others out.
const MAX_ASKED: usize = 1024;
/// SYNs that went direct and are remembered, for they may be repeated.
const DIRECT: usize = 256;
/// SYNs that came too fast are told of no oftener.
const TOLD: Duration = Duration::from_secs(1);

/// A SYN that waits. One that is repeated has the same number; another number means another
/// connection (RFC 9293, 3.4.1).
#[derive(Clone, Copy)]
struct Syn {
    held: HeldId,
    number: u32,
    /// The trunk over which nothing came of asking.
    failed: Option<u64>,
}

/// Where a connection stands on this side.
enum State {
    /// The far gateway was asked, over the trunk of this number; the SYN waits.
    Asked { syn: Syn, link: u64, task: AbortHandle },
    /// The far side is connected; the client's own connection has yet to come.
    Granted { stream: Box<UdpStream>, until: Instant, number: u32 },
    /// Under way.
    Joined(Joined),
}

struct Joined {
    id: u64,
    /// Of its SYN, where that was held.
    number: Option<u32>,
    /// The client's next connection from the same port waits for the end of this one.
    next: Option<Syn>,
}

/// What a task of ours ended with.
enum Done {
    /// What was asked for a SYN, over the trunk of this number.
    Answered(Flow, (HeldId, u64), io::Result<Result<UdpStream, Refusal>>),
    Ended(Flow, u64, Option<Record>),
    /// A client that was answered early goes past the trunk, to a server that was connected from here.
    Direct(Flow, u64, Box<(TcpStream, TcpStream)>),
    /// A SYN has waited long enough for the end of the last connection.
    Overdue(Flow, HeldId),
    /// It may be tried again to accept.
    Rested,
}

/// Whether connections can be accepted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Files {
    Enough,
    /// There was no file for the last one.
    Scarce,
    /// There was none just now.
    Spent,
}

pub(crate) struct Interceptor {
    queue: Queue,
    /// Of the latter there is none where IPv6 is switched off.
    listeners: (TcpListener, Option<TcpListener>),
    flows: Flows<State>,
    /// How many SYNs of each client wait.
    asked: Tally,
    /// The last SYNs that went direct.
    direct: VecDeque<(Flow, u32)>,
    /// The number of the last connection that was joined.
    joined: u64,
    tasks: JoinSet<Done>,
    files: Files,
    trunk: Trunk,
    settings: Arc<Intercept>,
    /// How long a host may say nothing.
    keepalive: Duration,
    book: Book,
}

impl Interceptor {
    /// # Errors
    /// What the system said.
    pub(crate) async fn open(
        settings: &Intercept,
        keepalive: Duration,
        trunk: Trunk,
        book: Book,
    ) -> io::Result<Self> {
        let listen = |v6| net::transparent::listen(v6, settings.port);
        let has_ipv6 = net::transparent::has_ipv6;
        Ok(Self {
            queue: Queue::open(settings.queue).await?,
            listeners: (listen(false)?, has_ipv6().then(|| listen(true)).transpose()?),
            flows: Flows::new(),
            asked: Tally::default(),
            direct: VecDeque::new(),
            joined: 0,
            tasks: JoinSet::new(),
            files: Files::Enough,
            trunk,
            settings: Arc::new(settings.clone()),
            keepalive,
            book,
        })
    }

    /// Until the kernel fails.
    pub(crate) async fn run(mut self, report: impl Fn(Event)) -> io::Result<Infallible> {
        let (mut sweep, mut tell) = (interval(ARRIVAL / 4), interval(TOLD));
        tell.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut passed = 0_u32;
        let mut silent = self.trunk.silent();
        loop {
            let accepts = self.files != Files::Spent;
            tokio::select! {
                held = self.queue.next() => {
                    for packet in held? {
                        let before = self.queue.passed_before(packet.id());
                        self.book.count_unseen(before);
                        passed = passed.saturating_add(before);
                        self.arrived(&packet, &report)?;
                    }
                }
                accepted = self.listeners.0.accept(), if accepts => {
                    self.accepted(accepted, &report);
                }
                accepted = accept(self.listeners.1.as_ref()), if accepts => {
                    self.accepted(accepted, &report);
                }
                Ok(()) = silent.changed() => self.release(&report)?,
                Some(done) = self.tasks.join_next() => match done {
                    Ok(done) => self.done(done, &report)?,
                    // Its answer is of no use any more.
                    Err(error) if error.is_cancelled() => {}
                    Err(error) => return Err(io::Error::other(error)),
                },
                _ = tell.tick(), if passed > 0 => report(Event::Overrun(std::mem::take(&mut passed))),
                _ = sweep.tick() => {
                    let now = clock::now();
                    self.flows.retain(|state| {
                        !matches!(state, State::Granted { until, .. } if *until < now)
                    });
                }
            }
        }
    }

    /// What a task came to.
    fn done(&mut self, done: Done, report: &impl Fn(Event)) -> io::Result<()> {
        match done {
            Done::Answered(flow, asked, answer) => self.answered(flow, asked, answer, report),
            Done::Ended(flow, id, record) => {
                record.into_iter().for_each(|record| report(Event::Near(record)));
                let next = match self.flows.get(flow) {
                    Some(State::Joined(joined)) if joined.id == id => joined.next,
                    // The client has used its port again since.
                    _ => return Ok(()),
                };
                self.flows.remove(flow);
                next.map_or(Ok(()), |syn| self.admit(flow, syn, report))
            }
            Done::Direct(flow, id, ends) => {
                report(Event::Near(Record::of(flow, Outcome::Bypassed(Bypass::Far))));
                self.tasks.spawn(async move {
                    splice(ends.0, ends.1, &Counters::default()).await;
                    Done::Ended(flow, id, None)
                });
                Ok(())
            }
            Done::Overdue(flow, held) => match self.flows.get_mut(flow) {
                // The kernel knows what to do with a SYN for a connection that it has.
                Some(State::Joined(Joined { next: next @ Some(_), .. }))
                    if next.is_some_and(|syn| syn.held == held) =>
                {
                    *next = None;
                    self.queue.settle(held, &Verdict::Pass { mark: mark::TAKEN })
                }
                _ => Ok(()),
            },
            Done::Rested => {
                self.files = Files::Scarce;
                Ok(())
            }
        }
    }

    /// Lets those SYNs go for which nothing is heard over the trunk that was asked.
    fn release(&mut self, report: &impl Fn(Event)) -> io::Result<()> {
        let lost = |state: &State| match state {
            State::Asked { syn, link, .. } if !self.trunk.is_heard(*link) => Some((*syn, *link)),
            _ => None,
        };
        let lost: Vec<_> =
            self.flows.iter().filter_map(|(flow, state)| Some((flow, lost(state)?))).collect();
        lost.into_iter().try_for_each(|(flow, (syn, link))| {
            self.forget_asked(flow, (syn.held, link));
            self.admit(flow, syn, report)
        })
    }

    /// A client's SYN.
    fn arrived(&mut self, packet: &Held, report: &impl Fn(Event)) -> io::Result<()> {
        let held = packet.id();
        let Some((flow, number)) = flows::read(&packet.bytes) else {
            return self.queue.settle(held, &Verdict::Pass { mark: mark::PASSED });
        };
        let syn = Syn { held, number, failed: None };
        match self.flows.get_mut(flow) {
            // Repeated while it waits: one is enough (RFC 9293, 3.8.1).
            Some(&mut State::Asked { syn: asked, link, .. })
                if asked.number == number && self.trunk.is_heard(link) =>
            {
                self.queue.settle(held, &Verdict::Drop)
            }
            // Nothing has been heard since it was asked, or the client has given it up.
            Some(&mut State::Asked { syn: asked, link, .. }) => {
                self.forget_asked(flow, (asked.held, link));
                self.queue.settle(asked.held, &Verdict::Drop)?;
                self.admit(flow, syn, report)
            }
            Some(State::Joined(joined)) if joined.number != Some(number) => match joined.next {
                Some(next) if next.number == number => self.queue.settle(held, &Verdict::Drop),
                next => {
                    joined.next = Some(syn);
                    self.tasks.spawn(async move {
                        tokio::time::sleep(CHANGEOVER).await;
                        Done::Overdue(flow, held)
                    });
                    next.map_or(Ok(()), |syn| self.queue.settle(syn.held, &Verdict::Drop))
                }
            },
            Some(_) => self.queue.settle(held, &Verdict::Pass { mark: mark::TAKEN }),
            None => self.admit(flow, syn, report),
        }
    }

    /// A SYN of a connection that is not known yet.
    fn admit(&mut self, flow: Flow, syn: Syn, report: &impl Fn(Event)) -> io::Result<()> {
        let usable = self.trunk.usable_beside(syn.failed).ok_or(Bypass::NoTrunk);
        let link = match usable {
            Ok(link) if self.has_room(flow) && !link.connection.is_crowded() => link,
            other => {
                return self.pass(flow, syn, other.err().unwrap_or(Bypass::NoRoom), report);
            }
        };
        if self.is_early(flow) {
            return self.queue.settle(syn.held, &Verdict::Pass { mark: mark::TAKEN });
        }
        self.ask(flow, syn, link);
        Ok(())
    }

    /// Lets a SYN go as if no gateway were there. If it is repeated, that is told once.
    fn pass(
        &mut self,
        flow: Flow,
        syn: Syn,
        why: Bypass,
        report: &impl Fn(Event),
    ) -> io::Result<()> {
        let direct = (flow, syn.number);
        if !self.direct.contains(&direct) {
            if self.direct.len() == DIRECT {
                self.direct.pop_front();
            }
            self.direct.push_back(direct);
            report(Event::Near(Record::of(flow, Outcome::Bypassed(why))));
        }
        self.queue.settle(syn.held, &Verdict::Pass { mark: mark::PASSED })
    }

    /// Asks the far gateway for the server while the client's SYN waits.
    fn ask(&mut self, flow: Flow, syn: Syn, link: Link) {
        let (request, id) = (request(flow, &self.settings), link.id());
        let task = self.tasks.spawn(async move {
            let answer = ask_while_there_is_room(&link.connection, &request);
            let answer = tokio::time::timeout(PATIENCE, answer).await;
            let answer = answer.unwrap_or_else(|_| Ok(Err(Refusal::Silence)));
            Done::Answered(flow, (syn.held, id), answer)
        });
        self.flows.insert(flow, State::Asked { syn, link: id, task });
        self.asked.add(flow.0.ip());
    }

    /// Whether another connection of this client may be taken.
    fn has_room(&self, (client, _): Flow) -> bool {
        (self.flows.len() as u64) < MAX_CONNECTIONS
            && self.files != Files::Spent
            && self.flows.of(client.ip()) < self.settings.per_client.get() as usize
            && self.asked.of(client.ip()) < MAX_ASKED
    }

    /// Whether the client is answered before the server is asked, as the settings wish.
    fn is_early(&self, (_, server): Flow) -> bool {
        self.settings.early.iter().any(|ports| ports.contain(server.port()))
    }

    /// Gives and forgets a SYN that waits for what was asked over a trunk, if it is this one that
    /// waits, and waits for that one.
    fn forget_asked(&mut self, flow: Flow, asked: (HeldId, u64)) -> Option<Syn> {
        let syn = match self.flows.get(flow) {
            Some(State::Asked { syn, link, task }) if (syn.held, *link) == asked => {
                task.abort();
                *syn
            }
            _ => return None,
        };
        self.flows.remove(flow);
        self.asked.remove(flow.0.ip());
        Some(syn)
    }

    /// The far gateway said what came of it.
    fn answered(
        &mut self,
        flow: Flow,
        (held, link): (HeldId, u64),
        answer: io::Result<Result<UdpStream, Refusal>>,
        report: &impl Fn(Event),
    ) -> io::Result<()> {
        let Some(syn) = self.forget_asked(flow, (held, link)) else { return Ok(()) };
        let refusal = match answer {
            Ok(Ok(stream)) => {
                let until = clock::now() + ARRIVAL;
                let (stream, number) = (Box::new(stream), syn.number);
                self.flows.insert(flow, State::Granted { stream, until, number });
                return self.queue.settle(held, &Verdict::Pass { mark: mark::TAKEN });
            }
            Err(error) if error.kind() == NO_ROOM => {
                return self.pass(flow, syn, Bypass::NoRoom, report);
            }
            // There may be another trunk. Two that are heard and fail will not do better in turns.
            Err(_) if syn.failed.is_none() || !self.trunk.is_heard(link) => {
                return self.admit(flow, Syn { failed: Some(link), ..syn }, report);
            }
            Err(_) => return self.pass(flow, syn, Bypass::NoTrunk, report),
            Ok(Err(Refusal::Failed)) => return self.pass(flow, syn, Bypass::Far, report),
            Ok(Err(refusal)) => refusal,
        };
        report(Event::Near(Record::of(flow, Outcome::Refused(refusal))));
        self.queue.settle(held, &verdict(refusal))
    }

    /// The kernel has accepted a client, whose connection is at the server's address here.
    fn accepted(&mut self, accepted: io::Result<(TcpStream, SocketAddr)>, report: &impl Fn(Event)) {
        let (mut client, address) = match accepted {
            Ok(accepted) => accepted,
            Err(error) if is_short(&error) => return self.rest(error, report),
            // One that is gone already.
            Err(_) => return,
        };
        self.files = Files::Enough;
        let Ok(server) = client.local_addr() else { return };
        let flow = (address, server);
        if prepare(&client, self.keepalive).is_err() {
            return;
        }
        match self.flows.remove(flow) {
            Some(State::Granted { stream, number, .. }) => {
                let id = self.join(flow, Some(number));
                let entry = self.enter(flow);
                self.tasks.spawn(async move {
                    let passed = splice(client, *stream, entry.counters()).await;
                    Done::Ended(flow, id, Some(Record::of(flow, Outcome::Carried(passed))))
                });
            }
            // Nobody is meant by the listener's own address.
            None if self.is_early(flow) && self.has_room(flow) && !server.ip().is_loopback() => {
                self.accepted_early(flow, client);
            }
            // Not one that this gateway let come: what it is doing for others goes on.
            known => {
                client.abort();
                if let Some(state) = known {
                    self.flows.insert(flow, state);
                }
            }
        }
    }

    /// Accepts none for a while. The client waits with the kernel, which would offer it again at
    /// once.
    fn rest(&mut self, error: io::Error, report: &impl Fn(Event)) {
        if self.files == Files::Enough {
            report(Event::Full(error));
        }
        self.files = Files::Spent;
        self.tasks.spawn(async {
            tokio::time::sleep(crate::BREATH).await;
            Done::Rested
        });
    }

    /// Enters a connection that is under way, under the number that is returned.
    fn join(&mut self, flow: Flow, number: Option<u32>) -> u64 {
        self.joined += 1;
        let id = self.joined;
        self.flows.insert(flow, State::Joined(Joined { id, number, next: None }));
        id
    }

    fn enter(&self, (client, server): Flow) -> Entry {
        self.book.enter(Side::Near, client, server.to_string())
    }

    /// A client that was answered before the server was asked, as the settings wish.
    fn accepted_early(&mut self, flow: Flow, mut client: TcpStream) {
        let (trunk, request) = (self.trunk.clone(), request(flow, &self.settings));
        let (keepalive, entry) = (self.keepalive, self.enter(flow));
        let id = self.join(flow, None);
        client.cut_when_dropped();
        self.tasks.spawn(async move {
            match early::serve(client, &request, &trunk, keepalive, entry).await {
                Served::Ended(outcome) => Done::Ended(flow, id, Some(Record::of(flow, outcome))),
                Served::Direct(client, server) => Done::Direct(flow, id, (client, server).into()),
            }
        });
    }
}

/// For the server that the client means.
fn request((client, server): Flow, settings: &Intercept) -> Request {
    let server = Target::Address(server);
    let share = share(Some(settings), &server);
    Request { client, server, transparent: true, share }
}

/// Whether it is this host, or this process, that has no room for another connection.
fn is_short(error: &io::Error) -> bool {
    let short = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
    Errno::from_io_error(error).is_some_and(|error| short.contains(&error))
}

/// How a refusal reaches the client: as if it were alone with the server.
fn verdict(refusal: Refusal) -> Verdict {
    let mark = match refusal {
        Refusal::Refused => mark::REFUSED,
        Refusal::HostUnreachable | Refusal::NoSuchHost => mark::NO_HOST,
        Refusal::NetworkUnreachable => mark::NO_NETWORK,
        Refusal::Prohibited => mark::FORBIDDEN,
        Refusal::Failed => mark::PASSED,
        // The next SYN asks again.
        Refusal::Silence => return Verdict::Drop,
    };
    Verdict::Pass { mark }
}
/// The next connection of a listener, if there is one.
async fn accept(listener: Option<&TcpListener>) -> io::Result<(TcpStream, SocketAddr)> {
    match listener {
        Some(listener) => listener.accept().await,
        None => std::future::pending().await,
    }
}
