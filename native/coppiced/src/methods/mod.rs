//! The methods of docs/protocol.md, one typed parameter struct each.

mod baseline;
mod call;
mod checkpoint;
mod delta;
mod fork;
mod host;
mod image;
mod inventory;
mod rewind;
mod sandbox;
mod table;

use std::rc::Rc;
use std::time::Instant;

use coppice_wire::Value;
use coppice_wire::agent::Chunk;
use coppice_wire::client::DaemonFrame;
use coppice_wire::encode_frame;
use coppice_wire::vmm::Stages;
use serde::Serialize;

use crate::errors::{FaultDomain, MethodError, Spec, Typed};
use crate::host::Host;
use crate::outbox::Outbox;
use crate::session::{Session, SessionError};
use crate::values::{ValueError, to_value};

pub use table::{Method, find};

/// Who asks, and until when.
pub struct Context {
    pub host: Rc<Host>,
    pub session: Rc<Session>,
    /// The request's id on its connection.
    pub id: u64,
    /// The client gets no answer after this.
    pub deadline: Instant,
    pub deadline_ms: u64,
    pub outbox: Outbox,
}

impl Context {
    /// Sends a piece of output; waits where the client is slow.
    pub async fn send_chunk(&self, chunk: Chunk) -> Result<(), MethodError> {
        let frame = encode_frame(&DaemonFrame::Chunk { id: self.id, chunk });
        let frame = frame.map_err(|error| ValueError::Encode(error.to_string()))?;
        // Where the client is gone this request is about to be dropped.
        let _ = self.outbox.send(frame).await;
        Ok(())
    }
}

/// The answer to a request.
pub struct Answer {
    pub result: Value,
    pub stages: Stages,
}

impl Answer {
    pub fn new(result: &impl Serialize) -> Result<Self, MethodError> {
        Self::with_stages(result, Stages::new())
    }

    pub fn with_stages(result: &impl Serialize, stages: Stages) -> Result<Self, MethodError> {
        Ok(Answer {
            result: to_value(result)?,
            stages,
        })
    }

    pub fn empty() -> Self {
        Answer {
            result: Value::Map(Vec::new()),
            stages: Stages::new(),
        }
    }
}

pub type Outcome = Result<Answer, MethodError>;

/// Failures of requests that are not a method's own.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    #[error("Unknown method `{given}`{}", nearest.map(|name| format!("; the nearest is `{name}`")).unwrap_or_default())]
    UnknownMethod {
        given: String,
        nearest: Option<&'static str>,
    },
    #[error("The request was cancelled")]
    Cancelled,
    #[error("The request was not done within {deadline_ms} ms")]
    DeadlineExceeded { deadline_ms: u64 },
    #[error("Request id {id} is in use or 0; ids are unique on a connection while a request runs")]
    BadId { id: u64 },
    #[error("deadlineMs must be 1 to {max}")]
    BadDeadline { max: u64 },
    #[error("This connection has {count} requests in flight, its limit")]
    TooMany { count: usize },
    #[error("This connection has {bytes} bytes of parameters in flight, its limit")]
    TooLarge { bytes: usize },
    #[error("The answer is too large for one frame")]
    AnswerTooLarge,
    #[error("The frame is not a request: {reason}")]
    Malformed { reason: String },
}

impl Typed for RequestError {
    fn spec(&self) -> Spec {
        let user = |code| Spec::new(code, FaultDomain::User);
        match self {
            RequestError::UnknownMethod { .. } => {
                user("UNKNOWN_METHOD").remedy("docs/protocol.md lists the methods of this version.")
            }
            RequestError::Cancelled => user("ABORTED"),
            RequestError::DeadlineExceeded { .. } => Spec::new("DEADLINE_EXCEEDED", FaultDomain::Host)
                .retryable()
                .remedy("Give it more time, or find out what the sandbox is doing (sandbox.console)."),
            RequestError::BadId { .. } | RequestError::Malformed { .. } => {
                user("PROTOCOL_VIOLATION").remedy("The client must follow docs/protocol.md; the connection was closed.")
            }
            RequestError::BadDeadline { .. } => user("INVALID_ARGUMENT").remedy("Correct `deadlineMs`."),
            RequestError::TooMany { .. } | RequestError::TooLarge { .. } => user("TOO_MANY_REQUESTS")
                .retryable()
                .remedy("Wait for answers before sending more, or use more connections."),
            RequestError::AnswerTooLarge => {
                Spec::new("ANSWER_TOO_LARGE", FaultDomain::User).remedy("Ask for less at once.")
            }
        }
    }
}

/// Runs one request to its end.
pub async fn run(method: Method, context: &Context, params: Value) -> Outcome {
    if context.host.sessions.get(&context.session.id).is_none() {
        return Err(SessionError::Ended.into());
    }
    let timed = method
        .operation()
        .map(|operation| context.host.operations.begin(operation));
    let outcome = dispatch(method, context, params).await;
    if let (Some(timed), Ok(_)) = (timed, &outcome) {
        timed.done();
    }
    outcome
}

async fn dispatch(method: Method, context: &Context, params: Value) -> Outcome {
    match method {
        Method::HostInfo => host::info(context, params),
        Method::HostStats => host::stats(context, params),
        Method::HostList => inventory::list(context, params).await,
        Method::HostCall => call::call_any(context, params).await,
        Method::HostMetrics => host::metrics(context, params),
        Method::HostShutdown => host::shutdown(context, params),
        Method::SessionEnd => host::end_session(context, params),
        Method::ImageAttach => image::attach(context, params).await,
        Method::ImageList => image::list(context, params),
        Method::SandboxBoot => sandbox::boot(context, params).await,
        Method::SandboxFork => fork::fork(context, params).await,
        Method::SandboxLease => sandbox::lease(context, params).await,
        Method::SandboxCall => call::call(context, params).await,
        Method::SandboxLimit => sandbox::limit(context, params),
        Method::SandboxPark => sandbox::park(context, params).await,
        Method::SandboxCheckpoint => sandbox::checkpoint(context, params).await,
        Method::SandboxRewind => rewind::rewind(context, params).await,
        Method::SandboxClose => sandbox::close(context, params).await,
        Method::SandboxConsole => sandbox::console(context, params),
        Method::SandboxList => sandbox::list(context, params),
        Method::CheckpointDrop => checkpoint::drop_one(context, params).await,
        Method::CheckpointDelta => delta::delta(context, params).await,
        Method::CheckpointList => checkpoint::list(context, params),
        Method::CheckpointShare => checkpoint::share(context, params),
        Method::CheckpointLookup => checkpoint::lookup(context, params),
        Method::MemoryUsage => checkpoint::memory_usage(context, params).await,
        Method::BaselineSave => baseline::save(context, params).await,
        Method::BaselineRestore => baseline::restore(context, params).await,
    }
}
