//! The line of those that wait for room in the buffer: who tries next, who sleeps, who is woken (C3 in `append.rs`).
//!
//! Over borrowed words, so that the real log keeps them in the region and a model among loom's. Knows nothing of the
//! room itself.
//!
//! ```text
//!  join ──► asleep, until all before it have left ──► head: tries, and sleeps until there may be room ──► leave
//! ```
//! N1. Tickets are served in their order. Only the head takes room, and a thread that leaves wakes only the next.
//! N2. A thread that frees room looks for a sleeping head afterwards, and a head looks for room after it has said that
//!     it sleeps. So one of them sees the other. Of several that free room one wakes it, by taking back what the head
//!     has said.
//! N3. `wanted` is what the head wants, and between two heads what the one before wanted. A thread that passes the line
//!     leaves that much room. So each head finds its room in the end, however large, though others pass. Not more is
//!     left, for all in line together. Room for a whole crowd may never be there. Then nobody would pass any more, and
//!     each claim would cost the way of a sleeper through the scheduler.

use ledgerstone_region::atomic::Ordering::{Relaxed, SeqCst};
use ledgerstone_region::atomic::{AtomicU32, AtomicU64, fence};
use ledgerstone_region::sync;

/// The words of a line.
pub(crate) struct Line<'l> {
    /// The next ticket, and the one whose turn it is. Both count up and wrap.
    pub next: &'l AtomicU32,
    pub turn: &'l AtomicU32,
    /// Bytes that a thread that passes leaves free (N3); 0 while nobody is in line.
    pub wanted: &'l AtomicU64,
    /// Bytes that the head sleeps for; 0 while it does not.
    pub head_wants: &'l AtomicU64,
    /// What they sleep on, by their tickets. Tickets that share a word wake each other for nothing, so there are about
    /// as many words as there may be threads.
    pub beds: &'l [AtomicU32],
}

/// What a head does that has found no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    /// Something has changed: tries again.
    Again,
    /// Sleeps until it is woken, at most for this long.
    Sleep(Option<u64>),
}

