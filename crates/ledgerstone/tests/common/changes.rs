//! What tests of the change feed share: reading it all, and tables made of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use ledgerstone::{
    Change, ChangeFeed, ChangeValue, CommittedChanges, Environment, FeedItem, IndexDef, LogValues, Lsn, TableChange,
    TableEvent, TableTypes,
};
use ledgerstone_disk::SimDisk;
use ledgerstone_dump::{Dump, DumpItem, DumpOptions, DumpReader};

use super::{key, tiny};

/// Everything to the end, the parts of each transaction together.
pub fn all(feed: &mut ChangeFeed) -> Vec<CommittedChanges> {
    let mut commits: Vec<CommittedChanges> = Vec::new();
    while let Some(part) = feed.next().unwrap() {
        match commits.last_mut().filter(|commit| !commit.is_last) {
            Some(commit) => {
                assert_eq!((commit.lsn, commit.xid), (part.lsn, part.xid));
                assert!(part.position >= commit.position && (part.is_last || part.position == commit.position));
                (commit.is_last, commit.position) = (part.is_last, part.position);
                commit.items.extend(part.items);
            }
            None => commits.push(part),
        }
    }
    assert!(commits.last().is_none_or(|commit| commit.is_last));
    commits
}

/// Tables as the feed tells them.
#[derive(Default, Clone, PartialEq, Debug)]
pub struct Replica {
    pub tables: BTreeMap<String, BTreeMap<Vec<u8>, Vec<u8>>>,
    /// By their ids, once the feed has named them.
    pub ids: BTreeMap<u64, String>,
    pub indexes: BTreeMap<(String, String), IndexDef>,
    /// Of the tables whose types are named.
    pub types: BTreeMap<String, TableTypes>,
}

impl Replica {
    /// Applies changes, and fails where what was before is not what the replica has.
    pub fn apply(&mut self, commits: &[CommittedChanges]) {
        for item in commits.iter().flat_map(|commit| &commit.items) {
            match item {
                FeedItem::Record(change) => self.change(change),
                FeedItem::Table(change) => self.change_table(change),
                other => panic!("{other:?}"),
            }
        }
    }

    pub fn change(&mut self, change: &Change) {
        self.check_id(&change.table, change.table_id.0);
        let records = self.tables.get_mut(&*change.table).unwrap_or_else(|| panic!("no table: {change:?}"));
        let old = records.get(&change.key).cloned();
        match &change.old {
            ChangeValue::Absent => assert_eq!(old, None, "{change:?}"),
            ChangeValue::Whole(bytes) => assert_eq!(old.as_ref(), Some(bytes), "{change:?}"),
            ChangeValue::Large(_) => {}
            other => panic!("{other:?}"),
        }
        match &change.new {
            ChangeValue::Absent => drop(records.remove(&change.key)),
            ChangeValue::Whole(bytes) => drop(records.insert(change.key.clone(), bytes.clone())),
            ChangeValue::Large(bytes) => drop(records.insert(change.key.clone(), vec![7; *bytes as usize])),
            other => panic!("{other:?}"),
        }
    }

    pub fn change_table(&mut self, change: &TableChange) {
        let (name, id) = (change.table.to_string(), change.table_id.0);
        if !matches!(change.event, TableEvent::Created { .. }) {
            self.check_id(&name, id);
        }
        match &change.event {
            TableEvent::Created { types } => {
                self.set_types(&name, types);
                assert!(self.ids.values().all(|known| *known != name), "{change:?}");
                assert_eq!(self.ids.insert(id, name.clone()), None, "an id was used twice");
                assert_eq!(self.tables.insert(name, BTreeMap::new()), None, "{change:?}");
            }
            TableEvent::Dropped => {
                self.ids.remove(&id);
                self.tables.remove(&name).unwrap();
                self.types.remove(&name);
                self.indexes.retain(|(table, _), _| *table != name);
            }
            TableEvent::Renamed { to } => {
                self.ids.insert(id, to.clone());
                let records = self.tables.remove(&name).unwrap();
                assert_eq!(self.tables.insert(to.clone(), records), None, "{change:?}");
                self.types.remove(&name).into_iter().for_each(|types| self.set_types(to, &types));
                let indexes = std::mem::take(&mut self.indexes).into_iter();
                let rename = |table: String| if table == name { to.clone() } else { table };
                self.indexes = indexes.map(|((table, index), def)| ((rename(table), index), def)).collect();
            }
            TableEvent::IndexCreated { index } => {
                let old = self.indexes.insert((name, index.name().to_string()), index.clone());
                assert_eq!(old, None, "{change:?}");
            }
            TableEvent::IndexDropped { index } => drop(self.indexes.remove(&(name, index.clone())).unwrap()),
            TableEvent::Typed { types } => {
                assert_ne!(self.types.get(&name), Some(types), "{change:?}");
                self.set_types(&name, types);
            }
            other => panic!("{other:?}"),
        }
    }

