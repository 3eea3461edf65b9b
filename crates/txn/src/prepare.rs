//! Prepare: the first half of a two-phase commit. Afterwards the transaction can either commit or abort, whatever
//! crashes meanwhile, and does neither by itself.
//!
//! ```text
//!                 prepare                    commit
//!  RUNNING ──────────────────► PREPARED ─────────────────► COMMITTING ──► (slot free)
//!             Prepare record      │   ▲ crash, restart: locks retaken, still PREPARED
//!             durable             │
//!                                 │ abort: Abort record, then as every rollback
//!                                 ▼
//!                              ABORTING
//! ```
//! Y1. Everything that commit or abort will need is held before the Prepare record is written: the locks, and room in
//!     the log.
//! Y2. The record names the locks that keep others from what the transaction has written: all but S and IS. Those are
//!     given up when the record is in the log: the transaction reads no more, and what it read it has read. Locks on
//!     keys of a table that is locked X are not named; above [`PREPARED_LOCKS_MAX`] names tables are locked X until
//!     there are few enough.
//! Y3. A Prepare record that is not followed by Commit, Abort or End is a transaction in doubt. An Abort record comes
//!     before the first compensation record, so that a crash in the middle of the rollback does not ask again.
//! Y4. The slot keeps its `first_lsn`, so the log and the scan LSN of checkpoints stay below the transaction's first
//!     record.
//! Y5. Nobody but the caller of [`Txn::commit_prepared`] or [`Txn::abort_prepared`] ends it: dropping the handle does
//!     nothing.
//!
//! Body of a Prepare record (numbers little-endian):
//! ```text
//! offset  size  field
//!      0     1  format, 2
//!      1     1  bytes g of the global id, 1 to 255
//!      2     1  what was locked in trees: 0 keys and gaps, 1 pages, 2 nothing
//!      3     1  zero
//!      4     4  number n of locks
//!      8     8  bytes of log that a rollback will take
//!     16     g  global id
//!   16+g  17*n  locks, each { mode u8, space u64, item u64 }; modes 1 IS, 2 IX, 3 S, 4 SIX, 5 U, 6 X
//! ```

use ledgerstone_region::ByNumber;
use std::sync::Arc;

use ledgerstone_lock::{LockName, Mode, OwnerNo, Wait};
use ledgerstone_log::RecordKind;
use ledgerstone_page::planted::{self, Bug};
use ledgerstone_page::{Lsn, TableId, Xid};

use crate::txn::RECORD_OVERHEAD_BYTES;
use crate::version::Who;
use crate::{Committed, Durability, Engine, Txn, TxnError, state};

/// Longest global id in bytes, as long as two XA identifiers.
pub const GLOBAL_ID_BYTES_MAX: usize = 255;
/// Most lock names in a Prepare record. There are fewer if the log buffer is small.
pub const PREPARED_LOCKS_MAX: usize = 4096;

const FORMAT: u8 = 2;
const HEAD_BYTES: usize = 16;
const LOCK_BYTES: usize = 17;

/// What a transaction locked in trees, to keep others from what it has written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Locked {
    /// Keys and the gaps between them.
    Keys = 0,
    /// Leaves.
    Pages = 1,
    /// Nothing at all.
    Nothing = 2,
}

impl Locked {
    fn from_number(number: u8) -> Option<Locked> {
        [Locked::Keys, Locked::Pages, Locked::Nothing].into_iter().find(|locked| *locked as u8 == number)
    }
}

/// The content of a Prepare record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrepareRecord {
    /// The name under which the coordinator knows the transaction.
    pub global_id: Vec<u8>,
    /// Bytes of log that a rollback will take.
    pub undo_bytes: u64,
    /// What was locked. The names mean nothing to a transaction that locks something else.
    pub locked: Locked,
    /// The locks to be held until the decision.
    pub locks: Vec<(LockName, Mode)>,
}

