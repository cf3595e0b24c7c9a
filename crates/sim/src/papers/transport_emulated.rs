//! Papers 4 and 5 across the emulator: `longhaul cp` by UDP.

use core::mem::swap;

use path::{LossConfig, PathConfig};
use units::Rate;

use super::state::{LOSSES, judge_losses};
use super::{Crossed, Crossing, Judgement, Row, SEEDS, Seen, both, crossings, preset};

pub(super) const ROWS: &[Row] = &[
    Row {
        id: "udtg-emu",
        experiment: "five files at a time by UDT and by UDT-g, with drop-tail and with RED-i",
        paper: "-",
        criterion: "UDT-g loses fewer packets at no less than 95% of UDT's throughput",
        assumptions: &[
            "the paper's five volume flows alone, on 100 Mbit/s and 100 ms, which two cores carry without being late",
            "each sender's own link carries 100 Mbit/s too: through faster ones the two packets of a pair pass with \
             nobody's between them, UDT-g measures the capacity that UDT measures, and does the same packet by packet",
            "60 s of steady state; lost is the share of the packets of that time",
        ],
        seeds: SEEDS,
        work: crossings(udt, judge_udt),
    },
    Row {
        id: "state-loss",
        experiment: "control packets lost beside the others: the receiver's reports, or its acknowledgements",
        paper: "harmless: the next one says everything",
        criterion: "throughput falls < 5% at 10% loss of control packets",
        assumptions: &[
            "the product's transport and its default congestion control, 102.4 Mbit/s, 10 ms, 1e-3 of all packets \
             lost as well",
            "15 s of steady state; packets of 1 KB are counted",
        ],
        seeds: SEEDS,
        work: crossings(control_losses, |seen| {
            judge_losses(seen, |crossed| crossed.bytes() / 1024.0)
        }),
    },
];

/// The data of a file that is fetched goes back.
fn fetched(mut path: PathConfig) -> PathConfig {
    swap(&mut path.forward, &mut path.back);
    path
}

/// With each queue by UDT, then by UDT-g.
fn udt() -> Vec<Crossing> {
    let run = |queue: &str, law: &str| {
        let rate = Rate::from_bits_per_sec(100_000_000);
        let path = both(preset(queue), |link| link.rate = rate);
        Crossing::by_udp(fetched(path), ["", &format!("--cc {law}")], (10, 60))
            .changed(|fetch| (fetch.beside, fetch.access) = (4, Some(rate)))
    };
    let queues = ["udtg-droptail", "udtg-red-i"];
    queues.into_iter().flat_map(|queue| ["udt", "udt-g"].map(|law| run(queue, law))).collect()
}

fn judge_udt(seen: &Seen<Crossed>) -> Judgement {
    let mut judgement = Judgement::new();
    for (first, queue) in [(0, "drop-tail"), (2, "RED-i")] {
        let rates = seen.spreads(first..first + 2, Crossed::mbps);
        let lost = seen.spreads(first..first + 2, |crossed| 100.0 * crossed.lost);
        let of = |at: usize| format!("{:.1} Mbit/s, {:.3} % lost", rates[at], lost[at]);
        judgement.tell(format!("{queue}, UDT: {}", of(0)));
        let holds = lost[1].median < lost[0].median && rates[1].median >= 0.95 * rates[0].median;
        let share =
            |of: fn(&Crossed) -> f64| seen.spreads(first..first + 2, |crossed| 100.0 * of(crossed));
        let [early, full] = [share(|it| it.early), share(|it| it.lost - it.early)];
        let offered = seen.spreads(first..first + 2, |crossed| crossed.offered / 1e6);
        judgement.ask(holds, format!("{queue}, UDT-g: {}", of(1))).because(|| {
            let of = |at: usize| {
                let (offered, early, full) = (offered[at], early[at], full[at]);
                format!("{offered:.1} Mbit/s of packets, {full:.3} % of which find it full and {early:.3} % are dropped early")
            };
            format!("{queue}: UDT-g gives the queue {}; UDT {}", of(1), of(0))
        });
    }
    judgement
}

/// By periodic exchange with each loss, then by positive acknowledgement.
fn control_losses() -> Vec<Crossing> {
    let run = |feedback: &str, loss: f64| {
        let mut path = preset("state-exchange");
        path.forward.loss = LossConfig::Bernoulli(1e-3 + loss);
        Crossing::by_udp(path, [&format!("--feedback {feedback}"), ""], (3, 15))
    };
    let methods = ["periodic", "positive-ack"];
    methods.into_iter().flat_map(|method| LOSSES.map(|loss| run(method, loss))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A miss tells what the queue was given, and how it dropped what.
    #[test]
    fn a_law_that_is_no_gentler_has_a_cause() {
        let judged = |lost: f64| {
            let run = |lost: f64| {
                let rates = vec![18e6; 5];
                Crossed { rates, offered: 95e6, lost, early: lost / 4.0, ..Crossed::default() }
            };
            judge_udt(&Seen::new([0.01, 0.005, 0.02, lost].map(run).into(), 4))
        };
        assert!(judged(0.01).passed);
        let missed = judged(0.04);
        assert!(!missed.passed && missed.reasons.len() == 1, "{missed:?}");
        let reason = &missed.reasons[0];
        assert!(reason.starts_with("RED-i: UDT-g gives the queue 95.0 Mbit/s"), "{reason}");
        assert!(reason.contains("3.000 % of which find it full and 1.000 %"), "{reason}");
    }
}
