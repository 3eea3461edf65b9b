//! A transaction that has committed, handed out in parts.

use ledgerstone_region::ByNumber;
use std::collections::VecDeque;

use ledgerstone_log::{LogReader, RecordKind};
use ledgerstone_page::{Lsn, PageId, Xid};

use ledgerstone_core::Error;
use ledgerstone_core::base::Base;
use ledgerstone_core::catalog::CATALOG_ROOT;

use crate::changes::HELD_BYTES_MIN;
use crate::gather::{Open, Raw, Undone, changes_in};
use crate::names::{Names, Owner, trees_in};
use crate::{Change, FeedItem};

/// Where the changes of tables come from.
enum Source {
    Held(std::vec::IntoIter<(Lsn, Raw)>),
    /// Read again (C6).
    Log {
        cursor: Box<LogReader>,
        xid: Xid,
        undone: Undone,
        pending: VecDeque<(Lsn, Raw)>,
        is_done: bool,
    },
}

pub(crate) struct Delivery {
    pub lsn: Lsn,
    pub xid: Xid,
    pub time_ns: Option<u64>,
    /// Where its commit ends.
    pub end: Lsn,
    source: Source,
    catalog: VecDeque<(Lsn, Raw)>,
    /// The trees that its changes of the catalog name: it may fill one before that has a name, and empty one that loses
    /// it.
    trees: ByNumber<PageId, Owner>,
    /// A change of a table that waits for those of the catalog before it.
    next: Option<(Lsn, Raw)>,
    items: Vec<FeedItem>,
    bytes: usize,
    /// It is so large that it comes in parts; and a part has come.
    is_large: bool,
    has_parts: bool,
}

impl Delivery {
    /// Of a transaction whose commit is at `lsn` and ends at `end`.
    pub fn new(
        env: &Base,
        open: Open,
        (lsn, end): (Lsn, Lsn),
        xid: Xid,
        time_ns: Option<u64>,
    ) -> Result<Delivery, Error> {
        let first = open.first;
        let (held, catalog, undone) = open.into_parts();
        let source = match held {
            Some(held) => Source::Held(held.into_iter()),
            None => {
                let cursor = Box::new(LogReader::new(&env.engine.log, first)?);
                Source::Log { cursor, xid, undone, pending: VecDeque::new(), is_done: false }
            }
        };
        let catalog_bytes: usize = catalog.iter().map(|(_, raw)| raw.bytes()).sum();
        let is_large = matches!(source, Source::Log { .. }) || catalog_bytes as u64 > HELD_BYTES_MIN;
        let trees = trees_in(catalog.iter().map(|(_, raw)| raw));
        let (catalog, items) = (catalog.into(), Vec::new());
        Ok(Delivery {
            lsn,
            xid,
            time_ns,
            end,
            source,
            catalog,
            trees,
            next: None,
            items,
            bytes: 0,
            is_large,
            has_parts: false,
        })
    }

    /// Goes on until a part of about `bytes_max` bytes is full; its items, and whether it is the last. After an error
    /// it goes on where it was.
    pub fn part(&mut self, names: &mut Names, bytes_max: usize) -> Result<(Vec<FeedItem>, bool), Error> {
        'parts: while !self.is_large || self.bytes < bytes_max {
            if self.next.is_none() {
                self.next = self.source.next(self.lsn)?;
            }
            let upto = self.next.as_ref().map_or(self.lsn, |(lsn, _)| *lsn);
            while let Some((_, raw)) = self.catalog.pop_front_if(|(lsn, _)| *lsn < upto) {
                let next = self.catalog.front().map(|(_, raw)| raw);
                names.make(&raw, next, &mut |change| self.items.push(FeedItem::Table(change)));
                self.bytes += raw.bytes();
                if self.is_large && self.bytes >= bytes_max {
                    break 'parts;
                }
            }
            let Some((_, raw)) = self.next.take() else {
                return Ok((std::mem::take(&mut self.items), true));
            };
            let owner = names.owner(raw.root).or_else(|| self.trees.get(raw.root).copied());
            // Entries of an index follow from the table's changes; a tree without a name is not a table's.
            if let Some(Owner { table, is_index: false }) = owner
                && let Some(name) = names.name(table)
            {
                self.bytes += raw.bytes();
                let Raw { key, old, new, .. } = raw;
                self.items.push(FeedItem::Record(Change { table: name.clone(), table_id: table, key, old, new }));
            }
        }
        self.bytes = 0;
        self.has_parts = true;
        Ok((std::mem::take(&mut self.items), false))
    }

    /// Whether a part was handed out already.
    pub fn has_parts(&self) -> bool {
        self.has_parts
    }
}

impl Source {
    /// The next change of a table, of a transaction that has committed at `commit`.
    fn next(&mut self, commit: Lsn) -> Result<Option<(Lsn, Raw)>, Error> {
        let (cursor, xid, undone, pending, is_done) = match self {
            Source::Held(held) => return Ok(held.next()),
            Source::Log { cursor, xid, undone, pending, is_done } => (cursor, *xid, undone, pending, is_done),
        };
        loop {
            if let Some(next) = pending.pop_front() {
                return Ok(Some(next));
            }
            if *is_done {
                return Ok(None);
            }
            let Some(record) = cursor.next()? else {
                let what = format!("the log ends at {} though a commit at {commit} was read", cursor.position());
                return Err(Error::Corrupt { what });
            };
            let lsn = record.lsn();
            if lsn >= commit {
                *is_done = true;
                return Ok(None);
            }
            if record.view().xid() == xid && record.kind() != RecordKind::Compensation && !undone.has(lsn) {
                changes_in(&record, &mut |raw| {
                    if raw.root != CATALOG_ROOT {
                        pending.push_back((lsn, raw));
                    }
                });
            }
        }
    }
}
