//! What a run has shown.

use core::time::Duration;

use path::DropCause;
use serde::Serialize;
use units::{Bytes, Rate};

use super::Study;
use super::flow::Standing;
use super::network::Network;

/// Documents of a source that arrived whole in the measured time, and how long they took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Documents {
    /// How many.
    pub count: u64,
    /// Seconds that all took together, from the request to the last byte.
    pub total_seconds: f64,
    /// Documents that were under way at the end, of a source that sends one after the other.
    pub unfinished: u64,
}

impl Documents {
    pub(super) fn note(&mut self, time: Duration) {
        self.count += 1;
        self.total_seconds += time.as_secs_f64();
    }

    /// Without those that had arrived before.
    fn since(self, before: Self) -> Self {
        Self {
            count: self.count - before.count,
            total_seconds: self.total_seconds - before.total_seconds,
            unfinished: self.unfinished,
        }
    }

    /// Seconds that one took on average.
    pub fn mean_seconds(&self) -> f64 {
        self.total_seconds / self.count as f64
    }
}

/// One flow over the measured time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FlowReport {
    /// Its name.
    pub name: String,
    /// Its protocol.
    pub protocol: String,
    /// Measured seconds in which it might send.
    pub seconds: f64,
    /// Bytes that its reader read in that time.
    pub delivered_bytes: u64,
    /// The same in bits a second.
    pub goodput_bps: f64,
    /// Packets sent, of the whole run.
    pub sent: u64,
    /// Of these, sent again (or found lost, with our transport).
    pub retransmitted: u64,
    /// Time-outs (or tail probes).
    pub timeouts: u64,
    /// Data packets that queues dropped.
    pub queue_drops: u64,
    /// Data packets lost on a line.
    pub line_losses: u64,
    /// Mean round-trip time that the sender saw, and the least, in seconds.
    pub rtt_mean: Option<f64>,
    /// See `rtt_mean`.
    pub rtt_least: Option<f64>,
    /// When all had arrived, of a source with an end, in seconds from the start of the run.
    pub finished: Option<f64>,
    /// Documents, of a source that sends any.
    pub documents: Documents,
}

/// The bottleneck's queue in the direction from near to far, over the measured time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct QueueReport {
    /// Share of the link's rate that was used, headers counted.
    pub utilisation: f64,
    /// Packets waiting, on average.
    pub mean_packets: f64,
    /// The most at any look.
    pub most_packets: u64,
    /// Packets that came.
    pub offered: u64,
    /// Of these, dropped by the queue.
    pub dropped: u64,
}

/// A flow at a time, for a trace.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sample {
    /// Seconds from the start.
    pub seconds: f64,
    /// Which flow.
    pub flow: String,
    /// Goodput since its last sample.
    pub goodput_bps: f64,
    /// The latest round-trip time, in seconds.
    pub rtt: Option<f64>,
    /// Congestion window.
    pub window_bytes: u64,
    /// The rate at which it may send.
    pub rate_bps: Option<u64>,
    /// Packets in the bottleneck's queue.
    pub queue_packets: u64,
    /// Data packets of this flow that queues and lines dropped so far.
    pub drops: u64,
}

/// All that a run has shown.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// What fixed its random choices.
    pub seed: u64,
    /// The flows in their order.
    pub flows: Vec<FlowReport>,
    /// The bottleneck.
    pub queue: QueueReport,
    /// Packets that links carried, of all flows.
    pub packets: u64,
    /// How the flows stood from time to time.
    #[serde(skip)]
    pub samples: Vec<Sample>,
}

impl Outcome {
    /// Goodput of all flows whose names begin with `prefix`, in bits a second.
    pub fn goodput(&self, prefix: &str) -> f64 {
        self.of(prefix).map(|flow| flow.goodput_bps).sum()
    }

    /// The flows whose names begin with `prefix`.
    pub fn of<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = &'a FlowReport> {
        self.flows.iter().filter(move |flow| flow.name.starts_with(prefix))
    }
}

/// Bytes carried, packets offered and dropped by the bottleneck.
#[derive(Clone, Copy, Default)]
struct Carried {
    bytes: u64,
    offered: u64,
    dropped: u64,
}

/// Sums and means of round-trip times at the glances.
#[derive(Clone, Copy, Default)]
struct Rtts {
    sum: f64,
    count: u64,
    least: Option<f64>,
}

/// What is added up while a run goes on.
pub(super) struct Tally<'a> {
    study: &'a Study,
    /// Bytes and documents delivered by the flows, and what the bottleneck had carried, when measuring
    /// began.
    before: Option<(Vec<(u64, Documents)>, Carried)>,
    /// Looks at the queue and what was seen.
    glances: u64,
    queued: u64,
    most: u64,
    rtts: Vec<Rtts>,
    /// Of the last sample: when it was, and bytes delivered.
    last: (Duration, Vec<u64>),
    samples: Vec<Sample>,
}

impl<'a> Tally<'a> {
    pub(super) fn new(study: &'a Study, network: &Network) -> Self {
        let flows = network.flows.len();
        Self {
            study,
            before: None,
            glances: 0,
            queued: 0,
            most: 0,
            rtts: vec![Rtts::default(); flows],
            last: (Duration::ZERO, vec![0; flows]),
            samples: Vec::new(),
        }
    }

