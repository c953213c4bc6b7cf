//! Who is let in, and who is not.

#![allow(clippy::unwrap_used)]

mod common;

use std::io::ErrorKind::WouldBlock;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use common::{Client, Daemon, TOKEN, get, hello, map};
use coppice_wire::client::Greeting;
use coppice_wire::encode_frame;
use coppice_wire::frame::read_message;

/// What a daemon answers to a first frame; the connection must end after it.
fn refusal(daemon: &Daemon, first: &[u8]) -> String {
    let mut stream = UnixStream::connect(&daemon.socket).unwrap();
    stream.set_read_timeout(Some(common::PATIENCE)).unwrap();
    stream.write_all(first).unwrap();
    let greeting = read_message::<Greeting>(&mut stream).unwrap().unwrap();
    let Greeting::Refused(failure) = greeting else {
        panic!("{greeting:?}")
    };
    assert_eq!(stream.read(&mut [0]).unwrap(), 0, "the connection goes on");
    failure.code
}

#[test]
fn client_of_another_version_is_refused() {
    let daemon = Daemon::start();
    let mut other = hello();
    other.protocol += 1;
    assert_eq!(refusal(&daemon, &encode_frame(&other).unwrap()), "PROTOCOL_MISMATCH");
}

#[test]
fn first_frame_that_is_no_hello_is_refused() {
    let daemon = Daemon::start();
    let no_hello = encode_frame(&map([("id", 1.into()), ("method", "host.info".into())])).unwrap();
    assert_eq!(refusal(&daemon, &no_hello), "HANDSHAKE_INVALID");
    assert_eq!(refusal(&daemon, &[3, 0, 0, 0, 0xc1, 0xc1, 0xc1]), "HANDSHAKE_INVALID");
    assert_eq!(refusal(&daemon, &[0xff; 4]), "HANDSHAKE_INVALID");
    assert_eq!(
        refusal(&daemon, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"),
        "HANDSHAKE_INVALID"
    );
}

#[test]
fn first_frame_that_never_ends_is_refused_before_it_is_read() {
    let daemon = Daemon::start();
    let mut endless = (16u32 * 1024 * 1024).to_le_bytes().to_vec();
    endless.resize(17 * 1024, 0);
    assert_eq!(refusal(&daemon, &endless), "HANDSHAKE_INVALID");
}

#[test]
fn connection_that_says_nothing_is_closed_after_five_seconds() {
    let daemon = Daemon::start();
    let begin = Instant::now();
    assert_eq!(refusal(&daemon, &[]), "HANDSHAKE_TIMEOUT");
    assert!(begin.elapsed() > Duration::from_secs(4));
}

#[test]
fn tcp_client_needs_the_token() {
    let daemon = Daemon::start_with(&["--tcp", "127.0.0.1:0"]);
    let connect = || TcpStream::connect(daemon.tcp.as_ref().unwrap()).unwrap();
    let code = |token: Option<&str>| {
        Client::greet(connect(), |hello| hello.token = token.map(str::to_owned))
            .map(drop)
            .map_err(|failure| failure.code)
    };
    assert_eq!(code(None), Err("UNAUTHENTICATED".to_owned()));
    assert_eq!(code(Some("")), Err("UNAUTHENTICATED".to_owned()));
    assert_eq!(code(Some(&TOKEN[1..])), Err("UNAUTHENTICATED".to_owned()));
    assert_eq!(code(Some(TOKEN)), Ok(()));
}

#[test]
fn right_token_is_let_in_while_wrong_ones_from_the_same_address_wait_for_their_refusal() {
    let daemon = Daemon::start_with(&["--tcp", "127.0.0.1:0"]);
    let connect = || TcpStream::connect(daemon.tcp.as_ref().unwrap()).unwrap();
    let guess = || Client::greet(connect(), |hello| hello.token = Some("x".repeat(32)));
    // After these a refusal takes 1.6 s and more.
    for _ in 0..5 {
        assert_eq!(guess().map(drop).unwrap_err().code, "UNAUTHENTICATED");
    }
    let mut wrong = hello();
    wrong.token = Some("x".repeat(32));
    let wrong = encode_frame(&wrong).unwrap();
    let mut guesses: Vec<TcpStream> = (0..6).map(|_| connect()).collect();
    for stream in &mut guesses {
        stream.set_read_timeout(Some(common::PATIENCE)).unwrap();
        stream.write_all(&wrong).unwrap();
    }
    let mut client = Client::greet(connect(), |hello| hello.token = Some(TOKEN.to_owned())).unwrap();
    let waits = |stream: &TcpStream| {
        stream.set_nonblocking(true).unwrap();
        let waits = stream.peek(&mut [0]).is_err_and(|error| error.kind() == WouldBlock);
        stream.set_nonblocking(false).unwrap();
        waits
    };
    assert!(
        guesses.iter().any(waits),
        "all refusals came before the right token was let in"
    );
    // What is above four is closed without a word.
    let answered = guesses
        .iter_mut()
        .filter_map(|stream| stream.read(&mut [0]).ok())
        .filter(|read| *read > 0)
        .count();
    assert_eq!(answered, 4);
    let stats = client.call("host.stats", map([]));
    assert_eq!(get(get(&stats, "counters"), "refusedHandshakes").as_u64(), Some(11));
    assert_eq!(
        daemon.log().matches("Refused a connection").count(),
        1,
        "{}",
        daemon.log()
    );
}

#[test]
fn tcp_client_without_the_token_is_not_told_the_version() {
    let daemon = Daemon::start_with(&["--tcp", "127.0.0.1:0"]);
    let stream = TcpStream::connect(daemon.tcp.as_ref().unwrap()).unwrap();
    let refused = Client::greet(stream, |hello| hello.protocol = 99)
        .map(drop)
        .unwrap_err();
    assert_eq!(refused.code, "UNAUTHENTICATED");
}

#[test]
fn session_that_is_unknown_can_not_be_joined() {
    let daemon = Daemon::start();
    let stream = UnixStream::connect(&daemon.socket).unwrap();
    let refused = Client::greet(stream, |hello| hello.session = Some("0".repeat(32)))
        .map(drop)
        .unwrap_err();
    assert_eq!(refused.code, "SESSION_NOT_FOUND");
    assert!(refused.remedy.is_some());
}

#[test]
fn connections_that_say_nothing_are_bounded_and_leave_room_for_those_that_do() {
    let daemon = Daemon::start();
    let silent: Vec<_> = (0..128).map(|_| UnixStream::connect(&daemon.socket).unwrap()).collect();
    let mut turned_away = UnixStream::connect(&daemon.socket).unwrap();
    turned_away.set_read_timeout(Some(common::PATIENCE)).unwrap();
    let greeting = read_message::<Greeting>(&mut turned_away).unwrap().unwrap();
    assert!(matches!(greeting, Greeting::Refused(failure) if failure.code == "TOO_MANY_CONNECTIONS"));
    drop(silent);
    // The daemon sees the ends in its own time.
    let begin = Instant::now();
    loop {
        let stream = UnixStream::connect(&daemon.socket).unwrap();
        match Client::greet(stream, |_| {}) {
            Ok(mut client) => {
                assert_eq!(get(&client.call("host.info", map([])), "kind").as_str(), Some("kvm"));
                return;
            }
            Err(refused) => assert_eq!(refused.code, "TOO_MANY_CONNECTIONS"),
        }
        assert!(begin.elapsed() < common::PATIENCE);
    }
}

#[test]
fn welcome_says_who_the_host_is() {
    let daemon = Daemon::start_with(&["--host-kind", "carrier"]);
    let mut client = daemon.client();
    assert_eq!(client.session.len(), 32);
    let info = client.call("host.info", map([]));
    assert_eq!(get(&info, "kind").as_str(), Some("carrier"));
    assert!(get(&info, "memoryBytes").as_u64().unwrap() > 0);
    assert_eq!(get(&info, "pid").as_i64(), Some(daemon.pid().into()));
}
