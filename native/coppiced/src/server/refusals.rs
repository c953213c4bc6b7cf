//! What is logged of connections that are turned away: whoever can connect must not be able to fill the log.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// One line for each reason in this time; the next one says how many there were in between.
const INTERVAL: Duration = Duration::from_secs(60);

struct Logged {
    at: Instant,
    unlogged: u64,
}

/// The last line for each error code, of which there are few.
#[derive(Default)]
pub struct RefusalLog(RefCell<HashMap<Cow<'static, str>, Logged>>);

impl RefusalLog {
    /// Whether this refusal is to be logged, and how many before it were not.
    pub fn admit(&self, code: Cow<'static, str>, now: Instant) -> Option<u64> {
        let mut logged = self.0.borrow_mut();
        match logged.get_mut(&code) {
            Some(last) if now.saturating_duration_since(last.at) < INTERVAL => {
                last.unlogged += 1;
                None
            }
            Some(last) => {
                last.at = now;
                Some(std::mem::take(&mut last.unlogged))
            }
            None => {
                logged.insert(code, Logged { at: now, unlogged: 0 });
                Some(0)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_for_one_reason_are_logged_once_a_minute_with_their_number() {
        let (log, now) = (RefusalLog::default(), Instant::now());
        assert_eq!(log.admit("A".into(), now), Some(0));
        for _ in 0..1_000 {
            assert_eq!(log.admit("A".into(), now + Duration::from_secs(59)), None);
        }
        assert_eq!(log.admit("B".into(), now), Some(0));
        assert_eq!(log.admit("A".into(), now + Duration::from_secs(60)), Some(1_000));
        assert_eq!(log.admit("A".into(), now + Duration::from_secs(120)), Some(0));
    }
}
