//! Two ways at once, of which the first is preferred.

use std::future::Future;
use std::time::Duration;

use tokio::time::timeout;

/// How much later the second way sets out: longer than a first answer takes on any path but one by
/// satellite in a bad hour.
pub const HEAD_START: Duration = Duration::from_secs(1);

/// Whoever arrives first; `second` sets out when `first` has not arrived after [`HEAD_START`], or
/// has failed in a way that `is_absence` says may be different by the other way. When nobody
/// arrives, the reason of the first.
pub async fn race<T, E>(
    first: impl Future<Output = Result<T, E>>,
    second: impl Future<Output = Result<T, E>>,
    is_absence: impl Fn(&E) -> bool,
) -> Result<T, E> {
    tokio::pin!(first, second);
    let reason = |first: E, second: E| if is_absence(&second) { first } else { second };
    match timeout(HEAD_START, &mut first).await {
        Ok(Err(failed)) if is_absence(&failed) => {
            return second.await.map_err(|second| reason(failed, second));
        }
        Ok(arrived) => return arrived,
        Err(_) => {}
    }
    tokio::select! {
        arrived = &mut first => match arrived {
            Err(failed) if is_absence(&failed) => {
                second.await.map_err(|second| reason(failed, second))
            }
            arrived => arrived,
        },
        arrived = &mut second => match arrived {
            Err(failed) if is_absence(&failed) => first.await,
            arrived => arrived,
        },
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    const ABSENT: Outcome = Err("absent");
    const REFUSED: Outcome = Err("refused");

    type Outcome = Result<u8, &'static str>;

    async fn run(
        first: impl Future<Output = Outcome>,
        second: impl Future<Output = Outcome>,
    ) -> Outcome {
        race(first, second, |error| *error == "absent").await
    }

    async fn later(result: Outcome) -> Outcome {
        tokio::time::sleep(HEAD_START * 3).await;
        result
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_way_is_preferred_and_the_second_goes_where_it_does_not() {
        assert_eq!(run(ready(Ok(1)), ready(Ok(2))).await, Ok(1));
        assert_eq!(run(later(Ok(1)), pending()).await, Ok(1));
        assert_eq!(run(later(Ok(1)), later(Ok(2))).await, Ok(1));
        assert_eq!(run(pending(), later(Ok(2))).await, Ok(2));
        assert_eq!(run(ready(ABSENT), later(Ok(2))).await, Ok(2));
        assert_eq!(run(later(ABSENT), later(Ok(2))).await, Ok(2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_ends_it_and_silence_does_not() {
        assert_eq!(run(ready(REFUSED), ready(Ok(2))).await, REFUSED);
        assert_eq!(run(later(Ok(1)), ready(ABSENT)).await, Ok(1));
        assert_eq!(run(pending(), ready(REFUSED)).await, REFUSED);
        assert_eq!(run(later(REFUSED), ready(ABSENT)).await, REFUSED);
        assert_eq!(run(ready(ABSENT), ready(ABSENT)).await, ABSENT);
        assert_eq!(run(ready(ABSENT), ready(REFUSED)).await, REFUSED);
    }
}
