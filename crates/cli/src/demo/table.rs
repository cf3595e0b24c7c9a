//! The comparison that the demo ends with.

use std::fmt;
use std::time::Duration;

use emulator::LabReport;
use path::DropCause;
use units::{Bytes, Rate};

use crate::args::PathOptions;

/// How one way went.
pub struct Row {
    pub name: String,
    /// What arrived.
    pub moved: Bytes,
    pub time: Duration,
    /// All of it; otherwise its time was up.
    pub finished: bool,
    /// What limited it.
    pub note: String,
}

impl Row {
    fn rate(&self) -> Rate {
        Rate::of(self.moved, self.time).unwrap_or_default()
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = if self.finished { "the whole tree" } else { "time up" };
        write!(
            f,
            "{:<19} {:>11} in {:>5.1} s  {:>12}  {how}",
            self.name,
            self.moved,
            self.time.as_secs_f64(),
            self.rate()
        )?;
        match self.note.as_str() {
            "" => Ok(()),
            note => write!(f, ", limited by {note}"),
        }
    }
}

/// What a link can carry of our bytes at best: rate x 1448/1500 x (1 - loss).
fn payload_limit(path: &PathOptions) -> Rate {
    path.rate.scaled(1448.0 / 1500.0 * (1.0 - path.loss))
}

/// The table: each way beside the first one and beside what the link could carry.
pub fn show(rows: &[Row], path: &PathOptions) -> String {
    let limit = payload_limit(path);
    let share = |row: &Row| {
        100.0 * row.rate().as_bits_per_sec() as f64 / limit.as_bits_per_sec().max(1) as f64
    };
    let mut table = format!(
        "{:<19} {:>11} {:>8} {:>13} {:>12} {:>10}\n",
        "way", "moved", "time", "rate", "x plain TCP", "of limit"
    );
    table += &"-".repeat(table.trim_end().len());
    let plain = rows.first().filter(|_| rows.len() > 1).map(|row| row.rate().as_bits_per_sec());
    for row in rows {
        let times = match plain {
            Some(plain @ 1..) => times(row.rate().as_bits_per_sec() as f64 / plain as f64),
            _ => "-".to_owned(),
        };
        table += &format!(
            "\n{:<19} {:>11} {:>6.1} s {:>13} {times:>12} {:>9.1}%",
            row.name,
            row.moved,
            row.time.as_secs_f64(),
            row.rate(),
            share(row),
        );
    }
    table + &format!("\n\nLimit: {limit} of file bytes, the link's rate x 1448/1500 x (1 - loss).")
}

fn times(ratio: f64) -> String {
    if ratio < 10.0 { format!("{ratio:.1}") } else { format!("{ratio:.0}") }
}

/// What the path did in the data direction.
pub fn path_line(report: &LabReport) -> String {
    let forward = &report.forward;
    let dropped = |cause| forward.counters.dropped(cause).packets;
    let mut line = format!(
        "{} packets towards the far host, {} lost at random, {} dropped by the full queue",
        forward.counters.offered.packets,
        dropped(DropCause::Loss),
        dropped(DropCause::Queue),
    );
    let outside =
        forward.outside.total() + report.back.outside.total() + dropped(DropCause::Overflow);
    if outside > 0 {
        line += &format!(
            "; {outside} lost because this machine could not keep up, so read the rates with care"
        );
    }
    line
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Cli, Command};

    fn path(arguments: &[&str]) -> PathOptions {
        let line = ["longhaul", "demo"].iter().chain(arguments);
        match Cli::try_parse_from(line).unwrap().command {
            Command::Demo(demo) => demo.path,
            _ => unreachable!("demo was parsed"),
        }
    }

    fn row(name: &str, moved: u64) -> Row {
        let time = Duration::from_secs(1);
        Row {
            name: name.to_owned(),
            moved: Bytes(moved),
            time,
            finished: true,
            note: String::new(),
        }
    }

    #[test]
    fn ratio_and_share_are_of_the_right_things() {
        // The default path's payload limit, from the project's measurements: 955 Mbit/s.
        let path = path(&[]);
        assert_eq!(payload_limit(&path).as_bits_per_sec() / 1_000_000, 955);
        let rows = [row("plain", 1_000_000), row("fast", 59_730_000)];
        let text = show(&rows, &path);
        let last = text.lines().find(|line| line.starts_with("fast")).unwrap();
        assert!(last.contains(" 60 ") && last.contains(" 50.0%"), "{last}");
    }

    #[test]
    fn without_plain_tcp_there_is_no_ratio() {
        let text = show(&[row("alone", 1_000_000)], &path(&["--loss", "0"]));
        assert!(text.lines().nth(2).unwrap().contains(" - "), "{text}");
    }
}
