//! From the kernel's first process to a root file system that programs expect: modules, the image with a writable layer
//! over it, the usual mounts, and the port to the host.

use std::ffi::CString;
use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use coppice_wire::agent::AGENT_PORT_NAME;
use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::sys::reboot::{RebootMode, reboot};

use crate::failure::describe;
use crate::sys;

/// How long a device may take to appear after its driver is loaded.
const DEVICE_TIMEOUT: Duration = Duration::from_secs(30);

const DEVICE_PAUSE: Duration = Duration::from_millis(2);

/// Descriptors of the agent: a thousand programs with three pipes each, and room.
const OPEN_FILES: u64 = 16_384;

/// Serials of the machine's disks, see `native/coppice-vmm/src/devices`.
const IMAGE_SERIAL: &str = "coppice-image";
const WRITABLE_SERIAL: &str = "coppice-disk";

/// Deleted files give their space back. The inode tables need no zeroing: what was never written reads as zeros.
const DISK_OPTIONS: &str = "discard,noinit_itable";

/// Without a disk the writable layer may fill this part of the guest's memory.
const WRITABLE_DIVISOR: u64 = 2;

const NEW_ROOT: &str = "/newroot";

#[derive(Debug, thiserror::Error)]
pub enum BootError {
    #[error("{step}: {}", describe(*.errno))]
    Step { step: String, errno: Errno },
    #[error("{what} did not appear within {} s", DEVICE_TIMEOUT.as_secs())]
    NoDevice { what: String },
}

type Result<T> = std::result::Result<T, BootError>;

trait AtStep<T> {
    fn at(self, step: impl Into<String>) -> Result<T>;
}

impl<T> AtStep<T> for sys::Result<T> {
    fn at(self, step: impl Into<String>) -> Result<T> {
        self.map_err(|errno| BootError::Step {
            step: step.into(),
            errno,
        })
    }
}

impl<T> AtStep<T> for std::io::Result<T> {
    fn at(self, step: impl Into<String>) -> Result<T> {
        self.map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO)))
            .at(step)
    }
}

/// Everything between the kernel and the agent's loop; returns the port to the host.
pub fn start() -> Result<OwnedFd> {
    early_mounts()?;
    open_console()?;
    load_modules()?;
    mount_root()?;
    enter_root()?;
    late_mounts()?;
    raise_file_limit()?;
    loopback_up()?;
    let hostname = fs::read_to_string("/etc/hostname").unwrap_or_default();
    let hostname = Some(hostname.trim())
        .filter(|name| !name.is_empty())
        .unwrap_or("coppice");
    nix::unistd::sethostname(hostname).at("host name")?;
    open_port()
}

/// Ends the machine. Returns only where that is refused.
pub fn power_off() {
    // SAFETY: neither call takes a pointer.
    unsafe {
        // The last words on the console, which the serial line sends at its own pace.
        libc::tcdrain(libc::STDERR_FILENO);
        libc::sync();
    }
    let _ = reboot(RebootMode::RB_POWER_OFF);
}

fn mount_new(kind: &str, target: &str, flags: MsFlags, data: Option<&str>) -> Result<()> {
    fs::create_dir_all(target).at(format!("mkdir {target}"))?;
    mount(Some(kind), target, Some(kind), flags, data).at(format!("mount {kind} on {target}"))
}

const NO_PROGRAMS: MsFlags = MsFlags::MS_NOSUID.union(MsFlags::MS_NODEV).union(MsFlags::MS_NOEXEC);

fn early_mounts() -> Result<()> {
    mount_new("proc", "/proc", NO_PROGRAMS, None)?;
    mount_new("sysfs", "/sys", NO_PROGRAMS, None)?;
    match mount_new("devtmpfs", "/dev", MsFlags::MS_NOSUID, Some("mode=0755")) {
        // The kernel mounts it by itself where it is configured to.
        Err(BootError::Step {
            errno: Errno::EBUSY, ..
        }) => Ok(()),
        other => other,
    }
}

/// The kernel opens no console where the initramfs has no device files.
fn open_console() -> Result<()> {
    let console = sys::open(c"/dev/console", libc::O_RDWR | libc::O_NOCTTY, 0).at("open /dev/console")?;
    for target in 0..3 {
        // SAFETY: takes no pointers; the targets are the standard descriptors, which nothing here owns.
        Errno::result(unsafe { libc::dup2(console.as_raw_fd(), target) }).at("console")?;
    }
    if console.as_raw_fd() < 3 {
        // It took the place of one of them: keep it.
        std::mem::forget(console);
    }
    Ok(())
}

/// Loads the modules that `/modules/order` names: one file name a line, after a blank its parameters.
fn load_modules() -> Result<()> {
    let order = match fs::read_to_string("/modules/order") {
        Ok(order) => order,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error).at("read /modules/order"),
    };
    for line in order
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
    {
        let (name, parameters) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        load_module(&format!("/modules/{name}"), parameters.trim())?;
    }
    Ok(())
}

