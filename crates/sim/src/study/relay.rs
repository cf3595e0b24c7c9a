//! Paper 2's gateways: each connection of two hosts is carried by three, from the host to its gateway, over
//! the trunk, and from the far gateway to the other host.
//!
//! Between two of them lies a gateway's buffer, which holds what the window of the one before allowed
//! and the one behind has not taken: so a slow reader holds back its own sender, link by link, and nobody
//! else (the first level of paper 2's flow control). The second, that all connections together
//! send no more than the trunk carries, is an even share of the trunk's window for each.

use core::time::Duration;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use path::{HostGroup, PathConfig};
use units::{Bytes, Instant};

use super::Study;
use super::flow::{End, Flow, Standing};
use super::network::Network;
use super::parcel::Parcel;
use super::topology::{FAR, NEAR};
use super::transit::Outlet;
use crate::tcp::{Config, Receiver, Recovery, Segment, Sender};
use crate::world::START;

/// How soon a gateway looks again for bytes, or for room.
const PATIENCE: Duration = Duration::from_millis(1);

/// What a gateway takes of a connection before the window of the trunk has room: its socket's buffer.
const BUFFER: Bytes = Bytes::kib(256);

/// Connections of hosts of two networks, each of which always has more to send.
#[derive(Clone, Debug)]
pub struct Relay {
    /// The path between the networks, or the trunk.
    pub path: PathConfig,
    /// A host, of which each connection has two of its own.
    pub host: HostGroup,
    /// The hosts' connections.
    pub connection: Config,
    /// How many there are.
    pub count: usize,
    /// With gateways: the window of one connection on the trunk, and of all of them.
    pub trunk: Option<[Bytes; 2]>,
    /// What is not counted, at the beginning.
    pub before: Duration,
    /// What is counted then.
    pub counted: Duration,
}

impl Relay {
    /// Runs it with this seed; bits a second that each host has read.
    ///
    /// # Panics
    /// When the path is impossible.
    pub fn run(&self, seed: u64) -> Vec<f64> {
        let hosts = HostGroup { count: self.count as u32, ..self.host };
        // A gateway stands at the path itself.
        let side = vec![hosts, HostGroup::default()];
        let path = self.path.clone().with_seed(seed);
        let study = Study::of(path, side.clone(), side, self.before + self.counted);
        let mut network = Network::new(&study);
        let last: Vec<usize> = (0..self.count).map(|host| self.join(&mut network, host)).collect();
        let read = |network: &Network| -> Vec<u64> {
            last.iter().map(|&flow| network.flows[flow].standing().delivered).collect()
        };
        network.run_until(self.before);
        let before = read(&network);
        network.run_until(self.before + self.counted);
        let each = read(&network).into_iter().zip(before);
        each.map(|(all, before)| (all - before) as f64 * 8.0 / self.counted.as_secs_f64()).collect()
    }

    /// Adds the connection of a host to that of the same number; the flow that reaches it.
    fn join(&self, network: &mut Network, host: usize) -> usize {
        let (near, far) = ((NEAR, host), (FAR, host));
        let lan = self.connection;
        let mut add = |config: &Config, buffers: [Option<&Buffer>; 2], places| {
            network.attach(Box::new(Leg::new(config, buffers)), places, Instant::FAR_FUTURE)
        };
        let Some([window, together]) = self.trunk else {
            return add(&lan, [None, None], [near, far]);
        };
        let share = Bytes(together.0 / self.count as u64).min(window);
        let trunk = Config {
            window: share,
            send_buffer: share,
            scaling: true,
            recovery: Recovery::Sack,
            ..lan
        };
        let gateways = [(NEAR, self.count), (FAR, self.count)];
        let buffers = [Buffer::default(), Buffer::default()];
        let leaving = Config { send_buffer: BUFFER, ..lan };
        add(&lan, [None, Some(&buffers[0])], [near, gateways[0]]);
        add(&trunk, [Some(&buffers[0]), Some(&buffers[1])], gateways);
        add(&leaving, [Some(&buffers[1]), None], [gateways[1], far])
    }
}

/// What a gateway holds of a connection between the one that brings it and the one that takes it on.
#[derive(Clone, Default)]
struct Buffer(Arc<Mutex<Held>>);

#[derive(Default)]
struct Held {
    brought: u64,
    taken: u64,
}

impl Buffer {
    fn lock(&self) -> MutexGuard<'_, Held> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// So many have arrived in all; how many of them are no longer here.
    fn bring(&self, brought: u64) -> u64 {
        let mut held = self.lock();
        held.brought = brought;
        held.taken
    }

    /// Takes what there is, up to so many.
    fn take(&self, most: u64) -> u64 {
        let mut held = self.lock();
        let taken = most.min(held.brought - held.taken);
        held.taken += taken;
        taken
    }
}

/// One of the connections.
struct Leg {
    sender: Sender,
    receiver: Receiver,
    /// From where it takes: a gateway's buffer, or an application that always has more.
    source: Option<Buffer>,
    /// To where it brings: a gateway's buffer, or an application that reads at once.
    sink: Option<Buffer>,
    /// What the sending socket holds.
    room: u64,
    begin: Option<Instant>,
    /// When each end looks at its buffer again.
    looks: [Option<Instant>; 2],
}

impl Leg {
    fn new(config: &Config, [source, sink]: [Option<&Buffer>; 2]) -> Self {
        let mut receiver = Receiver::new(config);
        if sink.is_some() {
            receiver.read_to(0);
        }
        Self {
            sender: Sender::new(config),
            receiver,
            source: source.cloned(),
            sink: sink.cloned(),
            room: config.send_buffer.0,
            begin: Some(START),
            looks: [None; 2],
        }
    }

