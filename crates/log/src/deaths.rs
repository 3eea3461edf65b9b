//! A log as the threads of another simulated process have it, and what a death must not leave.

use std::sync::Arc;

use ledgerstone_disk::Disk;
use ledgerstone_region::atomic::Ordering::{Relaxed, SeqCst};
use ledgerstone_region::{Region, SlotTable};

use crate::config::LogConfig;
use crate::control::ControlFile;
use crate::error::LogError;
use crate::flusher::ABSENT;
use crate::group_commit::FlushState;
use crate::log::Log;
use crate::planted::Part;
use crate::ring;

impl Log {
    /// The same log in another view of its region, with `slots` of that view, on a disk of its own. Pins, wakers and
    /// the flusher are each process's own. Its repairs leave out what is `forgotten`.
    ///
    /// # Errors
    /// The view is another region's. The disk's.
    pub fn attach(
        &self,
        view: &Region,
        slots: Arc<SlotTable>,
        disk: Arc<dyn Disk>,
        forgotten: Option<Part>,
    ) -> Result<Arc<Log>, LogError> {
        let join = |_| ControlFile::join(&*disk, view, &slots).map(Arc::new);
        let control = self.control.as_ref().map(join).transpose();
        let control = control.map_err(LogError::from)?;
        let mut log = Log::joined(LogConfig {
            slots: Some(slots),
            segment_bytes: self.segments.segment_bytes(),
            buffer_bytes: self.ring.len() as u64 * 8,
            kept_claim_count: self.kept_claim_count,
            group: self.group,
            async_delay_ns: self.async_delay_ns,
            spare_segments: self.spare_segments,
            control,
            ..LogConfig::new(disk, view.clone(), self.environment)
        })?;
        log.forgotten = forgotten;
        Ok(Arc::new(log))
    }

    /// What is claimed, reserved, latched, led or waited for. None if nothing is: so it is when nobody does anything.
    #[must_use]
    pub fn left_over(&self) -> Option<String> {
        let state = &*self.state;
        let tail = state.tail.load(SeqCst);
        let owners = [&state.room_latch, &state.segments_latch].map(|latch| latch.owner());
        let appended = self.own.iter().fold(0u64, |sum, own| sum.wrapping_add(own.appended.load(Relaxed)));
        let in_hand = self.own.iter().filter(|own| own.in_hand().seen().is_some()).count();
        // B1
        let ahead = (tail..state.zeroed_limit.load(SeqCst)).step_by(8);
        let written_ahead = ahead.filter(|at| ring::first_word(&self.ring, *at) != 0).count();
        let of_nobody = tail - state.first.load(Relaxed) - state.filled.load(Relaxed);
        let left = [
            ("claimed", state.claim_head.load(SeqCst).wrapping_sub(tail)),
            ("appended by nobody", of_nobody.wrapping_sub(appended)),
            ("reserved", state.reserved.load(SeqCst)),
            ("in hand", in_hand as u64),
            ("latched", owners.iter().flatten().count() as u64),
            ("wait beside", u64::from(state.undo_sleepers.load(SeqCst))),
            ("keep more", u64::from(state.long_keepers.load(SeqCst))),
            ("in line", self.own.iter().filter(|own| own.place.load(SeqCst) != 0).count() as u64),
            ("head of the line", u64::from(self.line().head().is_some())),
            ("wanted in line", state.line_wanted.load(SeqCst) + state.head_wants.load(SeqCst)),
            ("led", u64::from(FlushState(state.flush.load(SeqCst)).is_leading())),
            ("a flusher", u64::from(state.flusher_state.load(SeqCst) != ABSENT)),
            ("pinned by the dead", self.handles.of_others().filter(|(of, _)| self.slots.has_died(*of)).count() as u64),
            ("words written ahead", written_ahead as u64),
            ("not zeroed", state.zero_begun.load(SeqCst) - state.zeroed_limit.load(SeqCst)),
            ("no room", (state.durable.load(SeqCst) + self.ring.len() as u64 * 4) - state.zeroed_limit.load(SeqCst)),
        ];
        let found: Vec<String> =
            left.iter().filter(|(_, left)| *left != 0).map(|(what, left)| format!("{what}: {left}")).collect();
        (!found.is_empty()).then(|| found.join(", "))
    }
}
