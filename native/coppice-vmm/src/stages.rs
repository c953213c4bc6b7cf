//! Durations of the stages of one operation.

use std::time::Instant;

use coppice_wire::vmm::Stages;

/// Measures the stages of one operation, one after the other.
pub struct Stopwatch {
    last: Instant,
    stages: Stages,
}

impl Stopwatch {
    pub fn start() -> Self {
        Self {
            last: Instant::now(),
            stages: Vec::with_capacity(12),
        }
    }

    /// Ends the stage that runs and names it.
    pub fn lap(&mut self, name: &str) {
        let now = Instant::now();
        self.stages
            .push((name.to_owned(), now.duration_since(self.last).as_micros() as u64));
        self.last = now;
    }

    pub fn finish(self) -> Stages {
        self.stages
    }
}
