//! How sandboxes, checkpoints and sessions end.

use std::rc::Rc;
use std::time::Duration;

use serde::Serialize;

use crate::checkpoints::{Checkpoint, Owner};
use crate::defaults::CLOSE_GRACE;
use crate::host::{CheckpointFate, Host, SandboxFate};
use crate::machine::process::{Ending, Role, VmmProcess};
use crate::machine::sandbox::Sandbox;
use crate::machine::state::State;
use crate::session::Session;
use crate::values::to_value;

/// `sandbox.ended`
#[derive(Serialize)]
struct SandboxEnded<'a> {
    sandbox: &'a str,
    reason: &'static str,
    detail: &'a str,
    console: String,
}

/// `checkpoint.lost`
#[derive(Serialize)]
struct CheckpointLost<'a> {
    checkpoint: &'a str,
    detail: &'a str,
}

impl Host {
    /// Closes a sandbox. The process ends soon; `process.settled()` says when.
    pub fn close_sandbox(&self, sandbox: &Sandbox) {
        if self.bury_sandbox(sandbox, SandboxFate::Closed) {
            self.counters.closes.increment();
            tracing::debug!(sandbox = sandbox.id, "Closed");
        }
        end_process(&sandbox.process);
    }

    /// Closes a sandbox that must not be handed out (any more).
    pub fn discard(&self, sandbox: &Sandbox) {
        self.bury_sandbox(sandbox, SandboxFate::Closed);
        self.counters.discarded.increment();
        tracing::info!(sandbox = sandbox.id, "Discarded");
        end_process(&sandbox.process);
    }

    /// Ends a process that never became anything.
    pub fn abandon(&self, process: &Rc<VmmProcess>) {
        end_process(process);
    }

    /// Takes a sandbox out of use: its VM is killed at once, its console stays readable until it is closed.
    pub fn poison(&self, sandbox: &Sandbox, reason: String) {
        tracing::warn!(sandbox = sandbox.id, reason, "Poisoned");
        sandbox.process.set_ending(Ending::Hostile { detail: reason.clone() });
        sandbox.set_poison(reason);
        match sandbox.state.get() {
            State::Ready | State::Leased => {
                sandbox.state.advance(State::Poisoned);
                self.counters.poisoned.increment();
            }
            // Whoever makes it has it in custody and discards it.
            State::Booting | State::Poisoned | State::Frozen | State::Closed => {}
        }
        sandbox.process.kill();
    }

    /// Makes a parked sandbox's process a checkpoint.
    pub fn freeze(&self, sandbox: &Sandbox, checkpoint: Checkpoint) {
        sandbox.state.advance(State::Frozen);
        self.sandboxes.borrow_mut().remove(&sandbox.id);
        self.sandbox_graves
            .bury(sandbox.id.clone(), sandbox.owner.clone(), SandboxFate::Frozen);
        *sandbox.process.role.borrow_mut() = Role::Checkpoint(checkpoint.id.clone());
        self.checkpoints.insert(Rc::new(checkpoint));
        self.counters.parks.increment();
    }

    /// Drops a checkpoint; what was forked from it lives on.
    pub fn drop_checkpoint(&self, checkpoint: &Checkpoint) {
        if self.checkpoints.remove(&checkpoint.id).is_some() {
            self.bury_checkpoint(checkpoint, CheckpointFate::Dropped);
            tracing::debug!(checkpoint = checkpoint.id, "Dropped");
        }
        end_process(&checkpoint.process);
    }

    /// The supervisor's last act: the process is gone, whatever the reason.
    pub fn process_ended(&self, process: &VmmProcess) {
        let ending = process.ending().unwrap_or(Ending::Closed);
        process.fail_waiting(&ending);
        let role = process.role.replace(Role::Discarded);
        match role {
            Role::Sandbox(id) => self.sandbox_ended(&id, &ending),
            Role::Checkpoint(id) => self.checkpoint_ended(&id, &ending),
            Role::Discarded => {}
        }
    }

