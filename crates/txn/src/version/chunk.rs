//! Memory of the version store: chunks of words, taken from and given back to a list of free ones.
//!
//! ```text
//! word of a chunk
//!    0   status       in a writer's first chunk, see `writer.rs`
//!    1   next         next chunk of the same writer, or of the list of free ones; 0 none
//!    2   owner        number of the writer's slot + 1; 0: the list of free ones has it
//!    3   count        in a writer's first chunk: how many entries
//!    4   :            entries; what does not fit goes on in the next chunk's word 4
//! ```
//! M1. A chunk belongs to one writer or to the list. It changes hands under the list's latch, and says whose it is from
//!     then on. So the list is all chunks that are nobody's, and can be made again from that. What is left with a slot
//!     stays the slot's.
//! M2. Readers look without a latch: they may read a chunk that has changed hands. A writer that gets a chunk passes a
//!     release fence before its first store. The fence pairs with the acquire fence by which a reader checks the bucket
//!     that the chunk came from. That bucket's version was raised before the chunk was given back. So no reader
//!     believes what it read of another's.
//! M3. Reading never leaves the memory: an address past its end reads as zero.
//! M4. A writer's chunks are found from its slot: in `left`, or from `first` on. What belongs to a slot of the dead and
//!     is not found from there was changing hands: it goes to the list.

use super::bucket::{self, Latched};
use super::entry::Memory;
use super::staged::WriterSlot;
use ledgerstone_region::atomic::{AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release, fence};
use ledgerstone_region::{Handle, Region, RegionError, SlotNo};

/// Words of a chunk: the images of a small transaction, of some records of 100 bytes, fit into one.
pub(super) const CHUNK_WORDS: u32 = 64;
/// Bytes of a chunk.
pub(super) const CHUNK_BYTES: u64 = CHUNK_WORDS as u64 * 8;
/// First word of a chunk that holds entries.
pub(super) const FIRST_WORD: u32 = 4;

const STATUS: u32 = 0;
const NEXT: u32 = 1;
const OWNER: u32 = 2;
const COUNT: u32 = 3;

// Words of the list.
const LATCH: usize = 0;
const HEAD: usize = 1;
const UNUSED: usize = 2;
const USED: usize = 3;
/// So many chunks are given back under the latch at once.
const BATCH: u64 = 16;

/// Whether an address may be one of a chunk that a writer has.
pub(super) fn is_address(at: u32) -> bool {
    at >= CHUNK_WORDS
}

/// All chunks. Chunk 0 is nobody's, so that 0 is neither a chunk nor an address.
pub(super) struct Chunks {
    words: Handle<[AtomicU64]>,
    /// The list of free ones: its latch, as a bucket has one; the first chunk; chunks never used begin here; how many
    /// are in use.
    list: Handle<[AtomicU64]>,
}

impl Memory for Chunks {
    type At = u32;
    #[inline]
    fn word(&self, at: u32) -> u64 {
        self.word(at)
    }
    #[inline]
    fn beside(&self, at: u32, words: u32) -> u32 {
        at.wrapping_add(words)
    }
    #[inline]
    fn after(&self, at: u32) -> u32 {
        self.after(at)
    }
}

impl Chunks {
    pub(super) fn place(region: &Region, bytes: u64) -> Result<Chunks, RegionError> {
        // Addresses have 32 bits.
        let count = (bytes / CHUNK_BYTES).clamp(2, u64::from(u32::MAX / CHUNK_WORDS) - 1) + 1;
        let words = region.place::<AtomicU64>("versions.chunks", count * u64::from(CHUNK_WORDS), 64)?;
        let list: Handle<[AtomicU64]> = region.place("versions.chunk_list", 8, 64)?;
        if region.is_made_here() {
            list[UNUSED].store(1, Relaxed); // Nobody else knows the store yet.
        }
        Ok(Chunks { words, list })
    }

    /// How many chunks can be in use.
    pub(super) fn count(&self) -> u32 {
        self.words.len() as u32 / CHUNK_WORDS - 1
    }

