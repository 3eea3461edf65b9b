//! Lemon's increment: beside each other, taken back, over crashes, and through the kit.
#![allow(missing_docs)]

use std::sync::Arc;
use std::time::Duration;

use ledgerstone::extend::{
    Corrupt, Engine, Layout, LayoutId, Layouts, OpError, OpId, Operation, PageId, PageMut, Registry, Structure,
    StructureId, TxnError, Undo, Words, header, kit,
};
use ledgerstone::{Environment, Error, Options, TransactionOptions};
use ledgerstone_disk::SimDisk;
use ledgerstone_examples::increment::{Counters, CountersStructure, cases};

fn options() -> Options {
    Environment::options()
        .cache_bytes(64 * 4096)
        .page_count_max(1 << 14)
        .log_segment_bytes(64 << 10)
        .log_buffer_bytes(128 << 10)
        .structure(Arc::new(CountersStructure))
}

fn open(disk: &SimDisk) -> Environment {
    options().open_on(Arc::new(disk.clone())).unwrap()
}

fn environment() -> (SimDisk, Environment) {
    let disk = SimDisk::new();
    let env = open(&disk);
    env.transact(|txn| Counters::create(txn, "hits").map(drop)).unwrap();
    (disk, env)
}

fn get(env: &Environment, no: u16) -> i64 {
    env.transact(|txn| Counters::open(txn, "hits")?.get(no)).unwrap()
}

fn assert_sound(env: &Environment) {
    let report = env.verify().unwrap();
    assert!(report.problems.is_empty(), "{:?}", report.problems);
}

#[test]
fn the_kit_finds_nothing_wrong() {
    let mut ops = Registry::new();
    CountersStructure.operations().into_iter().for_each(|operation| ops.register(operation).unwrap());
    kit::check_registry(&ops, &cases()).unwrap();
    let mut layouts = Layouts::basic();
    CountersStructure.layouts().into_iter().for_each(|layout| layouts.register(layout).unwrap());
    cases().iter().for_each(|case| kit::check_case(&ops, &layouts, case).unwrap());
}

#[test]
fn nobody_who_adds_waits_for_anybody_who_adds() {
    let (_, env) = environment();
    let at_once = TransactionOptions { lock_timeout: Some(Duration::ZERO), ..TransactionOptions::default() };
    let all: Vec<_> = (0..5).map(|_| env.begin_with(at_once).unwrap()).collect();
    for (no, txn) in all.iter().enumerate() {
        Counters::open(txn, "hits").unwrap().add(3, 10i64.pow(no as u32)).unwrap();
    }
    let reader = env.begin_with(at_once).unwrap();
    let refused = Counters::open(&reader, "hits").unwrap().get(3);
    assert!(matches!(refused, Err(Error::LockTimeout { .. })), "a reader waits: {refused:?}");
    drop(reader);
    for (no, txn) in all.into_iter().enumerate() {
        if no % 2 == 0 { drop(txn.commit().unwrap()) } else { txn.abort().unwrap() }
    }
    assert_eq!(get(&env, 3), 10_101);
}

