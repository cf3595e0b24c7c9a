//! The client: speaks with any FTP server, under TLS and over several connections where it can.
//!
//! What a server says is not believed further than it must be: data connections go to the host that
//! the control connection goes to, whatever PASV answers, and come from it alone.

mod control;
mod error;
mod files;
mod listing;
mod stop;
mod transfer;
mod tree;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ::transfer::printable;
use net::tcp::{Policy, System, set_congestion_control};
use socket2::SockRef;
use stripe::count::suitable;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

pub use error::ClientError;
pub use files::Found;
pub use listing::Listing;
pub use stop::Stop;
pub use tree::Copied;

// What the fuzzer reaches.
#[doc(hidden)]
pub use control::Control;
#[doc(hidden)]
pub use files::unquoted;

use crate::data::{Channel, keep_alive};
use crate::reply::Reply;
use crate::tls::{self, Seen, Trust, Versions};

/// How long a connection may take to come about.
const CONNECT_PATIENCE: Duration = Duration::from_secs(20);

/// What of a session goes under TLS (RFC 4217).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// Commands with passwords, and data.
    All,
    /// The data goes in clear, for the server refused `PROT P`.
    Control,
    /// Nothing.
    Nothing,
}

/// When to use TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Security {
    /// Where the server offers it.
    #[default]
    Offered,
    /// Always, by AUTH TLS.
    Required,
    /// Always, from the first byte on (port 990).
    Implicit,
    /// Never.
    Clear,
}

/// The most connections of a transfer, whatever a server allows.
pub const MAX_STREAMS: usize = 64;

/// As many connections as the server allows, unless the round-trip time, which the first question about
/// them shows, is so short that one is enough.
pub const AUTO: usize = 0;

/// How to speak with a server.
#[derive(Clone, Debug)]
pub struct Options {
    /// When to use TLS.
    pub security: Security,
    /// Whom to trust.
    pub trust: Trust,
    /// The most connections of one transfer, where the server can; [`AUTO`] for as many as suit the path.
    pub streams: usize,
    /// How many of them a transfer uses that this side sends.
    pub policy: Policy,
    /// The server connects here.
    pub active: bool,
    /// The kernel's congestion control for what this side sends, as in [`net::tcp::Options`].
    pub congestion_control: Option<String>,
    /// Ends whatever is under way; the session is over then.
    pub stop: Stop,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            security: Security::Offered,
            trust: Trust::default(),
            streams: 4,
            policy: Policy::default(),
            active: false,
            congestion_control: None,
            stop: Stop::default(),
        }
    }
}

/// Commands after which the current directory may be another.
const MOVES: &[&str] = &["CWD", "XCWD", "CDUP", "XCUP", "SMNT", "USER", "REIN", "SITE"];

/// A session with a server.
pub struct Client {
    control: Control,
    options: Options,
    /// The server's name, and who the user is there.
    host: String,
    user: String,
    /// The current directory there, once it was asked for.
    here: Option<Vec<u8>>,
    /// The other end of the control connection; no data goes elsewhere.
    peer: SocketAddr,
    local: SocketAddr,
    features: Vec<String>,
    tls: Option<Tls>,
    /// Data goes under TLS.
    protected: bool,
    /// The server's most connections, once it has told; 1 when it knows nothing of them.
    streams_there: usize,
    type_set: Option<bool>,
    /// Lines are translated.
    ascii: bool,
    /// EPSV was refused.
    old_passive: bool,
    /// Whether it runs on Unix, once it was asked.
    unix: Option<bool>,
    /// Whether it knows `LIST -a`, once that is certain.
    lists_all: Option<bool>,
}

/// What makes TLS connections; one for all, so that data connections resume the session.
struct Tls {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
    seen: Seen,
}

impl Tls {
    fn new(host: &str, trust: Trust, versions: Versions) -> Result<Self, ClientError> {
        let (config, seen) = tls::client(trust, versions).map_err(ClientError::Tls)?;
        let name = ServerName::try_from(host.to_owned());
        let name = name.map_err(|error| ClientError::Tls(std::io::Error::other(error)))?;
        Ok(Self { config, name, seen })
    }

