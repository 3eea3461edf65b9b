//! The line of those who wait for room in the buffer: who tries next, who sleeps, who is woken (C3 in `append.rs`).
//!
//! Over borrowed words, so that the real log keeps them in the region and a model among loom's. Knows nothing of the room
//! itself.
//!
//! ```text
//!  join ──► asleep, until all before it have left ──► head: tries, and sleeps until there may be room ──► leave
//! ```
//! N1. Tickets are served in their order. Only the head takes room, and whoever leaves wakes only the next.
//! N2. Who frees room looks for a sleeping head afterwards, and a head looks for room after it has said that it sleeps. So
//!     one of them sees the other. Of several who free room one wakes it, by taking back what the head has said.
//! N3. `wanted` counts everybody from before they take a ticket until they have what they want. Whoever leaves that much
//!     room takes nothing from anybody in line.

use ledgerstone_region::atomic::Ordering::{Relaxed, SeqCst};
use ledgerstone_region::atomic::{AtomicU32, AtomicU64, fence};
use ledgerstone_region::sync;

/// The words of a line.
pub(crate) struct Line<'l> {
    /// The next ticket, and the one whose turn it is. Both count up and wrap.
    pub next: &'l AtomicU32,
    pub turn: &'l AtomicU32,
    /// Bytes that all in line want together.
    pub wanted: &'l AtomicU64,
    /// Bytes that the head sleeps for; 0 while it does not.
    pub head_wants: &'l AtomicU64,
    /// What they sleep on, by their tickets. Tickets that share a word wake each other for nothing, so there are about as
    /// many words as there may be threads.
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
    /// Joins the line for so many bytes; returns the ticket.
    pub fn join(&self, bytes: u64) -> u32 {
        self.wanted.fetch_add(bytes, SeqCst);
        let ticket = self.next.fetch_add(1, SeqCst);
        fence(SeqCst); // Pairs with the one in `leave`: either the turn is seen, or who leaves sees the ticket.
        ticket
    }

    /// Sleeps until it is the ticket's turn, or `is_over`: then nobody's turn comes any more, and all leave. Whoever makes
    /// it so calls [`Line::wake_all`] afterwards.
    pub fn await_turn(&self, ticket: u32, is_over: impl Fn() -> bool) {
        let bed = self.bed(ticket);
        loop {
            let seen = bed.load(SeqCst);
            if self.turn.load(SeqCst) == ticket || is_over() {
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
    pub fn leave(&self, bytes: u64) {
        self.wanted.fetch_sub(bytes, SeqCst);
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

    /// Wakes everybody.
    pub fn wake_all(&self) {
        fence(SeqCst); // Pairs with the one in `join`.
        let (turn, next) = (self.turn.load(SeqCst), self.next.load(SeqCst));
        for at in 0..next.wrapping_sub(turn).min(self.beds.len() as u32) {
            self.wake(turn.wrapping_add(at));
        }
    }

    fn wake(&self, ticket: u32) {
        let bed = self.bed(ticket);
        bed.fetch_add(1, SeqCst);
        sync::futex_wake(bed, u32::MAX);
    }

    fn bed(&self, ticket: u32) -> &AtomicU32 {
        &self.beds[ticket as usize % self.beds.len()]
    }
}
