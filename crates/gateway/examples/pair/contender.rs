//! Who stands between client and server.

use std::io::{self, BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;
use std::{fs, thread};

use net::SharedKey;
use rustix::process::{Pid, Signal, kill_process_group};
use tempfile::TempDir;

use crate::load::WEIGHTS;
use crate::world::{FAR, NEAR, SECOND, SERVER, VIRTUAL, World};

/// A pair of gateways, by what a shell does to start each.
pub struct Contender {
    pub name: &'static str,
    /// Commands for the near and for the far gateway, which find their files in `$FILES`; none: the
    /// hosts are left alone.
    pub commands: Option<[String; 2]>,
    /// What the near one says when it is ready; without it some time is given.
    pub ready: Option<&'static str>,
    /// The gateways' congestion control, where it is the kernel's.
    pub congestion_control: &'static str,
    /// A host with a gateway that stands by, and its command.
    beside: Option<(usize, String)>,
    /// Files that they want, by name and content.
    files: Vec<(&'static str, String)>,
}

/// Seconds after which a hurried gateway asks an idle host whether it is there, and gives up a silent
/// trunk: a thirtieth of what they are if nothing is said.
const KEEPALIVE: u64 = 20;
const WAIT: u64 = 2;
/// Time for gateways to begin that do not say when they have.
const SETTLE: Duration = Duration::from_secs(2);

impl Contender {
    /// Nobody.
    pub fn none() -> Self {
        Self {
            name: "none",
            commands: None,
            ready: None,
            congestion_control: "cubic",
            beside: None,
            files: Vec::new(),
        }
    }

    /// Commands that somebody wrote.
    pub fn commands(near: String, far: String) -> Self {
        Self { name: "these", commands: Some([near, far]), ..Self::none() }
    }

    /// This project's.
    pub fn longhaul(program: &Path) -> Self {
        let weight = |(port, weight)| {
            format!("[[intercept.weights]]\nports = [{port}]\nweight = {weight}\n")
        };
        let weights: String = WEIGHTS.map(weight).concat();
        let run = |side| format!("exec {} gateway run -c $FILES/{side}.toml", program.display());
        Self {
            name: "longhaul",
            commands: Some([run("near"), run("far")]),
            ready: Some("trunk: up"),
            files: vec![
                (
                    "near.toml",
                    format!(
                        "[trunk]\npeer = {TRUNK}[intercept]\ninterfaces = [\"lan\"]\nper_client = 16384\n{weights}"
                    ),
                ),
                ("far.toml", format!("[trunk]\nlisten = {TRUNK}")),
                ("key", format!("{}\n", SharedKey::from_bytes([7; 32]))),
            ],
            ..Self::none()
        }
    }

    /// HAProxy on both sides, TCP with BBR between them.
    pub fn haproxy() -> Self {
        let run = |device| format!("{}exec haproxy -f $FILES/haproxy.cfg", divert(device));
        Self {
            name: "HAProxy, BBR",
            commands: Some([run("lan"), run("path")]),
            congestion_control: "bbr",
            files: vec![("haproxy.cfg", HAPROXY.to_owned())],
            ..Self::none()
        }
    }

    /// sing-box with hysteria2, which is told the rate.
    pub fn sing_box(program: &Path) -> Self {
        let run = |before: &str, side| {
            format!("{before}exec {} run -c $FILES/{side}.json", program.display())
        };
        let certificate = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=far \
                           -keyout $FILES/key.pem -out $FILES/cert.pem 2>&1; cd $FILES; ";
        Self {
            name: "sing-box hysteria2",
            commands: Some([run(&divert("lan"), "near"), run(certificate, "far")]),
            files: vec![("near.json", SING_NEAR.to_owned()), ("far.json", SING_FAR.to_owned())],
            ..Self::none()
        }
    }

    /// Two of this project's beside the server, of which one stands in for the other.
    pub fn longhaul_standby(program: &Path) -> Self {
        let mut pair = Self::longhaul(program);
        let standby = format!("standby = [{STANDBY}]\nkey =");
        pair.files[0].1 = pair.files[0].1.replacen("key =", &standby, 1);
        let deliver = "[deliver]\nto = [\"10.2.0.0/24\"]\nfrom_client = false\n";
        let second = format!("[trunk]\nlisten = {STANDBY}\nkey = \"key\"\n{deliver}");
        pair.files.push(("second.toml", second));
        let run = format!("exec {} gateway run -c $FILES/second.toml", program.display());
        pair.beside = Some((SERVER, run));
        pair
    }

    /// Two of this project's beside the client, of which one has the address that they share.
    pub fn longhaul_two_near(program: &Path) -> Self {
        let mut pair = Self::longhaul(program);
        let shared = format!("[trunk]\nvirtual_address = \"{VIRTUAL}\"\n");
        pair.files[0].1 = pair.files[0].1.replacen("[trunk]\n", &shared, 1);
        pair.beside = pair.commands.as_ref().map(|[near, _]| (SECOND, near.clone()));
        pair
    }

    /// With time-outs a small part of what they are, where the settings of one of this project's say
    /// so: an idle minute is then as long to it as half an hour.
    pub fn hurried(mut self) -> Self {
        for (_, text) in self.files.iter_mut().filter(|(name, _)| name.ends_with(".toml")) {
            *text = format!("keepalive = {KEEPALIVE}\n{text}");
            *text = text.replacen("[trunk]\n", &format!("[trunk]\nwait = {WAIT}\n"), 1);
        }
        self
    }

    /// Starts all, and waits until they are ready.
    ///
    /// # Errors
    /// One ended, or never said that it was ready.
    pub fn start(&self, world: &World) -> io::Result<Running> {
        let folder = tempfile::tempdir()?;
        let mut running = Running { processes: Vec::new(), folder };
        let Some([near, far]) = &self.commands else { return Ok(running) };
        let folder = running.folder.path().to_owned();
        for (name, text) in &self.files {
            fs::write(folder.join(name), text)?;
        }
        let key = folder.join("key");
        if key.exists() {
            fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
        }
        for gateway in [NEAR, FAR] {
            world.congestion_control(gateway, self.congestion_control);
        }
        // Those first that are called, or stand by.
        let mut start = |host, command: &String| {
            running.processes.push(Process::start(world, host, command, &folder)?);
            Ok::<_, io::Error>(())
        };
        start(FAR, far)?;
        self.beside.iter().try_for_each(|(host, command)| start(*host, command))?;
        thread::sleep(Duration::from_millis(300));
        start(NEAR, near)?;
        // The near one calls all that are beside the server.
        let trunks = 1 + self.beside.iter().filter(|(host, _)| *host == SERVER).count();
        match (self.ready, running.processes.last_mut()) {
            (Some(word), Some(near)) => near.wait_for(word, trunks)?,
            _ => thread::sleep(SETTLE),
        }
        running.processes.iter_mut().for_each(Process::ignore);
        running.processes.iter_mut().try_for_each(Process::check)?;
        Ok(running)
    }
}

const TRUNK: &str = "\"10.77.0.2:7273\"\nkey = \"key\"\n";
const STANDBY: &str = "\"10.2.0.2:7280\"";

/// Turns what comes in by a device to port 7000 of its host.
fn divert(device: &str) -> String {
    format!(
        "nft 'table inet peer {{ chain in {{ type filter hook prerouting priority mangle; \
         meta l4proto tcp socket transparent 1 meta mark set 1 accept; \
         iifname {device} meta l4proto tcp fib daddr type != local \
         tproxy to :7000 meta mark set 1 accept; }}; }}'; \
         for f in -4 -6; do ip $f rule add fwmark 1 lookup 100; \
         ip $f route add local default dev lo table 100; done; "
    )
}

const HAPROXY: &str = "\
global
  maxconn 9000
defaults
  mode tcp
  timeout connect 75s
  timeout client 1h
  timeout server 1h
listen all
  bind 0.0.0.0:7000 transparent
  bind :::7000 transparent v6only
  source 0.0.0.0 usesrc client
  server any 0.0.0.0:0
";

const SING_NEAR: &str = r#"{"log": {"disabled": true},
"inbounds": [{"type": "tproxy", "listen": "::", "listen_port": 7000, "network": "tcp"}],
"outbounds": [{"type": "hysteria2", "server": "10.77.0.2", "server_port": 7273,
  "up_mbps": 950, "down_mbps": 950, "password": "x",
  "tls": {"enabled": true, "insecure": true, "server_name": "far"}}]}
"#;
const SING_FAR: &str = r#"{"log": {"disabled": true},
"inbounds": [{"type": "hysteria2", "listen": "::", "listen_port": 7273,
  "up_mbps": 950, "down_mbps": 950, "users": [{"password": "x"}],
  "tls": {"enabled": true, "certificate_path": "cert.pem", "key_path": "key.pem"}}],
"outbounds": [{"type": "direct"}]}
"#;

