//! Stage timings and memory of children.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use coppice_wire::vmm::Stages;

use crate::Rig;
use crate::checks::private_kib;
use crate::vmm::{Outcome, Vmm};

/// Samples by name, in microseconds.
#[derive(Default)]
struct Table {
    rows: BTreeMap<String, Vec<u64>>,
    order: Vec<String>,
}

impl Table {
    fn add(&mut self, name: &str, microseconds: u64) {
        if !self.rows.contains_key(name) {
            self.order.push(name.to_owned());
        }
        self.rows.entry(name.to_owned()).or_default().push(microseconds);
    }

    fn add_stages(&mut self, prefix: &str, stages: &Stages) {
        stages
            .iter()
            .for_each(|(name, microseconds)| self.add(&format!("{prefix} {name}"), *microseconds));
    }

    fn print(&mut self) {
        println!("{:<34}{:>6}{:>9}{:>9}{:>9}", "us", "n", "min", "p50", "p99");
        for name in &self.order {
            if let Some(samples) = self.rows.get_mut(name) {
                samples.sort_unstable();
                let at = |share: usize| samples[(samples.len() - 1) * share / 100];
                println!("{name:<34}{:>6}{:>9}{:>9}{:>9}", samples.len(), at(0), at(50), at(99));
            }
        }
    }
}

fn microseconds(duration: Duration) -> u64 {
    duration.as_micros() as u64
}

pub fn print(rig: &mut Rig, rounds: usize) -> Outcome<()> {
    let mut table = Table::default();
    let (vmm, stages) = {
        let start = Instant::now();
        let booted = Vmm::boot(&rig.vmm, &rig.config)?;
        table.add("boot to ready", microseconds(start.elapsed()));
        booted
    };
    table.add_stages("boot", &stages);
    vmm.close()?;
    rig.template()?;
    mark("cold-fork-reply-close", rounds, || {
        (0..rounds).try_for_each(|_| {
            let mut child = rig.child()?;
            child.number("count")?;
            child.close()
        })
    })?;
    mark("fork-close", rounds, || {
        (0..rounds).try_for_each(|_| rig.child()?.close())
    })?;
    cold_forks(rig, rounds, &mut table)?;
    run_ahead(rig, rounds, &mut table)?;
    mark("park", rounds, || parks(rig, rounds, &mut table))?;
    exits(rig)?;
    let mut child = rig.child()?;
    child.number("count")?;
    mark("round-trip", rounds * 20, || {
        (0..rounds * 20).try_for_each(|_| child.number("count").map(drop))
    })?;
    mark("idle-second", 5, || {
        std::thread::sleep(Duration::from_secs(5));
        Ok(())
    })?;
    child.close()?;
    mark("idle-host-second", 5, || {
        std::thread::sleep(Duration::from_secs(5));
        Ok(())
    })?;
    table.print();
    memory(rig)
}

/// Says when a repeated operation begins and ends, for an observer who counts the emulator's processor time: a figure
/// that other programs on the machine change less than the wall clock.
fn mark(name: &str, times: usize, work: impl FnOnce() -> Outcome<()>) -> Outcome<()> {
    println!("MARK begin {name} {times}");
    work()?;
    println!("MARK end {name} {times}");
    Ok(())
}

/// Fork, first reply, second reply, with nothing prepared.
fn cold_forks(rig: &mut Rig, rounds: usize, table: &mut Table) -> Outcome<()> {
    let template = rig.template()?;
    for _ in 0..rounds {
        let start = Instant::now();
        let mut forked = template.fork()?;
        forked.child.number("count")?;
        table.add("cold fork to first reply", microseconds(start.elapsed()));
        table.add("cold fork to Started", microseconds(forked.started));
        let start = Instant::now();
        forked.child.number("count")?;
        table.add("second reply", microseconds(start.elapsed()));
        for _ in 0..5 {
            let start = Instant::now();
            forked.child.number("count")?;
            table.add("later replies", microseconds(start.elapsed()));
        }
        table.add_stages("fork:", &forked.fork_stages);
        table.add_stages("start:", &forked.start_stages);
        let start = Instant::now();
        forked.child.close()?;
        table.add("close", microseconds(start.elapsed()));
    }
    Ok(())
}

