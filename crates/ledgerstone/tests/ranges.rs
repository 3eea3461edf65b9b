//! Ranges that are read from both ends, in any order, while their own transaction changes what lies ahead, behind, and
//! where the ends meet. A model says what each step gives.
//!
//! `RANGES_SEEDS` says how many seeds are run, `RANGES_FROM` with which it begins.

mod common;

use std::collections::BTreeSet;
use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use common::levels::{LEVELS, begin};
use common::{Records, assert_sound, tiny};
use ledgerstone::{BytesTable, Durability, Environment, Error, IndexDef, IndexKeys, Isolation, Transaction};
use ledgerstone_disk::SimDisk;
use ledgerstone_region::Random;

type Pair = (Vec<u8>, Vec<u8>);
type Step = Option<Result<Pair, Error>>;

/// Bytes of the values that are the index's keys.
const INDEXED: usize = 2;

/// A table's range, or one of its index by what begins each value.
enum Ends {
    Table(ledgerstone::Range),
    Index(ledgerstone::IndexRange),
}

impl Ends {
    fn step(&mut self, is_back: bool) -> Step {
        match (self, is_back) {
            (Ends::Table(range), false) => range.next(),
            (Ends::Table(range), true) => range.next_back(),
            (Ends::Index(range), false) => range.next(),
            (Ends::Index(range), true) => range.next_back(),
        }
    }
}

/// What a range gives next.
struct Model {
    is_of_index: bool,
    bounds: (Bound<Vec<u8>>, Bound<Vec<u8>>),
    /// By what the entries of either end are ordered.
    front: Option<Pair>,
    back: Option<Pair>,
    is_done: bool,
}

impl Model {
    /// What is there, as the range gives it, with what it is ordered by.
    fn entries(&self, records: &Records) -> Vec<(Pair, Pair)> {
        let is_inside = |key: &Vec<u8>| match (&self.bounds.0, &self.bounds.1) {
            (Bound::Included(from), _) if key < from => false,
            (Bound::Excluded(from), _) if key <= from => false,
            (_, Bound::Included(to)) => key <= to,
            (_, Bound::Excluded(to)) => key < to,
            _ => true,
        };
        let mut entries = Vec::new();
        for (key, value) in records {
            if !self.is_of_index && is_inside(key) {
                entries.push(((key.clone(), Vec::new()), (key.clone(), value.clone())));
            }
            let indexed = value[..INDEXED.min(value.len())].to_vec();
            if self.is_of_index && !indexed.is_empty() && is_inside(&indexed) {
                let entry = (indexed, key.clone());
                entries.push((entry.clone(), entry));
            }
        }
        entries.sort();
        entries
    }

    fn step(&mut self, records: &Records, is_back: bool) -> Option<Pair> {
        if self.is_done {
            return None;
        }
        let mut entries = self.entries(records);
        if is_back {
            entries.retain(|(place, _)| self.back.as_ref().is_none_or(|back| place < back));
        } else {
            entries.retain(|(place, _)| self.front.as_ref().is_none_or(|front| place > front));
        }
        let found = if is_back { entries.pop() } else { (!entries.is_empty()).then(|| entries.remove(0)) };
        let (own, other) = if is_back { (&mut self.back, &self.front) } else { (&mut self.front, &self.back) };
        match found {
            Some((place, _)) if other.as_ref().is_some_and(|at| if is_back { place <= *at } else { place >= *at }) => {
                self.is_done = true;
                None
            }
            Some((place, shown)) => {
                *own = Some(place);
                Some(shown)
            }
            None => {
                self.is_done = true;
                None
            }
        }
    }
}

struct Round {
    env: Environment,
    /// What others have committed.
    latest: Records,
    dice: Random,
    level: Isolation,
    seed: u64,
}

impl Round {
    fn key(&mut self) -> Vec<u8> {
        let n = self.dice.below(240);
        let stem: &[u8] = match n % 3 {
            0 => b"",
            1 => b"a common stem that is longer than a word/",
            _ => b"b/",
        };
        let tail: &[u8] = if n.is_multiple_of(7) { b" and a tail that is longer than a word" } else { b"" };
        [stem, &[n as u8], tail].concat()
    }

