//! Terminals for people: output as it comes, input at any time.

#![allow(clippy::unwrap_used)]

mod common;

use std::time::Duration;

use common::{Agent, Answer, argv, field, map, sh};
use coppice_wire::Value;
use coppice_wire::agent::ReplyBody;

fn attach(agent: &mut Agent, name: &str) -> u64 {
    agent.post("pty.attach", map([("name", name.into())]))
}

fn write(agent: &mut Agent, name: &str, text: &str) -> Answer {
    let data = Value::Binary(text.as_bytes().to_vec());
    agent.call("pty.write", map([("name", name.into()), ("data", data)]))
}

/// What the attached terminal prints, until it has printed `wanted`.
fn read_until(agent: &mut Agent, id: u64, wanted: &str) -> String {
    let mut seen = String::new();
    while !seen.contains(wanted) {
        let reply = agent.next_within(Duration::from_secs(20)).expect("nothing more comes");
        assert_eq!(reply.id, id, "{reply:?}");
        let ReplyBody::Chunk(chunk) = reply.body else {
            panic!("ended with {reply:?} before {wanted:?}, after {seen:?}")
        };
        seen.push_str(&String::from_utf8_lossy(&chunk.data));
    }
    seen
}

#[test]
fn attached_terminal_sends_what_came_before_and_what_comes() {
    let mut agent = Agent::start();
    agent.open_pty("shell", sh("echo early; stty -echo; read line; echo got $line; exit 3"));
    let id = attach(&mut agent, "shell");
    read_until(&mut agent, id, "early");
    write(&mut agent, "shell", "hello\n");
    let answer = agent.wait(id);
    assert!(String::from_utf8_lossy(answer.stream("output")).contains("got hello"));
    assert_eq!(field(&answer.field("exit"), "exitCode").as_u64(), Some(3));
}

#[test]
fn attached_terminal_is_nobody_elses_until_the_attach_is_cancelled() {
    let mut agent = Agent::start();
    agent.open_pty("cat", argv(&["cat"]));
    let id = attach(&mut agent, "cat");
    assert_eq!(agent.read_until_input("cat").code(), "PTY_BUSY");
    let second = attach(&mut agent, "cat");
    assert_eq!(agent.wait(second).code(), "PTY_BUSY");
    agent.call("cancel", map([("target", id.into())]));
    assert_eq!(agent.wait(id).code(), "CANCELLED");
    assert_eq!(agent.type_line("cat", "again\n").text("reason"), "input");
}

#[test]
fn attached_terminal_that_is_closed_says_so() {
    let mut agent = Agent::start();
    agent.open_pty("cat", argv(&["cat"]));
    let id = attach(&mut agent, "cat");
    agent.call("pty.close", map([("name", "cat".into())]));
    assert_eq!(agent.wait(id).code(), "PTY_CLOSED");
}

#[test]
fn attached_terminal_whose_program_has_ended_sends_all_that_waits() {
    let mut agent = Agent::start();
    agent.open_pty("seq", sh("stty -opost; seq 1 80000"));
    let ended = (0..2_000).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        let listed = agent.call("pty.list", map([])).field("ptys");
        field(&listed.as_array().unwrap()[0], "alive").as_bool() == Some(false)
    });
    assert!(ended, "the program still runs");
    let id = attach(&mut agent, "seq");
    let answer = agent.wait(id);
    let expected: String = (1..=80_000).map(|number| format!("{number}\n")).collect();
    assert!(answer.stream("output") == expected.as_bytes());
}

#[test]
fn attached_terminal_sends_megabytes_in_order() {
    let mut agent = Agent::start();
    agent.open_pty("seq", sh("stty -opost; seq 1 300000"));
    let id = attach(&mut agent, "seq");
    let answer = agent.wait(id);
    let expected: String = (1..=300_000).map(|number| format!("{number}\n")).collect();
    assert!(answer.stream("output") == expected.as_bytes());
}

#[test]
fn terminal_of_another_user_belongs_to_it() {
    let mut agent = Agent::start();
    let script = sh("id -un; stat -c %U $(tty); echo x > $(tty); read line");
    agent.call(
        "pty.open",
        map([("name", "user".into()), ("argv", script), ("user", "nobody".into())]),
    );
    let text = agent.read_until_input("user").text("data");
    assert_eq!(text.replace('\r', ""), "nobody\nnobody\nx\n");
}
