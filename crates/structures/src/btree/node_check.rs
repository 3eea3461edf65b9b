//! The invariants of a node (N1 to N7 in `node.rs`), proved for bytes that nobody vouches for, and the node printed.

use std::cmp::Ordering;
use std::fmt::Write;

use ledgerstone_page::{Corrupt, Layout, LayoutId, PageId, header};
use ledgerstone_region::Words;

use super::bytes::Bytes;
use super::node::{
    BLOB, BLOB_REF_BYTES, CHILD_BYTES, COUNT_AT, FENCES_AT, GARBAGE_AT, GHOST, GHOSTS_AT, HIGH_LEN_AT, LAYOUT_NODE,
    LINK_AT, LOW_LEN_AT, NODE_FORMAT, Node, PADDED, PREFIX_LEN_AT, RECORDS_START_AT, SLOT_BYTES, SLOTS_AT_AT, head_of,
    key_bytes_max, value_bytes_max,
};

/// The node's layout, for the registry of layouts.
pub struct NodeLayout;

impl Layout for NodeLayout {
    fn id(&self) -> LayoutId {
        LAYOUT_NODE
    }

    fn name(&self) -> &'static str {
        "b-tree node"
    }

    fn check(&self, words: Words<'_>) -> Result<(), Corrupt> {
        check(words)
    }

    fn print(&self, words: Words<'_>) -> String {
        print(words)
    }
}

/// Proves the invariants of a node on a page that is not changing.
///
/// # Errors
/// The first that does not hold, with its place.
pub fn check(words: Words<'_>) -> Result<(), Corrupt> {
    let mut copy = vec![0u8; words.len_bytes()];
    words.copy_to(0, &mut copy);
    check_bytes(&copy)
}