    async fn secure(&self, channel: Channel) -> Result<Channel, ClientError> {
        let connector = TlsConnector::from(self.config.clone());
        let secured = connector.connect(self.name.clone(), channel);
        match tokio::time::timeout(CONNECT_PATIENCE, secured).await {
            Ok(Ok(secured)) => Ok(Box::new(secured)),
            Err(_) => Err(ClientError::Silent),
            Ok(Err(error)) => {
                match (error.to_string().contains("certificate"), self.seen.fingerprint()) {
                    (true, Some(fingerprint)) => Err(ClientError::Unknown { fingerprint }),
                    _ => Err(ClientError::Tls(error)),
                }
            }
        }
    }
}

impl Client {
    /// Connects, and sets up TLS. `host` is the name that the certificate should have.
    ///
    /// # Errors
    /// [`ClientError`]
    pub async fn connect(
        host: &str,
        address: SocketAddr,
        options: Options,
    ) -> Result<Self, ClientError> {
        let stop = options.stop.clone();
        let connecting = async {
            match Self::connect_by(tls::RESUMABLE, host, address, options.clone()).await {
                Err(ClientError::Tls(error)) if tls::is_refusal(&error) => {
                    Self::connect_by(tls::MODERN, host, address, options).await
                }
                reached => reached,
            }
        };
        stop.or(connecting).await
    }

    async fn connect_by(
        versions: Versions,
        host: &str,
        address: SocketAddr,
        options: Options,
    ) -> Result<Self, ClientError> {
        let connecting = TcpStream::connect(address);
        let stream = tokio::time::timeout(CONNECT_PATIENCE, connecting).await;
        let stream = stream.map_err(|_| ClientError::Silent)?.map_err(ClientError::Connection)?;
        let local = stream.local_addr().map_err(ClientError::Connection)?;
        let _ = stream.set_nodelay(true);
        keep_alive(&stream);
        // Here to be told of what the kernel does not offer.
        let congestion_control = options.congestion_control.as_deref();
        set_congestion_control(&SockRef::from(&stream), congestion_control)?;
        let mut tls = None;
        let mut channel: Channel = Box::new(stream);
        if options.security == Security::Implicit {
            let new = Tls::new(host, options.trust.clone(), versions)?;
            channel = new.secure(channel).await?;
            tls = Some(new);
        }
        let mut client = Self {
            control: Control::new(channel, options.stop.clone()),
            options,
            host: host.to_ascii_lowercase(),
            user: String::new(),
            here: None,
            peer: address,
            local,
            features: Vec::new(),
            tls,
            protected: false,
            streams_there: 1,
            type_set: None,
            ascii: false,
            old_passive: false,
            unix: None,
            lists_all: None,
        };
        client.greet(host, versions).await?;
        Ok(client)
    }

    async fn greet(&mut self, host: &str, versions: Versions) -> Result<(), ClientError> {
        let greeting = self.control.reply().await?;
        if greeting.class() != 2 {
            return Err(ClientError::Refused { command: "connect".into(), reply: greeting });
        }
        self.ask_features().await?;
        // Our servers let data connections begin a session of their own.
        let versions = if self.knows("MPSV") { tls::MODERN } else { versions };
        match self.options.security {
            Security::Offered if self.knows("AUTH") => self.begin_tls(host, versions).await,
            Security::Required => self.begin_tls(host, versions).await,
            _ => Ok(()),
        }
    }

    async fn begin_tls(&mut self, host: &str, versions: Versions) -> Result<(), ClientError> {
        let reply = self.ask("AUTH TLS").await?;
        if reply.code != 234 {
            return Err(ClientError::NoTls);
        }
        let tls = Tls::new(host, self.options.trust.clone(), versions)?;
        // What a stranger may have put behind the answer in clear is forgotten.
        let channel = self.control.take_channel();
        self.control = Control::new(tls.secure(channel).await?, self.options.stop.clone());
        self.tls = Some(tls);
        Ok(())
    }

