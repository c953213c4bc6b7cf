//! Booting, forking and handing out, and what goes wrong there. Every failure is closed: the sandbox is gone.

#![allow(clippy::unwrap_used)]

mod common;

use std::collections::HashSet;
use std::time::{Duration, Instant};

use common::{Daemon, call, children, get, map, number, text};
use coppice_wire::Value;
use coppice_wire::vmm::host_time_ns;

fn fork(checkpoint: &str, n: i64) -> Value {
    map([("checkpoint", checkpoint.into()), ("n", n.into())])
}

fn ahead(checkpoint: &str, n: i64) -> Value {
    map([
        ("checkpoint", checkpoint.into()),
        ("n", n.into()),
        ("runAhead", true.into()),
    ])
}

/// Longer than what a guest's clocks run on through.
const LONG_STOP: Duration = Duration::from_millis(600);

fn lease(sandbox: &str) -> Value {
    map([("sandbox", sandbox.into())])
}

#[test]
fn children_have_their_own_identity_generation_and_memory() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    let sandbox = client.boot(&daemon, "");
    client.agent(&sandbox, "count").unwrap();
    let checkpoint = client.park(&sandbox);
    let answer = client.call("sandbox.fork", fork(&checkpoint, 8));
    let mut seen: [HashSet<Vec<u8>>; 4] = Default::default();
    for child in get(&answer, "children").as_array().unwrap() {
        let sandbox = text(child, "sandbox");
        let resumed = client.agent(&sandbox, "resumed").unwrap();
        seen[0].insert(get(&resumed, "seed").as_slice().unwrap().to_vec());
        seen[1].insert(text(&resumed, "hostname").into_bytes());
        seen[2].insert(text(&resumed, "machineId").into_bytes());
        seen[3].insert(number(&resumed, "generation").to_le_bytes().to_vec());
        assert_eq!(get(&resumed, "seed").as_slice().unwrap().len(), 64);
        assert_eq!(text(&resumed, "machineId").len(), 32);
        assert_eq!(number(&resumed, "generation"), number(child, "generation"));
        assert_eq!(number(&client.agent(&sandbox, "count").unwrap(), "count"), 2);
        let stages: Vec<String> = get(child, "stages")
            .as_array()
            .unwrap()
            .iter()
            .map(|s| s[0].to_string())
            .collect();
        for stage in ["vmm.fork", "vmm.restore", "agent.resume"] {
            assert!(
                stages.iter().any(|given| given.contains(stage)),
                "no {stage} in {stages:?}"
            );
        }
    }
    assert!(seen.iter().all(|values| values.len() == 8));
}

#[test]
fn child_that_keeps_its_randomness_gets_no_seed() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    let checkpoint = client.checkpoint(&daemon, "");
    let params = map([
        ("checkpoint", checkpoint.as_str().into()),
        ("n", 1.into()),
        ("keepRandomness", true.into()),
    ]);
    let child = children(&client.call("sandbox.fork", params)).remove(0).unwrap();
    let resumed = client.agent(&child, "resumed").unwrap();
    assert!(
        resumed
            .as_map()
            .unwrap()
            .iter()
            .all(|(key, _)| key.as_str() != Some("seed"))
    );
}

#[test]
fn child_that_ran_ahead_can_be_leased_once_and_used_only_then() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    let checkpoint = client.checkpoint(&daemon, "");
    let child = children(&client.call("sandbox.fork", ahead(&checkpoint, 1)))
        .remove(0)
        .unwrap();
    let list = client.call("sandbox.list", map([]));
    assert_eq!(text(&get(&list, "sandboxes").as_array().unwrap()[0], "state"), "ready");
    for method in ["sandbox.park", "sandbox.call"] {
        let params = if method == "sandbox.call" {
            call(&child, "ping", map([]))
        } else {
            lease(&child)
        };
        assert_eq!(client.try_call(method, params).unwrap_err().code, "SANDBOX_WRONG_STATE");
    }
    let leased = client.call("sandbox.lease", lease(&child));
    let resumed = client.agent(&child, "resumed").unwrap();
    assert_eq!(number(&leased, "generation"), number(&resumed, "generation"));
    assert_eq!(
        client.try_call("sandbox.lease", lease(&child)).unwrap_err().code,
        "SANDBOX_WRONG_STATE"
    );
}

#[test]
fn two_leases_of_one_child_at_once_give_it_to_one() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    let checkpoint = client.checkpoint(&daemon, "");
    for _ in 0..10 {
        let child = children(&client.call("sandbox.fork", ahead(&checkpoint, 1)))
            .remove(0)
            .unwrap();
        let ids = [
            client.send("sandbox.lease", lease(&child)),
            client.send("sandbox.lease", lease(&child)),
        ];
        let answers = ids.map(|id| client.answer(id).0);
        assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 1);
        let refused = answers.into_iter().find_map(Result::err).unwrap();
        assert!(
            ["SANDBOX_BUSY", "SANDBOX_WRONG_STATE"].contains(&refused.code.as_str()),
            "{refused:?}"
        );
    }
}

