//! What a transfer did, in words and in JSON: its figures, and what limited it.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::time::Duration;

use net::tcp;
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};
use transfer::{Kept, Summary};
use transport::{Limit, LimitTimes};
use units::{Bytes, Rate};

use crate::verdict::{Held, Verdict, verdict};

/// What the connection knows of itself, and this process of its own.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// What carried the data, as `--transport` names it.
    pub carrier: Option<&'static str>,
    /// TCP connections that share the load.
    pub streams: Option<usize>,
    /// Smoothed round-trip time.
    pub rtt: Option<Duration>,
    /// The least of the last seconds, or of all.
    pub least_rtt: Option<Duration>,
    /// How fast packets go out; UDP only, `None` where the other side sends the data.
    pub pacing: Option<Rate>,
    /// Share of the packets that this side sent again; `None` where the other side sends the data.
    pub resent: Option<f64>,
    /// Share of the packets with data that were lost.
    pub loss: Option<f64>,
    /// What the path carries in the direction of the data; UDP only.
    pub capacity: Option<Rate>,
    /// What held the sender back longest, and for which share of the time; `None` where the other side
    /// sends the data.
    pub held: Option<(Held, f64)>,
    /// For how long each limit held; UDP only, `None` where the other side sends the data.
    pub limits: Option<LimitTimes>,
    /// The same in the order of [`Limit::ALL`], as far as this side knows, whatever carries the data.
    pub times: Option<Times>,
    /// Packets with data that were lost, and those that there were.
    pub packets: Option<(u64, u64)>,
    /// The user's limit, where this side keeps to one.
    pub rate_limit: Option<Rate>,
    /// The other side sends the data.
    pub fetched: bool,
    /// What limits it now, by the word of another host, which copies.
    pub said: Option<String>,
    /// How much the rate differs from one moment to the next, as a share of it; only a probe finds out.
    pub variation: Option<f64>,
    /// The share of all processors that this process has used.
    pub cpu: Option<f64>,
    /// For how long a lost connection had brought nothing until the copy went on over the next.
    pub outages: Duration,
    /// Datagrams that this host's socket had no room for; UDP only, where the other side sends the data.
    pub overflowed: u64,
    /// What would stand above if the other side sent the data.
    pub other: Other,
}

/// For how long each limit held, in the order of [`Limit::ALL`].
pub type Times = [Duration; Limit::ALL.len()];

/// What the receiver of the data knows of its way.
#[derive(Clone, Debug, Default)]
pub struct Other {
    packets: Option<(u64, u64)>,
    capacity: Option<Rate>,
    /// As the sender told it.
    times: Option<Times>,
    overflowed: u64,
}

/// A pace is the rate limit's down to this share of it.
const DIPPED: f64 = 0.9;
/// What held for a larger share of the time held for most of it.
const MOSTLY: f64 = 0.5;

/// What of the figures adds up as time passes.
pub struct Spent {
    times: Option<Times>,
    packets: Option<(u64, u64)>,
    overflowed: u64,
    cpu: Duration,
}

/// What this process has used of the processors.
fn processor_time() -> Duration {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(used.tv_sec.cast_unsigned(), used.tv_nsec as u32)
}

/// The share of all processors that was used in so much time.
fn busy(used: Duration, elapsed: Duration) -> Option<f64> {
    let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let whole = elapsed.as_secs_f64() * cores as f64;
    (whole > 0.0).then(|| used.as_secs_f64() / whole)
}

/// A share that is none when there is no whole.
fn share((part, whole): (u64, u64)) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// What held for longest, and for which share of the time; none when no time has passed.
fn longest(times: &Times) -> Option<(Limit, f64)> {
    let whole: Duration = times.iter().sum();
    let (limit, time) = Limit::ALL.into_iter().zip(times).max_by_key(|&(_, time)| time)?;
    (!whole.is_zero()).then(|| (limit, time.as_secs_f64() / whole.as_secs_f64()))
}

