//! The bytes of one simulated file: as readers see them, as they are durable, and what lies between.
//!
//! Both are vectors of 4096-byte pages that are shared until written to, so that a sync, a snapshot and a crash copy
//! pointers. Between them lie
//!
//! - `pending`: for each page the set of 512-byte pieces that were written and not synced, as a bit mask;
//! - `overwritten`: the versions of a pending piece that later writes replaced before any sync;
//! - `lens`: the lengths that the file has had since its length was durable, but for the present one.
//!
//! I1. A piece that is not pending is equal in both, where both have it.
//! I2. Bytes past the length are zero, in both. An absent page is zero.
//! I3. `overwritten` has pending pieces only.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::survival::{Draw, Fate};

/// The unit in which the simulated disk keeps or loses what was not synced.
pub const PIECE_BYTES: usize = 512;
const PAGE_BYTES: usize = 4096;
const PIECES: usize = PAGE_BYTES / PIECE_BYTES;
/// Keeps the page vectors within reason: they are not sparse.
pub(super) const FILE_BYTES_MAX: u64 = 1 << 36;

type Page = [u8; PAGE_BYTES];
type Piece = [u8; PIECE_BYTES];

static ZEROS: Page = [0; PAGE_BYTES];

const _: () = assert!(PIECES <= u8::BITS as usize, "a mask has a bit for each piece of a page");

#[derive(Clone, Default)]
struct Content {
    pages: Vec<Option<Arc<Page>>>,
    len: u64,
}

#[derive(Clone, Default)]
pub(super) struct Inode {
    live: Content,
    durable: Content,
    pending: BTreeMap<usize, u8>,
    overwritten: BTreeMap<usize, Vec<Piece>>,
    lens: Vec<u64>,
}

impl Content {
    fn page(&self, number: usize) -> &Page {
        self.pages.get(number).and_then(|page| page.as_deref()).unwrap_or(&ZEROS)
    }

    fn piece(&self, number: usize) -> &[u8] {
        &self.page(number / PIECES)[number % PIECES * PIECE_BYTES..][..PIECE_BYTES]
    }

    fn page_mut(&mut self, number: usize) -> &mut Page {
        if self.pages.len() <= number {
            self.pages.resize(number + 1, None);
        }
        Arc::make_mut(self.pages[number].get_or_insert_with(|| Arc::new(ZEROS)))
    }

    fn put_piece(&mut self, number: usize, piece: &[u8]) {
        self.page_mut(number / PIECES)[number % PIECES * PIECE_BYTES..][..PIECE_BYTES].copy_from_slice(piece);
    }

    fn share_page(&mut self, number: usize, from: &Content) {
        if self.pages.len() <= number {
            self.pages.resize(number + 1, None);
        }
        self.pages[number] = from.pages.get(number).cloned().flatten();
    }

    /// Sets the length and zeroes what lies past it (I2).
    fn cut(&mut self, len: u64) {
        self.len = len;
        let (whole, rest) = ((len / PAGE_BYTES as u64) as usize, (len % PAGE_BYTES as u64) as usize);
        self.pages.truncate(len.div_ceil(PAGE_BYTES as u64) as usize);
        if rest > 0 && self.page(whole)[rest..].iter().any(|byte| *byte != 0) {
            self.page_mut(whole)[rest..].fill(0);
        }
    }
}

/// The pages and the ranges inside them that a range of bytes touches: (page, first byte, end).
fn pages_of(offset: u64, len: u64) -> impl Iterator<Item = (usize, usize, usize)> {
    let end = offset + len;
    let page = PAGE_BYTES as u64;
    let last = if len == 0 { offset / page } else { end.div_ceil(page) };
    (offset / page..last).map(move |number| {
        let base = number * page;
        let first = offset.max(base) - base;
        let end = end.min(base + page) - base;
        (number as usize, first as usize, end as usize)
    })
}

/// The bits of the pieces that the bytes `first..end` of a page touch.
fn mask_of(first: usize, end: usize) -> u8 {
    let (low, high) = (first / PIECE_BYTES, end.div_ceil(PIECE_BYTES));
    (((1u32 << high) - 1) & !((1u32 << low) - 1)) as u8
}

fn pieces_of(mask: u8) -> impl Iterator<Item = usize> {
    (0..PIECES).filter(move |piece| mask & (1 << piece) != 0)
}

impl Inode {
    pub(super) fn len(&self) -> u64 {
        self.live.len
    }

