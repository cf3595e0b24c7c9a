//! A connection between two ends.
//!
//! One loop drives it: hand in what happened ([`Connection::handle`],
//! [`Connection::handle_timeout`], writes and reads), then drain what it wants
//! ([`Connection::poll_transmit`], [`Connection::poll_event`]) until
//! [`Connection::poll_timeout`] tells when to come again.
//!
//! `opening` is its beginning; then `receive` takes datagrams in, `transmit` makes them, `timers`
//! says when, and `path` sees to it when the other end moves. `application` is what uses the streams.
//!
//! ```text
//! Opening --reply--> Established --close, violation--> Closing --answered or late--> Closed
//!    |                    +--silent, vanished, gone---------------------------------> Closed
//!    +--refused, no answer, unreachable, violation----------------------------------> Closed
//! ```

mod application;
mod losses;
mod opening;
mod path;
mod receive;
mod retell;
mod timers;
mod transmit;
mod unreachable;

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use std::collections::VecDeque;

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::SeedableRng;
use units::{Bytes, Instant, Rate};

use crate::cc::Controller;
use crate::config::Config;
use crate::crypto::{EpochOpener, EpochSealer, Keys, PublicKey, TOKEN_LEN, Token};
use crate::feedback::Feedback;
use crate::mtu::MtuSearch;
use crate::pacer::Pacer;
use crate::recovery::{Content, SentLog, Settled};
use crate::rtt::Rtt;
use crate::stats::{Limit, LimitTimes, Stats};
use crate::streams::{Piece, Streams};
use crate::trace::{Record, Step, Trace};
use crate::wire::{Challenge, Close, Parameters, Refusal};

pub(crate) use opening::{Greeting, prologue};
pub use receive::Received;
pub use transmit::Transmit;
pub use unreachable::Unreachable;

use losses::Losses;
use opening::Opening;
use path::{Candidate, Ecn};
use retell::Retell;
use transmit::Repeat;

/// Times that a close is sent before its answer is given up.
const CLOSES: u32 = 4;
/// No limit holds a connection below this: it could not even be closed.
const MIN_RATE: Rate = Rate::from_bits_per_sec(8_000);

/// Which end this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Sent the hello. Its streams have even numbers.
    Initiator,
    /// Answered it. Its streams have odd numbers.
    Responder,
}

/// What the application should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The other end is who it should be, and is there.
    Established,
    /// The other end opened this stream.
    Opened(u64),
    /// The stream has something to read, or has ended.
    Readable(u64),
    /// The stream takes bytes again, or was stopped, or all that was written has arrived.
    Writable(u64),
    /// Streams can be opened again.
    Openable,
    /// The connection has ended.
    Closed(CloseReason),
}

/// Why a connection ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CloseReason {
    /// This end closed it.
    #[error("closed")]
    Local,
    /// The other end closed it.
    #[error("the other side ended the connection: {}", .0.reason)]
    Remote(Close),
    /// The hello was refused.
    #[error("refused: {0}")]
    Refused(Refusal),
    /// Nobody answered the hello.
    #[error("no answer")]
    NoAnswer,
    /// The network says that nobody is there, and nobody says otherwise.
    #[error("nobody is there: the network reports the address or port as unreachable")]
    Unreachable,
    /// The same of a connection that was established: the other end has ended without a word.
    #[error("the other side is not there any more, as the network reports")]
    Vanished,
    /// Nothing authentic arrived for the idle time-out.
    #[error("the path went silent: nothing arrived for {} s", .0.as_secs())]
    Silent(Duration),
    /// The other end says that it does not know the connection.
    #[error("the other side was restarted and knows nothing of it any more")]
    Gone,
    /// This end has nothing left to send and receive with.
    #[error("the socket of this side has failed")]
    Failed,
    /// The other end broke the protocol.
    #[error("the other side broke the protocol: {0}")]
    Violation(&'static str),
}

enum Phase {
    Opening(Box<Opening>),
    Established,
    /// The end was decided here or there; lingers so that a lost close can be sent again.
    Closing {
        close: Close,
        /// The other end closed first.
        answers: bool,
        next: Instant,
        until: Instant,
        /// What arrives is answered with a close from then on, and the time between that and the next.
        echo: (Instant, Duration),
    },
    Closed,
}

/// Seals what this end sends and opens what the other one sent.
struct Seals {
    sealer: EpochSealer,
    opener: EpochOpener,
    /// The largest of our numbers that the other end has told of.
    told: Option<u64>,
    /// Whether a *gone* without proof has come.
    doubted: bool,
}

impl Seals {
    fn new(now: Instant, keys: Keys) -> Self {
        let (sealer, opener) = (EpochSealer::new(now, keys.sealer), EpochOpener::new(keys.opener));
        Self { sealer, opener, told: None, doubted: false }
    }
}

fn controller(config: &Config, local: u32) -> Box<dyn Controller> {
    let mut controller = config.congestion.controller(u64::from(local));
    if let Some(remembered) = config.remembered {
        controller.resume(remembered);
    }
    controller
}

