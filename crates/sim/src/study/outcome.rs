//! What a run has shown.

use core::time::Duration;

use path::{DropCause, Unchanging};
use serde::Serialize;
use units::Rate;

use super::Study;
use super::flow::Standing;
use super::network::{Line, Network};

/// Documents of a source that arrived whole in the measured time, and how long they took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Documents {
    /// How many.
    pub count: u64,
    /// Seconds that all took together, from the request to the last byte.
    pub total_seconds: f64,
    /// Documents, or messages, that were under way at the end.
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
    /// The number of the `[[flow]]` table, from 0, that it is of.
    pub table: usize,
    /// Its protocol.
    pub protocol: String,
    /// Measured seconds in which it might send.
    pub seconds: f64,
    /// Bytes that its reader read in that time; of a stream that is striped, what came in order over each connection.
    pub delivered_bytes: u64,
    /// The same in bits a second.
    pub goodput_bps: f64,
    /// Packets sent in that time, as is all that follows but `finished`.
    pub sent: u64,
    /// Of these, sent again (or found lost, with our transport).
    pub retransmitted: u64,
    /// Time-outs (or tail probes).
    pub timeouts: u64,
    /// Data packets that queues dropped.
    pub queue_drops: u64,
    /// Data packets lost on a line.
    pub line_losses: u64,
    /// Mean round-trip time that the sender saw at the looks, and the least, in seconds.
    pub rtt_mean: Option<f64>,
    /// See `rtt_mean`.
    pub rtt_least: Option<f64>,
    /// TCP connections that carried, on average, of a stream that is striped.
    pub connections: Option<f64>,
    /// When all had arrived, of a source with an end; of a copy, when its client was through; in seconds from the start of
    /// the run.
    pub finished: Option<f64>,
    /// Documents, of a source that sends any.
    pub documents: Documents,
}

/// The busiest link in its busier direction, and the queue before it, over the measured time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct QueueReport {
    /// What it joins, from whom to whom.
    pub link: String,
    /// Share of the link's rate that was used; headers, framing and cells count.
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
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Seconds from the start.
    pub seconds: f64,
    /// Which of [`Outcome::flows`], counted from 0.
    pub flow: usize,
    /// Goodput since its last sample.
    pub goodput_bps: f64,
    /// The latest round-trip time, in seconds; of a stream that is striped the mean of its connections' smoothed ones.
    pub rtt: Option<f64>,
    /// Congestion window; of a stream that is striped all windows together.
    pub window_bytes: u64,
    /// The rate at which it may send.
    pub rate_bps: Option<u64>,
    /// TCP connections that carry, of a stream that is striped.
    pub connections: Option<u32>,
    /// Packets in the queue of the busiest link that its data crosses.
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
    /// What limited the flows: the busiest link.
    pub queue: QueueReport,
    /// Packets offered to links in the measured time, those they dropped too, of all flows.
    pub packets: u64,
    /// Packets for which the model of a link had no room ([`path::MAX_HELD`]): with any the rest says nothing.
    #[serde(skip)]
    pub outside_model: u64,
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

/// Bytes on the line, packets offered and dropped by a link.
#[derive(Clone, Copy, Default)]
struct Carried {
    bytes: u64,
    offered: u64,
    dropped: u64,
}

/// What was seen of a link at the glances.
#[derive(Clone, Copy, Default)]
struct Seen {
    /// Packets that waited, and the most.
    queued: u64,
    most: u64,
    /// Sum of its rates, for they may change.
    rates: f64,
}

/// How a flow stood, and how many of its packets were dropped.
type Stood = (Standing, (u64, u64));

/// Sums of round-trip times at the glances, and of connections.
#[derive(Clone, Copy, Default)]
struct Glanced {
    sum: f64,
    count: u64,
    least: Option<f64>,
    connections: Option<u64>,
}

