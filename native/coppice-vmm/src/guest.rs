//! What a machine is besides its KVM objects: everything in here is memory, and a fork copies it.

use std::fs::File;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use coppice_wire::vmm::{BootConfig, MAX_VCPUS};
use kvm_bindings::CpuId;
use kvm_ioctls::Kvm;

use crate::boot::{self, Payload};
use crate::confine::{self, Missing, Threads};
use crate::devices::{BlankFile, Block, Devices, Disk, virtio_devices};
use crate::error::VmmError;
use crate::hot::{HotPages, Progress};
use crate::kvm::{self, LiveVm, MsrList, VmState};
use crate::lent::Lent;
use crate::memory::{GuestRam, PAGE_BYTES};
use crate::stages::Stopwatch;
use crate::vcpu;
use crate::whole::{self, Load, Rest};

/// Largest file that a VMM without a disk may write to: its log. With a disk it is at least as much.
const FILE_BYTES_MIN: u64 = 1 << 30;

/// A machine's memory, devices and constants.
pub struct Guest {
    /// Stays open in frozen processes: it is no part of any VM, and children need not open it again.
    kvm: Kvm,
    cpuid: CpuId,
    msrs: MsrList,
    vcpus: u8,
    pub ram: GuestRam,
    pub devices: Devices,
    /// The list of the template that this machine was forked from or is.
    hot: Option<HotPages>,
    /// Of a frozen machine, and of its children: the devices as they were frozen.
    pub frozen_devices: Option<Box<Devices>>,
    /// Of a child that is rewindable: the state that it was forked with.
    pub origin: Option<Box<VmState>>,
}

/// A machine that is ready to run for the first time.
pub struct Booted {
    pub guest: Guest,
    pub live: LiveVm,
    /// Barriers around it that this host does not allow.
    pub missing: Vec<Missing>,
}

/// Where a machine that was saved as a whole comes from.
pub struct LoadConfig<'a> {
    pub file: File,
    pub image: &'a str,
    pub memory_mib: u32,
    pub how: Load,
}

/// A machine out of a file.
pub struct Loaded {
    pub guest: Guest,
    pub state: VmState,
    pub missing: Vec<Missing>,
}

impl Guest {
    /// Makes the machine and puts it at the kernel's entry point. Confines the process, for good.
    /// `blank` is what its disk holds at first.
    pub fn boot(
        config: &BootConfig,
        blank: Option<OwnedFd>,
        control: BorrowedFd<'_>,
        stopwatch: &mut Stopwatch,
    ) -> Result<Booted, VmmError> {
        if !(1..=MAX_VCPUS).contains(&config.vcpus) {
            return Err(VmmError::Vcpus { vcpus: config.vcpus });
        }
        let ram = GuestRam::new(config.memory_mib)?;
        let image = Block::open(Path::new(&config.image)).map_err(|source| VmmError::Image {
            path: config.image.clone(),
            source,
        })?;
        let blank = blank.map(BlankFile::open).transpose()?;
        stopwatch.lap("memory");
        let payload = Payload {
            kernel: Path::new(&config.kernel),
            initrd: Path::new(&config.initrd),
            extra_command_line: &config.extra_cmdline,
            vcpus: config.vcpus,
            virtio_devices: virtio_devices(blank.is_some()),
        };
        let entry = boot::load(&ram, &payload)?;
        stopwatch.lap("load");
        let kvm = open_kvm()?;
        let cpuid = kvm::guest_cpuid(&kvm)?;
        stopwatch.lap("openKvm");
        // Before there is a VM: for it the kernel may start a thread in this process, and namespaces need a process that
        // has one.
        let mut kept = vec![control, ram.file(), image.file(), kvm_file(&kvm)];
        kept.extend(blank.as_ref().map(BlankFile::file));
        let extent_bytes = blank.as_ref().map_or(0, BlankFile::extent_bytes_max);
        confine::bound_file_size(extent_bytes.max(FILE_BYTES_MIN)).map_err(|source| VmmError::Host {
            call: "Bounding the size of files",
            source,
        })?;
        let missing = confine::confine(&kept, Threads::of(config.vcpus))?;
        let disk = blank.map(|blank| Disk::new(blank, config.disk_reserve_bytes));
        let devices = Devices::new(image, disk, config.console_bytes_per_second)?;
        stopwatch.lap("confine");
        let live = LiveVm::new(&kvm, &ram, &cpuid, config.vcpus, stopwatch)?;
        live.enter_kernel(entry)?;
        let msrs = MsrList::probe(&kvm, &live.vcpus[0])?;
        stopwatch.lap("registers");
        let guest = Self {
            kvm,
            cpuid,
            msrs,
            vcpus: config.vcpus,
            ram,
            devices,
            hot: None,
            frozen_devices: None,
            origin: None,
        };
        Ok(Booted { guest, live, missing })
    }

