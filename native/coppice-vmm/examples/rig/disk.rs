//! The writable disk through parks, forks and live checkpoints.
//!
//! The guest writes and reads past its page cache, so that it is the disk that is seen and not its memory.

use std::thread::sleep;
use std::time::Duration;

use coppice_wire::vmm::Command;

use crate::Rig;
use crate::checks::{ensure, equal};
use crate::vmm::{DISK_BLOCKS, Outcome, Vmm};

/// Fills blocks with one byte.
fn write(vmm: &mut Vmm, first: u64, count: u64, byte: u8) -> Outcome<()> {
    let answer = vmm.ask(&format!("dwrite {first} {count} {byte}"))?;
    equal("write", answer, "written".to_owned())
}

/// What each of some blocks is full of.
fn read(vmm: &mut Vmm, first: u64, count: u64) -> Outcome<Vec<u8>> {
    vmm.ask_raw(format!("dread {first} {count}").as_bytes())
}

fn expect(vmm: &mut Vmm, first: u64, bytes: &[u8]) -> Outcome<()> {
    let found = read(vmm, first, bytes.len() as u64)?;
    equal(&format!("blocks from {first}"), found, bytes.to_vec())
}

fn parked(mut vmm: Vmm) -> Outcome<Vmm> {
    vmm.park()?;
    Ok(vmm)
}

pub fn disk_keeps_its_contents(rig: &mut Rig) -> Outcome<()> {
    let mut child = rig.child()?;
    equal("size", child.number("dsize")?, DISK_BLOCKS * 4096)?;
    expect(&mut child, 0, &[0, 0xb1, 0])?;
    write(&mut child, 1, 300, 7)?;
    write(&mut child, 100, 1, 8)?;
    write(&mut child, DISK_BLOCKS - 1, 1, 9)?;
    expect(&mut child, 99, &[7, 8, 7])?;
    expect(&mut child, 300, &[7, 0])?;
    expect(&mut child, DISK_BLOCKS - 1, &[9])?;
    equal("discard", child.ask("ddiscard 99 2")?, "discarded".to_owned())?;
    expect(&mut child, 98, &[7, 0, 0, 7])?;
    child.close()
}

pub fn disks_fork(rig: &mut Rig) -> Outcome<()> {
    let mut parent = rig.child()?;
    write(&mut parent, 10, 4, 1)?;
    let mut parent = parked(parent)?;
    let (mut left, mut right) = (parent.fork()?.child, parent.fork()?.child);
    write(&mut left, 11, 1, 2)?;
    write(&mut right, 12, 2, 3)?;
    equal("discard", right.ask("ddiscard 10 1")?, "discarded".to_owned())?;
    expect(&mut left, 10, &[1, 2, 1, 1])?;
    expect(&mut right, 10, &[0, 1, 3, 3])?;
    let mut left = parked(left)?;
    parent.close()?;
    let mut grandchild = left.fork()?.child;
    write(&mut grandchild, 10, 1, 4)?;
    expect(&mut grandchild, 10, &[4, 2, 1, 1])?;
    let mut sibling = left.fork()?.child;
    expect(&mut sibling, 10, &[1, 2, 1, 1])?;
    [left, right, grandchild, sibling].into_iter().try_for_each(Vmm::close)
}

pub fn live_checkpoints_keep_their_disk(rig: &mut Rig) -> Outcome<()> {
    let mut source = rig.child()?;
    let mut copies = Vec::new();
    for round in 1..=5 {
        write(&mut source, 50, 3, round)?;
        copies.push(source.checkpoint()?);
        write(&mut source, 51, 1, 100 + round)?;
    }
    for (round, copy) in (1..).zip(&mut copies) {
        let mut child = copy.fork()?.child;
        expect(&mut child, 50, &[round, round, round])?;
        write(&mut child, 52, 1, 200)?;
        expect(&mut child, 50, &[round, round, 200])?;
        child.close()?;
    }
    expect(&mut source, 50, &[5, 105, 5])?;
    copies.into_iter().chain([source]).try_for_each(Vmm::close)
}

/// Deeper than a life goes on with files of its ancestors.
pub fn chain_of_forty(rig: &mut Rig) -> Outcome<()> {
    const LEVELS: u8 = 40;
    let mut last = rig.child()?;
    for level in 0..LEVELS {
        write(&mut last, u64::from(level) * 600, 2, level + 1)?;
        last.park()?;
        let child = last.fork()?.child;
        last.close()?;
        last = child;
        let files = std::fs::read_dir(format!("/proc/{}/fd", last.pid))?.count();
        ensure(&format!("{files} descriptors at level {level}"), files < 56)?;
    }
    for level in 0..LEVELS {
        expect(&mut last, u64::from(level) * 600, &[level + 1, level + 1, 0])?;
    }
    last.close()
}

/// A program writes numbered blocks and remembers in memory which the disk has acknowledged.
pub fn requests_under_way(rig: &mut Rig) -> Outcome<()> {
    let mut source = rig.child()?;
    equal("start", source.ask("dlog")?, "logging".to_owned())?;
    for round in 0..12u64 {
        sleep(Duration::from_millis(3 + round * 7 % 23));
        let mut copy = source.checkpoint()?;
        let mut child = copy.fork()?.child;
        let before = child.number("dcheck")?;
        sleep(Duration::from_millis(200));
        ensure("the log goes on in a fork", child.number("dcheck")? > before)?;
        child.close()?;
        copy.close()?;
    }
    source.send(&Command::Agent {
        data: b"dcheck".to_vec(),
    })?;
    source.payload()?;
    source.close()
}