/// What is added up while a run goes on.
pub(super) struct Tally<'a> {
    study: &'a Study,
    /// How the flows stood, what each link had carried and how many packets all, when measuring began.
    before: (Vec<Stood>, Vec<Carried>, u64),
    /// Looks at the links and what was seen.
    glances: u64,
    links: Vec<Seen>,
    flows: Vec<Glanced>,
    /// Of the last sample: when it was, and bytes delivered.
    last: (Duration, Vec<u64>),
    samples: Vec<Sample>,
    /// Where packets waited then: from which sample on, at which link, and how many. Which link is
    /// the busiest shows at the end.
    waiting: Vec<(usize, usize, u64)>,
}

impl<'a> Tally<'a> {
    pub(super) fn new(study: &'a Study, network: &Network) -> Self {
        let flows = network.flows.len();
        Self {
            study,
            before: <_>::default(),
            glances: 0,
            links: vec![Seen::default(); network.links().len()],
            flows: vec![Glanced::default(); flows],
            last: (Duration::ZERO, vec![0; flows]),
            samples: Vec::new(),
            waiting: Vec::new(),
        }
    }

    /// What was before is not counted.
    pub(super) fn begin(&mut self, network: &Network) {
        let flows = network.flows.iter().map(Line::standing);
        let flows = flows.enumerate().map(|(number, standing)| (standing, network.dropped(number)));
        self.before = (flows.collect(), network.links().map(carried).collect(), network.packets());
    }

    pub(super) fn glance(&mut self, at: Duration, network: &Network) {
        if at < self.study.measure_from {
            return;
        }
        self.glances += 1;
        for (seen, link) in self.links.iter_mut().zip(network.links()) {
            let waiting = link.backlog().packets;
            seen.queued += waiting;
            seen.most = seen.most.max(waiting);
            seen.rates += link.config().rate.as_bits_per_sec() as f64;
        }
        // Of thousands of flows each is looked at now and then.
        let every = network.flows.len().div_ceil(16);
        let some = (self.glances as usize % every..network.flows.len()).step_by(every);
        for index in some {
            let standing = network.flows[index].standing();
            // Who is done or was cut off measures no more.
            let stop = self.study.flows[index].stop;
            let is_over = standing.finished.is_some() || stop.is_some_and(|stop| stop <= at);
            if let Some(rtt) = standing.rtt.filter(|_| !is_over).map(|rtt| rtt.as_secs_f64()) {
                let seen = &mut self.flows[index];
                seen.sum += rtt;
                seen.count += 1;
                seen.least = Some(seen.least.map_or(rtt, |least| least.min(rtt)));
                let more = standing.connections.map(u64::from);
                seen.connections = more.map(|more| more + seen.connections.unwrap_or(0));
            }
        }
    }

    pub(super) fn sample(&mut self, at: Duration, network: &Network) {
        let queues = network.links().map(|link| link.backlog().packets).enumerate();
        let queues = queues.filter(|queue| queue.1 > 0);
        let first = self.samples.len();
        self.waiting.extend(queues.map(|(link, packets)| (first, link, packets)));
        let (last, delivered) = &mut self.last;
        let seconds = at.saturating_sub(*last).as_secs_f64();
        for (index, flow) in network.flows.iter().enumerate() {
            let (standing, dropped) = (flow.standing(), network.dropped(index));
            let gained = standing.delivered - delivered[index];
            delivered[index] = standing.delivered;
            self.samples.push(Sample {
                seconds: at.as_secs_f64(),
                flow: index,
                goodput_bps: gained as f64 * 8.0 / seconds,
                rtt: standing.rtt.map(|rtt| rtt.as_secs_f64()),
                window_bytes: standing.window.0,
                rate_bps: standing.rate.map(Rate::as_bits_per_sec),
                connections: standing.connections,
                queue_packets: 0,
                drops: dropped.0 + dropped.1,
            });
        }
        *last = at;
    }

