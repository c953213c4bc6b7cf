//! Sources that sent a wrong token, or no hello at all. Each further failure is answered later.
//!
//! A right token never waits, whatever else comes from the same address: behind one address may be a whole network, or all
//! clients of an emulated host. What waits is the refusal, and it takes no place of those who have not said hello yet.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::server::remote::Source;

/// The first refusal comes at once: it may be a person's mistake. The second after this, each further one after twice as
/// long, up to the limit, which is less than clients wait for an answer.
const FIRST_DELAY: Duration = Duration::from_millis(100);
const MAX_DELAY: Duration = Duration::from_secs(4);

/// A source that did nothing wrong for so long is none any more.
const FORGET: Duration = Duration::from_secs(600);

/// Sources that are remembered; the one that was longest silent gives way.
const MAX_SOURCES: usize = 1_024;

/// Connections that wait for their refusal. What is above it is closed without one.
const MAX_HELD_OF_SOURCE: usize = 4;
const MAX_HELD: usize = 128;

struct Record {
    failures: u32,
    last: Instant,
    held: usize,
}

#[derive(Default)]
pub struct Suspects(RefCell<HashMap<Source, Record>>);

/// A connection that waits for its refusal.
pub struct Held {
    pub delay: Duration,
    suspects: Rc<Suspects>,
    source: Source,
}

impl Suspects {
    /// Counts a failure. `None`: too many of them wait for an answer already.
    pub fn failed(self: &Rc<Self>, source: Source, now: Instant) -> Option<Held> {
        let mut records = self.0.borrow_mut();
        if records.len() >= MAX_SOURCES && !records.contains_key(&source) {
            forget_oldest(&mut records);
        }
        let held: usize = records.values().map(|record| record.held).sum();
        let record = records.entry(source).or_insert(Record {
            failures: 0,
            last: now,
            held: 0,
        });
        if now.saturating_duration_since(record.last) > FORGET {
            record.failures = 0;
        }
        record.failures = record.failures.saturating_add(1);
        record.last = now;
        if held >= MAX_HELD || record.held >= MAX_HELD_OF_SOURCE {
            return None;
        }
        record.held += 1;
        Some(Held {
            delay: delay(record.failures),
            suspects: Rc::clone(self),
            source,
        })
    }

    /// Somebody there has the token.
    pub fn forgive(&self, source: Source) {
        if let Some(record) = self.0.borrow_mut().get_mut(&source) {
            record.failures = 0;
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(record) = self.suspects.0.borrow_mut().get_mut(&self.source) {
            record.held -= 1;
        }
    }
}

/// Those that hold connections stay, and are fewer than there is room for.
fn forget_oldest(records: &mut HashMap<Source, Record>) {
    let idle = records.iter().filter(|(_, record)| record.held == 0);
    if let Some(oldest) = idle.min_by_key(|(_, record)| record.last).map(|(source, _)| *source) {
        records.remove(&oldest);
    }
}

fn delay(failures: u32) -> Duration {
    match failures {
        0 | 1 => Duration::ZERO,
        more => FIRST_DELAY.saturating_mul(1 << (more - 2).min(16)).min(MAX_DELAY),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(number: u32) -> Source {
        Source::of(std::net::Ipv4Addr::from_bits(number).into())
    }

    fn failures(suspects: &Rc<Suspects>, count: usize, now: Instant) -> Vec<u128> {
        let delay_of = |_| suspects.failed(source(1), now).unwrap().delay.as_millis();
        (0..count).map(delay_of).collect()
    }

    #[test]
    fn delay_grows_from_nothing_to_its_limit() {
        let delays = failures(&Rc::default(), 9, Instant::now());
        assert_eq!(delays, [0, 100, 200, 400, 800, 1_600, 3_200, 4_000, 4_000]);
        assert_eq!(delay(u32::MAX), MAX_DELAY);
    }

    #[test]
    fn source_with_the_token_or_silent_for_long_is_not_delayed() {
        let (suspects, now) = (Rc::<Suspects>::default(), Instant::now());
        failures(&suspects, 5, now);
        suspects.forgive(source(1));
        assert_eq!(failures(&suspects, 2, now), [0, 100]);
        let later = now + FORGET + Duration::from_secs(1);
        assert_eq!(failures(&suspects, 1, later), [0]);
    }

    #[test]
    fn another_source_is_not_delayed() {
        let (suspects, now) = (Rc::<Suspects>::default(), Instant::now());
        failures(&suspects, 5, now);
        assert_eq!(suspects.failed(source(2), now).unwrap().delay, Duration::ZERO);
    }

    #[test]
    fn connections_that_wait_for_their_refusal_are_bounded_for_a_source_and_for_all() {
        let (suspects, now) = (Rc::<Suspects>::default(), Instant::now());
        let mut held: Vec<Held> = (0..4).map(|_| suspects.failed(source(1), now).unwrap()).collect();
        assert!(suspects.failed(source(1), now).is_none());
        held.pop();
        held.push(suspects.failed(source(1), now).unwrap());
        held.extend((10..).map_while(|number| suspects.failed(source(number), now)));
        assert_eq!(held.len(), MAX_HELD);
        drop(held);
        assert!(suspects.failed(source(2), now).is_some());
    }

    #[test]
    fn sources_are_bounded_and_the_one_that_was_longest_silent_gives_way() {
        let (suspects, now) = (Rc::<Suspects>::default(), Instant::now());
        for number in 0..2_000 {
            suspects.failed(source(number), now + Duration::from_millis(number.into()));
        }
        let records = suspects.0.borrow();
        assert_eq!(records.len(), MAX_SOURCES);
        assert!(records.contains_key(&source(1_999)) && !records.contains_key(&source(0)));
    }
}
