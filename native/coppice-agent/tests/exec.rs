//! `exec` on real processes. B44 is the field report of programs that leave children behind.

#![allow(clippy::unwrap_used)]

mod common;

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use common::{Agent, Answer, argv, map, sh};
use coppice_wire::Value;

fn exec_for(agent: &mut Agent, script: &str, timeout_ms: u64) -> Answer {
    agent.call("exec", map([("argv", sh(script)), ("timeoutMs", timeout_ms.into())]))
}

/// A command that nothing else on the machine runs.
fn long_sleep(number: u32) -> String {
    format!("sleep 300.{number}{}", std::process::id())
}

/// Waits until that many processes run the command.
fn wait_for_count(agent: &mut Agent, command: &str, count: usize) {
    for _ in 0..200 {
        if agent.shell(&format!("pgrep -xf '{command}'")).lines().count() == count {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("never {count} of '{command}'");
}

fn exec_with_input(agent: &mut Agent, script: &str, input: Vec<u8>) -> Answer {
    agent.call("exec", map([("argv", sh(script)), ("stdin", Value::Binary(input))]))
}

#[test]
fn exec_of_a_program_that_prints_on_both_streams_keeps_them_apart_and_returns_its_code() {
    let answer = Agent::start().exec(sh("echo out; echo err >&2; exit 3"));
    assert_eq!(answer.stream("stdout"), b"out\n");
    assert_eq!(answer.stream("stderr"), b"err\n");
    assert_eq!(answer.exit_code(), Some(3));
    assert!(answer.field("signal").is_nil());
    assert_eq!(answer.field("timedOut").as_bool(), Some(false));
    assert_eq!(answer.field("truncated").as_bool(), Some(false));
    assert!(answer.field("durationUs").as_u64().unwrap() > 0);
}

#[test]
fn exec_of_a_program_that_kills_itself_returns_the_signal() {
    let answer = Agent::start().exec(sh("kill -SEGV $$"));
    assert_eq!(answer.text("signal"), "SIGSEGV");
    assert!(answer.field("exitCode").is_nil());
}

#[test]
fn b44_exec_of_a_shell_that_leaves_a_child_on_its_output_returns_at_once() {
    let answer = exec_for(&mut Agent::start(), "sleep 25 & echo hi", 20_000);
    assert_eq!(answer.stdout(), "hi\n");
    assert_eq!(answer.exit_code(), Some(0));
    assert_eq!(answer.field("timedOut").as_bool(), Some(false));
}

#[test]
fn b44_exec_over_its_time_returns_with_the_flag_and_no_survivor_of_its_group() {
    let mut agent = Agent::start();
    let sleep = long_sleep(44);
    let answer = exec_for(&mut agent, &format!("echo early; {sleep} & {sleep}; echo never"), 300);
    assert_eq!(answer.stdout(), "early\n");
    assert_eq!(answer.field("timedOut").as_bool(), Some(true));
    assert_eq!(answer.text("signal"), "SIGKILL");
    assert!(answer.took >= Duration::from_millis(300) && answer.took < Duration::from_secs(5));
    wait_for_count(&mut agent, &sleep, 0);
}

#[test]
fn b44_exec_of_a_detached_program_returns_at_once_and_leaves_it_running() {
    let mut agent = Agent::start();
    let sleep = long_sleep(45);
    let answer = exec_for(&mut agent, &format!("setsid nohup {sleep} & echo started"), 20_000);
    assert_eq!(answer.stdout(), "started\n");
    assert_eq!(answer.field("timedOut").as_bool(), Some(false));
    wait_for_count(&mut agent, &sleep, 1);
    agent.shell(&format!("pkill -xf '{sleep}'"));
}

#[test]
fn b44_exec_of_cat_without_stdin_ends_at_once() {
    let answer = Agent::start().exec(argv(&["cat"]));
    assert_eq!(answer.exit_code(), Some(0));
    assert_eq!(answer.stdout(), "");
}

#[test]
fn b44_exec_that_prints_10_mib_of_a_three_byte_character_returns_every_byte() {
    let character = "\u{20ac}";
    let count = 10 * 1024 * 1024 / character.len();
    let script = format!("yes '{character}' | tr -d '\\n' | head -c {}", count * character.len());
    let answer = Agent::start().exec(sh(&script));
    assert_eq!(answer.stream("stdout").len(), count * character.len());
    assert!(answer.stdout().chars().all(|one| one == '\u{20ac}'));
    assert!(answer.largest_chunk <= 64 * 1024);
    assert_eq!(answer.field("truncated").as_bool(), Some(false));
}

#[test]
fn b44_exec_that_prints_3_mib_on_stderr_only_returns_it_there() {
    let answer = Agent::start().exec(sh("head -c 3145728 /dev/zero >&2"));
    assert_eq!(answer.stream("stderr").len(), 3_145_728);
    assert!(answer.stream("stdout").is_empty());
}

#[test]
fn exec_with_a_limit_keeps_that_many_bytes_of_both_streams_and_lets_the_program_end() {
    let mut agent = Agent::start();
    let script = "head -c 100000 /dev/zero; head -c 100000 /dev/zero >&2; exit 7";
    let answer = agent.call(
        "exec",
        map([("argv", sh(script)), ("outputLimitBytes", 150_000.into())]),
    );
    assert_eq!(answer.stream("stdout").len() + answer.stream("stderr").len(), 150_000);
    assert_eq!(answer.field("truncated").as_bool(), Some(true));
    assert_eq!(answer.exit_code(), Some(7));
}

#[test]
fn exec_with_more_stdin_than_a_pipe_holds_passes_every_byte() {
    let input: Vec<u8> = (0..3_000_000u32).map(|index| (index % 251) as u8).collect();
    let answer = exec_with_input(&mut Agent::start(), "cat", input.clone());
    assert!(answer.stream("stdout") == input);
}

#[test]
fn exec_of_a_program_that_does_not_read_its_stdin_ends_as_it_wants() {
    let answer = exec_with_input(&mut Agent::start(), "exit 4", vec![0; 1_000_000]);
    assert_eq!(answer.exit_code(), Some(4));
}

#[test]
fn exec_with_env_and_cwd_gives_them_to_the_program() {
    let mut agent = Agent::start();
    let env = map([("GREETING", "hello".into()), ("HOME", "/nowhere".into())]);
    let script = sh("echo $GREETING $HOME $LANG; pwd; ps -o pgid= -p $$ | tr -d ' '; echo $$; ulimit -Sn");
    let answer = agent.call(
        "exec",
        map([("argv", script), ("env", env), ("cwd", "/usr/lib".into())]),
    );
    let lines: Vec<&str> = answer.stdout().lines().collect();
    assert_eq!(lines[..2], ["hello /nowhere C.UTF-8", "/usr/lib"]);
    assert_eq!(lines[2], lines[3], "leader of its own process group");
    assert_eq!(lines[4], "1024");
}

#[test]
fn exec_starts_a_program_with_no_signal_blocked_and_three_descriptors() {
    const SIGPIPE_BIT: u64 = 1 << 12;
    let answer = Agent::start().exec(sh("grep -E 'Sig(Blk|Ign)' /proc/self/status; ls /proc/self/fd"));
    let lines: Vec<&str> = answer.stdout().lines().collect();
    assert_eq!(lines[0], "SigBlk:\t0000000000000000");
    let ignored = u64::from_str_radix(lines[1].strip_prefix("SigIgn:\t").unwrap(), 16).unwrap();
    assert_eq!(ignored & SIGPIPE_BIT, 0, "the agent ignores it, programs must not");
    // 3 is the directory that ls reads.
    assert_eq!(lines[2..], ["0", "1", "2", "3"]);
}

#[test]
fn exec_that_can_not_start_says_why_with_a_code_of_its_own() {
    let mut agent = Agent::start();
    let directory = agent.directory.clone();
    let file = |name: &str, contents: &[u8], mode: u32| {
        let path = directory.join(name);
        std::fs::write(&path, contents).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let data = file("data", b"no program", 0o644);
    let orphan = file("orphan", b"#!/no/such/interpreter\n", 0o755);
    let binary = file("binary", &[0; 64], 0o755);
    let cases = [
        (vec!["no-such-program"], "EXEC_NOT_FOUND"),
        (vec!["/no/such/program"], "EXEC_NOT_FOUND"),
        (vec![&orphan], "EXEC_NOT_FOUND"),
        (vec![&data], "EXEC_NOT_EXECUTABLE"),
        (vec![&binary], "EXEC_NOT_EXECUTABLE"),
        (vec!["/"], "EXEC_NOT_EXECUTABLE"),
        (vec![], "INVALID_ARGUMENT"),
    ];
    for (words, code) in cases {
        let answer = agent.exec(argv(&words));
        assert_eq!(answer.code(), code, "{words:?}: {}", answer.message());
    }
    let missing = agent.call(
        "exec",
        map([("argv", argv(&["true"])), ("cwd", "/no/such/place".into())]),
    );
    assert_eq!(missing.code(), "EXEC_CWD_INVALID");
    assert!(missing.message().contains("/no/such/place"));
    let long = argv(&["true", &"x".repeat(200_000)]);
    assert_eq!(agent.exec(long).code(), "INVALID_ARGUMENT");
    assert_eq!(agent.shell("echo still here"), "still here\n");
}

#[test]
fn exec_with_arguments_of_the_wrong_kind_names_the_field() {
    let mut agent = Agent::start();
    let cases = [
        (map([("argv", "ls".into())]), "argv"),
        (map([("argv", argv(&["ls"])), ("env", 3.into())]), "env"),
        (map([("argv", argv(&["ls"])), ("cwd", 3.into())]), "cwd"),
        (map([("argv", argv(&["ls"])), ("timeoutMs", (-1).into())]), "timeoutMs"),
        (map([("argv", argv(&["ls"])), ("timeoutMs", 0.into())]), "timeoutMs"),
        (
            map([("argv", argv(&["ls"])), ("outputLimitBytes", "x".into())]),
            "outputLimitBytes",
        ),
        (map([("argv", argv(&["ls"])), ("timeout", 3.into())]), "timeout"),
        (map([]), "argv"),
    ];
    for (args, field) in cases {
        let answer = agent.call("exec", args);
        assert_eq!(answer.code(), "INVALID_ARGUMENT");
        assert!(answer.message().contains(&format!("'{field}'")), "{}", answer.message());
    }
}

#[test]
fn two_hundred_execs_at_once_each_return_their_own_output() {
    let mut agent = Agent::start();
    let script = |index: usize| sh(&format!("sleep 0.0{}; echo {index}", index % 10));
    let ids: Vec<u64> = (0..200)
        .map(|index| agent.post("exec", map([("argv", script(index))])))
        .collect();
    for (index, id) in ids.into_iter().enumerate() {
        assert_eq!(agent.wait(id).stdout(), format!("{index}\n"));
    }
}

#[test]
fn exec_over_the_limit_of_programs_at_once_is_refused_and_the_others_go_on() {
    let mut agent = Agent::start();
    let ids: Vec<u64> = (0..1_000)
        .map(|_| agent.post("exec", map([("argv", argv(&["sleep", "300"]))])))
        .collect();
    let refused = agent.exec(argv(&["true"]));
    assert_eq!(refused.code(), "EXEC_LIMIT");
    assert_eq!(
        agent
            .call("cancel", map([("target", ids[500].into())]))
            .field("found")
            .as_bool(),
        Some(true)
    );
    assert_eq!(agent.wait(ids[500]).text("signal"), "SIGKILL");
    assert_eq!(agent.exec(argv(&["true"])).exit_code(), Some(0));
}

#[test]
fn cancel_of_an_exec_kills_its_process_group() {
    let mut agent = Agent::start();
    let sleep = long_sleep(46);
    let id = agent.post("exec", map([("argv", sh(&format!("{sleep} & {sleep}")))]));
    wait_for_count(&mut agent, &sleep, 2);
    assert_eq!(
        agent
            .call("cancel", map([("target", id.into())]))
            .field("found")
            .as_bool(),
        Some(true)
    );
    assert_eq!(agent.wait(id).text("signal"), "SIGKILL");
    wait_for_count(&mut agent, &sleep, 0);
    assert_eq!(
        agent
            .call("cancel", map([("target", id.into())]))
            .field("found")
            .as_bool(),
        Some(false)
    );
}

#[test]
fn program_whose_output_the_host_does_not_take_waits_and_loses_nothing() {
    let mut agent = Agent::start();
    let id = agent.post("exec", map([("argv", sh("head -c 12000000 /dev/zero"))]));
    std::thread::sleep(Duration::from_millis(300));
    // What is on its way is bounded by the agent's buffer, a pipe and the socket, however long nobody reads.
    let status = std::fs::read_to_string(format!("/proc/{}/status", agent.pid())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    let resident_kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(resident_kib < 12_000, "{line}");
    assert_eq!(agent.wait(id).stream("stdout").len(), 12_000_000);
}

#[test]
fn child_left_behind_that_prints_on_is_neither_killed_nor_blocked() {
    let mut agent = Agent::start();
    let marker = agent.directory.join("survived");
    let script = format!(
        "(sleep 0.2; head -c 1000000 /dev/zero; echo $? > {}) & echo hi",
        marker.display()
    );
    let answer = agent.exec(sh(&script));
    assert_eq!(answer.stdout(), "hi\n");
    for _ in 0..200 {
        std::thread::sleep(Duration::from_millis(20));
        if std::fs::read_to_string(&marker).is_ok_and(|text| !text.is_empty()) {
            break;
        }
    }
    assert_eq!(std::fs::read_to_string(&marker).unwrap(), "0\n");
}

#[test]
fn child_left_behind_that_floods_does_not_hold_the_answer_up() {
    let mut agent = Agent::start();
    let answer = exec_for(&mut agent, "yes flood & echo hi", 20_000);
    assert_eq!(answer.exit_code(), Some(0));
    assert_eq!(answer.field("timedOut").as_bool(), Some(false));
    assert!(answer.took < Duration::from_secs(5), "took {:?}", answer.took);
    assert_eq!(agent.shell("echo next"), "next\n");
    agent.shell("pkill -xf 'yes flood'");
}

#[test]
fn orphans_are_reaped() {
    let mut agent = Agent::start();
    agent.shell("for i in 1 2 3 4 5; do (sh -c 'sleep 0.05 & exit' &) ; done");
    std::thread::sleep(Duration::from_millis(400));
    let pid = agent.pid();
    let zombies = agent.shell(&format!("ps -o stat= --ppid {pid} | grep -c Z || true"));
    assert_eq!(zombies, "0\n");
}
