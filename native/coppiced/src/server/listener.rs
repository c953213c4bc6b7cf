//! Accepting connections.

use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::defaults::{MAX_UNAUTHENTICATED, MAX_UNAUTHENTICATED_OF_SOURCE};
use crate::host::Host;
use crate::server::connection::serve;
use crate::server::handshake::{Door, HandshakeError, Token, refuse};
use crate::server::remote::{Remote, Source};
use crate::server::suspects::Suspects;
use crate::server::unix_socket::UnixSocket;

/// Out of descriptors: waiting lets others give some back.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Accepts for ever. Whoever may connect to the socket needs no token.
pub async fn accept_unix(host: Rc<Host>, socket: Rc<UnixSocket>, lobby: Rc<Lobby>) {
    let accept = || async { socket.listener.accept().await.map(|(stream, _)| (stream, None)) };
    accept_all(host, accept, lobby).await;
}

/// Accepts for ever.
pub async fn accept_tcp(host: Rc<Host>, listener: TcpListener, token: Rc<Token>, lobby: Rc<Lobby>) {
    let suspects = Rc::<Suspects>::default();
    let accept = || async {
        let (stream, address) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let door = Door {
            remote: Remote::of(&stream, address.ip())?,
            token: Rc::clone(&token),
            suspects: Rc::clone(&suspects),
        };
        Ok((stream, Some(door)))
    };
    accept_all(host, accept, lobby).await;
}

async fn accept_all<S, F>(host: Rc<Host>, accept: impl Fn() -> F, lobby: Rc<Lobby>)
where
    S: AsyncRead + AsyncWrite + Unpin + 'static,
    F: Future<Output = io::Result<(S, Option<Door>)>>,
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
                let serving = serve(host, stream, door, place);
                tokio::task::spawn_local(async move {
                    serving.await;
                    drop(open);
                });
            }
            None => {
                tokio::task::spawn_local(async move {
                    refuse(&host, &mut stream, door.as_ref(), HandshakeError::TooMany).await;
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