    fn value(&mut self) -> Vec<u8> {
        let len = self.dice.pick(&[0, 1, 9, 9, 9, 9, 20, 80, 300, 300, 5_000, 9_000]);
        let first = self.dice.below(6) as u8;
        let mut value = vec![self.dice.below(256) as u8; len];
        value.iter_mut().take(1).for_each(|byte| *byte = first);
        value
    }

    fn bound(&mut self, is_of_index: bool) -> Bound<Vec<u8>> {
        let at = if is_of_index { vec![self.dice.below(6) as u8, self.dice.below(256) as u8] } else { self.key() };
        match self.dice.below(5) {
            0 => Bound::Included(at),
            1 => Bound::Excluded(at),
            _ => Bound::Unbounded,
        }
    }

    /// Others change records that the transaction has not changed. Where it has locked the gap, they give up.
    fn others(&mut self, own: &BTreeSet<Vec<u8>>, count: u64, theirs: &mut BTreeSet<Vec<u8>>) {
        let txn = self.env.begin().unwrap();
        let table = txn.bytes("t").unwrap();
        let mut latest = self.latest.clone();
        let mut changed = theirs.clone();
        for _ in 0..count {
            let (key, value) = (self.key(), self.value());
            if own.contains(&key) {
                continue;
            }
            let done = if self.dice.below(3) == 0 {
                latest.remove(&key);
                table.delete(&key).map(drop)
            } else {
                latest.insert(key.clone(), value.clone());
                table.put(&key, &value)
            };
            match done {
                Err(Error::LockTimeout { .. }) => return,
                done => done.unwrap(),
            }
            changed.insert(key);
        }
        txn.commit_with(Durability::Volatile).unwrap();
        self.latest = latest;
        *theirs = changed;
    }

    /// The transaction changes a record near an end of the range, or anywhere.
    fn change(
        &mut self,
        table: &BytesTable,
        (records, model): (&mut Records, &Model),
        own: &mut BTreeSet<Vec<u8>>,
        theirs: &BTreeSet<Vec<u8>>,
    ) {
        let near = if self.dice.below(2) == 0 { &model.front } else { &model.back };
        let near = near.as_ref().map(|(first, second)| if model.is_of_index { second.clone() } else { first.clone() });
        let key = match (near, self.dice.below(4)) {
            (Some(near), 0) => near,
            (Some(near), 1) => [&near[..], &[0]].concat(),
            (Some(near), 2) => match records.range(..near).next_back() {
                Some((before, _)) if self.dice.below(2) == 0 => before.clone(),
                _ => self.key(),
            },
            _ => self.key(),
        };
        if theirs.contains(&key) && self.level != Isolation::Serializable {
            return; // The first committer wins.
        }
        own.insert(key.clone());
        if self.dice.below(2) == 0 {
            assert_eq!(table.delete(&key).unwrap(), records.remove(&key).is_some(), "seed {}", self.seed);
        } else {
            let value = self.value();
            table.put(&key, &value).unwrap();
            records.insert(key, value);
        }
    }

    fn read_by_closure(&mut self, range: ledgerstone::Range, model: &mut Model, records: &Records) {
        let (mut left, with_end) = (self.dice.below(300), self.dice.below(2) == 0);
        let mut given = Vec::new();
        let done = range.for_each_ref(|key, value| {
            given.push((key.to_vec(), value.to_vec()));
            left = left.saturating_sub(1);
            !with_end || left > 0
        });
        done.unwrap();
        for got in &given {
            assert_eq!(Some(got), model.step(records, false).as_ref(), "seed {}: a closure", self.seed);
        }
        if !with_end || left > 0 {
            assert_eq!(None, model.step(records, false), "seed {}: the closure's end", self.seed);
        }
    }

