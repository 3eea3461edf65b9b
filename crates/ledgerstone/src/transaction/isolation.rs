//! Isolation levels: what a transaction sees of others, and what it does so that others see nothing half done of it.
//!
//! | level | reads | writes |
//! | --- | --- | --- |
//! | `Serializable` | lock key and gap, shared, to the end | lock the key exclusively, to the end |
//! | `Snapshot` | one snapshot, taken at the beginning; no locks | the same; refused if a later commit changed the record |
//! | `ReadCommitted` | each call its own snapshot; no locks | the same |
//! | `ReadUncommitted` | pages as they are; no locks | the same |
//!
//! I1. Every level locks what it writes exclusively, and asks for the gap: so no level writes over what is not committed, and
//!     a serializable transaction is serializable whatever the others are.
//! I2. Who reads without locks keeps a snapshot open while it reads, if only for a call: so no page goes from under it.
//! I3. Without an intention on the table, a table may be dropped between two calls. So a call that takes its own snapshot makes
//!     sure that the table is there at that snapshot. `drops` says when that needs no look into the catalog: it counts
//!     the drops that are under way. If it is 0 after the snapshot was taken and the table is known, no drop of it has
//!     committed before the snapshot (G2: a drop that has is known no more), and none will be freed while the snapshot is open.
//! I4. Who writes, drops or creates has locked the table, at any level; after the lock it looks whether the table is still that.
//! I5. What the transaction itself has made of a table counts at once, at every level (`own_tables.rs`).

use std::sync::atomic::Ordering::SeqCst;

use ledgerstone_lock::Mode;
use ledgerstone_page::Lsn;
use ledgerstone_structures::{Direction, Read, Scan, Tree};
use ledgerstone_txn::{At, Durability, Horizon, Txn, View};

use crate::catalog::own::OwnTables;
use crate::catalog::{Definition, TableInfo};
use crate::environment::Inner;
use crate::transaction::Shared;
use crate::{BytesTable, Error};

/// What a transaction sees of others; `docs/isolation.md` shows which anomalies each level allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
pub enum Isolation {
    /// Pages as they are, committed or not. Never waits to read.
    ReadUncommitted,
    /// Each call sees what was committed when it began; a range is one call. Never waits to read.
    ReadCommitted,
    /// All calls see what was committed when the transaction began, and its own changes. Never waits to read. Of two that change
    /// a record at once, the first to commit wins; the other gets [`Error::SnapshotConflict`].
    Snapshot,
    /// As if each transaction ran alone.
    #[default]
    Serializable,
}

impl Isolation {
    /// All of them, the weakest first.
    pub const ALL: [Isolation; 4] =
        [Isolation::ReadUncommitted, Isolation::ReadCommitted, Isolation::Snapshot, Isolation::Serializable];

    /// Its name, as in `read committed`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Isolation::ReadUncommitted => "read uncommitted",
            Isolation::ReadCommitted => "read committed",
            Isolation::Snapshot => "snapshot",
            Isolation::Serializable => "serializable",
        }
    }
}

