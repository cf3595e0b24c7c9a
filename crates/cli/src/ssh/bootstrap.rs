//! Puts this very program on the far side, or another build of it, over the user's own ssh.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, anyhow, ensure};

use super::{NO_LOGIN, command, in_shell, quoted, shell_path};
use crate::address::Login;
use crate::args::{OWN_PROGRAM, Ssh};

/// Where it is put, unless the user says.
const PLACE: &str = "~/.local/bin/longhaul";

/// By these codes the script there tells why it has put nothing.
const OTHER_KIND: i32 = 65;
const NOT_WRITTEN: i32 = 66;
const DOES_NOT_RUN: i32 = 67;

/// Copies a program to the far side, where it is run once before it takes the place of what may
/// stand there. Gives the options by which it is found.
pub async fn bootstrap(program: &Path, login: &Login, options: &Ssh) -> anyhow::Result<Ssh> {
    let place = options.remote_path.clone().unwrap_or_else(|| PLACE.to_owned());
    let is_own = program == Path::new(OWN_PROGRAM);
    let file = File::open(program).with_context(|| format!("cannot read {}", program.display()))?;
    let kind = match is_own {
        // As this host says it, be the processor in the table or not.
        true => this_kind(),
        false => kind(&file).with_context(|| program.display().to_string())?,
    };
    let mut command = command(login, options, &script(&place, &kind));
    let status = command.stdin(Stdio::from(file)).stdout(Stdio::null()).status().await;
    let status = status.context("cannot start ssh")?;
    let (host, arch) = (&login.0, std::env::consts::ARCH);
    match status.code() {
        Some(0) => Ok(Ssh { remote_path: Some(place), ..options.clone() }),
        Some(OTHER_KIND) => Err(anyhow!(
            "{host} is another kind of machine than this longhaul is for, {kind} (its own words stand above): \
             name one that was built for it, --bootstrap=FILE"
        )),
        Some(NOT_WRITTEN) => Err(anyhow!("longhaul cannot be written to {place} on {host}")),
        Some(DOES_NOT_RUN) if is_own => Err(anyhow!(
            "this longhaul does not run on {host} (its words stand above), where the system's libraries \
             may be older: name one that needs none, --bootstrap=FILE (one for {arch}-unknown-linux-musl: \
             README.md, \"Use it\", says how to build it)"
        )),
        Some(DOES_NOT_RUN) => {
            Err(anyhow!("{} does not run on {host}: its words stand above", program.display()))
        }
        Some(NO_LOGIN) => Err(anyhow!("ssh did not get into {host}: its own words stand above")),
        _ => Err(anyhow!("longhaul could not be put on {host}: ssh ended with {status}")),
    }
}

/// Numbers of processors in the head of a program, and what `uname -m` says on them.
const MACHINES: [(u16, &str); 7] = [
    (62, "x86_64"),
    (183, "aarch64"),
    (243, "riscv64"),
    (21, "ppc64le"),
    (40, "armv7l"),
    (3, "i686"),
    (258, "loongarch64"),
];

/// The system and processor of this host, as `uname -sm` says them.
fn this_kind() -> String {
    let uname = rustix::system::uname();
    format!("{} {}", uname.sysname().to_string_lossy(), uname.machine().to_string_lossy())
}

/// The system and processor for which a program is, as `uname -sm` says them. It is not run to find out: a shell
/// that cannot run it takes it for a script.
fn kind(program: &File) -> anyhow::Result<String> {
    let mut head = [0; 20];
    program.read_exact_at(&mut head, 0).context("it is no program")?;
    ensure!(head.starts_with(b"\x7fELF"), "it is no program for Linux");
    let number = u16::from_le_bytes([head[18], head[19]]);
    let machine = MACHINES.iter().find(|(known, _)| *known == number);
    let (_, name) =
        machine.with_context(|| format!("it is for a processor not known, {number}"))?;
    Ok(format!("Linux {name}"))
}

/// What is run there; the program comes by standard input.
fn script(place: &str, kind: &str) -> String {
    let kind = quoted(kind);
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
        let kind = this_kind();
        let script = script("~/it's/here", &kind);
        let first = "#!/bin/sh\necho first\n";
        assert_eq!(run(&script, first, home.path()), Some(0));
        assert_eq!(run(&script, "#!/bin/sh\nexit 1\n", home.path()), Some(DOES_NOT_RUN));
        assert_eq!(std::fs::read_to_string(&put).unwrap(), first);
        assert_eq!(std::fs::read_dir(put.parent().unwrap()).unwrap().count(), 1);
        let other = super::script("~/it's/here", "Other machine");
        assert_eq!(run(&other, first, home.path()), Some(OTHER_KIND));
        std::fs::write(home.path().join("file"), "").unwrap();
        let within = super::script("~/file/here", &kind);
        assert_eq!(run(&within, first, home.path()), Some(NOT_WRITTEN));
        let directory = super::script("~/it's", &kind);
        assert_eq!(run(&directory, first, home.path()), Some(NOT_WRITTEN));
        assert_eq!(std::fs::read_dir(put.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn a_program_tells_for_which_machine_it_is() {
        let home = tempfile::tempdir().unwrap();
        let named = |head: &[u8]| {
            let path = home.path().join("program");
            std::fs::write(&path, head).unwrap();
            kind(&File::open(path).unwrap())
        };
        for (number, name) in MACHINES {
            let mut head = [0; 64];
            head[..4].copy_from_slice(b"\x7fELF");
            head[18..20].copy_from_slice(&number.to_le_bytes());
            assert_eq!(named(&head).unwrap(), format!("Linux {name}"));
        }
        assert!(named(&[b"\x7fELF".as_slice(), &[0; 60]].concat()).is_err());
        assert!(named(b"#!/bin/sh").is_err() && named(&[b'x'; 64]).is_err());
        assert_eq!(kind(&File::open(OWN_PROGRAM).unwrap()).unwrap(), this_kind());
    }
}
