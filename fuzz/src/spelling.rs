//! Everything about a path that people write: scenario files, traces, and single settings.

use core::fmt::{Debug, Display};
use core::str::FromStr;
use core::time::Duration;

use path::{
    DropCause, Exit, Fate, HostGroup, Jitter, Limit, Link, LinkConfig, LossConfig, LossTrace,
    MAX_HOSTS, PRESETS, QueueConfig, RateTrace, Scenario,
};
use units::{Bytes, Instant, Rate};

use crate::link;

/// A file that a scenario may name.
const A_TRACE: &str = "0\n1\n1\n5\n";

/// Packets sent along what was read.
const PACKETS: u64 = 32;

/// What can be read can be built, and what was built keeps its packets together.
pub fn scenario(input: &[u8]) {
    let Ok(text) = str::from_utf8(input) else { return };
    let load =
        |name: &str| if name == "none" { Err("none".into()) } else { Ok(A_TRACE.to_owned()) };
    let scenario = match Scenario::read(text, load) {
        Ok(scenario) => scenario,
        Err(error) => {
            let lines = text.bytes().filter(|&byte| byte == b'\n').count() + 1;
            assert!((1..=lines).contains(&error.line), "{error}");
            return;
        }
    };
    let rtt = scenario.path.rtt();
    let (forward, back) = scenario.path.links().expect("what was read is checked");
    for (config, link) in [(&scenario.path.forward, forward), (&scenario.path.back, back)] {
        assert!(config.most_held(rtt, Bytes(1500)) > Bytes::ZERO);
        exercise(link);
    }
    for side in [&scenario.near, &scenario.far] {
        let hosts = Scenario::hosts(side).count();
        assert!((1..=MAX_HOSTS as usize).contains(&hosts));
        for config in side.iter().filter_map(HostGroup::link) {
            exercise(config.link(rtt, 1).expect("what was read is checked"));
        }
    }
}

/// Sends a few packets far apart and close together, and asks for all of them again.
fn exercise(mut link: Link<u64>) {
    let mut now = Instant::ZERO;
    let (mut taken, mut left) = (0, 0);
    for number in 0..PACKETS {
        taken += usize::from(link.send(now, Bytes(number * 47), number).is_ok());
        now += Duration::from_micros(1 << (number % 24));
        left += core::iter::from_fn(|| link.poll(now)).count();
        assert_eq!(link.held(), taken - left);
    }
    link::check_counters(&link);
}

/// The presets.
pub fn scenario_seeds() -> Vec<Vec<u8>> {
    let mut seeds: Vec<_> =
        PRESETS.iter().map(|preset| preset.source.as_bytes().to_vec()).collect();
    seeds.push(
        b"about = \"all\"\nrtt = \"1ms\"\nseed = 3\nduration = \"1s\"\nrepeat = \"9s\"\n\
        both = { rate-trace-file = \"t\", loss-trace-file = \"l\", mtu = \"1500B\", icmp = false, \
        framing = \"38B\", atm = true, cell-loss = \"1%\", bit-error = 1e-9, corrupt = 0.1, \
        silent = true, duplicate = 0.1, reorder = 0.1, reorder-by = \"3ms\", \
        jitter = \"uniform:1ms\", keep-order = false }\n\
        near = [{ count = 2, rate = \"10mbit\", delay = \"1ms\", queue = \"red\" }]\n\
        [[change]]\nat = \"1s\"\nboth = { blackout = \"1s\" }\n\
        [[change]]\nat = \"3s\"\nforward = { hold = \"1s\", loss = \"bursts:loss=1%,length=9\" }\n"
            .to_vec(),
    );
    seeds
}

/// A rate trace lets pass what its lines say: the same as a plain walk along them.
pub fn rate_trace(input: &[u8]) {
    let Ok(text) = str::from_utf8(input) else { return };
    let Ok(trace) = text.parse::<RateTrace>() else { return };
    let lines =
        text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let times: Vec<u64> = lines.map(|line| line.parse().expect("it was read")).collect();
    let period = times.last().copied().expect("a trace has a line");
    assert_eq!(trace.period(), Duration::from_millis(period));
    let bits = Rate::of(Bytes(1500 * times.len() as u64), trace.period());
    assert_eq!(Some(trace.mean_rate()), bits);

    let mut config = LinkConfig::new(Rate::from_bits_per_sec(1), Duration::ZERO);
    config.trace = Some(trace);
    config.queue = QueueConfig::DropTail(Limit::Packets(PACKETS));
    let mut link = config.link(Duration::ZERO, 1).expect("a valid link");
    for number in 0..PACKETS {
        link.send(Instant::ZERO, Bytes(1500), number).expect("there is room");
    }
    let opportunities = (0..).flat_map(|round| times.iter().map(move |at| round * period + at));
    for (number, at) in (0..PACKETS).zip(opportunities) {
        let due = Instant::ZERO + Duration::from_millis(at);
        assert_eq!(link.poll(due), Some(delivered(due, number)), "{times:?}");
    }
}