    pub(super) fn outcome(mut self, network: &Network) -> Outcome {
        let used = self.used(network);
        let ways = (0..network.flows.len()).map(|flow| network.way(flow));
        let mut crossed_by = vec![Vec::new(); used.len()];
        for (flow, way) in ways.enumerate() {
            if let Some(link) = busiest(&used, way.iter().copied()) {
                crossed_by[link].push(flow);
            }
        }
        for &(first, link, packets) in &self.waiting {
            for flow in &crossed_by[link] {
                self.samples[first + flow].queue_packets = packets;
            }
        }
        let queue = self.queue(network, &used);
        let before = &self.before.0;
        let flows = network.flows.iter().zip(before).enumerate();
        let flows = flows.map(|(index, (flow, before))| {
            self.flow(index, (flow.standing(), network.dropped(index)), before)
        });
        Outcome {
            seed: self.study.path.seed,
            flows: flows.collect(),
            queue,
            packets: network.packets() - self.before.2,
            outside_model: network.links().map(overflows).sum(),
            samples: self.samples,
        }
    }

    /// Of each link's rate, what was used.
    fn used(&self, network: &Network) -> Vec<f64> {
        let Study { duration, measure_from, .. } = *self.study;
        let seconds = duration.saturating_sub(measure_from).as_secs_f64();
        let glances = self.glances.max(1) as f64;
        let carried = self.before.1.iter().zip(network.links().map(carried));
        let used = |(seen, (before, now)): (&Seen, (&Carried, Carried))| {
            (now.bytes - before.bytes) as f64 * 8.0 / (seen.rates / glances * seconds)
        };
        self.links.iter().zip(carried).map(used).collect()
    }

    /// What was seen of the busiest link.
    fn queue(&self, network: &Network, used: &[f64]) -> QueueReport {
        let number = busiest(used, 0..used.len()).expect("there are links");
        let (utilisation, glances) = (used[number], self.glances.max(1) as f64);
        let (seen, before) = (self.links[number], self.before.1[number]);
        let now = carried(network.link_of(number));
        QueueReport {
            link: network.name(number).to_owned(),
            utilisation,
            mean_packets: seen.queued as f64 / glances,
            most_packets: seen.most,
            offered: now.offered - before.offered,
            dropped: now.dropped - before.dropped,
        }
    }

    fn flow(&self, index: usize, (at, dropped): Stood, (before, earlier): &Stood) -> FlowReport {
        let config = &self.study.flows[index];
        let finished = at.finished.map(Network::since_start);
        let end = config.stop.unwrap_or(self.study.duration).min(self.study.duration);
        let end = finished.unwrap_or(end);
        let seconds = end.saturating_sub(config.start.max(self.study.measure_from)).as_secs_f64();
        let delivered_bytes = at.delivered - before.delivered;
        let seen = &self.flows[index];
        let mean = |sum: f64| (seen.count > 0).then(|| sum / seen.count as f64);
        FlowReport {
            name: config.name.clone(),
            table: config.table,
            protocol: config.protocol.name(),
            seconds,
            delivered_bytes,
            goodput_bps: if seconds > 0.0 { delivered_bytes as f64 * 8.0 / seconds } else { 0.0 },
            sent: at.sent - before.sent,
            retransmitted: at.retransmitted - before.retransmitted,
            timeouts: at.timeouts - before.timeouts,
            queue_drops: dropped.0 - earlier.0,
            line_losses: dropped.1 - earlier.1,
            rtt_mean: mean(seen.sum),
            rtt_least: seen.least,
            connections: seen.connections.and_then(|sum| mean(sum as f64)),
            finished: finished.map(|time| time.as_secs_f64()),
            documents: at.documents.since(before.documents),
        }
    }
}

/// The link of which the most was used, of equally busy ones the first.
fn busiest(used: &[f64], links: impl Iterator<Item = usize>) -> Option<usize> {
    links.fold(None, |most, link| match most {
        Some(most) if used[link] <= used[most] => Some(most),
        _ => Some(link),
    })
}

