//! Tasks of one process are woken by what another one makes durable, and by nothing else.
#![cfg(not(loom))]

mod kit;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::task::{Wake, Waker};
use std::time::Duration;

use kit::*;
use ledgerstone_disk::{Disk, SimDisk};
use ledgerstone_log::LogError;
use ledgerstone_testkit::other::within_patience;

#[derive(Default)]
struct Count(AtomicU32);

impl Count {
    fn is(&self) -> u32 {
        self.0.load(SeqCst)
    }
}

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

#[test]
fn a_flush_of_one_process_wakes_tasks_of_another() {
    let (disk, dir): (Arc<dyn Disk>, _) = (Arc::new(SimDisk::new()), tempfile::tempdir().unwrap());
    let [one, other] = two_logs(dir.path(), &disk);
    for round in 0..50 {
        let woken = [0, 1].map(|_| Arc::new(Count::default()));
        let wakers = woken.each_ref().map(|woken| Waker::from(Arc::clone(woken)));
        let (mut first, mut second) = (None, None);
        let lsn = append_one(&other, 1, 100).unwrap();
        other.on_durable(lsn, &mut first, &wakers[0]);
        other.on_durable(one.tail(), &mut second, &wakers[1]);
        one.flush_to(lsn).unwrap();
        within_patience(|| woken[0].is() == 1);
        assert_eq!(woken[1].is(), 0, "what comes next is not durable");
        if round % 10 == 0 {
            std::thread::sleep(Duration::from_millis(1)); // The notifier sleeps, perhaps.
        }
        if round % 2 == 0 {
            other.forget_waker(one.tail(), &mut second);
            append_one(&one, 2, 100).and_then(|lsn| one.flush_to(lsn)).unwrap();
            assert_eq!(woken[1].is(), 0);
        } else {
            append_one(&one, 2, 100).and_then(|lsn| one.flush_to(lsn)).unwrap();
            within_patience(|| woken[1].is() == 1);
        }
    }
}

#[test]
fn a_failure_wakes_the_tasks_of_all_processes() {
    let (disk, dir): (Arc<dyn Disk>, _) = (Arc::new(SimDisk::new()), tempfile::tempdir().unwrap());
    let [one, other] = two_logs(dir.path(), &disk);
    let woken = Arc::new(Count::default());
    other.on_durable(one.tail(), &mut None, &Waker::from(Arc::clone(&woken)));
    one.fail();
    within_patience(|| woken.is() == 1);
}

/// A handle that leaves refuses calls and wakes its own. The log of the others goes on.
#[test]
fn whoever_leaves_ends_nothing_for_others() {
    let (disk, dir): (Arc<dyn Disk>, _) = (Arc::new(SimDisk::new()), tempfile::tempdir().unwrap());
    let [one, other] = two_logs(dir.path(), &disk);
    let woken = [0, 1].map(|_| Arc::new(Count::default()));
    let wakers = woken.each_ref().map(|woken| Waker::from(Arc::clone(woken)));
    let most = usize::try_from(one.claim_bytes_max()).unwrap();
    let next = one.tail();
    one.on_durable(next, &mut None, &wakers[0]);
    other.on_durable(next, &mut None, &wakers[1]);
    assert!(other.start_flusher().unwrap());
    let (held, kept) = (one.claim(most).unwrap(), other.reserve_undo(100).is_ok());
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| other.claim(most).map(drop));
        std::thread::sleep(Duration::from_millis(20)); // It waits by then, most likely.
        other.leave();
        assert!(matches!(waits.join().unwrap(), Err(LogError::Closed)));
    });
    within_patience(|| woken[1].is() == 1);
    assert!(kept && !one.has_living_flusher());
    other.release_undo(100);
    one.give_back(held);
    assert!(other.is_failed() && !one.is_failed() && woken[0].is() == 0);
    assert!(matches!(other.claim(8), Err(LogError::Closed)));
    let lsn = append_one(&one, 1, 100).unwrap();
    assert!(matches!(other.flush_to(lsn), Err(LogError::Closed)));
    one.flush_to(lsn).unwrap();
    within_patience(|| woken[0].is() == 1);
    assert!(one.start_flusher().unwrap());
    one.stop_flusher();
    drop(other);
    let held = one.claim(most).unwrap();
    one.give_back(held);
}
