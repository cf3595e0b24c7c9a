//! `longhaul ftp` and `cp` where a server lists what is not to be taken.

mod support;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};

use support::{Home, finish, start, text};

/// A server of one client whose only directory holds what `listing` says, all of it the same small file.
fn server(listing: &'static str) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || serve(listener.accept().unwrap().0, listing));
    port
}

fn serve(mut stream: TcpStream, listing: &str) {
    let data = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = data.local_addr().unwrap().port();
    let lines = BufReader::new(stream.try_clone().unwrap()).lines();
    let _ = stream.write_all(b"220 there\r\n");
    for line in lines.map_while(Result::ok) {
        let (verb, argument) = line.split_once(' ').unwrap_or((&line, ""));
        let reply = match verb {
            "USER" => "331 and".to_owned(),
            "PASS" => "230 in".to_owned(),
            "PWD" => "257 \"/\"".to_owned(),
            "CWD" if argument != "/" => "550 no directory".to_owned(),
            "SIZE" => "213 4".to_owned(),
            "EPSV" => format!("229 (|||{port}|)"),
            "LIST" | "RETR" => {
                stream.write_all(b"150 goes\r\n").unwrap();
                let (mut data, _) = data.accept().unwrap();
                let text = if verb == "LIST" { listing } else { "data" };
                data.write_all(text.as_bytes()).unwrap();
                "226 went".to_owned()
            }
            _ => "200 yes".to_owned(),
        };
        if stream.write_all(format!("{reply}\r\n").as_bytes()).is_err() {
            return;
        }
    }
}

/// Runs a line of `longhaul ftp` in the folder `in`; its exit code, and what it said.
fn run(home: &Home, listing: &'static str, line: &str) -> (Option<i32>, String) {
    fs::write(home.path("script"), format!("lcd in\n{line}\n")).unwrap();
    home.folder("in");
    let url = format!("ftp://127.0.0.1:{}/", server(listing));
    let mut command = home.longhaul(&["ftp", &url]);
    let output = finish(start(command.stdin(fs::File::open(home.path("script")).unwrap())));
    (output.status.code(), text(&output.stderr))
}

#[test]
fn patterns_take_no_parts() {
    const LISTING: &str = "-rw-r--r-- 1 u g 4 Jan  1  2020 .a\r\n\
                           -rw-r--r-- 1 u g 4 Jan  1  2020 .a.longhaul.part\r\n";
    let home = Home::new();
    let (code, said) = run(&home, LISTING, "mget .*");
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(support::names(&home.path("in")), [".a"]);
}
