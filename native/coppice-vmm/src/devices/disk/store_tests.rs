//! Contents of disks through writes, checkpoints and forks. A fork of a process is played by `fork`: the same map and
//! descriptors, as the kernel would copy them.

use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};

use coppice_wire::blank::{BLOCK_BYTES, Blank};
use nix::sys::memfd::{MFdFlags, memfd_create};
use vm_memory::{Bytes, GuestAddress};

use crate::devices::disk::extents::FILE_BYTES_PER_DISK_BYTE;
use crate::devices::disk::store::{INHERITED_LIMIT, INHERITED_MAX, Store};
use crate::devices::fixture;
use crate::devices::ring::Buffer;
use crate::devices::scatter::Scatter;
use crate::memory::Memory;

const BLOCKS: u64 = 2000;
const BUFFER: u64 = 0x1000;

/// One life of a machine: its disk, and memory to transfer through.
struct Life {
    store: Store,
    memory: Memory,
}

/// An unnamed file, open for writing and for reading.
fn extent() -> (File, File) {
    let writable = File::from(memfd_create(c"extent", MFdFlags::empty()).unwrap());
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&writable));
    let readable = File::open(path).unwrap();
    (writable, readable)
}

impl Life {
    /// Block 5 of the blank disk is full of 0xb5, the last one of 0xbf.
    fn first() -> Self {
        let blank = Blank {
            disk_blocks: BLOCKS,
            places: vec![5, BLOCKS as u32 - 1],
        };
        let file = extent().0;
        let bytes = blank.encode(&[[0xb5; BLOCK_BYTES], [0xbf; BLOCK_BYTES]]);
        file.write_all_at(&bytes, 0).unwrap();
        Self {
            store: Store::new(&blank, file, 0),
            memory: fixture::memory(),
        }
    }

    /// A disk of `blocks` blocks without contents, which leaves the host `reserve_bytes`.
    fn empty(blocks: u64, reserve_bytes: u64) -> Self {
        let blank = Blank {
            disk_blocks: blocks,
            places: Vec::new(),
        };
        Self {
            store: Store::new(&blank, extent().0, reserve_bytes),
            memory: fixture::memory(),
        }
    }

    /// As `writable`, with a file in a file system that says what it has left.
    fn writable_on_disk(mut self) -> Self {
        let writable = File::options()
            .read(true)
            .write(true)
            .custom_flags(libc::O_TMPFILE)
            .open(env!("CARGO_MANIFEST_DIR"))
            .unwrap();
        let readable = writable.try_clone().unwrap();
        self.store.adopt(writable, readable);
        self
    }

    /// How a write of block 0 ends.
    fn try_write(&mut self) -> std::io::Result<()> {
        let mut data = self.data(1);
        self.store.write(0..1, &mut data)
    }

    fn writable(mut self) -> Self {
        let (writable, readable) = extent();
        self.store.adopt(writable, readable);
        self
    }

    /// The copy of this process that a fork makes.
    fn fork(&self) -> Self {
        Self {
            store: self.store.clone(),
            memory: fixture::memory(),
        }
    }

    /// As a park and a fork: a child that has got its own extent.
    fn child(&self) -> Self {
        let mut frozen = self.fork();
        frozen.store.freeze();
        frozen.writable()
    }

    fn data(&self, blocks: u64) -> Scatter {
        let bytes = blocks as usize * BLOCK_BYTES;
        let buffer = Buffer {
            address: GuestAddress(BUFFER),
            length: bytes as u32,
        };
        Scatter::new(&self.memory, &[buffer], 0, bytes).unwrap()
    }

    fn write(&mut self, first: u64, contents: &[u8]) {
        for (index, byte) in (0..).zip(contents) {
            let at = GuestAddress(BUFFER + index * BLOCK_BYTES as u64);
            self.memory.write_slice(&[*byte; BLOCK_BYTES], at).unwrap();
        }
        let count = contents.len() as u64;
        let mut data = self.data(count);
        self.store.write(first..first + count, &mut data).unwrap();
    }

    /// One byte a block; each block must be full of it.
    fn read(&self, first: u64, count: u64) -> Vec<u8> {
        let dirt = vec![0xee; count as usize * BLOCK_BYTES];
        self.memory.write_slice(&dirt, GuestAddress(BUFFER)).unwrap();
        self.store.read(first..first + count, &mut self.data(count)).unwrap();
        let mut bytes = vec![0; count as usize * BLOCK_BYTES];
        self.memory.read_slice(&mut bytes, GuestAddress(BUFFER)).unwrap();
        let (blocks, _) = bytes.as_chunks::<BLOCK_BYTES>();
        assert!(blocks.iter().all(|block| block.iter().all(|byte| *byte == block[0])));
        blocks.iter().map(|block| block[0]).collect()
    }

