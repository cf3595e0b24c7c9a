//! Whose turn it is: deficit round robin (Shreedhar and Varghese, 1995) on two levels, groups and
//! their streams, in each of three classes.

use core::num::NonZeroU8;
use std::collections::{BTreeMap, VecDeque};

/// Bytes that a weight of one is worth in a round, until a packet is longer: about one, so that rounds are short.
const QUANTUM: i64 = 1500;

/// What goes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Before all others, which wait: for little, and soon. With more than 32 KiB unsent a stream takes
    /// turns with [`Self::Bulk`] until all of that has gone.
    Interactive,
    /// What most streams are.
    #[default]
    Bulk,
    /// Only when nobody else has anything to send.
    Background,
}

/// A stream's place among a connection's streams, at the end that sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Priority {
    /// Its class.
    pub class: Class,
    /// Groups of a class have equal shares; streams of a host, say, are a group.
    pub group: u64,
    /// The stream's share in its group is in proportion to its weight.
    pub weight: NonZeroU8,
}

impl Default for Priority {
    fn default() -> Self {
        Self { class: Class::Bulk, group: 0, weight: NonZeroU8::MIN }
    }
}

#[derive(Debug)]
struct Seat {
    key: u64,
    weight: NonZeroU8,
    /// Bytes that it may still send in this round; below zero behind the first packet that was so long.
    deficit: i64,
}

/// One level: those who have something to send, the one whose turn it is in front.
#[derive(Debug, Default)]
struct Ring(VecDeque<Seat>);

impl Ring {
    fn join(&mut self, key: u64, weight: NonZeroU8) {
        self.0.push_back(Seat { key, weight, deficit: 0 });
    }

    /// Whose turn it is, when a weight of one is worth `quantum` bytes in a round, and no packet is longer.
    fn current(&mut self, quantum: i64) -> Option<u64> {
        loop {
            let front = self.0.front_mut()?;
            if front.deficit < quantum {
                front.deficit += quantum * i64::from(front.weight.get());
            }
            // Nothing is lent: who then had no more to send would come again without the debt.
            if front.deficit >= quantum {
                return Some(front.key);
            }
            self.0.rotate_left(1);
        }
    }

    /// The one in front has sent `len` bytes; whether it has more.
    fn charge(&mut self, len: i64, more: bool, quantum: i64) {
        let Some(front) = self.0.front_mut() else { return };
        front.deficit -= len;
        if !more {
            self.0.pop_front();
        } else if front.deficit < quantum {
            self.0.rotate_left(1);
        }
    }
}

/// The streams that have something new to send.
#[derive(Debug)]
pub(super) struct Turns {
    /// Bytes that a weight of one is worth in a round: no less than the longest packet so far.
    quantum: i64,
    /// Of each class: its groups' turns.
    groups: BTreeMap<Class, Ring>,
    /// Of each group that has any: its streams' turns. Bounded by the number of streams.
    streams: BTreeMap<(Class, u64), Ring>,
}

impl Default for Turns {
    fn default() -> Self {
        Self { quantum: QUANTUM, groups: BTreeMap::new(), streams: BTreeMap::new() }
    }
}

impl Turns {
    pub(super) fn is_empty(&self) -> bool {
        self.streams.is_empty()
    }

    /// Puts a stream that is not there behind all others of its group.
    pub(super) fn join(&mut self, id: u64, priority: Priority) {
        let key = (priority.class, priority.group);
        let ring = self.streams.entry(key).or_insert_with(|| {
            self.groups.entry(key.0).or_default().join(key.1, NonZeroU8::MIN);
            Ring::default()
        });
        ring.join(id, priority.weight);
    }

    /// Takes a stream out before its turn.
    pub(super) fn leave(&mut self, id: u64, priority: Priority) {
        let key = (priority.class, priority.group);
        let Some(ring) = self.streams.get_mut(&key) else { return };
        ring.0.retain(|seat| seat.key != id);
        if ring.0.is_empty() {
            self.streams.remove(&key);
            if let Some(groups) = self.groups.get_mut(&key.0) {
                groups.0.retain(|seat| seat.key != key.1);
            }
        }
    }

    /// The stream whose turn it is.
    pub(super) fn current(&mut self) -> Option<u64> {
        self.groups.iter_mut().find_map(|(&class, groups)| {
            let group = groups.current(self.quantum)?;
            self.streams.get_mut(&(class, group))?.current(self.quantum)
        })
    }

