//! Blobs made, read and freed.
//!
//! S0. A value of few pages is a run: one group makes all of it, its first page says how many follow, and it never
//!     changes. If there are no pages in a row, or the value is longer or written in parts, an index names the pages.
//! S1. Pages enter and leave a blob in one group with the map's bits. So at any moment the blob's index, or its first
//!     page, names exactly the pages that are allocated for it.
//! S2. Freeing begins at the end and leaves a shorter blob each time. After a crash it goes on from there.
//! S3. A reader holds the lock of the key that refers to the blob, or checks the record again afterwards.

use ledgerstone_buffer::{Cache, SharedPage};
use ledgerstone_page::{Corrupt, LayoutId, PageId, header};
use ledgerstone_space::{OP_SPACE_CLEAR, OP_SPACE_SET, Space, map_of};
use ledgerstone_txn::{At, Image, Look, Part, RECORD_OVERHEAD_BYTES, Txn};

use super::data::{CONTENT_AT, LENGTH_AT, MORE_AT, RUN_PAGES_MAX, content_bytes_max};
use super::history::content_before;
use super::index::{self, Extent, extent_count_max};
use super::ops::{
    OP_BLOB_APPEND, OP_BLOB_DATA_FORMAT, OP_BLOB_FREE, OP_BLOB_INDEX_FORMAT, OP_BLOB_LINK, OP_BLOB_SHRINK, append_args,
    data_args, page_args, shrink_args,
};
use super::{BLOB_BYTES_MAX, BlobRef};
use crate::to_free::Kind;
use crate::{ToFree, TreeError};

/// Data pages written by one group: few, so that small caches have frames for them.
const GROUP_PAGES_MAX: usize = 8;
/// Pages freed by one group.
const FREE_PAGES_MAX: u16 = 1024;
/// Index pages that a blob can need, at most: more means a ring.
const INDEX_PAGES_MAX: usize = BLOB_BYTES_MAX / 1024;

/// Writes a blob. Groups make it, so that it stays if the transaction ends without it. Until the transaction has
/// settled it, its entry in the tree of deferred frees names the transaction, and nobody frees it while that runs.
pub(crate) fn create(txn: &mut Txn, to_free: &ToFree, content: &[u8]) -> Result<BlobRef, TreeError> {
    let per_page = content_bytes_max(txn.engine().cache.page_bytes());
    let count = content.len().div_ceil(per_page).max(1);
    if count <= RUN_PAGES_MAX.min(group_pages(txn)) {
        let args_of = |root: PageId, no: usize| {
            let piece = &content[(no * per_page).min(content.len())..((no + 1) * per_page).min(content.len())];
            data_args(root, if no == 0 { count - 1 } else { 0 }, piece)
        };
        if let Some(root) = to_free.create_run(txn, Kind::Blob, count, OP_BLOB_DATA_FORMAT, &args_of)? {
            return Ok(BlobRef { page: root, len: content.len() as u64 });
        }
    }
    create_with_index(txn, to_free, content)
}

/// Writes a blob to which pages can be added. Otherwise as [`create`].
pub(crate) fn create_with_index(txn: &mut Txn, to_free: &ToFree, content: &[u8]) -> Result<BlobRef, TreeError> {
    let space = to_free.space();
    let root = to_free.create(txn, Kind::Blob, OP_BLOB_INDEX_FORMAT, &page_args)?;
    append_content(txn, space, root, content)?;
    Ok(BlobRef { page: root, len: content.len() as u64 })
}

/// Pages of content that one group may write: it must fit into the log's buffer, too.
fn group_pages(txn: &Txn) -> usize {
    let engine = txn.engine();
    let log_pages = engine.log.claim_bytes_max() as usize / 2 / (engine.cache.page_bytes() + RECORD_OVERHEAD_BYTES);
    log_pages.clamp(1, GROUP_PAGES_MAX)
}

