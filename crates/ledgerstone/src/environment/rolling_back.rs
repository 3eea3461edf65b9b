//! Large transactions that were interrupted, and are rolled back after the opening.

use super::Environment;
use crate::Error;
use crate::flow::{Flow, go_on};
use crate::inner::{RollbackProgress, RollingBack};

impl Environment {
    /// The transactions that a crash has interrupted, and that are still being rolled back, the next to end first.
    /// Their tables are locked until then. Empty if there are none, as nearly always:
    /// [`Options::restart_undo_bytes`](crate::Options::restart_undo_bytes).
    #[must_use]
    pub fn rolling_back(&self) -> Vec<RollingBack> {
        self.inner().rollbacks.list()
    }

    /// Waits until all interrupted transactions are rolled back, and all pages have the changes that the log has. From
    /// then on nothing shows that there was a crash.
    ///
    /// A program that closes the environment before leaves the rest to the next open. Work is lost then, since changes
    /// are gathered and sorted before they are taken back.
    ///
    /// # Blocking
    /// Waits as long as the rollbacks take. Beside a large table that is much larger than the cache, that is minutes.
    ///
    /// # Errors
    /// [`Error::Failed`] if a rollback failed, or the environment was closed meanwhile: the next open goes on with it.
    pub fn wait_rolled_back(&self) -> Result<(), Error> {
        self.wait_rolled_back_with(|_| ())
    }

    /// The same, and tells `progress` a few times a second how far that is. `progress` may end the wait, but not the
    /// rollbacks.
    ///
    /// # Blocking
    /// As [`Environment::wait_rolled_back`].
    ///
    /// # Errors
    /// As [`Environment::wait_rolled_back`]. [`Error::Cancelled`] if `progress` has ended it.
    pub fn wait_rolled_back_with<F: Flow>(&self, mut progress: impl FnMut(RollbackProgress) -> F) -> Result<(), Error> {
        self.inner().wait_rolled_back(|at| go_on(progress(at).flow()))
    }
}
