//! Each barrier by itself, without the filter in front of it: what holds when a call gets through.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::FileExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::prctl;
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::signal::Signal;
use nix::unistd::{Pid, Uid, geteuid, gethostname, getresuid, setresuid};

use crate::confine::drill::{End, attempt, confine, inside, outside, require};
use crate::confine::privileges::{CAPABILITY_VERSION, CapabilityHeader, CapabilitySet, FIRST_ID};
use crate::confine::{Barrier, ConfineError, Missing, before_the_filter, descriptors, landlock, limits};

type Confined = Result<Vec<Missing>, ConfineError>;

fn behind_the_filter(kept: &[BorrowedFd<'_>]) -> Confined {
    before_the_filter(kept)
}

fn only_landlock(_: &[BorrowedFd<'_>]) -> Confined {
    prctl::set_no_new_privs().unwrap();
    Ok(landlock::restrict().into_iter().collect())
}

/// The drills are for a host that allows every barrier; elsewhere the daemon warns.
fn is_root() -> bool {
    geteuid().is_root()
}

fn refused(end: End) -> bool {
    matches!(end, End::Refused(libc::EPERM | libc::EACCES))
}

#[test]
fn host_that_allows_everything_misses_no_barrier() {
    if is_root() {
        let end = inside(confine, |inside| match inside.missing.is_empty() {
            true => Ok(0),
            false => Err(io::Error::from_raw_os_error(libc::EBADMSG)),
        });
        assert_eq!(end, End::Crossed);
    }
}

#[test]
fn root_directory_is_empty_and_can_not_be_written() {
    if !is_root() {
        return;
    }
    let read = inside(behind_the_filter, |_| File::open("/etc/passwd").map(|_| 0));
    assert_eq!(read, End::Refused(libc::ENOENT));
    let list = inside(behind_the_filter, |_| require(fs::read_dir("/")?.next().is_none()));
    assert_eq!(list, End::Crossed);
    for path in [
        "/../etc/passwd",
        "../etc/passwd",
        "/proc/self/root/etc/passwd",
        "/proc/1/root",
        "/dev/kvm",
    ] {
        let end = inside(behind_the_filter, |_| File::open(path).map(|_| 0));
        assert_eq!(end, End::Refused(libc::ENOENT), "{path}");
    }
    let write = inside(behind_the_filter, |_| File::create("/x").map(|_| 0));
    assert!(matches!(write, End::Refused(libc::EROFS | libc::EACCES)), "{write:?}");
    let remount = inside(behind_the_filter, |_| {
        let call = libc::SYS_mount;
        attempt(
            call,
            [
                c"none".as_ptr() as usize,
                c"/".as_ptr() as usize,
                c"tmpfs".as_ptr() as usize,
                0,
                0,
                0,
            ],
        )
    });
    assert_eq!(remount, End::Refused(libc::EPERM));
    let chroot = inside(behind_the_filter, |_| {
        attempt(libc::SYS_chroot, [c".".as_ptr() as usize, 0, 0, 0, 0, 0])
    });
    assert_eq!(chroot, End::Refused(libc::EPERM));
}

#[test]
fn landlock_alone_refuses_files_and_ports_and_signals() {
    if inside(only_landlock, |inside| require(inside.missing.is_empty())) != End::Crossed {
        eprintln!("this kernel has no Landlock");
        return;
    }
    let read = inside(only_landlock, |_| File::open("/etc/passwd").map(|_| 0));
    assert_eq!(read, End::Refused(libc::EACCES));
    assert_eq!(outside(|_| File::open("/etc/passwd").map(|_| 0)), End::Crossed);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let connect = inside(only_landlock, |_| TcpStream::connect(address).map(|_| 0));
    // Kernels before 6.7 do not know ports, those before 6.12 no signals.
    assert!(
        matches!(connect, End::Refused(libc::EACCES) | End::Crossed),
        "{connect:?}"
    );
    let parent = Pid::this().as_raw() as usize;
    let signal = inside(only_landlock, |_| attempt(libc::SYS_kill, [parent, 0, 0, 0, 0, 0]));
    assert!(matches!(signal, End::Refused(libc::EPERM) | End::Crossed), "{signal:?}");
}

#[test]
fn network_reaches_nobody() {
    if !is_root() {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    assert_eq!(outside(|_| TcpStream::connect(address).map(|_| 0)), End::Crossed);
    let connect = inside(behind_the_filter, |_| TcpStream::connect(address).map(|_| 0));
    assert_eq!(connect, End::Refused(libc::ENETUNREACH));
    let name = format!("coppice-drill-{}", std::process::id());
    let abstract_name = SocketAddr::from_abstract_name(name).unwrap();
    let _listener = UnixListener::bind_addr(&abstract_name).unwrap();
    let reach = || UnixStream::connect_addr(&abstract_name).map(|_| 0);
    assert_eq!(outside(|_| reach()), End::Crossed);
    assert_eq!(inside(behind_the_filter, |_| reach()), End::Refused(libc::ECONNREFUSED));
    let raw = inside(behind_the_filter, |_| {
        attempt(
            libc::SYS_socket,
            [libc::AF_PACKET as usize, libc::SOCK_RAW as usize, 0, 0, 0, 0],
        )
    });
    assert_eq!(raw, End::Refused(libc::EPERM));
}

#[test]
fn ipc_objects_of_the_host_are_not_there() {
    if !is_root() {
        return;
    }
    let key = 0x0c0b_0000 | (std::process::id() as usize & 0xffff);
    let made = attempt(libc::SYS_shmget, [key, 4096, 0o1000 | 0o666, 0, 0, 0]).unwrap();
    let find = || attempt(libc::SYS_shmget, [key, 0, 0, 0, 0, 0]);
    let (seen, unseen) = (outside(|_| find()), inside(behind_the_filter, |_| find()));
    attempt(libc::SYS_shmctl, [made, libc::IPC_RMID as usize, 0, 0, 0, 0]).unwrap();
    assert_eq!((seen, unseen), (End::Crossed, End::Refused(libc::ENOENT)));
}

#[test]
fn host_name_is_not_the_hosts_and_stays() {
    if !is_root() {
        return;
    }
    let name = inside(behind_the_filter, |_| {
        require(gethostname()? == super::namespaces::HOSTNAME)
    });
    assert_eq!(name, End::Crossed);
    let set = inside(behind_the_filter, |_| Ok(nix::unistd::sethostname("x").map(|()| 0)?));
    assert_eq!(set, End::Refused(libc::EPERM));
}

#[test]
fn every_capability_set_is_empty() {
    let end = inside(behind_the_filter, |_| {
        let header = CapabilityHeader {
            version: CAPABILITY_VERSION,
            pid: 0,
        };
        let mut sets = [CapabilitySet {
            effective: 1,
            permitted: 1,
            inheritable: 1,
        }; 2];
        let sets_at = sets.as_mut_ptr() as usize;
        attempt(libc::SYS_capget, [&raw const header as usize, sets_at, 0, 0, 0, 0])?;
        let one_left = |option: i32, more: usize| {
            (0..=40).any(|capability| {
                let arguments = if more == 0 {
                    [option as usize, capability, 0, 0, 0, 0]
                } else {
                    [option as usize, more, capability, 0, 0, 0]
                };
                attempt(libc::SYS_prctl, arguments).is_ok_and(|set| set != 0)
            })
        };
        let ambient = one_left(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_IS_SET as usize);
        let bounding = is_root_before() && one_left(libc::PR_CAPBSET_READ, 0);
        require(sets == [CapabilitySet::default(); 2] && !ambient && !bounding)
    });
    assert_eq!(end, End::Crossed);
}

/// Who was never root can't empty the bounding set, and needs not.
fn is_root_before() -> bool {
    getresuid().is_ok_and(|ids| ids.real.as_raw() >= FIRST_ID)
}

#[test]
fn no_new_privileges_is_set() {
    let end = inside(behind_the_filter, |_| require(prctl::get_no_new_privs()?));
    assert_eq!(end, End::Crossed);
}

#[test]
fn user_is_nobodys_and_there_is_no_way_back() {
    if !is_root() {
        return;
    }
    let own = inside(behind_the_filter, |_| {
        let ids = getresuid()?;
        let all = [ids.real, ids.effective, ids.saved];
        require(all.iter().all(|id| id.as_raw() >= FIRST_ID) && nix::unistd::getgroups()?.is_empty())
    });
    assert_eq!(own, End::Crossed);
    let root = Uid::from_raw(0);
    assert!(refused(inside(behind_the_filter, |_| Ok(
        setresuid(root, root, root).map(|()| 0)?
    ))));
    let parent = Pid::this().as_raw() as usize;
    let mut byte = 0u8;
    let piece = libc::iovec {
        iov_base: (&raw mut byte).cast(),
        iov_len: 1,
    };
    // Here and in the parent.
    let piece = &raw const piece as usize;
    for (name, call, arguments) in [
        ("kill", libc::SYS_kill, [parent, 0, 0, 0, 0, 0]),
        (
            "ptrace",
            libc::SYS_ptrace,
            [libc::PTRACE_ATTACH as usize, parent, 0, 0, 0, 0],
        ),
        (
            "process_vm_readv",
            libc::SYS_process_vm_readv,
            [parent, piece, 1, piece, 1, 0],
        ),
        ("bpf", libc::SYS_bpf, [0, 0, 0, 0, 0, 0]),
    ] {
        let end = inside(behind_the_filter, |_| attempt(call, arguments));
        assert!(refused(end) || end == End::Refused(libc::EINVAL), "{name}: {end:?}");
    }
}

#[test]
fn memory_is_closed_even_to_a_process_of_the_same_user() {
    if !is_root() {
        return;
    }
    let end = inside(behind_the_filter, |inside| {
        use crate::fork::{Side, fork_sibling};
        match fork_sibling()? {
            Side::Parent { child } => {
                let looked = attempt(
                    libc::SYS_ptrace,
                    [libc::PTRACE_ATTACH as usize, child as usize, 0, 0, 0, 0],
                );
                // SAFETY: the process was forked just now, and ends when it is told to.
                unsafe { libc::kill(child as i32, libc::SIGKILL) };
                looked
            }
            Side::Child => loop {
                let mut byte = [0];
                let _ = nix::unistd::read(&inside.socket, &mut byte);
            },
        }
    });
    assert_eq!(end, End::Refused(libc::EPERM));
    let dumpable = inside(behind_the_filter, |_| require(!prctl::get_dumpable()?));
    assert_eq!(dumpable, End::Crossed);
}

#[test]
fn limits_hold() {
    let end = inside(behind_the_filter, |_| {
        let is = |resource, limit| getrlimit(resource).is_ok_and(|given| given == (limit, limit));
        require(is(Resource::RLIMIT_CORE, 0) && is(Resource::RLIMIT_NOFILE, limits::OPEN_FILES))
    });
    assert_eq!(end, End::Crossed);
    let end = inside(behind_the_filter, |_| {
        for _ in 0..limits::OPEN_FILES {
            attempt(libc::SYS_dup, [0; 6])?;
        }
        Ok(0)
    });
    assert_eq!(end, End::Refused(libc::EMFILE));
}

fn with_small_files(kept: &[BorrowedFd<'_>]) -> Confined {
    limits::file_size(8192).unwrap();
    before_the_filter(kept)
}

#[test]
fn file_that_grows_above_its_limit_is_an_error_and_no_end() {
    let write_at = |offset| {
        inside(with_small_files, move |_| {
            let file = File::from(memfd_create(c"extent", MFdFlags::empty())?);
            file.write_at(b"x", offset)
        })
    };
    assert_eq!(write_at(8191), End::Crossed);
    assert_eq!(write_at(8192), End::Refused(libc::EFBIG));
}

#[test]
fn descriptors_are_the_expected_ones_and_no_other() {
    let end = outside(|inside| {
        let leaked: Vec<File> = (0..20).map(|_| File::open("/dev/null").unwrap()).collect();
        let (low, high) = (leaked[1].as_fd(), leaked[19].as_fd());
        before_the_filter(&[high, inside.socket.as_fd(), low]).map_err(io::Error::other)?;
        let mut expected = vec![0, 1, 2];
        expected.extend([low, high, inside.socket.as_fd()].map(|kept| kept.as_raw_fd()));
        expected.sort_unstable();
        let open = descriptors::open_below(limits::OPEN_FILES as i32 * 4);
        std::mem::forget(leaked);
        require(open == expected)
    });
    assert_eq!(end, End::Crossed);
}

#[test]
fn process_still_dies_with_its_parent() {
    let end = inside(behind_the_filter, |_| {
        require(prctl::get_pdeathsig()? == Some(Signal::SIGKILL))
    });
    assert_eq!(end, End::Crossed);
}

#[test]
fn process_stays_accountable_from_outside() {
    let (mut near, far) = UnixStream::pair().unwrap();
    let daemon = std::thread::spawn(move || {
        let mut pid = [0; 4];
        near.read_exact(&mut pid).unwrap();
        let pid = i32::from_ne_bytes(pid);
        let files = ["statm", "status", "maps", "pagemap"].map(|name| format!("/proc/{pid}/{name}"));
        let read = files.map(|path| File::open(path).and_then(|mut file| file.read(&mut [0; 64])));
        near.write_all(b"x").unwrap();
        read
    });
    let end = outside(|inside| {
        before_the_filter(&[inside.socket.as_fd(), far.as_fd()]).map_err(io::Error::other)?;
        nix::unistd::write(&far, &std::process::id().to_ne_bytes())?;
        Ok(nix::unistd::read(&far, &mut [0])?)
    });
    assert_eq!(end, End::Crossed);
    let read = daemon.join().unwrap();
    assert!(read.iter().all(Result::is_ok), "{read:?}");
}

/// Becomes a user like any other, and confines itself as far as such a one can.
fn as_a_user(kept: &[BorrowedFd<'_>], confine: fn(&[BorrowedFd<'_>]) -> Confined) -> Confined {
    let user = Uid::from_raw(65534);
    setresuid(user, user, user).unwrap();
    // As it is after an `execve`, which is how a daemon's user starts a VMM.
    prctl::set_dumpable(true).unwrap();
    confine(kept)
}

#[test]
fn daemon_that_is_not_root_has_all_barriers_but_two_or_says_which_not() {
    if !is_root() {
        return;
    }
    let namespaces_allowed = outside(|_| {
        let user = Uid::from_raw(65534);
        setresuid(user, user, user)?;
        Ok(nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWUSER).map(|()| 0)?)
    });
    let end = inside(
        |kept| as_a_user(kept, confine),
        |inside| {
            let missing: Vec<Barrier> = inside.missing.iter().map(|missing| missing.barrier).collect();
            let always = [Barrier::OwnUser, Barrier::NotDumpable];
            let all_others = always.len() == missing.len() || namespaces_allowed != End::Crossed;
            require(all_others && always.iter().all(|barrier| missing.contains(barrier)))
        },
    );
    assert_eq!(end, End::Crossed);
    let end = inside(|kept| as_a_user(kept, confine), |_| attempt(libc::SYS_getuid, [0; 6]));
    assert_eq!(end, End::Killed(Signal::SIGSYS));
    if namespaces_allowed == End::Crossed {
        let end = inside(
            |kept| as_a_user(kept, behind_the_filter),
            |_| File::open("/etc/passwd").map(|_| 0),
        );
        assert_eq!(end, End::Refused(libc::ENOENT));
        let end = inside(
            |kept| as_a_user(kept, behind_the_filter),
            |_| attempt(libc::SYS_sethostname, [1, 0, 0, 0, 0, 0]),
        );
        assert_eq!(end, End::Refused(libc::EPERM));
    }
}
