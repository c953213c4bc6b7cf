//! Programs that are found by their name: in the background, fed while they run, read no faster than they are wanted.

#![allow(clippy::unwrap_used)]

mod common;

use std::time::Duration;

use common::{Agent, Answer, argv, field, map, sh};
use coppice_wire::Value;
use coppice_wire::agent::ReplyBody;

fn start(agent: &mut Agent, name: &str, script: &str) -> Answer {
    start_background(agent, name, script, false)
}

fn start_background(agent: &mut Agent, name: &str, script: &str, stdin_open: bool) -> Answer {
    let args = map([
        ("argv", sh(script)),
        ("name", name.into()),
        ("background", true.into()),
        ("stdinOpen", stdin_open.into()),
    ]);
    agent.call("exec", args)
}

/// Takes chunks until `wanted` bytes of output have come; all of them belong to one request.
fn receive(agent: &mut Agent, wanted: usize) -> usize {
    let mut received = 0;
    while received < wanted {
        match agent.next().body {
            ReplyBody::Chunk(chunk) if chunk.stream == "stdout" => received += chunk.data.len(),
            ReplyBody::Chunk(_) => {}
            other => panic!("answered with {other:?} after {received} bytes"),
        }
    }
    received
}

/// The agent has done what it could: it answers in order, and each answer is followed by what became ready meanwhile.
fn let_it_settle(agent: &mut Agent) {
    for _ in 0..50 {
        agent.shell("true");
    }
}

