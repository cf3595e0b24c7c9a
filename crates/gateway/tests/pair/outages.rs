//! What becomes of connections when the path between the gateways fails for a while, or for good.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::process::Command;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use gateway::{Outcome, Passed};

use crate::cases::wait_for_reset;
use crate::gateways::Pair;
use crate::world::{FAR, NEAR, SERVER, SERVERS, at};
use crate::{connect, read_all, server, with_world};

/// Longer than a gateway that is told that nobody is there waits for a word.
const OUTAGE: Duration = Duration::from_secs(4);
/// What a client offers that nobody reads.
const OFFERED: usize = 1 << 20;

#[test]
fn connections_outlive_an_outage_that_routers_tell_of() {
    with_world("connections_outlive_an_outage_that_routers_tell_of", |world| {
        let _gateways = world.gateways("");
        let to = at(SERVERS[0], 8000);
        let served = server(world, to, |mut stream, _| read_all(&mut stream));
        let mut client = connect(world, to).unwrap();
        client.write_all(b"before").unwrap();
        let rule = "{ type filter hook input priority 0; \
                    udp dport 7273 reject with icmpx type host-unreachable; udp sport 7273 drop; }";
        for gateway in [NEAR, FAR] {
            world.nft(gateway, &format!("add table inet cut; add chain inet cut in {rule}"));
        }
        client.write_all(b", meanwhile").unwrap();
        thread::sleep(OUTAGE);
        world.mend_trunk();
        client.write_all(b", after").unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!(served.join().unwrap(), b"before, meanwhile, after");
    });
}

#[test]
fn what_waits_longer_than_it_may_is_reset_and_its_bytes_are_counted() {
    with_world("what_waits_longer_than_it_may_is_reset_and_its_bytes_are_counted", |world| {
        let far = world.far();
        let near = "[trunk]\npeer = \"10.77.0.2:7273\"\nkey = \"-\"\nwait = 2\n\
                    [intercept]\ninterfaces = [\"lan\"]\n";
        let near = world.gateway(NEAR, near);
        near.wait_for_trunk();
        let to = at(SERVERS[0], 8000);
        let served = server(world, to, |mut stream, _| {
            stream.read_exact(&mut [0; 5]).unwrap();
            stream.read(&mut [0]).map_err(|error| error.kind())
        });
        let mut client = connect(world, to).unwrap();
        let own = client.local_addr().unwrap();
        client.write_all(b"hello").unwrap();
        thread::sleep(Duration::from_millis(200));
        world.cut_trunk();
        client.set_nonblocking(true).unwrap();
        let offered = vec![0; OFFERED];
        let taken = client.write(&offered).unwrap();
        assert!(taken > 0);
        client.set_nonblocking(false).unwrap();
        assert_eq!(client.read_exact(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
        let record = near.record(own);
        let Outcome::Carried(Passed { trunk_lost: true, undelivered, .. }) = record.outcome else {
            panic!("{record}")
        };
        assert!((1..=OFFERED as u64).contains(&undelivered), "{record}");
        assert_eq!(record.outcome.name(), "trunk_lost");
        drop(near);
        world.mend_trunk();
        drop(far);
        assert_eq!(served.join().unwrap(), Err(ErrorKind::ConnectionReset));
    });
}

#[test]
fn who_says_and_hears_nothing_is_told_that_the_trunk_is_lost() {
    with_world("who_says_and_hears_nothing_is_told_that_the_trunk_is_lost", |world| {
        let _far = world.far();
        let near = "[trunk]\npeer = \"10.77.0.2:7273\"\nkey = \"-\"\nwait = 2\n\
                    [intercept]\ninterfaces = [\"lan\"]\n";
        let near = world.gateway(NEAR, near);
        near.wait_for_trunk();
        let to = at(SERVERS[0], 8000);
        let (let_go, wait) = channel::<()>();
        let served = server(world, to, move |mut stream, _| {
            stream.write_all(b"hello").unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            let _ = wait.recv();
        });
        let mut client = connect(world, to).unwrap();
        assert_eq!(read_all(&mut client), b"hello");
        world.cut_trunk();
        // One that comes after the other side's end.
        assert_eq!(wait_for_reset(&client), ErrorKind::BrokenPipe);
        drop(let_go);
        served.join().unwrap();
    });
}

#[test]
fn what_was_answered_early_waits_no_longer_for_a_trunk_that_is_lost() {
    with_world("what_was_answered_early_waits_no_longer_for_a_trunk_that_is_lost", |world| {
        let _far = world.far();
        let near = "[trunk]\npeer = \"10.77.0.2:7273\"\nkey = \"-\"\nwait = 2\n\
                    [intercept]\ninterfaces = [\"lan\"]\nearly = [8000]\n";
        let near = world.gateway(NEAR, near);
        near.wait_for_trunk();
        // Nobody answers the far gateway.
        let rule = "{ type filter hook input priority 0; tcp dport 8000 drop; }";
        world.nft(SERVER, &format!("add table inet cut; add chain inet cut in {rule}"));
        let mut client = connect(world, at(SERVERS[0], 8000)).unwrap();
        let own = client.local_addr().unwrap();
        client.write_all(b"hello").unwrap();
        world.cut_trunk();
        assert_eq!(client.read_exact(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
        let record = near.record(own);
        assert!(matches!(record.outcome, Outcome::Lost), "{record}");
    });
}

#[test]
fn a_syn_that_waits_gets_through_when_the_gateway_ends() {
    with_world("a_syn_that_waits_gets_through_when_the_gateway_ends", |world| {
        let [near, _far] = world.gateways("");
        // The far gateway itself does not get through.
        let rule = "{ type filter hook output priority 0; tcp dport 8000 counter drop; }";
        world.nft(FAR, &format!("add table inet cut; add chain inet cut out {rule}"));
        let asked = || {
            let mut nft = Command::new("nft");
            nft.args(["list", "chain", "inet", "cut", "out"]);
            let listed = world.on(FAR, || nft.output().unwrap().stdout);
            !String::from_utf8(listed).unwrap().contains("packets 0")
        };
        let to = at(SERVERS[0], 8000);
        let served = server(world, to, |_, from| from);
        thread::scope(|scope| {
            let client = scope.spawn(|| connect(world, to).unwrap().local_addr().unwrap());
            while !asked() {
                thread::sleep(Duration::from_millis(10));
            }
            drop(near);
            assert_eq!(served.join().unwrap(), client.join().unwrap());
        });
    });
}
