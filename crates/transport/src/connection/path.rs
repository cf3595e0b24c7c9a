//! The path: where the other end is, and what happens when it is found elsewhere, because its
//! address has changed or a translator's mapping has.
//!
//! Packets go to the old address until the new one has answered a challenge, so that nobody is
//! sent more than it asked for, and nobody who copies a packet can draw the connection to itself.

use core::net::{IpAddr, SocketAddr};

use rand_chacha::rand_core::Rng;
use units::{Bytes, Instant};

use super::losses::Losses;
use super::timers::LOST;
use super::{Connection, Event, Side, Transmit};
use crate::cc::Remembered;
use crate::crypto::TAG_LEN;
use crate::mtu::{BASE_SIZE, MtuSearch};
use crate::pacer::Pacer;
use crate::rtt::Rtt;
use crate::wire::{Challenge, HEADER_LEN, Header, Kind};

/// Challenges sent to one address before it is left alone, until more comes from there.
const MAX_TRIES: u32 = 4;
/// When more comes from there, it goes on as after so many of them: with the same token, and never so
/// that an answer could be taken for that to a later challenge.
const AGAIN: u32 = 2;
/// Answers to challenges that wait to be sent.
const MAX_ANSWERS: usize = 4;
/// An address that has proved nothing is sent so many times what came from it, at most.
const AMPLIFICATION: u64 = 3;
/// The length of a challenge, and of its answer.
const PATH_PACKET_LEN: u64 = (HEADER_LEN + 8 + TAG_LEN) as u64;
/// Addresses of the other end that are remembered, with the one in use.
const MAX_PROVED: usize = 5;

/// An address from which the other end was heard and that has not answered yet.
pub(super) struct Candidate {
    address: SocketAddr,
    token: Challenge,
    /// Bytes that may still be sent there.
    allowance: u64,
    tries: u32,
    sent_at: Instant,
    pub(super) next: Instant,
}

/// Of ECN on a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Ecn {
    /// Packets are marked; none is known to have arrived.
    #[default]
    Trying,
    /// Marked packets arrive.
    Works,
    /// They seem not to.
    Off,
}

impl Connection {
    /// Tells a connection that has not begun to send what an earlier one learnt of the path: a
    /// responder knows only now who is at the other end.
    pub fn resume(&mut self, remembered: Remembered) {
        self.cc.resume(remembered);
    }

    /// What the next connection to the same address should know of the path, once anything is
    /// known. What comes near the user's limit tells of that alone.
    pub fn remembered(&self) -> Option<Remembered> {
        let found = self.cc.remembered()?;
        let limit = self.config.rate_limit.map(|limit| limit.as_bits_per_sec() / 10 * 9);
        limit.is_none_or(|limit| found.rate.as_bits_per_sec() < limit).then_some(found)
    }

    /// The other end's packets come to this address of ours. A responder sends from it; an initiator
    /// leaves that to its host, for it may move.
    pub fn answer_from(&mut self, ours: Option<IpAddr>) {
        if self.side == Side::Responder && ours.is_some() {
            self.source = ours;
        }
    }

    /// The packet with the largest number so far came from there.
    pub(super) fn on_source(&mut self, now: Instant, from: SocketAddr, size: usize) {
        if from == self.address {
            return;
        }
        let allowance = size as u64 * AMPLIFICATION;
        match &mut self.candidate {
            Some(candidate) if candidate.address == from => {
                candidate.allowance += allowance;
                // Its answer may still be under way, if the path is that much longer than the last.
                if candidate.next == Instant::FAR_FUTURE {
                    (candidate.tries, candidate.next) = (AGAIN, now);
                }
            }
            _ => {
                let token = Challenge(self.random.next_u64());
                let (tries, sent_at, next) = (0, now, now);
                self.candidate =
                    Some(Candidate { address: from, token, allowance, tries, sent_at, next });
            }
        }
    }

    /// Nothing is answered from where the other end was found last: asks where it was before, at one
    /// address after the other. Who relays its packets can draw the connection to himself, answers to
    /// challenges and all, and fall silent then (RFC 9000, 9.3.2).
    pub(super) fn look_back(&mut self, now: Instant) {
        let asked = match &self.candidate {
            Some(candidate) if candidate.next != Instant::FAR_FUTURE => return,
            other => other.as_ref().map(|candidate| candidate.address),
        };
        let mut former = self.proved.iter().copied().filter(|&other| other != self.address);
        let first = former.clone().next();
        let following = former.by_ref().skip_while(|&other| Some(other) != asked).nth(1);
        if let Some(former) = following.or(first) {
            self.on_source(now, former, PATH_PACKET_LEN as usize);
        }
    }

    /// The other end asks whether we are where its packet found us: elsewhere than before, so what comes
    /// from there takes another way.
    pub(super) fn on_challenge(&mut self, now: Instant, from: SocketAddr, challenge: Challenge) {
        self.forget_capacity(now);
        self.cc.forget_capacity();
        if self.answers.len() < MAX_ANSWERS {
            self.answers.push_back((from, challenge));
        }
    }

    /// What trains and pairs have told says nothing any more, in both directions.
    fn forget_capacity(&mut self, now: Instant) {
        self.feedback.forget_capacity(now);
        self.stats.capacity.0 = None;
    }

