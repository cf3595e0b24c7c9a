//! FQ-CoDel (RFC 8290): a `CoDel` queue for each flow, served by deficit round robin, new flows
//! before old ones.

use std::collections::VecDeque;

use units::{Bytes, Instant};

use super::codel::Codel;
use super::config::FqCodelConfig;
use super::limit::Room;
use super::{Departure, Verdict, Waiting};

/// No node or none further.
const NONE: u32 = u32::MAX;

/// Room made in advance, in packets.
const INITIAL_ROOM: usize = 1 << 10;

/// A waiting packet in the store of all flows, or a free place in it.
struct Node<T> {
    waiting: Option<Waiting<T>>,
    next: u32,
}

struct Flow {
    head: u32,
    tail: u32,
    bytes: Bytes,
    deficit: i64,
    codel: Codel,
    listed: bool,
}

/// All queues. Packets stand in one store that grows to the most that ever waited, so that none
/// costs an allocation of its own.
pub(crate) struct Fair<T> {
    flows: Box<[Flow]>,
    store: Vec<Node<T>>,
    free: u32,
    /// Flows that began to send, by index.
    new: VecDeque<u32>,
    /// Flows that have had a turn.
    old: VecDeque<u32>,
    quantum: i64,
    /// Keeps an observer from choosing flows that share a queue (RFC 8290, section 4.1.1).
    salt: u64,
    room: Room,
    bytes: Bytes,
    len: usize,
}

