//! The line of those that wait for room in the buffer: who tries next, who sleeps, who is woken (C3 in `append.rs`).
//!
//! Over borrowed words, so that the real log keeps them in the region and a model among loom's. Knows nothing of the
//! room itself.
//!
//! ```text
//!  join: a ticket ──► asleep, until the one before passes the head on ──► head: tries, and sleeps until there may be
//!                                                                         room ──► leave: passes the head on
//! ```
//! N1. `head` names the slot of the thread whose turn it is. That thread alone takes room. When it leaves, it names the
//!     one with the lowest ticket among those that stand in line, and wakes that one only. If nobody stands there, it
//!     names nobody, and looks again. A thread that joins says so and then looks who is head. So one of them sees the
//!     other. The word counts how often it was changed, so nobody names one that has been head since and left.
//! N2. A thread that frees room looks for a sleeping head afterwards, and a head looks for room after it has said that
//!     it sleeps. So one of them sees the other. Of several that free room one wakes it, by taking back what the head
//!     has said.
//! N3. `wanted` is what the head wants, and between two heads what the one before wanted. A thread that passes the line
//!     leaves that much room. So each head finds its room in the end, however large, though others pass. Not more is
//!     left, for all in line together. Room for a whole crowd may never be there. Then nobody would pass any more, and
//!     each claim would cost the way of a sleeper through the scheduler.
//! N4. Whoever leaves takes its place back before it looks who is next. So a head without a place is about to name
//!     another, and one with a place will find no place that was taken back by then. A repair takes back the places of
//!     the dead, waits for a head that is about to name another, and passes the head on for one that is dead. Whoever
//!     has left and named nobody may be about to name one whose place it has seen before. So a repair that finds no
//!     head counts the word as changed, and that thread names nobody any more.

use ledgerstone_region::atomic::Ordering::{Relaxed, SeqCst};
use ledgerstone_region::atomic::{AtomicU32, AtomicU64, fence};
use ledgerstone_region::{SlotNo, sync};

use crate::room::LOOK_NS;

/// Where each slot says that its thread stands in line: its ticket, or 0.
pub(crate) trait Places {
    /// The word of a slot.
    fn place(&self, slot: SlotNo) -> &AtomicU64;
}

/// The words of a line.
pub(crate) struct Line<'l> {
    /// How often another head was named << 16 | the slot of the head + 1, or 0 while there is none.
    pub head: &'l AtomicU64,
    /// Tickets that were given out.
    pub tickets: &'l AtomicU64,
    /// The slots that ever stood in line are below.
    pub slots_used: &'l AtomicU32,
    /// Bytes that a thread that passes leaves free (N3); 0 while nobody is in line.
    pub wanted: &'l AtomicU64,
    /// Bytes that the head sleeps for; 0 while it does not.
    pub head_wants: &'l AtomicU64,
    /// What they sleep on, by their slots. Slots that share a word wake each other for nothing.
    pub beds: &'l [AtomicU32],
    pub places: &'l dyn Places,
}

/// What a head does that has found no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    /// Something has changed: tries again.
    Again,
    /// Sleeps until it is woken, at most for this long.
    Sleep(Option<u64>),
}

const SLOT_BITS: u32 = 16;

/// The slot that a word of the head names.
fn slot_of(head: u64) -> Option<SlotNo> {
    (head as u16).checked_sub(1).map(SlotNo)
}

/// The word behind `seen`.
fn named(seen: u64, slot: Option<SlotNo>) -> u64 {
    ((seen >> SLOT_BITS) + 1) << SLOT_BITS | slot.map_or(0, |slot| u64::from(slot.0) + 1)
}

