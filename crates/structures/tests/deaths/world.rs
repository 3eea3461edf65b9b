//! An environment in small that simulated processes share: an engine and a tree.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use ledgerstone_disk::{Disk, DiskFile, SimDisk};
use ledgerstone_log::{ControlFile, ControlState};
use ledgerstone_op::Registry;
use ledgerstone_page::{PageId, TableId};
use ledgerstone_region::{AnotherDied, Dead, Mutex, Repair, Share, sync};
use ledgerstone_space::Space;
use ledgerstone_structures::{Direction, ToFree, Tree};
use ledgerstone_testkit::{EngineKit, SharedEngine};
use ledgerstone_txn::{Durability, Engine, EngineSettings, OrphanInDoubt, RepairPart, Txn, TxnError};

use crate::model::Model;
use crate::pair::Pair;

const ENV: [u8; 16] = *b"deaths of trees!";
const CATALOG: TableId = TableId(1);
const TO_FREE: TableId = TableId(2);
const TABLE: TableId = TableId(10);
/// A short log's segments, and its buffer.
const SHORT: u64 = 128 << 10;

/// What one process has of it.
pub struct Process {
    pub no: u32,
    pub shared: SharedEngine,
    /// What transactions of users hold.
    pub share: Share<Engine>,
    pub space: Arc<Space>,
    pub to_free: Arc<ToFree>,
    pub catalog: Tree,
    pub tree: Tree,
    pub pair: Pair,
    pub control: Arc<ControlFile>,
    pub model: Arc<Mutex<Model>>,
    disk: Arc<dyn Disk>,
    data: Arc<dyn DiskFile>,
    /// A planted bug: what repairs leave out.
    forgotten: Option<RepairPart>,
}

impl Drop for Process {
    fn drop(&mut self) {
        self.shared.engine.clear_undos();
    }
}

fn ops() -> Registry {
    let mut ops = Registry::new();
    ledgerstone_space::register(&mut ops).unwrap();
    ledgerstone_structures::register(&mut ops).unwrap();
    crate::pair::register(&mut ops);
    ops
}

impl Process {
    /// A new one, of the root.
    pub fn create(forgotten: Option<RepairPart>) -> Arc<Process> {
        Process::create_of(SimDisk::new(), EngineKit::new(ENV), forgotten)
    }

    /// One whose log has short segments, so that it is given up soon, or full.
    pub fn with_short_log(sim: SimDisk) -> Arc<Process> {
        let kit = EngineKit { segment_bytes: SHORT, log_buffer_bytes: SHORT, ..EngineKit::new(ENV) };
        Process::create_of(sim, kit, None)
    }

    fn create_of(sim: SimDisk, kit: EngineKit, forgotten: Option<RepairPart>) -> Arc<Process> {
        let disk: Arc<dyn Disk> = Arc::new(sim);
        let settings = EngineSettings { lock_timeout_ns: 30_000_000_000, escalate_after: 1000, locks_pages: false };
        let kit = EngineKit { frame_count: 96, page_count_max: 4096, lock_count: 256, settings, ..kit };
        let data = kit.data(&disk).unwrap();
        let state = ControlState::new(ENV, kit.page_bytes, kit.segment_bytes);
        let control = Arc::new(ControlFile::begin_creation(&*disk, state).unwrap());
        let shared = kit.shared_engine::<TxnError>(&disk, &data, ops(), |log| log).unwrap();
        let engine = &shared.engine;
        control.share(&engine.region, &engine.slots).unwrap();
        let space = Space::format(engine, Arc::clone(&data), ENV).unwrap();
        let (to_free, catalog) = trees(engine, &space);
        let mut txn = engine.begin().unwrap();
        Tree::format_root(&mut txn, &space, &catalog).unwrap();
        Tree::format_root(&mut txn, &space, to_free.tree()).unwrap();
        let root = Tree::create(&mut txn, &to_free).unwrap();
        let pair = Pair::create(&mut txn, &space);
        txn.commit(Durability::Sync).unwrap();
        control.end_creation(&*disk).unwrap();
        let model = Arc::default();
        Arc::new(Process::of(0, shared, space, (to_free, catalog), (root, pair), control, model, disk, data, forgotten))
    }

    #[allow(clippy::too_many_arguments)] // Two callers, next to it.
    fn of(
        no: u32,
        shared: SharedEngine,
        space: Arc<Space>,
        (to_free, catalog): (Arc<ToFree>, Tree),
        (root, pair): (PageId, Pair),
        control: Arc<ControlFile>,
        model: Arc<Mutex<Model>>,
        disk: Arc<dyn Disk>,
        data: Arc<dyn DiskFile>,
        forgotten: Option<RepairPart>,
    ) -> Process {
        if let Some(part) = forgotten {
            shared.engine.forget(part);
        }
        pair.register_undo(&shared.engine);
        let tree = Tree::new(&shared.engine, &space, &to_free, TABLE, root);
        let share = Share::new(Arc::clone(&shared.engine));
        Process { no, shared, share, space, to_free, catalog, tree, pair, control, model, disk, data, forgotten }
    }

