//! TLS for clients that come over a network: the certificate that they are shown, and the handshake.

use std::fs::{self, File};
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{CertificateParams, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::server::listener::Secure;

const OWN_CERTIFICATE: &str = "tls-certificate.pem";
const OWN_KEY: &str = "tls-key.pem";

/// What a certificate of the daemon's own is made out to, beside the address that it listens on. Clients know it by its
/// fingerprint; one that has the certificate itself can also take it for its own authority.
const OWN_NAMES: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("Certificate {path} can't be read: {source}")]
    Certificate { path: PathBuf, source: pem::Error },
    #[error("Key {path} can't be read: {source}")]
    Key { path: PathBuf, source: pem::Error },
    #[error("Certificate and key can't be used: {0}")]
    Unusable(#[from] rustls::Error),
    #[error("No certificate can be made: {0}")]
    Make(#[from] rcgen::Error),
    #[error("{path} can't be written: {source}")]
    Write { path: PathBuf, source: io::Error },
}

/// Files in PEM form.
pub struct Identity {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

impl Identity {
    /// The daemon's own in its state directory, made at the first use: its clients need its fingerprint once.
    pub fn own(state_directory: &Path, address: IpAddr) -> Result<Self, TlsError> {
        let (certificate, key) = (state_directory.join(OWN_CERTIFICATE), state_directory.join(OWN_KEY));
        if !(certificate.exists() && key.exists()) {
            let pair = KeyPair::generate()?;
            let names = OWN_NAMES.map(str::to_owned).into_iter().chain([address.to_string()]);
            let signed = CertificateParams::new(names.collect::<Vec<_>>())?.self_signed(&pair)?;
            write_private(&key, &pair.serialize_pem())?;
            // Last: where it is there, so is its key.
            write_private(&certificate, &signed.pem())?;
        }
        Ok(Identity { certificate, key })
    }
}

/// As a whole or not at all, for this user only.
fn write_private(path: &Path, text: &str) -> Result<(), TlsError> {
    let new = path.with_extension("new");
    let write = || {
        // Of a daemon that was killed here.
        let _ = fs::remove_file(&new);
        let mut file: File = File::options().write(true).create_new(true).mode(0o600).open(&new)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, path)
    };
    write().map_err(|source| TlsError::Write {
        path: path.to_owned(),
        source,
    })
}

pub struct Tls {
    acceptor: TlsAcceptor,
    /// `sha256:` and the digest of the certificate, hexadecimal: what a client that pins it is given.
    pub fingerprint: String,
}

impl Tls {
    pub fn new(identity: &Identity) -> Result<Self, TlsError> {
        let Identity { certificate, key } = identity;
        let unreadable = |source| TlsError::Certificate {
            path: certificate.clone(),
            source,
        };
        let chain: Result<Vec<_>, _> = CertificateDer::pem_file_iter(certificate)
            .map_err(unreadable)?
            .collect();
        let chain = chain.map_err(unreadable)?;
        let first = chain.first().ok_or_else(|| unreadable(pem::Error::NoItemsFound))?;
        let fingerprint = fingerprint(first);
        let key = PrivateKeyDer::from_pem_file(key).map_err(|source| TlsError::Key {
            path: key.clone(),
            source,
        })?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_no_client_auth()
            .with_single_cert(chain, key)?;
        // Clients stay connected: what would let them come back quicker is only written in vain.
        config.send_tls13_tickets = 0;
        Ok(Tls {
            acceptor: TlsAcceptor::from(Arc::new(config)),
            fingerprint,
        })
    }
}

impl Secure<TcpStream> for Tls {
    type Stream = TlsStream<TcpStream>;

    /// Nobody is refused before the handshake, which would be work for those who have no business here.
    const ANSWERS_RAW: bool = false;

    async fn secure(&self, raw: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        self.acceptor.accept(raw).await
    }
}

fn fingerprint(certificate: &CertificateDer) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, certificate);
    let hex: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn directory(name: &str) -> PathBuf {
        let directory = std::env::temp_dir().join(format!("coppiced-tls-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir_all(&directory).unwrap();
        directory
    }

    fn own(directory: &Path) -> Identity {
        Identity::own(directory, std::net::Ipv4Addr::LOCALHOST.into()).unwrap()
    }

    #[test]
    fn own_identity_is_made_once_and_is_private() {
        let directory = directory("own");
        let first = Tls::new(&own(&directory)).unwrap();
        let second = Tls::new(&own(&directory)).unwrap();
        assert_eq!(first.fingerprint, second.fingerprint);
        assert_eq!(first.fingerprint.len(), "sha256:".len() + 64);
        for entry in fs::read_dir(&directory).unwrap().flatten() {
            assert_eq!(
                entry.metadata().unwrap().permissions().mode() & 0o777,
                0o600,
                "{entry:?}"
            );
        }
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn key_of_another_certificate_is_refused() {
        let (ours, other) = (directory("ours"), directory("other"));
        let (ours, other) = (own(&ours), own(&other));
        let mixed = Identity {
            certificate: ours.certificate,
            key: other.key,
        };
        assert!(matches!(Tls::new(&mixed), Err(TlsError::Unusable(_))));
        for identity in [&mixed.certificate, &mixed.key] {
            fs::remove_dir_all(identity.parent().unwrap()).unwrap();
        }
    }

    #[test]
    fn file_that_holds_no_certificate_is_refused_and_named() {
        let directory = directory("none");
        let own = own(&directory);
        for wrong in [&own.key, &directory.join("missing")] {
            let identity = Identity {
                certificate: wrong.clone(),
                key: own.key.clone(),
            };
            let error = Tls::new(&identity).map(drop).unwrap_err().to_string();
            assert!(error.contains(&wrong.display().to_string()), "{error}");
        }
        fs::remove_dir_all(directory).unwrap();
    }
}
