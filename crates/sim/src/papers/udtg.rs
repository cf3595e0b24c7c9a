//! Paper 4: UDT-g and RED-i.

use core::time::Duration;

use path::{Limit, QueueConfig, Scenario};
use transport::cc::Algorithm;
use units::Bytes;

use super::{Judgement, Plot, Row, SEEDS, Seen, alike, scenario, seconds, studies, study, tcp};
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
            "1 Gbit/s, 100 ms; a drop-tail queue of 100 ms, as much as RED holds",
            "hosts with 10 Gbit/s each (the last figure: 1 Gbit/s)",
            "40 s, of which the last 25 are measured; FTP flows start 20 ms apart",
        ],
        seeds: SEEDS,
        work: studies(volume_against_ftp, judge_ftp),
    },
    Row {
        id: "udtg-fig7",
        experiment: "5 volume flows against web readers that take about 20% of the bottleneck",
        paper: "response times with drop-tail about twice those with RED; UDT-g + RED-i best",
        criterion: "same order; drop-tail >= 1.5 times",
        assumptions: &[
            "1 Gbit/s, 100 ms; 2,200 readers; a handshake for each document, first windows of 2",
            "25 s, of which the last 15 are measured",
        ],
        seeds: SEEDS,
        work: studies(volume_against_web, judge_web),
    },
];

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
const UDT_G_DT: usize = 5;
const UDT_G_RED_I: usize = 7;
/// Behind the grid: the others alone, and UDT-g + RED-i between hosts no faster than the bottleneck.
const ALONE: usize = GRID.len();
const SLOW_HOSTS: usize = ALONE + 1;
/// Payload that the link carries, in Mbit/s.
const LIMIT: f64 = 1000.0 * 1460.0 / 1500.0;
const READERS: usize = 2200;

