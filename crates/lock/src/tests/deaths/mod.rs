//! Processes that die at every store of every call, beside living ones that want the same locks.
//!
//! Each process has a view of the region of its own. Process 1 dies, processes 2 and 3 live. A thread of theirs mends
//! after each death, and then ends the transactions of the dead, as the layer of transactions would. The frame is that
//! of all campaigns of deaths, `ledgerstone_testkit::deaths`.

mod by_hand;
mod forgotten;
mod places;
mod random;
mod scripts;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use ledgerstone_page::{Lsn, Xid};
use ledgerstone_region::sync;
use ledgerstone_region::sync::deaths::{kill_at_step, spawn_in, steps};
use ledgerstone_region::{Dead, Random, Region, Repair, SlotTable};
use ledgerstone_testkit::deaths::{Outcome, Which, at_each_step, go_on_repairing, in_repairs, lived, outlived, round};

use self::scripts::{SCRIPTS, Script};
use super::{key, patient, table_name};
use crate::bucket::Holder;
use crate::intention::lock_of;
use crate::mode::ModeSet;
use crate::planted::Part;
use crate::table::{MENDING, Node};
use crate::{LockConfig, LockError, LockManager, LockName, LockTable, Mode, OwnerNo, Wait, wait_word};

const THREADS_MAX: u32 = 48;
const OWNERS: u32 = 24;
/// Owners of processes 1, 2 and 3, two each; a process may have more.
const VICTIM: OwnerNo = OwnerNo(0);
const VICTIMS_OTHER: OwnerNo = OwnerNo(1);

/// What all processes share. `table` and `slots` are those of process 0.
#[derive(Clone)]
struct World {
    region: Region,
    slots: Arc<SlotTable>,
    table: Arc<LockTable>,
    /// Who holds what, as the holders say: entered after the grant, taken out before the release.
    witness: Arc<Mutex<BTreeMap<(LockName, u32), Mode>>>,
    /// What commits have given up.
    commits: Arc<Mutex<Commits>>,
    /// Nobody calls waits off but process 1, and nobody allows them.
    has_one_canceller: bool,
    /// The victim has died, or come to its end.
    is_settled: Arc<AtomicBool>,
}

/// Commits, and who depends on them.
#[derive(Default)]
struct Commits {
    last: u64,
    /// The owners that are giving up what they hold, or died so, and their commits.
    under_way: BTreeMap<u32, u64>,
    /// The newest commit that gave up a writer's mode of a name, by its number.
    given_up: BTreeMap<(LockName, u8), (Mode, u64)>,
}

impl Commits {
    /// The commit of an owner that gives up all that is in `held`.
    fn begin(&mut self, owner: OwnerNo, held: &BTreeMap<(LockName, u32), Mode>) -> Lsn {
        let next = self.last + 1;
        let lsn = *self.under_way.entry(owner.0).or_insert(next);
        self.last = self.last.max(lsn);
        for (&(name, by), &mode) in held {
            if by == owner.0 && mode.may_write() {
                self.given_up.insert((name, mode as u8), (mode, lsn));
            }
        }
        Lsn(lsn)
    }

    /// Whoever is granted a lock after a commit gave up a conflicting one depends on that.
    fn assert_depends(&self, name: LockName, mode: Mode, depends: Lsn) {
        for (_, &(given_up, lsn)) in self.given_up.range((name, 0)..=(name, u8::MAX)) {
            let get_along = mode.is_compatible_with(given_up) || given_up.is_compatible_with(mode);
            assert!(get_along || depends.0 >= lsn, "{mode} on {name} depends on {depends:?}, not on {lsn}");
        }
    }
}

/// What a thread of one process has.
#[derive(Clone)]
struct Here {
    world: World,
    slots: Arc<SlotTable>,
    table: Arc<LockTable>,
}

impl World {
    fn new(forgotten: Option<Part>, config: LockConfig, has_one_canceller: bool) -> World {
        let region = Region::shared(config.region_bytes() + (1 << 16)).expect("address space");
        let slots = Arc::new(SlotTable::place(&region, THREADS_MAX).expect("it fits"));
        let mut table = LockTable::place(&region, &slots, config).expect("region_bytes is enough");
        table.forgotten = forgotten;
        World {
            region,
            slots,
            table: Arc::new(table),
            witness: Arc::default(),
            commits: Arc::default(),
            has_one_canceller,
            is_settled: Arc::default(),
        }
    }