    fn run(&mut self) {
        let nobodys = BTreeSet::new();
        let txn = self.env.begin().unwrap();
        txn.create_table("t").unwrap();
        txn.create_index("t", &IndexDef::new("i", IndexKeys::Bytes { from: 0, to: Some(INDEXED as u32) })).unwrap();
        txn.commit_with(Durability::Volatile).unwrap();
        let first_count = self.dice.pick(&[0, 3, 40, 200]);
        self.others(&nobodys, first_count, &mut BTreeSet::new());
        let old = (self.dice.below(2) == 0).then(|| begin(&self.env, Isolation::Snapshot));
        let count = self.dice.below(60);
        self.others(&nobodys, count, &mut BTreeSet::new());
        let txn = begin(&self.env, self.level);
        let mut records = self.latest.clone();
        let (mut own, mut theirs) = (BTreeSet::new(), BTreeSet::new());
        for _ in 0..3 {
            self.read(&txn, &mut records, (&mut own, &mut theirs));
        }
        if self.dice.below(2) == 0 {
            drop(txn);
        } else {
            txn.commit_with(Durability::Volatile).unwrap();
        }
        drop(old);
        if self.dice.below(8) == 0 {
            assert_sound(&self.env, "in the end");
        }
    }

    fn read(
        &mut self,
        txn: &Transaction,
        records: &mut Records,
        (own, theirs): (&mut BTreeSet<Vec<u8>>, &mut BTreeSet<Vec<u8>>),
    ) {
        let table = txn.bytes("t").unwrap();
        let has_snapshot = self.level == Isolation::Snapshot;
        let each_call = self.level == Isolation::ReadCommitted;
        let takes_locks = self.level == Isolation::Serializable;
        if !takes_locks && self.dice.below(2) == 0 {
            self.others(own, 40, theirs);
        }
        if !takes_locks && !has_snapshot {
            for key in theirs.iter() {
                match self.latest.get(key) {
                    Some(value) => drop(records.insert(key.clone(), value.clone())),
                    None => drop(records.remove(key)),
                }
            }
        }
        for _ in 0..self.dice.below(6) {
            let nowhere = Model {
                is_of_index: false,
                bounds: (Bound::Unbounded, Bound::Unbounded),
                front: None,
                back: None,
                is_done: false,
            };
            self.change(&table, (records, &nowhere), own, theirs);
        }
        let is_of_index = self.dice.below(3) == 0;
        let bounds = (self.bound(is_of_index), self.bound(is_of_index));
        let mut ends = if is_of_index {
            Ends::Index(table.index("i").unwrap().range(bounds.clone()).unwrap())
        } else {
            Ends::Table(table.range(bounds.clone()).unwrap())
        };
        let mut model = Model { is_of_index, bounds, front: None, back: None, is_done: false };
        let (bias, changes) = (self.dice.below(4), self.dice.below(12));
        let mut savepoint = None;
        for _ in 0..self.dice.pick(&[3, 20, 100, 400]) {
            match self.dice.below(40) {
                n if n < changes => self.change(&table, (records, &model), own, theirs),
                20 if has_snapshot || each_call => self.others(own, 10, theirs),
                21 if savepoint.is_none() => savepoint = Some((txn.savepoint().unwrap(), records.clone())),
                22 => {
                    if let Some((point, then)) = savepoint.take() {
                        txn.rollback_to(point).unwrap();
                        *records = then;
                    }
                }
                23 if self.dice.below(8) == 0 => break,
                _ => {
                    let is_back = self.dice.below(3) < bias;
                    let got = ends.step(is_back).transpose().unwrap();
                    let expected = model.step(records, is_back);
                    assert!(
                        got == expected,
                        "seed {}: {is_back}: {:?} instead of {:?}",
                        self.seed,
                        shown(&got),
                        shown(&expected)
                    );
                }
            }
        }
        if let Ends::Table(range) = ends
            && self.dice.below(2) == 0
        {
            for _ in 0..self.dice.below(8) {
                self.change(&table, (records, &model), own, theirs);
            }
            self.read_by_closure(range, &mut model, records);
        }
    }
}

fn shown(pair: &Option<Pair>) -> Option<(String, usize)> {
    pair.as_ref().map(|(key, value)| (String::from_utf8_lossy(key).into_owned(), value.len()))
}

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|number| number.parse().ok()).unwrap_or(otherwise)
}

#[test]
fn both_ends_give_what_a_model_says() {
    let from = number("RANGES_FROM", 1);
    for seed in from..from + number("RANGES_SEEDS", 40) {
        for level in LEVELS {
            let env = tiny()
                .durability(Durability::Volatile)
                .lock_timeout(Duration::from_millis(1))
                .open_on(Arc::new(SimDisk::new()))
                .unwrap();
            Round { env, latest: Records::new(), dice: Random::new(seed << 3 | level as u64), level, seed }.run();
        }
    }
}

