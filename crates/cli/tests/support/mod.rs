//! What the end-to-end tests share: the real binary, a server of it, trees, and bounded waits.
#![allow(dead_code, reason = "each test program uses a part")]

pub mod namespace;

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// Nothing here takes so long; whoever waits for so long has lost something.
const PATIENCE: Duration = Duration::from_secs(90);
const TICK: Duration = Duration::from_millis(20);

/// A folder for one test, with an identity.
pub struct Home(TempDir);

impl Home {
    pub fn new() -> Self {
        let home = Self(tempfile::tempdir().unwrap());
        assert!(home.longhaul(&["keygen"]).output().unwrap().status.success());
        home
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn folder(&self, name: &str) -> PathBuf {
        fs::create_dir_all(self.path(name)).unwrap();
        self.path(name)
    }

    pub fn file(&self, name: &str, size: usize) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, bytes(size)).unwrap();
        path
    }

    /// The binary under test, in this folder and with its key.
    pub fn longhaul(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
        command.args(arguments).current_dir(self.0.path());
        command.env("LONGHAUL_HOME", self.path("home")).stdin(Stdio::null());
        command
    }

    /// Runs it to its end.
    pub fn run(&self, arguments: &[&str]) -> Output {
        finish(start(&mut self.longhaul(arguments)))
    }

    /// Runs it and expects success.
    pub fn succeed(&self, arguments: &[&str]) -> Output {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        output
    }

    /// Runs it, expects this exit code, and gives what it said.
    pub fn fail(&self, code: i32, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        said
    }

    /// A server of the folder `root`, on a free port.
    pub fn serve(&self, options: &[&str]) -> Server {
        self.folder("root");
        let arguments = ["serve", "--listen", "127.0.0.1:0", "--root", "root"];
        Server::start(&mut self.longhaul(&[&arguments, options].concat()))
    }
}

/// A running server; killed when dropped.
pub struct Server {
    child: Child,
    address: String,
}

