//! What gateways must leave alone.

use std::io::{Read, Write};
use std::net::UdpSocket;

use super::{BODY, PATIENCE, Scene, pattern};
use crate::world::{CLIENT, SERVER};

pub fn earlier(scene: &Scene) {
    let (client, server) = &scene.earlier[scene.family];
    for (seed, mut from, mut to) in [(1, client, server), (2, server, client)] {
        let mut read = vec![0; BODY];
        std::thread::scope(|scope| {
            scope.spawn(|| to.read_exact(&mut read).unwrap());
            from.write_all(&pattern(seed)).unwrap();
        });
        assert!(read == pattern(seed), "what was sent was changed");
    }
}

pub fn udp(scene: &Scene) {
    let socket = |host, at| {
        let socket = scene.world.on(host, move || UdpSocket::bind(at).unwrap());
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket
    };
    let server = socket(SERVER, scene.server);
    let any = ["0.0.0.0:0", "[::]:0"][scene.family].parse().unwrap();
    let client = socket(CLIENT, any);
    // Only the server's answers are heard.
    client.connect(scene.server).unwrap();
    let (sent, mut buffer) = (&pattern(1)[..1000], [0; 2000]);
    client.send(sent).unwrap();
    let (length, from) = server.recv_from(&mut buffer).unwrap();
    assert_eq!((&buffer[..length], from), (sent, client.local_addr().unwrap()));
    server.send_to(&buffer[..length / 2], from).unwrap();
    let length = client.recv(&mut buffer).unwrap();
    assert_eq!(&buffer[..length], &sent[..500]);
}
