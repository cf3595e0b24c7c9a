//! The flags of `longhaul sync`.

use clap::Args;

use super::{EXIT_CODES, Place, Way};
use crate::address::Location;

/// Make what is there the same as what is here, or the other way round
///
/// DST stands for the same thing as SRC: what the directory SRC holds comes into the directory DST,
/// which is made if it is missing. Files of equal size and time of modification are not sent; of a
/// large file that has changed, only the pieces that its version there does not have. Done again, it
/// does nothing.
///
/// Times are equal also where one is the other as a coarser file system keeps it. Permissions that alone have
/// changed are set; extended attributes that alone have changed are not noticed.
#[derive(Args)]
#[command(args_override_self = true, after_help = EXIT_CODES, after_long_help = SYNC_LONG_HELP)]
pub struct Sync {
    /// What is to be had: a file or directory, written as for `cp`
    #[arg(value_name = "SRC", value_parser = Place)]
    pub source: Location,
    /// What is to be the same; one of both is on another host, or both are
    #[arg(value_name = "DST", value_parser = Place)]
    pub destination: Location,
    /// Remove what DST has and SRC has not, when all else has succeeded; what patterns leave out stays
    #[arg(long)]
    pub delete: bool,
    /// Change nothing, and say what would be done
    #[arg(short = 'n', long, conflicts_with = "manifest")]
    pub dry_run: bool,
    /// Tell equal files by their BLAKE3 hashes, for which both sides read all of them
    #[arg(short = 'c', long)]
    pub checksum: bool,
    /// Change nothing, compare every byte by BLAKE3, and say what differs (exit code 1)
    #[arg(long, conflicts_with_all = ["dry_run", "delete", "manifest"])]
    pub verify_only: bool,
    #[command(flatten)]
    pub way: Way,
}

const SYNC_LONG_HELP: &str = "\
Examples:
  longhaul sync data me@server:backup/data
  longhaul sync --delete --exclude '*.tmp' data lh://server/data
  longhaul sync -n --delete server:results results
  longhaul sync --verify-only data server:backup/data

Exit codes:
  0    done and verified; nothing differs
  1    failed, or --verify-only found a difference
  2    wrong usage
  3    some files failed, or their turn did not come; the others are done and verified
  130  ended by Ctrl-C (143: by SIGTERM, 129: by SIGHUP); the same command goes on";
