//! Captures in pcap-ng: what the hosts of a side sent and what was delivered to them.
//!
//! The emulator's thread copies frames as they cross a device; the recording's own thread cuts
//! super-packets into the packets that the path treats, and completes their checksums, as a
//! network adapter would have.

use std::borrow::Cow;
use std::io::{self, Write};

use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::{DataLink, PcapError};
use units::Instant;

use crate::clock::Clock;
use crate::lane::{Effect, Segments};
use crate::spool::{Recording, Spool};
use crate::superpacket::{Layout, MAX_HEADER, VNET_HEADER, complete_checksum};

/// Bytes before each frame in the spool: time, length, interface and direction.
const PREFIX: usize = 20;

/// Timestamps count 10^-9 s.
const NANOSECONDS: u8 = 9;

/// Which way a frame crossed the device: the low bits of a packet's flags in pcap-ng.
#[derive(Clone, Copy)]
pub(crate) enum Crossing {
    /// To the host.
    Delivered = 1,
    /// From the host.
    Sent = 2,
}

/// Where a device notes the frames that cross it.
pub(crate) struct Tap {
    spool: Spool,
    clock: Clock,
    interface: u32,
}

impl Tap {
    /// Notes a frame of so many packets, in parts, behind its virtio-net header.
    pub(crate) fn note(&self, crossing: Crossing, parts: &[&[u8]], packets: u32) {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        let mut prefix = [0; PREFIX];
        prefix[..8].copy_from_slice(&self.clock.now().as_nanos().to_ne_bytes());
        prefix[8..12].copy_from_slice(&(length as u32).to_ne_bytes());
        prefix[12..16].copy_from_slice(&self.interface.to_ne_bytes());
        prefix[16..].copy_from_slice(&(crossing as u32).to_ne_bytes());
        let [a, b, c, d] = std::array::from_fn(|i| parts.get(i).copied().unwrap_or_default());
        self.spool.push(&[&prefix, a, b, c, d], packets.into());
    }
}

/// Starts a capture on devices of these names, of the first `snap` bytes of each packet.
pub(crate) fn start(
    file: impl Write + Send + 'static,
    names: &[String],
    snap: usize,
    clock: Clock,
) -> io::Result<(Recording, Vec<Tap>)> {
    let mut file = PcapNgWriter::new(file).map_err(to_io)?;
    for name in names {
        let options = vec![
            InterfaceDescriptionOption::IfName(Cow::Owned(name.clone())),
            InterfaceDescriptionOption::IfTsResol(NANOSECONDS),
        ];
        // In the file a limit of zero says that there is none.
        let snaplen = u32::try_from(snap).unwrap_or(0);
        let block = InterfaceDescriptionBlock { linktype: DataLink::RAW, snaplen, options };
        file.write_pcapng_block(block).map_err(to_io)?;
    }
    let (recording, spool) = Recording::start(move |records| {
        write(&mut file, records, snap, clock)?;
        file.get_mut().flush()
    })?;
    let interfaces = 0..names.len() as u32;
    let taps = interfaces.map(|interface| Tap { spool: spool.clone(), clock, interface });
    Ok((recording, taps.collect()))
}

fn write(
    file: &mut PcapNgWriter<impl Write>,
    mut records: &[u8],
    snap: usize,
    clock: Clock,
) -> io::Result<()> {
    while let Some((prefix, rest)) = records.split_first_chunk::<PREFIX>() {
        let word = |at| u32::from_ne_bytes(std::array::from_fn(|i| prefix[at + i]));
        let nanos = u64::from_ne_bytes(std::array::from_fn(|i| prefix[i]));
        let (frame, rest) = rest.split_at(word(8) as usize);
        records = rest;
        let mut block = EnhancedPacketBlock {
            interface_id: word(12),
            timestamp: clock.since_epoch(Instant::from_nanos(nanos)),
            original_len: 0,
            data: Cow::Borrowed(&[]),
            options: vec![EnhancedPacketOption::Flags(word(16))],
        };
        packets(frame, |packet| {
            block.original_len = packet.len() as u32;
            packet.truncate(snap);
            block.data = Cow::Owned(std::mem::take(packet));
            file.write_pcapng_block(block.clone()).map(drop).map_err(to_io)
        })?;
    }
    Ok(())
}

/// The packets of a frame, complete.
fn packets(frame: &[u8], mut each: impl FnMut(&mut Vec<u8>) -> io::Result<()>) -> io::Result<()> {
    let layout = Layout::read(frame);
    for segment in 0..layout.count(frame.len()) {
        let mut space = [0; MAX_HEADER];
        let (header, payload) = match layout {
            Layout::Whole => frame.split_at(frame.len().min(MAX_HEADER)),
            Layout::Super(_) => {
                layout.piece(frame, segment..segment + 1, Effect::default(), &mut space)
            }
        };
        let mut header = header.to_vec();
        complete_checksum(&mut header, payload);
        each(&mut [&header[VNET_HEADER..], payload].concat())?;
    }
    Ok(())
}

fn to_io(error: PcapError) -> io::Error {
    match error {
        PcapError::IoError(error) => error,
        error => io::Error::other(error),
    }
}
