//! Who is there, and under which protection: RFC 959 section 4.1.1, RFC 4217.

use super::{Action, Chosen, Session, Stage, Task, Work, text};
use crate::command::Verb;

impl Session {
    pub(super) fn login_command(&mut self, verb: Verb, argument: &[u8]) {
        match verb {
            Verb::User => self.user(&text(argument)),
            Verb::Pass => self.pass(argument),
            Verb::Acct => self.reply(202, "No account is needed"),
            Verb::Rein => {
                self.restart();
                self.reply(220, "Who is there now?");
            }
            Verb::Quit => self.end(221, "Goodbye"),
            Verb::Auth => self.auth(&text(argument)),
            Verb::Pbsz => self.pbsz(),
            _ => self.prot(&text(argument)),
        }
    }

    fn user(&mut self, name: &str) {
        if self.settings.requires_tls && !self.secure {
            return self.reply(530, "This server wants TLS first: AUTH TLS");
        }
        self.stage = Stage::Named(name.to_owned());
        self.reply(331, "Password, please (anonymous users: any)");
    }

    fn pass(&mut self, password: &[u8]) {
        match &self.stage {
            Stage::Nobody => self.reply(503, "Say USER first"),
            Stage::In(_) => self.reply(202, "You are in already"),
            Stage::Named(name) => {
                let task = Task::LogIn { name: name.clone(), password: password.to_vec() };
                self.ask(Verb::Pass, task);
            }
        }
    }

    /// Forgets the user and everything that was set, but not how many logins failed.
    fn restart(&mut self) {
        if matches!(self.stage, Stage::In(_)) {
            self.stranger_since = self.last;
        }
        self.stage = Stage::Nobody;
        let has_buffer_size = self.secure && self.chosen.has_buffer_size;
        self.chosen = Chosen { ascii: true, has_buffer_size, ..Chosen::default() };
    }

    fn auth(&mut self, mechanism: &str) {
        // TLS-C is what older clients call it (RFC 4217, section 2).
        let known = ["TLS", "TLS-C", "SSL"].iter().any(|name| name.eq_ignore_ascii_case(mechanism));
        if !known {
            return self.reply(504, "Only AUTH TLS is known here");
        }
        if !self.settings.offers_tls {
            return self.reply(502, "TLS is not offered here");
        }
        if self.secure {
            return self.reply(503, "TLS stands already");
        }
        self.restart();
        // What came in clear behind this line could be anybody's.
        self.lines.clear();
        self.reply(234, "Begin TLS");
        self.actions.push_back(Action::StartTls);
        self.work = Work::Securing;
    }

    fn pbsz(&mut self) {
        if !self.secure {
            return self.reply(503, "AUTH TLS comes first");
        }
        self.chosen.has_buffer_size = true;
        self.reply(200, "PBSZ=0");
    }

    fn prot(&mut self, level: &str) {
        match level.to_ascii_uppercase().as_str() {
            _ if !self.chosen.has_buffer_size => self.reply(503, "AUTH TLS and PBSZ come first"),
            "P" => {
                self.chosen.protected = true;
                self.reply(200, "Data goes under TLS");
            }
            "C" if self.settings.requires_tls => self.reply(534, "This server wants PROT P"),
            "C" => {
                self.chosen.protected = false;
                self.reply(200, "Data goes in clear");
            }
            "S" | "E" => self.reply(536, "Only PROT P and PROT C are known here"),
            _ => self.reply(504, "Only PROT P and PROT C are known here"),
        }
    }
}