impl Figures {
    /// With a rate for which bytes waited so long, if there is one.
    #[must_use]
    pub fn held_by(mut self, rate: Option<Rate>, waited: Duration, elapsed: Duration) -> Self {
        let Some(rate) = rate else { return self };
        let share = waited.as_secs_f64() / elapsed.as_secs_f64().max(1e-9);
        if share > MOSTLY {
            self.held = Some((Held::RateLimit(rate), share.min(1.0)));
        }
        // Who waits for the rate looks idle to the connection.
        let times = self.times.get_or_insert_with(|| {
            let mut times = Times::default();
            times[Limit::Application as usize] = elapsed;
            times
        });
        let idle = &mut times[Limit::Application as usize];
        *idle = idle.saturating_sub(waited);
        times[Limit::Pacing as usize] += waited;
        Self { rate_limit: Some(rate), ..self }
    }

    /// What such a limit comes from.
    pub fn held(&self, limit: Limit) -> Held {
        match (limit, self.rate_limit) {
            (Limit::Application, _) => Held::Idle,
            (Limit::Credit, _) => Held::Window,
            (Limit::Pacing, Some(rate)) if self.is_at(rate) => {
                Held::RateLimit(self.pacing.unwrap_or(rate))
            }
            (Limit::Congestion | Limit::Pacing, _) => Held::Path,
            (Limit::Cpu, _) => Held::Cpu,
            (Limit::SocketBuffer, _) => Held::Buffer,
        }
    }

    /// Whether the pace is that of the limit, but for dips, by which it sees whether something queues.
    fn is_at(&self, limit: Rate) -> bool {
        self.pacing.is_none_or(|rate| rate >= limit.scaled(DIPPED))
    }

    /// With the processor time that this process has used for what took so long.
    #[must_use]
    pub fn with_processors(self, elapsed: Duration) -> Self {
        Self { cpu: busy(processor_time(), elapsed), ..self }
    }

    /// What adds up as time passes.
    pub fn spent(&self) -> Spent {
        let Self { times, packets, overflowed, .. } = *self;
        Spent { times, packets, overflowed, cpu: processor_time() }
    }

    /// With what held, was lost and was used since `then`, so long ago.
    #[must_use]
    pub fn since(mut self, then: &Spent, elapsed: Duration) -> Self {
        self.cpu = busy(processor_time().saturating_sub(then.cpu), elapsed);
        if let (Some(now), Some(then)) = (self.times, then.times) {
            let times = std::array::from_fn(|at| now[at].saturating_sub(then[at]));
            self.held = longest(&times).map(|(limit, share)| (self.held(limit), share));
        }
        if let (Some(now), Some(then)) = (self.packets, then.packets) {
            let of = (now.0.saturating_sub(then.0), now.1.saturating_sub(then.1));
            (self.packets, self.loss) = (Some(of), share(of));
        }
        self.overflowed = self.overflowed.saturating_sub(then.overflowed);
        self
    }

    /// How long packets wait on their way now, and how long the way is itself.
    pub fn queue(&self) -> Option<(Duration, Duration)> {
        let way = self.least_rtt?;
        Some((self.rtt?.saturating_sub(way), way))
    }

    /// Those of a UDP connection whose data leaves from this side.
    pub fn of_udp(stats: &transport::Stats, rate_limit: Option<Rate>) -> Self {
        let times = |limits: &LimitTimes| Limit::ALL.map(|limit| limits.of(limit));
        let sent = (stats.lost.0, stats.sent.0);
        let figures = Self {
            carrier: Some("udp"),
            rtt: Some(stats.rtt).filter(|rtt| !rtt.is_zero()),
            least_rtt: Some(stats.min_rtt).filter(|rtt| !rtt.is_zero()),
            pacing: Some(stats.pacing_rate),
            resent: share(sent),
            loss: share(sent),
            capacity: stats.capacity.0,
            limits: Some(stats.limits),
            times: Some(times(&stats.limits)),
            packets: Some(sent),
            rate_limit,
            other: Other {
                packets: Some((stats.missing, stats.missing + stats.received.0)),
                capacity: stats.capacity.1,
                times: Some(times(&stats.remote_limits)),
                overflowed: stats.socket_drops,
            },
            ..Self::default()
        };
        figures.judged()
    }

