//! Paper 4: UDT-g and RED-i.

use core::time::Duration;

use path::{Limit, QueueConfig, Scenario};
use transport::cc::Algorithm;
use units::{Bytes, Rate};

use super::{
    Judgement, Plot, Row, SEEDS, Seen, Spread, Spreads, alike, both, ms, scenario, seconds,
    studies, study, tcp, with_rtt,
};
use crate::study::{FlowConfig, Outcome, Protocol, Study};
use crate::tcp::{Config, Http, Recovery, Source};

pub(super) const ROWS: &[Row] = &[
    Row {
        id: "udtg-fig6",
        experiment: "5 volume flows (TCP, TCP-c, UDT, UDT-g) against 50 FTP flows of 64 KB, with \
                     drop-tail, RED-a and RED-i",
        paper: "TCP cannot fill the pipe; UDT fills it at the FTP flows' cost; UDT + RED-a cannot \
                fill it; UDT-g + RED-i fills it without much harm",
        criterion: "the same order in every pair that the text names; UDT + drop-tail takes >= 30% from \
                    the FTP flows, UDT-g + RED-i <= 10% at >= 90% of the rest of the bottleneck",
        assumptions: &[
            PATH,
            HOSTS,
            RED,
            UDT,
            "40 s, of which the last 25 are measured; FTP flows start 20 ms apart",
            "what fills the pipe uses 95% of what it carries, and what cannot fill it less than 90%",
        ],
        seeds: SEEDS,
        work: studies(volume_against_ftp, judge_ftp),
    },
    Row {
        id: "udtg-fig7",
        experiment: "5 volume flows against web readers that take about 20% of the bottleneck",
        paper: "response times with drop-tail about twice those with RED; UDT-g + RED-i best",
        criterion: "same order of times and losses, UDT-g + RED-i the best of UDT's; drop-tail >= 1.5 times RED-a's times",
        assumptions: &[
            PATH,
            HOSTS,
            RED,
            UDT,
            "2,600 readers; a handshake for each document, first windows of 2",
            "25 s; documents that arrive in the last 15 are counted",
            "best is told of what fills the pipe: TCP, which does not, leaves more to the readers",
        ],
        seeds: SEEDS,
        work: studies(volume_against_web, judge_web),
    },
];

/// What holds for both rows.
const PATH: &str = "1 Gbit/s, 100 ms; a drop-tail queue of 100 ms, RED's upper threshold (the last figures: 200 ms; \
                    622 Mbit/s; a drop-tail queue of 25 ms)";
const HOSTS: &str = "hosts with 10 Gbit/s each (the last figures: 1 Gbit/s)";
const RED: &str = "what of RED the paper does not name is as ns-2 has it, on which it ran: gentle, drops from 1/p to 2/p \
                   packets apart, and of each queue length 8e-6 in RED-a's average, by its rule for this link and \
                   packets of 1500 bytes (the last figures: 2.7e-6, by that rule for packets of 500 bytes, ns-2's \
                   default; 0.002, Floyd and Jacobson's; a queue that holds 100 ms and not twice as much)";
const UDT: &str = "UDT as in the Internet draft, the successor of the paper's UDTv2: beside one TCP flow on 100 Mbit/s and \
                   100 ms it takes more than its authors' own ns-2 model, which takes 65 and leaves 32 \
                   (a test holds it to 76 to 88, and 8 to 16)";

/// Each kind of volume flow with its queue, in the order of the studies.
const GRID: [(Volume, &str, &str); 8] = [
    (Volume::Tcp, "udtg-red", "TCP + RED-a"),
    (Volume::TcpC, "udtg-red", "TCP-c + RED-a"),
    (Volume::Udt(Algorithm::Udt), "udtg-droptail", "UDT + drop-tail"),
    (Volume::Udt(Algorithm::Udt), "udtg-red", "UDT + RED-a"),
    (Volume::Udt(Algorithm::Udt), "udtg-red-i", "UDT + RED-i"),
    (Volume::Udt(Algorithm::UdtG), "udtg-droptail", "UDT-g + drop-tail"),
    (Volume::Udt(Algorithm::UdtG), "udtg-red", "UDT-g + RED-a"),
    (Volume::Udt(Algorithm::UdtG), "udtg-red-i", "UDT-g + RED-i"),
];
const TCP: usize = 0;
const TCP_C: usize = 1;
const UDT_DT: usize = 2;
const UDT_RED: usize = 3;
const UDT_RED_I: usize = 4;
const UDT_G_DT: usize = 5;
const UDT_G_RED_I: usize = 7;
/// Behind the grid: the others alone, and then what else might have been assumed.
const ALONE: usize = GRID.len();
/// Payload in a bit on the line.
const TCP_SHARE: f64 = 1460.0 / 1500.0;
const UDT_SHARE: f64 = 1440.0 / 1500.0;
const READERS: usize = 2600;