/// Gateways that run, the far one first, the near one last; they end when dropped.
pub struct Running {
    processes: Vec<Process>,
    /// With their files.
    folder: TempDir,
}

impl Running {
    /// Their processes; none if there are no gateways.
    pub fn pids(&self) -> Vec<u32> {
        self.processes.iter().map(|process| process.child.id()).collect()
    }

    /// Kills the far one (`kill -9`).
    pub fn kill_far(&mut self) {
        self.processes.iter_mut().take(1).for_each(Process::kill);
    }

    /// Kills the near one.
    pub fn kill_near(&mut self) {
        self.processes.iter_mut().next_back().into_iter().for_each(Process::kill);
    }
}

/// A program that runs on a host; it ends when dropped.
pub struct Process {
    child: Child,
    output: Option<BufReader<ChildStdout>>,
}

impl Process {
    /// By what a shell does, which finds `folder` in `$FILES`.
    ///
    /// # Errors
    /// The system's.
    pub fn start(world: &World, host: usize, command: &str, folder: &Path) -> io::Result<Self> {
        let mut shell = Command::new("sh");
        // Programs name what they need relative to where their settings are.
        shell.args(["-c", command]).current_dir(folder).env("FILES", folder).process_group(0);
        shell.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = world.on(host, || shell.spawn())?;
        let output = child.stdout.take().map(BufReader::new);
        Ok(Self { child, output })
    }