/// A child that has run to idle and was paused: what a warm pool hands out.
fn run_ahead(rig: &mut Rig, rounds: usize, table: &mut Table) -> Outcome<()> {
    for _ in 0..rounds {
        let mut child = rig.child()?;
        child.number("count")?;
        table.add("pause", microseconds(child.pause()?));
        let start = Instant::now();
        child.resume()?;
        child.number("count")?;
        table.add("hand-out: resume and first reply", microseconds(start.elapsed()));
        child.close()?;
    }
    Ok(())
}

fn parks(rig: &mut Rig, rounds: usize, table: &mut Table) -> Outcome<()> {
    for _ in 0..rounds {
        let mut child = rig.child()?;
        child.number("count")?;
        let (pages, stages, total) = child.park()?;
        table.add("park", microseconds(total));
        table.add_stages("park:", &stages);
        table.add("dirty pages (not us)", pages);
        child.close()?;
    }
    Ok(())
}

/// KVM's own counters of one VM, where debugfs is mounted.
fn counters(pid: u32) -> Outcome<BTreeMap<String, u64>> {
    let directory = fs::read_dir("/sys/kernel/debug/kvm")?
        .flatten()
        .find(|entry| entry.file_name().to_string_lossy().starts_with(&format!("{pid}-")))
        .ok_or("no counters")?;
    let mut counters = BTreeMap::new();
    for entry in fs::read_dir(directory.path())?.flatten() {
        if let Ok(value) = fs::read_to_string(entry.path()).unwrap_or_default().trim().parse() {
            counters.insert(entry.file_name().to_string_lossy().into_owned(), value);
        }
    }
    Ok(counters)
}

/// What the first, the second and an average later reply cost in exits.
fn exits(rig: &mut Rig) -> Outcome<()> {
    const LATER: u64 = 50;
    let mut child = rig.child()?;
    if counters(child.pid).is_err() {
        println!("exits: no counters, /sys/kernel/debug is not mounted");
        return child.close();
    }
    let mut steps = vec![counters(child.pid)?];
    for replies in [1, 1, LATER] {
        for _ in 0..replies {
            child.number("count")?;
        }
        steps.push(counters(child.pid)?);
    }
    println!("{:<34}{:>9}{:>9}{:>9}", "exits", "first", "second", "later");
    for name in steps[0].keys() {
        let at = |step: usize| steps[step].get(name).copied().unwrap_or(0);
        let differences = [
            at(1).saturating_sub(at(0)),
            at(2).saturating_sub(at(1)),
            at(3).saturating_sub(at(2)),
        ];
        if differences.iter().any(|difference| *difference > 0) {
            let later = differences[2] as f64 / LATER as f64;
            println!("{name:<34}{:>9}{:>9}{later:>9.1}", differences[0], differences[1]);
        }
    }
    child.close()
}

fn available_kib() -> Outcome<u64> {
    let text = fs::read_to_string("/proc/meminfo")?;
    let line = text
        .lines()
        .find(|line| line.starts_with("MemAvailable"))
        .ok_or("no MemAvailable")?;
    Ok(line.split_whitespace().nth(1).ok_or("no value")?.parse()?)
}

fn memory(rig: &mut Rig) -> Outcome<()> {
    const CHILDREN: u64 = 20;
    let template = rig.template()?;
    let before = available_kib()?;
    let mut children = Vec::new();
    for _ in 0..CHILDREN {
        let mut child = template.fork()?.child;
        child.number("count")?;
        child.pause()?;
        children.push(child);
    }
    let all_told = before.saturating_sub(available_kib()?) / CHILDREN;
    let pid = children[0].pid;
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let tables = status
        .lines()
        .find(|line| line.starts_with("VmPTE"))
        .unwrap_or_default()
        .to_owned();
    println!(
        "idle child: {all_told} KiB of MemAvailable, {} KiB private, {tables}",
        private_kib(pid)?
    );
    println!("template: {} KiB private", private_kib(template.pid)?);
    children.into_iter().try_for_each(Vmm::close)
}
