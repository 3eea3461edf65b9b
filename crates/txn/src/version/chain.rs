//! Chains: before-images by key, behind a hash table.
//!
//! ```text
//! bucket ─┬─ open ──► entry ──next──► entry ──► …      images of open writers, the newest first (in `chunk.rs`)
//!         └─ kept ──► entry ──older─► entry ──► …      images of commits, the newest first (in `kept.rs`)
//! ```
//! H1. Both change under the bucket's latch (`bucket.rs`). Readers read under its version, and if that fails too often,
//!     under the latch.
//! H2. The image of an open writer of a key is newer than all images of commits. Those stand in the order in which
//!     their writers changed the key. A writer has the key locked until its images have gone from the one list to the
//!     other.
//! H3. Keys that differ only in the last four bits of their last byte have one hash, and so one bucket. As a rule they
//!     are neighbours on a leaf, so a reader of a whole leaf looks at a few buckets ([`VersionStore::images_near`]).
//! H4. A reader looks at no commit that was kept before its snapshot was taken (K3 in `kept.rs`).

use std::convert::Infallible;

use ledgerstone_region::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use ledgerstone_region::atomic::{AtomicU64, fence};

use ledgerstone_page::planted::{self, Bug};
use ledgerstone_page::{Lsn, PageId};
use ledgerstone_region::{SlotNo, sync};

use super::VersionStore;
use super::bucket::{Bucket, Latched};
use super::chunk::{CHUNK_WORDS, Chunks};
use super::entry::{Before, ENTRY_WORDS, Entry, Image, NO_RECORD, Name, word_of};
use super::kept::Kept;
use super::view::At;
use super::writer::{COMMITTED, COMMITTING, STATE_BITS, Times};

/// Looks without a latch before one is taken.
const LOOKS_MAX: u32 = 16;
/// Entries passed between two checks of a walk without a latch, which might go in a ring.
const STEPS_MAX: u32 = 64;

/// What a look at a chain came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// The page's record is what the reader sees.
    Page,
    /// The image is.
    Image,
    /// A writer is committing: look again, at the page too
    /// ([`Engine::pause_for_commit`](crate::Engine::pause_for_commit)).
    Committing,
}

/// An entry that is met in a chain.
#[derive(Clone, Copy)]
enum Met<'m> {
    Open(Entry<'m, Chunks>),
    Kept(Entry<'m, Kept>),
}

/// Whether a walk goes on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Walk {
    On,
    End,
}

/// The writer of an open entry.
#[inline]
pub(super) fn writer_of(entry: &Entry<'_, Chunks>) -> u32 {
    (entry.owner() >> 32) as u32
}

impl VersionStore {
    #[inline]
    pub(super) fn bucket(&self, hash: u32) -> &Bucket {
        &self.buckets[hash as usize & (self.buckets.len() - 1)]
    }

    /// Looks for the state of `key` of `space` at a snapshot; `own` is the reader's own writer, 0 none. An image is
    /// copied to `image`. Counts if the page that was read before is unchanged afterwards (V3) and the floor is not
    /// above the snapshot.
    #[inline]
    pub(crate) fn look(&self, at: At, own: u32, space: PageId, key: &[u8], image: &mut Image) -> Look {
        let name = Name::new(space, key);
        let bucket = self.bucket(name.hash as u32);
        if bucket.is_empty_from(at.position) {
            return Look::Page;
        }
        self.under_version(bucket, |is_still| self.state_in(bucket, at, own, name, image, is_still))
            .unwrap_or(Look::Page)
    }

    /// Says that an image of `key` will soon be noted, so that what it takes is on its way by then. Nothing if no
    /// snapshot was open lately.
    #[inline]
    pub fn expect_note(&self, space: PageId, key: &[u8]) {
        if self.state.slots_used.load(Relaxed) != 0 {
            ledgerstone_region::prefetch_to_write(self.bucket(Name::new(space, key).hash as u32));
        }
    }

