//! The user's code runs now. Whatever closure or callback is handed in may panic at any call and call anything, and the
//! environment goes on. Nothing half done stays, nothing is held for ever, and every call inside is answered.
//!
//! What a program can hand in is in `users_code/closures.rs` and `media.rs`, what it can call inside in `calls.rs`.
//! `interface.rs` fails if a public method is in none of them.

mod common;

#[path = "users_code/calls.rs"]
mod calls;
#[path = "users_code/closures.rs"]
mod closures;
#[path = "users_code/interface.rs"]
mod interface;
#[path = "users_code/media.rs"]
mod media;
#[path = "users_code/told.rs"]
mod told;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use calls::Call;
use closures::{BETWEEN, INSIDE, OUTSIDE};
use common::number::{NUMBER, Number, add};
use common::{tiny, within};
use ledgerstone::{
    Durability, EnvTable, Environment, Error, IndexDef, IndexKeys, Isolation, TableDef, Transaction,
    TransactionOptions, TypedEnvTable,
};
use ledgerstone_disk::SimDisk;
use ledgerstone_region::sync::{self, Scheduler};
use told::{TOLD, Told};

type Does = Arc<dyn Fn() + Send + Sync>;

/// What the closures under test do when they are called.
#[derive(Clone, Default)]
struct Hook(Arc<Mutex<Option<Does>>>);

impl Hook {
    fn set(&self, does: impl Fn() + Send + Sync + 'static) {
        *self.0.lock().unwrap() = Some(Arc::new(does));
    }
    fn clear(&self) {
        *self.0.lock().unwrap() = None;
    }
    fn call(&self) {
        let does = self.0.lock().unwrap().clone();
        if let Some(does) = does {
            does();
        }
    }
}

// ---- The environment that all of it happens in.

fn environment(hook: &Hook) -> Environment {
    let extractor = hook.clone();
    let extract = move |_: &[u8], value: &[u8], emit: &mut dyn FnMut(&[u8])| {
        extractor.call();
        emit(&value[..1.min(value.len())]);
        Ok(())
    };
    let teller = hook.clone();
    let tell = move |_: &Told, value: &Told| {
        teller.call();
        vec![*value]
    };
    let env = Environment::options()
        .cache_bytes(2 << 20)
        .page_count_max(1 << 14)
        .durability(Durability::Volatile)
        .lock_timeout(Duration::from_millis(500))
        .transaction_count_max(512)
        .thread_count_max(512)
        .index_extractor("first", extract)
        .typed_index_extractor("told", tell)
        .structure(Arc::new(Number({
            let hook = hook.clone();
            Arc::new(move || hook.call())
        })))
        .open_on(Arc::new(SimDisk::new()))
        .unwrap();
    env.transact(|txn| {
        txn.create_table("t")?;
        txn.create_index("t", &IndexDef::new("i", IndexKeys::Extractor("first".into())))?;
        txn.create_index("t", &IndexDef::new("whole", IndexKeys::Bytes { from: 0, to: Some(8) }))?;
        let (t, plain) = (txn.bytes("t")?, txn.create_table("plain")?);
        for n in 0..8u8 {
            t.put(&[n], &[b'a' + n, 1])?;
            plain.put(&[n], &[n; 50])?;
        }
        plain.put(b"large", &[7; 20_000])?;
        txn.create_table("other")?.put(b"k", b"v")?;
        txn.create_table("empty")?;
        txn.create_index("empty", &IndexDef::new("i", IndexKeys::Extractor("first".into())))?;
        txn.create_table("prepared")?;
        txn.open(TOLD)?;
        txn.create_index("told", &IndexDef::new("i", IndexKeys::Extractor("told".into())))?;
        let told = txn.open(TOLD)?;
        (0..8).try_for_each(|n| told.put(Told(n), Told(n + 1)))?;
        txn.create_structure("number", NUMBER, &[])?;
        Ok::<_, Error>(())
    })
    .unwrap();
    *ENV_TABLES.lock().unwrap() = Some((env.table("plain").unwrap(), env.typed_table(TOLD).unwrap()));
    env
}

