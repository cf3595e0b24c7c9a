//! `longhaul emulate` and `longhaul demo`, by the real binary.

mod support;

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
    let cp = ["--far", &serve, "--", longhaul, "cp", "tree"];
    let output = home.succeed(&[&path[..], &cp, &["lh://10.77.0.2/there"]].concat());
    assert!(text(&output.stderr).contains("verified"), "{}", text(&output.stderr));
    assert_eq!(fingerprint(&home.path("root/there")), fingerprint(&home.path("tree")));
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
    for way in ["plain TCP (CUBIC)", "striped TCP x 4", "Longhaul UDP"] {
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
