//! The connections that a driver serves, and when: only those with something to do are touched.

use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;

use units::Instant;

use super::shared::Shared;

struct Entry {
    shared: Shared,
    address: SocketAddr,
    /// Its place among the timers; `FAR_FUTURE` when it has none.
    at: Instant,
    /// Stands in the list of those to be served.
    active: bool,
}

/// Connections by number, their timers, and which are to be served now.
#[derive(Default)]
pub(super) struct Roster {
    entries: HashMap<u32, Entry>,
    timers: BTreeSet<(Instant, u32)>,
    active: Vec<u32>,
}

impl Roster {
    pub(super) fn find(&self, number: u32) -> Option<&Shared> {
        self.entries.get(&number).map(|entry| &entry.shared)
    }

    pub(super) fn insert(&mut self, number: u32, shared: Shared) {
        let address = shared.lock().connection.address();
        let entry = Entry { shared, address, at: Instant::FAR_FUTURE, active: false };
        self.entries.insert(number, entry);
    }

    pub(super) fn remove(&mut self, number: u32) {
        if let Some(entry) = self.entries.remove(&number) {
            self.timers.remove(&(entry.at, number));
        }
    }

    /// The connection must be served.
    pub(super) fn activate(&mut self, number: u32) {
        if let Some(entry) = self.entries.get_mut(&number)
            && !core::mem::replace(&mut entry.active, true)
        {
            self.active.push(number);
        }
    }

    /// Those whose time has come must be served.
    pub(super) fn activate_due(&mut self, now: Instant) {
        while let Some(&(at, number)) = self.timers.first()
            && at <= now
        {
            self.timers.pop_first();
            self.activate(number);
        }
    }

    /// Those who send to `address` must be served; gives them.
    pub(super) fn activate_at(&mut self, address: SocketAddr) -> Vec<Shared> {
        let at = |entry: &Entry| entry.address == address;
        let found: Vec<u32> =
            self.entries.iter().filter(|(_, entry)| at(entry)).map(|(&number, _)| number).collect();
        found.iter().for_each(|&number| self.activate(number));
        found.iter().filter_map(|&number| self.find(number).cloned()).collect()
    }

    /// Moves those to be served into `list`, which is cleared first.
    pub(super) fn take_active(&mut self, list: &mut Vec<u32>) {
        list.clear();
        core::mem::swap(list, &mut self.active);
        for number in list {
            if let Some(entry) = self.entries.get_mut(number) {
                entry.active = false;
            }
        }
    }

    /// The connection was served and wants to be again at `at`.
    pub(super) fn plan(&mut self, number: u32, at: Instant, address: SocketAddr) {
        let Some(entry) = self.entries.get_mut(&number) else { return };
        entry.address = address;
        let old = core::mem::replace(&mut entry.at, at);
        if old != at || !self.timers.contains(&(at, number)) {
            self.timers.remove(&(old, number));
            self.timers.insert((at, number));
        }
    }

    /// When the next one wants to be served; now if one is to be already.
    pub(super) fn next(&self) -> Instant {
        match self.timers.first() {
            _ if !self.active.is_empty() => Instant::ZERO,
            Some(&(at, _)) => at,
            None => Instant::FAR_FUTURE,
        }
    }
}
