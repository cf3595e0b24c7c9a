//! What happens to packets between the transmitter and the other end.

use core::time::Duration;

use rand::RngExt;
use rand_pcg::Pcg64Mcg;
use units::{Bytes, Instant};

use crate::jitter::Jitter;
use crate::loss::{Loss, LossConfig};
use crate::random::{Events, Stream, stream};
use crate::{Change, Damage, DropCause, Fate, Impairments, LinkConfig};

/// Bytes of a cell on an ATM line (ITU-T I.361).
const CELL: u64 = 53;

/// Bytes of it that are payload.
const CELL_PAYLOAD: u64 = 48;

/// What AAL5 adds behind a packet before it pads to whole cells (ITU-T I.363.5).
const AAL5_TRAILER: u64 = 8;

/// How packets are framed on the line, which decides what they cost and what errors can hit.
#[derive(Clone, Copy)]
pub(crate) struct Framing {
    bytes: Bytes,
    atm: bool,
}

impl Framing {
    pub(crate) fn of(config: &LinkConfig) -> Self {
        Self { bytes: config.framing, atm: config.atm }
    }

    /// Bytes that a packet of `size` takes on the line.
    pub(crate) fn line_size(self, size: Bytes) -> Bytes {
        if self.atm { Bytes(self.cells(size) * CELL) } else { size + self.bytes }
    }

    /// Cells that a packet of `size` is cut into; one frame when the line has no cells.
    pub(crate) fn cells(self, size: Bytes) -> u64 {
        if self.atm {
            (size + self.bytes + Bytes(AAL5_TRAILER)).0.div_ceil(CELL_PAYLOAD)
        } else {
            1
        }
    }

    /// Bits in which an error damages a packet of `size`: payload, trailer and padding of the
    /// cells, whose headers have a correction of their own; else everything.
    pub(crate) fn bits(self, size: Bytes) -> u64 {
        if self.atm {
            self.cells(size) * CELL_PAYLOAD * 8
        } else {
            (size + self.bytes).0.saturating_mul(8)
        }
    }
}

/// The way of one packet over the wire.
pub(crate) struct Passage {
    pub(crate) due: Instant,
    pub(crate) fate: Fate,
    pub(crate) damage: Option<Damage>,
    pub(crate) duplicated: bool,
}

impl Passage {
    /// What is not is not marked either, whatever the queue has done.
    pub(crate) fn is_delivered(&self) -> bool {
        self.fate == Fate::Delivered
    }
}

/// The line behind the transmitter. Each process sees every packet, whatever another did to it,
/// so that a change of one parameter does not shift the others.
pub(crate) struct Wire {
    loss: Loss,
    cells: Events,
    bits: Events,
    corrupt: Events,
    /// Where in the packet.
    place: Pcg64Mcg,
    duplicate: Events,
    reorder: Events,
    jitter: Pcg64Mcg,
    /// Nothing happens to packets, but that they arrive later.
    plain: bool,
    /// Up to when packets that kept the order leave.
    last_due: Instant,
}

impl Wire {
    pub(crate) fn new(config: &LinkConfig, seed: u64) -> Self {
        let rng = |kind| stream(seed, kind);
        let impairments = &config.impairments;
        Self {
            loss: Loss::new(&config.loss, rng(Stream::Loss)),
            cells: Events::new(impairments.cell_loss, rng(Stream::Cells)),
            bits: Events::new(impairments.bit_error, rng(Stream::Bits)),
            corrupt: Events::new(impairments.corrupt, rng(Stream::Corrupt)),
            place: rng(Stream::Place),
            duplicate: Events::new(impairments.duplicate, rng(Stream::Duplicate)),
            reorder: Events::new(impairments.reorder, rng(Stream::Reorder)),
            jitter: rng(Stream::Jitter),
            plain: is_plain(config),
            last_due: Instant::ZERO,
        }
    }

    /// Takes over a changed configuration: what the change states begins anew, from this seed, and the rest goes
    /// on as before.
    pub(crate) fn change(&mut self, config: &LinkConfig, change: &Change, seed: u64) {
        if change.loss.is_some() {
            self.loss = Loss::new(&config.loss, stream(seed, Stream::Loss));
        }
        for (process, stated, kind) in [
            (&mut self.cells, change.cell_loss, Stream::Cells),
            (&mut self.bits, change.bit_error, Stream::Bits),
            (&mut self.corrupt, change.corrupt, Stream::Corrupt),
            (&mut self.duplicate, change.duplicate, Stream::Duplicate),
            (&mut self.reorder, change.reorder, Stream::Reorder),
        ] {
            if let Some(probability) = stated {
                *process = Events::new(probability, stream(seed, kind));
            }
        }
        self.plain = is_plain(config);
    }

