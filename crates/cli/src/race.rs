//! Two ways at once, of which the first is preferred.

use std::future::Future;
use std::time::Duration;

use net::NetError;
use tokio::time::timeout;

/// How much later the second way sets out: longer than a first answer takes on any path but one by
/// satellite in a bad hour.
pub const HEAD_START: Duration = Duration::from_secs(1);

/// Why somebody does not arrive, the less certain first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Failure {
    /// Nothing was heard.
    Silence,
    /// Nobody is there, by this way.
    Absence,
    /// Somebody is there and will not have it.
    Refusal,
}

impl From<&NetError> for Failure {
    fn from(error: &NetError) -> Self {
        match error {
            error if error.is_silence() => Self::Silence,
            error if error.is_absence() => Self::Absence,
            _ => Self::Refusal,
        }
    }
}

/// Whoever arrives first; `second` sets out when `first` has not arrived after [`HEAD_START`], or
/// has failed other than by a refusal. When nobody arrives, the more certain reason.
pub async fn race<T, E>(
    first: impl Future<Output = Result<T, E>>,
    second: impl Future<Output = Result<T, E>>,
) -> Result<T, E>
where
    for<'a> Failure: From<&'a E>,
{
    tokio::pin!(first, second);
    let may_go_on = |failed: &E| Failure::from(failed) < Failure::Refusal;
    let reason = |first: E, second: E| {
        if Failure::from(&second) > Failure::from(&first) { second } else { first }
    };
    match timeout(HEAD_START, &mut first).await {
        Ok(Err(failed)) if may_go_on(&failed) => {
            return second.await.map_err(|second| reason(failed, second));
        }
        Ok(arrived) => return arrived,
        Err(_) => {}
    }
    tokio::select! {
        arrived = &mut first => match arrived {
            Err(failed) if may_go_on(&failed) => {
                second.await.map_err(|second| reason(failed, second))
            }
            arrived => arrived,
        },
        arrived = &mut second => match arrived {
            Err(failed) if may_go_on(&failed) => {
                first.await.map_err(|first| reason(first, failed))
            }
            arrived => arrived,
        },
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    #[derive(Debug, PartialEq)]
    struct Why(u8);

    impl From<&Why> for Failure {
        fn from(why: &Why) -> Self {
            [Self::Silence, Self::Absence, Self::Refusal][usize::from(why.0)]
        }
    }

    type Outcome = Result<u8, Why>;

    const SILENT: Outcome = Err(Why(0));
    const ABSENT: Outcome = Err(Why(1));
    const REFUSED: Outcome = Err(Why(2));

    async fn later(result: Outcome) -> Outcome {
        tokio::time::sleep(HEAD_START * 3).await;
        result
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_way_is_preferred_and_the_second_goes_where_it_does_not() {
        assert_eq!(race(ready(Ok(1)), ready(Ok(2))).await, Outcome::Ok(1));
        assert_eq!(race(later(Ok(1)), pending()).await, Ok(1));
        assert_eq!(race(later(Ok(1)), later(Ok(2))).await, Ok(1));
        assert_eq!(race(pending(), later(Ok(2))).await, Ok(2));
        assert_eq!(race(ready(ABSENT), later(Ok(2))).await, Ok(2));
        assert_eq!(race(later(SILENT), later(Ok(2))).await, Ok(2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_ends_it_and_silence_does_not() {
        assert_eq!(race(ready(REFUSED), ready(Ok(2))).await, REFUSED);
        assert_eq!(race(later(Ok(1)), ready(ABSENT)).await, Ok(1));
        assert_eq!(race(pending(), ready(REFUSED)).await, REFUSED);
        assert_eq!(race(later(REFUSED), ready(ABSENT)).await, REFUSED);
        assert_eq!(race(later(SILENT), ready(ABSENT)).await, ABSENT);
        assert_eq!(race(ready(ABSENT), later(SILENT)).await, ABSENT);
        assert_eq!(race(ready(SILENT), ready(SILENT)).await, SILENT);
    }
}