    /// The LSN of the newest commit that the snapshot does not see and whose image of `key` is still here; 0 if there
    /// is none. The key is locked, so that it does not change but for images that go.
    pub(crate) fn newest_commit(&self, at: At, space: PageId, key: &[u8]) -> Lsn {
        let name = Name::new(space, key);
        let bucket = self.bucket(name.hash as u32);
        self.under_version(bucket, |is_still| {
            let mut newest = 0;
            self.walk(bucket, at.position, is_still, |met| {
                match met {
                    Met::Open(entry) if entry.is_of(name) => {
                        // Nobody else's can be open, since the caller has the key locked.
                        let status = self.chunks.status(writer_of(&entry)).map_or(0, |status| status.load(SeqCst));
                        newest = if status & STATE_BITS == COMMITTED { status >> 2 } else { 0 };
                    }
                    Met::Kept(entry) if entry.is_of(name) => newest = entry.owner(),
                    _ => return Walk::On,
                }
                Walk::End
            })?;
            Some(Lsn(newest))
        })
        .unwrap_or(Lsn(0))
    }

    /// True if a snapshot may still ask for what `key` was. Counts under the exclusive latch of its page.
    #[must_use]
    pub fn has_images(&self, space: PageId, key: &[u8]) -> bool {
        if self.has_spilled_in(space) {
            return true; // L4
        }
        let name = Name::new(space, key);
        let bucket = self.bucket(name.hash as u32);
        let low = self.oldest_position();
        if bucket.is_empty_from(low) {
            return false;
        }
        self.under_version(bucket, |is_still| {
            let mut is_found = false;
            self.walk(bucket, low, is_still, |met| {
                is_found = match met {
                    Met::Open(entry) => entry.is_of(name),
                    Met::Kept(entry) => entry.is_of(name),
                };
                if is_found { Walk::End } else { Walk::On }
            })?;
            Some(is_found)
        })
        .unwrap_or(true)
    }

    /// Of which keys that are like `key` but for the last four bits of its last byte there are images: bit n stands for
    /// those four bits n. Counts as a look does. Nothing of a key whose bit is not set need be looked for.
    #[inline]
    #[must_use]
    pub fn images_near(&self, at: At, space: PageId, key: &[u8]) -> u16 {
        let name = Name::new(space, key);
        let bucket = self.bucket(name.hash as u32);
        if bucket.is_empty_from(at.position) { 0 } else { self.images_near_in(bucket, at, name) }
    }

    #[inline(never)]
    fn images_near_in(&self, bucket: &Bucket, at: At, name: Name<'_>) -> u16 {
        self.under_version(bucket, |is_still| {
            let mut near = 0;
            self.walk(bucket, at.position, is_still, |met| {
                let last = match met {
                    Met::Open(entry) => entry.is_near(name).then(|| entry.last_byte()),
                    Met::Kept(entry) => entry.is_near(name).then(|| entry.last_byte()),
                };
                near |= last.map_or(0, |last| 1 << (last & 15));
                Walk::On
            })?;
            Some(near)
        })
        .unwrap_or(u16::MAX)
    }

    /// A look at a bucket that counts: under its version, after some tries under its latch (H1). The look answers
    /// `None` if it found out by itself that the bucket has changed.
    fn under_version<T>(&self, bucket: &Bucket, mut look: impl FnMut(&dyn Fn() -> bool) -> Option<T>) -> Option<T> {
        for _ in 0..LOOKS_MAX {
            if let Some(version) = bucket.optimistic() {
                let found = look(&|| bucket.is_still(version));
                if found.is_some() && bucket.is_still(version) {
                    return found;
                }
            }
            sync::yield_point("version chain changed");
        }
        let latched = bucket.latch(self.threads.current());
        let found = look(&|| true);
        fence(Acquire); // T2 of `tail.rs`, as in `is_still`.
        latched.unlatch_unchanged();
        found
    }

    /// Passes the entries of a bucket, of open writers and then of commits, the newest first of each, down to position
    /// `low`. `None`: the bucket changed.
    #[inline]
    fn walk<'s>(
        &'s self,
        bucket: &Bucket,
        low: u64,
        is_still: &dyn Fn() -> bool,
        mut meet: impl FnMut(Met<'s>) -> Walk,
    ) -> Option<()> {
        let mut steps = 0;
        let mut may_go_on = || {
            steps += 1;
            !u32::is_multiple_of(steps, STEPS_MAX) || is_still()
        };
        let (mut at, mut position) = (bucket.open.load(Relaxed) as u32, bucket.kept.load(Relaxed));
        while at != 0 {
            let entry = Entry::read(&self.chunks, at);
            if meet(Met::Open(entry)) == Walk::End {
                return Some(());
            }
            at = entry.link() as u32;
            may_go_on().then_some(())?;
        }
        while position >= low.max(1) {
            self.kept.prefetch_rest(position);
            let entry = Entry::read(&self.kept, position);
            if !self.is_kept(position) {
                return Some(()); // K2: what a snapshot needed of it and of all older ones raised the floor.
            }
            if meet(Met::Kept(entry)) == Walk::End {
                return Some(());
            }
            position = entry.link();
            may_go_on().then_some(())?;
        }
        Some(())
    }

