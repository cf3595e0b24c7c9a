//! What the emulator's thread drives in a lab: the hosts' devices and the lanes between them.

use core::time::Duration;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use units::{Bytes, Instant};

use crate::Host;
use crate::clock::Clock;
use crate::engine::{Carrier, Engine};
use crate::host::Place;
use crate::ip::Ip;
use crate::lane::{Effect, Lane, Outlet, Segments};
use crate::report::LaneReport;
use crate::sources::Sources;
use crate::superpacket::{Layout, VNET_HEADER};
use crate::trace::Sampling;
use crate::tun::Tun;

/// Super-packets read from one host before other hosts and what is due have their turn; each
/// takes some 20 us.
const BATCH: u64 = 2;

/// A frame on its way.
pub(crate) struct Parcel {
    layout: Layout,
    /// The hosts' numbers on their sides.
    from: u16,
    to: u16,
}

impl Segments for Parcel {
    fn count(&self, len: usize) -> u32 {
        self.layout.count(len)
    }

    fn size(&self, len: usize, index: u32) -> Bytes {
        self.layout.size(len, index)
    }

    fn prefix(&self, len: usize, count: u32) -> usize {
        self.layout.prefix(len, count)
    }

    fn flow(&self, frame: &[u8]) -> u64 {
        self.layout.flow(frame)
    }

    fn ecn_capable(&self, frame: &[u8]) -> bool {
        self.layout.ecn_capable(frame)
    }

    fn from(&self) -> usize {
        usize::from(self.from)
    }

    fn to(&self) -> usize {
        usize::from(self.to)
    }
}

/// The devices and the lanes between them.
pub(crate) struct Wires {
    /// Near to far, far to near.
    pub(crate) lanes: [Lane<Parcel>; 2],
    /// Of the near hosts, of the far hosts.
    pub(crate) tuns: [Vec<Tun>; 2],
    /// When the queues are noted, in a trace.
    pub(crate) sampling: Option<Sampling>,
}

impl Wires {
    pub(crate) fn start(self) -> io::Result<Engine<Self>> {
        let sources = Arc::new(Sources::new()?);
        for (side, tuns) in self.tuns.iter().enumerate() {
            for (number, tun) in tuns.iter().enumerate() {
                sources.add(tun, source(side, number))?;
            }
        }
        Engine::start(self, sources)
    }
}

/// The number of a host's device among the engine's sources.
fn source(side: usize, number: usize) -> u64 {
    (number << 1 | side) as u64
}

/// The devices of the receiving side.
struct Side<'a>(&'a [Tun]);

impl Outlet<Parcel> for Side<'_> {
    fn emit(
        &mut self,
        frame: &[u8],
        meta: &Parcel,
        segments: Range<u32>,
        effect: Effect,
    ) -> io::Result<()> {
        self.0[meta.to()].emit(frame, &meta.layout, segments, effect)
    }
}

/// Which of `hosts` on a side a frame goes to. What is for none of them goes to the first, which
/// treats it as any host treats what is not its own.
fn receiver(side: Host, hosts: usize, frame: &[u8]) -> u16 {
    let number = || {
        let packet = &frame[VNET_HEADER..];
        let end = Ip::read(packet)?.addresses().end;
        Place::number_at(side, [packet[end - 2], packet[end - 1]])
    };
    if hosts == 1 {
        return 0;
    }
    number().filter(|&number| usize::from(number) < hosts).unwrap_or(0)
}

impl Carrier for Wires {
    fn emit_due(&mut self, clock: &Clock) {
        for (from, lane) in self.lanes.iter_mut().enumerate() {
            lane.emit_due(clock, &mut Side(&self.tuns[1 - from]));
        }
        if let Some(sampling) = &mut self.sampling {
            let now = clock.now();
            if sampling.due(now) {
                self.lanes.iter_mut().for_each(|lane| lane.note_queue(now));
            }
        }
    }

    fn take_in(
        &mut self,
        clock: &Clock,
        source: u64,
        arrived: Option<Instant>,
        waited: Duration,
    ) -> bool {
        let (from, number) = (source as usize & 1, source as usize >> 1);
        let (lane, tun) = (&mut self.lanes[from], &self.tuns[from][number]);
        let (to, receivers) = (Host::BOTH[1 - from], self.tuns[1 - from].len());
        lane.take_batch(
            clock,
            (arrived, waited),
            BATCH,
            |space| {
                let (len, layout) = tun.read(space)?;
                let to = receiver(to, receivers, &space[..len]);
                Ok((len, Parcel { layout, from: number as u16, to }))
            },
            |frame, parcel, segment, mtu| tun.tell_mtu(frame, &parcel.layout, segment, mtu),
        )
    }

    fn next_due(&self) -> Option<Instant> {
        let sample = self.sampling.as_ref().map(Sampling::next);
        self.lanes.iter().filter_map(Lane::next_due).chain(sample).min()
    }

    fn report(&self) -> [LaneReport; 2] {
        self.lanes.each_ref().map(Lane::report)
    }
}
