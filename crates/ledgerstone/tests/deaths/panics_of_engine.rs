//! A panic of the engine's own code, in places that have something of their own to be given back or told.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use ledgerstone::extend::{
    Engine, Layout, Mode, OpId, Operation, PageId, RECORD_OVERHEAD_BYTES, Structure, StructureId, TxnError,
};
use ledgerstone::{Environment, Isolation, Lsn, TransactionOptions};
use ledgerstone_disk::SimDisk;
use ledgerstone_region::sync::deaths::panic_at_step;
use ledgerstone_region::sync::{self, Scheduler};

use crate::panics_of_users::number::{NUMBER, Number, OP_ADD};
use crate::panics_of_users::{environment, options, options_with, prepared};

fn dropped_unharmed<T>(made: T) {
    panic_at_step(0);
    drop(made);
}

/// A call, after what is not to panic.
type Call = fn(&Environment) -> Box<dyn FnOnce() + '_>;

const CALLS: [(&str, Call); 8] = [
    ("table_names", |env| Box::new(|| drop(env.table_names()))),
    ("snapshot", |env| Box::new(|| dropped_unharmed(env.snapshot()))),
    ("the end of a range with a view of its own", |env| {
        let isolation = Some(Isolation::ReadCommitted);
        let txn = env.begin_with(TransactionOptions { isolation, ..TransactionOptions::default() }).unwrap();
        let range = txn.bytes("t").unwrap().range(..).unwrap();
        Box::new(move || {
            drop(range);
            panic_at_step(0);
            drop(txn);
        })
    }),
    ("changes", |env| Box::new(|| dropped_unharmed(env.changes(Lsn(0))))),
    ("named_changes", |env| Box::new(|| dropped_unharmed(env.named_changes("f")))),
    ("forget_changes", |env| {
        drop(env.named_changes("f").unwrap());
        Box::new(|| drop(env.forget_changes("f")))
    }),
    ("an acknowledgement", |env| {
        let mut changes = env.named_changes("f").unwrap();
        env.transact(|txn| txn.bytes("plain")?.put(b"k", b"w")).unwrap();
        env.sync().unwrap();
        while changes.next().unwrap().is_some() {}
        Box::new(move || drop(changes.acknowledge(changes.position())))
    }),
    ("stat", |env| Box::new(|| drop(env.stat()))),
];

#[test]
fn a_panic_of_the_engine_in_any_call_is_told_or_leaves_nothing() {
    for (name, call) in CALLS {
        let run = |at| {
            let ran = Scheduler::run_within(1, 3_000_000, || {
                let env = environment(&Arc::default());
                let call = call(&env);
                panic_at_step(at);
                let has_panicked = catch_unwind(AssertUnwindSafe(call)).is_err();
                let steps = u64::MAX - panic_at_step(0);
                let has_failed = env.is_failed();
                env.end_background();
                if has_panicked && !has_failed {
                    env.assert_nothing_left(); // It held nothing then.
                }
                (has_failed, steps)
            });
            ran.unwrap_or_else(|stuck| panic!("{name}, a panic at step {at}: {stuck}"))
        };
        let (has_failed, steps) = run(u64::MAX);
        assert!(!has_failed, "{name}");
        let steps = if steps == u64::MAX { 60 } else { steps.min(150) }; // It has disarmed the panic itself.
        let failed = (1..=steps).filter(|at| run(*at).0).count();
        println!("{name}: {failed} failures in {steps} steps");
        assert!(failed > 0, "{name}");
    }
}

/// The latch is given back by whoever mends, and not once more by the guard as it goes.
#[test]
fn a_panic_in_a_top_action_gives_back_a_structures_latch_once() {
    let mut failed = 0;
    for (at, is_exclusive) in (1..40).flat_map(|at| [(at, false), (at, true)]) {
        let ran = Scheduler::run_within(at, 3_000_000, || {
            let env = environment(&Arc::default());
            let txn = env.begin().unwrap();
            let number = txn.structure("number", NUMBER).unwrap();
            let engine: RefCell<Option<Arc<Engine>>> = RefCell::new(None);
            let panicked = catch_unwind(AssertUnwindSafe(|| {
                number.enter(Mode::X, |txn, of| {
                    *engine.borrow_mut() = Some(Arc::clone(of.engine()));
                    let _latch = if is_exclusive { of.latch().exclusive()? } else { of.latch().shared()? };
                    panic_at_step(at);
                    txn.nested_top(|txn| {
                        txn.claim(64 + RECORD_OVERHEAD_BYTES)?;
                        let mut page = of.cache().exclusive(of.root())?;
                        txn.update(&mut page, OP_ADD, &[1])
                    })?;
                    panic_at_step(0);
                    Ok(())
                })
            }));
            panic_at_step(0);
            drop((number, txn));
            let engine = engine.into_inner().expect("it was there");
            if panicked.is_err() && env.is_failed() && !is_exclusive {
                assert!(engine.are_structure_latches_free(), "given back twice, or not at all");
            }
            let has_failed = env.is_failed();
            drop(engine);
            let _ = env.close();
            has_failed
        });
        failed += u32::from(ran.unwrap_or_else(|stuck| panic!("a panic at step {at}: {stuck}")));
    }
    assert!(failed > 20, "{failed} failures");
}

