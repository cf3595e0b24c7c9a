//! What is shown while a transfer runs: a bar on a terminal, or a JSON object every second.

mod bar;

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

use serde_json::{Value, json};
use transfer::{Progress, Sample};
use units::{Bytes, Instant, Rate};

use crate::args::Output;
use crate::summary::{Figures, Spent};
use crate::verdict::at_present;
use bar::Bar;

/// How often the bar is drawn.
const TICK: Duration = Duration::from_millis(100);
/// Ticks between two JSON objects.
const TICKS_A_LINE: u32 = 10;
/// Shorter transfers show no bar.
const BAR_AFTER: Duration = Duration::from_secs(1);
/// The shown rate is that of so many last ticks, and so are losses and what limits it.
const RATE_TICKS: usize = 30;

/// Writes a line of JSON. A reader that has gone away does not end the transfer.
pub fn emit(value: &Value) {
    use std::io::Write;
    let _ = writeln!(std::io::stdout(), "{value}");
}

/// The progress of requests that follow each other.
#[derive(Clone)]
pub struct Meter(Vec<Progress>);

impl Meter {
    /// For so many requests.
    pub fn new(requests: usize) -> Self {
        Self((0..requests).map(|_| Progress::new()).collect())
    }

    /// For one request that is counted elsewhere.
    pub fn of_one(progress: Progress) -> Self {
        Self(vec![progress])
    }

    /// That of one request.
    pub fn of(&self, request: usize) -> &Progress {
        &self.0[request]
    }

    /// How many requests are over, but for their goodbyes.
    pub fn over(&self) -> usize {
        self.0.iter().filter(|progress| progress.is_over()).count()
    }

    /// All together. What there is in all is known once every request has counted.
    pub fn sample(&self) -> Sample {
        let samples: Vec<_> = self.0.iter().map(Progress::sample).collect();
        // The far side may say any numbers.
        let sum = |of: fn(&Sample) -> Option<u64>| {
            samples.iter().try_fold(0, |sum: u64, sample| Some(sum.saturating_add(of(sample)?)))
        };
        Sample {
            bytes: sum(|sample| Some(sample.bytes)).unwrap_or_default(),
            kept_bytes: sum(|sample| Some(sample.kept_bytes)).unwrap_or_default(),
            bytes_total: sum(|sample| sample.bytes_total),
            files: sum(|sample| Some(sample.files)).unwrap_or_default(),
            kept_files: sum(|sample| Some(sample.kept_files)).unwrap_or_default(),
            files_total: sum(|sample| sample.files_total),
            heard: samples.iter().map(|sample| sample.heard).sum(),
            heard_at: samples.iter().filter_map(|sample| sample.heard_at).max(),
            ..samples.into_iter().rfind(|sample| !sample.current.is_empty()).unwrap_or_default()
        }
    }
}

/// Shows the progress until dropped; `figures` asks the connection for its own, and `emit` takes what is for
/// programs.
pub async fn show(
    output: Output,
    meter: &Meter,
    figures: impl Fn() -> Figures,
    emit: impl Fn(&Value),
) -> ! {
    if output.quiet && !output.json {
        match std::future::pending::<Infallible>().await {}
    }
    let start = net::clock::now();
    let mut ticks = tokio::time::interval(TICK);
    let mut recent = Recent::default();
    let bar = Bar::new();
    let mut tick = 0;
    loop {
        ticks.tick().await;
        tick += 1;
        let now = net::clock::now();
        let (sample, elapsed) = (meter.sample(), now.since(start));
        let (rate, figures) = recent.look(now, Bytes(sample.bytes), figures());
        let now = Now { sample: &sample, rate, figures: &figures };
        if !output.json {
            if elapsed >= BAR_AFTER {
                bar.draw(&now);
            }
        } else if tick % TICKS_A_LINE == 0 {
            emit(&now.line(elapsed));
        }
    }
}

/// Where a transfer is, and how it went of late.
struct Now<'a> {
    sample: &'a Sample,
    rate: Rate,
    figures: &'a Figures,
}

impl Now<'_> {
    /// How long it will take, should it go on like this.
    fn left(&self) -> Option<Duration> {
        let total = self.sample.bytes_total.filter(|_| self.rate > Rate::ZERO)?;
        Some(self.rate.time_for(Bytes(total) - Bytes(self.sample.done_bytes())))
    }

    /// What limits it, in few words.
    fn limit(&self) -> Option<&str> {
        let found = at_present(self.figures, self.rate).map(|(_, words)| words);
        self.figures.said.as_deref().or(found)
    }

    /// The same for programs.
    fn line(&self, elapsed: Duration) -> Value {
        let sample = self.sample;
        let limit = at_present(self.figures, self.rate);
        let mut line = json!({
            "event": "progress",
            "seconds": elapsed.as_secs_f64(),
            "bytes": sample.done_bytes(),
            "kept_bytes": sample.kept_bytes,
            "bytes_total": sample.bytes_total,
            "files": sample.done_files(),
            "kept_files": sample.kept_files,
            "files_total": sample.files_total,
            "rate_bps": self.rate.as_bits_per_sec(),
            "seconds_left": self.left().map(|left| left.as_secs_f64()),
            "current": sample.current,
            "current_bytes": sample.current_bytes,
            "current_total": sample.current_total,
            "limited_by": limit.map(|(what, words)| json!({ "what": what, "words": words })),
        });
        self.figures.add_to(&mut line);
        line
    }
}

