//! One behaviour each.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::thread::sleep;
use std::time::{Duration, Instant};

use coppice_wire::vmm::{Command, Event, GuestEnd};

use crate::Rig;
use crate::disk;
use crate::refusals;
use crate::rewind;
use crate::vcpus;
use crate::vmm::{Outcome, Vmm};

type Check = fn(&mut Rig) -> Outcome<()>;

pub const ALL: &[(&str, Check)] = &[
    ("booted guest answers and sees its disk", booted_guest_answers),
    ("child continues where its template stopped", child_continues),
    ("siblings keep their own state", siblings_are_independent),
    ("fork chain of five levels keeps every level's state", chain_of_five),
    ("parked guest's delta is what it wrote", delta_is_counted),
    (
        "running child parks and forks while its parent lives",
        parked_while_spinning,
    ),
    ("guest clock goes on in a child of an old template", clock_goes_on),
    ("paused guest uses no processor and resumes", paused_guest_is_idle),
    ("user-mode output works in a child", user_mode_output),
    (
        "output before a park is not repeated in the child",
        output_is_not_repeated,
    ),
    ("half-read frame survives park and fork", half_frame_survives),
    (
        "bytes for a guest that is paused survive park and fork",
        pending_bytes_survive,
    ),
    ("large payloads pass in both directions", large_payloads),
    ("guest that outruns its daemon loses nothing", backpressure),
    ("child of a dead template lives on", orphan_lives),
    ("frozen process has one thread and no VM", frozen_process_is_bare),
    ("every process is confined, with nothing missing", all_are_confined),
    ("control socket's end ends the process", socket_end_ends),
    (
        "commands in the wrong state are refused and do no harm",
        refusals::wrong_state_is_refused,
    ),
    (
        "bad boots are refused with their reason",
        refusals::bad_boots_are_refused,
    ),
    ("power-off, reset, panic end the VM orderly", guest_ends),
    (
        "disk has its first contents and keeps what is written",
        disk::disk_keeps_its_contents,
    ),
    (
        "invariant 1: disks of parent and children are independent",
        disk::disks_fork,
    ),
    (
        "invariant 1: disk of a live checkpoint stays as it was",
        disk::live_checkpoints_keep_their_disk,
    ),
    (
        "disk through forty levels of forks keeps every level's blocks",
        disk::chain_of_forty,
    ),
    (
        "B08: disk requests under way at a checkpoint are lost in no fork",
        disk::requests_under_way,
    ),
    (
        "rewound child is what it was when it was forked",
        rewind::child_goes_back,
    ),
    (
        "rewound child has every page of its template",
        rewind::memory_is_the_templates,
    ),
    (
        "rewound child has its template's disk, and can write it",
        rewind::disk_goes_back,
    ),
    (
        "rewind goes behind a live checkpoint and leaves it alone",
        rewind::goes_back_behind_a_live_checkpoint,
    ),
    (
        "rewind that can't be made is refused or ends the machine",
        rewind::refusals,
    ),
    ("delta is what full dumps of both differ in", rewind::delta_is_exact),
    (
        "two vCPUs go on through park, fork, live checkpoint and pause",
        vcpus::two_go_on,
    ),
    ("four vCPUs go on through a fork", vcpus::four_go_on),
    ("fifty children at once all answer", fifty_at_once),
    ("two hundred forks leave nothing behind", no_leaks),
];

pub fn equal<T: PartialEq + std::fmt::Debug>(what: &str, actual: T, expected: T) -> Outcome<()> {
    if actual == expected {
        Ok(())
    } else {
        Err(format!("{what}: expected {expected:?}, got {actual:?}").into())
    }
}

pub fn ensure(what: &str, holds: bool) -> Outcome<()> {
    if holds { Ok(()) } else { Err(what.into()) }
}

fn disk_sum(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(7u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)))
}

