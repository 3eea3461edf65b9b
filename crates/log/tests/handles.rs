//! However many segments are kept, a few files are open.
#![cfg(not(loom))]

mod kit;

use std::sync::Arc;

use kit::*;
use ledgerstone_disk::{Disk, SimDisk};
use ledgerstone_log::{ControlState, FIRST_LSN, check_segments, tidy_segments};

/// No system has so few descriptors.
const OPEN_MAX: u64 = 24;

#[test]
fn a_log_of_many_segments_has_few_of_them_open() {
    const COUNT: u64 = 2000;
    let sim = SimDisk::new();
    let disk: Arc<dyn Disk> = Arc::new(sim.clone());
    let log = new_log(Arc::clone(&disk));
    let mut lsns = Vec::new();
    for no in 0..COUNT {
        lsns.push(append_one(&log, no, 1000).unwrap());
        log.flush().unwrap();
    }
    assert!(log.tail().0 / SEGMENT_BYTES > 4 * OPEN_MAX);
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
    assert_eq!(sim.counters().open_files, 0);

    // So do those who look through all of them.
    let state = ControlState::new(ENVIRONMENT, 4096, SEGMENT_BYTES);
    check_segments(&disk, &state).unwrap();
    let mut scan = scan(Arc::clone(&disk), FIRST_LSN, 1).settled().unwrap();
    assert_eq!(read_all(&mut scan).unwrap().len() as u64, COUNT + COUNT / 100);
    drop(scan);
    tidy_segments(&disk, SEGMENT_BYTES, end).unwrap();
    assert_eq!(sim.counters().open_files, 0);
    assert!(sim.counters().open_files_max <= OPEN_MAX, "{:?}", sim.counters());
}
