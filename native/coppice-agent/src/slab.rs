//! Storage with stable keys that are never mistaken for those of an earlier occupant.

/// Names one occupant of a slab: an index, and a stamp that differs for each occupant of that index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot {
    index: u32,
    stamp: u32,
}

/// Bits of a slot's index and of its stamp in a packed key.
const INDEX_BITS: u32 = 20;
const STAMP_BITS: u32 = 36;
const STAMP_MASK: u64 = (1 << STAMP_BITS) - 1;

impl Slot {
    /// The slot in 56 bits.
    pub fn pack(self) -> u64 {
        (u64::from(self.stamp) << INDEX_BITS) | u64::from(self.index)
    }

    pub fn unpack(key: u64) -> Self {
        Self {
            index: (key & ((1 << INDEX_BITS) - 1)) as u32,
            stamp: ((key >> INDEX_BITS) & STAMP_MASK) as u32,
        }
    }
}

#[derive(Debug)]
pub struct Slab<T> {
    entries: Vec<(u32, Option<T>)>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<T> Slab<T> {
    /// Number of occupants.
    pub fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn insert(&mut self, value: T) -> Slot {
        if let Some(index) = self.free.pop() {
            let entry = &mut self.entries[index as usize];
            entry.0 = entry.0.wrapping_add(1);
            entry.1 = Some(value);
            return Slot { index, stamp: entry.0 };
        }
        self.entries.push((0, Some(value)));
        Slot {
            index: (self.entries.len() - 1) as u32,
            stamp: 0,
        }
    }

    pub fn get(&self, slot: Slot) -> Option<&T> {
        match self.entries.get(slot.index as usize) {
            Some((stamp, value)) if *stamp == slot.stamp => value.as_ref(),
            _ => None,
        }
    }

    pub fn get_mut(&mut self, slot: Slot) -> Option<&mut T> {
        match self.entries.get_mut(slot.index as usize) {
            Some((stamp, value)) if *stamp == slot.stamp => value.as_mut(),
            _ => None,
        }
    }

    pub fn remove(&mut self, slot: Slot) -> Option<T> {
        let entry = self.entries.get_mut(slot.index as usize)?;
        if entry.0 != slot.stamp {
            return None;
        }
        let value = entry.1.take()?;
        self.free.push(slot.index);
        Some(value)
    }

    pub fn iter(&self) -> impl Iterator<Item = (Slot, &T)> {
        self.entries.iter().enumerate().filter_map(|(index, (stamp, value))| {
            value.as_ref().map(|value| {
                (
                    Slot {
                        index: index as u32,
                        stamp: *stamp,
                    },
                    value,
                )
            })
        })
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = (Slot, &mut T)> {
        self.entries
            .iter_mut()
            .enumerate()
            .filter_map(|(index, (stamp, value))| {
                value.as_mut().map(|value| {
                    (
                        Slot {
                            index: index as u32,
                            stamp: *stamp,
                        },
                        value,
                    )
                })
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slot_given_to_a_new_occupant_does_not_answer_to_the_old_key() {
        let mut slab = Slab::default();
        let old = slab.insert("old");
        slab.remove(old);
        let new = slab.insert("new");
        assert_eq!(slab.get(old), None);
        assert_eq!(slab.remove(old), None);
        assert_eq!(slab.get(new), Some(&"new"));
        assert_eq!(slab.len(), 1);
    }

    #[test]
    fn slot_packed_and_unpacked_is_the_same() {
        let slot = Slot {
            index: 0xf_ffff,
            stamp: u32::MAX,
        };
        assert_eq!(Slot::unpack(slot.pack()), slot);
        assert!(slot.pack() < 1 << 56);
    }
}
