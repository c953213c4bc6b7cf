//! `baseline.*`: what the benchmark compares forks with

use coppice_wire::Value;
use serde::{Deserialize, Serialize};

use crate::machine::whole::{self, LoadSpec};
use crate::methods::{Answer, Context, Outcome};
use crate::values;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Save {
    checkpoint: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Saved {
    file_bytes: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Restore {
    checkpoint: String,
    image: String,
    #[serde(default)]
    mapped: bool,
}

#[derive(Serialize)]
struct Restored<'a> {
    sandbox: &'a str,
    generation: u64,
}

/// The session holds the file until it saves another, or ends.
pub async fn save(context: &Context, params: Value) -> Outcome {
    let Save { checkpoint: id } = values::params(params)?;
    let checkpoint = context.host.checkpoint(&context.session.id, &id)?;
    // Both would not have room everywhere.
    context.session.saved.take();
    let (saved, stages) = whole::save(&context.host, &checkpoint).await?;
    let answer = Saved {
        file_bytes: saved.file_bytes,
    };
    context.session.saved.replace(Some(saved));
    Answer::with_stages(&answer, stages)
}

pub async fn restore(context: &Context, params: Value) -> Outcome {
    let params: Restore = values::params(params)?;
    let host = &context.host;
    let checkpoint = host.checkpoint(&context.session.id, &params.checkpoint)?;
    let spec = LoadSpec {
        image: host.images.path(&params.image)?,
        mapped: params.mapped,
    };
    let made = whole::load(host, &context.session, &checkpoint, spec).await?;
    let restored = Restored {
        sandbox: &made.sandbox.id,
        generation: made.sandbox.process.agent.generation(),
    };
    Answer::with_stages(&restored, made.stages.clone())
}
