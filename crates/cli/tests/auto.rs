//! `--transport auto` where a firewall drops UDP, from the start or in the middle.

mod support;

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use support::{Home, Server, bytes, finish, skip, start, text};

const SIZE: usize = 90_000_000;

/// A network namespace with nothing but its loopback; gone when dropped.
struct Net(Child);

impl Net {
    fn new(test: &str) -> Option<Self> {
        let script = "ip link set lo up && nft add table inet t && \
                      nft 'add chain inet t in { type filter hook input priority 0; }' && \
                      tc qdisc add dev lo root tbf rate 40mbit burst 256kb latency 100ms && \
                      echo ready && exec sleep 600";
        let mut command = Command::new("unshare");
        command.args(["--net", "sh", "-ec", script]).env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin");
        let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut net = child.ok().map(Self)?;
        let mut line = String::new();
        let _ = BufReader::new(net.0.stdout.take().unwrap()).read_line(&mut line);
        if line.trim() != "ready" {
            skip(test, "network namespaces, nft or tc are not to be had here");
            return None;
        }
        Some(net)
    }

    /// The same command, inside.
    fn inside(&self, command: &Command) -> Command {
        let mut inside = Command::new("nsenter");
        inside.arg(format!("--net=/proc/{}/ns/net", self.0.id())).arg(command.get_program());
        inside.args(command.get_args()).stdin(Stdio::null());
        inside.current_dir(command.get_current_dir().unwrap());
        inside.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        inside
    }

    fn nft(&self, rule: &str) {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{}/ns/net", self.0.id()));
        command.args(["/usr/sbin/nft", rule]);
        assert!(command.status().unwrap().success(), "{rule}");
    }

    fn serve(&self, home: &Home) -> Server {
        home.folder("root");
        let serve = home.longhaul(&["serve", "--listen", "127.0.0.1:0", "--root", "root"]);
        Server::start(&mut self.inside(&serve))
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What carried the data, in order.
fn carriers(said: &str) -> Vec<String> {
    let events = said.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let starts = events.filter(|event| event["event"] == "start");
    starts.map(|event| event["transport"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn blocked_udp_costs_a_second() {
    let Some(net) = Net::new("blocked_udp_costs_a_second") else { return };
    let home = Home::new();
    home.file("file", 1_000_000);
    let server = net.serve(&home);
    net.nft("add rule inet t in meta l4proto udp drop");
    let copy = home.longhaul(&["cp", "--json", "file", &server.url("")]);
    let output = finish(start(&mut net.inside(&copy)));
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(carriers(&text(&output.stdout)), ["tcp"]);
    assert_eq!(fs::read(home.path("root/file")).unwrap(), bytes(1_000_000));
}

#[test]
fn udp_that_is_blocked_in_the_middle_is_left_and_taken_again() {
    let Some(net) = Net::new("udp_that_is_blocked_in_the_middle_is_left_and_taken_again") else {
        return;
    };
    let home = Home::new();
    home.file("file", SIZE);
    let server = net.serve(&home);
    let copy = home.longhaul(&["cp", "--json", "file", &server.url("")]);
    let mut child = start(&mut net.inside(&copy));
    let mut said = String::new();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut wait_for = |what: &dyn Fn(&serde_json::Value) -> bool| {
        for line in lines.by_ref() {
            let line = line.unwrap();
            let event = serde_json::from_str(&line).unwrap();
            said += &line;
            said += "\n";
            if what(&event) {
                return;
            }
        }
        panic!("it did not come to that: {said}");
    };
    wait_for(&|event| event["event"] == "progress" && event["bytes"].as_u64() > Some(0));
    net.nft("add rule inet t in meta l4proto udp drop");
    wait_for(&|event| event["transport"] == "tcp" && event["event"] == "start");
    net.nft("flush chain inet t in");
    wait_for(&|event| event["event"] == "done");
    assert!(child.wait().unwrap().success());
    assert_eq!(carriers(&said), ["udp", "tcp", "udp"]);
    assert!(fs::read(home.path("root/file")).unwrap() == bytes(SIZE));
    support::wait_for_names(&home.path("root"), &["file"]);
}

#[test]
fn udp_that_carries_no_data_is_left_for_good() {
    let Some(net) = Net::new("udp_that_carries_no_data_is_left_for_good") else { return };
    let home = Home::new();
    home.file("file", SIZE);
    let server = net.serve(&home);
    // Handshakes, reports and pings pass; what carries data does not.
    net.nft("add rule inet t in meta l4proto udp @th,64,8 { 16, 25 } drop");
    let copy = home.longhaul(&["cp", "--json", "file", &server.url("")]);
    let output = finish(start(&mut net.inside(&copy)));
    assert!(output.status.success(), "{}", text(&output.stderr));
    // Long enough that UDP is tried again in the meantime.
    assert_eq!(carriers(&text(&output.stdout)), ["udp", "tcp"]);
    assert!(fs::read(home.path("root/file")).unwrap() == bytes(SIZE));
}