    /// With what held for longest.
    fn judged(self) -> Self {
        let longest = self.times.as_ref().and_then(longest);
        Self { held: longest.map(|(limit, share)| (self.held(limit), share)), ..self }
    }

    /// Those of a striped stream whose data leaves from this side.
    pub fn of_tcp(stats: &tcp::Stats) -> Self {
        let connections = stats.connections.max(1) as u32;
        let stopped = stats.window_limited + stats.buffer_limited;
        let mut times = Times::default();
        for (limit, time) in [
            (Limit::Application, (stats.elapsed * connections).saturating_sub(stats.busy)),
            (Limit::Congestion, stats.busy.saturating_sub(stopped)),
            (Limit::Credit, stats.window_limited),
            (Limit::SocketBuffer, stats.buffer_limited),
        ] {
            times[limit as usize] = time / connections;
        }
        let sent = (stats.segments_resent, stats.segments_sent);
        let figures = Self {
            carrier: Some("tcp"),
            streams: Some(stats.connected),
            rtt: stats.rtt_smoothed,
            least_rtt: stats.rtt_min,
            resent: share(sent),
            loss: share(sent),
            times: Some(times),
            packets: Some(sent),
            ..Self::default()
        };
        figures.judged()
    }

    /// As the receiver of the data sees them, unless this side sends it.
    #[must_use]
    pub fn known(self, sends: bool) -> Self {
        if sends {
            return self;
        }
        let Self { carrier, streams, rtt, least_rtt, other, .. } = self;
        let Other { packets, capacity, times, overflowed } = other;
        let seen = Self { carrier, streams, rtt, least_rtt, capacity, times, ..Self::default() };
        Self { packets, overflowed, loss: packets.and_then(share), fetched: true, ..seen.judged() }
    }

    /// With the rate that a sender on the other side was asked to keep to.
    #[must_use]
    pub fn asking(self, rate: Option<Rate>) -> Self {
        Self { rate_limit: if self.fetched { rate } else { self.rate_limit }, ..self }
    }

    /// Whether such a rate is the one that was asked for.
    pub fn is_as_asked(&self, rate: Rate) -> bool {
        self.fetched && self.rate_limit.is_some_and(|limit| rate >= limit.scaled(DIPPED))
    }

    /// Adds them to a JSON object.
    pub fn add_to(&self, object: &mut Value) {
        object["transport"] = json!(self.carrier);
        object["streams"] = json!(self.streams);
        object["rtt_ms"] = json!(self.rtt.map(|rtt| rtt.as_secs_f64() * 1e3));
        object["pacing_bps"] = json!(self.pacing.map(Rate::as_bits_per_sec));
        object["resent"] = json!(self.resent);
        object["loss"] = json!(self.loss);
        let seconds = |limits: LimitTimes| {
            let of = |limit: Limit| (limit.name(), limits.of(limit).as_secs_f64());
            Limit::ALL.map(of).into_iter().collect::<BTreeMap<_, _>>()
        };
        object["limits_s"] = json!(self.limits.map(seconds));
        object["outages_s"] = json!(self.outages.as_secs_f64());
    }
}

/// Several requests as one.
#[derive(Default)]
pub struct Total(pub Summary);

