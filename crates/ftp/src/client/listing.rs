//! What a directory of the server holds, by whichever listing it has.

use std::io;

use transfer::{NOTES_MAX, Note, NoteKind};

use super::transfer::Moving;
use super::{Client, ClientError};
use crate::data::{Moved, Sink};
use crate::entry::{Entry, Unreadable, read_facts, read_ls_line};

/// Bytes of a listing, at most.
const LISTING_MAX: usize = 64 << 20;

/// Bytes of a line that cannot be read, as far as it is shown.
const SHOWN_MAX: usize = 200;

/// What a listing says.
#[derive(Debug, Default)]
pub struct Listing {
    /// What the directory holds.
    pub entries: Vec<Entry>,
    /// The first lines that cannot be read, clipped: something there is left out.
    unread: Vec<Vec<u8>>,
    /// How many more there are.
    unread_more: usize,
}

impl Listing {
    fn read(text: &[u8], read: impl Fn(&[u8]) -> Result<Option<Entry>, Unreadable>) -> Self {
        let mut listing = Self::default();
        for line in lines(text) {
            match read(line) {
                Ok(entry) => {
                    let entry = entry.filter(|entry| entry.name != b"." && entry.name != b"..");
                    listing.entries.extend(entry);
                }
                Err(Unreadable) if listing.unread.len() < NOTES_MAX => {
                    listing.unread.push(line[..line.len().min(SHOWN_MAX)].to_vec());
                }
                Err(Unreadable) => listing.unread_more += 1,
            }
        }
        listing
    }

    /// What cannot be read, as notes on this directory: one for each line, but of very many one for the rest.
    pub fn notes(&self, directory: &[u8]) -> impl Iterator<Item = Note> {
        let note = |reason: String| Note::new(NoteKind::Failed, directory, &reason);
        let shown = self.unread.iter().map(|line| {
            format!("a line of its listing cannot be read: {}", String::from_utf8_lossy(line))
        });
        let more = (self.unread_more > 0)
            .then(|| format!("{} more lines of its listing cannot be read", self.unread_more));
        shown.chain(more).map(note)
    }
}

/// Takes no more than [`LISTING_MAX`].
struct Text(Vec<u8>);

impl Sink for Text {
    async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.0.len() + bytes.len() > LISTING_MAX {
            return Err(io::Error::other("the server's listing is too long"));
        }
        self.0.extend_from_slice(bytes);
        Ok(())
    }
}

fn now() -> i64 {
    net::clock::wall().as_secs().try_into().unwrap_or(i64::MAX)
}

impl Client {
    /// The text of a listing, by LIST, NLST or MLSD.
    ///
    /// # Errors
    /// [`ClientError`]
    pub async fn listing(&mut self, verb: &str, path: &[u8]) -> Result<Vec<u8>, ClientError> {
        let mut text = Text(Vec::new());
        let moving = Moving::<&[u8], _>::Receive(&mut text);
        self.move_data((verb, path), (0, None), moving, &Moved::default()).await?;
        Ok(text.0)
    }

    /// What a directory holds; names are the server's, and not to be trusted as paths.
    ///
    /// # Errors
    /// [`ClientError`]
    pub async fn list(&mut self, path: &[u8]) -> Result<Listing, ClientError> {
        if self.knows("MLST") {
            let text = self.listing("MLSD", path).await?;
            return Ok(Listing::read(&text, read_facts));
        }
        let now = now();
        let text = self.long_listing(path, now).await?;
        Ok(Listing::read(&text, |line| read_ls_line(line, now)))
    }

    /// By LIST, which on Unix leaves dot files out unless told otherwise. Not every server can be told:
    /// some refuse, and others take the option for a name and list what is not there.
    async fn long_listing(&mut self, path: &[u8], now: i64) -> Result<Vec<u8>, ClientError> {
        let is_entry = |line: &[u8]| matches!(read_ls_line(line, now), Ok(Some(_)));
        let mut refused = false;
        if self.may_list_all(path).await? {
            match self.listing("LIST -a", path).await {
                // An empty directory has `.` at least.
                Ok(text) if lines(&text).any(is_entry) => {
                    self.lists_all = Some(true);
                    return Ok(text);
                }
                Ok(_) => {}
                Err(ClientError::Refused { reply, .. })
                    if reply.code != 421 && self.lists_all.is_none() =>
                {
                    refused = reply.class() == 5;
                }
                Err(error) => return Err(error),
            }
        }
        let text = self.listing("LIST", path).await?;
        if refused {
            self.lists_all = Some(false);
        }
        Ok(text)
    }

    async fn may_list_all(&mut self, path: &[u8]) -> Result<bool, ClientError> {
        // The server would take such a path for more options, or for another.
        let is_plain = !path.starts_with(b"-") && !path.starts_with(b" ");
        Ok(is_plain && self.lists_all != Some(false) && self.is_unix().await?)
    }

    /// Whether the server says that it runs on Unix, or lists as if it did.
    async fn is_unix(&mut self) -> Result<bool, ClientError> {
        if let Some(known) = self.unix {
            return Ok(known);
        }
        let reply = self.ask("SYST").await?;
        let name = reply.text().trim_start().to_ascii_uppercase();
        let is_unix = reply.code == 215 && name.starts_with("UNIX");
        self.unix = Some(is_unix);
        Ok(is_unix)
    }
}

fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|&byte| byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_read_is_told_in_few_words() {
        let text = [b"x".repeat(10_000), b"\nx".repeat(3 * NOTES_MAX)].concat();
        let listing = Listing::read(&text, |_| Err(Unreadable));
        let shown: usize = listing.unread.iter().map(Vec::len).sum();
        assert_eq!((listing.unread.len(), shown), (NOTES_MAX, SHOWN_MAX + NOTES_MAX - 1));
        let notes: Vec<_> = listing.notes(b"d").collect();
        assert_eq!(notes.len(), NOTES_MAX + 1);
        let more = format!("{} more lines of its listing cannot be read", 2 * NOTES_MAX + 1);
        assert_eq!(notes[NOTES_MAX].reason, more);
    }
}
