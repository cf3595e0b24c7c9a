//! The explicit ways to the trunk, of users who are not root: SOCKS5, HTTP CONNECT and forwards.

use std::future::ready;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};

use gateway::{Bypass, Config, GatewayError, Outcome, Passed, Refusal};
use net::{Credentials, SharedKey};

use crate::gateways::{Gateway, Pair, as_nobody};
use crate::world::{FAR, PATH, SERVERS, World, at};
use crate::{connect, read_all, server, with_world};

const FAR_SETTINGS: &str = "[trunk]\nlisten = \"10.77.0.2:7273\"\nkey = \"-\"\n";
const NEAR_SETTINGS: &str = "[trunk]\npeer = \"10.77.0.2:7273\"\nkey = \"-\"\n\
    [proxy]\nlisten = \"10.1.0.1:1080\"\n\
    [[proxy.forward]]\nlisten = \"10.1.0.1:8000\"\nto = \"10.2.0.2:8000\"\n\
    [[proxy.forward]]\nlisten = \"10.1.0.1:8009\"\nto = \"10.2.0.2:9\"\n";

/// The near gateway's address on its clients' side, and the far one's on its servers'.
const GATEWAY: &str = "10.1.0.1";
const FAR_GATEWAY: &str = "10.2.0.1";
const SERVED: u16 = 8000;
/// Where nobody listens.
const CLOSED: u16 = 9;

/// Two gateways of plain users, with a trunk.
fn pair(world: &World) -> [Gateway; 2] {
    let far = world.rootless(FAR, FAR_SETTINGS);
    let near = world.rootless(crate::world::NEAR, NEAR_SETTINGS);
    for gateway in [&near, &far] {
        gateway.wait_for_rootless();
        gateway.wait_for_trunk();
    }
    [near, far]
}

/// How a client says whom it wants: a connection to there, or the answer that says no.
type Way = fn(&World, SocketAddr) -> Result<TcpStream, String>;
const WAYS: [(&str, Way); 3] = [("SOCKS5", socks), ("CONNECT", http), ("a forward", forward)];

fn socks(world: &World, to: SocketAddr) -> Result<TcpStream, String> {
    let mut client = connect(world, at(GATEWAY, 1080)).unwrap();
    client.write_all(&[5, 1, 0]).unwrap();
    let mut method = [0; 2];
    client.read_exact(&mut method).unwrap();
    assert_eq!(method, [5, 0]);
    let IpAddr::V4(host) = to.ip() else { panic!("{to} is no IPv4 address") };
    let request = [&[5, 1, 0, 1][..], &host.octets(), &to.port().to_be_bytes()].concat();
    client.write_all(&request).unwrap();
    let mut answer = [0; 10];
    client.read_exact(&mut answer).unwrap();
    if answer[1] == 0 { Ok(client) } else { Err(answer[1].to_string()) }
}

fn http(world: &World, to: SocketAddr) -> Result<TcpStream, String> {
    let mut client = connect(world, at(GATEWAY, 1080)).unwrap();
    write!(client, "CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        client.read_exact(&mut byte).unwrap();
        answer.extend(byte);
    }
    let answer = String::from_utf8(answer).unwrap();
    if answer.starts_with("HTTP/1.1 200 ") { Ok(client) } else { Err(answer) }
}

/// To the port that is the server's: who connects has no answer but the server's.
fn forward(world: &World, to: SocketAddr) -> Result<TcpStream, String> {
    let port = if to.port() == CLOSED { 8009 } else { SERVED };
    let client = connect(world, at(GATEWAY, port));
    if to.port() == SERVED {
        return Ok(client.unwrap());
    }
    // The reset may be there before this host looks at the connection.
    let error = client.and_then(|mut client| client.read(&mut [0])).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    Err("reset".into())
}

/// Some bytes there and back, and what was recorded of them; the server sees this host.
#[track_caller]
fn exchange(world: &World, near: &Gateway, way: Way, seen: &str) -> Outcome {
    let to = at(SERVERS[0], SERVED);
    let served = server(world, to, |mut stream, from| {
        let body = read_all(&mut stream);
        stream.write_all(b"there you are").unwrap();
        (body, from.ip())
    });
    let mut client = way(world, to).unwrap();
    client.write_all(b"hello").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(read_all(&mut client), b"there you are");
    assert_eq!(served.join().unwrap(), (b"hello".to_vec(), seen.parse().unwrap()));
    near.record(client.local_addr().unwrap()).outcome
}

