//! A TUN device that carries super-packets.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, Read, Write};
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;

use libc::c_uint;
use units::Bytes;

use crate::capture::{Crossing, Tap};
use crate::icmp::{MAX_NOTICE, too_big};
use crate::lane::{Effect, Segments};
use crate::superpacket::{Layout, MAX_HEADER, VNET_HEADER, damaged};

/// What to ask of the kernel, best first: before Linux 6.2 there is no UDP segmentation on TUN.
/// Without any, packets come one by one and everything still works, at a lower rate.
const OFFLOADS: [c_uint; 3] = [TCP_OFFLOADS | libc::TUN_F_USO4 | libc::TUN_F_USO6, TCP_OFFLOADS, 0];

const TCP_OFFLOADS: c_uint =
    libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;

/// The most parts a packet is written in.
const MAX_PARTS: usize = 4;

/// A TUN device whose packets stand behind a virtio-net header.
pub(crate) struct Tun {
    file: File,
    /// Notes every packet that crosses the device.
    pub(crate) tap: Option<Tap>,
}

impl Tun {
    /// Makes a device of this name in the network namespace of the calling thread. It vanishes
    /// with the value.
    pub(crate) fn create(name: &str) -> io::Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK)
            .open("/dev/net/tun")?;
        let fd = file.as_raw_fd();
        // SAFETY: all of `ifreq` is plain integers and unions of them, for which zero is valid.
        let mut request: libc::ifreq = unsafe { core::mem::zeroed() };
        for (to, from) in request.ifr_name[..libc::IFNAMSIZ - 1].iter_mut().zip(name.bytes()) {
            *to = from as libc::c_char;
        }
        let flags = libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
        request.ifr_ifru.ifru_flags = flags as libc::c_short;
        // SAFETY: the descriptor is open and TUNSETIFF reads and writes one `ifreq`.
        check(unsafe { libc::ioctl(fd, libc::TUNSETIFF, &mut request) })?;
        let header = VNET_HEADER as libc::c_int;
        // SAFETY: the descriptor is open and TUNSETVNETHDRSZ reads one `int`.
        check(unsafe { libc::ioctl(fd, libc::TUNSETVNETHDRSZ, &header) })?;
        let mut accepted = Ok(());
        for offloads in OFFLOADS {
            // SAFETY: the descriptor is open and TUNSETOFFLOAD takes its argument by value.
            accepted = check(unsafe { libc::ioctl(fd, libc::TUNSETOFFLOAD, offloads) });
            if accepted.is_ok() {
                break;
            }
        }
        accepted.map(|()| Self { file, tap: None })
    }

    /// Reads a packet with its header; `WouldBlock` when none waits.
    pub(crate) fn read(&self, space: &mut [u8]) -> io::Result<(usize, Layout)> {
        let len = (&self.file).read(space)?;
        if len <= VNET_HEADER {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let layout = Layout::read(&space[..len]);
        if let Some(tap) = &self.tap {
            tap.note(Crossing::Sent, &[&space[..len]], layout.count(len));
        }
        Ok((len, layout))
    }

    /// Answers the host that a segment of its frame is larger than `mtu`.
    pub(crate) fn tell_mtu(&self, frame: &[u8], layout: &Layout, segment: u32, mtu: Bytes) {
        let (mut header, mut space) = ([0; MAX_HEADER], [0; MAX_NOTICE]);
        let (head, rest) =
            layout.piece(frame, segment..segment + 1, Effect::default(), &mut header);
        let (head, rest) = match layout {
            // The headers of a single packet are behind the cut.
            Layout::Whole => (rest, &[][..]),
            Layout::Super(_) => (&head[VNET_HEADER..], rest),
        };
        if let Some(len) = too_big(head, rest, mtu, &mut space) {
            // What the host does not take is lost as on any network: the next packet asks again.
            let _ = self.deliver(&[&space[..len]], 1);
        }
    }

    /// Emits segments of a frame in one piece, after the path had this effect on each of them.
    pub(crate) fn emit(
        &self,
        frame: &[u8],
        layout: &Layout,
        segments: Range<u32>,
        effect: Effect,
    ) -> io::Result<()> {
        let mut space = [0; MAX_HEADER];
        let packets = segments.len() as u32;
        let (header, payload) = layout.piece(frame, segments, effect, &mut space);
        match effect.damage {
            Some(damage) => self.deliver(&damaged(header, payload, damage, &mut [0]), packets),
            None => self.deliver(&[header, payload], packets),
        }
    }

    fn deliver(&self, parts: &[&[u8]], packets: u32) -> io::Result<()> {
        if let Some(tap) = &self.tap {
            tap.note(Crossing::Delivered, parts, packets);
        }
        let mut slices = [IoSlice::new(&[]); MAX_PARTS];
        for (slice, part) in slices.iter_mut().zip(parts) {
            *slice = IoSlice::new(part);
        }
        (&self.file).write_vectored(&slices[..parts.len()]).map(drop)
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
