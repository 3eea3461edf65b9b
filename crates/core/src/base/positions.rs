//! The positions of named feeds, set and forgotten.

use ledgerstone_page::Lsn;

use super::Base;
use crate::Error;
use crate::keeper::KeeperId;

impl Base {
    /// Learns what other processes have done to named feeds. Under the latch of checkpoints.
    ///
    /// Waits for the disk: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// A failure of the disk, or damage.
    pub fn refresh_positions(&self) -> Result<(), Error> {
        self.positions.refresh(&*self.disk, (&self.engine.log, &self.keepers))
    }

    /// The position of a named feed, from where on the log is needed for it, and its id.
    ///
    /// Waits for the disk if another process has written positions: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// A failure of the disk, or damage.
    pub fn position(&self, name: &str) -> Result<Option<(Lsn, Lsn, KeeperId)>, Error> {
        if self.positions.are_old() {
            let _latched = self.latch(&self.checkpoint_latch[0])?;
            self.refresh_positions()?;
        }
        Ok(self.positions.place(name))
    }

    /// Sets the position of the named feed of this id, or of a new one, durably; gives the id.
    ///
    /// Waits for the disk: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// A failure of the disk, or damage.
    pub fn set_position(&self, named: (&str, Option<KeeperId>), position: Lsn, low: Lsn) -> Result<KeeperId, Error> {
        self.engine.in_a_call(|| {
            let _latched = self.latch(&self.checkpoint_latch[0])?;
            self.refresh_positions()?;
            let id = self.positions.set(&*self.disk, (&self.engine.log, &self.keepers), named, (position, low))?;
            if !self.control.state().has_feeds {
                // Of a file that is there (N3 in `keeper/positions.rs`).
                self.control.change(|state| state.has_feeds = true)?;
            }
            Ok(id)
        })
    }

    /// Forgets a named feed. False: there is none of that name.
    ///
    /// Waits for the disk: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// A failure of the disk, or damage.
    pub fn forget_position(&self, name: &str) -> Result<bool, Error> {
        self.engine.in_a_call(|| {
            let _latched = self.latch(&self.checkpoint_latch[0])?;
            self.refresh_positions()?;
            self.positions.forget(&*self.disk, &self.keepers, name)
        })
    }
}
