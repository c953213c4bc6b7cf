//! What every part of the agent works with: the poller, the way out to the host, and reused buffers.

use crate::outbox::Outbox;
use crate::poller::{Poller, Token};
use crate::spawn::Spawner;

/// Most bytes of one chunk, and of one read from a program.
pub const CHUNK_BYTES: usize = 64 * 1024;

pub struct Context {
    pub poller: Poller,
    pub outbox: Outbox,
    pub spawner: Spawner,
    /// Read into and emptied within one step; `CHUNK_BYTES` long.
    pub scratch: Box<[u8]>,
    /// Descriptors that are not read until the host has taken what is on its way.
    pub paused: Vec<Token>,
}

impl Context {
    pub fn new() -> crate::sys::Result<Self> {
        Ok(Self {
            poller: Poller::new()?,
            outbox: Outbox::default(),
            spawner: Spawner::default(),
            scratch: vec![0; CHUNK_BYTES].into_boxed_slice(),
            paused: Vec::new(),
        })
    }
}
