//! Reaching an FTP server: its URL, who the user is, and which certificates are known.

use std::io::Write;
use std::net::IpAddr;
use std::path::PathBuf;

use anyhow::{Context, ensure};
use ftp::client::{Client, ClientError, Guard, Options, Security, Stop, informed};
use ftp::data::Moved;
use ftp::tls::Trust;
use net::tcp::Policy;

use super::args;
use super::password::PASSWORD;
use crate::keys::home::folder;
use crate::paths::Paths;

/// Where FTP servers listen, and those that speak TLS from the first byte on.
const PORT: u16 = 21;
const TLS_PORT: u16 = 990;

/// How to connect, whoever the server is.
#[derive(Clone, Copy)]
pub struct How<'a> {
    pub options: &'a args::FtpClient,
    /// The kernel's congestion control for what goes there.
    pub tcp_cc: Option<&'a str>,
    /// Nothing is remembered of the way.
    pub forgets: bool,
    /// Whether people are told what is in clear.
    pub tells: bool,
    /// An earlier connection of the same copy was under TLS: somebody on the way could take the offer out of
    /// the next one's, and read the password.
    pub was_secure: bool,
    pub stop: &'a Stop,
}

impl How<'_> {
    /// How many connections a transfer uses to this host, by what was learnt before.
    fn policy(&self, host: IpAddr) -> Policy {
        let policy = self.options.sender.policy;
        if !matches!(policy, Policy::Equation { .. }) {
            return policy;
        }
        let known = Paths::unless(self.forgets).and_then(|paths| paths.known(host).system);
        known.map_or(policy, |system| informed(policy, system))
    }
}

/// Writes down what transfers learnt of the way to a server, for the next time.
pub fn remember(client: &Client, moved: &Moved, forgets: bool) {
    if let (Some(system), Some(paths)) = (moved.learnt(), Paths::unless(forgets)) {
        paths.learn_system(client.peer().ip(), system);
    }
}

/// A place on an FTP server: `ftp://[USER@]HOST[:PORT]/PATH`, or `ftps://`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FtpUrl {
    pub secure: bool,
    pub user: Option<String>,
    pub host: String,
    pub port: u16,
    /// Relative to where a login leads; behind a second slash it is absolute. In bytes.
    pub path: Vec<u8>,
}

impl FtpUrl {
    /// Reads a URL; `None` when it is none of FTP.
    pub fn read(text: &str) -> Option<Result<Self, String>> {
        let (secure, rest) = match (text.strip_prefix("ftp://"), text.strip_prefix("ftps://")) {
            (Some(rest), _) => (false, rest),
            (_, Some(rest)) => (true, rest),
            _ => return None,
        };
        Some(Self::read_rest(secure, rest))
    }

    /// A host alone, or a URL.
    pub fn read_host(text: &str) -> Result<Self, String> {
        Self::read(text).unwrap_or_else(|| Self::read_rest(false, text))
    }

    fn read_rest(secure: bool, rest: &str) -> Result<Self, String> {
        if has_password(rest) {
            let why = "a password on the command line is seen by others";
            return Err(format!("{why}: put it into {PASSWORD}"));
        }
        let (user, host, path) = split(rest);
        let user = user.map(text).transpose()?;
        let (host, port) = match host.strip_prefix('[') {
            Some(rest) => rest.split_once(']').ok_or("the ] after the IPv6 address is missing")?,
            None => host.split_at(host.find(':').unwrap_or(host.len())),
        };
        let port = match port {
            "" if secure => TLS_PORT,
            "" => PORT,
            port => port
                .strip_prefix(':')
                .and_then(|port| port.parse().ok())
                .filter(|&port| port != 0)
                .ok_or_else(|| format!("'{port}' is no port: write a colon and 1 to 65535"))?,
        };
        if host.is_empty() {
            return Err("no host: write ftp://HOST[:PORT]/PATH".to_owned());
        }
        Ok(Self { secure, user, host: host.to_owned(), port, path: decoded(path)? })
    }

    /// Whether both are on the same server, for the same user.
    pub fn same_server(&self, other: &Self) -> bool {
        let server = |url: &Self| (url.secure, url.user.clone(), url.host.clone(), url.port);
        server(self) == server(other)
    }

