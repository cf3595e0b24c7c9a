//! What our records are called in QUIC's logs.

use std::time::Duration;

use serde_json::{Value, json};
use transport::CloseReason;
use transport::crypto::TAG_LEN;
use transport::trace::{Frame, Metrics, Packet, Record, Step};
use transport::wire::{HEADER_LEN, Kind, Parameters, Report};
use units::{Instant, Rate};

/// Bytes of a sealed packet beside its body.
const OVERHEAD: usize = HEADER_LEN + TAG_LEN;

/// Turns records into events.
#[derive(Default)]
pub struct Events {
    state: &'static str,
    limit: transport::Limit,
    latest: f64,
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

impl Events {
    /// The time of the latest event, in milliseconds from the start.
    pub fn latest(&self) -> f64 {
        self.latest
    }

    /// The events that a record makes.
    pub fn of(&mut self, record: &Record, start: Instant) -> Vec<Value> {
        let time = ms(record.at.since(start));
        self.latest = time;
        let event = |name: &str, data: Value| json!({ "time": time, "name": name, "data": data });
        vec![match &record.what {
            Step::Agreed(both) => {
                let set = |(owner, parameters)| {
                    event("transport:parameters_set", parameters_set(owner, parameters))
                };
                return [("local", &both.0), ("remote", &both.1)].map(set).into();
            }
            Step::Sent(packet) => event("transport:packet_sent", packet_data(packet)),
            Step::Received(packet) => event("transport:packet_received", packet_data(packet)),
            Step::Lost { number, late } => {
                let trigger = if *late { "time_threshold" } else { "reordering_threshold" };
                event(
                    "recovery:packet_lost",
                    json!({ "header": header(*number), "trigger": trigger }),
                )
            }
            Step::Metrics(metrics) => event("recovery:metrics_updated", metrics_data(metrics)),
            Step::Congestion(state) => {
                let old = std::mem::replace(&mut self.state, state);
                event("recovery:congestion_state_updated", change(old, state))
            }
            // QUIC's logs have no word for it.
            Step::Limited(limit) => {
                let old = std::mem::replace(&mut self.limit, *limit);
                event("longhaul:limit_updated", change(old.name(), limit.name()))
            }
            Step::Closed(reason) => event("connectivity:connection_closed", closed(reason)),
        }]
    }
}

/// What was unknown before is left out.
fn change(old: &str, new: &str) -> Value {
    let mut data = json!({ "new": new });
    if !old.is_empty() {
        data["old"] = json!(old);
    }
    data
}

fn parameters_set(owner: &str, parameters: &Parameters) -> Value {
    json!({
        "owner": owner,
        "initial_max_data": parameters.connection_credit,
        "initial_max_stream_data_bidi_local": parameters.stream_credit,
        "initial_max_stream_data_bidi_remote": parameters.stream_credit,
        "initial_max_streams_bidi": parameters.streams,
        "max_idle_timeout": ms(parameters.idle_timeout) as u64,
    })
}

fn header(number: u64) -> Value {
    json!({ "packet_type": "1RTT", "packet_number": number })
}

fn packet_data(packet: &Packet) -> Value {
    json!({
        "header": header(packet.number),
        "raw": { "length": packet.size, "payload_length": packet.size - OVERHEAD },
        "frames": packet.frames.iter().flat_map(frames).collect::<Vec<_>>(),
    })
}

fn metrics_data(metrics: &Metrics) -> Value {
    let mut data = json!({
        "min_rtt": ms(metrics.min_rtt),
        "smoothed_rtt": ms(metrics.rtt),
        "rtt_variance": ms(metrics.variation),
        "congestion_window": metrics.window.0,
        "bytes_in_flight": metrics.in_flight.0,
        "pacing_rate": Rate::as_bits_per_sec(metrics.pacing_rate),
    });
    if let Some(latest) = metrics.latest_rtt {
        data["latest_rtt"] = json!(ms(latest));
    }
    data
}

fn closed(reason: &CloseReason) -> Value {
    let (owner, code) = match reason {
        CloseReason::Remote(close) => ("remote", Some(close.code)),
        _ => ("local", None),
    };
    let mut data = json!({ "owner": owner, "reason": reason.to_string() });
    if let Some(code) = code {
        data["application_code"] = json!(code);
    }
    data
}

fn frames(frame: &Frame) -> Vec<Value> {
    vec![match frame {
        Frame::Stream { stream, offset, len, fin } => json!({
            "frame_type": "stream", "stream_id": stream, "offset": offset, "length": len, "fin": fin,
        }),
        Frame::Report(report) => return report_frames(report),
        // QUIC has nothing like it.
        Frame::State(state) => json!({
            "frame_type": "unknown", "raw_frame_type": Kind::State as u8,
            "lower": state.lower, "upper": state.upper, "queued": state.queued,
        }),
        Frame::Ping(0) => json!({ "frame_type": "ping" }),
        Frame::Ping(padding) => {
            let padding = json!({ "frame_type": "padding", "length": padding });
            return vec![json!({ "frame_type": "ping" }), padding];
        }
        Frame::Reset(signal) => json!({
            "frame_type": "reset_stream", "stream_id": signal.stream, "error_code": signal.code,
            "final_size": signal.end,
        }),
        Frame::Stop(signal) => json!({
            "frame_type": "stop_sending", "stream_id": signal.stream, "error_code": signal.code,
        }),
        Frame::Close(close) => json!({
            "frame_type": "connection_close", "error_space": "application",
            "error_code": close.code, "reason": close.reason,
        }),
        Frame::Challenge => json!({ "frame_type": "path_challenge" }),
        Frame::Response => json!({ "frame_type": "path_response" }),
    }]
}

/// A report is an acknowledgement and its credits.
fn report_frames(report: &Report) -> Vec<Value> {
    let mut at = report.from;
    let mut ranges = Vec::new();
    for run in &report.runs {
        if run.received > 0 {
            ranges.push([at, at + run.received - 1]);
        }
        at += run.received + run.missing;
    }
    let mut frames = Vec::new();
    if !ranges.is_empty() {
        let delay = Duration::from_nanos(report.made_at.saturating_sub(report.largest_arrival));
        frames.push(json!({
            "frame_type": "ack", "ack_delay": ms(delay), "acked_ranges": ranges,
            "ce": report.ecn_ce,
        }));
    }
    frames.push(json!({ "frame_type": "max_data", "maximum": report.connection_credit }));
    frames.extend(report.credits.iter().map(|credit| {
        json!({
            "frame_type": "max_stream_data", "stream_id": credit.stream, "maximum": credit.credit,
        })
    }));
    frames
}
