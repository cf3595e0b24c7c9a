//! Showing what a server says, and how far a transfer is.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ftp::data::Moved;
use rustix::process::Signal;
use tokio::sync::Notify;
use transfer::Progress;

use crate::args::Output;
use crate::progress::{Meter, show};
use crate::signals::Signals;
use crate::summary::Figures;

/// How often the bytes that moved are looked at.
const TICK: Duration = Duration::from_millis(50);

/// Bytes from the network, safe on a terminal.
pub struct Shown<'a>(pub &'a [u8]);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = String::from_utf8_lossy(self.0);
        text.chars().try_for_each(|c| write!(f, "{}", if c.is_control() { '\u{fffd}' } else { c }))
    }
}

/// Runs a transfer to its end, showing its progress. The first signal stops it in good order.
pub async fn watch<T, E: From<anyhow::Error>>(
    output: Output,
    progress: &Progress,
    moved: &Moved,
    stop: Arc<Notify>,
    moving: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    watch_for(output, progress, moved, stop, moving).await.0
}

/// The same, and tells which signal came.
pub async fn watch_for<T, E: From<anyhow::Error>>(
    output: Output,
    progress: &Progress,
    moved: &Moved,
    stop: Arc<Notify>,
    moving: impl Future<Output = Result<T, E>>,
) -> (Result<T, E>, Option<Signal>) {
    let mut signals = match Signals::catch() {
        Ok(signals) => signals,
        Err(error) => return (Err(error.into()), None),
    };
    let meter = Meter::of_one(progress.clone());
    let mut moving = std::pin::pin!(moving);
    let result = tokio::select! {
        done = &mut moving => (done, None),
        never = show(output, &meter, Figures::default) => never,
        never = tick(progress, moved) => never,
        signal = signals.next() => {
            stop.notify_waiters();
            (moving.await, Some(signal))
        }
    };
    progress.set_bytes(moved.bytes());
    result
}

/// Keeps the progress at what has moved.
async fn tick(progress: &Progress, moved: &Moved) -> ! {
    let mut ticks = tokio::time::interval(TICK);
    loop {
        ticks.tick().await;
        progress.set_bytes(moved.bytes());
    }
}
