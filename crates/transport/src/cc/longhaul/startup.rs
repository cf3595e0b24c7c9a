//! The start: the rate multiplies each round trip until trains of packets that arrive (packet
//! pairs, drawn out to trains) agree on a capacity; then it goes there at once.

use core::time::Duration;

use units::{Bytes, Rate};

use super::super::Remembered;
use super::model::{Model, Round};
use crate::trains::{MIN_BYTES, MIN_PACKETS};

/// In flight at the start.
pub(super) const INITIAL_WINDOW: Bytes = Bytes::kib(64);
/// The pace before anything is known of the path.
pub(super) const INITIAL_RATE: Rate = Rate::from_bits_per_sec(10_000_000);
/// Who mostly has nothing to send puts an [`INITIAL_WINDOW`] in flight so fast when he has, until trains tell of the
/// path: a page on an idle path is not to wait for a pace that was learnt from requests.
const LEISURE: Rate = Rate::from_bits_per_sec(40_000_000);
/// Growth of the rate in a round trip.
const GAIN: f64 = 2.885;
/// The start is over when the estimate grew less than this in [`STILL_ROUNDS`] rounds.
const GROWTH: f64 = 1.25;
/// See [`GROWTH`].
const STILL_ROUNDS: u32 = 3;
/// The share of the capacity that trains have told at which the start goes on.
const JUMP: f64 = 0.8;

/// Datagrams sent in one go, so that their spacing on arrival tells the capacity: the first, the most;
/// and how long one may take at the rate that is known, in seconds.
const TRAINS: (usize, usize) = (16, 32);
const TRAIN_TIME: f64 = 0.01;
/// What a train has beyond what counts: the first says nothing, and of short packets another arrives with it.
const SPARE: usize = 2;

/// The fewest datagrams of a size that tell the capacity. Five jumbo frames at 10 Mbit/s are a queue of 36 ms.
pub(super) fn shortest_train(size: Bytes) -> usize {
    MIN_PACKETS.min((MIN_BYTES / size.0) as u32) as usize + SPARE
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Startup {
    /// Rounds in which the estimate stood still, and the estimate before them.
    still: (u32, f64),
    /// Rounds in which something arrived.
    rounds: u32,
    /// What an earlier connection found, in bits a second.
    remembered: Option<f64>,
    /// The background level: trains tell of no rate that is free.
    yields: bool,
}

/// Losing so much of a round, the start has overrun something that does not queue.
const MAX_LOSS: f64 = 0.5;
/// A path is the same when its round trip is not more than so many times shorter, or longer (Careful
/// Resume, draft-ietf-tsvwg-careful-resume).
const SAME_PATH: (u32, u32) = (2, 10);
/// The share of what was remembered that is sent before the path has confirmed it (ibid.).
const RESUMED: f64 = 0.5;

/// Who has reported on so many bytes of a round, and told of none that arrived, tells no truth.
const MOST_UNTOLD: u64 = 1_000_000;

/// How the start ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// Trains told the capacity, and there is no queue.
    Told,
    /// A queue grew, or nothing grew any more.
    Full,
    /// Something was overrun that does not queue.
    Overrun,
}

impl Startup {
    pub(super) fn new(yields: bool) -> Self {
        Self { yields, ..Self::default() }
    }

    /// The first round trip took `rtt`: goes on where an earlier connection was, if the path
    /// still looks like the same.
    pub(super) fn resume(&mut self, remembered: Remembered, rtt: Duration) {
        let (shorter, longer) = SAME_PATH;
        if rtt > remembered.rtt / shorter && rtt < remembered.rtt * longer && !self.yields {
            self.remembered = Some(remembered.rate.as_bits_per_sec() as f64);
        }
    }

    /// Goes straight to what trains tell when it is what was remembered: to the smaller of both,
    /// for bunched arrivals make either too large.
    fn jump(&self, told: f64) -> f64 {
        let confirmed = self.remembered.filter(|rate| (0.8..1.25).contains(&(told / rate)));
        confirmed.map_or(told * JUMP, |rate| told.min(rate))
    }

    pub(super) fn on_report(&mut self, model: &mut Model, round: Option<&Round>) -> Option<Ended> {
        self.rounds += u32::from(round.is_some() && model.share > 0.0);
        if round.is_some_and(|round| !round.limited) {
            let (still, before) = self.still;
            let grew = model.share > before * GROWTH;
            self.still = if grew { (0, model.share) } else { (still + 1, before) };
        }
        let path = &model.path;
        // A queue that a start makes only grows.
        let queue = path.queue > path.target() * 2 && model.queued >= 2 && path.only_grows();
        let overrun = round.is_some_and(|round| round.loss() > MAX_LOSS);
        let told =
            !self.yields && model.trains.is_some_and(|told| model.share >= told * JUMP * 0.9);
        if model.share == 0.0 {
            // Reports tell of no arrivals though much was sent: what has arrived is known all the same.
            let blind =
                round.filter(|it| overrun && it.acked > 0 && it.acked + it.lost > MOST_UNTOLD)?;
            model.share = blind.arrived();
        }
        if !(queue || told || overrun || self.still.0 >= STILL_ROUNDS) {
            return None;
        }
        if told && !queue && !overrun {
            model.share = model.trains.unwrap_or(model.share).max(model.share);
            return Some(Ended::Told);
        }
        Some(if overrun { Ended::Overrun } else { Ended::Full })
    }

