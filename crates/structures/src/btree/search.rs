//! Finding the place of a key: down from the root without latches, to the right where a split has not been posted yet.
//!
//! D1. Before an id is followed, the page that named it is checked: the id was really there. After the target's version
//!     was read it is checked again: the target had not been freed and used for something else in between (version
//!     coupling).
//! D2. A page whose high fence is not above the key was split: the key lies to the right, by the link (Lehman & Yao).
//! D3. Every restart is counted. After a few, the descent latches its way down, shared, parent before child, and so
//!     ends.
//! D4. What a descent returns counts only after another check of the page, unless it is latched.
//! D5. Leaves are always there; a level above them may go while somebody is on the way to it, since the root may take
//!     the content of its only child.
//! D6. A writer that has restarted often waits for the exclusive latch. To take it only where no thread holds the node
//!     shared would never succeed in a crowd. Of many threads in a latched descent, one has always lost its processor
//!     there.
//! D7. A page that is a leaf of the tree, and whose fences hold the key, is the key's leaf, however its id was learnt.
//!     What was split off, merged or moved away shows in its fences, and a page that was freed is a leaf no more. The
//!     tree has to stay while the id is kept: leaves of a dropped tree still name it.
//!
//! Writers that moved right remember the link, and post the missing child when they are done (`post.rs`).

use std::cmp::Ordering;

use ledgerstone_buffer::{ExclusivePage, OptimisticPage, Restart, SharedPage};
use ledgerstone_lock::Mode;
use ledgerstone_page::{PageId, planted};
use ledgerstone_region::{Words, sync};
use ledgerstone_txn::{KeyLock, Txn, key_hash};

use super::bytes::Bytes;
use super::node::{Node, Probe};
use super::tree::Tree;
use crate::TreeError;

/// Restarts before a descent latches.
const RESTARTS_MAX: u32 = 32;
/// Pages that one descent looks at, at most: levels and moves to the right. More means that the tree is not a tree.
const STEPS_MAX: u32 = 100_000;

/// Where a descent is to end.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Aim<'k> {
    /// Where this key is or would be.
    Key(&'k [u8]),
    /// Where the largest key below this bound is or would be.
    Below(&'k [u8]),
    /// At the right end.
    Last,
}

impl<'k> Aim<'k> {
    /// What is searched if the aim is a key.
    #[inline]
    fn probe(self) -> Probe<'k> {
        match self {
            Aim::Key(key) => Probe::new(key),
            Aim::Below(_) | Aim::Last => Probe::new(&[]),
        }
    }

    /// True if the aim lies right of this node (D2).
    fn is_beyond<B: Bytes>(self, node: &Node<B>) -> bool {
        match self {
            Aim::Key(key) => node.is_beyond(key),
            Aim::Below(bound) => !node.is_rightmost() && node.compare_high(bound) == Ordering::Less,
            Aim::Last => !node.is_rightmost(),
        }
    }

    #[inline(always)]
    fn child_slot<B: Bytes>(self, node: &Node<B>, probe: &Probe<'_>) -> usize {
        match self {
            Aim::Key(_) => node.child_slot_of(probe),
            Aim::Below(bound) => node.child_slot_below(bound),
            Aim::Last => node.last_slot(),
        }
    }
}

/// A link that a descent followed because the parent did not know the page yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unposted {
    /// Level of the parent that lacks it.
    pub level: u8,
    /// First key of the page.
    pub separator: Vec<u8>,
    /// The page.
    pub child: PageId,
}

/// What a descent remembers over its restarts.
#[derive(Debug, Default)]
pub(crate) struct Descent {
    restarts: u32,
    /// Set by a caller that wants to know: the last link that was followed.
    pub wants_unposted: bool,
    /// The last link that was followed.
    pub unposted: Option<Unposted>,
}

impl Descent {
    /// The descent of a writer, which posts what is missing.
    pub(crate) fn of_writer() -> Descent {
        Descent { wants_unposted: true, ..Descent::default() }
    }

