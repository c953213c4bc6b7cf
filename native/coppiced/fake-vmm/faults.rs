//! What goes wrong on purpose.

use std::collections::HashMap;
use std::fs;

/// | word | effect |
/// |---|---|
/// | `console=TEXT` | the guest prints it when it boots |
/// | `boot=fail`, `exit`, `silent`, `never-ready` | how booting fails |
/// | `agent-protocol=N` | version in the agent's ready event |
/// | `clock-offset-ms=N` | the guest's clock is off by that |
/// | `late-clocks=N` | the first N resumes that set the clock are under way for long |
/// | `same-boot-id`, `fixed-boot-id` | resume keeps the boot identity, or takes one that all children take |
/// | `wrong-generation` | resume answers another generation in its body |
/// | `resume=silent`, `refuse`, `garbage` | how resume fails |
/// | `faulty-children` | the last four groups only hold after the first fork, not at boot |
/// | `skewed-clock-ms=N` | somebody has set the clock of every child wrong by that |
/// | `clock=silent`, `refuse`, `garbage`, `wrong` | how setting the clock after a stop fails |
/// | `park=fail`, `poison`, `exit` | how park fails |
/// | `checkpoint=fail`, `poison`, `exit`, `copy-dies` | how copying a running machine fails |
/// | `fork-fails-every=N`, `fork-dies-at=N`, `fork-hangs`, `fork-names-init`, `compare-hangs` | how the frozen process fails |
/// | `child-dies-every=N` | a child dies before it has started |
/// | `wake=fail`, `nonsense` | how a child that waits fails to run again |
/// | `busy=N` | a child that is asked to stop when it is idle says N times that it is not |
/// | `missing=BARRIER` | the VMM says that it does without it |
/// | `learns` | children want their page map before they are stopped, parked or closed |
/// | `ignore-close` | has to be killed |
#[derive(Default)]
pub struct Faults {
    words: HashMap<String, String>,
}

impl Faults {
    pub fn read(path: &str) -> Self {
        let text = fs::read_to_string(path).unwrap_or_default();
        let word = |line: &str| {
            let (word, value) = line.split_once('=').unwrap_or((line, ""));
            (word.to_owned(), value.to_owned())
        };
        Faults {
            words: text.lines().map(word).collect(),
        }
    }

    pub fn has(&self, word: &str) -> bool {
        self.words.contains_key(word)
    }

    pub fn value(&self, word: &str) -> Option<&str> {
        self.words.get(word).map(String::as_str)
    }

    pub fn number(&self, word: &str) -> Option<i64> {
        self.value(word)?.parse().ok()
    }
}