impl Total {
    /// Adds what one request did. The far side may say any numbers.
    pub fn add(&mut self, summary: Summary) {
        let Summary { counts, kept, notes, sending, receiving, confirmed } = &mut self.0;
        *confirmed = summary.confirmed;
        for (sum, part) in [
            (&mut kept.files, summary.kept.files),
            (&mut kept.bytes, summary.kept.bytes),
            (&mut kept.begun, summary.kept.begun),
            (&mut counts.files, summary.counts.files),
            (&mut counts.directories, summary.counts.directories),
            (&mut counts.symlinks, summary.counts.symlinks),
            (&mut counts.bytes, summary.counts.bytes),
            (&mut counts.removed, summary.counts.removed),
            (&mut sending.blocks, summary.sending.blocks),
            (&mut sending.full, summary.sending.full),
            (&mut sending.empty, summary.sending.empty),
            (&mut receiving.blocks, summary.receiving.blocks),
            (&mut receiving.full, summary.receiving.full),
            (&mut receiving.empty, summary.receiving.empty),
        ] {
            *sum = sum.saturating_add(part);
        }
        notes.append(summary.notes);
    }
}

/// Bytes that were not there from before.
pub fn moved(summary: &Summary) -> Bytes {
    let Kept { bytes, begun, .. } = summary.kept;
    Bytes(summary.counts.bytes) - Bytes(bytes) - Bytes(begun)
}

/// The closing line: what was done, how fast, and what limited it.
pub fn sentence(summary: &Summary, elapsed: Duration, figures: &Figures) -> String {
    let counts = summary.counts;
    let (files, bytes) = (counted(counts.files, "file"), Bytes(counts.bytes));
    let mut text = format!("{files}, {bytes} in {:.1} s", elapsed.as_secs_f64());
    if let Some(rate) = Rate::of(moved(summary), elapsed).filter(|rate| *rate > Rate::ZERO) {
        text += &format!(", {rate}");
    }
    let kept = summary.kept;
    if kept != Kept::default() {
        let bytes = Bytes(kept.bytes.saturating_add(kept.begun));
        let files = counted(kept.files, "file");
        text += &format!(" ({files} and {bytes} of it were there from before)");
    }
    if counts.removed > 0 {
        text += &format!(", {} removed", counts.removed);
    }
    if counts.files > 0 {
        text += ", verified";
    }
    match figures.carrier {
        Some("ssh") => text += ", over ssh",
        Some(carrier) => text += &format!(", over {}", carrier.to_uppercase()),
        None => {}
    }
    if let Some(rtt) = figures.rtt {
        text += &format!("; RTT {} ms", rtt.as_millis());
    }
    if let Some(resent) = figures.resent {
        text += &format!(", {:.2}% resent", resent * 100.0);
    } else if let Some(loss) = figures.loss {
        text += &format!(", {:.2}% lost", loss * 100.0);
    }
    text + &format!("; limited by {}", verdict(summary, figures, elapsed))
}

/// The closing line when nothing was to be done.
pub fn rehearsal(summary: &Summary) -> String {
    let (counts, kept) = (summary.counts, summary.kept);
    let files = counts.files.saturating_sub(kept.files);
    let (shown, would) = (summary.notes.iter().count() as u64, summary.notes.would());
    let more = match would.saturating_sub(shown) {
        0 => String::new(),
        more => format!(" ({more} more are not named)"),
    };
    // Other permissions, or one more name of a file, are of no bytes.
    let of = match counts.bytes.saturating_sub(kept.bytes) {
        0 => String::new(),
        bytes => format!(" of {}", Bytes(bytes)),
    };
    let are = |count| if count == 1 { "is" } else { "are" };
    let alone = match counts.removed {
        0 => String::new(),
        removed => format!(", and {removed} {} at the destination alone", are(removed)),
    };
    format!(
        "{} {} equal; {files}{of} {} not{alone}{more}; nothing was changed",
        counted(kept.files, "file"),
        are(kept.files),
        are(files),
    )
}

/// The closing line below names that were listed.
pub fn listing(summary: &Summary) -> String {
    let counts = summary.counts;
    let links = match counts.symlinks {
        0 => String::new(),
        links => format!(" and {}", counted(links, "link")),
    };
    let files = counted(counts.files, "file");
    let directories = match counts.directories {
        1 => "1 directory".to_owned(),
        directories => format!("{directories} directories"),
    };
    format!("{files} of {}, {directories}{links}", Bytes(counts.bytes))
}

