//! A full node becomes two.
//!
//! ```text
//!        before                         one group                        a second group, in the parent
//!   ┌───────────────┐         ┌──────────┐ link ┌──────────┐
//!   │ a b c d e f g │   ──►   │ a b c d  │─────►│ e f g    │   ──►   separator e, page of e f g
//!   └───────────────┘         └──────────┘      └──────────┘
//! ```
//! P1. A split is one record of the log: the map's bit, the right node with all its content, the left node cut. It is
//!     redone whole or not at all, and never undone.
//! P2. Between the two groups the tree is whole: the right node is found by the link. A thread that moves right posts
//!     (`post.rs`).
//! P3. The root stays where it is: its content moves to two new nodes, and it becomes their parent.
//! P4. The cut leaves room for what the split was made for, on whichever side it falls. Keys that come in order leave
//!     full leaves behind: at the right end the cut is made where the new key goes. The records of the left leaf then
//!     stay where they are, and the right leaf is empty.
//! P5. Before a leaf is split, the ghosts and pads that nobody holds go. That may make room enough.
//! P6. No rollback splits: there may be no space (W4 in `write.rs`).
//! P7. Three records that are nearly half a page each may need three leaves. Then the node is cut as it is, and the
//!     thread that needs the room finds the right half full, or not, and asks again.

use ledgerstone_buffer::ExclusivePage;
use ledgerstone_lock::Mode;
use ledgerstone_page::planted::{self, Bug};
use ledgerstone_page::{OpId, PageId};
use ledgerstone_region::Words;
use ledgerstone_space::{FreeRun, OP_SPACE_SET};
use ledgerstone_txn::{Part, RECORD_OVERHEAD_BYTES, Txn};

use super::args::{FenceArgs, FormatArgs};
use super::edit::{Plan, child_value, fits_alone, fits_fence, plan_insert, plan_replace, size_of};
use super::entry::{Entry, entries_of, separator_between, separator_of, without_first};
use super::node::{CHILD_BYTES, Node};
use super::ops::{OP_NODE_FENCE, OP_NODE_FORMAT};
use super::search::{Descent, Unposted};
use super::tree::Tree;
use crate::TreeError;
use crate::scratch::PageScratch;

/// What a node lacks room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need<'a> {
    /// A new record in a leaf.
    Insert {
        /// Its key.
        key: &'a [u8],
        /// Bytes of its value.
        value_len: usize,
    },
    /// A longer value of a leaf's record.
    Replace {
        /// Its key.
        key: &'a [u8],
        /// Bytes of its new value.
        value_len: usize,
    },
    /// A child of a node at this level.
    Child {
        /// The separator.
        key: &'a [u8],
        /// Level of the node.
        level: u8,
    },
}

impl Need<'_> {
    fn key(&self) -> &[u8] {
        match self {
            Need::Insert { key, .. } | Need::Replace { key, .. } | Need::Child { key, .. } => key,
        }
    }

    fn level(&self) -> u8 {
        match self {
            Need::Insert { .. } | Need::Replace { .. } => 0,
            Need::Child { level, .. } => *level,
        }
    }

    /// True if the node lacks the room (no longer: somebody split it, or purged it).
    fn is_lacking(&self, node: &Node<Words<'_>>) -> bool {
        let plan = match (self, node.search(self.key())) {
            (Need::Insert { key, value_len }, Err(_)) => plan_insert(node, key, *value_len),
            (Need::Replace { value_len, .. }, Ok(slot)) => plan_replace(node, slot, *value_len),
            (Need::Child { key, .. }, Err(_)) => plan_insert(node, key, CHILD_BYTES),
            _ => return false,
        };
        plan == Plan::Full
    }
}

/// Where to cut, in entries of the node as it is, and with which separator.
struct Cut {
    keep: usize,
    separator: Vec<u8>,
}