    /// Waits until it has said a word so many times.
    ///
    /// # Errors
    /// It ended before.
    pub fn wait_for(&mut self, word: &str, times: usize) -> io::Result<()> {
        let output = self.output.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        let (mut line, mut said) = (String::new(), 0);
        while said < times {
            line.clear();
            if output.read_line(&mut line)? == 0 {
                return Err(io::Error::other(format!("it ended before it said {word:?}")));
            }
            said += usize::from(line.contains(word));
        }
        Ok(())
    }

    /// What it says from now on is nothing to anybody, and must not block it.
    fn ignore(&mut self) {
        let output = self.output.take();
        let _ = output.map(|mut it| thread::spawn(move || io::copy(&mut it, &mut io::sink())));
    }

    fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// # Errors
    /// It has ended.
    pub fn check(&mut self) -> io::Result<()> {
        let ended = self.child.try_wait()?;
        ended.map_or(Ok(()), |status| Err(io::Error::other(format!("it ended ({status})"))))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let group = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        // It may have ended by itself.
        let _ = group.map(|group| kill_process_group(group, Signal::TERM));
        for _ in 0..50 {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            thread::sleep(Duration::from_millis(100));
        }
        let _ = group.map(|group| kill_process_group(group, Signal::KILL));
        let _ = self.child.wait();
    }
}

/// Where Go puts programs, if a program is not on the search path.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let go = std::env::home_dir().map(|home| home.join("go/bin"));
    let folders = std::env::split_paths(&path).chain(go).chain(["/usr/sbin".into()]);
    folders.map(|folder| folder.join(program)).find(|file| file.is_file())
}
