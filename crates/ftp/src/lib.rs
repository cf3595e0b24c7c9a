//! FTP as everyone speaks it, and striped where both ends can.
//!
//! [`session`] is the server's side of a control connection, sans IO: lines in, replies and tasks
//! out. [`server`] gives it sockets, TLS, users and a disk. [`client`] is the other end. Both move
//! their data through [`data`], which knows the encodings: lines of text, blocks, and the striped
//! records of paper 3 (`docs/spec/ftp-extensions.md`).
//!
//! ```text
//! control:  socket -> line -> command -> session -> reply -> socket
//!                                           | ^
//!                                      task v | answer
//! data:     disk <-> data (ascii, block, record) <-> one socket or many
//! ```
#![forbid(unsafe_code)]

pub mod address;
pub mod client;
pub mod command;
pub mod data;
pub mod entry;
pub mod hash;
pub mod landing;
pub mod line;
pub mod names;
pub mod reply;
pub mod server;
pub mod session;
pub mod time;
pub mod tls;
