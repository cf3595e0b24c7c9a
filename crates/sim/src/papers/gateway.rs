//! Paper 2: the TCP gateway between two networks, simulated without it, and across the emulator with
//! the real one.

use core::time::Duration;

use units::Rate;

use super::{
    Crossed, Crossing, Judgement, Lan, Load, Plot, Row, SEEDS, Seen, Task, crossings, ms, preset,
    seconds, studies, study, tcp,
};
use crate::study::{Outcome, Study};
use crate::tcp::{Config, Recovery, Source};

const KERNEL: &str = "Linux's CUBIC on the hosts, whose windows are held to four segments of 8,192 bytes (ATM) and \
                      five of 1,460 (Ethernet)";

pub(super) const ROWS: &[Row] = &[
    Row {
        id: "gw-eq1",
        experiment: "one connection without gateway, of a host on an ATM and on an Ethernet LAN",
        paper: "1.47 and 0.33 Mbit/s by equation 1, 1.42 and 0.32 measured",
        criterion: "within 5% of equation 1 as the paper has it",
        assumptions: &["windows of 32,768 and 7,300 bytes, whole segments of 8,192 and 1,460"],
        seeds: SEEDS,
        work: studies(without_gateway, |seen| {
            judge_eq1(seen, |outcome: &Outcome| outcome.goodput("") / 1e6)
        }),
    },
    Row {
        id: "gw-eq1",
        experiment: "one connection without gateway, of a host on an ATM and on an Ethernet LAN, by iperf3",
        paper: "1.47 and 0.33 Mbit/s by equation 1, 1.42 and 0.32 measured",
        criterion: "within 5% of equation 1 as the paper has it",
        assumptions: &[KERNEL, "20 s of steady state"],
        seeds: SEEDS,
        work: crossings(
            || LANS.map(|lan| Crossing::between(lan, false, sending(1))).into(),
            |seen| judge_eq1(seen, Crossed::mbps),
            TOGETHER,
        ),
    },
    Row {
        id: "gw-fig7-8",
        experiment: "1 to 8 connections with and without gateways, by iperf3",
        paper: "with gateways 21.2 (ATM) and 5.69 Mbit/s (Ethernet), several > 25 and > 6.5; without, in \
                proportion to their number",
        criterion: "with gateways: 1 connection >= 21.2 (ATM) and >= 5.69 (Ethernet); 2, 4 and 8 >= 95% of the \
                    trunk's 27.1 (ATM), >= 6.5 (Ethernet)",
        assumptions: &[KERNEL, "20 s of steady state"],
        seeds: SEEDS,
        work: crossings(counts, judge_counts, TOGETHER),
    },
    Row {
        id: "gw-table2",
        experiment: "how evenly 2, 4 and 8 connections share, of which the last starts 3 s late",
        paper: "12.64 and 12.64 to 3.25 .. 3.19 Mbit/s: within 2%",
        criterion: "at most 2% from the mean over the run",
        assumptions: &[KERNEL, "20 s of steady state"],
        seeds: SEEDS,
        work: crossings(
            || SEVERAL.map(|n| Crossing::between(ATM, true, Task::Send(n, seconds(3)))).into(),
            judge_shares,
            TOGETHER,
        ),
    },
    Row {
        id: "gw-www",
        experiment: "a file of 572,101 bytes by curl from nginx",
        paper: "13.5 s without, 2.6 s with gateways",
        criterion: "5.2 times as fast, and in at most 1.5 s",
        assumptions: &[
            KERNEL,
            "the client's window is the Ethernet hosts': 13.5 s imply one of about 8 KB",
        ],
        seeds: SEEDS,
        work: crossings(
            || GATEWAYS.map(|gw| Crossing::between(ETHERNET, gw, Task::Web(572_101))).into(),
            judge_web,
            TOGETHER,
        ),
    },
    Row {
        id: "gw-ftp",
        experiment: "100 MB by curl from vsftpd",
        paper: "1.5 to 22 Mbit/s (ATM); more than 18 times as fast (Ethernet)",
        criterion: "14 times as fast (ATM) and 18 times (Ethernet)",
        assumptions: &[KERNEL, "without gateways 10 MB (ATM) and 2 MB (Ethernet) show the rate"],
        seeds: SEEDS,
        work: crossings(files, judge_files, TOGETHER),
    },
    Row {
        id: "gw-domestic",
        experiment: "2 ms between the client and its gateway, by iperf3",
        paper: "a little worse for one connection, equal for many",
        criterion: "one connection 1-25% lower, eight within 2%",
        assumptions: &[KERNEL, "ATM; 2 ms are there and back; 20 s of steady state"],
        seeds: SEEDS,
        work: crossings(domestic, judge_domestic, TOGETHER),
    },
];

/// Worlds at a time: each has up to 27 Mbit/s of all a gateway does.
const TOGETHER: usize = 2;
const GATEWAYS: [bool; 2] = [false, true];
const COUNTS: [usize; 4] = [1, 2, 4, 8];
const SEVERAL: [usize; 3] = [2, 4, 8];
/// Mbit/s of payload that the trunk carries.
const TRUNK: f64 = 27.1;
const FILE: u64 = 100_000_000;
const LANS: [Lan; 2] = [ATM, ETHERNET];
const ATM: Lan = Lan {
    name: "ATM",
    scenario: "gateway-atm",
    mtu: 9188,
    segment: 8192,
    window: 4,
    rate: Rate::from_bits_per_sec(140_000_000),
};
const ETHERNET: Lan = Lan {
    name: "Ethernet",
    scenario: "gateway-ethernet",
    mtu: 1500,
    segment: 1460,
    window: 5,
    rate: Rate::from_bits_per_sec(10_000_000),
};

