//! Snapshots stay what they are beside everything that moves, hides or removes what they show: prepared transactions
//! and their decisions, compactions, drops, renames, deferred frees, checkpoints, restarts. Compared with a model, step
//! by step.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use common::{assert_sound, open};
use ledgerstone::{BytesTable, Environment, Error, Range, Transaction, TransactionOptions};
use ledgerstone_disk::SimDisk;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;

const NAMES: [&str; 3] = ["a", "b", "c"];
const KEY_COUNT: u8 = 60;
/// The environments have few slots for transactions.
const SNAPSHOTS_MAX: usize = 4;
const PREPARED_MAX: usize = 3;

type Records = BTreeMap<u8, Vec<u8>>;

/// Which tables there are, and what is in them. A table keeps its number whatever it is called.
#[derive(Debug, Clone, Default, PartialEq)]
struct State {
    names: BTreeMap<&'static str, u64>,
    records: BTreeMap<u64, Records>,
}

impl State {
    fn shown(&self) -> BTreeMap<&'static str, &Records> {
        self.names.iter().map(|(name, number)| (*name, &self.records[number])).collect()
    }
}

/// What a transaction makes of a state: names and records that differ afterwards.
#[derive(Debug, Default)]
struct Changes {
    names: BTreeMap<&'static str, Option<u64>>,
    records: BTreeMap<(u64, u8), Option<Vec<u8>>>,
    made: BTreeSet<u64>,
    /// It holds tables as a whole.
    locks_tables: bool,
}

impl Changes {
    fn between(before: &State, after: &State) -> Changes {
        let mut changes = Changes::default();
        for name in NAMES {
            if before.names.get(name) != after.names.get(name) {
                changes.names.insert(name, after.names.get(name).copied());
            }
        }
        let none = Records::new();
        for (number, records) in &after.records {
            if !before.records.contains_key(number) {
                changes.made.insert(*number);
            }
            let old = before.records.get(number).unwrap_or(&none);
            for key in (0..KEY_COUNT).filter(|key| old.get(key) != records.get(key)) {
                changes.records.insert((*number, key), records.get(&key).cloned());
            }
        }
        changes
    }

    /// What it has locked is as it was, whatever others have done meanwhile.
    fn apply(&self, state: &mut State) {
        for (name, number) in &self.names {
            match number {
                Some(number) => drop(state.names.insert(name, *number)),
                None => drop(state.names.remove(name)),
            }
        }
        self.made.iter().for_each(|number| drop(state.records.insert(*number, Records::new())));
        for ((number, key), value) in &self.records {
            let records = state.records.get_mut(number).unwrap();
            match value {
                Some(value) => drop(records.insert(*key, value.clone())),
                None => drop(records.remove(key)),
            }
        }
    }
}

/// A part of a transaction.
#[derive(Debug, Clone)]
enum Act {
    /// A value of a length, beginning with a key: short ones, and some that are larger than a page.
    Put(usize, u8, u8, usize),
    Delete(usize, u8),
    Clear(usize, u8, u8),
    Create(usize),
    Drop(usize),
    Rename(usize, usize),
}

impl Act {
    fn locks_table(&self) -> bool {
        matches!(self, Act::Create(_) | Act::Drop(_) | Act::Rename(..))
    }
}

#[derive(Debug, Clone)]
enum Step {
    Commit(Vec<Act>),
    Prepare(Vec<Act>),
    Decide(usize, bool),
    Open,
    Close(usize),
    Compact,
    Reclaim,
    Checkpoint,
    /// The power fails, which takes the snapshots and leaves what is in doubt.
    Restart,
}

fn act() -> impl Strategy<Value = Act> {
    let (name, key) = (0..NAMES.len(), 0..KEY_COUNT);
    let length = prop_oneof![6 => 0..400usize, 1 => 5000..9000usize];
    prop_oneof![
        8 => (name.clone(), key.clone(), any::<u8>(), length).prop_map(|(t, k, byte, len)| Act::Put(t, k, byte, len)),
        3 => (name.clone(), key.clone()).prop_map(|(t, k)| Act::Delete(t, k)),
        2 => (name.clone(), key.clone(), key).prop_map(|(t, from, to)| Act::Clear(t, from, to)),
        1 => name.clone().prop_map(Act::Create),
        1 => name.clone().prop_map(Act::Drop),
        1 => (name.clone(), name).prop_map(|(from, to)| Act::Rename(from, to)),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => vec(act(), 1..5).prop_map(Step::Commit),
        4 => vec(act(), 1..4).prop_map(Step::Prepare),
        3 => (any::<usize>(), any::<bool>()).prop_map(|(which, commits)| Step::Decide(which, commits)),
        4 => Just(Step::Open),
        2 => any::<usize>().prop_map(Step::Close),
        2 => Just(Step::Compact),
        2 => Just(Step::Reclaim),
        1 => Just(Step::Checkpoint),
        1 => Just(Step::Restart),
    ]
}

