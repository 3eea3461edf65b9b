//! Sleeping for a lock, and all ways to wake up.
//!
//! ```text
//!  queued ── spins a little: a lock is held for microseconds, a wake-up costs tens of them
//!    │
//!    ├─ searches for a deadlock once, when it is about to sleep, if anybody may wait for it (unless a detector does that
//!    │  from time to time); always if it holds up others, for whom anybody may wait, and then again from time to time: a thread
//!    │  in a call of theirs closes a cycle without a wait of its own
//!    │     a cycle, and the waiter is its victim: leaves with `Deadlock`
//!    │     a cycle, and another is:               tells that one to give way, and searches on
//!    └─ sleeps until the word changes or the deadline passes
//!          GRANTED    has the lock, if it can say so before somebody passes it (Q6); otherwise it waits again
//!          VICTIM     another's search, or the detector's, wants it to give way: searches for itself, to name the cycle, and leaves with
//!                     `Deadlock`; if the cycle is gone (another of it met its deadline), the wait goes on
//!          CANCELLED  leaves with `Cancelled`
//! ```
//!
//! W1. An owner that leaves without the lock looks at the word once more under the bucket's latch: a grant that came
//!     first counts.
//! W2. It leaves the queue as if it had never been there, and those behind it are looked at (Q3).
//! W3. `is_cancelled` is set before the words are read, and the word says `WAITING` before the flag is read
//!     (sequentially consistent): nobody goes to sleep unnoticed after waits were called off.

use ledgerstone_region::atomic::{
    AtomicU32, Ordering::Acquire, Ordering::Relaxed, Ordering::Release, Ordering::SeqCst,
};

use ledgerstone_page::{Lsn, Xid};
use ledgerstone_region::sync;

use crate::bucket::Holder;
use crate::deadlock::{Hop, Waiting, WaitsFor, confirm_cycle, find_cycle, find_path, victim_of};
use crate::flags::Flag;
use crate::planted::Part;
use crate::policy::Standing;
use crate::queue::{CAREFUL_NS, Queue};
use crate::table::LockTable;
use crate::waits_for::Graph;
use crate::{DeadlockEdge, LockError, OwnerNo, bucket, wait_word};

/// How long an owner that holds up others sleeps until it searches again.
const LOOK_AGAIN_NS: u64 = 100_000_000;

/// Spins while the word says that its owner waits; returns what it says then.
fn spin_while_waiting(word: &AtomicU32) -> u32 {
    let mut round = 0;
    loop {
        let seen = word.load(Acquire);
        if !wait_word::is_waiting(seen) || !sync::spin(round) {
            return seen;
        }
        round += 1;
    }
}

/// Takes what was granted, unless somebody passes the owner just then (Q6).
fn take(word: &AtomicU32, seen: u32) -> bool {
    sync::yield_point("lock granted, not taken yet");
    wait_word::take(word, seen)
}

/// Why a waiter leaves its queue without the lock.
enum Leave {
    Deadlock(Vec<DeadlockEdge>),
    Timeout,
    Cancelled,
}

impl LockTable {
    /// Opens a wait for the request in `node_no`, which is in the latched queue (O2).
    pub(crate) fn begin_wait(&self, queue: &Queue<'_>, owner_no: OwnerNo, node_no: u32) {
        let owner = self.owner(owner_no);
        owner.wait_node.store(node_no, Relaxed);
        owner.wait_bucket.store(queue.bucket_no, Relaxed);
        owner.wait_word.store(wait_word::next_wait(owner.wait_word.load(Relaxed)), SeqCst); // W3; and Release for O2.
    }

    /// Waits for the end of the owner's wait, and returns the commit LSN left behind in the bucket. `goes_ahead`: its
    /// request was queued before others that waited already.
    #[cold]
    #[inline(never)]
    pub(crate) fn wait(
        &self,
        owner_no: OwnerNo,
        node_no: u32,
        deadline_ns: u64,
        goes_ahead: bool,
    ) -> Result<Lsn, LockError> {
        let header = self.header();
        self.owner(owner_no).wait_deadline_ns.store(deadline_ns, Relaxed); // A guess for owners that pass (Q6).
        header.counters.waits.fetch_add(1, Relaxed);
        let word = &self.owner(owner_no).wait_word;
        let seen = spin_while_waiting(word);
        if wait_word::state(seen) == wait_word::GRANTED && take(word, seen) {
            return Ok(self.left_behind(owner_no));
        }
        self.raise(Flag::Sleeps, owner_no); // After the node is queued: see `wait_asleep`.
        let end = self.wait_asleep(owner_no, node_no, deadline_ns, goes_ahead);
        self.lower(Flag::Sleeps, owner_no);
        match end {
            None => Ok(self.left_behind(owner_no)),
            Some(why) => self.leave(owner_no, node_no, why),
        }
    }

