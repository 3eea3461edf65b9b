//! The engine as it should be: a map of maps, and what each step does to it.

use ledgerstone_page::Hex;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

use super::plan::JOURNAL;
use super::tally::Kind;

/// Bytes shared between records, states and reports.
pub type Bytes = Arc<[u8]>;
/// One table.
pub type Records = BTreeMap<Bytes, Bytes>;

/// All tables; a counter list is here as a table, too, of keys and numbers in eight bytes each.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct State {
    /// By name.
    pub tables: BTreeMap<String, Records>,
    /// Tables in which no two values may begin with the same byte: they have a unique index.
    pub unique: BTreeSet<String>,
    /// What tables were called at the beginning of [`effects`]; those that were made since are missing.
    origins: BTreeMap<String, String>,
}

/// A value before and after; none where there was, or is, none.
pub type Sides = (Option<Bytes>, Option<Bytes>);

/// What a transaction has done to the records of tables.
#[derive(Debug)]
pub struct Effects {
    /// By table, as it is called afterwards, and key: the value before and after, where they differ.
    pub changed: BTreeMap<(String, Bytes), Sides>,
    /// All tables afterwards.
    pub after: State,
    /// The names of the tables before, without counter lists.
    pub before: BTreeSet<String>,
}

/// Does deeds to a state, and says what has changed in it.
pub fn effects(state: &mut State, deeds: &[(Deed, Seen)]) -> Effects {
    let before = state.clone();
    state.origins = state.tables.keys().map(|name| (name.clone(), name.clone())).collect();
    let mut alone = Alone::new(state);
    for (deed, seen) in deeds {
        let _ = alone.apply_answered(deed, seen);
    }
    let mut changed = BTreeMap::new();
    let origins = std::mem::take(&mut state.origins);
    for (name, after) in state.tables.iter().filter(|(name, _)| Kind::of(name).is_none()) {
        let none = Records::new();
        let before = origins.get(name).and_then(|origin| before.tables.get(origin)).unwrap_or(&none);
        for key in before.keys().chain(after.keys()) {
            let values = (before.get(key).cloned(), after.get(key).cloned());
            if values.0 != values.1 {
                changed.insert((name.clone(), key.clone()), values);
            }
        }
    }
    let before = before.tables.into_keys().filter(|name| Kind::of(name).is_none()).collect();
    Effects { changed, after: state.clone(), before }
}

/// Something that a transaction has done, with all it takes to do it again.
#[derive(Debug, Clone)]
#[allow(missing_docs)] // As `plan::Step`.
pub enum Deed {
    Get {
        table: String,
        key: Bytes,
        for_update: bool,
    },
    Put {
        table: String,
        key: Bytes,
        value: Bytes,
    },
    Insert {
        table: String,
        key: Bytes,
        value: Bytes,
    },
    Delete {
        table: String,
        key: Bytes,
    },
    /// Changes the value by [`patched`]; `None` leaves it.
    Modify {
        table: String,
        key: Bytes,
        patch: Option<Patch>,
    },
    Scan {
        table: String,
        from: Bytes,
        to: Bytes,
        backward: bool,
        limit: usize,
    },
    /// Finds records by the first bytes of their values, in the order of those, then of their keys.
    Lookup {
        table: String,
        from: u8,
        to: u8,
        backward: bool,
    },
    /// Drops the table's index and makes it anew, both or nothing.
    Reindex {
        table: String,
        is_unique: bool,
    },
    /// Writes a part of a value, over what is there, with zeros in a gap; makes the value if there is none.
    WritePart {
        table: String,
        key: Bytes,
        at: usize,
        part: Bytes,
    },
    /// Cuts a value off, or adds zeros; makes it if there is none.
    SetLen {
        table: String,
        key: Bytes,
        len: usize,
    },
    /// Reads a part of a value.
    ReadPart {
        table: String,
        key: Bytes,
        at: usize,
        len: usize,
    },
    DeleteRange {
        table: String,
        from: Bytes,
        to: Bytes,
    },
    /// Records in order; refused if the table has one at or above the first.
    Load {
        table: String,
        rows: Vec<(Bytes, Bytes)>,
    },
    Rename {
        table: String,
        to: String,
    },
    Create {
        table: String,
        /// Its index, if it gets one, is a unique one.
        is_unique: bool,
    },
    Drop {
        table: String,
    },
    List,
    /// Makes an empty counter list: a structure of a user's ([`ledgerstone_examples`]).
    CreateList {
        list: String,
    },
    DropList {
        list: String,
    },
    /// Adds to a counter, beside others who do.
    Count {
        list: String,
        key: u64,
        delta: i64,
    },
    /// Reads a counter.
    Total {
        list: String,
        key: u64,
    },
    /// Reads all counters of a list.
    Tally {
        list: String,
    },
    /// Writes the transaction's mark; makes the journal if it is missing.
    Mark {
        key: Bytes,
    },
    /// Sets a savepoint, or begins a nested transaction, on top of the stack of both.
    Savepoint,
    /// Goes back to the savepoint at this place of the stack, and forgets those above it.
    RollbackTo(usize),
    /// Forgets the savepoint at this place of the stack and those above it.
    Release(usize),
}

