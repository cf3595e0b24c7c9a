//! What limits a transfer, or has limited it: one cause, what shows it, and what to do about it.

use std::fmt;
use std::time::Duration;

use transfer::{Bottleneck, Occupancy, Summary};
use units::Rate;

use crate::summary::{Figures, moved};

/// So few blocks between disk and network say nothing of either.
const FEW_BLOCKS: u64 = 16;
/// Who uses this share of all processors waits for them.
const BUSY: f64 = 0.85;
/// Whoever has this part of the capacity, less what is lost, has all of it.
const FULL: f64 = 0.8;
/// Losses from here on stop TCP on any long path.
pub const LOSSY: f64 = 0.001;
/// Packets that wait longer than this, and than this share of the way, wait behind others.
const QUEUE: Duration = Duration::from_millis(20);
const QUEUE_SHARE: u32 = 8;
/// With a larger share of the time without a connection, nothing else matters.
const AWAY: f64 = 1.0 / 3.0;
/// What varies less from one moment to the next is as even as only a limiter makes it.
const EVEN: f64 = 0.03;

/// What held a sender back for the longest, as its connection saw it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Held {
    /// It had nothing to send.
    Idle,
    /// The receiver had no room.
    Window,
    /// The kernel had no room here.
    Buffer,
    /// Nobody had time to send.
    Cpu,
    /// The same, on the other side.
    FarCpu,
    /// Congestion control.
    Path,
    /// The user's own limit.
    RateLimit(Rate),
}

/// The slowest part of a transfer.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Cause {
    Source,
    Destination,
    Cpu,
    FarCpu,
    Window,
    Buffer,
    Capacity,
    Loss,
    /// Packets arrived and were lost for want of room in the receiving socket of this host.
    Overflow,
    Competition,
    /// Somebody on the way lets only so much pass, of what the line could carry.
    Limiter,
    /// The network in some way that does not show here.
    Path,
    /// The same, or the pace of a sending side that is not this one.
    Sender,
    RateLimit(Rate),
    RoundTrips,
    /// For so long of so much time there was no connection that carried anything.
    Outage(Duration, Duration),
}

/// One sentence in its parts.
pub struct Verdict {
    /// A word for programs.
    pub what: &'static str,
    /// The cause.
    pub words: String,
    /// What shows it; empty where nothing was measured.
    pub evidence: String,
    /// What to do.
    pub advice: &'static str,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words)?;
        if !self.evidence.is_empty() {
            write!(f, " ({})", self.evidence)?;
        }
        write!(f, ": {}", self.advice)
    }
}

/// Judges what limited a transfer that took so long.
pub fn verdict(summary: &Summary, figures: &Figures, elapsed: Duration) -> Verdict {
    let connected = elapsed.saturating_sub(figures.outages);
    let mean = Rate::of(moved(summary), connected).unwrap_or_default();
    if figures.outages > elapsed.mul_f64(AWAY) {
        return explained(Cause::Outage(figures.outages, elapsed), summary, figures, mean);
    }
    explained(cause(summary, figures, mean), summary, figures, mean)
}

/// Judges what limits bytes without end that go at this rate.
pub fn of_flow(figures: &Figures, rate: Rate) -> Verdict {
    let summary = Summary::default();
    let held = figures.held.map_or(Held::Path, |(held, _)| held);
    explained(by(held, figures, rate), &summary, figures, rate)
}

/// What limits a transfer that goes on, at this rate of late: a word for programs, and a few for a bar.
/// None while that does not show.
pub fn at_present(figures: &Figures, rate: Rate) -> Option<(&'static str, &'static str)> {
    // Who keeps to a rate looks idle.
    let asked = figures.is_as_asked(rate).then_some((Held::Path, 1.0));
    // A receiver by TCP sees no more than that packets wait on their way.
    let waits = (figures.fetched && figures.carrier == Some("tcp")).then_some((Held::Path, 1.0));
    let (held, _) = asked.or(figures.held).or(waits).filter(|_| rate > Rate::ZERO)?;
    let cause = match held {
        Held::Idle | Held::Window if figures.cpu.is_some_and(|share| share >= BUSY) => Cause::Cpu,
        Held::Idle => Cause::Source,
        held => by(held, figures, rate),
    };
    // That it is either says nothing.
    let cause = Some(cause).filter(|cause| *cause != Cause::Sender)?;
    Some((said(cause, figures.carrier == Some("tcp")).0, in_short(cause)))
}