#[test]
fn without_root_programs_ask_for_their_servers() {
    with_world("without_root_programs_ask_for_their_servers", |world| {
        let [near, _far] = pair(world);
        for (name, way) in WAYS {
            let outcome = exchange(world, &near, way, FAR_GATEWAY);
            let Outcome::Carried(Passed { bytes: (5, 13), whole: true, .. }) = outcome else {
                panic!("{name}: {outcome}")
            };
        }
        let no = at(SERVERS[0], CLOSED);
        assert_eq!(socks(world, no).unwrap_err(), "5");
        assert_eq!(http(world, no).unwrap_err(), "HTTP/1.1 502 the server refused\r\n\r\n");
        assert_eq!(forward(world, no).unwrap_err(), "reset");
        let mut client = connect(world, at(GATEWAY, 1080)).unwrap();
        write!(client, "CONNECT {no} HTTP/1.1\r\n\r\n").unwrap();
        let outcome = near.record(client.local_addr().unwrap()).outcome;
        assert!(matches!(outcome, Outcome::Refused(Refusal::Refused)), "{outcome}");
    });
}

#[test]
fn without_a_trunk_those_who_ask_go_direct() {
    with_world("without_a_trunk_those_who_ask_go_direct", |world| {
        let [near, far] = pair(world);
        drop(far);
        near.wait_for_silence();
        for (name, way) in WAYS {
            let outcome = exchange(world, &near, way, PATH[0].0);
            assert!(matches!(outcome, Outcome::Bypassed(Bypass::NoTrunk)), "{name}: {outcome}");
        }
        let no = at(SERVERS[0], CLOSED);
        assert_eq!(socks(world, no).unwrap_err(), "5");
        assert_eq!(forward(world, no).unwrap_err(), "reset");
        // The loopback that was meant is the other gateway's.
        let loopback = world.on(crate::world::NEAR, || TcpListener::bind("127.0.0.1:0").unwrap());
        assert_eq!(socks(world, loopback.local_addr().unwrap()).unwrap_err(), "1");
    });
}

#[test]
fn who_asks_goes_direct_when_the_trunk_falls_silent() {
    with_world("who_asks_goes_direct_when_the_trunk_falls_silent", |world| {
        let [near, _far] = pair(world);
        world.cut_trunk();
        // Nobody knows yet, and the trunk would be waited for twice as long as this client waits.
        let outcome = exchange(world, &near, socks, PATH[0].0);
        assert!(matches!(outcome, Outcome::Bypassed(Bypass::NoTrunk)), "{outcome}");
    });
}

#[test]
fn whom_the_far_gateway_does_not_connect_is_connected_from_here() {
    with_world("whom_the_far_gateway_does_not_connect_is_connected_from_here", |world| {
        let [near, _far] = pair(world);
        // An address of its own.
        let to = at(FAR_GATEWAY, SERVED);
        let listener = world.on(FAR, || TcpListener::bind(to).unwrap());
        let client = socks(world, to).unwrap();
        assert_eq!(listener.accept().unwrap().1.ip(), PATH[0].0.parse::<IpAddr>().unwrap());
        let outcome = near.record(client.local_addr().unwrap()).outcome;
        assert!(matches!(outcome, Outcome::Bypassed(Bypass::Far)), "{outcome}");
    });
}

#[test]
fn who_must_show_clients_addresses_fails_without_root() {
    with_world("who_must_show_clients_addresses_fails_without_root", |world| {
        let key = || Credentials::from(&SharedKey::from_bytes([7; 32]));
        let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build();
        let must = format!("{NEAR_SETTINGS}[deliver]\nfrom_client = true\n");
        let must: Config = must.parse().unwrap();
        let ended = as_nobody(world, || {
            runtime().unwrap().block_on(gateway::run(&must, key(), ready(()), |_| ()))
        });
        assert!(matches!(ended, Err(GatewayError::Rules(_))), "{ended:?}");

        let [_near, _far] = pair(world);
        let free: Config = NEAR_SETTINGS.parse().unwrap();
        let rights = |config: &Config| {
            as_nobody(world, || {
                let checks = runtime().unwrap().block_on(gateway::examine(config, &key()));
                checks.iter().find(|check| check.name == "rights").unwrap().finding.is_fault()
            })
        };
        assert!(rights(&must) && !rights(&free));
    });
}
