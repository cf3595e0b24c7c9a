//! What a reset destroys, and what it must not.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::panic::resume_unwind;
use std::thread;

use socket2::SockRef;

use super::{BODY, BRIEFLY, PATIENCE, Scene, pattern, read_all, reset, wait_for_reset};

/// Pieces of [`BODY`] bytes that one side sends before it ends: more than the buffers on the way hold.
const PIECES: u64 = 12;
/// What the other side reads at a time, and asks the kernel to hold.
const SIP: usize = 64 << 10;

/// Sends all and ends it, and resets the connection when the kernel knows that it arrived.
fn end_and_reset(mut stream: TcpStream) {
    (0..PIECES).for_each(|seed| stream.write_all(&pattern(seed)).unwrap());
    stream.shutdown(Shutdown::Write).unwrap();
    while net::tcp::unacknowledged(&stream) > 0 {
        thread::sleep(BRIEFLY);
    }
    reset(stream);
}

/// Reads slowly and sends all the while, which the reset must stop, after all was read.
fn read_slowly(mut stream: TcpStream) {
    SockRef::from(&stream).set_recv_buffer_size(SIP).unwrap();
    let writer = stream.try_clone().unwrap();
    let writing = thread::spawn(move || write_until_it_fails(writer));
    let mut piece = vec![0; BODY];
    for seed in 0..PIECES {
        for sip in piece.chunks_mut(SIP) {
            let read = stream.read_exact(sip);
            read.unwrap_or_else(|e| panic!("piece {seed} of {PIECES}: {e}"));
            thread::sleep(BRIEFLY);
        }
        assert!(piece == pattern(seed), "what was sent was changed");
    }
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    assert_eq!(writing.join().unwrap(), ErrorKind::BrokenPipe);
}

/// How it fails: a reset that comes after the other side's end says "broken pipe".
fn write_until_it_fails(mut stream: TcpStream) -> ErrorKind {
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    loop {
        if let Err(error) = stream.write_all(&[7; SIP]) {
            return error.kind();
        }
    }
}

pub fn after_server(scene: &Scene) {
    let server = scene.serve(|stream, _| end_and_reset(stream));
    read_slowly(scene.connect().unwrap());
    server.join().unwrap();
}

pub fn after_client(scene: &Scene) {
    let server = scene.serve(|stream, _| read_slowly(stream));
    end_and_reset(scene.connect().unwrap());
    server.join().unwrap_or_else(|panic| resume_unwind(panic));
}

pub fn amid_bytes(scene: &Scene) {
    let server = scene.serve(|mut stream, _| {
        stream.write_all(b"hello").unwrap();
        stream.read_exact(&mut vec![0; BODY]).unwrap();
        reset(stream);
    });
    let client = scene.connect().unwrap();
    assert_eq!(write_until_it_fails(client), ErrorKind::ConnectionReset);
    server.join().unwrap();
}

/// Ends what it sends, and resets the connection once the other side has seen that.
fn end_and_reset_later(mut stream: TcpStream) {
    stream.write_all(b"hello").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    stream.read_exact(&mut [0; 5]).unwrap();
    reset(stream);
}

/// Has seen the other side's end, and neither reads nor writes when the reset comes.
fn notice(mut stream: TcpStream) {
    assert_eq!(read_all(&mut stream), b"hello");
    stream.write_all(b"there").unwrap();
    assert_eq!(wait_for_reset(&stream), ErrorKind::BrokenPipe);
}

pub fn of_idle_server(scene: &Scene) {
    let server = scene.serve(|stream, _| end_and_reset_later(stream));
    notice(scene.connect().unwrap());
    server.join().unwrap();
}

pub fn of_idle_client(scene: &Scene) {
    let server = scene.serve(|stream, _| notice(stream));
    end_and_reset_later(scene.connect().unwrap());
    server.join().unwrap_or_else(|panic| resume_unwind(panic));
}
