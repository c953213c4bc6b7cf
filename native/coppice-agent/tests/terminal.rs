//! Terminals, and above all `until input`: programs of every kind, none of which may be taken for waiting while it works.

#![allow(clippy::unwrap_used)]

mod common;

use std::time::{Duration, Instant};

use common::{Agent, Answer, argv, map, sh};
use coppice_wire::Value;

fn send(agent: &mut Agent, name: &str, data: &str, until: Value, timeout_ms: u64) -> Answer {
    let data = Value::Binary(data.as_bytes().to_vec());
    let entries = [
        ("name", name.into()),
        ("data", data),
        ("until", until),
        ("timeoutMs", timeout_ms.into()),
    ];
    agent.call("pty.send", map(entries))
}

fn until_input() -> Value {
    map([("kind", "input".into())])
}

fn until_pattern(pattern: &str) -> Value {
    map([("kind", "pattern".into()), ("pattern", pattern.into())])
}

fn open(agent: &mut Agent, command: Value) {
    let answer = agent.open_pty("t", command);
    assert!(answer.ok.is_some(), "{}", answer.message());
}

/// Sends a line and expects that the program asks for more, having printed exactly this.
#[track_caller]
fn expect(agent: &mut Agent, line: &str, printed: &str) {
    let answer = agent.type_line("t", line);
    assert_eq!(
        (answer.text("reason").as_str(), answer.text("data").as_str()),
        ("input", printed)
    );
}

const PYTHON_WORKER: &str = "
import sys, time
for line in sys.stdin:
    end = time.monotonic() + 0.2
    while time.monotonic() < end: pass
    print('computed', line, end='', flush=True)
    time.sleep(0.1)
    print('slept', line, end='', flush=True)
";

#[test]
fn adventure_asks_for_each_command_and_its_answers_are_whole() {
    let mut agent = Agent::start();
    open(&mut agent, argv(&["/usr/games/adventure"]));
    let welcome = agent.read_until_input("t");
    assert_eq!(
        welcome.text("data"),
        "\r\nWelcome to Adventure!!  Would you like instructions?\r\n"
    );
    let mut texts = vec![agent.type_line("t", "no\n").text("data")];
    for _ in 0..30 {
        for line in ["in\n", "take lamp\n", "inventory\n", "drop lamp\n", "out\n"] {
            let answer = agent.type_line("t", line);
            assert_eq!(answer.text("reason"), "input");
            texts.push(answer.text("data"));
        }
    }
    assert!(texts.iter().all(|text| text.ends_with("\r\n")), "{texts:?}");
    assert!(texts.iter().filter(|text| text.contains("Brass lantern")).count() == 30);
    let quit = agent.type_line("t", "quit\n");
    assert!(quit.text("data").contains("Do you really want to quit now?"));
    let end = agent.type_line("t", "yes\n");
    assert_eq!(end.text("reason"), "exit");
    assert!(end.text("data").contains("You scored"));
    assert_eq!(common::field(&end.field("exit"), "exitCode").as_u64(), Some(0));
    let later = agent.read_until_input("t");
    assert_eq!(
        (later.text("reason").as_str(), later.text("data").as_str()),
        ("exit", "")
    );
}

#[test]
fn program_that_computes_and_sleeps_before_it_prints_is_waited_for() {
    let mut agent = Agent::start();
    open(&mut agent, argv(&["python3", "-c", PYTHON_WORKER]));
    expect(&mut agent, "one\n", "one\r\ncomputed one\r\nslept one\r\n");
    expect(&mut agent, "two\n", "two\r\ncomputed two\r\nslept two\r\n");
}

#[test]
fn cat_echoes_line_after_line() {
    let mut agent = Agent::start();
    open(&mut agent, argv(&["cat"]));
    for index in 0..200 {
        expect(&mut agent, &format!("{index}\n"), &format!("{index}\r\n{index}\r\n"));
    }
}

#[test]
fn line_that_is_not_ended_is_only_echoed_and_the_program_still_waits() {
    let mut agent = Agent::start();
    open(&mut agent, argv(&["cat"]));
    expect(&mut agent, "par", "par");
    expect(&mut agent, "t\n", "t\r\npart\r\n");
}

