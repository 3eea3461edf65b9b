//! What processes do.

use ledgerstone_lock::LockError;
use ledgerstone_region::sync;
use ledgerstone_structures::{Read, TreeError};
use ledgerstone_txn::{Durability, Horizon, Txn, TxnError};
use std::ops::Bound;

use crate::model::{ALL_COUNT, Writes, key, number, own_count};
use crate::world::Process;

/// What the victim does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Work {
    #[default]
    Put,
    /// Inserts that split leaves.
    Split,
    /// Deletions that empty leaves, and are rolled back.
    DeleteAndAbort,
    Delete,
    LargeValue,
    DeleteRange,
    Savepoint,
    Prepare,
    /// Prepared, and aborted then.
    AbortPrepared,
    Read,
    WriteBack,
    Checkpoint,
    /// Values that make the file longer.
    Growth,
    Reclaim,
    /// A nested top action of a structure, in a transaction that aborts.
    Nested,
    /// Looks at the structure.
    Look,
    /// Nested top actions in one, and a logical undo that takes the structure's latch.
    Deep,
}

pub const ALL: [Work; 17] = [
    Work::Put,
    Work::Split,
    Work::DeleteAndAbort,
    Work::Delete,
    Work::LargeValue,
    Work::DeleteRange,
    Work::Savepoint,
    Work::Prepare,
    Work::AbortPrepared,
    Work::Read,
    Work::WriteBack,
    Work::Checkpoint,
    Work::Growth,
    Work::Reclaim,
    Work::Nested,
    Work::Look,
    Work::Deep,
];

/// One transaction's tree, whose writes are remembered.
struct Writer<'p> {
    process: &'p Process,
    txn: Txn,
    writes: Writes,
}

impl Writer<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), TreeError> {
        self.process.tree.put(&mut self.txn, key, value)?;
        self.writes.insert(key.to_vec(), Some(value.to_vec()));
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), TreeError> {
        self.process.tree.delete(&mut self.txn, key)?;
        self.writes.insert(key.to_vec(), None);
        Ok(())
    }

    /// Adds one to a number.
    fn raise(&mut self, key: &[u8]) -> Result<(), TreeError> {
        let before = self.process.tree.get(&mut self.txn, key, Read::ForUpdate)?;
        let next = number(before.as_deref()) + 1;
        self.put(key, &next.to_le_bytes())
    }
}

