//! One end of the path: a namespace with a device and addresses.

use core::fmt;
use std::ffi::OsStr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::Command;
use std::{fs, io};

use crate::error::{Attempt, LabError};
use crate::lab::LabOptions;
use crate::namespace::Namespace;
use crate::netlink::{Netlink, quiet_device};
use crate::tun::Tun;

/// The device's name in both hosts.
const DEVICE: &str = "path";

/// Packets (super-packets too) that wait for the emulator. TUN drops what is beyond, so this
/// must cover the largest burst a host sends while the emulator is busy.
const DEVICE_QUEUE: u32 = 20_000;

const PREFIX_LENGTH: (u8, u8) = (16, 64);

/// An end of the path: a side, and its first host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Host {
    /// Where commands run and data usually starts.
    Near,
    /// The other end.
    Far,
}

impl Host {
    /// Both, in order.
    pub const BOTH: [Self; 2] = [Self::Near, Self::Far];

    /// The other one.
    #[must_use]
    pub const fn peer(self) -> Self {
        match self {
            Self::Near => Self::Far,
            Self::Far => Self::Near,
        }
    }

    /// The first host's IPv4 address. Every lab has the same: namespaces keep them apart.
    pub const fn address(self) -> IpAddr {
        Place { side: self, number: 0 }.address()
    }

    /// The first host's IPv6 address.
    pub const fn address6(self) -> IpAddr {
        Place { side: self, number: 0 }.address6()
    }
}

/// One host of a side.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub(crate) side: Host,
    /// Counted from 0.
    pub(crate) number: u16,
}

impl Place {
    /// Near hosts have odd addresses and far ones even: the first 1 and 2, the second 3 and 4.
    const fn index(self) -> u16 {
        2 * self.number + self.side as u16 + 1
    }

    const fn address(self) -> IpAddr {
        let [high, low] = self.index().to_be_bytes();
        IpAddr::V4(Ipv4Addr::new(10, 77, high, low))
    }

    const fn address6(self) -> IpAddr {
        IpAddr::V6(Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, self.index()))
    }

    /// The number of the host of `side` that a packet's destination names, its last two bytes.
    pub(crate) fn number_at(side: Host, destination: [u8; 2]) -> Option<u16> {
        let index = u16::from_be_bytes(destination).checked_sub(1)?;
        (index % 2 == side as u16).then_some(index / 2)
    }
}

/// `near`, and of several hosts `near2` and so on.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.number {
            0 => self.side.fmt(f),
            number => write!(f, "{}{}", self.side, number + 1),
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Near => "near",
            Self::Far => "far",
        })
    }
}

/// A host of a lab.
pub struct Machine {
    place: Place,
    namespace: Namespace,
    netlink: Netlink,
}

impl Machine {
    /// `near`, `near2`, ... or `far`, `far2`, ...
    pub fn name(&self) -> String {
        self.place.to_string()
    }