/// What the last ticks found.
#[derive(Default)]
struct Recent(VecDeque<(Instant, Bytes, Spent)>);

impl Recent {
    fn is_full(&self) -> bool {
        self.0.len() == RATE_TICKS
    }

    /// The rate since the first of them, and the figures with what held, and what was lost, since then.
    fn look(&mut self, now: Instant, bytes: Bytes, figures: Figures) -> (Rate, Figures) {
        if self.is_full() {
            self.0.pop_front();
        }
        self.0.push_back((now, bytes, figures.spent()));
        let (then, before, spent) = &self.0[0];
        let elapsed = now.since(*then);
        let rate = Rate::of(bytes - *before, elapsed).unwrap_or_default();
        let mut figures = figures.since(spent, elapsed);
        // The rate of a beginning is none by which to judge the path.
        figures.held = figures.held.filter(|_| figures.pacing.is_some() || self.is_full());
        (rate, figures)
    }
}

#[cfg(test)]
mod tests {
    use transport::Limit;

    use super::*;
    use crate::summary::Times;
    use crate::verdict::Held;

    #[test]
    fn the_rate_is_that_of_the_last_ticks() {
        let mut recent = Recent::default();
        let mut rate = |n: u64, bytes| {
            recent.look(Instant::ZERO + TICK * n as u32, Bytes(bytes), Figures::default()).0
        };
        assert_eq!(rate(0, 0), Rate::ZERO);
        for n in 1..100 {
            // Slow first, then 1 Mbit/s: 12.5 kB a tick.
            let bytes = if n < 50 { n } else { 12_500 * n };
            let rate = rate(n, bytes);
            if n > 80 {
                assert_eq!(rate, Rate::from_bits_per_sec(1_000_000));
            }
        }
    }

    #[test]
    fn what_limits_and_what_is_lost_is_that_of_the_last_ticks() {
        let mut recent = Recent::default();
        let mut times = Times::default();
        for n in 0..100u32 {
            // First the disk is slow, and then the path, which loses packets.
            let late = n >= 50;
            times[if late { Limit::Pacing } else { Limit::Application } as usize] += TICK;
            let lost = if late { u64::from(n - 50) * 2 } else { 0 };
            let figures = Figures {
                times: Some(times),
                packets: Some((lost, u64::from(n) * 100)),
                ..Figures::default()
            };
            let at = Instant::ZERO + TICK * n;
            let (rate, figures) = recent.look(at, Bytes(u64::from(n) << 20), figures);
            let limit = at_present(&figures, rate);
            match n {
                30..50 => assert_eq!((limit.unwrap().0, figures.loss), ("source", Some(0.0))),
                80.. => assert_eq!((limit.unwrap().0, figures.loss), ("loss", Some(0.02))),
                _ => {}
            }
        }
    }

    #[test]
    fn a_receive_buffer_that_was_full_once_is_not_blamed_for_what_is_lost_later() {
        let mut recent = Recent::default();
        for n in 0..100u32 {
            // Every tick ten packets are lost, of the first fifty ticks for want of room here.
            let (lost, all) = (u64::from(n) * 10, u64::from(n) * 100);
            let figures = Figures {
                packets: Some((lost, all)),
                overflowed: lost.min(500),
                held: Some((Held::Path, 1.0)),
                ..Figures::default()
            };
            let at = Instant::ZERO + TICK * n;
            let (rate, figures) = recent.look(at, Bytes(u64::from(n) << 20), figures);
            let what = at_present(&figures, rate).map(|(what, _)| what);
            match n {
                30..50 => assert_eq!(what, Some("receive-buffer")),
                80.. => assert_eq!(what, Some("loss")),
                _ => {}
            }
        }
    }

    #[test]
    fn programs_are_told_all_that_the_bar_shows() {
        let sample = Sample {
            bytes: 10,
            kept_bytes: 100,
            bytes_total: Some(1000),
            current: "a".to_owned(),
            current_bytes: 7,
            current_total: Some(9),
            ..Sample::default()
        };
        let figures = Figures {
            carrier: Some("udp"),
            loss: Some(0.5),
            held: Some((Held::Window, 0.8)),
            ..Figures::default()
        };
        let rate = Rate::from_bits_per_sec(80);
        let line = Now { sample: &sample, rate, figures: &figures }.line(Duration::ZERO);
        assert_eq!(line["limited_by"]["words"], "receive window");
        assert_eq!((&line["transport"], &line["loss"]), (&"udp".into(), &0.5.into()));
        assert_eq!((&line["current_bytes"], &line["current_total"]), (&7.into(), &9.into()));
        assert_eq!((&line["bytes"], &line["kept_bytes"]), (&110.into(), &100.into()));
        assert_eq!(line["seconds_left"], 89.0);
    }

    #[test]
    fn the_file_at_work_is_that_of_the_request_at_work() {
        let meter = Meter::new(2);
        meter.of(0).set_current(b"first", Some(9));
        meter.of(0).set_current_bytes(3);
        meter.of(0).set_bytes(3);
        let sample = meter.sample();
        assert_eq!((&sample.current[..], sample.current_bytes, sample.bytes), ("first", 3, 3));
        meter.of(1).set_current(b"second", None);
        assert_eq!(meter.sample().current, "second");
    }
}
