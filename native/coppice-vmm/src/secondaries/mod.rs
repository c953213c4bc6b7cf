//! All vCPUs but the first, which the main thread runs: each has a thread of its own, which only runs it. What their exits
//! ask for the main thread does, as it does for the first, so that devices and everything else have one user and no locks.

use std::io;
use std::os::fd::AsRawFd;

use kvm_ioctls::{VcpuExit, VcpuFd};
use vmm_sys_util::errno;

use crate::vcpu;

mod exit;
mod thread;

pub use thread::{CALL, FLAGS};

/// What the confinement's drills exercise.
#[cfg(test)]
pub mod drilled {
    pub use super::thread::VcpuThread;
}

use thread::VcpuThread;

struct Secondary {
    thread: VcpuThread,
    /// What its last exit asked for is done.
    is_served: bool,
    /// What it asked for has a second half, for the next entry into the guest.
    is_open: bool,
}

/// Empty until they run for the first time, and again after `dismiss`.
#[derive(Default)]
pub struct Secondaries(Vec<Secondary>);

impl Secondaries {
    /// Lets all of them run that have nothing to be served. `vcpus` live longer than this.
    pub fn run(&mut self, vcpus: &mut [VcpuFd]) -> io::Result<()> {
        for vcpu in vcpus.iter_mut().skip(self.0.len()) {
            let immediate_exit = &raw mut vcpu.get_kvm_run().immediate_exit;
            // SAFETY: both are the vCPU's, which lives longer.
            let thread = unsafe { VcpuThread::start(vcpu.as_raw_fd(), immediate_exit) }?;
            self.0.push(Secondary {
                thread,
                is_served: true,
                is_open: false,
            });
        }
        self.0.iter_mut().filter(|one| one.is_served).for_each(Secondary::run);
        Ok(())
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The exit of one that has come back and was not served, where it has.
    pub fn take_exit<'a>(&mut self, index: usize, vcpu: &'a mut VcpuFd) -> Option<Result<VcpuExit<'a>, errno::Error>> {
        let one = self.0.get_mut(index).filter(|one| !one.is_served)?;
        let result = one.thread.result()?;
        let exit = match result {
            0 => Ok(exit::last_exit(vcpu)),
            error => Err(errno::Error::new(error)),
        };
        one.is_served = true;
        one.is_open = vcpu::is_open(&exit);
        Some(exit)
    }

    pub fn has_open_exit(&self, index: usize) -> bool {
        self.0.get(index).is_some_and(|one| one.is_open)
    }

    /// Brings all of them back. What they come back with is still to be served.
    pub fn stop(&self) {
        self.0.iter().for_each(|one| one.thread.call());
        self.0.iter().for_each(|one| one.thread.wait());
    }

    /// Has one that is stopped and served complete its last exit, without running the guest.
    pub fn complete(&mut self, index: usize) {
        if let Some(one) = self.0.get_mut(index) {
            one.is_served = false;
            one.thread.complete();
        }
    }

    /// Ends their threads.
    pub fn dismiss(&mut self) {
        self.0.clear();
    }
}

impl Secondary {
    fn run(&mut self) {
        self.is_served = false;
        self.thread.run();
    }
}
