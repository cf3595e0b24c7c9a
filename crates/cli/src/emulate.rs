//! `longhaul emulate`: commands on two hosts joined by an emulated path.

use std::io::ErrorKind;
use std::process::{Command, ExitCode};

use anyhow::{Context, anyhow};
use emulator::{Host, Lab, LabError, LabOptions, LabReport, LaneReport};
use path::DropCause;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::FAILED;
use crate::args::Emulate;
use crate::signals::{self, Group, Signals};

/// As shells say it: the command was not found, or may not be run.
const NOT_FOUND: u8 = 127;
const NOT_EXECUTABLE: u8 = 126;

/// `longhaul emulate`.
pub fn run(options: Emulate) -> anyhow::Result<ExitCode> {
    // Before any thread: only a process of one thread can enter a user namespace.
    let lab = emulator::init().and_then(|_| start(&options)).map_err(explain)?;
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
        println!("{}", report_json(&report));
    } else {
        eprintln!("{report}");
    }
    result.map(ExitCode::from)
}

fn start(options: &Emulate) -> Result<Lab, LabError> {
    let lab = LabOptions { congestion_control: options.cc.clone(), ..LabOptions::default() };
    Lab::start(&options.path.config(), &lab)
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
            eprintln!("longhaul: cannot run '{name}': {error}");
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
    eprintln!("The lab is open; Ctrl-C ends it. From another shell:\n");
    for host in Host::BOTH {
        eprintln!(
            "  {host:<4}  {}  {}\n        {} CMD",
            host.address(),
            host.address6(),
            lab.shell_prefix(host)
        );
    }
    eprintln!();
    signals.next().await;
    Ok(0)
}

/// The report for programs: packets and bytes each way, lateness in microseconds.
fn report_json(report: &LabReport) -> Value {
    let lane = |lane: &LaneReport| {
        let dropped = |cause| lane.counters.dropped(cause).packets;
        json!({
            "packets": lane.counters.offered.packets,
            "bytes": lane.counters.offered.bytes.0,
            "delivered_packets": lane.counters.delivered.packets,
            "delivered_bytes": lane.counters.delivered.bytes.0,
            "queue_drops": dropped(DropCause::Queue),
            "lost": dropped(DropCause::Loss),
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
