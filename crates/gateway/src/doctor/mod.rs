//! What may be wrong with a gateway's host, each thing with how to mend it. `system` is what the
//! kernel and its programs say, `kernel` how it must be set, `paths` the ways of packets over its
//! `links`, `rules` those in force, `trunk` the other gateway and `trial` how much reaches it.

mod kernel;
mod links;
mod paths;
mod rules;
mod system;
mod trial;
mod trunk;

use std::fmt;

use net::Credentials;
use serde::Serialize;

use crate::config::Config;
use crate::rights;
use crate::sight::{self, AskError};

pub(crate) use kernel::{Setting, settings};
pub(crate) use system::dotted;

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// What it is.
    pub name: &'static str,
    /// How it is.
    pub finding: Finding,
}

/// How a thing is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Finding {
    /// As it should be.
    Fine(String),
    /// It should be otherwise.
    Fault {
        /// How it is.
        what: String,
        /// What to do.
        mend: String,
    },
    /// It could not be looked at.
    Unknown(String),
}

impl Finding {
    pub(crate) fn fault(what: impl Into<String>, mend: impl Into<String>) -> Self {
        Self::Fault { what: what.into(), mend: mend.into() }
    }

    /// Whether something is wrong.
    pub fn is_fault(&self) -> bool {
        matches!(self, Self::Fault { .. })
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name;
        match &self.finding {
            Finding::Fine(what) => write!(f, "fine     {name}: {what}"),
            Finding::Fault { what, mend } => write!(f, "FAULT    {name}: {what}\n         {mend}"),
            Finding::Unknown(what) => write!(f, "unknown  {name}: {what}"),
        }
    }
}

/// Looks at everything in the network namespace of the calling thread. A trunk is tried if no
/// gateway runs.
pub async fn examine(config: &Config, credentials: &Credentials) -> Vec<Check> {
    let status = sight::ask();
    let rootless = rights::rootless(config);
    let mut checks = Vec::new();
    if rootless.is_some() {
        checks.push(Check { name: "rights", finding: kernel::less_rights() });
    }
    let config = rootless.as_ref().unwrap_or(config);
    checks.extend(kernel::examine(config));
    checks.extend(paths::examine(config, status.as_ref().ok()));
    match &status {
        Err(AskError::RootOnly) => {
            let finding = Finding::Unknown("only root may look at a gateway's that runs".into());
            checks.push(Check { name: "rules", finding });
        }
        status => checks.extend(rules::examine(config, status.is_ok())),
    }
    checks.extend(trunk::examine(config, credentials, status).await);
    checks
}
