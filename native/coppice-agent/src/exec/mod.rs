//! Programs that are run: separate output streams, byte for byte, in chunks.
//!
//! The answer comes when the program itself has ended and what could be read at that moment is read. A child that it
//! left behind may hold the pipe: what that one prints later is read and dropped, so that it never blocks, and never
//! dies of a closed pipe.

mod error;
mod input;
mod leftovers;
mod named;
mod process;
mod request;

use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsRawFd, RawFd};

use coppice_wire::Value;
use nix::errno::Errno;

use crate::context::{CHUNK_BYTES, Context};
use crate::exec::error::{MAX_EXECS, Started};
use crate::exec::input::Input;
use crate::exec::leftovers::Leftovers;
use crate::exec::process::{Exec, Life, Output};
use crate::exec::request::ExecRequest;
use crate::outbox::RequestKey;
use crate::poller::Token;
use crate::slab::{Slab, Slot};
use crate::spawn::Stdio;
use crate::sys::{self, ExitStatus, READABLE};

pub use error::ExecError;
pub use process::Stream;
pub use request::{MAX_TIMEOUT_MS, take_program};

/// Background programs whose end is remembered, with what they printed; beyond it the oldest is forgotten.
const MAX_ENDED: usize = 256;

/// How long a killed program may take to end (it may sit in an uninterruptible sleep) before it is answered without.
const KILL_GRACE_NS: u64 = 1_000_000_000;

const NANOS_PER_MILLI: u64 = 1_000_000;

/// All programs that run, what is remembered of ended ones, and the pipes that those left.
#[derive(Default)]
pub struct Execs {
    programs: Slab<Exec>,
    by_pid: HashMap<i32, Slot>,
    by_name: HashMap<String, Slot>,
    /// Background programs that have ended, oldest first.
    ended: VecDeque<Slot>,
    leftovers: Leftovers,
}

impl Execs {
    pub fn start(&mut self, context: &mut Context, key: RequestKey, args: Value, null: RawFd) -> Result<(), ExecError> {
        let request = ExecRequest::parse(args)?;
        if self.programs.len() - self.ended.len() >= MAX_EXECS {
            return Err(ExecError::TooMany);
        }
        let replaced = self.replaced_by(request.name.as_deref())?;
        let timeout_ms = request.timeout_ms;
        let exec = spawn(context, key, request, null)?;
        if let Some(replaced) = replaced {
            self.forget(replaced);
        }
        let (pid, name, life) = (exec.pid, exec.name.clone(), exec.life);
        let slot = self.programs.insert(exec);
        self.by_pid.insert(pid, slot);
        let named = name.is_some();
        if let Some(name) = name {
            self.by_name.insert(name, slot);
        }
        let watched = self.watch(context, slot, timeout_ms);
        if let (Err(_), Some(exec)) = (watched, self.programs.get_mut(slot)) {
            // It is answered now, so not again when it has ended.
            exec.key = None;
            exec.life = Life::Foreground;
            sys::kill_group(pid);
        }
        watched?;
        if life == Life::Background {
            context.outbox.ok(key, &Started { pid });
        } else if named {
            // Requests on the name find it from here on.
            context.outbox.chunk(key, "started", pid.to_string().as_bytes());
        }
        Ok(())
    }

    /// The ended program whose name a new one may take.
    fn replaced_by(&self, name: Option<&str>) -> Result<Option<Slot>, ExecError> {
        let Some((name, slot)) = name.and_then(|name| Some((name, *self.by_name.get(name)?))) else {
            return Ok(None);
        };
        match self.programs.get(slot) {
            Some(exec) if !exec.settled || exec.key.is_some() => Err(ExecError::Exists(name.to_owned())),
            _ => Ok(Some(slot)),
        }
    }

