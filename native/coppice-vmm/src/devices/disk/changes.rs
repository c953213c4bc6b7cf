//! Blocks that a life has changed: written, or discarded where there was something.

use std::collections::BTreeMap;

use crate::runs::bit_runs;

const WORD_BLOCKS: u64 = u64::BITS as u64;

#[derive(Clone, Default)]
pub struct Changes {
    /// 64 blocks each; none is zero.
    words: BTreeMap<u64, u64>,
}

impl Changes {
    pub fn insert(&mut self, block: u64) {
        *self.words.entry(block / WORD_BLOCKS).or_default() |= 1 << (block % WORD_BLOCKS);
    }

    /// Runs of changed blocks, as first and length.
    pub fn runs(&self) -> Vec<(u64, u64)> {
        bit_runs(self.words.iter().map(|(index, word)| (*index, *word)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_blocks_are_listed_in_order_and_once() {
        let mut changes = Changes::default();
        for block in [200, 63, 64, 65, 63, 7] {
            changes.insert(block);
        }
        assert_eq!(changes.runs(), [(7, 1), (63, 3), (200, 1)]);
    }
}