/// Whoever mends has a slot of its own, though threads of the program's have all others.
#[test]
fn a_panic_is_mended_when_no_thread_slot_is_free() {
    let mut failed = 0;
    for (at, are_two) in (1..60).step_by(2).flat_map(|at| [(at, false), (at, true)]) {
        let ran = Scheduler::run_within(at, 3_000_000, || {
            let env = options(&Arc::default()).thread_count_max(4).open_on(Arc::new(SimDisk::new())).unwrap();
            env.transact(|txn| txn.create_table("plain").map(drop)).unwrap();
            let (phase, taken) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
            let wait_for = |phase: &AtomicU32, which| {
                while phase.load(SeqCst) < which {
                    sync::sleep_ns(100_000);
                }
            };
            let crowd: Vec<_> = (0..40)
                .map(|_| {
                    let (env, phase, taken) = (env.clone(), Arc::clone(&phase), Arc::clone(&taken));
                    sync::spawn("stays", move || {
                        let has_slot = env.begin().is_ok();
                        let is_first = has_slot && taken.fetch_add(1, SeqCst) == 0;
                        wait_for(&phase, 1);
                        let has_panicked = is_first && are_two && put_panics(&env, b"b", at);
                        drop(env);
                        wait_for(&phase, 2);
                        has_panicked
                    })
                })
                .collect();
            sync::sleep_ns(5_000_000);
            assert!((1..40).contains(&taken.load(SeqCst)), "{taken:?} threads have a slot");
            let begun_ns = sync::now_ns();
            phase.store(1, SeqCst);
            let has_panicked = put_panics(&env, b"a", at);
            let _ = env.transact(|txn| txn.bytes("plain")?.put(b"a", b"c"));
            assert!(sync::now_ns() - begun_ns < 2_000_000_000, "somebody has waited");
            phase.store(2, SeqCst);
            let others = crowd.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| panic.resume()));
            let have_panicked = others.filter(|has_panicked| *has_panicked).count() > 0 || has_panicked;
            let has_failed = env.is_failed();
            assert!(have_panicked || !has_failed);
            drop(env);
            has_failed
        });
        failed += u32::from(ran.unwrap_or_else(|stuck| panic!("a panic at step {at}: {stuck}")));
    }
    assert!(failed > 20, "{failed} failures");
}

fn put_panics(env: &Environment, key: &[u8], at: u64) -> bool {
    panic_at_step(at);
    let put = catch_unwind(AssertUnwindSafe(|| env.transact(|txn| txn.bytes("plain")?.put(key, &[7; 500]))));
    panic_at_step(0);
    put.is_err()
}

/// A number whose page is looked at when the page is to be freed. There the engine panics at a step.
struct LooksAt {
    number: Number,
    panics_at: u64,
}

impl Structure for LooksAt {
    fn id(&self) -> StructureId {
        self.number.id()
    }
    fn name(&self) -> &'static str {
        self.number.name()
    }
    fn operations(&self) -> Vec<Box<dyn Operation>> {
        self.number.operations()
    }
    fn layouts(&self) -> Vec<Box<dyn Layout>> {
        self.number.layouts()
    }
    fn format_root(&self, root: PageId, args: &[u8]) -> (OpId, Vec<u8>) {
        self.number.format_root(root, args)
    }
    fn pages(&self, engine: &Arc<Engine>, root: PageId) -> Result<Vec<PageId>, TxnError> {
        panic_at_step(self.panics_at);
        drop(engine.cache.exclusive(root)?);
        panic_at_step(0);
        self.number.pages(engine, root)
    }
    fn check(&self, engine: &Arc<Engine>, root: PageId) -> Result<Vec<String>, TxnError> {
        self.number.check(engine, root)
    }
}

/// P4: the panic is an error to whoever asked the structure. What the thread holds is nobody's to give back.
#[test]
fn a_panic_of_the_engine_that_a_structure_had_called_is_not_taken_for_the_structures() {
    let mut failed = 0;
    for panics_at in 1..12 {
        let ran = Scheduler::run_within(panics_at, 3_000_000, || {
            let structure = LooksAt { number: Number(Arc::new(|| ())), panics_at };
            let env = prepared(options_with(&Arc::default(), structure).open_on(Arc::new(SimDisk::new())).unwrap());
            env.transact(|txn| txn.drop_structure("number")).unwrap();
            let _ = catch_unwind(AssertUnwindSafe(|| env.reclaim()));
            panic_at_step(0);
            let has_failed = env.is_failed();
            env.end_background();
            if !has_failed {
                env.assert_nothing_left();
            }
            has_failed
        });
        failed += u32::from(ran.unwrap_or_else(|stuck| panic!("a panic at step {panics_at}: {stuck}")));
    }
    assert!(failed > 0);
}