#[test]
fn shell_waits_for_its_foreground_command_and_not_for_its_background_one() {
    let mut agent = Agent::start();
    open(
        &mut agent,
        argv(&["bash", "--norc", "--noprofile", "--noediting", "-i"]),
    );
    let prompt = agent.read_until_input("t").text("data");
    assert!(prompt.ends_with("# ") || prompt.ends_with("$ "), "{prompt:?}");
    let foreground = agent.type_line("t", "sleep 0.3; echo done\n").text("data");
    assert!(foreground.contains("\r\ndone\r\n"), "{foreground:?}");
    let start = Instant::now();
    let background = agent.type_line("t", "sleep 20 &\n");
    assert_eq!(background.text("reason"), "input");
    assert!(start.elapsed() < Duration::from_secs(5));
    let nested = agent
        .type_line("t", "sh -c 'sh -c \"sleep 0.2; echo inner\"; echo outer'\n")
        .text("data");
    assert!(nested.contains("\r\ninner\r\nouter\r\n"), "{nested:?}");
}

#[test]
fn shell_with_line_editing_waits_in_a_select_on_the_terminal() {
    let mut agent = Agent::start();
    open(&mut agent, argv(&["bash", "--norc", "--noprofile", "-i"]));
    agent.read_until_input("t");
    let answer = agent.type_line("t", "sleep 0.2; echo $((6 * 7))\n");
    assert_eq!(answer.text("reason"), "input");
    assert!(
        answer.text("data").contains("\r\n42\r\n") || answer.text("data").contains("\r42\r\n"),
        "{:?}",
        answer.text("data")
    );
}

#[test]
fn python_at_its_prompt_waits() {
    let mut agent = Agent::start();
    open(&mut agent, argv(&["python3", "-q"]));
    let prompt = agent.read_until_input("t");
    assert_eq!(prompt.text("reason"), "input");
    assert!(prompt.text("data").contains(">>> "));
    let answer = agent.type_line("t", "import time; time.sleep(0.2); print(6 * 7)\n");
    assert!(answer.text("data").contains("42\r\n>>> "), "{:?}", answer.text("data"));
    let end = agent.type_line("t", "exit(3)\n");
    assert_eq!(end.text("reason"), "exit");
    assert_eq!(common::field(&end.field("exit"), "exitCode").as_u64(), Some(3));
}

#[test]
fn program_that_waits_with_poll_or_epoll_on_the_terminal_waits_for_input() {
    for poller in ["select.poll()", "select.epoll()"] {
        let script = format!(
            "import os, select, time\np = {poller}\np.register(0, select.POLLIN)\nwhile True:\n    p.poll()\n    \
             line = os.read(0, 99).decode()\n    time.sleep(0.1)\n    os.write(1, ('got ' + line).encode())\n"
        );
        let mut agent = Agent::start();
        open(&mut agent, argv(&["python3", "-c", &script]));
        assert_eq!(agent.read_until_input("t").text("reason"), "input");
        expect(&mut agent, "a\n", "a\r\ngot a\r\n");
    }
}

#[test]
fn program_that_polls_something_else_does_not_wait_for_input() {
    let mut agent = Agent::start();
    let script = "import os, select; r, w = os.pipe(); select.select([r], [], [], 30)";
    open(&mut agent, argv(&["python3", "-c", script]));
    let answer = send(&mut agent, "t", "", until_input(), 600);
    assert_eq!(answer.text("reason"), "timeout");
}

#[test]
fn program_that_sleeps_or_reads_a_pipe_does_not_wait_for_input() {
    for script in [
        "sleep 30",
        "sleep 30 | cat",
        "cat /dev/zero > /dev/null",
        "sleep 30 | cat & wait",
    ] {
        let mut agent = Agent::start();
        open(&mut agent, sh(script));
        let answer = send(&mut agent, "t", "", until_input(), 500);
        assert_eq!(answer.text("reason"), "timeout", "{script}");
    }
}

#[test]
fn pipeline_whose_first_program_reads_the_terminal_waits_only_when_the_others_are_done() {
    let mut agent = Agent::start();
    let slow = "while read line; do i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done; echo \"slow $line\"; done";
    open(&mut agent, sh(&format!("cat | sh -c '{slow}'")));
    for index in 0..5 {
        expect(
            &mut agent,
            &format!("{index}\n"),
            &format!("{index}\r\nslow {index}\r\n"),
        );
    }
    let mut agent = Agent::start();
    let sleepy = "while read line; do sleep 0.2; echo \"slept $line\"; done";
    open(&mut agent, sh(&format!("cat | sh -c '{sleepy}'")));
    expect(&mut agent, "a\n", "a\r\nslept a\r\n");
}

