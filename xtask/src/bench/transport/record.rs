//! What was measured, a JSON object a line.

use core::fmt;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::crossing::Cell;
use super::peer::{Count, Peer};
use crate::bench::record::{append_to, revision};

/// One run.
#[derive(Debug, Serialize, Deserialize)]
pub struct Row {
    /// Who ran.
    pub peer: String,
    /// Of the sources that it was built from, where that is the product; of the kernel's connections how
    /// they were counted; else nothing.
    #[serde(default)]
    pub revision: String,
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
    /// Of the product's sources now: what was measured of others is stale.
    revision: String,
}

impl Records {
    /// Reads what there is, and makes the file when there is none.
    pub fn open(path: &Path) -> Result<Self> {
        Self::read(path, revision()?)
    }

    fn read(path: &Path, revision: String) -> Result<Self> {
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
        let file = append_to(path)?;
        Ok(Self { rows, file, revision })
    }

    /// Whether this run is there, and worth something.
    pub fn has(&self, peer: &Peer, cell: &Cell, seed: u64) -> bool {
        self.of(peer, cell).iter().any(|row| row.seed == seed && row.faithful)
    }

    /// Keeps a run.
    pub fn add(&mut self, peer: &Peer, mut row: Row) -> Result<()> {
        self.revision_of(peer).clone_into(&mut row.revision);
        writeln!(self.file, "{}", serde_json::to_string(&row)?)?;
        self.rows.push(row);
        Ok(())
    }

    /// All runs of a peer over a path, of each seed the latest.
    pub fn of(&self, peer: &Peer, cell: &Cell) -> Vec<&Row> {
        let revision = self.revision_of(peer);
        let fits =
            |row: &&Row| row.peer == peer.name && row.cell == *cell && row.revision == revision;
        let latest: BTreeMap<u64, &Row> =
            self.rows.iter().filter(fits).map(|row| (row.seed, row)).collect();
        latest.into_values().collect()
    }

    fn revision_of(&self, peer: &Peer) -> &str {
        match peer.count {
            _ if peer.is_product() => &self.revision,
            // Others were counted at the application once.
            Count::Kernel => "delivered",
            _ => "",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stale_runs_do_not_count_and_bad_ones_are_run_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("record");
        let (ours, cubic) = (Peer::find("ours").unwrap(), Peer::find("cubic").unwrap());
        let cell = Cell { rtt_ms: 10, loss_percent: 0.0, seconds: 20 };
        let row = |peer: &Peer, faithful| Row {
            peer: peer.name.to_owned(),
            revision: String::new(),
            cell,
            seed: 1,
            second_half_mbps: 1.0,
            whole_mbps: 1.0,
            queue_drops_percent: 0.0,
            memory_mb: None,
            faithful,
        };
        let open = |revision: &str| Records::read(&path, revision.to_owned()).unwrap();
        let mut records = open("now");
        records.add(ours, row(ours, true)).unwrap();
        records.add(cubic, row(cubic, false)).unwrap();
        assert!(records.has(ours, &cell, 1) && !records.has(ours, &cell, 2));
        assert!(!records.has(cubic, &cell, 1));
        records.add(cubic, row(cubic, true)).unwrap();
        assert!(records.has(cubic, &cell, 1) && records.of(cubic, &cell).len() == 1);
        let records = open("now");
        assert!(records.has(ours, &cell, 1) && records.has(cubic, &cell, 1));
        let records = open("later");
        assert!(!records.has(ours, &cell, 1) && records.has(cubic, &cell, 1));
    }
}
