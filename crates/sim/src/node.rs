//! What the world asks of a host.

use core::net::SocketAddr;

use units::Instant;

/// What hosts send each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// Where to.
    pub to: SocketAddr,
    /// Whether its IP header says ECT: a queue may mark it instead of dropping it.
    pub ecn_capable: bool,
    /// What UDP carries.
    pub bytes: Vec<u8>,
}

/// A datagram at its end.
#[derive(Debug)]
pub struct Arrived<'a> {
    /// Where from.
    pub from: SocketAddr,
    /// When it came, which may be long before the host takes it: the kernel stamps what it receives.
    pub at: Instant,
    /// Whether a queue has marked it: congestion experienced.
    pub ce: bool,
    /// What UDP carries.
    pub bytes: &'a mut [u8],
}

/// A host: a protocol, and the application on top.
pub trait Node {
    /// Its address as it sees it itself.
    fn address(&self) -> SocketAddr;

    /// A datagram arrives; what answers it at once goes to `out`.
    fn receive(&mut self, now: Instant, arrived: Arrived<'_>, out: &mut Vec<Datagram>);

    /// Does what is due, and hands what is to be sent to `out`. Called after everything that
    /// arrived at one time, and when [`Self::next`] has come.
    fn run(&mut self, now: Instant, out: &mut Vec<Datagram>);

    /// When to run it next, if nothing arrives before.
    fn next(&self) -> Option<Instant>;
}
