//! Takes the figures of a path, from this end of a connection to a server that answers probes.

use std::time::Duration;

use net::udp::{UdpConnection, UdpStream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;
use tokio::task::coop::consume_budget;
use tokio::time::{interval, sleep};
use transfer::wire::PROBE_MAX;
use transport::{Limit, Stats};
use units::{Instant, Rate};

/// Echoes asked for, and the time between two: a second in all.
const ECHOES: u32 = 20;
const ECHO_EVERY: Duration = Duration::from_millis(50);
/// Bytes written or read in one go.
const BLOCK: usize = 64 << 10;
/// Figures are those from this share of the time on, when the start is over.
const SETTLED: f64 = 0.6;

/// Round-trip times of the idle path.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RoundTrips {
    pub least: Duration,
    pub median: Duration,
    /// Mean difference between one and the next (RFC 3550's idea, not smoothed).
    pub jitter: Duration,
}

/// What a direction carried.
#[derive(Clone, Copy, Debug, Default)]
pub struct Flow {
    /// What arrived, of what was meant to arrive.
    pub rate: Rate,
    /// The path's capacity, if trains of packets agreed on one.
    pub capacity: Option<Rate>,
    /// Share of the packets that were lost.
    pub loss: f64,
    /// What held the sender back for longest; known of this side alone.
    pub limit: Option<Limit>,
    /// Smoothed round-trip time at the end.
    pub loaded: Duration,
}

/// Asks for echoes, each over a stream of its own so that a lost one delays no other.
pub async fn round_trips(connection: &UdpConnection) -> anyhow::Result<RoundTrips> {
    let mut echoes = JoinSet::new();
    let mut clock = interval(ECHO_EVERY);
    for number in 0..ECHOES {
        clock.tick().await;
        let mut stream = connection.open().await?;
        echoes.spawn(async move {
            let start = net::clock::now();
            transfer::probe(&mut stream, 0).await?;
            let time = net::clock::now().since(start);
            stream.shutdown().await?;
            anyhow::Ok((number, time))
        });
    }
    let mut times = Vec::new();
    while let Some(echo) = echoes.join_next().await {
        times.push(echo??);
    }
    times.sort_unstable();
    Ok(RoundTrips::of(times.into_iter().map(|(_, time)| time).collect()))
}

impl RoundTrips {
    /// Of times in the order in which they were measured.
    fn of(mut times: Vec<Duration>) -> Self {
        let changes: Duration = times.windows(2).map(|pair| pair[0].abs_diff(pair[1])).sum();
        let jitter = changes / (times.len().saturating_sub(1) as u32).max(1);
        times.sort_unstable();
        let least = times.first().copied().unwrap_or_default();
        Self { least, median: times.get(times.len() / 2).copied().unwrap_or_default(), jitter }
    }
}

/// Sends for some time.
pub async fn there(connection: &UdpConnection, time: Duration) -> anyhow::Result<Flow> {
    let mut stream = connection.open().await?;
    transfer::probe(&mut stream, 0).await?;
    let zeros = [0; BLOCK];
    let sending = async {
        loop {
            stream.write_all(&zeros).await?;
            consume_budget().await;
        }
    };
    let (before, after, elapsed) = watched(connection, time, sending).await?;
    let held = |limit: Limit| after.limits.of(limit).saturating_sub(before.limits.of(limit));
    let longest = Limit::ALL.into_iter().max_by_key(|&limit| held(limit));
    let (sent, lost) = (after.sent.1 - before.sent.1, after.lost.1 - before.lost.1);
    Ok(Flow {
        rate: Rate::of(sent - lost, elapsed).unwrap_or_default(),
        capacity: after.capacity.0,
        loss: share(after.lost.0 - before.lost.0, after.sent.0 - before.sent.0),
        limit: longest.filter(|&limit| held(limit) > Duration::ZERO),
        loaded: after.rtt,
    })
}

/// Has the server send for some time.
pub async fn back(connection: &UdpConnection, time: Duration) -> anyhow::Result<Flow> {
    let mut stream: UdpStream = connection.open().await?;
    transfer::probe(&mut stream, PROBE_MAX).await?;
    let reading = async {
        let mut block = vec![0; BLOCK];
        loop {
            if stream.read(&mut block).await? == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            consume_budget().await;
        }
    };
    let (before, after, elapsed) = watched(connection, time, reading).await?;
    let came = after.received.0 - before.received.0;
    let missing = after.missing.saturating_sub(before.missing);
    Ok(Flow {
        rate: Rate::of(after.received.1 - before.received.1, elapsed).unwrap_or_default(),
        capacity: after.capacity.1,
        loss: share(missing, missing + came),
        limit: None,
        loaded: after.rtt,
    })
}

/// Keeps at `work`, which must yield, for some time; the connection's figures when the start is over and at the end,
/// and the time between.
async fn watched(
    connection: &UdpConnection,
    time: Duration,
    work: impl Future<Output = std::io::Result<()>>,
) -> anyhow::Result<(Stats, Stats, Duration)> {
    let look = || (net::clock::now(), connection.stats());
    let from: (Instant, Stats);
    let middle = async {
        sleep(time.mul_f64(SETTLED)).await;
        let seen = look();
        sleep(time.mul_f64(1.0 - SETTLED)).await;
        seen
    };
    tokio::select! {
        seen = middle => from = seen,
        failed = work => {
            failed?;
            anyhow::bail!("the server ended the probe: run the same command again");
        }
    }
    let (at, after) = look();
    Ok((from.1, after, at.since(from.0)))
}

fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips_are_summed_up() {
        let ms = |times: &[u64]| times.iter().map(|&time| Duration::from_millis(time)).collect();
        let expect = |least, median, jitter| RoundTrips {
            least: Duration::from_millis(least),
            median: Duration::from_millis(median),
            jitter: Duration::from_millis(jitter),
        };
        assert_eq!(RoundTrips::of(ms(&[12, 10, 16])), expect(10, 12, 4));
        assert_eq!(RoundTrips::of(ms(&[5])), expect(5, 5, 0));
        assert_eq!(RoundTrips::of(Vec::new()), expect(0, 0, 0));
    }
}