/// One end of a connection.
pub struct Connection {
    config: Config,
    phase: Phase,
    local: u32,
    remote: u32,
    address: SocketAddr,
    /// Of a responder on a host with several addresses: the one that the other end knows.
    source: Option<IpAddr>,
    /// Where the other end was proved to be, once that is more than one address; the first one first.
    proved: Vec<SocketAddr>,
    candidate: Option<Candidate>,
    /// Answers to the other end's challenges, and where they go.
    answers: VecDeque<(SocketAddr, Challenge)>,
    /// What was sent before says nothing of the path in use.
    path_since: Instant,
    /// Something has arrived that was sent since.
    is_path_heard: bool,
    losses: Losses,
    ecn: Ecn,
    seals: Option<Seals>,
    peer: Option<PublicKey>,
    remote_token: Token,
    idle_timeout: Duration,
    random: ChaCha20Rng,
    side: Side,
    /// Of a responder: the reply, and whether it must be sent (again).
    reply: Vec<u8>,
    reply_due: bool,
    /// The other end has proved that it receives at its address.
    validated: bool,
    log: SentLog,
    settled: Settled,
    feedback: Feedback,
    streams: Streams,
    rtt: Rtt,
    cc: Box<dyn Controller>,
    pacer: Pacer,
    mtu: MtuSearch,
    hints: unreachable::Hints,
    /// Resets and stops to be sent (again).
    signals: VecDeque<Content>,
    /// The pieces of the packet being made.
    pieces: Vec<(u64, Piece)>,
    /// Packets of the last batch that go out once more in the next, at least.
    repeats: VecDeque<Repeat>,
    ping_due: bool,
    close_due: bool,
    /// Probes since data, a reset or a stop was last sent.
    backoff: u32,
    /// Time-outs of unacknowledged packets in a row, with nothing acknowledged between.
    expiries: u32,
    /// Bytes received and the arrival of the latest, by the last report.
    reported: (Bytes, Instant),
    last_eliciting: Instant,
    /// When a full window, or silence, last asked for a report.
    last_asked: Instant,
    last_received: Instant,
    retell: Retell,
    next_state: Instant,
    /// The last state said that something waited to be sent.
    said_queued: bool,
    /// When the tail last came nearer to being settled.
    progress_at: Instant,
    /// When something was sent that is to be answered, and nothing has been since.
    unanswered_since: Option<Instant>,
    /// When the application or credit last held the sender back: for a round trip, reports tell of that.
    limited_at: Option<Instant>,
    /// When credit last held the sender back.
    blocked_at: Option<Instant>,
    events: VecDeque<Event>,
    stats: Stats,
    trace: Option<Box<Trace>>,
}

impl core::fmt::Debug for Connection {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Connection({:08x} with {})", self.local, self.address)
    }
}

impl Connection {
    fn new(
        now: Instant,
        config: Config,
        side: Side,
        (local, address): (u32, SocketAddr),
        random: ChaCha20Rng,
    ) -> Self {
        Self {
            phase: Phase::Established,
            local,
            remote: 0,
            address,
            source: None,
            proved: Vec::new(),
            candidate: None,
            answers: VecDeque::new(),
            path_since: Instant::ZERO,
            is_path_heard: true,
            losses: Losses::default(),
            ecn: Ecn::default(),
            seals: None,
            peer: None,
            remote_token: [0; TOKEN_LEN],
            idle_timeout: config.idle_timeout,
            random,
            side,
            reply: Vec::new(),
            reply_due: false,
            validated: side == Side::Initiator,
            log: SentLog::default(),
            settled: Settled::default(),
            feedback: Feedback::new(config.feedback, config.report_interval),
            streams: Streams::new(side, config.limits()),
            rtt: Rtt::default(),
            cc: controller(&config, local),
            pacer: Pacer::default(),
            mtu: MtuSearch::new(),
            hints: unreachable::Hints::default(),
            signals: VecDeque::new(),
            pieces: Vec::new(),
            repeats: VecDeque::new(),
            ping_due: false,
            close_due: false,
            backoff: 0,
            expiries: 0,
            reported: (Bytes(0), Instant::ZERO),
            last_eliciting: now,
            last_asked: now,
            last_received: now,
            retell: Retell::default(),
            next_state: now,
            said_queued: false,
            progress_at: now,
            unanswered_since: None,
            limited_at: None,
            blocked_at: None,
            events: VecDeque::new(),
            stats: Stats {
                limits: LimitTimes::starting(now),
                remote_limits: LimitTimes::starting(now),
                ..Stats::default()
            },
            trace: config.trace.then(Box::default),
            config,
        }
    }

