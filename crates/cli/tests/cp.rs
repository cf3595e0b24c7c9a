//! `longhaul cp` and `longhaul serve` on loopback, by the real binary.

mod support;

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use net::udp::UdpEndpoint;
use net::{Credentials, Identity};
use rustix::process::Signal;
use support::{Home, fingerprint, plant, text};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;
use transfer::wire::{Compare, Message, RawBytes, Terms, append_message, hello};

fn both_ways(carrier: &[&str]) {
    let home = Home::new();
    plant(&home.folder("tree"));
    let server = home.serve(&[]);
    let there = server.url("there");
    home.succeed(&[&["cp", "tree", &there], carrier].concat());
    home.succeed(&[&["cp", &there, "back"], carrier].concat());
    let expected = fingerprint(&home.path("tree"));
    assert_eq!(fingerprint(&home.path("root/there")), expected);
    assert_eq!(fingerprint(&home.path("back")), expected);
}

#[test]
fn a_tree_crosses_both_ways_over_udp() {
    both_ways(&[]);
}

#[test]
fn a_tree_crosses_both_ways_over_striped_tcp() {
    both_ways(&["--transport", "tcp", "--streams", "4"]);
}

#[test]
fn a_tree_crosses_both_ways_over_one_tcp_connection() {
    both_ways(&["--transport", "tcp", "--streams", "1"]);
}

#[test]
fn striped_tcp_goes_by_echoes_too() {
    let bounded = ["--streams", "rtt-bounded", "--streams-max", "3", "--rtt-from", "udp"];
    both_ways(&[&["--transport", "tcp"], &bounded[..]].concat());
}

#[test]
fn what_held_the_sender_back_is_told() {
    let home = Home::new();
    home.file("file", 5_000_000);
    let server = home.serve(&[]);
    for options in [&["--rate-limit", "40mbit"][..], &["--cc", "fixed:40mbit"]] {
        let copy = ["cp", "--no-remember", "--json", "file", &server.url("")];
        let output = home.succeed(&[&copy, options].concat());
        let line = text(&output.stdout).lines().last().unwrap().to_owned();
        let done: serde_json::Value = serde_json::from_str(&line).unwrap();
        let word = if options[0] == "--cc" { "path" } else { "rate-limit" };
        assert_eq!(done["limited_by"]["what"], word, "{done}");
        let held = done["limits_s"].as_object().unwrap();
        let pacing = held["pacing"].as_f64().unwrap();
        assert!(
            held.len() == 6 && held.values().all(|time| time.as_f64() <= Some(pacing)),
            "{done}"
        );
    }
}

#[test]
fn the_rate_is_kept_over_tcp_too() {
    let home = Home::new();
    home.file("file", 5_000_000);
    let server = home.serve(&[]);
    let tcp = ["--transport", "tcp", "--rate-limit", "40mbit"];
    let copy = ["cp", "--no-remember", "--json", "file", &server.url("")];
    let said = text(&home.succeed(&[&copy[..], &tcp].concat()).stdout);
    let done: serde_json::Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
    assert_eq!(done["limited_by"]["what"], "rate-limit", "{done}");
}

#[test]
fn standard_input_becomes_a_file_and_a_file_standard_output() {
    let home = Home::new();
    let server = home.serve(&[]);
    let file = home.file("file", 700_000);
    let mut copy = home.longhaul(&["cp", "-q", "-", &server.url("there")]);
    copy.stdin(fs::File::open(file).unwrap());
    let output = support::finish(support::start(&mut copy));
    assert!(output.status.success(), "{}", text(&output.stderr));
    let output = home.succeed(&["cp", &server.url("there"), "-"]);
    assert!(output.stdout == support::bytes(700_000));
    assert!(text(&output.stderr).contains("1 file"));
    home.fail(2, &["cp", "--json", &server.url("there"), "-"]);
    home.fail(2, &["cp", "-", "file", &server.url("there")]);
    let said = home.fail(1, &["cp", &server.url(""), "-"]);
    assert!(said.contains("single file"), "{said}");
}

