//! `--qlog`: what is written is what the schema of qlog 0.3 wants, and the whole truth.

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::Value;
use support::Home;

/// The log that one end wrote into `directory`: its head and its events.
fn read(directory: &Path, vantage: &str) -> (Value, Vec<Value>) {
    let names = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let ending = format!("-{vantage}.sqlog");
    let mut found = names.filter(|name| name.to_str().unwrap().ends_with(&ending));
    let bytes = fs::read(found.next().expect("a log")).unwrap();
    assert!(found.next().is_none(), "one connection, one log");
    let mut texts = bytes.split(|&byte| byte == 0x1e);
    assert!(texts.next().unwrap().is_empty(), "a separator stands first");
    let mut texts = texts.map(|text| {
        assert_eq!(text.last(), Some(&b'\n'));
        serde_json::from_slice(text).unwrap()
    });
    (texts.next().unwrap(), texts.collect())
}

/// What each event's data must hold: draft-ietf-quic-qlog-quic-events-01.
fn required(name: &str) -> &'static [&'static str] {
    match name {
        "connectivity:connection_started" => &["/src_ip", "/dst_ip"],
        "transport:packet_sent" | "transport:packet_received" | "recovery:packet_lost" => {
            &["/header/packet_type", "/header/packet_number"]
        }
        "recovery:congestion_state_updated" | "longhaul:limit_updated" => &["/new"],
        "recovery:metrics_updated" | "transport:parameters_set" => &[],
        "connectivity:connection_closed" => &["/owner", "/reason"],
        other => panic!("unknown event {other}"),
    }
}

fn check_frame(frame: &Value) {
    let fields: &[&str] = match frame["frame_type"].as_str().unwrap() {
        "stream" => &["stream_id", "offset", "length"],
        "ack" => &["acked_ranges"],
        "max_data" => &["maximum"],
        "max_stream_data" => &["stream_id", "maximum"],
        "unknown" => &["raw_frame_type"],
        "padding" | "ping" | "path_challenge" | "path_response" => &[],
        "reset_stream" => &["stream_id", "error_code", "final_size"],
        "stop_sending" => &["stream_id", "error_code"],
        "connection_close" => &["error_space", "error_code"],
        other => panic!("unknown frame {other}"),
    };
    assert!(fields.iter().all(|&field| !frame[field].is_null()), "{frame}");
}

/// Checks head and events; how many there are of each.
fn check(head: &Value, events: &[Value], vantage: &str) -> BTreeMap<String, usize> {
    assert_eq!((&head["qlog_format"], &head["qlog_version"]), (&"JSON-SEQ".into(), &"0.3".into()));
    assert_eq!(head["trace"]["vantage_point"]["type"], vantage);
    assert!(head["trace"]["common_fields"]["reference_time"].as_f64() > Some(1.6e12));
    let (mut counts, mut latest) = (BTreeMap::new(), 0.0);
    for event in events {
        let (time, name) = (event["time"].as_f64().unwrap(), event["name"].as_str().unwrap());
        assert!(time >= latest, "{event}");
        latest = time;
        for field in required(name) {
            assert!(event["data"].pointer(field).is_some_and(|value| !value.is_null()), "{event}");
        }
        event["data"]["frames"].as_array().into_iter().flatten().for_each(check_frame);
        *counts.entry(name.to_owned()).or_default() += 1;
    }
    counts
}

/// Bytes of streams in these packets, up to the end of each.
fn carried(events: &[Value], name: &str) -> u64 {
    let packets = events.iter().filter(|event| event["name"] == name);
    let frames = packets.flat_map(|event| event["data"]["frames"].as_array().unwrap());
    let mut ends = BTreeMap::new();
    for frame in frames.filter(|frame| frame["frame_type"] == "stream") {
        let field = |name: &str| frame[name].as_u64().unwrap();
        let end: &mut u64 = ends.entry(field("stream_id")).or_default();
        *end = (*end).max(field("offset") + field("length"));
    }
    ends.values().sum()
}

#[test]
fn both_ends_write_all_that_a_transfer_did() {
    let home = Home::new();
    home.file("file", 700_000);
    let server = home.serve(&["--qlog", "logs"]);
    home.succeed(&["cp", "--qlog", "logs", "file", &server.url("")]);
    server.signal(rustix::process::Signal::TERM);
    assert_eq!(server.exit_code(), Some(0));
    for vantage in ["client", "server"] {
        let (head, events) = read(&home.path("logs"), vantage);
        let counts = check(&head, &events, vantage);
        for name in [
            "connectivity:connection_started",
            "transport:parameters_set",
            "transport:packet_sent",
            "transport:packet_received",
            "recovery:metrics_updated",
            "recovery:congestion_state_updated",
            "connectivity:connection_closed",
        ] {
            assert!(counts.contains_key(name), "{vantage}: {counts:?}");
        }
        let way = if vantage == "client" { "sent" } else { "received" };
        let moved = carried(&events, &format!("transport:packet_{way}"));
        assert!((700_000..720_000).contains(&moved), "{vantage}: {moved} bytes");
        assert_eq!(events[0]["name"], "connectivity:connection_started");
    }
}

#[test]
fn a_probe_is_logged_and_a_place_that_cannot_be_written_is_told_before() {
    let home = Home::new();
    let server = home.serve(&[]);
    home.succeed(&["probe", "--seconds", "1", "--qlog", "logs", &server.url("")]);
    let (head, events) = read(&home.path("logs"), "client");
    check(&head, &events, "client");
    home.file("plain", 1);
    let there = server.url("");
    for command in [&["probe"][..], &["cp", "plain"]] {
        let arguments = [command, &[&there, "--qlog", "plain/logs"]].concat();
        let said = home.fail(1, &arguments);
        assert!(said.contains("cannot write to plain/logs"), "{said}");
    }
    let tcp = ["cp", "--transport", "tcp", "--qlog", "logs", "plain", &server.url("")];
    assert!(home.fail(2, &tcp).contains("--transport udp"));
}
