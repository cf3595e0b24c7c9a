//! Which connections are taken, and which are left alone.

use std::io::{ErrorKind, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use gateway::{Bypass, Outcome, Status, Totals};

use crate::cases::read_all;
use crate::gateways::{Gateway, Pair};
use crate::world::{CLIENT, FAR, NEAR, PATIENCE, SERVER, SERVERS, World, at};
use crate::{connect, server, with_world};

/// Longer than a gateway takes to refuse.
const BRIEFLY: Duration = Duration::from_millis(500);
/// What a visitor says.
const WORDS: &[u8] = b"hello";

/// A connection from a host that says something; its address, which the server saw too.
pub fn visit(world: &World, host: usize, to: SocketAddr) -> SocketAddr {
    let served = server(world, to, |mut stream, from| (read_all(&mut stream), from));
    let mut client = world.on(host, || TcpStream::connect_timeout(&to, PATIENCE).unwrap());
    let own = client.local_addr().unwrap();
    client.write_all(WORDS).unwrap();
    drop(client);
    assert_eq!(served.join().unwrap(), (WORDS.to_vec(), own));
    own
}

fn status(world: &World, host: usize) -> Status {
    world.on(host, gateway::status).unwrap()
}

/// The near gateway has carried so many visitors' words, and refused or missed nobody.
#[track_caller]
fn carried(world: &World, count: u64) {
    let seen = status(world, NEAR);
    let there = count * WORDS.len() as u64;
    assert_eq!(seen.totals, Totals { carried: count, there, ..Totals::default() }, "{seen}");
}

/// The near gateway leaves visitors of these ports alone, and takes those of port 8000.
fn only_others_are_taken(world: &World, near: &Gateway, left: &[u16]) {
    for host in SERVERS {
        for port in left {
            visit(world, CLIENT, at(host, *port));
        }
        let own = visit(world, CLIENT, at(host, 8000));
        assert!(matches!(near.record(own).outcome, Outcome::Carried(_)));
    }
    carried(world, SERVERS.len() as u64);
}

#[test]
fn what_others_have_marked_is_left_alone() {
    with_world("what_others_have_marked_is_left_alone", |world| {
        let chain = |name: &str, priority: i32, port: u16| {
            let hook = format!("{{ type filter hook prerouting priority {priority}; }}");
            format!(
                "add chain inet others {name} {hook}; \
                 add rule inet others {name} tcp dport {port} meta mark set 7"
            )
        };
        // Before the gateway looks, and before it queues.
        let (early, late) = (chain("early", -400, 8001), chain("late", -305, 8002));
        world.nft(NEAR, &format!("add table inet others; {early}; {late}"));
        let [near, _far] = world.gateways("");
        only_others_are_taken(world, &near, &[8001, 8002]);
    });
}

#[test]
fn ports_are_excepted() {
    with_world("ports_are_excepted", |world| {
        let [near, _far] = world.gateways("except_ports = [25, \"8001-8002\"]");
        only_others_are_taken(world, &near, &[25, 8001, 8002]);
    });
}

#[test]
fn beyond_its_bound_a_clients_connections_go_direct_and_no_others() {
    with_world("beyond_its_bound_a_clients_connections_go_direct_and_no_others", |world| {
        let [near, _far] = world.gateways("per_client = 2");
        let open = [8001, 8002].map(|port| {
            let to = at(SERVERS[0], port);
            let served = server(world, to, |mut stream, _| read_all(&mut stream));
            (connect(world, to).unwrap(), served)
        });
        let carried = |host: &str| {
            let record = near.record(visit(world, CLIENT, at(host, 8000)));
            match record.outcome {
                Outcome::Carried(_) => true,
                Outcome::Bypassed(Bypass::NoRoom) => false,
                _ => panic!("{record}"),
            }
        };
        assert_eq!(SERVERS.map(carried), [false, true]);
        let [(client, served), _other] = open;
        let own = client.local_addr().unwrap();
        drop(client);
        served.join().unwrap();
        near.record(own);
        assert!(carried(SERVERS[0]), "what has ended counts still");
    });
}

#[test]
fn what_stays_on_this_side_is_left_alone() {
    with_world("what_stays_on_this_side_is_left_alone", |world| {
        let (near, server) = (world.name(NEAR), world.name(SERVER));
        world.ip(&[format!("link add lan1 netns {near} type veth peer eth1 netns {server}")]);
        for (name, device, host) in [(near, "lan1", 1), (server, "eth1", 2)] {
            world.ip(&[
                format!("-n {name} link set {device} up"),
                format!("-n {name} addr add 10.4.0.{host}/24 dev {device}"),
                format!("-n {name} addr add fd04::{host}/64 dev {device} nodad"),
            ]);
        }
        // What comes by this network goes back by it; and one that is behind another host.
        world.ip(&[
            format!("-n {server} rule add from 10.4.0.2 lookup 4"),
            format!("-n {server} route add default via 10.4.0.1 table 4"),
            format!("-n {server} -6 rule add from fd04::2 lookup 4"),
            format!("-n {server} -6 route add default via fd04::1 dev eth1 table 4"),
            format!("-n {near} route add 10.5.0.0/24 via 10.1.0.77"),
        ]);
        let _far = world.far();
        let near = "[trunk]\npeer = \"10.77.0.2:7273\"\nkey = \"-\"\n\
                    [intercept]\ninterfaces = [\"lan\", \"lan1\"]\n";
        let near = world.gateway(NEAR, near);
        near.wait_for_trunk();
        for host in ["10.4.0.2", "fd04::2"] {
            visit(world, CLIENT, at(host, 8001));
        }
        let behind = at("10.5.0.1", 8001);
        world.on(CLIENT, || TcpStream::connect_timeout(&behind, BRIEFLY)).unwrap_err();
        let own = visit(world, CLIENT, at(SERVERS[0], 8000));
        assert!(matches!(near.record(own).outcome, Outcome::Carried(_)));
        carried(world, 1);
    });
}

#[test]
fn a_gateways_own_host_is_served_if_asked() {
    with_world("a_gateways_own_host_is_served_if_asked", |world| {
        let [near, far] = world.gateways("own = true");
        for host in SERVERS {
            for from in [NEAR, CLIENT] {
                let own = visit(world, from, at(host, 8000));
                let record = near.record(own);
                assert!(matches!(record.outcome, Outcome::Carried(_)), "{record}");
            }
            let refused = world.on(NEAR, || TcpStream::connect_timeout(&at(host, 9), PATIENCE));
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::ConnectionRefused);
        }
        assert_eq!(status(world, NEAR).totals.refused, 2);
        drop(far);
        near.wait_for_silence();
        for host in SERVERS {
            let record = near.record(visit(world, NEAR, at(host, 8000)));
            assert!(matches!(record.outcome, Outcome::Bypassed(Bypass::NoTrunk)), "{record}");
        }
        drop(near);
        visit(world, NEAR, at(SERVERS[0], 8000));
    });
}

#[test]
fn what_the_gateway_itself_connects_is_not_taken() {
    with_world("what_the_gateway_itself_connects_is_not_taken", |world| {
        let far = "[trunk]\nlisten = \"10.77.0.2:7273\"\nkey = \"-\"\n\
                   [deliver]\nfrom_client = false\n[intercept]\ninterfaces = []\nown = true\n";
        let far = world.gateway(FAR, far);
        let near = world.near("");
        near.wait_for_trunk();
        far.wait_for_trunk();
        let to = at(SERVERS[0], 8000);
        let served = server(world, to, |mut stream, _| read_all(&mut stream));
        let mut client = world.on(CLIENT, || TcpStream::connect_timeout(&to, PATIENCE).unwrap());
        let own = client.local_addr().unwrap();
        client.write_all(WORDS).unwrap();
        drop(client);
        assert_eq!(served.join().unwrap(), WORDS);
        far.record(own);
        let seen = status(world, FAR);
        assert_eq!((seen.totals.carried, seen.open), (1, 0), "{seen}");
    });
}