#[test]
fn hand_out_that_can_not_be_verified_discards_the_child() {
    let faults = [
        ("clock-offset-ms=3600000", "clock"),
        ("clock-offset-ms=-60000", "clock"),
        ("same-boot-id", "boot identity"),
        ("wrong-generation", "generation"),
        ("resume=refuse", "no entropy"),
        ("resume=garbage", "malformed"),
    ];
    let daemon = Daemon::start();
    let mut client = daemon.client();
    for (fault, expected) in faults {
        let checkpoint = client.checkpoint(&daemon, &format!("faulty-children\n{fault}"));
        for params in [fork(&checkpoint, 2), ahead(&checkpoint, 2)] {
            for child in children(&client.call("sandbox.fork", params)) {
                let error = child.unwrap_err();
                assert_eq!(text(&error, "code"), "HANDOUT_FAILED", "{fault}");
                assert!(text(&error, "message").contains(expected), "{fault}: {error}");
            }
        }
        client.call("checkpoint.drop", map([("checkpoint", checkpoint.into())]));
        daemon.wait_for_vmms(0);
    }
    let stats = client.call("host.stats", map([]));
    assert_eq!(number(get(&stats, "counters"), "discarded"), 24);
}

#[test]
fn leased_child_that_can_not_run_again_is_poisoned_before_it_says_anything() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    for fault in ["wake=fail", "wake=nonsense"] {
        let checkpoint = client.checkpoint(&daemon, fault);
        let child = children(&client.call("sandbox.fork", ahead(&checkpoint, 1)))
            .remove(0)
            .unwrap();
        // The request follows the lease at once, as a client sends it.
        let ids = [
            client.send("sandbox.lease", lease(&child)),
            client.send("sandbox.call", call(&child, "ping", map([]))),
        ];
        let codes = ids.map(|id| client.answer(id).0.unwrap_err().code);
        assert_eq!(codes, ["HANDOUT_FAILED", "SANDBOX_POISONED"], "{fault}");
        client.call("checkpoint.drop", map([("checkpoint", checkpoint.into())]));
        daemon.wait_for_vmms(0);
    }
}

#[test]
fn request_that_follows_a_lease_at_once_is_answered_in_the_new_life() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    let checkpoint = client.checkpoint(&daemon, "");
    for _ in 0..20 {
        let child = children(&client.call("sandbox.fork", ahead(&checkpoint, 1)))
            .remove(0)
            .unwrap();
        let ids = [
            client.send("sandbox.lease", lease(&child)),
            client.send("sandbox.call", call(&child, "resumed", map([]))),
        ];
        let [leased, resumed] = ids.map(|id| client.answer(id).0.unwrap());
        assert_eq!(number(&leased, "generation"), number(&resumed, "generation"));
    }
}

#[test]
fn child_that_is_never_idle_waits_all_the_same() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    for looks in [3, 1_000] {
        let checkpoint = client.checkpoint(&daemon, &format!("busy={looks}"));
        let child = children(&client.call("sandbox.fork", ahead(&checkpoint, 1)))
            .remove(0)
            .unwrap();
        client.call("sandbox.lease", lease(&child));
        client.agent(&child, "ping").unwrap();
    }
}

#[test]
fn siblings_with_one_boot_identity_are_not_both_handed_out() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    let checkpoint = client.checkpoint(&daemon, "faulty-children\nfixed-boot-id");
    let children = client.fork(&checkpoint, 4);
    assert_eq!(children.iter().filter(|child| child.is_ok()).count(), 1, "{children:?}");
}

#[test]
fn resume_that_was_delivered_late_is_repeated_until_the_clock_is_right() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    let checkpoint = client.checkpoint(&daemon, "faulty-children\nlate-clocks=3\nskewed-clock-ms=3600000");
    let child = client.fork_one(&checkpoint);
    client.agent(&child, "ping").unwrap();
}

#[test]
fn clock_of_a_child_is_right_however_long_its_checkpoint_waited() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    let checkpoint = client.checkpoint(&daemon, "");
    let waiting = children(&client.call("sandbox.fork", ahead(&checkpoint, 1)))
        .remove(0)
        .unwrap();
    std::thread::sleep(LONG_STOP);
    client.call("sandbox.lease", lease(&waiting));
    for child in [client.fork_one(&checkpoint), waiting] {
        let before = host_time_ns();
        let told = number(&client.agent(&child, "ping").unwrap(), "realtimeNs");
        assert!((before - 50_000_000..host_time_ns() + 50_000_000).contains(&told));
    }
}

