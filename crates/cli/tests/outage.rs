//! Copies outlive a path or a far side that is silent for longer than any time-out lasts.

mod support;

use std::fs::{self, File};
use std::io::Read;
use std::process::Child;
use std::thread::sleep;
use std::time::Duration;

use rustix::process::Signal;
use support::namespace::{Events, Net};
use support::{Home, bytes, finish, skip, start, text, wait_for_bytes};

/// UDP counts as blocked after 8 s of silence, and a way is given up that does not open in 10 s.
const OUTAGE: Duration = Duration::from_secs(20);

fn succeeded(child: Child) {
    let output = finish(child);
    assert!(output.status.success(), "{}", text(&output.stderr));
}

#[test]
fn a_blackout_is_waited_out() {
    let test = "a_blackout_is_waited_out";
    const SIZE: usize = 30_000_000;
    let home = Home::new();
    if !home.run(&["emulate", "--rtt", "1ms", "--", "true"]).status.success() {
        return skip(test, "labs are not allowed here");
    }
    home.file("file", SIZE);
    home.folder("root");
    let longhaul = env!("CARGO_BIN_EXE_longhaul");
    let serve = format!("exec {longhaul} serve --quiet --root root");
    let path = ["emulate", "--name", "dark", "--rate", "40mbit", "--rtt", "40ms", "--loss", "0"];
    let run = ["--no-verdict", "--far", &serve, "--", longhaul, "cp", "--json", "file"];
    let lab = [&path[..], &run, &["lh://10.77.0.2/"]].concat();
    let inside = |words: &[&str]| {
        let mut command = home.longhaul(words);
        command.env("XDG_RUNTIME_DIR", home.path(""));
        start(&mut command)
    };
    let mut child = inside(&lab);
    let mut events = Events::of(&mut child);
    events.wait_for_bytes();
    succeeded(inside(&["emulate", "set", "dark", "loss=100%"]));
    sleep(OUTAGE);
    succeeded(inside(&["emulate", "set", "dark", "loss=0"]));
    let carriers = events.carriers_to_the_end();
    assert!(carriers.len() > 1, "the outage was too short for this test: {carriers:?}");
    assert!(child.wait().unwrap().success());
    assert!(fs::read(home.path("root/file")).unwrap() == bytes(SIZE));
}

#[test]
fn a_nat_that_gives_another_port_in_the_middle_is_not_noticed() {
    const SIZE: usize = 15_000_000;
    let test = "a_nat_that_gives_another_port_in_the_middle_is_not_noticed";
    let Some(net) = Net::new(test) else { return };
    if !net.runs(&["/usr/sbin/conntrack", "-F"]) {
        return skip(test, "it needs conntrack");
    }
    let home = Home::new();
    home.file("file", SIZE);
    let server = net.serve(&home);
    let (_, port) = server.address().rsplit_once(':').unwrap();
    let translate = |ports| {
        net.nft("flush chain inet t nat");
        net.nft(&format!("add rule inet t nat udp dport {port} snat ip to 127.0.0.2:{ports}"));
    };
    net.nft("add chain inet t nat { type nat hook postrouting priority 100; }");
    translate("4000-4099");
    let copy = ["cp", "--json", "--transport", "udp", "file", &server.url("")];
    let mut child = start(&mut net.inside(&home.longhaul(&copy)));
    let mut events = Events::of(&mut child);
    events.wait_for_bytes();
    translate("5000-5099");
    // From now on, who comes from the old port is not our client.
    net.nft("add rule inet t in udp sport 4000-4099 drop");
    assert!(net.runs(&["/usr/sbin/conntrack", "-F"]));
    assert_eq!(events.carriers_to_the_end(), ["udp"], "it was not begun again");
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(child.wait().unwrap().success() && said.is_empty(), "{said}");
    assert!(fs::read(home.path("root/file")).unwrap() == bytes(SIZE));
}

#[test]
fn a_suspended_server_is_waited_for() {
    const SIZE: usize = 15_000_000;
    let home = Home::new();
    home.file("file", SIZE);
    let server = home.serve(&[]);
    let copy = ["cp", "--json", "--rate-limit", "20mbit", "file", &server.url("")];
    let mut child = start(&mut home.longhaul(&copy));
    let mut events = Events::of(&mut child);
    events.wait_for_bytes();
    server.signal(Signal::STOP);
    sleep(OUTAGE);
    server.signal(Signal::CONT);
    let carriers = events.carriers_to_the_end();
    assert!(carriers.len() > 1, "the outage was too short for this test: {carriers:?}");
    assert!(child.wait().unwrap().success());
    assert!(fs::read(home.path("root/file")).unwrap() == bytes(SIZE));
}

