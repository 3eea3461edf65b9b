//! Who is granted what: all that happens with a bucket latched.
//!
//! A request is a node whose modes say where it stands:
//!
//! ```text
//!  granted  wanted
//!  -        -        free
//!  G        -        holds G
//!  -        W        waits for W
//!  G        W        holds G and waits to hold W instead (an upgrade)
//! ```
//!
//! Q1. A new request is granted if its mode is compatible with everything that others hold for the name, with what
//!     their upgrades want, and with what older transactions wait for. So the oldest is served first. No transaction
//!     starves, since only finitely many are older. If two wait for each other's locks, the one that survives is also
//!     the next to be served.
//! Q2. An upgrade is granted if its mode gets along with all that others hold. It passes those that hold nothing, since
//!     they would wait for it in vain; two upgrades that exclude each other are a deadlock, which `deadlock` finds.
//! Q3. Whenever a mode in a queue goes down or a node leaves it, [`Queue::admit`] grants what Q1 and Q2 allow now. So
//!     a request that waits has a reason in the queue, or stands behind a waiter that has been told to give up and has
//!     not left yet. In the latter case, the pass that follows that waiter's leaving serves the others.
//! Q4. `waiting` and `strong` of the bucket count its nodes with a wanted mode, and those that name a table with a
//!     granted or wanted mode that is not an intention.
//! Q5. In a chain the nodes with a granted mode come first, then those that only wait, by age. So a thread that asks
//!     looks at the holders and, of those that wait, only at the first that stand in its way.
//! Q6. What was granted to a sleeper is not its own until it has woken up, tens of microseconds later. Until then an
//!     owner that runs may pass it: the sleeper waits again, by its age, and the lock does not lie idle. A sleeper is
//!     not passed if it holds many locks (more than [`PASSED_HELD_MAX`]), or holds others up, or upgrades. Whoever
//!     passes one that holds anything may come to wait for that, and then it is a deadlock. It takes transactions that
//!     lock in different orders, and where there are some, deadlocks are found anyway. So for [`CAREFUL_NS`] after each
//!     of them, only a sleeper that holds nothing else is passed. It is passed at most [`PASSES_MAX`] times. And it is
//!     not passed when [`PASSED_NS_MAX`], or an eighth of the time that it still had, has gone by since it was passed
//!     first. To pass is to take a mode down, so Q3 applies. A request that only the sleeper kept out would otherwise
//!     wait for nobody, in no cycle. It would wait for ever if the passing owner came to wait for it.
//! Q7. A sleeper that is passed waits for the owner that passes it, which runs, and for nobody else that waits for a
//!     third. So no pass closes a cycle, which nobody would search for: those in it have searched by then. A sleeper
//!     is therefore not passed where it would stand behind an older request or an upgrade that others hold up.
//! Q8. The modes of a node say whether it is a request. If so, it is in the chain of the bucket that it names. If not,
//!     it is in none. Links and counts follow. So one store makes a request, and one ends it. The store is
//!     a release: whoever reads the modes of any node, with no latch held, then reads what belongs to them. If the
//!     holder of the latch dies, a repair makes the chain again from the nodes (`rebuild`).

use ledgerstone_region::atomic::{
    AtomicU32, Ordering::Acquire, Ordering::Relaxed, Ordering::Release, Ordering::SeqCst,
};
use ledgerstone_region::sync;

use crate::bucket::Holder;
use crate::mode::ModeSet;
use crate::table::{Bucket, LockTable, Node};
use crate::wait_word::Sleeper;
use crate::{LockName, Mode, OwnerNo, bucket, standing, wait_word};

/// How often a sleeper is passed: some of them make up for the cost of waking it, and more do not make it cheaper.
pub(crate) const PASSES_MAX: u32 = 64;
/// How many locks a sleeper holds at most that is passed. If one with the few locks of a short transaction were not
/// passed, each wait for a branch of a bank would cost a wake-up.
pub(crate) const PASSED_HELD_MAX: u32 = 16;
/// For how long after a deadlock no sleeper with other locks is passed.
pub(crate) const CAREFUL_NS: u64 = 100_000_000;
/// For how long a sleeper is passed. A processor that is free wakes it sooner, and where none is, the others must not
/// keep it out.
const PASSED_NS_MAX: u64 = 1_000_000;

/// A request that was granted to an owner that has not woken up yet, and what its wait word said.
pub(crate) struct GrantedAsleep {
    node_no: u32,
    seen: u32,
}

