//! `LONGHAUL_HOME` and the key in it.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use net::SharedKey;

use crate::args::{KeyFile, Keygen};

/// Permissions that let others than the owner in.
const OTHERS: u32 = 0o077;

/// The folder with the user's key.
fn home() -> anyhow::Result<PathBuf> {
    let folder = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    folder("LONGHAUL_HOME")
        .map(PathBuf::from)
        .or_else(|| folder("XDG_CONFIG_HOME").map(|dir| Path::new(&dir).join("longhaul")))
        .or_else(|| folder("HOME").map(|dir| Path::new(&dir).join(".config/longhaul")))
        .context("neither LONGHAUL_HOME nor HOME is set: set one, or name the key with --key FILE")
}

/// Reads the key that the user named, or the one in `LONGHAUL_HOME`.
pub fn load_key(key: &KeyFile) -> anyhow::Result<SharedKey> {
    let path = match &key.path {
        Some(path) => path.clone(),
        None => home()?.join("key"),
    };
    let shown = path.display();
    let metadata = match fs::metadata(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => bail!(
            "no key at {shown}: run `longhaul keygen` on one side and copy its key file to the \
             other side"
        ),
        other => other.with_context(|| format!("cannot read the key {shown}"))?,
    };
    ensure!(
        metadata.mode() & OTHERS == 0,
        "the key {shown} is open to others (mode {:04o}): run `chmod 600 {shown}`, and make a new \
         key if somebody may have read it",
        metadata.mode() & 0o7777,
    );
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read the key {shown}"))?;
    text.parse().with_context(|| format!("{shown}"))
}

/// `longhaul keygen`.
pub fn keygen(options: &Keygen) -> anyhow::Result<()> {
    let home = home()?;
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&home)
        .with_context(|| format!("cannot make {}", home.display()))?;
    let path = home.join("key");
    let shown = path.display();
    ensure!(
        options.force || !path.exists(),
        "{shown} exists and other hosts may hold it: --force replaces it"
    );
    write_key(&path)?;
    say!(
        "Wrote a new key to {shown}.\n\
         Whoever holds it may read and write what you serve. Bring it to the other side over a \
         way you trust:\n\n  \
         ssh HOST 'umask 077; mkdir -p ~/.config/longhaul; cat > ~/.config/longhaul/key' < {shown}\n\n\
         Then: longhaul serve --root DIR (there), longhaul cp FILE lh://HOST/ (here)"
    );
    Ok(())
}

/// Writes a new key beside `path` and renames it, so that no reader sees half of one.
pub fn write_key(path: &Path) -> anyhow::Result<()> {
    let mut secret = [0; 32];
    getrandom::fill(&mut secret).context("the system gives no randomness")?;
    let fresh = path.with_extension(format!("new-{}", std::process::id()));
    let write = || {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&fresh)?;
        writeln!(file, "{}", SharedKey::from_bytes(secret))?;
        file.sync_all()?;
        fs::rename(&fresh, path)
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}
