//! The filter, call by call: what a VMM never does kills it, what it does goes on working.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::{Duration, Instant};

use coppice_wire::vmm::{Event, LentFile, host_time_ns};
use nix::sys::signal::Signal;
use nix::sys::socket::{MsgFlags, send};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;
use vm_memory::{Bytes, GuestAddress};

use crate::attention;
use crate::confine::drill::{
    End, Inside, attempt, confine, confine_with_threads, inside, inside_with_peer, outside, require,
};
use crate::confine::{ConfineError, Missing};
use crate::control::{Control, ControlError};
use crate::devices::drilled::{Buffer, Scatter};
use crate::devices::fixture;
use crate::fork::{Side, die_with_parent, fork_sibling};
use crate::hot::{HotPages, Progress};
use crate::lent::Lent;
use crate::memory::{GuestRam, MIN_MEMORY_MIB, PAGE_BYTES};
use crate::secondaries::drilled::VcpuThread;
use crate::secondaries::{CALL, FLAGS};

const PASSWD: *const libc::c_char = c"/etc/passwd".as_ptr();
const ROOT: *const libc::c_char = c"/".as_ptr();
const PAGE: usize = 4096;
const RW: usize = (libc::PROT_READ | libc::PROT_WRITE) as usize;
const RWX: usize = RW | libc::PROT_EXEC as usize;
const ANONYMOUS: usize = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as usize;
const NOWHERE: usize = usize::MAX;
const CWD: usize = libc::AT_FDCWD as usize;
/// No process has it.
const NO_PID: usize = i32::MAX as usize;
const X32: i64 = 0x4000_0000;
/// `KVM_CREATE_DEVICE` and `KVM_ENABLE_CAP`, which a VMM does not use.
const KVM_CREATE_DEVICE: usize = 0xc00c_aee0;
const KVM_ENABLE_CAP: usize = 0x4068_aea3;

