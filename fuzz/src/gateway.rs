//! What comes to a gateway: frames of the other one, clients of the proxy, SYNs that the kernel holds, and
//! visitors of its web page.

use std::io::ErrorKind;
use std::net::IpAddr;

use ::gateway::fuzzing;

use crate::memory::{peer, settled};

/// Bytes of the longest frame with its length, and of the longest head of a request by HTTP.
const FRAME_MAX: usize = 2 + 1024;
const HEAD_MAX: usize = 8 << 10;
/// The first message of a client of SOCKS5 with the most ways to log in, and the longest request.
const SOCKS_MAX: usize = 2 + 255 + 4 + 1 + 255 + 2;
const SOCKS: u8 = 5;

/// The first byte names the parser, the rest is what it reads.
pub fn run(input: &[u8]) {
    let Some((parser, bytes)) = input.split_first() else { return };
    match parser % 5 {
        0 => request(bytes),
        1 => reply(bytes),
        2 => proxied(bytes),
        3 => held(bytes),
        _ => visit(bytes),
    }
}

/// What is read is written again in no more bytes, and does nothing to a terminal.
fn request(bytes: &[u8]) {
    let mut left = bytes;
    let Ok((again, server)) = settled(fuzzing::request(&mut left)) else { return };
    let read = bytes.len() - left.len();
    assert!(read <= FRAME_MAX && again.len() <= read);
    assert!(!server.chars().any(char::is_control), "{server:?}");
    let second = settled(fuzzing::request(&mut &again[..])).expect("it was just written");
    assert_eq!(second, (again, server));
}

fn reply(bytes: &[u8]) {
    let mut left = bytes;
    let Ok(again) = settled(fuzzing::reply(&mut left)) else { return };
    let read = bytes.len() - left.len();
    assert!(read <= FRAME_MAX && again.len() <= read);
    assert_eq!(settled(fuzzing::reply(&mut &again[..])).expect("it was just written"), again);
}

/// Nothing is read of what is the server's, and who has no server is told so.
fn proxied(said: &[u8]) {
    let mut client = peer(said);
    let asked = settled(fuzzing::proxied(&mut client));
    let (left, told) = client.into_inner();
    let read = &said[..said.len() - left.len()];
    let is_socks = read.first() == Some(&SOCKS);
    assert!(read.len() <= if is_socks { SOCKS_MAX } else { HEAD_MAX });
    match asked {
        Ok(Some(server)) => {
            assert!(!server.chars().any(char::is_control), "{server:?}");
            let (host, port) = server.rsplit_once(':').expect("a port");
            assert!(!host.is_empty() && port.parse().is_ok_and(|port: u16| port != 0), "{server}");
            assert_eq!(told, if is_socks { &[SOCKS, 0][..] } else { &[] });
            assert!(is_socks || read.ends_with(b"\r\n\r\n"));
        }
        Ok(None) => assert!(!told.is_empty() || read.len() == HEAD_MAX),
        Err(error) => assert!(left.is_empty() && error.kind() == ErrorKind::UnexpectedEof),
    }
}

/// No packet is longer than what tells of it, and addresses are those of its header.
fn held(datagram: &[u8]) {
    let packets = fuzzing::held(datagram);
    assert!(packets.iter().map(Vec::len).sum::<usize>() <= datagram.len());
    for packet in packets {
        let Some(((from, to), _)) = fuzzing::flow(&packet) else { continue };
        let addresses = match (from.ip(), to.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => [from.octets(), to.octets()].concat(),
            (IpAddr::V6(from), IpAddr::V6(to)) => [from.octets(), to.octets()].concat(),
            _ => panic!("a packet from {from} to {to}"),
        };
        let place = if from.is_ipv4() { 12 } else { 8 };
        assert!(packet[place..].starts_with(&addresses), "{from} to {to}: {packet:?}");
    }
}

/// Every answer is as long as it says.
fn visit(head: &[u8]) {
    let answer = settled(fuzzing::visit(head)).expect("there is something to be said");
    let end = answer.windows(4).position(|part| part == b"\r\n\r\n").expect("it has a head");
    let (head, body) = answer.split_at(end + 4);
    let head = str::from_utf8(head).expect("a head is text");
    let length = format!("\r\nContent-Length: {}\r\n", body.len());
    assert!(head.starts_with("HTTP/1.1 ") && head.contains(&length), "{head}");
}

/// One of each, as gateways, programs that know proxies, the kernel and browsers write them.
pub fn seeds() -> Vec<Vec<u8>> {
    let seed = |parser: u8, bytes: &[u8]| [&[parser][..], bytes].concat();
    let requests = settled(fuzzing::requests()).expect("they fit");
    let replies = settled(fuzzing::replies()).expect("they fit");
    let mut seeds = Vec::from_iter(requests.iter().map(|bytes| seed(0, bytes)));
    seeds.extend(replies.iter().map(|bytes| seed(1, bytes)));
    seeds.extend([
        seed(2, b"\x05\x01\x00\x05\x01\x00\x01\xc0\x00\x02\x01\x00\x50hello"),
        seed(2, b"\x05\x02\x02\x00\x05\x01\x00\x03\x0bexample.org\x01\xbb"),
        seed(2, b"\x05\x01\x02"),
        seed(2, b"CONNECT [2001:db8::1]:443 HTTP/1.1\r\nHost: x\r\n\r\nhello"),
        seed(3, &queued(&[&syn(&[10, 0, 0, 1], &[10, 0, 0, 2])])),
        seed(3, &queued(&[&syn(&[10, 0, 0, 1], &[10, 0, 0, 2]), &syn(&[0xfd; 16], &[0xfe; 16])])),
        seed(4, b"GET / HTTP/1.1\r\nHost: 192.0.2.1\r\n\r\n"),
        seed(4, b"GET /status.json HTTP/1.1\r\nHost: [::1]:80\r\nAccept: */*\r\n\r\n"),
    ]);
    seeds
}

/// The first packet of a connection, of whichever family the addresses are.
fn syn(from: &[u8], to: &[u8]) -> Vec<u8> {
    let head: &[u8] = match from.len() {
        4 => &[0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0],
        _ => &[0x60, 0, 0, 0, 0, 20, 6, 64],
    };
    let tcp: &[u8] = &[0x80, 0, 0, 80, 0, 0, 0, 9, 0, 0, 0, 0, 0x50, 2, 0xff, 0xff, 0, 0, 0, 0];
    [head, from, to, tcp].concat()
}

/// How the kernel tells of packets that wait (`linux/netfilter/nfnetlink_queue.h`).
fn queued(packets: &[&[u8]]) -> Vec<u8> {
    const PACKET: u16 = 3 << 8;
    let attribute = |kind: u16, value: &[u8]| {
        let length = value.len() as u16 + 4;
        let mut bytes = [&length.to_ne_bytes()[..], &kind.to_ne_bytes(), value].concat();
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    };
    let message = |packet: &&[u8]| {
        let header = attribute(1, &[0, 0, 0, 7, 8, 0, 0, 0]);
        let body = [vec![2, 0, 0, 0], header, attribute(10, packet)].concat();
        let length = body.len() as u32 + 16;
        [&length.to_ne_bytes()[..], &PACKET.to_ne_bytes(), &[0; 10], &body].concat()
    };
    packets.iter().flat_map(message).collect()
}
