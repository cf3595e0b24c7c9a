//! Data connections of a client, and what goes over them.

use std::io;
use std::net::{IpAddr, SocketAddr};

use net::tcp::Policy;
use tokio::io::AsyncRead;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;

use super::control::Control;
use super::{CONNECT_PATIENCE, Client, ClientError, Stop, Tls, informed, refused, with_path};
use crate::address::{
    Ends, read_epsv_reply, read_pasv_reply, with_port, write_eprt, write_mprt, write_port,
};
use crate::data::{Channel, DataError, Moved, Sink, drain, receive, send, set_reset, tune};
use crate::session::{Encoding, Framing};

/// A file is striped over no more connections than it has pieces of this size.
const STRIPE_MIN: u64 = 64 << 10;

/// Data connections that are about to be made.
enum Pending {
    /// To these ports of the server.
    To(Vec<SocketAddr>),
    /// From the server, one to each.
    From(Vec<TcpListener>),
    /// Made already.
    Made(Vec<TcpStream>),
}

/// What is to be moved.
pub(super) enum Moving<'a, R, S> {
    Send(R),
    Receive(&'a mut S),
}

impl Client {
    /// How many connections a file of this size goes over.
    fn lanes(&self, size: Option<u64>) -> usize {
        let pieces = size.map_or(usize::MAX, |size| (size / STRIPE_MIN) as usize);
        match self.ascii {
            true => 1,
            false => self.streams().min(pieces).max(1),
        }
    }

    /// Carries out a command that moves data: `verb path` from byte `offset`, which APPE finds by itself.
    pub(super) async fn move_data<R: AsyncRead + Send + Unpin, S: Sink>(
        &mut self,
        (verb, path): (&str, &[u8]),
        (offset, size): (u64, Option<u64>),
        moving: Moving<'_, R, S>,
        moved: &Moved,
    ) -> Result<(), ClientError> {
        let is_file = matches!(verb, "RETR" | "STOR" | "APPE");
        let ascii = !is_file || self.ascii;
        if self.type_set != Some(ascii) {
            self.done(if ascii { "TYPE A" } else { "TYPE I" }).await?;
            self.type_set = Some(ascii);
        }
        let wanted = if is_file { self.lanes(size) } else { 1 };
        let (pending, striped) = self.prepare(wanted).await?;
        if offset > 0 && verb != "APPE" {
            self.done(&format!("REST {offset}")).await?;
        }
        let command = with_path(verb, path);
        let (stop, before) = (self.options.stop.clone(), moved.bytes());
        let lines = Lines {
            peer: self.peer.ip().to_canonical(),
            tls: self.tls.as_ref().filter(|_| self.protected),
            resets: matches!(moving, Moving::Send(_)) && !striped,
            policy: self.options.policy,
            congestion_control: self.options.congestion_control.as_deref(),
        };
        let control = &mut self.control;
        stop.or(control.send(&command)).await?;
        // Most servers say 150 only when they have been connected to.
        let pending = match pending {
            Pending::To(_) => {
                let meeting = lines.meet(pending);
                Pending::Made(or_abort(control, &stop, meeting).await?)
            }
            pending => pending,
        };
        // What is there up to the offset may be copied first.
        let reply = match control.reply_after(offset).await {
            Err(ClientError::Stopped) => {
                control.send(b"ABOR").await?;
                return Err(ClientError::Stopped);
            }
            reply => reply?,
        };
        if reply.class() != 1 {
            return Err(refused(&command, reply));
        }
        let pumping = lines.pump(pending, (is_file, ascii, striped), moving, moved);
        let done = or_abort(control, &stop, pumping).await;
        if let Some(system) = moved.learnt() {
            self.options.policy = informed(self.options.policy, system);
        }
        if matches!(done, Err(ClientError::Stopped)) {
            return done;
        }
        // What came has to be on the server's disk first.
        let reply = control.reply_after(offset + moved.bytes() - before).await?;
        match reply.class() {
            2 => done,
            // The server knows better why, unless the trouble began here.
            _ => match done {
                Err(error @ ClientError::Data(DataError::File(_))) => Err(error),
                _ => Err(refused(&command, reply)),
            },
        }
    }

    /// Agrees on data connections, several where both ends can.
    async fn prepare(&mut self, wanted: usize) -> Result<(Pending, bool), ClientError> {
        if wanted > 1 {
            let pending = match self.options.active {
                true => self.listen(wanted).await?,
                false => {
                    let reply = self.ask(&format!("MPSV {wanted}")).await?;
                    let ports = read_epsv_reply(&reply.text(), wanted);
                    ports.filter(|_| reply.code == 229).map(|ports| self.to(&ports))
                }
            };
            if let Some(pending) = pending {
                return Ok((pending, true));
            }
            // It thought better of it: one connection from now on.
            self.streams_there = 1;
        }
        let pending = match self.options.active {
            true => self.listen(1).await?,
            false => Some(self.passive().await?),
        };
        let nothing = io::Error::other("the server takes no address of ours");
        Ok((pending.ok_or(ClientError::NoData(nothing))?, false))
    }

    fn to(&self, ports: &[u16]) -> Pending {
        Pending::To(ports.iter().map(|&port| with_port(self.peer, port)).collect())
    }

    /// Whatever address the server names, data comes from the host that is spoken with.
    async fn passive(&mut self) -> Result<Pending, ClientError> {
        if !self.old_passive {
            let reply = self.ask("EPSV").await?;
            if let Some(ports) = read_epsv_reply(&reply.text(), 1).filter(|_| reply.code == 229) {
                return Ok(self.to(&ports));
            }
            self.old_passive = true;
        }
        let reply = self.ask("PASV").await?;
        match read_pasv_reply(&reply.text()).filter(|_| reply.code == 227) {
            Some(port) => Ok(self.to(&[port])),
            None => Err(refused(b"PASV", reply)),
        }
    }

