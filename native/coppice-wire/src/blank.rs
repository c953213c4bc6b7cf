//! What a writable disk holds at first: the blocks of a new file system that are not all zeros, and where they belong.
//!
//! ```text
//! 0    "coppdisk"
//! 8    u32  version, 1
//! 12   u32  n: blocks in this file
//! 16   u64  blocks of the disk
//! 24   n × u32, ascending: where each block belongs
//!      zeros up to a whole block, then the n blocks
//! ```
//!
//! All numbers are little-endian, all blocks 4 KiB. `sandbox-pool/artifacts/blank-disk.ts` makes these files.

use std::io::{self, Read};

pub const BLOCK_BYTES: usize = 4096;

/// Largest disk: 256 GiB.
pub const MAX_DISK_BLOCKS: u64 = 1 << 26;

const MAGIC: [u8; 8] = *b"coppdisk";
const VERSION: u64 = 1;
const HEADER_BYTES: usize = 24;
const PLACE_BYTES: usize = 4;

#[derive(Debug, thiserror::Error)]
pub enum BlankError {
    #[error("Blank disk can't be read: {0}")]
    Io(#[from] io::Error),
    #[error("Blank disk has an unknown format")]
    Format,
    #[error("Blank disk of {blocks} blocks is not possible; the limit is {MAX_DISK_BLOCKS}")]
    Size { blocks: u64 },
    #[error("Blank disk's blocks are not in order or lie outside of the disk")]
    Places,
    #[error("Blank disk ends before its last block")]
    Short,
}

/// The index of a blank disk's file.
#[derive(Debug, PartialEq, Eq)]
pub struct Blank {
    pub disk_blocks: u64,
    /// Where the blocks of the file belong, in their order in the file.
    pub places: Vec<u32>,
}

impl Blank {
    /// Reads the index of a file of `bytes` bytes from its beginning.
    pub fn read(mut file: impl Read, bytes: u64) -> Result<Self, BlankError> {
        let mut header = [0; HEADER_BYTES];
        file.read_exact(&mut header)?;
        let (magic, rest) = header.split_at(MAGIC.len());
        let (version, count) = (number(&rest[..4]), number(&rest[4..8]));
        let disk_blocks = number(&rest[8..]);
        if magic != MAGIC || version != VERSION {
            return Err(BlankError::Format);
        }
        if !(1..=MAX_DISK_BLOCKS).contains(&disk_blocks) {
            return Err(BlankError::Size { blocks: disk_blocks });
        }
        if count > disk_blocks {
            return Err(BlankError::Places);
        }
        if bytes < data_offset(count) + count * BLOCK_BYTES as u64 {
            return Err(BlankError::Short);
        }
        let mut index = vec![0; count as usize * PLACE_BYTES];
        file.read_exact(&mut index)?;
        let (places, _) = index.as_chunks::<PLACE_BYTES>();
        let places: Vec<u32> = places.iter().map(|place| u32::from_le_bytes(*place)).collect();
        let last_fits = places.last().is_none_or(|last| u64::from(*last) < disk_blocks);
        if !last_fits || !places.is_sorted_by(|left, right| left < right) {
            return Err(BlankError::Places);
        }
        Ok(Self { disk_blocks, places })
    }

    /// Block of the file in which its data begin.
    pub fn first_data_block(&self) -> u32 {
        // There are at most MAX_DISK_BLOCKS places.
        (data_offset(self.places.len() as u64) / BLOCK_BYTES as u64) as u32
    }

    /// The file, of blocks in the order of `places`.
    pub fn encode(&self, blocks: &[[u8; BLOCK_BYTES]]) -> Vec<u8> {
        let count = self.places.len() as u64;
        let mut bytes = [
            &MAGIC[..],
            &(VERSION as u32).to_le_bytes(),
            &(count as u32).to_le_bytes(),
            &self.disk_blocks.to_le_bytes(),
        ]
        .concat();
        self.places.iter().for_each(|place| bytes.extend(place.to_le_bytes()));
        bytes.resize(data_offset(count) as usize, 0);
        bytes.extend(blocks.as_flattened());
        bytes
    }
}

fn data_offset(count: u64) -> u64 {
    let index_end = HEADER_BYTES as u64 + count * PLACE_BYTES as u64;
    index_end.next_multiple_of(BLOCK_BYTES as u64)
}

/// A little-endian number of up to eight bytes.
pub fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> Vec<u8> {
        let places = vec![0, 7, 99];
        let blank = Blank {
            disk_blocks: 100,
            places,
        };
        blank.encode(&[[1; BLOCK_BYTES], [2; BLOCK_BYTES], [3; BLOCK_BYTES]])
    }

    fn read(bytes: &[u8]) -> Result<Blank, BlankError> {
        Blank::read(bytes, bytes.len() as u64)
    }

    #[test]
    fn file_that_was_encoded_is_read_as_it_was() {
        let bytes = file();
        let blank = read(&bytes).unwrap();
        assert_eq!((blank.disk_blocks, &blank.places[..]), (100, &[0, 7, 99][..]));
        assert_eq!(bytes[blank.first_data_block() as usize * BLOCK_BYTES], 1);
        assert_eq!(bytes.len(), (blank.first_data_block() as usize + 3) * BLOCK_BYTES);
    }

    #[test]
    fn files_that_are_damaged_are_refused() {
        type Change = fn(&mut Vec<u8>);
        let changes: [(Change, &str); 8] = [
            (|bytes| bytes.clear(), "Io"),
            (|bytes| bytes[0] = b'x', "Format"),
            (|bytes| bytes[8] = 2, "Format"),
            (|bytes| bytes[16..24].fill(0), "Size"),
            (|bytes| bytes[23] = 0xff, "Size"),
            (|bytes| bytes[12] = 200, "Places"),
            (|bytes| bytes[32] = 100, "Places"),
            (|bytes| bytes.truncate(3 * BLOCK_BYTES), "Short"),
        ];
        for (change, expected) in changes {
            let mut bytes = file();
            change(&mut bytes);
            let error = format!("{:?}", read(&bytes).unwrap_err());
            assert!(error.starts_with(expected), "{error} instead of {expected}");
        }
        let mut swapped = file();
        swapped[24..32].rotate_left(4);
        assert!(matches!(read(&swapped), Err(BlankError::Places)));
    }
}