fn booted_guest_answers(rig: &mut Rig) -> Outcome<()> {
    let mut vmm = rig.boot()?;
    equal("count", vmm.number("count")?, 1)?;
    equal(
        "serial",
        vmm.ask("serial")?.trim().to_owned(),
        "coppice-image".to_owned(),
    )?;
    let image = fs::read(&rig.config.image)?;
    let (offset, length) = (4096, 1 << 20);
    equal(
        "disk",
        vmm.number(&format!("disk {length} {offset}"))?,
        disk_sum(&image[offset..offset + length]),
    )?;
    ensure(
        "console output",
        String::from_utf8_lossy(&vmm.console).contains("guest: ready"),
    )?;
    vmm.close()
}

fn child_continues(rig: &mut Rig) -> Outcome<()> {
    let mut child = rig.child()?;
    equal("count", child.number("count")?, 2)?;
    equal("count", child.number("count")?, 3)?;
    child.close()
}

fn siblings_are_independent(rig: &mut Rig) -> Outcome<()> {
    let (mut one, mut two) = (rig.child()?, rig.child()?);
    one.ask("fill 1 1")?;
    two.ask("fill 1 2")?;
    let sums = (one.number("sum")?, two.number("sum")?);
    ensure("sums differ", sums.0 != sums.1)?;
    one.ask("touch 100 9")?;
    equal("sibling's sum", two.number("sum")?, sums.1)?;
    ensure("own sum changed", one.number("sum")? != sums.0)?;
    one.close()?;
    two.close()
}

fn chain_of_five(rig: &mut Rig) -> Outcome<()> {
    let mut levels: Vec<(Vmm, u64)> = Vec::new();
    let mut current = rig.child()?;
    current.ask("fill 1 77")?;
    for level in 0..5u64 {
        current.ask(&format!("touch {} {level}", 10 * (level + 1)))?;
        equal("count", current.number("count")?, 2 + level)?;
        let sum = current.number("sum")?;
        current.park()?;
        let child = current.fork()?.child;
        levels.push((current, sum));
        current = child;
        equal("child's sum", current.number("sum")?, sum)?;
    }
    current.ask("touch 200 200")?;
    for (depth, (level, sum)) in levels.iter_mut().enumerate() {
        let mut child = level.fork()?.child;
        equal("level's sum", child.number("sum")?, *sum)?;
        equal("level's count", child.number("count")?, 3 + depth as u64)?;
        child.close()?;
    }
    current.close()?;
    levels.into_iter().try_for_each(|(level, _)| level.close())
}

fn delta_is_counted(rig: &mut Rig) -> Outcome<()> {
    let mut child = rig.child()?;
    child.ask("fill 1 1")?;
    let small = child.park()?.0;
    let mut grandchild = child.fork()?.child;
    grandchild.ask("fill 5 1")?;
    let large = grandchild.park()?.0;
    ensure(
        &format!("{small} then {large} pages"),
        (256..2500).contains(&small) && large > small + 1000,
    )?;
    grandchild.close()?;
    child.close()
}

fn parked_while_spinning(rig: &mut Rig) -> Outcome<()> {
    let mut busy = rig.child()?;
    busy.ask("spin")?;
    for round in 0..5 {
        sleep(Duration::from_millis(30));
        busy.park()?;
        let mut child = busy.fork()?.child;
        equal("count", child.number("count")?, 2 + round)?;
        busy.close()?;
        busy = child;
    }
    busy.close()
}

