//! Puts this very program on the far side, over the user's own ssh.

use std::fs::File;
use std::process::Stdio;

use anyhow::{Context, anyhow};
use rustix::system::uname;

use super::{NO_LOGIN, command, in_shell, quoted, shell_path};
use crate::address::Login;
use crate::args::Ssh;

/// Where it is put, unless the user says.
const PLACE: &str = "~/.local/bin/longhaul";

/// By these codes the script there tells why it has put nothing.
const OTHER_KIND: i32 = 65;
const NOT_WRITTEN: i32 = 66;
const DOES_NOT_RUN: i32 = 67;

/// Copies this program to the far side, where it is run once before it takes the place of what may
/// stand there. Gives the options by which it is found.
pub async fn bootstrap(login: &Login, options: &Ssh) -> anyhow::Result<Ssh> {
    let place = options.remote_path.clone().unwrap_or_else(|| PLACE.to_owned());
    let program = File::open("/proc/self/exe").context("cannot read this program itself")?;
    let mut command = command(login, options, &script(&place));
    let status = command.stdin(Stdio::from(program)).stdout(Stdio::null()).status().await;
    let status = status.context("cannot start ssh")?;
    let host = &login.0;
    let system = this_kind();
    match status.code() {
        Some(0) => Ok(Ssh { remote_path: Some(place), ..options.clone() }),
        Some(OTHER_KIND) => Err(anyhow!(
            "{host} is another kind of machine than this one, {system}: build longhaul for it (its own \
             words stand above), and put that there"
        )),
        Some(NOT_WRITTEN) => Err(anyhow!("longhaul cannot be written to {place} on {host}")),
        Some(DOES_NOT_RUN) => Err(anyhow!(
            "this longhaul does not run on {host} (its words stand above), where the system's libraries \
             may be older: build it there, or one that needs none (cargo build --release --target \
             {}-unknown-linux-musl)",
            std::env::consts::ARCH
        )),
        Some(NO_LOGIN) => Err(anyhow!("ssh did not get into {host}: its own words stand above")),
        _ => Err(anyhow!("longhaul could not be put on {host}: ssh ended with {status}")),
    }
}

/// This host's system and processor, as `uname` says them there too.
fn this_kind() -> String {
    let name = uname();
    let [system, machine] = [name.sysname(), name.machine()].map(|word| word.to_string_lossy());
    format!("{system} {machine}")
}

/// What is run there; the program comes by standard input.
fn script(place: &str) -> String {
    let kind = quoted(&this_kind());
    let path = shell_path(place);
    in_shell(&format!(
        "kind=$(uname -sm); \
         [ \"$kind\" = {kind} ] || {{ echo \"this is $kind\" >&2; exit {OTHER_KIND}; }}; \
         path={path}; new=$path.$$; \
         [ ! -d \"$path\" ] || {{ echo \"$path is a directory\" >&2; exit {NOT_WRITTEN}; }}; \
         mkdir -p \"$(dirname \"$path\")\" || exit {NOT_WRITTEN}; \
         umask 077; set -C; \
         cat > \"$new\" && chmod 755 \"$new\" || {{ rm -f \"$new\"; exit {NOT_WRITTEN}; }}; \
         \"$new\" --version >/dev/null || {{ rm -f \"$new\"; exit {DOES_NOT_RUN}; }}; \
         mv -f \"$new\" \"$path\" || {{ rm -f \"$new\"; exit {NOT_WRITTEN}; }}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(script: &str, program: &str, home: &std::path::Path) -> Option<i32> {
        let given = home.join("given");
        std::fs::write(&given, program).unwrap();
        let mut sh = std::process::Command::new("sh");
        sh.args(["-c", script]).env("HOME", home).stdin(File::open(given).unwrap());
        sh.stderr(Stdio::null()).status().unwrap().code()
    }

    #[test]
    fn only_what_runs_takes_the_place_of_what_was_there() {
        let home = tempfile::tempdir().unwrap();
        let put = home.path().join("it's/here");
        let script = script("~/it's/here");
        let first = "#!/bin/sh\necho first\n";
        assert_eq!(run(&script, first, home.path()), Some(0));
        assert_eq!(run(&script, "#!/bin/sh\nexit 1\n", home.path()), Some(DOES_NOT_RUN));
        assert_eq!(std::fs::read_to_string(&put).unwrap(), first);
        assert_eq!(std::fs::read_dir(put.parent().unwrap()).unwrap().count(), 1);
        let other = script.replace(&this_kind(), "Other machine");
        assert_eq!(run(&other, first, home.path()), Some(OTHER_KIND));
        std::fs::write(home.path().join("file"), "").unwrap();
        let within = super::script("~/file/here");
        assert_eq!(run(&within, first, home.path()), Some(NOT_WRITTEN));
        let directory = super::script("~/it's");
        assert_eq!(run(&directory, first, home.path()), Some(NOT_WRITTEN));
        assert_eq!(std::fs::read_dir(put.parent().unwrap()).unwrap().count(), 1);
    }
}
