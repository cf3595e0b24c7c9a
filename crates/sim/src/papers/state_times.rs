//! Paper 5's times: the time-out after which a packet is sent again, and the period of exchange.

use super::state::{
    LAW, MACHINES, NETWORK, Other, RATE, TIMERS, both, drawn, listed, others, pair,
};
use super::{Judgement, Plot, Row, SEEDS, Seen, Spreads, exchanges, ms, seconds};
use crate::exchange::{Exchange, Exchanged, Method};

pub(super) const ROWS: &[Row] = &[
    Row {
        id: "state-fig6-9",
        experiment: "throughput against the retransmission time-out at 5, 10, 15 and 20 ms",
        paper: "periodic exchange has a wide plateau, positive acknowledgement a single point; alike at 20 ms",
        criterion: "the plateau, within 5% of the best, at least 3 times wider at 5, 10 and 15 ms",
        assumptions: &[
            NETWORK,
            LAW,
            MACHINES,
            TIMERS,
            "a window of 1024, 80 us of processing, state every 5 ms; 8 s",
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
            LAW,
            MACHINES,
            "5 ms, a window of 1024, 80 us of processing, time-out 30 ms; 10 s",
        ],
        seeds: SEEDS,
        work: exchanges(intervals, judge_intervals),
    },
];

/// In milliseconds.
const DELAYS: [u64; 4] = [5, 10, 15, 20];
const TIMEOUTS: [u64; 20] =
    [5, 10, 15, 20, 25, 30, 35, 40, 45, 50, 55, 60, 65, 70, 75, 80, 90, 100, 120, 140];
const INTERVALS: [u64; 8] = [1, 2, 3, 5, 8, 10, 15, 30];

/// All periods, then in other networks.
fn intervals() -> Vec<Exchange> {
    let all = INTERVALS
        .map(|period| Exchange { method: Method::Periodic(ms(period)), ..Exchange::default() });
    all.into_iter().chain(others().flat_map(|(_, other)| all.map(other))).collect()
}

/// Delay by delay, with both methods; then at 10 ms with timers that start at the sending; then in each other network
/// at all delays but the longest, of which nothing is asked.
fn timeouts() -> Vec<Exchange> {
    let at = |delay: u64, (_, other): Other| {
        both(TIMEOUTS.map(|timeout| {
            let (delay, timeout) = (ms(delay), ms(timeout));
            other(Exchange { delay, timeout, duration: seconds(8), ..Exchange::default() })
        }))
    };
    let usual: Other = ("", |run| run);
    let sent = at(10, usual).into_iter().skip(TIMEOUTS.len());
    let sent = sent.map(|run| Exchange { timed_when_sent: true, ..run });
    let elsewhere = others().flat_map(|other| DELAYS[..3].iter().flat_map(move |&d| at(d, other)));
    DELAYS.into_iter().flat_map(|d| at(d, usual)).chain(sent).chain(elsewhere).collect()
}

/// The widest range without a gap in which all is within 5% of the best: its ends, where a straight line between the last
/// point within and the first beyond falls below that.
fn plateau(x: &[f64], y: &[f64]) -> (f64, f64) {
    let level = 0.95 * y.iter().copied().fold(0.0, f64::max);
    let edge = |within: usize, beyond: usize| {
        let share = (y[within] - level) / (y[within] - y[beyond]);
        x[within] + share * (x[beyond] - x[within])
    };
    let mut widest = (0.0, 0.0);
    let mut begin = None;
    for at in 0..y.len() {
        if y[at] < level {
            begin = None;
            continue;
        }
        let from = *begin.get_or_insert_with(|| if at == 0 { x[0] } else { edge(at, at - 1) });
        let to = if at + 1 < y.len() && y[at + 1] < level { edge(at, at + 1) } else { x[at] };
        if to - from > width(widest) {
            widest = (from, to);
        }
    }
    widest
}

