//! Every command and flag: the one table from which the parser, `--help`, the man pages and the
//! shell completions are made.
#![allow(rustdoc::broken_intra_doc_links, reason = "these comments are the help, as it is shown")]

mod emulate;
mod forward;
mod gateway;
mod ls;
mod place;
mod probe;
mod sending;
mod simulate;
mod striping;
mod sync;

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use units::{Bytes, ParseUnitError, Rate};

use crate::address::{DEFAULT_PORT, Location};
use crate::cp::Schedule;
pub use emulate::{Emulate, EmulateAction, Recordings, RunOn, SetPath};
pub use forward::Forward;
pub use gateway::{ConfigFile, Gateway, GatewayAction};
pub use ls::Ls;
pub use place::Place;
pub use probe::Probe;
pub use sending::Sending;
pub use simulate::{Half, Reproduce, Simulate};
pub use striping::{Known, Striping};
pub use sync::Sync;

/// How every command ends; part of `--help` and of the man pages.
const EXIT_CODES: &str = "\
Exit codes:
  0    done and verified
  1    failed: nothing that is not whole stands under its final name
  2    wrong usage
  3    some files failed, or their turn did not come; the others are done and verified
  130  ended by Ctrl-C (143: by SIGTERM, 129: by SIGHUP)";

/// Moves file trees across long, fat, lossy networks at the speed of the link.
#[derive(Parser)]
#[command(name = "longhaul", version, after_help = EXIT_CODES, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    Cp(Cp),
    Sync(Sync),
    Ls(Box<Ls>),
    Serve(Serve),
    Probe(Probe),
    Keygen(Keygen),
    /// Print the line by which others know this side: for `authorized_keys`, or to compare
    Fingerprint,
    Demo(Demo),
    Emulate(Box<Emulate>),
    Simulate(Simulate),
    Reproduce(Reproduce),
    Forward(Box<Forward>),
    Ftp(crate::ftp::args::Ftp),
    FtpUser(crate::ftp::args::FtpUser),
    Gateway(Gateway),
    Completions(Completions),
    Man(Man),
    /// What `cp` starts over ssh on the far side
    #[command(hide = true)]
    Far(Sending),
}

/// Copy files and trees to another host or from it
///
/// To HOST:PATH, ssh logs in and starts `longhaul` there for this one copy; the data goes beside ssh
/// where anything passes. At lh://HOST/PATH, `longhaul serve` runs and lets this side's key in. Between two
/// far sides, one is told over ssh to copy to the other, or from it, and must be let in there; of two servers,
/// the first copies to the second, where its --copy-to allows that.
/// Everything is encrypted, verified by BLAKE3, and stands under its final name only once it is whole. Directories are copied with
/// all that is in them: permissions, times, hard links, holes and users' extended attributes are kept. With
/// ftp:// all of that is as far as FTP and the server go: encrypted where it offers TLS, which is told, and
/// with ftps:// in any case; not verified, and without what FTP cannot tell.
#[derive(Args)]
#[command(args_override_self = true, after_help = EXIT_CODES, after_long_help = CP_LONG_HELP)]
pub struct Cp {
    /// What to copy: files or directories here, or `[USER@]HOST:PATH`, or `lh://HOST[:PORT]/PATH`,
    /// or `ftp://[USER@]HOST[:PORT]/PATH`; `-` is standard input
    ///
    /// A name here with a colon before its first slash is written ./10:30.log, and a file called - is ./-. In
    /// an FTP URL the path counts from where the login leads, behind a second slash from the root, and %20
    /// stands for a space; the password is asked for, or comes from LONGHAUL_FTP_PASSWORD.
    #[arg(required = true, value_name = "SRC", value_parser = Place)]
    pub sources: Vec<Location>,
    /// Where to: `[USER@]HOST:PATH`, `lh://HOST[:PORT]/PATH`, or a file or directory here; `-` is
    /// standard output
    ///
    /// Behind ssh, PATH counts from the home directory; at a server it is below its --root. IPv6
    /// addresses stand in brackets, as in `lh://[2001:db8::1]/data`.
    #[arg(required = true, value_name = "DST", value_parser = Place)]
    pub destination: Location,
    #[command(flatten)]
    pub way: Way,
    #[command(flatten)]
    pub ftp: crate::ftp::args::FtpClient,
}

