//! What every error of the daemon has: a code, a fault domain, and what the caller can do about it.

use std::borrow::Cow;

use coppice_wire::client::Failure;

/// Longest message that is sent to a client; guests and VMMs can write part of it.
const MAX_MESSAGE_BYTES: usize = 8 * 1024;

/// Whose fault a failure is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultDomain {
    Guest,
    Host,
    User,
    Bug,
}

impl FaultDomain {
    pub fn name(self) -> &'static str {
        match self {
            FaultDomain::Guest => "guest",
            FaultDomain::Host => "host",
            FaultDomain::User => "user",
            FaultDomain::Bug => "bug",
        }
    }
}

/// The parts of an error that its message does not say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spec {
    pub code: Cow<'static, str>,
    pub domain: FaultDomain,
    pub retryable: bool,
    pub remedy: Option<&'static str>,
    /// Whether the sandbox it happened in may be damaged.
    pub poisons: bool,
}

impl Spec {
    pub const fn new(code: &'static str, domain: FaultDomain) -> Self {
        Spec {
            code: Cow::Borrowed(code),
            domain,
            retryable: false,
            remedy: None,
            poisons: false,
        }
    }

    /// With a code that a VMM or an agent named.
    pub fn named(code: &str, domain: FaultDomain) -> Self {
        Spec {
            code: Cow::Owned(code.to_owned()),
            ..Spec::new("", domain)
        }
    }

    pub const fn retryable(mut self) -> Self {
        self.retryable = true;
        self
    }

    pub const fn remedy(mut self, remedy: &'static str) -> Self {
        self.remedy = Some(remedy);
        self
    }

    pub const fn poisons(mut self) -> Self {
        self.poisons = true;
        self
    }
}

/// An error that a client may see. Its `Display` is the message.
pub trait Typed: std::error::Error {
    fn spec(&self) -> Spec;
}

/// A failure on its way to a client.
#[derive(Debug, Clone)]
pub struct MethodError(pub Failure);

impl<E: Typed> From<E> for MethodError {
    fn from(error: E) -> Self {
        let spec = error.spec();
        MethodError(Failure {
            code: spec.code.into_owned(),
            message: shorten(error.to_string(), MAX_MESSAGE_BYTES),
            fault_domain: spec.domain.name().to_owned(),
            retryable: spec.retryable,
            remedy: spec.remedy.map(str::to_owned),
            poisons: spec.poisons,
        })
    }
}

/// Cuts a text at a character boundary and says so.
pub fn shorten(mut text: String, limit: usize) -> String {
    if text.len() > limit {
        let cut = (0..=limit).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(cut);
        text.push('…');
    }
    text
}

/// Whether a code that a guest or a VMM names has the form of ours.
pub fn is_code(code: &str) -> bool {
    (3..=64).contains(&code.len())
        && code
            .bytes()
            .all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shorten_given_a_cut_inside_a_character_stays_valid_text() {
        assert_eq!(shorten("aé".to_owned(), 2), "a…");
        assert_eq!(shorten("ab".to_owned(), 2), "ab");
    }

    #[test]
    fn code_given_by_a_guest_is_taken_only_in_our_form() {
        assert!(is_code("FILE_NOT_FOUND"));
        assert!(!is_code("file not found"));
        assert!(!is_code(&"A".repeat(65)));
    }
}
