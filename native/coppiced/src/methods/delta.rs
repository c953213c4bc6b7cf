//! `checkpoint.delta`

use coppice_wire::Value;
use coppice_wire::vmm::{Command, Event};
use serde::{Deserialize, Serialize};

use crate::errors::{FaultDomain, Spec, Typed};
use crate::machine::process::{VmmError, VmmProcess, expect_answer};
use crate::methods::{Answer, Context, Outcome};
use crate::values;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct One {
    checkpoint: String,
}

/// As first and length.
type Runs = Vec<(u64, u64)>;

#[derive(Serialize)]
struct Delta<'a> {
    parent: &'a str,
    pages: Runs,
    blocks: Runs,
}

#[derive(Debug, thiserror::Error)]
enum DeltaError {
    #[error("Checkpoint {id} was made of a sandbox that was booted: there is nothing that it could differ from")]
    NoParent { id: String },
    #[error("Checkpoint {id} can't be compared with its parent: {source}")]
    Vmm { id: String, source: VmmError },
}

impl Typed for DeltaError {
    fn spec(&self) -> Spec {
        match self {
            DeltaError::NoParent { .. } => Spec::new("NO_PARENT", FaultDomain::User)
                .remedy("Ask for the delta of a checkpoint that was made of a fork."),
            DeltaError::Vmm { .. } => Spec::new("DELTA_FAILED", FaultDomain::Host)
                .retryable()
                .remedy("See the message; both checkpoints are as they were."),
        }
    }
}

/// Takes as long as it takes to look at all that one of the two has written; meanwhile neither can be forked.
pub async fn delta(context: &Context, params: Value) -> Outcome {
    let One { checkpoint: id } = values::params(params)?;
    let host = &context.host;
    let checkpoint = host.checkpoint(&context.session.id, &id)?;
    let parent = checkpoint.parent.clone();
    let parent = parent.ok_or_else(|| DeltaError::NoParent { id: id.clone() })?;
    let parent = host.checkpoint(&context.session.id, &parent)?;
    match compare(&checkpoint.process, &parent.process).await {
        Ok((pages, blocks)) => Answer::new(&Delta {
            parent: &parent.id,
            pages,
            blocks,
        }),
        Err(source) => {
            // Who has dropped one of the two meanwhile is told that.
            host.checkpoint(&context.session.id, &id)?;
            host.checkpoint(&context.session.id, &parent.id)?;
            Err(DeltaError::Vmm { id, source }.into())
        }
    }
}

async fn compare(checkpoint: &VmmProcess, parent: &VmmProcess) -> Result<(Runs, Runs), VmmError> {
    let compared = checkpoint.send_about(&Command::Compare, parent)?.answer().await?;
    expect_answer!(compared, "compare", Event::Compared { pages, blocks } => (pages, blocks))
}
