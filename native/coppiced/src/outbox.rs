//! A queue of bytes on their way to a peer, bounded in bytes, with one writer task.
//!
//! Who has much to say (`send`) waits for room, and so passes the back-pressure of a slow peer on to its source. Who
//! must not wait (`try_send`, `send_now`) is told or let through.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};

use crate::machine::control_socket::Writer;

#[derive(Debug, thiserror::Error)]
pub enum OutboxError {
    #[error("Peer is gone")]
    Closed,
    #[error("Peer does not read fast enough: its queue of {capacity} bytes is full")]
    Full { capacity: u32 },
}

struct Packet {
    bytes: Vec<u8>,
    descriptor: Option<OwnedFd>,
    room: Option<OwnedSemaphorePermit>,
}

/// The sending end.
#[derive(Clone)]
pub struct Outbox {
    packets: mpsc::UnboundedSender<Packet>,
    room: Arc<Semaphore>,
    capacity: u32,
    closing: watch::Sender<bool>,
}

/// The writer's end.
pub struct Outgoing {
    packets: mpsc::UnboundedReceiver<Packet>,
    /// Taken from the queue, and not to be joined with what was before it.
    held: Option<Packet>,
}

/// Packets that wait together are written together up to this size: a write costs more than its bytes.
const JOINED_BYTES: usize = 16 * 1024;

/// A queue that holds `capacity` bytes.
pub fn outbox(capacity: u32) -> (Outbox, Outgoing) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let room = Arc::new(Semaphore::new(capacity as usize));
    (
        Outbox {
            packets: sender,
            room,
            capacity,
            closing: watch::Sender::new(false),
        },
        Outgoing {
            packets: receiver,
            held: None,
        },
    )
}

impl Outbox {
    /// Waits for room. A packet larger than the whole queue waits until the queue is empty.
    pub async fn send(&self, bytes: Vec<u8>) -> Result<(), OutboxError> {
        let room = Arc::clone(&self.room).acquire_many_owned(self.need(&bytes)).await;
        self.push(Packet {
            bytes,
            descriptor: None,
            room: Some(room.map_err(|_| OutboxError::Closed)?),
        })
    }

    /// Fails where there is no room.
    pub fn try_send(&self, bytes: Vec<u8>) -> Result<(), OutboxError> {
        let room = Arc::clone(&self.room).try_acquire_many_owned(self.need(&bytes));
        let room = room.map_err(|_| OutboxError::Full {
            capacity: self.capacity,
        })?;
        self.push(Packet {
            bytes,
            descriptor: None,
            room: Some(room),
        })
    }

    /// Queues a small packet whether or not there is room; only for what the daemon itself originates.
    pub fn send_now(&self, bytes: Vec<u8>, descriptor: Option<OwnedFd>) -> Result<(), OutboxError> {
        self.push(Packet {
            bytes,
            descriptor,
            room: None,
        })
    }

    /// Gives the peer up: who waits in `closed` closes the connection.
    pub fn close(&self) {
        self.closing.send_replace(true);
    }

    /// Returns when the writer has ended or the peer was given up.
    pub async fn closed(&self) {
        let mut closing = self.closing.subscribe();
        tokio::select! {
            () = self.packets.closed() => {}
            _ = closing.wait_for(|closing| *closing) => {}
        }
    }

    fn need(&self, bytes: &[u8]) -> u32 {
        u32::try_from(bytes.len()).unwrap_or(u32::MAX).min(self.capacity)
    }

    fn push(&self, packet: Packet) -> Result<(), OutboxError> {
        self.packets.send(packet).map_err(|_| OutboxError::Closed)
    }
}

