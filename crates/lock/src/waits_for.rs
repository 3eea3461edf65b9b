//! The waits-for graph of a lock table, read queue by queue while it changes.
//!
//! At most one bucket is latched at a time, so the picture as a whole may never have been true. `deadlock` D1 says
//! when a cycle in it counts.

use std::sync::atomic::{Ordering::Acquire, Ordering::Relaxed, Ordering::SeqCst};

use crate::bucket::Holder;
use crate::deadlock::{Waiting, WaitsFor};
use crate::flags::Flag;
use crate::table::LockTable;
use crate::{OwnerNo, wait_word};

/// The graph as the search of one owner sees it.
pub(crate) struct Graph<'a> {
    table: &'a LockTable,
    searcher: Holder,
    /// All arrows, or only those that a search needs (`Queue::nearest_blockers`).
    is_whole: bool,
}

impl<'a> Graph<'a> {
    pub(crate) fn new(table: &'a LockTable, searcher: Holder) -> Self {
        Graph { table, searcher, is_whole: false }
    }

    /// With all arrows, for people.
    pub(crate) fn whole(table: &'a LockTable) -> Self {
        Graph { table, searcher: table.caller(), is_whole: true }
    }
}

impl WaitsFor for Graph<'_> {
    fn waits(&mut self, owner_no: OwnerNo, into: &mut Vec<OwnerNo>) -> Option<Waiting> {
        let owner = self.table.owner(owner_no);
        let seen = owner.wait_word.load(Acquire); // Pairs with the store in `begin_wait`.
        // An owner that was told to give way counts as gone, or one deadlock would cost two victims.
        if !wait_word::is_waiting(seen) {
            return None;
        }
        // Under the scheduler the latch is where others come first, so that a picture that never was true can be seen.
        let queue = self.table.latch_bucket(owner.wait_bucket.load(Relaxed), self.searcher);
        let now = owner.wait_word.load(Acquire); // It may have fallen asleep.
        if !wait_word::is_waiting(now) || wait_word::ticket(now) != wait_word::ticket(seen) {
            return None;
        }
        let node_no = owner.wait_node.load(Relaxed); // O2
        let node = self.table.node(node_no);
        let waiting = Waiting { ticket: wait_word::ticket(seen), name: node.name(), mode: node.wanted()? };
        if self.is_whole {
            queue.blockers(node_no, into);
        } else {
            queue.nearest_blockers(node_no, into);
        }
        Some(waiting)
    }

    fn held_up(&mut self, owner_no: OwnerNo, into: &mut Vec<OwnerNo>) {
        let run = self.table.owner(owner_no).as_outer(owner_no);
        self.table.for_each_raised(Flag::HoldsUp, |by| {
            if self.table.owner(by).outer.iter().any(|place| place.load(SeqCst) == run) {
                into.push(by);
            }
        });
    }
}
