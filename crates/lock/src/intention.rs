//! Locks on tables that touch no bucket.
//!
//! Every transaction takes `IS` or `IX` on every table it uses. These get along with each other, so the queue of a hot
//! table would only be a cache line that all processors fight for, and a long one to search. Instead an owner writes
//! such a lock into one of eight words of its own, if nobody asks for more than an intention on any table of that
//! bucket:
//!
//! ```text
//! 0                      free
//! table's space | 1      IS on that table (the low two bits of a table's space are zero)
//! table's space | 2      IX on that table
//! COLLECTED | node       the lock is in that node now, in the bucket's chain, but not yet in the owner's list
//! ```
//!
//! I1. A weak request writes its word, then reads the bucket's `strong`. A strong request raises `strong`, then reads
//!     all words, under the bucket's latch. All four are sequentially consistent, so at least one sees the other.
//! I2. A strong request **collects** every word for its name: it makes a granted node of it, by compare-exchange of the
//!     word, and then stands in the queue like any other.
//! I3. A weak request that finds `strong` raised takes its word back and joins the queue, unless it was collected
//!     meanwhile: then it is granted.
//! I4. A word that was written after `strong` was raised can conflict with a lock that is held by then. A later strong
//!     request that meets such a word clears it instead of collecting it. Its owner cannot believe in it: while the
//!     lock is held `strong` is raised, and the owner looks at its word once more after it found `strong` at zero.
//! I5. A word that was believed in once is a lock. It changes by compare-exchange (its owner's) or is collected (I2).
//! I6. An owner with a node for any table writes no words, because one of its nodes may be for the same table.
//! I7. `owner_previous` of a collected node says that its owner has not taken it in, from before the node is in the
//!     chain until it is in the owner's list. So if the collector dies, a repair that finds such a node looks at the
//!     words. If none names the node, the word was not collected, and the node is taken back.
//!
//! An `IX` in a word leaves no commit LSN in a bucket when it is given up. It leaves it in its owner, and a strong
//! request takes the maximum of all owners. So the request may depend on a commit that never touched the table. That
//! costs at most a wait for a flush that is on its way.

use std::sync::atomic::{Ordering::Acquire, Ordering::Relaxed, Ordering::Release, Ordering::SeqCst};

use ledgerstone_page::Lsn;
use ledgerstone_region::sync;

use crate::mode::ModeSet;
use crate::nodes::Lot;
use crate::queue::Queue;
use crate::table::{INTENTIONS, LockTable, NOT_TAKEN_IN, Owner};
use crate::{Grant, LockError, LockName, Mode, OwnerNo};

pub(crate) const COLLECTED: u64 = 1 << 63;
const MODE_BITS: u64 = 3;

#[inline]
pub(crate) fn word_of(name: LockName, mode: Mode) -> u64 {
    name.space | mode as u64 // IS is 1, IX is 2.
}

/// Name and mode in a word, unless it is free or collected.
#[inline]
pub(crate) fn lock_of(word: u64) -> Option<(LockName, Mode)> {
    if word & COLLECTED != 0 {
        return None;
    }
    Mode::from_number((word & MODE_BITS) as u32).map(|mode| (LockName { space: word & !MODE_BITS, item: 0 }, mode))
}

impl LockTable {
    /// Whether locks on `name` may stand in words.
    #[inline]
    pub(crate) fn has_intentions(&self, name: LockName) -> bool {
        name.is_table() && name.space & COLLECTED == 0 && self.config.fast_intentions
    }

    /// The owner's word for `name`, and its mode. If there is none, what was collected of the owner has been taken in.
    #[inline]
    pub(crate) fn find_intention(&self, owner: &Owner, name: LockName) -> Option<(usize, Mode)> {
        let mut left = owner.intention_count.load(Relaxed); // Words that are not free.
        for (i, place) in owner.intentions.iter().enumerate() {
            if left == 0 {
                break;
            }
            let word = place.load(Relaxed); // Only for a look; code that relies on it uses compare-exchange.
            left -= u32::from(word != 0);
            if word & COLLECTED != 0 {
                self.take_in(owner, i);
            } else if word != 0 && word & !MODE_BITS == name.space {
                return Mode::from_number((word & MODE_BITS) as u32).map(|mode| (i, mode));
            }
        }
        None
    }

    /// What an owner's words say about `name`, for anybody to ask. `None` if nothing, or if it was collected: then it
    /// is in the queue by now.
    pub(crate) fn intention_of(&self, owner: &Owner, name: LockName) -> Option<Mode> {
        let locks = owner.intentions.iter().filter_map(|place| lock_of(place.load(SeqCst)));
        locks.filter(|(found, _)| *found == name).map(|(_, mode)| mode).next()
    }

