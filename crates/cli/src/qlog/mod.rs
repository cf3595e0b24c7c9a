//! `--qlog DIR`: a file for each connection that says what it did, packet by packet, in qlog 0.3
//! (draft-ietf-quic-qlog-main-schema-02, draft-ietf-quic-qlog-quic-events-01) as JSON text
//! sequences, which qvis and other viewers of QUIC's logs open. `events` tells our packets in
//! QUIC's words; this file writes them.

mod events;

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use net::udp::{Tracer, UdpConnection};
use serde_json::{Value, json};
use transport::Side;
use transport::trace::Record;
use units::Instant;

/// How often the records are fetched: well before there are more than a connection keeps.
const EVERY: Duration = Duration::from_millis(20);
/// What stands before each JSON text (RFC 7464).
const SEPARATOR: u8 = 0x1e;

/// Where logs are written, if anywhere.
#[derive(Clone, Debug)]
pub struct Qlog(Option<PathBuf>);

impl Qlog {
    /// Logs go to `directory`, which is made.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn to(directory: Option<&Path>) -> anyhow::Result<Self> {
        if let Some(directory) = directory {
            let shown = directory.display();
            fs::create_dir_all(directory).with_context(|| format!("cannot write to {shown}"))?;
        }
        Ok(Self(directory.map(Path::to_owned)))
    }

    /// Whether connections are to be traced.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Writes down what the connection does until it has ended, on a thread of its own for which
    /// the runtime waits. A log that cannot be written costs a word, and no transfer.
    pub fn watch(&self, connection: &UdpConnection, local: SocketAddr) {
        let Some(directory) = self.0.clone() else { return };
        let (tracer, peer) = (connection.tracer(), connection.address());
        tokio::task::spawn_blocking(move || {
            let written = Log::begin(&directory, &tracer, (local, peer)).and_then(Log::follow);
            if let Err(error) = written {
                tell!("longhaul: no qlog in {}: {error}", directory.display());
            }
        });
    }
}

/// A file being written.
struct Log<'a> {
    tracer: &'a Tracer,
    out: BufWriter<File>,
    ends: (SocketAddr, SocketAddr),
    /// When the first record was made; the log's times count from there.
    start: Option<Instant>,
    events: events::Events,
}

impl<'a> Log<'a> {
    fn begin(
        directory: &Path,
        tracer: &'a Tracer,
        ends: (SocketAddr, SocketAddr),
    ) -> io::Result<Self> {
        let name = format!(
            "{}-{:08x}-{}.sqlog",
            net::clock::wall().as_secs(),
            tracer.number(),
            vantage(tracer.side())
        );
        let file = File::create_new(directory.join(name))?;
        let events = events::Events::default();
        Ok(Self { tracer, out: BufWriter::new(file), ends, start: None, events })
    }

    fn follow(mut self) -> io::Result<()> {
        let mut records = Vec::new();
        loop {
            let (over, dropped) = self.tracer.take(&mut records);
            for record in records.drain(..) {
                self.write(&record)?;
            }
            if dropped > 0 {
                let message = format!("{dropped} events are left out: the disk is too slow");
                let time = self.events.latest();
                let data = json!({ "message": message });
                self.put(&json!({ "time": time, "name": "loglevel:warning", "data": data }))?;
            }
            if over {
                return self.out.flush();
            }
            std::thread::sleep(EVERY);
        }
    }

    fn write(&mut self, record: &Record) -> io::Result<()> {
        let start = match self.start {
            Some(start) => start,
            None => {
                self.start = Some(record.at);
                self.head(record.at)?;
                record.at
            }
        };
        for event in self.events.of(record, start) {
            self.put(&event)?;
        }
        Ok(())
    }

    /// What comes before the first event, and that.
    fn head(&mut self, start: Instant) -> io::Result<()> {
        let ago = net::clock::now().since(start);
        let reference = net::clock::wall().saturating_sub(ago);
        let number = format!("{:08x}", self.tracer.number());
        let (local, peer) = self.ends;
        self.put(&json!({
            "qlog_format": "JSON-SEQ",
            "qlog_version": "0.3",
            "title": "longhaul",
            "trace": {
                "title": format!("longhaul with {peer}"),
                "vantage_point": { "name": "longhaul", "type": vantage(self.tracer.side()) },
                "common_fields": {
                    "ODCID": number,
                    "protocol_type": ["QUIC"],
                    "time_format": "relative",
                    "reference_time": reference.as_secs_f64() * 1e3,
                },
            },
        }))?;
        let ip = |end: SocketAddr| end.ip().to_canonical();
        let version = if ip(peer).is_ipv4() { "ipv4" } else { "ipv6" };
        let data = json!({
            "ip_version": version,
            "src_ip": ip(local).to_string(),
            "src_port": local.port(),
            "dst_ip": ip(peer).to_string(),
            "dst_port": peer.port(),
            "protocol": "longhaul",
            "src_cid": number,
        });
        self.put(&json!({ "time": 0.0, "name": "connectivity:connection_started", "data": data }))
    }

    fn put(&mut self, text: &Value) -> io::Result<()> {
        self.out.write_all(&[SEPARATOR])?;
        serde_json::to_writer(&mut self.out, text)?;
        self.out.write_all(b"\n")
    }
}

fn vantage(side: Side) -> &'static str {
    match side {
        Side::Initiator => "client",
        Side::Responder => "server",
    }
}
