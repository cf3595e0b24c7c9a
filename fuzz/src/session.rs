//! An FTP session: whatever comes over the control connection, however its tasks end.

use core::net::IpAddr;

use arbitrary::{Result, Unstructured};
use ftp::address::Ends;
use ftp::command::RULES;
use ftp::line::BUFFER_MAX;
use ftp::session::{Action, Answer, Failure, Session, Settings, Task, User, Way};
use units::Instant;

const PEER: &str = "192.0.2.7";
/// Lines and events of one run at most.
const MOST: usize = 200;
/// Replies and tasks that one piece of input brings at most: one for each command in a full buffer,
/// the shortest of which is four letters long, and a few more.
const REPLIES: usize = BUFFER_MAX;

/// What the program around the session knows.
struct Around {
    session: Session,
    now: Instant,
    streams: usize,
    task: Option<Task>,
    user: Option<User>,
    closed: bool,
    /// For how many connections the last `Listen` that was answered waits.
    listening: Option<usize>,
}

/// Commands and events as the input says: nothing panics, nothing is done for strangers, nothing is
/// changed by readers, and data goes to the client's own address alone.
pub fn session(input: &[u8]) {
    let _ = talk(&mut Unstructured::new(input));
}

fn talk(input: &mut Unstructured<'_>) -> Result<()> {
    let now = Instant::ZERO;
    let streams = input.int_in_range(1..=20)?;
    let settings = Settings {
        offers_tls: input.arbitrary()?,
        requires_tls: input.arbitrary()?,
        streams,
        ..Settings::default()
    };
    let peer: IpAddr = PEER.parse().expect("an address");
    let session = Session::new(settings, peer, input.arbitrary()?, now);
    let mut around =
        Around { session, now, streams, task: None, user: None, closed: false, listening: None };
    for _ in 0..MOST {
        around.drain(input)?;
        if input.is_empty() || around.closed {
            break;
        }
        around.step(input)?;
    }
    around.session.shut_down();
    around.drain(input)?;
    assert!(around.closed, "a server that ends ends every session");
    Ok(())
}

impl Around {
    fn step(&mut self, input: &mut Unstructured<'_>) -> Result<()> {
        match input.int_in_range(0..=9)? {
            0 => {
                self.now += core::time::Duration::from_secs(input.int_in_range(0..=400)?);
                self.session.expire(self.now);
            }
            1 => {
                let len = input.int_in_range(0..=40)?;
                let bytes = input.bytes(len)?.to_vec();
                self.receive(&bytes);
            }
            2 | 3 if self.task.is_some() => self.answer(input)?,
            _ => {
                let line = line(input)?;
                self.receive(&line);
            }
        }
        Ok(())
    }

    fn receive(&mut self, bytes: &[u8]) {
        let room = self.session.room();
        assert!(room <= BUFFER_MAX);
        self.session.receive(&bytes[..bytes.len().min(room)], self.now);
    }

    fn drain(&mut self, input: &mut Unstructured<'_>) -> Result<()> {
        let mut count = 0;
        while let Some(action) = self.session.poll() {
            count += 1;
            assert!(count <= REPLIES, "more replies than commands");
            assert!(!self.closed, "an action after the end: {action:?}");
            match action {
                Action::Send(bytes) => {
                    let text = String::from_utf8_lossy(&bytes);
                    let is_reply = text.get(..3).is_some_and(|code| code.parse::<u16>().is_ok());
                    assert!(is_reply && text.ends_with("\r\n"), "{text:?}");
                }
                Action::StartTls => self.session.secured(self.now),
                Action::Do(task) => {
                    self.check(&task);
                    assert!(self.task.replace(task).is_none(), "two tasks at a time");
                    if input.ratio(3, 4)? {
                        self.answer(input)?;
                    }
                }
                Action::Abort => self.task = None,
                Action::Close => self.closed = true,
            }
        }
        // A session ends in its time, but not while something is done for it.
        let deadline = self.session.deadline();
        match self.task {
            Some(_) => assert_eq!(deadline, Instant::FAR_FUTURE, "a task has no time"),
            None => assert!(deadline <= self.now + Settings::default().idle, "it stays for ever"),
        }
        Ok(())
    }

