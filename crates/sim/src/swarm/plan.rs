//! What one run of the swarm does, drawn from its seed.

use core::num::NonZeroU8;
use core::time::Duration;

use path::{GilbertElliott, Limit, LinkConfig, LossConfig, PathConfig, QueueConfig};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};
use transport::cc::{Algorithm, Remembered};
use transport::{Class, Config, FeedbackKind, HALF_OPEN_TIME, Priority};
use units::{Bytes, Rate};

use super::part::Part;
use crate::Faults;

/// Every run moves at least so much.
pub const LEAST: u64 = 1 << 20;
/// More streams than either end may open at first, and how long each is at most.
const MANY: (usize, u64) = (150, 16 << 10);
/// Above this share of loss, controllers that take each loss for congestion are not asked.
const LOSS_BASED: f64 = 0.02;
/// Packets in a burst of losses at most, on average.
const LONGEST_BURST: u64 = 8;
/// What a burst costs when nothing but probes is left to be lost.
const PROBE: Duration = Duration::from_secs(2);
/// The longest burst, as a multiple of their mean: one in e^8 is longer, and one in e^11 is longer than
/// the hello is repeated, a minute more.
const WORST: u32 = 8;
/// No path is narrower: the hello has to pass.
const NARROWEST: u64 = 1260;
/// What a stream may hold unsent, and beyond its credit (`transport`: `UNSENT` and `AHEAD`).
const UNSENT: u64 = 6 << 20;
const AHEAD: u64 = 64 << 10;
/// A packet that carries data.
const PACKET_BITS: f64 = 1200.0 * 8.0;
/// What the positive acknowledgement of one takes.
const ACK_BITS: f64 = 130.0 * 8.0;

/// How an application reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// Whatever has come.
    AtOnce,
    /// So many bytes at a time, then a pause.
    Slow(u64, Duration),
    /// Nothing for so long after the stream was opened, then everything.
    Stalled(Duration),
}

/// How the stream of whoever opened it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// In order.
    Finish,
    /// The writer gives up after so many bytes.
    Reset(u64),
    /// The reader gives up after so many bytes.
    Stop(u64),
}

/// A stream of one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream {
    /// Which side opens it: 0 near, 1 far.
    pub opener: usize,
    /// Bytes that the opener writes.
    pub bytes: u64,
    /// Bytes that the other side writes once it has read to the end: the opener's half is closed.
    pub reply: u64,
    /// How both read.
    pub reader: Reader,
    /// How the opener's half ends.
    pub end: End,
    /// What both ends say of its urgency.
    pub priority: Priority,
}

/// One side dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kill {
    /// Which side.
    pub side: usize,
    /// When.
    pub at: Duration,
    /// It is there again, with nothing in memory, after this; never without it.
    pub restart: Option<Duration>,
}

/// One run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Fixes everything, the plan included.
    pub seed: u64,
    /// The path.
    pub path: PathConfig,
    /// What happens on it.
    pub faults: Faults,
    /// Who dies.
    pub kill: Option<Kill>,
    /// What is moved.
    pub streams: Vec<Stream>,
    /// Settings of both ends.
    pub config: Config,
    /// Each end is known by a key of its own, not by one that both hold.
    pub identities: bool,
}

/// Draws.
struct Dice(Pcg64Mcg);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0.next_u64() % n
    }

    fn one_in<T>(&mut self, n: u64, value: impl FnOnce(&mut Self) -> T) -> Option<T> {
        (self.below(n) == 0).then(|| value(self))
    }

    fn ms(&mut self, n: u64) -> Duration {
        Duration::from_millis(self.below(n))
    }

    fn choose<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }

    fn priority(&mut self) -> Priority {
        let class = self.choose(&[Class::Interactive, Class::Bulk, Class::Background]);
        let weight = NonZeroU8::MIN.saturating_add(self.below(10) as u8);
        Priority { class, group: self.below(3), weight }
    }

    /// A queue that marks what it would drop, where it may.
    fn marking(&mut self) -> QueueConfig {
        let min = self.choose(&[10, 20, 50]);
        let red = format!("min={min}ms,max={}ms,limit={}ms,ecn=yes", 4 * min, 16 * min);
        let queue = match self.below(3) {
            0 => "codel:ecn=yes".to_owned(),
            1 => format!("red:{red}"),
            _ => format!("red-i:{red}"),
        };
        queue.parse().expect("a queue")
    }

    /// Half the time small, up to `n` percent.
    fn percent(&mut self, n: u64) -> f64 {
        let most = self.choose(&[n, 3.min(n)]);
        self.below(most * 10 + 1) as f64 / 1000.0
    }
}