#[test]
fn leased_child_that_does_not_set_its_clock_answers_nothing_and_is_gone() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    for (fault, expected) in [
        ("clock=silent", "before it had set its clock"),
        ("clock=refuse", "no clock"),
        ("clock=garbage", "clock"),
        ("clock=wrong", "ms off after a stop"),
    ] {
        let checkpoint = client.checkpoint(&daemon, fault);
        let child = children(&client.call("sandbox.fork", ahead(&checkpoint, 1)))
            .remove(0)
            .unwrap();
        std::thread::sleep(LONG_STOP);
        // Found with its first answer, which may come before the lease's or after it.
        let leased = client.try_call("sandbox.lease", lease(&child));
        let error = leased.and_then(|_| client.agent(&child, "ping")).unwrap_err();
        assert!(
            ["HANDOUT_FAILED", "SANDBOX_POISONED"].contains(&error.code.as_str()) && error.message.contains(expected),
            "{fault}: {error:?}"
        );
        client.call("checkpoint.drop", map([("checkpoint", checkpoint.into())]));
        daemon.wait_for_vmms(0);
    }
}

#[test]
fn fork_of_a_bad_number_is_refused_at_once() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    let checkpoint = client.checkpoint(&daemon, "");
    for n in [0, -1, 1_025, 1_000_000, i64::MIN] {
        let error = client.try_call("sandbox.fork", fork(&checkpoint, n)).unwrap_err();
        assert_eq!(error.code, "INVALID_ARGUMENT");
        assert!(
            error.message.contains("`n`") && error.message.contains("1 to 1024"),
            "{}",
            error.message
        );
    }
}

#[test]
fn fork_beyond_the_hosts_limit_gives_what_fits_and_says_what_does_not() {
    let daemon = Daemon::start_with(&["--max-sandboxes", "4"]);
    let mut client = daemon.client();
    let checkpoint = client.checkpoint(&daemon, "");
    let children = client.fork(&checkpoint, 10);
    let (made, refused): (Vec<_>, Vec<_>) = children.into_iter().partition(Result::is_ok);
    assert_eq!((made.len(), refused.len()), (4, 6));
    for error in refused {
        let error = error.unwrap_err();
        assert_eq!(text(&error, "code"), "HOST_FULL");
        assert_eq!(get(&error, "retryable").as_bool(), Some(true));
    }
    for sandbox in made {
        client.call("sandbox.close", map([("sandbox", sandbox.unwrap().into())]));
    }
    assert!(
        client.fork(&checkpoint, 4).iter().all(Result::is_ok),
        "the places were not given back"
    );
}

#[test]
fn fork_without_memory_in_reserve_is_refused() {
    let daemon = Daemon::start_with(&["--memory-reserve-mib", "100000000"]);
    let mut client = daemon.client();
    let params = client.image(&daemon, "");
    let error = client.try_call("sandbox.boot", params).unwrap_err();
    assert_eq!(error.code, "HOST_FULL");
    assert!(error.message.contains("MiB"), "{}", error.message);
}

#[test]
fn fork_of_which_some_fail_gives_each_its_own_result() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    let checkpoint = client.checkpoint(&daemon, "fork-fails-every=3\nchild-dies-every=4");
    let children = client.fork(&checkpoint, 12);
    let failed = children.iter().filter(|child| child.is_err()).count();
    assert_eq!(failed, 6, "{children:?}"); // 3 6 9 12 in the parent, 4 8 in the child
    for sandbox in children.into_iter().flatten() {
        client.agent(&sandbox, "ping").unwrap();
    }
    daemon.wait_for_vmms(7);
}

#[test]
fn fork_whose_source_dies_half_way_ends_with_a_terminal_error() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    let checkpoint = client.checkpoint(&daemon, "fork-dies-at=4");
    let begin = Instant::now();
    let children = client.fork(&checkpoint, 10);
    assert!(begin.elapsed() < Duration::from_secs(10));
    let (made, failed): (Vec<_>, Vec<_>) = children.into_iter().partition(Result::is_ok);
    assert_eq!((made.len(), failed.len()), (3, 7));
    for error in failed {
        let error = error.unwrap_err();
        assert_eq!(text(&error, "code"), "CHECKPOINT_LOST", "{error}");
        assert_eq!(get(&error, "retryable").as_bool(), Some(false));
    }
    daemon.wait_for_vmms(3);
}

