//! A pair of gateways between a client and a server that know nothing of them: what TCP promises
//! must hold as if they were not there.

#[path = "../../examples/pair/cases.rs"]
mod cases;
mod faults;
mod gateways;
mod nears;
mod outages;
mod proxy;
mod sight;
mod taken;
#[path = "../../examples/pair/world.rs"]
mod world;

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use gateway::{Bypass, Outcome, Passed, Refusal};

use cases::{ALL, BODY, Scene, earlier, read_all};
use gateways::{Pair, skip};
use world::{CLIENT, FAR, NEAR, PATIENCE, SERVER, SERVERS, World, at};

/// Runs `test` where namespaces, nftables and ip can be had.
fn with_world(name: &str, test: impl FnOnce(&World)) {
    within(name, World::new, test);
}

/// The same in a world that is made so.
fn within(name: &str, make: fn() -> Option<World>, test: impl FnOnce(&World)) {
    if let Some(missing) = world::missing() {
        return skip(name, &missing);
    }
    match make() {
        Some(world) => test(&world),
        None => skip(name, "no right to make network namespaces"),
    }
}

/// Serves one connection on the server's host.
fn server<T: Send + 'static>(
    world: &World,
    to: SocketAddr,
    serve: impl FnOnce(TcpStream, SocketAddr) -> T + Send + 'static,
) -> JoinHandle<T> {
    let listener = world.on(SERVER, || TcpListener::bind(to).unwrap());
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

#[test]
fn what_tcp_promises_holds() {
    with_world("what_tcp_promises_holds", |world| {
        let earlier = earlier(world);
        let _gateways = world.gateways("");
        let short = || ALL.iter().enumerate().filter(|(_, case)| !case.long);
        thread::scope(|scope| {
            let attempt = |number, family| {
                let scene = Scene::new((world, &earlier), number, family, Duration::ZERO);
                let check = ALL[number].check;
                scope.spawn(move || catch_unwind(AssertUnwindSafe(|| check(&scene))).is_err())
            };
            let tried =
                short().map(|(number, case)| (case.name, [0, 1].map(|it| attempt(number, it))));
            let tried: Vec<_> = tried.collect();
            let broken = tried.into_iter().filter_map(|(name, threads)| {
                let failed = threads.map(|thread| thread.join().unwrap());
                failed.contains(&true).then_some(name)
            });
            let broken: Vec<_> = broken.collect();
            assert!(broken.is_empty(), "broken: {broken:#?}");
        });
    });
}

#[test]
fn both_gateways_record_what_passed() {
    with_world("both_gateways_record_what_passed", |world| {
        let [near, far] = world.gateways("");
        let to = at(SERVERS[0], 8000);
        let served = server(world, to, |mut stream, _| {
            let body = read_all(&mut stream);
            stream.write_all(&body[..BODY / 2]).unwrap();
        });
        let mut client = connect(world, to).unwrap();
        let own = client.local_addr().unwrap();
        client.write_all(&vec![7; BODY]).unwrap();
        client.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(read_all(&mut client).len(), BODY / 2);
        served.join().unwrap();
        let bytes = (BODY as u64, BODY as u64 / 2);
        let record = near.record(own);
        let Outcome::Carried(it) = record.outcome else { panic!("{record}") };
        let lasted = it.lasted;
        assert_eq!(it, Passed { bytes, whole: true, trunk_lost: false, undelivered: 0, lasted });
        assert!(!it.lasted.is_zero());
        assert!(matches!(far.record(own).outcome, Outcome::Carried(_)));
    });
}

#[test]
fn urgent_data_arrives_as_ordinary_data() {
    with_world("urgent_data_arrives_as_ordinary_data", |world| {
        let _gateways = world.gateways("");
        let to = at(SERVERS[0], 8000);
        let served = server(world, to, |mut stream, _| read_all(&mut stream));
        let mut client = connect(world, to).unwrap();
        client.write_all(b"ab").unwrap();
        socket2::SockRef::from(&client).send_out_of_band(b"!").unwrap();
        client.write_all(b"cd").unwrap();
        drop(client);
        assert_eq!(served.join().unwrap(), b"ab!cd");
    });
}

#[test]
fn what_a_firewall_forbids_is_told_so() {
    with_world("what_a_firewall_forbids_is_told_so", |world| {
        let earlier = earlier(world);
        let [near, _far] = world.gateways("");
        let rule = "tcp dport 8900 reject with icmpx type admin-prohibited";
        let chain = "{ type filter hook input priority 0; }";
        world.nft(
            SERVER,
            &format!(
                "add table inet wall; add chain inet wall in {chain}; add rule inet wall in {rule}"
            ),
        );
        for (family, own) in ["10.1.0.2", "fd01::2"].into_iter().enumerate() {
            let server = at(SERVERS[family], 8900);
            let scene = Scene { world, family, server, idle: Duration::ZERO, earlier: &earlier };
            let error = scene.connect_from(8901).unwrap_err();
            let known = [ErrorKind::HostUnreachable, ErrorKind::PermissionDenied][family];
            assert_eq!(error.kind(), known, "{error}");
            let record = near.record(at(own, 8901));
            assert!(matches!(record.outcome, Outcome::Refused(Refusal::Prohibited)), "{record}");
        }
    });
}

#[test]
fn an_early_answer_becomes_a_reset() {
    with_world("an_early_answer_becomes_a_reset", |world| {
        let earlier = earlier(world);
        let [near, _far] = world.gateways("early = [9, 8000]");
        let closed = at(SERVERS[0], 9);
        let scene =
            Scene { world, family: 0, server: closed, idle: Duration::ZERO, earlier: &earlier };
        // The reset may come before the client has looked whether it is connected.
        let heard = scene.connect_from(8901).and_then(|mut client| client.read_exact(&mut [0]));
        assert_eq!(heard.unwrap_err().kind(), ErrorKind::ConnectionReset);
        let record = near.record(at("10.1.0.2", 8901));
        assert!(matches!(record.outcome, Outcome::Refused(Refusal::Refused)), "{record}");
        let to = at(SERVERS[0], 8000);
        let served = server(world, to, |mut stream, _| read_all(&mut stream));
        let mut client = connect(world, to).unwrap();
        client.write_all(b"hello").unwrap();
        drop(client);
        assert_eq!(served.join().unwrap(), b"hello");
    });
}

#[test]
fn an_early_answer_is_kept_from_here_where_the_far_gateway_cannot() {
    with_world("an_early_answer_is_kept_from_here_where_the_far_gateway_cannot", |world| {
        let [near, _far] = world.gateways("early = [8000]");
        // An address of its own.
        let to = at("10.2.0.1", 8000);
        let listener = world.on(FAR, || TcpListener::bind(to).unwrap());
        let served = world.start(FAR, move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(b"welcome").unwrap();
            let heard = read_all(&mut stream);
            stream.write_all(&heard).unwrap();
        });
        let mut client = connect(world, to).unwrap();
        let own = client.local_addr().unwrap();
        client.read_exact(&mut [0; 7]).unwrap();
        // It is told while it goes on.
        let record = near.record(own);
        assert!(matches!(record.outcome, Outcome::Bypassed(Bypass::Far)), "{record}");
        client.write_all(b"hello").unwrap();
        client.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(read_all(&mut client), b"hello");
        served.join().unwrap();
    });
}

