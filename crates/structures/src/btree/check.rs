//! A whole tree, proved: every node by itself, and what the nodes say of each other.
//!
//! V1. From the root down the levels fall by one; each level is a chain of links from its leftmost node to one without.
//! V2. In a chain, each node's low fence is the high fence of the one before; the first has none, the last has no high
//!     one.
//! V3. The children of a level are nodes of the chain below, in order; each begins at its separator. Nodes of the chain
//!     that no parent names are splits that have not been posted: allowed, and counted.
//! V4. No page is there twice, in nodes or in blobs.
//! V5. A page that cannot be read is one problem. The check goes on at the next node that a parent names; what only
//!     that page named is not in the report, which says that it is partial.
//! V6. The tree is walked once, child by child, all levels side by side: what is kept is a node of each level, and a
//!     bit for each page.
//!
//! The tree must stand still: hold a shared lock on its table.

use std::ops::ControlFlow;

use ledgerstone_buffer::BufferError;
use ledgerstone_page::{Corrupt, PageId, PageSet};

use super::node::Node;
use super::node_check::check_bytes;
use super::tree::Tree;
use crate::TreeError;
use crate::blob::{self, BlobRef};

/// What a check of a tree found.
#[derive(Debug, Clone, Default)]
pub struct TreeReport {
    /// Records, without ghosts.
    pub record_count: u64,
    /// Deleted records that are still keys.
    pub ghost_count: u64,
    /// Leaves.
    pub leaf_count: u64,
    /// Nodes above the leaves.
    pub inner_count: u64,
    /// Levels.
    pub height: u32,
    /// Nodes that their parents do not know yet.
    pub unposted_count: u64,
    /// Values outside of the leaves.
    pub blob_count: u64,
    /// Their bytes.
    pub blob_bytes: u64,
    /// All pages of the tree and its blobs.
    pub pages: PageSet,
    /// The problems that were found.
    pub problems: Vec<Corrupt>,
    /// Pages may be missing above, because one that names them cannot be read (V5).
    pub is_partial: bool,
}

impl TreeReport {
    fn found(&mut self, page: PageId, what: &'static str, expected: u64, found: u64) {
        self.problems.push(Corrupt::new(what, 0, expected, found).on(page));
    }

    /// V5. What is not damage is still an error.
    fn unreadable(&mut self, page: PageId, error: TreeError) -> Result<(), TreeError> {
        let corrupt = match error {
            TreeError::Corrupt(corrupt) | TreeError::Buffer(BufferError::Damaged { corrupt, .. }) => corrupt,
            TreeError::Buffer(BufferError::NeverWritten { page }) => {
                Corrupt::new(Corrupt::NEVER_WRITTEN, 0, 1, 0).on(page)
            }
            other => return Err(other),
        };
        self.problems.push(if corrupt.page.is_some() { corrupt } else { corrupt.on(page) });
        self.is_partial = true;
        Ok(())
    }

    fn claims(&mut self, page: PageId) -> bool {
        let is_new = self.pages.insert(page);
        if !is_new {
            self.found(page, "page is used twice", 1, 2);
        }
        is_new
    }
}

impl Tree {
    /// Checks the whole tree. What is wrong with its bytes is in the report.
    ///
    /// # Errors
    /// A page cannot be read.
    pub fn check(&self) -> Result<TreeReport, TreeError> {
        self.check_with(&mut || ControlFlow::Continue(()))
    }

    /// The same; `each_node` is called before each node, and may stop it. No latch is held then.
    ///
    /// # Errors
    /// As [`Tree::check`]; [`TreeError::Stopped`].
    pub fn check_with(&self, each_node: &mut dyn FnMut() -> ControlFlow<()>) -> Result<TreeReport, TreeError> {
        let mut report = TreeReport::default();
        let height = match self.copy_node(self.root) {
            Ok(root) => usize::from(Node::new(root.as_slice()).level()) + 1,
            Err(error) => {
                report.claims(self.root);
                return report.unreadable(self.root, error).map(|()| report);
            }
        };
        report.height = height as u32;
        let mut walk = Walk { tree: self, levels: vec![Reached::default(); height], report, each_node };
        walk.visit(self.root, height - 1, Some(&[]))?;
        for level in (0..height).rev() {
            while let Some(next) = walk.levels[level].link.filter(|&next| next != PageId(0)) {
                walk.visit(next, level, None)?;
            }
        }
        Ok(walk.report)
    }

    fn copy_node(&self, id: PageId) -> Result<Vec<u8>, TreeError> {
        let page = self.engine.cache.shared(id)?;
        Ok(page.words().to_vec(0, self.page_bytes))
    }
}

