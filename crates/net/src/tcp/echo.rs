//! Round-trip times by echoes, beside those that TCP measures.
//!
//! Each question carries paper 3's 12 bytes (section 3.3): a sequence number of 4, and a time of 8, by
//! which an answer is told from one to another process. ICMP brings them back from any host; by UDP
//! our servers do, on the port of the stream, with the highest bit of the number set. The client asks,
//! for servers cannot reach every client, and what it sees goes to the server with each confirmation.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::UdpSocket;
use tokio::task::AbortHandle;
use tokio::time::{MissedTickBehavior, interval};
use units::Instant;

use super::options::RttSource;
use crate::clock;

/// Questions a round trip, at most,
const A_ROUND_TRIP: u32 = 10;
/// but never closer together than this,
const PAUSE: Duration = Duration::from_millis(20);
/// and so far apart while the round-trip time is not known.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// Questions that an answer may still come to.
const ASKED: usize = 64;
/// What was answered longer ago says nothing of now.
const LIFETIME: Duration = Duration::from_secs(2);
/// Marks an answer by UDP, so that two servers never answer each other.
const ANSWER: u32 = 1 << 31;
const LEN: usize = 12;

const REQUEST: [u8; 2] = [8, 128];
const REPLY: [u8; 2] = [0, 129];
const ICMP_HEADER: usize = 8;

/// Asks until dropped.
pub(super) struct Echo {
    seen: Arc<Mutex<Seen>>,
    asking: AbortHandle,
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.asking.abort();
    }
}

impl Echo {
    /// Asks the host at `address`; `None` for TCP's own times.
    ///
    /// # Errors
    /// When the kernel gives no such socket: ICMP needs root, or a group in the range
    /// `net.ipv4.ping_group_range`.
    pub fn start(source: RttSource, address: SocketAddr) -> io::Result<Option<Self>> {
        let socket = match source {
            RttSource::Tcp => return Ok(None),
            RttSource::Udp => Socket::new(Domain::for_address(address), Type::DGRAM, None)?,
            RttSource::Icmp => icmp(address)?,
        };
        socket.set_nonblocking(true)?;
        socket.connect(&address.into())?;
        let is_raw = socket.r#type()? == Type::RAW;
        let socket = UdpSocket::from_std(std::net::UdpSocket::from(socket))?;
        let form = match source {
            RttSource::Icmp => Form::Icmp { v6: address.is_ipv6(), is_raw },
            _ => Form::Udp,
        };
        let seen = Arc::<Mutex<Seen>>::default();
        let task = tokio::spawn(ask(socket, form, seen.clone()));
        Ok(Some(Self { seen, asking: task.abort_handle() }))
    }

    /// The smoothed round-trip time and the least; `None` while nothing is answered.
    pub fn rtt(&self, now: Instant) -> Option<(Duration, Duration)> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let at = seen.at.filter(|&at| now.since(at) < LIFETIME);
        at.and(seen.smoothed).zip(seen.least)
    }
}

/// An unprivileged socket where that is allowed, else a raw one.
fn icmp(address: SocketAddr) -> io::Result<Socket> {
    let domain = Domain::for_address(address);
    let protocol = if address.is_ipv6() { Protocol::ICMPV6 } else { Protocol::ICMPV4 };
    let open = |kind| Socket::new(domain, kind, Some(protocol));
    open(Type::DGRAM).or_else(|_| open(Type::RAW))
}

/// What answers have shown.
#[derive(Default)]
struct Seen {
    smoothed: Option<Duration>,
    least: Option<Duration>,
    at: Option<Instant>,
}

impl Seen {
    fn take(&mut self, now: Instant, sample: Duration) {
        let smoothed = self.smoothed.map_or(sample, |smoothed| (smoothed * 7 + sample) / 8);
        self.smoothed = Some(smoothed);
        self.least = self.least.into_iter().chain([sample]).min();
        self.at = Some(now);
    }

    /// How long to wait before the next question.
    fn pause(&self) -> Duration {
        self.smoothed.map_or(FIRST_PAUSE, |smoothed| (smoothed / A_ROUND_TRIP).max(PAUSE))
    }
}

#[derive(Clone, Copy)]
pub(super) enum Form {
    Udp,
    Icmp { v6: bool, is_raw: bool },
}

async fn ask(socket: UdpSocket, form: Form, seen: Arc<Mutex<Seen>>) {
    let mut asked = [None; ASKED];
    let mut number = 0_u32;
    let mut pauses = interval(FIRST_PAUSE);
    pauses.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut datagram = [0; 256];
    loop {
        tokio::select! {
            _ = pauses.tick() => {
                let now = clock::now();
                number = (number + 1) % ANSWER;
                asked[number as usize % ASKED] = Some((number, now));
                // What is not sent is not answered.
                let _ = socket.try_send(&form.question(number, now));
            }
            received = socket.recv(&mut datagram) => {
                // Such as that nobody listens there.
                let Ok(length) = received else { continue };
                let now = clock::now();
                let Some((number, stamp)) = form.answer(&datagram[..length]) else { continue };
                let slot = &mut asked[number as usize % ASKED];
                let Some((_, sent)) = slot.take_if(|&mut (of, at)| of == number && stamp == at.as_nanos())
                else { continue };
                let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
                seen.take(now, now.since(sent));
                let pause = seen.pause();
                if pauses.period() != pause {
                    pauses = interval(pause);
                    pauses.reset();
                    pauses.set_missed_tick_behavior(MissedTickBehavior::Delay);
                }
            }
        }
    }
}

