//! Rewinding in place, and what a checkpoint differs in from its parent; both against full dumps of the guests' memory.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::thread::sleep;
use std::time::Duration;

use coppice_wire::vmm::{Command, Event};

use crate::Rig;
use crate::checks::{ensure, equal};
use crate::vmm::{Outcome, Runs, Vmm};

const PAGE: usize = 4096;
/// KVM writes the guest's wall clock when it is given the place of it.
const PAGES_OF_KVM: usize = 2;

/// A frozen machine with 4 MiB of known memory, and a child of it that is rewindable.
fn family(rig: &mut Rig) -> Outcome<(Vmm, Vmm)> {
    let mut template = rig.child()?;
    template.ask("fill 4 1")?;
    template.park()?;
    template.makes_rewindable = true;
    let child = template.fork()?.child;
    Ok((template, child))
}

/// Where guest memory lies in the address space of a VMM.
fn guest_memory(pid: u32) -> Outcome<(u64, u64)> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps"))?;
    let line = maps.lines().find(|line| line.contains("memfd:coppice-guest"));
    let (range, _) = line.and_then(|line| line.split_once(' ')).ok_or("no guest memory")?;
    let (start, end) = range.split_once('-').ok_or("no range")?;
    Ok((u64::from_str_radix(start, 16)?, u64::from_str_radix(end, 16)?))
}

/// Pages whose contents differ, of all that the guest has.
fn differing(one: u32, other: u32) -> Outcome<Vec<u64>> {
    let (start, end) = guest_memory(one)?;
    equal("place of the memory", guest_memory(other)?, (start, end))?;
    let open = |pid| File::open(format!("/proc/{pid}/mem"));
    let (one, other) = (open(one)?, open(other)?);
    let (mut left, mut right) = (vec![0; PAGE * 256], vec![0; PAGE * 256]);
    let mut found = Vec::new();
    for at in (start..end).step_by(left.len()) {
        let length = left.len().min((end - at) as usize);
        one.read_exact_at(&mut left[..length], at)?;
        other.read_exact_at(&mut right[..length], at)?;
        let pages = left[..length].chunks(PAGE).zip(right[..length].chunks(PAGE));
        let first = (at - start) / PAGE as u64;
        found.extend(
            (first..)
                .zip(pages)
                .filter(|(_, (left, right))| left != right)
                .map(|(page, _)| page),
        );
    }
    Ok(found)
}

fn listed(runs: &Runs) -> Vec<u64> {
    runs.iter().flat_map(|(first, length)| *first..first + length).collect()
}

/// Memory, devices and clocks: what the child has done since is not there, and it goes on as a child does.
pub fn child_goes_back(rig: &mut Rig) -> Outcome<()> {
    let (mut template, mut child) = family(rig)?;
    let (count, sum) = (child.number("count")?, child.number("sum")?);
    for round in 0..8u64 {
        child.ask(&format!("touch {} {round}", 100 * (round + 1)))?;
        child.ask(&format!("fill {} {round}", 1 + round % 3))?;
        child.number("count")?;
        child.rewind(template.pid, false)?;
        equal("count", child.number("count")?, count)?;
        equal("sum", child.number("sum")?, sum)?;
        ensure("a sleep takes its time", child.number("sleep 20")? < 2_000_000)?;
    }
    child.ask_raw(&vec![b'e'; 100_000])?;
    child.close()?;
    let mut sibling = template.fork()?.child;
    equal("sibling's count", sibling.number("count")?, count)?;
    sibling.close()?;
    template.close()
}

/// Every page, also those that only devices have written, and whatever the guest was doing.
pub fn memory_is_the_templates(rig: &mut Rig) -> Outcome<()> {
    let (template, mut child) = family(rig)?;
    child.ask("spin")?;
    for round in 0..2 {
        child.ask(&format!("fill 6 {round}"))?;
        // Into the page cache, by the device.
        child.number("disk 1048576 4096")?;
        child.ask("dwrite 5 40 9")?;
        sleep(Duration::from_millis(10));
        let (put_back, _) = child.rewind(template.pid, true)?;
        ensure("the guest had written", put_back > 1000)?;
        let found = differing(template.pid, child.pid)?;
        ensure(
            &format!("{put_back} pages put back, but {found:?} differ"),
            found.len() <= PAGES_OF_KVM,
        )?;
        child.resume()?;
    }
    child.close()?;
    template.close()
}

