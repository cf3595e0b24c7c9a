//! Scenario files: a path and the hosts at its ends.

mod presets;
pub mod text;
mod words;

use core::ops::Range;
use core::str::FromStr;
use core::time::Duration;

use serde::Deserialize;
use serde::de::IgnoredAny;
use toml::Spanned;
use units::Rate;

use crate::change::{Change, Schedule};
use crate::{Limit, LinkConfig, PathConfig, PathError, QueueConfig};
pub use presets::{PRESETS, Preset};
use text::{text, time};
pub use words::Adjustment;

/// The longest scenario file, in bytes.
pub const MAX_SCENARIO: usize = 1 << 20;

/// The most hosts on each side.
pub const MAX_HOSTS: u32 = 1024;

/// The rate of a host's own link that only a delay is given of: 10 Gbit/s, as of a good adapter.
pub const ACCESS_RATE: Rate = Rate::from_bits_per_sec(10_000_000_000);

/// A path, who is at its ends, and for how long.
///
/// ```
/// let scenario: path::Scenario = r#"
///     about = "A long fat path that loses a packet in a thousand"
///     rtt = "200ms"
///     both = { rate = "1gbit", queue = "50ms" }
///     forward = { loss = "0.1%" }
/// "#.parse()?;
/// let (forward, back) = scenario.path.links::<u64>()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// What it shows, in a line.
    pub about: String,
    /// The bottleneck, both ways.
    pub path: PathConfig,
    /// Who is on the near side; never empty.
    pub near: Vec<HostGroup>,
    /// Who is on the far side; never empty.
    pub far: Vec<HostGroup>,
    /// How long a run takes, where it is part of the set-up.
    pub duration: Option<Duration>,
    /// Links between further routers, which the simulator alone has, and reads by itself.
    pub more_links: usize,
}

/// Hosts that are connected alike to one end of the path.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct HostGroup {
    /// How many (1).
    pub count: u32,
    /// Of each host's own link to the path, both ways. Without it no such link limits the host;
    /// one that has only a delay is [`ACCESS_RATE`].
    #[serde(deserialize_with = "text")]
    pub rate: Option<Rate>,
    /// One-way delay of that link (0).
    #[serde(deserialize_with = "time")]
    pub delay: Option<Duration>,
    /// The queue before it, both ways (50 ms drop-tail). Needs a rate.
    #[serde(deserialize_with = "text")]
    pub queue: Option<QueueConfig>,
    /// Processing time that the host needs for each packet that it sends, and for each that it receives
    /// (none). The simulator alone has it.
    #[serde(deserialize_with = "time")]
    pub per_packet: Option<Duration>,
}

/// How fast the link is that stands for a host's processing: what a packet's own bytes take is nothing.
const PROCESSING_RATE: u64 = 1_000_000_000_000_000;
/// Packets that wait for a host: as many as Linux lets wait for a processor, and at a device.
const PROCESSING_QUEUE: u64 = 1000;
/// The most that a packet may take.
const MAX_PROCESSING: Duration = Duration::from_secs(1);

impl Default for HostGroup {
    fn default() -> Self {
        Self { count: 1, rate: None, delay: None, queue: None, per_packet: None }
    }
}

impl HostGroup {
    /// The link of each of these hosts to the path, when it has one of its own.
    pub fn link(&self) -> Option<LinkConfig> {
        let rate = self.rate.or(self.delay.map(|_| ACCESS_RATE))?;
        let mut link = LinkConfig::new(rate, self.delay.unwrap_or_default());
        link.queue = self.queue.unwrap_or_default();
        Some(link)
    }

    /// The host's processing as a link that each packet occupies for the same time, each way.
    pub fn processing(&self) -> Option<LinkConfig> {
        let time = self.per_packet.filter(|time| !time.is_zero())?;
        let rate = Rate::from_bits_per_sec(PROCESSING_RATE);
        let mut link = LinkConfig::new(rate, Duration::ZERO);
        link.framing = rate.bytes_in(time);
        link.queue = QueueConfig::DropTail(Limit::Packets(PROCESSING_QUEUE));
        Some(link)
    }

    fn check(&self, rtt: Duration) -> Result<(), String> {
        self.check_words()?;
        self.link().map_or(Ok(()), |link| link.check(rtt)).map_err(|error| error.to_string())
    }

    /// What can be checked before the path is known.
    fn check_words(&self) -> Result<(), String> {
        if self.count == 0 || self.count > MAX_HOSTS {
            return Err(format!("a group has 1 to {MAX_HOSTS} hosts, not {}", self.count));
        }
        if self.rate.is_none() && self.queue.is_some() {
            return Err("hosts with a queue of their own need a rate".into());
        }
        if self.per_packet.is_some_and(|time| time > MAX_PROCESSING) {
            return Err(format!("a packet takes a host at most {MAX_PROCESSING:?}"));
        }
        Ok(())
    }
}