    fn watch(&mut self, context: &mut Context, slot: Slot, timeout_ms: Option<u64>) -> Result<(), Errno> {
        let Some(exec) = self.programs.get_mut(slot) else {
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
        exec.feed(context, slot);
        Ok(())
    }

    /// The stream of `slot` can be read, or has ended.
    pub fn on_output(&mut self, context: &mut Context, slot: Slot, stream: Stream) {
        let Some(exec) = self.programs.get_mut(slot) else {
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

    /// Paused streams may be read again.
    pub fn on_room(&mut self, context: &mut Context, slot: Slot) {
        if let Some(exec) = self.programs.get_mut(slot) {
            exec.unpause(context, slot);
        }
    }

    pub fn on_input_room(&mut self, context: &mut Context, slot: Slot) {
        if let Some(exec) = self.programs.get_mut(slot) {
            exec.feed(context, slot);
        }
    }

    pub fn on_timer(&mut self, context: &mut Context, slot: Slot) {
        let Some(exec) = self.programs.get_mut(slot) else {
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
        if let Some(exec) = self.programs.get_mut(slot) {
            exec.ended = Some(Some(status));
            exec.ended_ns = sys::monotonic_ns();
            if let Some(input) = exec.input.take() {
                input.abandon(context);
            }
            if let Some(at_ns) = exec.timer_ns.take() {
                context.poller.stop_timer(at_ns, Token::ExecTimer(slot));
            }
            self.settle(context, slot);
        }
        true
    }

    /// Reads what an ended program has printed, as far as the host takes it, and answers when all is read.
    fn settle(&mut self, context: &mut Context, slot: Slot) {
        let Some(exec) = self.programs.get_mut(slot).filter(|exec| !exec.settled) else {
            return;
        };
        let mut settled = true;
        for stream in Stream::BOTH {
            settled &= exec.settle_stream(context, slot, stream);
        }
        if !settled {
            return;
        }
        exec.settled = true;
        exec.report_kept(context);
        let pipes = exec.outputs.each_mut().map(|output| output.fd.take());
        for fd in pipes.into_iter().flatten() {
            self.leftovers.keep(context, fd);
        }
        self.retire(slot);
    }

    /// Forgets a program that has ended, or remembers it where somebody may ask for it.
    fn retire(&mut self, slot: Slot) {
        if self
            .programs
            .get(slot)
            .is_some_and(|exec| exec.life == Life::Background)
        {
            self.ended.push_back(slot);
            if self.ended.len() > MAX_ENDED
                && let Some(oldest) = self.oldest_unwanted()
            {
                self.forget(oldest);
            }
            return;
        }
        self.forget(slot);
    }

    /// Of the ended programs that nobody is being told about.
    fn oldest_unwanted(&self) -> Option<Slot> {
        let is_unwanted = |slot: &Slot| self.programs.get(*slot).is_none_or(|exec| exec.key.is_none());
        self.ended.iter().copied().find(is_unwanted)
    }

    fn forget(&mut self, slot: Slot) {
        self.ended.retain(|other| *other != slot);
        if let Some(name) = self.programs.remove(slot).and_then(|exec| exec.name) {
            self.by_name.remove(&name);
        }
    }

    pub fn on_leftover(&mut self, context: &mut Context, slot: Slot) {
        self.leftovers.drain(context, slot);
    }

    /// Kills the program of the request, or ends a wait for one; false where there is no such request.
    pub fn cancel(&mut self, context: &mut Context, target: RequestKey) -> bool {
        let mut found = None;
        for (slot, exec) in self.programs.iter_mut() {
            if exec.key == Some(target) {
                if exec.life == Life::Background {
                    exec.key = None;
                    context.outbox.failure(target, ExecError::Cancelled);
                } else if exec.ended.is_none() {
                    sys::kill_group(exec.pid);
                }
                // Nobody reads on, so nothing may be kept back for them.
                exec.window = None;
                exec.unpause(context, slot);
                found = Some((slot, exec.ended.is_some()));
                break;
            }
            if exec.input.as_mut().is_some_and(|input| input.cancel(context, target)) {
                return true;
            }
        }
        let Some((slot, has_ended)) = found else {
            return false;
        };
        if has_ended {
            self.settle(context, slot);
        }
        true
    }

    /// A new life has begun: what other generations asked for runs on, and is never reported.
    pub fn disown(&mut self, context: &mut Context, generation: u64) {
        let mut to_settle = Vec::new();
        for (slot, exec) in self.programs.iter_mut() {
            if let Some(input) = &mut exec.input {
                input.disown(generation);
            }
            let is_present = exec.key.is_some_and(|key| key.generation == generation);
            if is_present || (exec.settled && exec.key.is_none()) {
                continue;
            }
            exec.key = None;
            if exec.window.take().is_some() {
                exec.unpause(context, slot);
            }
            // The time limit of a background program is its own, that of others their caller's.
            if exec.life == Life::Foreground
                && let Some(at_ns) = exec.timer_ns.take()
            {
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
        for (_, exec) in self.programs.iter().filter(|(_, exec)| exec.ended.is_none()) {
            sys::kill_group(exec.pid);
        }
    }
}

fn spawn(context: &mut Context, key: RequestKey, request: ExecRequest, null: RawFd) -> Result<Exec, ExecError> {
    let started_ns = sys::monotonic_ns();
    let (stdout, child_stdout) = sys::pipe()?;
    let (stderr, child_stderr) = sys::pipe()?;
    let needs_input = request.stdin_open || !request.stdin.is_empty();
    let input = if needs_input { Some(sys::pipe()?) } else { None };
    let child_stdin = input.as_ref().map_or(null, |(child, _)| child.as_raw_fd());
    sys::set_nonblocking(stdout.as_raw_fd())?;
    sys::set_nonblocking(stderr.as_raw_fd())?;
    if let Some((_, ours)) = &input {
        sys::set_nonblocking(ours.as_raw_fd())?;
    }
    let stdio = Stdio::Pipes([child_stdin, child_stdout.as_raw_fd(), child_stderr.as_raw_fd()]);
    let pid = context.spawner.spawn(&request.program, stdio)?;
    Ok(Exec {
        key: (!request.background).then_some(key),
        name: request.name,
        life: if request.background {
            Life::Background
        } else {
            Life::Foreground
        },
        pid,
        started_ns,
        timer_ns: None,
        outputs: [stdout, stderr].map(Output::new),
        input: input.map(|(_, fd)| Input::new(fd, request.stdin, request.stdin_open)),
        room: request.room,
        window: request.window,
        kept: VecDeque::new(),
        dropped_bytes: 0,
        timed_out: false,
        ended: None,
        ended_ns: 0,
        settled: false,
    })
}

impl Exec {
    /// Writes what the pipe takes of stdin, and closes it when that was all or nobody reads.
    fn feed(&mut self, context: &mut Context, slot: Slot) {
        let Some(input) = &mut self.input else {
            return;
        };
        // A pipe that can't be watched would never be written again: closing it is what the program understands.
        let open = input.feed(context) && input.watch(context, slot).is_ok();
        if !open && let Some(input) = self.input.take() {
            input.abandon(context);
        }
    }
}
