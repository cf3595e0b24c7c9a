//! Traces for plots: how long the queues are over time, and every drop with its cause.

use core::time::Duration;
use std::io::{self, Write};

use path::{DropCause, Tally};
use units::{Bytes, Instant};

use crate::spool::{Recording, Spool};

/// Bytes of a record in the spool: time, packets, bytes, direction, and what it is about.
const RECORD: usize = 8 + 8 + 8 + 2;

/// What a record is about that is no drop.
const QUEUE: u8 = u8::MAX;

/// What a record is about when a host's own link drops a packet, whyever.
const HOST: u8 = u8::MAX - 1;

/// The names of the two directions, as in scenario files.
const DIRECTIONS: [&str; 2] = ["forward", "back"];

/// Notes what happens on one direction.
#[derive(Clone)]
pub(crate) struct Tracer {
    spool: Spool,
    direction: u8,
}

impl Tracer {
    /// A packet is dropped.
    pub(crate) fn dropped(&self, at: Instant, cause: DropCause, size: Bytes) {
        let cause = DropCause::ALL.iter().position(|&known| known == cause);
        self.note(at, cause.map_or(QUEUE, |at| at as u8), Tally { packets: 1, bytes: size });
    }

    /// A packet is dropped by the own link of its sender or receiver.
    pub(crate) fn dropped_by_host(&self, at: Instant, size: Bytes) {
        self.note(at, HOST, Tally { packets: 1, bytes: size });
    }

    /// So much waits in the queue.
    pub(crate) fn queue(&self, at: Instant, waiting: Tally) {
        self.note(at, QUEUE, waiting);
    }

    fn note(&self, at: Instant, about: u8, Tally { packets, bytes }: Tally) {
        let [at, packets, bytes] = [at.as_nanos(), packets, bytes.0].map(u64::to_ne_bytes);
        self.spool.push(&[&at, &packets, &bytes, &[self.direction, about]], 1);
    }
}

/// When the queues are looked at next.
pub(crate) struct Sampling {
    interval: Duration,
    next: Instant,
}

impl Sampling {
    pub(crate) fn new(interval: Duration) -> Self {
        Self { interval, next: Instant::ZERO }
    }

    pub(crate) fn next(&self) -> Instant {
        self.next
    }

    /// Whether it is time; then the next time is set.
    pub(crate) fn due(&mut self, now: Instant) -> bool {
        let due = now >= self.next;
        if due {
            self.next = now + self.interval;
        }
        due
    }
}

/// Starts a trace in CSV, with tracers for both directions.
pub(crate) fn start(mut file: impl Write + Send + 'static) -> io::Result<(Recording, [Tracer; 2])> {
    file.write_all(b"seconds,direction,event,packets,bytes\n")?;
    let (recording, spool) = Recording::start(move |records| {
        records.chunks_exact(RECORD).try_for_each(|record| line(&mut file, record))?;
        file.flush()
    })?;
    Ok((recording, [0, 1].map(|direction| Tracer { spool: spool.clone(), direction })))
}

fn line(file: &mut impl Write, record: &[u8]) -> io::Result<()> {
    let word = |at| u64::from_ne_bytes(std::array::from_fn(|i| record[at + i]));
    let (nanos, packets, bytes) = (word(0), word(8), word(16));
    let direction = DIRECTIONS[usize::from(record[24])];
    write!(file, "{}.{:09},{direction},", nanos / 1_000_000_000, nanos % 1_000_000_000)?;
    match DropCause::ALL.get(usize::from(record[25])) {
        Some(cause) => write!(file, "drop:{}", cause.name())?,
        None if record[25] == HOST => file.write_all(b"drop:host")?,
        None => file.write_all(b"queue")?,
    }
    writeln!(file, ",{packets},{bytes}")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn lines_say_what_happened() {
        let path = std::env::temp_dir().join(format!("longhaul-trace-{}", std::process::id()));
        let (recording, [forward, back]) = start(fs::File::create(&path).unwrap()).unwrap();
        let at = Instant::from_nanos(1_000_000_002);
        forward.queue(at, Tally { packets: 3, bytes: Bytes(4500) });
        back.dropped(at, DropCause::Loss, Bytes(40));
        back.dropped_by_host(at, Bytes(41));
        assert_eq!(recording.finish().unwrap(), 0);
        let text = fs::read_to_string(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let lines: Vec<_> = text.lines().skip(1).collect();
        let events = ["forward,queue,3,4500", "back,drop:loss,1,40", "back,drop:host,1,41"];
        assert_eq!(lines, events.map(|event| format!("1.000000002,{event}")));
    }
}
