//! What one daemon holds. Everything runs on one thread, so it is shared by `Rc`.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, watch};

use crate::checkpoints::{Checkpoint, CheckpointError, Checkpoints};
use crate::cli::HostKind;
use crate::defaults::MAX_CHECKPOINTS;
use crate::extents::Extents;
use crate::graveyard::Graveyard;
use crate::ids::{Ids, RandomError};
use crate::images::Images;
use crate::limits::{CgroupChoice, Enforcement, HostLimits};
use crate::machine::barriers::Warned;
use crate::machine::process::Ending;
use crate::machine::sandbox::{Sandbox, SandboxError};
use crate::memory::{Admission, MemoryError};
use crate::metrics::Operations;
use crate::reaper::Reaper;
use crate::server::refusals::RefusalLog;
use crate::session::{Session, SessionError, Sessions};
use crate::stats::Counters;

/// What a daemon is started with.
#[derive(Debug, Clone)]
pub struct Config {
    pub kind: HostKind,
    pub vmm: PathBuf,
    pub kernel: PathBuf,
    pub initrd: PathBuf,
    /// Where the contents of guests' disks go.
    pub extents: PathBuf,
    pub idle_exit: Option<Duration>,
    pub max_sandboxes: usize,
    /// Memory that new sandboxes must leave free; `None`: chosen from the machine.
    pub memory_reserve_bytes: Option<u64>,
    /// Space that guests' disks must leave free; `None`: chosen from the file system.
    pub disk_reserve_bytes: Option<u64>,
    pub cgroups: CgroupChoice,
    /// The most that one sandbox may have.
    pub limits: HostLimits,
}

/// What became of a sandbox.
#[derive(Debug, Clone)]
pub enum SandboxFate {
    Closed,
    Frozen,
    Ended(Ending),
}

/// What became of a checkpoint.
#[derive(Debug, Clone)]
pub enum CheckpointFate {
    Dropped,
    Lost(String),
}

pub struct Host {
    pub config: Config,
    pub counters: Counters,
    pub operations: Operations,
    pub ids: Ids,
    pub images: Images,
    pub extents: Arc<Extents>,
    pub sessions: Sessions,
    pub sandboxes: RefCell<HashMap<String, Rc<Sandbox>>>,
    pub checkpoints: Checkpoints,
    pub sandbox_graves: Graveyard<SandboxFate>,
    pub checkpoint_graves: Graveyard<CheckpointFate>,
    pub reaper: Reaper,
    pub admission: Admission,
    pub enforcement: Enforcement,
    /// Hand-outs under way at once: more than the processors can run only makes each of them late, and a late hand-out
    /// has a late clock.
    pub hand_outs: Semaphore,
    /// Connections that have said hello.
    pub connections: watch::Sender<usize>,
    pub missing_barriers: Warned,
    pub refusals: RefusalLog,
    pub started_at: Instant,
    clock_was_set: Cell<bool>,
    shutdown: watch::Sender<Option<String>>,
}

impl Host {
    pub fn new(config: Config) -> Result<Rc<Self>, RandomError> {
        let admission = Admission::new(config.memory_reserve_bytes);
        let extents = Arc::new(Extents::new(config.extents.clone(), config.disk_reserve_bytes));
        let enforcement = Enforcement::new(&config.cgroups, Arc::clone(&extents));
        Ok(Rc::new(Host {
            config,
            counters: Counters::default(),
            operations: Operations::default(),
            ids: Ids::new()?,
            images: Images::default(),
            extents,
            sessions: Sessions::default(),
            sandboxes: RefCell::default(),
            checkpoints: Checkpoints::default(),
            sandbox_graves: Graveyard::new(),
            checkpoint_graves: Graveyard::new(),
            reaper: Reaper::default(),
            admission,
            enforcement,
            hand_outs: Semaphore::new(cpus() + 1),
            connections: watch::Sender::new(0),
            missing_barriers: Warned::default(),
            refusals: RefusalLog::default(),
            started_at: Instant::now(),
            clock_was_set: Cell::new(false),
            shutdown: watch::Sender::new(None),
        }))
    }

