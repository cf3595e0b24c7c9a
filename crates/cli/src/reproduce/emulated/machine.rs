//! This machine, of which each run across the emulator takes a part: so many labs at a time as it keeps
//! up with, whatever rows they belong to.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// All of it.
const WHOLE: usize = 1 << 20;

/// Parts of it go to runs in the order in which they ask, so that one that wants much gets it.
#[derive(Default)]
pub struct Machine {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    taken: usize,
    /// Runs that have asked, and those of them that have got what they asked for.
    asked: u64,
    served: u64,
}

/// A part, which others get when this is dropped.
pub struct Part<'a> {
    machine: &'a Machine,
    size: usize,
}

impl Machine {
    /// Waits for a part of which there are so many in all.
    pub fn part(&self, of: usize) -> Part<'_> {
        let size = WHOLE / of.max(1);
        let mut state = self.lock();
        let turn = state.asked;
        state.asked += 1;
        while state.served != turn || state.taken + size > WHOLE {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.served += 1;
        state.taken += size;
        self.changed.notify_all();
        Part { machine: self, size }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Part<'_> {
    fn drop(&mut self) {
        self.machine.lock().taken -= self.size;
        self.machine.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    use super::*;

    /// Heavy runs are alone, light ones together, and none waits for ever.
    #[test]
    fn runs_never_take_more_than_the_whole() {
        let (machine, taken) = (Machine::default(), AtomicUsize::new(0));
        let run = |of: usize| {
            for _ in 0..50 {
                let _part = machine.part(of);
                let before = taken.fetch_add(WHOLE / of, Ordering::SeqCst);
                assert!(before + WHOLE / of <= WHOLE, "{before} of {WHOLE} and 1 of {of}");
                thread::yield_now();
                taken.fetch_sub(WHOLE / of, Ordering::SeqCst);
            }
        };
        thread::scope(|scope| {
            for of in [1, 2, 2, 8, 8, 8, 12, 12, 12, 12] {
                let run = &run;
                scope.spawn(move || run(of));
            }
        });
        assert_eq!(machine.lock().taken, 0);
        // As many as fit hold theirs at once.
        let parts: Vec<_> = (0..12).map(|_| machine.part(12)).collect();
        assert_eq!(parts.len(), 12);
    }
}