    /// RFC 2389. A server without it has no features.
    async fn ask_features(&mut self) -> Result<(), ClientError> {
        let reply = self.ask("FEAT").await?;
        if reply.class() == 2 {
            let text = |line: &Vec<u8>| String::from_utf8_lossy(line).trim().to_ascii_uppercase();
            self.features = reply.lines.iter().map(text).collect();
        }
        Ok(())
    }

    /// Whether the server named a feature, by its first word.
    pub fn knows(&self, feature: &str) -> bool {
        self.feature(feature).is_some()
    }

    fn feature(&self, feature: &str) -> Option<&str> {
        self.features.iter().find_map(|line| {
            let (name, value) = line.split_once(' ').unwrap_or((line, ""));
            (name == feature).then_some(value)
        })
    }

    /// Says who is there, and sets up what every transfer needs.
    ///
    /// # Errors
    /// [`ClientError::Refused`] when name or password are wrong.
    pub async fn log_in(&mut self, user: &str, password: &str) -> Result<(), ClientError> {
        user.clone_into(&mut self.user);
        let mut reply = self.ask(&format!("USER {user}")).await?;
        if reply.class() == 3 {
            reply = self.ask_secretly("PASS", password).await?;
        }
        if reply.class() != 2 {
            return Err(ClientError::Refused { command: format!("login as {user}"), reply });
        }
        if self.tls.is_some() {
            // Implicit TLS protects the control connection alone, so both are said in any case.
            self.done("PBSZ 0").await?;
            self.protected = match self.done("PROT P").await {
                Ok(_) => true,
                // Where TLS is a wish, a password under it is better than nothing.
                Err(error) if error.is_refusal() && self.options.security == Security::Offered => {
                    false
                }
                Err(error) => return Err(error),
            };
        }
        // Some servers tell more to those they know.
        self.ask_features().await?;
        if self.knows("UTF8") {
            self.ask("OPTS UTF8 ON").await?;
        }
        self.set_streams(self.options.streams).await
    }

    /// Whether passwords and data go under TLS.
    pub fn is_secure(&self) -> bool {
        self.tls.is_some()
    }

    /// What goes under TLS.
    pub fn guard(&self) -> Guard {
        match (&self.tls, self.protected) {
            (None, _) => Guard::Nothing,
            (Some(_), false) => Guard::Control,
            (Some(_), true) => Guard::All,
        }
    }

    /// The fingerprint of the server's certificate, when TLS stands.
    pub fn fingerprint(&self) -> Option<String> {
        self.tls.as_ref()?.seen.fingerprint()
    }

    /// Connections of a striped transfer, either side's most: its sender uses as many as help.
    pub fn streams(&self) -> usize {
        self.options.streams.min(self.streams_there)
    }

    /// The server's most connections; 1 when it knows nothing of striping.
    pub fn streams_there(&self) -> usize {
        self.streams_there
    }

    /// The other end.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Changes how many connections this side wants: a number, or [`AUTO`].
    ///
    /// # Errors
    /// [`ClientError`] when the connection breaks.
    pub async fn set_streams(&mut self, streams: usize) -> Result<(), ClientError> {
        self.options.streams = streams.max(1);
        let is_new = streams > 1 && self.streams_there == 1;
        if (is_new || streams == AUTO) && self.knows("MULT") {
            let asked = net::clock::now();
            let reply = self.ask("MULT").await?;
            if streams == AUTO {
                let is_short = suitable(net::clock::now().since(asked)) == 1;
                self.options.streams = if is_short { 1 } else { MAX_STREAMS };
            }
            let most = reply.text().split(' ').next().and_then(|number| number.parse().ok());
            let most = most.filter(|_| reply.class() == 2).unwrap_or(1);
            self.streams_there = most.clamp(1, MAX_STREAMS);
        }
        Ok(())
    }

    /// Lets the server connect here, or connects to it.
    pub fn set_active(&mut self, active: bool) {
        self.options.active = active;
    }

