//! Paper 2: the TCP gateway between two networks.

use super::{Judgement, Row, SEEDS, Seen, preset, seconds, studies, study, tcp};
use crate::study::{Outcome, Study};
use crate::tcp::{Config, Recovery, Source};

pub(super) const ROWS: &[Row] = &[Row {
    id: "gw-eq1",
    experiment: "one connection without gateway, of a host on an ATM and on an Ethernet LAN",
    paper: "1.47 and 0.33 Mbit/s by equation 1, 1.42 and 0.32 measured",
    criterion: "within 5% of equation 1 as the paper has it",
    assumptions: &["windows of 32,768 and 7,300 bytes, whole segments of 8,192 and 1,460"],
    seeds: SEEDS,
    work: studies(without_gateway, judge_eq1),
}];

fn without_gateway() -> Vec<Study> {
    let host = |path, mss, window| {
        let flow = Config::classic(Recovery::Reno, mss, window);
        let mut study = study(preset(path), tcp("tcp", 1, flow, Source::Greedy), seconds(60));
        study.measure_from = seconds(10);
        study
    };
    vec![host("gateway-atm", 8192, 32_768), host("gateway-ethernet", 1460, 7300)]
}

fn judge_eq1(seen: &Seen<Outcome>) -> Judgement {
    let mut judgement = Judgement::new();
    let mbps = |outcome: &Outcome| outcome.goodput("") / 1e6;
    judgement.near("ATM, Mbit/s", seen.spread(0, mbps), 1.47, 0.05);
    judgement.near("Ethernet, Mbit/s", seen.spread(1, mbps), 0.33, 0.05);
    judgement
}
