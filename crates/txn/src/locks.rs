//! Locks as transactions take them: tables, keys and gaps, intention locks, escalation.
//!
//! The lock manager knows names and owners. This file knows that a key belongs to a table, that a table lock may cover
//! its keys, and when many key locks are worth one table lock.

use std::cmp::Reverse;

use ledgerstone_lock::{LockError, LockName, Mode, OwnerNo, Wait};
use ledgerstone_page::planted::{self, Bug};
use ledgerstone_page::{Lsn, PageId, TableId};
use ledgerstone_region::{ByNumber, sync};

use crate::{Txn, TxnError};

/// What kind of thing a lock name names; the low bits of its space.
const TABLE: u64 = 0;
const KEY: u64 = 1;
const GAP: u64 = 2;
const PAGE: u64 = 3;
/// Item of the gap above the last key of a table.
const SUPREMUM: u64 = u64::MAX;
/// Items of the dead ends of a table.
const FRONT: u64 = u64::MAX - 1;
const BACK: u64 = u64::MAX - 2;

/// A key's part of a table, as locks see it (design 5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyLock {
    /// The key with this hash.
    Key(u64),
    /// The gap before the key with this hash.
    Gap(u64),
    /// The gap above the last key.
    Supremum,
    /// All gaps below the first record, where there is nothing but ghosts.
    Front,
    /// All gaps above the last record, where there is nothing but ghosts.
    Back,
    /// A leaf with all its keys and gaps, for structures that lock pages.
    Page(PageId),
}

/// The hash that names a key in the lock table. Two keys with one hash share a lock, which costs concurrency but is
/// never wrong.
#[inline]
#[must_use]
pub fn key_hash(key: &[u8]) -> u64 {
    // The names of the table's ends stay their own.
    xxhash_rust::xxh3::xxh3_64(key) & (u64::MAX >> 1)
}

/// The lock name of a whole table.
#[inline]
#[must_use]
pub fn table_name(table: TableId) -> LockName {
    LockName { space: table.0 << 2 | TABLE, item: 0 }
}

/// The lock name of a key or gap.
#[inline]
#[must_use]
pub fn key_name(table: TableId, what: KeyLock) -> LockName {
    match what {
        KeyLock::Key(hash) => LockName { space: table.0 << 2 | KEY, item: hash },
        KeyLock::Gap(hash) => LockName { space: table.0 << 2 | GAP, item: hash },
        KeyLock::Supremum => LockName { space: table.0 << 2 | GAP, item: SUPREMUM },
        KeyLock::Front => LockName { space: table.0 << 2 | GAP, item: FRONT },
        KeyLock::Back => LockName { space: table.0 << 2 | GAP, item: BACK },
        KeyLock::Page(page) => LockName { space: table.0 << 2 | PAGE, item: page.0 },
    }
}

/// What a lock of a table's part is called in a message: `key` is the key itself, or one that lies in the gap, as text.
pub(crate) fn text_of(name: LockName, key: Option<String>) -> String {
    match (name.space & 3, name.item, key) {
        (KEY, _, Some(key)) => format!("key {key}"),
        (KEY, _, None) => "a key".into(),
        (GAP, SUPREMUM, _) => "the gap above the last key".into(),
        (GAP, FRONT, _) => "the gap below the first key".into(),
        (GAP, BACK, _) => "the gap above the last record".into(),
        (GAP, _, Some(key)) => format!("the gap at key {key}"),
        (GAP, _, None) => "a gap".into(),
        (PAGE, page, _) if page != 0 => format!("page {page}"),
        (_, item, _) => format!("part {item}"),
    }
}

/// Table locks that are looked through one by one; more are found by their numbers.
const LOOKED_THROUGH_MAX: usize = 16;

/// The table locks a transaction holds: a copy of what the lock table says, to save asking.
pub(crate) struct HeldTables {
    held: Vec<HeldTable>,
    /// Where each is in `held`, once there are too many to be looked through.
    places: ByNumber<TableId, u32>,
    /// Locks on keys, gaps and pages of all of them, and how many it takes until the next look at the transaction's
    /// share.
    keys: u32,
    look_from: u32,
    /// How many of one table it takes until the whole table is tried to be locked.
    escalate_after: u32,
    /// No table is locked whole for its key locks ([`Txn::never_lock_whole_tables`]).
    never_whole: bool,
}