impl Plan {
    /// The plan of this seed.
    pub fn draw(seed: u64) -> Self {
        let mut dice = Dice(Pcg64Mcg::seed_from_u64(seed));
        let path = Self::draw_path(seed, &mut dice);
        let faults = Self::draw_faults(&mut dice);
        let kill = dice.one_in(12, |dice| Kill {
            side: dice.below(2) as usize,
            at: dice.ms(4000),
            restart: dice.one_in(2, |dice| dice.ms(20_000)),
        });
        let streams = Self::draw_streams(&mut dice);
        let (config, identities) = (Config::default(), false);
        let mut plan = Self { seed, path, faults, kill, streams, config, identities };
        plan.config = plan.draw_config(&mut dice);
        // Last, so that everything else of a seed stays what it was.
        if let Some(queue) = dice.one_in(6, Dice::marking) {
            plan.path.forward.queue = queue;
        }
        plan.identities = dice.below(3) == 0;
        plan
    }

    fn draw_path(seed: u64, dice: &mut Dice) -> PathConfig {
        let mbit = |rate: u64| Rate::from_bits_per_sec(rate * 1_000_000);
        let rate = mbit(dice.choose(&[2, 10, 50, 200, 1000]));
        let rtt = dice.choose(&[2, 20, 100, 300, 600]);
        let rtt = Duration::from_millis(1 + dice.below(rtt));
        let mut path = PathConfig::new(rate, rtt).with_seed(seed);
        for direction in [0, 1] {
            let loss = dice.percent(30);
            let loss = match dice.below(3) {
                0 => LossConfig::None,
                1 => LossConfig::Bernoulli(loss),
                _ => {
                    let length = 1 + dice.below(LONGEST_BURST);
                    LossConfig::GilbertElliott(GilbertElliott::bursts(loss, length as f64))
                }
            };
            let link = if direction == 0 { &mut path.forward } else { &mut path.back };
            link.loss = loss;
        }
        let thin = dice.one_in(6, |dice| dice.choose(&[10, 50, 100]));
        if let Some(thin) = thin {
            let rate = path.forward.rate.as_bits_per_sec() / thin;
            path.back.rate = Rate::from_bits_per_sec(rate.max(64_000));
            path.back.queue = QueueConfig::DropTail(Limit::Packets(10 + dice.below(50)));
        }
        path.forward.queue = match dice.below(4) {
            0 => QueueConfig::DropTail(Limit::Packets(3 + dice.below(20))),
            1 => "codel".parse().expect("a queue"),
            _ => QueueConfig::DropTail(Limit::Time(
                dice.choose(&[10, 50, 300]) * Duration::from_millis(1),
            )),
        };
        path
    }

    fn draw_faults(dice: &mut Dice) -> Faults {
        let mut faults = Faults {
            duplicate: dice.one_in(3, |dice| dice.percent(20)).unwrap_or(0.0),
            corrupt: dice.one_in(3, |dice| dice.percent(10)).unwrap_or(0.0),
            reorder: dice.one_in(3, |dice| dice.percent(30)).unwrap_or(0.0),
            jitter: {
                let most = dice.choose(&[3_000, 100_000]);
                Duration::from_micros(dice.below(most))
            },
            blackout: dice.one_in(5, |dice| {
                let most = dice.choose(&[500, 5_000, 60_000]);
                (dice.ms(4000), dice.ms(most))
            }),
            narrow: dice.one_in(6, |dice| (dice.ms(4000), (NARROWEST + dice.below(200)) as usize)),
            rebind: dice.one_in(8, |dice| dice.ms(4000)),
            moves: dice.one_in(10, |dice| dice.ms(4000)),
            replay: dice.one_in(6, |dice| dice.percent(10)).unwrap_or(0.0),
            ahead: dice.ms(1_000_000),
            jump: dice.one_in(8, |dice| (dice.ms(4000), dice.below(2) as usize, dice.ms(15_000))),
            freeze: dice.one_in(8, |dice| (dice.ms(4000), dice.below(2) as usize, dice.ms(5000))),
        };
        // Something has to happen in every run.
        faults.duplicate = faults.duplicate.max(0.02);
        faults
    }

