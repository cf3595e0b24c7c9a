//! What TCP promises, whatever stands between a client and a server: each case holds without
//! gateways, and must hold with them.

#[path = "cases/apart.rs"]
mod apart;
#[path = "cases/deaths.rs"]
mod deaths;
#[path = "cases/refusals.rs"]
mod refusals;
#[path = "cases/resets.rs"]
mod resets;

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Barrier};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::retry_on_intr;
use socket2::{Domain, SockRef, Socket, Type};

use crate::world::{CLIENT, PATIENCE, SERVER, SERVERS, World, at};

/// More than any buffer of a stream's first credit.
pub const BODY: usize = 1 << 20;
/// The first of the ports that cases use.
const FIRST_PORT: u16 = 8100;

const BRIEFLY: Duration = Duration::from_millis(10);

/// One promise.
pub struct Case {
    pub name: &'static str,
    pub check: fn(&Scene),
    /// It takes minutes, or gigabytes.
    pub long: bool,
}

const fn case(name: &'static str, check: fn(&Scene)) -> Case {
    Case { name, check, long: false }
}

const fn long(name: &'static str, check: fn(&Scene)) -> Case {
    Case { name, check, long: true }
}

/// All promises.
pub const ALL: &[Case] = &[
    case("bytes arrive in both directions as they were sent", unchanged),
    case("the server sees the client's address and port", seen),
    case("a port where nobody listens refuses", refusals::refused),
    case("no way to the network: ICMP says so", refusals::no_network),
    case("no way to the host: ICMP says so", refusals::no_host),
    case("a firewall forbids it: ICMP says so", refusals::forbidden),
    case("a server that is silent is silent", refusals::silent),
    case("a SYN that is sent again makes one connection", refusals::repeated),
    case("the client closes its half first", client_closes),
    case("the server closes its half first", server_closes),
    case("both close at once", both_close),
    case("a reset of the client's reaches the server", client_resets),
    case("a reset of the server's reaches the client", server_resets),
    case("a reset of the server's destroys nothing that it had ended", resets::after_server),
    case("a reset of the client's destroys nothing that it had ended", resets::after_client),
    case("a reset of the server's after its end is noticed without a byte", resets::of_idle_server),
    case("a reset of the client's after its end is noticed without a byte", resets::of_idle_client),
    case("a reset in the midst of bytes is no end of them", resets::amid_bytes),
    case("a client's port is used again after the server closed", reused_after_server),
    case("a client's port is used again after a reset", reused_after_reset),
    case("a client's port is used again after the client closed", reused_after_client),
    case("a connection that was there before the gateways goes on", apart::earlier),
    case("UDP passes with its addresses and ports", apart::udp),
    long("an idle connection lives on", idle),
    long("a client's host that is dead is noticed by the server", deaths::of_client),
    long("a server's host that is dead is noticed by the client", deaths::of_server),
    long("more bytes than 32 bits can count, to the server", large_there),
    long("more bytes than 32 bits can count, to the client", large_back),
];

/// A client and a server, and a port of their own.
pub struct Scene<'a> {
    pub world: &'a World,
    /// 0 for IPv4, 1 for IPv6.
    pub family: usize,
    pub server: SocketAddr,
    /// How long a connection is left idle.
    pub idle: Duration,
    /// A connection of each family, client and server, that was made before the gateways began.
    pub earlier: &'a Earlier,
}

/// See [`Scene::earlier`].
pub type Earlier = [(TcpStream, TcpStream); 2];

/// Connections that are open before there are gateways.
pub fn earlier(world: &World) -> Earlier {
    SERVERS.map(|host| {
        let to = at(host, FIRST_PORT - 1);
        let listener = world.on(SERVER, || TcpListener::bind(to).unwrap());
        let client = world.on(CLIENT, || TcpStream::connect_timeout(&to, PATIENCE).unwrap());
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        (client, accept(&listener).unwrap().0)
    })
}

impl<'a> Scene<'a> {
    /// For the case of this number.
    pub fn new(
        (world, earlier): (&'a World, &'a Earlier),
        number: usize,
        family: usize,
        idle: Duration,
    ) -> Self {
        let port = FIRST_PORT + u16::try_from(10 * number).unwrap();
        Self { world, family, server: at(SERVERS[family], port), idle, earlier }
    }

    fn listen(&self) -> TcpListener {
        self.world.on(SERVER, || TcpListener::bind(self.server).unwrap())
    }

