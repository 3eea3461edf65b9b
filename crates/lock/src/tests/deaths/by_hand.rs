//! Moments that deaths at random do not meet often, made by hand.

use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex};

use ledgerstone_page::Xid;
use ledgerstone_region::sync::deaths::{kill, stop_at_step};
use ledgerstone_region::{Dead, Random, Repair, sync};
use ledgerstone_testkit::deaths::{died, lived, outlived, round};

use super::{VICTIM, World, tiny};
use crate::bucket::Holder;
use crate::intention::word_of;
use crate::planted::Part;
use crate::table::{MENDING, NOT_TAKEN_IN};
use crate::tests::{key, patient, table_name};
use crate::{LockError, LockManager, Mode, OwnerNo, Wait, wait_word};

/// A thread dies that has granted a lock and not learned yet that the waiter shall give way. The waiter has the lock.
pub(super) fn grant_beside_a_verdict(forgotten: Option<Part>) {
    round(forgotten, 3, 100_000, || {
        let world = World::new(forgotten, tiny(), true);
        let waiter = OwnerNo(2);
        let victim = world.start(1, "victim", move |here| {
            let table = &*here.table;
            table.begin(VICTIM, Xid(1));
            here.lock(VICTIM, key(0), Mode::X, patient()).expect("it is free");
            here.world.is_settled.store(true, SeqCst);
            let word = &table.owner(waiter).wait_word;
            while wait_word::state(word.load(SeqCst)) != wait_word::ASLEEP {
                sync::sleep_ns(1_000);
            }
            here.leave(VICTIM, None);
            let queue = table.latch(key(0), VICTIM);
            queue.remove(table.node(table.owner(VICTIM).held_head.load(SeqCst)));
            queue.set_modes(table.node(table.owner(waiter).wait_node.load(SeqCst)), Some(Mode::X), None);
            let verdict = wait_word::end_wait(word, wait_word::ticket(word.load(SeqCst)), wait_word::VICTIM);
            assert!(verdict.is_some());
            sync::futex_wake(word, 1);
            kill(1);
        });
        let waiter = world.start(2, "waiter", move |here| {
            while !here.world.is_settled.load(SeqCst) {
                sync::sleep_ns(1_000);
            }
            here.table.begin(waiter, Xid(2));
            here.lock(waiter, key(0), Mode::X, patient()).expect("it is granted");
            here.unlock_all(waiter);
        });
        assert!(outlived(victim).is_none());
        world.mend_beside(waiter, 0);
    });
}

/// A thread dies that has written an intention and not seen yet that another has locked the whole table (I4).
pub(super) fn word_beside_a_strong_lock(forgotten: Option<Part>) {
    round(forgotten, 3, 100_000, || {
        let world = World::new(forgotten, tiny(), true);
        let strong = world.start(2, "strong", |here| {
            let owner = OwnerNo(2);
            here.table.begin(owner, Xid(2));
            here.lock(owner, table_name(7), Mode::X, patient()).expect("it is free");
            here.world.is_settled.store(true, SeqCst);
            sync::sleep_ns(10_000_000);
            here.unlock_all(owner);
        });
        let victim = world.start(1, "victim", |here| {
            here.table.begin(VICTIM, Xid(1));
            while !here.world.is_settled.load(SeqCst) {
                sync::sleep_ns(1_000);
            }
            here.table.owner(VICTIM).intentions[0].store(word_of(table_name(7), Mode::IX), SeqCst);
            kill(1);
        });
        assert!(outlived(victim).is_none());
        world.mend_beside(strong, 0);
    });
}

/// A process dies whose transaction has ended. Another one begins in its place while the repair looks at it (R3). Or
/// that one has died before it came here, and whoever ends it for it takes the place over first.
fn begin_beside_a_repair(forgotten: Option<Part>, is_adopted: bool, seed: u64) {
    round((seed, forgotten), seed, 200_000, || {
        let world = World::new(forgotten, tiny(), true);
        let victim = world.start(1, "victim", |here| {
            here.table.begin(VICTIM, Xid(1));
            for n in 0..4 {
                here.lock(VICTIM, key(n), Mode::X, patient()).expect("it is free");
            }
            here.unlock_all(VICTIM);
            kill(1);
        });
        assert!(outlived(victim).is_none());
        let successor = world.start(2, "successor", move |here| {
            for n in 0..20 {
                if is_adopted {
                    here.table.adopt(VICTIM, here.slots.current());
                    here.unlock_all(VICTIM);
                }
                here.table.begin(VICTIM, Xid(2 + n));
                here.lock(VICTIM, key(n), Mode::X, patient()).expect("it is free");
                here.lock(VICTIM, table_name(7), Mode::IX, patient()).expect("it is free");
                here.assert_protected(VICTIM);
                here.unlock_all(VICTIM);
                sync::sleep_ns(100_000);
            }
        });
        let repairer = world.start(3, "repairer", |here| {
            while !here.slots.repair(|dead| here.table.repair(dead)).expect("a slot is free") {
                sync::sleep_ns(10_000);
            }
        });
        lived(repairer);
        lived(successor);
        world.assert_all_free();
    });
}

