//! A panic of the user's code goes before one of the engine's, or beside it. The first never fails the environment, and
//! never hides the second.

use std::cell::Cell;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

pub(crate) use crate::common::number;

use ledgerstone::extend::{Mode, Structure, TxnError};
use ledgerstone::typed::{AsValue, DecodeError, EncodeError, TypeName, Value};
use ledgerstone::{Environment, Error, IndexDef, IndexKeys, LogKeeper, Lsn, Options, TableDef};
use ledgerstone_disk::SimDisk;
use ledgerstone_region::sync::Scheduler;
use ledgerstone_region::sync::deaths::panic_at_step;

use number::{NUMBER, Number, add};

fn on_purpose() -> ! {
    resume_unwind(Box::new("on purpose")) // Without the message that a panic prints.
}

/// An environment whose extractor panics at the call of this number from now on; 0: at none.
pub(crate) fn environment(panics: &Arc<AtomicU64>) -> Environment {
    options(panics).open_on(Arc::new(SimDisk::new())).map(prepared).unwrap()
}

pub(crate) fn options(panics: &Arc<AtomicU64>) -> Options {
    options_with(panics, Number(Arc::new(|| ())))
}

pub(crate) fn options_with(panics: &Arc<AtomicU64>, structure: impl Structure) -> Options {
    let panics = Arc::clone(panics);
    let extract = move |_: &[u8], value: &[u8], emit: &mut dyn FnMut(&[u8])| {
        if panics.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)) == Ok(1) {
            on_purpose();
        }
        emit(value);
        Ok(())
    };
    Environment::options()
        .cache_bytes(128 * 4096)
        .page_count_max(1 << 12)
        .log_segment_bytes(256 << 10)
        .log_buffer_bytes(128 << 10)
        .index_extractor("whole", extract)
        .structure(Arc::new(structure))
}

pub(crate) fn prepared(env: Environment) -> Environment {
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

/// What a keeper is asked that panics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    Nothing,
    Name,
    BytesMax,
    NeedsFrom,
    Goes,
    Work,
}

struct PanicsAsked(Arc<AtomicU64>);

impl PanicsAsked {
    fn asked(&self, what: Asked) {
        if self.0.load(SeqCst) == what as u64 {
            on_purpose();
        }
    }
}

impl LogKeeper for PanicsAsked {
    fn name(&self) -> String {
        self.asked(Asked::Name);
        "panics".into()
    }
    fn needs_log_from(&self) -> Result<Option<Lsn>, Error> {
        self.asked(Asked::NeedsFrom);
        Ok(Some(Lsn(0)))
    }
    fn log_bytes_max(&self) -> u64 {
        self.asked(Asked::BytesMax);
        1 << 20
    }
    fn log_goes(&self, _: &[ledgerstone::GoingSegment]) -> Result<(), Error> {
        self.asked(Asked::Goes);
        Ok(())
    }
    fn work(&self) {
        self.asked(Asked::Work);
    }
}

/// K2: it costs log, and neither the environment nor the call that asks.
#[test]
fn a_keeper_that_panics_is_in_trouble_and_all_go_on() {
    for asked in [Asked::Name, Asked::BytesMax, Asked::NeedsFrom, Asked::Goes, Asked::Work] {
        for panics_at_open in [false, true] {
            let ran = Scheduler::run_within(1, 3_000_000, || {
                let panics = Arc::new(AtomicU64::new(if panics_at_open { asked } else { Asked::Nothing } as u64));
                let own = Arc::clone(&panics);
                let keeper = move |_| Ok(Arc::new(PanicsAsked(Arc::clone(&own))) as Arc<dyn LogKeeper>);
                let options = options(&Arc::default()).log_keeper(keeper);
                let env = options.open_on(Arc::new(SimDisk::new())).map(prepared).unwrap();
                panics.store(asked as u64, SeqCst);
                env.checkpoint().unwrap();
                let stat = env.stat().unwrap();
                let is_told = [Asked::BytesMax, Asked::NeedsFrom].contains(&asked);
                assert_eq!(stat.keeper_troubles.len(), usize::from(is_told), "{:?}", stat.keeper_troubles);
                assert!(!env.is_failed());
                panics.store(Asked::Nothing as u64, SeqCst);
                env.checkpoint().unwrap();
                assert_eq!(env.stat().unwrap().keeper_troubles, []);
                assert!(engine_panics(&env, 8) && env.is_failed(), "it has hidden a panic of the engine's");
            });
            ran.unwrap_or_else(|stuck| panic!("{asked:?}: {stuck}"));
        }
    }
}

