//! Operations of blobs. All but the patch are parts of groups: redone, never undone. The patch is undone on its page,
//! which stays the blob's as long as its transaction has the key locked.
//!
//! | id | name | arguments |
//! | --- | --- | --- |
//! | 64 | blob index format | root u48 |
//! | 65 | blob append: pages follow the content so far | first page u48, count u16 |
//! | 66 | blob shrink: the last pages go, of an index or of a run | count u16 |
//! | 67 | blob link: the next index page | page u48, 0 = none |
//! | 68 | blob data format | root u48, more u16, length u32, content |
//! | 69 | blob free: no page of a blob any more | |
//! | 70 | blob patch: bytes of a data page change | offset in the content u16, len u16, old bytes, new bytes |
//! | 71 | blob full: a data page counts as full, its content continued by zeros | |

use ledgerstone_op::{DuplicateOperation, PageMut, PageOperation, Registry, Undo, Unfit};
use ledgerstone_page::{LayoutId, OpId, PageId, header};

use super::data::{CONTENT_AT, LENGTH_AT, MORE_AT, RUN_PAGES_MAX, content_bytes_max};
use super::index::{self, COUNT_AT, EXTENT_BYTES, EXTENTS_AT, Extent, NEXT_AT, extent_count_max};
use crate::btree::args::{Reader, Writer};

pub(crate) const OP_BLOB_INDEX_FORMAT: OpId = OpId(64);
pub(crate) const OP_BLOB_APPEND: OpId = OpId(65);
pub(crate) const OP_BLOB_SHRINK: OpId = OpId(66);
pub(crate) const OP_BLOB_LINK: OpId = OpId(67);
pub(crate) const OP_BLOB_DATA_FORMAT: OpId = OpId(68);
pub(crate) const OP_BLOB_FREE: OpId = OpId(69);
pub(crate) const OP_BLOB_PATCH: OpId = OpId(70);
pub(crate) const OP_BLOB_FULL: OpId = OpId(71);

