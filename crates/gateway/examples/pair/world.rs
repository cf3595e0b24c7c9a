//! Four hosts in a row, each a network namespace: client, two gateways, server.
//!
//! A gateway's device towards its host is `lan`, the one towards the other gateway `path`; a host
//! has `eth`.

use std::fs::File;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Longer than anything here takes.
pub const PATIENCE: Duration = Duration::from_secs(30);

pub const CLIENT: usize = 0;
pub const NEAR: usize = 1;
pub const FAR: usize = 2;
pub const SERVER: usize = 3;
/// A second gateway beside the client, where there is one.
#[allow(dead_code, reason = "not every program that has this file has one")]
pub const SECOND: usize = 4;
const HOSTS: [&str; 4] = ["client", "near", "far", "server"];

/// The server's addresses.
pub const SERVERS: [&str; 2] = ["10.2.0.2", "fd02::2"];
/// Addresses behind the far gateway that lead nowhere: it has no route to the first two, and the
/// others would be neighbours of the server's.
pub const NO_NETWORK: [&str; 2] = ["10.3.0.1", "fd03::1"];
pub const NO_HOST: [&str; 2] = ["10.2.0.77", "fd02::77"];
/// The gateways' on the path between them.
pub const PATH: [(&str, &str); 2] = [("10.77.0.1", "fd77::1"), ("10.77.0.2", "fd77::2")];

/// What gateways beside the client share, where there are two.
pub const VIRTUAL: &str = "10.1.0.254";

/// Gone when dropped.
pub struct World {
    names: Vec<String>,
    /// Those that were made here.
    made: Vec<String>,
}

impl World {
    /// One whose gateways are joined by a cable. None without the right to make it.
    pub fn new() -> Option<Self> {
        let mut world = Self { names: HOSTS.map(name).to_vec(), made: Vec::new() };
        for host in 0..HOSTS.len() {
            world.make(host)?;
        }
        let [near, far] = [NEAR, FAR].map(|host| &world.names[host]);
        let cable = format!("link add path netns {near} type veth peer path netns {far}");
        world.ip(&[cable]);
        for (host, (v4, v6)) in [NEAR, FAR].into_iter().zip(PATH) {
            world.attach(host, "path", (v4, 16), v6);
        }
        world.furnish();
        Some(world)
    }

    /// One whose gateways exist already, joined by something else. None without the right to make
    /// it.
    #[allow(dead_code, reason = "not every program that has this file has a path")]
    pub fn around([near, far]: [String; 2]) -> Option<Self> {
        let names = vec![name(HOSTS[CLIENT]), near, far, name(HOSTS[SERVER])];
        let mut world = Self { names, made: Vec::new() };
        world.make(CLIENT)?;
        world.make(SERVER)?;
        world.furnish();
        Some(world)
    }

    /// One with a second gateway beside the client, which has other cables to it and to the far
    /// gateway (IPv4). Packets go by the one that has [`VIRTUAL`].
    #[allow(dead_code, reason = "not every program that has this file has one")]
    pub fn with_two_near() -> Option<Self> {
        let mut world = Self::new()?;
        world.names.push(name("second"));
        world.make(SECOND)?;
        let [client, far, second] = [CLIENT, FAR, SECOND].map(|host| &world.names[host]);
        world.ip(&[
            format!("link add lan netns {second} type veth peer eth1 netns {client}"),
            format!("link add path netns {second} type veth peer path1 netns {far}"),
            format!("-n {client} link set eth1 up"),
            format!("-n {far} link set path1 up"),
        ]);
        world.attach(SECOND, "lan", ("10.1.0.3", 24), "fd01::3");
        world.attach(SECOND, "path", ("10.77.0.3", 16), "fd77::3");
        world.ip(&[
            format!("-n {client} route add 10.1.0.3 dev eth1"),
            format!("-n {far} route add 10.77.0.3 dev path1 src {}", PATH[1].0),
            format!("-n {second} route add 10.2.0.0/24 via {}", PATH[1].0),
        ]);
        world.set(SECOND, "ipv4/ip_forward", "1");
        world.give(NEAR);
        Some(world)
    }

    /// From now on this gateway beside the client has the virtual address, and no other.
    #[allow(dead_code, reason = "not every program that has this file has one")]
    pub fn give(&self, to: usize) {
        let [client, far] = [CLIENT, FAR].map(|host| &self.names[host]);
        let (other, eth, path, via) = match to {
            NEAR => (SECOND, "eth", "path", PATH[0].0),
            _ => (NEAR, "eth1", "path1", "10.77.0.3"),
        };
        let [to, other] = [to, other].map(|host| &self.names[host]);
        // It may not have it.
        let _ = run(&format!("-n {other} addr del {VIRTUAL}/24 dev lan"));
        self.ip(&[
            format!("-n {to} addr replace {VIRTUAL}/24 dev lan"),
            format!("-n {client} route replace default via {VIRTUAL} dev {eth} onlink"),
            format!("-n {far} route replace 10.1.0.0/24 via {via} dev {path}"),
        ]);
    }

