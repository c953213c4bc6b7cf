//! What can go wrong with a program that is to be run, and what a request about one is answered with.

use nix::errno::Errno;
use serde::Serialize;

use crate::args::ArgsError;
use crate::failure::{Coded, describe};
use crate::spawn::SpawnError;
use crate::user::UserError;

/// Programs that may run at once: far above any use, far below what descriptors allow.
pub const MAX_EXECS: usize = 1_000;

#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    #[error(transparent)]
    Args(#[from] ArgsError),
    #[error(transparent)]
    User(#[from] UserError),
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    #[error("{MAX_EXECS} programs run already; wait for one to end or cancel one")]
    TooMany,
    #[error("Pipes can't be set up: {}", describe(*.0))]
    Pipes(#[from] Errno),
    #[error("No process is named '{0}'")]
    NotFound(String),
    #[error("A process named '{0}' runs already")]
    Exists(String),
    #[error("Somebody waits for process '{0}' already")]
    Busy(String),
    #[error("Process '{name}' has {queued} bytes of stdin to read; wait for the answers to what was written")]
    InputFull { name: String, queued: usize },
    #[error("The request was cancelled")]
    Cancelled,
}

impl Coded for ExecError {
    fn code(&self) -> &'static str {
        match self {
            Self::Args(error) => error.code(),
            Self::User(error) => error.code(),
            Self::Spawn(error) => error.code(),
            Self::TooMany => "EXEC_LIMIT",
            Self::Pipes(_) => "EXEC_FAILED",
            Self::NotFound(_) => "PROCESS_NOT_FOUND",
            Self::Exists(_) => "PROCESS_EXISTS",
            Self::Busy(_) => "PROCESS_BUSY",
            Self::InputFull { .. } => "PROCESS_INPUT_FULL",
            Self::Cancelled => "CANCELLED",
        }
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExecResult {
    pub exit_code: Option<i32>,
    pub signal: Option<String>,
    pub timed_out: bool,
    pub truncated: bool,
    pub dropped_bytes: u64,
    pub duration_us: u64,
}

/// Answer to an `exec` in the background.
#[derive(Debug, Serialize)]
pub struct Started {
    pub pid: i32,
}

/// Answer to `exec.write`: whether the program may still read more.
#[derive(Debug, Serialize)]
pub struct Written {
    pub open: bool,
}

/// Answer to `exec.kill`: whether it ran, and so got the signal.
#[derive(Debug, Serialize)]
pub struct Killed {
    pub running: bool,
}

#[derive(Debug, Serialize)]
pub struct Listed {
    pub name: String,
    pub pid: i32,
    pub running: bool,
}

#[derive(Debug, Serialize)]
pub struct ListResult {
    pub processes: Vec<Listed>,
}
