//! Node of the B-link tree: layout 5, read.
//!
//! ```text
//! offset  size  field
//!      0    40  page header, see `ledgerstone-page`; kind = level, 0 a leaf; owner = root of the tree
//!     40     8  link            right sibling of the same level; 0 = none
//!     48     2  slot_count
//!     50     2  records_start   lowest byte that a record uses; the page size if there is none
//!     52     2  garbage_bytes   bytes from records_start on that no record uses
//!     54     2  ghost_count     records that are deleted but still keys
//!     56     2  low_len         low fence: keys here are >= it; empty = no bound
//!     58     2  high_len        high fence: keys here are < it; 0 = no bound
//!     60     2  prefix_len      bytes that all keys here begin with; bit 15: they lie after the fences, else they
//!                               are the beginning of the low fence
//!     62     2  slots_at        64 + low_len + high_len + (own prefix), rounded up to 8
//!     64     .  low fence, high fence, own prefix
//! slots_at 8*n  slots           { head u32, offset u16, key_len u16 }, in key order
//!      :        free space
//!      :        records         { value_len 13 bits | padded 1 | blob 1 | ghost 1, key without prefix, value, pad },
//!                               growing down
//! ```
//! N1. 64 <= slots_at; slots_at + 8 * slot_count <= records_start <= page size <= 32768.
//! N2. Records lie in records_start..page size and never overlap; their sizes and garbage_bytes together are page
//!     size - records_start.
//! N3. Keys rise strictly from slot to slot and lie in low..high. `head` is the first four bytes of the key after the
//!     prefix, big-endian, filled up with zeros, so that heads order as keys do.
//! N4. A node above the leaves holds children: values are six bytes, a page id. Its slot 0 stands for the low fence;
//!     its own key is empty and not looked at, so that the prefix is what the other keys share.
//! N5. Ghosts and blobs exist in leaves only; ghost_count counts the ghosts; a blob's value is a reference of 16 bytes.
//! N6. A record never becomes shorter while its transaction may still want the old value back. The bytes that a
//!     shorter value leaves over are its pad. The pad begins with its own length: one byte below 128, otherwise two, 7
//!     low bits with the top bit set, then the rest. So no rollback needs space. Pads exist in leaves only and go when
//!     nobody holds the key (`ghost.rs`).
//! N7. There is a link exactly if there is a high fence: the rightmost node of a level has neither.
//!
//! [`check`](super::node_check::check) proves them. Everything here works on any bytes at all: counts and offsets are
//! cut to what the page has, every loop is bounded by them. What comes out of an optimistic read counts only after its
//! version was checked. This file knows bytes: no latches, no locks, no log.

use std::cmp::Ordering;

use ledgerstone_page::{HEADER_BYTES, LayoutId, PageId};

use super::bytes::Bytes;

/// Layout of the nodes.
pub const LAYOUT_NODE: LayoutId = LayoutId::BTREE;
/// Version of the layout that this code writes.
pub const NODE_FORMAT: u8 = 1;

pub(crate) const OWNER_AT: usize = 24;
pub(crate) const LINK_AT: usize = HEADER_BYTES;
pub(crate) const COUNT_AT: usize = LINK_AT + 8;
pub(crate) const RECORDS_START_AT: usize = COUNT_AT + 2;
pub(crate) const GARBAGE_AT: usize = RECORDS_START_AT + 2;
pub(crate) const GHOSTS_AT: usize = GARBAGE_AT + 2;
pub(crate) const LOW_LEN_AT: usize = GHOSTS_AT + 2;
pub(crate) const HIGH_LEN_AT: usize = LOW_LEN_AT + 2;
pub(crate) const PREFIX_LEN_AT: usize = HIGH_LEN_AT + 2;
pub(crate) const SLOTS_AT_AT: usize = PREFIX_LEN_AT + 2;
/// Where the fences begin.
pub(crate) const FENCES_AT: usize = SLOTS_AT_AT + 2;
pub(crate) const SLOT_BYTES: usize = 8;
/// Bytes of a key behind the prefix that its slot holds.
const HEAD_BYTES: usize = size_of::<u32>();
/// Bytes of a record before its key.
pub(crate) const RECORD_HEADER_BYTES: usize = 2;
/// Bytes of a child's page id.
pub(crate) const CHILD_BYTES: usize = 6;
/// Bytes of a reference to a blob.
pub const BLOB_REF_BYTES: usize = 16;