#[test]
fn an_early_answer_is_kept_over_another_trunk() {
    with_world("an_early_answer_is_kept_over_another_trunk", |world| {
        let _first = world.far();
        let standby = "[trunk]\nlisten = \"10.2.0.2:7280\"\nkey = \"-\"\n\
                       [deliver]\nto = [\"10.2.0.0/24\"]\nfrom_client = false\n";
        let _second = world.gateway(SERVER, standby);
        let near = "[trunk]\npeer = \"10.77.0.2:7273\"\nstandby = [\"10.2.0.2:7280\"]\n\
                    key = \"-\"\n[intercept]\ninterfaces = [\"lan\"]\nearly = [8000]\n";
        let near = world.gateway(NEAR, near);
        (0..2).for_each(|_| near.wait_for_trunk());
        // The first asks from the client's address, and hears nothing.
        let rule = "{ type filter hook input priority 0; ip saddr 10.1.0.2 tcp dport 8000 drop; }";
        world.nft(SERVER, &format!("add table inet cut; add chain inet cut in {rule}"));
        let to = at(SERVERS[0], 8000);
        let served = server(world, to, |mut stream, _| read_all(&mut stream));
        let mut client = connect(world, to).unwrap();
        client.write_all(b"hello").unwrap();
        world.cut_trunk();
        client.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(served.join().unwrap(), b"hello");
    });
}

