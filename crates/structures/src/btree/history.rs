//! The records of a page before a transaction changed them, read from the log. Snapshots need them that do not see a
//! writer whose images are not in memory (`version/spilled.rs` of the transactions' crate).
//!
//! H1. A record of the log names the LSN that its page had before; so from a page's LSN on backwards there is all that
//!     was ever done to it. A leaf that was made of another's records (a split, a merge, a move) has its older history
//!     there: the group that made it names both.
//! H2. The changes of a key in a leaf's history are undone from the newest record on, down to the oldest record of a
//!     writer that the snapshot does not see. That includes the records of other writers between. The key was that
//!     writer's from its first change until its end, and the snapshot does not see any later writer either.
//! H3. A compensation record is a change like any other, and is undone like one.
//! H4. An image in memory of a writer that committed before that oldest record is older, and is what the snapshot sees.
//! H5. If a group made a leaf, the history of the other pages in the group is read only if one of the wanted keys came
//!     with it. Otherwise a table filled in order would be read from its beginning for each leaf.
//! H6. A scan gathers the older changes of many leaves at once (`gathered.rs`).
//!
//! Nothing here may be called under a latch: the log may have to be read from the device.

use ledgerstone_region::{ByName, NumberSet};
use std::collections::BinaryHeap;

use ledgerstone_log::{Backwards, Log, Record, RecordKind, RecordView};
use ledgerstone_page::{Corrupt, Lsn, OpId, PageId};
use ledgerstone_txn::{Image, TxnError, Unseen};

use super::args::{FormatArgs, PatchArgs, Place, ReplaceArgs, TakeArgs};
use super::entry::Entry;
use super::gathered::Gathered;
use super::node::{GHOST, Node, PADDED};
use super::ops::{
    OP_NODE_CUT_LOW, OP_NODE_DELETE, OP_NODE_FENCE, OP_NODE_FORMAT, OP_NODE_FREE, OP_NODE_INSERT, OP_NODE_PATCH,
    OP_NODE_REPLACE, OP_NODE_REVIVE, OP_NODE_TAKE,
};
use crate::TreeError;

/// A page as it was copied: its number and its LSN then.
#[derive(Debug, Clone, Copy)]
pub(super) struct CopiedPage {
    pub id: PageId,
    pub lsn: Lsn,
    /// What was noted of its changes.
    pub touched: u64,
}

/// What is asked of the log: changes of these keys of a tree, for a snapshot that does not see these writers.
#[derive(Clone, Copy)]
pub(super) struct Asked<'u, 'a> {
    pub log: &'a Log,
    pub root: PageId,
    pub unseen: &'u Unseen,
    pub is_wanted: &'a dyn Fn(&[u8]) -> bool,
}

/// Changes of the records of a leaf, each key's newest first.
pub(super) struct History<'u> {
    unseen: &'u Unseen,
    changes: ByName<[u8], Vec<Record>>,
    /// Records of the log that were read for it.
    read_count: u64,
}

impl<'u> History<'u> {
    /// Reads what was done to the wanted keys of a leaf since the first of the unseen writers began. May read from the
    /// device.
    ///
    /// # Errors
    /// The log cannot be read, or is not what this crate writes.
    pub(super) fn read(asked: Asked<'u, '_>, leaf: CopiedPage) -> Result<History<'u>, TreeError> {
        History::read_from(asked, asked.unseen.first_lsn(), leaf)
    }

    /// The same of a leaf's copy whose older changes have been gathered.
    ///
    /// # Errors
    /// As [`History::read`].
    pub(super) fn read_with(
        asked: Asked<'u, '_>,
        gathered: &Gathered,
        (leaf, node): (CopiedPage, &Node<&[u8]>),
    ) -> Result<History<'u>, TreeError> {
        let mut history = History::read_from(asked, gathered.high(), leaf)?;
        gathered.changes_of(node, leaf.lsn, &mut |record| history.add(record.to_record()));
        Ok(history)
    }

    /// Records of the log that were looked up one by one.
    pub(super) fn read_count(&self) -> u64 {
        self.read_count
    }

    fn add(&mut self, record: Record) {
        if let Some(place) = place_of(record.view()) {
            let key = place.key.to_vec();
            self.changes.get_or_insert_with(&key, Vec::new).push(record);
        }
    }

    fn read_from(asked: Asked<'u, '_>, low: Lsn, leaf: CopiedPage) -> Result<History<'u>, TreeError> {
        let Asked { log, root, unseen, is_wanted } = asked;
        // By pieces: what a page went through lies together where it was changed much.
        let mut back = Backwards::new(log, low, 0);
        let mut history = History { unseen, changes: ByName::new(), read_count: 0 };
        // The newest first, and each place once.
        let (mut ahead, mut seen) = (BinaryHeap::new(), NumberSet::new());
        ahead.push((leaf.lsn, leaf.id));
        while let Some((lsn, page)) = ahead.pop() {
            if lsn < low || !seen.insert((lsn.0, page.0)) {
                continue;
            }
            history.read_count += 1;
            let record = log.read_backwards(&mut back, lsn).map_err(TxnError::from)?.to_record();
            if record.kind() == RecordKind::Group {
                follow_group(&record, page, is_wanted, &mut |lsn, page| ahead.push((lsn, page)))?;
                continue;
            }
            if record.page() != page {
                return Err(Corrupt::new("page of a log record", 0, page.0, record.page().0).on(page).into());
            }
            ahead.push((record.prev_page_lsn(), page));
            if place_of(record.view()).is_some_and(|place| place.root == root && is_wanted(place.key)) {
                history.add(record);
            }
        }
        Ok(history)
    }

    /// What a snapshot sees of a record, if it is not what the page, or the image in memory, says. `on_page` is what
    /// the page says: header and value, a ghost's too; `None`: there is none.
    ///
    /// # Errors
    /// The log is not what this crate writes.
    pub(super) fn before(
        &self,
        key: &[u8],
        on_page: Option<(u16, Vec<u8>)>,
        image: Option<&Image>,
    ) -> Result<Option<Image>, TreeError> {
        let Some(changes) = self.changes.get(key) else { return Ok(None) };
        let oldest = changes.iter().filter(|record| self.unseen.contains(record.xid())).map(Record::lsn).min();
        let Some(oldest) = oldest else { return Ok(None) };
        if image.is_some_and(|image| image.until < oldest) {
            return Ok(None); // H4
        }
        let mut state = on_page;
        for record in changes.iter().filter(|record| record.lsn() >= oldest) {
            state = undone(record, state)
                .ok_or_else(|| Corrupt::new("log record of a value", record.lsn().0, 1, 0).on(record.page()))?;
        }
        let mut before = Image::default();
        if let Some((header, value)) = state
            && header & GHOST == 0
        {
            before.header = Some(header);
            before.value = value;
        }
        Ok(Some(before))
    }
}