    pub(crate) fn restarted(&mut self) {
        self.restarts += 1;
        self.unposted = None; // It may have been read from bytes that were changing.
        sync::yield_point("tree descent restarts");
    }

    #[cfg(test)]
    pub(crate) fn restart_count(&self) -> u32 {
        self.restarts
    }

    pub(crate) fn is_latching(&self) -> bool {
        self.restarts > RESTARTS_MAX || planted::latches_now()
    }

    fn moves_right<B: Bytes>(&mut self, node: &Node<B>) {
        if self.wants_unposted {
            self.unposted =
                Some(Unposted { level: node.level().saturating_add(1), separator: node.high(), child: node.link() });
        }
    }
}

/// A node to read.
pub(crate) enum Held<'a> {
    /// Not latched: what is read counts after a check.
    Optimistic(OptimisticPage<'a>),
    /// Latched.
    Shared(SharedPage<'a>),
}

impl<'a> Held<'a> {
    /// The page as it was found, with no latch held from here on.
    #[inline]
    pub(crate) fn unlatched(self) -> OptimisticPage<'a> {
        match self {
            Held::Optimistic(page) => page,
            Held::Shared(page) => page.unlatch(),
        }
    }

    #[inline]
    pub(crate) fn words(&self) -> Words<'_> {
        match self {
            Held::Optimistic(page) => page.words(),
            Held::Shared(page) => page.words(),
        }
    }

    #[inline]
    pub(crate) fn id(&self) -> PageId {
        match self {
            Held::Optimistic(page) => page.id(),
            Held::Shared(page) => page.id(),
        }
    }

    #[inline]
    pub(crate) fn check(&self) -> Result<(), Restart> {
        match self {
            Held::Optimistic(page) => page.check(),
            Held::Shared(_) => Ok(()),
        }
    }
}

/// A leaf, and where in it a key is (`Ok`) or would be (`Err`).
pub(crate) struct Spot<P> {
    pub page: P,
    pub slot: Result<usize, usize>,
}

/// What came of a try to lock the gap in which a key is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gap {
    /// It is locked, and the leaf has not changed: the answer stands.
    Locked,
    /// The leaf changed: look again.
    Changed,
    /// Somebody holds it: wait for it with no latch held, then look again.
    Held(KeyLock),
}

/// Why a descent did not arrive.
pub(crate) enum Miss {
    /// A page changed on the way.
    Changed,
    /// The tree is lower than the level that was the aim (D5).
    Lower,
}

/// One step of a descent.
enum Step {
    /// This is the node. With a key as aim, this is its slot.
    Here(Result<usize, usize>),
    /// Down or to the right.
    Go(PageId),
}

