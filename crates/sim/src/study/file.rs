//! Scenario files with flows.
//!
//! The path, its hosts and its changes are read by `path::Scenario`, as the emulator reads them;
//! here only the `[[flow]]` and `[[link]]` tables are, of the same text.

use core::str::FromStr;
use core::time::Duration;

use path::spelled::{text, time};
use path::{LinkConfig, LossConfig, QueueConfig, Scenario, ScenarioError};
use serde::Deserialize;
use stripe::count::{MAX_CONNECTIONS, Policy};
use toml::Spanned;
use transport::FeedbackKind;
use transport::cc::Algorithm;
use units::{Bytes, Rate};

use super::striped::Striping;
use super::topology::{FAR, NEAR, Topology, Wire};
use super::{FlowConfig, Protocol, Study};
use crate::tcp::{Config, Congestion, Flight, MinRto, Recovery, Source};

/// The most flows of a study.
pub const MAX_FLOWS: usize = 20_000;
/// The most links beside the path.
pub const MAX_WIRES: usize = 1000;
/// How long a run is when the file does not say.
const DURATION: Duration = Duration::from_secs(60);
/// The most payload of an IP packet with TCP's headers.
const MAX_MSS: u64 = 65_535 - HEADERS;
/// IP and TCP headers with timestamps.
const HEADERS: u64 = 52;

/// The part of the file that is read here.
#[derive(Deserialize)]
struct File {
    #[serde(default)]
    flow: Vec<Spanned<Table>>,
    #[serde(default)]
    link: Vec<Spanned<LinkTable>>,
}

/// A `[[link]]`: both ways alike, between routers that it names.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LinkTable {
    between: [String; 2],
    #[serde(default, deserialize_with = "text")]
    rate: Option<Rate>,
    #[serde(default, deserialize_with = "time")]
    delay: Duration,
    #[serde(default, deserialize_with = "text")]
    queue: Option<QueueConfig>,
    #[serde(default, deserialize_with = "text")]
    loss: Option<LossConfig>,
}

/// Names of routers, and what joins them.
struct Routers {
    names: Vec<String>,
    topology: Topology,
}

impl Routers {
    /// The ends of the path.
    fn new() -> Self {
        let mut topology = Topology::default();
        topology.add(NEAR, FAR, 0);
        topology.add(FAR, NEAR, 0);
        Self { names: vec!["near".to_owned(), "far".to_owned()], topology }
    }

    /// The routers of a link, which need not be known.
    fn join(&mut self, names: &[String; 2]) -> Result<(usize, usize), String> {
        let mut known = |name: &String| {
            self.names.iter().position(|known| known == name).unwrap_or_else(|| {
                self.names.push(name.clone());
                self.names.len() - 1
            })
        };
        let (one, other) = (known(&names[0]), known(&names[1]));
        if one == other {
            return Err("a link joins two routers".into());
        }
        // The way of a flow would never lead over it.
        if self.topology.links().iter().any(|&(from, to, _)| (from, to) == (one, other)) {
            return Err(format!("another link joins '{}' and '{}' already", names[0], names[1]));
        }
        self.topology.add(one, other, 0);
        self.topology.add(other, one, 0);
        Ok((one, other))
    }

    /// The routers of a flow, between which there must be a way.
    fn between(&self, names: Option<&[String; 2]>) -> Result<(usize, usize), String> {
        let Some(names) = names else { return Ok((NEAR, FAR)) };
        let known = |name: &String| {
            let place = self.names.iter().position(|known| known == name);
            place.ok_or_else(|| format!("no [[link]] leads to '{name}'"))
        };
        let (one, other) = (known(&names[0])?, known(&names[1])?);
        let joined = one != other && self.topology.way(one, other).is_some();
        let why = || format!("no way leads from '{}' to '{}'", names[0], names[1]);
        joined.then_some((one, other)).ok_or_else(why)
    }
}

