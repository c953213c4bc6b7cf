//! `coppice-agent`: `/init` of a guest's initramfs.
//!
//! `coppice-agent --socket-fd N --state-dir DIR` serves one host on an inherited Unix socket instead, without being
//! PID 1: for tests, and for trying things out. Its identity files are in DIR and shown nowhere else.

use std::os::fd::{FromRawFd, OwnedFd};
use std::path::PathBuf;
use std::process::ExitCode;

use coppice_agent::agent::Agent;
use coppice_agent::boot;
use coppice_agent::identity::{Identity, Shown};
use coppice_agent::port::PortKind;
use coppice_agent::{sys, tick};

type AnyError = Box<dyn std::error::Error>;

const USAGE: &str = "usage: coppice-agent --socket-fd N --state-dir DIR   (without arguments only as PID 1)";

fn main() -> ExitCode {
    if std::process::id() == 1 {
        if let Err(error) = run_machine() {
            eprintln!("coppice-agent: {error}");
        }
        boot::power_off();
        // The end of PID 1 is a kernel panic, which ends the machine where nothing else could.
        return ExitCode::FAILURE;
    }
    match run_on_socket() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("coppice-agent: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run_machine() -> Result<(), AnyError> {
    let port = boot::start()?;
    // A kernel without it works the same, slower.
    let _timer = tick::keep_timer();
    let identity = Identity::prepare("/run/coppice".as_ref(), Shown::Everywhere)?;
    Agent::new(port, PortKind::Virtio, identity)?.run()?;
    Ok(())
}

fn run_on_socket() -> Result<(), AnyError> {
    let (socket, directory) = parse_arguments().ok_or(USAGE)?;
    sys::keep_inherited_from_programs()?;
    sys::stop_ignoring_interrupts()?;
    // Orphans of programs come to the agent, as they come to PID 1.
    nix::sys::prctl::set_child_subreaper(true)?;
    let identity = Identity::prepare(&directory, Shown::DirectoryOnly)?;
    Agent::new(socket, PortKind::Socket, identity)?.run()?;
    Ok(())
}

fn parse_arguments() -> Option<(OwnedFd, PathBuf)> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["--socket-fd", fd, "--state-dir", directory] => {
            let fd = fd.parse().ok().filter(|fd| *fd > 2)?;
            // SAFETY: the caller hands over this descriptor by naming it; nothing else in this process uses it.
            Some((unsafe { OwnedFd::from_raw_fd(fd) }, PathBuf::from(directory)))
        }
        _ => None,
    }
}
