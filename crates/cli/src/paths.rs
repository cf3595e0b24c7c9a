//! The file `paths` in LONGHAUL_HOME: what connections learnt of the way to each host, for the next
//! ones. Losing it costs a slower start and nothing else, so nothing about it is ever an error.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use net::tcp::System;
use serde::{Deserialize, Serialize};
use transport::cc::Remembered;
use units::Rate;

use crate::args::Known;
use crate::keys::home;

/// Hosts that are remembered; the one not met for longest is forgotten for a new one.
const MAX_HOSTS: usize = 256;
/// No file that we wrote is longer.
const MAX_FILE: u64 = 64 << 10;

/// The user's file. Processes that write at the same time may lose each other's news.
pub struct Paths {
    file: PathBuf,
    /// One thread writes at a time.
    writing: Mutex<()>,
}

/// What the file holds.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
struct Table(BTreeMap<IpAddr, Entry>);

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Entry {
    /// By UDP.
    #[serde(default)]
    rate_bps: u64,
    #[serde(default)]
    rtt_us: u64,
    /// TCP connections that filled it.
    #[serde(default)]
    streams: u16,
    /// What one of them was like.
    #[serde(default, with = "system", skip_serializing_if = "Option::is_none")]
    system: Option<System>,
    /// When, in seconds since 1970.
    learnt: u64,
}

impl Paths {
    /// The user's file, unless nothing is to be remembered or the user has no home.
    pub fn unless(forgets: bool) -> Option<Self> {
        Some(Self::of(&(!forgets).then(home::folder)?.ok()?))
    }

    /// That of this LONGHAUL_HOME.
    pub fn of(home: &Path) -> Self {
        Self { file: home.join("paths"), writing: Mutex::new(()) }
    }

    /// What is known of the way from here to a host.
    pub fn recall(&self, host: IpAddr) -> Option<Remembered> {
        self.read().recall(host, net::clock::wall())
    }

    /// What striped TCP is to know of the way from here to a host.
    pub fn known(&self, host: IpAddr) -> Known {
        let (table, now) = (self.read(), net::clock::wall());
        let rate = table.recall(host, now).map(|path| path.rate);
        let entry = table.entry(host, now);
        Known {
            streams: entry.and_then(Entry::streams),
            rate,
            system: entry.and_then(|entry| entry.system),
        }
    }

    /// Writes down what was found on the way from here to a host.
    pub fn learn(&self, host: IpAddr, found: Remembered) {
        self.write(host, |entry| entry.take(found));
    }

    /// Writes down how many TCP connections it took.
    pub fn learn_streams(&self, host: IpAddr, streams: u16) {
        self.write(host, |entry| entry.streams = streams);
    }

    /// Writes down what paper 1's equation needs, as it was learnt.
    pub fn learn_system(&self, host: IpAddr, system: System) {
        self.write(host, |entry| entry.system = Some(system));
    }

    fn write(&self, host: IpAddr, news: impl FnOnce(&mut Entry)) {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut table = self.read();
        table.learn(host, net::clock::wall(), news);
        let text = serde_json::to_string_pretty(&table).expect("a table of numbers is JSON");
        let written = home::make().and_then(|_| home::write(&self.file, &format!("{text}\n")));
        if let Err(error) = written {
            tell!("longhaul: this path will not be remembered: {}", crate::sentence(&error));
        }
    }

    fn read(&self) -> Table {
        let mut text = String::new();
        let file = File::open(&self.file);
        match file.and_then(|file| file.take(MAX_FILE).read_to_string(&mut text)) {
            Err(error) if error.kind() == ErrorKind::NotFound => Table::default(),
            Err(error) => self.ignore(&error),
            Ok(_) => serde_json::from_str(&text).unwrap_or_else(|error| self.ignore(&error)),
        }
    }

    fn ignore(&self, why: &dyn std::error::Error) -> Table {
        let file = self.file.display();
        tell!("longhaul: no path is remembered, for {file} is damaged ({why}); it is begun anew");
        Table::default()
    }
}

impl Table {
    fn recall(&self, host: IpAddr, now: Duration) -> Option<Remembered> {
        let entry = self.entry(host, now).filter(|entry| entry.rate_bps > 0)?;
        Some(Remembered {
            rate: Rate::from_bits_per_sec(entry.rate_bps),
            rtt: Duration::from_micros(entry.rtt_us),
        })
    }

    fn entry(&self, host: IpAddr, now: Duration) -> Option<Entry> {
        self.0.get(&host.to_canonical()).copied().filter(|entry| entry.is_valid(now))
    }

    fn learn(&mut self, host: IpAddr, now: Duration, news: impl FnOnce(&mut Entry)) {
        let nothing = Entry { rate_bps: 0, rtt_us: 0, streams: 0, system: None, learnt: 0 };
        let mut entry = self.entry(host, now).unwrap_or(nothing);
        news(&mut entry);
        entry.learnt = now.as_secs();
        self.0.insert(host.to_canonical(), entry);
        self.0.retain(|_, entry| entry.is_valid(now));
        while self.0.len() > MAX_HOSTS {
            let oldest = self.0.iter().min_by_key(|(_, entry)| entry.learnt).map(|(&host, _)| host);
            oldest.and_then(|host| self.0.remove(&host));
        }
    }
}

