//! Paper 1's files, whose blocks are assigned to connections.

use path::HostGroup;
use stripe::Assignment;
use units::{Bytes, Rate};

use super::mftp::{MSS, old};
use super::{Judgement, Plot, Row, SEEDS, Seen, both, files, ms, preset, seconds, with_rtt};
use crate::study::{Blocks, Carried};
use crate::tcp::{Config, Recovery};

pub(super) const ROWS: &[Row] = &[
    Row {
        id: "mftp-fig6",
        experiment: "a file of 16 MB over N = 1..16 connections and round-trip times of 0..500 ms",
        paper: "linear in N from 200 ms on; 8.5 Mbit/s with 16 at 200 ms; equation 2' with W' = 18 KB and \
                k = 0.75, taken from there, fits 500 ms too; 32 Mbit/s with any N at no delay",
        criterion: "R2 >= 0.99 at 200 and 500 ms; equation 2' within 15% there with each N; no gain (10%) from N at 0 ms",
        assumptions: &[
            "hosts of 32 Mbit/s; four round trips of FTP's dialogue, then a connection is opened each \
             round trip and carries blocks from then on: the paper tells of no reason for its k, and \
             these cost 16 connections a fifth of the time at any delay",
            "blocks of 8 KB, dynamic assignment, a buffer for the whole file",
        ],
        seeds: SEEDS,
        work: files(against_rtt, judge_fig6),
    },
    Row {
        id: "mftp-assign",
        experiment: "static against dynamic assignment of a 128 MB file's blocks to 8 connections, of which \
                     one has a tenth of the others' speed",
        paper: "static is held to the slowest; dynamic is not, and buffers less",
        criterion: "static <= 15% of the sum of their rates, dynamic >= 90%; dynamic's peak buffer <= half",
        assumptions: &[
            "hosts of 4 Mbit/s, the slow one 0.4; blocks of 8 KB; 100 ms and windows of 64 KB (the last figures: 20 ms; \
             windows of 32 KB)",
            "the receiver can hold the whole file out of order (the last figures: 4 MiB of it)",
        ],
        seeds: SEEDS,
        work: files(assignments, judge_assigned),
    },
    Row {
        id: "mftp-table2",
        experiment: "N windows of 64 KB against one of the same sum, bit errors of 3e-7, 200 ms, Ethernet",
        paper: "762/848/883/1187/1465 against 762/770/764/751/747 kbit/s for 64/128/256/384/512 KB",
        criterion: "at 512 KB many are 1.5-2.5 times the single one and rise with N; the single one is \
                    flat within 5%",
        assumptions: &[
            "Tahoe, as in SunOS 4.1.3 (the last figures: go-back-N); time-outs of at least 1 s; 600 s from the \
             start on, of which opening the connections takes 1.6 s at most",
            "the receiver puts blocks of 8 KB in order in a buffer as large as the windows together",
            "every segment is acknowledged; a bridge's queue of 512 KiB (the last figures: acknowledgements delayed by \
             up to 200 ms, for every second segment, as BSD has them; queues of 64 KiB and 4 MiB)",
        ],
        seeds: 30,
        work: files(table2, judge_table2),
    },
];

const COUNTS: [usize; 5] = [1, 2, 4, 8, 16];
const RTTS: [u64; 5] = [0, 50, 100, 200, 500];
/// Those at which the windows are what limits.
const FAR_RTTS: [u64; 2] = [200, 500];
/// How the sensitivity to what was assumed is shown.
const WITHOUT: [&str; 3] =
    ["no dialogue", "no dialogue and all connections at once", "sockets with room for 64 KB"];
/// Of their workstations, in Mbit/s of payload.
const HOST: f64 = 32.0;
/// Equation 2': the segmented window in bits, and k.
const SEGMENTED: f64 = 2.0 * MSS as f64 * 8.0;
const K: f64 = 0.75;
/// Round trips of FTP's dialogue before the data connections.
const DIALOGUE: u32 = 4;

/// One file over so many connections of one host, all over the path of paper 1.
fn file(rtt: u64, count: usize, connection: Config) -> Blocks {
    let rate = Rate::from_bits_per_sec((HOST * 1e6 * (MSS + 40) as f64 / MSS as f64) as u64);
    let queue = "4MiB".parse().expect("a queue");
    Blocks {
        path: with_rtt(preset("mftp-atm"), ms(rtt)),
        near: vec![HostGroup { rate: Some(rate), queue: Some(queue), ..HostGroup::default() }],
        connection,
        count,
        assignment: Assignment::Dynamic,
        file: Bytes::mib(16),
        buffer: Bytes::mib(16),
        start: ms(rtt) * DIALOGUE,
        every: ms(rtt),
        duration: seconds(2000),
    }
}

