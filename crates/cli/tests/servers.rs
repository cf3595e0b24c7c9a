//! Copies from one server to another, which do not pass through the client's host.

mod support;

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;
use support::{Home, Server, fingerprint, plant, send, start, text};

/// A server that lets a guest in by a line with these words, on a host of its own.
struct Host {
    home: Home,
    server: Server,
}

impl Host {
    fn new(guest: &Home, words: &str, options: &[&str]) -> Self {
        let home = Home::new();
        let key = text(&guest.succeed(&["fingerprint"]).stdout);
        fs::write(home.path("home/authorized_keys"), format!("{words} {key}")).unwrap();
        let server = home.serve(options);
        Self { home, server }
    }

    /// One that copies to others on this host.
    fn copying(guest: &Home, words: &str) -> Self {
        Self::new(guest, words, &["--copy-to", "127.0.0.1:*"])
    }

    fn root(&self, name: &str) -> std::path::PathBuf {
        self.home.path("root").join(name)
    }
}

const CARRIERS: [&str; 2] = ["--transport=udp", "--transport=tcp"];

#[test]
fn a_tree_goes_from_one_to_the_other_and_then_only_what_changes() {
    let guest = Home::new();
    let (from, to) = (Host::copying(&guest, ""), Host::new(&guest, "", &[]));
    plant(&from.home.folder("root/tree"));
    // Between two servers the names that are typed are text; those within need not be.
    let expected = fingerprint(&from.root("tree"));
    for carrier in CARRIERS {
        let (here, there) = (from.server.url("tree"), to.server.url(&carrier[12..]));
        let copy = ["cp", "--accept-new", "--json", carrier, &here, &there];
        let said = text(&guest.succeed(&copy).stdout);
        assert!(said.contains("\"start\"") && said.contains("\"done\""), "{said}");
        assert_eq!(fingerprint(&to.root(&carrier[12..])), expected);
    }
    let (here, there) = (from.server.url("tree"), to.server.url("udp"));
    let last = |words: &[&str]| -> serde_json::Value {
        let said = guest.succeed(&[words, &["--json", &here, &there]].concat()).stdout;
        serde_json::from_str(text(&said).lines().last().unwrap()).unwrap()
    };
    let done = last(&["sync", "--delete"]);
    assert_eq!((&done["kept_files"], &done["removed"]), (&done["files"], &0.into()), "{done}");
    fs::write(to.root("udp/extra"), "extra").unwrap();
    let said = text(&guest.succeed(&["sync", "-n", "--delete", &here, &there]).stderr);
    assert!(said.contains("would be removed") && said.contains("nothing was changed"), "{said}");
    let said = guest.fail(1, &["sync", "--verify-only", &here, &there]);
    assert!(said.contains("at the destination alone"), "{said}");
    assert_eq!(last(&["sync", "--delete"])["removed"], 1);
    assert_eq!(fingerprint(&to.root("udp")), expected);
    // Several sources go into a directory.
    let all = [from.server.url("tree/one"), from.server.url("tree/deep")];
    guest.succeed(&["cp", &all[0], &all[1], &to.server.url("several/")]);
    assert!(to.root("several/one").is_file() && to.root("several/deep").is_dir());
}

#[test]
fn neither_side_gains_what_the_client_may_not() {
    let guest = Home::new();
    let to = Host::new(&guest, "", &[]);
    let fail = |from: &Host, path: &str, to: &Host| {
        guest.fail(1, &["cp", "--accept-new", &from.server.url(path), &to.server.url("there")])
    };
    // Whom a server connects to, its owner says.
    let silent = Host::new(&guest, "", &[]);
    silent.home.file("root/file", 10);
    let said = fail(&silent, "file", &to);
    assert!(said.contains(&format!("--copy-to {}", to.server.address())), "{said}");
    let narrow = Host::copying(&guest, "forward=\"127.0.0.1:1\"");
    narrow.home.file("root/file", 10);
    let said = fail(&narrow, "file", &to);
    assert!(said.contains("forward= of the key"), "{said}");

    let from = Host::copying(&guest, "root=\"mine\"");
    from.home.folder("root/mine");
    from.home.file("root/mine/file", 10);
    let secret = from.home.file("root/secret", 10);
    symlink(&secret, from.root("mine/link")).unwrap();
    symlink("..", from.root("mine/up")).unwrap();
    for path in ["../secret", "link", "up/secret", "none"] {
        let said = fail(&from, path, &to);
        assert!(!to.root("there").exists(), "{path}: {said}");
    }
    let read_only = Host::new(&guest, "read-only", &[]);
    assert!(fail(&from, "file", &read_only).contains("only gives files"));
    let stranger = Host::new(&from.home, "", &[]);
    assert!(fail(&from, "file", &stranger).contains("does not let this side's key in"));
    let said =
        guest.fail(2, &["cp", "--streams", "3", &from.server.url("file"), &to.server.url("there")]);
    assert!(said.contains("--streams does not go between two servers"), "{said}");
    let said = guest.fail(2, &["cp", "-v", &from.server.url("file"), &to.server.url("there")]);
    assert!(said.contains("--verbose does not go between two servers"), "{said}");

    let rooted = Host::new(&guest, "root=\"mine\"", &[]);
    rooted.home.folder("root/mine");
    let (here, there) = (from.server.url("file"), rooted.server.url("there"));
    guest.succeed(&["cp", "--accept-new", &here, &there]);
    assert!(rooted.root("mine/there").is_file());
    let said = guest.fail(1, &["cp", &here, &rooted.server.url("../there")]);
    assert!(!rooted.root("there").exists(), "{said}");
}