/// Adds pages with this content behind those that a blob has.
pub(super) fn append_content(txn: &mut Txn, space: &Space, root: PageId, content: &[u8]) -> Result<(), TreeError> {
    let engine = std::sync::Arc::clone(txn.engine());
    let cache = &engine.cache;
    let page_bytes = cache.page_bytes();
    let mut last = last_index(cache, root)?;
    let group_pages = group_pages(txn);
    let mut rest = content;
    while !rest.is_empty() {
        let count = rest.len().div_ceil(content_bytes_max(page_bytes)).min(group_pages);
        txn.claim(count * (page_bytes + RECORD_OVERHEAD_BYTES) + 4 * RECORD_OVERHEAD_BYTES)?;
        if index::extent_count(cache.shared(last)?.words()) >= extent_count_max(page_bytes) {
            last = add_index_page(txn, space, cache, root, last)?;
            txn.claim(count * (page_bytes + RECORD_OVERHEAD_BYTES) + 4 * RECORD_OVERHEAD_BYTES)?;
        }
        let mut run = space.latch_free_up_to(count as u32)?;
        let count = run.count as usize;
        let (pages, left) = rest.split_at(rest.len().min(count * content_bytes_max(page_bytes)));
        rest = left;
        let set = run.args_set();
        let append = append_args(Extent { first: run.first, count: count as u16 });
        let mut index = cache.exclusive(last)?;
        let mut data =
            (0..count as u64).map(|no| cache.exclusive_new(PageId(run.first.0 + no))).collect::<Result<Vec<_>, _>>()?;
        let args: Vec<Vec<u8>> =
            pages.chunks(content_bytes_max(page_bytes)).map(|piece| data_args(root, 0, piece)).collect();
        let mut parts =
            vec![Part { page: 0, op: OP_SPACE_SET, args: &set }, Part { page: 1, op: OP_BLOB_APPEND, args: &append }];
        parts.extend(args.iter().enumerate().map(|(no, args)| Part { page: no + 2, op: OP_BLOB_DATA_FORMAT, args }));
        let mut latched = vec![&mut run.map, &mut index];
        latched.extend(data.iter_mut());
        txn.group(&mut latched, &parts)?;
    }
    Ok(())
}

/// The last index page of a blob.
fn last_index(cache: &Cache, root: PageId) -> Result<PageId, TreeError> {
    let (indexes, _) = layout_of(cache, root)?;
    let no_index = || Corrupt::new("index pages of a blob", 0, 1, 0).on(root);
    Ok(indexes.last().copied().ok_or_else(no_index)?)
}

fn add_index_page(
    txn: &mut Txn,
    space: &Space,
    cache: &Cache,
    root: PageId,
    last: PageId,
) -> Result<PageId, TreeError> {
    let mut run = space.latch_free(1)?;
    let new = run.first;
    let (set, format, link) = (run.args_set(), page_args(root), page_args(new));
    let mut before = cache.exclusive(last)?;
    let mut page = cache.exclusive_new(new)?;
    txn.group(
        &mut [&mut run.map, &mut before, &mut page],
        &[
            Part { page: 0, op: OP_SPACE_SET, args: &set },
            Part { page: 2, op: OP_BLOB_INDEX_FORMAT, args: &format },
            Part { page: 1, op: OP_BLOB_LINK, args: &link },
        ],
    )?;
    Ok(new)
}

/// A page of the blob `root`, latched shared.
fn page_of(cache: &Cache, id: PageId, layout: LayoutId, root: PageId) -> Result<SharedPage<'_>, TreeError> {
    let page = cache.shared(id)?;
    check_page(&page, id, layout, root)?;
    Ok(page)
}

fn check_page(page: &SharedPage<'_>, id: PageId, layout: LayoutId, root: PageId) -> Result<(), TreeError> {
    let words = page.words();
    if header::layout(words) != layout {
        let found = u64::from(header::layout(words).0);
        return Err(Corrupt::new("layout of a blob's page", 4, layout.0.into(), found).on(id).into());
    }
    if header::owner(words) != root {
        return Err(Corrupt::new("owner of a blob's page", 24, root.0, header::owner(words).0).on(id).into());
    }
    Ok(())
}

