//! Starts programs. The child shares the agent's memory until it execs (as vfork does), so that starting one costs no
//! page tables, and reports the step that failed through that memory.

use std::ffi::{CStr, CString};
use std::os::fd::RawFd;

use nix::errno::Errno;

use crate::failure::{Coded, describe};
use crate::sys;
use crate::user::User;

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum SpawnError {
    #[error("Program '{program}' is not found in {searched}")]
    NotFound { program: String, searched: String },
    #[error("Program '{program}' is there, but the interpreter or loader that it names is not")]
    InterpreterMissing { program: String },
    #[error("Program '{program}' can't be executed: {}", describe(*.errno))]
    NotExecutable { program: String, errno: Errno },
    #[error("Working directory '{cwd}' can't be entered: {}", describe(*.errno))]
    WorkingDirectory { cwd: String, errno: Errno },
    #[error("Arguments and environment of '{program}' are together over the kernel's limit")]
    TooLarge { program: String },
    #[error("Process can't be started ({step}): {}", describe(*.errno))]
    Failed { step: &'static str, errno: Errno },
}

impl Coded for SpawnError {
    fn code(&self) -> &'static str {
        match self {
            Self::NotFound { .. } | Self::InterpreterMissing { .. } => "EXEC_NOT_FOUND",
            Self::NotExecutable { .. } => "EXEC_NOT_EXECUTABLE",
            Self::WorkingDirectory { .. } => "EXEC_CWD_INVALID",
            Self::TooLarge { .. } => "INVALID_ARGUMENT",
            Self::Failed { .. } => "EXEC_FAILED",
        }
    }
}

/// What programs get where the request does not say otherwise.
pub const BASE_ENV: [(&str, &str); 5] = [
    (
        "PATH",
        "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/games",
    ),
    ("HOME", "/root"),
    ("TERM", "xterm"),
    ("LANG", "C.UTF-8"),
    ("USER", "root"),
];

const DEFAULT_CWD: &CStr = c"/";

/// Open files of a started program, now and at most: what Linux systems give a process by default.
const CHILD_FILES: (u64, u64) = (1024, 524_288);

/// The child runs a dozen system calls on it; the kernel's frames are not there.
const STACK_BYTES: usize = 64 * 1024;

/// A program to start.
pub struct Program {
    pub argv: Vec<CString>,
    /// Over `BASE_ENV`.
    pub env: Vec<(String, CString)>,
    pub cwd: Option<CString>,
    /// Default: the agent's own, root.
    pub user: Option<User>,
}

/// Descriptors of a new process.
pub enum Stdio {
    /// stdin, stdout, stderr.
    Pipes([RawFd; 3]),
    /// One terminal for all three; it becomes the controlling terminal.
    Terminal(RawFd),
}

/// Everything that the child needs, made before it exists: it must not allocate.
struct Plan {
    candidates: Vec<*const libc::c_char>,
    argv: Vec<*const libc::c_char>,
    env: Vec<*const libc::c_char>,
    cwd: *const libc::c_char,
    stdio: [RawFd; 3],
    terminal: bool,
    user: Option<Ids>,
    files: libc::rlimit,
    failed_step: Step,
    errno: libc::c_int,
}

/// A user as the kernel knows it.
struct Ids {
    uid: libc::uid_t,
    gid: libc::gid_t,
    groups: *const libc::gid_t,
    group_count: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    None,
    Session,
    Descriptors,
    Terminal,
    User,
    WorkingDirectory,
    Exec,
}

/// Starts processes; owns the stack that their first moments run on.
pub struct Spawner {
    stack: Vec<u8>,
    files: libc::rlimit,
}

impl Default for Spawner {
    fn default() -> Self {
        Self {
            stack: vec![0; STACK_BYTES],
            files: child_files(),
        }
    }
}

/// The limit for programs, within what the agent itself may have.
fn child_files() -> libc::rlimit {
    let mut own = libc::rlimit {
        rlim_cur: 0,
        rlim_max: CHILD_FILES.1,
    };
    // SAFETY: `own` is valid for the whole call, which cannot fail for a known resource.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut own) };
    let hard = own.rlim_max.min(CHILD_FILES.1);
    libc::rlimit {
        rlim_cur: hard.min(CHILD_FILES.0),
        rlim_max: hard,
    }
}