impl Deed {
    /// The record whose lock, exclusive to the transaction's end at every level, stands behind the answer.
    pub fn locks(&self) -> Option<(&str, &Bytes)> {
        match self {
            Deed::Get { table, key, for_update: true }
            | Deed::Put { table, key, .. }
            | Deed::Insert { table, key, .. }
            | Deed::Delete { table, key }
            | Deed::Modify { table, key, .. }
            | Deed::WritePart { table, key, .. }
            | Deed::SetLen { table, key, .. } => Some((table, key)),
            _ => None,
        }
    }
}

impl Deed {
    /// Whether it changes what a table is, or which there are. That is serializable at every level: names and tables
    /// are locked to the end of the transaction, and the answer is of what is there now, not of a snapshot.
    pub fn changes_tables(&self) -> bool {
        matches!(
            self,
            Deed::Create { .. } | Deed::Drop { .. } | Deed::Rename { .. } | Deed::Load { .. } | Deed::Reindex { .. }
        )
    }
}

/// How [`Deed::Modify`] changes a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patch {
    /// Eight bytes of the number, which no other patch or value has, go in at this place.
    pub number: u64,
    /// The place, modulo the length.
    pub at: usize,
    /// The length changes by this much.
    pub grow: i32,
}

/// What a transaction saw of a deed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    /// What was read.
    Value(Option<Bytes>),
    /// Whether there was, or is, something.
    Flag(bool),
    /// What was scanned.
    Rows(Vec<(Bytes, Bytes)>),
    /// How many there were.
    Count(u64),
    /// Names of tables.
    Names(Vec<String>),
    /// It was done, with nothing to see.
    Done,
    /// The table does not exist.
    NoTable,
    /// There is such a table.
    TableExists,
    /// Another record has the index key.
    Duplicate,
}

/// The value of a number and a length: begins with the number, if it is long enough.
pub fn value_bytes(number: u64, length: usize) -> Vec<u8> {
    let mut value = Vec::with_capacity(length + 8);
    let mut word = number;
    while value.len() < length {
        value.extend_from_slice(&word.to_le_bytes());
        // Some values compress well and some do not.
        word = if number.is_multiple_of(2) { word.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17) } else { number };
    }
    value.truncate(length);
    value
}

/// What [`Deed::Modify`] makes of a value.
pub fn patched(old: &[u8], patch: Patch) -> Vec<u8> {
    let mut new = old.to_vec();
    let length = (new.len() as i64 + i64::from(patch.grow)).max(0) as usize;
    new.resize(length, (patch.number % 251) as u8);
    if !new.is_empty() {
        let at = patch.at % new.len();
        for (byte, value) in new[at..].iter_mut().zip(patch.number.to_le_bytes()) {
            *byte = value;
        }
    }
    new
}

/// A counter as the state has it.
pub fn counter_bytes(counter: i64) -> Bytes {
    Arc::from(counter.to_le_bytes())
}

