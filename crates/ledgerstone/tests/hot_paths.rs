//! The short paths of calls against a model: handles of the environment, the leaf that is near, locks that are free.
//! Small caches and lock tables, so that the long paths are taken as often.
//!
//! `HOT_SEEDS` and `HOT_TWINS` say how many seeds are run, `HOT_FROM` with which the first test begins.

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use common::levels::{LEVELS, begin};
use common::{State, assert_sound, read, tiny, within};
use ledgerstone::lock::{LockConfig, LockManager, LockTable};
use ledgerstone::{
    Durability, EnvTable, Environment, Error, IndexDef, IndexKeys, Isolation, Locking, Savepoint, Transaction,
    TransactionOptions,
};
use ledgerstone_disk::SimDisk;
use ledgerstone_region::Random;

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

fn environment(random: &mut Random) -> Environment {
    let mut options = tiny().durability(Durability::Volatile).escalate_after(random.pick(&[1, 2, 5, 1000]));
    options = options.lock_count_max(random.pick(&[1024, 4096]));
    if random.below(4) == 0 {
        options = options.locking(Locking::Pages);
    }
    options.open_on(Arc::new(SimDisk::new())).unwrap()
}

/// One environment, what should be in it, and handles of every age.
struct Model {
    env: Environment,
    random: Random,
    state: State,
    handles: Vec<EnvTable>,
    next_key: u32,
    seed: u64,
}

type Records = BTreeMap<Vec<u8>, Vec<u8>>;

fn is_missing<T: std::fmt::Debug>(got: &Result<T, Error>) -> bool {
    matches!(got, Err(Error::NoSuchTable(_)))
}

impl Model {
    fn new(seed: u64) -> Model {
        let mut random = Random::new(seed);
        let env = environment(&mut random);
        Model { env, random, state: State::new(), handles: Vec::new(), next_key: 0, seed }
    }

    fn value(&mut self) -> Vec<u8> {
        let len = self.random.pick(&[3, 40, 700, 1500]);
        vec![self.random.below(256) as u8; len]
    }

    fn key(&mut self) -> Vec<u8> {
        let key = match self.random.below(3) {
            0 => {
                self.next_key += 1;
                self.next_key + 1000
            }
            1 => 1000 + self.next_key.saturating_sub(self.random.below(8) as u32),
            _ => self.random.below(u64::from(self.next_key) + 1000) as u32,
        };
        key.to_be_bytes().to_vec()
    }

    /// One call by a handle of the environment or of the transaction.
    fn call(&mut self, txn: &Transaction, state: &mut State) {
        let seed = self.seed;
        let handle = match self.handles.is_empty() || self.random.below(3) == 0 {
            true => None,
            false => Some(self.handles[self.random.below(self.handles.len() as u64) as usize].clone()),
        };
        let name = handle.as_ref().map_or_else(|| self.random.pick(&NAMES).to_string(), |h| h.name().to_string());
        let (key, value, what) = (self.key(), self.value(), self.random.below(9));
        let records = state.get_mut(&name);
        let open = || txn.bytes(&name);
        let delete = |key: &[u8]| match &handle {
            Some(handle) => handle.delete(txn, key),
            None => open().and_then(|table| table.delete(key)),
        };
        let Some(records) = records else {
            let got = match &handle {
                Some(handle) if what < 4 => handle.put(txn, &key, &value),
                Some(handle) => handle.get(txn, &key).map(drop),
                None => open().map(drop),
            };
            assert!(is_missing(&got), "seed {seed}: {got:?} of {name}");
            return;
        };
        let before = records.get(&key).cloned();
        match what {
            0 | 1 => {
                match &handle {
                    Some(handle) => handle.put(txn, &key, &value),
                    None => open().and_then(|table| table.put(&key, &value)),
                }
                .unwrap();
                records.insert(key, value);
            }
            2 => {
                let last = records.last_key_value().map(|(key, _)| key.clone());
                let key = if self.random.below(2) == 0 { key } else { last.unwrap_or(key) };
                assert_eq!(delete(&key).unwrap(), records.remove(&key).is_some(), "seed {seed}");
            }
            3 => {
                let got = match &handle {
                    Some(handle) => handle.insert_new(txn, &key, &value),
                    None => open().and_then(|table| table.insert_new(&key, &value)),
                };
                match before {
                    Some(_) => assert!(matches!(got, Err(Error::KeyExists { .. })), "seed {seed}: {got:?}"),
                    None => {
                        got.unwrap();
                        records.insert(key, value);
                    }
                }
            }
            4 => {
                let change = |old: &[u8]| Some([old, b"+"].concat()).filter(|new| new.len() < 1500);
                let got = match &handle {
                    Some(handle) => handle.modify(txn, &key, change),
                    None => open().and_then(|table| table.modify(&key, change)),
                };
                assert_eq!(got.unwrap(), before.is_some(), "seed {seed}");
                if let Some(new) = before.as_deref().and_then(change) {
                    records.insert(key, new);
                }
            }
            5 => {
                let range = || match &handle {
                    Some(handle) => handle.range(txn, ..),
                    None => open().and_then(|table| table.range(..)),
                };
                let found: Records = range().unwrap().collect::<Result<_, _>>().unwrap();
                assert!(&found == records, "seed {seed}: {} of {} records", found.len(), records.len());
                let back: Vec<_> = range().unwrap().rev().map(|r| r.unwrap().0).collect();
                assert!(back.iter().eq(records.keys().rev()), "seed {seed}");
            }
            6 => {
                // Emptied from the right end.
                let keep = self.random.below(records.len() as u64 + 1) as usize;
                while records.len() > keep {
                    let (key, _) = records.pop_last().unwrap();
                    assert!(delete(&key).unwrap(), "seed {seed}");
                }
            }
            _ => {
                let (got, copied) = match &handle {
                    Some(handle) => (handle.get(txn, &key), handle.get_with(txn, &key, <[u8]>::to_vec)),
                    None => open().map(|table| (table.get(&key), table.get_with(&key, <[u8]>::to_vec))).unwrap(),
                };
                assert_eq!(got.unwrap(), before, "seed {seed}");
                assert_eq!(copied.unwrap(), before, "seed {seed}");
            }
        }
    }

