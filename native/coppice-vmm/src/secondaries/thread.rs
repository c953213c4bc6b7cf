//! A thread that runs one vCPU and does nothing else: it enters the guest when it is told to, and says when it is back.
//!
//! It makes its system calls itself and shares nothing with the main thread but a few words: it takes no lock, allocates
//! nothing and has no `errno`. So the process can be forked wherever the thread is, and it needs few system calls.

use std::arch::{asm, naked_asm};
use std::io;
use std::os::fd::RawFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};

use crate::attention;

/// Brings a vCPU back. Its handler does nothing: the call that it interrupts returns.
pub const CALL: Signal = Signal::SIGUSR1;

/// The flags with which a thread is made; the system call filter lets no others through.
pub const FLAGS: u64 = (libc::CLONE_VM
    | libc::CLONE_FS
    | libc::CLONE_FILES
    | libc::CLONE_SIGHAND
    | libc::CLONE_THREAD
    | libc::CLONE_SYSVSEM
    | libc::CLONE_CHILD_CLEARTID) as u64;

// Values of `Shared::turn`.
/// The vCPU is not in the guest, and the main thread may do with it what it likes.
const STOPPED: u32 = 0;
/// It is in the guest or on its way; the main thread gets a signal when it is back.
const RUNNING: u32 = 1;
/// The same, and the main thread waits.
const AWAITED: u32 = 2;
/// The thread is to end.
const QUIT: u32 = 3;

const GUARD_BYTES: usize = 4096;
/// The thread calls nothing; a signal's frame holds all registers, which on large processors are 12 KiB.
const STACK_BYTES: usize = 64 << 10;
/// Room for `Shared` above the stack.
const SHARED_BYTES: usize = 64;

const KVM_RUN: usize = 0xae80;

struct Shared {
    turn: AtomicU32,
    /// Cleared by the kernel when the thread is gone.
    alive: AtomicU32,
    /// Of `KVM_RUN`: 0, or the negative error number.
    result: AtomicI32,
    vcpu: RawFd,
    /// Also the number of its main thread.
    process: libc::pid_t,
}

/// The main thread's end of it. Dropped, the thread is gone.
pub struct VcpuThread {
    shared: NonNull<Shared>,
    number: libc::pid_t,
    immediate_exit: *mut u8,
}

impl VcpuThread {
    /// Starts the thread of a vCPU. It is stopped.
    ///
    /// # Safety
    ///
    /// The descriptor must stay open, and `immediate_exit` valid for volatile writes, until the result is dropped.
    pub unsafe fn start(vcpu: RawFd, immediate_exit: *mut u8) -> io::Result<Self> {
        let shared = map()?;
        // SAFETY: writable, aligned and large enough, and no thread knows of it yet.
        unsafe {
            shared.write(Shared {
                turn: AtomicU32::new(STOPPED),
                alive: AtomicU32::new(1),
                result: AtomicI32::new(0),
                vcpu,
                process: libc::getpid(),
            });
        }
        match make_thread(shared) {
            Ok(number) => Ok(Self {
                shared,
                number,
                immediate_exit,
            }),
            Err(error) => {
                unmap(shared);
                Err(error)
            }
        }
    }

    /// Lets the vCPU run until its next exit, of which the main thread is told by `attention`.
    pub fn run(&self) {
        self.enter(0, RUNNING);
    }

    /// Completes what the last exit left open without running the guest, and waits for it.
    pub fn complete(&self) {
        self.enter(1, AWAITED);
        self.wait();
    }

    /// Asks the vCPU to come back, if it is in the guest.
    pub fn call(&self) {
        let turn = &self.shared().turn;
        let was_running = turn.compare_exchange(RUNNING, AWAITED, Ordering::AcqRel, Ordering::Acquire);
        if was_running.is_ok() {
            self.set_immediate_exit(1);
            send(self.shared().process, self.number, CALL);
        }
    }

    /// Waits for a vCPU that was called.
    pub fn wait(&self) {
        let turn = &self.shared().turn;
        while turn.load(Ordering::Acquire) == AWAITED {
            futex(turn, libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG, AWAITED);
        }
    }

