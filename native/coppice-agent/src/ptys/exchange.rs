//! `pty.send`: typing something, and reading until a condition is met.

use coppice_wire::Value;

use crate::args::{Args, ArgsError};
use crate::context::Context;
use crate::exec::MAX_TIMEOUT_MS;
use crate::outbox::RequestKey;
use crate::poller::Token;
use crate::ptys::error::{PtyError, SendResult, exit_of};
use crate::ptys::wait::{Met, Reason, Until, Waiter};
use crate::ptys::{Entry, Ptys};
use crate::slab::Slot;
use crate::sys::{self, READABLE, WRITABLE};

const DEFAULT_TIMEOUT_MS: u64 = 10_000;

const DEFAULT_MAX_BYTES: u64 = 1024 * 1024;

/// An answer must fit one frame.
const MAX_MAX_BYTES: u64 = 8 * 1024 * 1024;

/// Typed and not yet taken by a terminal; beyond it more is refused.
pub const MAX_TYPED_BYTES: usize = 1024 * 1024;

/// After a write the agent steps aside this often before it goes to sleep: on one CPU a short answer is complete then.
const YIELDS: u32 = 8;

/// With several CPUs the same takes a moment instead.
const SPIN_NS: u64 = 100_000;

const NANOS_PER_MILLI: u64 = 1_000_000;

impl Ptys {
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
        if entry.is_taken() {
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
        if entry.attached.is_some() {
            entry.report(context, slot);
            return;
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

    /// Whether somebody is told what the terminal prints.
    pub(super) fn is_taken(&self) -> bool {
        self.waiter.is_some() || self.attached.is_some()
    }

    pub(super) fn stop_waiting(&mut self, context: &mut Context, slot: Slot) -> Option<Waiter> {
        let waiter = self.waiter.take()?;
        context.poller.stop_timer(waiter.limit_ns, Token::PtyLimit(slot));
        if let Some(at_ns) = waiter.look_ns {
            context.poller.stop_timer(at_ns, Token::PtyLook(slot));
        }
        Some(waiter)
    }

    /// Tells the poller what to watch on the master now.
    pub(super) fn watch(&mut self, context: &mut Context, slot: Slot) {
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