/// The first record of a leaf is given by another way than the others.
#[test]
fn a_closure_that_panics_at_any_record_leaves_its_transaction_and_the_others_as_they_were() {
    const COUNT: u16 = 300;
    let make = || {
        let options = tiny().durability(Durability::Volatile).lock_timeout(Duration::from_millis(1));
        let env = options.open_on(Arc::new(SimDisk::new())).unwrap();
        env.transact(|txn| {
            let table = txn.create_table("t")?;
            (0..COUNT).try_for_each(|n| table.put(n.to_be_bytes(), [7; 30]))
        })
        .unwrap();
        env
    };
    let (env, another) = (make(), make());
    let count = |table: &BytesTable, panics_at: u16| {
        let mut count = 0;
        let range = table.range(..).unwrap();
        let done = catch_unwind(AssertUnwindSafe(|| {
            range.for_each_ref(|_, _| {
                if count == panics_at {
                    resume_unwind(Box::new("a closure panics"));
                }
                count += 1;
                true
            })
        }));
        assert_eq!(done.is_err(), panics_at < COUNT);
        count
    };
    for level in LEVELS {
        let (txn, inner) = (begin(&env, level), begin(&env, level));
        let elsewhere = begin(&another, level);
        let tables = [&txn, &inner, &elsewhere].map(|txn| txn.bytes("t").unwrap());
        for at in (0..COUNT).step_by(if level == Isolation::Snapshot { 1 } else { 23 }) {
            assert_eq!(count(&tables[0], at), at);
            assert_eq!(count(&tables[0], COUNT), COUNT);
            // In a closure of another transaction, which goes on.
            let mut outer = 0;
            let done = tables[0].range(..).unwrap().for_each_ref(|_, _| {
                outer += 1;
                if outer == at || outer == COUNT {
                    tables[1..].iter().for_each(|table| assert_eq!(count(table, at), at));
                    assert!(matches!(tables[0].get([0]), Err(Error::Busy)));
                }
                true
            });
            done.unwrap();
            assert_eq!(outer, COUNT);
        }
        assert!(!env.is_failed() && !another.is_failed());
        for table in &tables {
            table.put([1], [1]).unwrap_or_else(|error| assert!(matches!(error, Error::LockTimeout { .. }), "{error}"));
        }
    }
}

/// The range ends with the error, from whichever end, and the transaction goes on.
#[test]
fn a_wait_that_is_refused_in_the_middle_ends_the_range() {
    let env = tiny().lock_timeout(Duration::from_millis(1)).open_on(Arc::new(SimDisk::new())).unwrap();
    env.transact(|txn| {
        let table = txn.create_table("t")?;
        (0..100_u8).try_for_each(|n| table.put([n], [n; 50]))
    })
    .unwrap();
    let holder = env.begin().unwrap();
    holder.bytes("t").unwrap().put([60], b"held").unwrap();
    let txn = env.begin().unwrap();
    let table = txn.bytes("t").unwrap();
    let is_refused = |step: Step| matches!(step, Some(Err(Error::LockTimeout { .. })));
    for back_count in [0, 1, 39] {
        let mut range = table.range(..).unwrap();
        let backs: Vec<_> = range.by_ref().rev().take(back_count).map(|record| record.unwrap().0[0]).collect();
        assert_eq!(backs, (61..100).rev().take(back_count).collect::<Vec<_>>());
        if back_count == 39 {
            assert!(is_refused(range.next_back()));
        } else {
            (0..60).for_each(|n| assert_eq!(range.next().unwrap().unwrap().0, [n]));
            assert!(is_refused(range.next()));
        }
        assert!(range.next().is_none() && range.next_back().is_none());
        let mut range = table.range(..).unwrap();
        assert_eq!(range.by_ref().rev().take(back_count).count(), back_count);
        range.next().unwrap().unwrap();
        let mut last = 0;
        let done = range.for_each_ref(|key, _| {
            last = key[0];
            true
        });
        assert!(matches!(done, Err(Error::LockTimeout { .. })), "{done:?}");
        assert_eq!(last, 59);
        assert_eq!(table.get([61]).unwrap().unwrap(), [61; 50]);
    }
    drop(holder);
    assert_eq!(table.range(..).unwrap().count(), 100);
}
