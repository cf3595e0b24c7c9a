//! Whatever goes wrong ends with one clear sentence, its exit code, and nothing half-done.

mod support;

use std::fs;
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use rustix::process::Signal;
use support::{
    Home, Server, finish, names, send, skip, start, text, wait_for_bytes, wait_for_names,
};

const CARRIERS: [&[&str]; 2] = [&["--transport", "udp"], &["--transport", "tcp", "--streams", "3"]];

/// One line that holds all of these words; before it may stand how it was connected.
fn says(said: &str, words: &[&str]) {
    let is_other = |line: &&str| !line.starts_with("longhaul: connected to ");
    let lines: Vec<_> = said.trim_end().lines().filter(is_other).collect();
    assert!(lines.len() == 1 && lines[0].starts_with("longhaul: "), "{said}");
    assert!(words.iter().all(|word| lines[0].contains(word)), "{said}");
}

#[test]
fn strangers_are_refused_on_both_sides() {
    let (home, stranger) = (Home::new(), Home::new());
    stranger.file("file", 10);
    let server = home.serve(&[]);
    let key = text(&home.succeed(&["fingerprint"]).stdout);
    let key = key.split(' ').next().unwrap();
    for carrier in CARRIERS {
        let said = stranger.fail(1, &[&["cp", "file", &server.url("")], carrier].concat());
        says(&said, &["not known here", key, "--accept-new"]);
        let new = ["cp", "--accept-new", "file", &server.url("")];
        let said = stranger.fail(1, &[&new, carrier].concat());
        says(&said, &["does not let this side's key in", "authorized_keys", "x25519:"]);
        assert!(!stranger.path("home/known_hosts").exists());
    }
    assert!(names(&home.path("root")).is_empty());
}

#[test]
fn a_host_with_another_key_than_before_is_refused_loudly() {
    let home = Home::new();
    home.file("file", 10);
    let server = home.serve(&[]);
    let address = server.url("");
    let (host, port) = address["lh://".len()..].trim_end_matches('/').split_once(':').unwrap();
    let other = text(&Home::new().succeed(&["fingerprint"]).stdout);
    let known = format!("[{host}]:{port} {other}");
    fs::write(home.path("home/known_hosts"), &known).unwrap();
    for carrier in CARRIERS {
        let said = home.fail(1, &[&["cp", "--accept-new", "file", &address], carrier].concat());
        says(&said, &["HAS CHANGED", other.split(' ').next().unwrap(), "known_hosts"]);
    }
    assert_eq!(fs::read_to_string(home.path("home/known_hosts")).unwrap(), known);
    assert!(names(&home.path("root")).is_empty());
}

#[test]
fn another_shared_key_is_refused() {
    let (home, stranger) = (Home::new(), Home::new());
    stranger.file("file", 10);
    for home in [&home, &stranger] {
        home.succeed(&["keygen", "--shared", "key"]);
    }
    let server = home.serve(&["--key", "key"]);
    for carrier in CARRIERS {
        let copy = ["cp", "--key", "key", "file", &server.url("")];
        let said = stranger.fail(1, &[&copy, carrier].concat());
        says(&said, &["different key", "same key file"]);
    }
    assert!(names(&home.path("root")).is_empty());
}

#[test]
fn a_missing_or_open_key_is_told_with_what_to_do() {
    let home = Home::new();
    home.file("file", 10);
    let key = home.path("home/identity");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o640)).unwrap();
    says(&home.fail(1, &["cp", "file", "lh://127.0.0.1/"]), &["0640", "chmod 600"]);
    fs::write(&key, "secret").unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    says(&home.fail(1, &["cp", "file", "lh://127.0.0.1/"]), &["not a private key"]);
    fs::remove_file(&key).unwrap();
    says(&home.fail(1, &["serve", "--root", "."]), &["longhaul keygen"]);
}

#[test]
fn a_list_of_guests_that_cannot_be_trusted_is_told() {
    let home = Home::new();
    let list = home.path("home/authorized_keys");
    fs::write(&list, "\nforward x25519:12").unwrap();
    says(&home.fail(1, &["serve", "--root", "."]), &["authorized_keys line 2"]);
    fs::write(&list, "").unwrap();
    fs::set_permissions(&list, fs::Permissions::from_mode(0o666)).unwrap();
    says(&home.fail(1, &["serve", "--root", "."]), &["chmod go-w"]);
    let missing = ["serve", "--root", ".", "--authorized-keys", "none"];
    says(&home.fail(1, &missing), &["not there"]);
}

#[test]
fn nobody_there_is_told() {
    let home = Home::new();
    home.file("file", 10);
    // Bound, so that nothing else answers there.
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let url = format!("lh://{}/", silent.local_addr().unwrap());
    let said = home.fail(1, &["cp", "--transport", "udp", "file", &url]);
    says(&said, &["no answer", "longhaul serve", "UDP", "--transport tcp"]);
    let said = home.fail(1, &["cp", "--transport", "tcp", "file", &url]);
    says(&said, &["cannot reach", "longhaul serve"]);
    let said = home.fail(1, &["cp", "file", "lh://no-such-host.invalid/"]);
    says(&said, &["cannot find host", "no-such-host.invalid"]);
}