    /// Whether the server connects here.
    pub fn is_active(&self) -> bool {
        self.options.active
    }

    /// Translates line ends, or leaves bytes as they are.
    pub fn set_ascii(&mut self, ascii: bool) {
        self.ascii = ascii;
    }

    /// Whether line ends are translated.
    pub fn is_ascii(&self) -> bool {
        self.ascii
    }

    /// Sends a command and gives the reply, whatever it is.
    ///
    /// # Errors
    /// When the connection breaks, or the command holds a line end.
    pub async fn ask(&mut self, command: &str) -> Result<Reply, ClientError> {
        self.ask_bytes(command.as_bytes()).await
    }

    async fn ask_bytes(&mut self, command: &[u8]) -> Result<Reply, ClientError> {
        self.ask_after(command, 0).await
    }

    /// The same for what makes the server read or write so many bytes.
    async fn ask_after(&mut self, command: &[u8], bytes: u64) -> Result<Reply, ClientError> {
        let verb = command.split(|&byte| byte == b' ').next().unwrap_or_default();
        if MOVES.iter().any(|name| verb.eq_ignore_ascii_case(name.as_bytes())) {
            self.here = None;
        }
        let stop = self.options.stop.clone();
        stop.or(self.control.send(command)).await?;
        self.control.reply_after(bytes).await
    }

    async fn ask_secretly(&mut self, verb: &str, secret: &str) -> Result<Reply, ClientError> {
        self.ask(&format!("{verb} {secret}")).await
    }

    /// Sends a command that should succeed.
    ///
    /// # Errors
    /// [`ClientError::Refused`] when it does not.
    pub async fn done(&mut self, command: &str) -> Result<Reply, ClientError> {
        self.done_with(command, b"").await
    }

    /// The same for a verb and a path.
    ///
    /// # Errors
    /// [`ClientError::Refused`] when it does not succeed.
    pub async fn done_with(&mut self, verb: &str, path: &[u8]) -> Result<Reply, ClientError> {
        let command = with_path(verb, path);
        let reply = self.ask_bytes(&command).await?;
        match reply.class() {
            2 | 3 => Ok(reply),
            _ => Err(refused(&command, reply)),
        }
    }

    /// Says goodbye.
    pub async fn quit(mut self) {
        // It ends in any case.
        let _ = self.ask("QUIT").await;
    }
}

/// A policy that knows what was learnt of the way before.
pub fn informed(policy: Policy, system: System) -> Policy {
    match policy {
        Policy::Equation { target, .. } => {
            let first = system.connections(target).min(MAX_STREAMS) as u16;
            Policy::Equation { target, first, k: system.k }
        }
        policy => policy,
    }
}

fn with_path(verb: &str, path: &[u8]) -> Vec<u8> {
    match path {
        b"" => verb.into(),
        path => [verb.as_bytes(), b" ", path].concat(),
    }
}

fn refused(command: &[u8], reply: Reply) -> ClientError {
    ClientError::Refused { command: printable(&String::from_utf8_lossy(command)), reply }
}

#[cfg(test)]
mod tests {
    use units::{Bytes, Rate};

    use super::*;

    /// Names come from listings.
    #[test]
    fn what_was_refused_is_shown_safely() {
        let error = refused(b"RETR \x1b[2Jx", Reply::new(550, "no \x07"));
        assert_eq!(error.to_string(), "RETR \u{fffd}[2Jx: the server says 550 no \u{fffd}");
    }

    #[test]
    fn a_policy_begins_with_what_was_learnt() {
        let target = Rate::from_bits_per_sec(10_000_000);
        let system = System { k: 500, window: Bytes(62_500), rtt: Duration::from_millis(100) };
        // 5 Mbit/s of window over round-trip time, of which half is reached.
        let expected = Policy::Equation { target, first: 4, k: 500 };
        assert_eq!(informed(Policy::Equation { target, first: 0, k: 0 }, system), expected);
        assert_eq!(informed(Policy::Fixed(3), system), Policy::Fixed(3));
    }
}
