//! The user's code runs now. Whatever closure or callback is handed in may panic at any call and call anything, and the
//! environment goes on. Nothing half done stays, nothing is held for ever, and every call inside is answered.

mod common;

use std::io::{BufReader, Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::number::{NUMBER, Number, add};
use common::{tiny, within};
use ledgerstone::{
    BackupOptions, BytesTable, Durability, Environment, Error, IndexDef, IndexKeys, TableDef, Transaction,
    TransactionOptions,
};
use ledgerstone_disk::SimDisk;
use ledgerstone_dump::{Dump, DumpOptions, LoadOptions};

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
    let env = Environment::options()
        .cache_bytes(2 << 20)
        .page_count_max(1 << 14)
        .durability(Durability::Volatile)
        .lock_timeout(Duration::from_millis(500))
        .transaction_count_max(512)
        .thread_count_max(512)
        .index_extractor("first", extract)
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
        txn.create_structure("number", NUMBER, &[])?;
        Ok::<_, Error>(())
    })
    .unwrap();
    env
}

/// Calls of a transaction that run the user's code: each calls the hook one or more times.
type Inside = fn(&Transaction, &Hook) -> Result<(), Error>;

const INSIDE: &[(&str, Inside)] = &[
    ("put", |txn, _| txn.bytes("t")?.put(&[3], b"z")),
    ("put of a new key", |txn, _| txn.bytes("t")?.put(b"new", b"z")),
    ("insert_new", |txn, _| txn.bytes("t")?.insert_new(b"new", b"z")),
    ("delete", |txn, _| txn.bytes("t")?.delete(&[3]).map(drop)),
    ("delete_range", |txn, _| txn.bytes("t")?.delete_range(..).map(drop)),
    ("modify", |txn, hook| {
        let change = |_: &[u8]| {
            hook.call();
            Some(b"zz".to_vec())
        };
        txn.bytes("t")?.modify(&[3], change).map(drop)
    }),
    ("modify without indexes", |txn, hook| {
        let change = |_: &[u8]| {
            hook.call();
            Some(b"zz".to_vec())
        };
        txn.bytes("plain")?.modify(&[3], change).map(drop)
    }),
    ("modify of a large value", |txn, hook| {
        let change = |_: &[u8]| {
            hook.call();
            Some(vec![8; 30_000])
        };
        txn.bytes("plain")?.modify(b"large", change).map(drop)
    }),
    ("typed modify", |txn, hook| {
        let table = txn.open(TableDef::<u64, u64>::new("typed"))?;
        table.put(&1, &1)?;
        let change = |old| {
            hook.call();
            Some(old + 1)
        };
        table.modify(&1, change).map(drop)
    }),
    ("for_each_ref", |txn, hook| {
        txn.bytes("t")?.range(..)?.for_each_ref(|_, _| {
            hook.call();
            true
        })
    }),
    ("count of an index", |txn, _| {
        txn.bytes("t")?.put(&[4], b"q")?;
        txn.bytes("t")?.index("i")?.range(..)?.records().try_for_each(|record| record.map(drop))
    }),
    ("entry", |txn, hook| {
        let change = |value: &mut Vec<u8>| {
            hook.call();
            value.push(1);
        };
        txn.bytes("t")?.entry(&[3])?.and_modify(change)?;
        let make = || {
            hook.call();
            b"made".to_vec()
        };
        txn.bytes("t")?.entry(b"new")?.or_insert_with(make).map(drop)
    }),
    ("value writer", |txn, _| {
        let mut writer = txn.bytes("t")?.value_writer(&[3])?;
        writer.write_all(b"more").map_err(Error::user)
    }),
    ("create_index", |txn, _| txn.create_index("t", &IndexDef::new("second", IndexKeys::Extractor("first".into())))),
    ("sorted load", |txn, hook| {
        let records = (0..20u8).map(|n| {
            hook.call();
            ([n], [b'a' + n])
        });
        txn.bytes("empty")?.load_sorted(records).map(drop)
    }),
    ("nested", |txn, hook| {
        txn.nested(|txn| {
            txn.bytes("plain")?.put(b"nested", b"1")?;
            hook.call();
            Ok(())
        })
    }),
    ("nested, reading only", |txn, hook| {
        txn.nested_read_only(|txn| {
            txn.bytes("plain")?.get(b"nested")?;
            hook.call();
            Ok(())
        })
    }),
    ("structure", |txn, hook| add(txn, 3, &|| hook.call()).map(drop)),
    ("create_structure", |txn, _| txn.create_structure("another", NUMBER, &[]).map(drop)),
];

