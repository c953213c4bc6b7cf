//! `sandbox.rewind`

use coppice_wire::Value;
use serde::{Deserialize, Serialize};

use crate::machine::rewind::{self, RewindError};
use crate::methods::{Answer, Context, Outcome};
use crate::values;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Rewind {
    sandbox: String,
    #[serde(default)]
    keep_randomness: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Rewound {
    generation: u64,
    dirty_pages: u64,
}

pub async fn rewind(context: &Context, params: Value) -> Outcome {
    let Rewind {
        sandbox: id,
        keep_randomness,
    } = values::params(params)?;
    let host = &context.host;
    let sandbox = host.sandbox(&context.session.id, &id)?;
    let origin = sandbox.origin.clone().ok_or(RewindError::NotRewindable { id })?;
    let origin = host.checkpoint(&context.session.id, &origin)?;
    let rewind::Rewound { dirty_pages, stages } = rewind::rewind(host, &sandbox, &origin, keep_randomness).await?;
    let generation = sandbox.process.agent.generation();
    Answer::with_stages(
        &Rewound {
            generation,
            dirty_pages,
        },
        stages,
    )
}
