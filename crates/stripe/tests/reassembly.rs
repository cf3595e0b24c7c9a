//! Whatever the schedule, the connections that die, come and stall, and the buffers: what goes into a
//! scatter comes out of the gather once and in order, in bounded memory, and neither side ever waits
//! for the other in a circle.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;
use stripe::{
    Ack, Assignment, Gather, INITIAL_RECORDS, LaneId, MAX_PAYLOAD, MAX_QUEUED, Record, Scatter,
};
use units::Instant;

/// Longer than the patience of a scatter that knows nothing of the path; doubled while nothing moves.
const LONG: Duration = Duration::from_secs(100);

/// A connection: what is on its way in both directions.
#[derive(Default)]
struct Pipe {
    there: VecDeque<Record>,
    back: VecDeque<Ack>,
    received: u64,
    stalled: bool,
}

/// One end that writes, one that reads, and pipes of a few records between them.
struct World {
    now: Instant,
    data: Vec<u8>,
    written: usize,
    scatter: Scatter,
    pipes: BTreeMap<LaneId, Pipe>,
    pipe_room: usize,
    joined: u32,
    gather: Gather,
    /// Bytes accepted as new.
    accepted: usize,
    read: Vec<u8>,
}

impl World {
    fn new(data: Vec<u8>, connections: usize, pipe_room: usize, assignment: Assignment) -> Self {
        let mut world = Self {
            now: Instant::from_nanos(1),
            data,
            written: 0,
            scatter: Scatter::new(assignment, units::Bytes(0)),
            pipes: BTreeMap::new(),
            pipe_room,
            joined: 0,
            gather: Gather::new(units::Bytes(0)),
            accepted: 0,
            read: Vec::new(),
        };
        (0..connections).for_each(|_| world.join());
        world
    }

    fn join(&mut self) {
        let lane = LaneId(self.joined);
        self.joined += 1;
        self.scatter.join(lane);
        self.pipes.insert(lane, Pipe::default());
    }

    fn die(&mut self, lane: LaneId) {
        self.pipes.remove(&lane);
        self.scatter.leave(lane);
    }

    fn write(&mut self, amount: usize) {
        let end = self.data.len().min(self.written + amount);
        if self.written < end {
            self.written += self.scatter.write(&self.data[self.written..end]);
        }
        if self.written == self.data.len() {
            self.scatter.finish();
        }
    }

    fn send(&mut self, lane: LaneId) -> bool {
        let pipe = self.pipes.get_mut(&lane).unwrap();
        let room = !pipe.stalled && pipe.there.len() < self.pipe_room;
        let record = if room { self.scatter.take(self.now, lane) } else { None };
        record.map(|record| pipe.there.push_back(record)).is_some()
    }

    fn deliver(&mut self, lane: LaneId) -> bool {
        let pipe = self.pipes.get_mut(&lane).unwrap();
        let record = if pipe.stalled { None } else { pipe.there.pop_front() };
        let Some(record) = record else { return false };
        pipe.received += 1;
        let length = record.payload.len();
        if self.gather.accept(record.number, record.payload).unwrap() {
            self.accepted += length;
        }
        true
    }

    fn acknowledge(&mut self, lane: LaneId) {
        let pipe = self.pipes.get_mut(&lane).unwrap();
        if !pipe.stalled && pipe.back.len() < self.pipe_room {
            let (through, limit) = (self.gather.through(), self.gather.limit());
            let received = pipe.received;
            pipe.back.push_back(Ack { received, through, limit, ..Ack::default() });
        }
    }

    fn confirm(&mut self, lane: LaneId) -> bool {
        let pipe = self.pipes.get_mut(&lane).unwrap();
        let ack = if pipe.stalled { None } else { pipe.back.pop_front() };
        let Some(ack) = ack else { return false };
        self.scatter.confirm(self.now, lane, &ack).unwrap();
        true
    }

    fn read(&mut self, amount: usize) -> usize {
        let mut out = vec![0; amount];
        let n = self.gather.read(&mut out);
        self.read.extend_from_slice(&out[..n]);
        n
    }

    /// One step of a random run.
    fn step(&mut self, choice: u8, lane: usize, amount: usize) {
        self.now += Duration::from_millis(amount as u64 / 50);
        if choice == 0 {
            return self.join();
        }
        let Some(&lane) = self.pipes.keys().nth(lane % self.pipes.len().max(1)) else { return };
        match choice {
            1 => self.die(lane),
            2..5 => {
                let pipe = self.pipes.get_mut(&lane).unwrap();
                pipe.stalled = !pipe.stalled;
            }
            5..15 => self.write(amount),
            15..30 => drop(self.send(lane)),
            30..45 => drop(self.deliver(lane)),
            45..55 => self.acknowledge(lane),
            55..65 => drop(self.confirm(lane)),
            _ => drop(self.read(amount)),
        }
        self.check();
    }

