//! What monitoring systems are told.

#![allow(clippy::unwrap_used)]

mod common;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use common::exposition::{Metrics, parse};
use common::{Client, Daemon, call, map, text};

fn metrics(client: &mut Client) -> Metrics {
    parse(&text(&client.call("host.metrics", map([])), "text"))
}

/// Sends a request as it is, and reads to the end.
fn http(daemon: &Daemon, request: &[u8]) -> (String, String) {
    let mut stream = TcpStream::connect(daemon.metrics.as_ref().unwrap()).unwrap();
    stream.set_read_timeout(Some(common::PATIENCE)).unwrap();
    stream.write_all(request).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{answer}"));
    (head.to_owned(), body.to_owned())
}

const GET: &[u8] = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n";

#[test]
fn metrics_of_a_daemon_that_did_nothing_are_complete_and_zero() {
    let daemon = Daemon::start_with(&["--host-kind", "carrier"]);
    let found = metrics(&mut daemon.client());
    assert_eq!(found.value("coppice_build_info", &[("kind", "carrier")]), 1.0);
    for operation in ["boot", "fork", "fork_ahead", "lease", "park", "checkpoint", "call"] {
        let labels = [("operation", operation)];
        assert_eq!(found.value("coppice_operation_duration_seconds_count", &labels), 0.0);
        assert_eq!(found.value("coppice_operation_failures_total", &labels), 0.0);
    }
    assert_eq!(found.value("coppice_sessions", &[]), 1.0);
    assert_eq!(found.value("coppice_connections", &[]), 1.0);
    assert!(found.value("coppice_memory_total_bytes", &[]) > found.value("coppice_memory_available_bytes", &[]));
    assert_eq!(found.value("coppice_vmm_processes", &[]), 0.0);
    assert!(found.value("process_resident_memory_bytes", &[]) > 0.0);
}

#[test]
fn files_and_processes_are_counted_while_there_are_any_and_are_no_more_after_many_forks() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    let checkpoint = client.checkpoint(&daemon, "");
    let held = |client: &mut Client| {
        let found = metrics(client);
        ["coppice_vmm_processes", "process_open_fds"].map(|name| found.value(name, &[]))
    };
    let before = held(&mut client);
    assert_eq!(before[0], 1.0);
    for _ in 0..20 {
        let sandbox = client.fork_one(&checkpoint);
        let during = held(&mut client);
        assert!(during[0] > before[0] && during[1] > before[1], "{during:?} {before:?}");
        client.call("sandbox.close", map([("sandbox", sandbox.as_str().into())]));
        // A close answers when the process is on its way out.
        let deadline = Instant::now() + common::PATIENCE;
        while held(&mut client) != before {
            assert!(Instant::now() < deadline, "{:?} {before:?}", held(&mut client));
            thread::sleep(Duration::from_millis(5));
        }
    }
}

#[test]
fn metrics_count_what_was_done_what_is_there_and_what_failed() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    let checkpoint = client.checkpoint(&daemon, "");
    let sandbox = client.fork_one(&checkpoint);
    let ahead = map([
        ("checkpoint", checkpoint.as_str().into()),
        ("n", 2.into()),
        ("runAhead", true.into()),
    ]);
    let ahead = common::children(&client.call("sandbox.fork", ahead));
    let leased = ahead[0].clone().unwrap();
    client.call("sandbox.lease", map([("sandbox", leased.as_str().into())]));
    client.agent(&sandbox, "ping").unwrap();
    client
        .try_call("sandbox.call", call(&sandbox, "resume", map([])))
        .unwrap_err();
    client.call("sandbox.close", map([("sandbox", sandbox.as_str().into())]));

    let found = metrics(&mut client);
    for (operation, done, failed) in [
        ("boot", 1.0, 0.0),
        ("park", 1.0, 0.0),
        ("fork", 1.0, 0.0),
        ("fork_ahead", 2.0, 0.0),
        ("lease", 1.0, 0.0),
        ("call", 1.0, 1.0),
    ] {
        let labels = [("operation", operation)];
        let count = found.value("coppice_operation_duration_seconds_count", &labels);
        let failures = found.value("coppice_operation_failures_total", &labels);
        assert_eq!((count, failures), (done, failed), "{operation}");
    }
    assert!(found.value("coppice_operation_duration_seconds_sum", &[("operation", "boot")]) > 0.0);
    for (state, count) in [("booting", 0.0), ("ready", 1.0), ("leased", 1.0), ("poisoned", 0.0)] {
        assert_eq!(found.value("coppice_sandboxes", &[("state", state)]), count, "{state}");
    }
    assert_eq!(found.value("coppice_checkpoints_hot", &[]), 1.0);
    assert_eq!(found.value("coppice_forks_total", &[]), 3.0);
    assert_eq!(found.value("coppice_closes_total", &[]), 1.0);
}