/// Handles of "plain" and "told" in an environment that was made last, by whichever test: by others they are found by
/// their names.
static ENV_TABLES: Mutex<Option<(EnvTable, TypedEnvTable<Told, Told>)>> = Mutex::new(None);

fn env_table() -> EnvTable {
    ENV_TABLES.lock().unwrap().clone().expect("an environment was made").0
}

fn typed_env_table() -> TypedEnvTable<Told, Told> {
    ENV_TABLES.lock().unwrap().clone().expect("an environment was made").1
}

type Row = (String, Vec<u8>, Vec<u8>);

/// All tables with all records, their indexes' records, and the number, as a transaction sees them.
fn state(txn: &Transaction) -> Result<Vec<Row>, Error> {
    let mut all = Vec::new();
    for name in txn.table_names()? {
        let table = txn.bytes(&name)?;
        for record in table.range(..)? {
            let (key, value) = record?;
            all.push((name.clone(), key, value));
        }
        for index in table.indexes() {
            for found in table.index(index.name())?.range(..)? {
                let (entry, key) = found?;
                all.push((format!("{name}.{}", index.name()), entry, key));
            }
        }
    }
    let names = txn.structure_names()?.into_iter().map(|(name, _)| name).collect::<Vec<_>>().join(" ");
    let number = if names.contains("number") { add(txn, 0, &|| ())? } else { 0 };
    all.push((names, Vec::new(), number.to_be_bytes().to_vec()));
    Ok(all)
}

fn quietly<T>(f: impl FnOnce() -> T) -> Result<T, Box<dyn std::any::Any + Send>> {
    catch_unwind(AssertUnwindSafe(f))
}

/// Panics at the `at`-th call from now on; says whether it did.
fn panic_at(hook: &Hook, at: u32) -> Arc<AtomicU32> {
    let calls = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&calls);
    hook.set(move || {
        if counted.fetch_add(1, SeqCst) + 1 == at {
            resume_unwind(Box::new("on purpose")); // Without the message that a panic prints.
        }
    });
    calls
}

fn assert_goes_on(env: &Environment, what: &str) {
    let report = env.verify().unwrap_or_else(|error| panic!("{what}: verify: {error}"));
    assert!(report.problems.is_empty(), "{what}: {:?}", report.problems);
    let options = TransactionOptions { lock_timeout: Some(Duration::ZERO), ..Default::default() };
    let wrote = env.transact_with(options, |txn| {
        txn.bytes("t")?.put(&[3], b"after")?;
        txn.bytes("plain")?.put(&[3], b"after")?;
        txn.create_table("after")?.put(b"k", b"v")
    });
    assert!(wrote.is_ok(), "{what}: {wrote:?}");
    env.compact().unwrap_or_else(|error| panic!("{what}: compact: {error}"));
    env.checkpoint().unwrap_or_else(|error| panic!("{what}: checkpoint: {error}"));
}

#[test]
fn a_panic_at_any_call_of_a_closure_takes_back_its_step_and_the_transaction_goes_on() {
    at_once(INSIDE, |&(name, call)| {
        let mut at = 1;
        let times = loop {
            let what = format!("{name}, panic at call {at}");
            let said = what.clone();
            let calls = within(60, &what, move || {
                let hook = Hook::default();
                let env = environment(&hook);
                let txn = env.begin().unwrap();
                txn.bytes("plain").unwrap().put(b"before", b"1").unwrap();
                let before = state(&txn).unwrap();
                let calls = panic_at(&hook, at);
                let done = quietly(|| call(&txn, &hook));
                hook.clear();
                match done {
                    // What it has done before it called again is done.
                    Err(_) if name == "Options::index_extractor, count of an index" => {}
                    Err(_) if name == "Table::modify" => {
                        assert_eq!(txn.open(TableDef::<u64, u64>::new("typed")).unwrap().get(&1).unwrap(), Some(1));
                    }
                    Err(_) => assert_eq!(state(&txn).unwrap(), before, "{said}"),
                    Ok(done) => done.unwrap_or_else(|error| panic!("{said}: {error}")),
                }
                let at_commit = state(&txn).unwrap();
                txn.bytes("plain").unwrap().put(b"then", b"1").unwrap();
                txn.bytes("plain").unwrap().delete(b"then").unwrap();
                txn.commit().unwrap();
                assert_eq!(state(&env.begin().unwrap()).unwrap(), at_commit, "{said}");
                assert_goes_on(&env, &said);
                env.close().unwrap();
                calls.load(SeqCst)
            });
            if calls < at {
                break calls;
            }
            at += 1;
        };
        assert!(times > 0, "{name} calls nothing of the user's");
    });
}

