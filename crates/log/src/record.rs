//! A record of the log: its bytes, how they are made and how they are read.
//!
//! ```text
//! offset  size  field
//!      0     4  crc32c of bytes 4..length, xor the seal of (environment, incarnation, LSN), see `seal.rs`
//!      4     3  length in units of 8 bytes, header included
//!      7     1  kind
//!      8     6  transaction id, 0 none
//!     14     2  operation id, 0 none
//!     16     6  previous LSN of the transaction, 0 none
//!     22     2  flags: bits 0..13 the writer's, bits 13..16 how many bytes of padding end the record
//!  -- Update and Compensation only:
//!     24     6  page id
//!     30     2  zero
//!     32     6  previous LSN of the page
//!     38     2  zero
//!  -- then the body, zeros up to a multiple of 8
//! ```
//! Body of a `Compensation` and an `NtaEnd`: first 8 bytes where the rollback goes on (`undo_next`). Body of a
//! `Commit`: the durable LSN known when it was appended, and the time in nanoseconds since 1970 (8 bytes each). Body of
//! an `Incarnation`: the new incarnation. Body of a `Truncate`: the first page that the data file does not have any
//! more. Body of a `Group`: parts, each
//! ```text
//!      0     6  page id
//!      6     2  operation id
//!      8     8  previous LSN of the page
//!     16     4  bytes of arguments
//!     20     4  zero
//!     24        arguments, zeros up to a multiple of 8
//! ```
//! L1. A record's LSN and length are multiples of 8, so the first word of a record is written by one store. The word is
//!     never zero, because a length is at least three units.
//! L2. Two words of a record's header locate it; nothing here trusts a length before it was compared with the bytes
//!     that are there. [`decode`] takes any bytes.
//!
//! This file knows layouts: not what an operation means, nor where records lie.

use ledgerstone_page::{Lsn, OpId, PageId, Xid};
use ledgerstone_region::CrcWords;

use crate::error::Malformed;
use crate::seal::Seal;

/// The end of LSNs, which have 48 bits in records. All LSNs are smaller.
pub const LSN_END: Lsn = Lsn(1 << 48);
/// The end for ordinary records. The 1 TiB behind it is for rollbacks, checkpoints and recoveries.
pub const LSN_LIMIT: Lsn = Lsn(LSN_END.0 - (1 << 40));
/// LSN of the first record of an environment. Smaller LSNs mean "none".
pub const FIRST_LSN: Lsn = Lsn(4096);
/// Longest record, header included.
pub const RECORD_BYTES_MAX: usize = 1 << 20;
/// Header of a record without a page.
pub const HEADER_BYTES: usize = 24;
/// Header of an `Update` or a `Compensation`.
pub const PAGE_HEADER_BYTES: usize = 40;
/// Header of a part of a `Group`.
pub const PART_HEADER_BYTES: usize = 24;
/// The flags that a writer of records may set.
pub const FLAGS_MASK: u16 = (1 << PADDING_SHIFT) - 1;

const PADDING_SHIFT: u32 = 13;
const LOW_48: u64 = (1 << 48) - 1;
/// Longest commit record that is looked for behind the end of the log: a bound on that search.
pub(crate) const COMMIT_BYTES_MAX: usize = 4096;

const _: () = assert!(HEADER_BYTES.is_multiple_of(8) && PAGE_HEADER_BYTES == HEADER_BYTES + 16);
const _: () = assert!(RECORD_BYTES_MAX / 8 < 1 << 24);

/// The purpose of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
#[repr(u8)]
pub enum RecordKind {
    /// One change of one page that can be undone.
    Update = 1,
    /// A change of one page that undoes an `Update`; never undone itself.
    Compensation = 2,
    /// Changes of several pages that are redone together and never undone.
    Group = 3,
    /// The transaction's work stays.
    Commit = 4,
    /// The transaction begins to roll back.
    Abort = 5,
    /// The transaction has rolled back.
    End = 6,
    /// What a recovery needs to begin here.
    Checkpoint = 7,
    /// A nested top action begins.
    NtaBegin = 8,
    /// A nested top action is permanent: rollbacks go on at its `undo_next`.
    NtaEnd = 9,
    /// From here on records are sealed for the incarnation in the body.
    Incarnation = 10,
    /// Fills bytes that somebody reserved and did not write.
    Void = 11,
    /// The transaction votes in a two-phase commit.
    Prepare = 12,
    /// A user's own.
    User = 13,
    /// The data file ends here from now on: whatever earlier records say of pages behind its end is over.
    Truncate = 14,
}

