//! A panic of the user's code goes before one of the engine's, or beside it. The first never fails the environment, and
//! never hides the second.

#[path = "../common/number.rs"]
mod number;

use std::cell::Cell;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use ledgerstone::extend::{Mode, TxnError};
use ledgerstone::{Environment, IndexDef, IndexKeys};
use ledgerstone_disk::SimDisk;
use ledgerstone_region::sync::Scheduler;
use ledgerstone_region::sync::deaths::panic_at_step;

use number::{NUMBER, Number, add};

fn on_purpose() -> ! {
    resume_unwind(Box::new("on purpose")) // Without the message that a panic prints.
}

/// An environment whose extractor panics at the call of this number from now on; 0: at none.
fn environment(panics: &Arc<AtomicU64>) -> Environment {
    let panics = Arc::clone(panics);
    let extract = move |_: &[u8], value: &[u8], emit: &mut dyn FnMut(&[u8])| {
        if panics.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)) == Ok(1) {
            on_purpose();
        }
        emit(value);
        Ok(())
    };
    let env = Environment::options()
        .cache_bytes(128 * 4096)
        .page_count_max(1 << 12)
        .log_segment_bytes(256 << 10)
        .log_buffer_bytes(128 << 10)
        .index_extractor("whole", extract)
        .structure(Arc::new(Number(Arc::new(|| ()))))
        .open_on(Arc::new(SimDisk::new()))
        .unwrap();
    env.transact(|txn| {
        let t = txn.create_table("t")?;
        (0..4_u8).try_for_each(|n| t.put([n], [n; 20]))?;
        txn.create_index("t", &IndexDef::new("i", IndexKeys::Extractor("whole".into())))?;
        txn.create_table("plain")?.put(b"k", b"v")?;
        txn.create_table("empty")?;
        txn.create_structure("number", NUMBER, &[])?;
        txn.create_index("empty", &IndexDef::new("i", IndexKeys::Extractor("whole".into())))
    })
    .unwrap();
    env
}

/// A destructor of the user's that calls the library.
struct Calls<'e>(&'e Environment);

impl Drop for Calls<'_> {
    fn drop(&mut self) {
        let changed = self.0.transact(|txn| txn.bytes("plain")?.modify(b"k", |_| Some(b"w".to_vec())));
        assert!(changed.is_ok(), "{changed:?}");
    }
}

type Panics = fn(&Environment, &AtomicU64);

const PANICS: [(&str, Panics); 11] = [
    ("a structure, in a top action with its latch held", |env, _| {
        let txn = env.begin().unwrap();
        let number = txn.structure("number", NUMBER).unwrap();
        let _ = number.enter(Mode::X, |txn, at| {
            let _latch = at.latch().shared()?;
            txn.nested_top(|_| -> Result<(), TxnError> { on_purpose() })?;
            Ok(())
        });
    }),
    ("a structure that has changed a page", |env, _| {
        let _ = env.transact(|txn| add(txn, 3, &|| on_purpose()));
    }),
    ("what a transaction does when it ends", |env, _| {
        env.transact(|txn| {
            txn.structure("number", NUMBER)?.enter(Mode::X, |txn, _| {
                txn.on_end(|_| on_purpose());
                Ok(())
            })
        })
        .unwrap();
        on_purpose();
    }),
    ("an extractor, in a verification", |env, panics| {
        panics.store(1, SeqCst);
        let _ = env.verify();
    }),
    ("progress of a verification", |env, _| drop(env.verify_with(|_| -> ControlFlow<()> { on_purpose() }))),
    ("an extractor, in a load", |env, panics| {
        panics.store(1, SeqCst);
        let _ = env.transact(|txn| txn.bytes("empty")?.load_sorted([(b"a", b"b")]));
    }),
    ("an extractor, in a loader of one's own", |env, panics| {
        let txn = env.begin().unwrap();
        let mut loader = txn.bytes("empty").unwrap().sorted_loader().unwrap();
        panics.store(1, SeqCst);
        let _ = loader.push(b"a", b"b");
    }),
    ("a closure for records of a range that was read from its back", |env, _| {
        let txn = env.begin().unwrap();
        let mut range = txn.bytes("t").unwrap().range(..).unwrap();
        range.next_back();
        let _ = range.for_each_ref(|_, _| on_purpose());
    }),
    ("a destructor that calls while its thread unwinds", |env, _| {
        let _calls = Calls(env);
        on_purpose();
    }),
    ("a closure", |env, _| {
        let _ = env.transact(|txn| txn.bytes("plain")?.modify(b"k", |_| on_purpose()));
    }),
    ("what a closure that is not called has captured", |env, _| {
        struct Bomb;
        impl Drop for Bomb {
            fn drop(&mut self) {
                on_purpose();
            }
        }
        let _ = env.transact(|txn| {
            let bomb = Bomb;
            let change = move |old: &[u8]| {
                let _bomb = &bomb;
                Some(old.to_vec())
            };
            txn.bytes("plain")?.modify(b"not there", change)
        });
    }),
];

/// Panics in the engine, `at` steps from now. Says whether it did.
fn engine_panics(env: &Environment, at: u64) -> bool {
    let txn = env.begin().unwrap();
    let table = txn.bytes("plain").unwrap();
    panic_at_step(at);
    let put = catch_unwind(AssertUnwindSafe(|| table.put(b"k", b"x")));
    panic_at_step(0);
    put.is_err()
}