struct HeldTable {
    table: TableId,
    mode: Mode,
    /// Locks on its keys, gaps and pages that were granted and are still held.
    keys: u32,
    /// The number of them from which on the whole table is tried to be locked; more after each try that failed.
    try_from: u32,
    wrote: bool,
}

/// How many more locks are taken until the next try to lock the whole table, and until the next look at the
/// transaction's share. So many are given up together, if there are as many, when the lock table is full.
const KEYS_BETWEEN_TRIES: u32 = 64;

/// Tables used by others, too, that a transaction tries to lock whole while there are locks left. Each try can take
/// nodes for the intentions of the others. A transaction that would be refused otherwise tries all of its tables.
const SHARED_TABLES_TRIED_MAX: u32 = 8;

impl HeldTables {
    /// None yet. After so many locks on keys of one table, the table is tried to be locked instead.
    pub(crate) fn new(escalate_after: u32) -> HeldTables {
        HeldTables {
            held: Vec::new(),
            places: ByNumber::new(),
            keys: 0,
            look_from: KEYS_BETWEEN_TRIES,
            escalate_after: escalate_after.max(1),
            never_whole: false,
        }
    }

    /// None any more. Room for a few is kept.
    #[inline]
    pub(crate) fn clear(&mut self) {
        if self.held.len() > LOOKED_THROUGH_MAX {
            *self = HeldTables::new(self.escalate_after);
            return;
        }
        self.held.clear();
        (self.keys, self.look_from) = (0, KEYS_BETWEEN_TRIES);
    }

    #[inline]
    fn place(&self, table: TableId) -> Option<usize> {
        if self.held.len() <= LOOKED_THROUGH_MAX {
            // From the back: the table used last is the likeliest, and there are few.
            self.held.iter().rposition(|h| h.table == table)
        } else {
            self.place_of_many(table)
        }
    }

    #[inline(never)]
    fn place_of_many(&self, table: TableId) -> Option<usize> {
        self.places.get(table).map(|&place| place as usize)
    }

    fn find(&mut self, table: TableId) -> Option<&mut HeldTable> {
        self.place(table).map(|place| &mut self.held[place])
    }

    #[inline]
    fn has(&self, place: usize, mode: Mode) -> bool {
        let held = self.held[place].mode;
        held.supremum(mode) == held
    }

    #[inline]
    fn mode(&self, table: TableId) -> Option<Mode> {
        self.place(table).map(|place| self.held[place].mode)
    }

    /// Notes a lock on a table that was at `place` before, if anywhere, and says where it is now.
    #[inline]
    fn set(&mut self, place: Option<usize>, table: TableId, mode: Mode) -> usize {
        match place {
            Some(place) => {
                let held = &mut self.held[place].mode;
                *held = held.supremum(mode);
                place
            }
            None => {
                let try_from = if self.never_whole { u32::MAX } else { self.escalate_after };
                self.held.push(HeldTable { table, mode, keys: 0, try_from, wrote: false });
                if self.held.len() > LOOKED_THROUGH_MAX {
                    self.number();
                }
                self.held.len() - 1
            }
        }
    }

    /// Counts a key lock that was granted newly.
    #[inline]
    fn count_key(&mut self, place: usize, newly: bool) {
        self.keys += u32::from(newly);
        self.held[place].keys += u32::from(newly);
    }

    fn keys_of(&self, table: TableId) -> u32 {
        self.place(table).map_or(0, |place| self.held[place].keys)
    }

    /// The tables with at least `keys_min` locks on their keys, and how many those are; those with most come first. The
    /// last ones are left out if there are more than can be needed where `shared_max` of them cannot be had.
    fn with_most_keys(&self, keys_min: u32, shared_max: u32) -> Vec<(u32, TableId)> {
        let count_max = KEYS_BETWEEN_TRIES.saturating_add(shared_max) as usize;
        let held = self.held.iter().filter(|held| held.keys >= keys_min);
        let mut tables: Vec<(u32, TableId)> = held.map(|held| (held.keys, held.table)).collect();
        let order = |&(keys, table): &(u32, TableId)| (Reverse(keys), table);
        if tables.len() > count_max {
            tables.select_nth_unstable_by_key(count_max, order);
            tables.truncate(count_max);
        }
        tables.sort_unstable_by_key(order);
        tables
    }

