//! Many threads that want room in a small buffer at once, under the seeded scheduler. Few of them ever wait, and a
//! large claim comes to its turn beside small ones.
#![cfg(not(loom))]

mod kit;

use std::sync::{Arc, Mutex};

use kit::*;
use ledgerstone_disk::{Disk, SimDisk};
use ledgerstone_log::{Claim, Log, LogConfig, LogError};
use ledgerstone_region::sync::{self, Scheduler};

const BUFFER_BYTES: u64 = 64 << 10;

type Claims = fn(&Log, usize) -> Result<Claim, LogError>;

fn log_of() -> Arc<Log> {
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new());
    let log = Log::open(LogConfig { buffer_bytes: BUFFER_BYTES, segment_bytes: 1 << 20, ..config(disk) }).unwrap();
    log.start_flusher().unwrap();
    log
}

/// Threads that append one short record after the other and wait for nothing. Returns how many of their claims waited,
/// in percent.
fn waits_of_a_crowd(seed: u64, thread_count: u64) -> u64 {
    const EACH: u64 = 100;
    let run = Scheduler::run(seed, || {
        let log = log_of();
        let threads: Vec<_> = (0..thread_count)
            .map(|thread| {
                let log = Arc::clone(&log);
                sync::spawn("writer", move || {
                    for no in 0..EACH {
                        append_one(&log, thread * EACH + no, 64).unwrap();
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        log.stop_flusher();
        log.stat().claim_wait_count
    });
    run.unwrap() * 100 / (thread_count * EACH)
}

#[test]
fn a_crowd_of_short_claims_does_not_line_up_behind_the_first_that_had_to_wait() {
    for seed in 0..6 {
        let percent = waits_of_a_crowd(seed, 40);
        assert!(percent <= 20, "seed {seed}: {percent} % of the claims waited");
    }
}

/// Who is served, in order, by these sizes: a large claim waits, and the others come after it. `claim_others`: how the
/// others claim.
fn served_behind_a_large_claim(seed: u64, claim_others: Claims) -> Vec<u64> {
    let served = Scheduler::run(seed, move || {
        let log = log_of();
        let served = Arc::new(Mutex::new(Vec::new()));
        let first = log.claim(1000).unwrap();
        let claim_in_thread = |bytes: u64, claim: Claims| {
            let (log, served) = (Arc::clone(&log), Arc::clone(&served));
            let thread = sync::spawn("claimer", move || {
                let claim = claim(&log, bytes as usize).unwrap();
                served.lock().unwrap().push(bytes);
                log.give_back(claim);
            });
            sync::sleep_ns(1_000_000); // Longer than it needs to come to its wait.
            thread
        };
        let large = claim_in_thread(log.claim_bytes_max(), Log::claim);
        let threads = [large, claim_in_thread(800, claim_others), claim_in_thread(80, claim_others)];
        assert_eq!(*served.lock().unwrap(), []);
        log.give_back(first);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        log.stop_flusher();
        Arc::try_unwrap(served).unwrap().into_inner().unwrap()
    });
    served.unwrap()
}

/// C3 in `append.rs`, whichever call the small ones come by: transactions claim together with what undoes them.
#[test]
fn a_large_claim_that_waits_is_not_passed_by_small_ones_that_would_take_its_room() {
    let with_undo: Claims = |log, bytes| log.claim_and_reserve_undo(bytes, 2048).inspect(|_| log.release_undo(2048));
    let others: [Claims; 2] = [Log::claim, with_undo];
    for (seed, claim_others) in (0..20).flat_map(|seed| others.map(|claim| (seed, claim))) {
        let served = served_behind_a_large_claim(seed, claim_others);
        assert_eq!((served[0], served.len()), (BUFFER_BYTES / 2, 3), "seed {seed}");
    }
}

/// The large claim comes by `claim`, and has to wait for a record within a claim that is then kept.
fn claim_behind_a_kept_rest(claim: Claims) {
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new());
    let settings = LogConfig { buffer_bytes: BUFFER_BYTES, segment_bytes: 1 << 20, ..config(disk) };
    let log = Log::open(LogConfig { kept_claim_count: 1, ..settings }).unwrap();
    log.start_flusher().unwrap();
    let mut kept = log.claim(8000).unwrap();
    let claims = Arc::clone(&log);
    let claimer = sync::spawn("claimer", move || {
        let claim = claim(&claims, claims.claim_bytes_max() as usize).unwrap();
        claims.give_back(claim);
    });
    sync::sleep_ns(1_000_000); // Longer than it needs to come to its wait.
    assert_eq!(log.stat().claim_wait_count, 1);
    append(&log, &mut kept, 0, 7000);
    assert!(kept.left() <= log.kept_claim_bytes());
    claimer.join().unwrap();
    log.give_back(kept);
    log.stop_flusher();
}

/// C5 in `append.rs`: what is kept goes back to nobody, and the thread that keeps it does nothing any more. What it has
/// appended before is flushed all the same by a thread that needs the room, be it in line or beside.
#[test]
fn a_claim_finds_its_room_behind_one_whose_rest_is_kept() {
    let claims: [(&str, Claims); 3] =
        [("ordinary", Log::claim), ("of a rollback", Log::claim_undo), ("for upkeep", Log::claim_upkeep)];
    for (seed, (name, claim)) in (0..20).flat_map(|seed| claims.map(|claim| (seed, claim))) {
        let outcome = Scheduler::run(seed, move || claim_behind_a_kept_rest(claim));
        assert!(outcome.is_ok(), "{name}, seed {seed}: {:?}", outcome.err());
    }
}
