//! The event loop: takes requests from the host, and passes what happens in the guest to whom it belongs.

use std::os::fd::{AsRawFd, OwnedFd};

use coppice_wire::agent::{AGENT_PROTOCOL, ClockTold, Request};
use coppice_wire::{Value, decode};
use nix::errno::Errno;
use serde::Serialize;

use crate::args::Args;
use crate::context::Context;
use crate::exec::{Execs, Stream};
use crate::failure::{Coded, Failure};
use crate::file_jobs::FileJobs;
use crate::files;
use crate::identity::{self, Identity, ResumeRequest};
use crate::outbox::RequestKey;
use crate::poller::{Ready, Token};
use crate::port::{Port, PortError, PortKind, Received};
use crate::procfs;
use crate::ptys::Ptys;
use crate::sys::{self, READABLE, WRITABLE};
use crate::uploads::Uploads;

/// Pieces of one large request that are read before anything else has its turn.
const READS_A_TURN: u32 = 64;

/// How long the agent leaves a port alone that has nobody at the other end.
const PORT_RETRY_NS: u64 = 20_000_000;

#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    #[error("Agent can't start ({step}): {errno}")]
    Start { step: &'static str, errno: Errno },
    #[error("Agent can't wait for events: {0}")]
    Wait(Errno),
    #[error(transparent)]
    Port(#[from] PortError),
}

#[derive(Debug, thiserror::Error)]
enum RequestError {
    #[error("Operation '{0}' is unknown to this agent")]
    UnknownOperation(String),
    #[error("Request of generation {given} is refused: the sandbox lives in generation {present}")]
    StaleGeneration { given: u64, present: u64 },
}

impl Coded for RequestError {
    fn code(&self) -> &'static str {
        match self {
            Self::UnknownOperation(_) => "UNKNOWN_OPERATION",
            Self::StaleGeneration { .. } => "STALE_GENERATION",
        }
    }
}

/// Why the loop ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The host asked for it.
    Shutdown,
    /// The host is gone; sockets only.
    Disconnected,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ReadyEvent<'a> {
    name: &'static str,
    protocol: u32,
    version: &'static str,
    boot_id: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Pong<'a> {
    boot_id: &'a str,
    realtime_ns: u64,
    monotonic_ns: u64,
}

#[derive(Serialize)]
struct Cancelled {
    found: bool,
}

pub struct Agent {
    context: Context,
    port: Port,
    port_events: u32,
    signals: OwnedFd,
    /// `/dev/null`, stdin of programs that get none.
    null: OwnedFd,
    /// Children of this process: whose parents are gone among them.
    children: Option<OwnedFd>,
    identity: Identity,
    generation: u64,
    execs: Execs,
    ptys: Ptys,
    uploads: Uploads,
    file_jobs: FileJobs,
    ended: Option<Ended>,
}

impl Agent {
    pub fn new(port: OwnedFd, kind: PortKind, identity: Identity) -> Result<Self, AgentError> {
        let start = |step| move |errno| AgentError::Start { step, errno };
        let context = Context::new().map_err(start("epoll"))?;
        let signals = sys::child_signals().map_err(start("signals"))?;
        let port = Port::new(port, kind).map_err(start("port"))?;
        context
            .poller
            .add(port.fd(), READABLE, Token::Port)
            .map_err(start("port"))?;
        context
            .poller
            .add(signals.as_raw_fd(), READABLE, Token::Signals)
            .map_err(start("signals"))?;
        let own_pid = std::process::id() as i32;
        Ok(Self {
            context,
            port,
            port_events: READABLE,
            signals,
            null: sys::open(c"/dev/null", libc::O_RDWR, 0).map_err(start("/dev/null"))?,
            children: procfs::open(own_pid, &format!("task/{own_pid}/children")).ok(),
            identity,
            generation: 0,
            execs: Execs::default(),
            ptys: Ptys::default(),
            uploads: Uploads::default(),
            file_jobs: FileJobs::default(),
            ended: None,
        })
    }

    /// Serves the host until it asks for the end or is gone.
    pub fn run(&mut self) -> Result<Ended, AgentError> {
        let version = env!("CARGO_PKG_VERSION");
        let boot_id = self.identity.boot_id();
        let event = ReadyEvent {
            name: "ready",
            protocol: AGENT_PROTOCOL,
            version,
            boot_id,
        };
        self.context.outbox.event(0, &event);
        let mut ready = Vec::new();
        loop {
            self.flush()?;
            if let Some(ended) = self.ended {
                self.execs.kill_all();
                self.ptys.kill_all();
                return Ok(ended);
            }
            let may_send = !self.context.paused.is_empty() && !self.context.outbox.is_full();
            let idle = !may_send && !self.file_jobs.has_work(&self.context);
            self.context.poller.wait(idle, &mut ready).map_err(AgentError::Wait)?;
            for one in &ready {
                self.handle(*one)?;
            }
            self.file_jobs.run(&mut self.context);
        }
    }

