//! Super-packets: many segments behind one header, as TSO and USO make them.
//!
//! A frame is a virtio-net header (`struct virtio_net_hdr`, Virtio 1.2, 5.1.6) and an IP packet.
//! [`Layout::piece`] cuts a run of segments out of it, again as a super-packet, with the header
//! as the kernel's own segmentation (`tcp_gso_segment`, `__udp_gso_segment`) would have written
//! it. Checksums stay partial: the receiving kernel completes or trusts them.

use std::ops::Range;

use path::Damage;
use units::Bytes;

use crate::ip::{Ip, TCP, UDP, fold, put_u16, sum, u16_be};
use crate::lane::{Effect, Segments};

/// Bytes of `struct virtio_net_hdr`.
pub(crate) const VNET_HEADER: usize = 10;

/// The longest virtio-net, IP and TCP header: 10 + 60 + 60 bytes.
pub(crate) const MAX_HEADER: usize = VNET_HEADER + 120;

const NEEDS_CSUM: u8 = 1;
const GSO_NONE: u8 = 0;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
const GSO_UDP_L4: u8 = 5;
const GSO_ECN: u8 = 0x80;

const TCP_FIN: u8 = 0x01;
const TCP_PSH: u8 = 0x08;
const TCP_CWR: u8 = 0x80;

/// How a frame is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// One packet, or something unknown that is treated as one.
    Whole,
    /// A super-packet.
    Super(Super),
}

/// Offsets count from the start of the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Super {
    ipv6: bool,
    tcp: bool,
    /// Where the TCP or UDP header starts.
    transport: usize,
    /// Where the first segment's payload starts.
    payload: usize,
    /// Payload of every segment but the last, which may be shorter.
    segment: usize,
    /// Where the frame ended when it came: of one whose tail was dropped only the front is kept,
    /// and the last segment left is not the last there was.
    end: usize,
}

impl Layout {
    /// Reads the layout of a frame. The frame comes from the kernel, but its IP packet may have
    /// been made by anybody: what is not well-formed counts as one packet.
    pub(crate) fn read(frame: &[u8]) -> Self {
        Super::read(frame).map_or(Self::Whole, Self::Super)
    }

    /// The header and the payload of the piece that has these segments, marked and, if it is to
    /// be damaged, with a complete checksum. `space` is where a changed header is written.
    pub(crate) fn piece<'a>(
        &self,
        frame: &'a [u8],
        segments: Range<u32>,
        effect: Effect,
        space: &'a mut [u8; MAX_HEADER],
    ) -> (&'a [u8], &'a [u8]) {
        let (header, payload) = match self {
            Self::Whole if effect == Effect::default() => return frame.split_at(VNET_HEADER),
            Self::Whole => {
                let (header, payload) = frame.split_at(frame.len().min(MAX_HEADER));
                let space = &mut space[..header.len()];
                space.copy_from_slice(header);
                (space, payload)
            }
            Self::Super(layout) => {
                layout.piece(frame, segments.start as usize, segments.len(), space)
            }
        };
        if effect.marked
            && let Some(ip) = Ip::read(&header[VNET_HEADER..])
        {
            ip.mark(&mut header[VNET_HEADER..]);
        }
        if effect.damage.is_some() {
            complete_checksum(header, payload);
        }
        (header, payload)
    }
}

impl Segments for Layout {
    fn count(&self, len: usize) -> u32 {
        match self {
            Self::Whole => 1,
            Self::Super(layout) => (len - layout.payload).div_ceil(layout.segment) as u32,
        }
    }

    fn size(&self, len: usize, index: u32) -> Bytes {
        let size = match self {
            Self::Whole => len - VNET_HEADER,
            Self::Super(layout) => {
                let before = index as usize * layout.segment;
                layout.payload - VNET_HEADER + layout.segment.min(len - layout.payload - before)
            }
        };
        Bytes(size as u64)
    }

    fn prefix(&self, len: usize, count: u32) -> usize {
        match self {
            Self::Whole => len,
            Self::Super(layout) => len.min(layout.payload + count as usize * layout.segment),
        }
    }

