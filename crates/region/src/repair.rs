//! What survivors do about a process that has died: the contract between who finds it dead and the crates that mend.
//!
//! A death leaves words of the region as they were between two stores. Each crate that has words there mends its own
//! ([`Repair`]). One thread at a time repairs, for all processes that are known to be dead, and holds nothing else.
//!
//! D1. A repair can be done again. If the repairer dies too, another one takes over and repairs for both.
//! D2. A repair waits for nobody but the living that are about to store something. If one of these dies meanwhile, the
//!     repair ends with [`AnotherDied`], and begins again with one dead process more. So it does if any process dies
//!     while it waits: whoever it waits for may wait for that one.
//! D3. The slots of the dead are freed last. So whoever repairs again finds all of them. A real process's number is
//!     free for another one when none of its slots is left ([`Members::bury`](crate::Members::bury)).

use crate::{Latch, RegionError, SlotNo, SlotTable, sync};

/// A crate's part of a repair.
pub trait Repair {
    /// Mends what the dead have left half done in this crate's words, so that the living can go on.
    ///
    /// # Errors
    /// [`AnotherDied`] (D2).
    fn repair(&self, dead: &Dead<'_>) -> Result<(), AnotherDied>;
}

/// The processes that are known to be dead and have slots still, as a repairer found them.
#[derive(Debug)]
pub struct Dead<'t> {
    table: &'t SlotTable,
    /// The slots of the dead, by number.
    slots: Vec<SlotNo>,
}

/// A process that a repair waited for has died: the repair begins again, and mends for it, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("another process died during the repair")]
pub struct AnotherDied;

impl<'t> Dead<'t> {
    /// The dead that have slots in `table`; none if nobody has died.
    #[must_use]
    pub fn of(table: &'t SlotTable) -> Option<Dead<'t>> {
        // Each process is asked for once. One that dies meanwhile is dead with all of its slots, or with none.
        let mut judged: Vec<(u32, bool)> = Vec::new();
        let mut has_died = |process: u32| {
            if let Some((_, has_died)) = judged.iter().find(|(of, _)| *of == process) {
                return *has_died;
            }
            let has_died = table.has_died(process);
            judged.push((process, has_died));
            has_died
        };
        let mut is_dead = |no: &SlotNo| table.is_lost(*no) || table.slot(*no).process().is_some_and(&mut has_died);
        let slots: Vec<SlotNo> = table.iter_owned().filter(|no| is_dead(no)).collect();
        (!slots.is_empty()).then_some(Dead { table, slots })
    }

    /// Their slots, by number.
    #[must_use]
    pub fn slots(&self) -> &[SlotNo] {
        &self.slots
    }

    /// The numbers of the processes that have died. A process that has only lost a thread is none of them.
    #[must_use]
    pub fn processes(&self) -> Vec<u32> {
        let mut processes: Vec<u32> = self.slots.iter().filter_map(|no| self.table.slot(*no).process()).collect();
        processes.sort_unstable();
        processes.dedup();
        processes.retain(|process| self.table.has_died(*process));
        processes
    }

    /// Whether a slot is one of theirs.
    #[must_use]
    pub fn has(&self, slot: SlotNo) -> bool {
        self.slots.binary_search_by_key(&slot.0, |no| no.0).is_ok()
    }

    /// All slots of the living that have had a thread.
    pub fn living(&self) -> impl Iterator<Item = SlotNo> {
        self.table.iter_owned().filter(|no| !self.has(*no))
    }

    /// Takes a latch that the dead may hold, and that the living hold for some instructions only.
    ///
    /// # Errors
    /// [`AnotherDied`]: its holder may be dead, or wait for whoever is.
    pub fn latch(&self, latch: &Latch, me: SlotNo) -> Result<(), AnotherDied> {
        while let Err(held) = latch.exclusive_within(me, LOOK_NS) {
            match held.owner {
                Some(owner) if self.has(owner) && latch.take_over(owner, me) => break,
                _ if self.has_another_died() => return Err(AnotherDied),
                _ => {}
            }
        }
        Ok(())
    }

    /// The latches that the dead held shared, or were about to take or to give back, each name once.
    #[must_use]
    pub fn held_shared(&self) -> Vec<u64> {
        let mut names: Vec<u64> = self.slots.iter().flat_map(|no| self.table.held(*no).names_of_the_dead()).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Counts the shared holders of a latch again, whose name is `name`, and lets the dead forget it.
    ///
    /// # Errors
    /// [`AnotherDied`]: a thread that was about to take it or to give it back.
    pub fn recount_shared(&self, latch: &Latch, name: u64) -> Result<(), AnotherDied> {
        while latch.begin_recount() {
            for no in self.living() {
                self.await_living(|| self.table.held(no).count(name).is_some())?;
            }
            let before = latch.recounted();
            let count: Option<u16> = self.living().map(|no| self.table.held(no).count(name)).sum();
            if count.is_some_and(|count| latch.end_recount(before, count)) {
                break;
            }
        }
        self.slots.iter().for_each(|no| self.table.held(*no).forget_of_the_dead(name));
        Ok(())
    }

    /// Waits until `is_done` says yes of what a living thread is about to store.
    ///
    /// # Errors
    /// [`AnotherDied`]: it may never do so.
    pub fn await_living(&self, is_done: impl Fn() -> bool) -> Result<(), AnotherDied> {
        let mut round = 0;
        while !is_done() {
            if sync::spin(round) {
                round += 1;
            } else if self.has_another_died() {
                return if is_done() { Ok(()) } else { Err(AnotherDied) };
            } else {
                sync::sleep_ns(LOOK_NS);
            }
        }
        Ok(())
    }

    fn has_another_died(&self) -> bool {
        self.table.iter_owned().any(|no| !self.has(no) && self.table.is_dead(no))
    }
}

impl SlotTable {
    /// Has `mend` repair after all processes that are known to be dead, and frees their slots. True if anybody was.
    /// Another thread that repairs is waited for; if it dies, this one goes on for both (D1). The caller holds nothing.
    ///
    /// # Errors
    /// The thread has no slot.
    pub fn repair(&self, mend: impl Fn(&Dead<'_>) -> Result<(), AnotherDied>) -> Result<bool, RegionError> {
        if Dead::of(self).is_none() && !self.has_unburied() {
            return Ok(false);
        }
        let me = self.try_current()?;
        let latch = self.repair_latch();
        while latch.exclusive_within(me, LOOK_AT_OWNER_NS).is_err() {
            // Another one may take it over and free the slot, whose next thread may then repair by this name.
            let seen = latch.version();
            if let Some(owner) = latch.owner()
                && self.is_dead(owner)
                && latch.take_over_since(seen, owner, me)
            {
                break;
            }
        }
        let repairing = Repairing(self, me);
        let mut has_repaired = false;
        while let Some(dead) = Dead::of(self) {
            if mend(&dead).is_ok() {
                dead.slots.iter().for_each(|no| self.free_of_the_dead(*no));
                has_repaired = true;
            }
        }
        self.bury();
        std::mem::forget(repairing);
        latch.unlatch_exclusive();
        Ok(has_repaired)
    }
}

/// Dropped by a panic of a repair only: its thread is one more of the dead, with the latch. The next repairer goes on
/// for all of them (D1).
struct Repairing<'t>(&'t SlotTable, SlotNo);

impl Drop for Repairing<'_> {
    fn drop(&mut self) {
        self.0.slot(self.1).lose();
    }
}

/// A thread that waits for another one's repair looks so often whether that one lives.
const LOOK_AT_OWNER_NS: u64 = 10_000_000;

/// How long a repairer sleeps that waits for a living thread's next store: it has lost its processor.
const LOOK_NS: u64 = 20_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Region;
    use crate::sync::deaths::{kill, process, spawn_in};
    use crate::sync::{JoinHandle, Scheduler};
    use std::sync::{Arc, Mutex};

