//! The client's side of TLS.

use std::io;
use std::net::TcpStream;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::{Daemon, PATIENCE, Stream};

pub type Secured = StreamOwned<ClientConnection, TcpStream>;

impl Stream for Secured {
    fn set_patience(&self) {
        self.sock.set_read_timeout(Some(PATIENCE)).unwrap();
    }
}

/// Shakes hands with a daemon that has a certificate of its own, and takes no other.
pub fn secure(daemon: &Daemon, stream: TcpStream, name: &str) -> io::Result<Secured> {
    secure_by(&daemon.directory.join("state/tls-certificate.pem"), stream, name)
}

/// As `secure`, with the certificate in a file.
pub fn secure_by(trusted: &std::path::Path, stream: TcpStream, name: &str) -> io::Result<Secured> {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(trusted).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let connection = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut secured = StreamOwned::new(connection, stream);
    while secured.conn.is_handshaking() {
        secured.conn.complete_io(&mut secured.sock)?;
    }
    Ok(secured)
}
