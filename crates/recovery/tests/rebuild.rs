//! A page built again from the data file and the log is the page that was changed: whatever of both is durable.

mod counting;

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use counting::{ADD, COUNTERS, FORMAT, PAGES, add_args, create};
use ledgerstone_buffer::{BufferError, Cache, CacheConfig, ExclusivePage, Policy, Rebuild};
use ledgerstone_disk::{Disk, Open, SimDisk};
use ledgerstone_log::{ControlFile, NewRecord, RecordKind};
use ledgerstone_page::{Lsn, OpId, PageId, Xid, checksum, header};
use ledgerstone_recovery::{PageRebuild, RecoveryError, checkpoint};
use ledgerstone_region::{Random, Region, SlotTable, Words};
use ledgerstone_txn::{Durability, Engine, Part, Txn, TxnError};

const PAGE_BYTES: u32 = 4096;
/// Pages behind the first ones are made by the test.
const NEW_PAGES: u64 = 8;

/// An engine, and the places at which its log has ended.
struct World {
    sim: SimDisk,
    engine: Arc<Engine>,
    control: Arc<ControlFile>,
    tails: Vec<Lsn>,
}

impl World {
    fn new() -> World {
        let sim = SimDisk::new();
        let disk: Arc<dyn Disk> = Arc::new(sim.clone());
        let (engine, control) = create(&disk).unwrap();
        World { sim, tails: vec![engine.log.tail()], engine, control }
    }

    fn begin(&self) -> Txn {
        self.engine.begin().unwrap()
    }

    /// Changes a page: makes it, adds to one of its counters, or both in a group with its neighbours.
    fn change(&mut self, txn: &mut Txn, random: &mut Random, id: u64) -> Result<(), TxnError> {
        self.tails.push(self.engine.log.tail());
        let engine = Arc::clone(&self.engine);
        let args = |random: &mut Random| add_args(random.below(COUNTERS as u64) as usize, random.below(1000) as i64);
        txn.claim(1024)?;
        let (mut page, is_new) = engine.cache.exclusive_or_new(PageId(id))?;
        match random.below(8) {
            _ if is_new => txn.update(&mut page, FORMAT, &[]).map(drop),
            0 if id > PAGES => txn.update(&mut page, FORMAT, &[]).map(drop),
            1 | 2 => {
                let (mut second, is_second_new) = engine.cache.exclusive_or_new(PageId(id + 1))?;
                let adds = [args(random), args(random), args(random)];
                let mut parts = vec![
                    Part { page: 0, op: ADD, args: &adds[0] },
                    Part { page: 1, op: if is_second_new { FORMAT } else { ADD }, args: &adds[1] },
                    Part { page: 0, op: ADD, args: &adds[2] },
                ];
                if random.below(4) == 0 {
                    parts.insert(0, Part { page: 0, op: FORMAT, args: &[] });
                }
                txn.group(&mut [&mut page, &mut second], &parts).map(drop)
            }
            _ => txn.update(&mut page, ADD, &args(random)).map(drop),
        }
    }

    fn work(&mut self, random: &mut Random) {
        let mut txn = self.begin();
        for _ in 0..60 {
            // Few pages, so that each has many records.
            let id = if random.below(2) == 0 { 1 + random.below(4) } else { PAGES + 1 + random.below(NEW_PAGES) };
            self.change(&mut txn, random, id).unwrap();
            match random.below(12) {
                0 => drop(self.engine.cache.write_back_page(PageId(id)).unwrap()),
                1 => self.engine.log.flush().unwrap(),
                2 => drop(std::mem::replace(&mut txn, self.begin()).commit(Durability::Volatile).unwrap()),
                3 => std::mem::replace(&mut txn, self.begin()).abort().unwrap(),
                _ => {}
            }
        }
        txn.commit(Durability::Volatile).unwrap();
    }

    /// Another cache over the same data file, with nothing in it.
    fn empty_cache(&self) -> Arc<Cache> {
        let region = Region::anonymous(8 << 20).unwrap();
        let slots = Arc::new(SlotTable::place(&region, 8).unwrap());
        Cache::new(CacheConfig {
            region,
            slots,
            data: self.sim.open("data", Open::EXISTING).unwrap(),
            double_write: SimDisk::new().open("double_write", Open::CREATE).unwrap(),
            log: Arc::clone(&self.engine.log) as _,
            page_bytes: PAGE_BYTES,
            cache_bytes: 16 * (u64::from(PAGE_BYTES) + 200),
            max_pages: 1000,
            policy: Policy::Clock,
        })
        .unwrap()
    }

