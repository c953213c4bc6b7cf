//! Machines with several vCPUs.

use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use coppice_wire::vmm::BootConfig;

use crate::Rig;
use crate::checks::{ensure, equal};
use crate::vmm::{Outcome, Vmm};

/// Against hangs only.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a kernel says that did not get over a stop, or whose processors disagree.
const COMPLAINTS: [&str; 3] = ["soft lockup", "unstable", "BUG:"];

fn boot(rig: &Rig, vcpus: u8) -> Outcome<Vmm> {
    let config = BootConfig {
        vcpus,
        ..rig.config.clone()
    };
    let mut vmm = Vmm::boot(&rig.vmm, &config)?.0;
    equal("processors", vmm.number("cpus")?, vcpus.into())?;
    vmm.ask("cpuload")?;
    Ok(vmm)
}

fn turns(vmm: &mut Vmm) -> Outcome<Vec<u64>> {
    let text = vmm.ask("cputurns")?;
    let numbers: Result<_, _> = text.split(' ').map(str::parse).collect();
    Ok(numbers.map_err(|_| format!("cputurns: {text}"))?)
}

/// The work of every processor goes on, and none of them has seen anything that can't be.
fn all_go_on(vmm: &mut Vmm) -> Outcome<()> {
    let (before, start) = (turns(vmm)?, Instant::now());
    loop {
        let now = turns(vmm)?;
        if now.iter().zip(&before).all(|(now, before)| now > before) {
            break;
        }
        ensure(
            &format!("turns were {before:?} and are {now:?}"),
            start.elapsed() < PATIENCE,
        )?;
        sleep(Duration::from_millis(20));
    }
    equal("faults", vmm.ask("cpufaults")?, String::new())?;
    let log = vmm.ask("dmesg")?;
    let complaint = log
        .lines()
        .find(|line| COMPLAINTS.iter().any(|text| line.contains(text)));
    equal("complaints", complaint, None)
}

/// One that has just ended is listed a little longer.
fn has_threads(pid: u32, expected: usize) -> Outcome<()> {
    let start = Instant::now();
    loop {
        let threads = fs::read_dir(format!("/proc/{pid}/task"))?.count();
        if threads == expected {
            return Ok(());
        }
        ensure(&format!("{threads} threads for {expected}"), start.elapsed() < PATIENCE)?;
        sleep(Duration::from_millis(5));
    }
}

pub fn two_go_on(rig: &mut Rig) -> Outcome<()> {
    let mut booted = boot(rig, 2)?;
    all_go_on(&mut booted)?;
    booted.park()?;
    let mut child = booted.fork()?.child;
    has_threads(booted.pid, 1)?;
    all_go_on(&mut child)?;
    has_threads(child.pid, 2)?;

    let mut copy = child.checkpoint()?;
    has_threads(copy.pid, 1)?;
    all_go_on(&mut child)?;
    let mut of_copy = copy.fork()?.child;
    all_go_on(&mut of_copy)?;

    for _ in 0..3 {
        child.pause()?;
        sleep(Duration::from_millis(100));
        child.resume()?;
        all_go_on(&mut child)?;
    }
    child.pause()?;
    child.park()?;
    let mut grandchild = child.fork()?.child;
    all_go_on(&mut grandchild)?;
    // The first of them after all this.
    let mut sibling = booted.fork()?.child;
    all_go_on(&mut sibling)?;
    for vmm in [sibling, grandchild, of_copy, copy, child, booted] {
        vmm.close()?;
    }
    Ok(())
}

pub fn four_go_on(rig: &mut Rig) -> Outcome<()> {
    let mut booted = boot(rig, 4)?;
    booted.park()?;
    let mut children = [booted.fork()?.child, booted.fork()?.child];
    children.iter_mut().try_for_each(all_go_on)?;
    children.into_iter().try_for_each(Vmm::close)?;
    booted.close()
}