    /// How many are, those included that were left for a slot's next writer.
    pub(super) fn used_count(&self) -> u64 {
        self.list[USED].load(Relaxed) // A figure to print.
    }

    /// A first chunk for a writer, whose slot names it from then on: the one that the slot's last writer has left, or
    /// another.
    #[inline]
    pub(super) fn take_first(&self, slot: &WriterSlot, no: u32, me: SlotNo) -> Option<u32> {
        self.take_left(slot).or_else(|| self.take(no, &slot.first, me))
    }

    /// Leaves a writer's only chunk with its slot. False: it has more, or one is there already. They are nobody's then,
    /// and to be given back.
    #[inline]
    pub(super) fn leave(&self, slot: &WriterSlot, first: u32) -> bool {
        slot.first.store(0, Release); // First: then another may take it away (M4).
        // Only the owner of the slot leaves one: it does not become another's between the two.
        let is_left = self.next(first) == 0 && slot.left.load(Relaxed) == 0;
        if is_left {
            slot.left.store(u64::from(first), Release);
        }
        is_left
    }

    #[inline]
    fn take_left(&self, slot: &WriterSlot) -> Option<u32> {
        let left = slot.left.load(Relaxed);
        // Acquire pairs with the Release in `leave`.
        if left == 0 || left >> 32 != 0 || slot.left.compare_exchange(left, 0, Acquire, Relaxed).is_err() {
            return None;
        }
        fence(Release); // M2
        self.begin(left as u32);
        slot.first.store(left, Release);
        Some(left as u32)
    }

    /// Takes the one that was left with another slot, for the writer of slot `no`. It stands in `link` from then on.
    #[cold]
    pub(super) fn take_from(&self, slots: &[WriterSlot], no: u32, link: &AtomicU64, me: SlotNo) -> Option<u32> {
        let latched = bucket::latch(&self.list[LATCH], me);
        let taken = slots.iter().find_map(|slot| {
            let left = slot.left.load(Relaxed);
            let marked = u64::from(no + 1) << 32 | left;
            let is_taken =
                left != 0 && left >> 32 == 0 && slot.left.compare_exchange(left, marked, Acquire, Relaxed).is_ok();
            is_taken.then_some((slot, left as u32))
        });
        let Some((slot, chunk)) = taken else {
            latched.unlatch_unchanged();
            return None;
        };
        fence(Release); // M2
        self.set_owner(chunk, no + 1);
        self.begin(chunk);
        link.store(u64::from(chunk), Release);
        slot.left.store(0, Release);
        latched.unlatch();
        Some(chunk)
    }

    /// Ends what a dead thread was about in [`Chunks::take_from`], under the latch.
    pub(super) fn end_taking_from(&self, slots: &[WriterSlot]) {
        for (no, slot) in (0..).zip(slots) {
            let left = slot.left.load(Acquire);
            if left >> 32 != 0 {
                if self.owner(left as u32) == no + 1 {
                    self.set_owner(left as u32, 0);
                }
                slot.left.store(0, Release);
            }
        }
    }

    /// Makes the list again, for a repair that has the slots of `dead` writers (M1, M4).
    pub(super) fn mend_list(&self, slots: &[WriterSlot], dead: &[u32], latched: Latched<'_>) {
        let unused = (self.list[UNUSED].load(Relaxed) as u32).min(self.count() + 1);
        let mut found = vec![false; unused as usize];
        for slot in dead.iter().map(|no| &slots[*no as usize]) {
            for first in [&slot.left, &slot.first] {
                let mut chunk = first.load(Acquire) as u32;
                while let Some(found) = found.get_mut(chunk as usize).filter(|found| chunk != 0 && !**found) {
                    *found = true;
                    chunk = self.next(chunk);
                }
            }
        }
        let (mut head, mut used) = (0, 0);
        for chunk in 1..unused {
            let owner = self.owner(chunk);
            let is_lost = owner != 0 && dead.contains(&(owner - 1)) && !found[chunk as usize];
            if is_lost {
                self.set_owner(chunk, 0);
            }
            if is_lost || owner == 0 {
                self.set_next(chunk, head);
                head = chunk;
            } else {
                used += 1;
            }
        }
        self.list[HEAD].store(u64::from(head), Relaxed);
        self.list[USED].store(used, Relaxed);
        latched.unlatch();
    }

