//! What is shown of a copy that another host makes, by the events of which it tells.

use std::cell::RefCell;
use std::process::ExitCode;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};
use transfer::{Progress, printable};

use super::show::fail;
use crate::PARTIAL;
use crate::args::Output;
use crate::progress::{self, Meter};
use crate::signals;
use crate::summary::Figures;

/// Bytes of the longest line, which tells of all notes, at most.
pub const LINE_MAX: u64 = 32 << 20;
/// Bytes of a line that is no event, as it is shown.
const WORDS_MAX: usize = 1024;

/// What the copy there has said.
#[derive(Default)]
pub struct Heard {
    /// Anything.
    pub begun: bool,
    /// That it is done, and with which exit code.
    pub done: Option<u8>,
    /// That it has failed, why, and with which exit code; by a server alone.
    pub failed: Option<(String, u8)>,
    /// So many bytes are at their destination.
    pub bytes: u64,
    /// The last event, as programs know it, was told.
    pub ended: bool,
}

impl Heard {
    fn hear(&mut self, event: &Value) {
        self.begun = true;
        self.bytes = event["bytes"].as_u64().unwrap_or(self.bytes);
        let code = event["exit_code"].as_u64().and_then(|code| u8::try_from(code).ok());
        match event["event"].as_str() {
            Some("stopped") => self.ended = true,
            Some("done") => {
                self.ended = true;
                let partial = if event["partial"] == true { PARTIAL } else { 0 };
                self.done = Some(code.unwrap_or(partial));
            }
            Some("error") => {
                self.ended = true;
                let message = event["message"].as_str().map(printable);
                self.failed = message.zip(code);
            }
            _ => {}
        }
    }
}

/// It has failed, and nobody has told programs.
pub fn failed(output: Output, error: &anyhow::Error, heard: &Heard) {
    if !heard.ended {
        fail(output, "error", &crate::sentence(error), heard.bytes);
    }
}

/// The user has had enough.
pub fn stopped(output: Output, signal: Signal, heard: &Heard) -> ExitCode {
    let message = "stopped; the same command goes on from there";
    tell!("longhaul: {message}");
    if !heard.ended {
        fail(output, "stopped", message, heard.bytes);
    }
    ExitCode::from(signals::code(signal))
}

/// The next line without its end, as text; a longer one comes in parts, and the end is none.
pub async fn line(reader: &mut (impl AsyncBufRead + Unpin)) -> Option<String> {
    let mut line = Vec::new();
    let read = reader.take(LINE_MAX).read_until(b'\n', &mut line).await.ok()?;
    (read > 0).then(|| String::from_utf8_lossy(&line).trim_end().to_owned())
}

/// Shows what the copy there says, to its end.
pub async fn follow(output: Output, stdout: impl AsyncRead + Unpin, heard: &mut Heard) {
    let (progress, mut stdout) = (Progress::new(), BufReader::new(stdout));
    let figures = RefCell::new(Figures::default());
    let reading = async {
        while let Some(line) = line(&mut stdout).await {
            // A login may have words of its own.
            let Some(event) = serde_json::from_str(&line).ok().filter(Value::is_object) else {
                if !output.quiet {
                    tell!("{}", printable(&line[..line.floor_char_boundary(WORDS_MAX)]));
                }
                continue;
            };
            heard.hear(&event);
            match output.json {
                _ if is_for_people(&event, output) => {}
                true => say!("{line}"),
                false => {
                    show(&event, &progress, output.quiet);
                    figures.replace_with(|before| told(&event).unwrap_or_else(|| before.clone()));
                }
            }
        }
    };
    // Only what is asked for as JSON is to be seen as such.
    let shown = Output { json: false, quiet: output.quiet || output.json, ..output };
    let meter = Meter::of_one(progress.clone());
    tokio::select! {
        () = reading => {}
        never = progress::show(shown, &meter, || figures.borrow().clone(), |_| ()) => never,
    }
}

