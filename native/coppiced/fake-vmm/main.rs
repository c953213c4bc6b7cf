//! Stands in for the VMM and its guest in tests of the daemon: a real process that speaks the control protocol, forks
//! for real when it is frozen, and plays an agent. No KVM.
//!
//! Its faults are switched on by the file that it is given as image: one word a line, `word` or `word=value`, see
//! `Faults`. What its agent can be asked is in `agent.rs`.

mod agent;
mod clock;
mod disk;
mod faults;
mod socket;

use std::fs::{self, File};
use std::io::{Read, Seek, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::exit;

use coppice_wire::vmm::{BootConfig, Command, Event, LentFile, MissingBarrier, Stages, WholeConfig};

use crate::agent::{Agent, Mark};
use crate::faults::Faults;
use crate::socket::Socket;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let descriptor = match &arguments[..] {
        [_, flag, number] if flag == "--control-fd" => number.parse().ok(),
        _ => None,
    };
    let Some(descriptor) = descriptor else {
        eprintln!("usage: fake-vmm --control-fd N");
        exit(2);
    };
    // SAFETY: the daemon passes this descriptor for our use alone.
    let socket = unsafe { OwnedFd::from_raw_fd(descriptor) };
    Machine {
        socket: Socket::new(socket),
        agent: Agent::new(),
        faults: Faults::default(),
        forks: 0,
        frozen: false,
        learns: false,
        lent: Vec::new(),
        looks: 0,
        mark: None,
    }
    .run();
}

/// What it saves of itself.
const WHOLE: &[u8] = b"the whole machine";

struct Machine {
    socket: Socket,
    agent: Agent,
    faults: Faults,
    forks: u64,
    frozen: bool,
    learns: bool,
    lent: Vec<LentFile>,
    /// How often it was asked to stop when idle.
    looks: i64,
    /// Of a child that is rewindable: what it was at first.
    mark: Option<Mark>,
}

impl Machine {
    fn run(&mut self) {
        loop {
            let (command, descriptors) = self.socket.receive();
            let mut descriptors = descriptors.into_iter();
            let descriptor = descriptors.next();
            match command {
                Command::Boot { config } => {
                    self.agent.disk.blank(descriptor);
                    self.boot(&config);
                }
                Command::Extent { granted } => self.agent.disk.take(granted, descriptor, descriptors.next()),
                Command::Agent { data } if !self.frozen => self.agent.take(&data, &mut self.socket, &self.faults),
                Command::Agent { .. } => self.fail("VMM_WRONG_STATE", "Agent needs a machine that runs", false),
                Command::Pause { .. } if !self.was_lent(&[LentFile::Statm]) => {
                    self.fail("VMM_PROTOCOL", "Pause came alone", false);
                }
                Command::Pause { when_idle: true } if self.is_busy() => {
                    self.socket.send(&Event::Busy);
                }
                Command::Pause { .. } => self.socket.send(&Event::Paused {
                    at_ns: self.agent.clock.stop(),
                    stages: stages("pause"),
                }),
                Command::Resume { .. } if self.faults.value("wake") == Some("fail") => {
                    self.fail("VMM_KVM", "Resume failed on purpose", true);
                }
                Command::Resume { .. } if self.faults.value("wake") == Some("nonsense") => {
                    self.socket.send(&Event::Busy);
                }
                Command::Resume { at_ns } => {
                    if let Some(at_ns) = at_ns {
                        self.agent.clock.go_on(at_ns);
                    }
                    self.socket.send(&Event::Resumed {
                        stages: stages("clock"),
                    });
                }
                Command::Lend { file } => self.lent(file, descriptor),
                Command::Park if !self.was_lent(&[LentFile::Statm]) => {
                    self.fail("VMM_PROTOCOL", "Park came alone", false);
                }
                Command::Park => self.park(),
                Command::Fork { tag, at_ns, rewindable } => self.fork(tag, at_ns, rewindable, descriptor),
                Command::Rewind { at_ns } => self.rewind(at_ns),
                Command::Compare => self.compare(),
                Command::Checkpoint { .. } if !self.lent.contains(&LentFile::Statm) => {
                    self.fail("VMM_PROTOCOL", "Checkpoint came alone", false);
                }
                Command::Checkpoint { tag } => self.checkpoint(tag, descriptor),
                Command::SaveWhole => self.save_whole(descriptor),
                Command::LoadWhole { whole, .. } => self.load_whole(&whole, descriptor),
                Command::Close if self.faults.has("ignore-close") => {}
                Command::Close if !self.frozen && !self.was_lent(&[]) => {
                    self.fail("VMM_PROTOCOL", "Close came alone", true)
                }
                Command::Close => exit(0),
            }
        }
    }

