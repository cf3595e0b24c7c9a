//! `known_hosts`: which key is which server's. A line is a server, a blank, and its key.

use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;

use anyhow::{Context, bail};
use net::PublicKey;

use super::home;
use crate::address::{DEFAULT_PORT, Server};

/// The servers whose keys this side knows.
pub struct Known {
    path: PathBuf,
    text: String,
}

impl Known {
    /// Reads the user's file; none is an empty one.
    pub fn load() -> anyhow::Result<Self> {
        let path = home::folder()?.join("known_hosts");
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
            other => other.with_context(|| format!("cannot read {}", path.display()))?,
        };
        Ok(Self { path, text })
    }

    /// The key of a server.
    pub fn key(&self, server: &Server) -> anyhow::Result<Option<PublicKey>> {
        let name = name(server);
        for (index, line) in self.text.lines().enumerate() {
            let mut words = line.split_whitespace();
            if words.next() != Some(&name) {
                continue;
            }
            match words.next().map(str::parse) {
                Some(Ok(key)) => return Ok(Some(key)),
                _ => bail!(
                    "{} line {}: no key stands there; remove that line, and compare the key again",
                    self.path.display(),
                    index + 1
                ),
            }
        }
        Ok(None)
    }

    /// Writes down the key of a server.
    pub fn add(&self, server: &Server, key: PublicKey) -> anyhow::Result<()> {
        home::make()?;
        // Another copy may have added to it meanwhile.
        let mut text = Self::load()?.text;
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        home::write(&self.path, &format!("{text}{} {key}\n", name(server)))
    }

    /// What to say when a server shows a key that nobody has vouched for.
    pub fn unknown(&self, server: &Server, key: PublicKey) -> String {
        format!(
            "{server} is not known here; it says that its key is {key}: if `longhaul fingerprint` \
             on that host says so too, repeat this with --accept-new, or add '{} {key}' to {}",
            name(server),
            self.path.display()
        )
    }

    /// What to say when a server shows another key than before.
    pub fn changed(&self, server: &Server, known: PublicKey, shown: PublicKey) -> String {
        format!(
            "THE KEY OF {server} HAS CHANGED, somebody may be listening in: it was {known}, now it \
             is {shown}; only if you know that the host was given a new key, remove its line from {}",
            self.path.display()
        )
    }
}

/// A server as it stands in the file: like ssh, the usual port goes without saying.
fn name(server: &Server) -> String {
    let host = server.host.to_lowercase();
    match server.port {
        DEFAULT_PORT => host,
        port => format!("[{host}]:{port}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(host: &str, port: u16) -> Server {
        Server { host: host.to_owned(), port }
    }

    #[test]
    fn servers_are_found_by_name_and_port() {
        let key = |byte| PublicKey::from_bytes([byte; 32]);
        let text =
            format!("# a comment\nfar {}\n[far]:80 {} with a comment\nbad x\n", key(1), key(2));
        let known = Known { path: "known_hosts".into(), text };
        assert_eq!(known.key(&server("FAR", DEFAULT_PORT)).unwrap(), Some(key(1)));
        assert_eq!(known.key(&server("far", 80)).unwrap(), Some(key(2)));
        assert_eq!(known.key(&server("far", 81)).unwrap(), None);
        assert!(
            known.key(&server("bad", DEFAULT_PORT)).unwrap_err().to_string().contains("line 4")
        );
    }
}
