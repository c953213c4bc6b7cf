//! `checkpoint.*` and `memory.usage`

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use coppice_wire::Value;
use serde::{Deserialize, Serialize};

use crate::checkpoints::{Checkpoint, CheckpointError};
use crate::host::Host;
use crate::ids::is_id;
use crate::machine::process::VmmProcess;
use crate::memory::{MemoryError, unreadable};
use crate::methods::{Answer, Context, Outcome};
use crate::usage::process_usage;
use crate::values::{self, ValueError};

const MAX_KEY_BYTES: usize = 1_024;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct One {
    checkpoint: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct List {}

#[derive(Serialize)]
struct Listed {
    checkpoints: Vec<Row>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    checkpoint: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    dirty_pages: u64,
    dirty_blocks: u64,
    children: usize,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Share {
    checkpoint: String,
    key: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Lookup {
    key: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Found {
    checkpoint: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dirty_pages: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dirty_blocks: Option<u64>,
}

/// Exactly one of the two.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Usage {
    sandbox: Option<String>,
    checkpoint: Option<String>,
}

/// Drops a checkpoint of the session. A shared one stays: it is the host's.
pub async fn drop_one(context: &Context, params: Value) -> Outcome {
    let One { checkpoint: id } = values::params(params)?;
    match context.host.checkpoint(&context.session.id, &id) {
        Ok(checkpoint) if checkpoint.is_shared() => {}
        Ok(checkpoint) => {
            context.host.drop_checkpoint(&checkpoint);
            checkpoint.process.settled().await;
        }
        // Dropped or lost already; one that is unknown may belong to an earlier daemon.
        Err(CheckpointError::NotFound { .. }) if !is_id(&id, "cp") => {
            let (given, expected) = ("no id".into(), "an id".into());
            return Err(ValueError::Param {
                name: "checkpoint",
                given,
                expected,
            }
            .into());
        }
        Err(CheckpointError::Dropped { .. }) => context.host.counters.repeated_closes.increment(),
        Err(_) => {}
    }
    Ok(Answer::empty())
}

pub fn list(context: &Context, params: Value) -> Outcome {
    values::params::<List>(params)?;
    let host = &context.host;
    let all = host.checkpoints.all();
    let children = children(host, &all);
    let own = all
        .iter()
        .filter(|checkpoint| checkpoint.is_owned_by(&context.session.id));
    let mut rows: Vec<Row> = own
        .map(|checkpoint| Row {
            checkpoint: checkpoint.id.clone(),
            parent: checkpoint.parent.clone(),
            name: checkpoint.name.clone(),
            dirty_pages: checkpoint.delta.pages,
            dirty_blocks: checkpoint.delta.blocks,
            children: children.get(checkpoint.id.as_str()).copied().unwrap_or(0),
        })
        .collect();
    rows.sort_by(|left, right| left.checkpoint.cmp(&right.checkpoint));
    Answer::new(&Listed { checkpoints: rows })
}

/// How many sandboxes and checkpoints were made from each checkpoint, and live.
pub fn children(host: &Host, all: &[Rc<Checkpoint>]) -> HashMap<String, usize> {
    let mut children: HashMap<String, usize> = HashMap::new();
    let sandboxes = host.sandboxes.borrow();
    let origins = sandboxes.values().filter_map(|sandbox| sandbox.origin.clone());
    for parent in origins.chain(all.iter().filter_map(|checkpoint| checkpoint.parent.clone())) {
        *children.entry(parent).or_default() += 1;
    }
    children
}

pub fn share(context: &Context, params: Value) -> Outcome {
    let Share { checkpoint: id, key } = values::params(params)?;
    check_key(&key)?;
    let host = &context.host;
    let checkpoint = host.checkpoint(&context.session.id, &id)?;
    let winner = match host.checkpoints.lookup(&key) {
        Some(taken) => {
            if taken.id != checkpoint.id && !checkpoint.is_shared() {
                host.drop_checkpoint(&checkpoint);
            }
            taken
        }
        None if checkpoint.is_shared() => {
            let (given, expected) = ("shared under another key".into(), "one of this session's own".into());
            return Err(ValueError::Param {
                name: "checkpoint",
                given,
                expected,
            }
            .into());
        }
        None => {
            tracing::info!(checkpoint = checkpoint.id, key, "Shared");
            host.checkpoints.share(&checkpoint, key);
            checkpoint
        }
    };
    Answer::new(&found(Some(&winner)))
}

pub fn lookup(context: &Context, params: Value) -> Outcome {
    let Lookup { key } = values::params(params)?;
    check_key(&key)?;
    Answer::new(&found(context.host.checkpoints.lookup(&key).as_ref()))
}

/// What one VMM process adds to the host, see `usage::process_usage`.
pub async fn memory_usage(context: &Context, params: Value) -> Outcome {
    let Usage { sandbox, checkpoint } = values::params(params)?;
    let session = &context.session.id;
    let process = match (sandbox, checkpoint) {
        (Some(id), None) => Rc::clone(&context.host.sandbox(session, &id)?.process),
        (None, Some(id)) => Rc::clone(&context.host.checkpoint(session, &id)?.process),
        (sandbox, _) => {
            let given = if sandbox.is_some() {
                "given beside `checkpoint`"
            } else {
                "missing, as is `checkpoint`"
            };
            let expected = "exactly one of the two".into();
            return Err(ValueError::Param {
                name: "sandbox",
                given: given.into(),
                expected,
            }
            .into());
        }
    };
    let pid = pid_of(&process)?;
    let extents = Arc::clone(&context.host.extents);
    let counted = tokio::task::spawn_blocking(move || process_usage(pid, &extents)).await;
    Answer::new(&counted.map_err(|error| unreadable("memory", error.to_string()))??)
}

fn pid_of(process: &VmmProcess) -> Result<i32, MemoryError> {
    let pid = process
        .pid()
        .ok_or_else(|| unreadable("the process", "it has ended".to_owned()))?;
    Ok(pid.as_raw())
}

fn check_key(key: &str) -> Result<(), ValueError> {
    match key.len() {
        1..=MAX_KEY_BYTES => Ok(()),
        length => {
            let (given, expected) = (format!("{length} bytes long"), format!("1 to {MAX_KEY_BYTES} bytes"));
            Err(ValueError::Param {
                name: "key",
                given,
                expected,
            })
        }
    }
}

fn found(checkpoint: Option<&Rc<Checkpoint>>) -> Found {
    Found {
        checkpoint: checkpoint.map(|checkpoint| checkpoint.id.clone()),
        dirty_pages: checkpoint.map(|checkpoint| checkpoint.delta.pages),
        dirty_blocks: checkpoint.map(|checkpoint| checkpoint.delta.blocks),
    }
}
