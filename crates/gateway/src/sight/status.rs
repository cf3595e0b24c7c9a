//! What a gateway is doing, at a moment. Who asks may be of another version than the gateway that
//! answers: what is missing is as if there were none of it.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use units::Rate;

use super::Cause;

/// Connections that were not carried and of which people are told; all are in the JSON.
const TOLD: usize = 5;

/// The picture of a gateway.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Status {
    /// Seconds since it began.
    pub seconds: f64,
    /// The trunk.
    pub trunk: TrunkStatus,
    /// What became of connections, and what was carried.
    pub totals: Totals,
    /// Connections that are carried now.
    pub open: u64,
    /// The busiest of them.
    pub connections: Vec<Connection>,
    /// The last minutes, a sample a second, the oldest first.
    pub history: Vec<Sample>,
    /// The last connections that went past the gateways, came to nothing or were cut, the oldest
    /// first.
    pub missed: Vec<Missed>,
}

/// How the trunk stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrunkState {
    /// It carries connections.
    Up,
    /// Nothing is heard; new connections go direct.
    Silent,
    /// There is none.
    #[default]
    Down,
    /// What another version knows, and this one does not.
    #[serde(other)]
    Other,
}

/// The trunk at a moment, and since it was made.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TrunkStatus {
    /// How it stands.
    pub state: TrunkState,
    /// The other gateway's address, once it is known.
    pub peer: Option<String>,
    /// All that are heard: that one, and those that stand in for it.
    pub heard: Vec<String>,
    /// While it is not up: why, if that is known.
    pub cause: Option<Cause>,
    /// Datagrams sent since it was made, and those of them that were lost.
    pub sent: u64,
    /// See `sent`.
    pub lost: u64,
    /// Datagrams that the other gateway sent and that did not arrive.
    pub missing: u64,
    /// What holds this side's sending back now: `application` when there is nothing to send.
    pub limit: String,
    /// The last second.
    pub now: Sample,
}

/// A second of the trunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sample {
    /// When it ended: seconds since the gateway began.
    pub at: f64,
    /// Bits sent in it, with headers of the transport.
    pub sent: f64,
    /// Bits received.
    pub received: f64,
    /// The share of the datagrams sent that was lost.
    pub loss: f64,
    /// Round-trip time in milliseconds; 0 before it is known.
    pub rtt_ms: f64,
    /// How much of that are queues: what it is longer than the least of the last seconds.
    pub queue_ms: f64,
    /// Bits a second at which packets may go out.
    pub pace: f64,
    /// Connections that were carried.
    pub open: u64,
}

/// Which of its two hosts a gateway stands next to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// The client's.
    #[default]
    Near,
    /// The server's.
    Far,
}

/// What one direction of a connection waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Waits {
    /// Its sender has no more to send now.
    Sender,
    /// The trunk: its rate, this connection's share of it, or what is behind it.
    Trunk,
    /// Its receiver does not read.
    Receiver,
    /// It has ended; or what another version knows, and this one does not.
    #[default]
    #[serde(other)]
    Nothing,
}

/// A connection that was not carried to its end.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Missed {
    /// When that was: seconds since the gateway began.
    pub at: f64,
    /// Where this gateway stands.
    pub side: Side,
    /// Who wanted it.
    pub client: String,
    /// With whom.
    pub server: String,
    /// What the client is called, if that is known, and the server, if it was meant by its address.
    pub client_name: Option<String>,
    /// See `client_name`.
    pub server_name: Option<String>,
    /// What came of it, and why.
    pub why: String,
}

/// A connection that is carried.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Connection {
    /// Where this gateway stands.
    pub side: Side,
    /// Who made it.
    pub client: String,
    /// To whom.
    pub server: String,
    /// What the client is called, if that is known, and the server, if it was meant by its address.
    pub client_name: Option<String>,
    /// See `client_name`.
    pub server_name: Option<String>,
    /// Its age in seconds.
    pub seconds: f64,
    /// Bytes from the client to the server so far, and back.
    pub there: u64,
    /// See `there`.
    pub back: u64,
    /// Bytes that this gateway has sent of it over the trunk, those sent again counted once; with the
    /// few that the gateways themselves say.
    pub scheduled: u64,
    /// Bits a second from the client to the server in the last second, and back.
    pub rate_there: f64,
    /// See `rate_there`.
    pub rate_back: f64,
    /// What it waits for on the way from the client to the server now, and back.
    pub waits_there: Waits,
    /// See `waits_there`.
    pub waits_back: Waits,
}

/// What became of connections since the gateway began.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Totals {
    /// Carried to their end.
    pub carried: u64,
    /// Carried, and then reset.
    pub reset: u64,
    /// Refused by the far side, or not answered there.
    pub refused: u64,
    /// Lost with the trunk while the client waited.
    pub lost: u64,
    /// Went past the gateways because there was no trunk.
    pub bypassed_no_trunk: u64,
    /// Because as many were carried as may be.
    pub bypassed_no_room: u64,
    /// Because the far gateway could not connect, for reasons of its own.
    pub bypassed_by_far: u64,
    /// Because they came faster than they were looked at.
    pub bypassed_unseen: u64,
    /// Bytes from clients to servers, of connections that are carried now and of those that were.
    pub there: u64,
    /// And back.
    pub back: u64,
    /// Bytes that came here and are not known to have gone on when their connection was cut off.
    pub undelivered: u64,
}

