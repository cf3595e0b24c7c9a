//! What a client does with files: look, get and put.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::OwnedFd;

use rustix::fs::Timespec;

use super::transfer::Moving;
use super::tree::joined;
use super::{Client, ClientError, Stop};
use crate::data::{Moved, PIECE};
use crate::entry::{Kind, read_facts};
use crate::hash::Algorithm;
use crate::landing::{Landing, blocking, is_kept, is_part_of, mark, partial};
use crate::time::read_stamp;

/// The part that was kept last, and the [`mark`] of the file that it is of: a part's times may be too coarse
/// for that.
pub(super) type LastKept = Option<(Timespec, File)>;

/// What stands at a path of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// A file; its size and last change where the server tells.
    File(Option<u64>, Option<i64>),
    /// A directory.
    Directory,
}

impl Client {
    /// What stands at a path.
    ///
    /// # Errors
    /// [`ClientError::Refused`] when there is nothing.
    pub async fn find(&mut self, path: &[u8]) -> Result<Found, ClientError> {
        if path.is_empty() {
            return Ok(Found::Directory);
        }
        if self.knows("MLST") {
            let reply = self.done_with("MLST", path).await?;
            let read = |line: &Vec<u8>| read_facts(line.trim_ascii_start()).ok().flatten();
            let entry = reply.lines.iter().skip(1).find_map(read);
            match entry.map(|entry| (entry.kind, entry)) {
                Some((Kind::Directory, _)) => return Ok(Found::Directory),
                // Of the link itself, and not of what it leads to, with some servers.
                Some((Kind::Link, _)) => {}
                Some((_, entry)) => return Ok(Found::File(Some(entry.size), entry.modified)),
                // `type=cdir` for a directory, of some servers.
                None => {}
            }
        }
        let size = self.size(path).await?;
        if size.is_none() && self.is_directory(path).await? {
            return Ok(Found::Directory);
        }
        let modified = self.modified(path).await?;
        if size.is_none() && modified.is_none() && self.knows("SIZE") {
            let reply = crate::reply::Reply::new(550, "there is no such file");
            return Err(super::refused(path, reply));
        }
        Ok(Found::File(size, modified))
    }