    fn fill(&mut self, now: Instant) {
        if self.begin.take_if(|begin| *begin <= now).is_some() {
            self.sender.open();
            if self.source.is_none() {
                self.sender.write(u64::MAX);
            }
        }
        if let Some(source) = &self.source {
            let taken = source.take(self.room - self.sender.held().min(self.room));
            self.sender.write(taken);
            self.looks[0] = Some(now + PATIENCE);
        }
    }

    /// The gateway's buffer gets what has arrived, and the window is what it leaves.
    fn bring(&mut self, now: Instant) -> Option<Segment> {
        let delivered = self.receiver.delivered();
        let taken = self.sink.as_ref()?.bring(delivered);
        self.looks[1] = (taken < delivered).then(|| now + PATIENCE);
        self.receiver.read_to(taken)
    }
}

/// A connection has one flow for itself.
const NUMBER: u32 = 0;

impl Flow for Leg {
    fn arrive(&mut self, now: Instant, end: End, parcel: &Parcel, out: &mut Outlet<'_>) {
        let Some((_, segment)) = out.take_segment(parcel) else { return };
        match end {
            End::Sender => self.sender.handle(now, segment),
            End::Receiver => {
                if let Some(answer) = self.receiver.handle(now, segment) {
                    out.send_segment(NUMBER, answer);
                }
            }
        }
    }

    fn run(&mut self, now: Instant, end: End, out: &mut Outlet<'_>) {
        match end {
            End::Sender => {
                self.fill(now);
                self.sender.handle_timeout(now);
                while let Some(segment) = self.sender.poll(now) {
                    out.send_segment(NUMBER, segment);
                }
            }
            End::Receiver => {
                let late = self.receiver.handle_timeout(now);
                for segment in late.into_iter().chain(self.bring(now)) {
                    out.send_segment(NUMBER, segment);
                }
            }
        }
    }

    fn next(&self, end: End) -> Instant {
        let (timer, begin) = match end {
            End::Sender => (self.sender.next_timeout(), self.begin),
            End::Receiver => (self.receiver.next_timeout(), None),
        };
        let others = begin.into_iter().chain(self.looks[end as usize]);
        others.fold(timer, Instant::min)
    }

    fn is_told_by_packets(&self) -> bool {
        // A gateway's buffer and both connections that know of it are at one place.
        true
    }

    fn standing(&self) -> Standing {
        Standing::of_tcp(self.receiver.delivered(), &self.sender.stats())
    }
}

#[cfg(test)]
mod tests {
    use path::{Limit, QueueConfig};
    use units::Rate;

    use super::*;

    const fn mbit(rate: u64) -> Rate {
        Rate::from_bits_per_sec(rate * 1_000_000)
    }

    fn relay(trunk: Option<[Bytes; 2]>) -> Relay {
        Relay {
            // Room for the bursts of slow start.
            path: PathConfig::new(mbit(10), Duration::from_millis(200))
                .with_queue(QueueConfig::DropTail(Limit::Bytes(Bytes::mib(1)))),
            host: HostGroup { rate: Some(mbit(100)), ..HostGroup::default() },
            connection: Config::classic(Recovery::Reno, 1000, 8000),
            count: 2,
            trunk,
            before: Duration::from_secs(5),
            counted: Duration::from_secs(10),
        }
    }

    /// Without gateways each has a window a round trip; with them they fill the trunk, evenly.
    #[test]
    fn the_windows_of_hosts_limit_only_those_without_gateways() {
        for rate in relay(None).run(1) {
            assert!((rate / (8000.0 * 8.0 / 0.2) - 1.0).abs() < 0.02, "{rate}");
        }
        let rates = relay(Some([Bytes::kib(256); 2])).run(1);
        assert_eq!(rates, relay(Some([Bytes::kib(256); 2])).run(1));
        for rate in rates {
            assert!((0.98..1.02).contains(&(rate / (5e6 * 1000.0 / 1040.0))), "{rate}");
        }
        // A window of 64 KB on the trunk for both of them: half each.
        for rate in relay(Some([Bytes::kib(256), Bytes(64_000)])).run(1) {
            assert!((rate / (32_000.0 * 8.0 / 0.2) - 1.0).abs() < 0.05, "{rate}");
        }
    }

    /// A gateway holds back who sends to it: its buffer is never fuller than the window before it.
    #[test]
    fn a_slow_trunk_holds_the_sender_back() {
        let (buffer, config) = (Buffer::default(), Config::classic(Recovery::Reno, 1000, 8000));
        let (mut sender, mut receiver) = (Sender::new(&config), Receiver::new(&config));
        let mut now = START;
        sender.open();
        sender.write(u64::MAX);
        receiver.read_to(0);
        let mut most = 0;
        for step in 0..1000 {
            now += Duration::from_millis(1);
            sender.handle_timeout(now);
            let segments: Vec<_> = core::iter::from_fn(|| sender.poll(now)).collect();
            for segment in segments {
                if let Some(answer) = receiver.handle(now, &segment) {
                    sender.handle(now, &answer);
                }
                let taken = buffer.bring(receiver.delivered());
                most = most.max(receiver.delivered() - taken);
            }
            // A segment every four milliseconds goes on.
            if step % 4 == 0 {
                buffer.take(1000);
            }
            if let Some(update) = receiver.read_to(buffer.bring(receiver.delivered())) {
                sender.handle(now, &update);
            }
        }
        assert_eq!(most, 8000);
        assert_eq!((sender.stats().timeouts, sender.stats().recoveries), (0, 0));
        let delivered = receiver.delivered();
        assert!((240_000..=258_000).contains(&delivered), "{delivered}");
    }
}
