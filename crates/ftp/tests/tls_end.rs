//! An upload under TLS whose client never says `close_notify`.

mod support;

use std::net::SocketAddr;
use std::time::Duration;

use ftp::tls::{MODERN, Trust};
use support::{PASSWORD, Served};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// A client by hand, under TLS from the first byte on.
struct Lax {
    address: SocketAddr,
    connector: TlsConnector,
    control: BufReader<TlsStream<TcpStream>>,
}

impl Lax {
    async fn new(server: &Served) -> Self {
        let trust = Trust { anyone: true, ..Trust::default() };
        let connector = TlsConnector::from(ftp::tls::client(trust, MODERN).unwrap().0);
        let address = server.tls_address;
        let control = BufReader::new(secured(&connector, address).await);
        let mut lax = Self { address, connector, control };
        let login = format!("PASS {PASSWORD}");
        assert!(lax.reply().await.starts_with("220 "));
        for line in ["USER ann", &login, "TYPE I", "PBSZ 0", "PROT P"] {
            lax.ask(line).await;
        }
        lax
    }

    async fn reply(&mut self) -> String {
        let mut line = String::new();
        self.control.read_line(&mut line).await.unwrap();
        line
    }

    async fn ask(&mut self, line: &str) -> String {
        let stream = self.control.get_mut();
        stream.write_all(format!("{line}\r\n").as_bytes()).await.unwrap();
        stream.flush().await.unwrap();
        self.reply().await
    }

    /// Puts a file, and closes the data connection as if there were no TLS.
    async fn put(&mut self, name: &str) {
        let said = self.ask("EPSV").await;
        let port = said.split('|').nth(3).unwrap().parse().unwrap();
        let said = self.ask(&format!("STOR {name}")).await;
        assert!(said.starts_with("150 "), "{said}");
        let mut data = secured(&self.connector, SocketAddr::new(self.address.ip(), port)).await;
        data.write_all(b"content").await.unwrap();
        data.flush().await.unwrap();
        drop(data.into_inner().0);
    }
}

async fn secured(connector: &TlsConnector, address: SocketAddr) -> TlsStream<TcpStream> {
    let stream = TcpStream::connect(address).await.unwrap();
    connector.connect("localhost".try_into().unwrap(), stream).await.unwrap()
}

#[tokio::test]
async fn it_is_a_cut_that_says_why() {
    let server = Served::new().await;
    let mut lax = Lax::new(&server).await;
    lax.put("name").await;
    let said = lax.reply().await;
    assert!(said.starts_with("426 ") && said.contains("close_notify"), "{said}");
    assert!(!server.file("name").exists());
    assert_eq!(std::fs::read(server.file(".name.longhaul.part")).unwrap(), b"content");
}

#[tokio::test]
async fn it_is_whole_where_the_operator_says_so() {
    let server = Served::at("127.0.0.1:0", |config| config.lax_tls_end = true).await;
    let mut lax = Lax::new(&server).await;
    lax.put("name").await;
    let said = lax.reply().await;
    assert!(said.starts_with("226 "), "{said}");
    assert_eq!(std::fs::read(server.file("name")).unwrap(), b"content");
    // But not of a client that died: its control connection ends too.
    lax.put("other").await;
    drop(lax);
    while server.transfers().len() < 2 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(!server.file("other").exists());
}
