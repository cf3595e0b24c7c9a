//! The opening: hello, and what may come back. And the end of a connection that the other side has
//! forgotten.

use core::mem;
use core::net::{IpAddr, SocketAddr};
use core::time::Duration;

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::Rng;
use units::Instant;

use super::receive::Refuse;
use super::{CloseReason, Connection, Event, Phase, Seals, Side};
use crate::crypto::{Credentials, Initiator, Keys, Pattern, Token, digest, same};
use crate::trace::Step;
use crate::wire::{self, Echo, Opening as Packet, Parameters, Refusal, Versions};

/// The first wait for an answer to a hello; doubled once.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const MAX_WAIT: Duration = Duration::from_secs(2);
/// One hello is repeated for so long. The responder that answered it may forget it after
/// [`crate::admission::HALF_OPEN_TIME`], and an answer that was held up on the way leads nowhere then.
const HELLO_TIME: Duration = Duration::from_secs(10);
/// Cookies taken for one connection: each costs the initiator a round trip.
const MAX_RETRIES: u32 = 4;
/// The other end's idle time-out is not taken to be shorter.
const MIN_IDLE: Duration = Duration::from_secs(1);

/// Names protocol and version in the handshake, so that none of its messages serves elsewhere.
pub(crate) fn prologue(version: u8) -> [u8; 14] {
    let mut prologue = *b"longhaul udp \0";
    prologue[13] = version;
    prologue
}

/// What it takes to make a hello.
pub(crate) struct Greeting {
    pub(crate) credentials: Credentials,
    pub(crate) parameters: Parameters,
    pub(crate) random: ChaCha20Rng,
}

impl Greeting {
    fn hello(&mut self, version: u8) -> (Initiator, Vec<u8>) {
        let mut seed = [0; 32];
        self.random.fill_bytes(&mut seed);
        let mut initiator = Initiator::new(&self.credentials, seed, &prologue(version));
        let pattern = Pattern::of(&self.credentials);
        let padded = Packet::HELLO_LEN - Packet::HELLO_PREFIX_LEN - pattern.hello_overhead();
        let noise = initiator.hello(&self.parameters.encode(padded));
        (initiator, wire::hello(version, pattern, self.parameters.connection, &noise))
    }
}

/// The initiator before the reply.
pub(super) struct Opening {
    greeting: Greeting,
    initiator: Initiator,
    version: u8,
    pub(super) hello: Vec<u8>,
    pub(super) next_hello: Instant,
    wait: Duration,
    /// When the first hello went out that is exactly this one.
    first_at: Option<Instant>,
    /// How often it did.
    hellos: u32,
    retries: u32,
    pub(super) give_up: Instant,
}

impl Opening {
    pub(super) fn new(now: Instant, mut greeting: Greeting, patience: Duration) -> Self {
        let version = greeting.parameters.versions.newest;
        let (initiator, hello) = greeting.hello(version);
        Self {
            greeting,
            initiator,
            version,
            hello,
            next_hello: now,
            wait: FIRST_WAIT,
            first_at: None,
            hellos: 0,
            retries: 0,
            give_up: now + patience,
        }
    }

    pub(super) fn on_sent(&mut self, now: Instant) {
        self.first_at.get_or_insert(now);
        self.hellos += 1;
        self.next_hello = now + self.wait;
        self.wait = (self.wait * 2).min(MAX_WAIT);
    }

    /// Makes another hello, under a new ephemeral key, when this one has been repeated for too long.
    pub(super) fn renew(&mut self, now: Instant) {
        if self.first_at.is_some_and(|first| now >= first + HELLO_TIME) {
            (self.initiator, self.hello) = self.greeting.hello(self.version);
            (self.first_at, self.hellos, self.retries) = (None, 0, 0);
        }
    }

    /// What the other end repeats of the hello.
    fn echo(&self) -> Option<&Echo> {
        self.hello[Packet::HELLO_PREFIX_LEN..].first_chunk()
    }

    /// Another hello is to be sent at once.
    fn begin_again(&mut self, now: Instant) {
        self.next_hello = now;
        self.wait = FIRST_WAIT;
        self.first_at = None;
        self.hellos = 0;
    }

    /// With one hello sent it is clear which one the reply answers.
    fn rtt(&self, now: Instant) -> Option<Duration> {
        self.first_at.filter(|_| self.hellos == 1).map(|sent| now.since(sent))
    }
}

impl Connection {
    /// A packet without a seal.
    pub(super) fn handle_opening(
        &mut self,
        now: Instant,
        (from, to): (SocketAddr, Option<IpAddr>),
        datagram: &[u8],
    ) -> Result<(), Refuse> {
        match Packet::decode(datagram).map_err(|_| Refuse::Malformed)? {
            // The initiator has not heard the reply. Anybody can repeat a hello: it does not keep
            // the connection from being given up.
            Packet::Hello { .. } if self.side == Side::Responder => {
                if !self.validated {
                    self.reply_due = true;
                    self.address = from;
                    self.answer_from(to);
                }
                Ok(())
            }
            Packet::Reply { noise, .. } => self.on_reply(now, noise),
            Packet::Refused { refusal, digest, .. } => self.on_refused(now, refusal, digest),
            Packet::Retry { echo, cookie, .. } => self.on_retry(now, echo, cookie),
            Packet::Gone { token, .. } => self.on_gone(now, token),
            Packet::Hello { .. } | Packet::Who { .. } | Packet::Host { .. } => Err(Refuse::Forged),
        }
    }

