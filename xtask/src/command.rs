//! Running other programs.

use std::process::Command;

use anyhow::{Context, Result, ensure};

/// The cargo that started this task, with its first arguments. What that told this task of its package is left out: a
/// build script that asks for such variables, as ring's does, would run again whenever one builds from here and then
/// from a shell, and all that needs it be built again.
pub fn cargo(args: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args);
    for (name, _) in std::env::vars_os() {
        let of_the_package = |start| name.as_encoded_bytes().starts_with(start);
        if [&b"CARGO_PKG_"[..], b"CARGO_MANIFEST_"].into_iter().any(of_the_package) {
            command.env_remove(&name);
        }
    }
    command
}

/// Runs a command in the foreground; anything but success is an error that names the command.
pub fn run(command: &mut Command) -> Result<()> {
    let shown = show(command);
    let status = command.status().with_context(|| format!("cannot start `{shown}`"))?;
    ensure!(status.success(), "`{shown}` ended with {status}");
    Ok(())
}

/// What a command wrote; anything but success is an error that holds what it said.
pub fn output(command: &mut Command) -> Result<String> {
    let shown = show(command);
    let output = command.output().with_context(|| format!("cannot start `{shown}`"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "`{shown}` ended with {}: {said}", output.status);
    Ok(String::from_utf8(output.stdout)?)
}

/// The command as one would type it.
fn show(command: &Command) -> String {
    let program = std::path::Path::new(command.get_program()).file_name().unwrap_or_default();
    let words = std::iter::once(program).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}
