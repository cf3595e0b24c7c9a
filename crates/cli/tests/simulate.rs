//! `longhaul simulate` and `longhaul reproduce`, by the real binary.

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use support::{Home, finish, send, skip, start, text};

const SCENARIO: &str = r#"
about = "Two kinds of flows"
rtt = "40ms"
duration = "5s"
[both]
rate = "20mbit"
queue = "red"
loss = 0.001
[[flow]]
name = "ours"
[[flow]]
name = "tcp"
count = 2
transport = "tcp"
every = "500ms"
"#;

#[test]
fn the_same_scenario_gives_the_same_bytes_on_any_number_of_cores() {
    let home = Home::new();
    fs::write(home.path("s.toml"), SCENARIO).unwrap();
    let run = |jobs: &str, trace: &str| {
        let sweep =
            ["simulate", "s.toml", "--set", "rtt=20ms", "--set", "rtt=80ms", "--seeds", "3"];
        let output =
            home.succeed(&[&sweep[..], &["--json", "--jobs", jobs, "--trace", trace]].concat());
        (output.stdout, fs::read(home.path(trace)).unwrap())
    };
    let (json, trace) = run("1", "a.csv");
    assert_eq!((&json, &trace), (&run("4", "b.csv").0, &run("2", "c.csv").1));
    let lines: Vec<Value> =
        text(&json).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 2 * (3 + 1));
    assert_eq!(lines[3]["event"], "summary");
    assert_eq!(lines[3]["set"]["rtt"], "20ms");
    assert_eq!(lines[0]["run"]["flows"].as_array().unwrap().len(), 3);
    let trace = text(&trace);
    assert!(trace.starts_with("set,seed,seconds,flow,"), "{trace}");
    // Two sets, three seeds, 5 s in steps of 100 ms, three flows.
    assert_eq!(trace.lines().count(), 1 + 2 * 3 * 50 * 3);
}

#[test]
fn a_table_is_for_people_and_errors_name_their_place() {
    let home = Home::new();
    fs::write(home.path("s.toml"), SCENARIO).unwrap();
    let table = text(&home.succeed(&["simulate", "s.toml", "--duration", "2s"]).stdout);
    assert!(table.contains("tcp x 2") && table.contains("bottleneck: "), "{table}");
    // The other way the other link limits.
    let back = ["simulate", "s.toml", "--duration", "4s", "--set", "flow.from=far"];
    let table = text(&home.succeed(&back).stdout);
    assert!(table.contains("bottleneck: far to near, "), "{table}");
    let slow = ["simulate", "s.toml", "--duration", "4s", "--set", "near.rate=2mbit"];
    let table = text(&home.succeed(&slow).stdout);
    assert!(table.contains("bottleneck: from near host 1, "), "{table}");
    let preset = ["simulate", "xftp-t1", "--duration", "3s", "--from", "1s"];
    assert!(text(&home.succeed(&preset).stdout).contains("longhaul"));
    let error = home.fail(1, &["simulate", "s.toml", "--set", "flow.9.cc=reno"]);
    assert!(error.contains("flow.9.cc=reno") && error.contains("2 tables"), "{error}");
    assert!(home.fail(1, &["simulate", "s.toml", "--from", "9s"]).contains("measure"));
    fs::write(home.path("s.toml"), SCENARIO.replace("count = 2", "speed = 2")).unwrap();
    assert!(home.fail(1, &["simulate", "s.toml"]).contains("speed"));
}

#[test]
fn rows_of_the_papers_are_listed_and_judged() {
    let home = Home::new();
    let list = text(&home.succeed(&["reproduce", "--list"]).stdout);
    assert!(list.contains("xftp-fig1") && list.contains("gw-table2        emulated"), "{list}");
    let simulated = ["reproduce", "gw-eq1", "--only", "simulated", "--seeds", "1"];
    let row = text(&home.succeed(&simulated).stdout);
    assert!(row.starts_with("gw-eq1: reproduced"), "{row}");
    let told = text(&home.succeed(&simulated).stderr);
    assert!(told.contains("longhaul: all of that took 0."), "{told}");
    assert!(home.fail(2, &["reproduce", "nothing"]).contains("--list"));
}

/// What cannot be run here does not count against the row, but is loud, and in the report; and what was asked
/// for was not all judged, whatever the others came to.
#[test]
fn rows_that_lack_a_program_are_not_run() {
    let home = Home::new();
    let mut command = home.longhaul(&["reproduce", "gw-eq1", "--seeds", "1", "--report", "r"]);
    let output = command.env("PATH", home.folder("nothing")).output().unwrap();
    let (said, told) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(said.starts_with("gw-eq1 emulated: NOT RUN") && said.contains("why"), "{said}");
    assert!(said.contains("\ngw-eq1: reproduced"), "{said}");
    assert!(told.contains("NOT RUN") && !told.contains("not reproduced"), "{told}");
    assert!(told.contains("--only simulated"), "says how to leave it out: {told}");
    let page = fs::read_to_string(home.path("r/index.html")).unwrap();
    assert!(page.contains("NOT RUN") && page.contains("--only emulated"), "{page}");
}

