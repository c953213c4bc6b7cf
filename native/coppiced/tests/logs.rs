//! Logs that machines read.

#![allow(clippy::unwrap_used)]

mod common;

use std::process::Stdio;

use common::{Daemon, get, map, text};
use serde_json::Value;

fn json_daemon() -> Daemon {
    Daemon::start_with_env(&[("COPPICE_LOG_FORMAT", "json")], &["--tcp", "127.0.0.1:0"])
}

/// Every line that the daemon has written.
fn events(log: &str) -> Vec<Value> {
    let parse = |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    log.lines().map(parse).collect()
}

fn find<'a>(events: &'a [Value], message: &str) -> &'a Value {
    let found = events.iter().find(|event| event["message"] == message);
    found.unwrap_or_else(|| panic!("no `{message}` in {events:#?}"))
}

#[test]
fn each_line_is_an_object_and_names_sandbox_checkpoint_and_session() {
    let mut daemon = json_daemon();
    let mut client = daemon.client();
    let session = client.session[..6].to_owned();
    let sandbox = client.boot(&daemon, "");
    let parked = client.park(&sandbox);
    let child = client.fork_one(&parked);
    let copied = client.call("sandbox.checkpoint", map([("sandbox", child.as_str().into())]));
    client.agent(&child, "garbage").unwrap_err();
    let stranger = std::net::TcpStream::connect(daemon.tcp.as_ref().unwrap()).unwrap();
    common::Client::greet(stranger, |_| {}).map(drop).unwrap_err();
    assert!(get(&client.call("host.info", map([])), "kind").is_str());
    drop(client);
    daemon.signal(nix::sys::signal::Signal::SIGTERM);
    assert!(daemon.wait().success());

    let log = daemon.log();
    let events = events(&log);
    for event in &events {
        for field in ["timestamp", "level", "target", "message"] {
            assert!(event[field].is_string(), "no {field}: {event}");
        }
    }
    let event = find(&events, "Parked");
    assert_eq!(
        (&event["sandbox"], &event["checkpoint"]),
        (&sandbox.into(), &parked.into())
    );
    let event = find(&events, "Copied");
    assert_eq!(event["sandbox"], child);
    assert_eq!(event["checkpoint"], text(&copied, "checkpoint"));
    let event = find(&events, "Poisoned");
    assert_eq!((&event["sandbox"], &event["level"]), (&child.into(), &"WARN".into()));
    assert_eq!(find(&events, "Connected")["session"], session);
    let event = find(&events, "Session ended");
    assert_eq!(
        (&event["session"], event["dropping"].as_u64()),
        (&session.into(), Some(2))
    );
    assert_eq!(find(&events, "Refused a connection")["code"], "UNAUTHENTICATED");
    find(&events, "Down");
}

#[test]
fn end_of_a_daemon_that_can_not_start_is_an_object_too() {
    let daemon = json_daemon();
    let mut second = common::command(&daemon.directory);
    second
        .env("COPPICE_LOG_FORMAT", "json")
        .arg("--unix")
        .arg(&daemon.socket);
    let output = second.stdout(Stdio::null()).output().unwrap();
    assert!(!output.status.success());
    let events = events(std::str::from_utf8(&output.stderr).unwrap());
    let reason = find(&events, "The daemon ends")["reason"].as_str().unwrap();
    assert!(reason.contains("in use by another daemon"), "{reason}");
}

#[test]
fn format_that_is_unknown_stops_the_start_with_its_name() {
    let daemon = Daemon::start();
    let mut other = common::command(&daemon.directory);
    other
        .env("COPPICE_LOG_FORMAT", "yaml")
        .arg("--unix")
        .arg(&daemon.socket);
    let output = other.output().unwrap();
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("`yaml`"), "{output:?}");
}