    /// One look for a record's state. `None`: the bucket changed.
    #[inline(never)]
    fn state_in(
        &self,
        bucket: &Bucket,
        at: At,
        own: u32,
        name: Name<'_>,
        image: &mut Image,
        is_still: &dyn Fn() -> bool,
    ) -> Option<Look> {
        let mut oldest_unseen = None;
        let (mut is_committing, mut is_junk) = (false, false);
        image.until = Lsn(u64::MAX);
        self.walk(bucket, at.position, is_still, |met| {
            let commit = match met {
                Met::Open(entry) if entry.is_of(name) => {
                    if writer_of(&entry) == own && own != 0 {
                        return Walk::End;
                    }
                    let Some(status) = self.chunks.status(writer_of(&entry)) else {
                        is_junk = true;
                        return Walk::End;
                    };
                    let status = status.load(SeqCst); // V2
                    if status & STATE_BITS == COMMITTING && !planted::is_on(Bug::CommitStampLate) {
                        is_committing = true;
                        return Walk::End;
                    }
                    (status & STATE_BITS == COMMITTED).then_some(status >> 2)
                }
                Met::Kept(entry) if entry.is_of(name) => Some(entry.owner()),
                _ => return Walk::On,
            };
            if commit.is_some_and(|lsn| lsn < at.lsn.0) {
                return Walk::End;
            }
            if let Some(lsn) = commit {
                image.until = Lsn(lsn);
            }
            oldest_unseen = Some(met);
            Walk::On
        })?;
        if is_junk {
            return None;
        }
        if is_committing {
            return Some(Look::Committing);
        }
        match oldest_unseen {
            None => return Some(Look::Page),
            Some(Met::Open(entry)) => entry.copy_to(image),
            Some(Met::Kept(entry)) => entry.copy_to(image),
        }
        Some(Look::Image)
    }

