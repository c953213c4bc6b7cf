//! How long operations take, and how many come to nothing.

use std::time::Instant;

use crate::metrics::histogram::Histogram;
use crate::stats::Counter;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    Boot,
    /// A child that is handed out at once.
    Fork,
    /// A child that runs to idle and waits.
    ForkAhead,
    Lease,
    Park,
    Checkpoint,
    Rewind,
    Call,
}

impl Operation {
    const ALL: [Operation; 8] = [
        Operation::Boot,
        Operation::Fork,
        Operation::ForkAhead,
        Operation::Lease,
        Operation::Park,
        Operation::Checkpoint,
        Operation::Rewind,
        Operation::Call,
    ];

    fn name(self) -> &'static str {
        match self {
            Operation::Boot => "boot",
            Operation::Fork => "fork",
            Operation::ForkAhead => "fork_ahead",
            Operation::Lease => "lease",
            Operation::Park => "park",
            Operation::Checkpoint => "checkpoint",
            Operation::Rewind => "rewind",
            Operation::Call => "call",
        }
    }
}

#[derive(Debug, Default)]
pub struct Record {
    /// Of those that were done.
    pub durations: Histogram,
    /// Those that failed, were cancelled or ran out of time.
    pub failures: Counter,
}

#[derive(Debug, Default)]
pub struct Operations([Record; Operation::ALL.len()]);

impl Operations {
    pub fn begin(&self, operation: Operation) -> Timed<'_> {
        Timed {
            record: &self.0[operation as usize],
            begin: Instant::now(),
            done: false,
        }
    }

    pub fn all(&self) -> impl Iterator<Item = (&'static str, &Record)> {
        Operation::ALL
            .iter()
            .map(|operation| (operation.name(), &self.0[*operation as usize]))
    }
}

/// An operation under way. Dropped before it is `done`, it has failed.
pub struct Timed<'a> {
    record: &'a Record,
    begin: Instant,
    done: bool,
}

impl Timed<'_> {
    pub fn done(mut self) {
        self.done = true;
    }
}

impl Drop for Timed<'_> {
    fn drop(&mut self) {
        match self.done {
            true => self.record.durations.observe(self.begin.elapsed()),
            false => self.record.failures.increment(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operation_that_is_dropped_before_it_is_done_has_failed() {
        let operations = Operations::default();
        operations.begin(Operation::Call).done();
        drop(operations.begin(Operation::Call));
        drop(operations.begin(Operation::Boot));
        let found: Vec<_> = operations
            .all()
            .map(|(name, record)| (name, record.durations.count(), record.failures.get()))
            .filter(|(_, done, failed)| done + failed > 0)
            .collect();
        assert_eq!(found, [("boot", 0, 1), ("call", 1, 1)]);
    }
}
