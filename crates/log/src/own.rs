//! What each thread slot has of the log: the record that it is appending, and its shares in the sums.
//!
//! ```text
//! offset  size  field
//!      0     8  intent      1: about to reserve; LSN | 2: has reserved
//!      8     8  appended    bytes of all records that its threads have appended
//!     16     8  will_be     `appended` when the record in hand is published; the same if there is none
//!     24     8  claimed     bytes of all claims that its threads have made, less what they gave back
//!     32     8  reserved    bytes reserved for rollbacks
//!     40     4  beside      how many of its threads wait for room beside the line
//!     44     4  keeps_more  how many of its threads may keep more (C6 in `append.rs`)
//!     48     8  place       where its thread stands in line (N1 in `line.rs`): its ticket, or 0
//!     56     8  inherited   of `reserved`: what transactions of the dead need, which this process is going to end
//! ```
//! O1. A record is in hand while `will_be` differs from `appended`. `intent` is stored before `will_be`, and that
//!     before the tail is raised. So whoever has seen the tail raised finds the record in hand, or published.
//! O2. Only the slot's thread stores `place`, `inherited` and the first three, only the holder of the room's latch the
//!     others. So the sums that the holder keeps can be computed again from all slots (R4 in `room.rs`).
//! O3. A slot may give back or append what another of its process has claimed. So sums count modulo 2^64, and only
//!     those of a whole process say something.

use ledgerstone_region::atomic::AtomicU64;
use ledgerstone_region::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
#[cfg(not(loom))]
use ledgerstone_region::{atomic::AtomicU32, shared};

#[cfg(not(loom))]
shared! {
    /// See the file's beginning.
    #[repr(align(64))]
    pub(crate) struct Own {
        pub intent: AtomicU64,
        pub appended: AtomicU64,
        pub will_be: AtomicU64,
        pub claimed: AtomicU64,
        pub reserved: AtomicU64,
        pub beside: AtomicU32,
        pub keeps_more: AtomicU32,
        pub place: AtomicU64,
        pub inherited: AtomicU64,
    } size 64
}

#[cfg(not(loom))]
impl Own {
    #[inline(always)]
    pub fn in_hand(&self) -> InHand<'_> {
        InHand { intent: &self.intent, appended: &self.appended, will_be: &self.will_be }
    }
}

const ANNOUNCED: u64 = 1;
const PLACED: u64 = 2;
const MARKS: u64 = 7;

/// The words of the record in hand. Borrowed, so that a model has them among loom's.
#[derive(Clone, Copy)]
pub(crate) struct InHand<'o> {
    pub intent: &'o AtomicU64,
    pub appended: &'o AtomicU64,
    pub will_be: &'o AtomicU64,
}

/// What others see of a record in hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Intent {
    /// It is about to reserve.
    Announced,
    /// It has reserved.
    Placed { lsn: u64, bytes: u64 },
}

impl InHand<'_> {
    /// Reserves `bytes` at the tail, and says where.
    #[inline(always)]
    pub fn reserve(&self, tail: &AtomicU64, bytes: u64) -> u64 {
        let appended = self.appended.load(Relaxed); // Ours (O2).
        if !cfg!(feature = "planted-unannounced") {
            self.intent.store(ANNOUNCED, Release); // Pairs with the load in `seen`.
            self.will_be.store(appended.wrapping_add(bytes), Release); // O1
        }
        let lsn = tail.fetch_add(bytes, SeqCst);
        self.intent.store(lsn | PLACED, Release);
        if cfg!(feature = "planted-unannounced") {
            self.will_be.store(appended.wrapping_add(bytes), Release);
        }
        lsn
    }

    /// The record is published.
    #[inline(always)]
    pub fn end(&self) {
        self.appended.store(self.will_be.load(Relaxed), Release); // Pairs with the loads in `seen`.
    }

    /// What it is about, if there is one. Of a thread that lives, it may be over a moment later.
    pub fn seen(&self) -> Option<Intent> {
        loop {
            let will_be = self.will_be.load(Acquire);
            let intent = self.intent.load(Acquire);
            let appended = self.appended.load(Acquire);
            if self.will_be.load(Relaxed) != will_be {
                continue; // Another one meanwhile.
            }
            let bytes = will_be.wrapping_sub(appended);
            return match intent & MARKS {
                _ if bytes == 0 => None,
                PLACED => Some(Intent::Placed { lsn: intent & !MARKS, bytes }),
                _ => Some(Intent::Announced),
            };
        }
    }

    /// Where the last record of the slot is that has come to its place, published or filled. For a repairer.
    #[cfg(not(loom))]
    pub fn placed(&self) -> Option<u64> {
        let intent = self.intent.load(Acquire);
        (intent & MARKS == PLACED).then_some(intent & !MARKS)
    }

    /// For a repairer: the record of the dead never came to its place.
    pub fn forget(&self) {
        self.will_be.store(self.appended.load(Relaxed), Relaxed);
    }
}
