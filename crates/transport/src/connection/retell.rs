//! Credit that somebody waits for, told once more if nothing shows that it was heard of: the other end asks for it
//! ever more seldom, and when it has been granted, nothing else is under way.

use core::time::Duration;

use units::Instant;

use crate::wire::StreamCredit;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Retell {
    /// The other end's sender had too little credit by its last state.
    pub(super) is_awaited: bool,
    /// The streams whose credit was told last, and when to tell it once more.
    told: Option<(Instant, Vec<u64>)>,
    /// What is told next is told once more.
    again: bool,
}

impl Retell {
    /// A report goes out with such credit, whose answer takes so long at most.
    pub(super) fn on_report(&mut self, now: Instant, credits: &[StreamCredit], patience: Duration) {
        let again = core::mem::take(&mut self.again);
        if self.is_awaited && !again && !credits.is_empty() {
            self.told = Some((now + patience, credits.iter().map(|it| it.stream).collect()));
        }
    }

    /// The other end has sent something that it wants to be told of.
    pub(super) fn on_heard(&mut self) {
        self.told = None;
    }

    pub(super) fn due(&self) -> Option<Instant> {
        self.told.as_ref().map(|(at, _)| *at)
    }

    /// The streams whose credit is to be told once more, if it is time.
    pub(super) fn take(&mut self, now: Instant) -> Option<Vec<u64>> {
        let (_, streams) = self.told.take_if(|(at, _)| now >= *at)?;
        self.again = true;
        Some(streams)
    }
}