fn counter_of(bytes: &[u8]) -> i64 {
    bytes.try_into().map_or(0, i64::from_le_bytes)
}

/// A part of a value was written, and this is what the value becomes unless its index key is taken. If the key is
/// taken, the value is what opening it has made: an empty one if there was none.
fn edit(
    records: &mut Records,
    key: &Bytes,
    value: Vec<u8>,
    is_taken: impl Fn(&Records, &Bytes, &[u8]) -> bool,
) -> Seen {
    if is_taken(records, key, &value) {
        records.entry(key.clone()).or_insert_with(|| Arc::from(&b""[..]));
        return Seen::Duplicate;
    }
    records.insert(key.clone(), Arc::from(value));
    Seen::Done
}

/// A transaction that is alone with a state, and its savepoints.
#[derive(Debug)]
pub struct Alone<'s> {
    state: &'s mut State,
    savepoints: Vec<State>,
}

impl<'s> Alone<'s> {
    /// One that begins.
    pub fn new(state: &'s mut State) -> Alone<'s> {
        Alone { state, savepoints: Vec::new() }
    }

    /// As [`State::apply`], and for savepoints too.
    pub fn apply(&mut self, deed: &Deed) -> Seen {
        match *deed {
            Deed::Savepoint => self.savepoints.push(self.state.clone()),
            Deed::RollbackTo(at) => {
                self.savepoints.truncate(at + 1);
                self.state.clone_from(&self.savepoints[at]);
            }
            Deed::Release(at) => self.savepoints.truncate(at),
            _ => return self.state.apply(deed),
        }
        Seen::Done
    }

    /// As [`State::apply_answered`], and for savepoints too.
    pub fn apply_answered(&mut self, deed: &Deed, seen: &Seen) -> Seen {
        match deed {
            Deed::Savepoint | Deed::RollbackTo(_) | Deed::Release(_) => self.apply(deed),
            _ => self.state.apply_answered(deed, seen),
        }
    }
}

impl State {
    /// As [`State::apply`], for a transaction that was not alone. An operation may have been refused because a table
    /// was missing or there already, or because another transaction had the index key. It has done nothing then,
    /// whatever has become of the table and of the other transaction.
    pub fn apply_answered(&mut self, deed: &Deed, seen: &Seen) -> Seen {
        match (deed, seen) {
            (_, Seen::NoTable) => Seen::NoTable,
            (Deed::Create { .. } | Deed::Rename { .. }, Seen::TableExists) => Seen::TableExists,
            (Deed::Rename { table, to }, Seen::Done) if table == to => Seen::Done,
            (Deed::Load { table, rows }, Seen::Flag(is_loaded)) => {
                // By the records that are there, whatever a snapshot shows of them.
                match self.tables.get_mut(table) {
                    None => return Seen::NoTable,
                    Some(records) if *is_loaded => records.extend(rows.iter().cloned()),
                    Some(_) => {}
                }
                Seen::Flag(*is_loaded)
            }
            (Deed::WritePart { table, key, .. } | Deed::SetLen { table, key, .. }, Seen::Duplicate) => {
                // See `edit`.
                let records = self.tables.get_mut(table);
                records.map(|records| records.entry(key.clone()).or_insert_with(|| Arc::from(&b""[..])));
                Seen::Duplicate
            }
            (Deed::Put { .. } | Deed::Insert { .. } | Deed::Modify { .. } | Deed::Load { .. }, Seen::Duplicate) => {
                Seen::Duplicate
            }
            (
                Deed::Put { .. }
                | Deed::Insert { .. }
                | Deed::Modify { .. }
                | Deed::WritePart { .. }
                | Deed::SetLen { .. },
                _,
            ) => {
                let unique = std::mem::take(&mut self.unique);
                let seen = self.apply(deed);
                self.unique = unique;
                seen
            }
            _ => self.apply(deed),
        }
    }