impl Spawner {
    /// Starts `program` as the leader of a new session and process group, and returns its process id.
    pub fn spawn(&mut self, program: &Program, stdio: Stdio) -> Result<i32, SpawnError> {
        let env = environment(&program.env, program.user.as_ref());
        let name = program.argv.first().map_or(DEFAULT_CWD, CString::as_c_str);
        let candidates = candidates(name, &env);
        let cwd = program.cwd.as_deref().unwrap_or(DEFAULT_CWD);
        let mut plan = Plan {
            candidates: candidates.iter().map(|path| path.as_ptr()).collect(),
            argv: pointers(&program.argv),
            env: pointers(&env),
            cwd: cwd.as_ptr(),
            stdio: match stdio {
                Stdio::Pipes(fds) => fds,
                Stdio::Terminal(fd) => [fd; 3],
            },
            terminal: matches!(stdio, Stdio::Terminal(_)),
            user: program.user.as_ref().map(|user| Ids {
                uid: user.uid,
                gid: user.gid,
                groups: user.groups.as_ptr(),
                group_count: user.groups.len(),
            }),
            files: self.files,
            failed_step: Step::None,
            errno: 0,
        };
        let pid = self.start(&mut plan)?;
        if plan.failed_step == Step::None {
            return Ok(pid);
        }
        sys::reap_one(pid);
        Err(explain(&plan, name, cwd, &candidates))
    }

    fn start(&mut self, plan: &mut Plan) -> Result<i32, SpawnError> {
        let end = self.stack.as_mut_ptr_range().end as usize & !15;
        // SAFETY: CLONE_VFORK suspends this thread until the child has called exec or _exit, so `plan`, the stack and
        // all that the plan points to outlive the child's use and are touched by one side at a time. The stack is
        // aligned to 16 bytes and large enough for `child_main`, which calls nothing that allocates or locks.
        let pid = unsafe {
            libc::clone(
                child_main,
                end as *mut libc::c_void,
                libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD,
                std::ptr::from_mut(plan).cast(),
            )
        };
        Errno::result(pid).map_err(|errno| SpawnError::Failed { step: "clone", errno })
    }
}

extern "C" fn child_main(argument: *mut libc::c_void) -> libc::c_int {
    // SAFETY: `start` passes a plan that it keeps alive and untouched while this runs.
    let plan = unsafe { &mut *argument.cast::<Plan>() };
    plan.failed_step = run_plan(plan);
    plan.errno = Errno::last_raw();
    // SAFETY: ends this process at once and runs nothing of the agent's.
    unsafe { libc::_exit(127) }
}

/// Turns the new process into the program; returns the step that failed, with errno set.
fn run_plan(plan: &Plan) -> Step {
    // SAFETY: only async-signal-safe calls, on pointers that the plan keeps valid: NUL-terminated strings, and arrays
    // of them that end with a null pointer. An all-zero sigset_t is the empty set on Linux.
    unsafe {
        let none: libc::sigset_t = std::mem::zeroed();
        libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        libc::setrlimit(libc::RLIMIT_NOFILE, &plan.files);
        if libc::setsid() == -1 {
            return Step::Session;
        }
        for (target, fd) in plan.stdio.iter().enumerate() {
            if libc::dup2(*fd, target as libc::c_int) == -1 {
                return Step::Descriptors;
            }
        }
        if plan.terminal && libc::ioctl(0, libc::TIOCSCTTY, 0) == -1 {
            return Step::Terminal;
        }
        if let Some(user) = &plan.user
            && become_user(user, plan.terminal) == -1
        {
            return Step::User;
        }
        if libc::chdir(plan.cwd) == -1 {
            return Step::WorkingDirectory;
        }
        let mut refusal = libc::ENOENT;
        for path in &plan.candidates {
            libc::execve(*path, plan.argv.as_ptr(), plan.env.as_ptr());
            match Errno::last_raw() {
                libc::ENOENT | libc::ENOTDIR => {}
                // A file without permission hides nothing that comes later in PATH.
                libc::EACCES => refusal = libc::EACCES,
                other => {
                    refusal = other;
                    break;
                }
            }
        }
        Errno::set_raw(refusal);
        Step::Exec
    }
}

/// Gives up root; -1 with errno set where that is refused.
///
/// # Safety
///
/// `user.groups` has `user.group_count` entries. Descriptor 0 is the terminal where there is one.
unsafe fn become_user(user: &Ids, terminal: bool) -> libc::c_long {
    // SAFETY: the kernel's own calls, which change this process alone: the C library's forms would tell the threads of the
    // agent, whose memory this process still shares.
    unsafe {
        if terminal {
            // As login does, so that the user can open the terminal by its name. Without it most programs work all the same.
            libc::fchown(0, user.uid, libc::gid_t::MAX);
        }
        let changed = libc::syscall(libc::SYS_setgroups, user.group_count, user.groups);
        if changed == -1 {
            return changed;
        }
        let changed = libc::syscall(libc::SYS_setresgid, user.gid, user.gid, user.gid);
        if changed == -1 {
            return changed;
        }
        libc::syscall(libc::SYS_setresuid, user.uid, user.uid, user.uid)
    }
}

