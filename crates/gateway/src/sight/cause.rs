//! Why there is no trunk, and what to do about it.

use std::net::{IpAddr, SocketAddr};

use net::NetError;
use serde::{Deserialize, Serialize};

const KEYS: &str =
    "give both the same trunk.key, or each the other's `longhaul fingerprint` as trunk.peer_key";
const RUN: &str = "see that the other gateway runs";

/// Why there is no trunk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Cause {
    /// What is wrong.
    pub what: String,
    /// What to do.
    pub mend: String,
}

impl Cause {
    fn new(what: impl Into<String>, mend: impl Into<String>) -> Self {
        Self { what: what.into(), mend: mend.into() }
    }

    /// Of one that could not be made, or was lost.
    pub(crate) fn of(error: &NetError) -> Self {
        match error {
            NetError::WrongKey { .. }
            | NetError::NotAllowed { .. }
            | NetError::OtherKind { .. } => Self::new(error.to_string(), KEYS),
            NetError::NoAnswer { address, .. } => Self::silence(*address),
            NetError::Unreachable { address, source } if error.is_silence() => Self::new(
                format!("{address} cannot be reached: {source}"),
                "see to the route to the other gateway (`ip route get`) and to firewalls on the way",
            ),
            NetError::Unreachable { address, .. } => Self::new(
                format!("nobody listens at {address}"),
                "run the gateway there, with trunk.listen at that port",
            ),
            NetError::Lost { address, .. } => {
                let port = address.port();
                Self::new(
                    error.to_string(),
                    format!("{RUN}, and that UDP port {port} passes both ways"),
                )
            }
            error => Self::new(error.to_string(), RUN),
        }
    }

    /// Nobody answers.
    pub(crate) fn silence(peer: SocketAddr) -> Self {
        let mend = format!("{RUN}, and that UDP port {} passes both ways", peer.port());
        Self::new(format!("{peer} does not answer"), mend)
    }

    /// Another gateway of this side serves.
    pub(crate) fn stands_by(virtual_address: IpAddr) -> Self {
        Self::new(
            format!("stands by: another gateway has {virtual_address}"),
            "nothing, while that one serves; else see to what moves the address (VRRP)",
        )
    }

    /// So many calls came that were not let in.
    pub(crate) fn strangers(calls: u64) -> Self {
        let times = if calls == 1 { "once".into() } else { format!("{calls} times") };
        Self::new(format!("a gateway with a different key has called, {times}"), KEYS)
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn a_wrong_key_is_not_taken_for_silence() {
        let address = "192.0.2.1:7273".parse().unwrap();
        let refused = io::ErrorKind::ConnectionRefused.into();
        let (unreachable, after) = (io::ErrorKind::NetworkUnreachable.into(), Default::default());
        for (error, what, mend) in [
            (NetError::WrongKey { address }, "different key", "trunk.key"),
            (NetError::NotAllowed { address }, "key", "trunk.peer_key"),
            (NetError::NoAnswer { address, after, carrier: "UDP" }, "not answer", "UDP port 7273"),
            (NetError::Unreachable { address, source: refused }, "nobody listens", "run the"),
            (NetError::Unreachable { address, source: unreachable }, "be reached", "ip route"),
            (NetError::Lost { address, reason: "so".into() }, "lost: so", "UDP port 7273"),
            (NetError::Closed, "closed", "runs"),
        ] {
            let cause = Cause::of(&error);
            assert!(cause.what.contains(what) && cause.mend.contains(mend), "{cause:?}");
        }
    }
}