    fn boot(&mut self, config: &BootConfig) {
        self.faults = Faults::read(&config.image);
        if let Some(text) = self.faults.value("console") {
            self.socket.send(&Event::Console {
                data: text.as_bytes().to_vec(),
                dropped: 0,
            });
        }
        match self.faults.value("boot") {
            Some("fail") => return self.fail("VMM_BOOT_FILES", "Kernel is no kernel", false),
            Some("exit") => exit(7),
            Some("silent") => return,
            _ => {}
        }
        self.socket.send(&Event::Started {
            pid: std::process::id(),
            stages: stages("load"),
            learns: false,
            missing: self.faults.value("missing").map_or_else(Vec::new, |barrier| {
                vec![MissingBarrier {
                    barrier: barrier.to_owned(),
                    reason: "on purpose".to_owned(),
                }]
            }),
        });
        if self.faults.value("boot") == Some("never-ready") {
            return;
        }
        self.agent
            .say_ready(&mut self.socket, self.faults.number("agent-protocol").unwrap_or(1));
    }

    fn save_whole(&mut self, descriptor: Option<OwnedFd>) {
        let Some(mut file) = descriptor.filter(|_| self.frozen).map(File::from) else {
            return self.fail("VMM_WRONG_STATE", "SaveWhole needs a frozen machine and a file", false);
        };
        if self.faults.value("save") == Some("fail") {
            return self.fail("VMM_WHOLE", "Saving failed on purpose", false);
        }
        if file.write_all(WHOLE).is_err() {
            exit(14);
        }
        self.socket.send(&Event::SavedWhole {
            memory_mib: 128,
            file_bytes: WHOLE.len() as u64,
            stages: stages("write"),
        });
    }

    /// As a child of the one that was saved, but that its clock is right.
    fn load_whole(&mut self, whole: &WholeConfig, descriptor: Option<OwnedFd>) {
        let mut found = Vec::new();
        let file = descriptor.map(File::from);
        // Where the last reader has left the descriptor that all share.
        let read = file.is_some_and(|mut file| file.rewind().is_ok() && file.read_to_end(&mut found).is_ok());
        if !read || found != WHOLE || whole.memory_mib != 128 {
            return self.fail("VMM_WHOLE", "There is no machine in the file", false);
        }
        self.faults = Faults::read(&whole.image);
        self.socket.send(&Event::Started {
            pid: std::process::id(),
            stages: stages("restore"),
            learns: false,
            missing: Vec::new(),
        });
    }

    fn park(&mut self) {
        match self.faults.value("park") {
            Some("fail") => self.fail("VMM_HOST", "Park failed on purpose", false),
            Some("poison") => self.fail("VMM_KVM", "Park failed half-way on purpose", true),
            Some("exit") => exit(9),
            _ => {
                self.frozen = true;
                self.agent.disk.freeze();
                self.socket.send(&Event::Parked {
                    at_ns: self.agent.clock.stop(),
                    dirty_pages: 42,
                    dirty_blocks: self.agent.disk.blocks(),
                    stages: stages("save"),
                });
            }
        }
    }

    fn fork(&mut self, tag: u64, at_ns: u64, rewindable: bool, descriptor: Option<OwnedFd>) {
        let Some(descriptor) = descriptor.filter(|_| self.frozen) else {
            return self.fail("VMM_WRONG_STATE", "Fork needs a frozen machine and a socket", false);
        };
        self.forks += 1;
        let every = |number: Option<i64>| number.is_some_and(|n| self.forks.is_multiple_of(n.unsigned_abs()));
        if every(self.faults.number("fork-fails-every")) {
            return self.fail("VMM_HOST", "Fork failed on purpose", false);
        }
        if self
            .faults
            .number("fork-dies-at")
            .is_some_and(|at| self.forks == at.unsigned_abs())
        {
            exit(11);
        }
        if self.faults.has("fork-hangs") {
            loop {
                std::thread::sleep(std::time::Duration::from_secs(1));
            }
        }
        match self.clone_process() {
            0 => {
                self.mark = rewindable.then(|| self.agent.mark());
                self.begin_child(at_ns, descriptor);
            }
            pid => {
                let pid = if self.faults.has("fork-names-init") {
                    1
                } else {
                    pid as u32
                };
                self.socket.send(&Event::Forked {
                    tag,
                    pid,
                    stages: stages("fork"),
                });
            }
        }
    }

