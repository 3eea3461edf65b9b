//! Blobs changed in place: bytes overwritten, pages added, a new length in the record.
//!
//! E1. Bytes are overwritten by patches of data pages, which are undone on the page itself. The key's exclusive lock,
//!     held to the end, keeps the blob from being freed or written anew meanwhile.
//! E2. Before a transaction first patches a page, the page's content is noted for snapshots, under the page's latch.
//!     The blob is the space, and the page's number in it is the key. A reader of a blob at a snapshot asks for each
//!     page (`store.rs`).
//! E3. Pages are added by groups that stay, with their content. The length in the record counts, and it changes with
//!     the transaction. So a rollback leaves pages behind the end. The next addition uses these pages, and overwrites
//!     them as in E1.
//! E4. A blob that becomes shorter keeps its pages until it is replaced, deleted or compacted: snapshots may read them.

use ledgerstone_buffer::{Cache, ExclusivePage};
use ledgerstone_page::planted::{self, Bug};
use ledgerstone_page::{Corrupt, LayoutId, PageId, header};
use ledgerstone_space::Space;
use ledgerstone_txn::{Before, Part, RECORD_OVERHEAD_BYTES, Txn};

use super::data::{CONTENT_AT, LENGTH_AT, content_bytes_max};
use super::index::Extent;
use super::ops::{OP_BLOB_FULL, OP_BLOB_PATCH, patch_args};
use super::store::{append_content, layout_of};
use crate::TreeError;
use crate::difference::difference;

/// Bytes of one patch, at most: its record holds them twice.
const PATCH_BYTES_MAX: usize = 4096;

/// Writes `bytes` at `offset` of the content, adding pages as needed. What lies between the old content and `offset` is
/// the caller's business, and so is the length in the record. The key is locked exclusively.
pub(crate) fn write_at(txn: &mut Txn, space: &Space, root: PageId, offset: u64, bytes: &[u8]) -> Result<(), TreeError> {
    let engine = std::sync::Arc::clone(txn.engine());
    let cache = &engine.cache;
    let per_page = content_bytes_max(cache.page_bytes()) as u64;
    let (_, extents) = layout_of(cache, root)?;
    let capacity: u64 = extents.iter().map(|extent| u64::from(extent.count)).sum::<u64>() * per_page;
    let (mut at, mut rest) = (offset, bytes);
    while at < capacity && !rest.is_empty() {
        let no = at / per_page;
        let from = (at % per_page) as usize;
        let (piece, left) = rest.split_at(rest.len().min(per_page as usize - from));
        overwrite(txn, cache, root, (no, page_at(&extents, no)), from, piece)?;
        (at, rest) = (at + piece.len() as u64, left);
    }
    if rest.is_empty() {
        return Ok(());
    }
    // The first new page begins where the pages end.
    let gap = (at - capacity.min(at)) as usize;
    if gap > 0 {
        return Err(Corrupt::new("write beyond the end of a blob", 0, capacity, at).on(root).into());
    }
    append_content(txn, space, root, rest)
}

/// The page of this number.
fn page_at(extents: &[Extent], mut no: u64) -> PageId {
    for extent in extents {
        if no < u64::from(extent.count) {
            return PageId(extent.first.0 + no);
        }
        no -= u64::from(extent.count);
    }
    PageId::NONE
}

fn overwrite(
    txn: &mut Txn,
    cache: &Cache,
    root: PageId,
    (no, id): (u64, PageId),
    from: usize,
    bytes: &[u8],
) -> Result<(), TreeError> {
    let mut done = 0;
    while done < bytes.len() {
        let piece = &bytes[done..bytes.len().min(done + PATCH_BYTES_MAX)];
        let at = from + done;
        done += piece.len();
        txn.claim(4 * RECORD_OVERHEAD_BYTES + 2 * piece.len())?;
        let mut page = cache.exclusive(id)?;
        check(&page, root)?;
        let per_page = content_bytes_max(cache.page_bytes());
        if page.words().u32(LENGTH_AT) as usize != per_page {
            txn.group(&mut [&mut page], &[Part { page: 0, op: OP_BLOB_FULL, args: &[] }])?;
        }
        let old = page.words().to_vec(CONTENT_AT + at, piece.len());
        let Some(range) = difference(&old, piece) else { continue };
        let content = page.words().to_vec(CONTENT_AT, per_page);
        txn.note(root, &no.to_be_bytes(), Before::Record(0, &content)); // E2
        let args = patch_args(at + range.start, &old[range.clone()], &piece[range]);
        if planted::is_on(Bug::PartStays) {
            txn.group(&mut [&mut page], &[Part { page: 0, op: OP_BLOB_PATCH, args: &args }])?;
            continue;
        }
        txn.update(&mut page, OP_BLOB_PATCH, &args)?;
    }
    Ok(())
}

fn check(page: &ExclusivePage<'_>, root: PageId) -> Result<(), TreeError> {
    let words = page.words();
    if header::layout(words) != LayoutId::BLOB_DATA || header::owner(words) != root {
        return Err(Corrupt::new("owner of a blob's page", 24, root.0, header::owner(words).0).on(page.id()).into());
    }
    Ok(())
}