    /// Datagrams to be sent in one go.
    pub(super) fn train(&self, model: &Model) -> usize {
        let (first, most) = TRAINS;
        let train = model.share * TRAIN_TIME / (model.packet.0 as f64 * 8.0);
        let train = (train as usize).clamp(shortest_train(model.packet), most);
        if model.share > 0.0 { train } else { first }
    }

    /// The pace in bits a second. The window follows from the [`Startup::rate`] alone.
    pub(super) fn pace(&self, model: &Model) -> f64 {
        let is_unknown = model.share > 0.0 && model.trains.is_none();
        let is_first = model.limited && model.in_flight < INITIAL_WINDOW;
        let idles = is_first && is_unknown && !self.yields;
        self.rate(model).max(if idles { LEISURE.as_bits_per_sec() as f64 } else { 0.0 })
    }

    /// What it has come to, in bits a second.
    pub(super) fn rate(&self, model: &Model) -> f64 {
        let mut least = least_rate(model);
        if model.share == 0.0 && !model.is_lost_on() {
            // Until the first report the window is what matters: the first trains go out soon. What was lost
            // before anything was heard of goes again as slowly as it must, for ever maybe.
            least = least.max(INITIAL_RATE.as_bits_per_sec() as f64);
        }
        let grown = (model.compensated(model.share) * GAIN).max(least);
        if let Some(told) = model.trains.filter(|_| !self.yields) {
            return self.jump(told);
        }
        // Half of what was remembered, until the first of it has been heard of.
        let resumed = self.remembered.filter(|_| self.rounds == 0 && !model.is_lost_on());
        grown.max(resumed.unwrap_or(0.0) * RESUMED)
    }

    /// What has arrived, or trains have told; the first window goes out anyway.
    pub(super) fn known_rate(model: &Model) -> Rate {
        Rate::from_bits_per_sec(model.link().max(least_rate(model)) as u64)
    }
}

/// In bits a second, the initial window in each round trip.
fn least_rate(model: &Model) -> f64 {
    INITIAL_WINDOW.0 as f64 * 8.0 / model.path.base.as_secs_f64().max(0.001)
}

#[cfg(test)]
mod tests {
    use super::super::model::Tells;
    use super::super::path::Path;
    use super::*;
    use crate::cc::AckSample;

    #[test]
    fn who_loses_more_than_arrives_sends_little() {
        let mut model = Model::new(Path::new(Duration::from_millis(400), 1.0));
        let start = Startup::default();
        assert_eq!(start.rate(&model), INITIAL_RATE.as_bits_per_sec() as f64);
        let remembered = Startup { remembered: Some(1e9), ..Startup::default() };
        assert_eq!(remembered.rate(&model), 1e9 * RESUMED);
        let sample = |acked: u64| AckSample {
            lost: Bytes(1200),
            acked: Bytes(acked),
            datagram: Bytes(1200),
            ..AckSample::default()
        };
        model.on_ack(&sample(0), Tells::All);
        for start in [start, remembered] {
            let window = start.rate(&model) * 0.4 / 8.0;
            assert!((window - INITIAL_WINDOW.0 as f64).abs() < 1.0, "{window}");
        }
        // Loss alone is no reason.
        let mut model = Model::new(Path::new(Duration::from_millis(400), 1.0));
        model.on_ack(&sample(12_000), Tells::All);
        model.on_ack(&sample(0), Tells::All);
        assert_eq!(Startup::default().rate(&model), INITIAL_RATE.as_bits_per_sec() as f64);
    }

    #[test]
    fn who_mostly_idles_is_paced_by_none_of_his_requests() {
        let mut model = Model::new(Path::new(Duration::from_millis(200), 1.0));
        let start = Startup::default();
        assert_eq!(start.pace(&model), INITIAL_RATE.as_bits_per_sec() as f64);
        // A request a round trip.
        model.share = 20e3;
        let learnt = start.pace(&model);
        assert_eq!(learnt, start.rate(&model));
        model.limited = true;
        assert_eq!(start.pace(&model), LEISURE.as_bits_per_sec() as f64);
        assert_eq!(start.rate(&model), learnt, "nor does the window grow by it");
        assert!(Startup::new(true).pace(&model) < 4e6, "the background level yields");
        model.share = 100e6;
        assert_eq!(start.pace(&model), start.rate(&model));
        (model.share, model.in_flight) = (20e3, INITIAL_WINDOW);
        assert_eq!(start.pace(&model), learnt, "one window's worth");
        (model.in_flight, model.trains) = (Bytes::ZERO, Some(1.5e6));
        assert_eq!(start.pace(&model), 1.5e6 * JUMP, "trains have told more than requests");
    }
}
