//! Paper 2's experiments with stock programs over its emulated trunk: 30 Mbit/s of ATM cells (27.1 of
//! payload), 175 ms. Its hosts' windows are what the route of a host here lets it have under way.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use emulator::LabOptions;
use path::Preset;
use serde_json::Value;

use crate::bench::{Goal, between};
use crate::contender::{Contender, Process, Running, find};
use crate::page::web_server;
use crate::world::{CLIENT, FAR, NEAR, SERVER, SERVERS, World, at};

/// Mbit/s of payload that the trunk carries.
const TRUNK: f64 = 27.1;
/// Seconds of a rate, and those before, which do not count.
const SECONDS: usize = 20;
const BEFORE: usize = 4;
/// The file of the paper's web server.
const WEB_FILE: usize = 572_101;
/// How much later the last connection starts where fairness is measured.
const LATE: usize = 3;

/// What is repeated.
#[derive(clap::Args)]
pub struct Options {
    /// Only experiments with this in their names: gw-eq1, gw-fig7-8, gw-table2, gw-www, gw-ftp.
    #[arg(long, default_value = "")]
    only: String,
}

/// Gives what it must have shown.
type Experiment = fn(&Path) -> io::Result<Vec<Goal>>;

/// A network of hosts as the paper has them.
#[derive(Clone, Copy)]
struct Lan {
    name: &'static str,
    scenario: &'static str,
    /// Bytes of a host's packets and of a segment, and the segments that it has under way at most.
    mtu: u32,
    segment: u32,
    window: u32,
    /// Mbit/s of the network.
    rate: u32,
}

const ATM: Lan =
    Lan { name: "ATM", scenario: "gateway-atm", mtu: 9188, segment: 8192, window: 4, rate: 140 };
const ETHERNET: Lan = Lan {
    name: "Ethernet",
    scenario: "gateway-ethernet",
    mtu: 1500,
    segment: 1460,
    window: 5,
    rate: 10,
};

/// Prints what was found; false if something was not reproduced. Without the programs it says so.
///
/// # Errors
/// One of the programs does not run.
pub fn run(program: &Path, options: &Options) -> io::Result<bool> {
    let experiments: [(&str, &str, Experiment); 5] = [
        ("gw-eq1", "iperf3", alone),
        ("gw-fig7-8", "iperf3", several),
        ("gw-table2", "iperf3", fairness),
        ("gw-www", "nginx", web),
        ("gw-ftp", "vsftpd", ftp),
    ];
    let mut reproduced = true;
    for (id, wanted, experiment) in experiments {
        if !id.contains(&options.only) {
            continue;
        }
        println!("\n{id}");
        match [wanted, "curl", "tc"].into_iter().find(|it| find(it).is_none()) {
            Some(missing) => println!("  SKIPPED: {missing} is not installed"),
            None => {
                let goals = experiment(program)?;
                reproduced &= goals.iter().fold(true, |all, goal| goal.tell() & all);
            }
        }
    }
    Ok(reproduced)
}

/// The bed of one run: hosts, and gateways or none.
struct Bed {
    world: World,
    _lab: emulator::Lab,
    _running: Running,
}

impl Bed {
    fn new(lan: Lan, contender: &Contender) -> io::Result<Self> {
        let preset = Preset::find(lan.scenario).ok_or(io::ErrorKind::NotFound)?;
        let scenario = preset.scenario().map_err(io::Error::other)?;
        let options = LabOptions { mtu: lan.mtu, ..LabOptions::default() };
        let (lab, world) = between(&scenario.path, &options)?;
        for (host, gateway, device, router) in
            [(CLIENT, NEAR, "lan", "10.1.0.1"), (SERVER, FAR, "lan", "10.2.0.1")]
        {
            let (host_name, gateway) = (world.name(host), world.name(gateway));
            let Lan { mtu, segment, window, rate, .. } = lan;
            let shaped = format!("root tbf rate {rate}mbit burst {} latency 200ms", 4 * mtu);
            world.ip(&[
                format!("-n {host_name} link set eth mtu {mtu}"),
                format!("-n {gateway} link set {device} mtu {mtu}"),
                format!(
                    "-n {host_name} route replace default via {router} congctl cubic \
                     advmss {segment} cwnd lock {window}"
                ),
            ]);
            for (name, device) in [(host_name, "eth"), (gateway, device)] {
                let words = format!("-n {name} qdisc add dev {device} {shaped}");
                succeed(Command::new("tc").args(words.split(' ')))?;
            }
            // They would take room in each segment.
            world.set(host, "ipv4/tcp_timestamps", "0");
        }
        acquaint(&world)?;
        let running = contender.start(&world)?;
        Ok(Self { world, _lab: lab, _running: running })
    }

