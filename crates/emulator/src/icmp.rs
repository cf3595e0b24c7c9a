//! What a router says to the sender of a packet that is too big for its next link.

use units::Bytes;

use crate::ip::{ICMP, ICMPV6, Ip, fold, put_u16, sum};
use crate::superpacket::VNET_HEADER;

/// The longest notice of each version: what every host takes in one piece (RFC 792 and RFC 1812,
/// 4.3.2.3; RFC 4443, 2.4).
const MAX_NOTICE4: usize = 576;
const MAX_NOTICE6: usize = 1280;

/// Room for a notice behind its virtio-net header.
pub(crate) const MAX_NOTICE: usize = VNET_HEADER + MAX_NOTICE6;

const HEADER4: usize = 20;
const HEADER6: usize = 40;
const ICMP_HEADER: usize = 8;
const HOP_LIMIT: u8 = 64;

/// Type and code of "fragmentation needed and DF set" (RFC 1191) and of "packet too big"
/// (RFC 4443, 3.2).
const FRAGMENTATION_NEEDED: [u8; 2] = [3, 4];
const PACKET_TOO_BIG: [u8; 2] = [2, 0];

/// Writes into `space` the frame that tells the sender of a packet of the MTU it has to respect,
/// and gives its length. The packet comes in two parts, which need no more than its headers in the
/// first. `None` when no notice may be sent about it (RFC 1122, 3.2.2; RFC 4443, 2.4e): about
/// another notice, a later fragment, or what is not for one receiver.
///
/// It speaks in the name of the receiver, for which the sender has a route.
pub(crate) fn too_big(
    head: &[u8],
    rest: &[u8],
    mtu: Bytes,
    space: &mut [u8; MAX_NOTICE],
) -> Option<usize> {
    let ip = Ip::read(head)?;
    if ip.later_fragment || is_notice(ip, head) || is_multicast(ip, head) {
        return None;
    }
    let (header, most) = if ip.ipv6 { (HEADER6, MAX_NOTICE6) } else { (HEADER4, MAX_NOTICE4) };
    space.fill(0);
    let notice = &mut space[VNET_HEADER..];
    let quoted = &mut notice[header + ICMP_HEADER..most];
    let (first, second) = (head.len().min(quoted.len()), rest.len());
    quoted[..first].copy_from_slice(&head[..first]);
    let second = second.min(quoted.len() - first);
    quoted[first..first + second].copy_from_slice(&rest[..second]);
    let notice = &mut notice[..header + ICMP_HEADER + first + second];

    write_ip(notice, ip, head);
    let mtu = u32::try_from(mtu.0).unwrap_or(u32::MAX);
    if ip.ipv6 {
        notice[header..header + 2].copy_from_slice(&PACKET_TOO_BIG);
        notice[header + 4..header + 8].copy_from_slice(&mtu.to_be_bytes());
        let pseudo = sum(&notice[ip.addresses()]) + u32::from(ICMPV6);
        let total = pseudo + (notice.len() - header) as u32 + sum(&notice[header..]);
        put_u16(notice, header + 2, !fold(total));
    } else {
        notice[header..header + 2].copy_from_slice(&FRAGMENTATION_NEEDED);
        put_u16(notice, header + 6, u16::try_from(mtu).unwrap_or(u16::MAX));
        let checksum = !fold(sum(&notice[header..]));
        put_u16(notice, header + 2, checksum);
    }
    Some(VNET_HEADER + notice.len())
}

/// The header of a notice about a packet: of the same version, the other way.
fn write_ip(notice: &mut [u8], ip: Ip, packet: &[u8]) {
    let length = notice.len();
    if ip.ipv6 {
        notice[0] = 6 << 4;
        put_u16(notice, 4, (length - HEADER6) as u16);
        (notice[6], notice[7]) = (ICMPV6, HOP_LIMIT);
    } else {
        notice[0] = 4 << 4 | (HEADER4 / 4) as u8;
        put_u16(notice, 2, length as u16);
        (notice[8], notice[9]) = (HOP_LIMIT, ICMP);
    }
    let addresses = ip.addresses();
    let (source, destination) = packet[addresses.clone()].split_at(addresses.len() / 2);
    let (from, to) = notice[addresses].split_at_mut(source.len());
    from.copy_from_slice(destination);
    to.copy_from_slice(source);
    if !ip.ipv6 {
        let checksum = !fold(sum(&notice[..HEADER4]));
        put_u16(notice, 10, checksum);
    }
}

/// Whether the packet is an ICMP message that is no question or answer, or cannot be read.
fn is_notice(ip: Ip, packet: &[u8]) -> bool {
    let kind = packet.get(ip.payload);
    match ip.protocol {
        ICMP if !ip.ipv6 => !kind.is_some_and(|kind| matches!(kind, 0 | 8)),
        ICMPV6 if ip.ipv6 => kind.is_none_or(|&kind| kind < 128),
        _ => false,
    }
}