#[test]
fn a_panic_of_the_users_fails_nothing_and_hides_none_of_the_engines() {
    let mut wrong = Vec::new();
    for (name, panic) in PANICS {
        for at in [4, 8, 20] {
            let ran = Scheduler::run_within(at, 3_000_000, || {
                let panics = Arc::new(AtomicU64::new(0));
                let env = environment(&panics);
                let has_panicked = catch_unwind(AssertUnwindSafe(|| panic(&env, &panics))).is_err();
                assert!(has_panicked, "{name} has not panicked");
                panics.store(0, SeqCst);
                if env.is_failed() {
                    return Some("it has failed the environment");
                }
                (engine_panics(&env, at) && !env.is_failed()).then_some("it has hidden a panic of the engine's")
            });
            match ran {
                Ok(None) => {}
                Ok(Some(what)) => wrong.push(format!("{name}, {at}: {what}")),
                Err(stuck) => wrong.push(format!("{name}, {at}: {stuck}")),
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// A structure calls the engine, which panics. It came through the user's code, and is the engine's all the same.
#[test]
fn a_panic_of_the_engine_in_a_structure_hangs_nobody() {
    let mut failed = 0;
    for at in 1..120 {
        let ran = Scheduler::run_within(at, 3_000_000, || {
            let env = environment(&Arc::default());
            let txn = env.begin().unwrap();
            panic_at_step(at);
            let added = catch_unwind(AssertUnwindSafe(|| add(&txn, 2, &|| ())));
            panic_at_step(0);
            drop(txn);
            if !env.is_failed() {
                assert_eq!(env.transact(|txn| add(txn, 1, &|| ())).unwrap(), 1, "the step was not taken back");
            }
            assert!(added.is_err() || !env.is_failed());
            env.is_failed()
        });
        failed += u32::from(ran.unwrap_or_else(|stuck| panic!("a panic at step {at}: {stuck}")));
    }
    assert!(failed > 10, "{failed} failures");
}

/// A destructor calls the library while its thread unwinds, and catches what comes out of the engine there.
#[test]
fn a_panic_of_the_engine_is_not_hidden_by_one_that_unwinds() {
    struct Catches<'e>(&'e Environment, u64, &'e Cell<bool>);
    impl Drop for Catches<'_> {
        fn drop(&mut self) {
            self.2.set(engine_panics(self.0, self.1));
        }
    }
    for at in [4, 8, 20, 40] {
        let ran = Scheduler::run_within(at, 3_000_000, || {
            let env = environment(&Arc::default());
            let has_panicked = Cell::new(false);
            let unwound = catch_unwind(AssertUnwindSafe(|| {
                let _catches = Catches(&env, at, &has_panicked);
                on_purpose();
            }));
            assert!(unwound.is_err() && has_panicked.get());
            assert!(env.is_failed(), "nobody has heard of it");
        });
        ran.unwrap_or_else(|stuck| panic!("a panic at step {at}: {stuck}"));
    }
}

/// A panic of one environment's engine leaves through a closure that another one has called.
#[test]
fn a_panic_of_one_environments_engine_is_the_users_code_for_another_one() {
    for at in [4, 8, 20, 40] {
        let ran = Scheduler::run_within(at, 3_000_000, || {
            let no = Arc::new(AtomicU64::new(0));
            let (outer, inner) = (environment(&no), environment(&no));
            let txn = outer.begin().unwrap();
            let change = |_: &[u8]| {
                if engine_panics(&inner, at) {
                    on_purpose();
                }
                None
            };
            let changed = catch_unwind(AssertUnwindSafe(|| txn.bytes("plain").unwrap().modify(b"k", change)));
            assert_eq!(changed.is_err(), inner.is_failed());
            assert!(!outer.is_failed(), "the other one has failed");
            txn.bytes("plain").unwrap().put(b"k", b"y").unwrap();
            txn.commit().unwrap();
            outer.close().unwrap();
        });
        ran.unwrap_or_else(|stuck| panic!("a panic at step {at}: {stuck}"));
    }
}

/// The step of a closure that panics is taken back, and that panics, too: in the engine.
#[test]
fn a_panic_as_a_step_is_taken_back_after_one_of_the_users_fails_the_environment() {
    let mut failed = 0;
    for at in 1..60 {
        let ran = Scheduler::run_within(at, 3_000_000, || {
            let env = environment(&Arc::default());
            let txn = env.begin().unwrap();
            let called = Cell::new(0);
            let panics = || {
                called.set(called.get() + 1);
                if called.get() == 3 {
                    panic_at_step(at);
                    on_purpose();
                }
            };
            let added = catch_unwind(AssertUnwindSafe(|| add(&txn, 4, &panics)));
            let is_of_engine = added.expect_err("it panics").downcast_ref::<&str>() != Some(&"on purpose");
            panic_at_step(0);
            assert_eq!(is_of_engine, env.is_failed());
            is_of_engine
        });
        failed += u32::from(ran.unwrap_or_else(|stuck| panic!("a panic at step {at}: {stuck}")));
    }
    assert!(failed > 10, "{failed} panics of the engine's");
}