fn without_gateway() -> Vec<Study> {
    let host = |lan: Lan| {
        let window = u64::from(lan.segment * lan.window);
        let flow = Config::classic(Recovery::Reno, lan.segment.into(), window);
        let flows = tcp("tcp", 1, flow, Source::Greedy);
        let mut study = study(preset(lan.scenario), flows, seconds(60));
        study.measure_from = seconds(10);
        study
    };
    LANS.map(host).into()
}

const fn sending(connections: usize) -> Task {
    Task::Send(connections, Duration::ZERO)
}

fn judge_eq1<T>(seen: &Seen<T>, mbps: impl Fn(&T) -> f64 + Copy) -> Judgement {
    let mut judgement = Judgement::new();
    judgement.near("ATM, Mbit/s", seen.spread(0, mbps), 1.47, 0.05);
    judgement.near("Ethernet, Mbit/s", seen.spread(1, mbps), 0.33, 0.05);
    judgement
}

/// For each LAN all counts without gateways, then with.
fn counts() -> Vec<Crossing> {
    let ways = LANS.into_iter().flat_map(|lan| GATEWAYS.map(|gateways| (lan, gateways)));
    ways.flat_map(|(lan, gateways)| {
        COUNTS.map(|count| Crossing::between(lan, gateways, sending(count)))
    })
    .collect()
}

fn judge_counts(seen: &Seen<Crossed>) -> Judgement {
    let mut judgement = Judgement::new();
    for (at, (lan, one, several)) in
        [(ATM, 21.2, 0.95 * TRUNK), (ETHERNET, 5.69, 6.5)].into_iter().enumerate()
    {
        let name = lan.name;
        let of = |way: usize| {
            let first = (2 * at + way) * COUNTS.len();
            seen.medians(first..first + COUNTS.len(), Crossed::mbps)
        };
        let [without, with] = [of(0), of(1)];
        for (place, count) in COUNTS.into_iter().enumerate() {
            let least = if count == 1 { one } else { several };
            let [alone, found] = [without[place], with[place]];
            let line = format!(
                "{name}, {count} connections: {alone:.2} Mbit/s without, {found:.2} with gateways, \
                 of at least {least:.2}"
            );
            judgement.ask(found >= least, line);
        }
        let counts = || COUNTS.iter().map(|&count| count as f64);
        let title = format!("Paper 2, figure {}: {name}", 7 + at);
        let plot = Plot::new(&title, "connections", "Mbit/s");
        let plot = plot.curve("with gateways", counts().zip(with));
        judgement.plot(plot.curve("without", counts().zip(without)));
    }
    judgement
}

/// The largest distance from the mean, as a share of it.
fn unevenness(crossed: &Crossed) -> f64 {
    let mean = crossed.rate() / crossed.rates.len() as f64;
    crossed.rates.iter().map(|rate| (rate / mean - 1.0).abs()).fold(0.0, f64::max)
}

fn judge_shares(seen: &Seen<Crossed>) -> Judgement {
    let mut judgement = Judgement::new();
    for (at, count) in SEVERAL.into_iter().enumerate() {
        let each = seen.median(at, Crossed::mbps) / count as f64;
        let far = 100.0 * seen.median(at, unevenness);
        let line = format!("{count}: {each:.2} Mbit/s each, at most {far:.2} % from that");
        judgement.ask(far <= 2.0, line);
    }
    judgement
}

fn judge_web(seen: &Seen<Crossed>) -> Judgement {
    let mut judgement = Judgement::new();
    let [without, with] = [0, 1].map(|at| seen.median(at, |crossed| crossed.seconds));
    let ratio = without / with;
    judgement.ask(ratio >= 5.2, format!("{without:.2} s without gateways: {ratio:.1} times"));
    judgement.ask(with <= 1.5, format!("{with:.2} s with"));
    judgement
}

fn files() -> Vec<Crossing> {
    let of = |lan, part| {
        [(false, part), (true, FILE)].map(|(gw, size)| Crossing::between(lan, gw, Task::Ftp(size)))
    };
    [of(ATM, FILE / 10), of(ETHERNET, FILE / 50)].concat()
}

fn judge_files(seen: &Seen<Crossed>) -> Judgement {
    let mut judgement = Judgement::new();
    for (first, name, times) in [(0, "ATM", 14.0), (2, "Ethernet", 18.0)] {
        let [without, with] = [0, 1].map(|way| seen.median(first + way, Crossed::mbps));
        let line = format!(
            "{name}: {without:.2} Mbit/s without, {with:.2} with gateways: {:.1} times",
            with / without
        );
        judgement.ask(with / without >= times, line);
    }
    judgement
}

/// One connection and eight, each without delay at home and with.
fn domestic() -> Vec<Crossing> {
    let run = |count, delay| {
        let mut crossing = Crossing::between(ATM, true, sending(count));
        if let Load::Pair(pair) = &mut crossing.load {
            pair.domestic = delay;
        }
        crossing
    };
    [1, 8].into_iter().flat_map(|count| [ms(0), ms(2)].map(|delay| run(count, delay))).collect()
}

fn judge_domestic(seen: &Seen<Crossed>) -> Judgement {
    let mut judgement = Judgement::new();
    for (first, what, least, most) in
        [(0, "one connection", 1.0, 25.0), (2, "eight connections", -2.0, 2.0)]
    {
        let [near, far] = [0, 1].map(|at| seen.median(first + at, Crossed::mbps));
        let lower = 100.0 * (1.0 - far / near);
        judgement.ask(
            (least..=most).contains(&lower),
            format!("{what}: {near:.2} Mbit/s, {far:.2} at 2 ms: {lower:.1} % lower"),
        );
    }
    judgement
}
