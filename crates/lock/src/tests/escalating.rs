//! Transactions as the engine runs them: an intention on the table, locks on its keys, upgrades, and a lock on the
//! whole table in their place. Beside them deadlines, victims and a table that is full. Each owner keeps a model of its
//! own locks, and all of them keep one of what each key is protected against, by whatever lock that is.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};

use ledgerstone_page::{Lsn, TableId, Xid};
use ledgerstone_region::{Random, sync};

use super::{make, patient};
use crate::check::{assert_consistent, assert_nobody_waits_in_vain};
use crate::{Conflict, LockConfig, LockError, LockManager, LockName, LockTable, Mode, OwnerNo, Victim, Wait};

const FIRST: u64 = 7;
const TABLES: u64 = 2;

/// A key of a table, by its numbers.
type Part = (u64, u64);

fn table_of((table, _): Part) -> LockName {
    LockName::table(TableId(FIRST + table))
}

fn name_of((table, key): Part) -> LockName {
    LockName::key(TableId(FIRST + table), key)
}

/// How large a storm is.
#[derive(Clone, Copy)]
struct Shape {
    /// Of each table.
    keys: u64,
    /// Of a transaction, at most.
    steps: u64,
    /// The part of the locks on keys that are shared, in percent.
    reads: u64,
}

/// All meet on few keys.
const NARROW: Shape = Shape { keys: 5, steps: 8, reads: 40 };
/// Each holds many locks.
const WIDE: Shape = Shape { keys: 40, steps: 60, reads: 85 };

impl Shape {
    fn parts(self) -> impl Iterator<Item = Part> {
        (0..TABLES).flat_map(move |table| (0..self.keys).map(move |key| (table, key)))
    }
}

/// What the holders themselves say of each key: entered after a grant, taken out before the release.
#[derive(Default)]
struct Keys {
    reads: BTreeMap<Part, BTreeMap<u32, bool>>,
    /// The last commit of a writer of the key.
    written: BTreeMap<Part, u64>,
    /// What the storm has met: without all of it, it proves little.
    met: Met,
}

#[derive(Clone, Copy, Debug, Default)]
struct Met {
    commits: u64,
    deadlocks: u64,
    timeouts: u64,
    full: u64,
    upgrades: u64,
    given_up: u64,
    kept: u64,
}

/// An owner, and what it should hold.
struct Owner<'l> {
    locks: &'l LockTable,
    keys: &'l Mutex<Keys>,
    no: OwnerNo,
    shape: Shape,
    held: BTreeMap<LockName, Mode>,
    depends: Lsn,
}

