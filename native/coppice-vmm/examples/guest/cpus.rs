//! A load on every processor that makes them need each other: locks, time that must not go back from one to the next, and
//! pages whose protection changes for all.

use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;

use crate::Outcome;

const MOST: usize = 4;
const PAGE: usize = 4096;
/// So that the load leaves time for others where processors are emulated.
const REST: Duration = Duration::from_micros(300);

static TURNS: [AtomicU64; MOST] = [const { AtomicU64::new(0) }; MOST];
static SHARED: Mutex<Shared> = Mutex::new(Shared {
    turns: 0,
    latest: Duration::ZERO,
});
static FAULTS: Mutex<String> = Mutex::new(String::new());

struct Shared {
    turns: u64,
    latest: Duration,
}

pub fn online() -> Outcome<usize> {
    let set = sched_getaffinity(Pid::from_raw(0))?;
    Ok((0..CpuSet::count())
        .filter(|cpu| set.is_set(*cpu).unwrap_or(false))
        .count())
}

pub fn start_load() -> Outcome<()> {
    // SAFETY: a new anonymous mapping at an address of the kernel's choice.
    let page = unsafe {
        let (protection, flags) = (libc::PROT_READ, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        libc::mmap(ptr::null_mut(), PAGE * MOST, protection, flags, -1, 0)
    };
    if page == libc::MAP_FAILED {
        return Err(std::io::Error::last_os_error().into());
    }
    let page = page as usize;
    for cpu in 0..online()?.min(MOST) {
        thread::spawn(move || {
            if let Err(error) = work(cpu, page + cpu * PAGE) {
                fault(&error.to_string());
            }
        });
    }
    Ok(())
}

/// How often each processor has had its turn.
pub fn turns() -> String {
    let turns: Vec<String> = TURNS
        .iter()
        .take(online().unwrap_or(0))
        .map(|turns| turns.load(Ordering::Relaxed).to_string())
        .collect();
    turns.join(" ")
}

/// What was not as it must be; empty: nothing.
pub fn faults() -> String {
    FAULTS
        .lock()
        .map_or_else(|_| "a thread ended".to_owned(), |faults| faults.clone())
}

fn fault(text: &str) {
    if let Ok(mut faults) = FAULTS.lock() {
        faults.push_str(text);
    }
}

fn work(cpu: usize, page: usize) -> Outcome<()> {
    let mut only = CpuSet::new();
    only.set(cpu)?;
    sched_setaffinity(Pid::from_raw(0), &only)?;
    for turn in 0u64.. {
        let before = TURNS[cpu].fetch_add(1, Ordering::Relaxed);
        {
            let mut shared = SHARED.lock().map_err(|error| error.to_string())?;
            let now = Duration::from(clock_gettime(ClockId::CLOCK_MONOTONIC)?);
            if now < shared.latest {
                fault(&format!("time went back by {:?} on {cpu}; ", shared.latest - now));
            }
            shared.latest = now;
            shared.turns += 1;
        }
        if before != turn {
            fault(&format!("{cpu} had turn {before} for {turn}; "));
        }
        write_protected(page, turn)?;
        // SAFETY: takes no pointers.
        if unsafe { libc::sched_getcpu() } != cpu as i32 {
            fault(&format!("not on {cpu}; "));
        }
        thread::sleep(REST);
    }
    Ok(())
}

/// Makes a page writable, writes it, and takes that back, of which all processors have to hear.
fn write_protected(page: usize, value: u64) -> Outcome<()> {
    for protection in [libc::PROT_READ | libc::PROT_WRITE, libc::PROT_READ] {
        // SAFETY: a page of a mapping that only this thread uses.
        if unsafe { libc::mprotect(page as *mut libc::c_void, PAGE, protection) } != 0 {
            return Err(std::io::Error::last_os_error().into());
        }
        if protection & libc::PROT_WRITE != 0 {
            // SAFETY: it is writable now.
            unsafe { (page as *mut u64).write_volatile(value) };
        }
    }
    // SAFETY: it is readable always.
    match unsafe { (page as *const u64).read_volatile() } == value {
        true => Ok(()),
        false => Err("another value than was written".into()),
    }
}