#[test]
fn call_that_is_cancelled_counts_as_failed() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    let sandbox = client.boot(&daemon, "");
    let hanging = client.send("sandbox.call", call(&sandbox, "hang", map([])));
    client.cancel(hanging);
    assert_eq!(client.answer(hanging).0.unwrap_err().code, "ABORTED");
    let failures = metrics(&mut client).value("coppice_operation_failures_total", &[("operation", "call")]);
    assert_eq!(failures, 1.0);
}

#[test]
fn sandbox_that_is_poisoned_is_counted_once() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    let sandbox = client.boot(&daemon, "checkpoint=poison");
    client
        .try_call("sandbox.checkpoint", map([("sandbox", sandbox.as_str().into())]))
        .unwrap_err();
    daemon.wait_for_vmms(0);
    let found = metrics(&mut client);
    assert_eq!(found.value("coppice_poisoned_total", &[]), 1.0);
    assert_eq!(found.value("coppice_sandboxes", &[("state", "poisoned")]), 1.0);
    assert_eq!(
        found.value("coppice_operation_failures_total", &[("operation", "checkpoint")]),
        1.0
    );
}

#[test]
fn scraper_gets_what_a_client_gets() {
    let daemon = Daemon::start_with(&["--metrics", "0"]);
    let mut client = daemon.client();
    client.boot(&daemon, "");
    let (head, body) = http(&daemon, GET);
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(head.contains("\r\nContent-Type: text/plain; version=0.0.4"), "{head}");
    assert!(
        head.contains(&format!("\r\nContent-Length: {}\r\n", body.len())),
        "{head}"
    );
    assert_eq!(parse(&body).value("coppice_boots_total", &[]), 1.0);
    let names = |metrics: Metrics| -> Vec<String> { metrics.0.into_iter().map(|family| family.name).collect() };
    assert_eq!(names(parse(&body)), names(metrics(&mut client)));
}

#[test]
fn metrics_given_a_port_alone_are_on_loopback() {
    let daemon = Daemon::start_with(&["--metrics", "0"]);
    assert!(
        daemon.metrics.as_ref().unwrap().starts_with("127.0.0.1:"),
        "{:?}",
        daemon.metrics
    );
    assert!(!daemon.log().contains("whoever reaches this address"));
    let open = Daemon::start_with(&["--metrics", "0.0.0.0:0"]);
    assert!(open.log().contains("whoever reaches this address"), "{}", open.log());
}

#[test]
fn requests_that_are_no_scrapes_are_refused() {
    let daemon = Daemon::start_with(&["--metrics", "0"]);
    let status = |request: &[u8]| http(&daemon, request).0[9..12].to_owned();
    assert_eq!(status(b"GET / HTTP/1.1\r\n\r\n"), "404");
    assert_eq!(status(b"POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc"), "405");
    assert_eq!(status(b"\xff\xfe\r\n\r\n"), "400");
    let mut endless = b"GET /metrics HTTP/1.1\r\nX: ".to_vec();
    endless.resize(9 * 1024, b'a');
    assert_eq!(status(&endless), "431");
}

#[test]
fn connections_that_ask_nothing_do_not_keep_scrapers_out_for_long() {
    let daemon = Daemon::start_with(&["--metrics", "0"]);
    let address = daemon.metrics.as_ref().unwrap();
    let silent: Vec<_> = (0..10).map(|_| TcpStream::connect(address).unwrap()).collect();
    // Behind the silent ones, each of which is given up after its deadline.
    assert!(http(&daemon, GET).0.starts_with("HTTP/1.1 200"));
    drop(silent);
    assert!(daemon.client().call("host.info", map([])).is_map());
}
