//! `longhaul probe`, and what is remembered of paths, by the real binary on loopback.

mod support;

use std::fs;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::Duration;

use emulator::Relay;
use path::PathConfig;
use support::{Home, text};

#[test]
fn a_server_is_probed_and_keeps_nothing() {
    let home = Home::new();
    let server = home.serve(&["--read-only"]);
    let url = server.url("");
    let output = home.succeed(&["probe", "--seconds", "1", "--json", &url]);
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    for way in ["there", "back"] {
        let number = |what: &str| found[way][what].as_f64().unwrap();
        assert!(number("likely_bps") <= number("rate_bps"), "{found}");
        assert!((0.0..=1.0).contains(&number("loss")), "{found}");
    }
    let rtt = &found["rtt_ms"];
    assert!(
        rtt["least"].as_f64().unwrap() > 0.0 && rtt["least"].as_f64() <= rtt["median"].as_f64()
    );
    assert!(found["mtu"].as_u64().unwrap() >= 1228 && found["advice"]["words"].is_string());
    let record = ["probe", "--seconds", "1", "--record", "path.toml", &url];
    let said = text(&home.succeed(&record).stdout);
    assert!(said.contains("round trip ") && said.contains("Advice: "), "{said}");
    assert_eq!(fs::read_dir(home.path("root")).unwrap().count(), 0);
    // What was found can be simulated.
    let file = ["simulate", "path.toml", "--set", "flow.source=100kB", "--duration", "1s"];
    assert!(text(&home.succeed(&file).stdout).contains("longhaul"));
}

#[test]
fn strangers_are_not_probed_for() {
    let (home, stranger) = (Home::new(), Home::new());
    let server = home.serve(&[]);
    let said = stranger.fail(1, &["probe", "--accept-new", &server.url("")]);
    assert!(said.contains("does not let this side's key in"), "{said}");
    assert!(stranger.fail(2, &["probe", "lh://host/path"]).contains("a server alone"));
}

#[test]
fn blocked_udp_is_told_from_an_absent_host() {
    let home = Home::new();
    home.succeed(&["keygen", "--shared", "key"]);
    let server = home.serve(&["--key", "key"]);
    let url = server.url("");
    let there = url["lh://".len()..].trim_end_matches('/').to_owned();
    // TCP alone gets through to this port.
    let door = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = door.local_addr().unwrap().port();
    let relay = std::thread::spawn(move || {
        let (mut near, _) = door.accept().unwrap();
        let mut far = TcpStream::connect(there).unwrap();
        let mut back = (far.try_clone().unwrap(), near.try_clone().unwrap());
        let backwards = std::thread::spawn(move || std::io::copy(&mut back.0, &mut back.1));
        let _ = std::io::copy(&mut near, &mut far);
        far.shutdown(Shutdown::Both).unwrap();
        let _ = backwards.join().unwrap();
    });
    let probe = ["probe", "--key", "key", &format!("127.0.0.1:{port}")];
    let said = home.fail(1, &probe);
    assert!(said.contains("UDP is blocked") && said.contains("--transport tcp"), "{said}");
    relay.join().unwrap();
    let said = home.fail(1, &probe);
    assert!(!said.contains("TCP"), "{said}");
}

/// What the next transfer to the server says of the path.
fn next(home: &Home, options: &[&str], url: &str) -> String {
    let cp = ["cp", "-v", "--transport", "udp", "file", url];
    text(&home.succeed(&[&cp, options].concat()).stderr)
}

#[test]
fn who_sends_remembers_the_path() {
    let home = Home::new();
    home.file("file", 4_000_000);
    let server = home.serve(&["--no-remember"]);
    // A path on which the start is over before all is sent.
    let path = PathConfig::new("50mbit".parse().unwrap(), Duration::from_millis(2));
    let relay = Relay::start(&path, server.address().parse().unwrap()).unwrap();
    let url = format!("lh://{}/", relay.address());
    assert!(!next(&home, &["--no-remember"], &url).contains("remembered path"));
    assert!(!home.path("home/paths").exists());
    assert!(!next(&home, &[], &url).contains("remembered path"));
    let kept = fs::read_to_string(home.path("home/paths")).unwrap();
    assert!(kept.contains("127.0.0.1"), "{kept}");
    assert!(next(&home, &[], &url).contains("remembered path: "));
    // Getting, this side sends nothing and learns nothing.
    fs::remove_file(home.path("home/paths")).unwrap();
    home.succeed(&["cp", &server.url("file"), "back"]);
    assert!(!home.path("home/paths").exists());
    // Damage costs a word, and no transfer.
    fs::write(home.path("home/paths"), "{").unwrap();
    let said = next(&home, &[], &url);
    assert!(said.contains("begun anew") && said.contains("verified"), "{said}");
    assert!(next(&home, &[], &url).contains("remembered path: "));
}
