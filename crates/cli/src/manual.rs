//! Man pages and completions, made from the table in `args`.

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Context;
use clap::CommandFactory;

use crate::args::{Cli, Completions, Man};

/// `longhaul completions`.
pub fn completions(options: &Completions) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(options.shell, &mut Cli::command(), "longhaul", &mut script);
    print(&script)
}

/// `longhaul man`.
pub fn man(options: &Man) -> anyhow::Result<ExitCode> {
    if let Some(directory) = &options.directory {
        std::fs::create_dir_all(directory)
            .and_then(|()| clap_mangen::generate_to(Cli::command(), directory))
            .with_context(|| format!("cannot write pages to {}", directory.display()))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut page = Vec::new();
    clap_mangen::Man::new(Cli::command()).render(&mut page)?;
    print(&page)
}

/// A reader that has seen enough, as `head`, is no failure.
fn print(text: &[u8]) -> anyhow::Result<ExitCode> {
    match io::stdout().write_all(text) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(ExitCode::SUCCESS),
    }
}
