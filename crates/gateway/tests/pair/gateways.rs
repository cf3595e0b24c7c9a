//! Our own gateways in a world.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;

use gateway::{Config, Event, Record, TrunkEvent};
use net::{Credentials, SharedKey};
use rustix::process::Uid;
use rustix::thread::set_thread_uid;
use tokio::sync::oneshot;

use crate::world::{FAR, NEAR, PATIENCE, World};

const TRUNK: &str = "10.77.0.2:7273";

/// Every byte of the key that both have.
const KEY: u8 = 7;

/// Any user but root.
pub const NOBODY: u32 = 65_534;

/// Runs something as that user, beside the near gateway.
pub fn as_nobody<T: Send>(world: &World, run: impl FnOnce() -> T + Send) -> T {
    world.on(NEAR, || (become_nobody(), run()).1)
}

/// From now on this thread is that user's.
fn become_nobody() {
    set_thread_uid(Uid::from_raw(NOBODY)).unwrap();
}

/// A pair of gateways, and what happens between them.
pub trait Pair {
    /// Both, once their trunk is up.
    fn gateways(&self, near: &str) -> [Gateway; 2];
    /// The far gateway, not yet connected.
    fn far(&self) -> Gateway;
    /// The near gateway, not yet connected.
    fn near(&self, intercept: &str) -> Gateway;
    /// Neither gateway hears the other from now on.
    fn cut_trunk(&self);
    /// They hear each other again.
    fn mend_trunk(&self);
    /// One gateway, by its settings.
    fn gateway(&self, host: usize, config: &str) -> Gateway;
    /// One that has another key.
    fn stranger(&self, host: usize, config: &str, key: u8) -> Gateway;
    /// One of a user who is not root.
    fn rootless(&self, host: usize, config: &str) -> Gateway;
}

impl Pair for World {
    fn gateways(&self, near: &str) -> [Gateway; 2] {
        let gateways = [self.near(near), self.far()];
        gateways.iter().for_each(Gateway::wait_for_trunk);
        gateways
    }

    fn far(&self) -> Gateway {
        self.gateway(FAR, &format!("[trunk]\nlisten = \"{TRUNK}\"\nkey = \"-\"\n"))
    }

    fn near(&self, intercept: &str) -> Gateway {
        self.gateway(
            NEAR,
            &format!(
                "[trunk]\npeer = \"{TRUNK}\"\nkey = \"-\"\n\
                 [intercept]\ninterfaces = [\"lan\"]\n{intercept}"
            ),
        )
    }

    fn cut_trunk(&self) {
        let rule =
            "{ type filter hook input priority 0; udp sport 7273 drop; udp dport 7273 drop; }";
        for gateway in [NEAR, FAR] {
            self.nft(gateway, &format!("add table inet cut; add chain inet cut in {rule}"));
        }
    }

    fn mend_trunk(&self) {
        for gateway in [NEAR, FAR] {
            self.nft(gateway, "delete table inet cut");
        }
    }

    fn gateway(&self, host: usize, config: &str) -> Gateway {
        start(self, host, config, KEY, || ())
    }

    fn stranger(&self, host: usize, config: &str, key: u8) -> Gateway {
        start(self, host, config, key, || ())
    }

    fn rootless(&self, host: usize, config: &str) -> Gateway {
        start(self, host, config, KEY, become_nobody)
    }
}

/// Starts a gateway on a thread that does this first.
fn start(world: &World, host: usize, config: &str, key: u8, first: fn()) -> Gateway {
    let config: Config = config.parse().unwrap();
    let (tell, events) = channel();
    let (stop, stopped) = oneshot::channel::<()>();
    let thread = world.start(host, move || {
        first();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.unwrap().block_on(async {
            let key = Credentials::from(&SharedKey::from_bytes([key; 32]));
            let stop = async { drop(stopped.await) };
            let ended = gateway::run(&config, key, stop, move |event| {
                let _ = tell.send(event);
            });
            ended.await.unwrap();
        });
    });
    Gateway { events: Mutex::new(events), stop: Some(stop), thread: Some(thread) }
}

/// A gateway that runs; ends when dropped.
pub struct Gateway {
    events: Mutex<Receiver<Event>>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Gateway {
    /// Waits until it has a trunk.
    pub fn wait_for_trunk(&self) {
        self.wait(|event| matches!(event, Event::Trunk(TrunkEvent::Up(_))).then_some(()));
    }

    /// Waits until it has said that it gets on without root.
    pub fn wait_for_rootless(&self) {
        self.wait(|event| matches!(event, Event::Rootless).then_some(()));
    }

    /// Waits until it has said that another has the virtual address.
    pub fn wait_for_standing_by(&self) {
        self.wait(|event| matches!(event, Event::StandsBy(_)).then_some(()));
    }

    /// Waits for what a connection of a host came to.
    pub fn record(&self, client: SocketAddr) -> Record {
        self.wait(|event| match event {
            Event::Near(record) | Event::Far(record) if record.client == client => Some(record),
            _ => None,
        })
    }

    /// Waits until the trunk is known to be dead.
    pub fn wait_for_silence(&self) {
        self.wait(|event| {
            let dead = TrunkEvent::is_dead;
            matches!(event, Event::Trunk(event) if dead(&event)).then_some(())
        });
    }

    fn wait<T>(&self, wanted: impl Fn(Event) -> Option<T>) -> T {
        let events = self.events.lock().unwrap();
        loop {
            let event = events.recv_timeout(PATIENCE).expect("what was waited for never came");
            if let Some(found) = wanted(event) {
                return found;
            }
        }
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        drop(self.stop.take());
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Says loudly that a test cannot run here.
pub fn skip(name: &str, reason: &str) {
    eprintln!("SKIPPED: {name}: {reason}");
    if let Some(log) = std::env::var_os("LONGHAUL_SKIP_LOG") {
        let mut log = std::fs::OpenOptions::new().append(true).open(log).unwrap();
        std::io::Write::write_all(&mut log, format!("{name}: {reason}\n").as_bytes()).unwrap();
    }
}