fn explained(cause: Cause, summary: &Summary, figures: &Figures, rate: Rate) -> Verdict {
    let (what, words, advice) = said(cause, figures.carrier == Some("tcp"));
    let words = match cause {
        Cause::RateLimit(rate) => format!("--rate-limit {rate}"),
        _ => words.to_owned(),
    };
    Verdict { what, words, evidence: evidence(cause, summary, figures, rate), advice }
}

fn cause(summary: &Summary, figures: &Figures, mean: Rate) -> Cause {
    // Who keeps to a rate looks idle.
    let asked = figures.is_as_asked(mean).then_some(Held::Path);
    let held = asked.or(figures.held.map(|(held, _)| held));
    // Bursts fill the receiver's pipe too, and a short transfer finds the sender's empty at its
    // beginning. A destination that is truly slow holds the sender back by credit, and a source by
    // leaving it nothing to send, not by the path.
    let by_path = matches!(held, Some(Held::Path | Held::RateLimit(_)));
    if !by_path && summary.sending.blocks >= FEW_BLOCKS {
        if figures.cpu.is_some_and(|share| share >= BUSY) {
            return Cause::Cpu;
        }
        match summary.bottleneck() {
            Bottleneck::Source => return Cause::Source,
            Bottleneck::Destination => return Cause::Destination,
            Bottleneck::Network => {}
        }
    }
    match held {
        None if summary.sending.blocks < FEW_BLOCKS => Cause::RoundTrips,
        held => by(held.unwrap_or(Held::Path), figures, mean),
    }
}

fn by(held: Held, figures: &Figures, rate: Rate) -> Cause {
    match held {
        Held::Idle => Cause::RoundTrips,
        Held::Window => Cause::Window,
        Held::Buffer => Cause::Buffer,
        Held::Cpu => Cause::Cpu,
        Held::FarCpu => Cause::FarCpu,
        Held::RateLimit(rate) => Cause::RateLimit(rate),
        Held::Path if figures.is_as_asked(rate) => {
            Cause::RateLimit(figures.rate_limit.unwrap_or(rate))
        }
        Held::Path => path(figures, rate),
    }
}

/// What it is about the path.
fn path(figures: &Figures, mean: Rate) -> Cause {
    let loss = figures.loss.unwrap_or_default();
    let waits = figures.queue().is_some_and(|(queue, way)| queue > QUEUE.max(way / QUEUE_SHARE));
    let rate = figures.pacing.unwrap_or(mean);
    let is_full = figures.capacity.map(|capacity| rate >= capacity.scaled(FULL * (1.0 - loss)));
    let lost = figures.packets.map_or(0, |(lost, _)| lost);
    if loss >= LOSSY && figures.overflowed > lost / 2 {
        return Cause::Overflow;
    }
    let is_even = figures.variation.is_some_and(|share| share < EVEN);
    match (is_full, loss >= LOSSY, waits) {
        (Some(true), ..) => Cause::Capacity,
        (Some(false), lossy, waits) if is_even && (lossy || waits) => Cause::Limiter,
        (Some(false), _, true) => Cause::Competition,
        (_, true, false) => Cause::Loss,
        // The packets wait in the path's own queue.
        (None, _, true) => Cause::Capacity,
        (_, false, false) if figures.fetched => Cause::Sender,
        (_, false, false) => Cause::Path,
    }
}

