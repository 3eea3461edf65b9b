//! Operations on fixed and versioned pages, to build structures of (Lemon 4.2).
//!
//! | id | name | arguments | undone by |
//! | --- | --- | --- | --- |
//! | 96 | fixed format | owner u48, record_bytes u16 | nothing: in groups, or where nobody sees the page yet |
//! | 97 | fixed insert | slot u16, len u16, record | 98 |
//! | 98 | fixed remove | slot u16, len u16, record | 97 |
//! | 99 | fixed patch | slot u16, offset u16, len u16, old bytes, new bytes | 99 |
//! | 104 | versioned format | owner u48 | nothing |
//! | 105 | versioned insert | slot u16, version u48, len u16, content | 106 |
//! | 106 | versioned remove | slot u16, version u48, len u16, content | 105 |
//! | 107 | versioned update | slot u16, old version u48, len u16, old content, new version u48, len u16, new content | 107 |
//!
//! Y1. All undo is on the page, and slots keep their numbers. Until the transaction has ended, the user of these
//!     operations keeps records on their pages, and keeps others from the room that a rollback needs.
//! Y2. What is removed or overwritten is compared with what the arguments say: page and log must not contradict each
//!     other.

use ledgerstone_op::{DuplicateOperation, PageMut, PageOperation, Registry, Undo, Unfit};
use ledgerstone_page::planted::{self, Bug};
use ledgerstone_page::{Lsn, OpId, PageId, fixed, versioned};

use crate::btree::args::{Reader, Writer};

/// Makes a page a fixed one.
pub const OP_FIXED_FORMAT: OpId = OpId(96);
/// A record comes to a free slot.
pub const OP_FIXED_INSERT: OpId = OpId(97);
/// A record goes.
pub const OP_FIXED_REMOVE: OpId = OpId(98);
/// Bytes of a record change.
pub const OP_FIXED_PATCH: OpId = OpId(99);
/// Makes a page a versioned one.
pub const OP_VERSIONED_FORMAT: OpId = OpId(104);
/// A record comes to a free slot.
pub const OP_VERSIONED_INSERT: OpId = OpId(105);
/// A record goes.
pub const OP_VERSIONED_REMOVE: OpId = OpId(106);
/// A record gets another version and content.
pub const OP_VERSIONED_UPDATE: OpId = OpId(107);

const OPERATIONS: [PageOperation; 8] = [
    PageOperation {
        id: OP_FIXED_FORMAT,
        name: "fixed format",
        formats: true,
        redo: |page, args| {
            let mut args = Reader::new(args);
            let (owner, record_bytes) = (args.page()?, args.u16()?);
            args.end(())?;
            let id = page.id();
            Some(fixed::format(page.words_mut(), id, 0, owner, record_bytes).map_err(|_| Unfit("no such record fits")))
        },
        ..PageOperation::PLAIN
    },
    PageOperation {
        id: OP_FIXED_INSERT,
        name: "fixed insert",
        redo: |page, args| {
            let (slot, record) = read_fixed(args)?;
            Some(fixed::insert_at(page.words_mut(), slot, record).map_err(|_| Unfit("no free slot for such a record")))
        },
        undo: |args| Undo::Page { op: OP_FIXED_REMOVE, args: args.to_vec() },
        print: print_slot,
        ..PageOperation::PLAIN
    },
    PageOperation {
        id: OP_FIXED_REMOVE,
        name: "fixed remove",
        redo: |page, args| {
            let (slot, record) = read_fixed(args)?;
            Some(match fixed::get(page.words(), slot) {
                Ok(Some(found)) if found == record => {
                    fixed::remove(page.words_mut(), slot).map_err(|_| Unfit("no record to remove"))
                }
                _ => Err(Unfit("not the record to remove")),
            })
        },
        undo: |args| Undo::Page { op: OP_FIXED_INSERT, args: args.to_vec() },
        print: print_slot,
        ..PageOperation::PLAIN
    },
    PageOperation {
        id: OP_FIXED_PATCH,
        name: "fixed patch",
        redo: |page, args| {
            let patch = FixedPatch::read(args)?;
            let to = patch.offset + patch.old.len();
            Some(match fixed::get(page.words(), patch.slot) {
                Ok(Some(found)) if found.get(patch.offset..to) == Some(patch.old) => {
                    fixed::patch(page.words_mut(), patch.slot, patch.offset, patch.new)
                        .map_err(|_| Unfit("no such bytes"))
                }
                _ => Err(Unfit("patch of other bytes")),
            })
        },
        undo: |args| match FixedPatch::read(args) {
            Some(_) if planted::is_on(Bug::FixedPatchStays) => Undo::Nothing,
            Some(patch) => {
                let back = FixedPatch { old: patch.new, new: patch.old, ..patch };
                Undo::Page { op: OP_FIXED_PATCH, args: back.write() }
            }
            None => Undo::Nothing,
        },
        print: print_slot,
        ..PageOperation::PLAIN
    },
    PageOperation {
        id: OP_VERSIONED_FORMAT,
        name: "versioned format",
        formats: true,
        redo: |page, args| {
            let mut args = Reader::new(args);
            let owner = args.page()?;
            args.end(())?;
            let id = page.id();
            versioned::format(page.words_mut(), id, 0, owner);
            Some(Ok(()))
        },
        ..PageOperation::PLAIN
    },
    PageOperation {
        id: OP_VERSIONED_INSERT,
        name: "versioned insert",
        redo: |page, args| {
            let (slot, record) = read_versioned(args)?;
            let done = versioned::insert_at(page.words_mut(), slot, record.version, record.content);
            Some(done.map_err(|_| Unfit("no room for the record")))
        },
        undo: |args| Undo::Page { op: OP_VERSIONED_REMOVE, args: args.to_vec() },
        print: print_slot,
        ..PageOperation::PLAIN
    },
    PageOperation {
        id: OP_VERSIONED_REMOVE,
        name: "versioned remove",
        redo: |page, args| {
            let (slot, record) = read_versioned(args)?;
            Some(match holds(page, slot, record) {
                true => versioned::delete(page.words_mut(), slot).map_err(|_| Unfit("no record to remove")),
                false => Err(Unfit("not the record to remove")),
            })
        },
        undo: |args| Undo::Page { op: OP_VERSIONED_INSERT, args: args.to_vec() },
        print: print_slot,
        ..PageOperation::PLAIN
    },
    PageOperation {
        id: OP_VERSIONED_UPDATE,
        name: "versioned update",
        redo: |page, args| {
            let (slot, old, new) = read_update(args)?;
            Some(match holds(page, slot, old) {
                true => versioned::update(page.words_mut(), slot, new.version, new.content)
                    .map_err(|_| Unfit("no room for the record")),
                false => Err(Unfit("not the record to update")),
            })
        },
        undo: |args| match read_update(args) {
            Some((slot, old, new)) => {
                Undo::Page { op: OP_VERSIONED_UPDATE, args: versioned_update_args(slot, new, old) }
            }
            None => Undo::Nothing,
        },
        print: print_slot,
        ..PageOperation::PLAIN
    },
];