    /// Reads inside the length.
    pub(super) fn read(&self, offset: u64, buf: &mut [u8]) {
        let mut done = 0;
        for (page, first, end) in pages_of(offset, buf.len() as u64) {
            buf[done..done + end - first].copy_from_slice(&self.live.page(page)[first..end]);
            done += end - first;
        }
    }

    /// Changes the bytes that readers see; all of it is pending.
    pub(super) fn write(&mut self, offset: u64, bytes: &[u8]) {
        let mut done = 0;
        for (page, first, end) in pages_of(offset, bytes.len() as u64) {
            self.note_pending(page, mask_of(first, end));
            self.live.page_mut(page)[first..end].copy_from_slice(&bytes[done..done + end - first]);
            done += end - first;
        }
        let end = offset + bytes.len() as u64;
        if end > self.live.len && !bytes.is_empty() {
            self.lens.push(self.live.len);
            self.live.len = end;
        }
    }

    /// Marks pieces as pending and keeps the versions that are about to be replaced.
    fn note_pending(&mut self, page: usize, mask: u8) {
        let before = self.pending.entry(page).or_insert(0);
        let again = *before & mask;
        *before |= mask;
        for piece in pieces_of(again) {
            let number = page * PIECES + piece;
            let mut old = [0; PIECE_BYTES];
            old.copy_from_slice(self.live.piece(number));
            self.overwritten.entry(number).or_default().push(old);
        }
    }

    /// Makes a range durable, and the length as far as the range reaches.
    pub(super) fn settle(&mut self, offset: u64, len: u64) {
        for (page, first, end) in pages_of(offset, len) {
            let mask = mask_of(first, end);
            let Some(before) = self.pending.get_mut(&page) else { continue };
            let settled = *before & mask;
            *before &= !mask;
            let is_whole = *before == 0;
            if is_whole {
                self.pending.remove(&page);
                self.durable.share_page(page, &self.live);
            }
            for piece in pieces_of(settled) {
                let number = page * PIECES + piece;
                self.overwritten.remove(&number);
                if !is_whole {
                    let piece: &[u8] = self.live.piece(number);
                    self.durable.put_piece(number, piece);
                }
            }
        }
        let reached = offset + len;
        if reached > self.durable.len && len > 0 {
            self.durable.len = reached;
            // A length in between, of an earlier and shorter state, is history now.
            self.lens.retain(|len| *len > reached);
        }
    }

    /// Makes everything durable.
    pub(super) fn sync(&mut self) {
        for page in std::mem::take(&mut self.pending).into_keys() {
            self.durable.share_page(page, &self.live);
        }
        self.overwritten.clear();
        self.lens.clear();
        if self.durable.len != self.live.len {
            self.durable.cut(self.live.len);
        }
    }

    pub(super) fn set_len(&mut self, len: u64) {
        if len == self.live.len {
            return;
        }
        if len < self.live.len {
            // What lies past the new end reads as zero from now on; durably so only when this length is.
            for (page, first, end) in pages_of(len, self.live.len - len) {
                if self.live.page(page)[first..end].iter().any(|byte| *byte != 0) {
                    self.note_pending(page, mask_of(first, end));
                }
            }
        }
        self.lens.push(self.live.len);
        self.live.cut(len);
    }

    /// The file as the next start finds it: durable, with nothing pending.
    pub(super) fn after_crash(self: &Arc<Inode>, fate: Fate, draw: &mut Draw) -> Arc<Inode> {
        if self.pending.is_empty() && self.lens.is_empty() && self.durable.len == self.live.len {
            return self.clone();
        }
        let mut kept = self.durable.clone();
        for (&page, &mask) in &self.pending {
            let whole_page = fate.whole_pages().then(|| fate.keeps(draw));
            for piece in pieces_of(mask) {
                if !whole_page.unwrap_or_else(|| fate.keeps(draw)) {
                    continue;
                }
                let number = page * PIECES + piece;
                let older = self.overwritten.get(&number).filter(|_| fate.keeps_older(draw));
                match older {
                    Some(versions) => kept.put_piece(number, &versions[draw.below(versions.len() as u64) as usize][..]),
                    None => kept.put_piece(number, self.live.piece(number)),
                }
            }
        }
        let len = if !fate.keeps(draw) {
            self.durable.len
        } else if !self.lens.is_empty() && fate.keeps_older(draw) {
            self.lens[draw.below(self.lens.len() as u64) as usize]
        } else {
            self.live.len
        };
        kept.cut(len);
        Arc::new(Inode { live: kept.clone(), durable: kept, ..Inode::default() })
    }
}
