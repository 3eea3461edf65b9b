//! Arguments of the operations: the one place where they are written and read.
//!
//! ```text
//! INSERT   place, header u16, value
//! DELETE   place
//! REVIVE   place
//! PATCH    place, offset u16, len u16, old bytes, new bytes
//! REPLACE  place, old header u16, new header u16, old value, new value
//! FORMAT   root u48, level u8, link u48, low_len u16, high_len u16, count u16, prefix_len u16, low, high, prefix,
//!          then for each slot: key_len u16 (without the prefix), header u16, key, value
//! FENCE    keep u16, link u48, high_len u16, high
//! REMOVE   count u16, slots u16 each, rising
//! TRIM     as REMOVE
//! POST     slot u16, child u48, key_len u16, key
//! FREE     nothing
//! REPOINT  slot u16, child u48
//! RELINK   link u48
//! TAKE     link u48, high_len u16, count u16, prefix_len u16, high, prefix, then each record as in FORMAT
//! CUT_LOW  drop u16, low_len u16, low
//!
//! place    root u48, slot u16, key_len u16, key: where the record was, and how to find it when it has moved
//! ```
//! A record's header is {value_len 13 bits, padded 1, blob 1, ghost 1}; only FORMAT copies pads, behind their values.
//! Lengths are what saves bytes: a record of the log is a multiple of 8 anyway, so that up to 7 zeros may follow the
//! arguments.

use ledgerstone_page::PageId;

use super::entry::Entry;
use super::node::{PADDED, VALUE_LEN, read_pad};
use crate::scratch::Scratch;

/// Arguments being written.
pub(crate) struct Writer(Scratch);

impl Writer {
    #[inline]
    pub(crate) fn new(bytes: usize) -> Writer {
        Writer(Scratch::with_capacity(bytes))
    }

    pub(crate) fn u8(mut self, value: u8) -> Writer {
        self.0.push(value);
        self
    }

    pub(crate) fn u16(mut self, value: usize) -> Writer {
        self.0.extend_from_slice(&(value as u16).to_le_bytes());
        self
    }

    pub(crate) fn page(mut self, id: PageId) -> Writer {
        self.0.extend_from_slice(&id.0.to_le_bytes()[..6]);
        self
    }

    #[inline]
    pub(crate) fn bytes(mut self, bytes: &[u8]) -> Writer {
        self.0.extend_from_slice(bytes);
        self
    }

    /// The first bytes of an entry's key.
    fn prefix(self, entry: Option<&Entry<'_>>, len: usize) -> Writer {
        let (a, b) = entry.map_or((&[][..], &[][..]), |entry| entry.beginning(len));
        self.bytes(a).bytes(b)
    }

    /// An entry, and of its key what comes after the first `skip` bytes.
    #[inline]
    fn entry(self, entry: &Entry<'_>, skip: usize) -> Writer {
        if let Some(rest) = entry.image_after(skip) {
            let key_len = entry.key_len() - skip;
            return self.bytes(&(key_len as u32 | u32::from(entry.header) << 16).to_le_bytes()).bytes(rest);
        }
        let (a, b) = entry.after(skip);
        self.u16(a.len() + b.len()).u16(usize::from(entry.header)).bytes(a).bytes(b).bytes(entry.value)
    }

    pub(crate) fn done(self) -> Vec<u8> {
        self.0.into_vec()
    }

    /// As [`Writer::done`], for what every change of a record needs for a moment.
    pub(crate) fn used(self) -> Scratch {
        self.0
    }
}

/// Bytes of an entry without key and value.
const ENTRY_BYTES_MIN: usize = 4;