    fn draw_streams(dice: &mut Dice) -> Vec<Stream> {
        let (count, most) = dice.choose(&[(1, LEAST), (2, LEAST), (5, LEAST), (20, LEAST), MANY]);
        let equal = dice.below(2) == 0;
        let mut streams: Vec<Stream> = (0..count)
            .map(|_| {
                let bytes = dice.below(most);
                Stream {
                    opener: usize::from(dice.below(4) == 0),
                    bytes,
                    reply: dice.one_in(4, |dice| dice.below(most / 4)).unwrap_or(0),
                    reader: match dice.below(8) {
                        0 => Reader::Slow(2000 + dice.below(100_000), Duration::from_millis(10)),
                        1 => Reader::Stalled(dice.ms(5000)),
                        _ => Reader::AtOnce,
                    },
                    end: match dice.below(12) {
                        0 => End::Reset(dice.below(bytes + 1)),
                        1 => End::Stop(dice.below(bytes + 1)),
                        _ => End::Finish,
                    },
                    priority: if equal { Priority::default() } else { dice.priority() },
                }
            })
            .collect();
        // What is given up does not count.
        let moved = streams.iter().filter(|s| s.end == End::Finish).map(|s| s.bytes).sum::<u64>();
        let (reply, reader, end) = (0, Reader::AtOnce, End::Finish);
        let bytes = LEAST.saturating_sub(moved) + dice.below(LEAST / 8);
        let priority = Priority::default();
        streams.push(Stream { opener: 0, bytes, reply, reader, end, priority });
        streams
    }

    fn draw_config(&self, dice: &mut Dice) -> Config {
        let link = self.path.forward.rate.as_bits_per_sec();
        let back = self.path.back.rate.as_bits_per_sec();
        let half = Rate::from_bits_per_sec(link / 2);
        let loss_based = self.harm() < LOSS_BASED;
        let congestion = match dice.below(12) {
            0 if loss_based => Algorithm::NewReno,
            1 if loss_based => Algorithm::Cubic,
            2 if loss_based => Algorithm::Udt,
            3 if loss_based => Algorithm::UdtG,
            // Both ends send so fast: more than a link carries is a user's mistake.
            4 => Algorithm::Fixed(half.min(Rate::from_bits_per_sec(back / 2))),
            5 | 6 => Algorithm::Background,
            _ => Algorithm::Longhaul,
        };
        let outage = self.faults.blackout.map_or(Duration::ZERO, |(_, length)| length);
        let usual = Config::default();
        Config {
            congestion,
            remembered: dice.one_in(4, |dice| Remembered {
                rate: Rate::from_bits_per_sec(link * dice.choose(&[1, 10, 100]) / 10),
                rtt: self.path.rtt() * dice.choose(&[1, 1, 3]),
            }),
            feedback: dice.one_in(12, |_| FeedbackKind::PositiveAck).unwrap_or_default(),
            rate_limit: dice.one_in(10, |_| half),
            receive_memory: dice.choose(&[Bytes::kib(256), Bytes::mib(4), Bytes::mib(512)]),
            send_memory: dice.choose(&[Bytes::kib(64), Bytes::mib(1), Bytes::mib(512)]),
            max_streams: dice.choose(&[64, usual.max_streams]),
            admission: dice.one_in(6, |dice| Bytes::kib(1 + dice.below(256))),
            key_packets: dice.one_in(4, |dice| 50 + dice.below(500)).unwrap_or(usual.key_packets),
            // The path comes back before anybody gives up.
            idle_timeout: Duration::from_secs(30) + outage + self.bursts(),
            connect_timeout: Duration::from_secs(60) + outage + self.bursts(),
            ..usual
        }
    }

    /// The share of packets, both ways, to which something happens that looks like congestion.
    fn harm(&self) -> f64 {
        let losses = self.path.forward.loss.mean_loss() + self.path.back.loss.mean_loss();
        losses + 2.0 * self.faults.corrupt + 2.0 * self.faults.reorder
    }

    /// What the longest burst costs, one way or the other, when it strikes probes. A path that becomes narrower
    /// loses a whole window.
    fn bursts(&self) -> Duration {
        let losses = [&self.path.forward, &self.path.back].map(|link| link.loss.mean_loss());
        let Faults { corrupt, narrow, .. } = self.faults;
        if losses == [0.0; 2] && corrupt == 0.0 && narrow.is_none() {
            return Duration::ZERO;
        }
        let mean = burst(&self.path.forward) + burst(&self.path.back) - 1.0;
        WORST * PROBE.mul_f64(mean)
    }

    /// The plan without some of its faults.
    #[must_use]
    pub fn without(mut self, parts: &[Part]) -> Self {
        parts.iter().for_each(|part| part.take_from(&mut self));
        self
    }

