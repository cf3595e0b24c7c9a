//! Whatever the schedule, the connections and the buffers: what goes into a scatter comes out of
//! the gather, and neither side ever waits for the other in a circle.

use std::collections::VecDeque;

use bytes::Bytes;
use proptest::prelude::*;
use stripe::{Gather, HEADER_LEN, Header, MAX_PAYLOAD, Record, Scatter};
use units::SeqNo;

/// One end that writes, one that reads, and pipes of a few records between them.
struct World {
    data: Vec<u8>,
    written: usize,
    scatter: Scatter,
    pipes: Vec<VecDeque<Record>>,
    fin_sent: Vec<bool>,
    pipe_room: usize,
    gather: Gather,
    read: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Write,
    Finish,
    Send(usize),
    Deliver(usize),
    Read,
}

impl World {
    fn new(data: Vec<u8>, connections: usize, pipe_room: usize, window: u64) -> Self {
        Self {
            data,
            written: 0,
            scatter: Scatter::new(),
            pipes: (0..connections).map(|_| VecDeque::new()).collect(),
            fin_sent: vec![false; connections],
            pipe_room,
            gather: Gather::new(connections, units::Bytes(window * MAX_PAYLOAD as u64)),
            read: Vec::new(),
        }
    }

    /// All that could happen now.
    fn enabled(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        let all_written = self.written == self.data.len();
        if !all_written && self.scatter.queued() < stripe::MAX_QUEUED {
            steps.push(Step::Write);
        }
        if all_written && !self.scatter.is_finished() {
            steps.push(Step::Finish);
        }
        let can_send = self.scatter.queued() > 0 || self.scatter.is_finished();
        for (i, pipe) in self.pipes.iter().enumerate() {
            if can_send && !self.fin_sent[i] && pipe.len() < self.pipe_room {
                steps.push(Step::Send(i));
            }
            if !pipe.is_empty() && self.gather.can_read(i) {
                steps.push(Step::Deliver(i));
            }
        }
        if self.gather.has_data() {
            steps.push(Step::Read);
        }
        steps
    }

    fn perform(&mut self, step: Step, amount: usize) {
        match step {
            Step::Write => {
                let end = self.data.len().min(self.written + amount);
                self.written += self.scatter.write(&self.data[self.written..end]);
            }
            Step::Finish => self.scatter.finish(),
            Step::Send(i) => {
                let record = self.scatter.take().expect("enabled");
                self.fin_sent[i] = matches!(record.header, Header::Fin { .. });
                self.pipes[i].push_back(record);
            }
            Step::Deliver(i) => {
                let record = self.pipes[i].pop_front().expect("enabled");
                let header: &[u8; HEADER_LEN] = record.bytes[..HEADER_LEN].try_into().unwrap();
                let header = Header::decode(header).unwrap();
                let payload = Bytes::from(record.bytes).slice(HEADER_LEN..);
                self.gather.accept(i, header, payload).unwrap();
            }
            Step::Read => {
                let mut out = vec![0; amount];
                let n = self.gather.read(&mut out);
                self.read.extend_from_slice(&out[..n]);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_schedule_reassembles_and_none_deadlocks(
        length in 0..40_000usize,
        connections in 1..9usize,
        pipe_room in 1..5usize,
        window in 1..6u64,
        choices in proptest::collection::vec((any::<u16>(), 1..600usize), 64..256),
        favourite in any::<prop::sample::Index>(),
    ) {
        let data: Vec<u8> = (0..length).map(|i| (i * i + i / 251) as u8).collect();
        let mut world = World::new(data, connections, pipe_room, window);
        for round in 0.. {
            let steps = world.enabled();
            if steps.is_empty() {
                break;
            }
            let (choice, amount) = choices[round % choices.len()];
            // Two times in three a fixed preference rules, which starves the other connections.
            let step = if choice % 3 == 0 {
                steps[usize::from(choice / 3) % steps.len()]
            } else {
                *favourite.get(&steps)
            };
            world.perform(step, amount);
        }
        prop_assert!(world.gather.is_ended(), "nothing can move, yet the stream has not ended");
        prop_assert_eq!(world.read, world.data);
    }

    #[test]
    fn hostile_records_never_panic_nor_fill_memory(
        records in proptest::collection::vec(
            (0..4usize, prop_oneof![0..20u64, any::<u64>()], any::<bool>(), 0..3usize),
            0..200,
        ),
    ) {
        const WINDOW: u64 = 5;
        let mut gather = Gather::new(4, units::Bytes(WINDOW * MAX_PAYLOAD as u64));
        let (mut accepted, mut read) = (0, 0);
        for (lane, number, is_fin, amount) in records {
            let header = if is_fin && number % 8 == 0 {
                Header::Fin { count: number }
            } else {
                Header::Data { number: SeqNo(number), length: 1 }
            };
            let payload = Bytes::from_static(&[1]);
            if gather.accept(lane, header, payload).is_ok() && header.payload() > 0 {
                accepted += 1;
            }
            read += gather.read(&mut [0; 4][..amount]);
            prop_assert!(accepted - read <= WINDOW as usize + 4);
        }
    }
}