    /// How `KVM_RUN` ended, where it has: 0, or an error number.
    pub fn result(&self) -> Option<i32> {
        let is_back = self.shared().turn.load(Ordering::Acquire) == STOPPED;
        is_back.then(|| -self.shared().result.load(Ordering::Relaxed))
    }

    fn enter(&self, immediate_exit: u8, turn: u32) {
        self.set_immediate_exit(immediate_exit);
        self.hand_over(turn);
    }

    fn hand_over(&self, turn: u32) {
        self.shared().turn.store(turn, Ordering::Release);
        futex(&self.shared().turn, libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, 1);
    }

    fn set_immediate_exit(&self, value: u8) {
        // SAFETY: valid as promised to `start`.
        unsafe { self.immediate_exit.write_volatile(value) };
    }

    fn shared(&self) -> &Shared {
        // SAFETY: mapped until `drop`; what changes in it is atomic.
        unsafe { self.shared.as_ref() }
    }
}

impl Drop for VcpuThread {
    fn drop(&mut self) {
        // In a fork it does not exist.
        if self.shared().process == std::process::id().cast_signed() {
            self.call();
            self.wait();
            self.hand_over(QUIT);
            let alive = &self.shared().alive;
            while alive.load(Ordering::Acquire) != 0 {
                // The kernel's call does not take the word for private.
                futex(alive, libc::FUTEX_WAIT, 1);
            }
        }
        unmap(self.shared);
    }
}

/// Maps guard, stack and shared words, one above the other.
fn map() -> io::Result<NonNull<Shared>> {
    let (anywhere, protection) = (ptr::null_mut(), libc::PROT_READ | libc::PROT_WRITE);
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new anonymous mapping at an address of the kernel's choice touches no existing object.
    let start = unsafe { libc::mmap(anywhere, GUARD_BYTES + STACK_BYTES, protection, flags, -1, 0) };
    if start == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the first page of the mapping just made.
    let guarded = unsafe { libc::mprotect(start, GUARD_BYTES, libc::PROT_NONE) } == 0;
    let shared = start
        .cast::<u8>()
        .wrapping_add(GUARD_BYTES + STACK_BYTES - SHARED_BYTES);
    let shared = NonNull::new(shared.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
    if !guarded {
        let error = io::Error::last_os_error();
        unmap(shared);
        return Err(error);
    }
    Ok(shared)
}

fn unmap(shared: NonNull<Shared>) {
    let start = shared
        .as_ptr()
        .cast::<u8>()
        .wrapping_sub(GUARD_BYTES + STACK_BYTES - SHARED_BYTES);
    // SAFETY: the mapping of `map`, on which no thread runs any more.
    unsafe { libc::munmap(start.cast(), GUARD_BYTES + STACK_BYTES) };
}

/// The new thread's number.
fn make_thread(shared: NonNull<Shared>) -> io::Result<libc::pid_t> {
    // The control socket's signals are for the main thread. A mask is inherited.
    let mut blocked = SigSet::all();
    blocked.remove(CALL);
    let mut before = SigSet::empty();
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&blocked), Some(&mut before))?;
    // SAFETY: the stack is mapped below `shared`, which is aligned to more than 16, and used by nobody else.
    let result = unsafe { clone(FLAGS, shared.as_ptr(), shared.as_ref().alive.as_ptr()) };
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&before), None)?;
    match result {
        number if number > 0 => Ok(number as libc::pid_t),
        error => Err(io::Error::from_raw_os_error(-error as i32)),
    }
}

/// Makes a thread that begins in `serve`, on the stack that ends at `shared`.
#[unsafe(naked)]
unsafe extern "sysv64" fn clone(flags: u64, shared: *mut Shared, alive: *mut u32) -> isize {
    naked_asm!(
        // Flags and stack are where the kernel wants them; then come two more, and a descriptor of local storage.
        "mov r10, rdx",
        "xor edx, edx",
        "xor r8d, r8d",
        "mov eax, {clone}",
        "syscall",
        "test rax, rax",
        "jz 2f",
        "ret",
        "2:",
        "xor ebp, ebp",
        "mov rdi, rsp",
        "call {serve}",
        "ud2",
        clone = const libc::SYS_clone,
        serve = sym serve,
    )
}

