//! `longhaul emulate`: commands on hosts joined by an emulated path.

mod commands;
mod control;
mod recordings;
mod report;
mod stats;

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, anyhow};
use emulator::{Lab, LabError, LabOptions, Limits};
use path::{HostGroup, MAX_SCENARIO, PRESETS, PathConfig, Preset, Scenario};
use rustix::fs::OFlags;

use crate::args::{Emulate, EmulateAction};
use crate::signals::Signals;
use commands::Surroundings;
use control::Control;
use recordings::Targets;

/// CMD succeeded, but the run shows the limits of this machine and not the path. As `git bisect
/// run` has it: nothing can be learned from this one.
const UNFAITHFUL: u8 = 125;

/// The longest trace file that is read, in bytes: the most lines there may be, with room for
/// their digits.
const MAX_TRACE_FILE: u64 = 128 << 20;

/// `longhaul emulate`.
pub fn run(options: &Emulate) -> anyhow::Result<ExitCode> {
    match &options.action {
        Some(EmulateAction::Set(action)) => return control::set(action),
        None if options.list => return list(),
        None => {}
    }
    let (path, hosts) = set_up(options)?;
    let count = |groups| Scenario::hosts(groups).count() as u64;
    commands::check(options, count(&hosts.near), count(&hosts.far))?;
    let targets = Targets::open(&options.recordings)?;
    let control = control(options)?;
    // Before any thread: only a process of one thread can enter a user namespace.
    let lab = emulator::init().and_then(|_| Lab::start(&path, &hosts)).map_err(explain)?;
    let recordings = targets.start(&lab)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(async {
        let mut signals = Signals::catch()?;
        let around = Surroundings { lab: &lab, control: control.as_ref().map(|c| &*c.path) };
        tokio::select! {
            code = around.run(options, &mut signals) => code,
            Err(error) = serve(control.as_ref(), &lab) => Err(error),
            () = show(options, &lab) => unreachable!("it has no end"),
        }
    });
    let limits = limits(options, lab.limits());
    let report = lab.stop();
    let verdict = report.verdict(&limits);
    if options.json {
        say!("{}", report::json(&report, &verdict));
    } else {
        tell!("{report}\n{verdict}");
    }
    recordings.finish()?;
    let failed = !verdict.is_faithful() && !options.limits.no_verdict;
    result.map(|code| ExitCode::from(if code == 0 && failed { UNFAITHFUL } else { code }))
}

/// The path and the hosts that the options ask for.
fn set_up(options: &Emulate) -> anyhow::Result<(PathConfig, LabOptions)> {
    let or_one = |groups: &Vec<HostGroup>| match &groups[..] {
        [] => vec![HostGroup { count: options.hosts.unwrap_or(1), ..HostGroup::default() }],
        groups => groups.to_vec(),
    };
    let (path, near, far) = match &options.scenario {
        Some(name) => {
            let Scenario { path, near, far, .. } = scenario(name)?;
            (path, near, far)
        }
        None => (options.path.config(), or_one(&options.near_hosts), or_one(&options.far_hosts)),
    };
    let congestion_control = options.cc.clone();
    let hosts =
        LabOptions { congestion_control, mtu: options.mtu, near, far, ..LabOptions::default() };
    Ok((path, hosts))
}

/// The control socket. Nobody has asked for it who has given no name.
fn control(options: &Emulate) -> anyhow::Result<Option<Control>> {
    match &options.name {
        Some(name) => Control::bind(name).map(Some),
        None => Ok(Control::bind(&std::process::id().to_string())
            .inspect_err(|error| tell!("longhaul: no control while it runs: {error:#}"))
            .ok()),
    }
}

/// Answers `longhaul emulate set`, without end.
async fn serve(control: Option<&Control>, lab: &Lab) -> anyhow::Result<()> {
    match control {
        Some(control) => control.serve(lab).await,
        None => std::future::pending().await,
    }
}