    fn set_types(&mut self, table: &str, types: &TableTypes) {
        if !types.is_empty() {
            self.types.insert(table.to_string(), types.clone());
        }
    }

    /// The name says the same as the id.
    pub fn check_id(&mut self, name: &str, id: u64) {
        let known = self.ids.entry(id).or_insert_with(|| name.to_string());
        assert_eq!(known, name, "the table with the id {id}");
    }

    /// The environment as a dump at a snapshot shows it, and the snapshot.
    pub fn of_dump(env: &Environment) -> (Replica, Lsn) {
        let mut text = Vec::new();
        let done = env.dump(&mut text, &DumpOptions::default()).unwrap();
        let names = |bytes: &[u8]| -> [String; 2] {
            let both = bytes.split(|byte| *byte == 0xff).map(|name| String::from_utf8(name.to_vec()).unwrap());
            both.collect::<Vec<_>>().try_into().unwrap()
        };
        let (mut replica, mut reader, mut table) = (Replica::default(), DumpReader::new(&text[..]), String::new());
        while let Some(item) = reader.next().unwrap() {
            match item {
                DumpItem::Database(header) => {
                    table = header.database.unwrap();
                    if !["ledgerstone.indexes", "ledgerstone.types"].contains(&&*table) {
                        replica.tables.insert(table.clone(), BTreeMap::new());
                    }
                }
                DumpItem::Record { key, value } if table == "ledgerstone.types" => {
                    let [key_type, value_type] = names(&value).map(|name| (!name.is_empty()).then_some(name));
                    let types = TableTypes { key: key_type, value: value_type };
                    replica.types.insert(String::from_utf8(key).unwrap(), types);
                }
                DumpItem::Record { key, value } if table == "ledgerstone.indexes" => {
                    let [of, index] = names(&key);
                    let def = IndexDef::new(&index, std::str::from_utf8(&value).unwrap().parse().unwrap());
                    replica.indexes.insert((of, index), def);
                }
                DumpItem::Record { key, value } => drop(replica.tables.get_mut(&table).unwrap().insert(key, value)),
                DumpItem::End => {}
            }
        }
        (replica, Lsn(done.snapshot_lsn.unwrap()))
    }

    /// Fails unless this is what is in the environment now.
    pub fn check(&self, env: &Environment, when: &str) {
        let (there, _) = Replica::of_dump(env);
        let names = |replica: &Replica| replica.tables.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(self), names(&there), "{when}");
        for (name, records) in &there.tables {
            let differs = |key: &&Vec<u8>| records.get(*key) != self.tables[name].get(*key);
            let keys: Vec<_> = records.keys().chain(self.tables[name].keys()).filter(differs).collect();
            assert_eq!(keys, Vec::<&Vec<u8>>::new(), "{when}: records of {name}");
        }
        assert_eq!(self.indexes, there.indexes, "{when}");
        assert_eq!(self.types, there.types, "{when}");
    }
}

pub fn whole(disk: &SimDisk) -> Environment {
    tiny().log_values(LogValues::Whole).open_on(Arc::new(disk.clone())).unwrap()
}

pub fn put(env: &Environment, table: &str, n: u64, value: &[u8]) {
    env.transact(|txn| txn.bytes_or_create(table)?.put(&key(n), value)).unwrap();
}

/// One more record in a table of small ones.
pub fn put_one(env: &Environment) {
    env.transact(|txn| {
        let small = txn.bytes_or_create("small")?;
        let count = small.count()?;
        small.put(&key(count), b"one")
    })
    .unwrap();
}
