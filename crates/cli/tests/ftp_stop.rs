//! Our FTP client where there is nothing to wait for: signals end it, and what it cannot do it refuses.

mod support;

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::process::Stdio;
use std::sync::mpsc::{Receiver, channel};

use rustix::process::Signal;
use support::{Home, finish, send, start, text};

/// A server that never answers one command, and says when it has come; and its port.
fn mute(command: &'static str) -> (u16, Receiver<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (tell, told) = channel();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let lines = BufReader::new(stream.try_clone().unwrap()).lines();
        stream.write_all(b"220 there\r\n").unwrap();
        for line in lines.map_while(Result::ok) {
            let verb = line.split(' ').next().unwrap_or_default();
            let reply = match verb {
                _ if verb == command => {
                    tell.send(()).unwrap();
                    continue;
                }
                "FEAT" => "211-F\r\n MLST size;\r\n211 E",
                "PASS" => "230 in",
                "USER" => "331 and",
                _ => "200 yes",
            };
            stream.write_all(format!("{reply}\r\n").as_bytes()).unwrap();
        }
    });
    (port, told)
}

#[test]
fn ctrl_c_ends_the_wait_for_any_reply() {
    for command in ["FEAT", "PASS", "MLST", "EPSV"] {
        let home = Home::new();
        let (port, heard) = mute(command);
        let url = format!("ftp://127.0.0.1:{port}/file");
        // What is put there is looked for first too.
        let (from, to) =
            if command == "EPSV" { ("home/identity", &url[..]) } else { (&url[..], "got") };
        let child = start(&mut home.longhaul(&["cp", from, to]));
        heard.recv().unwrap();
        send(&child, Signal::INT);
        let output = finish(child);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(130), "{command}: {said}");
        assert!(said.contains("stopped"), "{command}: {said}");
    }
}

#[test]
fn ctrl_c_ends_any_command_of_a_script() {
    let home = Home::new();
    let (port, heard) = mute("MKD");
    let mut command = home.longhaul(&["ftp", &format!("ftp://127.0.0.1:{port}/")]);
    let mut child = start(command.stdin(Stdio::piped()));
    child.stdin.take().unwrap().write_all(b"mkdir new\nmkdir other\n").unwrap();
    heard.recv().unwrap();
    send(&child, Signal::TERM);
    let output = finish(child);
    assert_eq!(output.status.code(), Some(143), "{}", text(&output.stderr));
    assert!(heard.recv().is_err(), "no more was asked for");
}

#[test]
fn ctrl_c_ends_a_session_that_waits_for_a_command() {
    let home = Home::new();
    let (port, _heard) = mute("nothing");
    let mut command = home.longhaul(&["ftp", &format!("ftp://127.0.0.1:{port}/")]);
    let mut child = start(command.stdin(Stdio::piped()));
    let mut input = child.stdin.take().unwrap();
    input.write_all(b"lpwd\n").unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap());
    assert!(said.read_line(&mut String::new()).unwrap() > 1);
    child.stdout = Some(said.into_inner());
    send(&child, Signal::INT);
    assert_eq!(finish(child).status.code(), Some(130));
    drop(input);
}

#[test]
fn what_says_nothing_by_ftp_is_refused() {
    let home = Home::new();
    let url = "ftp://127.0.0.1:1/file";
    for (option, words) in [
        (&["--rate-limit", "1mbit"][..], "--rate-limit goes with"),
        (&["--background"], "--background goes with"),
        (&["--cc", "cubic"], "--cc goes with [USER@]HOST:PATH and lh://; TCP's is --tcp-cc"),
        (&["--transport", "tcp"], "--transport goes with"),
        (&["--owner"], "--owner goes with"),
        (&["--qlog", "."], "--qlog goes with"),
        (&["--no-compress"], "--no-compress goes with"),
        (&["--exclude", "*.o"], "--exclude goes with"),
        (&["--streams", "4"], "FTP's is --ftp-streams"),
        (&["--accept-new"], "FTP's is --ftp-accept-new"),
        (&["--key", "file"], "--key goes with"),
    ] {
        let said = home.fail(2, &[&["cp"], option, &[url, "."]].concat());
        assert!(said.contains(words), "{option:?}: {said}");
    }
    for places in [["-", url], [url, "-"]] {
        let said = home.fail(2, &[&["cp"], &places[..]].concat());
        assert!(said.contains("standard input and output do not go with ftp://"), "{said}");
    }
    assert!(!home.path("-").exists());
}

#[test]
fn a_congestion_control_that_the_kernel_has_not_is_told() {
    let home = Home::new();
    let (port, _heard) = mute("USER");
    let url = format!("ftp://127.0.0.1:{port}/file");
    let said = home.fail(1, &["cp", "--tcp-cc", "nonsense", &url, "."]);
    assert!(said.contains("does not offer the congestion control 'nonsense'"), "{said}");
}
