//! About how many records a tree has, from a few of its nodes.
//!
//! A walk goes from the root to a leaf. It multiplies what it finds: the children of each node on its way, and the
//! records of the leaf. If all nodes of a level were alike, that would be the count. Walks that are spread evenly over
//! the children of every node have the count as their mean, however much the nodes differ.

use super::node::Node;
use super::search::{Aim, Descent};
use super::tree::Tree;
use crate::TreeError;

/// Walks: each reads at most one leaf.
const WALK_COUNT: u32 = 64;

impl Tree {
    /// About how many records the tree has, without ghosts. Reads some dozen pages at most, and locks nothing: what
    /// others change meanwhile is seen or not. A tree that is one leaf is counted.
    ///
    /// # Errors
    /// A page cannot be read.
    pub fn estimated_count(&self) -> Result<u64, TreeError> {
        self.estimated(0)
    }

    /// About how many leaves the tree has, found in the same way.
    ///
    /// # Errors
    /// A page cannot be read.
    pub fn estimated_leaf_count(&self) -> Result<u64, TreeError> {
        if self.height()? == 0 { Ok(1) } else { self.estimated(1) }
    }

    /// About how many entries the nodes of this level have.
    fn estimated(&self, level: u8) -> Result<u64, TreeError> {
        let (mut sum, mut count) = (0.0, 0_u32);
        for walk in 0..WALK_COUNT {
            if let Some(product) = self.walk((f64::from(walk) + 0.5) / f64::from(WALK_COUNT), level)? {
                sum += product;
                count += 1;
            }
        }
        Ok((sum / f64::from(count.max(1))).round() as u64)
    }

    /// One walk, down to this level, to the place that has this share of the tree before it. None if the tree becomes
    /// lower meanwhile.
    fn walk(&self, mut share: f64, lowest: u8) -> Result<Option<f64>, TreeError> {
        let (mut product, mut key) = (1.0, Vec::new());
        for level in (lowest..=self.height()?).rev() {
            let mut descent = Descent::default();
            let (count, next) = loop {
                let Some(held) = self.find_at(Aim::Key(&key), level, &mut descent)? else { return Ok(None) };
                let node = Node::new(held.words());
                let count = node.count();
                let is_inner = level > 0 && count > 0;
                let slot = ((share * count as f64) as usize).min(node.last_slot());
                let next = match slot {
                    _ if !is_inner => Vec::new(),
                    0 => node.low(),
                    slot => node.key(slot),
                };
                let count = if level > 0 { count } else { count.saturating_sub(node.ghosts()) };
                if held.check().is_ok() {
                    break (count, next);
                }
                drop(held);
                descent.restarted();
            };
            share = (share * count as f64).fract();
            product *= count as f64;
            key = next;
        }
        Ok(Some(product))
    }
}
