//! Paper 5: periodic exchange of complete state against positive acknowledgements.

use core::time::Duration;

use super::{Judgement, Plot, Row, SEEDS, Seen, Spreads, exchanges, seconds};
use crate::exchange::{Exchange, Exchanged, Method};

/// What holds for every row.
pub(super) const NETWORK: &str =
    "lost packets 1e-3, data and control (the last figures: 1e-4 and 1e-5)";
pub(super) const LAW: &str = "T = N [S + W] with a geometric N of mean 4 (the last figures: 2 and 8) and an \
                              exponential W with a tenth of the mean of S + W (the last figures: half): the paper \
                              takes 5 ms for 1500 km, the time of light in empty space, which leaves the queues in \
                              the switches next to nothing";
pub(super) const MACHINES: &str = "every process takes the same time for a packet; overhead is data sent again, for \
                                   each packet sent first; the first tenth of the time is not counted";
pub(super) const TIMERS: &str = "with positive acknowledgement a packet's timer starts when it is queued to be sent; \
                                 from the sending on (the last figure) both methods suffer alike, and nothing of \
                                 what the paper tells of time-outs and windows is seen";

pub(super) const ROWS: &[Row] = &[
    Row {
        id: "state-fig4",
        experiment: "throughput and overhead against the processing time of a packet, 60 to 130 us",
        paper: "periodic exchange is better in both; its throughput stops rising at 80 us, the time between \
                packets, while that of positive acknowledgement goes on",
        criterion: "periodic >= positive-ack at each point, but for fewer packets of the whole run than a window has; below 80 us a gain < 3% for periodic, > 3% for \
                    positive-ack",
        assumptions: &[
            NETWORK,
            LAW,
            MACHINES,
            TIMERS,
            "5 ms, a window of 1024, time-out 30 ms, state every 5 ms; 30 s; who is behind by fewer packets than a window in all \
             that is counted is not: so many may be under way when the counting begins or ends",
        ],
        seeds: SEEDS,
        work: exchanges(processings, judge_processing),
    },
    Row {
        id: "state-fig5",
        experiment: "throughput and overhead against windows of 64 to 1024 packets",
        paper: "periodic exchange gains more and settles at 1024; its overhead does not grow, that of positive \
                acknowledgement does",
        criterion: "overhead at 1024 <= 1.1 times that at 64 for periodic, >= 1.5 times for positive-ack; from \
                    512 to 1024 periodic gains < 5%",
        assumptions: &[
            NETWORK,
            LAW,
            MACHINES,
            TIMERS,
            "5 ms, 100 us of processing, time-out 30 ms, state every 5 ms; 30 s",
        ],
        seeds: SEEDS,
        work: exchanges(windows, judge_windows),
    },
    Row {
        id: "state-loss",
        experiment: "control packets lost beside the others",
        paper: "harmless: the next one says everything",
        criterion: "throughput falls < 5% at 10% loss of control packets",
        assumptions: &[
            NETWORK,
            LAW,
            MACHINES,
            "5 ms, a window of 1024, 80 us of processing, time-out 30 ms; 10 s",
        ],
        seeds: SEEDS,
        work: exchanges(losses, judge_control_losses),
    },
];

