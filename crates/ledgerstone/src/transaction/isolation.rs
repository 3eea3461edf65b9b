//! Isolation levels: what a transaction sees of others, and what it does so that others see nothing half done of it.
//!
//! | level | reads | writes |
//! | --- | --- | --- |
//! | `Serializable` | lock key and gap, shared, to the end | lock the key exclusively, to the end |
//! | `Snapshot` | one snapshot, taken at the beginning; no locks | the same; refused if a later commit changed the record |
//! | `ReadCommitted` | each call its own snapshot; no locks | the same |
//! | `ReadUncommitted` | pages as they are; no locks | the same |
//!
//! I1. Every level locks what it writes exclusively, and asks for the gap. So no level writes over what is not
//!     committed, and a serializable transaction is serializable whatever the others are.
//! I2. A transaction that reads without locks keeps a snapshot open while it reads, if only for a call: so no page goes
//!     from under it.
//! I3. Without an intention on the table, a table may be dropped between two calls. So a call that takes its own
//!     snapshot makes sure that the table is there at that snapshot. `News::has_drops` says when that needs no look
//!     into the catalog: no drop is under way. Suppose that it says so after the snapshot was taken, and the table is
//!     known. Then no drop of the table has committed before the snapshot (G2: such a table is known no more).
//!     None will be freed while the snapshot is open.
//! I4. A transaction that writes, drops or creates has locked the table, at any level; after the lock it looks whether
//!     the table is still that.
//! I5. What the transaction itself has made of a table counts at once, at every level (`catalog/own.rs`).

use ledgerstone_structures::{Direction, Read, Scan, Tree};
use ledgerstone_txn::{At, Horizon, Txn, View};

use super::Shared;
use crate::Error;
use ledgerstone_core::choice::Isolation;

/// How one call reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sight {
    Locked,
    At(At),
    Unlocked,
}

impl Sight {
    #[inline]
    pub(crate) fn read(self) -> Read {
        match self {
            Sight::Locked => Read::Locked,
            Sight::At(at) => Read::At(at),
            Sight::Unlocked => Read::Unlocked,
        }
    }

    pub(crate) fn scan(self, tree: &Tree, start: Bound, end: Bound, direction: Direction) -> Scan {
        match self {
            Sight::Locked => tree.scan(start, end, direction),
            Sight::At(at) => tree.scan_at(at, start, end, direction),
            Sight::Unlocked => tree.scan_unlocked(start, end, direction),
        }
    }
}

type Bound = std::ops::Bound<Vec<u8>>;

impl Shared {
    /// How this transaction looks now, and a snapshot to keep while what it sees is read.
    pub(crate) fn sight(&self, txn: &mut Txn, horizon: Horizon) -> Result<(Sight, Option<View>), Error> {
        match self.isolation {
            Isolation::Serializable => Ok((Sight::Locked, None)),
            Isolation::Snapshot => Ok((self.sight_at_snapshot(txn)?, None)),
            Isolation::ReadCommitted | Isolation::ReadUncommitted => {
                let view = txn.open_view(horizon)?;
                let at = view.at();
                self.check_readable(at)?;
                let sight = if self.isolation == Isolation::ReadCommitted {
                    Sight::At(at)
                } else {
                    txn.depend_on_commits_below(at.lsn);
                    Sight::Unlocked
                };
                Ok((sight, Some(view)))
            }
        }
    }

    /// The same at [`Isolation::Snapshot`]: the snapshot was taken when the transaction began.
    #[inline]
    pub(crate) fn sight_at_snapshot(&self, txn: &Txn) -> Result<Sight, Error> {
        let Some(at) = txn.snapshot() else { return Err(Error::Finished) };
        self.check_readable(at)?;
        Ok(Sight::At(at))
    }

    /// A failed environment still shows what a crash cannot take (design 4); a closed one nothing.
    #[inline]
    fn check_readable(&self, at: At) -> Result<(), Error> {
        if self.env.engine.is_failed() { self.check_durable(at) } else { Ok(()) }
    }

    #[cold]
    fn check_durable(&self, at: At) -> Result<(), Error> {
        let engine = &self.env.engine;
        if self.env.is_closed() || at.lsn > engine.log.durable_lsn() {
            engine.check()?;
        }
        Ok(())
    }

    /// For the later steps of a call that has its sight.
    #[inline]
    pub(crate) fn check_sight(&self, sight: Sight) -> Result<(), Error> {
        match sight {
            Sight::At(at) => self.check_readable(at),
            Sight::Locked | Sight::Unlocked => Ok(()),
        }
    }
}
