//! All terminals by name, and the requests on them.

use std::collections::HashMap;

use coppice_wire::Value;
use nix::errno::Errno;
use serde::Serialize;

use crate::args::{Args, ArgsError};
use crate::context::Context;
use crate::exec::MAX_TIMEOUT_MS;
use crate::failure::{Coded, describe};
use crate::outbox::{Empty, RequestKey};
use crate::poller::Token;
use crate::pty::{Ends, Pty, Window};
use crate::pty_wait::{Met, Reason, Until, Waiter};
use crate::signals;
use crate::slab::{Slab, Slot};
use crate::spawn::{Program, SpawnError, Stdio};
use crate::sys::{self, ExitStatus, READABLE, WRITABLE};

/// Terminals that may be open at once.
const MAX_PTYS: usize = 64;

const MAX_NAME_BYTES: usize = 128;

const DEFAULT_TIMEOUT_MS: u64 = 10_000;

const DEFAULT_MAX_BYTES: u64 = 1024 * 1024;

/// An answer must fit one frame.
const MAX_MAX_BYTES: u64 = 8 * 1024 * 1024;

/// Typed and not yet taken by a terminal; beyond it a `pty.send` is refused.
const MAX_TYPED_BYTES: usize = 1024 * 1024;

const DEFAULT_WINDOW: Window = Window { columns: 80, rows: 24 };

/// After a write the agent steps aside this often before it goes to sleep: on one CPU a short answer is complete then.
const YIELDS: u32 = 8;

/// With several CPUs the same takes a moment instead.
const SPIN_NS: u64 = 100_000;

const NANOS_PER_MILLI: u64 = 1_000_000;

