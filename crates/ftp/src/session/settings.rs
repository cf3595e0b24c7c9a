//! What a client may ask about the server, and set for its transfers.

use super::{Session, Stage, text};
use crate::command::{RULES, Verb};
use crate::entry::Facts;
use crate::hash::Algorithm;
use crate::reply::Reply;

/// Names in a line of HELP.
const HELP_COLUMNS: usize = 10;

impl Session {
    pub(super) fn setting_command(&mut self, verb: Verb, argument: &[u8]) {
        let text = text(argument);
        match verb {
            Verb::Feat => self.features(),
            Verb::Opts => self.opts(&text),
            Verb::Clnt => self.reply(200, "Noted"),
            Verb::Syst => self.reply(215, "UNIX Type: L8"),
            Verb::Help => self.help(),
            Verb::Noop => self.reply(200, "Here I am"),
            Verb::Allo => self.reply(202, "There is no need to"),
            Verb::Type => self.set_type(&text),
            Verb::Mode => self.set_mode(&text),
            Verb::Stru => match text.to_ascii_uppercase().as_str() {
                "F" => self.reply(200, "Files have no structure"),
                _ => self.reply(504, "Only STRU F is known here"),
            },
            _ => self.rest(&text),
        }
    }

    /// RFC 2389. What is not in the first standards, and what of it this server can.
    fn features(&mut self) {
        let mut lines = vec!["Features:".to_owned()];
        if self.settings.offers_tls {
            lines.extend(["AUTH TLS", "PBSZ", "PROT"].map(str::to_owned));
        }
        let fixed = ["UTF8", "TVFS", "SIZE", "MDTM", "MFMT", "REST STREAM", "EPRT", "EPSV", "CLNT"];
        lines.extend(fixed.map(str::to_owned));
        lines.push(format!("MLST {}", self.chosen.facts.feature()));
        let mark = |algorithm: Algorithm| match self.chosen.algorithm == algorithm {
            true => format!("{}*", algorithm.name()),
            false => algorithm.name().to_owned(),
        };
        lines.push(format!("HASH {}", Algorithm::ALL.map(mark).join(";")));
        lines.extend(["XCRC", "XMD5", "XSHA1", "XSHA256", "XSHA512"].map(str::to_owned));
        if self.settings.streams > 1 {
            lines.push(format!("MULT {}", self.settings.streams));
            lines.extend(["MPRT", "MPSV"].map(str::to_owned));
        }
        lines.push("End".to_owned());
        self.send(&Reply::of_lines(211, lines));
    }

    fn opts(&mut self, text: &str) {
        let (what, value) = text.split_once(' ').unwrap_or((text, ""));
        match what.to_ascii_uppercase().as_str() {
            "UTF8" | "UTF-8" if value.eq_ignore_ascii_case("OFF") => {
                self.reply(501, "Names are bytes here, and mostly UTF-8");
            }
            "UTF8" | "UTF-8" => self.reply(200, "Names are UTF-8"),
            "MLST" => {
                self.chosen.facts = Facts::chosen(value);
                let names = self.chosen.facts.names();
                self.reply(200, format!("MLST OPTS {names}").trim().to_owned());
            }
            "HASH" => match (value.trim(), Algorithm::named(value.trim())) {
                ("", _) => self.reply(200, self.chosen.algorithm.name()),
                (_, Some(algorithm)) => {
                    self.chosen.algorithm = algorithm;
                    self.reply(200, algorithm.name());
                }
                (_, None) => self.reply(501, "FEAT lists the checksums after HASH"),
            },
            _ => self.reply(501, "It has no options"),
        }
    }

    fn help(&mut self) {
        let names: Vec<&str> = RULES.iter().map(|rule| rule.name).collect();
        let rows = names.chunks(HELP_COLUMNS).map(|row| row.join(" "));
        let lines = ["These commands are known:".to_owned()].into_iter().chain(rows);
        self.send(&Reply::of_lines(214, lines.chain(["End".to_owned()])));
    }

    fn set_type(&mut self, text: &str) {
        match text.to_ascii_uppercase().as_str() {
            "I" | "L 8" => {
                self.chosen.ascii = false;
                self.reply(200, "Bytes go as they are");
            }
            "A" | "A N" => {
                self.chosen.ascii = true;
                self.reply(200, "Lines end with CR LF on the way");
            }
            _ => self.reply(504, "Only TYPE A and TYPE I are known here"),
        }
    }

    fn set_mode(&mut self, text: &str) {
        match text.to_ascii_uppercase().as_str() {
            "S" | "B" => {
                self.chosen.block = text.eq_ignore_ascii_case("B");
                self.reply(200, format!("Mode {}", text.to_ascii_uppercase()));
            }
            _ => self.reply(504, "Only MODE S and MODE B are known here"),
        }
    }

    /// RFC 3659, section 5: a byte of the file, for the command that follows.
    fn rest(&mut self, text: &str) {
        match text.parse() {
            Ok(0) => {
                self.chosen.restart = 0;
                self.reply(350, "From the beginning");
            }
            Ok(_) if self.chosen.ascii => {
                self.reply(501, "Lines change their length in TYPE A: set TYPE I first");
            }
            Ok(offset) => {
                self.chosen.restart = offset;
                self.reply(350, format!("From byte {offset}, with the next transfer"));
            }
            Err(_) => self.reply(501, "REST wants a number of bytes"),
        }
    }

    /// STAT without a path: how things stand.
    pub(super) fn status(&mut self) {
        let who = match &self.stage {
            Stage::In(user) => format!("Logged in as {}", user.name),
            _ => "Nobody is logged in".to_owned(),
        };
        let kind = if self.chosen.ascii { "ASCII" } else { "image" };
        let mode = if self.chosen.block { "block" } else { "stream" };
        let control = if self.secure { "TLS" } else { "in clear" };
        let data = if self.chosen.protected { "TLS" } else { "in clear" };
        let moving = match self.is_moving() {
            true => "Data is on its way",
            false => "No data is on its way",
        };
        let lines = [
            "Longhaul FTP".to_owned(),
            format!("{who} from {}", self.peer),
            format!("Type {kind}, mode {mode}, at most {} connections", self.settings.streams),
            format!("Control {control}, data {data}"),
            moving.to_owned(),
            "End".to_owned(),
        ];
        self.send(&Reply::of_lines(211, lines));
    }
}