/// Ends the program for wrong usage of this command.
pub fn usage(name: &str, message: &str) -> ! {
    let mut command = Cli::command();
    command.build();
    let command = command.find_subcommand_mut(name).expect("it is a command");
    command.error(ErrorKind::ValueValidation, message).exit()
}

/// What to leave out.
#[derive(Args, Clone, Default)]
pub struct Filter {
    /// Leave out what fits this pattern, as in a `.gitignore`; may be given several times
    #[arg(long, value_name = "PATTERN", value_parser = pattern)]
    pub exclude: Vec<String>,
    /// Take in again what fits this pattern, though an --exclude leaves it out
    #[arg(long, value_name = "PATTERN", requires = "exclude", value_parser = pattern)]
    pub include: Vec<String>,
}

impl Filter {
    /// The lines of a `.gitignore` that says the same.
    pub fn lines(&self) -> Vec<String> {
        let included = self.include.iter().map(|pattern| format!("!{pattern}"));
        self.exclude.iter().cloned().chain(included).collect()
    }
}

/// A pattern that can be understood.
fn pattern(text: &str) -> Result<String, String> {
    transfer::check_pattern(text).map(|()| text.to_owned())
}

/// A rate at which something moves.
pub fn some_rate(text: &str) -> Result<Rate, String> {
    let rate: Rate = text.parse().map_err(|error: ParseUnitError| error.to_string())?;
    let is_some = rate > Rate::ZERO;
    is_some.then_some(rate).ok_or_else(|| "a rate above 0 is wanted, as in 100mbit".to_owned())
}

/// How files go from one host to the other.
#[derive(Args)]
pub struct Way {
    #[command(flatten)]
    pub filter: Filter,
    /// Send bytes as they are; otherwise they are packed (zstd) where the network is the slow part and
    /// they become fewer by it
    #[arg(long)]
    pub no_compress: bool,
    /// What carries the data: our UDP transport, or many TCP connections
    ///
    /// "auto" prefers UDP, and takes TCP where UDP does not pass; beside ssh, where neither does, ssh
    /// itself. With --cc, --background or --feedback it takes UDP alone.
    #[arg(long, value_enum, default_value_t = Transport::Auto)]
    pub transport: Transport,
    #[command(flatten)]
    pub striping: Striping,
    #[command(flatten)]
    pub ssh: Ssh,
    #[command(flatten)]
    pub sending: Sending,
    #[command(flatten)]
    pub memory: Memory,
    #[command(flatten)]
    pub logs: Logs,
    /// Keep the numbers of users and groups, where the receiving side may set them; a server does so
    /// with --allow-owners alone
    #[arg(long)]
    pub owner: bool,
    /// Move only at this time of the day, as in 22:00-06:00, local time
    ///
    /// Seconds may be given too, as in 22:00:30-06:00. Outside of it the command waits, not connected to anything; what was begun goes on the next time.
    #[arg(long, value_name = "FROM-UNTIL")]
    pub schedule: Option<Schedule>,
    /// Write the BLAKE3 hashes of all files to this file when all is done, as `b3sum --check` reads them
    ///
    /// Names count from the directory that holds the source; those of a `sync`, and of a source that ends
    /// in `/.`, from the source itself. Files that did not move are read for it on this side.
    #[arg(long, value_name = "FILE")]
    pub manifest: Option<PathBuf>,
    /// Take an unknown server at its word and write its key into `known_hosts`
    #[arg(long)]
    pub accept_new: bool,
    /// End when standard input does, as when the command that started this one is gone
    #[arg(long, hide = true)]
    pub until_eof: bool,
    #[command(flatten)]
    pub key: KeyFile,
    #[command(flatten)]
    pub output: Output,
}