    /// Mbit/s of connections of iperf3, second by second. The last of several may start later.
    fn rates(&self, connections: usize, late: usize) -> io::Result<Vec<Vec<f64>>> {
        let early = if late > 0 { connections - 1 } else { connections };
        thread::scope(|scope| {
            let world = &self.world;
            let first = scope.spawn(move || iperf(world, 5201, early, SECONDS + BEFORE + late));
            let last = (late > 0).then(|| {
                thread::sleep(Duration::from_secs(late as u64));
                iperf(world, 5202, 1, SECONDS + BEFORE)
            });
            let mut rates = first.join().map_err(|_| io::Error::other("iperf3"))??;
            rates.extend(last.transpose()?.into_iter().flatten());
            Ok(rates)
        })
    }

    /// Seconds that curl takes to fetch something.
    fn fetch(&self, url: &str) -> io::Result<f64> {
        let mut curl = Command::new("curl");
        curl.args(["-s", "-S", "-o", "/dev/null", "-w", "%{time_total}", url]);
        let output = self.world.on(CLIENT, || curl.output())?;
        let text = String::from_utf8_lossy(&output.stdout);
        let told = || io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned());
        if output.status.success() { text.parse().map_err(io::Error::other) } else { Err(told()) }
    }
}

/// Mbit/s of each connection of an iperf3, second by second, as its server counts them.
fn iperf(
    world: &World,
    port: u16,
    connections: usize,
    seconds: usize,
) -> io::Result<Vec<Vec<f64>>> {
    let folder = tempfile::tempdir()?;
    let serve = format!("exec iperf3 -s -J -p {port} > /dev/null");
    let _server = Process::start(world, SERVER, &serve, folder.path())?;
    thread::sleep(Duration::from_millis(300));
    let mut client = Command::new("iperf3");
    client.args(["-c", "10.2.0.2", "-J", "--get-server-output", "-p", &port.to_string()]);
    client.args(["-P", &connections.to_string(), "-t", &seconds.to_string()]);
    let output = world.on(CLIENT, || client.output())?;
    let report: Value = serde_json::from_slice(&output.stdout)?;
    let intervals = report["server_output_json"]["intervals"].as_array();
    let intervals = intervals.ok_or_else(|| io::Error::other(report.to_string()))?;
    let rate = |interval: &Value, stream: usize| {
        Some(interval["streams"][stream]["bits_per_second"].as_f64()? / 1e6)
    };
    let of = |stream| intervals.iter().filter_map(|it| rate(it, stream)).collect::<Vec<_>>();
    Ok((0..connections).map(of).collect())
}

/// Exchanges some bytes: the kernel holds to the window of a route once it has sent to a host.
fn acquaint(world: &World) -> io::Result<()> {
    let to = at(SERVERS[0], 5200);
    let listener = world.on(SERVER, || TcpListener::bind(to))?;
    let served = world.start(SERVER, move || {
        let (mut stream, _) = listener.accept()?;
        stream.write_all(&[0; 4096])?;
        stream.read_to_end(&mut Vec::new())
    });
    let mut stream = world.on(CLIENT, || TcpStream::connect(to))?;
    stream.write_all(&[0; 4096])?;
    stream.shutdown(Shutdown::Write)?;
    stream.read_to_end(&mut Vec::new())?;
    served.join().map_err(|_| io::Error::other("no exchange"))??;
    // The last packets of both.
    thread::sleep(Duration::from_millis(500));
    Ok(())
}

fn succeed(command: &mut Command) -> io::Result<()> {
    let output = command.output()?;
    let told = || io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned());
    if output.status.success() { Ok(()) } else { Err(told()) }
}

/// The mean of the seconds that count: the last ones that are whole.
fn mean(rates: &[f64]) -> f64 {
    let counted = rates.iter().rev().skip(1).take(SECONDS - 1);
    counted.clone().sum::<f64>() / counted.count().max(1) as f64
}

/// Mbit/s of all connections together.
fn together(bed: &Bed, connections: usize) -> io::Result<f64> {
    Ok(bed.rates(connections, 0)?.iter().map(|rates| mean(rates)).sum())
}

/// gw-eq1: one connection without gateways.
fn alone(_: &Path) -> io::Result<Vec<Goal>> {
    let mut goals = Vec::new();
    for (lan, paper, what) in [
        (ATM, 1.47, "within 5% of equation 1, ATM"),
        (ETHERNET, 0.33, "within 5% of equation 1, Ethernet"),
    ] {
        let found = together(&Bed::new(lan, &Contender::none())?, 1)?;
        println!("  {}: {found:.3} Mbit/s; the paper {paper}", lan.name);
        goals.push(Goal { what, holds: (found / paper - 1.0).abs() <= 0.05 });
    }
    Ok(goals)
}