impl LinkTable {
    fn wire(&self, routers: &mut Routers, rtt: Duration) -> Result<Wire, String> {
        let ends = routers.join(&self.between)?;
        let rate = self.rate.ok_or("a link needs a rate")?;
        let link = LinkConfig {
            queue: self.queue.unwrap_or_default(),
            loss: self.loss.clone().unwrap_or_default(),
            ..LinkConfig::new(rate, self.delay)
        };
        link.link::<()>(rtt, 0).map_err(|error| error.to_string())?;
        Ok(Wire { ends, names: self.between.clone(), link })
    }
}

/// A `[[flow]]`: what is not stated is `None`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
struct Table {
    name: Option<String>,
    count: u32,
    transport: Carrier,
    cc: Option<String>,
    #[serde(deserialize_with = "text")]
    source: Option<Source>,
    #[serde(deserialize_with = "time")]
    start: Duration,
    #[serde(deserialize_with = "time")]
    every: Duration,
    #[serde(deserialize_with = "time")]
    stop: Option<Duration>,
    from: Side,
    between: Option<[String; 2]>,
    #[serde(deserialize_with = "text")]
    feedback: Option<FeedbackKind>,
    #[serde(deserialize_with = "text")]
    rate_limit: Option<Rate>,
    #[serde(deserialize_with = "text")]
    streams: Option<Streams>,
    streams_max: Option<u16>,
    #[serde(flatten)]
    tcp: Tcp,
}

impl Default for Table {
    fn default() -> Self {
        Self {
            name: None,
            count: 1,
            transport: Carrier::default(),
            cc: None,
            source: None,
            start: Duration::ZERO,
            every: Duration::ZERO,
            stop: None,
            from: Side::default(),
            between: None,
            feedback: None,
            rate_limit: None,
            streams: None,
            streams_max: None,
            tcp: Tcp::default(),
        }
    }
}

#[derive(Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Carrier {
    Tcp,
    #[default]
    Longhaul,
}

#[derive(Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Side {
    #[default]
    Near,
    Far,
}

/// The keys that only TCP has.
#[derive(Default, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct Tcp {
    #[serde(deserialize_with = "text")]
    recovery: Option<Recovery>,
    #[serde(deserialize_with = "text")]
    flight: Option<Flight>,
    #[serde(deserialize_with = "text")]
    mss: Option<Bytes>,
    #[serde(deserialize_with = "text")]
    window: Option<Bytes>,
    #[serde(deserialize_with = "text")]
    send_buffer: Option<Bytes>,
    scaling: Option<bool>,
    timestamps: Option<bool>,
    #[serde(deserialize_with = "text")]
    delayed_ack: Option<Delay>,
    nagle: Option<bool>,
    byte_counting: Option<bool>,
    hystart: Option<bool>,
    initial_window: Option<u32>,
    #[serde(deserialize_with = "text")]
    ssthresh: Option<Bytes>,
    #[serde(deserialize_with = "time")]
    min_rto: Option<Duration>,
}

/// How many connections a stream is striped over.
#[derive(Clone, Copy, PartialEq)]
struct Streams(Policy);

impl FromStr for Streams {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        Policy::read(text, path::parse_time).map(Self)
    }
}

/// How long acknowledgements wait: a time, or `none`.
#[derive(Clone, Copy, PartialEq)]
struct Delay(Option<Duration>);

impl FromStr for Delay {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self(None));
        }
        path::parse_time(text).map(|time| Self(Some(time)))
    }
}

