//! Real processes that write one tree, on one engine in a region that all of them map. Some are killed, at whatever
//! moment that is: the others mend what was left, end the transactions of the dead, and go on.
#![cfg(target_os = "linux")]

use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;

use ledgerstone_disk::{Disk, FileDisk};
use ledgerstone_op::Registry;
use ledgerstone_page::{PageId, TableId};
use ledgerstone_region::atomic::AtomicU64;
use ledgerstone_region::{Dead, Handle, Members, Random, Region, Repair, sync};
use ledgerstone_space::Space;
use ledgerstone_structures::{Direction, Read, ToFree, Tree, TreeError};
use ledgerstone_testkit::EngineKit;
use ledgerstone_testkit::other::{Other, dir_in_memory, listen, role, within_patience};
use ledgerstone_txn::{Durability, Engine, EngineSettings, Txn, TxnError};

const ENV: [u8; 16] = *b"processes, trees";
const CATALOG: TableId = TableId(1);
const TO_FREE: TableId = TableId(2);
const TABLE: TableId = TableId(10);
const ACCOUNTS: u64 = 200;
const BALANCE: u64 = 1000;
/// Pages that the page table has room for at the beginning.
const FIRST_PAGES: u64 = 256;
/// Records that a process adds, of which two fit into a page, and how often it then changes one of anybody's.
const ADDED: u64 = 400;
const CHANGES: u64 = 1000;
/// Numbers of processes that have ever worked.
const WORKERS_MAX: u64 = 256;
/// How often whoever lives looks for the dead.
const LOOK_NS: u64 = 2_000_000;

/// What one process has.
struct Process {
    engine: Arc<Engine>,
    members: Arc<Members>,
    space: Arc<Space>,
    to_free: Arc<ToFree>,
    tree: Tree,
    /// The tree's root, for those who join.
    root: Handle<AtomicU64>,
    /// How many processes have worked.
    workers: Handle<AtomicU64>,
    /// What each has committed and been told so.
    acknowledged: Handle<[AtomicU64]>,
}

impl Drop for Process {
    fn drop(&mut self) {
        self.engine.clear_undos();
    }
}

/// The page table is soon too small.
fn kit() -> EngineKit {
    EngineKit { frame_count: 96, page_count_max: 1 << 20, table_pages_min: FIRST_PAGES, ..EngineKit::new(ENV) }
}

fn ops() -> Registry {
    let mut ops = Registry::new();
    ledgerstone_space::register(&mut ops).unwrap();
    ledgerstone_structures::register(&mut ops).unwrap();
    ops
}

fn account(no: u64) -> [u8; 9] {
    let mut key = [b'a'; 9];
    key[1..].copy_from_slice(&no.to_be_bytes());
    key
}

fn count_of(worker: u64) -> [u8; 9] {
    let mut key = [b'w'; 9];
    key[1..].copy_from_slice(&worker.to_be_bytes());
    key
}

fn number(value: &[u8]) -> u64 {
    u64::from_be_bytes(value.try_into().expect("eight bytes"))
}

/// A record that a process adds.
fn added(process: u64, no: u64) -> [u8; 17] {
    let mut key = [b'g'; 17];
    key[1..9].copy_from_slice(&process.to_be_bytes());
    key[9..].copy_from_slice(&no.to_be_bytes());
    key
}

/// A number in a large value that is made of it.
fn counted(count: u64) -> Vec<u8> {
    count.to_be_bytes().repeat(180)
}

impl Process {
    fn of(region: Region, dir: &Path) -> Process {
        let is_first = region.is_made_here();
        let members = Arc::new(Members::join(&region, &dir.join("members")).unwrap());
        let settings = EngineSettings { lock_timeout_ns: 5_000_000_000, escalate_after: 1000, locks_pages: false };
        let kit = EngineKit { settings, ..kit() };
        let disk: Arc<dyn Disk> = Arc::new(FileDisk::new(dir.join("environment")));
        let data = kit.data(&disk).unwrap();
        let among = (region.clone(), Arc::clone(&members));
        let engine = kit.engine_among::<TxnError>(among, &disk, &data, ops()).unwrap();
        let space = match is_first {
            true => Space::format(&engine, data, ENV).unwrap(),
            false => Space::join(&engine, data).unwrap(),
        };
        let to_free = Arc::new(ToFree::new(&engine, &space, TO_FREE, PageId(3)));
        let catalog = Tree::new(&engine, &space, &to_free, CATALOG, PageId(2));
        ledgerstone_structures::register_undos(&engine, &space, &to_free);
        let root: Handle<AtomicU64> = region.place_one("test.root", 64).unwrap();
        if is_first {
            let mut txn = engine.begin().unwrap();
            Tree::format_root(&mut txn, &space, &catalog).unwrap();
            Tree::format_root(&mut txn, &space, to_free.tree()).unwrap();
            root.store(Tree::create(&mut txn, &to_free).unwrap().0, SeqCst);
            let tree = Tree::new(&engine, &space, &to_free, TABLE, PageId(root.load(SeqCst)));
            for no in 0..ACCOUNTS {
                tree.put(&mut txn, &account(no), &BALANCE.to_be_bytes()).unwrap();
            }
            txn.commit(Durability::Sync).unwrap();
        }
        let tree = Tree::new(&engine, &space, &to_free, TABLE, PageId(root.load(SeqCst)));
        let workers = region.place_one("test.workers", 64).unwrap();
        let acknowledged = region.place("test.acknowledged", WORKERS_MAX, 64).unwrap();
        Process { engine, members, space, to_free, tree, root, workers, acknowledged }
    }