/// Few words for people.
fn in_short(cause: Cause) -> &'static str {
    match cause {
        Cause::Source => "sender's disk",
        Cause::Destination => "receiver's disk",
        Cause::Cpu => "CPU",
        Cause::FarCpu => "far CPU",
        Cause::Window => "receive window",
        Cause::Buffer => "send buffer",
        Cause::Capacity => "path capacity",
        Cause::Loss => "loss",
        Cause::Overflow => "receive buffer",
        Cause::Competition => "competing traffic",
        Cause::Limiter => "limit on the path",
        Cause::Path => "path",
        Cause::Sender => "sender or path",
        Cause::RateLimit(_) => "--rate-limit",
        Cause::RoundTrips => "round trips",
        Cause::Outage(..) => "outage",
    }
}

/// What is said otherwise where TCP carries the data.
fn said_of_tcp(cause: Cause) -> Option<(&'static str, &'static str, &'static str)> {
    match cause {
        Cause::Window => Some((
            "receiver",
            "TCP's receive window",
            "raise net.ipv4.tcp_rmem on the far side, or let --transport auto take UDP",
        )),
        Cause::Buffer => {
            Some(("sender", "TCP's send buffer", "raise net.ipv4.tcp_wmem on this side"))
        }
        Cause::Loss => Some((
            "loss",
            "lost packets",
            "open the way for UDP, which they do not slow down, and look after the line",
        )),
        _ => None,
    }
}

/// A word for programs, words for people, and what to do.
fn said(cause: Cause, by_tcp: bool) -> (&'static str, &'static str, &'static str) {
    if let Some(said) = said_of_tcp(cause).filter(|_| by_tcp) {
        return said;
    }
    match cause {
        Cause::Source => (
            "source",
            "the sender's disk",
            "read from a faster disk, or when nothing else reads there",
        ),
        Cause::Destination => (
            "destination",
            "the receiver's disk",
            "write to a faster disk, or when nothing else writes there",
        ),
        Cause::Cpu => (
            "cpu",
            "the processors of this host",
            "end what else runs here; --no-compress spares some",
        ),
        Cause::FarCpu => {
            ("far-cpu", "the processors of the far host", "end what else runs on the far side")
        }
        Cause::Window => (
            "receiver",
            "the room that the receiving side has for what arrives",
            "see what else its memory, disk and processors do",
        ),
        Cause::Buffer => ("sender", "the socket's buffer", "raise net.core.wmem_max on this side"),
        Cause::Capacity => {
            ("path", "the path's capacity", "nothing to mend, only a faster link carries more")
        }
        Cause::Overflow => (
            "receive-buffer",
            "this host's socket, which had no room for what arrived",
            "raise net.core.rmem_max on this side, or end what else runs here",
        ),
        Cause::Loss => ("loss", "lost packets", "look after the line, which should lose none"),
        Cause::Competition => (
            "competition",
            "other traffic on the path",
            "this is a fair share of it: more there is at a quieter hour (--schedule)",
        ),
        Cause::Limiter => (
            "limiter",
            "what looks like a rate limit on the path",
            "nothing here takes it away: ask whoever runs the network, or pays for it",
        ),
        Cause::Path => ("path", "the path", "`longhaul probe` finds out more of it"),
        Cause::Sender => (
            "sender-or-path",
            "the pace of the sending side, or the path",
            "see there for a rate limit and what else runs; `longhaul probe` finds out more",
        ),
        Cause::RateLimit(_) => ("rate-limit", "--rate-limit", "raise it, or leave it out"),
        Cause::RoundTrips => (
            "round-trips",
            "the round trips of set-up and confirmation",
            "copy more by one command",
        ),
        Cause::Outage(..) => (
            "outage",
            "the time without a connection",
            "look after the line, or what closes it; the copy went on by itself",
        ),
    }
}

