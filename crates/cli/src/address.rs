//! What stands for a place on the command line: a local path, `lh://host[:port]/path`, or
//! `[user@]host:path`.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::net::SocketAddr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::Context;

/// The port of `longhaul serve`, UDP and TCP.
pub const DEFAULT_PORT: u16 = 7272;

/// A source or a destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    Local(PathBuf),
    Remote(Remote),
    Ssh(OverSsh),
    Ftp(crate::ftp::FtpUrl),
}

/// A path on a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remote {
    /// The server.
    pub server: Server,
    /// Below the server's root, without the leading slash; a closing slash is kept.
    pub path: OsString,
}

/// A path on a host that ssh leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OverSsh {
    /// The host.
    pub login: Login,
    /// As the user has it there, from the home directory.
    pub path: OsString,
}

/// `[USER@]HOST` as ssh is told it: any name of its configuration, IPv6 without brackets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Login(pub String);

impl Login {
    /// The host without the user.
    pub fn host(&self) -> &str {
        self.0.rsplit_once('@').map_or(&self.0, |(_, host)| host)
    }
}

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// A name or an address, IPv6 without brackets.
    pub host: String,
    /// UDP and TCP.
    pub port: u16,
}

impl Server {
    /// Whether its port goes without saying.
    pub fn is_usual_port(&self) -> bool {
        self.port == DEFAULT_PORT
    }

    /// The server's addresses, in the resolver's order.
    pub async fn resolve(&self) -> anyhow::Result<Vec<SocketAddr>> {
        let found = tokio::net::lookup_host((self.host.as_str(), self.port)).await;
        Ok(found.with_context(|| NotFound(self.host.clone()))?.collect())
    }
}

/// The resolver has not found a host, or was not reached itself.
#[derive(Debug)]
pub struct NotFound(String);

impl fmt::Display for NotFound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot find host '{}'", self.0)
    }
}

/// `HOST[:PORT]`, with `lh://` or without.
impl FromStr for Server {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let found = remote(text.strip_prefix("lh://").unwrap_or(text))?;
        match found.path.is_empty() {
            true => Ok(found.server),
            false => Err(format!("a server alone, without '/{}'", found.path.display())),
        }
    }
}

impl Location {
    /// Reads an argument; names of files may hold any bytes.
    pub fn read(argument: OsString) -> Result<Self, String> {
        let text = argument.as_bytes().utf8_chunks().next().map_or("", |chunk| chunk.valid());
        let rest = &argument.as_bytes()[text.len()..];
        if rest.is_empty() {
            return text.parse();
        }
        // What is no text can only belong to a path, the end of which a mark stands for.
        match format!("{text}{MARK}").parse()? {
            Self::Local(_) => Ok(Self::Local(argument.into())),
            Self::Remote(Remote { server, path }) => {
                Ok(Self::Remote(Remote { server, path: unmarked(&path, rest)? }))
            }
            Self::Ssh(OverSsh { login, path }) => {
                Ok(Self::Ssh(OverSsh { login, path: unmarked(&path, rest)? }))
            }
            Self::Ftp(_) => Err("an FTP URL is UTF-8".to_owned()),
        }
    }
}

/// Stands for what is no text.
const MARK: char = char::REPLACEMENT_CHARACTER;

/// A path with these bytes in the place of the mark at its end.
fn unmarked(path: &OsStr, rest: &[u8]) -> Result<OsString, String> {
    let begin = path.to_str().and_then(|path| path.strip_suffix(MARK));
    let begin = begin.ok_or("the name of a host is UTF-8")?;
    Ok(OsString::from_vec([begin.as_bytes(), rest].concat()))
}