const CP_LONG_HELP: &str = "\
Examples:
  longhaul cp data/ me@server:incoming/
  longhaul cp -e 'ssh -p 2222 -J gate' server:/srv/run7 .
  longhaul cp data/ lh://server/incoming/
  longhaul cp lh://server/results/run7 lh://server/results/run8 .
  longhaul cp -e 'ssh -A' one:data two:            (from one to two, without passing here)
  longhaul cp --transport tcp --streams 32 big.tar lh://[2001:db8::1]:7300/
  tar c data | longhaul cp - server:data.tar

The file hosts.toml in LONGHAUL_HOME holds what is to be said of a host each time:
  [lab]                                           # as in lh://lab/data and lab:data; with dots [\"lab.org\"]
  address = \"lab.example.org:7300\"               # where lh://lab/ leads to, for probe and forward too
  options = [\"--transport=tcp\", \"--exclude=*.o\"] # of every cp, sync and ls with it; what is typed wins

Exit codes:
  0    done and verified
  1    failed: nothing that is not whole stands under its final name
  2    wrong usage
  3    some files failed, or their turn did not come; the others are done and verified
  130  ended by Ctrl-C (143: by SIGTERM, 129: by SIGHUP); what was whole by then stays";

/// More threads than this have nothing to do on any machine of today.
const MAX_CORES: usize = 256;

fn at_most_cores(text: &str) -> Result<NonZeroUsize, String> {
    let cores = text.parse::<NonZeroUsize>().ok().filter(|cores| cores.get() <= MAX_CORES);
    cores.ok_or_else(|| format!("a number from 1 to {MAX_CORES} is wanted"))
}

/// What carries the data.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Transport {
    Auto,
    Udp,
    Tcp,
    Ssh,
}

/// This very program, even where another has taken its place meanwhile.
pub const OWN_PROGRAM: &str = "/proc/self/exe";

/// How the far side is started by `cp [USER@]HOST:PATH`.
#[derive(Args, Clone, Default)]
pub struct Ssh {
    /// The ssh to start the far side with, as in 'ssh -p 2222' [default: LONGHAUL_SSH, else ssh]
    #[arg(short = 'e', long, value_name = "COMMAND")]
    pub rsh: Option<String>,
    /// Where longhaul is on the far side [default: in PATH, ~/.local/bin or ~/.cargo/bin]
    #[arg(long, value_name = "PATH")]
    pub remote_path: Option<String>,
    /// Where there is no longhaul, put this one there, or the one in FILE: to --remote-path, else ~/.local/bin
    ///
    /// For copies from this side or to it. What is put there is tried first, and stays. This one goes to machines
    /// of the same kind, and runs on all of them if it is a static one, built with --target
    /// x86_64-unknown-linux-musl, say; FILE is for other machines.
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true,
          default_missing_value = OWN_PROGRAM)]
    pub bootstrap: Option<PathBuf>,
    /// How the far side is to send, in words for its command line.
    #[arg(skip)]
    pub far: Vec<String>,
}

/// What earlier connections learnt.
#[derive(Args)]
pub struct Memory {
    /// Start as on an unknown path, and remember nothing of this one
    ///
    /// Otherwise the rate found towards a host is kept for a week in the file `paths` in
    /// LONGHAUL_HOME, and the next connection to that host starts with half of it. Over TCP and FTP it is
    /// how many connections were of use.
    #[arg(long)]
    pub no_remember: bool,
}

/// What to write down of connections.
#[derive(Args)]
pub struct Logs {
    /// Write what each UDP connection does into a qlog file of its own in this directory, for qvis
    /// and other viewers
    #[arg(long, value_name = "DIR")]
    pub qlog: Option<PathBuf>,
}

/// Which key to use.
#[derive(Args)]
pub struct KeyFile {
    /// A key that both sides share, instead of each one's identity in LONGHAUL_HOME
    #[arg(long = "key", value_name = "FILE")]
    pub path: Option<PathBuf>,
}

/// What to say.
#[derive(Args, Clone, Copy)]
pub struct Output {
    /// Write one JSON object a line to standard output: start, progress, and done, error or stopped at the end
    #[arg(long)]
    pub json: bool,
    /// Say nothing but errors
    #[arg(short, long, conflicts_with = "verbose")]
    pub quiet: bool,
    /// Say more: the connection's figures
    #[arg(short, long)]
    pub verbose: bool,
}

