//! The closing report for programs.

use std::time::Duration;

use emulator::{LabReport, LaneReport, Verdict};
use path::DropCause;
use serde_json::{Value, json};

/// A time in whole microseconds.
pub fn micros(time: Duration) -> u64 {
    time.as_micros() as u64
}

/// Packets dropped, by cause.
pub fn drops(of: impl Fn(DropCause) -> u64) -> Value {
    let drops = DropCause::ALL.map(|cause| (cause.name().to_owned(), of(cause).into()));
    Value::Object(drops.into_iter().collect())
}

/// Packets and bytes each way, lateness in microseconds, and the verdict.
pub fn json(report: &LabReport, verdict: &Verdict) -> Value {
    let faults = verdict
        .faults
        .iter()
        .map(|fault| json!({ "why": fault.why(), "what_to_do": fault.what_to_do() }));
    json!({
        "event": "report",
        "seconds": report.elapsed.as_secs_f64(),
        "cpu_seconds": report.cpu.as_secs_f64(),
        "stall_us": micros(report.stall),
        "died": report.died,
        "near_to_far": lane(&report.forward),
        "far_to_near": lane(&report.back),
        "faithful": verdict.is_faithful(),
        "faults": faults.collect::<Vec<_>>(),
    })
}

fn lane(lane: &LaneReport) -> Value {
    let LaneReport { counters, lateness, intake, outside, access_drops } = lane;
    json!({
        "packets": counters.offered.packets,
        "bytes": counters.offered.bytes.0,
        "delivered_packets": counters.delivered.packets,
        "delivered_bytes": counters.delivered.bytes.0,
        "dropped": drops(|cause| counters.dropped(cause).packets),
        "dropped_by_hosts_links": access_drops,
        "marked": counters.marked.packets,
        "outside_model": lane.lost_outside(),
        "ring_full": outside.ring_full,
        "device_overflow": outside.device_overflow,
        "refused": outside.refused,
        "uncounted": outside.uncounted,
        "late_p50_us": micros(lateness.p50),
        "late_p99_us": micros(lateness.p99),
        "late_p999_us": micros(lateness.p999),
        "late_max_us": micros(lateness.max),
        "intake_p99_us": micros(intake.p99),
        "intake_max_us": micros(intake.max),
    })
}
