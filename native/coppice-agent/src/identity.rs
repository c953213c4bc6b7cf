//! What makes one life of a guest differ from its siblings: kernel randomness, clock, host name, machine id, boot id,
//! and a generation file for programs with generators of their own.
//!
//! All files are opened when the agent starts and rewritten in place, because a resume lies on the path of every fork.
//! In place is sound here: they live in a tmpfs of the agent's and are bind-mounted where programs look for them, so
//! that no program can put another file in their place; each is shorter than a page and written by one call; and the
//! agent answers, and with it anything new starts, only after all are written. Who polls `generation` may keep it open.

use std::ffi::CString;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use coppice_wire::Value;
use coppice_wire::agent::{Clock, Resumed};
use nix::errno::Errno;
use nix::mount::{MsFlags, mount};

use crate::args::{Args, ArgsError};
use crate::failure::{Coded, describe};
use crate::sys;

/// Bytes of randomness that a resume brings.
const SEED_BYTES: usize = 64;

const UUID_BYTES: usize = 16;

const MACHINE_ID_DIGITS: usize = 32;

const MAX_HOSTNAME_BYTES: usize = 64;

// From <linux/random.h>: _IOW('R', 0x03, int[2]) and _IO('R', 0x07).
const RNDADDENTROPY: libc::Ioctl = 0x4008_5203;
const RNDRESEEDCRNG: libc::Ioctl = 0x5207;

#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    #[error(transparent)]
    Args(#[from] ArgsError),
    #[error("Resume failed at {step}: {}", describe(*.errno))]
    Step { step: &'static str, errno: Errno },
}

impl Coded for IdentityError {
    fn code(&self) -> &'static str {
        match self {
            Self::Args(error) => error.code(),
            Self::Step { .. } => "RESUME_FAILED",
        }
    }
}

type Result<T> = std::result::Result<T, IdentityError>;

trait AtStep<T> {
    fn at(self, step: &'static str) -> Result<T>;
}

impl<T> AtStep<T> for sys::Result<T> {
    fn at(self, step: &'static str) -> Result<T> {
        self.map_err(|errno| IdentityError::Step { step, errno })
    }
}

/// Where each file is shown to programs, beside the agent's own directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    /// Bind-mounted over `/etc/machine-id`, `/etc/hostname` and the kernel's `boot_id`.
    Everywhere,
    /// In the directory only: an agent that is not the machine's.
    DirectoryOnly,
}

/// One small file that is rewritten in place.
struct IdentityFile {
    fd: OwnedFd,
    length: usize,
}

impl IdentityFile {
    fn create(path: &Path, contents: &[u8]) -> sys::Result<Self> {
        let path = CString::new(path.as_os_str().as_encoded_bytes()).map_err(|_| Errno::EINVAL)?;
        let fd = sys::open(&path, libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC, 0o444)?;
        sys::pwrite_whole(fd.as_raw_fd(), contents, 0)?;
        Ok(Self {
            fd,
            length: contents.len(),
        })
    }

    fn rewrite(&mut self, contents: &[u8]) -> sys::Result<()> {
        sys::pwrite_whole(self.fd.as_raw_fd(), contents, 0)?;
        if contents.len() < self.length {
            // SAFETY: takes no pointers.
            Errno::result(unsafe { libc::ftruncate(self.fd.as_raw_fd(), contents.len() as libc::off_t) })?;
        }
        self.length = contents.len();
        Ok(())
    }
}

/// RNDADDENTROPY's argument.
#[repr(C)]
struct Entropy {
    bits: libc::c_int,
    bytes: libc::c_int,
    seed: [u8; SEED_BYTES],
}

/// A checked `resume`.
pub struct ResumeRequest {
    pub generation: u64,
    seed: Option<[u8; SEED_BYTES]>,
    clock: Clock,
    hostname: String,
    machine_id: String,
}

