//! The life of one VMM process: commands move it between its phases.
//!
//! ```text
//! fresh ──Boot──► running ◄──Resume── paused
//!                  │  └──────Pause─────►│
//!                  └──Park──► frozen ◄──┘     frozen ──Fork──► (a new process) running
//!
//! running ──Rewind──► running
//! frozen ──Compare──► frozen
//! running ──Checkpoint──► running, and (a new process) frozen
//! fresh ──LoadWhole──► running                frozen ──SaveWhole──► frozen
//! ```

use std::fs::File;
use std::os::fd::OwnedFd;
use std::process;
use std::time::{Duration, Instant};

use coppice_wire::vmm::{BootConfig, Command, Event, GuestEnd, MissingBarrier, WholeConfig};

mod rewind;

use crate::attention::Watch;
use crate::confine::Missing;
use crate::control::{Control, ControlError, Received};
use crate::devices::{Disk, Extent, Passed};
use crate::error::VmmError;
use crate::fork::{Side, die_with_parent, fork_sibling};
use crate::guest::{Booted, Guest, LoadConfig, Loaded};
use crate::hot::Progress;
use crate::kvm::{LiveVm, StoppedClocks, VmState, skip_stall};
use crate::lent::Lent;
use crate::memory::MIB;
use crate::stages::Stopwatch;
use crate::vcpu::{self, Turn};
use crate::whole::{self, Load};

/// How long a parked machine's VM waits to be taken apart, which takes longer than the park: most checkpoints are forked
/// the moment they exist, and need not wait for it.
const TAKE_APART_AFTER: Duration = Duration::from_millis(50);

/// A VM that is to be taken apart, and when at the latest.
struct Rest {
    live: LiveVm,
    until: Instant,
}

/// How a child comes to life.
#[derive(Clone, Copy)]
struct Birth {
    at_ns: u64,
    rewindable: bool,
}

enum Phase {
    Fresh,
    Running(Box<Guest>, LiveVm),
    Paused(Box<Guest>, LiveVm, StoppedClocks),
    /// With what is left of the VM that it ran in.
    Frozen(Box<Guest>, Box<VmState>, Option<Rest>),
    /// Only inside of a transition that failed.
    Lost,
}

impl Phase {
    fn name(&self) -> &'static str {
        match self {
            Self::Fresh => "fresh",
            Self::Running(..) => "running",
            Self::Paused(..) => "paused",
            Self::Frozen(..) => "frozen",
            Self::Lost => "lost",
        }
    }
}

/// Whether the process goes on.
enum Next {
    Go,
    Exit,
}

/// The process.
pub struct Machine {
    control: Control,
    phase: Phase,
    lent: Lent,
}

impl Machine {
    pub fn new(control: Control) -> Self {
        Self {
            control,
            phase: Phase::Fresh,
            lent: Lent::default(),
        }
    }

    /// Serves commands and runs the guest until one of them or the guest ends it.
    pub fn run(mut self) -> Result<(), VmmError> {
        loop {
            let received = match &mut self.phase {
                Phase::Running(guest, live) => match run_guest(&mut self.control, guest, live) {
                    Ok(Outcome::Command(received)) => received,
                    Ok(Outcome::Ended { reason, detail }) => return self.end(reason, detail),
                    Err(VmmError::Abuse(abuse)) => return self.end(GuestEnd::DeviceAbuse, abuse.to_string()),
                    Err(error) => return Err(error),
                },
                Phase::Frozen(_, _, rest @ Some(_)) => {
                    let until = rest.as_ref().map_or_else(Instant::now, |rest| rest.until);
                    match self.control.wait_until(until)? {
                        Some(received) => received,
                        None => {
                            *rest = None;
                            continue;
                        }
                    }
                }
                _ => self.control.wait()?,
            };
            match self.handle(received) {
                Ok(Next::Go) => {}
                Ok(Next::Exit) => return Ok(()),
                Err(VmmError::Control(error)) => return Err(error.into()),
                Err(VmmError::Abuse(abuse)) => return self.end(GuestEnd::DeviceAbuse, abuse.to_string()),
                Err(error) => self.report(&error)?,
            }
        }
    }