impl Line<'_> {
    /// Stands in line for `bytes` until it has them. As the head it calls `try_claim`, which says whether it has them
    /// by now, and `look`, which says whether it may sleep. `is_over` as in [`Line::await_turn`].
    #[cold]
    pub fn stand<E>(
        &self,
        bytes: u64,
        is_over: impl Fn() -> bool,
        try_claim: impl Fn() -> Result<bool, E>,
        look: impl Fn() -> Look,
    ) -> Result<(), E> {
        let ticket = self.join();
        self.await_turn(ticket, bytes, is_over);
        let result = loop {
            match try_claim() {
                Ok(true) => break Ok(()),
                Ok(false) => self.sleep_as_head(ticket, bytes, &look),
                Err(error) => break Err(error),
            }
        };
        self.leave();
        result
    }

    /// Joins the line; returns the ticket.
    pub fn join(&self) -> u32 {
        let ticket = self.next.fetch_add(1, SeqCst);
        fence(SeqCst); // Pairs with the one in `leave`: either the turn is seen, or the thread that leaves sees the ticket.
        ticket
    }

    /// Sleeps until it is the turn of the ticket, which is for so many bytes, or `is_over`: then nobody's turn comes
    /// any more, and all leave. The thread that makes it so calls [`Line::wake_all`] afterwards.
    pub fn await_turn(&self, ticket: u32, bytes: u64, is_over: impl Fn() -> bool) {
        let bed = self.bed(ticket);
        loop {
            let seen = bed.load(SeqCst);
            if self.turn.load(SeqCst) == ticket || is_over() {
                self.wanted.store(bytes, SeqCst);
                return;
            }
            sync::futex_wait(bed, seen, None);
        }
    }

    /// For the head: sleeps until [`Line::wake_head`], unless `look` finds something to do (N2).
    pub fn sleep_as_head(&self, ticket: u32, bytes: u64, look: impl FnOnce() -> Look) {
        let bed = self.bed(ticket);
        let seen = bed.load(SeqCst);
        self.head_wants.store(bytes, SeqCst);
        fence(SeqCst); // Pairs with what comes before `wake_head`.
        if let Look::Sleep(timeout_ns) = look() {
            sync::futex_wait(bed, seen, timeout_ns);
        }
        self.head_wants.store(0, SeqCst);
    }

    /// Leaves the line, with what was wanted or without it, and wakes the next.
    pub fn leave(&self) {
        if self.next.load(SeqCst) == self.turn.load(SeqCst).wrapping_add(1) {
            self.wanted.store(0, SeqCst); // Nobody is behind. A newcomer is not the head yet, and says what it wants.
        }
        let turn = self.turn.fetch_add(1, SeqCst).wrapping_add(1);
        fence(SeqCst);
        if self.next.load(SeqCst) != turn {
            self.wake(turn);
        }
    }

    /// Wakes the head if it sleeps and `is_worth_it` says so for the bytes it wants. To be called after room was freed,
    /// and after a sequentially consistent fence or read-modify-write (N2).
    pub fn wake_head(&self, is_worth_it: impl FnOnce(u64) -> bool) {
        let wants = self.head_wants.load(SeqCst);
        if wants != 0 && is_worth_it(wants) && self.head_wants.compare_exchange(wants, 0, SeqCst, Relaxed).is_ok() {
            // The head that said so has not left, or another has come to its place and looks for itself.
            self.wake(self.turn.load(SeqCst));
        }
    }

    /// Wakes everybody, once all are to leave. In every bed: a thread that leaves before its turn moves the turn on,
    /// past others that sleep.
    pub fn wake_all(&self) {
        self.beds.iter().for_each(Self::wake_bed);
    }

    fn wake(&self, ticket: u32) {
        Self::wake_bed(self.bed(ticket));
    }

    fn wake_bed(bed: &AtomicU32) {
        bed.fetch_add(1, SeqCst);
        sync::futex_wake(bed, u32::MAX);
    }

    fn bed(&self, ticket: u32) -> &AtomicU32 {
        &self.beds[ticket as usize % self.beds.len()]
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::*;

    #[derive(Default)]
    struct Words {
        next: AtomicU32,
        turn: AtomicU32,
        wanted: AtomicU64,
        head_wants: AtomicU64,
        beds: [AtomicU32; 4],
        is_over: AtomicBool,
    }

    impl Words {
        fn line(&self) -> Line<'_> {
            Line {
                next: &self.next,
                turn: &self.turn,
                wanted: &self.wanted,
                head_wants: &self.head_wants,
                beds: &self.beds,
            }
        }

        /// As a claim that finds no room until all is over.
        fn stand(&self) {
            let line = self.line();
            let ticket = line.join();
            line.await_turn(ticket, 8, || self.is_over.load(SeqCst));
            while !self.is_over.load(SeqCst) {
                let look = || if self.is_over.load(SeqCst) { Look::Again } else { Look::Sleep(None) };
                line.sleep_as_head(ticket, 8, look);
            }
            line.leave();
        }
    }

    #[test]
    fn whoever_passes_leaves_what_the_head_wants_and_no_more() {
        let words = Words::default();
        let wanted = || words.wanted.load(SeqCst);
        let line = words.line();
        let first = line.join();
        line.await_turn(first, 8, || false);
        let second = line.join();
        assert_eq!(wanted(), 8, "the second is not the head yet");
        line.leave();
        assert_eq!(wanted(), 8, "until the next has woken");
        line.await_turn(second, 1000, || false);
        assert_eq!(wanted(), 1000);
        line.leave();
        assert_eq!(wanted(), 0, "nobody is in line");
    }

    /// A thread that comes between the failure and the call that wakes leaves at once, and the turn with it.
    #[test]
    fn all_are_woken_though_somebody_has_left_before_his_turn() {
        let words = Arc::new(Words::default());
        let (done, all) = channel();
        let stand = || {
            let (words, done) = (Arc::clone(&words), done.clone());
            std::thread::spawn(move || {
                words.stand();
                done.send(()).unwrap();
            });
        };
        stand();
        while words.head_wants.load(SeqCst) == 0 {
            std::thread::yield_now();
        }
        (0..2).for_each(|_| stand());
        while words.next.load(SeqCst) < 3 {
            std::thread::yield_now();
        }
        std::thread::sleep(Duration::from_millis(20)); // They sleep by now; or see the end by themselves.
        words.is_over.store(true, SeqCst);
        words.stand();
        words.line().wake_all();
        (0..3).for_each(|no| {
            all.recv_timeout(Duration::from_secs(10)).unwrap_or_else(|_| panic!("only {no} were woken"))
        });
    }
}
