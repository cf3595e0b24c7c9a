//! A stream over many TCP connections: as many as one of the product's controllers asks for.
//!
//! What is modelled is their number alone: each connection always has something to send, and none is held to a
//! rate that was asked for.

use core::time::Duration;

use path::{HostGroup, PathConfig};
use stripe::count::{Controller, Law, MAX_CONNECTIONS, Policy, Sample, TICK};
use units::{Bytes, Instant};

use super::flow::Standing;
use super::network::Network;
use super::{FAR, FlowConfig, NEAR, Protocol, Study};
use crate::tcp::{Config, Congestion, Source};

/// A striped stream with more to send than its time allows.
#[derive(Clone, Debug)]
pub struct Striped {
    /// The path; its seed is that of the run.
    pub path: PathConfig,
    /// Each of the connections.
    pub connection: Config,
    /// How many there are.
    pub policy: Policy,
    /// But never more than these.
    pub most: usize,
    /// How long a run is.
    pub duration: Duration,
}

/// How it stands at a time.
#[derive(Clone, Copy, Debug)]
pub struct Stand {
    /// Since the start.
    pub at: Duration,
    /// Connections.
    pub connections: usize,
    /// What arrived by now.
    pub delivered: Bytes,
    /// The mean round-trip time.
    pub rtt: Duration,
}

impl Striped {
    /// With a controller of its own choice over 60 seconds.
    pub fn new(path: PathConfig, policy: Policy) -> Self {
        let (connection, duration) = (Config::default(), Duration::from_secs(60));
        Self { path, connection, policy, most: MAX_CONNECTIONS, duration }
    }

    /// Runs it; gives how it stood at every tick of the controller.
    ///
    /// # Panics
    /// When the path is impossible.
    pub fn run(&self) -> Vec<Stand> {
        let mut run = Run::new(self);
        let mut stands = Vec::new();
        let mut at = Duration::ZERO;
        while at < self.duration {
            at += TICK;
            run.network.run_until(at);
            stands.push(run.tick(at));
        }
        stands
    }
}

struct Run<'a> {
    striped: &'a Striped,
    network: Network,
    controller: Box<dyn Controller>,
    /// Flows that were not let go, by their numbers.
    lanes: Vec<usize>,
    /// Of all there were.
    base_rtt: Duration,
}

impl<'a> Run<'a> {
    fn new(striped: &'a Striped) -> Self {
        let side = vec![HostGroup::default()];
        let study = Study::of(striped.path.clone(), side.clone(), side, striped.duration);
        let network = Network::new(&study);
        let controller = striped.policy.controller();
        let mut run =
            Self { striped, network, controller, lanes: Vec::new(), base_rtt: Duration::MAX };
        run.adjust(Duration::ZERO, striped.policy.first());
        run
    }

    /// Asks the controller, and does what it says.
    fn tick(&mut self, at: Duration) -> Stand {
        let all = || self.network.flows.iter().map(|flow| flow.standing());
        let delivered = Bytes(all().map(|standing| standing.delivered).sum());
        let joined = |&lane: &usize| {
            let standing = self.network.flows[lane].standing();
            standing.rtt.map(|rtt| (rtt, standing.window.0))
        };
        let joined: Vec<_> = self.lanes.iter().filter_map(joined).collect();
        let connections = joined.len();
        let stand = |rtt| Stand { at, connections, delivered, rtt };
        let Some(least) = joined.iter().map(|lane| lane.0).min() else {
            return stand(Duration::ZERO);
        };
        self.base_rtt = self.base_rtt.min(least);
        let rtt = joined.iter().map(|lane| lane.0).sum::<Duration>() / connections as u32;
        let window = Bytes(joined.iter().map(|lane| lane.1).sum::<u64>() / connections as u64);
        let now = Instant::ZERO + at;
        let base_rtt = self.base_rtt;
        let total = |of: fn(Standing) -> u64| all().map(of).sum();
        let config = &self.striped.connection;
        let sample = Sample {
            now,
            connections,
            resting: 0,
            most: MAX_CONNECTIONS,
            delivered,
            rtt,
            least_rtt: least,
            base_rtt,
            window,
            segment: config.mss,
            sent: total(|standing| standing.sent),
            resent: total(|standing| standing.retransmitted),
            arrived: delivered.0 / config.mss.0.max(1),
            lost: total(|standing| standing.retransmitted),
            law: match config.congestion {
                Congestion::Reno => Law::Reno,
                Congestion::Cubic => Law::Cubic,
            },
            paced: false,
            idle: false,
        };
        let count = self.controller.connections(&sample);
        self.adjust(at, count);
        stand(rtt)
    }

    /// Opens connections, or lets the youngest go.
    fn adjust(&mut self, at: Duration, count: usize) {
        let count = count.clamp(1, self.striped.most);
        for lane in self.lanes.drain(count.min(self.lanes.len())..) {
            self.network.stop(lane, at);
        }
        // One more round trip than TCP needs: that of the stream's own handshake.
        let start = at + self.striped.path.rtt();
        while self.lanes.len() < count {
            let flow = FlowConfig {
                name: String::new(),
                protocol: Protocol::Tcp(self.striped.connection),
                source: Source::Greedy,
                start,
                stop: None,
                from_far: false,
                between: (NEAR, FAR),
                near: 0,
                far: 0,
            };
            self.lanes.push(self.network.add(&flow));
        }
    }
}