/// Nothing is known of such a row: neither that it is reproduced, nor that it is not.
#[test]
fn rows_whose_runs_fail_broke() {
    let home = Home::new();
    let ip = home.folder("bin").join("ip");
    fs::write(&ip, "#!/bin/sh\necho alas >&2; exit 3\n").unwrap();
    fs::set_permissions(&ip, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", home.path("bin").display(), std::env::var("PATH").unwrap());
    let run = |more: &[&str]| {
        let row = ["reproduce", "mftp-eq1", "--only", "emulated", "--quick"];
        finish(start(home.longhaul(&[&row[..], more].concat()).env("PATH", &path)))
    };
    let output = run(&["--json"]);
    let row: Value = serde_json::from_slice(&output.stdout).expect("one row");
    if row["verdict"] == "not-run" {
        return skip("rows_whose_runs_fail_broke", &row["reason"].to_string());
    }
    assert!(row["verdict"] == "broke" && row["reproduced"] == false, "{row}");
    assert!(row["reason"].as_str().unwrap().contains("alas"), "{row}");
    let output = run(&["--report", "r"]);
    let (said, told) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(said.starts_with("mftp-eq1 emulated: BROKE") && said.contains("alas"), "{said}");
    assert!(told.contains("BROKE") && !told.contains("not reproduced"), "{told}");
    let page = fs::read_to_string(home.path("r/index.html")).unwrap();
    assert!(page.contains("BROKE") && page.contains("alas"), "{page}");
}

/// Whatever ends it: what it has made goes, even what a row has just begun. Not by Ctrl-C here: whoever
/// runs tests in the background may have them ignore it.
#[test]
fn an_interrupted_row_leaves_no_folder() {
    for signal in [Signal::TERM, Signal::KILL] {
        let home = Home::new();
        let run = ["reproduce", "mftp-eq1", "--only", "emulated"];
        let mut child = start(&mut home.longhaul(&run));
        // It holds the lock in its folder, where a row that has begun has folders of its own.
        let descriptors = PathBuf::from(format!("/proc/{}/fd", child.id()));
        let folder = || {
            let files = fs::read_dir(&descriptors).into_iter().flatten().flatten();
            let mut files = files.filter_map(|file| fs::read_link(file.path()).ok());
            let lock = files.find(|file| file.ends_with("lock"))?;
            let folder = lock.parent()?.to_owned();
            fs::read_dir(&folder).is_ok_and(|entries| entries.count() > 4).then_some(folder)
        };
        let mut looks = 0;
        let mut wait = || {
            looks += 1;
            assert!(looks < 3000, "took longer than a minute");
            std::thread::sleep(Duration::from_millis(20));
        };
        let folder = loop {
            if let Some(folder) = folder() {
                break folder;
            }
            if child.try_wait().unwrap().is_some() {
                let said = text(&finish(child).stdout);
                assert!(said.contains("NOT RUN"), "{said}");
                return skip("an_interrupted_row_leaves_no_folder", &said);
            }
            wait();
        };
        send(&child, signal);
        assert!(!child.wait().unwrap().success());
        while folder.exists() {
            wait();
        }
    }
}

/// `longhaul cp` across a lab, judged by the simulated row's criterion.
#[test]
fn a_row_is_judged_across_the_emulator() {
    let home = Home::new();
    let run = ["reproduce", "mftp-eq1", "--only", "emulated", "--quick", "--json", "--report", "r"];
    let output = home.run(&run);
    let row: Value = serde_json::from_slice(&output.stdout).expect("one row");
    assert!(row["id"] == "mftp-eq1" && row["emulated"] == true, "{row}");
    if row["verdict"] == "not-run" {
        return skip("a_row_is_judged_across_the_emulator", &row["reason"].to_string());
    }
    // How much it was is for quiet machines to say; that all stood in the one line is not.
    let reproduced = row["reproduced"].as_bool().unwrap();
    assert_eq!(output.status.success(), reproduced, "{row}");
    let figure = row["figures"][0].as_str().unwrap();
    assert!(figure.starts_with("Mbit/s: 2.") && figure.contains("expected 2.62"), "{row}");
    let page = fs::read_to_string(home.path("r/index.html")).unwrap();
    assert!(page.contains("mftp-eq1 emulated") && page.contains(figure), "{page}");
}

#[test]
fn reports_are_pages_that_need_nothing_else() {
    let home = Home::new();
    fs::write(home.path("s.toml"), SCENARIO).unwrap();
    home.succeed(&["simulate", "s.toml", "--duration", "2s", "--report", "s.html"]);
    home.succeed(&["reproduce", "mftp-fig7", "--quick", "--report", "papers"]);
    let read = |file: &str| fs::read_to_string(home.path(file)).unwrap();
    let (scenario, papers) = (read("s.html"), read("papers/index.html"));
    assert!(scenario.contains("Two kinds of flows") && scenario.contains("tcp.2"), "{scenario}");
    assert!(papers.contains("mftp-fig7: <span class=\"good\">reproduced"), "{papers}");
    for page in [scenario, papers] {
        assert!(page.contains("<svg") && !page.contains("src=") && !page.contains("@import"));
    }
}