/// How many of the time-outs that are so many milliseconds apart lie within a plateau.
fn points((from, to): (f64, f64), apart: f64) -> usize {
    ((to / apart).floor() - (from / apart).ceil() + 1.0).max(0.0) as usize
}

/// What the plateaus of periodic exchange and of positive acknowledgement look like when time-outs are farther apart: with how
/// many milliseconds a single one lies within the latter, and several within the former.
fn sampled([periodic, acked]: [(f64, f64); 2]) -> String {
    let is_single = |apart: &f64| points(acked, *apart) == 1 && points(periodic, *apart) > 1;
    let Some(apart) = (1..=8).map(|fives| f64::from(5 * fives)).find(is_single) else {
        return String::new();
    };
    format!(
        " Of time-outs {apart} ms apart one lies on positive acknowledgement's plateau and {} on that of periodic exchange: a \
         point and a range, as the paper has them, which does not tell how far apart its time-outs were.",
        points(periodic, apart)
    )
}

/// How wide a plateau is.
fn width((from, to): (f64, f64)) -> f64 {
    to - from
}

fn judge_timeouts(seen: &Seen<Exchanged>) -> Judgement {
    let mut judgement = Judgement::new();
    let x = TIMEOUTS.map(|timeout| timeout as f64);
    judgement.tell(format!("time-outs: {} ms", listed(&x, 0)));
    let of =
        |rates: &[Spreads; 2]| [0, 1].map(|method: usize| plateau(&x, &rates[method].medians()));
    let told = |[periodic, acked]: [(f64, f64); 2]| {
        format!(
            "within 5 % of the best: {:.1} to {:.1} ms periodic, {:.1} to {:.1} ms positive-ack",
            periodic.0, periodic.1, acked.0, acked.1
        )
    };
    let wider = |[periodic, acked]: [(f64, f64); 2]| width(periodic) >= 3.0 * width(acked);
    let behind = 2 * DELAYS.len() * TIMEOUTS.len();
    let elsewhere = |other: usize, delay: usize| {
        let before = 1 + 2 * (3 * other + delay);
        of(&pair(seen, behind + before * TIMEOUTS.len(), TIMEOUTS.len(), Exchanged::throughput))
    };
    for (at, delay) in DELAYS.into_iter().enumerate() {
        let first = 2 * at * TIMEOUTS.len();
        let rates = pair(seen, first, TIMEOUTS.len(), Exchanged::throughput);
        judgement.tell(format!("{delay} ms, periodic: {:.0} packets/s", rates[0]));
        judgement.tell(format!("{delay} ms, positive-ack: {:.0} packets/s", rates[1]));
        let [periodic, acked] = of(&rates);
        let line = format!("{delay} ms, {}", told([periodic, acked]));
        judgement.ask(delay == 20 || wider([periodic, acked]), line).because(|| {
            let holding = others().enumerate().filter(|(other, _)| wider(elsewhere(*other, at)));
            let holding: Vec<&str> = holding.map(|(_, (name, _))| name).collect();
            let holding = match &holding[..] {
                [] => "It misses with each error rate and each law of the network that are shown.".to_owned(),
                _ => format!("It holds with {}.", holding.join(" and with ")),
            };
            format!(
                "At {delay} ms the plateau of periodic exchange is {:.1} ms wide, that of positive acknowledgement \
                 {:.1}. Below the plateau packets are sent again that are only late, above it a lost packet stops \
                 the window of 1024 packets, {:.0} ms of what comes: both edges draw together as the delay \
                 grows, with either method. {holding}{}",
                width(periodic),
                width(acked),
                1024.0 * 0.08,
                sampled([periodic, acked])
            )
        });
        let title = format!("Paper 5, figure {}: {delay} ms", 6 + at);
        judgement.plot(drawn(&title, ("time-out, ms", RATE), &x, &rates));
    }
    let sent = seen.spreads(behind..behind + TIMEOUTS.len(), Exchanged::throughput);
    let (from, to) = plateau(&x, &sent.medians());
    judgement.tell(format!(
        "10 ms, positive-ack with timers from the sending on: {from:.1} to {to:.1} ms"
    ));
    for (other, (name, _)) in others().enumerate() {
        for (at, delay) in DELAYS[..3].iter().enumerate() {
            judgement.tell(format!("{delay} ms, {name}, {}", told(elsewhere(other, at))));
        }
    }
    judgement
}