    fn begin_child(&mut self, at_ns: u64, descriptor: OwnedFd) {
        self.agent.clock.go_on(at_ns);
        self.agent
            .clock
            .skew(self.faults.number("skewed-clock-ms").unwrap_or(0));
        let _ = nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL);
        self.socket = Socket::new(descriptor);
        self.frozen = false;
        self.lent.clear();
        self.looks = 0;
        self.learns = self.faults.has("learns");
        if self
            .faults
            .number("child-dies-every")
            .is_some_and(|n| self.forks.is_multiple_of(n.unsigned_abs()))
        {
            exit(12);
        }
        self.socket.send(&Event::Started {
            pid: std::process::id(),
            stages: stages("restore"),
            learns: self.learns,
            missing: Vec::new(),
        });
    }

    fn rewind(&mut self, at_ns: u64) {
        let was_lent = self.lent.pop() == Some(LentFile::OriginMemory);
        let fault = self.faults.value("rewind");
        match (fault, &self.mark) {
            (Some("fail"), _) => self.fail("VMM_HOST", "Rewind failed on purpose", false),
            (Some("poison"), _) => self.fail("VMM_KVM", "Rewind failed half-way on purpose", true),
            (Some("exit"), _) => exit(14),
            (_, Some(mark)) if was_lent => {
                self.agent.go_back(mark);
                self.agent.keeps_boot_id = fault == Some("same-boot-id");
                self.agent.clock.go_on(at_ns);
                self.socket.send(&Event::Rewound {
                    dirty_pages: 7,
                    stages: stages("pages"),
                });
                if fault == Some("wants-extent") {
                    self.socket.send(&Event::ExtentWanted);
                }
            }
            (_, Some(_)) => self.fail("VMM_PROTOCOL", "Rewind came alone", true),
            (_, None) => self.fail("VMM_WRONG_STATE", "This machine is not rewindable", true),
        }
    }

    fn compare(&mut self) {
        if self.faults.has("compare-hangs") {
            return;
        }
        let needed = [LentFile::Pagemap, LentFile::OriginMemory, LentFile::OriginPagemap];
        let was_lent = self.frozen && self.lent.ends_with(&needed);
        self.lent.truncate(self.lent.len().saturating_sub(needed.len()));
        match was_lent {
            true => self.socket.send(&Event::Compared {
                pages: vec![(3, 2), (9, 1)],
                blocks: vec![(1, 1)],
            }),
            false => self.fail("VMM_PROTOCOL", "Compare came alone", false),
        }
    }

    fn checkpoint(&mut self, tag: u64, descriptor: Option<OwnedFd>) {
        let Some(descriptor) = descriptor.filter(|_| !self.frozen) else {
            return self.fail(
                "VMM_WRONG_STATE",
                "Checkpoint needs a machine that runs, and a socket",
                false,
            );
        };
        match self.faults.value("checkpoint") {
            Some("fail") => return self.fail("VMM_HOST", "Checkpoint failed on purpose", false),
            Some("poison") => return self.fail("VMM_KVM", "Checkpoint failed half-way on purpose", true),
            Some("exit") => exit(9),
            _ => {}
        }
        let at_ns = self.agent.clock.stop();
        match self.clone_process() {
            0 => {
                let _ = nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL);
                self.socket = Socket::new(descriptor);
                self.frozen = true;
                if self.faults.value("checkpoint") == Some("copy-dies") {
                    exit(13);
                }
                self.socket.send(&Event::Parked {
                    at_ns,
                    dirty_pages: 42,
                    dirty_blocks: self.agent.disk.blocks(),
                    stages: stages("adopt"),
                });
            }
            pid => self.socket.send(&Event::Checkpointed {
                tag,
                pid: pid as u32,
                stages: stages("save"),
            }),
        }
    }

    fn clone_process(&self) -> i64 {
        // SAFETY: as fork(): without CLONE_VM the child has a copy of everything, and this process has one thread.
        unsafe { libc::syscall(libc::SYS_clone, libc::CLONE_PARENT | libc::SIGCHLD, 0, 0, 0, 0) }
    }

    /// The daemon must lend what is this process's own, and of the one that it was forked from what is not.
    fn lent(&mut self, file: LentFile, descriptor: Option<OwnedFd>) {
        let name = match file {
            LentFile::Statm => "statm",
            LentFile::Pagemap | LentFile::OriginPagemap => "pagemap",
            LentFile::OriginMemory => "mem",
        };
        let own = format!("/proc/{}/{name}", std::process::id());
        let of_origin = matches!(file, LentFile::OriginMemory | LentFile::OriginPagemap);
        let path = |descriptor: &OwnedFd| fs::read_link(format!("/proc/self/fd/{}", descriptor.as_raw_fd())).ok();
        let given = descriptor.as_ref().and_then(path);
        let has_name = given.as_ref().is_some_and(|given| given.ends_with(name));
        if !has_name || of_origin == (given == Some(own.into())) {
            self.fail("VMM_PROTOCOL", "Lent what is not mine", true);
        } else if self.lent.contains(&file) && !self.frozen {
            self.fail("VMM_PROTOCOL", "Lent twice", true);
        } else {
            self.lent.push(file);
        }
    }

    /// Whether these files were lent, and the page map where it is wanted.
    fn was_lent(&self, files: &[LentFile]) -> bool {
        let pagemap = self.learns.then_some(LentFile::Pagemap);
        pagemap.iter().chain(files).all(|file| self.lent.contains(file))
    }

    fn is_busy(&mut self) -> bool {
        self.looks += 1;
        self.faults.number("busy").is_some_and(|looks| self.looks <= looks)
    }

    fn fail(&mut self, code: &str, message: &str, poisons: bool) {
        self.socket.send(&Event::Failed {
            code: code.to_owned(),
            message: message.to_owned(),
            poisons,
        });
    }
}

fn stages(name: &str) -> Stages {
    vec![(name.to_owned(), 1)]
}
