//! Changes of a tree's records, gathered for a scan in one pass over the log.
//!
//! A leaf's own history is a chain of records that may lie anywhere in the log (H1 in `history.rs`). A scan beside a
//! transaction of a million changes would read the log a record at a time, a million times. So a scan compares the
//! bytes that it has read by chains with the length of the log since the oldest unseen writer. When the chains have
//! cost as much, it reads that log in order instead, and keeps what later leaves will need.
//!
//! J1. What is gathered is all changes of the tree's records between `low` and `high` whose keys lie between `from` and
//!     `until`. A record's key has one history, whichever pages it was on; so what a leaf's copy holds of it is what is
//!     not newer than the copy's LSN.
//! J2. What is newer than `high` comes from the leaf's chain.
//! J3. Memory is bounded: when it is full, the half of the keys goes that the scan will reach last, and is gathered
//!     when it does.

use ledgerstone_log::{Log, RecordView, decode};
use ledgerstone_page::{Lsn, PageId};
use ledgerstone_txn::TxnError;

use super::Direction;
use super::history::place_of;
use super::node::Node;
use crate::TreeError;

/// Most that the gathered records may take. Less where the code is checked, so that the rare is taken often.
const BYTES_MAX: usize = if cfg!(debug_assertions) { 1 << 20 } else { 16 << 20 };

pub(super) struct Gathered {
    low: Lsn,
    high: Lsn,
    /// Keys below are not here.
    from: Vec<u8>,
    /// Keys from here on are not here; `None`: all are.
    until: Option<Vec<u8>>,
    /// Records, each with its key once more behind it.
    bytes: Vec<u8>,
    /// By key, then by LSN.
    entries: Vec<Entry>,
}

#[derive(Clone, Copy)]
struct Entry {
    lsn: Lsn,
    at: usize,
    record_len: u32,
    key_len: u32,
}

impl Entry {
    fn key(self, bytes: &[u8]) -> &[u8] {
        &bytes[self.at + self.record_len as usize..][..self.key_len as usize]
    }

    fn end(self) -> usize {
        self.at + self.record_len as usize + self.key_len as usize
    }
}

impl Gathered {
    /// Reads the log from `low` on, as far as it is durable, for a scan that has come to `leaf`. It is durable beyond
    /// `low`. Reads from the device.
    ///
    /// # Errors
    /// The log cannot be read.
    pub(super) fn read(
        log: &Log,
        root: PageId,
        low: Lsn,
        leaf: &Node<&[u8]>,
        direction: Direction,
    ) -> Result<Gathered, TreeError> {
        let (from, until) = match direction {
            Direction::Forward => (leaf.low(), None),
            Direction::Backward => (Vec::new(), (!leaf.is_rightmost()).then(|| leaf.high())),
        };
        let mut gathered = Gathered { low, high: low, from, until, bytes: Vec::new(), entries: Vec::new() };
        let mut bytes_max = BYTES_MAX;
        // A writer's mark is a tail that it saw, so it may lie within a void record (P2 in `log/repair.rs`).
        let mut scan = log.first_record_from(low).and_then(|first| log.scan(first)).map_err(TxnError::from)?;
        while let Some(record) = scan.next_view().map_err(TxnError::from)? {
            gathered.add(root, record);
            if gathered.used_bytes() > bytes_max {
                gathered.drop_half(direction);
                bytes_max = BYTES_MAX.max(2 * gathered.used_bytes()); // One key may have more than half of all.
            }
        }
        gathered.high = scan.end();
        gathered.sort();
        Ok(gathered)
    }

    fn used_bytes(&self) -> usize {
        self.bytes.len() + self.entries.len() * size_of::<Entry>()
    }

    fn add(&mut self, root: PageId, record: RecordView<'_>) {
        let Some(place) = place_of(record).filter(|place| place.root == root) else { return };
        let is_here = place.key >= &self.from[..] && self.until.as_ref().is_none_or(|until| place.key < &until[..]);
        if !is_here {
            return;
        }
        let (record_len, key_len) = (record.bytes().len() as u32, place.key.len() as u32);
        self.entries.push(Entry { lsn: record.lsn(), at: self.bytes.len(), record_len, key_len });
        self.bytes.extend_from_slice(record.bytes());
        self.bytes.extend_from_slice(place.key);
    }

    fn sort(&mut self) {
        let bytes = &self.bytes;
        self.entries.sort_unstable_by(|a, b| a.key(bytes).cmp(b.key(bytes)).then(a.lsn.cmp(&b.lsn)));
    }

    /// J3.
    fn drop_half(&mut self, direction: Direction) {
        self.sort();
        let middle = self.entries[self.entries.len() / 2].key(&self.bytes).to_vec();
        let first_of = self.entries.partition_point(|entry| entry.key(&self.bytes) < &middle[..]);
        let kept = match direction {
            // A key of which there is more than half of all stays.
            Direction::Forward if first_of == 0 => 0..self.entries.len(),
            Direction::Forward => 0..first_of,
            Direction::Backward => first_of..self.entries.len(),
        };
        if kept.len() == self.entries.len() {
            return;
        }
        match direction {
            Direction::Forward => self.until = Some(middle),
            Direction::Backward => self.from = middle,
        }
        let old = std::mem::take(&mut self.bytes);
        let mut entries: Vec<Entry> = self.entries[kept].to_vec();
        for entry in &mut entries {
            let at = self.bytes.len();
            self.bytes.extend_from_slice(&old[entry.at..entry.end()]);
            entry.at = at;
        }
        self.entries = entries;
    }

    /// True if all of a leaf's keys are here, as far back as `low`.
    pub(super) fn covers(&self, leaf: &Node<&[u8]>, low: Lsn) -> bool {
        self.low <= low
            && leaf.compare_low(&self.from).is_ge()
            && self.until.as_ref().is_none_or(|until| !leaf.is_rightmost() && leaf.compare_high(until).is_le())
    }

    /// Records before it are here (J2).
    pub(super) fn high(&self) -> Lsn {
        self.high
    }

    /// Gives the changes of a leaf's keys up to `newest`, each key's newest first.
    pub(super) fn changes_of<'s>(&'s self, leaf: &Node<&[u8]>, newest: Lsn, give: &mut dyn FnMut(RecordView<'s>)) {
        let from = self.entries.partition_point(|entry| leaf.compare_low(entry.key(&self.bytes)).is_gt());
        let here = &self.entries[from..];
        let count = here.partition_point(|entry| !leaf.is_beyond(entry.key(&self.bytes)));
        for entry in here[..count].iter().rev().filter(|entry| entry.lsn <= newest) {
            // They were records when they came.
            if let Ok(record) = decode(entry.lsn, &self.bytes[entry.at..][..entry.record_len as usize]) {
                give(record);
            }
        }
    }
}
