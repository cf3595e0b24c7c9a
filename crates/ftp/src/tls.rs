//! TLS for both ends: certificates, and who is trusted.

use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

pub use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::crypto::{
    CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature,
};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::version::TLS12;
use tokio_rustls::rustls::{
    ALL_VERSIONS, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    SupportedProtocolVersion,
};

use crate::hash::{Algorithm, hex};

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// A server's side, with the certificate chain and key of two PEM files.
///
/// # Errors
/// When a file cannot be read or the two do not belong together.
pub fn server(chain: &Path, key: &Path) -> io::Result<Arc<ServerConfig>> {
    let bad = |path: &Path, error: &dyn std::fmt::Display| {
        io::Error::new(io::ErrorKind::InvalidData, format!("{}: {error}", path.display()))
    };
    let chain_read: Vec<_> = CertificateDer::pem_file_iter(chain)
        .and_then(Iterator::collect)
        .map_err(|error| bad(chain, &error))?;
    let key_read = PrivateKeyDer::from_pem_file(key).map_err(|error| bad(key, &error))?;
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain_read, key_read))
        .map_err(|error| bad(chain, &error))?;
    // Data connections resume the control connection's session, by tickets that need no memory here.
    config.ticketer = ring::Ticketer::new().map_err(io::Error::other)?;
    Ok(Arc::new(config))
}

/// Writes a certificate for these names that nobody but its key has signed, and the key, as PEM; the
/// key for its owner's eyes alone.
///
/// # Errors
/// When a file is there already or cannot be written.
pub fn write_self_signed(chain: &Path, key: &Path, names: Vec<String>) -> io::Result<()> {
    let made = rcgen::generate_simple_self_signed(names).map_err(io::Error::other)?;
    let write = |path: &Path, mode: u32, text: String| {
        let mut options = std::fs::OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(mode).open(path)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    };
    write(key, 0o600, made.signing_key.serialize_pem())?;
    write(chain, 0o644, made.cert.pem())
}

/// Which servers a client trusts beside those that the system's authorities vouch for.
#[derive(Clone, Debug, Default)]
pub struct Trust {
    /// Fingerprints of certificates that were seen before, for this server.
    pub known: Vec<String>,
    /// Trust whoever answers.
    pub anyone: bool,
}

/// Which versions of TLS a client offers.
pub type Versions = &'static [&'static SupportedProtocolVersion];

/// All there are, for servers that let data connections begin a session of their own.
pub const MODERN: Versions = ALL_VERSIONS;

/// For the others: servers that want every data connection to resume the control connection's session.
/// A ticket of TLS 1.3 resumes it once; proftpd gives two of them and, for an upload, none in its place.
/// A session of TLS 1.2 is resumed again and again.
pub const RESUMABLE: Versions = &[&TLS12];

/// Whether a server refused a handshake, as one does that has none of the versions: some say so, some only leave.
pub fn is_refusal(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
    matches!(inner, Some(Error::AlertReceived(_)))
        || matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof)
}

/// A client's side; what the server showed can be asked for when it was refused.
///
/// # Errors
/// Never in practice: when the algorithms are at odds with the protocol versions.
pub fn client(trust: Trust, versions: Versions) -> io::Result<(Arc<ClientConfig>, Seen)> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let authorities = match roots.is_empty() {
        true => None,
        false => {
            let builder = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider());
            Some(builder.build().map_err(io::Error::other)?)
        }
    };
    let seen = Seen::default();
    let verifier = Verifier { authorities, trust, seen: seen.clone(), provider: provider() };
    let config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(versions)
        .map_err(io::Error::other)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    Ok((Arc::new(config), seen))
}

/// The fingerprint of the certificate that the server showed last.
#[derive(Clone, Debug, Default)]
pub struct Seen(Arc<Mutex<Option<String>>>);

impl Seen {
    /// SHA-256 in hexadecimal.
    pub fn fingerprint(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// SHA-256 of a certificate in hexadecimal.
pub fn fingerprint(certificate: &CertificateDer<'_>) -> String {
    let mut hasher = Algorithm::Sha256.hasher();
    hasher.update(certificate);
    hasher.finish()
}

#[derive(Debug)]
struct Verifier {
    authorities: Option<Arc<WebPkiServerVerifier>>,
    trust: Trust,
    seen: Seen,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let fingerprint = fingerprint(end_entity);
        let known = self.trust.anyone || self.trust.known.contains(&fingerprint);
        *self.seen.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(fingerprint);
        match &self.authorities {
            _ if known => Ok(ServerCertVerified::assertion()),
            Some(authorities) => authorities.verify_server_cert(
                end_entity,
                intermediates,
                server_name,
                ocsp_response,
                now,
            ),
            None => Err(Error::General("nobody vouches for its certificate".into())),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// A random salt or the like, in hexadecimal.
pub(crate) fn random_hex() -> io::Result<String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(hex(&bytes))
}
