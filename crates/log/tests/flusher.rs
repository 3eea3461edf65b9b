//! Processes that share a log have one flusher.
#![cfg(not(loom))]

mod kit;

use std::sync::Arc;

use kit::*;
use ledgerstone_disk::{Disk, SimDisk};
use ledgerstone_log::Log;
use ledgerstone_testkit::other::within_patience;

/// Somebody makes durable what this one asks for, and does not wait for.
fn is_served(log: &Log) {
    let lsn = append_one(log, 1, 100).unwrap();
    log.request_flush(lsn);
    within_patience(|| log.is_durable(lsn));
}

#[test]
fn another_process_neither_starts_a_second_nor_stops_the_first() {
    let (disk, dir): (Arc<dyn Disk>, _) = (Arc::new(SimDisk::new()), tempfile::tempdir().unwrap());
    let [one, other] = two_logs(dir.path(), &disk);
    assert!(!one.has_living_flusher() && !other.has_living_flusher());
    for [starts, comes_later] in [[&one, &other], [&other, &one], [&other, &one]] {
        assert!(starts.start_flusher().unwrap() && starts.start_flusher().unwrap());
        assert!(one.has_living_flusher() && other.has_living_flusher());
        assert!(!comes_later.start_flusher().unwrap());
        comes_later.stop_flusher();
        assert!(one.has_living_flusher() && !comes_later.is_flusher());
        [starts, comes_later].into_iter().for_each(|log| is_served(log));
        starts.stop_flusher();
        assert!(!one.has_living_flusher() && !other.has_living_flusher());
    }
}

#[test]
fn of_two_that_start_at_once_one_is_the_flusher() {
    let (disk, dir): (Arc<dyn Disk>, _) = (Arc::new(SimDisk::new()), tempfile::tempdir().unwrap());
    let logs = two_logs(dir.path(), &disk);
    for _ in 0..100 {
        let started = std::thread::scope(|scope| {
            let started = logs.each_ref().map(|log| scope.spawn(|| log.start_flusher().unwrap()));
            started.map(|thread| thread.join().unwrap())
        });
        assert!(started[0] != started[1], "{started:?}");
        logs.iter().for_each(|log| is_served(log));
        logs.iter().for_each(|log| log.stop_flusher());
    }
}
