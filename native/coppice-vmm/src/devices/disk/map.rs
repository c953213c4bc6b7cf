//! Which block of the disk is where: two levels, in ordinary memory, so that a fork of the process forks the disk.

use std::ops::Range;
use std::sync::Arc;

/// Blocks of a leaf, which is one page: 2 MiB of disk.
const LEAF_BLOCKS: usize = 512;

/// Where a block's data are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Block in the extent's file.
    pub block: u32,
    /// Number of the extent.
    pub extent: u16,
    /// Whether it was written since the base was made: it belongs to the delta.
    pub is_delta: bool,
}

#[derive(Clone)]
struct Leaf {
    mapped: usize,
    places: [Option<Place>; LEAF_BLOCKS],
}

/// A block without a place reads as zeros. A clone shares the leaves until one of the two changes them.
#[derive(Clone)]
pub struct Map {
    blocks: u64,
    leaves: Vec<Option<Arc<Leaf>>>,
}

impl Map {
    pub fn new(blocks: u64) -> Self {
        let mut leaves = Vec::new();
        leaves.resize_with(blocks.div_ceil(LEAF_BLOCKS as u64) as usize, || None);
        Self { blocks, leaves }
    }

    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    pub fn get(&self, block: u64) -> Option<Place> {
        let (leaf, index) = split(block);
        self.leaves[leaf].as_ref()?.places[index]
    }

    /// Gives a block a place; the one that it had.
    pub fn set(&mut self, block: u64, place: Place) -> Option<Place> {
        let (leaf, index) = split(block);
        let leaf = self.leaves[leaf].get_or_insert_with(|| {
            Arc::new(Leaf {
                mapped: 0,
                places: [None; LEAF_BLOCKS],
            })
        });
        let leaf = Arc::make_mut(leaf);
        let before = leaf.places[index].replace(place);
        leaf.mapped += usize::from(before.is_none());
        before
    }

    /// Takes a block's place away.
    pub fn unset(&mut self, block: u64) -> Option<Place> {
        let (index, place) = split(block);
        let leaf = self.leaves[index]
            .as_mut()
            .filter(|leaf| leaf.places[place].is_some())?;
        let leaf = Arc::make_mut(leaf);
        let before = leaf.places[place].take();
        leaf.mapped -= usize::from(before.is_some());
        if leaf.mapped == 0 {
            self.leaves[index] = None;
        }
        before
    }

    /// First block of a range that has a place. Skips what is empty a leaf at a time.
    pub fn next_mapped(&self, range: Range<u64>) -> Option<(u64, Place)> {
        let mut block = range.start;
        while block < range.end {
            let (leaf, index) = split(block);
            let Some(leaf) = &self.leaves[leaf] else {
                block += (LEAF_BLOCKS - index) as u64;
                continue;
            };
            if let Some(place) = leaf.places[index] {
                return Some((block, place));
            }
            block += 1;
        }
        None
    }
}

fn split(block: u64) -> (usize, usize) {
    let block = block as usize;
    (block / LEAF_BLOCKS, block % LEAF_BLOCKS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(block: u32) -> Place {
        Place {
            block,
            extent: 3,
            is_delta: false,
        }
    }

    #[test]
    fn leaf_fits_a_page_and_a_little() {
        assert_eq!(size_of::<Option<Place>>(), 8);
    }

    #[test]
    fn block_that_was_set_is_found_until_it_is_unset() {
        let mut map = Map::new(1000);
        for block in [0, 511, 512, 999] {
            assert_eq!(map.get(block), None);
            assert_eq!(map.set(block, place(7)), None);
            assert_eq!(map.set(block, place(8)), Some(place(7)));
            assert_eq!(map.get(block), Some(place(8)));
        }
        assert_eq!(map.unset(511), Some(place(8)));
        assert_eq!((map.get(511), map.get(512)), (None, Some(place(8))));
    }

    #[test]
    fn leaf_without_places_is_given_back() {
        let mut map = Map::new(2048);
        map.set(600, place(1));
        map.set(601, place(1));
        map.unset(600);
        assert!(map.leaves[1].is_some());
        map.unset(601);
        map.unset(601);
        assert!(map.leaves.iter().all(Option::is_none));
    }

    #[test]
    fn next_mapped_skips_what_is_empty_and_stays_in_its_range() {
        let mut map = Map::new(1 << 20);
        map.set(900_000, place(1));
        map.set(900_001, place(2));
        assert_eq!(map.next_mapped(0..1 << 20), Some((900_000, place(1))));
        assert_eq!(map.next_mapped(900_001..1 << 20), Some((900_001, place(2))));
        assert_eq!(map.next_mapped(0..900_000), None);
        assert_eq!(map.next_mapped(900_002..1 << 20), None);
    }
}