    /// D1: a repair panics. The next one goes on, with the latch, and the slot of the first is free for others then.
    #[test]
    fn whoever_repairs_after_a_repair_that_has_panicked_repairs_for_both() {
        Scheduler::run(1, || {
            let region = Region::anonymous(1 << 16).expect("a small region");
            let slots = Arc::new(SlotTable::place(&region, 8).expect("it fits"));
            slots.slot(slots.current()).lose();
            let (first, second) = (slots.clone(), slots.clone());
            let first = sync::spawn("panics", move || first.repair(|_| panic!("on purpose")));
            assert!(first.join().is_err());
            let mend = |dead: &Dead<'_>| {
                assert_eq!(dead.slots(), [SlotNo(0), SlotNo(1)]);
                Ok(())
            };
            let second = sync::spawn("repairs", move || second.repair(mend).expect("a slot is free"));
            assert!(second.join().expect("no panic"));
            assert!(Dead::of(&slots).is_none());
            assert_eq!(slots.current(), SlotNo(0), "the lost thread goes on with its slot");
            let own = slots.clone();
            let again = sync::spawn("comes later", move || own.current());
            assert_eq!(again.join().expect("no panic"), SlotNo(1), "the slot of a thread that has ended is free");
        })
        .expect("not stuck");
    }

    /// D1, D3: process 1 dies, then 2 in the middle of its repair; 3 repairs after both.
    #[test]
    fn whoever_finds_a_repairer_dead_repairs_for_both() {
        for seed in 0..50 {
            let mended = Arc::new(Mutex::new(Vec::new()));
            let found = mended.clone();
            Scheduler::run(seed, || {
                let region = Region::anonymous(1 << 16).expect("a small region");
                let slots = Arc::new(SlotTable::place(&region, 8).expect("it fits"));
                let victim = slots.clone();
                let dies = |thread: JoinHandle<bool>| thread.join().is_err_and(|panic| panic.is_released());
                assert!(dies(spawn_in(1, "victim", move || {
                    victim.current();
                    kill(1);
                    false
                })));
                let repair = |slots: Arc<SlotTable>, found: Arc<Mutex<Vec<Vec<SlotNo>>>>| {
                    sync::sleep_ns(3_000_000); // The death is known by then.
                    let mend = |dead: &Dead<'_>| {
                        if process() == 2 {
                            kill(2);
                        }
                        found.lock().expect("no panic").push(dead.slots().to_vec());
                        Ok(())
                    };
                    slots.repair(mend).expect("a slot is free")
                };
                let (of_second, of_third) = ((slots.clone(), found.clone()), (slots.clone(), found.clone()));
                assert!(dies(spawn_in(2, "dies", move || repair(of_second.0, of_second.1))));
                assert!(spawn_in(3, "repairs", move || repair(of_third.0, of_third.1)).join().expect("no panic"));
                assert!(Dead::of(&slots).is_none(), "their slots are free");
            })
            .expect("not stuck");
            assert_eq!(mended.lock().expect("no panic")[..], [vec![SlotNo(0), SlotNo(1)]], "seed {seed}");
        }
    }
}
