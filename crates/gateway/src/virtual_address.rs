//! An address that gateways of one side share, of which one has it at a time (VRRP): the others stand
//! by. So packets and the trunk come to the same one, whoever decides which that is.

use std::future::pending;
use std::io;
use std::net::IpAddr;
use std::time::Duration;

use tokio::time::sleep;

use crate::dial::is_own;

/// Time between two looks.
const LOOK: Duration = Duration::from_millis(50);

/// None: this gateway has no other beside it.
#[derive(Clone, Copy)]
pub(crate) struct VirtualAddress(pub(crate) Option<IpAddr>);

impl VirtualAddress {
    /// The address, while another has it; and while it cannot be told who has.
    pub(crate) fn elsewhere(self) -> Option<IpAddr> {
        self.0.filter(|&address| !matches!(is_here(address), Ok(true)))
    }

    /// Waits until this host has it.
    pub(crate) async fn come(self) {
        while self.elsewhere().is_some() {
            sleep(LOOK).await;
        }
    }

    /// Waits until this host has it no more.
    pub(crate) async fn gone(self) {
        if self.0.is_none() {
            return pending().await;
        }
        // Who serves goes on when it cannot be told: all that it carries would be reset.
        while !self.0.is_some_and(|address| matches!(is_here(address), Ok(false))) {
            sleep(LOOK).await;
        }
    }
}

fn is_here(address: IpAddr) -> io::Result<bool> {
    // Any port does: nothing is sent.
    is_own((address, 9).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_address_is_here_or_elsewhere() {
        let [none, here, elsewhere] = [None, Some("127.0.0.1"), Some("192.0.2.1")]
            .map(|it| VirtualAddress(it.map(|it| it.parse().unwrap())));
        none.come().await;
        here.come().await;
        elsewhere.gone().await;
        assert_eq!(none.elsewhere().or(here.elsewhere()), None);
        assert_eq!(elsewhere.elsewhere(), elsewhere.0);
    }
}
