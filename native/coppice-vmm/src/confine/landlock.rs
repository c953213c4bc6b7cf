//! Landlock: no file, no TCP port, no signal to others, whatever the other barriers let through.

use landlock::{ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetStatus, Scope};

use crate::confine::{Barrier, Missing};

/// The newest version whose rights are all forbidden; older kernels forbid those that they know.
const VERSION: ABI = ABI::V6;

/// Forbids everything that Landlock can forbid. What is open stays usable.
pub fn restrict() -> Option<Missing> {
    let restricted = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(VERSION))
        .and_then(|rules| rules.handle_access(AccessNet::from_all(VERSION)))
        .and_then(|rules| rules.scope(Scope::from_all(VERSION)))
        .and_then(Ruleset::create)
        .and_then(|rules| rules.restrict_self());
    match restricted {
        Ok(status) if status.ruleset == RulesetStatus::NotEnforced => {
            Some(Barrier::Landlock.missing("the kernel does not have it, or not switched on"))
        }
        Ok(_) => None,
        Err(error) => Some(Barrier::Landlock.missing(error)),
    }
}
