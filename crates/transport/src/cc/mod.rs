//! Congestion control: one small trait, about congestion only.

mod cubic;
mod fixed;
mod hystart;
mod longhaul;
mod name;
mod newreno;
mod udt;
mod window;

use core::time::Duration;

use units::{Bytes, Instant, Rate};

use cubic::Cubic;
pub use fixed::Fixed;
pub use longhaul::{Level, Longhaul};
pub use name::UnknownAlgorithm;
use newreno::NewReno;
use udt::Udt;

/// What a report said of packets that arrived, and of the path.
#[derive(Clone, Copy, Debug, Default)]
pub struct AckSample {
    /// When the report arrived.
    pub now: Instant,
    /// Bytes it settled as arrived.
    pub acked: Bytes,
    /// Bytes it settled as lost.
    pub lost: Bytes,
    /// When the oldest and the newest of the packets that it settled as arrived were sent.
    pub acked_sent: Option<(Instant, Instant)>,
    /// The same of those that it settled as lost.
    pub lost_sent: Option<(Instant, Instant)>,
    /// Gaps that what was lost left between the numbers of what was not.
    pub gaps: u32,
    /// Bytes received in all, and the arrival of the latest of them on the receiver's clock.
    pub received: (Bytes, Instant),
    /// The round-trip time, without the receiver's own delay, when the report gave one.
    pub rtt: Option<Duration>,
    /// The smoothed round-trip time.
    pub smoothed_rtt: Duration,
    /// How long an answer may take before it is missed.
    pub patience: Duration,
    /// What trains of packets told the receiver of the path's capacity.
    pub capacity: Option<Rate>,
    /// Bytes in flight after the report.
    pub in_flight: Bytes,
    /// Size of full datagrams.
    pub datagram: Bytes,
    /// Packets that newly arrived with a mark of congestion (RFC 3168).
    pub marked: u64,
    /// The application, or credit, held the sender back: rates are lower bounds only.
    pub limited: bool,
}

/// What a connection has learnt of a path, for the next one over it (careful resume,
/// draft-ietf-tsvwg-careful-resume). Whoever keeps it forgets it after [`Remembered::LIFETIME`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remembered {
    /// The most that arrived.
    pub rate: Rate,
    /// The round-trip time without a queue.
    pub rtt: Duration,
}

impl Remembered {
    /// A path is not the same for ever.
    pub const LIFETIME: Duration = Duration::from_secs(7 * 24 * 3600);
}

/// Decides how fast, and how much, may be in flight.
pub trait Controller: Send + core::fmt::Debug {
    /// The first round-trip time is known, from the handshake.
    fn on_start(&mut self, now: Instant, rtt: Duration);
    /// `amount` went out, and `in_flight` is now on the way.
    fn on_sent(&mut self, _now: Instant, _amount: Bytes, _in_flight: Bytes) {}
    /// A report arrived.
    fn on_ack(&mut self, sample: &AckSample);
    /// The path may be another one: what was told of its capacity says nothing any more.
    fn forget_capacity(&mut self) {}
    /// Bytes that may be in flight.
    fn window(&self) -> Bytes;
    /// How fast they may go out.
    fn pacing_rate(&self) -> Rate;
    /// What it is about, in one word, for people who look at it.
    fn state(&self) -> &'static str {
        "congestion_avoidance"
    }
    /// An earlier connection over this path has found this; comes before the start.
    fn resume(&mut self, _remembered: Remembered) {}
    /// What the next connection over this path should know.
    fn remembered(&self) -> Option<Remembered> {
        None
    }
    /// What it thinks of the path, for people to read.
    fn describe(&self) -> String {
        String::new()
    }
    /// Datagrams that should go out in one go at least.
    fn train(&self) -> usize {
        1
    }
    /// What of the pace the path is known to carry: the rest is tried.
    fn known_rate(&self) -> Rate {
        self.pacing_rate()
    }
    /// Whether packets may go out twice where the path loses some and is hardly used.
    fn may_insure(&self) -> bool {
        false
    }
    /// Whether the other end should tell the capacity by pairs of packets instead of trains.
    fn wants_pairs(&self) -> bool {
        false
    }
}

/// Which controller to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Algorithm {
    /// Our own: a model of the delivery rate that fills the path under random loss and keeps
    /// the queue short.
    #[default]
    Longhaul,
    /// The same at the background level: it yields to everything.
    Background,
    /// RFC 9438: what most of the world's hosts use.
    Cubic,
    /// RFC 6582 with selective recovery.
    NewReno,
    /// UDT, from its Internet draft.
    Udt,
    /// UDT with gentle bandwidth estimation (paper 4).
    UdtG,
    /// A rate given by the user, whatever happens (paper 2's trunk).
    Fixed(Rate),
}

impl Algorithm {
    /// A controller for a new connection; `seed` fixes its random choices.
    pub fn controller(self, seed: u64) -> Box<dyn Controller> {
        match self {
            Self::Longhaul => Box::new(Longhaul::new(Level::Normal)),
            Self::Background => Box::new(Longhaul::new(Level::Background)),
            Self::Cubic => Box::new(Cubic::new()),
            Self::NewReno => Box::new(NewReno::new()),
            Self::Udt => Box::new(Udt::new(Udt::ALPHA, seed)),
            Self::UdtG => Box::new(Udt::new(Udt::ALPHA_G, seed)),
            Self::Fixed(rate) => Box::new(Fixed::new(rate)),
        }
    }
}