/// Why a scenario could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct ScenarioError {
    /// The line of the file, counted from 1, at which the fault is or which begins the table that
    /// holds it.
    pub line: usize,
    message: String,
}

impl ScenarioError {
    /// A fault at this place of the text, or of the whole.
    pub fn at(source: &str, place: Option<Range<usize>>, message: impl ToString) -> Self {
        let start = place.map_or(0, |place| place.start);
        let before = source.as_bytes().iter().take(start);
        let line = 1 + before.filter(|&&byte| byte == b'\n').count();
        Self { line, message: message.to_string() }
    }

    /// What is wrong, without its place.
    pub fn message(&self) -> &str {
        &self.message
    }
}

/// Where in the text something stands.
type Place = Range<usize>;

/// A scenario file as it is written. Parameters of both directions come first, then those of
/// each, and the same once more for every change.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct File {
    about: String,
    seed: Option<u64>,
    #[serde(default, deserialize_with = "time")]
    duration: Option<Duration>,
    #[serde(default, deserialize_with = "time")]
    rtt: Option<Duration>,
    both: Option<Spanned<Change>>,
    forward: Option<Spanned<Change>>,
    back: Option<Spanned<Change>>,
    #[serde(default)]
    near: Vec<Spanned<HostGroup>>,
    #[serde(default)]
    far: Vec<Spanned<HostGroup>>,
    #[serde(default)]
    change: Vec<Spanned<Step>>,
    #[serde(default, deserialize_with = "time")]
    repeat: Option<Duration>,
    /// What is sent over the path: for the simulator, which reads it by itself.
    #[serde(default, rename = "flow")]
    _flow: IgnoredAny,
    /// Other links, for the simulator as well.
    #[serde(default)]
    link: Vec<IgnoredAny>,
}

/// Changes at a time.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Step {
    #[serde(deserialize_with = "time")]
    at: Duration,
    #[serde(default, deserialize_with = "time")]
    rtt: Option<Duration>,
    #[serde(default)]
    both: Change,
    #[serde(default)]
    forward: Change,
    #[serde(default)]
    back: Change,
}

#[derive(Clone, Copy)]
enum Direction {
    Forward,
    Back,
}

impl Direction {
    /// What its table is called.
    fn name(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Back => "back",
        }
    }

    /// Its link of a path, and the other.
    fn of(self, path: &PathConfig) -> (&LinkConfig, &LinkConfig) {
        match self {
            Self::Forward => (&path.forward, &path.back),
            Self::Back => (&path.back, &path.forward),
        }
    }

    /// This direction's part of a round-trip time.
    fn half(self, rtt: Duration) -> Duration {
        match self {
            Self::Forward => rtt - rtt / 2,
            Self::Back => rtt / 2,
        }
    }
}

/// What a step or the head of a file states for one direction.
fn stated(rtt: Option<Duration>, direction: Direction, tables: [&Change; 2]) -> Change {
    let delay = rtt.map(|rtt| direction.half(rtt));
    let mut change = Change { delay, ..Change::default() };
    tables.into_iter().for_each(|table| change.merge(table));
    change
}

/// Reads a scenario that names no other file.
impl FromStr for Scenario {
    type Err = ScenarioError;
    fn from_str(source: &str) -> Result<Self, Self::Err> {
        Self::read(source, |name| Err(format!("'{name}' cannot be read from here")))
    }
}

impl Scenario {
    /// Reads a scenario. `load` returns the text of a file that it names, or why it cannot.
    ///
    /// # Errors
    /// The text is no scenario, has keys that nobody knows, or describes an impossible path.
    pub fn read(
        source: &str,
        load: impl FnMut(&str) -> Result<String, String>,
    ) -> Result<Self, ScenarioError> {
        if source.len() > MAX_SCENARIO {
            return Err(ScenarioError::at(source, None, "a scenario has at most 1 MiB"));
        }
        let file = toml::from_str(source).map_err(|error: toml::de::Error| {
            ScenarioError::at(source, error.span(), error.message())
        })?;
        Reader { source, file, load }.scenario()
    }

    /// The hosts of a side, one by one.
    pub fn hosts(groups: &[HostGroup]) -> impl Iterator<Item = &HostGroup> {
        groups.iter().flat_map(|group| core::iter::repeat_n(group, group.count as usize))
    }
}

struct Reader<'a, L> {
    source: &'a str,
    file: File,
    load: L,
}