    /// Serves one connection.
    fn serve<T: Send + 'static>(
        &self,
        serve: impl FnOnce(TcpStream, SocketAddr) -> T + Send + 'static,
    ) -> JoinHandle<T> {
        let listener = self.listen();
        thread::spawn(move || {
            let (stream, from) = accept(&listener).expect("the server heard nobody");
            serve(stream, from)
        })
    }

    fn connect(&self) -> io::Result<TcpStream> {
        self.connect_within(self.server, PATIENCE)
    }

    fn connect_within(&self, to: SocketAddr, patience: Duration) -> io::Result<TcpStream> {
        self.world.on(CLIENT, || {
            let stream = TcpStream::connect_timeout(&to, patience)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            Ok(stream)
        })
    }

    /// Connects from a certain port. A child of this process that has not begun its program yet may
    /// still hold the last socket for a moment.
    pub fn connect_from(&self, port: u16) -> io::Result<TcpStream> {
        let held = |error: &io::Error| error.kind() == ErrorKind::AddrNotAvailable;
        let attempt = || self.connect_once_from(port);
        let mut attempts = (0..50).map(|_| attempt().inspect_err(|_| thread::sleep(BRIEFLY)));
        attempts.find(|it| !it.as_ref().is_err_and(held)).unwrap_or_else(attempt)
    }

    fn connect_once_from(&self, port: u16) -> io::Result<TcpStream> {
        let from: IpAddr = ["10.1.0.2", "fd01::2"][self.family].parse().unwrap();
        let (from, to) = (SocketAddr::new(from, port), self.server);
        self.world.on(CLIENT, move || {
            let socket = Socket::new(Domain::for_address(to), Type::STREAM, None)?;
            socket.set_reuse_address(true)?;
            socket.bind(&from.into())?;
            socket.connect_timeout(&to.into(), PATIENCE)?;
            let stream = TcpStream::from(socket);
            stream.set_read_timeout(Some(PATIENCE))?;
            Ok(stream)
        })
    }
}

/// Unlike the kernel's own, not for ever.
fn accept(listener: &TcpListener) -> io::Result<(TcpStream, SocketAddr)> {
    SockRef::from(listener).set_read_timeout(Some(PATIENCE))?;
    let (stream, from) = listener.accept()?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok((stream, from))
}

pub fn read_all(stream: &mut TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    stream.read_to_end(&mut all).unwrap();
    all
}

/// To close the socket is to reset the connection.
fn reset(stream: TcpStream) {
    SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
}

/// Waits for a reset and neither reads nor writes.
pub fn wait_for_reset(stream: &TcpStream) -> ErrorKind {
    let patience = PATIENCE.try_into().unwrap();
    let mut noticed = [PollFd::new(stream, PollFlags::empty())];
    let noticed = retry_on_intr(|| poll(&mut noticed, Some(&patience)));
    assert_eq!(noticed.unwrap(), 1, "no reset came");
    stream.take_error().unwrap().unwrap().kind()
}