/// A process dies that waits for a lock. Another lets go of that, and stops on its way, while the repair looks for the
/// request (R4).
fn grant_beside_a_repair(forgotten: Option<Part>, stop_step: u64) {
    round((stop_step, forgotten), stop_step, 200_000, || {
        let world = World::new(forgotten, tiny(), true);
        let holder = world.start(2, "holder", move |here| {
            let owner = OwnerNo(2);
            here.table.begin(owner, Xid(2));
            here.lock(owner, key(0), Mode::X, patient()).expect("it is free");
            here.world.is_settled.store(true, SeqCst);
            let victims = || wait_word::state(here.table.owner(VICTIM).wait_word.load(SeqCst));
            while victims() != wait_word::ASLEEP {
                sync::sleep_ns(1_000);
            }
            kill(1);
            while victims() != wait_word::IDLE {
                sync::yield_point("until the repair has begun");
            }
            stop_at_step(2, stop_step, 1_000_000);
            here.unlock_all(owner);
        });
        let victim = world.start(1, "victim", |here| {
            while !here.world.is_settled.load(SeqCst) {
                sync::sleep_ns(1_000);
            }
            here.table.begin(VICTIM, Xid(1));
            here.lock(VICTIM, key(0), Mode::X, patient()).expect("not reached");
        });
        assert!(outlived(victim).is_none());
        world.mend_beside(holder, 20_000_000);
    });
}

/// A thread collects an intention whose owner has given it up meanwhile and died. It has its node back while the repair
/// looks at it, and locks with it (R3). In rounds of an odd number it has to wait with it, and must not be taken out.
/// In the others it is granted, and must not be listed as the dead owner's.
fn collect_beside_a_repair(forgotten: Option<Part>, seed: u64) {
    round((seed, forgotten), seed, 200_000, || {
        let world = World::new(forgotten, tiny(), true);
        let (collector, name) = (OwnerNo(2), table_name(7));
        let victim = world.start(1, "victim", move |here| {
            here.table.begin(VICTIM, Xid(1));
            here.lock(VICTIM, name, Mode::IX, patient()).expect("it is free");
            here.unlock_all(VICTIM);
            kill(1);
        });
        assert!(outlived(victim).is_none());
        let holder = world.start(3, "holder", move |here| {
            if seed % 2 == 1 {
                let owner = OwnerNo(3);
                here.table.begin(owner, Xid(3));
                here.lock(owner, name, Mode::S, patient()).expect("it is free");
                here.world.is_settled.store(true, SeqCst);
                sync::sleep_ns(15_000_000);
                here.unlock_all(owner);
            }
        });
        let collector = world.start(2, "collector", move |here| {
            while seed % 2 == 1 && !here.world.is_settled.load(SeqCst) {
                sync::sleep_ns(1_000);
            }
            let (table, mut dice) = (&*here.table, Random::new(seed));
            let pause = |count: u64| (0..count).for_each(|_| sync::yield_point("a collector is slow"));
            table.begin(collector, Xid(2));
            let queue = table.latch(name, collector);
            let node_no = table.take_node_for_table(collector).expect("one is free");
            let node = table.node(node_no);
            // In small steps, to see it while it lasts.
            let mut looks_left = 20_000;
            while table.owner(VICTIM).thread.load(SeqCst) & MENDING == 0 && looks_left > 0 {
                sync::sleep_ns(if Dead::of(&here.slots).is_none() { 1_000 } else { 10 });
                looks_left -= 1;
            }
            pause(60 + dice.below(80));
            node.owner_previous.store(NOT_TAKEN_IN, SeqCst);
            queue.add(node_no, name, VICTIM, Some(Mode::IX), None);
            pause(dice.below(8));
            queue.remove(node);
            node.owner_previous.store(0, SeqCst);
            table.free_one(collector, node_no);
            drop(queue);
            here.lock(collector, name, Mode::X, patient()).expect("it is free");
            sync::sleep_ns(10_000_000);
            here.assert_protected(collector);
            here.unlock_all(collector);
        });
        world.mend_beside(collector, 20_000_000);
        lived(holder);
    });
}

pub(super) fn grants_beside_a_repair(forgotten: Option<Part>) {
    (1..40).for_each(|stop_step| grant_beside_a_repair(forgotten, stop_step));
}

#[test]
fn a_request_of_the_dead_that_is_just_being_granted_is_taken_out() {
    grants_beside_a_repair(None);
}

#[test]
fn a_node_that_a_collector_has_back_while_a_repair_looks_at_it_is_not_the_deads() {
    (0..1000).for_each(|seed| collect_beside_a_repair(None, seed));
}

pub(super) fn begins_beside_a_repair(forgotten: Option<Part>) {
    (0..100).for_each(|seed| begin_beside_a_repair(forgotten, seed % 2 == 1, seed));
}