fn judge_intervals(seen: &Seen<Exchanged>) -> Judgement {
    let mut judgement = Judgement::new();
    let x = INTERVALS.map(|interval| interval as f64);
    let rates = seen.spreads(0..INTERVALS.len(), Exchanged::throughput);
    judgement.tell(format!("{} ms: {rates:.0} packets/s", listed(&x, 0)));
    let (from, to) = plateau(&x, &rates.medians());
    judgement.tell(format!("within 5 % of the best: {from:.1} to {to:.1} ms"));
    for (at, (name, _)) in others().enumerate() {
        let first = (1 + at) * INTERVALS.len();
        let rates = seen.spreads(first..first + INTERVALS.len(), Exchanged::throughput);
        let (from, to) = plateau(&x, &rates.medians());
        judgement.tell(format!("{name}, within 5 % of the best: {from:.1} to {to:.1} ms"));
    }
    let plot = Plot::new("Paper 5: the period of exchange", "period, ms", RATE);
    judgement.plot(plot.curve("periodic exchange", x.into_iter().zip(rates.0)));
    judgement
}

#[cfg(test)]
mod tests {
    use super::super::state::tests::exchanged;
    use super::*;

    #[test]
    fn a_plateau_is_as_wide_as_the_lines_between_its_points_tell() {
        let judged = |periodic: &[usize]| {
            let count = timeouts().len();
            let mut runs: Vec<_> = (0..count).map(|_| exchanged(5e3, 9.0)).collect();
            for delay in 0..DELAYS.len() {
                let first = 2 * delay * TIMEOUTS.len();
                periodic.iter().for_each(|at| runs[first + at] = exchanged(9e3, 9.0));
                runs[first + TIMEOUTS.len() + 3] = exchanged(9e3, 9.0);
            }
            judge_timeouts(&Seen::new(runs, count))
        };
        assert!(judged(&[3, 4, 5]).passed);
        let narrow = judged(&[3]);
        assert!(narrow.reasons[0].contains("1.1 ms wide"), "{narrow:?}");
    }

    #[test]
    fn a_plateau_is_a_point_when_few_are_looked_at() {
        assert_eq!([5.0, 10.0, 20.0].map(|apart| points((10.0, 29.0), apart)), [4, 2, 1]);
        let told = sampled([(25.0, 62.0), (28.0, 44.0)]);
        assert!(
            told.starts_with(" Of time-outs 15 ms apart one lies on") && told.contains("and 3 on"),
            "{told}"
        );
        assert_eq!(sampled([(31.0, 39.0), (31.0, 39.0)]), "");
    }

    #[test]
    fn a_plateau_has_no_gap() {
        let x = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        let is_about = |y: [f64; 6], (from, to): (f64, f64)| {
            let found = plateau(&x, &y);
            assert!((found.0 - from).abs() < 1e-3 && (found.1 - to).abs() < 1e-3, "{found:?}");
        };
        is_about([9.9, 1.0, 9.6, 10.0, 9.5, 9.0], (3.0 - 0.1 / 8.6, 5.0));
        is_about([1.0, 1.0, 1.0, 10.0, 1.0, 1.0], (4.0 - 0.5 / 9.0, 4.0 + 0.5 / 9.0));
        is_about([1.0, 9.6, 1.0, 1.0, 10.0, 9.6], (5.0 - 0.5 / 9.0, 6.0));
    }
}
