//! Node of the B-link tree, changed: what the operations do to the bytes, and whether it will fit.
//!
//! E1. A change depends on the page's bytes and its arguments alone, rebuilding included: redo makes the same page.
//! E2. [`plan_insert`], [`plan_replace`] and [`size_of`] say exactly what the change will need: what they allow does
//!     not fail afterwards, when the record is in the log.
//! E3. Every function refuses what does not fit its page and leaves the page as it was.
//!
//! The prefix follows the keys that are there rather than the fences. By its fences, a root that holds numbers in
//! order would have no prefix, and all its heads would be zeros. It grows when a node is built anew and shrinks when a
//! key comes that does not share it.

use std::cmp::Ordering;

use ledgerstone_op::{PageMut, Unfit};
use ledgerstone_page::PageId;
use ledgerstone_region::{Words, short_word};

use super::bytes::{Bytes, clamped};
use super::entry::{Entry, common, entries_of, without_first};
use super::node::{
    CHILD_BYTES, COUNT_AT, FENCES_AT, GARBAGE_AT, GHOST, GHOSTS_AT, HIGH_LEN_AT, LINK_AT, LOW_LEN_AT, Node, OWN_PREFIX,
    PADDED, PREFIX_LEN_AT, RECORD_HEADER_BYTES, RECORDS_START_AT, RecordAt, SLOT_BYTES, SLOTS_AT_AT, VALUE_LEN,
    head_of, write_pad,
};
use super::search::with_key;
use crate::scratch::{PageScratch, Scratch};

/// What a change does to the free space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plan {
    /// There is room.
    InPlace,
    /// There is room once the node is built anew.
    Rebuild,
    /// There is none: split.
    Full,
}

fn round_up(bytes: usize) -> usize {
    bytes.next_multiple_of(SLOT_BYTES)
}

/// What a prefix depends on.
#[derive(Debug, Clone, Copy)]
struct Shape {
    low_len: usize,
    high_len: usize,
    /// Slots, and those of them whose key counts.
    count: usize,
    keyed: usize,
    /// Bytes of all records with their whole keys.
    body: usize,
    /// What all keys share, and how much of that the low fence begins with.
    shared: usize,
    shared_with_low: usize,
}

impl Shape {
    /// Length of the prefix, and whether it has bytes of its own.
    ///
    /// The longest is preferred, since heads tell keys apart by what comes after it; alignment may make it cost 7 bytes
    /// more than none (`value_bytes_max` leaves room for that).
    fn prefix(&self) -> (usize, bool) {
        if self.keyed == 0 {
            return (0, false);
        }
        let own = self.size_with(self.shared, true);
        let by_low = self.size_with(self.shared_with_low, false);
        if self.shared > self.shared_with_low && own <= by_low + 7 {
            (self.shared, true)
        } else {
            (self.shared_with_low, false)
        }
    }

    fn size_with(&self, prefix_len: usize, own: bool) -> usize {
        let front = self.front_with(prefix_len, own);
        front + self.count * SLOT_BYTES + self.body.saturating_sub(self.keyed * prefix_len)
    }

    /// Bytes before the slots.
    fn front_with(&self, prefix_len: usize, own: bool) -> usize {
        FENCES_AT + round_up(self.low_len + self.high_len + if own { prefix_len } else { 0 })
    }

    fn slots_at(&self) -> usize {
        let (len, own) = self.prefix();
        self.front_with(len, own)
    }

    fn size(&self) -> usize {
        let (len, own) = self.prefix();
        self.size_with(len, own)
    }
}