fn is_multicast(ip: Ip, packet: &[u8]) -> bool {
    let destination = if ip.ipv6 { packet[24] } else { packet[16] };
    if ip.ipv6 { destination == 0xff } else { destination >= 224 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::{
        Icmpv4Type, Icmpv6Type, IpHeaders, Ipv4Header, NetSlice, PacketBuilder, SlicedPacket,
        TransportSlice, icmpv4::DestUnreachableHeader,
    };
    use proptest::prelude::*;

    fn notice(packet: &[u8], split: usize, mtu: u64) -> Option<Vec<u8>> {
        let mut space = [0xee; MAX_NOTICE];
        let (head, rest) = packet.split_at(split);
        let len = too_big(head, rest, Bytes(mtu), &mut space)?;
        assert!(space[..VNET_HEADER].iter().all(|&byte| byte == 0), "a complete packet");
        Some(space[VNET_HEADER..len].to_vec())
    }

    proptest! {
        /// etherparse, which knows nothing of this module, reads a notice with right checksums.
        #[test]
        fn notices_are_sound(
            ipv6 in any::<bool>(),
            payload in prop::collection::vec(any::<u8>(), 0..3000),
            mtu in 68u64..9000,
            whole in any::<bool>(),
        ) {
            let mut packet = Vec::new();
            let builder = if ipv6 {
                PacketBuilder::ipv6([0xfd; 16], [9; 16], 64)
            } else {
                PacketBuilder::ipv4([10, 77, 0, 1], [10, 77, 0, 2], 64)
            };
            builder.tcp(5000, 5001, 7, 100).write(&mut packet, &payload).unwrap();
            let split = if whole { packet.len() } else { packet.len() - payload.len() };
            let notice = notice(&packet, split, mtu).expect("TCP may be told");
            let sliced = SlicedPacket::from_ip(&notice).unwrap();
            let quoted = match (sliced.net, sliced.transport) {
                (Some(NetSlice::Ipv4(ip)), Some(TransportSlice::Icmpv4(icmp))) => {
                    let header = ip.header().to_header();
                    prop_assert_eq!(header.header_checksum, header.calc_header_checksum());
                    prop_assert_eq!((header.source, header.destination), ([10, 77, 0, 2], [10, 77, 0, 1]));
                    let next_hop_mtu = mtu as u16;
                    let unreachable = DestUnreachableHeader::FragmentationNeeded { next_hop_mtu };
                    let kind = Icmpv4Type::DestinationUnreachable(unreachable);
                    prop_assert_eq!(icmp.icmp_type(), kind);
                    let expected = icmp.header().icmp_type.calc_checksum(icmp.payload());
                    prop_assert_eq!(icmp.header().checksum, expected);
                    icmp.payload().to_vec()
                }
                (Some(NetSlice::Ipv6(ip)), Some(TransportSlice::Icmpv6(icmp))) => {
                    let (from, to) = (ip.header().source(), ip.header().destination());
                    prop_assert_eq!((from, to), ([9; 16], [0xfd; 16]));
                    prop_assert_eq!(icmp.icmp_type(), Icmpv6Type::PacketTooBig { mtu: mtu as u32 });
                    prop_assert!(icmp.is_checksum_valid(from, to));
                    icmp.payload().to_vec()
                }
                _ => return Err(TestCaseError::fail("no notice")),
            };
            prop_assert!(packet.starts_with(&quoted));
            let most = if ipv6 { 1280 - 48 } else { 576 - 28 };
            prop_assert_eq!(quoted.len(), packet.len().min(most));
        }

        /// Whatever a host sends, it is told or not.
        #[test]
        fn anything_may_be_too_big(packet in prop::collection::vec(any::<u8>(), 0..200), split in any::<prop::sample::Index>()) {
            notice(&packet, split.index(packet.len() + 1), 1400);
        }
    }

    #[test]
    fn nobody_is_told_of_a_notice_a_fragment_or_a_multicast() {
        let packet = |to, kind: u8, offset: u8| {
            let mut ip = Ipv4Header::new(0, 64, 1.into(), [10, 77, 0, 1], to).unwrap();
            ip.fragment_offset = u16::from(offset).try_into().unwrap();
            let mut packet = Vec::new();
            let builder = PacketBuilder::ip(IpHeaders::Ipv4(ip, Default::default()));
            builder.write(&mut packet, 1.into(), &[kind; 1400]).unwrap();
            packet
        };
        let told = |packet: Vec<u8>| notice(&packet, packet.len(), 1000).is_some();
        assert!(told(packet([10, 77, 0, 2], 8, 0)), "a question");
        assert!(!told(packet([10, 77, 0, 2], 3, 0)), "a notice");
        assert!(!told(packet([10, 77, 0, 2], 8, 1)), "a later fragment");
        assert!(!told(packet([224, 0, 0, 1], 8, 0)), "a multicast");
    }
}