#[derive(Clone, Copy)]
enum Volume {
    Tcp,
    /// With its window scaled to the product of bandwidth and delay.
    TcpC,
    Udt(Algorithm),
}

impl Volume {
    /// Payload in a bit on the line.
    fn payload(self) -> f64 {
        match self {
            Self::Tcp | Self::TcpC => TCP_SHARE,
            Self::Udt(_) => UDT_SHARE,
        }
    }
}

fn newreno() -> Config {
    Config { initial_window: 2, nagle: false, ..Config::classic(Recovery::NewReno, 1460, 65_535) }
}

fn volume(kind: Volume) -> Vec<FlowConfig> {
    match kind {
        Volume::Tcp => tcp("volume", 5, newreno(), Source::Greedy),
        Volume::TcpC => {
            let wide = Config { scaling: true, window: Bytes(12_500_000), ..newreno() };
            tcp("volume", 5, wide, Source::Greedy)
        }
        Volume::Udt(congestion) => {
            let config = transport::Config { congestion, ..transport::Config::default() };
            alike("volume", 5, Protocol::Longhaul(config), Source::Greedy)
        }
    }
}

/// Flows between the hosts of a preset, each of which has a link of its own: what two packets meet
/// between them tells UDT of the other flows.
fn run(name: &str, mut flows: Vec<FlowConfig>, length: u64, from: u64) -> Study {
    let Scenario { path, near, far, .. } = scenario(name);
    for (index, flow) in flows.iter_mut().enumerate() {
        flow.near = index % Scenario::hosts(&near).count();
        flow.far = index % Scenario::hosts(&far).count();
    }
    let study = study(path, flows, seconds(length));
    Study { near, far, measure_from: seconds(from), ..study }
}

/// What else might have been assumed.
struct Other {
    name: &'static str,
    /// Whose place in the grid is taken; or the others alone.
    of: usize,
    change: fn(&mut Study),
    /// The study of the others alone on such a path.
    alone: usize,
}

const OTHERS: [Other; 18] = {
    const fn other(name: &'static str, of: usize, change: fn(&mut Study), alone: usize) -> Other {
        Other { name, of, change, alone }
    }
    [
        other("hosts of 1 Gbit/s", UDT_G_RED_I, slow_hosts, ALONE),
        other("weight 0.002", TCP_C, |study| red_a(study, "red:wait=yes"), ALONE),
        other("weight 0.002", UDT_RED, |study| red_a(study, "red:wait=yes"), ALONE),
        other("weight 2.7e-6", UDT_RED, |study| red_a(study, "red:weight=2.7e-6,wait=yes"), ALONE),
        other("a queue of 100 ms", UDT_RED, |study| red_a(study, SHORT), ALONE),
        other("a queue of 25 ms", UDT_DT, |study| red_a(study, "25ms"), ALONE),
        other("a queue of 25 ms", UDT_G_DT, |study| red_a(study, "25ms"), ALONE),
        other("200 ms", ALONE, far, FAR),
        other("200 ms", UDT_DT, far, FAR),
        other("200 ms", UDT_G_RED_I, far, FAR),
        other("622 Mbit/s", ALONE, slow, SLOW),
        other("622 Mbit/s", UDT_DT, slow, SLOW),
        other("622 Mbit/s", UDT_G_RED_I, slow, SLOW),
        other("200 ms", TCP_C, far, FAR),
        other("622 Mbit/s", TCP_C, slow, SLOW),
        other("200 ms, hosts of 1 Gbit/s", UDT_G_RED_I, far_hosts, FAR),
        other("622 Mbit/s, and the hosts", UDT_G_RED_I, slow_path_and_hosts, SLOW),
        other("hosts of 1 Gbit/s, a queue of 25 ms", UDT_G_DT, slow_hosts_shallow, ALONE),
    ]
};
/// Studies of [`OTHERS`]: slow hosts, UDT with RED-a of weight 0.002, and the others alone on other paths.
const SLOW_HOSTS: usize = ALONE + 1;
const QUICK_AVERAGE: usize = ALONE + 3;
const FAR: usize = ALONE + 8;
const SLOW: usize = ALONE + 11;
const SHORT: &str = "red:weight=8e-6,wait=yes,limit=100ms";