    /// Nothing happens to packets, but that they arrive later.
    pub(crate) fn is_plain(&self) -> bool {
        self.plain
    }

    /// Carries a packet of `size` whose last bit was `sent` by the transmitter.
    #[inline(always)]
    pub(crate) fn pass(&mut self, config: &LinkConfig, sent: Instant, size: Bytes) -> Passage {
        if self.plain {
            let due = self.in_order(config, sent + config.delay);
            return Passage { due, fate: Fate::Delivered, damage: None, duplicated: false };
        }
        self.suffer(config, sent, size)
    }

    /// The same on a line that is not plain.
    #[inline(never)]
    fn suffer(&mut self, config: &LinkConfig, sent: Instant, size: Bytes) -> Passage {
        let framing = Framing::of(config);
        let lost = self.loss.strikes() | self.cells.first_in(framing.cells(size)).is_some();
        let error = self.bits.first_in(framing.bits(size));
        let place = self.corrupt.next().then(|| self.place.random_range(0..size.0.max(1) * 8));
        let duplicated = self.duplicate.next();
        let due = self.due(config, sent);
        let silent = config.impairments.silent;
        let hit = error.or(place);
        let fate = match hit {
            _ if lost => Fate::Dropped(DropCause::Loss),
            Some(_) if !silent => Fate::Dropped(DropCause::Damage),
            _ => Fate::Delivered,
        };
        let delivered = fate == Fate::Delivered;
        // An error in framing or padding damages nothing that anybody reads.
        let damage = hit
            .filter(|&bit| delivered && bit < size.0.saturating_mul(8))
            .map(|bit| Damage { bit });
        Passage { due, fate, damage, duplicated: duplicated && delivered }
    }

    fn due(&mut self, config: &LinkConfig, sent: Instant) -> Instant {
        let impairments = &config.impairments;
        let late = impairments.jitter.draw(&mut self.jitter);
        let due = sent + config.delay + late;
        if self.reorder.next() {
            // Held back by itself: those behind it pass.
            return due + impairments.reorder_by;
        }
        self.in_order(config, due)
    }

    fn in_order(&mut self, config: &LinkConfig, due: Instant) -> Instant {
        let latest = self.last_due.max(due);
        self.last_due = latest;
        if config.impairments.keep_order { latest } else { due }
    }
}

/// Whether a link's configuration has no random choices.
fn is_plain(config: &LinkConfig) -> bool {
    let Impairments {
        cell_loss,
        bit_error,
        corrupt,
        silent: _,
        duplicate,
        reorder,
        reorder_by: _,
        jitter,
        keep_order: _,
    } = config.impairments;
    let events = [cell_loss, bit_error, corrupt, duplicate, reorder];
    config.loss == LossConfig::None && jitter == Jitter::None && events == [0.0; 5]
}

impl LinkConfig {
    /// Whether packets arrive in the order in which they were sent, whatever else happens to them.
    pub(crate) fn keeps_order(&self) -> bool {
        let Impairments { jitter, reorder, keep_order, .. } = self.impairments;
        reorder == 0.0 && (keep_order || jitter == Jitter::None)
    }

    /// Bytes that a packet of `size` takes on the line, framing, cells and padding included.
    pub fn line_size(&self, size: Bytes) -> Bytes {
        Framing::of(self).line_size(size)
    }

    /// The probability that a packet of `size` does not arrive whole, the queue aside:
    /// 1 - (1 - loss) (1 - cell loss)^cells (1 - bit error)^bits (1 - corruption).
    pub fn packet_error_rate(&self, size: Bytes) -> f64 {
        let framing = Framing::of(self);
        let survives = |p: f64, n: u64| (-p).ln_1p() * n as f64;
        let impairments = &self.impairments;
        let ln = survives(self.loss.mean_loss(), 1)
            + survives(impairments.cell_loss, framing.cells(size))
            + survives(impairments.bit_error, framing.bits(size))
            + survives(impairments.corrupt, 1);
        -ln.exp_m1()
    }

    /// The longest that a packet is on the way behind the transmitter.
    pub(crate) fn most_delay(&self) -> Duration {
        let Impairments { jitter, reorder, reorder_by, .. } = self.impairments;
        let held_back = if reorder > 0.0 { reorder_by } else { Duration::ZERO };
        self.delay.saturating_add(jitter.most()).saturating_add(held_back)
    }
}
