//! Paper 5: periodic exchange of complete state against positive acknowledgements.

use core::time::Duration;

use super::{Judgement, Plot, Row, SEEDS, Seen, exchanges, ms, seconds};
use crate::exchange::{Exchange, Exchanged, Method};

/// What holds for every row.
const NETWORK: &str = "T = N [S + W] with a geometric N of mean 4, S and the mean of the exponential W alike; \
                       lost packets 1e-3, data and control";
const MACHINES: &str = "every process takes the same time for a packet; overhead is data sent again, for \
                        each packet sent first; 10 s, of which the first is not counted";
const TIMERS: &str = "with positive acknowledgement a packet's timer starts when it is queued to be sent; from the \
                      sending on (the last figure) both methods suffer alike, and nothing of what the paper \
                      tells of time-outs and windows is seen";

pub(super) const ROWS: &[Row] = &[
    Row {
        id: "state-fig4",
        experiment: "throughput and overhead against the processing time of a packet, 60 to 130 us",
        paper: "periodic exchange is better in both; its throughput stops rising at 80 us, the time between \
                packets, while that of positive acknowledgement goes on",
        criterion: "periodic >= positive-ack at each point; below 80 us a gain < 3% for periodic, > 3% for \
                    positive-ack",
        assumptions: &[
            NETWORK,
            MACHINES,
            TIMERS,
            "5 ms, a window of 1024, time-out 30 ms, state every 5 ms; 30 s",
        ],
        seeds: SEEDS,
        work: exchanges(|| both(PROCESSING.map(processing)), judge_processing),
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
            MACHINES,
            TIMERS,
            "5 ms, 100 us of processing, time-out 30 ms, state every 5 ms",
        ],
        seeds: SEEDS,
        work: exchanges(windows, judge_windows),
    },
    Row {
        id: "state-fig6-9",
        experiment: "throughput against the retransmission time-out at 5, 10, 15 and 20 ms",
        paper: "periodic exchange has a wide plateau, positive acknowledgement a single point; alike at 20 ms",
        criterion: "the plateau, within 5% of the best, at least 3 times wider at 5, 10 and 15 ms",
        assumptions: &[
            NETWORK,
            MACHINES,
            TIMERS,
            "a window of 1024, 80 us of processing, state every 5 ms",
        ],
        seeds: SEEDS,
        work: exchanges(timeouts, judge_timeouts),
    },
    Row {
        id: "state-interval",
        experiment: "throughput against the period of exchange, the time-out held",
        paper: "varied, result not told",
        criterion: "the curve shown, with the range within 5% of the best named",
        assumptions: &[
            NETWORK,
            MACHINES,
            "5 ms, a window of 1024, 80 us of processing, time-out 30 ms",
        ],
        seeds: SEEDS,
        work: exchanges(|| INTERVALS.map(interval).into(), judge_intervals),
    },
    Row {
        id: "state-loss",
        experiment: "control packets lost beside the others",
        paper: "harmless: the next one says everything",
        criterion: "throughput falls < 5% at 10% loss of control packets",
        assumptions: &[
            NETWORK,
            MACHINES,
            "5 ms, a window of 1024, 80 us of processing, time-out 30 ms",
        ],
        seeds: SEEDS,
        work: exchanges(
            || both(LOSSES.map(control_loss)),
            |seen| judge_losses(seen, Exchanged::throughput),
        ),
    },
];

/// In microseconds.
const PROCESSING: [u64; 8] = [60, 65, 70, 75, 80, 90, 110, 130];
/// The place of 80 us, the time between packets.
const CORNER: usize = 4;
const WINDOWS: [u64; 5] = [64, 128, 256, 512, 1024];
/// In milliseconds.
const DELAYS: [u64; 4] = [5, 10, 15, 20];
const TIMEOUTS: [u64; 20] =
    [5, 10, 15, 20, 25, 30, 35, 40, 45, 50, 55, 60, 65, 70, 75, 80, 90, 100, 120, 140];
const INTERVALS: [u64; 8] = [1, 2, 3, 5, 8, 10, 15, 30];
/// Of control packets.
pub(super) const LOSSES: [f64; 4] = [0.0, 0.01, 0.1, 0.3];

