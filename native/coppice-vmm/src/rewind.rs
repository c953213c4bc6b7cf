//! Going back: a child becomes, in the VM that it has, what it was when it was forked.
//!
//! What its life has written is known from two sides: KVM logs the pages that the guest writes, and itself for the guest
//! (clocks, steal time); guest memory notes those that devices write. What was in them is read from the frozen process that
//! the child was forked from, whose memory nobody changes. Everything else in there is still the same.

use std::fs::File;

use crate::error::VmmError;
use crate::guest::Guest;
use crate::kvm::{KvmError, LiveVm};
use crate::memory::PAGE_BYTES;
use crate::runs::bit_runs;
use crate::stages::Stopwatch;
use crate::vcpu;

impl Guest {
    /// Makes this child one that can go back, before it gets a VM.
    pub fn prepare_rewind(&mut self) -> Result<(), VmmError> {
        if self.frozen_devices.is_none() {
            return Err(VmmError::NotRewindable);
        }
        Ok(self.ram.track()?)
    }

    pub fn is_rewindable(&self) -> bool {
        self.origin.is_some() && self.frozen_devices.is_some()
    }

    /// Puts everything back, and says how many pages that were. The vCPUs must not run, and must have completed their exits.
    /// The clocks go on as of host time `at_ns`. `origin`: memory of the process that this one was forked from.
    pub fn rewind(
        &mut self,
        live: &LiveVm,
        at_ns: u64,
        origin: &File,
        stopwatch: &mut Stopwatch,
    ) -> Result<u64, VmmError> {
        let (Some(state), Some(devices)) = (&self.origin, &self.frozen_devices) else {
            return Err(VmmError::NotRewindable);
        };
        let devices = devices.duplicate()?;
        // The interrupt controllers that are put back know nothing of lines that are high now.
        self.devices.lower_lines(|gsi| {
            live.vm.set_irq_line(gsi, false).map_err(|source| KvmError::Call {
                call: "KVM_IRQ_LINE",
                source,
            })
        })?;
        let pieces = self.take_written(live)?;
        stopwatch.lap("log");
        self.ram.put_back(&pieces, origin)?;
        stopwatch.lap("pages");
        state.restore(live, at_ns)?;
        stopwatch.lap("restore");
        self.devices = devices;
        self.devices.begin_life(self.ram.memory())?;
        vcpu::sync_lines(&mut self.devices, &live.vm)?;
        stopwatch.lap("devices");
        Ok(pieces.iter().map(|(_, bytes)| bytes / PAGE_BYTES).sum())
    }

    /// What was written since it was asked last, as places in the mapping of the memory and lengths, in bytes.
    fn take_written(&self, live: &LiveVm) -> Result<Vec<(u64, u64)>, VmmError> {
        let mut pieces = Vec::new();
        for (slot, region) in self.ram.regions().into_iter().enumerate() {
            let guest = live.take_guest_writes(slot as u32, region)?;
            let devices = self.ram.take_device_writes(slot);
            let devices = devices.into_iter().chain(std::iter::repeat(0));
            let written = guest.into_iter().zip(devices).map(|(guest, device)| guest | device);
            let runs = bit_runs((0..).zip(written));
            let in_mapping = |(page, length)| (region.offset + page * PAGE_BYTES, length * PAGE_BYTES);
            pieces.extend(runs.into_iter().map(in_mapping));
        }
        Ok(pieces)
    }
}
