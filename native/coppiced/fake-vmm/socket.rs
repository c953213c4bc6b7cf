//! The control socket: blocking, with descriptors.

use std::collections::VecDeque;
use std::io::{IoSliceMut, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::process::exit;

use coppice_wire::vmm::{Command, Event};
use coppice_wire::{FrameReader, decode, encode_frame};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};

pub struct Socket {
    stream: UnixStream,
    frames: FrameReader,
    descriptors: VecDeque<OwnedFd>,
}

impl Socket {
    pub fn new(socket: OwnedFd) -> Self {
        Socket {
            stream: UnixStream::from(socket),
            frames: FrameReader::new(),
            descriptors: VecDeque::new(),
        }
    }

    /// The next command. Exits where the daemon is gone.
    pub fn receive(&mut self) -> (Command, Vec<OwnedFd>) {
        loop {
            match self.frames.next_payload() {
                Ok(Some(payload)) => {
                    let Ok(command) = decode(&payload) else { exit(4) };
                    let count = match &command {
                        Command::Fork { .. }
                        | Command::Checkpoint { .. }
                        | Command::Lend { .. }
                        | Command::SaveWhole
                        | Command::LoadWhole { .. } => 1,
                        Command::Boot { config } => usize::from(config.disk),
                        Command::Extent { granted } => 2 * usize::from(*granted),
                        _ => 0,
                    };
                    let count = count.min(self.descriptors.len());
                    return (command, self.descriptors.drain(..count).collect());
                }
                Ok(None) => self.read(),
                Err(_) => exit(4),
            }
        }
    }

    pub fn send(&mut self, event: &Event) {
        match encode_frame(event) {
            Ok(frame) => self.send_raw(&frame),
            Err(_) => exit(5),
        }
    }

    pub fn send_raw(&mut self, bytes: &[u8]) {
        if self.stream.write_all(bytes).is_err() {
            exit(0);
        }
    }

    fn read(&mut self) {
        let mut bytes = [0; 16 * 1024];
        let mut parts = [IoSliceMut::new(&mut bytes)];
        let mut space = nix::cmsg_space!([RawFd; 4]);
        let flags = MsgFlags::MSG_CMSG_CLOEXEC;
        let Ok(message) = recvmsg::<()>(self.stream.as_raw_fd(), &mut parts, Some(&mut space), flags) else {
            exit(0);
        };
        let length = message.bytes;
        for control in message.cmsgs().into_iter().flatten() {
            if let ControlMessageOwned::ScmRights(descriptors) = control {
                // SAFETY: the kernel has just made these descriptors for this process; nothing else owns them.
                let owned = descriptors
                    .into_iter()
                    .map(|descriptor| unsafe { OwnedFd::from_raw_fd(descriptor) });
                self.descriptors.extend(owned);
            }
        }
        if length == 0 {
            exit(0);
        }
        self.frames.push(&bytes[..length]);
    }
}
