//! The first frame of a client, and whether it is let in.

use std::rc::Rc;
use std::time::{Duration, Instant};

use coppice_wire::client::{CLIENT_PROTOCOL, Greeting, Hello, Welcome};
use coppice_wire::{FrameReader, decode, encode_frame};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::defaults::HANDSHAKE_DEADLINE;
use crate::errors::{FaultDomain, MethodError, Spec, Typed, shorten};
use crate::host::Host;
use crate::ids::RandomError;
use crate::server::remote::Remote;
use crate::server::suspects::Suspects;
use crate::session::{Session, SessionError};

const MAX_CLIENT_NAME_BYTES: usize = 128;

/// A hello is small: more than this before it is complete is no client of ours.
const MAX_HELLO_BYTES: usize = 16 * 1024;

const REFUSAL_DEADLINE: Duration = Duration::from_secs(1);

#[derive(Debug, thiserror::Error)]
pub enum HandshakeError {
    #[error("The client speaks protocol {given}; this daemon speaks {CLIENT_PROTOCOL}")]
    ProtocolMismatch { given: u32 },
    #[error("The token is missing or wrong")]
    Unauthenticated,
    #[error("The first frame is not a hello: {reason}")]
    Invalid { reason: String },
    #[error("No hello arrived within {} s", HANDSHAKE_DEADLINE.as_secs())]
    TooLate,
    #[error("This host has too many connections")]
    TooMany,
    #[error(transparent)]
    Session(#[from] SessionError),
    #[error(transparent)]
    Random(#[from] RandomError),
    #[error("The TLS handshake failed: {0}")]
    Insecure(std::io::Error),
    #[error("The peer closed the connection before its hello")]
    Gone,
}

impl HandshakeError {
    /// Whether only somebody who has no business here does this.
    fn is_suspicious(&self) -> bool {
        matches!(self, HandshakeError::Unauthenticated | HandshakeError::Invalid { .. })
    }
}

impl Typed for HandshakeError {
    fn spec(&self) -> Spec {
        match self {
            HandshakeError::ProtocolMismatch { .. } => Spec::new("PROTOCOL_MISMATCH", FaultDomain::User)
                .remedy("Use a client and a daemon of the same release; stop an old daemon with `coppice host stop`."),
            HandshakeError::Unauthenticated => Spec::new("UNAUTHENTICATED", FaultDomain::User)
                .remedy("Set COPPICE_TOKEN to this host's token; programs may give `token` to connectHost."),
            HandshakeError::Invalid { .. } | HandshakeError::Gone => Spec::new("HANDSHAKE_INVALID", FaultDomain::User)
                .remedy("Begin with the hello frame of docs/protocol.md."),
            HandshakeError::Insecure(_) => Spec::new("TLS_FAILED", FaultDomain::User)
                .remedy("Connect with coppice+tls://, and with the fingerprint or the CA of this host's certificate."),
            HandshakeError::TooLate => Spec::new("HANDSHAKE_TIMEOUT", FaultDomain::User)
                .retryable()
                .remedy("Send the hello frame at once after connecting."),
            HandshakeError::TooMany => Spec::new("TOO_MANY_CONNECTIONS", FaultDomain::Host)
                .retryable()
                .remedy("Close connections that are not used, or try again in a moment."),
            HandshakeError::Session(error) => error.spec(),
            HandshakeError::Random(error) => error.spec(),
        }
    }
}

/// What a TCP connection comes in by: who is there, and what is asked of him.
pub struct Door {
    pub remote: Remote,
    pub token: Rc<Token>,
    pub suspects: Rc<Suspects>,
}

/// Lets a client in: its session, and the frames that came after its hello.
pub async fn welcome<S>(
    host: &Host,
    stream: &mut S,
    door: Option<&Door>,
) -> Result<(Rc<Session>, FrameReader), HandshakeError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let reading = tokio::time::timeout(HANDSHAKE_DEADLINE, read_hello(stream));
    let (hello, frames) = reading.await.map_err(|_| HandshakeError::TooLate)??;
    // The token first: nothing else is told to those who do not have it.
    if let Some(door) = door {
        if !door.token.matches(hello.token.as_deref().unwrap_or_default()) {
            return Err(HandshakeError::Unauthenticated);
        }
        door.suspects.forgive(door.remote.source);
    }
    if hello.protocol != CLIENT_PROTOCOL {
        return Err(HandshakeError::ProtocolMismatch { given: hello.protocol });
    }
    let client = shorten(hello.client, MAX_CLIENT_NAME_BYTES).replace(|c: char| c.is_control(), "?");
    let session = match &hello.session {
        Some(id) => host.sessions.join(id)?,
        None => host.sessions.begin(client.clone())?,
    };
    if let Some(realtime_ns) = hello.realtime_ns {
        crate::carrier::clock::adjust(host, realtime_ns);
    }
    tracing::info!(session = session.label(), client, "Connected");
    Ok((session, frames))
}

/// The answer to a hello that is let in.
pub fn welcome_frame(host: &Host, session: &Session) -> Option<Vec<u8>> {
    let welcome = Welcome {
        protocol: CLIENT_PROTOCOL,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        session: session.id.clone(),
        host_kind: host.config.kind.name().to_owned(),
    };
    encode_frame(&Greeting::Welcome(welcome)).ok()
}

/// Says why not; the connection ends after it. Who comes from a suspicious source is told later each time, or nothing.
pub async fn refuse<S: AsyncWrite + Unpin>(host: &Host, stream: &mut S, door: Option<&Door>, error: HandshakeError) {
    note_refusal(host, door, &error);
    if let Some(door) = door.filter(|_| error.is_suspicious()) {
        let Some(held) = door.suspects.failed(door.remote.source, Instant::now()) else {
            return;
        };
        tokio::time::sleep(held.delay).await;
    }
    let MethodError(failure) = MethodError::from(error);
    let Ok(frame) = encode_frame(&Greeting::Refused(failure)) else {
        return;
    };
    let answer = async {
        // It may be gone already.
        let _ = stream.write_all(&frame).await;
        let _ = stream.shutdown().await;
    };
    // Or not read.
    let _ = tokio::time::timeout(REFUSAL_DEADLINE, answer).await;
}

/// Counts and logs who is turned away.
pub fn note_refusal(host: &Host, door: Option<&Door>, error: &HandshakeError) {
    host.counters.refused_handshakes.increment();
    let code = error.spec().code;
    let Some(unlogged) = host.refusals.admit(code.clone(), Instant::now()) else {
        return;
    };
    let source = door.map_or("this machine".to_owned(), |door| door.remote.source.to_string());
    tracing::warn!(%code, source, reason = %error, unlogged, "Refused a connection");
}

async fn read_hello<S: AsyncRead + Unpin>(stream: &mut S) -> Result<(Hello, FrameReader), HandshakeError> {
    let invalid = |reason: String| HandshakeError::Invalid { reason };
    let mut frames = FrameReader::new();
    let mut received = 0;
    let mut buffer = [0; 4096];
    loop {
        let read = stream.read(&mut buffer).await.map_err(|_| HandshakeError::Gone)?;
        if read == 0 {
            return Err(HandshakeError::Gone);
        }
        received += read;
        frames.push(&buffer[..read]);
        match frames.next_payload() {
            Ok(Some(payload)) => {
                let hello = decode(&payload).map_err(|error| invalid(error.to_string()))?;
                return Ok((hello, frames));
            }
            Ok(None) if received > MAX_HELLO_BYTES => return Err(invalid("it is too large".to_owned())),
            Ok(None) => {}
            Err(error) => return Err(invalid(error.to_string())),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    #[error("Token must have 16 to 256 characters, not {0}")]
    Length(usize),
    #[error("Token file can't be read: {0}")]
    Unreadable(#[from] std::io::Error),
}

/// The secret of a host's TCP clients.
pub struct Token(String);

impl Token {
    pub fn new(token: &str) -> Result<Self, TokenError> {
        match token.trim() {
            token if (16..=256).contains(&token.len()) => Ok(Token(token.to_owned())),
            token => Err(TokenError::Length(token.len())),
        }
    }

    /// Takes as long for a wrong token as for the right one, whatever they have in common.
    fn matches(&self, given: &str) -> bool {
        let (ours, given) = (self.0.as_bytes(), given.as_bytes());
        let byte = |bytes: &[u8], index: usize| bytes.get(index).copied().unwrap_or(0);
        let differences = (0..256).fold(ours.len() ^ given.len(), |sum, index| {
            sum | usize::from(byte(ours, index) ^ byte(given, index))
        });
        std::hint::black_box(differences) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_matches_only_itself() {
        let token = Token::new("  0123456789abcdef\n").unwrap();
        assert!(token.matches("0123456789abcdef"));
        for wrong in [
            "",
            "0123456789abcdeg",
            "0123456789abcde",
            "0123456789abcdef0",
            &"x".repeat(1_000),
        ] {
            assert!(!token.matches(wrong), "{wrong}");
        }
    }

    #[test]
    fn token_that_is_too_short_is_refused() {
        assert!(matches!(Token::new("short"), Err(TokenError::Length(5))));
    }
}
