//! What a probe found, as a scenario file: `longhaul simulate` and `emulate` read it.

use std::time::Duration;

use toml::{Table, Value};

use super::findings::Findings;
use super::measure::Flow;
use crate::address::Server;

/// IPv4 and UDP headers, which the link carries and the probe does not count.
const HEADERS: u64 = 28;
/// The least queue that is assumed: the probe's own flow keeps queues short, so it does not see how
/// much they hold.
const QUEUE: Duration = Duration::from_millis(50);
/// A link that carries nothing would be no scenario.
const LEAST_RATE: f64 = 1e4;

const HEAD: &str = "\
# What would a copy of 1 GB take here?  longhaul simulate THIS --set flow.source=copy:1GB --duration 1h
# The same path, for real programs:     longhaul emulate --scenario THIS -- COMMAND
# [forward] is from here to the server. Its rate is what a transfer got, not what the line could carry
# if nobody else used it.
";

/// The path to a server.
pub fn scenario(server: &Server, found: &Findings) -> String {
    let mut table = Table::new();
    let about = format!("The path to {server}, as a probe found it");
    table.insert("about".to_owned(), about.into());
    table.insert("rtt".to_owned(), ms(found.rtt.least).into());
    for (name, flow) in [("forward", &found.there), ("back", &found.back)] {
        table.insert(name.to_owned(), direction(flow, found).into());
    }
    HEAD.to_owned() + &table.to_string()
}

fn direction(flow: &Flow, found: &Findings) -> Table {
    let whole = found.mtu as f64 / found.mtu.saturating_sub(HEADERS).max(1) as f64;
    let arrived = 1.0 - flow.loss.clamp(0.0, 0.99);
    let rate = flow.rate.as_bits_per_sec() as f64 * whole / arrived;
    let queue = flow.loaded.saturating_sub(found.rtt.least).max(QUEUE);
    let mut link = Table::new();
    link.insert("rate".to_owned(), format!("{:.6}mbit", rate.max(LEAST_RATE) / 1e6).into());
    link.insert("queue".to_owned(), ms(queue).into());
    link.insert("loss".to_owned(), Value::Float((flow.loss * 1e6).round() / 1e6));
    link.insert("mtu".to_owned(), Value::Integer(found.mtu.cast_signed()));
    link
}

fn ms(time: Duration) -> String {
    format!("{:.3}ms", time.as_secs_f64() * 1e3)
}

#[cfg(test)]
mod tests {
    use path::{LossConfig, Scenario};
    use units::{Bytes, Rate};

    use super::super::measure::RoundTrips;
    use super::*;

    #[test]
    fn a_recorded_path_is_a_scenario() {
        let rtt = RoundTrips { least: Duration::from_micros(40_250), ..RoundTrips::default() };
        let there = Flow {
            rate: Rate::from_bits_per_sec(97_146_666),
            loss: 0.01,
            loaded: Duration::from_millis(140),
            ..Flow::default()
        };
        let found = Findings { rtt, there, back: Flow::default(), mtu: 1500 };
        let text = scenario(&"host.example".parse().unwrap(), &found);
        let Scenario { about, path, .. } = text.parse().unwrap_or_else(|e| panic!("{e}\n{text}"));
        assert!(about.contains("host.example"), "{about}");
        assert_eq!(path.rtt(), Duration::from_micros(40_250));
        // 97.15 of 1472 bytes that arrive are 100 of 1500, of which 1% is lost.
        let rate = path.forward.rate.as_bits_per_sec();
        assert!((99_900_000..100_100_000).contains(&rate), "{text}");
        assert_eq!(path.forward.loss, LossConfig::Bernoulli(0.01));
        assert_eq!(path.forward.mtu, Some(Bytes(1500)));
        assert_eq!(path.back.rate.as_bits_per_sec(), 10_000);
    }
}
