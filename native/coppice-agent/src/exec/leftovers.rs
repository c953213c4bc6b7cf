//! Output pipes that ended programs left to their children: read and dropped, so that none of those ever blocks on one,
//! or dies of a closed one.

use std::collections::VecDeque;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;

use crate::context::Context;
use crate::poller::Token;
use crate::slab::{Slab, Slot};
use crate::sys::{self, READABLE};

/// Pipes that are drained; beyond it the oldest is closed.
const MAX_LEFTOVERS: usize = 1_000;

#[derive(Default)]
pub struct Leftovers {
    pipes: Slab<OwnedFd>,
    order: VecDeque<Slot>,
}

impl Leftovers {
    pub fn keep(&mut self, context: &mut Context, fd: OwnedFd) {
        if self.pipes.len() >= MAX_LEFTOVERS
            && let Some(oldest) = self.order.pop_front()
        {
            self.pipes.remove(oldest);
        }
        let raw = fd.as_raw_fd();
        let slot = self.pipes.insert(fd);
        // The pipe is known under its exec's token, or under none where it was paused.
        let token = Token::Leftover(slot);
        let known = context
            .poller
            .change(raw, READABLE, token)
            .or_else(|_| context.poller.add(raw, READABLE, token));
        match known {
            Ok(()) => self.order.push_back(slot),
            Err(_) => drop(self.pipes.remove(slot)),
        }
    }

    pub fn drain(&mut self, context: &mut Context, slot: Slot) {
        let Some(fd) = self.pipes.get(slot) else {
            return;
        };
        if !matches!(
            sys::read(fd.as_raw_fd(), &mut context.scratch),
            Ok(1..) | Err(Errno::EAGAIN)
        ) {
            self.pipes.remove(slot);
            self.order.retain(|other| *other != slot);
        }
    }
}
