//! Paper 2: the TCP gateway between two networks: simulated, and across the emulator with the real
//! one.

use core::time::Duration;

use path::HostGroup;
use units::{Bytes, Rate};

use super::{
    Crossed, Crossing, Judgement, Lan, Load, Plot, Row, SEEDS, Seen, Task, crossings, ms, preset,
    relays, seconds, studies, study, tcp,
};
use crate::study::{Outcome, Relay, Study};
use crate::tcp::{Config, Recovery, Source};

const KERNEL: &str = "Linux's CUBIC on the hosts, whose windows are held to four segments of 8,192 bytes (ATM) and \
                      five of 1,460 (Ethernet)";

const FIG7_8: &str = "with gateways 21.2 (ATM) and 5.69 Mbit/s (Ethernet), several > 25 and > 6.5; without, in \
                      proportion to their number";
const FIG7_8_CRITERION: &str = "with gateways: 1 connection >= 21.2 (ATM) and >= 5.69 (Ethernet); 2, 4 and 8 >= 95% of the trunk's 27.1 \
     (ATM), >= 6.5 (Ethernet)";

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
        ),
    },
    Row {
        id: "gw-fig7-8",
        experiment: "1 to 8 connections with and without gateways",
        paper: FIG7_8,
        criterion: FIG7_8_CRITERION,
        assumptions: &[
            "the trunk's protocol is a TCP that repairs by selective acknowledgements: the paper's is not told",
            "windows of 1 MB (ATM) and 256 KB (Ethernet) on the trunk, and 1 MB for all connections together: \
             an even share for each, by which their sum is held to what the trunk carries (the last figures: half \
             and twice as much)",
            "each host at a LAN port of its own, and as fast as it: the paper's, which held one connection to \
             21.2 and 5.69 Mbit/s and several on one Ethernet to 6.5, are not told",
            "20 s of steady state",
        ],
        seeds: SEEDS,
        work: relays(relayed, |seen| {
            let mbps = |rates: &Vec<f64>| rates.iter().sum::<f64>() / 1e6;
            let mut judgement = judge_counts(seen, mbps, |_, _| None);
            for (at, (name, _)) in WINDOWS_OTHERWISE.into_iter().enumerate() {
                let first = LANS.len() * (GATEWAYS.len() * COUNTS.len() + at * FEW.len());
                let rates = seen.spreads(first..first + LANS.len() * FEW.len(), mbps);
                judgement.tell(format!(
                    "{name}, 1 and 8 connections, ATM, then Ethernet: {rates:.2} Mbit/s"
                ));
            }
            judgement
        }),
    },
    Row {
        id: "gw-fig7-8",
        experiment: "1 to 8 connections with and without gateways, by iperf3",
        paper: FIG7_8,
        criterion: FIG7_8_CRITERION,
        assumptions: &[KERNEL, "20 s of steady state"],
        seeds: SEEDS,
        work: crossings(counts, |seen| {
            judge_counts(seen, Crossed::mbps, |seen, run| Some(trunk(seen, run)))
        }),
    },
    Row {
        id: "gw-table2",
        experiment: "how evenly 2, 4 and 8 connections share that start together, or of which the last starts 3 s \
                     late",
        paper: "12.64 and 12.64 to 3.25 .. 3.19 Mbit/s: within 2%",
        criterion: "at most 2% from the mean over the run, also with late joiners",
        assumptions: &[KERNEL, "30 s from when the last has begun, its beginning counted"],
        seeds: SEEDS,
        work: crossings(shares, judge_shares),
    },
    Row {
        id: "gw-www",
        experiment: "a file of 572,101 bytes by curl from nginx",
        paper: "13.5 s without, 2.6 s with gateways",
        criterion: "5.2 times as fast, and in at most 1.5 s",
        assumptions: &[
            KERNEL,
            "Ethernet LANs, of which the paper says that they give similar results to ATM's, by which it measured: \
             13.5 s imply a client's window of about 8 KB, which is theirs",
        ],
        seeds: SEEDS,
        work: crossings(
            || GATEWAYS.map(|gw| Crossing::between(ETHERNET, gw, Task::Web(572_101))).into(),
            judge_web,
        ),
    },
    Row {
        id: "gw-ftp",
        experiment: "100 MB by curl from vsftpd",
        paper: "1.5 to 22 Mbit/s (ATM); more than 18 times as fast (Ethernet)",
        criterion: "14 times as fast (ATM) and 18 times (Ethernet)",
        assumptions: &[KERNEL, "without gateways 10 MB (ATM) and 2 MB (Ethernet) show the rate"],
        seeds: SEEDS,
        work: crossings(files, judge_files),
    },
    Row {
        id: "gw-domestic",
        experiment: "2 ms between the client and its gateway, by iperf3",
        paper: "a little worse for one connection, equal for many",
        criterion: "one connection 1-25% lower, from within 5% of the paper's 21.2 Mbit/s; eight within 2%",
        assumptions: &[
            KERNEL,
            "ATM; 2 ms are there and back; 20 s of steady state",
            "machines that answer late: with a way home of 11.2 ms one connection has the paper's 21.2 Mbit/s by its window of 32,768 \
             bytes, and 2 ms more are a seventh less. Machines that could carry no more than that, however soon they answer, would lose \
             nothing by 2 ms, as today's do, which are shown besides",
        ],
        seeds: SEEDS,
        work: crossings(domestic, judge_domestic),
    },
];