/// How far a level has been walked.
#[derive(Clone)]
struct Reached {
    /// The next node of the chain. `None` if it is not known, as before the first node and behind damage.
    link: Option<PageId>,
    /// Where it begins, if that is known.
    low: Option<Vec<u8>>,
}

impl Default for Reached {
    fn default() -> Reached {
        Reached { link: None, low: Some(Vec::new()) }
    }
}

impl Reached {
    const UNKNOWN: Reached = Reached { link: None, low: None };
}

/// A check under way (V6).
struct Walk<'t> {
    tree: &'t Tree,
    each_node: &'t mut dyn FnMut() -> ControlFlow<()>,
    /// From the leaves up.
    levels: Vec<Reached>,
    report: TreeReport,
}

impl Walk<'_> {
    /// Goes on to a node that its parent names, by way of those that none does (V3).
    fn child(&mut self, separator: &[u8], id: PageId, level: usize) -> Result<(), TreeError> {
        while let Some(next) = self.levels[level].link
            && next != id
        {
            if next != PageId(0) && self.begins_below(next, separator) {
                self.visit(next, level, None)?;
                continue;
            }
            self.report.found(id, "child is not in the chain of its level", 1, 0);
            self.levels[level] = Reached::UNKNOWN;
        }
        self.visit(id, level, Some(separator))
    }

    /// What cannot be read is looked at when it is visited.
    fn begins_below(&self, id: PageId, separator: &[u8]) -> bool {
        let copy = self.tree.copy_node(id);
        copy.map_or(true, |copy| Node::new(copy.as_slice()).compare_low(separator).is_lt())
    }

    /// Checks a node, and all below it.
    fn visit(&mut self, id: PageId, level: usize, separator: Option<&[u8]>) -> Result<(), TreeError> {
        if (self.each_node)().is_break() {
            return Err(TreeError::Stopped);
        }
        let reached = std::mem::replace(&mut self.levels[level], Reached::UNKNOWN);
        if !self.report.claims(id) {
            return Ok(());
        }
        if let Err(error) = self.visit_node(id, level, separator, reached.low.as_deref()) {
            self.report.unreadable(id, error)?;
        }
        if self.levels[level].link.is_none() {
            // Its children may have been the first of their levels.
            for below in self.levels[..level].iter_mut().filter(|below| below.link.is_none()) {
                below.low = None;
            }
        }
        Ok(())
    }

    fn visit_node(
        &mut self,
        id: PageId,
        level: usize,
        separator: Option<&[u8]>,
        low: Option<&[u8]>,
    ) -> Result<(), TreeError> {
        let copy = self.tree.copy_node(id)?;
        let node = Node::new(copy.as_slice());
        let report = &mut self.report;
        if !node.is_of(self.tree.root) {
            report.found(id, "owner of a b-tree node", self.tree.root.0, node.is_of(self.tree.root).into());
            report.is_partial = true;
            return Ok(());
        }
        check_bytes(&copy)?;
        if usize::from(node.level()) != level {
            report.found(id, "level of a b-tree node", level as u64, node.level().into());
            report.is_partial = true;
            return Ok(());
        }
        report.unposted_count += u64::from(separator.is_none());
        if low.is_some_and(|low| node.compare_low(low).is_ne()) {
            report.found(id, "low fence is not the left neighbour's high fence", 0, 0);
        } else if separator.is_some_and(|separator| node.compare_low(separator).is_ne()) {
            report.found(id, "low fence is not the parent's separator", 0, 0);
        }
        if level == 0 {
            report.leaf_count += 1;
            self.check_records(id, &node)?;
        } else {
            report.inner_count += 1;
            if node.count() == 0 {
                report.found(id, "children of a node", 1, 0);
            }
            for slot in 0..node.count() {
                self.child(&node.key(slot), node.child(slot), level - 1)?;
            }
        }
        self.levels[level] = Reached { link: Some(node.link()), low: Some(node.high()) };
        Ok(())
    }

    fn check_records(&mut self, id: PageId, node: &Node<&[u8]>) -> Result<(), TreeError> {
        let report = &mut self.report;
        for slot in 0..node.count() {
            let record = node.record(slot);
            if record.is_ghost() {
                report.ghost_count += 1;
                continue;
            }
            report.record_count += 1;
            if record.is_blob() {
                let read = BlobRef::decode(&node.value(slot)).and_then(|reference| {
                    let pages = blob::pages(&self.tree.engine.cache, reference.page, Some(reference.len));
                    pages.map(|pages| (reference, pages))
                });
                match read {
                    Ok((reference, pages)) => {
                        report.blob_count += 1;
                        report.blob_bytes += reference.len;
                        for page in pages {
                            report.claims(page);
                        }
                    }
                    Err(error) => report.unreadable(id, error)?,
                }
            }
        }
        Ok(())
    }
}