    fn flow(&self, frame: &[u8]) -> u64 {
        let packet = &frame[VNET_HEADER..];
        Ip::read(packet).map_or(0, |ip| ip.flow(packet))
    }

    fn ecn_capable(&self, frame: &[u8]) -> bool {
        let packet = &frame[VNET_HEADER..];
        Ip::read(packet).is_some_and(|ip| ip.ecn_capable(packet))
    }
}

impl Super {
    fn read(frame: &[u8]) -> Option<Self> {
        let (gso, segment) = (*frame.get(1)? & !GSO_ECN, usize::from(u16_ne(frame, 4)?));
        let ip = Ip::read(frame.get(VNET_HEADER..)?)?;
        let transport = VNET_HEADER + ip.payload;
        let tcp = match (gso, ip.protocol) {
            (GSO_TCPV4 | GSO_TCPV6, TCP) => true,
            (GSO_UDP_L4, UDP) => false,
            _ => return None,
        };
        let length = if tcp { usize::from(frame.get(transport + 12)? >> 4) * 4 } else { 8 };
        let payload = transport + length;
        let sound =
            segment > 0 && payload >= transport + if tcp { 20 } else { 8 } && payload < frame.len();
        sound.then_some(Self { ipv6: ip.ipv6, tcp, transport, payload, segment, end: frame.len() })
    }

    fn piece<'a>(
        &self,
        frame: &'a [u8],
        first: usize,
        count: usize,
        space: &'a mut [u8; MAX_HEADER],
    ) -> (&'a mut [u8], &'a [u8]) {
        let start = self.payload + first * self.segment;
        let end = frame.len().min(start + count * self.segment);
        let payload = &frame[start..end];
        let header = &mut space[..self.payload];
        header.copy_from_slice(&frame[..self.payload]);

        self.write_ip(header, first, payload.len());
        if self.tcp {
            self.write_tcp(header, first, end == self.end);
        } else {
            let length = (self.payload - self.transport + payload.len()) as u16;
            put_u16(header, self.transport + 4, length);
        }
        self.write_vnet(header, payload.len() > self.segment);
        self.write_partial_checksum(header, payload.len());
        (header, payload)
    }

    fn write_ip(&self, header: &mut [u8], first: usize, payload: usize) {
        let ip = VNET_HEADER;
        let after_ip = self.payload - self.transport + payload;
        if self.ipv6 {
            put_u16(header, ip + 4, after_ip as u16);
            return;
        }
        put_u16(header, ip + 2, (self.transport - ip + after_ip) as u16);
        put_u16(header, ip + 4, u16_be(header, ip + 4).wrapping_add(first as u16));
        put_u16(header, ip + 10, 0);
        let checksum = !fold(sum(&header[ip..self.transport]));
        put_u16(header, ip + 10, checksum);
    }

    fn write_tcp(&self, header: &mut [u8], first: usize, last: bool) {
        let tcp = &mut header[self.transport..];
        let offset = (first * self.segment) as u32;
        let sequence = u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]).wrapping_add(offset);
        tcp[4..8].copy_from_slice(&sequence.to_be_bytes());
        if first > 0 {
            tcp[13] &= !TCP_CWR;
        }
        if !last {
            tcp[13] &= !(TCP_FIN | TCP_PSH);
        }
    }

    fn write_vnet(&self, header: &mut [u8], several: bool) {
        let checksum_at: u16 = if self.tcp { 16 } else { 6 };
        header[0] = NEEDS_CSUM;
        header[6..8].copy_from_slice(&(self.transport as u16 - VNET_HEADER as u16).to_ne_bytes());
        header[8..10].copy_from_slice(&checksum_at.to_ne_bytes());
        if !several {
            header[1] = GSO_NONE;
            header[4..6].fill(0);
        } else if self.tcp && header[self.transport + 13] & TCP_CWR == 0 {
            header[1] &= !GSO_ECN;
        }
    }

    /// The sum over the pseudo-header, not complemented: the kernel adds the rest.
    fn write_partial_checksum(&self, header: &mut [u8], payload: usize) {
        let addresses = if self.ipv6 { VNET_HEADER + 8 } else { VNET_HEADER + 12 };
        let width = if self.ipv6 { 32 } else { 8 };
        let (protocol, at) = if self.tcp { (TCP, 16) } else { (UDP, 6) };
        let length = self.payload - self.transport + payload;
        let total =
            sum(&header[addresses..addresses + width]) + u32::from(protocol) + length as u32;
        put_u16(header, self.transport + at, fold(total));
    }
}

