//! Paper 2's hosts: a client and a server in networks of their own, behind the two ends of a path.
//!
//! ```text
//! client eth -- lan near path ~~~~ path far lan -- eth server
//! 10.1.0.2   10.1.0.1 10.77.0.1   10.77.0.2 10.2.0.1   10.2.0.2
//! ```

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, anyhow, ensure};
use emulator::{Host, Lab, LabOptions, Namespace};
use path::{Counters, PathConfig};
use sim::papers::{Crossing, Lan, Pair};
use tempfile::TempDir;

use super::{Bench, Running, fault, ip, nameless, set, succeed};

/// The server's address.
pub const SERVER: Ipv4Addr = Ipv4Addr::new(10, 2, 0, 2);
/// Gateways find each other within this.
const MEETING: Duration = Duration::from_secs(30);
/// A port for some bytes that nobody counts.
const PORT: u16 = 5200;

/// Both hosts, and what stands between them; gone when dropped.
pub struct Hosts {
    pub client: Namespace,
    pub server: Namespace,
    /// In this order: the gateways end before their hosts do.
    gateways: Vec<Running>,
    trunk: Lab,
    /// The client's way to its gateway, when that takes time.
    home: Option<Lab>,
    /// The gateways' files.
    settings: TempDir,
}

impl Hosts {
    /// Makes them, with gateways or none.
    pub fn new(bench: &Bench, crossing: &Crossing, pair: &Pair, seed: u64) -> anyhow::Result<Self> {
        let trunk = bench.lab(crossing, "cubic", seed)?;
        let (lan, server) = (pair.lan, Namespace::new()?);
        let home = match pair.domestic {
            Duration::ZERO => None,
            delay => Some(way_home(lan, delay)?),
        };
        let client = home
            .as_ref()
            .map_or_else(Namespace::new, |lab| Ok(lab.namespace(Host::Near).clone()))?;
        match &home {
            None => attach(trunk.namespace(Host::Near), &client, lan, 1)?,
            Some(home) => attach_by(home, trunk.namespace(Host::Near), lan)?,
        }
        attach(trunk.namespace(Host::Far), &server, lan, 2)?;
        for (side, net, via) in [(Host::Near, 2, Host::Far), (Host::Far, 1, Host::Near)] {
            let route = format!("route add 10.{net}.0.0/24 via {}", trunk.address(via));
            ip(trunk.command(side, "ip"), &route)?;
            trunk.enter(side, || set("ipv4/ip_forward", "1"))??;
        }
        for host in [&client, &server] {
            // They would take room in each segment.
            host.run(|| set("ipv4/tcp_timestamps", "0"))??;
            // Labs forget what a route's window is held to with all else of earlier connections.
            host.run(|| set("ipv4/tcp_no_metrics_save", "0"))??;
        }
        let settings = tempfile::tempdir_in(bench.folder.path())?;
        let mut hosts = Self { client, server, gateways: Vec::new(), trunk, home, settings };
        acquaint(&hosts.client, &hosts.server, SERVER.into())
            .context("client and server do not reach each other")?;
        if pair.gateways {
            hosts.start_gateways(bench)?;
        }
        Ok(hosts)
    }

    /// Starts the far one, which is called, then the near one, and waits for their trunk.
    fn start_gateways(&mut self, bench: &Bench) -> anyhow::Result<()> {
        let trunk = format!(
            "\"{}:7273\"\nkey = \"{}\"\n",
            self.trunk.address(Host::Far),
            bench.key().display()
        );
        let near = format!("[trunk]\npeer = {trunk}[intercept]\ninterfaces = [\"lan\"]\n");
        for (side, text) in [(Host::Far, format!("[trunk]\nlisten = {trunk}")), (Host::Near, near)]
        {
            let file = self.settings.path().join(format!("{side}.toml"));
            std::fs::write(&file, text)?;
            let mut command = self.trunk.command(side, &bench.program);
            command.args(["gateway", "run", "-c"]).arg(file);
            command.stdin(Stdio::null()).stdout(Stdio::piped());
            self.gateways.push(Running::start(command)?);
            thread::sleep(Duration::from_millis(300));
        }
        for gateway in &mut self.gateways {
            gateway.check().context("longhaul gateway run")?;
        }
        let near = self.gateways.last_mut().and_then(|near| near.child.stdout.take());
        let output = BufReader::new(near.context("a gateway has no output")?);
        let (tell, told) = mpsc::channel();
        thread::spawn(move || {
            let mut lines = output.lines().map_while(Result::ok);
            let _ = tell.send(lines.any(|line| line.contains("trunk: up")));
            // What it says later is not to block it.
            lines.for_each(drop);
        });
        let met = told.recv_timeout(MEETING) == Ok(true);
        let said = || self.gateways.iter().map(Running::said).collect::<Vec<_>>().join("; ");
        ensure!(met, "the gateways did not find each other: {}", said());
        Ok(())
    }

    /// What the trunk has done so far with what the client sends, and since when.
    pub fn passed(&self) -> (Duration, Counters) {
        let report = self.trunk.stats();
        (report.elapsed, report.forward.counters)
    }

