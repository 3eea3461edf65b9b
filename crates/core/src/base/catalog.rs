//! The catalog as it is now.

use std::ops::Bound;

use ledgerstone_page::Lsn;
use ledgerstone_structures::Direction;
use ledgerstone_txn::{Durability, Horizon};

use super::Base;
use crate::Error;

impl Base {
    /// Shows each entry of the catalog at a snapshot, in the order of the names, and says which snapshot that was: it
    /// sees the commits whose records begin below. No lock is waited for, even if others have the catalog open.
    ///
    /// Waits for the disk: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// A failure of the disk, or damage.
    pub fn each_in_catalog(&self, mut see: impl FnMut(&str, &[u8]) -> Result<(), Error>) -> Result<Lsn, Error> {
        self.engine.in_a_call(|| {
            let mut txn = self.begin()?;
            let view = txn.open_view(Horizon::None)?;
            let at = view.at();
            let mut scan = self.catalog.scan_at(at, Bound::Unbounded, Bound::Unbounded, Direction::Forward);
            while let Some((name, value)) = scan.next(&mut txn)? {
                see(&String::from_utf8_lossy(name), value)?;
            }
            drop(view);
            txn.commit(Durability::Volatile)?;
            Ok(at.lsn)
        })
    }
}