    /// Closes all that a session owns.
    pub fn end_session(&self, session: &Session) {
        if !self.sessions.end(&session.id) {
            return;
        }
        let sandboxes: Vec<_> = self
            .sandboxes
            .borrow()
            .values()
            .filter(|s| s.owner == session.id)
            .cloned()
            .collect();
        let checkpoints = self.checkpoints.owned_by(&session.id);
        let (closing, dropping) = (sandboxes.len(), checkpoints.len());
        tracing::info!(session = session.label(), closing, dropping, "Session ended");
        sandboxes.iter().for_each(|sandbox| self.close_sandbox(sandbox));
        checkpoints
            .iter()
            .for_each(|checkpoint| self.drop_checkpoint(checkpoint));
    }

    /// Closes everything, and returns when all VMMs are gone or `deadline` is over.
    pub async fn close_everything(&self, deadline: Duration) {
        let sandboxes: Vec<_> = self.sandboxes.borrow().values().cloned().collect();
        let checkpoints = self.checkpoints.all();
        sandboxes.iter().for_each(|sandbox| self.close_sandbox(sandbox));
        checkpoints
            .iter()
            .for_each(|checkpoint| self.drop_checkpoint(checkpoint));
        if tokio::time::timeout(deadline, self.reaper.no_children()).await.is_err() {
            tracing::warn!("Some VMMs did not end in time; they end with this process");
        }
    }

    fn sandbox_ended(&self, id: &str, ending: &Ending) {
        let Some(sandbox) = self.sandboxes.borrow().get(id).cloned() else {
            return;
        };
        tracing::warn!(
            sandbox = id,
            reason = ending.reason(),
            detail = ending.detail(),
            "Sandbox ended"
        );
        let console = sandbox.process.console.borrow().tail();
        match (sandbox.state.get(), ending) {
            // Nobody knows it yet: who makes it has it in custody, and says why it failed.
            (State::Booting, _) => return,
            (_, Ending::Hostile { detail }) => self.poison(&sandbox, detail.clone()),
            (_, ending) => drop(self.bury_sandbox(&sandbox, SandboxFate::Ended(ending.clone()))),
        }
        let event = SandboxEnded {
            sandbox: &sandbox.id,
            reason: ending.reason(),
            detail: ending.detail(),
            console,
        };
        self.tell(&sandbox.owner, "sandbox.ended", &event);
    }

    fn checkpoint_ended(&self, id: &str, ending: &Ending) {
        let Some(checkpoint) = self.checkpoints.remove(id) else {
            return;
        };
        let detail = format!("{} {}", ending.reason(), ending.detail()).trim().to_owned();
        tracing::warn!(checkpoint = id, detail, "Checkpoint lost");
        self.bury_checkpoint(&checkpoint, CheckpointFate::Lost(detail.clone()));
        if let Owner::Session(owner) = &*checkpoint.owner.borrow() {
            self.tell(
                owner,
                "checkpoint.lost",
                &CheckpointLost {
                    checkpoint: id,
                    detail: &detail,
                },
            );
        }
    }

    fn tell(&self, session: &str, event: &str, params: &impl Serialize) {
        if let (Some(session), Ok(params)) = (self.sessions.get(session), to_value(params)) {
            session.emit(event, params);
        }
    }

    /// False: it is closed already.
    fn bury_sandbox(&self, sandbox: &Sandbox, fate: SandboxFate) -> bool {
        if matches!(sandbox.state.get(), State::Closed | State::Frozen) {
            return false;
        }
        sandbox.state.advance(State::Closed);
        self.sandboxes.borrow_mut().remove(&sandbox.id);
        self.sandbox_graves
            .bury(sandbox.id.clone(), sandbox.owner.clone(), fate);
        true
    }

    fn bury_checkpoint(&self, checkpoint: &Checkpoint, fate: CheckpointFate) {
        if let Owner::Session(owner) = &*checkpoint.owner.borrow() {
            self.checkpoint_graves.bury(checkpoint.id.clone(), owner.clone(), fate);
        }
    }
}

/// Ends a process that nobody owns any more: asked first, killed when it does not obey.
fn end_process(process: &Rc<VmmProcess>) {
    if matches!(process.role.replace(Role::Discarded), Role::Discarded) {
        return;
    }
    process.set_ending(Ending::Closed);
    process.fail_waiting(&Ending::Closed);
    process.send_close();
    let process = Rc::clone(process);
    tokio::task::spawn_local(async move {
        if tokio::time::timeout(CLOSE_GRACE, process.settled()).await.is_err() {
            tracing::warn!(pid = ?process.pid(), "A VMM did not close when told to; killing it");
            process.kill();
        }
    });
}