    /// Until the word says how the wait ends. `None`: with the lock.
    fn wait_asleep(&self, owner_no: OwnerNo, node_no: u32, deadline_ns: u64, goes_ahead: bool) -> Option<Leave> {
        let header = self.header();
        let word = &self.owner(owner_no).wait_word;
        let mut is_searched = !self.config.searches_when_blocked;
        let holds_up = self.owner(owner_no).holds_up.load(Relaxed) != 0;
        let mut may_close_a_cycle = goes_ahead || holds_up;
        let looks_again = holds_up && !is_searched;
        let mut spun_for = wait_word::ticket(word.load(Acquire));
        loop {
            let seen = word.load(Acquire);
            match wait_word::state(seen) {
                wait_word::WAITING | wait_word::ASLEEP => {}
                wait_word::VICTIM => {
                    self.wait_again(owner_no, node_no);
                    (is_searched, may_close_a_cycle) = (false, true);
                    continue;
                }
                wait_word::CANCELLED => return Some(Leave::Cancelled),
                _ if take(word, seen) => return None,
                _ => continue, // Passed.
            }
            if header.is_cancelled.load(SeqCst) != 0 {
                return Some(Leave::Cancelled);
            }
            // Alone, nobody closes a cycle. Two that come at the same time have both queued before they raise their
            // flags, and the second to do so sees both.
            if !is_searched && (holds_up || self.raised_count(Flag::Sleeps) > 1) {
                is_searched = true;
                if (may_close_a_cycle || self.is_waited_for(owner_no))
                    && let Some(cycle) = self.search(owner_no)
                {
                    return Some(Leave::Deadlock(cycle));
                }
                continue;
            }
            is_searched = true;
            if wait_word::ticket(seen) != spun_for {
                // The owner that has passed it runs, and will be done soon.
                spun_for = wait_word::ticket(seen);
                spin_while_waiting(word);
                continue;
            }
            let now_ns = sync::now_ns();
            if now_ns >= deadline_ns {
                return Some(Leave::Timeout);
            }
            let until_ns = if looks_again { deadline_ns.min(now_ns + LOOK_AGAIN_NS) } else { deadline_ns };
            if let Some(asleep) = wait_word::fall_asleep(word, seen) {
                sync::futex_wait(word, asleep, (until_ns != u64::MAX).then(|| until_ns - now_ns));
                is_searched &= !looks_again || sync::now_ns() < until_ns;
            }
        }
    }

    /// Whether anybody may wait for a lock that the owner holds. If nobody does, its own wait closes no cycle. The last
    /// wait of a cycle to be queued is that of an owner for whose lock another waits already, or one that was queued
    /// ahead of others. An owner of many locks is not looked at in detail.
    fn is_waited_for(&self, owner_no: OwnerNo) -> bool {
        const LOOKS_MAX: u32 = 32;
        let owner = self.owner(owner_no);
        if owner.held_count.load(Relaxed) > LOOKS_MAX || LockTable::is_collected(owner) {
            return true;
        }
        let mut node_no = owner.held_head.load(Relaxed);
        while node_no != 0 {
            let node = self.node(node_no);
            if node.granted_number() != 0 {
                // Under the latch: an owner that was queued there before this owner's request was queued here is seen.
                let queue = self.latch_bucket(node.bucket.load(Relaxed), self.holder(owner_no));
                if queue.bucket.waiting.load(Relaxed) != 0 {
                    return true;
                }
            }
            node_no = node.owner_next.load(Relaxed);
        }
        false
    }

    fn left_behind(&self, owner_no: OwnerNo) -> Lsn {
        // Raised before the grant, which the wait word's Acquire load has seen.
        let bucket_no = self.owner(owner_no).wait_bucket.load(Relaxed);
        Lsn(self.buckets[bucket_no as usize].commit_lsn.load(Relaxed))
    }

    /// After a verdict: waits again, and takes the grants that passed by meanwhile. Until then the owner counted as
    /// gone in the graph, so it must search again, and finds the cycle of the verdict unless that is gone.
    fn wait_again(&self, owner_no: OwnerNo, node_no: u32) {
        let owner = self.owner(owner_no);
        let queue = self.latch_bucket(owner.wait_bucket.load(Relaxed), self.holder(owner_no));
        self.begin_wait(&queue, owner_no, node_no);
        if self.node(node_no).wanted().is_none() && !self.forgets(Part::GrantAndVerdict) {
            // Granted all the same, by a thread that died before it could learn of the verdict (`rebuild` B3).
            let ticket = wait_word::ticket(owner.wait_word.load(Relaxed));
            let _ = wait_word::end_wait(&owner.wait_word, ticket, wait_word::GRANTED);
        }
        let woken = queue.admit(self.node(node_no).name());
        drop(queue);
        if let Some(woken) = woken {
            woken.wake(self);
        }
    }