    /// The mode of the table that stands for all key locks taken there.
    fn whole(&self, table: TableId) -> Mode {
        let has_written = self.place(table).is_some_and(|place| self.held[place].wrote);
        if has_written { Mode::X } else { Mode::S }
    }

    /// There are many. Notes the place of the newest; of all when they have just become many.
    #[inline(never)]
    fn number(&mut self) {
        let count = self.held.len();
        let from = if count == LOOKED_THROUGH_MAX + 1 { 0 } else { count - 1 };
        self.places.extend((from as u32..).zip(&self.held[from..]).map(|(at, held)| (held.table, at)));
    }
}

/// The intention on the table that a key lock of `mode` needs.
#[inline]
fn intention(mode: Mode) -> Mode {
    match mode {
        Mode::IS | Mode::S => Mode::IS,
        Mode::IX | Mode::SIX | Mode::U | Mode::X => Mode::IX,
    }
}

/// True if a lock on the table in mode `held` makes key locks of `mode` unnecessary.
#[inline]
fn covered(held: Mode, mode: Mode) -> bool {
    held.stands_for(mode) || held == Mode::SIX && planted::is_on(Bug::TableLockCoversWrites)
}

impl Txn {
    /// Takes a lock by any name, waiting for it. Hold no latch.
    ///
    /// # Errors
    /// Deadlock, time-out, lock table full, failed environment.
    pub fn lock(&mut self, name: LockName, mode: Mode) -> Result<(), TxnError> {
        self.lock_newly(name, mode, None).map(drop)
    }

    /// As [`Txn::lock`]; says whether nothing was held there before. `key` is for messages.
    fn lock_newly(&mut self, name: LockName, mode: Mode, key: Option<&[u8]>) -> Result<bool, TxnError> {
        if self.rolling_back {
            return Ok(false);
        }
        match self.engine.locks.lock(OwnerNo(self.chain.no), name, mode, Wait::Try) {
            Err(LockError::WouldBlock) => self.lock_waiting(name, mode, key),
            granted => {
                let grant = granted?;
                self.depend(grant.depends);
                Ok(grant.newly)
            }
        }
    }

    /// The same for a lock that was asked for without waiting, and would block.
    fn lock_waiting(&mut self, name: LockName, mode: Mode, key: Option<&[u8]>) -> Result<bool, TxnError> {
        if let Some(key) = key {
            self.engine.waited.note(name, key);
        }
        let deadline = self.prepare_to_wait();
        let granted = {
            let _holds_up = self.hold_up_callers(name, mode)?;
            self.engine.locks.lock(OwnerNo(self.chain.no), name, mode, Wait::Until(deadline))
        };
        let grant = self.note_giving_way(name, mode, granted)?;
        self.depend(grant.depends);
        Ok(grant.newly)
    }

    /// Lets the lock manager refuse locks to avoid deadlocks, if it does that. For users' transactions, which can be
    /// run again. Without this call, the transaction waits for locks.
    #[inline]
    pub fn avoid_deadlocks(&mut self) {
        if self.engine.avoids_deadlocks {
            self.engine.locks.avoid_deadlocks(OwnerNo(self.chain.no));
        }
    }

    /// Keeps its locks on keys and pages, however many they come to be: for housekeeping, which nobody should have to
    /// wait for. Where the lock table is full, it is refused. Called before its first lock.
    pub fn never_lock_whole_tables(&mut self) {
        (self.tables.never_whole, self.tables.look_from) = (true, u32::MAX);
    }

    /// Gives up what nobody may hold while it waits for a lock, says what a rollback would cost, and returns the
    /// deadline.
    fn prepare_to_wait(&mut self) -> u64 {
        self.release_claim(); // Nobody else may wait for room while we wait for a lock.
        self.engine.table.note_wait(self.chain.no);
        self.engine.locks.set_weight(OwnerNo(self.chain.no), self.chain.undo_needed());
        sync::now_ns().saturating_add(self.lock_timeout_ns)
    }