impl Tree {
    /// Makes room in the leaf of a key, by purging ghosts or by splitting. Hold no latch.
    pub(crate) fn make_room(&self, txn: &mut Txn, need: &Need<'_>) -> Result<(), TreeError> {
        if need.level() == 0 {
            txn.claim(4 * RECORD_OVERHEAD_BYTES + self.page_bytes / 4)?;
            let mut leaf = self.latch_leaf_of(need.key(), &mut Descent::default())?;
            let id = leaf.id();
            if !self.try_lock_leaf(txn, id, Mode::X)? {
                drop(leaf);
                return self.wait_for_leaf(txn, id, Mode::X); // The thread that needs the room looks again.
            }
            self.purge_latched(txn, &mut leaf)?;
            if !need.is_lacking(&Node::new(leaf.words())) {
                return Ok(());
            }
        }
        self.split(txn, need)
    }

    /// Splits the node that lacks room for `need`, and posts the new node in the parent. Hold no latch.
    pub(crate) fn split(&self, txn: &mut Txn, need: &Need<'_>) -> Result<(), TreeError> {
        match self.split_unposted(txn, need)? {
            Some(unposted) => self.post(txn, unposted),
            None => Ok(()),
        }
    }

    /// Splits the node that lacks room for `need`, and says which one the parent does not know yet (P2).
    pub(super) fn split_unposted(&self, txn: &mut Txn, need: &Need<'_>) -> Result<Option<Unposted>, TreeError> {
        let (key, level) = (need.key(), need.level());
        let mut descent = Descent::default();
        loop {
            // The content once, in one half or shared by two, with their fences, and the new root.
            txn.claim(self.page_bytes + self.page_bytes / 2 + 8 * RECORD_OVERHEAD_BYTES)?;
            let Some(found) = self.find_at(super::search::Aim::Key(key), level, &mut descent)? else {
                return Ok(None); // The level has gone, and the need with it.
            };
            let id = found.id();
            drop(found);
            let is_root = id == self.root;
            let run = self.space.latch_free(if is_root { 2 } else { 1 })?;
            let Some(page) = self.exclusive_if_there(id)? else {
                drop(run);
                descent.restarted();
                continue;
            };
            let node = Node::new(page.words());
            if !node.is_of(self.root) || node.level() != level || node.is_before(key) || node.is_beyond(key) {
                drop((page, run));
                descent.restarted();
                continue;
            }
            if !need.is_lacking(&node) {
                return Ok(None);
            }
            if level == 0
                && let Some(busy) = self.lock_for_split(txn, id, &run)?
            {
                drop((page, run));
                self.wait_for_leaf(txn, busy, Mode::X)?;
                continue;
            }
            return self.split_latched(txn, run, page, need);
        }
    }

    /// Locks a leaf that is to be split, and the new ones (H2 in `page_locks.rs`). Returns one that must be waited for.
    fn lock_for_split(&self, txn: &mut Txn, leaf: PageId, run: &FreeRun<'_>) -> Result<Option<PageId>, TreeError> {
        let new = (0..u64::from(run.count)).map(|n| PageId(run.first.0 + n));
        for id in std::iter::once(leaf).chain(new) {
            if !self.try_lock_leaf(txn, id, Mode::X)? {
                return Ok(Some(id));
            }
        }
        Ok(None)
    }

