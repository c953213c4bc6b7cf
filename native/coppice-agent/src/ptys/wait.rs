//! What a `pty.send` waits for, and when it is met.

use regex::bytes::{Regex, RegexBuilder};

use crate::args::{Args, ArgsError};
use crate::outbox::RequestKey;
use crate::ptys::pty::{Drained, Pty};

/// A match may be this long; in a longer output it is looked for in the last piece of this size only.
const PATTERN_WINDOW_BYTES: usize = 256 * 1024;

/// Compiled size of a pattern; beyond it it is refused.
const PATTERN_LIMIT_BYTES: usize = 4 * 1024 * 1024;

const DEFAULT_QUIET_MS: u64 = 100;
const MAX_QUIET_MS: u64 = 3_600 * 1_000;

/// First pause between two looks at a program that computes; later ones grow by half, up to the longest.
const FIRST_LOOK_NS: u64 = 300_000;
const LONGEST_LOOK_NS: u64 = 8_000_000;

const NANOS_PER_MILLI: u64 = 1_000_000;

#[derive(Debug)]
pub enum Until {
    Input,
    Quiet { quiet_ns: u64 },
    Pattern(Box<Regex>),
    None,
}

impl Until {
    /// From the argument `until`; `None` where it is absent.
    pub fn parse(args: Option<Args>) -> Result<Self, ArgsError> {
        let Some(mut args) = args else {
            return Ok(Self::None);
        };
        let refused = |field: &str, reason: String| ArgsError::Refused {
            field: field.to_owned(),
            reason,
        };
        let until = match args.string("kind")?.as_str() {
            "input" => Self::Input,
            "none" => Self::None,
            "quiet" => {
                let quiet_ms = args
                    .optional_integer("quietMs", 1..=MAX_QUIET_MS)?
                    .unwrap_or(DEFAULT_QUIET_MS);
                Self::Quiet {
                    quiet_ns: quiet_ms * NANOS_PER_MILLI,
                }
            }
            "pattern" => {
                let pattern = args.string("pattern")?;
                let compiled = RegexBuilder::new(&pattern).size_limit(PATTERN_LIMIT_BYTES).build();
                Self::Pattern(Box::new(
                    compiled.map_err(|error| refused("until.pattern", error.to_string()))?,
                ))
            }
            other => {
                let reason = format!("'{other}' is none of input, quiet, pattern, none");
                return Err(refused("until.kind", reason));
            }
        };
        args.finish()?;
        Ok(until)
    }
}

/// Why a `pty.send` is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    Input,
    Quiet,
    Pattern,
    None,
    Exit,
    Timeout,
    Limit,
}

impl Reason {
    pub fn name(self) -> &'static str {
        match self {
            Self::Input => "input",
            Self::Quiet => "quiet",
            Self::Pattern => "pattern",
            Self::None => "none",
            Self::Exit => "exit",
            Self::Timeout => "timeout",
            Self::Limit => "limit",
        }
    }
}

/// One `pty.send` that is not answered yet.
#[derive(Debug)]
pub struct Waiter {
    pub key: RequestKey,
    pub until: Until,
    pub most: usize,
    /// When the request runs out of time.
    pub limit_ns: u64,
    /// When the terminal is looked at next, where that is set.
    pub look_ns: Option<u64>,
    pause_ns: u64,
    /// Where in the buffer the output begins that came after the write.
    since: usize,
    searched: usize,
}

/// Why a waiter is met, and how many bytes of the buffer are its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Met {
    pub reason: Reason,
    pub count: usize,
}

impl Waiter {
    pub fn new(key: RequestKey, until: Until, most: usize, limit_ns: u64, since: usize) -> Self {
        Self {
            key,
            until,
            most,
            limit_ns,
            look_ns: None,
            pause_ns: FIRST_LOOK_NS,
            since,
            searched: since,
        }
    }

