//! The session as its client sees it: command sequences, and sequences of anything.

use std::net::IpAddr;
use std::time::Duration;

use ftp::address::Ends;
use ftp::entry::{Entry, Kind};
use ftp::session::{Action, Answer, Failure, Session, Settings, Task, User};
use proptest::prelude::*;
use units::Instant;

const PEER: &str = "192.0.2.7";

/// A session, and a driver whose disk holds a directory wherever a path ends in `dir`.
struct Talk {
    session: Session,
    now: Instant,
    said: String,
    tasks: Vec<Task>,
    closed: bool,
    /// What goes on for ever.
    stuck: fn(&Task) -> bool,
    /// A task is under way.
    busy: bool,
}

fn nothing(_: &Task) -> bool {
    false
}

fn data(task: &Task) -> bool {
    matches!(task, Task::Move(_))
}

impl Talk {
    fn with(settings: Settings) -> Self {
        let now = Instant::ZERO;
        let session = Session::new(settings, PEER.parse().unwrap(), false, now);
        let mut talk = Self {
            session,
            now,
            said: String::new(),
            tasks: Vec::new(),
            closed: false,
            stuck: nothing,
            busy: false,
        };
        talk.drain();
        assert!(std::mem::take(&mut talk.said).starts_with("220 "));
        talk
    }

    fn logged_in() -> Self {
        let mut talk = Self::with(Settings::default());
        assert_eq!(talk.say("USER u\r\nPASS right\r\nTYPE I\r\n"), [331, 230, 200]);
        talk
    }

    /// Sends lines and gives the codes of the replies.
    fn say(&mut self, lines: &str) -> Vec<u16> {
        self.feed(lines.as_bytes());
        let said = std::mem::take(&mut self.said);
        let ends = said.lines().filter(|line| line.as_bytes().get(3) == Some(&b' '));
        ends.filter_map(|line| line[..3].parse().ok()).collect()
    }

    /// Sends lines and gives the text of the replies.
    fn hear(&mut self, lines: &str) -> String {
        self.feed(lines.as_bytes());
        std::mem::take(&mut self.said)
    }

    fn feed(&mut self, bytes: &[u8]) {
        for piece in bytes.chunks(7) {
            self.session.receive(piece, self.now);
            self.drain();
        }
    }

    fn drain(&mut self) {
        while let Some(action) = self.session.poll() {
            assert!(!self.closed, "an action after the end: {action:?}");
            match action {
                Action::Send(bytes) => {
                    // Names in it are bytes.
                    let text = String::from_utf8_lossy(&bytes);
                    assert!(text.ends_with("\r\n") && text[..3].parse::<u16>().is_ok(), "{text}");
                    self.said += &text;
                }
                Action::StartTls => self.session.secured(self.now),
                Action::Do(task) => {
                    self.tasks.push(task.clone());
                    self.busy = (self.stuck)(&task);
                    if !self.busy {
                        self.session.answer(answer(&task), self.now);
                    }
                }
                Action::Abort => self.busy = false,
                Action::Close => self.closed = true,
            }
        }
        assert!(self.closed || self.busy == (self.session.deadline() == Instant::FAR_FUTURE));
    }

    /// Ends what was stuck.
    fn answer(&mut self, answer: Answer) {
        self.busy = false;
        self.session.answer(answer, self.now);
        self.drain();
    }
}

fn answer(task: &Task) -> Answer {
    match task {
        Task::LogIn { name, password } if password == b"right" => {
            Answer::User(User { name: name.clone(), may_write: name != "reader" })
        }
        Task::LogIn { .. } => Answer::Failed(Failure::BadLogin),
        Task::Listen { connections } => {
            let address: IpAddr = PEER.parse().unwrap();
            Answer::Listening(Ends { address, ports: vec![5001; *connections] })
        }
        Task::Inspect(path) => {
            let is_directory = path.as_bytes().is_empty() || path.as_bytes().ends_with(b"dir");
            Answer::Entry(Entry {
                name: path.as_bytes().to_vec(),
                kind: if is_directory { Kind::Directory } else { Kind::File },
                size: 42,
                modified: Some(1_709_210_096),
                mode: Some(0o644),
                unique: None,
            })
        }
        Task::Hash(..) => Answer::Hash("ab".into(), 42),
        Task::Open(_) => Answer::Opened(Some(42), None),
        Task::Move(_) => Answer::Moved(42),
        Task::Status(_) => Answer::Lines(vec!["x".into()]),
        _ => Answer::Done,
    }
}