    /// How long a perfect transport would take: every byte once, at the rate that loss leaves, with
    /// what bursts cost that strike what is told of them, and two round trips, one to connect. For a controller that takes losses for
    /// congestion the rate is what its response function gives (Mathis et al., 1997).
    pub fn ideal(&self) -> Duration {
        let (mut near, mut far) = (0, 0);
        for stream in &self.streams {
            let both = [stream.bytes, stream.reply];
            near += both[stream.opener];
            far += both[1 - stream.opener];
        }
        let rtt = self.path.rtt().as_secs_f64();
        let PathConfig { forward, back, .. } = &self.path;
        let each = [(near, forward, back), (far, back, forward)].map(|(bytes, link, other)| {
            let lost = link.loss.mean_loss() + self.faults.corrupt;
            let mut rate = link.rate.as_bits_per_sec() as f64 * (1.0 - lost);
            match self.config.congestion {
                Algorithm::NewReno | Algorithm::Cubic if self.harm() > 0.0 => {
                    rate = rate.min(PACKET_BITS * 1.2 / (rtt * self.harm().sqrt()));
                }
                Algorithm::Fixed(fixed) => rate = rate.min(fixed.as_bits_per_sec() as f64),
                Algorithm::Udt | Algorithm::UdtG if self.harm() > 0.0 => {
                    rate = rate.min(udt_rate(link.rate, self.harm()));
                }
                _ => {}
            }
            rate =
                self.config.rate_limit.map_or(rate, |most| rate.min(most.as_bits_per_sec() as f64));
            if self.config.feedback == FeedbackKind::PositiveAck {
                rate = rate.min(other.rate.as_bits_per_sec() as f64 * PACKET_BITS / ACK_BITS);
            }
            // A small window bounds the rate as well: a stream's is the memory but for a reserve.
            rate = rate.min(self.config.receive_memory.0 as f64 * 7.0 / 8.0 * 8.0 / rtt);
            // Who waits for a report waits until a burst that strikes them is over.
            let told = 1.0 + other.loss.mean_loss() * burst(other);
            bytes as f64 * 8.0 * 1.05 / rate * told
        });
        Duration::from_secs_f64(each.iter().sum::<f64>() + 2.0 * rtt)
    }

    /// The most that may have been written and not been read: what the receivers have memory for,
    /// what the senders queue, and what each stream may hold beside that.
    pub fn memory(&self) -> u64 {
        let Config { receive_memory, send_memory, .. } = self.config;
        let ahead = UNSENT.min(2 * receive_memory.0);
        2 * (receive_memory.0 + send_memory.0 + ahead + AHEAD * self.streams.len() as u64)
    }

    /// Whether the far side may forget a connection before it hears of it again. From its reply to the
    /// last repeat of the hello half of that time passes; the other half an outage, a jump of its
    /// clock and a host that stands still may use up together.
    pub fn outlasts_the_opening(&self) -> bool {
        let Faults { blackout, jump, freeze, .. } = self.faults;
        let outage = blackout.map_or(Duration::ZERO, |(_, length)| length);
        let jump = jump.map_or(Duration::ZERO, |(_, _, length)| length);
        let freeze = freeze.map_or(Duration::ZERO, |(_, _, length)| length);
        (outage + jump + freeze) * 2 > HALF_OPEN_TIME
    }

    /// Time in which nothing can move, whoever carries it: outages, readers that do not read, and
    /// what it takes to notice that the other end has died.
    pub fn standstill(&self) -> Duration {
        let Faults { blackout, freeze, jump, .. } = self.faults;
        let mut time = blackout.map_or(Duration::ZERO, |(at, length)| at + length);
        time += freeze.map_or(Duration::ZERO, |(at, _, length)| at + length);
        time += jump.map_or(Duration::ZERO, |(at, ..)| at);
        time += self.bursts();
        time += self.streams.iter().map(|stream| stream.reading()).max().unwrap_or_default();
        if let Some(Kill { at, restart, .. }) = self.kill {
            time += at + restart.unwrap_or_default() + 2 * self.config.idle_timeout;
        }
        time
    }
}

/// Packets in a burst of losses, on average.
fn burst(link: &LinkConfig) -> f64 {
    match link.loss {
        LossConfig::GilbertElliott(states) => 1.0 / states.to_good,
        _ => 1.0,
    }
}

/// The bits a second at which UDT's growth and what a share `harm` of losses costs are equal:
/// `increase` packets more each 10 ms, a ninth less at each loss.
fn udt_rate(link: Rate, harm: f64) -> f64 {
    let spare = link.as_bits_per_sec() as f64;
    let increase = 10f64.powf(spare.log10().ceil()) * 1.5e-6 / 1500.0;
    PACKET_BITS * (9.0 * increase * 100.0 * 100.0 / harm).sqrt()
}

impl Stream {
    /// How long the reader itself takes.
    fn reading(&self) -> Duration {
        match self.reader {
            Reader::AtOnce => Duration::ZERO,
            Reader::Slow(bytes, pause) => {
                pause * ((self.bytes + self.reply) / bytes + 2).min(1 << 20) as u32
            }
            Reader::Stalled(time) => 2 * time,
        }
    }
}
