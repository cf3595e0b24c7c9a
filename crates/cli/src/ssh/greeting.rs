//! The first line each way, by which both sides agree on a version.
//!
//! ```text
//! near -> far, over ssh's standard input    longhaul-near VERSIONS KEY
//! far -> near, over its standard output     longhaul-far VERSION PORT ADDRESS
//!                                           longhaul-far none VERSIONS
//! ```
//!
//! VERSIONS is one number, or the least and the most that a side speaks, as in `1-3`. The far side answers in
//! the newest that both speak; where there is none, with what it speaks itself.

use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use net::SharedKey;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, Take};
use tokio::time::timeout;

/// Lines begin so.
const NEAR: &str = "longhaul-near ";
const FAR: &str = "longhaul-far ";
/// In the place of a version.
const NONE: &str = "none";

/// What is printed there before longhaul is started: the login is through.
pub const REACHED: &str = "longhaul-reached";

/// What a login may say before the far side does, at most.
const CHATTER: u64 = 64 << 10;
/// How long the far side may be silent once the login is through; slow disks are.
const FIRST_WORD: Duration = Duration::from_secs(60);

/// Versions of what goes over ssh that one side speaks.
type Versions = units::Versions<u32>;

const SPOKEN: Versions = Versions { oldest: 1, newest: 1 };

/// As they stand in a line.
fn written(Versions { oldest, newest }: Versions) -> String {
    if oldest == newest { newest.to_string() } else { format!("{oldest}-{newest}") }
}

fn read(text: &str) -> anyhow::Result<Versions> {
    let (oldest, newest) = text.split_once('-').unwrap_or((text, text));
    let (oldest, newest) = (oldest.parse()?, newest.parse()?);
    anyhow::ensure!(oldest <= newest, "{text} are no versions");
    Ok(Versions { oldest, newest })
}

/// Where the far side is to be met beside ssh.
#[derive(Debug, PartialEq, Eq)]
pub struct Place {
    /// 0: no port can be had there.
    pub port: u16,
    /// The host's own word for its address, if it knows any.
    pub address: Option<IpAddr>,
}

/// What the near side says.
pub fn near(key: &SharedKey) -> String {
    format!("{NEAR}{} {key}\n", written(SPOKEN))
}

/// The version that both speak and the near side's key, once it has said its line; else what to answer, and why.
pub async fn hear_near(
    reader: impl AsyncBufRead + Unpin,
) -> anyhow::Result<Result<(u32, SharedKey), (String, anyhow::Error)>> {
    let line = line(&mut reader.take(CHATTER), &[NEAR]).await?;
    let no_key = || anyhow!("that is no key: let `cp` start this");
    // Of a line that says no more, the blank at its end is gone.
    let said = line.get(NEAR.len()..).and_then(|said| said.split_once(' '));
    let (theirs, key) = said.with_context(no_key)?;
    let theirs = read(theirs).map_err(|_| no_key())?;
    let Some(version) = SPOKEN.common(theirs) else {
        let (theirs, ours) = (written(theirs), written(SPOKEN));
        let why = anyhow!("the near side speaks version {theirs} over ssh, and this one {ours}");
        return Ok(Err((format!("{FAR}{NONE} {ours}\n"), why)));
    };
    key.parse().map(|key| Ok((version, key))).map_err(|_| no_key())
}

/// What the far side answers to a near side that it understands.
pub fn far(version: u32, Place { port, address }: &Place) -> String {
    let address = address.map_or_else(|| "-".to_owned(), |address| address.to_string());
    format!("{FAR}{version} {port} {address}\n")
}

/// What the near side has heard.
pub enum Heard {
    /// The far side's line, to be read by [`place`].
    Line(String),
    /// The pipe has ended before.
    Nothing,
    /// The login is through, and the far side silent.
    Silence,
}

/// Waits for the far side's line. The user may have a password to type first, for as long as that takes.
pub async fn hear_far(reader: impl AsyncBufRead + Unpin) -> Heard {
    let mut lines = reader.take(CHATTER);
    let first = line(&mut lines, &[FAR, REACHED]).await;
    let heard = match first {
        Ok(first) if first.starts_with(FAR) => Ok(first),
        Ok(_) => match timeout(FIRST_WORD, line(&mut lines, &[FAR])).await {
            Ok(heard) => heard,
            Err(_) => return Heard::Silence,
        },
        Err(error) => Err(error),
    };
    heard.map_or(Heard::Nothing, Heard::Line)
}

/// Why a far side that is silent after its login may be so.
pub fn silent(host: &str) -> anyhow::Error {
    anyhow!(
        "longhaul on {host} says nothing within {} s of the login: see whether `ssh {host} longhaul \
         --version` works, and install this release there",
        FIRST_WORD.as_secs()
    )
}

