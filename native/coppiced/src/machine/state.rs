//! The states of a sandbox.
//!
//! | from | to | when |
//! |---|---|---|
//! | booting | ready | it ran to idle and was stopped |
//! | booting | leased | it was handed out at once |
//! | booting | closed | it failed, or nobody wants it any more |
//! | ready | leased | hand-out succeeded |
//! | ready | poisoned | its VMM or agent did what it must not |
//! | ready | closed | hand-out failed, or it was closed or lost |
//! | leased | frozen | it was parked and is a checkpoint now |
//! | leased | poisoned | an operation failed that may have damaged it |
//! | leased | closed | it was closed or lost |
//! | poisoned | closed | it was closed |
//!
//! Frozen and closed are final: the sandbox is no more.

use std::cell::Cell;

use serde::Serialize;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum State {
    Booting,
    Ready,
    Leased,
    Frozen,
    Poisoned,
    Closed,
}

impl State {
    pub fn may_become(self, next: State) -> bool {
        use State::*;
        matches!(
            (self, next),
            (Booting, Ready | Leased | Closed)
                | (Ready, Leased | Poisoned | Closed)
                | (Leased, Frozen | Poisoned | Closed)
                | (Poisoned, Closed)
        )
    }

    pub fn name(self) -> &'static str {
        match self {
            State::Booting => "booting",
            State::Ready => "ready",
            State::Leased => "leased",
            State::Frozen => "frozen",
            State::Poisoned => "poisoned",
            State::Closed => "closed",
        }
    }
}

/// A state that only moves along the table.
#[derive(Debug)]
pub struct StateCell(Cell<State>);

impl StateCell {
    pub fn new() -> Self {
        StateCell(Cell::new(State::Booting))
    }

    pub fn get(&self) -> State {
        self.0.get()
    }

    /// Moves, and asserts that the table has the pair.
    pub fn advance(&self, next: State) {
        let from = self.0.get();
        assert!(
            from.may_become(next),
            "A sandbox can't go from {} to {}",
            from.name(),
            next.name()
        );
        self.0.set(next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [State; 6] = [
        State::Booting,
        State::Ready,
        State::Leased,
        State::Frozen,
        State::Poisoned,
        State::Closed,
    ];

    #[test]
    fn final_states_lead_nowhere() {
        for next in ALL {
            assert!(!State::Frozen.may_become(next) && !State::Closed.may_become(next));
        }
    }

    #[test]
    fn poisoned_sandbox_can_only_be_closed() {
        let open: Vec<_> = ALL
            .into_iter()
            .filter(|next| State::Poisoned.may_become(*next))
            .collect();
        assert_eq!(open, [State::Closed]);
    }

    #[test]
    fn every_state_that_is_not_final_can_be_closed() {
        for from in [State::Booting, State::Ready, State::Leased, State::Poisoned] {
            assert!(from.may_become(State::Closed));
        }
    }

    #[test]
    #[should_panic(expected = "from booting to frozen")]
    fn advance_given_a_pair_outside_the_table_asserts() {
        StateCell::new().advance(State::Frozen);
    }
}
