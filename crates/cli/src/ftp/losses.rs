//! Going on after a connection with a server was lost in the middle of a copy.

use std::time::Duration;

use ftp::client::{Client, ClientError};

use super::connect::{FtpUrl, How, connect};
use crate::cp::PATIENCE;

/// Connections in a row that may be lost without having brought the copy further.
const IN_VAIN_MAX: u32 = 3;

/// Between two attempts to reach a server.
const PAUSE: Duration = Duration::from_secs(1);

/// Losses of one copy.
#[derive(Default)]
pub struct Losses {
    /// Bytes that had moved, at most.
    furthest: u64,
    /// Connections in a row that were lost without having brought the copy further.
    in_vain: u32,
}

impl Losses {
    /// Whether to try again, when so many bytes had moved.
    pub fn bears(&mut self, moved: u64) -> bool {
        self.in_vain = if moved > self.furthest { 0 } else { self.in_vain + 1 };
        self.furthest = self.furthest.max(moved);
        self.in_vain <= IN_VAIN_MAX
    }
}

/// Whether a connection was lost, rather than anybody giving up.
pub fn is_loss(error: &anyhow::Error) -> bool {
    error.downcast_ref().is_some_and(ClientError::is_loss)
}

/// Connects when a loss is to be made good: that nobody answers is waited out.
pub async fn again(url: &FtpUrl, password: Option<&str>, how: How<'_>) -> anyhow::Result<Client> {
    let begin = net::clock::now();
    loop {
        match connect(url, password, how).await {
            Err(error) if is_loss(&error) && net::clock::now().since(begin) < PATIENCE => {}
            reached => return reached,
        }
        let pause = async {
            tokio::time::sleep(PAUSE).await;
            Ok(())
        };
        how.stop.or(pause).await?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_that_bring_nothing_are_borne_a_few_times() {
        let mut losses = Losses::default();
        assert!((1..100).all(|moved| losses.bears(moved)));
        assert!((0..IN_VAIN_MAX).all(|_| losses.bears(50)));
        assert!(!losses.bears(99));
        assert!(losses.bears(100), "it goes on");
    }
}