/// What else the network may be, with the paper's other errors first: a name, and what it changes.
pub(super) type Other = (&'static str, fn(Exchange) -> Exchange);
pub(super) const ERRORS: [Other; 2] = [
    ("packet errors 1e-4", |run| Exchange { error: 1e-4, ..run }),
    ("packet errors 1e-5", |run| Exchange { error: 1e-5, ..run }),
];
pub(super) const LAWS: [Other; 3] = [
    ("2 hops", |run| Exchange { hops: 2.0, ..run }),
    ("8 hops", |run| Exchange { hops: 8.0, ..run }),
    ("W half of a hop", |run| Exchange { service: 0.5, ..run }),
];

pub(super) fn others() -> impl Iterator<Item = Other> {
    ERRORS.into_iter().chain(LAWS)
}

/// What tells that a figure which missed hangs on the network's law, or that it does not.
pub(super) fn laws(holding: &[&str]) -> String {
    match holding {
        [] => "It misses with each of the laws of the network that are shown.".to_owned(),
        _ => {
            format!("The law of the network decides: it holds with {}.", holding.join(" and with "))
        }
    }
}
/// In microseconds.
const PROCESSING: [u64; 8] = [60, 65, 70, 75, 80, 90, 110, 130];
/// The place of 80 us, the time between packets.
const CORNER: usize = 4;
/// See [`processings`].
const LONGER: u32 = 4;
const WINDOWS: [u64; 5] = [64, 128, 256, 512, 1024];
/// Of control packets.
pub(super) const LOSSES: [f64; 4] = [0.0, 0.01, 0.1, 0.3];
/// The place of the loss that is judged.
const TENTH: usize = 2;

/// With periodic exchange first, then with positive acknowledgement.
pub(super) fn both<const N: usize>(runs: [Exchange; N]) -> Vec<Exchange> {
    let acked = runs.map(|run| Exchange { method: Method::PositiveAck, ..run });
    runs.into_iter().chain(acked).collect()
}

fn processing(micros: u64) -> Exchange {
    Exchange {
        processing: Duration::from_micros(micros),
        duration: seconds(30),
        ..Exchange::default()
    }
}

/// The ends of a curve of positive acknowledgement with timers that start at the sending.
fn timed_when_sent(ends: [Exchange; 2]) -> [Exchange; 2] {
    ends.map(|end| Exchange { method: Method::PositiveAck, timed_when_sent: true, ..end })
}

/// The ends of a curve of both methods in each other network.
fn elsewhere<const N: usize>(ends: [Exchange; N]) -> impl Iterator<Item = Exchange> {
    others().flat_map(move |(_, other)| both(ends.map(other)))
}

/// Both methods, then the ends of the gain below 80 us with timers that start at the sending, then in
/// other networks, then where both carry nearly all that comes for [`LONGER`] times as long.
fn processings() -> Vec<Exchange> {
    let ends = [PROCESSING[0], PROCESSING[CORNER]].map(processing);
    let all = both(PROCESSING.map(processing)).into_iter();
    let usual = processing(PROCESSING[CORNER - 1]);
    let longer = both([Exchange { duration: usual.duration * LONGER, ..usual }]);
    all.chain(timed_when_sent(ends)).chain(elsewhere(ends)).chain(longer).collect()
}

fn window(window: u64) -> Exchange {
    Exchange {
        window,
        processing: Duration::from_micros(100),
        duration: seconds(30),
        ..Exchange::default()
    }
}

/// Both methods, then the narrowest and the widest with timers that start at the sending, then in other
/// networks.
fn windows() -> Vec<Exchange> {
    let ends = [WINDOWS[0], WINDOWS[WINDOWS.len() - 1]].map(window);
    let all = both(WINDOWS.map(window)).into_iter();
    all.chain(timed_when_sent(ends)).chain(elsewhere(ends)).collect()
}

fn control_loss(control_loss: f64) -> Exchange {
    Exchange { control_loss, ..Exchange::default() }
}

/// With each loss, then without any and with a tenth lost in other networks.
fn losses() -> Vec<Exchange> {
    let ends = [LOSSES[0], LOSSES[TENTH]].map(control_loss);
    both(LOSSES.map(control_loss)).into_iter().chain(elsewhere(ends)).collect()
}

/// A figure of both methods, whose runs begin at a place.
pub(super) fn pair<T>(
    seen: &Seen<T>,
    first: usize,
    count: usize,
    figure: impl Fn(&T) -> f64,
) -> [Spreads; 2] {
    [0, 1].map(|method| {
        let from = first + method * count;
        seen.spreads(from..from + count, &figure)
    })
}

/// Both methods' curves.
pub(super) fn drawn(
    title: &str,
    axes: (&'static str, &'static str),
    x: &[f64],
    y: &[Spreads; 2],
) -> Plot {
    let points = |y: &Spreads| x.iter().copied().zip(y.0.clone()).collect::<Vec<_>>();
    Plot::new(title, axes.0, axes.1)
        .curve("periodic exchange", points(&y[0]))
        .curve("positive acknowledgement", points(&y[1]))
}

pub(super) fn listed(figures: &[f64], digits: usize) -> String {
    figures.iter().map(|figure| format!("{figure:.digits$}")).collect::<Vec<_>>().join(", ")
}

/// How far the medians of one are below those of the other at most, as a share of these.
fn lag(one: &Spreads, other: &Spreads) -> f64 {
    let pairs = one.medians().into_iter().zip(other.medians());
    pairs.map(|(one, other)| 1.0 - one / other).fold(0.0, f64::max)
}

pub(super) const RATE: &str = "packets/s";

/// Of the packets that both methods carry: periodic exchange may be behind by fewer than a window.
fn ask_who_is_behind(judgement: &mut Judgement, seen: &Seen<Exchanged>, rates: &[Spreads; 2]) {
    let count = PROCESSING.len();
    let seconds = seen.first(0).seconds;
    let behind = |at: usize| (rates[1][at].median - rates[0][at].median) * seconds;
    let at = (0..count).max_by(|&a, &b| behind(a).total_cmp(&behind(b))).unwrap_or_default();
    let window = Exchange::default().window as f64;
    let line = format!(
        "where periodic is furthest behind, at {} us: {:.0} packets of {:.0}",
        PROCESSING[at],
        behind(at).max(0.0),
        rates[1][at].median * seconds
    );
    judgement.ask(behind(at) < window, line);
    let last = 2 * count + 2 + 4 * others().count();
    let longer = [0, 1].map(|method| seen.spread(last + method, Exchanged::throughput).median);
    judgement.tell(format!(
        "at {} us in {LONGER} times the time: {:.0} packets of {:.0}",
        PROCESSING[CORNER - 1],
        (longer[1] - longer[0]) * seen.first(last).seconds,
        longer[1] * seen.first(last).seconds
    ));
}

fn judge_processing(seen: &Seen<Exchanged>) -> Judgement {
    let mut judgement = Judgement::new();
    let count = PROCESSING.len();
    let rates = pair(seen, 0, count, Exchanged::throughput);
    let waste = pair(seen, 0, count, Exchanged::overhead).map(|waste| waste.times(100.0));
    judgement.tell(format!("processing: {} us", listed(&PROCESSING.map(|us| us as f64), 0)));
    judgement.tell(format!("packets/s, positive-ack: {:.0}", rates[1]));
    judgement.tell(format!("packets/s, periodic: {:.0}", rates[0]));
    ask_who_is_behind(&mut judgement, seen, &rates);
    judgement.tell(format!("overhead %, positive-ack: {:.2}", waste[1]));
    let holds = lag(&waste[1], &waste[0]) <= 0.0;
    judgement.ask(holds, format!("overhead %, periodic: {:.2}", waste[0]));
    let gain = |least: f64, corner: f64| 100.0 * (least / corner - 1.0);
    let [periodic, acked] = [0, 1].map(|at| gain(rates[at][0].median, rates[at][CORNER].median));
    let elsewhere: Vec<_> = (0..others().count())
        .map(|at| pair(seen, 2 * count + 2 + 4 * at, 2, Exchanged::throughput))
        .map(|rates| rates.map(|rates| gain(rates[0].median, rates[1].median)))
        .collect();
    let with = |holds: fn([f64; 2]) -> bool| {
        let found = others().zip(&elsewhere).skip(ERRORS.len());
        laws(&found.filter(|found| holds(*found.1)).map(|found| found.0.0).collect::<Vec<_>>())
    };
    let line = format!("from 80 to 60 us periodic gains {periodic:.2} %");
    judgement.ask(periodic < 3.0, line).because(|| {
        let state = seen.spread(CORNER, |run| run.control as f64 / run.sent as f64).times(100.0);
        format!(
            "At 80 us the processes can do just what comes, and besides have to send {:.1} % of the packets again \
             and a control packet, theirs or the other end's, for each {:.0} packets: so much more gets through \
             below. The paper does not tell what a control packet costs. {}",
            waste[0][CORNER].median,
            100.0 / state.median,
            with(|[periodic, _]| periodic < 3.0)
        )
    });
    let line = format!("from 80 to 60 us positive-ack gains {acked:.2} %");
    judgement.ask(acked > 3.0, line).because(|| {
        format!(
            "Positive acknowledgement gains by what it sends in vain at 80 us, {:.2} %: packets that are late. {}",
            waste[1][CORNER].median,
            with(|[_, acked]| acked > 3.0)
        )
    });
    let sent = seen.spreads(2 * count..2 * count + 2, Exchanged::throughput);
    let sent = gain(sent[0].median, sent[1].median);
    judgement.tell(format!("and {sent:.2} % with timers from the sending on"));
    for ((name, _), [periodic, acked]) in others().zip(&elsewhere) {
        judgement.tell(format!(
            "{name}: from 80 to 60 us periodic gains {periodic:.2} %, positive-ack {acked:.2} %"
        ));
    }
    let x = PROCESSING.map(|us| us as f64);
    judgement.plot(drawn("Paper 5, figure 4", ("processing, us", RATE), &x, &rates));
    judgement.plot(drawn("Paper 5, figure 4", ("processing, us", "overhead, %"), &x, &waste));
    judgement
}

fn judge_windows(seen: &Seen<Exchanged>) -> Judgement {
    let mut judgement = Judgement::new();
    let count = WINDOWS.len();
    let rates = pair(seen, 0, count, Exchanged::throughput);
    let waste = pair(seen, 0, count, Exchanged::overhead).map(|waste| waste.times(100.0));
    for (method, name) in ["periodic", "positive-ack"].into_iter().enumerate() {
        judgement.tell(format!("packets/s, {name}: {:.0}", rates[method]));
        judgement.tell(format!("overhead %, {name}: {:.2}", waste[method]));
    }
    let growth = |waste: &Spreads, last: usize| waste[last].median / waste[0].median;
    let elsewhere: Vec<[Spreads; 2]> = (0..others().count())
        .map(|at| pair(seen, 2 * count + 2 + 4 * at, 2, Exchanged::overhead))
        .map(|waste| waste.map(|waste| waste.times(100.0)))
        .collect();
    let with = |holds: &dyn Fn(&[Spreads; 2]) -> bool| {
        let found = others().zip(&elsewhere).skip(ERRORS.len());
        laws(&found.filter(|found| holds(found.1)).map(|found| found.0.0).collect::<Vec<_>>())
    };
    let [periodic, acked] = [0, 1].map(|method| growth(&waste[method], count - 1));
    let line = format!("overhead of periodic grows {periodic:.2} times");
    judgement.ask(periodic <= 1.1, line).because(|| {
        format!(
            "Periodic exchange sends {:.2} % again at 64 and {:.2} % at 1024. {}",
            waste[0][0].median,
            waste[0][count - 1].median,
            with(&|waste| growth(&waste[0], 1) <= 1.1)
        )
    });
    let line = format!("overhead of positive-ack grows {acked:.2} times");
    judgement.ask(acked >= 1.5, line).because(|| {
        let highest = (0..count).max_by(|&a, &b| waste[1][a].median.total_cmp(&waste[1][b].median));
        let at = highest.unwrap_or_default();
        format!(
            "The overhead of positive acknowledgement is highest at a window of {}, {:.2} %, and {:.2} % at \
             1024. What is sent again for nothing is what waits at the transmitter and in the network for \
             longer than the time-out of 30 ms: the wait at the transmitter grows with the window. {}",
            WINDOWS[at],
            waste[1][at].median,
            waste[1][count - 1].median,
            with(&|waste| growth(&waste[1], 1) >= 1.5)
        )
    });
    let sent = seen.spreads(2 * count..2 * count + 2, Exchanged::overhead);
    let times = growth(&sent, 1);
    judgement.tell(format!("and {times:.2} times with timers from the sending on"));
    let last = 100.0 * (rates[0][count - 1].median / rates[0][count - 2].median - 1.0);
    judgement.ask(last < 5.0, format!("from 512 to 1024 periodic gains {last:.2} %"));
    for ((name, _), [periodic, acked]) in others().zip(&elsewhere) {
        judgement.tell(format!(
            "{name}: overhead % at 64 and 1024: periodic {periodic:.3}, positive-ack {acked:.3}"
        ));
    }
    let x = WINDOWS.map(|window| window as f64);
    let drawn = |what, y: &[Spreads; 2]| {
        drawn("Paper 5, figure 5", ("window, packets", what), &x, y).logarithmic()
    };
    judgement.plot(drawn(RATE, &rates));
    judgement.plot(drawn("overhead, %", &waste));
    judgement
}

/// Judges runs by their packets a second: with each loss, by periodic exchange first.
pub(super) fn judge_losses<T>(seen: &Seen<T>, rate: impl Fn(&T) -> f64) -> Judgement {
    let mut judgement = Judgement::new();
    let rates = pair(seen, 0, LOSSES.len(), rate);
    for (method, name) in ["periodic", "positive-ack"].into_iter().enumerate() {
        judgement.tell(format!("packets/s, {name}: {:.0}", rates[method]));
    }
    for (at, loss) in LOSSES.into_iter().enumerate().skip(1) {
        let [periodic, acked] = [0, 1].map(|method: usize| {
            100.0 * (1.0 - rates[method][at].median / rates[method][0].median)
        });
        judgement.ask(
            loss > 0.1 || periodic < 5.0,
            format!(
                "{} % of control packets lost: {periodic:.2} % less periodic, {acked:.2} % positive-ack",
                100.0 * loss
            ),
        );
    }
    let x = LOSSES.map(|loss| 100.0 * loss);
    let title = "Paper 5: lost control packets";
    judgement.plot(drawn(title, ("control packets lost, %", RATE), &x, &rates));
    judgement
}

fn judge_control_losses(seen: &Seen<Exchanged>) -> Judgement {
    let mut judgement = judge_losses(seen, Exchanged::throughput);
    for (at, (name, _)) in others().enumerate() {
        let rates = pair(seen, 2 * LOSSES.len() + 4 * at, 2, Exchanged::throughput);
        let [periodic, acked] =
            rates.map(|rates| 100.0 * (1.0 - rates[1].median / rates[0].median));
        judgement.tell(format!(
            "{name}: at {} % {periodic:.2} % less periodic, {acked:.2} % positive-ack",
            100.0 * LOSSES[TENTH]
        ));
    }
    judgement
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    #[test]
    fn lost_reports_may_cost_one_in_twenty() {
        let judged = |tenth: f64| {
            let rates = [[100.0, 100.0, tenth, 80.0], [100.0, 90.0, 80.0, 70.0]].concat();
            judge_losses(&Seen::new(rates, 8), |rate| *rate).passed
        };
        assert!(judged(95.1) && !judged(94.9));
    }

    /// Runs that carried so many packets in a second and sent so many again.
    pub(in super::super) fn exchanged(delivered: f64, again: f64) -> Exchanged {
        let (delivered, again) = (delivered as u64, again as u64);
        Exchanged { seconds: 1.0, delivered, sent: delivered, again, control: 200 }
    }

    #[test]
    fn periodic_exchange_is_to_be_no_worse_at_each_point() {
        let judged = |periodic_at_130: f64, at_60: f64| {
            let mut runs: Vec<_> = (0..processings().len()).map(|_| exchanged(9e3, 9.0)).collect();
            runs[0] = exchanged(at_60, 9.0);
            runs[PROCESSING.len() - 1] = exchanged(periodic_at_130, 9.0);
            runs[PROCESSING.len()..2 * PROCESSING.len()].fill_with(|| exchanged(8e3, 80.0));
            runs[PROCESSING.len()] = exchanged(8.5e3, 80.0);
            let count = runs.len();
            judge_processing(&Seen::new(runs, count))
        };
        assert!(
            judged(8e3, 9.2e3).passed && judged(7e3, 9.2e3).passed,
            "a window may be under way"
        );
        let behind = judged(6.9e3, 9.2e3);
        assert!(behind.reasons[0].contains("at 130 us"), "{behind:?}");
        let gains = judged(8e3, 9.3e3);
        assert!(gains.reasons[0].contains("0.1 % of the packets again"), "{gains:?}");
    }
}
