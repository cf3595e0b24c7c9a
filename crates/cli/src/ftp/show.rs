//! Showing what a server says, and how far a transfer is.

use std::fmt;
use std::time::Duration;

use ftp::client::{ClientError, Guard, Stop};
use ftp::data::Moved;
use rustix::process::Signal;
use transfer::{Progress, printable};

use crate::args::Output;
use crate::progress::{Meter, emit, show};
use crate::signals::Signals;
use crate::summary::Figures;

/// How often the bytes that moved are looked at.
const TICK: Duration = Duration::from_millis(50);

/// Bytes from the network, safe on a terminal.
pub struct Shown<'a>(pub &'a [u8]);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&printable(&String::from_utf8_lossy(self.0)))
    }
}

/// How safe a session is.
pub fn guarded(guard: Guard) -> &'static str {
    match guard {
        Guard::All => "under TLS",
        Guard::Control => "under TLS, but for the data, which the server wants in clear",
        Guard::Nothing => "in clear: whoever is on the way can read and change what goes there",
    }
}

/// Runs what speaks with a server to its end, and tells which signal came. The first stops it in good
/// order, the second at once.
pub async fn stoppable<T>(
    stop: &Stop,
    work: impl Future<Output = anyhow::Result<T>>,
) -> (anyhow::Result<T>, Option<Signal>) {
    let mut signals = match Signals::catch() {
        Ok(signals) => signals,
        Err(error) => return (Err(error), None),
    };
    let mut work = std::pin::pin!(work);
    let signal = tokio::select! {
        done = &mut work => return (done, None),
        signal = signals.next() => signal,
    };
    stop.stop();
    tokio::select! {
        done = &mut work => (done, Some(signal)),
        signal = signals.next() => (Err(ClientError::Stopped.into()), Some(signal)),
    }
}

/// Runs a transfer to its end, showing its progress.
pub async fn watch<T>(
    output: Output,
    progress: &Progress,
    moved: &Moved,
    moving: impl Future<Output = T>,
) -> T {
    let meter = Meter::of_one(progress.clone());
    let done = tokio::select! {
        done = moving => done,
        never = show(output, &meter, Figures::default, emit) => never,
        never = tick(progress, moved) => never,
    };
    progress.set_bytes(moved.bytes());
    done
}

/// Keeps the progress at what has moved.
async fn tick(progress: &Progress, moved: &Moved) -> ! {
    let mut ticks = tokio::time::interval(TICK);
    loop {
        ticks.tick().await;
        progress.set_bytes(moved.bytes());
    }
}

#[cfg(test)]
mod tests {
    use rustix::process::{getpid, kill_process};

    use super::*;

    #[tokio::test]
    async fn the_first_signal_stops_in_good_order_and_the_second_at_once() {
        let interrupt = || kill_process(getpid(), Signal::INT).unwrap();
        let stop = Stop::default();
        let orderly = async {
            interrupt();
            stop.wanted().await;
            Ok("done in good order")
        };
        let (done, signal) = stoppable(&stop, orderly).await;
        assert_eq!((done.unwrap(), signal), ("done in good order", Some(Signal::INT)));
        stop.reset();
        let stuck = async {
            interrupt();
            stop.wanted().await;
            interrupt();
            std::future::pending::<anyhow::Result<()>>().await
        };
        let (done, signal) = stoppable(&stop, stuck).await;
        assert_eq!(signal, Some(Signal::INT));
        let error = done.unwrap_err();
        assert!(matches!(error.downcast_ref(), Some(ClientError::Stopped)), "{error}");
    }
}
