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
    /// It went past the gateways.
    Bypassed(Bypass),
    /// The far side did not make it.
    Refused(Refusal),
    /// The trunk was lost while the client waited.
    Lost,
}

/// Why a connection went past the gateways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bypass {
    /// There is no trunk, or nothing is heard over it.
    NoTrunk,
    /// As many connections are carried, or asked for by this client, as may be, or the trunk is crowded.
    NoRoom,
    /// The far gateway could not connect, for reasons of its own.
    Far,
}

impl fmt::Display for Bypass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoTrunk => "there is no trunk",
            Self::NoRoom => "there is no room for more",
            Self::Far => "the far gateway could not",
        })
    }
}

impl Outcome {
    /// What logs and metrics call it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Carried(Passed { whole: true, .. }) => "carried",
            Self::Carried(Passed { trunk_lost: true, .. }) => "trunk_lost",
            Self::Carried(_) => "reset",
            Self::Bypassed(Bypass::NoTrunk) => "bypassed_no_trunk",
            Self::Bypassed(Bypass::NoRoom) => "bypassed_no_room",
            Self::Bypassed(Bypass::Far) => "bypassed_by_far",
            Self::Refused(_) => "refused",
            Self::Lost => "lost",
        }
    }
}

impl Record {
    /// Whether it was carried to its end.
    pub(crate) fn is_whole(&self) -> bool {
        matches!(self.outcome, Outcome::Carried(Passed { whole: true, .. }))
    }

    pub(crate) fn of((client, server): (SocketAddr, SocketAddr), outcome: Outcome) -> Self {
        Self { client, server: server.to_string(), outcome }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Carried(Passed { bytes: (up, down), whole, trunk_lost, undelivered, .. }) => {
                write!(f, "{up} bytes there, {down} back")?;
                if whole {
                    return Ok(());
                }
                let why = if trunk_lost { "the trunk was lost" } else { "reset" };
                write!(f, ", {why} with {undelivered} not known to have arrived")
            }
            Self::Bypassed(why) => write!(f, "direct: {why}"),
            Self::Refused(refusal) => write!(f, "{refusal}"),
            Self::Lost => write!(f, "the trunk was lost"),
        }
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {}: {}", self.client, self.server, self.outcome)
    }
}
