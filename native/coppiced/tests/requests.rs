//! Requests: parameters, deadlines, cancellation, many at once.

#![allow(clippy::unwrap_used)]

mod common;

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use common::{Daemon, call, get, map, number, text};
use coppice_wire::client::DaemonFrame;
use coppice_wire::frame::{read_message, write_message};
use coppice_wire::{Value, encode_frame};

#[test]
fn unknown_method_is_refused_with_the_nearest_known() {
    let daemon = Daemon::start();
    let error = daemon.client().try_call("sandbox.frok", map([])).unwrap_err();
    assert_eq!(error.code, "UNKNOWN_METHOD");
    assert!(error.message.contains("sandbox.fork"), "{}", error.message);
}

#[test]
fn bad_parameters_are_refused_by_name() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    let cases: [(&str, Value, &str); 11] = [
        ("sandbox.fork", map([("checkpoint", "cp".into())]), "missing field `n`"),
        (
            "sandbox.fork",
            map([("checkpoint", "cp".into()), ("n", "two".into())]),
            "`n`",
        ),
        (
            "sandbox.fork",
            map([("checkpoint", "cp".into()), ("n", 1.5.into())]),
            "`n`",
        ),
        (
            "sandbox.fork",
            map([("checkpoint", "cp".into()), ("n", 1.into()), ("N", 1.into())]),
            "`N`",
        ),
        (
            "sandbox.fork",
            Value::Array(vec!["cp".into(), 1.into()]),
            "expected a map",
        ),
        (
            "sandbox.boot",
            map([
                ("image", "i".into()),
                ("memoryMiB", 1.into()),
                ("vcpus", 1.into()),
                ("timeoutMs", 1.into()),
            ]),
            "`memoryMiB`",
        ),
        (
            "sandbox.boot",
            map([
                ("image", "i".into()),
                ("memoryMiB", 128.into()),
                ("vcpus", 5.into()),
                ("timeoutMs", 1.into()),
            ]),
            "`vcpus`",
        ),
        (
            "image.attach",
            map([("id", "i".into()), ("source", map([("paht", "/".into())]))]),
            "source.paht",
        ),
        ("memory.usage", map([]), "exactly one"),
        ("host.info", map([("verbose", true.into())]), "verbose"),
        ("sandbox.call", call("sb-000000-1", "resume", map([])), "`op`"),
    ];
    for (method, params, expected) in cases {
        let error = client.try_call(method, params).unwrap_err();
        assert_eq!(error.code, "INVALID_ARGUMENT", "{method} {error:?}");
        assert!(
            error.message.contains(expected),
            "{method}: {} lacks {expected}",
            error.message
        );
        assert!(error.remedy.is_some());
    }
}

#[test]
fn image_that_is_missing_or_not_attached_is_refused() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    let source = map([("path", "/no/such/image".into())]);
    let error = client
        .try_call("image.attach", map([("id", "i".into()), ("source", source)]))
        .unwrap_err();
    assert_eq!(error.code, "IMAGE_UNREADABLE");
    let boot = map([
        ("image", "i".into()),
        ("memoryMiB", 128.into()),
        ("vcpus", 1.into()),
        ("timeoutMs", 1.into()),
    ]);
    assert_eq!(
        client.try_call("sandbox.boot", boot).unwrap_err().code,
        "IMAGE_NOT_FOUND"
    );
}

#[test]
fn call_is_answered_with_its_output_before_it() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    let sandbox = client.boot(&daemon, "");
    let echo = client.call("sandbox.call", call(&sandbox, "echo", map([("x", 7.into())])));
    assert_eq!(get(&echo, "x").as_u64(), Some(7));
    let id = client.send(
        "sandbox.call",
        call(&sandbox, "chunks", map([("n", 100.into()), ("bytes", 65_536.into())])),
    );
    let (answer, bytes) = client.answer(id);
    answer.unwrap();
    assert_eq!(bytes, 100 * 65_536);
}

#[test]
fn call_that_the_agent_refuses_has_the_agents_code() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    let sandbox = client.boot(&daemon, "");
    let error = client.agent(&sandbox, "nonsense").unwrap_err();
    assert_eq!(
        (error.code.as_str(), error.fault_domain.as_str()),
        ("UNKNOWN_OPERATION", "guest")
    );
}

#[test]
fn call_that_is_not_done_in_time_fails_and_the_agent_gives_it_up() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    let sandbox = client.boot(&daemon, "");
    let id = client.send_with("sandbox.call", call(&sandbox, "hang", map([])), Some(50));
    let error = client.answer(id).0.unwrap_err();
    assert_eq!(error.code, "DEADLINE_EXCEEDED");
    assert_eq!(number(&client.agent(&sandbox, "cancels").unwrap(), "cancels"), 1);
}