    fn make(&mut self, host: usize) -> Option<()> {
        let name = self.names[host].clone();
        run(&format!("netns add {name}")).ok()?;
        self.made.push(name);
        self.ip(&[format!("-n {} link set lo up", self.names[host])]);
        Some(())
    }

    /// Joins client and server to the gateways, which forward.
    fn furnish(&self) {
        let [client, near, far, server] = [CLIENT, NEAR, FAR, SERVER].map(|host| &self.names[host]);
        for (host, name, gateway, router, net) in
            [(CLIENT, client, NEAR, near, 1), (SERVER, server, FAR, far, 2)]
        {
            self.ip(&[format!("link add lan netns {router} type veth peer eth netns {name}")]);
            self.attach(gateway, "lan", (&format!("10.{net}.0.1"), 24), &format!("fd0{net}::1"));
            self.attach(host, "eth", (&format!("10.{net}.0.2"), 24), &format!("fd0{net}::2"));
            self.ip(&[
                format!("-n {name} route add default via 10.{net}.0.1"),
                format!("-n {name} route add default via fd0{net}::1"),
            ]);
        }
        let [(near4, near6), (far4, far6)] = PATH;
        for net in [2, 3] {
            self.ip(&[
                format!("-n {near} route add 10.{net}.0.0/24 via {far4}"),
                format!("-n {near} route add fd0{net}::/64 via {far6} dev path"),
            ]);
        }
        self.ip(&[
            format!("-n {far} route add 10.1.0.0/24 via {near4}"),
            format!("-n {far} route add fd01::/64 via {near6} dev path"),
        ]);
        for gateway in [NEAR, FAR] {
            self.set(gateway, "ipv4/ip_forward", "1");
            self.set(gateway, "ipv6/conf/all/forwarding", "1");
        }
    }

    fn attach(&self, host: usize, device: &str, (v4, length): (&str, u8), v6: &str) {
        let name = &self.names[host];
        self.ip(&[
            format!("-n {name} link set {device} up"),
            format!("-n {name} addr add {v4}/{length} dev {device}"),
            format!("-n {name} addr add {v6}/64 dev {device} nodad"),
        ]);
    }

    /// Runs `ip`.
    pub fn ip(&self, commands: &[String]) {
        for command in commands {
            if let Err(said) = run(command) {
                panic!("ip {command}: {said}");
            }
        }
    }

    /// Sets one of the kernel's settings, below `/proc/sys/net`, on a host.
    pub fn set(&self, host: usize, file: &str, value: &str) {
        let path = format!("/proc/sys/net/{file}");
        self.on(host, || std::fs::write(&path, value)).unwrap_or_else(|e| panic!("{path}: {e}"));
    }

    /// Sets by which congestion control a host sends to the other side (IPv4), also one that the
    /// machine does not allow to everybody.
    #[allow(dead_code, reason = "not every program that has this file measures rates")]
    pub fn congestion_control(&self, host: usize, cc: &str) {
        let (to, via) = [
            ("default", "10.1.0.1"),
            ("10.2.0.0/24", PATH[1].0),
            ("10.1.0.0/24", PATH[0].0),
            ("default", "10.2.0.1"),
        ][host];
        let name = &self.names[host];
        self.ip(&[format!("-n {name} route replace {to} via {via} congctl {cc}")]);
    }

    /// The name of a host's namespace.
    #[allow(dead_code, reason = "not every program that has this file starts others")]
    pub fn name(&self, host: usize) -> &str {
        &self.names[host]
    }

    /// Runs something on a host.
    pub fn on<T: Send>(&self, host: usize, run: impl FnOnce() -> T + Send) -> T {
        thread::scope(|scope| {
            let enter = self.enter(host);
            scope.spawn(|| (enter(), run()).1).join().unwrap()
        })
    }

    /// Starts something on a host that goes on beside.
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

    /// Puts rules of a host's firewall in force.
    pub fn nft(&self, host: usize, script: &str) {
        let output = self.on(host, || Command::new("nft").arg(script).output().unwrap());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for name in &self.made {
            let _ = run(&format!("netns del {name}"));
        }
    }
}

/// A namespace's name that no other process and no other world has.
fn name(host: &str) -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    format!("lhgw{}-{number}-{host}", std::process::id())
}

fn run(arguments: &str) -> Result<(), String> {
    let output = Command::new("ip").args(arguments.split(' ')).output();
    match output {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Why no world can be had here, if so.
pub fn missing() -> Option<String> {
    let lacks = |program: &&str| Command::new(program).arg("-V").output().is_err();
    let program = ["ip", "nft"].into_iter().find(lacks)?;
    Some(format!("no program {program}"))
}

/// An address and a port.
pub fn at(host: &str, port: u16) -> SocketAddr {
    SocketAddr::new(host.parse().unwrap(), port)
}
