//! The reason for not sending faster: each is provoked, and must be the one that held for longest.

use core::net::SocketAddr;
use std::time::Duration;

use path::PathConfig;
use sim::{Arrived, Datagram, Faults, Node, Socket, World};
use transport::cc::Algorithm;
use transport::{Config, Event, Limit, ReadOutcome, WriteOutcome};
use units::{Bytes, Instant, Rate};

use crate::{mbit, ms};

/// What hinders an end.
#[derive(Clone, Copy, Default)]
struct Hindrance {
    /// The application reads or writes at this rate only.
    application: Option<Rate>,
    /// The host looks at its connection only so often.
    sleep: Duration,
    /// After each look the socket takes nothing for so long.
    full: Duration,
}

struct End {
    socket: Socket,
    hindrance: Hindrance,
    connects: Option<SocketAddr>,
    stream: Option<u64>,
    writes: bool,
    begun: Option<Instant>,
    moved: u64,
    awake_at: Instant,
    full_until: Instant,
}

impl End {
    fn new(side: u8, config: Config, hindrance: Hindrance) -> Self {
        let address = ([10, side, 0, 1], 7272).into();
        Self {
            socket: Socket::new(address, config, [side + 1; 32]),
            hindrance,
            connects: None,
            stream: None,
            writes: side == 0,
            begun: None,
            moved: 0,
            awake_at: Instant::ZERO,
            full_until: Instant::ZERO,
        }
    }

    fn application(&mut self, now: Instant) {
        let Some(connection) = self.socket.connection() else { return };
        while let Some(event) = connection.poll_event() {
            match event {
                Event::Established if self.writes => self.stream = connection.open().ok(),
                Event::Opened(stream) => self.stream = Some(stream),
                _ => {}
            }
        }
        let Some(stream) = self.stream else { return };
        let begun = *self.begun.get_or_insert(now);
        let mut buffer = [0; 4096];
        loop {
            let may = self.hindrance.application.map(|rate| rate.bytes_in(now.since(begun)).0);
            if may.is_some_and(|may| self.moved >= may) {
                return;
            }
            let moved = if self.writes {
                match connection.write(stream, &buffer) {
                    WriteOutcome::Written(len) => len,
                    _ => 0,
                }
            } else {
                match connection.read(now, stream, &mut buffer) {
                    ReadOutcome::Read(len) => len,
                    _ => 0,
                }
            };
            if moved == 0 {
                return;
            }
            self.moved += moved as u64;
        }
    }
}

impl Node for End {
    fn address(&self) -> SocketAddr {
        self.socket.address()
    }

    fn receive(&mut self, now: Instant, arrived: Arrived<'_>, out: &mut Vec<Datagram>) {
        self.socket.receive(now, arrived, out);
    }

    fn run(&mut self, now: Instant, out: &mut Vec<Datagram>) {
        if let Some(to) = self.connects.take() {
            self.socket.connect(now, to);
        }
        self.application(now);
        if now < self.awake_at || now < self.full_until {
            return;
        }
        self.awake_at = now + self.hindrance.sleep;
        self.socket.flush(now, out);
        if !self.hindrance.full.is_zero()
            && let Some(connection) = self.socket.connection()
        {
            connection.on_socket_full(now);
            self.full_until = now + self.hindrance.full;
        }
        self.application(now);
    }

    fn next(&self) -> Option<Instant> {
        // An application that keeps to a rate looks again every millisecond.
        let look = self.hindrance.application.map(|_| self.awake_at + ms(1));
        let due = self.socket.next().map(|due| due.max(self.awake_at).max(self.full_until));
        let connects = self.connects.map(|_| Instant::ZERO);
        due.into_iter().chain(look).chain(connects).min()
    }
}

/// The limits that held in the last third of 9 s at 50 Mbit/s and 40 ms, the longest first, and
/// for how many of these 3 s: as the sender saw them, and as it told the receiver.
fn held(config: Config, near: Hindrance, far: Hindrance) -> [Vec<(Limit, f64)>; 2] {
    let (mut near, far) = (End::new(0, config, near), End::new(1, config, far));
    near.connects = Some(far.address());
    let path = PathConfig::new(mbit(50), ms(40)).with_seed(1);
    let mut world = World::of(&path, Faults::default(), vec![near, far]);
    world.run_until(ms(6000), |_| false);
    let limits = |world: &mut World<End>| {
        let mut stats =
            |host: usize| world.hosts[host].socket.connection().expect("it has begun").stats();
        [stats(0).limits, stats(1).remote_limits]
    };
    let before = limits(&mut world);
    world.run_until(ms(3000), |_| false);
    let after = limits(&mut world);
    [0, 1].map(|end| {
        let time = |limit| after[end].of(limit) - before[end].of(limit);
        let mut held: Vec<_> =
            Limit::ALL.map(|limit| (limit, time(limit).as_secs_f64() / 3.0)).into();
        held.sort_by(|(_, a), (_, b)| b.total_cmp(a));
        held
    })
}

fn with(congestion: Algorithm) -> Config {
    Config { congestion, ..Config::default() }
}

#[test]
fn each_reason_is_told_when_it_is_the_one() {
    let free = Hindrance::default();
    let slow = Hindrance { application: Some(mbit(5)), ..free };
    let fixed = with(Algorithm::Fixed(mbit(40)));
    let credit = Config { receive_memory: Bytes::kib(64), ..Config::default() };
    let limited = Config { rate_limit: Some(mbit(20)), ..Config::default() };
    for (expected, config, near, far) in [
        (Limit::Application, Config::default(), slow, free),
        (Limit::Credit, Config::default(), free, slow),
        (Limit::Credit, credit, free, free),
        (Limit::Congestion, with(Algorithm::Cubic), free, free),
        (Limit::Pacing, Config::default(), free, free),
        (Limit::Pacing, fixed, free, free),
        (Limit::Pacing, limited, free, free),
        (Limit::Cpu, fixed, Hindrance { sleep: ms(25), ..free }, free),
        (Limit::SocketBuffer, fixed, Hindrance { full: ms(10), ..free }, free),
    ] {
        let [held, told] = held(config, near, far);
        assert!(held[0].0 == expected && held[0].1 > 0.5, "{expected:?}: {held:?}");
        // Of the connection's credit, no state tells.
        let expected = match expected {
            Limit::Application => expected,
            Limit::Credit if config.receive_memory == Config::default().receive_memory => expected,
            _ => Limit::Congestion,
        };
        assert!(told[0].0 == expected && told[0].1 > 0.5, "told {expected:?}: {told:?}");
    }
}