/// With periodic exchange first, then with positive acknowledgement.
fn both<const N: usize>(runs: [Exchange; N]) -> Vec<Exchange> {
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

fn window(window: u64) -> Exchange {
    Exchange { window, processing: Duration::from_micros(100), ..Exchange::default() }
}

/// Both methods, then the narrowest and the widest with timers that start at the sending.
fn windows() -> Vec<Exchange> {
    let method = Method::PositiveAck;
    let ends = [WINDOWS[0], WINDOWS[WINDOWS.len() - 1]].map(window);
    let sent = ends.map(|end| Exchange { method, timed_when_sent: true, ..end });
    both(WINDOWS.map(window)).into_iter().chain(sent).collect()
}

fn control_loss(control_loss: f64) -> Exchange {
    Exchange { control_loss, ..Exchange::default() }
}

fn interval(millis: u64) -> Exchange {
    Exchange { method: Method::Periodic(ms(millis)), ..Exchange::default() }
}

/// Delay by delay, with both methods; then at 10 ms with timers that start at the sending.
fn timeouts() -> Vec<Exchange> {
    let at = |delay: u64| {
        both(TIMEOUTS.map(|timeout| Exchange {
            delay: ms(delay),
            timeout: ms(timeout),
            duration: seconds(8),
            ..Exchange::default()
        }))
    };
    let sent = at(10).into_iter().skip(TIMEOUTS.len());
    let sent = sent.map(|run| Exchange { timed_when_sent: true, ..run });
    DELAYS.into_iter().flat_map(at).chain(sent).collect()
}

/// A figure of both methods, whose runs begin at a place.
fn pair<T>(
    seen: &Seen<T>,
    first: usize,
    count: usize,
    figure: impl Fn(&T) -> f64,
) -> [Vec<f64>; 2] {
    [0, 1].map(|method| {
        let from = first + method * count;
        seen.medians(from..from + count, &figure)
    })
}

/// Both methods' curves.
fn drawn(title: &str, axes: (&'static str, &'static str), x: &[f64], y: &[Vec<f64>; 2]) -> Plot {
    let points = |y: &[f64]| x.iter().copied().zip(y.iter().copied()).collect::<Vec<_>>();
    Plot::new(title, axes.0, axes.1)
        .curve("periodic exchange", points(&y[0]))
        .curve("positive acknowledgement", points(&y[1]))
}

fn listed(figures: &[f64], digits: usize) -> String {
    figures.iter().map(|figure| format!("{figure:.digits$}")).collect::<Vec<_>>().join(", ")
}

fn percent(figures: &[f64]) -> Vec<f64> {
    figures.iter().map(|figure| 100.0 * figure).collect()
}

/// Whether each of one is at least as large as of the other, but for what chance makes: where both
/// carry all that comes, what comes differs by some parts in a thousand.
fn no_less(one: &[f64], other: &[f64]) -> bool {
    one.iter().zip(other).all(|(one, other)| *one >= other * 0.995)
}

const RATE: &str = "packets/s";

fn judge_processing(seen: &Seen<Exchanged>) -> Judgement {
    let mut judgement = Judgement::new();
    let rates = pair(seen, 0, PROCESSING.len(), Exchanged::throughput);
    let waste = pair(seen, 0, PROCESSING.len(), Exchanged::overhead);
    judgement.tell(format!("processing: {} us", listed(&PROCESSING.map(|us| us as f64), 0)));
    let line = |name: &str, figures: &[f64], digits| format!("{name}: {}", listed(figures, digits));
    judgement.tell(line("packets/s, positive-ack", &rates[1], 0));
    judgement.ask(no_less(&rates[0], &rates[1]), line("packets/s, periodic", &rates[0], 0));
    judgement.tell(line("overhead %, positive-ack", &percent(&waste[1]), 2));
    judgement
        .ask(no_less(&waste[1], &waste[0]), line("overhead %, periodic", &percent(&waste[0]), 2));
    let gain = |rates: &[f64]| 100.0 * (rates[0] / rates[CORNER] - 1.0);
    let [periodic, acked] = [gain(&rates[0]), gain(&rates[1])];
    judgement.ask(periodic < 3.0, format!("from 80 to 60 us periodic gains {periodic:.2} %"));
    judgement.ask(acked > 3.0, format!("from 80 to 60 us positive-ack gains {acked:.2} %"));
    let x = PROCESSING.map(|us| us as f64);
    judgement.plot(drawn("Paper 5, figure 4", ("processing, us", RATE), &x, &rates));
    let waste = waste.map(|waste| percent(&waste));
    judgement.plot(drawn("Paper 5, figure 4", ("processing, us", "overhead, %"), &x, &waste));
    judgement.because(
        "At 80 us the processes can do just what comes. Of the one that sends, the transmitter's own state \
         takes 1.6 % (a packet each 5 ms) and packets sent again 1.3 %: so much more gets through below. The \
         paper does not tell what a control packet costs.",
    )
}

fn judge_windows(seen: &Seen<Exchanged>) -> Judgement {
    let mut judgement = Judgement::new();
    let rates = pair(seen, 0, WINDOWS.len(), Exchanged::throughput);
    let waste = pair(seen, 0, WINDOWS.len(), Exchanged::overhead).map(|waste| percent(&waste));
    for (method, name) in ["periodic", "positive-ack"].into_iter().enumerate() {
        judgement.tell(format!("packets/s, {name}: {}", listed(&rates[method], 0)));
        judgement.tell(format!("overhead %, {name}: {}", listed(&waste[method], 2)));
    }
    let growth = |waste: &[f64]| waste[WINDOWS.len() - 1] / waste[0];
    let [periodic, acked] = [growth(&waste[0]), growth(&waste[1])];
    judgement.ask(periodic <= 1.1, format!("overhead of periodic grows {periodic:.2} times"));
    judgement.ask(acked >= 1.5, format!("overhead of positive-ack grows {acked:.2} times"));
    let sent = seen.medians(2 * WINDOWS.len()..2 * WINDOWS.len() + 2, Exchanged::overhead);
    judgement.tell(format!("and {:.2} times with timers from the sending on", sent[1] / sent[0]));
    let last = 100.0 * (rates[0][4] / rates[0][3] - 1.0);
    judgement.ask(last < 5.0, format!("from 512 to 1024 periodic gains {last:.2} %"));
    let x = WINDOWS.map(|window| window as f64);
    let drawn = |what, y: &[Vec<f64>; 2]| {
        drawn("Paper 5, figure 5", ("window, packets", what), &x, y).logarithmic()
    };
    judgement.plot(drawn(RATE, &rates));
    judgement.plot(drawn("overhead, %", &waste));
    judgement.because(
        "Timers that expire while packets are queued send up to a third twice where the window is a little \
         larger than the pipe (512); at 1024 the wait is so long that the copy is acknowledged before the \
         first comes to its turn, and that one is not sent any more. A transmitter that would not look \
         would send all of them twice.",
    )
}

/// The widest range without a gap in which all is within 5% of the best: its ends.
fn plateau(x: &[f64], y: &[f64]) -> (f64, f64) {
    let best = y.iter().copied().fold(0.0, f64::max);
    let mut widest: Option<(f64, f64)> = None;
    let mut begin = None;
    for (&x, &y) in x.iter().zip(y) {
        begin = if y >= 0.95 * best { begin.or(Some(x)) } else { None };
        if let Some(begin) = begin
            && widest.is_none_or(|(from, to)| x - begin > to - from)
        {
            widest = Some((begin, x));
        }
    }
    widest.unwrap_or_default()
}

fn judge_timeouts(seen: &Seen<Exchanged>) -> Judgement {
    let mut judgement = Judgement::new();
    let x = TIMEOUTS.map(|timeout| timeout as f64);
    judgement.tell(format!("time-outs: {} ms", listed(&x, 0)));
    for (at, delay) in DELAYS.into_iter().enumerate() {
        let first = 2 * at * TIMEOUTS.len();
        let rates = pair(seen, first, TIMEOUTS.len(), Exchanged::throughput);
        judgement.tell(format!("{delay} ms, periodic: {} packets/s", listed(&rates[0], 0)));
        judgement.tell(format!("{delay} ms, positive-ack: {} packets/s", listed(&rates[1], 0)));
        let [periodic, acked] = [0, 1].map(|method| plateau(&x, &rates[method]));
        let width = |range: (f64, f64)| range.1 - range.0;
        judgement.ask(
            delay == 20 || width(periodic) >= 3.0 * width(acked),
            format!(
                "{delay} ms, within 5 % of the best: {} to {} ms periodic, {} to {} ms positive-ack",
                periodic.0, periodic.1, acked.0, acked.1
            ),
        );
        let title = format!("Paper 5, figure {}: {delay} ms", 6 + at);
        judgement.plot(drawn(&title, ("time-out, ms", RATE), &x, &rates));
    }
    let first = 2 * DELAYS.len() * TIMEOUTS.len();
    let sent = seen.medians(first..first + TIMEOUTS.len(), Exchanged::throughput);
    let (from, to) = plateau(&x, &sent);
    judgement
        .tell(format!("10 ms, positive-ack with timers from the sending on: {from} to {to} ms"));
    judgement.because(
        "Below the plateau packets are sent again that are only late, above it a lost packet stops the window \
         of 1024 packets, 82 ms, until it is sent again. At 15 ms these two edges meet with either method, \
         as the paper says they do at 20 ms: of a window that does not fill the pipe nothing is left to wait.",
    )
}

fn judge_intervals(seen: &Seen<Exchanged>) -> Judgement {
    let mut judgement = Judgement::new();
    let x = INTERVALS.map(|interval| interval as f64);
    let rates = seen.medians(0..INTERVALS.len(), Exchanged::throughput);
    judgement.tell(format!("{} ms: {} packets/s", listed(&x, 0), listed(&rates, 0)));
    let (from, to) = plateau(&x, &rates);
    judgement.tell(format!("within 5 % of the best: {from} to {to} ms"));
    let plot = Plot::new("Paper 5: the period of exchange", "period, ms", RATE);
    judgement.plot(plot.curve("periodic exchange", x.into_iter().zip(rates)));
    judgement
}

/// Judges runs by their packets a second: with each loss, by periodic exchange first.
pub(super) fn judge_losses<T>(seen: &Seen<T>, rate: impl Fn(&T) -> f64) -> Judgement {
    let mut judgement = Judgement::new();
    let rates = pair(seen, 0, LOSSES.len(), rate);
    for (at, loss) in LOSSES.into_iter().enumerate().skip(1) {
        let [periodic, acked] = [0, 1]
            .map(|at_method: usize| 100.0 * (1.0 - rates[at_method][at] / rates[at_method][0]));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plateau_has_no_gap() {
        let x = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        assert_eq!(plateau(&x, &[9.9, 1.0, 9.6, 10.0, 9.5, 9.0]), (3.0, 5.0));
        assert_eq!(plateau(&x, &[1.0, 1.0, 1.0, 10.0, 1.0, 1.0]), (4.0, 4.0));
    }
}
