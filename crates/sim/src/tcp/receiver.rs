//! The receiving end.

use rangemap::RangeSet;
use units::Instant;

use super::config::{Config, Recovery};
use super::segment::{Blocks, Kind, MAX_SACK_BLOCKS, SackBlocks, Segment};

/// What [`Receiver::due`] is when no acknowledgement waits.
const NOTHING_DUE: (Instant, Instant) = (Instant::FAR_FUTURE, Instant::ZERO);

/// Puts data in order and acknowledges it; its application reads at once, unless it
/// [says](Self::read_to) how far.
#[derive(Clone, Debug)]
pub struct Receiver {
    config: Config,
    /// The first byte that is missing.
    next: u64,
    /// What lies beyond it, and where that ends: at or before `next` when there is nothing.
    held: RangeSet<u64>,
    held_to: u64,
    /// Bytes of the blocks that changed last, the latest first.
    latest: Vec<u64>,
    /// Whether the latest is the one that ends at `held_to`; means nothing when nothing is held.
    latest_is_highest: bool,
    /// Those that are told of, which change when something is held, or joined to what is in order.
    blocks: Blocks,
    /// Bytes that no acknowledgement has told of.
    untold: u64,
    /// To where the application has read, if it does not read at once.
    read: Option<u64>,
    /// Where the window that was told last ends.
    edge: u64,
    /// When to tell of them at the latest, the far future when there are none, and when the first of them was sent.
    due: (Instant, Instant),
    /// So many are told of at once: two segments, or a window half empty as the application has read it.
    enough: u64,
    /// What it advertises when the application has read all.
    advertised: u64,
}

impl Receiver {
    /// An end that waits for a SYN.
    pub fn new(config: &Config) -> Self {
        let advertised = config.advertised();
        Self {
            config: *config,
            next: 0,
            held: RangeSet::new(),
            held_to: 0,
            latest: Vec::new(),
            blocks: Blocks::new(),
            latest_is_highest: false,
            untold: 0,
            read: None,
            edge: advertised,
            due: NOTHING_DUE,
            enough: (2 * config.mss.0).min(advertised.div_ceil(2)),
            advertised,
        }
    }

    /// The application has read to here, and reads no further by itself: the window is smaller by what
    /// it leaves. What tells the sender that it has opened again, once that is worth it (RFC 1122,
    /// 4.2.3.3). No sender asks, so this must not be lost.
    pub fn read_to(&mut self, read: u64) -> Option<Segment> {
        self.read = Some(read);
        let opened = self.next.saturating_add(self.window()).saturating_sub(self.edge);
        (opened >= self.enough).then(|| self.acknowledge(Instant::ZERO))
    }

    /// What it advertises now.
    fn window(&self) -> u64 {
        let left = self.read.map_or(0, |read| self.next - read);
        self.advertised.saturating_sub(left)
    }

    /// Bytes in order.
    pub fn delivered(&self) -> u64 {
        self.next
    }

    /// A segment arrives; what answers it at once.
    #[inline(always)]
    pub fn handle(&mut self, now: Instant, segment: &Segment) -> Option<Segment> {
        let stamp = segment.stamp;
        match &segment.kind {
            Kind::Syn => {
                let kind = Kind::SynAck { window: self.advertised };
                Some(Segment { kind, stamp, timestamps: self.config.timestamps })
            }
            Kind::Data { seq, len } => self.data(now, *seq, seq + len, stamp),
            Kind::SynAck { .. } | Kind::Ack { .. } => None,
        }
    }

    /// A delayed acknowledgement is due.
    pub fn handle_timeout(&mut self, now: Instant) -> Option<Segment> {
        let (due, stamp) = self.due;
        (due <= now).then(|| self.acknowledge(stamp))
    }

    /// When one will be; the far future when none waits.
    #[inline(always)]
    pub fn next_timeout(&self) -> Instant {
        self.due.0
    }

    #[inline(always)]
    fn data(&mut self, now: Instant, seq: u64, end: u64, stamp: Instant) -> Option<Segment> {
        if seq > self.next || end <= self.next {
            // A hole, or nothing new: told at once (RFC 5681, section 4.2).
            if seq > self.next && self.config.recovery != Recovery::GoBackN {
                self.hold(seq, end);
            }
            return Some(self.acknowledge(stamp));
        }
        self.untold += end - self.next;
        let filled = self.held_to > self.next;
        self.next = end;
        if filled {
            self.join();
        }
        let waits = self.due != NOTHING_DUE;
        match self.config.delayed_ack {
            Some(delay) if !filled && self.untold < self.enough => {
                if !waits {
                    self.due = (now + delay, stamp);
                }
                None
            }
            // The earliest that waited, as RFC 7323 has it (section 4.2).
            _ => Some(self.acknowledge(if waits { self.due.1 } else { stamp })),
        }
    }