impl FromStr for Location {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("an empty path: write . for the current directory".to_owned());
        }
        if let Some(rest) = text.strip_prefix("lh://") {
            return remote(rest).map(Self::Remote);
        }
        if let Some(url) = crate::ftp::FtpUrl::read(text) {
            return url.map(Self::Ftp);
        }
        if let Some((scheme, _)) = text.split_once("://") {
            return Err(format!(
                "unknown scheme '{scheme}': write lh://HOST[:PORT]/PATH, or [USER@]HOST:PATH"
            ));
        }
        // As scp: a colon before the first slash names a host, and colons may stand in brackets.
        let mark = text.find(['@', ':', '/', '[']).unwrap_or(0);
        let host = if text[mark..].starts_with('@') { mark + 1 } else { 0 };
        let end = match text[host..].starts_with('[') {
            true => text.find("]:").map_or(0, |bracket| bracket + 1),
            false => text.find(':').unwrap_or(0),
        };
        let (target, path) = text.split_at(end);
        match path.strip_prefix(':') {
            Some(path) if !target.contains('/') => {
                over_ssh(Login(target.replace(['[', ']'], "")), path).map(Self::Ssh)
            }
            _ => Ok(Self::Local(text.into())),
        }
    }
}

/// A path after `HOST:`; one that begins with `~` and a slash counts from the home directory too.
fn over_ssh(login: Login, path: &str) -> Result<OverSsh, String> {
    let host = login.host();
    if host.is_empty() || login.0.starts_with('-') || host.starts_with('-') {
        return Err(format!("'{}' is no host: write [USER@]HOST:PATH", login.0));
    }
    let path = match path.strip_prefix('~') {
        None => path,
        Some("") => ".",
        Some(rest) => rest.strip_prefix('/').ok_or_else(|| {
            format!("write the whole path instead of '{path}' (or './{path}' for such a name)")
        })?,
    };
    let path = if path.is_empty() { "." } else { path };
    Ok(OverSsh { login, path: path.into() })
}

