//! Frozen VMM processes: the nodes of the checkpoint tree.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Instant;

use crate::errors::{FaultDomain, Spec, Typed};
use crate::limits::Limits;
use crate::machine::process::VmmProcess;

#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    #[error("No checkpoint {id} in this session")]
    NotFound { id: String },
    #[error("Checkpoint {id} was dropped")]
    Dropped { id: String },
    #[error("Checkpoint {id} is lost: its frozen process ended ({detail})")]
    Lost { id: String, detail: String },
    #[error("This host holds {count} checkpoints, its limit")]
    TooMany { count: usize },
}

impl Typed for CheckpointError {
    fn spec(&self) -> Spec {
        match self {
            CheckpointError::NotFound { .. } => Spec::new("CHECKPOINT_NOT_FOUND", FaultDomain::User)
                .remedy("Use the id of a checkpoint of this session, or a shared one (checkpoint.lookup)."),
            CheckpointError::Dropped { .. } => {
                Spec::new("CHECKPOINT_DROPPED", FaultDomain::User).remedy("Drop a checkpoint only after its last fork.")
            }
            CheckpointError::Lost { .. } => Spec::new("CHECKPOINT_LOST", FaultDomain::Host)
                .remedy("Make it again from its parent; nothing can be forked from it any more."),
            CheckpointError::TooMany { .. } => Spec::new("HOST_FULL", FaultDomain::Host)
                .retryable()
                .remedy("Drop checkpoints that nobody needs (checkpoint.drop)."),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Owner {
    Session(String),
    /// Shared by all sessions under a content key.
    Host(String),
}

/// How much a checkpoint differs from its template.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delta {
    /// 4 KiB pages of memory.
    pub pages: u64,
    /// 4 KiB blocks of the disk.
    pub blocks: u64,
}

pub struct Checkpoint {
    pub id: String,
    pub owner: RefCell<Owner>,
    pub parent: Option<String>,
    pub name: Option<String>,
    pub delta: Delta,
    pub made_at: Instant,
    /// Boot identity in its memory: children must have another.
    pub boot_id: String,
    /// Of the sandboxes that are forked from it; the frozen process itself has none.
    pub limits: Limits,
    pub process: Rc<VmmProcess>,
}

impl Checkpoint {
    pub fn is_visible_to(&self, session: &str) -> bool {
        match &*self.owner.borrow() {
            Owner::Session(owner) => owner == session,
            Owner::Host(_) => true,
        }
    }

    pub fn is_owned_by(&self, session: &str) -> bool {
        *self.owner.borrow() == Owner::Session(session.to_owned())
    }

    pub fn is_shared(&self) -> bool {
        matches!(*self.owner.borrow(), Owner::Host(_))
    }
}

/// All checkpoints, by id and, where shared, by key.
#[derive(Default)]
pub struct Checkpoints {
    by_id: RefCell<HashMap<String, Rc<Checkpoint>>>,
    by_key: RefCell<HashMap<String, Rc<Checkpoint>>>,
}

impl Checkpoints {
    pub fn get(&self, id: &str) -> Option<Rc<Checkpoint>> {
        self.by_id.borrow().get(id).cloned()
    }

    pub fn insert(&self, checkpoint: Rc<Checkpoint>) {
        self.by_id.borrow_mut().insert(checkpoint.id.clone(), checkpoint);
    }

    pub fn remove(&self, id: &str) -> Option<Rc<Checkpoint>> {
        let checkpoint = self.by_id.borrow_mut().remove(id)?;
        if let Owner::Host(key) = &*checkpoint.owner.borrow() {
            self.by_key.borrow_mut().remove(key);
        }
        Some(checkpoint)
    }

    pub fn lookup(&self, key: &str) -> Option<Rc<Checkpoint>> {
        self.by_key.borrow().get(key).cloned()
    }

    /// Gives a checkpoint to the host. The key must be free.
    pub fn share(&self, checkpoint: &Rc<Checkpoint>, key: String) {
        assert!(self.lookup(&key).is_none(), "A shared key names one checkpoint");
        *checkpoint.owner.borrow_mut() = Owner::Host(key.clone());
        self.by_key.borrow_mut().insert(key, Rc::clone(checkpoint));
    }

    pub fn all(&self) -> Vec<Rc<Checkpoint>> {
        self.by_id.borrow().values().cloned().collect()
    }

    pub fn owned_by(&self, session: &str) -> Vec<Rc<Checkpoint>> {
        self.by_id
            .borrow()
            .values()
            .filter(|checkpoint| checkpoint.is_owned_by(session))
            .cloned()
            .collect()
    }

    /// `(all, shared)`
    pub fn count(&self) -> (usize, usize) {
        (self.by_id.borrow().len(), self.by_key.borrow().len())
    }
}