const GATEWAYS: [bool; 2] = [false, true];
/// Of all connections on the trunk together: its product of 27.1 Mbit/s and 175 ms, and room.
const TRUNK_WINDOW: Bytes = Bytes(1_000_000);
const COUNTS: [usize; 4] = [1, 2, 4, 8];
/// Those shown with other windows of the trunk.
const FEW: [usize; 2] = [1, 8];
/// What the windows might have been instead: a name, and how many halves of what they are.
const WINDOWS_OTHERWISE: [(&str, u64); 2] =
    [("half the trunk's windows", 1), ("twice the trunk's windows", 4)];
const SEVERAL: [usize; 3] = [2, 4, 8];
/// How many seconds after the others the last of them begins.
const LATE: [u64; 2] = [0, 3];
/// Mbit/s that one connection of the paper had through its gateways, with ATM.
const PAPER_ONE: f64 = 21.2;
/// How late the paper's machines answer, for that: a window takes 12.4 ms, of which the lab needs 1.2.
const MACHINES: Duration = Duration::from_micros(11_200);
/// Mbit/s of payload that the trunk carries, and the part of it from which on it is full.
const TRUNK: f64 = 27.1;
const FULL: f64 = 0.95;
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

/// The same, simulated; then through gateways some counts with other windows of the trunk.
fn relayed() -> Vec<Relay> {
    let run = |lan: Lan, trunk: Option<[Bytes; 2]>, count: usize| {
        let host_window = u64::from(lan.segment * lan.window);
        Relay {
            path: preset(lan.scenario),
            host: HostGroup { rate: Some(lan.rate), ..HostGroup::default() },
            connection: Config::classic(Recovery::Reno, lan.segment.into(), host_window),
            count,
            trunk,
            before: seconds(5),
            counted: seconds(20),
        }
    };
    let lans = || LANS.into_iter().zip([TRUNK_WINDOW, Bytes(256_000)]);
    let ways = lans().flat_map(|(lan, window)| {
        GATEWAYS.map(|gateways| (lan, gateways.then_some([window, TRUNK_WINDOW])))
    });
    let all = ways.flat_map(|(lan, trunk)| COUNTS.map(|count| run(lan, trunk, count)));
    let otherwise = WINDOWS_OTHERWISE.into_iter().flat_map(|(_, halves)| {
        lans().flat_map(move |(lan, window)| {
            let trunk = [window, TRUNK_WINDOW].map(|window| Bytes(window.0 * halves / 2));
            FEW.map(|count| run(lan, Some(trunk), count))
        })
    });
    all.chain(otherwise).collect()
}

/// What a run's trunk was given, and whether that was too much for it.
fn trunk(seen: &Seen<Crossed>, run: usize) -> String {
    let given = seen.spread(run, |crossed| crossed.offered / 1e6);
    let lost = seen.spread(run, |crossed| 100.0 * crossed.lost);
    match lost.most {
        0.0 => format!(
            "the gateways gave the trunk {given:.2} Mbit/s of packets, of which it dropped none"
        ),
        _ => format!(
            "the trunk dropped {lost:.3} % of the {given:.2} Mbit/s of packets that it was given"
        ),
    }
}