#[test]
fn nothing_is_done_for_strangers() {
    let mut talk = Talk::with(Settings::default());
    assert_eq!(talk.say("PWD\r\nRETR x\r\nPASV\r\nDELE x\r\nSITE HELP\r\n"), [530; 5]);
    assert!(talk.tasks.is_empty());
    assert_eq!(talk.say("PASS x\r\nUSER u\r\nPASS right\r\nPWD\r\n"), [503, 331, 230, 257]);
}

#[test]
fn three_wrong_passwords_end_the_session() {
    let mut talk = Talk::with(Settings::default());
    assert_eq!(talk.say("USER u\r\nPASS a\r\nUSER u\r\nPASS b\r\n"), [331, 530, 331, 530]);
    assert_eq!(talk.say("USER u\r\nPASS c\r\n"), [331, 421]);
    assert!(talk.closed);
}

#[test]
fn logins_that_are_given_up_count_too() {
    let mut talk = Talk::with(Settings::default());
    talk.session.receive(b"USER u\r\nPASS a\r\nABOR\r\nPASS b\r\n", talk.now);
    while let Some(action) = talk.session.poll() {
        if let Action::Send(bytes) = action {
            talk.said += &String::from_utf8(bytes).unwrap();
        }
    }
    let codes: Vec<&str> = talk.said.lines().map(|line| &line[..3]).collect();
    assert_eq!(codes, ["331", "426", "226", "503"], "the name is forgotten");
}

#[test]
fn what_is_known_and_not_done_is_told_from_what_is_unknown() {
    let mut talk = Talk::with(Settings::default());
    assert_eq!(
        talk.say("ADAT x\r\nCCC\r\nconf x\r\nENC x\r\nMIC x\r\nGET\r\n"),
        [502, 502, 502, 502, 502, 500]
    );
}

#[test]
fn what_is_only_kept_in_part_has_no_name_to_change() {
    let mut talk = Talk::logged_in();
    talk.session.receive(b"RNFR x\r\n", talk.now);
    assert!(matches!(talk.session.poll(), Some(Action::Do(Task::Inspect(_)))));
    let Answer::Entry(entry) = answer(&Task::Inspect(transfer::RelPath::default())) else {
        panic!("an entry")
    };
    talk.session.answer(Answer::Entry(Entry { modified: None, ..entry }), talk.now);
    talk.drain();
    assert!(talk.said.starts_with("550 "), "{}", talk.said);
}

#[test]
fn readers_change_nothing() {
    let mut talk = Talk::with(Settings::default());
    talk.say("USER reader\r\nPASS right\r\nEPSV\r\n");
    talk.tasks.clear();
    let codes = talk.say(
        "STOR x\r\nAPPE x\r\nSTOU\r\nDELE x\r\nMKD x\r\nRMD x\r\nRNFR x\r\n\
         MFMT 20240229123456 x\r\nMDTM 20240229123456 x\r\nSITE CHMOD 600 x\r\n",
    );
    assert_eq!(codes, [550; 10]);
    assert!(talk.tasks.is_empty());
}

#[test]
fn what_was_sent_in_clear_behind_auth_tls_is_forgotten() {
    let mut talk = Talk::with(Settings::default());
    talk.session.receive(b"AUTH TLS\r\nUSER u\r\nPASS right\r\n", talk.now);
    talk.drain();
    assert!(talk.said.ends_with("234 Begin TLS\r\n") && talk.tasks.is_empty());
    talk.said.clear();
    assert_eq!(talk.say("PROT P\r\nPBSZ 0\r\nPROT P\r\nAUTH TLS\r\n"), [503, 200, 200, 503]);
}