impl RecordKind {
    /// All kinds, in the order of their codes.
    pub const ALL: [RecordKind; 14] = [
        RecordKind::Update,
        RecordKind::Compensation,
        RecordKind::Group,
        RecordKind::Commit,
        RecordKind::Abort,
        RecordKind::End,
        RecordKind::Checkpoint,
        RecordKind::NtaBegin,
        RecordKind::NtaEnd,
        RecordKind::Incarnation,
        RecordKind::Void,
        RecordKind::Prepare,
        RecordKind::User,
        RecordKind::Truncate,
    ];

    /// The kind with this code.
    #[inline]
    pub fn from_code(code: u8) -> Option<RecordKind> {
        RecordKind::ALL.get(usize::from(code).wrapping_sub(1)).copied()
    }

    /// Whether its header names a page.
    #[inline]
    pub fn has_page(self) -> bool {
        matches!(self, RecordKind::Update | RecordKind::Compensation)
    }

    #[inline]
    fn header_bytes(self) -> usize {
        if self.has_page() { PAGE_HEADER_BYTES } else { HEADER_BYTES }
    }

    /// Bytes that its body has at least.
    #[inline]
    fn body_bytes_min(self) -> usize {
        match self {
            RecordKind::Compensation
            | RecordKind::NtaEnd
            | RecordKind::Commit
            | RecordKind::Incarnation
            | RecordKind::Truncate => 8,
            _ => 0,
        }
    }
}

/// A record that is about to be appended. The body comes in pieces, so that no caller has to join them.
#[derive(Debug, Clone, Copy)]
pub struct NewRecord<'a> {
    /// Its purpose.
    pub kind: RecordKind,
    /// The transaction, or `Xid(0)`.
    pub xid: Xid,
    /// The transaction's previous record, or `Lsn(0)`.
    pub prev_lsn: Lsn,
    /// The operation, or `OpId(0)`.
    pub op: OpId,
    /// The writer's flags, within [`FLAGS_MASK`].
    pub flags: u16,
    /// For `Update` and `Compensation`: the page and its previous LSN. Otherwise `None`.
    pub page: Option<(PageId, Lsn)>,
    /// The body.
    pub body: &'a [&'a [u8]],
}

impl NewRecord<'_> {
    /// Bytes that it takes in the log, padding included: what has to be claimed for it.
    #[inline]
    pub fn len_bytes(&self) -> usize {
        self.bytes_unpadded().next_multiple_of(8)
    }

    #[inline]
    fn bytes_unpadded(&self) -> usize {
        let mut bytes = self.kind.header_bytes();
        for piece in self.body {
            bytes += piece.len();
        }
        bytes
    }

    /// The bytes of this record at `lsn`, for tests and tools. [`crate::Log::append`] writes them in place.
    pub fn encode(&self, lsn: Lsn, seal: &Seal) -> Vec<u8> {
        let encoded = Encoded::new(self);
        let mut bytes = Vec::with_capacity(encoded.bytes);
        bytes.extend_from_slice(&encoded.first_word(lsn.0, seal, encoded.crc_of_pieces()).to_le_bytes());
        bytes.extend(encoded.head().iter().skip(1).flat_map(|word| word.to_le_bytes()));
        self.body.iter().for_each(|piece| bytes.extend_from_slice(piece));
        bytes.resize(encoded.bytes, 0);
        bytes
    }
}

/// Longest record whose checksum is computed while it is copied. That of a longer one is computed before, several words
/// at once.
const CRC_WHILE_COPIED_BYTES_MAX: usize = 512;

/// How a record gets its checksum.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Crc {
    /// While its words are copied.
    WhileCopied(CrcWords),
    /// It is this.
    Known(u32),
}