    /// Tables made, dropped, renamed, loaded and indexed.
    fn define(&mut self, txn: &Transaction, state: &mut State) {
        let seed = self.seed;
        let name = self.random.pick(&NAMES);
        let index = IndexDef::new("i", IndexKeys::Bytes { from: 0, to: Some(3) });
        match self.random.below(6) {
            0 if !state.contains_key(name) => {
                txn.create_table(name).unwrap();
                state.insert(name.into(), Records::new());
            }
            1 => {
                let got = txn.drop_table(name);
                assert_eq!(is_missing(&got), state.remove(name).is_none(), "seed {seed}: {got:?}");
            }
            2 => {
                let to = self.random.pick(&NAMES);
                let got = txn.rename_table(name, to);
                if got.is_ok() && name != to {
                    let records = state.remove(name).unwrap();
                    assert!(state.insert(to.into(), records).is_none());
                }
            }
            3 if state.get(name).is_some_and(|records| records.is_empty()) => {
                let count = self.random.below(60) as u32;
                let value = self.value();
                let records = (0..count).map(|n| ((500 + n * 20).to_be_bytes().to_vec(), value.clone()));
                let mut table = txn.bytes(name).unwrap();
                table.load_sorted(records.clone()).unwrap();
                state.insert(name.into(), records.collect());
            }
            4 if txn.isolation() != Isolation::Snapshot => {
                let _made = txn.create_index_if_missing(name, &index);
            }
            5 if txn.isolation() != Isolation::Snapshot => {
                let _dropped = txn.drop_index(name, "i");
            }
            _ => {}
        }
    }

    fn steps(&mut self, txn: &Transaction, state: &mut State, depth: u32) {
        let mut marks: Vec<(Savepoint, State)> = Vec::new();
        for _ in 0..self.random.below(25) {
            match self.random.below(16) {
                0 => marks.push((txn.savepoint().unwrap(), state.clone())),
                1 | 2 if !marks.is_empty() => {
                    let at = self.random.below(marks.len() as u64) as usize;
                    txn.rollback_to(marks[at].0).unwrap();
                    *state = marks[at].1.clone();
                    marks.truncate(at + 1);
                }
                3 if !marks.is_empty() => {
                    let at = self.random.below(marks.len() as u64) as usize;
                    txn.release(marks[at].0).unwrap();
                    marks.truncate(at);
                }
                4 if depth < 2 => {
                    let before = state.clone();
                    let fails = self.random.below(2) == 0;
                    let done = txn.nested(|txn| {
                        self.steps(txn, state, depth + 1);
                        if fails { Err(Error::user("no")) } else { Ok(()) }
                    });
                    assert_eq!(done.is_err(), fails);
                    if fails {
                        *state = before;
                    }
                }
                5 | 6 => self.define(txn, state),
                _ => self.call(txn, state),
            }
        }
        for (mark, _) in marks.drain(..).rev() {
            txn.release(mark).unwrap();
        }
    }