#[derive(Debug, thiserror::Error)]
pub enum PtyError {
    #[error(transparent)]
    Args(#[from] ArgsError),
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    #[error("No terminal is named '{0}'")]
    NotFound(String),
    #[error("A terminal named '{0}' is open already; close it first")]
    Exists(String),
    #[error("{MAX_PTYS} terminals are open already; close one")]
    TooMany,
    #[error("Another pty.send waits on terminal '{0}' already")]
    Busy(String),
    #[error("Terminal '{0}' was closed")]
    Closed(String),
    #[error("The request was cancelled")]
    Cancelled,
    #[error("Program on terminal '{0}' has ended")]
    Ended(String),
    #[error("Terminal failed ({step}): {}", describe(*.errno))]
    Failed { step: &'static str, errno: Errno },
}

impl Coded for PtyError {
    fn code(&self) -> &'static str {
        match self {
            Self::Args(error) => error.code(),
            Self::Spawn(error) => error.code(),
            Self::NotFound(_) => "PTY_NOT_FOUND",
            Self::Exists(_) => "PTY_EXISTS",
            Self::TooMany => "PTY_LIMIT",
            Self::Busy(_) => "PTY_BUSY",
            Self::Closed(_) => "PTY_CLOSED",
            Self::Cancelled => "CANCELLED",
            Self::Ended(_) => "PTY_ENDED",
            Self::Failed { .. } => "PTY_FAILED",
        }
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Exit {
    exit_code: Option<i32>,
    signal: Option<String>,
}

#[derive(Debug, Serialize)]
struct SendResult<'a> {
    #[serde(with = "serde_bytes")]
    data: &'a [u8],
    reason: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    exit: Option<Exit>,
    /// Bytes that came while nobody read and found no room; absent where there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    dropped: Option<u64>,
}

#[derive(Debug, Serialize)]
struct OpenResult {
    pid: i32,
}

#[derive(Debug, Serialize)]
struct Listed {
    name: String,
    pid: i32,
    alive: bool,
}

#[derive(Debug, Serialize)]
struct ListResult {
    ptys: Vec<Listed>,
}

struct Entry {
    pty: Pty,
    waiter: Option<Waiter>,
    /// The poller's bits for the master; 0 where it is not watched.
    watched: u32,
}

#[derive(Default)]
pub struct Ptys {
    entries: Slab<Entry>,
    by_name: HashMap<String, Slot>,
}

impl Ptys {
    pub fn open(&mut self, context: &mut Context, key: RequestKey, args: Value) -> Result<(), PtyError> {
        let mut args = Args::new(args)?;
        let name = args.string("name")?;
        let program = Program {
            argv: args.argv()?,
            env: args.env()?,
            cwd: args.optional_c_string("cwd")?,
        };
        let window = Window {
            columns: args
                .optional_integer("cols", 1..=u16::MAX.into())?
                .map_or(DEFAULT_WINDOW.columns, |n| n as u16),
            rows: args
                .optional_integer("rows", 1..=u16::MAX.into())?
                .map_or(DEFAULT_WINDOW.rows, |n| n as u16),
        };
        args.finish()?;
        if name.is_empty() || name.len() > MAX_NAME_BYTES {
            let reason = format!("it must have 1 to {MAX_NAME_BYTES} bytes");
            return Err(ArgsError::Refused {
                field: "name".into(),
                reason,
            }
            .into());
        }
        if self.by_name.contains_key(&name) {
            return Err(PtyError::Exists(name));
        }
        if self.entries.len() >= MAX_PTYS {
            return Err(PtyError::TooMany);
        }
        let failed = |step| move |errno| PtyError::Failed { step, errno };
        let ends = Ends::open(window).map_err(failed("open"))?;
        let slave = std::os::fd::AsRawFd::as_raw_fd(&ends.slave);
        let pid = context.spawner.spawn(&program, Stdio::Terminal(slave))?;
        let pty = Pty::new(name.clone(), pid, ends);
        let master = pty.master();
        let slot = self.entries.insert(Entry {
            pty,
            waiter: None,
            watched: READABLE,
        });
        self.by_name.insert(name, slot);
        context
            .poller
            .add(master, READABLE, Token::Pty(slot))
            .map_err(failed("watch"))?;
        context.outbox.ok(key, &OpenResult { pid });
        Ok(())
    }

    fn find(&self, name: &str) -> Result<Slot, PtyError> {
        self.by_name
            .get(name)
            .copied()
            .ok_or_else(|| PtyError::NotFound(name.to_owned()))
    }

    fn entry(&mut self, name: &str) -> Result<(Slot, &mut Entry), PtyError> {
        let slot = self.find(name)?;
        let entry = self
            .entries
            .get_mut(slot)
            .ok_or_else(|| PtyError::NotFound(name.to_owned()))?;
        Ok((slot, entry))
    }

    pub fn send(
        &mut self,
        context: &mut Context,
        key: RequestKey,
        args: Value,
        orphans: &mut dyn FnMut() -> Vec<i32>,
    ) -> Result<(), PtyError> {
        let mut args = Args::new(args)?;
        let name = args.string("name")?;
        let data = args.optional_bytes("data")?.unwrap_or_default();
        let until = Until::parse(args.optional_map("until")?)?;
        let timeout_ms = args
            .optional_integer("timeoutMs", 1..=MAX_TIMEOUT_MS)?
            .unwrap_or(DEFAULT_TIMEOUT_MS);
        let most = args
            .optional_integer("maxBytes", 1..=MAX_MAX_BYTES)?
            .unwrap_or(DEFAULT_MAX_BYTES) as usize;
        args.finish()?;
        let (slot, entry) = self.entry(&name)?;
        if entry.waiter.is_some() {
            return Err(PtyError::Busy(name));
        }
        if data.len() > MAX_TYPED_BYTES {
            let reason = format!(
                "{} bytes are over the limit of {MAX_TYPED_BYTES} of one send",
                data.len()
            );
            return Err(ArgsError::Refused {
                field: "data".into(),
                reason,
            }
            .into());
        }
        let now_ns = sys::monotonic_ns();
        entry.pty.settle_idle();
        if matches!(until, Until::Pattern(_)) {
            // Only what comes after the write may match.
            entry
                .pty
                .drain(&mut context.scratch, most.max(entry.pty.buffer.len() + 1));
        }
        let since = entry.pty.buffer.len();
        let step_aside = matches!(until, Until::Input) && entry.pty.exit.is_none();
        if !data.is_empty() {
            entry.pty.type_in(data);
        }
        let limit_ns = now_ns + timeout_ms * NANOS_PER_MILLI;
        entry.waiter = Some(Waiter::new(key, until, most, limit_ns, since));
        context.poller.start_timer(limit_ns, Token::PtyLimit(slot));
        let mut turns = 0;
        while step_aside && (turns < YIELDS || sys::monotonic_ns() - now_ns < SPIN_NS) {
            turns += 1;
            sys::yield_cpu();
            let Some(entry) = self.entries.get_mut(slot) else {
                return Ok(());
            };
            if entry.pty.is_surely_busy() {
                continue;
            }
            if let Some(met) = entry.check(context, orphans) {
                self.answer(context, slot, met);
                return Ok(());
            }
        }
        self.advance(context, slot, orphans);
        Ok(())
    }

    /// The terminal has something to read or room to write, or it is time to look at it again.
    pub fn advance(&mut self, context: &mut Context, slot: Slot, orphans: &mut dyn FnMut() -> Vec<i32>) {
        let Some(entry) = self.entries.get_mut(slot) else {
            return;
        };
        if entry.pty.has_unwritten() {
            entry.pty.write_typed();
        }
        if entry.waiter.is_none() {
            entry.pty.drain_idle(&mut context.scratch);
            entry.watch(context, slot);
            return;
        }
        let before = entry.pty.buffer.len();
        if let Some(met) = entry.check(context, orphans) {
            self.answer(context, slot, met);
            return;
        }
        let now_ns = sys::monotonic_ns();
        let printed = entry.pty.buffer.len() > before;
        let quiet_met = entry.is_quiet(now_ns, printed);
        if quiet_met {
            let met = Met {
                reason: Reason::Quiet,
                count: entry.pty.buffer.len(),
            };
            self.answer(context, slot, met);
            return;
        }
        entry.schedule_look(context, slot, now_ns, printed);
        entry.watch(context, slot);
    }

    /// A waiting `pty.send` is out of time.
    pub fn on_limit(&mut self, context: &mut Context, slot: Slot, orphans: &mut dyn FnMut() -> Vec<i32>) {
        let Some(entry) = self.entries.get_mut(slot) else {
            return;
        };
        // A timer of an earlier request: that one was stopped, so this can only be the present one's.
        let Some(waiter) = &entry.waiter else {
            return;
        };
        if waiter.limit_ns > sys::monotonic_ns() {
            return;
        }
        let met = entry.check(context, orphans).unwrap_or(Met {
            reason: Reason::Timeout,
            count: entry.pty.buffer.len(),
        });
        self.answer(context, slot, met);
    }

    fn answer(&mut self, context: &mut Context, slot: Slot, met: Met) {
        let Some(entry) = self.entries.get_mut(slot) else {
            return;
        };
        if let Some(waiter) = entry.stop_waiting(context, slot) {
            let dropped = std::mem::take(&mut entry.pty.dropped);
            let data = entry.pty.take(met.count);
            let result = SendResult {
                data: &data,
                reason: met.reason.name(),
                exit: entry.pty.exit.map(exit_of),
                dropped: (dropped > 0).then_some(dropped),
            };
            context.outbox.ok(waiter.key, &result);
        }
        entry.watch(context, slot);
    }

    /// Takes note of an ended process; false where it is none of ours.
    pub fn on_exit(
        &mut self,
        context: &mut Context,
        pid: i32,
        status: ExitStatus,
        orphans: &mut dyn FnMut() -> Vec<i32>,
    ) -> bool {
        let alive = |entry: &Entry| entry.pty.pid == pid && entry.pty.exit.is_none();
        let Some(slot) = self
            .entries
            .iter()
            .find(|(_, entry)| alive(entry))
            .map(|(slot, _)| slot)
        else {
            return false;
        };
        if let Some(entry) = self.entries.get_mut(slot) {
            entry.pty.exit = Some(status);
        }
        self.advance(context, slot, orphans);
        true
    }

    pub fn resize(&mut self, context: &mut Context, key: RequestKey, args: Value) -> Result<(), PtyError> {
        let mut args = Args::new(args)?;
        let name = args.string("name")?;
        let window = Window {
            columns: args.integer("cols", 1..=u16::MAX.into())? as u16,
            rows: args.integer("rows", 1..=u16::MAX.into())? as u16,
        };
        args.finish()?;
        let (_, entry) = self.entry(&name)?;
        entry
            .pty
            .resize(window)
            .map_err(|errno| PtyError::Failed { step: "resize", errno })?;
        context.outbox.ok(key, &Empty {});
        Ok(())
    }

    pub fn signal(&mut self, context: &mut Context, key: RequestKey, args: Value) -> Result<(), PtyError> {
        let mut args = Args::new(args)?;
        let name = args.string("name")?;
        let signal = args.string("signal")?;
        args.finish()?;
        let Some(number) = signals::number(&signal) else {
            let reason = format!("'{signal}' is no signal; known are names such as SIGINT, SIGTERM, SIGHUP");
            return Err(ArgsError::Refused {
                field: "signal".into(),
                reason,
            }
            .into());
        };
        let (_, entry) = self.entry(&name)?;
        // As a key on a keyboard: to what is in the foreground.
        let group = entry
            .pty
            .foreground()
            .or(entry.pty.exit.is_none().then_some(entry.pty.pid));
        let Some(group) = group else {
            return Err(PtyError::Ended(name));
        };
        match sys::kill(-group, number) {
            Ok(()) => context.outbox.ok(key, &Empty {}),
            Err(Errno::ESRCH) => return Err(PtyError::Ended(name)),
            Err(errno) => return Err(PtyError::Failed { step: "signal", errno }),
        }
        Ok(())
    }

    pub fn close(&mut self, context: &mut Context, key: RequestKey, args: Value) -> Result<(), PtyError> {
        let mut args = Args::new(args)?;
        let name = args.string("name")?;
        args.finish()?;
        let (slot, entry) = self.entry(&name)?;
        entry.pty.kill();
        let waiter = entry.stop_waiting(context, slot);
        self.entries.remove(slot);
        self.by_name.remove(&name);
        if let Some(waiter) = waiter {
            context.outbox.failure(waiter.key, PtyError::Closed(name));
        }
        context.outbox.ok(key, &Empty {});
        Ok(())
    }

    pub fn list(&self, context: &mut Context, key: RequestKey, args: Value) -> Result<(), PtyError> {
        Args::new(args)?.finish()?;
        let listed = |entry: &Entry| Listed {
            name: entry.pty.name.clone(),
            pid: entry.pty.pid,
            alive: entry.pty.exit.is_none(),
        };
        let mut ptys: Vec<Listed> = self.entries.iter().map(|(_, entry)| listed(entry)).collect();
        ptys.sort_by(|left, right| left.name.cmp(&right.name));
        context.outbox.ok(key, &ListResult { ptys });
        Ok(())
    }

    /// Ends a waiting `pty.send`; what came stays for the next one. False where it does not wait.
    pub fn cancel(&mut self, context: &mut Context, target: RequestKey) -> bool {
        let is_target = |entry: &Entry| entry.waiter.as_ref().is_some_and(|waiter| waiter.key == target);
        let Some(slot) = self
            .entries
            .iter()
            .find(|(_, entry)| is_target(entry))
            .map(|(slot, _)| slot)
        else {
            return false;
        };
        if let Some(entry) = self.entries.get_mut(slot) {
            entry.stop_waiting(context, slot);
            context.outbox.failure(target, PtyError::Cancelled);
        }
        true
    }

    /// A new life has begun: nobody waits any more for what other generations asked for.
    pub fn disown(&mut self, context: &mut Context, generation: u64) {
        for (slot, entry) in self.entries.iter_mut() {
            if entry
                .waiter
                .as_ref()
                .is_some_and(|waiter| waiter.key.generation != generation)
            {
                entry.stop_waiting(context, slot);
            }
        }
    }

    pub fn contains(&self, pid: i32) -> bool {
        self.entries
            .iter()
            .any(|(_, entry)| entry.pty.pid == pid && entry.pty.exit.is_none())
    }

    /// Kills everything that runs.
    pub fn kill_all(&mut self) {
        for (_, entry) in self.entries.iter() {
            entry.pty.kill();
        }
    }
}

impl Entry {
    fn check(&mut self, context: &mut Context, orphans: &mut dyn FnMut() -> Vec<i32>) -> Option<Met> {
        let waiter = self.waiter.as_mut()?;
        waiter.check(&mut self.pty, &mut context.scratch, orphans)
    }

    /// Whether a wait for silence is over.
    fn is_quiet(&self, now_ns: u64, printed: bool) -> bool {
        let Some(waiter) = &self.waiter else {
            return false;
        };
        let over = waiter.look_ns.is_some_and(|look_ns| look_ns <= now_ns);
        matches!(waiter.until, Until::Quiet { .. }) && !printed && over
    }

    fn schedule_look(&mut self, context: &mut Context, slot: Slot, now_ns: u64, printed: bool) {
        let Some(waiter) = &mut self.waiter else {
            return;
        };
        let look_ns = waiter.next_look_ns(now_ns, printed);
        if look_ns == waiter.look_ns {
            return;
        }
        if let Some(at_ns) = waiter.look_ns.take() {
            context.poller.stop_timer(at_ns, Token::PtyLook(slot));
        }
        if let Some(at_ns) = look_ns {
            context.poller.start_timer(at_ns, Token::PtyLook(slot));
        }
        waiter.look_ns = look_ns;
    }

    fn stop_waiting(&mut self, context: &mut Context, slot: Slot) -> Option<Waiter> {
        let waiter = self.waiter.take()?;
        context.poller.stop_timer(waiter.limit_ns, Token::PtyLimit(slot));
        if let Some(at_ns) = waiter.look_ns {
            context.poller.stop_timer(at_ns, Token::PtyLook(slot));
        }
        Some(waiter)
    }

    /// Tells the poller what to watch on the master now.
    fn watch(&mut self, context: &mut Context, slot: Slot) {
        let wanted = match (self.pty.is_hung_up(), self.pty.has_unwritten()) {
            (true, _) => 0,
            (false, false) => READABLE,
            (false, true) => READABLE | WRITABLE,
        };
        if wanted == self.watched {
            return;
        }
        let master = self.pty.master();
        let token = Token::Pty(slot);
        let changed = match (self.watched, wanted) {
            (_, 0) => context.poller.remove(master),
            (0, events) => context.poller.add(master, events, token),
            (_, events) => context.poller.change(master, events, token),
        };
        if changed.is_ok() {
            self.watched = wanted;
        }
    }
}

fn exit_of(status: ExitStatus) -> Exit {
    match status {
        ExitStatus::Code(code) => Exit {
            exit_code: Some(code),
            signal: None,
        },
        ExitStatus::Signal(signal) => Exit {
            exit_code: None,
            signal: Some(signals::name(signal)),
        },
    }
}
