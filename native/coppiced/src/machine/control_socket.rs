//! The daemon's end of a VMM's control socket.
//!
//! Only reading is registered with the event loop: the kernel would wake the daemon each time that the VMM has taken a
//! message, which makes room to write and concerns nobody. Who meets a full socket registers for as long as it waits.

use std::cell::RefCell;
use std::io::{self, IoSlice, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::rc::Rc;

use nix::sys::socket::{AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, sendmsg, socketpair};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

const READ_BYTES: usize = 64 * 1024;

thread_local! {
    /// For one read at a time: there are many VMMs, and most have nothing to say.
    static BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; READ_BYTES]);
}

/// The two halves of our end, and the VMM's end, which only a child that is given it inherits.
pub fn control_socket() -> io::Result<(ControlSocket, OwnedFd)> {
    let flags = SockFlag::SOCK_CLOEXEC;
    let (ours, theirs) = socketpair(AddressFamily::Unix, SockType::Stream, None, flags)?;
    Ok((ControlSocket::new(UnixStream::from(ours))?, theirs))
}

/// Our end. The socket ends when both halves are dropped.
pub struct ControlSocket {
    pub reader: Reader,
    pub writer: Writer,
}

impl ControlSocket {
    fn new(socket: UnixStream) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        let socket = Rc::new(socket);
        Ok(ControlSocket {
            reader: Reader(register(Shared(Rc::clone(&socket)), Interest::READABLE)?),
            writer: Writer(socket),
        })
    }
}

fn register(socket: Shared, interest: Interest) -> io::Result<AsyncFd<Shared>> {
    // SAFETY: the descriptor is that of the `UnixStream` which the registration holds and never gives out, so that it stays
    // open and the same until the registration is dropped.
    Ok(unsafe { AsyncFd::register_with_interest(socket, interest) }?)
}

struct Shared(Rc<UnixStream>);

impl AsRawFd for Shared {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        self.0.as_raw_fd()
    }
}

pub struct Reader(AsyncFd<Shared>);

impl Reader {
    /// Gives what has come to `take` and returns its length, which is 0 at the end. Given up, it has read nothing.
    pub async fn read(&self, mut take: impl FnMut(&[u8])) -> io::Result<usize> {
        loop {
            let mut ready = self.0.readable().await?;
            let mut socket: &UnixStream = &ready.get_inner().0;
            let read = BUFFER.with_borrow_mut(|buffer| {
                let read = socket.read(buffer);
                take(&buffer[..*read.as_ref().unwrap_or(&0)]);
                read
            });
            match read {
                Ok(read) => {
                    // A read that is not filled has emptied the socket.
                    if read < READ_BYTES {
                        ready.clear_ready();
                    }
                    return Ok(read);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => ready.clear_ready(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

pub struct Writer(Rc<UnixStream>);

impl Writer {
    /// Writes some of `bytes`, at least one, and with the first of them `descriptor`. Waits as long as the VMM reads nothing.
    pub async fn write(&self, bytes: &[u8], descriptor: Option<&OwnedFd>) -> io::Result<usize> {
        loop {
            match self.try_write(bytes, descriptor) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.room().await?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                written => return written,
            }
        }
    }

    fn try_write(&self, bytes: &[u8], descriptor: Option<&OwnedFd>) -> io::Result<usize> {
        let descriptors = descriptor.map(|descriptor| [descriptor.as_raw_fd()]);
        let control = descriptors.as_ref().map(|raw| ControlMessage::ScmRights(raw));
        let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
        Ok(sendmsg::<()>(
            self.0.as_raw_fd(),
            &[IoSlice::new(bytes)],
            control.as_slice(),
            flags,
            None,
        )?)
    }

    async fn room(&self) -> io::Result<()> {
        // A descriptor can be registered once.
        let waiting = register(Shared(Rc::new(self.0.try_clone()?)), Interest::WRITABLE)?;
        waiting.writable().await?.retain_ready();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use nix::fcntl::{FcntlArg, FdFlag, fcntl};

    use super::*;

    #[tokio::test]
    async fn control_socket_does_not_leak_into_other_children() {
        let (ours, theirs) = control_socket().unwrap();
        for flags in [
            fcntl(&*ours.writer.0, FcntlArg::F_GETFD),
            fcntl(&theirs, FcntlArg::F_GETFD),
        ] {
            assert!(FdFlag::from_bits_truncate(flags.unwrap()).contains(FdFlag::FD_CLOEXEC));
        }
    }

    #[tokio::test]
    async fn writer_given_a_full_socket_waits_until_the_peer_reads_and_loses_nothing() {
        let (ours, theirs) = control_socket().unwrap();
        let mut theirs = UnixStream::from(theirs);
        let message = vec![7; 1 << 20];
        let writing = async {
            let mut rest = message.as_slice();
            while !rest.is_empty() {
                rest = &rest[ours.writer.write(rest, None).await.unwrap()..];
            }
        };
        let (reading, total) = (
            tokio::task::spawn_blocking(move || {
                std::thread::sleep(Duration::from_millis(20));
                let mut read = vec![0; 1 << 20];
                theirs.read_exact(&mut read).unwrap();
                (read, theirs)
            }),
            message.len(),
        );
        tokio::time::timeout(Duration::from_secs(30), writing).await.unwrap();
        let (read, theirs) = reading.await.unwrap();
        assert_eq!((read.len(), read.iter().all(|byte| *byte == 7)), (total, true));
        drop(theirs);
        assert!(ours.writer.write(&[1], None).await.is_err());
    }

    #[tokio::test]
    async fn reader_reads_what_comes_and_then_the_end() {
        let (ours, theirs) = control_socket().unwrap();
        let mut theirs = UnixStream::from(theirs);
        let mut read = Vec::new();
        for part in [&b"one"[..], b"two"] {
            io::Write::write_all(&mut theirs, part).unwrap();
            assert_eq!(
                ours.reader.read(|bytes| read.extend_from_slice(bytes)).await.unwrap(),
                3
            );
        }
        let long = vec![b'x'; READ_BYTES];
        io::Write::write_all(&mut theirs, &long).unwrap();
        drop(theirs);
        while ours.reader.read(|bytes| read.extend_from_slice(bytes)).await.unwrap() > 0 {}
        assert_eq!(read, [b"onetwo", long.as_slice()].concat());
    }
}