impl Tcp {
    fn config(&self, cc: Option<&str>, mtu: Option<Bytes>) -> Result<Config, String> {
        let usual = Config::default();
        let congestion = cc.map(str::parse::<Congestion>).transpose().map_err(|e| e.to_string())?;
        let config = Config {
            recovery: self.recovery.unwrap_or(usual.recovery),
            congestion: congestion.unwrap_or(usual.congestion),
            flight: self.flight.unwrap_or(usual.flight),
            mss: self.mss.unwrap_or(usual.mss),
            window: self.window.unwrap_or(usual.window),
            send_buffer: self.send_buffer.unwrap_or(usual.send_buffer),
            scaling: self.scaling.unwrap_or(usual.scaling),
            timestamps: self.timestamps.unwrap_or(usual.timestamps),
            delayed_ack: self.delayed_ack.map_or(usual.delayed_ack, |delay| delay.0),
            nagle: self.nagle.unwrap_or(usual.nagle),
            byte_counting: self.byte_counting.unwrap_or(usual.byte_counting),
            hystart: self.hystart.unwrap_or(usual.hystart),
            initial_window: self.initial_window.unwrap_or(usual.initial_window),
            initial_ssthresh: self.ssthresh,
            min_rto: self.min_rto.map_or(usual.min_rto, MinRto::Whole),
        };
        match config {
            _ if !(1..=MAX_MSS).contains(&config.mss.0) => {
                Err(format!("a segment carries 1 to {MAX_MSS} bytes"))
            }
            _ if config.window.0 == 0
                || config.send_buffer.0 == 0
                || config.initial_window == 0 =>
            {
                Err("a window, a buffer or a first window of nothing lets nothing through".into())
            }
            _ if self.flight.is_some() && config.congestion != Congestion::Reno => {
                Err("flight is for cc = \"reno\": CUBIC reduces its window".into())
            }
            _ if self.hystart.is_some() && config.congestion != Congestion::Cubic => {
                Err("hystart is for cc = \"cubic\"".into())
            }
            _ => self.fit(config, mtu),
        }
    }

    /// Segments of a size that nobody has stated are as large as the path takes.
    fn fit(&self, config: Config, mtu: Option<Bytes>) -> Result<Config, String> {
        let Some(mtu) = mtu.filter(|mtu| config.full_size() > *mtu) else { return Ok(config) };
        let most = mtu + config.mss - config.full_size();
        let why = || format!("an MTU of {mtu} has room for mss = {}", most.0);
        self.mss.is_none().then_some(Config { mss: most, ..config }).ok_or_else(why)
    }
}

impl Table {
    fn protocol(&self, mtu: Option<Bytes>) -> Result<Protocol, String> {
        let cc = self.cc.as_deref();
        if self.transport == Carrier::Tcp {
            if let Some(Source::Copy(_)) = self.source {
                let instead = "with transport = \"tcp\" write source = \"5MB\", say";
                return Err(format!("'copy:' is how longhaul copies; {instead}"));
            }
            if self.feedback.is_some() || self.rate_limit.is_some() {
                return Err("feedback and rate-limit are for transport = \"longhaul\"".into());
            }
            return self.striped(self.tcp.config(cc, mtu)?);
        }
        if self.streams.is_some() || self.streams_max.is_some() {
            return Err("streams and streams-max are for transport = \"tcp\"".into());
        }
        if self.tcp != Tcp::default() {
            return Err("such keys are for transport = \"tcp\"".into());
        }
        if let Some(Source::Http(_) | Source::Messages(_)) = self.source {
            return Err("documents and messages are sent with transport = \"tcp\"".into());
        }
        let cc = cc.map(str::parse::<Algorithm>).transpose().map_err(|e| e.to_string())?;
        Ok(Protocol::Longhaul(transport::Config {
            congestion: cc.unwrap_or_default(),
            feedback: self.feedback.unwrap_or_default(),
            rate_limit: self.rate_limit,
            ..transport::Config::default()
        }))
    }

    /// Over as many such connections as are asked for.
    fn striped(&self, connection: Config) -> Result<Protocol, String> {
        let most = self.streams_max.map_or(MAX_CONNECTIONS, usize::from);
        match (self.streams, self.source) {
            _ if !(1..=MAX_CONNECTIONS).contains(&most) => {
                Err(format!("streams-max is 1 to {MAX_CONNECTIONS}"))
            }
            (None, _) if self.streams_max.is_some() => {
                Err("streams-max is with streams, as in streams = \"auto\"".into())
            }
            (None, _) => Ok(Protocol::Tcp(connection)),
            (Some(_), Some(Source::Http(_))) => {
                Err("each document has a connection of its own: leave streams out".into())
            }
            (Some(_), Some(Source::Messages(_))) => {
                Err("messages go over one connection: leave streams out".into())
            }
            (Some(_), _) if self.count as usize * most > MAX_FLOWS => Err(format!(
                "that may be more than {MAX_FLOWS} connections: bound them by streams-max"
            )),
            (Some(Streams(policy)), _) => {
                Ok(Protocol::Striped(Striping { connection, policy, most }))
            }
        }
    }