    fn flush(&mut self) -> Result<(), AgentError> {
        if !self.context.outbox.is_empty() {
            self.port.flush(&mut self.context.outbox)?;
        }
        if !self.context.outbox.is_full() && !self.context.paused.is_empty() {
            self.on_room();
            self.port.flush(&mut self.context.outbox)?;
        }
        let wanted = if self.context.outbox.is_empty() {
            READABLE
        } else {
            READABLE | WRITABLE
        };
        if self.port_events != wanted && self.port_events != 0 {
            self.context
                .poller
                .change(self.port.fd(), wanted, Token::Port)
                .map_err(AgentError::Wait)?;
            self.port_events = wanted;
        }
        Ok(())
    }

    /// The host has taken what was on its way: who waited for that goes on, and may have to wait again.
    fn on_room(&mut self) {
        for token in std::mem::take(&mut self.context.paused) {
            match token {
                Token::ExecStdout(slot) | Token::ExecStderr(slot) => self.execs.on_room(&mut self.context, slot),
                Token::Pty(slot) => self.ptys.on_room(&mut self.context, slot),
                _ => {}
            }
        }
    }

    fn handle(&mut self, ready: Ready) -> Result<(), AgentError> {
        let context = &mut self.context;
        match ready.token {
            Token::Port => return self.on_port(ready.events),
            Token::PortRetry => {
                context
                    .poller
                    .add(self.port.fd(), READABLE, Token::Port)
                    .map_err(AgentError::Wait)?;
                self.port_events = READABLE;
            }
            Token::Signals => self.on_children_ended(),
            Token::ExecStdout(slot) => self.execs.on_output(context, slot, Stream::Stdout),
            Token::ExecStderr(slot) => self.execs.on_output(context, slot, Stream::Stderr),
            Token::ExecStdin(slot) => self.execs.on_input_room(context, slot),
            Token::ExecTimer(slot) => self.execs.on_timer(context, slot),
            Token::Leftover(slot) => self.execs.on_leftover(context, slot),
            Token::Pty(slot) | Token::PtyLook(slot) => self.with_ptys(|ptys, context, orphans| {
                ptys.advance(context, slot, orphans);
            }),
            Token::PtyLimit(slot) => self.with_ptys(|ptys, context, orphans| {
                ptys.on_limit(context, slot, orphans);
            }),
        }
        Ok(())
    }

    fn on_port(&mut self, events: u32) -> Result<(), AgentError> {
        if events & !WRITABLE == 0 {
            return Ok(());
        }
        let mut reads = 0;
        loop {
            match self.port.receive(&mut self.context.scratch)? {
                Received::Something { more: true } if reads < READS_A_TURN => reads += 1,
                Received::Something { .. } | Received::Nothing => break,
                Received::Disconnected => return self.on_disconnected(),
            }
        }
        while let Some(payload) = self.port.next_payload()? {
            self.on_payload(&payload);
        }
        Ok(())
    }

    fn on_disconnected(&mut self) -> Result<(), AgentError> {
        match self.port.kind {
            PortKind::Socket => self.ended = Some(Ended::Disconnected),
            PortKind::Virtio => {
                self.context.poller.remove(self.port.fd()).map_err(AgentError::Wait)?;
                self.port_events = 0;
                self.context
                    .poller
                    .start_timer(sys::monotonic_ns() + PORT_RETRY_NS, Token::PortRetry);
            }
        }
        Ok(())
    }

    fn on_payload(&mut self, payload: &[u8]) {
        match decode::<Request>(payload) {
            Ok(request) => self.on_request(request),
            // Without an id there is nobody to answer.
            Err(error) => eprintln!("coppice-agent: request dropped: {error}"),
        }
    }

    fn on_request(&mut self, request: Request) {
        let key = RequestKey {
            id: request.id,
            generation: request.generation,
        };
        if let Err(failure) = self.dispatch(key, &request.op, request.args) {
            self.context.outbox.failure(key, failure);
        }
    }

