//! A pair of gateways between a client and a server that know nothing of them: what TCP promises
//! must hold as if they were not there.

mod world;

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread::JoinHandle;
use std::time::Duration;

use gateway::{Outcome, Passed, Refusal};

use world::{PATIENCE, SERVERS, World, skip};

const CLIENT: usize = 0;
const SERVER: usize = 3;
/// A megabyte: more than any buffer of a stream's first credit.
const BODY: usize = 1 << 20;

/// Runs `test` where namespaces, nftables and ip can be had.
fn with_world(name: &str, test: impl FnOnce(&World)) {
    let programs = ["ip", "nft"];
    for program in programs {
        if std::process::Command::new(program).arg("-V").output().is_err() {
            return skip(name, &format!("no program {program}"));
        }
    }
    match World::new() {
        Some(world) => test(&world),
        None => skip(name, "no right to make network namespaces"),
    }
}

fn address(host: &str, port: u16) -> SocketAddr {
    SocketAddr::new(host.parse().unwrap(), port)
}

/// Serves one connection on the server's host.
fn server<T: Send + 'static>(
    world: &World,
    at: SocketAddr,
    serve: impl FnOnce(TcpStream, SocketAddr) -> T + Send + 'static,
) -> JoinHandle<T> {
    let listener = world.on(SERVER, || TcpListener::bind(at).unwrap());
    world.start(SERVER, move || {
        let (stream, from) = listener.accept().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        serve(stream, from)
    })
}

