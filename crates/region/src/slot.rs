//! Thread slots: a number for every thread that works on a region.
//!
//! A latch names its exclusive owner by this number.
//!
//! ```text
//! offset  size  field
//!      0     4  state           0 free, 1 taken, 2 lost: its thread has panicked and holds something (T5), 3 lost, and
//!                              its thread has ended
//!      4     4  long_latch      the latch that the thread holds or waits for over calls that wait: its number + 1
//!      8     8  users_code      whether the thread runs a user's closure: its number << 1 | 1 while it does
//!     16     4  process         whose thread has it, or had it last: the process's number + 1; 0 nobody's yet
//!     20    44  zero
//! ```
//! T1. A slot is taken by the lowest number that is free, when a thread first asks, and given back when the thread
//!     ends. Numbers are therefore a function of the order of the first calls, as a simulation needs.
//! T2. Only the slot's thread writes its long_latch and users_code while it is taken.
//! T3. A slot that a process has had is taken by threads of that process only. So what other crates count for a slot
//!     belongs to one process, also if one thread began it and another ends it.
//! T4. The slots of a process that has died are freed when all crates have mended what it left ([`Repair`]). Until
//!     then, they stay taken.
//! T5. A slot whose thread has panicked in the middle of something counts as one of the dead until that is mended. The
//!     thread waits for it, and goes on with its slot. Who has the region says how it is mended
//!     ([`SlotTable::after_panics`]).
//! T6. There is one slot more than threads may have at once, the last. It is for who mends after a panic when no other
//!     is free. Several that mend at once use it one after the other. While one waits for it, it holds nothing, and
//!     nobody waits for it: each mends for all who have panicked before.
//! T7. A process that leaves gives its slots back, to threads of any process, also those of threads that go on. The
//!     only exception is a slot that is lost: it is given back when it is mended.
//! T8. A child of a fork gives nothing back: the slots are its parent's, whose memory it has in common.
//!
//! Which processes live is asked of the members of a region that real ones share, and of `sync` in a simulation.

/// How many slots a table can have, the last one (T6) included. A latch has 14 bits for the number, and the largest
/// number is not used.
pub const SLOTS_MAX: u32 = (1 << 14) - 1;

/// Number of a thread slot, below [`SLOTS_MAX`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SlotNo(pub u16);

impl std::fmt::Display for SlotNo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "slot {}", self.0)
    }
}

#[cfg(not(loom))]
pub(crate) use table::{Claims, give_back_claims, replace_claims};
#[cfg(not(loom))]
pub use table::{SlotTable, ThreadGuard, ThreadSlot, as_another_thread};

#[cfg(not(loom))]
mod table {
    use super::{SLOTS_MAX, SlotNo};
    #[cfg(not(miri))]
    use crate::Members;
    use crate::atomic::{AtomicU32, AtomicU64, Ordering::*};
    use crate::{ForkMark, Handle, HeldLine, Latch, Region, RegionError, WeakHandle, shared, sync};
    use std::cell::{Cell, RefCell};
    use std::sync::atomic::AtomicBool;
    use std::sync::{Arc, OnceLock};

    shared! {
        /// The state of one thread.
        #[repr(align(64))]
        pub struct ThreadSlot {
            state: AtomicU32,
            long_latch: AtomicU32,
            users_code: AtomicU64,
            process: AtomicU32,
            zero: AtomicU32,
            zeroes: [AtomicU64; 5],
        } size 64
    }

    /// How often a thread that mends looks whether the last slot is free.
    const LOOK_NS: u64 = 1_000_000;

    const FREE: u32 = 0;
    const TAKEN: u32 = 1;
    const LOST: u32 = 2;
    const LOST_AND_ENDED: u32 = 3;

    impl ThreadSlot {
        /// Whether a thread has it.
        pub fn is_taken(&self) -> bool {
            self.state.load(Acquire) != FREE // Pairs with the exchange in `claim`.
        }

