//! The carrier's wall clock. An emulated machine starts with a clock of whole seconds and drifts when its host is busy;
//! its clients know the time.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_settime};

use crate::cli::HostKind;
use crate::defaults::{CLOCK_STEP, CLOCK_STEP_BACK};
use crate::host::Host;

/// Takes a client's clock where ours is off. Only in a carrier: a real host keeps its own time.
pub fn adjust(host: &Host, client_ns: u64) {
    if host.config.kind != HostKind::Carrier || std::process::id() != 1 {
        return;
    }
    let ours = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    let client = Duration::from_nanos(client_ns);
    if !must_step(ours, client, host.take_first_clock()) {
        return;
    }
    let off_ms = ours.as_nanos() as i128 / 1_000_000 - client.as_nanos() as i128 / 1_000_000;
    match clock_settime(ClockId::CLOCK_REALTIME, TimeSpec::from_duration(client)) {
        Ok(()) => tracing::info!(off_ms, "Clock set by a client's"),
        Err(error) => tracing::warn!(off_ms, %error, "Clock can't be set"),
    }
}

/// A hello says the time at which it was sent, so the true time is later, never earlier: a clock that is behind it is
/// certainly behind, one that is ahead may be right.
fn must_step(ours: Duration, client: Duration, first: bool) -> bool {
    if client > ours {
        return client - ours > CLOCK_STEP;
    }
    ours - client > if first { CLOCK_STEP } else { CLOCK_STEP_BACK }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(1_000_000);
    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn clock_that_is_behind_is_stepped_beyond_five_milliseconds() {
        assert!(!must_step(NOW, NOW + 5 * MS, false));
        assert!(must_step(NOW, NOW + 6 * MS, false));
    }

    #[test]
    fn clock_that_is_ahead_is_stepped_back_at_the_first_hello_or_when_far_off() {
        assert!(must_step(NOW, NOW - 6 * MS, true));
        assert!(!must_step(NOW, NOW - 6 * MS, false));
        assert!(must_step(NOW, NOW - 251 * MS, false));
    }
}