#[test]
fn a_panic_at_any_call_of_a_callback_leaves_the_environment_as_it_was() {
    at_once(OUTSIDE, |&(name, call)| {
        let mut at = 1;
        let times = loop {
            let what = format!("{name}, panic at call {at}");
            let said = what.clone();
            let calls = within(60, &what, move || {
                let hook = Hook::default();
                let env = environment(&hook);
                let before = state(&env.begin().unwrap()).unwrap();
                let calls = panic_at(&hook, at);
                let done = quietly(|| call(&env, &hook));
                hook.clear();
                match done {
                    // In steps that stay.
                    Err(_) if matches!(name, "load" | "code of a structure, reclaim") => {}
                    Err(_) => assert_eq!(state(&env.begin().unwrap()).unwrap(), before, "{said}"),
                    // The housekeeper may have called it, too.
                    Ok(Err(Error::Panicked("number"))) if name == "code of a structure, reclaim" => {}
                    Ok(done) => done.unwrap_or_else(|error| panic!("{said}: {error}")),
                }
                assert_goes_on(&env, &said);
                env.close().unwrap();
                calls.load(SeqCst)
            });
            if calls < at {
                break calls;
            }
            at += 1;
        };
        assert!(times > 0, "{name} calls nothing of the user's");
    });
}

// ---- Calls from inside.

/// Makes each call from this thread. No wait may have to run into its time-out.
fn call_here(what: &str, calls: Vec<Call>, must_be_busy: bool) {
    for call in calls {
        let (name, began) = (call.name, Instant::now());
        let answer = call.run();
        let said = format!("{name} in {what}: {answer:?} after {:?}", began.elapsed());
        assert!(
            !matches!(answer, Err(Error::LockTimeout { .. } | Error::Corrupt { .. } | Error::Failed { .. })),
            "{said}"
        );
        assert!(!must_be_busy || matches!(answer, Err(Error::Busy)), "{said}");
    }
}