impl<T> Fair<T> {
    pub(crate) fn new(config: &FqCodelConfig, room: Room, salt: u64) -> Self {
        let flow = |_| Flow {
            head: NONE,
            tail: NONE,
            bytes: Bytes::ZERO,
            deficit: 0,
            codel: Codel::new(&config.codel),
            listed: false,
        };
        let lists = config.flows as usize;
        Self {
            flows: (0..config.flows).map(flow).collect(),
            store: Vec::with_capacity(INITIAL_ROOM),
            free: NONE,
            new: VecDeque::with_capacity(lists),
            old: VecDeque::with_capacity(lists),
            quantum: i64::try_from(config.quantum.0).unwrap_or(i64::MAX / 2),
            salt,
            room,
            bytes: Bytes::ZERO,
            len: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Packets that there is room for without an allocation.
    pub(crate) fn capacity(&self) -> usize {
        self.store.capacity()
    }

    pub(crate) fn bytes(&self) -> Bytes {
        self.bytes
    }

    /// The queue that a flow is hashed to.
    fn index(&self, flow: u64) -> u32 {
        // splitmix64's finaliser, and its high bits spread over the queues.
        let mut x = flow ^ self.salt;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((u128::from(x ^ (x >> 31)) * self.flows.len() as u128) >> 64) as u32
    }

    pub(crate) fn push(&mut self, waiting: Waiting<T>) {
        let index = self.index(waiting.flow);
        self.bytes += waiting.size;
        self.len += 1;
        let size = waiting.size;
        let node = self.place(waiting);
        let flow = &mut self.flows[index as usize];
        flow.bytes += size;
        match flow.tail {
            NONE => flow.head = node,
            tail => self.store[tail as usize].next = node,
        }
        flow.tail = node;
        if !flow.listed {
            flow.listed = true;
            flow.deficit = self.quantum;
            self.new.push_back(index);
        }
    }

    fn place(&mut self, waiting: Waiting<T>) -> u32 {
        let node = Node { waiting: Some(waiting), next: NONE };
        if self.free == NONE {
            self.store.push(node);
            // MAX_HELD packets have 32-bit places.
            return (self.store.len() - 1) as u32;
        }
        let place = self.free;
        self.free = self.store[place as usize].next;
        self.store[place as usize] = node;
        place
    }

    fn pop(&mut self, index: u32) -> Option<Waiting<T>> {
        let flow = &mut self.flows[index as usize];
        let place = flow.head;
        let node = self.store.get_mut(place as usize)?;
        let waiting = node.waiting.take()?;
        flow.head = node.next;
        if flow.head == NONE {
            flow.tail = NONE;
        }
        node.next = self.free;
        self.free = place;
        flow.bytes -= waiting.size;
        self.bytes -= waiting.size;
        self.len -= 1;
        Some(waiting)
    }

    /// When there is more than may wait, the head of the flow that holds most, to be dropped.
    pub(crate) fn trim(&mut self) -> Option<Waiting<T>> {
        if self.room.holds(self.bytes, self.len) {
            return None;
        }
        let fattest = (0..self.flows.len()).max_by_key(|&i| self.flows[i].bytes)?;
        self.pop(fattest as u32)
    }

    /// Takes any packet, for another queue to hold.
    pub(crate) fn remove(&mut self) -> Option<Waiting<T>> {
        let index = (0..self.flows.len()).find(|&i| self.flows[i].head != NONE)?;
        self.pop(index as u32)
    }

    /// The next packet to send or to drop (RFC 8290, section 4.2).
    pub(crate) fn take(&mut self, now: Instant) -> Option<Departure<T>> {
        loop {
            let is_new = !self.new.is_empty();
            let list = if is_new { &mut self.new } else { &mut self.old };
            let index = *list.front()?;
            let flow = &mut self.flows[index as usize];
            if flow.deficit <= 0 {
                flow.deficit = flow.deficit.saturating_add(self.quantum);
                list.pop_front();
                self.old.push_back(index);
                continue;
            }
            let Some(waiting) = self.pop(index) else {
                // An empty flow goes once round the old ones, or it could be new for ever.
                if is_new {
                    self.new.pop_front();
                    self.old.push_back(index);
                } else {
                    self.old.pop_front();
                    self.flows[index as usize].listed = false;
                }
                continue;
            };
            let flow = &mut self.flows[index as usize];
            let Waiting { arrived, size, ecn_capable, .. } = waiting;
            let verdict = flow.codel.departure(now, arrived, size, flow.bytes, ecn_capable);
            if verdict != Verdict::Drop {
                flow.deficit -= i64::try_from(size.0).unwrap_or(i64::MAX);
            }
            return Some(Departure::new(waiting, verdict));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CodelConfig, Limit};
    use core::time::Duration;
    use proptest::prelude::*;
    use units::Rate;

    fn fair(limit: u64) -> Fair<u64> {
        let limit = Limit::Packets(limit);
        let codel = CodelConfig { limit, ..CodelConfig::default() };
        let config = FqCodelConfig { codel, ..FqCodelConfig::default() };
        let room = Room::new(limit, Rate::from_bits_per_sec(1));
        Fair::new(&config, room, 7)
    }

    fn packet(flow: u64, size: u64) -> Waiting<u64> {
        let size = Bytes(size);
        Waiting {
            size,
            arrived: Instant::ZERO,
            flow,
            ecn_capable: false,
            marked: false,
            item: flow,
        }
    }

    fn next(fair: &mut Fair<u64>) -> Option<(u64, u64)> {
        match fair.take(Instant::ZERO)? {
            Departure::Send(packet) => Some((packet.item, packet.size.0)),
            Departure::Drop(_) => panic!("nothing has waited"),
        }
    }

    /// Flows 1, 2 and 3 have queues of their own under this salt.
    #[test]
    fn busy_flows_share_bytes_whatever_their_packets() {
        let mut fair = fair(100_000);
        for _ in 0..1000 {
            fair.push(packet(1, 1500));
            fair.push(packet(2, 300));
            fair.push(packet(2, 300));
            fair.push(packet(3, 9000));
        }
        let mut sent = [0u64; 4];
        for _ in 0..1500 {
            let (flow, size) = next(&mut fair).expect("all are busy");
            sent[flow as usize] += size;
            // Deficit round robin: nobody is ahead of another by more than a quantum and the
            // largest packet of each (Shreedhar and Varghese, 1995).
            let (least, most) = (sent[1..].iter().min(), sent[1..].iter().max());
            assert!(most.unwrap() - least.unwrap() <= 1514 + 1500 + 9000, "{sent:?}");
        }
        assert!(sent[1] > 100_000);
    }

    #[test]
    fn a_sparse_flow_goes_first() {
        let mut fair = fair(100_000);
        (0..1000).for_each(|_| fair.push(packet(1, 1500)));
        for _ in 0..10 {
            next(&mut fair);
        }
        fair.push(packet(2, 100));
        // Flow 1 may be in the middle of its turn, never longer than a quantum.
        let flows: Vec<_> = (0..2).filter_map(|_| next(&mut fair)).map(|(flow, _)| flow).collect();
        assert!(flows.contains(&2), "{flows:?}");
    }

    #[test]
    fn the_fattest_flow_pays_for_all() {
        let mut fair = fair(100);
        (0..100).for_each(|_| fair.push(packet(1, 1500)));
        assert!(fair.trim().is_none());
        fair.push(packet(2, 100));
        assert_eq!(fair.trim().map(|victim| victim.item), Some(1));
        assert!(fair.trim().is_none());
    }

    proptest! {
        /// Packets come out once each and in the order of their flow; places are used again.
        #[test]
        fn flows_keep_their_order(steps in prop::collection::vec(prop::option::of(0u64..20), 1..500)) {
            let mut fair = fair(u64::MAX);
            let (mut last, mut inside, mut most) = ([0u64; 20], 0usize, 0);
            let mut now = Instant::ZERO;
            let mut serial = 0;
            for step in steps {
                now += Duration::from_nanos(1);
                if let Some(flow) = step {
                    serial += 1;
                    fair.push(Waiting { item: serial * 20 + flow, ..packet(flow, 100 + flow) });
                    inside += 1;
                } else if let Some(departure) = fair.take(now) {
                    let (Departure::Send(packet) | Departure::Drop(packet)) = departure;
                    let flow = (packet.item % 20) as usize;
                    prop_assert!(packet.item > last[flow]);
                    last[flow] = packet.item;
                    inside -= 1;
                } else {
                    prop_assert_eq!(inside, 0);
                }
                most = most.max(inside);
                prop_assert_eq!(fair.len(), inside);
                prop_assert!(fair.store.len() <= most);
            }
            while fair.take(now).is_some() {
                inside -= 1;
            }
            prop_assert_eq!((inside, fair.bytes()), (0, Bytes::ZERO));
        }
    }
}
