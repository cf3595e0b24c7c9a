//! The connections that a near gateway knows of, and how many of them each client has.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::{IpAddr, SocketAddr};

use etherparse::{NetSlice, SlicedPacket, TransportSlice};

/// A client and the server that it means.
pub(crate) type Flow = (SocketAddr, SocketAddr);

/// Something of each.
pub(crate) struct Flows<S> {
    all: HashMap<Flow, S>,
    clients: Tally,
}

impl<S> Flows<S> {
    pub(crate) fn new() -> Self {
        Self { all: HashMap::new(), clients: Tally::default() }
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// How many a client has.
    pub(crate) fn of(&self, client: IpAddr) -> usize {
        self.clients.of(client)
    }

    pub(crate) fn get(&self, flow: Flow) -> Option<&S> {
        self.all.get(&flow)
    }

    pub(crate) fn get_mut(&mut self, flow: Flow) -> Option<&mut S> {
        self.all.get_mut(&flow)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Flow, &S)> {
        self.all.iter().map(|(flow, state)| (*flow, state))
    }

    pub(crate) fn insert(&mut self, flow: Flow, state: S) {
        if self.all.insert(flow, state).is_none() {
            self.clients.add(flow.0.ip());
        }
    }

    pub(crate) fn remove(&mut self, flow: Flow) -> Option<S> {
        let state = self.all.remove(&flow)?;
        self.clients.remove(flow.0.ip());
        Some(state)
    }

    pub(crate) fn retain(&mut self, wanted: impl Fn(&S) -> bool) {
        let Self { all, clients } = self;
        all.retain(|(client, _), state| {
            let wanted = wanted(state);
            if !wanted {
                clients.remove(client.ip());
            }
            wanted
        });
    }
}

/// How many of something each client has.
#[derive(Default)]
pub(crate) struct Tally(HashMap<IpAddr, usize>);

impl Tally {
    pub(crate) fn of(&self, client: IpAddr) -> usize {
        self.0.get(&client).copied().unwrap_or_default()
    }

    pub(crate) fn add(&mut self, client: IpAddr) {
        *self.0.entry(client).or_default() += 1;
    }

    pub(crate) fn remove(&mut self, client: IpAddr) {
        if let Entry::Occupied(mut count) = self.0.entry(client) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

/// Who a SYN is from and for, and its sequence number.
pub(crate) fn read(packet: &[u8]) -> Option<(Flow, u32)> {
    // What the kernel copied is shorter than the packet says.
    let sliced = SlicedPacket::from_ip(packet).ok()?;
    let Some(TransportSlice::Tcp(tcp)) = sliced.transport else { return None };
    let (from, to) = match sliced.net? {
        NetSlice::Ipv4(ip) => {
            let header = ip.header();
            (IpAddr::from(header.source_addr()), IpAddr::from(header.destination_addr()))
        }
        NetSlice::Ipv6(ip) => {
            let header = ip.header();
            (IpAddr::from(header.source_addr()), IpAddr::from(header.destination_addr()))
        }
        NetSlice::Arp(_) => return None,
    };
    let (from, to) = ((from, tcp.source_port()), (to, tcp.destination_port()));
    Some(((from.into(), to.into()), tcp.sequence_number()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_clients_are_counted_as_they_come_and_go() {
        let flow = |host: u8, port: u16| -> Flow {
            (([192, 0, 2, host], port).into(), ([198, 51, 100, 1], 80).into())
        };
        let mut flows = Flows::new();
        for (it, state) in
            [(flow(1, 1), 'a'), (flow(1, 2), 'b'), (flow(1, 2), 'c'), (flow(2, 1), 'a')]
        {
            flows.insert(it, state);
        }
        let count = |flows: &Flows<char>| [1, 2].map(|host| flows.of([192, 0, 2, host].into()));
        assert_eq!((count(&flows), flows.len()), ([2, 1], 3));
        flows.retain(|state| *state != 'a');
        assert_eq!(count(&flows), [1, 0]);
        assert_eq!((flows.remove(flow(1, 2)), flows.remove(flow(1, 2))), (Some('c'), None));
        assert_eq!((count(&flows), flows.clients.0.len()), ([0, 0], 0));
    }
}