fn load_module(path: &str, parameters: &str) -> Result<()> {
    let no_nul = |text: &str| CString::new(text).map_err(|_| Errno::EINVAL);
    let module = sys::open(&no_nul(path).at(path)?, libc::O_RDONLY, 0).at(format!("open {path}"))?;
    let parameters = no_nul(parameters).at(path)?;
    // SAFETY: the parameter string ends in NUL and outlives the call.
    let loaded = unsafe { libc::syscall(libc::SYS_finit_module, module.as_raw_fd(), parameters.as_ptr(), 0) };
    match Errno::result(loaded) {
        Ok(_) | Err(Errno::EEXIST) => Ok(()),
        Err(errno) => Err(errno).at(format!("load {path}")),
    }
}

/// Waits until `find` finds something.
fn wait_for<T>(what: &str, mut find: impl FnMut() -> Option<T>) -> Result<T> {
    let start = Instant::now();
    loop {
        if let Some(found) = find() {
            return Ok(found);
        }
        if start.elapsed() > DEVICE_TIMEOUT {
            return Err(BootError::NoDevice { what: what.to_owned() });
        }
        std::thread::sleep(DEVICE_PAUSE);
    }
}

/// The image below, the writable disk above; a tmpfs where the machine has none.
fn mount_root() -> Result<()> {
    let image = find_disk(IMAGE_SERIAL)?.ok_or_else(|| BootError::NoDevice {
        what: format!("The disk {IMAGE_SERIAL}"),
    })?;
    for directory in ["/lower", "/rw", NEW_ROOT] {
        fs::create_dir_all(directory).at(format!("mkdir {directory}"))?;
    }
    mount(Some(&image), "/lower", Some("erofs"), MsFlags::MS_RDONLY, None::<&str>).at("mount the image")?;
    match find_disk(WRITABLE_SERIAL)? {
        Some(disk) => {
            mount(
                Some(&disk),
                "/rw",
                Some("ext4"),
                MsFlags::MS_NOATIME,
                Some(DISK_OPTIONS),
            )
            .at("mount the disk")?;
        }
        None => {
            let size = format!("mode=0755,size={}", total_memory_bytes()? / WRITABLE_DIVISOR);
            mount_new("tmpfs", "/rw", MsFlags::empty(), Some(&size))?;
        }
    }
    for directory in ["/rw/upper", "/rw/work"] {
        fs::create_dir(directory).at(format!("mkdir {directory}"))?;
    }
    let layers = "lowerdir=/lower,upperdir=/rw/upper,workdir=/rw/work";
    mount(
        Some("overlay"),
        NEW_ROOT,
        Some("overlay"),
        MsFlags::empty(),
        Some(layers),
    )
    .at("mount the writable layer")
}

/// Device of the virtio disk with a serial; `None` once all disks of the machine are there and none is it.
fn find_disk(serial: &str) -> Result<Option<PathBuf>> {
    let blocks = wait_for("The machine's disks", || disks(Path::new("/sys/bus/virtio/devices")))?;
    for block in blocks {
        let found = fs::read_to_string(block.join("serial")).unwrap_or_default();
        if let (true, Some(name)) = (found.trim_end_matches(['\n', '\0']) == serial, block.file_name()) {
            let device = Path::new("/dev").join(name);
            wait_for(&device.display().to_string(), || device.exists().then_some(()))?;
            return Ok(Some(device));
        }
    }
    Ok(None)
}

/// Block devices of all virtio disks; `None` where there are no disks yet, or one has no block device yet.
fn disks(devices: &Path) -> Option<Vec<PathBuf>> {
    const VIRTIO_BLOCK: &str = "0x0002";
    let mut blocks = Vec::new();
    for device in fs::read_dir(devices).ok()?.flatten() {
        let kind = fs::read_to_string(device.path().join("device")).unwrap_or_default();
        if kind.trim_end() == VIRTIO_BLOCK {
            blocks.push(fs::read_dir(device.path().join("block")).ok()?.flatten().next()?.path());
        }
    }
    Some(blocks).filter(|blocks| !blocks.is_empty())
}

fn total_memory_bytes() -> Result<u64> {
    // SAFETY: an all-zero sysinfo is valid storage, and the kernel fills it.
    let (result, info) = unsafe {
        let mut info: libc::sysinfo = std::mem::zeroed();
        (libc::sysinfo(&mut info), info)
    };
    Errno::result(result).at("sysinfo")?;
    Ok(info.totalram * u64::from(info.mem_unit))
}

/// Moves the kernel's mounts over, gives the initramfs' memory back, and makes the new root the root.
fn enter_root() -> Result<()> {
    for directory in ["/proc", "/sys", "/dev"] {
        let target = format!("{NEW_ROOT}{directory}");
        fs::create_dir_all(&target).at(format!("mkdir {target}"))?;
        mount(
            Some(directory),
            target.as_str(),
            None::<&str>,
            MsFlags::MS_MOVE,
            None::<&str>,
        )
        .at(format!("move {directory}"))?;
    }
    // The running program's own file stays in memory as long as it is mapped.
    let _ = fs::remove_dir_all("/modules");
    let _ = fs::remove_file("/init");
    std::env::set_current_dir(NEW_ROOT).at("enter the new root")?;
    mount(Some("."), "/", None::<&str>, MsFlags::MS_MOVE, None::<&str>).at("move the new root")?;
    nix::unistd::chroot(".").at("change root")?;
    std::env::set_current_dir("/").at("enter /")
}

