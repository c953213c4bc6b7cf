//! The control socket: commands and descriptors in, events out.

use std::collections::VecDeque;
use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::Instant;

use coppice_wire::vmm::{Command, Event};
use coppice_wire::{FrameError, FrameReader, decode, encode_frame};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, send};

use crate::attention;

/// Bytes of one read; larger frames take several.
const READ_BYTES: usize = 16 << 10;

/// Descriptors that may come with one read.
const DESCRIPTORS_MAX: usize = 4;

/// Events wait for the daemon to read; above this the guest's output is left in its queues, and console output is
/// dropped.
const BACKLOG_BYTES: usize = 1 << 20;

#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The daemon is gone; the process ends without a word.
    #[error("Control socket is closed")]
    Closed,
    #[error("Control socket failed: {0}")]
    Io(#[from] io::Error),
    #[error("Control message is malformed: {0}")]
    Frame(#[from] FrameError),
}

impl From<Errno> for ControlError {
    fn from(error: Errno) -> Self {
        match error {
            Errno::EPIPE | Errno::ECONNRESET => Self::Closed,
            other => Self::Io(other.into()),
        }
    }
}

/// One command, with the descriptors that came with it.
#[derive(Debug)]
pub struct Received {
    pub command: Command,
    pub descriptors: VecDeque<OwnedFd>,
}

impl Received {
    /// The next of them.
    pub fn descriptor(&mut self) -> Option<OwnedFd> {
        self.descriptors.pop_front()
    }
}

/// How many descriptors come with a command.
fn descriptors_of(command: &Command) -> usize {
    match command {
        Command::Fork { .. }
        | Command::Checkpoint { .. }
        | Command::Lend { .. }
        | Command::SaveWhole
        | Command::LoadWhole { .. } => 1,
        Command::Boot { config } => usize::from(config.disk),
        Command::Extent { granted } => 2 * usize::from(*granted),
        _ => 0,
    }
}

/// The VMM's end of the control socket.
pub struct Control {
    socket: OwnedFd,
    reader: FrameReader,
    descriptors: VecDeque<OwnedFd>,
    space: Vec<u8>,
    unsent: VecDeque<u8>,
}

impl Control {
    pub fn new(socket: OwnedFd) -> Result<Self, ControlError> {
        attention::watch_socket(socket.as_fd())?;
        Ok(Self {
            socket,
            reader: FrameReader::new(),
            descriptors: VecDeque::new(),
            space: nix::cmsg_space!([RawFd; DESCRIPTORS_MAX]),
            unsent: VecDeque::new(),
        })
    }

    /// The socket, which stays open when everything else is closed.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Next command that has arrived; `None` where there is none, without waiting.
    pub fn poll(&mut self) -> Result<Option<Received>, ControlError> {
        self.write_unsent(MsgFlags::MSG_DONTWAIT)?;
        loop {
            if let Some(received) = self.next_received()? {
                return Ok(Some(received));
            }
            if !self.read(MsgFlags::MSG_DONTWAIT)? {
                return Ok(None);
            }
        }
    }

    /// Waits for the next command, and writes meanwhile what could not be written.
    pub fn wait(&mut self) -> Result<Received, ControlError> {
        loop {
            if let Some(received) = self.poll()? {
                return Ok(received);
            }
            if self.unsent.is_empty() {
                self.read(MsgFlags::empty())?;
            } else {
                self.wait_for(PollFlags::POLLIN | PollFlags::POLLOUT, PollTimeout::NONE)?;
            }
        }
    }

    /// Waits for the next command until a point in time; after it not even for one that is there.
    pub fn wait_until(&mut self, end: Instant) -> Result<Option<Received>, ControlError> {
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            if let Some(received) = self.poll()? {
                return Ok(Some(received));
            }
            let left = PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO);
            self.wait_for(PollFlags::POLLIN, left)?;
        }
    }

    /// Sends an event, or keeps it until the socket has room.
    pub fn send(&mut self, event: &Event) -> Result<(), ControlError> {
        let frame = encode_frame(event)?;
        let sent = if self.unsent.is_empty() {
            self.write(&frame, MsgFlags::MSG_DONTWAIT)?
        } else {
            0
        };
        self.unsent.extend(&frame[sent..]);
        Ok(())
    }

    /// Waits until everything is written.
    pub fn flush(&mut self) -> Result<(), ControlError> {
        while !self.unsent.is_empty() {
            self.write_unsent(MsgFlags::empty())?;
        }
        Ok(())
    }

    /// Whether the daemon keeps up with the guest's output.
    pub fn has_room(&self) -> bool {
        self.unsent.len() < BACKLOG_BYTES
    }

    fn next_received(&mut self) -> Result<Option<Received>, ControlError> {
        let Some(payload) = self.reader.next_payload()? else {
            return Ok(None);
        };
        if !self.reader.is_mid_frame() {
            self.reader = FrameReader::new();
        }
        let command = decode(&payload)?;
        // Descriptors arrive in the order of the messages that carry them.
        let count = descriptors_of(&command).min(self.descriptors.len());
        let descriptors = self.descriptors.drain(..count).collect();
        Ok(Some(Received { command, descriptors }))
    }

    /// Whether anything was read.
    fn read(&mut self, flags: MsgFlags) -> Result<bool, ControlError> {
        let mut bytes = [0u8; READ_BYTES];
        let mut parts = [IoSliceMut::new(&mut bytes)];
        let flags = flags | MsgFlags::MSG_CMSG_CLOEXEC;
        let message = match recvmsg::<()>(self.socket.as_raw_fd(), &mut parts, Some(&mut self.space), flags) {
            Ok(message) => message,
            Err(Errno::EAGAIN | Errno::EINTR) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        let length = message.bytes;
        for control in message.cmsgs()? {
            if let ControlMessageOwned::ScmRights(descriptors) = control {
                // SAFETY: the kernel has just made these descriptors for this process; nothing else owns them.
                self.descriptors
                    .extend(descriptors.into_iter().map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }));
            }
        }
        if length == 0 {
            return Err(ControlError::Closed);
        }
        self.reader.push(&bytes[..length]);
        Ok(true)
    }

    fn write_unsent(&mut self, flags: MsgFlags) -> Result<(), ControlError> {
        while !self.unsent.is_empty() {
            let sent = self.write(self.unsent.as_slices().0, flags)?;
            if sent == 0 {
                return Ok(());
            }
            self.unsent.drain(..sent);
        }
        self.unsent.shrink_to(READ_BYTES);
        Ok(())
    }

    fn write(&self, bytes: &[u8], flags: MsgFlags) -> Result<usize, ControlError> {
        match send(self.socket.as_raw_fd(), bytes, flags | MsgFlags::MSG_NOSIGNAL) {
            Ok(sent) => Ok(sent),
            Err(Errno::EAGAIN | Errno::EINTR) => Ok(0),
            Err(error) => Err(error.into()),
        }
    }

    fn wait_for(&self, events: PollFlags, timeout: PollTimeout) -> Result<(), ControlError> {
        match poll(&mut [PollFd::new(self.socket.as_fd(), events)], timeout) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{IoSlice, Read, Write};
    use std::os::unix::net::UnixStream;

    use coppice_wire::vmm::GuestEnd;
    use nix::sys::socket::{ControlMessage, sendmsg};

    use super::*;

    fn pair() -> (UnixStream, Control) {
        attention::install_handlers().unwrap();
        let (ours, theirs) = UnixStream::pair().unwrap();
        (ours, Control::new(theirs.into()).unwrap())
    }

    fn send_with(socket: &UnixStream, command: &Command, descriptors: &[RawFd]) {
        let frame = encode_frame(command).unwrap();
        let rights = [ControlMessage::ScmRights(descriptors)];
        let rights = if descriptors.is_empty() { &[][..] } else { &rights[..] };
        sendmsg::<()>(
            socket.as_raw_fd(),
            &[IoSlice::new(&frame)],
            rights,
            MsgFlags::empty(),
            None,
        )
        .unwrap();
    }

    fn fork(tag: u64) -> Command {
        Command::Fork {
            tag,
            at_ns: 0,
            rewindable: false,
        }
    }

    #[test]
    fn control_given_nothing_has_no_command_and_does_not_wait() {
        let (_daemon, mut control) = pair();
        assert!(control.poll().unwrap().is_none());
    }

    #[test]
    fn control_given_two_forks_pairs_each_with_its_descriptor() {
        let (daemon, mut control) = pair();
        let (first, second) = (UnixStream::pair().unwrap(), UnixStream::pair().unwrap());
        send_with(&daemon, &fork(1), &[first.0.as_raw_fd()]);
        send_with(&daemon, &Command::Pause { when_idle: false }, &[]);
        send_with(&daemon, &fork(2), &[second.0.as_raw_fd()]);
        for (tag, mut peer) in [(1, first.1), (2, second.1)] {
            let mut received = std::iter::from_fn(|| control.poll().unwrap())
                .find(|received| matches!(received.command, Command::Fork { .. }))
                .unwrap();
            assert!(matches!(received.command, Command::Fork { tag: given, .. } if given == tag));
            UnixStream::from(received.descriptor().unwrap())
                .write_all(&[tag as u8])
                .unwrap();
            let mut byte = [0];
            peer.read_exact(&mut byte).unwrap();
            assert_eq!(byte, [tag as u8]);
        }
    }

    #[test]
    fn control_given_a_fork_without_a_descriptor_says_so() {
        let (daemon, mut control) = pair();
        send_with(&daemon, &fork(1), &[]);
        assert!(control.poll().unwrap().unwrap().descriptors.is_empty());
    }

    #[test]
    fn control_whose_peer_is_gone_says_closed() {
        // A process that another test forks meanwhile holds the peer's end, too.
        let _no_forks = crate::confine::drill::FORKS.write().unwrap();
        let (daemon, mut control) = pair();
        drop(daemon);
        assert!(matches!(control.poll(), Err(ControlError::Closed)));
        assert!(matches!(control.wait(), Err(ControlError::Closed)));
    }

    #[test]
    fn control_given_garbage_refuses_it() {
        let (mut daemon, mut control) = pair();
        daemon.write_all(&[3, 0, 0, 0, 0xc1, 0xc1, 0xc1]).unwrap();
        assert!(matches!(control.poll(), Err(ControlError::Frame(_))));
    }

    #[test]
    fn control_whose_peer_does_not_read_keeps_events_and_loses_none() {
        let (mut daemon, mut control) = pair();
        let event = Event::Console {
            data: vec![b'x'; 64 << 10],
            dropped: 0,
        };
        let mut sent = 0;
        while control.has_room() {
            control.send(&event).unwrap();
            sent += 1;
        }
        control
            .send(&Event::GuestEnded {
                reason: GuestEnd::Shutdown,
                detail: String::new(),
            })
            .unwrap();
        let reader = std::thread::spawn(move || {
            let mut seen = 0;
            loop {
                match coppice_wire::frame::read_message::<Event>(&mut daemon)
                    .unwrap()
                    .unwrap()
                {
                    Event::Console { data, .. } => seen += usize::from(data.len() == 64 << 10),
                    _ => return seen,
                }
            }
        });
        control.flush().unwrap();
        assert_eq!(reader.join().unwrap(), sent);
    }
}
