//! How much of what a guest prints is passed on. A guest that prints without end costs its own time and nobody else's.

use std::collections::VecDeque;
use std::time::Instant;

/// Seconds for which a guest that was silent may print at once, and at least so much: a kernel that boots, or panics, prints
/// more in a moment than in the minutes around it.
const BURST_SECONDS: u64 = 2;
const MIN_BURST_BYTES: u64 = 16 * 1024;

/// Of what was not passed on the end is kept: the last words of a guest say more than those before.
const TAIL_BYTES: usize = 2 * 1024;

/// What is passed on.
#[derive(Debug, PartialEq, Eq)]
pub struct Passed {
    pub data: Vec<u8>,
    /// Bytes before it that were not.
    pub dropped: u64,
}

#[derive(Clone)]
pub struct Meter {
    bytes_per_second: u64,
    allowance: u64,
    counted_at: Instant,
    tail: VecDeque<u8>,
    /// Bytes that were printed above the rate, those in `tail` included.
    withheld: u64,
}

impl Meter {
    pub fn new(bytes_per_second: u32) -> Self {
        let bytes_per_second = u64::from(bytes_per_second);
        Self {
            bytes_per_second,
            allowance: burst(bytes_per_second),
            counted_at: Instant::now(),
            tail: VecDeque::new(),
            withheld: 0,
        }
    }

    pub fn bytes_per_second(&self) -> u32 {
        // It was made of one.
        u32::try_from(self.bytes_per_second).unwrap_or(u32::MAX)
    }

    /// What the guest has printed just now, if it may, with the tail of what it might not before.
    pub fn pass(&mut self, data: Vec<u8>, now: impl FnOnce() -> Instant) -> Option<Passed> {
        let wanted = (self.tail.len() + data.len()) as u64;
        if self.allowance < wanted {
            self.refill(now());
        }
        if self.allowance < wanted {
            self.withhold(&data);
            return None;
        }
        self.allowance -= wanted;
        Some(self.with_tail(data))
    }

    /// What the guest has printed to the last, whatever its rate: there is no more to come for the moment.
    pub fn rest(&mut self, data: Vec<u8>) -> Option<Passed> {
        let passed = self.with_tail(data);
        (!passed.data.is_empty()).then_some(passed)
    }

    fn refill(&mut self, now: Instant) {
        let micros = now.saturating_duration_since(self.counted_at).as_micros();
        let earned = micros * u128::from(self.bytes_per_second) / 1_000_000;
        // Less than a byte is left to be earned.
        if earned > 0 {
            self.counted_at = now;
            let sum = self.allowance.saturating_add(u64::try_from(earned).unwrap_or(u64::MAX));
            self.allowance = sum.min(burst(self.bytes_per_second));
        }
    }

    fn withhold(&mut self, data: &[u8]) {
        self.withheld += data.len() as u64;
        let data = &data[data.len().saturating_sub(TAIL_BYTES)..];
        let excess = (self.tail.len() + data.len()).saturating_sub(TAIL_BYTES);
        self.tail.drain(..excess);
        self.tail.extend(data);
    }

    /// Behind what was withheld, as far as it was kept, and a mark where it was not.
    fn with_tail(&mut self, data: Vec<u8>) -> Passed {
        if self.withheld == 0 {
            return Passed { data, dropped: 0 };
        }
        let dropped = self.withheld - self.tail.len() as u64;
        let mut all = match dropped {
            0 => Vec::new(),
            dropped => format!("\n[{dropped} bytes of console output dropped]\n").into_bytes(),
        };
        all.extend(self.tail.drain(..));
        all.extend(data);
        self.withheld = 0;
        Passed { data: all, dropped }
    }
}

fn burst(bytes_per_second: u64) -> u64 {
    (bytes_per_second * BURST_SECONDS).max(MIN_BURST_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const RATE: u32 = 64 * 1024;

    #[test]
    fn guest_that_prints_within_its_rate_is_passed_on_as_it_is() {
        let mut meter = Meter::new(RATE);
        let passed = meter.pass(b"hello\n".to_vec(), || panic!("the time does not matter"));
        let data = b"hello\n".to_vec();
        assert_eq!(passed, Some(Passed { data, dropped: 0 }));
        assert_eq!(meter.rest(Vec::new()), None);
    }

    #[test]
    fn guest_that_prints_without_end_is_passed_on_at_its_rate_with_marks() {
        let mut meter = Meter::new(RATE);
        let begin = meter.counted_at;
        let (mut passed, mut dropped, mut printed) = (0, 0, 0);
        // 1 MB a second for ten seconds.
        for milli in 0..10_000 {
            let line = vec![b'x'; 1_000];
            printed += line.len() as u64;
            if let Some(piece) = meter.pass(line, || begin + Duration::from_millis(milli)) {
                assert!(piece.dropped == 0 || piece.data.starts_with(b"\n["));
                passed += piece.data.len() as u64;
                dropped += piece.dropped;
            }
        }
        let may = u64::from(RATE) * 10 + burst(u64::from(RATE));
        // The marks come on top.
        assert!((may / 2..may + may / 10).contains(&passed), "{passed}");
        assert!(dropped > printed / 2, "{dropped}");
    }

    #[test]
    fn guest_that_prints_slowly_above_its_rate_loses_the_rest_too() {
        let mut meter = Meter::new(256);
        let begin = meter.counted_at;
        let (mut passed, mut dropped) = (0, 0);
        // 1,000 bytes a second for a minute.
        for tenth in 0..600 {
            if let Some(piece) = meter.pass(vec![b'x'; 100], || begin + Duration::from_millis(100 * tenth)) {
                passed += piece.data.len() as u64;
                dropped += piece.dropped;
            }
        }
        assert!(passed < 256 * 60 + burst(256) + 1_000, "{passed}");
        assert!(dropped > 20_000, "{dropped}");
    }

    #[test]
    fn last_words_come_through_whatever_was_printed_before() {
        let mut meter = Meter::new(1);
        let now = meter.counted_at;
        for _ in 0..100 {
            meter.pass(vec![b'x'; 1_000], || now);
        }
        meter.pass(b"Kernel panic\n".to_vec(), || now);
        let rest = meter.rest(b"end".to_vec()).unwrap();
        assert!(rest.data.ends_with(b"Kernel panic\nend"));
        assert!(rest.data.starts_with(b"\n[") && rest.dropped > 0);
        assert!(rest.data.len() < TAIL_BYTES + 100);
    }
}
