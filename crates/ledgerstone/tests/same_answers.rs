//! The same script by handles of a transaction and by handles of the environment, at every level: one answer to each
//! call, and the same records in the end.
//!
//! `SAME_SEEDS` says how many seeds are run, `SAME_FROM` with which it begins.

mod common;

use std::fmt::Debug;
use std::io::{Read, Seek, SeekFrom, Write};
use std::sync::Arc;

use common::levels::{LEVELS, begin};
use common::{assert_sound, read, tiny};
use ledgerstone::{
    Durability, EnvTable, Environment, Error, IndexDef, IndexKeys, Isolation, Savepoint, TableDef, Transaction,
    TypedEnvTable,
};
use ledgerstone_disk::SimDisk;
use ledgerstone_region::Random;

/// A key: its encoding is its two bytes.
type Pair = (u8, u8);

const NAMES: [&str; 3] = ["a", "b", "c"];

/// Two environments. In `by_txn` all is done by handles of transactions, in `by_env` by those of the environment.
struct Both {
    by_txn: Environment,
    by_env: Environment,
    handles: Vec<(EnvTable, TypedEnvTable<Pair, String>)>,
    random: Random,
    seed: u64,
}

/// An old snapshot of each, or the transaction that runs in each.
type Txns = (Transaction, Transaction);

fn shown<T: Debug>(answer: Result<T, Error>) -> String {
    match answer {
        Ok(answer) => format!("{answer:?}"),
        Err(error) => format!("{error:?}"),
    }
}

fn environment() -> Environment {
    tiny().durability(Durability::Volatile).open_on(Arc::new(SimDisk::new())).unwrap()
}

fn typed(name: &str) -> TableDef<'_, Pair, String> {
    TableDef::new(name)
}

fn io(error: std::io::Error) -> Error {
    error.downcast().unwrap_or_else(Error::Disk)
}

/// Makes a call by both kinds of handles, and compares what `$finish` makes of it.
macro_rules! same {
    ($seed:expr, $open:expr, ($handle:expr, $txn:expr),
     $method:ident $(::<$of:ty>)? ($($argument:expr),*), $finish:expr) => {{
        #[allow(unused_mut)] // Some of the calls need it.
        let by_txn = $open.and_then(|mut table| table.$method $(::<$of>)? ($($argument),*)).and_then($finish);
        let by_env = $handle.$method $(::<$of>)? ($txn $(, $argument)*).and_then($finish);
        assert_eq!(shown(by_txn), shown(by_env), "seed {}: {}", $seed, stringify!($method));
    }};
}

impl Both {
    fn new(seed: u64) -> Both {
        let (by_txn, by_env) = (environment(), environment());
        let made = |env: &Environment| {
            env.transact(|txn| NAMES.iter().try_for_each(|name| txn.open(typed(name)).map(drop))).unwrap();
        };
        made(&by_txn);
        made(&by_env);
        let handles = NAMES.iter().map(|name| Both::handles_of(&by_env, name).unwrap()).collect();
        Both { by_txn, by_env, handles, random: Random::new(seed), seed }
    }

    fn handles_of(env: &Environment, name: &str) -> Result<(EnvTable, TypedEnvTable<Pair, String>), Error> {
        Ok((env.table(name)?, env.typed_table(typed(name))?))
    }

    fn key(&mut self) -> Pair {
        (self.random.below(6) as u8, self.random.below(10) as u8)
    }

    fn key_bytes(&mut self) -> [u8; 2] {
        self.key().into()
    }

    fn value(&mut self) -> String {
        let len = self.random.pick(&[3, 8, 300, 5_000]);
        ["x", "yz", "ü"][self.random.below(3) as usize].repeat(len)
    }

