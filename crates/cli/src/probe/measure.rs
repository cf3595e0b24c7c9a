//! Takes the figures of a path, from this end of a connection to a server that answers probes.

use std::time::Duration;

use net::udp::{UdpConnection, UdpStream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;
use tokio::task::coop::consume_budget;
use tokio::time::{interval, sleep};
use transfer::wire::PROBE_MAX;
use transport::{Limit, LimitTimes, Stats};
use units::{Bytes, Instant, Rate};

use crate::verdict::Held;

/// Echoes asked for, and the time between two: a second in all.
const ECHOES: u32 = 20;
const ECHO_EVERY: Duration = Duration::from_millis(50);
/// Bytes written or read in one go.
const BLOCK: usize = 64 << 10;
/// Figures are those from this share of the time on, when the start is over.
const SETTLED: f64 = 0.6;
/// Rates are compared over so much time, many reports and batches of packets.
const MOMENT: Duration = Duration::from_millis(250);
/// Fewer moments say nothing of how much they differ.
const MOMENTS_MIN: usize = 6;

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
    /// What held the sender back for longest, and for which share of the time.
    pub held: Option<(Held, f64)>,
    /// How much the rate differs from one moment to the next, as a share of it.
    pub variation: Option<f64>,
    /// Smoothed round-trip time at the end.
    pub loaded: Duration,
    /// The least of the idle path.
    pub idle: Duration,
    /// The other side sends.
    pub fetched: bool,
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
    let watched = watched(connection, time, sending).await?;
    let (before, after, elapsed) = watched.ends();
    let (sent, lost) = (after.sent.1 - before.sent.1, after.lost.1 - before.lost.1);
    // There are always zeros to send.
    let held = held(&before.limits, &after.limits, Held::Cpu);
    Ok(Flow {
        rate: Rate::of(sent - lost, elapsed).unwrap_or_default(),
        capacity: after.capacity.0,
        loss: share(after.lost.0 - before.lost.0, after.sent.0 - before.sent.0),
        held,
        variation: watched.variation(|stats| stats.sent.1 - stats.lost.1 - stats.in_flight),
        loaded: after.rtt,
        ..Flow::default()
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
    let watched = watched(connection, time, reading).await?;
    let (before, after, elapsed) = watched.ends();
    let came = after.received.0 - before.received.0;
    let missing = after.missing.saturating_sub(before.missing);
    Ok(Flow {
        rate: Rate::of(after.received.1 - before.received.1, elapsed).unwrap_or_default(),
        capacity: after.capacity.1,
        loss: share(missing, missing + came),
        held: held(&before.remote_limits, &after.remote_limits, Held::FarCpu),
        variation: watched.variation(|stats| stats.received.1),
        loaded: after.rtt,
        fetched: true,
        ..Flow::default()
    })
}

/// What held for longest; whoever has nothing to send although there is more, has no time.
fn held(before: &LimitTimes, after: &LimitTimes, busy: Held) -> Option<(Held, f64)> {
    let times = Limit::ALL.map(|limit| (limit, after.of(limit).saturating_sub(before.of(limit))));
    let whole: Duration = times.iter().map(|&(_, time)| time).sum();
    let (limit, time) = times.into_iter().max_by_key(|&(_, time)| time)?;
    let held = match limit {
        Limit::Application => busy,
        Limit::Cpu => Held::Cpu,
        Limit::SocketBuffer => Held::Buffer,
        Limit::Credit => Held::Window,
        Limit::Congestion | Limit::Pacing => Held::Path,
    };
    (!whole.is_zero()).then(|| (held, time.as_secs_f64() / whole.as_secs_f64()))
}

/// The connection's figures from when the start is over to the end.
struct Watched(Vec<(Instant, Stats)>);

impl Watched {
    /// The first and the last, and the time between.
    fn ends(&self) -> (Stats, Stats, Duration) {
        let ((from, before), (at, after)) = (self.0[0], self.0[self.0.len() - 1]);
        (before, after, at.since(from))
    }

    /// How much the rate of something that adds up differs between moments: its standard deviation, as a
    /// share of the mean.
    fn variation(&self, amount: impl Fn(&Stats) -> Bytes) -> Option<f64> {
        let rate = |pair: &[(Instant, Stats)]| {
            let moved = amount(&pair[1].1) - amount(&pair[0].1);
            Some(Rate::of(moved, pair[1].0.since(pair[0].0))?.as_bits_per_sec() as f64)
        };
        let rates: Vec<f64> = self.0.windows(2).filter_map(rate).collect();
        let mean = rates.iter().sum::<f64>() / rates.len().max(1) as f64;
        if rates.len() < MOMENTS_MIN || mean <= 0.0 {
            return None;
        }
        let squares: f64 = rates.iter().map(|rate| (rate - mean).powi(2)).sum();
        Some((squares / rates.len() as f64).sqrt() / mean)
    }
}

/// Keeps at `work`, which must yield, for some time.
async fn watched(
    connection: &UdpConnection,
    time: Duration,
    work: impl Future<Output = std::io::Result<()>>,
) -> anyhow::Result<Watched> {
    let look = || (net::clock::now(), connection.stats());
    let watching = async {
        sleep(time.mul_f64(SETTLED)).await;
        let rest = time.mul_f64(1.0 - SETTLED);
        let moments = (rest.as_secs_f64() / MOMENT.as_secs_f64()).floor().max(1.0) as u32;
        let mut looks = vec![look()];
        for _ in 0..moments {
            sleep(rest / moments).await;
            looks.push(look());
        }
        looks
    };
    tokio::select! {
        looks = watching => Ok(Watched(looks)),
        failed = work => {
            failed?;
            anyhow::bail!("the server ended the probe: run the same command again");
        }
    }
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

    #[test]
    fn moments_are_compared() {
        let watched = |moved: &[u64]| {
            let look = |(n, &bytes): (usize, &u64)| {
                let received = (0, Bytes(bytes));
                (Instant::ZERO + MOMENT * n as u32, Stats { received, ..Stats::default() })
            };
            Watched(moved.iter().enumerate().map(look).collect())
        };
        let variation = |moved: &[u64]| watched(moved).variation(|stats| stats.received.1);
        assert_eq!(variation(&[0, 10, 20, 30, 40, 50]), None, "too few");
        assert_eq!(variation(&[5; 9]), None, "nothing moved");
        assert!(variation(&[0, 10, 20, 30, 40, 50, 60]).unwrap() < 1e-9);
        // 5 and 15 in turn.
        let uneven = variation(&[0, 5, 20, 25, 40, 45, 60]).unwrap();
        assert!((0.49..0.51).contains(&uneven), "{uneven}");
        assert_eq!(watched(&[3, 4]).ends().2, MOMENT);
    }
}