#[test]
fn both_sides_must_ask_for_the_same_feedback() {
    let home = Home::new();
    home.file("file", 300_000);
    let acks = &["--feedback", "positive-ack"][..];
    let server = home.serve(acks);
    home.succeed(&[&["cp", "file", &server.url("")], acks].concat());
    assert_eq!(fs::read(home.path("root/file")).unwrap(), fs::read(home.path("file")).unwrap());
    let said = home.fail(1, &["cp", "file", &server.url("again")]);
    assert!(said.contains("another feedback"), "{said}");
    assert!(home.fail(2, &["cp", "--feedback", "none", "a", "lh://b/"]).contains("positive-ack"));
}

#[test]
fn a_server_sets_owners_when_it_was_told_to() {
    let home = Home::new();
    let file = home.file("file", 10);
    if chown(&file, Some(4321), Some(1234)).is_err() {
        let name = "a_server_sets_owners_when_it_was_told_to";
        return support::skip(name, "only root may give files away");
    }
    let own = rustix::process::geteuid().as_raw();
    for (options, user) in [(&[][..], own), (&["--allow-owners"], 4321)] {
        let server = home.serve(options);
        home.succeed(&["cp", "--owner", "file", &server.url("")]);
        assert_eq!(fs::metadata(home.path("root/file")).unwrap().uid(), user);
    }
}

#[test]
fn a_pattern_that_means_nothing_is_told_before_anybody_is_asked() {
    let home = Home::new();
    for wrong in [&["--exclude", "[z-a]"][..], &["--exclude", "*", "--include", "[z-a]"]] {
        let said = home.fail(2, &[&["cp", "no such file", "lh://no.such.host/"], wrong].concat());
        assert!(said.contains(wrong[wrong.len() - 2]) && said.contains("pattern"), "{said}");
    }
}

#[test]
fn a_copy_waits_for_its_time() {
    let home = Home::new();
    home.file("file", 10);
    let server = home.serve(&[]);
    let hour = Command::new("date").arg("+%H").output().unwrap().stdout;
    let hour: u32 = text(&hour).trim().parse().unwrap();
    let part =
        |from: u32, until: u32| format!("{}:00-{}:00", (hour + from) % 24, (hour + until) % 24);
    home.succeed(&["cp", "--schedule", &part(23, 2), "file", &server.url("now")]);
    let later = ["cp", "--schedule", &part(2, 3), "file", &server.url("later")];
    let mut child = support::start(&mut home.longhaul(&later));
    let mut said = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut said).unwrap();
    assert!(said.contains("waiting for"), "{said}");
    support::send(&child, Signal::INT);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(support::names(&home.path("root")), ["now"]);
    home.fail(2, &["cp", "--schedule", "22-6", "file", &server.url("")]);
    home.fail(2, &["cp", "--schedule", "22:00-6:00", "-", &server.url("x")]);
}

#[test]
fn hosts_are_called_as_the_user_likes() {
    let home = Home::new();
    home.file("file", 10);
    let server = home.serve(&[]);
    let hosts = format!("[lab]\naddress = {:?}\noptions = [\"--transport=tcp\"]", server.address());
    fs::write(home.path("home/hosts.toml"), hosts).unwrap();
    let said = text(&home.succeed(&["cp", "file", "lh://lab/one"]).stderr);
    assert!(said.contains("over TCP"), "{said}");
    let said = text(&home.succeed(&["cp", "--transport=udp", "file", "lh://lab/two"]).stderr);
    assert!(said.contains("over UDP"), "{said}");
    home.succeed(&["sync", "lh://lab/one", "three"]);
    home.succeed(&["probe", "--seconds=1", "lab"]);
    fs::write(home.path("home/hosts.toml"), "[lab]\noptions = [\"--no-such\"]").unwrap();
    let said = home.fail(1, &["cp", "file", "lh://lab/one"]);
    assert!(said.contains("hosts.toml") && said.contains("--no-such"), "{said}");
}

