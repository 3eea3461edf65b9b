//! The counter list against a map: under aborts, threads, splits and crashes, and through the kit.
#![allow(missing_docs)]

use std::collections::BTreeMap;
use std::sync::Arc;

use ledgerstone::extend::{Layouts, Registry, Structure, kit};
use ledgerstone::{Environment, Error, Options, Transaction};
use ledgerstone_disk::SimDisk;
use ledgerstone_examples::counter_list::{CounterList, ListStructure, cases};

struct Store {
    env: Environment,
}

impl Store {
    fn open(disk: &SimDisk) -> Store {
        let options: Options = Environment::options()
            .cache_bytes(96 * 4096)
            .page_count_max(1 << 14)
            .log_segment_bytes(64 << 10)
            .log_buffer_bytes(128 << 10)
            .structure(Arc::new(ListStructure));
        Store { env: options.open_on(Arc::new(disk.clone())).unwrap() }
    }

    fn new() -> (SimDisk, Store) {
        let disk = SimDisk::new();
        let store = Store::open(&disk);
        store.env.transact(|txn| CounterList::create(txn, "list").map(drop)).unwrap();
        (disk, store)
    }

    fn list(&self, txn: &Transaction) -> Result<CounterList, Error> {
        CounterList::open(txn, "list")
    }

    fn all(&self) -> BTreeMap<u64, i64> {
        self.env.transact(|txn| self.list(txn)?.all()).unwrap().into_iter().collect()
    }