    /// Takes in all that was collected of the owner.
    pub(crate) fn take_in_all(&self, owner: &Owner) {
        if owner.intention_count.load(Relaxed) != 0 {
            for (i, place) in owner.intentions.iter().enumerate() {
                if place.load(Relaxed) & COLLECTED != 0 {
                    self.take_in(owner, i);
                }
            }
        }
    }

    /// Takes in all that was collected of the owner, and visits the rest. In one pass: what is collected behind it has
    /// been visited, and what was collected before it is in the owner's list.
    pub(crate) fn take_in_each(&self, owner: &Owner, mut visit: impl FnMut(LockName, Mode)) {
        for (i, place) in owner.intentions.iter().enumerate() {
            let word = place.load(SeqCst);
            sync::yield_point("lock intention seen");
            if word & COLLECTED != 0 {
                self.take_in(owner, i);
            } else if let Some((name, mode)) = lock_of(word) {
                visit(name, mode);
            }
        }
    }

    /// Whether a lock of the owner was collected, by somebody that may wait for it.
    pub(crate) fn is_collected(owner: &Owner) -> bool {
        owner.intentions.iter().any(|place| place.load(SeqCst) & COLLECTED != 0)
    }

    /// Moves a collected lock into the owner's list.
    #[cold]
    fn take_in(&self, owner: &Owner, place: usize) {
        // Acquire pairs with the collector's compare-exchange, after which the word stays. The list comes first, so
        // that a thread that asks what the owner holds finds it in one or the other (`held`).
        self.own_collected(owner, owner.intentions[place].load(Acquire) as u32);
        sync::yield_point("lock taken in");
        owner.intentions[place].store(0, SeqCst);
        owner.intention_count.store(owner.intention_count.load(Relaxed) - 1, Relaxed);
    }

    /// Puts a collected node into its owner's list. The collector has no part in it any more.
    pub(crate) fn own_collected(&self, owner: &Owner, node_no: u32) {
        let node = self.node(node_no);
        node.keep_by(node.owner_no());
        self.own(owner, node_no, node);
    }

    /// A request for an intention on a table, without a bucket if that can be. `None`: join the queue.
    #[inline]
    pub(crate) fn lock_intention(&self, owner_no: OwnerNo, name: LockName, mode: Mode) -> Option<Grant> {
        let owner = self.owner(owner_no);
        debug_assert!(owner_no.0 < self.header().owners_used.load(Relaxed), "{owner_no} has not begun");
        let bucket = &self.buckets[self.bucket_no(name) as usize];
        let grant = |previous: Option<Mode>| Grant {
            newly: previous.is_none(),
            previous,
            depends: Lsn(bucket.commit_lsn.load(Acquire)),
        };
        if let Some((i, held)) = self.find_intention(owner, name) {
            if held.covers(mode) {
                return Some(grant(Some(held)));
            }
            let (from, to) = (word_of(name, held), word_of(name, mode)); // I5
            return match owner.intentions[i].compare_exchange(from, to, SeqCst, Relaxed) {
                Ok(_) => Some(grant(Some(held))),
                Err(_) => {
                    self.take_in(owner, i);
                    None
                }
            };
        }
        let count = owner.intention_count.load(Relaxed);
        if owner.table_nodes.load(Relaxed) != 0 || count as usize == INTENTIONS {
            return None; // I6
        }
        if bucket.strong.load(Relaxed) != 0 {
            return None; // Not needed, but saves the detour.
        }
        let place = owner.intentions.iter().find(|place| place.load(Relaxed) == 0)?;
        let word = word_of(name, mode);
        sync::yield_point("lock intention");
        place.store(word, SeqCst); // I1
        sync::yield_point("lock intention");
        if bucket.strong.load(SeqCst) == 0 && place.load(SeqCst) == word {
            owner.intention_count.store(count + 1, Relaxed); // I4
            return Some(grant(None));
        }
        sync::yield_point("lock intention withdrawn");
        match place.compare_exchange(word, 0, SeqCst, Acquire) {
            Ok(_) | Err(0) => None,
            Err(collected) => {
                self.own_collected(owner, collected as u32); // As in `take_in`.
                place.store(0, SeqCst);
                Some(grant(None)) // I3
            }
        }
    }

