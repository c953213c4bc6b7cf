//! What can go wrong with a terminal, and what requests on one are answered with.

use nix::errno::Errno;
use serde::Serialize;

use crate::args::ArgsError;
use crate::exec::ExecError;
use crate::failure::{Coded, describe};
use crate::signals;
use crate::spawn::SpawnError;
use crate::sys::ExitStatus;

/// Terminals that may be open at once.
pub const MAX_PTYS: usize = 64;

#[derive(Debug, thiserror::Error)]
pub enum PtyError {
    #[error(transparent)]
    Args(#[from] ArgsError),
    #[error(transparent)]
    Program(#[from] ExecError),
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    #[error("No terminal is named '{0}'")]
    NotFound(String),
    #[error("A terminal named '{0}' is open already; close it first")]
    Exists(String),
    #[error("{MAX_PTYS} terminals are open already; close one")]
    TooMany,
    #[error("Another pty.send or pty.attach waits on terminal '{0}' already")]
    Busy(String),
    #[error("Terminal '{0}' was closed")]
    Closed(String),
    #[error("Terminal '{name}' has {typed} typed bytes that nobody has read; wait until its program does")]
    InputFull { name: String, typed: usize },
    #[error("The request was cancelled")]
    Cancelled,
    #[error("Program on terminal '{0}' has ended")]
    Ended(String),
    #[error("Terminal failed ({step}): {}", describe(*.errno))]
    Failed { step: &'static str, errno: Errno },
}

impl Coded for PtyError {
    fn code(&self) -> &'static str {
        match self {
            Self::Args(error) => error.code(),
            Self::Program(error) => error.code(),
            Self::Spawn(error) => error.code(),
            Self::NotFound(_) => "PTY_NOT_FOUND",
            Self::Exists(_) => "PTY_EXISTS",
            Self::TooMany => "PTY_LIMIT",
            Self::Busy(_) => "PTY_BUSY",
            Self::Closed(_) => "PTY_CLOSED",
            Self::InputFull { .. } => "PTY_INPUT_FULL",
            Self::Cancelled => "CANCELLED",
            Self::Ended(_) => "PTY_ENDED",
            Self::Failed { .. } => "PTY_FAILED",
        }
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Exit {
    pub exit_code: Option<i32>,
    pub signal: Option<String>,
}

#[derive(Debug, Serialize)]
pub struct SendResult<'a> {
    #[serde(with = "serde_bytes")]
    pub data: &'a [u8],
    pub reason: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit: Option<Exit>,
    /// Bytes that came while nobody read and found no room; absent where there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dropped: Option<u64>,
}

#[derive(Debug, Serialize)]
pub struct OpenResult {
    pub pid: i32,
}

#[derive(Debug, Serialize)]
pub struct Listed {
    pub name: String,
    pub pid: i32,
    pub alive: bool,
}

#[derive(Debug, Serialize)]
pub struct ListResult {
    pub ptys: Vec<Listed>,
}

/// Answer to `pty.attach`.
#[derive(Debug, Serialize)]
pub struct Attached {
    pub exit: Exit,
}

pub fn exit_of(status: ExitStatus) -> Exit {
    match status {
        ExitStatus::Code(code) => Exit {
            exit_code: Some(code),
            signal: None,
        },
        ExitStatus::Signal(signal) => Exit {
            exit_code: None,
            signal: Some(signals::name(signal)),
        },
    }
}