/// For each round-trip time all counts; then at 200 ms and at 500 ms as many without what was assumed.
fn against_rtt() -> Vec<Blocks> {
    let old = Config { send_buffer: Bytes::kib(24), ..old(MSS, 24 << 10) };
    let all = RTTS.iter().flat_map(|&rtt| COUNTS.map(|count| file(rtt, count, old)));
    let without = |change: fn(Blocks) -> Blocks| {
        FAR_RTTS.into_iter().flat_map(move |rtt| COUNTS.map(|count| change(file(rtt, count, old))))
    };
    let no_dialogue = without(|file| Blocks { start: ms(0), ..file });
    let at_once = without(|file| Blocks { start: ms(0), every: ms(0), ..file });
    let roomy = without(|file| {
        let connection = Config { send_buffer: Bytes::kib(64), ..file.connection };
        Blocks { connection, ..file }
    });
    all.chain(no_dialogue).chain(at_once).chain(roomy).collect()
}

fn mbps(carried: &Carried) -> f64 {
    carried.goodput() / 1e6
}

/// The share of a figure's variation that a straight line explains.
fn linearity(points: &[(f64, f64)]) -> f64 {
    let mean =
        |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / points.len() as f64;
    let (x, y) = (mean(|point| point.0), mean(|point| point.1));
    let sum = |of: &dyn Fn(f64, f64) -> f64| -> f64 {
        points.iter().map(|point| of(point.0 - x, point.1 - y)).sum()
    };
    sum(&|dx, dy| dx * dy).powi(2) / (sum(&|dx, _| dx * dx) * sum(&|_, dy| dy * dy))
}

/// Equation 2' for N connections, in Mbit/s.
fn segmented(rtt: u64, n: usize) -> f64 {
    K * n as f64 * SEGMENTED / (rtt as f64 * 1e3)
}

fn judge_fig6(seen: &Seen<Carried>) -> Judgement {
    let mut judgement = Judgement::new();
    let mut plot =
        Plot::new("Paper 1, figure 6: windows of 24 KB, no errors", "connections", "Mbit/s");
    for (at, &rtt) in RTTS.iter().enumerate() {
        let found = seen.spreads(at * COUNTS.len()..(at + 1) * COUNTS.len(), mbps);
        let medians = found.medians();
        let line = format!("{rtt} ms, N = 1..16: {found:.2} Mbit/s");
        let points = || COUNTS.iter().map(|&n| n as f64).zip(found.0.iter().copied());
        plot = plot.curve(format!("{rtt} ms"), points());
        match rtt {
            0 => {
                let holds = medians.iter().all(|mbps| (mbps / medians[0] - 1.0).abs() <= 0.1);
                judgement.ask(holds, line);
            }
            200.. => {
                let r2 = linearity(&points().map(|(n, mbps)| (n, mbps.median)).collect::<Vec<_>>());
                judgement.ask(r2 >= 0.99, format!("{line}, R2 = {r2:.4}"));
                for (index, n) in COUNTS.into_iter().enumerate() {
                    let what = format!("{rtt} ms, N = {n}, Mbit/s");
                    let asked = judgement.near(&what, found[index], segmented(rtt, n), 0.15);
                    asked.because(|| why_no_k(rtt, n, medians[index]));
                }
                let curve = COUNTS.map(|n| (n as f64, segmented(rtt, n)));
                plot = plot.curve(format!("equation 2', {rtt} ms"), curve);
            }
            _ => judgement.tell(line),
        }
    }
    for (way, what) in WITHOUT.iter().enumerate() {
        for (at, rtt) in FAR_RTTS.into_iter().enumerate() {
            let first = (RTTS.len() + way * FAR_RTTS.len() + at) * COUNTS.len();
            let found = seen.spreads(first..first + COUNTS.len(), mbps).medians();
            let parts = COUNTS.iter().zip(found).map(|(&n, mbps)| mbps / segmented(rtt, n));
            let parts: Vec<_> = parts.map(|part| format!("{part:.2}")).collect();
            judgement
                .tell(format!("{what}: {rtt} ms, N = 1..16: {} of equation 2'", parts.join(", ")));
        }
    }
    judgement.plot(plot.curve("paper, 200 ms", [(16.0, 8.5)]));
    judgement
}

/// What of equation 2 is lost by a count at a round-trip time, beside the k of equation 2'.
fn why_no_k(rtt: u64, n: usize, mbps: f64) -> String {
    let all = n as f64 * SEGMENTED / (rtt as f64 * 1e3);
    let time = (16 << 20) as f64 * 8.0 / (mbps * 1e6);
    // On average a connection begins half of the openings late.
    let late = (f64::from(DIALOGUE) + (n - 1) as f64 / 2.0) * rtt as f64 / 1e3;
    format!(
        "{rtt} ms, N = {n}: {:.0} % of what whole segments in its windows allow, where k says {:.0}: what \
         costs a share here is the dialogue and the opening of the connections, {late:.1} s of {time:.0} s, \
         which grows with N, and k is the paper's share with 16; with fewer it must cost more than is told",
        100.0 * mbps / all,
        100.0 * K
    )
}

