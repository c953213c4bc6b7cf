//! One VMM process: its control socket, its agent, its console, its end.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

use coppice_wire::vmm::{Command, Event, GuestEnd, Stages};
use coppice_wire::{FrameError, encode_frame};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::sync::{oneshot, watch};

use crate::defaults::{CHORES_DELAY, CONTROL_DEADLINE, MAX_CLOCK_ERROR};
use crate::extents::NewExtent;
use crate::limits::Held;
use crate::machine::agent_link::{AgentLink, Cut};
use crate::machine::console::Console;
use crate::machine::extent_grant::ExtentGrant;
use crate::machine::lend::{self, Lending, Packets};
use crate::machine::priority::{self, Threads, Urgency, Worth};
use crate::outbox::Outbox;

/// Why a VMM process is no more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// The guest ended its own VM.
    Guest { reason: GuestEnd, detail: String },
    /// The guest or its VMM sent what it must not send; the daemon killed the process.
    Hostile { detail: String },
    /// It took more than its limits allow.
    OverLimit { detail: String },
    /// The process ended by itself or was killed by somebody.
    Died { detail: String },
    /// The daemon closed it.
    Closed,
}

impl Ending {
    pub fn reason(&self) -> &'static str {
        match self {
            Ending::Guest {
                reason: GuestEnd::Shutdown,
                ..
            } => "shutdown",
            Ending::Guest {
                reason: GuestEnd::TripleFault,
                ..
            } => "tripleFault",
            Ending::Guest {
                reason: GuestEnd::Unrunnable,
                ..
            } => "unrunnable",
            Ending::Guest {
                reason: GuestEnd::DeviceAbuse,
                ..
            } => "deviceAbuse",
            Ending::Hostile { .. } => "poisoned",
            Ending::OverLimit { .. } => "memoryLimit",
            Ending::Died { .. } => "vmmDied",
            Ending::Closed => "closed",
        }
    }

    pub fn detail(&self) -> &str {
        match self {
            Ending::Guest { detail, .. }
            | Ending::Hostile { detail }
            | Ending::OverLimit { detail }
            | Ending::Died { detail } => detail,
            Ending::Closed => "",
        }
    }

    pub fn over_memory() -> Self {
        Ending::OverLimit {
            detail: "it took more memory than `limits.memoryMiB` allows".to_owned(),
        }
    }

    pub fn is_guests_fault(&self) -> bool {
        matches!(
            self,
            Ending::Guest { .. } | Ending::Hostile { .. } | Ending::OverLimit { .. }
        )
    }
}

