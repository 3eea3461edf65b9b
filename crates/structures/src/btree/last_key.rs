//! The key of the record that a scan gave last.
//!
//! Keys of one node begin with the same prefix. So it stays where it is from record to record. Behind it there is
//! always room for a word, which is all that most keys have left: it is copied as one.

use super::bytes::{Bytes, clamped};
use super::node::{Node, RecordAt};
use crate::scratch::Scratch;

const WORD: usize = size_of::<u64>();

pub(super) struct LastKey {
    /// The key, and perhaps more.
    bytes: Scratch,
    len: usize,
    /// The bytes begin with the prefix of the node that keys are taken from, and have a word's room behind it.
    has_prefix: bool,
}

impl LastKey {
    pub(super) fn new() -> LastKey {
        LastKey { bytes: Scratch::new(), len: 0, has_prefix: false }
    }

    #[inline]
    pub(super) fn get(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// The next key comes from another node, or from the same node copied anew.
    pub(super) fn leaves_node(&mut self) {
        self.has_prefix = false;
    }

    /// Becomes the key of a record of `node`.
    #[inline(always)]
    pub(super) fn take(&mut self, node: &Node<&[u8]>, record: &RecordAt) {
        let (page, prefix_len) = (node.bytes(), node.prefix_len());
        if !self.has_prefix {
            self.take_prefix(node);
        }
        self.len = prefix_len + record.key_len;
        if record.key_len <= WORD
            && record.key_at() + WORD <= page.len()
            && let Some(rest) = self.bytes.get_mut(prefix_len..prefix_len + WORD)
        {
            rest.copy_from_slice(&page.u64(record.key_at()).to_le_bytes());
        } else {
            self.take_long(prefix_len, clamped(page, record.key_at(), record.key_len));
        }
    }

    fn take_prefix(&mut self, node: &Node<&[u8]>) {
        self.bytes.clear();
        self.bytes.extend_from_slice(clamped(node.bytes(), node.prefix_at(), node.prefix_len()));
        self.bytes.resize(node.prefix_len() + WORD, 0);
        self.has_prefix = true;
    }

    #[inline(never)]
    fn take_long(&mut self, prefix_len: usize, rest: &[u8]) {
        self.bytes.truncate(prefix_len);
        self.bytes.extend_from_slice(rest);
        self.len = self.bytes.len();
        self.bytes.resize(self.len.max(prefix_len + WORD), 0);
    }
}

#[cfg(test)]
mod tests {
    use ledgerstone_op::{PageMut, Registry};
    use ledgerstone_page::PageId;
    use ledgerstone_region::PageBuf;

    use super::*;
    use crate::btree::args::FormatArgs;
    use crate::btree::entry::Entry;
    use crate::btree::ops::{OP_NODE_FORMAT, register};

    const ROOT: PageId = PageId(7);

    fn leaf(low: &[u8], high: &[u8], keys: &[&[u8]]) -> Vec<u8> {
        let entries = keys.iter().map(|key| Entry::new(key, 0, &[])).collect();
        let args = FormatArgs { root: ROOT, level: 0, link: PageId(9), low, high, entries }.write();
        let (mut page, mut ops) = (PageBuf::new(4096), Registry::new());
        register(&mut ops).unwrap();
        ops.get(OP_NODE_FORMAT).unwrap().redo(&mut PageMut::new(ROOT, page.words_mut()), &args).unwrap();
        page.words().to_vec(0, 4096)
    }

    /// Short and long ones, and those at the end of the page, behind which no word can be read.
    #[test]
    fn keys_of_any_length_follow_each_other() {
        let keys: [&[u8]; 7] = [b"ab", b"abc", b"abcdefghij", b"abcdefghijk", b"abx", b"abxxxxxxxx", b"aby"];
        let pages = [leaf(b"", b"b", &keys), leaf(b"aa", b"ac", &keys), leaf(b"aa", b"ab~", &keys)];
        let mut last = LastKey::new();
        for (page, keys) in pages.iter().flat_map(|page| [(page, &keys); 2]) {
            let node = Node::new(&page[..]);
            last.leaves_node();
            for slot in (0..keys.len()).chain((0..keys.len()).rev()) {
                last.take(&node, &node.record(slot));
                assert_eq!(last.get(), keys[slot], "prefix of {}", node.prefix_len());
            }
        }
    }
}
