//! Changes of a link while it runs.

use core::time::Duration;
use std::sync::Arc;

use serde::Deserialize;
use units::{Bytes, Instant, Rate};

use crate::scenario::text::{share, text, time};
use crate::trace::RateTrace;
use crate::{Jitter, LinkConfig, LossConfig, PathError, QueueConfig};

/// Some parameters of a link. As a change, given to [`Link::set`](crate::Link::set) or put on a
/// [`Schedule`], it leaves alone what it does not state; in a scenario file it describes a link.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Change {
    /// [`LinkConfig::rate`]; ends a rate trace.
    #[serde(deserialize_with = "text")]
    pub rate: Option<Rate>,
    /// [`LinkConfig::trace`], which begins to play at the change. Sets the rate to its mean.
    #[serde(deserialize_with = "text")]
    pub rate_trace: Option<RateTrace>,
    /// The name of a file that holds the rate trace. Only
    /// [`Scenario::read`](crate::Scenario::read) looks it up.
    pub rate_trace_file: Option<String>,
    /// [`LinkConfig::delay`].
    #[serde(deserialize_with = "time")]
    pub delay: Option<Duration>,
    /// [`LinkConfig::loss`].
    #[serde(deserialize_with = "text")]
    pub loss: Option<LossConfig>,
    /// The name of a file that holds a loss trace, as for `rate_trace_file`.
    pub loss_trace_file: Option<String>,
    /// [`LinkConfig::queue`]. What waits stays, even beyond a smaller limit. Limits in time are
    /// reckoned with the rate at that moment, and stay when only that changes: a router's memory
    /// does not grow with its rate. RED's thresholds must be given once the delay of a direction is
    /// not that of the start, from which they would come ([`PathError::OldRtt`]).
    #[serde(deserialize_with = "text")]
    pub queue: Option<QueueConfig>,
    /// [`LinkConfig::framing`].
    #[serde(deserialize_with = "text")]
    pub framing: Option<Bytes>,
    /// [`LinkConfig::atm`].
    pub atm: Option<bool>,
    /// [`LinkConfig::mtu`]; zero for none.
    #[serde(deserialize_with = "text")]
    pub mtu: Option<Bytes>,
    /// [`LinkConfig::icmp`].
    pub icmp: Option<bool>,
    /// [`Impairments::cell_loss`](crate::Impairments::cell_loss).
    #[serde(deserialize_with = "share")]
    pub cell_loss: Option<f64>,
    /// [`Impairments::bit_error`](crate::Impairments::bit_error).
    #[serde(deserialize_with = "share")]
    pub bit_error: Option<f64>,
    /// [`Impairments::corrupt`](crate::Impairments::corrupt).
    #[serde(deserialize_with = "share")]
    pub corrupt: Option<f64>,
    /// [`Impairments::silent`](crate::Impairments::silent).
    pub silent: Option<bool>,
    /// [`Impairments::duplicate`](crate::Impairments::duplicate).
    #[serde(deserialize_with = "share")]
    pub duplicate: Option<f64>,
    /// [`Impairments::reorder`](crate::Impairments::reorder).
    #[serde(deserialize_with = "share")]
    pub reorder: Option<f64>,
    /// [`Impairments::reorder_by`](crate::Impairments::reorder_by).
    #[serde(deserialize_with = "time")]
    pub reorder_by: Option<Duration>,
    /// [`Impairments::jitter`](crate::Impairments::jitter).
    #[serde(deserialize_with = "text")]
    pub jitter: Option<Jitter>,
    /// [`Impairments::keep_order`](crate::Impairments::keep_order).
    pub keep_order: Option<bool>,
    /// From the change on and for this long whatever is put on the line is lost
    /// ([`DropCause::Blackout`](crate::DropCause::Blackout)): nobody receives.
    #[serde(deserialize_with = "time")]
    pub blackout: Option<Duration>,
    /// From the change on and for this long nothing is put on the line, and the queue waits: a
    /// handover that loses nothing.
    #[serde(deserialize_with = "time")]
    pub hold: Option<Duration>,
}

/// Overwrites what is given.
fn put<V: Clone>(place: &mut V, value: &Option<V>) {
    if let Some(value) = value {
        place.clone_from(value);
    }
}

impl Change {
    /// States everything that `other` states, over what is stated here.
    pub(crate) fn merge(&mut self, other: &Self) {
        macro_rules! merge {
            ($($field:ident)*) => { $( if other.$field.is_some() {
                self.$field.clone_from(&other.$field);
            } )* };
        }
        // A rate ends a trace, and the other way round, across tables as well.
        if other.rate.is_some() {
            self.rate_trace = None;
        }
        // A file that is stated here would be read over a recording that is stated there.
        if other.rate.is_some() || other.rate_trace.is_some() {
            self.rate_trace_file = None;
        }
        if other.loss.is_some() {
            self.loss_trace_file = None;
        }
        merge!(rate rate_trace rate_trace_file delay loss loss_trace_file queue framing atm mtu icmp
            cell_loss bit_error corrupt silent duplicate reorder reorder_by jitter keep_order
            blackout hold);
    }