/// What else might have been assumed: a name, and what it changes.
type Otherwise = (&'static str, fn(&mut Blocks));

/// The same runs, each changed.
fn changed(
    runs: impl Iterator<Item = Blocks>,
    change: fn(&mut Blocks),
) -> impl Iterator<Item = Blocks> {
    runs.map(move |mut run| {
        change(&mut run);
        run
    })
}

/// What the hosts of the connections carry, in bit/s: seven, and the slow one.
const SPEEDS: [u64; 2] = [4_000_000, 400_000];

fn assigned(assignment: Assignment) -> Blocks {
    let queue = "256KiB".parse().expect("a queue");
    let hosts = |count, rate| HostGroup {
        count,
        rate: Some(Rate::from_bits_per_sec(rate)),
        queue: Some(queue),
        ..HostGroup::default()
    };
    let connection =
        Config { send_buffer: Bytes::kib(64), ..Config::classic(Recovery::Reno, 1460, 65_535) };
    Blocks {
        near: vec![hosts(7, SPEEDS[0]), hosts(1, SPEEDS[1])],
        assignment,
        file: Bytes::mib(128),
        buffer: Bytes::mib(128),
        start: ms(0),
        every: ms(0),
        ..file(100, 8, connection)
    }
}

/// What else might have been assumed of the assignment.
const ASSIGNED_OTHERWISE: [Otherwise; 3] = [
    ("20 ms", |run| run.path = with_rtt(run.path.clone(), ms(20))),
    ("windows of 32 KB", |run| run.connection.window = Bytes::kib(32)),
    ("a buffer of 4 MiB", |run| run.buffer = Bytes::mib(4)),
];

/// Static, then dynamic; both again with what else might have been assumed.
fn assignments() -> Vec<Blocks> {
    let ways = || [Assignment::Static, Assignment::Dynamic].map(assigned).into_iter();
    let otherwise = ASSIGNED_OTHERWISE.iter().flat_map(|(_, change)| changed(ways(), *change));
    ways().chain(otherwise).collect()
}

fn judge_assigned(seen: &Seen<Carried>) -> Judgement {
    let mut judgement = Judgement::new();
    let sum = (7 * SPEEDS[0] + SPEEDS[1]) as f64 * 1460.0 / 1500.0 / 1e6;
    let rates = seen.spreads(0..2, mbps);
    let share =
        |at: usize| format!("{:.2} Mbit/s, {:.1} %", rates[at], 100.0 * rates[at].median / sum);
    judgement.tell(format!("sum of the connections' rates: {sum:.2} Mbit/s"));
    judgement.ask(rates[0].median <= 0.15 * sum, format!("static: {}", share(0)));
    judgement.ask(rates[1].median >= 0.9 * sum, format!("dynamic: {}", share(1)));
    let peaks = seen.spreads(0..2, |carried| carried.peak as f64 / 1e6);
    judgement.ask(
        peaks[1].median <= peaks[0].median / 2.0,
        format!("peak buffer: {:.2} MB static, {:.2} MB dynamic", peaks[0], peaks[1]),
    );
    for (at, (name, _)) in ASSIGNED_OTHERWISE.iter().enumerate() {
        let runs = 2 * at + 2..2 * at + 4;
        let rates = seen.spreads(runs.clone(), mbps);
        let peaks = seen.spreads(runs, |carried| carried.peak as f64 / 1e6);
        judgement.tell(format!(
            "{name}, static and dynamic: {rates:.2} Mbit/s, peak buffer {peaks:.2} MB"
        ));
    }
    judgement
}

/// Windows of table 2 in units of 64 KB.
const SUMS: [u64; 5] = [1, 2, 4, 6, 8];
const WINDOW: u64 = 64 << 10;
/// Buffers of 512 KB's connections by which the result is shown to hang on it.
const BUFFERS: [u64; 3] = [4 * WINDOW, 16 * WINDOW, 1024 * WINDOW];

/// What else might have been assumed, with 512 KB.
const OTHERWISE: [Otherwise; 3] = [
    ("delayed acknowledgements", |run| run.connection.delayed_ack = Some(ms(200))),
    ("a queue of 64 KiB", |run| queued(run, "64KiB")),
    ("a queue of 4 MiB", |run| queued(run, "4MiB")),
];

fn queued(run: &mut Blocks, queue: &str) {
    let queue = queue.parse().expect("a queue");
    run.path = both(run.path.clone(), |link| link.queue = queue);
}

/// The single window, then as many of 64 KB, then eight of these with other buffers; the former two again
/// by go-back-N; the last of both with what else might have been assumed.
fn table2() -> Vec<Blocks> {
    let by = |recovery: Recovery, count: u64, window: u64, buffer: u64| {
        let connection = Config {
            scaling: true,
            window: Bytes(window),
            send_buffer: Bytes(window),
            ..Config::classic(recovery, 1460, 65_535)
        };
        Blocks {
            path: preset("mftp-ethernet"),
            near: vec![HostGroup::default()],
            file: Bytes(1 << 40),
            buffer: Bytes(buffer),
            start: ms(0),
            every: ms(200),
            duration: seconds(600),
            ..file(200, count as usize, connection)
        }
    };
    let table = |recovery: Recovery| {
        let single = SUMS.map(|sum| by(recovery, 1, sum * WINDOW, sum * WINDOW));
        let many = SUMS.map(|sum| by(recovery, sum, WINDOW, sum * WINDOW));
        single.into_iter().chain(many)
    };
    let buffers = BUFFERS.map(|buffer| by(Recovery::Tahoe, 8, WINDOW, buffer));
    let ends = || table(Recovery::Tahoe).skip(SUMS.len() - 1).step_by(SUMS.len());
    let otherwise = OTHERWISE.iter().flat_map(|(_, change)| changed(ends(), *change));
    let old = table(Recovery::GoBackN);
    table(Recovery::Tahoe).chain(buffers).chain(old).chain(otherwise).collect()
}

fn judge_table2(seen: &Seen<Carried>) -> Judgement {
    let mut judgement = Judgement::new();
    let kbps = |carried: &Carried| carried.goodput() / 1e3;
    let [single, many] = [0..5, 5..10].map(|runs| seen.spreads(runs, kbps));
    let (of_one, of_many) = (single.medians(), many.medians());
    let mean = of_one.iter().sum::<f64>() / 5.0;
    let furthest = of_one.iter().map(|rate| (rate / mean - 1.0).abs()).fold(0.0, f64::max);
    let line =
        format!("one window: {single:.0} kbit/s, at most {:.1} % from the mean", 100.0 * furthest);
    judgement.ask(furthest <= 0.05, line);
    judgement.ask(of_many.is_sorted(), format!("N windows: {many:.0} kbit/s"));
    let ratio = of_many[4] / of_one[4];
    let others = seen.spreads(10..13, kbps);
    let times = others.medians().iter().map(|rate| rate / of_one[4]).collect::<Vec<_>>();
    let ends = |at: usize| seen.spreads(23 + 2 * at..25 + 2 * at, kbps);
    let gain = |at: usize| ends(at)[1].median / ends(at)[0].median;
    let asked = judgement.ask((1.5..=2.5).contains(&ratio), format!("at 512 KB: {ratio:.2} times"));
    asked.because(|| {
        format!(
            "The gain at 512 KB hangs on how much the receiver can hold out of order while one connection waits \
             for its time-out, of which the paper tells only that it must be large: {:.1} times with 256 KB, \
             {ratio:.1} with as much as the windows together, {:.1} with 1 MB, {:.1} with 64 MB. And it hangs on the \
             bridge's queue, of which it tells nothing: {:.1} times with 64 KiB, {:.1} with 4 MiB.",
            times[0],
            times[1],
            times[2],
            gain(1),
            gain(2)
        )
    });
    judgement.tell(format!(
        "8 windows with a buffer of 256 KB, 1 MB, 64 MB: {others:.0} kbit/s, {:.2}, {:.2}, {:.2} times",
        times[0], times[1], times[2],
    ));
    let [old_single, old_many] = [13..18, 18..23].map(|runs| seen.spreads(runs, kbps));
    judgement.tell(format!("go-back-N by time-outs alone, one window: {old_single:.0} kbit/s"));
    judgement.tell(format!(
        "go-back-N by time-outs alone, N windows: {old_many:.0} kbit/s, at 512 KB {:.2} times",
        old_many[4].median / old_single[4].median
    ));
    for (at, (name, _)) in OTHERWISE.iter().enumerate() {
        judgement.tell(format!(
            "{name}, one window of 512 KB and eight of 64: {:.0} kbit/s, {:.2} times",
            ends(at),
            gain(at)
        ));
    }
    let sums = || SUMS.iter().map(|&sum| (sum * 64) as f64);
    let plot = Plot::new("Paper 1, table 2", "windows together, KB", "kbit/s")
        .curve("N windows of 64 KB", sums().zip(many.0))
        .curve("one window", sums().zip(single.0))
        .curve("paper, N windows", sums().zip([762.0, 848.0, 883.0, 1187.0, 1465.0]))
        .curve("paper, one window", sums().zip([762.0, 770.0, 764.0, 751.0, 747.0]));
    judgement.plot(plot);
    judgement
}