    fn handle(&mut self, mut received: Received) -> Result<Next, VmmError> {
        let descriptor = received.descriptor();
        match received.command {
            Command::Boot { config } => self.boot(&config, descriptor)?,
            Command::Agent { data } => self.agent(&data)?,
            Command::Pause { when_idle } => self.pause(when_idle)?,
            Command::Resume { at_ns } => self.resume(at_ns)?,
            Command::Park => return self.park(),
            Command::Fork { tag, at_ns, rewindable } => self.fork(tag, Birth { at_ns, rewindable }, descriptor)?,
            Command::Rewind { at_ns } => return self.rewind(at_ns),
            Command::Compare => self.compare()?,
            Command::Checkpoint { tag } => return self.checkpoint(tag, descriptor),
            Command::Lend { file } => {
                let lent = descriptor.ok_or(VmmError::NotLent { command: "Lend" })?;
                self.lent.take(file, lent.into());
                if let Phase::Running(guest, _) = &self.phase {
                    // It is lent when the child has begun its life: what it has written until now its siblings will write too.
                    guest.learn(Progress::Begun, &self.lent);
                }
            }
            Command::Extent { .. } => {
                let readable = received.descriptor();
                self.take_extent(
                    descriptor
                        .zip(readable)
                        .map(|(writable, readable)| Extent::new(writable, readable)),
                )?;
            }
            Command::SaveWhole => self.save_whole(descriptor)?,
            Command::LoadWhole { whole, at_ns } => self.load_whole(&whole, at_ns, descriptor)?,
            Command::Close => {
                if let Phase::Running(guest, _) | Phase::Paused(guest, ..) = &self.phase {
                    guest.learn(Progress::Used, &self.lent);
                }
                return Ok(Next::Exit);
            }
        }
        Ok(Next::Go)
    }

    fn boot(&mut self, config: &BootConfig, blank: Option<OwnedFd>) -> Result<(), VmmError> {
        let Phase::Fresh = self.phase else {
            return Err(self.refuse("Boot", "fresh"));
        };
        if config.disk && blank.is_none() {
            return Err(VmmError::NotLent { command: "Boot" });
        }
        let mut stopwatch = Stopwatch::start();
        let Booted { guest, live, missing } = Guest::boot(config, blank, self.control.socket(), &mut stopwatch)?;
        self.phase = Phase::Running(Box::new(guest), live);
        self.started(stopwatch, false, &missing)
    }

    fn agent(&mut self, data: &[u8]) -> Result<(), VmmError> {
        let (Phase::Running(guest, _) | Phase::Paused(guest, ..)) = &mut self.phase else {
            return Err(self.refuse("Agent", "running or paused"));
        };
        if guest.devices.push_agent(data) {
            Ok(())
        } else {
            Err(VmmError::Backlog { bytes: data.len() })
        }
    }

    /// One that comes after the machine was parked is nobody's: its children ask for their own.
    fn take_extent(&mut self, extent: Option<Extent>) -> Result<(), VmmError> {
        if let Phase::Running(guest, live) | Phase::Paused(guest, live, _) = &mut self.phase {
            guest.devices.give_extent(extent, guest.ram.memory())?;
            vcpu::sync_lines(&mut guest.devices, &live.vm)?;
        }
        Ok(())
    }

    fn pause(&mut self, when_idle: bool) -> Result<(), VmmError> {
        let stopwatch = Stopwatch::start();
        if let Phase::Running(guest, live) = &self.phase {
            if when_idle && !live.is_idle()? {
                self.control.send(&Event::Busy)?;
                return Ok(());
            }
            guest.learn(Progress::Begun, &self.lent);
        }
        self.phase = match std::mem::replace(&mut self.phase, Phase::Lost) {
            Phase::Running(guest, live) => {
                let clocks = StoppedClocks::read(&live)?;
                Phase::Paused(guest, live, clocks)
            }
            other => {
                self.phase = other;
                return Err(self.refuse("Pause", "running"));
            }
        };
        if let Phase::Paused(_, _, clocks) = &self.phase {
            self.control.send(&Event::Paused {
                at_ns: clocks.stopped_at_ns(),
                stages: stopwatch.finish(),
            })?;
        }
        Ok(())
    }

    fn resume(&mut self, at_ns: Option<u64>) -> Result<(), VmmError> {
        let mut stopwatch = Stopwatch::start();
        self.phase = match std::mem::replace(&mut self.phase, Phase::Lost) {
            Phase::Paused(guest, live, clocks) => {
                if let Some(at_ns) = at_ns {
                    clocks.set(&live, at_ns)?;
                }
                live.vcpus.iter().try_for_each(skip_stall)?;
                Phase::Running(guest, live)
            }
            other => {
                self.phase = other;
                return Err(self.refuse("Resume", "paused"));
            }
        };
        stopwatch.lap("clock");
        self.control.send(&Event::Resumed {
            stages: stopwatch.finish(),
        })?;
        Ok(())
    }

