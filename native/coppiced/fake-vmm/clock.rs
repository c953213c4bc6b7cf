//! The guest's wall clock that is played: it follows the host's, stands still while the machine is stopped, and is then
//! behind until somebody puts it right.

use coppice_wire::agent::Clock;
use coppice_wire::vmm::host_time_ns;

#[derive(Default, Clone)]
pub struct GuestClock {
    behind_ns: i64,
    stopped_at_ns: u64,
}

impl GuestClock {
    /// Host time of the stop.
    pub fn stop(&mut self) -> u64 {
        self.stopped_at_ns = host_time_ns();
        self.stopped_at_ns
    }

    pub fn go_on(&mut self, at_ns: u64) {
        self.behind_ns += at_ns.saturating_sub(self.stopped_at_ns) as i64;
    }

    /// Somebody in the guest sets it wrong.
    pub fn skew(&mut self, ms: i64) {
        self.behind_ns -= ms * 1_000_000;
    }

    pub fn put_right(&mut self, clock: Clock) {
        match clock {
            Clock::Set { realtime_ns } => self.behind_ns = host_time_ns() as i64 - realtime_ns as i64,
            Clock::Advance { stopped_ns } => self.behind_ns -= stopped_ns as i64,
        }
    }

    pub fn now_ns(&self) -> u64 {
        host_time_ns().saturating_add_signed(-self.behind_ns)
    }
}
