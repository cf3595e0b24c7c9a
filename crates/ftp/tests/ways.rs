//! Whatever way data goes: striped and not, either end connecting, in clear and under TLS, in blocks,
//! and between addresses that mean something on one link alone.

mod support;

use std::fs::{self, File};
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6, TcpListener};
use std::process::Command;

use emulator::Namespace;
use ftp::client::{Client, Options, Security};
use ftp::data::Moved;
use ftp::server::Limits;
use ftp::tls::Trust;
use net::tcp::Policy;
use support::{PASSWORD, Served};

const SIZE: usize = 2_000_000;
/// What was there of a file before a resume.
const PART: usize = 700_000;
const STREAMS: usize = 4;

fn content() -> Vec<u8> {
    (0..SIZE).map(|at| (at % 251) as u8).collect()
}

async fn client(address: SocketAddr, options: Options) -> Client {
    let trust = Trust { anyone: true, ..Trust::default() };
    let options = Options { trust, streams: STREAMS, policy: Policy::Fixed(4), ..options };
    let mut client = Client::connect("localhost", address, options).await.unwrap();
    client.log_in("ann", PASSWORD).await.unwrap();
    client
}

/// Puts and gets a file, each from its beginning and from the middle on, and asks the server how.
async fn everything_over(server: &Served, address: SocketAddr, options: Options, streams: usize) {
    let how = format!("{address} {:?} active: {}", options.security, options.active);
    let mut client = client(address, options).await;
    if streams == 1 {
        client.set_streams(1).await.unwrap();
    }
    let here = tempfile::tempdir().unwrap();
    let directory = || File::open(here.path()).unwrap().into();
    let source = here.path().join("source");
    fs::write(&source, content()).unwrap();
    fs::write(server.file(".rest.longhaul.part"), &content()[..PART]).unwrap();
    fs::write(here.path().join(".resumed.longhaul.part"), &content()[..PART]).unwrap();

    let moved = Moved::default();
    client.put(File::open(&source).unwrap(), b"file", 0, &moved).await.unwrap();
    let from = client.resume_point(&File::open(&source).unwrap(), b"rest").await.unwrap();
    assert_eq!(from, PART as u64);
    client.put(File::open(&source).unwrap(), b"rest", from, &moved).await.unwrap();
    for (name, resume) in [("got", false), ("resumed", true)] {
        client.get(b"file", (directory(), name.as_ref()), resume, &moved).await.unwrap();
        assert!(fs::read(here.path().join(name)).unwrap() == content(), "{how}: {name}");
    }
    for name in ["file", "rest"] {
        assert!(fs::read(server.file(name)).unwrap() == content(), "{how}: {name}");
    }
    let transfers = server.transfers();
    let told = transfers.iter().map(|&(received, connections, _)| (received, connections));
    let expected = [true, true, false, false].map(|received| (received, streams));
    assert_eq!(told.collect::<Vec<_>>(), expected, "{how}");
    // On so short a way the others may have carried everything before one has begun.
    let uses = |&(_, _, used): &(bool, usize, usize)| (streams.min(2)..=streams).contains(&used);
    assert!(transfers.iter().all(uses), "{how}: {transfers:?}");
}

/// The server tells, and not the client: what it wants it may not have got.
#[tokio::test]
async fn striped_in_both_directions_by_either_end() {
    for host in ["127.0.0.1", "[::1]"] {
        for security in [Security::Clear, Security::Required] {
            for active in [false, true] {
                let set_up = |config: &mut ftp::server::Config| config.policy = Policy::Fixed(4);
                let server = Served::at(&format!("{host}:0"), set_up).await;
                let options = Options { security, active, ..Options::default() };
                everything_over(&server, server.address, options, STREAMS).await;
            }
        }
    }
}

/// Such an address is one of each link that there is: without its scope nothing can be done with it.
#[test]
fn between_addresses_of_a_link() {
    let Ok(namespace) = Namespace::new() else {
        return skip("between_addresses_of_a_link", "network namespaces are not to be had here");
    };
    let done = namespace.run(|| {
        for arguments in ["link set lo up", "addr add fe80::77/64 dev lo nodad"] {
            let mut ip = Command::new("ip");
            ip.args(arguments.split(' ')).env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin");
            if !ip.status().is_ok_and(|status| status.success()) {
                return skip("between_addresses_of_a_link", "`ip` is not to be had here");
            }
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            for (active, streams) in [(false, 1), (true, 1), (false, STREAMS), (true, STREAMS)] {
                let set_up = |config: &mut ftp::server::Config| config.policy = Policy::Fixed(4);
                let server = Served::at("[::]:0", set_up).await;
                let ip: Ipv6Addr = "fe80::77".parse().unwrap();
                // That of the loopback device, in any namespace.
                let address = SocketAddrV6::new(ip, server.address.port(), 0, 1).into();
                let options = Options { security: Security::Clear, active, ..Options::default() };
                everything_over(&server, address, options, streams).await;
            }
        });
    });
    done.unwrap();
}

