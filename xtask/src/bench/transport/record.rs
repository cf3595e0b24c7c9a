//! What was measured, a JSON object a line.

use core::fmt;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::crossing::Cell;

/// One run.
#[derive(Debug, Serialize, Deserialize)]
pub struct Row {
    /// Who ran.
    pub peer: String,
    /// Over what path, for how long.
    pub cell: Cell,
    /// The seed of the path's choices.
    pub seed: u64,
    /// Payload at the receiver in the second half of the run, Mbit/s.
    pub second_half_mbps: f64,
    /// Payload at the receiver from the start to the end, Mbit/s.
    pub whole_mbps: f64,
    /// Packets that the queue dropped, of all that were sent, in percent.
    pub queue_drops_percent: f64,
    /// The most memory that the sender and the receiver used, in MB, where it was measured.
    #[serde(default)]
    pub memory_mb: Option<(f64, f64)>,
    /// Whether the emulator kept up.
    pub faithful: bool,
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let memory = self.memory_mb.map_or(String::new(), |(sender, receiver)| {
            format!(", {sender:.0} and {receiver:.0} MB")
        });
        write!(
            f,
            "{:>4} ms {:>4}% {:12} seed {}: {:.0} / {:.0} Mbit/s, {:.2}% dropped{memory}{}",
            self.cell.rtt_ms,
            self.cell.loss_percent,
            self.peer,
            self.seed,
            self.second_half_mbps,
            self.whole_mbps,
            self.queue_drops_percent,
            if self.faithful { "" } else { ", emulator NOT faithful" },
        )
    }
}

/// All runs of a file, which grows with each.
pub struct Records {
    rows: Vec<Row>,
    file: File,
}

impl Records {
    /// Reads what there is, and makes the file when there is none.
    pub fn open(path: &Path) -> Result<Self> {
        let shown = || path.display().to_string();
        let rows = match File::open(path) {
            Ok(file) => BufReader::new(file)
                .lines()
                .map(|line| Ok(serde_json::from_str(&line?)?))
                .collect::<Result<_>>()
                .with_context(shown)?,
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error).with_context(shown),
        };
        let file = OpenOptions::new().create(true).append(true).open(path).with_context(shown)?;
        Ok(Self { rows, file })
    }

    /// Whether this run is there.
    pub fn has(&self, peer: &str, cell: &Cell, seed: u64) -> bool {
        self.rows.iter().any(|row| row.peer == peer && row.cell == *cell && row.seed == seed)
    }

    /// Keeps a run.
    pub fn add(&mut self, row: Row) -> Result<()> {
        writeln!(self.file, "{}", serde_json::to_string(&row)?)?;
        self.rows.push(row);
        Ok(())
    }

    /// All runs of a peer over a path.
    pub fn of(&self, peer: &str, cell: &Cell) -> Vec<&Row> {
        self.rows.iter().filter(|row| row.peer == peer && row.cell == *cell).collect()
    }
}