/// The only program that has a name runs no more.
fn wait_for_its_end(agent: &mut Agent) {
    let runs = |agent: &mut Agent| {
        let listed = agent.call("exec.list", map([])).field("processes");
        field(&listed.as_array().unwrap()[0], "running").as_bool() == Some(true)
    };
    while runs(agent) {
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn grant(agent: &mut Agent, name: &str, bytes: u64) {
    let args = map([("name", name.into()), ("bytes", bytes.into())]);
    assert!(agent.call("exec.window", args).err.is_none());
}

fn named(agent: &mut Agent, op: &str, name: &str) -> Answer {
    agent.call(op, map([("name", name.into())]))
}

fn write(agent: &mut Agent, name: &str, data: &[u8], end: bool) -> Answer {
    let data = Value::Binary(data.to_vec());
    agent.call(
        "exec.write",
        map([("name", name.into()), ("data", data), ("end", end.into())]),
    )
}

/// A foreground program with its stdin open, once requests on its name find it.
fn start_open(agent: &mut Agent, name: &str, command: Value) -> u64 {
    let id = agent.post(
        "exec",
        map([("argv", command), ("name", name.into()), ("stdinOpen", true.into())]),
    );
    assert!(matches!(agent.next().body, ReplyBody::Chunk(chunk) if chunk.stream == "started"));
    id
}

fn resume(agent: &mut Agent, generation: u64) {
    agent.generation = generation;
    let args = map([
        ("generation", generation.into()),
        ("stoppedNs", 1.into()),
        ("hostname", "test".into()),
        ("machineId", "0123456789abcdef0123456789abcdef".into()),
    ]);
    let answer = agent.call("resume", args);
    assert!(answer.err.is_none(), "{:?}", answer.err);
}

#[test]
fn background_program_is_answered_at_once_and_waited_for_later() {
    let mut agent = Agent::start();
    // It ends when its stdin does: so it runs when it is answered.
    let started = start_background(&mut agent, "job", "echo out; echo err >&2; read line; exit 5", true);
    assert!(started.field("pid").as_u64().unwrap() > 1);
    write(&mut agent, "job", b"", true);
    let ended = named(&mut agent, "exec.wait", "job");
    assert_eq!(
        (ended.stream("stdout"), ended.stream("stderr")),
        (&b"out\n"[..], &b"err\n"[..])
    );
    assert_eq!(ended.exit_code(), Some(5));
    // Its end is remembered, what it printed was given away.
    let again = named(&mut agent, "exec.wait", "job");
    assert_eq!((again.exit_code(), again.stream("stdout")), (Some(5), &b""[..]));
}

#[test]
fn background_program_keeps_its_output_up_to_the_limit_and_counts_the_rest() {
    let mut agent = Agent::start();
    let script = sh("head -c 100000 /dev/zero");
    let args = map([
        ("argv", script),
        ("name", "job".into()),
        ("background", true.into()),
        ("outputLimitBytes", 70_000.into()),
    ]);
    agent.call("exec", args);
    let ended = named(&mut agent, "exec.wait", "job");
    assert_eq!(ended.stream("stdout").len(), 70_000);
    assert_eq!(ended.field("droppedBytes").as_u64(), Some(30_000));
    assert_eq!(ended.field("truncated").as_bool(), Some(true));
    assert!(ended.largest_chunk <= 64 * 1024);
}

#[test]
fn background_program_of_an_earlier_life_is_found_waited_for_and_killed_in_the_next() {
    let mut agent = Agent::start();
    start(&mut agent, "server", "echo up; sleep 300 & wait");
    resume(&mut agent, 7);
    let listed = agent.call("exec.list", map([]));
    let rows = listed.field("processes");
    assert_eq!(field(&rows.as_array().unwrap()[0], "name").as_str(), Some("server"));
    let wait = agent.post("exec.wait", map([("name", "server".into())]));
    assert!(matches!(agent.next().body, ReplyBody::Chunk(chunk) if chunk.data == b"up\n"));
    let killed = agent.call("exec.kill", map([("name", "server".into()), ("signal", "TERM".into())]));
    assert_eq!(killed.field("running").as_bool(), Some(true));
    let ended = agent.wait(wait);
    assert_eq!(ended.text("signal"), "SIGTERM");
    let late = named(&mut agent, "exec.kill", "server");
    assert_eq!(late.field("running").as_bool(), Some(false));
}

#[test]
fn wait_that_is_cancelled_leaves_the_program_running() {
    let mut agent = Agent::start();
    start(&mut agent, "job", "sleep 0.5; echo done");
    let wait = agent.post("exec.wait", map([("name", "job".into())]));
    let busy = named(&mut agent, "exec.wait", "job");
    assert_eq!(busy.code(), "PROCESS_BUSY");
    agent.call("cancel", map([("target", wait.into())]));
    assert_eq!(agent.wait(wait).code(), "CANCELLED");
    assert_eq!(named(&mut agent, "exec.wait", "job").stdout(), "done\n");
}

#[test]
fn name_that_is_taken_or_unknown_is_refused() {
    let mut agent = Agent::start();
    start(&mut agent, "job", "sleep 5");
    assert_eq!(start(&mut agent, "job", "true").code(), "PROCESS_EXISTS");
    for op in ["exec.wait", "exec.kill", "exec.write"] {
        assert_eq!(named(&mut agent, op, "nobody").code(), "PROCESS_NOT_FOUND", "{op}");
    }
    let nameless = agent.call("exec", map([("argv", argv(&["true"])), ("background", true.into())]));
    assert_eq!(nameless.code(), "INVALID_ARGUMENT");
    let bad = agent.call("exec.kill", map([("name", "job".into()), ("signal", "NOSUCH".into())]));
    assert_eq!(bad.code(), "INVALID_ARGUMENT");
}

#[test]
fn stdin_that_is_written_while_the_program_runs_arrives_byte_for_byte() {
    let mut agent = Agent::start();
    let id = start_open(&mut agent, "cat", argv(&["cat"]));
    let piece: Vec<u8> = (0..200_000u32).map(|index| (index % 253) as u8).collect();
    for _ in 0..20 {
        assert_eq!(
            write(&mut agent, "cat", &piece, false).field("open").as_bool(),
            Some(true)
        );
    }
    assert_eq!(
        write(&mut agent, "cat", b"end", true).field("open").as_bool(),
        Some(false)
    );
    let answer = agent.wait(id);
    let mut expected = piece.repeat(20);
    expected.extend(b"end");
    assert!(answer.stream("stdout") == expected);
    assert_eq!(answer.exit_code(), Some(0));
}

#[test]
fn stdin_of_a_program_that_reads_nothing_waits_and_ends_with_it() {
    let mut agent = Agent::start();
    let id = start_open(&mut agent, "lazy", argv(&["sleep", "0.4"]));
    let data = Value::Binary(vec![0; 1_000_000]);
    let written = agent.post("exec.write", map([("name", "lazy".into()), ("data", data)]));
    assert_eq!(agent.wait(written).field("open").as_bool(), Some(false));
    assert_eq!(agent.wait(id).exit_code(), Some(0));
}

#[test]
fn output_beyond_the_window_waits_until_more_is_granted() {
    let mut agent = Agent::start();
    let id = agent.post(
        "exec",
        map([
            ("argv", sh("head -c 1000000 /dev/zero")),
            ("name", "job".into()),
            ("windowBytes", 100_000.into()),
        ]),
    );
    assert_eq!(receive(&mut agent, 100_000), 100_000);
    let_it_settle(&mut agent);
    assert_eq!(agent.early_bytes(id), 0);
    grant(&mut agent, "job", 2_000_000);
    let answer = agent.wait(id);
    assert_eq!(answer.stream("stdout").len(), 900_000);
    assert_eq!(answer.exit_code(), Some(0));
}

#[test]
fn wait_with_a_window_is_told_no_more_than_that_of_what_was_kept_and_of_what_comes() {
    let mut agent = Agent::start();
    let args = map([
        (
            "argv",
            sh("head -c 300000 /dev/zero; read line; head -c 300000 /dev/zero; exit 4"),
        ),
        ("name", "job".into()),
        ("background", true.into()),
        ("stdinOpen", true.into()),
    ]);
    agent.call("exec", args);
    let_it_settle(&mut agent);
    let wait = agent.post(
        "exec.wait",
        map([("name", "job".into()), ("windowBytes", 100_000.into())]),
    );
    assert_eq!(receive(&mut agent, 100_000), 100_000);
    write(&mut agent, "job", b"", true);
    let_it_settle(&mut agent);
    assert_eq!(agent.early_bytes(wait), 0);
    grant(&mut agent, "job", 150_000);
    let_it_settle(&mut agent);
    assert_eq!(agent.early_bytes(wait), 150_000);
    grant(&mut agent, "job", 1_000_000);
    let answer = agent.wait(wait);
    assert_eq!(answer.stream("stdout").len(), 500_000);
    assert_eq!(answer.exit_code(), Some(4));
}

#[test]
fn wait_with_a_window_for_a_program_that_has_ended_is_answered_when_all_is_sent() {
    let mut agent = Agent::start();
    start(&mut agent, "job", "head -c 90000 /dev/zero");
    wait_for_its_end(&mut agent);
    let_it_settle(&mut agent);
    let wait = agent.post(
        "exec.wait",
        map([("name", "job".into()), ("windowBytes", 50_000.into())]),
    );
    assert_eq!(receive(&mut agent, 50_000), 50_000);
    assert_eq!(start(&mut agent, "job", "true").code(), "PROCESS_EXISTS");
    grant(&mut agent, "job", 50_000);
    assert_eq!(agent.wait(wait).stream("stdout").len(), 40_000);
}

#[test]
fn program_that_has_ended_while_its_window_is_shut_is_answered_when_it_is_cancelled() {
    let mut agent = Agent::start();
    let id = agent.post(
        "exec",
        map([
            ("argv", sh("head -c 30000 /dev/zero")),
            ("name", "job".into()),
            ("windowBytes", 1_000.into()),
        ]),
    );
    assert_eq!(receive(&mut agent, 1_000), 1_000);
    wait_for_its_end(&mut agent);
    agent.call("cancel", map([("target", id.into())]));
    assert_eq!(agent.wait(id).stream("stdout").len(), 29_000);
    let listed = agent.call("exec.list", map([])).field("processes");
    assert_eq!(listed.as_array().unwrap().len(), 0);
}

#[test]
fn background_program_that_has_ended_gives_its_name_to_the_next() {
    let mut agent = Agent::start();
    for round in 0..3 {
        start(&mut agent, "server", &format!("exit {round}"));
        assert_eq!(named(&mut agent, "exec.wait", "server").exit_code(), Some(round));
    }
    let listed = agent.call("exec.list", map([])).field("processes");
    assert_eq!(listed.as_array().unwrap().len(), 1);
}

#[test]
fn program_that_waits_for_a_window_runs_on_in_the_next_life() {
    let mut agent = Agent::start();
    let args = map([
        ("argv", sh("head -c 1000000 /dev/zero; sleep 300")),
        ("name", "job".into()),
        ("windowBytes", 1_000.into()),
    ]);
    agent.post("exec", args);
    // The window is used up before the life ends.
    receive(&mut agent, 1_000);
    resume(&mut agent, 3);
    let asleep = (0..200).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        agent.shell("pgrep -cxf 'sleep 300' || true").trim() != "0"
    });
    assert!(asleep, "head still waits for somebody to read");
    named(&mut agent, "exec.kill", "job");
}

