//! The log: records in pages of their own on the same device.
//!
//! ```text
//! offset  size  field
//!      0     2  length of the whole record, at least 50 (table 2)
//!      2     1  kind: 1 update, 2 compensation, 3 commit, 4 end, 5 checkpoint, 6 begin, 7 abort,
//!                 8 change without bytes before (extended flag commit)
//!      3     1  zero
//!      4     4  transaction; 0 none
//!      8     8  LSN, from the device's one counter
//!     16     8  compensation: the LSN of the update it takes back; checkpoint: the LSN where a restart begins
//!     24     4  logical page
//!     28     2  offset in the page
//!     30     2  n: bytes changed
//!     32     n  bytes after
//!   32+n     n  bytes before (updates only)
//!      :        zeros up to the length
//! ```
//! Records never cross pages, and 0xFF ends a page. Numbers are little-endian. A log page has its running number where
//! data pages have their logical page.
//!
//! G1. Whatever was forced is read again by every restart until a checkpoint says that it is not needed.

use std::collections::VecDeque;

use crate::error::{FlashError, Result};
use crate::ftl::collect::make_room;
use crate::ftl::mount::Mounted;
use crate::ftl::spare::{Kind, Meta};
use crate::ftl::{Core, Protocol};
use crate::nand::{Nand, Pba};
use crate::{Lba, Xid};

const HEADER_BYTES: usize = 32;
/// Table 2.
const RECORD_BYTES_MIN: usize = 50;

/// What a record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum RecordKind {
    Update = 1,
    Compensation = 2,
    Commit = 3,
    End = 4,
    Checkpoint = 5,
    Begin = 6,
    Abort = 7,
    Redo = 8,
}

impl RecordKind {
    fn from_byte(byte: u8) -> Option<Self> {
        use RecordKind::{Abort, Begin, Checkpoint, Commit, Compensation, End, Redo, Update};
        [Update, Compensation, Commit, End, Checkpoint, Begin, Abort, Redo].into_iter().find(|k| *k as u8 == byte)
    }
}

/// A record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogRecord {
    pub kind: RecordKind,
    pub xid: Xid,
    pub lsn: u64,
    pub other_lsn: u64,
    pub lba: Lba,
    pub offset: u16,
    pub after: Vec<u8>,
    pub before: Vec<u8>,
}

impl LogRecord {
    pub fn mark(kind: RecordKind, xid: Xid, lsn: u64) -> Self {
        Self { kind, xid, lsn, other_lsn: 0, lba: 0, offset: 0, after: Vec::new(), before: Vec::new() }
    }

    fn encode(&self) -> Vec<u8> {
        let len = (HEADER_BYTES + self.after.len() + self.before.len()).max(RECORD_BYTES_MIN);
        let mut bytes = Vec::with_capacity(len);
        bytes.extend_from_slice(&(len as u16).to_le_bytes());
        bytes.extend_from_slice(&[self.kind as u8, 0]);
        bytes.extend_from_slice(&self.xid.to_le_bytes());
        bytes.extend_from_slice(&self.lsn.to_le_bytes());
        bytes.extend_from_slice(&self.other_lsn.to_le_bytes());
        bytes.extend_from_slice(&self.lba.to_le_bytes());
        bytes.extend_from_slice(&self.offset.to_le_bytes());
        bytes.extend_from_slice(&(self.after.len() as u16).to_le_bytes());
        bytes.extend_from_slice(&self.after);
        bytes.extend_from_slice(&self.before);
        bytes.resize(len, 0);
        bytes
    }

