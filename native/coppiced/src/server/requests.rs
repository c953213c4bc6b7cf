//! The requests of one connection that are under way.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use coppice_wire::client::{DaemonFrame, Request};
use coppice_wire::encode_frame;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::defaults::{MAX_DEADLINE, MAX_REQUEST_BYTES_PER_CONNECTION, MAX_REQUESTS_PER_CONNECTION};
use crate::errors::MethodError;
use crate::host::Host;
use crate::methods::{self, Answer, Context, Method, Outcome, RequestError};
use crate::outbox::Outbox;
use crate::session::Session;

/// Dropping it drops every request, and so gives up what they were doing.
pub struct Requests {
    host: Rc<Host>,
    session: Rc<Session>,
    outbox: Outbox,
    running: JoinSet<()>,
    shared: Rc<InFlight>,
}

#[derive(Default)]
struct InFlight {
    cancels: RefCell<HashMap<u64, oneshot::Sender<()>>>,
    bytes: Cell<usize>,
}

impl Requests {
    pub fn new(host: &Rc<Host>, session: &Rc<Session>, outbox: &Outbox) -> Self {
        Requests {
            host: Rc::clone(host),
            session: Rc::clone(session),
            outbox: outbox.clone(),
            running: JoinSet::new(),
            shared: Rc::default(),
        }
    }

    /// Starts a request. An error here is the end of the connection: which request an answer belongs to is unclear.
    pub fn start(&mut self, request: Request, bytes: usize) -> Result<(), RequestError> {
        while self.running.try_join_next().is_some() {}
        let id = request.id;
        if id == 0 || self.shared.cancels.borrow().contains_key(&id) {
            return Err(RequestError::BadId { id });
        }
        let (cancel, cancelled) = oneshot::channel();
        self.shared.cancels.borrow_mut().insert(id, cancel);
        self.shared.bytes.set(self.shared.bytes.get() + bytes);
        let admitted = self.admit(&request);
        let ticket = Ticket {
            shared: Rc::clone(&self.shared),
            id,
            bytes,
        };
        let (host, session, outbox) = (Rc::clone(&self.host), Rc::clone(&self.session), self.outbox.clone());
        self.running.spawn_local(async move {
            let outcome = match admitted {
                Ok((method, deadline)) => {
                    let deadline_ms = u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX);
                    let deadline = Instant::now() + deadline;
                    let context = Context {
                        host,
                        session,
                        id,
                        deadline,
                        deadline_ms,
                        outbox: outbox.clone(),
                    };
                    run(method, context, request, cancelled).await
                }
                Err(error) => Err(error.into()),
            };
            // The id is free before the answer is on its way: the client may use it again when it has the answer.
            drop(ticket);
            // Where the client is gone the connection is about to end.
            let _ = outbox.send(answer_frame(id, outcome)).await;
        });
        Ok(())
    }

    /// Gives a request up. One that is not under way has its answer already.
    pub fn cancel(&self, id: u64) {
        let cancels = self.shared.cancels.borrow_mut().remove(&id);
        if let Some(cancel) = cancels {
            // The request may have ended a moment ago.
            let _ = cancel.send(());
        }
    }

    fn admit(&self, request: &Request) -> Result<(Method, Duration), RequestError> {
        let count = self.shared.cancels.borrow().len();
        if count > MAX_REQUESTS_PER_CONNECTION {
            return Err(RequestError::TooMany { count: count - 1 });
        }
        if self.shared.bytes.get() > MAX_REQUEST_BYTES_PER_CONNECTION {
            return Err(RequestError::TooLarge {
                bytes: MAX_REQUEST_BYTES_PER_CONNECTION,
            });
        }
        let method = methods::find(&request.method).map_err(|nearest| {
            let given = request.method.chars().take(64).filter(|c| !c.is_control()).collect();
            RequestError::UnknownMethod { given, nearest }
        })?;
        let max = u64::try_from(MAX_DEADLINE.as_millis()).unwrap_or(u64::MAX);
        match request.deadline_ms {
            None => Ok((method, method.default_deadline())),
            Some(0) => Err(RequestError::BadDeadline { max }),
            Some(given) => Ok((method, Duration::from_millis(given.min(max)))),
        }
    }
}

/// One request's place among those in flight; given back when dropped.
struct Ticket {
    shared: Rc<InFlight>,
    id: u64,
    bytes: usize,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.shared.cancels.borrow_mut().remove(&self.id);
        self.shared.bytes.set(self.shared.bytes.get() - self.bytes);
    }
}

async fn run(method: Method, context: Context, request: Request, cancelled: oneshot::Receiver<()>) -> Outcome {
    let (deadline, deadline_ms) = (context.deadline, context.deadline_ms);
    tokio::select! {
        biased;
        outcome = methods::run(method, &context, request.params) => outcome,
        Ok(()) = cancelled => Err(RequestError::Cancelled.into()),
        () = tokio::time::sleep_until(deadline.into()) => Err(RequestError::DeadlineExceeded { deadline_ms }.into()),
    }
}

fn answer_frame(id: u64, outcome: Outcome) -> Vec<u8> {
    let frame = match outcome {
        Ok(Answer { result, stages }) => encode_frame(&DaemonFrame::Result { id, result, stages }),
        Err(MethodError(error)) => encode_frame(&DaemonFrame::Error { id, error }),
    };
    frame.unwrap_or_else(|_| {
        let MethodError(error) = RequestError::AnswerTooLarge.into();
        encode_frame(&DaemonFrame::Error { id, error }).unwrap_or_default()
    })
}
