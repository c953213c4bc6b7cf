//! Sessions: who owns sandboxes and checkpoints.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use coppice_wire::Value;
use coppice_wire::client::DaemonFrame;
use coppice_wire::encode_frame;

use crate::errors::{FaultDomain, Spec, Typed};
use crate::ids::{RandomError, random_hex};
use crate::machine::whole::Saved;
use crate::outbox::{Outbox, OutboxError};

#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    #[error("This host knows no such session")]
    NotFound,
    #[error("The session has ended")]
    Ended,
}

impl Typed for SessionError {
    fn spec(&self) -> Spec {
        match self {
            SessionError::NotFound => Spec::new("SESSION_NOT_FOUND", FaultDomain::User)
                .remedy("A session ends with its last connection; connect without one to begin a new session."),
            SessionError::Ended => {
                Spec::new("SESSION_ENDED", FaultDomain::User).remedy("Connect again to begin a new session.")
            }
        }
    }
}

/// A session lives as long as one of its connections.
pub struct Session {
    /// 128 random bits: who knows it may join.
    pub id: String,
    /// What the client that began it calls itself.
    pub client: String,
    /// The whole machine that the benchmark has saved last.
    pub saved: RefCell<Option<Saved>>,
    connections: RefCell<HashMap<u64, Outbox>>,
}

impl Session {
    /// For logs: names the session without giving its secret away.
    pub fn label(&self) -> &str {
        self.id.get(..6).unwrap_or_default()
    }

    pub fn attach(&self, connection: u64, outbox: Outbox) {
        self.connections.borrow_mut().insert(connection, outbox);
    }

    /// True when it was the last connection.
    pub fn detach(&self, connection: u64) -> bool {
        let mut connections = self.connections.borrow_mut();
        connections.remove(&connection).is_some() && connections.is_empty()
    }

    /// Whether no connection is attached.
    pub fn is_alone(&self) -> bool {
        self.connections.borrow().is_empty()
    }

    /// Sends an event to all connections. One that has no room for it is closed: it would have to guess what it missed.
    pub fn emit(&self, event: &str, params: Value) {
        let frame = encode_frame(&DaemonFrame::Event {
            event: event.to_owned(),
            params,
        });
        let Ok(frame) = frame else {
            tracing::error!(event, "An event can't be encoded");
            return;
        };
        self.connections.borrow_mut().retain(|connection, outbox| match outbox.try_send(frame.clone()) {
            Ok(()) | Err(OutboxError::Closed) => true,
            Err(full @ OutboxError::Full { .. }) => {
                tracing::warn!(connection, session = self.label(), %full, "Closing a connection that does not read");
                outbox.close();
                true
            }
        });
    }
}

#[derive(Default)]
pub struct Sessions {
    by_id: RefCell<HashMap<String, Rc<Session>>>,
}

impl Sessions {
    pub fn begin(&self, client: String) -> Result<Rc<Session>, RandomError> {
        let session = Rc::new(Session {
            id: random_hex::<16>()?,
            client,
            saved: RefCell::default(),
            connections: RefCell::default(),
        });
        self.by_id.borrow_mut().insert(session.id.clone(), Rc::clone(&session));
        Ok(session)
    }

    pub fn join(&self, id: &str) -> Result<Rc<Session>, SessionError> {
        self.by_id.borrow().get(id).cloned().ok_or(SessionError::NotFound)
    }

    /// False: it has ended already.
    pub fn end(&self, id: &str) -> bool {
        self.by_id.borrow_mut().remove(id).is_some()
    }

    pub fn get(&self, id: &str) -> Option<Rc<Session>> {
        self.by_id.borrow().get(id).cloned()
    }

    pub fn count(&self) -> usize {
        self.by_id.borrow().len()
    }
}
