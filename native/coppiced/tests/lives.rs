//! Lives and deaths: sessions, sandboxes, checkpoints, the daemon itself.

#![allow(clippy::unwrap_used)]

mod common;

use std::fs;
use std::time::{Duration, Instant};

use common::{Client, Daemon, call, get, map, number, text};
use coppice_wire::Value;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

fn pid_of(client: &mut Client, sandbox: &str) -> Pid {
    let list = client.call("sandbox.list", map([]));
    let rows = get(&list, "sandboxes").as_array().unwrap();
    let row = rows.iter().find(|row| text(row, "sandbox") == sandbox).unwrap();
    Pid::from_raw(get(row, "pid").as_i64().unwrap() as i32)
}

fn one(name: &str, id: &str) -> Value {
    map([(name, id.into())])
}

#[test]
fn vanished_client_leaves_nothing_behind() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    let checkpoint = client.checkpoint(&daemon, "");
    let children = client.fork(&checkpoint, 5);
    assert!(children.iter().all(Result::is_ok));
    assert_eq!(daemon.vmms().len(), 6);
    drop(client);
    daemon.wait_for_vmms(0);
    let stats = daemon.client().call("host.stats", map([]));
    assert_eq!(number(get(&stats, "checkpoints"), "hot"), 0);
    assert_eq!(number(&stats, "sessions"), 1);
}

#[test]
fn client_that_vanishes_while_it_boots_and_forks_leaves_nothing_behind() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    let never = client.image(&daemon, "boot=never-ready");
    let checkpoint = client.checkpoint(&daemon, "faulty-children\nresume=silent");
    client.send("sandbox.boot", never);
    client.send(
        "sandbox.fork",
        map([("checkpoint", checkpoint.as_str().into()), ("n", 2.into())]),
    );
    daemon.wait_for_vmms(4); // with the checkpoint; on a machine of one CPU no more children are forked at once
    drop(client);
    daemon.wait_for_vmms(0);
}

#[test]
fn session_lives_until_its_last_connection_goes() {
    let daemon = Daemon::start();
    let mut first = daemon.client();
    let sandbox = first.boot(&daemon, "");
    let session = first.session.clone();
    let mut second = daemon.client_with(|hello| hello.session = Some(session));
    second.agent(&sandbox, "ping").unwrap();
    drop(first);
    std::thread::sleep(Duration::from_millis(100));
    second.agent(&sandbox, "ping").unwrap();
    drop(second);
    daemon.wait_for_vmms(0);
}

#[test]
fn session_that_was_ended_refuses_everything_and_owns_nothing() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    client.boot(&daemon, "");
    client.call("session.end", map([]));
    daemon.wait_for_vmms(0);
    assert_eq!(client.try_call("host.info", map([])).unwrap_err().code, "SESSION_ENDED");
}

#[test]
fn closing_and_dropping_twice_are_no_ops() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    let sandbox = client.boot(&daemon, "");
    let checkpoint = client.checkpoint(&daemon, "");
    for _ in 0..2 {
        client.call("sandbox.close", one("sandbox", &sandbox));
        client.call("checkpoint.drop", one("checkpoint", &checkpoint));
        assert_eq!(daemon.vmms().len(), 0);
    }
    assert_eq!(client.agent(&sandbox, "ping").unwrap_err().code, "SANDBOX_CLOSED");
    let fork = map([("checkpoint", checkpoint.as_str().into()), ("n", 1.into())]);
    assert_eq!(
        client.try_call("sandbox.fork", fork).unwrap_err().code,
        "CHECKPOINT_DROPPED"
    );
    // Ids of an earlier daemon are closed for certain; what is no id at all is a mistake.
    client.call("sandbox.close", one("sandbox", "sb-0a1b2c-7"));
    let stats = client.call("host.stats", map([]));
    assert_eq!(number(get(&stats, "counters"), "repeatedCloses"), 2);
    assert_eq!(
        client.try_call("sandbox.close", one("sandbox", "7")).unwrap_err().code,
        "INVALID_ARGUMENT"
    );
}

#[test]
fn vmm_that_does_not_close_is_killed_after_a_second() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    let sandbox = client.boot(&daemon, "ignore-close");
    let begin = Instant::now();
    client.call("sandbox.close", one("sandbox", &sandbox));
    let took = begin.elapsed();
    assert!(
        took > Duration::from_millis(900) && took < Duration::from_secs(4),
        "{took:?}"
    );
    assert_eq!(daemon.vmms().len(), 0);
}

