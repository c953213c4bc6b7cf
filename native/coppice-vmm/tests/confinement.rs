//! The shipped VMM, looked at from outside: booted, parked, forked and copied, it is confined and has only the
//! descriptors that it should have. Needs a KVM that makes VMs; its guest is one that only halts.

#![allow(clippy::unwrap_used)]

use std::fs::{self, File};
use std::io::IoSlice;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command as Program, Stdio};
use std::time::Duration;

use coppice_wire::encode_frame;
use coppice_wire::frame::read_message;
use coppice_wire::vmm::{BootConfig, Command, Event, LentFile, MissingBarrier, host_time_ns};
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};

const PATIENCE: Duration = Duration::from_secs(20);
/// Where the kernel is loaded.
const ENTRY: u64 = 1 << 20;

/// The daemon's end of one VMM.
struct Vmm {
    socket: UnixStream,
    pid: u32,
}

impl Vmm {
    fn send(&self, command: &Command, descriptor: Option<RawFd>) {
        let frame = encode_frame(command).unwrap();
        let descriptors: Vec<RawFd> = descriptor.into_iter().collect();
        let rights = [ControlMessage::ScmRights(&descriptors)];
        let rights = if descriptors.is_empty() { &[][..] } else { &rights };
        sendmsg::<()>(
            self.socket.as_raw_fd(),
            &[IoSlice::new(&frame)],
            rights,
            MsgFlags::empty(),
            None,
        )
        .unwrap();
    }

    /// The next event that is not what the guest prints.
    fn event(&mut self) -> Event {
        loop {
            match read_message::<Event>(&mut self.socket).unwrap().expect("the VMM ended") {
                Event::Console { .. } => {}
                other => return other,
            }
        }
    }

    fn lend(&self, file: LentFile) {
        let name = if file == LentFile::Statm { "statm" } else { "pagemap" };
        let opened = File::open(self.proc(name)).unwrap();
        self.send(&Command::Lend { file }, Some(opened.as_raw_fd()));
    }

    fn proc(&self, name: &str) -> PathBuf {
        format!("/proc/{}/{name}", self.pid).into()
    }

    fn park(&mut self) {
        self.lend(LentFile::Statm);
        self.send(&Command::Park, None);
        let event = self.event();
        assert!(matches!(event, Event::Parked { .. }), "{event:?}");
    }

    /// Sends a command that makes another process, whose first words come on a socket of its own.
    fn make(&mut self, command: &Command) -> (Vmm, Event) {
        let (socket, theirs) = UnixStream::pair().unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        self.send(command, Some(theirs.as_raw_fd()));
        drop(theirs);
        let pid = match self.event() {
            Event::Forked { pid, .. } | Event::Checkpointed { pid, .. } => pid,
            other => panic!("{other:?}"),
        };
        let mut made = Vmm { socket, pid };
        let event = made.event();
        (made, event)
    }

    fn status(&self, field: &str) -> String {
        let status = fs::read_to_string(self.proc("status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(field));
        line.unwrap_or_else(|| panic!("no {field}"))
            .trim_matches([':', '\t', ' '])
            .to_owned()
    }

    /// What its descriptors are, without numbers, sorted.
    fn descriptors(&self) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(self.proc("fd"))
            .unwrap()
            // One may have been closed since.
            .filter_map(|entry| Some(fs::read_link(entry.ok()?.path()).ok()?.display().to_string()))
            .map(|name| name.split(":[").next().unwrap_or_default().to_owned())
            .collect();
        names.sort();
        names
    }

    fn assert_confined(&self, missing: &[MissingBarrier]) {
        assert_eq!(
            (self.status("Seccomp").as_str(), self.status("NoNewPrivs").as_str()),
            ("2", "1")
        );
        for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
            assert_eq!(u64::from_str_radix(&self.status(set), 16).unwrap(), 0, "{set}");
        }
        if !missing.is_empty() {
            eprintln!("this host does not allow every barrier: {missing:?}");
            return;
        }
        for namespace in ["mnt", "net", "ipc", "uts"] {
            let inode = |path: PathBuf| fs::metadata(path).unwrap().ino();
            let (theirs, ours) = (
                self.proc(&format!("ns/{namespace}")),
                format!("/proc/self/ns/{namespace}"),
            );
            assert_ne!(inode(theirs), inode(ours.into()), "{namespace}");
        }
        assert_eq!(fs::read_dir(self.proc("root")).unwrap().count(), 0);
        let users: Vec<u32> = self.status("Uid").split('\t').map(|id| id.parse().unwrap()).collect();
        assert!(users.iter().all(|id| *id >= 0x7000_0000), "{users:?}");
        assert_eq!(self.status("Groups"), "");
    }
}

