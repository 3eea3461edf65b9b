//! Real processes that share a log: one is killed at whatever moment, and another goes on without what it held.
#![cfg(all(target_os = "linux", not(loom)))]

mod kit;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::task::{Wake, Waker};

use kit::*;
use ledgerstone_disk::{Disk, FileDisk};
use ledgerstone_log::{ControlFile, ControlState, Log, LogConfig};
use ledgerstone_page::Lsn;
use ledgerstone_region::atomic::AtomicU64;
use ledgerstone_region::{Dead, Handle, Members, Random, Region, Repair, SlotTable, sync};
use ledgerstone_testkit::other::{Other, dir_in_memory, listen, role, within_patience};

struct Process {
    log: Arc<Log>,
    slots: Arc<SlotTable>,
    control: Arc<ControlFile>,
    disk: Arc<dyn Disk>,
    /// Changes of the control file that have returned.
    changes: Handle<AtomicU64>,
}

impl Process {
    fn of(region: Region, dir: &Path) -> Process {
        let members = Arc::new(Members::join(&region, &dir.join("members")).unwrap());
        let slots = Arc::new(SlotTable::place_among(members, &region, 32).unwrap());
        let disk: Arc<dyn Disk> = Arc::new(FileDisk::new(dir.join("environment")));
        let is_first = region.is_made_here();
        let control = match is_first {
            true => ControlFile::create(&*disk, ControlState::new(ENVIRONMENT, 4096, SEGMENT_BYTES)).unwrap(),
            false => ControlFile::join(&*disk, &region, &slots).unwrap(),
        };
        if is_first {
            control.share(&region, &slots).unwrap();
        }
        let control = Arc::new(control);
        let config = LogConfig {
            region: region.clone(),
            slots: Some(Arc::clone(&slots)),
            control: Some(Arc::clone(&control)),
            ..config(Arc::clone(&disk))
        };
        let log = if is_first { Log::open(config) } else { Log::join(config) }.unwrap();
        Process { log, slots, control, disk, changes: region.place_one("test.changes", 64).unwrap() }
    }

    fn create(dir: &Path) -> Process {
        std::fs::create_dir(dir.join("environment")).unwrap();
        Process::of(Region::create_at(&dir.join("region"), 1 << 20).unwrap(), dir)
    }

    fn repair(&self) -> bool {
        let mend = |dead: &Dead<'_>| self.log.repair(dead).and_then(|()| self.log.inherit(dead));
        let has_repaired = self.slots.repair(mend).unwrap();
        self.log.release_undo(self.log.take_inherited());
        has_repaired
    }

    fn fill(&self) {
        let until = self.log.tail().0 + 2 * SEGMENT_BYTES;
        while self.log.tail().0 < until {
            append_one(&self.log, 1, 1000).unwrap();
        }
        self.log.flush().unwrap();
    }

    /// Changes the control file and the log until it is killed.
    fn hold(&self) {
        let _pin = self.log.pin("until it is killed", self.log.oldest_lsn(), u64::MAX).unwrap();
        assert!(self.log.start_flusher().unwrap());
        println!("holds");
        loop {
            self.control.change(|state| state.page_count += 1).unwrap();
            self.changes.fetch_add(1, SeqCst);
            let lsn = append_one(&self.log, 1, 500).unwrap();
            self.log.request_flush(lsn);
            self.log.flush_to(lsn).unwrap();
        }
    }

    fn wait(&self) {
        struct Says;
        impl Wake for Says {
            fn wake(self: Arc<Self>) {
                println!("woken");
            }
        }
        self.log.on_durable(self.log.tail(), &mut None, &Waker::from(Arc::new(Says)));
        println!("waits");
        listen();
    }
}

/// Not a test, unless another one has started this process.
#[test]
fn the_other_process() {
    let Some((role, dir)) = role() else { return };
    let process = Process::of(Region::join_at(&dir.join("region")).unwrap(), &dir);
    match &*role {
        "holds" => process.hold(),
        "waits" => process.wait(),
        role => panic!("{role}"),
    }
}

#[test]
fn what_a_killed_process_held_is_free() {
    let dir = dir_in_memory();
    let first = Process::create(dir.path());
    let (log, mut random) = (&first.log, Random::new(1));
    for round in 1..=20 {
        let mut other = Other::start("holds", dir.path());
        other.hear("holds");
        let (oldest, before) = (log.oldest_lsn(), first.changes.load(SeqCst));
        assert!(log.has_living_flusher() && !log.start_flusher().unwrap());
        first.fill();
        assert_eq!(log.recycle_before(log.durable_lsn()).unwrap(), 0, "it is pinned");
        within_patience(|| first.changes.load(SeqCst) > before + 3);
        sync::sleep_ns(random.below(3_000_000));
        other.kill();
        within_patience(|| !log.has_living_flusher());
        within_patience(|| first.repair());
        drop(other);
        assert!(log.pinned().is_empty() && log.recycle_before(log.durable_lsn()).unwrap() > 0);
        assert!(log.oldest_lsn() > oldest);
        assert!(log.start_flusher().unwrap());
        log.stop_flusher();
        first.control.change(|state| state.scan_lsn = Lsn(8 * round)).unwrap();
        let (state, changes) = (first.control.state(), first.changes.load(SeqCst));
        assert!((changes..=changes + round).contains(&state.page_count), "{} of {changes}", state.page_count);
        assert!(first.control.is_as_we_left_it().unwrap());
        assert_eq!(ControlFile::open_read_only(&*first.disk).unwrap().state(), state);
    }
}

#[test]
fn a_process_is_told_what_another_has_made_durable() {
    let dir = dir_in_memory();
    let first = Process::create(dir.path());
    for _ in 0..3 {
        let mut other = Other::start("waits", dir.path());
        other.hear("waits");
        append_one(&first.log, 1, 100).and_then(|lsn| first.log.flush_to(lsn)).unwrap();
        other.hear("woken");
        other.end();
    }
    assert!(!first.log.is_failed() && first.log.pinned().is_empty());
}
