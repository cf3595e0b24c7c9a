//! A file that `longhaul cp` fetches from `longhaul serve`, watched through its `--json`.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::IpAddr;
use std::path::Path;
use std::process::{Child, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use emulator::{Host, Lab};
use serde::Deserialize;
use sim::papers::{Crossed, Crossing, Fetch};
use tempfile::TempDir;
use units::{Bytes, Rate};

use super::hosts::acquaint;
use super::{Bench, LARGE, Running, SMALL, bound, fault, ip, set, succeed};
use crate::address::DEFAULT_PORT;
use crate::paths::Paths;

/// The most that a whole file may take.
const PATIENCE: Duration = Duration::from_secs(300);

/// Carries it out.
pub fn run(
    bench: &Bench,
    crossing: &Crossing,
    fetch: &Fetch,
    seed: u64,
) -> anyhow::Result<Crossed> {
    let lab = bench.lab(crossing, "reno", seed)?;
    if let Some(window) = fetch.window {
        hold(&lab, window)?;
    }
    let hosts = 0..=fetch.beside as u16;
    let ports = hosts.map(|host| DEFAULT_PORT + host).collect::<Vec<_>>();
    let serve = |&port| serve(bench, &lab, port, &fetch.serve);
    let servers = ports.iter().map(serve).collect::<anyhow::Result<Vec<_>>>()?;
    if let Some(rate) = fetch.access {
        separate(&lab, &ports, rate)?;
    }
    let mut slows = fetch.slow.map(|rate| slow(&lab, rate)).transpose()?;
    let home = tempfile::tempdir_in(bench.folder.path())?;
    let mut crossed = Crossed::default();
    let times = if fetch.twice.is_some() { 2 } else { 1 };
    for _ in 0..times {
        let begin = |&port| Fetching::begin(bench, &lab, crossing, fetch, port, home.path());
        let begun = ports.iter().map(begin).collect::<anyhow::Result<Vec<_>>>()?;
        if fetch.twice.is_none() {
            thread::sleep(crossing.before);
        }
        let before = lab.stats();
        for (fetching, server) in begun.into_iter().zip(&servers) {
            let told =
                fetching.end().with_context(|| format!("the server said: {}", server.said()))?;
            crossed.rates.push(told.rate_from(crossing.before)?);
            crossed.streams.push(told.streams(crossing.before));
        }
        let looks = [before, lab.stats()];
        crossed.count(looks.each_ref().map(|look| (look.elapsed, &look.back.counters)));
        if let Some(target) = fetch.twice.filter(|_| crossed.stored == 0) {
            crossed.stored = stored(home.path(), lab.address(Host::Far), target);
        }
    }
    slows.as_mut().map_or(Ok(()), Running::ended_well).context("tc")?;
    crossed.fault = fault(&lab);
    Ok(crossed)
}

/// Holds both kernels to windows of that many bytes: the far one has as many whole segments under way,
/// the near one announces no more, so that our own rules know of it.
fn hold(lab: &Lab, (window, segment): (u32, u32)) -> anyhow::Result<()> {
    let near = format!("window {window} advmss {segment}");
    let far = format!("cwnd lock {}", window / segment);
    for (side, limit) in [(Host::Near, near), (Host::Far, far)] {
        let other = lab.address(side.peer());
        let route = format!("route replace {other} dev path proto static scope link {limit}");
        ip(lab.command(side, "ip"), &route)?;
        // They would take room in each segment.
        lab.enter(side, || set("ipv4/tcp_timestamps", "0"))??;
    }
    // A buffer that grows would let the window grow with it.
    lab.enter(Host::Near, || set("ipv4/tcp_moderate_rcvbuf", "0"))??;
    // What a route says of windows is kept with what is learnt of the host behind it, from now on.
    lab.enter(Host::Far, || set("ipv4/tcp_no_metrics_save", "0"))??;
    let [near, far] = [Host::Near, Host::Far].map(|side| lab.namespace(side));
    acquaint(near, far, lab.address(Host::Far))?;
    lab.enter(Host::Far, || set("ipv4/tcp_no_metrics_save", "1"))?
}

/// Starts a server at a port, and waits until it listens.
fn serve(bench: &Bench, lab: &Lab, port: u16, options: &str) -> anyhow::Result<Running> {
    let mut command = lab.command(Host::Far, &bench.program);
    command.args(["serve", "--no-remember", "--until-eof", "--root"]).arg(bench.served());
    command.args(["--listen", &format!("[::]:{port}")]);
    command.arg("--key").arg(bench.key()).args(options.split_whitespace());
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut server = Running::start(command)?;
    let output = server.child.stdout.take().context("the server has no output")?;
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line)?;
    ensure!(line.starts_with("listening on "), "the server did not start: {}", server.said());
    Ok(server)
}