/// [`check`] on a private copy.
///
/// # Errors
/// As [`check`].
pub fn check_bytes(page: &[u8]) -> Result<(), Corrupt> {
    let id = PageId(page.u64(8));
    let fail = |what: &'static str, offset: usize, expected: u64, found: u64| {
        Err(Corrupt::new(what, offset as _, expected, found).on(id))
    };
    let page_bytes = page.len();
    let layout = page.u16(4);
    if layout != LAYOUT_NODE.0 {
        return fail("layout", 4, u64::from(LAYOUT_NODE.0), u64::from(layout));
    }
    let format = page.get(6).copied().unwrap_or(0);
    if format != NODE_FORMAT {
        return fail("format of a b-tree node", 6, u64::from(NODE_FORMAT), u64::from(format));
    }
    let field = |at: usize| usize::from(page.u16(at));
    let node = Node::new(page);
    let key_max = key_bytes_max(page_bytes);

    // N1, and the fields that the others stand on.
    let (low_len, high_len, prefix_len) = (node.low_len(), node.high_len(), node.prefix_len());
    if low_len > key_max {
        return fail("length of the low fence", LOW_LEN_AT, key_max as u64, low_len as u64);
    }
    if high_len > key_max {
        return fail("length of the high fence", HIGH_LEN_AT, key_max as u64, high_len as u64);
    }
    let prefix_max = if node.has_own_prefix() { key_max } else { low_len };
    if prefix_len > prefix_max {
        return fail("length of the prefix", PREFIX_LEN_AT, prefix_max as u64, prefix_len as u64);
    }
    let own = if node.has_own_prefix() { prefix_len } else { 0 };
    let slots_at = FENCES_AT + (low_len + high_len + own).next_multiple_of(SLOT_BYTES);
    if field(SLOTS_AT_AT) != slots_at {
        return fail("place of the slots", SLOTS_AT_AT, slots_at as u64, field(SLOTS_AT_AT) as u64);
    }
    let count = field(COUNT_AT);
    let slots_end = slots_at + count * SLOT_BYTES;
    let start = field(RECORDS_START_AT);
    if slots_end > start || start > page_bytes {
        return fail("start of the records", RECORDS_START_AT, slots_end as u64, start as u64);
    }
    if page.u64(LINK_AT) >> 48 != 0 {
        return fail("upper bits of the link", LINK_AT, 0, page.u64(LINK_AT) >> 48);
    }
    // N7.
    if (node.link() == PageId(0)) != node.is_rightmost() {
        return fail(
            "link without high fence, or fence without link",
            LINK_AT,
            u64::from(!node.is_rightmost()),
            node.link().0,
        );
    }
    let (low, high) = (node.low(), node.high());
    if high_len > 0 && low >= high {
        return fail("low fence not below the high fence", FENCES_AT, 0, 0);
    }

    // N2.
    let mut places: Vec<(usize, usize)> = Vec::with_capacity(count);
    for slot in 0..count {
        let slot_at = slots_at + slot * SLOT_BYTES;
        let record = node.record(slot);
        if record.at < start || record.at + 2 > page_bytes || record.at + record.bytes() > page_bytes {
            return fail("record outside of its area", slot_at, start as u64, record.at as u64);
        }
        places.push((record.at, record.bytes()));
    }
    places.sort_unstable();
    let mut end = start;
    let mut live = 0;
    for &(at, bytes) in &places {
        if at < end {
            return fail("records overlap", at, end as u64, at as u64);
        }
        end = at + bytes;
        live += bytes;
    }
    if page_bytes - start - live != field(GARBAGE_AT) {
        return fail("garbage bytes", GARBAGE_AT, (page_bytes - start - live) as u64, field(GARBAGE_AT) as u64);
    }

    // N3 to N6.
    let mut ghosts = 0;
    for slot in 0..count {
        let slot_at = slots_at + slot * SLOT_BYTES;
        let record = node.record(slot);
        let key = node.key(slot);
        if slot < node.first() {
            if record.key_len != 0 || node.head(slot) != 0 {
                return fail("key in the slot of the low fence", slot_at, 0, record.key_len as u64);
            }
        } else {
            let rest = &key[prefix_len..];
            if head_of(rest) != node.head(slot) {
                return fail("head of a key", slot_at, u64::from(head_of(rest)), u64::from(node.head(slot)));
            }
            if key.len() > key_max {
                return fail("length of a key", slot_at + 6, key_max as u64, key.len() as u64);
            }
            let is_above = match slot.checked_sub(1) {
                Some(before) if before >= node.first() => node.compare_key(before, &key) == Ordering::Less,
                // The child that stands for the low fence comes strictly before.
                Some(_) => low < key,
                None => low <= key,
            };
            if !is_above {
                return fail("keys out of order", slot_at, 0, slot as u64);
            }
        }
        if high_len > 0 && key >= high {
            return fail("key beyond the high fence", slot_at, 0, slot as u64);
        }
        if record.header & PADDED != 0 && record.pad == 0 {
            return fail("length of a pad", record.value_at() + record.value_len(), 1, 0);
        }
        let flags = record.header & (GHOST | BLOB | PADDED);
        let value_len = record.value_len();
        if node.level() > 0 {
            if flags != 0 || value_len != CHILD_BYTES {
                return fail("child", record.at, CHILD_BYTES as u64, u64::from(record.header));
            }
            if node.child(slot) == PageId(0) {
                return fail("child is not a page", record.value_at(), 1, 0);
            }
        } else if flags & BLOB != 0 && value_len != BLOB_REF_BYTES {
            return fail("length of a blob's reference", record.at, BLOB_REF_BYTES as u64, value_len as u64);
        } else if value_len > value_bytes_max(page_bytes, key.len()) {
            let value_max = value_bytes_max(page_bytes, key.len());
            return fail("length of a value", record.at, value_max as u64, value_len as u64);
        }
        ghosts += usize::from(record.is_ghost());
    }
    if ghosts != field(GHOSTS_AT) {
        return fail("count of ghosts", GHOSTS_AT, ghosts as u64, field(GHOSTS_AT) as u64);
    }
    Ok(())
}

/// Bytes of text after which a printed node ends: the slots of a damaged page may all claim the whole page as their
/// key.
pub(super) const PRINT_BYTES_MAX: usize = 4 << 20;

/// The node as people read it, whatever its bytes. A text of several MiB ends with how many slots it leaves out.
#[must_use]
pub fn print(words: Words<'_>) -> String {
    let node = Node::new(words);
    let mut out = String::new();
    let _ = writeln!(
        out,
        "level {} owner {} link {} slots {} ghosts {} garbage {} low \"{}\" high \"{}\" prefix {}",
        node.level(),
        header::owner(words),
        node.link(),
        node.count(),
        node.ghosts(),
        node.garbage(),
        node.low().escape_ascii(),
        node.high().escape_ascii(),
        node.prefix_len(),
    );
    for slot in 0..node.count() {
        if out.len() > PRINT_BYTES_MAX {
            let _ = writeln!(out, "{} more slots, too long to print", node.count() - slot);
            break;
        }
        let record = node.record(slot);
        let key = node.key(slot);
        let _ = write!(out, "{slot:5} \"{}\" ", key.escape_ascii());
        let _ = if node.level() > 0 {
            writeln!(out, "-> {}", node.child(slot))
        } else {
            let flags = match (record.is_ghost(), record.is_blob()) {
                (true, _) => " ghost",
                (_, true) => " blob",
                _ => "",
            };
            writeln!(out, "{} bytes{flags}", record.value_len())
        };
    }
    out
}