/// Serve a directory to those whose keys are let in, over UDP and TCP
///
/// `authorized_keys` holds one key a line, as `longhaul fingerprint` prints it on the other side;
/// before it may stand root="DIR", read-only, rate=RATE (in each direction, over all its connections) and
/// forward="HOST:PORT" (of what --forward and --copy-to allow, only this; several times, or empty for nothing),
/// separated by commas. Changes count from the next request. Whoever holds this side's own identity is let in too.
///
/// Ends on Ctrl-C, SIGTERM or SIGHUP: with exit code 0 when idle, otherwise with 130, 143 or 129 after it has
/// cut off the transfers that were under way and removed their temporary files.
#[derive(Args)]
pub struct Serve {
    /// Where to listen: one UDP and one TCP port of the same number
    #[arg(long, value_name = "ADDR:PORT", default_value_t = SocketAddr::from(([0u16; 8], DEFAULT_PORT)))]
    pub listen: SocketAddr,
    /// The directory that clients see as /
    #[arg(long, value_name = "DIR")]
    pub root: PathBuf,
    /// Refuse everything that would write
    #[arg(long)]
    pub read_only: bool,
    /// Give what arrives to the users and groups whose numbers it had at its source, for clients that
    /// ask for it by --owner
    ///
    /// A server that may give files away then lets whoever may write make some in anybody's name below the
    /// root. Without this, all that arrives belongs to the server's user.
    #[arg(long, conflicts_with = "read_only")]
    pub allow_owners: bool,
    #[command(flatten)]
    pub sending: Sending,
    /// Threads that drive the UDP connections, each with a share of the clients
    #[arg(long, value_name = "N", default_value_t = NonZeroUsize::MIN,
          value_parser = at_most_cores)]
    pub cores: NonZeroUsize,
    /// Clients served at a time: UDP connections and striped streams; further ones wait
    ///
    /// So do copies of one key beyond 64, or of one address where all share a key, and those of all clients beyond
    /// 3968: what has not begun after half a minute is turned away. Probes count for themselves.
    #[arg(long, value_name = "N", default_value_t = 512,
          value_parser = clap::value_parser!(u16).range(1..))]
    pub max_connections: u16,
    /// Streams that a client may have open at a time (UDP); 64 may always be
    #[arg(long, value_name = "N", default_value_t = 16_384,
          value_parser = clap::value_parser!(u64).range(64..=1 << 20))]
    pub max_streams: u64,
    /// Let a client open no further streams (UDP) while more than this waits to be sent there
    #[arg(long, value_name = "BYTES")]
    pub max_queued: Option<Bytes>,
    /// The kernel's congestion control for the TCP connections, as in "cubic" [default: bbr where the
    /// kernel has it]
    #[arg(long, value_name = "NAME")]
    pub tcp_cc: Option<String>,
    /// Connect clients of `longhaul forward` to this HOST:PORT, as this side sees it; either may be *
    ///
    /// May be given several times. A key's own forward= narrows it further.
    #[arg(long, value_name = "TARGET")]
    pub forward: Vec<crate::forward::Target>,
    /// Copy to the server at this HOST:PORT for clients who have us do so; either may be *
    ///
    /// So `longhaul cp lh://HERE/x lh://HOST/y` need not pass through the client's host. This side connects to what
    /// clients name: it must be written as they write it. May be given several times; a key's own forward= narrows it
    /// further. The other server must let the client in.
    #[arg(long, value_name = "TARGET", conflicts_with = "path")]
    pub copy_to: Vec<crate::forward::Target>,
    /// Whom to let in [default: the file `authorized_keys` in LONGHAUL_HOME]
    #[arg(long, value_name = "FILE", conflicts_with = "path")]
    pub authorized_keys: Option<PathBuf>,
    #[command(flatten)]
    pub ftp: crate::ftp::args::FtpServe,
    #[command(flatten)]
    pub memory: Memory,
    #[command(flatten)]
    pub logs: Logs,
    #[command(flatten)]
    pub key: KeyFile,
    /// Say nothing but errors
    #[arg(short, long)]
    pub quiet: bool,
    /// End when standard input does, as when the program that started the server is gone
    #[arg(long, hide = true)]
    pub until_eof: bool,
}