/// Tells people what a server has for them alone: what became of single files, unless it is a dry run's whole
/// list beside JSON, and news.
fn is_for_people(event: &Value, output: Output) -> bool {
    let is_heard = match event["event"].as_str() {
        Some("note") => !output.json || event["would"] != true,
        Some("news") => !output.json && !output.quiet,
        _ => return false,
    };
    if let (Some(words), true) = (event["words"].as_str(), is_heard) {
        tell!("{}", printable(words));
    }
    true
}

fn show(event: &Value, progress: &Progress, quiet: bool) {
    let number = |name: &str| event[name].as_u64();
    if let (Some(bytes), Some(files)) = (number("bytes"), number("files")) {
        let kept = |name| number(name).unwrap_or_default();
        let (kept_files, kept_bytes) = (kept("kept_files"), kept("kept_bytes"));
        progress.set_kept(kept_files, kept_bytes);
        progress.set_bytes(bytes.saturating_sub(kept_bytes));
        progress.set_files(files.saturating_sub(kept_files));
    }
    if let (Some(files), Some(bytes)) = (number("files_total"), number("bytes_total")) {
        progress.set_totals(files, bytes);
    }
    if let Some(path) = event["current"].as_str() {
        progress.set_current(printable(path).as_bytes(), number("current_total"));
        progress.set_current_bytes(number("current_bytes").unwrap_or_default());
    }
    if quiet {
        return;
    }
    if let (Some(carrier), true) = (event["transport"].as_str(), event["event"] == "start") {
        tell!("longhaul: the copy goes over {}", printable(carrier));
    }
    if let Some(text) = event["summary"].as_str() {
        tell!("{}", printable(text));
    }
}

/// The figures of which the copy there tells, if this is about them.
fn told(event: &Value) -> Option<Figures> {
    if event["event"] != "progress" {
        return None;
    }
    let rtt = event["rtt_ms"].as_f64().map(|rtt| Duration::try_from_secs_f64(rtt / 1e3));
    Some(Figures {
        carrier: ["udp", "tcp", "ssh"].into_iter().find(|name| event["transport"] == **name),
        streams: event["streams"].as_u64().map(|streams| streams as usize),
        rtt: rtt.and_then(Result::ok),
        loss: event["loss"].as_f64(),
        said: event["limited_by"]["words"].as_str().map(printable),
        ..Figures::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_are_bounded_and_need_not_be_text() {
        let mut said = &b"\xff\n{}\nend"[..];
        for expected in ["\u{fffd}", "{}", "end"] {
            assert_eq!(line(&mut said).await.as_deref(), Some(expected));
        }
        assert_eq!(line(&mut said).await, None);
        let endless = vec![b'x'; LINE_MAX as usize + 1];
        let mut endless = &endless[..];
        assert_eq!(line(&mut endless).await.map(|line| line.len() as u64), Some(LINE_MAX));
        assert_eq!(line(&mut endless).await.as_deref(), Some("x"));
    }

    #[test]
    fn the_bar_shows_what_the_other_host_tells() {
        let event = serde_json::json!({
            "event": "progress", "bytes": 10, "kept_bytes": 3, "files": 1, "current": "a\u{1b}b", "current_bytes": 4,
            "transport": "tcp", "streams": 3, "rtt_ms": 12.5, "loss": 0.25,
            "limited_by": { "what": "loss", "words": "lo\u{1b}ss" },
        });
        let figures = told(&event).unwrap();
        assert_eq!((figures.carrier, figures.streams), (Some("tcp"), Some(3)));
        assert_eq!((figures.rtt, figures.loss), (Some(Duration::from_micros(12_500)), Some(0.25)));
        assert!(figures.said.is_some_and(|words| !words.contains('\u{1b}')));
        let progress = Progress::new();
        show(&event, &progress, true);
        let sample = progress.sample();
        assert_eq!((sample.bytes, sample.kept_bytes, sample.current_bytes), (7, 3, 4));
        assert!(told(&serde_json::json!({ "event": "done" })).is_none());
    }
}
