//! quinn as a peer of `cargo xtask bench transport`: one stream, as fast as it goes.
//!
//! `receive ADDR` takes one connection and writes a line `SECONDS BYTES` every half second, counted
//! from its beginning. `send ADDR cubic|bbr SECONDS` fills it.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use quinn::congestion::{BbrConfig, ControllerFactory, CubicConfig};
use quinn::crypto::rustls::QuicClientConfig;
use quinn::{ClientConfig, Endpoint, ServerConfig, TransportConfig, VarInt};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, Error, SignatureScheme};

/// Windows as large as every other peer's, in bytes.
const WINDOW: u32 = 256_000_000;
const TICK: Duration = Duration::from_millis(500);

#[tokio::main]
async fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["receive", address] => receive(address.parse()?).await,
        ["send", address, cc, seconds] => {
            send(address.parse()?, cc, Duration::from_secs(seconds.parse()?)).await
        }
        _ => bail!("receive ADDR | send ADDR cubic|bbr SECONDS"),
    }
}

async fn receive(address: SocketAddr) -> Result<()> {
    let own = rcgen::generate_simple_self_signed(["peer".to_owned()])?;
    let key = PrivatePkcs8KeyDer::from(own.signing_key.serialize_der());
    let mut config = ServerConfig::with_single_cert(vec![own.cert.into()], key.into())?;
    config.transport_config(transport("cubic")?);
    let endpoint = Endpoint::server(config, address)?;
    let connection = endpoint.accept().await.context("the endpoint was closed")?.await?;
    let start = Instant::now();
    let count = Arc::new(AtomicU64::new(0));
    tokio::spawn({
        let count = Arc::clone(&count);
        async move {
            let mut ticks = tokio::time::interval(TICK);
            loop {
                ticks.tick().await;
                println!("{:.3} {}", start.elapsed().as_secs_f64(), count.load(Ordering::Relaxed));
            }
        }
    });
    let mut stream = connection.accept_uni().await?;
    while let Some(chunk) = stream.read_chunk(usize::MAX, true).await? {
        count.fetch_add(chunk.bytes.len() as u64, Ordering::Relaxed);
    }
    Ok(())
}

async fn send(address: SocketAddr, cc: &str, time: Duration) -> Result<()> {
    let crypto = rustls::ClientConfig::builder()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anyone))
        .with_no_client_auth();
    let mut config = ClientConfig::new(Arc::new(QuicClientConfig::try_from(crypto)?));
    config.transport_config(transport(cc)?);
    let mut endpoint = Endpoint::client((Ipv4Addr::UNSPECIFIED, 0).into())?;
    endpoint.set_default_client_config(config);
    let connection = endpoint.connect(address, "peer")?.await?;
    let mut stream = connection.open_uni().await?;
    let block = vec![0; 1 << 20];
    let end = Instant::now() + time;
    while Instant::now() < end {
        // A window that never opens again must not hold the benchmark.
        if tokio::time::timeout_at(end.into(), stream.write_all(&block)).await.is_err() {
            break;
        }
    }
    connection.close(VarInt::from_u32(0), b"time is up");
    endpoint.wait_idle().await;
    Ok(())
}

fn transport(cc: &str) -> Result<Arc<TransportConfig>> {
    let factory: Arc<dyn ControllerFactory + Send + Sync> = match cc {
        "cubic" => Arc::new(CubicConfig::default()),
        "bbr" => Arc::new(BbrConfig::default()),
        other => bail!("no congestion control is called {other}"),
    };
    let mut config = TransportConfig::default();
    config.stream_receive_window(WINDOW.into()).receive_window(WINDOW.into());
    config.send_window(WINDOW.into()).congestion_controller_factory(factory);
    Ok(Arc::new(config))
}

/// Accepts any certificate: the benchmark's network is its own.
#[derive(Debug)]
struct Anyone;

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("QUIC has no TLS 1.2".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        rustls::crypto::ring::default_provider()
            .signature_verification_algorithms
            .supported_schemes()
    }
}
