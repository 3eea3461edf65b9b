//! A whole tree, proved: every node by itself, and what the nodes say of each other.
//!
//! V1. From the root down the levels fall by one; each level is a chain of links from its leftmost node to one without.
//! V2. In a chain, each node's low fence is the high fence of the one before; the first has none, the last has no high one.
//! V3. The children of a level are nodes of the chain below, in order; each begins at its separator. Nodes of the chain that
//!     no parent names are splits that have not been posted: allowed, and counted.
//! V4. No page is there twice, in nodes or in blobs.
//! V5. A page that cannot be read is one problem. The check goes on at the next node that a parent names; what only that page
//!     named is not in the report, which says that it is partial.
//!
//! The tree must stand still: hold a shared lock on its table.

use std::collections::BTreeSet;

use ledgerstone_buffer::BufferError;
use ledgerstone_page::{Corrupt, PageId};

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
    pub pages: BTreeSet<PageId>,
    /// What is wrong.
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
        let mut report = TreeReport::default();
        let mut level = match self.copy_node(self.root) {
            Ok(root) => Node::new(root.as_slice()).level(),
            Err(error) => {
                report.claims(self.root);
                return report.unreadable(self.root, error).map(|()| report);
            }
        };
        report.height = u32::from(level) + 1;
        // What the parents say of the level's chain, which begins with the first (V3).
        let mut named: Vec<(Vec<u8>, PageId)> = vec![(Vec::new(), self.root)];
        loop {
            let chain = self.check_chain(&named, level, &mut report)?;
            if !report.is_partial {
                self.check_named(&named, &chain, &mut report);
            }
            named = chain.children;
            if level == 0 || named.is_empty() {
                return Ok(report);
            }
            level -= 1;
        }
    }

    fn copy_node(&self, id: PageId) -> Result<Vec<u8>, TreeError> {
        let page = self.engine.cache.shared(id)?;
        Ok(page.words().to_vec(0, self.page_bytes))
    }

    fn check_chain(&self, named: &[(Vec<u8>, PageId)], level: u8, report: &mut TreeReport) -> Result<Chain, TreeError> {
        let mut chain = Chain::default();
        // Of those that parents name, which have been come by; `low` is known unless the chain was broken before.
        let mut passed = 0;
        let mut id = named.first().map_or(PageId(0), |&(_, first)| first);
        let mut low = report.problems.is_empty().then(Vec::new);
        while id != PageId(0) {
            if !report.claims(id) {
                break;
            }
            passed = named[passed..].iter().position(|&(_, child)| child == id).map_or(passed, |at| passed + at + 1);
            match self.check_node(id, level, &mut low, &mut chain, report) {
                Ok(Some(link)) => id = link,
                Ok(None) => break,
                Err(error) => {
                    report.unreadable(id, error)?;
                    low = None;
                    id = named.get(passed).map_or(PageId(0), |&(_, next)| next);
                }
            }
        }
        Ok(chain)
    }

    /// The link of the node, or none if what is wrong with it leads nowhere.
    fn check_node(
        &self,
        id: PageId,
        level: u8,
        low: &mut Option<Vec<u8>>,
        chain: &mut Chain,
        report: &mut TreeReport,
    ) -> Result<Option<PageId>, TreeError> {
        let copy = self.copy_node(id)?;
        let node = Node::new(copy.as_slice());
        if !node.is_of(self.root) {
            report.found(id, "owner of a b-tree node", self.root.0, node.is_of(self.root).into());
            report.is_partial = true;
            return Ok(None);
        }
        check_bytes(&copy)?;
        if node.level() != level {
            report.found(id, "level of a b-tree node", level.into(), node.level().into());
            report.is_partial = true;
            return Ok(None);
        }
        if low.as_ref().is_some_and(|low| node.low() != *low) {
            report.found(id, "low fence is not the left neighbour's high fence", 0, 0);
        }
        chain.nodes.push((node.low(), id));
        if level > 0 {
            report.inner_count += 1;
            if node.count() == 0 {
                report.found(id, "children of a node", 1, 0);
            }
            chain.children.extend((0..node.count()).map(|slot| (node.key(slot), node.child(slot))));
        } else {
            report.leaf_count += 1;
            self.check_records(id, &node, report)?;
        }
        *low = Some(node.high());
        Ok(Some(node.link()))
    }

    fn check_records(&self, id: PageId, node: &Node<&[u8]>, report: &mut TreeReport) -> Result<(), TreeError> {
        for slot in 0..node.count() {
            let record = node.record(slot);
            if record.is_ghost() {
                report.ghost_count += 1;
                continue;
            }
            report.record_count += 1;
            if record.is_blob() {
                let read = BlobRef::decode(&node.value(slot)).and_then(|reference| {
                    let pages = blob::pages(&self.engine.cache, reference.page, Some(reference.len));
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

    fn check_named(&self, named: &[(Vec<u8>, PageId)], chain: &Chain, report: &mut TreeReport) {
        let mut nodes = chain.nodes.iter();
        for (separator, child) in named {
            loop {
                match nodes.next() {
                    Some((low, id)) if id == child => {
                        if low != separator {
                            report.found(*child, "low fence is not the parent's separator", 0, 0);
                        }
                        break;
                    }
                    Some(_) => report.unposted_count += 1,
                    None => {
                        report.found(*child, "child is not in the chain of its level", 1, 0);
                        return;
                    }
                }
            }
        }
        report.unposted_count += nodes.count() as u64;
    }
}

/// One level, from left to right.
#[derive(Default)]
struct Chain {
    /// Low fence and page of each node.
    nodes: Vec<(Vec<u8>, PageId)>,
    /// Separator and page of all their children.
    children: Vec<(Vec<u8>, PageId)>,
}
