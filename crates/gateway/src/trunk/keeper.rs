//! Keeps the trunks up: calls the other gateways or takes their calls, again whenever one is lost, and sees
//! whether they are heard.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use net::udp::{UdpConnection, UdpEndpoint};
use net::{Credentials, NetError, clock};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep};
use units::Instant;

use super::{MAX_CONNECTIONS, Opened, Trunk, TrunkEvent};
use crate::config;

/// Each end says something at least so often.
const HEARTBEAT: Duration = Duration::from_millis(200);
/// After so long without a word new connections do not wait for a trunk: with half a round trip of
/// 200 ms for the last word, and the time between two looks, less than a second after it was said.
const SILENCE: Duration = Duration::from_millis(800);
/// Time between two looks.
const LOOK: Duration = Duration::from_millis(50);
/// What is longer between two looks is a stall of this process, and no silence of the other gateway.
const STALL: Duration = Duration::from_millis(200);
/// Before the next attempt to make a trunk. One that lasted no longer was none.
const PAUSE: Duration = Duration::from_millis(500);
/// How long the address to listen at may still be taken: by the last endpoint, which ends.
const RELEASE: Duration = Duration::from_secs(2);
/// Trunks that others have made, those that they have given up and that have not ended included.
const MAX_CALLERS: usize = 16;

impl Trunk {
    /// Keeps the trunks up, and hands in the streams that other gateways open.
    ///
    /// # Errors
    /// [`NetError::Bind`] when the address cannot be used.
    pub(crate) async fn keep<F>(
        &self,
        config: &config::Trunk,
        credentials: &Credentials,
        streams: mpsc::Sender<Opened>,
        events: F,
    ) -> Result<(), NetError>
    where
        F: Fn(TrunkEvent) + Clone + Send + Sync + 'static,
    {
        let transport = transport(config);
        let keeper = Keeper { trunk: self.clone(), streams, events };
        let mut tasks = JoinSet::new();
        if let Some(address) = config.listen {
            let endpoint = Arc::new(listen(address, credentials, transport).await?);
            self.links().endpoints.push(endpoint.clone());
            tasks.spawn(keeper.clone().accept(endpoint));
        }
        let peers = config.peers();
        self.links().peers.clone_from(&peers);
        for (rank, peer) in peers.into_iter().enumerate() {
            let credentials = config.credentials_for(peer, credentials);
            tasks.spawn(keeper.clone().call(rank, peer, credentials, transport));
        }
        while let Some(ended) = tasks.join_next().await {
            if let Ok(Err(error)) = ended {
                return Err(error);
            }
        }
        Ok(())
    }
}

/// Listens as soon as nobody else does.
async fn listen(
    address: SocketAddr,
    credentials: &Credentials,
    transport: net::Config,
) -> Result<UdpEndpoint, NetError> {
    let until = clock::now() + RELEASE;
    loop {
        match UdpEndpoint::listen(address, credentials.clone(), transport) {
            Err(NetError::Bind { source, .. })
                if source.kind() == ErrorKind::AddrInUse && clock::now() < until =>
            {
                sleep(LOOK).await;
            }
            made => return made,
        }
    }
}

/// What was told of a gateway.
#[derive(Default)]
struct Told {
    /// Why there is no trunk to it.
    down: Option<String>,
    /// The last one was none: the next is told of once it has lasted.
    brief: bool,
}

/// Whether another gateway is heard.
struct Hearing {
    received: u64,
    looked: Instant,
    /// How long nothing has come.
    quiet: Duration,
    silent: bool,
}

impl Hearing {
    fn new(now: Instant) -> Self {
        Self { received: 0, looked: now, quiet: Duration::ZERO, silent: false }
    }

    /// So many packets have come by now; whether it is heard, if that has changed.
    fn look(&mut self, now: Instant, received: u64) -> Option<bool> {
        // While this process had no turn nobody read what came: it has yet to be read.
        self.quiet += now.since(std::mem::replace(&mut self.looked, now)).min(STALL);
        if received != self.received {
            (self.received, self.quiet) = (received, Duration::ZERO);
        }
        let was = std::mem::replace(&mut self.silent, self.quiet >= SILENCE);
        (was != self.silent).then_some(was)
    }
}

/// What it takes to keep a trunk.
#[derive(Clone)]
struct Keeper<F> {
    trunk: Trunk,
    streams: mpsc::Sender<Opened>,
    events: F,
}

