//! Programs that are run to their end: separate output streams, byte for byte, in chunks.
//!
//! The answer comes when the program itself has ended and what could be read at that moment is read. A child that it
//! left behind may hold the pipe: what that one prints later is read and dropped, so that it never blocks, and never
//! dies of a closed pipe.

use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use coppice_wire::Value;
use nix::errno::Errno;
use serde::Serialize;

use crate::args::{Args, ArgsError};
use crate::context::{CHUNK_BYTES, Context};
use crate::failure::{Coded, describe};
use crate::outbox::RequestKey;
use crate::poller::Token;
use crate::signals;
use crate::slab::{Slab, Slot};
use crate::spawn::{Program, SpawnError, Stdio};
use crate::sys::{self, ExitStatus, READABLE, WRITABLE};

/// Programs that may run at once: far above any use, far below what descriptors allow.
const MAX_EXECS: usize = 1_000;

/// Pipes of ended programs that are still drained; beyond it the oldest is closed.
const MAX_LEFTOVERS: usize = 1_000;

/// Output kept of both streams together where the request does not say.
const DEFAULT_OUTPUT_LIMIT_BYTES: u64 = 16 * 1024 * 1024;

const MAX_OUTPUT_LIMIT_BYTES: u64 = 1 << 40;

/// 30 days: longer than anything lives, short enough for arithmetic in nanoseconds.
pub const MAX_TIMEOUT_MS: u64 = 30 * 24 * 3_600 * 1_000;

/// How long a killed program may take to end (it may sit in an uninterruptible sleep) before it is answered without.
const KILL_GRACE_NS: u64 = 1_000_000_000;

const NANOS_PER_MILLI: u64 = 1_000_000;

