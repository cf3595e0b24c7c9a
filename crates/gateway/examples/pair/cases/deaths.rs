//! Hosts that are dead, of which nobody tells.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::mpsc::channel;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};

use super::{Scene, answer};
use crate::world::{CLIENT, SERVER};

/// How long a host may say nothing before it is asked, and how long it has for each of three answers.
const SILENCE: Duration = Duration::from_secs(5);
const ANSWER: Duration = Duration::from_secs(1);
/// Longer than gateways whose time-outs are short take to notice.
const NOTICED: Duration = Duration::from_secs(90);

/// From now on nothing of the connection leaves this host or reaches it.
fn dies(scene: &Scene, host: usize) {
    let (port, family) = (scene.server.port(), scene.family);
    let table = format!("inet dead{port}{family}");
    let family = ["ipv4", "ipv6"][family];
    let chain = |hook| {
        format!(
            "add chain {table} {hook} {{ type filter hook {hook} priority 0; }}; \
             add rule {table} {hook} meta nfproto {family} tcp dport {port} drop; \
             add rule {table} {hook} meta nfproto {family} tcp sport {port} drop"
        )
    };
    let (input, output) = (chain("input"), chain("output"));
    scene.world.nft(host, &format!("add table {table}; {input}; {output}"));
}

/// Waits for word of a host that sends no more.
fn notices(mut stream: &TcpStream) {
    stream.set_read_timeout(Some(NOTICED)).unwrap();
    let keepalive = TcpKeepalive::new().with_time(SILENCE).with_interval(ANSWER).with_retries(3);
    SockRef::from(stream).set_tcp_keepalive(&keepalive).unwrap();
    let error = stream.read(&mut [0]).expect_err("it was closed").kind();
    assert!([ErrorKind::TimedOut, ErrorKind::ConnectionReset].contains(&error), "{error}");
}

/// A client that has been answered.
fn met(scene: &Scene) -> TcpStream {
    let mut client = scene.connect().unwrap();
    client.write_all(b"hello").unwrap();
    client.read_exact(&mut [0; 5]).unwrap();
    client
}

pub fn of_client(scene: &Scene) {
    let server = scene.serve(|mut stream, _| {
        answer(&mut stream);
        notices(&stream);
    });
    let _client = met(scene);
    dies(scene, CLIENT);
    server.join().unwrap();
}

pub fn of_server(scene: &Scene) {
    let (let_go, wait) = channel::<()>();
    let server = scene.serve(move |mut stream, _| {
        answer(&mut stream);
        let _ = wait.recv();
    });
    let client = met(scene);
    dies(scene, SERVER);
    notices(&client);
    drop(let_go);
    server.join().unwrap();
}
