//! Leaves that a scan will come to are asked for before it does, while it reads those before them.
//!
//! ```text
//! level 1    ... | a | b | c | d | e | f | g | ...
//!                  ^ the scan   ^--------^ asked for, of which the first may be in memory by now
//! ```
//!
//! A1. Nothing is asked for before two leaves in a row were not in memory. So a short scan reads nothing in vain, and
//!     one of leaves that are in memory pays nothing.
//! A2. Each time, twice as many leaves are asked for as the time before, up to a bound, as soon as half of those asked
//!     for is left. When all of them were in memory, it begins anew with A1.
//! A3. No leaf beyond the end of the scan's range is asked for.
//! A4. All this is advice: what is read of the level above may be stale. A leaf that was missed is read by the scan
//!     itself, one that was asked for in vain is a read too many.
//!
//! Who reads them, and when, is not known here.

use std::ops::Bound;

use ledgerstone_page::PageId;

use super::node::Node;
use super::scan::Direction;
use super::search::{Aim, Descent};
use super::tree::Tree;
use crate::TreeError;

/// Leaves that have to be absent in a row (A1).
const MISSES_MIN: u32 = 2;
/// Leaves that are asked for first.
const LEAVES_MIN: usize = 8;
/// Leaves that are asked for at once, at most. A cache that is small asks for a sixteenth of its pages.
const LEAVES_MAX: usize = 1024;

/// What a scan has asked for.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    /// Leaves in a row that were absent, while nothing is asked for.
    misses: u32,
    /// How many leaves were asked for the last time; 0 while nothing is.
    asked: usize,
    /// How many of these the scan has still to come to.
    left: usize,
    /// Where the leaves begin that have not been asked for: forwards, their first key; backwards, a bound above them.
    from: Vec<u8>,
    /// There are none.
    is_done: bool,
}

impl Ahead {
    /// The scan goes on to the next leaf, which was in memory or not. `fence` is the key at which it begins, or ends if
    /// the scan goes backwards. `end` is the bound that the scan runs towards.
    #[inline]
    pub(super) fn goes_on(
        &mut self,
        tree: &Tree,
        direction: Direction,
        was_here: bool,
        fence: &[u8],
        end: &Bound<Vec<u8>>,
    ) {
        if self.asked == 0 && was_here {
            self.found();
        } else {
            self.goes_on_reading(tree, direction, fence, end);
        }
    }

    /// One that has come to a fence.
    #[cfg(test)]
    pub(super) fn starting_at(fence: &[u8]) -> Ahead {
        Ahead { from: fence.to_vec(), ..Ahead::default() }
    }

    /// True while leaves are asked for.
    #[inline]
    pub(super) fn is_asking(&self) -> bool {
        self.asked != 0
    }

    /// While nothing is asked for, the next leaf was in memory.
    #[inline]
    pub(super) fn found(&mut self) {
        self.misses = 0;
    }

    #[cold]
    fn goes_on_reading(&mut self, tree: &Tree, direction: Direction, fence: &[u8], end: &Bound<Vec<u8>>) {
        self.left = self.left.saturating_sub(1);
        if self.asked == 0 {
            self.misses += 1;
            if self.misses < MISSES_MIN {
                return;
            }
            self.is_done = false;
            self.from.clear();
        }
        if self.is_done || self.left > self.asked / 2 || is_last(direction, fence, end) {
            return;
        }
        let has_passed = match direction {
            Direction::Forward => self.from.as_slice() < fence,
            Direction::Backward => self.from.is_empty() || self.from.as_slice() > fence,
        };
        if has_passed {
            self.from.clear();
            self.from.extend_from_slice(fence);
            self.left = 0;
        }
        let cache = &tree.engine.cache;
        if !cache.reads_ahead() {
            *self = Ahead::default();
            return;
        }
        let wanted = (self.asked * 2).clamp(LEAVES_MIN, LEAVES_MAX).min(cache.frame_count() as usize / 16);
        // A page of the level above that cannot be read is told by whoever cannot do without it (A4).
        let leaves = self.leaves(tree, direction, wanted, end).unwrap_or_default();
        if cache.read_soon(&leaves) == 0 {
            *self = Ahead::default();
            return;
        }
        self.asked = wanted;
        self.left += leaves.len();
    }

    /// The next leaves, and moves `from` behind them.
    pub(super) fn leaves(
        &mut self,
        tree: &Tree,
        direction: Direction,
        wanted: usize,
        end: &Bound<Vec<u8>>,
    ) -> Result<Vec<PageId>, TreeError> {
        let mut leaves = Vec::with_capacity(wanted);
        let mut descent = Descent::default();
        for _ in 0..wanted {
            if self.is_done || leaves.len() >= wanted {
                break;
            }
            let aim = match direction {
                Direction::Forward => Aim::Key(&self.from),
                Direction::Backward => Aim::Below(&self.from),
            };
            let Some(held) = tree.find_at(aim, 1, &mut descent)? else {
                self.is_done = true;
                break;
            };
            let node = Node::new(held.words());
            let before = leaves.len();
            let (from, is_done) = match direction {
                Direction::Forward => rising(&node, node.child_slot(&self.from), wanted, end, &mut leaves),
                Direction::Backward => falling(&node, node.child_slot_below(&self.from), wanted, end, &mut leaves),
            };
            if held.check().is_err() {
                leaves.truncate(before);
                break; // A4: the next turn looks again.
            }
            (self.from, self.is_done) = (from, is_done);
        }
        Ok(leaves)
    }
}

/// A3: true if the range ends before the fence at which a scan goes on. Forwards, such a scan has ended.
fn is_last(direction: Direction, fence: &[u8], end: &Bound<Vec<u8>>) -> bool {
    match end {
        Bound::Included(end) | Bound::Excluded(end) => direction == Direction::Backward && fence <= end.as_slice(),
        Bound::Unbounded => false,
    }
}

type Words<'a> = ledgerstone_region::Words<'a>;

/// Adds the children from `slot` on. Returns the first key of those behind them, and whether that is all.
fn rising(
    node: &Node<Words<'_>>,
    mut slot: usize,
    wanted: usize,
    end: &Bound<Vec<u8>>,
    leaves: &mut Vec<PageId>,
) -> (Vec<u8>, bool) {
    let is_beyond = |slot| match end {
        Bound::Included(end) => node.compare_key(slot, end).is_gt(),
        Bound::Excluded(end) => node.compare_key(slot, end).is_ge(),
        Bound::Unbounded => false,
    };
    while slot < node.count() {
        if leaves.len() == wanted {
            return (node.key(slot), false);
        }
        if slot >= node.first() && is_beyond(slot) {
            return (Vec::new(), true);
        }
        leaves.push(node.child(slot));
        slot += 1;
    }
    let high = node.high();
    let is_done = high.is_empty();
    (high, is_done)
}

/// Adds the children from `slot` down. Returns a bound above those below them, and whether that is all.
fn falling(
    node: &Node<Words<'_>>,
    slot: usize,
    wanted: usize,
    end: &Bound<Vec<u8>>,
    leaves: &mut Vec<PageId>,
) -> (Vec<u8>, bool) {
    for slot in (0..node.count().min(slot + 1)).rev() {
        leaves.push(node.child(slot));
        let is_last = match end {
            Bound::Included(end) | Bound::Excluded(end) => node.compare_key(slot, end).is_le(),
            Bound::Unbounded => false,
        };
        if is_last {
            return (Vec::new(), true);
        }
        if leaves.len() == wanted && slot >= node.first() {
            return (node.key(slot), false);
        }
    }
    let low = node.low();
    let is_done = low.is_empty();
    (low, is_done)
}