fn pointers(strings: &[CString]) -> Vec<*const libc::c_char> {
    strings
        .iter()
        .map(|string| string.as_ptr())
        .chain([std::ptr::null()])
        .collect()
}

/// `NAME=value` of the base, of the user, and of what was asked for; the later wins.
fn environment(wanted: &[(String, CString)], user: Option<&User>) -> Vec<CString> {
    let users = user.map_or(&[][..], |user| &user.env);
    let is_wanted = |name: &str| wanted.iter().any(|(other, _)| other == name);
    let is_users = |name: &str| users.iter().any(|(other, _)| *other == name);
    let base = BASE_ENV
        .iter()
        .filter(|(name, _)| !is_wanted(name) && !is_users(name))
        .map(|(name, value)| [name.as_bytes(), value.as_bytes()]);
    let users = users
        .iter()
        .filter(|(name, _)| !is_wanted(name))
        .map(|(name, value)| [name.as_bytes(), value.as_bytes()]);
    base.chain(users)
        .chain(wanted.iter().map(|(name, value)| [name.as_bytes(), value.as_bytes()]))
        // Neither names nor values hold a NUL: `Args` refuses them.
        .filter_map(|pair| CString::new(pair.join(&b'=')).ok())
        .collect()
}

fn search_path(env: &[CString]) -> &[u8] {
    env.iter()
        .find_map(|entry| entry.as_bytes().strip_prefix(b"PATH="))
        .unwrap_or_default()
}

/// The paths to try, in order: the name itself where it has a slash, otherwise one a directory of PATH.
fn candidates(name: &CStr, env: &[CString]) -> Vec<CString> {
    if name.to_bytes().contains(&b'/') {
        return vec![name.to_owned()];
    }
    let directories = search_path(env)
        .split(|byte| *byte == b':')
        .filter(|directory| !directory.is_empty());
    directories
        .filter_map(|directory| CString::new([directory, name.to_bytes()].join(&b'/')).ok())
        .collect()
}

fn explain(plan: &Plan, name: &CStr, cwd: &CStr, candidates: &[CString]) -> SpawnError {
    let errno = Errno::from_raw(plan.errno);
    let program = name.to_string_lossy().into_owned();
    match (plan.failed_step, errno) {
        (Step::WorkingDirectory, errno) => SpawnError::WorkingDirectory {
            cwd: cwd.to_string_lossy().into_owned(),
            errno,
        },
        (Step::Exec, Errno::ENOENT | Errno::ENOTDIR) => {
            if candidates.iter().any(|path| is_file(path)) {
                return SpawnError::InterpreterMissing { program };
            }
            let searched = match candidates {
                [only] if name.to_bytes().contains(&b'/') => only.to_string_lossy().into_owned(),
                many => many
                    .iter()
                    .map(|path| path.to_string_lossy())
                    .collect::<Vec<_>>()
                    .join(", "),
            };
            SpawnError::NotFound { program, searched }
        }
        (Step::Exec, Errno::E2BIG) => SpawnError::TooLarge { program },
        (Step::Exec, errno @ (Errno::ENOMEM | Errno::EAGAIN | Errno::ENFILE | Errno::EMFILE)) => {
            SpawnError::Failed { step: "exec", errno }
        }
        (Step::Exec, errno) => SpawnError::NotExecutable { program, errno },
        (Step::User, errno) => SpawnError::Failed { step: "user", errno },
        (Step::Session, errno) => SpawnError::Failed { step: "setsid", errno },
        (Step::Terminal, errno) => SpawnError::Failed {
            step: "controlling terminal",
            errno,
        },
        (Step::None | Step::Descriptors, errno) => SpawnError::Failed {
            step: "descriptors",
            errno,
        },
    }
}

fn is_file(path: &CStr) -> bool {
    // SAFETY: `path` ends in NUL and outlives the call.
    unsafe { libc::access(path.as_ptr(), libc::F_OK) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn environment_given_a_variable_of_the_base_overrides_it() {
        let env = environment(&[("HOME".into(), c"/home/me".into())], None);
        let homes: Vec<_> = env
            .iter()
            .filter(|entry| entry.as_bytes().starts_with(b"HOME="))
            .collect();
        assert_eq!(homes, [c"HOME=/home/me"]);
    }

    #[test]
    fn candidates_follow_the_path_that_the_program_will_see() {
        let env = environment(&[("PATH".into(), c"/a::/b".into())], None);
        assert_eq!(candidates(c"x", &env), [c"/a/x".to_owned(), c"/b/x".to_owned()]);
        assert_eq!(candidates(c"./x", &env), [c"./x".to_owned()]);
    }
}
