//! `longhaul gateway`.

use std::fs;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use gateway::{Config, Event, TrunkEvent};
use net::{Credentials, PublicKey};

use crate::args::{ConfigFile, Gateway, GatewayAction, KeyFile};
use crate::keys::{self, Own};
use crate::signals::{self, Signals};

/// Does what was asked.
pub fn run(options: Gateway) -> anyhow::Result<ExitCode> {
    match options.action {
        GatewayAction::Run { config, quiet } => serve(&read(&config)?, quiet),
        GatewayAction::Rules(config) => {
            say!("{}", gateway::ruleset(&read(&config)?).trim_end());
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn read(file: &ConfigFile) -> anyhow::Result<Config> {
    let shown = file.path.display();
    let text = fs::read_to_string(&file.path).with_context(|| format!("cannot read {shown}"))?;
    text.parse().with_context(|| format!("{shown} cannot be used"))
}

fn serve(config: &Config, quiet: bool) -> anyhow::Result<ExitCode> {
    let credentials = credentials(config)?;
    let runtime = tokio::runtime::Runtime::new().context("cannot start threads")?;
    runtime.block_on(async {
        let mut signals = Signals::catch()?;
        let mut caught = None;
        let stop = async { caught = Some(signals.next().await) };
        gateway::run(config, credentials, stop, move |event| tell(&event, quiet)).await?;
        Ok(caught.map_or(ExitCode::SUCCESS, |signal| ExitCode::from(signals::code(signal))))
    })
}

fn tell(event: &Event, quiet: bool) {
    match event {
        Event::Trunk(TrunkEvent::Up(peer)) => say!("trunk: up, to {peer}"),
        Event::Trunk(TrunkEvent::Silent) => {
            tell!("longhaul: trunk: nothing is heard; new connections go direct");
        }
        Event::Trunk(TrunkEvent::Back) => say!("trunk: back"),
        Event::Trunk(TrunkEvent::Down(error)) => tell!("longhaul: trunk: {error}"),
        Event::Near(_) | Event::Far(_) if quiet => {}
        Event::Near(record) => say!("near: {record}"),
        Event::Far(record) => say!("far: {record}"),
    }
}

/// What the two gateways prove themselves with: a key that both share, or one of each's own.
fn credentials(config: &Config) -> anyhow::Result<Credentials> {
    let key = KeyFile { path: config.trunk.key.clone() };
    let identity = match keys::load(&key)? {
        Own::Shared(key) => return Ok(key.into()),
        Own::Identity(identity) => identity,
    };
    let text = config.trunk.peer_key.as_deref().unwrap_or_default();
    let word = text.split_whitespace().next().unwrap_or_default();
    let peer: PublicKey = word
        .parse()
        .context("trunk.peer_key: write what `longhaul fingerprint` prints on the other gateway")?;
    Ok(match config.trunk.peer {
        Some(_) => Credentials::client(identity, peer),
        None => Credentials::server(identity, Arc::new(move |key| *key == peer)),
    })
}
