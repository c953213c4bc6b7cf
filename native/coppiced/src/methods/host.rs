//! `host.*` and `session.*`

use coppice_wire::Value;
use serde::{Deserialize, Serialize};

use crate::extents::DiskSpace;
use crate::host::cpus;
use crate::machine::state::State;
use crate::memory::{MachineMemory, machine_memory};
use crate::methods::{Answer, Context, Outcome};
use crate::stats::CounterValues;
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
}

#[derive(Default, Serialize)]
struct SandboxCounts {
    booting: usize,
    ready: usize,
    leased: usize,
    poisoned: usize,
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
    counters: CounterValues,
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
    })
}

pub fn stats(context: &Context, params: Value) -> Outcome {
    values::params::<NoParams>(params)?;
    let host = &context.host;
    let mut sandboxes = SandboxCounts::default();
    for sandbox in host.sandboxes.borrow().values() {
        match sandbox.state.get() {
            State::Booting => sandboxes.booting += 1,
            State::Ready => sandboxes.ready += 1,
            State::Leased => sandboxes.leased += 1,
            State::Poisoned => sandboxes.poisoned += 1,
            State::Frozen | State::Closed => {}
        }
    }
    let (hot, shared) = host.checkpoints.count();
    Answer::new(&Stats {
        sandboxes,
        checkpoints: CheckpointCounts { hot, shared },
        sessions: host.sessions.count(),
        memory: machine_memory()?,
        // Where no file can be made there is no room.
        disk: host.extents.space().unwrap_or_default(),
        counters: host.counters.values(),
    })
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