impl Totals {
    /// All that went past the gateways, for whatever reason.
    pub fn bypassed(&self) -> u64 {
        let known = self.bypassed_no_trunk + self.bypassed_no_room + self.bypassed_by_far;
        known + self.bypassed_unseen
    }
}

impl fmt::Display for TrunkState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Up => "up",
            Self::Silent => "silent: new connections go direct",
            Self::Down => "down: new connections go direct",
            Self::Other => "in a state of another version",
        })
    }
}

impl fmt::Display for Waits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sender => "waits for the sender",
            Self::Trunk => "waits for the trunk",
            Self::Receiver => "waits for the receiver",
            Self::Nothing => "waits for nothing",
        })
    }
}

impl TrunkStatus {
    /// What there is to say of it beyond its state.
    fn write_details(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let now = &self.now;
        if let Some(Cause { what, mend }) = &self.cause {
            writeln!(f, "  {what}\n  {mend}")?;
        }
        if self.state != TrunkState::Down {
            writeln!(f, "  sends {}, receives {}", rate(now.sent), rate(now.received))?;
            writeln!(f, "  round trip {:.1} ms, queues {:.1} ms of it", now.rtt_ms, now.queue_ms)?;
            let share = self.lost as f64 * 100.0 / self.sent.max(1) as f64;
            writeln!(
                f,
                "  lost {:.2}% of the last second's packets, {share:.2}% of all; paced at {}, limited by {}",
                now.loss * 100.0,
                rate(now.pace),
                self.limit
            )?;
        }
        Ok(())
    }
}

/// A host with its name, if that is known.
fn named(host: &str, name: Option<&String>) -> String {
    name.map_or_else(|| host.to_owned(), |name| format!("{host} ({name})"))
}

fn rate(bits: f64) -> Rate {
    Rate::from_bits_per_sec(bits as u64)
}

/// For people.
impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (trunk, totals) = (&self.trunk, &self.totals);
        let whole = |seconds: f64| {
            let most = Duration::from_secs(u32::MAX.into());
            Duration::try_from_secs_f64(seconds).unwrap_or(most).as_secs()
        };
        let peer = trunk.peer.as_deref().map(|peer| format!(", to {peer}")).unwrap_or_default();
        writeln!(
            f,
            "trunk: {}{peer}; the gateway runs for {} s",
            trunk.state,
            whole(self.seconds)
        )?;
        trunk.write_details(f)?;
        let reset = totals.reset;
        writeln!(f, "carried: {} open, {} ended, {reset} reset", self.open, totals.carried)?;
        for (count, what) in [
            (totals.refused, "refused or not answered at the far side"),
            (totals.lost, "lost with the trunk before they were made"),
            (totals.bypassed_no_trunk, "went direct: there was no trunk"),
            (totals.bypassed_no_room, "went direct: there was no room"),
            (totals.bypassed_by_far, "went direct: the far gateway could not connect"),
            (totals.bypassed_unseen, "went direct: they came too fast for this gateway"),
        ] {
            if count > 0 {
                writeln!(f, "  {count} {what}")?;
            }
        }
        for it in &self.connections {
            writeln!(
                f,
                "  {} -> {}, {} s: {} there ({} bytes, {}), {} back ({} bytes, {})",
                named(&it.client, it.client_name.as_ref()),
                named(&it.server, it.server_name.as_ref()),
                whole(it.seconds),
                rate(it.rate_there),
                it.there,
                it.waits_there,
                rate(it.rate_back),
                it.back,
                it.waits_back
            )?;
        }
        let more = self.open - (self.connections.len() as u64).min(self.open);
        if more > 0 {
            writeln!(f, "  and {more} more")?;
        }
        let ago = |at: f64| whole(self.seconds - at);
        for it in self.missed.iter().rev().take(TOLD) {
            writeln!(
                f,
                "not carried: {} -> {}, {} s ago: {}",
                named(&it.client, it.client_name.as_ref()),
                named(&it.server, it.server_name.as_ref()),
                ago(it.at),
                it.why
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_version_says_is_read() {
        let connection = r#"{"side":"far","there":7,"waits_there":"rain","waits_back":"trunk"}"#;
        let text = format!(
            r#"{{"open":1,"trunk":{{"state":"asleep","sun":1}},"connections":[{connection}]}}"#
        );
        let status: Status = serde_json::from_str(&text).unwrap();
        let [connection] = &status.connections[..] else { panic!("{status:?}") };
        assert_eq!((status.open, status.trunk.state), (1, TrunkState::Other));
        assert_eq!((connection.side, connection.there), (Side::Far, 7));
        assert_eq!((connection.waits_there, connection.waits_back), (Waits::Nothing, Waits::Trunk));
        assert!(status.missed.is_empty() && status.to_string().contains("waits for nothing"));
    }
}
