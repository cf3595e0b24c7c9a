//! `longhaul ftp` and `cp` where a server lists what is not to be taken.

mod support;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};

use support::{Home, finish, start, text};

const REFUSED: &str = "refused";

/// What a server says to LIST and to LIST -a.
type Listings = [&'static str; 2];

/// A server on Unix of one client, whose only directory holds what it lists, all of it the same small file.
fn server(listings: Listings) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || serve(listener.accept().unwrap().0, listings));
    port
}

fn serve(mut stream: TcpStream, [listing, all]: Listings) {
    let listen = || TcpListener::bind("127.0.0.1:0").unwrap();
    let mut data = listen();
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
            "EPSV" => {
                data = listen();
                format!("229 (|||{}|)", data.local_addr().unwrap().port())
            }
            "SYST" => "215 UNIX Type: L8".to_owned(),
            "LIST" if argument == "-a" && all == REFUSED => "501 no options".to_owned(),
            "LIST" | "RETR" => {
                stream.write_all(b"150 goes\r\n").unwrap();
                let (mut data, _) = data.accept().unwrap();
                let text = match (verb, argument) {
                    ("LIST", "-a") => all,
                    ("LIST", _) => listing,
                    _ => "data",
                };
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
fn run(home: &Home, listings: Listings, line: &str) -> (Option<i32>, String) {
    fs::write(home.path("script"), format!("lcd in\n{line}\n")).unwrap();
    home.folder("in");
    let url = format!("ftp://127.0.0.1:{}/", server(listings));
    let mut command = home.longhaul(&["ftp", &url]);
    let output = finish(start(command.stdin(fs::File::open(home.path("script")).unwrap())));
    (output.status.code(), text(&output.stderr))
}

#[test]
fn patterns_take_no_parts() {
    const LISTING: &str = "-rw-r--r-- 1 u g 4 Jan  1  2020 .a\r\n\
                           -rw-r--r-- 1 u g 4 Jan  1  2020 .a.longhaul.part\r\n";
    let home = Home::new();
    let (code, said) = run(&home, [LISTING, REFUSED], "mget .*");
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(support::names(&home.path("in")), [".a"]);
}

/// vsftpd leaves them out of LIST; other servers do not know -a, or take it for a name.
#[test]
fn dot_files_are_listed_where_the_server_can() {
    const SOME: &str = "total 4\r\n-rw-r--r-- 1 u g 4 Jan  1  2020 a\r\n";
    const ALL: &str = "total 4\r\n\
                       drwxr-xr-x 2 u g 4096 Jan  1  2020 .\r\n\
                       drwxr-xr-x 2 u g 4096 Jan  1  2020 ..\r\n\
                       -rw-r--r-- 1 u g 4 Jan  1  2020 .hidden\r\n\
                       -rw-r--r-- 1 u g 4 Jan  1  2020 a\r\n";
    for (all, found) in [(ALL, &[".hidden", "a"][..]), (REFUSED, &["a"]), ("", &["a"])] {
        let home = Home::new();
        let url = format!("ftp://127.0.0.1:{}/", server([SOME, all]));
        let output = home.longhaul(&["cp", &url, "got/"]).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        let mut names = support::names(&home.path("got"));
        names.sort();
        assert_eq!(names, found);
    }
}

#[test]
fn a_line_that_cannot_be_read_is_a_failure() {
    const LISTING: &str = "-rw-r--r-- 1 u g 4 2020-01-01 00:00 dated\r\n\
                           -rw-r--r-- 1 u g 4 Jan  1  2020 a\r\n";
    let home = Home::new();
    let url = format!("ftp://127.0.0.1:{}/", server([LISTING, REFUSED]));
    let said = home.fail(3, &["cp", &url, "got/"]);
    assert!(said.contains("listing cannot be read") && said.contains("dated"), "{said}");
    assert_eq!(support::names(&home.path("got")), ["a"]);
    for line in ["mget a", "mdelete a", "mget none", "mdelete none"] {
        let (code, said) = run(&home, [LISTING, REFUSED], line);
        assert!(code == Some(1) && said.contains("dated"), "{line}: {said}");
    }
}
