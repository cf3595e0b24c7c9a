//! The explicit ways to the trunk, for users without root: programs that know proxies name their
//! server (`hello`), and each forward has one. Whom the trunk cannot serve is connected from here.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use net::udp::UdpStream;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::GatewayError;
use crate::config::{Intercept, Proxy, share};
use crate::dial::{direct, prepare};
use crate::hello::{self, Manner};
use crate::inherited::Inherited;
use crate::record::{Bypass, Outcome, Record};
use crate::request::{NO_ROOM, Refusal, Request, Target, ask_while_there_is_room};
use crate::sight::{Book, Counters, Side};
use crate::splice::{End, splice};
use crate::trunk::Trunk;

/// How long a client may take to say whom it wants.
const HELLO: Duration = Duration::from_secs(30);
/// As long as any client would repeat its SYN.
const PATIENCE: Duration = Duration::from_secs(130);
/// Clients at a time.
const MAX_CLIENTS: usize = 4096;

/// Brings clients to their servers.
pub(crate) struct Broker<R> {
    pub(crate) trunk: Trunk,
    pub(crate) book: Book,
    /// What it says of shares holds here too.
    pub(crate) intercept: Option<Intercept>,
    /// How long a host may say nothing.
    pub(crate) keepalive: Duration,
    pub(crate) report: R,
}

/// Where clients come in, and the server that is there for those who name none.
type Door = (TcpListener, Option<Target>);

/// Serves clients without end.
///
/// # Errors
/// [`GatewayError::Proxy`] when an address cannot be used.
pub(crate) async fn run<R>(settings: &Proxy, broker: Broker<R>) -> Result<Infallible, GatewayError>
where
    R: Fn(Record) + Send + Sync + 'static,
{
    let (mut doors, mut inherited) = (Vec::new(), Inherited::from_systemd());
    inherited.keep_only(|there| settings.doors().any(|(address, _)| address == there));
    for (address, server) in settings.doors() {
        let listener = inherited.listen(address);
        let listener = listener.map_err(|error| GatewayError::Proxy(address, error))?;
        doors.push((listener, server.cloned()));
    }
    let broker = Arc::new(broker);
    let mut clients = JoinSet::new();
    loop {
        tokio::select! {
            (accepted, server) = next(&doors), if clients.len() < MAX_CLIENTS => {
                // One that is gone already is no failure of the listener.
                let Ok((client, address)) = accepted else {
                    sleep(crate::BREATH).await;
                    continue;
                };
                let (broker, server) = (broker.clone(), server.cloned());
                // Of a client that fails before it was understood there is nothing to tell.
                clients.spawn(async move { drop(broker.serve(client, address, server).await) });
            }
            Some(_) = clients.join_next() => {}
        }
    }
}

/// The next client at any door, and the server that it has if it names none.
async fn next(doors: &[Door]) -> (io::Result<(TcpStream, SocketAddr)>, Option<&Target>) {
    poll_fn(|cx| {
        for (listener, server) in doors {
            if let Poll::Ready(accepted) = listener.poll_accept(cx) {
                return Poll::Ready((accepted, server.as_ref()));
            }
        }
        Poll::Pending
    })
    .await
}

impl<R: Fn(Record)> Broker<R> {
    async fn serve(
        &self,
        mut client: TcpStream,
        address: SocketAddr,
        server: Option<Target>,
    ) -> io::Result<()> {
        prepare(&client, self.keepalive)?;
        let (server, manner) = match server {
            Some(server) => {
                // It can be told in no other way that there is no server.
                client.cut_when_dropped();
                (server, Manner::Silent)
            }
            None => match timeout(HELLO, hello::read(&mut client)).await?? {
                Some(asked) => asked,
                None => return Ok(()),
            },
        };
        let name = server.to_string();
        let tell = |outcome| {
            (self.report)(Record { client: address, server: name.clone(), outcome });
        };
        let why = match self.ask(address, &server).await {
            Ok(Ok(stream)) => {
                client.write_all(&manner.answer(Ok(()))).await?;
                let entry = self.book.enter(Side::Near, address, name.clone());
                let passed = splice(client, stream, entry.counters()).await;
                drop(entry);
                tell(Outcome::Carried(passed));
                return Ok(());
            }
            Ok(Err(refusal)) => {
                tell(Outcome::Refused(refusal));
                return client.write_all(&manner.answer(Err(refusal))).await;
            }
            Err(why) => why,
        };
        tell(Outcome::Bypassed(why));
        let connected = direct(&server).await;
        let reply = connected.as_ref().map(|_| ()).map_err(|refusal| *refusal);
        client.write_all(&manner.answer(reply)).await?;
        if let Ok(stream) = connected {
            prepare(&stream, self.keepalive)?;
            splice(client, stream, &Counters::default()).await;
        }
        Ok(())
    }

    /// Asks the far gateway for a server, over another trunk if one fails.
    async fn ask(
        &self,
        client: SocketAddr,
        server: &Target,
    ) -> Result<Result<UdpStream, Refusal>, Bypass> {
        let share = share(self.intercept.as_ref(), server);
        let request = Request { client, server: server.clone(), transparent: false, share };
        let mut failed = None;
        while let Some(link) = self.trunk.usable_beside(failed) {
            if link.connection.is_crowded() {
                return Err(Bypass::NoRoom);
            }
            let answer = tokio::select! {
                answer = timeout(PATIENCE, ask_while_there_is_room(&link.connection, &request)) => {
                    answer.unwrap_or(Ok(Err(Refusal::Silence)))
                }
                () = self.trunk.fallen_silent(link.id()) => Err(io::ErrorKind::TimedOut.into()),
            };
            match answer {
                Ok(Err(Refusal::Failed)) => return Err(Bypass::Far),
                Ok(answer) => return Ok(answer),
                Err(error) if error.kind() == NO_ROOM => return Err(Bypass::NoRoom),
                // Two that are heard and fail will not do better in turns.
                Err(_) if failed.is_some() && self.trunk.is_heard(link.id()) => break,
                Err(_) => failed = Some(link.id()),
            }
        }
        Err(Bypass::NoTrunk)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trunk::tests::ends;

    #[tokio::test]
    async fn what_a_crowded_trunk_has_no_room_for_goes_direct() {
        let config = net::Config { max_streams: 64, ..net::Config::default() };
        let (near, _far, _endpoints) = ends(config).await;
        let mut others = Vec::new();
        while !near.is_crowded() {
            others.push(near.open().await.unwrap());
        }
        let trunk = Trunk::over(near);
        let book = Book::new(trunk.clone());
        let broker = Broker { trunk, book, intercept: None, keepalive: HELLO, report: |_| () };
        let client = "192.0.2.1:1".parse().unwrap();
        let asked = broker.ask(client, &Target::Name("localhost".to_owned(), 9)).await;
        assert_eq!(asked.err(), Some(Bypass::NoRoom));
    }
}