impl ResumeRequest {
    pub fn parse(args: Value) -> std::result::Result<Self, ArgsError> {
        let refused = |field: &str, reason: String| ArgsError::Refused {
            field: field.to_owned(),
            reason,
        };
        let mut args = Args::new(args)?;
        let generation = args.integer("generation", 0..=u64::MAX)?;
        let seed = match args.optional_bytes("seed")? {
            None => None,
            Some(bytes) => {
                let reason = format!("it must have {SEED_BYTES} bytes, not {}", bytes.len());
                Some(bytes.try_into().map_err(|_| refused("seed", reason))?)
            }
        };
        let clock = parse_clock(&mut args)?;
        let hostname = args.string("hostname")?;
        let machine_id = args.string("machineId")?;
        args.finish()?;
        let is_name_byte = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.';
        if hostname.is_empty() || hostname.len() > MAX_HOSTNAME_BYTES || !hostname.bytes().all(is_name_byte) {
            let reason = format!("it must have 1 to {MAX_HOSTNAME_BYTES} letters, digits, dashes and dots");
            return Err(refused("hostname", reason));
        }
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if machine_id.len() != MACHINE_ID_DIGITS || !machine_id.bytes().all(is_digit) {
            let reason = format!("it must have {MACHINE_ID_DIGITS} lower-case hexadecimal digits");
            return Err(refused("machineId", reason));
        }
        Ok(Self {
            generation,
            seed,
            clock,
            hostname,
            machine_id,
        })
    }
}

/// Exactly one of `realtimeNs` and `stoppedNs`.
pub fn parse_clock(args: &mut Args) -> std::result::Result<Clock, ArgsError> {
    let stopped_ns = args.optional_integer("stoppedNs", 0..=i64::MAX as u64)?;
    match stopped_ns {
        Some(stopped_ns) => Ok(Clock::Advance { stopped_ns }),
        None => Ok(Clock::Set {
            realtime_ns: args.integer("realtimeNs", 0..=i64::MAX as u64)?,
        }),
    }
}

pub fn set_clock(clock: Clock) -> Result<()> {
    match clock {
        Clock::Set { realtime_ns } => sys::set_realtime_ns(realtime_ns),
        Clock::Advance { stopped_ns } => sys::advance_realtime_ns(stopped_ns),
    }
    .at("clock")
}

pub struct Identity {
    random: OwnedFd,
    boot_id: String,
    boot_id_file: IdentityFile,
    machine_id: IdentityFile,
    hostname: IdentityFile,
    generation: IdentityFile,
}

impl Identity {
    /// Makes the files in `directory` and shows them. The machine's present values stay until the first resume.
    pub fn prepare(directory: &Path, shown: Shown) -> Result<Self> {
        let io = |error: std::io::Error| Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO));
        std::fs::create_dir_all(directory).map_err(io).at("directory")?;
        let random = sys::open(c"/dev/urandom", libc::O_RDONLY, 0).at("random device")?;
        let present = |path: &str| std::fs::read(path).unwrap_or_default();
        let boot_id = String::from_utf8_lossy(&present("/proc/sys/kernel/random/boot_id"))
            .trim_end()
            .to_owned();
        let file = |name: &str, contents: &[u8]| IdentityFile::create(&directory.join(name), contents);
        let identity = Self {
            random,
            boot_id_file: file("boot_id", format!("{boot_id}\n").as_bytes()).at("boot id file")?,
            boot_id,
            machine_id: file("machine-id", &present("/etc/machine-id")).at("machine id file")?,
            hostname: file("hostname", &present("/etc/hostname")).at("host name file")?,
            generation: file("generation", b"0\n").at("generation file")?,
        };
        if shown == Shown::Everywhere {
            show(&directory.join("boot_id"), Path::new("/proc/sys/kernel/random/boot_id")).at("boot id mount")?;
            show(&directory.join("machine-id"), Path::new("/etc/machine-id")).at("machine id mount")?;
            show(&directory.join("hostname"), Path::new("/etc/hostname")).at("host name mount")?;
        }
        Ok(identity)
    }

    pub fn boot_id(&self) -> &str {
        &self.boot_id
    }

    /// Takes on a new identity. Where a step fails, the guest must not be used: some steps may be done.
    pub fn resume(&mut self, request: &ResumeRequest) -> Result<Resumed> {
        if let Some(seed) = request.seed {
            self.reseed(seed)?;
        }
        set_clock(request.clock)?;
        nix::unistd::sethostname(&request.hostname).at("host name")?;
        let uuid = self.fresh_uuid(request).at("boot id")?;
        let boot_id = format_uuid(uuid);
        self.boot_id_file
            .rewrite(format!("{boot_id}\n").as_bytes())
            .at("boot id file")?;
        self.machine_id
            .rewrite(format!("{}\n", request.machine_id).as_bytes())
            .at("machine id file")?;
        self.hostname
            .rewrite(format!("{}\n", request.hostname).as_bytes())
            .at("host name file")?;
        // Last: who waits for a new number finds everything else in place.
        self.generation
            .rewrite(format!("{}\n", request.generation).as_bytes())
            .at("generation file")?;
        self.boot_id.clone_from(&boot_id);
        Ok(Resumed {
            generation: request.generation,
            realtime_ns: sys::realtime_ns(),
            monotonic_ns: sys::monotonic_ns(),
            boot_id,
        })
    }

    fn reseed(&self, seed: [u8; SEED_BYTES]) -> Result<()> {
        let entropy = Entropy {
            bits: (SEED_BYTES * 8) as libc::c_int,
            bytes: SEED_BYTES as libc::c_int,
            seed,
        };
        // SAFETY: RNDADDENTROPY reads a rand_pool_info, whose layout `Entropy` has, with as many bytes as it announces.
        Errno::result(unsafe { libc::ioctl(self.random.as_raw_fd(), RNDADDENTROPY, &entropy) }).at("entropy")?;
        // SAFETY: RNDRESEEDCRNG takes no argument.
        Errno::result(unsafe { libc::ioctl(self.random.as_raw_fd(), RNDRESEEDCRNG, 0) }).at("reseed")?;
        Ok(())
    }

    /// With a seed from the kernel's fresh randomness. Without one the caller keeps the checkpoint's randomness, which
    /// siblings share and which must not be disturbed: then from the machine id and the generation.
    fn fresh_uuid(&self, request: &ResumeRequest) -> sys::Result<[u8; UUID_BYTES]> {
        let mut uuid = [0; UUID_BYTES];
        if request.seed.is_some() {
            let count = sys::read(self.random.as_raw_fd(), &mut uuid)?;
            return if count == UUID_BYTES { Ok(uuid) } else { Err(Errno::EIO) };
        }
        for (index, half) in uuid.chunks_exact_mut(8).enumerate() {
            let digits = request.machine_id.get(index * 16..index * 16 + 16).unwrap_or_default();
            let number = u64::from_str_radix(digits, 16).map_err(|_| Errno::EINVAL)?;
            half.copy_from_slice(&mix(number ^ mix(request.generation)).to_be_bytes());
        }
        Ok(uuid)
    }
}