fn skip(name: &str, reason: &str) {
    eprintln!("SKIPPED: {name}: {reason}");
    if let Some(log) = std::env::var_os("LONGHAUL_SKIP_LOG") {
        let mut log = fs::OpenOptions::new().append(true).open(log).unwrap();
        std::io::Write::write_all(&mut log, format!("{name}: {reason}\n").as_bytes()).unwrap();
    }
}

#[tokio::test]
async fn blocks() {
    let server = Served::new().await;
    let content = content();
    let mut talk = server.ann().await;
    assert_eq!(talk.ask("MODE B").await.0, 200);
    let blocks = |bytes: &[u8]| -> Vec<u8> {
        let block = |bytes: &[u8]| [&[0], &(bytes.len() as u16).to_be_bytes()[..], bytes].concat();
        bytes.chunks(50_000).flat_map(block).collect()
    };
    const END: [u8; 3] = [64, 0, 0];
    assert_eq!(talk.put("STOR file", &[&blocks(&content)[..], &END].concat()).await, 226);
    assert!(fs::read(server.file("file")).unwrap() == content);

    let came = talk.get("RETR file").await;
    let (mut rest, mut file, mut ended) = (&came[..], Vec::new(), false);
    while let Some((&[descriptor, high, low], behind)) = rest.split_first_chunk() {
        let (bytes, behind) = behind.split_at(u16::from_be_bytes([high, low]).into());
        file.extend_from_slice(bytes);
        (rest, ended) = (behind, descriptor == 64);
    }
    assert!(ended && rest.is_empty() && file == content);

    // The rest of a file, and one that ends before its end.
    assert_eq!(talk.ask("REST 1999990").await.0, 350);
    let end = content[1_999_990..].to_vec();
    assert_eq!(talk.get("RETR file").await, [&blocks(&end)[..], &END].concat());
    assert_eq!(talk.put("STOR cut", &blocks(&content[..PART])).await, 426);
    assert!(!server.file("cut").exists());
    assert!(fs::read(server.file(".cut.longhaul.part")).unwrap() == content[..PART]);
    assert_eq!(talk.ask("REST 700000").await.0, 350);
    assert_eq!(talk.put("STOR cut", &[&blocks(&content[PART..])[..], &END].concat()).await, 226);
    assert!(fs::read(server.file("cut")).unwrap() == content);
    // Not blocks at all.
    assert_eq!(talk.put("STOR no", &[0, 0, 4, 1]).await, 426);
    assert!(!server.file("no").exists());
    assert_eq!(talk.ask("MODE S").await.0, 200);
    assert!(talk.get("RETR file").await == content);
}

/// Two ports beside each other where nobody listens.
fn free_ports() -> std::ops::RangeInclusive<u16> {
    let is_free = |port| TcpListener::bind(("127.0.0.1", port)).is_ok();
    let first = (20_000..30_000).step_by(2).find(|&port| is_free(port) && is_free(port + 1));
    let first = first.unwrap();
    first..=first + 1
}

#[tokio::test]
async fn data_is_awaited_at_the_ports_that_were_named_alone() {
    let ports = free_ports();
    let server =
        Served::at("127.0.0.1:0", |config| config.passive_ports = Some(ports.clone())).await;
    let (mut one, mut two, mut three) =
        (server.ann().await, server.ann().await, server.ann().await);
    let mut named = [one.port().await.unwrap(), two.port().await.unwrap()];
    named.sort_unstable();
    assert_eq!(named, [*ports.start(), *ports.end()]);
    assert_eq!(three.port().await, Err(425), "both are taken");
    drop(one);
    while three.port().await.is_err() {
        tokio::task::yield_now().await;
    }
}

/// As of a client with many connections, or of many behind one address.
#[tokio::test]
async fn many_log_in_at_a_time_from_one_address() {
    let server = Served::new().await;
    let mut talks = Vec::new();
    for _ in 0..12 {
        let mut talk = server.client().await;
        assert_eq!(talk.ask("USER ann").await.0, 331);
        talk.say(&format!("PASS {PASSWORD}\r\n")).await;
        talks.push(talk);
    }
    for mut talk in talks {
        assert_eq!(talk.reply().await.0, 230);
    }
}

#[tokio::test]
async fn who_has_too_many_sessions_is_told() {
    let limits = Limits { sessions: 4, per_address: 3, per_user: 2 };
    let server = Served::at("127.0.0.1:0", |config| config.limits = limits).await;
    let (first, _second) = (server.ann().await, server.ann().await);
    let mut third = server.client().await;
    assert_eq!(third.ask("USER ann").await.0, 331);
    assert_eq!(third.ask(&format!("PASS {PASSWORD}")).await.0, 421, "two of one user");
    // That ended it, as the end of any session makes room for another.
    let mut third = until_served(&server).await;
    let mut fourth = server.stranger().await;
    assert_eq!(fourth.reply().await.0, 421, "three from one address");
    drop(first);
    until_served(&server).await;
    assert_eq!(third.ask("NOOP").await.0, 200);
}

/// A session, once one that has ended makes room for it.
async fn until_served(server: &Served) -> support::Talk {
    loop {
        let mut talk = server.stranger().await;
        if talk.reply().await.0 == 220 {
            return talk;
        }
    }
}
