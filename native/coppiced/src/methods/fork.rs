//! `sandbox.fork`

use std::rc::Rc;
use std::time::Instant;

use coppice_wire::Value;
use coppice_wire::client::Failure;
use coppice_wire::vmm::Stages;
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use crate::checkpoints::Checkpoint;
use crate::defaults::{FORK_MARGIN, MAX_FORK};
use crate::errors::MethodError;
use crate::machine::boot::Made;
use crate::machine::custody::Custody;
use crate::machine::fork::{ForkSpec, fork_child};
use crate::methods::sandbox::within;
use crate::methods::{Answer, Context, Outcome, RequestError};
use crate::metrics::Operation;
use crate::values;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Fork {
    checkpoint: String,
    n: i64,
    #[serde(default)]
    run_ahead: bool,
    #[serde(default)]
    keep_randomness: bool,
    #[serde(default)]
    rewindable: bool,
}

#[derive(Serialize)]
struct Forked {
    children: Vec<Child>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Child {
    Made {
        ok: bool,
        sandbox: String,
        generation: u64,
        stages: Stages,
    },
    Failed {
        ok: bool,
        error: Failure,
    },
}

/// A child, and what closes it while the request can still fail.
type Outcomes = Vec<Option<Result<(Made, Custody), MethodError>>>;

/// Every child has its own result, and every result is there within the deadline: children that are not done by then
/// failed, those that are done count.
pub async fn fork(context: &Context, params: Value) -> Outcome {
    let params: Fork = values::params(params)?;
    let n = within("n", params.n, 1, MAX_FORK)?;
    let checkpoint = context.host.checkpoint(&context.session.id, &params.checkpoint)?;
    let spec = ForkSpec {
        run_ahead: params.run_ahead,
        keep_randomness: params.keep_randomness,
        rewindable: params.rewindable,
    };
    let outcomes = fork_all(context, &checkpoint, n, spec).await;
    let mut children = Vec::with_capacity(outcomes.len());
    let mut stages = Stages::new();
    for outcome in outcomes {
        let late = || Err(late(context).into());
        children.push(match outcome.unwrap_or_else(late) {
            Ok((made, custody)) => {
                custody.release();
                stages = made.stages.clone();
                let generation = made.sandbox.process.agent.generation();
                Child::Made {
                    ok: true,
                    sandbox: made.sandbox.id.clone(),
                    generation,
                    stages: made.stages,
                }
            }
            Err(MethodError(error)) => Child::Failed { ok: false, error },
        });
    }
    match children.len() {
        1 => Answer::with_stages(&Forked { children }, stages),
        _ => Answer::new(&Forked { children }),
    }
}

/// One entry a child, `None` where it was not done in time.
async fn fork_all(context: &Context, checkpoint: &Rc<Checkpoint>, n: u64, spec: ForkSpec) -> Outcomes {
    let mut running = JoinSet::new();
    let mut outcomes: Outcomes = Vec::new();
    let operation = if spec.run_ahead {
        Operation::ForkAhead
    } else {
        Operation::Fork
    };
    for index in 0..n as usize {
        outcomes.push(None);
        let (host, session) = (Rc::clone(&context.host), Rc::clone(&context.session));
        let checkpoint = Rc::clone(checkpoint);
        running.spawn_local(async move {
            let timed = host.operations.begin(operation);
            let made = fork_child(&host, &session, &checkpoint, spec).await;
            if made.is_ok() {
                timed.done();
            }
            let kept = made.map(|made| {
                let custody = Custody::new(&host, &made.sandbox);
                (made, custody)
            });
            (index, kept.map_err(MethodError::from))
        });
    }
    let deadline = context.deadline.checked_sub(FORK_MARGIN).unwrap_or_else(Instant::now);
    let all = async {
        while let Some(joined) = running.join_next().await {
            if let Ok((index, outcome)) = joined {
                outcomes[index] = Some(outcome);
            }
        }
    };
    // Dropping what still runs closes what it made.
    let _ = tokio::time::timeout_at(deadline.into(), all).await;
    outcomes
}

fn late(context: &Context) -> RequestError {
    let deadline_ms = context.deadline_ms;
    RequestError::DeadlineExceeded { deadline_ms }
}