    /// A command that will run on the host, with the caller's files, environment and terminal.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        self.namespace.command(program)
    }

    /// Runs `f` on the host, on a thread of its own: sockets it opens are the host's, and remain
    /// so wherever they are used afterwards.
    ///
    /// # Errors
    /// The kernel's, on entering the namespace.
    pub fn enter<R: Send>(&self, f: impl FnOnce() -> R + Send) -> io::Result<R> {
        self.namespace.run(f)
    }

    /// The host's namespace.
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// The host's IPv4 address.
    pub fn address(&self) -> IpAddr {
        self.place.address()
    }

    /// The host's IPv6 address.
    pub fn address6(&self) -> IpAddr {
        self.place.address6()
    }

    /// Makes a host. The device is returned beside it: the emulator thread owns it.
    pub(crate) fn create(place: Place, options: &LabOptions) -> Result<(Self, Tun), LabError> {
        Namespace::create(|namespace| Self::furnish(place, options, namespace))
            .attempt("make a network namespace")?
    }

    fn furnish(
        place: Place,
        options: &LabOptions,
        namespace: Namespace,
    ) -> Result<(Self, Tun), LabError> {
        let netlink = Netlink::open().attempt("open a netlink socket")?;
        let tun = Tun::create(DEVICE).attempt("make a TUN device")?;
        let loopback = netlink.device("lo").attempt("find lo")?.index;
        netlink.set_up(loopback).attempt("set up lo")?;
        let index = netlink.device(DEVICE).attempt("find the TUN device")?.index;
        netlink
            .configure(index, quiet_device(options.mtu, DEVICE_QUEUE))
            .and_then(|()| netlink.set_up(index))
            .attempt("set up the TUN device")?;
        netlink
            .add_address(index, place.address(), PREFIX_LENGTH.0)
            .attempt("give the TUN device its address")?;
        netlink
            .add_address(index, place.address6(), PREFIX_LENGTH.1)
            .attempt("give the TUN device its IPv6 address")?;
        raise_tcp_limits(options)?;
        set_congestion_control(&netlink, index, place, options).map_err(|source| {
            LabError::CongestionControl { name: options.congestion_control.clone(), source }
        })?;
        Ok((Self { place, namespace, netlink }, tun))
    }

    /// Packets (or super-packets) this host sent that the emulator did not read in time.
    pub(crate) fn overflow(&self) -> io::Result<u64> {
        self.netlink.device(DEVICE).map(|device| device.tx_dropped)
    }
}

/// Raises what the calling thread's namespace lets TCP do. A write to `/proc/sys/net` goes to the
/// namespace of the thread; where it is read-only (some containers) the kernel's values stay.
fn raise_tcp_limits(options: &LabOptions) -> Result<(), LabError> {
    let most = options.tcp_buffer.0;
    let settings = [
        ("tcp_rmem", format!("4096 131072 {most}")),
        ("tcp_wmem", format!("4096 16384 {most}")),
        // Runs must not learn from earlier ones.
        ("tcp_no_metrics_save", "1".to_owned()),
    ];
    for (name, value) in settings {
        match fs::write(format!("/proc/sys/net/ipv4/{name}"), value) {
            Err(error) if error.kind() != io::ErrorKind::ReadOnlyFilesystem => {
                return Err(error).attempt("raise the namespace's TCP limits");
            }
            _ => {}
        }
    }
    Ok(())
}

/// Sets the congestion control always: the machine's default may be anything, and results of an
/// unknown one cannot be compared.
///
/// A namespace's default may only be one that the machine allows to everybody. Others are set on
/// the routes to the peer, which asks for no such permission, but overrules a program's own
/// choice (`TCP_CONGESTION`) too.
fn set_congestion_control(
    netlink: &Netlink,
    device: u32,
    place: Place,
    options: &LabOptions,
) -> io::Result<()> {
    let name = &options.congestion_control;
    if fs::write("/proc/sys/net/ipv4/tcp_congestion_control", name).is_ok() {
        return Ok(());
    }
    let side = place.side.peer();
    (0..options.count(side)).map(|number| Place { side, number }).try_for_each(|peer| {
        netlink.add_route(device, peer.address(), name)?;
        netlink.add_route(device, peer.address6(), name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_lead_back_to_their_hosts() {
        for side in Host::BOTH {
            for number in [0, 1, 126, 127, 1023] {
                let place = Place { side, number };
                let IpAddr::V4(address) = place.address() else { panic!("an IPv4 address") };
                let [10, 77, high, low] = address.octets() else { panic!("{address}") };
                assert_eq!(Place::number_at(side, [high, low]), Some(number), "{address}");
                assert_eq!(Place::number_at(side.peer(), [high, low]), None, "{address}");
            }
        }
        assert_eq!(Place::number_at(Host::Near, [0, 0]), None);
        assert_eq!(Place { side: Host::Far, number: 1 }.address().to_string(), "10.77.0.4");
        assert_eq!(Place { side: Host::Far, number: 1 }.to_string(), "far2");
    }
}
