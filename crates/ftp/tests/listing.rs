//! Directories of servers without MLSD, some of which cannot be told to list dot files.

use ftp::client::{Client, ClientError, Options};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;

const FILE: &str = "total 4\r\n-rw-r--r-- 1 u g 4 Jan  1  2020 a\r\n";
const EMPTY: &str = "total 8\r\ndrwxr-xr-x 2 u g 4096 Jan  1  2020 .\r\n\
                     drwxr-xr-x 2 u g 4096 Jan  1  2020 ..\r\n";

/// Serves one client, and gives the listings that it asked for. What it says to LIST -a, first, second and
/// so on, is a reply or a listing; any other is of one file.
async fn serve(listener: TcpListener, all: &[&str]) -> Vec<String> {
    let (stream, _) = listener.accept().await.unwrap();
    let (reader, mut writer) = stream.into_split();
    let mut lines = BufReader::new(reader).lines();
    writer.write_all(b"220 there\r\n").await.unwrap();
    let (mut data, mut asked) = (None, Vec::new());
    let mut all = all.iter().copied();
    while let Ok(Some(line)) = lines.next_line().await {
        let reply = match line.split(' ').next().unwrap_or_default() {
            "USER" => "331 and".to_owned(),
            "PASS" => "230 in".to_owned(),
            "SYST" => "215 UNIX Type: L8".to_owned(),
            "EPSV" => {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                let port = listener.local_addr().unwrap().port();
                data = Some(listener);
                format!("229 (|||{port}|)")
            }
            "LIST" => {
                let text = if line.starts_with("LIST -a ") { all.next().unwrap() } else { FILE };
                asked.push(line);
                let (mut data, _) = data.take().unwrap().accept().await.unwrap();
                if text.starts_with(|first: char| first.is_ascii_digit()) {
                    text.to_owned()
                } else {
                    writer.write_all(b"150 goes\r\n").await.unwrap();
                    data.write_all(text.as_bytes()).await.unwrap();
                    "226 went".to_owned()
                }
            }
            _ => "200 yes".to_owned(),
        };
        writer.write_all(format!("{reply}\r\n").as_bytes()).await.unwrap();
    }
    asked
}

/// How many files were found in each directory, and what was asked for that.
async fn listed(
    all: &'static [&str],
    directories: &[&str],
) -> (Vec<Result<usize, ClientError>>, Vec<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let served = tokio::spawn(serve(listener, all));
    let mut client = Client::connect("localhost", address, Options::default()).await.unwrap();
    client.log_in("anonymous", "x").await.unwrap();
    let mut found = Vec::new();
    for directory in directories {
        let listing = client.list(directory.as_bytes()).await;
        found.push(listing.map(|listing| listing.entries.len()));
    }
    drop(client);
    (found, served.await.unwrap())
}

#[tokio::test]
async fn an_option_that_is_taken_for_a_name_hides_nothing() {
    for all in [&["total 0\r\n"], &["-a d: not found\r\n"], &["425 no"], &["426 no"]] {
        let (found, asked) = listed(all, &["d"]).await;
        assert!(matches!(found[..], [Ok(1)]), "{all:?} {found:?}");
        assert_eq!(asked, ["LIST -a d", "LIST d"]);
    }
}

#[tokio::test]
async fn an_option_that_is_refused_is_not_tried_again() {
    let (found, asked) = listed(&["501 no"], &["d", "e"]).await;
    assert!(matches!(found[..], [Ok(1), Ok(1)]), "{found:?}");
    assert_eq!(asked, ["LIST -a d", "LIST d", "LIST e"]);
}

#[tokio::test]
async fn an_option_that_was_taken_once_is_known() {
    let (found, asked) = listed(&[EMPTY, "426 cut"], &["d", "e"]).await;
    assert!(matches!(&found[..], [Ok(0), Err(error)] if error.is_loss()), "{found:?}");
    assert_eq!(asked, ["LIST -a d", "LIST -a e"]);
}

#[tokio::test]
async fn a_path_that_looks_like_an_option_goes_without() {
    let (found, asked) = listed(&[], &["-d", " d"]).await;
    assert!(matches!(found[..], [Ok(1), Ok(1)]), "{found:?}");
    assert_eq!(asked, ["LIST -d", "LIST  d"]);
}