    /// A call on byte strings.
    fn call(&mut self, txns: &Txns, at: usize) {
        let (name, bytes, seed) = (NAMES[at], self.handles[at].0.clone(), self.seed);
        let (key, other, value) = (self.key_bytes(), self.key_bytes(), self.value());
        let (from, to) = (&key[..], &other[..]);
        macro_rules! call {
            ($($call:tt)*) => { same!(seed, txns.0.bytes(name), (bytes, &txns.1), $($call)*) };
        }
        match self.random.below(30) {
            0 => call!(get(key), Ok),
            1 => call!(get_with(key, <[u8]>::len), Ok),
            2 => call!(get_for_update(key), Ok),
            3 => call!(contains(key), Ok),
            4 => call!(put(key, &value), Ok),
            5 => call!(insert(key, &value), Ok),
            6 => call!(insert_new(key, &value), Ok),
            7 => call!(delete(key), Ok),
            8 => call!(remove(key), Ok),
            9 => call!(pop_first(), Ok),
            10 => call!(pop_last(), Ok),
            11 => call!(delete_range(from..to), Ok),
            12 => call!(modify(key, |old: &[u8]| Some([old, b"+"].concat())), Ok),
            13 => call!(entry(key), |entry| entry.and_modify(|old| old.push(b'!'))?.or_insert(&value)),
            14 => call!(entry(key), |entry| entry.replace(&value)),
            15 => call!(entry(key), |entry| entry.remove()),
            16 => call!(range(from..=to), |range| range.collect::<Result<Vec<_>, _>>()),
            17 => call!(range(..), |range| range.rev().take(3).collect::<Result<Vec<_>, _>>()),
            18 => call!(prefix(&key[..1]), |range| range.collect::<Result<Vec<_>, _>>()),
            19 => call!(first(), Ok),
            20 => call!(last(), Ok),
            21 => call!(is_empty(), Ok),
            22 => call!(count(), Ok),
            23 => call!(estimated_count(), |count| Ok(count > 0)),
            24 => call!(value_len(key), Ok),
            25 => call!(value_reader(key), |reader| {
                let mut value = String::new();
                reader.map_or(Ok(0), |mut reader| reader.read_to_string(&mut value)).map_err(io)?;
                Ok(value)
            }),
            26 => call!(value_writer(key), |mut writer| {
                writer.seek(SeekFrom::Start(2)).and_then(|_| writer.write_all(b"middle")).map_err(io)
            }),
            27 => {
                call!(index("i"), |index| index.range(..)?.records().collect::<Result<Vec<_>, _>>());
                call!(index("i"), |index| index.get(b"xxx"));
            }
            28 => {
                let records = || (0..5_u8).map(|n| ([0, n], "loaded"));
                call!(load_sorted(records()), Ok);
                call!(try_load_sorted([Ok((from, "a")), Err(Error::user("ends"))]), Ok);
            }
            _ => {
                call!(sorted_loader(), |mut loader| {
                    loader.push(from, "first")?;
                    loader.push(to, "second")?;
                    loader.finish()?.count()
                });
                let indexes = |txn: &Transaction| Ok::<_, Error>(txn.bytes(name)?.indexes());
                assert_eq!(shown(indexes(&txns.0)), shown(bytes.indexes(&txns.1)), "seed {seed}");
                let types = |txn: &Transaction| Ok::<_, Error>(txn.bytes(name)?.types().clone());
                assert_eq!(shown(types(&txns.0)), shown(bytes.types(&txns.1)), "seed {seed}");
                // These two say more than the name of the table, and are other numbers in another environment.
                let said = bytes.table_id(&txns.1).and_then(|id| Ok((id, bytes.root_page(&txns.1)?)));
                let table = txns.1.bytes(name);
                assert_eq!(shown(said), shown(table.map(|table| (table.table_id(), table.root_page()))), "seed {seed}");
            }
        }
    }

    /// A call on a typed table.
    fn typed_call(&mut self, txns: &Txns, at: usize) {
        let (name, table, seed) = (NAMES[at], self.handles[at].1.clone(), self.seed);
        let (key, to, value) = (self.key(), self.key(), self.value());
        let open = || {
            // `Transaction::open` would make it.
            txns.0.bytes(name).and_then(|_| txns.0.open(typed(name)))
        };
        macro_rules! call {
            ($($call:tt)*) => { same!(seed, open(), (table, &txns.1), $($call)*) };
        }
        match self.random.below(26) {
            0 => call!(get(key), Ok),
            1 => call!(get_with(key, <[u8]>::len), Ok),
            2 => call!(get_for_update(key), Ok),
            3 => call!(contains(key), Ok),
            4 | 5 => call!(put(key, value.as_str()), Ok),
            6 => call!(insert(key, &value), Ok),
            7 => call!(insert_new(key, &value), Ok),
            8 => call!(delete(key), Ok),
            9 => call!(remove(key), Ok),
            10 => call!(pop_first(), Ok),
            11 => call!(pop_last(), Ok),
            12 => call!(delete_range(key..to), Ok),
            13 => call!(modify(key, |old: String| Some(old + "+")), Ok),
            14 => call!(entry(key), |entry| entry.and_modify(|old| old.push('!'))?.or_insert(value.clone())),
            15 => call!(get_or_insert_with(key, || value.clone()), Ok),
            16 => call!(range(key..=to), |range| range.collect::<Result<Vec<_>, _>>()),
            17 => call!(range(..), |range| range.rev().take(3).collect::<Result<Vec<_>, _>>()),
            18 => call!(prefix((key.0,)), |range| range.collect::<Result<Vec<_>, _>>()),
            19 => call!(first(), Ok),
            20 => call!(last(), Ok),
            21 => call!(is_empty(), Ok),
            22 => call!(count(), Ok),
            23 => call!(index::<Vec<u8>>("i"), |index| index.range(..)?.collect::<Result<Vec<_>, _>>()),
            24 => {
                call!(load_sorted((50..55).map(|n| ((9, n), "loaded"))), Ok);
                call!(try_load_sorted([Ok((key, "a")), Err(Error::user("ends"))]), Ok);
            }
            _ => call!(sorted_loader(), |mut loader| {
                loader.push(key, "first")?;
                loader.push(to, "second")?;
                loader.finish()?.count()
            }),
        }
    }

