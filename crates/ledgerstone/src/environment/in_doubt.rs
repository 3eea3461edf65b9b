//! Transactions in doubt, decided by name.

use super::Environment;
use crate::Error;
use crate::inner::InDoubt;
use crate::transaction::Committed;

impl Environment {
    /// All prepared transactions that are not decided, by global id. They are those of this run and those that a
    /// restart has found.
    #[must_use]
    pub fn in_doubt(&self) -> Vec<InDoubt> {
        self.inner().in_doubt.list()
    }

    /// Commits the transaction that was prepared as `global_id`, durably.
    ///
    /// Waits for the disk, to make the decision durable: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// [`Error::NotPrepared`] if there is none, or it is being decided elsewhere just now. [`Error::ReadOnly`] in an
    /// environment that was opened for reading. [`Error::Failed`] as for [`Prepared::commit`](crate::Prepared::commit).
    pub fn commit_in_doubt(&self, global_id: &[u8]) -> Result<Committed, Error> {
        self.inner().commit_in_doubt(global_id, None)
    }

    /// Rolls the transaction back that was prepared as `global_id`, durably.
    ///
    /// Waits for the disk, to make the decision durable: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`Environment::commit_in_doubt`].
    pub fn abort_in_doubt(&self, global_id: &[u8]) -> Result<(), Error> {
        self.inner().abort_in_doubt(global_id, None)
    }
}
