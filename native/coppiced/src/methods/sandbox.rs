//! `sandbox.*`, except fork and call

use std::rc::Rc;
use std::time::{Duration, Instant};

use coppice_wire::Value;
use coppice_wire::blank::Blank;
use coppice_wire::vmm::{Command, Event, MAX_VCPUS};
use serde::{Deserialize, Serialize};

use crate::checkpoints::Delta;
use crate::defaults::LEASE_ANSWER_DELAY;
use crate::errors::{FaultDomain, MethodError, Spec, Typed};
use crate::ids::is_id;
use crate::limits::{GuestLimits, Limits};
use crate::machine::agent_link::Cut;
use crate::machine::boot::{self, BootSpec};
use crate::machine::copy::{CopyError, copy};
use crate::machine::custody::Custody;
use crate::machine::handout::{HandOutError, micros_since, wake, woken};
use crate::machine::priority::Worth;
use crate::machine::process::{VmmError, expect_answer, vmm_stages};
use crate::machine::sandbox::{Sandbox, SandboxError};
use crate::machine::state::State;
use crate::methods::{Answer, Context, Outcome};
use crate::metrics::Operation;
use crate::session::SessionError;
use crate::values::{self, ValueError};

/// Debian's stock kernel panics with less (measured: 64 fails, 80 boots).
const MIN_MEMORY_MIB: i64 = 80;
const MAX_MEMORY_MIB: i64 = 65_536;
const MAX_BOOT_TIMEOUT_MS: i64 = 600_000;
const MAX_NAME_BYTES: usize = 1_024;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Boot {
    image: String,
    #[serde(rename = "memoryMiB")]
    memory_mib: i64,
    vcpus: i64,
    timeout_ms: i64,
    #[serde(default, with = "serde_bytes")]
    disk: Option<Vec<u8>>,
    #[serde(default)]
    limits: GuestLimits,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Limit {
    sandbox: String,
    limits: Limits,
}

#[derive(Serialize)]
struct Leased<'a> {
    sandbox: &'a str,
    generation: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct One {
    sandbox: String,
}

#[derive(Serialize)]
struct Generation {
    generation: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Park {
    sandbox: String,
    name: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Parked<'a> {
    checkpoint: &'a str,
    dirty_pages: u64,
    dirty_blocks: u64,
}

impl<'a> Parked<'a> {
    fn new(checkpoint: &'a str, delta: Delta) -> Self {
        Parked {
            checkpoint,
            dirty_pages: delta.pages,
            dirty_blocks: delta.blocks,
        }
    }
}

#[derive(Serialize)]
struct ConsoleData {
    #[serde(with = "serde_bytes")]
    data: Vec<u8>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct List {}

#[derive(Serialize)]
struct Sandboxes {
    sandboxes: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    sandbox: String,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    checkpoint: Option<String>,
    generation: u64,
    pid: i32,
}

#[derive(Debug, thiserror::Error)]
#[error("Sandbox {id} can't be parked: {source}")]
struct ParkError {
    id: String,
    source: VmmError,
}

impl Typed for ParkError {
    fn spec(&self) -> Spec {
        let spec = match &self.source {
            VmmError::Failed { code, .. } => Spec::named(code, FaultDomain::Host),
            VmmError::Ended(ending) if ending.is_guests_fault() => Spec::new("PARK_FAILED", FaultDomain::Guest),
            _ => Spec::new("PARK_FAILED", FaultDomain::Host),
        };
        match self.source.poisons() {
            true => spec
                .remedy("The sandbox is poisoned: close it and fork its checkpoint again.")
                .poisons(),
            false => spec.remedy("See the message; the sandbox goes on where it says nothing else."),
        }
    }
}

pub async fn boot(context: &Context, params: Value) -> Outcome {
    let params: Boot = values::params(params)?;
    let memory_mib = within("memoryMiB", params.memory_mib, MIN_MEMORY_MIB, MAX_MEMORY_MIB)?;
    let vcpus = within("vcpus", params.vcpus, 1, MAX_VCPUS.into())?;
    let timeout_ms = within("timeoutMs", params.timeout_ms, 1, MAX_BOOT_TIMEOUT_MS)?;
    params.disk.as_deref().map_or(Ok(()), check_disk)?;
    let limits = params.limits.checked(&context.host.config.limits)?;
    context.host.enforcement.require(&limits.of_host())?;
    let spec = BootSpec {
        image: context.host.images.path(&params.image)?,
        memory_mib: u32::try_from(memory_mib).unwrap_or(u32::MAX),
        vcpus: u8::try_from(vcpus).unwrap_or(u8::MAX),
        disk: params.disk,
        limits,
        timeout: Duration::from_millis(timeout_ms),
    };
    let made = boot::boot(&context.host, &context.session, spec).await?;
    let generation = made.sandbox.process.agent.generation();
    Answer::with_stages(
        &Leased {
            sandbox: &made.sandbox.id,
            generation,
        },
        made.stages,
    )
}

pub async fn lease(context: &Context, params: Value) -> Outcome {
    let One { sandbox: id } = values::params(params)?;
    let begin = Instant::now();
    let host = &context.host;
    let timed = host.operations.begin(Operation::Lease);
    let sandbox = host.sandbox(&context.session.id, &id)?;
    sandbox.require(State::Ready)?;
    let custody = Custody::new(host, &sandbox);
    let due = wake(host, &sandbox)?;
    // From here on it takes requests: they go behind the order to run.
    sandbox.advance(State::Ready, State::Leased)?;
    let mut answers = sandbox.process.agent.listen();
    if let Err(error) = woken(due).await {
        if !matches!(error, VmmError::Ended(_)) {
            host.poison(&sandbox, error.to_string());
            custody.release();
        }
        return Err(HandOutError::Vmm(error).into());
    }
    custody.release();
    timed.done();
    let stages = vec![("lease".to_owned(), micros_since(begin))];
    // Nothing is lost where nobody asks it anything.
    let _ = tokio::time::timeout(LEASE_ANSWER_DELAY, answers.changed()).await;
    Answer::with_stages(
        &Generation {
            generation: sandbox.process.agent.generation(),
        },
        stages,
    )
}

/// Holds a sandbox to other limits from now on.
pub fn limit(context: &Context, params: Value) -> Outcome {
    let params: Limit = values::params(params)?;
    let host = &context.host;
    let limits = params.limits.checked(&host.config.limits)?;
    host.enforcement.require(&limits)?;
    let sandbox = host.sandbox(&context.session.id, &params.sandbox)?;
    sandbox.require(State::Leased)?;
    host.enforcement.apply(&sandbox.process, &sandbox.id, &limits)?;
    sandbox.limits.set(limits);
    Ok(Answer::empty())
}

pub async fn park(context: &Context, params: Value) -> Outcome {
    let params: Park = values::params(params)?;
    check_name(&params)?;
    let host = &context.host;
    let sandbox = host.sandbox(&context.session.id, &params.sandbox)?;
    host.admit_checkpoint()?;
    let _operation = sandbox.begin("park", State::Leased)?;
    let custody = Custody::new(host, &sandbox);
    sandbox.process.agent.cut(Cut::Frozen);
    let parked = sandbox.process.ask(Command::Park).await;
    let parked = parked.and_then(
        |answer| expect_answer!(answer, "park", Event::Parked { at_ns, dirty_pages, dirty_blocks, stages } => (at_ns, Delta { pages: dirty_pages, blocks: dirty_blocks }, stages)),
    );
    let (at_ns, delta, stages) = match parked {
        Ok(parked) => parked,
        Err(source) => {
            custody.release();
            return Err(park_failed(context, &sandbox, source));
        }
    };
    sandbox.process.set_stopped_at_ns(at_ns);
    let parked_on = Rc::clone(host);
    sandbox.process.later(move |process| {
        process.set_worth(Worth::Checkpoint);
        parked_on.enforcement.release(process);
        process.rest();
    });
    sandbox.require_state(State::Leased)?;
    let id = host.ids.checkpoint();
    tracing::debug!(sandbox = sandbox.id, checkpoint = id, ?delta, "Parked");
    let process = Rc::clone(&sandbox.process);
    host.freeze(&sandbox, sandbox.to_checkpoint(id.clone(), params.name, delta, process));
    custody.release();
    Answer::with_stages(&Parked::new(&id, delta), vmm_stages(stages))
}

/// As `park`, of a sandbox that goes on, with the calls that are under way.
pub async fn checkpoint(context: &Context, params: Value) -> Outcome {
    let params: Park = values::params(params)?;
    check_name(&params)?;
    let host = &context.host;
    let sandbox = host.sandbox(&context.session.id, &params.sandbox)?;
    host.admit_checkpoint()?;
    sandbox.require(State::Leased)?;
    let (checkpoint, stages) = match copy(host, &sandbox, params.name).await {
        Ok(copied) => copied,
        Err(CopyError::Source { source, .. }) if matches!(source, VmmError::Ended(_)) => {
            sandbox.process.settled().await;
            sandbox.require_state(State::Leased)?;
            return Err(CopyError::Source {
                id: params.sandbox,
                source,
            }
            .into());
        }
        Err(error) => {
            if error.spec().poisons {
                host.poison(&sandbox, error.to_string());
            }
            return Err(error.into());
        }
    };
    // Who has ended meanwhile owns nothing.
    if host.sessions.get(&context.session.id).is_none() {
        host.abandon(&checkpoint.process);
        return Err(SessionError::Ended.into());
    }
    tracing::debug!(sandbox = sandbox.id, checkpoint = checkpoint.id, "Copied");
    let answer = Answer::with_stages(&Parked::new(&checkpoint.id, checkpoint.delta), stages);
    host.counters.checkpoints.increment();
    host.checkpoints.insert(Rc::new(checkpoint));
    answer
}

/// Looked at here, so that who gave it is told; the VMM looks again.
fn check_disk(blank: &[u8]) -> Result<(), ValueError> {
    match Blank::read(blank, blank.len() as u64) {
        Ok(_) => Ok(()),
        Err(error) => Err(ValueError::Param {
            name: "disk",
            given: format!("not possible ({error})"),
            expected: "a blank disk, see docs/protocol.md".to_owned(),
        }),
    }
}

fn check_name(params: &Park) -> Result<(), ValueError> {
    match &params.name {
        Some(name) if name.len() > MAX_NAME_BYTES => Err(ValueError::Param {
            name: "name",
            given: "too long".to_owned(),
            expected: format!("at most {MAX_NAME_BYTES} bytes"),
        }),
        _ => Ok(()),
    }
}

fn park_failed(context: &Context, sandbox: &Sandbox, source: VmmError) -> MethodError {
    if source.poisons() {
        context.host.poison(sandbox, source.to_string());
    } else {
        sandbox.process.agent.uncut();
    }
    if let VmmError::Ended(ending) = &source {
        return SandboxError::ended(sandbox.id.clone(), ending).into();
    }
    ParkError {
        id: sandbox.id.clone(),
        source,
    }
    .into()
}

/// Returns when the VMM's process is gone.
pub async fn close(context: &Context, params: Value) -> Outcome {
    let One { sandbox: id } = values::params(params)?;
    match context.host.sandbox(&context.session.id, &id) {
        Ok(sandbox) => {
            context.host.close_sandbox(&sandbox);
            sandbox.process.settled().await;
        }
        // Closed, parked or lost already; one that is unknown may belong to an earlier daemon.
        Err(SandboxError::NotFound { .. }) if !is_id(&id, "sb") => {
            return Err(ValueError::Param {
                name: "sandbox",
                given: "no id".into(),
                expected: "an id".into(),
            }
            .into());
        }
        Err(SandboxError::Closed { .. }) => context.host.counters.repeated_closes.increment(),
        Err(_) => {}
    }
    Ok(Answer::empty())
}

pub fn console(context: &Context, params: Value) -> Outcome {
    let One { sandbox: id } = values::params(params)?;
    let sandbox = context.host.sandbox(&context.session.id, &id)?;
    let data = sandbox.process.console.borrow().contents();
    Answer::new(&ConsoleData { data })
}

pub fn list(context: &Context, params: Value) -> Outcome {
    values::params::<List>(params)?;
    let sandboxes = context.host.sandboxes.borrow();
    let own = sandboxes.values().filter(|sandbox| sandbox.owner == context.session.id);
    let mut rows: Vec<Row> = own.map(|sandbox| row(sandbox)).collect();
    rows.sort_by(|left, right| left.sandbox.cmp(&right.sandbox));
    Answer::new(&Sandboxes { sandboxes: rows })
}

fn row(sandbox: &Sandbox) -> Row {
    Row {
        sandbox: sandbox.id.clone(),
        state: sandbox.state.get().name(),
        checkpoint: sandbox.origin.clone(),
        generation: sandbox.process.agent.generation(),
        pid: sandbox.process.pid().map_or(0, |pid| pid.as_raw()),
    }
}

/// A whole number within limits; the error names the parameter and the limits.
pub fn within(name: &'static str, given: i64, min: i64, max: i64) -> Result<u64, ValueError> {
    match u64::try_from(given) {
        Ok(value) if (min..=max).contains(&given) => Ok(value),
        _ => Err(ValueError::Param {
            name,
            given: given.to_string(),
            expected: format!("{min} to {max}"),
        }),
    }
}
