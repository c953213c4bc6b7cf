//! What the daemon has done so far.

use std::cell::Cell;

use serde::Serialize;

#[derive(Debug, Default)]
pub struct Counter(Cell<u64>);

impl Counter {
    pub fn increment(&self) {
        self.0.set(self.0.get() + 1);
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
    pub boots: Counter,
    /// Sandboxes that were closed by their owner or with its session.
    pub closes: Counter,
    /// Sandboxes that failed, or were given up, before or while they were handed out.
    pub discarded: Counter,
    /// Messages of agents that belonged to another life or to no pending call.
    pub stale_replies: Counter,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CounterValues {
    forks: u64,
    parks: u64,
    checkpoints: u64,
    boots: u64,
    closes: u64,
    discarded: u64,
    stale_replies: u64,
}

impl Counters {
    pub fn values(&self) -> CounterValues {
        CounterValues {
            forks: self.forks.get(),
            parks: self.parks.get(),
            checkpoints: self.checkpoints.get(),
            boots: self.boots.get(),
            closes: self.closes.get(),
            discarded: self.discarded.get(),
            stale_replies: self.stale_replies.get(),
        }
    }
}
