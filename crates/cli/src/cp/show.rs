//! What a copy says while it goes on, and at its end.

use std::process::ExitCode;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};
use transfer::{Manifest, Note, NoteKind, Sample, Summary};
use units::Bytes;

use super::Job;
use super::link::Link;
use crate::args::{Output, Transport};
use crate::progress::{Meter, emit};
use crate::summary::{self, Figures};
use crate::{FAILED, PARTIAL, signals};

/// Data is about to go this way. When it is another way in the middle, who changes it tells people why.
pub fn started(job: &Job, server: &str, link: &Link, words: &str) {
    if job.options.output.json {
        job.emit(&json!({ "event": "start", "server": server, "transport": link.name() }));
    }
    if job.has_started.swap(true, Relaxed) {
        return;
    }
    let is_free = job.options.transport == Transport::Auto && !job.options.sending.wants_udp();
    match link {
        // It was told that nothing else passes.
        Link::Ssh if job.options.transport != Transport::Ssh => {}
        Link::Tcp { .. } if is_free => {
            tell(job, &format!("connected to {server} over {words}, for UDP does not answer"));
        }
        _ => tell(job, &format!("connected to {server} over {words}")),
    }
}

/// News for people.
pub fn tell(job: &Job, news: &str) {
    if let Some(listener) = &job.listener {
        // One who does not listen misses it.
        let _ = listener.try_send(json!({ "event": "news", "words": format!("longhaul: {news}") }));
    } else if !job.options.output.quiet && !job.options.output.json {
        tell!("longhaul: {news}");
    }
}

/// Not every name can stand in a manifest.
pub fn bent_names(output: Output, manifest: &Manifest) {
    let bent = manifest.bent();
    if bent > 0 && !output.quiet && !output.json {
        tell!(
            "longhaul: {bent} names in the manifest are no UTF-8, which b3sum cannot read: they stand \
             there with U+FFFD, and it will not find them"
        );
    }
}

/// An end before the end, for programs.
pub fn fail(output: Output, event: &str, message: &str, bytes: u64) {
    if output.json {
        emit(&json!({ "event": event, "message": message, "bytes": bytes }));
    }
}

/// One side could not go on, and yet some files are there.
pub fn given_up(output: Output, error: &anyhow::Error, sample: &Sample) -> ExitCode {
    let message = format!("{}; files that were done by then are verified", crate::sentence(error));
    tell!("longhaul: {message}");
    fail(output, "error", &message, sample.done_bytes());
    ExitCode::from(PARTIAL)
}

/// The user has had enough.
pub fn stopped(output: Output, signal: Signal, meter: &Meter, goes_on: bool) -> ExitCode {
    let sample = meter.sample();
    let message = how_far(&sample, goes_on);
    tell!("longhaul: {message}");
    fail(output, "stopped", &message, sample.done_bytes());
    ExitCode::from(signals::code(signal))
}

fn how_far(sample: &Sample, goes_on: bool) -> String {
    let of = sample.files_total.map(|total| format!(" of {total}")).unwrap_or_default();
    let then = if goes_on { "; the same command goes on from there" } else { "" };
    let (files, bytes) = (sample.done_files(), Bytes(sample.done_bytes()));
    format!("stopped after {files}{of} files and {bytes}{then}")
}

/// What the end is to be told as.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It was done.
    Done,
    /// Nothing was to be done.
    DryRun,
    /// Both were compared byte by byte.
    Compared,
    /// Names were told, and nothing else was asked.
    Listed,
}

/// The closing words.
pub fn report(
    output: Output,
    verdict: Verdict,
    summary: &Summary,
    elapsed: Duration,
    figures: &Figures,
) -> ExitCode {
    for note in summary.notes.iter().filter(|note| !output.json || note.kind != NoteKind::Would) {
        tell!("{}", noted(note));
    }
    if output.json {
        emit(&object(verdict, summary, elapsed, figures));
    } else if !output.quiet {
        tell!("{}", closing(verdict, summary, elapsed, figures));
    }
    if output.verbose {
        tell!("{}", summary::details(summary, figures));
    }
    ExitCode::from(code(verdict, summary))
}

/// A note as people are told it.
pub fn noted(note: &Note) -> String {
    let what = match note.kind {
        NoteKind::Failed => "longhaul: failed: ",
        NoteKind::Skipped => "longhaul: skipped: ",
        NoteKind::Changed => "longhaul: changed: ",
        NoteKind::Would => "",
    };
    format!("{what}{note}")
}

/// The last sentence.
pub fn closing(
    verdict: Verdict,
    summary: &Summary,
    elapsed: Duration,
    figures: &Figures,
) -> String {
    match verdict {
        Verdict::Done => summary::sentence(summary, elapsed, figures),
        Verdict::DryRun | Verdict::Compared => summary::rehearsal(summary),
        Verdict::Listed => summary::listing(summary),
    }
}

/// The same for programs. Where nothing was to move, there is no rate, and `verified` says whether all was compared and
/// is equal.
pub fn object(verdict: Verdict, summary: &Summary, elapsed: Duration, figures: &Figures) -> Value {
    let mut object = summary::object(summary, elapsed, figures);
    object["summary"] = json!(closing(verdict, summary, elapsed, figures));
    if verdict != Verdict::Done {
        let is_equal = summary.notes.would() == 0 && !summary.is_partial();
        object["verified"] = json!(verdict == Verdict::Compared && is_equal);
        object["rate_bps"] = Value::Null;
        object["limited_by"] = Value::Null;
    }
    object
}

/// By which code the command ends.
pub fn code(verdict: Verdict, summary: &Summary) -> u8 {
    let counts = summary.counts;
    let nothing = [counts.files, counts.directories, counts.symlinks] == [0; 3];
    match summary.is_partial() {
        _ if verdict == Verdict::Compared && summary.notes.would() > 0 => FAILED,
        false => 0,
        true if nothing => FAILED,
        true => PARTIAL,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stood_there_is_done_when_the_user_stops() {
        let (bytes, files_total) = (3000, Some(9));
        let sample = Sample {
            files: 2,
            bytes,
            kept_files: 5,
            kept_bytes: 1000,
            files_total,
            ..Sample::default()
        };
        let then = "; the same command goes on from there";
        let said = format!("stopped after 7 of 9 files and {}", Bytes(4000));
        assert_eq!(how_far(&sample, true), said.clone() + then);
        assert_eq!(how_far(&sample, false), said);
    }
}