    /// The latch of the list.
    pub(super) fn list_latch(&self) -> &AtomicU64 {
        &self.list[LATCH]
    }

    /// The number of the slot whose writer has a chunk, + 1; 0: nobody's.
    fn owner(&self, chunk: u32) -> u32 {
        self.word(chunk * CHUNK_WORDS + OWNER) as u32
    }

    fn set_owner(&self, chunk: u32, owner: u32) {
        self.set(chunk * CHUNK_WORDS + OWNER, u64::from(owner));
    }

    /// A chunk without a next one, which may be a writer's first: open, without entries.
    #[inline]
    fn begin(&self, chunk: u32) {
        let at = (chunk * CHUNK_WORDS) as usize;
        let head = &self.words[at..at + FIRST_WORD as usize];
        head[NEXT as usize].store(0, Relaxed); // Published with the first entry, or as staged, as all here.
        head[COUNT as usize].store(0, Relaxed);
        head[STATUS as usize].store(super::writer::OPEN, Relaxed);
    }

    /// A word; 0 past the end (M3). What a reader without a latch gets counts after its check.
    #[inline]
    pub(super) fn word(&self, at: u32) -> u64 {
        self.words.get(at as usize).map_or(0, |word| word.load(Relaxed))
    }

    #[inline]
    pub(super) fn set(&self, at: u32, value: u64) {
        self.words[at as usize].store(value, Relaxed); // Published by the latch of the bucket that is pushed to.
    }

    /// The address after `at`, in the next chunk if need be.
    #[inline]
    pub(super) fn after(&self, at: u32) -> u32 {
        let next = at.wrapping_add(1);
        if !next.is_multiple_of(CHUNK_WORDS) { next } else { self.first_word(self.next(at / CHUNK_WORDS)) }
    }

    /// The last word of so many that begin at `at`.
    #[inline]
    pub(super) fn end_of(&self, at: u32, words: u32) -> u32 {
        if at % CHUNK_WORDS + words <= CHUNK_WORDS {
            return at + words - 1;
        }
        (1..words).fold(at, |end, _| self.after(end))
    }

    /// The words from `at` on, if the chunk has so many.
    #[inline]
    pub(super) fn words_in_chunk(&self, at: u32, words: u32) -> Option<&[AtomicU64]> {
        let left = CHUNK_WORDS - at % CHUNK_WORDS;
        // An address at the end of a chunk is the next chunk's first: what begins there goes on elsewhere.
        if at.is_multiple_of(CHUNK_WORDS) || words > left {
            return None;
        }
        self.words.get(at as usize..(at + words) as usize)
    }

    #[inline]
    pub(super) fn first_word(&self, chunk: u32) -> u32 {
        chunk.wrapping_mul(CHUNK_WORDS).wrapping_add(FIRST_WORD)
    }

    /// The status word of a writer, by its first chunk.
    #[inline]
    pub(super) fn status(&self, writer: u32) -> Option<&AtomicU64> {
        self.words.get(writer as usize * CHUNK_WORDS as usize + STATUS as usize)
    }

    pub(super) fn next(&self, chunk: u32) -> u32 {
        self.word(chunk.wrapping_mul(CHUNK_WORDS).wrapping_add(NEXT)) as u32
    }

    pub(super) fn set_next(&self, chunk: u32, next: u32) {
        self.set(chunk * CHUNK_WORDS + NEXT, u64::from(next));
    }

    /// A reader finds as many entries.
    pub(super) fn entry_count(&self, writer: u32) -> u64 {
        self.words[(writer * CHUNK_WORDS + COUNT) as usize].load(Acquire) // Pairs with the Release below.
    }