#[test]
fn sums_are_right_after_many_threads_have_added_and_aborted() {
    let (disk, env) = environment();
    let kept: i64 = std::thread::scope(|scope| {
        let work = |thread: u64| {
            let env = env.clone();
            scope.spawn(move || {
                let mut kept = 0;
                for n in 0..150_u64 {
                    let (txn, delta) = (env.begin().unwrap(), (thread * 1000 + n) as i64 % 17 - 8);
                    let counters = Counters::open(&txn, "hits").unwrap();
                    counters.add(0, delta).unwrap();
                    let savepoint = txn.savepoint().unwrap();
                    counters.add(0, 1000).unwrap();
                    txn.rollback_to(savepoint).unwrap();
                    if (thread + n).is_multiple_of(3) {
                        txn.abort().unwrap();
                    } else {
                        let _ = txn.commit_with(ledgerstone::Durability::Volatile).unwrap();
                        kept += delta;
                    }
                }
                kept
            })
        };
        let threads: Vec<_> = (0..6).map(work).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(get(&env, 0), kept);
    assert_sound(&env);
    env.close().unwrap();
    assert_eq!(get(&open(&disk), 0), kept);
}

#[test]
fn a_crash_at_any_write_keeps_what_was_committed_and_nothing_else() {
    let (base, env) = environment();
    env.close().unwrap();
    let mut crashes = 0;
    for n in 1.. {
        let disk = base.snapshot();
        let env = open(&disk);
        disk.crash_at(disk.counters().mutations + n);
        let mut committed = 0;
        let mut run = || -> Result<(), Error> {
            let open = env.begin()?; // Never ends: in the log, and to be taken back.
            for round in 0..6 {
                Counters::open(&open, "hits")?.add(0, 1_000_000)?;
                let txn = env.begin()?;
                Counters::open(&txn, "hits")?.add(0, 1)?;
                if round % 3 == 2 {
                    txn.abort()?;
                    env.checkpoint()?;
                } else {
                    let _ = txn.commit()?;
                    committed += 1;
                }
            }
            Ok(())
        };
        let is_done = run().is_ok();
        crashes += u64::from(disk.is_crashed());
        disk.crash_now();
        drop(env);
        let env = open(&disk.after_crash(n));
        let found = get(&env, 0);
        assert!(found == committed || found == committed + 1 && !is_done, "power lost at change {n}: {found}");
        assert_sound(&env);
        if is_done {
            break;
        }
    }
    assert!(crashes > 5, "{crashes}");
}

#[test]
fn prepared_additions_wait_for_their_decision_and_let_others_add() {
    let (mut disk, env) = environment();
    let txn = env.begin().unwrap();
    Counters::open(&txn, "hits").unwrap().add(1, 5).unwrap();
    let _ = txn.prepare(b"id").unwrap();
    disk.crash_now();
    drop(env);
    disk = disk.after_crash(1);
    let env = open(&disk);
    env.transact(|txn| Counters::open(txn, "hits")?.add(1, 100)).unwrap();
    env.abort_in_doubt(b"id").unwrap();
    assert_eq!(get(&env, 1), 100);
}

/// Their pages are free then, or about to be.
#[test]
fn counters_that_their_transaction_has_dropped_or_unmade_are_refused() {
    let (_, env) = environment();
    let txn = env.begin().unwrap();
    let old = Counters::open(&txn, "hits").unwrap();
    let refused = |counters: &Counters| {
        let errors = [counters.add(0, 1).err(), counters.get(0).err()];
        errors.iter().all(|error| matches!(error, Some(Error::NoSuchTable(_))))
    };
    let start = txn.savepoint().unwrap();
    let new = Counters::create(&txn, "new").unwrap();
    new.add(0, 1).unwrap();
    let made = txn.savepoint().unwrap();
    for name in ["hits", "new"] {
        txn.drop_structure(name).unwrap();
    }
    assert!(refused(&old) && refused(&new), "dropped");
    txn.rollback_to(made).unwrap();
    old.add(0, 1).unwrap();
    assert_eq!(new.get(0).unwrap(), 1, "there again");
    txn.drop_structure("new").unwrap();
    txn.rollback_to(start).unwrap();
    assert!(refused(&new), "never made");
    let again = Counters::create(&txn, "new").unwrap();
    again.add(0, 3).unwrap();
    assert!(refused(&new), "another one of that name");
    let child = txn.nested(|txn| {
        let inner = Counters::create(txn, "inner")?;
        inner.add(0, 1)?;
        Err::<(), _>(Error::NoSuchTable(format!("{:?}", inner.get(0))))
    });
    assert!(matches!(child, Err(Error::NoSuchTable(text)) if text == "Ok(1)"));
    old.add(0, 5).unwrap();
    let _ = txn.commit().unwrap();
    assert_eq!(get(&env, 0), 5);
    assert_sound(&env);
}

#[test]
fn an_environment_is_refused_without_the_structure_it_needs() {
    let (disk, env) = environment();
    let without = |disk: &SimDisk| {
        let options = Environment::options().cache_bytes(64 * 4096).page_count_max(1 << 14).log_buffer_bytes(128 << 10);
        options.open_on(Arc::new(disk.clone()))
    };
    env.checkpoint().unwrap();
    env.transact(|txn| Counters::open(txn, "hits")?.add(2, 7)).unwrap();
    disk.crash_now();
    drop(env);
    let disk = disk.after_crash(3);
    let by_log = without(&disk).unwrap_err();
    assert!(matches!(by_log, Error::UnknownOperation { .. }) && by_log.to_string().contains("1025"), "{by_log}");
    let env = open(&disk);
    assert_eq!(get(&env, 2), 7, "nothing was lost by trying");
    env.close().unwrap();
    let by_data = without(&disk).unwrap_err();
    assert!(by_data.to_string().contains("\"hits\" is an instance of structure 1"), "{by_data}");
    assert_eq!(get(&open(&disk), 2), 7);
}

#[test]
fn structures_come_and_go_like_tables() {
    let (disk, env) = environment();
    let pages = |env: &Environment| env.stat().unwrap().allocated_page_count;
    let before = pages(&env);
    let txn = env.begin().unwrap();
    let counters = Counters::create(&txn, "more").unwrap();
    counters.add(0, 1).unwrap();
    assert!(matches!(Counters::create(&txn, "hits"), Err(Error::TableExists(_))));
    assert!(matches!(txn.bytes("hits"), Err(Error::NotATable { .. })));
    txn.create_table("table").unwrap();
    assert!(matches!(Counters::open(&txn, "table"), Err(Error::NotAStructure { .. })));
    assert_eq!(txn.table_names().unwrap(), ["table"]);
    assert_eq!(txn.structure_names().unwrap().len(), 2);
    txn.abort().unwrap();
    env.reclaim().unwrap();
    assert_eq!(pages(&env), before, "the root of an aborted creation is freed");
    assert_sound(&env);
    env.transact(|txn| txn.drop_structure("hits")).unwrap();
    env.reclaim().unwrap();
    assert_eq!(pages(&env), before - 1);
    assert!(matches!(env.transact(|txn| Counters::open(txn, "hits").map(drop)), Err(Error::NoSuchTable(_))));
    assert_sound(&env);
    env.close().unwrap();
    assert!(open(&disk).recovery_report().was_clean);
}

#[test]
fn a_snapshot_cannot_see_a_structure_and_says_so() {
    let (_, env) = environment();
    let options = TransactionOptions { isolation: Some(ledgerstone::Isolation::Snapshot), ..Default::default() };
    let txn = env.begin_with(options).unwrap();
    assert!(matches!(Counters::open(&txn, "hits"), Err(Error::StructureNeedsLocks { .. })));
}

/// The counters, and who wants something else of them.
struct Picky {
    first_op: u16,
    complains: bool,
}

struct Renumbered(u16, Box<dyn Operation>);

impl Operation for Renumbered {
    fn id(&self) -> OpId {
        OpId(self.0)
    }
    fn name(&self) -> &'static str {
        self.1.name()
    }
    fn formats(&self) -> bool {
        self.1.formats()
    }
    fn redo(&self, page: &mut PageMut<'_>, args: &[u8]) -> Result<(), OpError> {
        self.1.redo(page, args)
    }
    fn undo(&self, args: &[u8]) -> Undo {
        self.1.undo(args)
    }
    fn print(&self, args: &[u8]) -> String {
        self.1.print(args)
    }
}

struct NothingIsRight(LayoutId);

impl Layout for NothingIsRight {
    fn id(&self) -> LayoutId {
        self.0
    }
    fn name(&self) -> &'static str {
        "nothing is right"
    }
    fn check(&self, page: Words<'_>) -> Result<(), Corrupt> {
        Err(Corrupt::new("page that nobody likes", 0, 0, 1).on(header::page_id(page)))
    }
    fn print(&self, page: Words<'_>) -> String {
        header::print(page)
    }
}

