//! Accepting connections.

use std::cell::Cell;
use std::future::Future;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use nix::sys::socket::{setsockopt, sockopt};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::defaults::MAX_UNAUTHENTICATED;
use crate::host::Host;
use crate::server::connection::serve;
use crate::server::handshake::{HandshakeError, Token, refuse};
use crate::server::unix_socket::UnixSocket;

/// Out of descriptors: waiting lets others give some back.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A silent TCP peer is asked after this long, then at this interval, and is dead after so many questions: 25 s in all.
const KEEP_ALIVE_IDLE_S: u32 = 10;
const KEEP_ALIVE_INTERVAL_S: u32 = 5;
const KEEP_ALIVE_PROBES: u32 = 3;

/// As long may what was sent stay without an acknowledgement.
const UNACKNOWLEDGED_MS: u32 = 25_000;

/// Accepts for ever. Whoever may connect to the socket needs no token.
pub async fn accept_unix(host: Rc<Host>, socket: Rc<UnixSocket>, lobby: Rc<Lobby>) {
    let accept = || async { socket.listener.accept().await.map(|(stream, _)| stream) };
    accept_all(host, accept, None, lobby).await;
}

/// Accepts for ever.
pub async fn accept_tcp(host: Rc<Host>, listener: TcpListener, token: Rc<Token>, lobby: Rc<Lobby>) {
    let accept = || async {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        notice_dead_peers(&stream)?;
        Ok(stream)
    };
    accept_all(host, accept, Some(token), lobby).await;
}

async fn accept_all<S, F>(host: Rc<Host>, accept: impl Fn() -> F, token: Option<Rc<Token>>, lobby: Rc<Lobby>)
where
    S: AsyncRead + AsyncWrite + Unpin + 'static,
    F: Future<Output = io::Result<S>>,
{
    loop {
        let mut stream = match accept().await {
            Ok(stream) => stream,
            Err(error) => {
                tracing::warn!(%error, "A connection can't be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let open = lobby.open();
        match lobby.enter() {
            Some(place) => {
                let serving = serve(Rc::clone(&host), stream, token.clone(), place);
                tokio::task::spawn_local(async move {
                    serving.await;
                    drop(open);
                });
            }
            None => {
                tokio::task::spawn_local(async move {
                    refuse(&mut stream, HandshakeError::TooMany).await;
                    drop(open);
                });
            }
        }
    }
}

/// A client whose machine is gone says no goodbye: its connection must end by itself, and its sandboxes with it.
fn notice_dead_peers(stream: &TcpStream) -> io::Result<()> {
    setsockopt(stream, sockopt::KeepAlive, &true)?;
    setsockopt(stream, sockopt::TcpKeepIdle, &KEEP_ALIVE_IDLE_S)?;
    setsockopt(stream, sockopt::TcpKeepInterval, &KEEP_ALIVE_INTERVAL_S)?;
    setsockopt(stream, sockopt::TcpKeepCount, &KEEP_ALIVE_PROBES)?;
    Ok(setsockopt(stream, sockopt::TcpUserTimeout, &UNACKNOWLEDGED_MS)?)
}

/// Counts connections: all that are open, and those that have not said hello.
#[derive(Default)]
pub struct Lobby {
    unauthenticated: Cell<usize>,
    open: watch::Sender<usize>,
}

/// Place of a connection that has not said hello.
pub struct Place(Rc<Lobby>);

/// An open connection.
pub struct Open(Rc<Lobby>);

impl Lobby {
    /// Returns when no connection is open.
    pub async fn empty(&self) {
        let _ = self.open.subscribe().wait_for(|open| *open == 0).await;
    }

    fn enter(self: &Rc<Self>) -> Option<Place> {
        let count = self.unauthenticated.get();
        (count < MAX_UNAUTHENTICATED).then(|| {
            self.unauthenticated.set(count + 1);
            Place(Rc::clone(self))
        })
    }

    fn open(self: &Rc<Self>) -> Open {
        self.open.send_modify(|open| *open += 1);
        Open(Rc::clone(self))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.unauthenticated.set(self.0.unauthenticated.get() - 1);
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.send_modify(|open| *open -= 1);
    }
}