/// Set in `prefix_len` if the prefix has its own bytes.
pub(crate) const OWN_PREFIX: u16 = 1 << 15;
/// Bits of a record's header.
pub(crate) const GHOST: u16 = 1 << 15;
pub(crate) const BLOB: u16 = 1 << 14;
pub(crate) const PADDED: u16 = 1 << 13;
pub(crate) const VALUE_LEN: u16 = PADDED - 1;

const _: () = assert!(COUNT_AT == 48 && LOW_LEN_AT == 56 && FENCES_AT == 64, "two aligned words hold all counts");
const _: () = assert!(
    value_bytes_max(ledgerstone_page::PAGE_BYTES_MIN, key_bytes_max(ledgerstone_page::PAGE_BYTES_MIN))
        >= BLOB_REF_BYTES,
    "a reference fits beside the longest key"
);

/// The longest key of pages of this size.
#[must_use]
pub const fn key_bytes_max(page_bytes: usize) -> usize {
    page_bytes / 8
}

/// What rounding the front of a node up, and a prefix with bytes of its own, may add to it.
const ROUNDING_BYTES_MAX: usize = 16;

/// The longest value that stays in the leaf beside a key of this length. Longer values become blobs. Key, value, header
/// and slot take a little less than half of the page, so that two such records share a leaf.
///
/// P7 of `split.rs` depends on this: however long the fences, a full leaf can be cut. Its records take at most `page -
/// 64` bytes, and a half may hold `page * 3 / 4 - 80` of them. So a cut that suits both halves lies in a stretch of
/// `page / 2 - 96` bytes. No record is longer than that.
#[must_use]
pub const fn value_bytes_max(page_bytes: usize, key_len: usize) -> usize {
    let half_bytes_max = page_bytes - 2 * key_bytes_max(page_bytes) - FENCES_AT - ROUNDING_BYTES_MAX;
    let record_bytes_max = 2 * half_bytes_max - (page_bytes - FENCES_AT);
    let bytes = (record_bytes_max - SLOT_BYTES - RECORD_HEADER_BYTES).saturating_sub(key_len);
    if bytes < VALUE_LEN as usize { bytes } else { VALUE_LEN as usize }
}

/// The first four bytes as a number that orders as they do.
#[inline]
pub(crate) fn head_of(suffix: &[u8]) -> u32 {
    match *suffix {
        [a, b, c, d, ..] => u32::from_be_bytes([a, b, c, d]),
        [a, b, c] => u32::from_be_bytes([a, b, c, 0]),
        [a, b] => u32::from_be_bytes([a, b, 0, 0]),
        [a] => u32::from_be_bytes([a, 0, 0, 0]),
        [] => 0,
    }
}

/// The first eight bytes as a number that orders as they do.
#[inline]
fn beginning_of(key: &[u8]) -> u64 {
    match key.first_chunk() {
        Some(bytes) => u64::from_be_bytes(*bytes),
        None => match (key.first_chunk::<4>(), key.last_chunk::<4>()) {
            // The two overlap where there are fewer than eight.
            (Some(first), Some(last)) => {
                let missing = 8 * (size_of::<u64>() - key.len());
                u64::from(u32::from_be_bytes(*first)) << 32 | u64::from(u32::from_be_bytes(*last)) << missing
            }
            _ => u64::from(head_of(key)) << 32,
        },
    }
}

/// A key to be searched, and what of it is the same for every node.
pub(crate) struct Probe<'k> {
    key: &'k [u8],
    begin: u64,
    /// With a prefix of up to so many bytes, prefix and head are in `begin`.
    prefix_max: usize,
}

impl<'k> Probe<'k> {
    #[inline(always)]
    pub(crate) fn new(key: &'k [u8]) -> Probe<'k> {
        let prefix_max = if key.len() <= size_of::<u64>() { key.len() } else { size_of::<u32>() };
        Probe { key, begin: beginning_of(key), prefix_max }
    }

    #[inline(always)]
    pub(crate) fn key(&self) -> &'k [u8] {
        self.key
    }
}

/// Bytes of a pad by the first two of them.
#[inline]
pub(crate) fn read_pad(first: u16) -> usize {
    let (low, high) = (usize::from(first & 0x7f), usize::from(first >> 8));
    if first & 0x80 == 0 { low } else { low | high << 7 }
}

