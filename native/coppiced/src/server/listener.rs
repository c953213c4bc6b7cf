//! Accepting connections.

use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::defaults::{HANDSHAKE_DEADLINE, MAX_UNAUTHENTICATED, MAX_UNAUTHENTICATED_OF_SOURCE};
use crate::host::Host;
use crate::server::connection::serve;
use crate::server::handshake::{Door, HandshakeError, Token, note_refusal, refuse};
use crate::server::remote::{Remote, Source};
use crate::server::suspects::Suspects;
use crate::server::tls::Tls;
use crate::server::unix_socket::UnixSocket;

/// Out of descriptors: waiting lets others give some back.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What makes an accepted connection one that a client is greeted on.
pub trait Secure<S> {
    type Stream;

    /// Whether a client understands what is said before that.
    const ANSWERS_RAW: bool;

    async fn secure(&self, raw: S) -> io::Result<Self::Stream>;
}

/// Nobody else can read the connection: it does not leave this machine, or its user said so.
struct Plain;

impl<S> Secure<S> for Plain {
    type Stream = S;

    const ANSWERS_RAW: bool = true;

    async fn secure(&self, raw: S) -> io::Result<S> {
        Ok(raw)
    }
}

/// Accepts for ever. Whoever may connect to the socket needs no token.
pub async fn accept_unix(host: Rc<Host>, socket: Rc<UnixSocket>, lobby: Rc<Lobby>) {
    let accept = || async { socket.listener.accept().await.map(|(stream, _)| (stream, None)) };
    accept_all(host, accept, Rc::new(Plain), lobby).await;
}

/// Accepts for ever.
pub async fn accept_tcp(host: Rc<Host>, listener: TcpListener, entrance: Entrance, lobby: Rc<Lobby>) {
    let Entrance { token, tls } = entrance;
    let token = Rc::new(token);
    let suspects = Rc::<Suspects>::default();
    let accept = || async {
        let (stream, address) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let door = Door {
            remote: Remote::of(&stream, address.ip())?,
            token: Rc::clone(&token),
            suspects: Rc::clone(&suspects),
        };
        io::Result::Ok((stream, Some(door)))
    };
    match tls {
        Some(tls) => accept_all::<TcpStream, _, _>(host, accept, Rc::new(tls), lobby).await,
        None => accept_all::<TcpStream, _, _>(host, accept, Rc::new(Plain), lobby).await,
    }
}

/// What is asked of those who come by TCP.
pub struct Entrance {
    pub token: Token,
    pub tls: Option<Tls>,
}

async fn accept_all<S, F, P>(host: Rc<Host>, accept: impl Fn() -> F, securing: Rc<P>, lobby: Rc<Lobby>)
where
    S: AsyncRead + AsyncWrite + Unpin + 'static,
    F: Future<Output = io::Result<(S, Option<Door>)>>,
    P: Secure<S> + 'static,
    P::Stream: AsyncRead + AsyncWrite + Unpin + 'static,
{
    loop {
        let (mut stream, door) = match accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "A connection can't be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let (host, open) = (Rc::clone(&host), lobby.open());
        match lobby.enter(door.as_ref().map(|door| door.remote.source)) {
            Some(place) => {
                let securing = Rc::clone(&securing);
                tokio::task::spawn_local(async move {
                    match tokio::time::timeout(HANDSHAKE_DEADLINE, securing.secure(stream)).await {
                        Ok(Ok(stream)) => serve(host, stream, door, place).await,
                        Ok(Err(error)) => note_refusal(&host, door.as_ref(), &HandshakeError::Insecure(error)),
                        Err(_) => note_refusal(&host, door.as_ref(), &HandshakeError::TooLate),
                    }
                    drop(open);
                });
            }
            None => {
                tokio::task::spawn_local(async move {
                    if P::ANSWERS_RAW {
                        refuse(&host, &mut stream, door.as_ref(), HandshakeError::TooMany).await;
                    } else {
                        note_refusal(&host, door.as_ref(), &HandshakeError::TooMany);
                    }
                    drop(open);
                });
            }
        }
    }
}

/// Counts connections: all that are open, and those that have not said hello.
#[derive(Default)]
pub struct Lobby {
    unauthenticated: RefCell<Vec<Option<Source>>>,
    open: watch::Sender<usize>,
}

/// Place of a connection that has not said hello.
pub struct Place {
    lobby: Rc<Lobby>,
    source: Option<Source>,
}

/// An open connection.
pub struct Open(Rc<Lobby>);

impl Lobby {
    /// Returns when no connection is open.
    pub async fn empty(&self) {
        let _ = self.open.subscribe().wait_for(|open| *open == 0).await;
    }

    /// `None`: there are too many already, of all or of this source.
    fn enter(self: &Rc<Self>, source: Option<Source>) -> Option<Place> {
        let mut places = self.unauthenticated.borrow_mut();
        let of_source = places
            .iter()
            .filter(|taken| source.is_some() && **taken == source)
            .count();
        if places.len() >= MAX_UNAUTHENTICATED || of_source >= MAX_UNAUTHENTICATED_OF_SOURCE {
            return None;
        }
        places.push(source);
        Some(Place {
            lobby: Rc::clone(self),
            source,
        })
    }

    fn open(self: &Rc<Self>) -> Open {
        self.open.send_modify(|open| *open += 1);
        Open(Rc::clone(self))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut places = self.lobby.unauthenticated.borrow_mut();
        if let Some(index) = places.iter().position(|taken| *taken == self.source) {
            places.swap_remove(index);
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.send_modify(|open| *open -= 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_source_can_not_take_all_places_of_others() {
        let lobby = Rc::<Lobby>::default();
        let source = |last| Some(Source::of(std::net::Ipv4Addr::new(192, 0, 2, last).into()));
        let greedy: Vec<Place> = std::iter::from_fn(|| lobby.enter(source(1))).collect();
        assert_eq!(greedy.len(), MAX_UNAUTHENTICATED_OF_SOURCE);
        let other = lobby.enter(source(2)).unwrap();
        let local: Vec<Place> = std::iter::from_fn(|| lobby.enter(None)).collect();
        assert_eq!(greedy.len() + local.len() + 1, MAX_UNAUTHENTICATED);
        drop(other);
        assert!(lobby.enter(source(1)).is_none() && lobby.enter(source(2)).is_some());
        drop(greedy);
        assert!(lobby.enter(source(1)).is_some());
    }
}
