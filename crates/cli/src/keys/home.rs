//! `LONGHAUL_HOME` and the secret files in it.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};

/// Permissions that let others than the owner in.
const OTHERS: u32 = 0o077;

/// The folder with the user's keys.
pub fn folder() -> anyhow::Result<PathBuf> {
    let folder = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    folder("LONGHAUL_HOME")
        .map(PathBuf::from)
        .or_else(|| folder("XDG_CONFIG_HOME").map(|dir| Path::new(&dir).join("longhaul")))
        .or_else(|| folder("HOME").map(|dir| Path::new(&dir).join(".config/longhaul")))
        .context("neither LONGHAUL_HOME nor HOME is set: set one, or name the key with --key FILE")
}

/// Makes the folder, readable by its owner alone.
pub fn make() -> anyhow::Result<PathBuf> {
    let home = folder()?;
    let made = DirBuilder::new().recursive(true).mode(0o700).create(&home);
    made.with_context(|| format!("cannot make {}", home.display()))?;
    Ok(home)
}

/// Reads a secret that nobody else may read. `missing` says what to do when it is not there.
pub fn read_secret(path: &Path, missing: &str) -> anyhow::Result<String> {
    let shown = path.display();
    let metadata = match fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => bail!("no key at {shown}: {missing}"),
        other => other.with_context(|| format!("cannot read the key {shown}"))?,
    };
    ensure!(
        metadata.mode() & OTHERS == 0,
        "the key {shown} is open to others (mode {:04o}): run `chmod 600 {shown}`, and make a new \
         key if somebody may have read it",
        metadata.mode() & 0o7777,
    );
    fs::read_to_string(path).with_context(|| format!("cannot read the key {shown}"))
}

/// 32 random bytes.
pub fn random() -> anyhow::Result<[u8; 32]> {
    let mut secret = [0; 32];
    getrandom::fill(&mut secret).context("the system gives no randomness")?;
    Ok(secret)
}

/// Writes a file for its owner's eyes beside `path` and renames it, so that no reader sees half.
pub fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    // Another one each time: what a process left that was killed is in nobody's way.
    let fresh =
        path.with_extension(format!("new-{:016x}", u64::from_be_bytes(random()?[..8].try_into()?)));
    let write = || {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&fresh)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&fresh, path)
    };
    let written = write().inspect_err(|_| drop(fs::remove_file(&fresh)));
    written.with_context(|| format!("cannot write {}", path.display()))
}