/// Make the key that others know this side by
///
/// It is written to the file `identity` in LONGHAUL_HOME (default: $XDG_CONFIG_HOME/longhaul, else
/// ~/.config/longhaul), readable by its owner alone.
#[derive(Args)]
pub struct Keygen {
    /// Replace the key that is there
    #[arg(long)]
    pub force: bool,
    /// Write a key that both sides share to this file instead, for --key
    #[arg(long, value_name = "FILE")]
    pub shared: Option<PathBuf>,
}

/// What an emulated path is like.
#[derive(Args, Clone, Debug)]
pub struct PathOptions {
    /// The link's rate, both ways
    #[arg(long, default_value = "1gbit")]
    pub rate: Rate,
    /// Round-trip time, half of it each way
    #[arg(long, value_name = "TIME", default_value = "200ms", value_parser = path::parse_time)]
    pub rtt: Duration,
    /// Packets lost at random from the near host to the far one
    #[arg(long, value_name = "SHARE", default_value = "1%", value_parser = path::parse_share)]
    pub loss: f64,
    /// Packets lost at random on the way back
    #[arg(long, value_name = "SHARE", default_value = "0", value_parser = path::parse_share)]
    pub loss_back: f64,
    /// The queue before the link: drop-tail of a limit (50ms, 100packets, 6MiB), red, red-i, codel
    /// or fq-codel, with parameters as in codel:target=5ms,ecn=yes
    #[arg(long, value_name = "QUEUE", default_value = "50ms")]
    pub queue: path::QueueConfig,
    /// Fixes every random choice of the path
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
}

impl PathOptions {
    /// The path they describe.
    pub fn config(&self) -> path::PathConfig {
        path::PathConfig::new(self.rate, self.rtt)
            .with_loss(self.loss)
            .with_loss_back(self.loss_back)
            .with_queue(self.queue)
            .with_seed(self.seed)
    }
}

/// See a real file tree cross an emulated long fat path by TCP, striped TCP and UDP
///
/// Builds the path, starts a server at its far end, moves the tree by one plain TCP connection
/// (CUBIC), by striped TCP and by UDP, verifies what arrived and compares. Where network namespaces
/// are not allowed, UDP alone crosses an in-process path on loopback.
#[derive(Args)]
#[command(after_help = EXIT_CODES)]
pub struct Demo {
    #[command(flatten)]
    pub path: PathOptions,
    /// Move this tree instead of a generated one
    #[arg(long, value_name = "DIR")]
    pub source: Option<PathBuf>,
    /// Size of the generated tree
    #[arg(long, value_name = "BYTES", default_value = "256MiB", conflicts_with = "source")]
    pub size: Bytes,
    /// TCP connections of the striped run, as --streams of cp: auto, or a number
    #[arg(long, value_name = "N", default_value = "auto", value_parser = striping::checked)]
    pub streams: String,
    /// The most seconds each of the TCP runs may take
    #[arg(long, value_name = "N", default_value_t = 15,
          value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub tcp_seconds: u64,
    /// Use the in-process loopback path even where namespaces are allowed
    #[arg(long)]
    pub loopback: bool,
    /// Keep the trees, and say where they are
    #[arg(long)]
    pub keep: bool,
}

/// Print the completions for a shell
#[derive(Args)]
pub struct Completions {
    pub shell: clap_complete::Shell,
}

/// Print the man page, or write one page for each command to a directory
#[derive(Args)]
pub struct Man {
    /// Where to write the pages
    pub directory: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_table_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn times_beyond_all_measure_are_refused() {
        let long = "18446744073709551615s 999999999ns 1ns";
        for flag in ["--rtt", "--max-late", "--max-stall", "--stats", "--trace-interval"] {
            let error = Cli::try_parse_from(["longhaul", "emulate", flag, long]).err();
            let error = error.expect(flag).to_string();
            assert!(error.contains("it is too long"), "{error}");
        }
    }
}
