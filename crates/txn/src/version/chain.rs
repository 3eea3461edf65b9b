//! Chains: the before-images of a key, newest first, behind a hash table.
//!
//! ```text
//! bucket ──► newest entry of key A ──next──► newest entry of key B ──► …
//!               │ older ▲ newer                 │ older
//!               ▼       │                       ▼
//!            entry of an earlier writer      …
//!
//! word of an entry
//!    0   next, low half: the newest entry of the bucket's next key; newer, upper half: 0 for the newest of its key
//!    1   older, low half; writer, upper half: its first chunk
//!    2   space, 48 bits: the root page; then length of the key in bytes, 16 bits
//!    3   hash, 32 bits; header of the record, 16 bits (all ones: there was none); length of the value, 16 bits
//!    4   key, then value, each from a word of its own on
//! ```
//! H1. Links change under the bucket's latch (`bucket.rs`). Readers read under its version, and if that fails too often, under
//!     the latch.
//! H2. Entries of a key are ordered as their writers changed it, since a writer has the key locked until it ends: at most the
//!     newest one's writer is open.
//! H3. The first four words of an entry lie in one chunk.
//! H4. Keys that differ in the last four bits of their last byte only have one hash, and so one bucket: neighbours on a leaf, as a
//!     rule, so that who reads a whole leaf looks at a few buckets ([`VersionStore::images_near`]).

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

use ledgerstone_page::planted::{self, Bug};
use ledgerstone_page::{Lsn, PageId};
use ledgerstone_region::sync;
use xxhash_rust::xxh3::xxh3_64;

use super::VersionStore;
use super::bucket::Bucket;
use super::chunk::{CHUNK_WORDS, Chunks};
use super::view::At;
use super::writer::{COMMITTED, COMMITTING, STATE_BITS};

/// Words of an entry before its key.
pub(super) const ENTRY_WORDS: u32 = 4;
const NO_RECORD: u16 = u16::MAX;
/// Looks without a latch before one is taken.
const LOOKS_MAX: u32 = 16;
/// Entries passed between two checks of a walk without a latch, which might go in a ring.
const STEPS_MAX: u32 = 64;

/// What a record was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Before<'a> {
    /// There was none.
    Absent,
    /// A header, as its structure understands it (not all ones), and a value.
    Record(u16, &'a [u8]),
}

/// A record as it was, copied out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Image {
    /// Its header; `None`: there was no record.
    pub header: Option<u16>,
    /// Its value.
    pub value: Vec<u8>,
    /// The commit of who changed it then; `Lsn(u64::MAX)`: it has not committed.
    pub until: Lsn,
}

/// What a look at a chain came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// The page's record is what the reader sees.
    Page,
    /// The image is.
    Image,
    /// A writer is committing: look again, at the page too (see [`VersionStore::pause`]).
    Committing,
}

/// What of a chain's key is looked for.
#[derive(Clone, Copy)]
pub(super) struct Name<'k> {
    pub space: PageId,
    pub hash: u64,
    pub key: &'k [u8],
}