impl Entry {
    fn take(&mut self, found: Remembered) {
        self.rate_bps = found.rate.as_bits_per_sec();
        self.rtt_us = u64::try_from(found.rtt.as_micros()).unwrap_or(u64::MAX);
    }

    fn streams(self) -> Option<u16> {
        Some(self.streams).filter(|&streams| streams > 0)
    }

    /// Neither too old nor, after a jump of the clock, from the future.
    fn is_valid(&self, now: Duration) -> bool {
        let age = now.as_secs().checked_sub(self.learnt);
        age.is_some_and(|age| age < Remembered::LIFETIME.as_secs())
    }
}

/// Equation (2)' in the file: k in thousandths, the window in bytes, the time in microseconds.
mod system {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::{Duration, System};

    pub fn serialize<S: Serializer>(system: &Option<System>, to: S) -> Result<S::Ok, S::Error> {
        let parts = |system: &System| (system.k, system.window.0, system.rtt.as_micros() as u64);
        system.as_ref().map(parts).serialize(to)
    }

    pub fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<Option<System>, D::Error> {
        let parts = Option::<(u16, u64, u64)>::deserialize(from)?;
        Ok(parts.map(|(k, window, rtt)| System {
            k,
            window: units::Bytes(window),
            rtt: Duration::from_micros(rtt),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(1_800_000_000);

    fn host(number: usize) -> IpAddr {
        IpAddr::from((number as u32).to_be_bytes())
    }

    fn path(mbit: u64) -> Remembered {
        let rate = Rate::from_bits_per_sec(mbit * 1_000_000);
        Remembered { rate, rtt: Duration::from_millis(200) }
    }

    fn learn(table: &mut Table, host: IpAddr, found: Remembered, now: Duration) {
        table.learn(host, now, |entry| entry.take(found));
    }

    #[test]
    fn a_count_of_connections_stands_beside_the_rate() {
        let mut table = Table::default();
        table.learn(host(1), NOW, |entry| entry.streams = 9);
        assert_eq!(table.recall(host(1), NOW), None, "no rate is known");
        learn(&mut table, host(1), path(100), NOW);
        assert_eq!(table.entry(host(1), NOW).unwrap().streams(), Some(9));
        let rtt = Duration::from_millis(200);
        let system = System { k: 750, window: units::Bytes(23_360), rtt };
        table.learn(host(1), NOW, |entry| entry.system = Some(system));
        let text = serde_json::to_string(&table).unwrap();
        let table: Table = serde_json::from_str(&text).unwrap();
        assert_eq!(table.entry(host(1), NOW).unwrap().system, Some(system));
        let old = r#"{"0.0.0.1":{"rate_bps":5000000,"rtt_us":200000,"learnt":1800000000}}"#;
        let table: Table = serde_json::from_str(old).unwrap();
        assert_eq!(table.recall(host(1), NOW), Some(path(5)));
        assert_eq!(table.entry(host(1), NOW).unwrap().streams(), None);
    }

    #[test]
    fn a_path_is_remembered_for_its_lifetime() {
        let mut table = Table::default();
        learn(&mut table, host(1), path(100), NOW);
        let text = serde_json::to_string(&table).unwrap();
        let table: Table = serde_json::from_str(&text).unwrap();
        let last = NOW + Remembered::LIFETIME - Duration::from_secs(1);
        assert_eq!(table.recall(host(1), last), Some(path(100)));
        assert_eq!(table.recall("::ffff:0.0.0.1".parse().unwrap(), NOW), Some(path(100)));
        assert_eq!(table.recall(host(2), NOW), None);
        assert_eq!(table.recall(host(1), NOW + Remembered::LIFETIME), None);
        assert_eq!(table.recall(host(1), NOW - Duration::from_secs(1)), None, "from the future");
    }

    #[test]
    fn the_oldest_and_the_expired_make_room() {
        let mut table = Table::default();
        for number in 0..=MAX_HOSTS {
            learn(&mut table, host(number), path(1), NOW + Duration::from_secs(number as u64));
        }
        let later = NOW + Duration::from_secs(MAX_HOSTS as u64);
        assert_eq!(table.0.len(), MAX_HOSTS);
        assert!(table.recall(host(0), later).is_none() && table.recall(host(1), later).is_some());
        assert!(serde_json::to_string_pretty(&table).unwrap().len() < MAX_FILE as usize);
        learn(&mut table, host(1000), path(1), later + Remembered::LIFETIME);
        assert_eq!(table.0.len(), 1);
    }

    #[test]
    fn a_damaged_file_is_begun_anew() {
        let folder = tempfile::tempdir().unwrap();
        let paths = Paths::of(folder.path());
        assert_eq!(paths.recall(host(1)), None);
        for damage in [&b"{\"127.0.0.1\":"[..], b"\xff", b"[]", &[b' '; 1 << 17]] {
            std::fs::write(&paths.file, damage).unwrap();
            assert_eq!(paths.recall(host(1)), None);
        }
    }
}