    fn create(dir: &Path) -> Process {
        std::fs::create_dir(dir.join("environment")).unwrap();
        Process::of(Region::create_at(&dir.join("region"), kit().region_bytes()).unwrap(), dir)
    }

    fn join(dir: &Path) -> Process {
        Process::of(Region::join_at(&dir.join("region")).unwrap(), dir)
    }

    /// Mends what the dead have left, as long as this process is there.
    fn watch(&self, ends: &AtomicBool) {
        while !ends.load(SeqCst) {
            self.look();
            sync::sleep_ns(LOOK_NS);
        }
    }

    fn look(&self) {
        let also = |dead: &Dead<'_>| self.space.repair(dead);
        if ledgerstone_recovery::repair(&self.engine, also).unwrap() {
            self.engine.end_orphans(|_| panic!("nobody prepares")).unwrap();
        }
        if !self.engine.cache.has_writer() {
            self.engine.cache.start_writer();
        }
    }

    /// Moves money between accounts, and counts how often in a record of its own, in the same transactions.
    fn work(&self, ends: &AtomicBool) {
        let me = self.workers.fetch_add(1, SeqCst);
        let mut random = Random::new(u64::from(std::process::id()));
        let mut count = 0_u64;
        while !ends.load(SeqCst) {
            let mut txn = self.engine.begin().unwrap();
            match self.transfer(&mut txn, &mut random, me, count + 1) {
                Ok(()) if random.below(10) == 0 => txn.abort().unwrap(),
                Ok(()) => {
                    let durability = if random.below(4) == 0 { Durability::Sync } else { Durability::Volatile };
                    txn.commit(durability).unwrap();
                    count += 1;
                    self.acknowledged[me as usize].store(count, SeqCst);
                }
                Err(TreeError::Txn(TxnError::Lock(_))) => txn.abort().unwrap(),
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn transfer(&self, txn: &mut Txn, random: &mut Random, me: u64, count: u64) -> Result<(), TreeError> {
        let amount = random.below(10) + 1;
        for (no, by) in [(random.below(ACCOUNTS), amount.wrapping_neg()), (random.below(ACCOUNTS), amount)] {
            let key = account(no);
            let balance = self.tree.get(txn, &key, Read::ForUpdate)?.expect("accounts stay");
            self.tree.put(txn, &key, &number(&balance).wrapping_add(by).to_be_bytes())?;
        }
        self.tree.put(txn, &count_of(me), &count.to_be_bytes())?;
        // A record that grows and shrinks, so that leaves are split, and packed.
        let len = if count.is_multiple_of(2) { 10 } else { 1500 };
        self.tree.put(txn, &[b'x', me as u8], &vec![me as u8; len]).map(drop)
    }

    /// Adds so many records that the data file outgrows the first piece of the page table. Then counts up what any
    /// process has added.
    fn grow(&self, me: u64, is_grown: impl FnOnce()) {
        for no in 0..ADDED {
            let mut txn = self.engine.begin().unwrap();
            self.tree.put(&mut txn, &added(me, no), &counted(0)).unwrap();
            txn.commit(Durability::Volatile).unwrap();
        }
        is_grown();
        let mut random = Random::new(me);
        for _ in 0..CHANGES {
            let key = added(random.below(2), random.below(ADDED));
            let mut txn = self.engine.begin().unwrap();
            let value = self.tree.get(&mut txn, &key, Read::ForUpdate).unwrap().expect("it was added");
            self.tree.put(&mut txn, &key, &counted(number(&value[..8]) + 1)).unwrap();
            txn.commit(Durability::Volatile).unwrap();
        }
    }

    /// No money is lost, and nothing that was acknowledged.
    fn check(&self) {
        let report = self.tree.check().unwrap();
        assert!(report.problems.is_empty(), "{:?}", report.problems);
        let mut txn = self.engine.begin().unwrap();
        let mut scan = self.tree.scan(Bound::Unbounded, Bound::Unbounded, Direction::Forward);
        let (mut sum, mut counts) = (0_u64, vec![0; WORKERS_MAX as usize]);
        while let Some((key, value)) = scan.next(&mut txn).unwrap() {
            match key[0] {
                b'a' => sum = sum.wrapping_add(number(value)),
                b'w' => counts[number(&key[1..]) as usize] = number(value),
                _ => {}
            }
        }
        txn.commit(Durability::Volatile).unwrap();
        assert_eq!(sum, ACCOUNTS * BALANCE);
        for (worker, (count, acknowledged)) in counts.iter().zip(self.acknowledged.iter()).enumerate() {
            let acknowledged = acknowledged.load(SeqCst);
            // What it had committed when it was killed, it may not have been told.
            assert!((acknowledged..=acknowledged + 1).contains(count), "worker {worker}: {count}, not {acknowledged}");
        }
    }
}

struct Ends<'e>(&'e AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

/// Not a test, unless another one has started this process.
#[test]
fn the_other_process() {
    let Some((role, dir)) = role() else { return };
    let process = Process::join(&dir);
    if role == "grows" {
        process.grow(1, || {
            println!("has grown");
            listen();
        });
        return;
    }
    assert_eq!(role, "works");
    // A thread that panics does not wait for the others.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        hook(info);
        std::process::exit(1);
    }));
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| process.watch(&ends));
        scope.spawn(|| process.work(&ends));
        println!("works");
        listen();
        ends.store(true, SeqCst);
    });
}

