//! A bucket whose holder has died, made whole from the nodes, with its latch taken over.
//!
//! B1. All nodes that name the bucket and are requests are its chain (Q8). While the latch is held, none comes or goes.
//!     The order is that of Q5, and the counts are those of Q4.
//! B2. A node that was collected for an owner is taken back if neither the owner's words nor its list have it (I7). The
//!     owner's word counts still, or is no lock any more.
//! B3. A request that waits for nothing, whose owner waits with it, was being granted, or being passed. It is granted.
//!     If its owner has been told to give way meanwhile, it finds the lock when it comes back to the bucket.
//! B4. What nothing forbids any more is granted (Q3).
//!
//! Each step can be done again by the next repairer, who finds the nodes as they are then.

use std::sync::atomic::{Ordering::Acquire, Ordering::Relaxed, Ordering::SeqCst};

use ledgerstone_region::sync;

use crate::intention::COLLECTED;
use crate::planted::Part;
use crate::queue::{Queue, is_strong};
use crate::table::{LockTable, NOT_TAKEN_IN, Node};
use crate::{standing, wait_word};

impl LockTable {
    /// Makes the bucket whole. Whoever is granted something is woken at the end of the repair (R5 in `repair.rs`).
    pub(crate) fn rebuild(&self, queue: &Queue<'_>) {
        let mut chain = self.requests_in(queue.bucket_no);
        if !self.forgets(Part::HalfCollected) {
            chain.retain(|&node_no| !self.take_back_collected(node_no));
        }
        chain.sort_by_cached_key(|&node_no| self.place_of(node_no));
        if !self.forgets(Part::Chain) {
            self.link_all(queue, &chain);
        }
        self.count_all(queue, &chain);
        if !self.forgets(Part::HalfGranted) {
            chain.iter().for_each(|&node_no| self.finish_grant(queue, node_no));
        }
        if self.forgets(Part::Admit) {
            return;
        }
        let waiters = chain.iter().map(|&node_no| self.node(node_no)).filter(|node| node.wanted().is_some());
        let mut names = waiters.map(Node::name).collect::<Vec<_>>();
        names.sort_unstable();
        names.dedup();
        names.into_iter().for_each(|name| drop(queue.admit(name)));
    }

    /// The nodes of a latched bucket (B1), by number.
    fn requests_in(&self, bucket_no: u32) -> Vec<u32> {
        let is_in = |node: &Node| {
            sync::yield_point("lock bucket mended");
            standing::is_request_in(&node.modes, &node.bucket, bucket_no)
        };
        // Acquire: pairs with the store that says that they are in use.
        (1..self.header().fresh.load(Acquire)).filter(|&node_no| is_in(self.node(node_no))).collect()
    }

    /// By what a chain is in order (Q5): what holds something first, then by age.
    fn place_of(&self, node_no: u32) -> (bool, u64) {
        let node = self.node(node_no);
        let only_waits = node.granted().is_none();
        (only_waits, if only_waits { self.age(node.owner_no()).0 } else { 0 })
    }

    /// B2. Whether the node was taken back.
    fn take_back_collected(&self, node_no: u32) -> bool {
        let node = self.node(node_no);
        let is_outside = || node.owner_previous.load(Relaxed) == NOT_TAKEN_IN;
        let owner = self.owner(node.owner_no());
        let in_word = COLLECTED | u64::from(node_no);
        // The owner, if it lives, takes the node into its list before it clears the word. So the list is looked at
        // again.
        let is_in_no_word = || {
            sync::yield_point("lock collected looked for");
            !owner.intentions.iter().any(|place| place.load(SeqCst) == in_word)
        };
        let is_taken_back = is_outside() && is_in_no_word() && is_outside();
        if is_taken_back {
            standing::publish(&node.modes, 0); // Q8
        }
        is_taken_back
    }

    fn link_all(&self, queue: &Queue<'_>, chain: &[u32]) {
        let mut last = 0;
        for &node_no in chain {
            let link = if last == 0 { &queue.bucket.head } else { &self.node(last).next };
            link.store(node_no, Relaxed); // Under the latch, as all below.
            self.node(node_no).previous.store(last, Relaxed);
            last = node_no;
        }
        let end = if last == 0 { &queue.bucket.head } else { &self.node(last).next };
        end.store(0, Relaxed);
        queue.bucket.tail.store(last, Relaxed);
    }

    fn count_all(&self, queue: &Queue<'_>, chain: &[u32]) {
        let nodes = || chain.iter().map(|&node_no| self.node(node_no));
        if !self.forgets(Part::WaitingCount) {
            let waiting = nodes().filter(|node| node.wanted().is_some()).count();
            queue.bucket.waiting.store(waiting as u32, Relaxed);
        }
        if !self.forgets(Part::StrongCount) {
            let strong = nodes().filter(|node| node.name().is_table() && is_strong(node.modes.load(Relaxed))).count();
            queue.bucket.strong.store(strong as u32, SeqCst); // In one store: owners look at it without the latch (I1).
        }
    }

    /// B3.
    fn finish_grant(&self, queue: &Queue<'_>, node_no: u32) {
        let node = self.node(node_no);
        let owner = self.owner(node.owner_no());
        let seen = owner.wait_word.load(Acquire); // O2
        let waits_here = owner.wait_node.load(Relaxed) == node_no && owner.wait_bucket.load(Relaxed) == queue.bucket_no;
        if node.wanted().is_none() && wait_word::is_waiting(seen) && waits_here {
            // The owner is woken with all others, at the end of the repair.
            let _ = wait_word::end_wait(&owner.wait_word, wait_word::ticket(seen), wait_word::GRANTED);
        }
    }
}