/// A latched bucket; dropping it unlatches.
pub(crate) struct Queue<'a> {
    pub(crate) table: &'a LockTable,
    pub(crate) bucket: &'a Bucket,
    pub(crate) bucket_no: u32,
}

/// What the queue for a name says to one owner.
pub(crate) struct Scan {
    /// The owner's own node, 0 if it has none.
    pub mine: u32,
    /// What others hold.
    pub granted: ModeSet,
    /// What others wait for.
    pub wanted: ModeSet,
}

impl Drop for Queue<'_> {
    #[inline]
    fn drop(&mut self) {
        bucket::unlatch(&self.bucket.latch);
    }
}

impl LockTable {
    /// Latches the bucket of `name` in the name of an owner.
    #[inline]
    pub(crate) fn latch(&self, name: LockName, owner_no: OwnerNo) -> Queue<'_> {
        self.latch_bucket(self.bucket_no(name), self.holder(owner_no))
    }

    #[inline]
    pub(crate) fn latch_bucket(&self, bucket_no: u32, holder: Holder) -> Queue<'_> {
        sync::yield_point("lock bucket");
        let bucket = &self.buckets[bucket_no as usize];
        bucket::latch(&bucket.latch, holder);
        Queue { table: self, bucket, bucket_no }
    }
}