#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    #[error(transparent)]
    Args(#[from] ArgsError),
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    #[error("{MAX_EXECS} programs run already; wait for one to end or cancel one")]
    TooMany,
    #[error("Pipes can't be set up: {}", describe(*.0))]
    Pipes(#[from] Errno),
}

impl Coded for ExecError {
    fn code(&self) -> &'static str {
        match self {
            Self::Args(error) => error.code(),
            Self::Spawn(error) => error.code(),
            Self::TooMany => "EXEC_LIMIT",
            Self::Pipes(_) => "EXEC_FAILED",
        }
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ExecResult {
    exit_code: Option<i32>,
    signal: Option<String>,
    timed_out: bool,
    truncated: bool,
    duration_us: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    Stdout,
    Stderr,
}

impl Stream {
    const BOTH: [Self; 2] = [Self::Stdout, Self::Stderr];

    fn name(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }

    fn token(self, slot: Slot) -> Token {
        match self {
            Self::Stdout => Token::ExecStdout(slot),
            Self::Stderr => Token::ExecStderr(slot),
        }
    }
}

/// Our end of one output stream.
struct Output {
    /// `None` after its end.
    fd: Option<OwnedFd>,
    /// Once the program has ended: how much of what it printed is still to be read, where that is known.
    left: Option<usize>,
}

struct Input {
    fd: OwnedFd,
    data: Vec<u8>,
    written: usize,
}

struct Exec {
    /// `None` where the life that asked for it is over: it runs on, and nothing of it is reported.
    key: Option<RequestKey>,
    pid: i32,
    started_ns: u64,
    /// When the timer runs out, where one runs.
    timer_ns: Option<u64>,
    outputs: [Output; 2],
    input: Option<Input>,
    /// Bytes that may still be reported.
    room: u64,
    truncated: bool,
    timed_out: bool,
    ended: Option<Option<ExitStatus>>,
    ended_ns: u64,
}

/// All programs that run, and the pipes that ended ones left.
#[derive(Default)]
pub struct Execs {
    running: Slab<Exec>,
    by_pid: HashMap<i32, Slot>,
    leftovers: Slab<OwnedFd>,
    leftover_order: VecDeque<Slot>,
}

impl Execs {
    pub fn start(&mut self, context: &mut Context, key: RequestKey, args: Value, null: RawFd) -> Result<(), ExecError> {
        let mut args = Args::new(args)?;
        let program = Program {
            argv: args.argv()?,
            env: args.env()?,
            cwd: args.optional_c_string("cwd")?,
        };
        let data = args.optional_bytes("stdin")?.unwrap_or_default();
        let timeout_ms = args.optional_integer("timeoutMs", 1..=MAX_TIMEOUT_MS)?;
        let room = args.optional_integer("outputLimitBytes", 0..=MAX_OUTPUT_LIMIT_BYTES)?;
        args.finish()?;
        if self.running.len() >= MAX_EXECS {
            return Err(ExecError::TooMany);
        }
        let started_ns = sys::monotonic_ns();
        let (stdout, child_stdout) = sys::pipe()?;
        let (stderr, child_stderr) = sys::pipe()?;
        let input = if data.is_empty() { None } else { Some(sys::pipe()?) };
        let child_stdin = input.as_ref().map_or(null, |(child, _)| child.as_raw_fd());
        sys::set_nonblocking(stdout.as_raw_fd())?;
        sys::set_nonblocking(stderr.as_raw_fd())?;
        if let Some((_, ours)) = &input {
            sys::set_nonblocking(ours.as_raw_fd())?;
        }
        let stdio = Stdio::Pipes([child_stdin, child_stdout.as_raw_fd(), child_stderr.as_raw_fd()]);
        let pid = context.spawner.spawn(&program, stdio)?;
        let slot = self.running.insert(Exec {
            key: Some(key),
            pid,
            started_ns,
            timer_ns: None,
            outputs: [stdout, stderr].map(|fd| Output {
                fd: Some(fd),
                left: None,
            }),
            input: input.map(|(_, fd)| Input { fd, data, written: 0 }),
            room: room.unwrap_or(DEFAULT_OUTPUT_LIMIT_BYTES),
            truncated: false,
            timed_out: false,
            ended: None,
            ended_ns: 0,
        });
        self.by_pid.insert(pid, slot);
        let watched = self.watch(context, slot, timeout_ms);
        if let (Err(_), Some(exec)) = (watched, self.running.get_mut(slot)) {
            // It is answered now, so not again when it has ended.
            exec.key = None;
            sys::kill_group(pid);
        }
        Ok(watched?)
    }

    fn watch(&mut self, context: &mut Context, slot: Slot, timeout_ms: Option<u64>) -> Result<(), Errno> {
        let Some(exec) = self.running.get_mut(slot) else {
            return Ok(());
        };
        if let Some(timeout_ms) = timeout_ms {
            let at_ns = exec.started_ns + timeout_ms * NANOS_PER_MILLI;
            exec.timer_ns = Some(at_ns);
            context.poller.start_timer(at_ns, Token::ExecTimer(slot));
        }
        for stream in Stream::BOTH {
            if let Some(fd) = &exec.outputs[stream as usize].fd {
                context.poller.add(fd.as_raw_fd(), READABLE, stream.token(slot))?;
            }
        }
        if !feed(exec)
            && let Some(input) = &exec.input
        {
            context
                .poller
                .add(input.fd.as_raw_fd(), WRITABLE, Token::ExecStdin(slot))?;
        }
        Ok(())
    }

    /// The stream of `slot` can be read, or has ended.
    pub fn on_output(&mut self, context: &mut Context, slot: Slot, stream: Stream) {
        let Some(exec) = self.running.get_mut(slot) else {
            return;
        };
        if exec.ended.is_some() {
            self.settle(context, slot);
            return;
        }
        if exec.must_wait(context) {
            exec.pause(context, slot, stream);
            return;
        }
        exec.read_some(context, stream, CHUNK_BYTES);
    }

    /// A paused stream may be read again.
    pub fn on_room(&mut self, context: &mut Context, slot: Slot, stream: Stream) {
        let Some(exec) = self.running.get_mut(slot) else {
            return;
        };
        if let Some(fd) = &exec.outputs[stream as usize].fd {
            let _ = context.poller.add(fd.as_raw_fd(), READABLE, stream.token(slot));
        }
    }

    pub fn on_input_room(&mut self, slot: Slot) {
        if let Some(exec) = self.running.get_mut(slot) {
            feed(exec);
        }
    }

    pub fn on_timer(&mut self, context: &mut Context, slot: Slot) {
        let Some(exec) = self.running.get_mut(slot) else {
            return;
        };
        exec.timer_ns = None;
        if exec.ended.is_some() {
            return;
        }
        if exec.timed_out {
            exec.ended = Some(None);
            exec.ended_ns = sys::monotonic_ns();
            self.by_pid.remove(&exec.pid);
            self.settle(context, slot);
            return;
        }
        exec.timed_out = true;
        sys::kill_group(exec.pid);
        let at_ns = sys::monotonic_ns() + KILL_GRACE_NS;
        exec.timer_ns = Some(at_ns);
        context.poller.start_timer(at_ns, Token::ExecTimer(slot));
    }

    /// Takes note of an ended process; false where it is none of ours.
    pub fn on_exit(&mut self, context: &mut Context, pid: i32, status: ExitStatus) -> bool {
        let Some(slot) = self.by_pid.remove(&pid) else {
            return false;
        };
        if let Some(exec) = self.running.get_mut(slot) {
            exec.ended = Some(Some(status));
            exec.ended_ns = sys::monotonic_ns();
            exec.input = None;
            if let Some(at_ns) = exec.timer_ns.take() {
                context.poller.stop_timer(at_ns, Token::ExecTimer(slot));
            }
            self.settle(context, slot);
        }
        true
    }

    /// Reads what an ended program has printed, as far as the host takes it, and answers when all is read.
    fn settle(&mut self, context: &mut Context, slot: Slot) {
        let Some(exec) = self.running.get_mut(slot) else {
            return;
        };
        let mut settled = true;
        for stream in Stream::BOTH {
            settled &= exec.settle_stream(context, slot, stream);
        }
        if !settled {
            return;
        }
        let Some(exec) = self.running.remove(slot) else {
            return;
        };
        if let Some(key) = exec.key {
            context.outbox.ok(key, &exec.result());
        }
        for fd in exec.outputs.into_iter().filter_map(|output| output.fd) {
            self.keep_leftover(context, fd);
        }
    }

    fn keep_leftover(&mut self, context: &mut Context, fd: OwnedFd) {
        if self.leftovers.len() >= MAX_LEFTOVERS
            && let Some(oldest) = self.leftover_order.pop_front()
        {
            self.leftovers.remove(oldest);
        }
        let raw = fd.as_raw_fd();
        let slot = self.leftovers.insert(fd);
        // The pipe is known under its exec's token, or under none where it was paused.
        let token = Token::Leftover(slot);
        let known = context
            .poller
            .change(raw, READABLE, token)
            .or_else(|_| context.poller.add(raw, READABLE, token));
        match known {
            Ok(()) => self.leftover_order.push_back(slot),
            Err(_) => drop(self.leftovers.remove(slot)),
        }
    }

    /// Reads and drops what the child of an ended program prints.
    pub fn on_leftover(&mut self, context: &mut Context, slot: Slot) {
        let Some(fd) = self.leftovers.get(slot) else {
            return;
        };
        if !matches!(
            sys::read(fd.as_raw_fd(), &mut context.scratch),
            Ok(1..) | Err(Errno::EAGAIN)
        ) {
            self.leftovers.remove(slot);
            self.leftover_order.retain(|other| *other != slot);
        }
    }

    /// Kills the program of the request; false where it does not run.
    pub fn cancel(&mut self, target: RequestKey) -> bool {
        let found = self.running.iter().find(|(_, exec)| exec.key == Some(target));
        if let Some((_, exec)) = found
            && exec.ended.is_none()
        {
            sys::kill_group(exec.pid);
        }
        found.is_some()
    }

    /// A new life has begun: what other generations asked for runs on, and is never reported.
    pub fn disown(&mut self, context: &mut Context, generation: u64) {
        let mut to_settle = Vec::new();
        for (slot, exec) in self.running.iter_mut() {
            if exec.key.is_some_and(|key| key.generation == generation) {
                continue;
            }
            exec.key = None;
            if let Some(at_ns) = exec.timer_ns.take() {
                context.poller.stop_timer(at_ns, Token::ExecTimer(slot));
            }
            if exec.ended.is_some() {
                to_settle.push(slot);
            }
        }
        for slot in to_settle {
            self.settle(context, slot);
        }
    }

    pub fn contains(&self, pid: i32) -> bool {
        self.by_pid.contains_key(&pid)
    }

    /// Kills everything that runs.
    pub fn kill_all(&mut self) {
        for (_, exec) in self.running.iter().filter(|(_, exec)| exec.ended.is_none()) {
            sys::kill_group(exec.pid);
        }
    }
}

impl Exec {
    /// Whether the next piece of output would have to be kept in the agent's memory.
    fn must_wait(&self, context: &Context) -> bool {
        context.outbox.is_full() && self.key.is_some() && self.room > 0
    }

    fn pause(&self, context: &mut Context, slot: Slot, stream: Stream) {
        if let Some(fd) = &self.outputs[stream as usize].fd {
            // An error means that it is paused already.
            if context.poller.remove(fd.as_raw_fd()).is_ok() {
                context.paused.push(stream.token(slot));
            }
        }
    }

    /// Reads once, at most `most` bytes, and reports them. Returns how many; 0 where nothing is there or all is over.
    fn read_some(&mut self, context: &mut Context, stream: Stream, most: usize) -> usize {
        let output = &mut self.outputs[stream as usize];
        let Some(fd) = &output.fd else {
            return 0;
        };
        match sys::read(fd.as_raw_fd(), &mut context.scratch[..most]) {
            Ok(0) => output.fd = None,
            Ok(count) => {
                self.report(context, stream, count);
                return count;
            }
            Err(Errno::EAGAIN | Errno::EINTR) => {}
            Err(_) => output.fd = None,
        }
        0
    }

    fn report(&mut self, context: &mut Context, stream: Stream, count: usize) {
        let Some(key) = self.key else {
            return;
        };
        let kept = self.room.min(count as u64) as usize;
        self.room -= kept as u64;
        self.truncated |= kept < count;
        if kept > 0 {
            context.outbox.chunk(key, stream.name(), &context.scratch[..kept]);
        }
    }

    /// Reads what the ended program left in one stream. True when nothing of it is left.
    ///
    /// A child that goes on printing does not prolong this: after the first read only as much is read as the pipe
    /// holds then.
    fn settle_stream(&mut self, context: &mut Context, slot: Slot, stream: Stream) -> bool {
        loop {
            let most = self.outputs[stream as usize]
                .left
                .unwrap_or(CHUNK_BYTES)
                .min(CHUNK_BYTES);
            if most == 0 || self.outputs[stream as usize].fd.is_none() {
                return true;
            }
            if self.must_wait(context) {
                self.pause(context, slot, stream);
                return false;
            }
            let count = self.read_some(context, stream, most);
            if count == 0 {
                return true;
            }
            let output = &mut self.outputs[stream as usize];
            let held = || {
                output
                    .fd
                    .as_ref()
                    .and_then(|fd| sys::readable_bytes(fd.as_raw_fd()).ok())
                    .unwrap_or(0)
            };
            output.left = Some(output.left.map_or_else(held, |left| left - count));
        }
    }

    fn result(&self) -> ExecResult {
        let status = self.ended.flatten();
        ExecResult {
            exit_code: match status {
                Some(ExitStatus::Code(code)) => Some(code),
                _ => None,
            },
            signal: match status {
                Some(ExitStatus::Signal(signal)) => Some(signals::name(signal)),
                _ => None,
            },
            timed_out: self.timed_out,
            truncated: self.truncated,
            duration_us: self.ended_ns.saturating_sub(self.started_ns) / 1_000,
        }
    }
}

/// Writes what the pipe takes of stdin; closes it when all is written or nobody reads. True when it is closed.
fn feed(exec: &mut Exec) -> bool {
    let Some(input) = &mut exec.input else {
        return true;
    };
    while input.written < input.data.len() {
        match sys::write(input.fd.as_raw_fd(), &input.data[input.written..]) {
            Ok(count) => input.written += count,
            Err(Errno::EINTR) => {}
            Err(Errno::EAGAIN) => return false,
            Err(_) => break,
        }
    }
    exec.input = None;
    true
}