    fn inherited(&self) -> usize {
        self.store.extents.inherited()
    }

    /// Bytes that this life's own file takes.
    fn own_bytes(&self) -> u64 {
        self.store.extents.own_file().unwrap().metadata().unwrap().blocks() * 512
    }
}

#[test]
fn blank_disk_has_its_blocks_and_zeros() {
    let life = Life::first();
    assert_eq!(life.read(4, 3), [0, 0xb5, 0]);
    assert_eq!(life.read(BLOCKS - 1, 1), [0xbf]);
    assert!(!life.store.is_writable());
}

#[test]
fn writes_across_old_and_new_blocks_are_read_back() {
    let mut life = Life::first().writable();
    life.write(10, &[1, 2, 3]);
    life.write(9, &[9, 8, 7, 6, 5]);
    life.write(5, &[4]);
    assert_eq!(life.read(4, 11), [0, 4, 0, 0, 0, 9, 8, 7, 6, 5, 0]);
    assert_eq!(life.read(511, 2), [0, 0]);
    life.write(511, &[1, 2]);
    assert_eq!(life.read(510, 4), [0, 1, 2, 0]);
}

#[test]
fn block_of_this_epoch_is_overwritten_in_place() {
    let mut life = Life::first().writable();
    life.write(10, &[1, 2, 3]);
    let bytes = life.own_bytes();
    for round in 0..50 {
        life.write(10, &[round, round, round]);
    }
    assert_eq!(life.own_bytes(), bytes);
}

#[test]
fn invariant_1_parent_and_children_never_see_each_others_later_writes() {
    let mut parent = Life::first().writable();
    parent.write(0, &[1, 1, 1, 1]);
    let mut frozen = parent.fork();
    frozen.store.freeze();
    let (mut left, mut right) = (frozen.fork().writable(), frozen.fork().writable());
    left.write(1, &[2]);
    right.write(1, &[3, 3]);
    left.store.discard(3..4);
    assert_eq!(frozen.read(0, 4), [1, 1, 1, 1]);
    assert_eq!(left.read(0, 4), [1, 2, 1, 0]);
    assert_eq!(right.read(0, 4), [1, 3, 3, 1]);
}

#[test]
fn invariant_1_source_that_goes_on_after_a_live_checkpoint_leaves_it_as_it_was() {
    let mut source = Life::first().writable();
    source.write(0, &[1, 2, 3]);
    source.store.begin_epoch();
    let mut copy = source.fork();
    copy.store.freeze();
    source.write(0, &[7]);
    source.store.discard(1..2);
    source.write(2, &[8]);
    source.write(2, &[9]);
    source.write(100, &[5]);
    assert_eq!(copy.read(0, 3), [1, 2, 3]);
    assert_eq!(copy.read(100, 1), [0]);
    assert_eq!(source.read(0, 3), [7, 0, 9]);
    let mut child = copy.fork().writable();
    child.write(1, &[6]);
    assert_eq!(child.read(0, 3), [1, 6, 3]);
    assert_eq!((copy.read(0, 3), source.read(0, 3)), (vec![1, 2, 3], vec![7, 0, 9]));
}

#[test]
fn invariant_1_frozen_file_can_not_be_written_by_descendants() {
    let mut life = Life::first().writable();
    life.write(0, &[1]);
    let place = life.store.map.get(0).unwrap();
    life.store.freeze();
    assert!(!life.store.is_writable());
    let file = life.store.extents.file(place.extent).unwrap();
    assert!(file.write_at(b"x", 0).is_err());
}

#[test]
fn discarded_blocks_read_as_zeros_and_give_their_space_back() {
    let mut life = Life::first().writable();
    life.write(0, &[1; 100]);
    let full = life.own_bytes();
    life.store.discard(10..90);
    assert_eq!(life.read(9, 3), [1, 0, 0]);
    assert_eq!(life.read(89, 2), [0, 1]);
    assert_eq!(full - life.own_bytes(), 80 * BLOCK_BYTES as u64);
    life.store.discard(0..BLOCKS);
    assert_eq!((life.own_bytes(), life.read(5, 1)), (0, vec![0]));
}

#[test]
fn discarded_blocks_are_written_again_so_that_the_file_does_not_grow() {
    let mut life = Life::first().writable();
    for round in 0..100 {
        life.write(0, &[round; 100]);
        life.store.discard(10..90);
        life.store.discard(0..10);
        life.store.discard(90..100);
    }
    life.write(0, &[7; 100]);
    assert_eq!(life.read(0, 101), [[7; 100].as_slice(), &[0]].concat());
    assert_eq!(
        life.store.extents.own_file().unwrap().metadata().unwrap().len(),
        100 * BLOCK_BYTES as u64
    );
}

