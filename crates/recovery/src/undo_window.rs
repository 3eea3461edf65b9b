//! Updates that are to be undone, sorted by place.
//!
//! In the order of the log each would read its page again if the table is larger than the cache. Sorted, a page is
//! visited once, and pages that come next are read meanwhile by threads of their own: the device serves several at a
//! time. Updates that memory does not hold are sorted in a temporary file. If there is no space for it, pages are
//! visited once for each filling of memory.
//!
//! ```text
//!  push ─► sorter ─► drain: pieces of so many pages ─► read by threads ─► undone
//!                                      filling            coming
//! entry:  key                                     the key of the place; without one, those of a page are neighbours
//!         space u64, order of LSN u64             both big-endian: the later ones of a place come first
//!         who u32, op u16, page u64, arguments    little-endian
//! ```

use ledgerstone_region::NumberSet;
use std::sync::Arc;

use ledgerstone_disk::Disk;
use ledgerstone_page::planted::{self, Bug};
use ledgerstone_page::{Lsn, OpId, PageId};
use ledgerstone_region::sync::{self, JoinHandle};
use ledgerstone_sort::{SortError, Sorter};
use ledgerstone_txn::{Engine, UndoPlace};

use crate::RecoveryError;

/// Memory of the sorter.
const SORT_BYTES: u64 = 24 << 20;
/// Bytes of a window, in memory and in the file: as much is done again, at most, after a crash in here.
const WINDOW_BYTES_MAX: u64 = 1 << 30;
/// Bytes of a piece.
const PIECE_BYTES_MAX: usize = 2 << 20;
/// Smaller windows read their pages one by one: threads would cost more.
const AHEAD_FROM: u64 = 4096;
/// Threads that read ahead.
pub const UNDO_READERS: u32 = 4;
const HEAD_BYTES: usize = 30;

/// One update.
pub(crate) struct Entry {
    /// The update's record.
    pub lsn: Lsn,
    /// Its operation.
    pub op: OpId,
    /// The page that it changed then.
    pub page: PageId,
    /// Its transaction, by the caller's number.
    pub who: u32,
}

/// Undoes an update with its arguments.
type Undo<'u> = dyn FnMut(&Entry, &[u8]) -> Result<(), RecoveryError> + 'u;

/// See the head of the file.
pub(crate) struct Window {
    disk: Arc<dyn Disk>,
    sort_bytes: usize,
    sorter: Sorter,
    count: u64,
    bytes: u64,
    /// So many bytes fill it.
    bytes_max: u64,
    /// The disk takes no more.
    is_refused: bool,
}

impl Window {
    /// A window for updates in so many bytes of log.
    pub fn for_log(disk: &Arc<dyn Disk>, log_bytes: u64) -> Window {
        let sort_bytes = SORT_BYTES.min(log_bytes.saturating_mul(4)) as usize;
        let (disk, sorter) = (Arc::clone(disk), Sorter::new(disk, sort_bytes));
        Window { disk, sort_bytes, sorter, count: 0, bytes: 0, bytes_max: WINDOW_BYTES_MAX, is_refused: false }
    }

    /// The same window, which is full after so many bytes.
    #[cfg(test)]
    pub fn full_after(self, bytes_max: u64) -> Window {
        Window { bytes_max, ..self }
    }

    /// Whether it has to be drained before it takes more.
    pub fn is_full(&self) -> bool {
        self.is_refused || self.bytes >= self.bytes_max || planted::fills_window(self.count as usize)
    }

    /// Takes an update in. Must not be full.
    pub fn push(&mut self, who: u32, lsn: Lsn, op: OpId, page: PageId, place: UndoPlace<'_>) {
        let order = if planted::is_on(Bug::UndoneOldestFirst) { lsn.0 } else { !lsn.0 };
        let mut value = Vec::with_capacity(HEAD_BYTES + place.args.len());
        value.extend_from_slice(&place.space.0.to_be_bytes());
        value.extend_from_slice(&order.to_be_bytes());
        value.extend_from_slice(&who.to_le_bytes());
        value.extend_from_slice(&op.0.to_le_bytes());
        value.extend_from_slice(&page.0.to_le_bytes());
        value.extend_from_slice(place.args);
        self.count += 1;
        self.bytes += (place.key.len() + value.len()) as u64;
        // Refused or not, the sorter has it. What is wrong with the disk shows when the window is drained, if it
        // matters then.
        self.is_refused |= self.sorter.push(place.key, &value).is_err();
    }

    /// Passes the updates to `undo`, place by place, with the later updates of a place first. The window is empty
    /// afterwards.
    pub fn drain(&mut self, engine: &Arc<Engine>, undo: &mut Undo<'_>) -> Result<(), RecoveryError> {
        let sorter = std::mem::replace(&mut self.sorter, Sorter::new(&self.disk, self.sort_bytes));
        let pages_max = (engine.cache.frame_count() / 8).max(1) as usize;
        let reads_ahead = self.count >= AHEAD_FROM;
        let mut pieces = Pieces { engine, pages_max, reads_ahead, filling: Piece::default(), coming: None };
        sorter.give_all(&mut |key, value| pieces.push(key, value, undo))?;
        (self.count, self.bytes, self.is_refused) = (0, 0, false);
        pieces.turn(undo)?;
        pieces.turn(undo)
    }
}