    /// Nothing is left over of anybody, living or dead.
    fn assert_all_free(&self) {
        assert!(Dead::of(&self.slots).is_none(), "the dead have slots");
        self.table.assert_nothing_left();
        assert!(self.witness.lock().expect("no panic").is_empty());
    }

    /// Process 5 mends until this thread has ended, and so long after that. Then nothing is left over.
    fn mend_beside(&self, thread: sync::JoinHandle<()>, more_ns: u64) {
        let is_over = Arc::new(AtomicBool::new(false));
        let over = is_over.clone();
        let mender = self.start(5, "mender", move |here| here.go_on_mending(&over, 50_000));
        lived(thread);
        sync::sleep_ns(more_ns);
        is_over.store(true, SeqCst);
        lived(mender);
        self.assert_all_free();
    }

    /// Starts a thread of `process`, with a view of its own.
    fn start<T: Send + 'static>(
        &self,
        process: u32,
        name: &str,
        f: impl FnOnce(&Here) -> T + Send + 'static,
    ) -> sync::JoinHandle<T> {
        let world = self.clone();
        let view = self.region.view().expect("address space");
        spawn_in(process, name, move || {
            let slots = Arc::new(SlotTable::place(&view, world.slots.max_threads()).expect("a view of the region"));
            let table = Arc::new(world.table.view(&view, &slots).expect("a view of the region"));
            f(&Here { world, slots, table })
        })
    }
}

impl Here {
    fn enter(&self, owner: OwnerNo, name: LockName, mode: Mode) {
        let mut witness = self.world.witness.lock().expect("no panic");
        for (&(_, other), &held) in witness.range((name, 0)..=(name, u32::MAX)) {
            let get_along = mode.is_compatible_with(held) || held.is_compatible_with(mode);
            assert!(other == owner.0 || get_along, "{owner} has {mode} beside {held} of owner {other} on {name}");
        }
        witness.insert((name, owner.0), mode);
    }

    fn leave(&self, owner: OwnerNo, name: Option<LockName>) {
        let mut witness = self.world.witness.lock().expect("no panic");
        witness.retain(|&(of, by), _| by != owner.0 || name.is_some_and(|name| name != of));
    }

    fn lock(&self, owner: OwnerNo, name: LockName, mode: Mode, wait: Wait) -> Result<(), LockError> {
        let grant = self.table.lock(owner, name, mode, wait)?;
        self.world.commits.lock().expect("no panic").assert_depends(name, mode, grant.depends);
        self.enter(owner, name, grant.previous.map_or(mode, |previous| previous.supremum(mode)));
        Ok(())
    }

    /// Again, if the owner has died on its way.
    fn unlock_all(&self, owner: OwnerNo) {
        let held = self.world.witness.lock().expect("no panic").clone();
        let lsn = self.world.commits.lock().expect("no panic").begin(owner, &held);
        self.leave(owner, None);
        self.table.unlock_all(owner, Some(lsn));
        self.world.commits.lock().expect("no panic").under_way.remove(&owner.0);
    }

