//! `longhaul emulate` and `longhaul demo`, by the real binary.

mod support;

use std::process::{Command, Stdio};

use rustix::process::Signal;
use support::{Home, fingerprint, finish, names, plant, send, skip, start, text};

/// A home, where labs are allowed.
fn home_with_labs(test: &str) -> Option<Home> {
    let home = Home::new();
    let output = home.run(&["emulate", "--rtt", "1ms", "--", "true"]);
    if output.status.success() {
        return Some(home);
    }
    let said = text(&output.stderr);
    assert!(said.contains("not allowed to"), "{said}");
    assert!(said.contains("longhaul demo"), "says what to do: {said}");
    skip(test, said.lines().next().unwrap_or_default());
    None
}

#[test]
fn the_exit_code_and_the_output_are_those_of_the_command() {
    let Some(home) = home_with_labs("the_exit_code_and_the_output_are_those_of_the_command") else {
        return;
    };
    let output =
        home.run(&["emulate", "--", "sh", "-c", "echo $LONGHAUL_FAR $LONGHAUL_NEAR6; exit 7"]);
    assert_eq!(output.status.code(), Some(7));
    assert_eq!(text(&output.stdout), "10.77.0.2 fd77::1\n");
    assert!(text(&output.stderr).contains("near -> far: 0 packets"), "{}", text(&output.stderr));
    assert_eq!(home.run(&["emulate", "--", "sh", "-c", "kill -9 $$"]).status.code(), Some(137));
    assert!(home.fail(127, &["emulate", "--", "no-such-command"]).contains("no-such-command"));
    assert!(home.fail(1, &["emulate", "--cc", "nonesuch", "--", "true"]).contains("nonesuch"));
}

