//! A link under a sequence of packets and polls, of every queue discipline.

use core::time::Duration;
use std::collections::VecDeque;

use arbitrary::{Result, Unstructured};
use path::{
    CodelConfig, DropCause, Exit, Fate, FqCodelConfig, Jitter, Limit, Link, LinkConfig, LossConfig,
    Packet, QueueConfig, RedConfig,
};
use units::{Bytes, Instant, Rate};

const RTT: Duration = Duration::from_millis(10);
/// Packets of one run at most.
const MOST: usize = 300;

/// The same packets through one link that is polled as the input says, through one that is polled
/// at the very end, and, where no discipline chooses, through a model of six lines.
pub fn run(input: &[u8]) {
    let mut input = Unstructured::new(input);
    let Ok(config) = config(&mut input) else { return };
    let mut link: Link<usize> = config.link(RTT, 7).expect("a valid link");
    let mut late: Link<usize> = config.link(RTT, 7).expect("a valid link");
    let mut model = DropTail::of(&config);
    let (mut exits, mut flows, mut taken) = (Vec::new(), Vec::new(), 0);
    let mut now = Instant::ZERO;
    while let Ok((packet, wait, poll)) = step(&mut input)
        && flows.len() < MOST
    {
        if poll {
            drain(&mut link, (now, now + wait), &mut exits);
        }
        now += wait;
        let number = flows.len();
        flows.push(packet.flow);
        let outcome = link.send_packet(now, packet, number).map_err(|refused| refused.cause);
        let again = late.send_packet(now, packet, number).map_err(|refused| refused.cause);
        assert_eq!(outcome, again, "packet {number} depends on when the link was polled");
        taken += usize::from(outcome.is_ok());
        if let Some(model) = &mut model {
            assert_eq!(outcome.is_ok(), model.send(now, packet.size, number), "packet {number}");
        }
        check_counters(&link);
    }
    let end = now + Duration::from_secs(1 << 20);
    drain(&mut link, (now, end), &mut exits);
    assert_eq!((link.held(), exits.len()), (0, taken), "what was taken comes out once");
    let mut again = Vec::new();
    drain(&mut late, (now, end), &mut again);
    assert_eq!(exits, again);
    check_counters(&link);
    check_order(&config, &exits, &flows);
    if let Some(model) = model {
        let exits: Vec<_> = exits.iter().map(|exit| (exit.due, exit.item)).collect();
        assert_eq!(exits, model.exits);
    }
}

fn config(input: &mut Unstructured<'_>) -> Result<LinkConfig> {
    let rate = Rate::from_bits_per_sec(*input.choose(&[8_000, 1_000_000, 999_999_937])?);
    let delay = Duration::from_micros(input.int_in_range(0..=20_000)?);
    let mut config = LinkConfig::new(rate, delay);
    let limit = match input.int_in_range(0..=2)? {
        0 => Limit::Packets(input.int_in_range(0..=40)?),
        1 => Limit::Bytes(Bytes(input.int_in_range(0..=60_000)?)),
        _ => Limit::Time(Duration::from_micros(input.int_in_range(0..=50_000)?)),
    };
    let codel = |input: &mut Unstructured<'_>| {
        let target = Duration::from_micros(input.int_in_range(1..=2_000)?);
        let interval = target * input.int_in_range(1..=20)?;
        Ok(CodelConfig { target, interval, limit, ecn: input.arbitrary()? })
    };
    let red = |input: &mut Unstructured<'_>| {
        let min = input.int_in_range(1..=20)?;
        Ok(RedConfig {
            min: Some(Limit::Packets(min)),
            max: Some(Limit::Packets(min + input.int_in_range(1..=20)?)),
            limit: Some(limit),
            gentle: input.arbitrary()?,
            ecn: input.arbitrary()?,
            ..RedConfig::default()
        })
    };
    config.queue = match input.int_in_range(0..=4)? {
        0 => QueueConfig::DropTail(limit),
        1 => QueueConfig::Red(red(input)?),
        2 => QueueConfig::RedI(red(input)?),
        3 => QueueConfig::Codel(codel(input)?),
        _ => QueueConfig::FqCodel(FqCodelConfig {
            codel: codel(input)?,
            flows: input.int_in_range(1..=8)?,
            quantum: Bytes(input.int_in_range(1..=3000)?),
        }),
    };
    if input.arbitrary()? {
        config.loss = LossConfig::Bernoulli(0.1);
        config.impairments.duplicate = 0.1;
        config.impairments.corrupt = 0.1;
        config.impairments.silent = input.arbitrary()?;
        config.impairments.reorder = *input.choose(&[0.0, 0.2])?;
        config.impairments.reorder_by = Duration::from_millis(2);
        config.impairments.jitter = Jitter::Uniform(Duration::from_millis(3));
        config.impairments.keep_order = input.arbitrary()?;
    }
    Ok(config)
}

