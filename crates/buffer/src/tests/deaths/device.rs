//! A data file whose writes take their time: others find half of a page there meanwhile. And one that fails.

use super::*;
use ledgerstone_disk::{DiskError, DiskErrorKind};

/// See the file's beginning.
pub(super) struct Device {
    file: Arc<dyn DiskFile>,
    pub(super) harm: Arc<Harm>,
}

/// What a device does beside its work.
#[derive(Debug, Default)]
pub(super) struct Harm {
    /// How long the half of a page stands there; 0: writes are one.
    pub(super) half_ns: AtomicU64,
    /// The next read of this page fails; page 0 stands for none.
    pub(super) unreadable: AtomicU64,
    /// Writes since.
    pub(super) writes: AtomicU64,
    /// Whether something was written that is not synced.
    pub(super) is_unsynced: AtomicBool,
}

impl Device {
    pub(super) fn over(file: Arc<dyn DiskFile>) -> Device {
        Device { file, harm: Arc::default() }
    }
}

impl DiskFile for Device {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DiskError> {
        let bad = self.harm.unreadable.load(SeqCst) * u64::from(PAGE_BYTES);
        if bad != 0 && (offset..offset + buf.len() as u64).contains(&bad) {
            self.harm.unreadable.store(0, SeqCst);
            return Err(DiskError::new(self.name(), "read", DiskErrorKind::Io(5)));
        }
        self.file.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        let count = self.harm.writes.fetch_add(1, SeqCst);
        self.harm.is_unsynced.store(true, SeqCst);
        let half_ns = self.harm.half_ns.load(SeqCst);
        if half_ns == 0 || !bytes.len().is_multiple_of(PAGE_BYTES as usize) {
            return self.file.write_at(offset, bytes);
        }
        let half = PAGE_BYTES as usize / 2;
        for (no, page) in bytes.chunks(PAGE_BYTES as usize).enumerate() {
            let at = offset + no as u64 * u64::from(PAGE_BYTES);
            let [first, second] = if count.is_multiple_of(2) { [0, half] } else { [half, 0] };
            self.file.write_at(at + first as u64, &page[first..first + half])?;
            sync::sleep_ns(half_ns);
            self.file.write_at(at + second as u64, &page[second..second + half])?;
        }
        Ok(())
    }

    fn write_durable_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        self.file.write_durable_at(offset, bytes)
    }

    fn sync(&self) -> Result<(), DiskError> {
        self.harm.is_unsynced.store(false, SeqCst);
        self.file.sync()
    }

    fn len(&self) -> Result<u64, DiskError> {
        self.file.len()
    }

    fn allocate(&self, offset: u64, len: u64) -> Result<(), DiskError> {
        self.file.allocate(offset, len)
    }

    fn set_len(&self, len: u64) -> Result<(), DiskError> {
        self.file.set_len(len)
    }

    fn name(&self) -> &str {
        self.file.name()
    }
}