thread_local! {
    /// Values panic as they are dropped.
    static IS_ARMED: Cell<bool> = const { Cell::new(false) };
}

/// A value whose destructor panics, when it is armed.
#[derive(Debug)]
struct Bomb(u8);

impl Drop for Bomb {
    fn drop(&mut self) {
        if IS_ARMED.get() && !std::thread::panicking() {
            on_purpose();
        }
    }
}

impl AsValue<Bomb> for Bomb {
    fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        out.push(self.0);
        Ok(())
    }
}

impl Value for Bomb {
    const TYPE: TypeName = TypeName::Named("test.bomb");

    fn decode(bytes: &[u8]) -> Result<Bomb, DecodeError> {
        if bytes == [255] {
            on_purpose();
        }
        Ok(Bomb(bytes[0]))
    }
}

const BOMBS: TableDef<u8, Bomb> = TableDef::new("bombs");

type Drops = fn(&Environment, ledgerstone::Transaction);

/// Values of the user's that nobody gets.
const DROPS: [(&str, Drops); 6] = [
    ("the old value of an insert that an index refuses", |_, txn| {
        let bombs = txn.open(BOMBS).unwrap();
        let value = std::mem::ManuallyDrop::new(Bomb(2));
        IS_ARMED.set(true);
        let _ = bombs.insert(&1, &*value);
    }),
    ("a value of a structure whose transaction has gone", |_, txn| {
        let number = txn.structure("number", NUMBER).unwrap();
        let mut txn = Some(txn);
        let _ = number.enter(Mode::X, |_, _| {
            drop(txn.take());
            let bomb = Bomb(1);
            IS_ARMED.set(true);
            Ok(bomb)
        });
    }),
    ("an error of a structure whose transaction has gone", |_, txn| {
        let number = txn.structure("number", NUMBER).unwrap();
        let mut txn = Some(txn);
        let _ = number.enter(Mode::X, |_, _| {
            drop(txn.take());
            let bomb = Boom(Bomb(1));
            IS_ARMED.set(true);
            Err::<(), _>(Error::user(bomb))
        });
    }),
    ("a value that a change gets", |_, txn| {
        let bombs = txn.open(BOMBS).unwrap();
        IS_ARMED.set(true);
        let _ = bombs.modify(&1, |_| None);
    }),
    ("a value that cannot be decoded, as it is removed", |_, txn| {
        let _ = txn.open(BOMBS).unwrap().remove(&3);
    }),
    ("a value that cannot be decoded, as it is popped", |_, txn| {
        let _ = txn.open(BOMBS).unwrap().pop_last();
    }),
];

#[derive(Debug)]
struct Boom(#[allow(dead_code)] Bomb);

impl std::fmt::Display for Boom {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("boom")
    }
}

impl std::error::Error for Boom {}

#[test]
fn a_value_that_panics_as_it_is_decoded_or_dropped_fails_nothing() {
    let mut wrong = Vec::new();
    for (name, drops) in DROPS {
        let ran = Scheduler::run_within(1, 3_000_000, || {
            let env = environment(&Arc::default());
            env.transact(|txn| {
                let bombs = txn.open(BOMBS)?;
                (1..3).try_for_each(|n| bombs.put(&n, &Bomb(n)))?;
                txn.create_index("bombs", &IndexDef::new("i", IndexKeys::Extractor("whole".into())).unique())?;
                txn.open(BOMBS)?.put(&3, &Bomb(255)) // The handle from before the index is not good any more.
            })
            .unwrap();
            let txn = env.begin().unwrap();
            let has_panicked = catch_unwind(AssertUnwindSafe(|| drops(&env, txn))).is_err();
            IS_ARMED.set(false);
            assert!(has_panicked, "{name} has not panicked");
            if env.is_failed() {
                return Some("it has failed the environment");
            }
            (engine_panics(&env, 8) && !env.is_failed()).then_some("it has hidden a panic of the engine's")
        });
        match ran {
            Ok(None) => {}
            Ok(Some(what)) => wrong.push(format!("{name}: {what}")),
            Err(stuck) => wrong.push(format!("{name}: {stuck}")),
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
