//! One program that was started: its output, as far as somebody wants it, and how it ended.

use std::collections::VecDeque;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;

use crate::context::{CHUNK_BYTES, Context};
use crate::exec::error::ExecResult;
use crate::exec::input::Input;
use crate::outbox::RequestKey;
use crate::poller::Token;
use crate::signals;
use crate::slab::Slot;
use crate::sys::{self, ExitStatus, READABLE};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    Stdout,
    Stderr,
}

impl Stream {
    pub const BOTH: [Self; 2] = [Self::Stdout, Self::Stderr];

    fn name(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }

    pub fn token(self, slot: Slot) -> Token {
        match self {
            Self::Stdout => Token::ExecStdout(slot),
            Self::Stderr => Token::ExecStderr(slot),
        }
    }
}

/// Our end of one output stream.
pub struct Output {
    /// `None` after its end.
    pub fd: Option<OwnedFd>,
    /// Once the program has ended: how much of what it printed is still to be read, where that is known.
    left: Option<usize>,
}

impl Output {
    pub fn new(fd: OwnedFd) -> Self {
        Self {
            fd: Some(fd),
            left: None,
        }
    }
}

/// How long a program lives for those who asked for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Life {
    /// As long as its request.
    Foreground,
    /// Until it ends, whoever waits; its output is kept until somebody does.
    Background,
}

pub struct Exec {
    /// Who is told what it prints and how it ends. `None`: nobody waits, or the life that asked for it is over.
    pub key: Option<RequestKey>,
    pub name: Option<String>,
    pub life: Life,
    pub pid: i32,
    pub started_ns: u64,
    /// When the timer runs out, where one runs.
    pub timer_ns: Option<u64>,
    pub outputs: [Output; 2],
    pub input: Option<Input>,
    /// Bytes that may still be reported or kept.
    pub room: u64,
    /// Bytes that may be reported before more is granted.
    pub window: Option<u64>,
    /// What a background program printed while nobody waited.
    pub kept: VecDeque<(Stream, Vec<u8>)>,
    pub dropped_bytes: u64,
    pub timed_out: bool,
    pub ended: Option<Option<ExitStatus>>,
    pub ended_ns: u64,
    /// It has ended and all that it printed is read.
    pub settled: bool,
}

/// Pieces of kept output grow to this size before another is begun.
const KEPT_PIECE_BYTES: usize = CHUNK_BYTES;

impl Exec {
    /// Whether the next piece of output would have to be kept in the agent's memory.
    pub fn must_wait(&self, context: &Context) -> bool {
        self.key.is_some() && self.room > 0 && (context.outbox.is_full() || self.window == Some(0))
    }

    /// Reads a stream no more until there is room on the way to the host, or the window is opened.
    pub fn pause(&self, context: &mut Context, slot: Slot, stream: Stream) {
        if let Some(fd) = &self.outputs[stream as usize].fd {
            // An error means that it is paused already.
            let removed = context.poller.remove(fd.as_raw_fd()).is_ok();
            if removed && self.window != Some(0) {
                context.paused.push(stream.token(slot));
            }
        }
    }

    /// Watches both streams again; those that are watched already stay so.
    pub fn unpause(&self, context: &mut Context, slot: Slot) {
        for stream in Stream::BOTH {
            if let Some(fd) = &self.outputs[stream as usize].fd {
                let _ = context.poller.add(fd.as_raw_fd(), READABLE, stream.token(slot));
            }
        }
    }

    /// Reads once, at most `most` bytes, and reports them. Returns how many; 0 where nothing is there or all is over.
    pub fn read_some(&mut self, context: &mut Context, stream: Stream, most: usize) -> usize {
        let most = match (self.key, self.window) {
            (Some(_), Some(window)) if self.room > 0 => most.min(usize::try_from(window).unwrap_or(most)),
            _ => most,
        };
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
        if self.key.is_none() && self.life == Life::Foreground {
            return;
        }
        let kept = self.room.min(count as u64) as usize;
        self.room -= kept as u64;
        self.dropped_bytes += (count - kept) as u64;
        if kept == 0 {
            return;
        }
        let data = &context.scratch[..kept];
        let Some(key) = self.key else {
            return self.keep(stream, data);
        };
        context.outbox.chunk(key, stream.name(), data);
        if let Some(window) = &mut self.window {
            *window = window.saturating_sub(kept as u64);
        }
    }

    fn keep(&mut self, stream: Stream, data: &[u8]) {
        match self.kept.back_mut() {
            Some((last, piece)) if *last == stream && piece.len() + data.len() <= KEPT_PIECE_BYTES => {
                piece.extend_from_slice(data);
            }
            _ => self.kept.push_back((stream, data.to_vec())),
        }
    }

    /// Tells the one who waits what was printed while nobody did, as far as the window goes, and how the program ended
    /// where that was all.
    pub fn report_kept(&mut self, context: &mut Context) {
        let Some(key) = self.key else {
            return;
        };
        while let Some((stream, data)) = self.kept.front_mut() {
            let granted = self
                .window
                .map_or(data.len(), |window| usize::try_from(window).unwrap_or(data.len()));
            let count = data.len().min(granted);
            if count == 0 {
                return;
            }
            context.outbox.chunk(key, stream.name(), &data[..count]);
            if let Some(window) = &mut self.window {
                *window -= count as u64;
            }
            data.drain(..count);
            if data.is_empty() {
                self.kept.pop_front();
            }
        }
        if self.settled {
            self.key = None;
            self.window = None;
            context.outbox.ok(key, &self.result());
        }
    }

    /// Reads what the ended program left in one stream. True when nothing of it is left.
    ///
    /// A child that goes on printing does not prolong this: after the first read only as much is read as the pipe
    /// holds then.
    pub fn settle_stream(&mut self, context: &mut Context, slot: Slot, stream: Stream) -> bool {
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

    pub fn result(&self) -> ExecResult {
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
            truncated: self.dropped_bytes > 0,
            dropped_bytes: self.dropped_bytes,
            duration_us: self.ended_ns.saturating_sub(self.started_ns) / 1_000,
        }
    }
}
