//! Many runs side by side.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::{Outcome, Study};

/// Runs every study on so many cores, or all, and returns what they showed in their order. `done`
/// hears of each that has ended.
pub fn run_all(studies: &[Study], cores: Option<usize>, done: impl Fn() + Sync) -> Vec<Outcome> {
    let cores = cores.unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from));
    let next = AtomicUsize::new(0);
    let outcomes: Vec<_> = studies.iter().map(|_| Mutex::new(None)).collect();
    thread::scope(|scope| {
        for _ in 0..cores.min(studies.len()) {
            scope.spawn(|| {
                loop {
                    let place = next.fetch_add(1, Ordering::Relaxed);
                    let Some(study) = studies.get(place) else { return };
                    let outcome = study.run();
                    *outcomes[place].lock().expect("nobody panics with it") = Some(outcome);
                    done();
                }
            });
        }
    });
    let outcome = |place: Mutex<Option<_>>| place.into_inner().expect("nobody panicked with it");
    outcomes.into_iter().map(|place| outcome(place).expect("each has run")).collect()
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;

    #[test]
    fn as_many_cores_as_there_may_be_show_the_same() {
        let text = r#"
            about = "All kinds"
            duration = "3s"
            rtt = "30ms"
            both = { rate = "20mbit", queue = "red", loss = 0.01 }
            [[near]]
            count = 3
            delay = "2ms"
            [[flow]]
            count = 3
            transport = "tcp"
            every = "300ms"
            [[flow]]
            [[flow]]
            transport = "tcp"
            source = "http"
        "#;
        let study: Study = text.parse().expect("a scenario");
        let mut studies = vec![study; 4];
        for (index, study) in studies.iter_mut().enumerate() {
            study.path.seed = index as u64 / 2;
            study.trace = Some(Duration::from_millis(200));
        }
        let count = AtomicUsize::new(0);
        let one = run_all(&studies, Some(1), || {
            count.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(count.into_inner(), 4);
        assert_eq!(one, run_all(&studies, Some(3), || {}));
        assert_eq!(one[0], one[1]);
        assert_ne!(one[1], one[2]);
        assert_eq!(one[0].samples.len(), 15 * 5);
        // All of them got something through.
        assert!(one[0].flows.iter().all(|flow| flow.delivered_bytes > 0), "{one:?}");
    }
}
