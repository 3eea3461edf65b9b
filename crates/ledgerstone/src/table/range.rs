//! A range of a table, read in order from either end.

use std::ops::Bound;
use std::sync::Arc;

use ledgerstone_lock::Mode;
use ledgerstone_structures::{Direction, Scan, Tree};
use ledgerstone_txn::Horizon;

use crate::rare::Rare;
use crate::transaction::KeptView;
use crate::transaction::Sight;
use crate::typed::KeyBounds;
use crate::{BytesTable, Error, Isolation};

/// An owned iterator over the records of a key range, in order. [`Iterator::next`] goes on from the front and
/// [`DoubleEndedIterator::next_back`] from the back, until they meet.
///
/// In a serializable transaction, the part that the iterator has passed is locked against changes and against new keys.
/// At other levels the range is one call: all of it is as it was when the range was made, except for transactions that
/// read uncommitted. If the same transaction puts or deletes records meanwhile, the iterator sees the changes that lie
/// ahead. After an error the iterator ends. What it held back is given back at the latest when its transaction ends.
pub struct Range {
    /// Keeps what is seen while a range of a transaction without a snapshot of its own is read (I2). Before `table`,
    /// and so dropped before it: a transaction that has no other handle has no view either.
    view: Option<Arc<KeptView>>,
    table: BytesTable,
    /// The table's index of this number is read, not the table.
    index: Option<usize>,
    start: Bound<Vec<u8>>,
    end: Bound<Vec<u8>>,
    front: Option<Scan>,
    back: Option<Scan>,
    is_done: bool,
    sight: Sight,
}

impl std::fmt::Debug for Range {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Range").field("table", &self.table).field("is_done", &self.is_done).finish()
    }
}

/// A key and its value.
pub type Record = (Vec<u8>, Vec<u8>);

impl Range {
    pub(crate) fn new(table: BytesTable, start: Bound<Vec<u8>>, end: Bound<Vec<u8>>) -> Result<Range, Error> {
        Range::of(table, None, start, end)
    }

    /// The same over one of the table's indexes.
    pub(crate) fn of(
        table: BytesTable,
        index: Option<usize>,
        start: Bound<Vec<u8>>,
        end: Bound<Vec<u8>>,
    ) -> Result<Range, Error> {
        let (sight, view) = match table.shared.isolation {
            Isolation::Serializable => table.enter(Mode::IS, |txn| {
                if let Some(index) = index {
                    txn.lock_table(table.info().indexes[index].entry.entry.table, Mode::IS)?;
                }
                Ok((Sight::Locked, None))
            })?,
            _ => table.shared.run_in(|txn, own| {
                own.check(txn, table.info())?;
                table.here().sight_of(txn, Horizon::Marks, index)
            })?,
        };
        let view = view.map(|view| table.shared.keep_view(view)).transpose()?;
        let is_done = is_empty(&start, &end);
        Ok(Range { view, table, index, start, end, front: None, back: None, is_done, sight })
    }

    /// The same, from `start` to `end` only. It was of all records, and none was read.
    pub(super) fn within(self, (start, end): KeyBounds) -> Range {
        let is_done = is_empty(&start, &end);
        Range { start, end, is_done, ..self }
    }

    pub(super) fn table(&self) -> &BytesTable {
        &self.table
    }

    pub(crate) fn sight(&self) -> Sight {
        self.sight
    }

    /// Calls `f` with each remaining record, without copying it out, until `f` says false.
    ///
    /// May wait for locks and for pages: see [what blocks](crate#what-blocks).
    ///
    /// # Errors
    /// As [`BytesTable::get`]. In `f`, calls of this transaction are refused: [`Error::Busy`].
    pub fn for_each_ref(mut self, mut f: impl FnMut(&[u8], &[u8]) -> bool) -> Result<(), Error> {
        if self.is_done {
            return Ok(());
        }
        if self.back.is_some() {
            // The ends may meet: the owned way compares keys.
            let shared = self.table.shared.clone();
            let _inside = shared.users_code();
            for record in &mut self {
                let (key, value) = record?;
                if !f(&key, &value) {
                    break;
                }
            }
            return Ok(());
        }
        let mut scan = match self.front.take() {
            Some(scan) => scan,
            None => self.sight.scan(
                tree_of(&self.table, self.index),
                std::mem::replace(&mut self.start, Bound::Unbounded),
                std::mem::replace(&mut self.end, Bound::Unbounded),
                Direction::Forward,
            ),
        };
        let (table, shared, sight) = (&self.table, &self.table.shared, self.sight);
        let users = shared.users_code();
        shared.run_in(|txn, own| {
            own.check(txn, table.info())?;
            shared.check_sight(sight)?;
            loop {
                if !users.run_each(|runs| scan.each_in_leaf(txn, |key, value| runs.run(|| f(key, value)))) {
                    return Ok(());
                }
                // What is not as usual: this record only, or the first of the next leaf.
                match scan.next(txn)? {
                    Some((key, value)) if users.run(|| f(key, value)) => {}
                    _ => return Ok(()),
                }
            }
        })
    }

    fn finish(&mut self) {
        self.is_done = true;
        self.view = None;
    }

    fn step(&mut self, direction: Direction) -> Option<Result<Record, Error>> {
        if self.is_done {
            return None;
        }
        let (scan, other) = match direction {
            Direction::Forward => (&mut self.front, &self.back),
            Direction::Backward => (&mut self.back, &self.front),
        };
        let sight = self.sight;
        let tree = tree_of(&self.table, self.index);
        let scan = scan.get_or_insert_with(|| sight.scan(tree, self.start.clone(), self.end.clone(), direction));
        let (table, shared) = (&self.table, &self.table.shared);
        // The scan owns what it lends: it is copied when the transaction is free for others again.
        let read = shared.run_as(|txn, own| -> Result<_, Rare> {
            own.check(txn, table.info())?;
            shared.check_sight(sight)?;
            Ok(scan.advance(txn)?)
        });
        match read {
            Ok(true) => {
                let (key, value) = scan.record();
                let has_met = other.as_ref().and_then(Scan::last_key).is_some_and(|other| match direction {
                    Direction::Forward => key >= other,
                    Direction::Backward => key <= other,
                });
                if has_met {
                    self.finish();
                    return None;
                }
                Some(Ok((key.to_vec(), value.to_vec())))
            }
            Ok(false) => {
                self.finish();
                None
            }
            Err(error) => {
                self.finish();
                Some(Err(error.into()))
            }
        }
    }
}

fn tree_of(table: &BytesTable, index: Option<usize>) -> &Tree {
    index.map_or(table.tree(), |index| &table.info().indexes[index].tree)
}

impl Iterator for Range {
    type Item = Result<Record, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step(Direction::Forward)
    }
}

impl DoubleEndedIterator for Range {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.step(Direction::Backward)
    }
}

impl std::iter::FusedIterator for Range {}

/// True if no key can lie between the bounds.
pub(crate) fn is_empty(start: &Bound<Vec<u8>>, end: &Bound<Vec<u8>>) -> bool {
    match (start, end) {
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
        (Bound::Included(a), Bound::Included(b)) => a > b,
        (Bound::Included(a) | Bound::Excluded(a), Bound::Included(b) | Bound::Excluded(b)) => a >= b,
    }
}