    /// Splits a latched node into itself and the page of `run` (or, the root, into the two pages of `run`).
    fn split_latched<'t>(
        &'t self,
        txn: &mut Txn,
        mut run: FreeRun<'t>,
        mut page: ExclusivePage<'t>,
        need: &Need<'_>,
    ) -> Result<Option<Unposted>, TreeError> {
        if page.id() != self.root
            && let Some(separator) = split_at_end(&Node::new(page.words()), need)
        {
            let link = PageId(0);
            let right = FormatArgs { root: self.root, level: 0, link, low: &separator, high: &[], entries: Vec::new() };
            let keep = Node::new(page.words()).count();
            let full = page.id();
            let unposted = self.split_off(txn, run, page, Cut { keep, separator: separator.clone() }, &right)?;
            self.engine.cache.leave_behind(full);
            return Ok(unposted);
        }
        let mut copy = PageScratch::new(self.page_bytes);
        page.words().copy_to(0, &mut copy);
        let node = Node::new(&copy[..]);
        let (level, low, high, link) = (node.level(), node.low(), node.high(), node.link());
        let entries = entries_of(&node);
        let Some(cut) = split_choose_cut(&node, &low, &high, &entries, need) else {
            return Err(Self::corrupt(page.id(), "place to cut a full node", 1, 0));
        };
        let (left, right) = entries.split_at(cut.keep);
        let right = without_first(level, right); // N4
        let separator = cut.separator.clone();
        let right = FormatArgs { root: self.root, level, link, low: &separator, high: &high, entries: right };
        if page.id() != self.root {
            return self.split_off(txn, run, page, cut, &right);
        }
        let cache = &self.engine.cache;
        let set = run.args_set();
        let right_id = PageId(run.first.0 + 1);
        let format_right = right.write();
        let mut right_page = cache.exclusive_new(right_id)?;
        // P3.
        let left_id = run.first;
        let format_left = FormatArgs {
            root: self.root,
            level,
            link: right_id,
            low: &low,
            high: &cut.separator,
            entries: left.to_vec(),
        }
        .write();
        let (left_child, right_child) = (child_value(left_id), child_value(right_id));
        let children = vec![
            Entry::new(&[], CHILD_BYTES as u16, &left_child),
            Entry::new(&cut.separator, CHILD_BYTES as u16, &right_child),
        ];
        let format_root = FormatArgs {
            root: self.root,
            level: level.saturating_add(1),
            link: PageId(0),
            low: &[],
            high: &[],
            entries: children,
        }
        .write();
        let mut left_page = cache.exclusive_new(left_id)?;
        txn.group(
            &mut [&mut run.map, &mut page, &mut left_page, &mut right_page],
            &[
                Part { page: 0, op: OP_SPACE_SET, args: &set },
                Part { page: 2, op: OP_NODE_FORMAT, args: &format_left },
                Part { page: 3, op: OP_NODE_FORMAT, args: &format_right },
                Part { page: 1, op: OP_NODE_FORMAT, args: &format_root },
            ],
        )?;
        Ok(None)
    }

    /// Cuts a latched node that is not the root; the page of `run` becomes its right half.
    fn split_off<'t>(
        &'t self,
        txn: &mut Txn,
        mut run: FreeRun<'t>,
        mut page: ExclusivePage<'t>,
        cut: Cut,
        right: &FormatArgs<'_>,
    ) -> Result<Option<Unposted>, TreeError> {
        let (set, right_id) = (run.args_set(), run.first);
        let format_right = right.write();
        let fence = FenceArgs { keep: cut.keep, link: right_id, high: &cut.separator }.write();
        let mut right_page = self.engine.cache.exclusive_new(right_id)?;
        let parts: [(usize, OpId, &[u8]); 3] =
            [(0, OP_SPACE_SET, &set), (1, OP_NODE_FORMAT, &format_right), (2, OP_NODE_FENCE, &fence)];
        let parts = parts.map(|(page, op, args)| Part { page, op, args });
        let pages = &mut [&mut run.map, &mut right_page, &mut page];
        if planted::is_on(Bug::HalfSplit) {
            txn.group(pages, &parts[2..])?;
            txn.group(pages, &parts[..2])?;
        } else {
            txn.group(pages, &parts)?;
        }
        Ok(Some(Unposted { level: right.level.saturating_add(1), separator: cut.separator, child: right_id }))
    }
}

/// The separator of a split that leaves a leaf at the right end as it is, for a record behind all others (P4).
fn split_at_end(node: &Node<Words<'_>>, need: &Need<'_>) -> Option<Vec<u8>> {
    let Need::Insert { key, value_len } = need else { return None };
    if node.level() > 0 || !node.is_rightmost() || node.count() == 0 || node.search(key) != Err(node.count()) {
        return None;
    }
    let separator = separator_between(&node.key(node.last_slot()), key);
    let fits = fits_fence(node, &separator) && fits_alone(node.page_bytes(), &separator, key, *value_len);
    fits.then_some(separator)
}