/// Bytes among which none can be lost, doubled or exchanged unseen.
fn pattern(seed: u64) -> Vec<u8> {
    let words = (0..BODY as u64 / 8).map(|at| (at ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    words.flat_map(u64::to_le_bytes).collect()
}

fn unchanged(scene: &Scene) {
    let server = scene.serve(|mut stream, _| {
        let mut writer = stream.try_clone().unwrap();
        let writing = thread::spawn(move || {
            writer.write_all(&pattern(2)).unwrap();
            writer.shutdown(Shutdown::Write).unwrap();
        });
        let body = read_all(&mut stream);
        writing.join().unwrap();
        body
    });
    let mut client = scene.connect().unwrap();
    client.write_all(&pattern(1)).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    assert!(read_all(&mut client) == pattern(2), "what the server sent was changed");
    assert!(server.join().unwrap() == pattern(1), "what the client sent was changed");
}

fn seen(scene: &Scene) {
    let server = scene.serve(|_, from| from);
    let client = scene.connect().unwrap();
    assert_eq!(server.join().unwrap(), client.local_addr().unwrap());
}

fn client_closes(scene: &Scene) {
    let server = scene.serve(|mut stream, _| {
        let body = read_all(&mut stream);
        // The client has closed its half long ago.
        thread::sleep(Duration::from_millis(300));
        stream.write_all(&body[..BODY / 2]).unwrap();
        body.len()
    });
    let mut client = scene.connect().unwrap();
    client.write_all(&pattern(3)).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(read_all(&mut client).len(), BODY / 2);
    assert_eq!(server.join().unwrap(), BODY);
}

fn server_closes(scene: &Scene) {
    let server = scene.serve(|mut stream, _| {
        stream.write_all(b"hello").unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        read_all(&mut stream).len()
    });
    let mut client = scene.connect().unwrap();
    assert_eq!(read_all(&mut client), b"hello");
    thread::sleep(Duration::from_millis(300));
    client.write_all(&pattern(4)).unwrap();
    drop(client);
    assert_eq!(server.join().unwrap(), BODY);
}

fn both_close(scene: &Scene) {
    let together = Arc::new(Barrier::new(2));
    let at_once = together.clone();
    let close = |mut stream: TcpStream, together: &Barrier| {
        stream.write_all(b"hello").unwrap();
        together.wait();
        stream.shutdown(Shutdown::Write).unwrap();
        read_all(&mut stream)
    };
    let server = scene.serve(move |stream, _| close(stream, &at_once));
    let client = scene.connect().unwrap();
    assert_eq!(close(client, &together), b"hello");
    assert_eq!(server.join().unwrap(), b"hello");
}

fn client_resets(scene: &Scene) {
    let server = scene.serve(|mut stream, _| {
        stream.write_all(b"hello").unwrap();
        stream.read(&mut [0]).map_err(|error| error.kind())
    });
    let mut client = scene.connect().unwrap();
    client.read_exact(&mut [0; 5]).unwrap();
    reset(client);
    assert_eq!(server.join().unwrap(), Err(ErrorKind::ConnectionReset));
}

fn server_resets(scene: &Scene) {
    let server = scene.serve(|mut stream, _| {
        stream.read_exact(&mut [0; 5]).unwrap();
        reset(stream);
    });
    let mut client = scene.connect().unwrap();
    client.write_all(b"hello").unwrap();
    let read = client.read(&mut [0]).map_err(|error| error.kind());
    assert_eq!(read, Err(ErrorKind::ConnectionReset));
    server.join().unwrap();
}

/// A port from which the client connects again and again.
const OWN_PORT: u16 = 5000;
const TIMES: usize = 4;

/// A client connects from one port, again as soon as `end` has ended the last connection.
fn reused(scene: &Scene, mut serve: impl FnMut(TcpStream) + Send, mut end: impl FnMut(TcpStream)) {
    let listener = scene.listen();
    thread::scope(|scope| {
        let served = scope.spawn(move || {
            for time in 0..TIMES {
                let Ok((stream, from)) = accept(&listener) else {
                    panic!("connection {time} never came");
                };
                assert_eq!(from.port(), OWN_PORT);
                serve(stream);
            }
        });
        for time in 0..TIMES {
            let mut client =
                scene.connect_from(OWN_PORT).unwrap_or_else(|e| panic!("connection {time}: {e}"));
            let hello = client.write_all(b"hello").and_then(|()| client.read_exact(&mut [0; 5]));
            hello.unwrap_or_else(|e| panic!("connection {time}: {e}"));
            end(client);
        }
        served.join().unwrap();
    });
}

fn answer(stream: &mut TcpStream) {
    stream.read_exact(&mut [0; 5]).unwrap();
    stream.write_all(b"there").unwrap();
}

fn reused_after_server(scene: &Scene) {
    let close = |mut stream: TcpStream| answer(&mut stream);
    reused(scene, close, |mut client| assert!(read_all(&mut client).is_empty()));
}

fn reused_after_reset(scene: &Scene) {
    let serve = |mut stream: TcpStream| {
        answer(&mut stream);
        let end = stream.read(&mut [0]).map_err(|error| error.kind());
        assert_eq!(end, Err(ErrorKind::ConnectionReset));
    };
    reused(scene, serve, reset);
}

fn reused_after_client(scene: &Scene) {
    // A host that lets go of ports after a second, as many do when they run short.
    scene.world.set(CLIENT, "ipv4/tcp_tw_reuse", "1");
    let serve = |mut stream: TcpStream| {
        answer(&mut stream);
        assert!(read_all(&mut stream).is_empty());
    };
    reused(scene, serve, |mut client| {
        client.shutdown(Shutdown::Write).unwrap();
        assert!(read_all(&mut client).is_empty());
        drop(client);
        thread::sleep(Duration::from_millis(1200));
    });
}

fn idle(scene: &Scene) {
    let patience = scene.idle + PATIENCE;
    let server = scene.serve(move |mut stream, _| {
        stream.set_read_timeout(Some(patience)).unwrap();
        answer(&mut stream);
        answer(&mut stream);
    });
    let mut client = scene.connect().unwrap();
    for pause in [scene.idle, Duration::ZERO] {
        client.write_all(b"hello").unwrap();
        client.read_exact(&mut [0; 5]).unwrap();
        thread::sleep(pause);
    }
    server.join().unwrap();
}

/// Bytes beyond 32 bits.
const LARGE: u64 = (1 << 32) + 12_345;

fn large_there(scene: &Scene) {
    let server = scene.serve(|mut stream, _| {
        let count = io::copy(&mut stream, &mut io::sink()).unwrap();
        stream.write_all(&count.to_le_bytes()).unwrap();
    });
    let mut client = scene.connect().unwrap();
    send_large(&mut client);
    let mut count = [0; 8];
    client.read_exact(&mut count).unwrap();
    assert_eq!(u64::from_le_bytes(count), LARGE);
    server.join().unwrap();
}

fn large_back(scene: &Scene) {
    let server = scene.serve(|mut stream, _| send_large(&mut stream));
    let mut client = scene.connect().unwrap();
    assert_eq!(io::copy(&mut client, &mut io::sink()).unwrap(), LARGE);
    server.join().unwrap();
}

fn send_large(stream: &mut TcpStream) {
    assert_eq!(io::copy(&mut io::repeat(7).take(LARGE), stream).unwrap(), LARGE);
    stream.shutdown(Shutdown::Write).unwrap();
}
