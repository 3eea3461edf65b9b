//! The bytes of one file of a raw store: its length, its extents, and how much of each extent has been written.
//!
//! R1. A byte of an extent below its mark, or of an extent without a mark, is the file's. All others are whatever the
//!     extent's last owner left, and read as zero.
//! R2. No byte at or behind the file's length is the file's. So a file that is cut and made longer again reads as zero.
//! R3. Before the table names a file's length and extents, every byte inside the length is the file's: what was never
//!     written has been zeroed, durably. So the table needs no marks. The last extent of a file that was read from the
//!     table has a mark at the length.
//! R4. Length, extents and marks change only while `growing` is held. It is held over calls of the device, and waited
//!     for through `sync` of the region.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Arc, Weak};

use ledgerstone_region::{ByNumber, Mutex, TimedMutex};

use super::space::GivenUp;
use super::table::HOLE;

/// One file. Its name is the state's matter.
pub(super) struct Inode {
    /// The reading of the table that it comes from: after another one it is nobody's.
    pub epoch: u64,
    /// Handles that are open. Changed with the state held.
    pub handle_count: AtomicU32,
    /// Whether it has a name. Changed with the state held.
    pub has_name: AtomicBool,
    /// Held by whoever changes what is in `body` (R4).
    pub growing: TimedMutex<()>,
    /// Held for a moment.
    pub body: Mutex<Body>,
}

#[derive(Default, Clone)]
pub(super) struct Body {
    pub len: u64,
    /// The device's extent of each of the file's. Whoever calls the device with them keeps a reference meanwhile.
    pub extents: Arc<Vec<u32>>,
    /// What `extents` was before, as long as calls are under way with that.
    pub earlier: Vec<Weak<Vec<u32>>>,
    /// For extents that are not written to their end: how far they are (R1).
    pub marks: ByNumber<u64, u64>,
    /// The last change of length or extents.
    pub changed_at: u64,
}

/// A piece of an extent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Piece {
    /// Of the file.
    pub extent: usize,
    /// The bytes in the extent.
    pub start: u64,
    pub end: u64,
}

/// The pieces of extents that a range of a file's bytes touches.
pub(super) fn pieces(range: Range<u64>, extent_bytes: u64) -> impl Iterator<Item = Piece> {
    let last = if range.is_empty() { range.start / extent_bytes } else { range.end.div_ceil(extent_bytes) };
    (range.start / extent_bytes..last).map(move |extent| {
        let base = extent * extent_bytes;
        let (start, end) = (range.start.max(base) - base, range.end.min(base + extent_bytes) - base);
        Piece { extent: extent as usize, start, end }
    })
}

impl Inode {
    pub fn new(epoch: u64, body: Body) -> Inode {
        Inode {
            epoch,
            handle_count: AtomicU32::new(0),
            has_name: AtomicBool::new(true),
            growing: TimedMutex::new(()),
            body: Mutex::new(body),
        }
    }
}

impl Body {
    /// As the table has it (R3).
    pub fn of_table(len: u64, extents: Vec<u32>, extent_bytes: u64) -> Body {
        let mut marks = ByNumber::default();
        let (last, rest) = ((len / extent_bytes) as usize, len % extent_bytes);
        if rest > 0 && extents.get(last).is_some_and(|extent| *extent != HOLE) {
            marks.insert(last as u64, rest);
        }
        Body { len, extents: Arc::new(extents), marks, ..Body::default() }
    }

    pub fn extent(&self, number: usize) -> u32 {
        self.extents.get(number).copied().unwrap_or(HOLE)
    }

    /// Whether every byte of a range can be written in place, with nothing else to do.
    pub fn is_plain(&self, range: &Range<u64>, extent_bytes: u64) -> bool {
        range.end <= self.len
            && pieces(range.clone(), extent_bytes).all(|piece| {
                self.extent(piece.extent) != HOLE
                    && self.marks.get(piece.extent as u64).is_none_or(|mark| piece.end <= *mark)
            })
    }

    /// The extents of a range that take no space yet.
    pub fn missing(&self, range: Range<u64>, extent_bytes: u64) -> Vec<usize> {
        pieces(range, extent_bytes).map(|piece| piece.extent).filter(|no| self.extent(*no) == HOLE).collect()
    }

    /// Gives the file extents of the device. Nothing in them is the file's yet.
    pub fn add(&mut self, missing: &[usize], given: &[u32]) {
        if Arc::strong_count(&self.extents) > 1 {
            self.note_earlier();
        }
        let extents = Arc::make_mut(&mut self.extents);
        for (&number, &extent) in missing.iter().zip(given) {
            if extents.len() <= number {
                extents.resize(number + 1, HOLE);
            }
            extents[number] = extent;
            self.marks.insert(number as u64, 0);
        }
    }

    /// The bytes up to `end` of an extent are the file's.
    pub fn raise_mark(&mut self, extent: usize, end: u64, extent_bytes: u64) {
        let extent = extent as u64;
        if let Some(mark) = self.marks.get_mut(extent) {
            *mark = end.max(*mark);
            if *mark == extent_bytes {
                self.marks.remove(extent);
            }
        }
    }

    /// The list of extents is about to be another one.
    fn note_earlier(&mut self) {
        self.earlier.retain(|list| list.strong_count() > 0);
        self.earlier.push(Arc::downgrade(&self.extents));
    }

    /// All extents, of a file that nobody can use any more.
    pub fn all(&self) -> GivenUp {
        GivenUp { extents: Arc::clone(&self.extents), from: 0, earlier: self.earlier.clone() }
    }

    /// Sets the length. Returns what the file gives up.
    pub fn set_len(&mut self, len: u64, extent_bytes: u64) -> Option<GivenUp> {
        let kept = len.div_ceil(extent_bytes) as usize;
        if len < self.len && !len.is_multiple_of(extent_bytes) && self.extent(kept - 1) != HOLE {
            let mark = self.marks.get_or_insert_with(kept as u64 - 1, || extent_bytes);
            *mark = (*mark).min(len % extent_bytes); // R2
        }
        self.len = len;
        self.marks.retain(|extent, _| extent < kept as u64);
        if self.extents.len() <= kept {
            return None;
        }
        let earlier = self.earlier.clone();
        self.note_earlier();
        let fewer = Arc::new(self.extents[..kept].to_vec());
        Some(GivenUp { extents: std::mem::replace(&mut self.extents, fewer), from: kept, earlier })
    }
}