    /// Keeps what lies behind a hole.
    #[cold]
    fn hold(&mut self, seq: u64, end: u64) {
        self.held.insert(seq..end);
        if seq == self.held_to && self.latest_is_highest {
            // The same blocks, and the first of them goes on.
            self.held_to = end;
            if let Some(block) = self.blocks.first_mut() {
                block.1 = end;
            }
            return;
        }
        self.held_to = self.held_to.max(end);
        // A byte for each block, or those of one would push the others out (RFC 2018, section 4).
        let block = self.held.get(&seq).cloned().unwrap_or(seq..end);
        self.latest_is_highest = block.end == self.held_to;
        self.latest.retain(|byte| !block.contains(byte));
        self.latest.insert(0, seq);
        self.latest.truncate(2 * MAX_SACK_BLOCKS);
        self.list_blocks();
    }

    /// What is held goes on from what is in order now.
    #[cold]
    fn join(&mut self) {
        while let Some(range) = self.held.first().filter(|range| range.start <= self.next).cloned()
        {
            self.next = self.next.max(range.end);
            self.held.remove(range);
        }
        self.list_blocks();
    }

    #[inline(always)]
    fn acknowledge(&mut self, stamp: Instant) -> Segment {
        (self.untold, self.due) = (0, NOTHING_DUE);
        let window = self.window();
        self.edge = self.edge.max(self.next.saturating_add(window));
        let sack = if self.blocks.is_empty() { <_>::default() } else { self.sack_blocks() };
        let kind = Kind::Ack { ack: self.next, window, sack };
        Segment { kind, stamp, timestamps: self.config.timestamps }
    }

    #[cold]
    fn sack_blocks(&self) -> SackBlocks {
        SackBlocks::new(self.blocks.clone())
    }

    /// Finds the blocks to tell of.
    #[cold]
    fn list_blocks(&mut self) {
        self.latest.retain(|&byte| byte >= self.next);
        self.blocks.clear();
        if !self.config.recovery.is_selective() {
            return;
        }
        for byte in &self.latest {
            let Some(range) = self.held.get(byte) else { continue };
            let block = (range.start, range.end);
            if !self.blocks.contains(&block) && self.blocks.len() < MAX_SACK_BLOCKS {
                self.blocks.push(block);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Blocks that go on are told as those that are looked for anew.
        #[test]
        fn the_last_block_goes_on(
            arrivals in prop::collection::vec((0u64..40, 0u8..3), 1..200),
            recovery in prop::sample::select(vec![Recovery::Sack, Recovery::Rack, Recovery::NewReno]),
        ) {
            let new = || Receiver::new(&Config::classic(recovery, 1, 100));
            let (mut receiver, mut plain) = (new(), new());
            let mut seq = 0;
            for (place, jumps) in arrivals {
                // Mostly one after the other.
                seq = if jumps == 0 { receiver.next.saturating_sub(3) + place } else { seq + 1 };
                let kind = Kind::Data { seq, len: 1 };
                let segment = Segment { kind, stamp: Instant::ZERO, timestamps: false };
                plain.latest_is_highest = false;
                let told = receiver.handle(Instant::ZERO, &segment);
                prop_assert_eq!(told, plain.handle(Instant::ZERO, &segment));
                let before = receiver.blocks.clone();
                receiver.list_blocks();
                prop_assert_eq!(before, receiver.blocks.clone());
            }
        }
    }

    /// As many distinct blocks as there is room for, the one that changed last first (RFC 2018, section 4).
    #[test]
    fn blocks_that_others_have_followed_are_told_of_again() {
        let mut receiver = Receiver::new(&Config::classic(Recovery::Sack, 1, 100));
        let mut arrive = |seq: u64| {
            let kind = Kind::Data { seq, len: 1 };
            let segment = Segment { kind, stamp: Instant::ZERO, timestamps: false };
            match receiver.handle(Instant::ZERO, &segment)?.kind {
                Kind::Ack { sack, .. } => Some(sack.as_slice().to_vec()),
                _ => None,
            }
        };
        let places = [5, 6, 11, 12, 21, 22, 23, 24, 25, 26, 27, 28];
        let told = places.map(&mut arrive);
        assert_eq!(told[11], Some(vec![(21, 29), (11, 13), (5, 7)]));
        // Whatever fills a hole changes the block that it joins.
        (7..11).for_each(|seq| drop(arrive(seq)));
        assert_eq!(arrive(29), Some(vec![(21, 30), (5, 13)]));
    }
}
