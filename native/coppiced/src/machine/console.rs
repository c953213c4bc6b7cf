//! The end of a guest's serial console.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::defaults::{CONSOLE_BYTES, CONSOLE_READ_RATE, CONSOLE_TAIL_BYTES};

/// What is read in this time is looked at as a whole.
const SPAN: Duration = Duration::from_millis(250);

/// Keeps the last `CONSOLE_BYTES` bytes.
#[derive(Debug, Default)]
pub struct Console {
    bytes: VecDeque<u8>,
    /// When the present span began, and what was read in it.
    span: Option<(Instant, usize)>,
}

impl Console {
    pub fn push(&mut self, data: &[u8]) {
        let data = &data[data.len().saturating_sub(CONSOLE_BYTES)..];
        let excess = (self.bytes.len() + data.len()).saturating_sub(CONSOLE_BYTES);
        self.bytes.drain(..excess);
        self.bytes.extend(data);
    }

    /// How long to wait before more is read.
    pub fn pause_after(&mut self, bytes: usize, now: Instant) -> Duration {
        let allowed = CONSOLE_READ_RATE as usize / 4;
        let (begin, read) = self
            .span
            .filter(|(begin, _)| now.saturating_duration_since(*begin) < SPAN)
            .unwrap_or((now, 0));
        self.span = Some((begin, read + bytes));
        match read + bytes > allowed {
            true => SPAN.saturating_sub(now.saturating_duration_since(begin)),
            false => Duration::ZERO,
        }
    }

    pub fn contents(&self) -> Vec<u8> {
        self.bytes.iter().copied().collect()
    }

    /// The last lines as text for people, control characters other than newlines left out.
    pub fn tail(&self) -> String {
        let start = self.bytes.len().saturating_sub(CONSOLE_TAIL_BYTES);
        let bytes: Vec<u8> = self.bytes.range(start..).copied().collect();
        let text = String::from_utf8_lossy(&bytes);
        text.chars()
            .filter(|c| *c == '\n' || !c.is_control())
            .collect::<String>()
            .trim()
            .to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn console_given_more_than_it_keeps_holds_the_end() {
        let mut console = Console::default();
        console.push(&vec![b'a'; CONSOLE_BYTES]);
        console.push(b"end");
        assert_eq!(console.contents().len(), CONSOLE_BYTES);
        assert!(console.contents().ends_with(b"aend"));
        console.push(&vec![b'b'; 3 * CONSOLE_BYTES]);
        assert_eq!(console.contents(), vec![b'b'; CONSOLE_BYTES]);
    }

    #[test]
    fn console_that_never_ends_is_read_at_its_rate() {
        let (mut console, begin) = (Console::default(), Instant::now());
        let (mut now, mut read) = (begin, 0);
        while now - begin < Duration::from_secs(10) {
            read += 4096;
            now += console.pause_after(4096, now) + Duration::from_micros(1);
        }
        let rate = read / 10;
        assert!((1..=CONSOLE_READ_RATE as usize + 4 * 4096).contains(&rate), "{rate}");
        assert_eq!(Console::default().pause_after(CONSOLE_BYTES, begin), Duration::ZERO);
    }

    #[test]
    fn tail_given_escape_sequences_and_broken_text_is_printable() {
        let mut console = Console::default();
        console.push(b"\x1b[0mpanic\r\n\xff\n");
        assert_eq!(console.tail(), "[0mpanic\n\u{fffd}");
    }
}