    /// Goes there and back, for servers that tell no better.
    async fn is_directory(&mut self, path: &[u8]) -> Result<bool, ClientError> {
        let here = self.here().await?;
        if super::with_path("CWD", path).contains(&b'\n') {
            return Err(ClientError::Name);
        }
        match self.done_with("CWD", path).await {
            Ok(_) => {
                self.done_with("CWD", &here).await?;
                Ok(true)
            }
            Err(error) if error.is_refusal() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The current directory there.
    ///
    /// # Errors
    /// [`ClientError`]
    pub async fn here(&mut self) -> Result<Vec<u8>, ClientError> {
        if let Some(here) = &self.here {
            return Ok(here.clone());
        }
        let reply = self.done("PWD").await?;
        let here = unquoted(reply.first());
        self.here = Some(here.clone());
        Ok(here)
    }

    /// A file's size, where the server tells.
    ///
    /// # Errors
    /// [`ClientError`] when the connection breaks.
    pub async fn size(&mut self, path: &[u8]) -> Result<Option<u64>, ClientError> {
        if self.type_set != Some(false) {
            self.done("TYPE I").await?;
            self.type_set = Some(false);
        }
        self.told("SIZE", path, |text| text.parse().ok()).await
    }

    /// A file's checksum in the server's words, by HASH.
    ///
    /// # Errors
    /// [`ClientError`]
    pub async fn hash(&mut self, path: &[u8]) -> Result<crate::reply::Reply, ClientError> {
        let size = self.size(path).await?.unwrap_or(0);
        let command = super::with_path("HASH", path);
        let reply = self.ask_after(&command, size).await?;
        match reply.class() {
            2 => Ok(reply),
            _ => Err(super::refused(&command, reply)),
        }
    }

    /// When it was changed last, in seconds since 1970.
    ///
    /// # Errors
    /// [`ClientError`] when the connection breaks.
    pub async fn modified(&mut self, path: &[u8]) -> Result<Option<i64>, ClientError> {
        self.told("MDTM", path, read_stamp).await
    }

    async fn told<T>(
        &mut self,
        verb: &str,
        path: &[u8],
        read: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<T>, ClientError> {
        let reply = self.ask_bytes(&super::with_path(verb, path)).await?;
        let told = read(reply.text().trim());
        Ok(told.filter(|_| reply.code == 213))
    }

    /// Gets a file into a directory here, under a temporary name until it is whole. What was cut is
    /// kept, and resumed by the next call: always when `resume` says so, else when it is of the same
    /// file, which has not changed since. A server that cannot do that sends all of it again.
    ///
    /// # Errors
    /// [`ClientError`]
    pub async fn get(
        &mut self,
        path: &[u8],
        place: (OwnedFd, &OsStr),
        resume: bool,
        moved: &Moved,
    ) -> Result<(), ClientError> {
        self.get_on(path, place, resume, &mut None, moved).await
    }

    /// The same for one of several attempts.
    pub(super) async fn get_on(
        &mut self,
        path: &[u8],
        (directory, name): (OwnedFd, &OsStr),
        resume: bool,
        last: &mut LastKept,
        moved: &Moved,
    ) -> Result<(), ClientError> {
        let (size, modified) = match self.find(path).await? {
            Found::File(size, modified) => (size, modified),
            Found::Directory => {
                let reply = crate::reply::Reply::new(550, "that is a directory");
                return Err(super::refused(path, reply));
            }
        };
        let kept = partial(&directory, name).map_err(ClientError::Here)?;
        let mark = self.mark(path, (size, modified)).await?;
        let last_here = last.take_if(|(_, part)| is_kept(&directory, name, part).unwrap_or(false));
        let is_last = last_here.is_some_and(|(of, _)| mark == Some(of));
        let same = match mark {
            _ if resume => true,
            Some(mark) => {
                is_last || is_part_of(&directory, name, mark).map_err(ClientError::Here)?
            }
            None => false,
        };
        let kept =
            kept.filter(|(bytes, _)| same && !self.ascii && size.is_none_or(|size| *bytes <= size));
        let before = moved.bytes();
        if let Some((bytes, _)) = kept {
            let directory = directory.try_clone().map_err(ClientError::Here)?;
            let (name, stop) = (name.to_owned(), self.options.stop.clone());
            let stopped = stop.clone();
            // Where another copy goes on in that part it is copied.
            let kept = move || Landing::kept(directory, &name, bytes, &|| !stop.is_wanted());
            let landing = blocking(kept).await.map_err(|error| match stopped.is_wanted() {
                true => ClientError::Stopped,
                false => ClientError::Here(error),
            })?;
            match self.get_into(landing, path, (size, modified, mark), last, moved).await {
                Err(error) if error.is_refused_restart() => moved.fall_back_to(before),
                got => return got,
            }
        }
        let landing = Landing::fresh(directory, name).map_err(ClientError::Here)?;
        self.get_into(landing, path, (size, modified, mark), last, moved).await
    }

    /// What a part of this file is known by: where the file is, its size and its last change. None where
    /// the server does not tell of these.
    async fn mark(
        &mut self,
        path: &[u8],
        (size, modified): (Option<u64>, Option<i64>),
    ) -> Result<Option<Timespec>, ClientError> {
        let Some(modified) = modified.filter(|_| !self.ascii) else { return Ok(None) };
        let path = match path.starts_with(b"/") {
            true => path.to_vec(),
            false => match self.here().await {
                Ok(here) => joined(&here, path),
                Err(error) if error.is_refusal() => return Ok(None),
                Err(error) => return Err(error),
            },
        };
        let file = format!("{} {} {} {size:?} ", self.host, self.peer.port(), self.user);
        Ok(Some(mark(modified, &[file.as_bytes(), &path].concat())))
    }

    async fn get_into(
        &mut self,
        mut landing: Landing,
        path: &[u8],
        (size, modified, mark): (Option<u64>, Option<i64>, Option<Timespec>),
        last: &mut LastKept,
        moved: &Moved,
    ) -> Result<(), ClientError> {
        // Nothing goes on in lines that were translated.
        if !self.ascii {
            landing = landing.lasting(mark);
        }
        let offset = landing.offset;
        moved.add(offset as usize);
        let before = moved.bytes();
        let moving = Moving::<&[u8], _>::Receive(&mut landing);
        let ahead = size.map(|size| size - offset);
        let mut got = self.move_data(("RETR", path), (offset, ahead), moving, moved).await;
        let came = moved.bytes() - before;
        // More of a whole file is no cut: it grows. More of a rest may be of anything: the next attempt
        // finds that the part is too long or of another file, and begins anew.
        let is_cut = |ahead| if offset == 0 { came < ahead } else { came != ahead };
        if got.is_ok() && !self.ascii && ahead.is_some_and(is_cut) {
            got = Err(ClientError::Data(crate::data::DataError::Cut));
        }
        match got {
            Ok(()) => landing.install(modified).await.map_err(ClientError::Here),
            Err(error) => {
                if !self.ascii {
                    let kept = mark.zip(landing.keep(mark).await);
                    *last = kept.or(last.take());
                }
                Err(error)
            }
        }
    }

    /// Puts a file there, from byte `offset` on; what the server has before stays.
    ///
    /// # Errors
    /// [`ClientError`]
    pub async fn put(
        &mut self,
        mut file: File,
        path: &[u8],
        offset: u64,
        moved: &Moved,
    ) -> Result<(), ClientError> {
        file.seek(io::SeekFrom::Start(offset)).map_err(ClientError::Here)?;
        let metadata = file.metadata().map_err(ClientError::Here)?;
        let ahead = metadata.len().saturating_sub(offset);
        moved.add(offset as usize);
        let moving = Moving::<_, Vec<u8>>::Send(tokio::fs::File::from_std(file));
        self.move_data(("STOR", path), (offset, Some(ahead)), moving, moved).await?;
        if self.knows("MFMT")
            && let Ok(modified) = metadata.modified()
            && let Ok(since) = modified.duration_since(std::time::UNIX_EPOCH)
        {
            let stamp = crate::time::stamp(since.as_secs().try_into().unwrap_or(i64::MAX));
            // The file is there; a server that keeps its own time may.
            self.ask_bytes(&super::with_path(&format!("MFMT {stamp}"), path)).await?;
        }
        Ok(())
    }
}

impl Client {
    /// Puts a file behind what the server has under a name.
    ///
    /// # Errors
    /// [`ClientError`]
    pub async fn append(
        &mut self,
        file: File,
        path: &[u8],
        moved: &Moved,
    ) -> Result<(), ClientError> {
        let size = file.metadata().map_err(ClientError::Here)?.len();
        let there = self.size(path).await?.unwrap_or(0);
        let moving = Moving::<_, Vec<u8>>::Send(tokio::fs::File::from_std(file));
        self.move_data(("APPE", path), (there, Some(size)), moving, moved).await
    }

    /// From which byte on a file has to be put: behind what the server has of it, where a checksum
    /// says that this is the beginning of the same file.
    ///
    /// # Errors
    /// [`ClientError`]
    pub async fn resume_point(&mut self, file: &File, path: &[u8]) -> Result<u64, ClientError> {
        if !self.knows("XSHA256") || self.ascii {
            return Ok(0);
        }
        let size = file.metadata().map_err(ClientError::Here)?.len();
        let Some(there) = self.size(path).await?.filter(|there| (1..=size).contains(there)) else {
            return Ok(0);
        };
        let command = [b"XSHA256 \"", path, format!("\" 0 {there}").as_bytes()].concat();
        let reply = self.ask_after(&command, there).await?;
        let (file, stop) =
            (file.try_clone().map_err(ClientError::Here)?, self.options.stop.clone());
        let here = blocking(move || hash_of(file, there, &stop)).await;
        let here = here.map_err(ClientError::Here)?.ok_or(ClientError::Stopped)?;
        let same = reply.class() == 2 && reply.text().trim().eq_ignore_ascii_case(&here);
        Ok(if same { there } else { 0 })
    }
}

/// The directory that the answer to PWD names: between quotation marks, those in it doubled.
pub fn unquoted(text: &[u8]) -> Vec<u8> {
    let Some(mark) = text.iter().position(|&byte| byte == b'"') else { return text.to_vec() };
    let mut bytes = text[mark + 1..].iter().copied().peekable();
    let mut path = Vec::new();
    while let Some(byte) = bytes.next() {
        if byte == b'"' && bytes.next_if_eq(&b'"').is_none() {
            break;
        }
        path.push(byte);
    }
    path
}

/// The SHA-256 of the first bytes of a file, unless all is to stop.
fn hash_of(mut file: File, bytes: u64, stop: &Stop) -> io::Result<Option<String>> {
    file.seek(io::SeekFrom::Start(0))?;
    let mut file = file.take(bytes);
    let mut hasher = Algorithm::Sha256.hasher();
    let mut piece = vec![0; PIECE];
    while !stop.is_wanted() {
        match file.read(&mut piece)? {
            0 => return Ok(Some(hasher.finish())),
            read => hasher.update(&piece[..read]),
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_current_directory_is_read_in_its_bytes() {
        assert_eq!(unquoted(b"\"/a\"\"\xffb\" is it, \"friend\""), b"/a\"\xffb");
        assert_eq!(unquoted(b"/plain"), b"/plain");
    }
}