    /// Everything but the memory, which is to go into a file.
    pub fn rest<'a>(&self, vm: &'a VmState) -> Result<Rest<&'a VmState>, VmmError> {
        Ok(Rest {
            vm,
            devices: self.devices.state().map_err(|why| VmmError::Whole(why.to_owned()))?,
            cpuid: self.cpuid.clone(),
            msrs: self.msrs.clone(),
            vcpus: self.vcpus,
        })
    }

    /// A machine that was saved as a whole, in this fresh process: frozen, to be thawed. Confines the process, for good.
    pub fn load(
        config: LoadConfig<'_>,
        control: BorrowedFd<'_>,
        stopwatch: &mut Stopwatch,
    ) -> Result<Loaded, VmmError> {
        let image = Block::open(Path::new(config.image)).map_err(|source| VmmError::Image {
            path: config.image.to_owned(),
            source,
        })?;
        let (ram, rest) = whole::load(config.file, config.memory_mib, config.how)?;
        stopwatch.lap("memory");
        let kvm = open_kvm()?;
        stopwatch.lap("openKvm");
        confine::bound_file_size(FILE_BYTES_MIN).map_err(|source| VmmError::Host {
            call: "Bounding the size of files",
            source,
        })?;
        let kept = [control, ram.file(), image.file(), kvm_file(&kvm)];
        let missing = confine::confine(&kept, Threads::of(rest.vcpus))?;
        let devices = Devices::from_state(image, rest.devices)?;
        stopwatch.lap("confine");
        let guest = Self {
            kvm,
            cpuid: rest.cpuid,
            msrs: rest.msrs,
            vcpus: rest.vcpus,
            ram,
            devices,
            hot: None,
            frozen_devices: None,
            origin: None,
        };
        Ok(Loaded {
            guest,
            state: rest.vm,
            missing,
        })
    }

    /// Builds a new VM over the memory and puts the saved state into it. Its clocks go on as of host time `at_ns`.
    pub fn thaw(&mut self, state: &VmState, at_ns: u64, stopwatch: &mut Stopwatch) -> Result<LiveVm, VmmError> {
        // Before there is a VM: KVM would have to be told of every page.
        self.ram.copy_early(&self.hot_pages());
        stopwatch.lap("prefault");
        let live = LiveVm::new(&self.kvm, &self.ram, &self.cpuid, self.vcpus, stopwatch)?;
        state.restore(&live, at_ns)?;
        stopwatch.lap("restore");
        self.devices.begin_life(self.ram.memory())?;
        vcpu::sync_lines(&mut self.devices, &live.vm)?;
        stopwatch.lap("devices");
        Ok(live)
    }

    /// Makes the parked machine's memory what its children start from. No VM may be using it any more.
    pub fn freeze(&mut self, lent: &Lent) -> Result<(), VmmError> {
        self.learn(Progress::Used, lent);
        self.ram.freeze_base(lent)?;
        self.freeze_copy();
        Ok(())
    }

    /// The same in a copy of a machine whose base is made, which can't tell the machine's own pages from its template's.
    pub fn freeze_copy(&mut self) {
        if let Some(disk) = self.devices.disk_mut() {
            disk.freeze();
        }
        self.origin = None;
        // Made here, once, and not in each child. Without them none can be rewound.
        self.frozen_devices = self.devices.duplicate().ok().map(Box::new);
        // Its children are expected to begin as it did. Without a list they work the same, slower.
        let pages = self.hot_pages();
        self.hot = HotPages::new().ok();
        if let Some(hot) = &self.hot {
            hot.inherit(&pages);
        }
    }

    /// Tells the template, and through it later siblings, which pages this child has written. A hint: no failure of it
    /// matters.
    pub fn learn(&self, progress: Progress, lent: &Lent) {
        if let (Some(hot), Some(pagemap)) = (&self.hot, lent.pagemap()) {
            let _ = hot.learn(progress, pagemap, self.ram.host_address(0), self.ram.bytes());
        }
    }

    /// Whether the template has use for what this child will have written.
    pub fn learns(&self) -> bool {
        self.hot.as_ref().is_some_and(|hot| hot.wants(Progress::Used))
    }

    fn hot_pages(&self) -> Vec<u32> {
        let limit = u32::try_from(self.ram.bytes() / PAGE_BYTES).unwrap_or(u32::MAX);
        self.hot.as_ref().map_or_else(Vec::new, |hot| hot.pages(limit))
    }

    /// Blocks of the disk that were written since the base was made.
    pub fn dirty_blocks(&self) -> u64 {
        self.devices.disk().map_or(0, Disk::delta_blocks)
    }

    /// Reads the state of a stopped machine.
    pub fn save(&self, live: &LiveVm) -> Result<VmState, VmmError> {
        Ok(VmState::save(live, &self.msrs)?)
    }
}

fn kvm_file(kvm: &Kvm) -> BorrowedFd<'_> {
    // SAFETY: open as long as `kvm` is, from which the result borrows.
    unsafe { BorrowedFd::borrow_raw(kvm.as_raw_fd()) }
}

fn open_kvm() -> Result<Kvm, VmmError> {
    let kvm = Kvm::new().map_err(|error| VmmError::Host {
        call: "Opening /dev/kvm",
        source: error.into(),
    })?;
    kvm::check_capabilities(&kvm)?;
    Ok(kvm)
}