fn late_mounts() -> Result<()> {
    // With the writable layer they can not fill the whole memory.
    const QUIET: MsFlags = MsFlags::MS_NOSUID.union(MsFlags::MS_NODEV);
    mount_new(
        "devpts",
        "/dev/pts",
        MsFlags::MS_NOSUID.union(MsFlags::MS_NOEXEC),
        Some("gid=5,mode=620,ptmxmode=666"),
    )?;
    mount_new("tmpfs", "/dev/shm", QUIET, Some("mode=1777,size=25%"))?;
    mount_new("tmpfs", "/run", QUIET, Some("mode=0755,size=10%"))?;
    fs::create_dir_all("/run/lock").at("mkdir /run/lock")?;
    if !Path::new("/tmp").exists() {
        fs::create_dir("/tmp").at("mkdir /tmp")?;
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o1777);
        fs::set_permissions("/tmp", mode).at("mode of /tmp")?;
    }
    let links = [
        ("/proc/self/fd", "fd"),
        ("fd/0", "stdin"),
        ("fd/1", "stdout"),
        ("fd/2", "stderr"),
    ];
    for (target, name) in links {
        match symlink(target, format!("/dev/{name}")) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => return Err(error).at(name),
            _ => {}
        }
    }
    Ok(())
}

fn raise_file_limit() -> Result<()> {
    let limit = libc::rlimit {
        rlim_cur: OPEN_FILES,
        rlim_max: 1024 * 1024,
    };
    // SAFETY: `limit` is valid for the whole call.
    Errno::result(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) })
        .map(drop)
        .at("open file limit")
}

fn loopback_up() -> Result<()> {
    // SAFETY: takes no pointers.
    let socket = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    let socket = match Errno::result(socket) {
        Ok(fd) => fd,
        // A kernel without networking needs no loopback.
        Err(Errno::EAFNOSUPPORT) => return Ok(()),
        Err(errno) => return Err(errno).at("socket"),
    };
    // SAFETY: an all-zero ifreq is valid; `request` outlives both calls, which read and write one ifreq; the socket was
    // just made and is closed once.
    let result = unsafe {
        let mut request: libc::ifreq = std::mem::zeroed();
        request.ifr_name[0] = b'l' as libc::c_char;
        request.ifr_name[1] = b'o' as libc::c_char;
        request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
        let result = Errno::result(libc::ioctl(socket, libc::SIOCSIFFLAGS, &request));
        libc::close(socket);
        result
    };
    result.map(drop).at("loopback interface")
}

/// Opens the virtio-console port that carries the agent's frames. There is no udev: sysfs says which one it is, and
/// devtmpfs has its device file.
fn open_port() -> Result<OwnedFd> {
    let device = wait_for(&format!("Port {AGENT_PORT_NAME}"), find_port)?;
    let path = CString::new(format!("/dev/{device}"))
        .map_err(|_| Errno::EINVAL)
        .at("port")?;
    wait_for(&format!("/dev/{device}"), || sys::open(&path, libc::O_RDWR, 0).ok())
}

fn find_port() -> Option<String> {
    for entry in fs::read_dir("/sys/class/virtio-ports").ok()?.flatten() {
        let name = fs::read_to_string(entry.path().join("name")).unwrap_or_default();
        if name.trim_end() == AGENT_PORT_NAME {
            return entry.file_name().into_string().ok();
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory as the kernel's of virtio devices: kind of each, and its block device where it has one.
    fn devices(test: &str, devices: &[(&str, Option<&str>)]) -> PathBuf {
        let directory = std::env::temp_dir().join(format!("coppice-agent-disks-{}-{test}", std::process::id()));
        for (index, (kind, block)) in devices.iter().enumerate() {
            let device = directory.join(format!("virtio{index}"));
            fs::create_dir_all(&device).unwrap();
            fs::write(device.join("device"), format!("{kind}\n")).unwrap();
            if let Some(block) = block {
                fs::create_dir_all(device.join("block").join(block)).unwrap();
            }
        }
        directory
    }

    #[test]
    fn disks_are_found_once_all_of_them_have_a_block_device() {
        let all = devices(
            "all",
            &[("0x0002", Some("vda")), ("0x0003", None), ("0x0002", Some("vdb"))],
        );
        let mut names: Vec<_> = disks(&all)
            .unwrap()
            .into_iter()
            .filter_map(|block| Some(block.file_name()?.to_owned()))
            .collect();
        names.sort();
        assert_eq!(names, ["vda", "vdb"]);
        let early = devices("early", &[("0x0002", Some("vda")), ("0x0002", None)]);
        assert_eq!(disks(&early), None);
        let none = devices("none", &[("0x0003", None)]);
        assert_eq!(disks(&none), None);
        for directory in [all, early, none] {
            fs::remove_dir_all(directory).unwrap();
        }
    }
}
