//! How a message on the control socket gets the vCPU out of the guest.
//!
//! The thread that runs the first vCPU also serves the control socket: the socket raises `SIGIO`, whose handler makes
//! `KVM_RUN` return. So there is no second thread to switch to, and a machine with one vCPU has one thread. Where there are
//! more vCPUs, their threads raise the same signal when one of them needs the main thread.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

use crate::secondaries;

static PENDING: AtomicBool = AtomicBool::new(false);
static IMMEDIATE_EXIT: AtomicPtr<u8> = AtomicPtr::new(ptr::null_mut());

extern "C" fn on_signal(_: libc::c_int) {
    PENDING.store(true, Ordering::Release);
    let flag = IMMEDIATE_EXIT.load(Ordering::Acquire);
    if !flag.is_null() {
        // SAFETY: the pointer is into a mapped `kvm_run` as long as it is set: `Watch` clears it before the mapping goes.
        unsafe { flag.write_volatile(1) };
    }
}

extern "C" fn on_call(_: libc::c_int) {}

/// Installs the handlers. They are inherited by forked children.
pub fn install_handlers() -> io::Result<()> {
    let action = |handler| SigAction::new(SigHandler::Handler(handler), SaFlags::SA_RESTART, SigSet::empty());
    // SAFETY: the handlers only touch atomics and one volatile byte, or nothing, which is async-signal-safe.
    unsafe {
        sigaction(Signal::SIGIO, &action(on_signal))?;
        sigaction(secondaries::CALL, &action(on_call))?;
    }
    Ok(())
}

/// Notes that the main thread is needed. Whether it has to be told by `SIGIO`: otherwise it has been, or is about to be.
pub fn raise() -> bool {
    !PENDING.swap(true, Ordering::AcqRel)
}

/// Has `socket` send `SIGIO` to this process whenever something arrives, room appears, or the peer goes away.
pub fn watch_socket(socket: BorrowedFd<'_>) -> io::Result<()> {
    let fd = socket.as_raw_fd();
    // SAFETY: fcntl with integer arguments on an open descriptor touches no memory of ours.
    let ok = unsafe {
        libc::fcntl(fd, libc::F_SETOWN, libc::getpid()) == 0 && {
            let flags = libc::fcntl(fd, libc::F_GETFL);
            flags >= 0 && libc::fcntl(fd, libc::F_SETFL, flags | libc::O_ASYNC) == 0
        }
    };
    // What arrived before O_ASYNC was set raised no signal.
    PENDING.store(true, Ordering::Release);
    if ok { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// While it lives, a signal sets the `immediate_exit` byte it was made with.
pub struct Watch {
    flag: *mut u8,
}

impl Watch {
    /// # Safety
    ///
    /// `flag` must stay valid for volatile writes until the value is dropped.
    pub unsafe fn new(flag: *mut u8) -> Self {
        IMMEDIATE_EXIT.store(flag, Ordering::Release);
        Self { flag }
    }

    /// Whether something happened since the last call. The caller then reads the socket until it is empty: what
    /// arrives after this call sets the flag again.
    pub fn take(&self) -> bool {
        if !PENDING.swap(false, Ordering::AcqRel) {
            return false;
        }
        // SAFETY: valid as promised to `new`.
        unsafe { self.flag.write_volatile(0) };
        true
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        IMMEDIATE_EXIT.store(ptr::null_mut(), Ordering::Release);
    }
}
