//! Requests about a program that runs already, by its name: also in a fork of the guest that it was started in.

use coppice_wire::Value;

use crate::args::Args;
use crate::context::Context;
use crate::exec::Execs;
use crate::exec::error::{ExecError, Killed, ListResult, Listed, Written};
use crate::exec::input::MAX_QUEUED_BYTES;
use crate::exec::process::{Exec, Life};
use crate::exec::request::{refused, take_name};
use crate::outbox::{Empty, RequestKey};
use crate::signals;
use crate::slab::Slot;
use crate::sys;

const MAX_WINDOW_BYTES: u64 = 1 << 40;

impl Execs {
    fn named(&mut self, name: &str) -> Result<(Slot, &mut Exec), ExecError> {
        let not_found = || ExecError::NotFound(name.to_owned());
        let slot = self.by_name.get(name).copied().ok_or_else(not_found)?;
        let exec = self.programs.get_mut(slot).ok_or_else(not_found)?;
        Ok((slot, exec))
    }

    /// `exec.write`: answered when the program's pipe has taken all of it.
    pub fn write(&mut self, context: &mut Context, key: RequestKey, args: Value) -> Result<(), ExecError> {
        let mut args = Args::new(args)?;
        let name = take_name(&mut args)?;
        let data = args.optional_bytes("data")?.unwrap_or_default();
        let end = args.flag("end")?;
        args.finish()?;
        let (slot, exec) = self.named(&name)?;
        let Some(input) = exec.input.as_mut().filter(|input| !input.is_closing()) else {
            context.outbox.ok(key, &Written { open: false });
            return Ok(());
        };
        let queued = input.queued();
        if queued > 0 && queued + data.len() > MAX_QUEUED_BYTES {
            return Err(ExecError::InputFull { name, queued });
        }
        input.push(data, Some(key));
        if end {
            input.close();
        }
        exec.feed(context, slot);
        Ok(())
    }

    /// `exec.kill`: to the whole process group.
    pub fn kill(&mut self, context: &mut Context, key: RequestKey, args: Value) -> Result<(), ExecError> {
        let mut args = Args::new(args)?;
        let name = take_name(&mut args)?;
        let signal = args.optional_string("signal")?.unwrap_or_else(|| "SIGTERM".to_owned());
        args.finish()?;
        let Some(number) = signals::number(&signal) else {
            let reason = format!("'{signal}' is no signal; known are names such as SIGINT, SIGTERM, SIGHUP");
            return Err(refused("signal", reason).into());
        };
        let (_, exec) = self.named(&name)?;
        let running = exec.ended.is_none() && sys::kill(-exec.pid, number).is_ok();
        context.outbox.ok(key, &Killed { running });
        Ok(())
    }

    /// `exec.wait`: what was printed and nobody has seen, what is printed from now on, and how it ended.
    pub fn wait(&mut self, context: &mut Context, key: RequestKey, args: Value) -> Result<(), ExecError> {
        let mut args = Args::new(args)?;
        let name = take_name(&mut args)?;
        let window = args.optional_integer("windowBytes", 1..=MAX_WINDOW_BYTES)?;
        args.finish()?;
        let (_, exec) = self.named(&name)?;
        if exec.key.is_some() || exec.life == Life::Foreground {
            return Err(ExecError::Busy(name));
        }
        exec.key = Some(key);
        exec.window = window;
        exec.report_kept(context);
        Ok(())
    }

    /// `exec.window`: more of its output may be sent.
    pub fn open_window(&mut self, context: &mut Context, key: RequestKey, args: Value) -> Result<(), ExecError> {
        let mut args = Args::new(args)?;
        let name = take_name(&mut args)?;
        let bytes = args.integer("bytes", 1..=MAX_WINDOW_BYTES)?;
        args.finish()?;
        let (slot, exec) = self.named(&name)?;
        if let Some(window) = &mut exec.window {
            *window = window.saturating_add(bytes);
            exec.report_kept(context);
            exec.unpause(context, slot);
        }
        context.outbox.ok(key, &Empty {});
        Ok(())
    }

    pub fn list(&self, context: &mut Context, key: RequestKey, args: Value) -> Result<(), ExecError> {
        Args::new(args)?.finish()?;
        let named = self.programs.iter().filter_map(|(_, exec)| {
            Some(Listed {
                name: exec.name.clone()?,
                pid: exec.pid,
                running: exec.ended.is_none(),
            })
        });
        let mut processes: Vec<Listed> = named.collect();
        processes.sort_by(|left, right| left.name.cmp(&right.name));
        context.outbox.ok(key, &ListResult { processes });
        Ok(())
    }
}