    /// Saves everything and lets go of KVM. When this has failed half-way, the machine is lost.
    fn park(&mut self) -> Result<Next, VmmError> {
        if matches!(self.phase, Phase::Running(..) | Phase::Paused(..)) && !self.lent.can_count() {
            return Err(VmmError::NotLent { command: "Park" });
        }
        let mut stopwatch = Stopwatch::start();
        let (mut guest, mut live) = match std::mem::replace(&mut self.phase, Phase::Lost) {
            Phase::Running(guest, live) | Phase::Paused(guest, live, _) => (guest, live),
            other => {
                self.phase = other;
                return Err(self.refuse("Park", "running or paused"));
            }
        };
        let state = match still(&mut self.control, &mut guest, &mut live, &mut stopwatch)? {
            Still::State(state) => state,
            Still::Ended { reason, detail } => {
                self.phase = Phase::Running(guest, live);
                self.end(reason, detail)?;
                return Ok(Next::Exit);
            }
        };
        let dirty_pages = guest.ram.private_pages(&self.lent)?;
        self.control.send(&Event::Parked {
            at_ns: state.stopped_at_ns(),
            dirty_pages,
            dirty_blocks: guest.dirty_blocks(),
            stages: stopwatch.finish(),
        })?;
        // What is still unsent belongs to this life, not to the children's.
        self.control.flush()?;
        live.secondaries.dismiss();
        // A base can't be made of memory that a VM uses.
        let until = Instant::now() + TAKE_APART_AFTER;
        let rest = guest.ram.is_private().then_some(Rest { live, until });
        guest.freeze(&self.lent)?;
        // Not the children's.
        self.lent = Lent::default();
        self.phase = Phase::Frozen(guest, state, rest);
        Ok(Next::Go)
    }

    /// Makes a frozen copy. This process goes on, and pays for the copy with the faults of what it writes next.
    fn checkpoint(&mut self, tag: u64, socket: Option<OwnedFd>) -> Result<Next, VmmError> {
        let mut stopwatch = Stopwatch::start();
        let Phase::Running(guest, live) = &mut self.phase else {
            return Err(self.refuse("Checkpoint", "running"));
        };
        if !guest.ram.is_private() {
            return Err(VmmError::ColdCheckpoint);
        }
        if !self.lent.can_count() {
            return Err(VmmError::NotLent { command: "Checkpoint" });
        }
        let socket = socket.ok_or(VmmError::NoSocket { command: "Checkpoint" })?;
        let state = match still(&mut self.control, guest, live, &mut stopwatch)? {
            Still::State(state) => state,
            Still::Ended { reason, detail } => {
                self.end(reason, detail)?;
                return Ok(Next::Exit);
            }
        };
        // Here, where the copy's pages are: the copy itself has no file that it could count by.
        let dirty_pages = guest.ram.private_pages(&self.lent)?;
        stopwatch.lap("count");
        if let Some(disk) = guest.devices.disk_mut() {
            disk.begin_epoch();
        }
        let side = fork_sibling().map_err(VmmError::Copy)?;
        stopwatch.lap("fork");
        match side {
            Side::Parent { child } => {
                drop(socket);
                self.control.send(&Event::Checkpointed {
                    tag,
                    pid: child,
                    stages: stopwatch.finish(),
                })?;
            }
            Side::Child => {
                self.control = adopt(socket);
                self.lent = Lent::default();
                self.freeze_copy(state, dirty_pages, stopwatch)?;
            }
        }
        Ok(Next::Go)
    }

    /// In a copy: it has the machine's memory and descriptors, but KVM knows nothing of it.
    fn freeze_copy(&mut self, state: Box<VmState>, dirty_pages: u64, mut stopwatch: Stopwatch) -> Result<(), VmmError> {
        if let Phase::Running(mut guest, live) = std::mem::replace(&mut self.phase, Phase::Lost) {
            // Open here, they would keep the machine's VM alive when the machine is gone.
            drop(live);
            guest.freeze_copy();
            stopwatch.lap("adopt");
            self.control.send(&Event::Parked {
                at_ns: state.stopped_at_ns(),
                dirty_pages,
                dirty_blocks: guest.dirty_blocks(),
                stages: stopwatch.finish(),
            })?;
            self.phase = Phase::Frozen(guest, state, None);
        }
        Ok(())
    }