    fn rebuild(&self, page: &mut ExclusivePage<'_>, from: Lsn, is_void: bool) -> Result<(), BufferError> {
        let log = &self.engine.log;
        PageRebuild::new(&self.engine.ops, log, log.tail()).rebuild(page, from, is_void)
    }

    /// Builds a page again from its bytes in the data file, or from zeros, and says why not.
    fn build(&self, id: PageId, from: Lsn, is_void: bool) -> Result<Vec<u8>, String> {
        let cache = self.empty_cache();
        let mut page = if is_void { cache.exclusive_new(id) } else { cache.exclusive(id) }.unwrap();
        let built = self.rebuild(&mut page, from, is_void).map(|()| bytes_of(page.words()));
        if built.is_ok() && page.is_new() {
            return Ok(vec![0; PAGE_BYTES as usize]);
        }
        built.map_err(|error| match error {
            BufferError::NotRedone { page, what } if page == id => what,
            other => panic!("{other}"),
        })
    }

    /// The page as the engine has it.
    fn live(&self, id: PageId) -> Vec<u8> {
        bytes_of(self.engine.cache.shared(id).unwrap().words())
    }

    /// The LSNs of the records of a page, oldest first, and whether each formats it.
    fn records_of(&self, id: PageId) -> Vec<(Lsn, bool)> {
        let (log, mut found) = (&self.engine.log, Vec::new());
        let mut at = self.tails[0];
        while at < log.tail() {
            let record = log.read(at).unwrap();
            at = record.end();
            let first = match record.kind().has_page() {
                true => Some(record.op()).filter(|_| record.page() == id),
                false => record.parts().map(Result::unwrap).find(|part| part.page == id).map(|part| part.op),
            };
            found.extend(first.map(|op| (record.lsn(), op == FORMAT)));
        }
        found
    }

    fn home_lsn(&self, id: PageId) -> Option<Lsn> {
        let bytes = self.engine.cache.read_page_direct(id).ok()?;
        Some(Lsn(u64::from_le_bytes(std::array::from_fn(|i| bytes[header::PAGE_LSN + i]))))
    }

    /// Some place from which the page can be built again, and must not be later than `first`.
    fn tail_before(&self, first: Lsn, random: &mut Random) -> Lsn {
        let low = self.tails.partition_point(|tail| *tail <= first);
        self.tails[low - 1 - random.below(low as u64).min(random.below(4)) as usize]
    }
}

/// Sealed, so that what the header had of an earlier seal does not matter.
fn bytes_of(words: Words<'_>) -> Vec<u8> {
    let mut bytes = words.to_vec(0, PAGE_BYTES as usize);
    checksum::seal(&mut bytes);
    bytes
}

#[test]
fn a_page_built_again_is_the_page_that_was_changed() {
    let (mut from_home, mut from_nothing, mut unflushed) = (0, 0, 0);
    for seed in 0..60 {
        let mut random = Random::new(seed);
        let mut world = World::new();
        for _ in 0..3 {
            world.work(&mut random);
        }
        for id in (1..=4).chain(PAGES + 1..=PAGES + NEW_PAGES + 1).map(PageId) {
            let records = world.records_of(id);
            let Some(&(last, _)) = records.last() else { continue };
            unflushed += u64::from(!world.engine.log.is_durable(last));
            if let Some(home) = world.home_lsn(id) {
                let first = records.iter().map(|(lsn, _)| *lsn).find(|lsn| *lsn > home).unwrap_or(last);
                let from = world.tail_before(first, &mut random);
                let built = world.build(id, from, false);
                assert_eq!(built.as_ref(), Ok(&world.live(id)), "seed {seed}, {id} of {home} from {from}");
                from_home += 1;
            }
            // A page that was never written, or is damaged at home: the first record makes it.
            for &(lsn, _) in records.iter().filter(|(_, formats)| *formats) {
                let built = world.build(id, lsn, true);
                assert_eq!(built.as_ref(), Ok(&world.live(id)), "seed {seed}, {id} from its format at {lsn}");
                from_nothing += 1;
            }
        }
    }
    println!("{from_home} from what was home, {from_nothing} from nothing, {unflushed} with a last record in memory");
    assert!(from_home > 300 && from_nothing > 300 && unflushed > 100);
}

