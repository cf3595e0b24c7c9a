//! Killed again and again: the same command goes on, and no file is ever wrong.

mod support;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use support::{Home, Server, bytes, fingerprint, plant, send, start, text};
use walkdir::WalkDir;

/// More than the four sittings carry before they are killed, of which each lasts a second or two.
const LARGE: usize = 150_000_000;

/// The names of ours below a folder: journals and what is not whole yet.
fn ours(folder: &Path) -> usize {
    let entries = WalkDir::new(folder).into_iter().flatten();
    entries.filter(|entry| entry.file_name().to_string_lossy().contains(".longhaul-")).count()
}

/// Whatever stands under its final name is as it was sent.
fn nothing_wrong(sent: &Path, arrived: &Path) {
    for entry in WalkDir::new(arrived).into_iter().flatten() {
        let is_ours = entry.file_name().to_string_lossy().contains(".longhaul-");
        if entry.file_type().is_file() && !is_ours {
            let name = entry.path().strip_prefix(arrived).unwrap();
            let sent =
                fs::read(sent.join(name)).unwrap_or_else(|_| panic!("{name:?} was not sent"));
            assert!(sent == fs::read(entry.path()).unwrap(), "{name:?}");
        }
    }
}

/// An address that a server can have again and again: the kernel gives its port to nobody else.
fn lasting_address(is_put: bool) -> String {
    let first = 10_000 + std::process::id() as u16 % 10_000 * 2 + u16::from(is_put);
    let addresses = (first..).step_by(2).map(|port| format!("127.0.0.1:{port}"));
    let is_free = |address: &String| {
        std::net::UdpSocket::bind(address).is_ok() && std::net::TcpListener::bind(address).is_ok()
    };
    addresses.into_iter().find(is_free).expect("a free port")
}

fn killed(is_put: bool) {
    let home = Home::new();
    plant(&home.folder("tree"));
    home.file("tree/large", LARGE);
    let expected = fingerprint(&home.path("tree"));
    home.succeed(&["keygen", "--shared", "key"]);
    home.folder("root");
    // The same port each time, for another one would be another copy.
    let listen = lasting_address(is_put);
    let slowly = &["--rate-limit", "150mbit"][..];
    let serve = |slowly: &[&str]| {
        let root = if is_put { "root" } else { "." };
        let serve = ["serve", "--key", "key", "--listen", &listen, "--root", root];
        Server::start(&mut home.longhaul(&[&serve, slowly].concat()))
    };
    let url = |path: &str| format!("lh://{listen}/{path}");
    let (from, to) =
        if is_put { ("tree".to_owned(), url("come")) } else { (url("tree"), "come".to_owned()) };
    let arrived = home.path(if is_put { "root/come" } else { "come" });
    let copy = ["cp", "--json", "--no-remember", "--key", "key", &from, &to];
    for (reached, both) in [(1, true), (20_000_000, false), (1, true), (45_000_000, false)] {
        let server = serve(if is_put { &[] } else { slowly });
        let mut child =
            start(&mut home.longhaul(&[&copy[..], if is_put { slowly } else { &[] }].concat()));
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let bytes = |line: String| serde_json::from_str::<Value>(&line).unwrap()["bytes"].as_u64();
        let arrived_so_far = lines.map_while(Result::ok).filter_map(bytes).find(|&n| n >= reached);
        assert!(arrived_so_far.is_some(), "it ended too soon");
        if both {
            server.signal(Signal::KILL);
        }
        send(&child, Signal::KILL);
        child.wait().unwrap();
        if !both {
            // It may be about to give a file its name.
            server.signal(Signal::TERM);
            server.exit_code();
        }
        nothing_wrong(&home.path("tree"), &arrived);
    }
    let _server = serve(&[]);
    let said = text(&home.succeed(&copy).stdout);
    let done: Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
    assert!(done["kept_bytes"].as_u64() > Some(8_000_000), "{done}");
    assert_eq!(fingerprint(&arrived), expected);
    assert!(fs::read(arrived.join("large")).unwrap() == bytes(LARGE));
    // The journal stands beside the new name, and goes when both have heard of the end.
    let beside = arrived.parent().unwrap();
    for _ in 0..500 {
        if ours(beside) == 0 {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("something of ours stays");
}

#[test]
fn sending_goes_on_after_any_kill() {
    killed(true);
}

#[test]
fn receiving_goes_on_after_any_kill() {
    killed(false);
}
