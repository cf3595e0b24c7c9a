//! `longhaul emulate`: commands on hosts joined by an emulated path.

mod commands;
mod control;
mod recordings;
mod report;
mod stats;

use std::process::ExitCode;

use anyhow::{Context, anyhow, bail};
use emulator::{Lab, LabError, LabOptions, Limits, MAX_MTU};
use path::{HostGroup, PRESETS, PathConfig, Scenario};

use crate::args::{Emulate, EmulateAction};
use crate::scenario::Source;
use crate::signals::Signals;
use commands::Surroundings;
use control::Control;
use recordings::Targets;

/// CMD succeeded, but the run shows the limits of this machine and not the path. As `git bisect
/// run` has it: nothing can be learned from this one.
const UNFAITHFUL: u8 = 125;

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
            let source = Source::find(name)?;
            let read = Scenario::read(&source.text, |file| source.load(file));
            let read = read.with_context(|| name.display().to_string())?;
            let Scenario { path, near, far, more_links, .. } = read;
            if more_links > 0 {
                bail!("{} has [[link]] tables, which only longhaul simulate knows", name.display());
            }
            (path, near, far)
        }
        None => (options.path.config(), or_one(&options.near_hosts), or_one(&options.far_hosts)),
    };
    let congestion_control = options.cc.clone();
    let mtu = options.mtu.unwrap_or_else(|| devices(&path));
    let hosts = LabOptions { congestion_control, mtu, near, far, ..LabOptions::default() };
    Ok((path, hosts))
}

/// The MTU of devices that fit the path, so that it carries here what it carries in the simulator. Of a path
/// for less than Ethernet's the hosts have to find that out.
fn devices(path: &PathConfig) -> u32 {
    let links = [&path.forward, &path.back];
    let least = links.into_iter().filter_map(|link| link.mtu).min();
    let usual = LabOptions::default().mtu;
    least.map_or(usual, |mtu| mtu.0.clamp(usual.into(), MAX_MTU.into()) as u32)
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
    use std::time::Duration;

    use super::*;

    #[test]
    fn devices_are_as_large_as_the_path_allows() {
        let of = |forward: u64, back: u64| {
            let mut path = PathConfig::new("1gbit".parse().unwrap(), Duration::ZERO);
            let mtu = |bytes: u64| (bytes > 0).then_some(units::Bytes(bytes));
            (path.forward.mtu, path.back.mtu) = (mtu(forward), mtu(back));
            devices(&path)
        };
        assert_eq!([of(0, 0), of(9000, 0), of(9000, 4000)], [1500, 9000, 4000]);
        assert_eq!([of(1400, 1400), of(1 << 20, 1 << 20)], [1500, MAX_MTU]);
    }
}