fn slow_hosts(study: &mut Study) {
    for host in study.near.iter_mut().chain(&mut study.far) {
        host.rate = Some(study.path.forward.rate);
        host.queue = Some(QueueConfig::DropTail(Limit::Packets(10_000)));
    }
}

fn red_a(study: &mut Study, queue: &str) {
    study.path.forward.queue = queue.parse().expect("a queue");
}

/// A queue that is told as a time grows with the path.
fn far(study: &mut Study) {
    study.path = with_rtt(study.path.clone(), ms(200));
    if matches!(study.path.forward.queue, QueueConfig::DropTail(_)) {
        red_a(study, "200ms");
    }
}

fn slow(study: &mut Study) {
    study.path = both(study.path.clone(), |link| link.rate = Rate::from_bits_per_sec(622_000_000));
}

fn far_hosts(study: &mut Study) {
    far(study);
    slow_hosts(study);
}

fn slow_path_and_hosts(study: &mut Study) {
    slow(study);
    slow_hosts(study);
}

fn slow_hosts_shallow(study: &mut Study) {
    red_a(study, "25ms");
    slow_hosts(study);
}

/// The grid, then the others alone, then each of [`OTHERS`].
fn grid(others: &[FlowConfig], length: u64, from: u64) -> Vec<Study> {
    let with = GRID.iter().map(|&(kind, path, _)| {
        let flows = [volume(kind), others.to_vec()].concat();
        run(path, flows, length, from)
    });
    let alone = || run("udtg-droptail", others.to_vec(), length, from);
    let otherwise = OTHERS.iter().map(|other| {
        let study = GRID.get(other.of).map(|&(kind, path, _)| {
            run(path, [volume(kind), others.to_vec()].concat(), length, from)
        });
        let mut study = study.unwrap_or_else(alone);
        (other.change)(&mut study);
        study
    });
    with.chain([alone()]).chain(otherwise).collect()
}

fn volume_against_ftp() -> Vec<Study> {
    let mut ftp = tcp("ftp", 50, newreno(), Source::Greedy);
    for (index, flow) in ftp.iter_mut().enumerate() {
        flow.start = Duration::from_millis(20) * index as u32;
    }
    grid(&ftp, 40, 15)
}

fn volume_against_web() -> Vec<Study> {
    grid(&tcp("web", READERS, newreno(), Source::Http(Http::default())), 25, 10)
}

/// What fills the pipe, as a share of what it carries, and what cannot.
const FULL: f64 = 0.95;
const NOT_FULL: f64 = 0.9;

/// Milliseconds that a packet waits at the bottleneck on average.
fn wait(outcome: &Outcome) -> f64 {
    outcome.queue.mean_packets * 1500.0 * 8.0 / 1e6
}

/// Percent of the packets that the bottleneck dropped.
fn loss(outcome: &Outcome) -> f64 {
    100.0 * outcome.queue.dropped as f64 / outcome.queue.offered as f64
}

/// Why the pipe is full, of percents lost and used.
fn why_full(at: usize, lost: f64, used: f64) -> String {
    let why = if at == TCP_C {
        "So it is in ns-2, on which the paper ran, with the same parameters (crates/sim/tests/data/udtg-fig6.tcl): 706 and \
         745 Mbit/s with two seeds, and 252 and 228 for the FTP flows. What the paper does not tell, its rate, delay or \
         RED's weight, must be another."
    } else {
        "What is lost slows the flows down less than it slowed the paper's."
    };
    let name = GRID[at].2;
    format!(
        "{name}: {lost:.2} % of the packets are lost and {used:.0} % of the link are used all the same. {why}"
    )
}

