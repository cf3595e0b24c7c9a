//! One peer over one path.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::super::lab::Bed;
use super::super::series::{Series, rate};
use super::peer::{Count, Peer};
use super::record::Row;

/// Runs `$PEER` where `in` is a RAM disk of its own, of large pages: a virtual machine whose host
/// hands out memory page by page spends half a core on the small pages of a new file, which sender
/// and emulator then lack.
const FAR: &str = "mkdir in; exec unshare --mount sh -c '\
    mount -t tmpfs -o huge=within_size longhaul in || echo \"in: pages of the usual size\" >&2; \
    eval \"$PEER\"'";

/// A path, and how long it is used.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// Round-trip time in milliseconds.
    pub rtt_ms: u64,
    /// Random loss from sender to receiver, in percent.
    pub loss_percent: f64,
    /// How long a run lasts.
    pub seconds: u64,
}

impl Cell {
    /// Runs a peer once.
    pub fn run(&self, bed: &Bed, tools: &Path, peer: &Peer, seed: u64) -> Result<Row> {
        let folder = bed.folder().join("run");
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder)?;
        let mut emulate = Command::new(bed.binary());
        emulate.args(["emulate", "--json", "--rate", "1gbit", "--queue", "50ms"]);
        emulate.args(["--rtt", &format!("{}ms", self.rtt_ms), "--seed", &seed.to_string()]);
        emulate.args(["--loss", &format!("{}%", self.loss_percent), "--cc", peer.kernel_cc]);
        // Standard output is the report's.
        let near = format!("exec 1>&2; {}", peer.near);
        emulate.args(["--far", FAR, "--", "sh", "-c", &near]).env("PEER", peer.far);
        emulate.current_dir(&folder).env("KEY", bed.key());
        emulate.env("LONGHAUL", bed.binary()).env("PEERS", tools).env("SOURCE", bed.source());
        emulate.env("TIME", self.seconds.to_string());
        let output = emulate.output().context("cannot start `longhaul emulate`")?;
        let said = String::from_utf8_lossy(&output.stderr);
        let count = fs::read_to_string(folder.join("count")).unwrap_or_default();
        let mut series = series(peer.count, &count)
            .with_context(|| format!("{}: the count:\n{count}\n{said}", peer.name))?;
        let report: Value = serde_json::from_slice(&output.stdout)
            .with_context(|| format!("the emulator's report:\n{said}"))?;
        let end = self.seconds as f64;
        // What is counted at the server is seen by the client half a round trip later, and the other way round.
        let half_round_trip = self.rtt_ms as f64 / 2e3;
        let from_start = |late: Result<f64>| -> Result<f64> {
            Ok(late.with_context(|| format!("{}:\n{said}", peer.name))? - half_round_trip)
        };
        let late = match peer.count {
            Count::Iperf3 => from_start(late(&folder))?,
            Count::Kernel => from_start(near_start(&folder).map(|start| -start))?,
            Count::Longhaul | Count::Pairs => 0.0,
        };
        series.iter_mut().for_each(|point| point.0 += late);
        ensure!(
            series.last().is_some_and(|last| last.0 >= end * 0.9),
            "{}: the run broke off after {:?}:\n{said}",
            peer.name,
            series.last()
        );
        Ok(Row {
            peer: peer.name.to_owned(),
            revision: String::new(),
            cell: *self,
            seed,
            second_half_mbps: rate(&series, end / 2.0, end),
            whole_mbps: rate(&series, 0.0, end),
            queue_drops_percent: queue_drops(&report["near_to_far"]),
            memory_mb: memory(&folder.join("near-memory")).zip(memory(&folder.join("far-memory"))),
            faithful: report["faithful"] == true,
        })
    }
}

/// Seconds from the start of iperf3's client to the start of its count.
fn late(folder: &Path) -> Result<f64> {
    let second = numbers(folder, "near-second")?;
    let &[at, length] = &second[..] else {
        anyhow::bail!("when iperf3 began is not known: {second:?}");
    };
    Ok(at / 1e9 - near_start(folder)? - length)
}

/// Seconds of the clock when iperf3's client began.
fn near_start(folder: &Path) -> Result<f64> {
    let start = numbers(folder, "near-start")?;
    let &[start] = &start[..] else {
        anyhow::bail!("when iperf3's client began is not known: {start:?}");
    };
    Ok(start / 1e9)
}