#[test]
fn call_that_is_cancelled_fails_and_the_agent_gives_it_up() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    let sandbox = client.boot(&daemon, "");
    let id = client.send("sandbox.call", call(&sandbox, "hang", map([])));
    client.cancel(id);
    client.cancel(id + 1_000); // unknown: ignored
    assert_eq!(client.answer(id).0.unwrap_err().code, "ABORTED");
    client.cancel(id); // answered already: ignored
    assert_eq!(number(&client.agent(&sandbox, "cancels").unwrap(), "cancels"), 1);
}

#[test]
fn deadline_of_zero_is_refused() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    let id = client.send_with("host.info", map([]), Some(0));
    let error = client.answer(id).0.unwrap_err();
    assert_eq!(error.code, "INVALID_ARGUMENT");
    assert!(error.message.contains("deadlineMs"));
}

#[test]
fn requests_of_one_connection_do_not_wait_for_each_other() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    let sandbox = client.boot(&daemon, "");
    let hanging: Vec<u64> = (0..50)
        .map(|_| client.send("sandbox.call", call(&sandbox, "hang", map([]))))
        .collect();
    for _ in 0..50 {
        client.agent(&sandbox, "ping").unwrap();
    }
    hanging.iter().for_each(|id| client.cancel(*id));
    for id in hanging {
        assert_eq!(client.answer(id).0.unwrap_err().code, "ABORTED");
    }
}

#[test]
fn many_clients_at_once_each_see_their_own() {
    let daemon = Daemon::start();
    std::thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(|| {
                let mut client = daemon.client();
                let sandbox = client.boot(&daemon, "");
                for expected in 1..=20 {
                    assert_eq!(number(&client.agent(&sandbox, "count").unwrap(), "count"), expected);
                }
                let checkpoint = client.park(&sandbox);
                let child = client.fork_one(&checkpoint);
                assert_eq!(number(&client.agent(&child, "count").unwrap(), "count"), 21);
                let own = client.call("sandbox.list", map([]));
                assert_eq!(get(&own, "sandboxes").as_array().unwrap().len(), 1);
            });
        }
    });
    daemon.wait_for_vmms(0);
}

#[test]
fn sandbox_of_another_session_is_not_found() {
    let daemon = Daemon::start();
    let (mut owner, mut other) = (daemon.client(), daemon.client());
    let sandbox = owner.boot(&daemon, "");
    assert_eq!(other.agent(&sandbox, "ping").unwrap_err().code, "SANDBOX_NOT_FOUND");
    other.call("sandbox.close", map([("sandbox", sandbox.as_str().into())])); // a no-op
    owner.agent(&sandbox, "ping").unwrap();
    let checkpoint = owner.park(&sandbox);
    let fork = map([("checkpoint", checkpoint.as_str().into()), ("n", 1.into())]);
    assert_eq!(
        other.try_call("sandbox.fork", fork).unwrap_err().code,
        "CHECKPOINT_NOT_FOUND"
    );
    other.call("checkpoint.drop", map([("checkpoint", checkpoint.as_str().into())])); // a no-op
    owner.fork_one(&checkpoint);
}

#[test]
fn request_id_that_is_in_use_ends_the_connection() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    let sandbox = client.boot(&daemon, "");
    let request = map([
        ("id", 77.into()),
        ("method", "sandbox.call".into()),
        ("params", call(&sandbox, "hang", map([]))),
    ]);
    write_message(&mut client.stream, &request).unwrap();
    write_message(&mut client.stream, &request).unwrap();
    let event = client.event("protocol.violation");
    assert_eq!(text(&event, "code"), "PROTOCOL_VIOLATION");
    assert_eq!(client.stream.read(&mut [0]).unwrap(), 0);
    daemon.wait_for_vmms(0);
}

#[test]
fn frame_that_is_no_request_ends_the_connection_and_no_other() {
    let daemon = Daemon::start();
    let mut bystander = daemon.client();
    for bad in [
        &[3, 0, 0, 0, 0xc1, 0xc1, 0xc1][..],
        &[0xff; 8],
        &encode_frame(&"text").unwrap(),
    ] {
        let mut client = daemon.client();
        client.stream.write_all(bad).unwrap();
        assert_eq!(text(&client.event("protocol.violation"), "code"), "PROTOCOL_VIOLATION");
        assert_eq!(client.stream.read(&mut [0]).unwrap(), 0);
    }
    bystander.call("host.info", map([]));
}

