//! What survivors do about a process that died while the data file grew or shrank.
//!
//! G1. Who dies while the file grows, or makes a map, leaves nothing: the number of pages is raised last, and a map is
//!     a page. So the latch is taken over and given back. The file is longer than it says, and grows from there again.
//! G2. Who shrinks says so before the number of pages is lowered, until the file is cut. From then on pages behind the
//!     end may be gone from memory and not from the file, where they are what they once were. A map among them would
//!     be believed. So whoever repairs keeps the latch, and a thread of the same process finishes the cut before it
//!     ends transactions of the dead, since those may let the file grow.
//! G3. Until then no checkpoint is taken (H4 in `shrink.rs`): whoever keeps the latch keeps that of checkpoints, too.
//!     Both have the name of whoever repairs, who may want the latter before that.
//! G4. The record is appended again: the dead may not have come to it. It says the number of pages that stands.
//! G5. While one thread repairs, another of its process may be finishing a cut. Who repairs takes the latch of
//!     checkpoints over, says that it is kept, and then looks whether the cut is over. Who finishes the cut says that
//!     it is over, and then looks whether the latch is kept. Whoever takes back what was said gives the latch back: one
//!     of the two, by one exchange.

use ledgerstone_region::atomic::Ordering::{Relaxed, SeqCst};
use ledgerstone_region::{AnotherDied, Dead, Repair, SlotNo, sync};

use crate::{HEIR, KEPT, SHRINKS, Space, SpaceError};

/// Whoever waits for the end of a cut looks so often.
const LOOK_NS: u64 = 1_000_000;

impl Space {
    /// For a repair that has taken the latch of checkpoints over from the dead: whether it gives that back at once.
    /// Otherwise the latch is kept until the cut is finished (G5). To be called after this crate's part of the repair.
    #[must_use = "the latch is to be given back"]
    pub fn may_give_checkpoints_back(&self) -> bool {
        self.words[KEPT].store(1, SeqCst);
        let is_over = !self.is_half_cut() || self.engine.is_failed();
        is_over && self.words[KEPT].swap(0, SeqCst) != 0
    }

    /// Finishes a cut of the file that a repair of this process has found half done. When it is whole, calls
    /// `give_checkpoints_back` if the latch of checkpoints was kept for it. To be called before transactions of the
    /// dead are ended.
    ///
    /// # Errors
    /// The log or the disk refuses. The environment has failed then.
    pub fn finish_cut(&self, give_checkpoints_back: impl FnOnce()) -> Result<(), SpaceError> {
        let heir = self.words[HEIR].load(SeqCst);
        let Some(slot) = heir.checked_sub(1).map(|slot| SlotNo(slot as u16)) else { return Ok(()) };
        let is_ours =
            self.engine.slots.is_of_us(slot) && self.words[HEIR].compare_exchange(heir, 0, SeqCst, Relaxed).is_ok();
        if is_ours {
            let finished = self.cut_again();
            let finished = finished
                .inspect_err(|error| self.engine.fail(&format!("cutting the data file after a death: {error}")));
            if self.words[KEPT].swap(0, SeqCst) != 0 {
                give_checkpoints_back();
            }
            self.growth.unlatch_exclusive(); // Also after a failure, which whoever waits then learns of.
            finished?;
        }
        Ok(())
    }

    /// Waits until another thread of this process has finished the cut that the calling one has found half done (G3).
    pub fn await_finished_cut(&self) {
        let is_mine = || self.growth.owner().is_some_and(|owner| self.engine.slots.at_hand() == Some(owner));
        while is_mine() && !self.engine.is_failed() {
            sync::sleep_ns(LOOK_NS);
        }
    }

    /// Whether a cut of the file is half done.
    #[must_use]
    pub fn is_half_cut(&self) -> bool {
        self.words[SHRINKS].load(SeqCst) != 0
    }

    /// Whether the file may grow.
    #[must_use]
    pub fn may_grow(&self) -> bool {
        self.growth.is_free()
    }
}

impl Repair for Space {
    fn repair(&self, dead: &Dead<'_>) -> Result<(), AnotherDied> {
        let me = self.engine.slots.current();
        if let Some(owner) = self.growth.owner()
            && dead.has(owner)
            && self.growth.take_over(owner, me)
        {
            self.words[KEPT].store(0, SeqCst); // By a repairer that has died.
            if self.is_half_cut() {
                self.words[HEIR].store(u64::from(me.0) + 1, SeqCst); // G2
            } else {
                self.words[HEIR].store(0, SeqCst); // Of a repairer that has died.
                self.growth.unlatch_exclusive();
            }
        }
        Ok(())
    }
}