#[test]
fn fork_that_is_not_done_in_time_gives_what_is_done() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    let checkpoint = client.checkpoint(&daemon, "fork-hangs");
    let id = client.send_with("sandbox.fork", fork(&checkpoint, 5), Some(400));
    let begin = Instant::now();
    let answer = client.answer(id).0.unwrap();
    assert!(begin.elapsed() < Duration::from_secs(3));
    for child in children(&answer) {
        assert_eq!(text(&child.unwrap_err(), "code"), "DEADLINE_EXCEEDED");
    }
    let stats = client.call("host.stats", map([]));
    assert_eq!(number(get(&stats, "sandboxes"), "booting"), 0);
}

#[test]
fn fork_that_is_cancelled_closes_what_it_had_made() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    let checkpoint = client.checkpoint(&daemon, "faulty-children\nresume=silent");
    let id = client.send("sandbox.fork", fork(&checkpoint, 3));
    std::thread::sleep(Duration::from_millis(100));
    client.cancel(id);
    assert_eq!(client.answer(id).0.unwrap_err().code, "ABORTED");
    daemon.wait_for_vmms(1);
}

#[test]
fn vmm_that_names_a_foreign_process_as_its_child_is_not_believed() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    let checkpoint = client.checkpoint(&daemon, "fork-names-init");
    let error = client.fork(&checkpoint, 1).remove(0).unwrap_err();
    assert_eq!(text(&error, "code"), "VMM_FAILED");
    daemon.wait_for_vmms(1);
}

#[test]
fn guest_that_never_boots_is_told_with_the_end_of_its_console() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    let cases = [
        (
            "boot=never-ready\nconsole=Kernel panic: no init",
            "BOOT_TIMEOUT",
            "Kernel panic: no init",
        ),
        ("boot=silent", "BOOT_TIMEOUT", "console is empty"),
        ("boot=exit\nconsole=oops", "BOOT_FAILED", "oops"),
        ("boot=fail", "VMM_BOOT_FILES", "Kernel is no kernel"),
        ("agent-protocol=2", "PROTOCOL_MISMATCH", "protocol 2"),
        ("resume=refuse", "HANDOUT_FAILED", "no entropy"),
    ];
    for (faults, code, expected) in cases {
        let mut params = client.image(&daemon, faults);
        if let Value::Map(entries) = &mut params {
            entries.retain(|(key, _)| key.as_str() != Some("timeoutMs"));
            entries.push(("timeoutMs".into(), 400.into()));
        }
        let error = client.try_call("sandbox.boot", params).unwrap_err();
        assert_eq!(error.code, code, "{faults}: {}", error.message);
        assert!(error.message.contains(expected), "{faults}: {}", error.message);
        daemon.wait_for_vmms(0);
    }
}

#[test]
fn boot_that_is_cancelled_closes_the_vmm() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    let params = client.image(&daemon, "boot=never-ready");
    let id = client.send("sandbox.boot", params);
    daemon.wait_for_vmms(1);
    client.cancel(id);
    assert_eq!(client.answer(id).0.unwrap_err().code, "ABORTED");
    daemon.wait_for_vmms(0);
}

#[test]
fn answers_of_another_life_or_of_no_call_are_dropped_and_counted() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    let sandbox = client.boot(&daemon, "");
    assert_eq!(client.agent(&sandbox, "stale").unwrap().as_str(), Some("right"));
    let stats = client.call("host.stats", map([]));
    assert_eq!(number(get(&stats, "counters"), "staleReplies"), 2);
}

#[test]
fn guest_that_sends_what_it_must_not_is_poisoned_and_no_other() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    let checkpoint = client.checkpoint(&daemon, "");
    let bystander = client.fork_one(&checkpoint);
    for op in ["garbage", "bigChunk", "badFrame"] {
        let hostile = client.fork_one(&checkpoint);
        let error = client.agent(&hostile, op).unwrap_err();
        assert_eq!(
            (error.code.as_str(), error.fault_domain.as_str()),
            ("SANDBOX_POISONED", "guest"),
            "{op}"
        );
        let event = client.event("sandbox.ended");
        assert_eq!(
            (text(&event, "sandbox"), text(&event, "reason")),
            (hostile.clone(), "poisoned".to_owned())
        );
        assert_eq!(client.agent(&hostile, "ping").unwrap_err().code, "SANDBOX_POISONED");
        client.call("sandbox.close", map([("sandbox", hostile.into())]));
        client.agent(&bystander, "ping").unwrap();
    }
    daemon.wait_for_vmms(2);
}

#[test]
fn vmm_that_exits_fails_the_call_by_the_hosts_fault() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    let sandbox = client.boot(&daemon, "");
    let error = client.agent(&sandbox, "die").unwrap_err();
    assert_eq!(
        (error.code.as_str(), error.fault_domain.as_str()),
        ("SANDBOX_LOST", "host")
    );
    assert!(error.message.contains("status 3"), "{}", error.message);
}