impl<F: Fn(TrunkEvent) + Clone + Send + Sync + 'static> Keeper<F> {
    /// Carries what others make. A gateway that was started again makes a new one and has no use
    /// for the old, whose connections end when nothing was heard for long enough.
    async fn accept(self, endpoint: Arc<UdpEndpoint>) -> Result<(), NetError> {
        let mut carried = JoinSet::new();
        loop {
            tokio::select! {
                made = endpoint.accept() => {
                    let (keeper, connection) = (self.clone(), made?);
                    // Whom nobody answers would wait for ever.
                    if carried.len() == MAX_CALLERS {
                        connection.close("it has as many trunks as it may");
                        continue;
                    }
                    carried.spawn(async move {
                        keeper.carry(0, connection, &mut Told::default()).await;
                    });
                }
                Some(_) = carried.join_next() => {}
            }
        }
    }

    /// Calls a peer again and again.
    async fn call(
        self,
        rank: usize,
        peer: SocketAddr,
        credentials: Credentials,
        transport: net::Config,
    ) -> Result<(), NetError> {
        let mut told = Told::default();
        loop {
            let made = async {
                let endpoint = UdpEndpoint::client(peer, credentials.clone(), transport)?;
                let connection = endpoint.connect(peer).await?;
                Ok::<_, NetError>((connection, Arc::new(endpoint)))
            };
            match made.await {
                Ok((connection, endpoint)) => {
                    self.trunk.links().endpoints.push(endpoint.clone());
                    self.carry(rank, connection, &mut told).await;
                    self.trunk.links().endpoints.retain(|known| !Arc::ptr_eq(known, &endpoint));
                    // Who is about to end takes connections, and lets them go again.
                    if told.brief {
                        sleep(PAUSE).await;
                    }
                }
                Err(error) => {
                    self.tell_down(peer, error, &mut told);
                    sleep(PAUSE).await;
                }
            }
        }
    }

    /// Until it is lost.
    async fn carry(&self, rank: usize, connection: UdpConnection, told: &mut Told) {
        let peer = connection.address();
        let connection = Arc::new(connection);
        let id = self.trunk.enter(rank, connection.clone());
        let mut ticks = interval(LOOK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let began = clock::now();
        let mut hearing = Hearing::new(began);
        let mut up = !told.brief;
        if up {
            self.tell_up(peer, told);
        }
        let lost = loop {
            // With no room here the other end is held back by the streams it has open.
            let opened = async { (self.streams.reserve().await, connection.accept().await) };
            tokio::select! {
                opened = opened => match opened {
                    (room, Ok(stream)) => {
                        let _ = room.map(|room| room.send(Opened { link: id, stream }));
                    }
                    (_, Err(error)) => break error,
                },
                _ = ticks.tick() => {
                    let now = clock::now();
                    if !up && now.since(began) >= PAUSE {
                        up = true;
                        self.tell_up(peer, told);
                    }
                    if let Some(heard) = hearing.look(now, connection.stats().received.0) {
                        self.trunk.hear(id, heard);
                        let event = if heard { TrunkEvent::Back } else { TrunkEvent::Silent };
                        (self.events)(event(peer));
                    }
                }
            }
        };
        self.trunk.leave(id);
        told.brief = clock::now().since(began) < PAUSE;
        self.tell_down(peer, lost, told);
    }

    fn tell_up(&self, peer: SocketAddr, told: &mut Told) {
        told.down = None;
        (self.events)(TrunkEvent::Up(peer));
    }

    /// Once: a gateway that is away for a day is called a hundred thousand times.
    fn tell_down(&self, peer: SocketAddr, error: NetError, told: &mut Told) {
        let text = error.to_string();
        if told.down.as_ref() != Some(&text) {
            told.down = Some(text);
            (self.events)(TrunkEvent::Down(peer, error));
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

#[cfg(test)]
mod tests {
    use net::{Identity, SharedKey};
    use tokio::io::AsyncWriteExt;
    use tokio::time::timeout;

    use super::super::FAREWELL;
    use super::super::tests::ends;
    use super::*;
    use crate::Config;

    #[tokio::test]
    async fn several_gateways_may_have_identities_of_their_own() {
        let [one, two, first, second, stranger] =
            [1, 2, 3, 4, 5].map(|byte| Identity::from_bytes([byte; 32]));
        let read = |text: String| format!("[trunk]\n{text}").parse::<Config>().unwrap().trunk;
        let called = [&first, &second].map(|identity| {
            let (key, other) = (one.public(), two.public());
            let config = read(format!(
                "listen = \"127.0.0.1:0\"\npeer_key = [\"{key}\", \"{other} of the second\"]"
            ));
            let credentials = config.credentials(identity.clone());
            UdpEndpoint::listen(config.listen.unwrap(), credentials, net::Config::default())
                .unwrap()
        });
        let [peer, standby] = [&called[0], &called[1]].map(UdpEndpoint::address);
        let (key, other) = (first.public(), second.public());
        let config = read(format!(
            "peer = \"{peer}\"\nstandby = [\"{standby}\"]\npeer_key = [\"{key}\", \"{other}\"]"
        ));
        for (identity, let_in) in [(one, true), (two, true), (stranger, false)] {
            let own = config.credentials(identity);
            for peer in config.peers() {
                let credentials = config.credentials_for(peer, &own);
                let near = UdpEndpoint::client(peer, credentials, net::Config::default()).unwrap();
                let made = near.connect(peer).await.map(drop);
                match made {
                    Ok(()) => assert!(let_in, "a stranger was let in"),
                    Err(NetError::NotAllowed { .. }) => assert!(!let_in),
                    Err(error) => panic!("{error}"),
                }
            }
        }
    }

    /// Events as they are told, and who tells them.
    fn events()
    -> (impl Fn(TrunkEvent) + Clone + Send + Sync + 'static, mpsc::UnboundedReceiver<TrunkEvent>)
    {
        let (tell, told) = mpsc::unbounded_channel();
        (move |event| drop(tell.send(event)), told)
    }

    #[tokio::test]
    async fn whom_it_has_no_room_for_is_told_so() {
        let key = SharedKey::from_bytes([7; 32]);
        let config = "[trunk]\nlisten = \"127.0.0.1:0\"\nkey = \"-\"".parse::<Config>().unwrap();
        let (trunk, credentials) = (Trunk::default(), Credentials::from(&key));
        let (streams, _opened) = mpsc::channel(1);
        let (tell, _told) = events();
        let callers = async {
            while trunk.links().endpoints.is_empty() {
                tokio::task::yield_now().await;
            }
            let address = trunk.links().endpoints[0].address();
            let near = UdpEndpoint::client(address, &key, net::Config::default()).unwrap();
            let mut carried = Vec::new();
            while carried.len() < MAX_CALLERS {
                carried.push(near.connect(address).await.unwrap());
                while trunk.links().all.len() < carried.len() {
                    sleep(LOOK).await;
                }
            }
            let one_more = near.connect(address).await.unwrap();
            let error = one_more.accept().await.err().unwrap().to_string();
            assert!(error.contains("as many trunks as it may"), "{error}");
        };
        tokio::select! {
            kept = trunk.keep(&config.trunk, &credentials, streams, tell) => kept.unwrap(),
            () = callers => {}
        }
    }

    /// What looks at these times find when so many packets have come.
    fn heard<const N: usize>(looks: [(u64, u64); N]) -> [Option<bool>; N] {
        let at = |ms| Instant::ZERO + Duration::from_millis(ms);
        let mut hearing = Hearing::new(at(0));
        looks.map(|(ms, received)| hearing.look(at(ms), received))
    }

    #[test]
    fn who_says_nothing_is_silent_after_a_time_however_rarely_one_looks() {
        let looks = [(200, 1), (400, 1), (600, 1), (999, 1), (1000, 1), (9000, 1), (9001, 2)];
        let silent = [None, None, None, None, None, Some(false), Some(true)];
        assert_eq!(heard(looks), silent);
    }

    #[test]
    fn a_stall_of_this_process_is_no_silence_of_the_other() {
        // The last word came 200 ms before the stall, and the next is read after it was looked.
        let looks = [(50, 1), (100, 1), (250, 1), (60_000, 1), (60_050, 1), (60_100, 2)];
        assert_eq!(heard(looks), [None; 6]);
    }

    #[tokio::test]
    async fn silence_is_seen_while_streams_wait_to_be_served() {
        let (near, far, endpoints) = ends(net::Config::default()).await;
        let (streams, _nobody_takes_them) = mpsc::channel(1);
        let (tell, mut told) = events();
        let keeper = Keeper { trunk: Trunk::default(), streams, events: tell };
        let mut opened = Vec::new();
        for _ in 0..3 {
            opened.push(near.open().await.unwrap());
            opened.last_mut().unwrap().write_all(b"x").await.unwrap();
        }
        let silent =
            async { while !matches!(told.recv().await.unwrap(), TrunkEvent::Silent(_)) {} };
        let mut known = Told::default();
        tokio::select! {
            () = keeper.carry(0, far, &mut known) => panic!("the trunk was not lost"),
            silent = timeout(FAREWELL * 10, silent) => silent.unwrap(),
        }
        drop((near, endpoints));
    }

    #[tokio::test]
    async fn an_address_that_is_about_to_be_free_is_waited_for() {
        let taken = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        let credentials = Credentials::from(&SharedKey::from_bytes([7; 32]));
        let release = async {
            sleep(LOOK).await;
            drop(taken);
        };
        let listens = listen(address, &credentials, net::Config::default());
        let (listens, ()) = tokio::join!(listens, release);
        assert_eq!(listens.unwrap().address(), address);
    }

    #[test]
    fn a_reason_is_told_once_until_there_was_a_trunk() {
        let (tell, mut told) = events();
        let (streams, _) = mpsc::channel(1);
        let keeper = Keeper { trunk: Trunk::default(), streams, events: tell };
        let (address, mut known) = ("192.0.2.1:7273".parse().unwrap(), Told::default());
        let wrong = || NetError::WrongKey { address };
        keeper.tell_down(address, wrong(), &mut known);
        keeper.tell_down(address, wrong(), &mut known);
        keeper.tell_down(address, NetError::Closed, &mut known);
        keeper.tell_down(address, wrong(), &mut known);
        keeper.tell_up(address, &mut known);
        keeper.tell_down(address, wrong(), &mut known);
        let texts: Vec<_> = std::iter::from_fn(|| told.try_recv().ok())
            .map(|event| match event {
                TrunkEvent::Down(_, error) => error.to_string(),
                event => format!("{event:?}"),
            })
            .collect();
        let [wrong, closed] = [wrong(), NetError::Closed].map(|error| error.to_string());
        assert_eq!(texts, [&*wrong, &closed, &wrong, "Up(192.0.2.1:7273)", &wrong]);
    }
}