impl Form {
    fn question(self, number: u32, now: Instant) -> Vec<u8> {
        let carried = [&number.to_be_bytes()[..], &now.as_nanos().to_be_bytes()].concat();
        let Self::Icmp { v6, .. } = self else { return carried };
        let mut message = vec![REQUEST[usize::from(v6)], 0, 0, 0, 0, 0];
        message.extend_from_slice(&(number as u16).to_be_bytes());
        message.extend_from_slice(&carried);
        if !v6 {
            // The kernel does the others.
            let sum = checksum(&message).to_be_bytes();
            message[2..4].copy_from_slice(&sum);
        }
        message
    }

    /// Number and time of an answer.
    pub fn answer(self, datagram: &[u8]) -> Option<(u32, u64)> {
        let carried = match self {
            Self::Udp => datagram,
            Self::Icmp { v6, is_raw } => {
                let header = match datagram.first() {
                    // Raw sockets of IPv4 show its header, whose length it tells in words.
                    Some(first) if is_raw && !v6 => usize::from(first & 0xf) * 4,
                    _ => 0,
                };
                let message = datagram.get(header..)?;
                (*message.first()? == REPLY[usize::from(v6)]).then_some(())?;
                message.get(ICMP_HEADER..)?
            }
        };
        let carried: &[u8; LEN] = carried.try_into().ok()?;
        let (number, stamp) = carried.split_first_chunk()?;
        let (number, stamp) =
            (u32::from_be_bytes(*number), u64::from_be_bytes(stamp.try_into().ok()?));
        match self {
            Self::Udp => (number & ANSWER != 0).then_some((number ^ ANSWER, stamp)),
            Self::Icmp { .. } => Some((number, stamp)),
        }
    }
}

/// RFC 1071, of an even number of bytes.
fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.as_chunks().0.iter().map(|&word| u32::from(u16::from_be_bytes(word)));
    let sum: u32 = words.sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !((folded & 0xffff) + (folded >> 16)) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn answered(echo: &Echo) -> bool {
        for _ in 0..200 {
            if let Some((smoothed, least)) = echo.rtt(clock::now()) {
                return least <= smoothed && smoothed < LIFETIME;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        false
    }

    /// Says loudly that a test cannot run here.
    fn skip(name: &str, reason: &str) {
        eprintln!("SKIPPED: {name}: {reason}");
        if let Some(log) = std::env::var_os("LONGHAUL_SKIP_LOG") {
            let mut log = std::fs::OpenOptions::new().append(true).open(log).unwrap();
            io::Write::write_all(&mut log, format!("{name}: {reason}\n").as_bytes()).unwrap();
        }
    }

    #[tokio::test]
    async fn our_servers_answer() {
        let credentials = transport::crypto::SharedKey::from_bytes([1; 32]);
        let config = transport::Config::default();
        for any in ["127.0.0.1:0", "[::1]:0"] {
            let any: SocketAddr = any.parse().unwrap();
            let server = crate::udp::UdpEndpoint::listen(any, &credentials, config).unwrap();
            let echo = Echo::start(RttSource::Udp, server.address()).unwrap().unwrap();
            assert!(answered(&echo).await, "{any}");
        }
        assert!(Echo::start(RttSource::Tcp, "127.0.0.1:1".parse().unwrap()).unwrap().is_none());
    }

    #[tokio::test]
    async fn hosts_answer_by_icmp() {
        for host in ["127.0.0.1:9", "[::1]:9"] {
            match Echo::start(RttSource::Icmp, host.parse().unwrap()) {
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    return skip("hosts_answer_by_icmp", "no right to send ICMP");
                }
                echo => assert!(answered(&echo.unwrap().unwrap()).await, "{host}"),
            }
        }
    }

    #[tokio::test]
    async fn what_was_not_asked_is_no_answer() {
        let silent = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let echo = Echo::start(RttSource::Udp, silent.local_addr().unwrap()).unwrap().unwrap();
        let mut question = [0; 64];
        let (length, from) = silent.recv_from(&mut question).await.unwrap();
        assert_eq!(length, LEN);
        let mut forged = question;
        forged[0] |= 0x80;
        forged[11] ^= 1;
        for answer in [&question[..LEN], &forged[..LEN], &forged[..3], &[]] {
            silent.send_to(answer, from).await.unwrap();
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(echo.rtt(clock::now()), None);
    }

    #[test]
    fn there_are_ten_questions_a_round_trip_at_most() {
        let pause = |millis: Option<u64>| {
            Seen { smoothed: millis.map(Duration::from_millis), ..Seen::default() }.pause()
        };
        for millis in [200, 560, 1500, 3000] {
            assert_eq!(pause(Some(millis)) * 10, Duration::from_millis(millis));
        }
        assert_eq!([pause(Some(1)), pause(None)], [PAUSE, FIRST_PAUSE]);
    }

    #[test]
    fn the_checksum_is_that_of_rfc_1071() {
        let message = Form::Icmp { v6: false, is_raw: true }.question(7, Instant::from_nanos(9));
        assert_eq!(checksum(&message), 0, "a sum over all, itself included");
        assert_eq!(checksum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), !0xddf2);
    }
}
