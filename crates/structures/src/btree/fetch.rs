//! The next leaf, on its way from memory while the records of this one are given out.
//!
//! A processor fetches some twenty cache lines at a time, and a leaf has 64. Asked for at once, most are asked for in
//! vain, and the copying of the next leaf waits for them one by one. So they are asked for in stretches, spread over
//! the records.

use ledgerstone_page::PageId;
use ledgerstone_region::STRETCH_BYTES;

use super::tree::Tree;

/// How much of the next leaf was asked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fetch {
    /// Records until more is asked for.
    left: u32,
    /// Records from one time to the next.
    every: u32,
    /// Stretches to ask for each time.
    each: usize,
    /// The next one.
    stretch: usize,
}

impl Fetch {
    /// In a leaf of which `record_count` records are still to be given.
    #[inline]
    pub(super) fn over(page_bytes: usize, record_count: usize) -> Fetch {
        let (stretches, records) = ((page_bytes / STRETCH_BYTES).max(1), record_count.max(1));
        let (every, each) = ((records / stretches).max(1) as u32, stretches.div_ceil(records));
        Fetch { left: 1, every, each, stretch: 0 }
    }

    /// A record is given, and `next` is the leaf behind.
    #[inline(always)]
    pub(super) fn step(&mut self, tree: &Tree, next: PageId) {
        self.left = self.left.saturating_sub(1);
        if self.left == 0 {
            self.left = self.every;
            tree.engine.cache.fetch_ahead(next, self.stretch..self.stretch + self.each);
            self.stretch += self.each;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_a_leaf_is_asked_for_before_its_records_end() {
        for page_bytes in [512, 4096, 32768] {
            for records in 0..300 {
                let Fetch { left, every, each, .. } = Fetch::over(page_bytes, records);
                let times = (records.max(1) - left as usize) / every as usize + 1;
                assert!(times * each * STRETCH_BYTES >= page_bytes, "{page_bytes} {records}");
            }
        }
    }
}
