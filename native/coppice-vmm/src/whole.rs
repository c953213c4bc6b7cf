//! A machine and all of its memory in a file, and a machine out of such a file in a fresh process: what systems do that
//! restore snapshots. It is here for the benchmark to compare forks with (`baseline` in docs/protocol.md), is written by
//! the same release that reads it, and refuses what it can't carry: a disk, and a message that is half-way.
//!
//! The memory comes first, so that it can be mapped; then the rest, encoded.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::AsRawFd;

use coppice_wire::{decode, encode};
use kvm_bindings::CpuId;
use serde::{Deserialize, Serialize};

use crate::devices::DevicesState;
use crate::error::VmmError;
use crate::kvm::{MsrList, VmState};
use crate::memory::GuestRam;

/// The encoded part has some kilobytes.
const REST_BYTES_MAX: u64 = 4 << 20;

/// Everything but the memory.
#[derive(Serialize, Deserialize)]
pub struct Rest<Vm> {
    pub vm: Vm,
    pub devices: DevicesState,
    pub cpuid: CpuId,
    pub msrs: MsrList,
    pub vcpus: u8,
}

/// How the memory gets from the file into the new machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Load {
    /// All of it is read before the machine runs.
    Read,
    /// The file is mapped; the guest's first touch of each page brings it in.
    Map,
}

/// Writes all memory and the rest, and says how many bytes that are.
pub fn save(file: &File, ram: &GuestRam, rest: &Rest<&VmState>) -> Result<u64, VmmError> {
    let encoded = encode(rest).map_err(|error| VmmError::Whole(error.to_string()))?;
    let failed = |source| VmmError::Host {
        call: "Writing the machine",
        source,
    };
    each_piece(ram.bytes(), |offset, length| {
        let memory = ram.host_address(offset) as *const libc::c_void;
        // SAFETY: the piece lies in guest RAM, which stays mapped for the life of the process; no VM runs in it.
        unsafe { libc::pwrite(file.as_raw_fd(), memory, length, offset as libc::off_t) }
    })
    .map_err(failed)?;
    let begin = ram.bytes();
    each_piece(encoded.len() as u64, |offset, length| {
        let bytes = &encoded[offset as usize..][..length];
        let at = (begin + offset) as libc::off_t;
        // SAFETY: `bytes` is that long.
        unsafe { libc::pwrite(file.as_raw_fd(), bytes.as_ptr().cast(), length, at) }
    })
    .map_err(failed)?;
    Ok(begin + encoded.len() as u64)
}

/// The memory and the rest. Before the process is confined: it makes calls that no confined one may.
pub fn load(mut file: File, memory_mib: u32, how: Load) -> Result<(GuestRam, Rest<VmState>), VmmError> {
    let failed = |source| VmmError::Host {
        call: "Reading the machine",
        source,
    };
    let ram = match how {
        Load::Map => GuestRam::map(&file, memory_mib)?,
        Load::Read => {
            let ram = GuestRam::new(memory_mib)?;
            // The daemon's descriptor and ours stand at the same place.
            file.seek(SeekFrom::Start(0)).map_err(failed)?;
            ram.fill(&mut file).map_err(failed)?;
            ram
        }
    };
    let mut encoded = Vec::new();
    file.seek(SeekFrom::Start(ram.bytes())).map_err(failed)?;
    file.take(REST_BYTES_MAX).read_to_end(&mut encoded).map_err(failed)?;
    let rest = decode(&encoded).map_err(|error| VmmError::Whole(error.to_string()))?;
    Ok((ram, rest))
}

/// Calls `transfer` until everything has gone through it.
fn each_piece(bytes: u64, mut transfer: impl FnMut(u64, usize) -> isize) -> io::Result<()> {
    let mut done = 0;
    while done < bytes {
        match transfer(done, (bytes - done) as usize) {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            moved if moved > 0 => done += moved as u64,
            _ => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn pieces_go_on_where_the_last_ended_and_an_early_end_is_an_error() {
        let mut seen = Vec::new();
        each_piece(10, |offset, length| {
            seen.push((offset, length));
            length.min(4) as isize
        })
        .unwrap();
        assert_eq!(seen, [(0, 10), (4, 6), (8, 2)]);
        assert!(each_piece(1, |_, _| 0).is_err());
    }

    #[test]
    fn file_without_a_machine_is_refused() {
        let file = tempfile();
        file.set_len(80 << 20).unwrap();
        file.write_all_at(b"nonsense", 80 << 20).unwrap();
        for how in [Load::Read, Load::Map] {
            let loaded = load(file.try_clone().unwrap(), 80, how);
            assert!(matches!(loaded, Err(VmmError::Whole(_))));
        }
    }

    #[test]
    fn file_that_is_too_short_is_refused() {
        let file = tempfile();
        file.set_len(1 << 20).unwrap();
        assert!(matches!(load(file, 80, Load::Read), Err(VmmError::Host { .. })));
    }

    fn tempfile() -> File {
        let name = c"coppice-whole-test";
        nix::sys::memfd::memfd_create(name, nix::sys::memfd::MFdFlags::empty())
            .unwrap()
            .into()
    }
}