impl std::fmt::Display for Isolation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

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
            Isolation::Snapshot => {
                // Set when the transaction began.
                let at = txn.snapshot().ok_or(Error::Finished)?;
                self.check_readable(at)?;
                Ok((Sight::At(at), None))
            }
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

    /// A failed environment still shows what a crash cannot take (design 4); a closed one nothing.
    #[inline]
    fn check_readable(&self, at: At) -> Result<(), Error> {
        let engine = &self.env.engine;
        if engine.is_failed() && (self.env.is_closed() || at.lsn > engine.log.durable_lsn()) {
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

    /// I3: makes sure that the table, or one of its indexes, is there at the snapshot of a call.
    fn check_table_at(&self, txn: &mut Txn, info: &TableInfo, index: Option<usize>, at: At) -> Result<(), Error> {
        let index = index.map(|index| &info.indexes[index].entry);
        if self.env.drops.load(SeqCst) == 0
            && let Some(known) = self.env.known.get(&info.name)
            && known.entry == info.entry
            && index.is_none_or(|index| known.indexes.iter().any(|known| &known.entry == index))
        {
            return Ok(());
        }
        match (self.env.named_at(txn, &info.name, at)?, index) {
            (Some(found), _) if found.entry != info.entry => Err(Error::NoSuchTable(info.name.clone())),
            (Some(found), Some(index)) if !found.indexes.contains(index) => {
                Err(Error::NoSuchIndex { table: info.name.clone(), index: index.def.name().to_string() })
            }
            (Some(_), _) => Ok(()),
            (None, _) => Err(Error::NoSuchTable(info.name.clone())),
        }
    }
}

impl Inner {
    /// Shows each entry of the catalog at a snapshot, in the order of the names, and says which snapshot that was: it sees the
    /// commits whose records begin below. No lock is waited for, whoever has the catalog open.
    pub(crate) fn each_in_catalog(&self, mut see: impl FnMut(&str, &[u8]) -> Result<(), Error>) -> Result<Lsn, Error> {
        let mut txn = self.begin()?;
        let view = txn.open_view(Horizon::None)?;
        let at = view.at();
        let mut scan = self.catalog.scan_at(at, Bound::Unbounded, Bound::Unbounded, Direction::Forward);
        while let Some((name, value)) = scan.next(&mut txn)? {
            see(&String::from_utf8_lossy(name), value)?;
        }
        drop(view);
        txn.commit(Durability::Volatile)?;
        Ok(at.lsn)
    }

    /// The table that the catalog, as the snapshot and this transaction see it, has under this name.
    fn named_at(&self, txn: &mut Txn, name: &str, at: At) -> Result<Option<Definition>, Error> {
        let found = self.catalog.get(txn, name.as_bytes(), Read::At(at))?;
        match found.map(|bytes| Definition::decode(name, &bytes)).transpose() {
            Err(Error::NotATable { .. }) => Ok(None),
            found => found,
        }
    }
}

impl BytesTable {
    /// Runs `f` as this transaction's level reads.
    #[inline]
    pub(crate) fn look<T>(&self, f: impl FnOnce(&mut Txn, Sight) -> Result<T, Error>) -> Result<T, Error> {
        if self.shared.isolation == Isolation::Serializable {
            return self.enter(Mode::IS, |txn| f(txn, Sight::Locked));
        }
        self.shared.run_in(|txn, own| {
            self.check_own(txn, own)?;
            let (sight, _view) = self.sight(txn, Horizon::None)?;
            f(txn, sight)
        })
    }

    /// As [`Shared::sight`], with the table found there.
    pub(crate) fn sight(&self, txn: &mut Txn, horizon: Horizon) -> Result<(Sight, Option<View>), Error> {
        self.sight_of(txn, horizon, None)
    }

    /// The same, with one of its indexes, too.
    pub(crate) fn sight_of(
        &self,
        txn: &mut Txn,
        horizon: Horizon,
        index: Option<usize>,
    ) -> Result<(Sight, Option<View>), Error> {
        let (sight, view) = self.shared.sight(txn, horizon)?;
        if let Some(view) = &view {
            self.shared.check_table_at(txn, self.info(), index, view.at())?;
        }
        Ok((sight, view))
    }

    /// I4: the table is locked with the intention to write; is it still there, with the indexes that are known here? Once for
    /// each transaction and table, until the transaction itself changes what the table is: it may know it by several handles.
    pub(crate) fn check_written(&self, txn: &mut Txn, own: &mut OwnTables) -> Result<(), Error> {
        let info = self.info();
        if own.has_entered(info) {
            return Ok(());
        }
        let view = txn.open_view(Horizon::None)?;
        match self.shared.env.named_at(txn, &info.name, view.at())? {
            Some(found) if info.is_as(&found) => {
                own.note_entered(info);
                Ok(())
            }
            found => Err(self.gone(txn, found)),
        }
    }

    /// Why a table that is known to be no longer what it was cannot be used.
    #[cold]
    pub(crate) fn why_gone(&self, txn: &mut Txn) -> Error {
        let now = txn.open_view(Horizon::None).map_err(Error::from);
        let found = now.and_then(|view| self.shared.env.named_at(txn, &self.info().name, view.at()));
        found.map_or_else(|error| error, |found| self.gone(txn, found))
    }

    /// What to say of a table that is locked and is no longer what it was; `found` is what has its name. At a snapshot it was that still, so if another has changed
    /// it, that one was the first to commit: who is told so, and not that there is no such table, tries again and finds out.
    #[cold]
    fn gone(&self, txn: &Txn, found: Option<Definition>) -> Error {
        let name = &self.info().name;
        // Who drops a table, or has made it and taken that back, has it locked exclusively.
        let is_own_work = txn.covers(self.info().entry.table, Mode::X);
        if self.shared.isolation == Isolation::Snapshot && !is_own_work {
            let what = format!("table {name:?} was dropped or made anew, or its indexes were changed");
            return Error::SnapshotConflict { what };
        }
        if !is_own_work && found.is_some_and(|found| found.entry == self.info().entry) {
            return Error::IndexesChanged { table: name.clone() };
        }
        Error::NoSuchTable(name.clone())
    }
}
