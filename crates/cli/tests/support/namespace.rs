//! A network of its own for one test, and what can happen to it.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};

use serde_json::Value;

use super::{Home, Server, skip};

/// A network namespace with nothing but its loopback; gone when dropped.
pub struct Net(Child);

impl Net {
    pub fn new(test: &str) -> Option<Self> {
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
    pub fn inside(&self, command: &Command) -> Command {
        let mut inside = Command::new("nsenter");
        inside.arg(format!("--net=/proc/{}/ns/net", self.0.id())).arg(command.get_program());
        inside.args(command.get_args()).stdin(Stdio::null());
        command.get_current_dir().map(|folder| inside.current_dir(folder));
        inside.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        inside
    }

    pub fn nft(&self, rule: &str) {
        assert!(self.runs(&["/usr/sbin/nft", rule]), "{rule}");
    }

    /// Whether a command succeeds inside.
    pub fn runs(&self, words: &[&str]) -> bool {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]);
        self.inside(&command).output().is_ok_and(|done| done.status.success())
    }

    /// No packet passes, until [`Net::clear`].
    pub fn black_out(&self) {
        self.nft("add rule inet t in drop");
    }

    /// Everything passes again.
    pub fn clear(&self) {
        self.nft("flush chain inet t in");
    }

    pub fn serve(&self, home: &Home) -> Server {
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
pub fn carriers(said: &str) -> Vec<String> {
    let events = said.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let starts = events.filter(|event| event["event"] == "start");
    starts.map(|event| event["transport"].as_str().unwrap().to_owned()).collect()
}

/// A copy whose `--json` is followed.
pub struct Events {
    lines: std::io::Lines<BufReader<ChildStdout>>,
    /// All that was said by now.
    pub said: String,
}

impl Events {
    pub fn of(child: &mut Child) -> Self {
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { lines, said: String::new() }
    }

    /// Reads on until it says that.
    pub fn wait_for(&mut self, what: impl Fn(&Value) -> bool) {
        for line in self.lines.by_ref() {
            let line = line.unwrap();
            self.said += &line;
            self.said += "\n";
            if what(&serde_json::from_str(&line).unwrap()) {
                return;
            }
        }
        panic!("it did not come to that: {}", self.said);
    }

    /// Reads on until something has arrived.
    pub fn wait_for_bytes(&mut self) {
        self.wait_for(|event| event["event"] == "progress" && event["bytes"].as_u64() > Some(0));
    }

    /// Reads on until the data goes this way.
    pub fn wait_for_carrier(&mut self, name: &str) {
        self.wait_for(|event| event["event"] == "start" && event["transport"] == name);
    }

    /// Reads on until it is done, and gives what carried the data, in order.
    pub fn carriers_to_the_end(mut self) -> Vec<String> {
        self.wait_for(|event| event["event"] == "done");
        carriers(&self.said)
    }
}
