//! Many runs side by side.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::{Outcome, Study};

/// Runs every study on so many cores, or all, and returns what they showed in their order. `done`
/// hears of each that has ended.
pub fn run_all(studies: &[Study], cores: Option<usize>, done: impl Fn() + Sync) -> Vec<Outcome> {
    side_by_side(studies, cores, |study| {
        let outcome = study.run();
        done();
        outcome
    })
}

/// Does the work for every item on so many cores, or all; what came of it in their order.
pub(crate) fn side_by_side<T: Sync, O: Send>(
    items: &[T],
    cores: Option<usize>,
    work: impl Fn(&T) -> O + Sync,
) -> Vec<O> {
    let cores = cores.unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from));
    let next = AtomicUsize::new(0);
    let results: Vec<_> = items.iter().map(|_| Mutex::new(None)).collect();
    thread::scope(|scope| {
        for _ in 0..cores.min(items.len()) {
            scope.spawn(|| {
                loop {
                    let place = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(place) else { return };
                    let result = work(item);
                    *results[place].lock().expect("nobody panics with it") = Some(result);
                }
            });
        }
    });
    let result = |place: Mutex<Option<_>>| place.into_inner().expect("nobody panicked with it");
    results.into_iter().map(|place| result(place).expect("each is done")).collect()
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
