//! Single pages made whole again: an old image, and the page's own log records in order (design 6).
//!
//! G1. Each record names the LSN that its page had before. A record is applied only where that is the image's LSN: then
//!     no record is missing between the image and it. A record that formats the page needs no image.
//! G2. All parts of a group that touch a page are applied together.
//! G3. Whether records are missing at the end is shown by the reader of the log, which reads all of it.

use ledgerstone_log::RecordView;
use ledgerstone_op::{PageMut, Registry};
use ledgerstone_page::planted::{self, Bug};
use ledgerstone_page::{Lsn, OpId, PageId, checksum, header};
use ledgerstone_region::{ByNumber, PageBuf};

use crate::RecoveryError;

/// Images of damaged pages on their way forward.
pub struct PageRepair<'r> {
    ops: &'r Registry,
    page_bytes: usize,
    pages: ByNumber<PageId, Image>,
}

/// One page: its image, if there is one yet, and what was done to it.
#[derive(Default)]
struct Image {
    bytes: Option<PageBuf>,
    applied_count: u64,
    /// A record could not be applied for want of an image.
    is_missed: bool,
}

/// The LSN that the page had before, and what is done to it.
type PageParts<'a> = (Lsn, Vec<(OpId, &'a [u8])>);

/// A page that is whole.
pub struct Repaired {
    /// Which.
    pub page: PageId,
    /// Its bytes, sealed.
    pub bytes: Vec<u8>,
    /// The newest change in it.
    pub lsn: Lsn,
    /// Records applied to the image.
    pub applied_count: u64,
}

impl<'r> PageRepair<'r> {
    /// For pages of this size.
    #[must_use]
    pub fn new(ops: &'r Registry, page_bytes: usize) -> PageRepair<'r> {
        PageRepair { ops, page_bytes, pages: ByNumber::new() }
    }

    /// Begins with an image, which is sealed. `None` stands for a page that was never written: then the first record
    /// that changes it must format it.
    ///
    /// # Errors
    /// The image is of another page.
    pub fn begin(&mut self, page: PageId, image: Option<&[u8]>) -> Result<(), RecoveryError> {
        let bytes = match image {
            None => None,
            Some(image) => {
                checksum::verify(image, page).map_err(RecoveryError::Image)?;
                Some(PageBuf::from_bytes(image))
            }
        };
        self.pages.insert(page, Image { bytes, applied_count: 0, is_missed: false });
        Ok(())
    }

    /// The smallest LSN from which any image still needs records. `Lsn(0)` means from the very beginning.
    #[must_use]
    pub fn needs_from(&self) -> Lsn {
        let lsn = |image: &Image| image.bytes.as_ref().map_or(Lsn(0), |b| header::page_lsn(b.words()));
        self.pages.values().map(lsn).min().unwrap_or(Lsn(0))
    }

    /// Applies a record to the pages that it changes.
    ///
    /// # Errors
    /// [`RecoveryError::RepairGap`] (G1), or an operation is unknown or refuses.
    pub fn apply(&mut self, record: RecordView<'_>) -> Result<(), RecoveryError> {
        let lsn = record.lsn();
        if record.kind().has_page() {
            return self.apply_to(lsn, record.page(), record.prev_page_lsn(), &[(record.op(), record.args())]);
        }
        let mut parts: ByNumber<PageId, PageParts<'_>> = ByNumber::new();
        for part in record.parts() {
            let part = part.map_err(|source| RecoveryError::Record { lsn, source })?;
            if self.pages.contains(part.page) {
                parts.get_or_insert_with(part.page, || (part.prev_page_lsn, Vec::new())).1.push((part.op, part.args));
            }
        }
        for (page, (prev, parts)) in parts {
            self.apply_to(lsn, page, prev, &parts)?; // G2
        }
        Ok(())
    }

    fn apply_to(&mut self, lsn: Lsn, id: PageId, prev: Lsn, parts: &[(OpId, &[u8])]) -> Result<(), RecoveryError> {
        let Some(image) = self.pages.get_mut(id) else { return Ok(()) };
        let unknown = |source| RecoveryError::UnknownOperation { lsn, source };
        let formats = match parts.first() {
            Some((op, _)) => self.ops.get(*op).map_err(unknown)?.formats(),
            None => return Ok(()),
        };
        let bytes = match &mut image.bytes {
            Some(bytes) => bytes,
            None if formats => image.bytes.insert(PageBuf::new(self.page_bytes)),
            None => {
                image.is_missed = true; // There is a gap, which the end will show.
                return Ok(());
            }
        };
        let has = header::page_lsn(bytes.words());
        if has >= lsn {
            return Ok(());
        }
        if planted::is_on(Bug::RepairSkipsRecord) && image.applied_count == 1 && !formats {
            image.applied_count += 1;
            header::set_page_lsn(&mut bytes.words_mut(), lsn);
            return Ok(());
        }
        if !formats && has != prev {
            return Err(RecoveryError::RepairGap { page: id, has, lsn, wants: prev });
        }
        for (op, args) in parts {
            let operation = self.ops.get(*op).map_err(unknown)?;
            operation.redo(&mut PageMut::new(id, bytes.words_mut()), args).map_err(|source| RecoveryError::Redo {
                lsn,
                page: id,
                source,
            })?;
        }
        header::set_page_lsn(&mut bytes.words_mut(), lsn);
        image.applied_count += 1;
        Ok(())
    }

    /// The pages as the log leaves them.
    ///
    /// # Errors
    /// [`RecoveryError::NoImage`]: a page had no image, and a record changes the page without formatting it.
    pub fn finish(self) -> Result<Vec<Repaired>, RecoveryError> {
        let whole = |(page, image): (PageId, Image)| {
            let buf = match image.bytes {
                Some(buf) => buf,
                None if image.is_missed => return Err(RecoveryError::NoImage { page }),
                // Neither the backup nor any record since knows it: nothing was ever written there.
                None => {
                    let bytes = vec![0; self.page_bytes];
                    return Ok(Repaired { page, bytes, lsn: Lsn(0), applied_count: 0 });
                }
            };
            let lsn = header::page_lsn(buf.words());
            let mut bytes = buf.to_bytes();
            checksum::seal(&mut bytes);
            Ok(Repaired { page, bytes, lsn, applied_count: image.applied_count })
        };
        self.pages.into_iter().map(whole).collect()
    }
}
