//! `longhaul cp` where the connection with an FTP server is lost in the middle of a file: it connects again,
//! and goes on where it was.

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use support::{Home, bytes, text};

const SIZE: usize = 3_000_000;
/// What passes before the first connection is lost.
const HALF: usize = 1_500_000;

/// What a server knows: the file, if there is one, and what it was told.
#[derive(Default)]
struct Known {
    file: Option<Vec<u8>>,
    heard: Vec<String>,
}

/// A server that knows nothing of checksums, and loses its first `losses` clients in the middle of data.
fn flaky(file: Option<Vec<u8>>, losses: usize) -> (u16, Arc<Mutex<Known>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let known = Arc::new(Mutex::new(Known { file, heard: Vec::new() }));
    let seen = known.clone();
    std::thread::spawn(move || {
        for client in 0.. {
            let (stream, _) = listener.accept().unwrap();
            serve(stream, &seen, client < losses);
        }
    });
    (port, known)
}

fn serve(mut stream: TcpStream, known: &Mutex<Known>, loses: bool) {
    let data = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = data.local_addr().unwrap().port();
    let lines = BufReader::new(stream.try_clone().unwrap()).lines();
    let mut from = 0;
    let _ = stream.write_all(b"220 there\r\n");
    for line in lines.map_while(Result::ok) {
        known.lock().unwrap().heard.push(line.clone());
        let (verb, argument) = line.split_once(' ').unwrap_or((&line, ""));
        let size = known.lock().unwrap().file.as_ref().map(Vec::len);
        let reply = match verb {
            "FEAT" => "211-F\r\n SIZE\r\n MDTM\r\n211 E".to_owned(),
            "USER" => "331 and".to_owned(),
            "PASS" => "230 in".to_owned(),
            "CWD" => "550 no directory".to_owned(),
            "PWD" => "257 \"/\"".to_owned(),
            "EPSV" => format!("229 (|||{port}|)"),
            "SIZE" => size.map_or("550 none".to_owned(), |size| format!("213 {size}")),
            "MDTM" if size.is_some() => "213 20200102030405".to_owned(),
            "MDTM" => "550 none".to_owned(),
            "REST" => {
                from = argument.parse().unwrap();
                "350 from there".to_owned()
            }
            "RETR" => {
                stream.write_all(b"150 goes\r\n").unwrap();
                let (mut data, _) = data.accept().unwrap();
                let file = known.lock().unwrap().file.clone().unwrap();
                let end = if loses { HALF } else { file.len() };
                let _ = data.write_all(&file[from..end.max(from)]);
                if loses {
                    return;
                }
                "226 whole".to_owned()
            }
            "STOR" => {
                stream.write_all(b"150 goes\r\n").unwrap();
                let (mut data, _) = data.accept().unwrap();
                let mut file = known.lock().unwrap().file.take().unwrap_or_default();
                file.truncate(from);
                let most = if loses { HALF - from } else { SIZE * 2 };
                let _ = (&mut data).take(most as u64).read_to_end(&mut file);
                known.lock().unwrap().file = Some(file);
                if loses {
                    return;
                }
                "226 whole".to_owned()
            }
            _ => "200 yes".to_owned(),
        };
        if stream.write_all(format!("{reply}\r\n").as_bytes()).is_err() {
            return;
        }
    }
}

/// The numbers that clients said to begin at.
fn resumed(known: &Mutex<Known>) -> Vec<usize> {
    let known = known.lock().unwrap();
    known.heard.iter().filter_map(|line| line.strip_prefix("REST ")?.parse().ok()).collect()
}

#[test]
fn a_download_goes_on_after_a_loss() {
    let home = Home::new();
    let (port, known) = flaky(Some(bytes(SIZE)), 1);
    let url = format!("ftp://127.0.0.1:{port}/file");
    let output = home.longhaul(&["cp", &url, "got"]).output().unwrap();
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("connecting again") && said.contains("going on with"), "{said}");
    assert!(std::fs::read(home.path("got")).unwrap() == bytes(SIZE));
    let from = resumed(&known);
    assert!(matches!(from[..], [from] if 0 < from && from <= HALF), "{from:?}");
}

#[test]
fn an_upload_goes_on_after_a_loss() {
    let home = Home::new();
    home.file("file", SIZE);
    let (port, known) = flaky(None, 1);
    let url = format!("ftp://127.0.0.1:{port}/there");
    let output = home.longhaul(&["cp", "file", &url]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(known.lock().unwrap().file.as_deref() == Some(&bytes(SIZE)[..]));
    assert_eq!(resumed(&known), [HALF]);
}

/// What stood there before is no beginning of what is put.
#[test]
fn an_upload_over_another_file_begins_anew() {
    let home = Home::new();
    home.file("file", SIZE);
    let (port, known) = flaky(Some(vec![7; 1000]), 1);
    let url = format!("ftp://127.0.0.1:{port}/there");
    let output = home.longhaul(&["cp", "file", &url]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(known.lock().unwrap().file.as_deref() == Some(&bytes(SIZE)[..]));
    assert!(resumed(&known).is_empty());
}

#[test]
fn losses_that_bring_nothing_come_to_an_end() {
    let home = Home::new();
    let (port, known) = flaky(Some(bytes(SIZE)), usize::MAX);
    let url = format!("ftp://127.0.0.1:{port}/file");
    home.fail(1, &["cp", &url, "got"]);
    let begun = known.lock().unwrap().heard.iter().filter(|line| *line == "RETR file").count();
    assert!((4..=6).contains(&begun), "{begun}");
    assert!(!home.path("got").exists());
}
