//! Putting a sandbox back to the checkpoint that it was forked from, in the process and the VM that it has.

use std::rc::Rc;
use std::time::Instant;

use coppice_wire::vmm::{Command, Event, Stages, host_time_ns};

use crate::checkpoints::Checkpoint;
use crate::defaults::CONTROL_DEADLINE;
use crate::errors::{FaultDomain, Spec, Typed};
use crate::host::Host;
use crate::machine::agent_link::Cut;
use crate::machine::custody::Custody;
use crate::machine::handout::{HandOut, HandOutError, hand_out, micros_since};
use crate::machine::process::{VmmError, expect_answer, vmm_stages};
use crate::machine::sandbox::{Sandbox, SandboxError};
use crate::machine::state::State;

#[derive(Debug, thiserror::Error)]
pub enum RewindError {
    #[error("Sandbox {id} was not forked to be rewound in place")]
    NotRewindable { id: String },
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    #[error("Sandbox {id} can't go back: {source}")]
    Vmm { id: String, source: VmmError },
    #[error("Sandbox {id} went back and can't be handed out: {source}")]
    HandOut { id: String, source: HandOutError },
}

impl Typed for RewindError {
    fn spec(&self) -> Spec {
        match self {
            RewindError::NotRewindable { .. } => Spec::new("NOT_REWINDABLE", FaultDomain::User)
                .remedy("Fork it with `rewindable: true`, or fork its checkpoint again instead."),
            RewindError::Sandbox(error) => error.spec(),
            RewindError::Vmm { source, .. } if is_harmless(source) => Spec::new("REWIND_FAILED", FaultDomain::Host)
                .remedy("The sandbox goes on as it was; fork its checkpoint again instead."),
            RewindError::Vmm { .. } | RewindError::HandOut { .. } => Spec::new("REWIND_FAILED", FaultDomain::Host)
                .retryable()
                .remedy("The sandbox was discarded; fork its checkpoint again.")
                .poisons(),
        }
    }
}

/// Whether the VMM has refused, and the sandbox is as it was.
fn is_harmless(error: &VmmError) -> bool {
    matches!(error, VmmError::Failed { poisons: false, .. })
}

pub struct Rewound {
    /// As many were put back.
    pub dirty_pages: u64,
    pub stages: Stages,
}

/// What it was asked and has not answered fails. Then it is a new life, with everything that makes a fork one: randomness,
/// names, clock and generation are handed out and checked. Given up or failed on the way, the sandbox is discarded.
pub async fn rewind(
    host: &Rc<Host>,
    sandbox: &Rc<Sandbox>,
    origin: &Checkpoint,
    keep_randomness: bool,
) -> Result<Rewound, RewindError> {
    let id = || sandbox.id.clone();
    if !sandbox.is_rewindable.get() {
        return Err(RewindError::NotRewindable { id: id() });
    }
    let _operation = sandbox.begin("rewind", State::Leased)?;
    // Never closed, so this always gets a permit.
    let _slot = host.hand_outs.acquire().await;
    sandbox.require_state(State::Leased)?;
    let begin = Instant::now();
    let custody = Custody::new(host, sandbox);
    let process = &sandbox.process;
    process.agent.fail_pending(Cut::Rewound);
    let at_ns = host_time_ns();
    let stopped_ns = origin.process.stopped(at_ns).wall_ns;
    let answer = match process.send_about(&Command::Rewind { at_ns }, &origin.process) {
        Ok(due) => due.within(CONTROL_DEADLINE).await,
        Err(error) => Err(error),
    };
    let rewound = answer.and_then(
        |answer| expect_answer!(answer, "rewind", Event::Rewound { dirty_pages, stages } => (dirty_pages, stages)),
    );
    let (dirty_pages, stages) = match rewound {
        Ok(rewound) => rewound,
        Err(source) => {
            if is_harmless(&source) {
                custody.release();
            }
            return Err(RewindError::Vmm { id: id(), source });
        }
    };
    let mut stages = vmm_stages(stages);
    stages.push(("rewind".to_owned(), micros_since(begin)));
    let options = HandOut {
        keep_randomness,
        stopped_ns: Some(stopped_ns),
    };
    let before = sandbox.boot_id.borrow().clone();
    let of_hand_out = |source| RewindError::HandOut { id: id(), source };
    stages.extend(hand_out(host, sandbox, options).await.map_err(of_hand_out)?);
    if !keep_randomness && *sandbox.boot_id.borrow() == before {
        return Err(of_hand_out(HandOutError::SameBootId));
    }
    sandbox.require_state(State::Leased)?;
    custody.release();
    host.counters.rewinds.increment();
    tracing::debug!(sandbox = sandbox.id, dirty_pages, "Rewound in place");
    Ok(Rewound { dirty_pages, stages })
}