#[test]
fn missing_sources_are_told_before_and_after_connecting() {
    let home = Home::new();
    let server = home.serve(&[]);
    // Nobody is at this address: the source is looked for first.
    says(&home.fail(1, &["cp", "nothing", "lh://no-such-host.invalid/"]), &["cannot read nothing"]);
    for carrier in CARRIERS {
        let said = home.fail(1, &[&["cp", &server.url("nothing"), "."], carrier].concat());
        says(&said, &["nothing", "No such file"]);
    }
}

#[test]
fn unwritable_destinations_are_told() {
    let home = Home::new();
    home.file("file", 10);
    let server = home.serve(&[]);
    fs::write(home.path("root/plain"), "a file").unwrap();
    for carrier in CARRIERS {
        let said = home.fail(1, &[&["cp", "file", &server.url("plain/x")], carrier].concat());
        says(&said, &["plain"]);
        let said = home.fail(1, &[&["cp", "file", &server.url("no/such/x")], carrier].concat());
        says(&said, &["no/such"]);
    }
    let said = home.fail(1, &["cp", &server.url("plain"), "no/such/x"]);
    says(&said, &["no/such", "make it first"]);
    says(&home.fail(1, &["cp", "file", &server.url("../x")]), &[".."]);
    assert_eq!(names(&home.path("root")), ["plain"]);
    let closed = home.serve(&["--read-only"]);
    says(&home.fail(1, &["cp", "file", &closed.url("")]), &["only gives"]);
}

#[test]
fn a_full_disk_is_told_and_left_clean() {
    let home = Home::new();
    home.file("file", 9_000_000);
    let root = home.folder("root");
    // A small file system that only the server sees.
    let script = "mount -t tmpfs -o size=4m none \"$0\" && exec \"$@\"";
    let mut unshare = Command::new("unshare");
    unshare.args(["--user", "--map-root-user", "--mount", "sh", "-c", script]).arg(&root);
    let mut probe = Command::new("unshare");
    probe.args(["--user", "--map-root-user", "--mount", "sh", "-c", script]).arg(&root).arg("true");
    if !probe.output().is_ok_and(|output| output.status.success()) {
        return skip("a_full_disk_is_told_and_left_clean", "user namespaces are not allowed here");
    }
    let serve = home.longhaul(&["serve", "--listen", "127.0.0.1:0", "--root", "root"]);
    unshare.arg(serve.get_program()).args(serve.get_args()).current_dir(home.path(""));
    unshare.env("LONGHAUL_HOME", home.path("home"));
    let server = Server::start(&mut unshare);
    for carrier in CARRIERS {
        let said = home.fail(1, &[&["cp", "file", &server.url("")], carrier].concat());
        says(&said, &["No space left", "free space"]);
    }
    // What fits still does: nothing was left of what did not.
    home.file("smaller", 3_000_000);
    home.succeed(&["cp", "smaller", &server.url("")]);
    // In the middle of several, those before it are there.
    home.file("tiny", 1000);
    for carrier in CARRIERS {
        let copy = ["cp", "tiny", "file", &server.url("")];
        let said = home.fail(3, &[&copy, carrier].concat());
        says(&said, &["\"file\"", "No space left", "free space", "done by then"]);
    }
}

#[test]
fn what_may_not_be_read_is_told_and_the_rest_arrives() {
    let home = Home::new();
    let server = home.serve(&[]);
    home.folder("tree");
    for name in ["tree/before", "tree/closed", "tree/behind"] {
        home.file(name, 1000);
    }
    fs::set_permissions(home.path("tree/closed"), fs::Permissions::from_mode(0o000)).unwrap();
    let copy = home.longhaul(&["cp", "tree", &server.url("")]);
    // Root may read everything, unless that is taken from it.
    let mut copy = if rustix::process::geteuid().is_root() {
        let mut less = Command::new("setpriv");
        less.arg("--bounding-set=-dac_override,-dac_read_search").arg(copy.get_program());
        less.args(copy.get_args()).current_dir(home.path(""));
        less.env("LONGHAUL_HOME", home.path("home")).stdin(std::process::Stdio::null());
        less
    } else {
        copy
    };
    let output = finish(start(&mut copy));
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("failed: \"tree/closed\": Permission denied"), "{said}");
    wait_for_names(&home.path("root/tree"), &["behind", "before"]);
}

/// Starts a transfer that takes long, and returns when it has begun.
fn slow_transfer(home: &Home, arguments: &[&str]) -> std::process::Child {
    let mut child = start(&mut home.longhaul(&[&["cp", "--json"], arguments].concat()));
    wait_for_bytes(&mut child);
    child.stdout = None;
    child
}