    fn check_at(&self, txn: &Transaction, state: &State) {
        for handle in &self.handles {
            let Some(records) = state.get(handle.name()) else {
                assert!(is_missing(&handle.get(txn, "x")), "seed {}", self.seed);
                continue;
            };
            for (key, value) in records.iter().rev().take(5).chain(records.iter().take(2)) {
                assert_eq!(handle.get(txn, key).unwrap().as_ref(), Some(value), "seed {}", self.seed);
            }
            let found: Records = handle.of(txn).unwrap().range(..).unwrap().collect::<Result<_, _>>().unwrap();
            assert!(&found == records, "seed {}", self.seed);
        }
    }

    fn run(&mut self) {
        for _ in 0..30 {
            let old = (self.random.below(4) == 0).then(|| (self.env.snapshot().unwrap(), self.state.clone()));
            let txn = begin(&self.env, self.random.pick(&LEVELS));
            let mut state = self.state.clone();
            self.steps(&txn, &mut state, 0);
            if let Some((snapshot, state)) = &old {
                self.check_at(snapshot, state);
            }
            if self.random.below(4) == 0 {
                txn.abort().unwrap();
            } else {
                txn.commit().unwrap();
                self.state = state;
            }
            if let Some((snapshot, state)) = &old {
                self.check_at(snapshot, state);
            }
            match self.random.below(12) {
                0 => self.env.reclaim().unwrap(),
                1 => drop(self.env.compact().unwrap()),
                2 => drop(self.env.checkpoint().unwrap()),
                _ => {}
            }
            if self.random.below(2) == 0
                && let Ok(handle) = self.env.table(self.random.pick(&NAMES))
            {
                self.handles.push(handle);
                if self.handles.len() > 6 {
                    self.handles.remove(0);
                }
            }
            for level in LEVELS {
                self.check_at(&begin(&self.env, level), &self.state);
            }
        }
        assert!(read(&self.env).unwrap() == self.state, "seed {}", self.seed);
        assert_sound(&self.env, &format!("seed {}", self.seed));
    }
}