/// The thread. Whatever it calls must be made of nothing but system calls: its thread-local storage is the main thread's.
unsafe extern "sysv64" fn serve(shared: *const Shared) -> ! {
    // SAFETY: `VcpuThread` keeps it mapped until the thread is gone.
    let shared = unsafe { &*shared };
    loop {
        match shared.turn.load(Ordering::Acquire) {
            STOPPED => futex(&shared.turn, libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG, STOPPED),
            QUIT => exit(),
            _ => run(shared),
        }
    }
}

fn run(shared: &Shared) {
    // SAFETY: the descriptor is a vCPU's, which this thread alone runs; the call takes no pointer.
    let result = unsafe { system_call(libc::SYS_ioctl, [shared.vcpu as usize, KVM_RUN, 0, 0]) } as i32;
    let turn = shared.turn.load(Ordering::Acquire);
    // A vCPU that the guest has just started, or a call that came too late.
    if turn == RUNNING && (result == -libc::EAGAIN || result == -libc::EINTR) {
        return;
    }
    shared.result.store(result, Ordering::Relaxed);
    match shared.turn.swap(STOPPED, Ordering::AcqRel) {
        RUNNING if attention::raise() => send(shared.process, shared.process, Signal::SIGIO),
        RUNNING => {}
        _ => futex(&shared.turn, libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, 1),
    }
}

fn exit() -> ! {
    loop {
        // SAFETY: ends this thread alone.
        unsafe { system_call(libc::SYS_exit, [0; 4]) };
    }
}

fn send(process: libc::pid_t, thread: libc::pid_t, signal: Signal) {
    let (process, thread) = (process as usize, thread as usize);
    // SAFETY: takes integers only.
    unsafe { system_call(libc::SYS_tgkill, [process, thread, signal as usize, 0]) };
}

fn futex(word: &AtomicU32, operation: i32, value: u32) {
    let word = word.as_ptr() as usize;
    // SAFETY: the word is valid; there is no time limit to point to.
    unsafe { system_call(libc::SYS_futex, [word, operation as usize, value as usize, 0]) };
}

/// # Safety
///
/// As the system call has it.
unsafe fn system_call(number: i64, arguments: [usize; 4]) -> isize {
    let [first, second, third, fourth] = arguments;
    let result;
    // SAFETY: the kernel's calling convention; what it changes is declared.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") first,
            in("rsi") second,
            in("rdx") third,
            in("r10") fourth,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        )
    };
    result
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsRawFd;

    use super::*;

    /// One whose every `KVM_RUN` fails at once, and the byte that would end it.
    fn with_thread(test: impl FnOnce(&VcpuThread, &u8)) {
        attention::install_handlers().unwrap();
        let (file, mut byte) = (File::open("/dev/null").unwrap(), 7);
        // SAFETY: both live until the end of this function.
        let thread = unsafe { VcpuThread::start(file.as_raw_fd(), &raw mut byte) }.unwrap();
        test(&thread, &byte);
    }

    #[test]
    fn thread_runs_when_it_is_told_to_and_says_how_that_ended() {
        with_thread(|thread, _| {
            for _ in 0..1000 {
                thread.run();
                thread.call();
                thread.wait();
                assert_eq!(thread.result(), Some(libc::ENOTTY));
            }
        });
    }

    #[test]
    fn thread_of_a_stopped_vcpu_completes_and_is_stopped_again() {
        with_thread(|thread, byte| {
            thread.complete();
            assert_eq!(thread.result(), Some(libc::ENOTTY));
            // SAFETY: a reference to a live byte.
            assert_eq!(unsafe { ptr::from_ref(byte).read_volatile() }, 1);
        });
    }

    #[test]
    fn many_threads_come_and_go() {
        (0..200).for_each(|_| with_thread(|thread, _| thread.run()));
    }
}
