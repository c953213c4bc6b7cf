//! One sandbox: a VMM process that runs, its owner, its state.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Instant;

use crate::checkpoints::{Checkpoint, Delta, Owner};
use crate::errors::{FaultDomain, Spec, Typed};
use crate::limits::Limits;
use crate::machine::process::{Ending, VmmProcess};
use crate::machine::state::{State, StateCell};

#[derive(Debug, Clone, thiserror::Error)]
pub enum SandboxError {
    #[error("No sandbox {id} in this session")]
    NotFound { id: String },
    #[error("No sandbox {id} on this host")]
    NotFoundOnHost { id: String },
    #[error("Sandbox {id} is closed")]
    Closed { id: String },
    #[error("Sandbox {id} went back to its checkpoint, and what it was asked before is no more")]
    Rewound { id: String },
    #[error("Sandbox {id} was parked: it is a checkpoint now")]
    Frozen { id: String },
    #[error("Sandbox {id} is gone: its guest ended its own VM ({reason}{detail})")]
    GuestEnded {
        id: String,
        reason: &'static str,
        detail: String,
    },
    #[error("Sandbox {id} is gone: {detail}")]
    OverLimit { id: String, detail: String },
    #[error("Sandbox {id} is gone: its VMM process ended ({detail})")]
    VmmDied { id: String, detail: String },
    #[error("The guest of sandbox {id} reads nothing: too much waits for its agent, and a request was dropped")]
    Deaf { id: String },
    #[error("Sandbox {id} is poisoned: {reason}")]
    Poisoned { id: String, reason: String },
    #[error("Sandbox {id} is {state}; this needs one that is {wanted}")]
    WrongState {
        id: String,
        state: &'static str,
        wanted: &'static str,
    },
    #[error("Sandbox {id} is busy: {operation} is under way")]
    Busy { id: String, operation: &'static str },
}

impl Typed for SandboxError {
    fn spec(&self) -> Spec {
        let fork_again =
            "Rewind it, or fork the checkpoint again; sandbox.ended carried the end of the guest's console.";
        match self {
            SandboxError::NotFound { .. } => Spec::new("SANDBOX_NOT_FOUND", FaultDomain::User)
                .remedy("Use the id of a sandbox that this session made."),
            SandboxError::NotFoundOnHost { .. } => Spec::new("SANDBOX_NOT_FOUND", FaultDomain::User)
                .remedy("Use the id of a sandbox that runs; host.list has them."),
            SandboxError::Closed { .. } => {
                Spec::new("SANDBOX_CLOSED", FaultDomain::User).remedy("Fork the checkpoint again.")
            }
            SandboxError::Rewound { .. } => Spec::new("SANDBOX_CLOSED", FaultDomain::User)
                .remedy("Ask again, in the life that has begun; before rewinding, wait for what matters."),
            SandboxError::Frozen { .. } => {
                Spec::new("SANDBOX_FROZEN", FaultDomain::User).remedy("Fork the checkpoint that it was parked as.")
            }
            SandboxError::GuestEnded { .. } => Spec::new("SANDBOX_LOST", FaultDomain::Guest)
                .remedy(fork_again)
                .poisons(),
            SandboxError::OverLimit { .. } => Spec::new("SANDBOX_LOST", FaultDomain::Guest)
                .remedy("Give it a higher limit, or have it do less, and fork the checkpoint again.")
                .poisons(),
            SandboxError::VmmDied { .. } => Spec::new("SANDBOX_LOST", FaultDomain::Host)
                .retryable()
                .remedy(fork_again)
                .poisons(),
            SandboxError::Deaf { .. } => Spec::new("SANDBOX_UNRESPONSIVE", FaultDomain::Guest)
                .retryable()
                .remedy("Look at its console; where it has hung, close it and fork its checkpoint again."),
            SandboxError::Poisoned { .. } => Spec::new("SANDBOX_POISONED", FaultDomain::Guest)
                .remedy("Rewind it, or close it and fork the checkpoint again; nothing else but console is allowed.")
                .poisons(),
            SandboxError::WrongState { .. } => Spec::new("SANDBOX_WRONG_STATE", FaultDomain::User)
                .remedy("Lease a ready sandbox before using it, and lease it once."),
            SandboxError::Busy { .. } => Spec::new("SANDBOX_BUSY", FaultDomain::User)
                .retryable()
                .remedy("Wait for the operation that is under way on it."),
        }
    }
}

impl SandboxError {
    /// What a call is told about a VM that has ended.
    pub fn ended(id: String, ending: &Ending) -> Self {
        let detail = match ending.detail() {
            "" => String::new(),
            detail => format!(": {detail}"),
        };
        match ending {
            Ending::Guest { .. } => SandboxError::GuestEnded {
                id,
                reason: ending.reason(),
                detail,
            },
            Ending::Hostile { detail } => SandboxError::Poisoned {
                id,
                reason: detail.clone(),
            },
            Ending::OverLimit { detail } => SandboxError::OverLimit {
                id,
                detail: detail.clone(),
            },
            Ending::Died { detail } => SandboxError::VmmDied {
                id,
                detail: detail.clone(),
            },
            Ending::Closed => SandboxError::Closed { id },
        }
    }
}

pub struct Sandbox {
    pub id: String,
    /// The session that owns it.
    pub owner: String,
    /// The checkpoint it was forked from.
    pub origin: Option<String>,
    pub made_at: Instant,
    pub process: Rc<VmmProcess>,
    /// Whether it can be put back to its origin in place.
    pub is_rewindable: Cell<bool>,
    pub state: StateCell,
    /// Boot identity in the memory it was forked with; empty for a boot. Its own must differ.
    pub inherited_boot_id: String,
    /// Boot identity of its present life; empty until it has one.
    pub boot_id: RefCell<String>,
    /// What it may take of the host; what is made of it inherits them.
    pub limits: Cell<Limits>,
    poison: RefCell<Option<String>>,
    operation: Cell<Option<&'static str>>,
}

impl Sandbox {
    pub fn new(id: String, owner: String, process: Rc<VmmProcess>, from: Option<&Checkpoint>) -> Self {
        Sandbox {
            id,
            owner,
            origin: from.map(|checkpoint| checkpoint.id.clone()),
            made_at: Instant::now(),
            process,
            is_rewindable: Cell::new(false),
            state: StateCell::new(),
            inherited_boot_id: from.map(|checkpoint| checkpoint.boot_id.clone()).unwrap_or_default(),
            boot_id: RefCell::default(),
            limits: Cell::new(from.map(|checkpoint| checkpoint.limits).unwrap_or_default()),
            poison: RefCell::default(),
            operation: Cell::new(None),
        }
    }