#[test]
fn random_calls_of_every_kind_do_what_the_model_says() {
    let count = std::env::var("HOT_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(20);
    let from = std::env::var("HOT_FROM").ok().and_then(|n| n.parse().ok()).unwrap_or(0);
    for seed in from..from + count {
        Model::new(seed).run();
    }
}

/// Two tables that hold the same records after every transaction.
struct Twins {
    env: Environment,
    a: EnvTable,
    b: EnvTable,
    next_key: AtomicU64,
    commit_count: AtomicU64,
    has_failed: AtomicBool,
    until: Instant,
}

impl Twins {
    fn goes_on(&self) -> bool {
        Instant::now() < self.until && !self.has_failed.load(SeqCst)
    }

    /// What thread `no` does until the end: the first one makes, loads, renames and drops the tables too.
    fn work(&self, no: u64, seed: u64) {
        let mut random = Random::new(seed * 97 + no);
        while self.goes_on() {
            let level = random.pick(&LEVELS);
            let options = TransactionOptions { isolation: Some(level), ..TransactionOptions::default() };
            let (what, draw) = (random.below(10), random.fork());
            match self.env.transact_with(options, |txn| self.step(txn, (no, what), &mut draw.clone())) {
                Ok(()) => drop(self.commit_count.fetch_add(1, SeqCst)),
                Err(error) if error.is_retryable() => {}
                Err(Error::LockTableFull { .. } | Error::SnapshotTooOld { .. }) => {}
                // A handle of the transaction, opened at a snapshot of a call, and the table was made anew.
                Err(Error::NoSuchTable(_))
                    if no == 1
                        && what < 4
                        && [Isolation::ReadCommitted, Isolation::ReadUncommitted].contains(&level) => {}
                Err(error) => {
                    self.has_failed.store(true, SeqCst);
                    panic!("seed {seed}, thread {no}, {level:?}, {what}: {error:?}");
                }
            }
        }
    }

    /// One transaction of a thread: `what` it draws means other things to the first two.
    fn step(&self, txn: &Transaction, no_and_what: (u64, u64), random: &mut Random) -> Result<(), Error> {
        let (a, b, level) = (&self.a, &self.b, txn.isolation());
        match no_and_what {
            (0, 0) => {
                txn.drop_table("a")?;
                txn.create_table("a")?;
                txn.drop_table("b")?;
                txn.create_table("b").map(drop)
            }
            (0, 1) if level == Isolation::Serializable => {
                for (table, now) in [(a, "a"), (b, "b")] {
                    let records: Vec<_> = table.range(txn, ..)?.collect::<Result<_, _>>()?;
                    txn.drop_table(now)?;
                    txn.create_table(now)?.load_sorted(records)?;
                }
                Ok(())
            }
            (0, 2) => {
                txn.rename_table("a", "c")?;
                txn.rename_table("b", "a")?;
                txn.rename_table("c", "b")
            }
            (0, 3) if level != Isolation::Snapshot => {
                let index = IndexDef::new("i", IndexKeys::Bytes { from: 0, to: Some(6) });
                if !txn.create_index_if_missing("a", &index)? {
                    txn.drop_index("a", "i")?;
                }
                Ok(())
            }
            (1, 0..=3) => {
                // From the right end.
                let count = random.below(12) as usize + 1;
                let last: Vec<_> = a.range(txn, ..)?.rev().take(count).collect::<Result<_, _>>()?;
                for (key, _) in last {
                    assert_eq!(a.delete(txn, &key)?, b.delete(txn, &key)?, "{level:?}");
                }
                Ok(())
            }
            (_, 5) if level == Isolation::Serializable || level == Isolation::Snapshot => {
                let all = |table: &EnvTable| table.range(txn, ..)?.collect::<Result<Vec<_>, _>>();
                let (left, right) = (all(a)?, all(b)?);
                assert!(left == right, "{level:?}: {} and {} records", left.len(), right.len());
                Ok(())
            }
            (_, 6) => {
                let kept = txn.savepoint()?;
                let key = (self.next_key.load(SeqCst) + 1).to_be_bytes();
                a.put(txn, key, [1; 300])?;
                txn.rollback_to(kept)?;
                a.get(txn, key).map(drop)
            }
            _ => (0..=random.below(12)).try_for_each(|_| self.put(txn, random)),
        }
    }

    fn put(&self, txn: &Transaction, random: &mut Random) -> Result<(), Error> {
        let key = match random.below(4) {
            0 => random.below(self.next_key.load(SeqCst) + 1),
            _ => self.next_key.fetch_add(1, SeqCst),
        };
        let (key, value) = (key.to_be_bytes(), vec![random.below(256) as u8; 300]);
        // The order of the first locks is the same for all, so that there are few deadlocks.
        self.a.put(txn, key, &value)?;
        self.b.put(txn, key, &value)?;
        if txn.isolation() == Isolation::Serializable {
            assert_eq!(self.a.get(txn, key)?.as_deref(), Some(&value[..]));
            assert_eq!(self.b.get_with(txn, key, <[u8]>::to_vec)?, Some(value));
        }
        Ok(())
    }
}

/// Five threads at all levels, with few locks or many. Nobody who sees both tables may see them differ.
fn twins(seed: u64, locks_max: u32, escalate_after: u32) {
    let options = tiny().durability(Durability::Volatile).escalate_after(escalate_after);
    let options = options.own_lock_manager(move |region, slots, config| {
        Ok(Arc::new(LockTable::place(region, slots, LockConfig { locks_max, ..config })?) as Arc<dyn LockManager>)
    });
    let env = options.open_on(Arc::new(SimDisk::new())).unwrap();
    env.transact(|txn| txn.create_table("a").and_then(|_| txn.create_table("b")).map(drop)).unwrap();
    let (a, b) = (env.table("a").unwrap(), env.table("b").unwrap());
    let (next_key, commit_count, has_failed) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    let until = Instant::now() + Duration::from_secs(1);
    let twins = &Twins { env, a, b, next_key, commit_count, has_failed, until };
    std::thread::scope(|scope| {
        for no in 0..5 {
            scope.spawn(move || twins.work(no, seed));
        }
        while twins.goes_on() {
            twins.env.compact().unwrap();
            twins.env.checkpoint().unwrap();
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    let state = read(&twins.env).unwrap();
    assert!(state["a"] == state["b"], "seed {seed}: {} and {} records", state["a"].len(), state["b"].len());
    assert_sound(&twins.env, &format!("seed {seed}"));
    let commit_count = twins.commit_count.load(SeqCst);
    assert!(commit_count > 20, "seed {seed}: {commit_count}");
}

#[test]
fn two_tables_stay_twins_whatever_becomes_of_them() {
    let count = std::env::var("HOT_TWINS").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    for seed in 0..count {
        for (locks_max, escalate_after) in [(1 << 14, 1000), (60, 1000), (200, 2), (4096, 1)] {
            within(60, "twins", move || twins(seed, locks_max, escalate_after));
        }
    }
}