#[test]
fn several_sources_go_into_a_directory() {
    let home = Home::new();
    for name in ["a", "b"] {
        home.file(name, 1000);
    }
    let server = home.serve(&[]);
    home.succeed(&["cp", "a", "b", &server.url("both/")]);
    home.succeed(&["cp", &server.url("both/a"), &server.url("both/b"), "came"]);
    for name in ["a", "b"] {
        let expected = fs::read(home.path(name)).unwrap();
        assert_eq!(fs::read(home.path("came").join(name)).unwrap(), expected);
    }
}

#[test]
fn json_tells_the_beginning_and_the_end() {
    let home = Home::new();
    home.file("file", 300_000);
    let server = home.serve(&[]);
    let output = home.succeed(&["cp", "--json", "file", &server.url("")]);
    let lines = text(&output.stdout);
    let events: Vec<serde_json::Value> =
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (first, last) = (&events[0], &events[events.len() - 1]);
    assert_eq!((&first["event"], &first["transport"]), (&"start".into(), &"udp".into()));
    assert_eq!(last["event"], "done");
    assert_eq!((&last["files"], &last["bytes"]), (&1.into(), &300_000.into()));
    let limited = &last["limited_by"];
    assert!(last["verified"] == true && limited["words"].is_string());
    assert!(limited["evidence"].is_string() && limited["advice"].is_string());
    assert_eq!(text(&output.stderr), "");
}

#[test]
fn the_summary_goes_to_standard_error_unless_quiet() {
    let home = Home::new();
    home.file("file", 10);
    let server = home.serve(&[]);
    let output = home.succeed(&["cp", "file", &server.url("")]);
    let said = text(&output.stderr);
    let (carrier, summary) = said.split_once('\n').unwrap();
    assert_eq!(carrier, format!("longhaul: connected to {} over UDP", server.address()));
    assert!(summary.starts_with("1 file, 10 B in ") && summary.contains("limited by"), "{said}");
    assert!(output.stdout.is_empty());
    let output = home.succeed(&["cp", "-q", "file", &server.url("")]);
    assert!(output.stderr.is_empty() && output.stdout.is_empty());
}

#[test]
fn every_congestion_control_moves_a_file_either_way() {
    for name in ["longhaul", "background", "cubic", "newreno", "udt", "udt-g", "fixed:200mbit"] {
        let home = Home::new();
        home.file("file", 300_000);
        let server = home.serve(&["--cc", name]);
        home.succeed(&["cp", "--cc", name, "file", &server.url("")]);
        home.succeed(&["cp", &server.url("file"), "back"]);
        assert_eq!(fs::read(home.path("file")).unwrap(), fs::read(home.path("back")).unwrap());
    }
}

#[test]
fn a_file_that_cannot_be_read_makes_the_transfer_partial() {
    let home = Home::new();
    let tree = home.folder("tree");
    fs::write(tree.join("good"), "good").unwrap();
    // A directory stands where the file should go, so that this one fails, for root too.
    fs::write(tree.join("bad"), "bad").unwrap();
    fs::create_dir_all(home.folder("root").join("tree/bad/full")).unwrap();
    let server = home.serve(&[]);
    let said = home.fail(3, &["cp", "tree", &server.url("")]);
    assert!(said.contains("bad"), "{said}");
    assert_eq!(fs::read(home.path("root/tree/good")).unwrap(), b"good");
}

#[test]
fn a_server_ends_on_a_signal_with_success_when_idle() {
    for signal in [Signal::INT, Signal::TERM] {
        let home = Home::new();
        home.file("file", 10);
        let server = home.serve(&[]);
        home.succeed(&["cp", "file", &server.url("")]);
        server.signal(signal);
        assert_eq!(server.exit_code(), Some(0));
    }
}

