//! The other gateway: whether it is there, is who it should be, and how well it is reached.

use std::time::Duration;

use net::udp::UdpEndpoint;
use net::{Credentials, NetError};
use tokio::time::{sleep, timeout};

use super::{Check, Finding};
use crate::config::Config;
use crate::sight::{AskError, Status, TrunkState};

/// How long the other gateway may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Loss of packets that no trunk should have, and queues.
const MUCH_LOSS: f64 = 0.1;
const LONG_QUEUE_MS: f64 = 500.0;
/// Time for an answer to a connection that is closed again to go out.
const GOODBYE: Duration = Duration::from_millis(50);

pub(super) async fn examine(
    config: &Config,
    credentials: &Credentials,
    status: Result<Status, AskError>,
) -> Vec<Check> {
    let trunk = match &status {
        Ok(status) => live(status),
        Err(AskError::RootOnly) => {
            Finding::Unknown("only root may ask the gateway that runs".into())
        }
        Err(_) => tried(config, credentials).await,
    };
    let gateway = match status {
        Ok(status) => Finding::Fine(format!("runs, {} connections open", status.open)),
        Err(AskError::NotRunning) => Finding::fault(
            "it does not run: all connections go direct",
            "systemctl start longhaul-gateway, or longhaul gateway run -c FILE",
        ),
        Err(error @ AskError::RootOnly) => Finding::Unknown(error.to_string()),
        Err(error @ AskError::Stranger(_)) => {
            Finding::fault("whether it runs cannot be told", error.to_string())
        }
        Err(error) => Finding::fault(error.to_string(), "stop it and run it again"),
    };
    let mut checks =
        vec![Check { name: "gateway", finding: gateway }, Check { name: "trunk", finding: trunk }];
    if let Some(listen) = config.trunk.listen {
        let finding = match listen.port() {
            0 => Finding::fault("port 0: no caller knows it", "name a port in trunk.listen"),
            port => Finding::Fine(format!("called at UDP port {port}; firewalls must let it in")),
        };
        checks.push(Check { name: "address", finding });
    }
    checks
}

/// What the gateway that runs says of its trunk.
fn live(status: &Status) -> Finding {
    let (trunk, now) = (&status.trunk, &status.trunk.now);
    match trunk.state {
        TrunkState::Up
            if trunk.sent > 1000 && trunk.lost as f64 > MUCH_LOSS * trunk.sent as f64 =>
        {
            Finding::fault(
                format!("up, but of {} packets sent {} were lost", trunk.sent, trunk.lost),
                "look for a policer or a broken link on the way, or set trunk.rate below its rate",
            )
        }
        TrunkState::Up if now.queue_ms > LONG_QUEUE_MS => Finding::fault(
            format!("up, but packets queue for {:.0} ms on the way", now.queue_ms),
            "others fill the way's queue: set trunk.rate, or give the trunk a queue of its own",
        ),
        TrunkState::Up => Finding::Fine(format!("up, round trip {:.1} ms", now.rtt_ms)),
        TrunkState::Silent | TrunkState::Down => Finding::fault(
            format!("{}", trunk.state),
            "run doctor on the other gateway; between the two UDP must pass both ways",
        ),
    }
}

/// Makes a trunk for a moment.
async fn tried(config: &Config, credentials: &Credentials) -> Finding {
    let Some(peer) = config.trunk.peer else {
        return Finding::Unknown("the other gateway calls this one, which does not run".into());
    };
    let attempt = async {
        let endpoint = UdpEndpoint::client(peer, credentials.clone(), net::Config::default())?;
        let connection = endpoint.connect(peer).await?;
        let rtt = connection.stats().rtt;
        drop(connection);
        sleep(GOODBYE).await;
        Ok::<_, NetError>(rtt)
    };
    match timeout(PATIENCE, attempt).await {
        Ok(Ok(rtt)) => {
            Finding::Fine(format!("can be made, round trip {:.1} ms", rtt.as_secs_f64() * 1e3))
        }
        Ok(Err(
            error @ (NetError::WrongKey { .. }
            | NetError::NotAllowed { .. }
            | NetError::OtherKind { .. }),
        )) => Finding::fault(
            error.to_string(),
            "give both the same trunk.key, or each the other's `longhaul fingerprint` as trunk.peer_key",
        ),
        Ok(Err(NetError::Unreachable { .. })) => Finding::fault(
            format!("nobody listens at {peer}"),
            "run the gateway there, with trunk.listen at that port",
        ),
        Ok(Err(error)) => Finding::fault(error.to_string(), "see that the other gateway runs"),
        Err(_) => Finding::fault(
            format!("{peer} does not answer"),
            format!(
                "see that the other gateway runs, and that UDP port {} passes both ways",
                peer.port()
            ),
        ),
    }
}
