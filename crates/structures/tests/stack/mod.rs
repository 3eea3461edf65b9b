//! Everything below the structures, on a disk in memory.
#![allow(dead_code)]

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

use ledgerstone_disk::{Disk, SimDisk};
use ledgerstone_lock::Mode;
use ledgerstone_op::Registry;
use ledgerstone_page::{PageId, PageSet, TableId};
use ledgerstone_space::Space;
use ledgerstone_structures::{Direction, ToFree, Tree, TreeReport};
use ledgerstone_testkit::EngineKit;
use ledgerstone_txn::{Durability, Engine, EngineSettings, Txn, TxnError};

const ENV: [u8; 16] = *b"structures test!";
pub const CATALOG: TableId = TableId(1);
pub const TO_FREE: TableId = TableId(2);
pub const TABLE: TableId = TableId(10);
const LOCK_TIMEOUT_NS: u64 = 10_000_000_000;

pub struct Stack {
    pub disk: Arc<SimDisk>,
    pub engine: Arc<Engine>,
    pub space: Arc<Space>,
    pub to_free: Arc<ToFree>,
    pub catalog: Tree,
}

impl Drop for Stack {
    fn drop(&mut self) {
        self.engine.clear_undos();
    }
}

impl Stack {
    pub fn new() -> Stack {
        Stack::with(4096, 2048, 1000)
    }

    pub fn with(page_bytes: usize, frames: u64, escalate_after: u32) -> Stack {
        let settings = EngineSettings { lock_timeout_ns: LOCK_TIMEOUT_NS, escalate_after, locks_pages: false };
        Stack::build(page_bytes, frames, settings)
    }

    /// One in which no user waits for a lock.
    pub fn impatient() -> Stack {
        Stack::build(4096, 2048, EngineSettings { lock_timeout_ns: 0, escalate_after: 1000, locks_pages: false })
    }

    /// One whose trees lock leaves.
    pub fn locking_pages() -> Stack {
        Stack::locking_pages_up_to(1000)
    }

    pub fn locking_pages_up_to(escalate_after: u32) -> Stack {
        let settings = EngineSettings { lock_timeout_ns: LOCK_TIMEOUT_NS, escalate_after, locks_pages: true };
        Stack::build(4096, 2048, settings)
    }

    fn build(page_bytes: usize, frames: u64, settings: EngineSettings) -> Stack {
        let sim = Arc::new(SimDisk::new());
        let disk: Arc<dyn Disk> = Arc::clone(&sim) as _;
        let kit = EngineKit {
            page_bytes: page_bytes as u32,
            frame_count: frames,
            log_buffer_bytes: 1 << 20,
            transaction_count: 64,
            lock_count: 100_000,
            settings,
            ..EngineKit::new(ENV)
        };
        let data = kit.data(&disk).unwrap();
        let mut ops = Registry::new();
        ledgerstone_space::register(&mut ops).unwrap();
        ledgerstone_structures::register(&mut ops).unwrap();
        let engine = kit.engine::<TxnError>(&disk, &data, ops, |log| log).unwrap();
        let space = Space::format(&engine, data, ENV).unwrap();
        let to_free = Arc::new(ToFree::new(&engine, &space, TO_FREE, PageId(3)));
        let catalog = Tree::new(&engine, &space, &to_free, CATALOG, PageId(2));
        ledgerstone_structures::register_undos(&engine, &space, &to_free);
        let mut txn = engine.begin().unwrap();
        Tree::format_root(&mut txn, &space, &catalog).unwrap();
        Tree::format_root(&mut txn, &space, to_free.tree()).unwrap();
        txn.commit(Durability::Volatile).unwrap();
        Stack { disk: sim, engine, space, to_free, catalog }
    }

    pub fn begin(&self) -> Txn {
        self.engine.begin().unwrap()
    }

    /// All before it is durable, so that ghosts may go (G7 in `ghost.rs`), and so is what it does.
    pub fn run<T>(&self, f: impl FnOnce(&mut Txn) -> T) -> T {
        self.engine.log.flush().unwrap();
        let mut txn = self.begin();
        let value = f(&mut txn);
        txn.commit(Durability::Sync).unwrap();
        value
    }

    /// A new tree, whose keys are locked under `table`.
    pub fn tree_of(&self, table: TableId) -> Tree {
        let root = self.run(|txn| {
            txn.lock_table(table, Mode::X).unwrap();
            Tree::create(txn, &self.to_free).unwrap()
        });
        Tree::new(&self.engine, &self.space, &self.to_free, table, root)
    }

    pub fn tree(&self) -> Tree {
        self.tree_of(TABLE)
    }

    /// The pages that wait to be freed.
    pub fn pages_to_free(&self) -> PageSet {
        let mut txn = self.engine.begin().unwrap();
        let pages = self.to_free.pages(&mut txn).unwrap();
        txn.abort().unwrap();
        pages
    }

    /// Proves the trees, and that every page in use is somebody's.
    pub fn check(&self, trees: &[&Tree]) -> TreeReport {
        let mut pages: BTreeSet<PageId> = BTreeSet::from([PageId(0), PageId(1)]);
        let mut first = None;
        for tree in trees.iter().copied().chain([&self.catalog, self.to_free.tree()]) {
            let report = tree.check().unwrap();
            assert!(report.problems.is_empty(), "tree {}: {:?}", tree.root(), report.problems);
            for page in report.pages.iter() {
                assert!(pages.insert(page), "{page} is used twice");
            }
            first.get_or_insert(report);
        }
        for page in self.pages_to_free().iter() {
            assert!(pages.insert(page), "{page} is used and to be freed");
        }
        let allocated: BTreeSet<PageId> = self.space.allocated_pages().unwrap().iter().collect();
        assert_eq!(pages, allocated, "pages of somebody and pages in use");
        first.unwrap()
    }

    pub fn read_all(&self, tree: &Tree, direction: Direction) -> Vec<(Vec<u8>, Vec<u8>)> {
        self.run(|txn| read(tree, txn, Bound::Unbounded, Bound::Unbounded, direction))
    }
}

pub fn read(
    tree: &Tree,
    txn: &mut Txn,
    start: Bound<Vec<u8>>,
    end: Bound<Vec<u8>>,
    direction: Direction,
) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut scan = tree.scan(start, end, direction);
    let mut records = Vec::new();
    while let Some((key, value)) = scan.next(txn).unwrap() {
        records.push((key.to_vec(), value.to_vec()));
    }
    assert!(scan.next(txn).unwrap().is_none());
    records
}