    fn security(&self, how: How<'_>) -> Security {
        match (self.secure, self.port) {
            (true, TLS_PORT) => Security::Implicit,
            (true, _) => Security::Required,
            (false, _) if how.was_secure => Security::Required,
            (false, _) if how.options.no_tls => Security::Clear,
            (false, _) => Security::Offered,
        }
    }
}

impl std::fmt::Display for FtpUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let scheme = if self.secure { "ftps" } else { "ftp" };
        let user = self.user.as_ref().map(|user| format!("{user}@")).unwrap_or_default();
        let host =
            if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        write!(f, "{scheme}://{user}{host}:{}/{}", self.port, String::from_utf8_lossy(&self.path))
    }
}

/// Whether a password stands before the host, one with a slash in it too.
fn has_password(rest: &str) -> bool {
    let (user, host, path) = split(rest);
    match user {
        Some(user) => user.contains(':'),
        None => {
            let port = host.rsplit_once(':').map_or("", |(_, port)| port);
            path.contains('@') && !port.bytes().all(|byte| byte.is_ascii_digit())
        }
    }
}

/// User, host with port, and path.
fn split(rest: &str) -> (Option<&str>, &str, &str) {
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    match authority.rsplit_once('@') {
        Some((user, host)) => (Some(user), host, path),
        None => (None, authority, path),
    }
}

/// Takes `%20` and the like apart (RFC 3986, section 2.1).
fn decoded(text: &str) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&first, behind)) = rest.split_first() {
        if first != b'%' {
            bytes.push(first);
            rest = behind;
            continue;
        }
        let digits = behind.get(..2).and_then(|two| std::str::from_utf8(two).ok());
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(byte.ok_or("a % is written %25 in a URL")?);
        rest = &behind[2..];
    }
    Ok(bytes)
}

fn text(part: &str) -> Result<String, String> {
    String::from_utf8(decoded(part)?).map_err(|_| "that name is no text".to_owned())
}

/// Connects and logs in, with the password of whoever the URL names.
pub async fn connect(url: &FtpUrl, password: Option<&str>, how: How<'_>) -> anyhow::Result<Client> {
    let options = how.options;
    let mut known = KnownCertificates::read(url)?;
    let options_of = |known: &KnownCertificates| Options {
        security: url.security(how),
        trust: Trust { known: known.fingerprints.clone(), anyone: false },
        streams: options.streams.into(),
        policy: options.sender.policy,
        active: options.active,
        congestion_control: how.tcp_cc.map(str::to_owned),
        stop: how.stop.clone(),
    };
    let mut reached = reach(url, &options_of(&known), how).await;
    if let Err(ClientError::Unknown { fingerprint: shown }) = &reached {
        ensure!(known.fingerprints.is_empty(), "{}", known.changed(shown));
        if options.accept_new {
            known.fingerprints.push(shown.clone());
            reached = reach(url, &options_of(&known), how).await;
            if reached.is_ok() {
                known.write()?;
            }
        }
    }
    let mut client = reached?;
    let (user, password) = match (&url.user, password) {
        (None, _) => ("anonymous", "longhaul@"),
        (Some(user), password) => (user.as_str(), password.unwrap_or_default()),
    };
    let is_seen = url.user.is_some() && client.guard() == Guard::Nothing;
    if is_seen && how.tells && !options.no_tls {
        tell!("longhaul: {} offers no TLS: the password goes in clear", url.host);
    }
    client.log_in(user, password).await?;
    Ok(client)
}

/// Tries the host's addresses in turn.
async fn reach(url: &FtpUrl, options: &Options, how: How<'_>) -> Result<Client, ClientError> {
    let looking = async {
        let found = tokio::net::lookup_host((url.host.as_str(), url.port)).await;
        found.map_err(ClientError::Connection)
    };
    let mut last = None;
    for address in options.stop.or(looking).await? {
        let options = Options { policy: how.policy(address.ip()), ..options.clone() };
        match Client::connect(&url.host, address, options).await {
            Err(error @ (ClientError::Connection(_) | ClientError::Silent)) => last = Some(error),
            reached => return reached,
        }
    }
    Err(last.unwrap_or(ClientError::Silent))
}