impl Tree {
    /// The leaf of `key`, and its slot there.
    #[inline]
    pub(crate) fn find_key(&self, key: &[u8], descent: &mut Descent) -> Result<Spot<Held<'_>>, TreeError> {
        self.find_spot(Aim::Key(key), 0, descent)?.ok_or_else(|| self.no_leaf())
    }

    /// The leaf of `key`, if all pages on the way are in memory and stand still. Its bytes are on their way from memory
    /// to the processor, and not looked at yet. So a caller that takes a lock first saves one of two waits. No promise:
    /// see [`Tree::key_in`].
    #[inline]
    pub(crate) fn leaf_ahead(&self, key: &[u8]) -> Option<OptimisticPage<'_>> {
        self.leaf_ahead_of(&Probe::new(key))
    }

    /// The same for a key that is searched once more afterwards.
    #[inline]
    pub(crate) fn leaf_ahead_of(&self, probe: &Probe<'_>) -> Option<OptimisticPage<'_>> {
        const LEVELS_MAX: usize = 16;
        if planted::latches_now() {
            return None;
        }
        let cache = &self.engine.cache;
        let mut page = cache.optimistic_if_here(self.root)?;
        for _ in 0..LEVELS_MAX {
            let node = Node::new(page.words());
            if !node.is_of(self.root) {
                return None;
            }
            if node.level() == 0 {
                return (page.id() == self.root).then_some(page); // All of the tree is this page.
            }
            let slot = node.child_slot_of(probe);
            if node.is_last(slot) && node.is_beyond(probe.key()) {
                return None;
            }
            let (child, is_leaf) = (node.child(slot), node.level() == 1);
            let target = cache.optimistic_if_here(child)?;
            page.check().ok()?; // D1
            if is_leaf {
                return Some(target);
            }
            page = target;
        }
        None
    }

    /// The slot of `key` in what [`Tree::leaf_ahead`] found, or none if that is not its leaf. Counts after a check
    /// (D4).
    #[inline]
    pub(crate) fn key_in<'a>(&self, leaf: OptimisticPage<'a>, key: &[u8]) -> Option<Spot<Held<'a>>> {
        let (_, slot) = self.node_ahead(&leaf, &Probe::new(key))?;
        Some(Spot { page: Held::Optimistic(leaf), slot })
    }

    /// The same, with the node.
    #[inline]
    pub(crate) fn node_ahead<'a>(
        &self,
        leaf: &OptimisticPage<'a>,
        probe: &Probe<'_>,
    ) -> Option<(Node<Words<'a>>, Result<usize, usize>)> {
        let node = Node::new(leaf.words());
        if !node.is_of(self.root) || node.level() != 0 {
            return None;
        }
        match node.find(probe) {
            Err(slot) if slot == node.count() && node.is_beyond(probe.key()) => None,
            slot => Some((node, slot)),
        }
    }

    /// The leaf at the aim. What is read of it counts after a check (D4).
    pub(crate) fn find_leaf(&self, aim: Aim<'_>, descent: &mut Descent) -> Result<Held<'_>, TreeError> {
        self.find_at(aim, 0, descent)?.ok_or_else(|| self.no_leaf())
    }

    /// The node of `level` at the aim. `None` if the tree is lower (D5). What is read of it counts after a check (D4).
    pub(crate) fn find_at(
        &self,
        aim: Aim<'_>,
        level: u8,
        descent: &mut Descent,
    ) -> Result<Option<Held<'_>>, TreeError> {
        Ok(self.find_spot(aim, level, descent)?.map(|spot| spot.page))
    }

    #[inline]
    fn find_spot(&self, aim: Aim<'_>, level: u8, descent: &mut Descent) -> Result<Option<Spot<Held<'_>>>, TreeError> {
        loop {
            if descent.is_latching() {
                let found = self.find_latched(aim, level, descent)?;
                return Ok(found.map(|Spot { page, slot }| Spot { page: Held::Shared(page), slot }));
            }
            match self.try_find(aim, level, descent)? {
                Ok(Spot { page, slot }) => return Ok(Some(Spot { page: Held::Optimistic(page), slot })),
                Err(Miss::Lower) => return Ok(None),
                Err(Miss::Changed) => descent.restarted(),
            }
        }
    }

    /// What no level below the leaves' can be.
    fn no_leaf(&self) -> TreeError {
        Self::corrupt(self.root, "leaves of a b-tree", 1, 0)
    }

    /// One optimistic descent.
    #[inline]
    pub(crate) fn try_find(
        &self,
        aim: Aim<'_>,
        level: u8,
        descent: &mut Descent,
    ) -> Result<Result<Spot<OptimisticPage<'_>>, Miss>, TreeError> {
        let cache = &self.engine.cache;
        let (probe, mut page) = (aim.probe(), cache.optimistic(self.root)?);
        for _ in 0..STEPS_MAX {
            let node = Node::new(page.words());
            if !node.is_of(self.root) || node.level() < level {
                let is_lower = page.id() == self.root && node.is_of(self.root);
                return match page.check() {
                    Err(Restart) => Ok(Err(Miss::Changed)),
                    Ok(()) if is_lower => Ok(Err(Miss::Lower)),
                    Ok(()) => Err(self.not_a_node(page.id(), &node, level)),
                };
            }
            let next = match self.step((aim, &probe), level, &node, descent) {
                Step::Here(slot) => return Ok(Ok(Spot { page, slot })),
                Step::Go(next) => next,
            };
            // D1: the id is real.
            if page.check().is_err() {
                return Ok(Err(Miss::Changed));
            }
            let target = match cache.optimistic(next) {
                Ok(target) => target,
                // A page that was freed meanwhile may be unreadable. One that is still named may not.
                Err(_) if page.check().is_err() => return Ok(Err(Miss::Changed)),
                Err(error) => return Err(error.into()),
            };
            touch_slots(target.words());
            // D1: it still stands after the target's version was read.
            if page.check().is_err() {
                return Ok(Err(Miss::Changed));
            }
            page = target;
        }
        Err(Self::corrupt(self.root, "steps of a descent", u64::from(STEPS_MAX), u64::from(STEPS_MAX) + 1))
    }

    #[inline(always)]
    fn step<B: Bytes>(
        &self,
        (aim, probe): (Aim<'_>, &Probe<'_>),
        level: u8,
        node: &Node<B>,
        descent: &mut Descent,
    ) -> Step {
        // Only what lies behind the last key can lie behind the high fence: that spares most descents the look at it.
        if node.level() == level {
            let slot = match aim {
                Aim::Key(_) => node.find(probe),
                Aim::Below(_) | Aim::Last => Err(node.count()),
            };
            if slot != Err(node.count()) || !aim.is_beyond(node) {
                return Step::Here(slot);
            }
            descent.moves_right(node);
            return Step::Go(node.link());
        }
        let slot = aim.child_slot(node, probe);
        if slot + 1 >= node.count() && aim.is_beyond(node) {
            descent.moves_right(node);
            return Step::Go(node.link());
        }
        Step::Go(node.child(slot))
    }

    fn not_a_node<B: Bytes>(&self, id: PageId, node: &Node<B>, level: u8) -> TreeError {
        if node.is_of(self.root) {
            Self::corrupt(id, "level of a b-tree node", u64::from(level), u64::from(node.level()))
        } else {
            Self::corrupt(id, "owner of a b-tree node", self.root.0, node.bytes().u64(super::node::OWNER_AT))
        }
    }

    /// The descent that always ends: shared latches, parent before child, left before right (D3).
    fn find_latched(
        &self,
        aim: Aim<'_>,
        level: u8,
        descent: &mut Descent,
    ) -> Result<Option<Spot<SharedPage<'_>>>, TreeError> {
        let cache = &self.engine.cache;
        let (probe, mut page) = (aim.probe(), cache.shared(self.root)?);
        for _ in 0..STEPS_MAX {
            let node = Node::new(page.words());
            if !node.is_of(self.root) || node.level() < level {
                if page.id() == self.root && node.is_of(self.root) {
                    return Ok(None);
                }
                return Err(self.not_a_node(page.id(), &node, level));
            }
            match self.step((aim, &probe), level, &node, descent) {
                Step::Here(slot) => return Ok(Some(Spot { page, slot })),
                Step::Go(next) => page = cache.shared(next)?,
            }
        }
        Err(Self::corrupt(self.root, "steps of a descent", u64::from(STEPS_MAX), u64::from(STEPS_MAX) + 1))
    }

    /// The leaf of `key`, latched exclusively without a descent (D7). Tried is the leaf where this transaction has put
    /// its last record behind all others.
    #[inline]
    pub(crate) fn latch_near(&self, txn: &mut Txn, key: &[u8], descent: &Descent) -> Option<Spot<ExclusivePage<'_>>> {
        let near = txn.near(self.root)?;
        let found = if descent.is_latching() { None } else { self.try_latch_near(near, key) };
        if found.is_none() {
            txn.set_near(self.root, PageId::NONE);
        }
        found
    }

    #[inline(never)]
    fn try_latch_near(&self, near: PageId, key: &[u8]) -> Option<Spot<ExclusivePage<'_>>> {
        let page = self.engine.cache.optimistic_if_here(near)?;
        let node = Node::new(page.words());
        if !node.is_of(self.root) || node.level() != 0 {
            return None;
        }
        // Only what lies before or behind all keys can lie outside of the fences.
        let slot = node.find_from_end(&Probe::new(key));
        if slot == Err(0) && node.is_before(key) || slot == Err(node.count()) && node.is_beyond(key) {
            return None;
        }
        if slot == Err(node.count()) && node.link() != PageId(0) && page.check().is_ok() {
            let _ = self.engine.cache.optimistic(node.link()); // As in `latch_leaf`.
        }
        let page = page.try_upgrade().ok()?;
        Some(Spot { page, slot })
    }

    /// The leaf of `key`, latched exclusively.
    #[inline]
    pub(crate) fn latch_leaf(&self, key: &[u8], descent: &mut Descent) -> Result<Spot<ExclusivePage<'_>>, TreeError> {
        while !descent.is_latching() {
            if let Ok(Spot { page, slot }) = self.try_find(Aim::Key(key), 0, descent)? {
                let node = Node::new(page.words());
                if slot == Err(node.count()) && node.link() != PageId(0) && page.check().is_ok() {
                    // The writer will look at the next leaf's first key: bring it in before anything is latched.
                    let _ = self.engine.cache.optimistic(node.link());
                }
                if let Ok(page) = page.try_upgrade() {
                    return Ok(Spot { page, slot });
                }
            }
            descent.restarted();
        }
        let page = self.latch_leaf_waiting(key, descent)?;
        let slot = Node::new(page.words()).search(key);
        Ok(Spot { page, slot })
    }

    /// The leaf whose range holds `key`, latched exclusively, and nothing said of the key.
    pub(crate) fn latch_leaf_of(&self, key: &[u8], descent: &mut Descent) -> Result<ExclusivePage<'_>, TreeError> {
        loop {
            if descent.is_latching() {
                return self.latch_leaf_waiting(key, descent);
            }
            if let Ok(spot) = self.try_find(Aim::Key(key), 0, descent)?
                && let Ok(page) = spot.page.try_upgrade()
            {
                return Ok(page);
            }
            descent.restarted();
        }
    }

    /// A page latched exclusively whose id was read a while ago. `None` if it was freed and the file cut off before it.
    pub(crate) fn exclusive_if_there(&self, id: PageId) -> Result<Option<ExclusivePage<'_>>, TreeError> {
        match self.engine.cache.exclusive(id) {
            Ok(page) => Ok(Some(page)),
            Err(error) if error.is_never_written() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// As [`Tree::latch_leaf_of`], waiting for the leaf's latch.
    fn latch_leaf_waiting(&self, key: &[u8], descent: &mut Descent) -> Result<ExclusivePage<'_>, TreeError> {
        self.latch_waiting(key, 0, descent)?.ok_or_else(|| self.no_leaf())
    }

    /// The node of `level` whose range holds `key`, latched exclusively. `None` if the tree is lower (D5). Waits asleep
    /// for the latch, so that the threads of a crowd get the same node one by one (D6). The node is found under shared
    /// latches, given up, and latched anew: whatever happened to it meanwhile shows in its fences, and a key that moved
    /// right is followed.
    pub(crate) fn latch_waiting(
        &self,
        key: &[u8],
        level: u8,
        descent: &mut Descent,
    ) -> Result<Option<ExclusivePage<'_>>, TreeError> {
        loop {
            let Some(found) = self.find_latched(Aim::Key(key), level, descent)? else { return Ok(None) };
            let id = found.page.id();
            drop(found);
            if let Some(page) = self.exclusive_if_there(id)? {
                let node = Node::new(page.words());
                if node.is_of(self.root) && node.level() == level && !node.is_before(key) && !node.is_beyond(key) {
                    return Ok(Some(page));
                }
            }
            descent.restarted();
        }
    }

    /// The lock name of the gap before the key in `slot` of the leaf `words`, or, past its end, before the first key to
    /// the right. The leaves that were looked at on the way are in `behind`: the name counts if they pass their checks.
    ///
    /// `None`: a leaf to the right changed while it was read.
    pub(crate) fn gap_of<'t>(
        &'t self,
        words: Words<'_>,
        slot: usize,
        behind: &mut Behind<'t>,
    ) -> Result<Option<KeyLock>, TreeError> {
        let node = Node::new(words);
        if slot < node.count() {
            return Ok(Some(KeyLock::Gap(hash_of(&node, slot))));
        }
        let mut link = node.link();
        for _ in 0..STEPS_MAX {
            if link == PageId(0) {
                return Ok(Some(KeyLock::Supremum));
            }
            let page = match self.engine.cache.optimistic(link) {
                Ok(page) => page,
                // A link read from bytes that were changing: the reader checks before believing the error.
                Err(error) => return behind.unless_changed(error.into()),
            };
            behind.pages.push(page);
            let node = Node::new(page.words());
            if !node.is_of(self.root) {
                return behind.unless_changed(self.not_a_node(page.id(), &node, 0));
            }
            if node.count() > 0 {
                return Ok(Some(KeyLock::Gap(hash_of(&node, 0))));
            }
            link = node.link();
            if page.check().is_err() {
                return Ok(None);
            }
        }
        Err(Self::corrupt(self.root, "empty leaves in a row", u64::from(STEPS_MAX), u64::from(STEPS_MAX) + 1))
    }

    /// Locks the gap before `slot` of a leaf, shared, if that needs no waiting (T2 in `tree.rs`).
    pub(crate) fn try_lock_gap(&self, txn: &mut Txn, leaf: &Held<'_>, slot: usize) -> Result<Gap, TreeError> {
        let mut behind = Behind::default();
        let gap = match self.gap_of(leaf.words(), slot, &mut behind) {
            Ok(Some(gap)) => gap,
            Ok(None) => return Ok(Gap::Changed),
            Err(_) if leaf.check().is_err() => return Ok(Gap::Changed),
            Err(error) => return Err(error),
        };
        if leaf.check().is_err() || !behind.is_unchanged() {
            return Ok(Gap::Changed);
        }
        if !txn.try_lock_key(self.table, gap, Mode::S)? {
            return Ok(Gap::Held(gap));
        }
        if leaf.check().is_err() || !behind.is_unchanged() { Ok(Gap::Changed) } else { Ok(Gap::Locked) }
    }
}

