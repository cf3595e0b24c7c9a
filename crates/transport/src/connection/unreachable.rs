//! What the network says of an address that it cannot reach. Anyone who sees or guesses our port
//! can forge that, so it never ends a connection by itself: it is a hint to ask sooner.

use core::time::Duration;

use units::Instant;

use super::{CloseReason, Connection, Phase};

/// Hints without a word from the other end that are believed.
const ENOUGH: u32 = 3;
/// How soon a hello is repeated after a hint.
const REPEAT: Duration = Duration::from_millis(100);
/// How long an established connection must have been silent, in patience and at least.
const SILENCE: u32 = 4;
const LEAST_SILENCE: Duration = Duration::from_secs(1);

/// What the network says it cannot reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unreachable {
    /// The port: the host is there, and nobody listens.
    Port,
    /// The host or its network: there is no way to it just now, which an outage looks like too.
    Address,
}

/// Hints since the last authentic packet.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Hints {
    /// The other end was asked whether it lives.
    asked: bool,
    count: u32,
    first: Instant,
}

impl Connection {
    /// The network says that the other end cannot be reached, or that nobody listens there. An
    /// established connection outlives an outage on the way, as long as the idle time-out lets it.
    pub fn on_unreachable(&mut self, now: Instant, what: Unreachable) {
        let is_open = matches!(self.phase, Phase::Established);
        self.ping_due |= !self.hints.asked && is_open && self.validated;
        self.hints.asked = true;
        if is_open && what == Unreachable::Address {
            return;
        }
        if self.hints.count == 0 {
            self.hints.first = now;
        }
        self.hints.count += 1;
        if let Phase::Opening(opening) = &mut self.phase {
            opening.next_hello = opening.next_hello.min(now + REPEAT * self.hints.count);
            if self.hints.count >= ENOUGH {
                self.begin_closing(now, None, CloseReason::Unreachable);
            }
        }
    }

    /// When hints, and silence since the first, amount to the end of an established connection.
    pub(super) fn unreachable_at(&self) -> Option<Instant> {
        let silence = (self.rtt.patience() * SILENCE).max(LEAST_SILENCE);
        (self.hints.count >= ENOUGH).then(|| self.hints.first + silence)
    }
}