/// Without a clock and counter that go on, a sleep lasts until the new VM has caught up with the template's uptime.
fn clock_goes_on(rig: &mut Rig) -> Outcome<()> {
    let mut parent = rig.child()?;
    sleep(Duration::from_secs(3));
    let before = parent.number("clock")?;
    parent.park()?;
    sleep(Duration::from_secs(2));
    let mut child = parent.fork()?.child;
    let after = child.number("clock")?;
    ensure(
        &format!("monotonic clock went back from {before} to {after}"),
        after > before,
    )?;
    ensure(
        &format!("time passed while frozen: {} ns", after - before),
        after - before < 1_500_000_000,
    )?;
    let start = Instant::now();
    let slept = child.number("sleep 200")?;
    let real = start.elapsed();
    ensure(&format!("guest slept {slept} us"), (200_000..400_000).contains(&slept))?;
    ensure(&format!("host waited {real:?}"), (190..500).contains(&real.as_millis()))?;
    let (clock, start) = (child.number("clock")?, Instant::now());
    sleep(Duration::from_secs(1));
    let (passed, real) = (child.number("clock")? - clock, start.elapsed().as_nanos() as u64);
    ensure(
        &format!("guest saw {passed} ns of {real} ns"),
        passed.abs_diff(real) < 100_000_000,
    )?;
    child.close()?;
    parent.close()
}

fn processor_ticks(pid: u32) -> Outcome<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    Ok(fields[11].parse::<u64>()? + fields[12].parse::<u64>()?)
}

fn paused_guest_is_idle(rig: &mut Rig) -> Outcome<()> {
    let mut child = rig.child()?;
    child.ask("spin")?;
    child.pause()?;
    let before = processor_ticks(child.pid)?;
    sleep(Duration::from_millis(500));
    // The VMM has a little to do after its answer; a guest that spun would have taken fifty.
    let paused = processor_ticks(child.pid)? - before;
    ensure(&format!("{paused} ticks while paused"), paused < 10)?;
    child.resume()?;
    equal("count", child.number("count")?, 2)?;
    let resumed = processor_ticks(child.pid)?;
    sleep(Duration::from_millis(500));
    ensure("spinning again", processor_ticks(child.pid)? > resumed)?;
    ensure(
        "no complaint about the stop",
        !child.ask("dmesg")?.contains("soft lockup"),
    )?;
    child.close()
}

fn user_mode_output(rig: &mut Rig) -> Outcome<()> {
    let mut child = rig.child()?;
    equal("port", child.ask("port")?, "written".to_owned())?;
    child.park()?;
    let mut grandchild = child.fork()?.child;
    equal("port", grandchild.ask("port")?, "written".to_owned())?;
    grandchild.close()?;
    child.close()
}

/// A guest that is stopped on an output instruction must have completed it before its state is saved.
fn output_is_not_repeated(rig: &mut Rig) -> Outcome<()> {
    let mut parent = rig.child()?;
    parent.send(&Command::Agent {
        data: b"print 200".to_vec(),
    })?;
    let mut text = Vec::new();
    for _ in 0..20 {
        sleep(Duration::from_millis(7));
        parent.park()?;
        let child = parent.fork()?.child;
        text.append(&mut parent.console);
        parent.close()?;
        parent = child;
        if String::from_utf8_lossy(&text).contains("line 199 ") {
            break;
        }
    }
    equal("answer", String::from_utf8(parent.payload()?)?, "printed".to_owned())?;
    text.append(&mut parent.console);
    let text = String::from_utf8_lossy(&text).into_owned();
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| line.contains("of the console test"))
        .collect();
    let expected: Vec<String> = (0..200)
        .map(|line| format!("line {line} of the console test"))
        .collect();
    equal("lines", lines, expected.iter().map(String::as_str).collect())?;
    parent.close()
}

fn half_frame_survives(rig: &mut Rig) -> Outcome<()> {
    let mut parent = rig.child()?;
    parent.send(&Command::Agent { data: b"half".to_vec() })?;
    sleep(Duration::from_millis(100));
    parent.park()?;
    ensure("nothing arrived yet", parent.inbox.is_empty())?;
    for _ in 0..2 {
        let mut child = parent.fork()?.child;
        equal("frame", child.ask_raw(b"go on")?, vec![b'h'; 10_000])?;
        equal("answer", child.payload()?, b"go on".to_vec())?;
        child.close()?;
    }
    parent.close()
}