fn judge_ftp(seen: &Seen<Outcome>) -> Judgement {
    let mut judgement = Judgement::new();
    let mbps = |study: usize, name: &'static str| {
        seen.spread(study, |outcome: &Outcome| outcome.goodput(name) / 1e6)
    };
    let alone = mbps(ALONE, "ftp");
    judgement.tell(format!("FTP alone: {alone:.0} Mbit/s"));
    let volume = seen.spreads(0..GRID.len(), |outcome| outcome.goodput("volume") / 1e6);
    let ftp = seen.spreads(0..GRID.len(), |outcome| outcome.goodput("ftp") / 1e6);
    let [waits, losses] = [wait, loss].map(|of| seen.spreads(0..GRID.len(), of));
    let taken = |at: usize| 1.0 - ftp[at].median / alone.median;
    for (at, (.., name)) in GRID.iter().enumerate() {
        judgement.tell(format!(
            "{name}: volume {:.0}, FTP {:.0}, taken {:.0} %; a wait of {:.0} ms, {:.2} % lost",
            volume[at],
            ftp[at],
            100.0 * taken(at),
            waits[at],
            losses[at]
        ));
    }
    judgement.plot(bars("Paper 4, figure 6: volume flows", &volume));
    judgement.plot(bars("Paper 4, figure 6: FTP flows", &ftp));
    let line_of_volume = |at: usize| volume[at].median / GRID[at].0.payload();
    let line_of_ftp = |at: usize| ftp[at].median / TCP_SHARE;
    let used = |at: usize| (line_of_volume(at) + line_of_ftp(at)) / 1000.0;
    let fills = |at: usize| format!("{} fills {:.0} %", GRID[at].2, 100.0 * used(at));
    let takes = |at: usize| format!("{} takes {:.0} %", GRID[at].2, 100.0 * taken(at));
    let least = (ALONE + 1..).zip(&OTHERS).filter(|(_, other)| other.of == UDT_G_RED_I);
    let least = least
        .map(|(at, other)| 1.0 - mbps(at, "ftp").median / mbps(other.alone, "ftp").median)
        .fold(f64::MAX, f64::min);
    // The share that windows which do not grow lose by the wait alone.
    let why = |at: usize| {
        format!(
            "{}: the FTP flows have fixed windows, of which the wait of {:.0} ms beside the 100 ms of the path \
             costs {:.0} % by itself; the rest is lost packets, {:.2} %. What UDT-g weighs down is a median of \
             packet pairs, and those of hosts of 10 Gbit/s cross the bottleneck without being torn apart: with \
             hosts of 1 Gbit/s, whose pairs other flows do tear apart, {:.0} % are taken with RED-i, and {:.0} % is the least with \
             any rate, delay and hosts that are shown. The paper tells none of them; and this UDT is harder on TCP than its authors' \
             model of UDTv2.",
            GRID[at].2,
            waits[at].median,
            100.0 * waits[at].median / (100.0 + waits[at].median),
            losses[at].median,
            100.0 * (1.0 - mbps(SLOW_HOSTS, "ftp").median / alone.median),
            100.0 * least
        )
    };
    let full = |at: usize| why_full(at, losses[at].median, 100.0 * used(at));
    for at in [TCP, TCP_C, UDT_RED] {
        let line = format!("{}, which is not to be filled", fills(at));
        judgement.ask(used(at) < NOT_FULL, line).because(|| full(at));
    }
    for at in [TCP, TCP_C] {
        let line = format!("volume flows of {} below those of UDT + drop-tail", GRID[at].2);
        judgement.ask(volume[at].median < volume[UDT_DT].median, line);
    }
    judgement.ask(used(UDT_DT) >= FULL, fills(UDT_DT));
    judgement.ask(used(UDT_RED) < used(UDT_DT), format!("{}, less", fills(UDT_RED)));
    judgement.ask(taken(UDT_DT) >= 0.3, takes(UDT_DT)).because(|| why(UDT_DT));
    let less = taken(UDT_G_DT) < taken(UDT_DT);
    let line = format!("{}, less than UDT", takes(UDT_G_DT));
    judgement.ask(less, line).because(|| why(UDT_G_DT));
    judgement.ask(taken(UDT_G_RED_I) <= 0.1, takes(UDT_G_RED_I)).because(|| why(UDT_G_RED_I));
    let rest = line_of_volume(UDT_G_RED_I) / (1000.0 - line_of_ftp(UDT_G_RED_I));
    judgement.ask(rest >= 0.9, format!("UDT-g + RED-i has {:.0} % of the rest", 100.0 * rest));
    tell_otherwise(seen, &mut judgement);
    judgement
}