impl PrepareRecord {
    /// The body of the record.
    ///
    /// # Panics
    /// If the global id is empty or longer than [`GLOBAL_ID_BYTES_MAX`].
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let len = self.global_id.len();
        assert!((1..=GLOBAL_ID_BYTES_MAX).contains(&len), "a global id of {len} bytes");
        let mut body = Vec::with_capacity(HEAD_BYTES + len + LOCK_BYTES * self.locks.len());
        body.extend_from_slice(&[FORMAT, len as u8, self.locked as u8, 0]);
        body.extend_from_slice(&(self.locks.len() as u32).to_le_bytes());
        body.extend_from_slice(&self.undo_bytes.to_le_bytes());
        body.extend_from_slice(&self.global_id);
        for (name, mode) in &self.locks {
            body.push(*mode as u8);
            body.extend_from_slice(&name.space.to_le_bytes());
            body.extend_from_slice(&name.item.to_le_bytes());
        }
        body
    }

    /// Reads the body of a record. Takes any bytes.
    ///
    /// # Errors
    /// What is wrong with the bytes.
    pub fn decode(body: &[u8]) -> Result<PrepareRecord, &'static str> {
        let word = |at: usize| -> Option<u64> { Some(u64::from_le_bytes(body.get(at..at + 8)?.try_into().ok()?)) };
        let (Some(first), Some(undo_bytes)) = (word(0), word(8)) else { return Err("it is too short") };
        let [format, len, locked, zero, ..] = first.to_le_bytes();
        let Some(locked) = Locked::from_number(locked).filter(|_| format == FORMAT && zero == 0) else {
            return Err("its format is unknown");
        };
        let global_end = HEAD_BYTES + usize::from(len);
        let (Some(global_id), Some(rest)) = (body.get(HEAD_BYTES..global_end), body.get(global_end..)) else {
            return Err("its global id is cut off");
        };
        if len == 0 {
            return Err("its global id is empty");
        }
        let count = (first >> 32) as usize;
        if rest.len() != count.saturating_mul(LOCK_BYTES) {
            return Err("its number of locks is wrong");
        }
        let mut locks = Vec::with_capacity(count);
        for lock in rest.chunks_exact(LOCK_BYTES) {
            let mode = Mode::ALL.into_iter().find(|mode| *mode as u8 == lock[0]).ok_or("a lock mode is unknown")?;
            let number = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| lock[at + i]));
            locks.push((LockName { space: number(1), item: number(9) }, mode));
        }
        Ok(PrepareRecord { global_id: global_id.to_vec(), undo_bytes, locked, locks })
    }
}

/// The locks of a transaction, as prepare sees them.
#[derive(Default)]
struct Sorted {
    /// To be named in the record.
    kept: Vec<(LockName, Mode)>,
    /// To be given up, or lowered to IX.
    read: Vec<(LockName, Mode)>,
}

impl Txn {
    /// Prepares the transaction. When this returns, the transaction survives any crash. Only [`Txn::commit_prepared`]
    /// and [`Txn::abort_prepared`] end it. Its S locks are released.
    ///
    /// The caller makes sure that global ids are unique. Waits for the device. If there are too many key locks to write
    /// down, it also waits for table locks.
    ///
    /// # Errors
    /// [`TxnError::GlobalId`], [`TxnError::PreparedInNestedTop`], a table lock was refused, or there is no space. In
    /// all these cases nothing has changed and the transaction runs on. If the log failed, a restart tells whether the
    /// transaction is prepared.
    pub fn prepare(&mut self, global_id: &[u8]) -> Result<Lsn, TxnError> {
        self.engine.check()?;
        self.ending(|txn| txn.prepare_now(global_id))
    }

    fn prepare_now(&mut self, global_id: &[u8]) -> Result<Lsn, TxnError> {
        if !(1..=GLOBAL_ID_BYTES_MAX).contains(&global_id.len()) {
            return Err(TxnError::GlobalId { len: global_id.len(), max: GLOBAL_ID_BYTES_MAX });
        }
        if self.nesting > 0 {
            return Err(TxnError::PreparedInNestedTop { xid: self.xid() });
        }
        let locks = self.prepare_few_locks()?;
        let undo_bytes = self.chain.undo_needed();
        let locked = match self.engine.settings.locks_pages {
            _ if !self.engine.locks.isolates() => Locked::Nothing,
            true => Locked::Pages,
            false => Locked::Keys,
        };
        let record = PrepareRecord { global_id: global_id.to_vec(), undo_bytes, locked, locks: locks.kept };
        let body = record.encode();
        self.claim(body.len() + 2 * RECORD_OVERHEAD_BYTES)?;
        let lsn = self.chain.append_plain(&self.engine, RecordKind::Prepare, &[&body])?;
        self.release_claim();
        self.chain.keep_no_more(&self.engine);
        self.is_prepared = true;
        self.slot().enter(state::PREPARED);
        self.marks.truncate(0);
        self.close_snapshot();
        self.give_up_reading(locks.read);
        // What it has read from others is below in the log.
        self.engine.log.flush_to(lsn)?;
        Ok(lsn)
    }

