//! Clients that come over a network.

#![allow(clippy::unwrap_used)]

mod common;

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use common::{Client, Daemon, PATIENCE, TOKEN, call, get, hello, map};
use coppice_wire::encode_frame;

/// An address that is not of loopback, and can be reached through it.
const EVERYWHERE: &str = "0.0.0.0:0";
const NAME: &str = "127.0.0.1";

fn connect(daemon: &Daemon) -> TcpStream {
    let port = daemon.tcp.as_ref().unwrap().rsplit(':').next().unwrap();
    let stream = TcpStream::connect(format!("127.0.0.1:{port}")).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

fn client(daemon: &Daemon, token: &str) -> Result<Client, String> {
    let stream = common::tls::secure(daemon, connect(daemon), NAME).unwrap();
    Client::greet(stream, |hello| hello.token = Some(token.to_owned())).map_err(|failure| failure.code)
}

fn refused(daemon: &Daemon) -> u64 {
    let stats = daemon.client().call("host.stats", map([]));
    get(get(&stats, "counters"), "refusedHandshakes").as_u64().unwrap()
}

/// Whether the other end closes without a word that a client would take for one.
fn is_closed_in_silence(stream: &mut TcpStream) -> bool {
    let mut said = Vec::new();
    match stream.read_to_end(&mut said) {
        // A TLS alert at most.
        Ok(_) => said.is_empty() || said[0] == 21,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    }
}

#[test]
fn daemon_on_a_network_speaks_tls_and_still_wants_the_token() {
    let daemon = Daemon::start_with(&["--tcp", EVERYWHERE]);
    assert!(daemon.fingerprint.as_ref().unwrap().starts_with("sha256:"));
    assert_eq!(client(&daemon, "wrong").map(drop), Err("UNAUTHENTICATED".to_owned()));
    let mut client = client(&daemon, TOKEN).unwrap();
    assert_eq!(get(&client.call("host.info", map([])), "kind").as_str(), Some("kvm"));
}

#[test]
fn daemon_on_a_network_answers_nobody_who_speaks_no_tls() {
    let daemon = Daemon::start_with(&["--tcp", EVERYWHERE]);
    let mut hello = hello();
    hello.token = Some(TOKEN.to_owned());
    let mut stream = connect(&daemon);
    stream.write_all(&encode_frame(&hello).unwrap()).unwrap();
    assert!(is_closed_in_silence(&mut stream));
    assert_eq!(refused(&daemon), 1);
    assert!(daemon.log().contains("TLS_FAILED"), "{}", daemon.log());
}

#[test]
fn connection_that_does_not_shake_hands_is_closed_in_time() {
    let daemon = Daemon::start_with(&["--tcp", EVERYWHERE]);
    let mut silent = connect(&daemon);
    assert!(is_closed_in_silence(&mut silent));
    assert_eq!(refused(&daemon), 1);
    assert!(daemon.log().contains("HANDSHAKE_TIMEOUT"), "{}", daemon.log());
}

#[test]
fn connections_that_do_not_shake_hands_are_bounded() {
    let daemon = Daemon::start_with(&["--tcp", EVERYWHERE]);
    let (begin, mut silent) = (Instant::now(), Vec::new());
    // On a slow machine the first are given up before the last come.
    while !daemon.log().contains("TOO_MANY_CONNECTIONS") {
        silent.push(connect(&daemon));
        std::thread::sleep(Duration::from_millis(2));
        assert!(
            begin.elapsed() < PATIENCE,
            "{} connections are not too many",
            silent.len()
        );
    }
    assert!(silent.len() > 96, "{}", silent.len());
    assert!(silent.iter_mut().all(is_closed_in_silence));
}

#[test]
fn daemon_on_a_network_speaks_plainly_where_it_was_told_to() {
    let daemon = Daemon::start_with(&["--insecure-tcp", "--tcp", EVERYWHERE]);
    assert_eq!(daemon.fingerprint, None);
    let greeted = Client::greet(connect(&daemon), |hello| hello.token = Some(TOKEN.to_owned()));
    assert!(greeted.is_ok());
    assert!(daemon.log().contains("without TLS"), "{}", daemon.log());
}

#[test]
fn daemon_on_loopback_speaks_tls_only_where_it_was_told_to() {
    let daemon = Daemon::start_with(&["--tcp", "127.0.0.1:0"]);
    assert_eq!(daemon.fingerprint, None);
    let daemon = Daemon::start_with(&["--tls", "--tcp", "127.0.0.1:0"]);
    assert!(client(&daemon, TOKEN).is_ok());
}

#[test]
fn daemon_shows_the_certificate_that_it_was_given() {
    let other = Daemon::start_with(&["--tcp", EVERYWHERE]);
    let file = |name| other.directory.join("state").join(name).display().to_string();
    let (certificate, key) = (file("tls-certificate.pem"), file("tls-key.pem"));
    let daemon = Daemon::start_with(&[
        "--tcp",
        EVERYWHERE,
        "--tls-certificate",
        &certificate,
        "--tls-key",
        &key,
    ]);
    assert_eq!(daemon.fingerprint, other.fingerprint);
    assert!(common::tls::secure_by(certificate.as_ref(), connect(&daemon), NAME).is_ok());
}

#[test]
fn certificate_of_the_daemons_own_is_the_same_after_a_restart() {
    let mut first = Daemon::start_with(&["--tcp", EVERYWHERE]);
    let fingerprint = first.fingerprint.clone();
    first.signal(nix::sys::signal::Signal::SIGTERM);
    assert!(first.wait().success());
    let second = Daemon::start_in(first.directory.clone(), &["--tcp", EVERYWHERE]);
    assert_eq!(second.fingerprint, fingerprint);
}

#[test]
fn much_output_arrives_whole_though_the_client_reads_late() {
    let daemon = Daemon::start_with(&["--tcp", EVERYWHERE]);
    let mut client = client(&daemon, TOKEN).unwrap();
    let sandbox = client.boot(&daemon, "");
    // Three times what the daemon keeps for a client.
    let (n, bytes) = (192u64, 64 * 1024u64);
    let pieces = map([("n", n.into()), ("bytes", bytes.into())]);
    let id = client.send("sandbox.call", call(&sandbox, "chunks", pieces));
    std::thread::sleep(Duration::from_millis(300));
    let (answer, received) = client.answer(id);
    answer.unwrap();
    assert_eq!(received as u64, n * bytes);
}