/// A snapshot, what it has to show, and handles to its tables from when it was opened.
struct Look {
    expected: State,
    handles: Vec<(&'static str, BytesTable)>,
    txn: Transaction,
}

fn rows_of(range: Result<Range, Error>) -> Records {
    range.unwrap().map(|row| row.map(|(key, value)| (key[0], value)).unwrap()).collect()
}

impl Look {
    fn new(env: &Environment, committed: &State) -> Look {
        let txn = env.snapshot().unwrap();
        let handles = committed.names.keys().map(|name| (*name, txn.bytes(name).unwrap())).collect();
        Look { expected: committed.clone(), handles, txn }
    }

    fn check(&self) -> TestCaseResult {
        let shown = self.expected.shown();
        prop_assert_eq!(self.txn.table_names().unwrap(), shown.keys().copied().collect::<Vec<_>>());
        for (name, handle) in &self.handles {
            let (rows, again) =
                (rows_of(handle.range(..)), rows_of(self.txn.bytes(name).unwrap().range([5u8].as_slice()..)));
            prop_assert!(&rows == shown[name], "{name}: {:?} of {:?}", rows.keys(), shown[name].keys());
            prop_assert!(again.iter().eq(shown[name].range(5..)), "{name}, opened again: {:?}", again.keys());
        }
        Ok(())
    }
}

/// A transaction that has run, what it makes of the tables, and the records that it has written.
type Ran = (Transaction, State, BTreeSet<(u64, u8)>);

struct World {
    disk: SimDisk,
    env: Environment,
    committed: State,
    /// Global ids, and what was prepared under them.
    prepared: BTreeMap<String, Changes>,
    looks: Vec<Look>,
    next: u64,
}

impl World {
    fn new() -> World {
        let disk = SimDisk::new();
        let env = open(&disk).unwrap();
        let mut world =
            World { disk, env, committed: State::default(), prepared: BTreeMap::new(), looks: Vec::new(), next: 0 };
        for name in 0..2 {
            let fill = (0..KEY_COUNT).map(|key| Act::Put(name, key, 1, 300));
            let acts: Vec<Act> = std::iter::once(Act::Create(name)).chain(fill).collect();
            let (txn, after, _) = world.run(&acts).unwrap();
            txn.commit().unwrap();
            world.committed = after;
        }
        world
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Runs acts in a transaction.
    fn run(&mut self, acts: &[Act]) -> Result<Ran, Error> {
        // What is in doubt is not waited for, but whoever cleans up is.
        let lock_timeout = (!self.prepared.is_empty()).then_some(Duration::from_millis(1));
        let txn = self.env.begin_with(TransactionOptions { lock_timeout, ..TransactionOptions::default() })?;
        let (mut state, mut wrote) = (self.committed.clone(), BTreeSet::new());
        for act in acts {
            match *act {
                Act::Put(name, key, byte, len) => {
                    let Some(number) = state.names.get(NAMES[name]) else { continue };
                    txn.bytes(NAMES[name])?.put(&[key], &vec![byte; len])?;
                    state.records.get_mut(number).unwrap().insert(key, vec![byte; len]);
                    wrote.insert((*number, key));
                }
                Act::Delete(name, key) => {
                    let Some(number) = state.names.get(NAMES[name]) else { continue };
                    let was_there = txn.bytes(NAMES[name])?.delete(&[key])?;
                    assert_eq!(was_there, state.records.get_mut(number).unwrap().remove(&key).is_some());
                    wrote.insert((*number, key));
                }
                Act::Clear(name, from, to) => {
                    let Some(number) = state.names.get(NAMES[name]) else { continue };
                    txn.bytes(NAMES[name])?.delete_range(&[from][..]..&[to][..])?;
                    state.records.get_mut(number).unwrap().retain(|key, _| !(from..to).contains(key));
                }
                Act::Create(name) if !state.names.contains_key(NAMES[name]) => {
                    txn.create_table(NAMES[name])?;
                    let number = self.number();
                    state.names.insert(NAMES[name], number);
                    state.records.insert(number, Records::new());
                }
                Act::Drop(name) if state.names.contains_key(NAMES[name]) => {
                    txn.drop_table(NAMES[name])?;
                    state.names.remove(NAMES[name]);
                }
                Act::Rename(from, to) if !state.names.contains_key(NAMES[to]) => {
                    let Some(number) = state.names.get(NAMES[from]).copied() else { continue };
                    txn.rename_table(NAMES[from], NAMES[to])?;
                    state.names.remove(NAMES[from]);
                    state.names.insert(NAMES[to], number);
                }
                Act::Create(_) | Act::Drop(_) | Act::Rename(..) => {}
            }
        }
        Ok((txn, state, wrote))
    }

    /// The same; none if what others have prepared is in the way.
    fn try_run(&mut self, acts: &[Act]) -> Result<Option<(Transaction, State)>, TestCaseError> {
        match self.run(acts) {
            Ok((txn, state, wrote)) => {
                let held = self.prepared.values().flat_map(|changes| changes.records.keys());
                let over: Vec<_> = held.filter(|place| wrote.contains(place)).collect();
                prop_assert!(over.is_empty(), "written over what was prepared: {over:?}");
                Ok(Some((txn, state)))
            }
            Err(error) if error.is_retryable() && !self.prepared.is_empty() => Ok(None),
            Err(error) => Err(TestCaseError::fail(format!("{acts:?}: {error}"))),
        }
    }

    fn step(&mut self, step: &Step) -> TestCaseResult {
        match step {
            Step::Commit(acts) => {
                if let Some((txn, after)) = self.try_run(acts)? {
                    txn.commit().unwrap();
                    self.committed = after;
                }
            }
            Step::Prepare(acts) if self.prepared.len() < PREPARED_MAX => {
                if let Some((txn, after)) = self.try_run(acts)? {
                    let id = format!("two-phase {}", self.number());
                    drop(txn.prepare(id.as_bytes()).unwrap());
                    let mut changes = Changes::between(&self.committed, &after);
                    changes.locks_tables = acts.iter().any(Act::locks_table);
                    self.prepared.insert(id, changes);
                }
            }
            Step::Decide(which, commits) if !self.prepared.is_empty() => {
                let id = self.prepared.keys().nth(which % self.prepared.len()).cloned().unwrap();
                self.decide(&id, *commits);
            }
            Step::Open if self.looks.len() < SNAPSHOTS_MAX => self.looks.push(Look::new(&self.env, &self.committed)),
            Step::Close(which) if !self.looks.is_empty() => drop(self.looks.swap_remove(which % self.looks.len())),
            // It would wait for those.
            Step::Compact if !self.prepared.values().any(|changes| changes.locks_tables) => {
                let _ = self.env.compact().unwrap();
            }
            Step::Reclaim => self.env.reclaim().unwrap(),
            Step::Checkpoint => drop(self.env.checkpoint().unwrap()),
            Step::Restart => {
                self.looks.clear();
                self.disk.crash_now();
                self.disk = self.disk.after_crash(self.next);
                self.env = open(&self.disk).unwrap();
            }
            Step::Prepare(_) | Step::Decide(..) | Step::Open | Step::Close(_) | Step::Compact => {}
        }
        let ids = self.env.in_doubt().into_iter().map(|found| String::from_utf8(found.global_id).unwrap());
        prop_assert_eq!(ids.collect::<BTreeSet<_>>(), self.prepared.keys().cloned().collect::<BTreeSet<_>>());
        self.looks.iter().try_for_each(Look::check)?;
        Look::new(&self.env, &self.committed).check()
    }

    fn decide(&mut self, id: &str, commits: bool) {
        let changes = self.prepared.remove(id).unwrap();
        if commits {
            self.env.commit_in_doubt(id.as_bytes()).unwrap();
            changes.apply(&mut self.committed);
        } else {
            self.env.abort_in_doubt(id.as_bytes()).unwrap();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A snapshot that was opened before the commit of a prepared transaction does not show its work, and one that was
    /// opened after does. A snapshot shows what was committed when it was opened, wherever that has gone since.
    #[test]
    fn snapshots_show_what_was_committed_when_they_were_opened(steps in vec(step(), 1..25)) {
        let mut world = World::new();
        for (number, step) in steps.iter().enumerate() {
            world.step(step).map_err(|why| TestCaseError::fail(format!("step {number}, {step:?}: {why}")))?;
        }
        let ids: Vec<String> = world.prepared.keys().cloned().collect();
        for (number, id) in ids.iter().enumerate() {
            world.decide(id, number % 2 == 0);
        }
        world.looks.iter().try_for_each(Look::check)?;
        Look::new(&world.env, &world.committed).check()?;
        world.looks.clear();
        world.env.reclaim().unwrap();
        assert_sound(&world.env, "at the end");
        prop_assert_eq!(world.env.verify().unwrap().to_free_page_count, 0);
    }
}