#[test]
fn file_of_one_life_grows_to_a_multiple_of_the_disk_and_no_further() {
    let mut life = Life::empty(1, 0).writable();
    for _ in 0..FILE_BYTES_PER_DISK_BYTE {
        life.try_write().unwrap();
        life.store.begin_epoch();
    }
    assert_eq!(life.try_write().unwrap_err().kind(), ErrorKind::FileTooLarge);
    let mut next = life.child();
    next.try_write().unwrap();
}

#[test]
fn write_that_would_take_of_the_hosts_reserve_fails_and_succeeds_when_there_is_space_again() {
    let mut life = Life::empty(1, u64::MAX).writable_on_disk();
    assert_eq!(life.try_write().unwrap_err().kind(), ErrorKind::StorageFull);
    assert_eq!(life.own_bytes(), 0);
    Life::empty(1, 0).writable_on_disk().try_write().unwrap();
    let mut unsaid = Life::empty(1, u64::MAX).writable();
    unsaid.try_write().unwrap();
}

#[test]
fn blank_disk_without_blocks_leaves_no_file() {
    let mut life = Life::empty(BLOCKS, 0);
    assert_eq!(life.inherited(), 0);
    for level in 0..2 * INHERITED_MAX as u64 {
        life = life.child();
        life.write(level, &[1]);
    }
    assert!(life.inherited() <= INHERITED_MAX, "{}", life.inherited());
}

#[test]
fn files_that_are_too_large_to_be_copied_at_once_are_copied_in_pieces_and_stay_few() {
    let mut life = Life::first();
    life.store.flatten_blocks = 8;
    let (mut most, mut copied) = (0, Vec::new());
    for level in 0..90u64 {
        life = life.child();
        copied.push(life.own_bytes() / BLOCK_BYTES as u64);
        most = most.max(life.inherited());
        life.write(level * 20, &[level as u8 + 1; 20]);
    }
    assert!(most > INHERITED_MAX && most <= INHERITED_LIMIT, "{most} files");
    assert_eq!(
        copied.iter().find(|blocks| **blocks > 2),
        Some(&8),
        "the blank disk's two, then a piece"
    );
    for level in 0..90 {
        assert_eq!(life.read(level * 20, 20), [level as u8 + 1; 20], "{level}");
    }
}

#[test]
fn discard_after_a_checkpoint_keeps_its_space() {
    let mut life = Life::first().writable();
    life.write(0, &[1; 10]);
    let full = life.own_bytes();
    life.store.begin_epoch();
    life.store.discard(0..10);
    assert_eq!((life.own_bytes(), life.read(0, 1)), (full, vec![0]));
}

#[test]
fn file_without_blocks_of_this_disk_is_let_go() {
    let mut parent = Life::first().writable();
    parent.write(0, &[1, 2]);
    let mut child = parent.child();
    assert_eq!(child.inherited(), 2);
    child.write(0, &[3]);
    assert_eq!(child.inherited(), 2);
    child.store.discard(1..2);
    assert_eq!(child.inherited(), 1);
    assert_eq!(parent.child().read(0, 2), [1, 2]);
}

#[test]
fn life_that_wrote_nothing_leaves_no_file() {
    let mut life = Life::first();
    for _ in 0..10 {
        life = life.child();
    }
    assert_eq!(life.inherited(), 1);
}

#[test]
fn delta_counts_what_was_written_since_the_base() {
    let mut template = Life::first().writable();
    template.write(0, &[1; 50]);
    assert_eq!(template.store.delta_blocks(), 0);
    let mut child = template.child();
    child.write(0, &[2, 2]);
    child.write(0, &[3, 3, 3]);
    assert_eq!(child.store.delta_blocks(), 3);
    let mut grandchild = child.child();
    grandchild.write(2, &[4, 4]);
    grandchild.store.discard(0..1);
    assert_eq!(grandchild.store.delta_blocks(), 3);
}

#[test]
fn depth_of_two_hundred_keeps_every_block_and_few_files() {
    let mut life = Life::first();
    let mut most = 0;
    for level in 0..200u64 {
        life = life.child();
        life.write(level * 3, &[level as u8 + 1, 0x77]);
        most = most.max(life.inherited());
    }
    assert!(most <= INHERITED_MAX, "{most} files");
    for level in 0..200 {
        assert_eq!(life.read(level * 3, 2), [level as u8 + 1, 0x77], "{level}");
    }
    assert_eq!(life.read(BLOCKS - 1, 1), [0xbf]);
    assert_eq!(life.store.delta_blocks(), 400);
}