const OPERATIONS: [PageOperation; 8] = [
    PageOperation {
        id: OP_BLOB_INDEX_FORMAT,
        name: "blob index format",
        formats: true,
        redo: |page, args| {
            let root = read_page(args)?;
            page.format(LayoutId::BLOB_INDEX, 0, root);
            Some(Ok(()))
        },
        print: |args| read_page(args).map(|root| format!("blob {root}")),
        ..PageOperation::PLAIN
    },
    PageOperation {
        id: OP_BLOB_APPEND,
        name: "blob append",
        redo: |page, args| Some(append(page, read_append(args)?)),
        print: |args| read_append(args).map(|e| format!("{} pages from {}", e.count, e.first)),
        ..PageOperation::PLAIN
    },
    PageOperation {
        id: OP_BLOB_SHRINK,
        name: "blob shrink",
        redo: |page, args| Some(shrink(page, read_shrink(args)?)),
        print: |args| read_shrink(args).map(|count| format!("{count} pages")),
        ..PageOperation::PLAIN
    },
    PageOperation {
        id: OP_BLOB_LINK,
        name: "blob link",
        redo: |page, args| {
            page.put_u64(NEXT_AT, read_page(args)?.0);
            Some(Ok(()))
        },
        print: |args| read_page(args).map(|next| next.to_string()),
        ..PageOperation::PLAIN
    },
    PageOperation {
        id: OP_BLOB_DATA_FORMAT,
        name: "blob data format",
        formats: true,
        redo: |page, args| {
            let (root, more, content) = read_data(args)?;
            if usize::from(more) >= RUN_PAGES_MAX {
                return Some(Err(Unfit("a run longer than runs may be")));
            }
            if content.len() > content_bytes_max(page.len_bytes()) {
                return Some(Err(Unfit("content larger than the page")));
            }
            page.format(LayoutId::BLOB_DATA, 0, root);
            page.put_u32(LENGTH_AT, content.len() as u32);
            page.put_u32(MORE_AT, u32::from(more));
            page.put(CONTENT_AT, content);
            Some(Ok(()))
        },
        print: |args| {
            read_data(args).map(|(root, more, content)| format!("blob {root} {} bytes more {more}", content.len()))
        },
        ..PageOperation::PLAIN
    },
    PageOperation {
        id: OP_BLOB_FREE,
        name: "blob free",
        formats: true,
        redo: |page, _| {
            page.format(LayoutId::ZERO, 0, PageId::NONE);
            Some(Ok(()))
        },
        print: |_| Some(String::new()),
        ..PageOperation::PLAIN
    },
    PageOperation {
        id: OP_BLOB_PATCH,
        name: "blob patch",
        redo: |page, args| {
            let (offset, old, new) = read_patch(args)?;
            let words = page.words();
            let at = CONTENT_AT + offset;
            if header::layout(words) != LayoutId::BLOB_DATA || at + old.len() > words.len_bytes() {
                return Some(Err(Unfit("patch beyond the page")));
            }
            if words.to_vec(at, old.len()) != old {
                return Some(Err(Unfit("patch of other bytes")));
            }
            page.put(at, new);
            Some(Ok(()))
        },
        undo: |args| match read_patch(args) {
            Some((offset, old, new)) => Undo::Page { op: OP_BLOB_PATCH, args: patch_args(offset, new, old) },
            None => Undo::Nothing,
        },
        is_undone_by_page: true,
        print: |args| read_patch(args).map(|(offset, old, _)| format!("{} bytes at {offset}", old.len())),
        ..PageOperation::PLAIN
    },
    PageOperation {
        id: OP_BLOB_FULL,
        name: "blob full",
        redo: |page, _| {
            if header::layout(page.words()) != LayoutId::BLOB_DATA {
                return Some(Err(Unfit("no page of content")));
            }
            let full = content_bytes_max(page.words().len_bytes()) as u32;
            page.put_u32(LENGTH_AT, full);
            Some(Ok(()))
        },
        print: |_| Some(String::new()),
        ..PageOperation::PLAIN
    },
];

pub(super) fn page_args(page: PageId) -> Vec<u8> {
    Writer::new(6).page(page).done()
}

fn read_page(args: &[u8]) -> Option<PageId> {
    let mut args = Reader::new(args);
    let page = args.page()?;
    args.end(page)
}

pub(super) fn append_args(extent: Extent) -> Vec<u8> {
    Writer::new(8).page(extent.first).u16(usize::from(extent.count)).done()
}

fn read_append(args: &[u8]) -> Option<Extent> {
    let mut args = Reader::new(args);
    let (first, count) = (args.page()?, args.u16()?);
    args.end(Extent { first, count })
}

pub(super) fn shrink_args(count: u16) -> Vec<u8> {
    Writer::new(2).u16(usize::from(count)).done()
}

fn read_shrink(args: &[u8]) -> Option<u16> {
    let mut args = Reader::new(args);
    let count = args.u16()?;
    args.end(count)
}

/// `more` pages follow, if this is the first of a run.
pub(super) fn data_args(root: PageId, more: usize, content: &[u8]) -> Vec<u8> {
    let len = content.len() as u32;
    Writer::new(12 + content.len()).page(root).u16(more).bytes(&len.to_le_bytes()).bytes(content).done()
}

fn read_data(args: &[u8]) -> Option<(PageId, u16, &[u8])> {
    let mut args = Reader::new(args);
    let (root, more) = (args.page()?, args.u16()?);
    let len = args.bytes(4)?;
    let len = u32::from_le_bytes([len[0], len[1], len[2], len[3]]) as usize;
    let content = args.bytes(len)?;
    args.end((root, more, content))
}

/// Arguments of a patch; `old` and `new` have one length.
pub(super) fn patch_args(offset: usize, old: &[u8], new: &[u8]) -> Vec<u8> {
    Writer::new(4 + 2 * new.len()).u16(offset).u16(new.len()).bytes(old).bytes(new).done()
}