#[test]
fn too_many_requests_in_flight_are_refused_and_the_rest_goes_on() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    let sandbox = client.boot(&daemon, "");
    let ids: Vec<u64> = (0..1_025)
        .map(|_| client.send("sandbox.call", call(&sandbox, "hang", map([]))))
        .collect();
    assert_eq!(client.answer(ids[1_024]).0.unwrap_err().code, "TOO_MANY_REQUESTS");
    client.cancel(ids[0]);
    assert_eq!(client.answer(ids[0]).0.unwrap_err().code, "ABORTED");
    client.agent(&sandbox, "ping").unwrap();
}

#[test]
fn client_that_does_not_read_holds_up_its_own_sandbox_only() {
    let daemon = Daemon::start();
    let (mut slow, mut quick) = (daemon.client(), daemon.client());
    let noisy = slow.boot(&daemon, "");
    let other = quick.boot(&daemon, "");
    // 64 MiB, far more than every buffer on the way; nobody reads them.
    let flood = slow.send(
        "sandbox.call",
        call(&noisy, "chunks", map([("n", 1_024.into()), ("bytes", 65_536.into())])),
    );
    let begin = Instant::now();
    for _ in 0..100 {
        quick.agent(&other, "ping").unwrap();
    }
    assert!(begin.elapsed() < Duration::from_secs(5));
    let resident = resident_bytes(daemon.pid());
    assert!(resident < 100 * 1024 * 1024, "the daemon buffers {resident} bytes");
    let (answer, bytes) = slow.answer(flood);
    answer.unwrap();
    assert_eq!(bytes, 1_024 * 65_536);
}

#[test]
fn answer_to_the_last_request_arrives_though_it_ends_the_daemon() {
    let mut daemon = Daemon::start();
    let mut client = daemon.client();
    let id = client.send("host.shutdown", map([]));
    let frame: DaemonFrame = read_message(&mut client.stream).unwrap().unwrap();
    assert!(matches!(frame, DaemonFrame::Result { id: of, .. } if of == id));
    assert!(daemon.wait().success());
}

fn resident_bytes(pid: i32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

#[test]
fn host_list_shows_what_all_sessions_hold_and_none_of_their_secrets() {
    let daemon = Daemon::start();
    let mut owner = daemon.client_with(|hello| hello.client = "the owner".to_owned());
    let checkpoint = owner.checkpoint(&daemon, "");
    let sandbox = owner.fork_one(&checkpoint);
    let mut other = daemon.client();
    let listed = other.call("host.list", map([]));
    let rows = |name: &str| get(&listed, name).as_array().unwrap().clone();
    let (sandboxes, checkpoints) = (rows("sandboxes"), rows("checkpoints"));
    assert_eq!(text(&sandboxes[0], "sandbox"), sandbox);
    assert_eq!(text(&sandboxes[0], "checkpoint"), checkpoint);
    assert_eq!(text(&sandboxes[0], "state"), "leased");
    assert_eq!(text(get(&sandboxes[0], "owner"), "client"), "the owner");
    assert_eq!(text(&checkpoints[0], "checkpoint"), checkpoint);
    assert_eq!(number(&checkpoints[0], "children"), 1);
    let session = &owner.session;
    assert!(
        !format!("{listed}").contains(session.as_str()),
        "the id by which the session can be joined"
    );
    let weighed = other.call("host.list", map([("memory", true.into())]));
    let first = &get(&weighed, "sandboxes").as_array().unwrap()[0];
    assert!(number(get(first, "memory"), "totalBytes") > 0);
}

#[test]
fn host_call_reaches_a_sandbox_of_another_session_and_sandbox_call_does_not() {
    let daemon = Daemon::start();
    let mut owner = daemon.client();
    let checkpoint = owner.checkpoint(&daemon, "");
    let sandbox = owner.fork_one(&checkpoint);
    let mut other = daemon.client();
    let refused = other
        .try_call("sandbox.call", call(&sandbox, "ping", map([])))
        .unwrap_err();
    assert_eq!(refused.code, "SANDBOX_NOT_FOUND");
    let echoed = other.call("host.call", call(&sandbox, "echo", map([("x", 5.into())])));
    assert_eq!(number(&echoed, "x"), 5);
    let reserved = other
        .try_call("host.call", call(&sandbox, "resume", map([])))
        .unwrap_err();
    assert_eq!(reserved.code, "INVALID_ARGUMENT");
    owner.call("sandbox.close", map([("sandbox", sandbox.as_str().into())]));
    let gone = other
        .try_call("host.call", call(&sandbox, "ping", map([])))
        .unwrap_err();
    assert_eq!(gone.code, "SANDBOX_NOT_FOUND");
}
