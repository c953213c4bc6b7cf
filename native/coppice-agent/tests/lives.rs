//! `resume`: a new life of the guest, in which nothing of an earlier one is answered. These need root: they set the
//! clock (to what it is) and the host name (of a namespace).

#![allow(clippy::unwrap_used)]

mod common;

use std::io::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use common::{Agent, Answer, map, sh};
use coppice_wire::Value;
use coppice_wire::agent::ReplyBody;
use nix::sched::CloneFlags;

fn realtime_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64
}

fn resume_args(generation: u64, seed: Option<u8>) -> Value {
    let mut entries = vec![
        ("generation", Value::from(generation)),
        ("realtimeNs", realtime_ns().into()),
        ("hostname", format!("life-{generation}").into()),
        ("machineId", format!("{generation:032x}").into()),
    ];
    if let Some(byte) = seed {
        entries.push(("seed", Value::Binary(vec![byte; 64])));
    }
    Value::Map(
        entries
            .into_iter()
            .map(|(key, value)| (Value::from(key), value))
            .collect(),
    )
}

fn resume(agent: &mut Agent, generation: u64) -> Answer {
    agent.generation = generation;
    agent.call("resume", resume_args(generation, Some(7)))
}

fn machine() -> Agent {
    Agent::start_with(CloneFlags::CLONE_NEWUTS)
}

#[test]
fn resume_gives_the_life_its_names_and_a_boot_id_of_its_own() {
    let mut agent = machine();
    let mut boot_ids = Vec::new();
    for generation in [9, 10, 3] {
        let answer = resume(&mut agent, generation);
        assert_eq!(
            answer.field("generation").as_u64(),
            Some(generation),
            "{}",
            answer.message()
        );
        assert!(answer.field("realtimeNs").as_u64().unwrap().abs_diff(realtime_ns()) < 1_000_000_000);
        let file = |name: &str| std::fs::read_to_string(agent.directory.join(name)).unwrap();
        assert_eq!(file("generation"), format!("{generation}\n"));
        assert_eq!(file("machine-id"), format!("{generation:032x}\n"));
        assert_eq!(file("hostname"), format!("life-{generation}\n"));
        assert_eq!(file("boot_id").trim_end(), answer.text("bootId"));
        boot_ids.push(answer.text("bootId"));
        assert_eq!(agent.shell("uname -n"), format!("life-{generation}\n"));
        assert_eq!(agent.call("ping", map([])).text("bootId"), boot_ids[boot_ids.len() - 1]);
    }
    boot_ids.dedup();
    assert_eq!(boot_ids.len(), 3);
}

#[test]
fn resume_without_a_seed_derives_the_boot_id_from_the_names_alone() {
    let mut ids = Vec::new();
    for _ in 0..2 {
        let mut agent = machine();
        agent.generation = 5;
        ids.push(agent.call("resume", resume_args(5, None)).text("bootId"));
        agent.generation = 6;
        assert_ne!(agent.call("resume", resume_args(6, None)).text("bootId"), ids[0]);
    }
    assert_eq!(ids[0], ids[1]);
}

#[test]
fn resume_that_is_not_allowed_names_the_step() {
    // A name space of users of its own has no right on the machine's randomness.
    let mut agent = Agent::start_with(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWUTS);
    let answer = resume(&mut agent, 1);
    assert_eq!(answer.code(), "RESUME_FAILED");
    assert!(answer.message().contains("entropy"), "{}", answer.message());
    agent.generation = 2;
    let answer = agent.call("resume", resume_args(2, None));
    assert_eq!(answer.code(), "RESUME_FAILED");
    assert!(answer.message().contains("clock"), "{}", answer.message());
}

#[test]
fn resume_with_missing_or_unfit_arguments_names_the_field_and_changes_nothing() {
    let mut agent = machine();
    agent.generation = 1;
    assert!(
        agent
            .call("resume", map([("generation", 1.into())]))
            .message()
            .contains("'realtimeNs'")
    );
    agent.generation = 0;
    assert_eq!(agent.shell("echo generation 0 lives on"), "generation 0 lives on\n");
}

#[test]
fn clock_is_moved_on_in_the_same_life_and_by_nothing_else_than_one_of_its_two_arguments() {
    let mut agent = machine();
    resume(&mut agent, 1);
    let answer = agent.call("clock", map([("stoppedNs", 0.into())]));
    assert!(answer.field("realtimeNs").as_u64().unwrap().abs_diff(realtime_ns()) < 1_000_000_000);
    for arguments in [
        map([]),
        map([("stoppedNs", (-1).into())]),
        map([("stoppedNs", 1.into()), ("realtimeNs", 1.into())]),
    ] {
        assert_eq!(agent.call("clock", arguments).code(), "INVALID_ARGUMENT");
    }
    agent.generation = 0;
    assert_eq!(
        agent.call("clock", map([("stoppedNs", 0.into())])).code(),
        "STALE_GENERATION"
    );
}