#[test]
fn a_server_that_requires_tls_takes_no_name_without() {
    let mut talk = Talk::with(Settings { requires_tls: true, ..Settings::default() });
    assert_eq!(talk.say("USER u\r\nAUTH TLS\r\n"), [530, 234]);
    assert_eq!(talk.say("USER u\r\nPASS right\r\n"), [331, 230]);
    assert_eq!(
        talk.say("EPSV\r\nLIST\r\nPBSZ 0\r\nPROT C\r\nPROT P\r\n"),
        [229, 522, 200, 534, 200]
    );
    assert_eq!(talk.say("LIST\r\n"), [150, 226]);
}

#[test]
fn data_goes_to_the_client_alone_and_to_no_service() {
    let mut talk = Talk::logged_in();
    let refused = "PORT 192,0,2,8,19,137\r\nPORT 192,0,2,7,0,25\r\nEPRT |1|192.0.2.8|5001|\r\n\
                   EPRT |2|::1|5001|\r\nMPRT 192,0,2,7,5001,1023\r\nMPRT 10,0,0,1,5001\r\n";
    assert_eq!(talk.say(refused), [501; 6]);
    assert_eq!(talk.say("RETR x\r\n"), [425]);
    assert_eq!(talk.say("PORT 192,0,2,7,19,137\r\nRETR x\r\n"), [200, 150, 226]);
    let unknown = "EPRT |3|192.0.2.7|5001|\r\nEPRT |0|x|5001|\r\nMPRT |9|::1|5001,5002|\r\n";
    assert!(talk.hear(unknown).matches("522 Use protocol (1,2)\r\n").count() == 3);
    assert_eq!(
        talk.say("EPSV ALL\r\nPORT 192,0,2,7,19,137\r\nPASV\r\nMPSV\r\n"),
        [200, 503, 503, 229]
    );
}

#[test]
fn striping_is_asked_for_and_bounded() {
    let mut talk = Talk::logged_in();
    assert_eq!(talk.hear("MULT 99\r\n"), "200 16 connections at most\r\n");
    assert!(talk.hear("FEAT\r\n").contains(" MULT 16\r\n MPRT\r\n MPSV\r\n"));
    assert!(talk.hear("MPSV\r\n").contains("(|||5001,5001,5001,5001|)"), "4 when none is named");
    talk.tasks.clear();
    assert_eq!(talk.say("MPSV 99\r\nREST 8\r\nRETR x\r\n"), [229, 350, 150, 226]);
    assert_eq!(talk.tasks[0], Task::Listen { connections: 16 });
    let ports = (0..17).map(|port| (5000 + port).to_string()).collect::<Vec<_>>().join(",");
    assert_eq!(talk.say(&format!("MPRT 192,0,2,7,{ports}\r\n")), [501]);
    // Either is for one transfer; what PORT named stays.
    assert_eq!(talk.say("MPRT 192,0,2,7,5001,5002\r\nRETR x\r\nRETR x\r\n"), [200, 150, 226, 425]);
    assert_eq!(talk.say("MPSV\r\nRETR x\r\nRETR x\r\n"), [229, 150, 226, 425]);
    assert_eq!(talk.say("MPSV\r\nTYPE A\r\nRETR x\r\nLIST\r\n"), [229, 200, 504, 504]);
    let mut single = Talk::with(Settings { streams: 1, ..Settings::default() });
    assert_eq!(single.say("USER u\r\nPASS right\r\nMULT\r\n"), [331, 230, 502]);
    assert!(!single.hear("FEAT\r\n").contains("MULT"));
}