/// The first bytes of a pad, which say how long it is, and how many they are.
pub(crate) fn write_pad(pad: usize) -> ([u8; 2], usize) {
    if pad < 0x80 { ([pad as u8, 0], 1) } else { ([0x80 | (pad & 0x7f) as u8, (pad >> 7) as u8], 2) }
}

/// One slot and the header of its record, cut to the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordAt {
    /// Where the record begins.
    pub at: usize,
    /// Bytes of the key after the prefix.
    pub key_len: usize,
    /// Value length and flags.
    pub header: u16,
    /// Bytes kept behind the value.
    pub pad: usize,
}

impl RecordAt {
    /// Where the key's rest begins.
    #[inline]
    #[must_use]
    pub fn key_at(&self) -> usize {
        self.at + RECORD_HEADER_BYTES
    }

    /// Where the value begins.
    #[inline]
    #[must_use]
    pub fn value_at(&self) -> usize {
        self.key_at() + self.key_len
    }

    /// Bytes of the value.
    #[inline]
    #[must_use]
    pub fn value_len(&self) -> usize {
        usize::from(self.header & VALUE_LEN)
    }

    /// Bytes of the value and of what is kept behind it. A value up to this long fits where the record is.
    #[inline]
    #[must_use]
    pub fn area(&self) -> usize {
        self.value_len() + self.pad
    }

    /// Bytes of the whole record.
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> usize {
        RECORD_HEADER_BYTES + self.key_len + self.area()
    }

    /// Deleted, but still a key.
    #[inline]
    #[must_use]
    pub fn is_ghost(&self) -> bool {
        self.header & GHOST != 0
    }

    /// The value is a reference to a blob.
    #[inline]
    #[must_use]
    pub fn is_blob(&self) -> bool {
        self.header & BLOB != 0
    }
}

/// A node for reading. All counts are cut to the size of the page.
///
/// It holds the words of the header that say what is where, and takes a field out of them when it is asked for.
#[derive(Clone, Copy)]
pub struct Node<B> {
    bytes: B,
    head: u64,
    owner: u64,
    counts: u64,
    lens: u64,
}

/// Field `no` of four in a word.
#[inline]
fn field(word: u64, no: u32) -> usize {
    usize::from((word >> (16 * no)) as u16)
}

impl<B: Bytes> Node<B> {
    /// Reads the fixed fields.
    #[inline]
    pub fn new(bytes: B) -> Node<B> {
        let [head, owner, counts, lens] = bytes.words([0, OWNER_AT / 8, COUNT_AT / 8, LOW_LEN_AT / 8]);
        Node { bytes, head, owner, counts, lens }
    }

    /// The bytes it is read from.
    #[inline]
    pub fn bytes(&self) -> B {
        self.bytes
    }

    /// Size of the page.
    #[inline]
    pub fn page_bytes(&self) -> usize {
        self.bytes.len_bytes()
    }

    /// True if the header says that this is a node of the tree with this root.
    #[inline]
    pub fn is_of(&self, root: PageId) -> bool {
        LayoutId((self.head >> 32) as u16) == LAYOUT_NODE && self.owner == root.0
    }

    /// 0 for a leaf.
    #[inline]
    pub fn level(&self) -> u8 {
        (self.head >> 56) as u8
    }

    /// Right sibling, or none.
    #[inline]
    pub fn link(&self) -> PageId {
        PageId(self.bytes.u64(LINK_AT))
    }

    /// Slots in use.
    #[inline]
    pub fn count(&self) -> usize {
        field(self.counts, 0).min((self.page_bytes() - self.slots_at()) / SLOT_BYTES)
    }

    /// Deleted records.
    #[inline]
    pub fn ghosts(&self) -> usize {
        field(self.counts, 3)
    }

    #[inline]
    pub(crate) fn records_start(&self) -> usize {
        field(self.counts, 1)
    }

    #[inline]
    pub(crate) fn garbage(&self) -> usize {
        field(self.counts, 2)
    }

    #[inline]
    pub(crate) fn low_len(&self) -> usize {
        field(self.lens, 0)
    }

    #[inline]
    pub(crate) fn high_len(&self) -> usize {
        field(self.lens, 1)
    }

