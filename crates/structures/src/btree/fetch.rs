//! The next leaf, on its way from memory while the records of this one are given out.
//!
//! A processor fetches some twenty cache lines at a time, and a leaf has 64. Asked for at once, most are asked for in
//! vain, and the copying of the next leaf waits for them one by one. So each record that is given asks for its share.

use ledgerstone_buffer::{LINE_BYTES, PageAhead};
use ledgerstone_page::PageId;

use super::tree::Tree;

/// How much of the next leaf was asked for.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Fetch {
    /// The next line to ask for.
    line: usize,
    /// Lines to ask for with each record.
    each: usize,
}

impl Fetch {
    /// In a leaf of which `record_count` records are still to be given.
    #[inline]
    pub(super) fn over(page_bytes: usize, record_count: usize) -> Fetch {
        Fetch { line: 0, each: (page_bytes / LINE_BYTES).div_ceil(record_count.max(1)) }
    }

    /// What to ask for: none if the leaf is not in memory.
    #[inline]
    pub(super) fn leaf(tree: &Tree, next: PageId) -> Option<PageAhead<'_>> {
        tree.engine.cache.ahead(next)
    }

    /// A record is given.
    #[inline(always)]
    pub(super) fn step(&mut self, next: Option<PageAhead<'_>>) {
        if let Some(next) = next {
            next.fetch(self.line, self.each);
            self.line += self.each;
        }
    }

    /// The same where each record looks for the leaf itself.
    #[inline]
    pub(super) fn step_to(&mut self, tree: &Tree, next: PageId) {
        if self.line < tree.page_bytes / LINE_BYTES {
            self.step(Fetch::leaf(tree, next));
        }
    }
}
