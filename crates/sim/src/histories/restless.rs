//! What restless clients do besides: tables are dropped and made again, change their names, and get and lose an index.
//! Records are taken from both ends, and ranges are deleted. Transactions go back to savepoints. In between, any client
//! keeps house, or its process leaves and another one comes.
//!
//! So what a process remembers of tables, leaves and pages is often no longer true, by what another has done.
//!
//! - A table that is dropped and made again: each key is removed. Two tables that change their names: each has been
//!   read, and each key is given what the other table had.
//! - Definitions are changed by serializable transactions only, whatever the level of the round.
//! - Names are changed only where all transactions are serializable. Others do not lock a table until they use it, and
//!   a table that was opened before stays the same one under its new name.
//! - Taking from an end reads what was passed over only at level serializable. At others, whoever comes second takes
//!   the next record.

use ledgerstone::{BytesTable, Environment, Error, IndexDef, IndexKeys, Isolation};

use super::history::{Access, Act, Item, Seen, Transaction};
use super::workload::{Client, TABLE_COUNT, key_bytes, seen, table_name, value_of};

const INDEX: &str = "by number";

impl Client {
    /// All keys that anything asks for.
    fn universe(&self) -> std::ops::Range<u32> {
        0..self.size.key_count * 2 + 2
    }

    /// What is done outside of transactions.
    pub(super) fn keep_house(&mut self, env: &Environment) -> Result<(), Error> {
        match self.random.weighted(&[4, 8, 4, 1, 2]) {
            0 => env.checkpoint().map(drop),
            1 => env.reclaim(),
            2 => env.sync(),
            3 => env.compact().map(drop),
            _ => self.process.replace(),
        }
    }

    /// Takes the first or the last record.
    pub(super) fn take_end(
        &mut self,
        records: &BytesTable,
        table: u32,
        isolation: Isolation,
        acts: &mut Vec<(Item, Act)>,
    ) -> Result<(), Error> {
        let from_end = self.random.percent(40);
        let taken = if from_end { records.pop_last()? } else { records.pop_first()? };
        let is_locked = isolation == Isolation::Serializable;
        let key = taken.as_ref().map(|(key, _)| number_of(key));
        let passed = match key {
            None => self.universe(),
            Some(key) if from_end => key + 1..self.universe().end,
            Some(key) => 0..key,
        };
        if is_locked {
            acts.extend(passed.map(|key| (Item { table, key }, Act::Read(Seen::Absent))));
        }
        if let (Some(key), Some((_, value))) = (key, taken) {
            acts.extend([(Item { table, key }, Act::Read(seen(Some(value)))), (Item { table, key }, Act::Write(None))]);
        }
        Ok(())
    }

    /// Reads a range and deletes it. At these two levels that are the same records, or the transaction is refused. At
    /// others it could not be said which ones were deleted, so nothing is done.
    pub(super) fn delete_range(
        &mut self,
        records: &BytesTable,
        from: Item,
        isolation: Isolation,
        acts: &mut Vec<(Item, Act)>,
    ) -> Result<(), Error> {
        if !matches!(isolation, Isolation::Serializable | Isolation::Snapshot) {
            return Ok(());
        }
        let to = from.key + 1 + self.random.below(u64::from(self.size.key_count) / 2 + 2) as u32;
        let (low, high) = (key_bytes(from.key), key_bytes(to));
        let rows = records.range(&low[..]..&high[..])?.collect::<Result<Vec<_>, Error>>()?;
        let count = records.delete_range(&low[..]..&high[..])?;
        for key in from.key..to {
            let value = rows.iter().find(|(other, _)| number_of(other) == key).map(|(_, value)| value.clone());
            acts.push((Item { key, ..from }, Act::Read(seen(value))));
        }
        acts.extend(rows.iter().map(|(key, _)| (Item { key: number_of(key), ..from }, Act::Write(None))));
        if count != rows.len() as u64 {
            acts.push((from, Act::Read(WRONG)));
        }
        Ok(())
    }

