//! The benchmark's baseline: a checkpoint's whole memory into a file, and out of it into a new VMM process, as systems do
//! that restore snapshots.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Instant;

use coppice_wire::vmm::{Command, Event, Stages, WholeConfig, host_time_ns};

use crate::checkpoints::Checkpoint;
use crate::defaults::BASELINE_DEADLINE;
use crate::errors::{FaultDomain, Spec, Typed};
use crate::extents::ExtentError;
use crate::host::Host;
use crate::machine::boot::Made;
use crate::machine::control_socket::control_socket;
use crate::machine::custody::Custody;
use crate::machine::handout::{HandOut, HandOutError, hand_out, micros_since};
use crate::machine::priority::Worth;
use crate::machine::process::{Role, VmmError, expect_answer, vmm_stages};
use crate::machine::sandbox::{Sandbox, SandboxError};
use crate::machine::spawn::{SpawnError, spawn_vmm};
use crate::machine::state::State;
use crate::machine::supervisor::supervise;
use crate::memory::MemoryError;
use crate::session::{Session, SessionError};

const MIB: u64 = 1024 * 1024;

#[derive(Debug, thiserror::Error)]
pub enum WholeError {
    #[error(transparent)]
    Session(#[from] SessionError),
    #[error(transparent)]
    Memory(#[from] MemoryError),
    #[error(transparent)]
    Disk(#[from] ExtentError),
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    #[error("The machine can't be handed out: {0}")]
    HandOut(#[from] HandOutError),
    #[error("The baseline failed: {0}")]
    Vmm(#[from] VmmError),
    #[error("No whole machine is saved for checkpoint {checkpoint} in this session")]
    NotSaved { checkpoint: String },
    #[error("A descriptor of the saved machine can't be made: {0}")]
    Descriptor(std::io::Error),
}

impl Typed for WholeError {
    fn spec(&self) -> Spec {
        match self {
            WholeError::Session(error) => error.spec(),
            WholeError::Memory(error) => error.spec(),
            WholeError::Disk(error) => error.spec(),
            WholeError::Spawn(error) => error.spec(),
            WholeError::Sandbox(error) => error.spec(),
            WholeError::HandOut(error) => error.spec(),
            WholeError::Vmm(VmmError::Failed { code, .. }) => Spec::named(code, FaultDomain::Host)
                .remedy("The baseline is for templates without a disk (diskMiB: 0), whose guest is at rest."),
            WholeError::NotSaved { .. } => {
                Spec::new("INVALID_ARGUMENT", FaultDomain::User).remedy("Call baseline.save first.")
            }
            WholeError::Vmm(_) => Spec::new("VMM_FAILED", FaultDomain::Host).retryable(),
            WholeError::Descriptor(_) => Spec::new("HOST_FULL", FaultDomain::Host)
                .retryable()
                .remedy("Close sandboxes, or raise the limit on open files (ulimit -n)."),
        }
    }
}

/// A machine in a file, as its session holds it.
pub struct Saved {
    checkpoint: String,
    file: OwnedFd,
    memory_mib: u32,
    pub file_bytes: u64,
}

/// Writes the file. The frozen process does nothing else meanwhile.
pub async fn save(host: &Host, checkpoint: &Checkpoint) -> Result<(Saved, Stages), WholeError> {
    let file = host.extents.create()?;
    let answer = checkpoint.process.send(&Command::SaveWhole, Some(file.writable))?;
    let answer = answer.within(BASELINE_DEADLINE).await?;
    let saved = expect_answer!(answer, "saveWhole", Event::SavedWhole { memory_mib, file_bytes, stages } => (memory_mib, file_bytes, stages));
    let (memory_mib, file_bytes, stages) = saved?;
    let saved = Saved {
        checkpoint: checkpoint.id.clone(),
        file: file.readable,
        memory_mib,
        file_bytes,
    };
    Ok((saved, vmm_stages(stages)))
}

/// What a restore needs to know besides the file.
pub struct LoadSpec {
    pub image: PathBuf,
    pub mapped: bool,
}

/// A sandbox in a new process, handed out as a fork is.
pub async fn load(
    host: &Rc<Host>,
    session: &Session,
    checkpoint: &Checkpoint,
    spec: LoadSpec,
) -> Result<Made, WholeError> {
    let (file, memory_mib) = match &*session.saved.borrow() {
        Some(saved) if saved.checkpoint == checkpoint.id => (
            saved.file.try_clone().map_err(WholeError::Descriptor)?,
            saved.memory_mib,
        ),
        _ => {
            return Err(WholeError::NotSaved {
                checkpoint: checkpoint.id.clone(),
            });
        }
    };
    host.admission.admit_boot(u64::from(memory_mib) * MIB)?;
    host.admit_sandbox::<WholeError>(session)?;
    let begin = Instant::now();
    let id = host.ids.sandbox();
    let (ours, theirs) = control_socket().map_err(SpawnError::Socket)?;
    let generation = checkpoint.process.agent.generation();
    let process = supervise(host, ours, Role::Sandbox(id.clone()), generation);
    let sandbox = host.adopt(Sandbox::new(
        id,
        session.id.clone(),
        Rc::clone(&process),
        Some(checkpoint),
    ));
    let custody = Custody::new(host, &sandbox);
    host.reaper.register(spawn_vmm(&host.config.vmm, theirs)?, &process);
    let at_ns = host_time_ns();
    let stopped_ns = checkpoint.process.stopped(at_ns).wall_ns;
    let whole = WholeConfig {
        image: spec.image.display().to_string(),
        memory_mib,
        mapped: spec.mapped,
    };
    let started = process.send(&Command::LoadWhole { whole, at_ns }, Some(file))?;
    let started = started.within(BASELINE_DEADLINE).await?;
    let started = expect_answer!(started, "loadWhole", Event::Started { stages, missing, .. } => (stages, missing));
    let (started, missing) = started?;
    host.missing_barriers.of(missing);
    let mut stages = vmm_stages(started);
    stages.push(("start".to_owned(), micros_since(begin)));
    let hand_over = HandOut {
        keep_randomness: false,
        stopped_ns: Some(stopped_ns),
    };
    stages.extend(hand_out(host, &sandbox, hand_over).await?);
    sandbox.advance(State::Booting, State::Leased)?;
    process.later(|process| process.set_worth(Worth::Sandbox));
    custody.release();
    Ok(Made { sandbox, stages })
}