/// What shows a cause.
fn evidence(cause: Cause, summary: &Summary, figures: &Figures, mean: Rate) -> String {
    let percent = |share: f64| (share * 100.0).round().min(100.0);
    let waited = |times: u64, Occupancy { blocks, .. }: Occupancy| {
        percent(times as f64 / blocks.max(1) as f64)
    };
    let queue = figures.queue().map(|(queue, _)| format!("packets wait {} ms", queue.as_millis()));
    let lost = figures.loss.map(|loss| format!("{:.2}% lost", loss * 100.0));
    let rate = Some(format!("{} went", figures.pacing.unwrap_or(mean)));
    let room = figures.capacity.map(|capacity| format!("it has room for {capacity}"));
    let all = |parts: Vec<Option<String>>| Vec::from_iter(parts.into_iter().flatten()).join(", ");
    match cause {
        Cause::Source => {
            let waited = waited(summary.sending.empty, summary.sending);
            format!("the network waited for it at {waited}% of the hand-overs")
        }
        Cause::Destination => {
            let waited = waited(summary.receiving.full, summary.receiving);
            format!("the network waited for it at {waited}% of the hand-overs")
        }
        Cause::Cpu if figures.cpu.is_some_and(|share| share >= BUSY) => {
            format!("busy with this at {}%", percent(figures.cpu.unwrap_or_default()))
        }
        Cause::Cpu | Cause::FarCpu | Cause::Window | Cause::Buffer | Cause::RateLimit(_) => {
            let held = figures.held.map(|(_, share)| percent(share));
            held.map(|share| format!("it held the sender back {share}% of the time"))
                .unwrap_or_default()
        }
        Cause::Capacity => all(vec![rate, lost, queue]),
        Cause::Overflow => all(vec![lost, Some(format!("{} here", figures.overflowed))]),
        Cause::Loss => all(vec![lost, rate, room]),
        Cause::Competition => all(vec![rate, room, queue]),
        Cause::Limiter => all(vec![rate.map(|rate| rate + " evenly"), room, lost, queue]),
        Cause::Path | Cause::Sender => all(vec![rate, room]),
        Cause::RoundTrips => {
            figures.rtt.map(|rtt| format!("{} ms each", rtt.as_millis())).unwrap_or_default()
        }
        Cause::Outage(outages, elapsed) => {
            let [outages, elapsed] = [outages, elapsed].map(|time| time.as_secs_f64());
            format!("nothing came for {outages:.1} s of {elapsed:.1} s")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(sending: (u64, u64), receiving: (u64, u64)) -> Summary {
        let pipe = |(full, empty)| Occupancy { blocks: 1000, full, empty };
        let mut summary =
            Summary { sending: pipe(sending), receiving: pipe(receiving), ..Summary::default() };
        summary.counts.bytes = 100_000_000;
        summary
    }

    fn held_by(held: Held) -> Figures {
        Figures { held: Some((held, 0.75)), ..Figures::default() }
    }

    fn judged(summary: &Summary, figures: &Figures) -> (&'static str, String) {
        let verdict = verdict(summary, figures, Duration::from_secs(10));
        (verdict.what, verdict.to_string())
    }

    const NETWORK: ((u64, u64), (u64, u64)) = ((900, 0), (0, 900));

    fn network() -> Summary {
        summary(NETWORK.0, NETWORK.1)
    }

    fn mbit(rate: u64) -> Rate {
        Rate::from_bits_per_sec(rate * 1_000_000)
    }

    /// 100 ms, 100 Mbit/s and nothing wrong, by UDP, as its sender sees it.
    fn sound() -> Figures {
        Figures {
            carrier: Some("udp"),
            rtt: Some(Duration::from_millis(102)),
            least_rtt: Some(Duration::from_millis(100)),
            pacing: Some(mbit(97)),
            loss: Some(0.0),
            capacity: Some(mbit(100)),
            ..held_by(Held::Path)
        }
    }

    #[test]
    fn disks_are_told_by_the_pipes_before_and_behind_the_network() {
        let (slow_source, bursts) = (summary((0, 630), (0, 9)), summary((9, 0), (400, 0)));
        let (what, text) = judged(&slow_source, &held_by(Held::Idle));
        assert_eq!(what, "source");
        assert!(text.contains("63%") && text.contains("faster disk"), "{text}");
        let (what, text) = judged(&bursts, &Figures::default());
        assert_eq!(what, "destination");
        assert!(text.contains("40%") && text.contains("receiver's disk"), "{text}");
        // Whom the path holds back, no disk does.
        assert_eq!(judged(&slow_source, &sound()).0, "path");
        assert_eq!(judged(&bursts, &sound()).0, "path");
    }

    #[test]
    fn what_this_hosts_socket_had_no_room_for_is_no_fault_of_the_line() {
        let lossy = Figures { loss: Some(0.02), packets: Some((200, 10_000)), ..sound() };
        let (what, text) = judged(&network(), &Figures { overflowed: 150, ..lossy.clone() });
        assert_eq!(what, "receive-buffer");
        assert!(text.contains("2.00% lost, 150 here") && text.contains("rmem_max"), "{text}");
        assert_ne!(judged(&network(), &Figures { overflowed: 50, ..lossy }).0, "receive-buffer");
    }

    #[test]
    fn processors_windows_and_buffers_are_told_with_what_to_raise() {
        let busy = Figures { cpu: Some(0.97), ..held_by(Held::Idle) };
        let (what, text) = judged(&summary((0, 630), (0, 9)), &busy);
        assert!(what == "cpu" && text.contains("97%"), "{text}");
        assert_eq!(judged(&network(), &Figures { cpu: Some(0.97), ..sound() }).0, "path");
        for (held, what, udp, tcp) in [
            (Held::Cpu, "cpu", "processors", "processors"),
            (Held::Window, "receiver", "its memory", "tcp_rmem"),
            (Held::Buffer, "sender", "wmem_max", "tcp_wmem"),
            (Held::RateLimit(mbit(40)), "rate-limit", "40.00 Mbit/s", "leave it out"),
        ] {
            for (carrier, word) in [("udp", udp), ("tcp", tcp)] {
                let figures = Figures { carrier: Some(carrier), ..held_by(held) };
                let (cause, text) = judged(&network(), &figures);
                assert_eq!(cause, what);
                assert!(text.contains(word) && text.contains("75% of the time"), "{text}");
            }
        }
    }

    #[test]
    fn a_path_is_full_lossy_or_shared() {
        let (what, text) = judged(&network(), &sound());
        assert!(what == "path" && text.contains("capacity") && text.contains("97.00"), "{text}");
        // Losses that do not keep it from being full are no reason.
        assert_eq!(judged(&network(), &Figures { loss: Some(0.01), ..sound() }).0, "path");
        let slow = Figures { pacing: Some(mbit(20)), ..sound() };
        let (what, text) = judged(&network(), &Figures { loss: Some(0.02), ..slow.clone() });
        assert!(what == "loss" && text.contains("2.00% lost"), "{text}");
        let queue = Some(Duration::from_millis(160));
        let (what, text) = judged(&network(), &Figures { rtt: queue, ..slow.clone() });
        assert!(what == "competition" && text.contains("wait 60 ms"), "{text}");
        let (what, text) = judged(&network(), &slow);
        assert!(what == "path" && text.contains("longhaul probe"), "{text}");
    }

    #[test]
    fn tcp_knows_no_capacity_but_losses_and_queues() {
        let tcp = Figures { carrier: Some("tcp"), capacity: None, pacing: None, ..sound() };
        let (what, text) = judged(&network(), &Figures { loss: Some(0.01), ..tcp.clone() });
        assert!(what == "loss" && text.contains("UDP"), "{text}");
        let rtt = Some(Duration::from_millis(150));
        let (what, text) = judged(&network(), &Figures { loss: Some(0.01), rtt, ..tcp });
        assert!(what == "path" && text.contains("80.00 Mbit/s went"), "{text}");
    }

    #[test]
    fn too_little_to_judge_is_a_matter_of_round_trips() {
        let few = Summary { sending: Occupancy::default(), ..summary((9, 0), (9, 0)) };
        let figures = Figures { rtt: Some(Duration::from_millis(200)), ..Figures::default() };
        let (what, text) = judged(&few, &figures);
        assert!(what == "round-trips" && text.contains("200 ms each"), "{text}");
        assert_eq!(judged(&network(), &held_by(Held::Idle)).0, "round-trips");
    }

    #[test]
    fn a_receiver_judges_by_what_it_sees_itself() {
        let seen = Figures { held: None, pacing: None, loss: Some(0.02), ..sound() };
        // A mean of 80 Mbit/s is all that the losses leave of it.
        assert_eq!(judged(&network(), &seen).0, "path");
        let (what, _) = judged(&network(), &Figures { capacity: Some(mbit(900)), ..seen });
        assert_eq!(what, "loss");
    }

    #[test]
    fn who_fetches_judges_by_what_the_sender_tells_of_itself() {
        let fetched = |held| Figures { pacing: None, fetched: true, ..Figures { held, ..sound() } };
        let told = |held| fetched(Some((held, 0.75)));
        assert_eq!(judged(&network(), &told(Held::Window)).0, "receiver");
        let (slow_source, bursts) = (summary((0, 630), (0, 9)), summary((9, 0), (400, 0)));
        assert_eq!(judged(&slow_source, &told(Held::Idle)).0, "source");
        // Bursts fill the pipe though the path is what holds the sender back.
        assert_eq!(judged(&bursts, &told(Held::Path)).0, "path");
        let wide = Figures { capacity: Some(mbit(900)), ..told(Held::Path) };
        let (what, text) = judged(&network(), &wide);
        assert!(what == "sender-or-path" && text.contains("900.0 Mbit/s"), "{text}");
        // 80 Mbit/s went.
        let (what, text) = judged(&network(), &wide.clone().asking(Some(mbit(82))));
        assert!(what == "rate-limit" && text.starts_with("--rate-limit 82.00 Mbit/s"), "{text}");
        let idle = |asked| told(Held::Idle).asking(Some(mbit(asked)));
        assert_eq!(judged(&slow_source, &idle(82)).0, "rate-limit");
        assert_eq!(judged(&slow_source, &idle(200)).0, "source");
        assert_eq!(judged(&network(), &wide.asking(Some(mbit(200)))).0, "sender-or-path");
    }

    #[test]
    fn an_outage_is_named_where_it_was_long_and_left_out_of_the_rate_where_not() {
        let away = |seconds| Figures { outages: Duration::from_secs(seconds), ..sound() };
        let (what, text) = judged(&network(), &away(6));
        assert!(what == "outage" && text.contains("6.0 s of 10.0 s"), "{text}");
        // 100 MB in 8 s.
        let limited = Figures { fetched: true, pacing: None, ..away(2) };
        assert_eq!(judged(&network(), &limited.asking(Some(mbit(102)))).0, "rate-limit");
    }

    #[test]
    fn what_limits_now_is_told_in_few_words() {
        let now = |figures: &Figures| at_present(figures, mbit(80)).map(|(_, words)| words);
        assert_eq!(now(&sound()), Some("path capacity"));
        assert_eq!(now(&held_by(Held::Idle)), Some("sender's disk"));
        assert_eq!(now(&Figures { cpu: Some(0.95), ..held_by(Held::Idle) }), Some("CPU"));
        assert_eq!(now(&held_by(Held::RateLimit(mbit(80)))), Some("--rate-limit"));
        let slow = Figures { pacing: Some(mbit(20)), ..sound() };
        assert_eq!(now(&Figures { loss: Some(0.02), ..slow.clone() }), Some("loss"));
        let rtt = Some(Duration::from_millis(160));
        assert_eq!(now(&Figures { rtt, ..slow }), Some("competing traffic"));
        let tcp = |rtt| Figures {
            carrier: Some("tcp"),
            fetched: true,
            rtt,
            least_rtt: Some(Duration::from_millis(100)),
            ..Figures::default()
        };
        assert_eq!(now(&tcp(rtt)), Some("path capacity"));
        assert_eq!(now(&tcp(None)), None);
        // Nothing is known, or nothing moves.
        assert_eq!(now(&Figures::default()), None);
        assert_eq!(at_present(&sound(), Rate::ZERO), None);
    }
}
