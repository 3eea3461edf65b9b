//! An index compared with its table, in both directions; for `verify`, with both locked for reading.
//!
//! First by sums. The entries that the records should have are hashed and added up, and so are the entries that the
//! index has. Each tree is read in the order in which it lies on the disk. Equal sums are equal entries, but for one
//! chance in 2^64 that nobody can bring about, as the hash's key is drawn anew. Only where they differ is entry after
//! entry looked up, which reads pages at random.

use std::hash::{BuildHasher, RandomState};
use std::ops::Bound;

use ledgerstone_structures::{Direction, Read};
use ledgerstone_txn::Txn;

use crate::Error;
use crate::catalog::TableInfo;
use crate::catalog::index::IndexTree;

impl TableInfo {
    /// Tells `differ` of each difference between an index and the table, in words, and says whether all of them could
    /// be seen. Without the index's function, only entries without a record are. `step` is called for each record and
    /// each entry, and ends the comparison by an error.
    pub(crate) fn compare_with(
        &self,
        txn: &mut Txn,
        index: &IndexTree,
        differ: &mut dyn FnMut(String),
        step: &mut dyn FnMut() -> Result<(), Error>,
    ) -> Result<bool, Error> {
        let knows_keys = index.is_computable();
        if knows_keys && self.sums_agree(txn, index, step)? {
            return Ok(true);
        }
        if knows_keys {
            self.each_record_has_its_entries(txn, index, differ, step)?;
        }
        self.each_entry_has_its_record(txn, index, knows_keys, differ, step)?;
        Ok(knows_keys)
    }

    fn sums_agree(
        &self,
        txn: &mut Txn,
        index: &IndexTree,
        step: &mut dyn FnMut() -> Result<(), Error>,
    ) -> Result<bool, Error> {
        let keys = [RandomState::new(), RandomState::new()];
        let mut scan = self.tree.scan(Bound::Unbounded, Bound::Unbounded, Direction::Forward);
        let mut wanted = Sum::default();
        while let Some((key, value)) = scan.next(txn)? {
            step()?;
            // A record that cannot be indexed is a difference, to be told by its key.
            let Ok(entries) = index.entries(&self.name, key, value) else { return Ok(false) };
            entries.iter().for_each(|(entry, value)| wanted.add(&keys, entry, value));
        }
        let mut scan = index.tree.scan(Bound::Unbounded, Bound::Unbounded, Direction::Forward);
        let mut found = Sum::default();
        while let Some((entry, value)) = scan.next(txn)? {
            step()?;
            found.add(&keys, entry, value);
        }
        Ok(wanted == found)
    }

    fn each_record_has_its_entries(
        &self,
        txn: &mut Txn,
        index: &IndexTree,
        differ: &mut dyn FnMut(String),
        step: &mut dyn FnMut() -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut scan = self.tree.scan(Bound::Unbounded, Bound::Unbounded, Direction::Forward);
        while let Some((key, value)) = scan.next(txn)? {
            step()?;
            let entries = match index.entries(&self.name, key, value) {
                Ok(entries) => entries,
                Err(error) => {
                    differ(format!("record {}: {error}", self.shown(key)));
                    continue;
                }
            };
            for (entry, expected) in entries {
                match index.tree.get(txn, &entry, Read::Unlocked)? {
                    Some(found) if found == expected => {}
                    Some(found) => differ(format!(
                        "entry {} is of record {}, and should be of {}",
                        index.shown(&entry),
                        self.shown(&found),
                        self.shown(&expected)
                    )),
                    None => differ(format!("record {} has no entry {}", self.shown(key), index.shown(&entry))),
                }
            }
        }
        Ok(())
    }

    fn each_entry_has_its_record(
        &self,
        txn: &mut Txn,
        index: &IndexTree,
        knows_keys: bool,
        differ: &mut dyn FnMut(String),
        step: &mut dyn FnMut() -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut scan = index.tree.scan(Bound::Unbounded, Bound::Unbounded, Direction::Forward);
        while let Some((entry, value)) = scan.next(txn)? {
            step()?;
            let Some((_, primary_key)) = index.shape().parts(entry, value) else {
                differ(format!("{} is not an entry", index.shown(entry)));
                continue;
            };
            let Some(record) = self.tree.get(txn, &primary_key, Read::Unlocked)? else {
                differ(format!(
                    "entry {} is of record {}, which is not there",
                    index.shown(entry),
                    self.shown(&primary_key)
                ));
                continue;
            };
            if !knows_keys {
                continue;
            }
            // A record that cannot be indexed was told of already.
            let Ok(entries) = index.entries(&self.name, &primary_key, &record) else { continue };
            if !entries.iter().any(|(key, _)| key == entry) {
                differ(format!("entry {} is not one of record {}", index.shown(entry), self.shown(&primary_key)));
            }
        }
        Ok(())
    }
}

/// Entries added up, in any order.
#[derive(Default, PartialEq, Eq)]
struct Sum {
    count: u64,
    hashes: [u64; 2],
}

impl Sum {
    fn add(&mut self, keys: &[RandomState; 2], entry: &[u8], value: &[u8]) {
        self.count += 1;
        for (sum, key) in self.hashes.iter_mut().zip(keys) {
            *sum = sum.wrapping_add(key.hash_one((entry, value)));
        }
    }
}