    /// Reads what was printed and decides.
    pub fn check(&mut self, pty: &mut Pty, scratch: &mut [u8], orphans: impl FnOnce() -> Vec<i32>) -> Option<Met> {
        let before = pty.buffer.len();
        let exited = pty.exit.is_some();
        let met_input = matches!(self.until, Until::Input)
            && !exited
            && !pty.is_surely_busy()
            && pty.waits_for_input(scratch, self.most, orphans);
        let drained = if met_input {
            Drained::Dry
        } else {
            pty.drain(scratch, self.most)
        };
        if pty.buffer.len() > before {
            self.pause_ns = FIRST_LOOK_NS;
        }
        if let Until::Pattern(pattern) = &self.until
            && let Some(count) = find(pattern, &pty.buffer, self.since, &mut self.searched)
        {
            return Some(Met {
                reason: Reason::Pattern,
                count,
            });
        }
        let all = |reason| {
            Some(Met {
                reason,
                count: pty.buffer.len(),
            })
        };
        if drained == Drained::Full {
            return Some(Met {
                reason: Reason::Limit,
                count: self.most,
            });
        }
        match self.until {
            _ if met_input => all(Reason::Input),
            Until::None => all(if exited { Reason::Exit } else { Reason::None }),
            _ if exited => all(Reason::Exit),
            _ => None,
        }
    }

    /// When to look next where nothing happens before: for `quiet` when the silence is long enough, for `input` after
    /// a pause that grows while the program computes.
    pub fn next_look_ns(&mut self, now_ns: u64, printed: bool) -> Option<u64> {
        match self.until {
            Until::Input => {
                let pause_ns = self.pause_ns;
                self.pause_ns = (pause_ns + pause_ns / 2).min(LONGEST_LOOK_NS);
                Some(now_ns + pause_ns)
            }
            Until::Quiet { quiet_ns } if printed || self.look_ns.is_none() => Some(now_ns + quiet_ns),
            Until::Quiet { .. } => self.look_ns,
            Until::Pattern(_) | Until::None => None,
        }
    }
}

/// Looks for the pattern in what came since `since`; returns where the match ends. `searched`: how far the buffer was
/// looked through before.
fn find(pattern: &Regex, buffer: &[u8], since: usize, searched: &mut usize) -> Option<usize> {
    if *searched == buffer.len() && *searched != since {
        return None;
    }
    let start = since
        .max(searched.saturating_sub(PATTERN_WINDOW_BYTES))
        .min(buffer.len());
    *searched = buffer.len();
    pattern.find(&buffer[start..]).map(|found| start + found.end())
}

#[cfg(test)]
mod tests {
    use coppice_wire::Value;

    use super::*;

    fn until(entries: &[(&str, Value)]) -> Result<Until, ArgsError> {
        let entries = entries
            .iter()
            .map(|(key, value)| (Value::from(*key), value.clone()))
            .collect();
        Until::parse(Some(Args::new(Value::Map(entries)).unwrap()))
    }

    #[test]
    fn until_with_a_pattern_that_does_not_compile_is_refused_by_name() {
        let error = until(&[("kind", "pattern".into()), ("pattern", "(".into())]).unwrap_err();
        assert!(matches!(error, ArgsError::Refused { field, .. } if field == "until.pattern"));
    }

    #[test]
    fn until_of_an_unknown_kind_is_refused_by_name() {
        let error = until(&[("kind", "silence".into())]).unwrap_err();
        assert!(matches!(error, ArgsError::Refused { field, .. } if field == "until.kind"));
    }

    #[test]
    fn find_given_a_match_across_two_pieces_finds_it() {
        let pattern = Regex::new("ab+c").unwrap();
        let mut searched = 0;
        assert_eq!(find(&pattern, b"xxab", 0, &mut searched), None);
        assert_eq!(find(&pattern, b"xxabbc!", 0, &mut searched), Some(6));
    }

    #[test]
    fn find_given_a_match_before_the_write_skips_it() {
        let pattern = Regex::new("ok").unwrap();
        let mut searched = 3;
        assert_eq!(find(&pattern, b"ok.", 3, &mut searched), None);
        assert_eq!(find(&pattern, b"ok.ok", 3, &mut searched), Some(5));
    }
}