impl<'k> Name<'k> {
    #[inline]
    pub(super) fn new(space: PageId, key: &'k [u8]) -> Name<'k> {
        let spread = |number: u64| number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let (last, stem) = key.split_last().unwrap_or((&0, key));
        // H4. Spread: tables of one shape hold the same keys.
        Name { space, key, hash: xxh3_64(stem) ^ spread(u64::from(last >> 4)) ^ spread(space.0).rotate_left(32) }
    }

    /// What an entry of it has in its third word.
    #[inline]
    fn head(&self) -> u64 {
        self.space.0 & ((1 << 48) - 1) | (self.key.len() as u64) << 48
    }
}

/// An entry's first four words.
#[derive(Clone, Copy)]
struct Entry {
    at: u32,
    words: [u64; 4],
}

impl Entry {
    #[inline]
    fn read(chunks: &Chunks, at: u32) -> Entry {
        Entry { at, words: std::array::from_fn(|no| chunks.word(at.wrapping_add(no as u32))) }
    }
    fn next(&self) -> u32 {
        self.words[0] as u32
    }
    fn newer(&self) -> u32 {
        (self.words[0] >> 32) as u32
    }
    fn older(&self) -> u32 {
        self.words[1] as u32
    }
    fn writer(&self) -> u32 {
        (self.words[1] >> 32) as u32
    }
    fn key_len(&self) -> usize {
        (self.words[2] >> 48) as usize
    }
    fn hash(&self) -> u32 {
        self.words[3] as u32
    }
    fn header(&self) -> u16 {
        (self.words[3] >> 32) as u16
    }
    fn value_len(&self) -> usize {
        (self.words[3] >> 48) as usize
    }
    fn set_links(&self, chunks: &Chunks, next: u32, newer: u32) {
        chunks.set(self.at, u64::from(newer) << 32 | u64::from(next));
    }
    fn set_older(&self, chunks: &Chunks, older: u32) {
        chunks.set(self.at + 1, u64::from(self.writer()) << 32 | u64::from(older));
    }

    /// True if this is an entry of that key.
    #[inline]
    fn is_of(&self, chunks: &Chunks, name: Name<'_>) -> bool {
        if self.words[2] != name.head() || self.hash() != name.hash as u32 {
            return false;
        }
        let mut at = self.at + ENTRY_WORDS - 1;
        name.key.chunks(8).all(|eight| {
            at = chunks.after(at);
            chunks.word(at) == word_of(eight)
        })
    }

    /// True if both are entries of one key; `other` stands in one chunk.
    fn is_alike(&self, chunks: &Chunks, other: &Entry) -> bool {
        if self.words[2] != other.words[2] || self.hash() != other.hash() {
            return false;
        }
        let mut at = self.at + ENTRY_WORDS - 1;
        (0..self.key_len().div_ceil(8) as u32).all(|no| {
            at = chunks.after(at);
            chunks.word(at) == chunks.word(other.at + ENTRY_WORDS + no)
        })
    }

    /// The last byte of the key; 0 of an empty one.
    fn last_byte(&self, chunks: &Chunks) -> u8 {
        let Some(last) = self.key_len().checked_sub(1) else { return 0 };
        let mut at = self.at + ENTRY_WORDS - 1;
        for _ in 0..=last / 8 {
            at = chunks.after(at);
        }
        chunks.word(at).to_le_bytes()[last % 8]
    }

