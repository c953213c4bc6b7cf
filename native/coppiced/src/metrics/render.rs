//! All figures of a host, as text.

use crate::host::Host;
use crate::memory::{MemoryError, machine_memory};
use crate::metrics::exposition::{Exposition, Kind};
use crate::metrics::own;
use crate::stats::{CounterValues, SandboxCounts};

pub fn render(host: &Host) -> Result<String, MemoryError> {
    let mut text = Exposition::default();
    identity(&mut text, host);
    holdings(&mut text, host)?;
    counters(&mut text, &host.counters.values());
    operations(&mut text, host);
    own::render(&mut text);
    Ok(text.into_text())
}

fn identity(text: &mut Exposition, host: &Host) {
    let name = "coppice_build_info";
    text.family(name, Kind::Gauge, "Always 1; the labels say what runs.");
    let labels = [
        ("version", env!("CARGO_PKG_VERSION")),
        ("kind", host.config.kind.name()),
    ];
    text.sample(name, &labels, 1);
    text.single(
        "coppice_uptime_seconds",
        Kind::Gauge,
        "Time since the daemon started.",
        host.started_at.elapsed().as_secs_f64(),
    );
}

fn holdings(text: &mut Exposition, host: &Host) -> Result<(), MemoryError> {
    let counts = SandboxCounts::of(host);
    let name = "coppice_sandboxes";
    text.family(name, Kind::Gauge, "Sandboxes alive, by state.");
    for (state, count) in [
        ("booting", counts.booting),
        ("ready", counts.ready),
        ("leased", counts.leased),
        ("poisoned", counts.poisoned),
    ] {
        text.sample(name, &[("state", state)], count);
    }
    let (hot, shared) = host.checkpoints.count();
    let memory = machine_memory()?;
    let mut gauge = |name, help, value: u64| text.single(name, Kind::Gauge, help, value);
    gauge(
        "coppice_sandboxes_limit",
        "Sandboxes that may be alive at once.",
        host.config.max_sandboxes as u64,
    );
    gauge(
        "coppice_checkpoints_hot",
        "Frozen processes that can be forked.",
        hot as u64,
    );
    gauge(
        "coppice_checkpoints_shared",
        "Those of them that belong to the host.",
        shared as u64,
    );
    gauge(
        "coppice_vmm_processes",
        "Processes of VMMs, also of those that end, until they are collected.",
        host.reaper.uncollected() as u64,
    );
    gauge("coppice_sessions", "Sessions of clients.", host.sessions.count() as u64);
    gauge(
        "coppice_cgroups",
        "Cgroups of sandboxes that have limits.",
        host.enforcement.groups() as u64,
    );
    let connections = *host.connections.borrow();
    gauge(
        "coppice_connections",
        "Connections that have said hello.",
        connections as u64,
    );
    gauge(
        "coppice_memory_total_bytes",
        "Memory of the machine.",
        memory.total_bytes,
    );
    gauge(
        "coppice_memory_available_bytes",
        "Memory that new programs could have, as the kernel estimates it.",
        memory.available_bytes,
    );
    if let Ok(disk) = host.extents.space() {
        gauge(
            "coppice_disk_total_bytes",
            "Room for the contents of guests' disks.",
            disk.total_bytes,
        );
        gauge(
            "coppice_disk_available_bytes",
            "What is left of it.",
            disk.available_bytes,
        );
    }
    Ok(())
}

fn counters(text: &mut Exposition, values: &CounterValues) {
    for (name, help, value) in [
        ("coppice_boots_total", "Sandboxes that were booted.", values.boots),
        (
            "coppice_forks_total",
            "Children that were forked and given to a client.",
            values.forks,
        ),
        (
            "coppice_parks_total",
            "Sandboxes that became checkpoints.",
            values.parks,
        ),
        (
            "coppice_live_checkpoints_total",
            "Checkpoints of sandboxes that went on.",
            values.checkpoints,
        ),
        (
            "coppice_rewinds_total",
            "Sandboxes that went back to their checkpoint in place.",
            values.rewinds,
        ),
        (
            "coppice_closes_total",
            "Sandboxes that were closed by their owner or with its session.",
            values.closes,
        ),
        (
            "coppice_discarded_total",
            "Sandboxes that failed, or were given up, before they were handed out.",
            values.discarded,
        ),
        (
            "coppice_poisoned_total",
            "Sandboxes taken out of use because something may have corrupted them.",
            values.poisoned,
        ),
        (
            "coppice_stale_replies_total",
            "Messages of agents that belonged to another life or to no call.",
            values.stale_replies,
        ),
        (
            "coppice_repeated_closes_total",
            "Closes and drops of what was closed or dropped before.",
            values.repeated_closes,
        ),
        (
            "coppice_refused_handshakes_total",
            "Connections that were turned away before they had a session.",
            values.refused_handshakes,
        ),
        (
            "coppice_vanished_peers_total",
            "Connections that were ended because nobody was at the other end.",
            values.vanished_peers,
        ),
        (
            "coppice_memory_limit_kills_total",
            "Sandboxes that were ended because they took more memory than they may.",
            values.memory_limit_kills,
        ),
        (
            "coppice_console_dropped_bytes_total",
            "Bytes that guests' consoles said above their rate.",
            values.console_dropped_bytes,
        ),
    ] {
        text.single(name, Kind::Counter, help, value);
    }
}

fn operations(text: &mut Exposition, host: &Host) {
    let name = "coppice_operation_duration_seconds";
    text.family(name, Kind::Histogram, "How long operations took that were done.");
    for (operation, record) in host.operations.all() {
        text.histogram(name, &[("operation", operation)], &record.durations);
    }
    let name = "coppice_operation_failures_total";
    text.family(
        name,
        Kind::Counter,
        "Operations that failed, were cancelled or ran out of time.",
    );
    for (operation, record) in host.operations.all() {
        text.sample(name, &[("operation", operation)], record.failures.get());
    }
}