/// The next packet, how long after the last it comes, and whether the link is polled before.
fn step(input: &mut Unstructured<'_>) -> Result<(Packet, Duration, bool)> {
    if input.is_empty() {
        return Err(arbitrary::Error::NotEnoughData);
    }
    let size = Bytes(*input.choose(&[0, 1, 40, 700, 1500, 9000])?);
    let packet = Packet { size, flow: input.int_in_range(0..=4)?, ecn_capable: input.arbitrary()? };
    let wait = Duration::from_nanos(*input.choose(&[0, 1, 12_345, 1_000_000, 80_000_000])?);
    Ok((packet, wait, input.arbitrary()?))
}

/// Polls as a driver would: from the last call on at each time that the link names, up to `until`.
fn drain(
    link: &mut Link<usize>,
    (mut now, until): (Instant, Instant),
    exits: &mut Vec<Exit<usize>>,
) {
    while let Some(at) = link.next_exit().filter(|&at| at <= until) {
        // Before the time that is named nothing arrives, though a discipline may drop.
        for time in [now.max(Instant::from_nanos(at.as_nanos().saturating_sub(1))), now.max(at)] {
            now = time;
            while let Some(exit) = link.poll(now) {
                assert!(exit.due <= now && exits.last().is_none_or(|last| last.due <= exit.due));
                assert!(now >= at || exit.fate != Fate::Delivered, "earlier than {at}: {exit:?}");
                exits.push(exit);
            }
        }
    }
}

/// Everything offered is delivered, dropped, or inside.
pub fn check_counters<T>(link: &Link<T>) {
    let counters = link.counters();
    let drops = DropCause::ALL.map(|cause| counters.dropped(cause).packets);
    let gone = counters.delivered.packets + drops.iter().sum::<u64>();
    assert_eq!(counters.offered.packets, gone + link.held() as u64);
    let queued = link.backlog().packets as usize;
    assert!(queued <= link.held() && link.held() <= link.capacity());
}

/// Packets of a flow do not overtake each other on a line that keeps the order.
fn check_order(config: &LinkConfig, exits: &[Exit<usize>], flows: &[u64]) {
    let impairments = &config.impairments;
    if !impairments.keep_order || impairments.reorder > 0.0 {
        return;
    }
    let mut last = [None; 5];
    for exit in exits.iter().filter(|exit| exit.fate == Fate::Delivered) {
        let last = &mut last[flows[exit.item] as usize];
        assert!(last.is_none_or(|last| last < exit.item), "{} was overtaken", exit.item);
        *last = Some(exit.item);
    }
}

/// First in, first out: each packet begins when the one before is out, unless too much waits.
struct DropTail {
    rate: u128,
    delay: Duration,
    limit: Limit,
    /// When each waiting packet begins, and its size.
    waiting: VecDeque<(Instant, u64)>,
    /// When the transmitter is free, and the fraction of a nanosecond, in 1/rate.
    free: (Instant, u128),
    exits: Vec<(Instant, usize)>,
}

impl DropTail {
    fn of(config: &LinkConfig) -> Option<Self> {
        let QueueConfig::DropTail(limit) = config.queue else { return None };
        (config.loss == LossConfig::None).then(|| Self {
            rate: config.rate.as_bits_per_sec().into(),
            delay: config.delay,
            limit,
            waiting: VecDeque::new(),
            free: (Instant::ZERO, 0),
            exits: Vec::new(),
        })
    }

    fn send(&mut self, now: Instant, size: Bytes, number: usize) -> bool {
        self.waiting.retain(|&(start, _)| start > now);
        let (bytes, packets) =
            (self.waiting.iter().map(|(_, size)| size).sum::<u64>(), self.waiting.len());
        let fits = match self.limit {
            Limit::Packets(most) => (packets as u64) < most,
            Limit::Bytes(_) | Limit::Time(_) => {
                let rate = Rate::from_bits_per_sec(self.rate as u64);
                Bytes(bytes) + size <= self.limit.bytes(rate)
            }
        };
        if self.free.0 > now && !fits {
            return false;
        }
        if self.free.0 < now {
            self.free = (now, 0);
        }
        let start = self.free.0;
        let work = u128::from(size.0) * 8_000_000_000 + self.free.1;
        self.free = (start + Duration::from_nanos((work / self.rate) as u64), work % self.rate);
        self.waiting.push_back((start, size.0));
        self.exits.push((self.free.0 + self.delay, number));
        true
    }
}

/// Nothing, and a little of everything: the input is a sequence of choices.
pub fn seeds() -> Vec<Vec<u8>> {
    let scrambled = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
    (0..8u64).map(|seed| (0..60).flat_map(|n| scrambled(seed * 60 + n)).collect()).collect()
}
