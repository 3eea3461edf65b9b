//! Eight threads in three processes that do anything, die and stop at random.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use ledgerstone_page::{TableId, Xid};
use ledgerstone_region::sync::deaths::{kill_at_step, stop_at_step};
use ledgerstone_region::{Random, sync};
use ledgerstone_testkit::deaths::{at_random, lived, outlived, round};

use super::{Here, World, tiny};
use crate::planted::Part;
use crate::tests::{key, patient, table_name};
use crate::{Conflict, LockConfig, LockError, LockManager, Mode, OwnerNo, Wait};

/// What a thread of a random process does: all calls, at random.
fn work(here: &Here, owners: [OwnerNo; 2], seed: u64, count: u64) {
    let [owner, inner] = owners;
    let mut dice = Random::new(seed ^ u64::from(owner.0) << 32);
    for n in 0..count {
        here.table.begin(owner, Xid(10 + n * 64 + u64::from(owner.0)));
        here.table.avoid_deadlocks(owner);
        let outcome = work_once(here, owner, &mut dice).and_then(|()| {
            if dice.below(4) != 0 {
                return Ok(());
            }
            here.table.begin(inner, Xid(10 + n * 64 + u64::from(inner.0)));
            here.table.hold_up(owner, inner);
            let outcome = work_once(here, inner, &mut dice);
            here.table.let_go(owner, inner);
            here.unlock_all(inner);
            outcome
        });
        match outcome {
            Ok(()) | Err(LockError::Deadlock { .. } | LockError::Refused { .. } | LockError::Timeout { .. }) => {}
            Err(LockError::Cancelled) => here.table.allow_waits(),
            Err(error) => panic!("{owner}: {error}"),
        }
        here.unlock_all(owner);
        here.look_around(dice.below(16));
    }
    here.table.allow_waits();
}

pub(super) fn work_once(here: &Here, owner: OwnerNo, dice: &mut Random) -> Result<(), LockError> {
    for _ in 0..1 + dice.below(5) {
        let name = match dice.below(8) {
            0..3 => table_name(6 + dice.below(2)),
            3 => key(10 + dice.below(30)),
            _ => key(dice.below(4)),
        };
        let mode = if name.is_table() && dice.below(3) > 0 {
            [Mode::IS, Mode::IX][dice.below(2) as usize]
        } else {
            Mode::ALL[dice.below(6) as usize]
        };
        let wait = match dice.below(4) {
            0 => Wait::Try,
            1 => Wait::Until(sync::now_ns() + dice.below(40_000)),
            _ => patient(),
        };
        match dice.below(10) {
            0 => match here.table.lock_instant(owner, name, mode, wait) {
                Ok(_) | Err(LockError::WouldBlock) => {}
                Err(error) => return Err(error),
            },
            1 => {
                here.leave(owner, Some(name));
                here.table.unlock(owner, name);
            }
            2 => {
                if here.table.held(owner, name).is_some_and(|held| held.covers(Mode::IS)) {
                    here.enter(owner, name, Mode::IS);
                    here.table.downgrade(owner, name, Mode::IS);
                }
            }
            3 if here.lock(owner, table_name(7), Mode::X, wait).is_ok() => {
                for n in 0..40 {
                    here.leave(owner, Some(key(n)));
                }
                here.table.unlock_keys(owner, TableId(7));
            }
            _ => match here.lock(owner, name, mode, wait) {
                Ok(()) | Err(LockError::WouldBlock) => {}
                Err(error) => return Err(error),
            },
        }
        sync::yield_point("between locks");
    }
    Ok(())
}

/// A small table, of any kind.
pub(super) fn drawn(dice: &mut Random) -> LockConfig {
    LockConfig {
        conflict: [Conflict::Wait, Conflict::Wait, Conflict::NoWait, Conflict::WaitDie][dice.below(4) as usize],
        buckets: [1, 2, 16][dice.below(3) as usize],
        fast_intentions: dice.below(4) != 0,
        searches_when_blocked: dice.below(4) != 0,
        ..tiny()
    }
}

/// Eight threads in three processes. Processes 1 and 2 may die and stop, also while they repair; process 3 lives.
/// Returns how many died.
pub(super) fn crowd(seed: u64, forgotten: Option<Part>) -> u64 {
    let mut dice = Random::new(seed);
    let config = drawn(&mut dice);
    round((seed, forgotten), seed, 2_000_000, || {
        let world = World::new(forgotten, config, false);
        let is_over = Arc::new(AtomicBool::new(false));
        let threads = (0..8_u32).map(|no| {
            let process = 1 + no % 3;
            let owners = [OwnerNo(2 * no), OwnerNo(2 * no + 1)];
            (process, world.start(process, "worker", move |here| work(here, owners, seed, 6)))
        });
        let threads = threads.collect::<Vec<_>>();
        for process in [1, 2] {
            match dice.below(4) {
                0 => stop_at_step(process, 1 + dice.below(800), dice.below(5_000_000)),
                _ => kill_at_step(process, 1 + dice.below(1_500)),
            }
        }
        let menders = [1, 2, 3].map(|process| {
            let is_over = is_over.clone();
            (process, world.start(process, "mender", move |here| here.go_on_mending(&is_over, 100_000)))
        });
        let over = is_over.clone();
        let detector = world.start(3, "detector", move |here| here.go_on_detecting(&over));
        let mut died = BTreeSet::new();
        let mut late = None;
        for (process, thread) in threads {
            if outlived(thread).is_none() {
                died.insert(process);
            }
            // Another process, in slots of the dead once they are free.
            late.get_or_insert_with(|| {
                world.start(6, "late", move |here| work(here, [OwnerNo(20), OwnerNo(21)], seed, 4))
            });
        }
        lived(late.expect("started"));
        // Not while they mend at the end.
        kill_at_step(1, 0);
        kill_at_step(2, 0);
        sync::sleep_ns(20_000_000);
        is_over.store(true, SeqCst);
        lived(detector);
        for (process, mender) in menders {
            if outlived(mender).is_none() {
                died.insert(process);
            }
        }
        world.table.allow_waits();
        world.assert_all_free();
        died.len() as u64
    })
}

#[test]
fn processes_that_die_and_stop_at_random_leave_what_survivors_can_mend() {
    at_random(200, ["deaths"], 2, |seed| [crowd(seed, None)]);
}