#[test]
fn thread_that_reads_while_another_computes_waits_only_when_that_one_is_done() {
    let script = "
import sys, threading, time
def work(line):
    end = time.monotonic() + 0.2
    while time.monotonic() < end: pass
    print('worked', line, end='', flush=True)
for line in sys.stdin:
    threading.Thread(target=work, args=[line]).start()
";
    let mut agent = Agent::start();
    open(&mut agent, argv(&["python3", "-c", script]));
    expect(&mut agent, "a\n", "a\r\nworked a\r\n");
    expect(&mut agent, "b\n", "b\r\nworked b\r\n");
}

#[test]
fn orphan_in_the_foreground_that_works_is_waited_for() {
    let mut agent = Agent::start();
    // The middle shell ends at once, so the working one has the agent as its parent.
    let work = "i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done; echo worked";
    open(&mut agent, sh(&format!("(sh -c '{work}' &) ; exec cat")));
    expect(&mut agent, "", "worked\r\n");
}

#[test]
fn interrupt_ends_the_foreground_command_and_the_shell_waits_again() {
    // The word comes from the command itself: until then the shell may still be making it.
    const COMMAND: &str = "sh -c 'echo go; exec sleep 300'\n";
    let mut agent = Agent::start();
    open(
        &mut agent,
        argv(&["bash", "--norc", "--noprofile", "--noediting", "-i"]),
    );
    agent.read_until_input("t");
    let started = send(&mut agent, "t", COMMAND, until_pattern("go\r\n"), 5_000);
    assert_eq!(started.text("reason"), "pattern");
    let answer = agent.type_line("t", "\x03");
    assert_eq!(answer.text("reason"), "input");
    send(&mut agent, "t", COMMAND, until_pattern("go\r\n"), 5_000);
    let signalled = agent.call("pty.signal", map([("name", "t".into()), ("signal", "SIGINT".into())]));
    assert!(signalled.ok.is_some());
    assert_eq!(agent.read_until_input("t").text("reason"), "input");
}

#[test]
fn stopped_program_does_not_wait_for_input() {
    let mut agent = Agent::start();
    open(&mut agent, argv(&["cat"]));
    agent.read_until_input("t");
    let pid = common::field(
        &agent.call("pty.list", map([])).field("ptys").as_array().unwrap()[0],
        "pid",
    );
    agent.shell(&format!("kill -STOP {pid}"));
    let stopped = send(&mut agent, "t", "", until_input(), 300);
    assert_eq!(stopped.text("reason"), "timeout");
    agent.shell(&format!("kill -CONT {pid}"));
    assert_eq!(agent.read_until_input("t").text("reason"), "input");
}

#[test]
fn terminal_that_its_program_hangs_up_and_opens_again_still_works() {
    let script = "
import ctypes, os, signal
signal.signal(signal.SIGHUP, signal.SIG_IGN)
name = os.ttyname(0)
ctypes.CDLL(None).vhangup()
for fd in range(3): os.close(fd)
os.open(name, os.O_RDWR); os.dup(0); os.dup(0)
while True:
    line = os.read(0, 99)
    os.write(1, b'again ' + line)
";
    let mut agent = Agent::start();
    open(&mut agent, argv(&["python3", "-c", script]));
    agent.read_until_input("t");
    let answer = agent.type_line("t", "x\n");
    assert_eq!(answer.text("reason"), "input");
    assert!(
        answer.text("data").ends_with("again x\r\n"),
        "{:?}",
        answer.text("data")
    );
}

#[test]
fn output_that_nobody_waited_for_belongs_to_the_next_read() {
    let mut agent = Agent::start();
    open(&mut agent, sh("echo early; exec cat"));
    let none = send(&mut agent, "t", "first\n", map([("kind", "none".into())]), 1_000);
    assert_eq!(none.text("reason"), "none");
    let all = none.text("data") + &agent.read_until_input("t").text("data");
    assert!(all.contains("early\r\n") && all.ends_with("first\r\n"), "{all:?}");
}