/// What else might have been assumed comes to.
fn tell_otherwise(seen: &Seen<Outcome>, judgement: &mut Judgement) {
    let mbps = |study: usize, name: &'static str| {
        seen.spread(study, |outcome: &Outcome| outcome.goodput(name) / 1e6)
    };
    for (at, other) in (ALONE + 1..).zip(&OTHERS) {
        let (volume, ftp) = (mbps(at, "volume"), mbps(at, "ftp"));
        judgement.tell(match GRID.get(other.of) {
            Some((.., name)) => format!(
                "{}: {name}: volume {volume:.0}, FTP {ftp:.0}, taken {:.0} %",
                other.name,
                100.0 * (1.0 - ftp.median / mbps(other.alone, "ftp").median)
            ),
            None => format!("{}: FTP alone: {ftp:.0} Mbit/s", other.name),
        });
    }
}

/// A curve for each kind of volume flow over the queues: drop-tail, RED-a, RED-i.
fn bars(title: &str, figures: &Spreads) -> Plot {
    let queues = ["udtg-droptail", "udtg-red", "udtg-red-i"];
    let plot = Plot::new(title, "1 drop-tail, 2 RED-a, 3 RED-i", "Mbit/s or ms");
    ["TCP +", "TCP-c +", "UDT +", "UDT-g +"].into_iter().fold(plot, |plot, kind| {
        let own = GRID.iter().zip(&figures.0).filter(|((.., name), _)| name.starts_with(kind));
        let place = |queue: &str| queues.iter().position(|name| *name == queue).unwrap_or_default();
        let points = own.map(|((_, queue, _), &figure)| (place(queue) as f64 + 1.0, figure));
        plot.curve(kind.trim_end_matches(" +"), points)
    })
}

/// Mean time of a document in milliseconds.
fn response(outcome: &Outcome) -> f64 {
    let (count, total) = outcome.of("web").fold((0, 0.0), |(count, total), flow| {
        (count + flow.documents.count, total + flow.documents.total_seconds)
    });
    1e3 * total / count as f64
}

/// Documents that were under way when the run ended, for each 100 that had arrived.
fn unfinished(outcome: &Outcome) -> f64 {
    let (count, open) = outcome.of("web").fold((0, 0), |(count, open), flow| {
        (count + flow.documents.count, open + flow.documents.unfinished)
    });
    100.0 * open as f64 / count as f64
}