#[test]
fn sandbox_whose_vmm_was_killed_fails_its_calls_and_says_so() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    let sandbox = client.boot(&daemon, "console=last words");
    let hanging = client.send("sandbox.call", call(&sandbox, "hang", map([])));
    kill(pid_of(&mut client, &sandbox), Signal::SIGKILL).unwrap();
    let error = client.answer(hanging).0.unwrap_err();
    assert_eq!(
        (error.code.as_str(), error.fault_domain.as_str()),
        ("SANDBOX_LOST", "host")
    );
    assert!(error.message.contains("SIGKILL"), "{}", error.message);
    let event = client.event("sandbox.ended");
    assert_eq!(
        (text(&event, "sandbox"), text(&event, "reason")),
        (sandbox.clone(), "vmmDied".to_owned())
    );
    assert_eq!(text(&event, "console"), "last words");
    assert_eq!(client.agent(&sandbox, "ping").unwrap_err().code, "SANDBOX_LOST");
    client.call("sandbox.close", one("sandbox", &sandbox));
}

#[test]
fn vmm_that_ran_into_its_filter_is_lost_with_a_bad_system_call() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    let sandbox = client.boot(&daemon, "");
    let hanging = client.send("sandbox.call", call(&sandbox, "hang", map([])));
    // What the kernel does to a process whose filter does not know a call.
    kill(pid_of(&mut client, &sandbox), Signal::SIGSYS).unwrap();
    let error = client.answer(hanging).0.unwrap_err();
    assert_eq!(
        (error.code.as_str(), error.fault_domain.as_str()),
        ("SANDBOX_LOST", "host")
    );
    assert!(error.message.contains("bad system call"), "{}", error.message);
    let event = client.event("sandbox.ended");
    assert!(text(&event, "detail").contains("bad system call"), "{event}");
}

#[test]
fn missing_barrier_is_in_the_log_once_for_all_vmms() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    for _ in 0..3 {
        client.boot(&daemon, "missing=Landlock");
    }
    let log = daemon.log();
    let warnings = log.lines().filter(|line| line.contains("do without a barrier"));
    assert_eq!(warnings.filter(|line| line.contains("Landlock")).count(), 1, "{log}");
}

#[test]
fn vmm_is_lent_its_own_files_with_each_command_that_needs_them() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    let checkpoint = client.checkpoint(&daemon, "learns");
    let run_ahead = map([
        ("checkpoint", checkpoint.as_str().into()),
        ("n", 1.into()),
        ("runAhead", true.into()),
    ]);
    let paused = common::children(&client.call("sandbox.fork", run_ahead))
        .remove(0)
        .unwrap();
    client.call("sandbox.close", one("sandbox", &paused));
    let parked = client.fork_one(&checkpoint);
    client.park(&parked);
    let begin = Instant::now();
    let closed = client.fork_one(&checkpoint);
    client.call("sandbox.close", one("sandbox", &closed));
    assert!(begin.elapsed() < Duration::from_millis(900), "it had to be killed");
}

#[test]
fn guest_that_powers_off_ends_its_sandbox_by_its_own_fault() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    let sandbox = client.boot(&daemon, "");
    let error = client.agent(&sandbox, "end").unwrap_err();
    assert_eq!(
        (error.code.as_str(), error.fault_domain.as_str()),
        ("SANDBOX_LOST", "guest")
    );
    let event = client.event("sandbox.ended");
    assert_eq!(text(&event, "reason"), "shutdown");
    assert!(text(&event, "console").contains("Power down"));
}

#[test]
fn frozen_vmm_that_is_killed_is_a_lost_checkpoint_and_its_children_live_on() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    let sandbox = client.boot(&daemon, "");
    let frozen = pid_of(&mut client, &sandbox);
    let checkpoint = client.park(&sandbox);
    let child = client.fork_one(&checkpoint);
    kill(frozen, Signal::SIGKILL).unwrap();
    assert_eq!(text(&client.event("checkpoint.lost"), "checkpoint"), checkpoint);
    let fork = map([("checkpoint", checkpoint.as_str().into()), ("n", 1.into())]);
    let error = client.try_call("sandbox.fork", fork).unwrap_err();
    assert_eq!((error.code.as_str(), error.retryable), ("CHECKPOINT_LOST", false));
    client.agent(&child, "ping").unwrap();
}

