//! One client's connection, from accept to end.

use std::io;
use std::rc::Rc;

use coppice_wire::client::{ClientFrame, DaemonFrame, Request};
use coppice_wire::{FrameReader, Value, decode, encode_frame};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::task::JoinSet;

use crate::defaults::{CLIENT_QUEUE_BYTES, CLIENT_STALL, MAX_CONNECTIONS};
use crate::errors::MethodError;
use crate::host::Host;
use crate::methods::RequestError;
use crate::outbox::{Outbox, outbox};
use crate::server::handshake::{Door, HandshakeError, refuse, welcome, welcome_frame};
use crate::server::requests::Requests;
use crate::session::Session;
use crate::values::{from_value, to_value};

const READ_BYTES: usize = 64 * 1024;

const GONE: &str = "nobody is at the other end any more";

/// Serves a client until it goes, breaks the protocol, or the daemon ends. `unauthenticated` is given back after hello.
/// `door`: on TCP.
pub async fn serve<S>(host: Rc<Host>, mut stream: S, door: Option<Door>, unauthenticated: impl Sized)
where
    S: AsyncRead + AsyncWrite + Unpin + 'static,
{
    let begun = welcome(&host, &mut stream, door.as_ref()).await;
    let (session, frames) = match begun {
        Ok(begun) if *host.connections.borrow() < MAX_CONNECTIONS => begun,
        Ok((session, _)) => {
            abandon(&host, &session);
            return refuse(&host, &mut stream, door.as_ref(), HandshakeError::TooMany).await;
        }
        Err(HandshakeError::Gone) => return,
        Err(error) => {
            // Who waits for a refusal takes nobody's place.
            drop(unauthenticated);
            return refuse(&host, &mut stream, door.as_ref(), error).await;
        }
    };
    let connected = Connected::new(&host, &session);
    drop(unauthenticated);
    let (reader, writer) = tokio::io::split(stream);
    let (outbox, outgoing) = outbox(CLIENT_QUEUE_BYTES);
    session.attach(connected.id, outbox.clone());
    if let Some(frame) = welcome_frame(&host, &session) {
        // An empty queue has room.
        let _ = outbox.send_now(frame, None);
    }
    let mut writing = tokio::task::spawn_local(outgoing.write_to(writer, CLIENT_STALL));
    // A task of its own: what comes wakes it alone, and not also who waits for the end. In a set it ends with this.
    let mut reading = JoinSet::new();
    let requests = Requests::new(&host, &session, &outbox);
    reading.spawn_local(read_requests(requests, outbox.clone(), reader, frames));
    let reason = tokio::select! {
        Some(ended) = reading.join_next() => ended.unwrap_or_else(|error| error.to_string()),
        () = outbox.closed() => "it does not read".to_owned(),
        () = vanished(door.as_ref()) => GONE.to_owned(),
        reason = host.shutting_down() => reason,
    };
    tracing::info!(session = session.label(), reason, "Connection ended");
    reading.shutdown().await;
    // Frees the queue for the last words, which the writer may still send for a moment.
    drop(connected);
    drop(outbox);
    if reason == GONE {
        host.counters.vanished_peers.increment();
        // Nobody will read what is left.
        writing.abort();
    }
    if tokio::time::timeout(std::time::Duration::from_millis(200), &mut writing)
        .await
        .is_err()
    {
        tracing::debug!(session = session.label(), "Last words were not read");
    }
}

/// Returns when nobody is at the other end. A client on this machine can't vanish without the kernel's knowledge.
async fn vanished(door: Option<&Door>) {
    match door {
        Some(door) => door.remote.vanished().await,
        None => std::future::pending().await,
    }
}

/// A session that began with this connection, and that nobody can use.
fn abandon(host: &Host, session: &Session) {
    if session.is_alone() {
        host.end_session(session);
    }
}

/// Counts the connection; when dropped, ends the session if it was the last.
struct Connected {
    host: Rc<Host>,
    session: Rc<Session>,
    id: u64,
}

impl Connected {
    fn new(host: &Rc<Host>, session: &Rc<Session>) -> Self {
        host.connections.send_modify(|count| *count += 1);
        Connected {
            host: Rc::clone(host),
            session: Rc::clone(session),
            id: host.ids.connection(),
        }
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        self.host.connections.send_modify(|count| *count -= 1);
        if self.session.detach(self.id) {
            self.host.end_session(&self.session);
        }
    }
}

/// Returns why the connection ends. Its requests end with it.
async fn read_requests(
    mut requests: Requests,
    outbox: Outbox,
    mut reader: impl AsyncRead + Unpin,
    mut frames: FrameReader,
) -> String {
    let mut buffer = vec![0; READ_BYTES];
    loop {
        loop {
            match frames.next_payload() {
                Ok(Some(payload)) => {
                    if let Err(error) = take(&mut requests, &payload) {
                        return violated(&outbox, error);
                    }
                }
                Ok(None) => break,
                Err(error) => {
                    return violated(
                        &outbox,
                        RequestError::Malformed {
                            reason: error.to_string(),
                        },
                    );
                }
            }
        }
        match reader.read(&mut buffer).await {
            Ok(0) => return "the client closed it".to_owned(),
            Ok(read) => frames.push(&buffer[..read]),
            // Under TLS: without saying goodbye.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return "the client closed it".to_owned(),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => return GONE.to_owned(),
            Err(error) => return error.to_string(),
        }
    }
}

fn take(requests: &mut Requests, payload: &[u8]) -> Result<(), RequestError> {
    match decode::<Request>(payload) {
        Ok(request) => requests.start(request, payload.len()),
        Err(_) => take_other(requests, payload),
    }
}

/// What is no request: a cancellation, or something of which the client is told what is wrong.
fn take_other(requests: &mut Requests, payload: &[u8]) -> Result<(), RequestError> {
    let malformed = |reason| RequestError::Malformed { reason };
    let frame: Value = decode(payload).map_err(|error| malformed(error.to_string()))?;
    let is_cancel = frame
        .as_map()
        .is_some_and(|map| map.iter().any(|(key, _)| key.as_str() == Some("cancel")));
    if is_cancel {
        if let ClientFrame::Cancel { cancel } = from_value(frame).map_err(malformed)? {
            requests.cancel(cancel);
        }
        return Ok(());
    }
    let request: Request = from_value(frame).map_err(malformed)?;
    requests.start(request, payload.len())
}

/// Tells the client what it did, as far as it reads, and why the connection ends.
fn violated(outbox: &Outbox, error: RequestError) -> String {
    let reason = error.to_string();
    let MethodError(failure) = error.into();
    if let Ok(params) = to_value(&failure)
        && let Ok(frame) = encode_frame(&DaemonFrame::Event {
            event: "protocol.violation".to_owned(),
            params,
        })
    {
        let _ = outbox.try_send(frame);
    }
    reason
}