    /// Listens, and tells the server where; `None` when it will not.
    async fn listen(&mut self, wanted: usize) -> Result<Option<Pending>, ClientError> {
        let mut listeners = Vec::new();
        for _ in 0..wanted {
            let listener = TcpListener::bind(with_port(self.local, 0)).await;
            listeners.push(listener.map_err(ClientError::NoData)?);
        }
        let port = |listener: &TcpListener| Ok(listener.local_addr()?.port());
        let ports: io::Result<_> = listeners.iter().map(port).collect();
        let ends = Ends {
            address: self.local.ip().to_canonical(),
            ports: ports.map_err(ClientError::NoData)?,
        };
        let first = ends.sockets().next().and_then(write_port);
        let command = match first {
            _ if wanted > 1 => format!("MPRT {}", write_mprt(&ends)),
            Some(port) => format!("PORT {port}"),
            None => format!("EPRT {}", write_eprt(&ends)),
        };
        let reply = self.ask(&command).await?;
        Ok((reply.class() == 2).then_some(Pending::From(listeners)))
    }
}

/// What data connections are made by.
struct Lines<'a> {
    /// The only other end.
    peer: IpAddr,
    /// Where they are protected.
    tls: Option<&'a Tls>,
    /// What is sent has no mark of its end but that of the connection, as many servers want none of TLS
    /// either, so whatever ends before is to be reset: a process that is killed, too.
    resets: bool,
    policy: Policy,
    congestion_control: Option<&'a str>,
}

/// Goes on unless all is to stop, which is said before any data connection ends.
async fn or_abort<T>(
    control: &mut Control,
    stop: &Stop,
    work: impl Future<Output = Result<T, ClientError>>,
) -> Result<T, ClientError> {
    let mut work = std::pin::pin!(work);
    match stop.or(&mut work).await {
        Err(ClientError::Stopped) => {
            control.send(b"ABOR").await?;
            Err(ClientError::Stopped)
        }
        done => done,
    }
}

impl Lines<'_> {
    async fn pump<R: AsyncRead + Send + Unpin, S: Sink>(
        &self,
        pending: Pending,
        (is_file, ascii, striped): (bool, bool, bool),
        moving: Moving<'_, R, S>,
        moved: &Moved,
    ) -> Result<(), ClientError> {
        let channels = match self.meet(pending).await {
            Ok(streams) => self.secure(streams).await,
            Err(error) => Err(error),
        };
        let framing = if striped { Framing::Striped } else { Framing::Stream };
        let encoding = Encoding { ascii: ascii && is_file, framing };
        match (channels, moving) {
            (Err(error), _) => Err(error),
            (Ok(mut channels), Moving::Send(source)) => {
                send(source, &mut channels, encoding, self.policy, moved).await?;
                if self.tls.is_some() {
                    drain(&mut channels).await;
                }
                Ok(())
            }
            (Ok(channels), Moving::Receive(sink)) => {
                let received = receive(channels, sink, encoding, moved).await;
                match received {
                    // Many servers end TLS without saying so. Their reply tells, and the size.
                    Err(DataError::Unclosed) => Ok(()),
                    received => received.map_err(ClientError::from),
                }
            }
        }
    }

    async fn meet(&self, pending: Pending) -> Result<Vec<TcpStream>, ClientError> {
        let peer = self.peer;
        let mut making = JoinSet::new();
        match pending {
            Pending::Made(streams) => return Ok(streams),
            Pending::To(ends) => {
                for end in ends {
                    making.spawn(TcpStream::connect(end));
                }
            }
            Pending::From(listeners) => {
                for listener in listeners {
                    making.spawn(async move {
                        loop {
                            let (stream, from) = listener.accept().await?;
                            if from.ip().to_canonical() == peer {
                                return Ok(stream);
                            }
                        }
                    });
                }
            }
        }
        let connecting = async {
            let mut streams = Vec::new();
            while let Some(stream) = making.join_next().await {
                streams.push(stream.map_err(io::Error::other)??);
            }
            streams.iter().for_each(|stream| set_reset(stream, self.resets));
            Ok::<_, io::Error>(streams)
        };
        match tokio::time::timeout(CONNECT_PATIENCE, connecting).await {
            Ok(streams) => streams.map_err(ClientError::NoData),
            Err(_) => Err(ClientError::NoData(io::ErrorKind::TimedOut.into())),
        }
    }

    async fn secure(&self, streams: Vec<TcpStream>) -> Result<Vec<Channel>, ClientError> {
        streams.iter().for_each(|stream| tune(stream, self.congestion_control));
        let Some(tls) = self.tls else {
            return Ok(streams.into_iter().map(|stream| Box::new(stream) as Channel).collect());
        };
        let mut handshakes = JoinSet::new();
        for stream in streams {
            let connector = TlsConnector::from(tls.config.clone());
            let handshake = connector.connect(tls.name.clone(), stream);
            handshakes.spawn(tokio::time::timeout(CONNECT_PATIENCE, handshake));
        }
        let mut channels: Vec<Channel> = Vec::new();
        while let Some(done) = handshakes.join_next().await {
            let done = done.map_err(|error| ClientError::Tls(io::Error::other(error)))?;
            let secured = done.map_err(|_| ClientError::Silent)?.map_err(ClientError::Tls)?;
            channels.push(Box::new(secured));
        }
        Ok(channels)
    }
}
