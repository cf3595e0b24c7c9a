//! `longhaul cp host:path` through a real OpenSSH, with users, keys and configuration of its own.

mod support;

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use support::namespace::{Events, Net};
use support::{Home, fingerprint, finish, names, plant, skip, start, text, wait_for_bytes};

const GUEST: u32 = 6543;

/// An sshd whose root lives in the folder `far`, and whose guest in `guest`; killed when dropped.
struct Sshd {
    child: Child,
    home: Home,
    /// Where it runs, if not beside the test, and at which port.
    net: Option<Net>,
    port: u16,
}

/// sshd itself, which [`support::skip`] tells about when it is not there.
fn sshd() -> Option<PathBuf> {
    let unpacked = std::env::var_os("LONGHAUL_TOOLS").map(PathBuf::from);
    let folders = unpacked.into_iter().chain(["/".into()]);
    folders.map(|folder| folder.join("usr/sbin/sshd")).find(|sshd| sshd.is_file())
}

impl Sshd {
    /// `None` when it cannot run here, which was said then.
    fn start(test: &str) -> Option<Self> {
        Self::start_in(test, None)
    }

    /// The same in a network of its own, with all commands.
    fn start_apart(test: &str) -> Option<Self> {
        let net = Net::new(test)?;
        Self::start_in(test, Some(net))
    }

