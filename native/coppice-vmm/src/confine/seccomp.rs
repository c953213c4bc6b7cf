//! The system call filter: a call that is not on the list ends the process on the spot.

use std::collections::BTreeMap;

use seccompiler::SeccompCmpArgLen::{Dword, Qword};
use seccompiler::SeccompCmpOp::{Eq, MaskedEq};
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCondition, SeccompFilter, SeccompRule, TargetArch, apply_filter,
};

use crate::confine::syscalls::{ALLOWED, FOR_THREADS, When};
use crate::confine::{ConfineError, Threads};

/// Switches the filter on, for this process and all that it forks.
pub fn install(threads: Threads) -> Result<(), ConfineError> {
    let program = program(threads).map_err(seccompiler::Error::from)?;
    Ok(apply_filter(&program)?)
}

fn program(threads: Threads) -> Result<BpfProgram, BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    let for_threads = match threads {
        Threads::None => &[],
        Threads::ForVcpus => FOR_THREADS,
    };
    for allowed in ALLOWED.iter().chain(for_threads) {
        rules.entry(allowed.call).or_default().extend(rules_for(&allowed.when)?);
    }
    let (otherwise, on_match) = (SeccompAction::KillProcess, SeccompAction::Allow);
    SeccompFilter::new(rules, otherwise, on_match, TargetArch::x86_64)?.try_into()
}

/// A call goes through that fits one of the rules; no rule at all means that every call does.
fn rules_for(when: &When) -> Result<Vec<SeccompRule>, BackendError> {
    let condition =
        |argument: usize, length, operator, value| SeccompCondition::new(argument as u8, length, operator, value);
    let equal = |argument: usize, value: u32| condition(argument, Dword, Eq, value.into());
    match *when {
        When::Always => Ok(Vec::new()),
        When::OneOf(argument, values) => values
            .iter()
            .map(|value| SeccompRule::new(vec![equal(argument, *value)?]))
            .collect(),
        When::Without(argument, bits) => {
            let clear = condition(argument, Dword, MaskedEq(bits.into()), 0)?;
            Ok(vec![SeccompRule::new(vec![clear])?])
        }
        When::Exactly(arguments) => {
            let all = arguments
                .iter()
                .map(|(argument, value)| condition(*argument, Qword, Eq, *value))
                .collect::<Result<_, _>>()?;
            Ok(vec![SeccompRule::new(all)?])
        }
        When::Both((first, first_value), (second, second_value)) => {
            let both = vec![equal(first, first_value)?, equal(second, second_value)?];
            Ok(vec![SeccompRule::new(both)?])
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::confine::syscalls::Allowed;

    const TWINS: &str = "an entry without conditions would void its twin's";

    #[test]
    fn program_is_made_and_every_call_is_listed_once() {
        assert!(program(Threads::None).unwrap().len() > ALLOWED.len());
        assert!(program(Threads::ForVcpus).unwrap().len() > program(Threads::None).unwrap().len());
        for list in [ALLOWED, FOR_THREADS] {
            let calls: BTreeSet<i64> = list.iter().map(|allowed| allowed.call).collect();
            assert_eq!(calls.len(), list.len(), "{TWINS}");
        }
        let unconditional = |list: &[Allowed]| -> BTreeSet<i64> {
            let always = list.iter().filter(|allowed| matches!(allowed.when, When::Always));
            always.map(|allowed| allowed.call).collect()
        };
        let calls: BTreeSet<i64> = ALLOWED.iter().map(|allowed| allowed.call).collect();
        assert!(unconditional(FOR_THREADS).is_disjoint(&calls), "{TWINS}");
    }
}
