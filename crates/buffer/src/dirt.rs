//! The words of a frame that say what of its page is not yet durable in the data file, and who is writing it (F2 to F4
//! in `frame.rs`).
//!
//! `rec_lsn` is for the changes that no write has taken along yet, `flushing_rec_lsn` for those that the write in
//! flight takes along. Functions over words, so that they can be model-checked: `loom_dirt.rs`.
//!
//! If the thread that writes the page dies, its name goes from the frame's state, and nothing else. The changes that it
//! has taken along stay in `flushing_rec_lsn` then. The page is dirty as before, and whoever writes it next takes them
//! along with all later ones.
//!
//! An LSN is a multiple of 8. The lowest bit says that the change there formats the page (F7).

use ledgerstone_page::Lsn;
use ledgerstone_region::SlotNo;
use ledgerstone_region::atomic::{AtomicU64, Ordering::SeqCst};

/// F7.
const FORMATS: u64 = 1;

/// What stands for a change at `lsn`.
pub(crate) fn of_change(lsn: Lsn, formats: bool) -> u64 {
    lsn.0 | if formats { FORMATS } else { 0 }
}

/// The LSN of a word; none if no change stands there.
#[cfg(not(loom))]
pub(crate) fn lsn_of(word: u64) -> Option<Lsn> {
    (word != 0).then_some(Lsn(word & !FORMATS))
}

/// Whether the first change of a word formats the page.
pub(crate) fn formats(word: u64) -> bool {
    word & FORMATS != 0
}

/// The oldest change that is not yet durable in the data file. The order of the two loads is F3.
pub(crate) fn oldest_change(rec_lsn: &AtomicU64, flushing_rec_lsn: &AtomicU64) -> Option<Lsn> {
    let rec_lsn = rec_lsn.load(SeqCst);
    let flushing = flushing_rec_lsn.load(SeqCst);
    [rec_lsn, flushing].into_iter().filter(|&lsn| lsn != 0).min().map(|lsn| Lsn(lsn & !FORMATS))
}

/// Whether the change from which on the page is not durable formats it (F7).
#[cfg(not(loom))]
pub(crate) fn begins_with_format(rec_lsn: &AtomicU64, flushing_rec_lsn: &AtomicU64) -> bool {
    match flushing_rec_lsn.load(SeqCst) {
        0 => formats(rec_lsn.load(SeqCst)),
        flushing => formats(flushing),
    }
}

/// Takes the write of the page for a thread (F3). The page's latch is held shared, so `rec_lsn` and the page in `state`
/// stand still. `None` if the page is clean or its write is another's.
pub(crate) fn take_write(
    state: &AtomicU64,
    rec_lsn: &AtomicU64,
    flushing_rec_lsn: &AtomicU64,
    me: SlotNo,
) -> Option<Lsn> {
    let before = state.load(SeqCst);
    if state::who(before).is_some()
        || state.compare_exchange(before, before | state::of_who(me), SeqCst, SeqCst).is_err()
    {
        return None;
    }
    // From here on we are the only one that changes these two.
    if cfg!(feature = "planted-clean-too-soon") {
        let first = rec_lsn.swap(0, SeqCst);
        flushing_rec_lsn.store(first, SeqCst);
        return Some(Lsn(first & !FORMATS)).filter(|lsn| lsn.0 != 0);
    }
    let first = rec_lsn.load(SeqCst);
    let left_by_the_dead = flushing_rec_lsn.load(SeqCst);
    if first == 0 && left_by_the_dead == 0 {
        give_write_back(state);
        return None;
    }
    if left_by_the_dead == 0 {
        flushing_rec_lsn.store(first, SeqCst);
    }
    rec_lsn.store(0, SeqCst);
    Some(Lsn(flushing_rec_lsn.load(SeqCst) & !FORMATS))
}

/// The write is done, and the data file is synced.
pub(crate) fn finish_write(state: &AtomicU64, flushing_rec_lsn: &AtomicU64) {
    flushing_rec_lsn.store(0, SeqCst);
    give_write_back(state);
}

/// The write is nobody's any more: it was not begun, or is done, or its thread has died.
pub(crate) fn give_write_back(state: &AtomicU64) {
    state.fetch_and(state::PAGE, SeqCst);
}

/// What a frame's first word is made of (F9 in `frame.rs`).
pub(crate) mod state {
    use ledgerstone_region::SlotNo;

    /// No page, and nobody has it in hand.
    #[cfg(not(loom))]
    pub(crate) const FREE: u64 = 0;
    /// The bits of the page.
    pub(crate) const PAGE: u64 = (1 << WHO_SHIFT) - 1;
    /// In the bits of the page: a thread has the frame in hand.
    #[cfg(not(loom))]
    pub(crate) const IN_HAND: u64 = PAGE;
    const WHO_SHIFT: u32 = 48;

    /// A thread in its place.
    pub(crate) fn of_who(slot: SlotNo) -> u64 {
        (u64::from(slot.0) + 1) << WHO_SHIFT
    }

    /// The thread that a state names.
    pub(crate) fn who(state: u64) -> Option<SlotNo> {
        ((state >> WHO_SHIFT) as u16).checked_sub(1).map(SlotNo)
    }
}
