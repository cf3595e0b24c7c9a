//! A copy from one server to another, for a client that both let in: what the three say to each other.
//!
//! On a stream to the server that has the files, the client says [`PUSH`] and an [`Ask`]. The server answers
//! with the public half of a key that it has made for this copy. On a stream to the other server, the client says
//! [`TICKET`] and a [`Wish`]: whoever proves to hold that key may, as long as this stream is open, put to one path,
//! and nothing else, by the client's own rights. Told that the [`TICKET`] holds, the first server connects to the
//! other, and tells the client of the events of the copy, which ends when the client's stream does.
//!
//! All are lines of JSON, each an object; names that a side does not know are ignored. A refusal is an object
//! with an `error`.

use std::io;

use anyhow::{Context, anyhow, bail, ensure};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use transfer::printable;
use transfer::wire::Terms;

use crate::forward::OPENING_LEN;

/// Streams begin so; those of a transfer begin with "longhaul".
pub const PUSH: [u8; OPENING_LEN] = *b"lh-push\x01";
pub const TICKET: [u8; OPENING_LEN] = *b"lh-tckt\x01";

/// Bytes of a line that comes before the events, at most.
const LINE_MAX: u64 = 64 << 10;
/// And of an [`Ask`], which names all sources.
const ASK_MAX: u64 = 1 << 20;

/// What is to be copied to where.
#[derive(Serialize, Deserialize)]
pub struct Ask {
    /// Below the root of the server that is asked.
    pub sources: Vec<String>,
    /// The other server: its name or address, as the one that is asked knows it.
    pub host: String,
    pub port: u16,
    /// Its key.
    pub key: String,
    /// Below its root.
    pub destination: String,
    pub terms: Terms,
    /// As `--transport` has it.
    pub transport: String,
    /// Nothing is to be changed, but compared.
    pub compares: bool,
}

/// The public half of a key made for one copy.
#[derive(Serialize, Deserialize)]
pub struct Made {
    pub key: String,
}

/// What is wished from the server to which the copy goes.
#[derive(Serialize, Deserialize)]
pub struct Wish {
    /// Who is to be let in.
    pub key: String,
    /// Where to it may put, as it will be asked for.
    pub destination: String,
}

/// The ticket holds.
#[derive(Serialize, Deserialize)]
pub struct Held {
    pub held: bool,
}

/// Says something.
pub async fn say(writer: &mut (impl AsyncWrite + Unpin), what: &impl Serialize) -> io::Result<()> {
    let line = serde_json::to_string(what)? + "\n";
    writer.write_all(line.as_bytes()).await?;
    writer.flush().await
}

/// Whether this is no longer than it may be.
pub fn fits(ask: &Ask) -> io::Result<bool> {
    Ok((serde_json::to_vec(ask)?.len() as u64) < ASK_MAX)
}

/// What the client asks for.
pub async fn hear_ask(reader: &mut (impl AsyncBufRead + Unpin)) -> anyhow::Result<Ask> {
    hear_line(reader, ASK_MAX).await
}

/// What the other side says next, unless that is a refusal.
pub async fn hear<T: DeserializeOwned>(
    reader: &mut (impl AsyncBufRead + Unpin),
) -> anyhow::Result<T> {
    hear_line(reader, LINE_MAX).await
}

async fn hear_line<T: DeserializeOwned>(
    reader: &mut (impl AsyncBufRead + Unpin),
    max: u64,
) -> anyhow::Result<T> {
    let mut line = Vec::new();
    let read = reader.take(max).read_until(b'\n', &mut line).await? as u64;
    if !line.ends_with(b"\n") {
        ensure!(read < max, "it says more in one line than the {max} bytes that it may");
        bail!("it does not answer, as older releases do not");
    }
    let said: Value = serde_json::from_slice(&line).context("it answers otherwise")?;
    match said["error"].as_str() {
        Some(error) => Err(anyhow!("{}", printable(error))),
        None => serde_json::from_value(said).context("it answers otherwise"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_said_is_heard_and_nothing_else() {
        let mut line = Vec::new();
        say(&mut line, &Held { held: true }).await.unwrap();
        assert!(hear::<Held>(&mut &line[..]).await.unwrap().held);
        let refused = br#"{"error":"no\u001b room"}"#;
        let long = format!("{{\"held\":true,\"later\":\"{}\"}}\n", "x".repeat(LINE_MAX as usize));
        let said =
            async |line: &[u8]| hear::<Held>(&mut &line[..]).await.err().unwrap().to_string();
        let refusal = said(&[&refused[..], b"\n"].concat()).await;
        assert!(refusal.starts_with("no") && !refusal.contains('\u{1b}'), "{refusal}");
        assert!(said(long.as_bytes()).await.contains("more in one line"));
        assert!(said(b"").await.contains("older releases"));
        assert!(said(b"longhaul\x05\0\x05\0").await.contains("older releases"));
        for odd in [&b"\n"[..], b"[]\n", b"{}\n", b"{\"held\":1}\n"] {
            assert!(said(odd).await.contains("otherwise"));
        }
        assert!(hear::<Held>(&mut &b"{\"held\":true,\"later\":[]}\n"[..]).await.unwrap().held);
    }

    #[tokio::test]
    async fn a_thousand_sources_are_asked_for_at_once_and_no_longer_list() {
        let ask = |sources| Ask {
            sources: vec!["x".repeat(200); sources],
            host: "host".to_owned(),
            port: 1,
            key: String::new(),
            destination: String::new(),
            terms: Terms::default(),
            transport: "auto".to_owned(),
            compares: false,
        };
        let mut line = Vec::new();
        say(&mut line, &ask(1024)).await.unwrap();
        assert!(line.len() as u64 > LINE_MAX && fits(&ask(1024)).unwrap());
        assert_eq!(hear_ask(&mut &line[..]).await.unwrap().sources.len(), 1024);
        assert!(!fits(&ask(6000)).unwrap());
    }
}