    /// The flows of this table, of which `before` came before; `number` is the table's.
    fn flows(
        &self,
        number: usize,
        before: usize,
        (near, far): (usize, usize),
        mtu: Option<Bytes>,
        routers: &Routers,
    ) -> Result<Vec<FlowConfig>, String> {
        let protocol = self.protocol(mtu)?;
        let between = routers.between(self.between.as_ref())?;
        let count = self.count as usize;
        if count == 0 || before + count > MAX_FLOWS {
            return Err(format!("there are 1 to {MAX_FLOWS} flows"));
        }
        let hosts_at = |router| match router {
            NEAR => near,
            FAR => far,
            _ => 1,
        };
        let usual = || format!("flow{}", number + 1);
        let name = self.name.clone().unwrap_or_else(usual);
        let flow = |index: usize| {
            let name = if count == 1 { name.clone() } else { format!("{name}.{}", index + 1) };
            let start = self.start + self.every * index as u32;
            let place = before + index;
            FlowConfig {
                name,
                table: number,
                protocol,
                source: self.source.unwrap_or_default(),
                start,
                stop: self.stop,
                from_far: self.from == Side::Far,
                between,
                near: place % hosts_at(between.0),
                far: place % hosts_at(between.1),
            }
        };
        let flows: Vec<_> = (0..count).map(flow).collect();
        if flows.iter().any(|flow| flow.stop.is_some_and(|stop| stop <= flow.start)) {
            return Err("a flow stops after it has started".into());
        }
        Ok(flows)
    }
}

/// The smallest packet that is the largest which a link takes at any time.
fn least_mtu(link: &LinkConfig) -> Option<Bytes> {
    let changed = link.schedule.steps().iter().filter_map(|(_, change)| change.mtu);
    link.mtu.into_iter().chain(changed).filter(|mtu| *mtu > Bytes::ZERO).min()
}

impl Study {
    /// Reads a scenario with its flows. `load` returns the text of a file that it names, or why it
    /// cannot.
    ///
    /// # Errors
    /// The text is no scenario, or its flows are impossible.
    pub fn read(
        source: &str,
        load: impl FnMut(&str) -> Result<String, String>,
    ) -> Result<Self, ScenarioError> {
        let Scenario { about, path, near, far, duration, .. } = Scenario::read(source, load)?;
        let file: File = toml::from_str(source)
            .map_err(|error| ScenarioError::at(source, error.span(), error.message()))?;
        let hosts = (Scenario::hosts(&near).count(), Scenario::hosts(&far).count());
        let mut routers = Routers::new();
        let mut wires = Vec::new();
        for table in file.link.iter() {
            let wire = match table.get_ref().wire(&mut routers, path.rtt()) {
                Ok(_) if wires.len() == MAX_WIRES => {
                    Err(format!("there are at most {MAX_WIRES} links"))
                }
                wire => wire,
            };
            wires.push(wire.map_err(|why| ScenarioError::at(source, Some(table.span()), why))?);
        }
        let mtu = least_mtu(&path.forward).into_iter().chain(least_mtu(&path.back)).min();
        let mut flows = Vec::new();
        for (number, table) in file.flow.iter().enumerate() {
            let more = table.get_ref().flows(number, flows.len(), hosts, mtu, &routers);
            let error = |why| ScenarioError::at(source, Some(table.span()), why);
            flows.extend(more.map_err(error)?);
        }
        if flows.is_empty() {
            let ours = Table::default().flows(0, 0, hosts, mtu, &routers);
            flows = ours.map_err(|why| ScenarioError::at(source, None, why))?;
        }
        let duration = duration.unwrap_or(DURATION);
        Ok(Self {
            about,
            path,
            near,
            far,
            wires,
            flows,
            duration,
            measure_from: Duration::ZERO,
            trace: None,
        })
    }
}

/// Reads a scenario that names no other file.
impl FromStr for Study {
    type Err = ScenarioError;
    fn from_str(source: &str) -> Result<Self, Self::Err> {
        Self::read(source, |name| Err(format!("'{name}' cannot be read from here")))
    }
}

