//! The connection between the two gateways of a pair, made again whenever it is lost.

use std::future::pending;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use net::udp::{UdpConnection, UdpEndpoint, UdpStream};
use net::{Credentials, NetError};
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use crate::config;

/// Each end says something at least so often.
const HEARTBEAT: Duration = Duration::from_millis(200);
/// After so long without a word new connections do not wait for the trunk.
const SILENCE: Duration = Duration::from_millis(800);
/// Before the next attempt to make a trunk.
const PAUSE: Duration = Duration::from_millis(500);
/// How long the last packets may take to leave.
const FAREWELL: Duration = Duration::from_secs(2);
/// Connections of hosts that are carried at a time, at either end.
pub(crate) const MAX_CONNECTIONS: u64 = 1 << 16;

/// What the trunk is doing, told as it happens.
#[derive(Debug)]
pub enum TrunkEvent {
    /// It carries connections from now on.
    Up(SocketAddr),
    /// Nothing was heard for a while; new connections go past it.
    Silent,
    /// The other gateway is heard again.
    Back,
    /// It is gone, with the connections on it.
    Down(NetError),
}

impl TrunkEvent {
    /// Whether new connections go direct from now on.
    pub fn is_dead(&self) -> bool {
        matches!(self, Self::Silent | Self::Down(_))
    }
}

/// Opens streams to the other gateway.
#[derive(Clone, Default)]
pub(crate) struct Trunk(Arc<Mutex<Ends>>);

#[derive(Default)]
struct Ends {
    usable: Option<Arc<UdpConnection>>,
    /// The last that was made, for those who only look.
    last: Weak<UdpConnection>,
    /// What the connection's packets leave by; it is kept as long as the connection.
    endpoint: Option<Arc<UdpEndpoint>>,
}

impl Trunk {
    /// The connection, if the other gateway was heard lately.
    pub(crate) fn usable(&self) -> Option<Arc<UdpConnection>> {
        self.ends().usable.clone()
    }

    /// Whether the other gateway was heard lately.
    pub(crate) fn is_usable(&self) -> bool {
        self.ends().usable.is_some()
    }

    /// The connection, even if nothing was heard lately.
    pub(crate) fn connection(&self) -> Option<Arc<UdpConnection>> {
        self.ends().last.upgrade()
    }

    fn set(&self, connection: Option<Arc<UdpConnection>>) {
        self.ends().usable = connection;
    }

    fn ends(&self) -> MutexGuard<'_, Ends> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Once nobody holds the connection: waits for the word of it to leave, but not long, and not
    /// if nobody hears it.
    pub(crate) async fn farewell(&self) {
        let Ends { usable, endpoint, .. } = std::mem::take(&mut *self.ends());
        let heard = usable.is_some();
        drop(usable);
        if let Some(endpoint) = endpoint.filter(|_| heard) {
            let _ = timeout(FAREWELL, endpoint.idle()).await;
        }
    }

    /// Keeps the trunk up, and hands in the streams that the other gateway opens.
    ///
    /// # Errors
    /// [`NetError::Bind`] when the address cannot be used.
    pub(crate) async fn keep(
        &self,
        config: &config::Trunk,
        credentials: &Credentials,
        streams: mpsc::Sender<UdpStream>,
        events: impl Fn(TrunkEvent),
    ) -> Result<(), NetError> {
        let transport = transport(config);
        let listener = match config.listen {
            Some(address) => {
                Some(Arc::new(UdpEndpoint::listen(address, credentials.clone(), transport)?))
            }
            None => None,
        };
        self.ends().endpoint.clone_from(&listener);
        let mut newer = None;
        loop {
            let made = match newer.take() {
                Some(made) => made,
                None => tokio::select! {
                    made = accept(listener.as_deref()) => made,
                    made = call(config.peer, credentials, transport) => made,
                },
            };
            match made {
                Ok((connection, endpoint)) => {
                    if endpoint.is_some() {
                        self.ends().endpoint = endpoint;
                    }
                    events(TrunkEvent::Up(connection.address()));
                    let connection = Arc::new(connection);
                    self.ends().last = Arc::downgrade(&connection);
                    tokio::select! {
                        lost = self.carry(&connection, &streams, &events) => {
                            self.set(None);
                            events(TrunkEvent::Down(lost));
                        }
                        // The other gateway was started again: it has no use for the old trunk.
                        made = accept(listener.as_deref()) => newer = Some(made),
                    }
                }
                Err(error) => {
                    events(TrunkEvent::Down(error));
                    sleep(PAUSE).await;
                }
            }
        }
    }

    /// Until it is lost.
    async fn carry(
        &self,
        connection: &Arc<UdpConnection>,
        streams: &mpsc::Sender<UdpStream>,
        events: &impl Fn(TrunkEvent),
    ) -> NetError {
        let mut ticks = interval(HEARTBEAT);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut heard, mut quiet) = (0, Duration::ZERO);
        self.set(Some(connection.clone()));
        loop {
            tokio::select! {
                opened = connection.accept() => match opened {
                    // With no room here the other end is held back by the streams it has open.
                    Ok(stream) => drop(streams.send(stream).await),
                    Err(error) => return error,
                },
                _ = ticks.tick() => {
                    let received = connection.stats().received.0;
                    let was = quiet;
                    quiet = if received == heard { quiet + HEARTBEAT } else { Duration::ZERO };
                    heard = received;
                    if was < SILENCE && quiet >= SILENCE {
                        self.set(None);
                        events(TrunkEvent::Silent);
                    } else if was >= SILENCE && quiet.is_zero() {
                        self.set(Some(connection.clone()));
                        events(TrunkEvent::Back);
                    }
                }
            }
        }
    }
}

fn transport(config: &config::Trunk) -> net::Config {
    net::Config {
        rate_limit: config.rate,
        keep_alive: HEARTBEAT,
        idle_timeout: Duration::from_secs(config.wait.max(1)),
        max_streams: MAX_CONNECTIONS,
        ..net::Config::default()
    }
}

type Made = Result<(UdpConnection, Option<Arc<UdpEndpoint>>), NetError>;

async fn accept(listener: Option<&UdpEndpoint>) -> Made {
    match listener {
        Some(listener) => Ok((listener.accept().await?, None)),
        None => pending().await,
    }
}

/// The endpoint is to be kept as long as its connection.
async fn call(peer: Option<SocketAddr>, credentials: &Credentials, config: net::Config) -> Made {
    let Some(peer) = peer else { return pending().await };
    let endpoint = UdpEndpoint::client(peer, credentials.clone(), config)?;
    let connection = endpoint.connect(peer).await?;
    Ok((connection, Some(Arc::new(endpoint))))
}
