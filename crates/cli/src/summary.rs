//! What a transfer did, in words and in JSON: its figures, and what limited it.

use std::collections::BTreeMap;
use std::time::Duration;

use net::tcp;
use serde_json::{Value, json};
use transfer::{Bottleneck, Kept, Occupancy, Summary};
use transport::{Limit, LimitTimes};
use units::{Bytes, Rate};

/// What the connection knows of itself.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// What carried the data, as `--transport` names it.
    pub carrier: Option<&'static str>,
    /// TCP connections that share the load.
    pub streams: Option<usize>,
    /// Smoothed round-trip time.
    pub rtt: Option<Duration>,
    /// How fast packets go out; UDP only, `None` where the other side sends the data.
    pub pacing: Option<Rate>,
    /// Share of the packets that this side sent again; `None` where the other side sends the data.
    pub resent: Option<f64>,
    /// What the network did to the sender; `None` where the other side sends the data.
    pub limit: Option<(&'static str, String)>,
    /// For how long each limit held; UDP only, `None` where the other side sends the data.
    pub limits: Option<LimitTimes>,
}

/// Nothing to send, yet no disk was slow: the transfer was over before it had got going.
const ROUND_TRIPS: &str = "the round trips of set-up and confirmation";

/// So few blocks between disk and network say nothing of either.
const FEW_BLOCKS: u64 = 16;

/// A share that is none when there is no whole.
fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

fn by_rate_limit(rate: Rate) -> (&'static str, String) {
    ("rate-limit", format!("--rate-limit {rate}"))
}

impl Figures {
    /// With a rate that held the sender back, if one did.
    #[must_use]
    pub fn held_by(self, rate: Option<Rate>) -> Self {
        Self { limit: rate.map(by_rate_limit).or(self.limit), ..self }
    }

    /// Those of a UDP connection whose data leaves from this side.
    pub fn of_udp(stats: &transport::Stats, rate_limit: Option<Rate>) -> Self {
        let longest = Limit::ALL.into_iter().max_by_key(|&limit| stats.limits.of(limit));
        let rate = stats.pacing_rate;
        let limit = match longest.unwrap_or_default() {
            Limit::Application => ("round-trips", ROUND_TRIPS.to_owned()),
            Limit::Credit => {
                ("receiver", "the memory that the far side has for what arrives".into())
            }
            Limit::Pacing if rate_limit.is_some_and(|limit| limit <= rate) => by_rate_limit(rate),
            Limit::Congestion => ("path", format!("the path, full at {rate}")),
            Limit::Pacing => ("path", format!("the path, paced at {rate}")),
            Limit::Cpu => ("sender", "the processor of this side".to_owned()),
            Limit::SocketBuffer => {
                ("sender", "the socket's buffer: raise net.core.wmem_max".to_owned())
            }
        };
        Self {
            carrier: Some("udp"),
            streams: None,
            rtt: Some(stats.rtt).filter(|rtt| !rtt.is_zero()),
            pacing: Some(rate),
            resent: share(stats.lost.0, stats.sent.0),
            limit: Some(limit),
            limits: Some(stats.limits),
        }
    }

    /// Those of a striped stream whose data leaves from this side.
    pub fn of_tcp(stats: &tcp::Stats) -> Self {
        let connections = stats.connections;
        let (what, words) = match stats.limit() {
            tcp::Limit::Application => ("round-trips", ROUND_TRIPS.to_owned()),
            tcp::Limit::Congestion => {
                ("path", format!("TCP's congestion control on {connections} connections"))
            }
            tcp::Limit::ReceiveWindow => (
                "receiver",
                "TCP's receive window: raise net.ipv4.tcp_rmem on the far side".to_owned(),
            ),
            tcp::Limit::SendBuffer => {
                ("sender", "TCP's send buffer: raise net.ipv4.tcp_wmem here".to_owned())
            }
        };
        Self {
            carrier: Some("tcp"),
            streams: Some(stats.connected),
            rtt: stats.rtt_smoothed,
            pacing: None,
            resent: share(stats.segments_resent, stats.segments_sent),
            limit: Some((what, words)),
            limits: None,
        }
    }

    /// Leaves out what only the sender of the data knows, unless that is this side.
    #[must_use]
    pub fn known(self, sends: bool) -> Self {
        let Self { carrier, streams, rtt, .. } = self;
        if sends { self } else { Self { carrier, streams, rtt, ..Self::default() } }
    }

    /// Adds them to a JSON object.
    pub fn add_to(&self, object: &mut Value) {
        object["transport"] = json!(self.carrier);
        object["streams"] = json!(self.streams);
        object["rtt_ms"] = json!(self.rtt.map(|rtt| rtt.as_secs_f64() * 1e3));
        object["pacing_bps"] = json!(self.pacing.map(Rate::as_bits_per_sec));
        object["resent"] = json!(self.resent);
        let seconds = |limits: LimitTimes| {
            let of = |limit: Limit| (limit.name(), limits.of(limit).as_secs_f64());
            Limit::ALL.map(of).into_iter().collect::<BTreeMap<_, _>>()
        };
        object["limits_s"] = json!(self.limits.map(seconds));
    }
}

fn percent(part: u64, whole: u64) -> u64 {
    (share(part, whole).unwrap_or_default() * 100.0).round().min(100.0) as u64
}

