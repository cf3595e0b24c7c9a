//! Man pages and completions, made from the table in `args`.

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Context;
use clap::{Command, CommandFactory};

use crate::args::{Cli, Completions, Man};

/// `longhaul completions`.
pub fn completions(options: &Completions) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(options.shell, &mut visible(&Cli::command()), "longhaul", &mut script);
    print(&script)
}

/// The command without what is hidden, which the generator would offer all the same.
fn visible(command: &Command) -> Command {
    let options = command.get_arguments().filter(|option| !option.is_hide_set()).cloned();
    let commands = command.get_subcommands().filter(|command| !command.is_hide_set());
    let mut shown = Command::new(command.get_name().to_owned())
        .args(options)
        .subcommands(commands.map(visible))
        .about(command.get_about().cloned().unwrap_or_default())
        .args_conflicts_with_subcommands(command.is_args_conflicts_with_subcommands_set());
    if let Some(version) = command.get_version() {
        shown = shown.version(version.to_owned());
    }
    shown
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