    /// Leaves the queue without the lock, unless it was granted by now (W1, W2).
    fn leave(&self, owner_no: OwnerNo, node_no: u32, why: Leave) -> Result<Lsn, LockError> {
        let owner = self.owner(owner_no);
        let node = self.node(node_no);
        let queue = self.latch_bucket(owner.wait_bucket.load(Relaxed), self.holder(owner_no));
        let seen = owner.wait_word.load(Acquire);
        owner.wait_word.store(wait_word::idle(seen), Release); // Nobody passes it from here on.
        let Some(mode) = node.wanted() else {
            drop(queue);
            return Ok(self.left_behind(owner_no));
        };
        let name = node.name();
        let mut holders = Vec::new();
        if matches!(why, Leave::Timeout) {
            queue.blockers(node_no, &mut holders);
        }
        let held = node.granted();
        match held {
            Some(_) => queue.set_modes(node, held, None),
            None => queue.remove(node),
        }
        let woken = queue.admit(name);
        drop(queue);
        if let Some(woken) = woken {
            woken.wake(self);
        }
        if held.is_none() {
            self.disown(owner_no, node_no);
        }
        let counters = &self.header().counters;
        Err(match why {
            Leave::Deadlock(cycle) => {
                counters.deadlocks.fetch_add(1, Relaxed);
                LockError::Deadlock { cycle, victim: self.age(owner_no) }
            }
            Leave::Timeout => {
                counters.timeouts.fetch_add(1, Relaxed);
                LockError::Timeout { name, mode, holders: self.ages(holders) }
            }
            Leave::Cancelled => LockError::Cancelled,
        })
    }

    /// Looks for deadlocks through `owner_no` and resolves each, until there is none or the owner itself must give way:
    /// then the cycle is returned. An owner that was told to give way comes to the same verdict on the same cycle.
    fn search(&self, owner_no: OwnerNo) -> Option<Vec<DeadlockEdge>> {
        let mut flagged = Vec::new();
        bucket::latch(&self.header().search_latch, self.holder(owner_no));
        self.header().counters.searches.fetch_add(1, Relaxed);
        let verdict = loop {
            let Some(cycle) = self.find_confirmed(owner_no, self.holder(owner_no)) else { break None };
            match self.victim_of(&cycle) {
                Some(victim) if victim != owner_no => flagged.extend(self.condemn(&cycle, victim)),
                _ => break Some(self.edges(&cycle)),
            }
        };
        bucket::unlatch(&self.header().search_latch);
        self.wake_victims(&flagged);
        verdict
    }

    /// Looks for deadlocks among all that wait and tells one of each to give way; says how many.
    pub(crate) fn search_all(&self) -> u32 {
        let (header, me) = (self.header(), self.caller());
        if self.raised_count(Flag::Sleeps) == 0 {
            return 0;
        }
        let mut flagged = Vec::new();
        bucket::latch(&header.search_latch, me);
        header.counters.searches.fetch_add(1, Relaxed);
        for no in 0..header.owners_used.load(SeqCst) {
            while let Some(cycle) = self.find_confirmed(OwnerNo(no), me) {
                flagged.extend(self.victim_of(&cycle).and_then(|victim| self.condemn(&cycle, victim)));
            }
        }
        bucket::unlatch(&header.search_latch);
        self.wake_victims(&flagged);
        u32::try_from(flagged.len()).unwrap_or(u32::MAX)
    }

    /// Whether the wait of an owner leads to another owner.
    pub(crate) fn leads_to(&self, waiter: OwnerNo, to: OwnerNo) -> bool {
        let me = self.caller();
        bucket::latch(&self.header().search_latch, me);
        let mut graph = Graph::new(self, me);
        let found = loop {
            let Some(path) = find_path(&mut graph, waiter, |next, _| next == to) else { break false };
            if confirm_cycle(&mut graph, &path) {
                break true;
            }
        };
        bucket::unlatch(&self.header().search_latch);
        found
    }

