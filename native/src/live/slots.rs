//! Places by the hashes of their keys: open addressing, four bytes a slot.
//!
//! Many keys are looked for at once, so that the processor waits for memory once and not for each
//! key. So who searches has to know which slot is looked at first: other hash tables don't say.

const EMPTY: u32 = u32::MAX;
/// Slots for each place, at least: then a probe is hardly ever longer than two.
const ROOM: usize = 2;
const LEAST: usize = 16;

#[derive(Default)]
pub struct Slots {
    /// Their number is a power of two, or 0.
    slots: Vec<u32>,
    count: usize,
}

impl Slots {
    pub fn len(&self) -> usize {
        self.count
    }

    pub fn nbytes(&self) -> usize {
        self.slots.capacity() * size_of::<u32>()
    }

    /// The place that is looked at first for a hash, if there is one.
    pub fn first(&self, hash: u64) -> Option<u32> {
        let first = *self.slots.get(hash as usize & self.mask())?;
        (first != EMPTY).then_some(first)
    }

    pub fn find(&self, hash: u64, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        self.slot(hash, is_it).map(|slot| self.slots[slot])
    }

    /// Add a place that is not there.
    pub fn insert(&mut self, hash: u64, place: u32, hash_of: impl Fn(u32) -> u64) {
        self.reserve(1, hash_of);
        self.count += 1;
        self.put(hash, place);
    }

    pub fn remove(
        &mut self,
        hash: u64,
        is_it: impl Fn(u32) -> bool,
        hash_of: impl Fn(u32) -> u64,
    ) -> Option<u32> {
        let mut gap = self.slot(hash, is_it)?;
        let (removed, mask) = (self.slots[gap], self.mask());
        let mut slot = gap;
        // Those behind move up, unless that would be before the slot that is looked at first.
        loop {
            slot = (slot + 1) & mask;
            let place = self.slots[slot];
            if place == EMPTY {
                break;
            }
            let home = hash_of(place) as usize & mask;
            if slot.wrapping_sub(home) & mask >= slot.wrapping_sub(gap) & mask {
                self.slots[gap] = place;
                gap = slot;
            }
        }
        self.slots[gap] = EMPTY;
        self.count -= 1;
        Some(removed)
    }

    /// Make room for so many more.
    pub fn reserve(&mut self, more: usize, hash_of: impl Fn(u32) -> u64) {
        let needed = (self.count + more) * ROOM;
        if needed <= self.slots.len() {
            return;
        }
        let size = needed.next_power_of_two().max(LEAST);
        let old = std::mem::replace(&mut self.slots, vec![EMPTY; size]);
        for place in old.into_iter().filter(|&place| place != EMPTY) {
            self.put(hash_of(place), place);
        }
    }

    fn put(&mut self, hash: u64, place: u32) {
        let mask = self.mask();
        let mut slot = hash as usize & mask;
        while self.slots[slot] != EMPTY {
            slot = (slot + 1) & mask;
        }
        self.slots[slot] = place;
    }

    fn slot(&self, hash: u64, is_it: impl Fn(u32) -> bool) -> Option<usize> {
        let mask = self.mask();
        let mut slot = hash as usize & mask;
        loop {
            match *self.slots.get(slot)? {
                EMPTY => return None,
                place if is_it(place) => return Some(slot),
                _ => slot = (slot + 1) & mask,
            }
        }
    }

    fn mask(&self) -> usize {
        self.slots.len().wrapping_sub(1)
    }
}