    /// True from [`Txn::prepare`] until it is committed or aborted.
    #[must_use]
    pub fn is_prepared(&self) -> bool {
        self.is_prepared && !self.ended
    }

    /// Commits a prepared transaction, durably. The commit needs nothing that could be refused.
    ///
    /// # Errors
    /// If the log failed, a restart tells whether the commit was kept or has to be decided again.
    pub fn commit_prepared(&mut self) -> Result<Committed, TxnError> {
        self.commit_in_place(Durability::Sync)
    }

    /// Aborts a prepared transaction, durably, so that it is not in doubt again after a crash.
    ///
    /// # Errors
    /// If the rollback fails, the environment fails. A restart finishes the rollback, or asks again.
    pub fn abort_prepared(&mut self) -> Result<(), TxnError> {
        self.engine.check()?;
        self.ending(|txn| {
            txn.claim(2 * RECORD_OVERHEAD_BYTES)?;
            let lsn = txn.chain.append_plain(&txn.engine, RecordKind::Abort, &[])?; // Y3
            txn.is_prepared = false;
            txn.roll_back_all()?;
            txn.engine.log.flush_to(lsn)?;
            Ok(())
        })
    }

    fn give_up_reading(&self, locks: Vec<(LockName, Mode)>) {
        for (name, mode) in locks {
            match mode {
                Mode::SIX => drop(self.engine.locks.downgrade(self.owner(), name, Mode::IX)),
                _ => drop(self.engine.locks.unlock(self.owner(), name)),
            }
        }
    }

    /// An orphan whose prepare is in the log goes on as prepared, with the locks that it has.
    pub(crate) fn go_on_prepared(&mut self, record: &PrepareRecord) {
        self.is_prepared = true;
        self.slot().enter(state::PREPARED);
        self.give_up_reading(self.prepare_sorted_locks().read);
        self.chain.reserve_for_undo_again(&self.engine.clone(), record.undo_bytes);
    }

    fn prepare_few_locks(&mut self) -> Result<Sorted, TxnError> {
        let room = (self.engine.log.claim_bytes_max() as usize / 2).saturating_sub(512) / LOCK_BYTES;
        loop {
            let locks = self.prepare_sorted_locks();
            if locks.kept.len() <= room.min(PREPARED_LOCKS_MAX) {
                return Ok(locks);
            }
            let mut counts = ByNumber::new();
            for (name, _) in locks.kept.iter().filter(|(name, _)| !name.is_table()) {
                *counts.get_or_insert_with(name.space >> 2, || 0_usize) += 1;
            }
            let Some((table, _)) = counts.iter().max_by_key(|(_, count)| **count) else { return Ok(locks) };
            self.lock_table(TableId(table), Mode::X)?;
        }
    }

    fn prepare_sorted_locks(&self) -> Sorted {
        let mut held = Vec::new();
        self.engine.locks.for_each_held(self.owner(), &mut |name, mode| held.push((name, mode)));
        let whole: Vec<u64> = held
            .iter()
            .filter(|(name, mode)| name.is_table() && *mode == Mode::X)
            .map(|(name, _)| name.space)
            .collect();
        let mut locks = Sorted::default();
        for (name, mode) in held {
            let is_covered = !name.is_table() && whole.contains(&(name.space & !3));
            match mode {
                Mode::S | Mode::IS => locks.read.push((name, mode)),
                Mode::SIX => {
                    locks.read.push((name, mode));
                    locks.kept.push((name, Mode::IX));
                }
                Mode::IX | Mode::U | Mode::X if !is_covered => locks.kept.push((name, mode)),
                Mode::IX | Mode::U | Mode::X => {}
            }
        }
        locks
    }
}