    /// Who may ask for what, and where data goes.
    fn check(&self, task: &Task) {
        let writes = match task {
            Task::LogIn { .. } => return,
            Task::MakeDirectory(_) | Task::RemoveDirectory(_) | Task::Remove(_) => true,
            Task::Rename(..) | Task::SetModified(..) | Task::SetMode(..) => true,
            Task::Open(open) => open.receives(),
            Task::Listen { connections } => {
                assert!((1..=self.streams).contains(connections), "{connections} connections");
                false
            }
            Task::Move(data) => {
                match &data.way {
                    Way::Active(ends) => {
                        assert!(!ends.is_empty() && ends.len() <= self.streams.max(1));
                        for end in ends {
                            assert_eq!(end.ip().to_string(), PEER, "data to somebody else");
                            assert!(end.port() >= 1024, "data to a service: {end}");
                        }
                    }
                    Way::Passive(connections) => assert_eq!(Some(*connections), self.listening),
                }
                false
            }
            _ => false,
        };
        let user = self.user.as_ref().expect("nothing is done for strangers");
        assert!(!writes || user.may_write, "a reader changes something: {task:?}");
    }

    fn answer(&mut self, input: &mut Unstructured<'_>) -> Result<()> {
        let Some(task) = self.task.take() else { return Ok(()) };
        let answer = match &task {
            _ if input.ratio(1, 6)? => Answer::Failed(*input.choose(&FAILURES)?),
            Task::LogIn { name, .. } => {
                self.user = Some(User { name: name.clone(), may_write: input.arbitrary()? });
                Answer::User(self.user.clone().expect("set"))
            }
            Task::Listen { connections } => {
                self.listening = Some(*connections);
                let ports = vec![5001; *connections];
                Answer::Listening(Ends { address: PEER.parse().expect("an address"), ports })
            }
            Task::Hash(..) => Answer::Hash("ab".into(), input.arbitrary()?),
            Task::Open(_) => Answer::Opened(input.arbitrary()?, None),
            Task::Move(_) => Answer::Moved(input.arbitrary()?),
            Task::Status(_) => Answer::Lines(vec!["x".into(); input.int_in_range(0..=3)?]),
            // Also for Inspect: something that does not fit is no reason to panic.
            _ => Answer::Done,
        };
        self.session.answer(answer, self.now);
        Ok(())
    }
}

const FAILURES: [Failure; 4] =
    [Failure::BadLogin, Failure::NotFound, Failure::NoConnection, Failure::TooMany];

/// A command, as often as not a right one, and what stands behind it.
fn line(input: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    let mut line = input.choose(RULES)?.name.as_bytes().to_vec();
    if input.arbitrary()? {
        line.push(b' ');
        line.extend_from_slice(match input.int_in_range(0..=13)? {
            0 => b"u",
            1 => b"192,0,2,7,200,1",
            2 => b"127,0,0,1,200,1",
            3 => b"192,0,2,7,0,25",
            4 => b"|1|192.0.2.7|5000|",
            5 => b"|1|10.0.0.1|5000|",
            6 => b"|2|::1|5000|",
            7 => b"192,0,2,7,200,1,200,2,200,3",
            8 => b"../../etc/passwd",
            9 => b"I",
            10 => b"S",
            11 => b"4",
            12 => b"a/b",
            _ => {
                let len = input.int_in_range(0..=30)?;
                input.bytes(len)?
            }
        });
    }
    line.extend_from_slice(if input.ratio(9, 10)? { b"\r\n" } else { b"\n" });
    Ok(line)
}
