//! Whether transactions may begin, and how a close decides that none begins any more.
//!
//! E1. Once [`Begins::end`] has said yes, no transaction begins. A transaction that begins takes a slot and then looks
//!     at `state`; a close sets `state` and then looks at the slots. All four are sequentially consistent, so one of
//!     them sees the other. A thread that sees a slot taken also sees what its taker did before, such as counting
//!     itself among the users of a handle.
//! E2. A thread that finds that another one decides waits, and obeys the decision. So it is not open, although it has a
//!     slot and has counted itself. Otherwise threads that begin again and again, and one that decides again and again,
//!     could keep each other up. A decision is soon made, and threads that waited for it still wait at the next one.
//! E3. `waiting` counts no thread that may begin before the decision that reads it. A thread takes itself off and then
//!     looks at `state` once more: only what it finds then counts. A close sets `state` and then reads `waiting`. All
//!     four are sequentially consistent. So a thread that was read as waiting looks after `state` was set, and waits
//!     again or is refused. A thread that found `state` open before that was not read as waiting.
//! E4. `waiting` is read before the users of a handle are counted. A thread counts itself among those before it waits,
//!     and stays there until the decision. So every thread that was read as waiting is among the users counted. The
//!     difference is no smaller than the number of open transactions.
//!
//! While no thread decides, a transaction that begins writes nothing here.
//!
//! Modelled under loom (`loom_begins.rs`), which knows no sequentially consistent accesses: there, a fence stands for
//! each (`order`).

use ledgerstone_region::atomic::{AtomicU32, Ordering::SeqCst};
use ledgerstone_region::sync;

/// Transactions may begin.
const OPEN: u32 = 0;
/// A close is looking whether it may.
const DECIDING: u32 = 1;
/// No transaction begins any more.
const ENDED: u32 = 2;
/// How long one sleep for the decision lasts.
const LOOK_NS: u64 = 20_000;

/// See the invariants of this file.
#[derive(Default)]
pub(crate) struct Begins {
    /// [`OPEN`], [`DECIDING`] or [`ENDED`].
    state: AtomicU32,
    /// Users' threads that wait for the decision (E3).
    waiting: AtomicU32,
}

/// Puts what is before and what is after into the one order that everybody sees.
#[inline(always)]
fn order() {
    #[cfg(loom)]
    ledgerstone_region::atomic::fence(SeqCst);
}

impl Begins {
    /// Says whether a transaction that has its slot may begin, and waits while another thread decides. `is_users`: it
    /// is counted among the users of a handle.
    #[inline]
    pub(crate) fn may_begin(&self, is_users: bool) -> bool {
        if !cfg!(feature = "planted-begin-unordered") {
            order(); // E1
        }
        self.state.load(SeqCst) == OPEN || !self.have_ended(u32::from(is_users))
    }

    /// Waits while another thread decides, which takes it a look at the slots.
    #[cold]
    fn have_ended(&self, waits_as: u32) -> bool {
        loop {
            self.waiting.fetch_add(waits_as, SeqCst);
            let mut round = 0;
            while self.state.load(SeqCst) == DECIDING {
                if sync::spin(round) {
                    round += 1;
                } else {
                    sync::sleep_ns(LOOK_NS);
                }
            }
            sync::yield_point("begin: it is decided");
            let is_open_before = cfg!(feature = "planted-taken-off-late") && self.state.load(SeqCst) == OPEN;
            self.waiting.fetch_sub(waits_as, SeqCst);
            if is_open_before {
                return false;
            }
            sync::yield_point("begin: waits no longer");
            order();
            match self.state.load(SeqCst) {
                DECIDING => {} // E3
                state => return state == ENDED,
            }
        }
    }

    /// Ends the beginning of transactions for good if `may` says so, which is told how many users' threads wait for the
    /// decision. Says whether none begins any more.
    pub(crate) fn end(&self, may: impl FnOnce(u32) -> bool) -> bool {
        while self.state.compare_exchange(OPEN, DECIDING, SeqCst, SeqCst).is_err() {
            if self.have_ended(0) {
                return true;
            }
        }
        sync::yield_point("begin: deciding");
        order();
        let ends = may(self.waiting.load(SeqCst));
        self.state.store(if ends { ENDED } else { OPEN }, SeqCst);
        ends
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    use super::*;

    fn waits(begins: &Arc<Begins>, is_users: bool) -> sync::JoinHandle<bool> {
        let begins = Arc::clone(begins);
        sync::spawn("begins", move || begins.may_begin(is_users))
    }

    /// Two threads begin and end transactions without a pause, and a third one decides without a pause, in many orders.
    /// None of the two begins after it was taken off, and in the end the third one comes through.
    #[test]
    fn a_thread_that_waits_for_a_decision_is_not_in_the_way_of_the_next_one() {
        let mut taken_off = 0;
        for seed in 0..300 {
            let run = move || {
                let begins = Arc::new(Begins::default());
                let users = Arc::new(AtomicU32::new(0));
                let has_ended = Arc::new(AtomicBool::new(false));
                let begin_all_the_time = || {
                    let (begins, users, has_ended) = (Arc::clone(&begins), Arc::clone(&users), Arc::clone(&has_ended));
                    sync::spawn("begins", move || {
                        loop {
                            users.fetch_add(1, SeqCst);
                            sync::yield_point("counted");
                            if !begins.may_begin(true) {
                                return;
                            }
                            assert!(!has_ended.load(SeqCst), "a transaction begins after the end");
                            sync::yield_point("open");
                            assert!(!has_ended.load(SeqCst), "a transaction is open after the end");
                            users.fetch_sub(1, SeqCst);
                            sync::yield_point("between two");
                        }
                    })
                };
                let threads = [begin_all_the_time(), begin_all_the_time()];
                let mut most = 0;
                let mut decide = |waiting: u32| {
                    sync::yield_point("counting");
                    let may = users.load(SeqCst) == waiting;
                    has_ended.store(may, SeqCst);
                    most = if may { waiting } else { 0 };
                    may
                };
                while !begins.end(&mut decide) {
                    sync::yield_point("between two decisions");
                }
                threads.into_iter().for_each(|thread| thread.join().unwrap());
                most
            };
            taken_off = taken_off.max(sync::Scheduler::run(seed, run).unwrap());
        }
        assert_eq!(taken_off, 2, "no thread was met that waited");
    }

    /// They are not counted among the users of a handle. So nothing may be taken off for them there.
    #[test]
    fn transactions_of_the_library_wait_uncounted() {
        let begins = Arc::new(Begins::default());
        begins.state.store(DECIDING, SeqCst);
        let own = waits(&begins, false);
        let users = waits(&begins, true);
        while begins.waiting.load(SeqCst) < 1 {
            std::thread::yield_now();
        }
        for _ in 0..1000 {
            assert_eq!(begins.waiting.load(SeqCst), 1);
            std::thread::yield_now();
        }
        begins.state.store(ENDED, SeqCst);
        assert_eq!([own.join().unwrap(), users.join().unwrap()], [false; 2]);
        assert!(begins.end(|_| unreachable!("it has ended")));
    }
}