/// A record whose words can be written without its LSN.
pub(crate) struct Encoded<'b> {
    /// The header, without the checksum.
    head: [u64; PAGE_HEADER_BYTES / 8],
    head_count: usize,
    /// What comes behind it, without the padding.
    pub body: &'b [&'b [u8]],
    /// Length of the whole record.
    pub bytes: usize,
    /// All pieces of the body but the last are whole words.
    pub is_in_words: bool,
}

impl<'b> Encoded<'b> {
    /// Puts the header of `record` together.
    ///
    /// # Panics
    /// If the record is longer than [`RECORD_BYTES_MAX`], or an id does not fit its field: bugs of the caller.
    #[inline]
    pub fn new(record: &NewRecord<'b>) -> Encoded<'b> {
        let head_bytes = record.kind.header_bytes();
        let (mut unpadded, mut is_in_words) = (head_bytes, true);
        for piece in record.body {
            is_in_words &= unpadded.is_multiple_of(8);
            unpadded += piece.len();
        }
        let bytes = unpadded.next_multiple_of(8);
        assert!(bytes <= RECORD_BYTES_MAX, "a record of {bytes} bytes, the limit is {RECORD_BYTES_MAX}");
        assert!(record.kind.has_page() == record.page.is_some(), "{:?} with page {:?}", record.kind, record.page);
        assert!(unpadded - head_bytes >= record.kind.body_bytes_min(), "{:?} without its body", record.kind);
        let padding = bytes - unpadded;
        let (xid, prev_lsn) = (record.xid.0, record.prev_lsn.0);
        assert!((xid | prev_lsn) & !LOW_48 == 0, "transaction {xid} or LSN {prev_lsn} exceeds 48 bits");
        assert!(record.flags & !FLAGS_MASK == 0, "flags {:#x} are not the writer's", record.flags);
        let flags = record.flags | (padding as u16) << PADDING_SHIFT;
        let (page, page_lsn) = record.page.map_or((0, 0), |(page, page_lsn)| (page.0, page_lsn.0));
        assert!((page | page_lsn) & !LOW_48 == 0, "page {page} or LSN {page_lsn} exceeds 48 bits");
        let head = [
            ((bytes as u64 / 8) | (record.kind as u64) << 24) << 32,
            xid | u64::from(record.op.0) << 48,
            prev_lsn | u64::from(flags) << 48,
            page,
            page_lsn,
        ];
        Encoded { head, head_count: head_bytes / 8, body: record.body, bytes, is_in_words }
    }

    /// The header. Its first word is not the one that is stored: [`Encoded::first_word`].
    #[inline]
    pub fn head(&self) -> &[u64] {
        &self.head[..self.head_count]
    }

    /// How it gets its checksum.
    #[inline]
    pub fn crc(&self) -> Crc {
        if self.is_in_words
            && self.bytes <= CRC_WHILE_COPIED_BYTES_MAX
            && let Some(crc) = CrcWords::of_processor()
        {
            return Crc::WhileCopied(crc);
        }
        Crc::Known(self.crc_of_pieces())
    }

    /// Its checksum, piece by piece.
    #[inline(never)]
    pub fn crc_of_pieces(&self) -> u32 {
        let mut head = [0; PAGE_HEADER_BYTES];
        for (to, word) in head.as_chunks_mut().0.iter_mut().zip(self.head()) {
            *to = word.to_le_bytes();
        }
        let crc = crc32c::crc32c(&head[4..self.head_count * 8]);
        let crc = self.body.iter().fold(crc, |crc, piece| crc32c::crc32c_append(crc, piece));
        let unpadded = self.head_count * 8 + self.body.iter().map(|piece| piece.len()).sum::<usize>();
        crc32c::crc32c_append(crc, &[0; 8][..self.bytes - unpadded])
    }

    /// The word whose store publishes the record.
    #[inline]
    pub fn first_word(&self, lsn: u64, seal: &Seal, crc: u32) -> u64 {
        self.head[0] | u64::from(crc ^ seal.mix(lsn))
    }
}

/// Length in bytes of a record by its first word, not checked in any way.
#[inline]
pub(crate) fn length_of(first_word: u64) -> u64 {
    (first_word >> 32 & 0xff_ffff) * 8
}

/// Length in bytes of a record by its first word, if that can be.
#[inline]
pub(crate) fn length_checked(first_word: u64) -> Result<usize, Malformed> {
    if first_word == 0 {
        return Err(Malformed::Empty);
    }
    let bytes = length_of(first_word);
    let kind = (first_word >> 56) as u8;
    let kind = RecordKind::from_code(kind).ok_or(Malformed::Kind { kind })?;
    if bytes < kind.header_bytes() as u64 || bytes > RECORD_BYTES_MAX as u64 {
        return Err(Malformed::Length { bytes });
    }
    Ok(bytes as usize)
}

/// Reads the record that begins at the first of `bytes`, which may go on behind it. Checks everything but the checksum
/// and the parts of a group. Takes any bytes.
///
/// # Errors
/// Why the bytes are not a valid record.
#[inline]
pub fn decode(lsn: Lsn, bytes: &[u8]) -> Result<RecordView<'_>, Malformed> {
    let have = bytes.len() as u64;
    if have < 8 {
        return Err(Malformed::Short { needed: 8, have });
    }
    let length = length_checked(le_u64(bytes, 0))?;
    let Some(bytes) = bytes.get(..length) else {
        return Err(Malformed::Short { needed: length as u64, have });
    };
    let record = RecordView { lsn, bytes };
    let (body_end, kind) = (length - record.padding(), record.kind());
    if body_end < kind.header_bytes() + kind.body_bytes_min() {
        return Err(Malformed::Length { bytes: length as u64 });
    }
    Ok(record)
}