#[test]
fn whoever_begins_or_ends_in_a_place_of_the_dead_waits_until_it_is_mended() {
    begins_beside_a_repair(None);
}

#[test]
fn an_intention_that_its_owner_could_not_believe_in_is_no_lock_of_the_dead() {
    word_beside_a_strong_lock(None);
}

#[test]
fn whoever_is_granted_a_lock_and_condemned_at_a_time_has_the_lock() {
    grant_beside_a_verdict(None);
}

/// Its transaction had a place, and the lock table had not heard of it. Whoever ends it may lock for it.
#[test]
fn an_owner_that_died_before_it_had_begun_locks_as_others_do() {
    round("an owner that had not begun", 3, 100_000, || {
        let world = World::new(None, tiny(), true);
        let ender = world.start(2, "ender", |here| {
            let (ended, other) = (OwnerNo(3), OwnerNo(1));
            here.table.adopt(ended, here.slots.current());
            here.lock(ended, table_name(7), Mode::IX, patient()).expect("it is free");
            here.table.begin(other, Xid(2));
            let refused = here.lock(other, table_name(7), Mode::X, Wait::Try);
            assert!(matches!(refused, Err(LockError::WouldBlock)), "{refused:?}");
            here.unlock_all(ended);
            here.unlock_all(other);
        });
        lived(ender);
        world.assert_all_free();
    });
}

/// A thread dies with the latch of a bucket. Those that wait there are served by age all the same, whatever nodes they
/// have (B1).
#[test]
fn whoever_waits_in_a_bucket_of_the_dead_is_served_by_age() {
    round("by age", 3, 100_000, || {
        let world = World::new(None, tiny(), true);
        let served = Arc::new(Mutex::new(Vec::new()));
        let holder = world.start(2, "holder", |here| {
            let owner = OwnerNo(2);
            here.table.begin(owner, Xid(2));
            here.lock(owner, key(0), Mode::X, patient()).expect("it is free");
            while !here.world.is_settled.load(SeqCst) {
                sync::sleep_ns(1_000);
            }
            here.unlock_all(owner);
        });
        let mut threads = vec![holder];
        // The younger one comes first, and so has the lower node.
        for (owner, age) in [(OwnerNo(3), 9), (OwnerNo(4), 5)] {
            sync::sleep_ns(1_000_000);
            let served = Arc::clone(&served);
            threads.push(world.start(2, "waits", move |here| {
                here.table.begin(owner, Xid(age));
                here.lock(owner, key(0), Mode::X, patient()).expect("it is granted");
                served.lock().expect("no panic").push(age);
                here.unlock_all(owner);
            }));
        }
        sync::sleep_ns(1_000_000);
        let victim = world.start(1, "victim", |here| {
            here.table.begin(VICTIM, Xid(1));
            std::mem::forget(here.table.latch(key(0), VICTIM));
            kill(1);
        });
        assert!(died(victim));
        let repairer = world.start(3, "repairer", |here| lived(here.mend().expect("one has died")));
        lived(repairer);
        world.is_settled.store(true, SeqCst);
        threads.into_iter().for_each(lived);
        assert_eq!(*served.lock().expect("no panic"), [5, 9]);
        world.assert_all_free();
    });
}

/// A thread dies that has collected an intention, with the bucket's latch. Its owner takes the lock in while the repair
/// looks whether anybody has it (B2).
fn take_in_beside_a_repair(seed: u64) {
    round(seed, seed, 200_000, || {
        let world = World::new(None, tiny(), true);
        let owner = world.start(2, "owner", move |here| {
            let owner = OwnerNo(2);
            here.table.begin(owner, Xid(2));
            here.lock(owner, table_name(7), Mode::IX, patient()).expect("it is free");
            let latch = &here.table.buckets[here.table.bucket_no(table_name(7)) as usize].latch;
            let holder = || Holder::in_word(latch.load(SeqCst));
            here.world.is_settled.store(true, SeqCst);
            while holder().is_none() {
                sync::sleep_ns(1_000);
            }
            let dead = holder();
            while holder() == dead {
                sync::yield_point("until the repair has begun");
            }
            (0..seed % 200).for_each(|_| sync::yield_point("a little later"));
            here.table.take_in_all(here.table.owner(owner));
            sync::sleep_ns(10_000_000);
            here.assert_protected(owner);
            here.unlock_all(owner);
        });
        let victim = world.start(1, "victim", |here| {
            while !here.world.is_settled.load(SeqCst) {
                sync::sleep_ns(1_000);
            }
            here.table.begin(VICTIM, Xid(1));
            let queue = here.table.latch(table_name(7), VICTIM);
            queue.bucket.strong.fetch_add(1, SeqCst);
            here.table.collect(&queue, VICTIM, table_name(7)).expect("there are nodes");
            kill(1);
        });
        assert!(outlived(victim).is_none());
        world.mend_beside(owner, 20_000_000);
    });
}

#[test]
fn what_was_collected_by_the_dead_is_taken_in_beside_a_repair() {
    (0..1000).for_each(take_in_beside_a_repair);
}