impl Engine {
    /// Takes over a transaction that was prepared before a restart, with its locks, its room in the log, and the mark
    /// that keeps the log. To be called before any other transaction begins.
    ///
    /// # Errors
    /// There is no slot. [`TxnError::Lock`] if its locks are not free, which cannot happen.
    pub fn adopt_prepared(
        self: &Arc<Engine>,
        xid: Xid,
        first: Lsn,
        last: Lsn,
        record: &PrepareRecord,
    ) -> Result<Txn, TxnError> {
        let mut txn = self.adopt(xid, first, last)?;
        txn.is_prepared = true; // Y5, should anything below fail.
        txn.slot().enter(state::PREPARED);
        let who = Who { slot: txn.chain.no, xid, first_lsn: first };
        self.versions.begin_spilled(&mut txn.writer, who);
        if !planted::is_on(Bug::PreparedWithoutLocks) {
            for &(name, mode) in &record.locks {
                let _ = self.locks.lock(OwnerNo(txn.chain.no), name, mode, Wait::Try)?;
            }
            if !self.locks.isolates() {
                // Such a manager counts writers, and a record that names no locks makes none.
                let any = LockName::table(TableId(0));
                let _ = self.locks.lock(OwnerNo(txn.chain.no), any, Mode::X, Wait::Try)?;
            }
        }
        txn.chain.reserve_for_undo_again(self, record.undo_bytes);
        Ok(txn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> PrepareRecord {
        let locks = vec![
            (LockName::table(TableId(0x1122)), Mode::IX),
            (LockName::key(TableId(0x1122), 0x0102_0304_0506_0708), Mode::X),
        ];
        PrepareRecord { global_id: b"gid".to_vec(), undo_bytes: 0x99, locked: Locked::Keys, locks }
    }

    #[test]
    fn golden_bytes_of_a_prepare_record() {
        let mut expected = vec![2, 3, 0, 0, 2, 0, 0, 0, 0x99, 0, 0, 0, 0, 0, 0, 0];
        expected.extend_from_slice(b"gid");
        expected.extend_from_slice(&[2, 0x88, 0x44, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        expected.extend_from_slice(&[6, 0x89, 0x44, 0, 0, 0, 0, 0, 0, 8, 7, 6, 5, 4, 3, 2, 1]);
        assert_eq!(record().encode(), expected);
        assert_eq!(PrepareRecord::decode(&expected), Ok(record()));
        for (locked, number) in [(Locked::Pages, 1), (Locked::Nothing, 2)] {
            let record = PrepareRecord { locked, ..record() };
            expected[2] = number;
            assert_eq!(record.encode(), expected);
            assert_eq!(PrepareRecord::decode(&expected), Ok(record));
        }
    }

    #[test]
    fn the_names_of_key_locks_are_a_format_too() {
        // They stand in Prepare records: another hash would retake other locks.
        assert_eq!(crate::key_hash(b""), 0x2d06_8005_38d3_94c2);
        assert_eq!(crate::key_hash(b"ledgerstone"), 475_144_449_173_701_498);
        let supremum = crate::key_name(TableId(5), crate::KeyLock::Supremum);
        assert_eq!((supremum.space, supremum.item), (5 << 2 | 2, u64::MAX));
    }

    #[test]
    fn any_bytes_give_a_record_or_a_reason() {
        let good = record().encode();
        for len in 0..good.len() {
            assert!(PrepareRecord::decode(&good[..len]).is_err(), "{len} bytes");
        }
        assert!(PrepareRecord::decode(&[&good[..], &[0]].concat()).is_err());
        for (at, byte) in [(0, 1), (1, 0), (1, 255), (2, 3), (3, 1), (4, 0xff), (7, 0xff), (19, 0), (19, 7)] {
            let mut bad = good.clone();
            bad[at] = byte;
            assert!(PrepareRecord::decode(&bad).is_err(), "byte {at} is {byte}");
        }
    }
}
