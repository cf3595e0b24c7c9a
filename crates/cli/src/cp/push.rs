//! A server's copy to another server, for a client.

use std::path::PathBuf;

use clap::Parser;
use net::{Identity, PublicKey};
use serde_json::{Value, json};
use tokio::sync::mpsc::Sender;
use transfer::wire::Terms;
use transfer::{Note, NoteKind};

use super::carry::{Done, Moved, farewell, move_to};
use super::link::Peer;
use super::plan::{Far, Request};
use super::show::{self, Verdict};
use super::{Job, is_given_up};
use crate::address::Server;
use crate::args::{Cli, Command, Sending};
use crate::keys::{Introduction, Own};
use crate::pacing::Pacers;
use crate::progress::Meter;
use crate::qlog::Qlog;
use crate::{FAILED, PARTIAL};

/// What there is to copy, and how.
pub struct Push {
    /// The client's root.
    pub root: PathBuf,
    /// Below it.
    pub sources: Vec<PathBuf>,
    /// The other server.
    pub server: Server,
    /// Its key.
    pub host: PublicKey,
    /// By which it lets this copy in.
    pub identity: Identity,
    pub destination: PathBuf,
    pub terms: Terms,
    /// As `--transport` has it.
    pub transport: String,
    pub compares: bool,
    /// How this server sends.
    pub sending: Sending,
    pub tcp_cc: Option<String>,
    pub no_remember: bool,
    /// What the client's streams keep to.
    pub pacers: Pacers,
}

/// Copies, and tells the client how it goes, unless that has `gone`. Gives what it did, for the server's own log.
pub async fn push(
    push: Push,
    client: Sender<Value>,
    gone: impl Future<Output = ()>,
) -> Option<String> {
    let start = net::clock::now();
    let verdict = match (push.compares, push.terms.rehearses) {
        (true, _) => Verdict::Compared,
        (_, true) => Verdict::DryRun,
        _ => Verdict::Done,
    };
    let meter = Meter::new(1);
    let pushed = match push.job(meter.clone(), client.clone()) {
        Ok((job, mut peer)) => carry(&job, &mut peer, gone).await.transpose()?,
        Err(error) => Err(error),
    };
    let (events, did) = match pushed {
        Ok(Moved { summary, figures, .. }) => {
            let end = summary.confirmed.unwrap_or_else(net::clock::now);
            let elapsed = end.since(start);
            let figures = figures.with_processors(elapsed);
            let did = show::closing(verdict, &summary, elapsed, &figures);
            let mut done = show::object(verdict, &summary, elapsed, &figures);
            done["exit_code"] = json!(show::code(verdict, &summary));
            let note = |note: &Note| {
                let would = note.kind == NoteKind::Would;
                json!({ "event": "note", "words": show::noted(note), "would": would })
            };
            (summary.notes.iter().map(note).chain([done]).collect(), did)
        }
        Err(error) => {
            let sample = meter.sample();
            let is_partial = is_given_up(&error) && sample.files > 0;
            let (code, did) = (if is_partial { PARTIAL } else { FAILED }, crate::sentence(&error));
            let event = json!({
                "event": "error", "message": did, "bytes": sample.done_bytes(), "exit_code": code,
            });
            (vec![event], did)
        }
    };
    for event in events {
        // Who is gone needs no word.
        let _ = client.send(event).await;
    }
    Some(did)
}

async fn carry(
    job: &Job,
    peer: &mut Peer,
    gone: impl Future<Output = ()>,
) -> anyhow::Result<Option<Moved>> {
    let (mut done, mut endpoint) = (Done::default(), None);
    let moved = tokio::select! {
        moved = move_to(job, &mut done, peer, &mut endpoint) => moved.map(Some),
        () = gone => Ok(None),
    };
    farewell(endpoint).await;
    Ok(moved?.map(|()| done.take()))
}

impl Push {
    fn job(self, meter: Meter, listener: Sender<Value>) -> anyhow::Result<(Job, Peer)> {
        let transport = format!("--transport={}", self.transport);
        let words = ["longhaul", "cp", &transport, "--json", ".", "."];
        let Command::Cp(cp) = Cli::try_parse_from(words)?.command else {
            anyhow::bail!("it is no copy")
        };
        let mut way = cp.way;
        way.sending = self.sending;
        way.striping.tcp_cc = self.tcp_cc;
        way.memory.no_remember = self.no_remember;
        let introduction = Introduction {
            own: Own::Identity(self.identity),
            server: self.server.clone(),
            transport: way.transport,
            accept_new: false,
            host: Some(self.host),
        };
        let Self { root, sources, destination, terms, .. } = self;
        let request = Request::Push { root, sources, destination };
        let asked = (Far::Server(self.server), vec![request]);
        let mut job = Job::new(asked, way, terms, None, meter, Qlog::to(None)?);
        (job.pacers, job.listener) = (self.pacers, Some(listener));
        Ok((job, Peer::Server(introduction)))
    }
}
