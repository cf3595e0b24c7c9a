//! `longhaul gateway`.

mod teller;

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context, ensure};
use gateway::install::{self, Left, Plan};
use gateway::{Config, Event, Outcome, Record, TrunkEvent};
use net::Credentials;
use serde_json::{Value, json};

use crate::args::{ConfigFile, Gateway, GatewayAction, KeyFile};
use crate::keys::{self, Own};
use crate::progress::emit;
use crate::signals::{self, Signals};
use teller::{News, Teller};

/// There while systemd runs (sd_booted(3)).
const SYSTEMD: &str = "/run/systemd/system";

/// Does what was asked.
pub fn run(options: Gateway) -> anyhow::Result<ExitCode> {
    match options.action {
        GatewayAction::Run { config, quiet, json } => {
            let tell = if json { emit_news } else { tell_news };
            serve(&read(&config)?, move |news, at| tell(&news, at, quiet))
        }
        GatewayAction::Status { json } => {
            let status = gateway::status()?;
            match json {
                true => say!("{}", serde_json::to_string(&status)?),
                false => say!("{}", status.to_string().trim_end()),
            }
            Ok(ExitCode::SUCCESS)
        }
        GatewayAction::Doctor { config, json } => doctor(&read(&config)?, json),
        GatewayAction::Install { config, dry_run } => install(&config, dry_run),
        GatewayAction::Uninstall { dry_run } => uninstall(dry_run),
        GatewayAction::Rules(config) => {
            say!("{}", gateway::ruleset(&read(&config)?).trim_end());
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// The settings; a key that they name stands beside them, wherever this was started.
fn read(file: &ConfigFile) -> anyhow::Result<Config> {
    let shown = file.path.display();
    let text = fs::read_to_string(&file.path).with_context(|| format!("cannot read {shown}"))?;
    let mut config: Config = text.parse().with_context(|| format!("{shown} cannot be used"))?;
    if let (Some(key), Some(folder)) = (&mut config.trunk.key, file.path.parent()) {
        *key = folder.join(&*key);
    }
    Ok(config)
}

/// Fails if anything is wrong.
fn doctor(config: &Config, json: bool) -> anyhow::Result<ExitCode> {
    let credentials = credentials(config)?;
    let runtime = tokio::runtime::Runtime::new().context("cannot start threads")?;
    let checks = runtime.block_on(gateway::examine(config, &credentials));
    for check in &checks {
        match json {
            true => say!("{}", serde_json::to_string(check)?),
            false => say!("{check}"),
        }
    }
    let faults = checks.iter().filter(|check| check.finding.is_fault()).count();
    if !json {
        say!("{faults} faults in {} checks", checks.len());
    }
    Ok(if faults == 0 { ExitCode::SUCCESS } else { ExitCode::from(crate::FAILED) })
}

fn install(file: &ConfigFile, dry_run: bool) -> anyhow::Result<ExitCode> {
    // Read as the service will read it, which knows nothing of this folder or of links to the file.
    let path = fs::canonicalize(&file.path)
        .with_context(|| format!("cannot read {}", file.path.display()))?;
    let config = read(&ConfigFile { path: path.clone() })?;
    // What would fail at the first start fails here.
    credentials(&config)?;
    let program = std::env::current_exe().context("cannot tell where this program is")?;
    let home = std::path::absolute(keys::home::folder()?)?;
    let plan = Plan::new(&config, &path, &program, &home);
    if dry_run {
        say!("{}", plan.to_string().trim_end());
        return Ok(ExitCode::SUCCESS);
    }
    ensure!(
        Path::new(SYSTEMD).exists(),
        "systemd does not run here: have `longhaul gateway run` started by what does, and make the \
         settings that `install --dry-run` shows"
    );
    plan.apply(Path::new("/"))?;
    systemctl(&["daemon-reload"])?;
    systemctl(&["enable", install::UNIT])?;
    // One that runs already has the settings of before.
    systemctl(&["restart", install::UNIT])?;
    say!("{} runs. `longhaul gateway status` shows it, `doctor` looks for faults.", install::UNIT);
    Ok(ExitCode::SUCCESS)
}

fn uninstall(dry_run: bool) -> anyhow::Result<ExitCode> {
    let root = Path::new("/");
    ensure!(install::is_installed(root), "no gateway is installed on this host");
    if dry_run {
        say!("stop {0}, remove it, and set the kernel as it was before `install`", install::UNIT);
        return Ok(ExitCode::SUCCESS);
    }
    // It may be stopped already, or systemd not run here.
    let stopped = systemctl(&["disable", "--now", install::UNIT]);
    let left = install::uninstall(root)?;
    stopped.and_then(|()| systemctl(&["daemon-reload"]))?;
    say!("This host is as it was before `longhaul gateway install`.");
    if left == Left::Running {
        say!(
            "A gateway that is no service seems to run (`longhaul gateway status`): its rules stay."
        );
    }
    Ok(ExitCode::SUCCESS)
}

fn systemctl(words: &[&str]) -> anyhow::Result<()> {
    let shown = words.join(" ");
    let status = Command::new("systemctl").args(words).status();
    let status = status.context("cannot run systemctl: is this a host with systemd?")?;
    ensure!(status.success(), "`systemctl {shown}` failed ({status})");
    Ok(())
}

fn serve(
    config: &Config,
    tell: impl Fn(News<Event>, Duration) + Send + 'static,
) -> anyhow::Result<ExitCode> {
    let credentials = credentials(config)?;
    let runtime = tokio::runtime::Runtime::new().context("cannot start threads")?;
    let (teller, rest) = Teller::new(tell);
    let code = runtime.block_on(async {
        let mut signals = Signals::catch()?;
        let mut caught = None;
        let stop = async { caught = Some(signals.next().await) };
        gateway::run(config, credentials, stop, move |event| teller.note(event)).await?;
        Ok(caught.map_or(ExitCode::SUCCESS, |signal| ExitCode::from(signals::code(signal))))
    });
    // With it go the tasks that hold the teller.
    drop(runtime);
    rest.wait();
    code
}

fn tell_news(news: &News<Event>, _: Duration, quiet: bool) {
    let event = match news {
        News::Happened(event) => event,
        News::Missed(count) => {
            return tell!("longhaul: {count} lines are missing: they were read too slowly");
        }
    };
    match event {
        Event::Trunk(TrunkEvent::Up(peer)) => say!("trunk: up, to {peer}"),
        Event::Trunk(TrunkEvent::Silent(peer)) => {
            tell!(
                "longhaul: trunk: {peer} is not heard; new connections go another way, or direct"
            );
        }
        Event::Trunk(TrunkEvent::Back(peer)) => say!("trunk: {peer} is heard again"),
        Event::Trunk(TrunkEvent::Down(peer, error)) => {
            tell!("longhaul: trunk: none to {peer}: {error}");
        }
        Event::Hidden(error) => {
            tell!("longhaul: `longhaul gateway status` will not be answered: {error}");
        }
        Event::Full(error) => {
            tell!(
                "longhaul: no file is left for another connection ({error}): new ones go direct; \
                 raise the limit (LimitNOFILE in the unit, `ulimit -n`)"
            );
        }
        Event::Overrun(passed) => {
            tell!(
                "longhaul: {passed} connections went direct: they came too fast for this gateway"
            );
        }
        Event::Near(_) | Event::Far(_) | Event::Rootless if quiet => {}
        Event::StandsBy(address) => say!("stands by: another gateway has {address}"),
        Event::Rootless => say!(
            "servers see this gateway's address, not the clients': it may not administer the network \
             (run it as root, or set deliver.from_client = false)"
        ),
        Event::Near(record) => say!("near: {record}"),
        Event::Far(record) => say!("far: {record}"),
    }
}

/// What happened, for programs: an object with `event`, and `time` in seconds since 1970.
fn emit_news(news: &News<Event>, at: Duration, _: bool) {
    let mut object = match news {
        News::Happened(event) => object(event),
        News::Missed(count) => json!({ "event": "missed", "count": count }),
    };
    object["time"] = at.as_secs_f64().into();
    emit(&object);
}

fn object(event: &Event) -> Value {
    let trunk = |state| json!({ "event": "trunk", "state": state });
    let peer = |state, peer: &SocketAddr| with(trunk(state), "peer", peer);
    match event {
        Event::Trunk(TrunkEvent::Up(address)) => peer("up", address),
        Event::Trunk(TrunkEvent::Silent(address)) => peer("silent", address),
        Event::Trunk(TrunkEvent::Back(address)) => peer("back", address),
        Event::Trunk(TrunkEvent::Down(address, error)) => with(peer("down", address), "why", error),
        Event::StandsBy(address) => {
            with(json!({ "event": "stands_by" }), "virtual_address", address)
        }
        Event::Rootless => json!({ "event": "rootless" }),
        Event::Hidden(error) => with(json!({ "event": "hidden" }), "why", error),
        Event::Full(error) => with(json!({ "event": "full" }), "why", error),
        Event::Overrun(passed) => json!({ "event": "overrun", "passed": passed }),
        Event::Near(record) => connection("near", record),
        Event::Far(record) => connection("far", record),
    }
}

fn with(mut object: Value, name: &str, what: &impl ToString) -> Value {
    object[name] = what.to_string().into();
    object
}

/// The record of a connection.
fn connection(side: &str, record: &Record) -> Value {
    let Record { client, server, outcome } = record;
    let mut object = json!({
        "event": "connection",
        "side": side,
        "client": client.to_string(),
        "server": server,
        "outcome": outcome.name(),
    });
    let Outcome::Carried(passed) = outcome else { return with(object, "why", outcome) };
    object["bytes_there"] = passed.bytes.0.into();
    object["bytes_back"] = passed.bytes.1.into();
    object["undelivered"] = passed.undelivered.into();
    object["seconds"] = passed.lasted.as_secs_f64().into();
    object
}

/// What the two gateways prove themselves with: a key that both share, or one of each's own.
fn credentials(config: &Config) -> anyhow::Result<Credentials> {
    let key = KeyFile { path: config.trunk.key.clone() };
    Ok(match keys::load(&key)? {
        Own::Shared(key) => key.into(),
        Own::Identity(identity) => config.trunk.credentials(identity),
    })
}
