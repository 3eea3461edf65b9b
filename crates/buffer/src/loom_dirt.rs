//! Models of a frame's dirt under loom: `RUSTFLAGS="--cfg loom" cargo test -p ledgerstone-buffer --release loom`.
//!
//! The planted bug must be found: with `--features planted-clean-too-soon` the first model fails.

use crate::dirt::{finish_write, give_write_back, oldest_change, take_write};
use ledgerstone_page::Lsn;
use ledgerstone_region::SlotNo;
use ledgerstone_region::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
use loom::sync::Arc;
use loom::thread;

/// A page with one change, of LSN 8.
struct Frame {
    state: AtomicU64,
    rec_lsn: AtomicU64,
    flushing_rec_lsn: AtomicU64,
    written: AtomicU32,
}

impl Frame {
    fn new() -> Arc<Frame> {
        Arc::new(Frame {
            state: AtomicU64::new(1),
            rec_lsn: AtomicU64::new(8),
            flushing_rec_lsn: AtomicU64::new(0),
            written: AtomicU32::new(0),
        })
    }

    /// As a write-back does: takes the write, writes, and says that it is done.
    fn write_back(&self, me: SlotNo) {
        if let Some(lsn) = take_write(&self.state, &self.rec_lsn, &self.flushing_rec_lsn, me) {
            assert_eq!(lsn, Lsn(8));
            self.written.fetch_add(1, SeqCst);
            finish_write(&self.state, &self.flushing_rec_lsn);
        }
    }
}

#[test]
fn a_change_that_is_not_durable_is_never_overlooked() {
    loom::model(|| {
        let frame = Frame::new();
        let writer = {
            let frame = Arc::clone(&frame);
            thread::spawn(move || frame.write_back(SlotNo(1)))
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
            thread::spawn(move || frame.write_back(SlotNo(1)))
        };
        frame.write_back(SlotNo(0));
        other.join().unwrap();
        assert_eq!(frame.written.load(SeqCst), 1);
    });
}

/// A thread has taken the write and died. Its name goes while another writes the page, or looks whether it is clean.
#[test]
fn what_the_dead_have_taken_along_is_written_by_another() {
    loom::model(|| {
        let frame = Frame::new();
        assert!(take_write(&frame.state, &frame.rec_lsn, &frame.flushing_rec_lsn, SlotNo(7)).is_some());
        let repairer = {
            let frame = Arc::clone(&frame);
            thread::spawn(move || give_write_back(&frame.state))
        };
        let other = {
            let frame = Arc::clone(&frame);
            thread::spawn(move || frame.write_back(SlotNo(1)))
        };
        if oldest_change(&frame.rec_lsn, &frame.flushing_rec_lsn).is_none() {
            assert_eq!(frame.written.load(SeqCst), 1, "the page looks clean and is not written");
        }
        repairer.join().unwrap();
        other.join().unwrap();
        frame.write_back(SlotNo(0));
        assert_eq!(frame.written.load(SeqCst), 1);
        assert_eq!(oldest_change(&frame.rec_lsn, &frame.flushing_rec_lsn), None);
        assert_eq!(frame.state.load(SeqCst), 1);
    });
}