    /// What a transaction that is alone with this state sees of a deed; changes the state as the deed does.
    pub fn apply(&mut self, deed: &Deed) -> Seen {
        let table = match deed {
            Deed::Create { table, .. } | Deed::CreateList { list: table } => {
                if self.tables.contains_key(table) {
                    return Seen::TableExists;
                }
                let mut records = Records::new();
                if let Some(Kind::Hits) = Kind::of(table) {
                    records.extend(
                        (0..Kind::Hits.key_count()).map(|key| (Arc::from(key.to_be_bytes()), counter_bytes(0))),
                    );
                }
                self.tables.insert(table.clone(), records);
                self.origins.remove(table);
                if let Deed::Create { is_unique: true, .. } = deed {
                    self.unique.insert(table.clone());
                }
                return Seen::Done;
            }
            Deed::Drop { table } | Deed::DropList { list: table } => {
                self.origins.remove(table);
                self.unique.remove(table);
                return if self.tables.remove(table).is_some() { Seen::Done } else { Seen::NoTable };
            }
            Deed::Rename { table, to } => {
                if !self.tables.contains_key(table) {
                    return Seen::NoTable;
                }
                if table == to {
                    return Seen::Done;
                }
                if self.tables.contains_key(to) {
                    return Seen::TableExists;
                }
                let records = self.tables.remove(table).unwrap_or_default();
                self.tables.insert(to.clone(), records);
                if self.unique.remove(table) {
                    self.unique.insert(to.clone());
                }
                if let Some(origin) = self.origins.remove(table) {
                    self.origins.insert(to.clone(), origin);
                }
                return Seen::Done;
            }
            Deed::List => {
                return Seen::Names(self.tables.keys().filter(|name| Kind::of(name).is_none()).cloned().collect());
            }
            Deed::Mark { key } => {
                self.tables.entry(JOURNAL.to_owned()).or_default().insert(key.clone(), Arc::from(&b""[..]));
                return Seen::Done;
            }
            Deed::Get { table, .. }
            | Deed::Put { table, .. }
            | Deed::Insert { table, .. }
            | Deed::Delete { table, .. }
            | Deed::Modify { table, .. }
            | Deed::WritePart { table, .. }
            | Deed::SetLen { table, .. }
            | Deed::ReadPart { table, .. }
            | Deed::DeleteRange { table, .. }
            | Deed::Load { table, .. }
            | Deed::Lookup { table, .. }
            | Deed::Reindex { table, .. }
            | Deed::Scan { table, .. }
            | Deed::Count { list: table, .. }
            | Deed::Total { list: table, .. }
            | Deed::Tally { list: table } => table,
            Deed::Savepoint | Deed::RollbackTo(_) | Deed::Release(_) => {
                unreachable!("savepoints are the business of `Alone`")
            }
        };
        let is_unique = self.unique.contains(table);
        let Some(records) = self.tables.get_mut(table) else { return Seen::NoTable };
        let is_taken = |records: &Records, key: &Bytes, value: &[u8]| {
            let has = |(other, record): (&Bytes, &Bytes)| other != key && record.first() == value.first();
            is_unique && !value.is_empty() && records.iter().any(has)
        };
        match deed {
            Deed::Get { key, .. } => Seen::Value(records.get(key).cloned()),
            Deed::Put { key, value, .. } if is_taken(records, key, value) => Seen::Duplicate,
            Deed::Put { key, value, .. } => {
                records.insert(key.clone(), value.clone());
                Seen::Done
            }
            Deed::Insert { key, value, .. } => {
                let is_new = !records.contains_key(key);
                if is_new && is_taken(records, key, value) {
                    return Seen::Duplicate;
                }
                if is_new {
                    records.insert(key.clone(), value.clone());
                }
                Seen::Flag(is_new)
            }
            Deed::Delete { key, .. } => Seen::Flag(records.remove(key).is_some()),
            Deed::WritePart { key, at, part, .. } => {
                let mut value = records.get(key).map_or_else(Vec::new, |value| value.to_vec());
                if !part.is_empty() {
                    value.resize(value.len().max(at + part.len()), 0);
                    value[*at..at + part.len()].copy_from_slice(part);
                }
                edit(records, key, value, is_taken)
            }
            Deed::SetLen { key, len, .. } => {
                let mut value = records.get(key).map_or_else(Vec::new, |value| value.to_vec());
                value.resize(*len, 0);
                edit(records, key, value, is_taken)
            }
            Deed::ReadPart { key, at, len, .. } => Seen::Value(records.get(key).map(|value| {
                let from = (*at).min(value.len());
                Arc::from(&value[from..(from + len).min(value.len())])
            })),
            Deed::DeleteRange { from, to, .. } => {
                let before = records.len();
                records.retain(|key, _| key < from || key >= to);
                Seen::Count((before - records.len()) as u64)
            }
            Deed::Load { rows, .. } => {
                let is_above = match (rows.first(), records.last_key_value()) {
                    (Some((first, _)), Some((last, _))) => first > last,
                    _ => true,
                };
                if !is_above {
                    return Seen::Flag(false);
                }
                // All or nothing.
                let before = records.clone();
                for (key, value) in rows {
                    if is_taken(records, key, value) {
                        *records = before;
                        return Seen::Duplicate;
                    }
                    records.insert(key.clone(), value.clone());
                }
                Seen::Flag(true)
            }
            Deed::Modify { key, patch, .. } => {
                let Some(value) = records.get(key) else { return Seen::Flag(false) };
                if let Some(patch) = patch {
                    let new = patched(value, *patch);
                    if is_taken(records, key, &new) {
                        return Seen::Duplicate;
                    }
                    records.insert(key.clone(), Arc::from(new));
                }
                Seen::Flag(true)
            }
            Deed::Reindex { is_unique: becomes_unique, .. } => {
                let firsts: Vec<u8> = records.values().filter_map(|value| value.first().copied()).collect();
                if *becomes_unique && firsts.iter().collect::<BTreeSet<_>>().len() < firsts.len() {
                    return Seen::Duplicate;
                }
                if *becomes_unique {
                    self.unique.insert(table.clone())
                } else {
                    self.unique.remove(table)
                };
                Seen::Done
            }
            Deed::Lookup { from, to, backward, .. } => {
                let is_found = |value: &Bytes| value.first().is_some_and(|first| (from..=to).contains(&first));
                let mut found: Vec<_> = records.iter().filter(|(_, value)| is_found(value)).collect();
                found.sort_by_key(|(key, value)| (value[0], *key));
                if *backward {
                    found.reverse();
                }
                Seen::Rows(found.into_iter().map(|(key, value)| (key.clone(), value.clone())).collect())
            }
            Deed::Scan { from, to, backward, limit, .. } => {
                if from >= to {
                    return Seen::Rows(Vec::new());
                }
                let range = records.range((Bound::Included(from.clone()), Bound::Excluded(to.clone())));
                let copy = |(key, value): (&Bytes, &Bytes)| (key.clone(), value.clone());
                Seen::Rows(if *backward {
                    range.rev().take(*limit).map(copy).collect()
                } else {
                    range.take(*limit).map(copy).collect()
                })
            }
            Deed::Count { key, delta, .. } => {
                let counter = records.entry(Arc::from(key.to_be_bytes())).or_insert_with(|| counter_bytes(0));
                *counter = counter_bytes(counter_of(counter).wrapping_add(*delta));
                if matches!(Kind::of(table), Some(Kind::Page(_))) {
                    records.retain(|_, counter| counter_of(counter) != 0);
                }
                Seen::Done
            }
            Deed::Total { key, .. } => Seen::Value(records.get(&key.to_be_bytes()[..]).cloned()),
            Deed::Tally { .. } => Seen::Rows(records.iter().map(|(key, value)| (key.clone(), value.clone())).collect()),
            _ => unreachable!("deeds without a table are done above"),
        }
    }