    /// Takes a lock if that needs no waiting. May be called under latches.
    ///
    /// # Errors
    /// Lock table full, failed environment.
    pub fn try_lock(&mut self, name: LockName, mode: Mode) -> Result<bool, TxnError> {
        Ok(self.try_lock_newly(name, mode)?.is_some())
    }

    /// As [`Txn::try_lock`]; says whether nothing was held there before, or `None` if the lock cannot be had.
    fn try_lock_newly(&mut self, name: LockName, mode: Mode) -> Result<Option<bool>, TxnError> {
        if self.rolling_back {
            return Ok(Some(false));
        }
        match self.engine.locks.lock(OwnerNo(self.chain.no), name, mode, Wait::Try) {
            Ok(grant) => {
                self.depend(grant.depends);
                Ok(Some(grant.newly))
            }
            Err(LockError::WouldBlock) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits until the lock could be had, and does not keep it.
    ///
    /// # Errors
    /// As [`Txn::lock`].
    pub fn lock_instant(&mut self, name: LockName, mode: Mode) -> Result<(), TxnError> {
        if self.rolling_back {
            return Ok(());
        }
        let deadline = self.prepare_to_wait();
        let granted = {
            let _holds_up = self.hold_up_callers(name, mode)?;
            self.engine.locks.lock_instant(OwnerNo(self.chain.no), name, mode, Wait::Until(deadline))
        };
        let depends = self.note_giving_way(name, mode, granted)?;
        self.depend(depends);
        Ok(())
    }

    fn note_giving_way<T>(
        &mut self,
        name: LockName,
        mode: Mode,
        granted: Result<T, LockError>,
    ) -> Result<T, LockError> {
        if matches!(granted, Err(LockError::Deadlock { .. } | LockError::Refused { .. })) {
            self.gave_way_for = Some((name, mode));
        }
        granted
    }

    /// The lock that was last refused to this transaction because of a deadlock, or to avoid one. Before the
    /// transaction is run again, wait for that lock ([`Txn::lock_instant`]) while holding nothing. Otherwise it would
    /// meet the same transactions again.
    #[must_use]
    pub fn gave_way_for(&self) -> Option<(LockName, Mode)> {
        self.gave_way_for
    }

    /// True if the lock could be had now. May be called under latches.
    ///
    /// # Errors
    /// As [`Txn::try_lock`].
    pub fn try_lock_instant(&mut self, name: LockName, mode: Mode) -> Result<bool, TxnError> {
        if self.rolling_back {
            return Ok(true);
        }
        match self.engine.locks.lock_instant(OwnerNo(self.chain.no), name, mode, Wait::Try) {
            Ok(depends) => {
                self.depend(depends);
                Ok(true)
            }
            Err(LockError::WouldBlock) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Locks a table.
    ///
    /// # Errors
    /// As [`Txn::lock`].
    #[inline]
    pub fn lock_table(&mut self, table: TableId, mode: Mode) -> Result<(), TxnError> {
        let place = self.tables.place(table);
        if self.rolling_back || place.is_some_and(|place| self.tables.has(place, mode)) {
            return Ok(());
        }
        self.lock_table_more(place, table, mode)
    }

    /// The same for a table, at `place` if it is held already, that is not held so.
    #[inline(never)]
    fn lock_table_more(&mut self, place: Option<usize>, table: TableId, mode: Mode) -> Result<(), TxnError> {
        // The usual case.
        match self.engine.locks.lock(OwnerNo(self.chain.no), table_name(table), mode, Wait::Try) {
            Ok(grant) => {
                self.depend(grant.depends);
                self.tables.set(place, table, mode);
                Ok(())
            }
            Err(refused) => self.lock_table_anyhow(table, mode, refused),
        }
    }

    /// The table's lock was refused at the first try: waits for it or makes room for it, if one of these may help.
    #[cold]
    #[inline(never)]
    fn lock_table_anyhow(&mut self, table: TableId, mode: Mode, refused: LockError) -> Result<(), TxnError> {
        let mut refused = Some(refused);
        self.with_room(None, |txn| {
            match refused.take() {
                None => drop(txn.lock_table_at(table, mode)?),
                Some(LockError::WouldBlock) => {
                    txn.lock_waiting(table_name(table), mode, None)?;
                    let place = txn.tables.place(table);
                    txn.tables.set(place, table, mode);
                }
                Some(refused) => return Err(refused.into()),
            }
            Ok(())
        })
    }

    /// Locks a table that is not locked so yet, and says where it is among those held. Makes no room for that.
    fn lock_table_at(&mut self, table: TableId, mode: Mode) -> Result<usize, TxnError> {
        self.lock(table_name(table), mode)?;
        let place = self.tables.place(table);
        Ok(self.tables.set(place, table, mode))
    }

    /// Locks a table if that needs no waiting.
    ///
    /// # Errors
    /// As [`Txn::try_lock`].
    #[inline]
    pub fn try_lock_table(&mut self, table: TableId, mode: Mode) -> Result<bool, TxnError> {
        let place = self.tables.place(table);
        // A rollback takes no locks, so it has none to note.
        if self.rolling_back || place.is_some_and(|place| self.tables.has(place, mode)) {
            return Ok(true);
        }
        self.try_lock_table_more(place, table, mode)
    }

    /// As [`Txn::lock_table_more`], if that needs no waiting.
    #[inline(never)]
    fn try_lock_table_more(&mut self, place: Option<usize>, table: TableId, mode: Mode) -> Result<bool, TxnError> {
        if !self.try_lock(table_name(table), mode)? {
            return Ok(false);
        }
        self.tables.set(place, table, mode);
        Ok(true)
    }

    /// The mode in which this transaction holds the table, if it does.
    #[must_use]
    pub fn table_mode(&self, table: TableId) -> Option<Mode> {
        self.tables.mode(table)
    }

    /// True if the lock held on the table makes locks of `mode` on its keys unnecessary.
    #[inline]
    #[must_use]
    pub fn covers(&self, table: TableId, mode: Mode) -> bool {
        self.rolling_back || self.tables.mode(table).is_some_and(|held| covered(held, mode))
    }

    /// Locks a key or a gap, with the intention on its table, and waits if necessary. Many such locks become one lock
    /// on the table. How many is limited by the settings and by this transaction's share of the lock table.
    ///
    /// # Errors
    /// As [`Txn::lock`].
    pub fn lock_key(&mut self, table: TableId, what: KeyLock, mode: Mode) -> Result<(), TxnError> {
        self.lock_key_named(table, key_name(table, what), mode, None)
    }

    /// As [`Txn::lock_key`], where the key is at hand: the one that is locked, or one that lies in the gap. If the lock
    /// is not granted, the message names it. So does that of another transaction which is in a deadlock with this one.
    ///
    /// # Errors
    /// As [`Txn::lock`].
    #[inline]
    pub fn lock_key_at(&mut self, table: TableId, what: KeyLock, mode: Mode, key: &[u8]) -> Result<(), TxnError> {
        self.lock_key_named(table, key_name(table, what), mode, Some(key))
    }

    /// The usual case: the intention is there, and the key's lock is free.
    fn lock_key_named(
        &mut self,
        table: TableId,
        name: LockName,
        mode: Mode,
        key: Option<&[u8]>,
    ) -> Result<(), TxnError> {
        if !self.rolling_back
            && let Some(place) = self.tables.place(table)
        {
            if covered(self.tables.held[place].mode, mode) {
                return Ok(());
            }
            if self.tables.has(place, intention(mode)) && !self.is_escalation_due(place, mode) {
                return match self.engine.locks.lock(OwnerNo(self.chain.no), name, mode, Wait::Try) {
                    Ok(grant) => {
                        self.depend(grant.depends);
                        self.tables.count_key(place, grant.newly);
                        Ok(())
                    }
                    Err(refused) => self.lock_key_anyhow(table, name, mode, key, Some(refused)),
                };
            }
        }
        self.lock_key_anyhow(table, name, mode, key, None)
    }

    /// `refused` is the answer to a first try, if there was one.
    #[inline(never)]
    fn lock_key_anyhow(
        &mut self,
        table: TableId,
        name: LockName,
        mode: Mode,
        key: Option<&[u8]>,
        mut refused: Option<LockError>,
    ) -> Result<(), TxnError> {
        if self.rolling_back {
            return Ok(());
        }
        self.with_room(Some(table), |txn| {
            match refused.take() {
                Some(LockError::WouldBlock) => {
                    let newly = txn.lock_waiting(name, mode, key)?;
                    if let Some(place) = txn.tables.place(table) {
                        txn.tables.count_key(place, newly);
                    }
                    return Ok(());
                }
                Some(refused) => return Err(refused.into()),
                None => {}
            }
            let place = match txn.tables.place(table) {
                Some(place) if covered(txn.tables.held[place].mode, mode) => return Ok(()),
                Some(place) if txn.tables.has(place, intention(mode)) => place,
                _ => txn.lock_table_at(table, intention(mode))?,
            };
            if !(txn.is_escalation_due(place, mode) && txn.escalates(place, mode)?) {
                let newly = txn.lock_newly(name, mode, key)?;
                txn.tables.count_key(place, newly);
            }
            Ok(())
        })
    }

    /// Locks a key or a gap if that needs no waiting. The table must already be locked with an intention.
    ///
    /// # Errors
    /// As [`Txn::try_lock`].
    pub fn try_lock_key(&mut self, table: TableId, what: KeyLock, mode: Mode) -> Result<bool, TxnError> {
        if self.covers(table, mode) {
            return Ok(true);
        }
        match self.try_lock_key_itself(table, what, mode) {
            // To be waited for: `lock_key` may make room.
            Err(TxnError::Lock(LockError::TableFull { .. })) if self.tables.keys > 0 => Ok(false),
            locked => locked,
        }
    }

    #[inline]
    fn try_lock_key_itself(&mut self, table: TableId, what: KeyLock, mode: Mode) -> Result<bool, TxnError> {
        if !self.try_lock_table(table, intention(mode))? {
            return Ok(false);
        }
        let place = self.tables.place(table);
        if let Some(place) = place
            && self.is_escalation_due(place, mode)
            && let Some(is_covered) = self.tries_to_escalate(place, mode)?
        {
            return Ok(is_covered);
        }
        let granted = self.try_lock_newly(key_name(table, what), mode)?;
        if let Some(place) = place {
            self.tables.count_key(place, granted == Some(true));
        }
        Ok(granted.is_some())
    }

    /// Waits for a key or gap lock, and does not keep it. An insert of `key` looks at the gap of the next key this way.
    /// `key` is for messages, as in [`Txn::lock_key_at`].
    ///
    /// # Errors
    /// As [`Txn::lock`].
    pub fn lock_key_instant(&mut self, table: TableId, what: KeyLock, mode: Mode, key: &[u8]) -> Result<(), TxnError> {
        if planted::is_on(Bug::NoGapLocks) {
            return Ok(());
        }
        self.with_room(Some(table), |txn| {
            if txn.covers(table, mode) {
                return Ok(());
            }
            txn.lock_table(table, intention(mode))?;
            let name = key_name(table, what);
            txn.engine.waited.note(name, key);
            txn.lock_instant(name, mode)
        })
    }

    /// The same without waiting.
    ///
    /// # Errors
    /// As [`Txn::try_lock`].
    pub fn try_lock_key_instant(&mut self, table: TableId, what: KeyLock, mode: Mode) -> Result<bool, TxnError> {
        if self.covers(table, mode) || planted::is_on(Bug::NoGapLocks) {
            return Ok(true);
        }
        self.try_lock_instant(key_name(table, what), mode)
    }

    /// The mode in which this transaction itself holds a key or gap.
    #[must_use]
    pub fn held_key(&self, table: TableId, what: KeyLock) -> Option<Mode> {
        self.engine.locks.held(OwnerNo(self.chain.no), key_name(table, what))
    }

    /// Called before a key lock in the table at `place`. True if there are many already, or it is time to look whether
    /// they are more than this transaction's share of the lock table.
    #[inline]
    fn is_escalation_due(&mut self, place: usize, mode: Mode) -> bool {
        let held = &mut self.tables.held[place];
        held.wrote |= intention(mode) == Mode::IX;
        held.keys >= held.try_from || self.tables.keys >= self.tables.look_from
    }

    /// With many key locks, tries to lock the table instead. With far too many, or more than this transaction's share
    /// of the lock table, it waits for that lock. With the table locked, the key locks are given up. True: no lock of
    /// `mode` on a key of that table is needed any more.
    #[cold]
    fn escalates(&mut self, place: usize, mode: Mode) -> Result<bool, TxnError> {
        let (table, keys) = self.note_try(place);
        let whole = self.tables.whole(table);
        let has_used_its_share = self.has_used_its_share(self.tables.keys);
        if self.has_far_too_many(keys, has_used_its_share) {
            self.lock_table_at(table, whole)?;
            self.give_up_keys(table);
            return Ok(self.covers(table, mode));
        }
        if has_used_its_share {
            self.make_room(KEYS_BETWEEN_TRIES, SHARED_TABLES_TRIED_MAX)?;
        }
        Ok(self.has_many(keys) && self.escalates_if_free(table, mode)?)
    }

    /// The same without waiting, under latches. `Some`: the key is covered by the lock on the table, or `lock_key` is
    /// to wait for that lock. `None`: the key needs a lock of its own.
    #[cold]
    fn tries_to_escalate(&mut self, place: usize, mode: Mode) -> Result<Option<bool>, TxnError> {
        let HeldTable { table, keys, .. } = self.tables.held[place];
        if self.has_far_too_many(keys, self.has_used_its_share(self.tables.keys)) {
            return self.escalates_if_free(table, mode).map(Some);
        }
        self.note_try(place);
        let is_covered = self.has_many(keys) && self.escalates_if_free(table, mode)?;
        Ok(is_covered.then_some(true))
    }

    /// Puts the next look off, and returns the table at `place` with the number of its key locks.
    fn note_try(&mut self, place: usize) -> (TableId, u32) {
        let after = self.tables.escalate_after;
        let held = &mut self.tables.held[place];
        held.try_from = held.keys.saturating_add(after.min(KEYS_BETWEEN_TRIES)).max(after);
        self.tables.look_from = self.tables.keys.saturating_add(KEYS_BETWEEN_TRIES);
        (held.table, held.keys)
    }

    /// Whether so many key locks in one table have to become one lock on the table. A table of few locks would be
    /// locked for little.
    fn has_far_too_many(&self, keys: u32, has_used_its_share: bool) -> bool {
        keys >= self.tables.escalate_after.saturating_mul(8) || keys >= KEYS_BETWEEN_TRIES && has_used_its_share
    }

    fn has_many(&self, keys: u32) -> bool {
        keys >= self.tables.escalate_after
    }

    /// Locks a table whole if that needs no waiting, and gives its key locks up.
    fn escalates_if_free(&mut self, table: TableId, mode: Mode) -> Result<bool, TxnError> {
        match self.try_lock_table(table, self.tables.whole(table)) {
            Ok(true) => {
                self.give_up_keys(table);
                Ok(self.covers(table, mode))
            }
            // Without the table's lock it goes on as before.
            Ok(false) | Err(TxnError::Lock(LockError::TableFull { .. })) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Runs `lock`, which takes a lock and changes nothing if that is refused. If the lock table is full, this
    /// transaction gives key locks up and tries again: what it holds there is worth more to the others than to itself.
    /// `at_hand` is the table whose part is to be locked. Only that one is waited for, and last. A wait for another
    /// table would keep from everybody the locks that they need, while this transaction's end gives them back at once.
    #[inline]
    fn with_room<T>(
        &mut self,
        at_hand: Option<TableId>,
        mut lock: impl FnMut(&mut Txn) -> Result<T, TxnError>,
    ) -> Result<T, TxnError> {
        loop {
            match lock(self) {
                Err(TxnError::Lock(full @ LockError::TableFull { .. })) => self.find_room(at_hand, full)?,
                locked => return locked,
            }
        }
    }

    /// Gives up at least one key lock, or answers `full`. So a caller that tries again comes to an end.
    #[cold]
    #[inline(never)]
    fn find_room(&mut self, at_hand: Option<TableId>, full: LockError) -> Result<(), TxnError> {
        if self.tables.never_whole {
            return Err(full.into());
        }
        if self.make_room(1, u32::MAX)? > 0 {
            return Ok(());
        }
        if let Some(table) = at_hand.filter(|&table| self.tables.keys_of(table) > 0) {
            self.lock_table_at(table, self.tables.whole(table))?;
            if self.give_up_keys(table) > 0 {
                return Ok(());
            }
        }
        Err(full.into())
    }

    /// Locks tables whole that have at least `keys_min` key locks, where that needs no waiting, and gives their key
    /// locks up. Those with most come first, until enough were given up, or `shared_max` could not be had. Returns how
    /// many key locks those were.
    #[cold]
    fn make_room(&mut self, keys_min: u32, shared_max: u32) -> Result<u32, TxnError> {
        let (mut given_up, mut shared_count) = (0, 0);
        for (_, table) in self.tables.with_most_keys(keys_min, shared_max) {
            if given_up >= KEYS_BETWEEN_TRIES || shared_count == shared_max {
                break;
            }
            match self.try_lock_table(table, self.tables.whole(table)) {
                Ok(true) => given_up += self.give_up_keys(table),
                Ok(false) => shared_count += 1,
                Err(TxnError::Lock(LockError::TableFull { .. })) => {} // The next one may need no node.
                Err(error) => return Err(error),
            }
        }
        Ok(given_up)
    }

    /// Locks on keys, gaps and pages, and on tables, that this transaction holds.
    #[must_use]
    pub fn lock_count(&self) -> u64 {
        u64::from(self.tables.keys) + self.tables.held.len() as u64
    }

    /// Whether this transaction holds more than half as many locks as are left for all others. The more there are that
    /// want many, the smaller is the share of each, and some locks are always left for those that want few.
    fn has_used_its_share(&self, keys: u32) -> bool {
        keys > self.engine.locks.free_count() / 2
    }

    /// Gives up the key locks that the lock on the whole table stands for, and says how many.
    fn give_up_keys(&mut self, table: TableId) -> u32 {
        let count = self.engine.locks.unlock_keys(OwnerNo(self.chain.no), table);
        self.tables.keys = self.tables.keys.saturating_sub(count);
        let after = self.tables.escalate_after;
        if let Some(held) = self.tables.find(table) {
            held.keys = held.keys.saturating_sub(count);
            held.try_from = after;
        }
        self.tables.look_from = KEYS_BETWEEN_TRIES;
        count
    }

    fn depend(&mut self, lsn: Lsn) {
        if lsn > self.depends {
            self.depends = lsn;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By looking through all of them this would take hours.
    #[test]
    fn any_number_of_table_locks_is_found() {
        const COUNT: u64 = 500_000;
        let mut tables = HeldTables::new(1);
        let table = |n: u64| TableId(n.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        for n in 0..COUNT {
            assert_eq!(tables.mode(table(n)), None);
            tables.set(None, table(n), Mode::IS);
            let early = n / 2;
            tables.set(tables.place(table(early)), table(early), Mode::IX);
            assert_eq!(tables.mode(table(early)), Some(Mode::IX));
            let late = n - n.min(20);
            assert_eq!(tables.mode(table(late)), Some(if late <= early { Mode::IX } else { Mode::IS }));
        }
        assert_eq!(tables.held.len() as u64, COUNT);
        assert!((0..COUNT).all(|n| tables.find(table(n)).is_some_and(|held| held.table == table(n))));
    }

    /// A table lock makes a key lock unnecessary if it keeps out whatever the key lock would have kept out.
    #[test]
    fn a_table_lock_covers_what_nobody_could_do_beside_it() {
        for held in Mode::ALL {
            for mode in Mode::ALL {
                let is_kept_out = |other: Mode| {
                    let wanted = intention(other);
                    !wanted.is_compatible_with(held) && !held.is_compatible_with(wanted)
                };
                let conflicts = |other: Mode| !other.is_compatible_with(mode) || !mode.is_compatible_with(other);
                // Keys are locked for reading and for writing; the other modes stand for one of the two.
                let is_safe =
                    [Mode::S, Mode::U, Mode::X].into_iter().filter(|other| conflicts(*other)).all(is_kept_out);
                assert!(!covered(held, mode) || is_safe, "{held} on the table, {mode} on a key");
            }
            assert_eq!(covered(held, Mode::X), held == Mode::X);
            assert_eq!(covered(held, Mode::S), matches!(held, Mode::S | Mode::SIX | Mode::U | Mode::X));
        }
    }
}