    /// Reads one record from the front of `bytes`; `None` at the end of a page.
    fn decode(bytes: &[u8]) -> Result<Option<(Self, usize)>> {
        let corrupt = || FlashError::Corrupt("a log record contradicts itself".to_string());
        if bytes.len() < 2 || bytes[..2] == [0xff, 0xff] {
            return Ok(None);
        }
        let short = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let len = usize::from(short(0));
        if len < RECORD_BYTES_MIN || len > bytes.len() {
            return Err(corrupt());
        }
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        let kind = RecordKind::from_byte(bytes[2]).ok_or_else(corrupt)?;
        let n = usize::from(short(30));
        let has_before = kind == RecordKind::Update;
        let end = HEADER_BYTES + n * if has_before { 2 } else { 1 };
        if end > len {
            return Err(corrupt());
        }
        let record = Self {
            kind,
            xid: word(4),
            lsn: long(8),
            other_lsn: long(16),
            lba: word(24),
            offset: short(28),
            after: bytes[HEADER_BYTES..HEADER_BYTES + n].to_vec(),
            before: bytes[HEADER_BYTES + n..end].to_vec(),
        };
        Ok(Some((record, len)))
    }
}

/// A log page on flash that is still needed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogPage {
    pub number: u32,
    pub pba: Pba,
    pub last_lsn: u64,
}

/// A record in the log buffer.
#[derive(Clone, Debug)]
struct Buffered {
    lsn: u64,
    xid: Xid,
    /// The page that it changes; `None` for marks.
    lba: Option<Lba>,
    bytes: Vec<u8>,
}

/// The log: its end in memory, the rest on flash.
#[derive(Clone, Debug, Default)]
pub(crate) struct Log {
    /// Records not yet on flash.
    tail: Vec<Buffered>,
    tail_bytes: usize,
    pub pages: VecDeque<LogPage>,
    pub next_number: u32,
    /// Pages written since the store was opened.
    pub pages_written: u64,
    /// Bytes of the records in them.
    pub bytes_written: u64,
    pub pages_since_checkpoint: u32,
}

impl Log {
    pub fn append(&mut self, record: &LogRecord) {
        let bytes = record.encode();
        self.tail_bytes += bytes.len();
        let changes = matches!(record.kind, RecordKind::Update | RecordKind::Compensation | RecordKind::Redo);
        let lba = changes.then_some(record.lba);
        self.tail.push(Buffered { lsn: record.lsn, xid: record.xid, lba, bytes });
    }

    /// Forgets buffered changes of a page, which is about to carry them itself (4.1).
    pub fn forget_page(&mut self, lba: Lba) {
        self.forget(|record| record.lba == Some(lba));
    }

    /// Forgets buffered records of a transaction that aborts (4.1).
    pub fn forget_txn(&mut self, xid: Xid) {
        self.forget(|record| record.xid == xid);
    }

    fn forget(&mut self, goes: impl Fn(&Buffered) -> bool) {
        self.tail.retain(|record| !goes(record));
        self.tail_bytes = self.tail.iter().map(|record| record.bytes.len()).sum();
    }

    pub fn is_durable(&self, lsn: u64) -> bool {
        self.tail.first().is_none_or(|first| lsn < first.lsn)
    }

    pub fn is_page_full(&self, page_bytes: usize) -> bool {
        self.tail_bytes >= page_bytes
    }

    /// Page of a forced record: rollbacks read it.
    pub fn page_of(&self, lsn: u64) -> Option<Pba> {
        let at = self.pages.partition_point(|page| page.last_lsn < lsn);
        self.pages.get(at).map(|page| page.pba)
    }

    /// Reads the log of a mounted device, from where the last checkpoint says.
    ///
    /// A page that cannot be read was being written or erased when power failed. The first is as if absent, the second
    /// not needed.
    pub fn read<N: Nand>(&mut self, core: &mut Core<N>, mounted: &Mounted) -> Result<Vec<LogRecord>> {
        let mut records = Vec::new();
        // Sorted by number. Of one number only one page counts.
        for found in mounted.pages.iter().filter(|found| found.meta.kind == Kind::Log) {
            let own = match read_page(core, found.pba) {
                Ok(own) => own,
                Err(FlashError::Unreadable(_)) => continue,
                Err(error) => return Err(error),
            };
            core.revive(found.pba);
            let last_lsn = own.iter().map(|record| record.lsn).max().unwrap_or(0);
            self.pages.push_back(LogPage { number: found.meta.lba, pba: found.pba, last_lsn });
            self.next_number = found.meta.lba + 1;
            records.extend(own);
        }
        let checkpoint = records.iter().rev().find(|record: &&LogRecord| record.kind == RecordKind::Checkpoint);
        let start = checkpoint.map_or(0, |record| record.other_lsn);
        records.retain(|record| record.lsn >= start);
        self.drop_before(core, start);
        let numbers = self.pages.iter().map(|page| page.number);
        if let Some((before, after)) = numbers.clone().zip(numbers.skip(1)).find(|(a, b)| a + 1 != *b) {
            return Err(FlashError::Corrupt(format!("the log has no page between {before} and {after}")));
        }
        if let Some(last) = records.last() {
            core.raise_number(last.lsn);
        }
        Ok(records)
    }