#[derive(Clone, Copy)]
enum Volume {
    Tcp,
    /// With its window scaled to the product of bandwidth and delay.
    TcpC,
    Udt(Algorithm),
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

/// The grid, then the others alone, then with slow hosts.
fn grid(others: &[FlowConfig], length: u64, from: u64) -> Vec<Study> {
    let with = GRID.iter().map(|&(kind, path, _)| {
        let flows = [volume(kind), others.to_vec()].concat();
        run(path, flows, length, from)
    });
    let alone = run("udtg-droptail", others.to_vec(), length, from);
    let (kind, path, _) = GRID[UDT_G_RED_I];
    let mut slow = run(path, [volume(kind), others.to_vec()].concat(), length, from);
    for host in slow.near.iter_mut().chain(&mut slow.far) {
        host.rate = Some(slow.path.forward.rate);
        host.queue = Some(QueueConfig::DropTail(Limit::Packets(10_000)));
    }
    with.chain([alone, slow]).collect()
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

fn judge_ftp(seen: &Seen<Outcome>) -> Judgement {
    let mut judgement = Judgement::new();
    let mbps = |study: usize, name: &'static str| {
        seen.spread(study, |outcome: &Outcome| outcome.goodput(name) / 1e6).median
    };
    let alone = mbps(ALONE, "ftp");
    judgement.tell(format!("FTP alone: {alone:.0} Mbit/s"));
    let grid: Vec<_> = (0..GRID.len()).map(|at| (mbps(at, "volume"), mbps(at, "ftp"))).collect();
    for ((volume, ftp), (.., name)) in grid.iter().zip(GRID) {
        let taken = 100.0 * (1.0 - ftp / alone);
        judgement.tell(format!("{name}: volume {volume:.0}, FTP {ftp:.0}, taken {taken:.0} %"));
    }
    judgement.plot(bars("Paper 4, figure 6: volume flows", grid.iter().map(|rates| rates.0)));
    judgement.plot(bars("Paper 4, figure 6: FTP flows", grid.iter().map(|rates| rates.1)));
    let used = |at: usize| (grid[at].0 + grid[at].1) / LIMIT;
    let taken = |at: usize| 1.0 - grid[at].1 / alone;
    let share = |at: usize| format!("{:.0} %", 100.0 * used(at));
    judgement.ask(used(TCP) < 0.9, format!("TCP fills {}", share(TCP)));
    judgement
        .ask(grid[TCP_C].0 < grid[UDT_DT].0, format!("TCP-c fills {}, below UDT", share(TCP_C)));
    judgement.ask(used(UDT_DT) >= 0.95, format!("UDT + drop-tail fills {}", share(UDT_DT)));
    judgement
        .ask(used(UDT_RED) < used(UDT_DT), format!("UDT + RED-a fills {}, less", share(UDT_RED)));
    let harm = |at: usize| format!("{:.0} %", 100.0 * taken(at));
    judgement.ask(taken(UDT_DT) >= 0.3, format!("UDT + drop-tail takes {}", harm(UDT_DT)));
    let less = taken(UDT_G_DT) < taken(UDT_DT);
    judgement.ask(less, format!("UDT-g + drop-tail takes {}, less", harm(UDT_G_DT)));
    judgement.ask(taken(UDT_G_RED_I) <= 0.1, format!("UDT-g + RED-i takes {}", harm(UDT_G_RED_I)));
    let rest = grid[UDT_G_RED_I].0 / (LIMIT - grid[UDT_G_RED_I].1);
    judgement.ask(rest >= 0.9, format!("UDT-g + RED-i has {:.0} % of the rest", 100.0 * rest));
    let slow = 100.0 * (1.0 - mbps(SLOW_HOSTS, "ftp") / alone);
    judgement.tell(format!("hosts of 1 Gbit/s: UDT-g + RED-i takes {slow:.0} %"));
    judgement.because(
        "The FTP flows have fixed windows: the 50 ms of queue at which RED begins to drop cost them a third \
         by the round-trip time alone, so UDT-g would have to stay out of the queue. But the estimate that \
         it weighs down is, in the Internet draft, the median of sixteen packet pairs, and pairs from \
         hosts ten times faster than the bottleneck cross it nearly always unseparated: it stays at the \
         link's rate, and UDT-g is UDT. Where hosts are no faster than the bottleneck, pairs are torn \
         apart and UDT-g takes much less, as the last figure shows. The paper tells neither its hosts' \
         links nor rate nor delay.",
    )
}

/// A curve for each kind of volume flow over the queues: drop-tail, RED-a, RED-i.
fn bars(title: &str, figures: impl Iterator<Item = f64>) -> Plot {
    let figures: Vec<f64> = figures.collect();
    let queues = ["udtg-droptail", "udtg-red", "udtg-red-i"];
    let plot = Plot::new(title, "1 drop-tail, 2 RED-a, 3 RED-i", "Mbit/s or ms");
    ["TCP +", "TCP-c +", "UDT +", "UDT-g +"].into_iter().fold(plot, |plot, kind| {
        let own = GRID.iter().zip(&figures).filter(|((.., name), _)| name.starts_with(kind));
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

fn judge_web(seen: &Seen<Outcome>) -> Judgement {
    let mut judgement = Judgement::new();
    let loss =
        |outcome: &Outcome| 100.0 * outcome.queue.dropped as f64 / outcome.queue.offered as f64;
    let times = seen.medians(0..SLOW_HOSTS + 1, response);
    let losses = seen.medians(0..ALONE + 1, loss);
    let web = seen.spread(ALONE, |outcome| outcome.goodput("web") / 1e6).median;
    judgement.ask(
        (150.0..=250.0).contains(&web),
        format!("readers alone: {:.0} ms, {web:.0} Mbit/s", times[ALONE]),
    );
    for (at, (.., name)) in GRID.iter().enumerate() {
        judgement.tell(format!("{name}: {:.0} ms, {:.2} % lost", times[at], losses[at]));
    }
    judgement.plot(bars("Paper 4, figure 7: response", times[..ALONE].iter().copied()));
    for (tail, red, name) in [(2, 3, "UDT"), (5, 6, "UDT-g")] {
        let ratio = times[tail] / times[red];
        judgement.ask(ratio >= 1.5, format!("{name}: drop-tail {ratio:.2} times RED-a"));
    }
    let best = (2..7).all(|at| times[UDT_G_RED_I] <= times[at]);
    judgement.ask(best, "UDT-g + RED-i is the fastest of UDT's".to_owned());
    judgement.tell(format!("hosts of 1 Gbit/s: UDT-g + RED-i {:.0} ms", times[SLOW_HOSTS]));
    judgement.because(
        "UDT and UDT-g fill whatever queue they are given (see udtg-fig6), and RED with thresholds of BDP/2 \
         and BDP gives them most of a round-trip time's worth: documents, which take two and a half round \
         trips alone, wait there nearly as long as with drop-tail.",
    )
}
