//! A server of our own, and a client by hand.
#![allow(dead_code, reason = "each test program uses a part")]

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use ftp::server::{Config, Event, Limits, Server, Users, What};
use ftp::session::Settings;
use net::tcp::Policy;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

pub const PASSWORD: &str = "secret-word";

/// A server for the user ann of a folder of its own.
pub struct Served {
    pub folder: TempDir,
    pub address: SocketAddr,
    pub tls_address: SocketAddr,
    events: Arc<Mutex<Vec<Event>>>,
}

impl Served {
    pub async fn new() -> Self {
        Self::at("127.0.0.1:0", |_| ()).await
    }

    /// Listening there, and set up so.
    pub async fn at(address: &str, set_up: impl FnOnce(&mut Config)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let certificates = tempfile::tempdir().unwrap();
        let (chain, key) = (certificates.path().join("cert"), certificates.path().join("key"));
        ftp::tls::write_self_signed(&chain, &key, vec!["localhost".into()]).unwrap();
        let mut users = Users::default();
        users.set("ann", PASSWORD.as_bytes(), folder.path().to_owned(), true).unwrap();
        let events = Arc::new(Mutex::new(Vec::new()));
        let seen = events.clone();
        let any: SocketAddr = address.parse().unwrap();
        let mut config = Config {
            settings: Settings::default(),
            anonymous: None,
            users,
            read_only: false,
            policy: Policy::default(),
            congestion_control: None,
            passive_ports: None,
            limits: Limits::default(),
            tls: Some(ftp::tls::server(&chain, &key).unwrap()),
            lax_tls_end: false,
            implicit_tls: Some(any),
            observer: Arc::new(move |event| seen.lock().unwrap().push(event.clone())),
        };
        set_up(&mut config);
        let server = Server::bind(any, config).await.unwrap();
        let (address, tls_address) = (server.address().unwrap(), server.tls_address().unwrap());
        tokio::spawn(server.serve(std::future::pending()));
        Self { folder, address, tls_address: tls_address.unwrap(), events }
    }

    pub fn file(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    /// Who has heard nothing yet.
    pub async fn stranger(&self) -> Talk {
        Talk(BufReader::new(TcpStream::connect(self.address).await.unwrap()))
    }

    pub async fn client(&self) -> Talk {
        let mut talk = self.stranger().await;
        assert_eq!(talk.reply().await.0, 220);
        talk
    }

    pub async fn ann(&self) -> Talk {
        let mut talk = self.client().await;
        talk.ask("USER ann").await;
        assert_eq!(talk.ask(&format!("PASS {PASSWORD}")).await.0, 230);
        talk.ask("TYPE I").await;
        talk
    }

    /// The transfers that were told of: whether the client sent the file, over how many connections it
    /// went, and how many carried something.
    pub fn transfers(&self) -> Vec<(bool, usize, usize)> {
        let events = self.events.lock().unwrap();
        let transfer = |event: &Event| match event.what {
            What::Transfer { received, connections, used, .. } => {
                Some((received, connections, used))
            }
            _ => None,
        };
        events.iter().filter_map(transfer).collect()
    }

    pub fn wrong_passwords(&self) -> usize {
        let events = self.events.lock().unwrap();
        events.iter().filter(|event| matches!(event.what, What::WrongPassword(_))).count()
    }
}

/// A control connection, by hand.
pub struct Talk(pub BufReader<TcpStream>);

impl Talk {
    pub async fn say(&mut self, lines: &str) {
        self.0.get_mut().write_all(lines.as_bytes()).await.unwrap();
    }

    /// The last line of the next reply.
    pub async fn reply(&mut self) -> (u16, Vec<u8>) {
        loop {
            let mut line = Vec::new();
            assert!(self.0.read_until(b'\n', &mut line).await.unwrap() > 0, "the server has gone");
            let code = std::str::from_utf8(&line[..3]).ok().and_then(|code| code.parse().ok());
            if let Some(code) = code.filter(|_| line[3] == b' ') {
                return (code, line.trim_ascii_end().to_vec());
            }
        }
    }

    pub async fn ask(&mut self, line: &str) -> (u16, Vec<u8>) {
        self.say(&format!("{line}\r\n")).await;
        self.reply().await
    }

    /// The port that the server names, or its refusal.
    pub async fn port(&mut self) -> Result<u16, u16> {
        let (code, text) = self.ask("EPSV").await;
        let text = String::from_utf8(text).unwrap();
        text.split('|').nth(3).map(|port| port.parse().unwrap()).ok_or(code)
    }

    pub async fn data(&mut self) -> TcpStream {
        let port = self.port().await.unwrap();
        let host = self.0.get_ref().peer_addr().unwrap().ip();
        TcpStream::connect((host, port)).await.unwrap()
    }

    /// What comes with a command.
    pub async fn get(&mut self, command: &str) -> Vec<u8> {
        let mut channel = self.data().await;
        assert_eq!(self.ask(command).await.0, 150, "{command}");
        let mut data = Vec::new();
        channel.read_to_end(&mut data).await.unwrap();
        assert_eq!(self.reply().await.0, 226, "{command}");
        data
    }

    /// Sends data with a command, and gives the closing reply.
    pub async fn put(&mut self, command: &str, data: &[u8]) -> u16 {
        let mut channel = self.data().await;
        let (code, _) = self.ask(command).await;
        if code != 150 {
            return code;
        }
        channel.write_all(data).await.unwrap();
        drop(channel);
        self.reply().await.0
    }
}
