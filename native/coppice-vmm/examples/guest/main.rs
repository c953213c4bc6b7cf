//! PID 1 of the test rig's guest: does as it is told over the agent's port, one text request a frame.
//!
//! It is no agent: it exists so that the VMM's own tests need nothing but the VMM.

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use nix::mount::{MsFlags, mount};
use nix::sys::reboot::{RebootMode, reboot};
use nix::time::{ClockId, clock_gettime};

mod cpus;
mod disk;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

const PAGE: usize = 4096;

fn main() {
    if let Err(error) = run() {
        eprintln!("guest: {error}");
    }
    std::thread::sleep(Duration::from_secs(1));
}

fn run() -> Outcome<()> {
    for (kind, target) in [("proc", "/proc"), ("sysfs", "/sys"), ("devtmpfs", "/dev")] {
        fs::create_dir_all(target)?;
        mount(Some(kind), target, Some(kind), MsFlags::empty(), None::<&str>)?;
    }
    for name in fs::read_to_string("/modules/order")?.lines() {
        load_module(name)?;
    }
    let mut port = open_port()?;
    eprintln!("guest: ready");
    send(&mut port, b"ready")?;
    let mut state = State::default();
    loop {
        let request = receive(&mut port)?;
        let reply = match state.answer(&request, &mut port) {
            Ok(reply) => reply,
            Err(error) => format!("error {error}").into_bytes(),
        };
        send(&mut port, &reply)?;
    }
}

fn load_module(name: &str) -> Outcome<()> {
    let file = File::open(format!("/modules/{name}"))?;
    let parameters = CString::default();
    // SAFETY: the descriptor is open and the string NUL-terminated for the length of the call.
    match unsafe { libc::syscall(libc::SYS_finit_module, file.as_raw_fd(), parameters.as_ptr(), 0) } {
        0 => Ok(()),
        _ => Err(format!("module {name}: {}", std::io::Error::last_os_error()).into()),
    }
}