fn delivered(due: Instant, item: u64) -> Exit<u64> {
    let (marked, damage, duplicated) = (false, None, false);
    Exit { due, size: Bytes(1500), item, fate: Fate::Delivered, marked, damage, duplicated }
}

/// Traces as they are recorded.
pub fn rate_trace_seeds() -> Vec<Vec<u8>> {
    ["1\n", "0\n0\n3\n3\n3\n17\n", "# a remark\n 5\r\n\n6\n", "4294967295\n", "2\n1\n"]
        .map(|text| text.as_bytes().to_vec())
        .into()
}

/// A loss trace loses the packets that its signs say, round and round.
pub fn loss_trace(input: &[u8]) {
    let Ok(text) = str::from_utf8(input) else { return };
    let Ok(trace) = text.parse::<LossTrace>() else { return };
    let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
    let signs: Vec<bool> =
        lines.flat_map(str::chars).filter(|c| !c.is_whitespace()).map(|c| c == '1').collect();
    assert_eq!(trace.packets(), signs.len());
    let mut config = LinkConfig::new(Rate::from_bits_per_sec(u64::MAX), Duration::ZERO);
    config.loss = LossConfig::Trace(trace);
    let mut link = config.link(Duration::ZERO, 1).expect("a valid link");
    for (number, &lost) in signs.iter().cycle().take(2 * signs.len().min(1000) + 1).enumerate() {
        let now = Instant::from_nanos(number as u64);
        link.send(now, Bytes(1), number).expect("there is room");
        let fate = link.poll(now).map(|exit| exit.fate);
        let expected = if lost { Fate::Dropped(DropCause::Loss) } else { Fate::Delivered };
        assert_eq!(fate, Some(expected), "packet {number}");
    }
}

/// Traces as they are recorded.
pub fn loss_trace_seeds() -> Vec<Vec<u8>> {
    ["0001", "# a remark\n0 1\n 1\t0\r\n", "1", "02"].map(|text| text.as_bytes().to_vec()).into()
}

/// What a setting shows, it also reads, and that gives the same.
pub fn configs(input: &[u8]) {
    let Ok(text) = str::from_utf8(input) else { return };
    reads_what_it_shows::<QueueConfig>(text);
    reads_what_it_shows::<Jitter>(text);
    if !matches!(text.parse(), Ok(LossConfig::Trace(_))) {
        reads_what_it_shows::<LossConfig>(text);
    }
    // These show what is good for the eye, and round.
    let _ = text.parse::<Limit>().map(|limit| (limit.to_string(), limit.bytes(Rate::ZERO)));
    let _ = text.parse::<Rate>().map(|rate| rate.to_string());
    let _ = text.parse::<Bytes>().map(|bytes| bytes.to_string());
}

fn reads_what_it_shows<T>(text: &str)
where
    T: FromStr + Display + PartialEq + Debug,
{
    if let Ok(value) = text.parse::<T>() {
        let shown = value.to_string();
        assert_eq!(shown.parse::<T>().ok().as_ref(), Some(&value), "{shown}");
    }
}

/// One of each.
pub fn config_seeds() -> Vec<Vec<u8>> {
    [
        "50ms",
        "6MiB",
        "100packets",
        "1.5gbit",
        "red:min=10packets,max=20packets,max_p=0.1,gentle=yes,limit=1MiB,weight=0.002,ecn=yes",
        "red-i",
        "codel:target=5ms,interval=100ms,ecn=yes,limit=1MiB",
        "fq-codel:flows=16,quantum=300B,target=1ms",
        "1%",
        "bursts:loss=1%,length=5",
        "gilbert-elliott:to_bad=0.01,to_good=0.2,good=0,bad=1",
        "trace:0010",
        "uniform:5ms",
        "exponential:1ms 500us",
    ]
    .map(|text| text.as_bytes().to_vec())
    .into()
}