/// As [`decode`], and checks the checksum for this LSN under `seal`.
///
/// # Errors
/// Why the bytes are not a valid record.
pub fn decode_sealed<'a>(lsn: Lsn, bytes: &'a [u8], seal: &Seal) -> Result<RecordView<'a>, Malformed> {
    let record = decode(lsn, bytes)?;
    record.check(seal)?;
    Ok(record)
}

/// A record in borrowed bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct RecordView<'a> {
    lsn: Lsn,
    bytes: &'a [u8],
}

impl<'a> RecordView<'a> {
    /// Where it begins.
    #[inline]
    pub fn lsn(&self) -> Lsn {
        self.lsn
    }

    /// Where the next record begins.
    #[inline]
    pub fn end(&self) -> Lsn {
        Lsn(self.lsn.0 + self.bytes.len() as u64)
    }

    /// All its bytes, header and padding included.
    #[inline]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Its purpose.
    #[inline]
    pub fn kind(&self) -> RecordKind {
        // `decode` has looked at the kind.
        RecordKind::from_code(self.bytes[7]).unwrap_or(RecordKind::Void)
    }

    /// The transaction, or `Xid(0)`.
    #[inline]
    pub fn xid(&self) -> Xid {
        Xid(le_u64(self.bytes, 8) & LOW_48)
    }

    /// The operation, or `OpId(0)`.
    #[inline]
    pub fn op(&self) -> OpId {
        OpId((le_u64(self.bytes, 8) >> 48) as u16)
    }

    /// The transaction's previous record, or `Lsn(0)`.
    #[inline]
    pub fn prev_lsn(&self) -> Lsn {
        Lsn(le_u64(self.bytes, 16) & LOW_48)
    }

    /// The writer's flags.
    pub fn flags(&self) -> u16 {
        (le_u64(self.bytes, 16) >> 48) as u16 & FLAGS_MASK
    }

    /// The page of an `Update` or `Compensation`, otherwise [`PageId::NONE`].
    #[inline]
    pub fn page(&self) -> PageId {
        if self.kind().has_page() { PageId(le_u64(self.bytes, 24) & LOW_48) } else { PageId::NONE }
    }

    /// The page's LSN before an `Update` or `Compensation`, otherwise `Lsn(0)`.
    #[inline]
    pub fn prev_page_lsn(&self) -> Lsn {
        if self.kind().has_page() { Lsn(le_u64(self.bytes, 32) & LOW_48) } else { Lsn(0) }
    }

