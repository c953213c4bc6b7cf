//! `host.list`: what all sessions hold, without the ids by which their sessions could be joined.

use std::sync::Arc;
use std::time::Instant;

use coppice_wire::Value;
use serde::{Deserialize, Serialize};

use crate::checkpoints::Owner;
use crate::host::Host;
use crate::machine::process::VmmProcess;
use crate::memory::unreadable;
use crate::methods::checkpoint::children;
use crate::methods::{Answer, Context, Outcome};
use crate::usage::{Usage, process_usage};
use crate::values;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    /// With what each process takes.
    #[serde(default)]
    memory: bool,
}

#[derive(Serialize)]
struct Inventory {
    sandboxes: Vec<SandboxRow>,
    checkpoints: Vec<CheckpointRow>,
}

#[derive(Serialize)]
struct OwnerRow {
    session: String,
    client: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SandboxRow {
    sandbox: String,
    owner: OwnerRow,
    state: &'static str,
    checkpoint: Option<String>,
    age_ms: u64,
    memory: Option<Usage>,
    #[serde(skip)]
    pid: Option<i32>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CheckpointRow {
    checkpoint: String,
    owner: Option<OwnerRow>,
    name: Option<String>,
    parent: Option<String>,
    dirty_pages: u64,
    children: usize,
    age_ms: u64,
    memory: Option<Usage>,
    #[serde(skip)]
    pid: Option<i32>,
}

pub async fn list(context: &Context, params: Value) -> Outcome {
    let List { memory } = values::params(params)?;
    let (mut sandboxes, mut checkpoints) = (sandboxes(&context.host), checkpoints(&context.host));
    if !memory {
        return Answer::new(&Inventory { sandboxes, checkpoints });
    }
    let extents = Arc::clone(&context.host.extents);
    let weighed = tokio::task::spawn_blocking(move || {
        // A process may have ended since it was listed.
        let weigh = |pid: Option<i32>| pid.and_then(|pid| process_usage(pid, &extents).ok());
        sandboxes.iter_mut().for_each(|row| row.memory = weigh(row.pid));
        checkpoints.iter_mut().for_each(|row| row.memory = weigh(row.pid));
        Inventory { sandboxes, checkpoints }
    });
    Answer::new(&weighed.await.map_err(|error| unreadable("memory", error.to_string()))?)
}

fn sandboxes(host: &Host) -> Vec<SandboxRow> {
    let sandboxes = host.sandboxes.borrow();
    let mut rows: Vec<SandboxRow> = sandboxes
        .values()
        .map(|sandbox| SandboxRow {
            sandbox: sandbox.id.clone(),
            owner: owner(host, &sandbox.owner),
            state: sandbox.state.get().name(),
            checkpoint: sandbox.origin.clone(),
            age_ms: age_ms(sandbox.made_at),
            memory: None,
            pid: pid(&sandbox.process),
        })
        .collect();
    rows.sort_by(|left, right| {
        right
            .age_ms
            .cmp(&left.age_ms)
            .then_with(|| left.sandbox.cmp(&right.sandbox))
    });
    rows
}

fn checkpoints(host: &Host) -> Vec<CheckpointRow> {
    let all = host.checkpoints.all();
    let children = children(host, &all);
    let mut rows: Vec<CheckpointRow> = all
        .iter()
        .map(|checkpoint| CheckpointRow {
            checkpoint: checkpoint.id.clone(),
            owner: match &*checkpoint.owner.borrow() {
                Owner::Session(id) => Some(owner(host, id)),
                Owner::Host(_) => None,
            },
            name: checkpoint.name.clone(),
            parent: checkpoint.parent.clone(),
            dirty_pages: checkpoint.delta.pages,
            children: children.get(&checkpoint.id).copied().unwrap_or(0),
            age_ms: age_ms(checkpoint.made_at),
            memory: None,
            pid: pid(&checkpoint.process),
        })
        .collect();
    rows.sort_by(|left, right| {
        let by_age = right.age_ms.cmp(&left.age_ms);
        by_age.then_with(|| left.checkpoint.cmp(&right.checkpoint))
    });
    rows
}

/// What of a session may be shown to others.
fn owner(host: &Host, session: &str) -> OwnerRow {
    let known = host.sessions.get(session);
    OwnerRow {
        session: known
            .as_ref()
            .map(|session| session.label().to_owned())
            .unwrap_or_default(),
        client: known.map(|session| session.client.clone()).unwrap_or_default(),
    }
}

fn age_ms(made_at: Instant) -> u64 {
    u64::try_from(made_at.elapsed().as_millis()).unwrap_or(u64::MAX)
}

fn pid(process: &VmmProcess) -> Option<i32> {
    process.pid().map(|pid| pid.as_raw())
}