    fn check(&self) {
        assert!(self.scatter.kept() <= INITIAL_RECORDS as usize + MAX_QUEUED + 2);
        assert!(self.accepted - self.read.len() <= INITIAL_RECORDS as usize * MAX_PAYLOAD);
        assert!(self.data.starts_with(&self.read), "out of order");
    }

    /// Everything that can happen happens, as long as anything does.
    fn settle(&mut self) {
        let mut quiet = 0;
        while quiet < 12 {
            let before = (self.written, self.read.len(), self.scatter.kept());
            let mut moved = false;
            self.write(usize::MAX / 2);
            for lane in self.pipes.keys().copied().collect::<Vec<_>>() {
                moved |= self.send(lane);
                moved |= self.deliver(lane);
                self.acknowledge(lane);
                self.confirm(lane);
            }
            moved |= self.read(1 << 20) > 0;
            self.check();
            moved |= before != (self.written, self.read.len(), self.scatter.kept());
            quiet = if moved { 0 } else { quiet + 1 };
            if !moved {
                self.now += LONG * (1 << quiet);
            }
        }
    }
}

fn text(length: usize) -> Vec<u8> {
    (0..length).map(|i| (i * i + i / 251) as u8).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn any_deaths_joins_and_stalls_deliver_every_byte_once_in_order(
        length in prop_oneof![0..3_000usize, 0..3_000_000usize],
        connections in 1..6usize,
        pipe_room in 1..5usize,
        is_static: bool,
        steps in proptest::collection::vec((0..75u8, any::<usize>(), 1..100_000usize), 0..600),
    ) {
        let assignment = if is_static { Assignment::Static } else { Assignment::Dynamic };
        let mut world = World::new(text(length), connections, pipe_room, assignment);
        for (choice, lane, amount) in steps {
            world.step(choice, lane, amount);
        }
        // Static assignment waits for those that stall, so they must go on, or die.
        for (index, lane) in world.pipes.keys().copied().collect::<Vec<_>>().into_iter().enumerate() {
            match is_static && index % 2 == 0 {
                true => world.die(lane),
                false => world.pipes.get_mut(&lane).unwrap().stalled &= !is_static,
            }
        }
        world.join();
        world.settle();
        prop_assert!(world.gather.is_ended(), "nothing can move, yet the stream has not ended");
        prop_assert!(world.scatter.is_confirmed(), "nothing can move, yet not all is confirmed");
        prop_assert!(world.read == world.data);
    }

    #[test]
    fn hostile_records_never_panic_nor_fill_memory(
        records in proptest::collection::vec(
            (prop_oneof![0..50u64, any::<u64>()], any::<bool>(), 0..3usize), 0..200,
        ),
    ) {
        let mut gather = Gather::new(units::Bytes(0));
        let (mut accepted, mut read) = (0, 0);
        for (number, is_end, amount) in records {
            let payload = Bytes::from_static(if is_end && number % 8 == 0 { &[] } else { &[1] });
            let length = payload.len();
            if gather.accept(number, payload) == Ok(true) {
                accepted += length;
            }
            read += gather.read(&mut [0; 4][..amount]);
            prop_assert!(accepted - read <= INITIAL_RECORDS as usize);
        }
    }

    #[test]
    fn hostile_confirmations_never_panic(
        acks in proptest::collection::vec(
            (0..3u32, 0..6u64, 0..6u64, prop_oneof![0..50u64, any::<u64>()]), 0..60,
        ),
    ) {
        let mut scatter = Scatter::new(Assignment::Dynamic, units::Bytes(0));
        (0..2).for_each(|lane| scatter.join(LaneId(lane)));
        for (lane, received, through, limit) in acks {
            if !scatter.is_finished() {
                scatter.write(&vec![1; MAX_PAYLOAD / 2]);
            }
            let now = Instant::from_nanos(limit);
            scatter.take(now, LaneId(lane));
            let ack = Ack { received, through, limit, ..Ack::default() };
            let _ = scatter.confirm(now, LaneId(lane), &ack);
            if received == 5 {
                scatter.leave(LaneId(lane));
            }
            prop_assert!(scatter.kept() <= INITIAL_RECORDS as usize + 1);
        }
    }
}