#[test]
fn processes_are_killed_while_they_write_one_tree_and_the_others_go_on() {
    let rounds = std::env::var("ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(30);
    let dir = dir_in_memory();
    let first = Process::create(dir.path());
    let mut random = Random::new(1);
    let start = || {
        let mut other = Other::start("works", dir.path());
        other.hear("works");
        other
    };
    let mut others = vec![start(), start()];
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _ends = Ends(&ends); // Also after a panic, which the scope waits with for its threads.
        scope.spawn(|| first.watch(&ends));
        for round in 0..rounds {
            let committed = || first.acknowledged.iter().map(|count| count.load(SeqCst)).sum::<u64>();
            let before = committed();
            within_patience(|| committed() > before + 20);
            sync::sleep_ns(random.below(5_000_000));
            let victim = random.below(others.len() as u64) as usize;
            others[victim].kill();
            let dead = others.swap_remove(victim);
            let before = committed();
            within_patience(|| committed() > before + 20); // The other one goes on.
            drop(dead);
            others.push(start());
            assert!(!first.engine.is_failed(), "round {round}: {}", first.engine.why_failed());
        }
        others.drain(..).for_each(Other::end);
    });
    first.look();
    first.engine.cache.stop_writer();
    assert!(!first.engine.cache.has_writer(), "whoever has left or was killed is the writer");
    first.check();
    assert_eq!(first.members.iter().collect::<Vec<_>>(), [first.members.no()], "all others have left, or are buried");
    assert_eq!(first.root.load(SeqCst), first.tree.root().0);
    assert!(first.to_free.tree().check().unwrap().problems.is_empty());
}

#[test]
fn processes_read_and_write_pages_behind_the_first_ones_of_the_page_table() {
    let dir = dir_in_memory();
    let first = Process::create(dir.path());
    let mut other = Other::start("grows", dir.path());
    first.grow(0, || {
        other.hear("has grown");
        let pages = first.engine.cache.page_count().unwrap();
        assert!(pages > FIRST_PAGES + FIRST_PAGES / 4, "only {pages} pages");
        other.tell();
    });
    other.end();
    first.check();
    let mut txn = first.engine.begin().unwrap();
    let mut sum = 0;
    for (process, no) in (0..2).flat_map(|process| (0..ADDED).map(move |no| (process, no))) {
        let value = first.tree.get(&mut txn, &added(process, no), Read::Unlocked).unwrap().expect("it was added");
        let count = number(&value[..8]);
        assert_eq!(value, counted(count), "{no} of process {process}");
        sum += count;
    }
    txn.commit(Durability::Volatile).unwrap();
    assert_eq!(sum, 2 * CHANGES, "a change is lost");
}
