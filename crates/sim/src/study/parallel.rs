//! Many runs side by side.

use core::time::Duration;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::network::Network;
use super::{Outcome, Study};

/// Runs every study on so many cores, or all, and returns what they showed in their order. `passed`
/// hears of simulated time that has passed in any of them.
pub fn run_all(
    studies: &[Study],
    cores: Option<usize>,
    passed: impl Fn(Duration) + Sync,
) -> Vec<Outcome> {
    side_by_side(studies, cores, |study| study.run_in(Network::new(study), &passed))
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
        let study_time = study.duration;
        let mut studies = vec![study; 4];
        for (index, study) in studies.iter_mut().enumerate() {
            study.path.seed = index as u64 / 2;
            study.trace = Some(Duration::from_millis(200));
        }
        let passed = Mutex::new(Vec::new());
        let one = run_all(&studies, Some(1), |time| passed.lock().unwrap().push(time));
        let passed = passed.into_inner().unwrap();
        assert_eq!(passed.iter().sum::<Duration>(), 4 * study_time);
        assert!(passed.iter().all(|time| *time <= study_time / 2), "{passed:?}");
        assert_eq!(one, run_all(&studies, Some(3), |_| {}));
        assert_eq!(one[0], one[1]);
        assert_ne!(one[1], one[2]);
        assert_eq!(one[0].samples.len(), 15 * 5);
        // All of them got something through.
        assert!(one[0].flows.iter().all(|flow| flow.delivered_bytes > 0), "{one:?}");
    }
}
