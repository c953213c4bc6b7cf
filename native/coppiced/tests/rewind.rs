//! Going back in place, and what goes wrong there; and what the daemon makes of a delta.

#![allow(clippy::unwrap_used)]

mod common;

use common::{Client, Daemon, get, map, number, text};
use coppice_wire::Value;

fn one(name: &str, id: &str) -> Value {
    map([(name, id.into())])
}

/// A child whose agent was asked `count` once, its checkpoint never.
fn child(client: &mut Client, checkpoint: &str, rewindable: bool) -> String {
    let fork = map([
        ("checkpoint", checkpoint.into()),
        ("n", 1.into()),
        ("rewindable", rewindable.into()),
    ]);
    let answer = client.call("sandbox.fork", fork);
    let child = text(&get(&answer, "children").as_array().unwrap()[0], "sandbox");
    assert_eq!(number(&client.agent(&child, "count").unwrap(), "count"), 1);
    child
}

#[test]
fn sandbox_that_went_back_is_a_new_life_of_its_checkpoint() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    let checkpoint = client.checkpoint(&daemon, "");
    let sandbox = child(&mut client, &checkpoint, true);
    let mut boot_ids = Vec::new();
    let mut generation = 0;
    for _ in 0..3 {
        boot_ids.push(text(&client.agent(&sandbox, "ping").unwrap(), "bootId"));
        let answer = client.call("sandbox.rewind", one("sandbox", &sandbox));
        assert_eq!(number(&answer, "dirtyPages"), 7);
        assert!(number(&answer, "generation") > generation);
        generation = number(&answer, "generation");
        let resumed = client.agent(&sandbox, "resumed").unwrap();
        assert_eq!(number(&resumed, "generation"), generation);
        assert_eq!(get(&resumed, "seed").as_slice().unwrap().len(), 64);
        assert_eq!(number(&client.agent(&sandbox, "count").unwrap(), "count"), 1);
    }
    boot_ids.dedup();
    assert_eq!(boot_ids.len(), 3);
    assert_eq!(daemon.vmms().len(), 2);
    let stats = client.call("host.stats", map([]));
    assert_eq!(number(get(&stats, "counters"), "rewinds"), 3);
}

#[test]
fn life_after_a_rewind_gets_a_file_for_its_disk_of_its_own() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    // It asks as soon as it is back.
    let checkpoint = client.checkpoint(&daemon, "rewind=wants-extent");
    let sandbox = child(&mut client, &checkpoint, true);
    client.agent(&sandbox, "wantExtent").unwrap();
    for _ in 0..5 {
        client.call("sandbox.rewind", one("sandbox", &sandbox));
        client.agent(&sandbox, "ping").unwrap();
    }
}

#[test]
fn calls_of_the_life_that_is_over_fail() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    let checkpoint = client.checkpoint(&daemon, "");
    let sandbox = child(&mut client, &checkpoint, true);
    let hanging = client.send(
        "sandbox.call",
        map([("sandbox", sandbox.as_str().into()), ("op", "hang".into())]),
    );
    client.agent(&sandbox, "ping").unwrap();
    client.call("sandbox.rewind", one("sandbox", &sandbox));
    assert_eq!(client.answer(hanging).0.unwrap_err().code, "SANDBOX_CLOSED");
    assert_eq!(number(&client.agent(&sandbox, "count").unwrap(), "count"), 1);
}

#[test]
fn sandbox_that_can_not_go_back_goes_on() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    let checkpoint = client.checkpoint(&daemon, "");
    let sandbox = child(&mut client, &checkpoint, false);
    let refused = client.try_call("sandbox.rewind", one("sandbox", &sandbox)).unwrap_err();
    assert_eq!((refused.code.as_str(), refused.poisons), ("NOT_REWINDABLE", false));
    assert_eq!(number(&client.agent(&sandbox, "count").unwrap(), "count"), 2);

    let failing = client.checkpoint(&daemon, "rewind=fail");
    let sandbox = child(&mut client, &failing, true);
    let failed = client.try_call("sandbox.rewind", one("sandbox", &sandbox)).unwrap_err();
    assert_eq!((failed.code.as_str(), failed.poisons), ("REWIND_FAILED", false));
    assert_eq!(number(&client.agent(&sandbox, "count").unwrap(), "count"), 2);

    let sandbox = child(&mut client, &checkpoint, true);
    client.call("checkpoint.drop", one("checkpoint", &checkpoint));
    let dropped = client.try_call("sandbox.rewind", one("sandbox", &sandbox)).unwrap_err();
    assert_eq!(dropped.code, "CHECKPOINT_DROPPED");
    assert_eq!(number(&client.agent(&sandbox, "count").unwrap(), "count"), 2);
}

/// Also one that did not take its new identity on: it fails closed (invariant 4).
#[test]
fn rewind_that_fails_half_way_leaves_no_sandbox() {
    for fault in ["rewind=poison", "rewind=exit", "rewind=same-boot-id"] {
        let daemon = Daemon::start();
        let mut client = daemon.client();
        let checkpoint = client.checkpoint(&daemon, fault);
        let sandbox = child(&mut client, &checkpoint, true);
        let failed = client.try_call("sandbox.rewind", one("sandbox", &sandbox)).unwrap_err();
        assert_eq!(
            (failed.code.as_str(), failed.poisons),
            ("REWIND_FAILED", true),
            "{fault}"
        );
        daemon.wait_for_vmms(1);
        assert!(client.agent(&sandbox, "ping").is_err(), "{fault}");
        child(&mut client, &checkpoint, true);
    }
}

#[test]
fn delta_is_that_to_the_parent_and_needs_one() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    let parent = client.checkpoint(&daemon, "");
    let sandbox = child(&mut client, &parent, false);
    let checkpoint = client.park(&sandbox);
    for _ in 0..2 {
        let delta = client.call("checkpoint.delta", one("checkpoint", &checkpoint));
        assert_eq!(text(&delta, "parent"), parent);
        let runs = |name| get(&delta, name).as_array().unwrap().len();
        assert_eq!((runs("pages"), runs("blocks")), (2, 1));
    }
    let delta = client.try_call("checkpoint.delta", one("checkpoint", &parent));
    assert_eq!(delta.unwrap_err().code, "NO_PARENT");
    client.call("checkpoint.drop", one("checkpoint", &parent));
    let delta = client.try_call("checkpoint.delta", one("checkpoint", &checkpoint));
    assert_eq!(delta.unwrap_err().code, "CHECKPOINT_DROPPED");
}

#[test]
fn delta_whose_checkpoint_or_parent_is_dropped_meanwhile_says_so() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    for drops_parent in [false, true] {
        let parent = client.checkpoint(&daemon, "compare-hangs");
        let sandbox = child(&mut client, &parent, false);
        let checkpoint = client.park(&sandbox);
        let waiting = client.send("checkpoint.delta", one("checkpoint", &checkpoint));
        if drops_parent {
            client.call("checkpoint.drop", one("checkpoint", &parent));
        }
        client.call("checkpoint.drop", one("checkpoint", &checkpoint));
        assert_eq!(client.answer(waiting).0.unwrap_err().code, "CHECKPOINT_DROPPED");
    }
}