    fn assert_sound(&self) {
        let report = self.env.verify().unwrap();
        assert!(report.problems.is_empty(), "{:?}", report.problems);
        assert_eq!(report.structure_count, 1);
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

#[test]
fn the_kit_finds_nothing_wrong() {
    let (mut ops, mut layouts) = (Registry::new(), Layouts::basic());
    ListStructure.operations().into_iter().for_each(|operation| ops.register(operation).unwrap());
    ListStructure.layouts().into_iter().for_each(|layout| layouts.register(layout).unwrap());
    kit::check_registry(&ops, &cases()).unwrap();
    cases().iter().for_each(|case| kit::check_case(&ops, &layouts, case).unwrap());
}

#[test]
fn it_is_what_a_map_is_over_splits_aborts_savepoints_and_restarts() {
    let (disk, mut store) = Store::new();
    let (mut model, mut random) = (BTreeMap::new(), Random(1));
    for round in 0..120 {
        let txn = store.env.begin().unwrap();
        let list = store.list(&txn).unwrap();
        let mut changed = model.clone();
        for _ in 0..random.below(40) {
            let (key, delta) = (random.below(2000), random.below(100) as i64 - 50);
            list.add(key, delta).unwrap();
            *changed.entry(key).or_insert(0) += delta;
        }
        let savepoint = txn.savepoint().unwrap();
        (0..random.below(10)).for_each(|_| list.add(random.below(2000), 1_000_000).unwrap());
        txn.rollback_to(savepoint).unwrap();
        if random.below(4) == 0 {
            txn.abort().unwrap();
        } else {
            let _ = txn.commit().unwrap();
            model = changed;
        }
        if round % 40 == 39 {
            assert_eq!(store.all(), model);
            store.assert_sound();
            store.env.close().unwrap();
            store = Store::open(&disk);
        }
    }
    assert_eq!(store.all(), model);
    let (key, value) = model.first_key_value().unwrap();
    let got = store.env.transact(|txn| Ok::<_, Error>((store.list(txn)?.get(*key)?, store.list(txn)?.get(5000)?)));
    assert_eq!(got.unwrap(), (Some(*value), None));
    assert!(store.env.transact(|txn| store.list(txn)?.page_count()).unwrap() > 5, "it has split");
}

#[test]
fn threads_add_beside_each_other_while_pages_split() {
    let (disk, store) = Store::new();
    let totals: Vec<BTreeMap<u64, i64>> = std::thread::scope(|scope| {
        let work = |thread: u64| {
            let store = &store;
            scope.spawn(move || {
                let (mut kept, mut random) = (BTreeMap::new(), Random(thread));
                for _ in 0..60 {
                    let (mut mine, aborts) = (BTreeMap::new(), random.below(4) == 0);
                    let keys: Vec<u64> = (0..8).map(|_| random.below(900)).collect();
                    let done = store.env.transact(|txn| {
                        mine.clear();
                        let list = store.list(txn)?;
                        for &key in &keys {
                            list.add(key, 1)?;
                            *mine.entry(key).or_insert(0) += 1;
                        }
                        if aborts { Err(Error::user("on purpose")) } else { Ok(()) }
                    });
                    match done {
                        Ok(()) => mine.into_iter().for_each(|(key, n)| *kept.entry(key).or_insert(0) += n),
                        Err(error) => assert!(matches!(error, Error::User(_)), "{error}"),
                    }
                }
                kept
            })
        };
        let threads: Vec<_> = (0..5).map(work).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let mut model: BTreeMap<u64, i64> = BTreeMap::new();
    totals.into_iter().flatten().for_each(|(key, n)| *model.entry(key).or_insert(0) += n);
    assert_eq!(store.all(), model);
    store.assert_sound();
    store.env.close().unwrap();
    let store = Store::open(&disk);
    assert_eq!(store.all(), model);
    let before = store.env.stat().unwrap().allocated_page_count;
    let pages = store.env.transact(|txn| store.list(txn)?.page_count()).unwrap() as u64;
    store.env.transact(|txn| txn.drop_structure("list")).unwrap();
    store.env.reclaim().unwrap();
    assert_eq!(store.env.stat().unwrap().allocated_page_count, before - pages, "all its pages are freed");
}

#[test]
fn a_crash_at_any_write_of_splits_keeps_what_was_committed_and_nothing_else() {
    let (base, store) = Store::new();
    store.env.transact(|txn| (0..250).try_for_each(|n| store.list(txn)?.add(n * 10, 1))).unwrap();
    let before = store.all();
    store.env.close().unwrap();
    let mut crashes = 0;
    for n in 1.. {
        let disk = base.snapshot();
        let store = Store::open(&disk);
        disk.crash_at(disk.counters().mutations + n);
        let mut model = before.clone();
        let mut may_be = before.clone();
        let mut run = || -> Result<(), Error> {
            let loser = store.env.begin()?;
            (0..40).try_for_each(|n| store.list(&loser)?.add(n * 30 + 7, 1_000))?; // Splits for what never commits.
            store.env.checkpoint()?;
            for round in 0..4 {
                let txn = store.env.begin()?;
                for key in 0..20 {
                    let key = (round * 20 + key) * 30 + 5;
                    store.list(&txn)?.add(key, 1)?;
                    *may_be.entry(key).or_insert(0) += 1;
                }
                let _ = txn.commit()?;
                model.clone_from(&may_be);
            }
            Ok(())
        };
        let is_done = run().is_ok();
        crashes += u64::from(disk.is_crashed());
        disk.crash_now();
        drop(store);
        // The recovery loses its power as well.
        let disk = disk.after_crash(n);
        disk.crash_at(disk.counters().mutations + n % 7 + 1);
        let options = Environment::options().cache_bytes(96 * 4096).structure(Arc::new(ListStructure));
        drop(options.open_on(Arc::new(disk.clone())));
        disk.crash_now();
        let store = Store::open(&disk.after_crash(n + 1));
        let found = store.all();
        assert!(found == model || found == may_be && !is_done, "power lost at change {n}");
        store.assert_sound();
        if is_done {
            break;
        }
    }
    assert!(crashes > 5, "{crashes}");
}

/// One damaged page of a list is one problem, and the pages behind it, which nobody names any more, are none.
#[test]
fn a_damaged_page_is_told_once() {
    use ledgerstone_disk::{Disk, Open};
    let (disk, store) = Store::new();
    store.env.transact(|txn| (0..3000).try_for_each(|key| store.list(txn)?.add(key, 1).map(drop))).unwrap();
    store.env.close().unwrap();
    let data = disk.open("data", Open::READ).unwrap();
    let len = data.len().unwrap();
    let mut bytes = vec![0; len as usize];
    data.read_at(0, &mut bytes).unwrap();
    // The pages of the list by their layout, the first one apart: it is the list's root.
    let layout = |page: &[u8]| u16::from_le_bytes([page[4], page[5]]);
    let pages: Vec<usize> = (0..bytes.len() / 4096).filter(|no| layout(&bytes[no * 4096..]) == 257).collect();
    assert!(pages.len() > 8, "{} pages", pages.len());
    let mut told_count = 0;
    for &page in &pages {
        let broken = disk.snapshot();
        let data = broken.open("data", Open::CREATE).unwrap();
        let mut damaged = bytes[page * 4096..(page + 1) * 4096].to_vec();
        damaged[2000] ^= 4;
        data.write_at(page as u64 * 4096, &damaged).unwrap();
        data.sync().unwrap();
        let report = Store::open(&broken).env.verify().unwrap();
        if report.problems.is_empty() {
            continue; // It was written last, and has come back from the double-write file.
        }
        assert_eq!(report.problems.len(), 1, "{:?}", report.problems);
        assert_eq!(report.problems[0].page, Some(page as u64));
        told_count += 1;
    }
    assert!(told_count > 0, "{told_count} of {} pages", pages.len());
}
