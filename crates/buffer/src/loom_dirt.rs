//! Models of a frame's dirt under loom: `RUSTFLAGS="--cfg loom" cargo test -p ledgerstone-buffer --release loom`.
//!
//! The planted bug must be found: with `--features planted-clean-too-soon` the first model fails.

use crate::dirt::{oldest_change, take_write};
use ledgerstone_page::Lsn;
use ledgerstone_region::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
use loom::sync::Arc;
use loom::thread;

/// A page with one change, of LSN 8.
struct Frame {
    rec_lsn: AtomicU64,
    flushing_rec_lsn: AtomicU64,
    written: AtomicU32,
}

impl Frame {
    fn new() -> Arc<Frame> {
        Arc::new(Frame { rec_lsn: AtomicU64::new(8), flushing_rec_lsn: AtomicU64::new(0), written: AtomicU32::new(0) })
    }

    /// As a write-back does: takes the write, writes, and says that it is done.
    fn write_back(&self) {
        if let Some(lsn) = take_write(&self.rec_lsn, &self.flushing_rec_lsn) {
            assert_eq!(lsn, Lsn(8));
            self.written.fetch_add(1, SeqCst);
            self.flushing_rec_lsn.store(0, SeqCst);
        }
    }
}

#[test]
fn a_change_that_is_not_durable_is_never_overlooked() {
    loom::model(|| {
        let frame = Frame::new();
        let writer = {
            let frame = Arc::clone(&frame);
            thread::spawn(move || frame.write_back())
        };
        if oldest_change(&frame.rec_lsn, &frame.flushing_rec_lsn).is_none() {
            assert_eq!(frame.written.load(SeqCst), 1, "the page looks clean and is not written");
        }
        writer.join().unwrap();
        assert_eq!(oldest_change(&frame.rec_lsn, &frame.flushing_rec_lsn), None);
    });
}

#[test]
fn of_two_that_write_a_page_back_one_does() {
    loom::model(|| {
        let frame = Frame::new();
        let other = {
            let frame = Arc::clone(&frame);
            thread::spawn(move || frame.write_back())
        };
        frame.write_back();
        other.join().unwrap();
        assert_eq!(frame.written.load(SeqCst), 1);
    });
}