/// Reads the far side's line.
pub fn place(line: &str, host: &str) -> anyhow::Result<Place> {
    let words = Vec::from_iter(line.split_whitespace().skip(1));
    match words[..] {
        [NONE, theirs] => {
            let theirs = read(theirs)?;
            let older = if theirs.newest < SPOKEN.oldest { host } else { "this host" };
            let (theirs, ours) = (written(theirs), written(SPOKEN));
            bail!(
                "the longhaul on {host} speaks version {theirs} over ssh, and this one {ours}: install a \
                 newer one on {older}"
            )
        }
        [version, port, address] if read(version).is_ok_and(is_ours) => {
            Ok(Place { port: port.parse()?, address: address.parse().ok() })
        }
        _ => {
            bail!("the longhaul on {host} speaks otherwise: install the same release on both sides")
        }
    }
}

fn is_ours(version: Versions) -> bool {
    version.oldest == version.newest && SPOKEN.common(version).is_some()
}

/// The first line that begins with one of these.
async fn line(
    lines: &mut Take<impl AsyncBufRead + Unpin>,
    begins: &[&str],
) -> anyhow::Result<String> {
    loop {
        let mut line = Vec::new();
        if lines.read_until(b'\n', &mut line).await? == 0 {
            bail!("no word from the other side");
        }
        let line = String::from_utf8_lossy(&line);
        if begins.iter().any(|begin| line.starts_with(begin)) {
            return Ok(line.trim_end().to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncWriteExt, BufReader, duplex};

    use super::*;

    async fn heard(said: &[u8]) -> Option<anyhow::Result<Place>> {
        match hear_far(said).await {
            Heard::Line(line) => Some(place(&line, "there")),
            Heard::Nothing | Heard::Silence => None,
        }
    }

    #[tokio::test]
    async fn both_sides_understand_each_other() {
        let key = SharedKey::from_bytes([7; 32]);
        let came = hear_near(near(&key).as_bytes()).await.unwrap().ok().unwrap();
        let (version, came) = came;
        assert_eq!((version, came.to_string()), (1, key.to_string()));
        for address in [None, "fd77::2".parse().ok()] {
            let place = Place { port: 4242, address };
            assert_eq!(heard(far(version, &place).as_bytes()).await.unwrap().unwrap(), place);
        }
    }

    #[tokio::test]
    async fn what_a_login_says_before_is_passed_over() {
        let place = Place { port: 4242, address: "::1".parse().ok() };
        for said in [
            &b"Welcome!\n\xff\nlonghaul-far 1 4242 ::1\n"[..],
            b"Welcome!\nlonghaul-reached\nlonghaul-far 1 4242 ::1\n",
        ] {
            assert_eq!(heard(said).await.unwrap().unwrap(), place);
        }
        let endless = b"x".repeat(CHATTER as usize + 100);
        assert!(heard(&endless).await.is_none() && heard(b"").await.is_none());
    }

    #[tokio::test]
    async fn versions_that_do_not_meet_are_told_on_both_sides() {
        let (answer, why) =
            hear_near(&b"longhaul-near 2-3 later words\n"[..]).await.unwrap().err().unwrap();
        assert!(why.to_string().contains("version 2-3"), "{why}");
        let said = heard(answer.as_bytes()).await.unwrap().unwrap_err().to_string();
        assert!(said.contains("there speaks version 1 over ssh"), "{said}");
        let said = heard(b"longhaul-far none 2-3\n").await.unwrap().unwrap_err().to_string();
        assert!(said.contains("version 2-3") && said.contains("newer one on this host"), "{said}");
        for strange in ["longhaul-far 2 4242 -\n", "longhaul-far x y\n", "longhaul-far none x\n"] {
            assert!(heard(strange.as_bytes()).await.unwrap().is_err(), "{strange}");
        }
        // One that speaks more is answered in what both speak.
        let key = SharedKey::from_bytes([7; 32]);
        let line = format!("longhaul-near 1-3 {key}\n");
        assert_eq!(hear_near(line.as_bytes()).await.unwrap().ok().unwrap().0, 1);
        for wrong in ["", " 1", " 1 x", " 3-1 x"] {
            let line = format!("longhaul-near{wrong} \n");
            assert!(hear_near(line.as_bytes()).await.is_err(), "{wrong}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn only_who_has_logged_in_may_not_be_silent() {
        let (mut there, here) = duplex(100);
        let mut here = BufReader::new(here);
        let password = timeout(FIRST_WORD * 100, hear_far(&mut here)).await;
        assert!(password.is_err(), "the user has not typed it yet");
        there.write_all(b"longhaul-reached\n").await.unwrap();
        let heard = timeout(FIRST_WORD * 2, hear_far(&mut here)).await;
        assert!(matches!(heard, Ok(Heard::Silence)));
    }
}