impl Structure for Picky {
    fn id(&self) -> StructureId {
        CountersStructure.id()
    }
    fn name(&self) -> &'static str {
        "picky"
    }
    fn operations(&self) -> Vec<Box<dyn Operation>> {
        let numbered = CountersStructure.operations().into_iter().zip(self.first_op..);
        numbered.map(|(operation, id)| Box::new(Renumbered(id, operation)) as Box<dyn Operation>).collect()
    }
    fn layouts(&self) -> Vec<Box<dyn Layout>> {
        match self.complains {
            true => CountersStructure.layouts().iter().map(|l| Box::new(NothingIsRight(l.id())) as _).collect(),
            false => CountersStructure.layouts(),
        }
    }
    fn format_root(&self, root: PageId, options: &[u8]) -> (OpId, Vec<u8>) {
        CountersStructure.format_root(root, options)
    }
    fn pages(&self, engine: &Arc<Engine>, root: PageId) -> Result<Vec<PageId>, TxnError> {
        CountersStructure.pages(engine, root)
    }
    fn check(&self, _engine: &Arc<Engine>, root: PageId) -> Result<Vec<String>, TxnError> {
        Ok(vec![format!("root {root} is not to my taste")])
    }
}

fn with(structures: Vec<Arc<dyn Structure>>) -> Options {
    let options = Environment::options().cache_bytes(64 * 4096).page_count_max(1 << 14).log_buffer_bytes(128 << 10);
    structures.into_iter().fold(options, Options::structure)
}

#[test]
fn verify_asks_the_layouts_and_the_structure() {
    let (disk, env) = environment();
    env.close().unwrap();
    let picky = Arc::new(Picky { first_op: 1024, complains: true });
    let env = with(vec![picky]).open_on(Arc::new(disk.clone())).unwrap();
    let report = env.verify().unwrap();
    let found: Vec<(&str, bool)> = report.problems.iter().map(|p| (p.place.as_str(), p.page.is_some())).collect();
    assert_eq!(found, [("hits", true), ("hits", false)], "{:?}", report.problems);
    assert!(report.problems[0].what.contains("nobody likes") && report.problems[1].what.contains("taste"));
}

#[test]
fn numbers_that_are_taken_or_ours_are_refused() {
    let refused = |structures: Vec<Arc<dyn Structure>>, why: &str| {
        let error = with(structures).open_on(Arc::new(SimDisk::new())).unwrap_err();
        assert!(matches!(error, Error::BadStructure { .. }) && error.to_string().contains(why), "{error}");
    };
    refused(vec![Arc::new(Picky { first_op: 1000, complains: false })], "users' begin at op1024");
    refused(vec![Arc::new(CountersStructure), Arc::new(CountersStructure)], "its number 1 is that of");
    let list = || Arc::new(ledgerstone_examples::counter_list::ListStructure);
    refused(vec![list(), Arc::new(Picky { first_op: 1033, complains: false })], "is registered already");
}
