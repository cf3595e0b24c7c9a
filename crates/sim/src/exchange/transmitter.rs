//! The transmitter's state: its window, and what is known of each packet in it.

use std::collections::VecDeque;

/// What `Tpacket` holds of a packet (paper 5, "At Transmitter").
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Entry {
    pub(super) acked: bool,
    /// Waits to be sent, for the first time or again.
    pub(super) queued: bool,
    /// How often it was sent.
    pub(super) transmissions: u32,
    /// How often its timer was started.
    pub(super) timers: u32,
    /// Reports that may still come before it is sent again.
    pub(super) reports: u64,
}

/// The receiver's complete state.
#[derive(Clone, Debug)]
pub(super) struct Report {
    /// Counts all that were made, also those that were skipped or lost.
    pub(super) number: u64,
    /// The first packet that the host has not been given.
    pub(super) lower: u64,
    /// Which packets from there on have arrived.
    pub(super) arrived: Vec<bool>,
}

/// The window's packets, from the lower bound on.
#[derive(Debug)]
pub(super) struct Transmitter {
    window: u64,
    /// trans-lw.
    lower: u64,
    table: VecDeque<Entry>,
    /// What the receiver takes: packets below this number.
    upper: u64,
    /// Number of the last report.
    heard: u64,
}

impl Transmitter {
    pub(super) fn new(window: u64) -> Self {
        Self { window, lower: 0, table: VecDeque::new(), upper: window, heard: 0 }
    }

    /// trans-uw, which the next packet gets.
    fn next(&self) -> u64 {
        self.lower + self.table.len() as u64
    }

    /// Whether both windows have room for another packet.
    pub(super) fn admits(&self) -> bool {
        self.next() < self.upper.min(self.lower + self.window)
    }

    /// Takes another packet; its number.
    pub(super) fn accept(&mut self) -> u64 {
        let serial = self.next();
        self.table.push_back(Entry { queued: true, ..Entry::default() });
        serial
    }

    /// What is known of a packet that may not be needed any more.
    pub(super) fn entry(&mut self, serial: u64) -> Option<&mut Entry> {
        let entry = self.table.get_mut(serial.checked_sub(self.lower)? as usize);
        entry.filter(|entry| !entry.acked)
    }

    /// A packet is acknowledged by itself.
    pub(super) fn on_ack(&mut self, serial: u64, upper: u64) {
        if let Some(entry) = self.entry(serial) {
            entry.acked = true;
        }
        self.upper = self.upper.max(upper);
        self.advance();
    }

    /// The receiver's state; the packets that are to be sent again. What is older than the last one
    /// says nothing.
    pub(super) fn on_report(&mut self, report: &Report) -> Vec<u64> {
        let Some(passed) = report.number.checked_sub(self.heard).filter(|&passed| passed > 0)
        else {
            return Vec::new();
        };
        self.heard = report.number;
        self.upper = self.upper.max(report.lower + self.window);
        let mut again = Vec::new();
        for (serial, entry) in (self.lower..).zip(&mut self.table) {
            let place = serial.checked_sub(report.lower).map(|place| place as usize);
            entry.acked |=
                place.is_none_or(|place| report.arrived.get(place).copied().unwrap_or_default());
            if entry.acked || entry.queued {
                continue;
            }
            entry.reports = entry.reports.saturating_sub(passed);
            if entry.reports == 0 {
                entry.queued = true;
                again.push(serial);
            }
        }
        self.advance();
        again
    }

    fn advance(&mut self) {
        while self.table.front().is_some_and(|entry| entry.acked) {
            self.table.pop_front();
            self.lower += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_acknowledges_and_counts() {
        let mut transmitter = Transmitter::new(4);
        for serial in 0..4 {
            assert!(transmitter.admits());
            assert_eq!(transmitter.accept(), serial);
            *transmitter.entry(serial).unwrap() =
                Entry { reports: 2, transmissions: 1, ..Entry::default() };
        }
        assert!(!transmitter.admits());
        let report = |number| Report { number, lower: 1, arrived: vec![false, true] };
        assert_eq!(transmitter.on_report(&report(1)), [] as [u64; 0]);
        assert!(transmitter.admits() && transmitter.entry(2).is_none());
        assert_eq!(transmitter.on_report(&report(1)), [] as [u64; 0], "it is not new");
        assert_eq!(transmitter.on_report(&report(2)), [1, 3]);
        assert_eq!(transmitter.on_report(&report(3)), [] as [u64; 0], "they wait already");
        transmitter.on_ack(1, 5);
        assert_eq!(transmitter.accept(), 4);
        assert!(!transmitter.admits(), "the receiver takes those below 5");
    }
}
