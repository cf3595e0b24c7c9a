//! How many to use of TCP connections that somebody else makes and fills: the data connections of a
//! striped FTP transfer.

use std::os::fd::OwnedFd;
use std::time::Duration;

use stripe::count::{Controller, Policy, Sample, System};
use units::{Bytes, Instant};

use super::info::Totals;
use super::pacing::Pacing;

/// A sender's connections side by side, and how many of them it should use by a policy: always the
/// first ones, in their order.
#[derive(Debug)]
pub struct Choice {
    sockets: Vec<OwnedFd>,
    controller: Box<dyn Controller>,
    pacing: Pacing,
    used: usize,
    delivered: Bytes,
    /// For how long the kernel's send buffers have held connections back.
    held_back: Duration,
}

impl Choice {
    /// Among these, which are open to the end of this at least.
    pub fn new(policy: Policy, sockets: Vec<OwnedFd>) -> Self {
        let used = policy.first().clamp(1, sockets.len().max(1));
        let (delivered, held_back) = (Bytes(0), Duration::ZERO);
        let (controller, pacing) = (policy.controller(), Pacing::new(policy));
        Self { sockets, controller, pacing, used, delivered, held_back }
    }

    /// How many to use from now on, 1 at least. To be called at once, and then every
    /// [`TICK`](stripe::count::TICK).
    pub fn decide(&mut self, now: Instant) -> usize {
        let (used, others) = self.sockets.split_at(self.used.min(self.sockets.len()));
        let mut totals = Totals::default();
        others.iter().for_each(|socket| totals.add(socket));
        if let Some(sample) = totals.sample(now, used, None) {
            // Where the send buffer is too small, all that was written is on its way, and there is more.
            let held_back = self.held_back();
            let idle = sample.idle && held_back <= self.held_back;
            self.held_back = held_back;
            let mut sample = Sample { most: self.sockets.len(), idle, ..sample };
            let share = self.share(sample.delivered);
            // The others as well: they may be used before the next time.
            self.pacing.apply(&mut sample, share, &self.sockets);
            self.used = self.controller.connections(&sample).clamp(1, self.sockets.len());
        }
        self.used
    }

    /// What the policy has learnt of the destination, worth storing for the next time.
    pub fn learnt(&self) -> Option<System> {
        self.controller.learnt()
    }

    fn held_back(&self) -> Duration {
        let mut totals = Totals::default();
        self.sockets.iter().for_each(|socket| totals.add(socket));
        totals.buffer_limited()
    }

    /// What each sends until the next time, once any arrives: no more is to wait in the kernel, where it
    /// is sent although its connection is used no more.
    fn share(&mut self, delivered: Bytes) -> Option<u64> {
        let moved = delivered.0.saturating_sub(std::mem::replace(&mut self.delivered, delivered).0);
        (moved > 0).then(|| moved / self.used as u64)
    }
}