    /// The same as another process has it.
    pub fn view(&self, no: u32) -> Process {
        let shared = self.shared.view(ops());
        let space = Space::join(&shared.engine, Arc::clone(&self.data)).unwrap();
        let trees = trees(&shared.engine, &space);
        let control = ControlFile::join(&*self.disk, &shared.engine.region, &shared.engine.slots).unwrap();
        let (control, model) = (Arc::new(control), Arc::clone(&self.model));
        let (disk, data) = (Arc::clone(&self.disk), Arc::clone(&self.data));
        Process::of(no, shared, space, trees, (self.tree.root(), self.pair), control, model, disk, data, self.forgotten)
    }

    /// Starts a thread in a process of its own.
    pub fn start(
        self: &Arc<Self>,
        no: u32,
        name: &str,
        f: impl FnOnce(&Arc<Process>) + Send + 'static,
    ) -> sync::JoinHandle<()> {
        let process = Arc::new(self.view(no));
        sync::deaths::spawn_in(no, name, move || f(&process))
    }

    pub fn engine(&self) -> &Arc<Engine> {
        &self.shared.engine
    }

    /// Repairs if anybody has died, and has a thread end the transactions of the dead.
    pub fn repair(self: &Arc<Self>) -> Option<sync::JoinHandle<()>> {
        let has_repaired = ledgerstone_recovery::repair(self.engine(), |dead| self.repair_own(dead)).unwrap();
        has_repaired.then(|| {
            let process = Arc::clone(self);
            sync::spawn("ends", move || process.end_orphans())
        })
    }

    /// What the engine does not repair.
    pub fn repair_own(&self, dead: &Dead<'_>) -> Result<(), AnotherDied> {
        self.space.repair(dead)?;
        self.control.repair(dead)
    }

    pub fn end_orphans(&self) {
        let mut in_doubt = Vec::new();
        self.engine().end_orphans(|found| in_doubt.push(found)).unwrap();
        for OrphanInDoubt { record, mut txn } in in_doubt {
            let process = u32::from_le_bytes(record.global_id.try_into().unwrap());
            // Whoever has not told the coordinator that it is prepared is aborted.
            let decision = self.model.lock().decisions.get(&process).copied();
            match decision.unwrap_or(false) {
                true => drop(txn.commit_prepared().unwrap()),
                false => txn.abort_prepared().unwrap(),
            }
        }
    }

    pub fn begin(&self) -> Txn {
        Engine::begin_aged(&self.share, ledgerstone_page::Xid::NONE).unwrap()
    }

    /// All records, and the proof of the trees: every page in use is somebody's.
    pub fn check_all(&self) {
        assert!(self.space.may_grow(), "the latch of growth is held");
        let mut pages: BTreeSet<PageId> = BTreeSet::from([PageId(0), PageId(1)]);
        self.pair.pages().into_iter().for_each(|page| assert!(pages.insert(page), "{page} is used twice"));
        for tree in [&self.tree, &self.catalog, self.to_free.tree()] {
            let report = tree.check().unwrap();
            assert!(report.problems.is_empty(), "tree {}: {:?}", tree.root(), report.problems);
            report.pages.iter().for_each(|page| assert!(pages.insert(page), "{page} is used twice"));
        }
        let mut txn = self.engine().begin().unwrap();
        for page in self.to_free.pages(&mut txn).unwrap().iter() {
            assert!(pages.insert(page), "{page} is used and to be freed");
        }
        txn.abort().unwrap();
        let allocated: BTreeSet<PageId> = self.space.allocated_pages().unwrap().iter().collect();
        assert_eq!(pages, allocated, "pages of somebody and pages in use");
        self.model.lock().check_pair(self.pair.value(self.engine()));
        assert_eq!(self.pair.counted(self.engine()), 0, "whoever has counted was rolled back");
        let mut txn = self.engine().begin().unwrap();
        let mut scan = self.tree.scan(Bound::Unbounded, Bound::Unbounded, Direction::Forward);
        let mut found = BTreeMap::new();
        while let Some((key, value)) = scan.next(&mut txn).unwrap() {
            found.insert(key.to_vec(), value.to_vec());
        }
        txn.commit(Durability::Volatile).unwrap();
        self.model.lock().check(&found);
    }
}

fn trees(engine: &Arc<Engine>, space: &Arc<Space>) -> (Arc<ToFree>, Tree) {
    let to_free = Arc::new(ToFree::new(engine, space, TO_FREE, PageId(3)));
    let catalog = Tree::new(engine, space, &to_free, CATALOG, PageId(2));
    ledgerstone_structures::register_undos(engine, space, &to_free);
    (to_free, catalog)
}
