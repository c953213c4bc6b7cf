//! The stream to the host: a virtio-console port in a guest, a Unix socket elsewhere.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use coppice_wire::{FrameError, FrameReader};
use nix::errno::Errno;

use crate::outbox::Outbox;
use crate::sys;

#[derive(Debug, thiserror::Error)]
pub enum PortError {
    #[error("Port to the host failed: {0}")]
    Io(#[from] Errno),
    #[error("Host sent what is no frame: {0}")]
    Frame(#[from] FrameError),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PortKind {
    /// A virtio-console port: reads nothing while the host is not connected, and later may be connected again.
    Virtio,
    /// A Unix stream socket: its end is the end of the agent.
    Socket,
}

/// What a look at the port brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Received {
    /// Whole frames may be there. `more`: probably there is more to read at once.
    Something {
        more: bool,
    },
    Nothing,
    /// Nobody is at the other end.
    Disconnected,
}

/// The virtio-console driver hands out at most one of its buffers, a page, with one read.
const DRIVER_PIECE_BYTES: usize = 4096;

pub struct Port {
    fd: OwnedFd,
    pub kind: PortKind,
    frames: FrameReader,
}

impl Port {
    pub fn new(fd: OwnedFd, kind: PortKind) -> sys::Result<Self> {
        sys::set_nonblocking(fd.as_raw_fd())?;
        Ok(Self {
            fd,
            kind,
            frames: FrameReader::new(),
        })
    }

    pub fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// Reads once.
    pub fn receive(&mut self, scratch: &mut [u8]) -> Result<Received, PortError> {
        match sys::read(self.fd(), scratch) {
            Ok(0) => Ok(Received::Disconnected),
            Ok(count) => {
                self.frames.push(&scratch[..count]);
                Ok(Received::Something {
                    more: count >= DRIVER_PIECE_BYTES,
                })
            }
            Err(Errno::EAGAIN | Errno::EINTR) => Ok(Received::Nothing),
            Err(Errno::ECONNRESET) => Ok(Received::Disconnected),
            Err(errno) => Err(errno.into()),
        }
    }

    pub fn next_payload(&mut self) -> Result<Option<Vec<u8>>, PortError> {
        Ok(self.frames.next_payload()?)
    }

    /// Sends what the host takes now.
    pub fn flush(&self, outbox: &mut Outbox) -> Result<(), PortError> {
        while !outbox.is_empty() {
            match sys::write(self.fd(), outbox.unsent()) {
                Ok(count) => outbox.mark_sent(count),
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => return Ok(()),
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }
}
