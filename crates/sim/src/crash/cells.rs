//! Numbers in the slots of one page, fixed or versioned (Lemon 4.2): the engine's own operations on these layouts, used
//! as a structure of a user's.
//!
//! A number has a record while it is not zero. In a fixed page the record is the number; in a versioned one it has
//! bytes behind it, as many as the number says, so that records change their length.

use std::sync::Arc;

use ledgerstone::extend::{
    Engine, ExclusivePage, Instance, KeyLock, Layout, Mode, OpId, Operation, PageId, RECORD_OVERHEAD_BYTES, Structure,
    StructureHandle, StructureId, Txn, TxnError, Words, fixed, key_hash, layouts, versioned,
};
use ledgerstone::{Error, Lsn, Transaction};

/// How many numbers there can be.
pub const CELL_COUNT: u16 = 12;
const CELLS: StructureId = StructureId(900);
const FILL_BYTES: u64 = 48;

/// How the page is laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cells {
    /// Records of one length.
    Fixed,
    /// Records with a version each.
    Versioned,
}

/// The cells of a page in a transaction.
pub struct CellPage {
    handle: StructureHandle,
    cells: Cells,
}

impl CellPage {
    /// Makes a page without records.
    ///
    /// # Errors
    /// As [`Transaction::create_structure`].
    pub fn create(txn: &Transaction, name: &str, cells: Cells) -> Result<CellPage, Error> {
        Ok(CellPage { handle: txn.create_structure(name, CELLS, &[u8::from(cells == Cells::Versioned)])?, cells })
    }

    /// Opens the page of this name.
    ///
    /// # Errors
    /// As [`Transaction::structure`].
    pub fn open(txn: &Transaction, name: &str, cells: Cells) -> Result<CellPage, Error> {
        Ok(CellPage { handle: txn.structure(name, CELLS)?, cells })
    }

    /// Adds to a number.
    ///
    /// # Errors
    /// Conflicts, no space.
    pub fn add(&self, slot: u16, delta: i64) -> Result<(), Error> {
        self.handle.enter(Mode::IX, |txn, at| {
            txn.lock_key(at.table(), lock_of(slot), Mode::X)?;
            txn.claim(RECORD_OVERHEAD_BYTES + 256)?;
            let mut page = at.cache().exclusive(at.root())?;
            match self.cells {
                Cells::Fixed => add_fixed(txn, &mut page, slot, delta)?,
                Cells::Versioned => add_versioned(txn, &mut page, slot, delta)?,
            }
            Ok(())
        })
    }

    /// The number in a slot, unless it is zero.
    ///
    /// # Errors
    /// Conflicts.
    pub fn get(&self, slot: u16) -> Result<Option<i64>, Error> {
        self.handle.enter(Mode::IS, |txn, at| {
            txn.lock_key(at.table(), lock_of(slot), Mode::S)?;
            self.read(at, slot)
        })
    }

    /// All that are not zero.
    ///
    /// # Errors
    /// Conflicts.
    pub fn all(&self) -> Result<Vec<(u64, i64)>, Error> {
        self.handle.enter(Mode::S, |_, at| {
            let mut all = Vec::new();
            for slot in 0..CELL_COUNT {
                all.extend(self.read(at, slot)?.map(|number| (u64::from(slot), number)));
            }
            Ok(all)
        })
    }

    fn read(&self, at: &Instance, slot: u16) -> Result<Option<i64>, Error> {
        let page = at.cache().shared(at.root())?;
        Ok(match self.cells {
            Cells::Fixed => fixed_at(page.words(), slot)?,
            Cells::Versioned => versioned_at(page.words(), slot)?.map(|(_, content)| number_of(&content)),
        })
    }
}

fn lock_of(slot: u16) -> KeyLock {
    KeyLock::Key(key_hash(&slot.to_be_bytes()))
}