fn pending_bytes_survive(rig: &mut Rig) -> Outcome<()> {
    let mut parent = rig.child()?;
    parent.pause()?;
    let large: Vec<u8> = b"echo "
        .iter()
        .copied()
        .chain((0..600_000u32).map(|index| index as u8))
        .collect();
    parent.send(&Command::Agent { data: large.clone() })?;
    parent.park()?;
    for _ in 0..2 {
        let mut child = parent.fork()?.child;
        ensure("echo is equal", child.payload()? == large)?;
        equal("count", child.number("count")?, 2)?;
        child.close()?;
    }
    parent.close()
}

fn large_payloads(rig: &mut Rig) -> Outcome<()> {
    let mut child = rig.child()?;
    for size in [0, 1, 4091, 4092, 4093, 65_536, 3_000_000] {
        let request: Vec<u8> = b"echo "
            .iter()
            .copied()
            .chain((0..size).map(|index: u32| (index * 7) as u8))
            .collect();
        ensure(
            &format!("echo of {size} bytes is equal"),
            child.ask_raw(&request)? == request,
        )?;
    }
    child.close()
}

fn backpressure(rig: &mut Rig) -> Outcome<()> {
    let mut child = rig.child()?;
    child.send(&Command::Agent {
        data: b"burst 400 50000".to_vec(),
    })?;
    sleep(Duration::from_millis(700));
    // Of the 20 MB: what the guest's queue and the VMM's two buffers take.
    let held = anonymous_kib(child.pid)?;
    ensure(&format!("VMM holds {held} KiB"), held < 10 << 10)?;
    for index in 0..400u32 {
        ensure(
            &format!("payload {index}"),
            child.payload()? == vec![index as u8; 50_000],
        )?;
    }
    equal("end", String::from_utf8(child.payload()?)?, "sent".to_owned())?;
    equal("count", child.number("count")?, 2)?;
    child.close()
}

fn orphan_lives(rig: &mut Rig) -> Outcome<()> {
    let mut parent = rig.child()?;
    parent.ask("fill 1 5")?;
    let sum = parent.number("sum")?;
    parent.park()?;
    let mut child = parent.fork()?.child;
    parent.close()?;
    equal("sum", child.number("sum")?, sum)?;
    child.close()
}

fn frozen_process_is_bare(rig: &mut Rig) -> Outcome<()> {
    let pid = rig.template()?.pid;
    equal("threads", fs::read_dir(format!("/proc/{pid}/task"))?.count(), 1)?;
    for entry in fs::read_dir(format!("/proc/{pid}/fd"))?.flatten() {
        let target = fs::read_link(entry.path())?;
        let target = target.to_string_lossy();
        ensure(&format!("open: {target}"), !target.contains("kvm-v"))?;
    }
    let maps = fs::read_to_string(format!("/proc/{pid}/maps"))?;
    ensure("no kvm_run mapping", !maps.contains("kvm-vcpu"))?;
    let before = processor_ticks(pid)?;
    sleep(Duration::from_millis(300));
    equal("ticks while frozen", processor_ticks(pid)? - before, 0)
}

fn confined(pid: u32) -> Outcome<()> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    for line in [
        "Seccomp:\t2",
        "NoNewPrivs:\t1",
        "CapEff:\t0000000000000000",
        "CapBnd:\t0000000000000000",
    ] {
        ensure(line, status.contains(line))?;
    }
    let root = fs::metadata(format!("/proc/{pid}/root/"))?;
    equal("links to an empty root", root.nlink(), 2)?;
    equal(
        "entries of the root",
        fs::read_dir(format!("/proc/{pid}/root/"))?.count(),
        0,
    )?;
    for namespace in ["mnt", "net", "ipc", "uts"] {
        let of = |who: &str| fs::read_link(format!("/proc/{who}/ns/{namespace}"));
        ensure(namespace, of(&pid.to_string())? != of("self")?)?;
    }
    Ok(())
}

