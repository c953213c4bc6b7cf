//! Guest memory that a request's data lie in, in as many pieces as the driver likes, on its way from and to files.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use vm_memory::GuestMemoryBackend;
use vm_memory::bitmap::Bitmap;

use crate::devices::ring::{Abuse, Buffer};
use crate::memory::Memory;

/// Pieces that the kernel takes with one call.
const MAX_PIECES: usize = 1024;

/// What is left of a request's data. Each transfer takes its bytes from the front.
pub struct Scatter {
    /// Each lies in guest memory, which stays mapped as long as the process lives.
    pieces: VecDeque<libc::iovec>,
}

impl Scatter {
    /// `bytes` bytes of the buffers, from `skip` on. The buffers must hold that many.
    pub fn new(memory: &Memory, buffers: &[Buffer], skip: usize, bytes: usize) -> Result<Self, Abuse> {
        let (mut pieces, mut skip, mut left) = (VecDeque::with_capacity(buffers.len()), skip as u64, bytes);
        for buffer in buffers {
            let Some(room) = u64::from(buffer.length).checked_sub(skip) else {
                skip -= u64::from(buffer.length);
                continue;
            };
            let take = left.min(room as usize);
            if left == 0 {
                break;
            }
            let outside = || Abuse::Address {
                address: buffer.address.0,
                length: buffer.length,
            };
            let start = buffer.address.0.checked_add(skip).ok_or_else(outside)?;
            for slice in GuestMemoryBackend::get_slices(memory, vm_memory::GuestAddress(start), take) {
                let slice = slice.map_err(|_| outside())?;
                pieces.push_back(libc::iovec {
                    iov_base: slice.ptr_guard_mut().as_ptr().cast(),
                    iov_len: slice.len(),
                });
            }
            left -= take;
            skip = 0;
        }
        debug_assert_eq!(left, 0, "the caller has counted the buffers");
        Ok(Self { pieces })
    }

    /// The same for `bytes` bytes that a device is about to write: whoever notes what devices write need not be told again.
    pub fn to_fill(memory: &Memory, buffers: &[Buffer], bytes: usize) -> Result<Self, Abuse> {
        let scatter = Self::new(memory, buffers, 0, bytes)?;
        for buffer in buffers {
            let slices = GuestMemoryBackend::get_slices(memory, buffer.address, buffer.length as usize);
            for slice in slices.flatten() {
                slice.bitmap().mark_dirty(0, slice.len());
            }
        }
        Ok(scatter)
    }

    /// Fills the next `bytes` bytes from the file.
    pub fn read_from(&mut self, file: &File, offset: u64, bytes: usize) -> io::Result<()> {
        self.transfer(offset, bytes, |pieces, offset| {
            // SAFETY: each piece is mapped guest memory, which nothing borrows as a Rust reference; the array of pieces
            // is as long as is said.
            unsafe { libc::preadv(file.as_raw_fd(), pieces.as_ptr(), pieces.len() as i32, offset) }
        })
    }

    /// Writes the next `bytes` bytes to the file.
    pub fn write_to(&mut self, file: &File, offset: u64, bytes: usize) -> io::Result<()> {
        self.transfer(offset, bytes, |pieces, offset| {
            // SAFETY: as for `read_from`; the kernel reads the pieces.
            unsafe { libc::pwritev(file.as_raw_fd(), pieces.as_ptr(), pieces.len() as i32, offset) }
        })
    }

    /// Fills the next `bytes` bytes with zeros.
    pub fn zero(&mut self, bytes: usize) {
        for piece in self.front(bytes) {
            // SAFETY: the piece is mapped guest memory of that length, which nothing borrows as a Rust reference.
            unsafe { piece.iov_base.cast::<u8>().write_bytes(0, piece.iov_len) };
        }
        self.advance(bytes);
    }

    fn transfer(
        &mut self,
        mut offset: u64,
        mut left: usize,
        call: impl Fn(&[libc::iovec], libc::off_t) -> isize,
    ) -> io::Result<()> {
        while left > 0 {
            let pieces = self.front(left);
            match call(&pieces[..pieces.len().min(MAX_PIECES)], offset as libc::off_t) {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                done if done > 0 => {
                    self.advance(done as usize);
                    offset += done as u64;
                    left -= done as usize;
                }
                _ => match io::Error::last_os_error() {
                    error if error.kind() == io::ErrorKind::Interrupted => {}
                    error => return Err(error),
                },
            }
        }
        Ok(())
    }

    /// The pieces of the next `bytes` bytes.
    fn front(&self, bytes: usize) -> Vec<libc::iovec> {
        let mut left = bytes;
        let mut front = Vec::new();
        for piece in &self.pieces {
            if left == 0 {
                break;
            }
            let iov_len = piece.iov_len.min(left);
            left -= iov_len;
            front.push(libc::iovec {
                iov_base: piece.iov_base,
                iov_len,
            });
        }
        front
    }

    fn advance(&mut self, mut bytes: usize) {
        while let Some(piece) = self.pieces.front_mut() {
            if piece.iov_len > bytes {
                piece.iov_base = piece.iov_base.cast::<u8>().wrapping_add(bytes).cast();
                piece.iov_len -= bytes;
                return;
            }
            bytes -= piece.iov_len;
            self.pieces.pop_front();
        }
    }
}
