//! Limits that the daemon itself sees to, where there are no cgroups; and which are refused.

#![allow(clippy::unwrap_used)]

mod common;

use std::fs;
use std::time::Instant;

use common::{Client, Daemon, PATIENCE, call, get, map, number, text};
use coppice_wire::Value;

fn daemon(more: &[&str]) -> Daemon {
    Daemon::start_with(&[&["--cgroup", "none"], more].concat())
}

fn boot_with(client: &mut Client, daemon: &Daemon, limits: Value) -> Result<String, (String, String)> {
    let mut params = client.image(daemon, "");
    let Value::Map(entries) = &mut params else {
        unreachable!()
    };
    entries.push(("limits".into(), limits));
    match client.try_call("sandbox.boot", params) {
        Ok(booted) => Ok(text(&booted, "sandbox")),
        Err(failure) => Err((failure.code, failure.message)),
    }
}

fn limit(client: &mut Client, sandbox: &str, limits: Value) -> Result<Value, (String, String)> {
    let params = map([("sandbox", sandbox.into()), ("limits", limits)]);
    client
        .try_call("sandbox.limit", params)
        .map_err(|failure| (failure.code, failure.message))
}

fn hog(client: &mut Client, sandbox: &str, mib: u64) -> u64 {
    client.send("sandbox.call", call(sandbox, "hog", map([("mib", mib.into())])))
}

/// `nice` of a process, from `/proc/PID/stat`.
fn nice(pid: i32) -> i64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields = stat.rsplit(") ").next().unwrap_or_default();
    fields
        .split(' ')
        .nth(16)
        .and_then(|nice| nice.parse().ok())
        .unwrap_or(99)
}