#[cfg(test)]
mod tests {
    use path::{Impairments, Jitter, Limit};

    use super::*;

    /// The TOML blocks of a page.
    fn blocks(page: &str) -> Vec<&str> {
        let parts = page.split("```toml\n").skip(1);
        parts.filter_map(|part| part.split_once("```")).map(|(block, _)| block).collect()
    }

    /// A page's blocks that say what they are about are scenarios by themselves, and each of the others goes
    /// on with the first. Of a trace that they name no more is asked than that it is one.
    fn scenarios(page: &str) -> Vec<Study> {
        let blocks = blocks(page);
        let first = blocks.first().expect("a page with blocks");
        let scenario = |block: &&str| {
            let whole = block.starts_with("about = ");
            let text = if whole { (*block).to_owned() } else { format!("{first}\n{block}") };
            let study = Study::read(&text, |_| Ok("1\n".to_owned()));
            study.unwrap_or_else(|error| panic!("{error} in\n{text}"))
        };
        blocks.iter().map(scenario).collect()
    }

    #[test]
    fn what_the_book_shows_is_what_it_says() {
        let studies = scenarios(include_str!("../../../../docs/book/scenario.md"));
        let [office, _, _, _, _, flows, hosts, changes] = &studies[..] else {
            panic!("{studies:?}")
        };
        let loss = |percent: f64| Some(LossConfig::Bernoulli(percent / 100.0));
        assert_eq!(office.about, "Our office over the satellite");
        assert_eq!(office.path.rtt(), Duration::from_millis(580));
        let [forward, back] = [&office.path.forward, &office.path.back];
        let mbit = |link: &LinkConfig| link.rate.as_bits_per_sec() as f64 / 1e6;
        assert_eq!((mbit(forward), mbit(back)), (5.0, 50.0));
        assert_eq!((Some(&forward.loss), office.flows.len()), (loss(0.2).as_ref(), 1));
        let of = |name: &str| flows.flows.iter().filter(|flow| flow.name.starts_with(name)).count();
        assert_eq!([of("backup"), of("others"), of("web")], [1, 2, 20]);
        let tcp = |flow: &FlowConfig| matches!(flow.protocol, Protocol::Tcp(_));
        assert!(flows.flows.iter().all(|flow| tcp(flow) != (flow.name == "backup")));
        let near = hosts.near[0];
        assert_eq!((near.count, near.delay), (2, Some(Duration::from_millis(1))));
        let steps = changes.path.forward.schedule.steps();
        let losses = [&steps[0].1.loss, &steps[1].1.loss];
        assert_eq!((steps.len(), losses), (3, [&loss(5.0), &loss(0.2)]));
        assert_eq!(steps[2].1.blackout, Some(Duration::from_secs(2)));
        assert_eq!(changes.path.back.schedule.steps().len(), 1);
    }

    #[test]
    fn the_kinds_of_links_that_the_book_shows_are_those_it_says() {
        let studies = scenarios(include_str!("../../../../docs/book/scenario.md"));
        let paths: Vec<_> = studies.iter().map(|study| &study.path).collect();
        let [office, dsl, phone, router, several, ..] = &paths[..] else { panic!("{paths:?}") };
        for link in [&dsl.forward, &dsl.back] {
            assert_eq!((link.atm, link.framing), (true, Bytes(32)));
        }
        let droptail = QueueConfig::DropTail;
        assert_eq!(dsl.forward.queue, droptail(Limit::Bytes(Bytes::kib(128))));
        assert_eq!(dsl.back.queue, droptail(Limit::Packets(500)));
        assert!(phone.forward.trace.is_none() && phone.back.trace.is_some());
        let jitter = Jitter::Exponential(Duration::from_millis(3));
        for link in [&phone.forward, &phone.back] {
            assert_eq!(link.impairments.jitter, jitter);
            assert!(matches!(link.loss, LossConfig::GilbertElliott(_)), "{:?}", link.loss);
            assert!((link.loss.mean_loss() - 0.005).abs() < 1e-9);
        }
        assert!(matches!(router.forward.queue, QueueConfig::FqCodel(_)));
        let QueueConfig::Red(red) = router.back.queue else { panic!("{router:?}") };
        let packets = |count| Some(Limit::Packets(count));
        assert_eq!((red.min, red.max, red.max_p), (packets(50), packets(150), 0.1));
        for (link, plain) in [(&several.forward, &office.forward), (&several.back, &office.back)] {
            let Impairments { reorder, reorder_by, duplicate, .. } = link.impairments;
            assert_eq!((reorder, reorder_by), (0.01, Duration::from_millis(10)));
            assert_eq!((duplicate, link.rate, link.queue), (0.001, plain.rate, plain.queue));
        }
    }

