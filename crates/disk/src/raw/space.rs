//! Which extents of the device nobody has, and those that were given up and cannot be had yet.

use std::sync::{Arc, Weak};

use super::table::HOLE;

/// Extents that a file gives up.
pub(super) struct GivenUp {
    pub extents: Arc<Vec<u32>>,
    /// Those of `extents` from this one on.
    pub from: usize,
    /// Earlier lists of the file's extents: calls may be under way with them still.
    pub earlier: Vec<Weak<Vec<u32>>>,
}

impl GivenUp {
    /// Whether a call that is under way still reads or writes them.
    fn is_in_use(&self) -> bool {
        Arc::strong_count(&self.extents) > 1 || self.earlier.iter().any(|list| list.strong_count() > 0)
    }
}

/// Extents that a file gave up.
struct Freed {
    given_up: GivenUp,
    /// The change that gave them up. They can be had again when the table without them is durable.
    seq: u64,
}

/// The extents of a device.
#[derive(Default)]
pub(super) struct Space {
    /// A bit for each extent: set if it is free.
    free: Vec<u64>,
    free_count: u64,
    /// Where to begin to look.
    hint: usize,
    given_up: Vec<Freed>,
}

impl Space {
    /// A device with so many extents, all free.
    pub fn new(count: u64) -> Space {
        let mut space = Space { free: vec![0; count.div_ceil(64) as usize], ..Space::default() };
        (0..count).for_each(|extent| space.put(extent as u32));
        space
    }

    fn put(&mut self, extent: u32) {
        self.free[extent as usize / 64] |= 1 << (extent % 64);
        self.free_count += 1;
    }

    /// Takes away an extent that a file has.
    pub fn take_one(&mut self, extent: u32) {
        self.free[extent as usize / 64] &= !(1 << (extent % 64));
        self.free_count -= 1;
    }

    /// So many free extents, successive ones where they are. `None` if there are too few.
    pub fn take(&mut self, count: usize) -> Option<Vec<u32>> {
        if self.free_count < count as u64 {
            return None;
        }
        let mut taken = Vec::with_capacity(count);
        let mut word = self.hint;
        while taken.len() < count {
            while self.free[word] != 0 && taken.len() < count {
                let bit = self.free[word].trailing_zeros();
                let extent = word as u32 * 64 + bit;
                self.take_one(extent);
                taken.push(extent);
            }
            self.hint = word;
            word = (word + 1) % self.free.len();
        }
        Some(taken)
    }

    /// Extents that a file has given up with change `seq`.
    pub fn give_up(&mut self, given_up: GivenUp, seq: u64) {
        if given_up.extents[given_up.from..].iter().any(|extent| *extent != HOLE) {
            self.given_up.push(Freed { given_up, seq });
        }
    }

    /// Whether a commit would make more of them free.
    pub fn has_given_up(&self) -> bool {
        !self.given_up.is_empty()
    }

    /// Frees what was given up by changes up to `seq`, unless a call that is under way still reads or writes it.
    pub fn reclaim(&mut self, seq: u64) {
        for freed in std::mem::take(&mut self.given_up) {
            if freed.seq > seq || freed.given_up.is_in_use() {
                self.given_up.push(freed);
                continue;
            }
            for extent in freed.given_up.extents[freed.given_up.from..].iter().filter(|extent| **extent != HOLE) {
                self.put(*extent);
            }
        }
    }

    /// How many are free.
    pub fn free_count(&self) -> u64 {
        self.free_count
    }
}