#[test]
fn keygen_writes_a_private_key_and_does_not_replace_it() {
    let home = Home::new();
    let key = home.path("home/identity");
    assert_eq!(fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
    let first = fs::read(&key).unwrap();
    assert!(home.fail(1, &["keygen"]).contains("--force"));
    assert_eq!(fs::read(&key).unwrap(), first);
    home.succeed(&["keygen", "--force"]);
    assert_ne!(fs::read(&key).unwrap(), first);
}

/// Lets `guest` in, with these options.
fn let_in(host: &Home, guest: &Home, options: &str) {
    let line = text(&guest.succeed(&["fingerprint"]).stdout);
    fs::write(host.path("home/authorized_keys"), format!("# guests\n{options}{line}")).unwrap();
}

#[test]
fn guests_meet_by_their_keys_and_see_what_they_may() {
    for carrier in [&[][..], &["--transport", "tcp", "--streams", "2"]] {
        let (host, guest) = (Home::new(), Home::new());
        guest.file("file", 1000);
        host.folder("root/sub");
        let_in(&host, &guest, "");
        let server = host.serve(&[]);
        let output =
            guest.succeed(&[&["cp", "--accept-new", "file", &server.url("")], carrier].concat());
        let said = text(&output.stderr);
        let key = text(&host.succeed(&["fingerprint"]).stdout);
        let key = key.split(' ').next().unwrap();
        assert!(said.contains("known from now on") && said.contains(key), "{said}");
        // The server reads the file again: now there is less to see, and nothing to change.
        let_in(&host, &guest, "read-only,root=\"sub\" ");
        let said = guest.fail(1, &[&["cp", "file", &server.url("")], carrier].concat());
        assert!(said.contains("only gives"), "{said}");
        guest.fail(1, &[&["cp", &server.url("file"), "back"], carrier].concat());
        fs::write(host.path("root/sub/inside"), "inside").unwrap();
        guest.succeed(&[&["cp", &server.url("inside"), "back"], carrier].concat());
        assert_eq!(fs::read(guest.path("back")).unwrap(), b"inside");
        // And now nobody.
        fs::write(host.path("home/authorized_keys"), "").unwrap();
        let said = guest.fail(1, &[&["cp", &server.url("inside"), "back"], carrier].concat());
        assert!(said.contains("does not let this side's key in"), "{said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_taken_from_the_list_counts_from_the_next_request_of_its_connection() {
    let (host, guest) = (Home::new(), Home::new());
    let_in(&host, &guest, "");
    let server = host.serve(&[]);
    fs::write(host.path("root/file"), "content").unwrap();
    let identity = |home: &Home| fs::read_to_string(home.path("home/identity")).unwrap();
    let [near, far] =
        [&guest, &host].map(|home| identity(home).trim().parse::<Identity>().unwrap());
    let credentials = Credentials::client(near, far.public());
    let address = server.url("")[5..].trim_end_matches('/').parse().unwrap();
    let endpoint = UdpEndpoint::client(address, credentials, Default::default()).unwrap();
    let connection = endpoint.connect(address).await.unwrap();
    let copy = async |to: &str| {
        let stream = connection.open().await.unwrap();
        let (from, to) = (Path::new("file"), guest.path(to));
        transfer::get(stream, from, &to, &Default::default(), &Default::default()).await
    };
    copy("one").await.unwrap();
    copy("two").await.unwrap();
    fs::write(host.path("home/authorized_keys"), "").unwrap();
    copy("three").await.unwrap_err();
    assert!(guest.path("two").exists() && !guest.path("three").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_keeps_all_its_requests_waiting_keeps_no_other_waiting() {
    let (host, guest, mute) = (Home::new(), Home::new(), Home::new());
    let keys = [&guest, &mute].map(|home| text(&home.succeed(&["fingerprint"]).stdout));
    fs::write(host.path("home/authorized_keys"), keys.concat()).unwrap();
    let server = host.serve(&[]);
    fs::write(host.path("root/file"), "content").unwrap();
    let identity = |home: &Home| fs::read_to_string(home.path("home/identity")).unwrap();
    let [near, far] = [&mute, &host].map(|home| identity(home).trim().parse::<Identity>().unwrap());
    let credentials = Credentials::client(near, far.public());
    let address = server.address().parse().unwrap();
    let endpoint = UdpEndpoint::client(address, credentials, Default::default()).unwrap();
    let connection = endpoint.connect(address).await.unwrap();
    // Each is to be told what stands here before it sends, and never is.
    let terms = Terms { compare: Some(Compare::Time), ..Terms::default() };
    let mut get = hello().to_vec();
    append_message(&Message::Get { source: RawBytes(b"file".to_vec()), terms }, &mut get);
    let (mut streams, mut is_answered) = (Vec::new(), true);
    while is_answered && streams.len() < 1000 {
        let mut stream = connection.open().await.unwrap();
        stream.write_all(&get).await.unwrap();
        let hello = &mut [0; 32];
        is_answered = timeout(Duration::from_secs(1), stream.read_exact(hello)).await.is_ok();
        streams.push(stream);
    }
    assert!(streams.len() > 8, "an honest client has several");
    let url = server.url("file");
    tokio::task::spawn_blocking(move || {
        guest.succeed(&["cp", "--accept-new", &url, "got"]);
        assert_eq!(fs::read(guest.path("got")).unwrap(), b"content");
    })
    .await
    .unwrap();
}

#[test]
fn a_shared_key_is_enough() {
    let (host, guest) = (Home::new(), Home::new());
    host.succeed(&["keygen", "--shared", "key"]);
    fs::copy(host.path("key"), guest.path("key")).unwrap();
    guest.file("file", 1000);
    let server = host.serve(&["--key", "key"]);
    for carrier in [&[][..], &["--transport", "tcp", "--streams", "2"]] {
        let url = server.url("");
        guest.succeed(&[&["cp", "--key", "key", "file", &url], carrier].concat());
        let said = guest.fail(1, &[&["cp", "--accept-new", "file", &url], carrier].concat());
        assert!(said.starts_with("longhaul: "), "{said}");
    }
}

#[test]
fn what_says_nothing_on_the_way_is_refused() {
    let home = Home::new();
    for (words, expected) in [
        (&["-e", "ssh", "file", "lh://far/"][..], "-e goes with [USER@]HOST:PATH"),
        (&["--bootstrap", "lh://one/x", "lh://far/"], "--bootstrap goes with [USER@]HOST:PATH"),
        (&["--key", "key", "file", "far:"], "--key goes with lh://"),
        (&["--accept-new", "file", "far:"], "--accept-new goes with lh://"),
        (&["--accept-new", "one:x", "far:"], "--accept-new goes with lh://"),
        (&["--ftp-streams", "2", "file", "lh://far/"], "--ftp-streams goes with ftp://"),
        (&["--ftp-streams", "2", "one:x", "far:"], "--ftp-streams goes with ftp://"),
    ] {
        let said = home.fail(2, &[&["cp"], words].concat());
        assert!(said.contains(expected), "{said}");
    }
    assert!(home.fail(2, &["sync", "--ftp-active", ".", "lh://far/"]).contains("--ftp-active"));
    home.file("10:30.log", 1);
    let said = home.fail(2, &["cp", "10:30.log", "x", "lh://far/"]);
    assert!(said.contains("the file here is ./10:30.log"), "{said}");
    let serve = ["serve", "--root", ".", "--ftp-policy", "auto"];
    assert!(home.fail(2, &serve).contains("--ftp <ADDR:PORT>"));
}

#[test]
fn pages_and_completions_are_printed() {
    let home = Home::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = text(&home.succeed(&["completions", shell]).stdout);
        assert!(script.contains("rate-limit") && script.contains("simulate"), "{shell}");
        for hidden in ["until-eof", "starts over ssh", "longhaul__far", "longhaul__subcmd__far"] {
            assert!(!script.contains(hidden), "{shell} shows {hidden}");
        }
    }
    assert!(text(&home.succeed(&["man"]).stdout).contains(".TH longhaul"));
    home.succeed(&["man", "pages"]);
    let page = fs::read_to_string(home.path("pages/longhaul-cp.1")).unwrap();
    assert!(page.contains("Exit codes"));
}