fn overflows(link: &Unchanging<impl Sized>) -> u64 {
    link.counters().dropped(DropCause::Overflow).packets
}

fn carried(link: &Unchanging<impl Sized>) -> Carried {
    let counters = link.counters();
    let dropped = |cause| counters.dropped(cause).packets;
    Carried {
        bytes: counters.line.0,
        offered: counters.offered.packets,
        dropped: dropped(DropCause::Queue) + dropped(DropCause::Early),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn study(text: &str, from: u64, trace: Option<u64>) -> Study {
        let study: Study = format!("about = \"A test\"\n{text}").parse().expect("a scenario");
        let [measure_from, step] = [from, trace.unwrap_or(1)].map(Duration::from_millis);
        Study { measure_from, trace: trace.map(|_| step), ..study }
    }

    /// Whoever looks changes nothing, and what is counted begins when it was asked for.
    #[test]
    fn a_trace_changes_nothing_of_what_is_counted() {
        let text = "rtt = \"30ms\"\nduration = \"5s\"\n\
            both = { rate = \"20mbit\", queue = \"red\" }\n[[flow]]\n[[flow]]\ntransport = \"tcp\"";
        for from in [0, 1003] {
            let plain = study(text, from, None).run();
            let traced = study(text, from, Some(7)).run();
            assert_eq!(traced.samples.len(), 2 * (5000 / 7));
            assert_eq!(plain, Outcome { samples: Vec::new(), ..traced });
        }
        // A millisecond alone, off the grid of the looks.
        let steady = "rtt = \"4ms\"\nduration = \"2s\"\nboth = { rate = \"100mbit\" }\n\
            [[flow]]\ntransport = \"tcp\"\nwindow = \"100kB\"";
        let goodput = |from| study(steady, from, None).run().flows[0].goodput_bps;
        assert!((goodput(1999) / goodput(1000) - 1.0).abs() < 0.2, "{}", goodput(1999));
    }

    /// A host that needs a millisecond for each packet sends and receives a thousand a second.
    #[test]
    fn a_slow_host_takes_its_time_for_each_packet() {
        for (side, link) in
            [("near", "processing from near host 1"), ("far", "processing to far host 1")]
        {
            let run = |mss: u64| {
                let text = format!(
                    "rtt = \"20ms\"\nduration = \"10s\"\nboth = {{ rate = \"1gbit\" }}\n\
                     [[{side}]]\nper-packet = \"1ms\"\n[[flow]]\ntransport = \"tcp\"\nmss = {mss}\n\
                     window = \"256kB\""
                );
                study(&text, 2000, None).run()
            };
            for mss in [500, 1000] {
                let outcome = run(mss);
                let packets = outcome.goodput("") / 8.0 / mss as f64;
                assert!((packets / 1000.0 - 1.0).abs() < 0.01, "{side}, {mss}: {packets}");
                assert_eq!(outcome.queue.link, link);
                assert!((outcome.queue.utilisation - 1.0).abs() < 0.01, "{:?}", outcome.queue);
            }
        }
    }

    #[test]
    fn what_went_wrong_before_is_not_counted() {
        let text = "rtt = \"20ms\"\nduration = \"20s\"\nboth = { rate = \"50mbit\" }\n\
            forward = { loss = 0.3 }\n[[change]]\nat = \"2s\"\nforward = { loss = 0 }\n\
            [[flow]]\ntransport = \"tcp\"\nwindow = \"64KiB\"";
        let wrong = |flow: &FlowReport| {
            [flow.retransmitted, flow.timeouts, flow.line_losses, flow.queue_drops]
        };
        let all = &study(text, 0, None).run().flows[0];
        assert!(wrong(all)[..3].iter().all(|count| *count > 0), "{all:?}");
        let late = &study(text, 10_000, None).run().flows[0];
        assert_eq!(wrong(late), [0; 4]);
        // All that was sent in these ten seconds, and nothing else, was read in them.
        let read = late.delivered_bytes / 1448;
        assert!(late.sent.abs_diff(read) < 100 && late.sent < all.sent, "{late:?}");
    }

    #[test]
    fn the_busiest_link_is_the_bottleneck_wherever_it_is() {
        let flow = "[[flow]]\ntransport = \"tcp\"\n";
        let cases = [
            ("", "near to far"),
            ("from = \"far\"", "far to near"),
            ("[[near]]\n[[far]]\nrate = \"1mbit\"", "to far host 1"),
            ("from = \"far\"\n[[near]]\nrate = \"1mbit\"", "to near host 1"),
            (
                "between = [\"near\", \"lab\"]\n[[link]]\nbetween = [\"far\", \"lab\"]\nrate = \"1mbit\"",
                "far to lab",
            ),
        ];
        for (more, link) in cases {
            let text = format!(
                "rtt = \"40ms\"\nduration = \"10s\"\nboth = {{ rate = \"5mbit\" }}\n{flow}{more}"
            );
            let outcome = study(&text, 0, Some(100)).run();
            let queue = &outcome.queue;
            assert_eq!(queue.link, link);
            assert!(queue.utilisation > 0.9 && queue.mean_packets > 2.0, "{queue:?}");
            let waited = outcome.samples.iter().map(|sample| sample.queue_packets);
            assert!(waited.max() <= Some(queue.most_packets + 20), "{queue:?}");
            assert!(outcome.samples.iter().any(|sample| sample.queue_packets > 2), "{queue:?}");
        }
    }

    /// Each flow's trace has the queue that its own data waits in.
    #[test]
    fn a_flow_is_shown_the_queue_on_its_way() {
        let text = "rtt = \"40ms\"\nduration = \"5s\"\nboth = { rate = \"20mbit\" }\n\
            [[link]]\nbetween = [\"far\", \"lab\"]\nrate = \"3mbit\"\ndelay = \"1ms\"\n\
            [[flow]]\ntransport = \"tcp\"\n\
            [[flow]]\ntransport = \"tcp\"\nbetween = [\"far\", \"lab\"]\n\
            [[flow]]\ntransport = \"tcp\"\nfrom = \"far\"\nwindow = \"8KiB\"";
        let samples = study(text, 1000, Some(100)).run().samples;
        let of = |flow| {
            let of_flow = samples.iter().filter(move |sample| sample.flow == flow);
            of_flow.map(|sample| sample.queue_packets).collect::<Vec<_>>()
        };
        let queues = [0, 1, 2].map(of);
        assert!(queues[..2].iter().all(|queue| queue.iter().max() > Some(&2)), "{queues:?}");
        assert_ne!(queues[0], queues[1]);
        assert!(queues[2].iter().max() <= Some(&2), "{queues:?}");
    }

    #[test]
    fn a_flow_that_has_ended_measures_no_more() {
        for end in ["source = \"1MB\"", "stop = \"4s\"", "source = \"greedy\""] {
            let text = format!(
                "rtt = \"20ms\"\nduration = \"9s\"\nboth = {{ rate = \"10mbit\" }}\n\
                 [[flow]]\ntransport = \"tcp\"\n{end}"
            );
            let study = study(&text, 5000, None);
            assert_eq!(study.run().flows[0].rtt_mean.is_some(), end.contains("greedy"), "{end}");
        }
    }

    /// Cells take more of a line than the packets that are cut into them.
    #[test]
    fn a_line_of_cells_is_full_when_its_cells_fill_it() {
        let text = "rtt = \"40ms\"\nduration = \"10s\"\nboth = { rate = \"5mbit\", atm = true }\n\
            [[far]]\nrate = \"4.6mbit\"\n[[flow]]\ntransport = \"tcp\"";
        let queue = study(text, 2000, None).run().queue;
        assert_eq!(queue.link, "near to far");
        assert!((queue.utilisation - 1.0).abs() < 0.01, "{queue:?}");
    }
}
