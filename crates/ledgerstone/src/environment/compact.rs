//! Compaction: the data file becomes as short as its content allows, while everything else goes on.
//!
//! ```text
//!  pack    each table: ghosts go, sparse neighbours become full pages     (bottom up)
//!  cut     free pages at the end of the file go
//!  move    pages behind what the content needs go to free places below    (a few rounds)
//!  cut
//! ```
//! Q1. One compaction at a time, and it takes turns with the reclaimer, by the reclaimer's lock: both take pages out of
//!     trees.
//! Q2. Each step is a transaction of its own, over the children of one node, with an intention lock on the table. So a
//!     table is never dropped under it, and nobody waits for it longer than a step takes.
//! Q3. Roots stay: a table is known by its root page. The file's first pages are kept for them (`space`), so that few
//!     are in the way.
//! Q4. A large value is not moved page by page but written anew, in the step's transaction, if nobody uses it.

use std::ops::ControlFlow;

use ledgerstone_lock::Mode;
use ledgerstone_page::{PageId, TableId};
use ledgerstone_region::sync;
use ledgerstone_structures::{Moved, Packed, Read, Tree};
use ledgerstone_txn::{Durability, Txn, run_users_code};

use crate::catalog::{Definition, Entry};
use crate::flow::Flow;
use crate::inner::Inner;
use crate::{Environment, Error};

/// Rounds of moving: others make pages meanwhile.
const ROUND_COUNT_MAX: u32 = 4;
/// Tries of steps whose tables are locked as a whole, in all: one transaction may have locked very many. And the pause
/// after each.
const LOCKED_TRIES_MAX: u32 = 200;
const LOCKED_PAUSE_NS: u64 = 5_000_000;

/// The phase of a compaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
pub enum CompactPhase {
    /// Sparse pages become full ones.
    Pack,
    /// Pages move down in the file.
    Move,
}

/// How far a compaction has come, passed to the callback before each step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompactProgress {
    /// The phase that is running.
    pub phase: CompactPhase,
    /// The table at hand.
    pub table: String,
    /// Tables done in this phase.
    pub done: u64,
    /// Tables in this phase.
    pub total: u64,
    /// Leaves of tables and indexes that this phase has passed. Moving begins at 0 again in each of its rounds.
    pub leaf_count: u64,
    /// About how many leaves it passes. With this, a program can say how long the phase will still take.
    pub leaf_count_about: u64,
    /// Pages that the data file has now.
    pub page_count: u64,
}

/// What is called before each step.
type Progress<'p> = &'p mut dyn FnMut(CompactProgress) -> ControlFlow<()>;

/// A step over a tree from a key on; gives the key to go on with, and adds the leaves that it has passed.
type Step<'s> = dyn FnMut(&mut Txn, &[u8], &mut u64) -> Result<Option<Vec<u8>>, Error> + 's;

/// What a compaction did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct CompactReport {
    /// Pages of the data file before.
    pub page_count_before: u64,
    /// Pages of the data file afterwards.
    pub page_count_after: u64,
    /// Pages in use afterwards.
    pub allocated_page_count: u64,
    /// Deleted records that were purged.
    pub ghost_count: u64,
    /// Pages that merging gave back.
    pub merged_page_count: u64,
    /// Pages that moved, including those of large values.
    pub moved_page_count: u64,
    /// Pages that should have moved and could not, because they were in use all the time.
    pub stayed_page_count: u64,
    /// Tables that were passed over because they were locked as a whole.
    pub skipped_tables: Vec<String>,
    /// Tables whose root page, which cannot move, keeps the file from being as short as its content.
    pub roots_in_the_way: Vec<String>,
    /// Users' structures, whose pages stay where they are: only their authors' code could move them.
    pub unmoved_structures: Vec<String>,
    /// It was ended by its progress callback.
    pub was_cancelled: bool,
}

/// A table to compact.
struct Target {
    /// What it is called in reports.
    name: String,
    tree: Tree,
    /// The table's catalog entry must still name this tree; none for the trees that are always there.
    entry: Option<(String, Entry)>,
    has_blobs: bool,
    /// About how many leaves it has.
    leaf_count: u64,
}