/// The pages of a run, if `page`, the first of a blob, has no index.
fn run_of(page: &SharedPage<'_>, root: PageId) -> Result<Option<Extent>, TreeError> {
    let words = page.words();
    if header::layout(words) != LayoutId::BLOB_DATA {
        return Ok(None);
    }
    check_page(page, root, LayoutId::BLOB_DATA, root)?;
    let more = words.u32(MORE_AT);
    if more as usize >= RUN_PAGES_MAX {
        let max = RUN_PAGES_MAX as u64 - 1;
        return Err(Corrupt::new("pages that follow", MORE_AT as u64, max, more.into()).on(root).into());
    }
    Ok(Some(Extent { first: root, count: more as u16 + 1 }))
}

/// True if pages can be added to a blob.
pub(crate) fn has_index(cache: &Cache, root: PageId) -> Result<bool, TreeError> {
    Ok(run_of(&cache.shared(root)?, root)?.is_none())
}

/// Index pages and extents of a blob.
pub(super) fn layout_of(cache: &Cache, root: PageId) -> Result<(Vec<PageId>, Vec<Extent>), TreeError> {
    if let Some(run) = run_of(&cache.shared(root)?, root)? {
        return Ok((Vec::new(), vec![run]));
    }
    let (mut indexes, mut extents) = (Vec::new(), Vec::new());
    let mut id = root;
    while id != PageId::NONE {
        if indexes.len() >= INDEX_PAGES_MAX {
            let max = INDEX_PAGES_MAX as u64;
            return Err(Corrupt::new("count of a blob's index pages", 0, max, max + 1).on(root).into());
        }
        let page = page_of(cache, id, LayoutId::BLOB_INDEX, root)?;
        indexes.push(id);
        let words = page.words();
        extents.extend((0..index::extent_count(words)).map(|no| index::extent(words, no)));
        id = index::next(words);
    }
    Ok((indexes, extents))
}

/// Appends a blob's whole content to `out`.
pub(crate) fn read(cache: &Cache, blob: BlobRef, out: &mut Vec<u8>) -> Result<(), TreeError> {
    read_range(cache, blob, 0, blob.len, out)
}

/// Appends `len` bytes of a blob's content from `offset` on to `out`, or as many as there are.
///
/// # Errors
/// A page cannot be read, or is not the blob's.
pub fn read_range(cache: &Cache, blob: BlobRef, offset: u64, len: u64, out: &mut Vec<u8>) -> Result<(), TreeError> {
    read_at(cache, blob, (offset, len), None, out)
}

/// The same, as a snapshot sees it if there is one (E2 in `edit.rs`). The floor is looked at afterwards (V4 of the
/// version store): what is read of pages whose images are gone need not even be whole.
pub(crate) fn read_at(
    cache: &Cache,
    blob: BlobRef,
    range: (u64, u64),
    view: Option<(&Txn, At)>,
    out: &mut Vec<u8>,
) -> Result<(), TreeError> {
    let read = read_pages(cache, blob, range, view, out);
    if let Some((txn, at)) = view {
        txn.engine().versions.check(at)?;
    }
    read
}

