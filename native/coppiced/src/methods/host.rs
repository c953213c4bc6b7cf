//! `host.*` and `session.*`

use coppice_wire::Value;
use serde::{Deserialize, Serialize};

use crate::extents::DiskSpace;
use crate::host::cpus;
use crate::limits::Means;
use crate::memory::{MachineMemory, machine_memory};
use crate::methods::{Answer, Context, Outcome};
use crate::metrics;
use crate::stats::{CounterValues, SandboxCounts};
use crate::values;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NoParams {}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Info {
    kind: &'static str,
    version: &'static str,
    pid: u32,
    memory_bytes: u64,
    cpus: usize,
    uptime_ms: u64,
    limits: Means,
}

#[derive(Serialize)]
struct CheckpointCounts {
    hot: usize,
    shared: usize,
}

#[derive(Serialize)]
struct Stats {
    sandboxes: SandboxCounts,
    checkpoints: CheckpointCounts,
    sessions: usize,
    memory: MachineMemory,
    disk: DiskSpace,
    cgroups: usize,
    counters: CounterValues,
}

#[derive(Serialize)]
struct Metrics {
    text: String,
}

pub fn info(context: &Context, params: Value) -> Outcome {
    values::params::<NoParams>(params)?;
    let host = &context.host;
    Answer::new(&Info {
        kind: host.config.kind.name(),
        version: env!("CARGO_PKG_VERSION"),
        pid: std::process::id(),
        memory_bytes: machine_memory()?.total_bytes,
        cpus: cpus(),
        uptime_ms: u64::try_from(host.started_at.elapsed().as_millis()).unwrap_or(u64::MAX),
        limits: host.enforcement.means(),
    })
}

pub fn stats(context: &Context, params: Value) -> Outcome {
    values::params::<NoParams>(params)?;
    let host = &context.host;
    let (hot, shared) = host.checkpoints.count();
    Answer::new(&Stats {
        sandboxes: SandboxCounts::of(host),
        checkpoints: CheckpointCounts { hot, shared },
        sessions: host.sessions.count(),
        memory: machine_memory()?,
        // Where no file can be made there is no room.
        disk: host.extents.space().unwrap_or_default(),
        cgroups: host.enforcement.groups(),
        counters: host.counters.values(),
    })
}

/// The same text that a scraper gets.
pub fn metrics(context: &Context, params: Value) -> Outcome {
    values::params::<NoParams>(params)?;
    let text = metrics::render(&context.host)?;
    Answer::new(&Metrics { text })
}

pub fn shutdown(context: &Context, params: Value) -> Outcome {
    values::params::<NoParams>(params)?;
    context.host.shut_down("a client asked for it");
    Ok(Answer::empty())
}

pub fn end_session(context: &Context, params: Value) -> Outcome {
    values::params::<NoParams>(params)?;
    context.host.end_session(&context.session);
    Ok(Answer::empty())
}