type Row = (&'static str, i64, [usize; 6]);

fn path(path: *const libc::c_char) -> usize {
    path as usize
}

#[rustfmt::skip]
fn forbidden() -> Vec<Row> {
    let (passwd, root) = (path(PASSWD), path(ROOT));
    let signal = |signal: i32| signal as usize;
    let flags = |flags: i32| flags as usize;
    vec![
        // Files.
        ("open /etc/passwd", libc::SYS_open, [passwd, 0, 0, 0, 0, 0]),
        ("openat /etc/passwd", libc::SYS_openat, [CWD, passwd, 0, 0, 0, 0]),
        ("openat2 /etc/passwd", libc::SYS_openat2, [CWD, passwd, 0, 0, 0, 0]),
        ("creat", libc::SYS_creat, [path(c"/x".as_ptr()), 0o600, 0, 0, 0, 0]),
        ("name_to_handle_at", libc::SYS_name_to_handle_at, [CWD, passwd, 0, 0, 0, 0]),
        ("open_by_handle_at", libc::SYS_open_by_handle_at, [CWD, 0, 0, 0, 0, 0]),
        ("stat", libc::SYS_stat, [passwd, 0, 0, 0, 0, 0]),
        ("statx", libc::SYS_statx, [CWD, passwd, 0, 0, 0, 0]),
        ("fstat", libc::SYS_fstat, [0, 0, 0, 0, 0, 0]),
        ("access", libc::SYS_access, [passwd, 0, 0, 0, 0, 0]),
        ("readlink /proc/self/exe", libc::SYS_readlink, [path(c"/proc/self/exe".as_ptr()), 0, 0, 0, 0, 0]),
        ("getdents64", libc::SYS_getdents64, [0, 0, 0, 0, 0, 0]),
        ("getcwd", libc::SYS_getcwd, [0, 0, 0, 0, 0, 0]),
        ("unlink", libc::SYS_unlink, [path(c"/nothing".as_ptr()), 0, 0, 0, 0, 0]),
        ("rename", libc::SYS_rename, [path(c"/nothing".as_ptr()), path(c"/other".as_ptr()), 0, 0, 0, 0]),
        ("mkdir", libc::SYS_mkdir, [path(c"/proc/x".as_ptr()), 0o700, 0, 0, 0, 0]),
        ("symlink", libc::SYS_symlink, [passwd, path(c"/proc/x".as_ptr()), 0, 0, 0, 0]),
        ("chmod", libc::SYS_chmod, [path(c"/nothing".as_ptr()), 0, 0, 0, 0, 0]),
        ("chdir", libc::SYS_chdir, [root, 0, 0, 0, 0, 0]),
        ("fchdir", libc::SYS_fchdir, [0, 0, 0, 0, 0, 0]),
        ("inotify_init1", libc::SYS_inotify_init1, [0; 6]),
        ("fanotify_init", libc::SYS_fanotify_init, [0; 6]),
        ("memfd_create", libc::SYS_memfd_create, [path(c"x".as_ptr()), 0, 0, 0, 0, 0]),
        ("write to another descriptor than stderr", libc::SYS_write, [3, passwd, 0, 0, 0, 0]),
        ("read", libc::SYS_read, [0; 6]),
        ("writev", libc::SYS_writev, [3, 0, 0, 0, 0, 0]),
        ("fallocate that makes a file larger", libc::SYS_fallocate, [3, 0, 0, 1 << 20, 0, 0]),
        ("fallocate that takes a piece out", libc::SYS_fallocate, [3, flags(libc::FALLOC_FL_COLLAPSE_RANGE), 0, 4096, 0, 0]),
        ("ftruncate", libc::SYS_ftruncate, [3, 0, 0, 0, 0, 0]),
        ("fsync", libc::SYS_fsync, [3, 0, 0, 0, 0, 0]),
        ("copy_file_range", libc::SYS_copy_file_range, [3, 0, 3, 0, 1, 0]),
        ("preadv2", libc::SYS_preadv2, [3, 0, 0, 0, 0, 0]),
        ("sendfile", libc::SYS_sendfile, [0, 0, 0, 0, 0, 0]),
        ("dup", libc::SYS_dup, [0; 6]),
        ("fcntl F_DUPFD", libc::SYS_fcntl, [0, flags(libc::F_DUPFD), 0, 0, 0, 0]),
        ("fcntl F_SETSIG", libc::SYS_fcntl, [0, 10, signal(libc::SIGKILL), 0, 0, 0]),
        // Network and other processes' sockets.
        ("socket AF_INET", libc::SYS_socket, [flags(libc::AF_INET), flags(libc::SOCK_STREAM), 0, 0, 0, 0]),
        ("socket AF_UNIX", libc::SYS_socket, [flags(libc::AF_UNIX), flags(libc::SOCK_STREAM), 0, 0, 0, 0]),
        ("socket AF_VSOCK", libc::SYS_socket, [flags(libc::AF_VSOCK), flags(libc::SOCK_STREAM), 0, 0, 0, 0]),
        ("socket AF_NETLINK", libc::SYS_socket, [flags(libc::AF_NETLINK), flags(libc::SOCK_RAW), 0, 0, 0, 0]),
        ("socketpair", libc::SYS_socketpair, [flags(libc::AF_UNIX), flags(libc::SOCK_STREAM), 0, 0, 0, 0]),
        ("connect", libc::SYS_connect, [0; 6]),
        ("bind", libc::SYS_bind, [0; 6]),
        ("listen", libc::SYS_listen, [0; 6]),
        ("accept4", libc::SYS_accept4, [0; 6]),
        ("sendto with an address", libc::SYS_sendto, [0, 0, 0, 0, passwd, 16]),
        ("sendmsg, which can pass descriptors on", libc::SYS_sendmsg, [0; 6]),
        // Programs and processes.
        ("execve", libc::SYS_execve, [path(c"/bin/true".as_ptr()), 0, 0, 0, 0, 0]),
        ("execveat", libc::SYS_execveat, [CWD, path(c"/bin/true".as_ptr()), 0, 0, 0, 0]),
        ("fork", libc::SYS_fork, [0; 6]),
        ("clone without CLONE_PARENT", libc::SYS_clone, [signal(libc::SIGCHLD), 0, 0, 0, 0, 0]),
        ("clone of a thread", libc::SYS_clone, [flags(libc::CLONE_VM | libc::CLONE_THREAD | libc::CLONE_SIGHAND), 0, 0, 0, 0, 0]),
        ("clone with a new user namespace", libc::SYS_clone, [flags(libc::CLONE_PARENT | libc::CLONE_NEWUSER | libc::SIGCHLD), 0, 0, 0, 0, 0]),
        ("clone untraced", libc::SYS_clone, [flags(libc::CLONE_PARENT | libc::CLONE_UNTRACED | libc::SIGCHLD), 0, 0, 0, 0, 0]),
        ("clone with a high flag", libc::SYS_clone, [flags(libc::CLONE_PARENT | libc::SIGCHLD) | 1 << 32, 0, 0, 0, 0, 0]),
        ("clone3", libc::SYS_clone3, [0; 6]),
        ("unshare", libc::SYS_unshare, [flags(libc::CLONE_NEWUSER), 0, 0, 0, 0, 0]),
        ("setns", libc::SYS_setns, [0; 6]),
        ("ptrace", libc::SYS_ptrace, [flags(libc::PTRACE_TRACEME as i32), 0, 0, 0, 0, 0]),
        ("process_vm_readv", libc::SYS_process_vm_readv, [NO_PID, 0, 0, 0, 0, 0]),
        ("process_vm_writev", libc::SYS_process_vm_writev, [NO_PID, 0, 0, 0, 0, 0]),
        ("process_madvise", libc::SYS_process_madvise, [0; 6]),
        ("kcmp", libc::SYS_kcmp, [NO_PID, NO_PID, 0, 0, 0, 0]),
        ("kill of another process", libc::SYS_kill, [NO_PID, signal(libc::SIGKILL), 0, 0, 0, 0]),
        ("tgkill with SIGKILL", libc::SYS_tgkill, [NO_PID, NO_PID, signal(libc::SIGKILL), 0, 0, 0]),
        ("tkill", libc::SYS_tkill, [NO_PID, signal(libc::SIGKILL), 0, 0, 0, 0]),
        ("rt_sigqueueinfo", libc::SYS_rt_sigqueueinfo, [NO_PID, 0, 0, 0, 0, 0]),
        ("pidfd_open", libc::SYS_pidfd_open, [NO_PID, 0, 0, 0, 0, 0]),
        ("pidfd_send_signal", libc::SYS_pidfd_send_signal, [0; 6]),
        ("pidfd_getfd", libc::SYS_pidfd_getfd, [0; 6]),
        ("setpriority", libc::SYS_setpriority, [0, 0, 0, 0, 0, 0]),
        ("sched_setaffinity", libc::SYS_sched_setaffinity, [0; 6]),
        ("sched_setscheduler", libc::SYS_sched_setscheduler, [0; 6]),
        ("prlimit64", libc::SYS_prlimit64, [0; 6]),
        ("setrlimit", libc::SYS_setrlimit, [0; 6]),
        // Rights.
        ("setuid 0", libc::SYS_setuid, [0; 6]),
        ("setresuid 0", libc::SYS_setresuid, [0; 6]),
        ("setgid 0", libc::SYS_setgid, [0; 6]),
        ("setgroups", libc::SYS_setgroups, [0; 6]),
        ("capset", libc::SYS_capset, [0; 6]),
        ("prctl PR_SET_DUMPABLE", libc::SYS_prctl, [flags(libc::PR_SET_DUMPABLE), 1, 0, 0, 0, 0]),
        ("prctl PR_SET_SECCOMP", libc::SYS_prctl, [flags(libc::PR_SET_SECCOMP), 2, 0, 0, 0, 0]),
        ("prctl PR_SET_PDEATHSIG off", libc::SYS_prctl, [flags(libc::PR_SET_PDEATHSIG), 0, 0, 0, 0, 0]),
        ("prctl PR_SET_MM", libc::SYS_prctl, [flags(libc::PR_SET_MM), 0, 0, 0, 0, 0]),
        ("seccomp", libc::SYS_seccomp, [1, 0, 0, 0, 0, 0]),
        ("personality", libc::SYS_personality, [0x0040_0000, 0, 0, 0, 0, 0]),
        ("umask", libc::SYS_umask, [0; 6]),
        ("keyctl", libc::SYS_keyctl, [0; 6]),
        ("add_key", libc::SYS_add_key, [0; 6]),
        ("request_key", libc::SYS_request_key, [0; 6]),
        // Mounts and the machine.
        ("mount", libc::SYS_mount, [0, 0, 0, 0, 0, 0]),
        ("umount2", libc::SYS_umount2, [path(c"/nothing".as_ptr()), 0, 0, 0, 0, 0]),
        ("open_tree", libc::SYS_open_tree, [CWD, root, 0, 0, 0, 0]),
        ("move_mount", libc::SYS_move_mount, [0; 6]),
        ("fsopen", libc::SYS_fsopen, [path(c"tmpfs".as_ptr()), 0, 0, 0, 0, 0]),
        ("pivot_root", libc::SYS_pivot_root, [0; 6]),
        ("chroot", libc::SYS_chroot, [path(c"/nothing".as_ptr()), 0, 0, 0, 0, 0]),
        ("sethostname", libc::SYS_sethostname, [0; 6]),
        ("init_module", libc::SYS_init_module, [0; 6]),
        ("finit_module", libc::SYS_finit_module, [NOWHERE, 0, 0, 0, 0, 0]),
        ("kexec_load", libc::SYS_kexec_load, [0, 0, 0, NOWHERE, 0, 0]),
        ("reboot", libc::SYS_reboot, [0; 6]),
        ("settimeofday", libc::SYS_settimeofday, [0; 6]),
        ("clock_settime", libc::SYS_clock_settime, [0; 6]),
        ("syslog", libc::SYS_syslog, [10, 0, 0, 0, 0, 0]),
        ("iopl", libc::SYS_iopl, [0; 6]),
        ("ioperm", libc::SYS_ioperm, [0; 6]),
        ("swapon", libc::SYS_swapon, [0; 6]),
        // Memory.
        ("mmap executable", libc::SYS_mmap, [0, PAGE, RWX, ANONYMOUS, NOWHERE, 0]),
        ("mprotect executable", libc::SYS_mprotect, [0, 0, RWX, 0, 0, 0]),
        ("pkey_mprotect", libc::SYS_pkey_mprotect, [0, 0, RWX, NOWHERE, 0, 0]),
        ("shmat executable", libc::SYS_shmat, [0, 0, 0o100000, 0, 0, 0]),
        ("shmget", libc::SYS_shmget, [0; 6]),
        ("msgget", libc::SYS_msgget, [0; 6]),
        ("semget", libc::SYS_semget, [0; 6]),
        ("mq_open", libc::SYS_mq_open, [path(c"x".as_ptr()), 0, 0, 0, 0, 0]),
        ("userfaultfd", libc::SYS_userfaultfd, [0; 6]),
        ("remap_file_pages", libc::SYS_remap_file_pages, [0; 6]),
        ("madvise MADV_DONTFORK", libc::SYS_madvise, [0, 0, flags(libc::MADV_DONTFORK), 0, 0, 0]),
        ("mlock", libc::SYS_mlock, [0; 6]),
        ("vmsplice", libc::SYS_vmsplice, [0; 6]),
        // What kernels are attacked by.
        ("futex", libc::SYS_futex, [0; 6]),
        ("getrandom", libc::SYS_getrandom, [0; 6]),
        ("bpf", libc::SYS_bpf, [0; 6]),
        ("io_uring_setup", libc::SYS_io_uring_setup, [1, 0, 0, 0, 0, 0]),
        ("io_uring_enter", libc::SYS_io_uring_enter, [0; 6]),
        ("perf_event_open", libc::SYS_perf_event_open, [0; 6]),
        ("modify_ldt", libc::SYS_modify_ldt, [0; 6]),
        ("timer_create", libc::SYS_timer_create, [0; 6]),
        ("timerfd_create", libc::SYS_timerfd_create, [0; 6]),
        ("eventfd2", libc::SYS_eventfd2, [0; 6]),
        ("epoll_create1", libc::SYS_epoll_create1, [0; 6]),
        ("pipe2", libc::SYS_pipe2, [0; 6]),
        ("signalfd4", libc::SYS_signalfd4, [0; 6]),
        ("rt_sigaction of SIGIO", libc::SYS_rt_sigaction, [signal(libc::SIGIO), 0, 0, 8, 0, 0]),
        ("ioctl TIOCSTI", libc::SYS_ioctl, [0, libc::TIOCSTI as usize, 0, 0, 0, 0]),
        ("ioctl FIONBIO", libc::SYS_ioctl, [0, libc::FIONBIO as usize, 0, 0, 0, 0]),
        ("ioctl KVM_CREATE_DEVICE", libc::SYS_ioctl, [0, KVM_CREATE_DEVICE, 0, 0, 0, 0]),
        ("ioctl KVM_ENABLE_CAP", libc::SYS_ioctl, [0, KVM_ENABLE_CAP, 0, 0, 0, 0]),
        ("x32 getpid", X32 | libc::SYS_getpid, [0; 6]),
        ("a call that does not exist", 900, [0; 6]),
    ]
}

#[test]
fn call_that_no_vmm_makes_kills_it() {
    let rows = forbidden();
    let crossed: Vec<_> = rows
        .iter()
        .map(|(name, call, arguments)| (name, inside(confine, |_| attempt(*call, *arguments))))
        .filter(|(_, end)| *end != End::Killed(Signal::SIGSYS))
        .collect();
    assert!(rows.len() > 100 && crossed.is_empty(), "{crossed:?}");
}

/// Beside what nobody may: what would make more of threads than one for each vCPU.
fn forbidden_with_threads() -> Vec<Row> {
    let clone = |flags: u64| [flags as usize, 0, 0, 0, 0, 0];
    let futex = |operation: i32| [0, operation as usize, 0, 0, 0, 0];
    let signal = |signal: Signal| [NO_PID, NO_PID, signal as usize, 0, 0, 0];
    let mut rows = forbidden();
    rows.retain(|(name, ..)| *name != "futex");
    let (new_user, settls) = (libc::CLONE_NEWUSER as u64, libc::CLONE_SETTLS as u64);
    rows.extend([
        (
            "clone of a thread in a namespace",
            libc::SYS_clone,
            clone(FLAGS | new_user),
        ),
        ("clone of a thread with storage", libc::SYS_clone, clone(FLAGS | settls)),
        (
            "clone of a process that shares memory",
            libc::SYS_clone,
            clone(libc::CLONE_VM as u64),
        ),
        ("futex FUTEX_LOCK_PI", libc::SYS_futex, futex(libc::FUTEX_LOCK_PI)),
        (
            "futex FUTEX_CMP_REQUEUE",
            libc::SYS_futex,
            futex(libc::FUTEX_CMP_REQUEUE),
        ),
        ("tgkill with SIGTERM", libc::SYS_tgkill, signal(Signal::SIGTERM)),
        ("set_robust_list", libc::SYS_set_robust_list, [0; 6]),
        ("rseq", libc::SYS_rseq, [0; 6]),
    ]);
    rows
}

#[test]
fn call_that_no_vmm_with_threads_makes_kills_it() {
    let crossed: Vec<_> = forbidden_with_threads()
        .into_iter()
        .map(|(name, call, arguments)| (name, inside(confine_with_threads, |_| attempt(call, arguments))))
        .filter(|(_, end)| *end != End::Killed(Signal::SIGSYS))
        .collect();
    assert!(crossed.is_empty(), "{crossed:?}");
}

/// Makes the thread of a vCPU, whose descriptor is none, has it run, stops it and ends it.
fn threads_work(inside: Inside) -> io::Result<usize> {
    let mut immediate_exit = 0;
    for _ in 0..3 {
        // SAFETY: both live longer than the thread, which ends with this turn.
        let thread = unsafe { VcpuThread::start(inside.socket.as_raw_fd(), &raw mut immediate_exit) }?;
        thread.run();
        thread.call();
        thread.wait();
        thread.complete();
        require(thread.result() == Some(libc::ENOTTY))?;
    }
    Ok(0)
}

#[test]
fn threads_of_vcpus_work_where_there_are_several_and_only_there() {
    // Inherited, as by a VMM's forks.
    attention::install_handlers().unwrap();
    assert_eq!(inside(confine_with_threads, threads_work), End::Crossed);
    assert_eq!(inside(confine_with_threads, control_works), End::Crossed);
    assert_eq!(inside(confine, threads_work), End::Killed(Signal::SIGSYS));
    for call in [CALL, Signal::SIGIO] {
        let end = inside(confine, |_| {
            attempt(libc::SYS_tgkill, [NO_PID, NO_PID, call as usize, 0, 0, 0])
        });
        assert_eq!(end, End::Killed(Signal::SIGSYS));
    }
}

#[test]
fn fork_of_a_process_with_threads_has_one_and_works() {
    attention::install_handlers().unwrap();
    let mut immediate_exit = 0;
    let flag = &raw mut immediate_exit;
    let start = |inside: &Inside| {
        // SAFETY: both live until the thread is dropped.
        let thread = unsafe { VcpuThread::start(inside.socket.as_raw_fd(), flag) }?;
        thread.run();
        Ok(thread)
    };
    let (template, child) = ends_of_family(confine_with_threads, start, |inside, thread| {
        // Of the parent's thread it has the memory, and gives that back.
        drop(thread);
        memory_works(inside)
    });
    assert_eq!(template, End::Crossed);
    assert!(matches!(child, WaitStatus::Exited(_, 0)), "{child:?}");
}

#[test]
fn i386_call_kills_it_or_does_not_exist() {
    let end = inside(confine, |_| {
        let mut result: usize = 20; // getpid
        // SAFETY: the old system call gate; clobbers what it declares, and the child ends here in any case.
        unsafe {
            std::arch::asm!("int 0x80", inout("rax") result, out("r8") _, out("r9") _, out("r10") _, out("r11") _)
        };
        Ok(result)
    });
    // A kernel without 32-bit support faults at the gate.
    assert!(matches!(end, End::Killed(Signal::SIGSYS | Signal::SIGSEGV)), "{end:?}");
}

#[test]
fn attempts_are_real_ones() {
    let ends = [
        (
            "open",
            outside(|_| attempt(libc::SYS_openat, [CWD, path(PASSWD), 0, 0, 0, 0])),
        ),
        ("socket", outside(|_| attempt(libc::SYS_socket, [1, 1, 0, 0, 0, 0]))),
        (
            "clone",
            outside(|_| attempt(libc::SYS_clone, [libc::SIGCHLD as usize, 0, 0, 0, 0, 0])),
        ),
        (
            "mmap",
            outside(|_| attempt(libc::SYS_mmap, [0, PAGE, RWX, ANONYMOUS, NOWHERE, 0])),
        ),
        ("ptrace", outside(|_| attempt(libc::SYS_ptrace, [0; 6]))),
        (
            "kill",
            outside(|_| {
                attempt(
                    libc::SYS_kill,
                    [std::os::unix::process::parent_id() as usize, 0, 0, 0, 0, 0],
                )
            }),
        ),
        (
            "pipe",
            outside(|_| attempt(libc::SYS_memfd_create, [path(c"x".as_ptr()), 0, 0, 0, 0, 0])),
        ),
    ];
    assert!(ends.iter().all(|(_, end)| *end == End::Crossed), "{ends:?}");
}

/// A VMM that has got a socket of its own, as a fork does: commands and descriptors in, events out.
fn control_works(inside: Inside) -> io::Result<usize> {
    let work = |mut control: Control| {
        control.send(&Event::Resumed { stages: Vec::new() })?;
        control.flush()?;
        Ok(control.wait_until(Instant::now() + Duration::from_millis(1))?.is_none() && control.poll()?.is_none())
    };
    let worked: Result<bool, ControlError> = Control::new(inside.socket).and_then(work);
    require(worked.is_ok_and(|nothing_came| nothing_came))
}

fn memory_works(_: Inside) -> io::Result<usize> {
    let mut large = vec![1u8; 4 << 20];
    large.extend_from_slice(&vec![2u8; 64 << 20]);
    drop(large);
    let small: Vec<Box<[u8; 300]>> = (0..50_000).map(|number| Box::new([number as u8; 300])).collect();
    // Not freed: the arena of a thread, which the harness's are, is trimmed with a look into /proc. A VMM has one thread
    // and none.
    std::mem::forget(small);
    HotPages::new()?;
    Ok(0)
}

fn clocks_work(_: Inside) -> io::Result<usize> {
    let begin = Instant::now();
    let mut time = [0u64; 2];
    attempt(libc::SYS_clock_gettime, [0, time.as_mut_ptr() as usize, 0, 0, 0, 0])?;
    require(begin.elapsed().as_secs() < 60 && host_time_ns() > 0 && std::process::id() > 1)
}

#[test]
fn what_a_vmm_does_goes_on_working() {
    assert_eq!(inside(confine, control_works), End::Crossed);
    assert_eq!(inside(confine, memory_works), End::Crossed);
    assert_eq!(inside(confine, clocks_work), End::Crossed);
}

/// Moves a disk's blocks between guest memory and an extent, and gives one back.
fn disk_works(writable: &File) -> io::Result<usize> {
    let memory = fixture::memory();
    let buffers = [Buffer {
        address: GuestAddress(PAGE_BYTES),
        length: PAGE_BYTES as u32,
    }; 2];
    let data = || Scatter::new(&memory, &buffers, 0, 2 * PAGE_BYTES as usize).map_err(io::Error::other);
    data()?.write_to(writable, PAGE_BYTES, 2 * PAGE_BYTES as usize)?;
    data()?.read_from(writable, PAGE_BYTES, 2 * PAGE_BYTES as usize)?;
    let hole = (libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE) as usize;
    attempt(
        libc::SYS_fallocate,
        [writable.as_raw_fd() as usize, hole, 0, PAGE, 0, 0],
    )?;
    nix::sys::statfs::fstatfs(writable)?;
    std::os::unix::fs::FileExt::write_all_at(writable, b"x", 0)?;
    Ok(0)
}

#[test]
fn blocks_of_a_disk_are_moved_and_given_back() {
    let extent = nix::sys::memfd::memfd_create(c"extent", nix::sys::memfd::MFdFlags::empty()).unwrap();
    let extent = File::from(extent);
    let end = outside(|inside| {
        confine(&[inside.socket.as_fd(), extent.as_fd()]).map_err(io::Error::other)?;
        disk_works(&extent)
    });
    assert_eq!(end, End::Crossed);
}

#[test]
fn base_is_frozen_counted_and_learnt_from_with_lent_files() {
    let end = outside(|inside| {
        let mut ram = GuestRam::new(MIN_MEMORY_MIB).map_err(io::Error::other)?;
        let (statm, pagemap) = (File::open("/proc/self/statm")?, File::open("/proc/self/pagemap")?);
        let kept = [inside.socket.as_fd(), ram.file(), statm.as_fd(), pagemap.as_fd()];
        confine(&kept).map_err(io::Error::other)?;
        let mut lent = Lent::default();
        lent.take(LentFile::Statm, statm);
        lent.take(LentFile::Pagemap, pagemap);
        ram.freeze_base(&lent).map_err(io::Error::other)?;
        for page in 0..100 {
            let address = GuestAddress(page * PAGE_BYTES);
            ram.memory().write_obj(7u8, address).map_err(io::Error::other)?;
        }
        let counted = ram.private_pages(&lent).map_err(io::Error::other)?;
        let hot = HotPages::new()?;
        let pagemap = lent.pagemap().ok_or(io::ErrorKind::NotFound)?;
        hot.learn(Progress::Used, pagemap, ram.host_address(0), ram.bytes())?;
        ram.copy_early(&[200, 201]);
        require((100..150).contains(&counted) && hot.pages(u32::MAX).len() == 100)
    });
    assert_eq!(end, End::Crossed);
}

/// Ends of a confined process and of what it forked, which does `attempt` with what its parent has
/// prepared.
fn ends_of_family<T>(
    confine: fn(&[BorrowedFd<'_>]) -> Result<Vec<Missing>, ConfineError>,
    prepare: impl FnOnce(&Inside) -> io::Result<T>,
    attempt: impl FnOnce(Inside, T) -> io::Result<usize>,
) -> (End, WaitStatus) {
    let (end, mut peer) = inside_with_peer(confine, |inside| {
        let prepared = prepare(&inside)?;
        match fork_sibling()? {
            Side::Parent { child } => {
                send(inside.socket.as_raw_fd(), &child.to_ne_bytes(), MsgFlags::MSG_NOSIGNAL)?;
                Ok(0)
            }
            Side::Child => {
                die_with_parent()?;
                attempt(inside, prepared)
            }
        }
    });
    let mut pid = [0; 4];
    peer.read_exact(&mut pid).unwrap();
    // The fork is a sibling of its template: a child of this process.
    (end, waitpid(Pid::from_raw(i32::from_ne_bytes(pid)), None).unwrap())
}

#[test]
fn fork_of_a_confined_process_works_and_is_confined() {
    let (template, child) = ends_of_family(confine, |_| Ok(()), |inside, ()| memory_works(inside));
    assert_eq!(template, End::Crossed);
    assert!(matches!(child, WaitStatus::Exited(_, 0)), "{child:?}");
    let (template, child) = ends_of_family(
        confine,
        |_| Ok(()),
        |_, ()| attempt(libc::SYS_socket, [1, 1, 0, 0, 0, 0]),
    );
    assert_eq!(template, End::Crossed);
    assert!(
        matches!(child, WaitStatus::Signaled(_, Signal::SIGSYS, false)),
        "{child:?}"
    );
}

#[test]
fn panic_of_a_confined_process_ends_it_by_abort() {
    let end = inside(confine, |_| std::process::abort());
    assert_eq!(end, End::Killed(Signal::SIGABRT));
}