#[test]
fn output_over_the_buffer_that_nobody_reads_keeps_the_newest_and_says_how_much_is_gone() {
    let mut agent = Agent::start();
    open(
        &mut agent,
        sh("head -c 3000000 /dev/zero | tr '\\0' x; echo; echo last; exec cat"),
    );
    std::thread::sleep(Duration::from_millis(1_500));
    let answer = agent.read_until_input("t");
    let data = answer.text("data");
    let (kept, dropped) = (data.len() as u64, answer.field("dropped").as_u64().unwrap_or(0));
    assert!(data.ends_with("last\r\n") || answer.text("reason") == "limit");
    let rest = if answer.text("reason") == "limit" {
        agent.read_until_input("t").text("data").len() as u64
    } else {
        0
    };
    assert_eq!(kept + dropped + rest, 3_000_000 + "\r\nlast\r\n".len() as u64);
    assert!(dropped > 1_000_000);
}

#[test]
fn quiet_waits_for_silence_and_pattern_for_its_match() {
    let mut agent = Agent::start();
    open(
        &mut agent,
        sh("stty -echo; while read x; do echo $x 1; sleep 0.15; echo $x 2; done"),
    );
    agent.read_until_input("t");
    let quiet = map([("kind", "quiet".into()), ("quietMs", 400.into())]);
    let answer = send(&mut agent, "t", "a\n", quiet, 5_000);
    assert_eq!(
        (answer.text("reason").as_str(), answer.text("data").as_str()),
        ("quiet", "a 1\r\na 2\r\n")
    );
    let answer = send(&mut agent, "t", "b\n", until_pattern("b \\d"), 5_000);
    assert_eq!(
        (answer.text("reason").as_str(), answer.text("data").as_str()),
        ("pattern", "b 1")
    );
    // What follows the match is left for the next read, in which it does not count as after the write.
    let answer = send(&mut agent, "t", "", until_pattern("b \\d"), 5_000);
    assert_eq!(
        (answer.text("reason").as_str(), answer.text("data").as_str()),
        ("pattern", "\r\nb 2")
    );
    let bad = send(&mut agent, "t", "", until_pattern("("), 5_000);
    assert_eq!(bad.code(), "INVALID_ARGUMENT");
    assert!(bad.message().contains("'until.pattern'"));
}

#[test]
fn send_over_its_time_or_its_size_says_so_and_keeps_the_rest() {
    let mut agent = Agent::start();
    open(&mut agent, sh("stty -echo; read x; printf abcdef; read x"));
    agent.read_until_input("t");
    let entries = [
        ("name", "t".into()),
        ("data", "\n".into()),
        ("until", until_input()),
        ("maxBytes", 4.into()),
    ];
    let limited = agent.call("pty.send", map(entries));
    assert_eq!(
        (limited.text("reason").as_str(), limited.text("data").as_str()),
        ("limit", "abcd")
    );
    let late = send(&mut agent, "t", "", until_pattern("never"), 200);
    assert_eq!(
        (late.text("reason").as_str(), late.text("data").as_str()),
        ("timeout", "ef")
    );
    assert!(late.took >= Duration::from_millis(190));
}

#[test]
fn input_larger_than_the_terminal_takes_at_once_is_passed_on_as_it_reads() {
    let mut agent = Agent::start();
    open(
        &mut agent,
        sh("stty -echo raw; head -c 300000 | cksum; stty sane; exec cat"),
    );
    agent.read_until_input("t");
    let data: String = (0..300_000)
        .map(|index| char::from(b'a' + (index % 26) as u8))
        .collect();
    let answer = send(&mut agent, "t", &data, until_input(), 20_000);
    let expected = agent
        .call("exec", map([("argv", argv(&["cksum"])), ("stdin", data.into())]))
        .stdout()
        .trim()
        .to_owned();
    assert_eq!(answer.text("reason"), "input");
    assert_eq!(answer.text("data").trim(), expected);
}

#[test]
fn second_send_on_a_waiting_terminal_is_refused_and_cancel_frees_it() {
    let mut agent = Agent::start();
    open(&mut agent, sh("echo kept; sleep 300"));
    let entries = [
        ("name", "t".into()),
        ("until", until_input()),
        ("timeoutMs", 60_000.into()),
    ];
    let waiting = agent.post("pty.send", map(entries));
    assert_eq!(agent.read_until_input("t").code(), "PTY_BUSY");
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(
        agent
            .call("cancel", map([("target", waiting.into())]))
            .field("found")
            .as_bool(),
        Some(true)
    );
    assert_eq!(agent.wait(waiting).code(), "CANCELLED");
    let none = send(&mut agent, "t", "", map([("kind", "none".into())]), 100);
    assert_eq!(none.text("data"), "kept\r\n");
}