/// Gives what each port sends a link of its own, which sends a packet at a time: how the others' come in
/// between tells UDT of them.
fn separate(lab: &Lab, ports: &[u16], rate: Rate) -> anyhow::Result<()> {
    let tc = |words: String| {
        let mut tc = lab.command(Host::Far, "tc");
        tc.args(words.split(' '));
        succeed(tc).map(drop)
    };
    tc("qdisc add dev path root handle 1: htb".to_owned())?;
    for (link, port) in (1..).zip(ports) {
        let rate = rate.as_bits_per_sec();
        tc(format!("class add dev path parent 1: classid 1:{link} htb rate 10gbit quantum 1500"))?;
        tc(format!("qdisc add dev path parent 1:{link} tbf rate {rate}bit burst 1600 limit 2mb"))?;
        tc(format!(
            "filter add dev path parent 1: protocol ip u32 match ip sport {port} 0xffff flowid 1:{link}"
        ))?;
    }
    Ok(())
}

/// Holds one of the connections to a rate, by the sender's kernel, once they are there.
fn slow(lab: &Lab, rate: Rate) -> anyhow::Result<Running> {
    let script = format!(
        "set -e; sleep 3; port=$(ss -Htn state established sport = :{DEFAULT_PORT} | \
         awk '{{sub(\".*:\", \"\", $4); print $4}}' | tail -n 1); \
         tc qdisc replace dev path root handle 1: htb default 1; for class in 1 2; do \
         tc class add dev path parent 1: classid 1:$class htb rate 10gbit quantum 60000; done; \
         tc qdisc add dev path parent 1:2 tbf rate {}bit burst 3000 limit 200000; \
         tc filter add dev path parent 1: protocol ip u32 match ip dport $port 0xffff flowid 1:2",
        rate.as_bits_per_sec()
    );
    let mut shell = lab.command(Host::Far, "sh");
    shell.args(["-c", &script]).stdin(Stdio::null());
    Running::start(shell)
}

/// TCP connections that reach a rate to a host, by what is remembered of it; 0 if nothing is.
fn stored(home: &Path, host: IpAddr, target: Rate) -> u64 {
    let system = Paths::of(home).known(host).system;
    system.map_or(0, |system| system.connections(target) as u64)
}

/// What `longhaul cp --json` says, as far as it matters here.
#[derive(Debug, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
enum Event {
    Progress(Point),
    Error {
        message: String,
    },
    #[serde(other)]
    Other,
}

#[derive(Clone, Copy, Debug, Deserialize)]
struct Point {
    /// Since the start.
    seconds: f64,
    /// That had arrived.
    bytes: f64,
    /// TCP connections.
    streams: Option<u64>,
}

/// A file on its way.
struct Fetching {
    cp: Child,
    to: TempDir,
    /// What must have arrived at the end, and how much of it.
    whole: Option<(&'static str, Bytes)>,
}

impl Fetching {
    /// Begins, for as long as is counted or to the end of the file.
    fn begin(
        bench: &Bench,
        lab: &Lab,
        crossing: &Crossing,
        fetch: &Fetch,
        port: u16,
        home: &Path,
    ) -> anyhow::Result<Self> {
        let to = tempfile::tempdir_in(bench.folder.path())?;
        let (file, most) = match fetch.twice {
            Some(_) => (SMALL, PATIENCE),
            None => (LARGE, crossing.before + bench.counted(crossing)),
        };
        let mut command = bound(lab.command(Host::Near, "timeout"));
        // Some more for the beginning, which comes before the first second that is told.
        let limit = (most + Duration::from_secs(2)).as_secs_f64().to_string();
        command.args(["-k", "10", "-s", "INT", &limit]).arg(&bench.program);
        command.args(["cp", "--json", "--until-eof", "--key"]).arg(bench.key());
        command.args(fetch.cp.split_whitespace()).env("LONGHAUL_HOME", home);
        if fetch.twice.is_none() {
            command.arg("--no-remember");
        }
        command.arg(format!("lh://{}:{port}/{}", lab.address(Host::Far), file.0)).arg(to.path());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let cp = command.spawn().with_context(|| format!("cannot run {command:?}"))?;
        Ok(Self { cp, to, whole: fetch.twice.map(|_| file) })
    }

