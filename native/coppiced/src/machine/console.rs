//! The end of a guest's serial console.

use std::collections::VecDeque;

use crate::defaults::{CONSOLE_BYTES, CONSOLE_TAIL_BYTES};

/// Keeps the last `CONSOLE_BYTES` bytes.
#[derive(Debug, Default)]
pub struct Console {
    bytes: VecDeque<u8>,
}

impl Console {
    pub fn push(&mut self, data: &[u8]) {
        let data = &data[data.len().saturating_sub(CONSOLE_BYTES)..];
        let excess = (self.bytes.len() + data.len()).saturating_sub(CONSOLE_BYTES);
        self.bytes.drain(..excess);
        self.bytes.extend(data);
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
    fn tail_given_escape_sequences_and_broken_text_is_printable() {
        let mut console = Console::default();
        console.push(b"\x1b[0mpanic\r\n\xff\n");
        assert_eq!(console.tail(), "[0mpanic\n\u{fffd}");
    }
}
