//! The forkable microVM: one process a virtual machine.
//!
//! `coppice-vmm --control-fd N` speaks `coppice_wire::vmm` on the inherited Unix stream socket N and ends when that
//! socket does. Before a guest runs the process confines itself (`confine`). A parked machine is a frozen process: state
//! saved, its VM taken apart, one thread, waiting for `Fork`. `docs/architecture.md` says why.

use std::env;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::process::ExitCode;

use nix::fcntl::{FcntlArg, FdFlag, fcntl};

use crate::control::{Control, ControlError};
use crate::error::VmmError;
use crate::machine::Machine;

mod attention;
mod boot;
mod compare;
mod confine;
mod control;
mod devices;
mod error;
mod fork;
mod guest;
mod hot;
mod kvm;
mod lent;
mod machine;
mod memory;
mod rewind;
mod runs;
mod secondaries;
mod stages;
mod vcpu;
mod whole;

const USAGE: &str = "usage: coppice-vmm --control-fd N   (N: an inherited Unix stream socket; started by coppiced)";

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let descriptor = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--version"] => {
            println!("coppice-vmm {}", env!("CARGO_PKG_VERSION"));
            return ExitCode::SUCCESS;
        }
        ["--control-fd", number] => number.parse::<RawFd>().ok().filter(|number| *number > 2),
        _ => None,
    };
    let Some(descriptor) = descriptor else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match serve(descriptor) {
        Ok(()) | Err(VmmError::Control(ControlError::Closed)) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("coppice-vmm: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve(descriptor: RawFd) -> Result<(), VmmError> {
    let host = |call| move |source: std::io::Error| VmmError::Host { call, source };
    // SAFETY: the daemon passes this descriptor for our use alone, and nothing was opened before that could have the number.
    let socket = unsafe { OwnedFd::from_raw_fd(descriptor) };
    fcntl(&socket, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))
        .map_err(|error| host("Adopting the control socket")(error.into()))?;
    fork::die_with_parent().map_err(host("Binding to the parent"))?;
    attention::install_handlers().map_err(host("Installing the signal handlers"))?;
    Machine::new(Control::new(socket)?).run()
}
