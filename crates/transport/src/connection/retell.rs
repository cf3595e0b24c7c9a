//! Credit that somebody waits for, told once more if nothing shows that it was heard of: the other end asks for it
//! ever more seldom, and when it has been granted, nothing else is under way.

use core::time::Duration;

use units::Instant;

use crate::wire::StreamCredit;

/// Streams that are remembered: of others the other end asks again.
const MOST: usize = 256;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Retell {
    /// The other end's sender had too little credit by its last state.
    pub(super) is_awaited: bool,
    /// The streams whose credit was told, and when to tell it once more.
    told: Option<(Instant, Vec<u64>)>,
    /// Those of which that time has come.
    again: Vec<u64>,
}

impl Retell {
    /// A report goes out with such credit, whose answer takes so long at most.
    pub(super) fn on_report(&mut self, now: Instant, credits: &[StreamCredit], patience: Duration) {
        for &StreamCredit { stream, .. } in credits {
            if let Some(at) = self.again.iter().position(|again| *again == stream) {
                self.again.swap_remove(at);
            } else if self.is_awaited {
                let (_, told) = self.told.get_or_insert_with(|| (now + patience, Vec::new()));
                if !told.contains(&stream) && told.len() < MOST {
                    told.push(stream);
                }
            }
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
        self.again.clone_from(&streams);
        Some(streams)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_stream_is_told_of_once_more_at_the_first_ones_time() {
        let patience = Duration::from_millis(100);
        let at = |millis: u64| Instant::ZERO + Duration::from_millis(millis);
        let credit = |stream| StreamCredit { stream, credit: 9 };
        let mut retell = Retell { is_awaited: true, ..Retell::default() };
        retell.on_report(at(0), &[credit(4)], patience);
        retell.on_report(at(50), &[credit(8), credit(4)], patience);
        assert_eq!((retell.due(), retell.take(at(99))), (Some(at(100)), None));
        assert_eq!(retell.take(at(100)), Some(vec![4, 8]));
        // In two reports, of which one tells of another stream too.
        retell.on_report(at(101), &[credit(4)], patience);
        assert_eq!(retell.due(), None);
        retell.on_report(at(102), &[credit(8), credit(12)], patience);
        assert_eq!(retell.due(), Some(at(202)));
        retell.on_heard();
        assert_eq!(retell.due(), None);
        retell.is_awaited = false;
        retell.on_report(at(300), &[credit(4)], patience);
        assert_eq!(retell.due(), None);
    }
}
