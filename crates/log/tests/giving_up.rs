//! Giving up segments holds nobody up for longer than one takes.
#![cfg(not(loom))]

mod kit;

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use kit::*;
use ledgerstone_disk::{Disk, DiskError, DiskFile, DiskLock, Open, SimDisk};
use ledgerstone_log::LogConfig;

/// Notes which segments are made and which are removed, in order.
struct Noting {
    below: SimDisk,
    calls: Mutex<Vec<&'static str>>,
}

impl Disk for Noting {
    fn open(&self, path: &str, how: Open) -> Result<Arc<dyn DiskFile>, DiskError> {
        if path.ends_with(".tmp") {
            self.calls.lock().unwrap().push("make");
        }
        self.below.open(path, how)
    }
    fn exists(&self, path: &str) -> Result<bool, DiskError> {
        self.below.exists(path)
    }
    fn remove(&self, path: &str) -> Result<(), DiskError> {
        self.calls.lock().unwrap().push("remove");
        std::thread::sleep(Duration::from_millis(1)); // As a disk would take; nothing relies on it.
        self.below.remove(path)
    }
    fn rename(&self, from: &str, to: &str) -> Result<(), DiskError> {
        self.below.rename(from, to)
    }
    fn list(&self, dir: &str) -> Result<Vec<String>, DiskError> {
        self.below.list(dir)
    }
    fn create_dir(&self, dir: &str) -> Result<(), DiskError> {
        self.below.create_dir(dir)
    }
    fn sync_dir(&self, dir: &str) -> Result<(), DiskError> {
        self.below.sync_dir(dir)
    }
    fn lock(&self, path: &str) -> Result<Box<dyn DiskLock>, DiskError> {
        self.below.lock(path)
    }
    fn describe(&self) -> String {
        self.below.describe()
    }
}

/// A checkpoint may give up thousands. Whoever needs a new one meanwhile gets it between two of them.
#[test]
fn a_claim_gets_its_segment_while_many_are_given_up() {
    let began = Instant::now();
    for round in 1.. {
        let disk = Arc::new(Noting { below: SimDisk::new(), calls: Mutex::default() });
        let log =
            ledgerstone_log::Log::open(LogConfig { spare_segments: 0, ..config(Arc::clone(&disk) as _) }).unwrap();
        let fill = |no: u64| append_one(&log, no, 1000).and_then(|lsn| log.flush_to(lsn)).unwrap();
        (0..800).for_each(fill);
        disk.calls.lock().unwrap().clear();
        let (is_over, old) = (AtomicBool::new(false), log.durable_lsn());
        std::thread::scope(|scope| {
            scope.spawn(|| (800..4000).take_while(|_| !is_over.load(SeqCst)).for_each(fill));
            assert!(log.recycle_before(old).unwrap() > 20);
            is_over.store(true, SeqCst);
        });
        let calls = std::mem::take(&mut *disk.calls.lock().unwrap());
        let (first, last) =
            (calls.iter().position(|call| *call == "remove"), calls.iter().rposition(|call| *call == "remove"));
        if calls[first.unwrap()..last.unwrap()].contains(&"make") {
            return;
        }
        // The other thread may not have come to it.
        assert!(began.elapsed() < Duration::from_secs(60), "in {round} rounds none was made between: {calls:?}");
    }
}