/// Three changes of page 1 that are not home: the LSN of each.
fn three_changes(world: &mut World) -> [Lsn; 3] {
    let mut txn = world.begin();
    let changes = [1, 10, 100].map(|delta| {
        txn.claim(256).unwrap();
        let mut page = world.engine.cache.exclusive(PageId(1)).unwrap();
        txn.update(&mut page, ADD, &add_args(3, delta)).unwrap()
    });
    txn.commit(Durability::Volatile).unwrap();
    changes
}

#[test]
fn a_record_that_is_missing_before_the_next_is_an_error_that_names_both() {
    let mut world = World::new();
    let home = world.home_lsn(PageId(1)).unwrap();
    let [first, second, third] = three_changes(&mut world);
    for is_durable in [false, true] {
        let error = world.build(PageId(1), second, false).unwrap_err();
        assert!(error.ends_with(&format!("record at LSN {second} continues {first}, but it has {home}")), "{error}");
        assert_eq!(world.build(PageId(1), first, false), Ok(world.live(PageId(1))), "durable: {is_durable}");
        world.engine.log.flush().unwrap();
    }
    // Behind the last one, there is nothing to repeat, and nobody can know what is missing.
    let built = world.build(PageId(1), Lsn(third.0 + 8).max(world.engine.log.tail()), false).unwrap();
    assert_eq!(built, world.engine.cache.read_page_direct(PageId(1)).unwrap());
}

#[test]
fn a_page_of_which_nothing_is_known_needs_a_record_that_makes_it() {
    let mut world = World::new();
    let [first, ..] = three_changes(&mut world);
    let error = world.build(PageId(1), first, true).unwrap_err();
    assert!(error.ends_with(&format!("the record at LSN {first} changes it, and none before it makes it")), "{error}");
    // A page that was new, and whose first record its thread has not lived to append.
    let untouched = PageId(PAGES + 1);
    assert_eq!(world.build(untouched, first, true), Ok(vec![0; PAGE_BYTES as usize]));
}

#[test]
fn records_that_the_page_has_are_passed_over() {
    let mut world = World::new();
    three_changes(&mut world);
    world.engine.cache.write_back_page(PageId(1)).unwrap();
    let before = world.tails[0];
    assert_eq!(world.build(PageId(1), before, false), Ok(world.live(PageId(1))));
}

#[test]
fn a_damaged_record_is_an_error_whether_it_is_of_the_page_or_not() {
    for which in 0..3 {
        let mut world = World::new();
        let changes = three_changes(&mut world);
        world.engine.log.flush().unwrap();
        let path = world.sim.files().into_iter().find(|path| path.starts_with("log/"));
        let path = path.unwrap_or_else(|| panic!("no segment among {:?}", world.sim.files()));
        let mut bytes = world.sim.bytes_of(&path).unwrap();
        bytes[changes[which].0 as usize + 40] ^= 1;
        world.sim.replace(&path, Some(&bytes)).unwrap();
        let error = world.build(PageId(1), changes[0], false).unwrap_err();
        assert!(error.contains(&format!("no valid record at LSN {}", changes[which])), "{error}");
    }
}

/// A void record is what a repair puts in the place of records of the dead.
fn append_zeros(engine: &Engine, kind: RecordKind) -> Lsn {
    let (xid, prev_lsn, op) = (Xid(0), Lsn(0), OpId(0));
    let body: &[&[u8]] = &[&[0; 400]];
    let record = NewRecord { kind, xid, prev_lsn, op, flags: 0, page: None, body };
    let mut claim = engine.log.claim(record.len_bytes()).unwrap();
    let lsn = engine.log.append(&mut claim, &record);
    engine.log.give_back(claim);
    lsn
}

