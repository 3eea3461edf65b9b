//! What the tables should have.

use std::collections::BTreeMap;

use crate::common::{Records, State};

/// What a transaction did to a table.
#[derive(Debug, Clone)]
pub enum Change {
    Create(String),
    Drop(String),
    Rename(String, String),
    Put(String, Vec<u8>, Vec<u8>),
    Delete(String, Vec<u8>),
}

/// What is committed, and what threads had under way when they were last seen.
#[derive(Default, Clone)]
pub struct Model {
    state: State,
    /// By thread: not known to be committed.
    under_way: BTreeMap<u32, Vec<Change>>,
    /// Transactions that were prepared, by thread: whether the coordinator commits.
    decisions: BTreeMap<u32, bool>,
}

/// The table that all threads change.
pub const SHARED: &str = "shared";
/// How many transactions of all have committed.
pub const ALL_COUNT: &[u8] = b"all";

/// How many transactions of a thread have committed.
pub fn own_count(thread: u32) -> Vec<u8> {
    format!("count/{thread}").into_bytes()
}

/// A thread's own table.
pub fn own(thread: u32) -> String {
    format!("own/{thread}")
}

pub fn number(value: Option<&[u8]>) -> u64 {
    value.map_or(0, |value| u64::from_le_bytes(value.try_into().expect("a number")))
}

impl Model {
    /// A thread is about to commit this.
    pub fn may_commit(&mut self, thread: u32, changes: Vec<Change>) {
        self.under_way.insert(thread, changes);
    }

    /// The commit has returned.
    pub fn committed(&mut self, thread: u32) {
        let changes = self.under_way.remove(&thread).expect("it was announced");
        apply(&mut self.state, &changes);
    }

    /// It was rolled back.
    pub fn rolled_back(&mut self, thread: u32) {
        self.under_way.remove(&thread);
    }

    /// Whether some transaction is not known to be committed.
    pub fn has_some_under_way(&self) -> bool {
        !self.under_way.is_empty()
    }

    /// A thread is about to prepare this, and then the coordinator commits it, or not.
    pub fn may_prepare(&mut self, thread: u32, changes: Vec<Change>, commits: bool) {
        self.may_commit(thread, changes);
        self.decisions.insert(thread, commits);
    }

    /// What the coordinator decides on a transaction, by its global id.
    pub fn decision(&self, id: &[u8]) -> bool {
        *self.decisions.get(&thread_of(id)).expect("the coordinator knows it")
    }

    /// The decision has been made, for a thread that has died.
    pub fn decided(&mut self, id: &[u8]) {
        match self.decision(id) {
            true => self.committed(thread_of(id)),
            false => self.rolled_back(thread_of(id)),
        }
    }

    /// Asserts that what was found is what was committed, and all or nothing of each transaction that was under way.
    pub fn check(&self, found: &State) {
        let mut state = self.state.clone();
        for (thread, changes) in &self.under_way {
            let mut with = state.clone();
            apply(&mut with, changes);
            // Its own count tells: each transaction raises it.
            let count = |state: &State| state.get(SHARED).and_then(|shared| shared.get(&own_count(*thread)).cloned());
            if count(found) == count(&with) {
                state = with;
            }
        }
        let mut found = found.clone();
        let shared = found.get_mut(SHARED).expect("it is there");
        let all = shared.remove(ALL_COUNT); // Raised by all at once: the model does not know by whom first.
        let sum: u64 = shared.values().map(|count| number(Some(count))).sum();
        assert_eq!(number(all.as_deref()), sum, "the count of all");
        state.get_mut(SHARED).expect("it is there").remove(ALL_COUNT);
        let names = |state: &State| state.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&found), names(&state), "tables that are there, and that should be");
        for (name, records) in &state {
            let there = &found[name];
            let differ = |(key, value): &(&Vec<u8>, &Vec<u8>), other: &Records| other.get(*key) != Some(value);
            let surplus: Vec<String> = there.iter().filter(|one| differ(one, records)).map(show).collect();
            let missing: Vec<String> = records.iter().filter(|one| differ(one, there)).map(show).collect();
            assert_eq!(surplus, missing, "table {name}: what is there, and what should be");
        }
    }
}

/// The global id of what a thread prepares.
pub fn global_id(thread: u32) -> Vec<u8> {
    thread.to_le_bytes().to_vec()
}

fn thread_of(id: &[u8]) -> u32 {
    u32::from_le_bytes(id.try_into().expect("it is of this test"))
}

fn apply(state: &mut State, changes: &[Change]) {
    for change in changes {
        match change {
            Change::Create(table) => drop(state.insert(table.clone(), Records::new())),
            Change::Drop(table) => drop(state.remove(table)),
            Change::Rename(from, to) => {
                let records = state.remove(from).expect("it was made");
                state.insert(to.clone(), records);
            }
            Change::Put(table, key, value) => {
                state.get_mut(table).expect("it was made").insert(key.clone(), value.clone());
            }
            Change::Delete(table, key) => drop(state.get_mut(table).expect("it was made").remove(key)),
        }
    }
}

/// A key, with the length and first bytes of its value.
fn show((key, value): (&Vec<u8>, &Vec<u8>)) -> String {
    format!("{} = {:?}.. of {}", String::from_utf8_lossy(key), value.get(..8.min(value.len())), value.len())
}
