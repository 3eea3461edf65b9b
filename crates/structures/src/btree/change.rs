//! What an operation's arguments say about a record: for readers of the log who want changes of tables, not of pages.

use ledgerstone_page::{OpId, PageId};

use super::args::{FormatArgs, InsertArgs, PatchArgs, ReplaceArgs, read_place};
use super::node::{BLOB, GHOST, VALUE_LEN};
use super::ops::{
    OP_NODE_DELETE, OP_NODE_FENCE, OP_NODE_FORMAT, OP_NODE_FREE, OP_NODE_INSERT, OP_NODE_PATCH, OP_NODE_RELINK,
    OP_NODE_REPLACE, OP_NODE_REVIVE,
};
use crate::blob::BlobRef;

/// A record's value on one side of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Side<'a> {
    /// There was none, or is none any more.
    Absent,
    /// These bytes.
    Value(&'a [u8]),
    /// So many bytes, which lie outside of the tree.
    Large(u64),
    /// These bytes at this offset. The others are the same on both sides and are not in the log.
    Part(usize, &'a [u8]),
    /// There was one, which is not in the log.
    Unknown,
}

/// The change of one record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordChange<'a> {
    /// Root page of the tree.
    pub root: PageId,
    /// Its key.
    pub key: &'a [u8],
    /// Before.
    pub old: Side<'a>,
    /// After.
    pub new: Side<'a>,
}

/// What an operation does to a record. `None` if it changes none, or the arguments cannot be read. Takes any bytes.
#[must_use]
pub fn record_change(op: OpId, args: &[u8]) -> Option<RecordChange<'_>> {
    let (place, old, new) = match op {
        OP_NODE_INSERT => {
            let a = InsertArgs::read(args)?;
            (a.place, Side::Absent, side(a.header, a.value))
        }
        OP_NODE_DELETE => (read_place(args)?, Side::Unknown, Side::Absent),
        OP_NODE_REVIVE => (read_place(args)?, Side::Absent, Side::Unknown),
        OP_NODE_PATCH => {
            let a = PatchArgs::read(args)?;
            (a.place, Side::Part(a.offset, a.old), Side::Part(a.offset, a.new))
        }
        OP_NODE_REPLACE => {
            let a = ReplaceArgs::read(args)?;
            (a.place, side(a.old_header, a.old), side(a.new_header, a.new))
        }
        _ => return None,
    };
    Some(RecordChange { root: place.root, key: place.key, old, new })
}

/// A leaf that a sorted load has filled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadedLeaf<'a> {
    /// Root page of the tree.
    pub root: PageId,
    /// Its records, in the order of their keys.
    pub records: Vec<(Vec<u8>, Side<'a>)>,
}

/// The leaf that a group fills with records of a sorted load, from the group's parts in their order. `None` for every
/// other group: that of a split, a merge or a move, whose records were there before. `None` also if the arguments
/// cannot be read. Takes any bytes.
///
/// The first leaf of a load comes alone, below a root that becomes a parent. Each later leaf comes behind the fence of
/// the leaf before it (B4 in `bulk.rs`).
pub fn loaded_leaf<'a>(parts: impl Iterator<Item = (OpId, &'a [u8])>) -> Option<LoadedLeaf<'a>> {
    let (mut leaf, mut is_fenced, mut is_below_root) = (None, false, false);
    for (op, args) in parts {
        match op {
            OP_NODE_FENCE => is_fenced |= leaf.is_none(),
            OP_NODE_FORMAT => {
                let format = FormatArgs::read(args)?;
                match format.level {
                    0 if leaf.is_some() => return None, // The halves of a root.
                    0 => leaf = Some(format),
                    _ => is_below_root |= leaf.is_some(),
                }
            }
            OP_NODE_FREE | OP_NODE_RELINK => return None,
            _ => {}
        }
    }
    let leaf = leaf.filter(|_| is_fenced || is_below_root)?;
    let mut records = Vec::new();
    for entry in leaf.entries.iter().filter(|entry| entry.header & GHOST == 0) {
        // Without the pad behind it.
        let value = entry.value.get(..usize::from(entry.header & VALUE_LEN))?;
        records.push((entry.key(), side(entry.header, value)));
    }
    Some(LoadedLeaf { root: leaf.root, records })
}

fn side(header: u16, value: &[u8]) -> Side<'_> {
    if header & GHOST != 0 {
        Side::Absent
    } else if header & BLOB != 0 {
        BlobRef::decode(value).map_or(Side::Unknown, |blob| Side::Large(blob.len))
    } else {
        Side::Value(value)
    }
}