/// Updates in order, in pieces whose pages are a part of the cache.
struct Pieces<'e> {
    engine: &'e Arc<Engine>,
    pages_max: usize,
    reads_ahead: bool,
    filling: Piece,
    /// The piece before, whose pages are being read.
    coming: Option<(Piece, Coming)>,
}

#[derive(Default)]
struct Piece {
    entries: Vec<(Entry, usize)>,
    /// Their arguments, one behind the other: as long as the numbers say.
    args: Vec<u8>,
    /// The pages that they changed: guesses at where their places are now.
    pages: NumberSet<PageId>,
    last: Option<PageId>,
}

impl Pieces<'_> {
    fn push(&mut self, _key: &[u8], value: &[u8], undo: &mut Undo<'_>) -> Result<(), RecoveryError> {
        let Some((head, args)) = value.split_first_chunk::<HEAD_BYTES>() else {
            return Err(SortError::Damaged { at: 0 }.into());
        };
        let number = |at: usize| u64::from_be_bytes(std::array::from_fn(|no| head[at + no]));
        let order = number(8);
        let page = PageId(number(22).swap_bytes());
        let entries_bytes = self.filling.entries.len() * size_of::<(Entry, usize)>();
        if entries_bytes + self.filling.args.len() + args.len() > PIECE_BYTES_MAX
            || self.filling.last != Some(page) && self.filling.pages.len() == self.pages_max
        {
            self.turn(undo)?;
        }
        let entry = Entry {
            lsn: Lsn(if planted::is_on(Bug::UndoneOldestFirst) { order } else { !order }),
            op: OpId(u16::from_le_bytes([head[20], head[21]])),
            page,
            who: u32::from_le_bytes(std::array::from_fn(|no| head[16 + no])),
        };
        let piece = &mut self.filling;
        if piece.last != Some(page) {
            piece.pages.insert(page);
            piece.last = Some(page);
        }
        piece.entries.push((entry, args.len()));
        piece.args.extend_from_slice(args);
        Ok(())
    }

    /// Has the pages of the piece that is filled read, and undoes the one before it.
    fn turn(&mut self, undo: &mut Undo<'_>) -> Result<(), RecoveryError> {
        if let Some((_, reading)) = &mut self.coming {
            reading.wait()?;
        }
        let next = std::mem::take(&mut self.filling);
        let reading = if self.reads_ahead { Coming::read(self.engine, &next.pages) } else { Coming::default() };
        let Some((piece, _)) = self.coming.replace((next, reading)) else { return Ok(()) };
        let mut left = &piece.args[..];
        for (entry, len) in &piece.entries {
            let (args, rest) = left.split_at(*len);
            undo(entry, args)?;
            left = rest;
        }
        Ok(())
    }
}

/// Threads that are reading pages in.
#[derive(Default)]
struct Coming(Vec<JoinHandle<()>>);

impl Coming {
    fn read(engine: &Arc<Engine>, pages: &NumberSet<PageId>) -> Coming {
        let pages: Vec<PageId> = pages.iter().collect();
        let parts = pages.chunks(pages.len().div_ceil(UNDO_READERS as usize).max(1));
        let spawn = |part: &[PageId]| {
            let (engine, part) = (Arc::clone(engine), part.to_vec());
            sync::spawn("undo reads", move || {
                // Advice only: where there is no slot for one more thread, pages are read when they are needed.
                if engine.thread().is_err() {
                    return;
                }
                let mut ahead = engine.cache.read_wanted();
                for run in part.chunk_by(|a, b| a.0 + 1 == b.0) {
                    for run in run.chunks(ahead.pages_max() as usize) {
                        ahead.run(run[0], run.len() as u64);
                    }
                }
            })
        };
        Coming(parts.map(spawn).collect())
    }

    /// Waits for all of them, whatever became of the others.
    fn wait(&mut self) -> Result<(), RecoveryError> {
        let mut done = Ok(());
        for reader in self.0.drain(..) {
            if reader.join().is_err() {
                done = Err(RecoveryError::WorkerPanicked("reader of undo"));
            }
        }
        done
    }
}

impl Drop for Coming {
    /// None may outlive recovery.
    fn drop(&mut self) {
        let _ = self.wait();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

    use super::*;

    #[test]
    fn a_reader_that_panics_leaves_no_other_behind() {
        let (may_end, has_ended) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let panics = sync::spawn("panics", {
            let may_end = Arc::clone(&may_end);
            move || {
                may_end.store(true, SeqCst);
                panic!("planned");
            }
        });
        let goes_on = sync::spawn("goes on", {
            let (may_end, has_ended) = (Arc::clone(&may_end), Arc::clone(&has_ended));
            move || {
                while !may_end.load(SeqCst) {
                    sync::sleep_ns(1_000_000);
                }
                sync::sleep_ns(100_000_000); // A thread that does not wait is away by then.
                has_ended.store(true, SeqCst);
            }
        });
        let waited = Coming(vec![panics, goes_on]).wait();
        assert!(matches!(waited, Err(RecoveryError::WorkerPanicked(_))), "{waited:?}");
        assert!(has_ended.load(SeqCst), "a reader goes on");
    }
}
