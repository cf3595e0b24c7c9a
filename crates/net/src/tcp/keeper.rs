//! Keeps a stream supplied with connections: as many as its policy asks for, and one again when all
//! are lost.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use stripe::count::{Controller, Policy, Sample, TICK};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};
use transport::crypto::Credentials;
use units::Instant;

use super::connect::dial;
use super::echo::Echo;
use super::hello::{Connection, Hello};
use super::lane;
use super::options::{MAX_STREAMS, Options};
use super::pacing::Pacing;
use super::shared::Shared;
use crate::clock;
use crate::error::NetError;

/// A stream whose connections are all lost waits so long for another, and one that is over for the
/// last of them to close.
pub const ORPHAN_TIME: Duration = Duration::from_secs(10);

/// Connections that a client opens at a time; the server's table of handshakes is for all clients.
pub(super) const MAX_DIALS: usize = 128;

/// After a dial that failed, none is made for so long, doubled with each,
const PAUSE: Duration = Duration::from_millis(250);
/// but no longer than this.
const PAUSE_MAX: Duration = Duration::from_secs(4);

/// How a client opens further connections.
pub(super) struct Dialler {
    pub address: SocketAddr,
    pub credentials: Credentials,
    pub options: Options,
    pub hello: Hello,
    pub dials: JoinSet<Result<Connection, NetError>>,
    failures: u32,
    /// When to dial again.
    next: Instant,
}

impl Dialler {
    pub fn new(
        address: SocketAddr,
        credentials: Credentials,
        options: Options,
        hello: Hello,
    ) -> Self {
        let (dials, failures, next) = (JoinSet::new(), 0, Instant::ZERO);
        Self { address, credentials, options, hello, dials, failures, next }
    }

    /// Sees that so many connections are being opened, as far as that may be now.
    pub fn open(&mut self, count: usize) {
        if clock::now() < self.next {
            return;
        }
        while self.dials.len() < count.min(MAX_DIALS) {
            let (address, hello) = (self.address, self.hello);
            let (credentials, options) = (self.credentials.clone(), self.options.clone());
            self.dials.spawn(async move { dial(address, &credentials, hello, &options).await });
        }
    }

    /// Takes in how many connections have begun, and how many ended before: those count as failed.
    fn judge(&mut self, (begun, stillborn): (u32, u32)) {
        if begun > 0 {
            self.failures = 0;
        } else if stillborn > 0 {
            self.failed();
        }
    }

    fn failed(&mut self) {
        self.next = clock::now() + (PAUSE * (1 << self.failures.min(8))).min(PAUSE_MAX);
        self.failures += 1;
    }

    /// The next of the dials that ends; never when there is none.
    async fn ended(dialler: Option<&mut Self>) -> Result<Connection, NetError> {
        if let Some(dialler) = dialler
            && let Some(ended) = dialler.dials.join_next().await
        {
            return ended.expect("a dial neither panics nor is aborted");
        }
        std::future::pending().await
    }
}

/// Bytes that may wait unsent in the kernel, all connections of a stream together, unless they are of
/// BBR. What waits there can no longer go to a faster connection; a few milliseconds of a fast link keep
/// them from running dry.
const UNSENT: u64 = 1 << 20;

/// What a controller would like.
enum Wish {
    Count(usize),
    None,
    AsBefore,
}

/// What runs beside a stream until it is closed.
pub(super) struct Keeper {
    pub shared: Arc<Shared>,
    pub policy: Policy,
    /// On the client's side.
    pub dialler: Option<Dialler>,
    /// On the client's side, if it asks for echoes.
    pub echo: Option<Echo>,
}

impl Keeper {
    pub async fn run(mut self) {
        let (mut controller, mut pacing) = (self.policy.controller(), Pacing::new(self.policy));
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut waits, mut target) = (None, Some(self.policy.first()));
        while !self.shared.is_closed() {
            tokio::select! {
                ended = Dialler::ended(self.dialler.as_mut()) => {
                    self.joined(ended);
                    pacing.extend(&self.shared.sockets().0);
                    continue;
                }
                () = self.shared.changed.notified() => pacing.extend(&self.shared.sockets().0),
                _ = ticks.tick() => match self.measure(&mut *controller, &mut pacing) {
                    Wish::Count(count) => target = Some(count),
                    Wish::None => target = None,
                    Wish::AsBefore => {}
                },
            }
            let (failed, over) = (self.shared.has_failed(), self.shared.is_over());
            let (ends, width) = (failed || over, self.shared.width());
            if let Some(dialler) = &mut self.dialler {
                dialler.judge(self.shared.beginnings());
            }
            match &mut self.dialler {
                dialler if failed => *dialler = None,
                // The other side may not know: it is told over another connection.
                Some(dialler) if over && self.shared.is_deserted() => dialler.open(1),
                _ if over => {}
                _ => self.adjust(width, target),
            }
            if width > 0 && !ends {
                waits = None;
            } else if clock::now().since(*waits.get_or_insert_with(clock::now)) >= ORPHAN_TIME {
                self.shared.fail("all its connections were lost".to_owned());
                self.shared.cut();
            }
        }
    }

    fn joined(&mut self, ended: Result<Connection, NetError>) {
        let Some(dialler) = &mut self.dialler else { return };
        match ended {
            // Whether the stream takes it in is to be seen.
            Ok(connection) => lane::run(&self.shared, connection),
            // Nobody is left who could be told.
            Err(NetError::Unreachable { source, .. })
                if source.kind() == ErrorKind::ConnectionRefused && self.shared.is_over() =>
            {
                self.shared.settle();
            }
            Err(NetError::Refused { reason, .. }) if self.shared.width() == 0 => {
                self.shared.fail(format!("all its connections were lost, and: {reason}"));
            }
            Err(_) => dialler.failed(),
        }
    }

    /// How many connections the controller would like. While there is little to send it may not
    /// mind.
    fn measure(&self, controller: &mut dyn Controller, pacing: &mut Pacing) -> Wish {
        let now = clock::now();
        let idle = self.shared.tick(now);
        let (sockets, gone) = self.shared.sockets();
        let echoed = self.echo.as_ref().and_then(|echo| echo.rtt(now));
        self.shared.note_echoes(echoed);
        let echoed = echoed.or_else(|| self.shared.their_echoes());
        let Some(sample) = gone.sample(now, &sockets, echoed) else { return Wish::AsBefore };
        let delivered = self.shared.delivered();
        let mut sample = Sample { most: self.most(), delivered, idle, ..sample };
        let share = Some(UNSENT / sockets.len().max(1) as u64);
        pacing.apply(&mut sample, share, &sockets);
        let count = controller.connections(&sample).clamp(1, MAX_STREAMS);
        self.shared.learn(controller.learnt());
        match self.policy {
            Policy::Fixed(_) => Wish::AsBefore,
            _ if idle && delivered.0 > 0 => Wish::None,
            _ => Wish::Count(count),
        }
    }

    /// As many as the client may have; the server does not know.
    fn most(&self) -> usize {
        self.dialler.as_ref().map_or(MAX_STREAMS, |it| it.options.most.clamp(1, MAX_STREAMS))
    }

    /// The client opens connections and lets them go; the server only wishes.
    fn adjust(&mut self, width: usize, own: Option<usize>) {
        let most = self.most();
        let Some(dialler) = &mut self.dialler else {
            return self.shared.wish(own.unwrap_or_default());
        };
        let target = own.max(self.shared.their_wish()).unwrap_or(width).clamp(1, most);
        self.shared.aim(target);
        if width < target {
            dialler.open(target - width);
        } else {
            self.shared.drain(width - target);
        }
    }
}