/// Leaves that were read on the way to the next key.
#[derive(Default)]
pub(crate) struct Behind<'t> {
    pages: Vec<OptimisticPage<'t>>,
}

impl Behind<'_> {
    pub(crate) fn is_unchanged(&self) -> bool {
        self.pages.iter().all(|page| page.check().is_ok())
    }

    /// The error counts only if all that led to it still stands.
    fn unless_changed(&self, error: TreeError) -> Result<Option<KeyLock>, TreeError> {
        if self.is_unchanged() { Err(error) } else { Ok(None) }
    }
}

/// Asks memory for the lines where slots usually lie while the header is still on its way. The search could ask for
/// them only after it has read the header, and each of the two waits costs more than everything else in a node.
#[inline]
fn touch_slots(words: Words<'_>) {
    const LINE: usize = 64;
    for line in 1..5 {
        std::hint::black_box(words.u64(line * LINE));
    }
}

/// The lock hash of the key in `slot`.
pub(crate) fn hash_of<B: Bytes>(node: &Node<B>, slot: usize) -> u64 {
    with_key(node, slot, key_hash)
}

/// Calls `f` with the key in `slot`, without allocating for keys of usual length.
pub(crate) fn with_key<B: Bytes, T>(node: &Node<B>, slot: usize, f: impl FnOnce(&[u8]) -> T) -> T {
    const SHORT: usize = 128;
    let record = node.record(slot);
    let (prefix_len, key_len) = (node.prefix_len(), record.key_len);
    let len = prefix_len + key_len;
    if len <= SHORT && slot >= node.first() {
        let mut key = [0u8; SHORT];
        node.bytes().copy_to(node.prefix_at(), &mut key[..prefix_len]);
        node.bytes().copy_to(record.key_at(), &mut key[prefix_len..len]);
        f(&key[..len])
    } else {
        f(&node.key(slot))
    }
}
