//! Booting a fresh VM.

use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};

use coppice_wire::agent::AGENT_PROTOCOL;
use coppice_wire::vmm::{BootConfig, Command, Event, Stages};

use crate::errors::{FaultDomain, Spec, Typed};
use crate::extents::ExtentError;
use crate::host::Host;
use crate::limits::{GuestLimits, Limits};
use crate::machine::control_socket::control_socket;
use crate::machine::custody::Custody;
use crate::machine::handout::{HandOut, HandOutError, hand_out, micros_since};
use crate::machine::priority::{Threads, Worth};
use crate::machine::process::{Ending, Role, VmmError, VmmProcess, expect_answer, vmm_stages};
use crate::machine::sandbox::{Sandbox, SandboxError};
use crate::machine::spawn::{SpawnError, spawn_vmm};
use crate::machine::state::State;
use crate::machine::supervisor::supervise;
use crate::memory::MemoryError;
use crate::session::{Session, SessionError};

#[derive(Debug, thiserror::Error)]
pub enum BootError {
    #[error(transparent)]
    Session(#[from] SessionError),
    #[error(transparent)]
    Memory(#[from] MemoryError),
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    #[error(transparent)]
    Disk(#[from] ExtentError),
    #[error("The guest did not boot: {source}{console}")]
    Vmm { source: VmmError, console: String },
    #[error("The guest did not boot: {detail}{console}")]
    Ended {
        ending: Ending,
        detail: String,
        console: String,
    },
    #[error("The guest's agent was not ready within {} ms{console}", .within.as_millis())]
    Timeout { within: Duration, console: String },
    #[error("The guest's agent speaks protocol {given}; this daemon speaks {AGENT_PROTOCOL}")]
    AgentProtocol { given: u64 },
    #[error("The guest booted but can't be handed out: {source}{console}")]
    HandOut { source: HandOutError, console: String },
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
}

impl Typed for BootError {
    fn spec(&self) -> Spec {
        let look = "Read the end of the guest's console in the message: it says how far the guest came.";
        match self {
            BootError::Session(error) => error.spec(),
            BootError::Memory(error) => error.spec(),
            BootError::Spawn(error) => error.spec(),
            BootError::Disk(error) => error.spec(),
            BootError::Vmm {
                source: VmmError::Failed { code, .. },
                ..
            } => Spec::named(code, domain_of(code)).remedy(look).poisons(),
            BootError::Vmm { .. } => Spec::new("BOOT_FAILED", FaultDomain::Host).remedy(look).poisons(),
            BootError::Ended { ending, .. } if ending.is_guests_fault() => {
                Spec::new("BOOT_FAILED", FaultDomain::Guest).remedy(look).poisons()
            }
            BootError::Ended { .. } => Spec::new("BOOT_FAILED", FaultDomain::Host).remedy(look).poisons(),
            BootError::Timeout { .. } => Spec::new("BOOT_TIMEOUT", FaultDomain::Guest)
                .remedy("Give it more time (timeoutMs) or memory; the end of its console says how far it came.")
                .poisons(),
            BootError::AgentProtocol { .. } => Spec::new("PROTOCOL_MISMATCH", FaultDomain::Host)
                .remedy("Build the guests' initramfs with the agent of this release.")
                .poisons(),
            BootError::HandOut { source, .. } => source.spec(),
            BootError::Sandbox(error) => error.spec(),
        }
    }
}

/// A size that the VMM does not offer is the caller's choice, everything else the host's state.
fn domain_of(code: &str) -> FaultDomain {
    match code {
        "VMM_BAD_SIZE" => FaultDomain::User,
        _ => FaultDomain::Host,
    }
}

pub struct BootSpec {
    pub image: PathBuf,
    pub memory_mib: u32,
    pub vcpus: u8,
    /// First contents of its disk, where it has one.
    pub disk: Option<Vec<u8>>,
    pub limits: GuestLimits,
    pub timeout: Duration,
}

/// A sandbox that is leased to its session, and how long its stages took.
pub struct Made {
    pub sandbox: Rc<Sandbox>,
    pub stages: Stages,
}

pub async fn boot(host: &Rc<Host>, session: &Session, spec: BootSpec) -> Result<Made, BootError> {
    host.admission.admit_boot(u64::from(spec.memory_mib) * 1024 * 1024)?;
    host.admit_sandbox::<BootError>(session)?;
    let id = host.ids.sandbox();
    let (ours, theirs) = control_socket().map_err(SpawnError::Socket)?;
    let process = supervise(host, ours, Role::Sandbox(id.clone()), 0);
    let sandbox = host.adopt(Sandbox::new(id, session.id.clone(), Rc::clone(&process), None));
    let custody = Custody::new(host, &sandbox);
    host.reaper.register(spawn_vmm(&host.config.vmm, theirs)?, &process);
    process.set_worth(Worth::Sandbox);
    process.set_threads(Threads::of(spec.vcpus));
    hold_to_limits(host, &sandbox, &spec.limits);
    tracing::info!(sandbox = sandbox.id, image = %spec.image.display(), memory_mib = spec.memory_mib, "Booting");

    let timeout = spec.timeout;
    let (timed_out, console) = (
        |console| BootError::Timeout {
            within: timeout,
            console,
        },
        || console_of(&process),
    );
    let booting = tokio::time::timeout(timeout, boot_guest(host, &sandbox, spec)).await;
    let stages = booting.map_err(|_| timed_out(console()))??;
    let handed_out = hand_out(
        host,
        &sandbox,
        HandOut {
            keep_randomness: false,
            stopped_ns: None,
        },
    )
    .await;
    let handed_out = handed_out.map_err(|source| BootError::HandOut {
        source,
        console: console(),
    })?;
    sandbox.advance(State::Booting, State::Leased)?;
    custody.release();
    host.counters.boots.increment();
    Ok(Made {
        sandbox,
        stages: [stages, handed_out].concat(),
    })
}

/// A guest that boots is bounded by its size: a limit on memory is one on what a fork adds to its checkpoint.
fn hold_to_limits(host: &Rc<Host>, sandbox: &Sandbox, limits: &GuestLimits) {
    let of_forks = limits.of_host();
    sandbox.limits.set(Limits {
        memory_mib: None,
        ..of_forks
    });
    host.hold_to_limits(sandbox);
    sandbox.limits.set(of_forks);
}

/// Until the agent says that it is ready.
async fn boot_guest(host: &Host, sandbox: &Sandbox, spec: BootSpec) -> Result<Stages, BootError> {
    let process = &sandbox.process;
    let begin = Instant::now();
    let disk_reserve_bytes = match spec.disk {
        Some(_) => host.extents.reserve_bytes()?,
        None => 0,
    };
    let config = BootConfig {
        kernel: host.config.kernel.display().to_string(),
        initrd: host.config.initrd.display().to_string(),
        image: spec.image.display().to_string(),
        memory_mib: spec.memory_mib,
        vcpus: spec.vcpus,
        disk: spec.disk.is_some(),
        disk_reserve_bytes,
        extra_cmdline: command_line(host, &spec.limits),
        console_bytes_per_second: (spec.limits.console_bytes_per_second).unwrap_or(host.config.limits.console_rate),
    };
    let failed = |source| match source {
        VmmError::Ended(ending) => ended(process, ending),
        source => BootError::Vmm {
            source,
            console: console_of(process),
        },
    };
    let blank = spec.disk.map(|blank| host.extents.create_with(&blank)).transpose()?;
    let started = process.send(&Command::Boot { config }, blank).map_err(failed)?;
    let started = started.answer().await.map_err(failed)?;
    let started = expect_answer!(started, "boot", Event::Started { stages, missing, .. } => (stages, missing));
    let (started, missing) = started.map_err(failed)?;
    host.missing_barriers.of(missing);
    let mut stages = vmm_stages(started);
    tokio::select! {
        protocol = process.agent.ready() => {
            if protocol != u64::from(AGENT_PROTOCOL) {
                return Err(BootError::AgentProtocol { given: protocol });
            }
        }
        () = process.settled() => return Err(ended(process, process.ending().unwrap_or(Ending::Closed))),
    }
    stages.push(("boot".to_owned(), micros_since(begin)));
    Ok(stages)
}

fn command_line(host: &Host, limits: &GuestLimits) -> String {
    let ours = host.config.kind.guest_command_line();
    match limits.kernel_arguments() {
        Some(arguments) => format!("{ours} {arguments}").trim_start().to_owned(),
        None => ours.to_owned(),
    }
}

fn ended(process: &VmmProcess, ending: Ending) -> BootError {
    let detail = format!(
        "its VM ended ({})",
        format!("{} {}", ending.reason(), ending.detail()).trim()
    );
    BootError::Ended {
        ending,
        detail,
        console: console_of(process),
    }
}

fn console_of(process: &VmmProcess) -> String {
    match process.console.borrow().tail() {
        tail if tail.is_empty() => ". Its console is empty".to_owned(),
        tail => format!(". Its console ends with:\n{tail}"),
    }
}
