//! Making one child of a checkpoint.

use std::rc::Rc;
use std::time::Instant;

use coppice_wire::vmm::{Command, Event, Stages, host_time_ns};
use nix::unistd::Pid;

use crate::checkpoints::{Checkpoint, CheckpointError};
use crate::defaults::{CONTROL_DEADLINE, IDLE_LOOK_INTERVAL, IDLE_LOOKS};
use crate::errors::{FaultDomain, Spec, Typed};
use crate::host::Host;
use crate::machine::boot::Made;
use crate::machine::control_socket::control_socket;
use crate::machine::custody::Custody;
use crate::machine::handout::{HandOut, HandOutError, hand_out, micros_since, rehearse};
use crate::machine::priority::{Urgency, Worth};
use crate::machine::process::{Ending, Role, VmmError, VmmProcess, expect_answer, vmm_stages};
use crate::machine::sandbox::{Sandbox, SandboxError};
use crate::machine::spawn::{SpawnError, own_child};
use crate::machine::state::State;
use crate::machine::supervisor::supervise;
use crate::memory::MemoryError;
use crate::session::{Session, SessionError};

#[derive(Debug, thiserror::Error)]
pub enum ForkError {
    #[error(transparent)]
    Session(#[from] SessionError),
    #[error(transparent)]
    Memory(#[from] MemoryError),
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    #[error("The checkpoint's VMM can't fork: {0}")]
    Parent(VmmError),
    #[error("The child did not start: {0}")]
    Child(#[from] VmmError),
    #[error("The child can't be handed out: {0}")]
    HandOut(#[from] HandOutError),
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
}

impl Typed for ForkError {
    fn spec(&self) -> Spec {
        match self {
            ForkError::Session(error) => error.spec(),
            ForkError::Memory(error) => error.spec(),
            ForkError::Spawn(error) => error.spec(),
            ForkError::Checkpoint(error) => error.spec(),
            ForkError::HandOut(error) => error.spec(),
            ForkError::Sandbox(error) => error.spec(),
            ForkError::Parent(VmmError::Failed { code, .. }) | ForkError::Child(VmmError::Failed { code, .. }) => {
                Spec::named(code, FaultDomain::Host)
                    .retryable()
                    .remedy("See the message; try again.")
            }
            ForkError::Parent(_) | ForkError::Child(_) => Spec::new("FORK_FAILED", FaultDomain::Host)
                .retryable()
                .remedy("Fork again; where it goes on, look at the daemon's log."),
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub struct ForkSpec {
    /// Run it to idle, then stop it: it waits, ready, for a lease.
    pub run_ahead: bool,
    pub keep_randomness: bool,
    /// Note what it writes, so that it can be rewound in place.
    pub rewindable: bool,
}

/// One child, leased or ready. Given up half-way, nothing of it stays.
pub async fn fork_child(
    host: &Rc<Host>,
    session: &Session,
    checkpoint: &Checkpoint,
    spec: ForkSpec,
) -> Result<Made, ForkError> {
    // Never closed, so this always gets a permit.
    let _slot = host.hand_outs.acquire().await;
    host.admission.admit_child()?;
    host.admit_sandbox::<ForkError>(session)?;
    let begin = Instant::now();
    let id = host.ids.sandbox();
    let (ours, theirs) = control_socket().map_err(SpawnError::Socket)?;
    let process = supervise(
        host,
        ours,
        Role::Sandbox(id.clone()),
        checkpoint.process.agent.generation(),
    );
    let sandbox = host.adopt(Sandbox::new(
        id,
        session.id.clone(),
        Rc::clone(&process),
        Some(checkpoint),
    ));
    let custody = Custody::new(host, &sandbox);
    process.set_threads(checkpoint.process.threads());

    let urgency = if spec.run_ahead {
        Urgency::Background
    } else {
        Urgency::Foreground
    };
    let awaited = (!spec.run_ahead).then(|| checkpoint.process.await_fork());
    let started = process.expect("start");
    let (tag, at_ns) = (host.ids.request(), host_time_ns());
    let stopped_ns = checkpoint.process.stopped(at_ns).wall_ns;
    let command = Command::Fork {
        tag,
        at_ns,
        rewindable: spec.rewindable,
    };
    let forked = checkpoint.process.send(&command, Some(theirs));
    let forked = match forked {
        Ok(due) => due.within(CONTROL_DEADLINE).await,
        Err(error) => Err(error),
    };
    let forked = forked.map_err(|error| parent_failed(checkpoint, error))?;
    let forked = expect_answer!(forked, "fork", Event::Forked { pid, stages, .. } => (pid, stages));
    let (pid, forked) = forked.map_err(|error| parent_failed(checkpoint, error))?;
    claim(host, &process, pid)?;
    process.set_urgency(urgency);
    drop(awaited);
    let mut stages = vmm_stages(forked);

    let started = started.within(CONTROL_DEADLINE).await?;
    let started = expect_answer!(started, "start", Event::Started { stages, learns, .. } => (stages, learns));
    let (started, learns) = started?;
    process.set_learns(learns);
    sandbox.is_rewindable.set(spec.rewindable);
    stages.extend(vmm_stages(started));
    stages.push(("fork".to_owned(), micros_since(begin)));
    let hand_over = HandOut {
        keep_randomness: spec.keep_randomness,
        stopped_ns: Some(stopped_ns),
    };
    stages.extend(hand_out(host, &sandbox, hand_over).await?);
    if spec.run_ahead {
        stages.extend(run_to_idle(host, &sandbox).await?);
        process.set_urgency(Urgency::Foreground);
    }
    sandbox.advance(
        State::Booting,
        if spec.run_ahead { State::Ready } else { State::Leased },
    )?;
    let (limited_on, limited) = (Rc::clone(host), Rc::clone(&sandbox));
    process.later(move |process| {
        process.set_worth(Worth::Sandbox);
        process.prepare_park();
        limited_on.hold_to_limits(&limited);
    });
    custody.release();
    host.counters.forks.increment();
    Ok(Made { sandbox, stages })
}

/// Runs what a first request runs, so that a first request finds it ready, and stops the child when it has nothing left to
/// do: what it would do when it goes on, somebody would wait for.
async fn run_to_idle(host: &Host, sandbox: &Sandbox) -> Result<Stages, ForkError> {
    let process = &sandbox.process;
    rehearse(host, sandbox).await?;
    let mut looks = 0;
    let answer = loop {
        tokio::time::sleep(IDLE_LOOK_INTERVAL).await;
        looks += 1;
        let when_idle = looks < IDLE_LOOKS;
        match process.ask(Command::Pause { when_idle }).await? {
            Event::Busy if when_idle => {}
            answer => break answer,
        }
    };
    let paused = expect_answer!(answer, "pause", Event::Paused { at_ns, stages } => (at_ns, stages));
    let (at_ns, stages) = paused?;
    process.set_stopped_at_ns(at_ns);
    Ok(vmm_stages(stages))
}

/// A frozen process that is silent or answers nonsense can't be trusted with another fork.
fn parent_failed(checkpoint: &Checkpoint, error: VmmError) -> ForkError {
    let id = checkpoint.id.clone();
    match error {
        VmmError::Ended(Ending::Closed) => CheckpointError::Dropped { id }.into(),
        VmmError::Ended(ending) => CheckpointError::Lost {
            id,
            detail: format!("{} {}", ending.reason(), ending.detail()),
        }
        .into(),
        error if error.poisons() => {
            tracing::warn!(checkpoint = id, %error, "Killing a frozen VMM that fails");
            checkpoint.process.kill();
            CheckpointError::Lost {
                id,
                detail: error.to_string(),
            }
            .into()
        }
        error => ForkError::Parent(error),
    }
}

/// Takes the child's pid from its parent's report.
pub fn claim(host: &Host, process: &Rc<VmmProcess>, pid: u32) -> Result<(), SpawnError> {
    match own_child(pid) {
        Ok(child) if host.reaper.is_registered(child) => Err(SpawnError::NotOurs { pid }),
        Ok(child) => {
            host.reaper.register(child, process);
            Ok(())
        }
        // It may have ended, and been collected, before its parent's report was read.
        Err(error) => match i32::try_from(pid)
            .ok()
            .and_then(|raw| host.reaper.take_unclaimed(Pid::from_raw(raw)))
        {
            Some(how) => {
                process.set_exit(how);
                Ok(())
            }
            None => Err(error),
        },
    }
}
