//! Four hosts in a row, each a network namespace: client, two gateways, server.

use std::fs::File;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use gateway::{Config, Event, Record, TrunkEvent};
use net::{Credentials, SharedKey};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tokio::sync::oneshot;

/// Longer than anything here takes.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// The hosts and the addresses of the links between them; `.1` is on the left.
const HOSTS: [&str; 4] = ["client", "near", "far", "server"];
const LINKS: [(&str, &str); 3] = [("10.1.0", "fd01:"), ("10.9.0", "fd09:"), ("10.2.0", "fd02:")];

pub const SERVERS: [&str; 2] = ["10.2.0.2", "fd02::2"];
const TRUNK: &str = "10.9.0.2:7273";

/// Gone when dropped.
pub struct World {
    names: Vec<String>,
}

impl World {
    /// None without the right to make one.
    pub fn new() -> Option<Self> {
        static NUMBER: Mutex<u32> = Mutex::new(0);
        let number = {
            let mut number = NUMBER.lock().unwrap();
            *number += 1;
            *number
        };
        let tag = format!("lhgw{}-{number}", std::process::id());
        let names: Vec<_> = HOSTS.iter().map(|host| format!("{tag}-{host}")).collect();
        let world = Self { names };
        for name in &world.names {
            if !ip(&format!("netns add {name}")) {
                return None;
            }
        }
        for (at, (v4, v6)) in LINKS.iter().enumerate() {
            let (left, right) = (&world.names[at], &world.names[at + 1]);
            let made = format!("link add right netns {left} type veth peer left netns {right}");
            assert!(ip(&made), "{made}");
            for (name, device, host) in [(left, "right", 1), (right, "left", 2)] {
                world.set(&[
                    format!("-n {name} link set lo up"),
                    format!("-n {name} link set {device} up"),
                    format!("-n {name} addr add {v4}.{host}/24 dev {device}"),
                    format!("-n {name} addr add {v6}:{host}/64 dev {device} nodad"),
                ]);
            }
        }
        let [client, near, far, server] = &world.names[..] else { unreachable!() };
        world.set(&[
            format!("-n {client} route add default via 10.1.0.2"),
            format!("-n {client} route add default via fd01::2"),
            format!("-n {server} route add default via 10.2.0.1"),
            format!("-n {server} route add default via fd02::1"),
            format!("-n {near} route add 10.2.0.0/24 via 10.9.0.2"),
            format!("-n {near} route add fd02::/64 via fd09::2"),
            format!("-n {far} route add 10.1.0.0/24 via 10.9.0.1"),
            format!("-n {far} route add fd01::/64 via fd09::1"),
        ]);
        for gateway in [1, 2] {
            world.on(gateway, || {
                for file in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
                    std::fs::write(format!("/proc/sys/net/{file}"), "1").unwrap();
                }
            });
        }
        Some(world)
    }

    fn set(&self, commands: &[String]) {
        for command in commands {
            assert!(ip(command), "ip {command}");
        }
    }

    /// Runs something on a host.
    pub fn on<T: Send>(&self, host: usize, run: impl FnOnce() -> T + Send) -> T {
        thread::scope(|scope| {
            let enter = self.enter(host);
            scope.spawn(|| (enter(), run()).1).join().unwrap()
        })
    }

    /// Starts something on a host that goes on beside the test.
    pub fn start<T: Send + 'static>(
        &self,
        host: usize,
        run: impl FnOnce() -> T + Send + 'static,
    ) -> JoinHandle<T> {
        let enter = self.enter(host);
        thread::spawn(move || (enter(), run()).1)
    }

    fn enter(&self, host: usize) -> impl FnOnce() + Send + use<> {
        let file = File::open(format!("/run/netns/{}", self.names[host])).unwrap();
        move || {
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
        }
    }

    /// Both gateways, once their trunk is up.
    pub fn gateways(&self, near: &str) -> [Gateway; 2] {
        let far = self.gateway(2, &format!("[trunk]\nlisten = \"{TRUNK}\"\nkey = \"-\"\n"));
        let gateways = [self.near(near), far];
        gateways.iter().for_each(Gateway::wait_for_trunk);
        gateways
    }

    /// The near gateway, not yet connected.
    pub fn near(&self, intercept: &str) -> Gateway {
        self.gateway(
            1,
            &format!(
                "[trunk]\npeer = \"{TRUNK}\"\nkey = \"-\"\n\
                 [intercept]\ninterfaces = [\"left\"]\n{intercept}"
            ),
        )
    }

    /// Neither gateway hears the other from now on.
    pub fn cut_trunk(&self) {
        let rule =
            "{ type filter hook input priority 0; udp sport 7273 drop; udp dport 7273 drop; }";
        self.nft(&format!("add table inet cut; add chain inet cut in {rule}"));
    }

    /// They hear each other again.
    pub fn mend_trunk(&self) {
        self.nft("delete table inet cut");
    }

    fn nft(&self, command: &str) {
        for gateway in [1, 2] {
            let status = self.on(gateway, || Command::new("nft").arg(command).status());
            assert!(status.unwrap().success(), "nft {command}");
        }
    }

    fn gateway(&self, host: usize, config: &str) -> Gateway {
        let config: Config = config.parse().unwrap();
        let (tell, events) = channel();
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = self.start(host, move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async {
                let key = Credentials::from(&SharedKey::from_bytes([7; 32]));
                let stop = async { drop(stopped.await) };
                let ended = gateway::run(&config, key, stop, move |event| {
                    let _ = tell.send(event);
                });
                ended.await.unwrap();
            });
        });
        Gateway { events: Mutex::new(events), stop: Some(stop), thread: Some(thread) }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for name in &self.names {
            ip(&format!("netns del {name}"));
        }
    }
}

fn ip(arguments: &str) -> bool {
    let output = Command::new("ip").args(arguments.split(' ')).output();
    output.is_ok_and(|output| output.status.success())
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