/// Finds the cut nearest to the best one that leaves two nodes which fit: with what is needed if there is one (P4),
/// else as the node is (P7).
fn split_choose_cut(
    node: &Node<&[u8]>,
    low: &[u8],
    high: &[u8],
    entries: &[Entry<'_>],
    need: &Need<'_>,
) -> Option<Cut> {
    let room;
    let mut planned = Vec::with_capacity(entries.len() + 1);
    planned.extend_from_slice(entries);
    // The node as it will be: what is needed stands in it already.
    let mut new_at = None;
    match need {
        Need::Insert { key, value_len } => {
            room = vec![0u8; *value_len];
            let at = node.search(key).unwrap_or_else(|at| at);
            planned.insert(at, Entry::new(key, 0, &room));
            new_at = Some(at);
        }
        Need::Replace { key, value_len } => {
            room = vec![0u8; *value_len];
            let entry = planned.get_mut(node.search(key).ok()?)?;
            *entry = entry.with(entry.header, &room);
        }
        // A child is small: the halves have room for it.
        Need::Child { .. } => {}
    }
    let is_at_end = match need {
        Need::Child { key, .. } => node.search(key) == Err(entries.len()),
        _ => new_at == Some(entries.len()),
    };
    let best = if is_at_end && node.is_rightmost() { planned.len() - 1 } else { split_middle(&planned) };
    split_nearest_cut(node, (low, high), &planned, best, new_at).or_else(|| {
        // P7. The halves part where the new record goes, so that it has the better chance in either.
        let best = new_at.unwrap_or_else(|| split_middle(entries)).clamp(1, entries.len().max(2) - 1);
        split_nearest_cut(node, (low, high), entries, best, None)
    })
}

/// The cut nearest to `best` that leaves two nodes which fit. The record at `new_at` is not there yet.
fn split_nearest_cut(
    node: &Node<&[u8]>,
    (low, high): (&[u8], &[u8]),
    planned: &[Entry<'_>],
    best: usize,
    new_at: Option<usize>,
) -> Option<Cut> {
    let is_inner = node.level() > 0;
    let cut_at = |at: usize| {
        let (left, right) = planned.split_at(at);
        let separator = if is_inner { right[0].key() } else { separator_of(&left[at - 1], &right[0]) };
        let without = if is_inner { without_first(node.level(), right) } else { Vec::new() };
        let right = if is_inner { &without } else { right };
        let page_bytes = node.page_bytes();
        let fits = size_of(node.level(), low, &separator, left) <= page_bytes
            && size_of(node.level(), &separator, high, right) <= page_bytes;
        let keep = if new_at.is_some_and(|new| new < at) { at - 1 } else { at };
        fits.then_some(Cut { keep, separator })
    };
    // Outwards from the best.
    (0..planned.len()).find_map(|distance| {
        let above = best + distance;
        let below = best.checked_sub(distance).filter(|&at| at > 0 && distance > 0);
        let above = if (1..planned.len()).contains(&above) { cut_at(above) } else { None };
        above.or_else(|| below.and_then(cut_at))
    })
}

/// Where half of the bytes lie on either side.
fn split_middle(entries: &[Entry<'_>]) -> usize {
    let bytes = |entry: &Entry<'_>| entry.body_bytes() + super::node::SLOT_BYTES;
    let all: usize = entries.iter().map(bytes).sum();
    let mut left = 0;
    for (at, entry) in entries.iter().enumerate() {
        left += bytes(entry);
        if 2 * left >= all {
            // The entry in the middle goes where it makes the halves more alike.
            let at = if 2 * left - all > bytes(entry) { at } else { at + 1 };
            return at.clamp(1, entries.len().max(2) - 1);
        }
    }
    1
}
