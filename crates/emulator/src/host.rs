//! One end of the path: a namespace with a device and addresses.

use core::fmt;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::error::{Attempt, LabError};
use crate::lab::LabOptions;
use crate::namespace::Namespace;
use crate::netlink::{Netlink, quiet_device};
use crate::tun::Tun;

/// The device's name in both hosts.
const DEVICE: &str = "path";

const MTU: u32 = 1500;

/// Packets (super-packets too) that wait for the emulator. TUN drops what is beyond, so this
/// must cover the largest burst a host sends while the emulator is busy.
const DEVICE_QUEUE: u32 = 20_000;

const PREFIX_LENGTH: (u8, u8) = (24, 64);

/// An end of the path.
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

    /// The host's IPv4 address. Every lab has the same: namespaces keep them apart.
    pub const fn address(self) -> IpAddr {
        IpAddr::V4(Ipv4Addr::new(10, 77, 0, self as u8 + 1))
    }

    /// The host's IPv6 address.
    pub const fn address6(self) -> IpAddr {
        IpAddr::V6(Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, self as u16 + 1))
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

/// A host that exists.
pub(crate) struct Machine {
    pub(crate) namespace: Namespace,
    netlink: Netlink,
}

impl Machine {
    /// Makes a host. The device is returned beside it: the emulator thread owns it.
    pub(crate) fn create(host: Host, options: &LabOptions) -> Result<(Self, Tun), LabError> {
        Namespace::create(|namespace| Self::furnish(host, options, namespace))
            .attempt("make a network namespace")?
    }

    fn furnish(
        host: Host,
        options: &LabOptions,
        namespace: Namespace,
    ) -> Result<(Self, Tun), LabError> {
        let netlink = Netlink::open().attempt("open a netlink socket")?;
        let tun = Tun::create(DEVICE).attempt("make a TUN device")?;
        let loopback = netlink.device("lo").attempt("find lo")?.index;
        netlink.set_up(loopback).attempt("set up lo")?;
        let index = netlink.device(DEVICE).attempt("find the TUN device")?.index;
        netlink
            .configure(index, quiet_device(MTU, DEVICE_QUEUE))
            .and_then(|()| netlink.set_up(index))
            .attempt("set up the TUN device")?;
        netlink
            .add_address(index, host.address(), PREFIX_LENGTH.0)
            .attempt("give the TUN device its address")?;
        netlink
            .add_address(index, host.address6(), PREFIX_LENGTH.1)
            .attempt("give the TUN device its IPv6 address")?;
        raise_tcp_limits(options)?;
        set_congestion_control(&netlink, index, host, &options.congestion_control).map_err(
            |source| LabError::CongestionControl {
                name: options.congestion_control.clone(),
                source,
            },
        )?;
        Ok((Self { namespace, netlink }, tun))
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
    host: Host,
    name: &str,
) -> io::Result<()> {
    if fs::write("/proc/sys/net/ipv4/tcp_congestion_control", name).is_ok() {
        return Ok(());
    }
    netlink.add_route(device, host.peer().address(), name)?;
    netlink.add_route(device, host.peer().address6(), name)
}