    /// Changes a description of a link. Blackouts and holds are events and not part of it.
    pub fn apply(&self, link: &mut LinkConfig) {
        if let Some(rate) = self.rate {
            link.rate = rate;
            link.trace = None;
        }
        if let Some(trace) = &self.rate_trace {
            link.rate = trace.mean_rate();
            link.trace = Some(trace.clone());
        }
        put(&mut link.delay, &self.delay);
        put(&mut link.loss, &self.loss);
        put(&mut link.queue, &self.queue);
        put(&mut link.framing, &self.framing);
        put(&mut link.atm, &self.atm);
        put(&mut link.icmp, &self.icmp);
        if let Some(mtu) = self.mtu {
            link.mtu = (mtu != Bytes::ZERO).then_some(mtu);
        }
        let impairments = &mut link.impairments;
        put(&mut impairments.cell_loss, &self.cell_loss);
        put(&mut impairments.bit_error, &self.bit_error);
        put(&mut impairments.corrupt, &self.corrupt);
        put(&mut impairments.silent, &self.silent);
        put(&mut impairments.duplicate, &self.duplicate);
        put(&mut impairments.reorder, &self.reorder);
        put(&mut impairments.reorder_by, &self.reorder_by);
        put(&mut impairments.jitter, &self.jitter);
        put(&mut impairments.keep_order, &self.keep_order);
    }

    /// Whether it sets thresholds that come from the path's round-trip time.
    pub fn needs_rtt(&self) -> bool {
        self.queue.is_some_and(|queue| queue.needs_rtt())
    }

    /// Whether everything it names has been read.
    pub(crate) fn check(&self) -> Result<(), PathError> {
        let unread = self.rate_trace_file.is_some() || self.loss_trace_file.is_some();
        if unread { Err(PathError::Unread) } else { Ok(()) }
    }
}

/// The most changes on a schedule.
pub const MAX_CHANGES: usize = 100_000;

/// The shortest round of a schedule.
const MIN_REPEAT: Duration = Duration::from_millis(1);

/// Changes at fixed times of the link's clock, once or round after round.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Schedule {
    steps: Arc<[(Duration, Change)]>,
    repeat: Option<Duration>,
}

impl Schedule {
    /// Changes with their time since the zero of the link's clock, in any order; again every `repeat`, when given.
    pub fn new(mut steps: Vec<(Duration, Change)>, repeat: Option<Duration>) -> Self {
        steps.sort_by_key(|&(at, _)| at);
        Self { steps: steps.into(), repeat }
    }

    /// The changes by time.
    pub fn steps(&self) -> &[(Duration, Change)] {
        &self.steps
    }

    /// The changes of as many rounds as bring everything that they lead to. They are assignments, so when they
    /// repeat a second round begins as each later one does.
    pub(crate) fn rounds(&self) -> impl Iterator<Item = &(Duration, Change)> {
        let again = self.repeat.map_or(&[][..], |_| &self.steps[..]);
        self.steps.iter().chain(again)
    }

    pub(crate) fn check(&self) -> Result<(), PathError> {
        if self.steps.len() > MAX_CHANGES {
            return Err(PathError::Schedule("a schedule has at most 100,000 changes"));
        }
        self.steps.iter().try_for_each(|(_, change)| change.check())?;
        let Some(repeat) = self.repeat else {
            return Ok(());
        };
        if repeat < MIN_REPEAT || self.steps.last().is_some_and(|&(at, _)| at >= repeat) {
            return Err(PathError::Schedule(
                "a schedule repeats after its last change, and not before a millisecond",
            ));
        }
        let held = self.steps.iter().filter_map(|(_, change)| change.hold);
        if held.fold(Duration::ZERO, Duration::saturating_add) >= repeat {
            return Err(PathError::Schedule("a schedule must not hold the link all the time"));
        }
        Ok(())
    }
}

/// Where a link stands on its schedule.
pub(crate) struct Agenda {
    schedule: Schedule,
    next: usize,
    /// When it is due; the far future when there is none.
    next_at: Instant,
    /// When this round began.
    round: Instant,
}

impl Agenda {
    pub(crate) fn new(schedule: Schedule) -> Self {
        let mut agenda =
            Self { schedule, next: 0, next_at: Instant::FAR_FUTURE, round: Instant::ZERO };
        agenda.look();
        agenda
    }

    /// When the next change is due.
    pub(crate) fn next_at(&self) -> Instant {
        self.next_at
    }

    /// Notes when the next change is due.
    fn look(&mut self) {
        let next = self.schedule.steps.get(self.next);
        self.next_at = next.map_or(Instant::FAR_FUTURE, |&(at, _)| self.round + at);
    }

    /// The next change due by `until`, before which nothing happens on the link but changes.
    pub(crate) fn due(&mut self, until: Instant) -> Option<(Instant, Change)> {
        if self.next_at > until || self.next_at == Instant::FAR_FUTURE {
            return None;
        }
        self.skip(until);
        let at = self.next_at;
        let change = self.schedule.steps[self.next].1.clone();
        self.next += 1;
        if let Some(repeat) =
            self.schedule.repeat.filter(|_| self.next == self.schedule.steps.len())
        {
            self.next = 0;
            self.round += repeat;
        }
        self.look();
        Some((at, change))
    }

    /// Passes over whole rounds in which nothing was sent. Changes are assignments, so after two
    /// rounds everything is as after many; those two remain to be done.
    fn skip(&mut self, until: Instant) {
        let Some(repeat) = self.schedule.repeat else {
            return;
        };
        let rounds = until.since(self.round).as_nanos() / repeat.as_nanos();
        if let Some(spare) = rounds.checked_sub(3) {
            let nanos = spare.saturating_mul(repeat.as_nanos());
            self.round += Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
            self.look();
        }
    }
}