    /// The initiator's end.
    pub(crate) fn initiate(
        now: Instant,
        config: Config,
        local: u32,
        address: SocketAddr,
        mut greeting: Greeting,
    ) -> Self {
        let random = ChaCha20Rng::from_rng(&mut greeting.random);
        let mut connection = Self::new(now, config, Side::Initiator, (local, address), random);
        let opening = Opening::new(now, greeting, config.connect_timeout);
        connection.phase = Phase::Opening(Box::new(opening));
        connection
    }

    /// The responder's end, with its reply made. `seed` must be fresh randomness.
    pub(crate) fn respond(
        now: Instant,
        config: Config,
        (local, address): (u32, SocketAddr),
        seed: [u8; 32],
        ((ours, theirs), keys, reply): ((Parameters, Parameters), Keys, Vec<u8>),
    ) -> Self {
        let random = ChaCha20Rng::from_seed(seed);
        let mut connection = Self::new(now, config, Side::Responder, (local, address), random);
        connection.on_keys(now, (&ours, &theirs), keys);
        connection.reply = reply;
        connection.reply_due = true;
        connection
    }

    /// The address of the other end.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Who the other end has proved to be, if both are known by static keys and it has.
    pub fn peer(&self) -> Option<PublicKey> {
        self.peer.filter(|_| self.validated)
    }

    /// Sends no faster than this from now on, nor than the configuration says.
    pub fn limit_rate(&mut self, rate: Rate) {
        self.config.rate_limit = Some(self.config.rate_limit.map_or(rate, |old| old.min(rate)));
    }

    /// The other end's number for the connection.
    pub(crate) const fn remote(&self) -> u32 {
        self.remote
    }

    /// What the other end would say if it did not know the connection any more.
    pub(crate) fn reset_token(&self) -> &Token {
        &self.remote_token
    }

    /// Which end this is.
    pub fn side(&self) -> Side {
        self.side
    }

    /// Whether everything has ended and the connection can be forgotten.
    pub fn is_closed(&self) -> bool {
        matches!(self.phase, Phase::Closed)
    }

    /// The socket has no room for what was given out to be sent.
    pub fn on_socket_full(&mut self, now: Instant) {
        self.note_limit(now, Limit::SocketBuffer);
    }

    /// Ends the connection. What was not acknowledged may be lost.
    pub fn close(&mut self, now: Instant, code: u64, reason: &str) {
        let close = Close { code, reason: reason.to_owned() };
        self.begin_closing(now, Some(close), CloseReason::Local);
    }

    /// The next thing the application should know.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// The congestion controller, to look at.
    pub fn controller(&self) -> &dyn Controller {
        &*self.cc
    }

    /// The connection's figures.
    pub fn stats(&self) -> Stats {
        Stats {
            rtt: self.rtt.smoothed().unwrap_or_default(),
            min_rtt: self.rtt.min(),
            pacing_rate: self.rate(),
            window: self.cc.window(),
            in_flight: Bytes(self.log.in_flight()),
            unread: Bytes(self.streams.all_unread()),
            datagram: self.mtu.size() as u64,
            missing: self.feedback.missing(),
            capacity: (self.stats.capacity.0, self.feedback.capacity()),
            ..self.stats
        }
    }

    /// Moves the records made since the last time behind those in `out`, where
    /// [`Config::trace`] asks for any; gives how many were left out because too many waited.
    pub fn take_records(&mut self, out: &mut Vec<Record>) -> u64 {
        self.trace.as_mut().map_or(0, |trace| trace.take(out))
    }

    /// This limit holds from now on.
    fn note_limit(&mut self, now: Instant, limit: Limit) {
        self.stats.limits.note(now, limit);
        if let Some(trace) = &mut self.trace {
            trace.on_limit(limit);
        }
    }

    /// The rate in force: the controller's, under the user's limit.
    fn rate(&self) -> Rate {
        let rate = self.cc.pacing_rate();
        self.config.rate_limit.map_or(rate, |limit| rate.min(limit)).max(MIN_RATE)
    }

    fn begin_closing(&mut self, now: Instant, close: Option<Close>, reason: CloseReason) {
        if matches!(self.phase, Phase::Closing { .. } | Phase::Closed) {
            return;
        }
        if let Some(trace) = &mut self.trace {
            trace.set_time(now);
            trace.note(Step::Closed(reason.clone()));
        }
        let answers = matches!(reason, CloseReason::Remote(_));
        self.events.push_back(Event::Closed(reason));
        // Where nobody has proved to be, nothing goes but the reply.
        let Some(close) = close.filter(|_| self.seals.is_some() && self.validated) else {
            self.phase = Phase::Closed;
            return;
        };
        self.close_due = true;
        self.feedback.end();
        let (wait, pause) = (self.close_wait(), self.echo_pause());
        let (next, until) = (now + wait, now + wait * CLOSES);
        self.phase = Phase::Closing { close, answers, next, until, echo: (now + pause, pause * 2) };
    }

    fn violation(&mut self, now: Instant, what: &'static str) {
        let close = Close { code: Close::VIOLATION, reason: what.to_owned() };
        self.begin_closing(now, Some(close), CloseReason::Violation(what));
    }
}
