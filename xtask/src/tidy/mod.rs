//! `cargo xtask tidy`: the rules of the house that no compiler checks.
//!
//! The length of functions is clippy's (`too_many_lines`, threshold in `clippy.toml`).

mod edges;
mod length;
mod map;
mod purity;
mod source;
mod unfinished;
mod workspace;

use std::fmt;

use anyhow::{Result, ensure};

use workspace::Workspace;

/// The page that leads a newcomer through the code.
const MAP: &str = "ARCHITECTURE.md";

/// Something that breaks a rule, and how to mend it.
#[derive(Debug)]
struct Violation {
    file: String,
    line: usize,
    message: String,
}

impl Violation {
    fn new(file: &str, line: usize, message: impl Into<String>) -> Self {
        Self { file: file.to_owned(), line, message: message.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.message)
    }
}

/// Checks the whole tree and prints everything to mend at once.
pub fn run() -> Result<()> {
    let workspace = Workspace::load()?;
    let sources = source::all()?;
    let mut found = edges::check(&workspace.packages);
    found.extend(map::check_file(MAP));
    found.extend(purity::check_roots(&workspace.packages, &sources));
    for source in &sources {
        found.extend(unfinished::check(source));
        found.extend(length::check(source));
        found.extend(purity::check(source));
    }
    found.iter().for_each(|violation| eprintln!("{violation}"));
    ensure!(found.is_empty(), "tidy: {} to mend, see above", found.len());
    println!("tidy: {} files in order", sources.len());
    Ok(())
}
