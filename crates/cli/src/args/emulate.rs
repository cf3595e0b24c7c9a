//! The flags of `longhaul emulate`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Subcommand};
use emulator::{Host, MAX_LAB_HOSTS, MAX_MTU, MIN_MTU};
use path::{HostGroup, parse_time};

use super::PathOptions;

/// Run commands on hosts joined by an emulated path
///
/// Network namespaces, "near" and "far", are joined by a link of the given rate, delay, loss and
/// queue, or by the path of a scenario. CMD runs on the near host, and its exit code is passed
/// through. Without CMD the lab stays open until Ctrl-C, and how to run commands in it is printed.
/// `longhaul emulate set` changes the path while it runs. What still runs on the hosts at the end is
/// killed.
#[derive(Args)]
#[command(after_long_help = EMULATE_LONG_HELP, args_conflicts_with_subcommands = true)]
pub struct Emulate {
    #[command(subcommand)]
    pub action: Option<EmulateAction>,
    #[command(flatten)]
    pub path: PathOptions,
    /// Take path and hosts from a scenario: the name of one that --list shows, or a TOML file
    ///
    /// All of its changes happen at their time. The lab lasts as long as CMD: the scenario's
    /// duration is not used.
    #[arg(long, value_name = "NAME|FILE",
          conflicts_with_all = ["rate", "rtt", "loss", "loss_back", "queue", "seed"])]
    pub scenario: Option<PathBuf>,
    /// Show the scenarios that come with the program, and end
    #[arg(long, exclusive = true)]
    pub list: bool,
    /// What to call the lab, for `longhaul emulate set` [default: the process number]
    #[arg(long)]
    pub name: Option<String>,
    /// So many hosts on each side of the path, which they share
    #[arg(long, value_name = "N", conflicts_with_all = ["near_hosts", "far_hosts", "scenario"],
          value_parser = clap::value_parser!(u32).range(1..=MAX_LAB_HOSTS as i64))]
    pub hosts: Option<u32>,
    /// Hosts on the near side with links of their own to the path, as in 'count=2 delay=20ms'
    ///
    /// The words are those of a scenario's [[near]]: count, rate, delay (one way) and queue. Given
    /// again for further hosts.
    #[arg(long, value_name = "WORDS", conflicts_with = "scenario")]
    pub near_hosts: Vec<HostGroup>,
    /// The same on the far side
    #[arg(long, value_name = "WORDS", conflicts_with = "scenario")]
    pub far_hosts: Vec<HostGroup>,
    /// The MTU of the hosts' devices, 9216 for jumbo frames [default: what the path lets pass in both
    /// directions, but 1500 at least, and where it has no limit]
    #[arg(long, value_name = "BYTES",
          value_parser = clap::value_parser!(u32).range(MIN_MTU as i64..=MAX_MTU as i64))]
    pub mtu: Option<u32>,
    /// The kernel's TCP congestion control on all hosts
    #[arg(long, value_name = "NAME", default_value = "cubic")]
    pub cc: String,
    /// A shell command that runs on the far host for as long as CMD runs
    #[arg(long, value_name = "CMD")]
    pub far: Option<String>,
    /// The same on any host, as in near2:'ping $LONGHAUL_FAR'; may be given again
    #[arg(long, value_name = "HOST:CMD")]
    pub run: Vec<RunOn>,
    /// Show every second, or in another interval, what goes through the path and waits before it
    #[arg(long, value_name = "INTERVAL", num_args = 0..=1, default_missing_value = "1s",
          value_parser = interval)]
    pub stats: Option<Duration>,
    #[command(flatten)]
    pub recordings: Recordings,
    #[command(flatten)]
    pub limits: Limits,
    /// Write the statistics and the closing report as JSON, an object a line, to standard output
    #[arg(long)]
    pub json: bool,
    /// What to run on the near host
    #[arg(last = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

/// What to write down of a run.
#[derive(Args)]
pub struct Recordings {
    /// Write what the near hosts send and what reaches them to a pcap-ng file, for Wireshark
    #[arg(long, value_name = "FILE")]
    pub pcap_near: Option<PathBuf>,
    /// The same for the far hosts
    #[arg(long, value_name = "FILE")]
    pub pcap_far: Option<PathBuf>,
    /// Keep so many bytes of each packet in these files
    #[arg(long, value_name = "BYTES", default_value_t = 65_535,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub snaplen: u32,
    /// Write the queues' lengths over time, and every drop with its cause, to a CSV file
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// How often --trace looks at the queues
    #[arg(long, value_name = "TIME", default_value = "10ms", value_parser = interval)]
    pub trace_interval: Duration,
}

/// How exact a run must have been.
#[derive(Args)]
pub struct Limits {
    /// The most that 99 of 100 packets may be late; they may wait ten times as long to be taken in [default: 1% of the
    /// round-trip time, at least 1ms]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub max_late: Option<Duration>,
    /// The longest the emulator may stand still [default: 100ms]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub max_stall: Option<Duration>,
    /// Packets that may be lost elsewhere than on the path [default: 0]
    #[arg(long, value_name = "N")]
    pub max_outside: Option<u64>,
    /// Say whether the run was faithful, but do not fail when it was not
    #[arg(long)]
    pub no_verdict: bool,
}

