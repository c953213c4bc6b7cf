//! Files of a VMM's own in `/proc`, which it can't open itself once it is confined.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::os::fd::OwnedFd;

use coppice_wire::vmm::{Command, LentFile};
use coppice_wire::{FrameError, encode_frame};
use nix::unistd::Pid;

/// What is written at once, and the descriptor that goes with it.
pub type Packets = Vec<(Vec<u8>, Option<OwnedFd>)>;

/// What one VMM was lent.
#[derive(Default)]
pub struct Lending {
    /// Its template has use for its page map.
    pub learns: Cell<bool>,
    lent: RefCell<Vec<LentFile>>,
}

impl Lending {
    /// What is to be sent ahead of a command: the files that it needs and the VMM does not have.
    pub fn packets(&self, command: &Command, pid: Option<Pid>) -> Result<Packets, FrameError> {
        let mut packets = Packets::new();
        for file in files_for(command, self.learns.get()) {
            if self.lent.borrow().contains(file) {
                continue;
            }
            let Some(opened) = pid.and_then(|pid| open(pid, *file)) else {
                continue;
            };
            packets.push((encode_frame(&Command::Lend { file: *file })?, Some(opened)));
            self.lent.borrow_mut().push(*file);
        }
        Ok(packets)
    }
}

/// What a VMM needs for a command. `learns`: its page map is of use to its template. A child that stops to wait gets what
/// it will need to be parked: then somebody waits, now nobody does.
fn files_for(command: &Command, learns: bool) -> &'static [LentFile] {
    match (command, learns) {
        (Command::Park | Command::Pause { .. }, true) => &[LentFile::Pagemap, LentFile::Statm],
        (Command::Park | Command::Pause { .. }, false) | (Command::Checkpoint { .. }, _) => &[LentFile::Statm],
        (Command::Close, true) => &[LentFile::Pagemap],
        _ => &[],
    }
}

/// Files that a VMM is lent for one command, `origin` being the process that it was forked from.
pub fn packets_about(origin: Option<Pid>, own: Option<Pid>, command: &Command) -> Result<Packets, FrameError> {
    let mut packets = Packets::new();
    let files: &[LentFile] = match command {
        Command::Rewind { .. } => &[LentFile::OriginMemory],
        Command::Compare => &[LentFile::Pagemap, LentFile::OriginMemory, LentFile::OriginPagemap],
        _ => &[],
    };
    for file in files {
        let whose = match file {
            LentFile::Statm | LentFile::Pagemap => own,
            LentFile::OriginMemory | LentFile::OriginPagemap => origin,
        };
        if let Some(opened) = whose.and_then(|pid| open(pid, *file)) {
            packets.push((encode_frame(&Command::Lend { file: *file })?, Some(opened)));
        }
    }
    Ok(packets)
}

/// `None` where the process has ended or may not be looked at: a VMM says what it can't do without.
fn open(pid: Pid, file: LentFile) -> Option<OwnedFd> {
    let name = match file {
        LentFile::Statm => "statm",
        LentFile::Pagemap | LentFile::OriginPagemap => "pagemap",
        LentFile::OriginMemory => "mem",
    };
    File::open(format!("/proc/{pid}/{name}")).ok().map(OwnedFd::from)
}