    pub(super) fn on_path_response(&mut self, now: Instant, from: SocketAddr, answer: Challenge) {
        let right = |candidate: &mut Candidate| {
            candidate.tries > 0 && candidate.address == from && candidate.token == answer
        };
        match self.candidate.take_if(right) {
            Some(candidate) if !self.validated => {
                self.address = candidate.address;
                self.on_validated(now);
            }
            Some(candidate) => self.migrate(now, &candidate),
            None => self.stats.refused.untimely += 1,
        }
    }

    /// The other end is where the reply went, and is no replay.
    pub(super) fn on_validated(&mut self, now: Instant) {
        self.validated = true;
        self.ping_due = true;
        self.last_received = now;
        self.events.push_back(Event::Established);
    }

    /// The new address is proved. Behind another port of the same host lies the same path, as when
    /// a translator has changed its mapping; behind another host a path of which nothing is known.
    fn migrate(&mut self, now: Instant, candidate: &Candidate) {
        let same_host = candidate.address.ip() == self.address.ip();
        // By when they were in use last, but for the first.
        for address in [self.address, candidate.address] {
            if self.proved.first() != Some(&address) {
                self.proved.retain(|&other| other != address);
                self.proved.push(address);
            }
        }
        if self.proved.len() > MAX_PROVED {
            // Whoever drew the connection away came later than the first.
            self.proved.remove(1);
        }
        self.address = candidate.address;
        self.stats.migrations += 1;
        // What was not answered was sent elsewhere.
        (self.backoff, self.expiries) = (0, 0);
        (self.progress_at, self.unanswered_since) = (now, None);
        self.ping_due = true;
        if same_host {
            return;
        }
        (self.path_since, self.is_path_heard) = (now, false);
        self.ecn = Ecn::Trying;
        self.losses = Losses::default();
        self.log.forget_order(now);
        self.forget_capacity(now);
        self.cc = self.config.congestion.controller(u64::from(self.local));
        self.rtt = Rtt::default();
        self.mtu = MtuSearch::new();
        self.pacer = Pacer::default();
        if candidate.tries == 1 {
            self.on_rtt_sample(now, now.since(candidate.sent_at));
        }
    }

    /// This host takes no datagrams of that size: what a batch given out to be sent held goes out again,
    /// and unless the batch was to find that out, the search for the size begins anew.
    pub fn on_too_long(&mut self, transmit: &Transmit, batch: &[u8]) {
        if transmit.segment <= usize::from(BASE_SIZE) {
            return;
        }
        let headers =
            batch.chunks(transmit.segment).map_while(|packet| Header::decode(packet).ok());
        for header in headers {
            if let Some(sent) = self.log.take_back(header.number_near(self.log.next())) {
                self.queue_again(&sent);
            }
        }
        if transmit.segment <= self.mtu.size() {
            self.mtu = MtuSearch::new();
        }
    }

    /// A challenge or the answer to one, and where it goes.
    pub(super) fn path_packet(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<SocketAddr> {
        if let Some((to, answer)) = self.answers.pop_front() {
            // What was copied from elsewhere may be a challenge: its answer is no gift either.
            if let Some(candidate) = self.candidate.as_mut().filter(|it| it.address == to) {
                candidate.allowance = candidate.allowance.saturating_sub(PATH_PACKET_LEN);
            }
            self.packet(out, Kind::PathResponse, None, |out| answer.encode(out));
            return Some(to);
        }
        let tries = self.candidate.as_ref().map_or(0, |candidate| candidate.tries);
        let wait = self.probe_wait(self.rtt.patience() * (1 << tries));
        let candidate = self.candidate.as_mut().filter(|candidate| now >= candidate.next)?;
        if candidate.tries == MAX_TRIES || candidate.allowance < PATH_PACKET_LEN {
            candidate.next = Instant::FAR_FUTURE;
            return None;
        }
        candidate.allowance -= PATH_PACKET_LEN;
        candidate.sent_at = now;
        candidate.next = now + wait;
        candidate.tries += 1;
        let (to, token) = (candidate.address, candidate.token);
        self.packet(out, Kind::PathChallenge, None, |out| token.encode(out));
        Some(to)
    }

    /// The other end counts marks in all; gives how many are new.
    pub(super) fn on_marks(&mut self, marks: u64) -> u64 {
        let new = marks.saturating_sub(self.stats.ce.1);
        self.stats.ce.1 += new;
        new
    }

    /// Whether what goes out now is marked for ECN: some networks drop what is.
    pub(super) fn marks_for_ecn(&mut self, now: Instant) -> bool {
        if self.ecn == Ecn::Trying && self.is_unanswered(now, LOST) {
            self.ecn = Ecn::Off;
        }
        self.ecn != Ecn::Off
    }

    /// Bytes of a packet that has arrived, or is lost, which say something of the path in use.
    pub(super) fn bytes_here(&self, sent_at: Instant, bytes: u64) -> u64 {
        if sent_at >= self.path_since { bytes } else { 0 }
    }

    /// Counts what went out.
    pub(super) fn count_sent(&mut self, datagrams: u64, bytes: u64) {
        self.stats.sent.0 += datagrams;
        self.stats.sent.1 += Bytes(bytes);
    }
}