    pub(super) fn glance(&mut self, at: Duration, network: &Network) {
        if at < self.study.measure_from {
            return;
        }
        if self.before.is_none() && !self.study.measure_from.is_zero() {
            let standings = network.flows.iter().map(|flow| flow.standing());
            let delivered = standings.map(|standing| (standing.delivered, standing.documents));
            self.before = Some((delivered.collect(), carried(network)));
        }
        let waiting = network.bottleneck(true).backlog().packets;
        self.glances += 1;
        self.queued += waiting;
        self.most = self.most.max(waiting);
        // Of thousands of flows each is looked at now and then.
        let every = network.flows.len().div_ceil(16);
        let some = (self.glances as usize % every..network.flows.len()).step_by(every);
        for index in some {
            let standing = network.flows[index].standing();
            if let Some(rtt) = standing.rtt.map(|rtt| rtt.as_secs_f64()) {
                let rtts = &mut self.rtts[index];
                rtts.sum += rtt;
                rtts.count += 1;
                rtts.least = Some(rtts.least.map_or(rtt, |least| least.min(rtt)));
            }
        }
    }

    pub(super) fn sample(&mut self, at: Duration, network: &Network) {
        let queue_packets = network.bottleneck(true).backlog().packets;
        let (last, delivered) = &mut self.last;
        let seconds = at.saturating_sub(*last).as_secs_f64();
        for (index, flow) in network.flows.iter().enumerate() {
            let standing = flow.standing();
            let gained = standing.delivered - delivered[index];
            delivered[index] = standing.delivered;
            self.samples.push(Sample {
                seconds: at.as_secs_f64(),
                flow: self.study.flows[index].name.clone(),
                goodput_bps: gained as f64 * 8.0 / seconds,
                rtt: standing.rtt.map(|rtt| rtt.as_secs_f64()),
                window_bytes: standing.window.0,
                rate_bps: standing.rate.map(Rate::as_bits_per_sec),
                queue_packets,
                drops: flow.dropped.0 + flow.dropped.1,
            });
        }
        *last = at;
    }

    pub(super) fn outcome(mut self, network: &Network) -> Outcome {
        let Study { duration, measure_from, .. } = *self.study;
        let (delivered, before) = self.before.take().unwrap_or_default();
        let now = carried(network);
        let seconds = duration.saturating_sub(measure_from).as_secs_f64();
        let rate = self.study.path.forward.rate.as_bits_per_sec() as f64;
        let queue = QueueReport {
            utilisation: (now.bytes - before.bytes) as f64 * 8.0 / (rate * seconds),
            mean_packets: self.queued as f64 / self.glances.max(1) as f64,
            most_packets: self.most,
            offered: now.offered - before.offered,
            dropped: now.dropped - before.dropped,
        };
        let flows = network.flows.iter().enumerate().map(|(index, flow)| {
            let before = delivered.get(index).copied().unwrap_or_default();
            self.flow(index, &flow.standing(), flow.dropped, before)
        });
        Outcome {
            seed: self.study.path.seed,
            flows: flows.collect(),
            queue,
            packets: network.packets,
            samples: self.samples,
        }
    }

    fn flow(
        &self,
        index: usize,
        at: &Standing,
        dropped: (u64, u64),
        before: (u64, Documents),
    ) -> FlowReport {
        let config = &self.study.flows[index];
        let finished = at.finished.map(Network::since_start);
        let end = config.stop.unwrap_or(self.study.duration).min(self.study.duration);
        let end = finished.unwrap_or(end);
        let seconds = end.saturating_sub(config.start.max(self.study.measure_from)).as_secs_f64();
        let delivered_bytes = at.delivered - before.0;
        let rtts = &self.rtts[index];
        FlowReport {
            name: config.name.clone(),
            protocol: config.protocol.name(),
            seconds,
            delivered_bytes,
            goodput_bps: if seconds > 0.0 { delivered_bytes as f64 * 8.0 / seconds } else { 0.0 },
            sent: at.sent,
            retransmitted: at.retransmitted,
            timeouts: at.timeouts,
            queue_drops: dropped.0,
            line_losses: dropped.1,
            rtt_mean: (rtts.count > 0).then(|| rtts.sum / rtts.count as f64),
            rtt_least: rtts.least,
            finished: finished.map(|time| time.as_secs_f64()),
            documents: at.documents.since(before.1),
        }
    }
}

fn carried(network: &Network) -> Carried {
    let link = network.bottleneck(true);
    let counters = link.counters();
    let dropped = |cause| counters.dropped(cause);
    let lost = [DropCause::Loss, DropCause::Damage, DropCause::Blackout].map(dropped);
    let Bytes(bytes) = counters.delivered.bytes + lost.iter().map(|tally| tally.bytes).sum();
    Carried {
        bytes,
        offered: counters.offered.packets,
        dropped: dropped(DropCause::Queue).packets + dropped(DropCause::Early).packets,
    }
}
