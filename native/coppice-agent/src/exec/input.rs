//! stdin of one program: what is still to be written, and who waits until it is.

use std::collections::VecDeque;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;

use crate::context::Context;
use crate::exec::error::{ExecError, Written};
use crate::outbox::RequestKey;
use crate::poller::Token;
use crate::slab::Slot;
use crate::sys::{self, WRITABLE};

/// Bytes that may wait for one program to read them.
pub const MAX_QUEUED_BYTES: usize = 16 * 1024 * 1024;

struct Piece {
    data: Vec<u8>,
    written: usize,
    /// Answered when all of it is written.
    key: Option<RequestKey>,
}

pub struct Input {
    fd: OwnedFd,
    pieces: VecDeque<Piece>,
    queued: usize,
    /// Nothing comes after what is queued.
    closing: bool,
    watched: bool,
}

impl Input {
    pub fn new(fd: OwnedFd, first: Vec<u8>, open: bool) -> Self {
        let mut input = Self {
            fd,
            pieces: VecDeque::new(),
            queued: 0,
            closing: !open,
            watched: false,
        };
        input.push(first, None);
        input
    }

    pub fn queued(&self) -> usize {
        self.queued
    }

    pub fn push(&mut self, data: Vec<u8>, key: Option<RequestKey>) {
        self.queued += data.len();
        self.pieces.push_back(Piece { data, written: 0, key });
    }

    pub fn is_closing(&self) -> bool {
        self.closing
    }

    pub fn close(&mut self) {
        self.closing = true;
    }

    /// Writes what the pipe takes. False when it is to be closed: all is written, or nobody reads.
    pub fn feed(&mut self, context: &mut Context) -> bool {
        while let Some(piece) = self.pieces.front_mut() {
            while piece.written < piece.data.len() {
                match sys::write(self.fd.as_raw_fd(), &piece.data[piece.written..]) {
                    Ok(count) => {
                        piece.written += count;
                        self.queued -= count;
                    }
                    Err(Errno::EINTR) => {}
                    Err(Errno::EAGAIN) => return true,
                    Err(_) => return false,
                }
            }
            let key = piece.key;
            self.pieces.pop_front();
            if let Some(key) = key {
                let open = !(self.closing && self.pieces.is_empty());
                context.outbox.ok(key, &Written { open });
            }
        }
        !self.closing
    }

    /// Waits for room exactly while something is to be written.
    pub fn watch(&mut self, context: &mut Context, slot: Slot) -> sys::Result<()> {
        let wanted = !self.pieces.is_empty();
        if wanted == self.watched {
            return Ok(());
        }
        if wanted {
            context
                .poller
                .add(self.fd.as_raw_fd(), WRITABLE, Token::ExecStdin(slot))?;
        } else {
            context.poller.remove(self.fd.as_raw_fd())?;
        }
        self.watched = wanted;
        Ok(())
    }

    /// Nobody will read what is left.
    pub fn abandon(self, context: &mut Context) {
        for key in self.pieces.into_iter().filter_map(|piece| piece.key) {
            context.outbox.ok(key, &Written { open: false });
        }
    }

    /// Nobody waits for `target` any more; what it wrote stays written. False where it does not wait here.
    pub fn cancel(&mut self, context: &mut Context, target: RequestKey) -> bool {
        let Some(piece) = self.pieces.iter_mut().find(|piece| piece.key == Some(target)) else {
            return false;
        };
        piece.key = None;
        context.outbox.failure(target, ExecError::Cancelled);
        true
    }

    pub fn disown(&mut self, generation: u64) {
        for piece in &mut self.pieces {
            piece.key = piece.key.filter(|key| key.generation == generation);
        }
    }
}
