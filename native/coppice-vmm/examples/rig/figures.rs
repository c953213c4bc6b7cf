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
    cold_forks(rig, rounds, &mut table)?;
    run_ahead(rig, rounds, &mut table)?;
    parks(rig, rounds, &mut table)?;
    table.print();
    memory(rig)
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