/// gw-fig7-8: one to eight connections, with gateways and without.
fn several(program: &Path) -> io::Result<Vec<Goal>> {
    let mut goals = Vec::new();
    for (lan, one, more) in [(ATM, 21.2, 0.95 * TRUNK), (ETHERNET, 5.69, 6.5)] {
        let mut held = [true; 2];
        for contender in [Contender::none(), Contender::longhaul(program)] {
            let ours = contender.name == "longhaul";
            let bed = Bed::new(lan, &contender)?;
            for connections in [1, 2, 4, 8] {
                let found = together(&bed, connections)?;
                println!(
                    "  {}, {}, {connections} connections: {found:.2} Mbit/s",
                    lan.name, contender.name
                );
                let least = if connections == 1 { one } else { more };
                held[usize::from(connections > 1)] &= !ours || found >= least;
            }
        }
        goals.push(Goal { what: "one connection as in the paper", holds: held[0] });
        goals.push(Goal { what: "several as much as there is", holds: held[1] });
    }
    Ok(goals)
}

/// gw-table2: how evenly connections share, the last of which started late.
fn fairness(program: &Path) -> io::Result<Vec<Goal>> {
    let bed = Bed::new(ATM, &Contender::longhaul(program))?;
    let mut even = true;
    for connections in [2, 4, 8] {
        let found: Vec<_> = bed.rates(connections, LATE)?.iter().map(|rates| mean(rates)).collect();
        let average = found.iter().sum::<f64>() / found.len() as f64;
        let far = found.iter().map(|rate| (rate / average - 1.0).abs()).fold(0.0, f64::max);
        println!(
            "  {connections}: {average:.2} Mbit/s each, at most {:.1}% from that",
            far * 100.0
        );
        even &= far <= 0.02;
    }
    Ok(vec![Goal { what: "within 2% of the mean", holds: even }])
}

/// gw-www: a file from a web server, by a client whose window is 8 KB (five segments of Ethernet's).
fn web(program: &Path) -> io::Result<Vec<Goal>> {
    let site = tempfile::tempdir()?;
    fs::write(site.path().join("file"), vec![7; WEB_FILE])?;
    let fetch = |contender: &Contender| {
        let bed = Bed::new(ETHERNET, contender)?;
        let _server = web_server(&bed.world, site.path())?;
        bed.fetch("http://10.2.0.2/file")
    };
    let (without, with) = (fetch(&Contender::none())?, fetch(&Contender::longhaul(program))?);
    println!("  {without:.2} s alone, {with:.2} s with longhaul; the paper 13.5 and 2.6");
    Ok(vec![
        Goal { what: "at least 5.2 times as fast", holds: without / with >= 5.2 },
        Goal { what: "in at most 1.5 s", holds: with <= 1.5 },
    ])
}

/// gw-ftp: 100 MB by FTP. Without gateways a part of it shows the rate.
fn ftp(program: &Path) -> io::Result<Vec<Goal>> {
    let root = tempfile::tempdir()?;
    let parts = [(ATM, 10_000_000, 14.0), (ETHERNET, 2_000_000, 18.0)];
    for size in [100_000_000, parts[0].1, parts[1].1] {
        fs::File::create(root.path().join(size.to_string()))?.set_len(size)?;
    }
    fs::set_permissions(root.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    let fetch = |lan, contender: &Contender, size: u64| {
        let bed = Bed::new(lan, contender)?;
        let _server = ftp_server(&bed.world, root.path())?;
        let took = bed.fetch(&format!("ftp://10.2.0.2/{size}"))?;
        Ok::<_, io::Error>(size as f64 * 8e-6 / took)
    };
    let mut goals = Vec::new();
    for (lan, part, times) in parts {
        let without = fetch(lan, &Contender::none(), part)?;
        let with = fetch(lan, &Contender::longhaul(program), 100_000_000)?;
        println!("  {}: {without:.2} Mbit/s alone, {with:.2} with longhaul", lan.name);
        goals.push(Goal {
            what: "as many times as fast as in the paper",
            holds: with / without >= times,
        });
    }
    Ok(goals)
}

/// vsftpd on the server, for everybody.
fn ftp_server(world: &World, root: &Path) -> io::Result<Process> {
    let empty = root.join("empty");
    fs::create_dir_all(&empty)?;
    let text = format!(
        "listen=YES\nbackground=NO\nlisten_address=10.2.0.2\nanonymous_enable=YES\n\
         no_anon_password=YES\nanon_root={}\nsecure_chroot_dir={}\nftp_username=nobody\n\
         seccomp_sandbox=NO\nxferlog_enable=NO\n",
        root.display(),
        empty.display()
    );
    fs::write(root.join("vsftpd.conf"), text)?;
    let mut server = Process::start(world, SERVER, "exec vsftpd $FILES/vsftpd.conf", root)?;
    thread::sleep(Duration::from_millis(300));
    server.check()?;
    Ok(server)
}