        /// The latch that the thread holds or waits for over calls that wait, by the number that its layer gives it.
        #[inline]
        pub fn long_latch(&self) -> Option<u16> {
            let word = self.long_latch.load(Relaxed); // The thread's own (T2); to others, something to print.
            word.checked_sub(1).map(|number| number as u16)
        }

        /// Notes such a latch before the thread, whose slot this is, asks for it, and that it was given back.
        #[inline]
        pub fn set_long_latch(&self, number: Option<u16>) {
            self.long_latch.store(number.map_or(0, |number| u32::from(number) + 1), Relaxed); // Our own (T2).
        }

        /// The user's closure that the thread runs now, by a number that no other run of a closure has. None if it runs
        /// the engine's code.
        pub fn users_code(&self) -> Option<u64> {
            let word = self.users_code.load(Relaxed); // A thread that acts on it looks again later.
            (word & 1 == 1).then_some(word >> 1)
        }

        /// Notes that the thread, whose slot this is, runs a user's closure from now on. Returns the state before, for
        /// [`ThreadSlot::leave_users_code`].
        #[inline]
        pub fn enter_users_code(&self) -> bool {
            let word = &self.users_code;
            let before = word.load(Relaxed); // Our own (T2).
            word.store(((before >> 1) + 1) << 1 | 1, Relaxed);
            before & 1 == 1
        }

        /// Notes that a closure has returned and the next one runs, with nothing in between that others could wait
        /// for.
        #[inline]
        pub fn next_users_code(&self) {
            let word = &self.users_code;
            word.store(word.load(Relaxed).wrapping_add(1 << 1), Relaxed); // Our own (T2).
        }

        /// Notes that the closure has returned, and restores the state before it.
        #[inline]
        pub fn leave_users_code(&self, was_there: bool) {
            let word = &self.users_code;
            word.store(word.load(Relaxed) & !1 | u64::from(was_there), Relaxed); // Our own (T2).
        }

        /// The process whose thread has it, or had it last.
        pub fn process(&self) -> Option<u32> {
            self.process.load(Acquire).checked_sub(1) // Pairs with the exchange in `claim`.
        }

        /// The thread, whose slot this is, has panicked with something in its hands (T5).
        pub(crate) fn lose(&self) {
            self.state.store(LOST, Release); // Pairs with the load in `is_dead`.
        }

        fn give_back(&self) {
            // Nobody has mended after it: whoever came next to the slot would be taken for the holder of what it holds.
            if self.state.compare_exchange(LOST, LOST_AND_ENDED, Release, Relaxed).is_ok() {
                return;
            }
            self.long_latch.store(0, Relaxed); // Published by the Release below.
            self.state.store(FREE, Release); // Pairs with the Acquire of the next claim.
        }

        /// Threads of all processes may have it, if it is that process's and no thread has it.
        #[cfg(not(miri))]
        fn disown(&self, process: u32) {
            if self.state.load(Acquire) == FREE {
                // Pairs with the Acquire in `claim_slot`.
                let _ = self.process.compare_exchange(process + 1, 0, Release, Relaxed);
            }
        }
    }

    /// The slots of a region.
    pub struct SlotTable {
        /// Unique in the process: what the threads' claims are kept under.
        id: u64,
        slots: Handle<[ThreadSlot]>,
        /// The latches that the slots' threads hold shared.
        held: Handle<[HeldLine]>,
        /// Held by the thread that repairs.
        repair: Handle<Latch>,
        fork: Arc<ForkMark>,
        after_panics: OnceLock<AfterPanic>,
        /// Which slots threads of this process have from this table. Whoever takes the mark away gives the slot back:
        /// the thread as it ends, or the table as it goes.
        taken: Arc<[AtomicBool]>,
        #[cfg(not(miri))]
        members: Option<Arc<Members>>,
    }