fn print_slot(args: &[u8]) -> Option<String> {
    let slot = Reader::new(args).u16()?;
    Some(format!("slot {slot}, {} bytes", args.len()))
}

fn holds(page: &PageMut<'_>, slot: u16, record: VersionedRecord<'_>) -> bool {
    matches!(versioned::get(page.words(), slot), Ok(Some((version, content)))
        if version == record.version && content == record.content)
}

/// Arguments of [`OP_FIXED_FORMAT`].
#[must_use]
pub fn fixed_format_args(owner: PageId, record_bytes: u16) -> Vec<u8> {
    Writer::new(8).page(owner).u16(usize::from(record_bytes)).done()
}

/// Arguments of [`OP_FIXED_INSERT`] and [`OP_FIXED_REMOVE`].
#[must_use]
pub fn fixed_record_args(slot: u16, record: &[u8]) -> Vec<u8> {
    Writer::new(4 + record.len()).u16(usize::from(slot)).u16(record.len()).bytes(record).done()
}

fn read_fixed(args: &[u8]) -> Option<(u16, &[u8])> {
    let mut args = Reader::new(args);
    let (slot, len) = (args.u16()?, args.size()?);
    let record = args.bytes(len)?;
    args.end((slot, record))
}

/// Arguments of [`OP_FIXED_PATCH`]. `old` and `new` have the same length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FixedPatch<'a> {
    /// The record.
    pub slot: u16,
    /// Where in it.
    pub offset: usize,
    /// The bytes that are there.
    pub old: &'a [u8],
    /// The bytes that will be there.
    pub new: &'a [u8],
}

impl<'a> FixedPatch<'a> {
    /// As the log has them.
    #[must_use]
    pub fn write(&self) -> Vec<u8> {
        let out = Writer::new(6 + 2 * self.new.len()).u16(usize::from(self.slot)).u16(self.offset);
        out.u16(self.new.len()).bytes(self.old).bytes(self.new).done()
    }

    fn read(args: &'a [u8]) -> Option<FixedPatch<'a>> {
        let mut args = Reader::new(args);
        let (slot, offset, len) = (args.u16()?, args.size()?, args.size()?);
        let (old, new) = (args.bytes(len)?, args.bytes(len)?);
        args.end(FixedPatch { slot, offset, old, new })
    }
}

/// A record of a versioned page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VersionedRecord<'a> {
    /// The LSN of its last update.
    pub version: Lsn,
    /// Its content.
    pub content: &'a [u8],
}