#[test]
fn signals_end_the_lab_and_all_that_runs_in_it() {
    let Some(home) = home_with_labs("signals_end_the_lab_and_all_that_runs_in_it") else {
        return;
    };
    let far = "trap 'touch ended; exit' TERM; touch far; while :; do sleep 0.05; done";
    let near = "touch near; while :; do sleep 0.05; done";
    for command in [&["--", "sh", "-c", near][..], &[]] {
        let child =
            start(&mut home.longhaul(&[&["emulate", "--json", "--far", far], command].concat()));
        while !home.path("far").exists() || !(command.is_empty() || home.path("near").exists()) {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        send(&child, Signal::TERM);
        let output = finish(child);
        let expected = if command.is_empty() { 0 } else { 143 };
        assert_eq!(output.status.code(), Some(expected), "{}", text(&output.stderr));
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(report["near_to_far"]["outside_model"], 0);
        assert!(home.path("ended").exists(), "the far command was told");
        for name in ["far", "near", "ended"] {
            let _ = std::fs::remove_file(home.path(name));
        }
    }
}

#[test]
fn a_tree_crosses_a_lossy_path_intact() {
    let Some(home) = home_with_labs("a_tree_crosses_a_lossy_path_intact") else {
        return;
    };
    plant(&home.folder("tree"));
    home.folder("root");
    let longhaul = env!("CARGO_BIN_EXE_longhaul");
    let serve = format!("exec {longhaul} serve --quiet --root root");
    // The client's first hellos may come before the server listens, and are repeated.
    let path =
        ["emulate", "--rate", "100mbit", "--rtt", "50ms", "--loss", "1%", "--loss-back", "1%"];
    let cp = ["--no-verdict", "--far", &serve, "--", longhaul, "cp", "tree"];
    let output = home.succeed(&[&path[..], &cp, &["lh://10.77.0.2/there"]].concat());
    assert!(text(&output.stderr).contains("verified"), "{}", text(&output.stderr));
    assert_eq!(fingerprint(&home.path("root/there")), fingerprint(&home.path("tree")));
}

/// The server's bounds on the round-trip time want no second connection, the client's want all.
#[test]
fn striped_ftp_uses_as_many_connections_as_its_sender_wants() {
    let Some(home) = home_with_labs("striped_ftp_uses_as_many_connections_as_its_sender_wants")
    else {
        return;
    };
    home.folder("root");
    let file = home.file("root/file", 2_000_000);
    std::fs::write(home.path("password"), "secret-word\n").unwrap();
    let mut user = home.longhaul(&["ftp-user", "set", "ann", "--root", "root"]);
    user.stdin(std::fs::File::open(home.path("password")).unwrap());
    assert!(finish(start(&mut user)).status.success());
    let longhaul = env!("CARGO_BIN_EXE_longhaul");
    let serve = format!(
        "exec {longhaul} serve --root root --ftp 0.0.0.0:2121 --ftp-policy rtt-bounded:1ms,2ms >log"
    );
    let copy = format!("{longhaul} cp -q --ftp-no-tls --ftp-streams 8");
    let script = format!(
        "for i in $(seq 200); do grep -q '^FTP on' log && break; sleep 0.1; done; \
         {copy} ftp://ann@10.77.0.2:2121/file got && \
         {copy} --ftp-policy rtt-bounded:10s,20s got ftp://ann@10.77.0.2:2121/put"
    );
    let path = ["emulate", "--rate", "16mbit", "--rtt", "40ms", "--loss", "0", "--queue", "200ms"];
    let run = ["--no-verdict", "--far", &serve, "--", "sh", "-c", &script];
    let mut lab = home.longhaul(&[&path[..], &run].concat());
    let output = finish(start(lab.env("LONGHAUL_FTP_PASSWORD", "secret-word")));
    assert!(output.status.success(), "{}", text(&output.stderr));
    let sent = std::fs::read(file).unwrap();
    assert!(["got", "root/put"].iter().all(|name| std::fs::read(home.path(name)).unwrap() == sent));
    let log = std::fs::read_to_string(home.path("log")).unwrap();
    let used = |way: &str| {
        let line = log.lines().find(|line| line.contains(way));
        let (_, behind) = line.and_then(|line| line.split_once(" over ")).expect(&log);
        behind.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse::<usize>().unwrap()
    };
    assert_eq!(used(" get "), 1, "{log}");
    assert!((2..=8).contains(&used(" put ")), "{log}");
}

/// The report of a lab in which this ran, whatever came of it.
fn report(home: &Home, options: &[&str], script: &str) -> serde_json::Value {
    let output =
        home.run(&[&["emulate"], options, &["--json", "--", "bash", "-c", script]].concat());
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn scenarios_are_listed_and_read() {
    let home = Home::new();
    let listed = text(&home.succeed(&["emulate", "--list"]).stdout);
    for preset in path::PRESETS {
        let about = preset.scenario().unwrap().about;
        let line = listed.lines().find(|line| line.starts_with(&format!("{} ", preset.name)));
        assert!(line.is_some_and(|line| line.ends_with(&about)), "{}: {listed}", preset.name);
    }
    assert!(listed.lines().count() == path::PRESETS.len(), "{listed}");

    let faulty = "about = \"no path\"\nrtt = \"1ms\"\n[both]\nrate = \"fast\"\n";
    std::fs::write(home.path("faulty.toml"), faulty).unwrap();
    let emulate = |code, options: &[&str]| {
        home.fail(code, &[&["emulate"], options, &["--", "true"]].concat())
    };
    let said = emulate(1, &["--scenario", "faulty.toml"]);
    assert!(said.contains("faulty.toml: line 4"), "{said}");
    let said = emulate(1, &["--scenario", "no-such"]);
    assert!(said.contains("no scenario is called no-such"), "{said}");
    for option in [["--rate", "1mbit"], ["--loss", "1%"], ["--queue", "red"], ["--seed", "2"]] {
        let said = emulate(2, &[&["--scenario", "wifi-edge"], &option[..]].concat());
        assert!(said.contains("cannot be used with"), "{said}");
    }
    assert!(emulate(2, &["--queue", "blue"]).contains("fq-codel"));
}

#[test]
fn a_lab_follows_its_scenario() {
    let Some(home) = home_with_labs("a_lab_follows_its_scenario") else {
        return;
    };
    for preset in path::PRESETS {
        home.succeed(&["emulate", "--scenario", preset.name, "--", "true"]);
    }
    for queue in ["red", "red-i", "codel", "fq-codel:flows=16", "10packets"] {
        let path = ["--rate", "10mbit", "--rtt", "10ms", "--loss", "0", "--queue", queue];
        // Nobody listens: one packet goes there, and the refusal comes back.
        let report = report(&home, &path, ": < /dev/tcp/$LONGHAUL_FAR/9");
        assert_eq!(report["near_to_far"]["delivered_packets"], 1, "{queue}");
        assert_eq!(report["far_to_near"]["delivered_packets"], 1, "{queue}");
    }
    // A trace beside the file, and a change that takes all there is.
    std::fs::write(home.folder("set-up").join("line.trace"), "1\n2\n").unwrap();
    let dark = "about = \"dark\"\nrtt = \"2ms\"\nboth = { rate-trace-file = \"line.trace\" }\n\
                [[change]]\nat = \"0s\"\nforward = { blackout = \"1h\" }\n";
    std::fs::write(home.path("set-up/dark.toml"), dark).unwrap();
    let send = "echo there > /dev/udp/$LONGHAUL_FAR/9; sleep 0.5";
    let report = report(&home, &["--scenario", "set-up/dark.toml"], send);
    assert_eq!(report["near_to_far"]["packets"], 1);
    assert_eq!(report["near_to_far"]["dropped"]["blackout"], 1);
}

fn demo(home: &Home, options: &[&str]) -> String {
    let memory = || names(std::path::Path::new("/dev/shm"));
    let path =
        ["demo", "--rate", "100mbit", "--rtt", "20ms", "--size", "6MiB", "--tcp-seconds", "1"];
    let output = home.succeed(&[&path[..], options].concat());
    let left = memory().into_iter().filter(|name| name.starts_with("longhaul-demo-"));
    // Another demo may be running beside this one, but none of its own name stays.
    let shown = text(&output.stdout);
    assert!(left.into_iter().all(|name| !shown.contains(&name)), "{shown}");
    assert!(shown.contains("arrived intact"), "{shown}");
    shown
}

#[test]
fn the_demo_works_without_privileges() {
    let shown = demo(&Home::new(), &["--loopback"]);
    assert!(shown.contains("TCP columns need namespaces"), "{shown}");
    assert!(shown.contains("Longhaul UDP") && !shown.contains("plain TCP ("), "{shown}");
}

#[test]
fn the_demo_compares_three_ways() {
    let Some(home) = home_with_labs("the_demo_compares_three_ways") else {
        return;
    };
    let shown = demo(&home, &["--streams", "4"]);
    for way in ["plain TCP (CUBIC)", "striped TCP (4)", "Longhaul UDP"] {
        assert!(shown.contains(way), "{shown}");
    }
}

#[test]
fn the_demo_takes_the_users_tree() {
    let home = Home::new();
    plant(&home.folder("tree"));
    let path = ["demo", "--loopback", "--rate", "100mbit", "--rtt", "10ms"];
    let output = home.succeed(&[&path[..], &["--source", "tree"]].concat());
    assert!(text(&output.stdout).contains("49 files"), "{}", text(&output.stdout));
    let said = home.fail(1, &[&path[..], &["--source", "no/such"]].concat());
    assert!(said.contains("no/such"), "{said}");
}

/// A lab that stays until a file called `done` is there, with its control socket in the home.
fn open_lab(home: &Home, options: &[&str]) -> std::process::Child {
    let script = "touch up; while ! [ -e done ]; do sleep 0.02; done";
    let all = [&["emulate"], options, &["--", "sh", "-c", script]].concat();
    let child = start(home.longhaul(&all).env("XDG_RUNTIME_DIR", home.path("")));
    wait_for(home, "up");
    child
}

fn wait_for(home: &Home, name: &str) {
    while !home.path(name).exists() {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

/// `longhaul emulate set`: its exit code and all it said.
fn set(home: &Home, words: &[&str]) -> (Option<i32>, String) {
    let all = [&["emulate", "set"], words].concat();
    let output = finish(start(home.longhaul(&all).env("XDG_RUNTIME_DIR", home.path(""))));
    (output.status.code(), text(&output.stdout) + &text(&output.stderr))
}

#[test]
fn a_path_is_changed_while_it_runs() {
    let Some(home) = home_with_labs("a_path_is_changed_while_it_runs") else {
        return;
    };
    let (code, said) = set(&home, &[]);
    assert!(code == Some(1) && said.contains("no lab runs"), "{said}");
    let path = ["--name", "mine", "--rate", "10mbit", "--rtt", "4ms", "--loss", "0"];
    let lab = open_lab(&home, &path);
    let mode = std::os::unix::fs::MetadataExt::mode(&home.path("longhaul").metadata().unwrap());
    assert_eq!(mode & 0o777, 0o700, "nobody else may enter");

    let (code, said) = set(&home, &["rate=20mbit", "forward.loss=2%", "rtt=60ms"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("near -> far: rate=20mbit delay=30ms queue=50ms loss=0.02"), "{said}");
    assert!(said.contains("far -> near: rate=20mbit delay=30ms queue=50ms\n"), "{said}");
    let (_, shown) = set(&home, &["mine"]);
    assert_eq!(shown, said, "without words it shows the same");
    for (words, why) in [
        (&["mine", "speed=3"][..], "unknown field `speed`"),
        (&["mine", "rate=fast"], "does not begin with a number"),
        (&["mine", "mtu=3"], "below the 68 bytes"),
        (&["yours", "rate=1mbit"], "no lab called 'yours'"),
        (&["mine", "faster"], "KEY=VALUE"),
    ] {
        let (code, said) = set(&home, words);
        assert!(code == Some(1) && said.contains(why), "{words:?}: {said}");
    }
    assert_eq!(set(&home, &["mine"]).1, shown, "what is wrong changes nothing");

    let again = ["emulate", "--name", "mine", "--", "true"];
    let output = finish(start(home.longhaul(&again).env("XDG_RUNTIME_DIR", home.path(""))));
    assert!(text(&output.stderr).contains("runs already"), "{}", text(&output.stderr));
    std::fs::write(home.path("done"), "").unwrap();
    assert_eq!(finish(lab).status.code(), Some(0));
    assert_eq!(names(&home.path("longhaul")), Vec::<String>::new(), "the socket is gone");
}

/// A gigabyte is all that the lab may have, and a path that wants two each way is asked for.
#[test]
fn a_change_that_there_is_no_memory_for_is_refused() {
    let Some(home) = home_with_labs("a_change_that_there_is_no_memory_for_is_refused") else {
        return;
    };
    let script = "ulimit -v 1000000; exec \"$0\" emulate --no-verdict --name mine -- \
                  sh -c 'touch up; while ! [ -e done ]; do sleep 0.02; done'";
    let mut shell = Command::new("sh");
    shell.args(["-c", script, env!("CARGO_BIN_EXE_longhaul")]).current_dir(home.path(""));
    let lab = start(shell.env("XDG_RUNTIME_DIR", home.path("")).stdin(Stdio::null()));
    wait_for(&home, "up");
    let before = set(&home, &["mine"]);
    let (code, said) = set(&home, &["mine", "rate=10gbit", "rtt=2s"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("no memory") && said.contains("nothing was changed"), "{said}");
    assert_eq!(set(&home, &["mine"]), before, "the lab is as it was");
    std::fs::write(home.path("done"), "").unwrap();
    assert_eq!(finish(lab).status.code(), Some(0));
}

/// Whether a process of this number runs. Its arguments are empty once it has ended, even where nobody collects
/// orphans.
fn runs(pid: &str) -> bool {
    let arguments = std::fs::read(std::path::Path::new("/proc").join(pid).join("cmdline"));
    arguments.is_ok_and(|arguments| !arguments.is_empty())
}

/// At the end of CMD, and by a signal.
#[test]
fn what_has_left_its_command_ends_with_the_lab() {
    let Some(home) = home_with_labs("what_has_left_its_command_ends_with_the_lab") else {
        return;
    };
    let daemon = "setsid sh -c 'echo $$ > own.pid; mv own.pid own; exec sleep 1000' >log 2>&1 &";
    for signal in [None, Some(Signal::TERM)] {
        let lab = open_lab(&home, &["--no-verdict", "--far", daemon]);
        wait_for(&home, "own");
        let pid = std::fs::read_to_string(home.path("own")).unwrap().trim().to_owned();
        assert!(runs(&pid));
        match signal {
            Some(signal) => send(&lab, signal),
            None => std::fs::write(home.path("done"), "").unwrap(),
        }
        let expected = if signal.is_some() { 143 } else { 0 };
        assert_eq!(finish(lab).status.code(), Some(expected));
        // It was killed before, but may take a moment.
        let ended = (0..100).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(20));
            !runs(&pid)
        });
        assert!(ended, "{pid} lives on after {signal:?}");
        for name in ["up", "own", "done"] {
            let _ = std::fs::remove_file(home.path(name));
        }
    }
}

#[test]
fn kill_9_leaves_nothing_behind() {
    let Some(home) = home_with_labs("kill_9_leaves_nothing_behind") else {
        return;
    };
    // Not the command, but what it has started itself, in its process group and in another.
    let far = "sleep 1000 & echo $! > far.pid; mv far.pid far; \
               setsid sh -c 'echo $$ > own.pid; mv own.pid own; exec sleep 1000' & wait";
    let mut lab = open_lab(&home, &["--name", "mine", "--far", far]);
    let pids = ["far", "own"].map(|name| {
        wait_for(&home, name);
        std::fs::read_to_string(home.path(name)).unwrap().trim().to_owned()
    });
    assert!(pids.iter().all(|pid| runs(pid)));
    send(&lab, Signal::KILL);
    lab.wait().unwrap();
    while pids.iter().any(|pid| runs(pid)) {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    // The name is free again.
    std::fs::write(home.path("done"), "").unwrap();
    assert_eq!(finish(open_lab(&home, &["--name", "mine"])).status.code(), Some(0));
}

#[test]
fn statistics_are_shown_while_it_runs() {
    let Some(home) = home_with_labs("statistics_are_shown_while_it_runs") else {
        return;
    };
    let slow = ["emulate", "--rate", "1mbit", "--rtt", "2ms", "--loss", "0", "--stats", "50ms"];
    let send = ["--", "bash", "-c", "head -c 1000 /dev/zero > /dev/udp/$LONGHAUL_FAR/9; sleep 1"];
    let output = home.run(&[&slow[..], &["--json"], &send].concat());
    let lines: Vec<serde_json::Value> =
        text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (report, stats) = lines.split_last().unwrap();
    assert_eq!(
        (&report["event"], &report["near_to_far"]["packets"]),
        (&"report".into(), &1.into())
    );
    assert!(report["faithful"].is_boolean() && report["faults"].is_array());
    assert!(!stats.is_empty() && stats.iter().all(|line| line["event"] == "stats"));
    let bits: f64 = stats.iter().map(|line| line["near_to_far"]["in_bps"].as_f64().unwrap()).sum();
    assert!(bits > 0.0, "{stats:?}");
    let output = home.run(&[&slow[..], &send].concat());
    let said = text(&output.stderr);
    assert!(said.contains("near -> far") && said.contains("late p99"), "{said}");
    assert!(home.fail(2, &["emulate", "--stats", "0s", "--", "true"]).contains("millisecond"));
}

#[test]
fn commands_run_on_any_host_and_recordings_are_kept() {
    let Some(home) = home_with_labs("commands_run_on_any_host_and_recordings_are_kept") else {
        return;
    };
    let hosts = ["--near-hosts", "delay=1ms", "--near-hosts", "delay=9ms rate=10mbit"];
    let files = ["--pcap-near", "near.pcapng", "--pcap-far", "far.pcapng", "--trace", "trace.csv"];
    let send =
        "echo hello > /dev/udp/$LONGHAUL_FAR/9; echo $LONGHAUL_NEAR_2 > second; mv second sent";
    let run = format!("near2:exec bash -c '{send}'");
    let wait = "until [ -e sent ]; do sleep 0.02; done; sleep 0.3; echo $LONGHAUL_FAR6";
    let all =
        [&["emulate", "--loss", "0"], &hosts[..], &files, &["--run", &run, "--json"]].concat();
    let output = home.run(&[&all[..], &["--", "sh", "-c", wait]].concat());
    let said = text(&output.stdout);
    assert!(said.starts_with("fd77::2\n"), "{said}{}", text(&output.stderr));
    let report: serde_json::Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
    assert_eq!(report["near_to_far"]["delivered_packets"], 1, "{report}");
    assert_eq!(std::fs::read_to_string(home.path("sent")).unwrap(), "10.77.0.3\n");
    for file in ["near.pcapng", "far.pcapng"] {
        let bytes = std::fs::read(home.path(file)).unwrap();
        assert!(bytes.windows(6).any(|found| found == b"hello\n"), "{file}");
    }
    let trace = std::fs::read_to_string(home.path("trace.csv")).unwrap();
    assert!(trace.starts_with("seconds,direction,event,packets,bytes\n"), "{trace}");
    assert!(trace.lines().count() > 2);
    for (wrong, why) in [
        (["--run", "near2:true"], "the near side has 1"),
        (["--pcap-near", "no/such/file"], "cannot write no/such/file"),
        (["--name", "a/b"], "letters"),
    ] {
        let said = home.fail(1, &["emulate", wrong[0], wrong[1], "--", "true"]);
        assert!(said.contains(why), "{said}");
    }
    for wrong in [["--mtu", "1000"], ["--hosts", "65"], ["--near-hosts", "speed=3"], ["--run", "x"]]
    {
        home.fail(2, &["emulate", wrong[0], wrong[1], "--", "true"]);
    }
}

/// A far host whose device is down takes no packet that the path delivers.
#[test]
fn a_run_beyond_the_model_fails() {
    let test = "a_run_beyond_the_model_fails";
    let Some(home) = home_with_labs(test) else {
        return;
    };
    if std::process::Command::new("ip").arg("-V").output().is_err() {
        return skip(test, "setting a device down needs iproute2");
    }
    let run = |code, options: &[&str]| {
        let path = ["emulate", "--rtt", "2ms", "--loss", "0"];
        let down = ["--far", "ip link set path down; touch down"];
        let send = "until [ -e down ]; do sleep 0.02; done; \
                    echo hello > /dev/udp/$LONGHAUL_FAR/9; sleep 0.5";
        let said =
            home.fail(code, &[&path, &down[..], options, &["--", "bash", "-c", send]].concat());
        assert!(said.contains("1 lost outside the model"), "{said}");
        std::fs::remove_file(home.path("down")).unwrap();
        said
    };
    let said = run(125, &[]);
    assert!(said.contains("verdict: NOT faithful: near -> far: 1 packets lost"), "{said}");
    assert!(run(0, &["--no-verdict"]).contains("NOT faithful"));
    run(0, &["--max-outside", "1", "--max-late", "1h", "--max-stall", "1h"]);
}

#[test]
fn a_command_of_a_host_that_fails_is_told() {
    let Some(home) = home_with_labs("a_command_of_a_host_that_fails_is_told") else {
        return;
    };
    let path = ["emulate", "--no-verdict", "--far", "exit 3", "--run", "near:sleep 9"];
    let said = home.fail(7, &[&path[..], &["--", "sh", "-c", "sleep 0.5; exit 7"]].concat());
    assert!(said.contains("'exit 3' had failed by then: exit status: 3"), "{said}");
    assert!(!said.contains("sleep 9"), "what we ended has not failed: {said}");
}

/// The page from which newcomers write scenarios.
const BOOK: &str = include_str!("../../../docs/book/scenario.md");

/// Its blocks that are marked so.
fn shown(mark: &str) -> Vec<&'static str> {
    let blocks = BOOK.split("```").skip(1).step_by(2).filter_map(|block| block.split_once('\n'));
    blocks.filter(|(found, _)| *found == mark).map(|(_, block)| block).collect()
}

/// Those that are whole files, behind the names that they are given.
fn shown_files() -> Vec<(&'static str, &'static str)> {
    let whole = shown("toml").into_iter().filter(|block| block.starts_with("about = "));
    let named = whole.map(|block| {
        let (head, _) = block.split_once('\n').unwrap();
        (head.rsplit_once("# ").expect(head).1, block)
    });
    named.collect()
}

/// All that it says a queue may be: in the first cells of a table.
fn shown_queues() -> Vec<&'static str> {
    let rows = BOOK.lines().filter(|line| line.starts_with("| `\""));
    let cells = rows.filter_map(|row| row.split(" | ").next());
    cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect()
}

#[test]
fn every_scenario_that_the_book_shows_runs_both_ways() {
    let Some(home) = home_with_labs("every_scenario_that_the_book_shows_runs_both_ways") else {
        return;
    };
    std::fs::write(home.path("radio.trace"), "1\n").unwrap();
    let (blocks, files) = (shown("toml"), shown_files());
    let first = blocks[0];
    // What is no file by itself goes on with the first.
    let whole = |block: &&str| match files.iter().any(|file| file.1 == *block) {
        true => (*block).to_owned(),
        false => format!("{first}\n{block}"),
    };
    let mut scenarios: Vec<String> = blocks.iter().map(whole).collect();
    let head = ["seed = 7", "duration = \"10m\"", "repeat = \"60s\""];
    assert!(head.iter().all(|key| BOOK.contains(&format!("`{key}`"))), "{head:?}");
    let changes = scenarios.last().filter(|last| last.contains("[[change]]")).expect("changes");
    let headed = format!("{}\n{changes}", head.join("\n"));
    scenarios.push(headed);
    let queues = shown_queues();
    assert!(files.len() > 1 && queues.len() > 1, "{files:?} {queues:?}");
    let with = |queue: &&str| first.replacen("\"300ms\"", queue, 1);
    scenarios.extend(queues.iter().map(with).inspect(|scenario| assert_ne!(scenario, first)));
    let simulate = ["simulate", "shown.toml", "--duration", "2s"];
    let emulate = ["emulate", "--scenario", "shown.toml", "--", "true"];
    for scenario in scenarios {
        std::fs::write(home.path("shown.toml"), &scenario).unwrap();
        for command in [&simulate[..], &emulate] {
            let output = home.run(command);
            let said = text(&output.stderr);
            assert!(output.status.success(), "{command:?}: {said}of:\n{scenario}");
        }
    }
    // And what one of them refuses.
    for (more, why) in [
        ("[[near]]\nper-packet = \"80us\"\n", "per-packet"),
        ("[[link]]\nbetween = [\"far\", \"rome\"]\nrate = \"100mbit\"\n", "[[link]]"),
    ] {
        std::fs::write(home.path("shown.toml"), format!("{first}\n{more}")).unwrap();
        home.succeed(&simulate);
        let said = home.fail(1, &emulate);
        assert!(said.contains(why), "{said}");
    }
}

/// But for one that needs another host.
#[test]
fn the_commands_that_the_book_shows_succeed() {
    let test = "the_commands_that_the_book_shows_succeed";
    let Some(home) = home_with_labs(test) else {
        return;
    };
    let missing = |program: &&str| Command::new(program).arg("--version").output().is_err();
    if let Some(program) = ["iperf3", "python3", "curl"].into_iter().find(missing) {
        return skip(test, &format!("{program} is not installed"));
    }
    let files = shown_files();
    for (name, block) in &files {
        std::fs::write(home.path(name), block).unwrap();
    }
    let folder = std::path::Path::new(env!("CARGO_BIN_EXE_longhaul")).parent().unwrap();
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    let commands = shown("").concat().replace("\\\n", " ");
    for command in commands.lines().filter(|line| !line.is_empty() && !line.contains("probe")) {
        // Sooner done, with more time for servers to start; and what was faithful is not asked here.
        let command = if command.contains(" simulate ") && !command.contains(" --duration ") {
            format!("{command} --duration 2s")
        } else {
            let emulated = command.replace(" emulate ", " emulate --no-verdict ");
            emulated.replace("sleep 1;", "sleep 3;").replace("-t 10'", "-t 1'")
        };
        let mut shell = Command::new("sh");
        shell.args(["-c", &command]).current_dir(home.path("")).env("PATH", &path);
        let output = finish(start(shell.stdin(Stdio::null())));
        assert!(output.status.success(), "{command}: {}", text(&output.stderr));
    }
    let copy = std::fs::read_to_string(home.path("copy.toml")).unwrap();
    assert_eq!(copy, files[0].1, "the last of them fetched it");
}