    /// A sandbox of a session, whatever its state.
    pub fn sandbox(&self, session: &str, id: &str) -> Result<Rc<Sandbox>, SandboxError> {
        if let Some(sandbox) = self
            .sandboxes
            .borrow()
            .get(id)
            .filter(|sandbox| sandbox.owner == session)
        {
            return Ok(Rc::clone(sandbox));
        }
        let id = id.to_owned();
        Err(match self.sandbox_graves.fate(&id, session) {
            None => SandboxError::NotFound { id },
            Some(SandboxFate::Closed) => SandboxError::Closed { id },
            Some(SandboxFate::Frozen) => SandboxError::Frozen { id },
            Some(SandboxFate::Ended(ending)) => SandboxError::ended(id, &ending),
        })
    }

    /// A checkpoint that a session may fork.
    pub fn checkpoint(&self, session: &str, id: &str) -> Result<Rc<Checkpoint>, CheckpointError> {
        if let Some(checkpoint) = self
            .checkpoints
            .get(id)
            .filter(|checkpoint| checkpoint.is_visible_to(session))
        {
            return Ok(checkpoint);
        }
        let id = id.to_owned();
        Err(match self.checkpoint_graves.fate(&id, session) {
            None => CheckpointError::NotFound { id },
            Some(CheckpointFate::Dropped) => CheckpointError::Dropped { id },
            Some(CheckpointFate::Lost(detail)) => CheckpointError::Lost { id, detail },
        })
    }

    /// Fails where a session may have no new sandbox.
    pub fn admit_sandbox<E: From<MemoryError> + From<SessionError>>(&self, session: &Session) -> Result<(), E> {
        if self.sessions.get(&session.id).is_none() || self.is_shutting_down() {
            return Err(SessionError::Ended.into());
        }
        match self.sandboxes.borrow().len() {
            count if count >= self.config.max_sandboxes => Err(MemoryError::TooMany { count }.into()),
            _ => Ok(()),
        }
    }

    /// Makes a new sandbox known.
    pub fn adopt(&self, sandbox: Sandbox) -> Rc<Sandbox> {
        let sandbox = Rc::new(sandbox);
        self.sandboxes
            .borrow_mut()
            .insert(sandbox.id.clone(), Rc::clone(&sandbox));
        sandbox
    }

    /// A sandbox that can't be held to its limits goes on: it was promised to its owner before.
    pub fn hold_to_limits(&self, sandbox: &Sandbox) {
        let limits = sandbox.limits.get();
        if !limits.is_none()
            && let Err(error) = self.enforcement.apply(&sandbox.process, &sandbox.id, &limits)
        {
            tracing::warn!(sandbox = sandbox.id, %error, "A sandbox goes without its limits");
        }
    }

    /// Fails where one more checkpoint is too many.
    pub fn admit_checkpoint(&self) -> Result<(), CheckpointError> {
        match self.checkpoints.count() {
            (count, _) if count >= MAX_CHECKPOINTS => Err(CheckpointError::TooMany { count }),
            _ => Ok(()),
        }
    }

    /// Orders the daemon to shut down.
    pub fn shut_down(&self, reason: impl Into<String>) {
        self.shutdown.send_if_modified(|order| {
            let first = order.is_none();
            order.get_or_insert_with(|| reason.into());
            first
        });
    }

    /// Returns, with the reason, when the daemon has been ordered to shut down.
    pub async fn shutting_down(&self) -> String {
        match self.shutdown.subscribe().wait_for(Option::is_some).await {
            Ok(reason) => reason.clone().unwrap_or_default(),
            Err(_) => String::new(),
        }
    }

    pub fn is_shutting_down(&self) -> bool {
        self.shutdown.borrow().is_some()
    }

    /// True once: the first client's clock is taken as it is.
    pub fn take_first_clock(&self) -> bool {
        !self.clock_was_set.replace(true)
    }
}

pub fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