/// So many of something.
pub fn counted(count: u64, one: &str) -> String {
    format!("{count} {one}{}", if count == 1 { "" } else { "s" })
}

/// What a copy did, for programs, but for the closing line.
pub fn object(summary: &Summary, elapsed: Duration, figures: &Figures) -> Value {
    let counts = summary.counts;
    let Verdict { what, words, evidence, advice } = verdict(summary, figures, elapsed);
    let note = |note: &transfer::Note| json!(note.to_string());
    let mut object = json!({
        "event": "done",
        "verified": true,
        "partial": summary.is_partial(),
        "seconds": elapsed.as_secs_f64(),
        "files": counts.files,
        "directories": counts.directories,
        "symlinks": counts.symlinks,
        "bytes": counts.bytes,
        "removed": counts.removed,
        "would": summary.notes.would(),
        "kept_files": summary.kept.files,
        "kept_bytes": summary.kept.bytes.saturating_add(summary.kept.begun),
        "rate_bps": Rate::of(moved(summary), elapsed).map(Rate::as_bits_per_sec),
        "limited_by": { "what": what, "words": words, "evidence": evidence, "advice": advice },
        "failed": summary.notes.failed(),
        "skipped": summary.notes.skipped(),
        "notes": summary.notes.iter().map(note).collect::<Vec<_>>(),
    });
    figures.add_to(&mut object);
    object
}

/// What only `-v` shows.
pub fn details(summary: &Summary, figures: &Figures) -> String {
    let counts = summary.counts;
    let pipe = |name: &str, pipe: &transfer::Occupancy| {
        format!(
            "{name} of {} blocks found full {} times, empty {}",
            pipe.blocks, pipe.full, pipe.empty
        )
    };
    format!(
        "{} directories, {} links; {}; {}; held back by {}",
        counts.directories,
        counts.symlinks,
        pipe("sender's pipe", &summary.sending),
        pipe("receiver's pipe", &summary.receiving),
        figures.held.map_or("what the far side knows".to_owned(), |(held, share)| {
            format!("{held:?} for {:.0}% of the time", share * 100.0)
        }),
    )
}

#[cfg(test)]
mod tests {
    use transfer::{Counts, NOTES_MAX, Note, NoteKind, Occupancy};

    use super::*;

    fn moved(sending: (u64, u64), receiving: (u64, u64)) -> Summary {
        let pipe = |(full, empty)| Occupancy { blocks: 1000, full, empty };
        Summary { sending: pipe(sending), receiving: pipe(receiving), ..Summary::default() }
    }

    #[test]
    fn several_requests_are_summed_up() {
        let mut total = Total::default();
        for _ in 0..2 {
            let mut summary = moved((1, 2), (3, 4));
            summary.counts.bytes = 1 << 20;
            summary.counts.files = 1;
            total.add(summary);
        }
        let text = sentence(&total.0, Duration::from_secs(1), &Figures::default());
        assert!(text.starts_with("2 files, 2.00 MiB in 1.0 s, 16.78 Mbit/s, verified"), "{text}");
        assert_eq!(total.0.receiving, Occupancy { blocks: 2000, full: 6, empty: 8 });
    }

    #[test]
    fn what_failed_behind_the_notes_that_are_kept_counts_and_no_number_is_too_large() {
        let mut summary = Summary::default();
        for _ in 0..NOTES_MAX {
            summary.notes.push(Note::new(NoteKind::Skipped, b"socket", "it is one"));
        }
        summary.notes.push(Note::new(NoteKind::Failed, b"file", "it cannot be read"));
        summary.counts = Counts { files: u64::MAX, directories: 1, ..Counts::default() };
        let mut total = Total::default();
        (0..2).for_each(|_| total.add(summary.clone()));
        assert!(total.0.is_partial());
        assert_eq!((total.0.notes.failed(), total.0.notes.iter().count()), (2, NOTES_MAX));
        assert_eq!(total.0.counts.files, u64::MAX);
    }
}