fn remote(text: &str) -> Result<Remote, String> {
    let (authority, path) = text.split_once('/').unwrap_or((text, ""));
    if authority.contains('@') {
        return Err("lh:// takes no user name: the key decides who may".to_owned());
    }
    let (host, port) = if let Some(rest) = authority.strip_prefix('[') {
        let (host, port) = rest.split_once(']').ok_or("the ] after the IPv6 address is missing")?;
        (host, port)
    } else {
        let at = authority.find(':').unwrap_or(authority.len());
        authority.split_at(at)
    };
    if port.matches(':').count() > 1 {
        return Err(format!("an IPv6 address stands in brackets: lh://[{authority}]/"));
    }
    if host.is_empty() {
        return Err("no host: write lh://HOST[:PORT]/PATH".to_owned());
    }
    let port = match port {
        "" => DEFAULT_PORT,
        port => port
            .strip_prefix(':')
            .and_then(|port| port.parse().ok())
            .filter(|&port| port != 0)
            .ok_or_else(|| format!("'{port}' is no port: write a colon and 1 to 65535"))?,
    };
    Ok(Remote {
        server: Server { host: host.to_owned(), port },
        path: path.trim_start_matches('/').into(),
    })
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "lh://[{}]", self.host)?;
        } else {
            write!(f, "lh://{}", self.host)?;
        }
        match self.port {
            DEFAULT_PORT => Ok(()),
            port => write!(f, ":{port}"),
        }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local(path) => path.display().fmt(f),
            Self::Remote(Remote { server, path }) => write!(f, "{server}/{}", path.display()),
            Self::Ssh(OverSsh { login, path }) if login.host().contains(':') => {
                let user = login.0.strip_suffix(login.host()).unwrap_or_default();
                write!(f, "{user}[{}]:{}", login.host(), path.display())
            }
            Self::Ssh(OverSsh { login, path }) => write!(f, "{}:{}", login.0, path.display()),
            Self::Ftp(url) => url.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> (String, u16, OsString) {
        match text.parse() {
            Ok(Location::Remote(Remote { server, path })) => (server.host, server.port, path),
            other => panic!("{text}: {other:?}"),
        }
    }

    fn error(text: &str) -> String {
        text.parse::<Location>().expect_err(text)
    }

    #[test]
    fn servers_are_read() {
        let expect = |host: &str, port, path: &str| (host.to_owned(), port, path.into());
        assert_eq!(parsed("lh://far"), expect("far", 7272, ""));
        assert_eq!(parsed("lh://far:80/a/b/"), expect("far", 80, "a/b/"));
        assert_eq!(parsed("lh://[::1]//a b"), expect("::1", 7272, "a b"));
        assert_eq!(parsed("lh://[fd77::2]:9/"), expect("fd77::2", 9, ""));
    }

    #[test]
    fn what_is_read_can_be_shown() {
        for text in
            ["lh://far/a", "lh://[::1]:80/", "a/b:c", "./x", "me@far:a", "me@[::1]:/a:b", "[x"]
        {
            assert_eq!(text.parse::<Location>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn hosts_behind_ssh_are_read_as_scp_reads_them() {
        let read = |text: &str| match text.parse() {
            Ok(Location::Ssh(OverSsh { login, path })) => (login.0, path),
            other => panic!("{text}: {other:?}"),
        };
        let expect = |login: &str, path: &str| (login.to_owned(), OsString::from(path));
        assert_eq!(read("far:"), expect("far", "."));
        assert_eq!(read("me@far:a:b"), expect("me@far", "a:b"));
        assert_eq!(read("far:~/a/"), expect("far", "a/"));
        assert_eq!(read("far:~"), expect("far", "."));
        assert_eq!(read("far:/~x"), expect("far", "/~x"));
        assert_eq!(read("me@[fd77::2]:/a"), expect("me@fd77::2", "/a"));
    }

    #[test]
    fn far_names_need_not_be_text_either() {
        let read = |bytes: &[u8]| Location::read(OsString::from_vec(bytes.to_vec()));
        let path = |bytes: &[u8]| match read(bytes) {
            Ok(Location::Ssh(OverSsh { path, .. }) | Location::Remote(Remote { path, .. })) => {
                path.into_vec()
            }
            other => panic!("{bytes:?}: {other:?}"),
        };
        assert_eq!(path(b"me@far:na\xffme/\xc3\xbc"), b"na\xffme/\xc3\xbc");
        assert_eq!(path(b"far:~/\xff"), b"\xff");
        assert_eq!(path(b"far:\xef\xbf\xbd\xff"), b"\xef\xbf\xbd\xff");
        assert_eq!(path(b"lh://far:80//na\xffme/"), b"na\xffme/");
        for local in [&b"na\xffme"[..], b"./a:\xff", b"\xffhost:name"] {
            let expected = Location::Local(OsString::from_vec(local.to_vec()).into());
            assert_eq!(read(local), Ok(expected));
        }
        assert!(read(b"lh://f\xffr/x").unwrap_err().contains("host"));
        assert!(read(b"ftp://far/\xff").unwrap_err().contains("UTF-8"));
    }

    #[test]
    fn a_server_stands_alone_too() {
        let server = |text: &str| text.parse::<Server>();
        assert_eq!(server("far:80"), server("lh://far:80/"));
        assert_eq!(server("[::1]").unwrap().host, "::1");
        assert!(server("lh://far/a").unwrap_err().contains("/a") && server("").is_err());
    }

    #[test]
    fn mistakes_are_told_with_what_to_write() {
        assert!(error("-oProxyCommand=x:y").contains("no host"));
        assert!(error("me@:y").contains("no host"));
        assert!(error("host:~you/x").contains("whole path"));
        assert!(error("http://x/").contains("lh://HOST"));
        assert!(error("lh://fd77::2/x").contains("[fd77::2]"));
        assert!(error("lh://[fd77::2/x").contains(']'));
        assert!(error("lh:///x").contains("no host"));
        assert!(error("lh://h:0/x").contains("port"));
        assert!(error("lh://h:x/x").contains("port"));
        assert!(error("lh://me@h/x").contains("user name"));
        assert!(error("").contains("empty"));
    }

    #[test]
    fn local_paths_may_hold_colons_after_a_slash() {
        assert_eq!("./a:b".parse(), Ok(Location::Local("./a:b".into())));
        assert_eq!("/a:b".parse(), Ok(Location::Local("/a:b".into())));
    }
}
