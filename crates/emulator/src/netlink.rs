//! Network devices of one namespace, configured through route netlink.

use std::io;
use std::net::IpAddr;
use std::sync::Mutex;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::address::{AddressAttribute, AddressHeaderFlags, AddressMessage};
use netlink_packet_route::link::{
    AfSpecInet6, AfSpecUnspec, In6AddrGenMode, LinkAttribute, LinkFlags, LinkMessage,
};
use netlink_packet_route::route::{
    RouteAttribute, RouteHeader, RouteMessage, RouteMetric, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

/// Room for an answer; a description of one device takes about 2 KiB.
const ANSWER: usize = 32 << 10;

/// A netlink socket of the namespace in which it was opened, wherever it is used later.
pub(crate) struct Netlink(Mutex<Socket>);

impl Netlink {
    /// Opens a socket in the namespace of the calling thread.
    pub(crate) fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Self(Mutex::new(socket)))
    }

    /// The number and statistics of a device.
    pub(crate) fn device(&self, name: &str) -> io::Result<Device> {
        let mut message = LinkMessage::default();
        message.attributes.push(LinkAttribute::IfName(name.to_owned()));
        let answer = self.request(RouteNetlinkMessage::GetLink(message), NLM_F_REQUEST)?;
        let Some(RouteNetlinkMessage::NewLink(link)) = answer else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        let sent_into_void = link.attributes.iter().find_map(|attribute| match attribute {
            LinkAttribute::Stats64(stats) => Some(stats.tx_dropped),
            _ => None,
        });
        Ok(Device { index: link.header.index, tx_dropped: sent_into_void.unwrap_or(0) })
    }

    /// Sets what a device is to be like.
    pub(crate) fn configure(&self, index: u32, attributes: Vec<LinkAttribute>) -> io::Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        message.attributes = attributes;
        self.request(RouteNetlinkMessage::SetLink(message), NLM_F_REQUEST | NLM_F_ACK).map(drop)
    }

    /// Sets a device up. Not in one request with its configuration, of which the kernel carries
    /// out a part only after it has set the device up.
    pub(crate) fn set_up(&self, index: u32) -> io::Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        message.header.flags = LinkFlags::Up;
        message.header.change_mask = LinkFlags::Up;
        self.request(RouteNetlinkMessage::SetLink(message), NLM_F_REQUEST | NLM_F_ACK).map(drop)
    }

    /// Gives a device an address, usable at once.
    pub(crate) fn add_address(&self, index: u32, address: IpAddr, prefix: u8) -> io::Result<()> {
        let mut message = AddressMessage::default();
        message.header.family = match address {
            IpAddr::V4(_) => AddressFamily::Inet,
            IpAddr::V6(_) => AddressFamily::Inet6,
        };
        message.header.prefix_len = prefix;
        message.header.flags = AddressHeaderFlags::Nodad;
        message.header.index = index;
        message.attributes =
            vec![AddressAttribute::Local(address), AddressAttribute::Address(address)];
        let flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL;
        self.request(RouteNetlinkMessage::NewAddress(message), flags).map(drop)
    }

    /// Routes `to` alone over a device, with its TCP connections on this congestion control.
    pub(crate) fn add_route(&self, index: u32, to: IpAddr, congestion: &str) -> io::Result<()> {
        let mut message = RouteMessage::default();
        (message.header.address_family, message.header.destination_prefix_length) = match to {
            IpAddr::V4(_) => (AddressFamily::Inet, 32),
            IpAddr::V6(_) => (AddressFamily::Inet6, 128),
        };
        message.header.table = RouteHeader::RT_TABLE_MAIN;
        message.header.protocol = RouteProtocol::Static;
        message.header.scope = RouteScope::Link;
        message.header.kind = RouteType::Unicast;
        message.attributes = vec![
            RouteAttribute::Destination(to.into()),
            RouteAttribute::Oif(index),
            RouteAttribute::Metrics(vec![RouteMetric::CcAlgo(congestion.to_owned())]),
        ];
        let flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL;
        self.request(RouteNetlinkMessage::NewRoute(message), flags).map(drop)
    }

    /// Sends a request and reads its one answer; `None` for a bare acknowledgement.
    fn request(
        &self,
        message: RouteNetlinkMessage,
        flags: u16,
    ) -> io::Result<Option<RouteNetlinkMessage>> {
        let mut request = NetlinkMessage::from(message);
        request.header.flags = flags;
        request.finalize();
        let mut bytes = vec![0; request.buffer_len()];
        request.serialize(&mut bytes);

        let socket = self.0.lock().map_err(|_| io::ErrorKind::Other)?;
        socket.send(&bytes, 0)?;
        let mut answer = Vec::with_capacity(ANSWER);
        socket.recv(&mut answer, 0)?;
        let answer = NetlinkMessage::<RouteNetlinkMessage>::deserialize(&answer)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        match answer.payload {
            NetlinkPayload::InnerMessage(message) => Ok(Some(message)),
            NetlinkPayload::Error(error) if error.code.is_some() => Err(error.to_io()),
            _ => Ok(None),
        }
    }
}

/// A device as the kernel describes it.
pub(crate) struct Device {
    pub(crate) index: u32,
    /// Packets the host sent that nobody read in time.
    pub(crate) tx_dropped: u64,
}

/// A point-to-point device of this MTU and queue length, without addresses of its own making:
/// neighbour and router discovery would only disturb the counters.
pub(crate) fn quiet_device(mtu: u32, queue: u32) -> Vec<LinkAttribute> {
    let no_link_local = AfSpecInet6::AddrGenMode(In6AddrGenMode::None);
    vec![
        LinkAttribute::Mtu(mtu),
        LinkAttribute::TxQueueLen(queue),
        LinkAttribute::AfSpecUnspec(vec![AfSpecUnspec::Inet6(vec![no_link_local])]),
    ]
}
