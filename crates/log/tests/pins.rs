//! Pins of one process hold back the log that another one gives up.
#![cfg(not(loom))]

mod kit;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use kit::*;
use ledgerstone_disk::{Disk, SimDisk};
use ledgerstone_log::{Log, LogError};
use ledgerstone_page::Lsn;

fn fill(log: &Log, segments: u64) {
    let until = log.tail().0 + segments * SEGMENT_BYTES;
    while log.tail().0 < until {
        append_one(log, 1, 1000).unwrap();
    }
    log.flush().unwrap();
}

#[test]
fn what_one_process_pins_another_does_not_give_up() {
    let (disk, dir): (Arc<dyn Disk>, _) = (Arc::new(SimDisk::new()), tempfile::tempdir().unwrap());
    let [one, other] = two_logs(dir.path(), &disk);
    fill(&one, 4);
    let pin = other.pin("a backup", Lsn(SEGMENT_BYTES), u64::MAX).unwrap();
    let named = one.pinned();
    assert_eq!((named.len(), named[0].lsn), (1, Lsn(SEGMENT_BYTES)));
    assert_eq!((&*named[0].name, named[0].bytes_max), ("process 1", u64::MAX));
    assert_eq!(other.pinned()[0].name, "a backup");
    assert_eq!(one.to_give_up(one.durable_lsn()).1, Lsn(SEGMENT_BYTES));
    assert_eq!(one.recycle_before(one.durable_lsn()).unwrap(), 1);
    pin.advance(Lsn(3 * SEGMENT_BYTES + 8));
    assert_eq!(one.recycle_before(one.durable_lsn()).unwrap(), 2);
    assert_eq!((one.oldest_lsn(), other.oldest_lsn()), (Lsn(3 * SEGMENT_BYTES), Lsn(3 * SEGMENT_BYTES)));
    let refused = other.pin("too late", Lsn(SEGMENT_BYTES), u64::MAX).map(drop);
    assert!(matches!(refused, Err(LogError::Recycled { oldest, .. }) if oldest == one.oldest_lsn()));
    assert_eq!(one.pinned().len(), 1, "what was refused holds nothing");
    drop(pin);
    assert!(one.pinned().is_empty() && one.recycle_before(one.durable_lsn()).unwrap() > 0);
}

/// Its pin goes with it, although nobody has died.
#[test]
fn a_process_that_leaves_pins_nothing() {
    let (disk, dir): (Arc<dyn Disk>, _) = (Arc::new(SimDisk::new()), tempfile::tempdir().unwrap());
    let [one, other] = two_logs(dir.path(), &disk);
    fill(&one, 3);
    let pin = other.pin_rest("a feed", Lsn(8), u64::MAX);
    drop(other);
    assert_eq!(one.recycle_before(one.durable_lsn()).unwrap(), 0);
    drop(pin); // The last that had the log.
    assert!(one.pinned().is_empty() && one.recycle_before(one.durable_lsn()).unwrap() > 0);
}

/// What a pin with a bound no longer holds is given up once its process has looked again.
#[test]
fn a_bound_of_another_process_counts_from_its_last_look() {
    let (disk, dir): (Arc<dyn Disk>, _) = (Arc::new(SimDisk::new()), tempfile::tempdir().unwrap());
    let [one, other] = two_logs(dir.path(), &disk);
    fill(&one, 2);
    let _near = other.pin("a bound", Lsn(SEGMENT_BYTES), 4 * SEGMENT_BYTES).unwrap();
    let _newest = other.pin_newest("the newest", 2 * SEGMENT_BYTES);
    fill(&one, 8);
    assert_eq!(one.recycle_before(one.durable_lsn()).unwrap(), 0);
    other.refresh();
    assert!(one.recycle_before(one.durable_lsn()).unwrap() > 4);
    assert!(one.tail().0 - one.oldest_lsn().0 >= 2 * SEGMENT_BYTES);
}

/// I2: whatever was granted stays, as long as it is pinned.
#[test]
fn pins_are_granted_while_another_process_gives_up() {
    let (disk, dir): (Arc<dyn Disk>, _) = (Arc::new(SimDisk::new()), tempfile::tempdir().unwrap());
    let [one, other] = two_logs(dir.path(), &disk);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut granted = 0;
            while !is_over.load(SeqCst) || granted == 0 {
                let lsn = other.oldest_lsn();
                if let Ok(pin) = other.pin("a reader", lsn, u64::MAX) {
                    granted += 1;
                    for _ in 0..20 {
                        assert!(other.oldest_lsn() <= pin.lsn() && one.oldest_lsn() <= pin.lsn());
                        std::thread::yield_now();
                    }
                }
            }
        });
        for _ in 0..100 {
            fill(&one, 2);
            one.recycle_before(one.durable_lsn()).unwrap();
        }
        is_over.store(true, SeqCst);
    });
    one.recycle_before(one.durable_lsn()).unwrap();
    assert!(one.oldest_lsn().0 > 150 * SEGMENT_BYTES, "nothing pins any more");
}