    /// The first few differences to another state, in words; empty if there are none.
    pub fn differences(&self, found: &State) -> Vec<String> {
        let mut lines = Vec::new();
        let mut names: Vec<&String> = self.tables.keys().chain(found.tables.keys()).collect();
        names.sort_unstable();
        names.dedup();
        for name in names {
            let (expected, found) = match (self.tables.get(name), found.tables.get(name)) {
                (Some(expected), Some(found)) => (expected, found),
                (Some(_), None) => {
                    lines.push(format!("table {name} is missing"));
                    continue;
                }
                _ => {
                    lines.push(format!("table {name} should not be there"));
                    continue;
                }
            };
            for (key, value) in expected {
                match found.get(key) {
                    Some(other) if other == value => {}
                    Some(other) => {
                        lines.push(format!("{name} {}: expected {}, found {}", Short(key), Short(value), Short(other)))
                    }
                    None => lines.push(format!("{name} {}: expected {}, missing", Short(key), Short(value))),
                }
            }
            for (key, value) in found.iter().filter(|(key, _)| !expected.contains_key(*key)) {
                lines.push(format!("{name} {}: found {}, expected nothing", Short(key), Short(value)));
            }
        }
        let more = lines.len().saturating_sub(12);
        lines.truncate(12);
        if more > 0 {
            lines.push(format!("... and {more} more"));
        }
        lines
    }
}

/// Bytes for a report: the beginning and the length.
pub struct Short<'a>(pub &'a [u8]);

