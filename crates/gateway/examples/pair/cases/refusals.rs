//! Connections that are not made, or not at once.

use std::io::ErrorKind;
use std::thread;
use std::time::Duration;

use super::{Scene, accept};
use crate::world::{NO_HOST, NO_NETWORK, PATIENCE, SERVER, SERVERS, at};

fn refuses(scene: &Scene, host: &str, port: u16) -> ErrorKind {
    scene.connect_within(at(host, port), PATIENCE).expect_err("it was accepted").kind()
}

pub fn refused(scene: &Scene) {
    assert_eq!(refuses(scene, SERVERS[scene.family], 9), ErrorKind::ConnectionRefused);
}

pub fn no_network(scene: &Scene) {
    assert_eq!(refuses(scene, NO_NETWORK[scene.family], 9), ErrorKind::NetworkUnreachable);
}

pub fn no_host(scene: &Scene) {
    assert_eq!(refuses(scene, NO_HOST[scene.family], 9), ErrorKind::HostUnreachable);
}

/// The server's host treats SYNs to the port so, until what is returned is called.
fn firewall<'a>(scene: &'a Scene, verdict: &str) -> impl Fn() + use<'a> {
    let port = scene.server.port();
    let table = format!("inet wall{port}{}", scene.family);
    let family = ["ipv4", "ipv6"][scene.family];
    let chain = "{ type filter hook input priority 0; }";
    scene.world.nft(
        SERVER,
        &format!(
            "add table {table}; add chain {table} in {chain}; \
             add rule {table} in meta nfproto {family} tcp dport {port} {verdict}"
        ),
    );
    move || scene.world.nft(SERVER, &format!("delete table {table}"))
}

pub fn forbidden(scene: &Scene) {
    let _open = firewall(scene, "reject with icmpx type admin-prohibited");
    let known = [ErrorKind::HostUnreachable, ErrorKind::PermissionDenied][scene.family];
    assert_eq!(refuses(scene, SERVERS[scene.family], scene.server.port()), known);
}

pub fn silent(scene: &Scene) {
    let _listener = scene.listen();
    let _speak = firewall(scene, "drop");
    let error = scene.connect_within(scene.server, Duration::from_secs(4)).expect_err("accepted");
    assert_eq!(error.kind(), ErrorKind::TimedOut);
}

pub fn repeated(scene: &Scene) {
    let listener = scene.listen();
    let speak = firewall(scene, "drop");
    let (client, first) = thread::scope(|scope| {
        let client = scope.spawn(|| scene.connect().unwrap());
        // The client has repeated its SYN once or twice.
        thread::sleep(Duration::from_millis(2500));
        speak();
        let first = accept(&listener).expect("no SYN came through").1;
        (client.join().unwrap(), first)
    });
    assert_eq!(first.port(), client.local_addr().unwrap().port());
    listener.set_nonblocking(true).unwrap();
    thread::sleep(Duration::from_millis(500));
    assert!(listener.accept().is_err(), "one connection became two");
}
