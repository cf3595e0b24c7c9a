//! What can be set.

use core::str::FromStr;
use core::time::Duration;

use units::{Bytes, Instant};

use super::segment::{Kind, Segment};

/// How a sender repairs losses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Recovery {
    /// Paper 1's old TCP: a loss is seen by the time-out alone, then everything behind it is sent
    /// again in slow start, and the receiver keeps nothing that is out of order.
    GoBackN,
    /// The same at the third duplicate acknowledgement (4.3BSD-Tahoe).
    Tahoe,
    /// Fast retransmit and fast recovery, which the first new acknowledgement ends (RFC 5681).
    Reno,
    /// Partial acknowledgements repair one hole a round trip (RFC 6582).
    NewReno,
    /// Holes are known from selective acknowledgements (RFC 2018, RFC 6675).
    Sack,
    /// And what was sent again and is lost again, from what arrived that was sent after it (RFC 8985): else only a
    /// time-out repairs it.
    #[default]
    Rack,
}

impl Recovery {
    /// Whether acknowledgements are selective.
    pub(super) const fn is_selective(self) -> bool {
        matches!(self, Self::Sack | Self::Rack)
    }
}

/// What a sender halves when it sees a loss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Flight {
    /// All that was sent and is not acknowledged cumulatively: `FlightSize` of RFC 5681, and of RFC 6675
    /// (section 5, step 4.2).
    #[default]
    Unacknowledged,
    /// What is thought to be still under way: the `pipe` of RFC 6675, as in ns-3. Without selective
    /// acknowledgements there is no telling, and all that is not acknowledged counts.
    Pipe,
}

/// How a sender finds its rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Congestion {
    /// Slow start and additive increase, multiplicative decrease (RFC 5681).
    Reno,
    /// RFC 9438 as Linux has it: in a hurry until the first loss, and its section 4.3 without the last
    /// step, which raises α to 1.
    #[default]
    Cubic,
}

/// Settings of one connection, of both its ends. Defaults are those of today's hosts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Config {
    /// How losses are repaired.
    pub recovery: Recovery,
    /// How the rate is found.
    pub congestion: Congestion,
    /// What is halved at a loss by Reno's law; CUBIC's reduces its window.
    pub flight: Flight,
    /// Payload of a full segment.
    pub mss: Bytes,
    /// What the receiver's socket holds, and so the window it advertises.
    pub window: Bytes,
    /// What the sender's socket holds, and so the most in flight.
    pub send_buffer: Bytes,
    /// Whether windows beyond 65,535 bytes can be told (RFC 7323).
    pub scaling: bool,
    /// Every segment carries a timestamp, 12 bytes, and every acknowledgement gives a round-trip
    /// time (RFC 7323); else one segment a window is timed.
    pub timestamps: bool,
    /// How long an acknowledgement may wait for a second segment; `None`: each is acknowledged.
    pub delayed_ack: Option<Duration>,
    /// A small segment waits until everything before it is acknowledged (RFC 1122, 4.2.3.4), unless it is the
    /// last of all.
    pub nagle: bool,
    /// The window grows by the bytes that an acknowledgement covers, however many (Linux), but in the slow
    /// start behind a time-out by those that are news: what was not acknowledged selectively before, or a
    /// segment where nothing is (RFC 3465, section 2.3). Else it grows by acknowledgements, of which a
    /// delayed one covers two segments.
    pub byte_counting: bool,
    /// CUBIC leaves slow start before it loses, when the round-trip time grows or acknowledgements come
    /// for half of one without a pause (S. Ha and I. Rhee, "Taming the elephants: New TCP slow start",
    /// Computer Networks 55(9), 2011; on by default in Linux). Without timestamps too few round-trip
    /// times are measured for the first.
    pub hystart: bool,
    /// The first window, in segments (RFC 6928: 10).
    pub initial_window: u32,
    /// Where slow start ends at first; `None`: at the first loss.
    pub initial_ssthresh: Option<Bytes>,
    /// The least retransmission time-out.
    pub min_rto: MinRto,
}

/// What a retransmission time-out comes to at least, while nothing has struck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MinRto {
    /// So much in all: 1 s in RFC 6298 (section 2.4).
    Whole(Duration),
    /// So much more than the smoothed round-trip time: 200 ms in Linux.
    Beyond(Duration),
}

impl Default for Config {
    fn default() -> Self {
        Self {
            recovery: Recovery::default(),
            congestion: Congestion::default(),
            flight: Flight::default(),
            mss: Bytes(1448),
            window: Bytes::mib(256),
            send_buffer: Bytes::mib(256),
            scaling: true,
            timestamps: true,
            delayed_ack: Some(Duration::from_millis(40)),
            nagle: true,
            byte_counting: true,
            hystart: true,
            initial_window: 10,
            initial_ssthresh: None,
            min_rto: MinRto::Beyond(Duration::from_millis(200)),
        }
    }
}

impl Config {
    /// A host of the time of RFC 2581: AIMD by acknowledgements, no timestamps, no scaling, a first window
    /// of one segment, `mss` and `window` in bytes.
    pub fn classic(recovery: Recovery, mss: u64, window: u64) -> Self {
        Self {
            recovery,
            congestion: Congestion::Reno,
            mss: Bytes(mss),
            window: Bytes(window),
            scaling: false,
            timestamps: false,
            delayed_ack: None,
            byte_counting: false,
            hystart: false,
            initial_window: 1,
            min_rto: MinRto::Whole(Duration::from_secs(1)),
            ..Self::default()
        }
    }

    /// Size of a full segment as an IP packet.
    pub(crate) fn full_size(&self) -> Bytes {
        let kind = Kind::Data { seq: 0, len: self.mss.0 };
        Segment { kind, stamp: Instant::ZERO, timestamps: self.timestamps }.size()
    }

    /// What the receiver advertises.
    pub(super) fn advertised(&self) -> u64 {
        let most = if self.scaling { u64::MAX } else { 65_535 };
        self.window.0.min(most)
    }
}

/// No such name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is none of {1}")]
pub struct UnknownName(String, &'static str);

impl FromStr for Recovery {
    type Err = UnknownName;
    fn from_str(text: &str) -> Result<Self, UnknownName> {
        Ok(match text {
            "go-back-n" => Self::GoBackN,
            "tahoe" => Self::Tahoe,
            "reno" => Self::Reno,
            "newreno" => Self::NewReno,
            "sack" => Self::Sack,
            "rack" => Self::Rack,
            _ => {
                let known = "go-back-n, tahoe, reno, newreno, sack, rack";
                return Err(UnknownName(text.into(), known));
            }
        })
    }
}

impl FromStr for Flight {
    type Err = UnknownName;
    fn from_str(text: &str) -> Result<Self, UnknownName> {
        match text {
            "unacknowledged" => Ok(Self::Unacknowledged),
            "pipe" => Ok(Self::Pipe),
            _ => Err(UnknownName(text.into(), "unacknowledged, pipe")),
        }
    }
}

impl FromStr for Congestion {
    type Err = UnknownName;
    fn from_str(text: &str) -> Result<Self, UnknownName> {
        match text {
            "reno" => Ok(Self::Reno),
            "cubic" => Ok(Self::Cubic),
            _ => Err(UnknownName(text.into(), "reno, cubic")),
        }
    }
}
