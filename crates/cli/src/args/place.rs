//! A place on the command line.

use std::ffi::OsStr;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::{Arg, Command};

use crate::address::Location;
use crate::ftp::FtpUrl;

/// Reads a [`Location`]. What is wrong with an FTP URL is told without showing that: there may be a password in it,
/// and what a command says may stand in a log.
#[derive(Clone)]
pub struct Place;

impl TypedValueParser for Place {
    type Value = Location;

    fn parse_ref(
        &self,
        command: &Command,
        argument: Option<&Arg>,
        value: &OsStr,
    ) -> Result<Location, clap::Error> {
        if let Some(Err(why)) = value.to_str().and_then(FtpUrl::read) {
            return Err(command.clone().error(ErrorKind::ValueValidation, why));
        }
        let reader = OsStringValueParser::new().try_map(Location::read);
        reader.parse_ref(command, argument, value)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use crate::args::Cli;

    #[test]
    fn a_password_is_refused_and_not_shown() {
        for url in ["ftp://u:secret@h/x", "ftps://u:secret@h/x", "ftp://u:a/secret@h/x"] {
            let error = Cli::try_parse_from(["longhaul", "cp", url, "."]).err().unwrap();
            let said = error.to_string();
            assert!(said.contains("others") && !said.contains("secret"), "{said}");
        }
    }
}