    /// All edges of the waits-for graph now.
    pub(crate) fn all_waits(&self) -> Vec<DeadlockEdge> {
        let mut graph = Graph::whole(self);
        let (mut edges, mut blockers, mut by) = (Vec::new(), Vec::new(), Vec::new());
        for no in (0..self.header().owners_used.load(SeqCst)).map(OwnerNo) {
            let mut add = |waiting: Waiting, waits_for: Vec<OwnerNo>, is_held_up| {
                edges.extend(self.ages(waits_for).into_iter().map(|waits_for| DeadlockEdge {
                    xid: self.age(no),
                    waits_for,
                    name: waiting.name,
                    mode: waiting.mode,
                    is_held_up,
                }));
            };
            if let Some(waiting) = graph.waits(no, &mut blockers) {
                add(waiting, std::mem::take(&mut blockers), false);
            }
            graph.held_up(no, &mut by);
            for by in by.drain(..) {
                if let Some(waiting) = graph.waits(by, &mut blockers) {
                    add(waiting, vec![by], true);
                }
                blockers.clear();
            }
        }
        edges
    }

    /// The same for the same cycle, whichever owner asks: nothing that the choice looks at changes while its owners
    /// wait, nor when one of them waits again.
    pub(crate) fn victim_of(&self, cycle: &[Hop]) -> Option<OwnerNo> {
        let draw = cycle.iter().fold(0_u64, |sum, hop| {
            let run = self.owner(hop.owner).run.load(Relaxed);
            sum.wrapping_add(self.age(hop.owner).0).wrapping_add(u64::from(run) << 20)
        });
        victim_of(cycle, |no| {
            let owner = self.owner(no);
            let locks = owner.held_count.load(Relaxed) + owner.intention_count.load(Relaxed);
            let standing = Standing { age: self.age(no), lock_count: locks, weight: owner.weight.load(Relaxed) };
            // An owner that is in the cycle only because it holds another up would give nothing back.
            let is_spared = cycle.iter().any(|hop| hop.by == no && hop.next != no);
            (!is_spared, self.config.victim.rank(standing, draw))
        })
    }

    /// Tells the victim to give way. `None`: its wait has just ended another way.
    fn condemn(&self, cycle: &[Hop], victim: OwnerNo) -> Option<OwnerNo> {
        let ticket = cycle.iter().find(|hop| hop.owner == victim).map_or(0, |hop| hop.waiting.ticket);
        wait_word::end_wait(&self.owner(victim).wait_word, ticket, wait_word::VICTIM).map(|_| victim)
    }

    fn wake_victims(&self, flagged: &[OwnerNo]) {
        for &victim in flagged {
            sync::futex_wake(&self.owner(victim).wait_word, 1);
        }
    }

    /// Under the search latch. A cycle that is not confirmed has lost one of its waits, so the next round finds less.
    fn find_confirmed(&self, owner_no: OwnerNo, searcher: Holder) -> Option<Vec<Hop>> {
        let mut graph = Graph::new(self, searcher);
        loop {
            let cycle = find_cycle(&mut graph, owner_no)?;
            if confirm_cycle(&mut graph, &cycle) {
                self.header().careful_until_ns.store(sync::now_ns().saturating_add(CAREFUL_NS), Relaxed);
                return Some(cycle);
            }
        }
    }

    fn edges(&self, cycle: &[Hop]) -> Vec<DeadlockEdge> {
        let mut edges = Vec::with_capacity(cycle.len());
        for (i, hop) in cycle.iter().enumerate() {
            let mut add = |xid, waits_for, waiting: Waiting, is_held_up| {
                let (xid, waits_for) = (self.age(xid), self.age(waits_for));
                edges.push(DeadlockEdge { xid, waits_for, name: waiting.name, mode: waiting.mode, is_held_up });
            };
            add(hop.owner, hop.next, hop.waiting, false);
            if hop.by != hop.next {
                add(hop.next, hop.by, cycle[(i + 1) % cycle.len()].waiting, true);
            }
        }
        edges
    }

    pub(crate) fn age(&self, owner_no: OwnerNo) -> Xid {
        Xid(self.owner(owner_no).age.load(Relaxed))
    }

    /// Who they are, each once, in ascending order.
    pub(crate) fn ages(&self, owners: Vec<OwnerNo>) -> Vec<Xid> {
        let mut ages = owners.into_iter().map(|owner| self.age(owner)).collect::<Vec<_>>();
        ages.sort_unstable();
        ages.dedup();
        ages
    }

    /// Ends all waits, now and until waits are allowed again (W3).
    pub(crate) fn cancel_waits(&self) {
        self.header().is_cancelled.store(1, SeqCst);
        self.end_all_waits();
    }

    /// The second half, which can be done again.
    pub(crate) fn end_all_waits(&self) {
        let used = self.header().owners_used.load(SeqCst);
        for owner in self.owners.iter().take(used as usize) {
            let ticket = wait_word::ticket(owner.wait_word.load(SeqCst));
            if wait_word::end_wait(&owner.wait_word, ticket, wait_word::CANCELLED).is_some() {
                sync::futex_wake(&owner.wait_word, 1);
            }
        }
    }
}
