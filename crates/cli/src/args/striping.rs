//! The flags of striped TCP.

use std::str::FromStr;
use std::time::Duration;

use clap::{Args, ValueEnum};
use net::NetError;
use net::tcp::{self, MAX_STREAMS, Policy, RttSource, System};
use units::Rate;

use super::some_rate;

/// How this side stripes over TCP.
#[derive(Args, Clone)]
pub struct Striping {
    /// TCP connections to stripe over: a number, auto, equation or rtt-bounded
    ///
    /// "auto" adds connections while they bring more, and takes some away when the queue of the path
    /// grows. "equation" opens as many as --target-rate needs by their windows and the round-trip
    /// time. "rtt-bounded" adds one while the round-trip time is low and halves the count when it is
    /// high; the bounds follow from the least round-trip time, or are given, as in
    /// "rtt-bounded:700ms,1.1s".
    #[arg(long, value_name = "N", default_value = "auto")]
    pub streams: Streams,
    /// Never more TCP connections than this, whatever --streams asks for
    #[arg(long, value_name = "N", default_value_t = MAX_STREAMS as u16,
          value_parser = clap::value_parser!(u16).range(1..=MAX_STREAMS as i64))]
    pub streams_max: u16,
    /// The rate that "--streams equation" is to reach, and not to exceed for more than a few seconds, as in 100mbit [default:
    /// what UDP was found to reach to this host]
    #[arg(long, value_name = "RATE", value_parser = some_rate)]
    pub target_rate: Option<Rate>,
    /// Where --streams has the round-trip time from: tcp, icmp or udp
    ///
    /// "tcp" asks the sender's kernel about the connections. With "icmp" and "udp" this side asks the
    /// host for echoes, ten a round trip at most; where the host sends, it is told what they show. By UDP
    /// only our servers answer.
    #[arg(
        long,
        value_enum,
        value_name = "SOURCE",
        hide_possible_values = true,
        default_value = "tcp"
    )]
    pub rtt_from: RttFrom,
    /// The kernel's congestion control for what this side sends by TCP, as in "cubic" [default: bbr
    /// where the kernel has it]
    #[arg(long, value_name = "NAME")]
    pub tcp_cc: Option<String>,
}

const NO_TARGET: &str = "--streams equation needs a rate to reach: say --target-rate, or copy \
                         something there by UDP first, which is remembered";

/// What `--rtt-from` says.
#[derive(Clone, Copy, ValueEnum)]
pub enum RttFrom {
    Tcp,
    Icmp,
    Udp,
}

/// What `--streams` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Streams {
    Auto,
    Fixed(u16),
    Equation,
    RttBounded(Duration, Duration),
}

impl FromStr for Streams {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match Policy::read(text, path::parse_time) {
            _ if text == "equation" => Ok(Self::Equation),
            Ok(Policy::Equation { .. }) => {
                Err("write equation alone, and the rate as --target-rate".to_owned())
            }
            Ok(Policy::Auto { .. }) => Ok(Self::Auto),
            Ok(Policy::Fixed(count)) => Ok(Self::Fixed(count)),
            Ok(Policy::RttBounded { alpha, beta }) => Ok(Self::RttBounded(alpha, beta)),
            Err(why) => Err(why),
        }
    }
}

/// What is remembered of the way to a host.
#[derive(Clone, Copy, Debug, Default)]
pub struct Known {
    /// How many connections `auto` came to.
    pub streams: Option<u16>,
    /// What UDP reached.
    pub rate: Option<Rate>,
    /// What `equation` learnt.
    pub system: Option<System>,
}

/// What `--streams` says, to be handed on.
pub fn checked(text: &str) -> Result<String, String> {
    text.parse::<Streams>().map(|_| text.to_owned())
}

impl Striping {
    /// Whether the count that comes out is worth remembering.
    pub fn learns(&self) -> bool {
        self.streams == Streams::Auto
    }

    /// What `net` is to be told about a host of which this is known.
    pub fn settings(&self, known: Known) -> Result<(Policy, tcp::Options), NetError> {
        let policy = match self.streams {
            Streams::Auto => Policy::Auto { first: known.streams.unwrap_or_default() },
            Streams::Fixed(count) => Policy::Fixed(count),
            Streams::Equation => {
                let reason = || NetError::Option { reason: NO_TARGET.to_owned() };
                let some = |rate: &Rate| rate.as_bits_per_sec() > 0;
                let target = self.target_rate.or(known.rate).filter(some).ok_or_else(reason)?;
                let first = known.system.map_or(0, |system| system.connections(target));
                let first = first.min(self.streams_max.into()) as u16;
                Policy::Equation { target, first, k: known.system.map_or(0, |system| system.k) }
            }
            Streams::RttBounded(alpha, beta) => Policy::RttBounded { alpha, beta },
        };
        let (congestion_control, most) = (self.tcp_cc.clone(), self.streams_max.into());
        let rtt = match self.rtt_from {
            RttFrom::Tcp => RttSource::Tcp,
            RttFrom::Icmp => RttSource::Icmp,
            RttFrom::Udp => RttSource::Udp,
        };
        Ok((policy, tcp::Options { congestion_control, rtt, most, ..tcp::Options::default() }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read() {
        let bounds = Streams::RttBounded(Duration::from_millis(700), Duration::from_millis(1100));
        assert_eq!("rtt-bounded:700ms,1.1s".parse(), Ok(bounds));
        assert_eq!(("auto".parse(), "9".parse()), (Ok(Streams::Auto), Ok(Streams::Fixed(9))));
        for bad in ["0", "513", "many", "equation:5mbit", "rtt-bounded:1s"] {
            assert!(bad.parse::<Streams>().is_err(), "{bad}");
        }
    }
}