#[test]
fn without_the_other_gateway_connections_go_direct() {
    with_world("without_the_other_gateway_connections_go_direct", |world| {
        let [near, far] = world.gateways("");
        drop(far);
        near.wait_for_silence();
        let to = at(SERVERS[0], 8000);
        let served = server(world, to, |mut stream, from| (read_all(&mut stream), from));
        let mut client = connect(world, to).unwrap();
        let own = client.local_addr().unwrap();
        client.write_all(b"hello").unwrap();
        drop(client);
        assert_eq!(served.join().unwrap(), (b"hello".to_vec(), own));
        assert!(matches!(near.record(own).outcome, Outcome::Bypassed(Bypass::NoTrunk)));
    });
}

#[test]
fn what_is_answered_early_goes_direct_too() {
    with_world("what_is_answered_early_goes_direct_too", |world| {
        let [near, far] = world.gateways("early = [9]");
        drop(far);
        near.wait_for_silence();
        let error = connect(world, at(SERVERS[0], 9)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    });
}

#[test]
fn a_syn_that_waits_goes_direct_when_the_trunk_falls_silent() {
    with_world("a_syn_that_waits_goes_direct_when_the_trunk_falls_silent", |world| {
        let [near, _far] = world.gateways("");
        world.cut_trunk();
        let to = at(SERVERS[0], 8000);
        let served = server(world, to, |_, from| from);
        let own = connect(world, to).unwrap().local_addr().unwrap();
        assert_eq!(served.join().unwrap(), own);
        assert!(matches!(near.record(own).outcome, Outcome::Bypassed(Bypass::NoTrunk)));
    });
}

#[test]
fn the_gateways_own_port_is_not_taken() {
    with_world("the_gateways_own_port_is_not_taken", |world| {
        let _gateways = world.gateways("ports = [8000]");
        // The servers', which is none of the ports to be taken, and the near gateway's own.
        for host in SERVERS.iter().chain(&["10.1.0.2", "fd01::2"]) {
            let error = connect(world, at(host, 7274)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{host}");
        }
        // Nor is anybody served who comes to its listener without having been granted a server.
        let local = world.on(NEAR, || {
            let mut stream = TcpStream::connect_timeout(&at("127.0.0.1", 7274), PATIENCE)?;
            stream.read(&mut [0])
        });
        assert_eq!(local.unwrap_err().kind(), ErrorKind::ConnectionReset);
    });
}

#[test]
fn what_a_gateway_leaves_unfinished_is_reset() {
    with_world("what_a_gateway_leaves_unfinished_is_reset", |world| {
        let gateways = world.gateways("");
        let to = at(SERVERS[0], 8000);
        let (tell, begun) = std::sync::mpsc::channel();
        let served = server(world, to, move |mut stream, _| {
            stream.read_exact(&mut [0; 5]).unwrap();
            tell.send(()).unwrap();
            stream.read(&mut [0]).map_err(|error| error.kind())
        });
        let mut client = connect(world, to).unwrap();
        client.write_all(b"hello").unwrap();
        begun.recv_timeout(PATIENCE).unwrap();
        drop(gateways);
        assert_eq!(served.join().unwrap(), Err(ErrorKind::ConnectionReset));
        assert_eq!(client.read_exact(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
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
        let to = at(SERVERS[0], 8000);
        let served = server(world, to, |mut stream, _| read_all(&mut stream));
        let mut client = connect(world, to).unwrap();
        let own = client.local_addr().unwrap();
        client.write_all(b"hello").unwrap();
        drop(client);
        assert_eq!(served.join().unwrap(), b"hello");
        assert!(matches!(near.record(own).outcome, Outcome::Carried(_)));
    });
}

#[test]
fn connections_get_what_their_weights_say() {
    with_world("connections_get_what_their_weights_say", |world| {
        let _far = world.far();
        let near = "[trunk]\npeer = \"10.77.0.2:7273\"\nkey = \"-\"\nrate = \"50mbit\"\n\
                    [intercept]\ninterfaces = [\"lan\"]\n\
                    [[intercept.weights]]\nports = [8002]\nweight = 2\n\
                    [[intercept.weights]]\nports = [8004]\nweight = 4\n";
        let near = world.gateway(NEAR, near);
        near.wait_for_trunk();
        let counts: [_; 3] = std::array::from_fn(|_| Arc::new(AtomicU64::new(0)));
        let total = |counts: &[u64; 3]| counts.iter().sum::<u64>();
        let read = || counts.each_ref().map(|count| count.load(Ordering::Relaxed));
        let wait_for = |bytes: u64| {
            loop {
                let counts = read();
                if total(&counts) >= bytes {
                    return counts;
                }
                thread::sleep(Duration::from_millis(1));
            }
        };
        for (port, count) in [8001, 8002, 8004].into_iter().zip(&counts) {
            let (to, count) = (at(SERVERS[0], port), count.clone());
            server(world, to, move |mut stream, _| {
                let mut buffer = vec![0; BODY];
                while let Ok(read @ 1..) = stream.read(&mut buffer) {
                    count.fetch_add(read as u64, Ordering::Relaxed);
                }
            });
            let mut client = connect(world, to).unwrap();
            thread::spawn(move || while client.write_all(&[0; 1 << 16]).is_ok() {});
        }
        // All three have much to send by then.
        let (before, after) = (wait_for(3_000_000), wait_for(13_000_000));
        let shares: Vec<_> =
            after.iter().zip(&before).map(|(after, before)| after - before).collect();
        let unit = total(&[shares[0], shares[1], shares[2]]) as f64 / 7.0;
        for (share, weight) in shares.iter().zip([1.0, 2.0, 4.0]) {
            let ratio = *share as f64 / (unit * weight);
            assert!(
                (0.95..1.05).contains(&ratio),
                "weight {weight}: {ratio} of its share: {shares:?}"
            );
        }
    });
}

#[test]
fn another_far_gateway_stands_in() {
    with_world("another_far_gateway_stands_in", |world| {
        let first = world.far();
        let standby = "[trunk]\nlisten = \"10.2.0.2:7280\"\nkey = \"-\"\n\
                       [deliver]\nto = [\"10.2.0.0/24\"]\nfrom_client = false\n";
        let second = world.gateway(SERVER, standby);
        let near = "[trunk]\npeer = \"10.77.0.2:7273\"\nstandby = [\"10.2.0.2:7280\"]\n\
                    key = \"-\"\n[intercept]\ninterfaces = [\"lan\"]\n";
        let near = world.gateway(NEAR, near);
        (0..2).for_each(|_| near.wait_for_trunk());
        let to = at(SERVERS[0], 8000);
        let carried_by = |gateway: &gateways::Gateway| {
            let served = server(world, to, |mut stream, _| read_all(&mut stream));
            let mut client = connect(world, to).unwrap();
            client.write_all(b"hello").unwrap();
            let own = client.local_addr().unwrap();
            drop(client);
            assert_eq!(served.join().unwrap(), b"hello");
            matches!(gateway.record(own).outcome, Outcome::Carried(_))
        };
        assert!(carried_by(&first), "the preferred one was not asked");
        drop(first);
        near.wait_for_silence();
        assert!(carried_by(&second), "nobody stood in");
        let first = world.far();
        near.wait_for_trunk();
        assert!(carried_by(&first), "the preferred one was not taken back");
    });
}

#[test]
fn a_stalled_reader_stops_only_itself() {
    with_world("a_stalled_reader_stops_only_itself", |world| {
        let _gateways = world.gateways("");
        let stalled = at(SERVERS[0], 8001);
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
        let to = at(SERVERS[0], 8000);
        let other = server(world, to, |mut stream, _| read_all(&mut stream).len());
        let mut free = connect(world, to).unwrap();
        free.write_all(&vec![0; 8 * BODY]).unwrap();
        drop(free);
        assert_eq!(other.join().unwrap(), 8 * BODY);
        drop(client);
        let_go.send(()).unwrap();
        assert_eq!(served.join().unwrap(), sent);
    });
}
