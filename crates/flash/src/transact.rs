//! The one interface of all protocols: transactions over logical pages.
//!
//! T1. After a commit has returned, every page reads as the transaction wrote it, through any number of power cuts,
//!     until another committed transaction writes it.
//! T2. Nothing that an aborted transaction, or one that was running when power failed, has written is ever read by
//!     others.
//! T3. Opening a device that was opened before and not changed since gives the same pages.

use crate::error::Result;
use crate::{Lba, Xid};

/// Transactions over logical pages.
///
/// While a transaction runs, no other transaction may read or write a page that it has written. Callers lock for that
/// (two-phase locking), and a breach is refused rather than obeyed. A write may reach flash at once (steal). A commit
/// returns when everything that it promises is there (force).
pub trait Transactions {
    /// Starts a transaction. Its number is new for as long as the store is open.
    fn begin(&mut self) -> Xid;

    /// Reads a page as `txn` sees it; pages never written read as 0xFF. With `None`: the last committed version.
    ///
    /// # Errors
    /// [`crate::FlashError::UnknownPage`], [`crate::FlashError::Unreadable`], and those of the device.
    fn read(&mut self, txn: Option<Xid>, lba: Lba, data: &mut [u8]) -> Result<()>;

    /// Writes a page; `data` may be shorter than a page, the rest then reads as 0xFF.
    ///
    /// # Errors
    /// [`crate::FlashError::UnknownTransaction`], [`crate::FlashError::UnknownPage`], [`crate::FlashError::Conflict`],
    /// [`crate::FlashError::TooLong`], [`crate::FlashError::Full`], and those of the device.
    fn write(&mut self, txn: Xid, lba: Lba, data: &[u8]) -> Result<()>;

    /// Writes the last pages of a transaction and commits it: some protocols save a program if they know that nothing
    /// follows. Returns when the transaction is durable.
    ///
    /// # Errors
    /// As [`Transactions::write`]. If power fails, the transaction may or may not be committed: the next mount decides.
    fn commit_with(&mut self, txn: Xid, last: &[(Lba, &[u8])]) -> Result<()>;

    /// Commits.
    ///
    /// # Errors
    /// As [`Transactions::commit_with`].
    fn commit(&mut self, txn: Xid) -> Result<()> {
        self.commit_with(txn, &[])
    }

    /// Takes back all that a transaction has written.
    ///
    /// # Errors
    /// [`crate::FlashError::UnknownTransaction`], and those of the device.
    fn abort(&mut self, txn: Xid) -> Result<()>;

    /// Logical pages of the store.
    fn page_count(&self) -> u32;

    /// Bytes of a logical page.
    fn page_bytes(&self) -> usize;
}

/// The corrections to the paper's rules, each of which can be switched off to show what it is good for. Everything but
/// tests uses [`Rules::corrected`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// 1: a link names its target's sequence number, and one that no longer fits leads nowhere.
    pub links_are_numbered: bool,
    /// 2: a recovery that declares a transaction aborted writes that down.
    pub verdicts_are_kept: bool,
    /// 3: AFC never programs FALSE into a page of a running transaction, and a FALSE of it outlives every collection.
    pub running_chains_stay_false: bool,
    /// 4: what a power cut may have left unstable is written again before anything relies on it.
    pub unstable_is_hardened: bool,
    /// AFC: an interrupted erase may leave any page of its block, so pages that go together are all FALSE.
    pub erases_may_be_cut: bool,
    /// SCC: before a page is written, uncommitted records that name it are erased as well as those of it.
    pub uncommitted_names_are_erased: bool,
    /// BPCC: an obsolete record stays while it is the only witness against an uncommitted one.
    pub witnesses_are_kept: bool,
}

impl Rules {
    /// All corrections.
    pub fn corrected() -> Self {
        Self {
            links_are_numbered: true,
            verdicts_are_kept: true,
            running_chains_stay_false: true,
            unstable_is_hardened: true,
            erases_may_be_cut: true,
            uncommitted_names_are_erased: true,
            witnesses_are_kept: true,
        }
    }
}

impl Default for Rules {
    fn default() -> Self {
        Self::corrected()
    }
}