    /// Checks that it may be used, and is in the state that an operation needs.
    pub fn require(&self, wanted: State) -> Result<(), SandboxError> {
        self.require_state(wanted)?;
        match self.operation.get() {
            Some(operation) => Err(SandboxError::Busy {
                id: self.id.clone(),
                operation,
            }),
            None => Ok(()),
        }
    }

    /// Ends an operation that took time: it may have been closed or lost meanwhile.
    pub fn advance(&self, from: State, to: State) -> Result<(), SandboxError> {
        self.require_state(from)?;
        self.state.advance(to);
        Ok(())
    }

    pub fn require_state(&self, wanted: State) -> Result<(), SandboxError> {
        let id = self.id.clone();
        match self.state.get() {
            state if state == wanted => Ok(()),
            State::Poisoned => Err(self.poisoned()),
            State::Closed => Err(self
                .process
                .ending()
                .map_or(SandboxError::Closed { id: id.clone() }, |ending| {
                    SandboxError::ended(id, &ending)
                })),
            State::Frozen => Err(SandboxError::Frozen { id }),
            state => Err(SandboxError::WrongState {
                id,
                state: state.name(),
                wanted: wanted.name(),
            }),
        }
    }

    /// Begins an operation that nothing else may run beside.
    pub fn begin(self: &Rc<Self>, operation: &'static str, wanted: State) -> Result<Operation, SandboxError> {
        self.require(wanted)?;
        self.operation.set(Some(operation));
        Ok(Operation(Rc::clone(self)))
    }

    /// The checkpoint of its present state that `process` holds: its own, parked, or a copy.
    pub fn to_checkpoint(&self, id: String, name: Option<String>, delta: Delta, process: Rc<VmmProcess>) -> Checkpoint {
        Checkpoint {
            id,
            owner: Owner::Session(self.owner.clone()).into(),
            parent: self.origin.clone(),
            name,
            delta,
            made_at: Instant::now(),
            boot_id: self.boot_id.borrow().clone(),
            limits: self.limits.get(),
            process,
        }
    }

    pub fn set_poison(&self, reason: String) {
        self.poison.borrow_mut().get_or_insert(reason);
    }

    pub fn poisoned(&self) -> SandboxError {
        let reason = self.poison.borrow().clone().unwrap_or_default();
        SandboxError::Poisoned {
            id: self.id.clone(),
            reason,
        }
    }
}

/// An operation under way; ends when dropped.
pub struct Operation(Rc<Sandbox>);

impl Drop for Operation {
    fn drop(&mut self) {
        self.0.operation.set(None);
    }
}
