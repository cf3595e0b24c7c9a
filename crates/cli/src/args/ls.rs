//! The flags of `longhaul ls`.

use clap::Args;

use super::{EXIT_CODES, Place, Way};
use crate::address::Location;

/// List what a directory on another host holds
///
/// A line for each thing, in the order of their names: when it was changed last, its size, and its name; a
/// directory's ends in a slash, and behind that of a link stands what it says. Of a file, its own line.
#[derive(Args)]
#[command(args_override_self = true, after_help = EXIT_CODES, after_long_help = LS_LONG_HELP)]
pub struct Ls {
    /// What to list: `[USER@]HOST:[PATH]`, or `lh://HOST[:PORT]/[PATH]`
    #[arg(value_name = "URL", value_parser = Place)]
    pub place: Location,
    /// And what its directories hold, and theirs
    #[arg(short = 'R', long)]
    pub recursive: bool,
    #[command(flatten)]
    pub way: Way,
}

const LS_LONG_HELP: &str = "\
Examples:
  longhaul ls lh://server/
  longhaul ls -R me@server:results
  longhaul ls --json --exclude '*.tmp' server:results

With --json each thing is an object of the event \"entry\", with path, kind (file, directory or symlink), bytes,
modified (seconds since 1970), mode and target.

Exit codes:
  0    done
  1    failed
  2    wrong usage
  3    some of it cannot be read there, and is not listed
  130  ended by Ctrl-C (143: by SIGTERM, 129: by SIGHUP)";