#[derive(Debug, thiserror::Error)]
pub enum VmmError {
    #[error("The VMM has ended ({})", .0.reason())]
    Ended(Ending),
    #[error("The VMM refused: {code}: {message}")]
    Failed {
        code: String,
        message: String,
        poisons: bool,
    },
    #[error("The VMM answered {command} with {answer}")]
    Unexpected {
        command: &'static str,
        answer: &'static str,
    },
    #[error("The VMM did not answer {command} within {} s", .within.as_secs())]
    Silent { command: &'static str, within: Duration },
    #[error("The command can't be encoded: {0}")]
    Encode(#[from] FrameError),
}

impl VmmError {
    /// Whether the VM may be damaged. A VMM that is silent or answers nonsense is in no state to go on.
    pub fn poisons(&self) -> bool {
        match self {
            VmmError::Failed { poisons, .. } => *poisons,
            VmmError::Unexpected { .. } | VmmError::Silent { .. } => true,
            VmmError::Ended(_) | VmmError::Encode(_) => false,
        }
    }
}

type Answer = Result<Event, VmmError>;

/// What a process is for, so that its end is told to the right one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Role {
    Sandbox(String),
    Checkpoint(String),
    /// Nobody owns it any more.
    Discarded,
}

impl Role {
    pub fn id(&self) -> &str {
        match self {
            Role::Sandbox(id) | Role::Checkpoint(id) => id,
            Role::Discarded => "-",
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Stop {
    at_ns: u64,
    noticed: Instant,
}

/// How long a guest was stopped.
#[derive(Debug, Default)]
pub struct Stopped {
    /// By the host's wall clock, which is what the guest's must follow.
    pub wall_ns: u64,
    /// Whether as much time has really passed: not where the host's clock was set meanwhile.
    pub is_real: bool,
}

impl Stop {
    fn until(&self, now_ns: u64) -> Stopped {
        let (wall, real) = (
            i128::from(now_ns) - i128::from(self.at_ns),
            self.noticed.elapsed().as_nanos() as i128,
        );
        Stopped {
            wall_ns: u64::try_from(wall).unwrap_or(0),
            is_real: (wall - real).unsigned_abs() < MAX_CLOCK_ERROR.as_nanos() / 2,
        }
    }
}

pub struct VmmProcess {
    pub outbox: Outbox,
    pub agent: Rc<AgentLink>,
    pub console: RefCell<Console>,
    pub role: RefCell<Role>,
    pid: Cell<Option<Pid>>,
    threads: Cell<Threads>,
    pub extent: ExtentGrant,
    /// The limits that it is held to.
    pub held: Held,
    /// Its priority when somebody waits for it.
    foreground_nice: Cell<i32>,
    lending: Lending,
    /// Forks of it, a checkpoint, that somebody waits for.
    awaited_forks: Cell<u32>,
    /// When the guest stopped last, by the host's two clocks.
    stop: Cell<Option<Stop>>,
    /// Answers that are due, in the order of their commands.
    due: RefCell<VecDeque<(&'static str, oneshot::Sender<Answer>)>>,
    ending: RefCell<Option<Ending>>,
    /// How the process exited, in words.
    exit: watch::Sender<Option<String>>,
    /// The process is gone and its end has been dealt with.
    settled: watch::Sender<bool>,
}

pub struct AwaitedFork(Rc<VmmProcess>);

impl Drop for AwaitedFork {
    fn drop(&mut self) {
        let left = self.0.awaited_forks.get().saturating_sub(1);
        self.0.awaited_forks.set(left);
        if left == 0 {
            // It may have the VM that it was parked in to take apart.
            self.0.set_urgency(Urgency::Background);
        }
    }
}

/// An answer that the VMM owes.
pub struct Due {
    command: &'static str,
    answer: oneshot::Receiver<Answer>,
}

impl Due {
    /// Waits as long as the caller does.
    pub async fn answer(self) -> Answer {
        self.answer.await.unwrap_or(Err(VmmError::Ended(Ending::Closed)))
    }

    pub async fn within(self, within: Duration) -> Answer {
        let command = self.command;
        match tokio::time::timeout(within, self.answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(VmmError::Ended(Ending::Closed)),
            Err(_) => Err(VmmError::Silent { command, within }),
        }
    }
}

impl VmmProcess {
    /// `generation`: the one in the guest's memory.
    pub fn new(outbox: Outbox, role: Role, generation: u64) -> Self {
        VmmProcess {
            outbox,
            agent: Rc::new(AgentLink::new(generation)),
            console: RefCell::default(),
            role: RefCell::new(role),
            pid: Cell::new(None),
            threads: Cell::new(Threads::One),
            extent: ExtentGrant::default(),
            held: Held::default(),
            foreground_nice: Cell::new(0),
            lending: Lending::default(),
            awaited_forks: Cell::new(0),
            stop: Cell::new(None),
            due: RefCell::default(),
            ending: RefCell::default(),
            exit: watch::Sender::new(None),
            settled: watch::Sender::new(false),
        }
    }

    pub fn pid(&self) -> Option<Pid> {
        self.pid.get()
    }

    pub fn set_pid(&self, pid: Pid) {
        self.pid.set(Some(pid));
    }

    /// Another life begins in the same process.
    pub fn begin_life(&self) {
        self.agent.forget_clock();
        self.extent.reopen();
    }

    pub fn threads(&self) -> Threads {
        self.threads.get()
    }

    pub fn set_threads(&self, threads: Threads) {
        self.threads.set(threads);
    }

    pub fn set_learns(&self, learns: bool) {
        self.lending.learns.set(learns);
    }

    /// `None` once the reaper has collected it: from then on the number may be another process's.
    pub fn living_pid(&self) -> Option<Pid> {
        self.pid.get().filter(|_| self.exit.borrow().is_none())
    }

    pub fn set_stopped_at_ns(&self, at_ns: u64) {
        let noticed = Instant::now();
        self.stop.set(Some(Stop { at_ns, noticed }));
    }

    /// For how long the guest has been stopped at host time `now_ns`.
    pub fn stopped(&self, now_ns: u64) -> Stopped {
        self.stop.get().map_or(Stopped::default(), |stop| stop.until(now_ns))
    }

    /// A fork of it that somebody waits for: until the last of these is dropped it goes first, and its children are born so.
    pub fn await_fork(self: &Rc<Self>) -> AwaitedFork {
        self.awaited_forks.set(self.awaited_forks.get() + 1);
        self.set_urgency(Urgency::Foreground);
        AwaitedFork(Rc::clone(self))
    }

    /// Nobody waits for it: what it still does, taking its VM apart, it does when there is nothing better to do.
    pub fn rest(&self) {
        if self.awaited_forks.get() == 0 {
            self.set_urgency(Urgency::Background);
        }
    }

    /// Does something that can wait, when what is under way has been answered.
    pub fn later(self: &Rc<Self>, act: impl FnOnce(&Rc<VmmProcess>) + 'static) {
        let process = Rc::clone(self);
        tokio::task::spawn_local(async move {
            // A timer that is due before all others costs a system call: the answer is sent first.
            tokio::task::yield_now().await;
            tokio::time::sleep(CHORES_DELAY).await;
            act(&process);
        });
    }

    /// Lends it what it will need to be parked, if it has come to life without; and tells its template what it has written
    /// until now.
    pub fn prepare_park(&self) {
        let packets = self.lending.packets(&Command::Park, self.living_pid());
        for (bytes, descriptor) in packets.unwrap_or_default() {
            // One that is gone is not parked.
            let _ = self.outbox.send_now(bytes, descriptor);
        }
    }

    pub fn set_worth(&self, worth: Worth) {
        if let Some(pid) = self.living_pid() {
            priority::set_worth(pid, worth);
        }
    }

    pub fn set_urgency(&self, urgency: Urgency) {
        if let Some(pid) = self.living_pid() {
            priority::set_urgency(pid, urgency, self.threads.get(), self.foreground_nice.get());
        }
    }

    /// Takes effect when its urgency is set next. Whether it is another than before.
    pub fn set_foreground_nice(&self, nice: i32) -> bool {
        self.foreground_nice.replace(nice) != nice
    }

    pub fn id(&self) -> String {
        self.role.borrow().id().to_owned()
    }

    /// Expects an answer to something that is not sent on this socket (a child's `Started`).
    pub fn expect(&self, command: &'static str) -> Due {
        let (sender, answer) = oneshot::channel();
        match self.ending() {
            Some(ending) => drop(sender.send(Err(VmmError::Ended(ending)))),
            None => self.due.borrow_mut().push_back((command, sender)),
        }
        Due { command, answer }
    }

    /// Sends a command at once, whatever waits in the queue behind which it goes.
    pub fn send(&self, command: &Command, descriptor: Option<OwnedFd>) -> Result<Due, VmmError> {
        self.send_with(command, descriptor, Vec::new())
    }

    /// Sends a command and, in the same write, another frame.
    pub fn send_with(&self, command: &Command, descriptor: Option<OwnedFd>, next: Vec<u8>) -> Result<Due, VmmError> {
        let packets = self.packets(command, descriptor, next)?;
        let due = self.expect(name(command));
        // Where the writer has ended the supervisor is about to answer what is due.
        let _ = packets
            .into_iter()
            .try_for_each(|(bytes, descriptor)| self.outbox.send_now(bytes, descriptor));
        Ok(due)
    }

    /// Sends a command and waits for its answer.
    pub async fn ask(&self, command: Command) -> Answer {
        self.send(&command, None)?.within(CONTROL_DEADLINE).await
    }

    /// Sends a command that needs files of the process that this one was forked from.
    pub fn send_about(&self, command: &Command, origin: &VmmProcess) -> Result<Due, VmmError> {
        let mut packets = lend::packets_about(origin.living_pid(), self.living_pid(), command)?;
        packets.push((encode_frame(command)?, None));
        let due = self.expect(name(command));
        // Where the writer has ended the supervisor is about to answer what is due.
        let _ = packets
            .into_iter()
            .try_for_each(|(bytes, descriptor)| self.outbox.send_now(bytes, descriptor));
        Ok(due)
    }

    /// Hands an answer to the oldest command. False: nobody asked.
    pub fn answer(&self, answer: Answer) -> bool {
        let Some((_, due)) = self.due.borrow_mut().pop_front() else {
            return false;
        };
        // Who asked may have given up; the answer was still the one to that command.
        let _ = due.send(answer);
        true
    }

    /// Records why the process ends; the first reason stands.
    pub fn set_ending(&self, ending: Ending) {
        self.ending.borrow_mut().get_or_insert(ending);
    }

    pub fn ending(&self) -> Option<Ending> {
        self.ending.borrow().clone()
    }

    /// Fails everything that waits for this process.
    pub fn fail_waiting(&self, ending: &Ending) {
        let cut = match ending {
            Ending::Closed => Cut::Closed,
            other => Cut::Lost(other.clone()),
        };
        self.agent.cut(cut);
        for (_, due) in std::mem::take(&mut *self.due.borrow_mut()) {
            let _ = due.send(Err(VmmError::Ended(ending.clone())));
        }
    }

    /// Answers the VMM's wish for an extent.
    pub fn give_extent(&self, extent: Option<NewExtent>) -> Result<(), FrameError> {
        for (bytes, descriptor) in self.extent.packets(extent)? {
            // Where the writer has ended the supervisor is about to notice.
            let _ = self.outbox.send_now(bytes, descriptor);
        }
        Ok(())
    }

    /// Asks the VMM to exit; nothing is awaited.
    pub fn send_close(&self) {
        for (bytes, descriptor) in self.packets(&Command::Close, None, Vec::new()).unwrap_or_default() {
            let _ = self.outbox.send_now(bytes, descriptor);
        }
    }

    /// A command behind the files that it needs and the VMM does not have, in writes of at most one descriptor each.
    fn packets(&self, command: &Command, descriptor: Option<OwnedFd>, next: Vec<u8>) -> Result<Packets, FrameError> {
        let mut packets = self.lending.packets(command, self.living_pid())?;
        if matches!(command, Command::Park) {
            // Frozen, it has nothing more to tell.
            self.lending.learns.set(false);
        }
        let mut bytes = encode_frame(command)?;
        bytes.extend(next);
        match packets.last_mut().filter(|_| descriptor.is_none()) {
            Some((lent, _)) => lent.extend(bytes),
            None => packets.push((bytes, descriptor)),
        }
        Ok(packets)
    }

    /// Kills the process. Safe at any time: the pid is a child that only the reaper collects, and `exit` is set then.
    pub fn kill(&self) {
        if let Some(pid) = self.pid.get()
            && self.exit.borrow().is_none()
        {
            // It may have exited a moment ago.
            let _ = kill(pid, Signal::SIGKILL);
        }
    }

    /// The reaper has collected the process.
    pub fn set_exit(&self, how: String) {
        self.exit.send_replace(Some(how));
    }

    pub async fn exited(&self) -> String {
        match self.exit.subscribe().wait_for(Option::is_some).await {
            Ok(how) => how.clone().unwrap_or_default(),
            Err(_) => String::new(),
        }
    }

    pub fn set_settled(&self) {
        self.settled.send_replace(true);
    }

    /// Returns when the process is gone and everybody has been told.
    pub async fn settled(&self) {
        let _ = self.settled.subscribe().wait_for(|settled| *settled).await;
    }
}

fn name(command: &Command) -> &'static str {
    match command {
        Command::Boot { .. } => "boot",
        Command::Agent { .. } => "agent",
        Command::Pause { .. } => "pause",
        Command::Resume { .. } => "resume",
        Command::Park => "park",
        Command::Fork { .. } => "fork",
        Command::Checkpoint { .. } => "checkpoint",
        Command::Rewind { .. } => "rewind",
        Command::Compare => "compare",
        Command::Lend { .. } => "lend",
        Command::Extent { .. } => "extent",
        Command::SaveWhole => "saveWhole",
        Command::LoadWhole { .. } => "loadWhole",
        Command::Close => "close",
    }
}

fn answer_name(event: &Event) -> &'static str {
    match event {
        Event::Started { .. } => "started",
        Event::Agent { .. } => "agent",
        Event::Console { .. } => "console",
        Event::Paused { .. } => "paused",
        Event::Busy => "busy",
        Event::Resumed { .. } => "resumed",
        Event::ExtentWanted => "extentWanted",
        Event::Parked { .. } => "parked",
        Event::Rewound { .. } => "rewound",
        Event::Compared { .. } => "compared",
        Event::Forked { .. } => "forked",
        Event::Checkpointed { .. } => "checkpointed",
        Event::SavedWhole { .. } => "savedWhole",
        Event::Failed { .. } => "failed",
        Event::GuestEnded { .. } => "guestEnded",
    }
}

/// The stages of an answer that must be of one kind.
macro_rules! expect_answer {
    ($answer:expr, $command:literal, $pattern:pat => $value:expr) => {
        match $answer {
            $pattern => Ok($value),
            other => Err($crate::machine::process::unexpected($command, &other)),
        }
    };
}
pub(crate) use expect_answer;

pub fn unexpected(command: &'static str, answer: &Event) -> VmmError {
    VmmError::Unexpected {
        command,
        answer: answer_name(answer),
    }
}

/// Stages of a VMM, named as its own.
pub fn vmm_stages(stages: Stages) -> Stages {
    let named = |name: String| {
        if name.starts_with("vmm.") {
            name
        } else {
            format!("vmm.{name}")
        }
    };
    stages.into_iter().map(|(name, micros)| (named(name), micros)).collect()
}
