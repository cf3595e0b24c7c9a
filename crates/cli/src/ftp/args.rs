//! The flags of everything FTP.
#![allow(rustdoc::broken_intra_doc_links, reason = "these comments are the help, as it is shown")]

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use net::tcp::Policy;

use crate::args::Memory;

/// The most connections of one striped transfer.
const STREAMS_MAX: i64 = ftp::client::MAX_STREAMS as i64;

/// How `serve` speaks FTP.
#[derive(Args)]
#[command(mut_arg("ftp_policy", |policy| policy.requires("ftp")))]
pub struct FtpServe {
    /// Also speak FTP here, as in [::]:21
    ///
    /// Standard clients are served, plain and with TLS (AUTH TLS); those that know MULT stripe over
    /// several connections. Named users come from the password file that `longhaul ftp-user` keeps.
    #[arg(id = "ftp", long = "ftp", value_name = "ADDR:PORT")]
    pub listen: Option<SocketAddr>,
    /// And here for clients that begin with TLS (ftps://), as in [::]:990
    #[arg(id = "ftp_tls", long = "ftp-tls", value_name = "ADDR:PORT", requires = "ftp")]
    pub tls: Option<SocketAddr>,
    /// Let anonymous FTP users read everything below --root
    #[arg(id = "ftp_anonymous", long = "ftp-anonymous", requires = "ftp")]
    pub anonymous: bool,
    /// The FTP password file [default: the file `ftp-users` in LONGHAUL_HOME]
    #[arg(id = "ftp_users", long = "ftp-users", value_name = "FILE", requires = "ftp")]
    pub users: Option<PathBuf>,
    /// Ports for FTP's passive data connections, as in 50000-50999
    #[arg(id = "ftp_passive", long = "ftp-passive", value_name = "FROM-TO", requires = "ftp", value_parser = ports)]
    pub passive: Option<RangeInclusive<u16>>,
    /// Take FTP names and passwords, and move data, under TLS alone
    #[arg(id = "ftp_require_tls", long = "ftp-require-tls", requires = "ftp")]
    pub require_tls: bool,
    /// Take FTP uploads for whole whose TLS ends without close_notify
    ///
    /// For clients that never send it. Who can cut their connections can then cut their files.
    #[arg(id = "ftp_lax_tls_end", long = "ftp-lax-tls-end", requires = "ftp")]
    pub lax_tls_end: bool,
    /// The FTP server's certificate chain (PEM) [default: a self-signed one in LONGHAUL_HOME]
    #[arg(id = "ftp_cert", long = "ftp-cert", value_name = "FILE", requires_all = ["ftp", "ftp_cert_key"])]
    pub cert: Option<PathBuf>,
    /// And its private key (PEM)
    #[arg(id = "ftp_cert_key", long = "ftp-cert-key", value_name = "FILE", requires_all = ["ftp", "ftp_cert"])]
    pub cert_key: Option<PathBuf>,
    /// The most connections of one striped FTP transfer; 1 turns striping off
    #[arg(id = "ftp_streams", long = "ftp-streams", value_name = "N", default_value_t = 16, requires = "ftp",
          value_parser = clap::value_parser!(u16).range(1..=STREAMS_MAX))]
    pub streams: u16,
    /// The most FTP sessions at a time; further clients are told to come back
    #[arg(id = "ftp_sessions", long = "ftp-sessions", value_name = "N", default_value_t = 512, requires = "ftp",
          value_parser = clap::value_parser!(u16).range(1..))]
    pub sessions: u16,
    /// The most of them from one address; all of an IPv6 /64 count as one
    #[arg(id = "ftp_per_address", long = "ftp-per-address", value_name = "N", default_value_t = 128, requires = "ftp",
          value_parser = clap::value_parser!(u16).range(1..))]
    pub per_address: u16,
    /// The most of them of one named user
    #[arg(id = "ftp_per_user", long = "ftp-per-user", value_name = "N", default_value_t = 128, requires = "ftp",
          value_parser = clap::value_parser!(u16).range(1..))]
    pub per_user: u16,
    #[command(flatten)]
    pub sender: Sender,
}