    #[test]
    fn segments_are_as_large_as_the_path_takes() {
        let mss = |mtu: u64, keys: &str| {
            let path = format!("about = \"\"\nboth = {{ rate = \"1mbit\", mtu = {mtu} }}\n");
            let study = format!("{path}[[flow]]\ntransport = \"tcp\"\n{keys}").parse::<Study>();
            study.map(|study| match study.flows[0].protocol {
                Protocol::Tcp(config) => config.mss.0,
                Protocol::Longhaul(_) | Protocol::Striped(_) => panic!("it is TCP"),
            })
        };
        for (mtu, most) in [(9000, 1448), (1500, 1448), (1280, 1228), (68, 16)] {
            assert_eq!(mss(mtu, ""), Ok(most));
        }
        // The models hear nothing of a path that takes less later.
        assert_eq!(mss(1500, "[[change]]\nat = \"9s\"\nback = { mtu = 1280 }"), Ok(1228));
        assert_eq!(mss(1500, "[[change]]\nat = \"9s\"\nboth = { mtu = 0 }"), Ok(1448));
        assert_eq!(mss(1280, "timestamps = false"), Ok(1240));
        assert_eq!(mss(1280, "mss = 1228"), Ok(1228));
        assert!(mss(1280, "mss = 1229").is_err());
    }

    /// A path with a flow of these keys.
    fn flow(keys: &str) -> Result<Study, ScenarioError> {
        format!("about = \"\"\nboth = {{ rate = \"1mbit\" }}\n[[flow]]\n{keys}").parse()
    }

    #[test]
    fn what_is_halved_at_a_loss_is_for_who_halves() {
        let tcp = |keys: &str| flow(&format!("transport = \"tcp\"\n{keys}"));
        let study = tcp("cc = \"reno\"\nflight = \"pipe\"").expect("it is known");
        let Protocol::Tcp(config) = study.flows[0].protocol else { panic!("it is TCP") };
        assert_eq!(config.flight, Flight::Pipe);
        for refused in [
            "flight = \"pipe\"",
            "cc = \"reno\"\nflight = \"half\"",
            "cc = \"reno\"\nhystart = false",
        ] {
            assert!(tcp(refused).is_err(), "{refused}");
        }
    }

    #[test]
    fn flows_are_dealt_to_the_hosts_of_the_router_that_they_are_at() {
        let text = "about = \"\"\nboth = { rate = \"1mbit\" }\n[[near]]\ncount = 2\n[[far]]\ncount = 3\n\
            [[link]]\nbetween = [\"far\", \"lab\"]\nrate = \"1mbit\"\n";
        let places = |between: &str| {
            let study = format!("{text}[[flow]]\ncount = 4\nbetween = {between}\n");
            let study: Study = study.parse().expect("a scenario");
            let found = study.flows.iter().map(|flow| (flow.near, flow.far)).collect::<Vec<_>>();
            // Each of these hosts there is.
            Study { duration: Duration::from_millis(10), ..study }.run();
            found
        };
        assert_eq!(places("[\"near\", \"far\"]"), [(0, 0), (1, 1), (0, 2), (1, 0)]);
        assert_eq!(places("[\"far\", \"near\"]"), [(0, 0), (1, 1), (2, 0), (0, 1)]);
        assert_eq!(places("[\"far\", \"lab\"]"), [(0, 0), (1, 0), (2, 0), (0, 0)]);
    }