impl Process {
    /// Runs one transaction to its end, as often as it takes. `work` says whether it commits.
    fn transact(&self, mut work: impl FnMut(&mut Writer<'_>) -> Result<End, TreeError>) {
        loop {
            let mut writer = Writer { process: self, txn: self.begin(), writes: Writes::new() };
            let done = work(&mut writer).and_then(|end| {
                writer.raise(&own_count(self.no))?;
                sync::yield_point("before the count of all");
                writer.raise(ALL_COUNT)?;
                Ok(end)
            });
            let Writer { mut txn, writes, .. } = writer;
            match done {
                Ok(End::Commit) => {
                    self.model.lock().may_commit(self.no, writes);
                    txn.commit(Durability::Sync).unwrap();
                    return self.model.lock().committed(self.no);
                }
                Ok(End::Abort) => return txn.abort().unwrap(),
                Ok(End::Prepare(commits)) => {
                    self.model.lock().may_commit(self.no, writes);
                    txn.prepare(&self.no.to_le_bytes()).unwrap();
                    self.model.lock().decisions.insert(self.no, commits);
                    sync::yield_point("prepared");
                    match commits {
                        true => {
                            txn.commit_prepared().unwrap();
                            self.model.lock().committed(self.no);
                        }
                        false => {
                            txn.abort_prepared().unwrap();
                            self.model.lock().rolled_back(self.no);
                        }
                    }
                    return;
                }
                Err(TreeError::Txn(TxnError::Lock(LockError::Deadlock { .. }))) => {
                    txn.abort().unwrap();
                }
                Err(error) => panic!("process {}: {error}", self.no),
            }
        }
    }

    /// Its process and the order of digits tell whose is missing: 1 for process 1, 1000 for 2 and so on.
    fn add_to_pair(&self, txn: &mut Txn) -> Result<(), TxnError> {
        self.model.lock().may_add(self.no, 1000_u64.pow(self.no - 1));
        self.pair.add(txn, 1000_u64.pow(self.no - 1))?;
        self.model.lock().added(self.no);
        Ok(())
    }

    /// A worker's life.
    pub fn live(&self, rounds: u32) {
        for round in 0..rounds {
            if round % 2 == 0 {
                let mut txn = self.begin();
                self.add_to_pair(&mut txn).unwrap();
                txn.commit(Durability::Volatile).unwrap();
            }
            self.transact(|writer| {
                writer.put(&key(self.no, round % 3), &[round as u8; 120])?;
                if round % 2 == 1 {
                    writer.delete(&key(self.no, (round + 1) % 3))?;
                }
                Ok(End::Commit)
            });
        }
    }

    /// A reader's life: each snapshot sees whole transactions.
    pub fn read(&self, rounds: u32) {
        for _ in 0..rounds {
            let mut txn = self.begin();
            let view = txn.open_view(Horizon::None).unwrap();
            let mut count = |key: &[u8]| {
                let found = self.tree.get(&mut txn, key, Read::At(view.at()));
                found.map(|value| number(value.as_deref()))
            };
            let seen = (0..10).map(|process| count(&own_count(process))).sum::<Result<u64, TreeError>>();
            match seen.and_then(|own| Ok((own, count(ALL_COUNT)?))) {
                Ok((own, all)) => assert_eq!(own, all, "a snapshot sees a part of a transaction"),
                Err(TreeError::Txn(TxnError::SnapshotTooOld { .. })) => {}
                Err(error) => panic!("a reader: {error}"),
            }
            drop(view);
            txn.commit(Durability::Volatile).unwrap();
            self.pair.value(self.engine());
        }
    }

    /// What the tree has before all else, of the victim's keys.
    pub fn prepare_for(&self, victim: u32, work: Work) {
        let own = self.view(victim);
        let count = match work {
            Work::Delete | Work::DeleteAndAbort | Work::DeleteRange | Work::Reclaim => 50,
            _ => 4,
        };
        own.transact(|writer| {
            (0..count).try_for_each(|no| writer.put(&key(victim, no), &[7; 200]))?;
            Ok(End::Commit)
        });
        if work == Work::Growth {
            // Only a few pages are left free.
            for no in 100.. {
                let free = own.space.page_count() - own.space.page_count_min().unwrap();
                let bytes = usize::try_from(free.saturating_sub(10).div_ceil(2) * 4000).unwrap();
                if bytes == 0 {
                    break;
                }
                own.transact(|writer| {
                    writer.put(&key(victim, no), &vec![4; bytes])?;
                    Ok(End::Commit)
                });
            }
        }
        if work == Work::Reclaim {
            own.transact(|writer| {
                writer.put(&key(victim, 90), &[3; 30_000])?;
                Ok(End::Commit)
            });
            own.transact(|writer| {
                writer.delete(&key(victim, 90))?;
                (0..40).try_for_each(|no| writer.delete(&key(victim, no)))?;
                Ok(End::Commit)
            });
        }
    }

    pub fn work(&self, work: Work) {
        let me = self.no;
        match work {
            Work::Put => self.transact(|writer| {
                writer.put(&key(me, 1), &[1; 100])?;
                writer.put(&key(me, 9), &[2; 150])?;
                Ok(End::Commit)
            }),
            Work::Split => self.transact(|writer| {
                (10..36).try_for_each(|no| writer.put(&key(me, no), &[4; 250]))?;
                Ok(End::Commit)
            }),
            Work::DeleteAndAbort => self.transact(|writer| {
                (0..50).try_for_each(|no| writer.delete(&key(me, no)))?;
                Ok(End::Abort)
            }),
            Work::Delete => self.transact(|writer| {
                (5..45).try_for_each(|no| writer.delete(&key(me, no)))?;
                Ok(End::Commit)
            }),
            Work::LargeValue => self.transact(|writer| {
                writer.put(&key(me, 2), &[5; 20_000])?;
                writer.put(&key(me, 3), &[6; 9_000])?;
                Ok(End::Commit)
            }),
            Work::DeleteRange => self.transact(|writer| {
                let bounds = (Bound::Included(key(me, 3)), Bound::Excluded(key(me, 47)));
                self.tree.delete_range(&mut writer.txn, bounds.0, bounds.1)?;
                writer.writes.extend((3..47).map(|no| (key(me, no), None)));
                Ok(End::Commit)
            }),
            Work::Savepoint => self.transact(|writer| {
                writer.put(&key(me, 1), &[1; 100])?;
                let (before, writes) = (writer.txn.savepoint(), writer.writes.clone());
                writer.put(&key(me, 1), &[2; 300])?;
                writer.put(&key(me, 20), &[2; 300])?;
                writer.txn.rollback_to(before)?;
                writer.writes = writes;
                writer.put(&key(me, 21), &[3; 50])?;
                Ok(End::Commit)
            }),
            Work::Prepare | Work::AbortPrepared => self.transact(|writer| {
                writer.put(&key(me, 1), &[1; 100])?;
                writer.put(&key(me, 9), &[2; 150])?;
                Ok(End::Prepare(work == Work::Prepare))
            }),
            Work::Read => self.read(2),
            Work::WriteBack => drop(self.engine().cache.write_back_all().unwrap()),
            Work::Checkpoint => drop(ledgerstone_recovery::checkpoint(self.engine(), &self.control, false).unwrap()),
            Work::Growth => self.transact(|writer| {
                writer.put(&key(me, 2), &[5; 80_000])?;
                Ok(End::Commit)
            }),
            Work::Nested => self.transact(|writer| {
                writer.put(&key(me, 1), &[1; 100])?;
                self.add_to_pair(&mut writer.txn)?;
                Ok(End::Abort)
            }),
            Work::Deep => self.transact(|writer| {
                self.pair.count(&mut writer.txn, 3)?;
                let delta = 1000_u64.pow(me - 1);
                self.model.lock().may_add(me, delta);
                self.pair.add_deeply(&mut writer.txn, delta)?;
                self.model.lock().added(me);
                self.pair.count(&mut writer.txn, 4)?;
                writer.put(&key(me, 1), &[1; 100])?;
                Ok(End::Abort)
            }),
            Work::Look => (0..2).for_each(|_| _ = self.pair.value(self.engine())),
            Work::Reclaim => {
                self.engine().log.flush().unwrap();
                self.to_free.reclaim().unwrap();
            }
        }
    }
}

enum End {
    Commit,
    Abort,
    /// And then commit, or abort.
    Prepare(bool),
}