#[test]
fn dropped_checkpoint_leaves_its_children_alive() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    let root = client.checkpoint(&daemon, "");
    let child = client.fork_one(&root);
    client.agent(&child, "count").unwrap();
    let middle = client.park(&child);
    let grandchild = client.fork_one(&middle);
    let rows = client.call("checkpoint.list", map([]));
    let rows = get(&rows, "checkpoints").as_array().unwrap().clone();
    assert_eq!(
        rows.iter().map(|row| number(row, "children")).collect::<Vec<_>>(),
        [1, 1]
    );
    assert!(
        rows.iter()
            .any(|row| text(row, "checkpoint") == middle && text(row, "parent") == root)
    );
    client.call("checkpoint.drop", one("checkpoint", &root));
    client.call("checkpoint.drop", one("checkpoint", &middle));
    assert_eq!(number(&client.agent(&grandchild, "count").unwrap(), "count"), 2);
    assert_eq!(daemon.vmms().len(), 1);
}

#[test]
fn parking_fails_what_waits_and_the_sandbox_is_gone() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    let sandbox = client.boot(&daemon, "");
    let hanging = client.send("sandbox.call", call(&sandbox, "hang", map([])));
    let parked = client.call(
        "sandbox.park",
        map([("sandbox", sandbox.as_str().into()), ("name", "here".into())]),
    );
    assert_eq!(number(&parked, "dirtyPages"), 42);
    assert_eq!(client.answer(hanging).0.unwrap_err().code, "SANDBOX_FROZEN");
    assert_eq!(client.agent(&sandbox, "ping").unwrap_err().code, "SANDBOX_FROZEN");
    assert_eq!(
        client
            .try_call("sandbox.park", one("sandbox", &sandbox))
            .unwrap_err()
            .code,
        "SANDBOX_FROZEN"
    );
    let list = client.call("checkpoint.list", map([]));
    assert_eq!(text(&get(&list, "checkpoints").as_array().unwrap()[0], "name"), "here");
}

#[test]
fn parking_that_fails_leaves_the_sandbox_or_poisons_it() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    let sandbox = client.boot(&daemon, "park=fail");
    let error = client.try_call("sandbox.park", one("sandbox", &sandbox)).unwrap_err();
    assert_eq!((error.code.as_str(), error.poisons), ("VMM_HOST", false));
    client.agent(&sandbox, "ping").unwrap();

    let sandbox = client.boot(&daemon, "park=poison\nconsole=kept");
    let error = client.try_call("sandbox.park", one("sandbox", &sandbox)).unwrap_err();
    assert_eq!((error.code.as_str(), error.poisons), ("VMM_KVM", true));
    for method in ["sandbox.park", "sandbox.lease"] {
        assert_eq!(
            client.try_call(method, one("sandbox", &sandbox)).unwrap_err().code,
            "SANDBOX_POISONED"
        );
    }
    assert_eq!(client.agent(&sandbox, "ping").unwrap_err().code, "SANDBOX_POISONED");
    let console = client.call("sandbox.console", one("sandbox", &sandbox));
    assert_eq!(get(&console, "data").as_slice(), Some(&b"kept"[..]));
    let stats = client.call("host.stats", map([]));
    assert_eq!(number(get(&stats, "sandboxes"), "poisoned"), 1);
    client.call("sandbox.close", one("sandbox", &sandbox));
    assert_eq!(client.agent(&sandbox, "ping").unwrap_err().code, "SANDBOX_CLOSED");
}

#[test]
fn shared_checkpoint_outlives_its_session_and_serves_others() {
    let daemon = Daemon::start();
    let mut maker = daemon.client();
    let checkpoint = maker.checkpoint(&daemon, "");
    let share = |checkpoint: &str| map([("checkpoint", checkpoint.into()), ("key", "template:1".into())]);
    assert_eq!(
        text(&maker.call("checkpoint.share", share(&checkpoint)), "checkpoint"),
        checkpoint
    );
    maker.call("checkpoint.drop", one("checkpoint", &checkpoint)); // the host's now: stays
    drop(maker);

    let mut user = daemon.client();
    let found = user.call("checkpoint.lookup", one("key", "template:1"));
    assert_eq!(
        (text(&found, "checkpoint"), number(&found, "dirtyPages")),
        (checkpoint.clone(), 42)
    );
    user.fork_one(&checkpoint);
    // Whoever comes second with the same key gets the first one's.
    let second = user.checkpoint(&daemon, "");
    assert_eq!(
        text(&user.call("checkpoint.share", share(&second)), "checkpoint"),
        checkpoint
    );
    daemon.wait_for_vmms(2);
    assert!(get(&user.call("checkpoint.lookup", one("key", "other")), "checkpoint").is_nil());
    drop(user);
    daemon.wait_for_vmms(1);
}

