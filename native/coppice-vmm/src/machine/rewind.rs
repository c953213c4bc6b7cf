//! The commands that look at, or go back to, the frozen process that this one was forked from.

use coppice_wire::vmm::Event;

use super::{Console, Machine, Next, Phase, pass_on};
use crate::compare::Difference;
use crate::error::VmmError;
use crate::stages::Stopwatch;
use crate::vcpu::{self, Turn};

impl Machine {
    /// Back to the state that this child was forked with. When it has failed half-way, the machine is lost.
    pub(super) fn rewind(&mut self, at_ns: u64) -> Result<Next, VmmError> {
        let mut stopwatch = Stopwatch::start();
        let origin = self.lent.take_origin().memory;
        match &self.phase {
            Phase::Running(guest, _) if guest.is_rewindable() => {}
            Phase::Running(..) => return Err(VmmError::NotRewindable),
            _ => return Err(self.refuse("Rewind", "running")),
        }
        let origin = origin.ok_or(VmmError::NotLent { command: "Rewind" })?;
        let Phase::Running(mut guest, mut live) = std::mem::replace(&mut self.phase, Phase::Lost) else {
            return Err(VmmError::NotRewindable);
        };
        if let Turn::Ended { reason, detail } = vcpu::complete(&mut live, &mut guest.devices, guest.ram.memory())? {
            self.phase = Phase::Running(guest, live);
            self.end(reason, detail)?;
            return Ok(Next::Exit);
        }
        pass_on(&mut self.control, &mut guest, Console::All)?;
        stopwatch.lap("stop");
        let dirty_pages = guest.rewind(&live, at_ns, &origin, &mut stopwatch)?;
        self.phase = Phase::Running(guest, live);
        self.control.send(&Event::Rewound {
            dirty_pages,
            stages: stopwatch.finish(),
        })?;
        Ok(Next::Go)
    }

    pub(super) fn compare(&mut self) -> Result<(), VmmError> {
        let Phase::Frozen(guest, ..) = &self.phase else {
            return Err(self.refuse("Compare", "frozen"));
        };
        let origin = self.lent.take_origin();
        let lent = std::mem::take(&mut self.lent);
        let Difference { pages, blocks } = guest.compare(&lent, &origin)?;
        self.control.send(&Event::Compared { pages, blocks })?;
        Ok(())
    }
}
