//! A page for browsers, the status behind it, metrics, and a dashboard of these for Grafana: four
//! paths of HTTP/1.1, to read.

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use super::{Book, Names, metrics};

const PAGE: &str = include_str!("page.html");
const DASHBOARD: &str = include_str!("dashboard.json");
const PATHS: &str = "/, /status.json, /metrics, /dashboard.json\n";
/// The longest head of a request.
const MAX_HEAD: usize = 8 << 10;
const MAX_HEADERS: usize = 64;
/// Visitors at a time.
const MAX_VISITORS: usize = 64;
/// How long one may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Serves visitors, without end.
///
/// # Errors
/// When the address cannot be used.
pub(crate) async fn run(listen: SocketAddr, book: Book, names: Names) -> io::Result<Infallible> {
    let listener = TcpListener::bind(listen).await?;
    let room = Arc::new(Semaphore::new(MAX_VISITORS));
    loop {
        let place = room.clone().acquire_owned().await.map_err(io::Error::other)?;
        // One that is gone already is no failure of the listener.
        let Ok((visitor, _)) = listener.accept().await else {
            sleep(crate::BREATH).await;
            continue;
        };
        let (book, names) = (book.clone(), names.clone());
        tokio::spawn(async move {
            let _ = timeout(PATIENCE, serve(visitor, &book, &names)).await;
            drop(place);
        });
    }
}

/// One request a connection: nobody asks more than once a second.
async fn serve(mut visitor: TcpStream, book: &Book, names: &Names) -> io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() >= MAX_HEAD || visitor.read_buf(&mut head).await? == 0 {
            return Ok(());
        }
    }
    visitor.write_all(&answer(&head, book, names).await?).await?;
    visitor.shutdown().await
}

pub(crate) async fn answer(head: &[u8], book: &Book, names: &Names) -> io::Result<Vec<u8>> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    let whole = request.parse(head).is_ok_and(|status| status.is_complete());
    let host = request.headers.iter().find(|header| header.name.eq_ignore_ascii_case("host"));
    let host = host.and_then(|header| str::from_utf8(header.value).ok()).unwrap_or_default();
    Ok(match (request.method, request.path) {
        _ if !whole => response("400 Bad Request", "text/plain", "That is no HTTP/1.1.\n"),
        _ if !is_address(host) => {
            response("421 Misdirected Request", "text/plain", "Come by this host's address.\n")
        }
        (Some("GET"), Some("/")) => response("200 OK", "text/html; charset=utf-8", PAGE),
        (Some("GET"), Some("/status.json")) => {
            let mut status = book.status().await;
            names.fill(&mut status).await;
            let text = serde_json::to_string(&status).map_err(io::Error::other)?;
            response("200 OK", "application/json", &text)
        }
        (Some("GET"), Some("/metrics")) => {
            response("200 OK", "text/plain; version=0.0.4", &metrics::text(&book.status().await))
        }
        (Some("GET"), Some("/dashboard.json")) => response("200 OK", "application/json", DASHBOARD),
        (Some("GET"), _) => response("404 Not Found", "text/plain", PATHS),
        _ => response("405 Method Not Allowed", "text/plain", "There is nothing but GET.\n"),
    })
}

/// A name could be anybody's, who has it point to this host so that pages of his may read what is
/// here (DNS rebinding).
fn is_address(host: &str) -> bool {
    let bare = host.strip_prefix("localhost");
    let local = bare.is_some_and(|port| port.is_empty() || port.starts_with(':'));
    let inner = host.trim_start_matches('[').trim_end_matches(']');
    local || host.parse::<SocketAddr>().is_ok() || inner.parse::<IpAddr>().is_ok()
}

fn response(status: &str, kind: &str, body: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\
         Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n\
         Content-Security-Policy: default-src 'none'; connect-src 'self'; \
         script-src 'unsafe-inline'; style-src 'unsafe-inline'\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trunk::Trunk;

    async fn asked(line: &str, host: &str) -> String {
        let head = format!("{line} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let book = Book::new(Trunk::default());
        let answer = answer(head.as_bytes(), &book, &Names::none()).await.unwrap();
        String::from_utf8(answer).unwrap()
    }

    #[tokio::test]
    async fn a_page_a_status_and_metrics_are_there_to_read() {
        assert!(asked("GET /", "127.0.0.1:7275").await.contains("<!doctype html>"));
        let status = asked("GET /status.json", "[::1]:7275").await;
        let (head, body) = status.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("Content-Length: {}", body.len())));
        let status: super::super::Status = serde_json::from_str(body).unwrap();
        assert_eq!((status.open, status.trunk.state), (0, super::super::TrunkState::Down));
        assert!(asked("GET /metrics", "localhost").await.contains("longhaul_gateway_trunk_up 0\n"));
        assert!(asked("GET /etc", "::1").await.starts_with("HTTP/1.1 404"));
        assert!(asked("POST /", "127.0.0.1").await.starts_with("HTTP/1.1 405"));
        assert!(asked("nonsense", "127.0.0.1").await.starts_with("HTTP/1.1 400"));
    }

    #[tokio::test]
    async fn other_names_of_this_host_are_not_served() {
        for host in ["evil.example", "evil.example:7275", "localhost.evil.example", ""] {
            assert!(asked("GET /status.json", host).await.starts_with("HTTP/1.1 421"), "{host}");
        }
    }
}
