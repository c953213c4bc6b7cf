//! Making a checkpoint of a sandbox that goes on.

use std::rc::Rc;

use coppice_wire::vmm::{Command, Event, Stages};

use crate::checkpoints::{Checkpoint, Delta};
use crate::defaults::CONTROL_DEADLINE;
use crate::errors::{FaultDomain, Spec, Typed};
use crate::host::Host;
use crate::machine::control_socket::control_socket;
use crate::machine::fork::claim;
use crate::machine::priority::Worth;
use crate::machine::process::{Role, VmmError, VmmProcess, expect_answer, vmm_stages};
use crate::machine::sandbox::Sandbox;
use crate::machine::spawn::SpawnError;
use crate::machine::supervisor::supervise;
use crate::memory::MemoryError;

#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    #[error(transparent)]
    Memory(#[from] MemoryError),
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    /// What the sandbox's own VMM said.
    #[error("Sandbox {id} can't be copied: {source}")]
    Source { id: String, source: VmmError },
    #[error("The copy of sandbox {id} failed: {source}")]
    Copy { id: String, source: VmmError },
}

impl Typed for CopyError {
    fn spec(&self) -> Spec {
        let failed = Spec::new("CHECKPOINT_FAILED", FaultDomain::Host).retryable();
        match self {
            CopyError::Memory(error) => error.spec(),
            CopyError::Spawn(error) => error.spec(),
            CopyError::Source { source, .. } if source.poisons() => failed
                .remedy("The sandbox is poisoned: close it and fork its checkpoint again.")
                .poisons(),
            CopyError::Source {
                source: VmmError::Failed { code, .. },
                ..
            } => Spec::named(code, FaultDomain::Host).remedy("See the message; the sandbox goes on."),
            CopyError::Source { .. } | CopyError::Copy { .. } => {
                failed.remedy("Try again; the sandbox goes on where it says nothing else.")
            }
        }
    }
}

/// Ends the copy when dropped, unless `keep` was called: a checkpoint that nobody heard of is nobody's.
struct Orphan<'a> {
    host: &'a Host,
    process: Option<Rc<VmmProcess>>,
}

impl Orphan<'_> {
    fn keep(mut self) {
        self.process = None;
    }
}

impl Drop for Orphan<'_> {
    fn drop(&mut self) {
        if let Some(process) = &self.process {
            self.host.abandon(process);
        }
    }
}

/// A frozen copy of the sandbox as it is in one moment, which is the caller's to make known. The sandbox goes on, and so
/// do its calls.
pub async fn copy(host: &Rc<Host>, sandbox: &Sandbox, name: Option<String>) -> Result<(Checkpoint, Stages), CopyError> {
    host.admission.admit_child()?;
    let id = host.ids.checkpoint();
    let (ours, theirs) = control_socket().map_err(SpawnError::Socket)?;
    let generation = sandbox.process.agent.generation();
    let process = supervise(host, ours, Role::Checkpoint(id.clone()), generation);
    process.set_threads(sandbox.process.threads());
    let orphan = Orphan {
        host,
        process: Some(Rc::clone(&process)),
    };
    let of_source = |source| CopyError::Source {
        id: sandbox.id.clone(),
        source,
    };
    let of_copy = |source| CopyError::Copy {
        id: sandbox.id.clone(),
        source,
    };
    let frozen = process.expect("checkpoint");
    let tag = host.ids.request();
    let made = sandbox.process.send(&Command::Checkpoint { tag }, Some(theirs));
    let made = made
        .map_err(of_source)?
        .within(CONTROL_DEADLINE)
        .await
        .map_err(of_source)?;
    let made = expect_answer!(made, "checkpoint", Event::Checkpointed { pid, stages, .. } => (pid, stages));
    let (pid, stages) = made.map_err(of_source)?;
    claim(host, &process, pid)?;
    let frozen = frozen.within(CONTROL_DEADLINE).await.map_err(of_copy)?;
    let frozen = expect_answer!(frozen, "checkpoint", Event::Parked { at_ns, dirty_pages, dirty_blocks, .. } => (at_ns, Delta { pages: dirty_pages, blocks: dirty_blocks }));
    let (at_ns, delta) = frozen.map_err(of_copy)?;
    process.set_stopped_at_ns(at_ns);
    // It may have ended before anybody knew what it was.
    if let Some(ending) = process.ending() {
        return Err(of_copy(VmmError::Ended(ending)));
    }
    let (source, copied_on) = (Rc::clone(&sandbox.process), Rc::clone(host));
    process.later(move |process| {
        process.set_worth(Worth::Checkpoint);
        copied_on.enforcement.release_copy(&source, process);
    });
    orphan.keep();
    let checkpoint = sandbox.to_checkpoint(id, name, delta, process);
    Ok((checkpoint, vmm_stages(stages)))
}
