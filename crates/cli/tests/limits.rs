//! Rates, whichever way the files go and whatever carries them.

mod support;

use std::fs;
use std::time::Duration;

use support::{Home, finish, start, text};

/// At [`RATE`] it takes four seconds, besides all else.
const SIZE: usize = 2_000_000;
const RATE: &str = "4mbit";
const LEAST: Duration = Duration::from_secs(3);

const CARRIERS: [[&str; 2]; 2] = [["--transport", "udp"], ["--transport", "tcp"]];

/// How long it takes to run these commands side by side.
fn time(home: &Home, commands: &[Vec<&str>]) -> Duration {
    let begin = net::clock::now();
    let running = commands.iter().map(|words| start(&mut home.longhaul(words)));
    for (child, words) in Vec::from_iter(running).into_iter().zip(commands) {
        let output = finish(child);
        assert!(output.status.success(), "{words:?}: {}", text(&output.stderr));
    }
    net::clock::now().since(begin)
}

#[test]
fn what_is_fetched_keeps_to_the_lower_rate_of_client_and_server() {
    let home = Home::new();
    home.folder("root");
    home.file("root/file", SIZE);
    for (client, server) in [(RATE, None), ("1gbit", Some(RATE)), (RATE, Some("1gbit"))] {
        let limit = server.map(|rate| ["--rate-limit", rate]);
        let server = home.serve(limit.as_ref().map_or(&[], |limit| &limit[..]));
        let url = server.url("file");
        let fetch = |carrier: [&str; 2]| {
            let to = carrier[1];
            let copy = ["cp", "--rate-limit", client, &url, to];
            let took = time(&home, &[[&copy[..], &carrier].concat()]);
            assert!(took > LEAST, "{client} and {limit:?} over {to}: {took:?}");
            assert!(fs::read(home.path(to)).unwrap() == support::bytes(SIZE));
        };
        let fetch = &fetch;
        std::thread::scope(|scope| {
            for carrier in CARRIERS {
                scope.spawn(move || fetch(carrier));
            }
        });
    }
}

#[test]
fn who_fetches_no_faster_than_asked_is_told_so() {
    let home = Home::new();
    home.folder("root");
    home.file("root/file", SIZE);
    let server = home.serve(&[]);
    let said = text(&home.succeed(&["cp", "--rate-limit", RATE, &server.url("file"), "."]).stderr);
    assert!(said.contains("limited by --rate-limit 4.000 Mbit/s"), "{said}");
}

#[test]
fn a_fetch_to_standard_output_keeps_to_its_rate_too() {
    let home = Home::new();
    home.folder("root");
    home.file("root/file", SIZE);
    let server = home.serve(&[]);
    let url = server.url("file");
    let took = time(&home, &[vec!["cp", "--rate-limit", RATE, &url, "-"]]);
    assert!(took > LEAST, "{took:?}");
}

#[test]
fn a_key_has_its_rate_once_in_each_direction_whatever_carries_it() {
    let (host, guest) = (Home::new(), Home::new());
    let key = text(&guest.succeed(&["fingerprint"]).stdout);
    fs::write(host.path("home/authorized_keys"), format!("rate={RATE} {key}")).unwrap();
    let server = host.serve(&[]);
    guest.file("small", 100);
    guest.succeed(&["cp", "--accept-new", "small", &server.url("")]);
    // Half as much each: alone, each would be there in two seconds.
    host.file("root/there", SIZE / 2);
    guest.file("here", SIZE / 2);
    let (there, to) = (server.url("there"), [server.url("by-udp"), server.url("by-tcp")]);
    let (names, both) = (["udp", "tcp"], [0, 1]);
    let gets = both.map(|at| [&["cp", &there, names[at]], &CARRIERS[at][..]].concat());
    let took = time(&guest, &gets);
    assert!(took > LEAST, "gets: {took:?}");
    let puts = both.map(|at| [&["cp", "here", &to[at]], &CARRIERS[at][..]].concat());
    let took = time(&guest, &puts);
    assert!(took > LEAST, "puts: {took:?}");
    for name in [guest.path("udp"), guest.path("tcp")] {
        assert!(fs::read(name).unwrap() == support::bytes(SIZE / 2));
    }
    for name in [host.path("root/by-udp"), host.path("root/by-tcp")] {
        assert!(fs::read(name).unwrap() == support::bytes(SIZE / 2));
    }
}