    /// Reads all records by the index, if there is one.
    pub(super) fn read_by_index(
        &mut self,
        records: &BytesTable,
        table: u32,
        isolation: Isolation,
        acts: &mut Vec<(Item, Act)>,
    ) -> Result<(), Error> {
        // Who reads what is not committed may find a record at a place that it leaves.
        let must_agree = isolation != Isolation::ReadUncommitted;
        let index = match records.index(INDEX) {
            Err(Error::NoSuchIndex { .. }) => return Ok(()),
            index => index?,
        };
        if self.random.percent(30) {
            let byte = self.random.below(256) as u8;
            for record in index.lookup([byte])?.records() {
                let (index_key, key, value) = record?;
                let is_right = index_key == [byte] && value.first() == Some(&byte) || !must_agree;
                let value = if is_right { seen(Some(value)) } else { WRONG };
                acts.push((Item { table, key: number_of(&key) }, Act::Read(value)));
            }
            return Ok(());
        }
        let rows = index.range(..)?.records().collect::<Result<Vec<_>, Error>>()?;
        let mut rows = rows;
        if !must_agree {
            rows.sort_by(|a, b| a.1.cmp(&b.1));
            rows.dedup_by(|a, b| a.1 == b.1);
        }
        let rows = rows.into_iter().map(|(index_key, key, value)| {
            let is_right = value.first() == index_key.first() || !must_agree;
            (number_of(&key), if is_right { seen(Some(value)) } else { WRONG })
        });
        self.all_of(table, rows.collect(), acts);
        Ok(())
    }

    /// Each key was read: those that are not among the rows are absent.
    fn all_of(&self, table: u32, mut rows: Vec<(u32, Seen)>, acts: &mut Vec<(Item, Act)>) {
        rows.sort_by_key(|(key, _)| *key);
        for key in self.universe() {
            let mut found = rows.iter().filter(|(other, _)| *other == key).map(|(_, seen)| *seen);
            acts.push((Item { table, key }, Act::Read(found.next().unwrap_or(Seen::Absent))));
            if found.next().is_some() {
                acts.push((Item { table, key }, Act::Read(WRONG)));
            }
        }
    }

    /// Changes what tables there are, or what they are like.
    pub(super) fn define(&mut self, txn: &ledgerstone::Transaction, into: &mut Transaction) -> Result<(), Error> {
        let began = self.tick();
        let mut acts: Vec<(Item, Act)> = Vec::new();
        // Readers of uncommitted may have seen what was done before an error.
        let defined = self.define_by(txn, &mut acts);
        let ended = self.tick();
        into.accesses.extend(acts.into_iter().map(|(item, act)| Access { item, act, began, ended }));
        defined
    }

    fn define_by(&mut self, txn: &ledgerstone::Transaction, acts: &mut Vec<(Item, Act)>) -> Result<(), Error> {
        let table = self.random.below(u64::from(TABLE_COUNT)) as u32;
        let name = table_name(table);
        let swaps = u64::from(self.size.isolation == Some(Isolation::Serializable)) * 2;
        match self.random.weighted(&[4, swaps, 3, 3]) {
            0 => {
                txn.drop_table(&name)?;
                let records = txn.create_table(&name)?;
                acts.extend(self.universe().map(|key| (Item { table, key }, Act::Write(None))));
                if self.random.percent(50) {
                    txn.create_index(&name, &index())?;
                    drop(records);
                }
                let records = txn.bytes(&name)?;
                for key in (0..self.size.key_count).filter(|key| key % 2 == 1) {
                    let number = self.tick();
                    acts.push((Item { table, key }, Act::Write(Some(number))));
                    records.put(key_bytes(key), value_of(number, self.size))?;
                }
            }
            1 => {
                let mut contents = Vec::new();
                for table in 0..TABLE_COUNT {
                    let rows = txn.bytes(&table_name(table))?.range(..)?.collect::<Result<Vec<_>, Error>>()?;
                    let rows: Vec<_> =
                        rows.into_iter().map(|(key, value)| (number_of(&key), seen(Some(value)))).collect();
                    self.all_of(table, rows.clone(), acts);
                    contents.push(rows);
                }
                let renamed = swap_names(txn);
                for table in 0..TABLE_COUNT {
                    let other = &contents[1 - table as usize];
                    acts.extend(self.universe().map(|key| {
                        let value = other.iter().find(|(other, _)| *other == key).map(|(_, seen)| *seen);
                        let value =
                            value.and_then(|seen| if let Seen::Value(value) = seen { Some(value) } else { None });
                        // Refused half way, it was never there, though some may have seen the first half.
                        let act = if renamed.is_ok() { Act::Write(value) } else { Act::Undone(value) };
                        (Item { table, key }, act)
                    }));
                }
                renamed?;
            }
            2 => drop(txn.create_index_if_missing(&name, &index())?),
            _ => match txn.drop_index(&name, INDEX) {
                Err(Error::NoSuchIndex { .. }) => {}
                dropped => dropped?,
            },
        }
        Ok(())
    }