impl Server {
    pub fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        lines.read_line(&mut line).unwrap();
        let address = line.split(' ').nth(2).unwrap_or_default().to_owned();
        assert!(address.contains(':'), "no server: {line}");
        std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
        Self { child, address }
    }

    pub fn address(&self) -> &str {
        &self.address
    }

    pub fn url(&self, path: &str) -> String {
        format!("lh://{}/{path}", self.address)
    }

    pub fn signal(&self, signal: Signal) {
        send(&self.child, signal);
    }

    /// Waits until the server has a file below `root` open, be it one without a name.
    pub fn wait_until_open(&self, root: &Path) {
        self.wait_until(root, true);
    }

    /// Waits until it has none open any more.
    pub fn wait_until_closed(&self, root: &Path) {
        self.wait_until(root, false);
    }

    fn wait_until(&self, root: &Path, is_open: bool) {
        let open = || {
            let descriptors = fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap();
            descriptors.flatten().any(|fd| {
                let target = fs::read_link(fd.path()).unwrap_or_default();
                target.starts_with(root) && target != root
            })
        };
        for _ in 0..PATIENCE.as_millis() / TICK.as_millis() {
            if open() == is_open {
                return;
            }
            sleep(TICK);
        }
        panic!("the server opens no file, or closes none: {is_open}");
    }

    pub fn exit_code(mut self) -> Option<i32> {
        wait(&mut self.child).code()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn start(command: &mut Command) -> Child {
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

pub fn send(child: &Child, signal: Signal) {
    kill_process(Pid::from_raw(child.id() as i32).unwrap(), signal).unwrap();
}

/// Waits for the end of a command that nobody listens to.
pub fn wait(child: &mut Child) -> std::process::ExitStatus {
    for _ in 0..PATIENCE.as_millis() / TICK.as_millis() {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        sleep(TICK);
    }
    let _ = child.kill();
    panic!("the command does not end");
}

/// Waits for the end of a command that says little.
pub fn finish(mut child: Child) -> Output {
    let mut pipes = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let read = std::thread::spawn(move || {
        let mut said = (Vec::new(), Vec::new());
        let other = std::thread::spawn(move || {
            pipes.1.read_to_end(&mut said.1).unwrap();
            said.1
        });
        pipes.0.read_to_end(&mut said.0).unwrap();
        (said.0, other.join().unwrap())
    });
    let status = wait(&mut child);
    let (stdout, stderr) = read.join().unwrap();
    Output { status, stdout, stderr }
}

/// Reads a command's `--json` until something has arrived.
pub fn wait_for_bytes(child: &mut Child) {
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let moved = |line: &str| {
        let event: serde_json::Value = serde_json::from_str(line).unwrap();
        event["event"] == "progress" && event["bytes"].as_u64() > Some(0)
    };
    assert!(lines.any(|line| moved(&line.unwrap())), "nothing was moved");
    // What else it says is read away, so that it is not ended by a closed pipe.
    std::thread::spawn(move || lines.for_each(drop));
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// So many bytes that differ everywhere, and cannot be packed.
pub fn bytes(size: usize) -> Vec<u8> {
    let mix = |i: u64| {
        let i = i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let i = (i ^ (i >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (i >> 40) as u8
    };
    (0..size as u64).map(mix).collect()
}

/// A tree with all that makes trees hard.
pub fn plant(root: &Path) {
    fs::create_dir_all(root.join("deep/er/still")).unwrap();
    fs::create_dir_all(root.join("empty")).unwrap();
    for (name, size) in [("nothing", 0), ("one", 1), ("deep/er/odd", 70_001), ("large", 5_000_000)]
    {
        fs::write(root.join(name), bytes(size)).unwrap();
    }
    for i in 0..40 {
        fs::write(root.join(format!("deep/er/still/{i}")), bytes(i * 997)).unwrap();
    }
    for name in [&b"-n"[..], b"new\nline", b"\xff\xfe", b"quo'te\" $HOME", "Grüße".as_bytes()] {
        fs::write(root.join(std::ffi::OsStr::from_bytes(name)), name).unwrap();
    }
    fs::set_permissions(root.join("one"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(root.join("nothing"), fs::Permissions::from_mode(0o400)).unwrap();
    symlink("deep/er", root.join("link")).unwrap();
    symlink("nowhere", root.join("dangling")).unwrap();
}

/// What `find` and `sha256sum` say of a tree: kinds, permissions, times, links and contents.
pub fn fingerprint(root: &Path) -> String {
    const SCRIPT: &str = r"
        find . -mindepth 1 \( -type l -printf '%p l %l\0' -o -printf '%p %y %m %T@\0' \) | sort -z
        find . -type f -print0 | sort -z | xargs -0 sha256sum";
    let output = Command::new("sh").args(["-ec", SCRIPT]).current_dir(root).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

/// Every name below a folder.
pub fn names(root: &Path) -> Vec<String> {
    let output =
        Command::new("find").arg(root).args(["-mindepth", "1", "-printf", "%P\n"]).output();
    text(&output.unwrap().stdout).lines().map(str::to_owned).collect()
}

/// Waits until a folder holds these names and no others: a server clears up when its client has gone.
pub fn wait_for_names(root: &Path, expected: &[&str]) {
    for _ in 0..PATIENCE.as_millis() / TICK.as_millis() {
        if names(root) == expected {
            return;
        }
        sleep(TICK);
    }
    panic!("{:?}", names(root));
}

/// Says loudly that this test cannot run here. Call it once, then return.
pub fn skip(name: &str, reason: &str) {
    eprintln!("SKIPPED: {name}: {reason}");
    if let Some(log) = std::env::var_os("LONGHAUL_SKIP_LOG") {
        let mut log = fs::OpenOptions::new().append(true).open(log).unwrap();
        std::io::Write::write_all(&mut log, format!("{name}: {reason}\n").as_bytes()).unwrap();
    }
}