    /// Why what they showed does not count, if so.
    pub fn fault(&self) -> Option<String> {
        fault(&self.trunk).or_else(|| self.home.as_ref().and_then(fault))
    }
}

/// Exchanges some bytes with a server at this address: the kernel holds to the window of a route once
/// it has sent to a host.
pub fn acquaint(client: &Namespace, server: &Namespace, at: IpAddr) -> anyhow::Result<()> {
    let to = SocketAddr::new(at, PORT);
    let listener = server.run(|| TcpListener::bind(to))??;
    let served = thread::spawn(move || {
        let (mut stream, _) = listener.accept()?;
        stream.write_all(&[0; 4096])?;
        stream.read_to_end(&mut Vec::new())
    });
    let patience = Duration::from_secs(10);
    let mut stream = client.run(|| TcpStream::connect_timeout(&to, patience))??;
    stream.write_all(&[0; 4096])?;
    stream.shutdown(Shutdown::Write)?;
    stream.read_to_end(&mut Vec::new())?;
    served.join().map_err(|_| anyhow!("no exchange"))??;
    // The last packets of both.
    thread::sleep(Duration::from_millis(500));
    Ok(())
}

/// A path that takes so long there and back, from the client to one before its gateway.
fn way_home(lan: Lan, rtt: Duration) -> anyhow::Result<Lab> {
    let options = LabOptions { mtu: lan.mtu, ..nameless() };
    Ok(Lab::start(&PathConfig::new(lan.rate, rtt), &options)?)
}

/// What a host of a LAN keeps to on its way to the others.
fn limits(lan: Lan) -> String {
    format!("congctl cubic advmss {} cwnd lock {}", lan.segment, lan.window)
}

/// Joins two hosts by a cable, whose ends are `lan` and `eth`.
fn join(gateway: &Namespace, host: &Namespace, lan: Lan) -> anyhow::Result<()> {
    let mtu = lan.mtu;
    let netns = format!("/proc/{}/fd/{}", std::process::id(), host.as_fd().as_raw_fd());
    let cable = format!("link add lan mtu {mtu} type veth peer name eth mtu {mtu} netns {netns}");
    ip(gateway.command("ip"), &cable)?;
    ip(gateway.command("ip"), "link set lan up")?;
    ip(host.command("ip"), "link set eth up")
}

/// Holds what leaves by a device to the LAN's rate.
fn shape(host: &Namespace, device: &str, lan: Lan) -> anyhow::Result<()> {
    let (rate, burst) = (lan.rate.as_bits_per_sec(), 4 * lan.mtu);
    let mut tc: Command = host.command("tc");
    let words =
        format!("qdisc add dev {device} root tbf rate {rate}bit burst {burst} latency 200ms");
    tc.args(words.split(' '));
    succeed(tc).map(drop)
}

/// A host of network 10.`net` behind its gateway.
fn attach(gateway: &Namespace, host: &Namespace, lan: Lan, net: u8) -> anyhow::Result<()> {
    join(gateway, host, lan)?;
    ip(gateway.command("ip"), &format!("addr add 10.{net}.0.1/24 dev lan"))?;
    ip(host.command("ip"), "link set lo up")?;
    ip(host.command("ip"), &format!("addr add 10.{net}.0.2/24 dev eth"))?;
    let route = format!("route add default via 10.{net}.0.1 {}", limits(lan));
    ip(host.command("ip"), &route)?;
    // A gateway answers in the other host's stead, whose segments are no larger.
    let there = format!("route add 10.{net}.0.2 dev lan advmss {}", lan.segment);
    ip(gateway.command("ip"), &there)?;
    shape(gateway, "lan", lan)?;
    shape(host, "eth", lan)
}

/// The client behind a way home, at whose other end a router leads to its gateway.
fn attach_by(home: &Lab, gateway: &Namespace, lan: Lan) -> anyhow::Result<()> {
    let [client, router] = [Host::Near, Host::Far].map(|host| home.namespace(host));
    let [client_at, router_at] = [Host::Near, Host::Far].map(|host| home.address(host));
    join(gateway, router, lan)?;
    ip(gateway.command("ip"), "addr add 10.1.0.1/24 dev lan")?;
    ip(router.command("ip"), "addr add 10.1.0.3/24 dev eth")?;
    // The gateway answers in the server's stead, whose segments are no larger.
    let back = format!("route add 10.1.0.2 via 10.1.0.3 advmss {}", lan.segment);
    ip(gateway.command("ip"), &back)?;
    ip(router.command("ip"), "route add default via 10.1.0.1")?;
    ip(router.command("ip"), &format!("route add 10.1.0.2 via {client_at}"))?;
    router.run(|| set("ipv4/ip_forward", "1"))??;
    ip(client.command("ip"), "addr add 10.1.0.2/32 dev path")?;
    let route = format!("route add default via {router_at} src 10.1.0.2 {}", limits(lan));
    ip(client.command("ip"), &route)
}