/// Judges runs by their Mbit/s; `cause` is why one with gateways showed too little, where that is known.
fn judge_counts<T>(
    seen: &Seen<T>,
    mbps: impl Fn(&T) -> f64 + Copy,
    cause: impl Fn(&Seen<T>, usize) -> Option<String>,
) -> Judgement {
    let mut judgement = Judgement::new();
    for (at, (lan, one, several)) in
        [(ATM, PAPER_ONE, FULL * TRUNK), (ETHERNET, 5.69, 6.5)].into_iter().enumerate()
    {
        let name = lan.name;
        let of = |way: usize| {
            let first = (2 * at + way) * COUNTS.len();
            seen.spreads(first..first + COUNTS.len(), mbps)
        };
        let [without, with] = [of(0), of(1)];
        for (place, count) in COUNTS.into_iter().enumerate() {
            let least = if count == 1 { one } else { several };
            let [alone, found] = [without[place], with[place]];
            let line = format!(
                "{name}, {count} connections: {alone:.2} Mbit/s without, {found:.2} with gateways, \
                 of at least {least:.2}"
            );
            let asked = judgement.ask(found.median >= least, line);
            if let Some(cause) = cause(seen, (2 * at + 1) * COUNTS.len() + place) {
                asked.because(|| format!("{name}, {count} connections: {cause}"));
            }
        }
        let counts = || COUNTS.iter().map(|&count| count as f64);
        let title = format!("Paper 2, figure {}: {name}", 7 + at);
        let plot = Plot::new(&title, "connections", "Mbit/s");
        let plot = plot.curve("with gateways", counts().zip(with.0));
        judgement.plot(plot.curve("without", counts().zip(without.0)));
    }
    judgement
}

/// All counts that start together, then with one that comes late: from its beginning on.
fn shares() -> Vec<Crossing> {
    let run = |count, late| Crossing {
        before: Duration::ZERO,
        counted: seconds(30),
        ..Crossing::between(ATM, true, Task::Send(count, late))
    };
    LATE.into_iter().flat_map(|late| SEVERAL.map(|count| run(count, seconds(late)))).collect()
}

/// The largest distance from the mean, as a share of it.
fn unevenness(crossed: &Crossed) -> f64 {
    let mean = crossed.rate() / crossed.rates.len() as f64;
    crossed.rates.iter().map(|rate| (rate / mean - 1.0).abs()).fold(0.0, f64::max)
}

fn judge_shares(seen: &Seen<Crossed>) -> Judgement {
    let mut judgement = Judgement::new();
    let all = LATE.into_iter().flat_map(|late| SEVERAL.map(|count| (late, count)));
    for (at, (late, count)) in all.enumerate() {
        let each = seen.spread(at, Crossed::mbps).times(1.0 / count as f64);
        let far = seen.spread(at, unevenness).times(100.0);
        let line = format!(
            "{count}, the last {late} s late: {each:.2} Mbit/s each, at most {far:.2} % from that"
        );
        judgement.ask(far.median <= 2.0, line);
    }
    judgement
}

fn judge_web(seen: &Seen<Crossed>) -> Judgement {
    let mut judgement = Judgement::new();
    let [without, with] = [0, 1].map(|at| seen.spread(at, |crossed| crossed.seconds));
    let ratio = without.median / with.median;
    judgement.ask(ratio >= 5.2, format!("{without:.2} s without gateways: {ratio:.1} times"));
    judgement.ask(with.median <= 1.5, format!("{with:.2} s with"));
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
        let [without, with] = [0, 1].map(|way| seen.spread(first + way, Crossed::mbps));
        let ratio = with.median / without.median;
        let line = format!(
            "{name}: {without:.2} Mbit/s without, {with:.2} with gateways: {ratio:.1} times"
        );
        judgement.ask(ratio >= times, line);
    }
    judgement
}

/// One connection and eight between the paper's machines, then one between today's, each without delay at home and with.
fn domestic() -> Vec<Crossing> {
    let run = |count, delay| {
        let mut crossing = Crossing::between(ATM, true, sending(count));
        if let Load::Pair(pair) = &mut crossing.load {
            pair.domestic = delay;
        }
        crossing
    };
    [(1, MACHINES), (8, MACHINES), (1, ms(0))]
        .into_iter()
        .flat_map(|(count, machines)| [ms(0), ms(2)].map(|delay| run(count, machines + delay)))
        .collect()
}