#[test]
fn close_ends_the_program_and_answers_who_waits() {
    let mut agent = Agent::start();
    open(&mut agent, sh("trap '' HUP INT TERM; sleep 300 & wait"));
    let waiting = agent.post("pty.send", map([("name", "t".into()), ("until", until_input())]));
    let pid = common::field(
        &agent.call("pty.list", map([])).field("ptys").as_array().unwrap()[0],
        "pid",
    );
    assert!(agent.call("pty.close", map([("name", "t".into())])).ok.is_some());
    assert_eq!(agent.wait(waiting).code(), "PTY_CLOSED");
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(agent.shell(&format!("ps -o pid= -s {pid} | wc -l")).trim(), "0");
    assert_eq!(agent.read_until_input("t").code(), "PTY_NOT_FOUND");
    open(&mut agent, argv(&["cat"]));
}

#[test]
fn terminals_are_listed_resized_and_limited() {
    let mut agent = Agent::start();
    let entries = [
        ("name", "t".into()),
        (
            "argv",
            sh("stty size; trap 'stty size' WINCH; while :; do read x; done"),
        ),
        ("cols", 100.into()),
        ("rows", 30.into()),
    ];
    agent.call("pty.open", map(entries));
    assert_eq!(agent.read_until_input("t").text("data"), "30 100\r\n");
    agent.call(
        "pty.resize",
        map([("name", "t".into()), ("cols", 81.into()), ("rows", 25.into())]),
    );
    let resized = send(&mut agent, "t", "", until_pattern("\\d+ \\d+\r\n"), 5_000);
    assert_eq!(resized.text("data"), "25 81\r\n");
    assert_eq!(agent.open_pty("t", argv(&["cat"])).code(), "PTY_EXISTS");
    for index in 1..64 {
        assert!(agent.open_pty(&format!("p{index}"), argv(&["cat"])).ok.is_some());
    }
    assert_eq!(agent.open_pty("more", argv(&["cat"])).code(), "PTY_LIMIT");
    assert_eq!(
        agent.call("pty.list", map([])).field("ptys").as_array().unwrap().len(),
        64
    );
    assert_eq!(agent.open_pty("x", argv(&["no-such-program"])).code(), "PTY_LIMIT");
    agent.call("pty.close", map([("name", "p1".into())]));
    assert_eq!(agent.open_pty("x", argv(&["no-such-program"])).code(), "EXEC_NOT_FOUND");
    assert_eq!(agent.open_pty("p1", argv(&["cat"])).code(), "");
}

#[test]
fn program_on_a_terminal_leads_its_session_and_owns_the_terminal() {
    let mut agent = Agent::start();
    open(
        &mut agent,
        sh("ps -o pid=,pgid=,sid=,tpgid= -p $$; tty; cat < /dev/tty"),
    );
    let text = agent.read_until_input("t").text("data");
    let ids: Vec<&str> = text.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(ids[0], ids[1]);
    assert_eq!(ids[0], ids[2]);
    assert!(text.lines().nth(1).unwrap().starts_with("/dev/pts/"));
    // cat reads the terminal through its other name.
    let answer = agent.type_line("t", "x\n");
    assert_eq!(
        (answer.text("reason").as_str(), answer.text("data").as_str()),
        ("input", "x\r\nx\r\n")
    );
}

#[test]
fn program_killed_on_a_terminal_ends_the_wait_with_its_signal() {
    let mut agent = Agent::start();
    open(&mut agent, sh("echo bye; kill -9 $$"));
    let answer = agent.read_until_input("t");
    assert_eq!(
        (answer.text("reason").as_str(), answer.text("data").as_str()),
        ("exit", "bye\r\n")
    );
    assert_eq!(common::field(&answer.field("exit"), "signal").as_str(), Some("SIGKILL"));
    let gone = agent.call("pty.signal", map([("name", "t".into()), ("signal", "TERM".into())]));
    assert_eq!(gone.code(), "PTY_ENDED");
}
