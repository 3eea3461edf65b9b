//! The parent learns of a node that a split made.
//!
//! The writer that split a node posts it. So does any writer that found a node by a link instead of from above,
//! because the one that split it may have died in between. Posting twice does nothing.
//!
//! M1. A node is posted only while the left neighbour that its parent knows still leads to it, by links, at exactly
//!     this separator. That is read between the parent's version and its latch: a node can only be unlinked again when
//!     its parent knows it, which changes the parent.
//! M2. No space is not a failure here: the tree is whole without the separator, only slower.

use std::cmp::Ordering;

use ledgerstone_buffer::{ExclusivePage, OptimisticPage, Restart};
use ledgerstone_page::PageId;
use ledgerstone_region::Words;
use ledgerstone_space::SpaceError;
use ledgerstone_txn::{Part, RECORD_OVERHEAD_BYTES, Txn};

use super::args::PostArgs;
use super::edit::{Plan, plan_insert};
use super::node::{CHILD_BYTES, Node};
use super::ops::OP_NODE_POST;
use super::search::{Aim, Descent, Unposted};
use super::split::Need;
use super::tree::Tree;
use crate::TreeError;

/// Nodes that are walked along to find the one to post.
const WALK_MAX: u32 = 1000;

/// A node that is read first, and may be written then.
enum Parent<'a> {
    /// What is read of it counts after a check.
    Optimistic(OptimisticPage<'a>),
    Latched(ExclusivePage<'a>),
}

impl<'a> Parent<'a> {
    fn words(&self) -> Words<'_> {
        match self {
            Parent::Optimistic(page) => page.words(),
            Parent::Latched(page) => page.words(),
        }
    }

    fn check(&self) -> Result<(), Restart> {
        match self {
            Parent::Optimistic(page) => page.check(),
            Parent::Latched(_) => Ok(()),
        }
    }

    /// Latched exclusively, if it is still what was read.
    fn latched(self) -> Result<ExclusivePage<'a>, Restart> {
        match self {
            Parent::Optimistic(page) => page.try_upgrade(),
            Parent::Latched(page) => Ok(page),
        }
    }
}

impl Tree {
    /// Posts what a writer's descent found missing. Hold no latch.
    pub(crate) fn post_missing(&self, txn: &mut Txn, descent: Descent) -> Result<(), TreeError> {
        match descent.unposted {
            Some(unposted) => self.post(txn, unposted),
            None => Ok(()),
        }
    }

    /// Posts a node in its parent, unless that is done, no longer due, or lacks space (M2). Hold no latch.
    pub(crate) fn post(&self, txn: &mut Txn, unposted: Unposted) -> Result<(), TreeError> {
        match self.post_surely(txn, &unposted) {
            Err(TreeError::Space(SpaceError::NoSpace { .. })) => Ok(()),
            other => other,
        }
    }

    /// As [`Tree::post`], but no space is an error.
    pub(crate) fn post_surely(&self, txn: &mut Txn, unposted: &Unposted) -> Result<(), TreeError> {
        self.post_by(txn, unposted, &mut Descent::default())
    }

    /// The same by a descent that has begun, and so may latch its way.
    pub(super) fn post_by(&self, txn: &mut Txn, unposted: &Unposted, descent: &mut Descent) -> Result<(), TreeError> {
        let separator = unposted.separator.as_slice();
        loop {
            txn.claim(2 * RECORD_OVERHEAD_BYTES + separator.len())?;
            let Some(parent) = self.parent_of(unposted, descent)? else {
                return Ok(()); // The tree has become lower: the node has long been posted and unlinked.
            };
            let node = Node::new(parent.words());
            let Err(slot) = node.search(separator) else { return Ok(()) };
            let left = node.child(slot.saturating_sub(1));
            let is_full = plan_insert(&node, separator, CHILD_BYTES) == Plan::Full;
            if parent.check().is_err() {
                descent.restarted();
                continue;
            }
            // M1.
            match self.leads_to(left, unposted) {
                Ok(Some(true)) => {}
                Ok(Some(false)) if parent.check().is_ok() => return Ok(()),
                Ok(_) => {
                    descent.restarted();
                    continue;
                }
                Err(_) if parent.check().is_err() => {
                    descent.restarted();
                    continue;
                }
                Err(error) => return Err(error),
            }
            if is_full {
                drop(parent);
                self.split(txn, &Need::Child { key: separator, level: unposted.level })?;
                continue;
            }
            let Ok(mut parent) = parent.latched() else {
                descent.restarted();
                continue;
            };
            let args = PostArgs { slot, child: unposted.child, key: separator }.write();
            txn.group(&mut [&mut parent], &[Part { page: 0, op: OP_NODE_POST, args: &args }])?;
            return Ok(());
        }
    }

    /// The node that is to know of `unposted`. `None` if the tree is lower.
    fn parent_of(&self, unposted: &Unposted, descent: &mut Descent) -> Result<Option<Parent<'_>>, TreeError> {
        let (separator, level) = (unposted.separator.as_slice(), unposted.level);
        if descent.is_latching() {
            return Ok(self.latch_waiting(separator, level, descent)?.map(Parent::Latched)); // D6
        }
        let found = self.find_at(Aim::Key(separator), level, descent)?;
        Ok(found.map(|parent| Parent::Optimistic(parent.unlatched())))
    }

    /// True if the links from `left` on lead to the node at its separator; `None`: a node changed meanwhile.
    fn leads_to(&self, left: PageId, unposted: &Unposted) -> Result<Option<bool>, TreeError> {
        let mut id = left;
        for _ in 0..WALK_MAX {
            let page = self.engine.cache.optimistic(id)?;
            let node = Node::new(page.words());
            let is_of = node.is_of(self.root) && node.level().saturating_add(1) == unposted.level;
            let order = if node.is_rightmost() { Ordering::Greater } else { node.compare_high(&unposted.separator) };
            let link = node.link();
            if page.check().is_err() {
                return Ok(None);
            }
            match order {
                _ if !is_of => return Ok(Some(false)),
                Ordering::Equal => return Ok(Some(link == unposted.child)),
                Ordering::Greater => return Ok(Some(false)),
                Ordering::Less => id = link,
            }
        }
        Ok(Some(false))
    }
}
