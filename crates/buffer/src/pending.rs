//! Pages that lack changes which the log has: a restart has found them, and they are repeated when a page comes in.
//!
//! P1. Whoever brings a page in has it latched exclusively. What is pending for it is repeated before that latch is
//!     given back. So nobody sees a page without its changes, and a page in memory lacks none.
//! P2. Whoever reads the data file past the cache, cuts it, or says in a checkpoint what is in it, first waits until
//!     nothing is pending.
//! P3. Where changes cannot be repeated, the page goes away again, and they stay pending.
//! P4. A page that is about to be formatted anew is brought in, too. Its old bytes are needed by nobody, but whoever
//!     asks for it may fail before it formats the page. Then the page is what it was, and not a page that nobody made.
//! P5. What is pending is known to the process that has made the region. So nobody joins before nothing is. It says
//!     what is pending before it lets others join.
//!
//! A hit costs nothing of this, and a miss one look at a word that is hardly ever written.
//!
//! Modelled under loom (`loom_put_off.rs`). This file does not know what a change is.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use ledgerstone_page::PageId;

use crate::cache::Cache;
use crate::error::BufferError;
use crate::guard::ExclusivePage;
use crate::put_off::PutOff;

/// Has changes that pages in the data file may lack.
pub trait PendingRedo: Send + Sync {
    /// What is pending for a page, which the caller has latched exclusively. `None`: nothing.
    fn of(&self, page: PageId) -> Option<PendingChanges>;

    /// Repeats it on the page, which has come in just now, and forgets it. `is_void`: the old bytes could not be used,
    /// and the page is all zeros.
    ///
    /// # Errors
    /// Page and log contradict each other. The environment has failed.
    fn redo(&self, page: &mut ExclusivePage<'_>, changes: &PendingChanges, is_void: bool) -> Result<(), BufferError>;
}

/// The changes of one page.
#[derive(Debug)]
pub struct PendingChanges {
    /// Whether its bytes in the data file are needed.
    pub needs: NeedsOld,
    /// Which changes, in their order: a list that only the one who made it understands.
    pub list: Vec<u32>,
}

/// What changes of a page need of its bytes in the data file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NeedsOld {
    /// All of them.
    Yes,
    /// One that is not the first formats the page. Damaged bytes can be done without.
    UnlessDamaged,
    /// The first one formats it.
    No,
}

/// How long one sleep until nothing is pending lasts at most: a failure rings for nobody.
const LOOK_NS: u64 = 100_000_000;

/// What is pending for the pages of a cache.
pub(crate) struct Pending(PutOff<dyn PendingRedo>);

impl Pending {
    pub(crate) fn none() -> Pending {
        Pending(PutOff::nothing())
    }

    /// What is pending for a page that the caller has latched exclusively.
    #[inline]
    pub(crate) fn of(&self, page: PageId) -> Option<PendingPage> {
        let redo = self.0.get()?;
        let changes = redo.of(page)?;
        Some(PendingPage { redo, changes })
    }
}

/// What is pending for one page.
pub(crate) struct PendingPage {
    redo: Arc<dyn PendingRedo>,
    changes: PendingChanges,
}

impl PendingPage {
    pub(crate) fn needs(&self) -> NeedsOld {
        self.changes.needs
    }

    /// Repeats it (P1, P3).
    pub(crate) fn redo<'c>(
        &self,
        mut page: ExclusivePage<'c>,
        is_void: bool,
    ) -> Result<ExclusivePage<'c>, BufferError> {
        match self.redo.redo(&mut page, &self.changes, is_void) {
            Ok(()) => Ok(page),
            Err(error) => {
                page.take_out();
                Err(error)
            }
        }
    }
}

impl Cache {
    /// From now on, pages that come in get these changes first. To be called before any page is in memory.
    pub fn set_pending(&self, redo: Arc<dyn PendingRedo>) {
        self.pool.frames.control().pending.store(1, SeqCst);
        self.pending.0.set(redo);
    }

    /// Nothing is pending any more.
    pub fn clear_pending(&self) {
        self.pending.0.clear();
        self.pool.frames.control().pending.store(0, SeqCst);
    }

    /// Whether pages in the data file may lack changes that are pending.
    #[must_use]
    pub fn has_pending(&self) -> bool {
        self.pending.0.is_there()
    }

    /// Waits for that long at most, or until nothing is pending.
    pub fn wait_redone_within(&self, ns: u64) {
        self.pending.0.wait_within(ns);
    }

    /// Waits until nothing is pending (P2). Hold no latch of a page.
    ///
    /// # Errors
    /// `Failed`: it will never be.
    pub fn wait_redone(&self) -> Result<(), BufferError> {
        while self.has_pending() {
            self.check_writes()?;
            self.wait_redone_within(LOOK_NS);
        }
        Ok(())
    }
}