    /// Repairs, if anybody has died. Then another thread ends the transactions of the dead: it may come to wait for a
    /// latch of the next one that dies, and this one must not.
    fn mend(&self) -> Option<sync::JoinHandle<()>> {
        // A repair that begins again has the owners of the first dead already.
        let theirs = RefCell::new(BTreeSet::new());
        let attempts = Cell::new(0);
        let mend = |dead: &Dead<'_>| {
            attempts.set(attempts.get() + 1);
            assert!(attempts.get() < 100, "a repair does not end");
            let is_theirs = |owner_no: &u32| {
                let thread = self.table.owner(OwnerNo(*owner_no)).thread.load(SeqCst);
                Holder::in_word(thread).is_some_and(|slot| dead.has(slot))
            };
            theirs.borrow_mut().extend((0..OWNERS).filter(is_theirs));
            self.table.repair(dead)?;
            self.assert_nobody_sleeps_if_cancelled();
            Ok(())
        };
        self.slots.repair(mend).expect("a slot is free").then(|| {
            let here = self.clone();
            sync::spawn("ends them", move || {
                // A rollback takes its time.
                sync::sleep_ns(2_000_000);
                for owner in theirs.take().into_iter().map(OwnerNo) {
                    here.assert_mended(owner);
                    here.assert_protected(owner);
                    here.table.adopt(owner, here.slots.current());
                    here.unlock_all(owner);
                }
            })
        })
    }

    /// Mends until all is over.
    fn go_on_mending(&self, is_over: &AtomicBool, period_ns: u64) {
        go_on_repairing(is_over, period_ns, || self.mend());
    }

    /// Looks for deadlocks until all is over.
    fn go_on_detecting(&self, is_over: &AtomicBool) {
        while !is_over.load(SeqCst) {
            self.table.detect();
            sync::sleep_ns(100_000);
        }
    }

    /// One of the calls that are about all owners, or none of them.
    fn look_around(&self, draw: u64) {
        match draw {
            0 => drop(self.table.detect()),
            1 => drop(self.table.waits()),
            2 => self.table.cancel_all_waits(),
            3 => self.table.allow_waits(),
            4 => drop(self.table.awaits_end(OwnerNo(0), OwnerNo(1))),
            _ => {}
        }
    }

    /// An owner whose thread is dead asks for nothing any more, and what it holds stands in nobody's way wrongly.
    fn assert_mended(&self, owner_no: OwnerNo) {
        let table = &*self.table;
        let owner = table.owner(owner_no);
        assert_eq!(owner.thread.load(SeqCst) & MENDING, 0, "{owner_no} is being mended still");
        let asks = |node: &Node| node.wanted().is_some() && node.owner_no() == owner_no;
        assert!(!table.nodes.iter().any(asks), "a request of {owner_no}, which is dead, waits");
        for place in &owner.intentions {
            let word = place.load(SeqCst);
            let Some((name, mode)) = lock_of(word) else { continue };
            let queue = table.latch_bucket(table.bucket_no(name), table.caller());
            let mut held = ModeSet::EMPTY;
            queue.for_each(name, |_, node| held.add_number(node.granted_number()));
            let is_collected = place.load(SeqCst) != word;
            assert!(is_collected || held.admits(mode), "{owner_no} has {mode} in a word beside {held:?} on {name}");
        }
    }

    /// Where one process only calls waits off: whoever sleeps then has been told, also if that process has died.
    fn assert_nobody_sleeps_if_cancelled(&self) {
        let header = self.table.header();
        if self.world.has_one_canceller && header.is_cancelled.load(SeqCst) != 0 {
            for (no, owner) in self.table.owners.iter().enumerate() {
                let state = wait_word::state(owner.wait_word.load(SeqCst));
                assert_ne!(state, wait_word::ASLEEP, "owner {no} sleeps though waits are called off");
            }
        }
    }

    /// What the dead have been granted stays theirs until their transaction ends.
    fn assert_protected(&self, owner: OwnerNo) {
        let witness = self.world.witness.lock().expect("no panic").clone();
        for (&(name, _), &mode) in witness.iter().filter(|((_, by), _)| *by == owner.0) {
            let held = self.table.held(owner, name);
            assert!(held.is_some_and(|held| held.covers(mode)), "{owner} had {mode} on {name}, and has {held:?}");
        }
    }

    /// Some transactions that want the same locks as all others.
    fn live(&self, owner: OwnerNo, seed: u64, count: u64) {
        let mut dice = Random::new(seed ^ u64::from(owner.0) << 32);
        for n in 0..count {
            let age = Xid(10 + n * 64 + u64::from(owner.0));
            loop {
                self.table.begin(owner, age);
                let result = self.transaction(owner, &mut dice);
                self.unlock_all(owner);
                match result {
                    Ok(()) => break,
                    Err(LockError::Deadlock { .. }) => {}
                    Err(LockError::Cancelled) => sync::sleep_ns(20_000),
                    Err(error) => panic!("{owner}: {error}"),
                }
            }
        }
    }

    fn transaction(&self, owner: OwnerNo, dice: &mut Random) -> Result<(), LockError> {
        for _ in 0..1 + dice.below(3) {
            let name = if dice.below(2) == 0 { table_name(7) } else { key(dice.below(3)) };
            let mode = if name.is_table() && dice.below(3) > 0 {
                [Mode::IS, Mode::IX][dice.below(2) as usize]
            } else {
                [Mode::S, Mode::U, Mode::X][dice.below(3) as usize]
            };
            self.lock(owner, name, mode, patient())?;
            sync::yield_point("between locks");
        }
        Ok(())
    }
}