pub fn disk_goes_back(rig: &mut Rig) -> Outcome<()> {
    let mut template = rig.child()?;
    template.ask("dwrite 10 4 1")?;
    template.park()?;
    template.makes_rewindable = true;
    let mut child = template.fork()?.child;
    for byte in 2..6u8 {
        child.ask(&format!("dwrite 11 2 {byte}"))?;
        child.ask("ddiscard 10 1")?;
        equal("written", child.ask_raw(b"dread 10 4")?, vec![0, byte, byte, 1])?;
        child.rewind(template.pid, false)?;
        equal("rewound", child.ask_raw(b"dread 10 4")?, vec![1, 1, 1, 1])?;
    }
    // It can write in each life, and its checkpoint has what it wrote in the last.
    child.ask("dwrite 13 1 9")?;
    child.park()?;
    let mut grandchild = child.fork()?.child;
    equal("grandchild", grandchild.ask_raw(b"dread 10 4")?, vec![1, 1, 1, 9])?;
    [grandchild, child, template].into_iter().try_for_each(Vmm::close)
}

/// A live checkpoint of a child does not change where it goes back to, nor does the child's return change the checkpoint.
pub fn goes_back_behind_a_live_checkpoint(rig: &mut Rig) -> Outcome<()> {
    let (template, mut child) = family(rig)?;
    let first = child.number("sum")?;
    child.ask("touch 300 7")?;
    let second = child.number("sum")?;
    let mut copy = child.checkpoint()?;
    child.ask("touch 500 8")?;
    child.rewind(template.pid, false)?;
    equal("sum", child.number("sum")?, first)?;
    let mut of_copy = copy.fork()?.child;
    equal("copy's sum", of_copy.number("sum")?, second)?;
    [of_copy, copy, child, template].into_iter().try_for_each(Vmm::close)
}

pub fn refusals(rig: &mut Rig) -> Outcome<()> {
    let (template, mut child) = family(rig)?;
    child.send(&Command::Rewind { at_ns: 0 })?;
    match child.answer()? {
        Event::Failed {
            code, poisons: false, ..
        } => equal("without memory", code.as_str(), "VMM_PROTOCOL")?,
        other => return Err(format!("expected Failed, got {other:?}").into()),
    }
    child.number("count")?;
    template.close()?;
    // Nothing was put back of a process that has ended, and nobody can say what is there now.
    let mut orphan = child;
    let gone = rig.child()?;
    let pid = gone.pid;
    let memory = File::open(format!("/proc/{pid}/mem"))?;
    gone.close()?;
    orphan.lend_file(coppice_wire::vmm::LentFile::OriginMemory, &memory)?;
    orphan.send(&Command::Rewind { at_ns: 0 })?;
    match orphan.answer()? {
        Event::Failed { poisons: true, .. } => orphan.close(),
        other => Err(format!("expected Failed, got {other:?}").into()),
    }
}

/// Against full dumps of both, at two depths, of a park and of a live checkpoint.
pub fn delta_is_exact(rig: &mut Rig) -> Outcome<()> {
    let (template, mut child) = family(rig)?;
    child.ask("touch 100 9")?;
    child.ask("dwrite 20 3 1")?;
    child.ask("dwrite 30 1 1")?;
    let mut copy = child.checkpoint()?;
    child.ask("touch 200 10")?;
    child.ask("ddiscard 20 1")?;
    child.ask("ddiscard 500 1")?;
    child.park()?;
    for (checkpoint, blocks) in [
        (&mut copy, vec![(20, 3), (30, 1)]),
        (&mut child, vec![(20, 3), (30, 1)]),
    ] {
        let (pages, found) = checkpoint.compare(template.pid)?;
        let dumped = differing(template.pid, checkpoint.pid)?;
        ensure(&format!("{} pages", dumped.len()), dumped.len() > 100)?;
        equal("pages", listed(&pages), dumped)?;
        equal("blocks", found, blocks)?;
    }
    child.makes_rewindable = true;
    let mut grandchild = child.fork()?.child;
    grandchild.ask("touch 50 11")?;
    grandchild.ask("dwrite 31 1 2")?;
    grandchild.rewind(child.pid, false)?;
    // The same bytes: no difference.
    grandchild.ask("touch 200 10")?;
    grandchild.park()?;
    let (pages, blocks) = grandchild.compare(child.pid)?;
    equal("pages", listed(&pages), differing(child.pid, grandchild.pid)?)?;
    equal("blocks", blocks, vec![])?;
    // What it differs in from its template is more than from its parent.
    let (more, _) = grandchild.compare(template.pid)?;
    ensure("differences add up", listed(&more).len() > listed(&pages).len())?;
    [grandchild, copy, child, template].into_iter().try_for_each(Vmm::close)
}
