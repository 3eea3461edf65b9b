//! The log buffer: a ring of words, into which records are copied in place and out of which the leader writes.
//!
//! ```text
//!      zero_begun - ring      durable          tail            zeroed_limit = durable + ring / 2
//!  ───────┼────────────────────┼────────────────┼───────────────────┼──────────
//!         │ history, readable  │ reserved:      │ zero              │ older history
//!         │                    │ published or 0 │                   │
//! ```
//! B1. A word of the ring belongs to the LSN that equals its index modulo the ring's size. Every word from the tail to
//!     `zeroed_limit` is zero.
//! B2. A record is published by the store of its first word (release), after all others. So a thread that walks from
//!     `durable` by the lengths in first words (acquire), and stops at a zero, sees whole records only ([`walk`]).
//! B3. Words below `durable` are never written until zeroing passes them. So the leader may take the bytes of a block
//!     that was written in part from here again, and they are the same.
//! B4. Zeroing announces how far it will go before it stores the first zero (`fence(Release)`). So does an appender
//!     before its first word. A reader of history copies, passes `fence(Acquire)`, then looks at the announcement. It
//!     can have read something newer only if it sees that announcement. Proved by a model (`loom_log.rs`), which misses
//!     either fence.
//!
//! These are functions over slices of words, so that they can be model-checked. They know no claims and no disk.

#[cfg(not(all(feature = "planted-unfenced-append", feature = "planted-unfenced-zeroing")))]
use ledgerstone_region::atomic::fence;
use ledgerstone_region::atomic::{AtomicU64, Ordering};

use ledgerstone_region::CrcWords;

use crate::record::{Crc, Encoded, length_of};
use crate::seal::Seal;

#[inline]
fn word_at(ring: &[AtomicU64], lsn: u64) -> &AtomicU64 {
    &ring[(lsn / 8) as usize & (ring.len() - 1)]
}

/// Writes all of a record but its first word at `lsn`, which was reserved for it. The caller then publishes it, with
/// the checksum that this returns.
#[inline]
pub(crate) fn copy_in(ring: &[AtomicU64], lsn: u64, record: &Encoded<'_>, crc: Crc) -> u32 {
    #[cfg(not(feature = "planted-unfenced-append"))]
    fence(Ordering::Release); // B4
    let start = (lsn / 8) as usize & (ring.len() - 1);
    let places = if record.is_in_words { ring.get(start..start + record.bytes / 8) } else { None };
    match (crc, places) {
        (Crc::WhileCopied(crc), Some(places)) => {
            let mut register = crc.half(CrcWords::START, (record.head()[0] >> 32) as u32);
            copy_words(places, record, |word| register = crc.word(register, word));
            !(register as u32)
        }
        (Crc::WhileCopied(_), None) => copy_pieces(ring, lsn, record, record.crc_of_pieces()), // Over the ring's end.
        (Crc::Known(crc), Some(places)) => {
            copy_words(places, record, |_| {});
            crc
        }
        (Crc::Known(crc), None) => copy_pieces(ring, lsn, record, crc),
    }
}

/// Copies a record in whole words, all but the first, and shows each to `each`.
#[inline]
fn copy_words(places: &[AtomicU64], record: &Encoded<'_>, mut each: impl FnMut(u64)) {
    let mut copy = |place: &AtomicU64, word: u64| {
        each(word);
        place.store(word, Ordering::Relaxed); // Published by the first word (B2).
    };
    let (head_places, mut places) = places.split_at(record.head().len());
    head_places.iter().zip(record.head()).skip(1).for_each(|(place, word)| copy(place, *word));
    for piece in record.body {
        let (words, rest) = piece.as_chunks::<8>();
        let (word_places, behind) = places.split_at(words.len());
        word_places.iter().zip(words).for_each(|(place, word)| copy(place, u64::from_le_bytes(*word)));
        places = behind;
        // Of the last piece only.
        if !rest.is_empty()
            && let [place, ..] = places
        {
            copy(place, rest.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)));
        }
    }
}

#[inline(never)]
fn copy_pieces(ring: &[AtomicU64], lsn: u64, record: &Encoded<'_>, crc: u32) -> u32 {
    let mut to = Writer { ring, lsn: lsn + 8, word: 0, filled_bits: 0 };
    record.head().iter().skip(1).for_each(|word| to.store(*word));
    record.body.iter().for_each(|piece| to.put(piece));
    to.finish();
    crc
}

/// Publishes the record at `lsn` (B2).
#[inline]
pub(crate) fn publish(ring: &[AtomicU64], lsn: u64, record: &Encoded<'_>, seal: &Seal, crc: u32) {
    word_at(ring, lsn).store(record.first_word(lsn, seal, crc), Ordering::Release); // Pairs with the load in `walk`.
}

/// Puts bytes of any length one after the other into the ring.
struct Writer<'r> {
    ring: &'r [AtomicU64],
    lsn: u64,
    word: u64,
    filled_bits: u32,
}