fn read_pages(
    cache: &Cache,
    blob: BlobRef,
    (offset, len): (u64, u64),
    view: Option<(&Txn, At)>,
    out: &mut Vec<u8>,
) -> Result<(), TreeError> {
    let per_page = content_bytes_max(cache.page_bytes()) as u64;
    let end = offset.saturating_add(len).min(blob.len);
    if offset >= end {
        return Ok(());
    }
    let (_, extents) = layout_of(cache, blob.page)?;
    // All pages of the range are wanted: those that are not in memory come by runs.
    let mut wanted = cache.read_wanted();
    let mut at = 0;
    for extent in extents {
        let all = u64::from(extent.count) * per_page;
        // Extents before and behind the range are passed over.
        let first_no = if offset > at { ((offset - at) / per_page).min(u64::from(extent.count)) } else { 0 };
        let end_no = end.saturating_sub(at).div_ceil(per_page).min(u64::from(extent.count));
        for no in first_no..end_no {
            let from = at + no * per_page;
            let (ahead, left) = (no - first_no, end_no - no);
            if left > 1 && ahead.is_multiple_of(wanted.pages_max()) {
                wanted.run(PageId(extent.first.0 + no), left);
            }
            let id = PageId(extent.first.0 + no);
            let (first, last) = (offset.max(from) - from, end.min(from + per_page) - from);
            read_page(cache, blob.page, (id, from / per_page), (first, last), view, out)?;
        }
        at += all;
    }
    if at < end {
        return Err(Corrupt::new("bytes of a blob", 0, end, at).on(blob.page).into());
    }
    Ok(())
}

/// Appends bytes `first..last` of a data page's content.
fn read_page(
    cache: &Cache,
    root: PageId,
    (id, no): (PageId, u64),
    (first, last): (u64, u64),
    view: Option<(&Txn, At)>,
    out: &mut Vec<u8>,
) -> Result<(), TreeError> {
    let per_page = content_bytes_max(cache.page_bytes()) as u64;
    let too_short = |there| Corrupt::new("length of a blob's page", LENGTH_AT as _, last, there).on(id);
    let range = first as usize..last as usize;
    let mut round = 0;
    loop {
        let page = page_of(cache, id, LayoutId::BLOB_DATA, root)?;
        // Under the page's latch, page and image belong together.
        if let Some((txn, at)) = view
            && page.page_lsn() >= at.horizon
        {
            let mut image = Image::default();
            let look = txn.look(at, root, &no.to_be_bytes(), &mut image);
            let unseen = txn.unseen(at, PageId::NONE);
            if look == Look::Committing || unseen.is_committing {
                drop(page);
                txn.engine().pause_for_commit(round)?;
                round += 1;
                continue;
            }
            let copied = (id, page.page_lsn());
            if copied.1 >= unseen.first_lsn() {
                let content = page.words().to_vec(CONTENT_AT, per_page as usize);
                drop(page);
                let found = (look == Look::Image).then_some(&image);
                let log = &txn.engine().log;
                let before = match content_before(log, copied, &unseen, content.clone(), found)? {
                    Some(before) => before,
                    None if look == Look::Image => image.value,
                    None => content,
                };
                out.extend_from_slice(before.get(range).ok_or_else(|| too_short(before.len() as u64))?);
                return Ok(());
            }
            if look == Look::Image {
                let there = image.value.get(range);
                out.extend_from_slice(there.ok_or_else(|| too_short(image.value.len() as u64))?);
                return Ok(());
            }
        }
        let there = u64::from(page.words().u32(LENGTH_AT)).min(per_page);
        if last > there {
            return Err(too_short(there).into());
        }
        page.words().append_to(CONTENT_AT + first as usize, (last - first) as usize, out);
        return Ok(());
    }
}

/// All pages of a blob; with `len`, checks that they are at least as many as its length needs (more: E3 and E4 in
/// `edit.rs`).
pub(crate) fn pages(cache: &Cache, root: PageId, len: Option<u64>) -> Result<Vec<PageId>, TreeError> {
    let (mut all, extents) = layout_of(cache, root)?;
    let count: u64 = extents.iter().map(|e| u64::from(e.count)).sum();
    let per_page = content_bytes_max(cache.page_bytes()) as u64;
    if let Some(len) = len
        && len.div_ceil(per_page) > count
    {
        return Err(Corrupt::new("pages of a blob", 0, len.div_ceil(per_page), count).on(root).into());
    }
    if count > INDEX_PAGES_MAX as u64 * 64 {
        return Err(Corrupt::new("pages of a blob", 0, INDEX_PAGES_MAX as u64 * 64, count).on(root).into());
    }
    all.extend(extents.iter().flat_map(|e| (0..u64::from(e.count)).map(|no| PageId(e.first.0 + no))));
    Ok(all)
}

