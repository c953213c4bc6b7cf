//! Names that are never given twice, and random bytes.

use std::cell::Cell;

use crate::errors::{FaultDomain, Spec, Typed};

#[derive(Debug, thiserror::Error)]
#[error("The kernel gives no random bytes: {0}")]
pub struct RandomError(String);

impl Typed for RandomError {
    fn spec(&self) -> Spec {
        Spec::new("RANDOMNESS_UNAVAILABLE", FaultDomain::Host).remedy("Check that the host's kernel has getrandom(2).")
    }
}

pub fn random_bytes<const N: usize>() -> Result<[u8; N], RandomError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| RandomError(error.to_string()))?;
    Ok(bytes)
}

/// `2 * N` lower-case hexadecimal digits.
pub fn random_hex<const N: usize>() -> Result<String, RandomError> {
    Ok(random_bytes::<N>()?.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Counters of one daemon's life. Sandbox and checkpoint ids carry a random part of this life, so that a handle that
/// outlived a daemon never names something of the next one.
pub struct Ids {
    life: String,
    sandboxes: Cell<u64>,
    checkpoints: Cell<u64>,
    requests: Cell<u64>,
    generations: Cell<u64>,
    connections: Cell<u64>,
}

impl Ids {
    pub fn new() -> Result<Self, RandomError> {
        let zero = || Cell::new(0);
        Ok(Ids {
            life: random_hex::<3>()?,
            sandboxes: zero(),
            checkpoints: zero(),
            requests: zero(),
            generations: zero(),
            connections: zero(),
        })
    }

    /// Also the guest's hostname.
    pub fn sandbox(&self) -> String {
        format!("sb-{}-{}", self.life, next(&self.sandboxes))
    }

    pub fn checkpoint(&self) -> String {
        format!("cp-{}-{}", self.life, next(&self.checkpoints))
    }

    pub fn request(&self) -> u64 {
        next(&self.requests)
    }

    pub fn generation(&self) -> u64 {
        next(&self.generations)
    }

    pub fn connection(&self) -> u64 {
        next(&self.connections)
    }
}

/// Whether a text has the form of an id of some daemon's life: `sb-…` or `cp-…`.
pub fn is_id(text: &str, prefix: &str) -> bool {
    let mut parts = text.split('-');
    let is_hex = |part: &str| part.len() == 6 && part.bytes().all(|b| b.is_ascii_hexdigit());
    let is_number = |part: &str| (1..=20).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit());
    parts.next() == Some(prefix)
        && parts.next().is_some_and(is_hex)
        && parts.next().is_some_and(is_number)
        && parts.next().is_none()
}

fn next(counter: &Cell<u64>) -> u64 {
    counter.set(counter.get() + 1);
    counter.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_one_life_are_well_formed_and_differ() {
        let ids = Ids::new().unwrap();
        let (first, second) = (ids.sandbox(), ids.sandbox());
        assert_ne!(first, second);
        assert!(is_id(&first, "sb") && !is_id(&first, "cp"));
        assert!(is_id(&ids.checkpoint(), "cp"));
    }

    #[test]
    fn is_id_given_something_else_says_no() {
        for text in [
            "",
            "sb",
            "sb-abcdef",
            "sb-abcdef-",
            "sb-abcdef-1-2",
            "sb-xyzxyz-1",
            "sb-abcdef-1x",
        ] {
            assert!(!is_id(text, "sb"), "{text}");
        }
    }
}
