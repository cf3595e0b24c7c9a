//! `longhaul far`: what ssh starts on the far side.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use net::udp::{UdpConnection, UdpEndpoint};
use net::{Credentials, NetError, tcp};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::task::JoinSet;
use transfer::{Root, ServeOptions};

use super::Channel;
use super::greeting::{self, Place};
use crate::args::Sending;
use crate::cp::Paced;
use crate::pacing::{Pacer, Pacers};
use crate::signals::{self, Signals};
use crate::{cp, serve};

/// How long what is done may take to end in order once ssh has: the last word of a transfer came beside ssh, and
/// is only to be read. Longer, and who was cut in the middle would not have written down what it has before
/// the next one asks for it.
const FAREWELL: Duration = Duration::from_millis(250);

/// Requests at a time over each way: one transfer makes one after another.
const MAX_REQUESTS: usize = 16;

/// Serves one transfer until standard input ends.
pub fn run(sending: Sending) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Runtime::new().context("cannot start threads")?;
    let ended = runtime.block_on(async {
        let mut signals = Signals::catch()?;
        tokio::select! {
            ended = far(sending) => ended.map(|()| ExitCode::SUCCESS),
            signal = signals.next() => Ok(ExitCode::from(signals::code(signal))),
        }
    });
    // Reading standard input cannot be taken back, so that a plain drop might wait for ever.
    runtime.shutdown_timeout(signals::GRACE);
    ended
}

async fn far(sending: Sending) -> anyhow::Result<()> {
    let mut input = BufReader::new(tokio::io::stdin());
    let mut output = tokio::io::stdout();
    let (version, key) = match greeting::hear_near(&mut input).await? {
        Ok(agreed) => agreed,
        Err((answer, why)) => {
            output.write_all(answer.as_bytes()).await?;
            output.flush().await?;
            return Err(why);
        }
    };
    let mut ports = ports(&key.into(), sending);
    let port = ports.as_ref().map_or(0, |(endpoint, _)| endpoint.address().port());
    let place = Place { port, address: own_address() };
    output.write_all(greeting::far(version, &place).as_bytes()).await?;
    output.flush().await?;
    let mut channel = Channel::new(input, output);
    let over_ssh = async {
        // An error here is the end of ssh, and told on the other side.
        while channel.incoming().await.unwrap_or(false) {
            let mut stream = channel.stream();
            request(&mut stream).await;
            if stream.finish().await.is_err() {
                break;
            }
        }
    };
    let mut requests = JoinSet::new();
    tokio::select! {
        () = over_ssh => {}
        failed = beside(ports.as_mut(), &mut requests) => return failed,
    }
    let ending = async { while requests.join_next().await.is_some() {} };
    // Who is not done is cut.
    let _ = tokio::time::timeout(FAREWELL, ending).await;
    Ok(())
}

/// Serves those who come with the key.
async fn beside(ports: Option<&mut Ports>, requests: &mut JoinSet<()>) -> anyhow::Result<()> {
    let Some((endpoint, listener)) = ports else { return std::future::pending().await };
    loop {
        let has_room = requests.len() < MAX_REQUESTS;
        tokio::select! {
            connection = endpoint.accept(), if has_room => {
                requests.spawn(connected(connection?));
            }
            accepted = listener.accept_if(has_room) => {
                let (stream, _) = accepted?;
                requests.spawn(request(stream));
            }
            Some(_) = requests.join_next() => {}
        }
    }
}

async fn connected(connection: UdpConnection) {
    let mut requests = JoinSet::new();
    while let Ok(stream) = connection.accept().await {
        while requests.try_join_next().is_some() {}
        requests.spawn(request(stream));
    }
    while requests.join_next().await.is_some() {}
}

/// What goes wrong is told to the other side, and by it.
async fn request(stream: impl AsyncRead + AsyncWrite + Unpin + Send) {
    // It may do what its user may, who is also the one who asks.
    let options = ServeOptions { owners: true, ..ServeOptions::default() };
    let writing = vec![Pacer::asked(options.asked.clone())];
    let paced = Paced::by(stream, Pacers { writing, ..Pacers::default() });
    let _ = transfer::serve(paced, Root::User, &options).await;
}

type Ports = (UdpEndpoint, tcp::Listener);

/// Ports of the same number, where there are any: without IPv6, those of IPv4.
fn ports(credentials: &Credentials, sending: Sending) -> Option<Ports> {
    let listen = |address: IpAddr| -> Result<_, NetError> {
        let address = SocketAddr::new(address, 0);
        // The near side says how long it waits.
        let udp = transport::Config { idle_timeout: cp::PATIENCE, ..sending.config() };
        let udp = (udp, NonZeroUsize::MIN);
        serve::listen(address, credentials, udp, &tcp::Options::default())
    };
    let any = listen(Ipv6Addr::UNSPECIFIED.into());
    any.or_else(|_| listen(Ipv4Addr::UNSPECIFIED.into())).ok()
}

/// The address at which sshd was reached: the third word of SSH_CONNECTION.
fn own_address() -> Option<IpAddr> {
    let connection = std::env::var("SSH_CONNECTION").ok()?;
    // A link-local address has its link behind a percent sign, which means nothing elsewhere.
    connection.split(' ').nth(2)?.parse().ok()
}