/// Frees everything of a blob but its first page, which is freed with the reference to it. Takes `steps_left` groups at
/// most, and counts them down. Says whether that was all of it; otherwise another call goes on (S2).
pub(crate) fn free_content(
    txn: &mut Txn,
    space: &Space,
    root: PageId,
    steps_left: &mut u32,
) -> Result<bool, TreeError> {
    let engine = std::sync::Arc::clone(txn.engine());
    let cache = &engine.cache;
    // Looked for once: an index of many pages would be read again for each group.
    let mut indexes = loop {
        let (indexes, extents) = layout_of(cache, root)?;
        let ([], [run]) = (indexes.as_slice(), extents.as_slice()) else { break indexes };
        if run.count == 1 {
            return Ok(true);
        }
        if *steps_left == 0 {
            return Ok(false);
        }
        *steps_left -= 1;
        txn.claim(6 * RECORD_OVERHEAD_BYTES)?;
        free_pages(txn, space, cache, root, Extent { first: PageId(run.first.0 + 1), count: run.count - 1 })?;
    };
    while let Some(last) = indexes.last().copied() {
        let extent = {
            let page = cache.shared(last)?;
            let count = index::extent_count(page.words());
            count.checked_sub(1).map(|no| index::extent(page.words(), no))
        };
        if extent.is_none() && indexes.len() == 1 {
            return Ok(true);
        }
        if *steps_left == 0 {
            return Ok(false);
        }
        *steps_left -= 1;
        txn.claim(6 * RECORD_OVERHEAD_BYTES)?;
        match extent {
            Some(extent) => free_pages(txn, space, cache, last, extent)?,
            None => {
                indexes.pop();
                free_last_index(txn, space, last, indexes.last().copied().unwrap_or(root))?;
            }
        }
    }
    Ok(true)
}

/// Frees the last index page of a blob, which names no pages any more and follows `before`.
fn free_last_index(txn: &mut Txn, space: &Space, last: PageId, before: PageId) -> Result<(), TreeError> {
    let engine = std::sync::Arc::clone(txn.engine());
    let mut map = space.latch_map_of(last)?;
    let mut before = engine.cache.exclusive(before)?;
    let mut page = engine.cache.exclusive(last)?;
    let (clear, link) = (space.args_clear(&map, last, 1)?, page_args(PageId::NONE));
    txn.group(
        &mut [&mut map, &mut before, &mut page],
        &[
            Part { page: 0, op: OP_SPACE_CLEAR, args: &clear },
            Part { page: 1, op: OP_BLOB_LINK, args: &link },
            Part { page: 2, op: OP_BLOB_FREE, args: &[] },
        ],
    )?;
    Ok(())
}

/// Frees the last pages of a run, or of an index page's last extent, as many as one map covers.
fn free_pages(txn: &mut Txn, space: &Space, cache: &Cache, index: PageId, extent: Extent) -> Result<(), TreeError> {
    let end = extent.first.0 + u64::from(extent.count);
    let map = map_of(PageId(end - 1), cache.page_bytes());
    let is_alike = |count: u16| map_of(PageId(end - u64::from(count)), cache.page_bytes()) == map;
    // One map covers a row of pages from some page on.
    let (mut count, mut too_many) = (1, extent.count.min(FREE_PAGES_MAX) + 1);
    while count + 1 < too_many {
        let middle = count + (too_many - count) / 2;
        if is_alike(middle) { count = middle } else { too_many = middle }
    }
    let first = PageId(end - u64::from(count));
    let mut map = space.latch_map_of(first)?;
    let mut page = cache.exclusive(index)?;
    let (clear, shrink) = (space.args_clear(&map, first, u32::from(count))?, shrink_args(count));
    txn.group(
        &mut [&mut map, &mut page],
        &[Part { page: 0, op: OP_SPACE_CLEAR, args: &clear }, Part { page: 1, op: OP_BLOB_SHRINK, args: &shrink }],
    )?;
    Ok(())
}
