//! `pty.attach` and `pty.write`: a terminal for a person, whose output is sent as it comes while input is typed.

use coppice_wire::Value;

use crate::args::Args;
use crate::context::{CHUNK_BYTES, Context};
use crate::outbox::{Empty, RequestKey};
use crate::poller::Token;
use crate::ptys::error::{Attached, PtyError, exit_of};
use crate::ptys::exchange::MAX_TYPED_BYTES;
use crate::ptys::pty::Drained;
use crate::ptys::{Entry, Ptys};
use crate::slab::Slot;

/// Pieces that one terminal sends before others have their turn.
const PIECES_A_TURN: usize = 4;

impl Ptys {
    /// Answered when the program has ended and all that it printed is sent; until then everything comes as chunks.
    pub fn attach(&mut self, context: &mut Context, key: RequestKey, args: Value) -> Result<(), PtyError> {
        let mut args = Args::new(args)?;
        let name = args.string("name")?;
        args.finish()?;
        let (slot, entry) = self.entry(&name)?;
        if entry.is_taken() {
            return Err(PtyError::Busy(name));
        }
        entry.attached = Some(key);
        entry.pty.settle_idle();
        entry.report(context, slot);
        Ok(())
    }

    /// Types something, also while another request is told what the terminal prints.
    pub fn write(&mut self, context: &mut Context, key: RequestKey, args: Value) -> Result<(), PtyError> {
        let mut args = Args::new(args)?;
        let name = args.string("name")?;
        let data = args.bytes("data")?;
        args.finish()?;
        let (slot, entry) = self.entry(&name)?;
        let typed = entry.pty.unwritten();
        if typed + data.len() > MAX_TYPED_BYTES {
            return Err(PtyError::InputFull { name, typed });
        }
        entry.pty.type_in(data);
        entry.watch(context, slot);
        context.outbox.ok(key, &Empty {});
        Ok(())
    }

    /// The host has taken what was on its way: a terminal that waited for that is read again.
    pub fn on_room(&mut self, context: &mut Context, slot: Slot) {
        if let Some(entry) = self.entries.get_mut(slot) {
            entry.watch(context, slot);
            if entry.attached.is_some() {
                entry.report(context, slot);
            }
        }
    }
}

impl Entry {
    /// Sends what was printed, and the answer where the program has ended.
    pub(super) fn report(&mut self, context: &mut Context, slot: Slot) {
        let Some(key) = self.attached else {
            return;
        };
        for _ in 0..PIECES_A_TURN {
            if context.outbox.is_full() {
                return self.pause(context, slot);
            }
            let drained = self.pty.drain(&mut context.scratch, CHUNK_BYTES);
            let piece = self.pty.take(CHUNK_BYTES);
            if !piece.is_empty() {
                context.outbox.chunk(key, "output", &piece);
            }
            if drained == Drained::Full {
                continue;
            }
            if let Some(status) = self.pty.exit {
                self.attached = None;
                let exit = exit_of(status);
                context.outbox.ok(key, &Attached { exit });
            }
            return self.watch(context, slot);
        }
        // What is in the buffer makes no descriptor ready: the rest is sent when the host has taken this.
        self.pause(context, slot);
    }

    fn pause(&mut self, context: &mut Context, slot: Slot) {
        // An error means that it is not watched now.
        if self.watched != 0 && context.poller.remove(self.pty.master()).is_ok() {
            self.watched = 0;
        }
        context.paused.push(Token::Pty(slot));
    }
}
