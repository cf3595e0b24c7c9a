//! Runs are recorded as they end, so that a benchmark that broke off can go on: in a file that grows, each with what it
//! was measured of, for figures of other sources say nothing of these.

use std::fs::{self, File, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

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

/// The file, to write more to its end; made, and its folder, when there is none.
pub fn append_to(path: &Path) -> Result<File> {
    let shown = || path.display().to_string();
    let folder = path.parent().unwrap_or(path);
    fs::create_dir_all(folder).with_context(shown)?;
    OpenOptions::new().create(true).append(true).open(path).with_context(shown)
}
