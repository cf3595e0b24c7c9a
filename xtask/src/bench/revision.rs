//! What was measured: figures of other sources say nothing of these.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::process::Command;

use anyhow::Result;

use crate::command;

/// Of the product's sources as they are, changes that are not committed included.
pub fn revision() -> Result<String> {
    const SOURCES: [&str; 2] = [":/crates", ":/Cargo.lock"];
    let git = |args: &[&str]| command::output(Command::new("git").args(args));
    let committed = git(&["rev-parse", "HEAD:crates", "HEAD:Cargo.lock"])?;
    let changes = git(&[&["diff", "HEAD", "--"], &SOURCES[..]].concat())?;
    let mut hasher = DefaultHasher::new();
    (committed, changes).hash(&mut hasher);
    Ok(format!("{:016x}", hasher.finish()))
}
