//! What an environment stands on: the simulated disk itself, or a raw store in one file of it.

use std::sync::Arc;

use ledgerstone_disk::{Disk, DiskError, DiskFile, FlatFile, Format, Open, RawDisk, SimDisk};
use ledgerstone_region::Mutex;

/// The file that is the device.
pub(crate) const DEVICE: &str = "device";
const DEVICE_BYTES: u64 = 48 << 20;
/// Small, so that files have many and give them up often.
const EXTENT_BYTES: u64 = 16 << 10;

/// A disk to make an environment on.
///
/// # Errors
/// None, on a disk that was just made.
pub(crate) fn blank(is_raw: bool) -> Result<SimDisk, DiskError> {
    let disk = SimDisk::new();
    if is_raw {
        let file = disk.open(DEVICE, Open::CREATE_NEW)?;
        file.set_len(DEVICE_BYTES)?;
        file.sync()?;
        disk.sync_dir("")?;
    }
    Ok(disk)
}

/// What one life of an environment stands on.
pub(crate) struct Ground {
    pub disk: Arc<dyn Disk>,
    raw: Option<RawDisk>,
    /// Takes the space that is to be missing.
    ballast: Mutex<Option<Arc<dyn DiskFile>>>,
}

impl Ground {
    /// Opens the raw store, if it is one; or formats it, if there may be none yet.
    pub fn new(disk: &SimDisk, is_raw: bool, creates: bool) -> Result<Ground, DiskError> {
        let ballast = Mutex::default();
        if !is_raw {
            return Ok(Ground { disk: Arc::new(disk.clone()), raw: None, ballast });
        }
        let raw = open_raw(disk, creates)?;
        Ok(Ground { disk: Arc::new(raw.clone()), raw: Some(raw), ballast })
    }

    /// Leaves so many bytes free, or as few more as can be.
    pub fn leave_space(&self, disk: &SimDisk, bytes: u64) -> Result<(), DiskError> {
        let Some(raw) = &self.raw else {
            disk.no_space_after(disk.used_bytes() + bytes);
            return Ok(());
        };
        // Without a name, so that nothing of it is in the table.
        let file = raw.open("ballast", Open::CREATE_NEW)?;
        raw.remove("ballast")?;
        file.allocate(0, raw.free_bytes().saturating_sub(bytes) / EXTENT_BYTES * EXTENT_BYTES)?;
        *self.ballast.lock() = Some(file);
        Ok(())
    }
}

/// What an environment on a disk stands on: the disk itself, or the raw store in its file.
pub(crate) fn over(disk: Arc<dyn Disk>, is_raw: bool, creates: bool) -> Result<Arc<dyn Disk>, DiskError> {
    Ok(if is_raw { Arc::new(open_raw(&*disk, creates)?) } else { disk })
}

/// The raw store in the file of a disk.
pub(crate) fn open_raw(disk: &dyn Disk, creates: bool) -> Result<RawDisk, DiskError> {
    let flat = Box::new(FlatFile(disk.open(DEVICE, Open::EXISTING)?));
    match creates {
        true => RawDisk::open_or_format(flat, Format { extent_bytes: Some(EXTENT_BYTES), ..Format::default() }),
        false => RawDisk::open(flat),
    }
}
