//! `sandbox.call` and `host.call`

use std::rc::Rc;

use coppice_wire::agent::AgentFailure;
use coppice_wire::{FrameError, Value};
use serde::Deserialize;

use crate::errors::{FaultDomain, MethodError, Spec, Typed, is_code, shorten};
use crate::host::Host;
use crate::machine::agent_link::{CallError, Cut, Delivery, PendingCall, cancel_frame, send};
use crate::machine::sandbox::{Sandbox, SandboxError};
use crate::machine::state::State;
use crate::methods::{Answer, Context, Outcome};
use crate::values::{self, ValueError};

const MAX_OP_BYTES: usize = 64;
const MAX_AGENT_MESSAGE_BYTES: usize = 4 * 1024;

/// Operations that only the daemon may ask for: they change the guest's life, or name other calls by the daemon's ids.
const RESERVED: [&str; 3] = ["resume", "clock", "cancel"];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Call {
    sandbox: String,
    op: String,
    #[serde(default = "no_args")]
    args: Value,
}

fn no_args() -> Value {
    Value::Map(Vec::new())
}

/// What the agent refused, under its own code where that has the form of one.
#[derive(Debug, thiserror::Error)]
#[error("{}", shorten(.0.message.clone(), MAX_AGENT_MESSAGE_BYTES))]
struct AgentError(AgentFailure);

impl Typed for AgentError {
    fn spec(&self) -> Spec {
        match self.0.code.as_str() {
            "INVALID_ARGUMENT" => Spec::new("INVALID_ARGUMENT", FaultDomain::User)
                .remedy("Correct the argument; docs/protocol.md lists the arguments of every operation."),
            code if is_code(code) => Spec::named(code, FaultDomain::Guest),
            _ => Spec::new("AGENT_FAILED", FaultDomain::Guest),
        }
    }
}

pub async fn call(context: &Context, params: Value) -> Outcome {
    let params: Call = values::params(params)?;
    check_op(&params.op)?;
    let sandbox = context.host.sandbox(&context.session.id, &params.sandbox)?;
    call_in(context, sandbox, params).await
}

/// The same in a sandbox of any session: who may connect to a host may shut it down, and so also look into its guests.
pub async fn call_any(context: &Context, params: Value) -> Outcome {
    let params: Call = values::params(params)?;
    check_op(&params.op)?;
    let found = context.host.sandboxes.borrow().get(&params.sandbox).cloned();
    let sandbox = found.ok_or_else(|| SandboxError::NotFoundOnHost {
        id: params.sandbox.clone(),
    })?;
    call_in(context, sandbox, params).await
}

async fn call_in(context: &Context, sandbox: Rc<Sandbox>, params: Call) -> Outcome {
    sandbox.require(State::Leased)?;
    let failed = |error| call_failed(&sandbox, error);
    let id = context.host.ids.request();
    let (frame, pending) = sandbox
        .process
        .agent
        .prepare(id, &params.op, params.args)
        .map_err(failed)?;
    let mut call = Cancelling {
        host: Rc::clone(&context.host),
        sandbox: Rc::clone(&sandbox),
        call: pending,
        done: false,
    };
    tokio::select! {
        // First: a VMM that is being parked must get nothing more.
        biased;
        cut = call.call.cut() => {
            call.done = true;
            return Err(failed(CallError::Cut(cut)));
        }
        sent = send(&sandbox.process.outbox, frame) => if sent.is_err() {
            // The VMM has ended, and why is known in a moment.
            call.done = true;
            return Err(failed(CallError::Cut(call.call.cut().await)));
        }
    }
    loop {
        match call.call.next().await {
            Ok(Delivery::Chunk(chunk)) => context.send_chunk(chunk).await?,
            Ok(Delivery::Done(answer)) => {
                call.done = true;
                let result = answer.map_err(AgentError)?;
                return Ok(Answer {
                    result,
                    stages: Vec::new(),
                });
            }
            Err(error) => {
                call.done = true;
                return Err(failed(error));
            }
        }
    }
}

fn check_op(op: &str) -> Result<(), ValueError> {
    let well_formed = !op.is_empty() && op.len() <= MAX_OP_BYTES && op.bytes().all(|byte| byte.is_ascii_graphic());
    let refused = |given: &str, expected: &str| {
        Err(ValueError::Param {
            name: "op",
            given: given.to_owned(),
            expected: expected.to_owned(),
        })
    };
    match RESERVED.contains(&op) {
        true => refused(&format!("`{op}`, which is the daemon's own"), "an operation of clients"),
        false if !well_formed => refused("no name", "the name of an operation"),
        false => Ok(()),
    }
}

fn call_failed(sandbox: &Sandbox, error: CallError) -> MethodError {
    let id = sandbox.id.clone();
    match error {
        CallError::Cut(Cut::Frozen) => SandboxError::Frozen { id }.into(),
        CallError::Cut(Cut::Closed) => SandboxError::Closed { id }.into(),
        CallError::Cut(Cut::Rewound) => SandboxError::Rewound { id }.into(),
        CallError::Cut(Cut::Deaf) => SandboxError::Deaf { id }.into(),
        CallError::Cut(Cut::Lost(ending)) => SandboxError::ended(id, &ending).into(),
        CallError::Refused(failure) => AgentError(failure).into(),
        CallError::Encode(FrameError::TooLarge { length }) => ValueError::TooLarge { length }.into(),
        CallError::Encode(error) => ValueError::Encode(error.to_string()).into(),
    }
}

/// A call whose agent is told to give it up when nobody waits for it any more.
struct Cancelling {
    host: Rc<Host>,
    sandbox: Rc<Sandbox>,
    call: PendingCall,
    done: bool,
}

impl Drop for Cancelling {
    fn drop(&mut self) {
        // A VMM that is being parked must get nothing more.
        if self.done || self.sandbox.require(State::Leased).is_err() {
            return;
        }
        let generation = self.sandbox.process.agent.generation();
        if let Ok(frame) = cancel_frame(self.host.ids.request(), generation, self.call.id) {
            // A VMM that is gone has no call to give up.
            let _ = self.sandbox.process.outbox.send_now(frame, None);
        }
    }
}