impl Target {
    /// Leaves that moving passes: large values take a pass of their own.
    fn leaves_to_move(&self) -> u64 {
        self.leaf_count * (1 + u64::from(self.moves_blobs()))
    }

    fn moves_blobs(&self) -> bool {
        self.has_blobs && self.entry.is_some()
    }
}

/// What became of a step.
enum Stepped {
    /// Go on with this key.
    Next(Vec<u8>),
    /// This pass over the tree is done.
    Done,
    /// The table is gone.
    Gone,
    /// It is locked as a whole.
    Locked,
}

/// Why a pass ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Passed {
    Whole,
    Cancelled,
}

impl Environment {
    /// Gives space back to the file system. It purges deleted records, merges sparse pages, moves pages from the end of
    /// the data file to free places below, and shortens the file. Everything else goes on meanwhile, because the work
    /// is done in small steps. A crash loses nothing, and what was done until then stays done.
    ///
    /// A compaction writes about as much log as it moves. One runs at a time, and a second one waits. Tables that
    /// transactions have locked as a whole are waited for, one second in all, and then skipped
    /// ([`CompactReport::skipped_tables`]).
    ///
    /// Takes as long as its work, and waits for the disk: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// [`Error::ReadOnly`]. [`Error::Busy`] if called in the progress callback of another compaction.
    /// [`Error::LockTimeout`] if the housekeeper or a call of [`Environment::reclaim`] is freeing pages, and one turn
    /// of that takes longer than `lock_timeout_ms`, two seconds at least. [`Error::TooManySnapshots`]. A page or the
    /// log cannot be read or written.
    pub fn compact(&self) -> Result<CompactReport, Error> {
        self.compact_with(|_| ())
    }

    /// The same. `progress` is called before each step, and may end the compaction there ([`Flow`]). What was done
    /// until then stays done, so the call returns a report, which says so ([`CompactReport::was_cancelled`]).
    ///
    /// Takes as long as its work, and waits for the disk: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`Environment::compact`].
    pub fn compact_with<F: Flow>(
        &self,
        mut progress: impl FnMut(CompactProgress) -> F,
    ) -> Result<CompactReport, Error> {
        self.compact_by(&mut |at| progress(at).flow())
    }

    fn compact_by(&self, progress: Progress<'_>) -> Result<CompactReport, Error> {
        let env = self.inner();
        env.check_writable()?;
        let done = env.engine.in_a_call(|| {
            let _latched = env.latch(&env.compact_latch[0])?; // Q1
            let locked_tries_left = LOCKED_TRIES_MAX;
            let report = CompactReport::default();
            Compaction { env, progress, locked_tries_left, leaves: (0, 0), report }.run()
        });
        done.map_err(|error| env.say_failed(error))
    }
}

struct Compaction<'a, 'p> {
    env: &'a Inner,
    progress: Progress<'p>,
    locked_tries_left: u32,
    /// Passed in this phase, and about how many there are.
    leaves: (u64, u64),
    report: CompactReport,
}

impl Compaction<'_, '_> {
    fn run(mut self) -> Result<CompactReport, Error> {
        self.report.page_count_before = self.env.space.page_count();
        self.env.to_free.make_durable()?; // What is deleted and not durable yet would stay.
        self.env.reclaim(&|| true)?;
        let mut targets = self.targets()?;
        if self.pack_all(&mut targets)? == Passed::Cancelled {
            return self.finish(&targets, true);
        }
        self.env.reclaim(&|| true)?;
        self.env.cut_file()?;
        for _ in 0..ROUND_COUNT_MAX {
            let limit = PageId(self.env.space.page_count_min()?);
            if self.env.space.page_count() <= limit.0 {
                break;
            }
            let before = self.report.moved_page_count;
            if self.move_all(&targets, limit)? == Passed::Cancelled {
                return self.finish(&targets, true);
            }
            self.env.reclaim(&|| true)?;
            self.env.cut_file()?;
            if self.report.moved_page_count == before {
                break;
            }
        }
        self.finish(&targets, false)
    }

