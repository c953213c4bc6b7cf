//! From the kernel's hand-over to the daemon, and from the daemon to power-off.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::reboot::{RebootMode, reboot};
use nix::unistd::sync;

use crate::carrier::config::{self, CarrierConfig, ConfigError};
use crate::carrier::modules::{self, ModuleError};
use crate::carrier::mounts::{self, MountError};
use crate::carrier::network::{self, NetworkError};
use crate::cli::HostKind;
use crate::defaults::{DISK_WAIT, MAX_SANDBOXES};
use crate::disks::disk_by_serial;
use crate::host::Config;
use crate::limits::{CgroupChoice, HostLimits};
use crate::logging::{self, LogFormatError};
use crate::server::handshake::{Token, TokenError};
use crate::server::listener::Entrance;
use crate::server::run::{Endpoints, ServeError, serve};

const CONFIG_SERIAL: &str = "coppice-config";
const GUEST_SERIAL: &str = "coppice-guest";
const GUEST_MOUNT: &str = "/guest";
const MODULES: &str = "/modules";
const POLL: Duration = Duration::from_millis(10);

#[derive(Debug, thiserror::Error)]
enum CarrierError {
    #[error("`coppiced carrier` is the init of an emulated host and runs as process 1 only; use `coppiced serve` here")]
    NotInit,
    #[error(transparent)]
    Mount(#[from] MountError),
    #[error("{path} can't be set: {source}")]
    Tune { path: &'static str, source: io::Error },
    #[error("The daemon can't be given priority: {0}")]
    Priority(io::Error),
    #[error(transparent)]
    Module(#[from] ModuleError),
    #[error(transparent)]
    Network(#[from] NetworkError),
    #[error("No disk with serial {0} is attached")]
    NoDisk(&'static str),
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Token(#[from] TokenError),
    #[error("{0} is missing: the guests can't be started without it")]
    Missing(PathBuf),
    #[error(transparent)]
    LogFormat(#[from] LogFormatError),
    #[error(transparent)]
    Serve(#[from] ServeError),
}

/// Never returns as process 1: whatever happens, the machine powers off.
pub fn run() -> Result<(), String> {
    if std::process::id() != 1 {
        return Err(CarrierError::NotInit.to_string());
    }
    let default_hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        default_hook(panic);
        eprintln!("coppiced: {panic}");
        power_off();
    }));
    if let Err(error) = start() {
        eprintln!("coppiced: {}", error.to_string().replace('\n', " "));
    }
    power_off();
    Err("The machine did not power off".to_owned())
}

/// Settings of this kernel, which nobody but us uses.
const TUNING: [(&str, &str); 2] = [
    // The emulator translates code by virtual address: with random addresses each program is translated anew.
    ("/proc/sys/kernel/randomize_va_space", "0"),
    // Huge pages in the base of guests: one nested page fault where there would be up to 512.
    ("/sys/kernel/mm/transparent_hugepage/shmem_enabled", "advise"),
];

/// The same for modules, once they are loaded.
const MODULE_TUNING: [(&str, &str); 1] = [
    // A guest that waits would poll for a while first, on the only processor.
    ("/sys/module/kvm/parameters/halt_poll_ns", "0"),
];

fn tune(settings: &[(&'static str, &str)]) -> Result<(), CarrierError> {
    for (path, value) in settings {
        fs::write(path, value).map_err(|source| CarrierError::Tune { path, source })?;
    }
    Ok(())
}

/// Lets the daemon run whenever it can: on the one processor it only passes on what guests and clients wait for, and would
/// otherwise take its turn behind a guest. Its children start as ordinary processes.
fn go_first() -> Result<(), CarrierError> {
    let lowest = libc::sched_param { sched_priority: 1 };
    // SAFETY: the parameter is valid for the call; 0 names the calling thread.
    let answer = unsafe { libc::sched_setscheduler(0, libc::SCHED_RR | libc::SCHED_RESET_ON_FORK, &raw const lowest) };
    if answer == 0 {
        Ok(())
    } else {
        Err(CarrierError::Priority(io::Error::last_os_error()))
    }
}

fn start() -> Result<(), CarrierError> {
    mounts::mount_all()?;
    mounts::use_console();
    logging::start()?;
    tune(&TUNING)?;
    go_first()?;
    let loaded = modules::load_all(Path::new(MODULES))?;
    tune(&MODULE_TUNING)?;
    network::configure()?;
    let CarrierConfig {
        token,
        port,
        idle_exit_seconds,
        vmm,
        kernel,
        initrd,
    } = config::read(&wait_for(CONFIG_SERIAL)?)?;
    mounts::mount_erofs(&wait_for(GUEST_SERIAL)?, GUEST_MOUNT)?;
    for path in [&vmm, &kernel, &initrd] {
        if !path.exists() {
            return Err(CarrierError::Missing(path.clone()));
        }
    }
    tracing::info!(modules = loaded, "Carrier is set up");
    let config = Config {
        kind: HostKind::Carrier,
        vmm,
        kernel,
        initrd,
        extents: PathBuf::from(mounts::EXTENTS),
        idle_exit: idle_exit_seconds.map(Duration::from_secs),
        max_sandboxes: MAX_SANDBOXES as usize,
        memory_reserve_bytes: None,
        disk_reserve_bytes: None,
        cgroups: CgroupChoice::Root(PathBuf::from(mounts::CGROUPS)),
        limits: HostLimits::default(),
    };
    let address = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
    let endpoints = Endpoints {
        unix: None,
        // Behind QEMU's port forwarding, which listens on loopback only.
        tcp: Some((
            address,
            Entrance {
                token: Token::new(&token)?,
                tls: None,
            },
        )),
        metrics: None,
    };
    Ok(serve(config, endpoints)?)
}

fn wait_for(serial: &'static str) -> Result<PathBuf, CarrierError> {
    let begin = Instant::now();
    loop {
        match disk_by_serial(serial) {
            Some(path) if path.exists() => return Ok(path),
            _ if begin.elapsed() > DISK_WAIT => return Err(CarrierError::NoDisk(serial)),
            _ => std::thread::sleep(POLL),
        }
    }
}

fn power_off() {
    sync();
    // Returns only where it fails.
    let _ = reboot(RebootMode::RB_POWER_OFF);
}