/// Makes each call from a thread of its own, while the closure waits for them all.
fn call_elsewhere(what: &str, calls: Vec<Call>, must_be_busy: bool) {
    let threads: Vec<_> = calls
        .into_iter()
        .map(|call| {
            let what = what.to_owned();
            sync::spawn("call", move || {
                let name = call.name;
                let answer = call.run();
                let said = format!("{name} in {what}, from another thread: {answer:?}");
                assert!(!matches!(answer, Err(Error::Corrupt { .. } | Error::Failed { .. })), "{said}");
                assert!(!must_be_busy || matches!(answer, Err(Error::Busy)), "{said}");
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap_or_else(|panicked| panicked.resume());
    }
}

/// Runs `f` where waits take no time: most of what is called elsewhere waits until it is refused.
fn in_no_time(what: &'static str, f: impl FnOnce() + Send + 'static) {
    within(60, what, move || Scheduler::run(1, f).unwrap_or_else(|stuck| panic!("{what}: {stuck}")));
}

/// Runs `f` for each at the same time: nearly all of it is waiting.
fn at_once<T: Sync>(all: &[T], f: impl Fn(&T) + Sync) {
    std::thread::scope(|scope| {
        let threads: Vec<_> = all.iter().map(|one| scope.spawn(|| f(one))).collect();
        for thread in threads {
            thread.join().unwrap_or_else(|panic| resume_unwind(panic));
        }
    });
}

/// The hook's first call does this, the later ones nothing.
fn once(hook: &Hook, does: impl FnOnce() + Send + 'static) -> Arc<AtomicU32> {
    let (does, calls) = (Mutex::new(Some(does)), Arc::new(AtomicU32::new(0)));
    let counted = Arc::clone(&calls);
    hook.set(move || {
        counted.fetch_add(1, SeqCst);
        let does = does.lock().unwrap().take();
        if let Some(does) = does {
            does();
        }
    });
    calls
}

#[test]
fn every_call_inside_a_closure_of_a_transaction_is_answered() {
    at_once(INSIDE, |&(name, call)| {
        for elsewhere in [false, true] {
            in_no_time(name, move || {
                let hook = Hook::default();
                let env = environment(&hook);
                let running = Arc::new(env.begin().unwrap());
                let of_transaction = calls::of_transaction(&running);
                let (free, of_environment) = (calls::answered_at_once(&running), calls::of_environment(&env));
                let is_busy = !BETWEEN.contains(&name);
                let calls = once(&hook, move || {
                    call_here(name, free, false);
                    let call = if elsewhere { call_elsewhere } else { call_here };
                    call(name, of_transaction, is_busy);
                    call(name, of_environment, false);
                });
                let done = call(&running, &hook);
                assert!(calls.load(SeqCst) > 0);
                hook.clear();
                if is_busy {
                    done.unwrap_or_else(|error| panic!("{name}: {error}"));
                }
                drop(running);
                assert_goes_on_somehow(&env, name);
            });
        }
    });
}

#[test]
fn every_call_inside_a_callback_of_the_environment_is_answered() {
    at_once(OUTSIDE, |&(name, call)| {
        for elsewhere in [false, true] {
            in_no_time(name, move || {
                let hook = Hook::default();
                let env = environment(&hook);
                let (of_environment, again) = (calls::of_environment(&env), env.clone());
                let calls = once(&hook, move || {
                    let call = if elsewhere { call_elsewhere } else { call_here };
                    call(name, of_environment, false);
                    if name == "Environment::compact_with" {
                        assert!(matches!(again.compact(), Err(Error::Busy)));
                    }
                });
                let _ = call(&env, &hook); // It may meet a table that was dropped inside.
                assert!(calls.load(SeqCst) > 0, "{name}");
                hook.clear();
                assert_goes_on_somehow(&env, name);
            });
        }
    });
}

/// A closure that was moved into a call of a table can have the transaction itself, and end it.
#[test]
fn what_ends_a_transaction_is_answered_inside_a_closure_of_its_own() {
    let names = calls::ends(&environment(&Hook::default())).into_iter().map(|call| call.name);
    at_once(&names.enumerate().collect::<Vec<_>>(), |&(no, name)| {
        within(60, name, move || {
            let env = environment(&Hook::default());
            let mut ends = calls::ends(&env);
            let own = env.begin().unwrap();
            let (plain, end) = (own.bytes("plain").unwrap(), ends.swap_remove(no));
            drop(ends);
            // That of another transaction, or of the environment, while one is running.
            let change = move |_: &[u8]| {
                let ended = end.run();
                let is_close = name == "Environment::close";
                assert!(if is_close { matches!(ended, Err(Error::TransactionsOpen { .. })) } else { ended.is_ok() });
                let ended = match name {
                    "Transaction::commit" => own.commit().map(drop),
                    "Transaction::commit_with" => own.commit_with(Durability::Sync).map(drop),
                    "Transaction::abort" => own.abort(),
                    "Transaction::prepare" => own.prepare(b"inside").map(drop),
                    _ => {
                        drop(own);
                        Err(Error::Busy)
                    }
                };
                assert!(matches!(ended, Err(Error::Busy)), "{name}: {ended:?}");
                Some(b"changed".to_vec())
            };
            let changed = plain.modify([3], change);
            assert!(!matches!(changed, Err(Error::Corrupt { .. } | Error::Failed { .. })), "{name}: {changed:?}");
            drop(plain);
            // Its handle is gone, and so it was rolled back.
            assert_eq!(env.transact(|txn| txn.bytes("plain")?.get([3])).unwrap(), Some(vec![3; 50]), "{name}");
            assert_goes_on_somehow(&env, name);
        });
    });
}

/// Whatever was done inside, everything is whole and nobody holds anything.
fn assert_goes_on_somehow(env: &Environment, what: &str) {
    let report = env.verify().unwrap_or_else(|error| panic!("{what}: verify: {error}"));
    assert!(report.problems.is_empty(), "{what}: {:?}", report.problems);
    let options = TransactionOptions { lock_timeout: Some(Duration::ZERO), ..Default::default() };
    let wrote = env.transact_with(options, |txn| txn.bytes("plain")?.put(&[3], b"after"));
    assert!(wrote.is_ok(), "{what}: {wrote:?}");
    env.compact().unwrap();
    env.checkpoint().unwrap();
}

/// Two threads share a transaction. When one of them has made an index, a closure of the other keeps it waiting for so
/// long that calls are refused. Whatever the call answers, the index is there and kept, or it is not there.
#[test]
fn an_index_is_kept_although_another_thread_has_the_transaction_next() {
    let hook = Hook::default();
    let in_closure = hook.clone();
    let env = tiny()
        .index_extractor("first", move |_, value, emit| {
            in_closure.call();
            emit(&value[..1]);
            Ok(())
        })
        .open_on(Arc::new(SimDisk::new()))
        .unwrap();
    env.transact(|txn| {
        txn.create_table("other")?.put(b"k", b"v")?;
        txn.create_table("t")?.put(b"k", b"v")
    })
    .unwrap();
    let txn = env.begin().unwrap();
    let other = txn.bytes("other").unwrap();
    let is_begun = Arc::new(AtomicU32::new(0));
    let begin = Arc::clone(&is_begun);
    hook.set(move || {
        begin.store(1, SeqCst);
        std::thread::sleep(Duration::from_millis(100)); // Now the other one waits for its turn.
    });
    let made = std::thread::scope(|scope| {
        scope.spawn(|| {
            while is_begun.load(SeqCst) == 0 {
                std::thread::yield_now();
            }
            let waits = |_: &[u8], _: &[u8]| {
                std::thread::sleep(Duration::from_millis(1500));
                true
            };
            let _ = other.range(..).and_then(|range| range.for_each_ref(waits));
        });
        txn.create_index("t", &IndexDef::new("i", IndexKeys::Extractor("first".into())))
    });
    hook.clear();
    txn.commit().unwrap();
    let has_index = env
        .transact(|txn| {
            let table = txn.bytes("t")?;
            table.put(b"l", b"w")?;
            Ok::<_, Error>(table.index("i").is_ok())
        })
        .unwrap();
    assert_eq!(made.is_ok(), has_index, "{made:?}");
    common::assert_sound(&env, "after the commit");
}

/// Another thread's call waits for a scan, however long that takes, as long as its closures are short. One closure that
/// takes long is told, also in the middle of a leaf.
#[test]
fn a_scan_is_waited_for_by_its_closures() {
    for (pause_ms, records, is_told) in [(20, 100, false), (1500, 3, true)] {
        let env = tiny().open_on(Arc::new(SimDisk::new())).unwrap();
        env.transact(|txn| {
            let table = txn.create_table("t")?;
            (0..records).try_for_each(|n: u8| table.put([n], b"v"))
        })
        .unwrap();
        // Without locks on records, which would have each one looked at alone.
        let options = TransactionOptions { isolation: Some(Isolation::Snapshot), ..Default::default() };
        let txn = env.begin_with(options).unwrap();
        let (table, same) = (txn.bytes("t").unwrap(), txn.bytes("t").unwrap());
        let is_begun = AtomicU32::new(0);
        let answer = std::thread::scope(|scope| {
            let is_begun = &is_begun;
            scope.spawn(move || {
                let scanned = table.range(..).and_then(|range| {
                    range.for_each_ref(|key, _| {
                        is_begun.store(u32::from(key == [2]), SeqCst);
                        let is_short = is_told && key != [2];
                        std::thread::sleep(Duration::from_millis(if is_short { 0 } else { pause_ms }));
                        true
                    })
                });
                scanned.unwrap();
            });
            while is_begun.load(SeqCst) == 0 {
                std::thread::yield_now();
            }
            same.get([0])
        });
        match answer {
            Err(Error::Busy) => assert!(is_told),
            answer => assert!(!is_told && answer.unwrap().is_some()),
        }
    }
}
