//! Many records of an indexed table go at once (X6).
//!
//! ```text
//! records, in the order of the table ─► ghosts
//!                   └─► entries, locked ─► sorter of each index ─► ghosts, in the order of the index
//! ```
//! What memory does not hold is sorted in a temporary file of bounded size. When that is full, or the disk refuses it,
//! the entries so far are deleted, and sorting begins anew. Each page of an index is visited once for each such part.

use std::ops::Bound;

use ledgerstone_lock::Mode;
use ledgerstone_page::planted::{self, Bug};
use ledgerstone_sort::Sorter;
use ledgerstone_txn::Txn;

use super::build::sort_bytes;
use crate::Error;
use crate::catalog::TableInfo;
use crate::catalog::index::IndexTree;
use crate::inner::Inner;

/// Entries that are sorted where they are: no sorter is needed for so few. As many are deleted at a time.
const FEW: usize = 256;
/// Bytes of entries in memory and in the file, for all indexes together.
const SORTED_BYTES_MAX: u64 = 1 << 30;

impl TableInfo {
    /// Removes the records whose keys lie between the bounds, and says how many there were.
    pub(crate) fn delete_range(
        &self,
        env: &Inner,
        txn: &mut Txn,
        start: Bound<Vec<u8>>,
        end: Bound<Vec<u8>>,
    ) -> Result<u64, Error> {
        if self.indexes.is_empty() {
            return txn.whole(|txn| Ok(self.tree.delete_range(txn, start, end)?));
        }
        self.in_one_step(txn, |txn| {
            let leaving = |index| Leaving::new(env, self, index);
            let mut leaving: Vec<Leaving<'_>> = self.indexes.iter().map(leaving).collect();
            let count = self.tree.delete_range_telling(txn, start, end, |txn, key, value| {
                leaving.iter_mut().try_for_each(|index| index.add(txn, key, value))
            })?;
            leaving.iter_mut().try_for_each(|index| index.delete(txn))?;
            Ok(count)
        })
    }
}

/// The entries of an index whose records go.
struct Leaving<'i> {
    env: &'i Inner,
    table: &'i str,
    index: &'i IndexTree,
    sort_bytes: usize,
    bytes_max: u64,
    /// Until there are too many of them.
    few: Vec<Vec<u8>>,
    sorter: Option<Sorter>,
    count: usize,
    bytes: u64,
}

impl<'i> Leaving<'i> {
    fn new(env: &'i Inner, table: &'i TableInfo, index: &'i IndexTree) -> Leaving<'i> {
        let count = table.indexes.len();
        let (sort_bytes, bytes_max) = (sort_bytes(env, count), SORTED_BYTES_MAX / count.max(1) as u64);
        let table = &table.name;
        Leaving { env, table, index, sort_bytes, bytes_max, few: Vec::new(), sorter: None, count: 0, bytes: 0 }
    }

    /// Takes the entries of a record, and their locks.
    fn add(&mut self, txn: &mut Txn, key: &[u8], value: &[u8]) -> Result<(), Error> {
        let entries = self.index.entries(self.table, key, value)?;
        if entries.is_empty() || planted::is_on(Bug::IndexEntryStays) {
            return Ok(());
        }
        txn.lock_table(self.index.entry.entry.table, Mode::IX)?;
        let mut is_full = false;
        for (key, _) in entries {
            self.index.tree.lock_to_write(txn, &key)?;
            (self.count, self.bytes) = (self.count + 1, self.bytes + key.len() as u64);
            if self.sorter.is_none() && self.few.len() < FEW {
                self.few.push(key);
                continue;
            }
            let sorter = self.sorter.get_or_insert_with(|| Sorter::new(&self.env.disk, self.sort_bytes));
            for key in self.few.drain(..).chain([key]) {
                // Refused or not, the sorter has it. What is wrong with the disk shows later, if it matters.
                is_full |= sorter.push(&key, &[]).is_err();
            }
        }
        is_full |= self.bytes >= self.bytes_max || planted::fills_window(self.count);
        if is_full { self.delete(txn) } else { Ok(()) }
    }

    /// Deletes the entries so far.
    fn delete(&mut self, txn: &mut Txn) -> Result<(), Error> {
        (self.count, self.bytes) = (0, 0);
        let mut keys = std::mem::take(&mut self.few);
        if let Some(sorter) = self.sorter.take() {
            sorter.give_all::<Error>(&mut |key, _| {
                keys.push(key.to_vec());
                if keys.len() < FEW {
                    return Ok(());
                }
                self.delete_sorted(txn, &keys)?;
                keys.clear();
                Ok(())
            })?;
        } else {
            keys.sort_unstable();
        }
        self.delete_sorted(txn, &keys)
    }

    fn delete_sorted(&self, txn: &mut Txn, keys: &[Vec<u8>]) -> Result<(), Error> {
        match self.index.tree.delete_sorted(txn, keys)?.1 {
            Some(missing) => Err(self.index.lacks(self.table, &keys[missing])),
            None => Ok(()),
        }
    }
}