fn numbers(folder: &Path, name: &str) -> Result<Vec<f64>> {
    let text = fs::read_to_string(folder.join(name)).context(name.to_owned())?;
    let numbers = text.split_whitespace().map(str::parse).collect::<Result<_, _>>();
    numbers.with_context(|| format!("{name}: {text}"))
}

/// MB that a program used at most, as `time` wrote it down in KiB behind what it thinks of the exit code.
fn memory(path: &Path) -> Option<f64> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.lines().last()?.parse::<f64>().ok()? * 1024.0 / 1e6)
}

fn series(count: Count, text: &str) -> Result<Series> {
    match count {
        Count::Longhaul => {
            let mut lines = text.lines();
            let start: f64 = lines.next().context("no start")?.parse()?;
            let mut series = Vec::new();
            for line in lines {
                let (stamp, event) = line.split_once(' ').context("no time")?;
                let event: Value = serde_json::from_str(event)?;
                if event["event"] == "progress" {
                    let bytes = event["bytes"].as_f64().context("no bytes")?;
                    series.push(((stamp.parse::<f64>()? - start) / 1e9, bytes));
                }
            }
            Ok(series)
        }
        Count::Iperf3 => {
            let report: Value = serde_json::from_str(text)?;
            let intervals = report["intervals"].as_array().context("no intervals")?;
            let mut bytes = 0.0;
            let point = |interval: &Value| {
                bytes += interval["sum"]["bytes"].as_f64()?;
                Some((interval["sum"]["end"].as_f64()?, bytes))
            };
            intervals.iter().map(point).collect::<Option<_>>().context("an interval without a sum")
        }
        Count::Kernel => {
            let mut series = Series::new();
            for line in text.lines() {
                if let Some(stamp) = line.strip_prefix("== ") {
                    series.push((stamp.parse::<f64>()? / 1e9, 0.0));
                } else if let Some(segments) = field(line, "delivered:") {
                    let payload = field(line, "mss:").context("no segment size")?;
                    series.last_mut().context("no time")?.1 += segments * payload;
                }
            }
            // The last ones may show connections that are gone by then.
            let most = series.iter().map(|point| point.1).fold(0.0, f64::max);
            while series.last().is_some_and(|last| last.1 < most) {
                series.pop();
            }
            Ok(series)
        }
        Count::Pairs => text
            .lines()
            .map(|line| {
                let (seconds, bytes) = line.trim().split_once(' ').context("no pair")?;
                Ok((seconds.parse()?, bytes.trim().parse()?))
            })
            .collect(),
    }
}

/// A number that stands behind a name in what `ss` tells.
fn field(line: &str, name: &str) -> Option<f64> {
    line.split_whitespace().find_map(|word| word.strip_prefix(name)?.parse().ok())
}

/// What the queue dropped of what was sent, in percent.
fn queue_drops(lane: &Value) -> f64 {
    let figure = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
    figure(&lane["dropped"]["queue"]) / figure(&lane["packets"]) * 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_in_each_form() {
        let ours = "1000000000\n2000000000 {\"event\":\"start\"}\n\
                    3000000000 {\"event\":\"progress\",\"bytes\":7}\n";
        assert_eq!(series(Count::Longhaul, ours).unwrap(), [(2.0, 7.0)]);
        let iperf3 =
            r#"{"intervals":[{"sum":{"end":1.0,"bytes":3}},{"sum":{"end":2.0,"bytes":4}}]}"#;
        assert_eq!(series(Count::Iperf3, iperf3).unwrap(), [(1.0, 3.0), (2.0, 7.0)]);
        let kernel = "== 1000000000\n\
                      ESTAB 0 9 10.77.0.1:4 10.77.0.2:5201 bbr mss:1448 pmtu:1500 delivered:3 busy:1ms\n\
                      ESTAB 0 9 10.77.0.1:5 10.77.0.2:5201 bbr advmss:9 mss:1000 delivered:2\n\
                      == 2000000000\nTIME-WAIT 0 0 10.77.0.1:4 10.77.0.2:5201\n";
        assert_eq!(series(Count::Kernel, kernel).unwrap(), [(1.0, 6344.0)]);
        assert_eq!(series(Count::Pairs, "0.500 12\n").unwrap(), [(0.5, 12.0)]);
        assert!(series(Count::Pairs, "nonsense\n").is_err());
    }
}