fn wrong(what: impl std::fmt::Display) -> TxnError {
    TxnError::Structure { structure: "cells", what: what.to_string() }
}

fn number_of(content: &[u8]) -> i64 {
    content.first_chunk().map_or(i64::MIN, |bytes| i64::from_le_bytes(*bytes))
}

fn fixed_at(page: Words<'_>, slot: u16) -> Result<Option<i64>, TxnError> {
    Ok(fixed::get(page, slot).map_err(wrong)?.map(|content| number_of(&content)))
}

fn versioned_at(page: Words<'_>, slot: u16) -> Result<Option<(Lsn, Vec<u8>)>, TxnError> {
    versioned::get(page, slot).map_err(wrong)
}

fn add_fixed(txn: &mut Txn, page: &mut ExclusivePage<'_>, slot: u16, delta: i64) -> Result<(), TxnError> {
    let old = fixed_at(page.words(), slot)?;
    let new = old.unwrap_or(0).wrapping_add(delta);
    let (old_bytes, new_bytes) = (old.unwrap_or(0).to_le_bytes(), new.to_le_bytes());
    let (op, args) = match (old, new) {
        (None, 0) => return Ok(()),
        (None, _) => (layouts::OP_FIXED_INSERT, layouts::fixed_record_args(slot, &new_bytes)),
        (Some(_), 0) => (layouts::OP_FIXED_REMOVE, layouts::fixed_record_args(slot, &old_bytes)),
        (Some(_), _) => {
            let patch = layouts::FixedPatch { slot, offset: 0, old: &old_bytes, new: &new_bytes };
            (layouts::OP_FIXED_PATCH, patch.write())
        }
    };
    txn.update(page, op, &args)?;
    Ok(())
}

fn add_versioned(txn: &mut Txn, page: &mut ExclusivePage<'_>, slot: u16, delta: i64) -> Result<(), TxnError> {
    let old = versioned_at(page.words(), slot)?;
    let new = old.as_ref().map_or(0, |(_, content)| number_of(content)).wrapping_add(delta);
    let mut content = new.to_le_bytes().to_vec();
    content.resize(8 + (new.unsigned_abs() % FILL_BYTES) as usize, 0x5c);
    let new_record = layouts::VersionedRecord { version: Lsn(txn.last_lsn().0 + 1), content: &content };
    let old_record = old.as_ref().map(|(version, content)| layouts::VersionedRecord { version: *version, content });
    let (op, args) = match (old_record, new) {
        (None, 0) => return Ok(()),
        (None, _) => (layouts::OP_VERSIONED_INSERT, layouts::versioned_record_args(slot, new_record)),
        (Some(old), 0) => (layouts::OP_VERSIONED_REMOVE, layouts::versioned_record_args(slot, old)),
        (Some(old), _) => (layouts::OP_VERSIONED_UPDATE, layouts::versioned_update_args(slot, old, new_record)),
    };
    txn.update(page, op, &args)?;
    Ok(())
}

/// For [`ledgerstone::Options::structure`]. Its operations and layouts are the engine's.
pub struct CellStructure;

impl Structure for CellStructure {
    fn id(&self) -> StructureId {
        CELLS
    }
    fn name(&self) -> &'static str {
        "cells"
    }
    fn operations(&self) -> Vec<Box<dyn Operation>> {
        Vec::new()
    }
    fn layouts(&self) -> Vec<Box<dyn Layout>> {
        Vec::new()
    }
    fn format_root(&self, root: PageId, options: &[u8]) -> (OpId, Vec<u8>) {
        match options {
            [0] => (layouts::OP_FIXED_FORMAT, layouts::fixed_format_args(root, 8)),
            _ => (layouts::OP_VERSIONED_FORMAT, layouts::versioned_format_args(root)),
        }
    }
    fn pages(&self, _engine: &Arc<Engine>, root: PageId) -> Result<Vec<PageId>, TxnError> {
        Ok(vec![root])
    }
}
