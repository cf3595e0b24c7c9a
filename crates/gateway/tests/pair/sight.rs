//! What a gateway shows of itself while it carries.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::mpsc::channel;

use gateway::{AskError, Status, TrunkState};

use crate::gateways::Pair;
use crate::world::{NEAR, PATIENCE, SERVERS, World, at};
use crate::{connect, server, with_world};

fn status(world: &World) -> Result<Status, AskError> {
    world.on(NEAR, gateway::status)
}

/// What the web page's address answers.
fn get(world: &World, path: &str) -> String {
    world.on(NEAR, || {
        let mut stream = TcpStream::connect_timeout(&at("127.0.0.1", 7275), PATIENCE).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: 127.0.0.1:7275\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    })
}

#[test]
fn status_page_and_metrics_show_what_is_carried() {
    with_world("status_page_and_metrics_show_what_is_carried", |world| {
        assert!(matches!(status(world), Err(AskError::NotRunning)));
        let [near, _far] = world.gateways("[web]\n");
        let to = at(SERVERS[0], 8000);
        let (let_go, wait) = channel::<()>();
        let served = server(world, to, move |mut stream, _| {
            stream.read_exact(&mut [0; 5]).unwrap();
            stream.write_all(b"there you are").unwrap();
            wait.recv_timeout(PATIENCE).unwrap();
        });
        let mut client = connect(world, to).unwrap();
        let own = client.local_addr().unwrap();
        client.write_all(b"hello").unwrap();
        client.read_exact(&mut [0; 13]).unwrap();

        let seen = status(world).unwrap();
        assert_eq!((seen.open, seen.trunk.state), (1, TrunkState::Up));
        let connection = &seen.connections[0];
        assert_eq!((&connection.client, &connection.server), (&own.to_string(), &to.to_string()));
        assert_eq!((connection.there, connection.back), (5, 13));
        assert!(seen.to_string().contains(&own.to_string()), "{seen}");
        assert!(get(world, "/metrics").contains("longhaul_gateway_connections 1\n"));
        assert!(get(world, "/status.json").contains(&own.to_string()));
        assert!(get(world, "/").contains("<title>Longhaul gateway</title>"));

        let_go.send(()).unwrap();
        served.join().unwrap();
        drop(client);
        near.record(own);
        let seen = status(world).unwrap();
        assert_eq!((seen.open, seen.totals.carried), (0, 1));
        assert_eq!((seen.totals.there, seen.totals.back), (5, 13));
    });
}