#[test]
fn standard_input_and_output_outlive_silence() {
    const SIZE: usize = 10_000_000;
    let home = Home::new();
    let sent = home.file("sent", SIZE);
    fs::create_dir(home.path("root")).unwrap();
    fs::copy(&sent, home.path("root/there")).unwrap();
    let server = home.serve(&["--rate-limit", "20mbit"]);
    let mut from = home.longhaul(&["cp", "--json", "--rate-limit", "20mbit", "-"]);
    let mut from = start(from.arg(server.url("came")).stdin(File::open(&sent).unwrap()));
    let mut to = home.longhaul(&["cp", "-q", &server.url("there"), "-"]);
    let to = to.stdout(File::create(home.path("got")).unwrap()).spawn().unwrap();
    wait_for_bytes(&mut from);
    while fs::metadata(home.path("got")).unwrap().len() == 0 {
        sleep(Duration::from_millis(20));
    }
    server.signal(Signal::STOP);
    // Longer than the server itself would wait, if it were asked.
    sleep(Duration::from_secs(32));
    server.signal(Signal::CONT);
    for mut child in [from, to] {
        assert!(child.wait().unwrap().success());
    }
    for name in ["root/came", "got"] {
        assert!(fs::read(home.path(name)).unwrap() == bytes(SIZE), "{name}");
    }
}

/// A schedule that is open all day but for six seconds, six seconds from now.
fn but_for_six_seconds(wall: u64) -> String {
    let clock = |second: u64| {
        let second = second % (24 * 60 * 60);
        format!("{:02}:{:02}:{:02}", second / 3600, second / 60 % 60, second % 60)
    };
    format!("{}-{}", clock(wall + 12), clock(wall + 6))
}

#[test]
fn a_login_that_is_refused_at_the_next_opening_is_the_end() {
    let home = Home::new();
    home.file("file", 25_000_000);
    // Stands for ssh: it logs in once, is not reached, and then refused.
    let binary = env!("CARGO_BIN_EXE_longhaul");
    let ssh = format!(
        "echo x >>logins; shift; case $(wc -l <logins) in 1) exec {binary} far;; \
         2) echo 'ssh: connect to host far port 22: No route to host' >&2;; \
         *) echo 'me@far: Permission denied (publickey).' >&2;; esac; exit 255\n"
    );
    fs::write(home.path("ssh.sh"), ssh).unwrap();
    let schedule = but_for_six_seconds(net::clock::wall().as_secs());
    let copy = ["cp", "-e", "sh ssh.sh", "--rate-limit", "20mbit", "--schedule", &schedule, "file"];
    let child = start(home.longhaul(&copy).arg("far:got").env("TZ", "UTC"));
    let output = finish(child);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("Permission denied") && said.contains("refuses the login"), "{said}");
    assert_eq!(fs::read_to_string(home.path("logins")).unwrap().lines().count(), 3, "{said}");
}

#[test]
fn what_a_schedule_cuts_goes_on_at_its_next_opening() {
    const SIZE: usize = 25_000_000;
    let home = Home::new();
    home.file("file", SIZE);
    let server = home.serve(&[]);
    let wall = net::clock::wall().as_secs();
    let schedule = but_for_six_seconds(wall);
    let wait_until = |second: u64| {
        while net::clock::wall().as_secs() < second {
            sleep(Duration::from_millis(100));
        }
    };
    let copy = ["cp", "--json", "--rate-limit", "20mbit", "--schedule", &schedule, "file"];
    let mut copy = home.longhaul(&copy);
    let mut child = start(copy.arg(server.url("")).env("TZ", "UTC"));
    let mut events = Events::of(&mut child);
    events.wait_for_bytes();
    wait_until(wall + 9);
    // At the opening nobody answers, for longer than an attempt to connect lasts.
    server.signal(Signal::STOP);
    wait_until(wall + 24);
    server.signal(Signal::CONT);
    let carriers = events.carriers_to_the_end();
    assert!(carriers.len() > 1, "it was to be cut: {carriers:?}");
    assert!(child.wait().unwrap().success());
    assert!(fs::read(home.path("root/file")).unwrap() == bytes(SIZE));
}