#[test]
fn the_place_to_begin_may_lie_within_a_void_record() {
    for is_durable in [false, true] {
        let mut world = World::new();
        let void = append_zeros(&world.engine, RecordKind::Void);
        three_changes(&mut world);
        if is_durable {
            world.engine.log.flush().unwrap();
        }
        for at in (0..424).step_by(8) {
            let from = Lsn(void.0 + at);
            assert_eq!(world.build(PageId(1), from, false), Ok(world.live(PageId(1))), "{is_durable}, from {from}");
        }
    }
}

/// A transaction says that it has seen the log end within what is a void record now.
#[test]
fn a_restart_begins_behind_a_void_record_in_which_a_mark_lies() {
    for at in [0, 8, 64, 416, 424] {
        let mut world = World::new();
        let void = append_zeros(&world.engine, RecordKind::Void);
        let mut txn = world.begin();
        txn.claim(256).unwrap();
        let mut page = world.engine.cache.exclusive(PageId(5)).unwrap();
        txn.update(&mut page, ADD, &add_args(0, 7)).unwrap();
        drop(page);
        let table = &world.engine.table;
        let slot = (0..table.slot_count()).map(|no| table.slot(no)).find(|slot| slot.first_lsn.load(SeqCst) != 0);
        slot.expect("it has written").first_lsn.store(void.0 + at, SeqCst);
        let made = checkpoint(&world.engine, &world.control, false).unwrap();
        assert_eq!(made.scan_lsn, if at == 0 { void } else { Lsn(void.0 + 424) });
        three_changes(&mut world);
        world.engine.log.flush().unwrap();
        let live = world.live(PageId(1));
        let disk: Arc<dyn Disk> = Arc::new(world.sim.after_crash(at));
        let (engine, _) = counting::recover(&disk).unwrap();
        assert_eq!(bytes_of(engine.cache.shared(PageId(1)).unwrap().words()), live, "a mark {at} bytes within");
        assert_eq!(counting::values(&engine)[4 * COUNTERS], 0, "the loser is undone");
        std::mem::forget(txn); // Its engine has crashed.
    }
}

/// Zeros within any other record are not where somebody saw the log end.
#[test]
fn the_place_to_begin_lies_in_no_other_record() {
    let mut world = World::new();
    let user = append_zeros(&world.engine, RecordKind::User);
    three_changes(&mut world);
    world.engine.log.flush().unwrap();
    let error = world.build(PageId(1), Lsn(user.0 + 64), false).unwrap_err();
    assert!(error.contains(&format!("no valid record at LSN {}", user.0 + 64)), "{error}");
}

#[test]
fn a_log_that_was_given_up_is_told() {
    let mut world = World::new();
    let [first, ..] = three_changes(&mut world);
    for _ in 0..4 {
        let mut txn = world.begin();
        for _ in 0..300 {
            txn.claim(256).unwrap();
            let mut page = world.engine.cache.exclusive(PageId(2)).unwrap();
            txn.update(&mut page, ADD, &add_args(0, 1)).unwrap();
        }
        txn.commit(Durability::Volatile).unwrap();
        checkpoint(&world.engine, &world.control, false).unwrap();
    }
    let oldest = world.engine.log.oldest_lsn();
    assert!(oldest > first, "{oldest}");
    let error = world.build(PageId(1), first, true).unwrap_err();
    assert!(error.ends_with(&format!("the log no longer holds LSN {first}, it begins at {oldest}")), "{error}");
}

#[test]
fn an_operation_that_refuses_is_told() {
    let world = World::new();
    let mut txn = world.begin();
    txn.claim(256).unwrap();
    let mut page = world.engine.cache.exclusive(PageId(3)).unwrap();
    let lsn = txn.update(&mut page, counting::ADD_UNLESS_REFUSED, &add_args(0, 5)).unwrap();
    drop(page);
    counting::IS_REFUSED.store(true, SeqCst);
    let error = world.build(PageId(3), lsn, false).unwrap_err();
    counting::IS_REFUSED.store(false, SeqCst);
    let expected = RecoveryError::Redo {
        lsn,
        page: PageId(3),
        source: ledgerstone_op::OpError::Unfit { op: counting::ADD_UNLESS_REFUSED, what: "it is refused" },
    };
    assert!(error.ends_with(&expected.to_string()), "{error}");
    txn.commit(Durability::Volatile).unwrap();
}