    #[cfg(not(miri))]
    impl Drop for SlotTable {
        fn drop(&mut self) {
            // Others may have its slots from now on, while its threads go on without the region.
            if self.members.is_some() && !self.is_inherited() {
                for (slot, taken) in self.slots.iter().zip(&*self.taken) {
                    if taken.swap(false, AcqRel) {
                        slot.give_back();
                    }
                    slot.disown(self.process());
                }
            }
        }
    }

    type AfterPanic = Box<dyn Fn() + Send + Sync>;

    /// The whole work of a thread: if it unwinds out of it, others do not wait for what it held (T5).
    #[must_use = "it looks for a panic when it is dropped"]
    #[derive(Debug)]
    pub struct ThreadGuard<'t>(&'t SlotTable);

    impl Drop for ThreadGuard<'_> {
        fn drop(&mut self) {
            if std::thread::panicking() {
                self.0.has_panicked();
            }
        }
    }

    fn next_id() -> u64 {
        static NEXT_ID: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
        NEXT_ID.fetch_add(1, Relaxed) // A number that differs, no more.
    }

    impl SlotTable {
        /// The region's table, for `max_threads` threads at once.
        ///
        /// # Errors
        /// As [`Region::place`]; or the number is 0, or not below [`SLOTS_MAX`].
        pub fn place(region: &Region, max_threads: u32) -> Result<SlotTable, RegionError> {
            if max_threads == 0 || max_threads >= SLOTS_MAX {
                return Err(RegionError::BadSlotCount { asked: max_threads, max: SLOTS_MAX - 1 });
            }
            let count = u64::from(max_threads) + 1; // T6
            let slots = region.place::<ThreadSlot>("threads.slots", count, 64)?;
            let held = region.place::<HeldLine>("threads.held", count, 64)?;
            let repair = region.place_one::<Latch>("threads.repair", 64)?;
            let fork = Arc::new(ForkMark::new()?);
            Ok(SlotTable {
                id: next_id(),
                slots,
                held,
                repair,
                fork,
                after_panics: OnceLock::new(),
                taken: (0..count).map(|_| AtomicBool::new(false)).collect(),
                #[cfg(not(miri))]
                members: None,
            })
        }

        /// The same in a region that other processes have, too: `members` says which of them have died. One place among
        /// them is for one table.
        ///
        /// # Errors
        /// As [`SlotTable::place`].
        #[cfg(not(miri))]
        pub fn place_among(members: Arc<Members>, region: &Region, max_threads: u32) -> Result<SlotTable, RegionError> {
            let mut table = SlotTable::place(region, max_threads)?;
            table.members = Some(members);
            Ok(table)
        }

        /// Whether other real processes may have the region, too.
        #[inline]
        #[must_use]
        pub fn is_shared(&self) -> bool {
            #[cfg(not(miri))]
            return self.members.is_some();
            #[cfg(miri)]
            false
        }

        /// The number of this process, below [`MEMBERS_MAX`](crate::MEMBERS_MAX): that among those who have the region,
        /// or a simulated one's.
        #[must_use]
        pub fn process(&self) -> u32 {
            #[cfg(not(miri))]
            if let Some(members) = &self.members {
                return members.no();
            }
            sync::deaths::process()
        }

        /// This thread's slot. The first call takes it, and the end of the thread gives it back.
        ///
        /// # Panics
        /// All slots are taken. Functions that let threads in call [`SlotTable::try_current`] first.
        #[inline]
        pub fn current(&self) -> SlotNo {
            let (id, no) = LAST.get();
            if id == self.id { no } else { self.current_slow().unwrap_or_else(|error| panic!("{error}")) }
        }

        /// As [`SlotTable::current`].
        ///
        /// # Errors
        /// [`RegionError::NoThreadSlot`] if all slots are taken. [`RegionError::Forked`] in a child of the process that
        /// made the table.
        #[inline]
        pub fn try_current(&self) -> Result<SlotNo, RegionError> {
            if self.is_inherited() {
                return Err(RegionError::Forked);
            }
            let (id, no) = LAST.get();
            if id == self.id { Ok(no) } else { self.current_slow() }
        }

        /// This thread's slot, if it is at hand: the one it has asked for last, in the process that made the table.
        /// None says nothing: ask [`SlotTable::try_current`].
        #[inline]
        pub fn at_hand(&self) -> Option<SlotNo> {
            let (id, no) = LAST.get();
            (id == self.id && !self.is_inherited()).then_some(no)
        }

        /// True in a child of the process that made the table.
        #[inline]
        pub fn is_inherited(&self) -> bool {
            self.fork.is_inherited()
        }

        #[cold]
        fn current_slow(&self) -> Result<SlotNo, RegionError> {
            let known = CLAIMS.try_with(|claims| claims.borrow().find(self.id)).ok().flatten();
            let no = match known {
                Some(no) => no,
                None => self.claim()?,
            };
            LAST.set((self.id, no));
            Ok(no)
        }

        fn claim(&self) -> Result<SlotNo, RegionError> {
            let count = self.max_threads();
            (0..count).find_map(|no| self.claim_slot(SlotNo(no as u16))).ok_or(RegionError::NoThreadSlot { count })
        }

        fn claim_slot(&self, no: SlotNo) -> Option<SlotNo> {
            let (slot, process) = (self.slot(no), self.process() + 1);
            // Ours for good from this exchange on (T3), whether or not we get to take it.
            let is_of_us = match slot.process.load(Acquire) {
                0 => slot.process.compare_exchange(0, process, AcqRel, Acquire).unwrap_or_else(|other| other) == 0,
                other => other == process,
            };
            // Acquire: pairs with the Release in `give_back`, so that we see the slot clean.
            let is_ours = is_of_us
                && slot.state.load(Relaxed) == FREE
                && slot.state.compare_exchange(FREE, TAKEN, Acquire, Relaxed).is_ok();
            if !is_ours {
                return None;
            }
            self.taken[usize::from(no.0)].store(true, Release); // Pairs with the exchange of who gives it back.
            let (slots, taken, fork) = (self.slots.downgrade(), Arc::clone(&self.taken), Arc::clone(&self.fork));
            let claim = Claim { table_id: self.id, no, slots, taken, fork };
            // A thread that already runs its destructors keeps the slot until the region goes.
            let _ = CLAIMS.try_with(|claims| claims.borrow_mut().add(claim));
            Some(no)
        }

        /// A slot for the calling thread, which mends after a panic and ends then: the last one if no other is free
        /// (T6). Waits while another such thread has that.
        ///
        /// # Errors
        /// [`RegionError::NoThreadSlot`]: another process has it, or it was lost as its thread mended.
        /// [`RegionError::Forked`].
        pub fn current_to_mend(&self) -> Result<SlotNo, RegionError> {
            let last = SlotNo(self.max_threads() as u16);
            loop {
                let full = match self.try_current() {
                    Err(full @ RegionError::NoThreadSlot { .. }) => full,
                    done => return done,
                };
                if self.claim_slot(last).is_some() {
                    return Ok(last);
                }
                let slot = self.slot(last);
                if slot.process() != Some(self.process()) || slot.state.load(Acquire) >= LOST {
                    return Err(full);
                }
                sync::sleep_ns(LOOK_NS);
            }
        }

        /// The latch of whoever repairs.
        pub(crate) fn repair_latch(&self) -> &Latch {
            &self.repair
        }

        /// Whether the thread that has the slot, or had it last, was of a process that is known to have died, or is
        /// lost (T5).
        pub fn is_dead(&self, no: SlotNo) -> bool {
            self.is_lost(no) || self.has_process_died(no)
        }

        /// Whether its thread is lost (T5).
        pub(crate) fn is_lost(&self, no: SlotNo) -> bool {
            self.slot(no).state.load(Acquire) >= LOST
        }

        fn has_process_died(&self, no: SlotNo) -> bool {
            self.slot(no).process().is_some_and(|process| self.has_died(process))
        }

        /// Whether a process is known to have died.
        #[must_use]
        pub fn has_died(&self, process: u32) -> bool {
            #[cfg(not(miri))]
            if let Some(members) = &self.members {
                return members.is_dead(process);
            }
            sync::deaths::is_dead(process)
        }

        /// Says what is done about a thread that has panicked in the middle of something: another thread repairs, while
        /// that one waits. Only the first to say so counts.
        pub fn after_panics(&self, mend: impl Fn() + Send + Sync + 'static) {
            let _ = self.after_panics.set(Box::new(mend));
        }

        /// The calling thread has panicked in the middle of something (T5).
        pub fn has_panicked(&self) {
            if let (Some(mend), Ok(me)) = (self.after_panics.get(), self.try_current()) {
                self.slot(me).lose();
                mend();
            }
        }

        /// The calling thread's work begins, which ends when this is dropped.
        pub fn guard_thread(&self) -> ThreadGuard<'_> {
            ThreadGuard(self)
        }

        /// Runs `f`, a piece of the engine's code that may run outside of all calls, such as a destructor's. If it
        /// panics, others do not wait for what the thread held (T5).
        pub fn guarded<T>(&self, f: impl FnOnce() -> T) -> T {
            let guard = self.guard_thread();
            let done = f();
            std::mem::forget(guard); // The thread may unwind from something else.
            done
        }

        /// Whether a slot is of the calling thread's process (T3). False if the thread has no slot.
        pub fn is_of_us(&self, no: SlotNo) -> bool {
            let me = self.try_current().map(|me| self.slot(me).process());
            me.is_ok_and(|me| me.is_some() && me == self.slot(no).process())
        }

        /// All slots that some process has, or has had, by number.
        pub fn iter_owned(&self) -> impl Iterator<Item = SlotNo> {
            let owned = |(_, slot): &(usize, &ThreadSlot)| slot.process().is_some();
            self.slots.iter().enumerate().filter(owned).map(|(no, _)| SlotNo(no as u16))
        }

        /// The dead members that have no slot, or none any more.
        #[cfg(not(miri))]
        fn unburied(&self) -> impl Iterator<Item = (&Members, u32)> {
            let members = self.members.iter().flat_map(|members| members.iter().map(|no| (&**members, no)));
            members.filter(|(members, no)| {
                let has_slots = || self.iter_owned().any(|slot| self.slot(slot).process() == Some(*no));
                // The last look is after its death. Before, it may have taken one.
                !has_slots() && members.is_dead(*no) && !has_slots()
            })
        }

        #[cfg(miri)]
        fn unburied(&self) -> impl Iterator<Item = ((), u32)> {
            std::iter::empty()
        }

        pub(crate) fn has_unburied(&self) -> bool {
            self.unburied().next().is_some()
        }

        /// Gives the numbers of the dead free that have no slots. By whoever holds the latch of the repair.
        pub(crate) fn bury(&self) {
            #[cfg(not(miri))]
            self.unburied().for_each(|(members, no)| members.bury(no));
        }

        /// Frees a slot whose process has died, for threads of any process: nothing in it, nor anything that other
        /// crates keep for it, is needed any more (T4).
        pub(crate) fn free_of_the_dead(&self, no: SlotNo) {
            let slot = self.slot(no);
            if !self.has_process_died(no) {
                // T5. If its thread has ended, nobody goes on with it, and the process keeps it (T3).
                if slot.state.compare_exchange(LOST, TAKEN, Release, Relaxed).is_err() {
                    slot.give_back();
                }
                return;
            }
            slot.long_latch.store(0, Relaxed); // All published by the last of these stores.
            slot.users_code.store(0, Relaxed);
            slot.state.store(FREE, Release);
            slot.process.store(0, Release); // Pairs with the Acquire in `claim`.
        }

        /// One slot, to look at.
        ///
        /// # Panics
        /// If the table has no such slot.
        #[inline]
        pub fn slot(&self, no: SlotNo) -> &ThreadSlot {
            &self.slots[usize::from(no.0)]
        }

        /// The latches that a slot's thread holds shared.
        ///
        /// # Panics
        /// If the table has no such slot.
        #[inline]
        pub fn held(&self, no: SlotNo) -> &HeldLine {
            &self.held[usize::from(no.0)]
        }

        /// How many threads may have a slot at once.
        pub fn max_threads(&self) -> u32 {
            self.count() - 1
        }

        /// How many slots there are, the last one (T6) included.
        pub fn count(&self) -> u32 {
            self.slots.len() as u32
        }

        /// The slots that threads have taken, by number.
        pub fn iter_used(&self) -> impl Iterator<Item = (SlotNo, &ThreadSlot)> {
            let used = |(_, slot): &(usize, &ThreadSlot)| slot.state.load(Acquire) != FREE; // Pairs with `claim`.
            self.slots.iter().enumerate().filter(used).map(|(no, slot)| (SlotNo(no as u16), slot))
        }
    }

    impl std::fmt::Debug for SlotTable {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            write!(f, "SlotTable({} slots)", self.slots.len())
        }
    }

    thread_local! {
        /// The claim asked for last: a table's id and the slot. Id 0 is not a table's.
        static LAST: Cell<(u64, SlotNo)> = const { Cell::new((0, SlotNo(0))) };
        static CLAIMS: RefCell<Claims> = const { RefCell::new(Claims(Vec::new())) };
    }

    /// One slot that a thread has. It must not keep the region mapped: threads outlive regions.
    struct Claim {
        table_id: u64,
        no: SlotNo,
        slots: WeakHandle<[ThreadSlot]>,
        taken: Arc<[AtomicBool]>,
        fork: Arc<ForkMark>,
    }

    /// The slots that a thread has, given back when this is dropped.
    pub(crate) struct Claims(Vec<Claim>);

    impl Claims {
        pub(crate) const fn none() -> Self {
            Claims(Vec::new())
        }

        fn find(&self, table_id: u64) -> Option<SlotNo> {
            self.0.iter().find(|claim| claim.table_id == table_id).map(|claim| claim.no)
        }

        fn add(&mut self, claim: Claim) {
            self.0.retain(|claim| !claim.slots.is_dead());
            self.0.push(claim);
        }
    }

    impl Drop for Claims {
        fn drop(&mut self) {
            let _ = LAST.try_with(|last| last.set((0, SlotNo(0))));
            for claim in self.0.drain(..) {
                let no = usize::from(claim.no.0);
                if !claim.fork.is_of_a_parent() // T8
                    && let Some(slots) = claim.slots.upgrade()
                    && claim.taken[no].swap(false, AcqRel)
                {
                    slots[no].give_back();
                }
            }
        }
    }

    /// Runs `f` as another thread would, with slots of its own: where the system has no other thread.
    pub fn as_another_thread<T>(f: impl FnOnce() -> T) -> T {
        struct Back(Option<Claims>);
        impl Drop for Back {
            fn drop(&mut self) {
                if let Some(claims) = self.0.take() {
                    drop(replace_claims(claims)); // What `f` has taken is given back.
                }
            }
        }
        let _back = Back(Some(replace_claims(Claims::none())));
        f()
    }

    /// Gives back what this thread has, as if it ended: a simulated thread does, its carrier goes on to the next.
    pub(crate) fn give_back_claims() {
        drop(replace_claims(Claims::none()));
    }

    /// Puts this thread's claims aside and others in their place.
    pub(crate) fn replace_claims(claims: Claims) -> Claims {
        LAST.set((0, SlotNo(0)));
        CLAIMS.with(|current| current.replace(claims))
    }
}