#[test]
fn abor_ends_a_transfer_and_other_commands_wait_for_its_end() {
    let mut talk = Talk::logged_in();
    talk.stuck = data;
    assert_eq!(talk.say("EPSV\r\nRETR x\r\n"), [229, 150]);
    assert_eq!(talk.say("NOOP\r\nSTAT\r\n"), [200, 211]);
    assert_eq!(talk.say("\u{0}"), [] as [u16; 0]);
    let mut talk = Talk::logged_in();
    talk.stuck = data;
    talk.say("EPSV\r\nRETR x\r\n");
    talk.feed(b"\xff\xf4\xff\xf2");
    assert_eq!(talk.say("ABOR\r\nPWD\r\n"), [426, 226, 257]);
    talk.answer(Answer::Moved(1));
    assert_eq!(talk.said, "", "the answer to what was aborted says nothing");
    talk.say("EPSV\r\nRETR x\r\n");
    assert_eq!(talk.say("PWD\r\n"), [] as [u16; 0]);
    talk.answer(Answer::Moved(1));
    assert!(talk.said.starts_with("226 ") && talk.said.contains("\r\n257 "), "{}", talk.said);
}

#[test]
fn a_rename_is_two_commands_in_a_row_and_a_restart_counts_once() {
    let mut talk = Talk::logged_in();
    assert_eq!(talk.say("RNFR a\r\nRNTO b\r\nRNTO c\r\n"), [350, 250, 503]);
    assert_eq!(talk.say("RNFR a\r\nPWD\r\nRNTO b\r\n"), [350, 257, 503]);
    talk.tasks.clear();
    talk.say("PORT 192,0,2,7,19,137\r\nREST 7\r\nRETR x\r\nRETR x\r\n");
    let offsets = talk.tasks.iter().filter_map(|task| match task {
        Task::Open(ftp::session::Open::Read(_, offset)) => Some(*offset),
        _ => None,
    });
    assert_eq!(offsets.collect::<Vec<_>>(), [7, 0]);
    assert_eq!(talk.say("TYPE A\r\nREST 7\r\nSIZE x\r\n"), [200, 501, 550]);
}

#[test]
fn quiet_sessions_end_but_not_while_a_task_is_under_way() {
    let Settings { idle, login, .. } = Settings::default();
    let mut talk = Talk::with(Settings::default());
    assert_eq!(talk.session.deadline(), talk.now + login);
    talk.now += login / 2;
    talk.say("USER u\r\nPASS right\r\nTYPE I\r\n");
    assert_eq!(talk.session.deadline(), talk.now + idle, "who is in has more time");

    // All that can take long: a checksum, the copy that a transfer begins with, the data.
    talk.stuck = |task| !matches!(task, Task::Listen { .. });
    for (command, answers) in [
        ("XSHA256 x\r\n", vec![Answer::Hash("ab".into(), 42)]),
        ("EPSV\r\nREST 7\r\nSTOR x\r\n", vec![Answer::Opened(None, None), Answer::Moved(1)]),
    ] {
        talk.feed(command.as_bytes());
        for answer in answers {
            assert_eq!(talk.session.deadline(), Instant::FAR_FUTURE, "{command}");
            talk.now += 2 * idle;
            talk.session.expire(talk.now);
            talk.answer(answer);
        }
        assert_eq!(talk.session.deadline(), talk.now + idle, "{command}");
    }

    // What is given up is under way no more.
    talk.feed(b"XSHA256 x\r\n");
    talk.now += 2 * idle;
    talk.feed(b"ABOR\r\n");
    assert_eq!(talk.session.deadline(), talk.now + idle);

    talk.said.clear();
    talk.session.expire(talk.session.deadline() - Duration::from_nanos(1));
    assert!(!talk.closed);
    talk.session.expire(talk.session.deadline());
    talk.drain();
    assert!(talk.closed && talk.said.starts_with("421 "), "{}", talk.said);
}

#[test]
fn who_does_not_log_in_is_gone_in_time_whatever_it_says() {
    let Settings { login, .. } = Settings::default();
    let mut talk = Talk::with(Settings::default());
    let end = talk.now + login;
    for line in ["NOOP\r\n", "USER u\r\n", "REIN\r\n", "half of a li"] {
        talk.now += login / 8;
        talk.feed(line.as_bytes());
        assert_eq!(talk.session.deadline(), end, "{line}");
    }
    // TLS takes its time, and so does a password; neither can be asked for again and again.
    talk.feed(b"ne\r\nAUTH TLS\r\n");
    assert_eq!(talk.session.deadline(), talk.now + login);
    talk.now += login / 2;
    talk.feed(b"USER u\r\nPASS wrong\r\n");
    assert_eq!(talk.session.deadline(), talk.now + login);
    talk.feed(b"USER u\r\nPASS right\r\n");
    talk.now += login * 2;
    talk.feed(b"REIN\r\n");
    assert_eq!(talk.session.deadline(), talk.now + login);
    talk.said.clear();
    talk.session.expire(talk.session.deadline());
    talk.drain();
    assert!(talk.closed && talk.said.starts_with("421 Nobody"), "{}", talk.said);
}