    #[inline]
    pub(super) fn set_entry_count(&self, writer: u32, count: u64) {
        self.words[(writer * CHUNK_WORDS + COUNT) as usize].store(count, Release);
    }

    /// The place of a chunk's next one.
    pub(super) fn next_word(&self, chunk: u32) -> &AtomicU64 {
        &self.words[(chunk * CHUNK_WORDS + NEXT) as usize]
    }

    /// Takes a free chunk for the writer of slot `no`; none if all are in use. It stands in `link` from then on.
    pub(super) fn take(&self, no: u32, link: &AtomicU64, me: SlotNo) -> Option<u32> {
        let [head, unused] = [HEAD, UNUSED].map(|word| &self.list[word]);
        let is_empty = || head.load(Relaxed) == 0 && unused.load(Relaxed) > u64::from(self.count());
        if is_empty() {
            return None;
        }
        let latched = bucket::latch(&self.list[LATCH], me);
        if is_empty() {
            latched.unlatch_unchanged();
            return None;
        }
        fence(Release); // M2
        let chunk = match head.load(Relaxed) as u32 {
            // One that was never used: memory is touched only as it is needed.
            0 => {
                let chunk = unused.load(Relaxed) as u32;
                self.set_owner(chunk, no + 1);
                unused.store(u64::from(chunk) + 1, Relaxed);
                chunk
            }
            chunk => {
                self.set_owner(chunk, no + 1);
                head.store(u64::from(self.next(chunk)), Relaxed);
                chunk
            }
        };
        self.list[USED].store(self.list[USED].load(Relaxed) + 1, Relaxed);
        self.begin(chunk);
        link.store(u64::from(chunk), Release);
        latched.unlatch();
        Some(chunk)
    }

    /// Gives back a writer's chunks, all of them, beginning with `first`.
    pub(super) fn give_back(&self, first: u32, me: SlotNo) {
        let mut first = first;
        while first != 0 {
            let latched = bucket::latch(&self.list[LATCH], me);
            let (mut last, mut count) = (first, 1);
            self.set_owner(last, 0);
            while count < BATCH && self.next(last) != 0 {
                last = self.next(last);
                self.set_owner(last, 0);
                count += 1;
            }
            let rest = self.next(last);
            self.set_next(last, self.list[HEAD].load(Relaxed) as u32);
            self.list[HEAD].store(u64::from(first), Relaxed);
            self.list[USED].store(self.list[USED].load(Relaxed).saturating_sub(count), Relaxed);
            latched.unlatch();
            first = rest;
        }
    }

    /// Asserts that no chunk is lost: each is in the list, or left with a slot.
    #[cfg(all(feature = "deaths", not(miri)))]
    pub(super) fn check(&self, slots: &[WriterSlot]) {
        use ledgerstone_region::atomic::Ordering::SeqCst;
        assert_eq!(self.list[LATCH].load(SeqCst) & ((1 << 14) - 1), 0, "the list of chunks is held");
        let mut is_there = vec![false; self.list[UNUSED].load(SeqCst) as usize];
        let mut see = |chunk: u32, owner| {
            assert_eq!(self.owner(chunk), owner, "chunk {chunk}");
            assert!(!std::mem::replace(&mut is_there[chunk as usize], true), "chunk {chunk} is in two places");
        };
        let mut chunk = self.list[HEAD].load(SeqCst) as u32;
        while chunk != 0 {
            see(chunk, 0);
            chunk = self.next(chunk);
        }
        let mut left_count = 0;
        for (no, slot) in (0..).zip(slots) {
            let left = slot.left.load(SeqCst) as u32;
            if left != 0 {
                see(left, no + 1);
                left_count += 1;
            }
        }
        assert!(is_there.into_iter().skip(1).all(|is| is), "a chunk is lost");
        assert_eq!(self.used_count(), left_count, "chunks in use");
    }
}
