//! How much a trunk carries: some seconds of bytes for nobody.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use net::clock;
use net::udp::{UdpConnection, UdpStream};
use tokio::io::AsyncWriteExt;
use tokio::time::sleep;
use units::{Bytes, Instant, Rate};

use super::Finding;
use super::trunk::{MUCH_LOSS, POLICED};
use crate::request::{Request, Share, Target, ask};

/// A trial takes so many round trips, in some of which the rate is found; then it ends with so many
/// bytes, or after three seconds. The other gateway ends what takes longer than ten.
const ROUND_TRIPS: u32 = 10;
const MOST: u64 = 64 << 20;
const LENGTH: Duration = Duration::from_secs(3);
pub(super) const LONGEST: Duration = Duration::from_secs(8);
const BEAT: Duration = Duration::from_millis(20);
const CHUNK: usize = 64 << 10;
/// The share of `trunk.rate` that a trunk should reach at least.
const ENOUGH: f64 = 0.8;

/// What a trial showed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trial {
    /// What arrived in its second half.
    rate: Rate,
    /// The share of bytes that was lost in all of it.
    loss: f64,
}

/// When so many bytes had been sent and lost.
#[derive(Clone, Copy)]
struct Look {
    at: Instant,
    sent: u64,
    lost: u64,
}

/// Sends for some seconds.
///
/// # Errors
/// The trunk is lost, or the other gateway is of a version that knows nothing of trials.
pub(super) async fn run(connection: &UdpConnection) -> io::Result<Trial> {
    let mut stream = open(connection).await?;
    let chunk = vec![0; CHUNK];
    let fill = async {
        loop {
            if let Err(error) = stream.write_all(&chunk).await {
                return error;
            }
        }
    };
    tokio::select! {
        error = fill => Err(error),
        trial = watch(connection) => Ok(trial),
    }
}

/// Tells the other gateway that this is only a trial.
///
/// # Errors
/// As [`run`].
pub(super) async fn open(connection: &UdpConnection) -> io::Result<UdpStream> {
    let client = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    let (server, share) = (Target::Nobody, Share::default());
    let asked = ask(connection, &Request { client, server, transparent: false, share }).await?;
    asked.map_err(io::Error::other)
}

async fn watch(connection: &UdpConnection) -> Trial {
    let look = || {
        let stats = connection.stats();
        Look { at: clock::now(), sent: stats.sent.1.0, lost: stats.lost.1.0 }
    };
    let found = connection.stats().rtt.saturating_mul(ROUND_TRIPS).min(LONGEST);
    let first = look();
    let mut looks = vec![first];
    loop {
        sleep(BEAT).await;
        let last = look();
        looks.push(last);
        let took = last.at.since(first.at);
        if took >= found && (took >= LENGTH || last.sent >= MOST) {
            // In the first half the rate is still being found. The middle is never the last.
            return Trial::between(first, looks[(looks.len() - 1) / 2], last);
        }
    }
}

impl Trial {
    fn between(first: Look, middle: Look, last: Look) -> Self {
        let lost = |since: Look| last.lost - since.lost;
        let sent = |since: Look| last.sent - since.sent;
        let arrived = Bytes(sent(middle).saturating_sub(lost(middle)));
        let rate = Rate::of(arrived, last.at.since(middle.at)).unwrap_or_default();
        Self { rate, loss: lost(first) as f64 / sent(first).max(1) as f64 }
    }

    /// Whether it is as it should be, with `trunk.rate` if that is set.
    pub(super) fn judge(self, wanted: Option<Rate>) -> Finding {
        let Self { rate, loss } = self;
        let bits = |rate: Rate| rate.as_bits_per_sec() as f64;
        let shown = format!("carries {rate}, {:.1}% lost", loss * 100.0);
        match wanted {
            _ if loss > MUCH_LOSS => Finding::fault(shown, POLICED),
            Some(wanted) if bits(rate) < ENOUGH * bits(wanted) => Finding::fault(
                format!("{shown}; trunk.rate is {wanted}"),
                "set trunk.rate to what the way carries, or find who else fills it",
            ),
            _ => Finding::Fine(shown),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(ms: u64, sent: u64, lost: u64) -> Look {
        Look { at: Instant::from_nanos(ms * 1_000_000), sent, lost }
    }

    #[test]
    fn the_second_half_counts_but_all_losses() {
        let middle = look(1_000, 1_000_000, 60_000);
        let trial = Trial::between(look(0, 0, 0), middle, look(2_000, 2_100_000, 160_000));
        assert_eq!(trial.rate, Rate::from_bits_per_sec(8_000_000));
        assert!((trial.loss - 160_000.0 / 2_100_000.0).abs() < 1e-9);
        let wanted = |mbps: u64| Some(Rate::from_bits_per_sec(mbps * 1_000_000));
        assert!(!trial.judge(None).is_fault() && !trial.judge(wanted(9)).is_fault());
        assert!(trial.judge(wanted(11)).is_fault());
        assert!(Trial { loss: 0.2, ..trial }.judge(None).is_fault());
    }
}
