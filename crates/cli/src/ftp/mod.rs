//! Everything FTP on the command line.

pub mod args;
mod commands;
mod connect;
mod copy;
mod here;
mod losses;
mod password;
mod serve;
mod shell;
mod show;
mod simple;
mod transfers;

pub use connect::FtpUrl;
pub use copy::{concerns, copy};
pub use serve::{Running, listen, user};
pub use shell::run;
