//! A record on its way from one node to another, and what two keys have in common.
//!
//! Its bytes are borrowed. The key has two parts, since a node keeps what all its keys begin with once.

use super::bytes::{Bytes, clamped};
use super::node::{Node, RECORD_HEADER_BYTES};

/// One record, its key in two parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Beginning of the key.
    pub prefix: &'a [u8],
    /// Rest of the key.
    pub suffix: &'a [u8],
    /// Value length and flags, as in the record.
    pub header: u16,
    /// The value, and its pad.
    pub value: &'a [u8],
    /// Header, suffix and value, if they lie together as a record does; else nothing.
    image: &'a [u8],
}

impl<'a> Entry<'a> {
    /// A record whose key is not in parts.
    #[must_use]
    pub fn new(key: &'a [u8], header: u16, value: &'a [u8]) -> Entry<'a> {
        Entry { prefix: &[], suffix: key, header, value, image: &[] }
    }

    /// The record whose bytes `bytes` begin with, behind a prefix. What there is not is left out.
    #[inline]
    pub(super) fn of_record(prefix: &'a [u8], bytes: &'a [u8], key_len: usize, area: usize) -> Entry<'a> {
        let header = bytes.u16(0);
        let image = bytes.get(..RECORD_HEADER_BYTES + key_len + area).unwrap_or_default();
        let (suffix, value) = match image.get(RECORD_HEADER_BYTES..) {
            Some(rest) => rest.split_at(key_len),
            None => {
                let rest = clamped(bytes, RECORD_HEADER_BYTES, key_len + area);
                rest.split_at(key_len.min(rest.len()))
            }
        };
        Entry { prefix, suffix, header, value, image }
    }

    /// The record whose bytes these are, of `key_len` bytes behind a prefix. The image is as long as its header says.
    #[inline]
    pub(super) fn of_image(prefix: &'a [u8], image: &'a [u8], header: u16, key_len: usize) -> Entry<'a> {
        let (suffix, value) = image[RECORD_HEADER_BYTES..].split_at(key_len);
        Entry { prefix, suffix, header, value, image }
    }

    /// What of its record lies behind the first `skip` bytes of its key, if the record lies as a whole.
    #[inline]
    pub(super) fn image_after(&self, skip: usize) -> Option<&'a [u8]> {
        let skip = skip.checked_sub(self.prefix.len()).filter(|&skip| skip <= self.suffix.len())?;
        self.image.get(RECORD_HEADER_BYTES + skip..)
    }

    /// The same record under another key.
    #[must_use]
    pub fn under(&self, key: &'a [u8]) -> Entry<'a> {
        Entry::new(key, self.header, self.value)
    }

    /// Another record under the same key.
    #[must_use]
    pub fn with(&self, header: u16, value: &'a [u8]) -> Entry<'a> {
        Entry { header, value, image: &[], ..*self }
    }

    /// Its record as it lies, behind a prefix of this length.
    #[inline]
    pub(super) fn image(&self, prefix_len: usize) -> Option<&'a [u8]> {
        (self.prefix.len() == prefix_len && !self.image.is_empty()).then_some(self.image)
    }

    /// Bytes of the key.
    #[must_use]
    pub fn key_len(&self) -> usize {
        self.prefix.len() + self.suffix.len()
    }

    /// The whole key.
    #[must_use]
    pub fn key(&self) -> Vec<u8> {
        [self.prefix, self.suffix].concat()
    }

    /// How many bytes its key and that of `other` begin with alike.
    pub(super) fn common_with(&self, other: &Entry<'_>) -> usize {
        if self.prefix == other.prefix {
            return self.prefix.len() + common(self.suffix, other.suffix);
        }
        let (mine, theirs) = (self.prefix.iter().chain(self.suffix), other.prefix.iter().chain(other.suffix));
        mine.zip(theirs).take_while(|(a, b)| a == b).count()
    }

    /// The first `len` bytes of its key, in two parts.
    pub(super) fn beginning(&self, len: usize) -> (&[u8], &[u8]) {
        let in_prefix = len.min(self.prefix.len());
        (&self.prefix[..in_prefix], clamped(self.suffix, 0, len - in_prefix))
    }

    /// Bytes of its record in a node without a prefix.
    #[must_use]
    pub fn body_bytes(&self) -> usize {
        RECORD_HEADER_BYTES + self.key_len() + self.value.len()
    }

    /// The key after its first `skip` bytes, in two parts.
    #[inline]
    pub(super) fn after(&self, skip: usize) -> (&[u8], &[u8]) {
        if skip <= self.prefix.len() {
            (&self.prefix[skip..], self.suffix)
        } else {
            (&[], clamped(self.suffix, skip - self.prefix.len(), usize::MAX))
        }
    }
}

/// The records of a node's private copy, in order.
#[must_use]
pub fn entries_of<'a>(node: &Node<&'a [u8]>) -> Vec<Entry<'a>> {
    let (bytes, first) = (node.bytes(), node.first());
    let prefix = clamped(bytes, node.prefix_at(), node.prefix_len());
    let entry = |slot| {
        let record = node.record(slot);
        let from = bytes.get(record.at..).unwrap_or_default();
        let entry = Entry::of_record(prefix, from, record.key_len, record.area());
        if slot < first { entry.under(&[]) } else { entry }
    };
    let mut entries = Vec::with_capacity(node.count() + 1);
    entries.extend((0..node.count()).map(entry));
    entries
}

/// Entries of a node that begins with them: above the leaves the first one stands for the low fence (N4).
#[must_use]
pub fn without_first<'a>(level: u8, entries: &[Entry<'a>]) -> Vec<Entry<'a>> {
    let mut entries = entries.to_vec();
    if level > 0
        && let Some(first) = entries.first_mut()
    {
        *first = first.under(&[]);
    }
    entries
}

/// How many bytes two strings begin with alike.
#[must_use]
pub fn common(a: &[u8], b: &[u8]) -> usize {
    let (words, others) = (a.as_chunks::<8>().0, b.as_chunks::<8>().0);
    for (no, (word, other)) in words.iter().zip(others).enumerate() {
        let differs = u64::from_le_bytes(*word) ^ u64::from_le_bytes(*other);
        if differs != 0 {
            return 8 * no + differs.trailing_zeros() as usize / 8;
        }
    }
    let done = 8 * words.len().min(others.len());
    done + a[done..].iter().zip(&b[done..]).take_while(|(x, y)| x == y).count()
}

/// As [`separator_between`], of the keys of two entries.
pub(super) fn separator_of(left: &Entry<'_>, right: &Entry<'_>) -> Vec<u8> {
    let shared = left.common_with(right);
    let (a, b) = right.beginning((shared + 1).min(right.key_len()));
    [a, b].concat()
}

/// The shortest string above `left` and not above `right`: what tells two leaves apart.
///
/// `left < right` must hold.
#[must_use]
pub fn separator_between(left: &[u8], right: &[u8]) -> Vec<u8> {
    let shared = common(left, right);
    right[..(shared + 1).min(right.len())].to_vec()
}
