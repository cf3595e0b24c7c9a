//! `longhaul emulate`: commands on two hosts joined by an emulated path.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, anyhow};
use emulator::{Host, Lab, LabError, LabOptions, LabReport, LaneReport};
use path::{DropCause, MAX_SCENARIO, PRESETS, Preset, Scenario};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::FAILED;
use crate::args::Emulate;
use crate::signals::{self, Group, Signals};

/// As shells say it: the command was not found, or may not be run.
const NOT_FOUND: u8 = 127;
const NOT_EXECUTABLE: u8 = 126;

/// The longest trace file that is read, in bytes: the most lines there may be, with room for
/// their digits.
const MAX_TRACE_FILE: u64 = 128 << 20;

/// `longhaul emulate`.
pub fn run(options: Emulate) -> anyhow::Result<ExitCode> {
    if options.list {
        return list();
    }
    let path = match &options.scenario {
        Some(name) => scenario(name)?.path,
        None => options.path.config(),
    };
    let lab = LabOptions { congestion_control: options.cc.clone(), ..LabOptions::default() };
    // Before any thread: only a process of one thread can enter a user namespace.
    let lab = emulator::init().and_then(|_| Lab::start(&path, &lab)).map_err(explain)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(async {
        let mut signals = Signals::catch()?;
        let far = options
            .far
            .as_ref()
            .map(|script| Group::spawn(shell(&lab, script), false))
            .transpose()
            .context("cannot start the far command")?;
        let code = match options.command.split_first() {
            Some((program, arguments)) => {
                let mut command = lab.command(Host::Near, program);
                command.args(arguments);
                run_near(&mut signals, with_addresses(command)).await
            }
            None => hold_open(&lab, &mut signals).await,
        };
        if let Some(far) = far {
            far.end(Signal::TERM).await?;
        }
        code
    });
    let report = lab.stop();
    if options.json {
        say!("{}", report_json(&report));
    } else {
        tell!("{report}");
    }
    result.map(ExitCode::from)
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
    let beside = |file: &str| {
        let path = name.parent().unwrap_or(Path::new("")).join(file);
        read(&path, MAX_TRACE_FILE).map_err(|error| format!("{}: {error}", path.display()))
    };
    Scenario::read(&source, beside).with_context(|| name.display().to_string())
}

/// The text of a file of at most this length.
fn read(path: &Path, most: u64) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(most + 1).read_to_string(&mut text)?;
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

fn shell(lab: &Lab, script: &str) -> Command {
    let mut command = lab.command(Host::Far, "sh");
    command.args(["-c", script]);
    // Its output must not mix with what CMD writes for another program.
    command.stdin(std::process::Stdio::null());
    if let Ok(stderr) = rustix::io::dup(std::io::stderr()) {
        command.stdout(stderr);
    }
    with_addresses(command)
}

/// The addresses, and both ends' names, for whatever runs in the lab.
fn with_addresses(mut command: Command) -> Command {
    for (host, name) in [(Host::Near, "LONGHAUL_NEAR"), (Host::Far, "LONGHAUL_FAR")] {
        command.env(name, host.address().to_string());
        command.env(format!("{name}6"), host.address6().to_string());
    }
    command
}

/// Runs a command to its end, or to ours.
async fn run_near(signals: &mut Signals, command: Command) -> anyhow::Result<u8> {
    let name = command.get_program().to_string_lossy().into_owned();
    let mut group = match Group::spawn(command, true) {
        Ok(group) => group,
        Err(error) => {
            tell!("longhaul: cannot run '{name}': {error}");
            return Ok(match error.kind() {
                ErrorKind::NotFound => NOT_FOUND,
                ErrorKind::PermissionDenied => NOT_EXECUTABLE,
                _ => FAILED,
            });
        }
    };
    let status = loop {
        tokio::select! {
            status = group.wait() => break status?,
            signal = signals.next() => match signal {
                // The terminal has told the command, which may be a shell and stay.
                Signal::INT if group.in_foreground() => {}
                _ => break group.end(signal).await?,
            },
        }
    };
    Ok(signals::exit_code(status))
}

/// Holds the lab open until a signal.
async fn hold_open(lab: &Lab, signals: &mut Signals) -> anyhow::Result<u8> {
    tell!("The lab is open; Ctrl-C ends it. From another shell:\n");
    for host in Host::BOTH {
        tell!(
            "  {host:<4}  {}  {}\n        {} CMD",
            host.address(),
            host.address6(),
            lab.shell_prefix(host)
        );
    }
    tell!();
    signals.next().await;
    Ok(0)
}

/// The report for programs: packets and bytes each way, lateness in microseconds.
fn report_json(report: &LabReport) -> Value {
    let lane = |lane: &LaneReport| {
        let dropped = |cause| lane.counters.dropped(cause).packets;
        let drops = DropCause::ALL.map(|cause| (cause.name().to_owned(), dropped(cause).into()));
        json!({
            "packets": lane.counters.offered.packets,
            "bytes": lane.counters.offered.bytes.0,
            "delivered_packets": lane.counters.delivered.packets,
            "delivered_bytes": lane.counters.delivered.bytes.0,
            "dropped": Value::Object(drops.into_iter().collect()),
            "marked": lane.counters.marked.packets,
            "outside_model": lane.outside.total() + dropped(DropCause::Overflow),
            "late_p50_us": lane.lateness.p50.as_micros() as u64,
            "late_p99_us": lane.lateness.p99.as_micros() as u64,
        })
    };
    json!({
        "event": "report",
        "seconds": report.elapsed.as_secs_f64(),
        "cpu_seconds": report.cpu.as_secs_f64(),
        "near_to_far": lane(&report.forward),
        "far_to_near": lane(&report.back),
    })
}