    /// The stream whose turn it was has sent `len` bytes; whether it has more.
    pub(super) fn charge(&mut self, len: usize, more: bool) {
        self.quantum = self.quantum.max(len as i64);
        for (&class, groups) in &mut self.groups {
            let Some(group) = groups.current(self.quantum) else { continue };
            let Some(streams) = self.streams.get_mut(&(class, group)) else { continue };
            streams.charge(len as i64, more, self.quantum);
            let rest = !streams.0.is_empty();
            if !rest {
                self.streams.remove(&(class, group));
            }
            return groups.charge(len as i64, rest, self.quantum);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn priority(class: Class, group: u64, weight: u8) -> Priority {
        Priority { class, group, weight: NonZeroU8::new(weight).unwrap() }
    }

    /// Serves `packets` of the lengths that `len` gives; bytes by stream.
    fn serve(turns: &mut Turns, packets: usize, len: impl Fn(u64) -> usize) -> BTreeMap<u64, u64> {
        let mut served = BTreeMap::new();
        for _ in 0..packets {
            let id = turns.current().unwrap();
            *served.entry(id).or_default() += len(id) as u64;
            turns.charge(len(id), true);
        }
        served
    }

    proptest! {
        #[test]
        fn shares_follow_weights_whatever_the_packets(
            streams in prop::collection::vec((1u8..10, 1usize..9000), 1..12),
        ) {
            let mut turns = Turns::default();
            for (id, &(weight, _)) in streams.iter().enumerate() {
                turns.join(id as u64, priority(Class::Bulk, 0, weight));
            }
            let len = |id: u64| streams[id as usize].1;
            let total = 2_000_000 * streams.len();
            let mut served = BTreeMap::<u64, u64>::new();
            let mut sum = 0;
            while sum < total {
                let id = turns.current().unwrap();
                *served.entry(id).or_default() += len(id) as u64;
                sum += len(id);
                turns.charge(len(id), true);
            }
            let weights: u64 = streams.iter().map(|&(weight, _)| u64::from(weight)).sum();
            for (id, &(weight, _)) in streams.iter().enumerate() {
                let ideal = sum as f64 * f64::from(weight) / weights as f64;
                let got = served[&(id as u64)] as f64;
                // Of two rounds.
                let near = f64::from(weight) * 2.0 * 9000.0;
                prop_assert!((got - ideal).abs() < near, "{id}: {got} instead of {ideal}");
            }
        }
    }

    #[test]
    fn groups_share_equally_however_many_streams_they_have() {
        let mut turns = Turns::default();
        turns.join(0, priority(Class::Bulk, 1, 1));
        (1..=9).for_each(|id| turns.join(id, priority(Class::Bulk, 2, 1)));
        let served = serve(&mut turns, 18_000, |_| 1400);
        let alone = served[&0] as f64 / (18_000.0 * 1400.0);
        assert!((alone - 0.5).abs() < 0.01, "{alone}");
        assert!((served[&3] as f64 / served[&9] as f64 - 1.0).abs() < 0.05);
    }

    /// Who has nothing left after some packets, and comes again at once, gets no more than who always has something.
    #[test]
    fn who_comes_and_goes_gets_no_more_than_its_share() {
        for (len, visit, group) in [100, 1400, 8952]
            .into_iter()
            .flat_map(|len| [1, 2, 3].map(|visit| (len, visit)))
            .flat_map(|(len, visit)| [0, 1].map(|group| (len, visit, group)))
        {
            let mut turns = Turns::default();
            let places = [priority(Class::Bulk, 0, 1), priority(Class::Bulk, group, 1)];
            (0..).zip(places).for_each(|(id, place)| turns.join(id, place));
            let mut served = [0u64; 2];
            for _ in 0..10_000 {
                let id = turns.current().unwrap();
                served[id as usize] += 1;
                let more = id == 0 || !served[1].is_multiple_of(visit);
                turns.charge(len, more);
                if !more {
                    turns.join(1, places[1]);
                }
            }
            let share = served[1] as f64 / served[0] as f64;
            assert!(share < 1.02, "{visit} of {len} bytes, group {group}: {served:?}");
        }
    }

    #[test]
    fn a_late_joiner_gets_its_share_and_no_more() {
        let mut turns = Turns::default();
        turns.join(0, priority(Class::Bulk, 0, 1));
        serve(&mut turns, 1000, |_| 1400);
        turns.join(1, priority(Class::Bulk, 0, 1));
        let served = serve(&mut turns, 100, |_| 1400);
        assert!(served[&0].abs_diff(served[&1]) <= 4 * 1400, "{served:?}");
    }

    #[test]
    fn classes_go_in_their_order() {
        let mut turns = Turns::default();
        turns.join(3, priority(Class::Background, 0, 9));
        turns.join(2, priority(Class::Bulk, 0, 1));
        turns.join(1, priority(Class::Interactive, 7, 1));
        for expected in [1, 2, 3] {
            assert_eq!(turns.current(), Some(expected));
            turns.charge(10_000, true);
            assert_eq!(turns.current(), Some(expected));
            turns.charge(10_000, false);
        }
        assert!(turns.is_empty() && turns.current().is_none());
        turns.join(4, priority(Class::Bulk, 0, 1));
        turns.leave(4, priority(Class::Bulk, 0, 1));
        assert!(turns.is_empty() && turns.current().is_none());
    }
}
