//! Files of a VMM's own in `/proc`, which it can't open itself once it is confined.

use std::fs::File;
use std::os::fd::OwnedFd;

use coppice_wire::vmm::{Command, OwnFile};
use nix::unistd::Pid;

/// What a VMM needs for a command. `learns`: its page map is of use to its template. A child that stops to wait gets what
/// it will need to be parked: then somebody waits, now nobody does.
pub fn files_for(command: &Command, learns: bool) -> &'static [OwnFile] {
    match (command, learns) {
        (Command::Park | Command::Pause { .. }, true) => &[OwnFile::Pagemap, OwnFile::Statm],
        (Command::Park | Command::Pause { .. }, false) | (Command::Checkpoint { .. }, _) => &[OwnFile::Statm],
        (Command::Close, true) => &[OwnFile::Pagemap],
        _ => &[],
    }
}

/// `None` where the process has ended or may not be looked at: a VMM says what it can't do without.
pub fn open(pid: Pid, file: OwnFile) -> Option<OwnedFd> {
    let name = match file {
        OwnFile::Statm => "statm",
        OwnFile::Pagemap => "pagemap",
    };
    File::open(format!("/proc/{pid}/{name}")).ok().map(OwnedFd::from)
}