fn tiny() -> LockConfig {
    LockConfig { owners: OWNERS, locks_max: 64, buckets: 2, ..LockConfig::default() }
}

/// Kills process 1 at a step of `script`, and perhaps process 4, which mends first, at one of its own. Asserts all that
/// must be.
fn run(seed: u64, script: Script, forgotten: Option<Part>, victim_step: u64, repairer_step: u64) -> Outcome {
    round((seed, forgotten, victim_step, repairer_step), seed, 400_000, || {
        let world = World::new(forgotten, tiny(), true);
        let is_over = Arc::new(AtomicBool::new(false));
        let victim = world.start(1, "victim", move |here| {
            let before = steps(1);
            kill_at_step(1, victim_step);
            script(here);
            kill_at_step(1, 0);
            steps(1) - before
        });
        let living = [(2, 2), (3, 3)]
            .map(|(process, owner)| world.start(process, "living", move |here| here.live(OwnerNo(owner), seed, 6)));
        let first = (repairer_step != 0).then(|| {
            world.start(4, "repairer", move |here| {
                // A death is known some milliseconds later.
                let mut looks_left = 100;
                while Dead::of(&here.slots).is_none() && looks_left > 0 {
                    looks_left -= u32::from(here.world.is_settled.load(SeqCst));
                    sync::sleep_ns(50_000);
                }
                kill_at_step(4, repairer_step);
                here.mend().into_iter().for_each(lived);
                kill_at_step(4, 0);
            })
        });
        // The first repairer goes first.
        let period_ns = if first.is_some() { 3_000_000 } else { 50_000 };
        let over = is_over.clone();
        let mender = world.start(5, "mender", move |here| here.go_on_mending(&over, period_ns));
        let victim = outlived(victim);
        world.is_settled.store(true, SeqCst);
        living.into_iter().for_each(lived);
        let repairer = first.is_some_and(|first| outlived(first).is_none());
        // Deaths are known some milliseconds later.
        sync::sleep_ns(20_000_000);
        is_over.store(true, SeqCst);
        lived(mender);
        world.table.allow_waits();
        world.assert_all_free();
        let victim_steps = victim.unwrap_or_default();
        Outcome { victim: victim.is_none(), repairer, victim_steps, ..Outcome::default() }
    })
}

fn script_of(name: &str) -> Script {
    SCRIPTS.iter().find(|(of, _)| *of == name).expect("it is one of them").1
}

/// Each with several interleavings.
#[test]
fn a_death_at_every_step_of_every_call_leaves_what_survivors_can_mend() {
    let works: Vec<_> = SCRIPTS.iter().flat_map(|(name, _)| (0..3).map(move |no| (*name, no))).collect();
    at_each_step(
        &works,
        Which::Each,
        |deaths, _| deaths > 10,
        |(name, no), step| run(no << 32 | step, script_of(name), None, step, 0),
    );
}

/// D1: whoever repairs next, repairs for both.
#[test]
fn a_repairer_that_dies_at_any_step_leaves_what_the_next_one_can_mend() {
    let names: Vec<_> = SCRIPTS.iter().map(|(name, _)| *name).collect();
    let some = Which::These(&[1, 13, 25, 34, 46, 58, 67, 79, 91, 100, 112, 124]);
    in_repairs(&names, [some, Which::Each], 5000, |name, n, r| run(1 << 40 | n << 20 | r, script_of(name), None, n, r));
}