impl Outgoing {
    /// The next packet, with what waits behind it and fits.
    async fn next(&mut self) -> Option<Packet> {
        let mut packet = match self.held.take() {
            Some(held) => held,
            None => self.packets.recv().await?,
        };
        while let Ok(next) = self.packets.try_recv() {
            // A descriptor comes with the first byte of a packet.
            if next.descriptor.is_some() || packet.bytes.len() + next.bytes.len() > JOINED_BYTES {
                self.held = Some(next);
                break;
            }
            packet.bytes.extend(next.bytes);
            match (&mut packet.room, next.room) {
                (Some(room), Some(more)) => room.merge(more),
                (none, room) => *none = none.take().or(room),
            }
        }
        Some(packet)
    }

    /// Writes until all senders are gone, or the peer takes no byte for `stall`.
    pub async fn write_to(mut self, mut stream: impl AsyncWrite + Unpin, stall: Duration) -> io::Result<()> {
        while let Some(packet) = self.next().await {
            let mut rest = packet.bytes.as_slice();
            while !rest.is_empty() {
                let write = async {
                    let written = stream.write(rest).await?;
                    // Under TLS what was taken may wait to be encrypted and sent.
                    stream.flush().await?;
                    io::Result::Ok(written)
                };
                let written = tokio::time::timeout(stall, write).await.map_err(|_| stalled())??;
                if written == 0 {
                    return Err(io::ErrorKind::WriteZero.into());
                }
                rest = &rest[written..];
            }
            drop(packet.room);
        }
        Ok(())
    }

    /// As `write_to`, without a limit on stalls (a VMM that is stopped reads nothing), and with descriptors.
    pub async fn write_to_vmm(mut self, socket: Writer) -> io::Result<()> {
        while let Some(packet) = self.next().await {
            let (mut rest, mut descriptor) = (packet.bytes.as_slice(), packet.descriptor.as_ref());
            while !rest.is_empty() {
                rest = &rest[socket.write(rest, descriptor.take()).await?..];
            }
            drop(packet.room);
        }
        Ok(())
    }
}

fn stalled() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "peer takes no more bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn try_send_given_a_full_queue_is_refused_until_the_peer_reads() {
        let (outbox, outgoing) = outbox(10);
        outbox.try_send(vec![0; 8]).unwrap();
        assert!(matches!(outbox.try_send(vec![0; 8]), Err(OutboxError::Full { .. })));

        let (near, mut far) = tokio::io::duplex(64);
        let writer = tokio::spawn(outgoing.write_to(near, Duration::from_secs(5)));
        let mut bytes = [0; 8];
        tokio::io::AsyncReadExt::read_exact(&mut far, &mut bytes).await.unwrap();
        outbox.send(vec![0; 100]).await.unwrap(); // larger than the queue: alone, but not refused
        drop(outbox);
        let mut bytes = [0; 100];
        tokio::io::AsyncReadExt::read_exact(&mut far, &mut bytes).await.unwrap();
        writer.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn packets_that_wait_together_are_written_together_and_give_their_room_back() {
        let (outbox, mut outgoing) = outbox(100);
        for byte in 0..3 {
            outbox.try_send(vec![byte; 30]).unwrap();
        }
        outbox.send_now(vec![3; 30], None).unwrap();
        outbox.send_now(vec![4; JOINED_BYTES], None).unwrap();
        outbox.send_now(vec![5], None).unwrap();
        let first = outgoing.next().await.unwrap();
        assert_eq!(first.bytes, [[0; 30], [1; 30], [2; 30], [3; 30]].concat());
        assert!(outbox.try_send(vec![6; 30]).is_err());
        drop(first);
        assert_eq!(outgoing.next().await.unwrap().bytes.len(), JOINED_BYTES);
        outbox.try_send(vec![6; 100]).unwrap();
        assert_eq!(outgoing.next().await.unwrap().bytes.len(), 101);
    }

    #[tokio::test]
    async fn writer_given_a_peer_that_reads_nothing_gives_up() {
        let (outbox, outgoing) = outbox(1_000);
        let (near, _far) = tokio::io::duplex(4);
        outbox.try_send(vec![0; 100]).unwrap();
        let error = outgoing.write_to(near, Duration::from_millis(20)).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
