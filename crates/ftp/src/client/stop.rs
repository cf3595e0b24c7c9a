//! The user's wish to stop, as a client and whatever surrounds it share it.

use std::sync::Arc;

use tokio::sync::watch;

use super::ClientError;

/// A wish to stop, which stands until it is taken back: whoever looks later sees it too.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<watch::Sender<bool>>);

impl Stop {
    /// Stops what is under way, and what would begin.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }

    /// Takes the wish back.
    pub fn reset(&self) {
        self.0.send_replace(false);
    }

    /// Whether it stands.
    pub fn is_wanted(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits for it.
    pub async fn wanted(&self) {
        // Fails only without a sender, which this is.
        let _ = self.0.subscribe().wait_for(|wanted| *wanted).await;
    }

    /// Goes on until then.
    ///
    /// # Errors
    /// [`ClientError::Stopped`], at once when the wish stands already.
    pub async fn or<T>(
        &self,
        work: impl Future<Output = Result<T, ClientError>>,
    ) -> Result<T, ClientError> {
        tokio::select! {
            biased;
            () = self.wanted() => Err(ClientError::Stopped),
            done = work => done,
        }
    }
}