fn connect(world: &World, to: SocketAddr) -> std::io::Result<TcpStream> {
    world.on(CLIENT, || {
        let stream = TcpStream::connect_timeout(&to, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(stream)
    })
}

fn read_all(stream: &mut TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    stream.read_to_end(&mut all).unwrap();
    all
}

#[test]
fn the_server_sees_the_client_and_each_half_closes_alone() {
    with_world("the_server_sees_the_client_and_each_half_closes_alone", |world| {
        let [near, far] = world.gateways("");
        for host in SERVERS {
            let at = address(host, 8000);
            let served = server(world, at, |mut stream, from| {
                let body = read_all(&mut stream);
                // The client has closed its half long ago.
                stream.write_all(&body[..BODY / 2]).unwrap();
                (body.len(), from)
            });
            let mut client = connect(world, at).unwrap();
            let own = client.local_addr().unwrap();
            client.write_all(&vec![7; BODY]).unwrap();
            client.shutdown(Shutdown::Write).unwrap();
            assert_eq!(read_all(&mut client).len(), BODY / 2);
            assert_eq!(served.join().unwrap(), (BODY, own));
            let passed = Passed { bytes: (BODY as u64, BODY as u64 / 2), whole: true };
            let record = near.record(own);
            assert!(matches!(record.outcome, Outcome::Carried(it) if it == passed), "{record}");
            assert!(matches!(far.record(own).outcome, Outcome::Carried(_)));
        }
    });
}

#[test]
fn the_server_may_close_first() {
    with_world("the_server_may_close_first", |world| {
        let _gateways = world.gateways("");
        let at = address(SERVERS[0], 8000);
        let served = server(world, at, |mut stream, _| {
            stream.write_all(b"hello").unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            read_all(&mut stream)
        });
        let mut client = connect(world, at).unwrap();
        assert_eq!(read_all(&mut client), b"hello");
        client.write_all(&vec![1; BODY]).unwrap();
        drop(client);
        assert_eq!(served.join().unwrap().len(), BODY);
    });
}

#[test]
fn what_the_far_side_refuses_is_refused_here() {
    with_world("what_the_far_side_refuses_is_refused_here", |world| {
        let [near, _far] = world.gateways("");
        for host in SERVERS {
            let error = connect(world, address(host, 9)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{host}");
        }
        for (host, kind) in [
            // A network to which the far gateway has no route, and a neighbour of the server's
            // that does not exist.
            ("10.3.0.1", ErrorKind::NetworkUnreachable),
            ("fd03::1", ErrorKind::NetworkUnreachable),
            ("10.2.0.77", ErrorKind::HostUnreachable),
            ("fd02::77", ErrorKind::HostUnreachable),
        ] {
            let error = connect(world, address(host, 9)).unwrap_err();
            assert_eq!(error.kind(), kind, "{host}: {error}");
        }
        drop(near);
    });
}

#[test]
fn a_reset_passes_each_way() {
    with_world("a_reset_passes_each_way", |world| {
        let _gateways = world.gateways("");
        let at = address(SERVERS[0], 8000);
        let reset = |stream: TcpStream| {
            socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
        };
        let served = server(world, at, move |mut stream, _| {
            stream.read_exact(&mut [0; 5]).unwrap();
            reset(stream);
        });
        let mut client = connect(world, at).unwrap();
        client.write_all(b"hello").unwrap();
        let error = client.read(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        served.join().unwrap();

        let served = server(world, at, move |mut stream, _| {
            stream.write_all(b"hello").unwrap();
            stream.read(&mut [0]).map_err(|error| error.kind())
        });
        let mut client = connect(world, at).unwrap();
        client.read_exact(&mut [0; 5]).unwrap();
        reset(client);
        assert_eq!(served.join().unwrap(), Err(ErrorKind::ConnectionReset));
    });
}

#[test]
fn an_early_answer_becomes_a_reset() {
    with_world("an_early_answer_becomes_a_reset", |world| {
        let [near, _far] = world.gateways("early = [9, 8000]");
        let mut client = connect(world, address(SERVERS[0], 9)).unwrap();
        let own = client.local_addr().unwrap();
        assert_eq!(client.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
        let record = near.record(own);
        assert!(matches!(record.outcome, Outcome::Refused(Refusal::Refused)), "{record}");
        let at = address(SERVERS[0], 8000);
        let served = server(world, at, |mut stream, _| read_all(&mut stream));
        let mut client = connect(world, at).unwrap();
        client.write_all(b"hello").unwrap();
        drop(client);
        assert_eq!(served.join().unwrap(), b"hello");
    });
}

#[test]
fn without_the_other_gateway_connections_go_direct() {
    with_world("without_the_other_gateway_connections_go_direct", |world| {
        let [near, far] = world.gateways("");
        drop(far);
        near.wait_for_silence();
        let at = address(SERVERS[0], 8000);
        let served = server(world, at, |mut stream, from| (read_all(&mut stream), from));
        let mut client = connect(world, at).unwrap();
        let own = client.local_addr().unwrap();
        client.write_all(b"hello").unwrap();
        drop(client);
        assert_eq!(served.join().unwrap(), (b"hello".to_vec(), own));
        assert!(matches!(near.record(own).outcome, Outcome::Bypassed));
    });
}

#[test]
fn what_is_answered_early_goes_direct_too() {
    with_world("what_is_answered_early_goes_direct_too", |world| {
        let [near, far] = world.gateways("early = [9]");
        drop(far);
        near.wait_for_silence();
        let error = connect(world, address(SERVERS[0], 9)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    });
}

#[test]
fn a_syn_that_waits_goes_direct_when_the_trunk_falls_silent() {
    with_world("a_syn_that_waits_goes_direct_when_the_trunk_falls_silent", |world| {
        let [near, _far] = world.gateways("");
        world.cut_trunk();
        let at = address(SERVERS[0], 8000);
        let served = server(world, at, |_, from| from);
        let own = connect(world, at).unwrap().local_addr().unwrap();
        assert_eq!(served.join().unwrap(), own);
        assert!(matches!(near.record(own).outcome, Outcome::Bypassed));
    });
}

#[test]
fn the_gateways_own_port_is_not_taken() {
    with_world("the_gateways_own_port_is_not_taken", |world| {
        let _gateways = world.gateways("ports = [8000]");
        // The servers', which is none of the ports to be taken, and the near gateway's own.
        for host in SERVERS.iter().chain(&["10.1.0.2", "fd01::2"]) {
            let error = connect(world, address(host, 7274)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{host}");
        }
        // Nor is anybody served who comes to its listener without having been granted a server.
        let local = world.on(1, || {
            let mut stream = TcpStream::connect_timeout(&address("127.0.0.1", 7274), PATIENCE)?;
            stream.read(&mut [0])
        });
        assert_eq!(local.unwrap_err().kind(), ErrorKind::ConnectionReset);
    });
}

#[test]
fn what_a_gateway_leaves_unfinished_is_reset() {
    with_world("what_a_gateway_leaves_unfinished_is_reset", |world| {
        let gateways = world.gateways("");
        let at = address(SERVERS[0], 8000);
        let (tell, begun) = std::sync::mpsc::channel();
        let served = server(world, at, move |mut stream, _| {
            stream.read_exact(&mut [0; 5]).unwrap();
            tell.send(()).unwrap();
            stream.read(&mut [0]).map_err(|error| error.kind())
        });
        let mut client = connect(world, at).unwrap();
        client.write_all(b"hello").unwrap();
        begun.recv_timeout(PATIENCE).unwrap();
        drop(gateways);
        assert_eq!(served.join().unwrap(), Err(ErrorKind::ConnectionReset));
        assert_eq!(client.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    });
}

#[test]
fn a_gateway_that_was_started_again_is_taken_back_at_once() {
    with_world("a_gateway_that_was_started_again_is_taken_back_at_once", |world| {
        let [near, far] = world.gateways("");
        // The far one cannot hear that this one ends.
        world.cut_trunk();
        drop(near);
        world.mend_trunk();
        let near = world.near("");
        near.wait_for_trunk();
        far.wait_for_trunk();
        let at = address(SERVERS[0], 8000);
        let served = server(world, at, |mut stream, _| read_all(&mut stream));
        let mut client = connect(world, at).unwrap();
        let own = client.local_addr().unwrap();
        client.write_all(b"hello").unwrap();
        drop(client);
        assert_eq!(served.join().unwrap(), b"hello");
        assert!(matches!(near.record(own).outcome, Outcome::Carried(_)));
    });
}

#[test]
fn a_stalled_reader_stops_only_itself() {
    with_world("a_stalled_reader_stops_only_itself", |world| {
        let _gateways = world.gateways("");
        let stalled = address(SERVERS[0], 8001);
        let (let_go, wait) = std::sync::mpsc::channel::<()>();
        let served = server(world, stalled, move |mut stream, _| {
            let _ = wait.recv();
            read_all(&mut stream).len()
        });
        let client = connect(world, stalled).unwrap();
        client.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
        let mut sent = 0;
        while let Ok(more) = (&client).write(&vec![0; BODY]) {
            sent += more;
            assert!(sent < 1 << 30, "a reader that does not read holds no bound");
        }
        let at = address(SERVERS[0], 8000);
        let other = server(world, at, |mut stream, _| read_all(&mut stream).len());
        let mut free = connect(world, at).unwrap();
        free.write_all(&vec![0; 8 * BODY]).unwrap();
        drop(free);
        assert_eq!(other.join().unwrap(), 8 * BODY);
        drop(client);
        let_go.send(()).unwrap();
        assert_eq!(served.join().unwrap(), sent);
    });
}