/// Arguments of [`OP_VERSIONED_FORMAT`].
#[must_use]
pub fn versioned_format_args(owner: PageId) -> Vec<u8> {
    Writer::new(6).page(owner).done()
}

/// Arguments of [`OP_VERSIONED_INSERT`] and [`OP_VERSIONED_REMOVE`].
#[must_use]
pub fn versioned_record_args(slot: u16, record: VersionedRecord<'_>) -> Vec<u8> {
    write_record(Writer::new(10 + record.content.len()).u16(usize::from(slot)), record).done()
}

/// Arguments of [`OP_VERSIONED_UPDATE`].
#[must_use]
pub fn versioned_update_args(slot: u16, old: VersionedRecord<'_>, new: VersionedRecord<'_>) -> Vec<u8> {
    write_record(write_record(Writer::new(32).u16(usize::from(slot)), old), new).done()
}

/// Versions are LSNs, and take as many bytes as page ids do.
fn write_record(out: Writer, record: VersionedRecord<'_>) -> Writer {
    out.page(PageId(record.version.0)).u16(record.content.len()).bytes(record.content)
}

fn take_record<'a>(args: &mut Reader<'a>) -> Option<VersionedRecord<'a>> {
    let (version, len) = (Lsn(args.page()?.0), args.size()?);
    Some(VersionedRecord { version, content: args.bytes(len)? })
}

fn read_versioned(args: &[u8]) -> Option<(u16, VersionedRecord<'_>)> {
    let mut args = Reader::new(args);
    let (slot, record) = (args.u16()?, take_record(&mut args)?);
    args.end((slot, record))
}

fn read_update(args: &[u8]) -> Option<(u16, VersionedRecord<'_>, VersionedRecord<'_>)> {
    let mut args = Reader::new(args);
    let (slot, old, new) = (args.u16()?, take_record(&mut args)?, take_record(&mut args)?);
    args.end((slot, old, new))
}

/// Registers the operations.
///
/// # Errors
/// An id is taken.
pub(crate) fn register(ops: &mut Registry) -> Result<(), DuplicateOperation> {
    PageOperation::register(&OPERATIONS, ops)
}

/// A case for every operation, for the authors' kit.
#[cfg(test)]
pub(crate) fn op_cases(
    page: impl Fn(&[(OpId, Vec<u8>)]) -> ledgerstone_region::PageBuf,
) -> Vec<ledgerstone_op::kit::Case> {
    use ledgerstone_op::kit::Case;
    use ledgerstone_page::slotted;
    let owner = PageId(7);
    let fixed = || {
        page(&[
            (OP_FIXED_FORMAT, fixed_format_args(owner, 12)),
            (OP_FIXED_INSERT, fixed_record_args(3, b"twelve bytes")),
        ])
    };
    let old = VersionedRecord { version: Lsn(400), content: b"old" };
    let new = VersionedRecord { version: Lsn(500), content: b"newer" };
    let versioned = || {
        page(&[
            (OP_VERSIONED_FORMAT, versioned_format_args(owner)),
            (OP_VERSIONED_INSERT, versioned_record_args(0, old)),
            (OP_VERSIONED_INSERT, versioned_record_args(1, new)),
        ])
    };
    // After an undo, records may lie elsewhere in a slotted page, but they are the same.
    let records = |page: ledgerstone_region::Words<'_>| {
        let slots: Vec<u16> = slotted::used_slots(page).collect();
        slots
            .into_iter()
            .flat_map(|slot| [vec![slot as u8], slotted::get(page, slot).unwrap().unwrap()].concat())
            .collect()
    };
    let patch = FixedPatch { slot: 3, offset: 7, old: b"byte", new: b"mite" };
    vec![
        Case::new(OP_FIXED_FORMAT, fixed(), fixed_format_args(owner, 100)),
        Case::new(OP_FIXED_INSERT, fixed(), fixed_record_args(0, &[9; 12])),
        Case::new(OP_FIXED_REMOVE, fixed(), fixed_record_args(3, b"twelve bytes")),
        Case::new(OP_FIXED_PATCH, fixed(), patch.write()),
        Case::new(OP_VERSIONED_FORMAT, versioned(), versioned_format_args(owner)),
        Case::new(OP_VERSIONED_INSERT, versioned(), versioned_record_args(4, new)).same_by(records),
        Case::new(OP_VERSIONED_REMOVE, versioned(), versioned_record_args(0, old)).same_by(records),
        Case::new(OP_VERSIONED_UPDATE, versioned(), versioned_update_args(0, old, new)).same_by(records),
    ]
}