    /// Makes nodes of all intentions on `name` (I2). `strong` must have been raised under the same latch. Returns the
    /// largest commit LSN that an intention in a word was given up with.
    pub(crate) fn collect(&self, queue: &Queue<'_>, owner_no: OwnerNo, name: LockName) -> Result<Lsn, LockError> {
        let mut depends = Lsn(0);
        let mut held = ModeSet::EMPTY;
        queue.for_each(name, |_, node| held.add_number(node.granted_number()));
        sync::yield_point("lock collect");
        let used = self.header().owners_used.load(SeqCst);
        for (other_no, other) in self.owners.iter().enumerate().take(used as usize) {
            for place in &other.intentions {
                // A place seen empty stays so, or its owner sees `strong` (I1).
                while let Some((found, mode)) = lock_of(place.load(SeqCst)) {
                    if found != name {
                        break;
                    }
                    let word = word_of(name, mode);
                    if !held.admits(mode) {
                        let _ = place.compare_exchange(word, 0, SeqCst, SeqCst); // I4; if it changed, look again.
                        continue;
                    }
                    let node_no = self.take_node_for_table(owner_no)?;
                    self.node(node_no).owner_previous.store(NOT_TAKEN_IN, Relaxed); // I7; `add` publishes it.
                    queue.add(node_no, name, OwnerNo(other_no as u32), Some(mode), None);
                    sync::yield_point("lock collect");
                    if place.compare_exchange(word, COLLECTED | u64::from(node_no), SeqCst, SeqCst).is_ok() {
                        self.header().counters.collected.fetch_add(1, Relaxed);
                    } else {
                        queue.remove(self.node(node_no));
                        self.node(node_no).owner_previous.store(0, Relaxed);
                        self.free_one(owner_no, node_no);
                    }
                }
            }
            // After the words: a word that was seen empty was given up after its LSN was left (`give_up_intentions`).
            depends = depends.max(Lsn(other.intention_commit_lsn.load(Acquire)));
        }
        Ok(depends)
    }

    /// Gives up one word. False if it was collected: then the lock is a node of the owner now.
    pub(crate) fn give_up_intention(&self, owner: &Owner, place: usize, word: u64) -> bool {
        if owner.intentions[place].compare_exchange(word, 0, SeqCst, Acquire).is_ok() {
            owner.intention_count.store(owner.intention_count.load(Relaxed) - 1, Relaxed);
            return true;
        }
        self.take_in(owner, place);
        false
    }

    /// Gives up all words, and takes in what was collected.
    #[inline]
    pub(crate) fn give_up_intentions(&self, owner: &Owner, commit_lsn: Option<Lsn>) {
        let mut left = owner.intention_count.load(Relaxed); // Words that are not free.
        for (i, place) in owner.intentions.iter().enumerate() {
            if left == 0 {
                break;
            }
            let word = place.load(Relaxed);
            if word == 0 {
                continue;
            }
            left -= 1;
            if let (Some(lsn), Some((_, Mode::IX))) = (commit_lsn, lock_of(word))
                && owner.intention_commit_lsn.load(Relaxed) < lsn.0
            {
                owner.intention_commit_lsn.store(lsn.0, Release); // Before the word: see `collect`.
            }
            if word & COLLECTED != 0 {
                self.take_in(owner, i);
            } else {
                self.give_up_intention(owner, i, word);
            }
        }
    }

    /// Lowers a word from `IX` to `IS`. False if it was collected meanwhile.
    pub(crate) fn lower_intention(&self, owner: &Owner, place: usize, name: LockName) -> bool {
        let (from, to) = (word_of(name, Mode::IX), word_of(name, Mode::IS));
        let is_lowered = owner.intentions[place].compare_exchange(from, to, SeqCst, Acquire).is_ok();
        if !is_lowered {
            self.take_in(owner, place);
        }
        is_lowered
    }

    /// Gives up what [`LockTable::find_intention`] found. False if it was collected meanwhile.
    pub(crate) fn drop_intention(&self, owner: &Owner, place: usize, name: LockName, mode: Mode) -> bool {
        self.give_up_intention(owner, place, word_of(name, mode))
    }

    /// Calls `visit` for each of the owner's words.
    pub(crate) fn for_each_intention(&self, owner: &Owner, mut visit: impl FnMut(LockName, Mode)) {
        for place in &owner.intentions {
            if let Some((name, mode)) = lock_of(place.load(SeqCst)) {
                visit(name, mode);
            }
        }
    }

    /// What anybody's words say about `name`.
    pub(crate) fn intention_of_any(&self, name: LockName) -> Option<Mode> {
        let used = self.header().owners_used.load(SeqCst);
        let mut any = None;
        for owner in self.owners.iter().take(used as usize) {
            self.for_each_intention(owner, |found, mode| {
                if found == name {
                    any = Some(any.map_or(mode, |other: Mode| other.supremum(mode)));
                }
            });
        }
        any
    }

    pub(crate) fn free_one(&self, owner_no: OwnerNo, node_no: u32) {
        let mut lot = Lot::default();
        self.free_node(owner_no, self.owner(owner_no), node_no, &mut lot);
        self.give_back(owner_no, lot);
    }
}