fn end(mut child: std::process::Child) -> (Option<i32>, String) {
    // Its output is being read away already.
    let mut nothing = Command::new("true");
    child.stdout = start(&mut nothing).stdout.take();
    let output = finish(child);
    (output.status.code(), text(&output.stderr))
}

/// Only names that say what they are: begun, and the journal of it.
fn nothing_final(folder: &std::path::Path) {
    let names = names(folder);
    let is_hidden = |name: &String| name.starts_with('.') && name.contains("longhaul");
    assert!(names.iter().all(is_hidden), "{names:?}");
}

#[test]
fn interrupted_sending_goes_on_with_the_same_command() {
    let home = Home::new();
    home.file("file", 60_000_000);
    let server = home.serve(&[]);
    let child = slow_transfer(&home, &["--rate-limit", "20mbit", "file", &server.url("")]);
    send(&child, Signal::INT);
    let (code, said) = end(child);
    assert_eq!(code, Some(130), "{said}");
    says(&said, &["stopped after 0", "the same command goes on"]);
    nothing_final(&home.path("root"));
    home.succeed(&["cp", "file", &server.url("")]);
    wait_for_names(&home.path("root"), &["file"]);
    assert_eq!(fs::read(home.path("root/file")).unwrap(), fs::read(home.path("file")).unwrap());
}

#[test]
fn interrupted_receiving_goes_on_with_the_same_command() {
    let home = Home::new();
    let server = home.serve(&["--rate-limit", "20mbit"]);
    home.file("root/file", 60_000_000);
    let came = home.folder("came");
    let child = slow_transfer(&home, &[&server.url("file"), "came"]);
    send(&child, Signal::TERM);
    let (code, said) = end(child);
    assert_eq!(code, Some(143), "{said}");
    nothing_final(&came);
    drop(server);
    let server = home.serve(&[]);
    // Another server at another port: another copy, which does not know of the first.
    home.succeed(&["cp", &server.url("file"), "came"]);
    assert_eq!(fs::read(home.path("root/file")).unwrap(), fs::read(came.join("file")).unwrap());
}

#[test]
fn a_server_that_is_told_to_end_cuts_transfers_and_cleans_up() {
    let home = Home::new();
    home.file("file", 60_000_000);
    let server = home.serve(&[]);
    let child = slow_transfer(&home, &["--rate-limit", "20mbit", "file", &server.url("")]);
    // What the client has sent need not have reached the server yet.
    server.wait_until_open(&home.path("root"));
    server.signal(Signal::TERM);
    let (code, said) = end(child);
    assert_eq!(code, Some(1), "{said}");
    says(&said, &["run the same command again"]);
    assert_eq!(server.exit_code(), Some(143));
    nothing_final(&home.path("root"));
}

#[test]
fn a_killed_server_is_noticed() {
    let home = Home::new();
    let file = home.file("file", 60_000_000);
    let _ = file;
    let server = home.serve(&[]);
    let child = slow_transfer(&home, &["--rate-limit", "20mbit", "file", &server.url("")]);
    server.signal(Signal::KILL);
    let (code, said) = end(child);
    assert_eq!(code, Some(1), "{said}");
    says(&said, &["lost", "run the same command again"]);
    assert!(!home.path("root/file").exists());
}

#[test]
fn wrong_usage_has_its_own_code() {
    let home = Home::new();
    for arguments in [
        &["cp"][..],
        &["cp", "a"],
        &["cp", "a", "b"],
        &["cp", "a", "host:~you/b"],
        &["cp", "a", "http://host/b"],
        &["cp", "lh://a/x", "lh://a/y"],
        &["cp", "--streams", "0", "a", "lh://b/"],
        &["cp", "--rate-limit", "fast", "a", "lh://b/"],
        &["cp", "--cc", "vegas", "a", "lh://b/"],
        &["cp", "--cc", "fixed", "a", "lh://b/"],
        &["cp", "--cc", "cubic", "--background", "a", "lh://b/"],
        &["cp", "--background", "lh://b/x", "a"],
        &["cp", "--cc", "cubic", "lh://b/x", "a"],
        &["cp", "--cc", "cubic", "--transport", "tcp", "a", "lh://b/"],
        &["cp", "--rate-limit", "1mbit", "--background", "lh://b/x", "a"],
        &["serve"],
        &["serve", "--root", ".", "--listen", "here"],
        &["emulate", "--loss", "2"],
        &["demo", "--size", "1GiB", "--source", "."],
        &["fly"],
        &[],
    ] {
        home.fail(2, arguments);
    }
}

#[test]
fn a_reader_that_went_away_is_no_reason_to_crash() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let status = Command::new(env!("CARGO_BIN_EXE_longhaul"))
        .args(["emulate", "--list"])
        .stdout(writer)
        .status();
    assert!(status.unwrap().success());
}