/// How either end stripes what it sends.
#[derive(Args, Clone)]
pub struct Sender {
    /// How many of its connections a striped FTP transfer uses that this side sends: auto, a number,
    /// equation:RATE or rtt-bounded
    ///
    /// "auto" uses as many as bring more, and fewer when the queue of the path grows; "equation:RATE" as
    /// many as this rate needs, as in equation:100mbit. "rtt-bounded" uses one more while the round-trip
    /// time is low and half of them when it is high; the bounds follow from the least round-trip time, or
    /// are given, as in "rtt-bounded:700ms,1.1s". The others wait until they are of use.
    #[arg(id = "ftp_policy", long = "ftp-policy", value_name = "POLICY", default_value = "auto",
          value_parser = policy)]
    pub policy: Policy,
}

/// How a sender chooses among the connections of a striped transfer.
fn policy(text: &str) -> Result<Policy, String> {
    Policy::read(text, path::parse_time)
}

/// A number of connections; 0 stands for "auto", as for the client.
pub fn streams(text: &str) -> Result<u16, String> {
    if text == "auto" {
        return Ok(ftp::client::AUTO as u16);
    }
    let count = text.parse().ok().filter(|&count| (1..=STREAMS_MAX).contains(&i64::from(count)));
    count.ok_or_else(|| format!("write auto, or a number from 1 to {STREAMS_MAX}"))
}

fn ports(text: &str) -> Result<RangeInclusive<u16>, String> {
    let range =
        text.split_once('-').and_then(|(from, to)| Some(from.parse().ok()?..=to.parse().ok()?));
    range
        .filter(|range| *range.start() > 0 && range.start() <= range.end())
        .ok_or_else(|| "write two ports, as in 50000-50999".to_owned())
}

/// Keep the FTP server's users
///
/// Their passwords are kept as Argon2id hashes in the file `ftp-users` in LONGHAUL_HOME. A server
/// reads the file when it starts: start it again after a change.
#[derive(Args)]
pub struct FtpUser {
    #[command(subcommand)]
    pub what: UserCommand,
    /// The password file
    #[arg(long, value_name = "FILE", global = true)]
    pub file: Option<PathBuf>,
}

/// What to do with the users.
#[derive(Subcommand)]
pub enum UserCommand {
    /// Add a user, or change one; the password is read from the terminal, or from standard input
    Set {
        name: String,
        /// What the user sees as /
        #[arg(long, value_name = "DIR")]
        root: PathBuf,
        /// The user may change nothing
        #[arg(long)]
        read_only: bool,
    },
    /// Remove a user
    Remove { name: String },
    /// List the users
    List,
}

/// How an FTP client trusts and stripes.
#[derive(Args, Clone)]
pub struct FtpClient {
    /// Trust an FTP server's unknown certificate, and remember it
    #[arg(id = "ftp_accept_new", long = "ftp-accept-new")]
    pub accept_new: bool,
    /// The most connections to stripe an FTP transfer over, where the server can; 1 turns that off, and
    /// "auto" takes as many as the server allows, unless the path is short
    #[arg(id = "ftp_streams", long = "ftp-streams", value_name = "N", default_value = "4",
          value_parser = streams)]
    pub streams: u16,
    #[command(flatten)]
    pub sender: Sender,
    /// Let an FTP server connect here for data, instead of connecting to it
    #[arg(id = "ftp_active", long = "ftp-active")]
    pub active: bool,
    /// Speak FTP in clear even where TLS is offered
    #[arg(id = "ftp_no_tls", long = "ftp-no-tls")]
    pub no_tls: bool,
}

/// Talk to an FTP server
///
/// Any FTP server will do; TLS is used where it is offered, with ftps:// in any case, and several connections
/// a file where the server knows MULT. The password is asked for, or comes from LONGHAUL_FTP_PASSWORD. `help` lists the commands. Without a terminal, commands are read from standard
/// input, and the first that fails ends the session.
#[derive(Args)]
pub struct Ftp {
    /// [USER@]HOST[:PORT], or ftp://[USER@]HOST[:PORT]/PATH
    pub host: String,
    #[command(flatten)]
    pub client: FtpClient,
    /// The kernel's congestion control for what this side sends, as in "cubic" [default: bbr where the
    /// kernel has it]
    #[arg(long, value_name = "NAME")]
    pub tcp_cc: Option<String>,
    #[command(flatten)]
    pub memory: Memory,
}
