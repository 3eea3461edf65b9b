//! However many segments are kept, a few files are open.
#![cfg(not(loom))]

mod kit;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use kit::*;
use ledgerstone_disk::{Disk, DiskError, DiskFile, DiskLock, Open, SimDisk};
use ledgerstone_log::{ControlState, FIRST_LSN, check_segments, tidy_segments};

/// Counts the files that are open, and refuses one too many as a system does that has no more descriptors.
struct Counted {
    disk: SimDisk,
    open: Arc<AtomicUsize>,
}

const OPEN_MAX: usize = 24;

impl Counted {
    fn new() -> Arc<Counted> {
        Arc::new(Counted { disk: SimDisk::new(), open: Arc::default() })
    }

    fn open_count(&self) -> usize {
        self.open.load(Relaxed)
    }
}

struct CountedFile {
    file: Arc<dyn DiskFile>,
    open: Arc<AtomicUsize>,
}

impl Drop for CountedFile {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Relaxed);
    }
}

impl Disk for Counted {
    fn open(&self, path: &str, how: Open) -> Result<Arc<dyn DiskFile>, DiskError> {
        assert!(self.open.fetch_add(1, Relaxed) < OPEN_MAX, "{path} is one file too many");
        let open = Arc::clone(&self.open);
        match self.disk.open(path, how) {
            Ok(file) => Ok(Arc::new(CountedFile { file, open })),
            Err(error) => {
                open.fetch_sub(1, Relaxed);
                Err(error)
            }
        }
    }

    fn exists(&self, path: &str) -> Result<bool, DiskError> {
        self.disk.exists(path)
    }

    fn remove(&self, path: &str) -> Result<(), DiskError> {
        self.disk.remove(path)
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), DiskError> {
        self.disk.rename(from, to)
    }

    fn list(&self, dir: &str) -> Result<Vec<String>, DiskError> {
        self.disk.list(dir)
    }

    fn create_dir(&self, dir: &str) -> Result<(), DiskError> {
        self.disk.create_dir(dir)
    }

    fn sync_dir(&self, dir: &str) -> Result<(), DiskError> {
        self.disk.sync_dir(dir)
    }

    fn lock(&self, path: &str) -> Result<Box<dyn DiskLock>, DiskError> {
        self.disk.lock(path)
    }

    fn describe(&self) -> String {
        self.disk.describe()
    }
}

impl DiskFile for CountedFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DiskError> {
        self.file.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        self.file.write_at(offset, bytes)
    }

    fn write_durable_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        self.file.write_durable_at(offset, bytes)
    }

    fn sync(&self) -> Result<(), DiskError> {
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

#[test]
fn a_log_of_many_segments_has_few_of_them_open() {
    const COUNT: u64 = 2000;
    let counted = Counted::new();
    let disk: Arc<dyn Disk> = Arc::clone(&counted) as _;
    let log = new_log(Arc::clone(&disk));
    let mut lsns = Vec::new();
    for no in 0..COUNT {
        lsns.push(append_one(&log, no, 1000).unwrap());
        log.flush().unwrap();
    }
    assert!(log.tail().0 / SEGMENT_BYTES > 4 * OPEN_MAX as u64);
    // Old ones are opened again, in any order, and what is written to stays open.
    for step in 0..COUNT {
        let no = step * 977 % COUNT;
        assert_eq!(number_of(&log.read(lsns[no as usize]).unwrap()), no);
        if step % 100 == 0 {
            append_one(&log, COUNT + step / 100, 1000).unwrap();
            log.flush().unwrap();
        }
    }
    let end = log.tail();
    drop(log);
    assert_eq!(counted.open_count(), 0);

    // So do those who look through all of them.
    let state = ControlState::new(ENVIRONMENT, 4096, SEGMENT_BYTES);
    check_segments(&disk, &state).unwrap();
    let mut scan = scan(Arc::clone(&disk), FIRST_LSN, 1).settled().unwrap();
    assert_eq!(read_all(&mut scan).unwrap().len() as u64, COUNT + COUNT / 100);
    drop(scan);
    tidy_segments(&disk, SEGMENT_BYTES, end).unwrap();
    assert_eq!(counted.open_count(), 0);
}
