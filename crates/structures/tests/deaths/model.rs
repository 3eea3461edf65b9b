//! What the tree should have.

use std::collections::BTreeMap;

/// A value, or none: the key was deleted.
pub type Value = Option<Vec<u8>>;

/// What a transaction has written, by key.
pub type Writes = BTreeMap<Vec<u8>, Value>;

/// The records that are committed, and what processes had under way when they were last seen.
#[derive(Default)]
pub struct Model {
    records: BTreeMap<Vec<u8>, Vec<u8>>,
    /// By process: not known to be committed.
    under_way: BTreeMap<u32, Writes>,
    /// What was added to the pair, and by whom it may have been added once more.
    pair: u64,
    pair_under_way: BTreeMap<u32, u64>,
    /// Transactions that are known to be prepared, by process: whether the coordinator commits.
    pub decisions: BTreeMap<u32, bool>,
}

/// All keys of a process begin with its number.
pub fn key(process: u32, no: u32) -> Vec<u8> {
    format!("{process}/{no:04}").into_bytes()
}

/// How many transactions of a process have committed.
pub fn own_count(process: u32) -> Vec<u8> {
    format!("count/{process}").into_bytes()
}

/// How many transactions of all have.
pub const ALL_COUNT: &[u8] = b"count/all";

pub fn number(value: Option<&[u8]>) -> u64 {
    value.map_or(0, |value| u64::from_le_bytes(value.try_into().expect("a number")))
}

impl Model {
    /// A process is about to commit this.
    pub fn may_commit(&mut self, process: u32, writes: Writes) {
        self.under_way.insert(process, writes);
    }

    /// The commit has returned.
    pub fn committed(&mut self, process: u32) {
        let writes = self.under_way.remove(&process).expect("it was announced");
        apply(&mut self.records, &writes);
    }

    /// It was rolled back.
    pub fn rolled_back(&mut self, process: u32) {
        self.under_way.remove(&process);
    }

    /// A process is about to add to the pair.
    pub fn may_add(&mut self, process: u32, delta: u64) {
        self.pair_under_way.insert(process, delta);
    }

    /// It has added.
    pub fn added(&mut self, process: u32) {
        self.pair += self.pair_under_way.remove(&process).expect("it was announced");
    }

    /// Asserts that the pair has all that was added, and all or nothing of what the dead were adding.
    pub fn check_pair(&self, found: u64) {
        let sums = self.pair_under_way.values().fold(vec![self.pair], |sums, delta| {
            let with: Vec<u64> = sums.iter().map(|sum| sum + delta).collect();
            [sums, with].concat()
        });
        assert!(sums.contains(&found), "{found} in the pair, and it should be one of {sums:?}");
    }

    /// Asserts that the tree has what was committed, and all or nothing of each transaction of the dead.
    pub fn check(&self, found: &BTreeMap<Vec<u8>, Vec<u8>>) {
        let mut records = self.records.clone();
        for (process, writes) in &self.under_way {
            let mut with = records.clone();
            apply(&mut with, writes);
            // Its own count tells: each transaction raises it.
            let is_there = found.get(&own_count(*process)) == with.get(&own_count(*process));
            assert!(is_there || self.decisions.get(process) != Some(&true), "process {process} was to be committed");
            if is_there {
                records = with;
            }
        }
        let counts = |records: &BTreeMap<Vec<u8>, Vec<u8>>| -> u64 {
            let own = records.iter().filter(|(key, _)| key.starts_with(b"count/") && key[..] != *ALL_COUNT);
            own.map(|(_, value)| number(Some(value))).sum()
        };
        assert_eq!(number(found.get(ALL_COUNT).map(|value| &value[..])), counts(found), "the count of all");
        records.remove(ALL_COUNT); // Raised by all at once: the model does not know by whom first.
        let mut found = found.clone();
        found.remove(ALL_COUNT);
        let differ =
            |(key, value): &(&Vec<u8>, &Vec<u8>), other: &BTreeMap<Vec<u8>, Vec<u8>>| other.get(*key) != Some(value);
        let there: Vec<String> = found.iter().filter(|one| differ(one, &records)).map(show).collect();
        let missing: Vec<String> = records.iter().filter(|one| differ(one, &found)).map(show).collect();
        assert_eq!(there, missing, "what is there, and what should be");
    }
}

fn apply(records: &mut BTreeMap<Vec<u8>, Vec<u8>>, writes: &Writes) {
    for (key, value) in writes {
        match value {
            Some(value) => records.insert(key.clone(), value.clone()),
            None => records.remove(key),
        };
    }
}

/// A key, with the length and first bytes of its value.
fn show((key, value): (&Vec<u8>, &Vec<u8>)) -> String {
    format!("{} = {:?}.. of {}", String::from_utf8_lossy(key), value.get(..8.min(value.len())), value.len())
}