/// What all keys of entries in order begin with.
fn prefix_len_of(entries: &[Entry<'_>]) -> usize {
    match (entries.first(), entries.last()) {
        (Some(first), Some(last)) => first.common_with(last),
        _ => 0,
    }
}

/// Arguments being read. Everything is checked: the log may be damaged.
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn new(args: &'a [u8]) -> Reader<'a> {
        Reader(args)
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(head)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.bytes(1).map(|b| b[0])
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.bytes(2).map(|b| u16::from_le_bytes([b[0], b[1]]))
    }

    pub(crate) fn size(&mut self) -> Option<usize> {
        self.u16().map(usize::from)
    }

    pub(crate) fn page(&mut self) -> Option<PageId> {
        self.bytes(6).map(|b| PageId(u64::from_le_bytes([b[0], b[1], b[2], b[3], b[4], b[5], 0, 0])))
    }

    /// What [`Writer::entry`] has written of a record behind this prefix.
    #[inline]
    fn entry(&mut self, prefix: &'a [u8]) -> Option<Entry<'a>> {
        let &[a, b, c, d] = self.0.first_chunk::<ENTRY_BYTES_MIN>()?;
        let (key_len, header) = (usize::from(u16::from_le_bytes([a, b])), u16::from_le_bytes([c, d]));
        let mut end = ENTRY_BYTES_MIN + key_len + value_len(header);
        if header & PADDED != 0 {
            end += self.pad_at(end)?;
        }
        let (record, rest) = self.0.split_at_checked(end)?;
        self.0 = rest;
        Some(Entry::of_image(prefix, &record[2..], header, key_len))
    }

    /// The length of the pad behind a value.
    #[cold]
    fn pad_at(&self, at: usize) -> Option<usize> {
        let first = [*self.0.get(at)?, self.0.get(at + 1).copied().unwrap_or(0)];
        match read_pad(u16::from_le_bytes(first)) {
            0 => None,
            pad => Some(pad),
        }
    }

    /// What is left may only be the zeros that fill up the log record.
    pub(crate) fn end<T>(self, value: T) -> Option<T> {
        (self.0.len() < 8 && self.0.iter().all(|&b| b == 0)).then_some(value)
    }
}

/// Where a record is, and its key for when it has moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place<'a> {
    pub root: PageId,
    pub slot: usize,
    pub key: &'a [u8],
}

impl<'a> Place<'a> {
    #[inline]
    fn write(&self, extra: usize) -> Writer {
        let mut fixed = [0; 10];
        fixed[..8].copy_from_slice(&(self.root.0 | (self.slot as u64) << 48).to_le_bytes());
        fixed[8..].copy_from_slice(&(self.key.len() as u16).to_le_bytes());
        Writer::new(self.bytes() + extra).bytes(&fixed).bytes(self.key)
    }

    fn read(args: &mut Reader<'a>) -> Option<Place<'a>> {
        let (root, slot, len) = (args.page()?, args.size()?, args.size()?);
        Some(Place { root, slot, key: args.bytes(len)? })
    }

    /// Bytes that it takes in arguments.
    pub(crate) fn bytes(&self) -> usize {
        10 + self.key.len()
    }

    /// Reads the place alone, whatever follows.
    pub(crate) fn of(args: &'a [u8]) -> Option<Place<'a>> {
        Place::read(&mut Reader::new(args))
    }
}

fn value_len(header: u16) -> usize {
    usize::from(header & VALUE_LEN)
}

/// INSERT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InsertArgs<'a> {
    pub place: Place<'a>,
    pub header: u16,
    pub value: &'a [u8],
}

impl<'a> InsertArgs<'a> {
    pub(crate) fn write(&self) -> Scratch {
        self.place.write(2 + self.value.len()).u16(usize::from(self.header)).bytes(self.value).used()
    }

    pub(crate) fn read(args: &'a [u8]) -> Option<InsertArgs<'a>> {
        let mut args = Reader::new(args);
        let (place, header) = (Place::read(&mut args)?, args.u16()?);
        let value = args.bytes(value_len(header))?;
        args.end(InsertArgs { place, header, value })
    }
}

/// DELETE, REVIVE.
pub(crate) fn write_place(place: Place<'_>) -> Scratch {
    place.write(0).used()
}

pub(crate) fn read_place(args: &[u8]) -> Option<Place<'_>> {
    let mut args = Reader::new(args);
    let place = Place::read(&mut args)?;
    args.end(place)
}

/// PATCH.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PatchArgs<'a> {
    pub place: Place<'a>,
    pub offset: usize,
    pub old: &'a [u8],
    pub new: &'a [u8],
}

impl<'a> PatchArgs<'a> {
    pub(crate) fn write(&self) -> Scratch {
        let extra = 4 + self.old.len() + self.new.len();
        let offset_and_len = self.offset as u32 | (self.new.len() as u32) << 16;
        self.place.write(extra).bytes(&offset_and_len.to_le_bytes()).bytes(self.old).bytes(self.new).used()
    }

    pub(crate) fn read(args: &'a [u8]) -> Option<PatchArgs<'a>> {
        let mut args = Reader::new(args);
        let (place, offset, len) = (Place::read(&mut args)?, args.size()?, args.size()?);
        let (old, new) = (args.bytes(len)?, args.bytes(len)?);
        args.end(PatchArgs { place, offset, old, new })
    }
}

/// REPLACE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReplaceArgs<'a> {
    pub place: Place<'a>,
    pub old_header: u16,
    pub old: &'a [u8],
    pub new_header: u16,
    pub new: &'a [u8],
}

impl<'a> ReplaceArgs<'a> {
    pub(crate) fn write(&self) -> Scratch {
        let extra = 4 + self.old.len() + self.new.len();
        let headers = self.place.write(extra).u16(usize::from(self.old_header)).u16(usize::from(self.new_header));
        headers.bytes(self.old).bytes(self.new).used()
    }

    pub(crate) fn read(args: &'a [u8]) -> Option<ReplaceArgs<'a>> {
        let mut args = Reader::new(args);
        let (place, old_header, new_header) = (Place::read(&mut args)?, args.u16()?, args.u16()?);
        let (old, new) = (args.bytes(value_len(old_header))?, args.bytes(value_len(new_header))?);
        args.end(ReplaceArgs { place, old_header, old, new_header, new })
    }
}

/// FORMAT.
pub(crate) struct FormatArgs<'a> {
    pub root: PageId,
    pub level: u8,
    pub link: PageId,
    pub low: &'a [u8],
    pub high: &'a [u8],
    pub entries: Vec<Entry<'a>>,
}

impl<'a> FormatArgs<'a> {
    /// Bytes of an empty node's arguments without its fences.
    pub(crate) const FIXED_BYTES: usize = 6 + 1 + 6 + 2 + 2 + 2 + 2;

    pub(crate) fn write(&self) -> Vec<u8> {
        // Slot 0 of an inner node has no key of its own. The others share what the first and the last share.
        let first = usize::from(self.level > 0);
        let prefix_len = prefix_len_of(self.entries.get(first..).unwrap_or_default());
        let bytes: usize = self.entries.iter().map(|e| e.body_bytes() + 2).sum();
        let mut out = Writer::new(Self::FIXED_BYTES + self.low.len() + self.high.len() + prefix_len + bytes)
            .page(self.root)
            .u8(self.level)
            .page(self.link)
            .u16(self.low.len())
            .u16(self.high.len())
            .u16(self.entries.len())
            .u16(prefix_len)
            .bytes(self.low)
            .bytes(self.high)
            .prefix(self.entries.get(first), prefix_len);
        for (slot, entry) in self.entries.iter().enumerate() {
            out = out.entry(entry, if slot < first { entry.key_len() } else { prefix_len });
        }
        out.done()
    }

    /// Reads the root alone, whatever follows.
    pub(crate) fn root(args: &[u8]) -> Option<PageId> {
        Reader::new(args).page()
    }

    pub(crate) fn read(args: &'a [u8]) -> Option<FormatArgs<'a>> {
        let mut args = Reader::new(args);
        let (root, level, link) = (args.page()?, args.u8()?, args.page()?);
        let (low_len, high_len, count, prefix_len) = (args.size()?, args.size()?, args.size()?, args.size()?);
        let (low, high, prefix) = (args.bytes(low_len)?, args.bytes(high_len)?, args.bytes(prefix_len)?);
        let mut entries = Vec::with_capacity(count.min(args.0.len() / ENTRY_BYTES_MIN));
        for slot in 0..count {
            let prefix = if level > 0 && slot == 0 { &[][..] } else { prefix };
            entries.push(args.entry(prefix)?);
        }
        args.end(FormatArgs { root, level, link, low, high, entries })
    }
}

/// FENCE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FenceArgs<'a> {
    pub keep: usize,
    pub link: PageId,
    pub high: &'a [u8],
}

impl<'a> FenceArgs<'a> {
    pub(crate) fn write(&self) -> Vec<u8> {
        Writer::new(10 + self.high.len()).u16(self.keep).page(self.link).u16(self.high.len()).bytes(self.high).done()
    }

    pub(crate) fn read(args: &'a [u8]) -> Option<FenceArgs<'a>> {
        let mut args = Reader::new(args);
        let (keep, link, len) = (args.size()?, args.page()?, args.size()?);
        let high = args.bytes(len)?;
        args.end(FenceArgs { keep, link, high })
    }
}

/// REMOVE.
pub(crate) fn write_remove(slots: &[usize]) -> Vec<u8> {
    slots.iter().fold(Writer::new(2 + 2 * slots.len()).u16(slots.len()), |out, &slot| out.u16(slot)).done()
}

pub(crate) fn read_remove(args: &[u8]) -> Option<Vec<usize>> {
    let mut args = Reader::new(args);
    let count = args.size()?;
    let slots = (0..count).map(|_| args.size()).collect::<Option<Vec<_>>>()?;
    args.end(slots)
}

/// POST.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PostArgs<'a> {
    pub slot: usize,
    pub child: PageId,
    pub key: &'a [u8],
}

impl<'a> PostArgs<'a> {
    pub(crate) fn write(&self) -> Vec<u8> {
        Writer::new(10 + self.key.len()).u16(self.slot).page(self.child).u16(self.key.len()).bytes(self.key).done()
    }

    pub(crate) fn read(args: &'a [u8]) -> Option<PostArgs<'a>> {
        let mut args = Reader::new(args);
        let (slot, child, len) = (args.size()?, args.page()?, args.size()?);
        let key = args.bytes(len)?;
        args.end(PostArgs { slot, child, key })
    }
}

/// REPOINT.
pub(crate) fn write_repoint(slot: usize, child: PageId) -> Vec<u8> {
    Writer::new(8).u16(slot).page(child).done()
}

pub(crate) fn read_repoint(args: &[u8]) -> Option<(usize, PageId)> {
    let mut args = Reader::new(args);
    let (slot, child) = (args.size()?, args.page()?);
    args.end((slot, child))
}

/// RELINK.
pub(crate) fn write_relink(link: PageId) -> Vec<u8> {
    Writer::new(6).page(link).done()
}

pub(crate) fn read_relink(args: &[u8]) -> Option<PageId> {
    let mut args = Reader::new(args);
    let link = args.page()?;
    args.end(link)
}

/// TAKE.
pub(crate) struct TakeArgs<'a> {
    pub link: PageId,
    pub high: &'a [u8],
    pub entries: Vec<Entry<'a>>,
}

impl<'a> TakeArgs<'a> {
    pub(crate) fn write(&self) -> Vec<u8> {
        let prefix_len = prefix_len_of(&self.entries);
        let mut out = Writer::new(12 + self.high.len())
            .page(self.link)
            .u16(self.high.len())
            .u16(self.entries.len())
            .u16(prefix_len)
            .bytes(self.high)
            .prefix(self.entries.first(), prefix_len);
        for entry in &self.entries {
            out = out.entry(entry, prefix_len);
        }
        out.done()
    }

    pub(crate) fn read(args: &'a [u8]) -> Option<TakeArgs<'a>> {
        let mut args = Reader::new(args);
        let (link, high_len, count, prefix_len) = (args.page()?, args.size()?, args.size()?, args.size()?);
        let (high, prefix) = (args.bytes(high_len)?, args.bytes(prefix_len)?);
        let mut entries = Vec::with_capacity(count.min(args.0.len() / ENTRY_BYTES_MIN));
        for _ in 0..count {
            entries.push(args.entry(prefix)?);
        }
        args.end(TakeArgs { link, high, entries })
    }
}

/// CUT_LOW.
pub(crate) fn write_cut_low(drop: usize, low: &[u8]) -> Vec<u8> {
    Writer::new(4 + low.len()).u16(drop).u16(low.len()).bytes(low).done()
}

pub(crate) fn read_cut_low(args: &[u8]) -> Option<(usize, &[u8])> {
    let mut args = Reader::new(args);
    let (drop, len) = (args.size()?, args.size()?);
    let low = args.bytes(len)?;
    args.end((drop, low))
}
