//! The keeper's one loop: leash, console, signals, and the program's end.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Pid;

use crate::console::{CURRENT, Console, PREVIOUS};

/// What the starter writes when the carrier is ready and may live on without it.
const KEEP: &[u8] = b"keep";
/// QEMU ends in milliseconds when it is asked to; one that hangs is killed after this.
const TERMINATION_GRACE: Duration = Duration::from_millis(1500);
/// What is kept of a console when the carrier has ended.
const LAST_CONSOLE_BYTES: u64 = 256 * 1024;

#[derive(Debug, thiserror::Error)]
pub enum KeepError {
    #[error("Can't start {program}: {source}")]
    Start { program: String, source: io::Error },
    #[error("Can't watch the program: {0}")]
    Watch(#[from] nix::Error),
    #[error("Can't keep {what}: {source}")]
    File { what: &'static str, source: io::Error },
}

/// Runs the program to its end and gives its exit code, 128 and more for a signal.
pub fn keep(command: &[String], directory: &Path, console_limit: u64) -> Result<u8, KeepError> {
    // Blocked before the program starts, so that none is lost; the program itself gets them unblocked.
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGCHLD] {
        signals.add(signal);
    }
    signals.thread_block()?;
    let signal_fd = SignalFd::with_flags(&signals, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
    let console = Console::create(directory, console_limit).map_err(|source| KeepError::File {
        what: "the console",
        source,
    })?;
    let child = start(command, directory)?;
    Keeper {
        child,
        console,
        signal_fd,
        leash: Some(io::stdin()),
        said: Vec::new(),
        kill_at: None,
    }
    .run()
}

fn start(command: &[String], directory: &Path) -> Result<Child, KeepError> {
    let (program, arguments) = command
        .split_first()
        .map_or((String::new(), &[][..]), |(p, a)| (p.clone(), a));
    let log = File::create(directory.join("messages.log")).map_err(|source| KeepError::File {
        what: "the program's log",
        source,
    })?;
    let mut prepared = Command::new(&program);
    prepared
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log);
    let keeper = std::process::id();
    // SAFETY: between fork and exec only async-signal-safe calls are made: prctl, getppid and sigprocmask; nothing is
    // allocated and no lock is taken.
    unsafe {
        prepared.pre_exec(move || {
            nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
            // The keeper may have died before the request was made.
            if nix::unistd::getppid().as_raw() as u32 != keeper {
                return Err(io::Error::from_raw_os_error(libc::ESRCH));
            }
            SigSet::empty().thread_set_mask()?;
            Ok(())
        });
    }
    let child = prepared
        .spawn()
        .map_err(|source| KeepError::Start { program, source })?;
    fs::write(directory.join("program.pid"), format!("{}\n", child.id())).map_err(|source| KeepError::File {
        what: "the program's id",
        source,
    })?;
    Ok(child)
}

struct Keeper {
    child: Child,
    console: Console,
    signal_fd: SignalFd,
    /// None once the starter has let go.
    leash: Option<io::Stdin>,
    said: Vec<u8>,
    kill_at: Option<Instant>,
}

impl Keeper {
    fn run(mut self) -> Result<u8, KeepError> {
        let mut output = self.child.stdout.take();
        loop {
            if let Some(status) = self.child.try_wait().map_err(|source| KeepError::File {
                what: "the program",
                source,
            })? {
                if let Some(rest) = output.as_mut() {
                    self.drain(rest);
                }
                let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
                return Ok(u8::try_from(code).unwrap_or(u8::MAX));
            }
            let (signalled, leashed, printed) = self.wait(output.as_ref().map(AsFd::as_fd))?;
            if signalled {
                self.take_signals()?;
            }
            if leashed {
                self.read_leash();
            }
            if printed && !output.as_mut().is_some_and(|stream| self.copy(stream)) {
                output = None;
            }
            if self.kill_at.is_some_and(|at| Instant::now() >= at) {
                self.kill_at = None;
                self.signal(Signal::SIGKILL);
            }
        }
    }

