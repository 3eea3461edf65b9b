//! The data file becomes shorter.
//!
//! ```text
//! growth latch ─► last map: all behind its last used page are free ─► fewer pages, told under the map's latch
//!   ─► Truncate record, flushed ─► their frames go ─► the file is cut, synced ─► growth latch given back
//! ```
//! H1. Nobody gets a page behind the new end. A thread that looks for free pages reads the count under the map's latch.
//!     The file does not grow, nor is a map made, while the growth latch is held.
//! H2. All records of pages behind the new end are in the log before the `Truncate` record. The last record of each
//!     page is a part of the group that freed it, which had the map latched. What the log says of them later begins
//!     with a format.
//! H3. So recovery may cut the file at the smallest end of all truncations that it meets. It passes over what stands
//!     before a truncation about pages behind its end. Those pages may be gone, or may be what they were long ago.
//! H4. No checkpoint is taken between the record and the sync of the cut file: while the file may still be long,
//!     recovery meets the record.
//! H5. A map is cut only with all of its pages. When the file grows again it reads as never written, and is made anew.

use ledgerstone_region::atomic::Ordering::{Relaxed, SeqCst};

use ledgerstone_disk::{DiskError, DiskFile};
use ledgerstone_log::{Claim, NewRecord, RecordKind};
use ledgerstone_page::{Lsn, OpId, PageId, Xid};
use ledgerstone_txn::{RECORD_OVERHEAD_BYTES, TxnError};

use crate::map;
use crate::{HINT, LOW, PAGE_COUNT, SHRINKS, Space, SpaceError, bit_of, bits_of, map_of};

/// What a `Truncate` record takes of the log.
const TRUNCATE_BYTES: usize = 8 + RECORD_OVERHEAD_BYTES;

impl Space {
    /// Cuts off the free pages at the end of the file that the last map covers, and returns how many. Call again until
    /// there are none. The caller keeps checkpoints from being taken (H4), and holds no other latch.
    ///
    /// # Errors
    /// A map cannot be read, or the log refuses, with nothing changed. If the file cannot be cut or synced, the
    /// environment fails.
    pub fn shrink(&self) -> Result<u64, SpaceError> {
        self.engine.cache.wait_redone()?; // A page behind the new end may have changes that are pending.
        let claim = self.engine.log.claim_upkeep(TRUNCATE_BYTES).map_err(TxnError::from)?;
        if let Err(error) = self.latch_growth() {
            self.engine.log.give_back(claim);
            return Err(error);
        }
        self.words[SHRINKS].store(1, SeqCst); // G2 in `repair.rs`.
        let done = self.shrink_latched(claim);
        self.words[SHRINKS].store(0, SeqCst);
        self.growth.unlatch_exclusive();
        done
    }

    fn shrink_latched(&self, claim: Claim) -> Result<u64, SpaceError> {
        let before = self.page_count();
        let lowered = self.lower_page_count(before);
        let after = match lowered {
            Ok(after) if after < before => after,
            other => {
                self.engine.log.give_back(claim);
                return other.map(|_| 0);
            }
        };
        self.tell_and_cut(claim, after)
            .inspect_err(|error| self.engine.fail(&format!("cutting the data file: {error}")))?;
        Ok(before - after)
    }

    fn tell_and_cut(&self, mut claim: Claim, after: u64) -> Result<(), SpaceError> {
        let body = after.to_le_bytes();
        let record = NewRecord {
            kind: RecordKind::Truncate,
            xid: Xid::NONE,
            prev_lsn: Lsn(0),
            op: OpId(0),
            flags: 0,
            page: None,
            body: &[&body],
        };
        let lsn = self.engine.log.append(&mut claim, &record);
        self.engine.log.give_back(claim);
        self.cut(lsn, PageId(after))
    }

    /// What a thread that has died had begun (G4 in `repair.rs`). The growth latch is held for it.
    pub(crate) fn cut_again(&self) -> Result<(), SpaceError> {
        let claim = self.engine.log.claim_upkeep(TRUNCATE_BYTES).map_err(TxnError::from)?;
        self.tell_and_cut(claim, self.page_count())?;
        self.words[SHRINKS].store(0, SeqCst);
        Ok(())
    }

    fn cut(&self, lsn: Lsn, first: PageId) -> Result<(), SpaceError> {
        self.engine.log.flush_to(lsn).map_err(TxnError::from)?;
        // Before the cut, so that no write makes the file longer again; and after it, for those that were read
        // meanwhile.
        self.engine.cache.discard_from(first)?;
        self.data.set_len(first.0 * self.page_bytes as u64).map_err(SpaceError::Disk)?;
        self.engine.cache.discard_from(first)?;
        self.data.sync().map_err(SpaceError::Disk)
    }

    /// Finds the end of what is in use under the last map, and tells it under that map's latch (H1).
    fn lower_page_count(&self, before: u64) -> Result<u64, SpaceError> {
        let bits = bits_of(self.page_bytes);
        let first = (before - 1) / bits * bits;
        let lower = |after: u64| {
            self.words[PAGE_COUNT].store(after, Relaxed);
            self.words[HINT].fetch_min(after - 1, Relaxed);
            self.words[LOW].fetch_min(after - 1, Relaxed);
            after
        };
        let map = match self.engine.cache.exclusive(map_of(PageId(first), self.page_bytes)) {
            Ok(map) => map,
            // The file has grown, and nobody has looked for pages there yet.
            Err(error) if error.is_never_written() && first > 0 => return Ok(lower(first)),
            Err(error) => return Err(error.into()),
        };
        let own = u64::from(bit_of(map.id(), self.page_bytes));
        let last = map::last_set(map.words(), before - first).unwrap_or(own);
        let after = if first > 0 && last == own { first } else { first + last + 1 };
        Ok(if after < before { lower(after) } else { before })
    }
}

/// At restart, before redo: cuts a file that a crash kept from being cut (H3), and sees to it that it stays so (H4).
///
/// # Errors
/// The file cannot be cut or synced.
pub fn finish_shrink(data: &dyn DiskFile, page_bytes: u32, page_count_max: u64) -> Result<(), DiskError> {
    let len = page_count_max.saturating_mul(u64::from(page_bytes));
    if data.len()? > len {
        data.set_len(len)?;
    }
    data.sync()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ledgerstone_disk::{Disk, Open, SimDisk};

    #[test]
    fn a_shrink_that_was_finished_stays_finished_when_the_power_fails() {
        for was_cut in [false, true] {
            let disk = SimDisk::new();
            let data = disk.open("data", Open::CREATE).unwrap();
            data.write_at(0, &[1; 10 * 4096]).unwrap();
            data.sync().unwrap();
            disk.sync_dir("").unwrap();
            if was_cut {
                data.set_len(4 * 4096).unwrap(); // And the process was killed before it could sync.
            }
            let disk = disk.after_kill();
            let data = disk.open("data", Open::EXISTING).unwrap();
            finish_shrink(&*data, 4096, 4).unwrap();
            for seed in 0..20 {
                let after = disk.snapshot().after_crash(seed);
                assert_eq!(after.open("data", Open::READ).unwrap().len().unwrap(), 4 * 4096, "seed {seed}");
            }
        }
    }
}