    #[test]
    fn two_routers_are_joined_by_one_link() {
        let link = "[[link]]\nrate = \"1mbit\"\nbetween = ";
        for (links, fine) in [
            (format!("{link}[\"near\", \"lab\"]\n{link}[\"far\", \"lab\"]"), true),
            (format!("{link}[\"near\", \"lab\"]\n{link}[\"lab\", \"near\"]"), false),
            (format!("{link}[\"near\", \"far\"]"), false),
        ] {
            let study =
                format!("about = \"\"\nboth = {{ rate = \"1mbit\" }}\n{links}").parse::<Study>();
            assert_eq!(study.is_ok(), fine, "{links}");
        }
    }

    #[test]
    fn messages_are_for_one_tcp_connection() {
        let messages = |keys: &str| flow(&format!("source = \"messages:every=5ms\"\n{keys}"));
        assert!(messages("transport = \"tcp\"").is_ok());
        assert!(messages("").is_err() && messages("transport = \"tcp\"\nstreams = 2").is_err());
    }

    #[test]
    fn a_copy_is_for_our_transport() {
        let copy = |keys: &str| flow(&format!("source = \"copy:5MB\"\n{keys}"));
        let study = copy("").expect("it is known");
        assert_eq!(study.flows[0].source, Source::Copy(Bytes(5_000_000)));
        let error = copy("transport = \"tcp\"").expect_err("TCP knows no copies").to_string();
        assert!(error.contains("write source = \"5MB\""), "{error}");
    }

    #[test]
    fn feedback_and_a_limit_are_for_our_transport() {
        let study = flow("feedback = \"positive-ack\"\nrate-limit = \"500kbit\"");
        let Protocol::Longhaul(config) = study.expect("it is known").flows[0].protocol else {
            panic!("it is ours")
        };
        assert_eq!(config.feedback, FeedbackKind::PositiveAck);
        assert_eq!(config.rate_limit, Some(Rate::from_bits_per_sec(500_000)));
        for refused in [
            "feedback = \"none\"",
            "transport = \"tcp\"\nfeedback = \"periodic\"",
            "transport = \"tcp\"\nrate-limit = \"500kbit\"",
        ] {
            assert!(flow(refused).is_err(), "{refused}");
        }
    }

    #[test]
    fn streams_are_for_tcp_without_documents() {
        let study = flow("transport = \"tcp\"\nstreams = 8\nstreams-max = 4\nmss = 512");
        let Protocol::Striped(striping) = study.expect("it is known").flows[0].protocol else {
            panic!("it is striped")
        };
        assert_eq!((striping.policy, striping.most), (Policy::Fixed(8), 4));
        assert_eq!(striping.connection.mss, Bytes(512));
        for (keys, why) in [
            ("streams = 8", "for transport = \"tcp\""),
            ("transport = \"tcp\"\nstreams = 0", "a number from 1 to 512"),
            ("transport = \"tcp\"\nstreams = \"equation\"", "equation:100mbit"),
            ("transport = \"tcp\"\nstreams = 8\nstreams-max = 0", "is 1 to 512"),
            ("transport = \"tcp\"\nstreams = 8\nstreams-max = 513", "is 1 to 512"),
            ("transport = \"tcp\"\nstreams-max = 8", "is with streams"),
            ("transport = \"tcp\"\nstreams = 8\nsource = \"http\"", "leave streams out"),
            ("transport = \"tcp\"\nstreams = \"auto\"\ncount = 50", "by streams-max"),
        ] {
            let error = flow(keys).expect_err(keys).to_string();
            assert!(error.contains(why), "{keys}: {error}");
        }
        for fine in ["rtt-bounded:700ms,1.1s", "equation:5mbit", "auto"] {
            assert!(flow(&format!("transport = \"tcp\"\nstreams = \"{fine}\"")).is_ok(), "{fine}");
        }
    }

    #[test]
    fn what_the_specification_shows_can_be_read() {
        let studies = scenarios(include_str!("../../../../docs/spec/scenario.md"));
        let [_, flows, links] = &studies[..] else { panic!("{studies:?}") };
        assert_eq!((flows.flows.len(), links.wires.len()), (5, 1));
    }
}
