//! An image as it stands in memory: with its writer while that is open (`chunk.rs`), among those of commits afterwards
//! (`kept.rs`).
//!
//! ```text
//! word of an entry   of an open writer                         of a commit
//!    0               next entry of the bucket; 0 none          position of the next one, an older one, of the bucket; 0 none
//!    1               writer, upper half: its first chunk       the commit's LSN
//!    2               space, 48 bits: the root page; then length of the key in bytes, 16 bits
//!    3               hash, 32 bits; header of the record, 16 bits (all ones: there was none); length of the value, 16 bits
//!    4               key, then value, each from a word of its own on
//! ```
//! N1. Readers look without a latch: what they read counts after their check, and reading never leaves the memory.
//! N2. The first four words of an entry stand side by side.

use ledgerstone_page::PageId;
use xxhash_rust::xxh3::xxh3_64;

/// Words of an entry before its key.
pub(super) const ENTRY_WORDS: u32 = 4;
pub(super) const NO_RECORD: u16 = u16::MAX;

/// What a record was before a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Before<'a> {
    /// There was none.
    Absent,
    /// The header, as its structure understands it (not all ones), and the value.
    Record(u16, &'a [u8]),
}

/// A record as it was, copied out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Image {
    /// Its header. `None` means that there was no record.
    pub header: Option<u16>,
    /// Its value.
    pub value: Vec<u8>,
    /// The commit of the transaction that changed the record then. `Lsn(u64::MAX)` means that it has not committed.
    pub until: ledgerstone_page::Lsn,
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
        // H3 in `chain.rs`. Spread: tables of one shape hold the same keys.
        Name { space, key, hash: xxh3_64(stem) ^ spread(u64::from(last >> 4)) ^ spread(space.0).rotate_left(32) }
    }

    /// What an entry of it has in its third word.
    #[inline]
    pub(super) fn head(&self) -> u64 {
        self.space.0 & ((1 << 48) - 1) | (self.key.len() as u64) << 48
    }
}

/// Where entries stand.
pub(super) trait Memory {
    /// Where a word is.
    type At: Copy;
    /// A word (N1).
    fn word(&self, at: Self::At) -> u64;
    /// The word so many after one of the same entry's first four (N2).
    fn beside(&self, at: Self::At, words: u32) -> Self::At;
    /// The next word of the same entry.
    fn after(&self, at: Self::At) -> Self::At;
}

/// An entry's first four words.
pub(super) struct Entry<'m, M: Memory> {
    memory: &'m M,
    pub(super) at: M::At,
    words: [u64; 4],
}

impl<M: Memory> Clone for Entry<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: Memory> Copy for Entry<'_, M> {}

impl<'m, M: Memory> Entry<'m, M> {
    #[inline]
    pub(super) fn read(memory: &'m M, at: M::At) -> Self {
        Entry { memory, at, words: std::array::from_fn(|no| memory.word(memory.beside(at, no as u32))) }
    }
    /// The first word.
    #[inline]
    pub(super) fn link(&self) -> u64 {
        self.words[0]
    }
    /// The second word.
    #[inline]
    pub(super) fn owner(&self) -> u64 {
        self.words[1]
    }
    /// The third and the fourth, which say what record it is.
    pub(super) fn identity(&self) -> [u64; 2] {
        [self.words[2], self.words[3]]
    }
    fn key_len(&self) -> usize {
        (self.words[2] >> 48) as usize
    }
    #[inline]
    pub(super) fn hash(&self) -> u32 {
        self.words[3] as u32
    }
    fn header(&self) -> u16 {
        (self.words[3] >> 32) as u16
    }
    fn value_len(&self) -> usize {
        (self.words[3] >> 48) as usize
    }
    /// Words of all of it.
    pub(super) fn words(&self) -> u32 {
        ENTRY_WORDS + self.body_words()
    }
    fn body_words(&self) -> u32 {
        (self.key_len().div_ceil(8) + self.value_len().div_ceil(8)) as u32
    }

    /// The words of key and value.
    pub(super) fn body(&self) -> impl Iterator<Item = u64> {
        let mut at = self.memory.beside(self.at, ENTRY_WORDS - 1);
        (0..self.body_words()).map(move |_| {
            at = self.memory.after(at);
            self.memory.word(at)
        })
    }

    /// True if this is an entry of that key.
    #[inline]
    pub(super) fn is_of(&self, name: Name<'_>) -> bool {
        self.is_near(name) && name.key.chunks(8).zip(self.body()).all(|(eight, word)| word == word_of(eight))
    }

    /// True if this is an entry of a key with that one's hash and length: near it (H3 in `chain.rs`), or the same.
    #[inline]
    pub(super) fn is_near(&self, name: Name<'_>) -> bool {
        self.words[2] == name.head() && self.hash() == name.hash as u32
    }

    /// True if both are entries of one key.
    pub(super) fn is_alike(&self, other: &Self) -> bool {
        let key_words = self.key_len().div_ceil(8);
        self.words[2] == other.words[2]
            && self.hash() == other.hash()
            && self.body().zip(other.body()).take(key_words).all(|(a, b)| a == b)
    }

    /// The last byte of the key; 0 of an empty one.
    #[inline]
    pub(super) fn last_byte(&self) -> u8 {
        let Some(last) = self.key_len().checked_sub(1) else { return 0 };
        self.body().nth(last / 8).unwrap_or(0).to_le_bytes()[last % 8]
    }

    /// Copies the record out.
    pub(super) fn copy_to(&self, image: &mut Image) {
        image.value.clear();
        image.header = (self.header() != NO_RECORD).then_some(self.header());
        self.body()
            .skip(self.key_len().div_ceil(8))
            .for_each(|word| image.value.extend_from_slice(&word.to_le_bytes()));
        image.value.truncate(self.value_len());
    }
}

#[inline]
pub(super) fn word_of(bytes: &[u8]) -> u64 {
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
