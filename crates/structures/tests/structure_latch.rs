//! The latch of a structure's instance: one for a thread, and no wait for ever.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use ledgerstone_disk::{Disk, SimDisk};
use ledgerstone_op::Registry;
use ledgerstone_page::PageId;
use ledgerstone_testkit::EngineKit;
use ledgerstone_txn::{Engine, StructureLatch, TxnError};

const ROOT: PageId = PageId(7);
const SOON: Duration = Duration::from_millis(20);
const LATE: Duration = Duration::from_secs(30);

fn engine() -> Arc<Engine> {
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new());
    let kit = EngineKit { page_count_max: 1 << 14, ..EngineKit::new(*b"latches of users") };
    let data = kit.data(&disk).unwrap();
    let made: Result<_, Box<dyn std::error::Error>> = kit.engine(&disk, &data, Registry::new(), |log| log);
    made.unwrap()
}

/// The other may be the same latch, since instances share them: the thread would wait for itself.
#[test]
fn a_thread_that_has_one_is_refused_another() {
    let engine = engine();
    let first = StructureLatch::of(&engine, ROOT).shared().unwrap();
    for root in (0..1000).map(PageId) {
        let refused = StructureLatch::of(&engine, root).exclusive();
        assert!(matches!(refused, Err(TxnError::StructureLatchHeld)), "{root}");
    }
    drop(first);
    drop(StructureLatch::of(&engine, ROOT).exclusive().unwrap());
    drop(StructureLatch::of(&engine, PageId(8)).exclusive().unwrap());
}

#[test]
fn shared_holders_stand_beside_each_other_and_an_exclusive_one_alone() {
    let engine = engine();
    let held = StructureLatch::of(&engine, ROOT).shared().unwrap();
    std::thread::scope(|threads| {
        threads.spawn(|| drop(StructureLatch::of(&engine, ROOT).shared().unwrap())).join().unwrap();
        let ((tell, told), engine) = (channel(), &engine);
        let waits = threads.spawn(move || {
            let _held = StructureLatch::of(engine, ROOT).exclusive().unwrap();
            tell.send(()).unwrap();
        });
        assert!(told.recv_timeout(SOON).is_err(), "it is held");
        drop(held);
        told.recv_timeout(LATE).unwrap();
        waits.join().unwrap();
    });
}

/// Who holds it may not come back, if the environment has failed.
#[test]
fn nobody_waits_in_an_environment_that_has_failed() {
    let engine = engine();
    let held = StructureLatch::of(&engine, ROOT).exclusive().unwrap();
    std::thread::scope(|threads| {
        let waits = threads.spawn(|| StructureLatch::of(&engine, ROOT).shared().map(drop));
        std::thread::sleep(SOON);
        engine.fail("a test");
        assert!(matches!(waits.join().unwrap(), Err(TxnError::Failed { .. })));
    });
    drop(held);
}
