//! What the daemon has done so far, and what it holds now.

use std::cell::Cell;

use serde::Serialize;

use crate::host::Host;
use crate::machine::state::State;

#[derive(Debug, Default)]
pub struct Counter(Cell<u64>);

impl Counter {
    pub fn increment(&self) {
        self.add(1);
    }

    pub fn add(&self, more: u64) {
        self.0.set(self.0.get().saturating_add(more));
    }

    pub fn get(&self) -> u64 {
        self.0.get()
    }
}

#[derive(Debug, Default)]
pub struct Counters {
    /// Children that were forked and given to a client.
    pub forks: Counter,
    pub parks: Counter,
    /// Checkpoints of sandboxes that went on.
    pub checkpoints: Counter,
    /// Sandboxes that were put back to their checkpoint in place.
    pub rewinds: Counter,
    pub boots: Counter,
    /// Sandboxes that were closed by their owner or with its session.
    pub closes: Counter,
    /// Sandboxes that failed, or were given up, before or while they were handed out.
    pub discarded: Counter,
    /// Sandboxes that were taken out of use because something may have corrupted them.
    pub poisoned: Counter,
    /// Messages of agents that belonged to another life or to no pending call.
    pub stale_replies: Counter,
    /// Closes of sandboxes, and drops of checkpoints, that were closed or dropped before. They do nothing.
    pub repeated_closes: Counter,
    /// Connections that were turned away before they had a session.
    pub refused_handshakes: Counter,
    /// Connections that were ended because nobody was at the other end any more.
    pub vanished_peers: Counter,
    /// Sandboxes that were ended because they took more memory than they may.
    pub memory_limit_kills: Counter,
    /// Bytes that consoles said above their rate.
    pub console_dropped_bytes: Counter,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CounterValues {
    pub forks: u64,
    pub parks: u64,
    pub checkpoints: u64,
    pub rewinds: u64,
    pub boots: u64,
    pub closes: u64,
    pub discarded: u64,
    pub poisoned: u64,
    pub stale_replies: u64,
    pub repeated_closes: u64,
    pub refused_handshakes: u64,
    pub vanished_peers: u64,
    pub memory_limit_kills: u64,
    pub console_dropped_bytes: u64,
}

impl Counters {
    pub fn values(&self) -> CounterValues {
        CounterValues {
            forks: self.forks.get(),
            parks: self.parks.get(),
            checkpoints: self.checkpoints.get(),
            rewinds: self.rewinds.get(),
            boots: self.boots.get(),
            closes: self.closes.get(),
            discarded: self.discarded.get(),
            poisoned: self.poisoned.get(),
            stale_replies: self.stale_replies.get(),
            repeated_closes: self.repeated_closes.get(),
            refused_handshakes: self.refused_handshakes.get(),
            vanished_peers: self.vanished_peers.get(),
            memory_limit_kills: self.memory_limit_kills.get(),
            console_dropped_bytes: self.console_dropped_bytes.get(),
        }
    }
}

/// Sandboxes by state.
#[derive(Debug, Default, Serialize)]
pub struct SandboxCounts {
    pub booting: usize,
    pub ready: usize,
    pub leased: usize,
    pub poisoned: usize,
}

impl SandboxCounts {
    pub fn of(host: &Host) -> Self {
        let mut counts = SandboxCounts::default();
        for sandbox in host.sandboxes.borrow().values() {
            match sandbox.state.get() {
                State::Booting => counts.booting += 1,
                State::Ready => counts.ready += 1,
                State::Leased => counts.leased += 1,
                State::Poisoned => counts.poisoned += 1,
                State::Frozen | State::Closed => {}
            }
        }
        counts
    }
}
