//! What is shown while a transfer runs: a bar on a terminal, or a JSON object every second.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::{Value, json};
use transfer::{Progress, Sample};
use units::{Bytes, Instant, Rate};

use crate::args::Output;
use crate::summary::Figures;

/// How often the bar is drawn.
const TICK: Duration = Duration::from_millis(100);
/// Ticks between two JSON objects.
const TICKS_A_LINE: u32 = 10;
/// Shorter transfers show no bar.
const BAR_AFTER: Duration = Duration::from_secs(1);
/// The shown rate is that of so many last ticks.
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
        Sample {
            bytes: samples.iter().map(|sample| sample.bytes).sum(),
            bytes_total: samples.iter().map(|sample| sample.bytes_total).sum(),
            files: samples.iter().map(|sample| sample.files).sum(),
            files_total: samples.iter().map(|sample| sample.files_total).sum(),
            heard: samples.iter().map(|sample| sample.heard).sum(),
            current: samples
                .into_iter()
                .map(|sample| sample.current)
                .next_back()
                .unwrap_or_default(),
        }
    }
}

/// Shows the progress until dropped; `figures` asks the connection for its own.
pub async fn show(output: Output, meter: &Meter, figures: impl Fn() -> Figures) -> ! {
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
        let rate = recent.rate(now, Bytes(sample.bytes));
        if output.json {
            if tick % TICKS_A_LINE == 0 {
                emit(&line(&sample, elapsed, rate, &figures()));
            }
        } else if !output.quiet && elapsed >= BAR_AFTER {
            bar.draw(&sample, rate, &figures());
        }
    }
}

fn line(sample: &Sample, elapsed: Duration, rate: Rate, figures: &Figures) -> Value {
    let mut line = json!({
        "event": "progress",
        "seconds": elapsed.as_secs_f64(),
        "bytes": sample.bytes,
        "bytes_total": sample.bytes_total,
        "files": sample.files,
        "files_total": sample.files_total,
        "rate_bps": rate.as_bits_per_sec(),
        "current": sample.current,
    });
    figures.add_to(&mut line);
    line
}

/// The bytes at the last ticks.
#[derive(Default)]
struct Recent(std::collections::VecDeque<(Instant, Bytes)>);

impl Recent {
    fn rate(&mut self, now: Instant, bytes: Bytes) -> Rate {
        if self.0.len() == RATE_TICKS {
            self.0.pop_front();
        }
        self.0.push_back((now, bytes));
        let (then, before) = self.0[0];
        Rate::of(bytes - before, now.since(then)).unwrap_or_default()
    }
}

/// The bar; gone when dropped.
struct Bar(ProgressBar);

impl Bar {
    /// Draws nothing before the first [`Bar::draw`], and never but on a terminal.
    fn new() -> Self {
        Self(ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden()))
    }

    fn draw(&self, sample: &Sample, rate: Rate, figures: &Figures) {
        if self.0.is_hidden() {
            self.0.set_draw_target(ProgressDrawTarget::stderr());
        }
        let style = match sample.bytes_total {
            Some(total) => {
                self.0.set_length(total);
                "{percent:>3}% [{bar:25}] {binary_bytes}/{binary_total_bytes} {msg}"
            }
            None => "{spinner} {binary_bytes} {msg}",
        };
        let style = ProgressStyle::with_template(style).expect("a constant template is valid");
        self.0.set_style(style.progress_chars("=> "));
        self.0.set_position(sample.bytes);
        let mut message = rate.to_string();
        if let (Some(total), 1..) = (sample.bytes_total, rate.as_bits_per_sec()) {
            let left = rate.time_for(Bytes(total) - Bytes(sample.bytes));
            message += &format!(", {} left", whole_seconds(left));
        }
        if let Some(streams) = figures.streams {
            message += &format!(", {streams} connections");
        }
        if let Some(rtt) = figures.rtt {
            message += &format!(", RTT {:.0?}", rtt);
        }
        if let Some(resent) = figures.resent {
            message += &format!(", {:.1}% resent", resent * 100.0);
        }
        self.0.set_message(message);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// A time as people say it: `7s`, `2m 3s`.
fn whole_seconds(time: Duration) -> String {
    humantime::format_duration(Duration::from_secs(time.as_secs())).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_that_of_the_last_ticks() {
        let mut recent = Recent::default();
        let at = |n: u64| Instant::ZERO + TICK * n as u32;
        assert_eq!(recent.rate(at(0), Bytes(0)), Rate::ZERO);
        for n in 1..100 {
            // Slow first, then 1 Mbit/s: 12.5 kB a tick.
            let bytes = if n < 50 { n } else { 12_500 * n };
            let rate = recent.rate(at(n), Bytes(bytes));
            if n > 80 {
                assert_eq!(rate, Rate::from_bits_per_sec(1_000_000));
            }
        }
    }
}
