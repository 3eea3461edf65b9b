//! How the calls on a table look (I1 to I5 in `transaction/isolation.rs`).

use ledgerstone_disk::quoted;
use ledgerstone_lock::Mode;
use ledgerstone_txn::{At, Horizon, Txn, View};

use super::here::TableIn;
use crate::Error;
use crate::catalog::{Definition, OwnTables, TableInfo};
use crate::transaction::{Shared, Sight};
use ledgerstone_core::choice::Isolation;

impl TableIn<'_> {
    /// As [`Shared::sight`], with the table found there, and one of its indexes if one is meant.
    pub(crate) fn sight_of(
        self,
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

    /// I4: the table is locked with the intention to write; is it still there, with the indexes that are known here?
    /// Once for each transaction and table, until the transaction itself changes what the table is: it may know it by
    /// several handles.
    pub(crate) fn check_written(self, txn: &mut Txn, own: &mut OwnTables) -> Result<(), Error> {
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

    /// Refuses a table that was dropped or changed. It is locked.
    #[cold]
    pub(crate) fn check_there(self, txn: &mut Txn) -> Result<(), Error> {
        let (env, info) = (&self.shared.env, self.info());
        let is_dropped = info.is_dropped(|| {
            let view = txn.open_view(Horizon::None)?;
            env.named_at(txn, &info.name, view.at())
        })?;
        if is_dropped { Err(self.why_gone(txn)) } else { Ok(()) }
    }

    /// Why a table that is known to be no longer what it was cannot be used.
    #[cold]
    pub(crate) fn why_gone(self, txn: &mut Txn) -> Error {
        let now = txn.open_view(Horizon::None).map_err(Error::from);
        let found = now.and_then(|view| self.shared.env.named_at(txn, &self.info().name, view.at()));
        found.map_or_else(|error| error, |found| self.gone(txn, found))
    }

    /// What to say of a table that is locked and is no longer what it was; `found` is what has its name. At a snapshot
    /// it was that still, so if another transaction has changed it, that one was the first to commit. The error says
    /// so, rather than that there is no such table. So the caller tries again and finds out.
    #[cold]
    fn gone(self, txn: &Txn, found: Option<Definition>) -> Error {
        let name = &self.info().name;
        // A transaction that drops a table, or has made it and taken that back, has it locked exclusively.
        let is_own_work = txn.covers(self.info().entry.table, Mode::X);
        if self.shared.isolation == Isolation::Snapshot && !is_own_work {
            let what = format!("table {} was dropped or made anew, or its indexes were changed", quoted(name));
            return Error::SnapshotConflict { what };
        }
        if !is_own_work && found.is_some_and(|found| found.entry.table == self.info().entry.table) {
            return Error::TableChanged { table: name.clone() };
        }
        Error::NoSuchTable(name.clone())
    }
}

impl Shared {
    /// I3: makes sure that the table, or one of its indexes, is there at the snapshot of a call.
    fn check_table_at(&self, txn: &mut Txn, info: &TableInfo, index: Option<usize>, at: At) -> Result<(), Error> {
        let index = index.map(|index| &info.indexes[index].entry);
        if !self.env.news.has_drops()
            && let Some(known) = self.env.known.get(self.env.engine.slots.at_hand(), &info.name)
            && known.entry == info.entry
            && index.is_none_or(|index| known.indexes.iter().any(|known| &known.entry == index))
        {
            return Ok(());
        }
        match (self.env.named_at(txn, &info.name, at)?, index) {
            (Some(found), _) if found.entry.table != info.entry.table => Err(Error::NoSuchTable(info.name.clone())),
            // The same table: a sorted load has given it another tree.
            (Some(found), _) if found.entry != info.entry => Err(Error::TableChanged { table: info.name.clone() }),
            (Some(found), Some(index)) if !found.indexes.contains(index) => {
                Err(Error::NoSuchIndex { table: info.name.clone(), index: index.def.name().to_string() })
            }
            (Some(_), _) => Ok(()),
            (None, _) => Err(Error::NoSuchTable(info.name.clone())),
        }
    }
}