impl fmt::Display for Short<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = !self.0.is_empty() && self.0.iter().all(|byte| (0x20..0x7f).contains(byte));
        let shown = self.0.len().min(if text { 60 } else { 12 });
        if text {
            write!(f, "{:?}", String::from_utf8_lossy(&self.0[..shown]))?;
        } else {
            write!(f, "x{}", Hex(&self.0[..shown]))?;
        }
        if shown < self.0.len() { write!(f, "..({})", self.0.len()) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &str) -> Bytes {
        Arc::from(text.as_bytes())
    }

    #[test]
    fn deeds_do_what_their_names_say() {
        let mut state = State::default();
        let table = || "t".to_owned();
        let key = || bytes("k");
        assert_eq!(state.apply(&Deed::Get { table: table(), key: key(), for_update: false }), Seen::NoTable);
        assert_eq!(state.apply(&Deed::Create { table: table(), is_unique: false }), Seen::Done);
        assert_eq!(state.apply(&Deed::Create { table: table(), is_unique: false }), Seen::TableExists);
        let insert = Deed::Insert { table: table(), key: key(), value: bytes("0123456789") };
        assert_eq!((state.apply(&insert), state.apply(&insert)), (Seen::Flag(true), Seen::Flag(false)));
        let patch = Some(Patch { number: 0x4141, at: 13, grow: -2 });
        assert_eq!(state.apply(&Deed::Modify { table: table(), key: key(), patch }), Seen::Flag(true));
        let got = state.apply(&Deed::Get { table: table(), key: key(), for_update: false });
        assert_eq!(got, Seen::Value(Some(bytes("01234AA\0"))));
        let scan = |from: &str, to: &str| Deed::Scan {
            table: table(),
            from: bytes(from),
            to: bytes(to),
            backward: true,
            limit: 1,
        };
        assert_eq!(state.apply(&scan("a", "k")), Seen::Rows(vec![]));
        assert_eq!(state.apply(&scan("z", "k")), Seen::Rows(vec![]));
        assert_eq!(state.apply(&scan("k", "l")), Seen::Rows(vec![(key(), bytes("01234AA\0"))]));
        assert_eq!(state.apply(&Deed::Delete { table: table(), key: key() }), Seen::Flag(true));
        assert_eq!(state.apply(&Deed::List), Seen::Names(vec![table()]));
        assert_eq!(state.apply(&Deed::Drop { table: table() }), Seen::Done);
        assert_eq!(state, State::default());
    }

    #[test]
    fn values_are_told_apart_by_their_number() {
        assert_ne!(value_bytes(1, 8), value_bytes(2, 8));
        assert_eq!((value_bytes(3, 0).len(), value_bytes(3, 5).len(), value_bytes(4, 9000).len()), (0, 5, 9000));
    }
}
