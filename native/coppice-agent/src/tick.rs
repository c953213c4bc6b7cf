//! A timer that never matters, for what the kernel does where there is none.
//!
//! A kernel that has no timer left switches the timer of its processor off when it goes idle, and on again when it wakes:
//! four exits of the VM with every request after a rest. With one that is due in the far future it only sets the time anew.

use std::time::Duration;

use nix::sys::timer::{Expiration, TimerSetTimeFlags};
use nix::sys::timerfd::{ClockId, TimerFd, TimerFlags};

/// Longer than any guest lives.
const FAR: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// The timer is on as long as the result lives.
pub fn keep_timer() -> nix::Result<TimerFd> {
    let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, TimerFlags::TFD_CLOEXEC)?;
    timer.set(Expiration::OneShot(FAR.into()), TimerSetTimeFlags::empty())?;
    Ok(timer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timer_is_on_and_due_in_the_far_future() {
        let timer = keep_timer().unwrap();
        let Some(Expiration::OneShot(left)) = timer.get().unwrap() else {
            panic!("the timer is off");
        };
        assert!(Duration::from(left) > FAR / 2);
    }
}