    #[inline]
    pub(crate) fn prefix_len(&self) -> usize {
        field(self.lens, 2) & usize::from(!OWN_PREFIX)
    }

    #[inline]
    pub(crate) fn has_own_prefix(&self) -> bool {
        field(self.lens, 2) & usize::from(OWN_PREFIX) != 0
    }

    #[inline]
    pub(crate) fn slots_at(&self) -> usize {
        field(self.lens, 3).clamp(FENCES_AT, self.page_bytes())
    }

    #[inline]
    pub(crate) fn prefix_at(&self) -> usize {
        if self.has_own_prefix() { FENCES_AT + self.low_len() + self.high_len() } else { FENCES_AT }
    }

    /// The eight bytes from where the prefix begins.
    #[inline(always)]
    pub(crate) fn prefix_word(&self) -> u64 {
        if self.has_own_prefix() {
            self.bytes.u64(self.prefix_at())
        } else {
            self.bytes.word(FENCES_AT / size_of::<u64>())
        }
    }

    /// The first slot whose key counts. Slot 0 of an inner node stands for the low fence (N4).
    #[inline]
    pub fn first(&self) -> usize {
        usize::from(self.level() > 0)
    }

    /// Appends the low fence.
    pub fn low_to(&self, out: &mut Vec<u8>) {
        self.bytes.append_to(FENCES_AT, self.low_len(), out);
    }

    /// Appends the high fence.
    pub fn high_to(&self, out: &mut Vec<u8>) {
        self.bytes.append_to(FENCES_AT + self.low_len(), self.high_len(), out);
    }

    /// The low fence.
    pub fn low(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.low_to(&mut out);
        out
    }

    /// The high fence. Empty means that there is none.
    pub fn high(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.high_to(&mut out);
        out
    }

    /// True if the node has no high fence, and so is the rightmost node of its level.
    #[inline]
    pub fn is_rightmost(&self) -> bool {
        self.high_len() == 0
    }

    /// True if `key` lies beyond this node, in a right sibling.
    #[inline]
    pub fn is_beyond(&self, key: &[u8]) -> bool {
        self.high_len() != 0 && self.compare_high(key) != Ordering::Greater
    }

    /// Compares the high fence, which must be there, with `key`.
    #[inline]
    pub fn compare_high(&self, key: &[u8]) -> Ordering {
        self.bytes.compare(FENCES_AT + self.low_len(), self.high_len(), key)
    }

    /// Compares the low fence with `key`.
    #[inline]
    pub fn compare_low(&self, key: &[u8]) -> Ordering {
        self.bytes.compare(FENCES_AT, self.low_len(), key)
    }

    /// True if `key` lies before this node.
    #[inline]
    pub fn is_before(&self, key: &[u8]) -> bool {
        self.low_len() != 0 && self.bytes.compare(FENCES_AT, self.low_len(), key) == Ordering::Greater
    }

    /// Slots lie at multiples of eight (`is_sane`, and the check of a page that comes in).
    #[inline]
    fn slot_word(&self, slot: usize) -> u64 {
        self.bytes.word(self.slots_no() + slot)
    }

    /// The word where the slots begin, which may lie behind the end of a page that was never a node.
    #[inline]
    fn slots_no(&self) -> usize {
        (field(self.lens, 3) / SLOT_BYTES).max(FENCES_AT / SLOT_BYTES)
    }

    /// True if no slot comes after this one, as the header says.
    #[inline]
    pub(crate) fn is_last(&self, slot: usize) -> bool {
        slot + 1 >= field(self.counts, 0)
    }

    /// The head of a slot.
    pub(crate) fn head(&self, slot: usize) -> u32 {
        self.slot_word(slot) as u32
    }

    /// Where the record of a slot begins.
    #[inline]
    pub(crate) fn record_offset(&self, slot: usize) -> usize {
        usize::from((self.slot_word(slot) >> 32) as u16)
    }

    /// Where the record of a slot is.
    #[inline]
    pub fn record(&self, slot: usize) -> RecordAt {
        let word = self.slot_word(slot);
        let at = usize::from((word >> 32) as u16);
        let mut record = RecordAt { at, key_len: usize::from((word >> 48) as u16), header: self.bytes.u16(at), pad: 0 };
        if record.header & PADDED != 0 {
            record.pad = read_pad(self.bytes.u16(record.value_at() + record.value_len()));
        }
        record
    }