/// Completes the partial checksum of a single packet where the virtio-net header says, and lets
/// the receiver verify it.
pub(crate) fn complete_checksum(header: &mut [u8], payload: &[u8]) {
    let places = u16_ne(header, 6).zip(u16_ne(header, 8));
    let Some((start, offset)) = places.filter(|_| header[1] == GSO_NONE) else {
        return;
    };
    let partial = header[0] & NEEDS_CSUM != 0;
    header[..VNET_HEADER].fill(0);
    let start = VNET_HEADER + usize::from(start);
    let at = start + usize::from(offset);
    if partial && at + 2 <= header.len() {
        let checksum = !fold(u32::from(fold(sum(&header[start..]))) + sum(payload));
        // UDP writes a zero as all ones (RFC 768).
        let checksum = if checksum == 0 && offset == 6 { 0xffff } else { checksum };
        put_u16(header, at, checksum);
    }
}

/// A piece in which this bit, counted from the first of the IP packet, is wrong; what lies behind
/// its end is nothing's. `space` is where the damaged byte is written.
pub(crate) fn damaged<'a>(
    header: &'a [u8],
    payload: &'a [u8],
    damage: Damage,
    space: &'a mut [u8; 1],
) -> [&'a [u8]; 4] {
    let at =
        usize::try_from(damage.bit / 8).map_or(usize::MAX, |at| at.saturating_add(VNET_HEADER));
    let in_header = at < header.len();
    let (part, at) = if in_header { (header, at) } else { (payload, at - header.len()) };
    let Some((before, [byte, after @ ..])) = part.split_at_checked(at) else {
        return [header, payload, &[], &[]];
    };
    space[0] = byte ^ (0x80 >> (damage.bit % 8));
    if in_header { [before, space, after, payload] } else { [header, before, space, after] }
}