/// Those that run the user's code between calls of the transaction, which answers then.
const BETWEEN: &[&str] = &["entry", "sorted load", "nested", "nested, reading only"];

/// Calls of an environment that run the user's code.
type Outside = fn(&Environment, &Hook) -> Result<(), Error>;

const OUTSIDE: &[(&str, Outside)] = &[
    ("transact", |env, hook| {
        env.transact(|txn| {
            txn.bytes("plain")?.put(b"k", b"transact")?;
            hook.call();
            txn.bytes("plain")?.put(b"l", b"transact")
        })
    }),
    ("verify", |env, hook| env.verify_with(|_| hook.call()).map(drop)),
    ("compact", |env, hook| env.compact_with(|_| hook.call()).map(drop)),
    ("backup", |env, hook| {
        env.backup_on(Arc::new(SimDisk::new()), BackupOptions::default(), |_| hook.call()).map(drop)
    }),
    ("backup into a stream", |env, hook| {
        let to = &mut Calling(hook.clone(), Vec::new());
        env.backup_to(to, BackupOptions::default(), |_| ()).map(drop)
    }),
    ("dump", |env, hook| {
        env.dump_with(&mut Vec::new(), &DumpOptions::default().locked(true), |_| hook.call()).map(drop)
    }),
    ("dump into a stream", |env, hook| {
        let to = &mut Calling(hook.clone(), Vec::new());
        env.dump(to, &DumpOptions::default().table("plain")).map(drop)
    }),
    ("load", |env, hook| {
        let mut text = Vec::from("VERSION=3\nformat=print\ndatabase=loaded\ntype=btree\nHEADER=END\n");
        (0..2500).for_each(|n| text.extend_from_slice(format!(" {n:05}\n v\n").as_bytes()));
        text.extend_from_slice(b"DATA=END\n");
        let from = &mut BufReader::with_capacity(8192, CallingReader(hook.clone(), text, 0));
        env.load_with(from, &LoadOptions::default(), |_| hook.call()).map(drop)
    }),
    ("reclaim", |env, _| {
        env.transact(|txn| txn.drop_structure("number"))?;
        env.reclaim()
    }),
];

struct Calling(Hook, Vec<u8>);

impl Write for Calling {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.1.len().is_multiple_of(3) {
            self.0.call();
        }
        self.1.push(1);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

struct CallingReader(Hook, Vec<u8>, usize);

impl Read for CallingReader {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.0.call();
        let len = buffer.len().min(self.1.len() - self.2);
        buffer[..len].copy_from_slice(&self.1[self.2..self.2 + len]);
        self.2 += len;
        Ok(len)
    }
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
                    // What an entry has done before it called again is done.
                    Err(_) if name == "entry" || name == "count of an index" => {}
                    Err(_) if name == "typed modify" => {
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
                    Err(_) if matches!(name, "load" | "reclaim") => {} // In steps that stay.
                    Err(_) => assert_eq!(state(&env.begin().unwrap()).unwrap(), before, "{said}"),
                    Ok(Err(Error::Panicked("number"))) if name == "reclaim" => {} // The housekeeper may have called it, too.
                    Ok(done) => done.unwrap_or_else(|error| panic!("{said}: {error}")),
                }
                assert_goes_on(&env, &said);
                env.close().unwrap();
                calls.load(SeqCst)
            });
            if calls < at || at > 40 {
                break calls;
            }
            at += 1;
        };
        assert!(times > 0, "{name} calls nothing of the user's");
    });
}

// ---- Calls from inside.

#[derive(Clone)]
struct Ctx {
    env: Environment,
    txn: Option<Arc<Transaction>>,
    plain: Option<BytesTable>,
    indexed: Option<BytesTable>,
}

type Method<'a> = (&'static str, fn(&Ctx) -> Result<(), Error>);