/// What limited a transfer: a word for programs, and words for people.
pub fn limited_by(summary: &Summary, figures: &Figures) -> (&'static str, String) {
    let network = |(what, words): (&'static str, &str)| {
        figures.limit.clone().unwrap_or_else(|| (what, words.to_owned()))
    };
    if summary.sending.blocks < FEW_BLOCKS {
        return network(("round-trips", ROUND_TRIPS));
    }
    // Bursts fill the receiver's pipe too, and a short transfer finds the sender's empty at its
    // beginning. A destination that is truly slow holds the sender back by credit, and a source by
    // leaving it nothing to send, not by the path.
    let by_path = matches!(figures.limit, Some(("path" | "rate-limit", _)));
    match summary.bottleneck() {
        Bottleneck::Source if !by_path => {
            let Occupancy { empty, blocks, .. } = summary.sending;
            let waited = percent(empty, blocks);
            let words = "reading the files at the source, for which the network waited at";
            ("source", format!("{words} {waited}% of the hand-overs"))
        }
        Bottleneck::Destination if !by_path => {
            let Occupancy { full, blocks, .. } = summary.receiving;
            let waited = percent(full, blocks);
            let words = "writing the files at the destination, which made the network wait at";
            ("destination", format!("{words} {waited}% of the hand-overs"))
        }
        _ => network(("path", "the path (the server's line says more)")),
    }
}

/// Several requests as one.
#[derive(Default)]
pub struct Total(pub Summary);

impl Total {
    /// Adds what one request did.
    pub fn add(&mut self, summary: Summary) {
        let Summary { counts, kept, notes, sending, receiving, confirmed } = &mut self.0;
        *confirmed = summary.confirmed;
        kept.files += summary.kept.files;
        kept.bytes += summary.kept.bytes;
        kept.begun += summary.kept.begun;
        counts.files += summary.counts.files;
        counts.directories += summary.counts.directories;
        counts.symlinks += summary.counts.symlinks;
        counts.bytes += summary.counts.bytes;
        counts.removed += summary.counts.removed;
        for (sum, part) in [(sending, summary.sending), (receiving, summary.receiving)] {
            sum.blocks += part.blocks;
            sum.full += part.full;
            sum.empty += part.empty;
        }
        summary.notes.iter().for_each(|note| notes.push(note.clone()));
    }
}

/// Bytes that were not there from before.
fn moved(summary: &Summary) -> Bytes {
    let Kept { bytes, begun, .. } = summary.kept;
    Bytes(summary.counts.bytes) - Bytes(bytes) - Bytes(begun)
}

/// The closing line: what was done, how fast, and what limited it.
pub fn sentence(summary: &Summary, elapsed: Duration, figures: &Figures) -> String {
    let counts = summary.counts;
    let mut text = format!(
        "{} file{}, {} in {:.1} s",
        counts.files,
        if counts.files == 1 { "" } else { "s" },
        Bytes(counts.bytes),
        elapsed.as_secs_f64(),
    );
    if let Some(rate) = Rate::of(moved(summary), elapsed).filter(|rate| *rate > Rate::ZERO) {
        text += &format!(", {rate}");
    }
    let kept = summary.kept;
    if kept != Kept::default() {
        let bytes = Bytes(kept.bytes.saturating_add(kept.begun));
        text += &format!(" ({} files and {bytes} of it were there from before)", kept.files);
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
    }
    text + &format!("; limited by {}", limited_by(summary, figures).1)
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
    format!(
        "{} files are equal; {files} of {} are not{}{more}; nothing was changed",
        kept.files,
        Bytes(counts.bytes.saturating_sub(kept.bytes)),
        match counts.removed {
            0 => String::new(),
            removed => format!(", and {removed} are at the destination alone"),
        },
    )
}

/// The same for programs.
pub fn object(summary: &Summary, elapsed: Duration, figures: &Figures) -> Value {
    let counts = summary.counts;
    let (what, words) = limited_by(summary, figures);
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
        "limited_by": { "what": what, "words": words },
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
        "{} directories, {} links; {}; {}; network: {}",
        counts.directories,
        counts.symlinks,
        pipe("sender's pipe", &summary.sending),
        pipe("receiver's pipe", &summary.receiving),
        figures.limit.as_ref().map_or("the far side knows", |(_, words)| words),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moved(sending: (u64, u64), receiving: (u64, u64)) -> Summary {
        let pipe = |(full, empty)| Occupancy { blocks: 1000, full, empty };
        Summary { sending: pipe(sending), receiving: pipe(receiving), ..Summary::default() }
    }

    fn held_by(word: &'static str) -> Figures {
        Figures { limit: Some((word, word.to_owned())), ..Figures::default() }
    }

    #[test]
    fn what_limited_a_transfer_is_told_from_both_views() {
        let word = |summary: &Summary, figures: &Figures| limited_by(summary, figures).0;
        let (slow_source, bursts) = (moved((0, 9), (0, 9)), moved((9, 0), (9, 0)));
        assert_eq!(word(&slow_source, &held_by("round-trips")), "source");
        assert_eq!(word(&slow_source, &held_by("path")), "path");
        assert_eq!(word(&bursts, &held_by("path")), "path");
        assert_eq!(word(&bursts, &Figures::default()), "destination");
        let few = Summary { sending: Occupancy::default(), ..bursts };
        assert_eq!(word(&few, &Figures::default()), "round-trips");
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
}
