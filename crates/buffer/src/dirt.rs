//! The two words of a frame that say what of its page is not yet durable in the data file (F2 to F4 in `frame.rs`).
//!
//! `rec_lsn` is for the changes that no write has taken along yet, `flushing_rec_lsn` for those that the write in
//! flight takes along. Functions over words, so that they can be model-checked: `loom_dirt.rs`.
//!
//! An LSN is a multiple of 8. The lowest bit says that the change there formats the page (F7).

use ledgerstone_page::Lsn;
use ledgerstone_region::atomic::{AtomicU64, Ordering::SeqCst};

/// F7.
const FORMATS: u64 = 1;

/// What stands for a change at `lsn`.
pub(crate) fn of_change(lsn: Lsn, formats: bool) -> u64 {
    lsn.0 | if formats { FORMATS } else { 0 }
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

/// Takes the write of the page (F3). The page's latch is held shared, so `rec_lsn` stands still. `None` if the page is
/// clean or its write is another's.
#[cfg(not(feature = "planted-clean-too-soon"))]
pub(crate) fn take_write(rec_lsn: &AtomicU64, flushing_rec_lsn: &AtomicU64) -> Option<Lsn> {
    let first = rec_lsn.load(SeqCst);
    if first == 0 || flushing_rec_lsn.compare_exchange(0, first, SeqCst, SeqCst).is_err() {
        return None;
    }
    // Two shared holders can come here one after the other: the second finds the write taken, or rec_lsn 0. If the
    // whole write of another was done between our load and our exchange, rec_lsn is 0 by now and there is nothing to
    // write.
    if rec_lsn.swap(0, SeqCst) == 0 {
        flushing_rec_lsn.store(0, SeqCst);
        return None;
    }
    Some(Lsn(first & !FORMATS))
}

/// The planted bug: for a moment the page looks clean.
#[cfg(feature = "planted-clean-too-soon")]
pub(crate) fn take_write(rec_lsn: &AtomicU64, flushing_rec_lsn: &AtomicU64) -> Option<Lsn> {
    let first = rec_lsn.swap(0, SeqCst);
    if first == 0 {
        return None;
    }
    flushing_rec_lsn.store(first, SeqCst);
    Some(Lsn(first & !FORMATS))
}