impl Writer<'_> {
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        if self.filled_bits == 0 {
            for word in words {
                self.store(u64::from_le_bytes(*word));
            }
        } else {
            for word in words {
                let word = u64::from_le_bytes(*word);
                self.store(self.word | word << self.filled_bits);
                self.word = word >> (64 - self.filled_bits);
            }
        }
        for byte in rest {
            self.word |= u64::from(*byte) << self.filled_bits;
            self.filled_bits += 8;
            if self.filled_bits == 64 {
                self.store(self.word);
                (self.word, self.filled_bits) = (0, 0);
            }
        }
    }

    #[inline]
    fn finish(self) {
        if self.filled_bits > 0 {
            word_at(self.ring, self.lsn).store(self.word, Ordering::Relaxed);
        }
    }

    #[inline]
    fn store(&mut self, word: u64) {
        word_at(self.ring, self.lsn).store(word, Ordering::Relaxed);
        self.lsn += 8;
    }
}

/// The records published without a hole from `from`, as far as `limit` (a tail seen) and `bytes_max`: where they end,
/// and how many they are.
pub(crate) fn walk(ring: &[AtomicU64], from: u64, limit: u64, bytes_max: u64) -> (u64, u64) {
    let (mut at, mut count) = (from, 0);
    while at < limit && at - from < bytes_max {
        let first = word_at(ring, at).load(Ordering::Acquire); // Pairs with the store in `publish`.
        if first == 0 {
            break;
        }
        at += length_of(first).max(8); // Of no record, but a walk ends.
        count += 1;
    }
    (at, count)
}

/// The first word of the record at `lsn`; 0 if it is not published.
pub(crate) fn first_word(ring: &[AtomicU64], lsn: u64) -> u64 {
    word_at(ring, lsn).load(Ordering::Acquire)
}

/// Where the words end that are zero from `lsn` on, or `limit`.
pub(crate) fn zeroes(ring: &[AtomicU64], lsn: u64, limit: u64) -> u64 {
    let is_zero = |at: &u64| word_at(ring, *at).load(Ordering::Acquire) == 0; // Pairs with the store in `publish`.
    (lsn..limit).step_by(8).find(|at| !is_zero(at)).unwrap_or(limit)
}

/// Copies the words from `lsn` on. `lsn` and the length are multiples of 8.
pub(crate) fn copy_out(ring: &[AtomicU64], lsn: u64, to: &mut [u8]) {
    let start = (lsn / 8) as usize & (ring.len() - 1);
    let (words, rest) = to.as_chunks_mut::<8>();
    assert!(rest.is_empty() && words.len() <= ring.len(), "{} words from a ring of {}", words.len(), ring.len());
    let unwrapped = words.len().min(ring.len() - start);
    let (head, wrapped) = words.split_at_mut(unwrapped);
    let copy = |words: &mut [[u8; 8]], from: &[AtomicU64]| {
        for (word, from) in words.iter_mut().zip(from) {
            *word = from.load(Ordering::Relaxed).to_le_bytes(); // Ordered by the walk, or checked afterwards (B4).
        }
    };
    copy(head, &ring[start..]);
    copy(wrapped, ring);
}

/// Stores bytes that are there already, before anybody else looks: the partial block at the end of the log.
pub(crate) fn preload(ring: &[AtomicU64], lsn: u64, bytes: &[u8]) {
    let mut to = Writer { ring, lsn, word: 0, filled_bits: 0 };
    to.put(bytes);
    to.finish();
}

/// Zeroes the words of `from..to`, which the caller has announced (B4).
pub(crate) fn zero(ring: &[AtomicU64], from: u64, to: u64) {
    #[cfg(not(feature = "planted-unfenced-zeroing"))]
    fence(Ordering::Release); // Pairs with the fence(Acquire) of readers of history.
    let mut at = from;
    while at < to {
        word_at(ring, at).store(0, Ordering::Relaxed); // Published by the release store of `zeroed_limit`.
        at += 8;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use ledgerstone_page::{Lsn, OpId, PageId, Xid};
    use ledgerstone_region::Random;

    use super::*;
    use crate::record::{NewRecord, RecordKind};

    /// With the checksum while it is copied and before, also over the end of the ring.
    #[test]
    fn what_is_copied_in_is_the_record_encoded() {
        let seal = Seal::new([3; 16], 5);
        let ring: Vec<AtomicU64> = (0..256).map(|_| AtomicU64::new(0)).collect();
        let mut random = Random::new(1);
        let mut lsn = 4096;
        for bytes in (0..700).chain([1000, 1700]) {
            let whole: Vec<u8> = (0..bytes).map(|_| random.number() as u8).collect();
            // Every other one in whole words.
            let at = random.below(bytes + 1) / if bytes % 2 == 0 { 8 } else { 1 } * if bytes % 2 == 0 { 8 } else { 1 };
            let (one, rest) = whole.split_at(at as usize);
            let rest_one = if bytes % 2 == 0 { 0 } else { rest.len() as u64 };
            let (two, three) = rest.split_at(random.below(rest_one + 1) as usize);
            let body = [one, two, three];
            let record = NewRecord {
                kind: RecordKind::Update,
                xid: Xid(7),
                prev_lsn: Lsn(4096),
                op: OpId(33),
                flags: 1,
                page: Some((PageId(9), Lsn(4104))),
                body: &body,
            };
            let encoded = Encoded::new(&record);
            let crc = copy_in(&ring, lsn, &encoded, encoded.crc());
            publish(&ring, lsn, &encoded, &seal, crc);
            let expected = record.encode(Lsn(lsn), &seal);
            let mut found = vec![0; expected.len()];
            copy_out(&ring, lsn, &mut found);
            assert_eq!(found, expected, "{bytes} bytes at {lsn}");
            lsn += expected.len() as u64;
        }
    }
}