fn pid_of(client: &mut Client, sandbox: &str) -> i32 {
    let list = client.call("sandbox.list", map([]));
    let rows = get(&list, "sandboxes").as_array().unwrap();
    let row = rows.iter().find(|row| text(row, "sandbox") == sandbox).unwrap();
    get(row, "pid").as_i64().unwrap() as i32
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

#[test]
fn fork_that_takes_more_memory_than_it_may_is_lost_and_its_neighbour_is_not() {
    let daemon = daemon(&[]);
    let mut client = daemon.client();
    let limited = boot_with(&mut client, &daemon, map([("memoryMiB", 32.into())])).unwrap();
    let checkpoint = client.park(&limited);
    let (sandbox, neighbour) = (client.fork_one(&checkpoint), client.fork_one(&checkpoint));
    let within = hog(&mut client, &neighbour, 8);
    assert!(client.answer(within).0.is_ok());
    let above = hog(&mut client, &sandbox, 100);
    let _ = client.answer(above);
    let ended = client.event("sandbox.ended");
    assert_eq!(text(&ended, "sandbox"), sandbox);
    assert_eq!(text(&ended, "reason"), "memoryLimit");
    let lost = client.agent(&sandbox, "ping").unwrap_err();
    assert_eq!(
        (lost.code.as_str(), lost.fault_domain.as_str()),
        ("SANDBOX_LOST", "guest")
    );
    assert!(lost.message.contains("limits.memoryMiB"), "{}", lost.message);
    // The neighbour has been looked at by now, too.
    assert!(client.agent(&neighbour, "ping").is_ok());
    let stats = client.call("host.stats", map([]));
    assert_eq!(number(get(&stats, "counters"), "memoryLimitKills"), 1);
}

#[test]
fn sandbox_that_booted_is_bounded_by_its_size_alone_until_it_is_limited() {
    let daemon = daemon(&[]);
    let mut client = daemon.client();
    let sandbox = boot_with(&mut client, &daemon, map([("memoryMiB", 32.into())])).unwrap();
    let much = hog(&mut client, &sandbox, 100);
    assert!(client.answer(much).0.is_ok());
    limit(&mut client, &sandbox, map([("memoryMiB", 32.into())])).unwrap();
    assert_eq!(text(&client.event("sandbox.ended"), "reason"), "memoryLimit");
}

#[test]
fn host_bounds_sandboxes_that_ask_for_nothing_and_those_that_ask_for_more() {
    let daemon = daemon(&["--sandbox-memory-mib", "32"]);
    let mut client = daemon.client();
    let (code, message) = boot_with(&mut client, &daemon, map([("memoryMiB", 33.into())])).unwrap_err();
    assert_eq!(code, "INVALID_ARGUMENT");
    assert!(
        message.contains("limits.memoryMiB") && message.contains("32"),
        "{message}"
    );
    let checkpoint = client.checkpoint(&daemon, "");
    let child = client.fork_one(&checkpoint);
    let above = hog(&mut client, &child, 100);
    let _ = client.answer(above);
    assert_eq!(text(&client.event("sandbox.ended"), "reason"), "memoryLimit");
}

#[test]
fn limit_that_is_no_possible_one_is_refused_by_its_name() {
    let daemon = daemon(&[]);
    let mut client = daemon.client();
    let sandbox = client.boot(&daemon, "");
    for (limits, field) in [
        (map([("memoryMiB", 1.into())]), "limits.memoryMiB"),
        (map([("cpuShare", 0.into())]), "limits.cpuShare"),
        (map([("cpuMax", 0.into())]), "limits.cpuMax"),
    ] {
        let (code, message) = limit(&mut client, &sandbox, limits.clone()).unwrap_err();
        assert_eq!(code, "INVALID_ARGUMENT");
        assert!(message.contains(field), "{message}");
        assert_eq!(
            boot_with(&mut client, &daemon, limits).unwrap_err().0,
            "INVALID_ARGUMENT"
        );
    }
    for limits in [
        map([("processes", 1.into())]),
        map([("consoleBytesPerSecond", 1_000_000.into())]),
    ] {
        assert_eq!(
            boot_with(&mut client, &daemon, limits).unwrap_err().0,
            "INVALID_ARGUMENT"
        );
    }
    assert!(client.agent(&sandbox, "ping").is_ok());
}

#[test]
fn limit_for_which_there_are_no_means_is_refused_and_the_host_says_why() {
    let daemon = daemon(&[]);
    let mut client = daemon.client();
    let sandbox = client.boot(&daemon, "");
    let (code, message) = limit(&mut client, &sandbox, map([("cpuMax", 1.into())])).unwrap_err();
    assert_eq!(code, "LIMIT_UNSUPPORTED");
    assert!(message.contains("limits.cpuMax"), "{message}");
    let info = client.call("host.info", map([]));
    let means = get(&info, "limits");
    assert_eq!(
        (text(means, "memory"), text(means, "cpuMax")),
        ("measured".to_owned(), "none".to_owned())
    );
    assert!(text(means, "reason").contains("without cgroups"));
}

#[test]
fn share_of_the_processors_becomes_a_priority_and_ends_with_the_park() {
    if !nix::unistd::Uid::effective().is_root() {
        eprintln!("skipped: only root may raise priorities");
        return;
    }
    let daemon = daemon(&[]);
    let mut client = daemon.client();
    let checkpoint = client.checkpoint(&daemon, "");
    let sandbox = client.fork_one(&checkpoint);
    let usual = nice(pid_of(&mut client, &sandbox));
    limit(&mut client, &sandbox, map([("cpuShare", 10.into())])).unwrap();
    let pid = pid_of(&mut client, &sandbox);
    assert_eq!(nice(pid), 10, "before: {usual}");
    let parked = client.park(&sandbox);
    let child = client.fork_one(&parked);
    let pid = pid_of(&mut client, &child);
    wait_until("a fork has the share of what it was forked from", || nice(pid) == 10);
    limit(&mut client, &child, map([])).unwrap();
    assert_eq!(nice(pid), 0);
}