impl Queue<'_> {
    /// Looks at the requests for `name`, for `owner`. It looks at all that hold something and, as long as nothing
    /// forbids `mode`, at the older ones that only wait. Without a mode it looks at none of these.
    #[inline]
    pub(crate) fn scan(&self, name: LockName, owner: OwnerNo, mode: Option<Mode>) -> Scan {
        let mut scan = Scan { mine: 0, granted: ModeSet::EMPTY, wanted: ModeSet::EMPTY };
        let forbids = |mode: Mode, scan: &Scan| !scan.granted.union(scan.wanted).admits(mode);
        let mut node_no = self.bucket.head.load(Relaxed);
        while node_no != 0 {
            let node = self.table.node(node_no);
            if node.granted_number() == 0 {
                // Q5: what comes now only waits. Of that, those that are younger do not matter (Q1).
                let Some(mode) = mode else { break };
                if forbids(mode, &scan) || self.table.age(node.owner_no()) > self.table.age(owner) {
                    break;
                }
            }
            if node.is_for(name) {
                if node.owner_no() == owner {
                    scan.mine = node_no;
                } else {
                    scan.granted.add_number(node.granted_number());
                    scan.wanted.add_number(node.wanted_number());
                }
            }
            node_no = node.next.load(Relaxed);
        }
        scan
    }

    /// Calls `visit` for each request for `name`: those that hold something, then those that only wait, in the order in
    /// which they are served. `visit` may move the node that it was given.
    #[inline]
    pub(crate) fn for_each(&self, name: LockName, mut visit: impl FnMut(u32, &Node)) {
        self.for_each_until(name, |node_no, node| {
            visit(node_no, node);
            true
        });
    }

    /// As [`Queue::for_each`], until `visit` returns false.
    #[inline]
    fn for_each_until(&self, name: LockName, mut visit: impl FnMut(u32, &Node) -> bool) {
        let mut node_no = self.bucket.head.load(Relaxed);
        while node_no != 0 {
            let node = self.table.node(node_no);
            let next = node.next.load(Relaxed);
            if node.is_for(name) && !visit(node_no, node) {
                return;
            }
            node_no = next;
        }
    }

    /// Fills a free node and puts it into the chain (Q5). Returns whether it went before others that wait.
    #[inline]
    pub(crate) fn add(
        &self,
        node_no: u32,
        name: LockName,
        owner: OwnerNo,
        granted: Option<Mode>,
        wanted: Option<Mode>,
    ) -> bool {
        let node = self.table.node(node_no);
        node.space.store(name.space, Relaxed);
        node.item.store(name.item, Relaxed);
        node.owner.store(owner.0, Release); // Behind the mark of a collected one (I7).
        node.bucket.store(self.bucket_no, Relaxed);
        node.passes.store(0, Relaxed);
        let mut before = 0;
        if granted.is_none() {
            before = self.bucket.tail.load(Relaxed);
            let age = self.table.age(owner);
            while before != 0 {
                let other = self.table.node(before);
                if other.granted_number() != 0 || self.table.age(other.owner_no()) <= age {
                    break;
                }
                before = other.previous.load(Relaxed);
            }
        }
        self.link_after(node_no, node, before);
        self.set_modes(node, granted, wanted);
        granted.is_none() && node.next.load(Relaxed) != 0
    }

    /// The same for a part of a table that is granted `mode` where the chain is empty: nobody's count changes (Q4).
    #[inline]
    pub(crate) fn add_alone(&self, node_no: u32, node: &Node, name: LockName, owner: OwnerNo, mode: Mode) {
        node.space.store(name.space, Relaxed);
        node.item.store(name.item, Relaxed);
        node.owner.store(owner.0, Relaxed);
        node.bucket.store(self.bucket_no, Relaxed);
        node.passes.store(0, Relaxed);
        node.next.store(0, Relaxed);
        node.previous.store(0, Relaxed);
        standing::publish(&node.modes, mode as u32); // Q8
        self.bucket.head.store(node_no, Relaxed);
        self.bucket.tail.store(node_no, Relaxed);
    }

    /// Puts a node behind `before` in the chain; 0: first of all.
    #[inline]
    fn link_after(&self, node_no: u32, node: &Node, before: u32) {
        let link = if before == 0 { &self.bucket.head } else { &self.table.node(before).next };
        let next = link.load(Relaxed);
        link.store(node_no, Relaxed);
        node.previous.store(before, Relaxed);
        node.next.store(next, Relaxed);
        let back = if next == 0 { &self.bucket.tail } else { &self.table.node(next).previous };
        back.store(node_no, Relaxed);
    }

    /// Takes a node out of the chain. It is nobody's afterwards; [`Queue::admit`] must follow (Q3).
    #[inline]
    pub(crate) fn remove(&self, node: &Node) {
        self.set_modes(node, None, None);
        self.unlink(node);
    }

    #[inline]
    fn unlink(&self, node: &Node) {
        let (previous, next) = (node.previous.load(Relaxed), node.next.load(Relaxed));
        if previous == 0 {
            self.bucket.head.store(next, Relaxed);
        } else {
            self.table.node(previous).next.store(next, Relaxed);
        }
        if next == 0 {
            self.bucket.tail.store(previous, Relaxed);
        } else {
            self.table.node(next).previous.store(previous, Relaxed);
        }
    }

    /// The only place but [`Queue::add_alone`] that changes the modes of a node, and so the one that keeps Q4.
    #[inline]
    pub(crate) fn set_modes(&self, node: &Node, granted: Option<Mode>, wanted: Option<Mode>) {
        let number = |mode: Option<Mode>| mode.map_or(0, |m| m as u32);
        let (before, after) = (node.modes.load(Relaxed), number(granted) | number(wanted) << 8);
        standing::publish(&node.modes, after); // Q8
        if (before | after) >> 8 != 0 {
            add(&self.bucket.waiting, i32::from(after >> 8 != 0) - i32::from(before >> 8 != 0));
        }
        if node.space.load(Relaxed) & 3 == 0 && node.item.load(Relaxed) == 0 {
            match (is_strong(before), is_strong(after)) {
                (false, true) => drop(self.bucket.strong.fetch_add(1, SeqCst)), // See `intention`.
                (true, false) => drop(self.bucket.strong.fetch_sub(1, SeqCst)),
                _ => {}
            }
        }
    }

    /// Grants every request for `name` that nothing in the queue forbids any more (Q1, Q2). The result must be woken
    /// after the bucket is unlatched.
    #[inline]
    #[must_use]
    pub(crate) fn admit(&self, name: LockName) -> Option<Woken> {
        if self.bucket.waiting.load(Relaxed) == 0 { None } else { self.admit_waiting(name) }
    }

    #[cold]
    #[inline(never)]
    fn admit_waiting(&self, name: LockName) -> Option<Woken> {
        let mut held = [0_u32; 7];
        // However many wait, only the holders are counted (Q5).
        self.for_each_until(name, |_, node| {
            held[(node.granted_number() & 7) as usize] += 1;
            node.granted_number() != 0
        });
        let holders_but = |held: &[u32; 7], own: u32| {
            let mut set = ModeSet::EMPTY;
            for mode in Mode::ALL {
                if held[mode as usize] > u32::from(mode as u32 == own) {
                    set.add(mode);
                }
            }
            set
        };
        let mut woken = Woken { owners: [OwnerNo(0); WOKEN_MAX], count: 0 };
        let mut ahead = ModeSet::EMPTY;
        self.for_each_until(name, |_, node| {
            if let (Some(has), Some(wants)) = (node.granted(), node.wanted()) {
                if holders_but(&held, has as u32).admits(wants) && self.grant(node, wants, &mut woken) {
                    held[has as usize] -= 1;
                    held[wants as usize] += 1;
                } else {
                    ahead.add(wants);
                }
            }
            node.granted_number() != 0
        });
        self.for_each_until(name, |node_no, node| {
            let (None, Some(wants)) = (node.granted(), node.wanted()) else { return true };
            let in_the_way = holders_but(&held, 0).union(ahead);
            if in_the_way.admits(wants) && self.grant(node, wants, &mut woken) {
                held[wants as usize] += 1;
                self.unlink(node);
                self.link_after(node_no, node, 0); // Q5
            } else {
                ahead.add(wants);
            }
            in_the_way.admits(Mode::IS) // What forbids the weakest mode forbids all.
        });
        (woken.count > 0).then_some(woken)
    }

    /// False if the waiter was told to give up a moment ago: it will leave the queue, and is not granted anything.
    fn grant(&self, node: &Node, mode: Mode, woken: &mut Woken) -> bool {
        let owner_no = node.owner_no();
        let word = &self.table.owner(owner_no).wait_word;
        let held = node.granted();
        // First: an owner that sees its word looks at its own nodes without the latch.
        self.set_modes(node, Some(mode), None);
        sync::yield_point("lock granted");
        match wait_word::end_wait(word, wait_word::ticket(word.load(Relaxed)), wait_word::GRANTED) {
            None => {
                self.set_modes(node, held, Some(mode));
                return false;
            }
            Some(Sleeper::Asleep) => woken.add(owner_no, word),
            Some(Sleeper::Awake) => {}
        }
        true
    }

    /// The only one that keeps a request of an owner that runs from its lock, if it sleeps and may be passed (Q6).
    #[cold]
    pub(crate) fn sleeper(&self, name: LockName, mode: Mode) -> Option<GrantedAsleep> {
        let mut in_the_way = 0;
        let mut is_one = true;
        let (mut others, mut upgrades, mut oldest) = (0, false, None);
        self.for_each_until(name, |node_no, node| {
            let Some(held) = node.granted() else {
                oldest = Some(self.table.age(node.owner_no()));
                return false;
            };
            let waits_to_hold = node.wanted().is_some_and(|wanted| !mode.is_compatible_with(wanted));
            if waits_to_hold || !mode.is_compatible_with(held) {
                is_one &= in_the_way == 0 && !waits_to_hold;
                in_the_way = node_no;
            } else {
                others += 1;
                upgrades |= node.wanted().is_some();
            }
            is_one
        });
        if in_the_way == 0 || !is_one {
            return None;
        }
        let node = self.table.node(in_the_way);
        let owner = self.table.owner(node.owner_no());
        let seen = owner.wait_word.load(Acquire);
        // While the word says so, the owner is in its wait and changes nothing of what is looked at here.
        let is_asleep = wait_word::state(seen) == wait_word::GRANTED && owner.wait_node.load(Relaxed) == in_the_way;
        let held = owner.held_count.load(Relaxed);
        let is_careful = || sync::now_ns() < self.table.header().careful_until_ns.load(Relaxed);
        let is_needed = held > PASSED_HELD_MAX
            || owner.holds_up.load(Relaxed) != 0
            || LockTable::is_collected(owner)
            || (held > 1 && is_careful());
        let is_behind_older = || oldest.is_some_and(|oldest| oldest < self.table.age(node.owner_no()));
        let joins_a_chain = others > 0 && is_behind_older() || others > 1 && upgrades;
        let passes = node.passes.load(Relaxed);
        let may_be_passed = is_asleep
            && !is_needed
            && !joins_a_chain
            && passes < PASSES_MAX
            && (passes == 0 || sync::now_ns() < node.passed_until_ns.load(Relaxed));
        may_be_passed.then_some(GrantedAsleep { node_no: in_the_way, seen })
    }

    /// Takes back what the sleeper was granted: it waits again. False if it has just woken up. The passing owner takes
    /// the lock next. Then it lets in, with [`Queue::admit`], the requests that only the sleeper kept out (Q3).
    pub(crate) fn pass(&self, sleeper: &GrantedAsleep) -> bool {
        let node = self.table.node(sleeper.node_no);
        let owner = self.table.owner(node.owner_no());
        if !wait_word::take_back(&owner.wait_word, sleeper.seen) {
            return false;
        }
        let passes = node.passes.load(Relaxed);
        if passes == 0 {
            let now_ns = sync::now_ns();
            let left_ns = owner.wait_deadline_ns.load(Relaxed).saturating_sub(now_ns);
            node.passed_until_ns.store(now_ns.saturating_add(PASSED_NS_MAX.min(left_ns / 8)), Relaxed);
        }
        node.passes.store(passes + 1, Relaxed);
        self.unlink(node);
        self.set_modes(node, None, node.granted());
        self.link_by_age(sleeper.node_no, node);
        true
    }

    /// Puts a node that waits again where it stood: from the front, since it was among the first.
    fn link_by_age(&self, node_no: u32, node: &Node) {
        let age = self.table.age(node.owner_no());
        let (mut before, mut next) = (0, self.bucket.head.load(Relaxed));
        while next != 0 {
            let other = self.table.node(next);
            if other.granted_number() == 0 && self.table.age(other.owner_no()) > age {
                break;
            }
            (before, next) = (next, other.next.load(Relaxed));
        }
        self.link_after(node_no, node, before);
    }

    /// Those for whom the request in `node_no` waits: what keeps Q1 or Q2 from granting it.
    pub(crate) fn blockers(&self, node_no: u32, into: &mut Vec<OwnerNo>) {
        self.for_each_blocker(node_no, |owner_no, _| into.push(owner_no));
    }

    /// As [`Queue::blockers`], but none that only waits itself and wants no more than the waiter: those for whom it
    /// waits are among the waiter's. So each owner that can be reached along the arrows still can, and a queue of `n`
    /// writers has `n` arrows and not a square of them.
    pub(crate) fn nearest_blockers(&self, node_no: u32, into: &mut Vec<OwnerNo>) {
        let Some(wants) = self.table.node(node_no).wanted() else { return };
        self.for_each_blocker(node_no, |owner_no, only_wants| {
            if !only_wants.is_some_and(|wanted| wants.covers(wanted)) {
                into.push(owner_no);
            }
        });
    }

    /// Calls `visit` for each, with what it wants if it holds nothing.
    fn for_each_blocker(&self, node_no: u32, mut visit: impl FnMut(OwnerNo, Option<Mode>)) {
        let waiter = self.table.node(node_no);
        let Some(wants) = waiter.wanted() else { return };
        let is_upgrade = waiter.granted().is_some();
        let mut is_ahead = true;
        self.for_each(waiter.name(), |other_no, other| {
            if other_no == node_no {
                is_ahead = false;
                return;
            }
            let (has, wanted) = (other.granted(), other.wanted());
            let blocks_by_holding = has.is_some_and(|held| !wants.is_compatible_with(held));
            let goes_first = !is_upgrade && (is_ahead || has.is_some());
            if blocks_by_holding || (goes_first && wanted.is_some_and(|held| !wants.is_compatible_with(held))) {
                visit(other.owner_no(), if has.is_none() { wanted } else { None });
            }
        });
    }
}

/// Whether a node for a table with these modes is counted in `strong` (Q4).
#[inline]
pub(crate) fn is_strong(modes: u32) -> bool {
    modes & 0xff > Mode::IX as u32 || modes >> 8 > Mode::IX as u32
}

fn add(count: &AtomicU32, change: i32) {
    count.store(count.load(Relaxed).wrapping_add_signed(change), Relaxed); // Under the bucket's latch.
}

const WOKEN_MAX: usize = 30;

/// Owners that were granted what they wait for, and have not been woken yet. They are woken after the latch is let go,
/// so that they do not run into it.
pub(crate) struct Woken {
    owners: [OwnerNo; WOKEN_MAX],
    count: usize,
}

impl Woken {
    fn add(&mut self, owner_no: OwnerNo, word: &AtomicU32) {
        if let Some(place) = self.owners.get_mut(self.count) {
            *place = owner_no;
            self.count += 1;
        } else {
            sync::futex_wake(word, 1);
        }
    }

    /// Wakes them; best with no bucket latched.
    pub(crate) fn wake(self, table: &LockTable) {
        for &owner_no in &self.owners[..self.count] {
            sync::futex_wake(&table.owner(owner_no).wait_word, 1);
        }
    }
}