#[test]
fn memory_usage_of_a_sandbox_and_a_checkpoint_is_told() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    let checkpoint = client.checkpoint(&daemon, "");
    let sandbox = client.fork_one(&checkpoint);
    for usage in [one("sandbox", &sandbox), one("checkpoint", &checkpoint)] {
        let usage = client.call("memory.usage", usage);
        assert!(number(&usage, "privateBytes") > 0);
        assert!(number(&usage, "totalBytes") > number(&usage, "privateBytes"));
    }
}

#[test]
fn idle_daemon_ends_though_it_holds_a_template_and_a_used_one_does_not() {
    let mut daemon = Daemon::start_with(&["--idle-exit", "1"]);
    let mut client = daemon.client();
    let checkpoint = client.checkpoint(&daemon, "");
    client.call(
        "checkpoint.share",
        map([("checkpoint", checkpoint.into()), ("key", "k".into())]),
    );
    std::thread::sleep(Duration::from_millis(1_500));
    client.call("host.info", map([]));
    drop(client);
    let begin = Instant::now();
    assert!(daemon.wait().success());
    assert!(begin.elapsed() > Duration::from_millis(900));
    assert!(!daemon.socket.exists());
}

#[test]
fn daemon_that_gets_a_signal_ends_in_three_seconds_with_all_it_started() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let mut daemon = Daemon::start();
        let mut client = daemon.client();
        let stubborn = client.checkpoint(&daemon, "ignore-close");
        client.fork(&stubborn, 10);
        let vmms = daemon.vmms();
        assert_eq!(vmms.len(), 11);
        let begin = Instant::now();
        daemon.signal(signal);
        assert!(daemon.wait().success());
        assert!(begin.elapsed() < Duration::from_secs(3), "{:?}", begin.elapsed());
        assert!(!daemon.socket.exists());
        assert!(vmms.iter().all(|pid| !is_running(*pid)));
    }
}

#[test]
fn daemon_that_is_killed_takes_its_vmms_along_and_the_next_one_starts() {
    let mut daemon = Daemon::start();
    let mut client = daemon.client();
    let checkpoint = client.checkpoint(&daemon, "ignore-close");
    client.fork(&checkpoint, 10);
    let vmms = daemon.vmms();
    daemon.signal(Signal::SIGKILL);
    daemon.wait();
    let begin = Instant::now();
    while vmms.iter().any(|pid| is_running(*pid)) {
        assert!(begin.elapsed() < common::PATIENCE);
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(daemon.socket.exists(), "nobody could remove it");
    let next = Daemon::start_in(daemon.directory.clone(), &[]);
    next.client().call("host.info", map([]));
}

#[test]
fn second_daemon_on_the_same_state_or_socket_is_refused() {
    let daemon = Daemon::start();
    let attempt = |state: &str| {
        let mut command = common::command(&daemon.directory);
        command.arg("--unix").arg(&daemon.socket);
        let output = match state {
            "" => command.output().unwrap(),
            other => {
                let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_coppiced"));
                command.arg("serve").arg("--vmm").arg(env!("CARGO_BIN_EXE_fake-vmm"));
                let file = |name: &str| daemon.directory.join(name);
                command
                    .arg("--kernel")
                    .arg(file("vmlinux"))
                    .arg("--initrd")
                    .arg(file("initrd"));
                command
                    .arg("--unix")
                    .arg(&daemon.socket)
                    .arg("--state-dir")
                    .arg(file(other));
                command.output().unwrap()
            }
        };
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(attempt("").contains("in use by another daemon"));
    assert!(attempt("other-state").contains("Another daemon answers"));
    daemon.client().call("host.info", map([]));
}

#[test]
fn file_that_is_missing_stops_the_start_with_its_name() {
    let daemon = Daemon::start();
    fs::remove_file(daemon.directory.join("vmlinux")).unwrap();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_coppiced"));
    command
        .arg("serve")
        .arg("--vmm")
        .arg("/no/such/vmm")
        .arg("--kernel")
        .arg("k")
        .arg("--initrd")
        .arg("i");
    command
        .arg("--unix")
        .arg("/tmp/x/y")
        .arg("--state-dir")
        .arg(daemon.directory.join("s"));
    let output = command.output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.starts_with("coppiced: --vmm /no/such/vmm"), "{stderr}");
}

#[test]
fn carrier_mode_outside_of_process_one_is_refused() {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_coppiced"))
        .arg("carrier")
        .output()
        .unwrap();
    assert!(!output.status.success());
    assert!(String::from_utf8(output.stderr).unwrap().contains("process 1"));
}

fn is_running(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    !stat.is_empty() && !stat.contains(") Z ")
}
