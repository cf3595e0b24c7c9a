//! Data connections and what goes over them: RFC 959, 2428, and `docs/spec/ftp-extensions.md`.

use transfer::RelPath;

use super::{
    Action, Data, DataWay, Encoding, Form, Framing, LOGINS_MAX, Open, Session, Task, Way, Work,
    text,
};
use crate::address::{
    Ends, IPV4, IPV6, family, names_unknown_family, read_eprt, read_mprt, read_port,
};
use crate::command::Verb;

/// Connections of a striped transfer when the client does not say how many (paper 3, section 2.2).
pub const STREAMS_DEFAULT: usize = 4;

/// Ports below belong to services of the system: no data goes there (RFC 2577, section 3).
const PORT_MIN: u16 = 1024;

impl Session {
    pub(super) fn data_command(&mut self, verb: Verb, argument: &[u8]) {
        let words = text(argument);
        match verb {
            Verb::Port | Verb::Eprt | Verb::Mprt => self.active(verb, &words),
            Verb::Pasv => match self.peer.is_ipv4() {
                true => self.listen(verb, 1),
                false => self.reply(425, "PASV knows IPv4 alone: use EPSV"),
            },
            Verb::Epsv => self.epsv(&words),
            Verb::Mult => match self.settings.streams {
                1 => self.reply(502, "One connection a transfer is all there is"),
                streams => self.reply(200, format!("{streams} connections at most")),
            },
            Verb::Mpsv => self.mpsv(&words),
            Verb::Abor => self.abort(),
            Verb::List | Verb::Nlst | Verb::Mlsd => self.list(verb, argument),
            _ => self.file_transfer(verb, argument),
        }
    }

    fn active(&mut self, verb: Verb, text: &str) {
        if self.chosen.epsv_only {
            return self.reply(503, "EPSV ALL was said");
        }
        let most = self.settings.streams;
        let ends = match verb {
            Verb::Port => read_port(text),
            Verb::Eprt => read_eprt(text, 1),
            _ => read_mprt(text, most),
        };
        if verb != Verb::Port && names_unknown_family(text) {
            return self.reply(522, format!("Use protocol ({IPV4},{IPV6})"));
        }
        let Some(ends) = ends else {
            let wanted = format!("An address and 1 to {most} ports are wanted");
            return self.reply(
                501,
                if verb == Verb::Mprt { &wanted } else { "An address and a port are wanted" },
            );
        };
        // Anything else would let a client aim this server at others (RFC 2577, section 3).
        if ends.address.to_canonical() != self.peer
            || ends.ports.iter().any(|&port| port < PORT_MIN)
        {
            return self
                .reply(501, "Data goes to your own address alone, and to no port below 1024");
        }
        let count = ends.ports.len();
        self.chosen.way = DataWay::Active { ends, striped: verb == Verb::Mprt };
        self.reply(
            200,
            if count == 1 {
                "There it will go".to_owned()
            } else {
                format!("Over {count} connections")
            },
        );
    }

    fn epsv(&mut self, text: &str) {
        match text.parse::<u8>() {
            _ if text.eq_ignore_ascii_case("ALL") => {
                self.chosen.epsv_only = true;
                self.reply(200, "EPSV alone from now on");
            }
            _ if text.is_empty() => self.listen(Verb::Epsv, 1),
            Ok(number) if number == family(self.peer) => self.listen(Verb::Epsv, 1),
            Ok(IPV4 | IPV6) | Err(_) => {
                self.reply(522, format!("Use protocol ({})", family(self.peer)));
            }
            Ok(_) => self.reply(522, format!("Use protocol ({})", family(self.peer))),
        }
    }

    fn mpsv(&mut self, text: &str) {
        let wanted = match text {
            "" => Some(STREAMS_DEFAULT),
            text => text.parse().ok().filter(|&number: &usize| number > 0),
        };
        match wanted {
            Some(wanted) => self.listen(Verb::Mpsv, wanted.min(self.settings.streams)),
            None => self.reply(501, "MPSV wants a number of connections"),
        }
    }

    fn listen(&mut self, verb: Verb, connections: usize) {
        if self.chosen.epsv_only && verb == Verb::Pasv {
            return self.reply(503, "EPSV ALL was said");
        }
        // Until somebody listens there is no other way.
        self.chosen.way = DataWay::Unset;
        self.ask(verb, Task::Listen { connections });
    }