/// Fingerprints that were accepted before: one line each, `HOST:PORT SHA-256`.
struct KnownCertificates {
    file: PathBuf,
    server: String,
    fingerprints: Vec<String>,
}

impl KnownCertificates {
    fn read(url: &FtpUrl) -> anyhow::Result<Self> {
        let file = folder()?.join("ftp-known-certs");
        let server = format!("{}:{}", url.host, url.port);
        let text = match std::fs::read_to_string(&file) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            text => text.with_context(|| format!("cannot read {}", file.display()))?,
        };
        let fingerprints = text
            .lines()
            .filter_map(|line| line.split_once(' '))
            .filter(|(name, _)| name.eq_ignore_ascii_case(&server))
            .map(|(_, fingerprint)| fingerprint.trim().to_owned())
            .collect();
        Ok(Self { file, server, fingerprints })
    }

    /// Writes down what was accepted last, and tells the user.
    fn write(&self) -> anyhow::Result<()> {
        let Some(fingerprint) = self.fingerprints.last() else { return Ok(()) };
        let write = || {
            if let Some(home) = self.file.parent() {
                super::serve::make_home(home)?;
            }
            let mut options = std::fs::OpenOptions::new();
            let mut file = options.append(true).create(true).open(&self.file)?;
            anyhow::Ok(writeln!(file, "{} {fingerprint}", self.server)?)
        };
        write().with_context(|| format!("cannot write {}", self.file.display()))?;
        tell!("longhaul: {} is known from now on, by the certificate {fingerprint}", self.server);
        Ok(())
    }

    /// What to say when a server shows another certificate than before.
    fn changed(&self, shown: &str) -> String {
        format!(
            "THE CERTIFICATE OF {} HAS CHANGED, somebody may be listening in: its SHA-256 was {}, now it is {shown}; \
             only if you know that the server was given a new one, remove its line from {}",
            self.server,
            self.fingerprints.join(" or "),
            self.file.display()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> FtpUrl {
        FtpUrl::read(text).unwrap().unwrap()
    }

    #[test]
    fn urls_are_read() {
        let url = read("ftp://a%40b@[::1]:2121//abs/two%20words%FF");
        assert_eq!((url.user.as_deref(), &url.host[..], url.port), (Some("a@b"), "::1", 2121));
        assert_eq!(url.path, b"/abs/two words\xff");
        assert_eq!((read("ftp://h").port, read("ftps://h/x").port), (21, 990));
        assert!(read("ftp://h/a").same_server(&read("ftp://h/b")));
        assert!(!read("ftp://h/a").same_server(&read("ftp://u@h/b")));
        assert_eq!(read("ftp://h:21/a@b").path, b"a@b");
        assert!(FtpUrl::read("lh://h/").is_none());
        assert_eq!(FtpUrl::read_host("me@host:77").unwrap().port, 77);
    }

    #[test]
    fn who_was_under_tls_once_is_not_asked_in_clear_again() {
        #[derive(clap::Parser)]
        struct Only {
            #[command(flatten)]
            client: args::FtpClient,
        }
        for words in [&["ftp"][..], &["ftp", "--ftp-no-tls"]] {
            let Only { client } = clap::Parser::parse_from(words);
            let stop = Stop::default();
            let first = How {
                options: &client,
                tcp_cc: None,
                forgets: true,
                tells: false,
                was_secure: false,
                stop: &stop,
            };
            let offered = if client.no_tls { Security::Clear } else { Security::Offered };
            assert_eq!(read("ftp://h/").security(first), offered);
            let next = How { was_secure: true, ..first };
            assert_eq!(read("ftp://h/").security(next), Security::Required);
            assert_eq!(read("ftps://h/").security(next), Security::Implicit);
        }
    }

    #[test]
    fn mistakes_in_urls_are_told() {
        for (text, word) in [
            ("ftp://u:secret@h/", "others"),
            ("ftp://u:sec/ret@h/", "others"),
            ("ftp://h:0/", "port"),
            ("ftp://[::1/", "]"),
            ("ftp:///x", "no host"),
            ("ftp://h/50%", "%25"),
        ] {
            let said = FtpUrl::read(text).unwrap().unwrap_err();
            assert!(said.contains(word), "{text}: {said}");
        }
    }
}
