//! A client that was answered before its server was asked, as the settings wish: it cannot go direct any
//! more.

use std::io;
use std::time::Duration;

use net::udp::UdpStream;
use tokio::net::TcpStream;

use crate::dial::{direct, prepare};
use crate::record::Outcome;
use crate::request::{Refusal, Request, ask};
use crate::sight::Entry;
use crate::splice::splice;
use crate::trunk::Trunk;

/// What became of a client.
pub(crate) enum Served {
    /// It has ended.
    Ended(Outcome),
    /// The far gateway could not, so its server was connected from here; the two are to be joined.
    Direct(TcpStream, TcpStream),
}

/// Brings a client, which is reset when dropped, to its server: over the trunk, or from here where the far
/// gateway cannot.
pub(crate) async fn serve(
    client: TcpStream,
    request: &Request,
    trunk: &Trunk,
    keepalive: Duration,
    entry: Entry,
) -> Served {
    let refusal = match ask_patiently(trunk, request).await {
        Ok(Ok(stream)) => {
            let passed = splice(client, stream, entry.counters()).await;
            return Served::Ended(Outcome::Carried(passed));
        }
        Ok(Err(refusal)) => refusal,
        Err(_) => return Served::Ended(Outcome::Lost),
    };
    // It is none of the trunk's.
    drop(entry);
    if refusal != Refusal::Failed {
        return Served::Ended(Outcome::Refused(refusal));
    }
    match direct(&request.server).await {
        Ok(server) if prepare(&server, keepalive).is_ok() => Served::Direct(client, server),
        // It is gone already.
        Ok(_) => Served::Ended(Outcome::Refused(Refusal::Failed)),
        Err(refusal) => Served::Ended(Outcome::Refused(refusal)),
    }
}

/// Asks over another trunk if the first falls silent while there is one; else until it is lost.
async fn ask_patiently(trunk: &Trunk, request: &Request) -> io::Result<Result<UdpStream, Refusal>> {
    let mut failed = None;
    loop {
        let link = trunk.usable_beside(failed).ok_or(io::ErrorKind::NotConnected)?;
        tokio::select! {
            answer = ask(&link.connection, request) => {
                let other = failed.is_none() && trunk.usable_beside(Some(link.id())).is_some();
                if answer.is_ok() || !other {
                    return answer;
                }
            }
            () = trunk.gives_way(link.id()) => {}
        }
        failed = Some(link.id());
    }
}