    fn list(&mut self, verb: Verb, argument: &[u8]) {
        self.chosen.restart = 0;
        // Clients speak to LIST as to `ls`: options are passed over.
        let typed = match verb {
            Verb::Mlsd => argument,
            _ => without_options(argument),
        };
        let Some(path) = self.path(typed) else { return };
        let form = match verb {
            Verb::List => Form::Long,
            Verb::Nlst => Form::Names,
            _ => Form::Facts(self.chosen.facts),
        };
        self.open(verb, Open::List { path, form, typed: typed.to_vec() });
    }

    fn file_transfer(&mut self, verb: Verb, argument: &[u8]) {
        let offset = std::mem::take(&mut self.chosen.restart);
        // A name for STOU is a wish.
        let typed = if argument.is_empty() { b"upload" } else { argument };
        let Some(path) = self.path(typed) else { return };
        if path == RelPath::default() {
            return self.reply(550, "That is a directory");
        }
        self.open(
            verb,
            match verb {
                Verb::Retr => Open::Read(path, offset),
                Verb::Stor => Open::Write(path, offset),
                Verb::Stou => Open::Unique(path),
                _ => Open::Append(path),
            },
        );
    }

    /// Asks for what is to be moved, when it could be moved.
    fn open(&mut self, verb: Verb, open: Open) {
        let striped = match self.chosen.way {
            DataWay::Unset => return self.reply(425, "Say where: PASV, EPSV, PORT or EPRT"),
            DataWay::Active { striped, .. } | DataWay::Passive { striped, .. } => striped,
        };
        if self.settings.requires_tls && !self.chosen.protected {
            return self.reply(522, "This server wants PROT P");
        }
        let is_list = matches!(open, Open::List { .. });
        if striped && !is_list && (self.chosen.ascii || self.chosen.block) {
            return self.reply(504, "Striped transfers are of TYPE I and MODE S");
        }
        if striped && is_list {
            return self.reply(504, "Listings go over one connection: PASV, EPSV, PORT or EPRT");
        }
        self.ask(verb, Task::Open(open));
    }

    /// What was opened goes on its way.
    pub(super) fn go(&mut self, open: &Open) {
        let (way, striped) = match &self.chosen.way {
            DataWay::Active { ends, striped } => (Way::Active(ends.sockets().collect()), *striped),
            DataWay::Passive { connections, striped } => (Way::Passive(*connections), *striped),
            DataWay::Unset => unreachable!("checked before anything was opened"),
        };
        // A port that PORT named stays (RFC 959, section 3.2); everything else is for one transfer.
        if striped || matches!(way, Way::Passive(_)) {
            self.chosen.way = DataWay::Unset;
        }
        let is_list = matches!(open, Open::List { .. });
        let framing = match (striped, self.chosen.block) {
            (true, _) => Framing::Striped,
            (false, true) => Framing::Block,
            (false, false) => Framing::Stream,
        };
        // A listing is written with CR LF in either type.
        let encoding = Encoding { ascii: self.chosen.ascii && !is_list, framing };
        let data = Data { way, protected: self.chosen.protected, encoding };
        self.work = Work::Moving { receives: open.receives() };
        self.actions.push_back(Action::Do(Task::Move(data)));
    }

    pub(super) fn is_moving(&self) -> bool {
        matches!(self.work, Work::Moving { .. })
    }

    /// RFC 959, section 4.1.3: 426 for the transfer, then 226 for the ABOR.
    fn abort(&mut self) {
        match std::mem::replace(&mut self.work, Work::Idle) {
            // Who does not wait for the answer has guessed all the same.
            Work::Asked(_, Task::LogIn { .. }) => {
                self.actions.push_back(Action::Abort);
                self.reply(426, "The login was given up");
                self.count_failed_login();
                match self.failed_logins >= LOGINS_MAX {
                    true => self.end(421, "Too many logins failed: goodbye"),
                    false => self.reply(226, "As you asked"),
                }
            }
            Work::Asked(..) | Work::Moving { .. } => {
                self.actions.push_back(Action::Abort);
                self.chosen.way = DataWay::Unset;
                self.reply(426, "The transfer was given up");
                self.reply(226, "As you asked");
            }
            work => {
                self.work = work;
                self.reply(226, "Nothing was under way");
            }
        }
    }
}

/// What follows words like `-la`.
fn without_options(argument: &[u8]) -> &[u8] {
    let mut rest = argument;
    while rest.first() == Some(&b'-') {
        let end = rest.iter().position(|&byte| byte == b' ').unwrap_or(rest.len());
        rest = rest[end..].trim_ascii_start();
    }
    rest
}

impl Ends {
    /// A reply's way of naming where data is awaited.
    pub(super) fn in_pasv_reply(&self) -> Option<String> {
        let first = self.sockets().next()?;
        crate::address::write_port(first)
    }
}
