//! Files and trees over one bidirectional byte stream.
//!
//! The bytes go this way, every arrow a bounded queue:
//!
//! ```text
//! sending:    disk -> source (walk, read, hash) -> pipe -> stream
//! receiving:  stream -> pipe -> sink (write, hash, verify) -> commit (fsync, rename) -> disk
//!             stream <- replies: progress, failures, done
//! ```
//!
//! The sender never waits for an answer between files, so a transfer costs one round trip beyond
//! its bytes: the last, in which the receiver says that everything is on its disk. [`serve`] is the
//! far side of [`put`] and [`get`].
//!
//! The stream may be anything that is `AsyncRead + AsyncWrite`. It must bring its own encryption and
//! its own time-outs; a stream that ends early is an error here, whatever the reason.
//!
//! # What is kept
//!
//! Names in any bytes, regular files with their holes, hard links among what is sent, directories
//! (empty ones too), symbolic links (as links, except that a link named as a source is followed),
//! permissions, times of modification, users' extended attributes, and on demand the numbers of user and
//! group. The set-user-ID bit is not carried, nor set-group-ID on files: the file has a new owner.
//! Sockets, pipes and devices are skipped with a note, and so is what a transfer that is not over keeps.
//!
//! # Where things land
//!
//! | destination | one file | one directory | several |
//! |---|---|---|---|
//! | an existing directory | into it | into it | into it |
//! | `name/`, missing | made, into it | made, into it | made, into it |
//! | `name`, missing or a file | becomes `name` | becomes `name` | refused |
//!
//! A source that ends in `.` or `..` stands for what the directory holds.
//!
//! # Going on
//!
//! A transfer with a [`TransferId`] has a journal on the receiving side until it is over. The next one
//! of that name, over whatever stream, is told what is there and sends the rest (see `journal`).
//!
//! # Cancelling
//!
//! Dropping a future cuts the transfer. Its blocking threads notice, remove their temporary files
//! (`.NAME.longhaul-RANDOM.part`), but for those that a journal tells of, and end; dropping the tokio runtime waits for that, leaving by
//! [`std::process::exit`] does not.
#![forbid(unsafe_code)]

mod arriving;
mod attributes;
mod budget;
mod client;
mod commit;
mod delta;
mod destination;
mod error;
mod exchange;
mod failed;
mod filter;
mod folding;
mod had;
mod hash;
mod journal;
mod listing;
mod manifest;
mod meta;
mod notes;
mod onlooker;
mod pack;
mod pipe;
mod place;
mod pour;
mod probe;
mod progress;
mod reading;
mod relpath;
mod removal;
mod server;
mod sink;
mod source;
mod sources;
mod standing;
mod summary;
mod temp;
mod tree;
mod walk;
pub mod wire;

pub use budget::Budget;
pub use client::{Options, get, get_stream, list, put, put_stream};
pub use error::TransferError;
pub use filter::check_pattern;
pub use journal::{
    MAGIC as JOURNAL_MAGIC, TransferId, example as journal_example, records as journal_records,
};
pub use listing::{Listed, ListedKind};
pub use manifest::Manifest;
pub use notes::{NOTES_MAX, Note, NoteKind, Notes, printable};
pub use pipe::Occupancy;
pub use place::Place;
pub use probe::probe;
pub use progress::{Progress, Sample};
pub use relpath::{NAME_MAX, PATH_MAX, PathError, RelPath};
pub use server::{AskedRate, Direction, Outcome, Root, ServeOptions, serve, serve_in_turn};
pub use summary::{Bottleneck, Counts, Kept, Summary};
pub use temp::{Names, Temp, is_temporary};
pub use tree::Tree;

// What the fuzzer reaches.
#[doc(hidden)]
pub use pack::{Packer, Unpacker};