fn all_are_confined(rig: &mut Rig) -> Outcome<()> {
    confined(rig.template()?.pid)?;
    let (mut vmm, child) = (Vmm::spawn(&rig.vmm)?, rig.child()?);
    confined(child.pid)?;
    child.close()?;
    let config = rig.config.clone();
    vmm.send(&Command::Boot { config })?;
    match vmm.answer()? {
        Event::Started { missing, .. } => equal("missing barriers", missing, vec![])?,
        other => return Err(format!("expected Started, got {other:?}").into()),
    }
    confined(vmm.pid)?;
    vmm.close()
}

fn socket_end_ends(rig: &mut Rig) -> Outcome<()> {
    let running = rig.child()?;
    let mut busy = rig.child()?;
    busy.ask("spin")?;
    let mut paused = rig.child()?;
    paused.pause()?;
    let mut frozen = rig.child()?;
    frozen.park()?;
    let fresh = Vmm::spawn(&rig.vmm)?;
    for vmm in [running, busy, paused, frozen, fresh] {
        let start = Instant::now();
        vmm.close()?;
        ensure(
            &format!("took {:?}", start.elapsed()),
            start.elapsed() < Duration::from_secs(1),
        )?;
    }
    Ok(())
}

fn guest_ends(rig: &mut Rig) -> Outcome<()> {
    for (request, detail) in [("off", "power-off"), ("reset", "reset"), ("panic", "reset")] {
        let mut child = rig.child()?;
        child.send(&Command::Agent {
            data: request.as_bytes().to_vec(),
        })?;
        equal(request, child.ended()?, (GuestEnd::Shutdown, detail.to_owned()))?;
        if request == "panic" {
            ensure(
                "panic on the console",
                String::from_utf8_lossy(&child.console).contains("Kernel panic"),
            )?;
        }
        child.reap()?;
    }
    Ok(())
}

/// Each waits paused, as in a pool: fifty idle kernels that tick are more than an emulated host has time for.
fn fifty_at_once(rig: &mut Rig) -> Outcome<()> {
    let template = rig.template()?;
    let mut children = Vec::new();
    for index in 0..50u64 {
        let mut child = template.fork()?.child;
        for round in 0..index % 3 {
            equal("count", child.number("count")?, 2 + round)?;
        }
        child.pause()?;
        children.push(child);
    }
    let pids: HashSet<u32> = children.iter().map(|child| child.pid).collect();
    equal("pids", pids.len(), 50)?;
    for (index, child) in (0u64..).zip(&mut children) {
        child.resume()?;
        equal("count", child.number("count")?, 2 + index % 3)?;
        child.pause()?;
    }
    children.into_iter().try_for_each(Vmm::close)
}

fn no_leaks(rig: &mut Rig) -> Outcome<()> {
    let template = rig.template()?;
    let measure = |pid: u32| -> Outcome<(usize, u64)> {
        Ok((fs::read_dir(format!("/proc/{pid}/fd"))?.count(), private_kib(pid)?))
    };
    let mut first = None;
    for round in 0..200 {
        let child = template.fork()?.child;
        child.close()?;
        if round == 20 {
            first = Some(measure(template.pid)?);
        }
    }
    let (descriptors, kib) = first.ok_or("not measured")?;
    let last = measure(template.pid)?;
    equal("descriptors", last.0, descriptors)?;
    ensure(
        &format!("private memory grew from {kib} to {} KiB", last.1),
        last.1 <= kib + 64,
    )
}

/// Private memory of a process.
/// Without pages of the base, which may be mapped here alone.
fn anonymous_kib(pid: u32) -> Outcome<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let field = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    Ok(field
        .and_then(|value| value.split_whitespace().next())
        .ok_or("no RssAnon")?
        .parse()?)
}

pub fn private_kib(pid: u32) -> Outcome<u64> {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    let fields = rollup.lines().filter(|line| line.starts_with("Private_"));
    Ok(fields
        .filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok())
        .sum())
}