    /// Makes a child that runs. This process stays as it is.
    fn fork(&mut self, tag: u64, birth: Birth, socket: Option<OwnedFd>) -> Result<(), VmmError> {
        let Phase::Frozen(..) = self.phase else {
            return Err(self.refuse("Fork", "frozen"));
        };
        let socket = socket.ok_or(VmmError::NoSocket { command: "Fork" })?;
        let mut stopwatch = Stopwatch::start();
        let side = fork_sibling().map_err(VmmError::Copy)?;
        stopwatch.lap("fork");
        match side {
            Side::Parent { child } => {
                drop(socket);
                self.control.send(&Event::Forked {
                    tag,
                    pid: child,
                    stages: stopwatch.finish(),
                })?;
            }
            Side::Child => {
                self.control = adopt(socket);
                self.start(birth, stopwatch)?;
            }
        }
        Ok(())
    }

    /// In a new child: from the template's state to a running machine.
    fn start(&mut self, birth: Birth, mut stopwatch: Stopwatch) -> Result<(), VmmError> {
        stopwatch.lap("adopt");
        let mut learns = false;
        if let Phase::Frozen(mut guest, state, rest) = std::mem::replace(&mut self.phase, Phase::Lost) {
            drop(rest.map(|rest| rest.live));
            if birth.rewindable {
                guest.prepare_rewind()?;
            }
            let live = guest.thaw(&state, birth.at_ns, &mut stopwatch)?;
            learns = guest.learns();
            guest.origin = birth.rewindable.then_some(state);
            self.phase = Phase::Running(guest, live);
        }
        self.started(stopwatch, learns, &[])
    }

    fn started(&mut self, stopwatch: Stopwatch, learns: bool, missing: &[Missing]) -> Result<(), VmmError> {
        self.control.send(&Event::Started {
            pid: process::id(),
            stages: stopwatch.finish(),
            learns,
            missing: missing.iter().map(MissingBarrier::from).collect(),
        })?;
        Ok(())
    }

    fn save_whole(&mut self, file: Option<OwnedFd>) -> Result<(), VmmError> {
        let Phase::Frozen(guest, state, _) = &self.phase else {
            return Err(self.refuse("SaveWhole", "frozen"));
        };
        let file = File::from(file.ok_or(VmmError::NotLent { command: "SaveWhole" })?);
        let mut stopwatch = Stopwatch::start();
        let file_bytes = whole::save(&file, &guest.ram, &guest.rest(state)?)?;
        stopwatch.lap("write");
        self.control.send(&Event::SavedWhole {
            memory_mib: u32::try_from(guest.ram.bytes() / MIB).unwrap_or(u32::MAX),
            file_bytes,
            stages: stopwatch.finish(),
        })?;
        Ok(())
    }

    fn load_whole(&mut self, whole: &WholeConfig, at_ns: u64, file: Option<OwnedFd>) -> Result<(), VmmError> {
        let Phase::Fresh = self.phase else {
            return Err(self.refuse("LoadWhole", "fresh"));
        };
        let file = File::from(file.ok_or(VmmError::NotLent { command: "LoadWhole" })?);
        let mut stopwatch = Stopwatch::start();
        let config = LoadConfig {
            file,
            image: &whole.image,
            memory_mib: whole.memory_mib,
            how: if whole.mapped { Load::Map } else { Load::Read },
        };
        let Loaded {
            mut guest,
            state,
            missing,
        } = Guest::load(config, self.control.socket(), &mut stopwatch)?;
        let live = guest.thaw(&state, at_ns, &mut stopwatch)?;
        self.phase = Phase::Running(Box::new(guest), live);
        self.started(stopwatch, false, &missing)
    }

    fn refuse(&self, command: &'static str, needs: &'static str) -> VmmError {
        VmmError::State {
            command,
            needs,
            is: self.phase.name(),
        }
    }

    fn report(&mut self, error: &VmmError) -> Result<(), ControlError> {
        self.control.send(&Event::Failed {
            code: error.code().to_owned(),
            message: error.to_string(),
            poisons: error.poisons(),
        })
    }

    /// Sends what the guest has said to the last, and why it said no more.
    fn end(&mut self, reason: GuestEnd, detail: String) -> Result<(), VmmError> {
        if let Phase::Running(guest, _) | Phase::Paused(guest, ..) = &mut self.phase
            && let Some(Passed { data, dropped }) = guest.devices.take_console(true)
        {
            self.control.send(&Event::Console { data, dropped })?;
        }
        self.control.send(&Event::GuestEnded { reason, detail })?;
        self.control.flush()?;
        Ok(())
    }
}