pub(super) fn read_patch(args: &[u8]) -> Option<(usize, &[u8], &[u8])> {
    let mut args = Reader::new(args);
    let (offset, len) = (args.size()?, args.size()?);
    let (old, new) = (args.bytes(len)?, args.bytes(len)?);
    args.end((offset, old, new))
}

/// Pages that continue the last extent become a part of it.
fn append(page: &mut PageMut<'_>, new: Extent) -> Result<(), Unfit> {
    let words = page.words();
    let count = index::extent_count(words);
    let at = |no: usize| EXTENTS_AT + no * EXTENT_BYTES;
    if new.count == 0 || new.first.is_none() {
        return Err(Unfit("an extent of nothing"));
    }
    if let Some(last_no) = count.checked_sub(1) {
        let last = index::extent(words, last_no);
        if last.first.0 + u64::from(last.count) == new.first.0
            && let Some(both) = last.count.checked_add(new.count)
        {
            page.put_u64(at(last_no), Extent { first: last.first, count: both }.word());
            return Ok(());
        }
    }
    if count >= extent_count_max(page.len_bytes()) {
        return Err(Unfit("the index page is full"));
    }
    page.put_u64(at(count), new.word());
    page.put_u32(COUNT_AT, count as u32 + 1);
    Ok(())
}

fn shrink(page: &mut PageMut<'_>, by: u16) -> Result<(), Unfit> {
    let words = page.words();
    if header::layout(words) == LayoutId::BLOB_DATA {
        let Some(left) = words.u32(MORE_AT).checked_sub(u32::from(by)) else {
            return Err(Unfit("fewer pages than are to go"));
        };
        page.put_u32(MORE_AT, left);
        return Ok(());
    }
    let Some(last_no) = index::extent_count(words).checked_sub(1) else { return Err(Unfit("no extents")) };
    let last = index::extent(words, last_no);
    let at = EXTENTS_AT + last_no * EXTENT_BYTES;
    match last.count.checked_sub(by) {
        None => Err(Unfit("fewer pages than are to go")),
        Some(0) => {
            page.put_u64(at, 0);
            page.put_u32(COUNT_AT, last_no as u32);
            Ok(())
        }
        Some(left) => {
            page.put_u64(at, Extent { first: last.first, count: left }.word());
            Ok(())
        }
    }
}

/// Registers the operations of blobs.
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
    let root = PageId(7);
    let extent = |first, count| append_args(Extent { first: PageId(first), count });
    let empty = || vec![(OP_BLOB_INDEX_FORMAT, page_args(root))];
    let content = || vec![(OP_BLOB_DATA_FORMAT, data_args(root, 2, b"content"))];
    let index = || [empty(), vec![(OP_BLOB_APPEND, extent(20, 8)), (OP_BLOB_APPEND, extent(40, 2))]].concat();
    vec![
        Case::new(OP_BLOB_INDEX_FORMAT, page(&index()), page_args(root)),
        Case::new(OP_BLOB_APPEND, page(&empty()), extent(20, 8)),
        Case::new(OP_BLOB_APPEND, page(&index()), extent(42, 8)),
        Case::new(OP_BLOB_APPEND, page(&index()), extent(43, 1)),
        Case::new(OP_BLOB_SHRINK, page(&index()), shrink_args(1)),
        Case::new(OP_BLOB_SHRINK, page(&index()), shrink_args(2)),
        Case::new(OP_BLOB_SHRINK, page(&content()), shrink_args(2)),
        Case::new(OP_BLOB_LINK, page(&index()), page_args(PageId(99))),
        Case::new(OP_BLOB_DATA_FORMAT, page(&index()), data_args(root, 7, b"content")),
        Case::new(OP_BLOB_FREE, page(&index()), Vec::new()),
        Case::new(OP_BLOB_PATCH, page(&content()), patch_args(2, b"nte", b"ffe")),
        Case::new(OP_BLOB_FULL, page(&content()), Vec::new()),
    ]
}