/// At [`RATE`] it takes four seconds.
const SIZE: usize = 2_000_000;
const RATE: &str = "rate=4mbit";
const LEAST: Duration = Duration::from_secs(3);

#[test]
fn rates_of_keys_hold_at_either_server() {
    let guest = Home::new();
    for (here, there) in [(RATE, ""), ("", RATE)] {
        let (from, to) = (Host::copying(&guest, here), Host::new(&guest, there, &[]));
        from.home.file("root/file", SIZE);
        for carrier in CARRIERS {
            let begin = net::clock::now();
            let url = to.server.url(carrier);
            guest.succeed(&["cp", "--accept-new", carrier, &from.server.url("file"), &url]);
            let took = net::clock::now().since(begin);
            assert!(took > LEAST, "{here:?} to {there:?} over {carrier}: {took:?}");
            assert!(fs::read(to.root(carrier)).unwrap() == support::bytes(SIZE));
        }
    }
}

#[test]
fn it_ends_with_the_client_and_goes_on_with_the_same_command() {
    let guest = Home::new();
    let (from, to) = (Host::copying(&guest, ""), Host::new(&guest, "", &[]));
    from.home.file("root/file", SIZE * 40);
    let (here, there) = (from.server.url("file"), to.server.url("there"));
    let copy = ["cp", "--accept-new", "--json", &here, &there];
    let mut child = start(&mut guest.longhaul(&[&copy[..], &["--rate-limit=160mbit"]].concat()));
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let events = lines.map(|line| serde_json::from_str::<serde_json::Value>(&line.unwrap()));
    let mut events = events.map(Result::unwrap);
    // The receiver writes down what it has after each 8 MiB.
    assert!(events.any(|event| event["bytes"].as_u64().is_some_and(|bytes| bytes > 20 << 20)));
    send(&child, Signal::INT);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let last = Vec::from_iter(events).pop().unwrap();
    assert!(last["event"] == "stopped" && last["bytes"].as_u64() > Some(20 << 20), "{last}");
    assert!(!Path::new(&to.root("there")).exists());
    let said = text(&guest.succeed(&copy).stdout);
    let done: serde_json::Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
    assert!(done["kept_bytes"].as_u64().is_some_and(|kept| kept > 0), "{done}");
    assert!(fs::read(to.root("there")).unwrap() == support::bytes(SIZE * 40));
}

#[test]
fn both_learn_at_once_that_the_user_has_had_enough() {
    let guest = Home::new();
    let (from, to) = (Host::copying(&guest, ""), Host::new(&guest, "", &[]));
    from.home.file("root/file", SIZE * 100);
    let (here, there) = (from.server.url("file"), to.server.url("there"));
    for carrier in CARRIERS {
        // By itself it would take minutes, and nobody be missed for as long.
        let copy = ["cp", "--accept-new", "--rate-limit=4mbit", carrier, &here, &there];
        let mut child = start(&mut guest.longhaul(&copy));
        to.server.wait_until_open(&to.root(""));
        send(&child, Signal::INT);
        assert_eq!(support::wait(&mut child).code(), Some(130));
        to.server.wait_until_closed(&to.root(""));
        from.server.wait_until_closed(&from.root(""));
    }
}

#[test]
fn one_server_by_two_names_is_no_pair() {
    let guest = Home::new();
    let host = Host::copying(&guest, "");
    host.home.file("root/file", 10);
    let other = host.server.url("there").replace("127.0.0.1", "localhost");
    let said = guest.fail(1, &["cp", "--accept-new", &host.server.url("file"), &other]);
    assert!(said.contains("are one server"), "{said}");
    assert!(!host.root("there").exists());
}