impl Owner<'_> {
    /// How the owner's locks protect a key: by the key's own, or by the table's.
    fn protects(&self, part: Part) -> Option<bool> {
        let whole = self.held.get(&table_of(part)).copied();
        let own = self.held.get(&name_of(part)).copied();
        let writes = whole == Some(Mode::X) || own == Some(Mode::X);
        let reads = whole.is_some_and(|mode| mode.stands_for(Mode::S)) || own.is_some_and(|mode| mode.covers(Mode::S));
        (writes || reads).then_some(writes)
    }

    /// Says what is protected now. Nobody else writes what this owner reads, or reads what it writes.
    fn enter(&self) {
        let mut keys = self.keys.lock().unwrap();
        for part in self.shape.parts() {
            let Some(writes) = self.protects(part) else { continue };
            let holders = keys.reads.entry(part).or_default();
            for (&other, &other_writes) in holders.iter() {
                let get_along = other == self.no.0 || !(writes || other_writes);
                assert!(get_along, "{} (writes: {writes}) beside owner {other} on {part:?}", self.no);
            }
            holders.insert(self.no.0, writes);
            let written = keys.written.get(&part).copied().unwrap_or_default();
            assert!(self.depends.0 >= written, "{} does not depend on commit {written} of {part:?}", self.no);
        }
    }

    /// Less is protected from now on: said before the locks go.
    fn leave(&self, part_goes: impl Fn(Part) -> bool) {
        let mut keys = self.keys.lock().unwrap();
        for part in self.shape.parts().filter(|&part| part_goes(part)) {
            keys.reads.entry(part).or_default().remove(&self.no.0);
        }
    }

    /// The keys that are protected for writing have been written by this commit.
    fn note_written(&self, commit: u64) {
        let mut keys = self.keys.lock().unwrap();
        for part in self.shape.parts().filter(|&part| self.protects(part) == Some(true)) {
            let written = keys.written.entry(part).or_default();
            *written = commit.max(*written);
        }
    }

    fn count(&self, count: impl FnOnce(&mut Met)) {
        count(&mut self.keys.lock().unwrap().met);
    }

    /// The lock table says of this owner what the model says.
    fn check(&self) {
        let mut found = BTreeMap::new();
        self.locks.for_each_held(self.no, &mut |name, mode| {
            assert_eq!(found.insert(name, mode), None, "{name} twice");
        });
        assert_eq!(found, self.held, "{}", self.no);
        // By these the victim of a deadlock is chosen.
        let owner = self.locks.owner(self.no);
        let count = owner.held_count.load(Relaxed) + owner.intention_count.load(Relaxed);
        assert_eq!(count as usize, self.held.len(), "{}", self.no);
        for part in self.shape.parts() {
            for name in [table_of(part), name_of(part)] {
                assert_eq!(self.locks.held(self.no, name), self.held.get(&name).copied(), "{} on {name}", self.no);
            }
        }
    }

    /// Locks, for no longer than the dice say. False: it was not to be had.
    fn lock(&mut self, name: LockName, mode: Mode, dice: &mut Random) -> Result<bool, LockError> {
        let wait = match dice.below(8) {
            0 => Wait::Try,
            1 => Wait::Until(sync::now_ns() + dice.below(20_000)),
            _ => patient(),
        };
        let before = self.held.get(&name).copied();
        match self.locks.lock(self.no, name, mode, wait) {
            Ok(grant) => {
                assert_eq!((grant.newly, grant.previous), (before.is_none(), before), "{} on {name}", self.no);
                self.held.insert(name, before.map_or(mode, |held| held.supremum(mode)));
                self.depends = self.depends.max(grant.depends);
                self.enter();
                if before.is_some_and(|held| !held.covers(mode)) {
                    self.count(|met| met.upgrades += 1);
                }
                Ok(true)
            }
            Err(LockError::WouldBlock) => Ok(false),
            Err(LockError::Timeout { .. }) => {
                self.count(|met| met.timeouts += 1);
                Ok(false)
            }
            Err(LockError::TableFull { .. }) => {
                self.count(|met| met.full += 1);
                self.check(); // L4
                self.escalate(dice)
            }
            Err(error) => Err(error),
        }
    }

    /// Locks the table with most keys whole, and gives these up. False: there was nothing to give up.
    fn escalate(&mut self, dice: &mut Random) -> Result<bool, LockError> {
        let keys_of =
            |table: &u64| self.held.keys().filter(|name| name.is_part() && name.table_id().0 == FIRST + *table).count();
        let table = (0..TABLES).max_by_key(keys_of).unwrap_or_default();
        let name = LockName::table(TableId(FIRST + table));
        let mode = [Mode::S, Mode::SIX, Mode::X, Mode::X][dice.below(4) as usize];
        let wait = if dice.below(3) == 0 { Wait::Try } else { patient() };
        match self.locks.lock(self.no, name, mode, wait) {
            Ok(grant) => {
                let before = self.held.get(&name).copied();
                assert_eq!(grant.previous, before);
                let whole = before.map_or(mode, |held| held.supremum(mode));
                self.held.insert(name, whole);
                self.depends = self.depends.max(grant.depends);
                self.enter();
            }
            Err(LockError::WouldBlock | LockError::TableFull { .. }) => return Ok(false),
            Err(error) => return Err(error),
        }
        let whole = self.held[&name];
        let before = self.held.len();
        self.held.retain(|part, &mut mode| {
            !(part.is_part() && part.table_id().0 == FIRST + table && whole.stands_for(mode))
        });
        let gone = (before - self.held.len()) as u32;
        assert_eq!(self.locks.unlock_keys(self.no, TableId(FIRST + table)), gone, "{} under {whole}", self.no);
        let kept = self.held.keys().filter(|part| part.is_part() && part.table_id().0 == FIRST + table).count() as u64;
        self.count(|met| (met.given_up, met.kept) = (met.given_up + u64::from(gone), met.kept + kept));
        Ok(gone > 0)
    }

    /// One step of a transaction.
    fn step(&mut self, dice: &mut Random) -> Result<(), LockError> {
        let part = (dice.below(TABLES), dice.below(self.shape.keys));
        match dice.below(12) {
            0 => {
                self.escalate(dice)?;
            }
            1 => {
                // A lock that has protected nothing goes again.
                let name = name_of(part);
                if self.held.get(&name) == Some(&Mode::U) && self.held.get(&table_of(part)) == Some(&Mode::IX) {
                    self.leave(|other| other == part);
                    assert_eq!(self.locks.unlock(self.no, name), self.held.remove(&name));
                }
            }
            2 => {
                let name = name_of(part);
                if self.held.get(&name) == Some(&Mode::U) {
                    assert_eq!(self.locks.downgrade(self.no, name, Mode::S), Some(Mode::S));
                    self.held.insert(name, Mode::S);
                }
            }
            3 => {
                let wait = if dice.below(2) == 0 { Wait::Try } else { patient() };
                match self.locks.lock_instant(self.no, name_of(part), Mode::X, wait) {
                    Ok(_) | Err(LockError::WouldBlock | LockError::TableFull { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
            _ => {
                let mode =
                    if dice.percent(self.shape.reads) { Mode::S } else { dice.pick(&[Mode::U, Mode::X, Mode::X]) };
                let covers = |whole: Mode| whole == Mode::X || whole.stands_for(Mode::S) && mode == Mode::S;
                if self.held.get(&table_of(part)).is_some_and(|&whole| covers(whole)) {
                    return Ok(()); // It needs no lock of its own.
                }
                let intention = if mode == Mode::S { Mode::IS } else { Mode::IX };
                if self.lock(table_of(part), intention, dice)?
                    && self.held.get(&table_of(part)).is_some_and(|whole| whole.covers(intention))
                {
                    self.lock(name_of(part), mode, dice)?;
                }
            }
        }
        Ok(())
    }

    fn transaction(&mut self, dice: &mut Random) -> Result<(), LockError> {
        for _ in 0..2 + dice.below(self.shape.steps) {
            let done = self.step(dice);
            self.check(); // After a refusal, too: L4.
            done?;
            sync::yield_point("between locks");
            assert_nobody_waits_in_vain(self.locks);
        }
        Ok(())
    }
}

/// What the threads of a storm share.
struct Storm {
    locks: Arc<LockTable>,
    shape: Shape,
    keys: Mutex<Keys>,
    /// Where the log of all ends.
    lsn: Mutex<u64>,
}

impl Storm {
    /// Runs so many transactions of one owner.
    fn run(&self, no: OwnerNo, seed: u64, count: u64) {
        let Storm { locks, shape, keys, lsn } = self;
        let mut dice = Random::new(seed ^ u64::from(no.0) << 32);
        for n in 0..count {
            let age = Xid(1 + n * 64 + u64::from(no.0)); // A victim comes again at its old age.
            loop {
                locks.begin(no, age);
                locks.avoid_deadlocks(no);
                let (held, depends) = (BTreeMap::new(), Lsn(0));
                let mut owner = Owner { locks, keys, no, shape: *shape, held, depends };
                let done = owner.transaction(&mut dice);
                let commit = done.is_ok().then(|| {
                    let mut lsn = lsn.lock().unwrap();
                    *lsn += 1;
                    *lsn
                });
                if let Some(commit) = commit {
                    owner.note_written(commit);
                }
                owner.leave(|_| true);
                locks.unlock_all(no, commit.map(Lsn));
                owner.held.clear();
                owner.check();
                match done {
                    Ok(()) => break owner.count(|met| met.commits += 1),
                    Err(LockError::Deadlock { .. }) => owner.count(|met| met.deadlocks += 1),
                    Err(LockError::Refused { .. }) => sync::sleep_ns(5_000),
                    Err(error) => panic!("{no}: {error}"),
                }
            }
        }
    }
}

fn storm(seed: u64, count: u64, shape: Shape, config: LockConfig) -> Met {
    let owners = config.owners;
    let storm = Arc::new(Storm { locks: make(config), shape, keys: Mutex::default(), lsn: Mutex::default() });
    let threads = (0..owners).map(|owner| {
        let storm = Arc::clone(&storm);
        sync::spawn("escalating", move || storm.run(OwnerNo(owner), seed, count))
    });
    threads.collect::<Vec<_>>().into_iter().for_each(|thread| thread.join().expect("a thread failed"));
    let locks = &storm.locks;
    assert_eq!(assert_consistent(locks), 0, "seed {seed}");
    for part in shape.parts() {
        assert_eq!(locks.held_by_any(table_of(part)).or(locks.held_by_any(name_of(part))), None, "seed {seed}");
    }
    let met = storm.keys.lock().unwrap().met;
    assert_eq!((met.commits, met.deadlocks), (u64::from(owners) * count, locks.stats().deadlocks), "seed {seed}");
    met
}

/// One seed after the other, and what all of them have met.
fn storms(seeds: std::ops::Range<u64>, shape: Shape, config: impl Fn(u64) -> LockConfig) -> Met {
    let mut all = Met::default();
    for seed in seeds {
        let config = config(seed);
        let met = sync::Scheduler::run(seed, || storm(seed, 5, shape, config));
        let met = met.unwrap_or_else(|stuck| panic!("seed {seed}: {stuck}"));
        all.commits += met.commits;
        all.deadlocks += met.deadlocks;
        all.timeouts += met.timeouts;
        all.full += met.full;
        all.upgrades += met.upgrades;
        all.given_up += met.given_up;
        all.kept += met.kept;
    }
    all
}

fn config(locks_max: u32, buckets: u32, fast_intentions: bool) -> LockConfig {
    LockConfig { owners: 4, locks_max, buckets, fast_intentions, ..LockConfig::default() }
}

#[test]
fn locks_on_whole_tables_stand_for_what_was_given_up_for_them() {
    let met = storms(0..100, NARROW, |seed| config(64, [16, 1, 4][seed as usize % 3], !seed.is_multiple_of(4)));
    let is_met = [met.commits, met.deadlocks, met.timeouts, met.upgrades, met.given_up, met.kept];
    assert!(is_met.iter().all(|&count| count > 0), "{met:?}");
}

#[test]
fn the_same_with_a_full_lock_table() {
    let met = storms(0..60, WIDE, |seed| config(4, 4, !seed.is_multiple_of(3)));
    assert!(met.full > 0 && met.given_up > 0 && met.deadlocks > 0, "{met:?}");
}

#[test]
fn the_same_under_every_policy() {
    for victim in [Victim::Oldest, Victim::FewestLocks, Victim::LeastLog, Victim::Random] {
        storms(0..12, NARROW, |_| LockConfig { victim, ..config(64, 4, true) });
    }
    for conflict in [Conflict::NoWait, Conflict::WaitDie] {
        storms(0..20, NARROW, |_| LockConfig { conflict, ..config(64, 4, true) });
    }
}

#[test]
fn the_same_on_threads_of_the_system() {
    for seed in 0..3 {
        storm(seed, 200, NARROW, config(64, [16, 1, 4][seed as usize], true));
    }
}