#[test]
fn gigabyte_of_output_is_taken_up_to_the_limit_and_counted() {
    let mut agent = Agent::start();
    let answer = agent.call(
        "exec",
        map([
            ("argv", sh("head -c 1073741824 /dev/zero")),
            ("outputLimitBytes", 1_048_576.into()),
        ]),
    );
    assert_eq!(answer.stream("stdout").len(), 1_048_576);
    assert_eq!(answer.field("droppedBytes").as_u64(), Some(1_073_741_824 - 1_048_576));
}

#[test]
fn hundred_programs_at_once_each_get_their_own_output() {
    let mut agent = Agent::start();
    let ids: Vec<u64> = (0..100)
        .map(|number| agent.post("exec", map([("argv", sh(&format!("sleep 0.1; echo {number}")))])))
        .collect();
    for (number, id) in ids.into_iter().enumerate() {
        assert_eq!(agent.wait(id).stdout(), format!("{number}\n"));
    }
}

#[test]
fn program_of_another_user_has_its_ids_groups_and_home() {
    let mut agent = Agent::start();
    let run = |agent: &mut Agent, user: &str, script: &str| {
        agent.call("exec", map([("argv", sh(script)), ("user", user.into())]))
    };
    let nobody = run(
        &mut agent,
        "nobody",
        "id -un; id -u; id -gn; echo $HOME $USER $LOGNAME; umask",
    );
    let expected = "nobody\n65534\nnogroup\n/nonexistent nobody nobody\n";
    assert!(nobody.stdout().starts_with(expected), "{}", nobody.stdout());
    assert_eq!(run(&mut agent, "4242:17", "id -u; id -G").stdout(), "4242\n17\n");
    let denied = run(&mut agent, "nobody", "cat /etc/shadow");
    assert_eq!(denied.exit_code(), Some(1));
    assert_eq!(run(&mut agent, "no-such-user", "true").code(), "EXEC_USER_UNKNOWN");
}

#[test]
fn program_of_another_user_can_not_enter_the_agents_own_directory() {
    let mut agent = Agent::start();
    let args = map([
        ("argv", argv(&["pwd"])),
        ("user", "nobody".into()),
        ("cwd", "/root".into()),
    ]);
    assert_eq!(agent.call("exec", args).code(), "EXEC_CWD_INVALID");
}