    /// The bytes behind the header, without padding.
    #[inline]
    pub fn body(&self) -> &'a [u8] {
        &self.bytes[self.kind().header_bytes()..self.bytes.len() - self.padding()]
    }

    /// The arguments of the operation: the body, without the `undo_next` of a `Compensation`.
    #[inline]
    pub fn args(&self) -> &'a [u8] {
        let skip = if self.kind() == RecordKind::Compensation { 8 } else { 0 };
        &self.body()[skip..]
    }

    /// Where the rollback goes on after a `Compensation` or `NtaEnd`, otherwise `Lsn(0)`.
    pub fn undo_next(&self) -> Lsn {
        match self.kind() {
            RecordKind::Compensation | RecordKind::NtaEnd => Lsn(le_u64(self.body(), 0)),
            _ => Lsn(0),
        }
    }

    /// The durable LSN that a `Commit` carries, otherwise `Lsn(0)`.
    #[inline]
    pub fn durable_lsn(&self) -> Lsn {
        if self.kind() == RecordKind::Commit { Lsn(le_u64(self.body(), 0)) } else { Lsn(0) }
    }

    /// When a `Commit` was appended, in nanoseconds since 1970 by the machine's clock. `None` if the record does not
    /// say.
    pub fn commit_time_ns(&self) -> Option<u64> {
        (self.kind() == RecordKind::Commit && self.body().len() >= 16).then(|| le_u64(self.body(), 8))
    }

    /// The incarnation that an `Incarnation` record puts in force.
    #[inline]
    pub fn incarnation(&self) -> Option<u64> {
        (self.kind() == RecordKind::Incarnation).then(|| le_u64(self.body(), 0))
    }

    /// The first page that the data file lost by a `Truncate`.
    #[inline]
    pub fn truncated_from(&self) -> Option<PageId> {
        (self.kind() == RecordKind::Truncate).then(|| PageId(le_u64(self.body(), 0)))
    }

    /// The parts of a `Group`. A record of another kind has none.
    pub fn parts(&self) -> Parts<'a> {
        let body = if self.kind() == RecordKind::Group { self.body() } else { &[] };
        Parts { body, at: 0 }
    }

    /// Compares the checksum.
    ///
    /// # Errors
    /// [`Malformed::Checksum`].
    pub fn check(&self, seal: &Seal) -> Result<(), Malformed> {
        let (found, expected) = (self.checksum(), self.crc() ^ seal.mix(self.lsn.0));
        if found == expected { Ok(()) } else { Err(Malformed::Checksum { expected, found }) }
    }

    /// The checksum stored.
    pub(crate) fn checksum(&self) -> u32 {
        le_u64(self.bytes, 0) as u32
    }

    /// The CRC of the bytes, without any seal.
    pub(crate) fn crc(&self) -> u32 {
        crc32c::crc32c(&self.bytes[4..])
    }

    /// A copy that owns its bytes.
    pub fn to_record(&self) -> Record {
        Record { lsn: self.lsn, bytes: self.bytes.into() }
    }

    #[inline]
    fn padding(&self) -> usize {
        (le_u64(self.bytes, 16) >> (48 + PADDING_SHIFT)) as usize & 7
    }
}

/// A record that owns its bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct Record {
    lsn: Lsn,
    bytes: Box<[u8]>,
}

