//! IP headers: what the path must know of a packet, and the mark it may leave on it.

use std::hash::{DefaultHasher, Hasher};
use std::ops::Range;

pub(crate) const ICMP: u8 = 1;
pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
pub(crate) const ICMPV6: u8 = 58;

/// The two bits of ECN in the traffic class, and what they say (RFC 3168, section 5).
const ECN_MASK: u8 = 3;
const CONGESTION_EXPERIENCED: u8 = 3;

/// A well-formed IP header without IPv6 extensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ip {
    pub(crate) ipv6: bool,
    pub(crate) protocol: u8,
    /// Where its payload starts.
    pub(crate) payload: usize,
    /// Whether it is a fragment other than the first, which has no transport header.
    pub(crate) later_fragment: bool,
}

impl Ip {
    /// Reads the header of a packet that anybody may have made.
    pub(crate) fn read(packet: &[u8]) -> Option<Self> {
        let ip = match packet.first()? >> 4 {
            4 => Self {
                ipv6: false,
                protocol: *packet.get(9)?,
                payload: usize::from(packet[0] & 0xf) * 4,
                later_fragment: u16_be(packet, 6) & 0x1fff != 0,
            },
            6 => Self { ipv6: true, protocol: *packet.get(6)?, payload: 40, later_fragment: false },
            _ => return None,
        };
        (ip.payload >= 20 && packet.len() >= ip.payload).then_some(ip)
    }

    /// Where the source address and behind it the destination stand.
    pub(crate) fn addresses(self) -> Range<usize> {
        if self.ipv6 { 8..40 } else { 12..20 }
    }

    /// A number that all packets of a flow share: of addresses, protocol and ports.
    pub(crate) fn flow(self, packet: &[u8]) -> u64 {
        let mut hasher = DefaultHasher::new();
        hasher.write(&packet[self.addresses()]);
        hasher.write_u8(self.protocol);
        if matches!(self.protocol, TCP | UDP) && !self.later_fragment {
            let ports = packet.get(self.payload..self.payload + 4);
            hasher.write(ports.unwrap_or_default());
        }
        hasher.finish()
    }

    /// Whether the packet can carry a mark of congestion, or carries one.
    pub(crate) fn ecn_capable(self, packet: &[u8]) -> bool {
        let class = if self.ipv6 { packet[1] >> 4 } else { packet[1] };
        class & ECN_MASK != 0
    }

    /// Marks the packet: congestion experienced. The checksum of an IPv4 header follows by the
    /// difference (RFC 1624, equation 3), so that a wrong one stays wrong.
    pub(crate) fn mark(self, packet: &mut [u8]) {
        if self.ipv6 {
            packet[1] |= CONGESTION_EXPERIENCED << 4;
            return;
        }
        let before = u16_be(packet, 0);
        packet[1] |= CONGESTION_EXPERIENCED;
        let terms = [!u16_be(packet, 10), !before, u16_be(packet, 0)];
        put_u16(packet, 10, !fold(terms.into_iter().map(u32::from).sum()));
    }
}

pub(crate) fn u16_be(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

pub(crate) fn put_u16(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// The internet checksum's sum of 16-bit words (RFC 1071). No IP packet is long enough to
/// overflow it.
pub(crate) fn sum(bytes: &[u8]) -> u32 {
    bytes
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)))
        .sum()
}

pub(crate) fn fold(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::{IpEcn, Ipv4Header, Ipv6Header, PacketBuilder};
    use proptest::prelude::*;

    fn datagram(from: [u8; 4], ports: [u16; 2]) -> Vec<u8> {
        let mut packet = Vec::new();
        let builder = PacketBuilder::ipv4(from, [10, 77, 0, 2], 64).udp(ports[0], ports[1]);
        builder.write(&mut packet, &[1, 2, 3]).expect("a vector takes it");
        packet
    }

    #[test]
    fn flows_differ_by_addresses_and_ports_alone() {
        let flow = |packet: &[u8]| Ip::read(packet).expect("a packet").flow(packet);
        let first = datagram([10, 77, 0, 1], [5000, 5001]);
        let mut other = first.clone();
        other[1] = 0x88;
        *other.last_mut().expect("not empty") = 9;
        assert_eq!(flow(&first), flow(&other));
        for packet in [
            datagram([10, 77, 0, 3], [5000, 5001]),
            datagram([10, 77, 0, 1], [5002, 5001]),
            datagram([10, 77, 0, 1], [5000, 5003]),
        ] {
            assert_ne!(flow(&first), flow(&packet));
        }
        // Later fragments have payload in the place of ports.
        let mut fragments = [first.clone(), first];
        for (fragment, byte) in fragments.iter_mut().zip([1, 2]) {
            (fragment[7], fragment[20]) = (1, byte);
        }
        assert_eq!(flow(&fragments[0]), flow(&fragments[1]));
    }

    proptest! {
        /// A marked header is the one that would have been written with CE from the start.
        #[test]
        fn marks_as_if_written_so(class in any::<u8>(), id in any::<u16>(), length in 0u16..1400, ttl in any::<u8>()) {
            let ecn = |class: u8| IpEcn::try_new(class & 3).expect("two bits");
            let v4 = |class: u8| {
                let mut ip = Ipv4Header::new(length, ttl, 6.into(), [10, 77, 0, 1], [10, 77, 0, 2]).expect("short");
                ip.dscp = (class >> 2).try_into().expect("six bits");
                ip.ecn = ecn(class);
                ip.identification = id;
                ip.header_checksum = ip.calc_header_checksum();
                ip.to_bytes().to_vec()
            };
            let v6 = |class: u8| {
                Ipv6Header { traffic_class: class, payload_length: length, hop_limit: ttl, ..Ipv6Header::default() }.to_bytes().to_vec()
            };
            for (mut packet, marked) in [(v4(class), v4(class | 3)), (v6(class), v6(class | 3))] {
                let ip = Ip::read(&packet).expect("a header");
                prop_assert_eq!(ip.ecn_capable(&packet), class & 3 != 0);
                ip.mark(&mut packet);
                prop_assert_eq!(packet, marked);
            }
        }
    }
}