    /// Drops the pages whose records all lie before `lsn`.
    pub fn drop_before<N: Nand>(&mut self, core: &mut Core<N>, lsn: u64) {
        while let Some(page) = self.pages.front().filter(|page| page.last_lsn < lsn) {
            core.kill(page.pba);
            self.pages.pop_front();
        }
    }
}

/// Writes the tail to flash. The protocol is the log's owner: writing may collect, and collecting moves log pages.
pub(crate) fn force<N: Nand, P: Protocol<N> + AsMut<Log>>(core: &mut Core<N>, owner: &mut P) -> Result<()> {
    while !owner.as_mut().tail.is_empty() {
        make_room(core, owner)?;
        let log = owner.as_mut();
        let page_bytes = core.page_bytes();
        let mut data = Vec::with_capacity(page_bytes);
        let mut count = 0;
        let mut last_lsn = 0;
        for Buffered { lsn, bytes, .. } in &log.tail {
            if data.len() + bytes.len() > page_bytes {
                break;
            }
            data.extend_from_slice(bytes);
            last_lsn = *lsn;
            count += 1;
        }
        data.resize(page_bytes, 0xff);
        let number = log.next_number;
        let mut meta = Meta { kind: Kind::Log, ..Meta::data(number, 0, u64::from(number) + 1) };
        let pba = core.write(None, &mut meta, &data, &[])?;
        let log = owner.as_mut();
        log.next_number += 1;
        log.pages_written += 1;
        log.pages_since_checkpoint += 1;
        log.pages.push_back(LogPage { number, pba, last_lsn });
        let written: usize = log.tail.drain(..count).map(|record| record.bytes.len()).sum();
        log.tail_bytes -= written;
        log.bytes_written += written as u64;
    }
    Ok(())
}

/// All records of a log page.
pub(crate) fn read_page<N: Nand>(core: &mut Core<N>, pba: Pba) -> Result<Vec<LogRecord>> {
    let mut data = vec![0xff; core.page_bytes()];
    core.read(pba, &mut data)?;
    let (mut records, mut at) = (Vec::new(), 0);
    while let Some((record, len)) = LogRecord::decode(&data[at..])? {
        records.push(record);
        at += len;
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    #[test]
    fn the_layout_is_the_documented_one() {
        let record = LogRecord {
            kind: RecordKind::Update,
            xid: 7,
            lsn: 0x0102,
            other_lsn: 0,
            lba: 9,
            offset: 0x20,
            after: vec![0xa1, 0xa2],
            before: vec![0xb1, 0xb2],
        };
        let bytes = record.encode();
        let text: String = bytes[..36].iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(text, "320001000700000002010000000000000000000000000000090000002000020".to_string() + "0a1a2b1b2");
        assert_eq!(bytes.len(), 50);
        assert_eq!(LogRecord::decode(&bytes).unwrap(), Some((record, 50)));
    }

    #[test]
    fn any_bytes_are_records_or_refused() {
        let mut rng = Rng::new(4);
        for _ in 0..20_000 {
            let mut bytes: Vec<u8> = (0..80).map(|_| rng.next_u64() as u8).collect();
            bytes[..2].copy_from_slice(&(50 + rng.below(40) as u16).to_le_bytes());
            bytes[2] = rng.below(9) as u8;
            bytes[30..32].copy_from_slice(&(rng.below(30) as u16).to_le_bytes());
            if let Ok(Some((record, len))) = LogRecord::decode(&bytes) {
                assert!(len <= 80 && record.after.len() <= len);
            }
        }
    }
}