/// In a new process: its own end of its own control socket.
fn adopt(socket: OwnedFd) -> Control {
    let control = Control::new(socket).and_then(|control| Ok((control, die_with_parent()?)));
    // Without a socket there is nobody to tell.
    let Ok((control, ())) = control else { process::exit(1) };
    control
}

enum Still {
    State(Box<VmState>),
    Ended { reason: GuestEnd, detail: String },
}

/// Reads the state of a machine between two instructions of its guest, with nothing half-done.
fn still(
    control: &mut Control,
    guest: &mut Guest,
    live: &mut LiveVm,
    stopwatch: &mut Stopwatch,
) -> Result<Still, VmmError> {
    if let Turn::Ended { reason, detail } = vcpu::complete(live, &mut guest.devices, guest.ram.memory())? {
        return Ok(Still::Ended { reason, detail });
    }
    pass_on(control, guest, Console::All)?;
    stopwatch.lap("stop");
    let state = Box::new(guest.save(live)?);
    stopwatch.lap("save");
    Ok(Still::State(state))
}

/// Why the guest does not run for the moment.
enum Outcome {
    Command(Received),
    Ended { reason: GuestEnd, detail: String },
}

/// Runs the guest until a command arrives or it ends.
fn run_guest(control: &mut Control, guest: &mut Guest, live: &mut LiveVm) -> Result<Outcome, VmmError> {
    // SAFETY: the vCPU, and with it the mapping that holds the byte, lives longer than `watch`, which is dropped on return.
    let watch = unsafe { Watch::new(&raw mut live.vcpus[0].get_kvm_run().immediate_exit) };
    let mut look = true;
    loop {
        // The guest may wait for its disk where nothing wakes it: it is entered when no request is left.
        while watch.take() || look || guest.devices.is_unfinished() {
            look = false;
            if let Some(received) = control.poll()? {
                return stop_for(received, guest, live);
            }
            if let Turn::Ended { reason, detail } =
                vcpu::serve_secondaries(live, &mut guest.devices, guest.ram.memory())?
            {
                return Ok(Outcome::Ended { reason, detail });
            }
            vcpu::run_secondaries(live)?;
            pass_on(control, guest, Console::Lines)?;
            guest.devices.serve_waiting(guest.ram.memory())?;
            vcpu::sync_lines(&mut guest.devices, &live.vm)?;
        }
        match vcpu::turn(live, &mut guest.devices, guest.ram.memory())? {
            Turn::Handled => {
                pass_on(control, guest, Console::Lines)?;
                vcpu::sync_lines(&mut guest.devices, &live.vm)?;
            }
            Turn::Interrupted => {}
            Turn::Ended { reason, detail } => return Ok(Outcome::Ended { reason, detail }),
        }
    }
}

/// Commands that concern devices alone leave the other vCPUs running; for all others the whole machine stands still.
fn stop_for(received: Received, guest: &mut Guest, live: &mut LiveVm) -> Result<Outcome, VmmError> {
    if !matches!(
        received.command,
        Command::Agent { .. } | Command::Lend { .. } | Command::Extent { .. }
    ) && let Turn::Ended { reason, detail } = vcpu::stop_secondaries(live, &mut guest.devices, guest.ram.memory())?
    {
        return Ok(Outcome::Ended { reason, detail });
    }
    Ok(Outcome::Command(received))
}

#[derive(PartialEq)]
enum Console {
    Lines,
    All,
}

/// Sends on what the guest has said, as far as the daemon keeps up with it. The agent's frames wait, the console's
/// bytes are dropped.
fn pass_on(control: &mut Control, guest: &mut Guest, console: Console) -> Result<(), VmmError> {
    while control.has_room() {
        let Some(data) = guest.devices.pop_agent(guest.ram.memory())? else {
            break;
        };
        control.send(&Event::Agent { data })?;
    }
    if guest.devices.disk_mut().is_some_and(Disk::take_extent_wish) {
        control.send(&Event::ExtentWanted)?;
    }
    if let Some(Passed { data, dropped }) = guest.devices.take_console(console == Console::All)
        && control.has_room()
    {
        control.send(&Event::Console { data, dropped })?;
    }
    Ok(())
}
