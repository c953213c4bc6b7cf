//! All terminals by name, and the requests on them.

mod attach;
mod error;
mod exchange;
mod pty;
mod wait;

use std::collections::HashMap;

use coppice_wire::Value;
use nix::errno::Errno;

use crate::args::{Args, ArgsError};
use crate::context::Context;
use crate::exec::take_program;
use crate::outbox::{Empty, RequestKey};
use crate::poller::Token;
use crate::ptys::error::{ListResult, Listed, MAX_PTYS, OpenResult, PtyError};
use crate::ptys::pty::{Ends, Pty, Window};
use crate::ptys::wait::Waiter;
use crate::signals;
use crate::slab::{Slab, Slot};
use crate::spawn::Stdio;
use crate::sys::{self, ExitStatus, READABLE};

const MAX_NAME_BYTES: usize = 128;

const DEFAULT_WINDOW: Window = Window { columns: 80, rows: 24 };

struct Entry {
    pty: Pty,
    waiter: Option<Waiter>,
    /// The `pty.attach` that is told what is printed.
    attached: Option<RequestKey>,
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
        let program = take_program(&mut args)?;
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
            attached: None,
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
        let waiter = entry.stop_waiting(context, slot).map(|waiter| waiter.key);
        let attached = entry.attached.take();
        self.entries.remove(slot);
        self.by_name.remove(&name);
        for key in waiter.into_iter().chain(attached) {
            context.outbox.failure(key, PtyError::Closed(name.clone()));
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

    /// Ends a waiting `pty.send` or `pty.attach`; what came stays for the next one. False where it does not wait.
    pub fn cancel(&mut self, context: &mut Context, target: RequestKey) -> bool {
        let is_target = |entry: &Entry| {
            let waits = entry.waiter.as_ref().is_some_and(|waiter| waiter.key == target);
            waits || entry.attached == Some(target)
        };
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
            entry.attached = None;
            context.outbox.failure(target, PtyError::Cancelled);
        }
        true
    }

    /// A new life has begun: nobody waits any more for what other generations asked for.
    pub fn disown(&mut self, context: &mut Context, generation: u64) {
        for (slot, entry) in self.entries.iter_mut() {
            entry.attached = entry.attached.filter(|key| key.generation == generation);
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
