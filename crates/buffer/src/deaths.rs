//! What a death must not leave in the cache.

use std::fmt::Write;

use ledgerstone_page::PageId;
use ledgerstone_region::SlotNo;

use crate::cache::Cache;
use crate::frame_no::FrameNo;

impl Cache {
    /// What is owned, latched, written or waited for. None if nothing is: so it is when nobody does anything. Takes
    /// latches and frames, and gives them back.
    #[must_use]
    pub fn left_over(&self) -> Option<String> {
        let frames = &self.pool.frames;
        let mut wrong = String::new();
        let mut note = |what: String| _ = writeln!(wrong, "{what}");
        let me = self.pool.slot();
        for (id, entry) in self.seen(PageId(0)) {
            if !entry.latch.try_exclusive(me) {
                note(format!("{id} is latched: {:?}", entry.latch));
                continue;
            }
            entry.latch.unlatch_exclusive_unchanged();
            match entry.latch.try_shared() {
                true => entry.latch.unlatch_shared(),
                false => note(format!("{id} cannot be latched shared: {:?}", entry.latch)),
            }
            if let Some(frame) = entry.frame()
                && frames.descriptor(frame).page() != Some(id)
            {
                note(format!("{id} is in {frame}, which does not say so"));
            }
        }
        let mut in_use = 0;
        for frame in (0..frames.count()).map(FrameNo) {
            let descriptor = frames.descriptor(frame);
            if let Some(owner) = descriptor.in_hand_of() {
                note(format!("{frame} is in the hand of {owner}"));
            }
            if let Some(writer) = descriptor.writer() {
                note(format!("{frame} is being written by {writer}"));
            }
            match descriptor.page() {
                Some(id) => {
                    in_use += 1;
                    if self.entry_there(id).and_then(|entry| entry.frame()) != Some(frame) {
                        note(format!("{frame} has {id}, which is elsewhere"));
                    }
                }
                None if descriptor.is_dirty() => note(format!("{frame} is free and dirty")),
                None => {}
            }
        }
        let free: Vec<_> = std::iter::from_fn(|| frames.take_free(me)).collect();
        if free.len() + in_use != frames.count() as usize {
            note(format!("{in_use} frames have pages, {} are found free, of {}", free.len(), frames.count()));
        }
        free.into_iter().for_each(|frame| frames.give_back(frame));
        for (lane, owner) in self.lane_owners() {
            note(format!("lane {lane} is {owner}'s"));
        }
        if frames.has_device_wait() {
            note("somebody waits for the device".to_owned());
        }
        if frames.control().progress_sleepers() != 0 {
            note("somebody sleeps for the bell".to_owned());
        }
        for no in (0..self.pool.slots.count()).map(|no| SlotNo(no as u16)) {
            if !self.pool.slots.held(no).is_empty() {
                note(format!("{no} holds pages shared"));
            }
        }
        (!wrong.is_empty()).then_some(wrong)
    }
}
