//! The password file: one user a line, `NAME:ACCESS:HASH:ROOT`, with ACCESS `rw` or `ro` and HASH an
//! Argon2id string.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use argon2::Argon2;
use argon2::password_hash::{PasswordHash, PasswordHasher, PasswordVerifier, Salt};

use crate::tls::random_hex;

/// Users that a file may name.
const USERS_MAX: usize = 10_000;

/// The longest password; what is longer is refused, not hashed.
const PASSWORD_MAX: usize = 1024;

/// Those who may log in by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Users(BTreeMap<String, Account>);

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// What is seen as /.
    pub root: PathBuf,
    /// Whether anything there may be changed.
    pub may_write: bool,
    hash: String,
}

/// What is wrong with a password file, or with a change to it.
#[derive(Debug, thiserror::Error)]
pub enum UsersError {
    /// It cannot be read or written.
    #[error("{}: {error}", path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// A line is not as it should be.
    #[error("{} line {line}: write NAME:rw:HASH:ROOT, or let `longhaul ftp-user` do it", path.display())]
    Line {
        /// Which file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
    },
    /// Nobody can have such a name.
    #[error("a name has 1 to 64 letters, digits and -_.@, and is not `anonymous` or `ftp`")]
    Name,
    /// Nobody should have such a password.
    #[error("a password has 1 to {PASSWORD_MAX} bytes")]
    Password,
    /// Hashing failed.
    #[error("the password cannot be hashed: {0}")]
    Hash(String),
}

impl Users {
    /// Reads a file; one that is not there names nobody.
    ///
    /// # Errors
    /// [`UsersError`]
    pub fn read(path: &Path) -> Result<Self, UsersError> {
        let bytes = match std::fs::read(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            read => read.map_err(|error| UsersError::File { path: path.to_owned(), error })?,
        };
        let mut users = BTreeMap::new();
        for (at, line) in bytes.split(|&byte| byte == b'\n').enumerate() {
            if line.is_empty() || line.starts_with(b"#") {
                continue;
            }
            let bad = || UsersError::Line { path: path.to_owned(), line: at + 1 };
            let (name, account) = read_line(line).ok_or_else(bad)?;
            if users.len() == USERS_MAX || users.insert(name, account).is_some() {
                return Err(bad());
            }
        }
        Ok(Self(users))
    }

    /// Writes the file anew, readable by its owner alone.
    ///
    /// # Errors
    /// [`UsersError::File`]
    pub fn write(&self, path: &Path) -> Result<(), UsersError> {
        let fresh = path.with_extension(format!("new-{}", std::process::id()));
        let write = || {
            let mut options = std::fs::OpenOptions::new();
            let mut file = options.write(true).create_new(true).mode(0o600).open(&fresh)?;
            for (name, account) in &self.0 {
                let access = if account.may_write { "rw" } else { "ro" };
                write!(file, "{name}:{access}:{}:", account.hash)?;
                file.write_all(account.root.as_os_str().as_bytes())?;
                file.write_all(b"\n")?;
            }
            file.sync_all()?;
            std::fs::rename(&fresh, path)
        };
        write().map_err(|error| UsersError::File { path: path.to_owned(), error })
    }

    /// Adds a user, or changes one.
    ///
    /// # Errors
    /// [`UsersError`] for names and passwords that cannot be.
    pub fn set(
        &mut self,
        name: &str,
        password: &[u8],
        root: PathBuf,
        may_write: bool,
    ) -> Result<(), UsersError> {
        let sound = |c: char| c.is_ascii_alphanumeric() || "-_.@".contains(c);
        let length = (1..=64).contains(&name.len());
        if !length || !name.chars().all(sound) || super::is_anonymous(name) {
            return Err(UsersError::Name);
        }
        if password.is_empty() || password.len() > PASSWORD_MAX || password.contains(&b'\n') {
            return Err(UsersError::Password);
        }
        let failed = |error: &dyn std::fmt::Display| UsersError::Hash(error.to_string());
        let salt = random_hex().map_err(|error| failed(&error))?;
        let salt = Salt::from_b64(&salt).map_err(|error| failed(&error))?;
        let hash =
            Argon2::default().hash_password(password, salt).map_err(|error| failed(&error))?;
        let account = Account { root, may_write, hash: hash.to_string() };
        self.0.insert(name.to_owned(), account);
        Ok(())
    }

    /// Removes a user; false when there is none of that name.
    pub fn remove(&mut self, name: &str) -> bool {
        self.0.remove(name).is_some()
    }

    /// Whether there is nobody.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Everybody, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Account)> {
        self.0.iter().map(|(name, account)| (name.as_str(), account))
    }

    /// The account, when the password is right. Takes tens of milliseconds and 19 MiB, for a name
    /// that nobody has as well, so that the time does not tell which names there are.
    pub fn verify(&self, name: &str, password: &[u8]) -> Option<&Account> {
        /// Of a password that nobody has.
        const NOBODY: &str = "$argon2id$v=19$m=19456,t=2,p=1$MDEyMzQ1Njc4OWFiY2RlZg$\
                              Hk1kXqXkRhvnyDZUGq4oDbAVZkSOXAXjbRnVq6CcJ4k";
        let account = self.0.get(name);
        let hash = PasswordHash::new(account.map_or(NOBODY, |account| &account.hash)).ok()?;
        let password = password.get(..PASSWORD_MAX).unwrap_or(password);
        let is_right = Argon2::default().verify_password(password, &hash).is_ok();
        account.filter(|_| is_right)
    }
}

fn read_line(line: &[u8]) -> Option<(String, Account)> {
    let mut parts = line.splitn(4, |&byte| byte == b':');
    let mut text = || String::from_utf8(parts.next()?.to_vec()).ok();
    let (name, access, hash) = (text()?, text()?, text()?);
    let root = PathBuf::from(std::ffi::OsString::from_vec(parts.next()?.to_vec()));
    let may_write = match access.as_str() {
        "rw" => true,
        "ro" => false,
        _ => return None,
    };
    PasswordHash::new(&hash).ok()?;
    Some((name, Account { root, may_write, hash }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_kept_and_verified() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("users");
        let mut users = Users::read(&path).unwrap();
        assert!(users.is_empty());
        users.set("ann", b"right", "/srv/a:b".into(), true).unwrap();
        users.set("bob", b"other", "/srv".into(), false).unwrap();
        users.write(&path).unwrap();
        let mut users = Users::read(&path).unwrap();
        let ann = users.verify("ann", b"right").unwrap();
        assert_eq!((ann.root.as_path(), ann.may_write), (Path::new("/srv/a:b"), true));
        for (name, password) in
            [("ann", &b"other"[..]), ("bob", b"right"), ("eve", b""), ("", b"x")]
        {
            assert!(users.verify(name, password).is_none(), "{name}");
        }
        assert!(users.remove("ann") && !users.remove("ann"));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let mut users = Users::default();
        for name in ["", "a:b", "anonymous", "FTP", "a b", "a\nb"] {
            assert!(
                matches!(users.set(name, b"x", "/".into(), true), Err(UsersError::Name)),
                "{name}"
            );
        }
        assert!(matches!(users.set("a", b"", "/".into(), true), Err(UsersError::Password)));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("users");
        for bad in
            ["ann", "ann:rw:x:/", "ann:xx:$argon2id$v=19$m=8,t=1,p=1$c29tZXNhbHQ$aGFzaGhhc2g:/"]
        {
            std::fs::write(&path, format!("# users\n{bad}\n")).unwrap();
            assert!(matches!(Users::read(&path), Err(UsersError::Line { line: 2, .. })), "{bad}");
        }
    }
}