/// True if the operation changes a record of a tree.
pub(super) fn is_of_record(op: OpId) -> bool {
    [OP_NODE_INSERT, OP_NODE_DELETE, OP_NODE_REVIVE, OP_NODE_PATCH, OP_NODE_REPLACE].contains(&op)
}

/// Where a record of a tree was changed; `None` if this is of something else.
pub(super) fn place_of(record: RecordView<'_>) -> Option<Place<'_>> {
    if is_of_record(record.op()) { Place::of(record.args()) } else { None }
}

/// Where the history of `page` goes on before a group (H1).
fn follow_group(
    record: &Record,
    page: PageId,
    is_wanted: &dyn Fn(&[u8]) -> bool,
    follow: &mut dyn FnMut(Lsn, PageId),
) -> Result<(), TreeError> {
    let unreadable = || Corrupt::new("log record of a group", record.lsn().0, 1, 0).on(page);
    let has_wanted = |entries: &[Entry<'_>]| entries.iter().any(|entry| is_wanted(&entry.key()));
    let (mut is_formatted, mut has_taken) = (false, false);
    let mut prev = None;
    for part in record.parts() {
        let part = part.map_err(|_| unreadable())?;
        if part.page != page {
            continue;
        }
        prev = Some(part.prev_page_lsn);
        match part.op {
            OP_NODE_FORMAT => {
                is_formatted = true;
                let format = FormatArgs::read(part.args).ok_or_else(unreadable)?;
                has_taken |= format.level == 0 && has_wanted(&format.entries);
            }
            OP_NODE_TAKE => has_taken |= has_wanted(&TakeArgs::read(part.args).ok_or_else(unreadable)?.entries),
            _ => {}
        }
    }
    if !is_formatted {
        follow(prev.ok_or_else(unreadable)?, page);
    }
    if has_taken {
        for part in record.parts() {
            let part = part.map_err(|_| unreadable())?;
            let gives = [OP_NODE_FORMAT, OP_NODE_FENCE, OP_NODE_FREE, OP_NODE_CUT_LOW].contains(&part.op);
            // A root that becomes a parent is formatted in the same group.
            if gives && part.page != page {
                follow(part.prev_page_lsn, part.page);
            }
        }
    }
    Ok(())
}

/// A record's state before a change of it.
fn undone(record: &Record, state: Option<(u16, Vec<u8>)>) -> Option<Option<(u16, Vec<u8>)>> {
    match record.op() {
        OP_NODE_INSERT => Some(None),
        OP_NODE_DELETE => state.map(|(header, value)| Some((header & !GHOST, value))),
        OP_NODE_REVIVE => state.map(|(header, value)| Some((header | GHOST, value))),
        OP_NODE_PATCH => {
            let done = PatchArgs::read(record.args())?;
            let (header, mut value) = state?;
            value.get_mut(done.offset..done.offset + done.old.len())?.copy_from_slice(done.old);
            Some(Some((header, value)))
        }
        OP_NODE_REPLACE => {
            let done = ReplaceArgs::read(record.args())?;
            Some(Some((done.old_header & !PADDED, done.old.to_vec())))
        }
        _ => None,
    }
}