    /// Puts an entry at the head of its bucket's open ones, at an address with room for it (N2), unless `writer` has
    /// one of its key there: then false. The caller holds the page's latch (V1). Nothing is looked for at the first
    /// time: neighbours that come in order are all in one bucket (H3).
    pub(super) fn push(&self, name: Name<'_>, before: Before<'_>, at: u32, writer: u32, times: Times) -> bool {
        let write = |next| self.write_entry(name, before, at, writer, next);
        if times == Times::First {
            let bucket = self.bucket(name.hash as u32);
            let latched = bucket.latch(self.threads.current());
            write(bucket.open.load(Relaxed) as u32);
            bucket.open.store(u64::from(at), Release);
            latched.unlatch();
            return true;
        }
        let bucket = self.bucket(name.hash as u32);
        let latched = bucket.latch(self.threads.current());
        self.hang(bucket, latched, at, writer, |entry: &Entry<'_, Chunks>| entry.is_of(name), write)
    }

    /// The same with a staged entry, which is written already. Says where its writer's next one begins.
    pub(super) fn link(&self, at: u32, writer: u32, me: SlotNo) -> u32 {
        match self.link_under(at, writer, |bucket| Ok::<_, Infallible>(bucket.latch(me))) {
            Ok(next) => next,
            Err(never) => match never {},
        }
    }

    /// The same for whoever latches in a way of its own.
    pub(super) fn link_under<'s, E>(
        &'s self,
        at: u32,
        writer: u32,
        latch: impl FnOnce(&'s Bucket) -> Result<Latched<'s>, E>,
    ) -> Result<u32, E> {
        let entry = Entry::read(&self.chunks, at);
        if writer_of(&entry) == 0 {
            let bucket = self.bucket(entry.hash());
            let is_same = |other: &Entry<'_, Chunks>| other.is_alike(&entry);
            self.hang(bucket, latch(bucket)?, at, writer, is_same, |next| {
                self.chunks.set(at, u64::from(next));
                self.chunks.set(at + 1, u64::from(writer) << 32);
            });
        }
        Ok(self.after_entry(&entry))
    }

    fn hang(
        &self,
        bucket: &Bucket,
        latched: Latched<'_>,
        at: u32,
        writer: u32,
        is_same: impl Fn(&Entry<'_, Chunks>) -> bool,
        write: impl FnOnce(u32),
    ) -> bool {
        let first = bucket.open.load(Relaxed) as u32;
        let mut look_at = first;
        while look_at != 0 {
            let entry = Entry::read(&self.chunks, look_at);
            if writer_of(&entry) == writer && is_same(&entry) {
                latched.unlatch_unchanged();
                return false;
            }
            look_at = entry.link() as u32;
        }
        write(first);
        bucket.open.store(u64::from(at), Release);
        latched.unlatch();
        true
    }

    /// Writes an entry.
    #[inline]
    pub(super) fn write_entry(&self, name: Name<'_>, before: Before<'_>, at: u32, writer: u32, next: u32) {
        let chunks = &self.chunks;
        let (header, value) = match before {
            Before::Absent => (NO_RECORD, &[][..]),
            Before::Record(header, value) => (header, value),
        };
        chunks.set(at, u64::from(next));
        chunks.set(at + 1, u64::from(writer) << 32);
        chunks.set(at + 2, name.head());
        let lens = u64::from(header) << 32 | (value.len() as u64) << 48;
        chunks.set(at + 3, u64::from(name.hash as u32) | lens);
        let key_words = name.key.len().div_ceil(8);
        let words = key_words + value.len().div_ceil(8);
        if let Some((key_room, value_room)) =
            chunks.words_in_chunk(at + ENTRY_WORDS, words as u32).and_then(|room| room.split_at_checked(key_words))
        {
            put_words(key_room, name.key);
            put_words(value_room, value);
            return;
        }
        let mut to = at + ENTRY_WORDS - 1;
        for eight in name.key.chunks(8).chain(value.chunks(8)) {
            to = chunks.after(to);
            chunks.set(to, word_of(eight));
        }
    }

    /// Takes an open entry out of its bucket; with the LSN of its writer's commit it is kept there. Says where its
    /// writer's next one begins.
    pub(super) fn unlink(&self, at: u32, keep: Option<Lsn>, me: SlotNo) -> u32 {
        let entry = Entry::read(&self.chunks, at);
        if writer_of(&entry) == 0 {
            return self.after_entry(&entry); // Z3
        }
        let position = keep.and_then(|lsn| self.make_place(&entry, lsn));
        let bucket = self.bucket(entry.hash());
        let latched = bucket.latch(me);
        if let (Some(lsn), Some(position)) = (keep, position) {
            self.write_kept(position, bucket.kept.load(Relaxed), lsn, &entry);
            bucket.kept.store(position, Release);
        }
        let instead = Entry::read(&self.chunks, at).link();
        let first = bucket.open.load(Relaxed) as u32;
        if first == at {
            bucket.open.store(instead, Release);
        } else {
            let mut predecessor = first;
            loop {
                assert!(predecessor != 0, "an entry of the version store at {at} is in no chain");
                let next = Entry::read(&self.chunks, predecessor).link();
                if next as u32 == at {
                    self.chunks.set(predecessor, instead);
                    break;
                }
                predecessor = next as u32;
            }
        }
        latched.unlatch();
        self.after_entry(&entry)
    }

    /// Where the next entry of its writer begins.
    pub(super) fn after_entry(&self, entry: &Entry<'_, Chunks>) -> u32 {
        self.entry_place(self.chunks.after(self.chunks.end_of(entry.at, entry.words())))
    }

    /// Where an entry begins that may begin at `at` (N2).
    pub(super) fn entry_place(&self, at: u32) -> u32 {
        let left = CHUNK_WORDS - at % CHUNK_WORDS;
        if left >= ENTRY_WORDS { at } else { self.chunks.first_word(self.chunks.next(at / CHUNK_WORDS)) }
    }
}

/// Stores bytes as words, of which there is room for all, with zeros behind the last byte. As [`Chunks::set`] does.
#[inline]
fn put_words(room: &[AtomicU64], bytes: &[u8]) {
    let (whole, rest) = bytes.as_chunks::<8>();
    for (word, eight) in room.iter().zip(whole) {
        word.store(u64::from_le_bytes(*eight), Relaxed);
    }
    if !rest.is_empty()
        && let Some(word) = room.get(whole.len())
    {
        word.store(word_of(rest), Relaxed);
    }
}