/// TUN writes the virtio-net header in the machine's own byte order.
fn u16_ne(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::{
        IpEcn, IpFragOffset, Ipv4Header, Ipv6Header, PacketBuilder, PacketBuilderStep, TcpHeader,
        ip_number,
    };
    use proptest::prelude::*;

    /// What a sender wants to say in one go.
    #[derive(Clone, Debug)]
    struct Message {
        ipv6: bool,
        tcp: bool,
        options: bool,
        id: u16,
        sequence: u32,
        fin: bool,
        cwr: bool,
        /// DSCP and ECN.
        class: u8,
        segment: usize,
        payload: Vec<u8>,
    }

    impl Message {
        /// The message as if it had been sent with CE.
        fn marked(&self) -> Self {
            Self { class: self.class | 3, ..self.clone() }
        }

        /// The packet with segments `first..first + count`, by etherparse, which knows nothing of
        /// this module: complete, with lengths and checksums of its own.
        fn packet(&self, first: usize, count: usize) -> Vec<u8> {
            let start = first * self.segment;
            let end = self.payload.len().min(start + count * self.segment);
            let last = end == self.payload.len();
            let payload = &self.payload[start..end];
            let mut bytes = Vec::new();
            if !self.tcp {
                self.ip(first, ip_number::UDP).udp(5000, 5001).write(&mut bytes, payload).unwrap();
                return bytes;
            }
            let sequence = self.sequence.wrapping_add(start as u32);
            let mut tcp = TcpHeader::new(5000, 5001, sequence, 9000);
            (tcp.ack, tcp.acknowledgment_number) = (true, 77);
            (tcp.fin, tcp.psh) = (self.fin && last, last);
            tcp.cwr = self.cwr && first == 0;
            if self.options {
                tcp.set_options_raw(&[1, 1, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8]).unwrap();
            }
            let step = self.ip(first, ip_number::TCP).tcp_header(tcp);
            step.write(&mut bytes, payload).unwrap();
            bytes
        }

        fn ip(
            &self,
            first: usize,
            protocol: etherparse::IpNumber,
        ) -> PacketBuilderStep<etherparse::IpHeaders> {
            if self.ipv6 {
                let ip = Ipv6Header {
                    traffic_class: self.class,
                    hop_limit: 64,
                    source: [0xfd; 16],
                    destination: [9; 16],
                    ..Ipv6Header::default()
                };
                return PacketBuilder::ip(etherparse::IpHeaders::Ipv6(ip, Default::default()));
            }
            let mut ip = Ipv4Header::new(0, 64, protocol, [10, 77, 0, 1], [10, 77, 0, 2]).unwrap();
            ip.identification = self.id.wrapping_add(first as u16);
            ip.fragment_offset = IpFragOffset::ZERO;
            ip.dscp = (self.class >> 2).try_into().unwrap();
            ip.ecn = IpEcn::try_new(self.class & 3).unwrap();
            PacketBuilder::ip(etherparse::IpHeaders::Ipv4(ip, Default::default()))
        }

        /// The super-packet as TUN delivers it, its partial checksum left to be filled.
        fn frame(&self) -> Vec<u8> {
            let packet = self.packet(0, usize::MAX >> 20);
            let gso = match (self.tcp, self.ipv6) {
                (true, false) => GSO_TCPV4,
                (true, true) => GSO_TCPV6,
                (false, _) => GSO_UDP_L4,
            };
            let mut frame = vec![NEEDS_CSUM, gso | if self.cwr && self.tcp { GSO_ECN } else { 0 }];
            for field in [0, self.segment as u16, 0, 0] {
                frame.extend(u16::to_ne_bytes(field));
            }
            frame.extend(packet);
            frame
        }

        fn segments(&self) -> usize {
            self.payload.len().div_ceil(self.segment)
        }
    }

    /// Completes a partial checksum where the virtio-net header says, as a kernel does.
    fn complete(frame: &[u8]) -> Vec<u8> {
        let mut packet = frame[VNET_HEADER..].to_vec();
        let start = usize::from(u16_ne(frame, 6).unwrap());
        let at = start + usize::from(u16_ne(frame, 8).unwrap());
        let sum: u32 = packet[start..]
            .chunks(2)
            .map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)))
            .sum();
        let checksum = !fold(sum);
        // UDP writes a zero as all ones (RFC 768).
        let zero = if packet.len() > at && start + 6 == at { 0xffff } else { 0 };
        put_u16(&mut packet, at, if checksum == 0 { zero } else { checksum });
        packet
    }

    fn message() -> impl Strategy<Value = Message> {
        let flags = prop::array::uniform5(any::<bool>());
        let payload = prop::collection::vec(any::<u8>(), 2..20_000);
        let numbers = (any::<u16>(), any::<u32>(), any::<u8>());
        (flags, numbers, 1usize..3000, payload).prop_map(
            |([ipv6, tcp, options, fin, cwr], (id, sequence, class), segment, payload)| Message {
                ipv6,
                tcp,
                options,
                id,
                sequence,
                fin,
                cwr,
                class,
                segment,
                payload,
            },
        )
    }

    proptest! {
        /// However a super-packet is cut, each piece is the packet that the sender would have
        /// made of these bytes alone, and it can be cut again.
        #[test]
        fn pieces_are_packets(message in message(), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6), marked in any::<bool>()) {
            let frame = message.frame();
            let layout = Layout::read(&frame);
            let segments = message.segments();
            let message = if marked { message.marked() } else { message };
            let effect = Effect { marked, ..Effect::default() };
            prop_assert_eq!(layout.count(frame.len()) as usize, segments);
            let mut edges: Vec<usize> = cuts.iter().map(|cut| cut.index(segments)).collect();
            edges.extend([0, segments]);
            edges.sort_unstable();
            edges.dedup();
            for edge in edges.windows(2) {
                let (first, count) = (edge[0], edge[1] - edge[0]);
                let run = edge[0] as u32..edge[1] as u32;
                let mut space = [0; MAX_HEADER];
                let (header, payload) =
                    layout.piece(&frame, run.clone(), effect, &mut space);
                let piece = [header, payload].concat();
                prop_assert_eq!(complete(&piece), message.packet(first, count));
                // The same when a full queue has dropped all that follows.
                let front = &frame[..layout.prefix(frame.len(), edge[1] as u32)];
                let mut space = [0; MAX_HEADER];
                let (header, payload) =
                    layout.piece(front, run.clone(), effect, &mut space);
                prop_assert_eq!(&piece, &[header, payload].concat());
                let again = Layout::read(&piece);
                prop_assert_eq!(again.count(piece.len()) as usize, count);
                for i in 0..count {
                    let mut space = [0; MAX_HEADER];
                    let (header, payload) = again.piece(&piece, i as u32..i as u32 + 1, Effect::default(), &mut space);
                    let single = [header, payload].concat();
                    let expected = message.packet(first + i, 1);
                    prop_assert_eq!(again.size(piece.len(), i as u32), Bytes(expected.len() as u64));
                    prop_assert_eq!(complete(&single), expected);
                }
            }
        }

        /// A packet on its own is marked as one of many.
        #[test]
        fn single_packets_are_marked(message in message()) {
            let single = Message { segment: message.payload.len(), ..message };
            let mut frame = vec![0; VNET_HEADER];
            frame.extend(single.packet(0, 1));
            let layout = Layout::read(&frame);
            prop_assert_eq!(layout, Layout::Whole);
            prop_assert_eq!(layout.ecn_capable(&frame), single.class & 3 != 0);
            let mut space = [0; MAX_HEADER];
            let (header, payload) = layout.piece(&frame, 0..1, Effect { marked: true, ..Effect::default() }, &mut space);
            let packet = [header, payload].concat().split_off(VNET_HEADER);
            prop_assert_eq!(packet, single.marked().packet(0, 1));
        }

        /// A damaged segment is the packet the sender would have made, complete, but for one bit.
        #[test]
        fn damage_is_in_one_bit(message in message(), at in any::<prop::sample::Index>(), bit in any::<prop::sample::Index>()) {
            let frame = message.frame();
            let layout = Layout::read(&frame);
            let index = at.index(message.segments());
            let mut expected = message.packet(index, 1);
            let bit = bit.index(expected.len() * 8);
            expected[bit / 8] ^= 0x80 >> (bit % 8);
            let damage = Damage { bit: bit as u64 };
            let effect = Effect { damage: Some(damage), ..Effect::default() };
            let (mut space, mut byte) = ([0; MAX_HEADER], [0]);
            let (header, payload) =
                layout.piece(&frame, index as u32..index as u32 + 1, effect, &mut space);
            let mut piece = damaged(header, payload, damage, &mut byte).concat();
            let packet = piece.split_off(VNET_HEADER);
            prop_assert_eq!(packet, expected);
            prop_assert_eq!(piece, vec![0; VNET_HEADER], "nothing is left to the receiver");
        }

        /// Whatever a host writes, it has a layout, and its pieces can be cut.
        #[test]
        fn anything_has_a_layout(mut frame in prop::collection::vec(any::<u8>(), VNET_HEADER + 1..300), gso in 0u8..6, marked in any::<bool>(), bit in prop::option::of(0u64..3000)) {
            frame[1] = gso;
            let damage = bit.map(|bit| Damage { bit });
            let effect = Effect { marked, damage, ..Effect::default() };
            let layout = Layout::read(&frame);
            let count = layout.count(frame.len());
            for i in 0..count {
                let mut space = [0; MAX_HEADER];
                let (header, payload) = layout.piece(&frame, i..i + 1, effect, &mut space);
                let whole = header.len() + payload.len();
                prop_assert!(whole <= frame.len());
                if let Some(damage) = damage {
                    let mut byte = [0];
                    prop_assert_eq!(damaged(header, payload, damage, &mut byte).concat().len(), whole);
                }
                prop_assert!(layout.prefix(frame.len(), i + 1) <= frame.len());
            }
        }
    }
}
