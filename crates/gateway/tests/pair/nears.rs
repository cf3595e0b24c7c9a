//! Two gateways beside the client, of which either may be the one that packets pass.

use std::io::{ErrorKind, Read, Write};

use gateway::Outcome;

use crate::gateways::{Gateway, Pair};
use crate::taken::visit;
use crate::world::{CLIENT, NEAR, SECOND, SERVERS, VIRTUAL, World, at};
use crate::{connect, server, within};

/// One that calls the far gateway.
fn near(world: &World, host: usize, settings: &str) -> Gateway {
    let trunk = format!("[trunk]\npeer = \"10.77.0.2:7273\"\nkey = \"-\"\n{settings}");
    world.gateway(host, &format!("{trunk}\n[intercept]\ninterfaces = [\"lan\"]\n"))
}

#[track_caller]
fn carries(world: &World, gateway: &Gateway) {
    let record = gateway.record(visit(world, CLIENT, at(SERVERS[0], 8000)));
    assert!(matches!(record.outcome, Outcome::Carried(_)), "{record}");
}

#[test]
fn two_near_gateways_share_a_far_one() {
    within("two_near_gateways_share_a_far_one", World::with_two_near, |world| {
        let far = world.far();
        let [first, second] = [NEAR, SECOND].map(|host| near(world, host, ""));
        for gateway in [&first, &second, &far, &far] {
            gateway.wait_for_trunk();
        }
        for (host, gateway) in [(NEAR, &first), (SECOND, &second), (NEAR, &first)] {
            world.give(host);
            carries(world, gateway);
        }
        drop(first);
        world.give(SECOND);
        carries(world, &second);
    });
}

#[test]
fn the_gateway_that_has_the_virtual_address_serves() {
    within("the_gateway_that_has_the_virtual_address_serves", World::with_two_near, |world| {
        let far = world.far();
        let shared = format!("virtual_address = \"{VIRTUAL}\"");
        let [first, second] = [NEAR, SECOND].map(|host| near(world, host, &shared));
        second.wait_for_standing_by();
        first.wait_for_trunk();
        far.wait_for_trunk();
        carries(world, &first);

        let to = at(SERVERS[0], 8001);
        let served = server(world, to, |mut stream, _| {
            stream.write_all(&[7]).unwrap();
            stream.read(&mut [0]).map_err(|error| error.kind())
        });
        let mut client = connect(world, to).unwrap();
        client.read_exact(&mut [0]).unwrap();
        world.give(SECOND);
        // What passes another gateway now would wait for ever.
        assert_eq!(client.read_exact(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
        assert_eq!(served.join().unwrap(), Err(ErrorKind::ConnectionReset));
        first.wait_for_standing_by();
        second.wait_for_trunk();
        far.wait_for_trunk();
        carries(world, &second);
        let status = world.on(NEAR, gateway::status).unwrap().to_string();
        assert!(status.contains("stands by: another gateway has 10.1.0.254"), "{status}");

        drop(second);
        world.give(NEAR);
        first.wait_for_trunk();
        carries(world, &first);
    });
}
