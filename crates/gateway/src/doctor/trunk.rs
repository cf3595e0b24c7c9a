//! The other gateway: whether it is there, is who it should be, and how well it is reached.

use std::net::SocketAddr;
use std::time::Duration;

use net::udp::{UdpConnection, UdpEndpoint};
use net::{Credentials, NetError};
use tokio::time::{sleep, timeout};
use units::Rate;

use super::{Check, Finding, trial};
use crate::config::Config;
use crate::sight::{AskError, Cause, Sample, Status, TrunkState};

/// How long the other gateway may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Loss of packets that no trunk should have, and queues.
pub(super) const MUCH_LOSS: f64 = 0.1;
const LONG_QUEUE_MS: f64 = 500.0;
/// What to do about much loss.
pub(super) const POLICED: &str =
    "look for a policer or a broken link on the way, or set trunk.rate below its rate";
/// Time for an answer to a connection that is closed again to go out.
const GOODBYE: Duration = Duration::from_millis(50);

pub(super) async fn examine(
    config: &Config,
    credentials: &Credentials,
    status: Result<Status, AskError>,
) -> Vec<Check> {
    let mut standby = Vec::new();
    let (trunk, throughput) = match &status {
        Ok(status) => {
            standby.extend(not_alone(config, status));
            (live(status), Some(carried(status)))
        }
        Err(AskError::RootOnly) => {
            (Finding::Unknown("only root may ask the gateway that runs".into()), None)
        }
        Err(AskError::NotRunning) => {
            for peer in &config.trunk.standby {
                standby.push(reached(*peer, config, credentials).await);
            }
            tried(config, credentials).await
        }
        // A trial beside a gateway would take the trunk from its connections.
        Err(_) => (Finding::Unknown("not tried, for a gateway may run here".into()), None),
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
    checks.extend(standby.into_iter().map(|finding| Check { name: "standby", finding }));
    checks.extend(throughput.map(|finding| Check { name: "throughput", finding }));
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
                POLICED,
            )
        }
        TrunkState::Up if now.queue_ms > LONG_QUEUE_MS => Finding::fault(
            format!("up, but packets queue for {:.0} ms on the way", now.queue_ms),
            "others fill the way's queue: set trunk.rate, or give the trunk a queue of its own",
        ),
        TrunkState::Up => Finding::Fine(format!("up, round trip {:.1} ms", now.rtt_ms)),
        TrunkState::Other => Finding::Unknown("the gateway is of a newer version".into()),
        TrunkState::Silent | TrunkState::Down => match &trunk.cause {
            Some(Cause { what, mend }) => Finding::fault(format!("{}; {what}", trunk.state), mend),
            None => Finding::fault(
                format!("{}", trunk.state),
                "run doctor on the other gateway; between the two UDP must pass both ways",
            ),
        },
    }
}

/// Of several other gateways, whether the one that runs hears each.
fn not_alone(config: &Config, status: &Status) -> Vec<Finding> {
    let peers = config.trunk.peers();
    // With none of them there is no trunk, which is told already.
    if peers.len() < 2 || status.trunk.heard.is_empty() {
        return Vec::new();
    }
    let heard = |peer: SocketAddr| match status.trunk.heard.contains(&peer.to_string()) {
        true => Finding::Fine(format!("{peer} is heard")),
        false => Finding::fault(
            format!("{peer} is not heard: others stand in for it, and it for none"),
            format!("stop this gateway for a moment and run doctor again, which then calls {peer}"),
        ),
    };
    peers.into_iter().map(heard).collect()
}

/// What the gateway that runs had to carry lately.
fn carried(status: &Status) -> Finding {
    let most = |rate: fn(&Sample) -> f64| status.history.iter().map(rate).fold(0.0, f64::max);
    let [sent, received] = [most(|it| it.sent), most(|it| it.received)]
        .map(|bits| Rate::from_bits_per_sec(bits as u64));
    Finding::Fine(format!("at most {sent} sent and {received} received in the last ten minutes"))
}

/// Makes a trunk for a moment, and sees what it carries.
async fn tried(config: &Config, credentials: &Credentials) -> (Finding, Option<Finding>) {
    let Some(peer) = config.trunk.peer else {
        let why = "the other gateway calls this one, which does not run";
        return (Finding::Unknown(why.into()), None);
    };
    match call(peer, config, credentials).await {
        Ok((_endpoint, connection)) => {
            let rtt = connection.stats().rtt;
            let throughput = match timeout(PATIENCE + trial::LONGEST, trial::run(&connection)).await
            {
                Ok(Ok(trial)) => trial.judge(config.trunk.rate),
                Ok(Err(error)) => Finding::Unknown(format!("could not be tried: {error}")),
                Err(_) => Finding::Unknown("could not be tried in time".into()),
            };
            drop(connection);
            sleep(GOODBYE).await;
            let made = format!("can be made, round trip {:.1} ms", rtt.as_secs_f64() * 1e3);
            (Finding::Fine(made), Some(throughput))
        }
        Err(Cause { what, mend }) => (Finding::Fault { what, mend }, None),
    }
}

/// Whether a gateway that stands in would take connections.
async fn reached(peer: SocketAddr, config: &Config, credentials: &Credentials) -> Finding {
    match call(peer, config, credentials).await {
        Ok((_endpoint, connection)) => {
            let answer = timeout(PATIENCE, trial::open(&connection)).await;
            let answers = answer.is_ok_and(|answer| answer.is_ok());
            drop(connection);
            sleep(GOODBYE).await;
            match answers {
                true => Finding::Fine(format!("{peer} answers")),
                false => Finding::fault(
                    format!("{peer} is no gateway, or one of an old version"),
                    "see what runs there, or correct trunk.standby",
                ),
            }
        }
        Err(Cause { what, mend }) => Finding::Fault { what, mend },
    }
}

/// Makes a trunk.
async fn call(
    peer: SocketAddr,
    config: &Config,
    credentials: &Credentials,
) -> Result<(UdpEndpoint, UdpConnection), Cause> {
    let settings = net::Config { rate_limit: config.trunk.rate, ..net::Config::default() };
    let attempt = async {
        let credentials = config.trunk.credentials_for(peer, credentials);
        let endpoint = UdpEndpoint::client(peer, credentials, settings)?;
        let connection = endpoint.connect(peer).await?;
        Ok::<_, NetError>((endpoint, connection))
    };
    let made = timeout(PATIENCE, attempt).await.map_err(|_| Cause::silence(peer))?;
    made.map_err(|error| Cause::of(&error))
}