/// Calls of the environment. None of them waits for ever, whoever calls it from where.
const OF_ENVIRONMENT: &[Method<'_>] = &[
    ("begin", |c| c.env.begin().map(drop)),
    ("snapshot", |c| c.env.snapshot()?.bytes("t")?.count().map(drop)),
    ("transact elsewhere", |c| c.env.transact(|txn| txn.bytes("other")?.put(b"k", b"inside"))),
    ("transact, reading", |c| c.env.transact(|txn| txn.bytes("t")?.count()).map(drop)),
    ("transact, writing", |c| c.env.transact(|txn| txn.bytes("t")?.put(&[3], b"inside"))),
    ("transact, writing plainly", |c| c.env.transact(|txn| txn.bytes("plain")?.put(&[3], b"inside"))),
    ("transact, creating", |c| c.env.transact(|txn| txn.create_table("inside")?.put(b"k", b"v"))),
    ("transact, dropping", |c| c.env.transact(|txn| txn.drop_table("other"))),
    ("checkpoint", |c| c.env.checkpoint().map(drop)),
    ("stat", |c| c.env.stat().map(drop)),
    ("verify", |c| c.env.verify().map(drop)),
    ("compact", |c| c.env.compact().map(drop)),
    ("reclaim", |c| c.env.reclaim()),
    ("backup", |c| c.env.backup_to(&mut Vec::new(), BackupOptions::default(), |_| ()).map(drop)),
    ("dump", |c| c.env.dump(&mut Vec::new(), &DumpOptions::default()).map(drop)),
    ("dump, locked", |c| {
        let options = DumpOptions::default().locked(true);
        c.env.dump(&mut Vec::new(), &options).map(drop)
    }),
    ("load", |c| {
        let text = "VERSION=3\nformat=print\ndatabase=inside2\ntype=btree\nHEADER=END\n k\n v\nDATA=END\n";
        c.env.load(&mut text.as_bytes(), &LoadOptions::default()).map(drop)
    }),
    ("changes", |c| c.env.named_changes("inside").map(drop)),
    ("log reader", |c| c.env.log_reader(ledgerstone::Lsn(0)).map(drop)),
    ("lock waits", |c| {
        drop((c.env.lock_waits(), c.env.in_doubt(), c.env.is_failed(), c.env.effective().cache_bytes));
        Ok(())
    }),
    ("damaged pages", |c| c.env.damaged_pages().map(drop)),
];

fn txn(c: &Ctx) -> &Transaction {
    c.txn.as_ref().unwrap()
}
fn plain(c: &Ctx) -> &BytesTable {
    c.plain.as_ref().unwrap()
}
fn indexed(c: &Ctx) -> &BytesTable {
    c.indexed.as_ref().unwrap()
}

/// Calls of the transaction that the closure belongs to, and of its tables.
const OF_TRANSACTION: &[Method<'_>] = &[
    ("create_table", |c| txn(c).create_table("made inside").map(drop)),
    ("drop_table", |c| txn(c).drop_table("other")),
    ("rename_table", |c| txn(c).rename_table("other", "renamed")),
    ("table_names", |c| txn(c).table_names().map(drop)),
    ("bytes", |c| txn(c).bytes("plain").map(drop)),
    ("bytes_or_create", |c| txn(c).bytes_or_create("plain").map(drop)),
    ("open", |c| txn(c).open(TableDef::<u64, u64>::new("typed2")).map(drop)),
    ("savepoint", |c| txn(c).savepoint().map(drop)),
    ("nested", |c| txn(c).nested(|_| Ok::<_, Error>(()))),
    ("nested_read_only", |c| txn(c).nested_read_only(|_| Ok::<_, Error>(()))),
    ("create_index", |c| txn(c).create_index("plain", &IndexDef::new("x", IndexKeys::Bytes { from: 0, to: Some(4) }))),
    ("drop_index", |c| txn(c).drop_index("t", "whole")),
    ("create_structure", |c| txn(c).create_structure("third", NUMBER, &[]).map(drop)),
    ("structure", |c| txn(c).structure("number", NUMBER).map(drop)),
    ("structure_names", |c| txn(c).structure_names().map(drop)),
    ("drop_structure", |c| txn(c).drop_structure("number")),
    ("get", |c| plain(c).get(&[3]).map(drop)),
    ("get_for_update", |c| plain(c).get_for_update(&[3]).map(drop)),
    ("contains", |c| plain(c).contains(&[3]).map(drop)),
    ("put", |c| plain(c).put(&[3], b"x")),
    ("put, indexed", |c| indexed(c).put(&[3], b"x")),
    ("insert_new", |c| plain(c).insert_new(b"n", b"x")),
    ("delete", |c| plain(c).delete(&[3]).map(drop)),
    ("delete_range", |c| plain(c).delete_range(&[6u8][..]..&[7u8][..]).map(drop)),
    ("modify", |c| plain(c).modify(&[3], |_| None).map(drop)),
    ("entry", |c| plain(c).entry(&[3]).map(drop)),
    ("range", |c| plain(c).range(..).map(drop)),
    ("prefix", |c| plain(c).prefix(&[3]).map(drop)),
    ("first", |c| plain(c).first().map(drop)),
    ("last", |c| plain(c).last().map(drop)),
    ("count", |c| plain(c).count().map(drop)),
    ("value_len", |c| plain(c).value_len(b"large").map(drop)),
    ("value_reader", |c| plain(c).value_reader(b"large").map(drop)),
    ("value_writer", |c| plain(c).value_writer(b"large").and_then(|mut writer| writer.set_len(10))),
    ("sorted_loader", |c| plain(c).sorted_loader().map(drop)),
    ("index", |c| indexed(c).index("i")?.lookup(b"a").map(drop)),
];