/// Shows statistics, if wanted, without end.
async fn show(options: &Emulate, lab: &Lab) {
    if let Some(period) = options.stats {
        stats::show(lab, period, options.json).await;
    }
    std::future::pending().await
}

/// How exact the run must have been.
fn limits(options: &Emulate, usual: Limits) -> Limits {
    Limits {
        late_p99: options.limits.max_late.unwrap_or(usual.late_p99),
        stall: options.limits.max_stall.unwrap_or(usual.stall),
        outside: options.limits.max_outside.unwrap_or(usual.outside),
    }
}

/// Shows the scenarios that come with the program.
fn list() -> anyhow::Result<ExitCode> {
    let width = PRESETS.iter().map(|preset| preset.name.len()).max().unwrap_or_default();
    for preset in PRESETS {
        say!("{:width$}  {}", preset.name, preset.scenario()?.about);
    }
    Ok(ExitCode::SUCCESS)
}

/// The scenario of this name, else the one in this file.
fn scenario(name: &Path) -> anyhow::Result<Scenario> {
    if let Some(preset) = name.to_str().and_then(Preset::find) {
        return Ok(preset.scenario()?);
    }
    let source = read(name, MAX_SCENARIO as u64).with_context(|| {
        format!("no scenario is called {0}, and no file {0} can be read", name.display())
    })?;
    // Files that it names stand beside it.
    let folder = name.parent().unwrap_or(Path::new(""));
    Scenario::read(&source, |file| read_trace(folder, file))
        .with_context(|| name.display().to_string())
}

/// The text of a trace that is named from this folder. A lab reads it while it runs, so it never
/// waits for a writer, as a FIFO does.
fn read_trace(folder: &Path, file: &str) -> Result<String, String> {
    let path = folder.join(file);
    let open = || {
        let no_wait = OFlags::NONBLOCK.bits().cast_signed();
        let file = OpenOptions::new().read(true).custom_flags(no_wait).open(&path)?;
        let regular = file.metadata()?.is_file();
        regular.then_some(file).ok_or_else(|| io::Error::other("it is not a regular file"))
    };
    let text = open().and_then(|file| text(file, MAX_TRACE_FILE));
    text.map_err(|error| format!("{}: {error}", path.display()))
}

/// The text of a file of at most this length.
fn read(path: &Path, most: u64) -> io::Result<String> {
    text(File::open(path)?, most)
}

fn text(file: File, most: u64) -> io::Result<String> {
    let mut text = String::new();
    file.take(most + 1).read_to_string(&mut text)?;
    if text.len() as u64 > most {
        return Err(io::Error::other(format!("it is longer than {most} bytes")));
    }
    Ok(text)
}

/// Says what is missing and what to do about it.
fn explain(error: LabError) -> anyhow::Error {
    if error.is_not_permitted() {
        anyhow!(
            "{error}.\nTo allow it to ordinary users: sysctl -w kernel.unprivileged_userns_clone=1 \
             (Debian), sysctl -w kernel.apparmor_restrict_unprivileged_userns=0 (Ubuntu); in a \
             container: --cap-add SYS_ADMIN --cap-add NET_ADMIN --device /dev/net/tun.\n\
             `longhaul demo` shows the UDP transport without any of this"
        )
    } else {
        error.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lab_waits_for_no_trace() {
        let folder = tempfile::tempdir().unwrap();
        let fifo = folder.path().join("fifo");
        let made = std::process::Command::new("mkfifo").arg(&fifo).status().unwrap();
        assert!(made.success());
        std::fs::write(folder.path().join("trace"), "0 1").unwrap();
        assert_eq!(read_trace(folder.path(), "trace"), Ok("0 1".to_owned()));
        for name in ["fifo", "/dev/zero", "."] {
            let error = read_trace(folder.path(), name).unwrap_err();
            assert!(error.contains("not a regular file"), "{error}");
        }
    }
}
