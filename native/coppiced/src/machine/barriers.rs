//! Barriers around VMMs that this host does not allow, and the end of one that ran into a barrier.

use std::cell::RefCell;
use std::collections::BTreeSet;

use coppice_wire::vmm::MissingBarrier;
use nix::sys::signal::Signal;

use crate::errors::shorten;

/// There are fewer barriers than that.
const MAX_BARRIERS: usize = 32;

const MAX_TEXT_BYTES: usize = 256;

/// What has been said already: each missing barrier is worth one warning, not one for each VMM.
#[derive(Default)]
pub struct Warned(RefCell<BTreeSet<String>>);

impl Warned {
    /// Logs what is new.
    pub fn of(&self, missing: Vec<MissingBarrier>) {
        for MissingBarrier { barrier, reason } in self.first_times(missing) {
            tracing::warn!(
                barrier,
                reason,
                "VMMs do without a barrier that this host does not allow"
            );
        }
    }

    fn first_times(&self, missing: Vec<MissingBarrier>) -> Vec<MissingBarrier> {
        let mut warned = self.0.borrow_mut();
        let shortened = missing.into_iter().map(|missing| MissingBarrier {
            barrier: shorten(missing.barrier, MAX_TEXT_BYTES),
            reason: shorten(missing.reason, MAX_TEXT_BYTES),
        });
        shortened
            .filter(|missing| warned.len() < MAX_BARRIERS && warned.insert(missing.barrier.clone()))
            .collect()
    }
}

/// How a process was killed, in words.
pub fn killed_by(signal: Signal) -> String {
    match signal {
        Signal::SIGSYS => "killed by SIGSYS (bad system call): it tried what its confinement forbids".to_owned(),
        other => format!("killed by {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_barrier_is_warned_of_once() {
        let missing = |barrier: &str| MissingBarrier {
            barrier: barrier.to_owned(),
            reason: "EPERM".to_owned(),
        };
        let warned = Warned::default();
        assert_eq!(warned.first_times(vec![missing("a"), missing("b")]).len(), 2);
        assert_eq!(warned.first_times(vec![missing("b"), missing("c")]), vec![missing("c")]);
        let many = (0..1000).map(|number| missing(&number.to_string())).collect();
        assert!(warned.first_times(many).len() < MAX_BARRIERS, "a VMM may name anything");
    }
}
