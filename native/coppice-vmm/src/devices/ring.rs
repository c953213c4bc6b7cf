//! Descriptor chains of a hostile driver, checked once and copied out before use.

use std::io;

use virtio_queue::{DescriptorChain, Queue, QueueOwnedT, QueueT};
use vm_memory::{Bytes, GuestAddress};

use crate::memory::Memory;

/// Most bytes that one chain may describe. Larger requests are not made by any driver of ours.
pub const MAX_CHAIN_BYTES: u64 = 16 << 20;

/// Bytes that one turn moves. Then it is looked whether the machine has something else to do.
const TURN_BYTES: usize = 8 << 20;

/// What a request costs beside its data, in bytes that are moved in the same time.
const REQUEST_BYTES: usize = 4 << 10;

/// How often one kick looks again for entries that appeared while it worked. More come with the next kick.
const MAX_PASSES: usize = 4;

/// A device was driven outside its specification. The VM ends: its driver can't be trusted with anything any more.
#[derive(Debug, thiserror::Error)]
pub enum Abuse {
    #[error("Queue {queue} of the {device} device has rings outside of guest memory")]
    RingAddress { device: &'static str, queue: usize },
    #[error("Available ring is inconsistent: {0}")]
    Ring(virtio_queue::Error),
    #[error("Descriptor chain {head} is a loop, leaves the table or can't be read")]
    BrokenChain { head: u16 },
    #[error("Descriptor chain {head} holds {bytes} bytes, over the limit of {MAX_CHAIN_BYTES}")]
    LongChain { head: u16, bytes: u64 },
    #[error("Descriptor chain {head} has a readable buffer after a writable one")]
    Order { head: u16 },
    #[error("Descriptor chain {head} has no room for what the device must write")]
    NoRoom { head: u16 },
    #[error("Buffer at {address:#x}, {length} bytes, is not in guest memory")]
    Address { address: u64, length: u32 },
    #[error("Agent stream is not made of frames: {0}")]
    Frame(#[from] coppice_wire::FrameError),
    #[error("Console control queue: {0}")]
    Control(&'static str),
    #[error("Guest memory access failed: {0}")]
    Io(#[from] io::Error),
}

/// One buffer of a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Buffer {
    pub address: GuestAddress,
    pub length: u32,
}

/// A chain as it was when it was read: later changes by the driver have no effect.
#[derive(Debug, Default)]
pub struct Chain {
    pub head: u16,
    pub readable: Vec<Buffer>,
    pub writable: Vec<Buffer>,
}

impl Chain {
    /// Next available chain of the queue, read and checked; `None` where there is none.
    pub fn pop(queue: &mut Queue, memory: &Memory) -> Result<Option<Self>, Abuse> {
        let limit = queue.size();
        match queue.iter(memory).map_err(Abuse::Ring)?.next() {
            None => Ok(None),
            Some(chain) => Self::read(chain, limit).map(Some),
        }
    }

    fn read(descriptors: DescriptorChain<&Memory>, limit: u16) -> Result<Self, Abuse> {
        let head = descriptors.head_index();
        let mut chain = Self {
            head,
            ..Self::default()
        };
        let (mut count, mut bytes, mut ends) = (0u16, 0u64, false);
        for descriptor in descriptors {
            count += 1;
            if count > limit {
                return Err(Abuse::BrokenChain { head });
            }
            bytes += u64::from(descriptor.len());
            if bytes > MAX_CHAIN_BYTES {
                return Err(Abuse::LongChain { head, bytes });
            }
            let buffer = Buffer {
                address: descriptor.addr(),
                length: descriptor.len(),
            };
            if descriptor.is_write_only() {
                chain.writable.push(buffer);
            } else if chain.writable.is_empty() {
                chain.readable.push(buffer);
            } else {
                return Err(Abuse::Order { head });
            }
            ends = !descriptor.has_next();
        }
        // The iterator also ends where it meets an entry that it can't follow.
        if ends {
            Ok(chain)
        } else {
            Err(Abuse::BrokenChain { head })
        }
    }

    pub fn readable_bytes(&self) -> usize {
        self.readable.iter().map(|buffer| buffer.length as usize).sum()
    }

    pub fn writable_bytes(&self) -> usize {
        self.writable.iter().map(|buffer| buffer.length as usize).sum()
    }

    /// Appends everything that the driver wrote to `bytes`.
    pub fn read_into(&self, memory: &Memory, bytes: &mut Vec<u8>) -> Result<(), Abuse> {
        for buffer in &self.readable {
            let start = bytes.len();
            bytes.resize(start + buffer.length as usize, 0);
            memory
                .read_slice(&mut bytes[start..], buffer.address)
                .map_err(|_| Abuse::Address {
                    address: buffer.address.0,
                    length: buffer.length,
                })?;
        }
        Ok(())
    }

    /// Fills `bytes` with what the driver wrote, beginning `offset` bytes into the readable buffers, which must hold them.
    pub fn read_at(&self, memory: &Memory, offset: usize, bytes: &mut [u8]) -> Result<(), Abuse> {
        let (mut skip, mut rest) = (offset, bytes);
        for buffer in &self.readable {
            let held = (buffer.length as usize).saturating_sub(skip);
            let take = held.min(rest.len());
            if take > 0 {
                let (now, later) = rest.split_at_mut(take);
                let address = GuestAddress(buffer.address.0.wrapping_add(skip as u64));
                memory.read_slice(now, address).map_err(|_| Abuse::Address {
                    address: buffer.address.0,
                    length: buffer.length,
                })?;
                rest = later;
            }
            skip = skip.saturating_sub(buffer.length as usize);
        }
        debug_assert!(rest.is_empty(), "the caller has counted the buffers");
        Ok(())
    }

    /// Writes as much of `bytes` as there is room for, beginning `offset` bytes into the writable buffers.
    pub fn write_at(&self, memory: &Memory, offset: usize, bytes: &[u8]) -> Result<usize, Abuse> {
        let (mut skip, mut rest) = (offset, bytes);
        for buffer in &self.writable {
            let room = (buffer.length as usize).saturating_sub(skip);
            let take = room.min(rest.len());
            if take > 0 {
                let (now, later) = rest.split_at(take);
                let address = GuestAddress(buffer.address.0.wrapping_add(skip as u64));
                memory.write_slice(now, address).map_err(|_| Abuse::Address {
                    address: buffer.address.0,
                    length: buffer.length,
                })?;
                rest = later;
            }
            skip = skip.saturating_sub(buffer.length as usize);
        }
        Ok(bytes.len() - rest.len())
    }
}

/// What a device may still do before others have their turn: a ring of large requests takes seconds.
#[derive(Debug, Default, Clone)]
pub struct Turn {
    left: usize,
    is_over: bool,
}

impl Turn {
    pub fn begin(&mut self) {
        *self = Self {
            left: TURN_BYTES,
            is_over: false,
        };
    }

    /// Whether the device may take one more request of so many bytes, however large.
    pub fn take(&mut self, bytes: usize) -> bool {
        self.is_over = self.left == 0;
        self.spend(bytes.saturating_add(REQUEST_BYTES));
        !self.is_over
    }

    pub fn spend(&mut self, bytes: usize) {
        self.left = self.left.saturating_sub(bytes);
    }

    /// Requests were left in the ring, for the next turn.
    pub fn is_over(&self) -> bool {
        self.is_over
    }
}

/// What a pass over a queue should do after one chain.
pub enum Step {
    /// The chain is done; that many bytes were written to it.
    Used(u32),
    /// Leave the chain in the ring and stop.
    Stop,
}

/// Runs `handle` for every available chain, in order, and says whether the driver wants an interrupt.
///
/// Work is bounded by the queue's size times a constant however fast the driver refills the ring.
pub fn serve(
    queue: &mut Queue,
    memory: &Memory,
    mut handle: impl FnMut(&Chain) -> Result<Step, Abuse>,
) -> Result<bool, Abuse> {
    let mut used = false;
    'passes: for _ in 0..MAX_PASSES {
        for _ in 0..queue.size() {
            let Some(chain) = Chain::pop(queue, memory)? else { break };
            match handle(&chain)? {
                Step::Used(written) => {
                    queue.add_used(memory, chain.head, written).map_err(Abuse::Ring)?;
                    used = true;
                }
                Step::Stop => {
                    queue.go_to_previous_position();
                    break 'passes;
                }
            }
        }
        if !queue.enable_notification(memory).map_err(Abuse::Ring)? {
            break;
        }
    }
    Ok(used && queue.needs_notification(memory).map_err(Abuse::Ring)?)
}