    /// The reply makes the keys. One that is not authentic was damaged on the way, or forged: the
    /// true one may still come.
    fn on_reply(&mut self, now: Instant, noise: &[u8]) -> Result<(), Refuse> {
        let Phase::Opening(opening) = &mut self.phase else {
            return Ok(()); // a repeated reply
        };
        let finished = opening.initiator.finish(noise);
        let (payload, keys) = finished.map_err(|_| Refuse::Unauthentic)?;
        let theirs = Parameters::decode(&payload).map_err(|_| Refuse::Malformed)?;
        let (rtt, version, ours) = (opening.rtt(now), opening.version, opening.greeting.parameters);
        self.phase = Phase::Established;
        self.on_keys(now, (&ours, &theirs), keys);
        if self.config.versions.common(theirs.versions) != Some(version) {
            self.violation(now, "somebody on the way asked for an older version");
            return Ok(());
        }
        if theirs.feedback != self.config.feedback as u8 {
            self.violation(now, "it answers with another feedback");
            return Ok(());
        }
        if let Some(rtt) = rtt {
            self.on_rtt_sample(now, rtt);
        }
        self.ping_due = true;
        self.events.push_back(Event::Established);
        Ok(())
    }

    /// The handshake is done, as far as this end can know.
    pub(super) fn on_keys(
        &mut self,
        now: Instant,
        (ours, theirs): (&Parameters, &Parameters),
        keys: Keys,
    ) {
        if let Some(trace) = &mut self.trace {
            trace.set_time(now);
            trace.note(Step::Agreed(Box::new((*ours, *theirs))));
        }
        self.peer = keys.peer;
        self.seals = Some(Seals::new(now, keys.with(self.config.sealing)));
        self.remote = theirs.connection;
        self.remote_token = theirs.reset_token;
        self.idle_timeout = self.config.idle_timeout.min(theirs.idle_timeout.max(MIN_IDLE));
        let Parameters { connection_credit, stream_credit, streams, .. } = *theirs;
        let credit = (connection_credit, stream_credit, streams);
        self.streams.on_parameters(credit, &mut self.events);
        self.last_received = now;
    }

    /// The opening, if it was our hello that is answered.
    fn opening(&mut self, is_ours: impl Fn(&Opening) -> bool) -> Result<&mut Opening, Refuse> {
        match &mut self.phase {
            Phase::Opening(opening) if is_ours(opening) => Ok(opening),
            Phase::Opening(_) => Err(Refuse::Forged),
            _ => Err(Refuse::Untimely),
        }
    }

    /// Refusals of any other hello are ignored: one that was damaged on the way is refused like one
    /// under another key.
    fn on_refused(&mut self, now: Instant, refusal: Refusal, of: &Echo) -> Result<(), Refuse> {
        let spoken = self.config.versions;
        self.opening(|opening| digest(&opening.hello) == *of)?;
        match refusal {
            Refusal::Version(theirs) => return self.on_other_version(now, spoken, theirs),
            _ => self.begin_closing(now, None, CloseReason::Refused(refusal)),
        }
        Ok(())
    }

    /// Goes on with the newest version that both speak. That no newer one was hidden on the way
    /// is checked once there are keys.
    fn on_other_version(
        &mut self,
        now: Instant,
        spoken: Versions,
        theirs: Versions,
    ) -> Result<(), Refuse> {
        let Phase::Opening(opening) = &mut self.phase else {
            return Err(Refuse::Untimely);
        };
        match spoken.common(theirs) {
            // They would not have refused that one.
            Some(version) if version >= opening.version => return Err(Refuse::Forged),
            Some(version) => {
                opening.version = version;
                (opening.initiator, opening.hello) = opening.greeting.hello(version);
                opening.begin_again(now);
            }
            None => {
                let refusal = Refusal::Version(theirs);
                self.begin_closing(now, None, CloseReason::Refused(refusal));
            }
        }
        Ok(())
    }

    fn on_retry(&mut self, now: Instant, echo: &Echo, cookie: &Token) -> Result<(), Refuse> {
        let opening = self.opening(|opening| opening.echo() == Some(echo))?;
        if opening.retries == MAX_RETRIES {
            return Err(Refuse::Untimely);
        }
        opening.retries += 1;
        let place = Packet::HELLO_PREFIX_LEN - cookie.len()..Packet::HELLO_PREFIX_LEN;
        opening.hello[place].copy_from_slice(cookie);
        opening.begin_again(now);
        Ok(())
    }

    /// The other end has forgotten the connection, as after a restart. Until its first report,
    /// two without the token do as well: who moved during the opening is told another one, and an
    /// observer could have refused the hello. One could be the answer to a packet whose number was
    /// damaged, damaged on its way back.
    fn on_gone(&mut self, now: Instant, token: &Token) -> Result<(), Refuse> {
        let seals = self.seals.as_mut().ok_or(Refuse::Forged)?;
        if !same(token, &self.remote_token) {
            let doubted = mem::replace(&mut seals.doubted, true);
            if seals.told.is_some() || !doubted {
                return Err(Refuse::Forged);
            }
        }
        self.begin_closing(now, None, CloseReason::Gone);
        self.phase = Phase::Closed;
        Ok(())
    }
}
