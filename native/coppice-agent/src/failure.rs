//! The failure that a request is answered with. Each module has its own error enum; this is what they become.

use coppice_wire::agent::AgentFailure;
use nix::errno::Errno;

/// Error enums that have a code in `docs/errors.md` for each variant.
pub trait Coded: std::error::Error {
    fn code(&self) -> &'static str;
}

/// A typed error on its way to the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub code: &'static str,
    pub message: String,
}

impl<E: Coded> From<E> for Failure {
    fn from(error: E) -> Self {
        Self {
            code: error.code(),
            message: error.to_string(),
        }
    }
}

impl From<Failure> for AgentFailure {
    fn from(failure: Failure) -> Self {
        Self {
            code: failure.code.to_owned(),
            message: failure.message,
        }
    }
}

/// `ENOENT (No such file or directory)`: both the name that programs know and the text that people do.
pub fn describe(errno: Errno) -> String {
    format!("{errno:?} ({})", errno.desc())
}