    /// Waits for its end, and reads what it said.
    fn end(mut self) -> anyhow::Result<Told> {
        // The end of its input would be its own.
        let held = self.cp.stdin.take();
        let output = self.cp.wait_with_output()?;
        drop(held);
        let told = Told::read(&String::from_utf8_lossy(&output.stdout))?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(!told.0.is_empty(), "longhaul cp told nothing: {}", said.trim());
        if let Some((file, size)) = self.whole {
            let got = fs::metadata(self.to.path().join(file)).context("the file did not arrive")?;
            ensure!(got.len() == size.0, "the file did not arrive whole");
        }
        Ok(told)
    }
}

/// What it said each second.
struct Told(Vec<Point>);

impl Told {
    fn read(text: &str) -> anyhow::Result<Self> {
        let mut points = Vec::new();
        for line in text.lines() {
            match serde_json::from_str(line).with_context(|| format!("not understood: {line}"))? {
                Event::Progress(point) => points.push(point),
                Event::Error { message } => bail!("longhaul cp: {message}"),
                Event::Other => {}
            }
        }
        Ok(Self(points))
    }

    /// Those from a time on.
    fn since(&self, time: Duration) -> impl Iterator<Item = &Point> {
        self.0.iter().filter(move |point| point.seconds >= time.as_secs_f64())
    }

    /// Bit/s from a time to the end.
    fn rate_from(&self, time: Duration) -> anyhow::Result<f64> {
        let ends = self.since(time).next().zip(self.0.last());
        let ends = ends.filter(|(first, last)| last.seconds > first.seconds);
        let (first, last) = ends.context("the copy ended before anything could be counted")?;
        Ok(8.0 * (last.bytes - first.bytes) / (last.seconds - first.seconds))
    }

    /// Connections after the first second, and the most from a time to the end.
    fn streams(&self, time: Duration) -> [u64; 2] {
        let early = self.0.first().and_then(|point| point.streams);
        let most = self.since(time).filter_map(|point| point.streams).max();
        [early, most].map(Option::unwrap_or_default)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_stored_gives_the_next_number() {
        let (home, host) = (tempfile::tempdir().unwrap(), IpAddr::from([10, 0, 0, 2]));
        let target = Rate::from_bits_per_sec(12_000_000);
        assert_eq!(stored(home.path(), host, target), 0);
        let of =
            |k: u16| format!(r#"{{"{host}":{{"system":[{k},23360,200000],"learnt":{}}}}}"#, now());
        fs::write(home.path().join("paths"), of(1000)).unwrap();
        assert_eq!(stored(home.path(), host, target), 13);
        fs::write(home.path().join("paths"), of(500)).unwrap();
        assert_eq!(stored(home.path(), host, target), 25);
    }

    fn now() -> u64 {
        net::clock::wall().as_secs()
    }

    #[test]
    fn rates_are_of_what_is_counted() {
        let line = |seconds: f64, bytes: u64, streams: u64| {
            format!(
                "{{\"event\":\"progress\",\"seconds\":{seconds},\"bytes\":{bytes},\"streams\":{streams}}}\n"
            )
        };
        let text = [
            "{\"event\":\"start\"}\n".to_owned(),
            line(1.0, 1000, 1),
            line(2.0, 1500, 8),
            line(4.0, 3500, 4),
        ]
        .concat();
        let told = Told::read(&text).unwrap();
        let two = Duration::from_secs(2);
        assert!((told.rate_from(two).unwrap() - 8000.0).abs() < 1e-9);
        assert_eq!(told.streams(two), [1, 8]);
        assert!(told.rate_from(Duration::from_secs(4)).is_err());
        let error = "{\"event\":\"error\",\"message\":\"refused\"}";
        assert!(Told::read(error).err().unwrap().to_string().contains("refused"));
    }
}
