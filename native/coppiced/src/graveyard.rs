//! What became of sandboxes and checkpoints that are no more, so that a late call gets a true answer.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};

use crate::defaults::MAX_TOMBSTONES;

#[derive(Debug, Clone)]
pub struct Tombstone<T> {
    pub owner: String,
    pub fate: T,
}

/// Remembers the last `MAX_TOMBSTONES`.
pub struct Graveyard<T> {
    inner: RefCell<Inner<T>>,
}

struct Inner<T> {
    by_id: HashMap<String, Tombstone<T>>,
    order: VecDeque<String>,
}

impl<T: Clone> Graveyard<T> {
    pub fn new() -> Self {
        Graveyard {
            inner: RefCell::new(Inner {
                by_id: HashMap::new(),
                order: VecDeque::new(),
            }),
        }
    }

    /// Ids are never given twice, so each is buried once.
    pub fn bury(&self, id: String, owner: String, fate: T) {
        let mut inner = self.inner.borrow_mut();
        if inner.order.len() == MAX_TOMBSTONES
            && let Some(oldest) = inner.order.pop_front()
        {
            inner.by_id.remove(&oldest);
        }
        inner.order.push_back(id.clone());
        inner.by_id.insert(id, Tombstone { owner, fate });
    }

    /// What became of it, where the asker owned it.
    pub fn fate(&self, id: &str, asker: &str) -> Option<T> {
        let inner = self.inner.borrow();
        inner
            .by_id
            .get(id)
            .filter(|tombstone| tombstone.owner == asker)
            .map(|tombstone| tombstone.fate.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn graveyard_given_too_many_forgets_the_oldest() {
        let graveyard = Graveyard::new();
        for number in 0..=MAX_TOMBSTONES {
            graveyard.bury(format!("sb-{number}"), "me".to_owned(), number);
        }
        assert_eq!(graveyard.fate("sb-0", "me"), None);
        assert_eq!(graveyard.fate("sb-1", "me"), Some(1));
    }

    #[test]
    fn fate_asked_by_another_session_is_not_told() {
        let graveyard = Graveyard::new();
        graveyard.bury("sb-1".to_owned(), "me".to_owned(), ());
        assert_eq!(graveyard.fate("sb-1", "you"), None);
    }
}
