//! The status as Prometheus reads it (the text exposition format, version 0.0.4).

use std::fmt::Write as _;

use super::{Status, TrunkState};

/// All figures, without names of hosts: there may be any number of those.
pub(super) fn text(status: &Status) -> String {
    let (trunk, totals) = (&status.trunk, &status.totals);
    let now = &trunk.now;
    let up = f64::from(u8::from(trunk.state == TrunkState::Up));
    let mut text = String::new();
    let mut one = |kind: &str, name: &str, help: &str, value: f64| {
        let _ = write!(
            text,
            "# HELP longhaul_gateway_{name} {help}\n# TYPE longhaul_gateway_{name} {kind}\n\
             longhaul_gateway_{name} {value}\n"
        );
    };
    one("gauge", "trunk_up", "Whether the trunk carries new connections.", up);
    one("gauge", "trunk_sent_bits_per_second", "Sent in the last second.", now.sent);
    one("gauge", "trunk_received_bits_per_second", "Received in the last second.", now.received);
    one("gauge", "trunk_pace_bits_per_second", "At which packets may go out.", now.pace);
    one("gauge", "trunk_rtt_seconds", "Round-trip time.", now.rtt_ms / 1e3);
    one("gauge", "trunk_queue_seconds", "Part of it that is queues.", now.queue_ms / 1e3);
    one("counter", "trunk_sent_packets_total", "Sent over this trunk.", trunk.sent as f64);
    one("counter", "trunk_lost_packets_total", "Of those, lost.", trunk.lost as f64);
    one("gauge", "connections", "Carried now.", status.open as f64);
    one("counter", "bytes_there_total", "From clients to servers.", totals.there as f64);
    one("counter", "bytes_back_total", "From servers to clients.", totals.back as f64);
    let undelivered = totals.undelivered as f64;
    let help = "Of connections that were cut off, not known to have arrived.";
    one("counter", "bytes_undelivered_total", help, undelivered);
    let name = "longhaul_gateway_connections_total";
    let _ =
        write!(text, "# HELP {name} Connections by what became of them.\n# TYPE {name} counter\n");
    for (outcome, count) in [
        ("carried", totals.carried),
        ("reset", totals.reset),
        ("refused", totals.refused),
        ("lost", totals.lost),
        ("bypassed_no_trunk", totals.bypassed_no_trunk),
        ("bypassed_no_room", totals.bypassed_no_room),
        ("bypassed_by_far", totals.bypassed_by_far),
        ("bypassed_unseen", totals.bypassed_unseen),
    ] {
        let _ = writeln!(text, "{name}{{outcome=\"{outcome}\"}} {count}");
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::sight::Book;
    use crate::trunk::Trunk;

    /// The metrics that a text names.
    fn named(text: &str) -> BTreeSet<&str> {
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        words.filter(|word| word.starts_with("longhaul_gateway_")).collect()
    }

    #[tokio::test]
    async fn the_dashboard_shows_every_metric_and_no_other() {
        let text = text(&Book::new(Trunk::default()).status().await);
        let dashboard = include_str!("dashboard.json");
        let parsed: serde_json::Value = serde_json::from_str(dashboard).unwrap();
        assert!(parsed["panels"].as_array().is_some_and(|panels| !panels.is_empty()));
        assert_eq!(named(dashboard), named(&text));
    }
}