impl<L: FnMut(&str) -> Result<String, String>> Reader<'_, L> {
    fn scenario(mut self) -> Result<Scenario, ScenarioError> {
        let (forward, forward_steps) = self.link(Direction::Forward)?;
        let (back, back_steps) = self.link(Direction::Back)?;
        let path = PathConfig { forward, back, seed: self.file.seed.unwrap_or(1) };
        let rtt = path.rtt();
        self.check(&path, Direction::Forward, &forward_steps)?;
        self.check(&path, Direction::Back, &back_steps)?;
        let near = self.hosts(&self.file.near, rtt)?;
        let far = self.hosts(&self.file.far, rtt)?;
        let File { about, duration, link, .. } = self.file;
        Ok(Scenario { about, path, near, far, duration, more_links: link.len() })
    }

    /// One direction, its schedule included, and where each step of that stands.
    fn link(&mut self, direction: Direction) -> Result<(LinkConfig, Vec<Place>), ScenarioError> {
        let place = self.place(direction);
        let usual = Change::default();
        let both = self.file.both.as_ref().map_or(&usual, Spanned::get_ref);
        let own = self.own(direction).map_or(&usual, Spanned::get_ref);
        let mut head = stated(self.file.rtt, direction, [both, own]);
        if head.blackout.is_some() || head.hold.is_some() {
            let message = "a blackout or hold happens at a time: put it into a [[change]]";
            return Err(ScenarioError::at(self.source, place, message));
        }
        resolve(self.source, &mut self.load, place, &mut head)?;
        let mut link = LinkConfig::new(Rate::ZERO, Duration::ZERO);
        head.apply(&mut link);
        let (mut steps, mut places) = (Vec::new(), Vec::new());
        // The schedule's own order, which leaves steps at one time as they are written.
        self.file.change.sort_by_key(|step| step.get_ref().at);
        for step in &self.file.change {
            let (place, step) = (step.span(), step.get_ref());
            let own = match direction {
                Direction::Forward => &step.forward,
                Direction::Back => &step.back,
            };
            let mut change = stated(step.rtt, direction, [&step.both, own]);
            resolve(self.source, &mut self.load, Some(place.clone()), &mut change)?;
            if change != Change::default() {
                steps.push((step.at, change));
                places.push(place);
            }
        }
        link.schedule = Schedule::new(steps, self.file.repeat);
        Ok((link, places))
    }

    fn own(&self, direction: Direction) -> Option<&Spanned<Change>> {
        match direction {
            Direction::Forward => self.file.forward.as_ref(),
            Direction::Back => self.file.back.as_ref(),
        }
    }

    /// Where a direction is described.
    fn place(&self, direction: Direction) -> Option<Place> {
        self.own(direction).or(self.file.both.as_ref()).map(Spanned::span)
    }

    /// Checks the link and then what each change makes of it, so that the right line is named.
    fn check(
        &self,
        path: &PathConfig,
        direction: Direction,
        steps: &[Place],
    ) -> Result<(), ScenarioError> {
        let (link, other) = direction.of(path);
        let rtt = path.rtt();
        let error = |place, error: PathError| ScenarioError::at(self.source, place, error);
        let mut state = link.clone();
        state.check_state(rtt).map_err(|e| {
            // Where no table is its own, its place does not tell which it is.
            let why = format_args!("{}: {e}", direction.name());
            ScenarioError::at(self.source, self.place(direction), why)
        })?;
        for ((_, change), place) in link.schedule.rounds().zip(steps.iter().cycle()) {
            let next = state.after(change, link.delay, rtt);
            state = next.map_err(|e| error(Some(place.clone()), e))?;
        }
        if let Some(step) = link.asks_old_rtt(other) {
            return Err(error(steps.get(step).cloned(), PathError::OldRtt));
        }
        link.schedule.check().map_err(|e| error(steps.last().cloned(), e))
    }

    fn hosts(
        &self,
        groups: &[Spanned<HostGroup>],
        rtt: Duration,
    ) -> Result<Vec<HostGroup>, ScenarioError> {
        if groups.is_empty() {
            return Ok(vec![HostGroup::default()]);
        }
        let mut count = 0;
        let check = |group: &Spanned<HostGroup>| {
            count += u64::from(group.get_ref().count);
            let all = (count <= u64::from(MAX_HOSTS))
                .then_some(())
                .ok_or_else(|| format!("a side has at most {MAX_HOSTS} hosts"));
            all.and_then(|()| group.get_ref().check(rtt))
                .map_err(|message| ScenarioError::at(self.source, Some(group.span()), message))?;
            Ok(*group.get_ref())
        };
        groups.iter().map(check).collect()
    }
}

/// Reads the files that a change names.
fn resolve(
    source: &str,
    load: &mut impl FnMut(&str) -> Result<String, String>,
    place: Option<Place>,
    change: &mut Change,
) -> Result<(), ScenarioError> {
    let mut read = |name: String| {
        load(&name).map_err(|message| ScenarioError::at(source, place.clone(), message))
    };
    if let Some(name) = change.rate_trace_file.take() {
        let trace = read(name.clone())?.parse();
        change.rate_trace = Some(trace.map_err(|error| {
            ScenarioError::at(source, place.clone(), format_args!("{name}: {error}"))
        })?);
    }
    if let Some(name) = change.loss_trace_file.take() {
        let trace = read(name.clone())?.parse().map(crate::LossConfig::Trace);
        change.loss = Some(trace.map_err(|error| {
            ScenarioError::at(source, place.clone(), format_args!("{name}: {error}"))
        })?);
    }
    Ok(())
}
