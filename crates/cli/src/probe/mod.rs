//! `longhaul probe`: what the path to a server is like. `measure` takes the figures, `findings`
//! judges them, `record` makes a scenario of them; this file connects, and says them.

mod findings;
mod measure;
mod record;

use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, anyhow};
use indicatif::{ProgressBar, ProgressStyle};
use net::tcp;
use net::udp::{UdpConnection, UdpEndpoint};
use serde_json::json;

use crate::args::{Probe, Transport};
use crate::keys::{self, Introduction};
use crate::progress::emit;
use crate::qlog::Qlog;
use crate::signals::{self, Signals};

use findings::Findings;
use measure::Flow;

/// How long the last packets of the connection may take to leave.
const FAREWELL: Duration = Duration::from_secs(2);

const UDP_HEADER: u64 = 8;

/// `longhaul probe`.
pub fn run(options: &Probe) -> anyhow::Result<ExitCode> {
    let own = keys::load(&options.key)?;
    let (server, accept_new) = (options.server.clone(), options.accept_new);
    let mut introduction =
        Introduction { own, server, transport: Transport::Udp, accept_new, host: None };
    let runtime = tokio::runtime::Runtime::new().context("cannot start threads")?;
    runtime.block_on(async {
        let mut signals = Signals::catch()?;
        tokio::select! {
            probed = probe(options, &mut introduction) => match probed {
                Ok(findings) => {
                    report(options, &findings)?;
                    Ok(ExitCode::SUCCESS)
                }
                Err(error) => {
                    if options.json {
                        let message = crate::sentence(&error);
                        emit(&json!({ "event": "error", "message": message }));
                    }
                    Err(error)
                }
            },
            signal = signals.next() => Ok(ExitCode::from(signals::code(signal))),
        }
    })
}

fn report(options: &Probe, findings: &Findings) -> anyhow::Result<()> {
    if options.json {
        emit(&findings.object());
    } else {
        say!("{findings}");
    }
    let Some(file) = &options.record else { return Ok(()) };
    std::fs::write(file, record::scenario(&options.server, findings))
        .with_context(|| format!("cannot write {}", file.display()))
}

async fn probe(options: &Probe, introduction: &mut Introduction) -> anyhow::Result<Findings> {
    let mut failure = None;
    // A name may have addresses at which nobody is.
    for address in introduction.server.resolve().await? {
        match at(options, introduction, address).await {
            Err(error) if crate::cp::is_absence(&error) => {
                failure = Some(blocked(introduction, address, error).await);
            }
            probed => return probed,
        }
    }
    Err(failure.context("no address to connect to")?)
}

/// Nobody answers by UDP: perhaps by TCP?
async fn blocked(
    introduction: &mut Introduction,
    address: SocketAddr,
    error: anyhow::Error,
) -> anyhow::Error {
    introduction.transport = Transport::Tcp;
    let by_tcp = async {
        let meeting = introduction.meet(address).await?;
        tcp::connect(
            address,
            &meeting.credentials,
            tcp::Policy::Fixed(1),
            &tcp::Options::default(),
        )
        .await?;
        anyhow::Ok(())
    };
    let answers = by_tcp.await.is_ok();
    introduction.transport = Transport::Udp;
    if !answers {
        return error;
    }
    anyhow!(
        "{error}; but it answers by TCP, so UDP is blocked on the way: open UDP port {} there, or \
         use `longhaul cp --transport tcp`",
        address.port()
    )
}

async fn at(
    options: &Probe,
    introduction: &Introduction,
    address: SocketAddr,
) -> anyhow::Result<Findings> {
    let meeting = introduction.meet(address).await?;
    // As on a path of which nothing is known: what is measured now is to count.
    let qlog = Qlog::to(options.logs.qlog.as_deref())?;
    let config = transport::Config { trace: qlog.is_on(), ..Default::default() };
    let endpoint = UdpEndpoint::client(address, &meeting.credentials, config)?;
    let connection = match endpoint.connect(address).await {
        Ok(connection) => connection,
        Err(error) => return Err(introduction.explain(address, error).await),
    };
    qlog.watch(&connection, endpoint.address());
    if let Some(news) = introduction.succeeded(&meeting)? {
        tell!("longhaul: {news}");
    }
    let measured = measured(options, &connection).await;
    drop(connection);
    let _ = tokio::time::timeout(FAREWELL, endpoint.idle()).await;
    measured
}

async fn measured(options: &Probe, connection: &UdpConnection) -> anyhow::Result<Findings> {
    let bar = ProgressBar::new_spinner();
    bar.set_style(ProgressStyle::with_template("{spinner} {msg}").expect("a constant template"));
    let step = |what: &'static str| {
        bar.set_message(what);
        bar.enable_steady_tick(Duration::from_millis(100));
    };
    let each = Duration::from_secs(options.seconds) / 2;
    step("round trips");
    let rtt = measure::round_trips(connection).await?;
    step("how much goes there");
    let there = measure::there(connection, each).await?;
    let there = Flow { idle: rtt.least, ..there };
    // What is still in the queues belongs to the other direction.
    tokio::time::sleep(rtt.median * 2).await;
    step("how much comes back");
    let back = measure::back(connection, each).await?;
    let back = Flow { idle: rtt.least, ..back };
    bar.finish_and_clear();
    let headers = match connection.address().ip().to_canonical() {
        IpAddr::V4(_) => UDP_HEADER + 20,
        IpAddr::V6(_) => UDP_HEADER + 40,
    };
    Ok(Findings { rtt, there, back, mtu: connection.stats().datagram + headers })
}
