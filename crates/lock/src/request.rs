//! The calls of the trait, made of queues, owners and waits.

use ledgerstone_page::{Lsn, TableId, Xid};
use ledgerstone_region::atomic::{AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use ledgerstone_region::{SlotNo, sync};

use crate::bucket::Holder;
use crate::flags::Flag;
use crate::nodes::Lot;
use crate::queue::{GrantedAsleep, PASSES_MAX, Queue};
use crate::table::LockTable;
use crate::{Conflict, DeadlockEdge, Grant, LockError, LockManager, LockName, LockStats, Mode, OwnerNo, Wait};

/// Whether a request gets a node from the reserve if there is no other: one for a whole table, by which key locks are
/// given back.
#[inline]
fn may_use_reserve(name: LockName, mode: Mode) -> bool {
    name.is_table() && !mode.is_intention()
}

/// How a request stands after a look at its queue.
enum Answer {
    Granted(Grant),
    /// In the queue, and the owner's wait has begun.
    Queued {
        node_no: u32,
        previous: Option<Mode>,
        /// Others that wait already stand behind it.
        goes_ahead: bool,
    },
}

impl LockTable {
    /// Grants or queues a request (Q1, Q2).
    #[inline]
    fn request(
        &self,
        queue: &Queue<'_>,
        owner_no: OwnerNo,
        name: LockName,
        mode: Mode,
        wait: Wait,
    ) -> Result<Answer, LockError> {
        let scan = queue.scan(name, owner_no, Some(mode));
        let depends = Lsn(queue.bucket.commit_lsn.load(Relaxed)); // Under the latch, as all below.
        if scan.mine == 0 {
            let is_free = scan.granted.union(scan.wanted).admits(mode);
            let grant = Grant { newly: true, previous: None, depends };
            if !is_free && self.passes(queue, owner_no, name, mode)? {
                return Ok(Answer::Granted(grant));
            }
            if !is_free && wait == Wait::Try {
                return Err(LockError::WouldBlock);
            }
            let is_for_table = may_use_reserve(name, mode);
            let node_no = if is_for_table { self.take_node_for_table(owner_no)? } else { self.take_node(owner_no)? };
            if is_free {
                queue.add(node_no, name, owner_no, Some(mode), None);
                self.own(self.owner(owner_no), node_no, self.node(node_no));
                return Ok(Answer::Granted(grant));
            }
            let goes_ahead = queue.add(node_no, name, owner_no, None, Some(mode));
            self.own(self.owner(owner_no), node_no, self.node(node_no));
            if let Err(refused) = self.may_wait(queue, owner_no, node_no) {
                queue.remove(self.node(node_no)); // It stood in nobody's way: all this happens under one latch.
                self.disown(owner_no, node_no);
                return Err(refused);
            }
            self.begin_wait(queue, owner_no, node_no);
            return Ok(Answer::Queued { node_no, previous: None, goes_ahead });
        }
        let node = self.node(scan.mine);
        let Some(held) = node.granted() else {
            panic!("{owner_no} asks for {name} while it waits for it");
        };
        let wanted = held.supremum(mode);
        let grant = Grant { newly: false, previous: Some(held), depends };
        if wanted == held {
            return Ok(Answer::Granted(grant));
        }
        if scan.granted.admits(wanted) {
            queue.set_modes(node, Some(wanted), None);
            return Ok(Answer::Granted(grant));
        }
        if wait == Wait::Try {
            return Err(LockError::WouldBlock);
        }
        queue.set_modes(node, Some(held), Some(wanted));
        if let Err(refused) = self.may_wait(queue, owner_no, scan.mine) {
            queue.set_modes(node, Some(held), None);
            return Err(refused);
        }
        node.passes.store(PASSES_MAX, Relaxed); // Q6: it would lose what it holds.
        self.begin_wait(queue, owner_no, scan.mine);
        Ok(Answer::Queued { node_no: scan.mine, previous: Some(held), goes_ahead: true })
    }

    /// Takes a lock that lies idle with an owner that sleeps, if the caller may go first (Q6).
    #[inline]
    fn passes(&self, queue: &Queue<'_>, owner_no: OwnerNo, name: LockName, mode: Mode) -> Result<bool, LockError> {
        // Waits that avoid deadlocks lead from older to younger owners, which this would not respect.
        if self.config.conflict != Conflict::Wait {
            return Ok(false);
        }
        match queue.sleeper(name, mode) {
            Some(sleeper) => self.pass(queue, owner_no, name, mode, &sleeper),
            None => Ok(false),
        }
    }

    #[cold]
    #[inline(never)]
    fn pass(
        &self,
        queue: &Queue<'_>,
        owner_no: OwnerNo,
        name: LockName,
        mode: Mode,
        sleeper: &GrantedAsleep,
    ) -> Result<bool, LockError> {
        // Before anything is taken from the sleeper.
        let is_for_table = may_use_reserve(name, mode);
        let node_no = if is_for_table { self.take_node_for_table(owner_no)? } else { self.take_node(owner_no)? };
        sync::yield_point("lock about to be passed");
        if !queue.pass(sleeper) {
            self.free_one(owner_no, node_no);
            return Ok(false);
        }
        queue.add(node_no, name, owner_no, Some(mode), None);
        self.own(self.owner(owner_no), node_no, self.node(node_no));
        if let Some(woken) = queue.admit(name) {
            // With the bucket latched: it is rare that anybody gets along with the one and not with the other.
            woken.wake(self);
        }
        self.header().counters.passes.fetch_add(1, Relaxed);
        Ok(true)
    }

    /// Whether the request in `node_no`, which is in the queue, may wait for those before it ([`Conflict`]).
    fn may_wait(&self, queue: &Queue<'_>, owner_no: OwnerNo, node_no: u32) -> Result<(), LockError> {
        if self.config.conflict == Conflict::Wait || self.owner(owner_no).is_avoiding.load(Relaxed) == 0 {
            return Ok(());
        }
        let mut blockers = Vec::new();
        queue.blockers(node_no, &mut blockers);
        let age = self.age(owner_no);
        if self.config.conflict == Conflict::WaitDie && blockers.iter().all(|&other| self.age(other) > age) {
            return Ok(());
        }
        self.header().counters.refusals.fetch_add(1, Relaxed);
        let node = self.node(node_no);
        let mode = node.wanted().unwrap_or(Mode::X);
        Err(LockError::Refused { name: node.name(), mode, holders: self.ages(blockers) })
    }

    /// Waits if the answer says so. No bucket is latched.
    #[inline]
    fn finish(&self, owner_no: OwnerNo, answer: Answer, wait: Wait) -> Result<Grant, LockError> {
        match answer {
            Answer::Granted(grant) => Ok(grant),
            Answer::Queued { node_no, previous, goes_ahead } => {
                let deadline_ns = if let Wait::Until(deadline_ns) = wait { deadline_ns } else { 0 };
                let depends = self.wait(owner_no, node_no, deadline_ns, goes_ahead)?;
                Ok(Grant { newly: previous.is_none(), previous, depends })
            }
        }
    }

    /// A request where the queue decides. If there is none, it is granted on the spot, as nearly all are.
    #[inline]
    fn lock_in_queue(&self, owner_no: OwnerNo, name: LockName, mode: Mode, wait: Wait) -> Result<Grant, LockError> {
        let queue = self.latch(name, owner_no);
        let owner = self.owner(owner_no);
        if queue.bucket.head.load(Relaxed) == 0
            && !name.is_table()
            && let Some(node_no) = self.take_private(owner)
        {
            let node = self.node(node_no);
            queue.add_alone(node_no, node, name, owner_no, mode);
            self.own_part(owner, node_no, node);
            let depends = Lsn(queue.bucket.commit_lsn.load(Relaxed));
            return Ok(Grant { newly: true, previous: None, depends });
        }
        self.lock_among_others(queue, owner_no, name, mode, wait)
    }

    #[inline(never)]
    fn lock_among_others(
        &self,
        queue: Queue<'_>,
        owner_no: OwnerNo,
        name: LockName,
        mode: Mode,
        wait: Wait,
    ) -> Result<Grant, LockError> {
        let answer = self.request(&queue, owner_no, name, mode, wait);
        drop(queue);
        self.finish(owner_no, answer?, wait)
    }

    /// A request for more than an intention on a table: collects the intentions first (I1, I2).
    #[inline(never)]
    fn lock_strong(&self, owner_no: OwnerNo, name: LockName, mode: Mode, wait: Wait) -> Result<Grant, LockError> {
        let queue = self.latch(name, owner_no);
        queue.bucket.strong.fetch_add(1, SeqCst);
        let answer = self.collect(&queue, owner_no, name).and_then(|depends| {
            self.take_in_all(self.owner(owner_no));
            Ok((depends, self.request(&queue, owner_no, name, mode, wait)?))
        });
        queue.bucket.strong.fetch_sub(1, SeqCst); // By now the node, if there is one, keeps it raised (Q4).
        drop(queue);
        let (depends, answer) = answer?;
        let grant = self.finish(owner_no, answer, wait)?;
        Ok(Grant { depends: grant.depends.max(depends), ..grant })
    }

    /// Gives up all that an owner holds.
    #[inline(never)]
    fn unlock_held(&self, owner_no: OwnerNo, commit_lsn: Option<Lsn>) {
        let owner = self.owner(owner_no);
        self.give_up_intentions(owner, commit_lsn);
        let mut node_no = owner.held_head.load(Relaxed);
        if node_no == 0 {
            return;
        }
        owner.held_head.store(0, Relaxed);
        owner.table_nodes.store(0, Relaxed);
        owner.held_count.store(0, Relaxed);
        let mut lot = Lot::default();
        while node_no != 0 {
            let node = self.node(node_no);
            let next = node.owner_next.load(Relaxed);
            let name = node.name();
            let queue = self.latch_bucket(node.bucket.load(Relaxed), self.holder(owner_no));
            if let (Some(lsn), Some(mode)) = (commit_lsn, node.granted())
                && mode.may_write()
            {
                queue.bucket.raise_commit_lsn(lsn);
            }
            queue.remove(node);
            let woken = queue.admit(name);
            drop(queue);
            if let Some(woken) = woken {
                woken.wake(self);
            }
            self.free_node(owner_no, owner, node_no, &mut lot);
            node_no = next;
        }
        self.give_back(owner_no, lot);
    }

    /// Puts an owner's node back to what it held before.
    fn restore(&self, owner_no: OwnerNo, name: LockName, previous: Option<Mode>) {
        match previous {
            None => drop(self.unlock(owner_no, name)),
            Some(mode) => drop(self.downgrade(owner_no, name, mode)),
        }
    }
}

impl LockTable {
    /// From here on, whoever looks through all owners looks at this one: before its first intention (I1).
    #[inline]
    fn use_owner(&self, owner_no: OwnerNo) {
        if self.header().owners_used.load(Relaxed) <= owner_no.0 {
            self.header().owners_used.fetch_max(owner_no.0 + 1, SeqCst);
        }
    }
}

impl LockManager for LockTable {
    #[cfg(feature = "deaths")]
    fn as_table(&self) -> Option<&LockTable> {
        Some(self)
    }

    #[inline]
    fn begin(&self, owner_no: OwnerNo, age: Xid) {
        let owner = self.owner(owner_no);
        self.enter(owner);
        assert!(LockTable::holds_nothing(owner), "{owner_no} begins as {age} and still holds locks");
        // Read by others only after they met a node of this owner under a bucket's latch.
        owner.age.store(age.0, Relaxed);
        owner.weight.store(0, Relaxed);
        owner.is_avoiding.store(0, Relaxed);
        owner.run.store(owner.run.load(Relaxed).wrapping_add(1), Relaxed);
        self.use_owner(owner_no);
    }

    #[inline]
    fn lock(&self, owner_no: OwnerNo, name: LockName, mode: Mode, wait: Wait) -> Result<Grant, LockError> {
        if self.has_intentions(name) {
            if !mode.is_intention() {
                return self.lock_strong(owner_no, name, mode, wait);
            }
            if let Some(grant) = self.lock_intention(owner_no, name, mode) {
                return Ok(grant);
            }
        }
        self.lock_in_queue(owner_no, name, mode, wait)
    }

    fn lock_instant(&self, owner_no: OwnerNo, name: LockName, mode: Mode, wait: Wait) -> Result<Lsn, LockError> {
        if !self.has_intentions(name) {
            let queue = self.latch(name, owner_no);
            let scan = queue.scan(name, owner_no, Some(mode));
            let held = if scan.mine == 0 { None } else { self.node(scan.mine).granted() };
            let is_free = match held {
                Some(held) => held.covers(mode) || scan.granted.admits(held.supremum(mode)),
                None => scan.granted.union(scan.wanted).admits(mode),
            };
            if is_free {
                return Ok(Lsn(queue.bucket.commit_lsn.load(Relaxed)));
            }
            if wait == Wait::Try {
                return Err(LockError::WouldBlock);
            }
        }
        let grant = self.lock(owner_no, name, mode, wait)?;
        self.restore(owner_no, name, grant.previous);
        Ok(grant.depends)
    }

    fn held(&self, owner_no: OwnerNo, name: LockName) -> Option<Mode> {
        let owner = self.owner(owner_no);
        // Nothing of the owner is changed, so that its lists stay its own thread's, whichever thread asks (T3).
        if self.has_intentions(name) {
            if let Some(mode) = self.intention_of(owner, name) {
                return Some(mode);
            }
            // In this order: what is taken in is counted before its word goes (`take_in`).
            if !LockTable::is_collected(owner) && owner.table_nodes.load(Relaxed) == 0 {
                return None;
            }
        }
        let queue = self.latch_bucket(self.bucket_no(name), self.caller()); // Not in the name of the owner's thread.
        let scan = queue.scan(name, owner_no, None);
        if scan.mine == 0 { None } else { self.node(scan.mine).granted() }
    }

    fn held_by_any(&self, name: LockName) -> Option<Mode> {
        let queue = self.latch_bucket(self.bucket_no(name), self.caller());
        let mut any = if self.has_intentions(name) { self.intention_of_any(name) } else { None };
        queue.for_each(name, |_, node| {
            if let Some(mode) = node.granted() {
                any = Some(any.map_or(mode, |other: Mode| other.supremum(mode)));
            }
        });
        any
    }

    fn depends(&self, name: LockName) -> Lsn {
        Lsn(self.latch_bucket(self.bucket_no(name), self.caller()).bucket.commit_lsn.load(Relaxed))
    }

    fn downgrade(&self, owner_no: OwnerNo, name: LockName, to: Mode) -> Option<Mode> {
        if self.has_intentions(name) {
            let owner = self.owner(owner_no);
            if let Some((place, mode)) = self.find_intention(owner, name) {
                if to == mode || !mode.covers(to) {
                    return Some(mode);
                }
                if self.lower_intention(owner, place, name) {
                    return Some(Mode::IS);
                }
            }
        }
        let queue = self.latch(name, owner_no);
        let scan = queue.scan(name, owner_no, None);
        if scan.mine == 0 {
            return None;
        }
        let node = self.node(scan.mine);
        let held = node.granted()?;
        if !held.covers(to) || held == to {
            return Some(held);
        }
        queue.set_modes(node, Some(to), None);
        let woken = queue.admit(name);
        drop(queue);
        if let Some(woken) = woken {
            woken.wake(self);
        }
        Some(to)
    }

    fn unlock(&self, owner_no: OwnerNo, name: LockName) -> Option<Mode> {
        if self.has_intentions(name) {
            let owner = self.owner(owner_no);
            if let Some((place, mode)) = self.find_intention(owner, name)
                && self.drop_intention(owner, place, name, mode)
            {
                return Some(mode);
            }
        }
        let queue = self.latch(name, owner_no);
        let scan = queue.scan(name, owner_no, None);
        if scan.mine == 0 {
            return None;
        }
        let node = self.node(scan.mine);
        let held = node.granted();
        queue.remove(node);
        let woken = queue.admit(name);
        drop(queue);
        if let Some(woken) = woken {
            woken.wake(self);
        }
        self.disown(owner_no, scan.mine);
        held
    }

    fn unlock_keys(&self, owner_no: OwnerNo, table: TableId) -> u32 {
        let owner = self.owner(owner_no);
        let Some(whole) = self.held(owner_no, LockName::table(table)) else { return 0 };
        let mut node_no = owner.held_head.load(Relaxed);
        let mut count = 0;
        while node_no != 0 {
            let node = self.node(node_no);
            let next = node.owner_next.load(Relaxed);
            let name = node.name();
            let is_covered = || node.granted().is_none_or(|mode| whole.stands_for(mode));
            if name.is_part() && name.table_id() == table && is_covered() {
                let queue = self.latch_bucket(node.bucket.load(Relaxed), self.holder(owner_no));
                queue.remove(node);
                let woken = queue.admit(name);
                drop(queue);
                if let Some(woken) = woken {
                    woken.wake(self);
                }
                self.disown(owner_no, node_no);
                count += 1;
            }
            node_no = next;
        }
        count
    }

    fn free_count(&self) -> u32 {
        let taken = u32::try_from(LockTable::stats(self).nodes_taken).unwrap_or(u32::MAX);
        self.config.locks_max.saturating_sub(taken)
    }

    #[inline]
    fn unlock_all(&self, owner_no: OwnerNo, commit_lsn: Option<Lsn>) {
        if !LockTable::holds_nothing(self.owner(owner_no)) {
            self.unlock_held(owner_no, commit_lsn);
        }
    }

    fn for_each_held(&self, owner_no: OwnerNo, visit: &mut dyn FnMut(LockName, Mode)) {
        let owner = self.owner(owner_no);
        self.take_in_each(owner, &mut *visit);
        self.for_each_owned(owner, &mut *visit);
    }

    fn cancel_all_waits(&self) {
        self.cancel_waits();
    }

    fn allow_waits(&self) {
        self.header().is_cancelled.store(0, SeqCst);
    }

    fn may_avoid_deadlocks(&self) -> bool {
        self.config.conflict != Conflict::Wait
    }

    fn avoid_deadlocks(&self, owner_no: OwnerNo) {
        self.owner(owner_no).is_avoiding.store(1, Relaxed);
    }

    fn hold_up(&self, outer: OwnerNo, by: OwnerNo) {
        let (held_up, owner) = (self.owner(outer), self.owner(by));
        // Before the request of `by` is queued. Its places are its thread's own.
        if let Some(place) = owner.outer.iter().find(|place| place.load(Relaxed) == 0) {
            place.store(held_up.as_outer(outer), SeqCst);
            owner.holds_up.store(owner.holds_up.load(Relaxed) + 1, SeqCst);
            self.raise(Flag::HoldsUp, by);
        }
    }

    fn let_go(&self, outer: OwnerNo, by: OwnerNo) {
        let owner = self.owner(by);
        // `outer` may have begun anew.
        let is_meant = |place: &&AtomicU64| place.load(Relaxed) as u32 == outer.0 + 1;
        if let Some(place) = owner.outer.iter().find(is_meant) {
            place.store(0, SeqCst);
            let left = owner.holds_up.load(Relaxed) - 1;
            owner.holds_up.store(left, SeqCst);
            if left == 0 {
                self.lower(Flag::HoldsUp, by);
            }
        }
    }

    fn awaits_end(&self, waiter: OwnerNo, of: OwnerNo) -> bool {
        self.leads_to(waiter, of)
    }

    fn adopt(&self, owner_no: OwnerNo, thread: SlotNo) {
        // A repair may be mending the owner: not after this transaction, but after the last one here.
        LockTable::change_thread(self.owner(owner_no), Holder::of(thread));
        self.use_owner(owner_no); // It may have died while it began.
    }

    fn is_held_up_by(&self, thread: SlotNo) -> bool {
        self.has_latched(thread)
    }

    fn set_weight(&self, owner_no: OwnerNo, weight: u64) {
        self.owner(owner_no).weight.store(weight, Relaxed);
    }

    fn detect(&self) -> u32 {
        self.search_all()
    }

    fn waits(&self) -> Vec<DeadlockEdge> {
        self.all_waits()
    }

    fn stats(&self) -> LockStats {
        LockTable::stats(self)
    }
}