struct Family {
    first: Vmm,
    vcpus: u8,
    missing: Vec<MissingBarrier>,
    process: Child,
    directory: PathBuf,
    _leaked: OwnedFd,
}

impl Drop for Family {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// An ELF file with one segment whose code halts for ever.
fn halting_kernel() -> Vec<u8> {
    let code = [0xfa, 0xf4, 0xeb, 0xfd]; // cli; hlt; jmp to hlt
    let (header, segment) = (64u16, 56u16);
    let offset = u64::from(header + segment);
    let mut elf = Vec::from(*b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    elf.extend([2u16.to_le_bytes(), 62u16.to_le_bytes()].concat());
    elf.extend(1u32.to_le_bytes());
    elf.extend([ENTRY, u64::from(header), 0].map(u64::to_le_bytes).concat());
    elf.extend(0u32.to_le_bytes());
    elf.extend([header, segment, 1, 0, 0, 0].map(u16::to_le_bytes).concat());
    elf.extend([1u32.to_le_bytes(), 5u32.to_le_bytes()].concat());
    let length = code.len() as u64;
    elf.extend(
        [offset, ENTRY, ENTRY, length, length, 4096]
            .map(u64::to_le_bytes)
            .concat(),
    );
    elf.extend(code);
    elf
}

/// `None` where this host has no KVM that makes VMs.
fn boot(name: &str, vcpus: u8) -> Option<Family> {
    let directory = std::env::temp_dir().join(format!("coppice-vmm-{name}-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = directory.join(name);
        fs::write(&path, bytes).unwrap();
        path.display().to_string()
    };
    let (kernel, initrd, image) = (
        file("vmlinux", &halting_kernel()),
        file("initrd", &[0; 512]),
        file("image", &[0; 4096]),
    );
    let (socket, theirs) = UnixStream::pair().unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    // What somebody above the daemon has left open, at a number that is its own.
    let leaked = File::open("/dev/zero").unwrap();
    let inherited = [theirs.as_raw_fd(), leaked.as_raw_fd()];
    let mut program = Program::new(env!("CARGO_BIN_EXE_coppice-vmm"));
    program.args(["--control-fd", &inherited[0].to_string()]);
    program.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // SAFETY: between fork and exec, two calls that neither allocate nor lock.
    unsafe {
        program.pre_exec(move || {
            for descriptor in inherited {
                let borrowed = std::os::fd::BorrowedFd::borrow_raw(descriptor);
                fcntl(borrowed, FcntlArg::F_SETFD(FdFlag::empty()))?;
            }
            Ok(())
        });
    }
    let process = program.spawn().unwrap();
    drop(theirs);
    let pid = process.id();
    let mut family = Family {
        first: Vmm { socket, pid },
        vcpus,
        missing: Vec::new(),
        process,
        directory,
        _leaked: leaked.into(),
    };
    let config = BootConfig {
        kernel,
        initrd,
        image,
        memory_mib: 128,
        vcpus,
        disk: false,
        disk_reserve_bytes: 0,
        console_bytes_per_second: 64 * 1024,
        extra_cmdline: String::new(),
    };
    family.first.send(&Command::Boot { config }, None);
    match family.first.event() {
        Event::Started { missing, .. } => family.missing = missing,
        Event::Failed { code, message, .. } if code == "VMM_KVM" || message.contains("/dev/kvm") => {
            eprintln!("no KVM here: {message}");
            return None;
        }
        other => panic!("{other:?}"),
    }
    Some(family)
}

/// Of a VMM whose VM is taken apart: streams, control socket, memory, image, KVM.
fn frozen(family: &Family) -> Vec<String> {
    let image = family.directory.join("image").display().to_string();
    let mut names = [
        "/dev/kvm",
        "/dev/null",
        "/dev/null",
        "/dev/null",
        "/memfd:coppice-guest (deleted)",
        &image,
        "socket",
    ]
    .map(str::to_owned)
    .to_vec();
    names.sort();
    names
}

fn running(family: &Family) -> Vec<String> {
    let mut names = frozen(family);
    names.push("anon_inode:kvm-vm".to_owned());
    names.extend((0..family.vcpus).map(|id| format!("anon_inode:kvm-vcpu:{id}")));
    names.sort();
    names
}

/// With its own files in `/proc` that were lent to it.
fn running_with(family: &Family, vmm: &Vmm, lent: &[&str]) -> Vec<String> {
    let mut names = running(family);
    names.extend(lent.iter().map(|file| format!("/proc/{}/{file}", vmm.pid)));
    names.sort();
    names
}

fn assert_descriptors(vmm: &Vmm, expected: &[String]) {
    // A frozen VMM takes its VM apart when nobody wants anything of it.
    for _ in 0..100 {
        if vmm.descriptors() == expected {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(vmm.descriptors(), expected);
}

/// For KVM some kernels start a thread in the process that has a VM.
fn assert_threads(vmm: &Vmm, expected: u8) {
    let mine = || {
        let threads = fs::read_dir(vmm.proc("task")).unwrap().flatten();
        let names = threads.map(|thread| fs::read_to_string(thread.path().join("comm")).unwrap_or_default());
        names.filter(|name| !name.starts_with("kvm-")).count()
    };
    for _ in 0..100 {
        if mine() == usize::from(expected) {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(mine(), usize::from(expected));
}

#[test]
fn vmm_and_all_that_is_made_from_it_are_confined_and_hold_only_what_they_need() {
    family_is_confined("family", 1);
}

#[test]
fn vmm_with_several_vcpus_is_confined_and_has_a_thread_for_each_while_it_runs() {
    family_is_confined("threads", 4);
}

fn family_is_confined(name: &str, vcpus: u8) {
    let Some(mut family) = boot(name, vcpus) else { return };
    assert_threads(&family.first, vcpus);
    let missing = family.missing.clone();
    family.first.assert_confined(&missing);
    assert_descriptors(&family.first, &running(&family));

    family.first.park();
    family.first.assert_confined(&missing);
    assert_descriptors(&family.first, &frozen(&family));
    assert_threads(&family.first, 1);

    let at_ns = host_time_ns();
    let (mut child, event) = family.first.make(&Command::Fork {
        tag: 1,
        at_ns,
        rewindable: false,
    });
    assert!(matches!(event, Event::Started { learns: true, .. }), "{event:?}");
    child.assert_confined(&missing);
    assert_descriptors(&child, &running(&family));
    assert_threads(&child, vcpus);

    child.lend(LentFile::Pagemap);
    child.send(&Command::Pause { when_idle: false }, None);
    let event = child.event();
    assert!(matches!(event, Event::Paused { .. }), "{event:?}");
    assert_descriptors(&child, &running_with(&family, &child, &["pagemap"]));
    child.send(&Command::Resume { at_ns: None }, None);
    let event = child.event();
    assert!(matches!(event, Event::Resumed { .. }), "{event:?}");

    child.lend(LentFile::Statm);
    let (copy, event) = child.make(&Command::Checkpoint { tag: 2 });
    assert!(matches!(event, Event::Parked { .. }), "{event:?}");
    copy.assert_confined(&missing);
    assert_descriptors(&copy, &frozen(&family));
    assert_threads(&copy, 1);
    assert_threads(&child, vcpus);
    assert_descriptors(&child, &running_with(&family, &child, &["pagemap", "statm"]));

    child.park();
    child.assert_confined(&missing);
    assert_descriptors(&child, &frozen(&family));
    for vmm in [&child, &copy] {
        vmm.send(&Command::Close, None);
    }
}

#[test]
fn park_without_a_lent_file_is_refused_and_harms_nothing() {
    let Some(mut family) = boot("unlent", 1) else { return };
    family.first.send(&Command::Park, None);
    let event = family.first.event();
    assert!(
        matches!(&event, Event::Failed { code, poisons: false, .. } if code == "VMM_PROTOCOL"),
        "{event:?}"
    );
    family.first.park();
}