    /// Copies the record out.
    fn copy_to(&self, chunks: &Chunks, image: &mut Image) {
        image.value.clear();
        image.header = (self.header() != NO_RECORD).then_some(self.header());
        let mut at = self.at + ENTRY_WORDS - 1;
        for _ in 0..self.key_len().div_ceil(8) {
            at = chunks.after(at);
        }
        for _ in 0..self.value_len().div_ceil(8) {
            at = chunks.after(at);
            image.value.extend_from_slice(&chunks.word(at).to_le_bytes());
        }
        image.value.truncate(self.value_len());
    }
}

#[inline]
fn word_of(bytes: &[u8]) -> u64 {
    if let Some(eight) = bytes.first_chunk() {
        return u64::from_le_bytes(*eight);
    }
    let mut eight = [0; 8];
    eight[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(eight)
}

/// Words that an entry takes.
pub(super) fn entry_words(key: &[u8], before: Before<'_>) -> u32 {
    let value = match before {
        Before::Absent => 0,
        Before::Record(_, value) => value.len(),
    };
    ENTRY_WORDS + (key.len().div_ceil(8) + value.div_ceil(8)) as u32
}

/// What is to be read of a key's versions.
#[derive(Clone, Copy)]
enum Wanted<'a> {
    /// The record as a snapshot sees it.
    State(At, u32),
    /// The LSN of the newest commit that has an image here.
    NewestCommit(&'a std::cell::Cell<u64>),
    /// Whether there is any image.
    Any,
}

impl VersionStore {
    #[inline]
    fn bucket(&self, name: Name<'_>) -> &Bucket {
        &self.buckets[name.hash as u32 as usize & (self.buckets.len() - 1)]
    }

    /// Looks for the state of `key` of `space` at a snapshot; `own` is the reader's own writer, 0 none. An image is copied to
    /// `image`. Counts if the page that was read before is unchanged afterwards (V3) and the floor is not above the snapshot.
    #[inline]
    pub(crate) fn look(&self, at: At, own: u32, space: PageId, key: &[u8], image: &mut Image) -> Look {
        let name = Name::new(space, key);
        if self.bucket(name).first.load(Acquire) == 0 {
            return Look::Page;
        }
        self.walk(name, Wanted::State(at, own), image)
    }

    /// The LSN of the newest commit whose image of `key` is still here; 0 if there is none. The key is locked, so that it does
    /// not change but for images that go.
    pub(crate) fn newest_commit(&self, space: PageId, key: &[u8]) -> Lsn {
        let newest = std::cell::Cell::new(0);
        self.walk(Name::new(space, key), Wanted::NewestCommit(&newest), &mut Image::default());
        Lsn(newest.get())
    }

    /// True if a snapshot may still ask for what `key` was. Counts under the exclusive latch of its page.
    #[must_use]
    pub fn has_images(&self, space: PageId, key: &[u8]) -> bool {
        if self.has_spilled() {
            return true; // L4
        }
        let name = Name::new(space, key);
        self.bucket(name).first.load(Acquire) != 0 && self.walk(name, Wanted::Any, &mut Image::default()) != Look::Page
    }

    /// Of which keys that are like `key` but for the last four bits of its last byte there are images: bit n stands for those
    /// four bits n. Counts as a look does. Nothing of a key whose bit is not set need be looked for.
    #[inline]
    #[must_use]
    pub fn images_near(&self, space: PageId, key: &[u8]) -> u16 {
        let name = Name::new(space, key);
        let bucket = self.bucket(name);
        if bucket.first.load(Acquire) == 0 { 0 } else { self.images_near_in(bucket, name) }
    }

    #[inline(never)]
    fn images_near_in(&self, bucket: &Bucket, name: Name<'_>) -> u16 {
        let chunks = &self.chunks;
        let Some(version) = bucket.optimistic() else { return u16::MAX };
        let mut near = 0;
        let mut at = bucket.first.load(Relaxed) as u32;
        for _ in 0..STEPS_MAX {
            if at == 0 {
                return if bucket.is_still(version) { near } else { u16::MAX };
            }
            let entry = Entry::read(chunks, at);
            if entry.words[2] == name.head() && entry.hash() == name.hash as u32 {
                near |= 1 << (entry.last_byte(chunks) & 15);
            }
            at = entry.next();
        }
        u16::MAX
    }

    /// One look at a bucket: under its version, after some tries under its latch (H1).
    #[inline(never)]
    fn walk(&self, name: Name<'_>, wanted: Wanted<'_>, image: &mut Image) -> Look {
        let bucket = self.bucket(name);
        for _ in 0..LOOKS_MAX {
            if let Some(version) = bucket.optimistic() {
                let found = self.walk_once(bucket, name, wanted, image, &|| bucket.is_still(version));
                if let Some(look) = found
                    && bucket.is_still(version)
                {
                    return look;
                }
            }
            sync::yield_point("version chain changed");
        }
        let latched = bucket.latch();
        let found = self.walk_once(bucket, name, wanted, image, &|| true);
        latched.unlatch_unchanged();
        found.unwrap_or(Look::Page)
    }

    /// `None`: the bucket changed.
    fn walk_once(
        &self,
        bucket: &Bucket,
        name: Name<'_>,
        wanted: Wanted<'_>,
        image: &mut Image,
        is_still: &dyn Fn() -> bool,
    ) -> Option<Look> {
        let chunks = &self.chunks;
        let mut steps = 0;
        let mut may_go_on = || {
            steps += 1;
            !u32::is_multiple_of(steps, STEPS_MAX) || is_still()
        };
        let mut at = bucket.first.load(Relaxed) as u32;
        let mut entry = loop {
            if at == 0 {
                return Some(Look::Page);
            }
            let entry = Entry::read(chunks, at);
            if entry.is_of(chunks, name) {
                break entry;
            }
            if !may_go_on() {
                return None;
            }
            at = entry.next();
        };
        let (snapshot, own) = match wanted {
            Wanted::Any => return Some(Look::Image),
            Wanted::NewestCommit(newest) => {
                // Nobody else's can be open, since the caller has the key locked.
                let status = chunks.status(entry.writer())?.load(SeqCst);
                newest.set(if status & STATE_BITS == COMMITTED { status >> 2 } else { 0 });
                return Some(Look::Image);
            }
            Wanted::State(snapshot, own) => (snapshot, own),
        };
        let mut oldest_unseen = None;
        image.until = Lsn(u64::MAX);
        loop {
            if entry.writer() == own && own != 0 {
                break;
            }
            let status = chunks.status(entry.writer())?.load(SeqCst); // V2
            if status & STATE_BITS == COMMITTED && status >> 2 < snapshot.lsn.0 {
                break;
            }
            if status & STATE_BITS == COMMITTING && !planted::is_on(Bug::CommitStampLate) {
                return Some(Look::Committing);
            }
            if status & STATE_BITS == COMMITTED {
                image.until = Lsn(status >> 2);
            }
            oldest_unseen = Some(entry);
            if entry.older() == 0 {
                break;
            }
            if !may_go_on() {
                return None;
            }
            entry = Entry::read(chunks, entry.older());
        }
        match oldest_unseen {
            None => Some(Look::Page),
            Some(entry) => {
                entry.copy_to(chunks, image);
                Some(Look::Image)
            }
        }
    }

    /// Puts an entry at the head of its key's chain, at an address with room for it (H3), unless `writer` has one there: then
    /// false. The caller holds the page's latch (V1).
    pub(super) fn push(&self, name: Name<'_>, before: Before<'_>, at: u32, writer: u32) -> bool {
        let bucket = self.bucket(name);
        let is_same = |entry: &Entry| entry.is_of(&self.chunks, name);
        self.hang(bucket, at, writer, is_same, |older| self.write_entry(name, before, at, writer, older))
    }

    /// The same with a staged entry, which is written already. Says where its writer's next one begins.
    pub(super) fn link(&self, at: u32, writer: u32) -> u32 {
        let entry = Entry::read(&self.chunks, at);
        if entry.writer() == 0 {
            let bucket = &self.buckets[entry.hash() as usize & (self.buckets.len() - 1)];
            let is_same = |other: &Entry| other.is_alike(&self.chunks, &entry);
            let name_writer = |older| self.chunks.set(at + 1, u64::from(writer) << 32 | u64::from(older));
            self.hang(bucket, at, writer, is_same, name_writer);
        }
        self.after_entry(&entry)
    }

    fn hang(
        &self,
        bucket: &Bucket,
        at: u32,
        writer: u32,
        is_same: impl Fn(&Entry) -> bool,
        write: impl FnOnce(u32),
    ) -> bool {
        let chunks = &self.chunks;
        let latched = bucket.latch();
        let (mut predecessor, mut same) = (0, 0);
        let mut look_at = bucket.first.load(Relaxed) as u32;
        while look_at != 0 {
            let entry = Entry::read(chunks, look_at);
            if is_same(&entry) {
                if entry.writer() == writer {
                    latched.unlatch_unchanged();
                    return false;
                }
                same = look_at;
                break;
            }
            predecessor = look_at;
            look_at = entry.next();
        }
        write(same);
        let next = if same == 0 {
            bucket.first.load(Relaxed) as u32
        } else {
            let old = Entry::read(chunks, same);
            let next = old.next();
            old.set_links(chunks, 0, at);
            next
        };
        chunks.set(at, u64::from(next));
        if same != 0 && predecessor != 0 {
            let before = Entry::read(chunks, predecessor);
            before.set_links(chunks, at, before.newer());
        } else {
            bucket.first.store(u64::from(at), Release); // For those who look at it alone.
        }
        latched.unlatch();
        true
    }

    /// Writes all of an entry but its first word.
    #[inline]
    pub(super) fn write_entry(&self, name: Name<'_>, before: Before<'_>, at: u32, writer: u32, older: u32) {
        let chunks = &self.chunks;
        let (header, value) = match before {
            Before::Absent => (NO_RECORD, &[][..]),
            Before::Record(header, value) => (header, value),
        };
        chunks.set(at + 1, u64::from(writer) << 32 | u64::from(older));
        chunks.set(at + 2, name.space.0 & ((1 << 48) - 1) | (name.key.len() as u64) << 48);
        let lens = u64::from(header) << 32 | (value.len() as u64) << 48;
        chunks.set(at + 3, u64::from(name.hash as u32) | lens);
        let bytes = name.key.chunks(8).chain(value.chunks(8));
        let words = (name.key.len().div_ceil(8) + value.len().div_ceil(8)) as u32;
        if let Some(room) = chunks.words_in_chunk(at + ENTRY_WORDS, words) {
            room.iter().zip(bytes).for_each(|(word, eight)| word.store(word_of(eight), Relaxed)); // As `Chunks::set`.
            return;
        }
        let mut to = at + ENTRY_WORDS - 1;
        for eight in bytes {
            to = chunks.after(to);
            chunks.set(to, word_of(eight));
        }
    }

    /// Takes an entry out of its chain; says where its writer's next one begins.
    pub(super) fn unlink(&self, at: u32) -> u32 {
        let chunks = &self.chunks;
        // Hash, lengths and writer stand still while the entry is its writer's.
        let fixed = Entry::read(chunks, at);
        if fixed.writer() == 0 {
            return self.after_entry(&fixed); // Z3
        }
        let bucket = &self.buckets[fixed.hash() as usize & (self.buckets.len() - 1)];
        let latched = bucket.latch();
        let entry = Entry::read(chunks, at);
        let (newer, older) = (entry.newer(), entry.older());
        if newer != 0 {
            Entry::read(chunks, newer).set_older(chunks, older);
            if older != 0 {
                let behind = Entry::read(chunks, older);
                behind.set_links(chunks, behind.next(), newer);
            }
        } else {
            let instead = if older != 0 { older } else { entry.next() };
            if older != 0 {
                Entry::read(chunks, older).set_links(chunks, entry.next(), 0);
            }
            let mut predecessor = bucket.first.load(Relaxed) as u32;
            if predecessor == at {
                bucket.first.store(u64::from(instead), Release); // For those who look at it alone.
            } else {
                loop {
                    let before = Entry::read(chunks, predecessor);
                    assert!(predecessor != 0, "an entry of the version store at {at} is in no chain");
                    if before.next() == at {
                        before.set_links(chunks, instead, before.newer());
                        break;
                    }
                    predecessor = before.next();
                }
            }
        }
        latched.unlatch();
        self.after_entry(&fixed)
    }

    /// Where the next entry of its writer begins.
    fn after_entry(&self, entry: &Entry) -> u32 {
        let words = ENTRY_WORDS + (entry.key_len().div_ceil(8) + entry.value_len().div_ceil(8)) as u32;
        self.entry_place(self.chunks.after(self.chunks.end_of(entry.at, words)))
    }

    /// Where an entry begins that may begin at `at` (H3).
    pub(super) fn entry_place(&self, at: u32) -> u32 {
        let left = CHUNK_WORDS - at % CHUNK_WORDS;
        if left >= ENTRY_WORDS { at } else { self.chunks.first_word(self.chunks.next(at / CHUNK_WORDS)) }
    }
}
