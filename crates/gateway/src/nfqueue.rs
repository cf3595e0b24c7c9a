//! A netfilter queue: the kernel holds each packet that a rule sends there until it hears what is
//! to become of it. The messages are those of `linux/netfilter/nfnetlink_queue.h`.

use std::future::poll_fn;
use std::io;

use netlink_packet_core::{
    DecodeError, DefaultNla, Emitable, NLM_F_ACK, NLM_F_REQUEST, NetlinkDeserializable,
    NetlinkHeader, NetlinkMessage, NetlinkPayload, NetlinkSerializable, NlasIterator,
};
use netlink_sys::protocols::NETLINK_NETFILTER;
use netlink_sys::{AsyncSocket, SocketAddr, TokioSocket};
use rustix::net::sockopt::set_socket_recv_buffer_size_force;

/// Packets that the kernel holds at most; those beyond pass, as if there were no queue.
const MAX_HELD: u32 = 16_384;
/// A full queue lets packets pass (NFQA_CFG_F_FAIL_OPEN).
const FAIL_OPEN: u32 = 1;
/// What is asked of each packet: the headers.
const COPIED: u32 = 128;
/// Room for some hundred messages at a time.
const BUFFER: usize = 64 << 10;
/// What the socket holds, of which the kernel makes twice as much, and takes about a kilobyte for a packet:
/// a burst of [`MAX_HELD`]. Packets for which there is no room pass too.
const WAITING: usize = 8 << 20;

const SUBSYSTEM: u16 = 3 << 8;
const PACKET: u16 = SUBSYSTEM;
const VERDICT: u16 = SUBSYSTEM | 1;
const CONFIGURE: u16 = SUBSYSTEM | 2;
/// `struct nfgenmsg`: family, version, number of the queue.
const HEADER: usize = 4;

/// A packet that waits.
pub(crate) struct Held {
    id: u32,
    /// Its first bytes, from the IP header on.
    pub(crate) bytes: Vec<u8>,
}

/// What becomes of a packet.
pub(crate) enum Verdict {
    /// It goes on with this mark.
    Pass { mark: u32 },
    /// It vanishes.
    Drop,
}

pub(crate) struct Queue {
    socket: TokioSocket,
    number: u16,
    /// The kernel's number of the last packet that was read.
    last: Option<u32>,
}

impl Queue {
    /// Takes the queue of this number in the namespace of the calling thread.
    ///
    /// # Errors
    /// What the kernel said; `PermissionDenied` when somebody else has the queue, or without the
    /// right to administer the network.
    pub(crate) async fn open(number: u16) -> io::Result<Self> {
        let mut queue = Self { socket: TokioSocket::new(NETLINK_NETFILTER)?, number, last: None };
        let socket = queue.socket.socket_mut();
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        // Packets for which there was no room are gone: their numbers are missing.
        socket.set_no_enobufs(true)?;
        // Who may not has a smaller one.
        let _ = set_socket_recv_buffer_size_force(&*socket, WAITING);
        let bind = vec![1, 0, 0, 0];
        let mut copy = COPIED.to_be_bytes().to_vec();
        copy.push(2);
        let most = MAX_HELD.to_be_bytes().to_vec();
        // What is set, and which of the flags that is (NFQA_CFG_MASK): the kernel wants both at once.
        let open = || FAIL_OPEN.to_be_bytes().to_vec();
        let flags = vec![(5, open()), (4, open())];
        for attributes in [vec![(1, bind)], vec![(2, copy)], vec![(3, most)], flags] {
            let attributes = attributes.into_iter();
            let attributes = attributes.map(|(kind, value)| DefaultNla::new(kind, value)).collect();
            queue.send(CONFIGURE, attributes, NLM_F_ACK)?;
            queue.acknowledged().await?;
        }
        Ok(queue)
    }

    /// The next packets that wait.
    pub(crate) async fn next(&self) -> io::Result<Vec<Held>> {
        Ok(held(&self.receive().await?))
    }

    /// How many have passed between the packet before this one and this one, as if there were no queue,
    /// because they came faster than they were read. Those beyond [`MAX_HELD`] nobody counts, nor those
    /// before the first that is read.
    pub(crate) fn passed_before(&mut self, HeldId(id): HeldId) -> u32 {
        between(self.last.replace(id), id)
    }

    /// Says what becomes of a packet.
    pub(crate) fn settle(&self, id: HeldId, verdict: &Verdict) -> io::Result<()> {
        let number = u32::from(matches!(verdict, Verdict::Pass { .. }));
        let header = [number.to_be_bytes(), id.0.to_be_bytes()].concat();
        let mut attributes = vec![DefaultNla::new(2, header)];
        if let Verdict::Pass { mark } = verdict {
            attributes.push(DefaultNla::new(3, mark.to_be_bytes().to_vec()));
        }
        self.send(VERDICT, attributes, 0)
    }

    /// A message is sent whole or not at all, and at once: the kernel reads it in the call.
    fn send(&self, kind: u16, attributes: Vec<DefaultNla>, flags: u16) -> io::Result<()> {
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | flags;
        let message = Message { kind, number: self.number, attributes };
        let mut message = NetlinkMessage::new(header, NetlinkPayload::from(message));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        self.socket.socket_ref().send(&bytes, 0).map(drop)
    }

