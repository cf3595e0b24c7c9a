//! One record a connection: who, to whom, and what came of it.

use std::fmt;
use std::net::SocketAddr;

use crate::request::Refusal;
use crate::splice::Passed;

/// A connection that has ended, or was not made.
#[derive(Clone, Debug)]
pub struct Record {
    /// Who wanted it.
    pub client: SocketAddr,
    /// With whom.
    pub server: String,
    /// What came of it.
    pub outcome: Outcome,
}

/// What came of a connection.
#[derive(Clone, Copy, Debug)]
pub enum Outcome {
    /// It was carried over the trunk.
    Carried(Passed),
    /// It went past the gateways: there is no trunk, or no room on it.
    Bypassed,
    /// The far side did not make it.
    Refused(Refusal),
    /// The trunk was lost while the client waited.
    Lost,
}

impl Record {
    pub(crate) fn of((client, server): (SocketAddr, SocketAddr), outcome: Outcome) -> Self {
        Self { client, server: server.to_string(), outcome }
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {}: ", self.client, self.server)?;
        match self.outcome {
            Outcome::Carried(Passed { bytes: (up, down), whole }) => {
                let end = if whole { "" } else { ", reset" };
                write!(f, "{up} bytes there, {down} back{end}")
            }
            Outcome::Bypassed => write!(f, "direct, past the trunk"),
            Outcome::Refused(refusal) => write!(f, "{refusal}"),
            Outcome::Lost => write!(f, "the trunk was lost"),
        }
    }
}