    /// Compares the key of a slot with `key`.
    pub fn compare_key(&self, slot: usize, key: &[u8]) -> Ordering {
        if slot < self.first() {
            return self.bytes.compare(FENCES_AT, self.low_len(), key);
        }
        let split = self.prefix_len().min(key.len());
        match self.bytes.compare(self.prefix_at(), self.prefix_len(), &key[..split]) {
            Ordering::Equal => {
                let record = self.record(slot);
                self.bytes.compare(record.key_at(), record.key_len, &key[split..])
            }
            other => other,
        }
    }

    /// Appends the whole key of a slot.
    pub fn key_to(&self, slot: usize, out: &mut Vec<u8>) {
        if slot < self.first() {
            return self.low_to(out);
        }
        let record = self.record(slot);
        self.bytes.append_to(self.prefix_at(), self.prefix_len(), out);
        self.bytes.append_to(record.key_at(), record.key_len, out);
    }

    /// The whole key of a slot.
    pub fn key(&self, slot: usize) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.prefix_len() + self.record(slot).key_len);
        self.key_to(slot, &mut out);
        out
    }

    /// Appends the value of a slot as it is stored.
    #[inline]
    pub fn value_to(&self, slot: usize, out: &mut Vec<u8>) {
        self.value_of(&self.record(slot), out);
    }

    /// Appends the value of a record as it is stored.
    #[inline]
    pub(crate) fn value_of(&self, record: &RecordAt, out: &mut Vec<u8>) {
        self.bytes.append_to(record.value_at(), record.value_len(), out);
    }

    /// The value of a slot as it is stored.
    pub fn value(&self, slot: usize) -> Vec<u8> {
        let mut out = Vec::new();
        self.value_to(slot, &mut out);
        out
    }

    /// Finds `key`: the slot that holds it, or the slot before which it belongs.
    pub fn search(&self, key: &[u8]) -> Result<usize, usize> {
        self.find(&Probe::new(key))
    }

    /// The same, inlined, for the paths where most searches are.
    #[inline(always)]
    pub(crate) fn find(&self, probe: &Probe<'_>) -> Result<usize, usize> {
        self.find_by::<false>(probe)
    }

    /// The same for a key that is likely to lie behind all others.
    #[inline(always)]
    pub(crate) fn find_from_end(&self, probe: &Probe<'_>) -> Result<usize, usize> {
        self.find_by::<true>(probe)
    }

    #[inline(always)]
    fn find_by<const FROM_END: bool>(&self, probe: &Probe<'_>) -> Result<usize, usize> {
        let (first, count, prefix_len) = (self.first(), field(self.counts, 0), self.prefix_len());
        let head = if prefix_len <= probe.prefix_max {
            // Half of the prefix's bits: to shift by all 64 of a word at once is not defined.
            let half = 4 * prefix_len as u32;
            let behind = u64::BITS / 2 - half;
            let mine = self.prefix_word().swap_bytes();
            if (mine ^ probe.begin) >> behind >> behind != 0 {
                return Err(if mine < probe.begin { self.count().max(first) } else { first });
            }
            (probe.begin << half << half >> 32) as u32
        } else {
            match self.compare_prefix(probe.key) {
                Ordering::Less => return Err(self.count().max(first)),
                Ordering::Greater => return Err(first),
                Ordering::Equal => probe.key.get(prefix_len..).map_or(0, head_of),
            }
        };
        if FROM_END && count > first && (self.slot_word(count - 1) as u32) < head {
            return Err(self.count());
        }
        let (at, word) = self.bytes.first_from(self.slots_no() + first, count.saturating_sub(first), head);
        match word {
            Some(word) if word as u32 == head => {
                let key_len = usize::from((word >> 48) as u16);
                // The usual case: the heads are all that there is of both keys. What the shorter one of two such keys
                // lacks is zero in the longer one.
                if key_len <= HEAD_BYTES && prefix_len + key_len == probe.key.len() {
                    return Ok(first + at);
                }
                self.find_by_rest(first + at, word, head, probe)
            }
            _ => Err(first + at),
        }
    }

    /// Finds a key from this slot on, which has this word, and is the first with its head.
    #[inline(never)]
    fn find_by_rest(self, slot: usize, word: u64, head: u32, probe: &Probe<'_>) -> Result<usize, usize> {
        // As the prefix is equal, it is no longer than the key.
        let rest = probe.key.get(self.prefix_len()..).unwrap_or(&[]);
        match self.compare_rest(word, rest) {
            Ordering::Less => self.search_between(slot + 1, self.count(), head, rest),
            Ordering::Equal => Ok(slot),
            Ordering::Greater => Err(slot),
        }
    }

    /// Finds a key by what lies behind the prefix, among slots some of which have its head.
    #[inline(never)]
    fn search_between(&self, mut low: usize, mut high: usize, head: u32, rest: &[u8]) -> Result<usize, usize> {
        while low < high {
            let middle = (low + high) / 2;
            let word = self.slot_word(middle);
            let order = match (word as u32).cmp(&head) {
                Ordering::Equal => self.compare_rest(word, rest),
                other => other,
            };
            match order {
                Ordering::Less => low = middle + 1,
                Ordering::Greater => high = middle,
                Ordering::Equal => return Ok(middle),
            }
        }
        Err(low)
    }

    /// Compares the prefix of all keys here with the beginning of `key`.
    #[inline(never)]
    fn compare_prefix(self, key: &[u8]) -> Ordering {
        self.bytes.compare(self.prefix_at(), self.prefix_len(), &key[..self.prefix_len().min(key.len())])
    }

    /// Compares what lies behind the prefix in the key of a slot, of which this is the word, with `rest`. Their heads
    /// are equal.
    #[inline]
    fn compare_rest(&self, slot_word: u64, rest: &[u8]) -> Ordering {
        let key_len = usize::from((slot_word >> 48) as u16);
        if key_len <= HEAD_BYTES && rest.len() <= HEAD_BYTES {
            return key_len.cmp(&rest.len()); // What the shorter one lacks is zero in the longer one.
        }
        let at = usize::from((slot_word >> 32) as u16) + RECORD_HEADER_BYTES;
        self.bytes.compare(at, key_len, rest)
    }

    /// The page id in a slot of an inner node.
    #[inline]
    pub fn child(&self, slot: usize) -> PageId {
        // The value lies behind header and key, and the two bytes before it are read along with it.
        let word = self.slot_word(slot);
        let at = usize::from((word >> 32) as u16) + usize::from((word >> 48) as u16);
        PageId(self.bytes.u64(at) >> 16)
    }

    /// The slot of the child whose range holds `key`.
    #[inline]
    pub fn child_slot(&self, key: &[u8]) -> usize {
        self.child_slot_of(&Probe::new(key))
    }

    /// The same.
    #[inline(always)]
    pub(crate) fn child_slot_of(&self, probe: &Probe<'_>) -> usize {
        match self.find(probe) {
            Ok(slot) => slot,
            Err(slot) => slot.saturating_sub(1),
        }
    }

    /// The slot of the child that holds the largest key below `bound`.
    #[inline]
    pub fn child_slot_below(&self, bound: &[u8]) -> usize {
        match self.search(bound) {
            Ok(slot) | Err(slot) => slot.saturating_sub(1),
        }
    }

    /// The slot of the last child.
    #[inline]
    pub fn last_slot(&self) -> usize {
        self.count().saturating_sub(1)
    }

    /// True if the counts agree with each other and with the page, as far as can be told without looking at a record.
    /// What is changed in such a node stays inside the page.
    pub(crate) fn is_sane(&self) -> bool {
        let own = if self.has_own_prefix() { self.prefix_len() } else { 0 };
        self.page_bytes().is_multiple_of(8)
            && self.slots_at().is_multiple_of(SLOT_BYTES)
            && self.slots_at() >= FENCES_AT + self.low_len() + self.high_len() + own
            && self.slots_at() + usize::from(self.bytes.u16(COUNT_AT)) * SLOT_BYTES <= self.records_start()
            && self.records_start() <= self.page_bytes()
            && self.garbage() <= self.page_bytes() - self.records_start()
            && self.ghosts() <= self.count()
    }

    /// Bytes that the records use (without garbage).
    pub(crate) fn live_bytes(&self) -> usize {
        self.page_bytes().saturating_sub(self.records_start()).saturating_sub(self.garbage())
    }

    /// Bytes between the slots and the records.
    pub(crate) fn gap_bytes(&self) -> usize {
        self.records_start().saturating_sub(self.slots_at() + self.count() * SLOT_BYTES)
    }
}
