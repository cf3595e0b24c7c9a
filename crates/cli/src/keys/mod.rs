//! Keys, as files and commands: this side's own identity, whom it lets in (`authorized`), which
//! hosts it knows (`known`), and how the two meet (`meeting`): by these, or by a key that both share.

mod authorized;
pub mod home;
mod known;
mod meeting;

use std::path::Path;

use anyhow::{Context, ensure};
use net::{Identity, PublicKey, SharedKey};

use crate::args::{KeyFile, Keygen};

pub use authorized::{Authorized, Grant};
pub use meeting::{Introduction, Meeting};

use known::Known;

/// What this side proves itself with.
pub enum Own {
    Shared(SharedKey),
    Identity(Identity),
}

/// Reads the shared key that the user named, or else this side's identity.
pub fn load(key: &KeyFile) -> anyhow::Result<Own> {
    match &key.path {
        Some(path) => {
            let missing = "run `longhaul keygen --shared FILE` and bring the file to both sides";
            let text = home::read_secret(path, missing)?;
            text.parse().map(Own::Shared).with_context(|| path.display().to_string())
        }
        None => identity().map(Own::Identity),
    }
}

fn identity() -> anyhow::Result<Identity> {
    let path = home::folder()?.join("identity");
    let missing = "run `longhaul keygen` first, on each side once";
    let text = home::read_secret(&path, missing)?;
    text.parse().with_context(|| path.display().to_string())
}

/// A key with the words that tell people whose it is: the line for `authorized_keys`.
fn line(key: PublicKey) -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let user = std::env::var("USER").or_else(|_| std::env::var("LOGNAME"));
    user.map_or_else(|_| format!("{key} {host}"), |user| format!("{key} {user}@{host}"))
}

/// What to tell the user of a server that does not let this side in.
fn how_to_be_let_in(identity: &Identity) -> String {
    format!(
        "add this line to ~/.config/longhaul/authorized_keys there: {}",
        line(identity.public())
    )
}

/// `longhaul keygen`.
pub fn keygen(options: &Keygen) -> anyhow::Result<()> {
    if let Some(path) = &options.shared {
        keep(path, options.force)?;
        write_shared(path)?;
        say!(
            "Wrote a new key to {}.\nWhoever holds it may read and write what you serve with it. \
             Bring it to the other side over a way you trust, and use --key there and here.",
            path.display()
        );
        return Ok(());
    }
    let path = home::make()?.join("identity");
    keep(&path, options.force)?;
    let identity = Identity::from_bytes(home::random()?);
    home::write(&path, &format!("{identity}\n"))?;
    say!(
        "Wrote a new identity to {}; it never leaves this host.\n\
         To let this side in, add this line to ~/.config/longhaul/authorized_keys of a server:\n\n  \
         {}\n\n\
         Then: longhaul serve --root DIR (there), longhaul cp --accept-new FILE lh://HOST/ (here)",
        path.display(),
        line(identity.public())
    );
    Ok(())
}

/// What others know does not vanish by mistake.
fn keep(path: &Path, force: bool) -> anyhow::Result<()> {
    let shown = path.display();
    ensure!(
        force || !path.exists(),
        "{shown} exists and other hosts may know it: --force replaces it"
    );
    Ok(())
}

/// Writes a new key for both sides.
pub fn write_shared(path: &Path) -> anyhow::Result<()> {
    home::write(path, &format!("{}\n", SharedKey::from_bytes(home::random()?)))
}

/// `longhaul fingerprint`.
pub fn fingerprint() -> anyhow::Result<()> {
    say!("{}", line(identity()?.public()));
    Ok(())
}
