//! How much memory a lane needs for the frames in it.

use core::time::Duration;

use path::LinkConfig;
use units::Bytes;

use crate::lane::LaneError;
use crate::memory::Memory;
use crate::ring;

/// Room in a ring beside what the model holds: frames whose segments were mostly dropped, and
/// the rounding of small ones.
const RING_SLACK: u64 = 8 << 20;

/// The largest ring. A path that holds more is refused instead of taking all memory.
pub(crate) const MAX_RING: u64 = 4 << 30;

/// What a change of a lane's link asks for.
pub(crate) struct Demand {
    /// The link as the change makes it.
    pub(crate) link: LinkConfig,
    /// As of the lane, which has a ring of this capacity.
    pub(crate) rtt: Duration,
    pub(crate) mtu: Bytes,
    pub(crate) access_room: Bytes,
    pub(crate) capacity: usize,
}

impl Demand {
    /// Memory for the larger ring that it takes, if it does. To be called apart from the lane: to look through a
    /// recording takes a while, and to make memory longer.
    ///
    /// # Errors
    /// The link holds too much, or there is no memory for it.
    pub(crate) fn memory(&self) -> Result<Option<Memory>, LaneError> {
        let room = ring_size(&self.link, self.rtt, self.mtu, self.access_room)?;
        let block = (room > self.capacity).then(|| ring::block(room));
        block.transpose().map_err(LaneError::Memory)
    }
}

/// Bytes of ring for everything that is in a link at once, and in the hosts' own: half as much again because small
/// packets are rounded up, and slack.
pub(crate) fn ring_size(
    link: &LinkConfig,
    rtt: Duration,
    mtu: Bytes,
    access_room: Bytes,
) -> Result<usize, LaneError> {
    let held = (link.most_held(rtt, mtu) + access_room).0;
    let size = held.saturating_add(held / 2).saturating_add(RING_SLACK);
    let size = usize::try_from(size).ok().filter(|_| size <= MAX_RING);
    size.ok_or(LaneError::TooLarge)
}