    fn start_in(test: &str, net: Option<Net>) -> Option<Self> {
        let Some(sshd) = sshd() else {
            skip(test, "there is no sshd");
            return None;
        };
        if !rustix::process::geteuid().is_root() {
            skip(test, "only root may start an sshd with users of its own");
            return None;
        }
        let home = Home::new();
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        configure(&home, port);
        // The users are this mount namespace's alone.
        let script = "cd \"$1\"; mount --bind passwd /etc/passwd; mount --bind shadow /etc/shadow; \
                      mount -t tmpfs none /run; mkdir /run/sshd; exec \"$0\" -D -e -f \"$1/sshd_config\"";
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-ec", script]).arg(sshd).arg(home.path(""));
        let log = fs::File::create(home.path("sshd.log")).unwrap();
        let mut command = net.iter().fold(command, |command, net| net.inside(&command));
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap();
        let server = Self { child, home, net, port };
        let log = || fs::read_to_string(server.home.path("sshd.log")).unwrap();
        for _ in 0..300 {
            if log().contains("Server listening") {
                return Some(server);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("no sshd: {}", log());
    }

    /// The binary under test, which finds its ssh in the folder.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.home.longhaul(arguments);
        command.env("LONGHAUL_SSH", format!("sh {}", self.home.path("ssh.sh").display()));
        self.net.iter().fold(command, |command, net| net.inside(&command))
    }

    fn run(&self, arguments: &[&str]) -> Output {
        finish(start(&mut self.command(arguments)))
    }

    fn succeed(&self, arguments: &[&str]) -> Output {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        output
    }

    fn fail(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {said}");
        said
    }

    /// The process that wrote its number to this file last.
    fn pid(&self, file: &str) -> Pid {
        let number = fs::read_to_string(self.home.path(file)).unwrap();
        Pid::from_raw(number.trim().parse().unwrap()).unwrap()
    }

    /// Waits until a process that wrote its number is gone.
    fn gone(&self, file: &str) {
        let pid = self.pid(file);
        for _ in 0..1500 {
            if test_kill_process(pid).is_err() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("{file} is still there");
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn configure(home: &Home, port: u16) {
    fs::set_permissions(home.path(""), fs::Permissions::from_mode(0o755)).unwrap();
    for key in ["host_key", "user_key", "strange_key"] {
        let mut keygen = Command::new("ssh-keygen");
        keygen.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(home.path(key));
        assert!(keygen.status().unwrap().success());
    }
    let top = home.path("");
    let top = top.to_str().unwrap().trim_end_matches('/');
    let write = |name: &str, text: String| fs::write(home.path(name), text).unwrap();
    write(
        "passwd",
        format!(
            "root:x:0:0::{top}/far:/bin/sh\nguest:x:{GUEST}:{GUEST}::{top}/guest:/bin/sh\n\
             sshd:x:6544:6544::/run/sshd:/usr/sbin/nologin\n"
        ),
    );
    write("shadow", "root:*:20000:0:99999:7:::\nguest:*:20000:0:99999:7:::\n".into());
    write(
        "sshd_config",
        format!(
            "ListenAddress 127.0.0.1:{port}\nHostKey {top}/host_key\nPidFile none\nUsePAM no\n\
             AuthorizedKeysFile {top}/user_key.pub\nStrictModes no\nSetEnv PATH=/usr/bin:/bin\n"
        ),
    );
    let host = fs::read_to_string(home.path("host_key.pub")).unwrap();
    write("known", format!("[127.0.0.1]:{port} {host}"));
    write(
        "ssh_config",
        format!(
            "Host far guest jumped\n HostName 127.0.0.1\n Port {port}\nHost guest\n User guest\n\
             Host jumped\n ProxyJump far\nHost *\n User root\n IdentityFile {top}/user_key\n\
             IdentitiesOnly yes\n UserKnownHostsFile {top}/known\n BatchMode yes\n"
        ),
    );
    write("ssh.sh", format!("echo $$ > {top}/ssh.pid; exec ssh -F {top}/ssh_config \"$@\"\n"));
    let program = format!(
        "#!/bin/sh\necho $$ > {top}/far.pid; exec {} \"$@\"\n",
        env!("CARGO_BIN_EXE_longhaul")
    );
    home.folder("far/.local/bin");
    write("far/.local/bin/longhaul", program);
    let program = home.path("far/.local/bin/longhaul");
    fs::set_permissions(program, fs::Permissions::from_mode(0o755)).unwrap();
    let guest = home.folder("guest");
    home.folder("guest/.cargo/bin");
    symlink(env!("CARGO_BIN_EXE_longhaul"), guest.join(".cargo/bin/longhaul")).unwrap();
    chown(guest, Some(GUEST), Some(GUEST)).unwrap();
}

fn carrier(output: &Output) -> String {
    let first = text(&output.stdout).lines().next().unwrap_or_default().to_owned();
    let first: serde_json::Value = serde_json::from_str(&first).unwrap();
    first["transport"].as_str().unwrap().to_owned()
}

#[test]
fn a_tree_crosses_both_ways_by_each_transport() {
    let Some(far) = Sshd::start("a_tree_crosses_both_ways_by_each_transport") else { return };
    plant(&far.home.folder("tree"));
    let expected = fingerprint(&far.home.path("tree"));
    for (wanted, used) in [("auto", "udp"), ("udp", "udp"), ("tcp", "tcp"), ("ssh", "ssh")] {
        let copy = ["cp", "--json", "--transport", wanted];
        let there = format!("far:{wanted}");
        let put = far.succeed(&[&copy[..], &["tree", &there]].concat());
        assert_eq!(carrier(&put), used);
        assert_eq!(fingerprint(&far.home.path("far").join(wanted)), expected);
        far.gone("far.pid");
        let back = format!("back-{wanted}");
        let get = far.succeed(&[&copy[..], &[&there, &back]].concat());
        assert_eq!(carrier(&get), used);
        assert_eq!(fingerprint(&far.home.path(&back)), expected);
    }
}

#[test]
fn paths_are_those_of_the_user_there() {
    let Some(far) = Sshd::start("paths_are_those_of_the_user_there") else { return };
    far.home.file("file", 1000);
    far.home.folder("far/sub");
    let absolute = format!("far:{}", far.home.path("absolute").display());
    for (there, path) in [
        ("far:", "far/file"),
        ("far:~/sub/", "far/sub/file"),
        ("root@far:sub/name", "far/sub/name"),
        ("far:sub/../../up", "up"),
        (&absolute, "absolute"),
    ] {
        far.succeed(&["cp", "file", there]);
        assert!(far.home.path(path).is_file(), "{there}");
    }
    for carrier in ["auto", "ssh"] {
        let listed = text(&far.succeed(&["ls", "--transport", carrier, "far:sub"]).stdout);
        let names = listed.lines().filter_map(|line| line.get(30..));
        assert_eq!(names.collect::<Vec<_>>(), ["file", "name"], "{listed}");
    }
    // Several things to get, one after another over the same ssh.
    for wanted in ["auto", "ssh"] {
        let came = far.home.folder(wanted);
        far.succeed(&[
            "cp",
            "--transport",
            wanted,
            "far:sub/file",
            "far:~/sub/name",
            "far:../up",
            wanted,
        ]);
        assert_eq!(names(&came).len(), 3);
    }
    far.succeed(&["cp", "far:~", "all"]);
    assert!(far.home.path("all/sub/file").is_file());
}

#[test]
fn what_goes_wrong_there_is_told() {
    let Some(far) = Sshd::start("what_goes_wrong_there_is_told") else { return };
    far.home.file("file", 1000);
    let said = far.fail(&["cp", "far:nothing", "."]);
    assert!(said.contains("\"nothing\"") && said.contains("No such file"), "{said}");
    let said = far.fail(&["cp", "file", "far:no/such/place"]);
    assert!(said.contains("no/such/place"), "{said}");
    let closed = far.home.folder("closed");
    let said = far.fail(&["cp", "file", &format!("guest:{}/x", closed.display())]);
    assert!(said.contains("Permission denied") && said.contains("access"), "{said}");
    far.succeed(&["cp", "file", "guest:mine"]);
    assert!(far.home.path("guest/mine").is_file());
    assert!(far.fail(&["cp", "--transport", "ssh", "file", "far:no/x"]).contains("no/x"));
}

#[test]
fn a_missing_program_is_told_with_what_to_do() {
    let Some(far) = Sshd::start("a_missing_program_is_told_with_what_to_do") else { return };
    far.home.file("file", 1000);
    let program = far.home.path("far/.local/bin/longhaul");
    fs::rename(&program, far.home.path("far/it's here")).unwrap();
    let said = far.fail(&["cp", "file", "far:"]);
    assert!(said.contains("no longhaul on far") && said.contains("--remote-path"), "{said}");
    far.succeed(&["cp", "--remote-path", "~/it's here", "file", "far:"]);
    let said = far.fail(&["cp", "--remote-path", "/no/longhaul", "file", "far:"]);
    assert!(said.contains("no /no/longhaul on far"), "{said}");
    fs::write(far.home.path("far/plain"), "text").unwrap();
    let said = far.fail(&["cp", "--remote-path", "./plain", "file", "far:"]);
    assert!(said.contains("cannot be run on far"), "{said}");
}

#[test]
fn what_is_missing_is_put_there_on_demand() {
    let Some(far) = Sshd::start("what_is_missing_is_put_there_on_demand") else { return };
    far.home.file("file", 1000);
    let program = far.home.path("far/.local/bin/longhaul");
    fs::remove_file(&program).unwrap();
    assert!(far.fail(&["cp", "file", "far:"]).contains("--bootstrap"));
    far.succeed(&["cp", "--bootstrap", "file", "far:"]);
    far.succeed(&["cp", "file", "far:again"]);
    assert!(fs::read(&program).unwrap() == fs::read(env!("CARGO_BIN_EXE_longhaul")).unwrap());
    far.succeed(&["cp", "--bootstrap", "--remote-path", "~/own/lh", "file", "far:third"]);
    assert!(far.home.path("far/own/lh").is_file() && far.home.path("far/third").is_file());
    // Another build of it.
    fs::copy(env!("CARGO_BIN_EXE_longhaul"), far.home.path("build")).unwrap();
    far.succeed(&["cp", "--bootstrap=build", "--remote-path", "~/b/lh", "file", "far:fourth"]);
    assert!(far.home.path("far/b/lh").is_file() && far.home.path("far/fourth").is_file());
    let bootstrap = |name: &str, bytes: &[u8]| {
        fs::write(far.home.path("build"), bytes).unwrap();
        let place = format!("~/{name}");
        let said = far.fail(&["cp", "--bootstrap=build", "--remote-path", &place, "file", "far:"]);
        assert!(!far.home.path("far").join(name).exists(), "{said}");
        said
    };
    let mut head = *b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\xf3\0";
    assert!(bootstrap("other", &head).contains("another kind of machine"));
    head[18..].copy_from_slice(&fs::read("/proc/self/exe").unwrap()[18..20]);
    assert!(bootstrap("broken", &head).contains("does not run on far"));
    assert!(bootstrap("text", b"#!/bin/sh\ntouch here\n").contains("no program for Linux"));
}

#[test]
fn a_copy_between_two_hosts_does_not_pass_here() {
    let Some(far) = Sshd::start("a_copy_between_two_hosts_does_not_pass_here") else { return };
    plant(&far.home.folder("far/tree"));
    // On the far side the same ssh leads to the same hosts.
    let ssh = format!("ssh -F {}", far.home.path("ssh_config").display());
    let script = format!("LONGHAUL_SSH='{ssh}' exec {} \"$@\"\n", env!("CARGO_BIN_EXE_longhaul"));
    let script = format!("#!/bin/sh\nprintf 'Hello\\377\\033\\n'\n{script}");
    fs::write(far.home.path("far/.local/bin/longhaul"), script).unwrap();
    let expected = fingerprint(&far.home.path("far/tree"));
    let copied = far.succeed(&["cp", "far:tree", "guest:there"]);
    let said = text(&copied.stderr);
    assert!(said.contains("verified") && said.contains("Hello\u{fffd}\u{fffd}"), "{said}");
    assert_eq!(fingerprint(&far.home.path("guest/there")), expected);
    let hosts = "[far]\noptions = [\"--transport=ssh\", \"--bootstrap\"]\n";
    fs::write(far.home.path("home/hosts.toml"), hosts).unwrap();
    let said = text(&far.succeed(&["cp", "far:tree", "guest:again"]).stderr);
    assert!(said.contains("over ssh"), "{said}");
    fs::remove_file(far.home.path("home/hosts.toml")).unwrap();
    fs::write(far.home.path("far/tree/new"), "news").unwrap();
    fs::write(far.home.path("guest/there/old"), "").unwrap();
    let differs = far.run(&["sync", "-n", "--delete", "far:tree", "guest:there"]);
    let said = text(&differs.stderr) + &text(&differs.stdout);
    assert!(said.contains("new") && said.contains("old") && differs.status.success(), "{said}");
    assert!(!far.home.path("guest/there/new").exists());
    far.succeed(&["sync", "--delete", "far:tree", "guest:there"]);
    let expected = fingerprint(&far.home.path("far/tree"));
    assert_eq!(fingerprint(&far.home.path("guest/there")), expected);
    let said = far.fail(&["cp", "far:nothing", "guest:x"]);
    assert!(said.contains("nothing"), "{said}");
    for refused in [
        &["--key", "k", "far:tree", "guest:x"][..],
        &["--bootstrap", "far:tree", "guest:x"],
        &["far:tree", "far:x"],
        &["far:tree", "guest:there", "far:x"],
    ] {
        let mut copy = far.command(&[&["cp"], refused].concat());
        assert_eq!(finish(start(&mut copy)).status.code(), Some(2), "{refused:?}");
    }
}

#[test]
fn a_login_that_fails_is_told() {
    let Some(far) = Sshd::start("a_login_that_fails_is_told") else { return };
    far.home.file("file", 1000);
    fs::rename(far.home.path("strange_key"), far.home.path("user_key")).unwrap();
    let said = far.fail(&["cp", "file", "far:"]);
    assert!(said.contains("Permission denied") && said.contains("did not get into far"), "{said}");
    let said = far.fail(&["cp", "-e", "/no/such/ssh", "file", "far:"]);
    assert!(said.contains("/no/such/ssh"), "{said}");
}

#[test]
fn the_rate_is_kept_over_ssh_itself() {
    let Some(far) = Sshd::start("the_rate_is_kept_over_ssh_itself") else { return };
    far.home.file("file", 5_000_000);
    let ssh = ["cp", "--json", "--transport", "ssh", "--rate-limit", "40mbit", "file", "far:"];
    let said = text(&far.succeed(&ssh).stdout);
    let done: serde_json::Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
    assert_eq!(done["limited_by"]["what"], "rate-limit", "{done}");
    assert_eq!(done["transport"], "ssh");
}

#[test]
fn what_is_fetched_over_ssh_keeps_to_what_was_asked() {
    let name = "what_is_fetched_over_ssh_keeps_to_what_was_asked";
    let Some(far) = Sshd::start(name) else { return };
    far.home.file("far/file", 2_000_000);
    let rate = ["--rate-limit", "4mbit"];
    let by = |carrier| [&["--transport", carrier], &rate[..]].concat();
    let fixed = vec!["--cc", "fixed:4mbit"];
    for (carrier, options) in
        [("ssh", by("ssh")), ("tcp", by("tcp")), ("udp", by("udp")), ("udp", fixed)]
    {
        let copy = [&["cp", "--json", "--no-compress", "far:file", "came"], &options[..]].concat();
        let begin = net::clock::now();
        let said = text(&far.succeed(&copy).stdout);
        let took = net::clock::now().since(begin);
        let done: serde_json::Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
        assert_eq!(done["transport"], carrier, "{options:?}");
        // At the whole rate, without anything else, it takes four.
        assert!(took > Duration::from_secs(3), "{options:?}: {took:?}");
        assert!(fs::read(far.home.path("came")).unwrap() == support::bytes(2_000_000));
    }
    far.succeed(&["cp", "--background", "far:file", "again"]);
}

#[test]
fn a_jump_host_is_no_hindrance() {
    let Some(far) = Sshd::start("a_jump_host_is_no_hindrance") else { return };
    far.home.file("file", 100_000);
    far.succeed(&["cp", "file", "jumped:there"]);
    assert_eq!(fs::read(far.home.path("far/there")).unwrap(), support::bytes(100_000));
}

/// A transfer that takes long, once it has begun.
fn slow(far: &Sshd, options: &[&str]) -> Child {
    far.home.file("file", 60_000_000);
    let copy = ["cp", "--json", "--rate-limit", "20mbit"];
    let mut child = start(&mut far.command(&[&copy[..], options].concat()));
    wait_for_bytes(&mut child);
    child
}

#[test]
fn nothing_stays_there_when_this_side_is_killed() {
    let Some(far) = Sshd::start("nothing_stays_there_when_this_side_is_killed") else { return };
    for signal in [Signal::KILL, Signal::INT] {
        let mut child = slow(&far, &["file", "far:"]);
        support::send(&child, signal);
        child.wait().unwrap();
        far.gone("ssh.pid");
        far.gone("far.pid");
        assert!(!far.home.path("far/file").exists());
    }
}

#[test]
fn the_end_of_ssh_is_the_end() {
    let Some(far) = Sshd::start("the_end_of_ssh_is_the_end") else { return };
    let child = slow(&far, &["file", "far:"]);
    kill_process(far.pid("ssh.pid"), Signal::TERM).unwrap();
    let mut child = child;
    let mut nothing = Command::new("true");
    child.stdout = start(&mut nothing).stdout.take();
    let output = finish(child);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("ssh") && said.contains("run the same command again"), "{said}");
    far.gone("far.pid");
    assert!(!Path::new(&far.home.path("far/file")).exists());
}

/// Longer than any time-out over ssh: UDP counts as blocked after 8 s, an address that does not answer
/// after 4 s.
const OUTAGE: Duration = Duration::from_secs(14);

#[test]
fn a_blackout_is_waited_out_and_the_data_goes_beside_ssh_again() {
    let test = "a_blackout_is_waited_out_and_the_data_goes_beside_ssh_again";
    const SIZE: usize = 80_000_000;
    let Some(far) = Sshd::start_apart(test) else { return };
    let net = far.net.as_ref().unwrap();
    far.home.file("file", SIZE);
    let mut child = start(&mut far.command(&["cp", "--json", "file", "far:"]));
    let mut events = Events::of(&mut child);
    events.wait_for_bytes();
    net.black_out();
    std::thread::sleep(OUTAGE);
    net.clear();
    let carriers = events.carriers_to_the_end();
    assert!(carriers.len() > 1, "the outage was too short for this test: {carriers:?}");
    assert_eq!((carriers[0].as_str(), carriers.last().unwrap().as_str()), ("udp", "udp"));
    assert!(child.wait().unwrap().success());
    assert!(fs::read(far.home.path("far/file")).unwrap() == support::bytes(SIZE));
}

#[test]
fn ssh_carries_the_data_as_long_as_nothing_passes_beside_it() {
    let test = "ssh_carries_the_data_as_long_as_nothing_passes_beside_it";
    const SIZE: usize = 90_000_000;
    let Some(far) = Sshd::start_apart(test) else { return };
    let net = far.net.as_ref().unwrap();
    let close = || {
        for end in ["sport", "dport"] {
            net.nft(&format!("add rule inet t in tcp {end} {} accept", far.port));
        }
        net.black_out();
    };
    far.home.file("file", SIZE);
    close();
    let mut child = start(&mut far.command(&["cp", "--json", "file", "far:"]));
    let mut events = Events::of(&mut child);
    events.wait_for_carrier("ssh");
    events.wait_for_bytes();
    net.clear();
    events.wait_for_carrier("udp");
    close();
    assert_eq!(events.carriers_to_the_end(), ["ssh", "udp", "ssh"]);
    assert!(child.wait().unwrap().success());
    assert!(fs::read(far.home.path("far/file")).unwrap() == support::bytes(SIZE));
}

/// Stops the far side for so long in the middle of a copy, which is to end well.
fn suspend(far: &Sshd, options: &[&str], time: Duration) {
    far.home.file("file", 12_000_000);
    let copy = ["cp", "--json", "--rate-limit", "20mbit"];
    let mut child = start(&mut far.command(&[&copy[..], options, &["file", "far:"]].concat()));
    let mut events = Events::of(&mut child);
    events.wait_for_bytes();
    kill_process(far.pid("far.pid"), Signal::STOP).unwrap();
    std::thread::sleep(time);
    kill_process(far.pid("far.pid"), Signal::CONT).unwrap();
    let carriers = events.carriers_to_the_end();
    assert!(carriers.len() > 1, "that was too short for this test: {carriers:?}");
    assert!(child.wait().unwrap().success());
    assert!(fs::read(far.home.path("far/file")).unwrap() == support::bytes(12_000_000));
}

#[test]
fn a_suspended_far_side_is_waited_for() {
    let Some(far) = Sshd::start("a_suspended_far_side_is_waited_for") else { return };
    suspend(&far, &[], OUTAGE);
}

#[test]
fn what_ssh_cannot_do_waits_for_its_own_way() {
    let Some(far) = Sshd::start("what_ssh_cannot_do_waits_for_its_own_way") else { return };
    // Without another way to go, UDP may be silent for 30 s.
    suspend(&far, &["--background"], Duration::from_secs(34));
}

#[test]
fn versions_that_do_not_meet_are_told() {
    let home = Home::new();
    home.file("file", 10);
    let rsh = |script: &str| {
        fs::write(home.path("rsh.sh"), script).unwrap();
        home.fail(1, &["cp", "-e", "sh rsh.sh", "file", "there:"])
    };
    let said = rsh("read -r line; echo longhaul-reached; echo longhaul-far none 2-3");
    assert!(said.contains("there speaks version 2-3") && said.contains("newer one"), "{said}");
    let said = rsh("read -r line; echo longhaul-far 9 7 -");
    assert!(said.contains("speaks otherwise"), "{said}");
    // The far side answers a later near side, rather than wait for another line.
    let mut far = home.longhaul(&["far"]);
    let mut far = start(far.stdin(Stdio::piped()));
    let mut line = far.stdin.take().unwrap();
    std::io::Write::write_all(&mut line, b"longhaul-near 2-3 later words\n").unwrap();
    let output = finish(far);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(text(&output.stdout), "longhaul-far none 1\n");
    assert!(text(&output.stderr).contains("version 2-3"), "{}", text(&output.stderr));
    drop(line);
}
