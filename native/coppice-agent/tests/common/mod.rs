//! Drives a real agent process over a Unix socket.

#![allow(dead_code, clippy::unwrap_used)]

use std::collections::HashMap;
use std::io::ErrorKind;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use coppice_wire::agent::{AgentFailure, Reply, ReplyBody, Request};
use coppice_wire::frame::{read_message, write_message};
use coppice_wire::{Value, encode_frame};
use nix::sched::CloneFlags;

/// Longer than any answer may take, also on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(30);

static NEXT_DIRECTORY: AtomicU64 = AtomicU64::new(0);

/// One agent and the test's end of its port.
pub struct Agent {
    child: Child,
    pub stream: UnixStream,
    pub directory: PathBuf,
    pub generation: u64,
    next_id: u64,
    /// Replies that came while another was waited for.
    early: Vec<Reply>,
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
        let deadline = Instant::now() + Duration::from_secs(5);
        while Instant::now() < deadline && !matches!(self.child.try_wait(), Ok(Some(_))) {
            std::thread::sleep(Duration::from_millis(2));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Everything that an answer consisted of.
#[derive(Debug, Default)]
pub struct Answer {
    pub ok: Option<Value>,
    pub err: Option<AgentFailure>,
    pub streams: HashMap<String, Vec<u8>>,
    pub largest_chunk: usize,
    pub took: Duration,
}

impl Answer {
    pub fn stream(&self, name: &str) -> &[u8] {
        self.streams.get(name).map_or(&[], Vec::as_slice)
    }

    pub fn stdout(&self) -> &str {
        std::str::from_utf8(self.stream("stdout")).unwrap()
    }

    pub fn field(&self, name: &str) -> Value {
        let ok = self.ok.as_ref().unwrap_or_else(|| panic!("refused: {:?}", self.err));
        field(ok, name)
    }

    pub fn text(&self, name: &str) -> String {
        match self.field(name) {
            Value::Binary(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Value::String(text) => text.into_str().unwrap(),
            other => panic!("{name} is {other}"),
        }
    }

    pub fn code(&self) -> &str {
        self.err.as_ref().map_or("", |failure| &failure.code)
    }

    pub fn message(&self) -> &str {
        self.err.as_ref().map_or("", |failure| &failure.message)
    }

    pub fn exit_code(&self) -> Option<u64> {
        self.field("exitCode").as_u64()
    }
}

pub fn field(value: &Value, name: &str) -> Value {
    let entries = value.as_map().unwrap();
    entries
        .iter()
        .find(|(key, _)| key.as_str() == Some(name))
        .map_or(Value::Nil, |(_, value)| value.clone())
}

pub fn map<const N: usize>(entries: [(&str, Value); N]) -> Value {
    Value::Map(
        entries
            .into_iter()
            .map(|(key, value)| (Value::from(key), value))
            .collect(),
    )
}

pub fn argv(words: &[&str]) -> Value {
    Value::Array(words.iter().map(|word| Value::from(*word)).collect())
}

pub fn sh(script: &str) -> Value {
    argv(&["/bin/sh", "-c", script])
}

impl Agent {
    pub fn start() -> Self {
        Self::start_with(CloneFlags::empty())
    }

    /// `namespaces`: what of the machine the agent must not share with the test, such as its host name.
    pub fn start_with(namespaces: CloneFlags) -> Self {
        let (stream, theirs) = UnixStream::pair().unwrap();
        let theirs = OwnedFd::from(theirs);
        let number = NEXT_DIRECTORY.fetch_add(1, Ordering::Relaxed);
        let directory = std::env::temp_dir().join(format!("coppice-agent-{}-{number}", std::process::id()));
        let fd = theirs.as_raw_fd();
        let mut command = Command::new(env!("CARGO_BIN_EXE_coppice-agent"));
        command
            .args(["--socket-fd", &fd.to_string(), "--state-dir"])
            .arg(&directory);
        // SAFETY: only async-signal-safe calls between fork and exec.
        unsafe {
            command.pre_exec(move || {
                nix::sched::unshare(namespaces)?;
                if libc::fcntl(fd, libc::F_SETFD, 0) == -1 {
                    return Err(std::io::Error::last_os_error());
                }
                Ok(())
            })
        };
        let child = command.spawn().unwrap();
        drop(theirs);
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut agent = Self {
            child,
            stream,
            directory,
            generation: 0,
            next_id: 1,
            early: Vec::new(),
        };
        let ready = agent.next();
        assert_eq!((ready.id, ready.generation), (0, 0));
        assert!(matches!(ready.body, ReplyBody::Event(event) if field(&event, "protocol").as_u64() == Some(1)));
        agent
    }

    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    fn request(&mut self, op: &str, args: Value) -> Request {
        let id = self.next_id;
        self.next_id += 1;
        Request {
            id,
            generation: self.generation,
            op: op.to_owned(),
            args,
        }
    }

    pub fn post(&mut self, op: &str, args: Value) -> u64 {
        let request = self.request(op, args);
        write_message(&mut self.stream, &request).unwrap();
        request.id
    }

    pub fn frame(&mut self, op: &str, args: Value) -> (u64, Vec<u8>) {
        let request = self.request(op, args);
        (request.id, encode_frame(&request).unwrap())
    }

    /// The next message of any request.
    pub fn next(&mut self) -> Reply {
        read_message(&mut self.stream).unwrap().unwrap()
    }

    /// The next message, or `None` where none comes for that long.
    pub fn next_within(&mut self, patience: Duration) -> Option<Reply> {
        self.stream.set_read_timeout(Some(patience)).unwrap();
        let reply = match read_message(&mut self.stream) {
            Ok(reply) => reply,
            Err(coppice_wire::FrameError::Io(error)) if error.kind() == ErrorKind::WouldBlock => None,
            Err(error) => panic!("{error}"),
        };
        self.stream.set_read_timeout(Some(PATIENCE)).unwrap();
        reply
    }

    pub fn wait(&mut self, id: u64) -> Answer {
        let start = Instant::now();
        let mut answer = Answer::default();
        let mut early = std::mem::take(&mut self.early).into_iter();
        let mut others = Vec::new();
        while answer.ok.is_none() && answer.err.is_none() {
            let reply = early.next().unwrap_or_else(|| self.next());
            if reply.id != id {
                others.push(reply);
                continue;
            }
            match reply.body {
                ReplyBody::Ok(value) => answer.ok = Some(value),
                ReplyBody::Err(failure) => answer.err = Some(failure),
                ReplyBody::Chunk(chunk) => {
                    answer.largest_chunk = answer.largest_chunk.max(chunk.data.len());
                    answer.streams.entry(chunk.stream).or_default().extend(chunk.data);
                }
                ReplyBody::Event(event) => panic!("event {event} under a request's id"),
            }
        }
        others.extend(early);
        self.early = others;
        answer.took = start.elapsed();
        answer
    }

    /// Bytes of output that came for a request while others were waited for.
    pub fn early_bytes(&self, id: u64) -> usize {
        let size = |reply: &Reply| match &reply.body {
            ReplyBody::Chunk(chunk) if reply.id == id => chunk.data.len(),
            _ => 0,
        };
        self.early.iter().map(size).sum()
    }

    pub fn call(&mut self, op: &str, args: Value) -> Answer {
        let id = self.post(op, args);
        self.wait(id)
    }

    pub fn exec(&mut self, command: Value) -> Answer {
        self.call("exec", map([("argv", command)]))
    }

    /// Runs a shell script and returns what it printed.
    pub fn shell(&mut self, script: &str) -> String {
        self.exec(sh(script)).stdout().to_owned()
    }

    pub fn open_pty(&mut self, name: &str, command: Value) -> Answer {
        self.call("pty.open", map([("name", name.into()), ("argv", command)]))
    }

    /// Types a line and reads until the terminal waits for the next.
    pub fn type_line(&mut self, name: &str, line: &str) -> Answer {
        let data = Value::Binary(line.as_bytes().to_vec());
        self.call(
            "pty.send",
            map([
                ("name", name.into()),
                ("data", data),
                ("until", map([("kind", "input".into())])),
            ]),
        )
    }

    pub fn read_until_input(&mut self, name: &str) -> Answer {
        self.type_line(name, "")
    }
}