    /// A read and perhaps a write by a handle of the environment's own.
    pub(super) fn use_kept(
        &mut self,
        txn: &ledgerstone::Transaction,
        only_reads: bool,
        into: &mut Transaction,
    ) -> Result<(), Error> {
        let table = self.random.below(u64::from(TABLE_COUNT)) as u32;
        let item = Item { table, key: self.random.below(u64::from(self.size.key_count)) as u32 };
        let Some(kept) = self.kept.get(table as usize) else { return Ok(()) };
        let (number, key) = (self.tick(), key_bytes(item.key));
        let began = self.tick();
        let act = match self.random.weighted(if only_reads { &[1, 0, 0] } else { &[3, 2, 1] }) {
            0 => Act::Read(seen(kept.get(txn, key)?)),
            1 => {
                if let Err(error) = kept.put(txn, key, value_of(number, self.size)) {
                    into.accesses.push(self.refused(item, number));
                    return Err(error);
                }
                Act::Write(Some(number))
            }
            _ => Act::Read(seen(kept.get_for_update(txn, key)?)),
        };
        let ended = self.tick();
        into.accesses.push(Access { item, act, began, ended });
        Ok(())
    }

    /// All that is there, in a transaction after all others.
    pub(super) fn read_all(&mut self, txn: &ledgerstone::Transaction, into: &mut Transaction) -> Result<(), Error> {
        for table in 0..TABLE_COUNT {
            let began = self.tick();
            let mut acts = Vec::new();
            let records = txn.bytes(&table_name(table))?;
            let rows = records.range(..)?.collect::<Result<Vec<_>, Error>>()?;
            let rows = rows.into_iter().map(|(key, value)| (number_of(&key), seen(Some(value))));
            self.all_of(table, rows.collect(), &mut acts);
            let ended = self.tick();
            into.accesses.extend(acts.into_iter().map(|(item, act)| Access { item, act, began, ended }));
        }
        Ok(())
    }
}

/// No version of anything.
const WRONG: Seen = Seen::Value(0);

/// The two tables change their names.
fn swap_names(txn: &ledgerstone::Transaction) -> Result<(), Error> {
    txn.rename_table(&table_name(0), "between")?;
    txn.rename_table(&table_name(1), &table_name(0))?;
    txn.rename_table("between", &table_name(1))
}

/// By the lowest byte of a value's number: nearly every write moves an entry.
fn index() -> IndexDef {
    IndexDef::new(INDEX, IndexKeys::Bytes { from: 0, to: Some(1) })
}

fn number_of(key: &[u8]) -> u32 {
    key.try_into().map_or(u32::MAX, u32::from_be_bytes)
}

/// The transaction has gone back to where it had made so many accesses. What was written since is no version, and what
/// it then read of its own writes is nobody's.
pub(super) fn undo(into: &mut Transaction, kept: usize) {
    let mut written = std::collections::BTreeSet::new();
    let tail = into.accesses.split_off(kept);
    for access in tail {
        match access.act {
            Act::Write(value) => {
                written.insert(access.item);
                into.accesses.push(Access { act: Act::Undone(value), ..access });
            }
            Act::Read(_) if written.contains(&access.item) => {}
            _ => into.accesses.push(access),
        }
    }
}