impl Line<'_> {
    /// Stands in line for `bytes` until it has them. As the head it calls `try_claim`, which says whether it has them
    /// by now, and `look`, which says whether it may sleep. Behind it, it asks `check` whether all is over: then nobody
    /// claims any more, and whoever says so calls [`Line::wake_all`] afterwards.
    #[cold]
    pub fn stand<E>(
        &self,
        me: SlotNo,
        bytes: u64,
        check: impl Fn() -> Result<(), E>,
        try_claim: impl Fn() -> Result<bool, E>,
        look: impl Fn() -> Look,
    ) -> Result<(), E> {
        self.join(me);
        let mut result = self.await_turn(me, check);
        if result.is_ok() {
            self.wanted.store(bytes, SeqCst);
            result = loop {
                match try_claim() {
                    Ok(true) => break Ok(()),
                    Ok(false) => self.sleep_as_head(me, bytes, &look),
                    Err(error) => break Err(error),
                }
            };
        }
        self.leave(me);
        result
    }

    fn join(&self, me: SlotNo) {
        self.slots_used.fetch_max(u32::from(me.0) + 1, SeqCst);
        let ticket = self.tickets.fetch_add(1, SeqCst) + 1;
        self.places.place(me).store(ticket, SeqCst);
        fence(SeqCst); // N1; pairs with the one in `pass_on`.
    }

    fn await_turn<E>(&self, me: SlotNo, check: impl Fn() -> Result<(), E>) -> Result<(), E> {
        let bed = self.bed(me);
        loop {
            let seen = bed.load(SeqCst);
            let head = self.head.load(SeqCst);
            match slot_of(head) {
                None if self.name_after(head, me) => return Ok(()),
                None => {}
                Some(slot) if slot == me => return Ok(()),
                Some(_) => {
                    check()?;
                    sync::futex_wait(bed, seen, Some(LOOK_NS));
                }
            }
        }
    }

    /// Names the head, if nobody has named one since `seen`.
    fn name_after(&self, seen: u64, slot: SlotNo) -> bool {
        self.head.compare_exchange(seen, named(seen, Some(slot)), SeqCst, Relaxed).is_ok()
    }

    /// For the head: sleeps until [`Line::wake_head`], unless `look` finds something to do (N2).
    fn sleep_as_head(&self, me: SlotNo, bytes: u64, look: impl FnOnce() -> Look) {
        let bed = self.bed(me);
        let seen = bed.load(SeqCst);
        self.head_wants.store(bytes, SeqCst);
        fence(SeqCst); // Pairs with what comes before `wake_head`.
        if let Look::Sleep(timeout_ns) = look() {
            sync::futex_wait(bed, seen, Some(timeout_ns.unwrap_or(LOOK_NS)));
        }
        self.head_wants.store(0, SeqCst);
    }

    /// Leaves the line, with what was wanted or without it.
    pub fn leave(&self, me: SlotNo) {
        self.places.place(me).store(0, SeqCst);
        if self.head() == Some(me) {
            self.pass_on();
        }
    }

    /// For a repairer, when the places of the dead are taken back (N4). `wait` waits until a living thread has stored
    /// what it is about to store.
    pub fn mend<E>(
        &self,
        is_dead: impl Fn(SlotNo) -> bool,
        wait: impl FnOnce(&dyn Fn() -> bool) -> Result<(), E>,
    ) -> Result<(), E> {
        let stands = |slot| self.places.place(slot).load(SeqCst) != 0;
        if !cfg!(feature = "planted-passing-unawaited") {
            wait(&|| self.head().is_none_or(|head| is_dead(head) || stands(head)))?;
        }
        loop {
            let seen = self.head.load(SeqCst);
            match slot_of(seen) {
                None if self.head.compare_exchange(seen, named(seen, None), SeqCst, Relaxed).is_ok() => {
                    self.name_if_nobody();
                    return Ok(());
                }
                None => {} // Somebody was named, perhaps one of the dead.
                Some(head) if is_dead(head) => {
                    self.head_wants.store(0, SeqCst);
                    self.pass_on();
                    return Ok(());
                }
                Some(_) => return Ok(()),
            }
        }
    }

    /// For the head, or for who repairs after it: names the next, and wakes it (N1).
    fn pass_on(&self) {
        let seen = self.head.load(SeqCst);
        if let Some(next) = self.first() {
            self.head.store(named(seen, Some(next)), SeqCst);
            return self.wake(next);
        }
        self.wanted.store(0, SeqCst);
        self.head.store(named(seen, None), SeqCst);
        fence(SeqCst); // Pairs with the one in `join`.
        self.name_if_nobody();
    }

    /// Names the next, if there is no head and somebody stands in line.
    fn name_if_nobody(&self) {
        // In this order: whoever is found has not been head since, if the exchange succeeds.
        let seen = self.head.load(SeqCst);
        if slot_of(seen).is_none()
            && let Some(next) = self.first()
            && self.name_after(seen, next)
        {
            self.wake(next);
        }
    }

    /// The slot with the lowest ticket.
    fn first(&self) -> Option<SlotNo> {
        let slots = (0..self.slots_used.load(SeqCst)).map(|no| SlotNo(no as u16));
        let tickets = slots.map(|slot| (self.places.place(slot).load(SeqCst), slot)).filter(|(ticket, _)| *ticket != 0);
        tickets.min().map(|(_, slot)| slot)
    }

    /// Whose turn it is.
    pub fn head(&self) -> Option<SlotNo> {
        slot_of(self.head.load(SeqCst))
    }

    /// Wakes the head if it sleeps and `is_worth_it` says so for the bytes it wants. To be called after room was freed,
    /// and after a sequentially consistent fence or read-modify-write (N2).
    pub fn wake_head(&self, is_worth_it: impl FnOnce(u64) -> bool) {
        let wants = self.head_wants.load(SeqCst);
        if wants != 0
            && is_worth_it(wants)
            && self.head_wants.compare_exchange(wants, 0, SeqCst, Relaxed).is_ok()
            && let Some(head) = self.head()
        {
            // The head that said so has not left, or another has come to its place and looks for itself.
            self.wake(head);
        }
    }

    /// Wakes everybody: all are to leave, or to look again.
    pub fn wake_all(&self) {
        self.beds.iter().for_each(Self::wake_bed);
    }

    fn wake(&self, slot: SlotNo) {
        Self::wake_bed(self.bed(slot));
    }

    fn wake_bed(bed: &AtomicU32) {
        bed.fetch_add(1, SeqCst);
        sync::futex_wake(bed, u32::MAX);
    }

    fn bed(&self, slot: SlotNo) -> &AtomicU32 {
        &self.beds[usize::from(slot.0) % self.beds.len()]
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::cell::Cell;
    use std::sync::atomic::AtomicBool;
    use std::sync::mpsc::channel;
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use super::*;

    #[derive(Default)]
    struct Words {
        head: AtomicU64,
        tickets: AtomicU64,
        slots_used: AtomicU32,
        wanted: AtomicU64,
        head_wants: AtomicU64,
        beds: [AtomicU32; 4],
        places: [AtomicU64; 8],
        is_over: AtomicBool,
        /// Slots, in the order in which they were head.
        heads: Mutex<Vec<u16>>,
    }

    impl Places for [AtomicU64; 8] {
        fn place(&self, slot: SlotNo) -> &AtomicU64 {
            &self[usize::from(slot.0)]
        }
    }

    impl Words {
        fn line(&self) -> Line<'_> {
            Line {
                head: &self.head,
                tickets: &self.tickets,
                slots_used: &self.slots_used,
                wanted: &self.wanted,
                head_wants: &self.head_wants,
                beds: &self.beds,
                places: &self.places,
            }
        }

        /// As a claim that finds no room until all is over.
        fn stand(&self, slot: u16, bytes: u64) {
            let is_over = || self.is_over.load(SeqCst);
            let look = || if is_over() { Look::Again } else { Look::Sleep(None) };
            let try_claim = || {
                if is_over() {
                    self.heads.lock().unwrap().push(slot);
                }
                Ok::<_, ()>(is_over())
            };
            self.line().stand(SlotNo(slot), bytes, || Ok(()), try_claim, look).unwrap();
        }
    }

    #[test]
    fn all_have_their_turn_in_the_order_in_which_they_came() {
        let words = Arc::new(Words::default());
        let (done, all) = channel();
        let slots = [5, 2, 7, 0];
        for (came, slot) in (1..).zip(slots) {
            let (there, done) = (Arc::clone(&words), done.clone());
            std::thread::spawn(move || {
                there.stand(slot, 8 + u64::from(slot));
                done.send(()).unwrap();
            });
            while words.tickets.load(SeqCst) < came || words.places[usize::from(slot)].load(SeqCst) == 0 {
                std::thread::yield_now();
            }
        }
        while words.head_wants.load(SeqCst) == 0 {
            std::thread::yield_now();
        }
        assert_eq!(words.wanted.load(SeqCst), 13, "what the first wants");
        words.is_over.store(true, SeqCst);
        words.line().wake_head(|_| true);
        (0..4).for_each(|no| {
            all.recv_timeout(Duration::from_secs(10)).unwrap_or_else(|_| panic!("only {no} were woken"))
        });
        assert_eq!(*words.heads.lock().unwrap(), slots);
        assert_eq!((words.wanted.load(SeqCst), words.line().head()), (0, None), "nobody is in line");
    }

    #[test]
    fn all_leave_when_all_is_over() {
        let words = Arc::new(Words::default());
        let (done, all) = channel();
        for slot in 0..3 {
            let (there, done) = (Arc::clone(&words), done.clone());
            std::thread::spawn(move || {
                let check = || if there.is_over.load(SeqCst) { Err(()) } else { Ok(()) };
                let look = || if check().is_err() { Look::Again } else { Look::Sleep(None) };
                let stood = there.line().stand(SlotNo(slot), 8, check, || check().map(|()| false), look);
                assert_eq!(stood, Err(()));
                done.send(()).unwrap();
            });
        }
        while words.head_wants.load(SeqCst) == 0 || words.places.iter().filter(|at| at.load(SeqCst) != 0).count() < 3 {
            std::thread::yield_now();
        }
        words.is_over.store(true, SeqCst);
        words.line().wake_all();
        (0..3).for_each(|no| {
            all.recv_timeout(Duration::from_secs(10)).unwrap_or_else(|_| panic!("only {no} were woken"))
        });
    }

    /// Calls `then` at each look at a place, with the number of the look.
    struct Watched<'w, F> {
        places: &'w [AtomicU64; 8],
        looks: Cell<u32>,
        then: F,
    }

    impl<F: Fn(u32)> Places for Watched<'_, F> {
        fn place(&self, slot: SlotNo) -> &AtomicU64 {
            self.looks.set(self.looks.get() + 1);
            (self.then)(self.looks.get());
            &self.places[usize::from(slot.0)]
        }
    }

    /// N4. Slot 1 leaves and names nobody. Then slot 2 joins and dies. Slot 1 has seen its place, and stops. The repair
    /// comes and goes. If slot 1 named the dead one now, nobody would ever pass the head on.
    #[test]
    fn whoever_has_seen_a_place_of_the_dead_before_a_repair_does_not_name_them_after_it() {
        const DIES: u16 = 2;
        // One look to leave; then four slots are looked at, twice.
        const DIES_AT: u32 = 1 + 4 + 1;
        const MENDED_AT: u32 = 1 + 4 + 4;
        for stands in [false, true] {
            let words = Words::default();
            words.slots_used.store(4, SeqCst);
            words.head.store(named(0, Some(SlotNo(1))), SeqCst);
            words.places[1].store(1, SeqCst);
            let then = |look| {
                if look == DIES_AT {
                    words.places[usize::from(DIES)].store(2, SeqCst);
                } else if look == MENDED_AT {
                    words.places[usize::from(DIES)].store(0, SeqCst);
                    words.places[3].store(3 * u64::from(stands), SeqCst);
                    let mended =
                        words.line().mend(|slot| slot == SlotNo(DIES), |is_done| is_done().then_some(()).ok_or(()));
                    assert_eq!(mended, Ok(()));
                }
            };
            let watched = Watched { places: &words.places, looks: Cell::new(0), then };
            Line { places: &watched, ..words.line() }.leave(SlotNo(1));
            assert_eq!(watched.looks.get(), MENDED_AT);
            assert_eq!(words.line().head(), stands.then_some(SlotNo(3)), "whoever stands in line is head");
        }
    }
}