    fn dispatch(&mut self, key: RequestKey, op: &str, args: Value) -> Result<(), Failure> {
        match op {
            "resume" => return self.resume(key, args),
            "ping" => return self.ping(key, args),
            _ => {}
        }
        if key.generation != self.generation {
            let (given, present) = (key.generation, self.generation);
            return Err(RequestError::StaleGeneration { given, present }.into());
        }
        let context = &mut self.context;
        match op {
            "clock" => self.set_clock(key, args)?,
            "exec" => self.execs.start(context, key, args, self.null.as_raw_fd())?,
            "exec.write" => self.execs.write(context, key, args)?,
            "exec.window" => self.execs.open_window(context, key, args)?,
            "exec.kill" => self.execs.kill(context, key, args)?,
            "exec.wait" => self.execs.wait(context, key, args)?,
            "exec.list" => self.execs.list(context, key, args)?,
            "cancel" => self.cancel(key, args)?,
            "pty.open" => self.ptys.open(context, key, args)?,
            "pty.send" => self.with_ptys(|ptys, context, orphans| ptys.send(context, key, args, orphans))?,
            "pty.attach" => self.ptys.attach(context, key, args)?,
            "pty.write" => self.ptys.write(context, key, args)?,
            "pty.resize" => self.ptys.resize(context, key, args)?,
            "pty.signal" => self.ptys.signal(context, key, args)?,
            "pty.close" => self.ptys.close(context, key, args)?,
            "pty.list" => self.ptys.list(context, key, args)?,
            "file.read" => self.file_jobs.read(key, args)?,
            "file.write" => files::write(context, key, args)?,
            "file.stat" => files::stat(context, key, args)?,
            "file.list" => files::list(context, key, args)?,
            "file.mkdir" => files::make_directory(context, key, args)?,
            "file.move" => files::move_entry(context, key, args)?,
            "file.symlink" => files::make_link(context, key, args)?,
            "file.readlink" => files::read_link(context, key, args)?,
            "upload.begin" => self.uploads.begin(context, key, args)?,
            "upload.write" => self.uploads.write(context, key, args)?,
            "upload.commit" => self.uploads.commit(context, key, args)?,
            "upload.abort" => self.uploads.abort(context, key, args)?,
            "file.remove" => self.file_jobs.remove(context, key, args)?,
            "shutdown" => self.ended = Some(Ended::Shutdown),
            other => return Err(RequestError::UnknownOperation(other.to_owned()).into()),
        }
        Ok(())
    }

    fn ping(&mut self, key: RequestKey, args: Value) -> Result<(), Failure> {
        Args::new(args)?.finish()?;
        let pong = Pong {
            boot_id: self.identity.boot_id(),
            realtime_ns: sys::realtime_ns(),
            monotonic_ns: sys::monotonic_ns(),
        };
        self.context.outbox.ok(key, &pong);
        Ok(())
    }

    /// Begins a new life: from here on nothing that an earlier one asked for is answered.
    fn resume(&mut self, key: RequestKey, args: Value) -> Result<(), Failure> {
        let request = ResumeRequest::parse(args)?;
        if request.generation != self.generation {
            self.generation = request.generation;
            self.context.outbox.discard_unbegun();
            self.execs.disown(&mut self.context, request.generation);
            self.ptys.disown(&mut self.context, request.generation);
            self.file_jobs.disown(request.generation);
            self.uploads.disown();
        }
        let resumed = self.identity.resume(&request)?;
        self.context.outbox.ok(key, &resumed);
        Ok(())
    }

    /// The same life goes on after a stop.
    fn set_clock(&mut self, key: RequestKey, args: Value) -> Result<(), Failure> {
        let mut args = Args::new(args)?;
        let clock = identity::parse_clock(&mut args)?;
        args.finish()?;
        identity::set_clock(clock)?;
        let realtime_ns = sys::realtime_ns();
        self.context.outbox.ok(key, &ClockTold { realtime_ns });
        Ok(())
    }

    fn cancel(&mut self, key: RequestKey, args: Value) -> Result<(), Failure> {
        let mut args = Args::new(args)?;
        let target = RequestKey {
            id: args.integer("target", 1..=u64::MAX)?,
            generation: key.generation,
        };
        args.finish()?;
        let found = self.execs.cancel(&mut self.context, target)
            || self.ptys.cancel(&mut self.context, target)
            || self.file_jobs.cancel(&mut self.context, target)
            || self.uploads.cancel(&mut self.context, target);
        self.context.outbox.ok(key, &Cancelled { found });
        Ok(())
    }

    fn on_children_ended(&mut self) {
        // One read takes the one pending SIGCHLD, however many children it stands for.
        let _ = sys::read(self.signals.as_raw_fd(), &mut self.context.scratch);
        while let Some((pid, status)) = sys::reap() {
            if !self.execs.on_exit(&mut self.context, pid, status) {
                self.with_ptys(|ptys, context, orphans| ptys.on_exit(context, pid, status, orphans));
            }
        }
    }

    /// Runs something on the terminals that may need to know the processes whose parents are gone: the agent's children
    /// that it did not start.
    fn with_ptys<T>(&mut self, run: impl FnOnce(&mut Ptys, &mut Context, &mut dyn FnMut() -> Vec<i32>) -> T) -> T {
        let (children, execs) = (&self.children, &self.execs);
        let mut orphans = || {
            let children = children
                .as_ref()
                .and_then(|fd| procfs::read_children(fd).ok())
                .unwrap_or_default();
            children.into_iter().filter(|pid| !execs.contains(*pid)).collect()
        };
        run(&mut self.ptys, &mut self.context, &mut orphans)
    }
}