    /// Which of signals, leash and output have something.
    fn wait(&self, output: Option<std::os::fd::BorrowedFd<'_>>) -> Result<(bool, bool, bool), KeepError> {
        let mut fds = vec![PollFd::new(self.signal_fd.as_fd(), PollFlags::POLLIN)];
        let leash_at = self.leash.as_ref().map(|leash| {
            fds.push(PollFd::new(leash.as_fd(), PollFlags::POLLIN));
            fds.len() - 1
        });
        let output_at = output.map(|stream| {
            fds.push(PollFd::new(stream, PollFlags::POLLIN));
            fds.len() - 1
        });
        let timeout = self.kill_at.map_or(PollTimeout::NONE, |at| {
            PollTimeout::try_from(at.saturating_duration_since(Instant::now())).unwrap_or(PollTimeout::ZERO)
        });
        match poll(&mut fds, timeout) {
            Ok(_) | Err(nix::Error::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        let ready = |index: Option<usize>| index.is_some_and(|at| fds.get(at).is_some_and(|fd| fd.any() == Some(true)));
        Ok((ready(Some(0)), ready(leash_at), ready(output_at)))
    }

    fn take_signals(&mut self) -> Result<(), KeepError> {
        while let Some(signal) = self.signal_fd.read_signal()? {
            if signal.ssi_signo != Signal::SIGCHLD as u32 {
                self.end();
            }
        }
        Ok(())
    }

    /// The starter says `keep` and closes, or it just closes: then it is gone, or has given up.
    fn read_leash(&mut self) {
        let Some(leash) = self.leash.as_ref() else { return };
        let mut buffer = [0_u8; 64];
        match nix::unistd::read(leash.as_fd(), &mut buffer) {
            Ok(0) => {
                self.leash = None;
                self.end();
            }
            Ok(count) => {
                self.said.extend_from_slice(buffer.get(..count).unwrap_or(&[]));
                self.said.truncate(KEEP.len());
                if self.said == KEEP {
                    self.leash = None;
                }
            }
            Err(nix::Error::EINTR | nix::Error::EAGAIN) => {}
            Err(_) => {
                self.leash = None;
                self.end();
            }
        }
    }

    /// Whether there may be more to come.
    fn copy(&mut self, stream: &mut impl Read) -> bool {
        let mut buffer = [0_u8; 16 * 1024];
        match stream.read(&mut buffer) {
            Ok(0) => false,
            Ok(count) => {
                // A full disk must not end a carrier that works: the console is for diagnosis only.
                let _ = self.console.write(buffer.get(..count).unwrap_or(&[]));
                true
            }
            Err(error) => matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock),
        }
    }

    /// What the program had printed before it ended. Nothing else holds the pipe, so this ends.
    fn drain(&mut self, stream: &mut (impl Read + AsRawFd)) {
        while self.copy(stream) {}
    }

    fn end(&mut self) {
        if self.kill_at.is_none() {
            self.signal(Signal::SIGTERM);
            self.kill_at = Some(Instant::now() + TERMINATION_GRACE);
        }
    }

    fn signal(&self, signal: Signal) {
        if let Ok(pid) = i32::try_from(self.child.id()) {
            // The child is not reaped before `run` returns, so the id is still its own.
            let _ = kill(Pid::from_raw(pid), signal);
        }
    }
}

/// Keeps the end of the console elsewhere, then removes the directory.
pub fn remove(directory: &Path, last_console: Option<&Path>) -> Result<(), KeepError> {
    if let Some(path) = last_console {
        // Worth less than a clean end.
        let _ = keep_last_console(directory, path);
    }
    match fs::remove_dir_all(directory) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => Err(KeepError::File {
            what: "the directory from staying",
            source,
        }),
        _ => Ok(()),
    }
}

fn keep_last_console(directory: &Path, path: &Path) -> io::Result<()> {
    let mut text = fs::read(directory.join("messages.log")).unwrap_or_default();
    for name in [PREVIOUS, CURRENT] {
        if let Ok(mut file) = File::open(directory.join(name)) {
            let length = file.seek(SeekFrom::End(0))?;
            file.seek(SeekFrom::Start(length.saturating_sub(LAST_CONSOLE_BYTES)))?;
            file.read_to_end(&mut text)?;
        }
    }
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    let start = text
        .len()
        .saturating_sub(usize::try_from(2 * LAST_CONSOLE_BYTES).unwrap_or(usize::MAX));
    fs::write(path, text.get(start..).unwrap_or(&[]))
}