fn judge_web(seen: &Seen<Outcome>) -> Judgement {
    let mut judgement = Judgement::new();
    let times = seen.spreads(0..SLOW_HOSTS + OTHERS.len(), response);
    let losses = seen.spreads(0..ALONE + 1, loss);
    let open = seen.spreads(0..ALONE + 1, unfinished);
    let waits = seen.spreads(0..ALONE + 1, wait);
    let web = seen.spread(ALONE, |outcome| outcome.goodput("web") / 1e6);
    judgement.ask(
        (150.0..=250.0).contains(&web.median),
        format!("readers alone: {:.0} ms, {web:.0} Mbit/s", times[ALONE]),
    );
    for (at, (.., name)) in GRID.iter().enumerate() {
        judgement.tell(format!(
            "{name}: {:.0} ms, {:.2} % lost; for 100 documents {:.1} not finished",
            times[at], losses[at], open[at]
        ));
    }
    let grid = |all: &Spreads| Spreads(all.0[..ALONE].to_vec());
    judgement.plot(bars("Paper 4, figure 7: response", &grid(&times)));
    judgement.plot(bars("Paper 4, figure 7: percent lost", &grid(&losses)));
    for (tail, red, name) in [(2, 3, "UDT"), (5, 6, "UDT-g")] {
        let ratio = times[tail].median / times[red].median;
        let line = format!("{name}: drop-tail {ratio:.2} times RED-a");
        judgement.ask(ratio >= 1.5, line).because(|| {
            format!(
                "{name} fills whatever queue it is given: {:.0} ms of waiting with drop-tail, {:.0} with RED-a, in \
                 each of the two and a half round trips of a document, which takes {:.0} ms where nobody \
                 else sends.",
                waits[tail].median, waits[red].median, times[ALONE].median
            )
        });
        let line = format!("{name}: RED-a loses less than drop-tail");
        judgement.ask(losses[red].median < losses[tail].median, line).because(|| {
            format!(
                "{name}: {:.2} % lost with RED-a, {:.2} % with drop-tail, {:.2} % with RED-a's average of 0.002. By ns-2's \
                 rule that average follows the queue within 125,000 packets, a second and a half: it lets the queue \
                 overflow, and goes on dropping when that is long empty.",
                losses[red].median,
                losses[tail].median,
                seen.spread(QUICK_AVERAGE, loss).median
            )
        });
    }
    let least =
        |all: &Spreads| (2..UDT_G_RED_I).all(|at| all[UDT_G_RED_I].median <= all[at].median);
    // UDT-g is gentler by its estimate alone.
    let no_gentler = |what: &str, all: &Spreads, slow: &Spread| {
        format!(
            "{what}: {:.2} with UDT-g + RED-i, {:.2} with UDT + RED-i. Packet pairs of hosts of 10 Gbit/s are not torn \
             apart by others, so both estimate what the bottleneck carries, and weighing that down changes \
             little. With hosts of 1 Gbit/s, whose pairs are, it is {slow:.2}.",
            all[UDT_G_RED_I], all[UDT_RED_I]
        )
    };
    judgement
        .ask(least(&times), "UDT-g + RED-i is the fastest of UDT's".to_owned())
        .because(|| no_gentler("Milliseconds", &times, &times[SLOW_HOSTS]));
    judgement
        .ask(least(&losses), "UDT-g + RED-i loses the least of UDT's".to_owned())
        .because(|| no_gentler("Percent lost", &losses, &seen.spread(SLOW_HOSTS, loss)));
    for (at, other) in (ALONE + 1..).zip(&OTHERS) {
        let name = GRID.get(other.of).map_or("readers alone", |row| row.2);
        let lost = seen.spread(at, loss);
        judgement.tell(format!("{}: {name}: {:.0} ms, {lost:.2} % lost", other.name, times[at]));
    }
    judgement
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::{Documents, FlowReport, QueueReport};

    fn flow(name: &str, mbps: f64, milliseconds: f64) -> FlowReport {
        let total_seconds = milliseconds / 1e3 * 100.0;
        FlowReport {
            table: 0,
            name: name.to_owned(),
            protocol: String::new(),
            seconds: 1.0,
            delivered_bytes: 0,
            goodput_bps: mbps * 1e6,
            sent: 0,
            retransmitted: 0,
            timeouts: 0,
            queue_drops: 0,
            line_losses: 0,
            rtt_mean: None,
            rtt_least: None,
            connections: None,
            finished: None,
            documents: Documents { count: 100, total_seconds, unfinished: 1 },
        }
    }

    fn outcome(flows: Vec<FlowReport>, dropped: u64) -> Outcome {
        let queue = QueueReport {
            link: String::new(),
            utilisation: 1.0,
            mean_packets: 1000.0,
            most_packets: 2000,
            offered: 10_000,
            dropped,
        };
        Outcome { seed: 1, flows, queue, packets: 0, outside_model: 0, samples: Vec::new() }
    }

    /// As the paper has it: volume flows and FTP in Mbit/s, for the grid and alone.
    const PAPER: [(f64, f64); ALONE + 1] = [
        (26.0, 257.0),
        (500.0, 250.0),
        (880.0, 60.0),
        (600.0, 200.0),
        (700.0, 200.0),
        (800.0, 150.0),
        (650.0, 230.0),
        (710.0, 250.0),
        (0.0, 257.0),
    ];

    /// With all that else is assumed, as the last.
    fn with_others<T: Copy>(grid: &[T]) -> Vec<T> {
        let others = vec![grid[UDT_G_RED_I]; OTHERS.len()];
        [grid, &others].concat()
    }

    #[test]
    fn what_is_assumed_otherwise_is_where_it_is_looked_for() {
        let studies = volume_against_ftp();
        assert_eq!(studies.len(), ALONE + 1 + OTHERS.len());
        for alone in [ALONE, FAR, SLOW] {
            assert!(studies[alone].flows.iter().all(|flow| flow.name.starts_with("ftp")));
        }
        for (study, other) in studies[ALONE + 1..].iter().zip(&OTHERS) {
            let alone = &studies[other.alone].path;
            let same =
                (study.path.rtt(), study.path.forward.rate) == (alone.rtt(), alone.forward.rate);
            assert!(same, "{}", other.name);
            assert_ne!(other.of == ALONE, study.flows.len() == 55, "{}", other.name);
        }
        assert_eq!(
            (OTHERS[QUICK_AVERAGE - ALONE - 1].of, OTHERS[QUICK_AVERAGE - ALONE - 1].name),
            (UDT_RED, "weight 0.002")
        );
        assert_eq!(studies[SLOW_HOSTS].near[0].rate, Some(studies[SLOW_HOSTS].path.forward.rate));
    }

    #[test]
    fn volume_and_ftp_flows_are_judged_by_the_papers_words() {
        let judged = |changed: usize, rates: (f64, f64)| {
            let mut all = PAPER;
            all[changed] = rates;
            let all = with_others(&all);
            let shown = all.iter().map(|&(volume, ftp)| {
                outcome(vec![flow("volume", volume, 0.0), flow("ftp", ftp, 0.0)], 100)
            });
            judge_ftp(&Seen::new(shown.collect(), all.len()))
        };
        let good = judged(0, PAPER[0]);
        assert!(good.passed, "{good:?}");
        // Each of what the text says, not so.
        for (at, rates) in [
            (TCP, (700.0, 257.0)),
            (TCP_C, (900.0, 60.0)),
            (UDT_DT, (500.0, 60.0)),
            (UDT_DT, (760.0, 200.0)),
            (UDT_RED, (860.0, 60.0)),
            (UDT_G_DT, (900.0, 50.0)),
            (UDT_G_RED_I, (770.0, 200.0)),
            (UDT_G_RED_I, (500.0, 250.0)),
        ] {
            let bad = judged(at, rates);
            assert!(!bad.passed && !bad.reasons.is_empty(), "{at}: {bad:?}");
        }
        let harm = judged(UDT_G_RED_I, (770.0, 200.0));
        assert!(harm.reasons[0].contains("12 ms beside the 100 ms"), "{harm:?}");
    }

    #[test]
    fn readers_are_judged_by_times_and_losses() {
        // Milliseconds, and packets dropped of 10,000.
        let paper = [
            (253.0, 0),
            (284.0, 10),
            (600.0, 300),
            (300.0, 200),
            (290.0, 150),
            (580.0, 250),
            (290.0, 120),
            (270.0, 50),
            (253.0, 0),
        ];
        let judged = |changed: usize, shown: (f64, u64)| {
            let mut all = paper;
            all[changed] = shown;
            let all = with_others(&all);
            let shown = all.iter();
            let shown = shown.map(|&(time, lost)| outcome(vec![flow("web", 200.0, time)], lost));
            judge_web(&Seen::new(shown.collect(), all.len()))
        };
        let good = judged(0, paper[0]);
        assert!(good.passed, "{good:?}");
        assert!(good.figures.iter().any(|line| line.contains("1.0 not finished")), "{good:?}");
        for (at, shown) in
            [(2, (400.0, 300)), (3, (300.0, 310)), (7, (295.0, 50)), (7, (270.0, 160))]
        {
            assert!(!judged(at, shown).passed, "{at}");
        }
    }
}