    /// What tables and indexes there are is changed in the same way in both.
    fn define(&mut self, txns: &Txns) {
        let (what, name, to) = (self.random.below(7), self.random.pick(&NAMES), self.random.pick(&NAMES));
        let done = [&txns.0, &txns.1].map(|txn| {
            shown(match what {
                0 => txn.open(typed(name)).map(drop),
                1 => txn.drop_table(name),
                2 => txn.drop_table(name).and_then(|()| txn.open(typed(name)).map(drop)),
                3 => txn.drop_table(name).and_then(|()| txn.open(TableDef::<u32, String>::new(name)).map(drop)),
                4 => txn.rename_table(name, to),
                5 => txn.create_index(name, &IndexDef::new("i", IndexKeys::Bytes { from: 0, to: Some(3) })),
                _ => txn.drop_index(name, "i"),
            })
        });
        assert_eq!(done[0], done[1], "seed {}", self.seed);
    }

    fn steps(&mut self, txns: &Txns, old: Option<&Txns>, depth: u32) {
        let mut marks: Vec<(Savepoint, Savepoint)> = Vec::new();
        for _ in 0..self.random.below(30) {
            match self.random.below(16) {
                0 => marks.push((txns.0.savepoint().unwrap(), txns.1.savepoint().unwrap())),
                1 if !marks.is_empty() => {
                    let at = self.random.below(marks.len() as u64) as usize;
                    txns.0.rollback_to(marks[at].0).unwrap();
                    txns.1.rollback_to(marks[at].1).unwrap();
                    marks.truncate(at + 1);
                }
                2 if depth < 2 => {
                    let fails = self.random.below(2) == 0;
                    let ended = |_: &Transaction| if fails { Err(Error::user("no")) } else { Ok(()) };
                    let done = txns.0.nested(|by_txn| {
                        txns.1.nested(|by_env| {
                            self.steps(txns, old, depth + 1);
                            ended(by_env)
                        })?;
                        ended(by_txn)
                    });
                    assert_eq!(done.is_err(), fails);
                }
                3 => self.define(txns),
                what => {
                    let at = self.random.below(3) as usize;
                    let txns = old.filter(|_| what == 4).unwrap_or(txns);
                    if what % 2 == 0 { self.call(txns, at) } else { self.typed_call(txns, at) }
                }
            }
        }
        for (of_txn, of_env) in marks.drain(..).rev() {
            txns.0.release(of_txn).unwrap();
            txns.1.release(of_env).unwrap();
        }
    }

    fn run(&mut self) {
        for _ in 0..25 {
            let old = (self.random.below(3) == 0).then(|| {
                let txns = (self.by_txn.snapshot().unwrap(), self.by_env.snapshot().unwrap());
                // One that only one of them had read at would be older than the other.
                assert_eq!(shown(txns.0.table_names()), shown(txns.1.table_names()));
                txns
            });
            let isolation = self.random.pick(&LEVELS);
            let txns = (begin(&self.by_txn, isolation), begin(&self.by_env, isolation));
            self.steps(&txns, old.as_ref(), 0);
            let commits = self.random.below(4) > 0;
            for txn in [txns.0, txns.1] {
                if commits { txn.commit().map(drop) } else { txn.abort() }.unwrap();
            }
            if let Some(old) = &old {
                (0..3).for_each(|at| self.call(old, at));
                (0..3).for_each(|at| self.typed_call(old, at));
            }
            drop(old);
            if self.random.below(3) == 0 {
                let at = self.random.below(3) as usize;
                if let Ok(handles) = Both::handles_of(&self.by_env, NAMES[at]) {
                    self.handles[at] = handles;
                    // The one that makes a typed table made it there, too.
                    self.by_txn.transact(|txn| txn.open(typed(NAMES[at])).map(drop)).unwrap();
                }
            }
            assert!(read(&self.by_txn).unwrap() == read(&self.by_env).unwrap(), "seed {}", self.seed);
        }
        assert_sound(&self.by_txn, &format!("seed {}", self.seed));
        assert_sound(&self.by_env, &format!("seed {}", self.seed));
    }
}

#[test]
fn both_kinds_of_handles_give_the_same_answers() {
    let count = std::env::var("SAME_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(20);
    let from = std::env::var("SAME_FROM").ok().and_then(|n| n.parse().ok()).unwrap_or(0);
    for seed in from..from + count {
        Both::new(seed).run();
    }
}

/// The same at one level, where no step is refused: what is there in the end is much.
#[test]
fn both_kinds_of_handles_fill_a_table_alike() {
    let mut both = Both::new(1);
    let txns = (begin(&both.by_txn, Isolation::Serializable), begin(&both.by_env, Isolation::Serializable));
    for _ in 0..500 {
        both.call(&txns, 0);
        both.typed_call(&txns, 0);
    }
    drop(txns.0.commit().unwrap());
    drop(txns.1.commit().unwrap());
    assert!(read(&both.by_txn).unwrap() == read(&both.by_env).unwrap());
}