    async fn receive(&self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(BUFFER);
        poll_fn(|cx| self.socket.poll_recv(cx, &mut bytes)).await?;
        Ok(bytes)
    }

    /// The kernel's answer to what was configured.
    async fn acknowledged(&self) -> io::Result<()> {
        loop {
            let bytes = self.receive().await?;
            let message = NetlinkMessage::<Message>::deserialize(&bytes);
            if let NetlinkPayload::Error(error) = message.map_err(io::Error::other)?.payload {
                return error.code.map_or(Ok(()), |_| Err(error.to_io()));
            }
        }
    }
}

/// Names a packet that the kernel holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeldId(u32);

impl Held {
    pub(crate) fn id(&self) -> HeldId {
        HeldId(self.id)
    }
}

/// How many numbers, which go round, are between two.
fn between(last: Option<u32>, id: u32) -> u32 {
    match last.map_or(0, |last| id.wrapping_sub(last)) {
        step @ 1..=0x7fff_ffff => step - 1,
        _ => 0,
    }
}

/// The packets that a datagram from the kernel tells of; what cannot be read is left out.
pub(crate) fn held(mut bytes: &[u8]) -> Vec<Held> {
    let mut all = Vec::new();
    while let Ok(message) = NetlinkMessage::<Message>::deserialize(bytes) {
        let length = (message.header.length as usize).next_multiple_of(4).max(HEADER);
        if let NetlinkPayload::InnerMessage(message) = message.payload {
            all.extend(message.held());
        }
        match bytes.get(length..) {
            Some(rest) if !rest.is_empty() => bytes = rest,
            _ => break,
        }
    }
    all
}

/// Any message of the subsystem.
#[derive(Debug)]
struct Message {
    kind: u16,
    number: u16,
    attributes: Vec<DefaultNla>,
}

impl Message {
    fn held(&self) -> Option<Held> {
        if self.kind != PACKET {
            return None;
        }
        let value = |kind| {
            use netlink_packet_core::Nla;
            let attribute = self.attributes.iter().find(|attribute| attribute.kind() == kind)?;
            let mut value = vec![0; attribute.value_len()];
            attribute.emit_value(&mut value);
            Some(value)
        };
        let id = u32::from_be_bytes(value(1)?.get(..4)?.try_into().ok()?);
        Some(Held { id, bytes: value(10)? })
    }
}

impl NetlinkSerializable for Message {
    fn message_type(&self) -> u16 {
        self.kind
    }

    fn buffer_len(&self) -> usize {
        HEADER + self.attributes.as_slice().buffer_len()
    }

    fn serialize(&self, buffer: &mut [u8]) {
        buffer[..2].fill(0);
        buffer[2..HEADER].copy_from_slice(&self.number.to_be_bytes());
        self.attributes.as_slice().emit(&mut buffer[HEADER..]);
    }
}

impl NetlinkDeserializable for Message {
    type Error = DecodeError;

    fn deserialize(header: &NetlinkHeader, payload: &[u8]) -> Result<Self, DecodeError> {
        use netlink_packet_core::Parseable;
        let number = payload.get(2..HEADER).and_then(|bytes| bytes.try_into().ok());
        let number = number.ok_or_else(|| DecodeError::from("a message without its header"))?;
        let attributes = NlasIterator::new(&payload[HEADER..])
            .map(|attribute| DefaultNla::parse(&attribute?))
            .collect::<Result<_, DecodeError>>()?;
        Ok(Self { kind: header.message_type, number: u16::from_be_bytes(number), attributes })
    }
}

impl From<Message> for NetlinkPayload<Message> {
    fn from(message: Message) -> Self {
        Self::InnerMessage(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Says loudly that a test cannot run here.
    fn skip(name: &str, reason: &str) {
        eprintln!("SKIPPED: {name}: {reason}");
        if let Some(log) = std::env::var_os("LONGHAUL_SKIP_LOG") {
            let mut log = std::fs::OpenOptions::new().append(true).open(log).unwrap();
            io::Write::write_all(&mut log, format!("{name}: {reason}\n").as_bytes()).unwrap();
        }
    }

    #[tokio::test]
    async fn a_burst_finds_room() {
        let queue = match Queue::open(61_073).await {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                return skip("a_burst_finds_room", "no right to have a queue");
            }
            open => open.unwrap(),
        };
        let room = queue.socket.socket_ref().get_rx_buf_sz().unwrap();
        assert!(room >= 2 * WAITING, "{room}");
    }

    #[test]
    fn packets_whose_numbers_are_missing_have_passed() {
        for (last, id, passed) in [(0, 1, 0), (1, 2, 0), (2, 9, 6), (9, 9, 0), (9, 8, 0)] {
            assert_eq!(between(Some(last), id), passed, "{last} {id}");
        }
        let round =
            [(Some(u32::MAX), 0), (Some(u32::MAX - 1), 2)].map(|(last, id)| between(last, id));
        assert_eq!(round, [0, 3]);
        assert_eq!(between(None, 9), 0, "of those before the first nothing is known");
    }
}
