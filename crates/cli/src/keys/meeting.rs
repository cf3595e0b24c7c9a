//! How a client meets a server: by the key it knows it by, by one it asks for, or by a shared one.

use std::net::SocketAddr;

use anyhow::{anyhow, ensure};
use net::{Credentials, Identity, NetError, PublicKey, tcp, udp};

use super::{Known, Own, how_to_be_let_in};
use crate::address::Server;
use crate::args::Transport;
use crate::race::race;

/// What a client has to go by.
pub struct Introduction {
    pub own: Own,
    pub server: Server,
    pub transport: Transport,
    /// Takes an unknown server at its word.
    pub accept_new: bool,
    /// The server's key, where whoever asks for the connection knows it.
    pub host: Option<PublicKey>,
}

/// What the two sides prove themselves with.
pub struct Meeting {
    pub credentials: Credentials,
    /// The server's key, if it is to be written down.
    new: Option<(Known, PublicKey)>,
}

impl Introduction {
    /// Finds out by which key the server at `address` must prove itself.
    pub async fn meet(&self, address: SocketAddr) -> anyhow::Result<Meeting> {
        let identity = match &self.own {
            Own::Shared(key) => return Ok(Meeting { credentials: key.into(), new: None }),
            Own::Identity(identity) => identity,
        };
        let client = |host| Credentials::client(identity.clone(), host);
        if let Some(host) = self.host {
            return Ok(Meeting { credentials: client(host), new: None });
        }
        let known = Known::load()?;
        if let Some(host) = known.key(&self.server)? {
            return Ok(Meeting { credentials: client(host), new: None });
        }
        let host = self.ask(address).await?;
        // Whoever holds our own identity is ourselves.
        let trusted = self.accept_new || host == identity.public();
        ensure!(trusted, "{}", known.unknown(&self.server, host));
        Ok(Meeting { credentials: client(host), new: Some((known, host)) })
    }

    async fn ask(&self, address: SocketAddr) -> Result<PublicKey, NetError> {
        match self.transport {
            Transport::Udp => udp::ask(address).await,
            Transport::Tcp => tcp::ask(address).await,
            Transport::Auto | Transport::Ssh => race(udp::ask(address), tcp::ask(address)).await,
        }
    }

    /// The server has proved to hold its key. Gives what to tell the user.
    pub fn succeeded(&self, meeting: &Meeting) -> anyhow::Result<Option<String>> {
        let Some((known, key)) = &meeting.new else { return Ok(None) };
        known.add(&self.server, *key)?;
        Ok(self.accept_new.then(|| format!("{} is known from now on, by {key}", self.server)))
    }

    /// Says what to do about a connection that did not come to be.
    pub async fn explain(&self, address: SocketAddr, error: NetError) -> anyhow::Error {
        match (&error, &self.own) {
            (NetError::WrongKey { .. }, Own::Shared(_)) => anyhow!(
                "{error}: give both sides the same key file (`longhaul keygen --shared` makes one)"
            ),
            (NetError::NotAllowed { .. }, _) if self.host.is_some() => {
                anyhow!("{error}: the copy was given up there")
            }
            (NetError::WrongKey { .. }, _) if self.host.is_some() => {
                anyhow!("{error} than the one by which {} is known to whoever asks", self.server)
            }
            (NetError::NotAllowed { .. }, Own::Identity(identity)) => {
                anyhow!("{error}: {}", how_to_be_let_in(identity))
            }
            (NetError::WrongKey { .. }, Own::Identity(identity)) => {
                self.changed(address, identity).await.unwrap_or_else(|_| error.into())
            }
            (NetError::OtherKind { .. }, Own::Identity(_)) => {
                anyhow!("{error}: it was started with --key; use the same key file here")
            }
            (NetError::OtherKind { .. }, Own::Shared(_)) => {
                anyhow!("{error}: it was started without --key; do so here")
            }
            _ => error.into(),
        }
    }

    /// The server did not understand what was meant for the key we know it by.
    async fn changed(
        &self,
        address: SocketAddr,
        identity: &Identity,
    ) -> anyhow::Result<anyhow::Error> {
        let known = Known::load()?;
        let expected = known.key(&self.server)?.unwrap_or(identity.public());
        let shown = self.ask(address).await?;
        ensure!(shown != expected, "the server shows the right key");
        Ok(anyhow!("{}", known.changed(&self.server, expected, shown)))
    }
}