    fn finish(mut self, targets: &[Target], was_cancelled: bool) -> Result<CompactReport, Error> {
        self.env.cut_file()?;
        let report = &mut self.report;
        report.page_count_after = self.env.space.page_count();
        report.allocated_page_count = self.env.space.allocated_count()?;
        report.was_cancelled = was_cancelled;
        let page_count_min = self.env.space.page_count_min()?;
        let is_in_the_way = |target: &&Target| target.tree.root().0 >= page_count_min;
        report.roots_in_the_way = targets.iter().filter(is_in_the_way).map(|target| target.name.clone()).collect();
        report.skipped_tables.sort();
        report.skipped_tables.dedup();
        Ok(self.report)
    }

    /// Catalog, deferred frees, and all tables that are committed.
    fn targets(&mut self) -> Result<Vec<Target>, Error> {
        let env = self.env;
        let always = |name: &str, tree: &Tree| Target {
            name: name.to_string(),
            tree: tree.clone(),
            entry: None,
            has_blobs: false,
            leaf_count: 0,
        };
        let mut targets = vec![always("catalog", env.catalog()), always("deferred frees", env.to_free().tree())];
        // At a snapshot, so that nobody is waited for: what was dropped since is found gone when it is its turn.
        env.each_in_catalog(|name, value| {
            if Entry::structure_of(value).is_some() {
                self.report.unmoved_structures.push(name.to_string());
                return Ok(());
            }
            let info = env.table_info(name, Definition::decode(name, value)?);
            let mut add = |name: String, tree: &Tree, entry: Entry| {
                let entry = Some((info.name.clone(), entry));
                targets.push(Target { name, tree: tree.clone(), entry, has_blobs: false, leaf_count: 0 });
            };
            add(name.to_string(), &info.tree, info.entry);
            for index in &info.indexes {
                add(index.place(&info.name), &index.tree, index.entry.entry);
            }
            Ok(())
        })?;
        for target in &mut targets {
            // Without a lock: the pages of a table that was dropped since are anything. Damage is met at its turn.
            target.leaf_count = target.tree.estimated_leaf_count().unwrap_or(0);
        }
        Ok(targets)
    }

    fn pack_all(&mut self, targets: &mut [Target]) -> Result<Passed, Error> {
        let total = targets.len() as u64;
        self.leaves = (0, targets.iter().map(|target| target.leaf_count).sum());
        for (done, target) in targets.iter_mut().enumerate() {
            let mut packed = Packed::default();
            let (mut level, mut is_leaf) = (1, false);
            loop {
                let mut is_above = true;
                let passed = self.pass(CompactPhase::Pack, target, (done as u64, total), &mut |txn, key, leaves| {
                    is_above = level > target.tree.height()?;
                    is_leaf = level == 1 && is_above;
                    let before = packed.leaf_count;
                    let next = if is_above { None } else { target.tree.pack_children(txn, level, key, &mut packed)? };
                    *leaves += packed.leaf_count - before + u64::from(is_leaf);
                    Ok(next)
                })?;
                if passed == Passed::Cancelled {
                    return Ok(passed);
                }
                if is_above {
                    break;
                }
                level += 1;
            }
            // A table that is one leaf was not looked at: it may have large values.
            target.has_blobs = packed.blob_count > 0 || is_leaf;
            target.leaf_count = packed.leaf_count.saturating_sub(packed.freed_count).max(1);
            self.report.ghost_count += packed.ghost_count;
            self.report.merged_page_count += packed.freed_count;
        }
        Ok(Passed::Whole)
    }