/// As [`RecordView`].
impl Record {
    /// The same record, borrowed.
    #[inline]
    pub fn view(&self) -> RecordView<'_> {
        RecordView { lsn: self.lsn, bytes: &self.bytes }
    }

    /// Where it begins.
    pub fn lsn(&self) -> Lsn {
        self.lsn
    }

    /// Where the next record begins.
    pub fn end(&self) -> Lsn {
        self.view().end()
    }

    /// All its bytes, header and padding included.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Its purpose.
    pub fn kind(&self) -> RecordKind {
        self.view().kind()
    }

    /// The transaction, or `Xid(0)`.
    pub fn xid(&self) -> Xid {
        self.view().xid()
    }

    /// The operation, or `OpId(0)`.
    pub fn op(&self) -> OpId {
        self.view().op()
    }

    /// The transaction's previous record, or `Lsn(0)`.
    pub fn prev_lsn(&self) -> Lsn {
        self.view().prev_lsn()
    }

    /// The writer's flags.
    pub fn flags(&self) -> u16 {
        self.view().flags()
    }

    /// The page of an `Update` or `Compensation`, otherwise [`PageId::NONE`].
    pub fn page(&self) -> PageId {
        self.view().page()
    }

    /// The page's LSN before an `Update` or `Compensation`, otherwise `Lsn(0)`.
    pub fn prev_page_lsn(&self) -> Lsn {
        self.view().prev_page_lsn()
    }

    /// The bytes behind the header, without padding.
    pub fn body(&self) -> &[u8] {
        self.view().body()
    }

    /// The arguments of the operation: the body, without the `undo_next` of a `Compensation`.
    pub fn args(&self) -> &[u8] {
        self.view().args()
    }

    /// Where the rollback goes on after a `Compensation` or `NtaEnd`, otherwise `Lsn(0)`.
    pub fn undo_next(&self) -> Lsn {
        self.view().undo_next()
    }

    /// The durable LSN that a `Commit` carries, otherwise `Lsn(0)`.
    pub fn durable_lsn(&self) -> Lsn {
        self.view().durable_lsn()
    }

    /// The incarnation that an `Incarnation` record puts in force.
    pub fn incarnation(&self) -> Option<u64> {
        self.view().incarnation()
    }

    /// The parts of a `Group`. A record of another kind has none.
    pub fn parts(&self) -> Parts<'_> {
        self.view().parts()
    }
}

/// One change in a `Group`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupPart<'a> {
    /// The page that changes.
    pub page: PageId,
    /// The operation.
    pub op: OpId,
    /// The page's LSN before the group.
    pub prev_page_lsn: Lsn,
    /// The operation's arguments.
    pub args: &'a [u8],
}

/// Iterates over the parts of a group. After an error it ends.
#[derive(Debug, Clone)]
pub struct Parts<'a> {
    body: &'a [u8],
    at: usize,
}

impl<'a> Iterator for Parts<'a> {
    type Item = Result<GroupPart<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.body.get(self.at..).filter(|rest| !rest.is_empty())?;
        let part = part_of(rest).ok_or(Malformed::Part { offset: self.at as u64 });
        self.at = match &part {
            Ok(part) => self.at + PART_HEADER_BYTES + part.args.len().next_multiple_of(8),
            Err(_) => self.body.len(),
        };
        Some(part)
    }
}

fn part_of(bytes: &[u8]) -> Option<GroupPart<'_>> {
    let header = bytes.get(..PART_HEADER_BYTES)?;
    let (place, length) = (le_u64(header, 0), le_u64(header, 16));
    if length >> 32 != 0 {
        return None;
    }
    let length = length as usize;
    let args = bytes.get(PART_HEADER_BYTES..)?.get(..length)?;
    bytes.get(PART_HEADER_BYTES..)?.get(..length.next_multiple_of(8))?;
    Some(GroupPart {
        page: PageId(place & LOW_48),
        op: OpId((place >> 48) as u16),
        prev_page_lsn: Lsn(le_u64(header, 8)),
        args,
    })
}

/// Appends the body of a `Group` to `body`: for each part its page, operation, the page's LSN and the arguments.
pub fn group_body<'a>(body: &mut Vec<u8>, parts: impl IntoIterator<Item = (PageId, OpId, Lsn, &'a [u8])>) {
    for (page, op, prev_page_lsn, args) in parts {
        assert!(page.0 & !LOW_48 == 0, "page {} exceeds 48 bits", page.0);
        assert!(args.len() < RECORD_BYTES_MAX, "group part of {} bytes", args.len());
        body.extend_from_slice(&(page.0 | u64::from(op.0) << 48).to_le_bytes());
        body.extend_from_slice(&prev_page_lsn.0.to_le_bytes());
        body.extend_from_slice(&(args.len() as u64).to_le_bytes());
        body.extend_from_slice(args);
        body.resize(body.len() + args.len().next_multiple_of(8) - args.len(), 0);
    }
}

/// The word at `at`, which the caller has checked.
#[inline]
pub(crate) fn le_u64(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}
