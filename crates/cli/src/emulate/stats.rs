//! What a lab does while it runs: two lines, or a JSON object, each interval.

use std::time::Duration;

use emulator::{Lab, LabSample, LaneSample};
use path::{DropCause, Tally};
use serde_json::{Value, json};
use tokio::time::{MissedTickBehavior, interval};

use super::report::{drops, micros};

/// Lines between two headings.
const PAGE: u32 = 20;

/// Shows the path every `period`, without end.
pub async fn show(lab: &Lab, period: Duration, json: bool) {
    let mut ticks = interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks.tick().await;
    let mut before = lab.sample();
    for line in 0.. {
        ticks.tick().await;
        let now = lab.sample();
        let time = now.elapsed - before.elapsed;
        let lanes = [
            Lane { name: "near -> far", now: &now.forward, before: &before.forward, time },
            Lane { name: "far -> near", now: &now.back, before: &before.back, time },
        ];
        if json {
            say!("{}", object(&now, &lanes));
        } else {
            if line % PAGE == 0 {
                tell!("{HEADING}");
            }
            lanes.iter().for_each(|lane| tell!("{}", lane.line(now.elapsed)));
        }
        before = now;
    }
}

const HEADING: &str = concat!(
    "                                Mbit/s        |        queue now         |         at most\n",
    "    time  direction           in        out  |     ms  packets      KiB  |     ms  packets",
    "      KiB  |  late p99  events"
);

/// One direction between two samples.
struct Lane<'a> {
    name: &'static str,
    now: &'a LaneSample,
    before: &'a LaneSample,
    time: Duration,
}

impl Lane<'_> {
    /// Bits per second of what one counter counted.
    fn rate(&self, of: impl Fn(&LaneSample) -> Tally) -> f64 {
        let bytes = of(self.now).bytes.0 - of(self.before).bytes.0;
        bytes as f64 * 8.0 / self.time.as_secs_f64()
    }

    fn rates(&self) -> [f64; 2] {
        let offered = self.rate(|sample| sample.report.counters.offered);
        [offered, self.rate(|sample| sample.report.counters.delivered)]
    }

    fn packets(&self, of: impl Fn(&LaneSample) -> u64) -> u64 {
        of(self.now) - of(self.before)
    }

    fn dropped(&self, cause: DropCause) -> u64 {
        self.packets(|sample| sample.report.counters.dropped(cause).packets)
    }

    fn marked(&self) -> u64 {
        self.packets(|sample| sample.report.counters.marked.packets)
    }

    fn outside(&self) -> u64 {
        self.packets(|sample| sample.report.lost_outside())
    }

    fn line(&self, elapsed: Duration) -> String {
        let [offered, delivered] = self.rates().map(|rate| rate / 1e6);
        let waits = |tally: Tally, time: Duration| {
            let (ms, kib) = (time.as_secs_f64() * 1e3, tally.bytes.0 as f64 / 1024.0);
            format!("{ms:>6.1} {:>8} {kib:>8.0}", tally.packets)
        };
        let causes = DropCause::ALL.map(|cause| (self.dropped(cause), cause.name()));
        let more = [(self.marked(), "marked"), (self.outside(), "OUTSIDE THE MODEL")];
        let happened = causes.into_iter().chain(more).filter(|&(packets, _)| packets > 0);
        let events: Vec<_> = happened.map(|(packets, name)| format!("{packets} {name}")).collect();
        let LaneSample { queue, peak, queue_time: [now, most], lateness, .. } = self.now;
        let late = match lateness.packets {
            0 => "-".to_owned(),
            _ => format!("{:.0?}", lateness.p99),
        };
        format!(
            "{:>7.1}s  {}  {offered:>9.2}  {delivered:>9.2}  | {}  | {}  |  {late:>8}  {}",
            elapsed.as_secs_f64(),
            self.name,
            waits(*queue, *now),
            waits(*peak, *most),
            if events.is_empty() { "-".to_owned() } else { events.join(", ") },
        )
    }

    fn json(&self) -> Value {
        let [offered, delivered] = self.rates().map(|rate| rate.round() as u64);
        let LaneSample { queue, peak, queue_time: [now, most], lateness, .. } = self.now;
        json!({
            "in_bps": offered,
            "out_bps": delivered,
            "queue_bytes": queue.bytes.0,
            "queue_packets": queue.packets,
            "queue_us": micros(*now),
            "peak_bytes": peak.bytes.0,
            "peak_packets": peak.packets,
            "peak_us": micros(*most),
            "dropped": drops(|cause| self.dropped(cause)),
            "marked": self.marked(),
            "outside_model": self.outside(),
            "late_p99_us": micros(lateness.p99),
        })
    }
}

fn object(now: &LabSample, lanes: &[Lane<'_>; 2]) -> Value {
    json!({
        "event": "stats",
        "seconds": now.elapsed.as_secs_f64(),
        "near_to_far": lanes[0].json(),
        "far_to_near": lanes[1].json(),
    })
}