fn open_port() -> Outcome<File> {
    let deadline = Instant::now() + Duration::from_secs(20);
    while Instant::now() < deadline {
        for entry in fs::read_dir("/sys/class/virtio-ports").into_iter().flatten().flatten() {
            let name = fs::read_to_string(entry.path().join("name")).unwrap_or_default();
            if name.trim() == "org.coppice.agent" {
                let device = format!("/dev/{}", entry.file_name().to_string_lossy());
                return Ok(OpenOptions::new().read(true).write(true).open(device)?);
            }
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Err("no agent port".into())
}

fn receive(port: &mut File) -> Outcome<Vec<u8>> {
    let mut prefix = [0; 4];
    port.read_exact(&mut prefix)?;
    let mut payload = vec![0; u32::from_le_bytes(prefix) as usize];
    port.read_exact(&mut payload)?;
    Ok(payload)
}

fn frame(payload: &[u8]) -> Vec<u8> {
    [&(payload.len() as u32).to_le_bytes(), payload].concat()
}

fn send(port: &mut File, payload: &[u8]) -> Outcome<()> {
    Ok(port.write_all(&frame(payload))?)
}

#[derive(Default)]
struct State {
    counter: u64,
    memory: Vec<u8>,
    rest: Vec<u8>,
}

impl State {
    fn answer(&mut self, request: &[u8], port: &mut File) -> Outcome<Vec<u8>> {
        let text = String::from_utf8_lossy(request).into_owned();
        let mut words = text.split(' ');
        let operation = words.next().unwrap_or_default();
        let mut number = || words.next().and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
        Ok(match operation {
            "count" => {
                self.counter += 1;
                self.counter.to_string()
            }
            "fill" => {
                let (mib, seed) = (number() as usize, number());
                self.memory = (0..mib << 20).map(|index| (index as u64 * 31 + seed) as u8).collect();
                "filled".to_owned()
            }
            "touch" => {
                let (pages, seed) = (number() as usize, number() as u8);
                self.memory.chunks_mut(PAGE).take(pages).for_each(|page| page[0] = seed);
                "touched".to_owned()
            }
            "sum" => self
                .memory
                .iter()
                .fold(7u64, |sum, byte| sum.wrapping_mul(31) + u64::from(*byte))
                .to_string(),
            "clock" => nanoseconds(ClockId::CLOCK_MONOTONIC)?.to_string(),
            "realtime" => nanoseconds(ClockId::CLOCK_REALTIME)?.to_string(),
            "sleep" => {
                let (start, wanted) = (Instant::now(), number());
                std::thread::sleep(Duration::from_millis(wanted));
                start.elapsed().as_micros().to_string()
            }
            "echo" => return Ok(request.to_vec()),
            "burst" => {
                let (count, size) = (number(), number() as usize);
                for index in 0..count {
                    send(port, &vec![index as u8; size])?;
                }
                "sent".to_owned()
            }
            "half" => {
                let whole = frame(&[b'h'; 10_000]);
                port.write_all(&whole[..5_000])?;
                self.rest = whole[5_000..].to_vec();
                // The answer would land inside of the frame: the rest comes first.
                let next = receive(port)?;
                port.write_all(&self.rest)?;
                return Ok(next);
            }
            "disk" => {
                let disk = File::open("/dev/vda")?;
                let mut bytes = vec![0; number() as usize];
                disk.read_exact_at(&mut bytes, number())?;
                bytes
                    .iter()
                    .fold(7u64, |sum, byte| sum.wrapping_mul(31) + u64::from(*byte))
                    .to_string()
            }
            "serial" => fs::read_to_string("/sys/block/vda/serial")?,
            "dsize" => File::open(disk::DEVICE)?.seek(SeekFrom::End(0))?.to_string(),
            "dwrite" => {
                disk::write(number(), number(), number() as u8)?;
                "written".to_owned()
            }
            "dread" => return disk::read(number(), number()),
            "ddiscard" => {
                disk::discard(number(), number())?;
                "discarded".to_owned()
            }
            "dlog" => {
                disk::start_log();
                "logging".to_owned()
            }
            "dcheck" => disk::check_log()?.to_string(),
            "cpus" => cpus::online()?.to_string(),
            "cpuload" => {
                cpus::start_load()?;
                "started".to_owned()
            }
            "cputurns" => cpus::turns(),
            "cpufaults" => cpus::faults(),
            "dmesg" => dmesg()?,
            "port" => {
                // User-mode output: the check against the task segment that emulated SVM gets wrong.
                // SAFETY: port 0x80 has no device; ioperm only changes this process's permissions.
                unsafe {
                    if libc::ioperm(0x80, 1, 1) != 0 {
                        return Err(std::io::Error::last_os_error().into());
                    }
                    std::arch::asm!("out 0x80, al", in("al") 1u8);
                }
                "written".to_owned()
            }
            "spin" => spin(),
            "print" => {
                let mut console = OpenOptions::new().write(true).open("/dev/console")?;
                for line in 0..number() {
                    console.write_all(format!("line {line} of the console test\n").as_bytes())?;
                }
                "printed".to_owned()
            }
            "off" => end(RebootMode::RB_POWER_OFF)?,
            "reset" => end(RebootMode::RB_AUTOBOOT)?,
            "panic" => {
                fs::write("/proc/sysrq-trigger", "c")?;
                String::new()
            }
            other => format!("error unknown request {other:?}"),
        }
        .into_bytes())
    }
}

fn end(mode: RebootMode) -> Outcome<String> {
    let never = reboot(mode)?;
    match never {}
}

fn nanoseconds(clock: ClockId) -> Outcome<u128> {
    Ok(Duration::from(clock_gettime(clock)?).as_nanos())
}

/// Leaves a process behind that never stops computing.
fn spin() -> String {
    // SAFETY: the child only computes; it touches nothing that the fork may have left inconsistent.
    match unsafe { libc::fork() } {
        0 => loop {
            std::hint::spin_loop();
        },
        pid => format!("spinning {pid}"),
    }
}

fn dmesg() -> Outcome<String> {
    let mut bytes = vec![0u8; 256 << 10];
    const READ_ALL: libc::c_int = 3;
    // SAFETY: the buffer is as long as is said.
    let length = unsafe { libc::klogctl(READ_ALL, bytes.as_mut_ptr().cast(), bytes.len() as libc::c_int) };
    bytes.truncate(length.max(0) as usize);
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
