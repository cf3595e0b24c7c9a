//! `longhaul simulate` and `longhaul reproduce`, by the real binary.

mod support;

use serde_json::Value;
use support::{Home, text};

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
    std::fs::write(home.path("s.toml"), SCENARIO).unwrap();
    let run = |jobs: &str, trace: &str| {
        let sweep =
            ["simulate", "s.toml", "--set", "rtt=20ms", "--set", "rtt=80ms", "--seeds", "3"];
        let output =
            home.succeed(&[&sweep[..], &["--json", "--jobs", jobs, "--trace", trace]].concat());
        (output.stdout, std::fs::read(home.path(trace)).unwrap())
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
    std::fs::write(home.path("s.toml"), SCENARIO).unwrap();
    let table = text(&home.succeed(&["simulate", "s.toml", "--duration", "2s"]).stdout);
    assert!(table.contains("tcp x 2") && table.contains("bottleneck: "), "{table}");
    let preset = ["simulate", "xftp-t1", "--duration", "3s", "--from", "1s"];
    assert!(text(&home.succeed(&preset).stdout).contains("longhaul"));
    let error = home.fail(1, &["simulate", "s.toml", "--set", "flow.9.cc=reno"]);
    assert!(error.contains("flow.9.cc=reno") && error.contains("2 tables"), "{error}");
    assert!(home.fail(1, &["simulate", "s.toml", "--from", "9s"]).contains("measure"));
    std::fs::write(home.path("s.toml"), SCENARIO.replace("count = 2", "speed = 2")).unwrap();
    assert!(home.fail(1, &["simulate", "s.toml"]).contains("speed"));
}

#[test]
fn rows_of_the_papers_are_listed_and_judged() {
    let home = Home::new();
    assert!(text(&home.succeed(&["reproduce", "--list"]).stdout).contains("xftp-fig1"));
    let row = text(&home.succeed(&["reproduce", "gw-eq1", "--seeds", "1"]).stdout);
    assert!(row.starts_with("gw-eq1: reproduced"), "{row}");
    assert!(home.fail(1, &["reproduce", "nothing"]).contains("--list"));
}

#[test]
fn reports_are_pages_that_need_nothing_else() {
    let home = Home::new();
    std::fs::write(home.path("s.toml"), SCENARIO).unwrap();
    home.succeed(&["simulate", "s.toml", "--duration", "2s", "--report", "s.html"]);
    home.succeed(&["reproduce", "mftp-fig7", "--quick", "--report", "papers"]);
    let read = |file: &str| std::fs::read_to_string(home.path(file)).unwrap();
    let (scenario, papers) = (read("s.html"), read("papers/index.html"));
    assert!(scenario.contains("Two kinds of flows") && scenario.contains("tcp.2"), "{scenario}");
    assert!(papers.contains("mftp-fig7: <span class=\"good\">reproduced"), "{papers}");
    for page in [scenario, papers] {
        assert!(page.contains("<svg") && !page.contains("src=") && !page.contains("@import"));
    }
}
