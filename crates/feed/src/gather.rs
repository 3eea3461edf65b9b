//! What a transaction whose end was not met yet has changed.

use ledgerstone_log::{Record, RecordKind};
use ledgerstone_page::{Lsn, PageId};
use ledgerstone_structures::{Side, loaded_leaf, record_change};
use ledgerstone_txn::FLAG_OUT_OF_ORDER;

use crate::ChangeValue;
use ledgerstone_core::catalog::CATALOG_ROOT;

/// Memory of a change beside its bytes.
const CHANGE_BYTES: usize = 192;

/// A change as the log has it.
pub(crate) struct Raw {
    pub root: PageId,
    pub key: Vec<u8>,
    pub old: ChangeValue,
    pub new: ChangeValue,
}

impl Raw {
    /// Memory that it takes.
    pub fn bytes(&self) -> usize {
        let of = |value: &ChangeValue| match value {
            ChangeValue::Whole(bytes) | ChangeValue::Part { bytes, .. } => bytes.len(),
            ChangeValue::Absent | ChangeValue::Large(_) | ChangeValue::Unknown => 0,
        };
        CHANGE_BYTES + self.key.len() + of(&self.old) + of(&self.new)
    }
}

/// Calls `each` with the changes of records that a record of the log makes going forward.
pub(crate) fn changes_in(record: &Record, each: &mut dyn FnMut(Raw)) {
    let view = record.view();
    match view.kind() {
        RecordKind::Update => {
            if let Some(change) = record_change(view.op(), view.args()) {
                let (old, new) = (value_of(change.old), value_of(change.new));
                each(Raw { root: change.root, key: change.key.to_vec(), old, new });
            }
        }
        RecordKind::Group => {
            let parts = view.parts().flatten().map(|part| (part.op, part.args));
            let Some(leaf) = loaded_leaf(parts) else { return };
            for (key, value) in leaf.records {
                each(Raw { root: leaf.root, key, old: ChangeValue::Absent, new: value_of(value) });
            }
        }
        _ => {}
    }
}

fn value_of(side: Side<'_>) -> ChangeValue {
    match side {
        Side::Absent => ChangeValue::Absent,
        Side::Value(bytes) => ChangeValue::Whole(bytes.to_vec()),
        Side::Large(bytes) => ChangeValue::Large(bytes),
        Side::Part(offset, bytes) => ChangeValue::Part { offset, bytes: bytes.to_vec() },
        _ => ChangeValue::Unknown,
    }
}

/// A transaction whose end was not met yet.
#[derive(Default)]
pub(crate) struct Open {
    /// Its first record; none if that was given up.
    pub first: Lsn,
    /// Its changes of tables, unless they were left in the log (C6).
    held: Vec<(Lsn, Raw)>,
    held_bytes: usize,
    pub is_spilled: bool,
    /// Its changes of the catalog.
    pub catalog: Vec<(Lsn, Raw)>,
    /// What it took back itself: records behind the one, up to the other. In order, and apart.
    undone: Vec<(Lsn, Lsn)>,
}

impl Open {
    pub fn new(first: Lsn) -> Open {
        Open { first, ..Open::default() }
    }

    /// Leaves its changes of tables in the log.
    pub fn spill(&mut self) {
        self.held = Vec::new();
        self.held_bytes = 0;
        self.is_spilled = true;
    }

    pub fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    pub fn take(&mut self, record: &Record) {
        if record.kind() == RecordKind::Compensation {
            if record.view().flags() & FLAG_OUT_OF_ORDER != 0 {
                return; // By a restart, which takes all of it back: it will not commit.
            }
            return self.take_back(record.lsn(), record.view().undo_next());
        }
        let lsn = record.lsn();
        changes_in(record, &mut |raw| {
            if raw.root == CATALOG_ROOT {
                self.catalog.push((lsn, raw));
            } else if !self.is_spilled {
                self.held_bytes += raw.bytes();
                self.held.push((lsn, raw));
            }
        });
    }

    /// What a compensation undoes lies behind where the rollback goes on.
    fn take_back(&mut self, at: Lsn, undo_next: Lsn) {
        while let Some((_, raw)) = self.held.pop_if(|(lsn, _)| *lsn > undo_next) {
            self.held_bytes -= raw.bytes();
        }
        while self.catalog.pop_if(|(lsn, _)| *lsn > undo_next).is_some() {}
        while self.undone.pop_if(|(from, _)| *from >= undo_next).is_some() {}
        self.undone.push((undo_next, at));
    }

    /// Its changes of tables, if they are here; of the catalog; and what it took back.
    #[allow(clippy::type_complexity)]
    pub fn into_parts(self) -> (Option<Vec<(Lsn, Raw)>>, Vec<(Lsn, Raw)>, Undone) {
        ((!self.is_spilled).then_some(self.held), self.catalog, Undone(self.undone))
    }
}

/// What a transaction took back itself.
pub(crate) struct Undone(Vec<(Lsn, Lsn)>);

impl Undone {
    pub fn has(&self, lsn: Lsn) -> bool {
        let next = self.0.partition_point(|(_, upto)| *upto < lsn);
        self.0.get(next).is_some_and(|(from, _)| *from < lsn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_taken_back_is_known_without_what_it_was() {
        let mut open = Open::new(Lsn(8));
        // 10 to 40 were done; 40 and 30 are undone, then 70 and 80 are done, 80 is undone; then all back to 20.
        for (at, undo_next) in [(50, 30), (60, 20), (90, 70)] {
            open.take_back(Lsn(at), Lsn(undo_next));
        }
        let is_undone = |open: Open| {
            let (_, _, undone) = open.into_parts();
            [10, 20, 30, 40, 50, 60, 70, 80, 90, 100].map(|lsn| undone.has(Lsn(lsn)))
        };
        let mut later = Open { undone: open.undone.clone(), ..Open::default() };
        assert_eq!(is_undone(open), [false, false, true, true, true, true, false, true, true, false]);
        later.take_back(Lsn(100), Lsn(10));
        assert_eq!(later.undone, [(Lsn(10), Lsn(100))]);
    }
}
