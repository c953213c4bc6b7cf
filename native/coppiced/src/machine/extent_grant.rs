//! The file that one life of a guest writes its disk to.

use std::cell::Cell;

use coppice_wire::vmm::Command;
use coppice_wire::{FrameError, encode_frame};

use crate::extents::NewExtent;
use crate::machine::lend::Packets;

#[derive(Default)]
pub struct ExtentGrant {
    is_given: Cell<bool>,
    was_refused: Cell<bool>,
}

impl ExtentGrant {
    /// Whether this life may be given an extent: one is all that it can use.
    pub fn is_open(&self) -> bool {
        !self.is_given.get()
    }

    /// A new life begins in the same process.
    pub fn reopen(&self) {
        self.is_given.set(false);
    }

    /// True the first time.
    pub fn note_refusal(&self) -> bool {
        !self.was_refused.replace(true)
    }

    /// The answer to the VMM's wish. Each descriptor travels with bytes of its own.
    pub fn packets(&self, extent: Option<NewExtent>) -> Result<Packets, FrameError> {
        let granted = extent.is_some();
        let mut frame = encode_frame(&Command::Extent { granted })?;
        let rest = frame.split_off(1);
        let (first, second) = match extent {
            Some(extent) => (Some(extent.writable), Some(extent.readable)),
            None => (None, None),
        };
        self.is_given.set(granted);
        Ok(vec![(frame, first), (rest, second)])
    }
}
