//! What the client is told of what was done.

use transfer::RelPath;

use super::{Answer, DataWay, Failure, LOGINS_MAX, Session, Stage, Task, User, Work};
use crate::address::{Ends, write_epsv_reply};
use crate::command::Verb;
use crate::entry::{Entry, Kind};
use crate::names::{quoted, seen};
use crate::reply::Reply;
use crate::time::stamp;

impl Session {
    pub(super) fn answered(&mut self, answer: Answer) {
        match std::mem::replace(&mut self.work, Work::Idle) {
            Work::Asked(verb, task) => self.settle(verb, task, answer),
            Work::Moving { receives } => self.moved(receives, answer),
            // The task was aborted.
            work => self.work = work,
        }
    }

    fn moved(&mut self, receives: bool, answer: Answer) {
        match answer {
            Answer::Moved(bytes) => {
                self.reply(
                    226,
                    format!("Done, {bytes} bytes {}", if receives { "came" } else { "went" }),
                );
            }
            Answer::Failed(failure) => self.failed(failure),
            _ => self.failed(Failure::Cut),
        }
    }

    fn settle(&mut self, verb: Verb, task: Task, answer: Answer) {
        match (task, answer) {
            (Task::LogIn { .. }, Answer::Failed(failure)) => self.refused_login(failure),
            (_, Answer::Failed(failure)) => self.failed(failure),
            (Task::LogIn { .. }, Answer::User(user)) => self.logged_in(user),
            (Task::Listen { connections }, Answer::Listening(ends)) => {
                self.listening(verb, connections, &ends);
            }
            (Task::Inspect(path), Answer::Entry(entry)) => self.inspected(verb, path, &entry),
            (Task::Hash(path, algorithm, first, _), Answer::Hash(sum, end)) => match verb {
                Verb::Hash => {
                    let (name, last) = (algorithm.name(), end.saturating_sub(1));
                    let text = format!("{name} {first}-{last} {sum} ").into_bytes();
                    self.reply(213, [text, seen(&path)].concat());
                }
                _ => self.reply(250, sum.to_ascii_uppercase()),
            },
            (Task::Open(open), Answer::Opened(size, name)) => {
                let size = size.map(|size| format!(" ({size} bytes)")).unwrap_or_default();
                // RFC 1123, section 4.1.2.9.
                let text = match &name {
                    Some(name) => [b"FILE: ".to_vec(), seen(name)].concat(),
                    None => format!("Here it goes{size}").into_bytes(),
                };
                self.reply(150, text);
                self.go(&open);
            }
            (Task::Status(_), Answer::Lines(mut lines)) => {
                lines.insert(0, b"Listing:".to_vec());
                lines.push(b"End".to_vec());
                self.send(&Reply { code: 213, lines });
            }
            (Task::MakeDirectory(path), _) => self.reply(257, quoted(&path, " made")),
            (Task::SetModified(path, time), _) => {
                let text = format!("Modify={}; ", stamp(time)).into_bytes();
                self.reply(213, [text, seen(&path)].concat());
            }
            (Task::SetMode(..), _) => self.reply(200, "Permissions set"),
            _ => self.reply(250, "Done"),
        }
    }

    fn logged_in(&mut self, user: User) {
        let what = if user.may_write { "read and write" } else { "read" };
        self.reply(230, format!("Welcome, {}: you may {what}", user.name));
        self.stage = Stage::In(user);
        self.failed_logins = 0;
    }

    fn refused_login(&mut self, failure: Failure) {
        self.count_failed_login();
        if failure.code() == 421 || self.failed_logins >= LOGINS_MAX {
            return self.end(421, &failure.to_string());
        }
        self.failed(failure);
    }

    pub(super) fn count_failed_login(&mut self) {
        self.stage = Stage::Nobody;
        self.failed_logins += 1;
    }

    fn listening(&mut self, verb: Verb, connections: usize, ends: &Ends) {
        let ports = || write_epsv_reply(&ends.ports);
        let (code, text) = match verb {
            Verb::Pasv => match ends.in_pasv_reply() {
                Some(numbers) => (227, format!("Entering Passive Mode ({numbers})")),
                None => return self.failed(Failure::NoPort),
            },
            Verb::Epsv => (229, format!("Entering Extended Passive Mode {}", ports())),
            _ => (229, format!("Entering Striped Passive Mode {}", ports())),
        };
        self.chosen.way = DataWay::Passive { connections, striped: verb == Verb::Mpsv };
        self.reply(code, text);
    }

    fn inspected(&mut self, verb: Verb, path: RelPath, entry: &Entry) {
        let is_directory = entry.kind == Kind::Directory;
        match verb {
            Verb::Cwd | Verb::Cdup if is_directory => {
                self.reply(250, quoted(&path, " is the current directory"));
                self.chosen.here = path;
            }
            Verb::Cwd | Verb::Cdup => self.failed(Failure::NotDirectory),
            Verb::Rnfr if path == RelPath::default() => self.failed(Failure::Denied),
            // Only a kept part, which has no time: the name is not there yet.
            Verb::Rnfr if entry.modified.is_none() => self.failed(Failure::NotFound),
            Verb::Rnfr => {
                self.chosen.rename_from = Some(path);
                self.reply(350, "And what shall be its name?");
            }
            Verb::Size if entry.kind != Kind::File => self.failed(Failure::NotFile),
            Verb::Size => self.reply(213, entry.size.to_string()),
            Verb::Mdtm => match entry.modified {
                Some(time) => self.reply(213, stamp(time)),
                None => self.failed(Failure::NotFile),
            },
            _ => {
                let may_write = matches!(&self.stage, Stage::In(user) if user.may_write);
                let facts = self.chosen.facts.of(entry, may_write).into_bytes();
                let lines = [b"Facts:".to_vec(), [facts, seen(&path)].concat(), b"End".to_vec()];
                self.send(&Reply::of_lines(250, lines));
            }
        }
    }

    fn failed(&mut self, failure: Failure) {
        self.reply(failure.code(), failure.to_string());
    }
}
