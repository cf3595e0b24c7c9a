//! The receiver's state: what has arrived, and what the host was given.

use std::collections::VecDeque;

/// A packet from the window's lower bound on.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    arrived: bool,
    /// host-rcv has seen it.
    ready: bool,
}

/// The window's packets.
#[derive(Debug)]
pub(super) struct Receiver {
    window: u64,
    /// The next packet to give to the host.
    lower: u64,
    places: VecDeque<Place>,
}

impl Receiver {
    pub(super) fn new(window: u64) -> Self {
        Self { window, lower: 0, places: VecDeque::new() }
    }

    pub(super) fn lower(&self) -> u64 {
        self.lower
    }

    /// rcv-uw: packets below may come.
    pub(super) fn upper(&self) -> u64 {
        self.lower + self.window
    }

    /// A packet arrives; whether it is new.
    pub(super) fn take(&mut self, serial: u64) -> bool {
        let Some(place) = serial.checked_sub(self.lower) else { return false };
        let place = place as usize;
        if self.places.len() <= place {
            self.places.resize(place + 1, Place::default());
        }
        !core::mem::replace(&mut self.places[place].arrived, true)
    }

    /// host-rcv gives the host this packet and those behind it, if it is the next.
    pub(super) fn give(&mut self, serial: u64) {
        let place = (serial - self.lower) as usize;
        self.places[place].ready = true;
        while self.places.front().is_some_and(|place| place.ready) {
            self.places.pop_front();
            self.lower += 1;
        }
    }

    /// Which packets have arrived, from the lower bound on.
    pub(super) fn arrived(&self) -> Vec<bool> {
        self.places.iter().map(|place| place.arrived).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_gets_packets_in_order_and_once() {
        let mut receiver = Receiver::new(8);
        assert!(receiver.take(1) && receiver.take(2) && !receiver.take(1));
        receiver.give(1);
        receiver.give(2);
        assert_eq!((receiver.lower(), receiver.upper()), (0, 8));
        assert_eq!(receiver.arrived(), [false, true, true]);
        assert!(receiver.take(0));
        receiver.give(0);
        assert_eq!((receiver.lower(), receiver.upper()), (3, 11));
        assert!(!receiver.take(2), "it was given");
    }
}