#[test]
fn programs_of_an_earlier_life_run_on_and_nothing_of_them_is_reported() {
    let mut agent = machine();
    resume(&mut agent, 1);
    let marker = agent.directory.join("ran-on");
    let script = format!(
        "echo before; sleep 0.4; echo after; head -c 300000 /dev/zero; echo $? > {}",
        marker.display()
    );
    agent.post("exec", map([("argv", sh(&script)), ("timeoutMs", 500.into())]));
    assert!(matches!(agent.next().body, ReplyBody::Chunk(_)));
    resume(&mut agent, 2);
    assert_eq!(
        agent.next_within(Duration::from_millis(900)).map(|reply| reply.id),
        None
    );
    // Neither the time limit of the request nor the missing reader has ended it.
    assert_eq!(std::fs::read_to_string(&marker).unwrap(), "0\n");
    assert_eq!(agent.shell("echo new life"), "new life\n");
}

#[test]
fn terminal_of_an_earlier_life_lives_on_and_its_wait_is_over() {
    let mut agent = machine();
    resume(&mut agent, 1);
    agent.open_pty("t", sh("echo kept; sleep 0.3; exec cat"));
    agent.post(
        "pty.send",
        map([("name", "t".into()), ("until", map([("kind", "input".into())]))]),
    );
    agent.call("ping", map([]));
    resume(&mut agent, 2);
    assert_eq!(
        agent.next_within(Duration::from_millis(600)).map(|reply| reply.id),
        None
    );
    assert_eq!(agent.read_until_input("t").text("data"), "kept\r\n");
    assert_eq!(agent.type_line("t", "x\n").text("data"), "x\r\nx\r\n");
}

#[test]
fn request_of_another_life_is_refused_under_its_own_generation() {
    let mut agent = machine();
    resume(&mut agent, 2);
    agent.generation = 1;
    let id = agent.post("exec", map([("argv", sh("touch /never"))]));
    let reply = agent.next();
    assert_eq!((reply.id, reply.generation), (id, 1));
    assert!(matches!(reply.body, ReplyBody::Err(failure) if failure.code == "STALE_GENERATION"));
    // Only who is alive is asked after by ping, whatever the life.
    assert!(agent.call("ping", map([])).ok.is_some());
}

#[test]
fn frame_half_sent_at_the_resume_is_completed_and_the_rest_of_that_life_is_dropped() {
    let mut agent = machine();
    resume(&mut agent, 1);
    // Far more than the socket holds: the agent stops in the middle of a chunk.
    agent.post("exec", map([("argv", sh("head -c 8000000 /dev/zero"))]));
    std::thread::sleep(Duration::from_millis(300));
    agent.generation = 2;
    let id = agent.post("resume", resume_args(2, Some(1)));
    let mut old = 0;
    loop {
        // Every frame decodes: none was cut.
        let reply = agent.next();
        if reply.id == id {
            assert!(matches!(reply.body, ReplyBody::Ok(_)));
            break;
        }
        assert!(matches!(reply.body, ReplyBody::Chunk(_)));
        assert_eq!(reply.generation, 1);
        old += 1;
    }
    // Those that were with the kernel, and the one half sent; not the agent's whole buffer after it.
    assert!((1..120).contains(&old), "{old} frames of the old life");
    assert_eq!(
        agent.next_within(Duration::from_millis(200)).map(|reply| reply.id),
        None
    );
    assert_eq!(agent.shell("echo ok"), "ok\n");
}

#[test]
fn frames_that_arrive_in_pieces_are_taken_whole() {
    let mut agent = Agent::start();
    let (id, frame) = agent.frame("ping", map([]));
    for byte in frame {
        agent.stream.write_all(&[byte]).unwrap();
    }
    assert!(agent.wait(id).ok.is_some());
    let (first, one) = agent.frame("ping", map([]));
    let (second, two) = agent.frame("ping", map([]));
    agent.stream.write_all(&[one, two].concat()).unwrap();
    agent.wait(first);
    agent.wait(second);
}

#[test]
fn request_that_is_none_is_dropped_and_the_next_is_served() {
    let mut agent = Agent::start();
    let garbage = coppice_wire::encode_frame(&"not a request").unwrap();
    agent.stream.write_all(&garbage).unwrap();
    assert_eq!(agent.call("no.such.op", map([])).code(), "UNKNOWN_OPERATION");
    assert!(agent.call("ping", map([])).ok.is_some());
    assert_eq!(agent.call("ping", map([("x", 1.into())])).code(), "INVALID_ARGUMENT");
}

#[test]
fn agent_whose_host_is_gone_ends_and_takes_its_programs_along() {
    let mut agent = Agent::start();
    let sleep = format!("sleep 301.{}", std::process::id());
    agent.post("exec", map([("argv", sh(&sleep))]));
    agent.open_pty("t", sh(&sleep));
    let pid = agent.pid();
    drop(agent);
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    let left = std::process::Command::new("pgrep")
        .args(["-xf", &sleep])
        .status()
        .unwrap();
    assert!(!left.success());
}