fn shape_of(level: u8, low: &[u8], high: &[u8], entries: &[Entry<'_>]) -> Shape {
    let first = usize::from(level > 0);
    let (shared, shared_with_low) = match (entries.get(first), entries.last()) {
        (Some(a), Some(b)) => {
            let shared = a.common_with(b);
            (shared, shared.min(a.common_with(&a.under(low))))
        }
        _ => (0, 0),
    };
    Shape {
        low_len: low.len(),
        high_len: high.len(),
        count: entries.len(),
        keyed: entries.len().saturating_sub(first),
        body: entries.iter().map(Entry::body_bytes).sum(),
        shared,
        shared_with_low,
    }
}

/// Bytes of a node with this content. It fits if the page has as many.
#[must_use]
pub fn size_of(level: u8, low: &[u8], high: &[u8], entries: &[Entry<'_>]) -> usize {
    shape_of(level, low, high, entries).size()
}

/// The bytes of a node, built anew: from the link to the end of the slots, and all records. There is nothing between.
pub struct Built {
    page: PageScratch,
    slots_end: usize,
    records_start: usize,
}

impl Built {
    /// Puts them into a page whose bytes behind the header are zeros.
    pub fn put_in_zeroed(&self, page: &mut PageMut<'_>) {
        page.put(LINK_AT, &self.page[LINK_AT..self.slots_end]);
        page.put(self.records_start, &self.page[self.records_start..]);
    }

    /// Puts them into a page that has had others.
    fn put_in(&self, page: &mut PageMut<'_>) {
        page.fill(self.slots_end, self.records_start - self.slots_end, 0);
        self.put_in_zeroed(page);
    }
}

/// Builds a node anew. `None` if it does not fit.
#[must_use]
pub fn build(
    page_bytes: usize,
    level: u8,
    link: PageId,
    low: &[u8],
    high: &[u8],
    entries: &[Entry<'_>],
) -> Option<Built> {
    let shape = shape_of(level, low, high, entries);
    if shape.size() > page_bytes {
        return None;
    }
    let (prefix_len, own) = shape.prefix();
    let first = usize::from(level > 0);
    let prefix = match entries.get(first) {
        Some(entry) if own => entry.beginning(prefix_len),
        _ => (&[][..], &[][..]),
    };
    let mut building = Building::new(page_bytes, low, high, prefix, &shape);
    for (slot, entry) in entries.iter().enumerate() {
        if let Some(image) = entry.image(prefix_len)
            && slot >= first
        {
            building.record(image.len())?.copy_from_slice(image);
            building.slot(slot, head_of(entry.suffix), entry.suffix.len(), entry.header);
            continue;
        }
        let (a, b): (&[u8], &[u8]) = if slot < first { (&[], &[]) } else { entry.after(prefix_len) };
        let key_len = a.len() + b.len();
        let record = building.record(RECORD_HEADER_BYTES + key_len + entry.value.len())?;
        let (header, rest) = record.split_at_mut(RECORD_HEADER_BYTES);
        header.copy_from_slice(&entry.header.to_le_bytes());
        let (key, value) = rest.split_at_mut(key_len);
        let (to_a, to_b) = key.split_at_mut(a.len());
        to_a.copy_from_slice(a);
        to_b.copy_from_slice(b);
        value.copy_from_slice(entry.value);
        let head = head_of(&record[RECORD_HEADER_BYTES..][..key_len]);
        building.slot(slot, head, key_len, entry.header);
    }
    Some(building.done(link, &shape))
}

/// A node on its way: its front is there, and records and slots come one by one.
struct Building {
    page: PageScratch,
    slots_at: usize,
    slots_end: usize,
    start: usize,
    ghosts: usize,
}

impl Building {
    /// The front has room in the page.
    fn new(page_bytes: usize, low: &[u8], high: &[u8], own_prefix: (&[u8], &[u8]), shape: &Shape) -> Building {
        let mut page = PageScratch::new(page_bytes);
        let mut at = FENCES_AT;
        for bytes in [low, high, own_prefix.0, own_prefix.1] {
            page[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        }
        let slots_at = shape.slots_at();
        page[at..slots_at].fill(0);
        let slots_end = slots_at + shape.count * SLOT_BYTES;
        Building { page, slots_at, slots_end, start: page_bytes, ghosts: 0 }
    }

    /// Room for the next record, if there is any.
    #[inline]
    fn record(&mut self, bytes: usize) -> Option<&mut [u8]> {
        let end = self.start;
        self.start = end.checked_sub(bytes).filter(|&start| start >= self.slots_end)?;
        Some(&mut self.page[self.start..end])
    }

    /// The slot of the record that was put last.
    #[inline]
    fn slot(&mut self, slot: usize, head: u32, key_len: usize, header: u16) {
        let at = self.slots_at + slot * SLOT_BYTES;
        self.page[at..at + SLOT_BYTES].copy_from_slice(&slot_word(head, self.start, key_len).to_le_bytes());
        self.ghosts += usize::from(header & GHOST != 0);
    }

    fn done(mut self, link: PageId, shape: &Shape) -> Built {
        let (prefix_len, own) = shape.prefix();
        let mut field = |at: usize, value: usize| self.page[at..at + 2].copy_from_slice(&(value as u16).to_le_bytes());
        field(COUNT_AT, shape.count);
        field(RECORDS_START_AT, self.start);
        field(GARBAGE_AT, 0);
        field(GHOSTS_AT, self.ghosts);
        field(LOW_LEN_AT, shape.low_len);
        field(HIGH_LEN_AT, shape.high_len);
        field(PREFIX_LEN_AT, prefix_len | if own { usize::from(OWN_PREFIX) } else { 0 });
        field(SLOTS_AT_AT, self.slots_at);
        self.page[LINK_AT..LINK_AT + 8].copy_from_slice(&link.0.to_le_bytes());
        Built { page: self.page, slots_end: self.slots_end, records_start: self.start }
    }
}

/// The word with the four counts of a node.
fn counts_word(count: usize, records_start: usize, garbage: usize, ghosts: usize) -> u64 {
    [count, records_start, garbage, ghosts].iter().rev().fold(0, |word, &field| word << 16 | u64::from(field as u16))
}

const _: () = assert!(COUNT_AT + 2 == RECORDS_START_AT && COUNT_AT + 4 == GARBAGE_AT && COUNT_AT + 6 == GHOSTS_AT);

fn slot_word(head: u32, at: usize, key_len: usize) -> u64 {
    u64::from(head) | (at as u64) << 32 | (key_len as u64) << 48
}

/// Whether a record with this key and a value of `value_len` bytes fits.
#[must_use]
#[inline]
pub fn plan_insert<B: Bytes>(node: &Node<B>, key: &[u8], value_len: usize) -> Plan {
    if plan_in_place(node, key, value_len).is_some() {
        return Plan::InPlace;
    }
    plan_anew(node, key, value_len)
}

/// Where such a record goes in a node that has room for it as it is, and how many bytes of its key the prefix has.
#[inline(always)]
fn plan_in_place<B: Bytes>(node: &Node<B>, key: &[u8], value_len: usize) -> Option<(usize, usize)> {
    let (count, prefix_len) = (node.count(), node.prefix_len());
    if count <= node.first() || !has_prefix(node, key) {
        return None;
    }
    let bytes = RECORD_HEADER_BYTES + key.len() - prefix_len + value_len;
    let at = node.records_start().checked_sub(bytes)?;
    (at >= node.slots_at() + (count + 1) * SLOT_BYTES).then_some((at, prefix_len))
}

/// The same for a node that has to be built anew for it. Most often a full one is full whatever its prefix would be.
#[inline(never)]
fn plan_anew<B: Bytes>(node: &Node<B>, key: &[u8], value_len: usize) -> Plan {
    let keyed = node.count().saturating_sub(node.first());
    let mut shape = present_shape(node);
    shape.count += 1;
    shape.keyed += 1;
    shape.body += RECORD_HEADER_BYTES + key.len() + value_len;
    // Whatever new prefix it gets, it is no longer than the key and what is shared now.
    (shape.shared, shape.shared_with_low) = if keyed == 0 {
        (key.len(), common_with_low(node, key))
    } else {
        with_ends(node, node.last_slot(), |first, last| {
            let shared = common(first, last).min(common(first, key)).min(common(last, key));
            (shared, common_with_low(node, &first[..shared]))
        })
    };
    if shape.size() <= node.page_bytes() { Plan::Rebuild } else { Plan::Full }
}

/// Whether the record in `slot` can get a value of `value_len` bytes.
#[must_use]
pub fn plan_replace<B: Bytes>(node: &Node<B>, slot: usize, value_len: usize) -> Plan {
    let record = node.record(slot);
    if value_len <= record.area() {
        return Plan::InPlace;
    }
    if node.gap_bytes() >= RECORD_HEADER_BYTES + record.key_len + value_len {
        return Plan::InPlace;
    }
    let mut shape = present_shape(node);
    shape.body = (shape.body + value_len).saturating_sub(record.area());
    share_ends(&mut shape, node, node.last_slot());
    if shape.size() <= node.page_bytes() { Plan::Rebuild } else { Plan::Full }
}

fn present_shape<B: Bytes>(node: &Node<B>) -> Shape {
    let keyed = node.count().saturating_sub(node.first());
    Shape {
        low_len: node.low_len(),
        high_len: node.high_len(),
        count: node.count(),
        keyed,
        body: node.live_bytes() + keyed * node.prefix_len(),
        shared: 0,
        shared_with_low: 0,
    }
}

/// Whether a node has room for this high fence in place of its own, with all its slots.
#[must_use]
pub fn fits_fence<B: Bytes>(node: &Node<B>, high: &[u8]) -> bool {
    fenced_shape(node, high).size() <= node.page_bytes()
}

/// Whether a leaf with this low fence, and none above, has room for this one record.
#[must_use]
pub fn fits_alone(page_bytes: usize, low: &[u8], key: &[u8], value_len: usize) -> bool {
    let shape = Shape {
        low_len: low.len(),
        high_len: 0,
        count: 1,
        keyed: 1,
        body: RECORD_HEADER_BYTES + key.len() + value_len,
        shared: key.len(),
        shared_with_low: common(key, low),
    };
    shape.size() <= page_bytes
}

/// The shape of a node with this high fence in place of its own.
fn fenced_shape<B: Bytes>(node: &Node<B>, high: &[u8]) -> Shape {
    let mut shape = Shape { high_len: high.len(), ..present_shape(node) };
    if shape.keyed > 0 {
        share_ends(&mut shape, node, node.last_slot());
    }
    shape
}

/// The keys up to slot `last` share what the first and the last of them share.
fn share_ends<B: Bytes>(shape: &mut Shape, node: &Node<B>, last: usize) {
    (shape.shared, shape.shared_with_low) = with_ends(node, last, |first, last| {
        let shared = common(first, last);
        (shared, common_with_low(node, &first[..shared]))
    });
}

/// Calls `f` with the first key and that of slot `last`.
fn with_ends<B: Bytes, T>(node: &Node<B>, last: usize, f: impl FnOnce(&[u8], &[u8]) -> T) -> T {
    with_key(node, node.first(), |first| with_key(node, last, |last| f(first, last)))
}

/// How many bytes `key` and the low fence begin with alike.
fn common_with_low<B: Bytes>(node: &Node<B>, key: &[u8]) -> usize {
    let is_same = |&at: &usize| node.bytes().u16(FENCES_AT + at) as u8 == key[at];
    (0..key.len().min(node.low_len())).take_while(is_same).count()
}

/// A prefix of up to so many bytes is compared as one word.
const PREFIX_BYTES_QUICK: usize = 8;

#[inline]
fn has_prefix<B: Bytes>(node: &Node<B>, key: &[u8]) -> bool {
    let len = node.prefix_len();
    if len <= PREFIX_BYTES_QUICK
        && let Some(begin) = key.first_chunk()
    {
        // Half of the bits behind the prefix: to shift by all 64 of a word at once is not defined.
        let half = u64::BITS / 2 - 4 * len as u32;
        return (node.prefix_word() ^ u64::from_le_bytes(*begin)) << half << half == 0;
    }
    key.len() >= len && node.bytes().compare(node.prefix_at(), len, &key[..len]) == Ordering::Equal
}

/// The node of a page whose counts stand to each other as they must, so that no change leaves the page.
#[inline]
fn sane<'p>(page: &'p PageMut<'_>) -> Result<Node<Words<'p>>, Unfit> {
    let node = Node::new(page.words());
    if node.is_sane() { Ok(node) } else { Err(Unfit("counts of the node")) }
}

/// The record of a slot, which must lie where records lie.
#[inline]
fn sane_record<B: Bytes>(node: &Node<B>, slot: usize) -> Result<RecordAt, Unfit> {
    if slot >= node.count() {
        return Err(Unfit("no such slot"));
    }
    let record = node.record(slot);
    if record.at < node.records_start() || record.at + record.bytes() > node.page_bytes() {
        return Err(Unfit("record outside of its area"));
    }
    Ok(record)
}

/// The private copy of a page whose counts are sane. What lies between slots and records is not copied, as no record
/// has bytes there.
fn copy_of(page: &PageMut<'_>) -> PageScratch {
    let words = page.words();
    let node = Node::new(words);
    let (slots_end, start) = (node.slots_at() + node.count() * SLOT_BYTES, node.records_start() / 8 * 8);
    let mut copy = PageScratch::new(words.len_bytes());
    if (0..node.count()).all(|slot| node.record_offset(slot) >= node.records_start()) {
        words.copy_to(0, &mut copy[..slots_end]);
        words.copy_to(start, &mut copy[start..]);
    } else {
        words.copy_to(0, &mut copy);
    }
    copy
}

/// Writes a node built anew over the old one, with the old low fence.
fn put_built(
    page: &mut PageMut<'_>,
    node: &Node<&[u8]>,
    link: PageId,
    high: &[u8],
    entries: &[Entry<'_>],
) -> Result<(), Unfit> {
    put_rebuilt(page, node, link, clamped(node.bytes(), FENCES_AT, node.low_len()), high, entries)
}

fn put_rebuilt(
    page: &mut PageMut<'_>,
    node: &Node<&[u8]>,
    link: PageId,
    low: &[u8],
    high: &[u8],
    entries: &[Entry<'_>],
) -> Result<(), Unfit> {
    let built = build(node.page_bytes(), node.level(), link, low, high, entries);
    built.ok_or(Unfit("the node is full"))?.put_in(page);
    Ok(())
}

/// Puts a record into `slot` and moves those from there on up.
///
/// # Errors
/// The slot is beyond the end, or there is no room.
pub fn insert(page: &mut PageMut<'_>, slot: usize, key: &[u8], header: u16, value: &[u8]) -> Result<(), Unfit> {
    let node = sane(page)?;
    if slot > node.count() || slot < node.first() {
        return Err(Unfit("insert beyond the last slot"));
    }
    if value.len() != usize::from(header & (VALUE_LEN | PADDED)) {
        return Err(Unfit("value length"));
    }
    let Some((at, prefix_len)) = plan_in_place(&node, key, value.len()) else {
        return match plan_anew(&node, key, value.len()) {
            Plan::Full => Err(Unfit("the node is full")),
            Plan::Rebuild | Plan::InPlace => rebuild_insert(page, slot, key, header, value),
        };
    };
    let rest = &key[prefix_len..];
    let (count, slots_at) = (node.count(), node.slots_at());
    let (garbage, ghosts) = (node.garbage(), node.ghosts() + usize::from(header & GHOST != 0));
    let slot_at = slots_at + slot * SLOT_BYTES;
    if slot < count {
        page.shift(slot_at, slot_at + SLOT_BYTES, (count - slot) * SLOT_BYTES);
    }
    page.put_u64(slot_at, slot_word(head_of(rest), at, rest.len()));
    put_front(page, at, header, rest);
    page.put(at + RECORD_HEADER_BYTES + rest.len(), value);
    page.put_u64(COUNT_AT, counts_word(count + 1, at, garbage, ghosts));
    Ok(())
}

/// Puts what a record begins with, up to its value.
#[inline]
fn put_front(page: &mut PageMut<'_>, at: usize, header: u16, key: &[u8]) {
    const IN_WORD: usize = 8 - RECORD_HEADER_BYTES;
    let word = |begin: u64| u64::from(header) | begin << (8 * RECORD_HEADER_BYTES);
    if let Some((begin, rest)) = key.split_at_checked(IN_WORD) {
        page.put_u64(at, word(short_word(begin)));
        if rest.len() < 8 {
            page.put_short(at + 8, rest.len(), short_word(rest));
        } else {
            page.put(at + 8, rest);
        }
    } else {
        page.put_short(at, RECORD_HEADER_BYTES + key.len(), word(short_word(key)));
    }
}

fn rebuild_insert(page: &mut PageMut<'_>, slot: usize, key: &[u8], header: u16, value: &[u8]) -> Result<(), Unfit> {
    let copy = copy_of(page);
    let node = Node::new(&copy[..]);
    let mut entries = entries_of(&node);
    entries.insert(slot, Entry::new(key, header, value));
    put_built(page, &node, node.link(), &node.high(), &entries)
}

/// Sets the value and flags of a slot's record.
///
/// # Errors
/// No such slot, or no room.
pub fn replace(page: &mut PageMut<'_>, slot: usize, header: u16, value: &[u8]) -> Result<(), Unfit> {
    let node = sane(page)?;
    if value.len() != usize::from(header & (VALUE_LEN | PADDED)) {
        return Err(Unfit("value length"));
    }
    let record = sane_record(&node, slot)?;
    match plan_replace(&node, slot, value.len()) {
        Plan::Full => Err(Unfit("the node is full")),
        Plan::Rebuild => {
            let copy = copy_of(page);
            let node = Node::new(&copy[..]);
            let mut entries = entries_of(&node);
            entries[slot] = entries[slot].with(header, value);
            put_built(page, &node, node.link(), &node.high(), &entries)
        }
        Plan::InPlace => {
            let ghosts =
                node.ghosts() + usize::from(header & GHOST != 0) - usize::from(record.is_ghost()).min(node.ghosts());
            if value.len() <= record.area() {
                let pad = record.area() - value.len();
                page.put_u16(record.at, if pad > 0 { header | PADDED } else { header });
                page.put(record.value_at(), value);
                if pad > 0 {
                    let (first, len) = write_pad(pad);
                    let pad_at = record.value_at() + value.len();
                    page.put(pad_at, &first[..len]);
                    page.fill(pad_at + len, pad - len, 0);
                }
            } else {
                let start = node.records_start();
                let head = node.head(slot);
                let slot_at = node.slots_at() + slot * SLOT_BYTES;
                let garbage = node.garbage() + record.bytes();
                let mut key = Vec::with_capacity(record.key_len);
                node.bytes().append_to(record.key_at(), record.key_len, &mut key);
                let at = start - (RECORD_HEADER_BYTES + key.len() + value.len());
                page.put_u16(at, header);
                page.put(at + RECORD_HEADER_BYTES, &key);
                page.put(at + RECORD_HEADER_BYTES + key.len(), value);
                page.put_u64(slot_at, slot_word(head, at, key.len()));
                page.put_u16(RECORDS_START_AT, at as u16);
                page.put_u16(GARBAGE_AT, garbage as u16);
            }
            page.put_u16(GHOSTS_AT, ghosts as u16);
            Ok(())
        }
    }
}

/// Marks a record deleted, or takes the mark away.
///
/// # Errors
/// No such slot, or it is so already.
pub fn set_ghost(page: &mut PageMut<'_>, slot: usize, ghost: bool) -> Result<(), Unfit> {
    let node = sane(page)?;
    let record = sane_record(&node, slot)?;
    if record.is_ghost() == ghost {
        return Err(Unfit(if ghost { "a ghost already" } else { "no ghost" }));
    }
    let ghosts = if ghost { node.ghosts() + 1 } else { node.ghosts().saturating_sub(1) };
    page.put_u16(record.at, record.header ^ GHOST);
    page.put_u16(GHOSTS_AT, ghosts as u16);
    Ok(())
}

/// Overwrites bytes of a record's value with as many others.
///
/// # Errors
/// No such slot, the bytes are not those of the value, or other bytes than `old` are there.
pub fn patch(page: &mut PageMut<'_>, slot: usize, offset: usize, old: &[u8], new: &[u8]) -> Result<(), Unfit> {
    let node = sane(page)?;
    let record = sane_record(&node, slot)?;
    if old.len() != new.len() || offset + new.len() > record.value_len() {
        return Err(Unfit("patch beyond the value"));
    }
    let at = record.value_at() + offset;
    if !node.bytes().equals(at, old) {
        return Err(Unfit("patch of other bytes"));
    }
    page.put(at, new);
    Ok(())
}

/// Drops the slots from `keep` on, and sets a new high fence and link. This makes the left half of a split or, with
/// all slots kept, a node that takes over its empty right sibling's range.
///
/// # Errors
/// More slots than there are, or the fence does not fit.
pub fn set_fence(page: &mut PageMut<'_>, keep: usize, high: &[u8], link: PageId) -> Result<(), Unfit> {
    let node = sane(page)?;
    if keep == node.count()
        && let Some(fenced) = Fenced::of(&node, high)
    {
        fenced.put_in(page, high, link);
        return Ok(());
    }
    if let Some(built) = build_kept(&node, keep, high, link) {
        built.put_in(page);
        return Ok(());
    }
    set_fence_anew(page, keep, high, link)
}

/// Builds a node anew that keeps its first slots, record by record. The same bytes as those of [`build`]. `None` if it
/// does not fit, or if its records do not lie as they should.
fn build_kept(node: &Node<Words<'_>>, keep: usize, high: &[u8], link: PageId) -> Option<Built> {
    let (bytes, page_bytes, first) = (node.bytes(), node.page_bytes(), node.first());
    if keep <= first || keep > node.count() {
        return None;
    }
    // The bytes of all records are as good as those that stay: the prefix does not depend on them.
    let mut shape = Shape { high_len: high.len(), count: keep, keyed: keep - first, ..present_shape(node) };
    share_ends(&mut shape, node, keep - 1);
    let (prefix_len, own) = shape.prefix();
    // What the prefix takes from each key.
    let more = prefix_len.checked_sub(node.prefix_len())?;
    if shape.slots_at() + keep * SLOT_BYTES > page_bytes {
        return None;
    }
    let (mut low, mut prefix) = (Scratch::new(), Scratch::new());
    node.low_to(&mut low);
    if own {
        node.key_to(first, &mut prefix);
        prefix.truncate(prefix_len);
    }
    let mut building = Building::new(page_bytes, &low, high, (&prefix, &[]), &shape);
    for slot in 0..keep {
        let record = node.record(slot);
        let more = if slot < first { 0 } else { more };
        let key_len = record.key_len.checked_sub(more)?;
        if record.at + record.bytes() > page_bytes || slot < first && key_len > 0 {
            return None;
        }
        let to = building.record(record.bytes() - more)?;
        bytes.copy_to(record.at + more, to);
        if more > 0 {
            to[..RECORD_HEADER_BYTES].copy_from_slice(&record.header.to_le_bytes());
        }
        let head = head_of(&to[RECORD_HEADER_BYTES..][..key_len]);
        building.slot(slot, head, key_len, record.header);
    }
    Some(building.done(link, &shape))
}

/// The same for every node: it is built anew.
pub(super) fn set_fence_anew(page: &mut PageMut<'_>, keep: usize, high: &[u8], link: PageId) -> Result<(), Unfit> {
    let copy = copy_of(page);
    let node = Node::new(&copy[..]);
    let entries = entries_of(&node);
    let kept = entries.get(..keep).ok_or(Unfit("keeps more slots than there are"))?;
    put_built(page, &node, link, high, kept)
}

/// A node that keeps all its slots under a new high fence, and whose records lie as if they had been put anew: only its
/// front changes. The page becomes, byte for byte, the one that building anew makes (E1).
struct Fenced {
    low_len: usize,
    count: usize,
    slots_at: usize,
    slots_at_new: usize,
    records_start: usize,
    /// Where the prefix is that has bytes of its own, and how long it is.
    own_prefix: Option<(usize, usize)>,
}

impl Fenced {
    /// `None`: the node has to be built anew, or is too small.
    fn of(node: &Node<Words<'_>>, high: &[u8]) -> Option<Fenced> {
        let (count, first) = (node.count(), node.first());
        if count <= first || node.garbage() != 0 {
            return None;
        }
        let (mut start, mut ghosts) = (node.page_bytes(), 0);
        for slot in 0..count {
            let record = node.record(slot);
            start = start.checked_sub(record.bytes())?;
            if record.at != start || slot < first && record.key_len > 0 {
                return None;
            }
            ghosts += usize::from(record.is_ghost());
        }
        if start != node.records_start() || ghosts != node.ghosts() {
            return None;
        }
        let shape = fenced_shape(node, high);
        let (prefix_len, own) = shape.prefix();
        if shape.size() > node.page_bytes() || (prefix_len, own) != (node.prefix_len(), node.has_own_prefix()) {
            return None;
        }
        let own_prefix = own.then(|| (node.prefix_at(), prefix_len));
        let front_bytes = node.low_len() + high.len() + own_prefix.map_or(0, |(_, len)| len);
        Some(Fenced {
            low_len: node.low_len(),
            count,
            slots_at: node.slots_at(),
            slots_at_new: FENCES_AT + round_up(front_bytes),
            records_start: start,
            own_prefix,
        })
    }

    fn put_in(&self, page: &mut PageMut<'_>, high: &[u8], link: PageId) {
        let slots_end = self.slots_at_new + self.count * SLOT_BYTES;
        let mut prefix = Scratch::new();
        if let Some((at, len)) = self.own_prefix {
            page.words().append_to(at, len, &mut prefix);
        }
        page.shift(self.slots_at, self.slots_at_new, self.count * SLOT_BYTES);
        page.fill(slots_end, self.records_start - slots_end, 0);
        let high_at = FENCES_AT + self.low_len;
        page.put(high_at, high);
        page.put(high_at + high.len(), &prefix);
        let front_end = high_at + high.len() + prefix.len();
        page.fill(front_end, self.slots_at_new - front_end, 0);
        page.put_u16(HIGH_LEN_AT, high.len() as u16);
        page.put_u16(SLOTS_AT_AT, self.slots_at_new as u16);
        page.put_u64(LINK_AT, link.0);
    }
}

/// Removes slots, given in rising order. The page is not built anew: the bytes become garbage.
///
/// # Errors
/// No such slot, or the order is wrong.
pub fn remove(page: &mut PageMut<'_>, slots: &[usize]) -> Result<(), Unfit> {
    let node = sane(page)?;
    let (count, slots_at) = (node.count(), node.slots_at());
    if slots.windows(2).any(|w| w[0] >= w[1]) || slots.last().is_some_and(|&last| last >= count) {
        return Err(Unfit("removes slots that are not there"));
    }
    if node.level() > 0 && slots.first() == Some(&0) && slots.len() < count {
        return Err(Unfit("removes the child that stands for the low fence"));
    }
    let (mut garbage, mut ghosts) = (node.garbage(), node.ghosts());
    for &slot in slots {
        let record = sane_record(&node, slot)?;
        garbage += record.bytes();
        ghosts -= usize::from(record.is_ghost()).min(ghosts);
    }
    for (no, &slot) in slots.iter().enumerate() {
        // What lies between this hole and the next moves down over all holes so far.
        let next = slots.get(no + 1).copied().unwrap_or(count);
        let from = slots_at + (slot + 1) * SLOT_BYTES;
        page.shift(from, from - (no + 1) * SLOT_BYTES, (next - slot - 1) * SLOT_BYTES);
    }
    let left = count - slots.len();
    page.fill(slots_at + left * SLOT_BYTES, slots.len() * SLOT_BYTES, 0);
    page.put_u16(COUNT_AT, left as u16);
    if left == 0 {
        let end = page.words().len_bytes();
        page.put_u16(RECORDS_START_AT, end as u16);
        garbage = 0;
    }
    page.put_u16(GARBAGE_AT, garbage as u16);
    page.put_u16(GHOSTS_AT, ghosts as u16);
    Ok(())
}

/// Takes the pads away from the records in `slots`.
///
/// # Errors
/// No such slot, or it has no pad.
pub fn trim(page: &mut PageMut<'_>, slots: &[usize]) -> Result<(), Unfit> {
    let node = sane(page)?;
    if slots.windows(2).any(|w| w[0] >= w[1]) {
        return Err(Unfit("slots out of order"));
    }
    let mut garbage = node.garbage();
    for &slot in slots {
        let record = sane_record(&node, slot)?;
        if record.pad == 0 {
            return Err(Unfit("no pad"));
        }
        garbage += record.pad;
    }
    if garbage > node.page_bytes() - node.records_start() {
        return Err(Unfit("records overlap"));
    }
    let headers: Vec<(usize, u16)> = slots.iter().map(|&slot| node.record(slot)).map(|r| (r.at, r.header)).collect();
    for (at, header) in headers {
        page.put_u16(at, header & !PADDED);
    }
    page.put_u16(GARBAGE_AT, garbage as u16);
    Ok(())
}

/// Appends records, which come after those that are there, and sets a new high fence and link: the left of two
/// neighbours takes from the right one.
///
/// # Errors
/// They do not fit.
pub fn take(page: &mut PageMut<'_>, link: PageId, high: &[u8], more: &[Entry<'_>]) -> Result<(), Unfit> {
    sane(page)?;
    let copy = copy_of(page);
    let node = Node::new(&copy[..]);
    let mut entries = entries_of(&node);
    entries.extend_from_slice(more);
    put_built(page, &node, link, high, &entries)
}

/// Drops the first `drop` slots and sets a new low fence: the right of two neighbours, when the left one has taken from
/// it.
///
/// # Errors
/// It has no more slots than that, or the fence does not fit.
pub fn cut_low(page: &mut PageMut<'_>, drop: usize, low: &[u8]) -> Result<(), Unfit> {
    sane(page)?;
    let copy = copy_of(page);
    let node = Node::new(&copy[..]);
    let all = entries_of(&node);
    let entries = without_first(node.level(), all.get(drop..).unwrap_or_default());
    if entries.is_empty() {
        return Err(Unfit("drops all slots"));
    }
    put_rebuilt(page, &node, node.link(), low, &node.high(), &entries)
}

/// Makes a slot of an inner node name another page.
///
/// # Errors
/// No such slot, or no child in it.
pub fn repoint(page: &mut PageMut<'_>, slot: usize, child: PageId) -> Result<(), Unfit> {
    let node = sane(page)?;
    let record = sane_record(&node, slot)?;
    if node.level() == 0 || record.value_len() != CHILD_BYTES {
        return Err(Unfit("no child"));
    }
    page.put(record.value_at(), &child_value(child));
    Ok(())
}

/// Sets the link to the right sibling.
///
/// # Errors
/// A node without one gets none this way, and one that has keeps one (N7).
pub fn relink(page: &mut PageMut<'_>, link: PageId) -> Result<(), Unfit> {
    let node = sane(page)?;
    if node.is_rightmost() || link == PageId(0) {
        return Err(Unfit("no right sibling"));
    }
    page.put_u64(LINK_AT, link.0);
    Ok(())
}

/// The value of a child's record.
#[must_use]
pub fn child_value(child: PageId) -> [u8; CHILD_BYTES] {
    let mut value = [0u8; CHILD_BYTES];
    value.copy_from_slice(&child.0.to_le_bytes()[..CHILD_BYTES]);
    value
}
