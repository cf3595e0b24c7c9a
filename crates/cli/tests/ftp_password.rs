//! The question for a password at a terminal: what ends it leaves the terminal, and a session, as they were.

mod support;

use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpListener;
use std::process::{Child, Command};
use std::sync::mpsc::{Receiver, channel};
use std::thread::sleep;
use std::time::Duration;

use rustix::fs::{Mode, OFlags, open};
use rustix::process::Signal;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, tcgetattr};
use support::{Home, send, wait};

const PATIENCE: Duration = Duration::from_secs(60);
const CTRL_C: &[u8] = b"\x03";

/// A terminal with nobody at it.
struct Terminal {
    keys: File,
    screen: File,
    shown: Receiver<Vec<u8>>,
}

impl Terminal {
    fn new() -> Self {
        let keys = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&keys).unwrap();
        unlockpt(&keys).unwrap();
        let name = ptsname(&keys, Vec::new()).unwrap();
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let screen = open(name, flags, Mode::empty()).unwrap();
        let keys = File::from(keys);
        let (mut output, (tell, shown)) = (keys.try_clone().unwrap(), channel());
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count) = output.read(&mut bytes) {
                if count == 0 || tell.send(bytes[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        Self { keys, screen: screen.into(), shown }
    }

    /// Runs a command as a shell in this terminal would.
    fn start(&self, home: &Home, arguments: &[&str]) -> Child {
        let longhaul = home.longhaul(arguments);
        let mut command = Command::new("setsid");
        command.arg("-c").arg(longhaul.get_program()).args(longhaul.get_args());
        command.current_dir(home.path("")).env("LONGHAUL_HOME", home.path("home"));
        command.env("TERM", "xterm").env_remove("LONGHAUL_FTP_PASSWORD");
        let screen = || self.screen.try_clone().unwrap();
        command.stdin(screen()).stdout(screen()).stderr(screen()).spawn().unwrap()
    }

    /// Waits until this is shown.
    fn wait_for(&self, text: &str) {
        let mut all = String::new();
        while !all.contains(text) {
            let more = self.shown.recv_timeout(PATIENCE);
            let more = more.unwrap_or_else(|_| panic!("no {text:?} in {all:?}"));
            all.push_str(&String::from_utf8_lossy(&more));
        }
    }

    /// Waits for the question, and until keys are no longer shown.
    fn wait_for_question(&self) {
        self.wait_for("Password for ann: ");
        while self.has_echo() {
            sleep(Duration::from_millis(1));
        }
    }

    fn press(&self, keys: &[u8]) {
        (&self.keys).write_all(keys).unwrap();
    }

    fn has_echo(&self) -> bool {
        let modes = tcgetattr(&self.screen).unwrap().local_modes;
        modes.contains(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG)
    }
}

#[test]
fn what_ends_the_question_leaves_the_terminal_as_it_was() {
    let home = Home::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let host = format!("ann@{}", listener.local_addr().unwrap());
    let url = format!("ftp://{host}/file");
    for arguments in [&["cp", &url[..], "got"][..], &["ftp", &host]] {
        for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
            let terminal = Terminal::new();
            let mut child = terminal.start(&home, arguments);
            terminal.wait_for_question();
            match signal {
                Signal::INT => terminal.press(CTRL_C),
                signal => send(&child, signal),
            }
            let code = wait(&mut child).code();
            assert_eq!(code, Some(128 + signal.as_raw()), "{arguments:?}");
            assert!(terminal.has_echo(), "{arguments:?}: {signal:?}");
        }
    }
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock, "nobody came");
}

/// A server that takes anybody, and tells what it hears.
fn open_to_all() -> (String, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let host = listener.local_addr().unwrap().to_string();
    let (tell, heard) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let mut replies = stream.try_clone().unwrap();
            let mut reply = |line: &str| replies.write_all(format!("{line}\r\n").as_bytes());
            reply("220 there").unwrap();
            for line in BufReader::new(stream).lines().map_while(Result::ok) {
                let said = match line.split(' ').next().unwrap_or_default() {
                    "FEAT" => "211-F\r\n SIZE\r\n211 E",
                    "USER" => "331 and",
                    "PASS" => "230 in",
                    "PWD" => "257 \"/\"",
                    "AUTH" => "502 no",
                    _ => "200 yes",
                };
                tell.send(line).unwrap();
                if reply(said).is_err() {
                    break;
                }
            }
        }
    });
    (host, heard)
}

#[test]
fn who_thinks_better_of_it_stays_in_the_session() {
    let home = Home::new();
    let (host, heard) = open_to_all();
    let terminal = Terminal::new();
    let mut child = terminal.start(&home, &["ftp", &host]);
    terminal.wait_for("ftp> ");
    terminal.press(b"user ann\r");
    terminal.wait_for_question();
    terminal.press(CTRL_C);
    terminal.wait_for("ftp> ");
    let before: Vec<_> = heard.try_iter().collect();
    assert!(before.contains(&"USER anonymous".to_owned()), "{before:?}");
    assert!(!before.iter().any(|line| line == "USER ann" || line == "QUIT"), "{before:?}");
    terminal.press(b"user ann\r");
    terminal.wait_for_question();
    terminal.press(b"secret\r");
    terminal.wait_for("ftp> ");
    terminal.press(b"bye\r");
    assert_eq!(wait(&mut child).code(), Some(0));
    let after: Vec<_> = heard.try_iter().collect();
    for line in ["USER ann", "PASS secret"] {
        assert!(after.contains(&line.to_owned()), "{after:?}");
    }
    assert!(terminal.has_echo());
}
