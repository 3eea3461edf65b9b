//! What a feed hands out.

use std::sync::Arc;

use ledgerstone_page::{Lsn, TableId, Xid};

use ledgerstone_core::catalog::IndexDef;
use ledgerstone_core::typed::TableTypes;

/// A value before or after a change.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChangeValue {
    /// There was, or is, no value.
    Absent,
    /// All of it.
    Whole(Vec<u8>),
    /// The value has this many bytes and is not in the log. Read it from the table.
    Large(u64),
    /// These bytes at this offset. The others did not change and are not in the log. With the setting `log_values` =
    /// `whole` the log has all of them.
    Part {
        /// Where they begin.
        offset: usize,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// There was one, and the log does not say which. With the setting `log_values` = `whole` it does.
    Unknown,
}

/// One change of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Change {
    /// The table's name when the change was made.
    pub table: Arc<str>,
    /// The table's id, which does not depend on its name. A table of the same name that is made later has another id.
    pub table_id: TableId,
    /// The key.
    pub key: Vec<u8>,
    /// Its value before.
    pub old: ChangeValue,
    /// Its value after.
    pub new: ChangeValue,
}

/// What happened to a table.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum TableEvent {
    /// It was made, empty.
    Created {
        /// The types of its keys and values.
        types: TableTypes,
    },
    /// It was dropped, with all its records, which are not shown one by one.
    Dropped,
    /// It got another name.
    Renamed {
        /// The new one.
        to: String,
    },
    /// It got an index.
    IndexCreated {
        /// What it is.
        index: IndexDef,
    },
    /// An index of it was dropped.
    IndexDropped {
        /// Its name.
        index: String,
    },
    /// It was said of which types its keys and values are.
    Typed {
        /// The types.
        types: TableTypes,
    },
}

/// A change of a table itself, not of its records.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableChange {
    /// The table's name, before this change if it changes that.
    pub table: Arc<str>,
    /// The table's id.
    pub table_id: TableId,
    /// What happened to it.
    pub event: TableEvent,
}

/// One thing that a transaction did.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum FeedItem {
    /// It changed a record.
    Record(Change),
    /// It changed a table.
    Table(TableChange),
}

/// What a transaction changed, or a part of that if it is very large.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CommittedChanges {
    /// Its commit.
    pub lsn: Lsn,
    /// The transaction.
    pub xid: Xid,
    /// When it committed, by the machine's clock, in nanoseconds since 1970.
    pub time_ns: Option<u64>,
    /// The changes, in the transaction's order.
    pub items: Vec<FeedItem>,
    /// False: there is more of the same transaction, which comes next.
    pub is_last: bool,
    /// Where a feed goes on behind it. If this is not the last part, it is the transaction's beginning.
    pub position: Lsn,
}

impl CommittedChanges {
    /// The changes of records among the items.
    pub fn changes(&self) -> impl Iterator<Item = &Change> {
        self.items.iter().filter_map(|item| match item {
            FeedItem::Record(change) => Some(change),
            FeedItem::Table(_) => None,
        })
    }
}
