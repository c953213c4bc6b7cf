//! Names and default deadlines of the methods.

use std::time::Duration;

use crate::metrics::Operation;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    HostInfo,
    HostStats,
    HostList,
    HostCall,
    HostMetrics,
    HostShutdown,
    SessionEnd,
    ImageAttach,
    ImageList,
    SandboxBoot,
    SandboxFork,
    SandboxLease,
    SandboxCall,
    SandboxLimit,
    SandboxPark,
    SandboxCheckpoint,
    SandboxRewind,
    SandboxClose,
    SandboxConsole,
    SandboxList,
    CheckpointDrop,
    CheckpointDelta,
    CheckpointList,
    CheckpointShare,
    CheckpointLookup,
    MemoryUsage,
    BaselineSave,
    BaselineRestore,
}

/// Answers from memory.
const LOOK: Duration = Duration::from_secs(5);
/// Up to 20 ms for the memory of each process.
const LIST: Duration = Duration::from_secs(60);
/// Longer than every limit that the operation has inside, so that the more telling error comes first.
const OPERATION: Duration = Duration::from_secs(30);
/// `timeoutMs` of a boot is at most this, less a margin.
const BOOT: Duration = Duration::from_secs(610);
/// A guest program may run for long; clients say what they want to wait.
const CALL: Duration = Duration::from_secs(600);

const TABLE: [(&str, Method, Duration); 28] = [
    ("host.info", Method::HostInfo, LOOK),
    ("host.stats", Method::HostStats, LOOK),
    ("host.list", Method::HostList, LIST),
    ("host.call", Method::HostCall, CALL),
    ("host.metrics", Method::HostMetrics, LOOK),
    ("host.shutdown", Method::HostShutdown, LOOK),
    ("session.end", Method::SessionEnd, LOOK),
    ("image.attach", Method::ImageAttach, LOOK),
    ("image.list", Method::ImageList, LOOK),
    ("sandbox.boot", Method::SandboxBoot, BOOT),
    ("sandbox.fork", Method::SandboxFork, OPERATION),
    ("sandbox.lease", Method::SandboxLease, OPERATION),
    ("sandbox.call", Method::SandboxCall, CALL),
    ("sandbox.limit", Method::SandboxLimit, LOOK),
    ("sandbox.park", Method::SandboxPark, OPERATION),
    ("sandbox.checkpoint", Method::SandboxCheckpoint, OPERATION),
    ("sandbox.rewind", Method::SandboxRewind, OPERATION),
    ("sandbox.close", Method::SandboxClose, LOOK),
    ("sandbox.console", Method::SandboxConsole, LOOK),
    ("sandbox.list", Method::SandboxList, LOOK),
    ("checkpoint.drop", Method::CheckpointDrop, LOOK),
    ("checkpoint.delta", Method::CheckpointDelta, LIST),
    ("checkpoint.list", Method::CheckpointList, LOOK),
    ("checkpoint.share", Method::CheckpointShare, LOOK),
    ("checkpoint.lookup", Method::CheckpointLookup, LOOK),
    ("memory.usage", Method::MemoryUsage, LOOK),
    ("baseline.save", Method::BaselineSave, CALL),
    ("baseline.restore", Method::BaselineRestore, CALL),
];

/// More edits than this and a known name is no help.
const MAX_EDITS: usize = 6;

impl Method {
    /// What its duration is counted as. A lease and a fork know better when they begin and end, and count themselves.
    pub fn operation(self) -> Option<Operation> {
        match self {
            Method::SandboxBoot => Some(Operation::Boot),
            Method::SandboxCall | Method::HostCall => Some(Operation::Call),
            Method::SandboxPark => Some(Operation::Park),
            Method::SandboxCheckpoint => Some(Operation::Checkpoint),
            Method::SandboxRewind => Some(Operation::Rewind),
            _ => None,
        }
    }

    pub fn default_deadline(self) -> Duration {
        TABLE
            .iter()
            .find(|(_, method, _)| *method == self)
            .map_or(OPERATION, |(_, _, deadline)| *deadline)
    }
}

/// The method with that name, or the name that is nearest to it.
pub fn find(name: &str) -> Result<Method, Option<&'static str>> {
    match TABLE.iter().find(|(known, _, _)| *known == name) {
        Some((_, method, _)) => Ok(*method),
        None if name.len() > 64 => Err(None),
        None => Err(nearest(name)),
    }
}

fn nearest(name: &str) -> Option<&'static str> {
    let distances = TABLE.iter().map(|(known, _, _)| (edits(name, known), *known));
    distances
        .min()
        .filter(|(edits, _)| *edits <= MAX_EDITS)
        .map(|(_, known)| known)
}

/// Levenshtein distance.
fn edits(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, l) in left.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, r) in right.iter().enumerate() {
            let substituted = diagonal + usize::from(l != *r);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn find_given_a_misspelt_method_names_the_nearest() {
        assert_eq!(find("sandbox.frok"), Err(Some("sandbox.fork")));
        assert_eq!(find("checkpoint.loookup"), Err(Some("checkpoint.lookup")));
        assert_eq!(find("completely different"), Err(None));
        assert_eq!(find("host.info"), Ok(Method::HostInfo));
    }

    #[test]
    fn edits_of_equal_and_empty_texts_are_right() {
        assert_eq!(edits("abc", "abc"), 0);
        assert_eq!(edits("", "abc"), 3);
        assert_eq!(edits("kitten", "sitting"), 3);
    }
}
