//! Checkpoints of sandboxes that go on, and what goes wrong there.

#![allow(clippy::unwrap_used)]

mod common;

use common::{Daemon, call, get, map, number, text};
use coppice_wire::Value;

fn of(sandbox: &str) -> Value {
    map([("sandbox", sandbox.into())])
}

#[test]
fn sandbox_goes_on_after_its_checkpoint_with_its_calls_and_its_generation() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    let checkpoint = client.checkpoint(&daemon, "");
    let sandbox = client.fork_one(&checkpoint);
    let generation = number(&client.agent(&sandbox, "resumed").unwrap(), "generation");
    let waiting = client.send("sandbox.call", call(&sandbox, "hang", map([])));
    let copied = client.call("sandbox.checkpoint", of(&sandbox));
    assert_eq!(number(&copied, "dirtyPages"), 42);
    assert_eq!(number(&client.agent(&sandbox, "count").unwrap(), "count"), 1);
    assert_eq!(
        number(&client.agent(&sandbox, "resumed").unwrap(), "generation"),
        generation
    );
    let child = client.fork_one(&text(&copied, "checkpoint"));
    assert_eq!(number(&client.agent(&child, "count").unwrap(), "count"), 1);
    assert_eq!(number(&client.agent(&sandbox, "count").unwrap(), "count"), 2);
    client.call("sandbox.close", of(&sandbox));
    assert_eq!(client.answer(waiting).0.unwrap_err().code, "SANDBOX_CLOSED");
    // The checkpoint needs its source no more.
    client.fork_one(&text(&copied, "checkpoint"));
    let stats = client.call("host.stats", map([]));
    assert_eq!(number(get(&stats, "counters"), "checkpoints"), 1);
}

#[test]
fn checkpoint_that_fails_leaves_the_sandbox_or_poisons_it_and_no_process_behind() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    for (fault, code, goes_on) in [
        ("checkpoint=fail", "VMM_HOST", true),
        ("checkpoint=copy-dies", "CHECKPOINT_FAILED", true),
        ("checkpoint=poison", "CHECKPOINT_FAILED", false),
        ("checkpoint=exit", "SANDBOX_LOST", false),
    ] {
        let sandbox = client.boot(&daemon, fault);
        let error = client.try_call("sandbox.checkpoint", of(&sandbox)).unwrap_err();
        assert_eq!(error.code, code, "{fault}: {error:?}");
        assert_eq!(client.agent(&sandbox, "ping").is_ok(), goes_on, "{fault}");
        client.call("sandbox.close", of(&sandbox));
        daemon.wait_for_vmms(0);
        let list = client.call("checkpoint.list", map([]));
        assert_eq!(get(&list, "checkpoints").as_array().unwrap().len(), 0, "{fault}");
    }
}

#[test]
fn checkpoint_whose_client_leaves_meanwhile_leaves_nothing() {
    let daemon = Daemon::start();
    let mut keeper = daemon.client();
    for _ in 0..20 {
        let mut client = daemon.client();
        let sandbox = client.boot(&daemon, "");
        client.send("sandbox.checkpoint", of(&sandbox));
        drop(client);
        daemon.wait_for_vmms(0);
    }
    let stats = keeper.call("host.stats", map([]));
    assert_eq!(number(get(&stats, "checkpoints"), "hot"), 0);
}
