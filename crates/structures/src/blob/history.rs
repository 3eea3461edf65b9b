//! What a blob's page held before a transaction patched it, read from the log: as `btree/history.rs`, for bytes in
//! place.
//!
//! Nothing here may be called under a latch: the log may have to be read from the device.

use ledgerstone_log::{Backwards, Log, RecordKind};
use ledgerstone_page::{Corrupt, Lsn, PageId};
use ledgerstone_txn::{Image, TxnError, Unseen};

use super::ops::{OP_BLOB_DATA_FORMAT, OP_BLOB_PATCH, read_patch};
use crate::TreeError;

/// The content as a snapshot sees it, if it is neither what the page says nor the image in memory. `lsn` is the page's,
/// as it was when `content` was copied.
///
/// # Errors
/// The log cannot be read, or is not what this crate writes.
pub(super) fn content_before(
    log: &Log,
    (page, lsn): (PageId, Lsn),
    unseen: &Unseen,
    content: Vec<u8>,
    image: Option<&Image>,
) -> Result<Option<Vec<u8>>, TreeError> {
    let (mut lsn, low) = (lsn, unseen.first_lsn());
    let (mut patches, mut oldest) = (Vec::new(), None);
    let mut back = Backwards::new(log, low, 0);
    while lsn >= low {
        let record = log.read_backwards(&mut back, lsn).map_err(TxnError::from)?.to_record();
        let unreadable = || Corrupt::new("log record of a blob's page", lsn.0, 1, 0).on(page);
        if record.kind() == RecordKind::Group {
            let mut prev = None;
            for part in record.parts() {
                let part = part.map_err(|_| unreadable())?;
                if part.page == page {
                    prev = Some(if part.op == OP_BLOB_DATA_FORMAT { Lsn(0) } else { part.prev_page_lsn });
                }
            }
            lsn = prev.ok_or_else(unreadable)?;
            continue;
        }
        if record.page() != page {
            return Err(unreadable().into());
        }
        lsn = record.prev_page_lsn();
        if record.op() == OP_BLOB_PATCH {
            if unseen.contains(record.xid()) {
                oldest = Some(record.lsn());
            }
            patches.push(record);
        }
    }
    let Some(oldest) = oldest else { return Ok(None) };
    if image.is_some_and(|image| image.until < oldest) {
        return Ok(None); // H4 of the tree's
    }
    let mut content = content;
    for record in patches.iter().filter(|record| record.lsn() >= oldest) {
        let unreadable = || Corrupt::new("log record of a blob's patch", record.lsn().0, 1, 0).on(page);
        let (offset, old, _) = read_patch(record.args()).ok_or_else(unreadable)?;
        content.get_mut(offset..offset + old.len()).ok_or_else(unreadable)?.copy_from_slice(old);
    }
    Ok(Some(content))
}
