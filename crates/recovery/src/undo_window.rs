//! Updates that are to be undone and may change places, gathered until memory is full and sorted by place.
//!
//! In the order of the log each would read its page again if the table is larger than the cache. Sorted, a page is visited once
//! a window, and pages that come next are read meanwhile by threads of their own: the device serves several at a time.

use std::collections::BTreeSet;
use std::sync::Arc;

use ledgerstone_page::planted::{self, Bug};
use ledgerstone_page::{Lsn, OpId, PageId};
use ledgerstone_region::sync::{self, JoinHandle};
use ledgerstone_txn::{Engine, UndoPlace};

use crate::RecoveryError;

/// Memory of the window.
const BYTES_MAX: usize = 32 << 20;
/// Smaller windows read their pages one by one: threads would cost more.
const AHEAD_FROM: usize = 4096;
/// Threads that read ahead.
const READERS: usize = 4;

/// One update.
pub(crate) struct Entry {
    space: PageId,
    /// The first bytes of the key, which decide most comparisons.
    key_head: u64,
    /// The page that it changed: a guess at where its place is now.
    page: PageId,
    /// The update's record.
    pub lsn: Lsn,
    /// Key and arguments in the window's bytes.
    at: u32,
    key_len: u16,
    /// Its operation.
    pub op: OpId,
    args_len: u32,
    /// Whose it is, as the caller counts transactions.
    pub who: u32,
}

/// See the head of the file.
#[derive(Default)]
pub(crate) struct Window {
    entries: Vec<Entry>,
    bytes: Vec<u8>,
}

impl Window {
    /// A window for updates in so many bytes of log. Takes its room at once, since what grows leaves holes.
    pub fn for_log(log_bytes: u64) -> Window {
        let bytes_max = BYTES_MAX.min(usize::try_from(log_bytes).unwrap_or(usize::MAX));
        Window { entries: Vec::with_capacity(bytes_max / size_of::<Entry>()), bytes: Vec::with_capacity(bytes_max) }
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub fn is_full(&self) -> bool {
        self.bytes.len() + self.entries.len() * size_of::<Entry>() >= BYTES_MAX
            || planted::fills_window(self.entries.len())
    }

    /// Takes an update in.
    pub fn push(&mut self, who: u32, lsn: Lsn, op: OpId, page: PageId, place: UndoPlace<'_>) {
        let mut head = [0; 8];
        head.iter_mut().zip(place.key).for_each(|(to, from)| *to = *from);
        self.entries.push(Entry {
            space: place.space,
            key_head: u64::from_be_bytes(head),
            page,
            lsn,
            at: self.bytes.len() as u32,
            key_len: place.key.len() as u16, // Both are parts of a record of the log.
            op,
            args_len: place.args.len() as u32,
            who,
        });
        self.bytes.extend_from_slice(place.key);
        self.bytes.extend_from_slice(place.args);
    }

    /// Hands the updates to `undo`, with their arguments, place by place and the later ones of a place first; and is empty then.
    pub fn drain(
        &mut self,
        engine: &Arc<Engine>,
        mut undo: impl FnMut(&Entry, &[u8]) -> Result<(), RecoveryError>,
    ) -> Result<(), RecoveryError> {
        let Window { mut entries, mut bytes } = std::mem::take(self);
        entries.sort_unstable_by(|a, b| {
            let heads = (a.space, a.key_head).cmp(&(b.space, b.key_head));
            let keys = heads.then_with(|| key(&bytes, a).cmp(key(&bytes, b)));
            let newest_first = !planted::is_on(Bug::UndoneOldestFirst);
            keys.then_with(|| if newest_first { b.lsn.cmp(&a.lsn) } else { a.lsn.cmp(&b.lsn) })
        });
        let reads_ahead = entries.len() >= AHEAD_FROM;
        let pages_max = (engine.cache.frame_count() / 8).max(1) as usize;
        let mut chunks = Chunks { left: &entries, pages_max };
        let mut coming = Coming::default();
        let mut next = chunks.next();
        if let Some((_, pages)) = next.as_ref().filter(|_| reads_ahead) {
            coming = Coming::read(engine, pages);
        }
        while let Some((chunk, _)) = next {
            coming.wait()?;
            next = chunks.next();
            if let Some((_, pages)) = next.as_ref().filter(|_| reads_ahead) {
                coming = Coming::read(engine, pages);
            }
            for entry in chunk {
                let args = &bytes[entry.at as usize + usize::from(entry.key_len)..][..entry.args_len as usize];
                undo(entry, args)?;
            }
        }
        entries.clear();
        bytes.clear();
        *self = Window { entries, bytes };
        Ok(())
    }
}

fn key<'b>(bytes: &'b [u8], entry: &Entry) -> &'b [u8] {
    &bytes[entry.at as usize..][..usize::from(entry.key_len)]
}

/// Sorted updates in pieces whose pages are a part of the cache.
struct Chunks<'e> {
    left: &'e [Entry],
    pages_max: usize,
}

impl<'e> Chunks<'e> {
    fn next(&mut self) -> Option<(&'e [Entry], BTreeSet<PageId>)> {
        let mut pages = BTreeSet::new();
        let mut last = None;
        let mut count = 0;
        for entry in self.left {
            if last != Some(entry.page) {
                if pages.len() == self.pages_max {
                    break;
                }
                pages.insert(entry.page);
                last = Some(entry.page);
            }
            count += 1;
        }
        let (chunk, rest) = self.left.split_at(count);
        self.left = rest;
        (count > 0).then_some((chunk, pages))
    }
}

/// Threads that are reading pages in.
#[derive(Default)]
struct Coming(Vec<JoinHandle<()>>);

impl Coming {
    fn read(engine: &Arc<Engine>, pages: &BTreeSet<PageId>) -> Coming {
        let pages: Vec<PageId> = pages.iter().copied().collect();
        let parts = pages.chunks(pages.len().div_ceil(READERS).max(1));
        let spawn = |part: &[PageId]| {
            let (engine, part) = (Arc::clone(engine), part.to_vec());
            sync::spawn("undo reads", move || {
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

    fn wait(&mut self) -> Result<(), RecoveryError> {
        let mut readers = self.0.drain(..);
        readers.try_for_each(|reader| reader.join().map_err(|_| RecoveryError::WorkerPanicked))
    }
}

impl Drop for Coming {
    /// None may outlive recovery.
    fn drop(&mut self) {
        let _ = self.wait();
    }
}