/// What to do with a lab that runs.
#[derive(Subcommand)]
pub enum EmulateAction {
    Set(SetPath),
}

/// Change the path of a lab that runs, or show it
///
/// The words are those of scenario files. KEY=VALUE changes both directions, forward.KEY=VALUE
/// the one from near to far, back.KEY=VALUE the one that returns, and rtt=TIME both delays. What
/// is under way arrives as it was to.
#[derive(Args)]
#[command(after_help = SET_HELP)]
pub struct SetPath {
    /// The lab's name, which may be left out when only one runs, and what to change; without
    /// KEY=VALUE shows how the path stands
    #[arg(value_name = "NAME|KEY=VALUE")]
    pub words: Vec<String>,
}

const SET_HELP: &str = "\
Keys: rate, delay, loss, queue, mtu, icmp, framing, atm, rate-trace-file, loss-trace-file, cell-loss,
bit-error, corrupt, silent, duplicate, reorder, reorder-by, jitter, keep-order, blackout, hold.

Examples:
  longhaul emulate set                                   # how do the labs' paths stand?
  longhaul emulate set rate=10mbit forward.loss=2%       # the only lab
  longhaul emulate set mylab rtt=600ms queue=fq-codel
  longhaul emulate set mylab blackout=5s                 # nothing arrives for 5 seconds";

const EMULATE_LONG_HELP: &str = "\
Hosts:
  near, near2, ... have the addresses 10.77.0.1, 10.77.0.3, ... and fd77::1, fd77::3, ...;
  far, far2, ... have 10.77.0.2, 10.77.0.4, ... and fd77::2, fd77::4, ...

Environment of all commands:
  LONGHAUL_NEAR, LONGHAUL_FAR      the first hosts' IPv4 addresses
  LONGHAUL_NEAR6, LONGHAUL_FAR6    their IPv6 addresses
  LONGHAUL_NEAR_2, LONGHAUL_NEAR6_2, LONGHAUL_FAR_2, ...  those of the second hosts and so on
  LONGHAUL_CONTROL                 the lab's control socket

Examples:
  longhaul emulate -- ping -c 3 10.77.0.2
  longhaul emulate --loss 0.1% --far 'iperf3 -s' -- sh -c 'sleep 1; iperf3 -c $LONGHAUL_FAR'
  longhaul emulate --scenario geo-satellite-t1 -- ping -c 3 10.77.0.2
  longhaul emulate --queue fq-codel --rate 20mbit --stats -- sh
  longhaul emulate --near-hosts delay=5ms --near-hosts delay=50ms --run near2:'ping 10.77.0.2'
  longhaul emulate --pcap-far far.pcapng --trace queue.csv -- ping -c 3 10.77.0.2
  longhaul keygen --shared k && mkdir in                         # a key for both sides, and a folder
  longhaul emulate --far 'longhaul serve --root in --key k' -- sh -c 'sleep 1; longhaul cp --key k data lh://10.77.0.2/'

Needs root, or user namespaces and /dev/net/tun. A report of what the path did goes to standard
error, and a verdict: whether this machine kept up, so that the run shows the path and not the machine.

Exit codes: that of CMD; 126 when it may not be run, 127 when it was not found, 128 + N when signal N
ended it; 1 when the lab could not be made, 2 for wrong usage; 125 when CMD succeeded but the run was not
faithful.";

/// A command and the host it is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunOn {
    pub side: Host,
    /// Counted from 0.
    pub number: usize,
    pub script: String,
}

impl FromStr for RunOn {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let error = || "write HOST:CMD, as in near2:'ping 10.77.0.2'".to_owned();
        let (host, script) = text.split_once(':').ok_or_else(error)?;
        let digits = host.trim_start_matches(|c: char| !c.is_ascii_digit());
        let name = &host[..host.len() - digits.len()];
        let side = Host::BOTH.into_iter().find(|side| side.to_string() == name);
        let number = if digits.is_empty() { Some(1) } else { digits.parse().ok() };
        let (side, number) = side.zip(number.filter(|&number| number > 0)).ok_or_else(error)?;
        Ok(Self { side, number: number - 1, script: script.to_owned() })
    }
}

/// A time between two looks.
pub(super) fn interval(text: &str) -> Result<Duration, String> {
    let time = parse_time(text)?;
    let shortest = Duration::from_millis(1);
    (time >= shortest).then_some(time).ok_or_else(|| "give a millisecond or more".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_counted_from_one() {
        let run = |text: &str| text.parse::<RunOn>().map(|run| (run.side, run.number, run.script));
        assert_eq!(run("near:a:b"), Ok((Host::Near, 0, "a:b".to_owned())));
        assert_eq!(run("far12:true"), Ok((Host::Far, 11, "true".to_owned())));
        for wrong in ["near", "middle:true", "near0:true", "2:true", "near-1:true", "near2x:true"] {
            assert!(run(wrong).is_err(), "{wrong}");
        }
    }
}