/// The finalizer of SplitMix64 (Steele, Lea and Flood 2014): a bijection in which every bit depends on every other.
fn mix(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// Bind-mounts `file` over `place`, which is made where it is missing.
fn show(file: &Path, place: &Path) -> sys::Result<()> {
    // A link would be followed to wherever the image points; the names themselves are what programs open.
    let place: PathBuf = std::fs::canonicalize(place).unwrap_or_else(|_| place.to_owned());
    if !place.exists() {
        let _ = std::fs::write(&place, b"");
    }
    mount(Some(file), &place, None::<&str>, MsFlags::MS_BIND, None::<&str>)
}

/// RFC 9562: a random UUID, version 4.
fn format_uuid(mut bytes: [u8; UUID_BYTES]) -> String {
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let mut text = String::with_capacity(36);
    for (index, byte) in bytes.iter().enumerate() {
        if [4, 6, 8, 10].contains(&index) {
            text.push('-');
        }
        for digit in [byte >> 4, byte & 0x0f] {
            text.push(char::from_digit(digit.into(), 16).unwrap_or('0'));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuid_has_the_version_and_variant_of_a_random_one() {
        assert_eq!(format_uuid([0xff; UUID_BYTES]), "ffffffff-ffff-4fff-bfff-ffffffffffff");
        assert_eq!(format_uuid([0; UUID_BYTES]), "00000000-0000-4000-8000-000000000000");
    }

    #[test]
    fn identity_file_given_shorter_contents_has_no_rest_of_the_longer() {
        let directory = std::env::temp_dir().join(format!("coppice-identity-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let path = directory.join("generation");
        let mut file = IdentityFile::create(&path, b"1000\n").unwrap();
        file.rewrite(b"7\n").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"7\n");
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn resume_with_a_short_seed_or_a_bad_machine_id_names_the_field() {
        let request = |seed: usize, machine_id: &str| {
            ResumeRequest::parse(Value::Map(vec![
                ("generation".into(), 1.into()),
                ("seed".into(), Value::Binary(vec![0; seed])),
                ("realtimeNs".into(), 1.into()),
                ("hostname".into(), "one".into()),
                ("machineId".into(), machine_id.into()),
            ]))
        };
        let field = |result: std::result::Result<ResumeRequest, ArgsError>| match result {
            Err(ArgsError::Refused { field, .. }) => field,
            _ => String::new(),
        };
        assert_eq!(field(request(63, &"a".repeat(32))), "seed");
        assert_eq!(field(request(64, &"A".repeat(32))), "machineId");
        assert!(request(64, &"a".repeat(32)).is_ok());
    }
}