    fn move_all(&mut self, targets: &[Target], limit: PageId) -> Result<Passed, Error> {
        self.env.space.look_from_beginning();
        let total = targets.len() as u64;
        self.leaves = (0, targets.iter().map(Target::leaves_to_move).sum());
        for (done, target) in targets.iter().enumerate() {
            let mut moved = Moved::default();
            let at = (done as u64, total);
            for level in 1.. {
                let mut is_above = true;
                let passed = self.pass(CompactPhase::Move, target, at, &mut |txn, key, leaves| {
                    is_above = level > target.tree.height()?;
                    let before = moved.leaf_count;
                    let next =
                        if is_above { None } else { target.tree.move_children(txn, level, key, limit, &mut moved)? };
                    *leaves += moved.leaf_count - before + u64::from(level == 1 && is_above);
                    Ok(next)
                })?;
                if passed == Passed::Cancelled {
                    return Ok(passed);
                }
                if is_above {
                    break;
                }
            }
            if target.moves_blobs() {
                let passed = self.pass(CompactPhase::Move, target, at, &mut |txn, key, leaves| {
                    let before = moved.leaf_count;
                    let next = target.tree.move_blobs(txn, key, limit, &mut moved)?;
                    *leaves += moved.leaf_count - before;
                    Ok(next)
                })?;
                if passed == Passed::Cancelled {
                    return Ok(passed);
                }
            }
            self.report.moved_page_count += moved.moved_count;
            self.report.stayed_page_count += moved.stayed_count;
        }
        Ok(Passed::Whole)
    }

    /// One pass over a tree, step by step; `step` gives the key to go on with.
    fn pass(
        &mut self,
        phase: CompactPhase,
        target: &Target,
        (done, total): (u64, u64),
        step: &mut Step<'_>,
    ) -> Result<Passed, Error> {
        let mut key = Vec::new();
        loop {
            let page_count = self.env.space.page_count();
            let (leaf_count, about) = self.leaves;
            let leaf_count_about = about.max(leaf_count);
            let table = target.name.clone();
            let now = CompactProgress { phase, table, done, total, leaf_count, leaf_count_about, page_count };
            let engine = &self.env.engine;
            if run_users_code(engine, || (self.progress)(now)).is_break() {
                return Ok(Passed::Cancelled);
            }
            let mut leaves = 0;
            let stepped = self.step(target, &key, step, &mut leaves)?;
            self.leaves.0 += leaves;
            match stepped {
                Stepped::Next(next) => key = next,
                Stepped::Done | Stepped::Gone => return Ok(Passed::Whole),
                Stepped::Locked if self.locked_tries_left > 0 => {
                    self.locked_tries_left -= 1;
                    sync::sleep_ns(LOCKED_PAUSE_NS);
                }
                Stepped::Locked => {
                    self.report.skipped_tables.push(target.name.clone());
                    return Ok(Passed::Whole);
                }
            }
        }
    }

    /// Q2.
    fn step(&self, target: &Target, key: &[u8], step: &mut Step<'_>, leaves: &mut u64) -> Result<Stepped, Error> {
        let mut txn = self.env.to_free().begin_turn()?;
        txn.mark_upkeep();
        let table: TableId = target.tree.table();
        if !txn.try_lock_table(table, Mode::IX)? {
            return Ok(Stepped::Locked);
        }
        if let Some((table, entry)) = &target.entry {
            // A drop that has committed had the table locked exclusively: now that we have it, the catalog tells the
            // truth.
            let found = self.env.catalog().get(&mut txn, table.as_bytes(), Read::Unlocked)?;
            let is_there = found
                .and_then(|bytes| Definition::decode(table, &bytes).ok())
                .is_some_and(|found| found.entries().any(|found| found == entry));
            if !is_there {
                return Ok(Stepped::Gone);
            }
        }
        let next = step(&mut txn, key, leaves)?;
        txn.commit(Durability::Volatile)?;
        Ok(next.map_or(Stepped::Done, Stepped::Next))
    }
}

impl Inner {
    /// Cuts the free end of the data file off. No checkpoint is taken meanwhile (H4 in `space/shrink.rs`).
    fn cut_file(&self) -> Result<(), Error> {
        self.engine.check()?;
        let _latched = self.latch_unless_closed()?;
        while self.space.shrink()? > 0 {}
        Ok(())
    }
}
