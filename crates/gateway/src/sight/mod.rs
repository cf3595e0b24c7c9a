//! What a gateway shows of itself: `book` keeps what is carried, by the `counters` of each, `status` is the
//! picture of a moment, which the local `control` socket hands to `longhaul gateway status`, and `web` to browsers
//! and Prometheus (`metrics`); `cause` says why there is no trunk, `names` what hosts are called.

mod book;
mod cause;
mod control;
mod counters;
mod metrics;
mod names;
mod status;
mod web;

pub(crate) use book::{Book, Entry};
pub use cause::Cause;
pub use control::{AskError, ask};
pub(crate) use control::{Control, is_running, serve};
pub(crate) use counters::{Counter, Counters, Pause};
pub(crate) use names::Names;
pub use status::{
    Connection, Missed, Sample, Side, Status, Totals, TrunkState, TrunkStatus, Waits,
};
pub(crate) use web::{answer, run as run_web};