fn judge_domestic(seen: &Seen<Crossed>) -> Judgement {
    let mut judgement = Judgement::new();
    for (first, what, least, most) in
        [(0, "one connection", 1.0, 25.0), (2, "eight connections", -2.0, 2.0)]
    {
        let [near, far] = [0, 1].map(|at| seen.spread(first + at, Crossed::mbps));
        let lower = 100.0 * (1.0 - far.median / near.median);
        judgement.ask(
            (least..=most).contains(&lower),
            format!("{what}: {near:.2} Mbit/s, {far:.2} at 2 ms: {lower:.1} % lower"),
        );
    }
    judgement.near("one connection, Mbit/s", seen.spread(0, Crossed::mbps), PAPER_ONE, 0.05);
    let [near, far] = [4, 5].map(|at| seen.spread(at, Crossed::mbps));
    judgement.tell(format!(
        "one connection of today's machines: {near:.2} Mbit/s, {far:.2} at 2 ms: a window each 2 ms is more than \
         the trunk carries"
    ));
    judgement
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_joiners_are_judged_like_the_others() {
        let judged = |last: f64| {
            let all = LATE.into_iter().flat_map(|_| SEVERAL);
            let mut seen: Vec<_> =
                all.map(|n| Crossed { rates: vec![3e6; n], ..Crossed::default() }).collect();
            let runs = seen.len();
            seen[runs - 1].rates[0] = last;
            judge_shares(&Seen::new(seen, runs)).passed
        };
        assert!(judged(3.05e6) && !judged(3.1e6) && !judged(2.9e6));
    }

    /// A miss tells what its trunk has shown: whether more would have gone through.
    #[test]
    fn too_little_through_gateways_has_a_cause() {
        let judged = |offered: f64, lost: f64| {
            let run = |crossing: Crossing| {
                let rate = if crossing.mtu > 1500 { 27e6 } else { 7e6 };
                Crossed { rates: vec![rate], ..Crossed::default() }
            };
            let mut seen: Vec<_> = counts().into_iter().map(run).collect();
            let runs = seen.len();
            seen[runs - 1] = Crossed { rates: vec![6e6], offered, lost, ..Crossed::default() };
            judge_counts(&Seen::new(seen, runs), Crossed::mbps, |seen, run| Some(trunk(seen, run)))
        };
        let idle = judged(6.2e6, 0.0);
        assert!(!idle.passed && idle.reasons.len() == 1, "{idle:?}");
        assert!(
            idle.reasons[0].starts_with("Ethernet, 8 connections: the gateways gave"),
            "{idle:?}"
        );
        let full = judged(7.5e6, 0.01);
        assert!(full.reasons[0].contains("dropped 1.000 % of the 7.50 Mbit/s"), "{full:?}");
    }

    /// What today's machines do is shown, and decides nothing.
    #[test]
    fn a_delay_counts_between_the_papers_machines() {
        let judged = |rates: [f64; 4]| {
            let seen = [rates.as_slice(), &[26.7e6; 2]].concat().into_iter();
            let seen = seen.map(|rate| Crossed { rates: vec![rate], ..Crossed::default() });
            judge_domestic(&Seen::new(seen.collect(), 6)).passed
        };
        let delays = domestic().into_iter().map(|crossing| match crossing.load {
            Load::Pair(crate::papers::Pair { task: Task::Send(count, _), domestic, .. }) => {
                (count, domestic)
            }
            other => panic!("{other:?}"),
        });
        let more = MACHINES + ms(2);
        let all = [(1, MACHINES), (1, more), (8, MACHINES), (8, more), (1, ms(0)), (1, ms(2))];
        assert_eq!(delays.collect::<Vec<_>>(), all, "what the figures below are of");
        assert!(judged([21.2e6, 18e6, 26e6, 26e6]));
        assert!(!judged([24e6, 20e6, 26e6, 26e6]), "these are not the paper's machines");
        assert!(!judged([26.7e6, 26.7e6, 26e6, 26e6]), "nothing is lost by one");
        assert!(!judged([21.2e6, 15e6, 26e6, 26e6]), "too much is lost by one");
        assert!(!judged([21.2e6, 18e6, 26e6, 25e6]), "something is lost by eight");
    }

    #[test]
    fn times_and_files_are_judged_by_ratio_and_figure() {
        let judged = |times: [f64; 2]| {
            let seen = times.map(|seconds| Crossed { seconds, ..Crossed::default() });
            judge_web(&Seen::new(seen.into(), 2)).passed
        };
        assert!(judged([14.4, 1.1]) && !judged([5.0, 1.1]) && !judged([14.4, 1.6]));
        let judged = |with: f64| {
            let seen = [1.5e6, with, 0.3e6, 9e6];
            let seen = seen.map(|rate| Crossed { rates: vec![rate], ..Crossed::default() });
            judge_files(&Seen::new(seen.into(), 4)).passed
        };
        assert!(judged(22e6) && !judged(20e6));
    }
}
