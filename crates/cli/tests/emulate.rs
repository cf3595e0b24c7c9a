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