#[test]
fn who_waits_too_long_for_others_to_log_in_is_told() {
    let mut talk = Talk::with(Settings::default());
    talk.stuck = |task| matches!(task, Task::LogIn { .. });
    assert_eq!(talk.say("USER u\r\nPASS right\r\n"), [331]);
    talk.answer(Answer::Failed(Failure::Crowded));
    assert!(talk.closed && talk.said.starts_with("421 Too many log in"), "{}", talk.said);
}

/// Commands that make sense, half of them with arguments that do not.
fn line() -> impl Strategy<Value = Vec<u8>> {
    let verbs: Vec<&str> = ftp::command::RULES.iter().map(|rule| rule.name).collect();
    let arguments = [
        "",
        "u",
        "right",
        "TLS",
        "0",
        "P",
        "C",
        "I",
        "A",
        "B",
        "S",
        "ALL",
        "1",
        "2",
        "3",
        "x",
        "dir",
        "../..",
        "192,0,2,7,19,137",
        "|1|192.0.2.7|5001|",
        "192,0,2,7,5001,5002",
        "MLST size;",
        "UTF8 ON",
        "HASH MD5",
        "CHMOD 644 x",
        "20240229123456 x",
        "\"x\" 1 2",
        "-la x*",
        "18446744073709551615",
    ];
    let argument = prop_oneof![
        4 => proptest::sample::select(arguments.to_vec()).prop_map(|text| text.as_bytes().to_vec()),
        1 => proptest::collection::vec(any::<u8>(), 0..40),
    ];
    let command = (proptest::sample::select(verbs), argument)
        .prop_map(|(verb, argument)| [verb.as_bytes(), b" ", &argument, b"\r\n"].concat());
    prop_oneof![9 => command, 1 => proptest::collection::vec(any::<u8>(), 0..60)]
}

proptest! {
    /// Whatever is said, replies are well formed, nothing panics, and strangers start no work.
    #[test]
    fn any_sequence_of_commands(lines in proptest::collection::vec(line(), 1..60), known: bool, stuck: bool) {
        let mut talk = if known { Talk::logged_in() } else { Talk::with(Settings::default()) };
        talk.stuck = if stuck { data } else { nothing };
        let mut ever_in = known;
        for line in lines {
            if talk.closed {
                break;
            }
            let before = talk.tasks.len();
            talk.feed(&line);
            for task in &talk.tasks[before..] {
                prop_assert!(ever_in || matches!(task, Task::LogIn { .. }), "{task:?}");
                // Any password is sent with any name, so the name alone says nothing.
                ever_in |= matches!(task, Task::LogIn { password, .. } if password == b"right");
            }
        }
    }

    /// Every command that can be answered gets exactly one final reply.
    #[test]
    fn one_final_reply_a_command(lines in proptest::collection::vec(line(), 1..40)) {
        let mut talk = Talk::logged_in();
        for line in lines {
            let text = String::from_utf8_lossy(&line).into_owned();
            let is_one_line = line.iter().filter(|&&byte| byte == b'\n').count() == 1
                && line.ends_with(b"\n") && !line.contains(&255);
            if !is_one_line || talk.closed {
                break;
            }
            talk.feed(&line);
            let said = std::mem::take(&mut talk.said);
            let finals = said.lines().filter(|line| {
                line.as_bytes().get(3) == Some(&b' ') && line.as_bytes()[0].is_ascii_digit() && !line.starts_with('1')
            });
            prop_assert_eq!(finals.count(), 1, "{} -> {}", text, said);
        }
    }
}