/// The calls of transactions that need nothing of it.
fn free_calls(c: &Ctx) {
    let txn = txn(c);
    drop((txn.xid(), txn.isolation(), txn.snapshot_lsn(), format!("{txn:?}")));
    drop((plain(c).name(), plain(c).root_page(), indexed(c).indexes(), format!("{:?}", plain(c))));
}

/// Calls each method from this thread. No wait may have to run into its time-out.
fn call_here(what: &str, methods: &[Method<'_>], c: &Ctx, must_be_busy: bool) {
    for (name, method) in methods {
        let began = Instant::now();
        let answer = method(c);
        let said = format!("{name} in {what}: {answer:?} after {:?}", began.elapsed());
        assert!(
            !matches!(answer, Err(Error::LockTimeout { .. } | Error::Corrupt { .. } | Error::Failed { .. })),
            "{said}"
        );
        assert!(!must_be_busy || matches!(answer, Err(Error::Busy)), "{said}");
    }
}

/// Calls each method from a thread of its own, while the closure waits for them all.
fn call_elsewhere(what: &str, methods: &[Method<'_>], c: &Ctx, must_be_busy: bool) {
    let threads = methods.iter().map(|&(name, method)| {
        let (c, what) = (c.clone(), what.to_string());
        std::thread::spawn(move || {
            let answer = method(&c);
            let said = format!("{name} in {what}, from another thread: {answer:?}");
            assert!(!matches!(answer, Err(Error::Corrupt { .. } | Error::Failed { .. })), "{said}");
            assert!(!must_be_busy || matches!(answer, Err(Error::Busy)), "{said}");
        })
    });
    for thread in threads.collect::<Vec<_>>() {
        thread.join().unwrap_or_else(|panic| resume_unwind(panic));
    }
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
            within(60, name, move || {
                let hook = Hook::default();
                let env = environment(&hook);
                let running = Arc::new(env.begin().unwrap());
                let c = Ctx {
                    env: env.clone(),
                    plain: Some(running.bytes("plain").unwrap()),
                    indexed: Some(running.bytes("t").unwrap()),
                    txn: Some(Arc::clone(&running)),
                };
                let is_busy = !BETWEEN.contains(&name);
                let calls = once(&hook, move || {
                    free_calls(&c);
                    let call = if elsewhere { call_elsewhere } else { call_here };
                    call(name, OF_TRANSACTION, &c, is_busy);
                    call(name, OF_ENVIRONMENT, &c, false);
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
            within(60, name, move || {
                let hook = Hook::default();
                let env = environment(&hook);
                let c = Ctx { env: env.clone(), txn: None, plain: None, indexed: None };
                let calls = once(&hook, move || {
                    let call = if elsewhere { call_elsewhere } else { call_here };
                    call(name, OF_ENVIRONMENT, &c, false);
                    if name == "compact" {
                        call(name, &[("compact", |c| c.env.compact().map(drop))], &c, true);
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
